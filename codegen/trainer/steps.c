/* Prints steps: a comment with place and price, and one call of the runtime for each kind of step. Row programs,
 * positions and experts have files of their own. */
#include "procedure.h"
#include "sparse.h"

#include <assert.h>
#include <zplan/quote.h>
#include <zplan/rt.h>
#include <zplan/zpd.h>

static void emit_matmul(zp_frame *f, const zp_step *s) {
  const zp_buffer *x = zp_frame_buffer(f, s->in.data[0]), *w = zp_frame_buffer(f, s->in.data[1]),
                  *y = zp_frame_buffer(f, s->out.data[0]);
  const char *xn = zp_frame_first_row(f, s->in.data[0]), *wn = zp_frame_name(f, s->in.data[1]),
             *yn = zp_frame_first_row(f, s->out.data[0]);
  bool trans = s->node->attr.trans;
  if (s->op == ZP_OP_MATMUL)
    zp_buf_line(&f->e->out, "zpr_gemm(c, false, %s, %s, %lld, %lld, %s, %lld, %s, %lld, false, %s, %lld);",
                trans ? "true" : "false", zp_frame_rows(f, x->rows), ZP_LL(y->cols), ZP_LL(x->cols), xn, ZP_LL(x->ld),
                wn, ZP_LL(w->ld), yn, ZP_LL(y->ld));
  else /* dx = dy w: x here is dy */
    zp_buf_line(&f->e->out, "zpr_gemm(c, false, %s, %lld, %lld, %lld, %s, %lld, %s, %lld, false, %s, %lld);",
                trans ? "false" : "true", ZP_LL(x->rows), ZP_LL(y->cols), ZP_LL(x->cols), xn, ZP_LL(x->ld), wn,
                ZP_LL(w->ld), yn, ZP_LL(y->ld));
}

static void emit_wgrad(zp_frame *f, const zp_step *s) {
  int d = s->in.data[0], x = s->in.data[1];
  const zp_buffer *dy = zp_frame_buffer(f, d), *xb = zp_frame_buffer(f, x);
  int a = s->node->attr.trans ? d : x, b = s->node->attr.trans ? x : d; /* w is [n, k]: dy' x; [k, n]: x' dy */
  const zp_buffer *ab = zp_frame_buffer(f, a), *bb = zp_frame_buffer(f, b);
  assert(dy->rows == xb->rows);
  zp_buf_line(&f->e->out, "zpr_wgrad(c, %lld, %lld, %lld, %s, %lld, %s, %lld, %s, %s);", ZP_LL(ab->cols),
              ZP_LL(bb->cols), ZP_LL(ab->rows), zp_frame_name(f, a), ZP_LL(ab->ld), zp_frame_name(f, b), ZP_LL(bb->ld),
              zp_frame_accumulate(f, &s->sums.data[0]), zp_frame_gradient(f, s->sums.data[0].use));
}

static void emit_product(zp_frame *f, const zp_step *s) {
  if (s->node->fused)
    zp_emit_epilogue(f, s);
  else if (s->op == ZP_OP_MATMUL_WGRAD)
    emit_wgrad(f, s);
  else
    emit_matmul(f, s);
}

/* Bytes that a relative bias has behind the shares of attention's workspace: lines of all workers, then sums of its
 * gradient. On GPUs one line a head, where there are sums also the buckets of distances, and sums by tiles. */
static int64_t bias_lines(const zp_frame *f, const zp_step *s, zpk_dtype dtype) {
  const zp_op_attr *attr = &s->node->attr;
  int64_t S = zp_frame_tensor(f, s->in.data[0])->shape.dim[1];
  if (!attr->max_distance) return 0;
  if (f->e->gpu)
    return zpd_bias_line_bytes(attr->heads, S, zpk_real_bytes(dtype)) +
           (s->sums.len > 0 ? zpd_bias_bucket_bytes(S) : 0);
  return ZPR_MAX_WORKERS *
         zpk_attention_bias_line(dtype, S, attr->heads / attr->kv_heads, s->op == ZP_OP_ATTENTION_GRAD);
}

