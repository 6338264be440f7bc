/* Reports: the facts that readers rely on are there, and the files are well-formed. */
#include <math.h>
#include <zplan/buf.h>
#include "../../planner/report/report_internal.h"
#include "planner_models.h"

static zp_arena *arena;
static void setup(void) { arena = zp_arena_new("test"); }
static void teardown(void) { zp_arena_free(arena); }
TestSuite(report, .init = setup, .fini = teardown);

static const model_size TINY = {STYLE_GPT, 250, 32, 64, 9, 4, 4, 256, true};

static zp_plan *plan_on_four(void) {
  zp_spec *spec = build_spec(arena, &TINY, cpu_cluster(), 8);
  pin(&spec->plans.data[0].tensor, 2), pin(&spec->plans.data[0].pipeline, 2);
  zp_plan *plan = zp_search(arena, spec, 4, NULL);
  cr_assert(plan->feasible);
  return plan;
}

static void expect_words(const char *text, const char *const *words, int n) {
  for (int i = 0; i < n; i++) cr_expect(strstr(text, words[i]), "no \"%s\" in:\n%s", words[i], text);
}
#define EXPECT_WORDS(text, ...)                                                                                        \
  expect_words(text, (const char *const[]){__VA_ARGS__}, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *))

/* First screen and details, with single spaces instead of line ends and indents. */
static const char *summary_of(const zp_plan *plan) {
  zp_buf out = zp_buf_new(arena);
  for (const char *c = zp_report_summary(arena, plan); *c; c++) {
    bool space = *c == ' ' || *c == '\n';
    if (!space || out.len == 0 || out.data[out.len - 1] != ' ') zp_buf_put(&out, space ? " " : c, 1);
  }
  return out.data;
}

static const char *memory_of(const zp_plan *plan) {
  zp_page page = zp_page_new(arena, zp_plain_screen(160), 0);
  zp_report_memory(&page, plan);
  return page.out.data;
}

Test(report, summary_has_the_key_facts) {
  zp_plan *plan = plan_on_four();
  const char *text = summary_of(plan);
  EXPECT_WORDS(text, "test (", " fits on 4 x cpu", "layout tensor 2 x pipeline 2, 1f1b,", " step ~", " tokens/s, MFU ~",
               "peak ~", ", stage ", " in 100 steps", " memory C", " weights ", " time C", " compute ~", " why ",
               "plan tensor 2 pipeline 2 (1f1b) data 1", " rejected ", "uncalibrated", " proof no plan is ");
  cr_expect(strstr(text, zp_show_bytes(arena, plan->best.estimate.peak_bytes)));
  cr_expect(strstr(text, zp_show_seconds(arena, plan->best.estimate.step_s)));
  cr_expect_null(strstr(text, "nan"));
}

/* Two ranks divide four experts; of three they cut each. */
Test(report, summary_says_how_experts_are_split) {
  for (int experts = 3; experts <= 4; experts++) {
    model_size size = {STYLE_EXPERTS, 250, 32, 64, 4, 4, experts, 96, false};
    zp_spec *spec = build_spec(arena, &size, cpu_cluster(), 8);
    pin(&spec->plans.data[0].tensor, 2);
    zp_plan *plan = zp_search(arena, spec, 2, NULL);
    cr_assert(plan->feasible);
    EXPECT_WORDS(summary_of(plan), experts == 4 ? "a tensor rank has 2 of 4 experts" : "a part of all 3 experts");
  }
}

/* Heads of 264 columns do without tensor cores, which doubles a step: the plan says so, and why. Of 256 it is silent,
 * and so it is where other programs run. */
Test(report, summary_says_when_attention_is_slow) {
  for (int wide = 0; wide < 2; wide++)
    for (int own = 0; own < 2; own++) {
      model_size size = {STYLE_GPT, 250, 32, wide ? 264 : 256, 2, 1, 1, 512, true};
      zp_spec *spec = build_spec(arena, &size, gpu_cluster(1), 8);
      spec->cluster.trainer = own ? ZP_TRAINER_ZPLAN : ZP_TRAINER_NONE;
      spec->cluster.node.device.has_bf16 = true;
      spec->cluster.node.device.arch = "sm_90";
      spec->train.precision = ZP_PREC_MIXED_BF16;
      pin(&spec->plans.data[0].tensor, 1);
      zp_plan *plan = zp_search(arena, spec, 1, NULL);
      cr_assert(plan->feasible);
      bool said = strstr(summary_of(plan), "heads of 264 columns are wider than the 256");
      cr_expect_eq(said, wide && own, "%d wide, %d own", wide, own);
    }
}

