/* SPDX-License-Identifier: Apache-2.0 */
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

static const char *page_of(const zp_plan *plan, const char *log) {
  return zp_report_html(arena, &(zp_report_page){.plan = plan, .log = log});
}

/* What a page draws, and a number, text or list of it. Owned by the caller. */
static zp_json *data_of(const char *html) {
  static const char mark[] = "<script type=\"application/json\" id=\"data\">";
  const char *at = strstr(html, mark), *error = NULL;
  cr_assert_not_null(at);
  at += strlen(mark);
  const char *end = strstr(at, "</script>");
  cr_assert_not_null(end);
  zp_json *data = zp_json_parse(arena, at, (size_t)(end - at), &error);
  cr_assert_not_null(data, "%s", error);
  return data;
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
      bool first = strstr(zp_words_why_briefly(arena, plan), "not on tensor cores: heads of 264 columns");
      cr_expect_eq(said, wide && own, "%d wide, %d own", wide, own);
      cr_expect_eq(first, said, "%d wide, %d own: the first screen", wide, own);
    }
}

/* A plan from a file was not searched for: nothing is claimed about others. */
Test(report, a_loaded_plan_claims_no_proof) {
  zp_plan *plan = plan_on_four();
  plan->certificate = (zp_certificate){0};
  const char *text = summary_of(plan);
  cr_expect_null(strstr(text, "proof"));
  cr_expect_null(strstr(text, "best plan"));
  zp_json *data = data_of(page_of(plan, NULL));
  cr_expect_eq(zp_json_get_int(zp_json_get(zp_json_get(data, "plan"), "certificate"), "candidates", -1), 0);
  zp_json_free(data);
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
  const char *html = page_of(plan, NULL);
  cr_expect(strlen(html) < 1000000);
  zp_json *data = data_of(html);
  int64_t usable = zp_json_int(zp_json_at(zp_json_get(data, "usable_bytes"), 0), 0);
  cr_expect_str_eq(zp_show_bytes(arena, usable), "30.9 GB");
  cr_expect_leq(zp_json_count(zp_json_get(data, "stage_groups")), 8);
  zp_json_free(data);
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
  zp_json *page = data_of(page_of(plan, NULL));
  EXPECT_WORDS(zp_json_get_string(zp_json_get(page, "words"), "outside", ""), "context 1.50 GB", "NCCL ");
  const zp_json *stages = zp_json_get(zp_json_get(page, "plan"), "stages");
  const zp_json *memory = zp_json_get(zp_json_at(stages, plan->best.estimate.peak_stage), "memory");
  cr_expect_eq(zp_json_get_int(memory, "communicators", 0), made);
  zp_json_free(page);
}

/* Pipeline messages are the traffic of that axis; what does not apply is not named. */
Test(report, moves_have_a_table) {
  zp_spec *spec = build_spec(arena, &TINY, cpu_cluster(), 8);
  pin(&spec->plans.data[0].pipeline, 2), pin(&spec->plans.data[0].microbatch, 1), pin(&spec->plans.data[0].zero, 0);
  zp_plan *plan = zp_search(arena, spec, 2, NULL);
  cr_assert(plan->feasible);
  zp_json *data = data_of(page_of(plan, NULL));
  const zp_json *strategies = zp_json_get(data, "strategies"), *moves = zp_json_get(data, "moves");
  int64_t bytes = zp_program_traffic(plan->program).pipeline, said = 0;
  cr_assert_gt(bytes, 0);
  for (int i = 0; i < zp_json_count(strategies); i++) {
    const char *name = zp_json_get_string(zp_json_at(strategies, i), "name", "");
    if (strcmp(name, "pipeline messages") == 0) said = zp_json_get_int(zp_json_at(strategies, i), "bytes", 0);
    cr_expect(strcmp(name, "ZeRO gather") != 0 && strcmp(name, "parameters offloaded") != 0);
  }
  cr_expect_eq(said, bytes);
  cr_assert_eq(zp_json_count(moves), 2, "a group a stage");
  EXPECT_WORDS(zp_json_text(arena, zp_json_get(zp_json_at(moves, 0), "records"), false), "forward, after the action",
               "pipeline messages", "\"message\"", "device to neighbour", "by the action that receives it");
  zp_json_free(data);
}

