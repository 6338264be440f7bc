/* SPDX-License-Identifier: Apache-2.0 */
/* zplan bench: builds and runs the best plans of a file, one after the other, and prints what was predicted alongside
 * what was measured. Trainers neither validate nor write checkpoints here. */
#include "driver.h"
#include <zplan/software.h>
#include <zplan/validate.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEFAULT_STEPS = 10, DEFAULT_TOP = 3, MOST_PLANS = 32 };

typedef struct bench_row {
  const zp_spec *spec; /* with the nodes in the plan's order */
  zp_choice choice;
  double predicted_s, measured_s;
} bench_row;
typedef struct bench {
  zp_run_state *run;
  zp_spec *spec;
  int ranks, wanted;
  ZP_VEC(bench_row) rows;
} bench;

/* ---- which plans ---- */

static void add(bench *b, const zp_plan *plan, const zp_candidate *candidate) {
  bench_row row = {.spec = plan->spec, .choice = candidate->choice, .predicted_s = candidate->estimate.step_s};
  if (b->rows.len >= b->wanted || zp_trainer_refusal(ZP_TRAINER_ZPLAN, &b->spec->train, &row.choice)) return;
  for (int i = 0; i < b->rows.len; i++)
    if (zp_same_decisions(&b->rows.data[i].choice, &row.choice)) return;
  zp_push(b->run->arena, &b->rows, row);
}

static void pin(zp_limit *limit, double value) {
  *limit = (zp_limit){.set = true, .low = value, .high = value, .span = ZP_NO_SPAN};
}

static const zp_plan *search(bench *b, const zp_spec *spec) {
  return zp_search(b->run->arena, spec, b->ranks, &(zp_search_options){.top = b->wanted});
}

static void add_all(bench *b, const zp_plan *plan) {
  if (!plan->feasible) return;
  add(b, plan, &plan->best);
  for (int i = 0; i < plan->alternatives.len; i++) add(b, plan, &plan->alternatives.data[i]);
}

/* The best plan of every other schedule with as many stages: searches on CPU ranks look at 1F1B alone unless a plan
 * names others. */
static void add_schedules(bench *b, const zp_choice *best) {
  for (int schedule = 0; schedule < ZP_SCHEDULE_COUNT && best->pipeline > 1; schedule++) {
    zp_spec *changed = zp_copy_spec(b->run->arena, b->spec);
    zp_constraints *c = zp_copied_constraints(changed);
    if (schedule == (int)best->schedule || !zp_limit_allows(&c->schedule, schedule)) continue;
    pin(&c->schedule, schedule);
    pin(&c->pipeline, best->pipeline);
    const zp_plan *plan = zp_search(b->run->arena, changed, b->ranks, &(zp_search_options){.generated_only = true});
    if (plan->feasible) add(b, plan, &plan->best);
  }
}

static int pinned_modes(const zp_spec *spec) {
  const zp_constraints *c = &spec->plans.data[spec->plan];
  return c->stage_recompute.len + c->recompute_layers.len;
}

/* The best plan, other schedules, and the next best with other degrees; where these leave too few, other micro-batches,
 * and everything recomputed. */
static const zp_plan *choose(bench *b) {
  const zp_plan *best = search(b, b->spec);
  if (best->feasible) {
    add(b, best, &best->best);
    add_schedules(b, &best->best.choice);
  }
  add_all(b, best);
  for (int64_t size = 1; best->feasible && size <= b->spec->train.batch && b->rows.len < b->wanted; size *= 2)
    for (int full = 0; full <= (pinned_modes(b->spec) == 0); full++) {
      zp_spec *changed = zp_copy_spec(b->run->arena, b->spec);
      pin(&zp_copied_constraints(changed)->microbatch, (double)size);
      if (full) pin(&zp_copied_constraints(changed)->recompute, ZP_RECOMPUTE_FULL);
      add_all(b, search(b, changed));
    }
  return best;
}

/* ---- one plan ---- */

/* Median seconds of a step, from the closing line of the trainer's log; 0: there is none. */
static double measured_step(zp_arena *arena, const char *log) {
  size_t len;
  const char *error = NULL, *text = zp_read_file(arena, log, &len, &error);
  const char *end = text ? strstr(text, "\"median_step_ms\": ") : NULL;
  return end ? strtod(end + strlen("\"median_step_ms\": "), NULL) / 1e3 : 0;
}

/* The exit status of the command: 0 when there is a measurement. */
static int run_plan(bench *b, const char *root, int index) {
  zp_run_state *run = b->run;
  bench_row *row = &b->rows.data[index];
  const char *error = NULL, *folder = zp_format(run->arena, "%s/plan%d", root, index + 1);
  const zp_plan *plan = zp_plan_of_choice(run->arena, row->spec, &row->choice, b->ranks, &error);
  if (plan && !zp_prove_plan(run, plan)) return ZP_EXIT_BUG;
  if (!plan) {
    zp_report(run->diags, ZP_Z0703, ZP_NO_SPAN, "cannot build the trainer: %s", error);
    zp_flush_diags(run);
    return ZP_EXIT_ERROR;
  }
  int lock;
  const char *binary = zp_build_trainer(run, plan, b->spec, folder, &lock);
  if (!binary) return ZP_EXIT_ERROR;
  const char *log = zp_format(run->arena, "%s/log.jsonl", folder);
  remove(log);
  run->options.log = log;
  zp_say_lines(stderr, "plan %d of %d: %s, %lld steps\n", index + 1, b->rows.len,
               zp_show_choice(run->arena, &row->choice), (long long)run->options.steps);
  int use = zp_tree_use(run->arena, folder);
  close(lock);
  int status = zp_launch_trainer(run, binary, zp_choice_ranks(&row->choice), true);
  if (use >= 0) close(use);
  row->measured_s = status == 0 ? measured_step(run->arena, log) : 0;
  return status;
}

