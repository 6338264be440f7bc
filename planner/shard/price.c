/* Prices for the sharding search: one micro-batch, forward and backward, relative between states rather than exact;
 * the program's steps are priced anew once they exist. Backward counts twice the forward work. */
#include <math.h>
#include "cost.h"
#include "shard_internal.h"

enum { FORWARD_AND_BACKWARD = 3 };

/* Part of the op's work that one rank does: its share of the divided dimension, padding included. */
static double work_share(const zp_shard_problem *problem, const zp_node *node, const zp_pattern *pattern) {
  const zp_graph *graph = problem->graph;
  for (int i = 0; i < node->in.len; i++) {
    int dim = zp_need_dim(graph, node, i, pattern->in[i]);
    if (dim < 0 || pattern->in[i] == ZP_NEED_ROWS) continue; /* every rank writes whole rows of a split table */
    const zp_tensor *t = &graph->tensors.data[node->in.data[i]];
    return (double)zp_local_size(t->shape.dim[dim], t->parts[dim], problem->tensor) / (double)t->shape.dim[dim];
  }
  return 1;
}

double zp_shard_node_seconds(const zp_shard_problem *problem, const zp_node *node, const zp_pattern *pattern) {
  const zp_machine *machine = problem->machine;
  double share = work_share(problem, node, pattern);
  double flop = share * zp_node_flop(problem->graph, node, problem->microbatch);
  double bytes = share * zp_node_bytes(problem->graph, node, problem->microbatch, machine->compute_bytes);
  if (node->op == ZP_OP_SPLIT) return 0;
  if (node->op == ZP_OP_MATMUL)
    return FORWARD_AND_BACKWARD * zp_cost_roofline(machine, flop, machine->cluster->node.device.eff_matmul, bytes);
  if (node->op == ZP_OP_ATTENTION) return FORWARD_AND_BACKWARD * zp_cost_attention(machine, flop, bytes);
  return FORWARD_AND_BACKWARD * zp_cost_memory_bound(machine, bytes, flop);
}

double zp_shard_reduce_seconds(const zp_shard_problem *problem, int tensor) {
  const zp_machine *machine = problem->machine;
  int t = problem->tensor;
  zp_group_link link = zp_machine_tensor_group(machine, t, 1, machine->devices >= t ? machine->devices / t : 1);
  double elements = (double)zp_shape_elements(&problem->graph->tensors.data[tensor].shape, problem->microbatch);
  return zp_cost_all_reduce(&link, elements * machine->compute_bytes);
}
