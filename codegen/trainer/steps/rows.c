/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of row programs: the kernel of a group, its operands, its column sums and its random stream. */
#include "steps.h"

#include <assert.h>
#include <zplan/zpd.h>
#include <zplan/zpk.h>

static void emit_list(zp_buf *out, const char *field, const char *type, const zp_strings *items) {
  if (items->len == 0) return;
  zp_buf_printf(out, " .%s = (%s[]){", field, type);
  for (int i = 0; i < items->len; i++) zp_buf_printf(out, "%s%s", i ? ", " : "", items->data[i]);
  zp_buf_puts(out, "},");
}

static void emit_list_line(zp_emit *e, const char *field, const char *type, const zp_strings *items, const char *field2,
                           const zp_strings *items2) {
  if (items->len == 0) return;
  zp_buf_puts(&e->out, "     ");
  emit_list(&e->out, field, type, items);
  emit_list(&e->out, field2, "const int64_t", items2);
  zp_buf_puts(&e->out, "\n");
}

static bool drops_out(const zp_step *s) {
  for (int i = 0; i < s->node->fused->ops.len; i++)
    if (s->node->fused->ops.data[i].op == ZP_OP_DROPOUT) return true;
  return false;
}

/* What the group's rows are. */
static const zp_tensor *rows_of(const zp_frame *f, const zp_step *s) {
  if (s->out.len) return zp_frame_tensor(f, s->out.data[0]);
  for (int i = 0; i < s->in.len; i++)
    if (zp_frame_buffer(f, s->in.data[i])->rows > 1) return zp_frame_tensor(f, s->in.data[i]);
  return zp_frame_tensor(f, s->in.data[0]);
}

/* Slots of several members' samples, every one with its own random stream. */
static bool has_streams(const zp_frame *f, const zp_step *s) {
  return drops_out(s) && zp_expert_ranks(&f->e->program->choice) > 1 && rows_of(f, s)->shape.rank == 4;
}

/* A rope or dropout of a rank whose positions are two stretches. */
static bool goes_by_stretches(const zp_step *s) {
  const zp_fused_op *first = &s->node->fused->ops.data[0];
  return (first->op == ZP_OP_ROPE || first->op == ZP_OP_DROPOUT) && first->attr.parts > 1;
}

/* Rows of a context rank's positions, of which a tensor rank has columns or a share. */
static void emit_context_column(zp_frame *f, const zp_step *s, const zp_tensor *rows) {
  int64_t local = zp_shape_cols(&rows->shape), positions = s->node->fused->rows_per_sample;
  if (s->node->fused->split)
    zp_buf_printf(&f->e->out, " .first_column = c->d %% CONTEXT * %lld + c->t * %lld,",
                  ZP_LL(positions * rows->full_dim), ZP_LL(local));
  else if (s->node->fused->split_rows)
    zp_buf_printf(&f->e->out, " .first_column = (c->d %% CONTEXT * TENSOR + c->t) * %lld,", ZP_LL(positions * local));
  else
    zp_buf_printf(&f->e->out, " .first_column = c->d %% CONTEXT * %lld,", ZP_LL(positions * local));
}

