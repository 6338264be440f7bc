/* SPDX-License-Identifier: Apache-2.0 */
/* Prints calls of kernels over the positions of samples. Where a tensor is a rank's share of them, `c->t` says
 * which. */
#include "steps.h"

/* x[from_at + i] of every sample goes to y[to_at + i], i in [0, n); what either has not is zero, or left out. */
static void print_move(zp_frame *f, int x, const char *from_at, int y, const char *to_at, int64_t n) {
  const zp_shape *from = &zp_frame_tensor(f, x)->shape, *to = &zp_frame_tensor(f, y)->shape;
  bool shared = zp_frame_tensor(f, x)->role == ZP_ROLE_PARAM;
  int64_t from_S = shared ? from->dim[0] : from->rank == 2 ? 1 : from->dim[1], to_S = to->rank == 2 ? 1 : to->dim[1];
  zp_buf *out = &f->e->out;
  zp_buf_line(out, "zpr_move_positions(c, &(zpk_positions){");
  zp_buf_line(out, "    .from = %s, .from_S = %s, .from_at = %s,%s", zp_frame_name(f, x), zp_frame_positions(f, from_S),
              from_at, shared ? " .shared = true," : "");
  zp_buf_line(out, "    .to = %s, .to_S = %s, .to_at = %s,", zp_frame_name(f, y), zp_frame_positions(f, to_S), to_at);
  zp_buf_line(out, "    .samples = MICROBATCH, .n = %s, .cols = %lld,", zp_frame_positions(f, n),
              ZP_LL(zp_shape_cols(to)));
  zp_buf_line(out, "});");
}

/* Position `at` of whole samples in the rank's share of them: "5", or "5 - c->t * 8". */
static const char *place_in(const zp_frame *f, int buffer, int64_t at) {
  const char *first = zp_frame_first(f, zp_frame_tensor(f, buffer), 1);
  if (strcmp(first, "0") == 0) return zp_format(f->e->arena, "%lld", ZP_LL(at));
  return zp_format(f->e->arena, "%lld - %s", ZP_LL(at), first);
}

void zp_print_slice(zp_frame *f, const zp_step *s) {
  const zp_op_attr *attr = &s->node->attr;
  print_move(f, s->in.data[0], place_in(f, s->in.data[0], attr->begin), s->out.data[0], "0",
             attr->count ? attr->count : 1);
}

void zp_print_slice_grad(zp_frame *f, const zp_step *s) {
  int y = s->out.data[0];
  const char *first = zp_frame_first(f, zp_frame_tensor(f, y), 1);
  print_move(f, s->in.data[0], zp_format(f->e->arena, "%s - %lld", first, ZP_LL(s->node->attr.begin)), y, "0",
             zp_frame_tensor(f, y)->shape.dim[1]);
}

void zp_print_concat(zp_frame *f, const zp_step *s) {
  int y = s->out.data[0];
  int64_t at = 0;
  for (int i = 0; i < s->in.len; i++) {
    const zp_shape *x = &zp_frame_tensor(f, s->in.data[i])->shape;
    print_move(f, s->in.data[i], "0", y, place_in(f, y, at), x->dim[x->rank - 2]);
    at += x->dim[x->rank - 2];
  }
}

void zp_print_gather(zp_frame *f, const zp_step *s) {
  bool grad = s->op == ZP_OP_GATHER_GRAD;
  int whole = grad ? s->out.data[0] : s->in.data[0];
  const zp_shape *x = &zp_frame_tensor(f, whole)->shape, *index = &zp_frame_tensor(f, s->in.data[1])->shape;
  zp_buf *out = &f->e->out;
  zp_buf_line(out, "zpr_gather%s(c, &(zpk_gather_args){", grad ? "_grad" : "");
  zp_buf_line(out, "    .from = %s, .to = %s, .index = %s,", zp_frame_name(f, s->in.data[0]),
              zp_frame_name(f, s->out.data[0]), zp_frame_name(f, s->in.data[1]));
  zp_buf_line(out, "    .samples = MICROBATCH, .S = %s, .first = %s, .n = %lld, .cols = %lld,",
              zp_frame_positions(f, x->dim[1]), zp_frame_first(f, zp_frame_tensor(f, whole), 1),
              ZP_LL(index->rank == 2 ? index->dim[1] : 1), ZP_LL(zp_shape_cols(x)));
  zp_buf_line(out, "});");
}

