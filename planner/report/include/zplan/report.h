/* SPDX-License-Identifier: Apache-2.0 */
/* Reports: a plan for people, as text, HTML and Chrome trace. Texts come from the arena. Plans are feasible but for
 * zp_report_infeasible, whose plan is not. */
#ifndef ZPLAN_REPORT_H
#define ZPLAN_REPORT_H

#include <zplan/json.h>
#include <zplan/page.h>
#include <zplan/plan.h>

/* The first screen: whether it fits, the layout, step time, throughput, memory, days and price, bars of memory and
 * time, why, the next best, the proof in a line. */
void zp_report_first_screen(zp_page *page, const zp_plan *plan);
/* What a training is and what is expected of it: the first lines of `zplan run`. */
void zp_report_prediction(zp_page *page, const zp_plan *plan);
/* What the first screen leaves out: decisions in full, sources, reasons, other plans, what was rejected. */
void zp_report_details(zp_page *page, const zp_plan *plan);
enum { ZP_FIRST_LABEL = 10, ZP_DETAIL_LABEL = 15 }; /* columns of the labels of both */
/* "tensor 16 x pipeline 50 x data 1, interleaved/2, micro-batch 1, recompute full": without what is plain; its spaces
 * are ZP_GLUE where no line may break. */
const char *zp_words_layout(zp_arena *arena, const zp_choice *choice);
/* Both as plain text of 100 columns. */
const char *zp_report_summary(zp_arena *arena, const zp_plan *plan);
/* Per-stage memory table: weights, gradients, optimizer, saved activations, buffers, context. Equal stages in one
 * row. */
void zp_report_memory(zp_page *page, const zp_plan *plan);
/* When nothing fits: what, on which stage, by how much, the nearest change that fits. */
const char *zp_report_infeasible(zp_arena *arena, const zp_plan *plan);
/* "measured  step 112 ms, median of 120, ~174 ms: measured / predicted 0.64 ...", what a run's log says beside the
 * plan; false when it holds no step. */
bool zp_report_measured(zp_page *page, const zp_plan *plan, const char *log);
/* ---- profiles: where a run's time went (`zplan run --profile`) ---- */
/* A step of the program in one training step, on the mean of a stage's ranks. */
typedef struct zp_profile_row {
  int stage;
  const char *procedure, *name, *place, *kind; /* "h forward", "matmul mlp.c_fc.matmul", "nn.dz:9", "product" */
  double calls, predicted_ms, measured_ms;     /* predicted: NAN where the plan says nothing */
} zp_profile_row;
/* A stretch of the last measured step on the first rank of a stage: "F3", "B0.2", "norm and optimizer". */
typedef struct zp_profile_span {
  int stage;
  const char *name;
  double begin_ms, end_ms;
} zp_profile_span;
typedef struct zp_profile {
  int stages;
  int64_t step, steps;                                       /* done when it was written; measured */
  double predicted_step_ms, measured_step_ms, other_step_ms; /* medians; other: of steps not measured, NAN: none */
  ZP_VEC(zp_profile_row) rows;
  ZP_VEC(zp_profile_span) spans;
  bool timeline_cut; /* some stage had more spans than are kept */
} zp_profile;
typedef struct zp_profile_answer {
  const zp_profile *profile; /* NULL: none that is of this plan and sound */
  const char *why_not;       /* then: the reason, for after the log's name */
  bool there_is;             /* the log has at least something of a profile */
} zp_profile_answer;
/* The newest profile in a run's log that is of the plan with this hash (zp_plan_hash) and number of stages. Arena. */
zp_profile_answer zp_profile_read(zp_arena *arena, const char *plan_hash, int stages, const char *log);
/* Rows by how far measured and predicted are apart; the first `most`, 0: all. Then the sums of every stage. */
void zp_report_profile(zp_page *page, const zp_profile *profile, int most);
/* ---- the page ---- */
/* What stands on it besides the plan; NULL: it is not there. */
typedef struct zp_report_page {
  const zp_plan *plan;
  const zp_json *file; /* that the plan was read from: alternatives and what the search rejected stand there alone */
  const char *log;     /* lines of a run's JSONL */
  const zp_profile *profile;
  const zp_json *front; /* `zplan FILE --pareto --json`, checked by zp_report_front_refusal */
} zp_report_page;
/* One HTML file that fetches nothing. */
const char *zp_report_html(zp_arena *arena, const zp_report_page *page);
/* A page of several plans: sides is the answer of `zplan compare --json`, text the one without. */
const char *zp_report_compare_html(zp_arena *arena, const zp_json *sides, const char *text);
/* Why the answer of --pareto cannot be drawn, for after the file's name (arena); NULL: it can. */
const char *zp_report_front_refusal(zp_arena *arena, const zp_json *front);
/* Chrome trace JSON of the simulated step; with a profile (NULL: none) also of the measured one. */
const char *zp_report_trace(zp_arena *arena, const zp_plan *plan, const zp_profile *profile);

#endif
