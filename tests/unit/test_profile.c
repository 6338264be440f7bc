/* SPDX-License-Identifier: Apache-2.0 */
/* Profiles alongside plans: what the plan says of every stage's step adds up, logs are read as they are and refused as
 * damaged, the table and the trace show what was measured. */
#include <math.h>
#include <zplan/buf.h>
#include <zplan/report.h>
#include <zplan/stage_step.h>
#include "planner_models.h"

static zp_arena *arena;
static void setup(void) { arena = zp_arena_new("test"); }
static void teardown(void) { zp_arena_free(arena); }
TestSuite(profile, .init = setup, .fini = teardown);

static const model_size TINY = {STYLE_GPT, 250, 32, 64, 9, 4, 4, 256, true};

static zp_plan *plan_of(zp_cluster cluster, int tensor, int pipeline, int data, int zero) {
  zp_spec *spec = build_spec(arena, &TINY, cluster, 8);
  pin(&spec->plans.data[0].tensor, tensor), pin(&spec->plans.data[0].pipeline, pipeline);
  pin(&spec->plans.data[0].data, data), pin(&spec->plans.data[0].zero, zero);
  zp_plan *plan = zp_search(arena, spec, tensor * pipeline * data, NULL);
  cr_assert(plan->feasible, "tensor %d pipeline %d data %d zero %d", tensor, pipeline, data, zero);
  return plan;
}

/* ---- what the plan says ---- */

/* Until they meet all stages have spent the same time; the slowest update ends the step. */
static void check_sums(const zp_plan *plan) {
  const zp_stage_step *steps = zp_cost_stage_steps(arena, plan->program, &plan->machine);
  double met = 0, longest = 0;
  for (int s = 0; s < plan->program->choice.pipeline; s++) {
    const zp_stage_step *t = &steps[s];
    double sum = t->units_s + t->waiting_s + t->data_s + t->offload_s + t->reduce_s + t->meet_s;
    cr_expect(t->units_s > 0 && t->waiting_s >= 0 && t->meet_s >= 0 && t->update_s > 0);
    if (s == 0) met = sum;
    cr_expect(fabs(sum - met) <= 1e-9 * met, "stage %d meets at %.12g s, stage 0 at %.12g", s, sum, met);
    longest = fmax(longest, t->update_s + t->gather_s);
  }
  double step = plan->best.estimate.step_s;
  cr_expect(fabs(met + longest - step) <= 1e-9 * step, "%.12g s of %.12g", met + longest, step);
}

Test(profile, the_seconds_of_every_stage_are_the_step) {
  for (int tensor = 1; tensor <= 2; tensor++)
    for (int pipeline = 1; pipeline <= 3; pipeline++)
      for (int data = 1; data <= 2; data++)
        for (int zero = 0; zero <= (data > 1 ? 3 : 0); zero++) {
          check_sums(plan_of(cpu_cluster(), tensor, pipeline, data, zero));
          check_sums(plan_of(gpu_cluster(2), tensor, pipeline, data, zero));
        }
}

/* ---- reading ---- */

/* A log of two stages; every stage has a step and something that the plan says nothing of. */
static const char *log_of(const char *plan, const char *extra) {
  return zp_format(
      arena,
      "{\"event\": \"start\", \"step\": 0}\n{\"step\": 1, \"step_ms\": 9}\n"
      "{\"event\": \"profile\", \"step\": 8, \"plan\": \"%s\", \"steps\": 3, \"predicted_step_ms\": 10, "
      "\"measured_step_ms\": 12, \"other_step_ms\": 11.5, \"slower_by\": 0.04, \"stages\": ["
      "{\"stage\": 0, \"ranks\": 1, \"measured_ms\": 12, \"steps\": [{\"procedure\": \"h forward\", \"name\": \"matmul "
      "a\", "
      "\"place\": \"m.dz:3\", \"kind\": \"product\", \"calls\": 4, \"predicted_ms\": 8, \"measured_ms\": 2}, "
      "{\"procedure\": \"\", \"name\": \"tokens of the batch\", \"place\": \"\", \"kind\": \"copy\", \"calls\": 1, "
      "\"predicted_ms\": null, \"measured_ms\": 0.5}], \"timeline_cut\": false, \"timeline\": [[\"F0\", 0, 2], "
      "[\"norm and optimizer\", 2, 12]]}, "
      "{\"stage\": 1, \"ranks\": 1, \"measured_ms\": 12, \"steps\": [{\"procedure\": \"h backward\", \"name\": \"fused "
      "b\", "
      "\"place\": \"m.dz:4\", \"kind\": \"kernel\", \"calls\": 4, \"predicted_ms\": 1, \"measured_ms\": 11}], "
      "\"timeline_cut\": false, \"timeline\": [[\"B0\", 1, 12]]}]%s}\n",
      plan, extra);
}

static void expect_refused(const char *log, const char *word) {
  zp_profile_answer answer = zp_profile_read(arena, "cafe", 2, log);
  cr_expect_null(answer.profile, "%s", word);
  cr_expect(answer.why_not && strstr(answer.why_not, word), "no \"%s\" in: %s", word, answer.why_not);
}