/* Columns of the group's random stream: only dropout reads them. */
static void emit_stream(zp_frame *f, const zp_step *s) {
  if (!drops_out(s)) return;
  const zp_tensor *rows = rows_of(f, s);
  int64_t local = zp_shape_cols(&rows->shape);
  bool split = s->node->fused->split, split_rows = s->node->fused->split_rows;
  zp_buf_printf(&f->e->out, "      .instance = %s, .first_sample = c->first_sample + mb * MICROBATCH,",
                f->seg->segment->is_repeat ? "layer" : "0");
  f->uses_layer |= f->seg->segment->is_repeat;
  if (zp_context_ranks(&f->e->program->choice) > 1 && !goes_by_stretches(s)) {
    emit_context_column(f, s, rows);
    zp_buf_printf(&f->e->out, " .logical_columns = %lld,\n", ZP_LL(split ? rows->full_dim : local));
    return;
  }
  if (split) zp_buf_printf(&f->e->out, " .first_column = c->t * %lld,", ZP_LL(local));
  if (has_streams(f, s)) /* columns of one sample's slots of the rank's experts */
    zp_buf_printf(&f->e->out, " .first_column = (c->t * EXPERT + c->d %% EXPERT) * %lld,",
                  ZP_LL(s->node->fused->rows_per_sample / zp_expert_ranks(&f->e->program->choice) * local));
  else if (split_rows && !goes_by_stretches(s)) /* whole rows of a share: experts, or positions */
    zp_buf_printf(&f->e->out, " .first_column = c->t * %lld,", ZP_LL(s->node->fused->rows_per_sample * local));
  zp_buf_printf(&f->e->out, " .logical_columns = %lld,\n", ZP_LL(split ? rows->full_dim : local));
}

static bool reads_rows(const zp_step *s, int i) {
  const zp_fused *fused = s->node->fused;
  if (s->op == ZP_OP_FUSED) return fused->operand[i] == ZP_OPERAND_ROWS;
  zp_grad_arg arg = s->node->grad_in.data[i];
  return arg.use != ZP_USE_SAVED || arg.value >= fused->n_in || fused->operand[arg.value] == ZP_OPERAND_ROWS;
}

static int64_t step_rows(const zp_frame *f, const zp_step *s) {
  int64_t rows = 1, parts = s->node->fused->row_parts;
  if (s->op == ZP_OP_FUSED) return zp_frame_buffer(f, s->out.data[0])->rows * parts;
  for (int i = 0; i < s->in.len; i++)
    if (reads_rows(s, i)) rows = zp_frame_buffer(f, s->in.data[i])->rows;
  return rows * parts;
}

/* Elements from one row of the group to the next. */
static int64_t step_ld(const zp_frame *f, const zp_step *s, int buffer, bool rows) {
  const zp_buffer *b = zp_frame_buffer(f, buffer);
  int64_t parts = rows ? s->node->fused->row_parts : 1;
  assert(parts == 1 || b->ld == b->cols); /* rows of a view do not follow one another */
  return b->ld / parts;
}

/* Rows of the group that a position has. */
static const char *times_parts(const zp_frame *f, const zp_step *s) {
  int64_t parts = s->node->fused->row_parts;
  return parts == 1 ? "" : zp_format(f->e->arena, " * %lld", ZP_LL(parts));
}

