/* SPDX-License-Identifier: Apache-2.0 */
/* Row kernels: from FUSED and FUSED_GRAD nodes of a local graph to host objects and to CUDA C.
 *
 *   node --build/differentiate--> row program --simplify--> row program --LLVM--> object file
 *                                        \                      \--CUDA C--> <zplan/cuda.h>
 *                                         \--interpreter (f64), the oracle
 *
 * The row-program IR itself is in codegen/rowprog/rowprog.h. Calling conventions: zpk_row_kernel in <zplan/zpk.h>,
 * zpd_rows in <zplan/zpd.h>. One set serves one target or both: it holds programs. */
#ifndef ZPLAN_ROWKERNEL_H
#define ZPLAN_ROWKERNEL_H

#include <zplan/buf.h>
#include <zplan/model.h>
#include <zplan/zpk.h>

typedef struct zp_kernel_set zp_kernel_set;

/* dtype: of operands; arithmetic and column sums are f32 with the 16-bit ones, otherwise they have the same. */
zp_kernel_set *zp_kernels_new(zp_arena *arena, zpk_dtype dtype);
/* The kernel of a FUSED or FUSED_GRAD node; the same kernel for nodes that compute the same thing on the same columns.
 * Returns its symbol, a C identifier made from `hint` ("h_ln_1" -> "row_h_ln_1"), unique in the set. */
const char *zp_kernels_add(zp_kernel_set *set, const zp_graph *graph, const zp_node *node, const char *hint);
/* Adds a note to what is said of a kernel; the first one stays, as the first node's names do. */
void zp_kernels_note(zp_kernel_set *set, const char *symbol, const char *note);
int zp_kernels_count(const zp_kernel_set *set);
const char *zp_kernels_symbol(const zp_kernel_set *set, int index);
/* One comment line that says what kernel `index` computes, in the names of the first node that asked for it:
 * "ln_1 = layer_norm(x, ln_1_weight, ln_1_bias)", and its note. Arena. */
const char *zp_kernels_describe(const zp_kernel_set *set, int index);
/* The library that the first kernel opens: LLVM. */
const char *zp_kernels_library(void);
/* Compiles all kernels for a CPU: cpu == NULL means this host. features: LLVM feature string or NULL for the host's.
 * kept: a folder that keeps compiled sets, from which an equal one is taken; NULL: none.
 * Writes an ELF object to object_path and, when ir_path is not NULL, readable LLVM IR. Deterministic.
 * false with *error (arena) when LLVM refuses or is not there, or a file cannot be written. */
bool zp_kernels_compile(zp_kernel_set *set, const char *cpu, const char *features, const char *kept,
                        const char *object_path, const char *ir_path, const char **error);
/* All kernels as CUDA C, a ZPD_KERNEL each under its symbol, for zpd_rows and ZPD_ROW_THREADS threads a block; `real`
 * decides the element type when it is compiled. Begins with the includes that it needs. Deterministic. Arena. NULL with
 * *error (arena) when a kernel has more operands than zpd_rows. */
const char *zp_kernels_cuda_text(const zp_kernel_set *set, const char **error);
/* Kernel `index` of that text takes rows by tiles of columns, the second dimension of its grid: their number. 0: whole
 * rows. */
int zp_kernels_cuda_tiles(const zp_kernel_set *set, int index);
/* Readable dump of the row programs. Arena. */
const char *zp_kernels_text(const zp_kernel_set *set);

#endif
