/* SPDX-License-Identifier: Apache-2.0 */
/* Units, scopes and scalar expressions (through `let` and the arguments of models). */
#include "../../frontend/sema/eval.h"
#include "sema_fixture.h"

static void check_unit(double number, const char *unit, double base, zp_dimension dimension) {
  double found = 0;
  zp_dimension kind = ZP_DIM_NONE;
  cr_assert(zp_unit_convert(number, unit, &found, &kind), "%s", unit);
  cr_expect(kind == dimension && found > base * (1 - 1e-12) && found < base * (1 + 1e-12), "%g %s gives %g", number,
            unit, found);
}

Test(sema_eval, units) {
  check_unit(32, "GB", 32e9, ZP_DIM_BYTES);
  check_unit(16, "GiB", 16.0 * (1 << 30), ZP_DIM_BYTES);
  check_unit(64, "KiB", 65536, ZP_DIM_BYTES);
  check_unit(7, "B", 7, ZP_DIM_BYTES);
  check_unit(25, "GB/s", 25e9, ZP_DIM_BYTES_PER_S);
  check_unit(100, "Gbps", 12.5e9, ZP_DIM_BYTES_PER_S);
  check_unit(125, "TFLOPS", 125e12, ZP_DIM_FLOP_PER_S);
  check_unit(5, "us", 5e-6, ZP_DIM_SECONDS);
  check_unit(2, "min", 120, ZP_DIM_SECONDS);
  check_unit(30, "d", 2592000, ZP_DIM_SECONDS);
  check_unit(1.5, "kW", 1500, ZP_DIM_WATTS);
  check_unit(92, "%", 0.92, ZP_DIM_PERCENT);
}

Test(sema_eval, unknown_units) {
  static const char *const wrong[] = {"", "X", "GX", "Gib", "GiFLOPS", "Gibps", "Gs", "k%", "GB/", "iB"};
  double base;
  zp_dimension dimension;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    cr_expect(!zp_unit_convert(1, wrong[i], &base, &dimension), "%s", wrong[i]);
}

Test(sema_eval, scopes_shadow_and_list) {
  zp_arena *arena = zp_arena_new("test");
  zp_scope *outer = zp_scope_new(arena, NULL), *inner = zp_scope_new(arena, outer);
  zp_scope_set(outer, "a", zp_number_value(1, true, ZP_NO_SPAN));
  zp_scope_set(outer, "b", zp_number_value(2, true, ZP_NO_SPAN));
  zp_scope_set(inner, "a", zp_number_value(3, true, ZP_NO_SPAN));
  cr_expect(zp_scope_get(inner, "a")->number == 3);
  cr_expect(zp_scope_get(outer, "a")->number == 1);
  cr_expect(zp_scope_get(inner, "b")->number == 2);
  cr_expect(zp_scope_get(inner, "c") == NULL);
  zp_strings names = {0};
  zp_scope_names(arena, inner, &names);
  cr_expect(names.len == 3);
  zp_arena_free(arena);
}

/* Value of an expression, as text. */
static void check_value(const char *expression, const char *expected) {
  zp_arena *arena = zp_arena_new("test");
  zp_diags *diags = zp_diags_new(arena);
  const char *text = zp_format(arena, "let n = 12\nlet value = %s\n", expression);
  zp_source_text source = {"let.dz", text, strlen(text), false};
  zp_load_options options = {.library_dir = ""};
  zp_spec *spec = ZP_NEW(arena, zp_spec);
  zp_module *module = zp_module_load(arena, diags, spec, "let.dz", &source, 1, &options);
  const zp_value *value = zp_scope_get(module->lets, "value");
  cr_expect(strcmp(zp_value_text(arena, value), expected) == 0, "%s is %s", expression, zp_value_text(arena, value));
  zp_arena_free(arena);
}

Test(sema_eval, arithmetic) {
  check_value("1 + 2 * 3", "7");
  check_value("(1 + 2) * n", "36");
  check_value("n / 4", "3");
  check_value("n / 8", "1.5");
  check_value("n % 5", "2");
  check_value("-n + 2", "-10");
  check_value("0.02 / sqrt(4)", "0.01");
  check_value("rsqrt(16)", "0.25");
  check_value("2 * 16GiB / 1GiB", "32");
  check_value("50% * 10", "5");
  check_value("[1, n, 3]", "[1, 12, 3]");
  check_value("\"fp\"", "\"fp\"");
}

Test(sema_eval, truth) {
  check_value("n == 12", "true");
  check_value("n != 12", "false");
  check_value("n < 12 or n >= 12", "true");
  check_value("not (n > 3 and n <= 12)", "false");
  check_value("n in [1, 12]", "true");
  check_value("\"a\" in [\"b\"]", "false");
  check_value("\"a\" == \"a\"", "true");
  check_value("n == 0 or 1 / (n - 12 + 1) == 1", "true");
  check_value("n > 0 or 1 / 0 > 1", "true"); /* the right side is not checked */
}

Test(sema_eval, errors) {
  static const char *const cases[][3] = {
      {"unknown", "let width = 4\nlet a = widht + 1", "Z0203|unknown name `widht`|did you mean `width`"},
      {"zero", "let a = 1 / 0", "Z0213|division by zero"},
      {"modulo zero", "let a = 1 % (2 - 2)", "Z0213|division by zero"},
      {"root", "let a = sqrt(0 - 1)", "Z0213|not defined"},
      {"root of zero", "let a = rsqrt(0)", "Z0213|not defined"},
      {"root of bytes", "let a = sqrt(4GB)", "Z0202|plain number|size in bytes"},
      {"kinds", "let a = 1 + \"x\"", "Z0202|`+` cannot join a number and a string"},
      {"not", "let a = not 3", "Z0202|`not` cannot be applied to a number"},
      {"logic", "let a = 1 and true", "Z0202|`and`"},
      {"units", "let a = 1GB + 1GB/s", "Z0212|units do not agree|a size in bytes|a bandwidth"},
      {"unit product", "let a = 1GB * 1s", "Z0212|units do not agree"},
      {"unit and number", "let a = 1GB < 3", "Z0212"},
      {"order of strings", "let a = \"a\" < \"b\"", "Z0202"},
      {"in no list", "let a = 1 in 2", "Z0202|`in`"},
      {"range", "let a = 0..3", "Z0202|a range is not a value|repeat"},
      {"call", "let a = gelu(3)", "Z0215|`gelu` cannot be called here"},
      {"arguments", "let a = sqrt(1, 2)", "Z0214|takes one number"},
      {"B", "let a = 2 * B", "Z0219|`B` is not a number|micro-batch"},
      {"twice", "let a = 1\nlet a = 2", "Z0201|let `a` is defined twice|first here"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    fixture f = load_text(cases[i][1]);
    check_failure(cases[i][0], &f, 1, cases[i][2]);
    unload(&f);
  }
}

/* An error is told where it is, not again at every use of the name. */
Test(sema_eval, one_message_per_mistake) {
  fixture f = load_text("let a = 1 / 0\nlet b = a + 1\nlet c = [a, b]\nlet d = -c\n");
  check_failure("poison", &f, 1, "Z0213");
  unload(&f);
}