/* ---- HTML ---- */

/* Tags must nest; void elements have a slash; scripts and styles end at their tag. Returns what is wrong. */
static const char *check_markup(const char *html) {
  const char *open[64];
  int depth = 0;
  for (const char *at = strchr(html, '<'); at; at = strchr(at + 1, '<')) {
    const char *end = strchr(at, '>');
    if (!end) return "unterminated tag";
    if (at[1] == '!' || end[-1] == '/') continue;
    size_t length = strcspn(at + 1, " >");
    if (strncmp(at, "<script", 7) == 0 || strncmp(at, "<style", 6) == 0) {
      const char *over = strstr(at, at[2] == 'c' ? "</script>" : "</style>");
      if (!over) return "a script without an end";
      at = over;
      continue;
    }
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
  const char *html = page_of(plan_on_four(), LOG), *wrong = check_markup(html);
  cr_expect_null(wrong, "%s", wrong);
  EXPECT_WORDS(html, "default-src 'none'", "script-src 'sha256-", "color-scheme", "COLLECTIVE_BASE_S",
               "does not fit the device memory", "fits on");
  static const char *const fetching[] = {" src=", "<link", "@import", "url(", "fetch(", "XMLHttp", "import("};
  for (size_t i = 0; i < sizeof fetching / sizeof *fetching; i++)
    cr_expect_null(strstr(html, fetching[i]), "%s: nothing may be fetched", fetching[i]);
  cr_expect_null(strstr(html, "{{"), "a mark that is not filled");
  cr_expect_null(strstr(html, ":nan"));
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
  zp_json *data = data_of(page_of(plan_on_four(), log.data));
  const zp_json *run = zp_json_get(data, "run");
  cr_expect_eq(zp_json_get_int(run, "measured_steps", 0), 3);
  cr_expect_float_eq(zp_json_get_real(run, "median_step_s", 0), 0.020, 1e-9);
  cr_expect_eq(zp_json_get_int(run, "unread_lines", 0), 2, "1e9999 and the line that is cut off");
  zp_json_free(data);
  zp_json_free(data_of(page_of(plan_on_four(), "{\"step\": 1, \"loss\": -1e300, \"step_ms\": 5}\n")));
}

/* A key is absent where nothing was measured: the page says so. */
Test(report, log_is_compared_with_the_plan) {
  zp_json *data = data_of(page_of(plan_on_four(), LOG));
  const zp_json *run = zp_json_get(data, "run");
  cr_expect_eq(zp_json_get_int(run, "measured_steps", 0), 3);
  cr_expect(!zp_json_get(run, "arena_bytes") && !zp_json_get(run, "device_bytes"));
  cr_expect_eq(zp_json_count(zp_json_get(run, "steps")), 3);
  cr_expect_float_eq(zp_json_real(zp_json_at(zp_json_at(zp_json_get(run, "steps"), 2), 1), 0), 4.25, 1e-12);
  zp_json_free(data);
  data = data_of(page_of(plan_on_four(), zp_format(arena, "%s%s%s", END, LOG, "\n")));
  run = zp_json_get(data, "run");
  cr_expect_eq(zp_json_get_int(run, "arena_bytes", 0), 2000);
  cr_expect_eq(zp_json_get_int(run, "device_bytes", 0), 5000);
  zp_json_free(data);
  data = data_of(page_of(plan_on_four(), "not json\n"));
  cr_expect_eq(zp_json_get_int(zp_json_get(data, "run"), "measured_steps", -1), 0);
  zp_json_free(data);
}

/* The run of another plan is no measurement of this one. */
Test(report, log_of_another_plan_is_called_so) {
  const char *log = zp_format(arena, "%s\n{\"event\": \"start\", \"plan\": \"0123456789abcdef\"}\n", LOG);
  zp_page page = zp_page_new(arena, zp_plain_screen(100), 10);
  cr_expect(zp_report_measured(&page, plan_on_four(), log));
  EXPECT_WORDS(page.out.data, "the run was of plan 0123456789abcdef", "1 line of the log cannot be read");
  zp_json *data = data_of(page_of(plan_on_four(), log));
  cr_expect_str_eq(zp_json_get_string(zp_json_get(data, "run"), "plan", ""), "0123456789abcdef");
  zp_json_free(data);
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
  plan->spec->model->name = "a<b & \"c\"</script><!--";
  const char *html = page_of(plan, NULL);
  cr_expect(strstr(html, "a&lt;b &amp; &quot;c&quot;"));
  cr_expect_null(check_markup(html));
  cr_expect_null(strstr(html, "a<b"));
  cr_expect_null(strstr(html, "<!--"));
  zp_json *data = data_of(html);
  const zp_json *model = zp_json_get(zp_json_get(data, "plan"), "model");
  cr_expect_str_eq(zp_json_get_string(model, "name", ""), plan->spec->model->name);
  zp_json_free(data);
}

/* What the search knew is taken from the file; what has another shape there is not. */
Test(report, search_is_taken_from_the_file) {
  static const char text[] = "{\"certificate\": {\"candidates\": 7}, \"rejected\": [1], \"alternatives\": [{}]}";
  const char *error = NULL;
  zp_json *file = zp_json_parse(arena, text, strlen(text), &error);
  zp_json *data = data_of(zp_report_html(arena, &(zp_report_page){.plan = plan_on_four(), .file = file}));
  const zp_json *plan = zp_json_get(data, "plan");
  cr_expect_eq(zp_json_get_int(zp_json_get(plan, "certificate"), "candidates", 0), 7);
  cr_expect(zp_json_is_object(zp_json_get(plan, "rejected")));
  cr_expect_eq(zp_json_count(zp_json_get(plan, "alternatives")), 1);
  zp_json_free(data);
  zp_json_free(file);
}

Test(report, front_must_be_one) {
  static const char *const wrong[] = {"{}", "[]", "[{\"devices\": 4}]",
                                      "[{\"plan\": {}, \"devices\": 4, \"step_s\": 0, \"peak_bytes\": 1}]"};
  static const char right[] = "[{\"plan\": {}, \"devices\": 4, \"step_s\": 1, \"peak_bytes\": 1, "
                              "\"step_device_hours\": 0.5}]";
  const char *error = NULL;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    zp_json *front = zp_json_parse(arena, wrong[i], strlen(wrong[i]), &error);
    cr_expect_not_null(zp_report_front_refusal(arena, front), "%s", wrong[i]);
    zp_json_free(front);
  }
  zp_json *front = zp_json_parse(arena, right, strlen(right), &error);
  cr_expect_null(zp_report_front_refusal(arena, front));
  zp_json_free(front);
}

