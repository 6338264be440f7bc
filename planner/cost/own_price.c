/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of zplan's own GPU trainer: which class of kernels a step starts, how many, and what they compute and move. */
#include "own_price.h"

#include <assert.h>
#include <math.h>
#include <zplan/sparse.h>

typedef struct own {
  const zp_lowered *lowered;
  const zp_machine *machine;
  const zp_graph *graph;
  int64_t tensor_head;
  zp_kernel_work *work; /* out */
} own;

static const zp_shape *in_shape(const own *o, const zp_step *step, int i) {
  return &o->graph->tensors.data[step->node->in.data[i]].shape;
}

/* Elements of a tensor that has rows; of a bias, which has none, 0. */
static int64_t rows_elements(const own *o, int tensor) {
  const zp_shape *shape = &o->graph->tensors.data[tensor].shape;
  return shape->rank > 1 ? zp_shape_elements(shape, o->lowered->microbatch) : 0;
}

/* What an epilogue reads and writes besides the product's own matrices: gelu's operand, a residual, and once more the
 * gradient that is summed to a bias's. */
static double alongside_bytes(const own *o, const zp_step *step) {
  const zp_node *node = step->node;
  double elements = 0;
  if (!node->fused) return 0;
  if (node->op == ZP_OP_MATMUL_WGRAD) return (double)rows_elements(o, node->in.data[0]) * o->lowered->compute_bytes;
  for (int i = 2; i < node->in.len; i++) elements += (double)rows_elements(o, node->in.data[i]);
  for (int i = 1; i < node->out.len; i++) elements += (double)rows_elements(o, node->out.data[i]);
  return elements * o->lowered->compute_bytes;
}

/* Experts' products are one call a sample. */
static double product_s(const own *o, double library_s, const zp_step *step) {
  bool grouped = zp_op_get_class(step->op) == ZP_CLASS_GROUPED;
  int launches = grouped ? (int)o->lowered->microbatch : 1;
  *o->work =
      (zp_kernel_work){.kernel = ZP_KERNEL_PRODUCT, .launches = launches, .flop = step->flop, .bytes = step->bytes};
  return zp_cost_own_product(o->machine, library_s, step->bytes, alongside_bytes(o, step)) +
         (launches - 1) * o->machine->node->device.launch_s;
}

/* What is computed on the cores for single precision as a share of what is counted, alongside that of dense attention,
 * which is in its rate: a row's keys in a window end in two tiles, where causality cuts one of twice as many keys. */
static double excess(const zp_op_attr *attr, double sequence) {
  enum { TILE = 64 };
  if (attr->layout) return zp_layout_excess(attr->layout, attr->heads);
  return attr->window ? (1 + TILE / (double)attr->window) / (1 + TILE / sequence) : 1;
}

/* Dropout and relative biases. */
static double score_extras_s(const own *o, const zp_step *step, bool backward) {
  enum { FORWARD = 4, BACKWARD = 10 }; /* for a pair and a column, as zp_node_flop counts */
  const zp_op_attr *attr = &step->node->attr;
  zp_score_extras extras = {.pairs = step->flop / (double)((backward ? BACKWARD : FORWARD) * attr->head_size),
                            .drops = attr->rate > 0,
                            .bias = attr->max_distance > 0,
                            .sums_bias = step->sums.len > 0};
  return zp_cost_score_extras(o->machine, &extras, backward, o->work);
}

/* Keys of all positions, queries in two stretches: keys of the stretches before are all seen, by both stretches
 * together as many on every rank, and each sees half of its own. What a stretch makes of either is read and written
 * once more; of keys, half of the gradients at most. */