/* Windows over all positions: all of them, or the rank's share. */
void zp_print_unfold(zp_frame *f, const zp_step *s) {
  bool grad = s->op == ZP_OP_UNFOLD_GRAD;
  const zp_windows *w = s->node->attr.windows;
  int x = grad ? s->out.data[0] : s->in.data[0], y = grad ? s->in.data[0] : s->out.data[0];
  const zp_tensor *windows = zp_frame_tensor(f, y);
  zp_buf *out = &f->e->out;
  zp_buf_line(out, "zpr_unfold%s(c, &(zpk_unfold_args){", grad ? "_grad" : "");
  zp_buf_line(out, "    .from = %s, .to = %s, .samples = MICROBATCH, .cols = %lld,", zp_frame_name(f, s->in.data[0]),
              zp_frame_name(f, s->out.data[0]), ZP_LL(zp_shape_cols(&zp_frame_tensor(f, x)->shape)));
  zp_buf_line(out, "    .size = {%lld, %lld}, .count = {%lld, %lld}, .first = %s, .n = %s,", ZP_LL(w->size[0]),
              ZP_LL(w->size[1]), ZP_LL(zp_windows_count(w, 0)), ZP_LL(zp_windows_count(w, 1)),
              zp_frame_first(f, windows, 1), zp_frame_positions(f, windows->shape.dim[1]));
  zp_buf_line(out, "    .kernel = {%lld, %lld}, .stride = {%lld, %lld}, .padding = {%lld, %lld},", ZP_LL(w->kernel[0]),
              ZP_LL(w->kernel[1]), ZP_LL(w->stride[0]), ZP_LL(w->stride[1]), ZP_LL(w->padding[0]),
              ZP_LL(w->padding[1]));
  zp_buf_line(out, "});");
}

void zp_print_reduce(zp_frame *f, const zp_step *s) {
  static const char *const kinds[] = {"ZPK_SUM", "ZPK_MAX", "ZPK_LOG_SUM_EXP"};
  bool grad = s->op == ZP_OP_REDUCE_GRAD, columns = grad ? s->node->attr.last : s->op == ZP_OP_REDUCE_COLUMNS;
  const zp_shape *x = &zp_frame_tensor(f, s->in.data[0])->shape;
  const char *positions = zp_frame_positions(f, x->dim[1]);
  zp_buf *out = &f->e->out;
  zp_buf_line(out, "zpr_reduce%s(c, &(zpk_reduce_args){", grad ? "_grad" : "");
  zp_buf_line(out, "    .kind = %s, .x = %s, .to = %s,", kinds[s->node->attr.reduction],
              zp_frame_name(f, s->in.data[0]), zp_frame_name(f, s->out.data[0]));
  if (grad) zp_buf_line(out, "    .dy = %s,", zp_frame_name(f, s->in.data[1]));
  if (columns)
    zp_buf_line(out, "    .outer = MICROBATCH * %s, .n = %lld, .inner = 1,", positions, ZP_LL(x->dim[2]));
  else
    zp_buf_line(out, "    .outer = MICROBATCH, .n = %s, .inner = %lld,", positions, ZP_LL(x->dim[2]));
  zp_buf_line(out, "    .scale = %s,", zp_decimal(f->e->arena, s->node->attr.value));
  zp_buf_line(out, "});");
}

/* Every position is a sample whose positions are its columns, of one column each. */
void zp_print_column(zp_frame *f, const zp_step *s) {
  bool grad = s->op == ZP_OP_COLUMN_GRAD;
  const zp_shape *wide = &zp_frame_tensor(f, grad ? s->out.data[0] : s->in.data[0])->shape;
  int64_t at = s->node->attr.begin, n = zp_shape_cols(wide);
  zp_buf *out = &f->e->out;
  zp_buf_line(out, "zpr_move_positions(c, &(zpk_positions){");
  zp_buf_line(out, "    .from = %s, .from_S = %lld, .from_at = %lld,", zp_frame_name(f, s->in.data[0]),
              ZP_LL(grad ? 1 : n), ZP_LL(grad ? -at : at));
  zp_buf_line(out, "    .to = %s, .to_S = %lld, .to_at = 0,", zp_frame_name(f, s->out.data[0]), ZP_LL(grad ? n : 1));
  zp_buf_line(out, "    .samples = MICROBATCH * %s, .n = %lld, .cols = 1,", zp_frame_positions(f, wide->dim[1]),
              ZP_LL(grad ? n : 1));
  zp_buf_line(out, "});");
}

void zp_print_mean(zp_frame *f, const zp_step *s) {
  bool grad = s->op == ZP_OP_MEAN_GRAD;
  const zp_shape *all = &zp_frame_tensor(f, grad ? s->out.data[0] : s->in.data[0])->shape;
  zp_buf_line(&f->e->out, "zpr_%s_positions(c, %s, MICROBATCH, %s, %lld, %s, %s);", grad ? "spread" : "mean",
              zp_frame_name(f, s->in.data[0]), zp_frame_positions(f, all->dim[1]), ZP_LL(zp_shape_cols(all)),
              zp_decimal(f->e->arena, s->node->attr.value), zp_frame_name(f, s->out.data[0]));
}
