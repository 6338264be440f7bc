/* SPDX-License-Identifier: Apache-2.0 */
/* One pass: a loop over the columns of the current row that computes the pass's values block by block, keeps reductions
 * in vector accumulators and writes stores and column sums. */
#include <math.h>
#include "emit.h"

enum { MAX_UNROLL = 4 };

typedef struct pass_state {
  zp_emit_kernel *k;
  const zp_row_pass *pass;
  int lanes, unroll;
  LLVMValueRef *accumulator; /* [reductions][unroll] stack slots, promoted to registers by LLVM */
} pass_state;

/* ---- shape of the loop ---- */

static int64_t lower_power_of_two(int64_t limit, int64_t divides) {
  int64_t lanes = 1;
  while (lanes * 2 <= limit && divides % (lanes * 2) == 0) lanes *= 2;
  return lanes;
}

/* As many lanes as the target has, less for narrow rows. Values that pair columns need blocks that stay inside a head,
 * or inside half a head when halves pair up. */
static int choose_lanes(const zp_emit_kernel *k, const zp_row_pass *pass) {
  int64_t lanes = k->e->vector_bytes / k->e->real_bytes;
  while (lanes / 2 >= pass->cols) lanes /= 2;
  for (int i = 0; i < pass->values.len; i++) {
    const zp_row_value *v = &k->program->values.data[pass->values.data[i]];
    zp_row_pairs pairs = v->table.head ? v->table : v->swap;
    if (pairs.head) lanes = lower_power_of_two(lanes, pairs.interleaved ? pairs.head : pairs.head / 2);
  }
  return (int)lanes;
}

static bool is_long(zp_row_op op) {
  return op == ZP_ROW_EXP || op == ZP_ROW_LOG || op == ZP_ROW_TANH || op == ZP_ROW_SIGMOID || op == ZP_ROW_ERF;
}

/* Independent accumulators hide the latency of sums; a body with long functions has enough to overlap by itself, and
 * more of it would spill registers. */
static int choose_unroll(const zp_emit_kernel *k, const zp_row_pass *pass) {
  for (int i = 0; i < pass->values.len; i++)
    if (is_long(k->program->values.data[pass->values.data[i]].op)) return 1;
  if (pass->reductions.len) return pass->reductions.len > 2 ? 2 : MAX_UNROLL;
  return 2;
}

/* ---- reductions ---- */

static LLVMValueRef neutral(const pass_state *s, int reduction) {
  zp_row_op op = s->k->program->values.data[s->pass->reductions.data[reduction]].op;
  return zp_emit_splat(s->k->e, LLVMConstReal(s->k->e->real, op == ZP_ROW_RSUM ? 0 : -INFINITY), s->lanes);
}

static LLVMValueRef combine(zp_emit *e, zp_row_op op, LLVMValueRef a, LLVMValueRef b) {
  if (op == ZP_ROW_RSUM) return zp_emit_contract(LLVMBuildFAdd(e->builder, a, b, ""));
  LLVMValueRef greater = LLVMBuildFCmp(e->builder, LLVMRealOGT, b, a, "");
  return LLVMBuildSelect(e->builder, greater, b, a, "");
}

static void start_reductions(pass_state *s) {
  zp_emit *e = s->k->e;
  int n = s->pass->reductions.len;
  s->accumulator = ZP_NEW_ARRAY(e->arena, LLVMValueRef, n * s->unroll);
  for (int r = 0; r < n; r++)
    for (int u = 0; u < s->unroll; u++) {
      LLVMValueRef slot = zp_emit_slot(s->k, zp_emit_vector(e->real, s->lanes), "sum");
      s->accumulator[r * s->unroll + u] = slot;
      LLVMBuildStore(e->builder, neutral(s, r), slot);
    }
}

static void accumulate(pass_state *s, const zp_emit_block *block, int copy) {
  zp_emit *e = s->k->e;
  for (int r = 0; r < s->pass->reductions.len; r++) {
    const zp_row_value *v = &s->k->program->values.data[s->pass->reductions.data[r]];
    LLVMValueRef x = zp_emit_operand(s->k, v->arg[0], s->lanes), slot = s->accumulator[r * s->unroll + copy];
    if (block->mask) x = LLVMBuildSelect(e->builder, block->mask, x, neutral(s, r), "");
    LLVMValueRef sum = LLVMBuildLoad2(e->builder, zp_emit_vector(e->real, s->lanes), slot, "");
    LLVMBuildStore(e->builder, combine(e, v->op, sum, x), slot);
  }
}