static double halves_s(const own *o, const zp_step *step, zp_attention_shape shape, bool backward) {
  const zp_shape *q = in_shape(o, step, 0), *k = in_shape(o, step, 1);
  int64_t samples = o->lowered->microbatch, stretch = q->dim[1] / 2;
  double merged = 3.0 * o->lowered->compute_bytes *
                  (double)(zp_shape_elements(q, samples) + (backward ? zp_shape_elements(k, samples) : 0));
  shape.sequence = shape.causal ? stretch : q->dim[1];
  shape.keys = k->dim[1] - (shape.causal ? stretch : 0);
  zp_attention_shape own_keys = shape;
  own_keys.keys = 0;
  shape.causal = false;
  double seconds = zp_cost_tensor_attention(o->machine, &shape, backward, o->work);
  if (!own_keys.causal) return seconds;
  zp_kernel_work one;
  double own_s = zp_cost_tensor_attention(o->machine, &own_keys, backward, &one);
  o->work->launches += 2 * one.launches;
  o->work->flop += 2 * one.flop;
  o->work->bytes += 2 * one.bytes + merged;
  return seconds + 2 * own_s + zp_cost_memory_bound(o->machine, merged, 0);
}

/* Keys of a rank after the other: of its own each stretch sees half of its own ones, and the late one the early ones;
 * of the others' both stretches see one, or the late one sees both, which is as much. Every round's results are merged
 * in f32, and what comes and goes is packed. */
static double rounds_s(const own *o, const zp_step *step, zp_attention_shape shape, bool backward) {
  enum { ROUND_CALLS = 2 };
  const zp_shape *q = in_shape(o, step, 0), *k = in_shape(o, step, 1);
  int64_t samples = o->lowered->microbatch, stretch = q->dim[1] / 2, ranks = step->node->attr.parts;
  int elem = o->lowered->compute_bytes, real = o->lowered->stat_bytes;
  double rounds = (double)ranks, queries = (double)zp_shape_elements(q, samples),
         keys = 2 * (double)zp_shape_elements(k, samples);
  double merged = rounds * queries * (2.0 * real + elem) + queries * (real + elem) + 2 * keys * elem;
  if (backward) merged += rounds * keys * (2.0 * real + elem);
  bool causal = shape.causal;
  zp_attention_shape own_keys = shape;
  own_keys.sequence = stretch, own_keys.keys = 0;
  shape.causal = false, shape.sequence = causal ? stretch : q->dim[1], shape.keys = stretch;
  zp_kernel_work one;
  double calls = (double)(ROUND_CALLS * ranks - causal);
  double seconds = calls * zp_cost_tensor_attention(o->machine, &shape, backward, o->work);
  o->work->launches = (int)(calls * o->work->launches * (double)samples);
  o->work->flop *= calls, o->work->bytes *= calls;
  if (causal) {
    seconds += 2 * zp_cost_tensor_attention(o->machine, &own_keys, backward, &one);
    o->work->launches += 2 * one.launches * (int)samples;
    o->work->flop += 2 * one.flop, o->work->bytes += 2 * one.bytes;
  }
  o->work->bytes += merged;
  return seconds + zp_cost_memory_bound(o->machine, merged, 0);
}

/* Calls of pairs of stretches, added up. */
typedef struct pair_calls {
  const own *o;
  bool backward;
  double seconds, rows; /* rows: of queries */
  zp_kernel_work work;
} pair_calls;

/* One call of a sample, so many times a sample. */
static void add_calls(pair_calls *x, const zp_attention_shape *shape, double times) {
  zp_kernel_work one;
  double samples = (double)x->o->lowered->microbatch;
  if (shape->sequence <= 0) return;
  x->seconds += times * zp_cost_tensor_attention(x->o->machine, shape, x->backward, &one);
  x->work.kernel = one.kernel, x->work.launches += (int)(times * one.launches * samples);
  x->work.flop += times * one.flop, x->work.bytes += times * one.bytes;
  x->rows += times * (double)shape->sequence * samples;
}

static void add_window(pair_calls *x, const zp_step *step, const zp_attention_shape *shape, int64_t n) {
  const zp_op_attr *attr = &step->node->attr;
  const zp_ring window = {.rows = n, .window = attr->window, .ranks = attr->parts, .causal = attr->causal};
  zp_window_call list[ZP_WINDOW_CALLS];
  int calls;
  for (int64_t distance = 0; (calls = zp_window_calls(&window, distance, list)) > 0; distance++)
    for (int i = 0; i < calls; i++) {
      zp_attention_shape call = *shape;
      call.sequence = list[i].queries, call.window = list[i].window, call.causal = list[i].triangle;
      call.keys = distance == 0 || list[i].triangle ? 0 : list[i].keys;
      add_calls(x, &call, list[i].times);
    }
}

