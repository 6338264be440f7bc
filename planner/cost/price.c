/* SPDX-License-Identifier: Apache-2.0 */
/* zp_price: seconds of every step of lowered segments. Rules by op class; a procedure costs the sum of its steps,
 * because the generated trainer runs them one after the other. */
#include <zplan/sparse.h>

#include <assert.h>
#include <math.h>
#include "own_price.h"
#include "software_cost.h"
#include <zplan/constants.h>
#include <zplan/cost.h>
#include <zplan/moves.h>
#include <zplan/product_tile.h>

typedef struct pricer {
  const zp_lowered *lowered;
  const zp_machine *machine;
  const zp_graph *graph; /* of the current segment */
  zp_group_link tensor_link;
  zp_exchange_links exchange;
  const zp_software *software; /* NULL: zplan's own trainer */
  bool own;                    /* this one, on GPUs */
  int64_t tensor_head;
} pricer;

bool zp_cost_is_comm(const zp_step *step) {
  if (step->kind == ZP_STEP_GATHER_SHARD) return true;
  return step->kind == ZP_STEP_NODE && zp_op_get_class(step->op) == ZP_CLASS_COMM;
}

static const zp_shape *in_shape(const pricer *p, const zp_node *node, int i) {
  return &p->graph->tensors.data[node->in.data[i]].shape;
}

/* y[m, n] = x[m, k] w; gradients are the same product with the roles turned: dx[m, k] = dy w', dw[k, n] = x' dy. Of a
 * weight that is stored turned (attr.trans): dw[n, k] = dy' x. */
static zp_product_kind kind_of(const zp_node *node, bool forward) {
  return node->attr.trans == forward ? ZP_PRODUCT_NT : ZP_PRODUCT_NN;
}

/* CPU ranks round operands of 8 bits, a tile of an operand for every tile of the result that it goes into. The casts of
 * GPUs are the profile's (software/). */
static double rounded_s(const pricer *p, double elements) {
  return elements * zp_cost_constant(ZP_COST_CPU_FLOAT8) / p->machine->flop_per_s;
}

/* kept: the second operand is there in 8 bits. */
static double rounding_s(const pricer *p, const zp_node *node, double m, double n, double k, bool kept) {
  if (!node->attr.float8 || !p->machine->node->device.is_cpu) return 0;
  return rounded_s(p, m * k * ceil(n / ZPK_PRODUCT_N) + (kept ? 0 : k * n * ceil(m / ZPK_PRODUCT_M)));
}

/* An operand is rounded once; other programs cast it with what the product of forward reads. */
static double keep_operand_s(const pricer *p, const zp_step *step) {
  if (!p->machine->node->device.is_cpu) return 0;
  return zp_cost_row_kernel(p->machine, step->bytes, 0, false) + rounded_s(p, (double)step->elements);
}

static double matmul_s(const pricer *p, const zp_step *step) {
  const zp_node *node = step->node;
  int eb = p->lowered->compute_bytes;
  double rows = (double)zp_shape_rows(in_shape(p, node, 0), p->lowered->microbatch);
  double a = (double)zp_shape_cols(in_shape(p, node, 0)), b;
  if (node->op == ZP_OP_MATMUL_WGRAD) { /* (dy, x) */
    b = (double)zp_shape_cols(in_shape(p, node, 1));
    bool turned = !node->attr.trans && p->machine->node->device.measured; /* only there it makes a difference */
    return zp_cost_product(p->machine, ZP_PRODUCT_TN, 1, turned ? b : a, turned ? a : b, rows, eb) +
           rounding_s(p, node, a, b, rows, step->reads_kept);
  }
  b = (double)zp_shape_elements(in_shape(p, node, 1), 1) / a; /* the other dimension of w */
  return zp_cost_product(p->machine, kind_of(node, node->op == ZP_OP_MATMUL), 1, rows, b, a, eb) +
         rounding_s(p, node, rows, b, a, false);
}

/* Products of all experts. Forward and dx: one product for the slots of each sample and expert; dw: one an expert,
 * over the slots of all samples. Empty slots are multiplied like full ones. */