static int64_t bias_bytes(const zp_frame *f, const zp_step *s, zpk_dtype dtype) {
  int64_t samples = f->e->lowered->microbatch, heads = s->node->attr.heads, real = zpk_real_bytes(dtype);
  int64_t S = zp_frame_tensor(f, s->in.data[0])->shape.dim[1];
  if (s->sums.len == 0) return bias_lines(f, s, dtype);
  if (f->e->gpu)
    return bias_lines(f, s, dtype) + zpd_bias_sum_bytes(samples, heads,
                                                        zpd_bias_tiles(S, zp_tensor_core_head(f->e->plan->spec) > 0),
                                                        zpd_bias_reach(S, s->node->attr.max_distance), real);
  return bias_lines(f, s, dtype) + samples * heads * zp_frame_tensor(f, s->in.data[s->in.len - 1])->shape.dim[0] * real;
}

/* Bytes of attention's workspace without those of a bias: shares of workers; on GPUs what backward on tensor cores
 * knows of queries. */
static int64_t attention_shares(const zp_frame *f, const zp_step *s, zpk_dtype dtype) {
  const zp_op_attr *attr = &s->node->attr;
  bool grad = s->op == ZP_OP_ATTENTION_GRAD;
  int64_t positions = zp_frame_tensor(f, s->in.data[grad ? 0 : 1])->shape.dim[1];
  if (!f->e->gpu)
    return ZPR_MAX_WORKERS *
           zpk_attention_workspace(dtype, positions, attr->head_size, attr->heads / attr->kv_heads, grad);
  return grad && zp_tensor_core_head(f->e->plan->spec) > 0
             ? zpd_mma_facts_bytes(f->e->lowered->microbatch, attr->heads, positions)
             : 0;
}

static void emit_bias(zp_frame *f, const zp_step *s, zpk_dtype dtype, int64_t shares) {
  int table = s->in.data[s->in.len - 1];
  const zp_shape *shape = &zp_frame_tensor(f, table)->shape;
  const char *scratch = zp_frame_name(f, s->workspace);
  zp_buf_line(&f->e->out, "    .buckets = %lld, .max_distance = %lld, .bias = %s, .bias_ld = %lld,",
              ZP_LL(shape->dim[0]), ZP_LL(s->node->attr.max_distance), zp_frame_name(f, table), ZP_LL(shape->dim[1]));
  zp_buf_line(&f->e->out, "    .bias_lines = (char *)%s + %lld,", scratch, ZP_LL(shares));
  if (s->sums.len > 0)
    zp_buf_line(&f->e->out, "    .d_bias = %s, .bias_sums = (char *)%s + %lld,",
                zp_frame_gradient(f, s->sums.data[0].use), scratch, ZP_LL(shares + bias_lines(f, s, dtype)));
}

/* Seed and step are the runtime's, which draws in training alone. */
static void emit_attention_dropout(zp_frame *f, const zp_step *s, int64_t queries, int64_t keys) {
  const zp_op_attr *attr = &s->node->attr;
  zp_buf_line(&f->e->out, "    .dropout = {.rate = %s, .stream = %lld, .instance = %s,",
              zp_decimal(f->e->arena, attr->rate), ZP_LL(attr->stream),
              f->seg->segment->is_repeat ? "(uint64_t)layer" : "0");
  zp_buf_line(&f->e->out,
              "                .first_sample = c->first_sample + mb * MICROBATCH, .queries = %s, .keys = %s},",
              zp_frame_positions(f, queries), zp_frame_positions(f, keys));
  f->uses_layer |= f->seg->segment->is_repeat;
}