/* ---- trace ---- */

/* What Perfetto and chrome://tracing want of an event. */
static void check_event(const zp_json *e) {
  const char *phase = zp_json_get_string(e, "ph", "");
  cr_assert(strlen(phase) == 1 && strchr("XMC", phase[0]), "%s", phase);
  cr_expect(*zp_json_get_string(e, "name", ""));
  cr_expect(zp_json_is_int(zp_json_get(e, "pid")));
  if (phase[0] == 'M') {
    cr_expect(zp_json_is_object(zp_json_get(e, "args")));
    return;
  }
  cr_expect(zp_json_get_real(e, "ts", -1) >= 0);
  if (phase[0] == 'C') {
    cr_expect(zp_json_int(zp_json_get(zp_json_get(e, "args"), zp_json_key(zp_json_get(e, "args"), 0)), -1) >= 0);
    return;
  }
  cr_expect(zp_json_get_real(e, "dur", -1) >= 0);
  cr_expect(zp_json_is_int(zp_json_get(e, "tid")) && *zp_json_get_string(e, "cat", ""));
}

/* Events of a lane follow each other, and every lane has a name. */
static void check_lanes(const zp_json *events) {
  enum { PROCESSES = 4, LANES = 24 };
  double end[PROCESSES][LANES] = {0};
  bool named[PROCESSES][LANES] = {0};
  for (int i = 0; i < zp_json_count(events); i++) {
    const zp_json *e = zp_json_at(events, i);
    int64_t pid = zp_json_get_int(e, "pid", 0), tid = zp_json_get_int(e, "tid", 0);
    cr_assert(pid < PROCESSES && tid < LANES);
    if (strcmp(zp_json_get_string(e, "name", ""), "thread_name") == 0) named[pid][tid] = true;
    if (strcmp(zp_json_get_string(e, "ph", ""), "X") != 0) continue;
    cr_expect(named[pid][tid], "process %lld, lane %lld", (long long)pid, (long long)tid);
    cr_expect(zp_json_get_real(e, "ts", 0) >= end[pid][tid] - 0.002, "%s", zp_json_get_string(e, "name", ""));
    end[pid][tid] = zp_json_get_real(e, "ts", 0) + zp_json_get_real(e, "dur", 0);
  }
}

