/* SPDX-License-Identifier: Apache-2.0 */
/* Dropout: before a row is computed, one byte per column says whether the column is kept. Philox gives four numbers at
 * a time, for four neighbouring elements that start at a multiple of four; a row need not start there, so the bytes are
 * generated from the multiple below and read with an offset. Backward generates the same bytes again. */
#include <math.h>
#include <stddef.h>
#include "emit.h"

/* One 64-bit lane for each group of four elements; the low halves are the words, the high halves arbitrary. So a
 * product needs one multiply and no conversion: multiplication reads the low halves only, and leaves both halves of its
 * result in place. */
typedef struct philox {
  LLVMValueRef word[4];
} philox;

static int group_lanes(const zp_emit *e) { return e->vector_bytes / 8; }

/* Groups that cover `cols` columns from any offset below four, in whole vectors. */
static int64_t groups_of(const zp_emit *e, int64_t cols) {
  int64_t groups = (cols + 3 + 3) / 4, lanes = group_lanes(e);
  return (groups + lanes - 1) / lanes * lanes;
}

static LLVMValueRef constant(zp_emit *e, uint64_t number) {
  return zp_emit_splat(e, LLVMConstInt(e->i64, number, false), group_lanes(e));
}

static LLVMValueRef low_halves(zp_emit *e, LLVMValueRef x) {
  return LLVMBuildAnd(e->builder, x, constant(e, UINT32_MAX), "");
}

static LLVMValueRef multiply(zp_emit *e, LLVMValueRef x, uint32_t factor) {
  return LLVMBuildMul(e->builder, low_halves(e, x), constant(e, factor), "");
}

static LLVMValueRef high_halves(zp_emit *e, LLVMValueRef x) {
  return LLVMBuildLShr(e->builder, x, constant(e, 32), "");
}

/* Philox4x32-10 (Salmon et al. 2011), the same as zp_philox_uniform. */
static void ten_rounds(zp_emit *e, philox *x, LLVMValueRef key0, LLVMValueRef key1) {
  LLVMBuilderRef b = e->builder;
  for (int round = 0; round < 10; round++) {
    LLVMValueRef product0 = multiply(e, x->word[0], 0xD2511F53), product2 = multiply(e, x->word[2], 0xCD9E8D57);
    LLVMValueRef mixed0 = LLVMBuildXor(b, high_halves(e, product2), x->word[1], "");
    LLVMValueRef mixed2 = LLVMBuildXor(b, high_halves(e, product0), x->word[3], "");
    x->word[0] = LLVMBuildXor(b, mixed0, zp_emit_splat(e, key0, group_lanes(e)), "");
    x->word[1] = product2;
    x->word[2] = LLVMBuildXor(b, mixed2, zp_emit_splat(e, key1, group_lanes(e)), "");
    x->word[3] = product0;
    key0 = LLVMBuildAdd(b, key0, zp_emit_i64(e, 0x9E3779B9), "");
    key1 = LLVMBuildAdd(b, key1, zp_emit_i64(e, 0xBB67AE85), "");
  }
}

/* Four vectors of bytes, one for each word, as one vector in element order. */
static LLVMValueRef interleave(zp_emit *e, LLVMValueRef *byte, int lanes) {
  LLVMValueRef *index = ZP_NEW_ARRAY(e->arena, LLVMValueRef, 4 * lanes);
  for (int i = 0; i < 2 * lanes; i++) index[i] = LLVMConstInt(e->i32, (uint64_t)i, false);
  LLVMValueRef join = LLVMConstVector(index, (unsigned)(2 * lanes));
  LLVMValueRef low = LLVMBuildShuffleVector(e->builder, byte[0], byte[1], join, "");
  LLVMValueRef high = LLVMBuildShuffleVector(e->builder, byte[2], byte[3], join, "");
  for (int i = 0; i < 4 * lanes; i++) index[i] = LLVMConstInt(e->i32, (uint64_t)(i % 4 * lanes + i / 4), false);
  return LLVMBuildShuffleVector(e->builder, low, high, LLVMConstVector(index, (unsigned)(4 * lanes)), "");
}

static LLVMValueRef kept_bytes(zp_emit *e, const philox *x, double rate) {
  int lanes = group_lanes(e);
  LLVMValueRef byte[4];
  for (int i = 0; i < 4; i++) {
    LLVMValueRef word = low_halves(e, x->word[i]);
    LLVMValueRef kept = LLVMBuildICmp(e->builder, LLVMIntUGE, word, constant(e, zpk_keep_threshold(rate)), "");
    byte[i] = LLVMBuildZExt(e->builder, kept, zp_emit_vector(e->i8, lanes), "");
  }
  return interleave(e, byte, lanes);
}

static LLVMValueRef group_iota(zp_emit *e) {
  int lanes = group_lanes(e);
  LLVMValueRef *lane = ZP_NEW_ARRAY(e->arena, LLVMValueRef, lanes);
  for (int i = 0; i < lanes; i++) lane[i] = zp_emit_i64(e, i);
  return LLVMConstVector(lane, (unsigned)lanes);
}