/* A plan from a file was not searched for: nothing is claimed about others. */
Test(report, a_loaded_plan_claims_no_proof) {
  zp_plan *plan = plan_on_four();
  plan->certificate = (zp_certificate){0};
  const char *text = summary_of(plan);
  cr_expect_null(strstr(text, "proof"));
  cr_expect_null(strstr(text, "best plan"));
  cr_expect(strstr(zp_report_html(arena, plan, NULL), "no search has been run"));
}

Test(report, memory_table_has_every_stage_once) {
  zp_spec *spec = build_spec(arena, &TINY, cpu_cluster(), 8);
  pin(&spec->plans.data[0].pipeline, 5), pin(&spec->plans.data[0].microbatch, 1);
  zp_plan *plan = zp_search(arena, spec, 5, NULL);
  cr_assert(plan->feasible);
  const char *text = memory_of(plan);
  EXPECT_WORDS(text, "stage", "weights", "gradients", "optimizer", "saved", "buffers", "context", "total", "begin",
               "end");
  const zp_stage *last = &plan->program->stages[4];
  cr_expect(strstr(text, zp_show_bytes(arena, last->arena_bytes + plan->machine.context_bytes)), "%s", text);
  cr_expect(strstr(text, "\n0 ") && strstr(text, "\n4 "), "%s", text);
}

Test(report, equal_stages_share_a_row) {
  model_size size = {STYLE_GPT, 51200, 2048, 17408, 298, 128, 128, 4 * 17408, true};
  zp_spec *spec = build_spec(arena, &size, gpu_cluster(50), 2048);
  spec->train.precision = ZP_PREC_MIXED_FP16;
  zp_plan *plan = zp_search(arena, spec, 800, NULL);
  cr_assert(plan->feasible);
  const char *text = memory_of(plan);
  int lines = 0;
  for (const char *c = text; *c; c++) lines += *c == '\n';
  cr_expect(lines < 12, "%s", text);
  cr_expect(strstr(text, "-48 ") || strstr(text, "-98 "), "%s", text);
  const char *html = zp_report_html(arena, plan, NULL);
  cr_expect(strlen(html) < 1000000);
  cr_expect(strstr(html, "usable 30.9 GB"), "the capacity line");
}

/* Cuts inside layers make stages alternate: two rows, not one a stage. What differs on its own keeps its row. */
Test(report, alternating_stages_share_rows) {
  enum { STAGES = 12 };
  zp_stage stages[STAGES] = {0};
  for (int s = 0; s < STAGES; s++) stages[s].memory.weights = s == 0 ? 7 : s == STAGES - 1 ? 9 : 1 + s % 2;
  stages[6].memory.saved = 5; /* more in flight */
  zp_program program = {.choice = {.pipeline = STAGES}, .stages = stages};
  zp_stage_groups groups = zp_group_stages(arena, &program, true);
  static const char *const names[] = {"0", "1,3..9", "2,4..10", "11"};
  cr_assert_eq(groups.len, 4);
  for (int g = 0; g < groups.len; g++) cr_expect_str_eq(zp_words_group(arena, groups.data[g]), names[g]);
  cr_assert_gt(zp_group_stages(arena, &program, false).len, 4);
  for (int s = 1; s < STAGES - 1; s++) stages[s].memory.weights = s == 5 ? 3 : 1;
  groups = zp_group_stages(arena, &program, true);
  cr_assert_eq(groups.len, 5); /* 1-4 and 6-10 are apart */
  cr_expect_str_eq(zp_words_group(arena, groups.data[3]), "6-10");
}

/* Tensor 2, data 2 and 2 stages on nodes of 4: of the groups, tensor and one of data ranks and stages are in a node.
 * Two channels between the stages and a tie; 64 MiB for shares of sums. What is reserved is part of the peak, and
 * said. */
