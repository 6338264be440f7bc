/* SPDX-License-Identifier: Apache-2.0 */
/* Loads and stores of a block's columns, and the way between what operands are stored as and what is computed with. */
#include "emit.h"

static bool is_narrow(const zp_emit *e) { return e->elem != e->real; }

static unsigned align_of(const zp_emit *e, LLVMTypeRef type) {
  bool vector = LLVMGetTypeKind(type) == LLVMVectorTypeKind;
  bool elem = is_narrow(e) && (vector ? LLVMGetElementType(type) : type) == e->elem;
  return (unsigned)(elem ? e->elem_bytes : e->real_bytes);
}

LLVMValueRef zp_emit_load(zp_emit *e, LLVMTypeRef type, LLVMValueRef address, const zp_emit_block *block) {
  if (!block->mask) {
    LLVMValueRef load = LLVMBuildLoad2(e->builder, type, address, "");
    LLVMSetAlignment(load, align_of(e, type));
    return load;
  }
  LLVMValueRef align = LLVMConstInt(e->i32, align_of(e, type), false);
  return zp_emit_call(e, "llvm.masked.load", (LLVMTypeRef[]){type, e->pointer}, 2,
                      (LLVMValueRef[]){address, align, block->mask, LLVMConstNull(type)}, 4);
}

LLVMValueRef zp_emit_store(zp_emit *e, LLVMValueRef x, LLVMValueRef address, const zp_emit_block *block) {
  LLVMTypeRef type = LLVMTypeOf(x);
  if (!block->mask) {
    LLVMValueRef store = LLVMBuildStore(e->builder, x, address);
    LLVMSetAlignment(store, align_of(e, type));
    return store;
  }
  LLVMValueRef align = LLVMConstInt(e->i32, align_of(e, type), false);
  return zp_emit_call(e, "llvm.masked.store", (LLVMTypeRef[]){type, e->pointer}, 2,
                      (LLVMValueRef[]){x, address, align, block->mask}, 4);
}

LLVMValueRef zp_emit_widen(zp_emit *e, LLVMValueRef x) {
  if (!is_narrow(e)) return x;
  if (e->dtype == ZPK_F16) return LLVMBuildFPExt(e->builder, x, zp_emit_like(e->real, x), "");
  LLVMValueRef bits = LLVMBuildZExt(e->builder, x, zp_emit_like(e->i32, x), "");
  LLVMValueRef high = LLVMBuildShl(e->builder, bits, zp_emit_integer(e, bits, 16), "");
  return LLVMBuildBitCast(e->builder, high, zp_emit_like(e->real, x), "");
}

static LLVMValueRef i32_like(zp_emit *e, LLVMValueRef x, uint64_t number) {
  bool vector = LLVMGetTypeKind(LLVMTypeOf(x)) == LLVMVectorTypeKind;
  return zp_emit_splat(e, LLVMConstInt(e->i32, number, false), vector ? (int)LLVMGetVectorSize(LLVMTypeOf(x)) : 1);
}

/* The upper half of the nearest bf16, of two the even one; NaN stays NaN. x: f32. i32, as many as x. */
static LLVMValueRef bf16_bits(zp_emit *e, LLVMValueRef x) {
  LLVMBuilderRef b = e->builder;
  LLVMValueRef bits = LLVMBuildBitCast(b, x, zp_emit_like(e->i32, x), "");
  LLVMValueRef high = LLVMBuildLShr(b, bits, i32_like(e, bits, 16), "");
  LLVMValueRef odd = LLVMBuildAnd(b, high, i32_like(e, bits, 1), "");
  LLVMValueRef half = LLVMBuildAdd(b, odd, i32_like(e, bits, 0x7FFF), "");
  LLVMValueRef rounded = LLVMBuildLShr(b, LLVMBuildAdd(b, bits, half, ""), i32_like(e, bits, 16), "");
  LLVMValueRef quiet = LLVMBuildOr(b, high, i32_like(e, bits, 0x40), "");
  LLVMValueRef is_nan = LLVMBuildFCmp(b, LLVMRealUNO, x, x, "");
  return LLVMBuildSelect(b, is_nan, quiet, rounded, "");
}

LLVMValueRef zp_emit_round(zp_emit *e, LLVMValueRef x) {
  if (!is_narrow(e)) return x;
  if (e->dtype == ZPK_F16) return LLVMBuildFPTrunc(e->builder, x, zp_emit_like(e->elem, x), "");
  return LLVMBuildTrunc(e->builder, bf16_bits(e, x), zp_emit_like(e->elem, x), "");
}

LLVMValueRef zp_emit_cast(zp_emit *e, LLVMValueRef x, zpk_dtype to) {
  LLVMBuilderRef b = e->builder;
  LLVMTypeRef f32 = LLVMFloatTypeInContext(e->context), f16 = LLVMHalfTypeInContext(e->context);
  bool wide = e->real_bytes == 8;
  LLVMValueRef narrow = wide ? LLVMBuildFPTrunc(b, x, zp_emit_like(f32, x), "") : x;
  if (to == ZPK_BF16) {
    LLVMValueRef bits = bf16_bits(e, narrow), high = LLVMBuildShl(b, bits, i32_like(e, bits, 16), "");
    narrow = LLVMBuildBitCast(b, high, zp_emit_like(f32, x), "");
  } else if (to == ZPK_F16) {
    narrow = LLVMBuildFPTrunc(b, narrow, zp_emit_like(f16, x), "");
    narrow = LLVMBuildFPExt(b, narrow, zp_emit_like(f32, x), "");
  }
  return wide ? LLVMBuildFPExt(b, narrow, LLVMTypeOf(x), "") : narrow;
}
