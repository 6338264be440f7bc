/* SPDX-License-Identifier: Apache-2.0 */
/* Products of matrices, alone or with an epilogue, which is what they do to their result (zpr_matmul). Plans of CPU
 * ranks have no epilogues. */
#include "steps.h"

#include <assert.h>

static const char *epilogue_words(const zp_step *s) {
  if (!s->node->fused) return "";
  const zp_fused *f = s->node->fused;
  if (s->op == ZP_OP_MATMUL_DGRAD) return ", through gelu, and the bias's gradient";
  if (s->op == ZP_OP_MATMUL_WGRAD) return ", and the bias's gradient";
  if (f->ops.data[f->ops.len - 1].op == ZP_OP_GELU) return ", + bias, gelu";
  bool bias = false, residual = false;
  for (int i = 1; i < f->n_in; i++) {
    bias |= f->operand[i] == ZP_OPERAND_COLUMNS;
    residual |= f->operand[i] == ZP_OPERAND_ROWS;
  }
  return bias && residual ? ", + bias, + residual" : bias ? ", + bias" : ", + residual";
}

/* ", [B*S, d] x [d, 3*d/2], + bias": rows and columns as in the call that follows. */
const char *zp_product_words(const zp_frame *f, const zp_step *s) {
  if (s->kind != ZP_STEP_NODE || zp_op_get_class(s->op) != ZP_CLASS_MATMUL) return "";
  zp_shape x = zp_frame_matrix(f, s->in.data[0]), y;
  zp_shape left = x, right = x;
  if (s->op == ZP_OP_MATMUL_WGRAD) {
    y = zp_frame_matrix(f, s->in.data[1]);
    const zp_shape *a = s->node->attr.trans ? &x : &y, *b = s->node->attr.trans ? &y : &x;
    left = (zp_shape){.rank = 2, .dim = {a->dim[1], a->dim[0]}, .extent = {a->extent[1], a->extent[0]}};
    right = *b;
  } else {
    y = zp_frame_matrix(f, s->out.data[0]);
    right = (zp_shape){.rank = 2, .dim = {x.dim[1], y.dim[1]}, .extent = {x.extent[1], y.extent[1]}};
  }
  return zp_format(f->e->arena, ", %s x %s%s", zp_emit_symbols(f->e, &left), zp_emit_symbols(f->e, &right),
                   epilogue_words(s));
}

static void print_sizes(zp_frame *f, bool trans_a, bool trans_b, const char *m, int64_t n, int64_t k) {
  zp_buf_line(&f->e->out, "    %s%s.m = %s, .n = %lld, .k = %lld,", trans_a ? ".trans_a = true, " : "",
              trans_b ? ".trans_b = true, " : "", m, ZP_LL(n), ZP_LL(k));
}

static void print_operands(zp_frame *f, int a, int b, const char *y, int64_t ldy) {
  zp_buf_line(&f->e->out, "    .a = %s, .lda = %lld, .b = %s, .ldb = %lld, .y = %s, .ldy = %lld,",
              zp_frame_first_row(f, a), ZP_LL(zp_frame_buffer(f, a)->ld), zp_frame_name(f, b),
              ZP_LL(zp_frame_buffer(f, b)->ld), y, ZP_LL(ldy));
}

/* The bias's gradient: the last of the step's sums. */
static void print_sum(zp_frame *f, const zp_step *s, const char *of) {
  const zp_param_sum *sum = &s->sums.data[s->sums.len - 1];
  zp_buf_line(&f->e->out, "    .sum_of = %s, .sum = %s, .accumulate_sum = %s, .workspace = %s,", of,
              zp_frame_gradient(f, sum->use), zp_frame_accumulate(f, sum), zp_frame_name(f, s->workspace));
}

