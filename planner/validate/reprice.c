/* Prices of kernels that the measured software has and the generated trainer has not. The same cost functions as the
 * planner's; only the list of kernels differs. Bytes are counted in passes: one pass reads or writes every element of a
 * tensor once.
 *
 * Attention with its score matrix in device memory, E = B heads S^2 elements. Forward: scores by a batched product,
 * scale-mask-softmax (E read, written), dropout (read, written, a mask byte), a batched product with the values, the
 * context copied into rows. Backward: four batched products, the derivatives of dropout and softmax (two read, one
 * written), the copy. Causality is a mask: nothing is skipped. */
#include <math.h>
#include "../cost/cost.h"
#include "validate_internal.h"

enum { SOFTMAX_PASSES = 2, DROPOUT_PASSES = 2, SOFTMAX_GRAD_PASSES = 3, DROPOUT_GRAD_PASSES = 2, MASK_BYTES = 1 };
enum { COPY_PASSES = 2, ATTENTION_KERNELS = 5, ATTENTION_GRAD_KERNELS = 7 };

typedef struct pricer {
  const zp_lowered *lowered;
  const zp_machine *machine;
  const zp_software *software;
  bool recompute_scores;
  const zp_graph *graph; /* of the segment at hand */
  double kernels;        /* of the procedure at hand */
} pricer;

static double moved_s(const pricer *p, double elements, double passes, double mask_bytes) {
  return zp_cost_memory_bound(p->machine, elements * (passes * p->lowered->compute_bytes + mask_bytes), 0);
}

/* ---- attention ---- */

typedef struct attention_size {
  double batch, s, head, scores, rows;
} attention_size;

