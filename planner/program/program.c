/* The whole program of a choice: stages, order tables, tied parameters; readable text. */
#include "lower_internal.h"
#include "schedule.h"

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

zp_program *zp_program_make_stages(zp_arena *arena, const zp_lowered *lowered, const zp_choice *choice) {
  zp_program *p = ZP_NEW(arena, zp_program);
  p->arena = arena;
  p->spec = lowered->spec;
  p->choice = *choice;
  int64_t chunks = (int64_t)choice->pipeline * zp_chunks(choice);
  p->choice.cut = ZP_NEW_ARRAY(arena, int64_t, chunks + 1);
  memcpy(p->choice.cut, choice->cut, sizeof *choice->cut * (size_t)(chunks + 1));
  p->lowered = lowered;
  p->microbatches = zp_microbatches(p->spec, choice);
  p->stages = ZP_NEW_ARRAY(arena, zp_stage, choice->pipeline);
  for (int s = 0; s < choice->pipeline; s++) zp_layout_stage(arena, lowered, choice, s, &p->stages[s]);
  find_tied(p);
  return p;
}

bool zp_program_runs(const zp_program *p, int segment) {
  for (int s = 0; s < p->choice.pipeline; s++)
    for (int r = 0; r < p->stages[s].runs.len; r++)
      if (p->stages[s].runs.data[r].segment == segment) return true;
  return false;
}

zp_program *zp_program_make(zp_arena *arena, const zp_lowered *lowered, const zp_choice *choice) {
  zp_program *p = zp_program_make_stages(arena, lowered, choice);
  p->actions = ZP_NEW_ARRAY(arena, int64_t, choice->pipeline);
  p->order = zp_orders(arena, choice, p->microbatches, p->actions);
  return p;
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