static const char *with(const char *text, const char *from, const char *to) {
  const char *at = strstr(text, from);
  cr_assert(at, "no %s", from);
  return zp_format(arena, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
}

Test(profile, a_log_is_read) {
  zp_profile_answer answer = zp_profile_read(arena, "cafe", 2, log_of("cafe", ""));
  cr_assert(answer.profile && answer.there_is);
  const zp_profile *p = answer.profile;
  cr_expect(p->rows.len == 3 && p->spans.len == 3 && p->steps == 3 && p->step == 8 && p->other_step_ms == 11.5);
  cr_expect(isnan(p->rows.data[1].predicted_ms) && p->rows.data[2].stage == 1 && p->rows.data[2].calls == 4);
  cr_expect(p->spans.data[2].stage == 1 && p->spans.data[2].end_ms == 12);
}

Test(profile, the_newest_of_the_plan_counts) {
  const char *first = with(log_of("cafe", ""), "\"step\": 8", "\"step\": 7");
  zp_profile_answer answer =
      zp_profile_read(arena, "cafe", 2, zp_format(arena, "%s%s%s", first, log_of("cafe", ""), log_of("beef", "")));
  cr_assert(answer.profile);
  cr_expect_eq(answer.profile->step, 8);
}

Test(profile, logs_without_or_with_damaged_profiles) {
  const char *log = log_of("cafe", "");
  cr_expect_not(zp_profile_read(arena, "cafe", 2, "{\"step\": 1, \"step_ms\": 9}\n").there_is);
  expect_refused("{\"step\": 1, \"step_ms\": 9}\n", "no profile");
  expect_refused("", "no profile");
  expect_refused(log_of("beef", ""), "is of plan beef, and this is plan cafe");
  for (size_t cut = strlen(log) - 2; cut > strlen(log) - 1200; cut -= 7)
    expect_refused(zp_format(arena, "%.*s", (int)cut, log), "cut off");
  expect_refused(with(log, "\"stage\": 1", "\"stage\": 2"), "`stage`");
  expect_refused(with(log, "\"calls\": 4", "\"calls\": -4"), "`calls`");
  expect_refused(with(log, "\"measured_ms\": 2", "\"measured_ms\": null"), "`measured_ms`");
  expect_refused(with(log, "\"predicted_ms\": 8", "\"predicted_ms\": \"8\""), "`predicted_ms`");
  expect_refused(with(log, "\"kind\": \"product\"", "\"kind\": 1"), "`kind`");
  expect_refused(with(log, "[\"F0\", 0, 2]", "[\"F0\", 0]"), "`timeline`");
  expect_refused(with(log, "[\"F0\", 0, 2]", "[\"F0\", 3, 2]"), "`timeline`");
  expect_refused(with(log, "[\"F0\", 0, 2]", "7"), "`timeline`");
  zp_profile_answer three = zp_profile_read(arena, "cafe", 3, log);
  cr_expect(!three.profile && strstr(three.why_not, "`stages`"));
}

/* ---- showing ---- */

static const char *shown(const zp_profile *p, int most, int columns) {
  zp_page page = zp_page_new(arena, zp_plain_screen(columns), 0);
  zp_report_profile(&page, p, most);
  return page.out.data;
}

Test(profile, rows_that_differ_most_come_first) {
  const zp_profile *p = zp_profile_read(arena, "cafe", 2, log_of("cafe", "")).profile;
  const char *all = shown(p, 0, 100), *two = shown(p, 2, 100), *narrow = shown(p, 0, 80);
  const char *backward = strstr(all, "h backward: fused b  m.dz:4"),
             *forward = strstr(all, "h forward: matmul a  m.dz:3"), *tokens = strstr(all, "tokens of the batch");
  cr_assert(backward && forward && tokens, "%s", all);
  cr_expect(backward < forward && forward < tokens, "10, 6 and 0.5 ms apart:\n%s", all);
  cr_expect(strstr(all, "11.00\n") && strstr(all, "0.25\n"), "ratios:\n%s", all);
  cr_expect(strstr(all, "(measuring:\n  +4.3%)"), "12 ms against 11.5:\n%s", all);
  cr_expect_null(strstr(all, "nan"));
  cr_expect_null(strstr(two, "tokens of the batch"));
  cr_expect(strstr(two, "and 1 more"), "%s", two);
  cr_expect(strstr(narrow, "measured ms  ratio\n"), "the figures stand in columns:\n%s", narrow);
  for (const char *line = narrow; *line; line += strcspn(line, "\n") + 1)
    cr_expect_leq(strcspn(line, "\n"), (size_t)80, "%s", line);
}

/* The simulated lanes stay as they are; every span has a box in a lane of its stage. */
Test(profile, the_trace_has_lanes_of_both) {
  zp_plan *plan = plan_of(cpu_cluster(), 1, 2, 1, 0);
  const zp_profile *p = zp_profile_read(arena, "cafe", 2, log_of("cafe", "")).profile;
  const char *error = NULL, *plain = zp_report_trace(arena, plan, NULL), *text = zp_report_trace(arena, plan, p);
  zp_json *json = zp_json_parse(arena, text, strlen(text), &error);
  zp_json *simulated = zp_json_parse(arena, plain, strlen(plain), &error);
  cr_assert(json && simulated, "%s", error);
  const zp_json *events = zp_json_get(json, "traceEvents");
  int boxes = 0, others = 0;
  for (int i = 0; i < zp_json_count(events); i++) {
    const zp_json *e = zp_json_at(events, i);
    bool measured = zp_json_get_int(e, "pid", -1) >= 2, box = strcmp(zp_json_get_string(e, "ph", ""), "X") == 0;
    boxes += measured && box;
    others += !measured;
    if (measured && box && strcmp(zp_json_get_string(e, "name", ""), "B0") == 0)
      cr_expect(zp_json_get_int(e, "pid", -1) == 3 && zp_json_get_int(e, "tid", -1) == 0 &&
                zp_json_get_real(e, "ts", 0) == 1000 && zp_json_get_real(e, "dur", 0) == 11000);
  }
  cr_expect_eq(boxes, 3);
  cr_expect_eq(others, zp_json_count(zp_json_get(simulated, "traceEvents")));
  zp_json_free(json);
  zp_json_free(simulated);
}
