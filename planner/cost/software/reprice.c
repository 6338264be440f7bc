/* SPDX-License-Identifier: Apache-2.0 */
/* Prices of kernels that the measured software has and the generated trainer has not. The same cost functions as the
 * planner's; only the list of kernels differs. Bytes are counted in passes: one pass reads or writes every element of a
 * tensor once.
 *
 * Attention with its score matrix in device memory, E = B heads S^2 elements. Forward: scores by a batched product,
 * scale-mask-softmax (E read, written), dropout (read, written, a mask byte), a batched product with the values, the
 * context copied into rows. Backward: four batched products, the derivatives of dropout and softmax (two read, one
 * written), the copy. Causality is a mask: nothing is skipped. */
#include <math.h>
#include <string.h>
#include <zplan/constants.h>
#include <zplan/cost.h>
#include "software_cost.h"

enum { SOFTMAX_PASSES = 2, DROPOUT_PASSES = 2, SOFTMAX_GRAD_PASSES = 3, DROPOUT_GRAD_PASSES = 2, MASK_BYTES = 1 };
enum { COPY_PASSES = 2, ATTENTION_KERNELS = 5, ATTENTION_GRAD_KERNELS = 8 };
/* Gradients of queries, keys and values are joined for the one product that made them (autograd of a split). */
enum { JOIN_PASSES = 2 * 3 };
/* Before fused kernels (Megatron-LM v1, mpu/transformer.py): a division, a product with the mask and a difference, each
 * reading and writing all scores, of which the derivative has the first two; queries, keys and values are copied to
 * [heads, rows] for the batched products, and their gradients back. */
enum { SCALE_MASK_PASSES = 6, SCALE_MASK_GRAD_PASSES = 4, SCALE_MASK_KERNELS = 3, HEAD_COPY_PASSES = 3 * 2 };
enum { HEAD_COPIES = 3 };
/* Where Megatron's fused softmax does not apply (fused_softmax.py: forward_torch_softmax): to fp32 (3 passes of two
 * bytes), scale, mask and softmax in fp32 (4 each), back (3), for the 2 of one kernel; the derivatives of all. */
enum { FLOAT_SOFTMAX_PASSES = 3 + 4 + 4 + 4 + 3 - 2, FLOAT_SOFTMAX_GRAD_PASSES = 3 + 6 + 4 + 4 + 3 - 3 };
enum { FLOAT_SOFTMAX_KERNELS = 5 - 1 };
/* fp32 scores, which no fused kernel takes (is_kernel_available wants 16 bits): scale and mask besides. */
enum { PLAIN_SOFTMAX_PASSES = 2 + 2, PLAIN_SOFTMAX_GRAD_PASSES = 2 + 2, PLAIN_SOFTMAX_KERNELS = 3 - 1 };
/* nanotron (src/nanotron/models/llama.py, CausalSelfAttention.forward): to [3, batch, sequence] (6), keys and values
 * joined (4) and turned (4), the result to [sequence, batch] (2); backward the result (2) and again for the weight
 * gradient (2), keys and values (4), the three (6) and their sum of layouts for the product (6). */
enum { REARRANGE_PASSES = 6 + 4 + 4 + 2, REARRANGE_GRAD_PASSES = 2 + 2 + 4 + 6 + 6 };
enum { REARRANGE_KERNELS = 4 + 6, REARRANGE_GRAD_KERNELS = 5 }; /* forward, offsets of the sequences: CoreAttention */

typedef struct pricer {
  const zp_lowered *lowered;
  const zp_machine *machine;
  const zp_software *software;
  double tensor; /* ranks */
  const zp_group_link *expert;
  bool experts;          /* of the current segment, or its latent attention, are priced as the software has them */
  double taken;          /* share of the multiprocessors that their collectives have to themselves */
  bool selective;        /* recomputation */
  const zp_graph *graph; /* of the current segment */
  bool repeats;          /* it is a layer */
  double kernels;        /* of the current procedure */
  double host_s;         /* and seconds of the host besides */
  zp_latent latent;
  double hidden_s; /* exchanges of the current segment that run alongside another micro-batch */
} pricer;

static double moved_s(const pricer *p, double elements, double passes, double mask_bytes) {
  double bytes = elements * (passes * p->lowered->compute_bytes + mask_bytes);
  return bytes > 0 ? zp_cost_memory_bound(p->machine, bytes, 0) : 0;
}

