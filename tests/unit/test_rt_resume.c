/* SPDX-License-Identifier: Apache-2.0 */
/* Resumed runs of the bigram trainer: every sample of the data once, whatever changes between them; what cannot go on
 * is refused; no run takes the folder or the log of another. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>
#include "../mpi/bigram.h"
#include "checkpoint.h"

enum { TOKENS = 4000, MOST_TEXT = 8192 };

static char folder[ZPR_PATH];
static int32_t stream[2 * TOKENS]; /* what the token files are made of */

static const char *in_folder(const char *name) {
  static char path[8][ZPR_PATH];
  static int next;
  return zpr_path(path[next++ % 8], "%s/%s", folder, name);
}

static void write_tokens(const char *name, int count, int first_changed) {
  int32_t header[256] = {20240520, 1, count};
  FILE *f = fopen(in_folder(name), "wb");
  fwrite(header, sizeof header, 1, f);
  for (int i = 0; i < count; i++) {
    uint16_t id = (uint16_t)((stream[i] + (i >= first_changed)) % BIGRAM_V);
    fwrite(&id, sizeof id, 1, f);
  }
  cr_assert_eq(fclose(f), 0);
}

static void remove_tree(void) {
  char command[ZPR_PATH + 16];
  snprintf(command, sizeof command, "rm -rf '%.4000s'", folder);
  if (system(command) != 0) fprintf(stderr, "%s stays\n", folder);
}

static void setup(void) {
  zpr_path(folder, "%s/zplan_resume_XXXXXX", P_tmpdir);
  cr_assert(mkdtemp(folder));
  uint64_t x = 1;
  for (int i = 0; i < 2 * TOKENS; i++) {
    x = x * UINT64_C(6364136223846793005) + 1442695040888963407;
    stream[i] = (int32_t)(x >> 33) % BIGRAM_V;
  }
  write_tokens("data.bin", TOKENS, TOKENS);
}

TestSuite(resume, .init = setup, .fini = remove_tree);

/* ---- a run: a child, whose tokens come back in a file ---- */

static FILE *trained;

static void record(zpr *c) {
  const zpr_program *p = c->program;
  for (int64_t mb = 0; mb < p->microbatches; mb++)
    fwrite(zpr_input(c, 0, mb), sizeof(int32_t), (size_t)(p->microbatch * p->sequence), trained);
  fflush(trained);
  bigram_micro_batches(c);
}

typedef struct settings {
  int64_t batch, sequence; /* 0: 8, 16 */
  uint64_t seed, order_seed;
  bool shuffled;
  const char *data; /* NULL: data.bin */
  double mask_rate;
  double weight; /* of data.bin, mixed with other.bin of weight 1; 0: data.bin alone */
} settings;

static void child(const settings *s, int ends, const char *const *words) {
  zpr_program *p = bigram_program(1, 1, 0, ZPK_F32);
  char *argv[16] = {"trainer", "--checkpoint", (char *)in_folder("ck")};
  int argc = 3;
  for (; *words; words++) argv[argc++] = (char *)*words;
  p->batch = p->microbatches = s->batch ? s->batch : 8;
  p->sequence = s->sequence ? s->sequence : BIGRAM_S;
  p->seed += s->seed;
  p->train = (zpr_source){.kind = ZPR_TOKENS,
                          .path = in_folder(s->data ? s->data : "data.bin"),
                          .seed = s->order_seed,
                          .shuffled = s->shuffled,
                          .mask_rate = s->mask_rate};
  const zpr_source parts[] = {p->train, {.kind = ZPR_TOKENS, .path = in_folder("other.bin"), .shuffled = true}};
  const double weights[] = {s->weight, 1};
  if (s->weight > 0) p->train = (zpr_source){.kind = ZPR_MIX, .n_parts = 2, .parts = parts, .weights = weights};
  p->validate_every = 0;
  p->micro_batches = record;
  trained = fopen(in_folder("trained"), "ab");
  dup2(ends, STDOUT_FILENO);
  dup2(ends, STDERR_FILENO);
  exit(zpr_main(argc, argv, p));
}

static char said[MOST_TEXT]; /* by the last run */

