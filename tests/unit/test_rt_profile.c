/* SPDX-License-Identifier: Apache-2.0 */
/* Where the time of a training step goes: every moment belongs to one step, on CPU ranks' clock and on the events of
 * the emulated GPU. */
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "../mpi/bigram.h"
#include "folder_testing.h"
#include "profile.h"
#include "state.h"

static char log_path[80];
static char line[1 << 16]; /* of the profile */

static void make_log(void) {
  make_folder();
  snprintf(log_path, sizeof log_path, "%s/log", folder);
}

TestSuite(profile, .init = make_log);

static int run(const char *const *options) {
  char *argv[16] = {"trainer"};
  int argc = 1;
  for (; *options; options++) argv[argc++] = (char *)*options;
  cr_redirect_stdout();
  return zpr_main(argc, argv, &the_bigram.program);
}
#define RUN(...) run((const char *const[]){"--log", log_path, __VA_ARGS__, NULL})

/* ---- a trainer that says where it is ---- */

enum { SHORT_MS = 2, LONG_MS = 7, COPY_MS = 3 };
static const zpr_profile_step steps[] = {{ZPR_STEP_PRODUCT, "h forward", "short", "a.dz:1"},
                                         {ZPR_STEP_KERNEL, "h forward", "long", "a.dz:2"},
                                         {ZPR_STEP_KERNEL, "other forward", "of another stage", "a.dz:3"}};
static const double step_ns[] = {1e6, 2e6, 0};
static const zpr_profile_stage stages[] = {{.step_ns = step_ns, .fixed_s = {-1, -1, -1, 0, -1, 0, 0, 0, 0, 0.004, 0}}};
static const zpr_profile_table table = {.n_steps = 3, .steps = steps, .stages = stages};
static void (*real_micro_batches)(zpr *c);

static void wait_ms(int ms) {
  struct timespec left = {.tv_nsec = ms * 1000000L};
  while (nanosleep(&left, &left) != 0) {
  }
}

/* Two micro-batches of two steps, the second with a copy in its middle; then the bigram's own work, between steps. */
static void micro_batches(zpr *c) {
  for (int64_t mb = 0; mb < 2; mb++) {
    zpr_begin_action(c, 'F', 0, mb);
    zpr_step(c, 0);
    wait_ms(SHORT_MS);
    zpr_step(c, 1);
    int before = zpr_enter(c, ZPR_AT_MOVE);
    wait_ms(COPY_MS);
    zpr_leave(c, before);
    wait_ms(LONG_MS);
    zpr_step_end(c);
  }
  real_micro_batches(c);
  int before = zpr_enter(c, ZPR_AT_REDUCE);
  cr_expect_eq(zpr_enter(c, ZPR_AT_DATA), -1, "what ends a step has all that it calls");
  zpr_leave(c, before);
}

static void make_program(void) {
  bigram_program(1, 1, 0, ZPK_F32);
  real_micro_batches = the_bigram.program.micro_batches;
  the_bigram.program.micro_batches = micro_batches;
  the_bigram.program.profile = &table;
}

/* The line of the profile; how many there are. */
static int read_profiles(void) {
  FILE *f = fopen(log_path, "r");
  static char text[sizeof line];
  int n = 0;
  cr_assert(f);
  while (fgets(text, sizeof text, f)) {
    if (!strstr(text, "\"event\": \"profile\"")) continue;
    memcpy(line, text, sizeof line);
    n++;
  }
  fclose(f);
  return n;
}

static double value_after(const char *from, const char *key) {
  char quoted[64];
  snprintf(quoted, sizeof quoted, "\"%s\": ", key);
  const char *at = from ? strstr(from, quoted) : NULL;
  cr_assert(at, "no %s in %s", key, line);
  return strtod(at + strlen(quoted), NULL);
}

static const char *row(const char *name) {
  char quoted[128];
  snprintf(quoted, sizeof quoted, "\"name\": \"%s\"", name);
  return strstr(line, quoted);
}

/* ---- tests ---- */

