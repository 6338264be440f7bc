/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of attention: operands, options of the model, biases and dropout, and the workspace that they share. */
#include "steps.h"
#include "sparse.h"

#include <assert.h>
#include <zplan/rt.h>
#include <zplan/zpd_mma_geometry.h>

static int64_t worker_shares(const zp_frame *f, const zp_step *s) {
  return zpr_attention_shares(f->e->lowered->microbatch, s->node->attr.kv_heads);
}

/* Bytes that a relative bias has after the shares of attention's workspace: a line for each, then sums of its
 * gradient. On GPUs one line a head, where there are sums also the buckets of distances, and sums by tiles. */
static int64_t bias_lines(const zp_frame *f, const zp_step *s, zpk_dtype dtype) {
  const zp_op_attr *attr = &s->node->attr;
  int64_t S = zp_frame_tensor(f, s->in.data[0])->shape.dim[1];
  if (!attr->max_distance) return 0;
  if (f->e->gpu)
    return zpd_bias_line_bytes(attr->heads, S, zpk_real_bytes(dtype)) +
           (s->sums.len > 0 ? zpd_bias_bucket_bytes(S) : 0);
  return worker_shares(f, s) *
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
  int64_t positions = zp_attention_most(f->seg->graph, s->node);
  if (!f->e->gpu)
    return worker_shares(f, s) *
           zpk_attention_workspace(dtype, positions, attr->head_size, attr->heads / attr->kv_heads, grad);
  return grad && zp_tensor_core_head(f->e->plan->spec) > 0
             ? zpd_mma_facts_bytes(f->e->lowered->microbatch, attr->heads, positions)
             : 0;
}

static int64_t merge_part(int64_t bytes) { return (bytes + ZPR_MERGE_ALIGN - 1) / ZPR_MERGE_ALIGN * ZPR_MERGE_ALIGN; }

/* What pairs.c takes for a call of `rows` queries and keys. */
static int64_t call_bytes(const zp_op_attr *attr, int64_t rows, zpk_dtype dtype, bool grad) {
  int64_t elem = zpk_bytes(dtype), queries = merge_part(rows * attr->heads * attr->head_size * elem);
  int64_t keys = merge_part(2 * rows * attr->kv_heads * attr->head_size * elem);
  int64_t lse = merge_part(rows * attr->heads * zpk_real_bytes(dtype));
  if (!zp_attention_by_pairs(attr)) return 0;
  return (attr->window ? (grad ? 3 : 1) * queries + keys + lse : 0) + (grad ? keys : 0);
}

/* What ring.c takes: keys and values of three ranks, sums of queries, and what a call makes. */
static int64_t ring_bytes(const zp_frame *f, const zp_step *s, zpk_dtype dtype) {
  const zp_op_attr *attr = &s->node->attr;
  int64_t S = zp_frame_tensor(f, s->in.data[0])->shape.dim[1], samples = f->e->lowered->microbatch;
  int64_t queries = S * attr->heads * attr->head_size, keys = 2 * samples * S * attr->kv_heads * attr->head_size;
  int64_t elem = zpk_bytes(dtype), real = zpk_real_bytes(dtype), piece = merge_part(keys * elem);
  int64_t both = 3 * piece + merge_part(samples * queries * real) + merge_part(queries * elem);
  return both + call_bytes(attr, S / 2, dtype, s->op == ZP_OP_ATTENTION_GRAD) +
         (s->op == ZP_OP_ATTENTION_GRAD ? 3 * piece + merge_part(keys * real) : merge_part(S * attr->heads * real));
}

/* Bytes after those, where keys of all positions are gathered: what by_keys.c merges. */
static int64_t merge_bytes(const zp_frame *f, const zp_step *s, zpk_dtype dtype) {
  const zp_op_attr *attr = &s->node->attr;
  if (attr->ring) return ring_bytes(f, s, dtype);
  if (attr->parts <= 1 || (!attr->causal && !zp_attention_by_pairs(attr))) return 0;
  int64_t rows = zp_frame_tensor(f, s->in.data[0])->shape.dim[1] / 2;
  if (zp_attention_by_pairs(attr)) {
    int64_t cols = rows * attr->heads * attr->head_size;
    bool grad = s->op == ZP_OP_ATTENTION_GRAD;
    return merge_part(2 * cols * zpk_real_bytes(dtype)) + merge_part(cols * zpk_bytes(dtype)) +
           (grad ? 0 : merge_part(rows * attr->heads * zpk_real_bytes(dtype))) + call_bytes(attr, rows, dtype, grad);
  }
  int64_t queries = rows * attr->heads * attr->head_size * zpk_bytes(dtype);
  int64_t rest = s->op == ZP_OP_ATTENTION_GRAD
                     ? attr->parts * rows * attr->kv_heads * attr->head_size * zpk_bytes(dtype)
                     : rows * attr->heads * zpk_real_bytes(dtype);
  return merge_part(queries) + (s->op == ZP_OP_ATTENTION_GRAD ? 2 : 1) * merge_part(rest);
}

