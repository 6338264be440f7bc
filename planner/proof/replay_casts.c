/* SPDX-License-Identifier: Apache-2.0 */
/* Where a stage's flat parameters are. Weights that are kept as their casts to 8 or 4 bits alone have no place among
 * the parameters in 16 bits, which follow each other without them. Their casts stand after the arena here, as many
 * bytes a number as what reads them counts: that their region has the bytes of casts is the verifier's
 * (verify_arena.c). */
#include "replay_internal.h"

#include <assert.h>
#include <zplan/software.h>

/* Instances of a run whose parameter, `own` elements from the start of each, stands before `at`. */
static int64_t instances_before(const zp_run *run, zp_param_kind kind, int64_t own, int64_t at) {
  int64_t room = at - run->base.of[kind] - own;
  if (room <= 0) return 0;
  int64_t before = run->stride.of[kind] > 0 ? (room - 1) / run->stride.of[kind] + 1 : run->count;
  return before < run->count ? before : run->count;
}

void zp_replay_find_casts(zp_replay *r) {
  const zp_lowered *l = r->lowered;
  if (!zp_software_casts_alone(l->spec->cluster.software, &l->spec->train, &r->program->choice)) return;
  r->alone = ZP_NEW_ARRAY(r->arena, bool *, l->n_segments);
  for (int i = 0; i < r->stage->runs.len; i++) {
    int segment = r->stage->runs.data[i].segment, uses = l->segments[segment].graph->params.len;
    if (r->alone[segment]) continue;
    r->alone[segment] = ZP_NEW_ARRAY(r->arena, bool, uses + 1);
    for (int use = 0; use < uses; use++)
      r->alone[segment][use] = zp_casts_stand_alone(l, &r->program->choice, &l->segments[segment], use);
  }
}

/* Elements of casts that stand alone whose place in the flat buffers is before `at`. */
static int64_t alone_before(const zp_replay *r, int64_t at) {
  int64_t elements = 0;
  for (int i = 0; i < r->stage->runs.len; i++) {
    const zp_run *run = &r->stage->runs.data[i];
    const zp_segment_program *seg = zp_run_segment(r->lowered, run);
    for (int use = 0; use < seg->graph->params.len; use++) {
      if (!r->alone[run->segment][use]) continue;
      int param = seg->graph->params.data[use].param;
      elements += r->lowered->param_elements[param] *
                  instances_before(run, zp_kind_of(r->lowered, param), seg->param_offset[use], at);
    }
  }
  return elements;
}

int64_t zp_replay_flat_param_at(const zp_replay *r, const zp_replay_call *call, int use, int64_t element) {
  enum { ALIGN = 256 };
  assert(element >= 0 && use >= 0);
  int64_t before = r->alone ? alone_before(r, element) : 0, bytes = r->lowered->param_bytes;
  if (r->alone && r->alone[call->run->segment][use])
    return (r->stage->arena_bytes + ALIGN - 1) / ALIGN * ALIGN + before * bytes;
  return r->stage->at[ZP_REGION_PARAMS] < 0 ? -1 : r->stage->at[ZP_REGION_PARAMS] + (element - before) * bytes;
}
