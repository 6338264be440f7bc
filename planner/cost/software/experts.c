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
 * In a node a call takes as long as its kernel and a constant; over nodes calls have a rate. Left out: that nodes out
 * of which more tokens come take longer.
 *
 * Alongside another micro-batch (Megatron-Core, overlap_moe_expert_parallel_comm) an exchange keeps some
 * multiprocessors and takes no other time.
 *
 * What the host issues for a layer of experts besides the kernels that the planner lowers, counted in Megatron-Core's
 * source (core/transformer/moe: router.py, token_dispatcher.py, experts.py @d98e8a64; opened). Forward with copies: the
 * gate's casts, loss and counts 6, sizes of what comes and goes 8, four of them copied to the host 4, the gather of
 * counts 1, maps of rows 3 and their products 4, scores that travel 2, padding 2, copies of heads and layouts 8.
 * Backward the same without sizes and their copies, and with what autograd adds up. A dispatcher over nodes finds sizes
 * and maps in its kernels. Graphs of all but the experts leave 4. Calls of products, one an expert, are made in C++.
 *
 * Biases of experts (_apply_bias; the same lines in NVIDIA-NeMo/Automodel components/moe/layers.py of de7dff940;
 * opened): every expert's rows plus its bias times the scores, which are fp32, then one tensor of all, then 16 bits
 * again. Bytes an element of the last product's result: 4 for the product with scores, 10 for the sum, 8 to join, 6 to
 * cast; backward 6, 6, 4 to join what was split, and 12 each for the gradients of biases and of scores. The products
 * with scores, or of a gradient with scores and with biases, read one row or column for all. Two kernels an expert
 * forward, six backward. Where those of the first product are added so, too, without scores: 4 for the sum, of one row
 * for all, and 4 to join, backward 4 to join and 2 to add up, of gate and other half; one kernel an expert forward, two
 * backward.
 *
 * Products: one an expert, each of which waits for its weights: computing and moving add up. Of 108 products of 20 to
 * 256 experts with 128 to 9,832 rows on B200 (MooreThreads/SimuMax configs/system/b200_bf16_ceperm.json @4dcaae51;
 * opened) the sum, at 48 % of the peak in tiles of 128 rows and 67 % of the bandwidth, is 15 % slow on average and the
 * larger of both 22 % fast; mean errors 19 and 23 %. One kernel for all moves the next one's weights meanwhile. */
#include <assert.h>
#include <math.h>
#include <zplan/constants.h>
#include <zplan/cost.h>
#include "software_cost.h"

enum { SORT_PASSES = 2 };

/* The gate of the graph's experts; NULL: it has none. */
const zp_node *zp_software_gate(const zp_graph *graph) {
  for (int i = 0; i < graph->nodes.len; i++)
    if (graph->nodes.data[i].op == ZP_OP_TOP_K_GATE) return &graph->nodes.data[i];
  return NULL;
}

/* How many of m equal groups of the experts have one of a token's. */
static double groups_of_token(const zp_node *gate, bool in_a_row, double m) {
  double all = (double)gate->attr.experts, k = (double)gate->attr.top_k, of_group = all / m, none = 1;
  if (m <= 1) return 1;
  double kept = gate->attr.groups > 0 ? (double)gate->attr.top_groups / (double)gate->attr.groups : 1;
  if (kept < 1 && !in_a_row) { /* of the experts in the groups that the gate keeps, of which a node may have several */
    if (m <= (double)gate->attr.groups) return fmin(m, (double)gate->attr.top_groups);
    all *= kept, m *= kept;
  }
  if (in_a_row) { /* they begin at any multiple of k */
    double touched = 0, places = floor(all / k);
    for (double i = 0; i < places; i++) touched += floor((i * k + k - 1) / of_group) - floor(i * k / of_group) + 1;
    return places > 0 ? touched / places : m;
  }
  for (double i = 0; i < k; i++) none *= fmax(0, all - of_group - i) / (all - i);
  return m * (1 - none);
}

