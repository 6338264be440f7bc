/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel set of one build: row programs with their symbols, each program once. codegen/host compiles them through
 * LLVM, codegen/cuda prints them as CUDA C. */
#include <assert.h>
#include <ctype.h>
#include "kernel_set.h"

zp_kernel_set *zp_kernels_new(zp_arena *arena, zpk_dtype dtype) {
  assert(dtype <= ZPK_F16);
  zp_kernel_set *set = ZP_NEW(arena, zp_kernel_set);
  set->arena = arena;
  set->dtype = dtype;
  return set;
}

static bool symbol_taken(const zp_kernel_set *set, const char *symbol) {
  for (int i = 0; i < set->kernels.len; i++)
    if (strcmp(set->kernels.data[i].symbol, symbol) == 0) return true;
  return false;
}

/* "h.ln 1" -> "row_h_ln_1"; a number follows when another kernel has that name. */
static const char *new_symbol(const zp_kernel_set *set, const char *hint) {
  char *base = zp_format(set->arena, "row_%s", hint && *hint ? hint : "kernel");
  for (char *c = base; *c; c++)
    if (!isalnum((unsigned char)*c)) *c = '_';
  const char *symbol = base;
  for (int number = 2; symbol_taken(set, symbol); number++) symbol = zp_format(set->arena, "%s_%d", base, number);
  return symbol;
}

const char *zp_kernels_add(zp_kernel_set *set, const zp_graph *graph, const zp_node *node, const char *hint) {
  assert(node->op == ZP_OP_FUSED || node->op == ZP_OP_FUSED_GRAD);
  assert(hint);
  zp_kernel fresh = {.program = zp_row_from_node(set->arena, graph, node)};
  fresh.text = zp_row_text(fresh.program);
  for (int i = 0; i < set->kernels.len; i++)
    if (strcmp(set->kernels.data[i].text, fresh.text) == 0) return set->kernels.data[i].symbol;
  fresh.symbol = new_symbol(set, hint);
  fresh.about = zp_row_describe(set->arena, graph, node);
  zp_push(set->arena, &set->kernels, fresh);
  return fresh.symbol;
}

void zp_kernels_note(zp_kernel_set *set, const char *symbol, const char *note) {
  for (int i = 0; i < set->kernels.len; i++) {
    zp_kernel *k = &set->kernels.data[i];
    if (strcmp(k->symbol, symbol) != 0 || k->has_note) continue;
    k->about = zp_format(set->arena, "%s; %s", k->about, note);
    k->has_note = true;
  }
}

int zp_kernels_count(const zp_kernel_set *set) { return set->kernels.len; }
const char *zp_kernels_symbol(const zp_kernel_set *set, int index) {
  assert(index >= 0 && index < set->kernels.len);
  return set->kernels.data[index].symbol;
}
const char *zp_kernels_describe(const zp_kernel_set *set, int index) {
  assert(index >= 0 && index < set->kernels.len);
  return set->kernels.data[index].about;
}

const char *zp_kernels_text(const zp_kernel_set *set) {
  zp_buf buf = zp_buf_new(set->arena);
  for (int i = 0; i < set->kernels.len; i++) {
    const zp_kernel *k = &set->kernels.data[i];
    zp_buf_printf(&buf, "%s: %s\n%s", k->symbol, k->about, zp_row_named_text(k->program));
  }
  return buf.data ? buf.data : "";
}