/* ---- attention ---- */

typedef struct attention_size {
  double batch, s, head, scores, rows;
} attention_size;

static attention_size size_of(const pricer *p, const zp_node *node) {
  const zp_shape *q = &p->graph->tensors.data[node->in.data[0]].shape;
  /* Two sequences count as one whose square is their product. */
  double keys = (double)p->graph->tensors.data[node->in.data[1]].shape.dim[1];
  double heads = (double)node->attr.heads, s = sqrt((double)q->dim[1] * keys);
  attention_size a = {
      .batch = (double)p->lowered->microbatch * heads, .s = s, .head = (double)zp_shape_cols(q) / heads};
  a.scores = a.batch * s * s;
  a.rows = a.batch * s * a.head;
  return a;
}

static double score_product(const pricer *p, const attention_size *a) {
  return zp_cost_batched_matmul(p->machine, a->batch, a->s, a->s, a->head, p->lowered->compute_bytes);
}

static double value_product(const pricer *p, const attention_size *a) {
  return zp_cost_batched_matmul(p->machine, a->batch, a->s, a->head, a->s, p->lowered->compute_bytes);
}

/* Megatron's scale-mask-softmax in one kernel works on four matrices at once, of rows up to 2,048
 * (megatron/model/fused_softmax.py: is_kernel_available). */
static bool fuses_softmax(const pricer *p, const attention_size *a) {
  enum { MATRICES = 4, LONGEST_ROW = 2048 };
  if (!p->software->fused_softmax) return true;
  if (p->lowered->compute_bytes > 2) return false;
  return fmod(a->batch, MATRICES) == 0 && a->s <= LONGEST_ROW;
}

static double unfused_passes(const pricer *p, const attention_size *a, bool grad) {
  if (fuses_softmax(p, a)) return 0;
  if (p->lowered->compute_bytes > 2) return grad ? PLAIN_SOFTMAX_GRAD_PASSES : PLAIN_SOFTMAX_PASSES;
  return grad ? FLOAT_SOFTMAX_GRAD_PASSES : FLOAT_SOFTMAX_PASSES;
}

static double attention_s(const pricer *p, const attention_size *a) {
  double scores = SOFTMAX_PASSES + unfused_passes(p, a, false), rows = COPY_PASSES;
  if (p->software->separate_scores) scores += SCALE_MASK_PASSES, rows += HEAD_COPY_PASSES;
  return score_product(p, a) + moved_s(p, a->scores, scores, 0) + moved_s(p, a->scores, DROPOUT_PASSES, MASK_BYTES) +
         value_product(p, a) + moved_s(p, a->rows, rows, 0);
}

static double attention_grad_s(const pricer *p, const attention_size *a) {
  double scores = SOFTMAX_GRAD_PASSES + unfused_passes(p, a, true), rows = COPY_PASSES + JOIN_PASSES;
  if (p->software->separate_scores) scores += SCALE_MASK_GRAD_PASSES, rows += HEAD_COPY_PASSES;
  return score_product(p, a) + 3 * value_product(p, a) + moved_s(p, a->scores, scores, 0) +
         moved_s(p, a->scores, DROPOUT_GRAD_PASSES, MASK_BYTES) + moved_s(p, a->rows, rows, 0);
}

/* Copies around fused attention. Repeated heads (torchtitan/models/llama/model.py, repeat_kv): a read of the few and a
 * write of the many, backward a read of the many and a write of their sums. */
static void add_copies(pricer *p, zp_step *step) {
  attention_size size = size_of(p, step->node);
  bool grad = step->op == ZP_OP_ATTENTION_GRAD;
  double few = (double)step->node->attr.kv_heads / (double)step->node->attr.heads, passes = 0;
  if (p->software->repeats_heads && few < 1) {
    passes += 2 * (1 + few);
    p->kernels += 2;
  }
  if (p->software->rearranges_heads) {
    passes += grad ? REARRANGE_GRAD_PASSES : REARRANGE_PASSES;
    p->kernels += grad ? REARRANGE_GRAD_KERNELS : REARRANGE_KERNELS;
  }
  step->cost_s += moved_s(p, size.rows, passes, 0);
}

