/* SPDX-License-Identifier: Apache-2.0 */
/* Work and traffic of single nodes: what the cost model multiplies with machine rates. The formulas of operations count
 * what the kernels do in the graph's own (local) shapes; a multiply-add is 2 FLOP. Left out: index arithmetic, random
 * numbers. */
#include <assert.h>
#include "ops.h"

const zp_tensor *zp_cost_tensor(const zp_graph *graph, int id) { return &graph->tensors.data[id]; }

double zp_cost_elements(const zp_graph *graph, int id, int64_t microbatch) {
  return (double)zp_shape_elements(&zp_cost_tensor(graph, id)->shape, microbatch);
}

double zp_flop_of_rows(const zp_graph *graph, const zp_node *node, int64_t microbatch) {
  return zp_op_row_flop(node->op) * zp_cost_elements(graph, node->in.data[0], microbatch);
}

double zp_flop_of_operand(const zp_graph *graph, const zp_node *node, int64_t microbatch) {
  return zp_cost_elements(graph, node->in.data[0], microbatch);
}

double zp_node_flop(const zp_graph *graph, const zp_node *node, int64_t microbatch) {
  assert(microbatch >= 1);
  const zp_op_row *row = zp_op_get_row(node->op);
  return row->flop ? row->flop(graph, node, microbatch) : 0;
}

double zp_tensor_bytes(const zp_graph *graph, int id, int64_t microbatch, int float_bytes) {
  double n = zp_cost_elements(graph, id, microbatch);
  switch (zp_cost_tensor(graph, id)->element) {
  case ZP_ELEM_FLOAT: return n * float_bytes;
  case ZP_ELEM_I32: return n * 4;
  case ZP_ELEM_STAT: return n * (float_bytes == 8 ? 8 : 4);
  }
  return 0;
}

double zp_bytes_none(const zp_graph *graph, const zp_node *node, int64_t microbatch, zp_cost_bytes bytes) {
  (void)graph, (void)node, (void)microbatch, (void)bytes;
  return 0;
}

double zp_bytes_of_result_twice(const zp_graph *graph, const zp_node *node, int64_t microbatch, zp_cost_bytes bytes) {
  return 2 * zp_tensor_bytes(graph, node->out.data[0], microbatch, bytes.of_float);
}

double zp_bytes_of_tensors(const zp_graph *graph, const zp_node *node, int64_t microbatch, zp_cost_bytes bytes) {
  double sum = 0;
  for (int i = 0; i < node->in.len; i++) sum += zp_tensor_bytes(graph, node->in.data[i], microbatch, bytes.of_float);
  for (int i = 0; i < node->out.len; i++) sum += zp_tensor_bytes(graph, node->out.data[i], microbatch, bytes.of_float);
  return sum;
}

/* Accumulated gradients are read and written. */
static double bytes_of_node(const zp_graph *graph, const zp_node *node, int64_t microbatch, zp_cost_bytes bytes) {
  double sum = 0;
  for (int i = 0; i < node->param_grad.len; i++)
    sum += 2 * zp_tensor_bytes(graph, graph->params.data[node->param_grad.data[i]].tensor, microbatch, bytes.of_sum);
  return sum + zp_bytes_of_tensors(graph, node, microbatch, bytes);
}

double zp_node_bytes(const zp_graph *graph, const zp_node *node, int64_t microbatch, int float_bytes, int sum_bytes) {
  assert(microbatch >= 1 && float_bytes >= 2 && float_bytes <= 8 && sum_bytes >= 2 && sum_bytes <= 8);
  const zp_op_row *row = zp_op_get_row(node->op);
  zp_cost_bytes bytes = {float_bytes, sum_bytes};
  return row->bytes ? row->bytes(graph, node, microbatch, bytes) : bytes_of_node(graph, node, microbatch, bytes);
}
