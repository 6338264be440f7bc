/* Products with an epilogue: the call of a product with what it does to its result (zpr_matmul). GPUs only: the plans
 * of CPU ranks have none. */
#include "procedure.h"

#include <assert.h>

const char *zp_epilogue_words(const zp_step *s) {
  if (s->kind != ZP_STEP_NODE || zp_op_get_class(s->op) != ZP_CLASS_MATMUL || !s->node->fused) return "";
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

static void emit_sizes(zp_frame *f, bool trans_a, bool trans_b, const char *m, int64_t n, int64_t k) {
  zp_buf_line(&f->e->out, "    %s%s.m = %s, .n = %lld, .k = %lld,", trans_a ? ".trans_a = true, " : "",
              trans_b ? ".trans_b = true, " : "", m, ZP_LL(n), ZP_LL(k));
}

static void emit_operands(zp_frame *f, int a, int b, const char *y, int64_t ldy) {
  zp_buf_line(&f->e->out, "    .a = %s, .lda = %lld, .b = %s, .ldb = %lld, .y = %s, .ldy = %lld,",
              zp_frame_first_row(f, a), ZP_LL(zp_frame_buffer(f, a)->ld), zp_frame_name(f, b),
              ZP_LL(zp_frame_buffer(f, b)->ld), y, ZP_LL(ldy));
}

/* The bias's gradient: the last of the step's sums. */
static void emit_sum(zp_frame *f, const zp_step *s, const char *of) {
  const zp_param_sum *sum = &s->sums.data[s->sums.len - 1];
  zp_buf_line(&f->e->out, "    .sum_of = %s, .sum = %s, .accumulate_sum = %s, .workspace = %s,", of,
              zp_frame_gradient(f, sum->use), zp_frame_accumulate(f, sum), zp_frame_name(f, s->workspace));
}

static void emit_forward(zp_frame *f, const zp_step *s) {
  zp_buf *out = &f->e->out;
  const zp_buffer *x = zp_frame_buffer(f, s->in.data[0]), *y = zp_frame_buffer(f, s->out.data[0]);
  emit_sizes(f, false, s->node->attr.trans, zp_frame_rows(f, x->rows), y->cols, x->cols);
  emit_operands(f, s->in.data[0], s->in.data[1], zp_frame_first_row(f, s->out.data[0]), y->ld);
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

static void emit_input_gradient(zp_frame *f, const zp_step *s) {
  const zp_buffer *dy = zp_frame_buffer(f, s->in.data[0]), *dx = zp_frame_buffer(f, s->out.data[0]);
  emit_sizes(f, false, !s->node->attr.trans, zp_frame_rows(f, dy->rows), dx->cols, dy->cols);
  emit_operands(f, s->in.data[0], s->in.data[1], zp_frame_name(f, s->out.data[0]), dx->ld);
  zp_buf_line(&f->e->out, "    .gelu_of = %s, .gelu_ld = %lld,", zp_frame_name(f, s->in.data[2]),
              ZP_LL(zp_frame_buffer(f, s->in.data[2])->ld));
  emit_sum(f, s, "ZPR_SUM_Y");
}

/* w is [n, k]: dy' x; [k, n]: x' dy. */
static void emit_weight_gradient(zp_frame *f, const zp_step *s) {
  bool trans = s->node->attr.trans;
  int a = s->in.data[trans ? 0 : 1], b = s->in.data[trans ? 1 : 0];
  const zp_buffer *ab = zp_frame_buffer(f, a), *bb = zp_frame_buffer(f, b);
  emit_sizes(f, true, false, zp_format(f->e->arena, "%lld", ZP_LL(ab->cols)), bb->cols, ab->rows);
  emit_operands(f, a, b, zp_frame_gradient(f, s->sums.data[0].use), bb->cols);
  zp_buf_line(&f->e->out, "    .accumulate = %s,", zp_frame_accumulate(f, &s->sums.data[0]));
  emit_sum(f, s, trans ? "ZPR_SUM_A" : "ZPR_SUM_B");
}

void zp_emit_epilogue(zp_frame *f, const zp_step *s) {
  assert(f->e->gpu && s->node->fused);
  zp_buf_line(&f->e->out, "zpr_matmul(c, &(zpr_matmul_call){");
  if (s->op == ZP_OP_MATMUL)
    emit_forward(f, s);
  else if (s->op == ZP_OP_MATMUL_DGRAD)
    emit_input_gradient(f, s);
  else
    emit_weight_gradient(f, s);
  zp_buf_line(&f->e->out, "});");
}
