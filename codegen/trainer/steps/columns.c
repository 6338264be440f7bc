/* SPDX-License-Identifier: Apache-2.0 */
/* Prints calls that copy columns of heads, repeat them and sum over them, and copies to other shapes, turned over or
 * not. Heads stand as samples, and stretches of their columns as positions: as wide as they may be, so that rows of a
 * kernel are long. */
#include "steps.h"

static int64_t gcd(int64_t a, int64_t b) { return b ? gcd(b, a % b) : a; }

static int64_t cols_of(const zp_frame *f, int buffer) { return zp_shape_cols(&zp_frame_tensor(f, buffer)->shape); }

/* "MICROBATCH * SEQUENCE * 12": heads of all positions, or of a stretch "p.n * 12"; one head: positions. */
static const char *heads_of(const zp_frame *f, int buffer, int64_t heads) {
  const char *times = heads > 1 ? zp_format(f->e->arena, " * %lld", ZP_LL(heads)) : "";
  if (f->stretch) return zp_format(f->e->arena, "p.n%s", times);
  return zp_format(f->e->arena, "MICROBATCH * %s%s", zp_frame_positions(f, zp_frame_tensor(f, buffer)->shape.dim[1]),
                   times);
}

/* Columns [from_at, from_at + n) of every head of x to column to_at of y's. */
static void print_move(zp_frame *f, int64_t heads, int x, int64_t from_at, int y, int64_t to_at, int64_t n) {
  int64_t width = cols_of(f, x) / heads, to_width = cols_of(f, y) / heads;
  int64_t unit = gcd(gcd(gcd(width, to_width), gcd(from_at < 0 ? -from_at : from_at, to_at)), n);
  zp_buf *out = &f->e->out;
  zp_buf_line(out, "zpr_move_positions(c, &(zpk_positions){");
  zp_buf_line(out, "    .from = %s, .from_S = %lld, .from_at = %lld,", zp_frame_first_row(f, x), ZP_LL(width / unit),
              ZP_LL(from_at / unit));
  zp_buf_line(out, "    .to = %s, .to_S = %lld, .to_at = %lld,", zp_frame_first_row(f, y), ZP_LL(to_width / unit),
              ZP_LL(to_at / unit));
  zp_buf_line(out, "    .samples = %s, .n = %lld, .cols = %lld,", heads_of(f, y, heads), ZP_LL(n / unit), ZP_LL(unit));
  zp_buf_line(out, "});");
}

void zp_print_reshape(zp_frame *f, const zp_step *s) {
  const zp_buffer *y = zp_frame_buffer(f, s->out.data[0]);
  zp_buf_line(&f->e->out, "zpr_copy(c, %s, %s, %lld * (int64_t)sizeof(real));", zp_frame_name(f, s->out.data[0]),
              zp_frame_name(f, s->in.data[0]), ZP_LL(y->rows * y->cols));
}

void zp_print_transpose(zp_frame *f, const zp_step *s) {
  const zp_shape *x = &zp_frame_tensor(f, s->in.data[0])->shape;
  zp_buf_line(&f->e->out, "zpr_transpose(c, %s, MICROBATCH, %s, %lld, %s);", zp_frame_name(f, s->in.data[0]),
              zp_frame_positions(f, x->dim[1]), ZP_LL(x->dim[2]), zp_frame_name(f, s->out.data[0]));
}

/* Every position is a sample whose positions are the heads: repeated, or summed. */
void zp_print_repeat(zp_frame *f, const zp_step *s) {
  bool grad = s->op == ZP_OP_REPEAT_GRAD;
  int x = s->in.data[0], y = s->out.data[0];
  zp_buf_line(&f->e->out, "zpr_%s_positions(c, %s, %s, %lld, %lld, 1, %s);", grad ? "mean" : "spread",
              zp_frame_first_row(f, x), heads_of(f, y, 1), ZP_LL(s->node->attr.heads), ZP_LL(cols_of(f, grad ? y : x)),
              zp_frame_first_row(f, y));
}

void zp_print_columns(zp_frame *f, const zp_step *s) {
  const zp_op_attr *attr = &s->node->attr;
  print_move(f, attr->heads, s->in.data[0], attr->begin, s->out.data[0], 0, attr->count);
}

void zp_print_join_columns(zp_frame *f, const zp_step *s) {
  int64_t heads = s->node->attr.heads, at = 0;
  for (int i = 0; i < s->in.len; i++) {
    int64_t width = cols_of(f, s->in.data[i]) / heads;
    print_move(f, heads, s->in.data[i], 0, s->out.data[0], at, width);
    at += width;
  }
}
