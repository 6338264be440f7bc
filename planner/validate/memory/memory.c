/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the measured software, stage by stage: that of the planner's program, with what the software keeps, gathers
 * and works in put in the place of the program's own:
 *
 *   saved      without recomputation what autograd keeps (autograd.c), and attention's scores before FlashAttention;
 *              with checkpoints on the host, two units' worth; masks of dropout
 *   gathered   ZeRO 3 by tensors instead of two whole units
 *   working    the backward of the unit that holds most, the loss in fp32
 *   besides    gradients that stand for others (stand_ins.c), half-precision gradients alongside the fp32 ones that sum
 * them, temporaries of the update (temporaries.c), the context and communicators (communicators.c)
 *
 * A framework that plans its memory statically has no pool that a later phase draws from: what runs once a step lies
 * alongside what runs once a micro-batch. Between stages it buffers (OneFlow, oneflow/core/job_rewriter/
 * pipeline_buffer_pass.cpp of June 2021; opened): forward to backward twice the stages, except on the last; of a
 * tensor that two stages share one copy where it is made and as many where it is read as stages lie between; its
 * gradient once at each end. */
#include "software_memory.h"
#include "validate_internal.h"

/* Per element of the score matrix: softmax and dropout results (2 each), the mask; a gradient while backward runs. */
enum { KEPT_SCORE_BYTES = 5, GRADIENT_SCORE_BYTES = 2 };
/* Masks of dropout in a layer: after attention, after the MLP. */
enum { LAYER_MASKS = 2 };
/* DeepSpeed's ZeRO 3, elements: what may stay gathered (stage3_max_live_parameters), what is fetched ahead
 * (stage3_prefetch_bucket_size), gradients collected before a reduction (reduce_bucket_size);
 * microsoft/DeepSpeedExamples Megatron-LM-v1.1.5-ZeRO3/examples/ds_zero_stage_3_config_release.json. */
enum { MAX_LIVE = 1000000000, PREFETCH = 50000000, REDUCE_BUCKET = 90000000 };
/* Segments of a measured model (model.c). */
enum { BEGIN = 0, LAYER = 1 };

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

/* ---- what waits for backward ---- */

static int64_t mask_bytes(const asking *a, int segment) {
  int64_t elements = a->lowered->segments[segment].carry_out_elements;
  return a->software->dropout && segment == LAYER ? LAYER_MASKS * elements : 0;
}

/* Bytes that one unit keeps for backward without recomputation. */
static int64_t kept_bytes(const asking *a, int segment) {
  const zp_lowered *l = a->lowered;
  const zp_graph *local = l->sharding->local[segment];
  int64_t bytes = zp_autograd_kept_bytes(a->program->arena, local, l->microbatch, l->compute_bytes, a->by_operations);
  if (a->software->joint_queries) bytes += zp_autograd_joint_bytes(local, l->microbatch, l->compute_bytes);
  if (a->keeps_scores) bytes += scores_of(l, &l->segments[segment]) * KEPT_SCORE_BYTES;
  return bytes + mask_bytes(a, segment);
}

static int64_t checkpoint_bytes(const asking *a, const zp_stage *stage) {
  const zp_choice *c = &a->program->choice;
  if (a->software->host_checkpoints) return min64(stage->memory.saved, 2 * a->lowered->segments[LAYER].saved_bytes);
  bool buffers = a->software->static_plan && a->program->microbatches > 1 && stage->index + 1 < c->pipeline;
  return buffers ? stage->memory.saved / stage->slots * 2 * c->pipeline : stage->memory.saved;
}

/* Bytes that all micro-batches in flight keep. Several chunks: a micro-batch in flight keeps what one chunk keeps. The
 * stage's slots bound how many there are of all chunks, each chunk's slots how many of it; an allocator without slots
 * needs no more than either. */
static int64_t saved_bytes(const asking *a, const zp_stage *stage) {
  if (a->lowered->recompute == ZP_RECOMPUTE_FULL) return checkpoint_bytes(a, stage);
  int64_t largest = 0, each = 0;
  for (int k = 0; k < stage->n_chunks; k++) {
    int64_t bytes = 0;
    for (int r = 0; r < stage->runs.len; r++)
      if (stage->runs.data[r].chunk == k)
        bytes += kept_bytes(a, stage->runs.data[r].segment) * stage->runs.data[r].count;
    largest = max64(largest, bytes);
    each += stage->chunks[k].slots * bytes;
  }
  return min64(stage->slots * largest, each);
}

