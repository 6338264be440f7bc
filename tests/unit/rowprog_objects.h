/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles kernel sets to shared objects and loads them, for the tests of codegen/host. */
#ifndef ROWPROG_OBJECTS_H
#define ROWPROG_OBJECTS_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "rowprog_testing.h"

typedef struct loaded_set {
  char folder[64];
  void *library;
} loaded_set;

static inline loaded_set load_set(zp_kernel_set *set, const char *cpu, const char *features) {
  loaded_set l = {.folder = "zplan-rowprog-XXXXXX"};
  cr_assert_not_null(mkdtemp(l.folder));
  char object[128], shared[128], command[512];
  snprintf(object, sizeof object, "%s/kernels.o", l.folder);
  snprintf(shared, sizeof shared, "%s/kernels.so", l.folder);
  snprintf(command, sizeof command, "cc -shared -o %s %s -lm", shared, object);
  const char *error = NULL;
  cr_assert(zp_kernels_compile(set, cpu, features, NULL, object, NULL, &error), "%s", error);
  cr_assert_eq(system(command), 0, "%s", command);
  l.library = dlopen(shared, RTLD_NOW | RTLD_LOCAL);
  cr_assert_not_null(l.library, "%s", dlerror());
  unlink(object);
  unlink(shared);
  rmdir(l.folder);
  return l;
}

static inline void *find_symbol(const loaded_set *l, const char *symbol) {
  void *address = dlsym(l->library, symbol);
  cr_assert_not_null(address, "no symbol %s", symbol);
  return address;
}

static inline void unload_set(loaded_set *l) { dlclose(l->library); }

/* ---- whole models through compiled kernels ---- */

static inline void run_kernel(const void *what, const zpk_row_args *args, int64_t begin, int64_t end, int64_t chunk) {
  ((zpk_row_kernel *)what)(args, begin, end, chunk);
}

/* All models at some sizes, in one object. */
typedef struct bench {
  row_models models;
  loaded_set loaded;
} bench;

static inline void bench_open(bench *b, const int64_t *sizes, int n_sizes, zpk_dtype dtype, const char *cpu,
                              const char *features) {
  row_models_open(&b->models, sizes, n_sizes, dtype);
  b->loaded = load_set(b->models.set, cpu, features);
}

static inline void bench_close(bench *b) {
  unload_set(&b->loaded);
  row_models_close(&b->models);
}

static inline const void *kernel_of(bench *b, const row_world *w, const zp_node *node) {
  return find_symbol(&b->loaded, zp_kernels_add(b->models.set, w->graph, node, "lookup"));
}

/* Bitwise: rows do not depend on how the rows are cut into chunks. Column sums depend on the cut alone. */
static inline void check_partitions(const row_world *w, const zp_node *node, const void *kernel, zpk_dtype type) {
  row_call reference = row_call_new(w, node, 0, type), other = row_call_new(w, node, 0, type);
  size_t bytes = (size_t)zpk_bytes(type);
  row_call_run(&reference, run_kernel, kernel, 1);
  for (int64_t chunks = 2; chunks <= ZPK_CHUNKS; chunks += 3) {
    row_call_run(&other, run_kernel, kernel, chunks);
    for (int o = 0; o < other.n_out; o++)
      cr_assert_eq(memcmp(other.out[o], reference.out[o], bytes * (size_t)(ROW_ROWS * other.out_ld[o])), 0,
                   "output %d of %s differs with %lld chunks\n%s", o, node->name, (long long)chunks,
                   zp_row_text(zp_row_from_node(w->k.arena, NULL, node)));
  }
}

static inline void check_all(bench *b, zpk_dtype type, double bound) {
  for (int i = 0; i < b->models.count; i++) {
    row_world *w = &b->models.world[i];
    for (int n = 0; n < w->graph->nodes.len; n++) {
      const zp_node *node = &w->graph->nodes.data[n];
      if (!is_fused(node)) continue;
      const void *kernel = kernel_of(b, w, node);
      if (zpk_is_narrow(type)) round_world(w, type);
      row_call call = row_call_new(w, node, 3, type);
      run_oracle(w, node);
      row_call_run(&call, run_kernel, kernel, 5);
      double error = node_error(w, node, &call);
      cr_assert_lt(error, bound, "%s, %lld columns, %s: error %g\n%s", b->models.test[i]->name,
                   (long long)value_columns(node->fused, node->fused->n_in), zp_op_name(node->op), error,
                   zp_row_text(zp_row_from_node(w->k.arena, NULL, node)));
      check_partitions(w, node, kernel, type);
    }
  }
}

/* Compiles for a target and compares all nodes with the oracle. */
static inline void check_sizes(const int64_t *sizes, int n_sizes, zpk_dtype dtype, const char *cpu,
                               const char *features, double bound) {
  bench *b = calloc(1, sizeof *b);
  bench_open(b, sizes, n_sizes, dtype, cpu, features);
  check_all(b, dtype, bound);
  bench_close(b);
  free(b);
}

#endif