static void price_attention(pricer *p, zp_step *step) {
  attention_size size = size_of(p, step->node);
  bool grad = step->op == ZP_OP_ATTENTION_GRAD;
  step->cost_s = grad ? attention_grad_s(p, &size) : attention_s(p, &size);
  p->kernels += grad ? ATTENTION_GRAD_KERNELS - 1 : ATTENTION_KERNELS - 1;
  double extra = p->software->separate_scores ? SCALE_MASK_KERNELS + HEAD_COPIES : 0;
  if (!fuses_softmax(p, &size)) extra += p->lowered->compute_bytes > 2 ? PLAIN_SOFTMAX_KERNELS : FLOAT_SOFTMAX_KERNELS;
  p->kernels += extra;
  bool modules = p->software->rebuilds_modules && p->experts; /* others than attention */
  if (!grad || !p->selective || modules) return;
  step->cost_s += attention_s(p, &size);
  p->kernels += ATTENTION_KERNELS + extra;
}

/* ---- all steps ---- */

/* Cross-entropy without fusion, in fp32: bytes per logit of all its kernels, forward and backward (megatron/mpu/
 * cross_entropy.py: convert, max, subtract, exponential, sum, divide; scale, convert back). Charged where the gradient
 * is made; the forward steps keep their price. */
enum { LOSS_BYTES_PER_LOGIT = 54, LOSS_KERNELS = 9 };

static double separate_loss_s(pricer *p, const zp_step *step) {
  double logits =
      (double)zp_shape_elements(&p->graph->tensors.data[step->node->in.data[0]].shape, p->lowered->microbatch);
  p->kernels += LOSS_KERNELS;
  return zp_cost_memory_bound(p->machine, logits * LOSS_BYTES_PER_LOGIT, 0);
}

/* Logits and their gradients that pass through other types. */
static double moved_logits_s(const pricer *p, const zp_step *step) {
  if (p->software->loss_moved <= 0) return 0;
  const zp_shape *shape = &p->graph->tensors.data[step->node->in.data[0]].shape;
  double logits = (double)zp_shape_elements(shape, p->lowered->microbatch);
  return zp_cost_memory_bound(p->machine, logits * p->software->loss_moved, 0);
}

static void add_rows(pricer *p, zp_step *step) {
  zp_row_kernels more = zp_software_rows(p->software, step);
  const zp_shape *shape = &p->graph->tensors.data[step->node->in.data[0]].shape;
  p->kernels += more.kernels;
  step->cost_s += moved_s(p, (double)zp_shape_elements(shape, p->lowered->microbatch), more.passes, more.mask_bytes);
}

static bool only_moves(const zp_step *step) {
  zp_op_class class = zp_op_get_class(step->op);
  return class != ZP_CLASS_MATMUL && class != ZP_CLASS_ATTENTION && class != ZP_CLASS_COMM;
}

/* ---- experts ---- */

static bool reads_slots(const pricer *p, const zp_step *step) {
  return step->node->in.len > 0 && p->graph->tensors.data[step->node->in.data[0]].shape.rank == 4;
}

/* Does the host issue it, or does a graph launch it? */
static bool is_issued(const pricer *p, const zp_step *step) {
  if (p->software->graphs == ZP_GRAPHS_NONE || step->kind != ZP_STEP_NODE) return true;
  if (p->software->graphs == ZP_GRAPHS_GATES) return step->op != ZP_OP_TOP_K_GATE && step->op != ZP_OP_TOP_K_GATE_GRAD;
  zp_op_class class = zp_op_get_class(step->op);
  bool experts = class == ZP_CLASS_GROUPED || class == ZP_CLASS_ROUTING || reads_slots(p, step);
  return p->software->graphs == ZP_GRAPHS_PARTS && experts;
}

static bool moves_rows(zp_op op) {
  return op == ZP_OP_DISPATCH || op == ZP_OP_COMBINE || op == ZP_OP_DISPATCH_GRAD || op == ZP_OP_COMBINE_GRAD;
}

enum { NARROW_HEAD = 64 };

static bool exchanges_slots(const zp_step *step) {
  return step->op == ZP_OP_SPREAD_SLOTS || step->op == ZP_OP_RETURN_SLOTS;
}