static void emit_attention(zp_frame *f, const zp_step *s) {
  const zp_node *n = s->node;
  bool grad = s->op == ZP_OP_ATTENTION_GRAD;
  zpk_dtype dtype = zp_trainer_dtype(f->e->plan);
  zp_buf *out = &f->e->out;
  const int *in = s->in.data, *o = s->out.data;
  const zp_tensor *q = zp_frame_tensor(f, in[0]), *k = zp_frame_tensor(f, in[1]);
  int64_t S = q->shape.dim[1], keys = k->shape.dim[1], shares = attention_shares(f, s, dtype);
  assert((s->workspace < 0 ? 0 : zp_frame_buffer(f, s->workspace)->bytes) == shares + bias_bytes(f, s, dtype));
  int64_t G = n->attr.kv_heads,
          total = (k->split_dim >= 0 ? k->full_dim : zp_shape_cols(&k->shape)) / n->attr.head_size;
  zp_buf_line(out, "zpr_attention%s(c, &(zpk_attention_args){", grad ? "_grad" : f->stretch ? "_stretch" : "");
  zp_buf_line(out, "    .dtype = DTYPE, .B = MICROBATCH, .S = %s, .H = %lld, .G = %lld, .hd = %lld,",
              zp_frame_positions(f, S), ZP_LL(n->attr.heads), ZP_LL(G), ZP_LL(n->attr.head_size));
  if (k->split_dim >= 0 && total != G * f->e->program->choice.tensor)
    zp_buf_line(out, "    .kv_heads_valid = valid_units(c, %lld, %lld), .scale = %s, .causal = %s,", ZP_LL(total),
                ZP_LL(G), zp_decimal(f->e->arena, n->attr.scale), n->attr.causal ? "true" : "false");
  else
    zp_buf_line(out, "    .kv_heads_valid = %lld, .scale = %s, .causal = %s,", ZP_LL(G),
                zp_decimal(f->e->arena, n->attr.scale), n->attr.causal ? "true" : "false");
  if (n->attr.layout) zp_buf_line(out, "    .layout = layout%d,", zp_layout_number(f->model, n->attr.layout));
  if (n->attr.softcap > 0) zp_buf_line(out, "    .softcap = %s,", zp_decimal(f->e->arena, n->attr.softcap));
  if (n->attr.alibi_heads) zp_buf_line(out, "    .alibi_heads = %lld,", ZP_LL(n->attr.alibi_heads));
  bool drops = n->attr.rate > 0 && !f->stretch;
  if (q->split_dim >= 0 && (n->attr.alibi_heads || drops || (n->attr.layout && n->attr.layout->sets > 1)))
    zp_buf_line(out, "    .first_head = c->t * %lld,", ZP_LL(n->attr.heads));
  if (n->attr.window) zp_buf_line(out, "    .window = %lld,", ZP_LL(n->attr.window));
  if (n->attr.cross) zp_buf_line(out, "    .keys = %s,", zp_frame_positions(f, keys));
  if (n->attr.max_distance) emit_bias(f, s, dtype, shares);
  if (drops) emit_attention_dropout(f, s, S, keys);
  zp_buf_line(out, "    .q = %s, .q_ld = %lld, .k = %s, .k_ld = %lld, .v = %s, .v_ld = %lld,", zp_frame_name(f, in[0]),
              ZP_LL(zp_frame_buffer(f, in[0])->ld), zp_frame_name(f, in[1]), ZP_LL(zp_frame_buffer(f, in[1])->ld),
              zp_frame_name(f, in[2]), ZP_LL(zp_frame_buffer(f, in[2])->ld));
  int ob = grad ? in[3] : o[0], lse = grad ? in[4] : o[1];
  zp_buf_line(out, "    .o = %s, .o_ld = %lld, .lse = %s,", zp_frame_name(f, ob), ZP_LL(zp_frame_buffer(f, ob)->ld),
              zp_frame_name(f, lse));
  if (grad) {
    zp_buf_line(out, "    .d_o = %s, .d_o_ld = %lld,", zp_frame_name(f, in[5]), ZP_LL(zp_frame_buffer(f, in[5])->ld));
    zp_buf_line(out, "    .dq = %s, .dq_ld = %lld, .dk = %s, .dk_ld = %lld, .dv = %s, .dv_ld = %lld,",
                zp_frame_name(f, o[0]), ZP_LL(zp_frame_buffer(f, o[0])->ld), zp_frame_name(f, o[1]),
                ZP_LL(zp_frame_buffer(f, o[1])->ld), zp_frame_name(f, o[2]), ZP_LL(zp_frame_buffer(f, o[2])->ld));
  }
  int extents = grad ? 6 : 3; /* operand */
  if (zp_attention_lengths(n) >= 0) zp_buf_line(out, "    .lengths = %s,", zp_frame_name(f, in[extents]));
  if (zp_attention_documents(n) >= 0) zp_buf_line(out, "    .documents = %s,", zp_frame_name(f, in[extents]));
  if (s->workspace >= 0) zp_buf_line(out, "    .workspace = %s,", zp_frame_name(f, s->workspace));
  zp_buf_line(out, f->stretch ? "}, p);" : "});");
}

