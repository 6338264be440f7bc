/* Work and traffic of single nodes: what the cost model multiplies with machine rates. Formulas count what the kernels
 * do in the graph's own (local) shapes; a multiply-add is 2 FLOP. Left out: index arithmetic, random numbers. */
#include <zplan/sparse.h>

#include <assert.h>
#include "graph_internal.h"

static const zp_tensor *tensor_of(const zp_graph *graph, int id) { return &graph->tensors.data[id]; }

static double elements(const zp_graph *graph, int id, int64_t microbatch) {
  return (double)zp_shape_elements(&tensor_of(graph, id)->shape, microbatch);
}

/* x[rows, k] w -> [rows, n], and its two derivatives: 2 rows k n each. dgrad is (dy, w), wgrad is (dy, x). An
 * epilogue's few operations for an element of the result are not counted: products are what model FLOPs are made of. */
static double matmul_flop(const zp_graph *graph, const zp_node *node, int64_t microbatch) {
  if (node->op == ZP_OP_MATMUL_WGRAD)
    return 2 * elements(graph, node->in.data[0], microbatch) *
           (double)zp_shape_cols(&tensor_of(graph, node->in.data[1])->shape);
  double rows = (double)zp_shape_rows(&tensor_of(graph, node->in.data[0])->shape, microbatch);
  return 2 * rows * elements(graph, node->in.data[1], microbatch);
}

/* x[B, experts, slots, k] w[experts, k, n] and its two derivatives: 2 rows k n each, rows of all experts' slots. */
static double grouped_flop(const zp_graph *graph, const zp_node *node, int64_t microbatch) {
  int64_t other = node->op == ZP_OP_BATCHED_MATMUL_WGRAD ? zp_shape_cols(&tensor_of(graph, node->in.data[1])->shape)
                                                         : zp_shape_cols(&tensor_of(graph, node->out.data[0])->shape);
  return 2 * elements(graph, node->in.data[0], microbatch) * (double)other;
}

/* A score costs the gate an exponential (10, as in the op table) and its comparisons; where experts lie in groups, two
 * more, with the two best ones of its group. */
enum { GATE_FLOP_PER_SCORE = 12, GROUP_FLOP_PER_SCORE = 2 };

/* Combining is a multiply-add for every element of a token and every expert that it chose; dispatching only copies. */
static double routing_flop(const zp_graph *graph, const zp_node *node, int64_t microbatch) {
  switch (node->op) {
  case ZP_OP_TOP_K_GATE:
    return (GATE_FLOP_PER_SCORE + (node->attr.groups ? GROUP_FLOP_PER_SCORE : 0)) *
           elements(graph, node->in.data[0], microbatch);
  case ZP_OP_TOP_K_GATE_GRAD: return GATE_FLOP_PER_SCORE * elements(graph, node->in.data[0], microbatch);
  case ZP_OP_COMBINE:
  case ZP_OP_DISPATCH_GRAD: return 2 * (double)node->attr.top_k * elements(graph, node->out.data[0], microbatch);
  case ZP_OP_COMBINE_GRAD: return 4 * (double)node->attr.top_k * elements(graph, node->in.data[3], microbatch);
  default: return 0;
  }
}

/* Forward: scores q k^T and p v, 2 B S^2 heads head_size each (S times the keys of another sequence), half of it when
 * causal, less where not all is seen. Backward: dv, dp, dq, dk and the scores once more, because they are never
 * stored: 2.5 times the forward work. */
static double attention_flop(const zp_graph *graph, const zp_node *node, int64_t microbatch) {
  const zp_shape *q = &tensor_of(graph, node->in.data[0])->shape;
  int64_t keys = tensor_of(graph, node->in.data[1])->shape.dim[1];
  double forward = 4 * (double)zp_shape_elements(q, microbatch) * zp_attention_keys(&node->attr, keys);
  return node->op == ZP_OP_ATTENTION_GRAD ? 2.5 * forward : forward;
}

/* Forward: the table's FLOP per element. Backward: the values once more and about twice as much for the derivatives. */
static double fused_flop(const zp_graph *graph, const zp_node *node, int64_t microbatch) {
  double per_row = 0;
  for (int i = 0; i < node->fused->ops.len; i++)
    per_row += zp_op_row_flop(node->fused->ops.data[i].op) * (double)node->fused->ops.data[i].cols;
  double rows =
      (double)zp_shape_rows(&tensor_of(graph, node->in.data[0])->shape, microbatch) * (double)node->fused->row_parts;
  return rows * per_row * (node->op == ZP_OP_FUSED_GRAD ? 3 : 1);
}

