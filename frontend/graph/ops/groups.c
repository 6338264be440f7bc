/* SPDX-License-Identifier: Apache-2.0 */
/* Fused groups of ROW operations. What makes them is in fuse.c, their derivatives are in diff_fused.c. */
#include "ops.h"

/* Forward: the table's FLOP per element. Backward: the values once more and about twice as much for the derivatives. */
static double flop_group(const zp_graph *graph, const zp_node *node, int64_t microbatch) {
  double per_row = 0;
  for (int i = 0; i < node->fused->ops.len; i++)
    per_row += zp_op_row_flop(node->fused->ops.data[i].op) * (double)node->fused->ops.data[i].cols;
  double rows = (double)zp_shape_rows(&zp_cost_tensor(graph, node->in.data[0])->shape, microbatch) *
                (double)node->fused->row_parts;
  return rows * per_row * (node->op == ZP_OP_FUSED_GRAD ? 3 : 1);
}

const zp_op_row zp_op_row_FUSED = {.flop = flop_group, .differentiate = zp_diff_fused};
const zp_op_row zp_op_row_FUSED_GRAD = {.flop = flop_group};