/* Every action once, messages between the stages, what a stage holds at most, and the step's end. */
static void check_trace(const zp_plan *plan, int acts) {
  const char *text = zp_report_trace(arena, plan, NULL), *error = NULL;
  zp_json *json = zp_json_parse(arena, text, strlen(text), &error);
  cr_assert(json, "%s", error);
  const zp_json *events = zp_json_get(json, "traceEvents");
  int boxes = 0, meetings = 0, messages = 0;
  int64_t saved[2] = {0}, waiting[2] = {0}, last[2] = {0};
  double end = 0;
  for (int i = 0; i < zp_json_count(events); i++) {
    const zp_json *e = zp_json_at(events, i), *args = zp_json_get(e, "args");
    check_event(e);
    int64_t pid = zp_json_get_int(e, "pid", 0);
    if (strcmp(zp_json_get_string(e, "name", ""), "saved values") == 0) {
      int64_t slots = zp_json_get_int(args, "saved", -1);
      int64_t gradients = zp_json_get_int(args, "waiting for weight gradients", 0);
      if (slots > saved[pid]) saved[pid] = slots;
      if (gradients > waiting[pid]) waiting[pid] = gradients;
      last[pid] = slots + gradients;
    }
    if (strcmp(zp_json_get_string(e, "ph", ""), "X") != 0) continue;
    boxes += args && zp_json_get(args, "microbatch");
    messages += strcmp(zp_json_get_string(e, "cat", ""), "message") == 0;
    meetings += !args;
    end = fmax(end, zp_json_get_real(e, "ts", 0) + zp_json_get_real(e, "dur", 0));
  }
  int64_t m = plan->program->microbatches;
  cr_expect_eq(boxes, 2 * acts * m * zp_chunks(&plan->best.choice));
  cr_expect_geq(messages, 2 * m);
  cr_expect(meetings >= 2);
  cr_expect(fabs(end / 1e6 / plan->best.estimate.step_s - 1) < 1e-3, "ends at %g us", end);
  for (int s = 0; s < 2; s++) {
    cr_expect_eq(last[s], 0, "nothing is left");
    int64_t held = saved[s] + waiting[s], reserved = plan->program->stages[s].memory.saved;
    bool several = zp_chunks(&plan->best.choice) > 1; /* whose own slots need not be full at once */
    cr_expect(several ? held <= reserved && held > reserved / 2 : held == reserved, "stage %d: %lld of %lld", s,
              (long long)held, (long long)reserved);
  }
  check_lanes(events);
  zp_json_free(json);
}

Test(report, trace_has_every_action_lane_and_byte) {
  check_trace(plan_on_four(), 2);
  static const zp_schedule schedules[] = {ZP_SCHEDULE_GPIPE, ZP_SCHEDULE_INTERLEAVED, ZP_SCHEDULE_ZB_H1};
  for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++) {
    zp_spec *spec = build_spec(arena, &TINY, cpu_cluster(), 8);
    zp_constraints *k = &spec->plans.data[0];
    pin(&k->pipeline, 2), pin(&k->microbatch, 1), pin(&k->schedule, schedules[i]);
    zp_plan *plan = zp_search(arena, spec, 2, NULL);
    cr_assert(plan->feasible);
    check_trace(plan, schedules[i] == ZP_SCHEDULE_ZB_H1 ? 3 : 2);
  }
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
