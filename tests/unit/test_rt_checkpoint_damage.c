/* SPDX-License-Identifier: Apache-2.0 */
/* Everything that can be wrong with the files of a checkpoint or with the disk ends in one message with nothing
 * half-written. */
#define _XOPEN_SOURCE 700
#include "checkpoint_testing.h"
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

TestSuite(rt_checkpoint_damage, .init = setup, .fini = teardown);

/* Runs fn in a child; its standard error, and that it ended with status 1. */
static void expect_error(void (*fn)(void), const char *what, const char *code, const char *part) {
  int pipe_ends[2], status;
  char text[2048];
  size_t used = 0;
  cr_assert_eq(pipe(pipe_ends), 0);
  pid_t child = fork();
  if (child == 0) {
    dup2(pipe_ends[1], 2);
    close(pipe_ends[0]);
    fn();
    _exit(0);
  }
  close(pipe_ends[1]);
  for (ssize_t got; (got = read(pipe_ends[0], text + used, sizeof text - 1 - used)) > 0;) used += (size_t)got;
  close(pipe_ends[0]);
  text[used] = 0;
  cr_assert_eq(waitpid(child, &status, 0), child);
  cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 1, "%s: status %x, %s", what, (unsigned)status, text);
  cr_expect(strstr(text, code) && strstr(text, part), "%s: \"%s\" has no %s or \"%s\"", what, text, code, part);
  cr_expect(strncmp(text, "error[", 6) == 0 && !strstr(text + 1, "error["), "%s: one message: %s", what, text);
}

static void load_base(void) { zpr_checkpoint_load(&base, folder); }

/* Opens a file of checkpoint 1 and writes `bytes` of text at `at` (negative: from the end). */
static void overwrite(const char *name, long at, const char *text, size_t bytes) {
  char path[ZPR_PATH];
  FILE *f = fopen(zpr_path(path, "%s/step_000001/%s", folder, name), "r+b");
  cr_assert(f);
  fseek(f, at, at < 0 ? SEEK_END : SEEK_SET);
  fwrite(text, 1, bytes, f);
  fclose(f);
}

/* The sums of a file as it stands: the header's, and of the tensors that the program has there. */
static uint64_t *sums_of(const zpr_tensors *list, const char *name) {
  uint64_t *sums = calloc((size_t)zpr_piece_count(list), sizeof *sums);
  char path[64];
  size_t bytes;
  snprintf(path, sizeof path, "step_000001/%s", name);
  char *text = file_bytes(path, &bytes);
  sums[0] = zpr_piece_sum(text, 0, list->data_start / 8, 8);
  for (int64_t i = 0; i < list->n; i++) {
    const zpr_tensor *t = &list->tensor[i];
    if (list->data_start + t->end > (int64_t)bytes) continue;
    sums[1 + i] =
        zpr_piece_sum(text + list->data_start + t->begin, 0, (t->end - t->begin) / t->element_bytes, t->element_bytes);
  }
  free(text);
  return sums;
}

/* Makes sizes and checksums of the manifest fit the files again, so that what stands in them is checked. */
static void renew_manifest(void) {
  char path[ZPR_PATH];
  zpr_error error = {0};
  zpr_tensors lists[ZPR_ERRORS] = {0};
  zpr_summed files[ZPR_FILES] = {0};
  struct stat status;
  for (int f = 0; f < ZPR_ERRORS; f++) {
    zpr_file_tensors(&base, f, &lists[f]);
    free(zpr_tensors_seal(&base, &lists[f]));
    files[f] = (zpr_summed){&lists[f], sums_of(&lists[f], zpr_file_name[f])};
    cr_assert_eq(stat(zpr_path(path, "%s/step_000001/%s", folder, zpr_file_name[f]), &status), 0);
    lists[f].file_bytes = status.st_size;
  }
  cr_assert(zpr_manifest_write(&base, zpr_path(path, "%s/step_000001", folder), 1, files, NULL, &error));
  for (int f = 0; f < ZPR_ERRORS; f++) {
    free((void *)(uintptr_t)files[f].sums);
    zpr_tensors_free(&lists[f]);
  }
}

