/* Bytes that all ranks together send in one step, by axis, with ring algorithms: what the runtime counts. */
#include "lower_internal.h"
#include "schedule.h"

/* Elements that one call of a procedure sends, all tensor ranks together: ring all-reduce 2 (t - 1) * count, all-gather
 * of blocks (t - 1) * t * count, reduce-scatter (t - 1) * count. */
static int64_t tensor_elements(const zp_lowered *l, const zp_procedure *p, int64_t *stat_elements) {
  int64_t t = l->sharding->tensor, elements = 0;
  for (int s = 0; s < p->steps.len; s++) {
    const zp_step *step = &p->steps.data[s];
    if (step->comm_elements == 0 || zp_step_is_exchange(step)) continue;
    if (step->kind == ZP_STEP_GATHER_SHARD || step->op == ZP_OP_ALL_GATHER_SEQ)
      elements += (t - 1) * t * step->comm_elements;
    else if (step->op == ZP_OP_REDUCE_SCATTER_SEQ)
      elements += (t - 1) * step->comm_elements;
    else if (step->op == ZP_OP_GATHER_STATS)
      *stat_elements += (t - 1) * t * step->comm_elements;
    else
      elements += 2 * (t - 1) * step->comm_elements;
  }
  return elements;
}

/* An exchange leaves one of e parts at home. Of all members of a group. */
static int64_t expert_elements(const zp_lowered *l, const zp_procedure *p) {
  int64_t elements = 0;
  for (int s = 0; s < p->steps.len; s++)
    if (zp_step_is_exchange(&p->steps.data[s])) elements += (l->sharding->expert - 1) * p->steps.data[s].comm_elements;
  return elements;
}

static int64_t expert_bytes(const zp_program *p, const zp_stage *stage) {
  const zp_lowered *l = zp_program_lowered(p, stage->index);
  int64_t elements = 0, groups = (int64_t)p->choice.tensor * p->choice.data / zp_expert_ranks(&p->choice);
  for (int r = 0; r < stage->runs.len; r++) {
    const zp_segment_program *seg = &l->segments[stage->runs.data[r].segment];
    elements += (expert_elements(l, &seg->forward) + expert_elements(l, &seg->backward)) * stage->runs.data[r].count;
  }
  return elements * l->compute_bytes * p->microbatches * groups;
}

static int64_t tensor_bytes(const zp_program *p, const zp_stage *stage) {
  const zp_lowered *l = zp_program_lowered(p, stage->index);
  int64_t bytes = 0;
  for (int r = 0; r < stage->runs.len; r++) {
    const zp_segment_program *seg = &l->segments[stage->runs.data[r].segment];
    int64_t stats = 0,
            elements = tensor_elements(l, &seg->forward, &stats) + tensor_elements(l, &seg->backward, &stats);
    bytes += (elements * l->compute_bytes + stats * l->stat_bytes) * stage->runs.data[r].count * p->microbatches;
  }
  int64_t partial = zp_partial_elements(p, stage).summed;
  return bytes * p->choice.data + 2 * (l->sharding->tensor - 1) * partial * l->grad_bytes;
}

/* Bytes of a pass over elements, (n - 1) times those, for the n ranks of every group: all d data ranks, and of what is
 * spread e groups of d / e. */
static int64_t pass_bytes(const zp_choice *c, zp_flat elements, int64_t element_bytes) {
  return ((c->data - 1) * elements.whole + (c->data - zp_expert_ranks(c)) * elements.spread) * element_bytes;
}

/* What the units of a stage work with, one after the other. */
static zp_flat units_need(const zp_program *p, const zp_stage *stage) {
  zp_flat sum = {0};
  for (int r = 0; r < stage->runs.len; r++) {
    const zp_run *run = &stage->runs.data[r];
    zp_flat unit = zp_unit_needs(p->lowered, &p->choice, run->segment);
    sum.whole += unit.whole * run->count;
    sum.spread += unit.spread * run->count;
  }
  return sum;
}

/* ZeRO 0: all-reduce of gradients, two passes. 1: reduce-scatter of gradients, all-gather of parameters. 2:
 * reduce-scatter of every unit's gradients after every micro-batch. 3: that, and two gathers of every unit's parameters
 * for every micro-batch. 1-bit: two passes of one bit an element and a scale of 4 bytes for every block of them;
 * `warmup`: before the variance freezes, ZeRO 0. */
static int64_t data_bytes(const zp_program *p, const zp_stage *stage, bool warmup) {
  const zp_lowered *l = p->lowered;
  const zp_choice *c = &p->choice;
  zp_flat all = {stage->flat_elements - stage->spread_elements, stage->spread_elements}, units = units_need(p, stage);
  int64_t gradients = c->zero >= 2 ? p->microbatches * pass_bytes(c, units, l->grad_bytes)
                                   : (c->zero == 0 ? 2 : 1) * pass_bytes(c, all, l->grad_bytes);
  int64_t parameters = c->zero == 3   ? 2 * p->microbatches * pass_bytes(c, units, l->param_bytes)
                       : c->zero == 0 ? 0
                                      : pass_bytes(c, all, l->param_bytes);
  int64_t bytes = gradients + parameters;
  if (c->compress && !warmup)
    bytes = 2 * (c->data - 1) * (stage->flat_elements / ZP_SIGNS_BLOCK * ZP_SIGNS_BLOCK_BYTES);
  return bytes * c->tensor;
}

/* Forward and backward between neighbouring chunks on different stages. */
static int64_t pipeline_bytes(const zp_program *p) {
  const zp_choice *c = &p->choice;
  int64_t bytes = 0;
  for (int64_t k = 1; k < (int64_t)c->pipeline * zp_chunks(c); k++) {
    int segment;
    int64_t iteration;
    if (zp_chunk_stage(c, k - 1, NULL) == zp_chunk_stage(c, k, NULL)) continue;
    zp_unit(p->lowered, c->cut[k], &segment, &iteration);
    bytes += 2 * p->lowered->segments[segment].carry_in_elements * p->lowered->compute_bytes * p->microbatches *
             c->tensor * c->data;
  }
  return bytes;
}

zp_traffic zp_program_traffic(const zp_program *program) {
  const zp_choice *c = &program->choice;
  zp_traffic traffic = {.pipeline = pipeline_bytes(program)};
  for (int s = 0; s < c->pipeline; s++) {
    traffic.tensor += tensor_bytes(program, &program->stages[s]);
    traffic.data += data_bytes(program, &program->stages[s], false);
    if (c->compress) traffic.warmup_data += data_bytes(program, &program->stages[s], true);
    traffic.expert += expert_bytes(program, &program->stages[s]);
  }
  for (int i = 0; i < program->tied.len; i++)
    traffic.tie += 2 * (program->tied.data[i].stages.len - 1) * program->tied.data[i].summed *
                   program->lowered->grad_bytes * c->tensor * c->data;
  return traffic;
}
