/* SPDX-License-Identifier: Apache-2.0 */
/* Prints steps: a comment with place and price, and one call of the runtime. A row of `printers` says what prints an
 * operation; lookups, collectives and copies are here, the others in the other files. */
#include "steps.h"

#include <assert.h>
#include <zplan/quote.h>

static void print_embedding(zp_frame *f, const zp_step *s) {
  const zp_buffer *table = zp_frame_buffer(f, s->in.data[1]), *y = zp_frame_buffer(f, s->out.data[0]);
  zp_buf_line(&f->e->out, "zpr_embedding(c, %s, %s, %s, %lld, %s, %lld, %s);", zp_frame_first_row(f, s->in.data[0]),
              zp_frame_name(f, s->in.data[1]), zp_frame_first(f, zp_frame_tensor(f, s->in.data[1]), 0),
              ZP_LL(table->rows), zp_frame_rows(f, y->rows), ZP_LL(y->cols), zp_frame_first_row(f, s->out.data[0]));
}

/* The parameter whose gradient a lookup's backward adds to. */
static const zp_tensor *summed_param(const zp_frame *f, const zp_step *s) {
  return &f->seg->graph->tensors.data[f->seg->graph->params.data[s->sums.data[0].use].tensor];
}

static void print_embedding_grad(zp_frame *f, const zp_step *s) {
  const zp_buffer *dy = zp_frame_buffer(f, s->in.data[0]);
  const zp_tensor *param = summed_param(f, s);
  zp_buf_line(&f->e->out, "zpr_embedding_grad(c, %s, %s, %s, %lld, %lld, %lld, %s);", zp_frame_name(f, s->in.data[1]),
              zp_frame_name(f, s->in.data[0]), zp_frame_first(f, param, 0), ZP_LL(param->shape.dim[0]), ZP_LL(dy->rows),
              ZP_LL(dy->cols), zp_frame_gradient(f, s->sums.data[0].use));
}

static void print_position_grad(zp_frame *f, const zp_step *s) {
  const zp_buffer *dy = zp_frame_buffer(f, s->in.data[0]);
  const zp_tensor *table = summed_param(f, s);
  zp_buf_line(&f->e->out, "zpr_position_grad(c, %s, %lld, MICROBATCH, %s, %lld, %s, %s%s);",
              zp_frame_name(f, s->in.data[0]), ZP_LL(dy->ld), zp_frame_positions(f, table->shape.dim[0]),
              ZP_LL(dy->cols), zp_frame_accumulate(f, &s->sums.data[0]), zp_frame_gradient(f, s->sums.data[0].use),
              zp_frame_own_rows(f, table));
}

/* ---- collectives ---- */

/* The slots of one expert for one sample travel together. */
static void print_exchange(zp_frame *f, const zp_step *s) {
  if (s->in.len > 1) {
    zp_print_spread_rows(f, s);
    return;
  }
  bool spread = s->op == ZP_OP_SPREAD_SLOTS;
  const zp_shape *there = &zp_frame_tensor(f, spread ? s->out.data[0] : s->in.data[0])->shape;
  zp_buf_line(&f->e->out, "zpr_%s_slots(c, %s, MICROBATCH, %lld, %lld, %s);", spread ? "spread" : "return",
              zp_frame_name(f, s->in.data[0]), ZP_LL(there->dim[1]),
              ZP_LL(there->dim[2] / zp_expert_ranks(&f->e->program->choice) * there->dim[3]),
              zp_frame_name(f, s->out.data[0]));
}

/* Heads of queries, keys, values or results; the workspace is that of one direction, or of both. */
static void print_heads(zp_frame *f, const zp_step *s) {
  bool spread = s->op == ZP_OP_SPREAD_HEADS;
  int x = s->in.data[0], y = s->out.data[0], own = spread ? x : y;
  const zp_shape *all = &zp_frame_tensor(f, spread ? y : x)->shape;
  int64_t heads = s->node->attr.heads, width = zp_shape_cols(&zp_frame_tensor(f, own)->shape) / heads;
  int64_t positions = all->dim[1] / s->node->attr.parts;
  bool halves = f->e->program->choice.context_by; /* each goes where those of the other ranks are */
  zp_buf_line(&f->e->out, "zpr_%s_heads(c, &(zpr_heads){.samples = MICROBATCH%s, .positions = %lld, .heads = %lld,",
              spread ? "spread" : "return", halves ? " * 2" : "", ZP_LL(halves ? positions / 2 : positions),
              ZP_LL(heads));
  zp_buf_line(&f->e->out, "    .width = %lld, .ld = %lld, .scratch = %s}, %s, %s);", ZP_LL(width),
              ZP_LL(zp_frame_buffer(f, own)->ld), zp_frame_name(f, s->workspace), zp_frame_name(f, x),
              zp_frame_name(f, y));
}