Test(rt_checkpoint_damage, damaged_files) {
  char path[ZPR_PATH];
  zpr_checkpoint_save(&base, folder, 1, 0);
  overwrite("optimizer.safetensors", -3, "!", 1);
  expect_error(load_base, "flipped byte", "Z0812", "checksum");
  renew_manifest();
  overwrite("model.safetensors", 9, "}", 1);
  expect_error(load_base, "flipped byte of the header", "Z0812", "checksum");
  renew_manifest();
  expect_error(load_base, "bad header", "Z0812", "not a list of tensors");
  zpr_checkpoint_save(&base, folder, 1, 0);
  overwrite("model.safetensors", 0, "\xff\xff\xff\xff\xff\xff\xff\x7f", 8);
  renew_manifest();
  expect_error(load_base, "huge header", "Z0812", "out of range");
  zpr_checkpoint_save(&base, folder, 1, 0);
  cr_assert_eq(truncate(zpr_path(path, "%s/step_000001/model.safetensors", folder), 1000), 0);
  expect_error(load_base, "truncated", "Z0812", "1000 bytes");
  renew_manifest();
  expect_error(load_base, "truncated with a fitting manifest", "Z0812", "not what its header says");
  zpr_checkpoint_save(&base, folder, 1, 0);
  size_t bytes;
  char *text = file_bytes("step_000001/model.safetensors", &bytes);
  overwrite("model.safetensors", strstr(text + 8, "[6,30]") - text, "[6,31]", 6);
  free(text);
  renew_manifest();
  expect_error(load_base, "shape against length", "Z0812", "does not fit its shape");
  unlink(path);
  expect_error(load_base, "missing file", "Z0812", "model.safetensors");
  zpr_checkpoint_save(&base, folder, 1, 0);
  overwrite("manifest.json", 0, "[", 1);
  expect_error(load_base, "bad manifest", "Z0812", "manifest");
}

/* The manifest, with `was` in it replaced by as many bytes; its last line stays. */
static void alter_manifest(const char *was, const char *by) {
  size_t bytes;
  char *text = file_bytes("step_000001/manifest.json", &bytes), *at = strstr(text, was);
  cr_assert(at && strlen(was) == strlen(by), "%s", was);
  overwrite("manifest.json", at - text, by, strlen(by));
  free(text);
}

/* Every byte of every file, the plan's that a checkpoint may have too: bit by bit, a sample of them. What is refused
 * names the newest whole one. */
Test(rt_checkpoint_damage, every_byte_counts) {
  static const char *const names[] = {"manifest.json", "model.safetensors", "optimizer.safetensors"};
  zpr_checkpoint_save(&base, folder, 0, 0);
  zpr_checkpoint_save(&base, folder, 1, 0);
  for (size_t f = 0; f < sizeof names / sizeof *names; f++) {
    char path[ZPR_PATH];
    size_t bytes;
    zpr_path(path, "step_000001/%s", names[f]);
    char *text = file_bytes(path, &bytes);
    for (size_t at = 0; at < bytes; at += f == 0 ? 1 : 1 + bytes / 200) {
      char damaged = (char)(text[at] ^ (1 << (at % 8)));
      zpr_error error = {0};
      zpr_manifest m;
      overwrite(names[f], (long)at, &damaged, 1);
      cr_expect(!zpr_manifest_check(&base, zpr_path(path, "%s/step_000001", folder), &m, &error), "%s: byte %zu",
                names[f], at);
      cr_expect_str_eq(error.code, "Z0812", "%s: byte %zu", names[f], at);
      free(m.coefficients.item);
      overwrite(names[f], (long)at, text + at, 1);
    }
    free(text);
  }
  cr_expect_eq(zpr_checkpoint_load(&base, folder), 1);
  overwrite("optimizer.safetensors", -1, "!", 1);
  expect_error(load_base, "the newest is damaged", "Z0812", "--resume-from 0 goes on from it");
  cr_expect_eq(zpr_checkpoint_load_step(&base, folder, 0), 0);
}

/* Another plan, a plan where there was none, another version. */
Test(rt_checkpoint_damage, plans_and_versions) {
  char path[ZPR_PATH];
  zpr_checkpoint_save(&base, folder, 1, 0);
  FILE *plan = fopen(zpr_path(path, "%s/step_000001/plan.json", folder), "w");
  cr_assert(plan);
  fclose(plan);
  expect_error(load_base, "a plan that was not there", "Z0812", "plan.json");
  unlink(path);
  cr_expect_eq(zpr_checkpoint_load(&base, folder), 1);
  alter_manifest("\"version\": 2", "\"version\": 3");
  expect_error(load_base, "a later version", "Z0812", "version 3");
  alter_manifest("\"version\": 3", "\"version\": 1");
  expect_error(load_base, "an earlier version without its checksums", "Z0812", "corrupt");
}