static void print_forward(zp_frame *f, const zp_step *s) {
  zp_buf *out = &f->e->out;
  const zp_buffer *x = zp_frame_buffer(f, s->in.data[0]), *y = zp_frame_buffer(f, s->out.data[0]);
  print_sizes(f, false, s->node->attr.trans, zp_frame_rows(f, x->rows), y->cols, x->cols);
  print_operands(f, s->in.data[0], s->in.data[1], zp_frame_first_row(f, s->out.data[0]), y->ld);
  for (int i = 1; i < s->node->fused->n_in; i++) {
    int b = s->in.data[i + 1];
    if (s->node->fused->operand[i] == ZP_OPERAND_COLUMNS)
      zp_buf_line(out, "    .bias = %s,", zp_frame_name(f, b));
    else
      zp_buf_line(out, "    .residual = %s, .residual_ld = %lld,", zp_frame_first_row(f, b),
                  ZP_LL(zp_frame_buffer(f, b)->ld));
  }
  if (s->out.len > 1)
    zp_buf_line(out, "    .gelu_input = %s, .gelu_ld = %lld,", zp_frame_first_row(f, s->out.data[1]),
                ZP_LL(zp_frame_buffer(f, s->out.data[1])->ld));
}

static void print_input_gradient(zp_frame *f, const zp_step *s) {
  const zp_buffer *dy = zp_frame_buffer(f, s->in.data[0]), *dx = zp_frame_buffer(f, s->out.data[0]);
  print_sizes(f, false, !s->node->attr.trans, zp_frame_rows(f, dy->rows), dx->cols, dy->cols);
  print_operands(f, s->in.data[0], s->in.data[1], zp_frame_name(f, s->out.data[0]), dx->ld);
  zp_buf_line(&f->e->out, "    .gelu_of = %s, .gelu_ld = %lld,", zp_frame_name(f, s->in.data[2]),
              ZP_LL(zp_frame_buffer(f, s->in.data[2])->ld));
  print_sum(f, s, "ZPR_SUM_Y");
}

/* w is [n, k]: dy' x; [k, n]: x' dy. */
static void print_weight_gradient(zp_frame *f, const zp_step *s) {
  bool trans = s->node->attr.trans;
  int a = s->in.data[trans ? 0 : 1], b = s->in.data[trans ? 1 : 0];
  const zp_buffer *ab = zp_frame_buffer(f, a), *bb = zp_frame_buffer(f, b);
  print_sizes(f, true, false, zp_format(f->e->arena, "%lld", ZP_LL(ab->cols)), bb->cols, ab->rows);
  print_operands(f, a, b, zp_frame_gradient(f, s->sums.data[0].use), bb->cols);
  zp_buf_line(&f->e->out, "    .accumulate = %s,", zp_frame_accumulate(f, &s->sums.data[0]));
  print_sum(f, s, trans ? "ZPR_SUM_A" : "ZPR_SUM_B");
}

static void print_epilogue(zp_frame *f, const zp_step *s) {
  assert(f->e->gpu && s->node->fused);
  zp_buf_line(&f->e->out, "zpr_matmul(c, &(zpr_matmul_call){");
  if (s->op == ZP_OP_MATMUL)
    print_forward(f, s);
  else if (s->op == ZP_OP_MATMUL_DGRAD)
    print_input_gradient(f, s);
  else
    print_weight_gradient(f, s);
  zp_buf_line(&f->e->out, "});");
}

/* ---- without an epilogue ---- */

const char *zp_product_call(const zp_frame *f, const zp_step *s, zp_product_side a, zp_product_side b) {
  zp_precision precision = f->e->plan->spec->train.precision;
  if (!s->node->attr.float8) return "(c, ";
  return zp_format(f->e->arena, "_float8(c, ZPK_%s, ZPK_%s, ", zp_precision_rounded(precision, a),
                   zp_precision_rounded(precision, b));
}

