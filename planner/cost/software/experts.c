/* SPDX-License-Identifier: Apache-2.0 */
/* Experts as other programs train them: how tokens come to them, and their products.
 *
 * Exchange. A dispatcher over nodes (DeepEP, HybridEP) sends a token once to each node that has one of its experts, to
 * the device at its own place there, which hands it on to the devices of the node that want it: once to each, however
 * many of its experts they have. Of k experts out of E that are drawn at random, as gates of benchmarks draw them, m
 * equal groups of experts hold m (1 - C(E - E/m, k) / C(E, k)) of a token's on average; of k consecutive ones, as
 * other gates choose, as many as their places touch. Both levels work at the same time. An all-to-all sends a copy for
 * every expert, and sorts before and after: two passes more over all copies, which are the only ones that a dispatcher
 * over nodes makes when it hands on.
 * Left out: that nodes out of which more tokens come take longer, and how an exchange begins and ends.
 *
 * Alongside another micro-batch (Megatron-Core, overlap_moe_expert_parallel_comm) an exchange keeps some
 * multiprocessors and takes no other time.
 *
 * Products: one an expert, each of which waits for its weights: computing and moving add up (B200, 108 products of 20
 * to 256 experts with 128 to 9,832 rows, MooreThreads/SimuMax configs/system/b200_bf16_ceperm.json @4dcaae51: within
 * 25 % of either, 4 % fast on average). One kernel for all of them moves the next one's weights meanwhile. */
#include <assert.h>
#include <math.h>
#include <zplan/constants.h>
#include <zplan/cost.h>
#include "software_cost.h"

enum { SORT_PASSES = 2 };

/* The gate of the graph's experts; NULL: it has none. */
static const zp_node *gate_of(const zp_graph *graph) {
  for (int i = 0; i < graph->nodes.len; i++)
    if (graph->nodes.data[i].op == ZP_OP_TOP_K_GATE) return &graph->nodes.data[i];
  return NULL;
}

/* Of m equal groups of the experts, how many have one of a token's. */
static double groups_of_token(const zp_node *gate, bool in_a_row, double m) {
  double all = (double)gate->attr.experts, k = (double)gate->attr.top_k, of_group = all / m, none = 1;
  if (m <= 1) return 1;
  if (in_a_row) { /* they begin at any multiple of k */
    double touched = 0, places = floor(all / k);
    for (double i = 0; i < places; i++) touched += floor((i * k + k - 1) / of_group) - floor(i * k / of_group) + 1;
    return places > 0 ? touched / places : m;
  }
  for (double i = 0; i < k; i++) none *= fmax(0, all - of_group - i) / (all - i);
  return m * (1 - none);
}

static double nodes_of_token(const zp_software *software, const zp_node *gate, double nodes) {
  double of_token = groups_of_token(gate, software->experts_in_a_row, nodes);
  if (gate->attr.groups > 0 && gate->attr.groups % (int64_t)nodes == 0 && !software->experts_in_a_row)
    of_token = fmin(of_token, (double)gate->attr.top_groups);
  return of_token;
}

double zp_software_exchange_s(const zp_exchange *x, const zp_software *software) {
  const zp_node *gate = gate_of(x->graph);
  assert(gate);
  const zp_group_link *link = x->link;
  double copies = (double)x->step->comm_elements, tokens = copies / (double)gate->attr.top_k;
  double ranks = (double)link->n * x->tensor, nodes = link->nodes, bytes = x->lowered->compute_bytes;
  double line = x->machine->node->link.bytes_per_s;
  if (ranks <= 1) return 0;
  if (software->dispatcher == ZP_DISPATCH_COPIES) {
    zp_group_link pairs = *link;
    pairs.local_bytes_per_s = fmin(link->local_bytes_per_s, line * zp_cost_constant(ZP_COST_PAIRS_LINK));
    return zp_cost_all_to_all(&pairs, copies * bytes) +
           zp_cost_memory_bound(x->machine, SORT_PASSES * copies * bytes, 0);
  }
  bool kernels = software->graphs == ZP_GRAPHS_WHOLE;
  double inside = line * zp_cost_constant(kernels ? ZP_COST_DISPATCH_LINK_KERNEL : ZP_COST_DISPATCH_LINK);
  double near = tokens * groups_of_token(gate, software->experts_in_a_row, ranks) * (1 - nodes / ranks);
  double local_s = near * bytes / inside;
  if (nodes <= 1) return link->local_latency_s + local_s;
  double card = link->network_bytes_per_s / zp_cost_constant(ZP_COST_NETWORK_PAYLOAD) / link->local;
  double across = card * zp_cost_constant(kernels ? ZP_COST_DISPATCH_NETWORK_KERNEL : ZP_COST_DISPATCH_NETWORK);
  double far = tokens * nodes_of_token(software, gate, nodes) * (1 - 1 / nodes);
  return link->network_latency_s + fmax(local_s, far * bytes / across);
}

