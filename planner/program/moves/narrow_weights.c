/* SPDX-License-Identifier: Apache-2.0 */
/* Products in 8 or 4 bits of programs that plans are made for: the casts of weights, once a step, are kept on the
 * device, alongside the weights or, of trained ones, alone (../../profiles/recipes.c). What is kept of their other
 * operands: ../operands.c. */
#include "strategy.h"

#include <assert.h>
#include <zplan/buf.h>
#include <zplan/software.h>

static const zp_software *software_of(const zp_lowered *l) { return l->spec->cluster.software; }

static int kept_32nds(const zp_move_scope *x) { return zp_software_weight_32nds(software_of(x->lowered)); }

static bool applies(const zp_move_scope *x) { return kept_32nds(x) > 0; }

/* Products of layers, and of their experts: what modules of Transformer Engine multiply. */
static bool is_narrow(const zp_lowered *l, const zp_segment_program *segment, const zp_node *node) {
  if (zp_op_get_class(node->op) == ZP_CLASS_MATMUL) return node->attr.float8;
  return zp_op_get_class(node->op) == ZP_CLASS_GROUPED && software_of(l) && segment->segment->is_repeat;
}

static bool reads(const zp_node *node, int tensor) {
  for (int i = 0; i < node->in.len; i++)
    if (node->in.data[i] == tensor) return true;
  return false;
}

/* Do products in 8 or 4 bits read the parameter in forward; *alone: and nothing else does? */
static bool read_narrow(const zp_lowered *l, const zp_segment_program *segment, int use, bool *alone) {
  const zp_graph *graph = segment->graph;
  bool any = false;
  *alone = true;
  for (int n = 0; n < graph->n_forward; n++) {
    const zp_node *node = &graph->nodes.data[n];
    if (!reads(node, graph->params.data[use].tensor)) continue;
    bool narrow = is_narrow(l, segment, node);
    any |= narrow;
    *alone &= narrow;
  }
  return any;
}

/* May the instance keep this parameter's cast alone? It is the instance's own, and trained. */
static bool may_stand_alone(const zp_lowered *l, const zp_segment_program *segment, int use) {
  bool alone;
  return segment->param_offset[use] >= 0 && zp_kinds[zp_kind_of(l, segment->graph->params.data[use].param)].trained &&
         read_narrow(l, segment, use, &alone) && alone;
}

/* Every instance has its own casts, of what it shares, too. */
static void lower_segment(const zp_lowered *l, zp_segment_program *segment) {
  if (!zp_precision_recipe(l->spec->train.precision)) return;
  for (int use = 0; use < segment->graph->params.len; use++) {
    int param = segment->graph->params.data[use].param;
    bool alone;
    if (read_narrow(l, segment, use, &alone)) segment->narrow_weights += l->param_elements[param];
    if (may_stand_alone(l, segment, use)) segment->narrow_own.of[zp_kind_of(l, param)] += l->param_elements[param];
  }
}

bool zp_casts_stand_alone(const zp_lowered *l, const zp_choice *c, const zp_segment_program *segment, int use) {
  assert(use >= 0 && use < segment->graph->params.len);
  return zp_software_casts_alone(software_of(l), &l->spec->train, c) && may_stand_alone(l, segment, use);
}

int64_t zp_own_casts(const zp_lowered *l, const zp_choice *c, int segment, zp_param_kind kind) {
  assert(segment >= 0 && segment < l->n_segments && kind < ZP_KINDS);
  bool alone = zp_software_casts_alone(software_of(l), &l->spec->train, c);
  return alone ? l->segments[segment].narrow_own.of[kind] : 0;
}

int64_t zp_narrow_alone(const zp_lowered *l, const zp_choice *c, const zp_flat *own) {
  if (!zp_software_casts_alone(software_of(l), &l->spec->train, c)) return 0;
  return zp_flat_held(c, own, zp_shards_params(c));
}

static void regions(const zp_move_scope *x, zp_placing *p) {
  const zp_flat *own = &p->totals->narrow_own;
  int64_t alone = zp_narrow_alone(x->lowered, x->choice, own), casts = p->totals->narrow_weights;
  if (alone > 0) casts += alone - zp_flat_trained(own); /* of which ZeRO 3 keeps shards */
  zp_need(p, ZP_REGION_NARROW_WEIGHTS, (casts * kept_32nds(x) + 31) / 32);
}

/* CPU ranks emulate them, and keep nothing. */
static zp_move_objection objects(zp_arena *arena, const zp_spec *spec) {
  const zp_cluster *cluster = &spec->cluster;
  const char *recipe = zp_precision_recipe(spec->train.precision);
  if (!recipe || cluster->node.device.is_cpu) return (zp_move_objection){.why = NULL};
  const zp_software *software = cluster->software, *other;
  zp_trainer trainer;
  const char *why = zp_software_with_recipe(arena, recipe, cluster, &software);
  bool megatron =
      zp_software_find("megatron", &trainer, &other) && !zp_software_with_recipe(arena, recipe, cluster, &other);
  const char *help = megatron ? "--for megatron plans them for Megatron-LM; or use `precision = \"mixed_bf16\"`"
                              : "use `precision = \"mixed_bf16\"`";
  return (zp_move_objection){spec->train.precision_span, why, help};
}

static const char *explain(zp_arena *arena, const zp_move_scope *x) {
  const zp_train *train = &x->lowered->spec->train;
  const zp_software *software = software_of(x->lowered);
  const char *alone = "";
  if (zp_software_casts_alone(software, train, x->choice))
    alone = zp_format(arena, ", in place of 16 bits, and gathered in %d bits",
                      zp_software_gathered_bits(software, train, x->choice));
  return zp_format(arena, "casts of weights for products in %s, once a step: %.4g bytes a weight are kept%s",
                   zp_precision_recipe(train->precision), kept_32nds(x) / 32.0, alone);
}

const zp_move_strategy zp_narrow_weights = {
    .name = "narrow weights",
    .applies = applies,
    .regions = regions,
    .lower_segment = lower_segment,
    .explain = explain,
    .objects = objects,
};
