/* SPDX-License-Identifier: Apache-2.0 */
/* A whole trainer in one process: the bigram model that the multi-rank tests use as well. */
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../mpi/bigram.h"
#include "folder_testing.h"
#include "state.h"

static int run(const char *const *options) {
  char *argv[16] = {"trainer"};
  int argc = 1;
  for (; *options; options++) argv[argc++] = (char *)*options;
  cr_redirect_stdout();
  return zpr_main(argc, argv, &the_bigram.program);
}
#define RUN(...) run((const char *const[]){__VA_ARGS__, NULL})

static char log_path[80];

static void make_log(void) {
  make_folder();
  snprintf(log_path, sizeof log_path, "%s/log", folder);
}

TestSuite(train, .init = make_log);

/* Values of a field in the step lines of the log; the number of lines. */
static int read_field(const char *field, double *out, int most) {
  char line[2048], key[32];
  FILE *f = fopen(log_path, "r");
  int n = 0;
  snprintf(key, sizeof key, "\"%s\": ", field);
  while (f && n < most && fgets(line, sizeof line, f)) {
    const char *at = strncmp(line, "{\"step\"", 7) == 0 ? strstr(line, key) : NULL;
    if (at) out[n++] = strtod(at + strlen(key), NULL);
  }
  if (f) fclose(f);
  return n;
}

static bool log_has(const char *text) {
  char line[2048];
  FILE *f = fopen(log_path, "r");
  bool found = false;
  while (f && fgets(line, sizeof line, f)) found = found || strstr(line, text);
  if (f) fclose(f);
  return found;
}

Test(train, learns_as_planned) {
  double loss[32], lr[32];
  bigram_program(1, 1, 0, ZPK_F64);
  cr_assert_eq(RUN("--log", log_path, "--check-memory"), 0);
  cr_assert_eq(read_field("loss", loss, 32), 20);
  cr_assert(fabs(loss[0] - log(BIGRAM_V)) < 0.1 && loss[19] < loss[0] - 0.3, "%g to %g", loss[0], loss[19]);
  read_field("lr", lr, 32);
  for (int i = 0; i < 20; i++) cr_assert_eq(lr[i], zpr_learning_rate(&the_bigram.program, i));
  cr_assert(log_has("\"event\": \"start\""));
  cr_assert(log_has("\"event\": \"validate\", \"step\": 10"));
  cr_assert(log_has("\"measured_peak_bytes\""));
}

Test(train, threads_do_not_change_the_loss) {
  double one[32], four[32];
  bigram_program(1, 1, 0, ZPK_F32);
  cr_assert_eq(RUN("--log", log_path, "--threads", "1"), 0);
  read_field("loss", one, 32);
  cr_assert_eq(RUN("--log", log_path, "--threads", "4"), 0);
  cr_assert_eq(read_field("loss", four, 32), 20);
  cr_assert_arr_eq(one, four, 20 * sizeof *one);
}

Test(train, steps_of_the_command_line) {
  double loss[32];
  bigram_program(1, 1, 0, ZPK_F32);
  cr_assert_eq(RUN("--log", log_path, "--steps", "3"), 0);
  cr_assert_eq(read_field("loss", loss, 32), 3);
  cr_assert_eq(RUN("--log", log_path, "--steps", "0"), 0);
  cr_assert_eq(read_field("loss", loss, 32), 0);
}

Test(train, wrong_byte_count_is_found) {
  cr_redirect_stderr();
  bigram_program(1, 1, 0, ZPK_F32)->predicted_bytes[ZPR_DATA] = 1;
  cr_assert_eq(RUN("--check-memory"), ZPR_EXIT_FAILED);
}

Test(train, wrong_peak_is_found) {
  cr_redirect_stderr();
  bigram_program(1, 1, 0, ZPK_F32);
  the_bigram.stage.arena_bytes += 256; /* never used */
  cr_assert_eq(RUN("--check-memory"), ZPR_EXIT_FAILED);
  cr_assert_eq(RUN("--no-progress"), 0);
}

static void on_fault(int signal) {
  (void)signal;
  remove_folder();
  _exit(42);
}

Test(train, write_after_the_arena_is_a_fault, .exit_code = 42) {
  struct sigaction action = {.sa_handler = on_fault};
  sigaction(SIGSEGV, &action, NULL);
  bigram_program(1, 1, 0, ZPK_F32);
  the_bigram.stage.arena_bytes -= 256;
  RUN("--steps", "1");
}

Test(train, steps_that_are_not_finite_change_nothing_and_end_the_run, .exit_code = ZPR_EXIT_FAILED) {
  cr_redirect_stderr();
  bigram_program(1, 1, 0, ZPK_F32);
  the_bigram.poisoned = true;
  RUN("--log", log_path);
}

Test(train, wrong_number_of_ranks, .exit_code = 1) {
  cr_redirect_stderr();
  bigram_program(2, 1, 0, ZPK_F32);
  RUN("--steps", "1");
}