static double grouped_s(const pricer *p, const zp_node *node) {
  const zp_shape *first = in_shape(p, node, 0);
  int eb = p->lowered->compute_bytes;
  double samples = (double)p->lowered->microbatch, experts = (double)first->dim[1], slots = (double)first->dim[2];
  if (node->in.len > 2) { /* sorted rows: one product an expert, of as many as an even load gives it */
    const zp_sorted_rows sorted = zp_graph_sorted_rows(p->graph, node, p->lowered->microbatch);
    experts = (double)sorted.experts;
    slots = (double)sorted.rows / experts;
    samples = 1;
  }
  double a = (double)first->dim[3], b;
  if (node->op == ZP_OP_BATCHED_MATMUL_WGRAD) {
    b = (double)zp_shape_cols(in_shape(p, node, 1));
    return zp_cost_product(p->machine, ZP_PRODUCT_TN, experts, a, b, samples * slots, eb) +
           experts * rounding_s(p, node, a, b, samples * slots, false);
  }
  b = (double)zp_shape_elements(in_shape(p, node, 1), 1) / (experts * a);
  return zp_cost_product(p->machine, kind_of(node, node->op == ZP_OP_BATCHED_MATMUL), samples * experts, slots, b, a,
                         eb) +
         samples * experts * rounding_s(p, node, slots, b, a, false);
}

static double attention_s(const pricer *p, const zp_step *step) {
  double sequence = (double)zp_attention_positions(p->graph, step->node), head = (double)step->node->attr.head_size;
  bool backward = step->op == ZP_OP_ATTENTION_GRAD;
  const zp_layout *layout = step->node->attr.layout;
  double flop = zp_cost_dropped_flop(step->flop, step->node->attr.rate, head, backward);
  if (layout)
    return zp_cost_sparse_attention(p->machine, flop * zp_layout_excess(layout, step->node->attr.heads), step->bytes,
                                    (double)layout->block, head, backward);
  return zp_cost_attention(p->machine, flop, step->bytes, zp_attention_reach(&step->node->attr, sequence), head,
                           backward);
}

/* Exchanges of heads, which are put together for every rank before or after: read and written once more. */
static double exchange_s(const pricer *p, const zp_step *step, double bytes) {
  if (!zp_step_is_of_context(step)) return zp_cost_all_to_all(&p->exchange.expert, bytes);
  return zp_cost_all_to_all(&p->exchange.context, bytes) + zp_cost_memory_bound(p->machine, 2 * bytes, 0);
}

/* What a rank passes to the one `places` after it, in either direction. Of a node go out those of so many members. */
static double passed_s(const zp_group_link *link, int places, double bytes) {
  double crossing = fmin(fmin(places, link->n - places), link->fullest);
  double local_s = link->local_latency_s + bytes / link->local_bytes_per_s;
  double network_s = link->nodes > 1 ? link->network_latency_s + crossing * bytes / link->network_bytes_per_s : 0;
  return fmax(local_s, network_s);
}

static double round_s(const pricer *p, const zp_step *step, int round) {
  if (round < 1 || round >= step->ring.ranks) return 0;
  int64_t elements = zp_ring_round_of(&step->ring, round).elements;
  return elements ? passed_s(&p->exchange.context, round, (double)elements * p->lowered->compute_bytes) : 0;
}

/* Attention computes with the keys of one rank, while those of the next one come. Backward the gradients of a round go
 * back in the next one, before the keys that come in it, and the last ones with nothing left to compute. Rank r - i is
 * met in round i (runtime/ring.c). */
static double ring_wait_s(const pricer *p, const zp_step *step) {
  int ranks = (int)step->ring.ranks;
  bool backward = step->op == ZP_OP_ATTENTION_GRAD;
  double waits = 0;
  for (int round = 0; round < ranks; round++) {
    double moved = round_s(p, step, round + 1) + (backward ? round_s(p, step, round - 1) : 0);
    waits += fmax(0, moved - step->alone_s * zp_ring_round_of(&step->ring, round).share);
  }
  return waits + (backward ? round_s(p, step, ranks - 1) : 0);
}

