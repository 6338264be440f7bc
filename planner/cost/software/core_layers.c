/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of Megatron-Core's layers that the graph's steps have not, and what its recipes compute again. Bytes are
 * those of 16-bit elements; all counted in sources that were opened (Megatron-LM d7288711, b0cc2706, 2edffadb, which
 * Megatron-Bridge v0.3.0 to v0.4.2 build with).
 *
 * Clamps of gated experts (core/fusions/fused_bias_geglu.py, weighted_bias_quick_geglu_impl): before the fused
 * activation both halves of the first product's result are clamped, two kernels over rows with a stride, and joined
 * again; backward two masks of gradients with a stride and the join of a split. The offset of the linear half is a
 * tensor that comes from the host, which waits for the device.
 *
 * Rotary positions that are scaled (core/models/common/embeddings/rope_utils.py, apply_rotary_pos_emb: a scale other
 * than 1, as YaRN's, has no fused kernel): products with cosines and sines, which are made each time, a half negated,
 * halves joined, the sum, and a join with the columns that do not turn, of which there are none; backward the
 * derivatives, and zeros for those columns.
 *
 * Weighted activations (core/fusions/fused_bias_swiglu.py, fused_bias_geglu.py: *_back through torch.compile): the
 * gradients of the two halves are written side by side by one kernel, each from its own reads, and the scores'
 * gradients are sums of rows by another: 20 bytes an element for the 10 of one kernel. How torch.compile divides them
 * is from memory.
 *
 * Queries of groups that share keys are copied out of the product's result, which holds them between keys and values,
 * and the three gradients are joined for it (core/transformer/attention.py, get_query_key_value_tensors;
 * Transformer Engine pytorch/attention, SplitAlongDim).
 *
 * Computed again (core/transformer/transformer_config.py, recompute_modules): `moe_act` the experts' activation,
 * `layernorm` the norms, `mla_up_proj` the products that make heads of latent rows. Not priced: `mlp`, dense ones. */
#include <zplan/constants.h>
#include <zplan/cost.h>
#include "software_cost.h"

/* Bytes an element, in kernels over rows with a stride or one row for all, and in others. */
typedef struct bytes {
  double strided, plain, kernels;
} bytes;

static const bytes clamp = {2 * 4, 2 * 4, 3 + 1}, clamp_grad = {2 * 6, 2 * 4, 3}; /* of each half */
enum { ANGLE_KERNELS = 6 };
static const bytes rotary = {4 + 2 + 4 + 4, 6 + 4 - 4, 5 + ANGLE_KERNELS};
static const bytes rotary_grad = {4 + 4 + 2, 4 + 6 + 2 + 6 - 4, 7};
static const bytes gate_grad = {0, 20 - 10, 1};

static zp_layer_cost cost_of(const zp_machine *machine, const bytes *b, double elements) {
  double moved = elements * (b->strided / zp_cost_constant(ZP_COST_STRIDED_ROWS) + b->plain);
  return (zp_layer_cost){.device_s = zp_cost_memory_bound(machine, moved, 0), .kernels = b->kernels};
}

static void add(zp_layer_cost *sum, zp_layer_cost more) {
  sum->device_s += more.device_s;
  sum->kernels += more.kernels;
}

static bool has(const zp_step *step, zp_op op) {
  if (step->op != ZP_OP_FUSED && step->op != ZP_OP_FUSED_GRAD) return false;
  for (int i = 0; i < step->node->fused->ops.len; i++)
    if (step->node->fused->ops.data[i].op == op) return true;
  return false;
}

static double elements_of(const zp_lowered *lowered, const zp_graph *graph, int tensor) {
  return (double)zp_shape_elements(&graph->tensors.data[tensor].shape, lowered->microbatch);
}

static bool is_of_experts(const zp_graph *graph, const zp_step *step) {
  return graph->tensors.data[step->node->in.data[0]].shape.rank == 4;
}

static zp_layer_cost heads_cost(const zp_lowered *lowered, const zp_machine *machine, const zp_graph *graph,
                                const zp_step *step) {
  zp_layer_cost cost = {0};
  if (step->node->attr.kv_heads >= step->node->attr.heads) return cost;
  double few = (double)step->node->attr.kv_heads / (double)step->node->attr.heads;
  double q = elements_of(lowered, graph, step->node->in.data[0]), passes = 2;
  if (step->op == ZP_OP_ATTENTION_GRAD) passes *= 1 + 2 * few;
  cost.device_s = zp_cost_memory_bound(machine, q * passes * lowered->compute_bytes, 0);
  cost.kernels = 1;
  return cost;
}

zp_layer_cost zp_software_core_step(const zp_lowered *lowered, const zp_machine *machine, const zp_graph *graph,
                                    const zp_software *software, const zp_step *step, bool experts) {
  zp_layer_cost cost = {0};
  bool grad = step->op == ZP_OP_FUSED_GRAD || step->op == ZP_OP_ATTENTION_GRAD;
  if (software->splits_heads && zp_op_get_class(step->op) == ZP_CLASS_ATTENTION && step->op != ZP_OP_FUSED)
    add(&cost, heads_cost(lowered, machine, graph, step));
  if (!experts) return cost;
  if (software->single_rotary && has(step, ZP_OP_ROPE)) {
    add(&cost, cost_of(machine, grad ? &rotary_grad : &rotary, elements_of(lowered, graph, step->node->in.data[0])));
    if (!grad) cost.device_s += ANGLE_KERNELS * machine->node->device.launch_s;
  }
  if (!has(step, ZP_OP_SILU) || !is_of_experts(graph, step) || software->one_kernel) return cost;
  double gates = elements_of(lowered, graph, step->node->in.data[0]);
  if (software->clamps_gates) {
    add(&cost, cost_of(machine, grad ? &clamp_grad : &clamp, gates));
    if (!grad) cost.device_s += software->host_call_s;
  }
  if (software->weighs_gates && grad) add(&cost, cost_of(machine, &gate_grad, gates));
  return cost;
}

/* ---- what is computed again ---- */

static bool makes_heads(const zp_graph *graph, const zp_latent *l, const zp_step *step) {
  if (!l->is || zp_op_get_class(step->op) != ZP_CLASS_MATMUL) return false;
  double columns = (double)zp_shape_cols(&graph->tensors.data[step->node->out.data[0]].shape);
  return columns == l->head * l->heads || columns == (l->head - l->rotary + l->value) * l->heads ||
         columns == (l->head - l->rotary) * l->heads || columns == l->value * l->heads;
}

zp_layer_cost zp_software_again(const zp_lowered *lowered, const zp_machine *machine, const zp_graph *graph,
                                const zp_software *software, const zp_latent *latent, const zp_procedure *forward) {
  zp_layer_cost cost = {0};
  for (int i = 0; i < forward->steps.len; i++) {
    const zp_step *step = &forward->steps.data[i];
    if (step->kind != ZP_STEP_NODE) continue;
    bool activation = (software->again & ZP_AGAIN_ACTIVATION) && has(step, ZP_OP_SILU) && is_of_experts(graph, step);
    bool up = (software->again & ZP_AGAIN_UP) && makes_heads(graph, latent, step);
    bool norm = (software->again & ZP_AGAIN_NORM) && has(step, ZP_OP_RMS_NORM);
    if (activation || up) cost.device_s += step->cost_s;
    if (norm) {
      double elements = elements_of(lowered, graph, step->node->in.data[0]);
      cost.device_s += zp_cost_memory_bound(machine, 2 * elements * lowered->compute_bytes, 0);
    }
    cost.kernels += activation + up + norm;
    if (activation && software->clamps_gates) cost.kernels += clamp.kernels;
  }
  return cost;
}