static void print_bias(zp_frame *f, const zp_step *s, zpk_dtype dtype, int64_t shares) {
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
static void print_dropout(zp_frame *f, const zp_step *s, int64_t queries, int64_t keys) {
  const zp_op_attr *attr = &s->node->attr;
  zp_buf_line(&f->e->out, "    .dropout = {.rate = %s, .stream = %lld, .instance = %s,",
              zp_decimal(f->e->arena, attr->rate), ZP_LL(attr->stream),
              f->seg->segment->is_repeat ? "(uint64_t)layer" : "0");
  zp_buf_line(&f->e->out,
              "                .first_sample = c->first_sample + mb * MICROBATCH, .queries = %s, .keys = %s},",
              zp_frame_positions(f, queries), zp_frame_positions(f, keys));
  f->uses_layer |= f->seg->segment->is_repeat;
}

void zp_print_attention(zp_frame *f, const zp_step *s) {
  const zp_node *n = s->node;
  bool grad = s->op == ZP_OP_ATTENTION_GRAD;
  zpk_dtype dtype = zp_trainer_dtype(f->e->plan);
  zp_buf *out = &f->e->out;
  const int *in = s->in.data, *o = s->out.data;
  const zp_tensor *q = zp_frame_tensor(f, in[0]), *k = zp_frame_tensor(f, in[1]);
  int64_t S = q->shape.dim[1], keys = k->shape.dim[1], shares = attention_shares(f, s, dtype);
  assert((s->workspace < 0 ? 0 : zp_frame_buffer(f, s->workspace)->bytes) ==
         shares + bias_bytes(f, s, dtype) + merge_bytes(f, s, dtype));
  int64_t G = n->attr.kv_heads,
          total = (k->split_dim >= 0 ? k->full_dim : zp_shape_cols(&k->shape)) / n->attr.head_size;
  bool ring = n->attr.ring, by_keys = n->attr.parts > 1 && !ring;
  zp_buf_line(out, "zpr_attention%s%s(c, &(zpk_attention_args){",
              ring      ? "_ring"
              : by_keys ? "_by_keys"
                        : "",
              grad         ? "_grad"
              : f->stretch ? "_stretch"
                           : "");
  zp_buf_line(out, "    .dtype = DTYPE, .B = MICROBATCH, .S = %s, .H = %lld, .G = %lld, .hd = %lld,",
              zp_frame_positions(f, S), ZP_LL(n->attr.heads), ZP_LL(G), ZP_LL(n->attr.head_size));
  const zp_choice *choice = &f->e->program->choice;
  bool spread = zp_context_ranks(choice) > 1; /* then there is no padding */
  if (!spread && k->split_dim >= 0 && total != G * f->e->program->choice.tensor)
    zp_buf_line(out, "    .kv_heads_valid = valid_units(c, %lld, %lld), .scale = %s, .causal = %s,", ZP_LL(total),
                ZP_LL(G), zp_decimal(f->e->arena, n->attr.scale), n->attr.causal ? "true" : "false");
  else
    zp_buf_line(out, "    .kv_heads_valid = %lld, .scale = %s, .causal = %s,", ZP_LL(G),
                zp_decimal(f->e->arena, n->attr.scale), n->attr.causal ? "true" : "false");
  bool parts = n->attr.layout && n->attr.parts > 1;
  if (n->attr.layout && !parts) zp_buf_line(out, "    .layout = layout%d,", zp_layout_number(f->model, n->attr.layout));
  if (n->attr.softcap > 0) zp_buf_line(out, "    .softcap = %s,", zp_decimal(f->e->arena, n->attr.softcap));
  if (n->attr.alibi_heads) zp_buf_line(out, "    .alibi_heads = %lld,", ZP_LL(n->attr.alibi_heads));
  bool drops = n->attr.rate > 0 && !f->stretch;
  bool counts = n->attr.alibi_heads || drops || (n->attr.layout && n->attr.layout->sets > 1);
  if (spread && counts && !choice->context_by)
    zp_buf_line(out, "    .first_head = (%sc->d %% CONTEXT) * %lld,", q->split_dim >= 0 ? "c->t * CONTEXT + " : "",
                ZP_LL(n->attr.heads));
  else if (q->split_dim >= 0 && counts)
    zp_buf_line(out, "    .first_head = c->t * %lld,", ZP_LL(n->attr.heads));
  if (n->attr.window) zp_buf_line(out, "    .window = %lld,", ZP_LL(n->attr.window));
  if (n->attr.cross || by_keys) zp_buf_line(out, "    .keys = %s,", zp_frame_positions(f, keys));
  if (n->attr.max_distance) print_bias(f, s, dtype, shares);
  if (drops) print_dropout(f, s, n->attr.parts > 1 ? S * n->attr.parts : S, ring ? keys * n->attr.parts : keys);
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
  if (ring || (by_keys && (n->attr.causal || zp_attention_by_pairs(&n->attr))))
    zp_buf_line(out, "}, %s, (char *)%s + %lld);",
                parts ? zp_format(f->e->arena, "pattern%d", zp_pattern_number(f->model, n->attr.layout)) : "NULL",
                zp_frame_name(f, s->workspace), ZP_LL(shares));
  else if (by_keys)
    zp_buf_line(out, "}, NULL, NULL);");
  else
    zp_buf_line(out, f->stretch ? "}, p);" : "});");
}