static int train(settings s, const char *const *words) {
  int ends[2], status;
  cr_assert_eq(pipe(ends), 0);
  fflush(NULL);
  pid_t pid = fork();
  if (pid == 0) child(&s, ends[1], words);
  close(ends[1]);
  size_t used = 0;
  for (ssize_t got; (got = read(ends[0], said + used, sizeof said - 1 - used)) > 0;) used += (size_t)got;
  said[used] = 0;
  close(ends[0]);
  cr_assert_eq(waitpid(pid, &status, 0), pid);
  cr_assert(WIFEXITED(status), "%s", said);
  return WEXITSTATUS(status);
}
#define TRAIN(settings, ...) train(settings, (const char *const[]){__VA_ARGS__, NULL})
#define SAYS(text) cr_expect(strstr(said, text), "no \"%s\" in: %s", text, said)
#define SAYS_NOT(text) cr_expect(!strstr(said, text), "\"%s\" in: %s", text, said)

/* Tokens of all runs so far. */
static int64_t read_trained(int32_t *tokens, int64_t most) {
  FILE *f = fopen(in_folder("trained"), "rb");
  int64_t n = f ? (int64_t)fread(tokens, sizeof *tokens, (size_t)most, f) : 0;
  if (f) fclose(f);
  return n;
}

/* The runs together have read the first `count` tokens of the stream once, in order. */
static void expect_read_on(int64_t count) {
  static int32_t tokens[TOKENS];
  cr_expect_eq(read_trained(tokens, TOKENS), count);
  for (int64_t i = 0; i < count; i++)
    if (tokens[i] != stream[i]) {
      cr_expect_fail("token %lld is another", (long long)i);
      return;
    }
}

static bool has_step(int64_t step) {
  char path[ZPR_PATH];
  return access(zpr_path(path, "%s/ck/step_%06lld/manifest.json", folder, (long long)step), F_OK) == 0;
}

static const settings as_before;

/* ---- changes ---- */

Test(resume, another_batch_goes_on_with_the_next_sample) {
  cr_assert_eq(TRAIN(as_before, "--steps", "3"), 0);
  cr_assert_eq(TRAIN(((settings){.batch = 4}), "--steps", "7", "--resume"), 0);
  SAYS("warning: the checkpoint of step 3 was trained with batch 8, now 4; goes on with sample 25");
  cr_assert_eq(TRAIN(as_before, "--steps", "8", "--resume"), 0);
  SAYS("batch 4, now 8; goes on with sample 41");
  cr_assert_eq(TRAIN(as_before, "--steps", "9", "--resume"), 0);
  SAYS_NOT("warning");
  expect_read_on((3 * 8 + 4 * 4 + 2 * 8) * BIGRAM_S);
}

Test(resume, another_sample_length_goes_on_after_the_last_token) {
  cr_assert_eq(TRAIN(as_before, "--steps", "2"), 0);
  cr_assert_eq(TRAIN(((settings){.sequence = 8}), "--steps", "4", "--resume"), 0);
  SAYS("samples of 16 tokens, now 8; goes on with sample 33");
  cr_assert_eq(TRAIN(as_before, "--steps", "5", "--resume"), 0);
  expect_read_on(2 * 8 * 16 + 2 * 8 * 8 + 8 * 16);
}

Test(resume, another_sample_length_in_the_second_pass) {
  int32_t tokens[TOKENS];
  write_tokens("data.bin", 16 * 20 + 1, TOKENS); /* 20 samples of 16, 40 of 8 */
  cr_assert_eq(TRAIN(as_before, "--steps", "3"), 0);
  cr_assert_eq(TRAIN(((settings){.sequence = 8}), "--steps", "4", "--resume"), 0);
  SAYS("goes on with sample 49"); /* 24 samples were one pass and 4 of the second, which are 8 of the new ones */
  cr_assert_eq(read_trained(tokens, TOKENS), (3 * 16 + 8) * 8);
  for (int i = 0; i < 8 * 8; i++) cr_assert_eq(tokens[3 * 8 * 16 + i], stream[4 * 16 + i]);
}

Test(resume, another_seed_is_refused) {
  cr_assert_eq(TRAIN(as_before, "--steps", "2"), 0);
  cr_assert_eq(TRAIN(((settings){.seed = 1}), "--steps", "4", "--resume"), 1);
  SAYS("error[Z0814]");
  SAYS("seed 7, this run has 8");
  SAYS("--accept-changes");
  cr_assert(!has_step(4));
  cr_assert_eq(TRAIN(((settings){.seed = 1}), "--steps", "4", "--resume", "--accept-changes"), 0);
  SAYS("warning");
  expect_read_on(4 * 8 * BIGRAM_S);
}