static double comm_s(const pricer *p, const zp_step *step) {
  if (zp_step_is_ring(step)) return step->alone_s + ring_wait_s(p, step);
  bool choices = step->op == ZP_OP_GATHER_CHOICES;
  const zp_group_link *link = choices ? &p->exchange.context : &p->tensor_link;
  double elements = (double)step->comm_elements, ranks = link->n;
  double bytes = zp_step_element_bytes(p->lowered, step);
  switch (zp_step_way(step)) {
  case ZP_WAY_ALL_REDUCE: return zp_cost_all_reduce(&p->tensor_link, elements * bytes);
  case ZP_WAY_ALL_GATHER: return zp_cost_all_gather(link, elements * ranks * bytes);
  case ZP_WAY_REDUCE_SCATTER: return zp_cost_reduce_scatter(&p->tensor_link, elements * bytes);
  case ZP_WAY_EXCHANGE: return exchange_s(p, step, elements * bytes);
  default: return 0; /* ENTER: nothing moves */
  }
}

/* A product that adds to a gradient of another type than its operands' reads it and writes it: what a library's product
 * of one type does not count. Measured rates are of whole products. */
static double summed_s(const pricer *p, const zp_step *step, double product_s) {
  const zp_lowered *l = p->lowered;
  bool sums = step->node->param_grad.len > 0 && l->grad_bytes != l->compute_bytes && !l->spec->cluster.software;
  if (!sums || p->machine->node->device.measured) return product_s;
  return fmax(product_s, zp_cost_memory_bound(p->machine, step->bytes, 0));
}

static double step_s(const pricer *p, const zp_step *step) {
  if (zp_cost_is_comm(step)) return comm_s(p, step);
  if (step->kind == ZP_STEP_KEEP_OPERAND) return keep_operand_s(p, step);
  if (step->kind != ZP_STEP_NODE) return zp_cost_row_kernel(p->machine, step->bytes, step->flop, false);
  switch (zp_op_get_class(step->op)) {
  case ZP_CLASS_VIEW: return 0;
  case ZP_CLASS_MATMUL: return summed_s(p, step, matmul_s(p, step));
  case ZP_CLASS_GROUPED: return summed_s(p, step, grouped_s(p, step->node));
  case ZP_CLASS_ATTENTION: return attention_s(p, step);
  default: return zp_cost_row_kernel(p->machine, step->bytes, step->flop, step->op == ZP_OP_FUSED_GRAD);
  }
}

/* Products take a library's seconds, whoever calls it. */
static double own_step_s(const pricer *p, const zp_step *step) {
  zp_op_class class = step->kind == ZP_STEP_NODE ? zp_op_get_class(step->op) : ZP_CLASS_ROW;
  bool product = class == ZP_CLASS_MATMUL || class == ZP_CLASS_GROUPED;
  zp_kernel_work work;
  return zp_own_step_s(p->lowered, p->machine, p->graph, p->tensor_head, product ? step_s(p, step) : 0, step, &work);
}

static bool is_product(const zp_step *step) {
  zp_op_class class = zp_op_get_class(step->op);
  return class == ZP_CLASS_MATMUL || class == ZP_CLASS_GROUPED || class == ZP_CLASS_ATTENTION;
}

static double with_transfers_s(const pricer *p, zp_step *step) {
  step->alone_s = step->cost_s;
  return comm_s(p, step);
}

static void price_procedure(const pricer *p, zp_procedure *procedure) {
  procedure->cost_s = procedure->product_flop = 0;
  for (int i = 0; i < procedure->steps.len; i++) {
    zp_step *step = &procedure->steps.data[i];
    step->cost_s = step->hands_on                     ? 0 /* once a chunk: moves/stream_ends.c */
                   : p->own && !zp_cost_is_comm(step) ? own_step_s(p, step)
                                                      : step_s(p, step);
    if (zp_step_is_ring(step) && !p->software) step->cost_s = with_transfers_s(p, step);
    procedure->cost_s += step->cost_s;
    if (is_product(step)) procedure->product_flop += step->flop;
  }
}

