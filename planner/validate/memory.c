/* Memory of the measured software besides that of the program: what its attention keeps, the logits in fp32,
 * and one set of communication buffers for every group beyond the first, which the device's context
 * already counts. */
#include "validate_internal.h"

/* Per element of the score matrix: softmax and dropout results (2 each), the mask; a gradient while backward runs. */
enum { KEPT_SCORE_BYTES = 5, GRADIENT_SCORE_BYTES = 2 };
/* Per logit: an fp32 copy that becomes the softmax, and the gradient (megatron/mpu/cross_entropy.py). */
enum { LOSS_BYTES = 6 };
/* Of an NCCL communicator on A100: 544 to 688 MB; NVIDIA/nccl issue 964. */
#define COMMUNICATOR_BYTES INT64_C(600000000)

static double scores_of(const zp_lowered *l, const zp_segment_program *segment) {
  for (int i = 0; i < segment->forward.steps.len; i++) {
    const zp_step *step = &segment->forward.steps.data[i];
    if (step->kind != ZP_STEP_NODE || step->op != ZP_OP_ATTENTION) continue;
    double s = (double)segment->graph->tensors.data[step->node->in.data[0]].shape.dim[1];
    return (double)l->microbatch * (double)step->node->attr.heads * s * s;
  }
  return 0;
}

static double logits_of(const zp_lowered *l, const zp_segment_program *segment) {
  for (int i = 0; i < segment->backward.steps.len; i++) {
    const zp_step *step = &segment->backward.steps.data[i];
    if (step->kind == ZP_STEP_NODE && step->op == ZP_OP_CE_GRAD)
      return (double)zp_shape_elements(&segment->graph->tensors.data[step->node->in.data[0]].shape, l->microbatch);
  }
  return 0;
}

static double stage_extra(const zp_program *program, const zp_stage *stage, const zp_software *software,
                          bool keeps_scores) {
  const zp_lowered *l = zp_program_lowered(program, stage->index);
  double kept = 0, working = 0;
  for (int r = 0; r < stage->runs.len; r++) {
    const zp_segment_program *segment = &l->segments[stage->runs.data[r].segment];
    double scores = software->score_matrix ? scores_of(l, segment) : 0;
    bool megatron = software->score_matrix && software->separate_rows; /* its vocabulary-parallel loss */
    double loss = megatron ? logits_of(l, segment) * LOSS_BYTES : 0;
    double here = scores * (KEPT_SCORE_BYTES + GRADIENT_SCORE_BYTES) + loss;
    working = here > working ? here : working;
    if (keeps_scores) kept += scores * KEPT_SCORE_BYTES * (double)stage->runs.data[r].count * (double)stage->slots;
  }
  return kept + working;
}

int64_t zp_software_peak_bytes(const zp_program *program, const zp_machine *machine, const zp_software *software,
                               bool keeps_scores) {
  const zp_choice *c = &program->choice;
  int groups = (c->tensor > 1) + (c->pipeline > 1) + (c->data > 1);
  int64_t peak = 0, communicators = groups > 1 ? (groups - 1) * COMMUNICATOR_BYTES : 0;
  for (int s = 0; s < c->pipeline; s++) {
    double extra = stage_extra(program, &program->stages[s], software, keeps_scores);
    int64_t bytes = program->stages[s].arena_bytes + machine->context_bytes + communicators + (int64_t)extra;
    if (bytes > peak) peak = bytes;
  }
  return peak;
}