Test(resume, other_data_is_refused) {
  int32_t tokens[TOKENS];
  cr_assert_eq(TRAIN(as_before, "--steps", "2"), 0);
  write_tokens("other.bin", TOKENS, 5);
  cr_assert_eq(TRAIN(((settings){.data = "other.bin"}), "--steps", "4", "--resume"), 1);
  SAYS("error[Z0814]");
  SAYS("data.bin\" (4000 tokens");
  SAYS("other.bin\" (4000 tokens");
  cr_assert_eq(TRAIN(((settings){.data = "other.bin"}), "--steps", "4", "--resume", "--accept-changes"), 0);
  SAYS("goes on with sample 1 of the data");
  cr_assert_eq(read_trained(tokens, TOKENS), 4 * 8 * BIGRAM_S);
  cr_expect_eq(tokens[2 * 8 * BIGRAM_S + 4], stream[4]);
  cr_expect_eq(tokens[2 * 8 * BIGRAM_S + 5], (stream[5] + 1) % BIGRAM_V);
}

Test(resume, one_changed_token_is_other_data) {
  cr_assert_eq(TRAIN(as_before, "--steps", "2"), 0);
  write_tokens("data.bin", TOKENS, TOKENS - 1);
  cr_assert_eq(TRAIN(as_before, "--steps", "4", "--resume"), 1);
  SAYS("error[Z0814]");
}

Test(resume, the_same_data_by_another_name_says_nothing) {
  cr_assert_eq(TRAIN(as_before, "--steps", "2"), 0);
  cr_assert_eq(rename(in_folder("data.bin"), in_folder("moved.bin")), 0);
  cr_assert_eq(TRAIN(((settings){.data = "moved.bin"}), "--steps", "4", "--resume"), 0);
  SAYS_NOT("warning");
  expect_read_on(4 * 8 * BIGRAM_S);
}

Test(resume, data_that_grew) {
  cr_assert_eq(TRAIN(as_before, "--steps", "2"), 0);
  write_tokens("data.bin", 2 * TOKENS, 2 * TOKENS);
  cr_assert_eq(TRAIN(as_before, "--steps", "4", "--resume"), 0);
  SAYS("data of 4000 tokens, now there are 8000, the first ones alike; goes on with sample 17");
  expect_read_on(4 * 8 * BIGRAM_S);
}

Test(resume, shuffled_data_that_grew_is_refused) {
  settings shuffled = {.shuffled = true};
  cr_assert_eq(TRAIN(shuffled, "--steps", "2"), 0);
  write_tokens("data.bin", 2 * TOKENS, 2 * TOKENS);
  cr_assert_eq(TRAIN(shuffled, "--steps", "4", "--resume"), 1);
  SAYS("error[Z0814]");
}

Test(resume, another_order_is_refused) {
  cr_assert_eq(TRAIN(as_before, "--steps", "2"), 0);
  cr_assert_eq(TRAIN(((settings){.shuffled = true}), "--steps", "4", "--resume"), 1);
  SAYS("sequential data, this run has shuffled");
  cr_assert_eq(TRAIN(((settings){.order_seed = 3}), "--steps", "4", "--resume"), 1);
  SAYS("data of seed 0, this run has 3");
}

Test(resume, other_masks_are_refused) {
  cr_assert_eq(TRAIN(((settings){.mask_rate = 0.15}), "--steps", "2"), 0);
  cr_assert_eq(TRAIN(((settings){.mask_rate = 0.15}), "--steps", "3", "--resume"), 0);
  cr_assert_eq(TRAIN(((settings){.mask_rate = 0.3}), "--steps", "4", "--resume"), 1);
  SAYS("masks (token 0, rate 0.15, seed 0), this run has (token 0, rate 0.3, seed 0)");
  cr_assert_eq(TRAIN(as_before, "--steps", "4", "--resume"), 1);
  SAYS("masks (token 0, rate 0.15, seed 0), this run has (none)");
}

Test(resume, shuffled_samples_of_another_length_are_refused) {
  cr_assert_eq(TRAIN(((settings){.shuffled = true}), "--steps", "2"), 0);
  cr_assert_eq(TRAIN(((settings){.shuffled = true, .sequence = 8, .batch = 4}), "--steps", "4", "--resume"), 1);
  SAYS("samples of 16 tokens, shuffled, this run has 8");
}

/* ---- where a run ends and begins ---- */

