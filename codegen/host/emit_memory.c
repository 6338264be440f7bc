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

LLVMValueRef zp_emit_round(zp_emit *e, LLVMValueRef x) {
  if (!is_narrow(e)) return x;
  if (e->dtype == ZPK_F16) return LLVMBuildFPTrunc(e->builder, x, zp_emit_like(e->elem, x), "");
  LLVMBuilderRef b = e->builder;
  LLVMValueRef bits = LLVMBuildBitCast(b, x, zp_emit_like(e->i32, x), "");
  LLVMValueRef high = LLVMBuildLShr(b, bits, zp_emit_integer(e, bits, 16), "");
  LLVMValueRef odd = LLVMBuildAnd(b, high, zp_emit_integer(e, bits, 1), "");
  LLVMValueRef half = LLVMBuildAdd(b, odd, zp_emit_integer(e, bits, 0x7FFF), "");
  LLVMValueRef rounded = LLVMBuildLShr(b, LLVMBuildAdd(b, bits, half, ""), zp_emit_integer(e, bits, 16), "");
  LLVMValueRef quiet = LLVMBuildOr(b, high, zp_emit_integer(e, bits, 0x40), "");
  LLVMValueRef is_nan = LLVMBuildFCmp(b, LLVMRealUNO, x, x, "");
  return LLVMBuildTrunc(b, LLVMBuildSelect(b, is_nan, quiet, rounded, ""), zp_emit_like(e->elem, x), "");
}
