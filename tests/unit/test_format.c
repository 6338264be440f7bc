/* SPDX-License-Identifier: Apache-2.0 */
/* zplan fmt: the canonical layout. */
#include <criterion/criterion.h>

#include <zplan/ast.h>
#include <zplan/buf.h>

static zp_arena *arena;
static zp_diags *diags;

static void set_up(void) {
  arena = zp_arena_new("test");
  diags = zp_diags_new(arena);
}
static void tear_down(void) { zp_arena_free(arena); }
TestSuite(format, .init = set_up, .fini = tear_down);

static const char *format(const char *text) {
  return zp_format_source(arena, diags, zp_diags_add_source(diags, "t.dz", text, strlen(text)));
}

static void expect_format(const char *text, const char *wanted) {
  const char *once = format(text);
  cr_assert(once != NULL, "not formatted:\n%s", text);
  cr_assert_str_eq(once, wanted);
  cr_assert_str_eq(format(once), wanted, "formatted twice");
}

Test(format, blanks_between_tokens) {
  expect_format("let x=f( a,b [ 1 ],c=- 1 )*( 3-d )%2", "let x = f(a, b[1], c = -1) * (3 - d) % 2\n");
  expect_format("let x = a . b .. - 3", "let x = a.b..-3\n");
  expect_format("block f( x :[B,S],w : f32 [ ] ,b=true )->( [B],i32[ S ] ){return x,w}",
                "block f(x: [B, S], w: f32[], b = true) -> ([B], i32[S]) { return x, w }\n");
  expect_format("model m{param w:[V]~normal(std=0.02) y=a@shard( axis=1 )@ keep()}",
                "model m {\n  param w: [V] ~ normal(std = 0.02)\n  y = a @shard(axis = 1) @keep()\n}\n");
  expect_format("plan{offload [ optimizer ]in[1,2] model=x.node (3)}",
                "plan { offload[optimizer] in [1, 2]  model = x.node(3) }\n");
  expect_format("let x = not a==b and(c)in(d)", "let x = not a == b and (c) in (d)\n");
  expect_format("train {   }\nplan p {\n\n}", "train {}\nplan p {}\n");
}

Test(format, one_statement_a_line) {
  expect_format("use std.nn use std.hw block f() { a = 1 b = 2 }",
                "use std.nn\nuse std.hw\nblock f() {\n  a = 1\n  b = 2\n}\n");
  expect_format(
      "model m\n{\n    repeat h in 0..3 { x = f(x) }\n if a { b = 1 }\n else if c { d = 2 e = 3 }\n\n\n\n  else { }\n}",
      "model m {\n  repeat h in 0..3 { x = f(x) }\n  if a { b = 1 } else if c {\n    d = 2\n    e = 3\n  } else "
      "{}\n}\n");
}

Test(format, attributes_stay_together_while_there_is_room) {
  expect_format("plan {\n a = 1 b = 2\n c = 3 }", "plan {\n  a = 1  b = 2\n  c = 3\n}\n");
  expect_format("plan {\n log { a = 1 b = 2 } stage \"x\"{ c = 3 } }",
                "plan {\n  log { a = 1  b = 2 }  stage \"x\" { c = 3 }\n}\n");
  const char *wide = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
  expect_format(zp_format(arena, "plan { %s = 1 %s = 2 %s = 3 }", wide, wide, wide),
                zp_format(arena, "plan {\n  %s = 1\n  %s = 2  %s = 3\n}\n", wide, wide, wide));
}

Test(format, comments_and_blank_lines_are_kept) {
  expect_format("\n\n# top  \n\n\nplan{#why\n\n # own\n\n\n a=1 # last\n # end\n} # after\n# bottom",
                "# top\n\nplan {  #why\n  # own\n\n  a = 1  # last\n  # end\n}  # after\n# bottom\n");
  expect_format("let x = f(a, # first\n b,\n  # own\n c)", "let x = f(a,  # first\n  b,\n  # own\n  c)\n");
  expect_format("let x = # why\n 3", "let x =  # why\n    3\n");
  expect_format("# only", "# only\n");
  expect_format("", "");
}

