/* SPDX-License-Identifier: Apache-2.0 */
/* Several plans side by side: decisions, terms of the step, memory of the fullest stage, traffic by axis, price. */
#include <assert.h>
#include <math.h>
#include <zplan/answers.h>
#include "report_internal.h"

typedef struct table {
  zp_arena *arena;
  const zp_plan *const *plans;
  int n;
} table;

static void add_decisions(const table *t, zp_rows_alongside *out) {
  zp_decisions *of = ZP_NEW_ARRAY(t->arena, zp_decisions, t->n);
  for (int i = 0; i < t->n; i++) of[i] = zp_plan_decisions(t->arena, t->plans[i]);
  for (int d = 0; d < of[0].len; d++) {
    zp_row_alongside row = {
        .name = of[0].data[d].name, .words = ZP_NEW_ARRAY(t->arena, const char *, t->n), .same = true};
    for (int i = 0; i < t->n; i++) {
      assert(of[i].len == of[0].len && "plans have the same decisions");
      row.words[i] = of[i].data[d].words;
      row.same &= strcmp(row.words[i], row.words[0]) == 0;
    }
    zp_push(t->arena, out, row);
  }
}

/* An empty row of seconds at the end of the table. */
static double *add_seconds(const table *t, zp_rows_alongside *out, const char *name) {
  zp_push(t->arena, out, ((zp_row_alongside){.name = name, .seconds = ZP_NEW_ARRAY(t->arena, double, t->n)}));
  return out->data[out->len - 1].seconds;
}

/* Share of a step: less is the rounding of sums of terms. answers.h states it. */
static const double ROUNDING = 1e-9;

/* What is left of a step when terms are taken away from it; rounding is nothing. */
static double without_noise(double seconds, double step_s) { return fabs(seconds) > ROUNDING * step_s ? seconds : 0; }

/* The bubble is what the others leave; where they explain more than the step, the rest is overlap (less than
 * nothing). */
static void add_terms(const table *t, zp_rows_alongside *out) {
  double *rest = ZP_NEW_ARRAY(t->arena, double, t->n), *seconds;
  for (int i = 0; i < t->n; i++) rest[i] = t->plans[i]->best.estimate.step_s;
#define TERM(field, name)                                                                                              \
  seconds = add_seconds(t, out, name);                                                                                 \
  for (int i = 0; i < t->n; i++) {                                                                                     \
    const zp_estimate *e = &t->plans[i]->best.estimate;                                                                \
    rest[i] -= seconds[i] = without_noise(e->field, e->step_s);                                                        \
  }
  ZP_STEP_TERMS(TERM)
#undef TERM
  seconds = add_seconds(t, out, "overlap");
  for (int i = 0; i < t->n; i++) seconds[i] = without_noise(rest[i], t->plans[i]->best.estimate.step_s);
  seconds = add_seconds(t, out, "step");
  for (int i = 0; i < t->n; i++) seconds[i] = t->plans[i]->best.estimate.step_s;
  for (int r = 0; r < out->len; r++) {
    zp_row_alongside *row = &out->data[r];
    row->same = true;
    for (int i = 1; i < t->n; i++) row->same &= fabs(row->seconds[i] - row->seconds[0]) <= ROUNDING * seconds[0];
  }
}

/* An empty row of bytes at the end of the table. */
static int64_t *add_bytes(const table *t, zp_rows_alongside *out, const char *name) {
  zp_push(t->arena, out, ((zp_row_alongside){.name = name, .bytes = ZP_NEW_ARRAY(t->arena, int64_t, t->n)}));
  return out->data[out->len - 1].bytes;
}

static void compare_bytes(const table *t, zp_rows_alongside *rows) {
  for (int r = 0; r < rows->len; r++) {
    zp_row_alongside *row = &rows->data[r];
    row->same = true;
    for (int i = 1; i < t->n; i++) row->same &= row->bytes[i] == row->bytes[0];
  }
}

static void add_memory(const table *t, zp_rows_alongside *memory, zp_rows_alongside *elsewhere) {
  zp_memory *of = ZP_NEW_ARRAY(t->arena, zp_memory, t->n);
  for (int i = 0; i < t->n; i++) of[i] = zp_stage_memory(t->plans[i], t->plans[i]->best.estimate.peak_stage);
  for (int class = 0; class < ZP_MEMORY_CLASSES; class ++) {
    int64_t *bytes = add_bytes(t, memory, zp_memory_class_name(class));
    for (int i = 0; i < t->n; i++) bytes[i] = zp_memory_class_bytes(&of[i], class);
  }
  int64_t *peak = add_bytes(t, memory, "peak");
  int64_t *host = add_bytes(t, elsewhere, "host");
  int64_t *nvme = add_bytes(t, elsewhere, "nvme");
  for (int i = 0; i < t->n; i++) {
    peak[i] = t->plans[i]->best.estimate.peak_bytes;
    host[i] = of[i].host;
    nvme[i] = of[i].nvme;
  }
  for (int r = ZP_ARENA_CLASSES; r < memory->len; r++) memory->data[r].estimated = true; /* the peak, too */
  compare_bytes(t, memory);
  compare_bytes(t, elsewhere);
}

static void add_traffic(const table *t, zp_rows_alongside *out) {
  int64_t *tensor = add_bytes(t, out, "tensor"), *data = add_bytes(t, out, "data");
  int64_t *pipeline = add_bytes(t, out, "pipeline"), *tie = add_bytes(t, out, "tie");
  int64_t *expert = add_bytes(t, out, "expert"), *context = add_bytes(t, out, "context");
  for (int i = 0; i < t->n; i++) {
    const zp_traffic traffic = zp_program_traffic(t->plans[i]->program);
    tensor[i] = traffic.tensor;
    data[i] = traffic.data;
    pipeline[i] = traffic.pipeline;
    tie[i] = traffic.tie;
    expert[i] = traffic.expert;
    context[i] = traffic.context;
  }
  compare_bytes(t, out);
}

static bool all_feasible(const zp_plan *const *plans, int n) {
  for (int i = 0; i < n; i++)
    if (!plans[i]->feasible) return false;
  return true;
}

zp_side_by_side zp_put_side_by_side(zp_arena *arena, const zp_plan *const *plans, int n) {
  assert(n >= 1 && all_feasible(plans, n));
  const table t = {arena, plans, n};
  zp_side_by_side out = {.n = n, .plans = plans};
  add_decisions(&t, &out.decisions);
  add_terms(&t, &out.terms);
  add_memory(&t, &out.memory, &out.elsewhere);
  add_traffic(&t, &out.traffic);
  out.run_s = ZP_NEW_ARRAY(arena, double, n);
  out.run_device_hours = ZP_NEW_ARRAY(arena, double, n);
  out.run_dollars = ZP_NEW_ARRAY(arena, double, n);
  for (int i = 0; i < n; i++) {
    const zp_spec *spec = plans[i]->spec;
    out.run_s[i] = spec->train.steps > 0 ? (double)spec->train.steps * plans[i]->best.estimate.step_s : 0;
    out.run_device_hours[i] = out.run_s[i] / 3600 * plans[i]->devices;
    out.run_dollars[i] = out.run_device_hours[i] * zp_cluster_price(&spec->cluster, plans[i]->devices);
  }
  return out;
}