/* Between all positions of every sample and the rank's share of them. */
static void print_sequence(zp_frame *f, const zp_step *s) {
  bool gather = s->op == ZP_OP_ALL_GATHER_SEQ;
  const zp_shape *share = &zp_frame_tensor(f, gather ? s->in.data[0] : s->out.data[0])->shape;
  zp_buf_line(&f->e->out, "zpr_%s_sequence(c, %s, MICROBATCH, %lld, %s);", gather ? "all_gather" : "reduce_scatter",
              zp_frame_name(f, s->in.data[0]), ZP_LL(share->dim[1] * share->dim[2]), zp_frame_name(f, s->out.data[0]));
}

static void print_gather_stats(zp_frame *f, const zp_step *s) {
  zp_buf_line(&f->e->out, "zpr_all_gather(c, ZPR_TENSOR, %s, %s%lld, %s);", zp_frame_name(f, s->in.data[0]),
              zp_emit_mixed(f->e) ? "2 * /* an f32 is two elements */ " : "", ZP_LL(s->comm_elements),
              zp_frame_name(f, s->out.data[0]));
}

static void print_all_reduce(zp_frame *f, const zp_step *s) {
  int y = s->out.data[0];
  const char *chosen = zp_frame_chosen(f, y);
  if (chosen)
    zp_buf_line(&f->e->out, "zpr_chosen_all_reduce(c, %s, %lld, %s);", zp_frame_name(f, y),
                ZP_LL(zp_frame_buffer(f, y)->cols), chosen);
  else if (f->stretch)
    zp_buf_line(&f->e->out, "zpr_all_reduce(c, ZPR_TENSOR, %s, p.n * %lld);", zp_frame_first_row(f, y),
                ZP_LL(zp_frame_buffer(f, y)->cols));
  else
    zp_buf_line(&f->e->out, "zpr_all_reduce(c, ZPR_TENSOR, %s, %lld);", zp_frame_name(f, y), ZP_LL(s->comm_elements));
}

/* ---- steps that no operation of the graph is ---- */