/* A share of what one rank would do: the rank's that has most of the pattern. */
static void add_pattern(pair_calls *x, const zp_step *step, const zp_attention_shape *shape, int64_t n) {
  zp_attention_shape whole = *shape;
  zp_kernel_work one;
  int calls;
  double share = zp_pattern_share(step->ring.pairs, step->node->attr.parts, &calls);
  double samples = (double)x->o->lowered->microbatch;
  whole.sequence = shape->layout->n * shape->layout->block, whole.keys = 0;
  x->seconds = share * zp_cost_tensor_attention(x->o->machine, &whole, x->backward, &one);
  x->work = one;
  x->work.launches = (int)(calls * one.launches * samples);
  x->work.flop *= share, x->work.bytes *= share;
  x->rows = (double)(calls * n) * samples;
}

/* Every pair of a stretch of queries and one of keys by itself, as pairs.c has them: causal ones see as much of the
 * others on every rank, and their own. What calls make is added up, in a window after its rows are turned. In a ring
 * keys come and go packed, by keys their gradients begin with zeros. */
static double pairs_s(const own *o, const zp_step *step, zp_attention_shape shape, bool backward) {
  const zp_shape *q = in_shape(o, step, 0), *k = in_shape(o, step, 1);
  const zp_op_attr *attr = &step->node->attr;
  int64_t n = q->dim[1] / 2, ranks = attr->parts;
  int elem = o->lowered->compute_bytes, real = o->lowered->stat_bytes;
  double keys = 2 * (double)zp_shape_elements(k, o->lowered->microbatch);
  pair_calls x = {.o = o, .backward = backward};
  if (shape.layout)
    add_pattern(&x, step, &shape, n);
  else if (shape.window)
    add_window(&x, step, &shape, n);
  else {
    zp_attention_shape others = shape;
    shape.sequence = others.sequence = others.keys = n, others.causal = false;
    add_calls(&x, &others, (double)(shape.causal ? 2 * ranks - 1 : 4 * ranks));
    if (shape.causal) add_calls(&x, &shape, 2);
  }
  double merged = x.rows * (double)q->dim[2] * (2.0 * real + (attr->window ? 3 : 1) * elem);
  if (backward) merged += x.rows * (double)((attr->window ? 2 * q->dim[2] : 0) + 6 * k->dim[2]) * elem;
  if (attr->ring || backward) merged += (attr->ring ? 2 : 1) * keys * elem;
  x.work.bytes += merged;
  *o->work = x.work;
  return x.seconds + zp_cost_memory_bound(o->machine, merged, 0);
}

static double products_s(const own *o, const zp_step *step, bool backward) {
  const zp_op_attr *attr = &step->node->attr;
  if (o->tensor_head == 0)
    return zp_cost_own_attention(o->machine, step->flop * excess(attr, (double)in_shape(o, step, 0)->dim[1]),
                                 step->bytes, backward, o->work);
  zp_attention_shape shape = {.samples = o->lowered->microbatch,
                              .heads = attr->heads,
                              .kv_heads = attr->kv_heads,
                              .sequence = in_shape(o, step, 0)->dim[1],
                              .width = attr->head_size,
                              .head = o->tensor_head,
                              .float_bytes = o->lowered->compute_bytes,
                              .causal = attr->causal,
                              .layout = attr->layout,
                              .window = attr->window,
                              .keys = attr->cross ? in_shape(o, step, 1)->dim[1] : 0,
                              .sums_bias = backward && step->sums.len > 0};
  if (zp_attention_by_pairs(attr)) return pairs_s(o, step, shape, backward);
  if (attr->ring) return rounds_s(o, step, shape, backward);
  if (attr->parts > 1) return halves_s(o, step, shape, backward);
  return zp_cost_tensor_attention(o->machine, &shape, backward, o->work);
}

static double attention_s(const own *o, const zp_step *step) {
  bool backward = step->op == ZP_OP_ATTENTION_GRAD;
  double seconds = products_s(o, step, backward);
  return seconds + score_extras_s(o, step, backward);
}