/* ---- the table ---- */

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static double median_error(const bench *b) {
  double errors[MOST_PLANS];
  int n = 0;
  for (int i = 0; i < b->rows.len; i++)
    if (b->rows.data[i].measured_s > 0)
      errors[n++] = fabs(b->rows.data[i].predicted_s / b->rows.data[i].measured_s - 1);
  qsort(errors, (size_t)n, sizeof *errors, by_size);
  return n ? errors[n / 2] : NAN;
}

static double order_agreement(const bench *b) {
  double predicted[MOST_PLANS], measured[MOST_PLANS];
  int n = 0;
  for (int i = 0; i < b->rows.len; i++) {
    if (b->rows.data[i].measured_s <= 0) continue;
    predicted[n] = b->rows.data[i].predicted_s;
    measured[n++] = b->rows.data[i].measured_s;
  }
  return n < 2 ? NAN : zp_kendall_tau(predicted, measured, n);
}

static void print_text(const bench *b) {
  zp_arena *arena = b->run->arena;
  static const zp_column columns[] = {
      {"tensor x pipeline x data", 40, 20, 0}, {"predicted", 9, 0, 0}, {"measured", 9, 0, 0}, {"ratio", 5, 0, 1}};
  zp_table table = {.columns = columns, .n = 4};
  for (int i = 0; i < b->rows.len; i++) {
    const bench_row *r = &b->rows.data[i];
    const char *cells[] = {zp_show_choice_cell(arena, &r->choice),
                           zp_format(arena, ZP_ESTIMATED "%s", zp_show_seconds(arena, r->predicted_s)),
                           zp_show_seconds(arena, r->measured_s),
                           zp_format(arena, "%.2f", r->predicted_s / r->measured_s)};
    zp_table_add(arena, &table, cells);
  }
  const char *calibration = zp_calibration_words(arena, &b->spec->cluster), *tau = "";
  if (!isnan(order_agreement(b))) tau = zp_format(arena, ", Kendall tau of the order %.2f", order_agreement(b));
  zp_page page = zp_page_for(b->run, stdout, 0);
  zp_page_table(&page, &table);
  zp_page_text(&page, ZP_PLAIN, 2,
               zp_format(arena, "median error %.0f%%%s; %s", 100 * median_error(b), tau,
                         calibration ? calibration : "uncalibrated: `zplan calibrate` measures this machine"));
  zp_page_text(&page, ZP_DIM, 2, ZP_ESTIMATED " estimated by the cost model; the others were measured");
  zp_page_put(&page, stdout);
}

static void print_json(const bench *b) {
  zp_json *o = zp_json_object();
  const zp_calibration *c = b->spec->cluster.calibration;
  zp_json_set_string(o, "calibration", c ? zp_calibration_hash(b->run->arena, c) : NULL);
  zp_json_set_real(o, "median_error", median_error(b));
  zp_json_set_real(o, "kendall_tau", order_agreement(b));
  zp_json *rows = zp_json_set(o, "plans", zp_json_array());
  for (int i = 0; i < b->rows.len; i++) {
    zp_json *row = zp_json_append(rows, zp_choice_json(&b->rows.data[i].choice));
    zp_json_set_real(row, "predicted_s", b->rows.data[i].predicted_s);
    zp_json_set_real(row, "measured_s", b->rows.data[i].measured_s);
  }
  zp_print_json(b->run->arena, o);
}

/* What disturbs the measurement goes. */
static zp_spec *quiet_spec(zp_arena *arena, const zp_spec *spec) {
  zp_spec *quiet = zp_copy_spec(arena, spec);
  quiet->train.validate_every = quiet->train.checkpoint_every = 0;
  quiet->train.validate_data = (zp_data){.kind = ZP_DATA_NONE, .span = ZP_NO_SPAN};
  quiet->train.checkpoint_dir = quiet->train.log_path = NULL;
  return quiet;
}

static int run_plans(bench *b) {
  zp_run_state *run = b->run;
  const char *root = run->options.output ? run->options.output : zp_format(run->arena, "%s.bench", zp_tree_dir(run));
  if (run->options.steps < 0) run->options.steps = DEFAULT_STEPS;
  zp_warn_busy();
  mkdir(root, 0777); /* that it cannot be written shows when the first trainer is built */
  for (int i = 0; i < b->rows.len; i++) {
    int status = run_plan(b, root, i);
    if (status != ZP_EXIT_OK) return status;
  }
  if (run->options.json)
    print_json(b);
  else
    print_text(b);
  return ZP_EXIT_OK;
}

int zp_cmd_bench(zp_run_state *run) {
  if (run->options.steps == 0) return zp_usage_error("--steps of `zplan bench` wants at least 1");
  zp_json *json;
  zp_spec *spec = zp_load_input(run, &json);
  if (!spec) return run->options.files.len == 1 ? ZP_EXIT_ERROR : ZP_EXIT_USAGE;
  if (json) {
    zp_json_free(json);
    return zp_usage_error("`zplan bench` is about a .dz file, not a plan");
  }
  if (!zp_can_generate(run, spec)) return ZP_EXIT_ERROR;
  if (run->options.top >= MOST_PLANS) return zp_usage_error("--top wants at most %d plans", MOST_PLANS - 1);
  bench b = {.run = run, .spec = quiet_spec(run->arena, spec), .ranks = zp_rank_count(run, spec, 1)};
  b.wanted = 1 + (run->options.top < 0 ? DEFAULT_TOP : run->options.top);
  const zp_plan *best = choose(&b);
  if (!best->feasible) {
    zp_print_no_plan(run, best);
    return ZP_EXIT_INFEASIBLE;
  }
  return run_plans(&b);
}
