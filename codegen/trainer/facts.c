/* SPDX-License-Identifier: Apache-2.0 */
/* What several printers ask of the plan. */
#include "emit.h"

#include <assert.h>
#include <zplan/zpk.h>

zpk_dtype zp_trainer_dtype(const zp_plan *plan) {
  assert(plan->spec->train.precision < ZP_PRECISIONS);
  static const zpk_dtype dtype[ZP_PRECISIONS] = {
#define PRECISION(id, word, operand, real, type, ...) ZPK_##type,
#include <zplan/precisions.def>
  };
  return dtype[plan->spec->train.precision];
}

bool zp_emit_mixed(const zp_emit *e) { return zpk_is_narrow(zp_trainer_dtype(e->plan)); }

const zp_segment_program *zp_emit_variant(const zp_emit *e, int segment, zp_stage_mode mode) {
  for (int m = 0; m < mode && !e->lowered->segments[segment].segment->is_repeat; m++)
    if (zp_program_segment(e->program, segment, (zp_stage_mode)m)) return NULL; /* printed already */
  return zp_program_segment(e->program, segment, mode);
}

bool zp_emit_pools(const zp_emit *e) {
  bool pools = false;
  for (int s = 0; s < e->program->choice.pipeline; s++) pools |= e->program->stages[s].pooled;
  return pools && zp_chunks(&e->program->choice) > 1;
}

bool zp_emit_streams(const zp_emit *e) { return e->lowered->streams.len > 0; }
