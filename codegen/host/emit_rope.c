/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary position embedding: cosines and signed sines of position * theta^(-2i / head) for the columns of one head.
 * Tables of up to 2^20 entries are constants of the object, exact to the last place and shared by all kernels; for
 * larger ones each row calls libm into a stack buffer. */
#include <math.h>
#include "emit.h"

static const int64_t max_table_entries = INT64_C(1) << 20;

static bool same_rope(const zp_row_value *a, const zp_row_value *b) {
  return a->imm == b->imm && a->table.head == b->table.head && a->table.interleaved == b->table.interleaved;
}

static void put_number(const zp_emit *e, char *bytes, int64_t index, double number) {
  float narrow = (float)number;
  if (e->elem_bytes == 8)
    memcpy(bytes + index * 8, &number, sizeof number);
  else
    memcpy(bytes + index * 4, &narrow, sizeof narrow);
}

static LLVMValueRef constant_bytes(zp_emit *e, const char *bytes, int64_t count, const char *name) {
  LLVMValueRef data = LLVMConstStringInContext2(e->context, bytes, (size_t)count, true);
  LLVMValueRef global = LLVMAddGlobal(e->module, LLVMTypeOf(data), name);
  LLVMSetInitializer(global, data);
  LLVMSetGlobalConstant(global, true);
  LLVMSetLinkage(global, LLVMInternalLinkage);
  LLVMSetAlignment(global, 64);
  return global;
}

static const zp_emit_table *table_of(zp_emit *e, const zp_row_value *v, int64_t positions) {
  for (int i = 0; i < e->tables.len; i++) {
    const zp_emit_table *t = &e->tables.data[i];
    if (t->theta == v->imm && t->positions == positions && t->pairs.head == v->table.head &&
        t->pairs.interleaved == v->table.interleaved)
      return t;
  }
  int64_t head = v->table.head, bytes = positions * head * e->real_bytes;
  char *cosine = zp_alloc(e->arena, (size_t)bytes), *sine = zp_alloc(e->arena, (size_t)bytes);
  for (int64_t p = 0; p < positions; p++)
    for (int64_t c = 0; c < head; c++) {
      double angle = (double)p * zp_row_frequency(v, zp_row_pair_of(v->table, c));
      put_number(e, cosine, p * head + c, cos(angle));
      put_number(e, sine, p * head + c, zp_row_first_of_pair(v->table, c) ? -sin(angle) : sin(angle));
    }
  zp_emit_table table = {.theta = v->imm, .pairs = v->table, .positions = positions};
  table.cosine = constant_bytes(e, cosine, bytes, "rope_cosine");
  table.sine = constant_bytes(e, sine, bytes, "rope_sine");
  zp_push(e->arena, &e->tables, table);
  return &e->tables.data[e->tables.len - 1];
}

static zp_emit_rope *find_rope(zp_emit_kernel *k, const zp_row_value *v) {
  for (int i = 0; i < k->ropes.len; i++)
    if (same_rope(&k->ropes.data[i].value, v)) return &k->ropes.data[i];
  return NULL;
}

void zp_emit_rope_start(zp_emit_kernel *k) {
  zp_emit *e = k->e;
  for (int i = 0; i < k->program->values.len; i++) {
    const zp_row_value *v = &k->program->values.data[i];
    if ((v->op != ZP_ROW_COS && v->op != ZP_ROW_SIN) || find_rope(k, v)) continue;
    zp_emit_rope rope = {.value = *v};
    rope.computed = k->program->rows_per_sample * v->table.head > max_table_entries;
    if (rope.computed) {
      LLVMTypeRef buffer = LLVMArrayType2(e->real, (uint64_t)v->table.head);
      rope.cosine = zp_emit_slot(k, buffer, "cosine");
      rope.sine = zp_emit_slot(k, buffer, "sine");
    } else {
      const zp_emit_table *table = table_of(e, v, k->program->rows_per_sample);
      rope.cosine = table->cosine;
      rope.sine = table->sine;
    }
    zp_push(e->arena, &k->ropes, rope);
  }
}

