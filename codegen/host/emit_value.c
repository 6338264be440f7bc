/* SPDX-License-Identifier: Apache-2.0 */
/* One row value at one block of columns, or one u value of the row. */
#include <assert.h>
#include <string.h>
#include "emit.h"

LLVMValueRef zp_emit_operand(zp_emit_kernel *k, int v, int lanes) {
  return zp_row_is_u(k->program, v) ? zp_emit_splat(k->e, k->value[v], lanes) : k->value[v];
}

/* ---- leaves ---- */

static void mark_outside(zp_emit *e, LLVMValueRef load) {
  unsigned kind = LLVMGetMDKindIDInContext(e->context, "noalias", 7);
  LLVMSetMetadata(load, kind, e->output_scope);
}

static LLVMValueRef load_columns(zp_emit *e, LLVMValueRef base, LLVMValueRef column, const zp_emit_block *block) {
  LLVMValueRef address = zp_emit_element(e, e->elem, base, column);
  LLVMValueRef load = zp_emit_load(e, zp_emit_vector(e->elem, block->lanes), address, block);
  mark_outside(e, load);
  return zp_emit_widen(e, load);
}

static LLVMValueRef input_base(zp_emit_kernel *k, const zp_row_value *v) {
  zp_emit *e = k->e;
  if (v->op == ZP_ROW_ROWS) return k->in_row[v->input];
  if (v->op == ZP_ROW_COLUMNS) return k->in[v->input];
  LLVMValueRef offset = LLVMBuildNSWMul(e->builder, k->position, zp_emit_i64(e, v->cols), "");
  return zp_emit_element(e, e->elem, k->in[v->input], offset);
}

/* The column that a swapped leaf of a block starts at: the same place in the other half of the head. */
static LLVMValueRef other_half(zp_emit *e, int64_t head, LLVMValueRef column) {
  LLVMValueRef in_head = LLVMBuildURem(e->builder, column, zp_emit_i64(e, head), "");
  LLVMValueRef first = LLVMBuildICmp(e->builder, LLVMIntULT, in_head, zp_emit_i64(e, head / 2), "");
  LLVMValueRef move = LLVMBuildSelect(e->builder, first, zp_emit_i64(e, head / 2), zp_emit_i64(e, -head / 2), "");
  return LLVMBuildNSWAdd(e->builder, column, move, "");
}

static LLVMValueRef swap_neighbours(zp_emit *e, LLVMValueRef x, int lanes) {
  LLVMValueRef *index = ZP_NEW_ARRAY(e->arena, LLVMValueRef, lanes);
  for (int i = 0; i < lanes; i++) index[i] = LLVMConstInt(e->i32, (uint64_t)(i ^ 1), false);
  LLVMValueRef order = LLVMConstVector(index, (unsigned)lanes);
  return LLVMBuildShuffleVector(e->builder, x, LLVMGetPoison(LLVMTypeOf(x)), order, "");
}

static LLVMValueRef leaf(zp_emit_kernel *k, const zp_row_value *v, const zp_emit_block *block) {
  zp_emit *e = k->e;
  bool halves = v->swap.head && !v->swap.interleaved;
  LLVMValueRef column = halves ? other_half(e, v->swap.head, block->column) : block->column, result;
  switch (v->op) {
  case ZP_ROW_KEEP: result = zp_emit_keep_value(k, v, column, block->lanes); break;
  case ZP_ROW_COS:
  case ZP_ROW_SIN: result = zp_emit_rope_value(k, v, column, block->lanes); break;
  default: result = load_columns(e, input_base(k, v), column, block);
  }
  return v->swap.interleaved ? swap_neighbours(e, result, block->lanes) : result;
}

/* ---- operations ---- */

static LLVMValueRef compute(zp_emit *e, zp_row_op op, LLVMValueRef *a) {
  LLVMBuilderRef b = e->builder;
  switch (op) {
  case ZP_ROW_NEG: return zp_emit_contract(LLVMBuildFNeg(b, a[0], ""));
  case ZP_ROW_ADD: return zp_emit_contract(LLVMBuildFAdd(b, a[0], a[1], ""));
  case ZP_ROW_SUB: return zp_emit_contract(LLVMBuildFSub(b, a[0], a[1], ""));
  case ZP_ROW_MUL: return zp_emit_contract(LLVMBuildFMul(b, a[0], a[1], ""));
  case ZP_ROW_DIV: return LLVMBuildFDiv(b, a[0], a[1], "");
  case ZP_ROW_EXP: return zp_emit_exp(e, a[0]);
  case ZP_ROW_LOG: return zp_emit_log(e, a[0]);
  case ZP_ROW_SQRT: return zp_emit_sqrt(e, a[0]);
  case ZP_ROW_RSQRT: return LLVMBuildFDiv(b, zp_emit_real(e, a[0], 1), zp_emit_sqrt(e, a[0]), "");
  case ZP_ROW_TANH: return zp_emit_tanh(e, a[0]);
  case ZP_ROW_SIGMOID: return zp_emit_sigmoid(e, a[0]);
  case ZP_ROW_ERF: return zp_emit_erf(e, a[0]);
  case ZP_ROW_CAST_BF16: return zp_emit_cast(e, a[0], ZPK_BF16);
  case ZP_ROW_CAST_F16: return zp_emit_cast(e, a[0], ZPK_F16);
  case ZP_ROW_CAST_F32: return zp_emit_cast(e, a[0], ZPK_F32);
  case ZP_ROW_SELECT_LE: {
    LLVMValueRef test = LLVMBuildFCmp(b, LLVMRealOLE, a[0], a[1], "");
    return LLVMBuildSelect(b, test, a[2], a[3], "");
  }
  default: assert(!"not an elementwise op"); return NULL;
  }
}

LLVMValueRef zp_emit_value(zp_emit_kernel *k, int index, const zp_emit_block *block) {
  const zp_row_value *v = &k->program->values.data[index];
  if (v->op == ZP_ROW_IMM) return LLVMConstReal(k->e->real, v->imm);
  int n_arg = zp_row_args(v->op);
  LLVMValueRef arg[4], result;
  for (int i = 0; i < n_arg; i++) arg[i] = zp_emit_operand(k, v->arg[i], block->lanes);
  result = n_arg == 0 ? leaf(k, v, block) : compute(k->e, v->op, arg);
  if (v->name) LLVMSetValueName2(result, v->name, strlen(v->name)); /* LLVM makes it unique */
  return result;
}