/* What the embedding leaves, which is in the first chunk: it is in no checkpoint. */
static int64_t embedding_bytes(const asking *a, const zp_stage *stage) {
  if (stage->index > 0) return 0;
  int64_t elements = a->lowered->segments[BEGIN].carry_out_elements;
  int64_t norm = a->software->embedding_norm ? elements * a->lowered->compute_bytes : 0;
  return stage->chunks[0].slots * (norm + (a->software->dropout ? elements : 0));
}

/* ---- working memory ---- */

/* All gradients of one micro-batch stand alongside those that sum them. */
static bool has_second_gradients(const asking *a) {
  return a->software->half_gradients || (a->software->gradient_buckets && a->program->choice.data > 1);
}

/* Without that, a weight's gradient of one micro-batch is a tensor of its own before it is added to earlier ones. */
static bool has_fresh_gradients(const asking *a) {
  return a->software->accumulate_bytes > 0 && a->program->microbatches > 1 &&
         !zp_shards_gradients(&a->program->choice) && !has_second_gradients(a);
}

/* The program's own backward, with scores in device memory, and the loss. The gradient of the scores lives when those
 * of the MLP are gone. */
static int64_t program_working(const asking *a, int index) {
  const zp_segment_program *segment = &a->lowered->segments[index];
  int64_t bytes = max64(segment->forward.transient_bytes, segment->backward.transient_bytes);
  int64_t scores = a->software->score_matrix ? scores_of(a->lowered, segment) : 0, fresh = 0;
  bytes = max64(bytes, scores * GRADIENT_SCORE_BYTES) + (a->keeps_scores ? 0 : scores * KEPT_SCORE_BYTES);
  bytes += logits_of(a->lowered, segment) * a->software->loss_bytes;
  for (int i = 0; has_fresh_gradients(a) && i < segment->graph->params.len; i++)
    fresh = max64(fresh, a->lowered->param_elements[segment->graph->params.data[i].param]);
  return bytes + fresh * a->lowered->compute_bytes + zp_software_stand_in_of_head(a, index);
}

/* What autograd holds beyond what the unit keeps in any case. */
static int64_t autograd_working(const asking *a, int index) {
  const zp_lowered *l = a->lowered;
  const zp_segment_program *segment = &l->segments[index];
  int64_t scores = a->software->score_matrix ? scores_of(l, segment) : 0;
  zp_autograd_scores of_scores = {scores * KEPT_SCORE_BYTES, scores * GRADIENT_SCORE_BYTES};
  int64_t bytes = zp_autograd_backward_bytes(a->program->arena, l->sharding->local[index], l->microbatch,
                                             l->compute_bytes, &of_scores, has_fresh_gradients(a));
  bool all = l->recompute != ZP_RECOMPUTE_FULL;
  return max64(0, bytes + mask_bytes(a, index) - (all ? kept_bytes(a, index) : segment->saved_bytes));
}

/* What the unit with the loss keeps, where that is gone before other units work: autograd frees it on its way back, a
 * static plan gives its place to others. */
static int64_t freed_first(const asking *a, int index) {
  const zp_segment_program *segment = &a->lowered->segments[index];
  bool frees = a->software->autograd || a->software->static_plan;
  if (!frees || logits_of(a->lowered, segment) == 0) return 0;
  return a->lowered->recompute != ZP_RECOMPUTE_FULL ? kept_bytes(a, index) : segment->saved_bytes;
}

/* Working memory of the unit that needs most, besides what waits for its backward. */
static int64_t working_bytes(const asking *a, const zp_stage *stage) {
  int64_t most = 0, first = 0;
  for (int r = 0; r < stage->runs.len; r++) {
    int index = stage->runs.data[r].segment;
    const zp_segment_program *segment = &a->lowered->segments[index];
    bool autograd = a->software->autograd && logits_of(a->lowered, segment) == 0;
    int64_t own = freed_first(a, index);
    most = max64(most, own + (autograd ? autograd_working(a, index) : program_working(a, index)));
    first += own;
  }
  return most - first;
}

static int64_t largest_parameter(const zp_lowered *l) {
  int64_t largest = 0;
  for (int p = 0; p < l->spec->model->params.len; p++) largest = max64(largest, l->param_elements[p]);
  return largest;
}

/* What the program's rings of two units hold more than the software has gathered, or waiting to be scattered. */
static int64_t ring_excess(const asking *a, const zp_stage *stage) {
  const zp_lowered *l = a->lowered;
  if (!zp_shards_params(&a->program->choice) || !a->software->gathers_tensors) return 0;
  int64_t ring = 2 * zp_flat_trained(&stage->bucket), largest = largest_parameter(l);
  int64_t params = min64(ring, max64(largest, MAX_LIVE) + PREFETCH), grads = min64(ring, largest + REDUCE_BUCKET);
  return (ring - params) * l->param_bytes + (ring - grads) * l->grad_bytes;
}

