/* SPDX-License-Identifier: Apache-2.0 */
/* A model, a cluster and settings that test_spec_*.c add to or change, and loading them. */
#ifndef ZPLAN_TEST_SPEC_TESTING_H
#define ZPLAN_TEST_SPEC_TESTING_H

#include "sema_fixture.h"

#define MODEL                                                                                                          \
  "use std.nn\nuse std.hw\n"                                                                                           \
  "model m(V = 64, S = 16, d = 8, layers = 2) {\n"                                                                     \
  "  input tokens: i32[B, S]\n  input labels: i32[B, S]\n  param wte: [V, d]\n  x = embedding(tokens, wte)\n"          \
  "  repeat h in 0..layers { x = x + linear(layer_norm(x), d) }\n"                                                     \
  "  output loss = cross_entropy(matmul(x, transpose(wte)), labels)\n}\n"
#define CLUSTER "cluster c { nodes = 1  node = std.hw.cpu_generic(cores = 8, memory = 16GiB) }\n"
#define TRAIN "train { batch = 8  steps = 10  optimizer = adamw(lr = 1e-3)  data = synthetic(seed = 1) }\n"

static inline fixture load_with(const char *text, zp_load_options options) {
  fixture f = {.arena = zp_arena_new("test")};
  f.diags = zp_diags_new(f.arena);
  options.library_dir = ZPLAN_SOURCE_DIR "/frontend/library";
  zp_source_text source = {"folder/test.dz", text, strlen(text), false};
  f.spec = zp_load(f.arena, f.diags, source.path, &source, 1, &options);
  return f;
}

static inline fixture good_with(const char *text, zp_load_options options) {
  fixture f = load_with(text, options);
  char *shown = f.spec ? NULL : printed(&f);
  cr_assert(f.spec, "%s", shown ? shown : "");
  return f;
}

static inline fixture good(const char *text) { return good_with(text, (zp_load_options){0}); }

static inline fixture good_set(const char *text, const char *const *set, int n) {
  return good_with(text, (zp_load_options){.set = set, .n_set = n});
}

static inline const zp_constraints *only_plan(const fixture *f) { return &f->spec->plans.data[f->spec->plan]; }

/* The values that a limit allows among 0 .. 7, one bit each. */
static inline unsigned allowed(const zp_limit *limit) {
  unsigned bits = 0;
  for (int v = 0; v < 8; v++) bits |= (unsigned)zp_limit_allows(limit, v) << v;
  return bits;
}
#define BIT(v) (1u << (v))

#endif