static double *seconds_of_exchange(zp_segment_program *segment, const zp_step *step) {
  return zp_step_is_of_context(step) ? &segment->context_s : &segment->expert_s;
}

/* What the steps of forward and backward take by kind. */
static void sum_kinds(zp_segment_program *segment) {
  const zp_procedure *both[] = {&segment->forward, &segment->backward};
  segment->comm_s = segment->expert_s = segment->context_s = segment->weights_s = 0;
  for (int k = 0; k < 2; k++)
    for (int i = 0; i < both[k]->steps.len; i++) {
      const zp_step *step = &both[k]->steps.data[i];
      if (zp_step_is_exchange(step))
        *seconds_of_exchange(segment, step) += step->cost_s - step->alone_s;
      else if (zp_cost_is_comm(step))
        segment->comm_s += step->cost_s;
      if (k == 1 && step->deferred) segment->weights_s += step->cost_s;
    }
}

/* A packed segment's other steps have their prices. The sum is in the order of the steps, as price_procedure and
 * sum_kinds add them up, so that it is the same to the last bit. */
static void price_exchanges(const pricer *p, zp_segment_program *segment) {
  zp_procedure *all[] = {&segment->forward, &segment->backward, &segment->split};
  segment->expert_s = segment->context_s = 0;
  for (int k = 0; k < 3; k++) {
    if (!all[k]->seconds) continue;
    all[k]->cost_s = 0;
    for (int i = 0, next = 0; i < all[k]->n_seconds; i++) {
      const zp_step *step = next < all[k]->steps.len && all[k]->place[next] == i ? &all[k]->steps.data[next++] : NULL;
      bool exchange = step && zp_step_is_exchange(step);
      double seconds = exchange ? comm_s(p, step) : all[k]->seconds[i];
      all[k]->cost_s += seconds;
      if (exchange && k < 2) *seconds_of_exchange(segment, step) += seconds - step->alone_s;
    }
  }
}

static void price_steps(pricer *p, zp_segment_program *segment) {
  p->graph = segment->graph;
  zp_moves_price_segment(p->lowered, p->machine, segment);
  price_procedure(p, &segment->forward);
  price_procedure(p, &segment->backward);
  price_procedure(p, &segment->split);
  price_procedure(p, &segment->loss);
}

/* Adds transfers to the prices that the attention of another program has. */
static void add_transfers(const pricer *p, zp_segment_program *segment) {
  zp_procedure *all[] = {&segment->forward, &segment->backward, &segment->split};
  for (int k = 0; k < 3; k++)
    for (int i = 0; i < all[k]->steps.len; i++) {
      zp_step *step = &all[k]->steps.data[i];
      if (!zp_step_is_ring(step)) continue;
      all[k]->cost_s -= step->cost_s;
      step->cost_s = with_transfers_s(p, step);
      all[k]->cost_s += step->cost_s;
    }
}

void zp_price_links(zp_lowered *lowered, const zp_machine *machine, const zp_group_link *tensor,
                    const zp_exchange_links *exchange) {
  assert(tensor && exchange);
  const zp_software *software = machine->cluster ? machine->cluster->software : NULL;
  assert(!(lowered->outline && software) && "other programs' prices are not sums of steps");
  pricer p = {
      .lowered = lowered, .machine = machine, .tensor_link = *tensor, .exchange = *exchange, .software = software};
  p.own = zp_cost_is_own_gpu(machine);
  p.tensor_head = p.own ? zp_tensor_core_head(lowered->spec) : 0;
  for (int i = 0; i < lowered->n_segments; i++)
    if (lowered->segments[i].packed)
      price_exchanges(&p, &lowered->segments[i]);
    else
      price_steps(&p, &lowered->segments[i]);
  if (software) zp_software_price(lowered, machine, software, &p.tensor_link, &p.exchange.expert);
  for (int i = 0; i < lowered->n_segments && software; i++) add_transfers(&p, &lowered->segments[i]);
  for (int i = 0; i < lowered->n_segments; i++)
    if (!lowered->segments[i].packed) sum_kinds(&lowered->segments[i]);
}