/* A dispatcher over nodes needs newer devices, and gates that drop no token (Megatron-Core, token_dispatcher.py). */
static bool sends_copies(const zp_machine *machine, const zp_software *software, const zp_node *gate) {
  bool drops = gate->attr.capacity * (double)gate->attr.top_k < (double)gate->attr.experts;
  return software->dispatcher == ZP_DISPATCH_COPIES || drops || !zp_software_has_nodes(machine->cluster);
}

static double sorts_s(const zp_exchange *x) {
  double bytes = (double)x->step->comm_elements * x->lowered->compute_bytes;
  return zp_cost_memory_bound(x->machine, SORT_PASSES * bytes / zp_cost_constant(ZP_COST_SORTED_ROWS), 0);
}

double zp_software_exchange_s(const zp_exchange *x, const zp_software *software) {
  const zp_node *gate = zp_software_gate(x->graph);
  assert(gate);
  const zp_group_link *link = x->link;
  double copies = (double)x->step->comm_elements, tokens = copies / (double)gate->attr.top_k;
  double ranks = (double)link->n * x->tensor, nodes = link->nodes, bytes = x->lowered->compute_bytes;
  double line = x->machine->node->link.bytes_per_s;
  if (ranks <= 1) return 0;
  if (sends_copies(x->machine, software, gate)) {
    zp_group_link pairs = *link;
    pairs.local_bytes_per_s = fmin(link->local_bytes_per_s, line * zp_cost_constant(ZP_COST_PAIRS_LINK));
    return zp_cost_all_to_all(&pairs, copies * bytes) + sorts_s(x);
  }
  bool kernels = software->graphs == ZP_GRAPHS_WHOLE;
  double near = tokens * groups_of_token(gate, software->experts_in_a_row, ranks) * (1 - nodes / ranks);
  double kernel_s = near * bytes / (line * zp_cost_constant(ZP_COST_DISPATCH_LINK_KERNEL));
  double call_s = kernels ? 0 : zp_cost_constant(ZP_COST_DISPATCH_CALL_S);
  if (nodes <= 1) return link->local_latency_s + call_s + kernel_s;
  double local_s = kernels ? kernel_s : near * bytes / (line * zp_cost_constant(ZP_COST_DISPATCH_LINK));
  double card = link->network_bytes_per_s / zp_cost_constant(ZP_COST_NETWORK_PAYLOAD) / link->local;
  double across = card * zp_cost_constant(kernels ? ZP_COST_DISPATCH_NETWORK_KERNEL : ZP_COST_DISPATCH_NETWORK);
  double far = tokens * groups_of_token(gate, software->experts_in_a_row, nodes) * (1 - 1 / nodes);
  return link->network_latency_s + fmax(local_s, far * bytes / across);
}

double zp_software_exchange_shown_s(const zp_exchange *x, const zp_software *software) {
  double seconds = zp_software_exchange_s(x, software);
  if (!software->hides_exchange) return seconds;
  double units = zp_cost_constant(ZP_COST_DISPATCH_UNITS) / zp_cost_units(x->machine);
  bool copies = sends_copies(x->machine, software, zp_software_gate(x->graph));
  if (!copies) return seconds * fmin(1, units);
  double sorts = sorts_s(x); /* which nothing hides */
  return (seconds - sorts) * zp_cost_taken(x->machine, x->link) + sorts;
}

/* What of an exchange another micro-batch hides. */
static double hidden_of(const zp_procedure *procedure, zp_exchange *x, const zp_software *software) {
  double seconds = 0;
  for (int i = 0; i < procedure->steps.len; i++) {
    x->step = &procedure->steps.data[i];
    bool exchange = x->step->op == ZP_OP_SPREAD_SLOTS || x->step->op == ZP_OP_RETURN_SLOTS;
    if (x->step->kind == ZP_STEP_NODE && exchange)
      seconds += zp_software_exchange_s(x, software) - zp_software_exchange_shown_s(x, software);
  }
  return seconds;
}

/* Micro-batches whose forward precedes the first backward on stage 0, and as many whose backward follows the last
 * forward: nothing is alongside those (Megatron-LM, core/pipeline_parallel/schedules.py; from memory). */
static double microbatches_alone(const zp_choice *c, double microbatches) {
  double p = c->pipeline, v = zp_chunks(c);
  return fmin(microbatches, v > 1 ? (2 * (p - 1) + (v - 1) * p + 1) / v : p);
}

