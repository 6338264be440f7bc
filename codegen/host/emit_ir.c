/* SPDX-License-Identifier: Apache-2.0 */
/* Small helpers around the LLVM builder: types, constants, calls, loops. */
#include <assert.h>
#include "emit.h"

LLVMTypeRef zp_emit_vector(LLVMTypeRef scalar, int lanes) {
  return lanes == 1 ? scalar : LLVMVectorType(scalar, (unsigned)lanes);
}

static int lanes_of(LLVMValueRef shape) {
  LLVMTypeRef type = LLVMTypeOf(shape);
  return LLVMGetTypeKind(type) == LLVMVectorTypeKind ? (int)LLVMGetVectorSize(type) : 1;
}

LLVMTypeRef zp_emit_like(LLVMTypeRef scalar, LLVMValueRef shape) { return zp_emit_vector(scalar, lanes_of(shape)); }

LLVMValueRef zp_emit_splat(zp_emit *e, LLVMValueRef scalar, int lanes) {
  if (lanes == 1) return scalar;
  if (LLVMIsConstant(scalar)) {
    LLVMValueRef *copies = ZP_NEW_ARRAY(e->arena, LLVMValueRef, lanes);
    for (int i = 0; i < lanes; i++) copies[i] = scalar;
    return LLVMConstVector(copies, (unsigned)lanes);
  }
  LLVMTypeRef type = LLVMVectorType(LLVMTypeOf(scalar), (unsigned)lanes);
  LLVMValueRef zero = LLVMConstInt(e->i32, 0, false), poison = LLVMGetPoison(type);
  LLVMValueRef one = LLVMBuildInsertElement(e->builder, poison, scalar, zero, "");
  return LLVMBuildShuffleVector(e->builder, one, poison, LLVMConstNull(LLVMVectorType(e->i32, (unsigned)lanes)), "");
}

LLVMValueRef zp_emit_real(zp_emit *e, LLVMValueRef shape, double number) {
  return zp_emit_splat(e, LLVMConstReal(e->real, number), lanes_of(shape));
}

LLVMValueRef zp_emit_integer(zp_emit *e, LLVMValueRef shape, uint64_t number) {
  return zp_emit_splat(e, LLVMConstInt(e->integer, number, false), lanes_of(shape));
}

LLVMValueRef zp_emit_i64(zp_emit *e, int64_t number) { return LLVMConstInt(e->i64, (uint64_t)number, true); }

LLVMValueRef zp_emit_call(zp_emit *e, const char *intrinsic, LLVMTypeRef *overload, unsigned n_overload,
                          LLVMValueRef *arg, unsigned n_arg) {
  unsigned id = LLVMLookupIntrinsicID(intrinsic, strlen(intrinsic));
  assert(id != 0);
  LLVMValueRef callee = LLVMGetIntrinsicDeclaration(e->module, id, overload, n_overload);
  LLVMTypeRef type = LLVMIntrinsicGetType(e->context, id, overload, n_overload);
  return LLVMBuildCall2(e->builder, type, callee, arg, n_arg, "");
}

LLVMValueRef zp_emit_contract(LLVMValueRef instruction) {
  if (LLVMIsAInstruction(instruction) && LLVMCanValueUseFastMathFlags(instruction))
    LLVMSetFastMathFlags(instruction, LLVMFastMathAllowContract);
  return instruction;
}

LLVMValueRef zp_emit_element(zp_emit *e, LLVMTypeRef type, LLVMValueRef base, LLVMValueRef index) {
  return LLVMBuildInBoundsGEP2(e->builder, type, base, &index, 1, "");
}

LLVMValueRef zp_emit_field(zp_emit_kernel *k, size_t offset, LLVMTypeRef type) {
  LLVMValueRef address = zp_emit_element(k->e, k->e->i8, k->args, zp_emit_i64(k->e, (int64_t)offset));
  return LLVMBuildLoad2(k->e->builder, type, address, "");
}

LLVMValueRef zp_emit_slot(zp_emit_kernel *k, LLVMTypeRef type, const char *name) {
  LLVMBasicBlockRef here = LLVMGetInsertBlock(k->e->builder);
  LLVMPositionBuilder(k->e->builder, k->entry, LLVMGetFirstInstruction(k->entry));
  LLVMValueRef slot = LLVMBuildAlloca(k->e->builder, type, name);
  LLVMSetAlignment(slot, 64);
  LLVMPositionBuilderAtEnd(k->e->builder, here);
  return slot;
}

zp_emit_loop zp_emit_loop_begin(zp_emit_kernel *k, LLVMValueRef begin, LLVMValueRef end, LLVMValueRef step,
                                const char *name) {
  zp_emit *e = k->e;
  LLVMBasicBlockRef before = LLVMGetInsertBlock(e->builder);
  zp_emit_loop loop = {.step = step};
  loop.head = LLVMAppendBasicBlockInContext(e->context, k->function, name);
  LLVMBasicBlockRef body = LLVMAppendBasicBlockInContext(e->context, k->function, "body");
  loop.exit = LLVMAppendBasicBlockInContext(e->context, k->function, "done");
  LLVMBuildBr(e->builder, loop.head);
  LLVMPositionBuilderAtEnd(e->builder, loop.head);
  loop.index = LLVMBuildPhi(e->builder, e->i64, name);
  LLVMAddIncoming(loop.index, &begin, &before, 1);
  LLVMValueRef more = LLVMBuildICmp(e->builder, LLVMIntSLT, loop.index, end, "");
  LLVMBuildCondBr(e->builder, more, body, loop.exit);
  LLVMPositionBuilderAtEnd(e->builder, body);
  return loop;
}

void zp_emit_loop_end(zp_emit_kernel *k, const zp_emit_loop *loop) {
  zp_emit *e = k->e;
  LLVMBasicBlockRef last = LLVMGetInsertBlock(e->builder);
  LLVMValueRef next = LLVMBuildNSWAdd(e->builder, loop->index, loop->step, "");
  LLVMBuildBr(e->builder, loop->head);
  LLVMAddIncoming(loop->index, &next, &last, 1);
  LLVMPositionBuilderAtEnd(e->builder, loop->exit);
}
