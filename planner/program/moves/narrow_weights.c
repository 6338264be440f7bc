/* SPDX-License-Identifier: Apache-2.0 */
/* Products in 8 or 4 bits of programs that plans are made for: the casts of weights, once a step, are kept on the
 * device with the weights (../../profiles/recipes.c). What is kept of their other operands: ../operands.c. */
#include "strategy.h"

#include <zplan/buf.h>
#include <zplan/software.h>

static int kept_32nds(const zp_move_scope *x) { return zp_software_weight_32nds(x->lowered->spec->cluster.software); }

static bool applies(const zp_move_scope *x) { return kept_32nds(x) > 0; }

/* Every instance has its own casts. */
static void lower_segment(const zp_lowered *l, zp_segment_program *segment) {
  const zp_graph *graph = segment->graph;
  for (int n = 0; n < graph->nodes.len; n++) {
    const zp_node *node = &graph->nodes.data[n];
    if (node->op == ZP_OP_MATMUL && node->attr.float8)
      segment->narrow_weights += l->param_elements[graph->tensors.data[node->in.data[1]].index];
  }
}

static void regions(const zp_move_scope *x, zp_placing *p) {
  zp_need(p, ZP_REGION_NARROW_WEIGHTS, (p->totals->narrow_weights * kept_32nds(x) + 31) / 32);
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
  return zp_format(arena, "casts of weights for products in %s, once a step: %.4g bytes a weight are kept",
                   zp_precision_recipe(x->lowered->spec->train.precision), kept_32nds(x) / 32.0);
}

const zp_move_strategy zp_narrow_weights = {
    .name = "narrow weights",
    .applies = applies,
    .regions = regions,
    .lower_segment = lower_segment,
    .explain = explain,
    .objects = objects,
};