/* Each would be divided by, or multiplied beyond 64 bits, when the place in the data is worked out. */
Test(rt_checkpoint_damage, manifests_that_no_run_can_have_written) {
  static const char *const altered[][2] = {
      {"\"sequence\": 8", "\"saquence\": 8"}, {"\"sequence\": 8", "\"sequence\": 0"}, {"\"samples\":", "\"simples\":"}};
  for (size_t i = 0; i < sizeof altered / sizeof *altered; i++) {
    zpr_checkpoint_save(&base, folder, 1, 0);
    alter_manifest(altered[i][0], altered[i][1]);
    expect_error(load_base, altered[i][1], "Z0812", "not the manifest of a checkpoint");
  }
  base.samples = INT64_MAX / 16;
  zpr_checkpoint_save(&base, folder, 1, 0);
  base.samples = 0;
  expect_error(load_base, "tokens beyond 64 bits", "Z0812", "not the manifest of a checkpoint");
}

static layout *foreign;
static void load_foreign(void) {
  zpr c = play(foreign, 0, 0, 0);
  zpr_checkpoint_load(&c, folder);
}

Test(rt_checkpoint_damage, foreign_checkpoints) {
  zpr_checkpoint_save(&base, folder, 1, 0);
  foreign = make_layout(1, 1, 1, 0, ZPK_F32);
  expect_error(load_foreign, "other dtype", "Z0813", "as F64, this program trains in F32");
  free(foreign);
  foreign = make_layout(1, 1, 1, 0, ZPK_F64);
  foreign->layer[1].name = "h.{}.norm.gain";
  expect_error(load_foreign, "other name", "Z0813", "\"h.0.ln.gain\", which this model does not have");
  foreign->layer[1].name = "h.{}.bias";
  expect_error(load_foreign, "other name", "Z0813", "no tensor \"h.0.bias\"");
  foreign->layer[1].name = "h.{}.ln.gain";
  foreign->run[0][1].count = 2;
  expect_error(load_foreign, "fewer layers", "Z0813", "\"h.2.attn.weight\", which this model does not have");
  foreign->run[0][1].count = LAYERS;
  foreign->wte.shape[1] = 4;
  expect_error(load_foreign, "other shape", "Z0813", "\"wte\" of shape [7, 6], this model has [7, 4]");
  foreign->wte.shape[1] = WIDTH;
  foreign->program.optimizer = 2;
  foreign->stage[0].moment2 = -1;
  expect_error(load_foreign, "other optimizer", "Z0813", ".exp_avg");
  free(foreign);
}

static void save_below_a_file(void) {
  char path[ZPR_PATH];
  zpr_checkpoint_save(&base, zpr_path(path, "%s/file/checkpoints", folder), 1, 0);
}

static void save_with_little_room(void) {
  setrlimit(RLIMIT_FSIZE, &(struct rlimit){3000, 3000});
  zpr_checkpoint_save(&base, folder, 2, 0);
}

Test(rt_checkpoint_damage, folders_that_cannot_be_written) {
  char path[ZPR_PATH];
  FILE *file = fopen(zpr_path(path, "%s/file", folder), "w");
  cr_assert(file);
  fclose(file);
  expect_error(save_below_a_file, "a file in the way", "Z0811", "Not a directory");
  unlink(path);
  zpr_checkpoint_save(&base, folder, 1, 0);
  expect_error(save_with_little_room, "no room", "Z0811", "File too large");
  cr_expect_eq(leftovers(folder), 0, "nothing half-written remains");
  cr_expect(!exists("step_000002"));
  cr_expect_eq(zpr_checkpoint_load(&base, folder), 1);
}

/* Hundreds of damaged headers: each is read or refused, and the sanitizers watch. */
Test(rt_checkpoint_damage, damaged_headers_never_crash) {
  char path[ZPR_PATH];
  size_t bytes;
  int refused = 0;
  zpr_checkpoint_save(&base, folder, 1, 0);
  char *text = file_bytes("step_000001/model.safetensors", &bytes);
  zpr_path(path, "%s/step_000001/model.safetensors", folder);
  static const char alphabet[] = "{}[]\",:0123456789\\ue-+x";
  for (uint64_t round = 0; round < 600; round++) {
    char *copy = malloc(bytes);
    memcpy(copy, text, bytes);
    for (uint64_t k = 0; k <= round % 3; k++) {
      uint64_t draw = (uint64_t)(zpk_philox_uniform(1, 2, 3, 4, round % 65536, k + round * 4) * 4294967296.0);
      copy[draw % 7 ? 8 + draw / 64 % 900 : draw / 64 % 8] = alphabet[draw % (sizeof alphabet - 1)];
    }
    FILE *out = fopen(path, "wb");
    cr_assert(out && fwrite(copy, 1, bytes, out) == bytes);
    fclose(out);
    zpr_tensors list = {0};
    zpr_error error = {0};
    bool good = zpr_tensors_read(&list, path, &error);
    cr_assert_eq(good, error.code[0] == 0);
    refused += !good;
    zpr_tensors_free(&list);
    free(copy);
  }
  cr_expect_gt(refused, 300);
  free(text);
}
