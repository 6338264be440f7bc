/* SPDX-License-Identifier: Apache-2.0 */
/* The frame of a kernel: arguments, the loop over rows, and inside it the levels of the schedule. */
#include <stddef.h>
#include "emit.h"

static void add_attribute(zp_emit *e, LLVMValueRef function, const char *name, const char *text) {
  LLVMAttributeRef attribute =
      LLVMCreateStringAttribute(e->context, name, (unsigned)strlen(name), text, (unsigned)strlen(text));
  LLVMAddAttributeAtIndex(function, LLVMAttributeFunctionIndex, attribute);
}

/* Without prefer-vector-width LLVM splits 512-bit vectors in two on many targets. */
static void add_attributes(zp_emit *e, LLVMValueRef function) {
  unsigned nounwind = LLVMGetEnumAttributeKindForName("nounwind", 8);
  unsigned noalias = LLVMGetEnumAttributeKindForName("noalias", 7);
  LLVMAddAttributeAtIndex(function, LLVMAttributeFunctionIndex, LLVMCreateEnumAttribute(e->context, nounwind, 0));
  LLVMAddAttributeAtIndex(function, 1, LLVMCreateEnumAttribute(e->context, noalias, 0));
  add_attribute(e, function, "target-cpu", e->cpu);
  add_attribute(e, function, "target-features", e->features);
  add_attribute(e, function, "prefer-vector-width", zp_format(e->arena, "%d", e->vector_bytes * 8));
}

static void create_function(zp_emit_kernel *k, const char *symbol) {
  zp_emit *e = k->e;
  LLVMTypeRef parameters[] = {e->pointer, e->i64, e->i64, e->i64};
  LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(e->context), parameters, 4, false);
  k->function = LLVMAddFunction(e->module, symbol, type);
  add_attributes(e, k->function);
  LLVMValueRef *place[] = {&k->args, &k->row_begin, &k->row_end, &k->chunk};
  static const char *const name[] = {"args", "row_begin", "row_end", "chunk"};
  for (unsigned i = 0; i < 4; i++) {
    *place[i] = LLVMGetParam(k->function, i);
    LLVMSetValueName2(*place[i], name[i], strlen(name[i]));
  }
}

/* Elements 0 .. count-1 of the array that a field of the arguments points to. */
static LLVMValueRef *load_array(zp_emit_kernel *k, size_t offset, LLVMTypeRef type, int count, const char *name) {
  LLVMValueRef *element = ZP_NEW_ARRAY(k->e->arena, LLVMValueRef, count);
  if (count == 0) return element;
  LLVMValueRef base = zp_emit_field(k, offset, k->e->pointer);
  for (int i = 0; i < count; i++)
    element[i] = LLVMBuildLoad2(k->e->builder, type, zp_emit_element(k->e, type, base, zp_emit_i64(k->e, i)), name);
  return element;
}

/* Narrows partial[] to this chunk's share and clears it: also an empty chunk leaves zeros. */
static void start_column_sums(zp_emit_kernel *k) {
  zp_emit *e = k->e;
  for (int i = 0; i < k->program->sinks.len; i++) {
    const zp_row_sink *sink = &k->program->sinks.data[i];
    if (sink->kind != ZP_ROW_CSUM) continue;
    LLVMValueRef offset = LLVMBuildNSWMul(e->builder, k->chunk, zp_emit_i64(e, sink->cols), "");
    LLVMValueRef share = zp_emit_element(e, e->real, k->partial[sink->index], offset);
    LLVMBuildMemSet(e->builder, share, LLVMConstInt(e->i8, 0, false), zp_emit_i64(e, sink->cols * e->real_bytes),
                    (unsigned)e->real_bytes);
    k->partial[sink->index] = share;
  }
}

static void start_kernel(zp_emit_kernel *k) {
  zp_emit *e = k->e;
  const zp_row_program *p = k->program;
  k->in = load_array(k, offsetof(zpk_row_args, in), e->pointer, p->n_in, "in");
  k->in_ld = load_array(k, offsetof(zpk_row_args, in_ld), e->i64, p->n_in, "in_ld");
  k->out = load_array(k, offsetof(zpk_row_args, out), e->pointer, p->n_out, "out");
  k->out_ld = load_array(k, offsetof(zpk_row_args, out_ld), e->i64, p->n_out, "out_ld");
  k->partial = load_array(k, offsetof(zpk_row_args, partial), e->pointer, p->n_partial, "partial");
  k->dropout = LLVMBuildICmp(e->builder, LLVMIntNE, zp_emit_field(k, offsetof(zpk_row_args, dropout), e->i8),
                             LLVMConstInt(e->i8, 0, false), "dropout");
  start_column_sums(k);
  zp_emit_keep_start(k);
  zp_emit_rope_start(k);
}

static LLVMValueRef *row_pointers(zp_emit_kernel *k, LLVMValueRef *base, LLVMValueRef *ld, int count) {
  LLVMValueRef *pointer = ZP_NEW_ARRAY(k->e->arena, LLVMValueRef, count);
  for (int i = 0; i < count; i++) {
    LLVMValueRef offset = LLVMBuildNSWMul(k->e->builder, k->row, ld[i], "");
    pointer[i] = zp_emit_element(k->e, k->e->elem, base[i], offset);
  }
  return pointer;
}

static void start_row(zp_emit_kernel *k) {
  zp_emit *e = k->e;
  LLVMValueRef S = zp_emit_i64(e, k->program->rows_per_sample > 0 ? k->program->rows_per_sample : 1);
  k->position = LLVMBuildURem(e->builder, k->row, S, "position");
  k->sample = LLVMBuildUDiv(e->builder, k->row, S, "sample");
  k->in_row = row_pointers(k, k->in, k->in_ld, k->program->n_in);
  k->out_row = row_pointers(k, k->out, k->out_ld, k->program->n_out);
  zp_emit_keep_row(k);
  zp_emit_rope_row(k);
}

static void emit_row(zp_emit_kernel *k) {
  static const zp_emit_block scalar = {.lanes = 1};
  for (int level = 0; level < k->schedule.n_levels; level++) {
    const zp_ints *scalars = &k->schedule.scalars[level];
    for (int i = 0; i < scalars->len; i++) k->value[scalars->data[i]] = zp_emit_value(k, scalars->data[i], &scalar);
    for (int i = 0; i < k->schedule.passes.len; i++)
      if (k->schedule.passes.data[i].level == level) zp_emit_pass(k, &k->schedule.passes.data[i]);
  }
}

void zp_emit_function(zp_emit *e, const zp_row_program *program, const char *symbol) {
  zp_emit_kernel k = {.e = e, .program = program, .schedule = zp_row_make_schedule(program)};
  k.value = ZP_NEW_ARRAY(e->arena, LLVMValueRef, program->values.len);
  create_function(&k, symbol);
  k.entry = LLVMAppendBasicBlockInContext(e->context, k.function, "entry");
  LLVMBasicBlockRef start = LLVMAppendBasicBlockInContext(e->context, k.function, "start");
  LLVMPositionBuilderAtEnd(e->builder, start);
  start_kernel(&k);
  zp_emit_loop rows = zp_emit_loop_begin(&k, k.row_begin, k.row_end, zp_emit_i64(e, 1), "row");
  k.row = rows.index;
  start_row(&k);
  emit_row(&k);
  zp_emit_loop_end(&k, &rows);
  LLVMBuildRetVoid(e->builder);
  LLVMPositionBuilderAtEnd(e->builder, k.entry); /* now that all stack slots are known */
  LLVMBuildBr(e->builder, start);
}