/* A mean adds every element once, its gradient scales it; the others only copy. A log-sum-exp takes an exponential of
 * every element (10, as in the op table), each way. */
static double positions_flop(const zp_graph *graph, const zp_node *node, int64_t microbatch) {
  switch (node->op) {
  case ZP_OP_REDUCE:
  case ZP_OP_REDUCE_COLUMNS:
  case ZP_OP_REDUCE_GRAD:
    return (node->attr.reduction == ZP_REDUCE_LOG_SUM_EXP ? 12 : 1) * elements(graph, node->in.data[0], microbatch);
  case ZP_OP_MEAN:
  case ZP_OP_REPEAT_GRAD:
  case ZP_OP_UNFOLD_GRAD:
  case ZP_OP_GATHER_GRAD: return elements(graph, node->in.data[0], microbatch);
  case ZP_OP_MEAN_GRAD: return elements(graph, node->out.data[0], microbatch);
  default: return 0;
  }
}

/* Per logit: subtract, exponential (10, as in the op table), add; backward also the scaling. */
enum { LOSS_FLOP_PER_LOGIT = 12 };

double zp_node_flop(const zp_graph *graph, const zp_node *node, int64_t microbatch) {
  assert(microbatch >= 1);
  switch (zp_op_get_class(node->op)) {
  case ZP_CLASS_ROW: return zp_op_row_flop(node->op) * elements(graph, node->in.data[0], microbatch);
  case ZP_CLASS_MATMUL: return matmul_flop(graph, node, microbatch);
  case ZP_CLASS_ATTENTION: return attention_flop(graph, node, microbatch);
  case ZP_CLASS_GROUPED: return grouped_flop(graph, node, microbatch);
  case ZP_CLASS_ROUTING: return routing_flop(graph, node, microbatch);
  case ZP_CLASS_FUSED: return fused_flop(graph, node, microbatch);
  case ZP_CLASS_LOSS: return LOSS_FLOP_PER_LOGIT * elements(graph, node->in.data[0], microbatch);
  case ZP_CLASS_LOOKUP: /* lookups only move bytes; their gradients add once per element */
    return node->op == ZP_OP_EMBEDDING ? 0 : elements(graph, node->in.data[0], microbatch);
  case ZP_CLASS_POSITIONS: return positions_flop(graph, node, microbatch);
  case ZP_CLASS_VIEW:
  case ZP_CLASS_COMM: return 0;
  }
  return 0;
}

static double tensor_bytes(const zp_graph *graph, int id, int64_t microbatch, int float_bytes) {
  double n = elements(graph, id, microbatch);
  switch (tensor_of(graph, id)->element) {
  case ZP_ELEM_FLOAT: return n * float_bytes;
  case ZP_ELEM_I32: return n * 4;
  case ZP_ELEM_STAT: return n * (float_bytes == 8 ? 8 : 4);
  }
  return 0;
}

/* Accumulated gradients are read and written. A lookup touches as many rows of its table as there are ids. */
static double param_grad_bytes(const zp_graph *graph, const zp_node *node, int64_t microbatch, int sum_bytes) {
  if (node->op == ZP_OP_EMBEDDING_GRAD) return 2 * tensor_bytes(graph, node->in.data[0], microbatch, sum_bytes);
  double bytes = 0;
  for (int i = 0; i < node->param_grad.len; i++)
    bytes += 2 * tensor_bytes(graph, graph->params.data[node->param_grad.data[i]].tensor, microbatch, sum_bytes);
  return bytes;
}

double zp_node_bytes(const zp_graph *graph, const zp_node *node, int64_t microbatch, int float_bytes, int sum_bytes) {
  assert(microbatch >= 1 && float_bytes >= 2 && float_bytes <= 8 && sum_bytes >= 2 && sum_bytes <= 8);
  if (node->op == ZP_OP_SPLIT || node->op == ZP_OP_ENTER) return 0;
  double bytes = param_grad_bytes(graph, node, microbatch, sum_bytes);
  if (node->op == ZP_OP_SLICE || node->op == ZP_OP_COLUMN || node->op == ZP_OP_COLUMNS || node->op == ZP_OP_GATHER)
    return 2 * tensor_bytes(graph, node->out.data[0], microbatch, float_bytes);
  for (int i = 0; i < node->in.len; i++)
    bytes += node->op == ZP_OP_EMBEDDING && i == 1 ? tensor_bytes(graph, node->out.data[0], microbatch, float_bytes)
                                                   : tensor_bytes(graph, node->in.data[i], microbatch, float_bytes);
  for (int i = 0; i < node->out.len; i++) bytes += tensor_bytes(graph, node->out.data[i], microbatch, float_bytes);
  return bytes;
}
