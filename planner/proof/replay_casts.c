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

/* Does the product take its operands in 8 or 4 bits? Those of experts in layers do, too. */
static bool takes_casts(const zp_segment_program *seg, const zp_node *node) {
  zp_op_class class = zp_op_get_class(node->op);
  return class == ZP_CLASS_GROUPED ? seg->segment->is_repeat : class == ZP_CLASS_MATMUL && node->attr.float8;
}

/* Elements of the unit's own trained parameters that such products alone read in forward. */
static int64_t casts_of_unit(const zp_replay *r, const zp_segment_program *seg) {
  const zp_graph *g = seg->graph;
  int64_t elements = 0;
  for (int p = 0; p < g->params.len; p++) {
    const zp_param *param = &r->program->spec->model->params.data[g->params.data[p].param];
    int casts = 0, others = param->segment < 0 || param->frozen;
    for (int n = 0; n < g->n_forward; n++)
      for (int i = 0; i < g->nodes.data[n].in.len; i++)
        if (g->nodes.data[n].in.data[i] == g->params.data[p].tensor)
          *(takes_casts(seg, &g->nodes.data[n]) ? &casts : &others) += 1;
    if (casts > 0 && others == 0) elements += r->lowered->param_elements[g->params.data[p].param];
  }
  return elements;
}

int64_t zp_replay_count_casts(const zp_replay *r) {
  int64_t elements = 0;
  if (!zp_software_casts_alone(r->lowered->spec->cluster.software, &r->lowered->spec->train, &r->program->choice))
    return 0;
  for (int k = 0; k < r->stage->n_chunks; k++)
    for (int64_t j = 0; j < r->chunk[k].calls; j++) elements += casts_of_unit(r, r->chunk[k].call[j].seg);
  return elements;
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
