/* SPDX-License-Identifier: Apache-2.0 */
/* Shared inside this folder: words for choices and stages, groups of equal stages, the events of the simulated step. */
#ifndef ZPLAN_REPORT_INTERNAL_H
#define ZPLAN_REPORT_INTERNAL_H

#include <zplan/buf.h>
#include <zplan/page.h>
#include <zplan/quote.h>
#include <zplan/report.h>

/* ---- words.c ---- */
/* "tensor 8  pipeline 50 (1f1b)  data 2  zero 1  microbatch 1  recompute full, kept inputs split over tensor", then
 * what else departs from the plain: sequence, compression, homes of state. */
const char *zp_words_choice(zp_arena *arena, const zp_choice *choice);
/* "begin, h.0-h.4": what a stage runs. */
const char *zp_words_stage(zp_arena *arena, const zp_lowered *lowered, const zp_stage *stage);
/* "32.3 GB" of `bytes`, or "-" for none. */
/* Devices of the plan: "16 x a100_80, 80.0 GB each (2 x dgx_a100)", every type of them. */
const char *zp_words_devices(zp_arena *arena, const zp_plan *plan);
const char *zp_words_bytes(zp_arena *arena, int64_t bytes);
/* Bytes that arena and context may use on a device of the stage. */
int64_t zp_words_usable_bytes(const zp_plan *plan, int stage);
/* Units of the model: layers, and what stands before, between and after them, whole. */
int64_t zp_words_units(const zp_plan *plan);
/* Why this plan, from the terms of its price. One or more sentences. */
const char *zp_words_why(zp_arena *arena, const zp_plan *plan);
/* In two sentences: where the time goes, and what makes it fit. */
const char *zp_words_why_briefly(zp_arena *arena, const zp_plan *plan);
/* "tensor 16 x pipeline 49 x data 1, ...: at most ~16.7% slower": an alternative of the plan. */
const char *zp_words_alternative(zp_arena *arena, const zp_plan *plan, int index);
/* Seconds of a step that communication takes, of all kinds. */
static inline double zp_estimate_communication_s(const zp_estimate *e) {
  return e->tensor_comm_s + e->expert_comm_s + e->context_comm_s + e->pipeline_comm_s + e->data_comm_s;
}

/* Stages first, first + step and so on to last, with equal memory: consecutive ones, or those of a pattern that comes
 * again, as cuts inside layers make. In 1F1B every stage has one micro-batch more in flight than the next, so tables
 * group stages whatever they save. */
enum { ZP_LONGEST_PATTERN = 4 };
typedef struct zp_stage_group {
  int first, last, step;
} zp_stage_group;
typedef ZP_VEC(zp_stage_group) zp_stage_groups;
zp_stage_groups zp_group_stages(zp_arena *arena, const zp_program *program, bool whatever_saved);
/* "2-48", "3", "1,3..47". */
const char *zp_words_group(zp_arena *arena, zp_stage_group group);
/* "h.10-h.285": first and last run of a group. */
const char *zp_words_group_runs(zp_arena *arena, const zp_plan *plan, zp_stage_group group);
/* "107 MB-2.57 GB": a class over the stages of a group; class ZP_MEMORY_CLASSES: the total. */
const char *zp_words_group_bytes(zp_arena *arena, const zp_plan *plan, zp_stage_group group, int class);
/* What of a device is reserved outside of the arena, and what for. */
const char *zp_words_outside(zp_arena *arena, const zp_plan *plan);
/* Classes of the plan's tables: communicators are the last, and absent on CPUs and on one rank. */
int zp_memory_classes(const zp_plan *plan);
/* Memory of a stage with the context in it. */
zp_memory zp_stage_memory(const zp_plan *plan, int stage);
/* The classes in order, for tables and bars; the last two lie outside of the arena. */
enum { ZP_ARENA_CLASSES = 5, ZP_MEMORY_CLASSES = 7 };
const char *zp_memory_class_name(int class);
int64_t zp_memory_class_bytes(const zp_memory *memory, int class);

/* ---- log.c ---- */
typedef struct zp_log_step {
  int64_t step;
  double loss, step_ms;
  double tokens_per_s; /* NAN: the log does not say */
} zp_log_step;
typedef ZP_VEC(zp_log_step) zp_log_steps;
/* What the line at the end of a run says of memory, in bytes, the most of any rank; 0: not measured. */
typedef struct zp_log_memory {
  int64_t arena;  /* up to the last byte that was written: with --check-memory alone */
  int64_t device; /* taken of a GPU, or resident of a CPU rank's process: all that is there, not the arena alone */
} zp_log_memory;
/* The largest arena of a plan's stages. */
int64_t zp_largest_arena(const zp_program *program);
/* The last run in the log that ended counts. */
zp_log_memory zp_log_read_memory(zp_arena *arena, const char *text);
/* Training steps of a run's JSONL log; lines that are no steps are skipped. */
zp_log_steps zp_log_read(zp_arena *arena, const char *text);
/* Which plan the last run of the log was of, "": it does not say; lines that are no JSON. */
typedef struct zp_log_facts {
  const char *plan; /* arena */
  int unread;
} zp_log_facts;
zp_log_facts zp_log_read_facts(zp_arena *arena, const char *text);
double zp_log_median_step_ms(zp_arena *arena, const zp_log_steps *steps);

#endif
