/* Memory of the measured software, stage by stage: that of the planner's program, with what the software keeps, gathers
 * and works in put in the place of the program's own:
 *
 *   saved      without recomputation what autograd keeps (autograd.c), and attention's scores before FlashAttention;
 *              with checkpoints on the host, two units' worth
 *   gathered   ZeRO 3 by tensors instead of two whole units
 *   working    the scores of the layer at hand, the loss in fp32
 *   besides    half-precision gradients beside the fp32 ones that sum them, communicators that the context lacks */
#include "validate_internal.h"

/* Per element of the score matrix: softmax and dropout results (2 each), the mask; a gradient while backward runs. */
enum { KEPT_SCORE_BYTES = 5, GRADIENT_SCORE_BYTES = 2 };
/* Of an NCCL communicator on A100: 544 to 688 MB; NVIDIA/nccl issue 964. */
#define COMMUNICATOR_BYTES INT64_C(600000000)
/* DeepSpeed's ZeRO 3, elements: what may stay gathered (stage3_max_live_parameters), what is fetched ahead
 * (stage3_prefetch_bucket_size), gradients collected before a reduction (reduce_bucket_size);
 * microsoft/DeepSpeedExamples Megatron-LM-v1.1.5-ZeRO3/examples/ds_zero_stage_3_config_release.json. */
enum { MAX_LIVE = 1000000000, PREFETCH = 50000000, REDUCE_BUCKET = 90000000 };

static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t scores_of(const zp_lowered *l, const zp_segment_program *segment) {
  for (int i = 0; i < segment->forward.steps.len; i++) {
    const zp_step *step = &segment->forward.steps.data[i];
    if (step->kind != ZP_STEP_NODE || step->op != ZP_OP_ATTENTION) continue;
    int64_t s = segment->graph->tensors.data[step->node->in.data[0]].shape.dim[1];
    return l->microbatch * step->node->attr.heads * s * s;
  }
  return 0;
}

static int64_t logits_of(const zp_lowered *l, const zp_segment_program *segment) {
  for (int i = 0; i < segment->backward.steps.len; i++) {
    const zp_step *step = &segment->backward.steps.data[i];
    if (step->kind == ZP_STEP_NODE && step->op == ZP_OP_CE_GRAD)
      return zp_shape_elements(&segment->graph->tensors.data[step->node->in.data[0]].shape, l->microbatch);
  }
  return 0;
}

typedef struct asking {
  const zp_program *program;
  const zp_software *software;
  const zp_lowered *lowered; /* of the stage at hand */
  bool keeps_scores, by_operations;
} asking;

/* Segment 1 of a measured model are its layers (model.c). */
static int64_t saved_bytes(const asking *a, const zp_stage *stage) {
  const zp_lowered *l = a->lowered;
  if (l->recompute != ZP_RECOMPUTE_NONE)
    return a->software->host_checkpoints ? min64(stage->memory.saved, 2 * l->segments[1].saved_bytes)
                                         : stage->memory.saved;
  int64_t bytes = 0;
  for (int r = 0; r < stage->runs.len; r++) {
    const zp_run *run = &stage->runs.data[r];
    int64_t unit = zp_autograd_kept_bytes(a->program->arena, l->sharding->local[run->segment], l->microbatch,
                                          l->compute_bytes, a->by_operations);
    if (a->keeps_scores) unit += scores_of(l, &l->segments[run->segment]) * KEPT_SCORE_BYTES;
    bytes += unit * run->count;
  }
  return bytes * stage->slots;
}

/* All gradients of one micro-batch stand beside those that sum them. */
static bool has_second_gradients(const asking *a) {
  return a->software->half_gradients || (a->software->gradient_buckets && a->program->choice.data > 1);
}

/* Without that, a weight's gradient of one micro-batch is a tensor of its own before it is added to earlier ones. */
static int64_t fresh_gradient_bytes(const asking *a, const zp_segment_program *segment) {
  bool added = a->software->accumulate_bytes > 0 && a->program->microbatches > 1 && a->program->choice.zero < 2;
  int64_t largest = 0;
  for (int i = 0; added && !has_second_gradients(a) && i < segment->graph->params.len; i++)
    largest = max64(largest, a->lowered->param_elements[segment->graph->params.data[i].param]);
  return largest * a->lowered->compute_bytes;
}

/* Of the unit that needs most. The gradient of the scores lives when those of the MLP are gone. */
static int64_t working_bytes(const asking *a, const zp_stage *stage) {
  int64_t most = 0;
  for (int r = 0; r < stage->runs.len; r++) {
    const zp_segment_program *segment = &a->lowered->segments[stage->runs.data[r].segment];
    int64_t bytes = max64(segment->forward.transient_bytes, segment->backward.transient_bytes);
    int64_t scores = a->software->score_matrix ? scores_of(a->lowered, segment) : 0;
    bytes = max64(bytes, scores * GRADIENT_SCORE_BYTES) + (a->keeps_scores ? 0 : scores * KEPT_SCORE_BYTES);
    bytes += logits_of(a->lowered, segment) * a->software->loss_bytes;
    most = max64(most, bytes + fresh_gradient_bytes(a, segment));
  }
  return most;
}