Test(report, what_is_outside_of_the_arena_is_listed) {
  zp_cluster cluster = gpu_cluster(2);
  cluster.node.devices = 4;
  cluster.node.nics = 2;
  cluster.node.link.bytes_per_s = 150e9;
  cluster.node.device.has_nccl = true;
  zp_spec *spec = build_spec(arena, &TINY, cluster, 8);
  pin(&spec->plans.data[0].tensor, 2), pin(&spec->plans.data[0].pipeline, 2), pin(&spec->plans.data[0].data, 2);
  pin(&spec->plans.data[0].schedule, ZP_SCHEDULE_1F1B);
  zp_plan *plan = zp_search(arena, spec, 8, NULL);
  cr_assert(plan->feasible);
  /* Who sends to whom: 16 channels of 14 MiB to the other of a node, of which a message goes one way; 8 to another
   * node. */
  int64_t mib = 1 << 20, pair = (256 + 2 * 6 * 12) * mib, sends = 16 * 14 * mib, apart = 2 * 20 * mib, away = 8 * mib;
  bool stages_apart = plan->best.choice.order == ZP_ORDER_TDP;
  cr_assert_eq(plan->best.choice.schedule, ZP_SCHEDULE_1F1B);
  int64_t near = pair + sends, far = apart + away, messages = stages_apart ? far - away / 2 : near - sends / 2;
  int64_t data = stages_apart ? near : far, tie = stages_apart ? far : near, sums = 64 * mib;
  int64_t made = pair + data + 2 * messages + tie + sums;
  const zp_stage *stage = &plan->program->stages[plan->best.estimate.peak_stage];
  cr_expect_eq(stage->memory.communicators, made, "%lld, not %lld", (long long)stage->memory.communicators,
               (long long)made);
  cr_expect_eq(plan->best.estimate.peak_bytes, stage->arena_bytes + cluster.node.device.context_bytes + made);
  const char *text = summary_of(plan);
  EXPECT_WORDS(text, "context 1.50 GB (CUDA, libraries, their workspace)", "tensor 419 MB", "shares of sums 67.1 MB",
               "context and NCCL");
  EXPECT_WORDS(memory_of(plan), "NCCL", "~1.50 GB");
  EXPECT_WORDS(zp_report_html(arena, plan, NULL), "<th>NCCL (est)</th>", "Outside of the arena, estimates: context");
}

/* Pipeline messages are the traffic of that axis; what does not apply is not named. */
Test(report, moves_have_a_table) {
  zp_spec *spec = build_spec(arena, &TINY, cpu_cluster(), 8);
  pin(&spec->plans.data[0].pipeline, 2), pin(&spec->plans.data[0].microbatch, 1), pin(&spec->plans.data[0].zero, 0);
  zp_plan *plan = zp_search(arena, spec, 2, NULL);
  cr_assert(plan->feasible);
  const char *html = zp_report_html(arena, plan, NULL);
  int64_t bytes = zp_program_traffic(plan->program).pipeline;
  cr_assert_gt(bytes, 0);
  const char *row = strstr(html, "<td>pipeline messages</td>");
  cr_assert_not_null(row);
  const char *want = zp_format(arena, "<td>pipeline messages</td><td>%s</td>", zp_show_bytes(arena, bytes));
  cr_expect(strncmp(row, want, strlen(want)) == 0, "%.80s", row);
  cr_expect(!strstr(html, "<td>ZeRO gather</td>") && !strstr(html, "<td>parameters away</td>"));
  EXPECT_WORDS(html, "every move", "<td>forward, after the action</td><td>pipeline messages</td><td>message</td>",
               "<td>device to neighbour</td>", "<td>by the action that receives it</td>", "<p>stage 1</p>");
}

/* ---- HTML ---- */

/* Tags must nest; void elements are written with a slash. Returns what is wrong. */
static const char *check_markup(const char *html) {
  const char *open[64];
  int depth = 0;
  for (const char *at = strchr(html, '<'); at; at = strchr(at + 1, '<')) {
    const char *end = strchr(at, '>');
    if (!end) return "unterminated tag";
    if (at[1] == '!' || end[-1] == '/') continue;
    size_t length = strcspn(at + 1, " >");
    if (at[1] != '/') {
      if (depth == 64) return "too deep";
      open[depth++] = at + 1;
      continue;
    }
    if (depth == 0) return "closed too often";
    depth--;
    if (strncmp(open[depth], at + 2, length - 1) != 0)
      return zp_format(arena, "%.12s closed by %.12s", open[depth], at + 1);
  }
  return depth ? "not closed" : NULL;
}