Test(train, log_that_cannot_be_opened, .exit_code = 1) {
  cr_redirect_stderr();
  bigram_program(1, 1, 0, ZPK_F32);
  RUN("--log", "/dev/null/log"); /* below a file no folder can be made */
}

Test(train, log_on_a_full_disk_does_not_stop_the_run) {
  cr_redirect_stderr();
  bigram_program(1, 1, 0, ZPK_F32);
  cr_assert_eq(RUN("--log", "/dev/full", "--steps", "2"), 0);
}

Test(train, no_data, .exit_code = 1) {
  cr_redirect_stderr();
  bigram_program(1, 1, 0, ZPK_F32)->train.kind = ZPR_NO_DATA;
  RUN("--steps", "1");
}

Test(train, usage_errors) {
  cr_redirect_stderr();
  bigram_program(1, 1, 0, ZPK_F32);
  cr_assert_eq(RUN("--bogus"), 2);
  cr_assert_eq(RUN("--steps"), 2);
  cr_assert_eq(RUN("--steps", "-1"), 2);
  cr_assert_eq(RUN("--steps", "3x"), 2);
  cr_assert_eq(RUN("--threads", "9"), 2);
  cr_assert_eq(RUN("--data", ""), 2);
  cr_assert_eq(RUN("--help"), 0);
}

static void raise_at_step(zpr *c) {
  bigram_micro_batches(c);
  if (c->step == 4) raise(the_bigram.program.seed == 7 ? SIGUSR1 : SIGTERM);
}

Test(train, signals_end_the_run_after_the_step) {
  double loss[32];
  zpr_program *p = bigram_program(1, 1, 0, ZPK_F32);
  p->micro_batches = raise_at_step;
  cr_assert_eq(RUN("--log", log_path), 0);
  cr_assert_eq(read_field("loss", loss, 32), 5);
  p->seed = 8;
  cr_assert_eq(RUN("--log", log_path), 128 + SIGTERM);
  cr_assert_eq(read_field("loss", loss, 32), 5);
}

/* ---- one update against formulas written out ---- */

static void set_grads(zpr *c) {
  double *g = zpr_at(c, c->stage->grads);
  for (int64_t i = 0; i < zpr_flat_elements(c->stage); i++) g[i] = (double)(i % 5) - 1.5;
}

Test(train, adamw_with_clipping) {
  zpr c;
  zpr_program *p = bigram_program(1, 1, 0, ZPK_F64);
  int argc = 0;
  char **argv = NULL;
  zpr_open(&c, p, &zpr_default_options, &argc, &argv);
  zpr_update_open(&c);
  zpr_init_weights(&c, NULL, NULL);
  enum { N = BIGRAM_V * BIGRAM_V };
  double want[N], m[N] = {0}, v[N] = {0};
  const double *params = zpr_at(&c, c.stage->params);
  memcpy(want, params, sizeof want);
  for (c.step = 0; c.step < 3; c.step++) {
    set_grads(&c);
    double sum = 0, lr = 0.01 * (double)(c.step + 1);
    for (int i = 0; i < N; i++) sum += ((i % 5) - 1.5) * ((i % 5) - 1.5);
    zpr_finish_step(&c, lr, 0);
    zpr_step_result r = zpr_step_outcome(&c);
    cr_assert(r.applied && r.signal == 0);
    cr_assert_float_eq(r.grad_norm, sqrt(sum), 1e-12);
    double scale = p->clip / (sqrt(sum) + 1e-6), t = (double)(c.step + 1);
    for (int i = 0; i < N; i++) {
      double g = ((i % 5) - 1.5) * scale;
      m[i] = p->beta1 * m[i] + (1 - p->beta1) * g;
      v[i] = p->beta2 * v[i] + (1 - p->beta2) * g * g;
      want[i] -= lr * 0.01 * want[i];
      want[i] -= lr * (m[i] / (1 - pow(p->beta1, t))) / (sqrt(v[i] / (1 - pow(p->beta2, t))) + p->eps);
      cr_assert_float_eq(params[i], want[i], 1e-12, "element %d after step %d", i, (int)c.step);
    }
  }
  zpr_update_close(&c);
  zpr_close(&c);
}

Test(train, infinite_gradient_leaves_the_state_alone) {
  zpr c;
  int argc = 0;
  char **argv = NULL;
  zpr_open(&c, bigram_program(1, 1, 0, ZPK_F64), &zpr_default_options, &argc, &argv);
  zpr_update_open(&c);
  zpr_init_weights(&c, NULL, NULL);
  size_t bytes = (size_t)zpr_flat_elements(c.stage) * 8;
  void *before = malloc(bytes);
  memcpy(before, zpr_at(&c, c.stage->params), bytes);
  set_grads(&c);
  ((double *)zpr_at(&c, c.stage->grads))[17] = INFINITY;
  zpr_finish_step(&c, 0.1, SIGINT);
  zpr_step_result r = zpr_step_outcome(&c);
  cr_assert(!r.applied && r.signal == SIGINT);
  cr_assert_eq(memcmp(before, zpr_at(&c, c.stage->params), bytes), 0);
  free(before);
  zpr_update_close(&c);
  zpr_close(&c);
}