/* Ends of operators, braces of one-line blocks and comments of neighbours; a blank line, a comment of its own, a body
 * of several lines or several attributes on a line end a group. */
Test(format, neighbours_line_up) {
  expect_format("train {\n model = m\n batch=4 # four\n a <= 3 # le\n\n steps = 5\n # own\n seed = 1\n x = 1 yy = 2\n}",
                "train {\n  model = m\n  batch = 4  # four\n  a    <= 3  # le\n\n  steps = 5\n  # own\n  seed = 1\n"
                "  x = 1  yy = 2\n}\n");
  expect_format(
      "plan {\n log { a = 1 }\n checkpoint { b = 2 }\n zero in [0]\n tensor = 1\n data = 2\n}",
      "plan {\n  log        { a = 1 }\n  checkpoint { b = 2 }\n  zero in [0]\n  tensor = 1\n  data   = 2\n}\n");
  expect_format(
      "block f(x: [B]) -> [B] {\n q, k = split(x, 2)\n y = f(q) # y\n if a {\n zz = 1\n w = 2\n }\n return y\n}",
      "block f(x: [B]) -> [B] {\n  q, k = split(x, 2)\n  y    = f(q)  # y\n  if a {\n    zz = 1\n    w  = 2\n"
      "  }\n  return y\n}\n");
  expect_format("use std.nn # a\nuse std.hwx # b\nplan {} # c",
                "use std.nn   # a\nuse std.hwx  # b\nplan {}      # c\n");
}

Test(format, wide_neighbours_do_not_leave_the_line) {
  const char *wide = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
  const char *text = zp_format(arena, "plan {\n  b = %s\n  %s = 1\n}\n", wide, wide);
  expect_format(text, text);
}

Test(format, comments_go_on_below_where_they_began) {
  expect_format("plan {\n  a = 1     # why\n            # and more\n  bbb = 2\n}",
                "plan {\n  a = 1  # why\n         # and more\n  bbb = 2\n}\n");
  expect_format("plan {\n  a = 1     # why\n    # the next\n  bbb = 2\n}",
                "plan {\n  a = 1  # why\n  # the next\n  bbb = 2\n}\n");
  expect_format("plan {\n  s \"\xc3\xa4\" { a = 1 }  # one\n  s \"b\" { a = 1 }  # two\n}",
                "plan {\n  s \"\xc3\xa4\" { a = 1 }  # one\n  s \"b\" { a = 1 }  # two\n}\n");
}

Test(format, line_breaks_in_brackets_are_kept) {
  expect_format("let x = f(\n      a, [1,\n   2],\n b\n)", "let x = f(\n  a, [1,\n    2],\n  b\n)\n");
  expect_format("let x = a +\nb", "let x = a +\n    b\n");
}

Test(format, text_with_errors_is_left_alone) {
  cr_assert_null(format("plan {"));
  cr_assert_eq(zp_diags_errors(diags), 1);
}

/* Formatting must not change what the parser sees: without blanks both texts are the same. */
static const char *squeezed(const char *text) {
  zp_buf out = zp_buf_new(arena);
  for (; *text; text++)
    if (!strchr(" \t\r\n", *text)) zp_buf_put(&out, text, 1);
  return out.data;
}

Test(format, examples_keep_their_tokens) {
  static const char *const files[] = {"tests/data/syntax/gpt2.dz",  "tests/data/syntax/tnlg.dz",
                                      "tests/data/syntax/gpt1t.dz", "tests/data/syntax/offload13b.dz",
                                      "tests/data/syntax/zoo.dz",   "frontend/library/hw.dz"};
  for (int i = 0; i < 6; i++) {
    const char *path = zp_format(arena, "%s/%s", ZPLAN_SOURCE_DIR, files[i]), *error;
    size_t len;
    char *text = zp_read_file(arena, path, &len, &error);
    cr_assert(text != NULL, "%s", error);
    const char *once = format(text);
    cr_assert(once != NULL);
    cr_assert_str_eq(squeezed(once), squeezed(text));
    cr_assert_str_eq(format(once), once);
  }
}