void zp_print_rows(zp_frame *f, const zp_step *s) {
  zp_emit *e = f->e;
  const char *hint =
      zp_format(e->arena, "%s_%s%s", f->seg->segment->name, s->node->name, s->op == ZP_OP_FUSED_GRAD ? "_grad" : "");
  const char *kernel = zp_kernels_add(e->kernels, f->seg->graph, s->node, zp_emit_identifier(e->arena, hint));
  const zp_shape *shape = &rows_of(f, s)->shape;
  zp_shape matrix = zp_emit_matrix_of(e, shape, step_rows(f, s), zp_shape_cols(shape) / s->node->fused->row_parts);
  zp_kernels_note(e->kernels, kernel, zp_emit_shape(e, &matrix));
  zp_strings in = {0}, in_ld = {0}, out = {0}, out_ld = {0}, sum = {0}, cols = {0}, acc = {0}, step = {0};
  for (int i = 0; i < s->in.len; i++) {
    const zp_buffer *x = zp_frame_buffer(f, s->in.data[i]);
    const char *own = x->tensor >= 0 ? zp_frame_own_rows(f, zp_frame_tensor(f, s->in.data[i])) : "";
    zp_push(e->arena, &in, zp_format(e->arena, "%s%s", zp_frame_name(f, s->in.data[i]), own));
    zp_push(e->arena, &in_ld, zp_format(e->arena, "%lld", ZP_LL(step_ld(f, s, s->in.data[i], reads_rows(s, i)))));
    zp_push(e->arena, &step, reads_rows(s, i) ? in_ld.data[i] : "0");
  }
  for (int i = 0; i < s->out.len; i++) {
    zp_push(e->arena, &out, zp_frame_name(f, s->out.data[i]));
    zp_push(e->arena, &out_ld, zp_format(e->arena, "%lld", ZP_LL(step_ld(f, s, s->out.data[i], true))));
  }
  for (int i = 0; i < s->sums.len; i++) {
    int param = f->seg->graph->params.data[s->sums.data[i].use].param;
    zp_push(e->arena, &sum, zp_frame_gradient(f, s->sums.data[i].use));
    zp_push(e->arena, &cols, zp_format(e->arena, "%lld", ZP_LL(e->lowered->param_elements[param])));
    zp_push(e->arena, &acc, zp_frame_accumulate(f, &s->sums.data[i]));
  }
  bool streams = has_streams(f, s);
  const char *chosen = s->out.len ? zp_frame_chosen(f, s->out.data[0]) : NULL;
  bool stretches = goes_by_stretches(s);
  zp_buf_line(&e->out, "zpr_%srows%s(c, &(zpr_rows_call){",
              streams  ? "slot_"
              : chosen ? "chosen_"
                       : "",
              stretches ? "_by_keys" : "");
  if (e->gpu && f->stretch && !chosen)
    zp_buf_line(&e->out, "    .device = &%s, .first = p.first%s, .rows = p.n%s, .n_in = %d, .n_out = %d,", kernel,
                times_parts(f, s), times_parts(f, s), s->in.len, s->out.len);
  else if (e->gpu)
    zp_buf_line(&e->out, "    .device = &%s, .rows = %lld, .n_in = %d, .n_out = %d,", kernel, ZP_LL(step_rows(f, s)),
                s->in.len, s->out.len);
  else if (f->stretch && !chosen)
    zp_buf_line(&e->out, "    .kernel = %s, .first = p.first%s, .rows = p.n%s,", kernel, times_parts(f, s),
                times_parts(f, s));
  else
    zp_buf_line(&e->out, "    .kernel = %s, .rows = %lld,", kernel, ZP_LL(step_rows(f, s)));
  emit_list_line(e, "in", "const void *const", &in, "in_ld", &in_ld);
  emit_list_line(e, "out", "void *const", &out, "out_ld", &out_ld);
  if (sum.len) assert(s->row_chunks == (e->gpu ? zpd_row_chunks(step_rows(f, s)) : ZPK_CHUNKS));
  if (sum.len) {
    zp_buf_printf(&e->out, "      .n_sums = %d,", sum.len);
    emit_list(&e->out, "sum", "void *const", &sum);
    emit_list(&e->out, "sum_cols", "const int64_t", &cols);
    zp_buf_puts(&e->out, "\n     ");
    emit_list(&e->out, "accumulate", "const bool", &acc);
    zp_buf_printf(&e->out, " .workspace = %s,\n", zp_frame_name(f, s->workspace));
  }
  if (streams || stretches) {
    zp_buf_printf(&e->out, "      .n_in = %d, .n_out = %d,", s->in.len, s->out.len);
    emit_list(&e->out, "in_step", "const int64_t", &step);
    zp_buf_puts(&e->out, "\n");
  }
  emit_stream(f, s);
  const zp_shape *slots = &rows_of(f, s)->shape;
  if (streams)
    zp_buf_line(&e->out, "}, MICROBATCH, %lld, %lld);", ZP_LL(slots->dim[1]),
                ZP_LL(slots->dim[2] / zp_expert_ranks(&e->program->choice)));
  else if (stretches)
    zp_buf_line(&e->out, "}, MICROBATCH, %s);", s->node->fused->split_rows ? "TENSOR" : "1");
  else if (chosen)
    zp_buf_line(&e->out, "}, %s);", chosen);
  else
    zp_buf_line(&e->out, "});");
}