Test(resume, at_its_last_step_there_is_nothing_to_do) {
  cr_assert_eq(TRAIN(as_before, "--steps", "5"), 0);
  cr_assert_eq(TRAIN(as_before, "--steps", "5", "--resume", "--log", in_folder("log")), 0);
  SAYS("already at step 5 of 5: nothing to do");
  cr_expect_neq(access(in_folder("log"), F_OK), 0);
  expect_read_on(5 * 8 * BIGRAM_S);
}

Test(resume, after_its_last_step_is_an_error) {
  cr_assert_eq(TRAIN(as_before, "--steps", "5"), 0);
  cr_assert_eq(TRAIN(as_before, "--steps", "2", "--resume"), 1);
  SAYS("error[Z0816]");
  SAYS("is of step 5, and the run ends with step 2");
  cr_assert(has_step(5) && !has_step(2));
}

Test(resume, a_new_run_leaves_the_checkpoints_of_another_alone) {
  const char *log = in_folder("log");
  cr_assert_eq(TRAIN(as_before, "--steps", "5", "--log", log), 0);
  cr_assert_eq(TRAIN(as_before, "--steps", "2", "--log", log), 1);
  SAYS("error[Z0815]");
  SAYS("--resume");
  SAYS("--overwrite");
  cr_assert(has_step(5) && !has_step(2));
  char line[512];
  FILE *f = fopen(log, "r");
  int steps = 0;
  while (fgets(line, sizeof line, f)) steps += strncmp(line, "{\"step\"", 7) == 0;
  fclose(f);
  cr_expect_eq(steps, 5, "the log has %d steps", steps);
  cr_assert_eq(TRAIN(as_before, "--steps", "2", "--overwrite"), 0);
  cr_assert(has_step(2) && !has_step(5));
}

Test(resume, what_is_refused_overwrites_nothing) {
  cr_assert_eq(TRAIN(as_before, "--steps", "5"), 0);
  cr_assert_eq(TRAIN(as_before, "--steps", "2", "--overwrite", "--log", "/dev/null/log"), 1);
  cr_assert(has_step(5));
}

Test(resume, words_that_contradict_each_other) {
  cr_expect_eq(TRAIN(as_before, "--resume", "--overwrite"), 2);
  cr_expect_eq(TRAIN(as_before, "--accept-changes"), 2);
}

/* ---- two runs at once ---- */

Test(resume, a_folder_in_use_is_refused) {
  zpr_error error = {0};
  cr_assert(zpr_make_folders(in_folder("ck"), &error) && zpr_lock_folder(in_folder("ck"), &error), "%s", error.text);
  char mine[64];
  snprintf(mine, sizeof mine, "another run (pid %d on ", (int)getpid());
  cr_assert_eq(TRAIN(as_before, "--steps", "2"), 1);
  SAYS("error[Z0817]");
  SAYS(mine);
  cr_assert(!has_step(2));
  zpr_unlock_folder();
  cr_assert_eq(TRAIN(as_before, "--steps", "2"), 0);
  cr_expect_neq(access(in_folder("ck/.lock"), F_OK), 0, "the lock is removed in the end");
}

Test(resume, the_lock_of_a_killed_run_is_none) {
  zpr_error error = {0};
  cr_assert(zpr_make_folders(in_folder("ck"), &error));
  FILE *left = fopen(in_folder("ck/.lock"), "w");
  fprintf(left, "pid 1 on nowhere\n");
  fclose(left);
  cr_assert_eq(TRAIN(as_before, "--steps", "2"), 0);
  SAYS_NOT("nowhere");
}

Test(resume, a_log_in_use_is_refused) {
  const char *log = in_folder("log");
  int fd = open(log, O_WRONLY | O_CREAT, 0666);
  cr_assert(fd >= 0 && write(fd, "{}\n", 3) == 3 && flock(fd, LOCK_EX) == 0);
  cr_assert_eq(TRAIN(as_before, "--steps", "2", "--log", log), 1);
  SAYS("error[Z0817]");
  cr_expect_eq(lseek(fd, 0, SEEK_END), 3, "it is left as it was");
  close(fd);
  cr_assert_eq(TRAIN(as_before, "--steps", "2", "--log", log, "--overwrite"), 0);
}

/* ---- losses far above the recent ones ---- */

static int spikes(const double *loss, int n, double *usual) {
  zpr_losses losses = {0};
  int found = 0;
  for (int i = 0; i < n; i++) found += zpr_loss_is_spike(&losses, loss[i], usual);
  return found;
}

/* Uniform in [-1, 1]. */
static double noise(int i) { return stream[i] / 5.0 - 1; }