double zp_software_exchange_shown_s(const zp_exchange *x, const zp_software *software) {
  double seconds = zp_software_exchange_s(x, software);
  if (!software->hides_exchange) return seconds;
  double units = zp_cost_constant(ZP_COST_DISPATCH_UNITS) / zp_cost_units(x->machine);
  return seconds * (software->dispatcher == ZP_DISPATCH_COPIES ? zp_cost_taken(x->machine, x->link) : fmin(1, units));
}

/* ---- products ---- */

/* Was it read by a product of experts before step i of the procedure? */
static bool read_before(const zp_procedure *procedure, int i) {
  for (int k = 0; k < i; k++) {
    const zp_step *step = &procedure->steps.data[k];
    bool product = step->kind == ZP_STEP_NODE && zp_op_get_class(step->op) == ZP_CLASS_GROUPED;
    if (product && step->node->in.data[0] == procedure->steps.data[i].node->in.data[0]) return true;
  }
  return false;
}

/* What an exchange brought is cast before its product; what products of one kernel hand on, in it. */
static bool is_brought(const zp_graph *graph, int tensor) {
  int producer = graph->tensors.data[tensor].producer;
  zp_op_class class = producer >= 0 ? zp_op_get_class(graph->nodes.data[producer].op) : ZP_CLASS_ROW;
  return class == ZP_CLASS_COMM || class == ZP_CLASS_ROUTING;
}

double zp_software_grouped_s(const zp_lowered *lowered, const zp_machine *machine, const zp_graph *graph,
                             const zp_software *software, const zp_procedure *procedure, int i, bool forward) {
  const zp_node *node = procedure->steps.data[i].node;
  const zp_shape *in = &graph->tensors.data[node->in.data[0]].shape;
  const zp_shape *other = &graph->tensors.data[node->in.data[1]].shape;
  bool weights = node->op == ZP_OP_BATCHED_MATMUL_WGRAD, narrow = software->product_rate > 0;
  double experts = (double)in->dim[1], rows = (double)lowered->microbatch * (double)in->dim[2];
  double a = (double)in->dim[3],
         b = weights ? (double)zp_shape_cols(other) : (double)zp_shape_elements(other, 1) / (experts * a);
  double eb = lowered->compute_bytes, operand = narrow ? eb * software->gathered : eb;
  zp_product_kind kind = weights ? ZP_PRODUCT_TN : node->attr.trans == forward ? ZP_PRODUCT_NT : ZP_PRODUCT_NN;
  double compute = weights ? zp_cost_product_compute(machine, kind, experts, a, b, rows, lowered->compute_bytes)
                           : zp_cost_product_compute(machine, kind, experts, rows, b, a, lowered->compute_bytes);
  if (narrow) compute /= software->product_rate;
  bool again = read_before(procedure, i);
  double bytes = again ? 0 : rows * a * operand;
  if (weights)
    bytes += rows * b * operand + 2 * a * b * lowered->grad_bytes; /* added to what is there */
  else
    bytes += a * b * operand + rows * b * eb;
  double moved = zp_cost_memory_bound(machine, experts * bytes, 0), launch = machine->node->device.launch_s;
  bool casts = narrow && !again && !weights && (!software->one_kernel || is_brought(graph, node->in.data[0]));
  double cast = casts ? zp_cost_memory_bound(machine, experts * rows * a * software->cast_bytes, 0) : 0;
  return cast + (software->one_kernel ? launch + fmax(compute, moved - launch) : compute + moved);
}
