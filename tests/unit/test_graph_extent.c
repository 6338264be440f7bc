/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes in symbols: texts by hand, values by evaluating them; and what a model's shapes are in its own symbols. */
#include <zplan/extent.h>
#include "sema_fixture.h"

static zp_arena *arena;
static void setup(void) { arena = zp_arena_new("extent"); }
static void teardown(void) { zp_arena_free(arena); }
TestSuite(extent, .init = setup, .fini = teardown);

static const zp_extent *symbol(const char *name, int64_t value) { return zp_extent_symbol(arena, name, value); }
static const zp_extent *number(int64_t value) { return zp_extent_number(arena, value); }
static const zp_extent *times(const zp_extent *a, const zp_extent *b) { return zp_extent_product(arena, a, b); }
static const zp_extent *over(const zp_extent *a, const zp_extent *b) { return zp_extent_quotient(arena, a, b); }

static void expect(const zp_extent *extent, const char *text, int64_t value) {
  cr_assert(extent, "%s", text);
  cr_expect_str_eq(zp_extent_text(arena, extent), text);
  cr_expect_eq(extent->value, value, "%s", text);
}

Test(extent, products_and_quotients) {
  const zp_extent *d = symbol("d", 128), *heads = symbol("heads", 8), *kv = symbol("kv_heads", 2);
  expect(d, "d", 128);
  expect(number(7), "7", 7);
  expect(number(1), "1", 1);
  expect(times(number(3), d), "3*d", 384);
  expect(times(d, number(3)), "3*d", 384);
  expect(times(d, d), "d*d", 128 * 128);
  expect(over(times(kv, d), heads), "kv_heads*d/heads", 32);
  expect(times(over(d, heads), heads), "d", 128);
  expect(over(times(number(3), d), number(3)), "d", 128);
  expect(over(times(number(3), d), number(2)), "3*d/2", 192);
  cr_expect_null(over(d, number(3)), "128 / 3 is no whole number");
  cr_expect_null(times(NULL, d), "what is not known stays so");
}

/* Half of 4*d is said so: 4*d/2, not 2*d. */
Test(extent, shares) {
  const zp_extent *ff = times(number(4), symbol("d", 128)), *half = zp_extent_share(arena, ff, 512, 256);
  expect(half, "4*d/2", 256);
  expect(zp_extent_share(arena, half, 256, 64), "4*d/8", 64);
  expect(zp_extent_share(arena, half, 256, 512), "4*d", 512);
  expect(zp_extent_share(arena, half, 256, 256), "4*d/2", 256);
  expect(zp_extent_share(arena, symbol("C", 20), 20, 60), "3*C", 60);
  expect(over(zp_extent_share(arena, times(number(3), symbol("d", 128)), 384, 192), number(3)), "d/2", 64);
  /* 5 heads of 64 columns over 2 ranks, padded to 3 heads on each */
  expect(zp_extent_share(arena, symbol("d", 320), 320, 192), "3*d/5", 192);
}

/* Every dimension of a model's own parameters and values, whatever the blocks call them inside. */
Test(extent, of_a_model) {
  fixture f = load_good("use std.nn\n"
                        "block two(x: [B, T, n], wide: int) -> [B, T, n] {\n"
                        "  up = linear(x, wide, bias = false)\n"
                        "  return linear(silu(up), n, bias = false)\n"
                        "}\n"
                        "model m(V = 64, S = 16, d = 64, heads = 16, ff = 2 * d + 8, layers = 2) {\n"
                        "  input tokens: i32[B, S]\n"
                        "  input labels: i32[B, S]\n"
                        "  param wte: [V, d] ~ normal()\n"
                        "  x = embedding(tokens, wte)\n"
                        "  repeat h in 0..layers { x = x + two(x, heads * d / 8 + d) }\n"
                        "  y = x + two(x, ff)\n"
                        "  output loss = cross_entropy(matmul(y, transpose(wte)), labels)\n"
                        "}\n");
  static const char *const wanted[][3] = {{"wte", "V", "d"},
                                          {"h.{}.two.up.weight", "(heads*d/8 + d)", "d"},
                                          {"h.{}.two.linear.weight", "d", "(heads*d/8 + d)"},
                                          {"two.up.weight", "ff", "d"},
                                          {"two.linear.weight", "d", "ff"}};
  const zp_model *model = f.spec->model;
  cr_assert_eq(model->params.len, 5);
  for (int p = 0; p < 5; p++) {
    cr_expect_str_eq(model->params.data[p].name, wanted[p][0]);
    for (int i = 0; i < 2; i++) {
      const zp_extent *extent = model->params.data[p].shape.extent[i];
      cr_expect_str_eq(extent ? zp_extent_text(f.arena, extent) : "unknown", wanted[p][i + 1]);
      cr_expect(extent && extent->value == model->params.data[p].shape.dim[i]);
    }
  }
  cr_expect_eq(model->symbols.len, 6);
  for (int s = 0; s < model->segments.len; s++) cr_expect_null(zp_graph_check(f.arena, model->segments.data[s].graph));
  unload(&f);
}

Test(extent, sums) {
  const zp_extent *d = symbol("d", 128), *S = symbol("S", 64);
  expect(zp_extent_sum(arena, d, times(number(2), d)), "3*d", 384);
  expect(zp_extent_difference(arena, times(number(3), d), d), "2*d", 256);
  expect(zp_extent_difference(arena, over(d, number(2)), over(d, number(4))), "d/4", 32);
  expect(zp_extent_sum(arena, S, number(1)), "(S + 1)", 65);
  expect(times(zp_extent_difference(arena, d, S), number(2)), "2*(d - S)", 128);
}