static void print_matmul(zp_frame *f, const zp_step *s) {
  const zp_buffer *x = zp_frame_buffer(f, s->in.data[0]), *w = zp_frame_buffer(f, s->in.data[1]),
                  *y = zp_frame_buffer(f, s->out.data[0]);
  const char *xn = zp_frame_first_row(f, s->in.data[0]), *wn = zp_frame_name(f, s->in.data[1]),
             *yn = zp_frame_first_row(f, s->out.data[0]);
  bool trans = s->node->attr.trans;
  const char *accumulate = s->node->attr.float8 ? "" : "false, ";
  if (s->op == ZP_OP_MATMUL)
    zp_buf_line(&f->e->out, "zpr_gemm%sfalse, %s, %s, %lld, %lld, %s, %lld, %s, %lld, %s%s, %lld);",
                zp_product_call(f, s, ZP_SIDE_VALUE, ZP_SIDE_WEIGHT), trans ? "true" : "false",
                zp_frame_rows(f, x->rows), ZP_LL(y->cols), ZP_LL(x->cols), xn, ZP_LL(x->ld), wn, ZP_LL(w->ld),
                accumulate, yn, ZP_LL(y->ld));
  else /* dx = dy w: x here is dy */
    zp_buf_line(&f->e->out, "zpr_gemm%sfalse, %s, %lld, %lld, %lld, %s, %lld, %s, %lld, %s%s, %lld);",
                zp_product_call(f, s, ZP_SIDE_GRADIENT, ZP_SIDE_WEIGHT), trans ? "false" : "true", ZP_LL(x->rows),
                ZP_LL(y->cols), ZP_LL(x->cols), xn, ZP_LL(x->ld), wn, ZP_LL(w->ld), accumulate, yn, ZP_LL(y->ld));
}

void zp_print_keep_operand(zp_frame *f, const zp_step *s) {
  const zp_buffer *x = zp_frame_buffer(f, s->in.data[0]);
  zp_buf_line(&f->e->out, "zpr_keep_float8(c, ZPK_%s, %lld, %lld, %s, %lld, %s);",
              zp_precision_rounded(f->e->plan->spec->train.precision, ZP_SIDE_VALUE), ZP_LL(x->rows), ZP_LL(x->cols),
              zp_frame_name(f, s->in.data[0]), ZP_LL(x->ld), zp_frame_name(f, s->out.data[0]));
}

static void print_wgrad(zp_frame *f, const zp_step *s) {
  int d = s->in.data[0], x = s->in.data[1];
  const zp_buffer *dy = zp_frame_buffer(f, d), *xb = zp_frame_buffer(f, x);
  int a = s->node->attr.trans ? d : x, b = s->node->attr.trans ? x : d; /* w is [n, k]: dy' x; [k, n]: x' dy */
  const zp_buffer *ab = zp_frame_buffer(f, a), *bb = zp_frame_buffer(f, b);
  zp_product_side a_side = a == d ? ZP_SIDE_GRADIENT : ZP_SIDE_VALUE,
                  b_side = b == d ? ZP_SIDE_GRADIENT : ZP_SIDE_VALUE;
  assert(dy->rows == xb->rows);
  const char *call = zp_product_call(f, s, a_side, b_side);
  if (s->reads_kept) call = zp_format(f->e->arena, "%s%s, ", call, a == x ? "ZPR_KEPT_A" : "ZPR_KEPT_B");
  zp_buf_line(&f->e->out, "zpr_wgrad%s%s%lld, %lld, %lld, %s, %lld, %s, %lld, %s, %s);", s->reads_kept ? "_kept" : "",
              call, ZP_LL(ab->cols), ZP_LL(bb->cols), ZP_LL(ab->rows), zp_frame_name(f, a), ZP_LL(ab->ld),
              zp_frame_name(f, b), ZP_LL(bb->ld), zp_frame_accumulate(f, &s->sums.data[0]),
              zp_frame_gradient(f, s->sums.data[0].use));
}

void zp_print_product(zp_frame *f, const zp_step *s) {
  if (s->node->fused)
    print_epilogue(f, s);
  else if (s->op == ZP_OP_MATMUL_WGRAD)
    print_wgrad(f, s);
  else
    print_matmul(f, s);
}
