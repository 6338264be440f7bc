/* SPDX-License-Identifier: Apache-2.0 */
/* Expressions, rows' values and templates of families of models (exchange/import/hf.h). */
#include <criterion/criterion.h>
#include "../../exchange/import/hf.h"

#define FAMILY(name) extern const hf_family hf_##name;
#include "../../exchange/import/families.def"
#undef FAMILY

static zp_arena *arena;
static hf_model model;
static const hf_family family = {.type = "some"};

static void setup(void) {
  arena = zp_arena_new("test");
  model = (hf_model){.family = &family};
  hf_set_int(arena, &model, "heads", 12);
  hf_set_int(arena, &model, "kv_heads", 5);
  hf_set_int(arena, &model, "window", 0);
  hf_set_real(arena, &model, "eps", 1e-5);
  hf_set_text(arena, &model, "act", "silu");
  hf_set(arena, &model, "wrong", (hf_value){.kind = HF_POISON});
}
static void teardown(void) { zp_arena_free(arena); }
TestSuite(hf_rows, .init = setup, .fini = teardown);

static hf_scope scope(void) { return (hf_scope){.arena = arena, .model = &model}; }
static hf_value value(const char *expression) {
  hf_scope s = scope();
  return hf_evaluate(&s, expression);
}

Test(hf_rows, expressions_bind_as_in_c) {
  cr_assert_eq(value("2 + 3 * 4 - 10 / 4").n, 12);
  cr_assert_eq(value("(2 + 3) * 4 % 7").n, 6);
  cr_assert_eq(value("heads % kv_heads != 0 & !window").n, 1);
  cr_assert_eq(value("0 & 0 | 1").n, 1);
  cr_assert_eq(value("window ? 1 : heads > 5 ? 2 : 3").n, 2);
  cr_assert_float_eq(value("1.0 * heads / kv_heads").x, 2.4, 1e-12);
  cr_assert_eq(value("eps == 1e-5").n, 1);
  cr_assert_str_eq(value("act == 'silu' ? 'yes' : 'no'").text, "yes");
  cr_assert_str_eq(value("type").text, "some");
  cr_assert_eq(value("given(some_key)").n, 0);
}

Test(hf_rows, what_is_made_of_poison_is_poison) {
  static const char *const texts[] = {"wrong",     "wrong + 1",     "wrong == 3",     "!wrong",        "wrong & 0",
                                      "1 | wrong", "wrong ? 1 : 2", "heads / window", "heads % window"};
  hf_scope s = scope();
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    cr_assert_eq(value(texts[i]).kind, HF_POISON, "%s", texts[i]);
    cr_assert_not(hf_holds(&s, texts[i]));
  }
  cr_assert_eq(value("1 ? heads : wrong").n, 12);
}

Test(hf_rows, holes_and_lines) {
  hf_set_int(arena, &model, "full.1", 1);
  hf_set_int(arena, &model, "full", 0);
  const char *text = hf_expand(arena, &model,
                               "%let more = heads - 1\n"
                               "%text norm n(x, eps = ${eps})\n"
                               "a = ${norm}${?more > 10: + ${more}}${?window:, window}\n"
                               "%if window\n"
                               "%if heads\nnever\n%else\nnever\n%end\n"
                               "%else\n"
                               "b = ${?heads:1,\n  2}\n"
                               "%end\n"
                               "%each 2\n"
                               "l${i} = ${full ? 'all' : 'some'}\n"
                               "%end\n"
                               "%each 0\nnever\n%end\n");
  cr_assert_str_eq(text, "a = n(x, eps = 1e-5) + 11\nb = 1,\n  2\nl0 = some\nl1 = all\n");
  cr_assert_eq(hf_int(&model, "more"), 11);
  cr_assert_null(hf_template("no such template"));
}

Test(hf_rows, lists_of_families_end) {
#define FAMILY(family) cr_assert(!hf_##family.rows[HF_MOST_ROWS] && !hf_##family.ties[HF_MOST_TIES].name, #family);
#include "../../exchange/import/families.def"
#undef FAMILY
}