/* What a stage has sent, in one buffer more than are in flight; of pieces, one is whole again in backward. */
static int64_t output_bytes(const asking *a, const zp_stage *stage) {
  if (!a->software->keeps_outputs || a->program->choice.pipeline == 1) return 0;
  int64_t one = a->lowered->segments[LAYER].carry_out_elements * a->lowered->compute_bytes;
  if (!a->software->partitioned_outputs) return (stage->slots + 1) * one;
  return (stage->slots + 1) * one / a->program->choice.tensor + one;
}

/* Copies of the embedding table and its gradient between the stages that share it. */
static int64_t shared_table_bytes(const asking *a, const zp_stage *stage) {
  enum { FLOAT_BYTES = 4, GRADIENTS = 1 };
  int stages = a->program->choice.pipeline;
  bool end = stage->index == 0 || stage->index == stages - 1;
  if (!a->software->static_plan || stages == 1 || !end) return 0;
  int copies = stage->index == 0 ? 1 : stages - 1;
  return (copies + GRADIENTS) * largest_parameter(a->lowered) * FLOAT_BYTES;
}

/* ---- phases ---- */

/* What stays during the micro-batches, without what one unit works in. */
static int64_t held_bytes(const asking *a, const zp_stage *stage) {
  int64_t transient = stage->bytes[ZP_REGION_TRANSIENT];
  int64_t bytes = stage->arena_bytes - transient + saved_bytes(a, stage) - stage->memory.saved - ring_excess(a, stage);
  if (has_second_gradients(a)) bytes += zp_flat_trained(&stage->flat) * a->lowered->compute_bytes;
  bytes += zp_software_stand_ins(a, stage);
  return bytes + output_bytes(a, stage) + embedding_bytes(a, stage) + shared_table_bytes(a, stage);
}

/* At the peak of a step. In the reduction and the update there are no activations. */
static int64_t used_bytes(const asking *a, const zp_stage *stage) {
  zp_temporaries t = zp_software_temporaries(a, stage);
  const zp_memory *m = &stage->memory;
  int64_t held = held_bytes(a, stage), states = m->weights + m->gradients + m->optimizer;
  int64_t batch = held + max64(working_bytes(a, stage), t.sum);
  if (a->software->static_plan && a->program->microbatches > 1) return batch + t.update;
  int64_t reduce = held - saved_bytes(a, stage) + t.reduce;
  return max64(max64(batch, reduce), states + max64(t.norm, t.flat + t.update));
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

/* What the allocator has taken from the driver: what lies there during the micro-batches, then the temporaries, each
 * larger than the blocks that were freed before it (reserved.c). */
static int64_t reserved_bytes(const asking *a, const zp_stage *stage) {
  zp_temporaries t = zp_software_temporaries(a, stage);
  zp_reserved r = {.bytes = held_bytes(a, stage) + working_bytes(a, stage)};
  const int64_t passing[] = {t.sum, t.reduce, t.norm};
  for (size_t i = 0; i < sizeof passing / sizeof *passing; i++) {
    zp_reserved_take(&r, passing[i]);
    zp_reserved_give(&r, passing[i]);
  }
  zp_reserved_take(&r, t.flat);
  zp_reserved_take(&r, t.update);
  return r.bytes;
}

/* What the source's instrument shows of a stage's `used` bytes. */
static int64_t printed_bytes(const asking *a, const zp_stage *stage, int64_t used, int64_t outside) {
  if (a->software->prints_first_stage && stage->index > 0) return 0;
  if (a->software->prints_allocator) return used + (a->software->holds_scattered ? waiting_bytes(a, stage) : 0);
  return (a->software->prints_reserved ? reserved_bytes(a, stage) : used) + outside;
}

zp_software_memory zp_software_peak(const zp_program *program, const zp_machine *machine, const zp_software *software,
                                    bool known) {
  const zp_choice *c = &program->choice;
  asking a = {.program = program, .software = software};
  int64_t context = zp_gpu_context_bytes(machine->node->device.name);
  zp_software_memory m = {0};
  for (int s = 0; s < c->pipeline; s++) {
    const zp_stage *stage = &program->stages[s];
    a.lowered = zp_program_lowered(program, s);
    a.keeps_scores = known && software->score_matrix && a.lowered->recompute == ZP_RECOMPUTE_NONE;
    a.by_operations = software->selects_operations && a.lowered->recompute == ZP_RECOMPUTE_SELECTIVE;
    int64_t used = used_bytes(&a, stage);
    int64_t outside = context + zp_software_communicators(c, machine, &software->communicators, s);
    m.device = max64(m.device, used + outside);
    m.printed = max64(m.printed, printed_bytes(&a, stage, used, outside));
  }
  return m;
}