/* Whether the step is one of experts that are priced here. */
static bool price_experts(pricer *p, zp_procedure *procedure, int i, bool forward) {
  zp_step *step = &procedure->steps.data[i];
  if (!p->experts || step->kind != ZP_STEP_NODE) return false;
  bool row = step->op == ZP_OP_FUSED || step->op == ZP_OP_FUSED_GRAD;
  if (exchanges_slots(step)) {
    zp_exchange x = {p->lowered, p->machine, p->graph, step, p->expert, p->tensor};
    step->cost_s = zp_software_exchange_shown_s(&x, p->software);
    if (p->software->hides_exchange) p->hidden_s += zp_software_exchange_s(&x, p->software);
  } else if (zp_op_get_class(step->op) == ZP_CLASS_GROUPED) {
    step->cost_s = zp_software_grouped_s(p->lowered, p->machine, p->graph, p->software, procedure, i, forward);
  } else if (row && reads_slots(p, step) && p->software->one_kernel) {
    step->cost_s = 0; /* between the products */
  } else {
    return false;
  }
  p->kernels++;
  return true;
}

/* Attention in 8 bits. Its backward part skips nothing that a window hides. */
static void narrow_attention(const pricer *p, zp_step *step) {
  bool grad = step->op == ZP_OP_ATTENTION_GRAD;
  step->cost_s /= p->latent.is ? zp_cost_constant(grad ? ZP_COST_NARROW_LATENT_BACKWARD : ZP_COST_NARROW_LATENT_FORWARD)
                               : zp_cost_constant(grad ? ZP_COST_NARROW_BACKWARD : ZP_COST_NARROW_FORWARD);
  double s = (double)p->graph->tensors.data[step->node->in.data[0]].shape.dim[1], w = (double)step->node->attr.window;
  if (grad && w > 0 && w < s) step->cost_s *= s / (2 * w - w * w / s);
}

static void price_step(pricer *p, zp_step *step) {
  bool row = step->op == ZP_OP_FUSED || step->op == ZP_OP_FUSED_GRAD;
  if (step->kind != ZP_STEP_NODE) return;
  if (step->cost_s > 0 && !zp_cost_is_comm(step)) p->kernels++;
  /* alongside products its issue and its events are hidden, too */
  if (step->cost_s > 0 && zp_cost_is_comm(step) && !p->software->overlaps_tensor)
    step->cost_s += p->software->collective_s;
  bool attention = zp_op_get_class(step->op) == ZP_CLASS_ATTENTION;
  if (attention && p->software->score_matrix)
    price_attention(p, step);
  else if (attention && p->software->attention_slowdown > 0)
    step->cost_s *= p->software->attention_slowdown;
  const char *arch = p->machine->node->device.arch;
  if (attention && p->software->sm90_attention > 0 && arch && strcmp(arch, "sm_90") == 0)
    step->cost_s /= p->software->sm90_attention;
  if (attention && p->experts && step->node->attr.head_size <= NARROW_HEAD)
    step->cost_s /= p->software->narrow_heads > 0 ? p->software->narrow_heads : zp_cost_constant(ZP_COST_NARROW_HEADS);
  if (attention) add_copies(p, step);
  if (p->experts && moves_rows(step->op)) step->cost_s /= zp_cost_constant(ZP_COST_SORTED_ROWS);
  if (p->software->separate_rows && row) add_rows(p, step);
  bool separate_loss = (p->software->separate_rows && !p->software->fused_loss) || p->software->separate_loss;
  if (separate_loss && step->op == ZP_OP_CE_GRAD) step->cost_s = separate_loss_s(p, step);
  if (step->op == ZP_OP_CE_GRAD) step->cost_s += moved_logits_s(p, step);
  if (attention && p->experts && p->software->narrow_attention && p->software->product_rate > 0)
    narrow_attention(p, step);
  zp_layer_cost more = zp_software_core_step(p->lowered, p->machine, p->graph, p->software, step, p->experts);
  step->cost_s += more.device_s;
  p->kernels += more.kernels;
}

/* ---- products in fewer bits ---- */

static double elements_of(const pricer *p, const zp_step *step, int operand) {
  const zp_shape *shape = &p->graph->tensors.data[step->node->in.data[operand]].shape;
  return (double)zp_shape_elements(shape, p->lowered->microbatch);
}