static void emit_lookup(zp_frame *f, const zp_step *s) {
  zp_buf *out = &f->e->out;
  if (s->op == ZP_OP_LOAD_GRAD) {
    zp_emit_expert_load(f, s);
    return;
  }
  if (s->op == ZP_OP_EMBEDDING) {
    const zp_buffer *table = zp_frame_buffer(f, s->in.data[1]), *y = zp_frame_buffer(f, s->out.data[0]);
    zp_buf_line(out, "zpr_embedding(c, %s, %s, %s, %lld, %s, %lld, %s);", zp_frame_first_row(f, s->in.data[0]),
                zp_frame_name(f, s->in.data[1]), zp_frame_first(f, zp_frame_tensor(f, s->in.data[1]), 0),
                ZP_LL(table->rows), zp_frame_rows(f, y->rows), ZP_LL(y->cols), zp_frame_first_row(f, s->out.data[0]));
    return;
  }
  const zp_buffer *dy = zp_frame_buffer(f, s->in.data[0]);
  int use = s->sums.data[0].use;
  const zp_tensor *param = &f->seg->graph->tensors.data[f->seg->graph->params.data[use].tensor];
  if (s->op == ZP_OP_EMBEDDING_GRAD)
    zp_buf_line(out, "zpr_embedding_grad(c, %s, %s, %s, %lld, %lld, %lld, %s);", zp_frame_name(f, s->in.data[1]),
                zp_frame_name(f, s->in.data[0]), zp_frame_first(f, param, 0), ZP_LL(param->shape.dim[0]),
                ZP_LL(dy->rows), ZP_LL(dy->cols), zp_frame_gradient(f, use));
  else
    zp_buf_line(out, "zpr_position_grad(c, %s, %lld, MICROBATCH, %s, %lld, %s, %s);", zp_frame_name(f, s->in.data[0]),
                ZP_LL(dy->ld), zp_frame_positions(f, param->shape.dim[0]), ZP_LL(dy->cols),
                zp_frame_accumulate(f, &s->sums.data[0]), zp_frame_gradient(f, use));
}

/* Operand i, which some cross-entropies have. */
static const char *lengths_of(const zp_frame *f, const zp_step *s, int i) {
  return s->in.len > i ? zp_frame_name(f, s->in.data[i]) : "NULL";
}

static void emit_squared_error(zp_frame *f, const zp_step *s) {
  const zp_buffer *x = zp_frame_buffer(f, s->in.data[0]);
  bool grad = s->op == ZP_OP_SE_GRAD;
  zp_buf_line(&f->e->out, "zpr_squared_error%s(c, %d, %s, %s, %lld, %lld, %s%s%s);", grad ? "_grad" : "",
              s->node->attr.loss, zp_frame_name(f, s->in.data[0]), zp_frame_name(f, s->in.data[1]), ZP_LL(x->rows),
              ZP_LL(x->cols), grad ? zp_decimal(f->e->arena, s->node->attr.value) : "", grad ? ", " : "",
              zp_frame_name(f, s->out.data[0]));
}