/* Bytes of the sums over columns of one chunk of rows. */
static double sum_bytes(const own *o, const zp_step *step) {
  double columns = 0;
  for (int i = 0; i < step->node->param_grad.len; i++)
    columns += (double)o->lowered->param_elements[o->graph->params.data[step->node->param_grad.data[i]].param];
  return columns * o->lowered->stat_bytes;
}

static double moved_s(const own *o, zp_kernel kernel, int launches, const zp_step *step) {
  *o->work = (zp_kernel_work){.kernel = kernel, .launches = launches, .flop = step->flop, .bytes = step->bytes};
  return zp_cost_own_kernel(o->machine, o->work, 0);
}

/* What the kernels of the gate do one after the other in a thread takes longer than what they move. */
static double gate_s(const own *o, const zp_step *step) {
  const zp_op_attr *attr = &step->node->attr;
  const zp_shape *in = in_shape(o, step, 0); /* scores, of the load slots */
  zp_gate_shape gate = {.samples = o->lowered->microbatch,
                        .tokens = in->dim[1],
                        .experts = in->dim[2],
                        .top_k = step->op == ZP_OP_LOAD_GRAD ? in->dim[2] : attr->top_k,
                        .groups = attr->groups,
                        .top_groups = attr->top_groups,
                        .normalize = attr->normalize,
                        .sigmoid = attr->sigmoid,
                        .balance = attr->balance != 0};
  bool forward = step->op == ZP_OP_TOP_K_GATE;
  double moved = moved_s(o, step->op == ZP_OP_LOAD_GRAD ? ZP_KERNEL_LOOKUP : ZP_KERNEL_ROUTING, forward ? 2 : 1, step);
  double serial = forward                       ? zp_cost_gate(o->machine, &gate)
                  : step->op == ZP_OP_LOAD_GRAD ? zp_cost_gate_load(&gate)
                                                : zp_cost_gate_gradient(o->machine, &gate);
  return fmax(moved, o->work->launches * o->machine->node->device.launch_s + serial);
}

static double row_s(const own *o, const zp_step *step) {
  if (step->op == ZP_OP_FUSED_GRAD && step->sums.len > 0)
    return zp_cost_column_sums(o->machine, step->bytes, sum_bytes(o, step), step->flop, step->row_chunks, o->work);
  return moved_s(o, ZP_KERNEL_ROWS, 1, step);
}

double zp_own_step_s(const zp_lowered *lowered, const zp_machine *machine, const zp_graph *graph, int64_t tensor_head,
                     double given_s, const zp_step *step, zp_kernel_work *work) {
  assert(tensor_head >= 0 && !zp_cost_is_comm(step));
  own o = {.lowered = lowered, .machine = machine, .graph = graph, .tensor_head = tensor_head, .work = work};
  if (step->kind != ZP_STEP_NODE) return moved_s(&o, ZP_KERNEL_ROWS, 1, step);
  if (step->op == ZP_OP_TOP_K_GATE || step->op == ZP_OP_TOP_K_GATE_GRAD || step->op == ZP_OP_LOAD_GRAD)
    return gate_s(&o, step);
  switch (zp_op_get_class(step->op)) {
  case ZP_CLASS_VIEW: return 0;
  case ZP_CLASS_MATMUL:
  case ZP_CLASS_GROUPED: return product_s(&o, given_s, step);
  case ZP_CLASS_ATTENTION: return attention_s(&o, step);
  case ZP_CLASS_LOSS: return moved_s(&o, ZP_KERNEL_LOSS, 1, step);
  case ZP_CLASS_POSITIONS:
  case ZP_CLASS_LOOKUP: return moved_s(&o, ZP_KERNEL_LOOKUP, 1, step);
  case ZP_CLASS_ROUTING: return moved_s(&o, ZP_KERNEL_ROUTING, 1, step);
  default: return row_s(&o, step);
  }
}

zp_kernel_work zp_cost_step_work(const zp_lowered *lowered, const zp_machine *machine, const zp_graph *graph,
                                 const zp_step *step) {
  zp_kernel_work work = {0};
  if (!zp_cost_is_own_gpu(machine) || zp_cost_is_comm(step)) return work;
  (void)zp_own_step_s(lowered, machine, graph, zp_tensor_core_head(lowered->spec), 0, step, &work);
  return work;
}
