/* SPDX-License-Identifier: Apache-2.0 */
/* What the report page draws a step from. The order tables have up to millions of actions, so the page plays the orders
 * of the plan's stages itself, as planner/cost/pipeline.c does, and compares with the ends that stand here. */
#include <math.h>
#include <zplan/cost.h>
#include "page_internal.h"

static zp_json *reals(zp_json *o, const char *key) { return zp_json_set(o, key, zp_json_array()); }

/* Every chunk, chunks of a stage side by side; place: which chunk of the model it is. */
static void set_chunks(zp_json *o, const zp_pipeline_run *run) {
  zp_json *place = reals(o, "place"), *forward = reals(o, "forward_s"), *backward = reals(o, "backward_s");
  zp_json *weights = reals(o, "weights_s");
  for (int s = 0; s < run->stages; s++)
    for (int k = 0; k < run->chunks; k++) {
      const zp_stage_time *time = &run->time[s * run->chunks + k];
      zp_json_append_int(place, zp_model_chunk(run->choice, s, k));
      zp_json_append_real(forward, time->forward_s);
      zp_json_append_real(backward, time->backward_s);
      zp_json_append_real(weights, zp_schedule_splits(run->choice->schedule) ? time->weights_s : 0);
    }
}

/* Between chunk k of the model and the next one. */
static void set_messages(zp_json *o, const zp_pipeline_run *run, const zp_program *program) {
  zp_json *seconds = reals(o, "message_s"), *bytes = reals(o, "message_bytes");
  for (int k = 0; k + 1 < run->stages * run->chunks; k++) {
    zp_json_append_real(seconds, run->message_s[k]);
    zp_json_append_int(bytes, zp_cost_message_bytes(program, k));
  }
}

static void set_ends(zp_json *o, const zp_plan *plan, const zp_pipeline_run *run) {
  zp_json *end = reals(o, "end_s"), *reduce = reals(o, "reduce_s"), *optimizer = reals(o, "optimizer_s");
  zp_json *offload = reals(o, "offload_s"), *gather = reals(o, "gather_s"), *delayed = reals(o, "delayed_s");
  for (int s = 0; s < run->stages; s++) {
    zp_stage_time time = zp_cost_stage_time(run, s);
    zp_step_end e =
        zp_cost_stage_end(plan->program, &plan->machine, s, zp_cost_overlapped(&plan->program->choice, &time));
    zp_json_append_real(end, run->end_s[s]);
    zp_json_append_real(reduce, e.reduce_s);
    zp_json_append_real(optimizer, e.optimizer_s);
    zp_json_append_real(offload, e.offload_s);
    zp_json_append_real(gather, e.gather_s);
    zp_json_append_real(delayed, e.delayed_s);
  }
}

void zp_page_set_timeline(zp_arena *arena, zp_json *page, const zp_plan *plan) {
  zp_pipeline_run run = zp_cost_pipeline(arena, plan->program, &plan->machine);
  zp_cost_microbatches(arena, &run);
  zp_json *o = zp_json_set(page, "timeline", zp_json_object());
  zp_json_set_int(o, "stages", run.stages);
  zp_json_set_int(o, "chunks", run.chunks);
  zp_json_set_int(o, "microbatches", run.microbatches);
  zp_json_set_int(o, "buffers", run.buffers);
  set_chunks(o, &run);
  set_messages(o, &run, plan->program);
  set_ends(o, plan, &run);
}
