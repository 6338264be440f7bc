/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files that lower row programs to LLVM IR. LLVM handles stay inside codegen/host.
 *
 * A kernel is a loop over rows around straight-line u code and loops over columns (one for each pass). Columns are
 * handled in explicit vectors; the tail, whose size is a compile-time constant, is one more vector with masked loads
 * and stores.
 *
 * Floating point: `contract` on ordinary arithmetic and nothing else, so that NaN and Inf keep their meaning and
 * results do not depend on how LLVM regroups sums; `reassoc` only on horizontal sums. */
#ifndef ZPLAN_EMIT_H
#define ZPLAN_EMIT_H

#include <zplan/zpk.h>
#include "llvm_calls.h"
#include "rowprog.h"

/* A constant table of cosines and signed sines, [S][head]. */
typedef struct zp_emit_table {
  double theta;
  zp_row_pairs pairs;
  int64_t positions;
  LLVMValueRef cosine, sine;
} zp_emit_table;

typedef struct zp_emit {
  zp_arena *arena; /* borrowed */
  LLVMContextRef context;
  LLVMModuleRef module;
  LLVMBuilderRef builder;
  LLVMTypeRef real, integer; /* integer: as wide as real */
  LLVMTypeRef elem; /* what operands are stored as: real; half, or i16 for bf16, which are computed with in f32 */
  LLVMTypeRef i1, i8, i32, i64, pointer;
  zpk_dtype dtype;
  int elem_bytes, real_bytes, vector_bytes;
  const char *cpu, *features; /* function attributes; borrowed */
  LLVMValueRef output_scope;  /* metadata: stores belong to it, loads of inputs are outside */
  ZP_VEC(zp_emit_table) tables;
} zp_emit;

/* Columns [column, column + lanes) of the current row. */
typedef struct zp_emit_block {
  LLVMValueRef column; /* i64 */
  int lanes;
  LLVMValueRef mask; /* constant <lanes x i1>, NULL when all lanes are columns */
} zp_emit_block;

/* Per-row source of the KEEP values of one dropout: one byte for each column. */
typedef struct zp_emit_keep {
  zp_row_value value;
  LLVMValueRef bytes;  /* stack buffer */
  LLVMValueRef first;  /* i64: index of column 0 in it, 0..3 */
  LLVMValueRef factor; /* real: what kept columns are multiplied with */
} zp_emit_keep;

/* Per-row source of COS and SIN values: a row of a constant table, or a stack buffer filled for each row. */
typedef struct zp_emit_rope {
  zp_row_value value;
  bool computed;
  LLVMValueRef cosine, sine;         /* table or buffer */
  LLVMValueRef row_cosine, row_sine; /* of the current row */
} zp_emit_rope;

typedef struct zp_emit_kernel {
  zp_emit *e;
  const zp_row_program *program;
  zp_row_schedule schedule;
  LLVMValueRef function, args, row_begin, row_end, chunk;
  LLVMBasicBlockRef entry;                           /* holds the stack slots */
  LLVMValueRef *in, *in_ld, *out, *out_ld, *partial; /* partial: this chunk's share */
  LLVMValueRef row, position, sample;                /* of the current row; sample inside the call, from 0 */
  LLVMValueRef *in_row, *out_row;
  LLVMValueRef *value; /* per row value: u scalars of this row, r vectors of the current block */
  LLVMValueRef dropout;
  ZP_VEC(zp_emit_keep) keeps;
  ZP_VEC(zp_emit_rope) ropes;
} zp_emit_kernel;

/* ---- emit_ir.c: small helpers ---- */
LLVMTypeRef zp_emit_vector(LLVMTypeRef scalar, int lanes);        /* the scalar type itself for one lane */
LLVMTypeRef zp_emit_like(LLVMTypeRef scalar, LLVMValueRef shape); /* scalar, or a vector of it as wide as `shape` */
LLVMValueRef zp_emit_splat(zp_emit *e, LLVMValueRef scalar, int lanes);
LLVMValueRef zp_emit_real(zp_emit *e, LLVMValueRef shape, double number); /* constants shaped like `shape` */
LLVMValueRef zp_emit_integer(zp_emit *e, LLVMValueRef shape, uint64_t number);
LLVMValueRef zp_emit_i64(zp_emit *e, int64_t number);
LLVMValueRef zp_emit_call(zp_emit *e, const char *intrinsic, LLVMTypeRef *overload, unsigned n_overload,
                          LLVMValueRef *arg, unsigned n_arg);