static const char LOG[] = "{\"event\": \"start\", \"step\": 0}\n"
                          "{\"step\": 1, \"loss\": 5.5, \"step_ms\": 10.0, \"device_peak_bytes\": 999}\n"
                          "{\"step\": 2, \"loss\": 4.5, \"step_ms\": 30.0, \"device_peak_bytes\": 999}\n"
                          "{\"step\": 3, \"loss\": 4.25, \"step_ms\": 20.0, \"device_peak_bytes\": 999}\n"
                          "{\"step\": 4, \"loss\": 4.0, \"ste";
/* What a run says at its end: the arena with --check-memory alone. */
static const char END[] = "{\"event\": \"end\", \"step\": 3, \"measured_peak_bytes\": [1000, 2000], "
                          "\"device_peak_bytes\": [5000, 4000]}\n";

Test(report, html_is_well_formed_and_self_contained) {
  const char *html = zp_report_html(arena, plan_on_four(), LOG);
  const char *wrong = check_markup(html);
  cr_expect_null(wrong, "%s", wrong);
  EXPECT_WORDS(html, "<svg", "prefers-color-scheme", "Alternatives", "Predicted and measured", "polyline",
               "COLLECTIVE_BASE_S", "does not fit the device memory");
  cr_expect_null(strstr(html, "http"), "nothing may be fetched");
  cr_expect_null(strstr(html, "<script"));
  cr_expect_null(strstr(html, "nan"));
}

/* A stranger's: times that no step takes are left out, whatever their type. */
Test(report, log_of_no_run) {
  static const char *const times[] = {"\"y\"", "null", "true", "[]", "{}", "-5", "0", "1e300", "1e9999"};
  zp_buf log = zp_buf_new(arena);
  for (size_t i = 0; i < sizeof times / sizeof *times; i++)
    zp_buf_printf(&log, "{\"step\": 1, \"loss\": 1e300, \"step_ms\": %s}\n", times[i]);
  cr_expect_eq(zp_log_read(arena, log.data).len, 0);
  zp_buf_printf(&log, "{\"step\": \"x\", \"step_ms\": 5}\n%s", LOG);
  cr_expect_eq(zp_log_read(arena, log.data).len, 3);
  EXPECT_WORDS(zp_report_html(arena, plan_on_four(), log.data), "median of 3", "20.0 ms");
  const char *html = zp_report_html(arena, plan_on_four(), "{\"step\": 1, \"loss\": -1e300, \"step_ms\": 5}\n");
  cr_expect_null(strstr(html, "nan"));
}

Test(report, log_is_compared_with_the_plan) {
  const char *html = zp_report_html(arena, plan_on_four(), LOG);
  EXPECT_WORDS(html, "median of 3", "20.0 ms", "not measured", "4.250");
  cr_expect_null(strstr(html, "999"), "the device of rank 0 is not the fullest arena");
  html = zp_report_html(arena, plan_on_four(), zp_format(arena, "%s%s%s", END, LOG, "\n"));
  EXPECT_WORDS(html, "2000 B", "5000 B");
  cr_expect(strstr(zp_report_html(arena, plan_on_four(), "not json\n"), "no training steps"));
}

/* Nothing is called measured that no run has measured. */
Test(report, what_was_not_measured_is_said) {
  zp_page page = zp_page_new(arena, zp_plain_screen(100), 10);
  cr_expect_not(zp_report_measured(&page, plan_on_four(), "no step\n"));
  cr_expect(zp_report_measured(&page, plan_on_four(), LOG));
  EXPECT_WORDS(page.out.data, "median of 3", "arena not measured");
  page = zp_page_new(arena, zp_plain_screen(100), 10);
  cr_expect(zp_report_measured(&page, plan_on_four(), zp_format(arena, "%s%s", END, LOG)));
  EXPECT_WORDS(page.out.data, "arena of the fullest rank 2000 B", "of the fullest rank 5.00 kB");
}

Test(report, names_are_escaped) {
  zp_plan *plan = plan_on_four();
  plan->spec->model->name = "a<b & \"c\"";
  const char *html = zp_report_html(arena, plan, NULL);
  cr_expect(strstr(html, "a&lt;b &amp; &quot;c&quot;"));
  cr_expect_null(check_markup(html));
}

/* ---- trace ---- */

