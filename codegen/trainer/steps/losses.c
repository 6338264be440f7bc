/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of losses: statistics of the rank's columns, the loss made of all ranks', the gradient. */
#include "steps.h"

/* Operand i, which some cross-entropies have. */
static const char *lengths_of(const zp_frame *f, const zp_step *s, int i) {
  return s->in.len > i ? zp_frame_name(f, s->in.data[i]) : "NULL";
}

void zp_print_squared_error(zp_frame *f, const zp_step *s) {
  const zp_buffer *x = zp_frame_buffer(f, s->in.data[0]);
  bool grad = s->op == ZP_OP_SE_GRAD;
  zp_buf_line(&f->e->out, "zpr_squared_error%s(c, %d, %s, %s, %lld, %lld, %s%s%s);", grad ? "_grad" : "",
              s->node->attr.loss, zp_frame_name(f, s->in.data[0]), zp_frame_name(f, s->in.data[1]), ZP_LL(x->rows),
              ZP_LL(x->cols), grad ? zp_decimal(f->e->arena, s->node->attr.value) : "", grad ? ", " : "",
              zp_frame_name(f, s->out.data[0]));
}

/* An error has no classes: "1". */
static const char *classes_of(const zp_frame *f, const zp_step *s) {
  int64_t classes = s->node->attr.classes;
  if (s->in.len == 1) return "1";
  return classes == f->model->vocabulary ? "VOCABULARY" : zp_format(f->e->arena, "%lld", ZP_LL(classes));
}

/* The logical column that the rank's columns of the logits begin with. */
static const char *first_class(const zp_frame *f, const zp_step *s) {
  const zp_tensor *x = zp_frame_tensor(f, s->in.data[0]);
  return zp_frame_first(f, x, x->shape.rank - 1);
}

void zp_print_ce_stats(zp_frame *f, const zp_step *s) {
  const zp_buffer *x = zp_frame_buffer(f, s->in.data[0]);
  if (f->stretch)
    zp_buf_line(&f->e->out, "zpr_show_logits(c, %d, %s, %lld, %s);", s->node->attr.loss,
                zp_frame_first_row(f, s->in.data[0]), ZP_LL(x->cols), classes_of(f, s));
  else
    zp_buf_line(&f->e->out, "zpr_ce_stats(c, %d, %s, %lld, %s, %s, %s, %s, %lld, %s);", s->node->attr.loss,
                zp_frame_name(f, s->in.data[0]), ZP_LL(x->cols), first_class(f, s), classes_of(f, s),
                zp_frame_name(f, s->in.data[1]), lengths_of(f, s, 2), ZP_LL(x->rows), zp_frame_name(f, s->out.data[0]));
}

void zp_print_ce_loss(zp_frame *f, const zp_step *s) {
  const zp_buffer *stats = zp_frame_buffer(f, s->in.data[0]), *lse = zp_frame_buffer(f, s->out.data[0]);
  int64_t rows = lse->rows * lse->cols;
  zp_buf_line(&f->e->out, "zpr_ce_loss(c, %d, %s, %lld, %lld, %s, %s, %s);", s->node->attr.loss,
              zp_frame_name(f, s->in.data[0]), ZP_LL(stats->rows * stats->cols / (3 * rows)), ZP_LL(rows),
              classes_of(f, s), s->in.len > 1 ? zp_frame_name(f, s->in.data[1]) : "NULL",
              zp_frame_name(f, s->out.data[0]));
}

void zp_print_ce_grad(zp_frame *f, const zp_step *s) {
  const zp_buffer *x = zp_frame_buffer(f, s->in.data[0]);
  zp_buf_line(&f->e->out, "zpr_ce_grad(c, %d, %s, %lld, %s, %s, %s, %s, %s, (zpk_targets){%s, %s}, %lld, %s);",
              s->node->attr.loss, zp_frame_name(f, s->in.data[0]), ZP_LL(x->cols), first_class(f, s), classes_of(f, s),
              zp_frame_name(f, s->in.data[1]), lengths_of(f, s, 3), zp_frame_name(f, s->in.data[2]),
              zp_decimal(f->e->arena, s->node->attr.smoothing), zp_decimal(f->e->arena, s->node->attr.z_loss),
              ZP_LL(x->rows), zp_frame_name(f, s->out.data[0]));
}