static LLVMValueRef call_libm(zp_emit *e, const char *name, LLVMValueRef x) {
  LLVMTypeRef f64 = LLVMDoubleTypeInContext(e->context), type = LLVMFunctionType(f64, &f64, 1, false);
  LLVMValueRef callee = LLVMGetNamedFunction(e->module, name);
  if (!callee) callee = LLVMAddFunction(e->module, name, type);
  LLVMValueRef result = LLVMBuildCall2(e->builder, type, callee, &x, 1, "");
  return e->elem_bytes == 8 ? result : LLVMBuildFPTrunc(e->builder, result, e->real, "");
}

/* Writes pair `pair` of the row's buffer: both columns. */
static void store_pair(zp_emit_kernel *k, const zp_emit_rope *rope, LLVMValueRef pair, LLVMValueRef angle) {
  zp_emit *e = k->e;
  bool interleaved = rope->value.table.interleaved;
  LLVMValueRef cosine = call_libm(e, "cos", angle), sine = call_libm(e, "sin", angle);
  LLVMValueRef first = interleaved ? LLVMBuildNSWMul(e->builder, pair, zp_emit_i64(e, 2), "") : pair;
  LLVMValueRef second =
      LLVMBuildNSWAdd(e->builder, first, zp_emit_i64(e, interleaved ? 1 : rope->value.table.head / 2), "");
  LLVMBuildStore(e->builder, cosine, zp_emit_element(e, e->real, rope->cosine, first));
  LLVMBuildStore(e->builder, cosine, zp_emit_element(e, e->real, rope->cosine, second));
  LLVMBuildStore(e->builder, LLVMBuildFNeg(e->builder, sine, ""), zp_emit_element(e, e->real, rope->sine, first));
  LLVMBuildStore(e->builder, sine, zp_emit_element(e, e->real, rope->sine, second));
}

static void compute_row(zp_emit_kernel *k, const zp_emit_rope *rope) {
  zp_emit *e = k->e;
  int64_t pairs = rope->value.table.head / 2;
  double *frequencies = ZP_NEW_ARRAY(e->arena, double, pairs);
  for (int64_t i = 0; i < pairs; i++) frequencies[i] = zp_row_frequency(&rope->value, i);
  LLVMValueRef table = constant_bytes(e, (const char *)frequencies, pairs * 8, "rope_frequency");
  LLVMTypeRef f64 = LLVMDoubleTypeInContext(e->context);
  LLVMValueRef position = LLVMBuildUIToFP(e->builder, k->position, f64, "");
  zp_emit_loop loop = zp_emit_loop_begin(k, zp_emit_i64(e, 0), zp_emit_i64(e, pairs), zp_emit_i64(e, 1), "rope_pair");
  LLVMValueRef turn = LLVMBuildLoad2(e->builder, f64, zp_emit_element(e, f64, table, loop.index), "");
  store_pair(k, rope, loop.index, LLVMBuildFMul(e->builder, position, turn, ""));
  zp_emit_loop_end(k, &loop);
}

void zp_emit_rope_row(zp_emit_kernel *k) {
  zp_emit *e = k->e;
  for (int i = 0; i < k->ropes.len; i++) {
    zp_emit_rope *rope = &k->ropes.data[i];
    LLVMValueRef offset = zp_emit_i64(e, 0);
    if (rope->computed)
      compute_row(k, rope);
    else
      offset = LLVMBuildNSWMul(e->builder, k->position, zp_emit_i64(e, rope->value.table.head), "");
    rope->row_cosine = zp_emit_element(e, e->real, rope->cosine, offset);
    rope->row_sine = zp_emit_element(e, e->real, rope->sine, offset);
  }
}

/* Blocks never straddle heads (zp_emit_pass chooses the vector width so). */
LLVMValueRef zp_emit_rope_value(zp_emit_kernel *k, const zp_row_value *v, LLVMValueRef column, int lanes) {
  zp_emit *e = k->e;
  const zp_emit_rope *rope = find_rope(k, v);
  LLVMValueRef in_head = LLVMBuildURem(e->builder, column, zp_emit_i64(e, v->table.head), "");
  LLVMValueRef base = v->op == ZP_ROW_COS ? rope->row_cosine : rope->row_sine;
  LLVMValueRef load =
      LLVMBuildLoad2(e->builder, zp_emit_vector(e->real, lanes), zp_emit_element(e, e->real, base, in_head), "");
  LLVMSetAlignment(load, (unsigned)e->real_bytes);
  return load;
}