static void emit_loss(zp_frame *f, const zp_step *s) {
  zp_buf *out = &f->e->out;
  const zp_op_attr *attr = &s->node->attr;
  const char *in0 = zp_frame_name(f, s->in.data[0]), *in1 = s->in.len > 1 ? zp_frame_name(f, s->in.data[1]) : "NULL",
             *o = zp_frame_name(f, s->out.data[0]);
  const zp_tensor *x = zp_frame_tensor(f, s->in.data[0]);
  const zp_buffer *b = zp_frame_buffer(f, s->in.data[0]);
  const char *classes =
      attr->classes == f->model->vocabulary ? "VOCABULARY" : zp_format(f->e->arena, "%lld", ZP_LL(attr->classes));
  if (s->in.len == 1) classes = "1"; /* of an error, which has none */
  if (s->op == ZP_OP_SE_STATS || s->op == ZP_OP_SE_GRAD) {
    emit_squared_error(f, s);
    return;
  }
  if (f->stretch)
    zp_buf_line(out, "zpr_show_logits(c, %d, %s, %lld, %s);", attr->loss, zp_frame_first_row(f, s->in.data[0]),
                ZP_LL(b->cols), classes);
  else if (s->op == ZP_OP_CE_STATS)
    zp_buf_line(out, "zpr_ce_stats(c, %d, %s, %lld, %s, %s, %s, %s, %lld, %s);", attr->loss, in0, ZP_LL(b->cols),
                zp_frame_first(f, x, x->shape.rank - 1), classes, in1, lengths_of(f, s, 2), ZP_LL(b->rows), o);
  else if (s->op == ZP_OP_CE_LOSS) {
    const zp_buffer *lse = zp_frame_buffer(f, s->out.data[0]);
    int64_t rows = lse->rows * lse->cols;
    zp_buf_line(out, "zpr_ce_loss(c, %d, %s, %lld, %lld, %s, %s, %s);", attr->loss, in0,
                ZP_LL(b->rows * b->cols / (3 * rows)), ZP_LL(rows), classes, in1, o);
  } else
    zp_buf_line(out, "zpr_ce_grad(c, %d, %s, %lld, %s, %s, %s, %s, %s, (zpk_targets){%s, %s}, %lld, %s);", attr->loss,
                in0, ZP_LL(b->cols), zp_frame_first(f, x, x->shape.rank - 1), classes, in1, lengths_of(f, s, 3),
                zp_frame_name(f, s->in.data[2]), zp_decimal(f->e->arena, attr->smoothing),
                zp_decimal(f->e->arena, attr->z_loss), ZP_LL(b->rows), o);
}

/* The slots of one expert for one sample travel together. */
static void emit_exchange(zp_frame *f, const zp_step *s) {
  bool spread = s->op == ZP_OP_SPREAD_SLOTS;
  const zp_shape *there = &zp_frame_tensor(f, spread ? s->out.data[0] : s->in.data[0])->shape;
  zp_buf_line(&f->e->out, "zpr_%s_slots(c, %s, MICROBATCH, %lld, %lld, %s);", spread ? "spread" : "return",
              zp_frame_name(f, s->in.data[0]), ZP_LL(there->dim[1]),
              ZP_LL(there->dim[2] / zp_expert_ranks(&f->e->program->choice) * there->dim[3]),
              zp_frame_name(f, s->out.data[0]));
}

/* Between all positions of every sample and the rank's share of them. */
static void emit_sequence(zp_frame *f, const zp_step *s) {
  bool gather = s->op == ZP_OP_ALL_GATHER_SEQ;
  const zp_shape *share = &zp_frame_tensor(f, gather ? s->in.data[0] : s->out.data[0])->shape;
  zp_buf_line(&f->e->out, "zpr_%s_sequence(c, %s, MICROBATCH, %lld, %s);", gather ? "all_gather" : "reduce_scatter",
              zp_frame_name(f, s->in.data[0]), ZP_LL(share->dim[1] * share->dim[2]), zp_frame_name(f, s->out.data[0]));
}

static void emit_comm(zp_frame *f, const zp_step *s) {
  const char *chosen = zp_frame_chosen(f, s->out.data[0]);
  if (zp_step_is_exchange(s))
    emit_exchange(f, s);
  else if (s->op == ZP_OP_ALL_GATHER_SEQ || s->op == ZP_OP_REDUCE_SCATTER_SEQ)
    emit_sequence(f, s);
  else if (s->op == ZP_OP_GATHER_STATS)
    zp_buf_line(&f->e->out, "zpr_all_gather(c, ZPR_TENSOR, %s, %s%lld, %s);", zp_frame_name(f, s->in.data[0]),
                zp_emit_mixed(f->e) ? "2 * /* an f32 is two elements */ " : "", ZP_LL(s->comm_elements),
                zp_frame_name(f, s->out.data[0]));
  else if (chosen)
    zp_buf_line(&f->e->out, "zpr_chosen_all_reduce(c, %s, %lld, %s);", zp_frame_name(f, s->out.data[0]),
                ZP_LL(zp_frame_buffer(f, s->out.data[0])->cols), chosen);
  else if (f->stretch)
    zp_buf_line(&f->e->out, "zpr_all_reduce(c, ZPR_TENSOR, %s, p.n * %lld);", zp_frame_first_row(f, s->out.data[0]),
                ZP_LL(zp_frame_buffer(f, s->out.data[0])->cols));
  else
    zp_buf_line(&f->e->out, "zpr_all_reduce(c, ZPR_TENSOR, %s, %lld);", zp_frame_name(f, s->out.data[0]),
                ZP_LL(s->comm_elements));
}