/* ---- outlines ---- */

static void pack_procedure(zp_arena *arena, zp_procedure *p) {
  int n = 0, exchanges = 0, all = p->steps.len;
  for (int i = 0; i < all; i++) {
    n += p->steps.data[i].comm_elements > 0;
    exchanges += zp_step_is_exchange(&p->steps.data[i]);
  }
  zp_step *steps = ZP_NEW_ARRAY(arena, zp_step, n);
  if (exchanges) {
    p->seconds = ZP_NEW_ARRAY(arena, double, all);
    p->place = ZP_NEW_ARRAY(arena, int, n);
    p->n_seconds = all;
  }
  int first = p->n_inputs, kept = 0;
  p->n_inputs = 0;
  for (int i = 0; i < all; i++) {
    const zp_step *step = &p->steps.data[i];
    if (exchanges) p->seconds[i] = step->cost_s;
    if (step->comm_elements <= 0) continue;
    if (exchanges) p->place[kept] = i;
    p->n_inputs += i < first;
    steps[kept] = *step;
    memset(&steps[kept++].sums, 0, sizeof step->sums);
  }
  p->n_recompute = 0;
  p->steps.data = steps;
  p->steps.len = p->steps.cap = n;
}

void zp_pack_outline(zp_arena *arena, zp_lowered *lowered) {
  assert(lowered->outline);
  for (int i = 0; i < lowered->n_segments; i++) {
    zp_segment_program *segment = &lowered->segments[i];
    if (segment->packed) continue;
    pack_procedure(arena, &segment->forward);
    pack_procedure(arena, &segment->backward);
    pack_procedure(arena, &segment->split);
    pack_procedure(arena, &segment->loss);
    segment->packed = true;
  }
}

zp_exchange_links zp_exchange_links_of(const zp_machine *machine, const zp_choice *c) {
  return (zp_exchange_links){
      zp_machine_expert_group(machine, c->tensor, c->pipeline, c->data, zp_expert_ranks(c), c->order),
      zp_machine_expert_group(machine, c->tensor, c->pipeline, c->data, zp_context_ranks(c), c->order)};
}

void zp_price_choice(zp_lowered *lowered, const zp_machine *machine, const zp_choice *c) {
  assert(zp_choice_has_degrees(c));
  zp_group_link tensor = zp_machine_tensor_group(machine, c->tensor, c->pipeline, c->data);
  zp_exchange_links exchange = zp_exchange_links_of(machine, c);
  zp_price_links(lowered, machine, &tensor, &exchange);
}

void zp_price(zp_lowered *lowered, const zp_machine *machine, int tensor, int pipeline, int data) {
  assert(tensor >= 1 && pipeline >= 1 && data >= 1);
  zp_price_choice(lowered, machine, &(zp_choice){.tensor = tensor, .pipeline = pipeline, .data = data});
}

/* Mixed stages share procedures with others, in which the prices stand. */
static void price_once(zp_lowered **stages, int s, zp_lowered *lowered, const zp_machine *machine,
                       const zp_choice *choice) {
  bool known = false;
  for (int earlier = 0; earlier < s && !known; earlier++)
    known = stages[earlier]->segments == lowered->segments ||
            (stages[earlier]->rest && stages[earlier]->rest->segments == lowered->segments);
  if (!known) zp_price_choice(lowered, machine, choice);
}

const zp_lowered *const *zp_price_stages(zp_lowered **stages, const zp_machine *machine, const zp_choice *choice) {
  assert(stages && choice->pipeline >= 1);
  for (int s = 0; s < choice->pipeline; s++) {
    zp_machine at = zp_machine_of_stage(machine, choice, s);
    price_once(stages, s, stages[s], &at, choice);
    if (stages[s]->rest) price_once(stages, s, stages[s]->rest, &at, choice);
  }
  return (const zp_lowered *const *)stages;
}
