/* SPDX-License-Identifier: Apache-2.0 */
/* Private to plan files: what writer and reader must spell the same, and between the files of the writer. */
#ifndef ZPLAN_PLAN_INTERNAL_H
#define ZPLAN_PLAN_INTERNAL_H

#include <stdio.h>
#include <zplan/plan_file.h>

/* The value of "recompute" when "stage_recompute" lists a mode for every stage. */
#define ZP_PLAN_PER_STAGE "per stage"

/* The order of a stage as a plan file states it. Arena. */
const char *zp_stated_order(zp_arena *arena, const zp_program *program, int stage);
/* Reads the orders of all stages, for so many micro-batches: choice->own_order where they are not the schedule's.
 * claimed: how many micro-batches the file says there are. */
bool zp_read_orders(zp_arena *arena, const zp_json *stages, zp_choice *choice, int64_t microbatches, int64_t claimed,
                    const char **error);

/* kernels_json.c; plans for zplan's own GPU trainer. What a step does on the device, nothing where another program runs
 * it; classes of kernels and their rates; the end of a step on a stage. */
void zp_kernel_set_work(zp_json *object, const zp_plan *plan, const zp_segment_program *segment, const zp_step *step);
zp_json *zp_kernels_json(const zp_plan *plan);
zp_json *zp_update_json(const zp_plan *plan, int stage);

/* Sets "spread_elements" and the like, of every kind. Where there are no parameters that are not trained, a file has
 * nothing of them. */
static inline void zp_set_of_kind(zp_json *object, zp_param_kind kind, const char *name, int64_t value) {
  char key[64];
  snprintf(key, sizeof key, "%s%s", zp_kinds[kind].prefix, name);
  zp_json_set_int(object, key, value);
}
static inline bool zp_has_of_kind(zp_param_kind kind, int64_t elements) {
  return zp_kinds[kind].trained || elements > 0;
}

/* Segments with their procedures, and parameters. */
zp_json *zp_program_json(const zp_plan *plan);

#endif