static void emit_made_step(zp_frame *f, const zp_step *s) {
  const char *in = zp_frame_name(f, s->in.data[0]), *out = zp_frame_name(f, s->out.data[0]);
  if (s->hands_on) zp_buf_line(&f->e->out, "if (%s != %s) /* a message, not the stream's place */", out, in);
  f->e->out.indent += s->hands_on;
  if (s->kind == ZP_STEP_KEEP_SHARD)
    zp_buf_line(&f->e->out, "keep_shard(c, %s, %s, %lld, %lld);", out, in, ZP_LL(f->seg->carry_own_elements),
                ZP_LL(f->seg->carry_kept_elements));
  else if (s->kind == ZP_STEP_GATHER_SHARD)
    zp_buf_line(&f->e->out, "zpr_all_gather(c, ZPR_TENSOR, %s, %lld, %s);", in, ZP_LL(s->comm_elements), out);
  else if (f->stretch)
    zp_buf_line(&f->e->out, "zpr_copy(c, %s, %s, p.n * %lld * (int64_t)sizeof(real));",
                zp_frame_first_row(f, s->out.data[0]), zp_frame_first_row(f, s->in.data[0]),
                ZP_LL(zp_frame_buffer(f, s->out.data[0])->cols));
  else
    zp_buf_line(&f->e->out, "zpr_copy(c, %s, %s, %lld * (int64_t)sizeof(real));", out, in,
                ZP_LL(zp_frame_buffer(f, s->out.data[0])->rows * zp_frame_buffer(f, s->out.data[0])->cols));
  f->e->out.indent -= s->hands_on;
}

/* ", [B*S, d] x [d, 3*d/2]" of a product of matrices, rows and columns as in the call that follows; "" of other steps.
 */
static const char *product_shapes(const zp_frame *f, const zp_step *s) {
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
  return zp_format(f->e->arena, ", %s x %s", zp_emit_symbols(f->e, &left), zp_emit_symbols(f->e, &right));
}

void zp_emit_step(zp_frame *f, const zp_step *s) {
  static const char *const made[] = {"", "keep this rank's shard of x", "gather the kept shards of x", "copy"};
  zp_emit *e = f->e;
  const char *name = s->node ? zp_quote_c_comment(e->arena, s->node->name) : "",
             *place = s->node ? zp_quote_c_comment(e->arena, zp_emit_place(e, s->node->span)) : "";
  if (f->stretch)
    zp_buf_line(&e->out, "/* %s %s%s%s */", s->node ? zp_op_name(s->op) : made[s->kind], name, *place ? "; " : "",
                place);
  else
    zp_buf_line(&e->out, "/* %s%s%s%s%s: %.0f ns, %lld bytes%s%s */", s->node ? zp_op_name(s->op) : made[s->kind],
                s->node ? " " : "", name, product_shapes(f, s), zp_epilogue_words(s), s->cost_s * 1e9, ZP_LL(s->bytes),
                *place ? "; " : "", place);
  if (s->kind != ZP_STEP_NODE) {
    emit_made_step(f, s);
    return;
  }
  switch (zp_op_get_class(s->op)) {
  case ZP_CLASS_MATMUL: emit_product(f, s); break;
  case ZP_CLASS_GROUPED: zp_emit_grouped(f, s); break;
  case ZP_CLASS_ROUTING: zp_emit_route(f, s); break;
  case ZP_CLASS_FUSED: zp_emit_rows(f, s); break;
  case ZP_CLASS_ATTENTION: emit_attention(f, s); break;
  case ZP_CLASS_LOOKUP: emit_lookup(f, s); break;
  case ZP_CLASS_POSITIONS: zp_emit_positions(f, s); break;
  case ZP_CLASS_LOSS: emit_loss(f, s); break;
  case ZP_CLASS_COMM: emit_comm(f, s); break;
  case ZP_CLASS_ROW:
  case ZP_CLASS_VIEW: assert(!"fused or storage only"); break;
  }
}