static void print_made_step(zp_frame *f, const zp_step *s) {
  const char *in = zp_frame_name(f, s->in.data[0]), *out = zp_frame_name(f, s->out.data[0]);
  if (s->hands_on) zp_buf_line(&f->e->out, "if (%s != %s) /* a message, not the stream's place */", out, in);
  f->e->out.indent += s->hands_on;
  if (s->kind == ZP_STEP_KEEP_SHARD)
    zp_buf_line(&f->e->out, "keep_shard(c, %s, %s, %lld, %lld);", out, in, ZP_LL(f->seg->carry_own_elements),
                ZP_LL(f->seg->carry_kept_elements));
  else if (s->kind == ZP_STEP_KEEP_OPERAND)
    zp_print_keep_operand(f, s);
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

/* Operations that are steps. Rows are parts of fused groups, views and `enter` are storage alone. */
static zp_step_printer *const printers[ZP_OP_COUNT] = {
    [ZP_OP_FUSED] = zp_print_rows,
    [ZP_OP_FUSED_GRAD] = zp_print_rows,
    [ZP_OP_MATMUL] = zp_print_product,
    [ZP_OP_MATMUL_DGRAD] = zp_print_product,
    [ZP_OP_MATMUL_WGRAD] = zp_print_product,
    [ZP_OP_ATTENTION] = zp_print_attention,
    [ZP_OP_ATTENTION_GRAD] = zp_print_attention,
    [ZP_OP_EMBEDDING] = print_embedding,
    [ZP_OP_EMBEDDING_GRAD] = print_embedding_grad,
    [ZP_OP_POSITION_GRAD] = print_position_grad,
    [ZP_OP_BATCHED_MATMUL] = zp_print_expert_products,
    [ZP_OP_BATCHED_MATMUL_DGRAD] = zp_print_expert_products,
    [ZP_OP_BATCHED_MATMUL_WGRAD] = zp_print_expert_products,
    [ZP_OP_TOP_K_GATE] = zp_print_route,
    [ZP_OP_TOP_K_GATE_GRAD] = zp_print_route,
    [ZP_OP_GATHER_CHOICES] = zp_print_route,
    [ZP_OP_LOAD_GRAD] = zp_print_expert_load,
    [ZP_OP_EXPERT_ROWS] = zp_print_route,
    [ZP_OP_DISPATCH] = zp_print_route,
    [ZP_OP_DISPATCH_GRAD] = zp_print_route,
    [ZP_OP_COMBINE] = zp_print_route,
    [ZP_OP_COMBINE_GRAD] = zp_print_route,
    [ZP_OP_MEAN] = zp_print_mean,
    [ZP_OP_MEAN_GRAD] = zp_print_mean,
    [ZP_OP_SLICE] = zp_print_slice,
    [ZP_OP_SLICE_GRAD] = zp_print_slice_grad,
    [ZP_OP_COLUMN] = zp_print_column,
    [ZP_OP_COLUMN_GRAD] = zp_print_column,
    [ZP_OP_CONCAT] = zp_print_concat,
    [ZP_OP_REDUCE] = zp_print_reduce,
    [ZP_OP_REDUCE_COLUMNS] = zp_print_reduce,
    [ZP_OP_REDUCE_GRAD] = zp_print_reduce,
    [ZP_OP_GATHER] = zp_print_gather,
    [ZP_OP_GATHER_GRAD] = zp_print_gather,
    [ZP_OP_UNFOLD] = zp_print_unfold,
    [ZP_OP_UNFOLD_GRAD] = zp_print_unfold,
    [ZP_OP_RESHAPE] = zp_print_reshape,
    [ZP_OP_TRANSPOSE] = zp_print_transpose,
    [ZP_OP_COLUMNS] = zp_print_columns,
    [ZP_OP_JOIN_COLUMNS] = zp_print_join_columns,
    [ZP_OP_REPEAT_COLUMNS] = zp_print_repeat,
    [ZP_OP_REPEAT_GRAD] = zp_print_repeat,
    [ZP_OP_SE_STATS] = zp_print_squared_error,
    [ZP_OP_SE_GRAD] = zp_print_squared_error,
    [ZP_OP_CE_STATS] = zp_print_ce_stats,
    [ZP_OP_CE_LOSS] = zp_print_ce_loss,
    [ZP_OP_CE_GRAD] = zp_print_ce_grad,
    [ZP_OP_ALL_REDUCE] = print_all_reduce,
    [ZP_OP_GRAD_ALL_REDUCE] = print_all_reduce,
    [ZP_OP_ALL_GATHER_SEQ] = print_sequence,
    [ZP_OP_REDUCE_SCATTER_SEQ] = print_sequence,
    [ZP_OP_SPREAD_SLOTS] = print_exchange,
    [ZP_OP_RETURN_SLOTS] = print_exchange,
    [ZP_OP_SPREAD_COUNTS] = zp_print_spread_counts,
    [ZP_OP_SPREAD_HEADS] = print_heads,
    [ZP_OP_RETURN_HEADS] = print_heads,
    [ZP_OP_GATHER_STATS] = print_gather_stats,
};

void zp_emit_step(zp_frame *f, const zp_step *s) {
  static const char *const made[] = {"", "keep this rank's shard of x", "gather the kept shards of x", "copy"};
  zp_emit *e = f->e;
  const char *name = s->node ? zp_quote_c_comment(e->arena, s->node->name) : "",
             *place = s->node ? zp_quote_c_comment(e->arena, zp_emit_place(e, s->node->span)) : "";
  if (f->stretch)
    zp_buf_line(&e->out, "/* %s %s%s%s */", s->node ? zp_op_name(s->op) : made[s->kind], name, *place ? "; " : "",
                place);
  else
    zp_buf_line(&e->out, "/* %s%s%s%s: %.0f ns, %lld bytes%s%s */", s->node ? zp_op_name(s->op) : made[s->kind],
                s->node ? " " : "", name, zp_product_words(f, s), s->cost_s * 1e9, ZP_LL(s->bytes), *place ? "; " : "",
                place);
  if (s->kind != ZP_STEP_NODE) {
    print_made_step(f, s);
    return;
  }
  assert(printers[s->op]);
  printers[s->op](f, s);
}