/* The gather among the steps before it that brings an operand of step i; NULL: none. */
static zp_step *gather_before(const zp_procedure *procedure, int i) {
  const zp_step *step = &procedure->steps.data[i];
  for (int k = i - 1; k >= 0; k--) {
    zp_step *other = &procedure->steps.data[k];
    if (other->kind != ZP_STEP_NODE || other->op != ZP_OP_ALL_GATHER_SEQ) continue;
    for (int b = 0; b < step->in.len; b++)
      if (step->in.data[b] == other->out.data[0]) return other;
  }
  return NULL;
}

/* What is gathered along the sequence is cast before, a rank's share, and crosses the links so (Transformer Engine,
 * docs/features/low_precision_training/performance_considerations). */
static double cast_elements(pricer *p, const zp_procedure *procedure, int i) {
  zp_step *gather = gather_before(procedure, i);
  double elements = elements_of(p, &procedure->steps.data[i], 0);
  if (!gather) return elements;
  gather->cost_s *= p->software->gathered;
  return elements / p->tensor;
}

static bool has_logits(const pricer *p, const zp_ints *tensors) {
  int64_t words = p->lowered->spec->model->vocabulary;
  for (int i = 0; i < tensors->len; i++)
    if (zp_shape_cols(&p->graph->tensors.data[tensors->data[i]].shape) * p->lowered->sharding->tensor >= words)
      return true;
  return false;
}

/* A layer's, or one of a layer that predicts a further token, which is in the last segment. */
static bool is_of_layer(const pricer *p, const zp_step *step) {
  if (p->repeats || !p->experts) return p->repeats;
  return !has_logits(p, &step->node->in) && !has_logits(p, &step->node->out);
}

/* Products of layers alone; heads stay in 16 bits (Transformer Engine: the modules of its layers). What two products
 * read is cast once: forward an operand, backward the gradient of a result, for both of its products. */
static void narrow_product(pricer *p, const zp_procedure *procedure, int i, bool forward) {
  zp_step *step = &procedure->steps.data[i];
  if (p->software->product_rate <= 0 || step->kind != ZP_STEP_NODE) return;
  if (zp_op_get_class(step->op) != ZP_CLASS_MATMUL || !is_of_layer(p, step)) return;
  double launch = p->machine->node->device.launch_s;
  step->cost_s = launch + fmax(0, step->cost_s - launch) / p->software->product_rate;
  int cast = step->node->in.data[0];
  bool before = !forward && step->op == ZP_OP_MATMUL_WGRAD;
  for (int k = i - 1; k >= 0 && !before; k--) {
    const zp_step *other = &procedure->steps.data[k];
    before =
        other->kind == ZP_STEP_NODE && zp_op_get_class(other->op) == ZP_CLASS_MATMUL && other->node->in.data[0] == cast;
  }
  if (before) return;
  step->cost_s += zp_cost_memory_bound(p->machine, cast_elements(p, procedure, i) * p->software->cast_bytes, 0);
  p->kernels++;
}

/* Weight gradients of a micro-batch are added to those before them by kernels of their own. */
static double accumulate_s(const pricer *p, const zp_graph *graph) {
  double elements = 0;
  for (int i = 0; i < graph->params.len; i++)
    elements += (double)p->lowered->param_elements[graph->params.data[i].param];
  double bytes = elements * p->software->accumulate_bytes;
  return bytes > 0 ? zp_cost_memory_bound(p->machine, bytes, 0) : 0;
}

static double steps_s(const zp_procedure *procedure, int count) {
  double seconds = 0;
  for (int i = 0; i < count; i++) seconds += procedure->steps.data[i].cost_s;
  return seconds;
}

static void price_steps(pricer *p, zp_procedure *procedure, bool forward) {
  p->kernels = 0;
  for (int i = 0; i < procedure->steps.len; i++) {
    double issued = p->kernels;
    if (!price_experts(p, procedure, i, forward)) {
      price_step(p, &procedure->steps.data[i]);
      narrow_product(p, procedure, i, forward);
      if (p->experts) zp_software_latent(p->lowered, p->machine, p->graph, &p->latent, &procedure->steps.data[i]);
    }
    if (!is_issued(p, &procedure->steps.data[i])) p->kernels = issued;
  }
  if (p->software->overlaps_tensor)
    p->kernels +=
        zp_software_overlap_tensor(procedure, p->graph, p->lowered, p->machine, p->software, p->taken, forward);
  procedure->cost_s = steps_s(procedure, procedure->steps.len);
  p->host_s = 0;
  if (!p->experts) return;
  zp_layer_cost more = zp_software_layer_of_experts(p->lowered, p->machine, p->graph, p->software, forward);
  procedure->cost_s += more.device_s;
  p->kernels += more.kernels;
  p->host_s = more.host_s;
}