double zp_software_alone_s(const zp_program *program, const zp_machine *machine, const zp_software *software) {
  const zp_choice *c = &program->choice;
  if (!software->own_experts || !software->hides_exchange || machine->node->device.is_cpu) return 0;
  zp_group_link link = zp_exchange_links_of(machine, c).expert;
  const zp_lowered *l = zp_program_lowered(program, 0);
  double seconds = 0;
  for (int r = 0; r < program->stages[0].runs.len; r++) {
    const zp_run *run = &program->stages[0].runs.data[r];
    const zp_segment_program *segment = &l->segments[run->segment];
    zp_exchange x = {l, machine, segment->graph, NULL, &link, c->tensor};
    seconds +=
        (double)run->count * (hidden_of(&segment->forward, &x, software) + hidden_of(&segment->backward, &x, software));
  }
  return seconds * microbatches_alone(c, (double)program->microbatches);
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

/* ---- what the host issues, and biases ---- */

enum { BIAS_BYTES = 10 + 8 + 6, BIAS_GRAD_BYTES = 6 + 6 + 4 + 4 + 4, BIAS_KERNELS = 2, BIAS_GRAD_KERNELS = 6 };
enum { BIAS_STRIDED = 4, BIAS_GRAD_STRIDED = 8 + 8 };
enum { GATE_BIAS_BYTES = 4, GATE_BIAS_GRAD_BYTES = 4 + 2, GATE_BIAS_KERNELS = 1, GATE_BIAS_GRAD_KERNELS = 2 };
enum { GATE_BIAS_STRIDED = 4 };
enum { COPIES_KERNELS = 38, COPIES_GRAD_KERNELS = 40, NODES_KERNELS = 28, NODES_GRAD_KERNELS = 30, PARTS_KERNELS = 4 };
enum { GATES_KERNELS = PARTS_KERNELS + 8 }; /* and copies of heads and layouts */
enum { PRODUCTS = 2, GRAD_PRODUCTS = 4 };
/* Host time of one product from C++; as a copy (data_parallel.c): an estimate. */
#define PRODUCT_CALL_S 10e-6

/* Products with gate and other half in one. */
static const zp_node *last_product(const zp_graph *graph) {
  for (int i = graph->nodes.len - 1; i >= 0; i--)
    if (graph->nodes.data[i].op == ZP_OP_BATCHED_MATMUL) return &graph->nodes.data[i];
  return NULL;
}

zp_layer_cost zp_software_layer_of_experts(const zp_lowered *lowered, const zp_machine *machine, const zp_graph *graph,
                                           const zp_software *software, bool forward) {
  const zp_node *product = last_product(graph);
  zp_layer_cost cost = {0};
  if (!product) return cost;
  const zp_node *gate = zp_software_gate(graph);
  bool copies = !gate || sends_copies(machine, software, gate), eager = software->graphs == ZP_GRAPHS_NONE;
  double kernels =
      forward ? (copies ? COPIES_KERNELS : NODES_KERNELS) : (copies ? COPIES_GRAD_KERNELS : NODES_GRAD_KERNELS);
  cost.device_s = kernels * machine->node->device.launch_s; /* of a few bytes each, from graphs too */
  if (software->graphs == ZP_GRAPHS_WHOLE) return cost;
  const zp_shape *out = &graph->tensors.data[product->out.data[0]].shape;
  double experts = (double)out->dim[1], narrow = software->product_rate > 0 ? 1 + software->cast_kernels : 1;
  cost.kernels = eager ? kernels : software->graphs == ZP_GRAPHS_GATES ? GATES_KERNELS : PARTS_KERNELS;
  if (!software->one_kernel) cost.host_s = experts * narrow * (forward ? PRODUCTS : GRAD_PRODUCTS) * PRODUCT_CALL_S;
  if (!software->expert_biases) return cost;
  double elements = (double)zp_shape_elements(out, lowered->microbatch);
  double strided = 1 / zp_cost_constant(ZP_COST_STRIDED_ROWS);
  double bytes = forward ? BIAS_BYTES + BIAS_STRIDED * strided : BIAS_GRAD_BYTES + BIAS_GRAD_STRIDED * strided;
  cost.device_s += zp_cost_memory_bound(machine, elements * bytes, 0);
  cost.kernels += experts * (forward ? BIAS_KERNELS : BIAS_GRAD_KERNELS);
  if (software->expert_biases < 2) return cost;
  double gates = 2 * (double)zp_shape_elements(&graph->tensors.data[product->in.data[0]].shape, lowered->microbatch);
  bytes = forward ? GATE_BIAS_BYTES + GATE_BIAS_STRIDED * strided : GATE_BIAS_GRAD_BYTES;
  cost.device_s += zp_cost_memory_bound(machine, gates * bytes, 0);
  cost.kernels += experts * (forward ? GATE_BIAS_KERNELS : GATE_BIAS_GRAD_KERNELS);
  return cost;
}

/* ---- latent attention ---- */

/* Queries turn in place, keys and values are made of one product's result by one kernel, and values have their own
 * width (Megatron-Core core/fusions/fused_mla_yarn_rope_apply.py; opened): what the graph's slices, joins and padding
 * move is none of theirs. */
static double columns_of(const zp_graph *graph, int tensor) {
  return (double)zp_shape_cols(&graph->tensors.data[tensor].shape);
}

/* Values that are padded to the width of keys, of which some columns turn. */
zp_latent zp_software_latent_of(const zp_graph *graph) {
  zp_latent l = {0};
  for (int i = 0; i < graph->nodes.len; i++) {
    const zp_node *node = &graph->nodes.data[i];
    if (node->op == ZP_OP_ATTENTION) l.heads = (double)node->attr.heads, l.head = (double)node->attr.head_size;
    if (node->op == ZP_OP_JOIN_COLUMNS) l.rotary = columns_of(graph, node->in.data[1]);
    if (node->op != ZP_OP_COLUMNS || columns_of(graph, node->in.data[0]) >= columns_of(graph, node->out.data[0]))
      continue;
    l.value = columns_of(graph, node->in.data[0]);
    l.is = true;
  }
  if (l.heads > 0) l.value /= l.heads, l.rotary /= l.heads;
  l.is &= l.heads > 0 && l.value > 0 && l.value < l.head && l.rotary > 0;
  return l;
}

static bool is_wide(const zp_latent *l, double columns) {
  double all = l->head * l->heads, made = (l->head - l->rotary + l->value) * l->heads;
  return columns == all || columns == made || columns == l->value * l->heads || columns == l->rotary * l->heads;
}

void zp_software_latent(const zp_lowered *lowered, const zp_machine *machine, const zp_graph *graph, const zp_latent *l,
                        zp_step *step) {
  if (!l->is || step->kind != ZP_STEP_NODE) return;
  zp_op_class class = zp_op_get_class(step->op);
  const zp_shape *q = &graph->tensors.data[step->node->in.data[0]].shape;
  if (class == ZP_CLASS_ATTENTION) {
    double products = step->op == ZP_OP_ATTENTION ? 2 : 5, narrow = step->op == ZP_OP_ATTENTION ? 1 : 2;
    double rows = (double)zp_shape_rows(q, lowered->microbatch);
    double columns = l->heads * (2 * l->rotary + 2 * (l->head - l->rotary + l->value) + l->rotary);
    step->cost_s *= 1 - narrow / products * (1 - l->value / l->head);
    step->cost_s /= zp_cost_constant(step->op == ZP_OP_ATTENTION ? ZP_COST_LATENT_FORWARD : ZP_COST_LATENT_BACKWARD);
    step->cost_s += zp_cost_memory_bound(machine, rows * columns * lowered->compute_bytes, 0);
    return;
  }
  if (class == ZP_CLASS_MATMUL || class == ZP_CLASS_GROUPED || class == ZP_CLASS_COMM || q->rank != 3) return;
  bool wide = is_wide(l, (double)zp_shape_cols(q));
  for (int o = 0; o < step->node->out.len; o++) wide |= is_wide(l, columns_of(graph, step->node->out.data[o]));
  if (wide) step->cost_s = 0;
}