Test(profile, every_moment_belongs_to_a_step) {
  make_program();
  cr_assert_eq(RUN("--profile", "--no-progress"), 0);
  cr_assert_eq(read_profiles(), 1);
  cr_expect_eq(value_after(line, "steps"), 9, "steps 4, 6, .. 20 of 20");
  cr_expect_eq(value_after(row("short"), "calls"), 2);
  cr_expect_eq(value_after(row("short"), "predicted_ms"), 2, "two calls of 1 ms");
  cr_expect_eq(value_after(row("norm and optimizer"), "predicted_ms"), 4);
  double brief = value_after(row("short"), "measured_ms"), lengthy = value_after(row("long"), "measured_ms");
  cr_expect(brief >= 2 * SHORT_MS && lengthy >= 2 * LONG_MS, "%g and %g ms", brief, lengthy);
  double copies = value_after(row("copies to and from host and disks"), "measured_ms");
  cr_expect(copies >= 2 * COPY_MS, "%g ms", copies);
  cr_expect_null(row("of another stage"), "it neither ran nor should have");
  double sum = 0, whole = value_after(strstr(line, "\"ranks\""), "measured_ms");
  for (const char *at = strstr(line, "\"calls\""); at; at = strstr(at + 1, "\"calls\""))
    sum += value_after(at, "measured_ms");
  cr_expect(fabs(sum - whole) < 1e-6 * whole, "%.9g ms of %.9g", sum, whole);
  cr_expect(strstr(line, "\"predicted_ms\": null"), "the plan says nothing of loading tokens");
}

/* The actions, in order and without holes from the begin of the last step on. When its last span ends. */
static double check_timeline(const char *steps_asked) {
  make_program();
  cr_assert_eq(RUN("--profile", "--profile-steps", steps_asked), 0);
  read_profiles();
  double end = 0;
  const char *first = strstr(line, "[\"F0\", "), *second = strstr(line, "[\"F1\", ");
  cr_assert(first && second && first < second);
  for (const char *at = strstr(line, "\"timeline\": ["); (at = strstr(at + 1, "[\"")) != NULL;) {
    double from = strtod(strstr(at, "\", ") + 3, (char **)&at), to = strtod(at + 2, NULL);
    cr_expect(fabs(from - end) < 1e-5, "a hole from %g to %g ms", end, from);
    cr_expect(to >= from);
    end = to;
  }
  return end;
}

Test(profile, the_timeline_has_no_holes) {
  check_timeline("6..8");
  double end = check_timeline("6..6"), whole = value_after(strstr(line, "\"ranks\""), "measured_ms");
  cr_expect(fabs(end - whole) < 1e-4, "%g ms of %g", end, whole);
}

Test(profile, steps_that_were_asked_for) {
  make_program();
  cr_assert_eq(RUN("--profile", "--profile-steps", "1..4"), 0);
  cr_assert_eq(read_profiles(), 1);
  cr_expect_eq(value_after(line, "step"), 4, "told when the last of them is done");
  cr_expect_eq(value_after(line, "steps"), 4);
  cr_expect(strstr(line, "\"slower_by\": null"), "nothing to compare with yet");
}

Test(profile, nothing_is_measured_unless_asked) {
  make_program();
  cr_assert_eq(RUN("--no-progress"), 0);
  cr_assert_eq(read_profiles(), 0);
}

Test(profile, a_trainer_without_steps_is_refused, .exit_code = 1) {
  cr_redirect_stderr();
  bigram_program(1, 1, 0, ZPK_F32);
  RUN("--profile");
}

Test(profile, a_run_that_is_too_short_is_refused, .exit_code = 1) {
  cr_redirect_stderr();
  make_program();
  RUN("--profile", "--steps", "3");
}

Test(profile, steps_that_the_run_does_not_do_are_refused, .exit_code = 1) {
  cr_redirect_stderr();
  make_program();
  RUN("--profile", "--profile-steps", "18..21");
}

Test(profile, options) {
  zpr_options o;
  char message[256];
  char *wrong[][4] = {{"trainer", "--profile", "--profile-steps", "4"},
                      {"trainer", "--profile", "--profile-steps", "9..4"},
                      {"trainer", "--profile", "--profile-steps", "0..4"},
                      {"trainer", "--profile", "--profile-steps", "1..x"},
                      {"trainer", "--profile-steps", "4..9", "--resume"}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    cr_expect_eq(zpr_options_parse(4, wrong[i], &o, message, sizeof message), ZPR_OPTIONS_WRONG, "%s", wrong[i][3]);
  char *right[] = {"trainer", "--profile", "--profile-steps", "4..9"};
  cr_assert_eq(zpr_options_parse(4, right, &o, message, sizeof message), ZPR_OPTIONS_RUN);
  cr_expect(o.profile && o.profile_first == 4 && o.profile_last == 9);
}