static bool is_product(const zp_step *step) {
  return step->kind == ZP_STEP_NODE && zp_op_get_class(step->op) == ZP_CLASS_MATMUL;
}

/* What selective checkpointing by operator runs again: every second product (autograd.c), and whatever only moves
 * memory. */
static double replayed_s(const zp_procedure *forward) {
  double seconds = 0;
  for (int i = 0; i < forward->steps.len; i++) {
    const zp_step *step = &forward->steps.data[i];
    if (is_product(step)) seconds += step->cost_s / 2;
    if (step->kind == ZP_STEP_NODE && only_moves(step)) seconds += step->cost_s;
  }
  return seconds;
}

/* Asked of the steps, which prices read anyhow: most models have none. Latent attention joins columns. */
static bool may_have_experts(const pricer *p, const zp_procedure *forward) {
  bool some = false, own = p->software->own_experts && !p->machine->node->device.is_cpu;
  for (int i = 0; own && !some && i < forward->steps.len; i++)
    some = forward->steps.data[i].op == ZP_OP_TOP_K_GATE || forward->steps.data[i].op == ZP_OP_JOIN_COLUMNS;
  return some;
}

/* A procedure takes as long as its kernels, or as the host needs to issue them. Checkpointing in autograd replays the
 * whole forward part; ours leaves out what backward does not read, such as the last product and its all-reduce. */
static void price_segment(pricer *p, zp_segment_program *segment) {
  zp_procedure *forward = &segment->forward, *backward = &segment->backward;
  p->graph = segment->graph;
  p->hidden_s = 0;
  p->latent = (zp_latent){0};
  p->experts = may_have_experts(p, forward);
  if (p->experts) p->latent = zp_software_latent_of(segment->graph);
  p->experts = p->experts && (p->latent.is || zp_software_gate(segment->graph) != NULL);
  price_steps(p, forward, true);
  double forward_kernels = p->kernels, forward_s = forward->cost_s, host_s = p->host_s;
  price_steps(p, backward, false);
  if (p->experts && p->software->again) {
    zp_layer_cost again = zp_software_again(p->lowered, p->machine, p->graph, p->software, &p->latent, forward);
    backward->cost_s += again.device_s;
    if (p->software->graphs == ZP_GRAPHS_NONE) p->kernels += again.kernels;
  }
  if (p->software->replays_all && !p->selective && backward->n_recompute > 0) {
    backward->cost_s += forward_s - steps_s(backward, backward->n_recompute);
    p->kernels += fmax(0, forward_kernels - backward->n_recompute);
  }
  if (p->selective && p->software->selects_operations) {
    backward->cost_s += replayed_s(forward);
    p->kernels += forward_kernels;
  }
  backward->cost_s += accumulate_s(p, segment->graph);
  forward->cost_s = fmax(forward_s, forward_kernels * p->software->host_call_s + host_s);
  backward->cost_s = fmax(backward->cost_s, p->kernels * p->software->host_call_s + p->host_s);
  backward->cost_s = fmax(backward->cost_s, p->hidden_s - forward->cost_s); /* they are not hidden behind themselves */
}

void zp_software_price(zp_lowered *lowered, const zp_machine *machine, const zp_software *software,
                       const zp_group_link *tensor, const zp_group_link *expert) {
  pricer p = {.lowered = lowered,
              .machine = machine,
              .software = software,
              .tensor = lowered->sharding->tensor,
              .expert = expert,
              .taken = software->whole_pieces ? zp_cost_taken(machine, tensor) : 0,
              .selective = lowered->recompute == ZP_RECOMPUTE_SELECTIVE};
  for (int i = 0; i < lowered->n_segments; i++) {
    p.repeats = i > 0 && i < lowered->n_segments - 1;
    price_segment(&p, &lowered->segments[i]);
  }
}