static LLVMValueRef horizontal(zp_emit *e, zp_row_op op, LLVMValueRef x, int lanes) {
  if (lanes == 1) return x;
  LLVMTypeRef type = LLVMTypeOf(x);
  if (op == ZP_ROW_RMAX) return zp_emit_call(e, "llvm.vector.reduce.fmax", &type, 1, &x, 1);
  LLVMValueRef zero = LLVMConstReal(e->real, -0.0);
  LLVMValueRef sum = zp_emit_call(e, "llvm.vector.reduce.fadd", &type, 1, (LLVMValueRef[]){zero, x}, 2);
  LLVMSetFastMathFlags(sum, LLVMFastMathAllowReassoc); /* a tree instead of one lane after the other */
  return sum;
}

static void finish_reductions(pass_state *s) {
  zp_emit *e = s->k->e;
  LLVMTypeRef type = zp_emit_vector(e->real, s->lanes);
  for (int r = 0; r < s->pass->reductions.len; r++) {
    int index = s->pass->reductions.data[r];
    zp_row_op op = s->k->program->values.data[index].op;
    LLVMValueRef part[MAX_UNROLL];
    for (int u = 0; u < s->unroll; u++)
      part[u] = LLVMBuildLoad2(e->builder, type, s->accumulator[r * s->unroll + u], "");
    for (int width = s->unroll / 2; width > 0; width /= 2)
      for (int u = 0; u < width; u++) part[u] = combine(e, op, part[u], part[u + width]);
    s->k->value[index] = horizontal(e, op, part[0], s->lanes);
  }
}

/* ---- sinks ---- */

static void mark_output(zp_emit *e, LLVMValueRef instruction) {
  LLVMSetMetadata(instruction, LLVMGetMDKindIDInContext(e->context, "alias.scope", 11), e->output_scope);
}

static void write_sinks(pass_state *s, const zp_emit_block *block) {
  zp_emit *e = s->k->e;
  for (int i = 0; i < s->pass->sinks.len; i++) {
    const zp_row_sink *sink = &s->k->program->sinks.data[s->pass->sinks.data[i]];
    LLVMValueRef x = zp_emit_operand(s->k, sink->value, s->lanes);
    bool store = sink->kind == ZP_ROW_STORE;
    LLVMValueRef base = store ? s->k->out_row[sink->index] : s->k->partial[sink->index];
    LLVMValueRef address = zp_emit_element(e, store ? e->elem : e->real, base, block->column);
    if (store) {
      x = zp_emit_round(e, x);
    } else {
      LLVMValueRef sum = zp_emit_load(e, LLVMTypeOf(x), address, block);
      mark_output(e, sum);
      x = zp_emit_contract(LLVMBuildFAdd(e->builder, sum, x, ""));
    }
    mark_output(e, zp_emit_store(e, x, address, block));
  }
}

/* ---- the loop ---- */

static void emit_block(pass_state *s, zp_emit_block block, int copy) {
  for (int i = 0; i < s->pass->values.len; i++) {
    int v = s->pass->values.data[i];
    s->k->value[v] = zp_emit_value(s->k, v, &block);
  }
  accumulate(s, &block, copy);
  write_sinks(s, &block);
}

static LLVMValueRef tail_mask(const pass_state *s, int64_t columns) {
  LLVMValueRef *lane = ZP_NEW_ARRAY(s->k->e->arena, LLVMValueRef, s->lanes);
  for (int i = 0; i < s->lanes; i++) lane[i] = LLVMConstInt(s->k->e->i1, i < columns, false);
  return LLVMConstVector(lane, (unsigned)s->lanes);
}

/* `count` neighbouring blocks from `first`, each with accumulators of its own. */
static void emit_blocks(pass_state *s, LLVMValueRef first, int count) {
  zp_emit *e = s->k->e;
  for (int u = 0; u < count; u++) {
    LLVMValueRef column = LLVMBuildNSWAdd(e->builder, first, zp_emit_i64(e, (int64_t)u * s->lanes), "");
    emit_block(s, (zp_emit_block){.column = column, .lanes = s->lanes}, u);
  }
}

void zp_emit_pass(zp_emit_kernel *k, const zp_row_pass *pass) {
  pass_state s = {.k = k, .pass = pass, .lanes = choose_lanes(k, pass), .unroll = choose_unroll(k, pass)};
  int64_t full = pass->cols / s.lanes, looped = full / s.unroll * s.unroll, tail = pass->cols % s.lanes;
  start_reductions(&s);
  if (looped) {
    zp_emit_loop loop = zp_emit_loop_begin(k, zp_emit_i64(k->e, 0), zp_emit_i64(k->e, looped * s.lanes),
                                           zp_emit_i64(k->e, (int64_t)s.unroll * s.lanes), "column");
    emit_blocks(&s, loop.index, s.unroll);
    zp_emit_loop_end(k, &loop);
  }
  emit_blocks(&s, zp_emit_i64(k->e, looped * s.lanes), (int)(full - looped));
  if (tail) {
    zp_emit_block block = {.column = zp_emit_i64(k->e, full * s.lanes), .lanes = s.lanes};
    block.mask = tail_mask(&s, tail);
    emit_block(&s, block, 0);
  }
  finish_reductions(&s);
}
