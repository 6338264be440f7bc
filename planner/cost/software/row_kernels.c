/* SPDX-License-Identifier: Apache-2.0 */
/* Row kernels that the measured software has and the generated trainer has not: what is one fused kernel there is
 * several here, each of which reads and writes its rows. Counted in passes of half-precision rows alongside those of
 * the fused kernel.
 *
 * Megatron and its relatives. Forward: a norm reads its input again; the residual's dropout writes a mask. Backward:
 * the parameter gradients of a norm are a kernel of their own (two reads), the sum of the residual's gradients too (two
 * reads, one write, of which the group has one); dropout reads, writes and reads its mask; a bias gradient reads its
 * rows again. Source: apex layer_norm_cuda_kernel.cu and Megatron-LM fused_bias_gelu.py, transformer.py
 * (bias_dropout_add), 2021. Before those (separate_biases), every bias and every dropout reads and writes its rows once
 * more.
 *
 * LLaMA-like layers in eager PyTorch. SiLU and the product with the other half are two kernels forward and three
 * backward; halves that one product made have their gradients joined (autograd of a split). RMS norm in fp32
 * (torchtitan/models/norms.py, RMSNorm): cast, square, mean, product, cast, product with the weight: 36 bytes an
 * element forward, 76 backward (weight product 12, casts 12, products 24, mean 16, sum of gradients 12). Rotary
 * positions in complex fp32 (torchtitan/models/llama/model.py, apply_rotary_emb): cast, product, cast: 20 bytes either
 * way. */
#include "software_cost.h"

enum { FUSED_GATE_PASSES = 3, FUSED_GATE_GRAD_PASSES = 5, GATE_PASSES = 2 + 3, GATE_GRAD_PASSES = 3 + 3 + 3 };
enum { JOIN_GATES_PASSES = 4 };
/* Passes of the fused norm kernel and of the separate ones above: an operand read twice, and backward two reads more
 * and two for the weight. */
enum { NORM_PASSES = 2, NORM_GRAD_PASSES = 3 + 4, FLOAT_NORM_PASSES = 36 / 2, FLOAT_NORM_GRAD_PASSES = 76 / 2 };
enum { FLOAT_NORM_KERNELS = 8 - 1, FLOAT_NORM_GRAD_KERNELS = 20 - 3 };
enum { ROTARY_PASSES = 2, FLOAT_ROTARY_PASSES = 20 / 2, FLOAT_ROTARY_KERNELS = 3 - 1 };

/* What a fused group of ours is made of in the measured software. */
typedef enum part { OTHER, NORM, RESIDUAL, BIAS, GATE, ROTATION, PARTS } part;
static const part parts[ZP_OP_COUNT] = {
    [ZP_OP_LAYER_NORM] = NORM, [ZP_OP_RMS_NORM] = NORM, [ZP_OP_SILU] = GATE,
    [ZP_OP_ROPE] = ROTATION,   [ZP_OP_ADD] = RESIDUAL, /* or a bias */
};
typedef struct group {
  int n[PARTS];
} group;

static group group_of(const zp_fused *fused) {
  group g = {0};
  for (int i = 0; i < fused->ops.len; i++) {
    const zp_fused_op *op = &fused->ops.data[i];
    part kind = parts[op->op];
    bool columns = kind == RESIDUAL && op->arg[1] < fused->n_in && fused->operand[op->arg[1]] == ZP_OPERAND_COLUMNS;
    g.n[columns ? BIAS : kind]++;
  }
  return g;
}

static void add(zp_row_kernels *sum, int count, double passes, double kernels) {
  sum->passes += count * passes;
  sum->kernels += count * kernels;
}

static void add_megatron(zp_row_kernels *sum, const zp_software *software, const group *g, bool grad, bool alone) {
  if (grad) {
    add(sum, g->n[NORM], 2 + 2, 2);
    add(sum, g->n[RESIDUAL], 2, 1);
    add(sum, g->n[BIAS], 1, 1);
  } else if (!alone) {
    add(sum, g->n[NORM], 1, 1);
  }
  if (software->separate_biases && !alone)
    add(sum, g->n[RESIDUAL] + (grad ? 0 : g->n[BIAS]), 2, 1); /* dropouts both ways, bias sums forward */
  sum->mask_bytes = sum->passes > 0 ? g->n[RESIDUAL] : 0;
}

static void add_llama(zp_row_kernels *sum, const zp_software *software, const group *g, bool grad) {
  if (software->norm_passes > 0) add(sum, g->n[NORM], grad ? software->norm_grad_passes : software->norm_passes, 1);
  if (software->separate_gates)
    add(sum, g->n[GATE], grad ? GATE_GRAD_PASSES - FUSED_GATE_GRAD_PASSES : GATE_PASSES - FUSED_GATE_PASSES,
        grad ? 2 : 1);
  if (software->merged_products && grad) add(sum, g->n[GATE], JOIN_GATES_PASSES, 1);
  if (software->float_norms)
    add(sum, g->n[NORM], grad ? FLOAT_NORM_GRAD_PASSES - NORM_GRAD_PASSES : FLOAT_NORM_PASSES - NORM_PASSES,
        grad ? FLOAT_NORM_GRAD_KERNELS : FLOAT_NORM_KERNELS);
  if (software->float_rotary) add(sum, g->n[ROTATION], FLOAT_ROTARY_PASSES - ROTARY_PASSES, FLOAT_ROTARY_KERNELS);
}

zp_row_kernels zp_software_rows(const zp_software *software, const zp_step *step) {
  const zp_fused *fused = step->node->fused;
  group g = group_of(fused);
  bool grad = step->op == ZP_OP_FUSED_GRAD, alone = fused->ops.len == 1;
  zp_row_kernels more = {0};
  add_megatron(&more, software, &g, grad, alone);
  add_llama(&more, software, &g, grad);
  return more;
}