static int64_t largest_parameter(const zp_lowered *l) {
  int64_t largest = 0;
  for (int p = 0; p < l->spec->model->params.len; p++) largest = max64(largest, l->param_elements[p]);
  return largest;
}

/* What the program's rings of two units hold more than the software has gathered, or waiting to be scattered. */
static int64_t ring_excess(const asking *a, const zp_stage *stage) {
  const zp_lowered *l = a->lowered;
  if (a->program->choice.zero < 3 || !a->software->gathers_tensors) return 0;
  int64_t ring = 2 * stage->bucket_elements, largest = largest_parameter(l);
  int64_t params = min64(ring, max64(largest, MAX_LIVE) + PREFETCH), grads = min64(ring, largest + REDUCE_BUCKET);
  return (ring - params) * l->param_bytes + (ring - grads) * l->grad_bytes;
}

/* Copies of the gradients that the update is made from. */
static int64_t copy_bytes(const asking *a, const zp_stage *stage) {
  const zp_choice *c = &a->program->choice;
  int64_t copies = c->home[ZP_STATE_OPTIMIZER].tier == ZP_TIER_DEVICE ? a->software->update_copies : 0;
  return stage->shard_elements * (c->zero > 0 ? min64(copies, 4) : copies);
}

/* What a stage has sent, in one buffer more than are in flight; of pieces, one is whole again in backward. */
static int64_t output_bytes(const asking *a, const zp_stage *stage) {
  int64_t one = a->lowered->segments[1].carry_out_elements * a->lowered->compute_bytes;
  if (!a->software->partitioned_outputs) return (stage->slots + 1) * one;
  return (stage->slots + 1) * one / a->program->choice.tensor + one;
}

/* At the peak of the micro-batches. */
static int64_t batch_bytes(const asking *a, const zp_stage *stage) {
  const zp_choice *c = &a->program->choice;
  int64_t transient = stage->at_transient < 0 ? 0 : stage->arena_bytes - stage->at_transient;
  int64_t bytes = stage->arena_bytes - transient + working_bytes(a, stage);
  bytes += saved_bytes(a, stage) - stage->memory.saved - ring_excess(a, stage);
  if (has_second_gradients(a)) bytes += stage->flat_elements * a->lowered->compute_bytes;
  if (c->data > 1) bytes += a->software->reduce_bucket * a->lowered->compute_bytes;
  if (a->software->keeps_outputs && c->pipeline > 1) bytes += output_bytes(a, stage);
  return bytes;
}

/* In the update there are no activations. */
static int64_t update_bytes(const asking *a, const zp_stage *stage) {
  const zp_memory *m = &stage->memory;
  return m->weights + m->gradients + m->optimizer + copy_bytes(a, stage);
}

/* Held though not in use: what went into a reduce-scatter on NCCL's stream is not reused before the device has passed
 * it, and the host issues a whole forward pass ahead (torch.Tensor.record_stream). An allocator that runs short waits
 * instead: this counts in what it reports, not in what fits. */
static int64_t waiting_bytes(const asking *a, const zp_stage *stage) {
  int64_t bytes = 0;
  for (int r = 0; r < stage->runs.len; r++) {
    const zp_run *run = &stage->runs.data[r];
    const zp_graph *graph = a->lowered->sharding->local[run->segment];
    for (int i = 0; i < graph->nodes.len; i++) {
      const zp_node *node = &graph->nodes.data[i];
      if (node->op == ZP_OP_REDUCE_SCATTER_SEQ)
        bytes += run->count * a->lowered->compute_bytes *
                 zp_shape_elements(&graph->tensors.data[node->in.data[0]].shape, a->lowered->microbatch);
    }
  }
  return bytes;
}

/* What the source's instrument shows of a stage's `used` bytes. Blocks of the micro-batches are too small for the
 * copies of the update, so the caching allocator takes these besides. */
static int64_t printed_bytes(const asking *a, const zp_stage *stage, int64_t used, int64_t outside) {
  if (a->software->prints_allocator) return used + (a->software->holds_scattered ? waiting_bytes(a, stage) : 0);
  if (a->software->prints_reserved) return batch_bytes(a, stage) + copy_bytes(a, stage) + outside;
  return used + outside;
}

zp_software_memory zp_software_peak(const zp_program *program, const zp_machine *machine, const zp_software *software,
                                    const char *recompute) {
  const zp_choice *c = &program->choice;
  asking a = {.program = program, .software = software};
  a.keeps_scores = software->score_matrix && recompute && strcmp(recompute, "none") == 0;
  a.by_operations = software->selects_operations && recompute && strcmp(recompute, "selective") == 0;
  int groups = (c->tensor > 1) + (c->pipeline > 1) + (c->data > 1), counted = software->context_bytes > 0 ? 0 : 1;
  int64_t outside = software->context_bytes > 0 ? software->context_bytes : machine->context_bytes;
  if (groups > counted) outside += (groups - counted) * COMMUNICATOR_BYTES;
  zp_software_memory m = {0};
  for (int s = 0; s < c->pipeline; s++) {
    const zp_stage *stage = &program->stages[s];
    a.lowered = zp_program_lowered(program, s);
    int64_t used = max64(batch_bytes(&a, stage), update_bytes(&a, stage));
    m.device = max64(m.device, used + outside);
    m.printed = max64(m.printed, printed_bytes(&a, stage, used, outside));
  }
  return m;
}