Test(report, trace_is_json_with_every_action) {
  zp_plan *plan = plan_on_four();
  const char *text = zp_report_trace(arena, plan, NULL), *error = NULL;
  zp_json *json = zp_json_parse(arena, text, strlen(text), &error);
  cr_assert(json, "%s", error);
  const zp_json *events = zp_json_get(json, "traceEvents");
  int boxes = 0, meetings = 0;
  double end = 0;
  for (int i = 0; i < zp_json_count(events); i++) {
    const zp_json *e = zp_json_at(events, i);
    if (strcmp(zp_json_get_string(e, "ph", ""), "X") != 0) continue;
    if (zp_json_get(e, "args"))
      boxes++;
    else
      meetings++;
    end = fmax(end, zp_json_get_real(e, "ts", 0) + zp_json_get_real(e, "dur", 0));
  }
  cr_expect_eq(boxes, 2 * 2 * plan->program->microbatches);
  cr_expect(meetings >= 2);
  cr_expect(fabs(end / 1e6 / plan->best.estimate.step_s - 1) < 1e-3, "ends at %g us", end);
  zp_json_free(json);
}

/* ---- infeasible ---- */

Test(report, infeasible_names_stage_bytes_and_checked_help) {
  zp_cluster c = gpu_cluster(1);
  c.node.device.memory_bytes = 2000000;
  c.node.device.context_bytes = 1000;
  zp_spec *spec = build_spec(arena, &TINY, c, 16);
  zp_constraints *k = &spec->plans.data[0];
  pin(&k->tensor, 1), pin(&k->schedule, ZP_SCHEDULE_1F1B), pin(&k->cut, 0); /* much less to search, for the help, too */
  zp_plan *plan = zp_search(arena, spec, 2, NULL);
  cr_assert(!plan->feasible);
  const char *text = zp_report_infeasible(arena, plan);
  EXPECT_WORDS(text, "error[Z0603]", "does not fit: stage ", "weights ", "nearest miss: tensor 1",
               "of memory per device", "memory");
  cr_expect(strstr(text, zp_show_bytes(arena, plan->miss.need_bytes)));
}

/* What the text says about more memory is true. */
Test(report, the_promised_memory_is_enough) {
  zp_cluster c = cpu_cluster();
  c.node.device.memory_bytes = 4000000;
  c.node.device.context_bytes = 1000;
  zp_spec *spec = build_spec(arena, &TINY, c, 4);
  zp_plan *plan = zp_search(arena, spec, 2, NULL);
  cr_assert(!plan->feasible);
  double promised = (double)plan->miss.need_bytes / 0.9 + 1;
  spec->cluster.node.device.memory_bytes = (int64_t)(2 * promised) + 2;
  cr_expect(zp_search(arena, spec, 2, NULL)->feasible);
  spec->cluster.node.device.memory_bytes = (int64_t)(2 * promised * 0.98);
  cr_expect(!zp_search(arena, spec, 2, NULL)->feasible);
}

Test(report, impossible_constraint_is_named) {
  zp_spec *spec = build_spec(arena, &TINY, cpu_cluster(), 8);
  pin(&spec->plans.data[0].tensor, 3);
  const char *text = zp_report_infeasible(arena, zp_search(arena, spec, 4, NULL));
  EXPECT_WORDS(text, "error[Z0601]", "without the constraint on `tensor` it fits");
}

/* Ranges of stages while they can be read, numbers of stages where they cannot. */
Test(report, recomputation_by_stage_in_words) {
  uint8_t few[] = {ZP_RECOMPUTE_FULL, ZP_RECOMPUTE_FULL, ZP_RECOMPUTE_SELECTIVE, ZP_RECOMPUTE_NONE};
  zp_choice c = {.tensor = 1, .pipeline = 4, .data = 1, .stage_recompute = few};
  cr_expect_str_eq(zp_choice_recompute_words(arena, &c), "full on stages 0-1, selective on 2, none on 3");
  uint8_t many[9] = {ZP_RECOMPUTE_FULL};
  for (int i = 1; i < 9; i++) many[i] = i % 2 ? ZP_RECOMPUTE_SELECTIVE : ZP_RECOMPUTE_FULL;
  many[8] = ZP_RECOMPUTE_NONE;
  c.pipeline = 9, c.stage_recompute = many;
  cr_expect_str_eq(zp_choice_recompute_words(arena, &c), "full on 4 stages, selective on 4 stages, none on 1 stage");
}