LLVMValueRef zp_emit_contract(LLVMValueRef instruction); /* allows fusing into multiply-add; returns it */
LLVMValueRef zp_emit_element(zp_emit *e, LLVMTypeRef type, LLVMValueRef base, LLVMValueRef index);
LLVMValueRef zp_emit_field(zp_emit_kernel *k, size_t offset, LLVMTypeRef type);   /* a field of zpk_row_args */
LLVMValueRef zp_emit_slot(zp_emit_kernel *k, LLVMTypeRef type, const char *name); /* stack slot, aligned to 64 */

typedef struct zp_emit_loop {
  LLVMBasicBlockRef head, exit;
  LLVMValueRef index, step;
} zp_emit_loop;
/* for (index = begin; index < end; index += step); the builder is left in the body, after zp_emit_loop_end after
 * it. */
zp_emit_loop zp_emit_loop_begin(zp_emit_kernel *k, LLVMValueRef begin, LLVMValueRef end, LLVMValueRef step,
                                const char *name);
void zp_emit_loop_end(zp_emit_kernel *k, const zp_emit_loop *loop);

/* ---- emit_math.c: functions of scalars or vectors; error bounds there ---- */
LLVMValueRef zp_emit_exp(zp_emit *e, LLVMValueRef x);
LLVMValueRef zp_emit_log(zp_emit *e, LLVMValueRef x);
LLVMValueRef zp_emit_tanh(zp_emit *e, LLVMValueRef x);
LLVMValueRef zp_emit_sigmoid(zp_emit *e, LLVMValueRef x);
LLVMValueRef zp_emit_erf(zp_emit *e, LLVMValueRef x);
LLVMValueRef zp_emit_sqrt(zp_emit *e, LLVMValueRef x);

/* ---- emit_keep.c, emit_rope.c: leaves that are prepared once for each row ---- */
void zp_emit_keep_start(zp_emit_kernel *k); /* before the row loop */
void zp_emit_keep_row(zp_emit_kernel *k);   /* at the start of a row */
LLVMValueRef zp_emit_keep_value(zp_emit_kernel *k, const zp_row_value *v, LLVMValueRef column, int lanes);
void zp_emit_rope_start(zp_emit_kernel *k);
void zp_emit_rope_row(zp_emit_kernel *k);
LLVMValueRef zp_emit_rope_value(zp_emit_kernel *k, const zp_row_value *v, LLVMValueRef column, int lanes);

/* ---- emit_memory.c: columns of a block, as many as it has lanes ---- */
/* A block of an operand, or of a column sum, which is stored as real. Mark the results (alias scopes) yourself. */
LLVMValueRef zp_emit_load(zp_emit *e, LLVMTypeRef type, LLVMValueRef address, const zp_emit_block *block);
LLVMValueRef zp_emit_store(zp_emit *e, LLVMValueRef x, LLVMValueRef address, const zp_emit_block *block);
/* From elem to real, and back: to the nearest, of two equally near ones the even one; NaN stays NaN. */
LLVMValueRef zp_emit_widen(zp_emit *e, LLVMValueRef x);
LLVMValueRef zp_emit_round(zp_emit *e, LLVMValueRef x);
/* The nearest number of another type, F32, BF16 or F16, by way of f32; of the type of x. */
LLVMValueRef zp_emit_cast(zp_emit *e, LLVMValueRef x, zpk_dtype to);

/* ---- emit_value.c ---- */
/* One value at one block; u values have one lane and no column. */
LLVMValueRef zp_emit_value(zp_emit_kernel *k, int v, const zp_emit_block *block);
LLVMValueRef zp_emit_operand(zp_emit_kernel *k, int v, int lanes);

/* ---- emit_pass.c, emit_kernel.c, module.c ---- */
void zp_emit_pass(zp_emit_kernel *k, const zp_row_pass *pass);
void zp_emit_function(zp_emit *e, const zp_row_program *program, const char *symbol);

typedef struct zp_module_spec {
  zpk_dtype dtype;
  int count;
  const zp_row_program *const *program;
  const char *const *symbol;
  const char *cpu, *features; /* NULL: this host's */
} zp_module_spec;
typedef struct zp_compiled_module {
  const char *object, *ir; /* ELF; readable text */
  size_t object_bytes;
} zp_compiled_module;
/* false with *error when LLVM refuses. All arena. */
bool zp_module_compile(zp_arena *arena, const zp_module_spec *spec, zp_compiled_module *module, const char **error);

/* ---- kept.c ---- */
/* Where a folder keeps a module: a path without its suffix. NULL: this system does not say what decides about it. */
const char *zp_kept_base(zp_arena *arena, const char *folder, const zp_module_spec *spec);
bool zp_kept_read(zp_arena *arena, const char *base, zp_compiled_module *module); /* false: it is not there */
bool zp_kept_write(zp_arena *arena, const char *base, const zp_compiled_module *module, const char **error);

#endif