Test(resume, a_loss_spike_is_found) {
  double loss[200], usual = 0;
  for (int i = 0; i < 200; i++) loss[i] = 8 * exp(-i / 60.0) + 2 + 0.1 * noise(i);
  cr_expect_eq(spikes(loss, 200, &usual), 0, "falling and noisy");
  loss[150] += 2;
  cr_expect_eq(spikes(loss, 200, &usual), 1);
  cr_expect(usual > 2 && usual < 3.5, "%g", usual);
  loss[150] = NAN;
  cr_expect_eq(spikes(loss, 200, &usual), 0, "what is not finite has its own warning");
  for (int i = 0; i < 200; i++) loss[i] = i < 100 ? 2 : i < 150 ? 2.1 : 4; /* a tremor of 5 %, then a new level */
  int found = spikes(loss, 200, &usual);
  cr_expect(found > 10 && found < 20, "%d", found);
  loss[3] = 50;
  cr_expect_eq(spikes(loss, 10, &usual), 0, "too few to tell");
}

static void loss_of_the_step(zpr *c) {
  bigram_micro_batches(c);
  c->loss = c->step == 30 ? 9 : 2 + 0.01 * (double)(c->step % 3);
}

Test(resume, a_loss_spike_is_told_and_logged) {
  zpr_program *p = bigram_program(1, 1, 0, ZPK_F32);
  p->micro_batches = loss_of_the_step;
  const char *log = in_folder("log");
  char *argv[] = {"trainer", "--steps", "40", "--log", (char *)log, NULL}, line[1024];
  int out = dup(STDOUT_FILENO), marked = 0, at = 0;
  cr_assert(freopen(in_folder("screen"), "w", stdout));
  cr_assert_eq(zpr_main(5, argv, p), 0);
  fflush(stdout);
  dup2(out, STDOUT_FILENO);
  FILE *f = fopen(log, "r");
  while (fgets(line, sizeof line, f))
    if (strstr(line, "\"loss_spike\": true")) marked++, at = atoi(line + strlen("{\"step\": "));
  fclose(f);
  cr_expect(marked == 1 && at == 31, "%d marked, step %d", marked, at);
  f = fopen(in_folder("screen"), "r");
  for (marked = 0; fgets(line, sizeof line, f);)
    marked += strstr(line, "warning: loss 9.000000 of step 31 is far above the recent ones") != NULL;
  fclose(f);
  cr_expect_eq(marked, 1);
}

/* Turns of sources are counted over the whole run, whatever the batch: every sample is that of a run without an end. */
Test(resume, a_mixture_goes_on_with_the_next_sample_also_with_another_batch) {
  static int32_t whole[TOKENS], parts[TOKENS];
  write_tokens("other.bin", 900, 0);
  cr_assert_eq(TRAIN(((settings){.weight = 2.5}), "--steps", "6"), 0, "%s", said);
  int64_t n = read_trained(whole, TOKENS);
  cr_assert_eq(n, 6 * 8 * BIGRAM_S);
  SAYS("source");
  cr_assert_eq(remove(in_folder("trained")), 0);
  cr_assert_eq(TRAIN(((settings){.weight = 2.5}), "--steps", "2", "--overwrite"), 0, "%s", said);
  cr_assert_eq(TRAIN(((settings){.weight = 2.5, .batch = 4}), "--steps", "10", "--resume"), 0, "%s", said);
  SAYS("batch 8, now 4");
  cr_expect_eq(read_trained(parts, TOKENS), n);
  cr_expect_arr_eq(parts, whole, (size_t)n * sizeof *whole);
}

Test(resume, another_mixture_is_refused) {
  write_tokens("other.bin", 900, 0);
  cr_assert_eq(TRAIN(((settings){.weight = 2.5}), "--steps", "2"), 0, "%s", said);
  cr_expect_eq(TRAIN(((settings){.weight = 2}), "--steps", "3", "--resume"), 1);
  SAYS("Z0814");
  SAYS("2.5 data.bin + 1 other.bin");
  cr_expect_eq(TRAIN(((settings){0}), "--steps", "3", "--resume"), 1);
  SAYS("Z0814");
  cr_expect_eq(TRAIN(((settings){.weight = 2.5, .sequence = 8}), "--steps", "3", "--resume"), 1);
  SAYS("samples of 16 tokens, mixed, this run has 8");
  cr_expect_eq(TRAIN(((settings){.weight = 2.5, .sequence = 8}), "--steps", "3", "--resume", "--accept-changes"), 0);
  SAYS("goes on with sample 33");
}