static attention_size size_of(const pricer *p, const zp_node *node) {
  const zp_shape *q = &p->graph->tensors.data[node->in.data[0]].shape;
  double heads = (double)node->attr.heads, s = (double)q->dim[1];
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

static double attention_s(const pricer *p, const attention_size *a) {
  return score_product(p, a) + moved_s(p, a->scores, SOFTMAX_PASSES, 0) +
         moved_s(p, a->scores, DROPOUT_PASSES, MASK_BYTES) + value_product(p, a) + moved_s(p, a->rows, COPY_PASSES, 0);
}

static double attention_grad_s(const pricer *p, const attention_size *a) {
  return score_product(p, a) + 3 * value_product(p, a) + moved_s(p, a->scores, SOFTMAX_GRAD_PASSES, 0) +
         moved_s(p, a->scores, DROPOUT_GRAD_PASSES, MASK_BYTES) + moved_s(p, a->rows, COPY_PASSES, 0);
}

static void price_attention(pricer *p, zp_step *step) {
  attention_size size = size_of(p, step->node);
  bool grad = step->op == ZP_OP_ATTENTION_GRAD;
  step->cost_s = grad ? attention_grad_s(p, &size) : attention_s(p, &size);
  p->kernels += grad ? ATTENTION_GRAD_KERNELS - 1 : ATTENTION_KERNELS - 1;
  if (!grad || !p->recompute_scores) return;
  step->cost_s += attention_s(p, &size);
  p->kernels += ATTENTION_KERNELS;
}

/* ---- row kernels ---- */

/* What a fused group of ours is made of in the measured software. */
typedef struct group {
  int norms, residuals, biases;
} group;

static group group_of(const zp_fused *fused) {
  group g = {0};
  for (int i = 0; i < fused->ops.len; i++) {
    const zp_fused_op *op = &fused->ops.data[i];
    if (op->op == ZP_OP_LAYER_NORM || op->op == ZP_OP_RMS_NORM) g.norms++;
    if (op->op != ZP_OP_ADD) continue;
    bool bias = op->arg[1] < fused->n_in && fused->operand[op->arg[1]] == ZP_OPERAND_COLUMNS;
    if (bias)
      g.biases++;
    else
      g.residuals++;
  }
  return g;
}

/* Passes and mask bytes that separate kernels add to those of a fused group. Forward: a norm reads its input again; the
 * residual's dropout writes a mask. Backward: the parameter gradients of a norm are a kernel of their own (two reads),
 * the sum of the residual's gradients too (two reads, one write, of which the group has one); dropout reads, writes and
 * reads its mask; a bias gradient reads its rows again. Source: apex layer_norm_cuda_kernel.cu and Megatron-LM
 * fused_bias_gelu.py, transformer.py (bias_dropout_add), 2021. */
static double separate_rows_s(pricer *p, const zp_step *step) {
  const zp_node *node = step->node;
  group g = group_of(node->fused);
  double elements = (double)zp_shape_elements(&p->graph->tensors.data[node->in.data[0]].shape, p->lowered->microbatch);
  bool grad = step->op == ZP_OP_FUSED_GRAD, alone = node->fused->ops.len == 1;
  double passes = grad ? 2 * g.norms + 2 * g.norms + 2 * g.residuals + g.biases : alone ? 0 : g.norms;
  p->kernels += grad ? 2 * g.norms + g.residuals + g.biases : alone ? 0 : g.norms;
  return passes > 0 ? moved_s(p, elements, passes, g.residuals * MASK_BYTES) : 0;
}

/* DeepSpeed's stage3_param_persistence_threshold: smaller parameters stay on every rank. */
enum { RESIDENT_ELEMENTS = 100000 };
/* Host time of one copy from C++; estimate. */
#define COPY_CALL_S 10e-6

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

static void price_step(pricer *p, zp_step *step) {
  bool row = step->op == ZP_OP_FUSED || step->op == ZP_OP_FUSED_GRAD;
  if (step->kind != ZP_STEP_NODE) return;
  if (step->cost_s > 0 && !zp_cost_is_comm(step)) p->kernels++;
  if (p->software->score_matrix && (step->op == ZP_OP_ATTENTION || step->op == ZP_OP_ATTENTION_GRAD))
    price_attention(p, step);
  else if (p->software->attention_slowdown > 0 && zp_op_get_class(step->op) == ZP_CLASS_ATTENTION)
    step->cost_s *= p->software->attention_slowdown;
  if (p->software->separate_rows && row) step->cost_s += separate_rows_s(p, step);
  if (p->software->separate_rows && step->op == ZP_OP_CE_GRAD) step->cost_s = separate_loss_s(p, step);
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

static void price_steps(pricer *p, zp_procedure *procedure) {
  p->kernels = 0;
  for (int i = 0; i < procedure->steps.len; i++) price_step(p, &procedure->steps.data[i]);
  procedure->cost_s = steps_s(procedure, procedure->steps.len);
}

/* A procedure takes as long as its kernels, or as the host needs to issue them. Checkpointing in autograd replays the
 * whole forward part; ours leaves out what backward does not read, such as the last product and its all-reduce. */
static void price_segment(pricer *p, zp_segment_program *segment) {
  zp_procedure *forward = &segment->forward, *backward = &segment->backward;
  p->graph = segment->graph;
  price_steps(p, forward);
  double forward_kernels = p->kernels, forward_s = forward->cost_s;
  price_steps(p, backward);
  if (p->software->replays_all && backward->n_recompute > 0) {
    backward->cost_s += forward_s - steps_s(backward, backward->n_recompute);
    p->kernels += fmax(0, forward_kernels - backward->n_recompute);
  }
  backward->cost_s += accumulate_s(p, segment->graph);
  forward->cost_s = fmax(forward_s, forward_kernels * p->software->host_call_s);
  backward->cost_s = fmax(backward->cost_s, p->kernels * p->software->host_call_s);
}

void zp_software_price(zp_lowered *lowered, const zp_machine *machine, const zp_software *software,
                       bool recompute_scores) {
  pricer p = {lowered, machine, software, recompute_scores, NULL, 0};
  for (int i = 0; i < lowered->n_segments; i++) price_segment(&p, &lowered->segments[i]);
}

/* The planner's GPU trainer reduces gradients beside the last backward. Software that does not waits for all of it;
 * software that overlaps both ways also gathers ZeRO's weights beside the first forward of the next step. */
double zp_software_data_s(const zp_program *program, const zp_machine *machine, const zp_estimate *e,
                          const zp_software *software) {
  double longer = 0;
  for (int s = 0; s < program->choice.pipeline; s++) {
    const zp_stage *stage = &program->stages[s];
    zp_step_end end = zp_cost_step_end(zp_program_lowered(program, s), machine, &program->choice, stage->flat_elements,
                                       stage->shard_elements);
    double exposed = zp_cost_exposed_reduce(machine, end.reduce_s, e->stage_backward_s[s], stage->n_units);
    double change = software->overlaps_data ? -fmin(end.gather_s, e->stage_forward_s[s]) : end.reduce_s - exposed;
    if (s == 0 || change > longer) longer = change;
  }
  return longer;
}

/* One gather or scatter of a parameter: the pass, and one copy a rank where the software collects pieces in a list. */
static double piece_s(const zp_group_link *link, const zp_software *software, double bytes) {
  return zp_cost_ring_pass(link, bytes) + (software->gather_copies ? link->n * COPY_CALL_S : 0);
}

/* ZeRO 3 tensor by tensor, nothing beside it: two gathers and a scatter of every parameter that is not kept resident;
 * those are gathered once a step. */
static double segment_gathers_s(const zp_lowered *l, const zp_segment_program *segment, const zp_group_link *link,
                                const zp_software *software, double microbatches) {
  double seconds = 0;
  for (int i = 0; i < segment->graph->params.len; i++) {
    double elements = (double)l->param_elements[segment->graph->params.data[i].param];
    if (elements < RESIDENT_ELEMENTS)
      seconds += piece_s(link, software, elements * l->param_bytes) / microbatches;
    else
      seconds +=
          2 * piece_s(link, software, elements * l->param_bytes) + piece_s(link, software, elements * l->grad_bytes);
  }
  return seconds;
}

double zp_software_gathers_s(const zp_program *program, const zp_machine *machine, const zp_software *software) {
  const zp_choice *c = &program->choice;
  if (c->zero < 3 || c->data == 1 || !software->gathers_wait) return 0;
  zp_group_link link = zp_machine_data_group(machine, c->tensor, c->pipeline, c->data, c->order);
  double longest = 0;
  for (int s = 0; s < c->pipeline; s++) {
    const zp_stage *stage = &program->stages[s];
    double seconds = 0;
    for (int r = 0; r < stage->runs.len; r++)
      seconds += (double)stage->runs.data[r].count *
                 segment_gathers_s(program->lowered, &program->lowered->segments[stage->runs.data[r].segment], &link,
                                   software, (double)program->microbatches);
    for (int k = 0; k < stage->n_chunks; k++)
      seconds -= zp_cost_chunk(zp_program_lowered(program, s), machine, c, stage, k).data_s;
    longest = fmax(longest, seconds);
  }
  return longest * (double)program->microbatches;
}

/* Host time of a stage's update: every parameter's gradient is converted and its references handled by itself, whatever
 * its size (megatron/optimizer/optimizer.py); the rest runs over lists of tensors. */
enum { UPDATE_CALLS = 3 };

static double update_calls_s(const zp_program *program, const zp_stage *stage) {
  double tensors = 0;
  for (int r = 0; r < stage->runs.len; r++)
    tensors +=
        (double)stage->runs.data[r].count * program->lowered->segments[stage->runs.data[r].segment].graph->params.len;
  return tensors * UPDATE_CALLS * COPY_CALL_S;
}

double zp_software_update_s(const zp_program *program, const zp_machine *machine, const zp_estimate *e,
                            const zp_software *software) {
  double longest = 0;
  if (software->update_bytes <= 0) return 0;
  for (int s = 0; s < program->choice.pipeline; s++) {
    const zp_stage *stage = &program->stages[s];
    double device = zp_cost_memory_bound(machine, (double)stage->shard_elements * software->update_bytes, 0);
    longest = fmax(longest, fmax(device, update_calls_s(program, stage) - e->optimizer_s));
  }
  return longest;
}
