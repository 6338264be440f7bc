/* SPDX-License-Identifier: Apache-2.0 */
/* Prices for the sharding search: one micro-batch, forward and backward, relative between states rather than exact;
 * the program's steps are priced anew once they exist. Backward counts twice the forward work. */
#include <math.h>
#include <zplan/sparse.h>
#include <zplan/rates.h>
#include "shard_internal.h"

enum { FORWARD_AND_BACKWARD = 3 };

/* Part of the op's work that one rank does: its share of the divided dimension, padding included. */
static double work_share(const zp_shard_problem *problem, const zp_node *node, const zp_pattern *pattern) {
  const zp_graph *graph = problem->graph;
  if (pattern->out == ZP_FORM_SEQ) return 1.0 / problem->tensor;
  if (pattern->out == ZP_FORM_EXPERTS) {
    const zp_tensor *t = &graph->tensors.data[node->out.data[0]];
    return (double)zp_local_size(t->shape.dim[1], t->parts[1], problem->tensor) / (double)t->shape.dim[1];
  }
  for (int i = 0; i < node->in.len; i++) {
    int dim = zp_need_dim(graph, node, i, pattern->in[i]);
    if (dim < 0 || pattern->in[i] == ZP_NEED_ROWS) continue; /* every rank writes whole rows of a split table */
    const zp_tensor *t = &graph->tensors.data[node->in.data[i]];
    return (double)zp_local_size(t->shape.dim[dim], t->parts[dim], problem->tensor) / (double)t->shape.dim[dim];
  }
  return 1;
}

/* FLOP that kernels of sparse attention do where ranks have a share of the heads: of the rank that has most to do. */
static double sparse_flop(const zp_node *node, double share, double flop) {
  const zp_layout *layout = node->attr.layout;
  int64_t heads = (int64_t)(share * (double)node->attr.heads + 0.5);
  double counted = zp_layout_longest(layout, node->attr.heads).seen;
  return flop * zp_layout_longest(layout, heads > 0 ? heads : 1).computed / counted;
}

double zp_shard_node_seconds(const zp_shard_problem *problem, const zp_node *node, const zp_pattern *pattern) {
  const zp_machine *machine = problem->machine;
  double share = work_share(problem, node, pattern);
  double flop = share * zp_node_flop(problem->graph, node, problem->microbatch);
  int compute = machine->compute_bytes; /* forward has no sums */
  double bytes = share * zp_node_bytes(problem->graph, node, problem->microbatch, compute, compute);
  if (node->op == ZP_OP_SPLIT) return 0;
  if (node->op == ZP_OP_MATMUL || node->op == ZP_OP_BATCHED_MATMUL)
    return FORWARD_AND_BACKWARD * zp_cost_roofline(machine, flop, machine->node->device.eff_matmul, bytes);
  if (node->op == ZP_OP_ATTENTION) {
    double sequence = (double)problem->graph->tensors.data[node->in.data[1]].shape.dim[1];
    double head = (double)node->attr.head_size;
    const zp_layout *layout = node->attr.layout;
    flop = zp_cost_dropped_flop(flop, node->attr.rate, head, false);
    return FORWARD_AND_BACKWARD *
           (layout ? zp_cost_sparse_attention(machine, sparse_flop(node, share, flop), bytes, (double)layout->block,
                                              head, false)
                   : zp_cost_attention(machine, flop, bytes, zp_attention_reach(&node->attr, sequence), head, false));
  }
  return FORWARD_AND_BACKWARD * zp_cost_memory_bound(machine, bytes, flop);
}

static zp_group_link link_of(const zp_shard_problem *problem) {
  int t = problem->tensor, devices = problem->machine->devices;
  return zp_machine_tensor_group(problem->machine, t, 1, devices >= t ? devices / t : 1);
}

static double bytes_of(const zp_shard_problem *problem, int tensor) {
  const zp_shape *shape = &problem->graph->tensors.data[tensor].shape;
  return (double)zp_shape_elements(shape, problem->microbatch) * problem->machine->compute_bytes;
}

double zp_shard_reduce_seconds(const zp_shard_problem *problem, int tensor) {
  zp_group_link link = link_of(problem);
  return zp_cost_all_reduce(&link, bytes_of(problem, tensor));
}

double zp_shard_pass_seconds(const zp_shard_problem *problem, int tensor) {
  zp_group_link link = link_of(problem);
  return zp_cost_reduce_scatter(&link, bytes_of(problem, tensor));
}