/* Fills the bytes of a row whose column 0 is element `element` of its sample. */
static void fill_row(zp_emit_kernel *k, const zp_emit_keep *keep, LLVMValueRef element) {
  zp_emit *e = k->e;
  int lanes = group_lanes(e);
  LLVMValueRef seed = zp_emit_field(k, offsetof(zpk_row_args, seed), e->i64);
  LLVMValueRef step = zp_emit_field(k, offsetof(zpk_row_args, step), e->i64);
  LLVMValueRef instance = zp_emit_field(k, offsetof(zpk_row_args, instance), e->i64);
  LLVMValueRef first_sample = zp_emit_field(k, offsetof(zpk_row_args, first_sample), e->i64);
  LLVMValueRef stream = zp_emit_i64(e, (int64_t)((uint64_t)keep->value.stream << 16));
  LLVMValueRef stream_instance = LLVMBuildOr(e->builder, instance, stream, "");
  LLVMValueRef sample = LLVMBuildAdd(e->builder, first_sample, k->sample, "");
  LLVMValueRef seed_high = LLVMBuildLShr(e->builder, seed, zp_emit_i64(e, 32), "");
  LLVMValueRef first_group = LLVMBuildLShr(e->builder, element, zp_emit_i64(e, 2), "");
  zp_emit_loop loop = zp_emit_loop_begin(k, zp_emit_i64(e, 0), zp_emit_i64(e, groups_of(e, keep->value.cols)),
                                         zp_emit_i64(e, lanes), "philox");
  LLVMValueRef group = LLVMBuildAdd(e->builder, first_group, loop.index, "");
  philox x = {{LLVMBuildAdd(e->builder, zp_emit_splat(e, group, lanes), group_iota(e), ""),
               zp_emit_splat(e, stream_instance, lanes), zp_emit_splat(e, sample, lanes),
               zp_emit_splat(e, step, lanes)}};
  ten_rounds(e, &x, seed, seed_high);
  LLVMValueRef index = LLVMBuildNSWMul(e->builder, loop.index, zp_emit_i64(e, 4), "");
  LLVMValueRef store =
      LLVMBuildStore(e->builder, kept_bytes(e, &x, keep->value.imm), zp_emit_element(e, e->i8, keep->bytes, index));
  LLVMSetAlignment(store, 4);
  zp_emit_loop_end(k, &loop);
}

static zp_emit_keep *find_keep(zp_emit_kernel *k, const zp_row_value *v) {
  for (int i = 0; i < k->keeps.len; i++) {
    zp_emit_keep *keep = &k->keeps.data[i];
    if (keep->value.cols == v->cols && keep->value.imm == v->imm && keep->value.stream == v->stream) return keep;
  }
  return NULL;
}

/* Buffers, and the factor of kept columns. Without dropout the bytes stay 1 for all rows. */
void zp_emit_keep_start(zp_emit_kernel *k) {
  zp_emit *e = k->e;
  for (int i = 0; i < k->program->values.len; i++) {
    const zp_row_value *v = &k->program->values.data[i];
    if (v->op != ZP_ROW_KEEP || find_keep(k, v)) continue;
    /* Blocks read whole vectors: one more of them than the columns need. */
    int64_t bytes = 4 * groups_of(e, v->cols) + e->vector_bytes;
    zp_emit_keep keep = {.value = *v};
    keep.bytes = zp_emit_slot(k, LLVMArrayType2(e->i8, (uint64_t)bytes), "keep");
    LLVMBuildMemSet(e->builder, keep.bytes, LLVMConstInt(e->i8, 1, false), zp_emit_i64(e, bytes), 64);
    keep.factor = LLVMBuildSelect(e->builder, k->dropout, LLVMConstReal(e->real, 1 / (1 - v->imm)),
                                  LLVMConstReal(e->real, 1), "");
    zp_push(e->arena, &k->keeps, keep);
  }
}

void zp_emit_keep_row(zp_emit_kernel *k) {
  zp_emit *e = k->e;
  if (k->keeps.len == 0) return;
  LLVMValueRef row_columns = zp_emit_field(k, offsetof(zpk_row_args, logical_columns), e->i64);
  LLVMValueRef first_column = zp_emit_field(k, offsetof(zpk_row_args, first_column), e->i64);
  LLVMValueRef before = LLVMBuildMul(e->builder, k->position, row_columns, "");
  LLVMValueRef element = LLVMBuildAdd(e->builder, before, first_column, "");
  LLVMBasicBlockRef fill = LLVMAppendBasicBlockInContext(e->context, k->function, "dropout");
  LLVMBasicBlockRef after = LLVMAppendBasicBlockInContext(e->context, k->function, "row_body");
  for (int i = 0; i < k->keeps.len; i++)
    k->keeps.data[i].first = LLVMBuildAnd(e->builder, element, zp_emit_i64(e, 3), "");
  LLVMBuildCondBr(e->builder, k->dropout, fill, after);
  LLVMPositionBuilderAtEnd(e->builder, fill);
  for (int i = 0; i < k->keeps.len; i++) fill_row(k, &k->keeps.data[i], element);
  LLVMBuildBr(e->builder, after);
  LLVMPositionBuilderAtEnd(e->builder, after);
}

LLVMValueRef zp_emit_keep_value(zp_emit_kernel *k, const zp_row_value *v, LLVMValueRef column, int lanes) {
  zp_emit *e = k->e;
  const zp_emit_keep *keep = find_keep(k, v);
  LLVMValueRef index = LLVMBuildNSWAdd(e->builder, keep->first, column, "");
  LLVMTypeRef bytes_type = zp_emit_vector(e->i8, lanes);
  LLVMValueRef bytes = LLVMBuildLoad2(e->builder, bytes_type, zp_emit_element(e, e->i8, keep->bytes, index), "");
  LLVMSetAlignment(bytes, 1);
  LLVMValueRef kept = LLVMBuildICmp(e->builder, LLVMIntNE, bytes, LLVMConstNull(bytes_type), "");
  LLVMValueRef factor = zp_emit_splat(e, keep->factor, lanes);
  return LLVMBuildSelect(e->builder, kept, factor, zp_emit_real(e, factor, 0), "");
}
