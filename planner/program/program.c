/* The whole program of a choice: stages, order tables, tied parameters; its traffic; readable text. */
#include "lower_internal.h"

#include <zplan/buf.h>

static void find_tied(zp_program *p) {
  const zp_model *model = p->spec->model;
  for (int param = 0; param < model->params.len; param++) {
    if (model->params.data[param].segment >= 0) continue;
    zp_tied tied = {.param = param, .elements = p->lowered->param_elements[param]};
    for (int s = 0; s < p->choice.pipeline; s++) {
      int64_t offset = zp_stage_shared(&p->stages[s], param);
      if (offset < 0) continue;
      zp_push(p->arena, &tied.stages, s);
      zp_push(p->arena, &tied.offset, offset);
    }
    if (tied.stages.len > 1) zp_push(p->arena, &p->tied, tied);
  }
}

zp_program *zp_program_make(zp_arena *arena, const zp_lowered *lowered, const zp_choice *choice) {
  zp_program *p = ZP_NEW(arena, zp_program);
  p->arena = arena;
  p->spec = lowered->spec;
  p->choice = *choice;
  p->choice.cut = ZP_NEW_ARRAY(arena, int64_t, choice->pipeline + 1);
  memcpy(p->choice.cut, choice->cut, sizeof *choice->cut * (size_t)(choice->pipeline + 1));
  p->lowered = lowered;
  p->microbatches = zp_microbatches(p->spec, choice);
  p->stages = ZP_NEW_ARRAY(arena, zp_stage, choice->pipeline);
  p->order = ZP_NEW_ARRAY(arena, zp_action *, choice->pipeline);
  for (int s = 0; s < choice->pipeline; s++) {
    zp_layout_stage(arena, lowered, choice, s, &p->stages[s]);
    p->order[s] = ZP_NEW_ARRAY(arena, zp_action, 2 * p->microbatches);
    zp_order_1f1b(choice->pipeline, s, p->microbatches, p->order[s]);
  }
  find_tied(p);
  return p;
}

/* Elements that one call of a procedure sends, all tensor ranks together: ring all-reduce 2(t-1) * count, all-gather of
 * blocks (t-1) * t * count. */
static int64_t tensor_elements(const zp_lowered *l, const zp_procedure *p, int64_t *stat_elements) {
  int64_t t = l->sharding->tensor, elements = 0;
  for (int s = 0; s < p->steps.len; s++) {
    const zp_step *step = &p->steps.data[s];
    if (step->comm_elements == 0) continue;
    if (step->kind == ZP_STEP_GATHER_SHARD)
      elements += (t - 1) * t * step->comm_elements;
    else if (step->op == ZP_OP_GATHER_STATS)
      *stat_elements += (t - 1) * t * step->comm_elements;
    else
      elements += 2 * (t - 1) * step->comm_elements;
  }
  return elements;
}

zp_traffic zp_program_traffic(const zp_program *program) {
  const zp_lowered *l = program->lowered;
  const zp_choice *c = &program->choice;
  zp_traffic traffic = {0};
  for (int s = 0; s < c->pipeline; s++) {
    const zp_stage *stage = &program->stages[s];
    for (int r = 0; r < stage->runs.len; r++) {
      const zp_segment_program *seg = &l->segments[stage->runs.data[r].segment];
      int64_t stats = 0,
              elements = tensor_elements(l, &seg->forward, &stats) + tensor_elements(l, &seg->backward, &stats);
      traffic.tensor += (elements * l->compute_bytes + stats * l->stat_bytes) * stage->runs.data[r].count *
                        program->microbatches * c->data;
    }
    /* ZeRO-0: all-reduce of gradients. ZeRO-1: reduce-scatter of gradients, all-gather of parameters. */
    int64_t once = (c->data - 1) * stage->flat_elements * c->tensor;
    traffic.data += once * l->grad_bytes + once * (c->zero >= 1 ? l->param_bytes : l->grad_bytes);
    if (s + 1 < c->pipeline) {
      int segment;
      int64_t iteration;
      zp_unit(l, c->cut[s + 1], &segment, &iteration);
      traffic.pipeline +=
          2 * l->segments[segment].carry_in_elements * l->compute_bytes * program->microbatches * c->tensor * c->data;
    }
  }
  for (int i = 0; i < program->tied.len; i++)
    traffic.tie += 2 * (program->tied.data[i].stages.len - 1) * program->tied.data[i].elements * l->grad_bytes *
                   c->tensor * c->data;
  return traffic;
}

const char *zp_procedure_text(zp_arena *arena, const zp_procedure *p) {
  static const char *const place[] = {"param",    "shared",    "saved",   "transient", "input",
                                      "carry_in", "carry_out", "grad_in", "grad_out"};
  static const char *const kind[] = {"", "keep_shard", "gather_shard", "copy"};
  zp_buf out = zp_buf_new(arena);
  zp_buf_line(&out, "procedure %s: %d steps (%d recomputed), transient %lld bytes", p->name, p->steps.len,
              p->n_recompute, (long long)p->transient_bytes);
  for (int b = 0; b < p->buffers.len; b++) {
    const zp_buffer *x = &p->buffers.data[b];
    zp_buf_line(&out, "  b%-3d %-28s %-9s [%lld, %lld] ld %lld at %lld bytes %lld base %d live %d..%d", b, x->name,
                place[x->place], (long long)x->rows, (long long)x->cols, (long long)x->ld, (long long)x->offset,
                (long long)x->bytes, x->base, x->first_step, x->last_step);
  }
  for (int s = 0; s < p->steps.len; s++) {
    const zp_step *step = &p->steps.data[s];
    zp_buf_printf(&out, "  s%-3d %-16s %-24s", s, step->kind ? kind[step->kind] : zp_op_name(step->op),
                  step->node ? step->node->name : "");
    for (int i = 0; i < step->in.len; i++) zp_buf_printf(&out, " b%d", step->in.data[i]);
    zp_buf_puts(&out, " ->");
    for (int i = 0; i < step->out.len; i++) zp_buf_printf(&out, " b%d", step->out.data[i]);
    for (int i = 0; i < step->sums.len; i++)
      zp_buf_printf(&out, " grad(%d)%s", step->sums.data[i].use, step->sums.data[i].accumulate ? "+" : "=");
    zp_buf_puts(&out, "\n");
  }
  return out.data;
}
