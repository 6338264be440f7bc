/* SPDX-License-Identifier: Apache-2.0 */
/* The parser: the trees it makes, and what it says about text that is wrong. */
#include <criterion/criterion.h>

#include <zplan/ast.h>
#include <zplan/buf.h>

#include <stdio.h>
#include <stdlib.h>

static zp_arena *arena;
static zp_diags *diags;

static void set_up(void) {
  arena = zp_arena_new("test");
  diags = zp_diags_new(arena);
}
static void tear_down(void) { zp_arena_free(arena); }

TestSuite(tree, .init = set_up, .fini = tear_down);
TestSuite(errors, .init = set_up, .fini = tear_down);

static int add(const char *text) { return zp_diags_add_source(diags, "t.dz", text, strlen(text)); }

static const char *printed(void) {
  char *text = NULL;
  size_t len = 0;
  FILE *out = open_memstream(&text, &len);
  zp_diags_print(diags, out, false);
  fclose(out);
  const char *copy = zp_strdup(arena, text);
  free(text);
  return copy;
}

static zp_file *parse(const char *text) {
  zp_file *file = zp_parse(arena, diags, add(text));
  cr_assert_eq(zp_diags_count(diags), 0, "%s", printed());
  return file;
}

/* Expressions as fully bracketed text. */
static void show(zp_buf *out, const zp_expr *e) {
  static const char *const signs[] = {"+",  "-",  "*", "/",  "%", "-",  "not ", "and", "or",
                                      "==", "!=", "<", "<=", ">", ">=", "in",   ".."};
  static const char open[] = "([";
  switch (e->kind) {
  case ZP_EXPR_NUMBER: zp_buf_printf(out, "%.12g%s", e->number, e->unit ? e->unit : ""); return;
  case ZP_EXPR_STRING: zp_buf_printf(out, "\"%s\"", e->text); return;
  case ZP_EXPR_BOOL: zp_buf_puts(out, e->number != 0 ? "true" : "false"); return;
  case ZP_EXPR_NAME: zp_buf_puts(out, e->text); return;
  case ZP_EXPR_UNARY:
    zp_buf_printf(out, "(%s", signs[e->op]);
    show(out, e->left);
    zp_buf_puts(out, ")");
    return;
  case ZP_EXPR_BINARY:
    zp_buf_puts(out, "(");
    show(out, e->left);
    zp_buf_printf(out, " %s ", signs[e->op]);
    show(out, e->right);
    zp_buf_puts(out, ")");
    return;
  case ZP_EXPR_FIELD:
    show(out, e->left);
    zp_buf_printf(out, ".%s", e->text);
    return;
  case ZP_EXPR_LIST:
  case ZP_EXPR_CALL:
  case ZP_EXPR_INDEX: break;
  }
  if (e->left) show(out, e->left);
  bool square = e->kind != ZP_EXPR_CALL;
  zp_buf_put(out, &open[square], 1);
  for (int i = 0; i < e->args.len; i++) {
    if (i) zp_buf_puts(out, ", ");
    if (e->args.data[i].name.text) zp_buf_printf(out, "%s = ", e->args.data[i].name.text);
    show(out, e->args.data[i].value);
  }
  zp_buf_puts(out, square ? "]" : ")");
}

static void expect_expr(const zp_expr *e, const char *wanted) {
  zp_buf out = zp_buf_new(arena);
  show(&out, e);
  cr_assert_str_eq(out.data, wanted);
}

static void expect_let(const char *text, const char *wanted) {
  zp_file *file = parse(zp_format(arena, "let x = %s", text));
  cr_assert_eq(file->items.len, 1);
  expect_expr(file->items.data[0]->expr, wanted);
}

Test(tree, precedence) {
  expect_let("1 + 2 * 3 - 4", "((1 + (2 * 3)) - 4)");
  expect_let("0..n - 1", "(0 .. (n - 1))");
  expect_let("-a.b(1)[2] * c", "((-a.b(1)[2]) * c)");
  expect_let("not a == b and c or d", "(((not (a == b)) and c) or d)");
  expect_let("a in 0..3 or b >= 2", "((a in (0 .. 3)) or (b >= 2))");
  expect_let("(a + b) % c", "((a + b) % c)");
  expect_let("d % heads != 0", "((d % heads) != 0)");
  expect_let("f(x, ff = 4 * d, [1, 2,],)", "f(x, ff = (4 * d), [1, 2])");
  expect_let("f(model = true, in_ = false)", "f(model = true, in_ = false)");
  expect_let("std.hw.node.model", "std.hw.node.model");
  expect_let("- -1", "(-(-1))");
}

Test(tree, numbers_and_units) {
  expect_let("16GiB", "16GiB");
  expect_let("[1.5TB, 25GB/s, 100Gbps, 125TFLOPS, 5us, 60s, 92%, 300e9, 6e-5, 1E+2]",
             "[1.5TB, 25GB/s, 100Gbps, 125TFLOPS, 5us, 60s, 92%, 300000000000, 6e-05, 100]");
  expect_let("3%2", "(3 % 2)");
  expect_let("92% * 2", "(92% * 2)");
  expect_let("0..12", "(0 .. 12)");
  expect_let("2us/step", "(2us / step)");
  zp_expr *e = parse("let x = [3, 3.0, 3e0]")->items.data[0]->expr;
  cr_assert(e->args.data[0].value->is_integer);
  cr_assert(!e->args.data[1].value->is_integer && !e->args.data[2].value->is_integer);
}

Test(tree, strings) {
  zp_expr *e = parse("let x = \"a\\n\\t\\\"\\\\ # \xc3\xa9\"")->items.data[0]->expr;
  cr_assert_str_eq(e->text, "a\n\t\"\\ # \xc3\xa9");
}

Test(tree, spans_cover_the_text) {
  const char *text = "let x = f(a) + b\n# c\nplan p { tensor <= 8 }";
  zp_file *file = parse(text);
  const zp_item *let = file->items.data[0], *plan = file->items.data[1];
  cr_assert(let->span.begin == 0 && let->span.end == 16);
  cr_assert(let->expr->span.begin == 8 && let->expr->at.begin == 13 && let->expr->at.end == 14);
  cr_assert_eq(strncmp(text + plan->span.begin, "plan", 4), 0);
  cr_assert_eq(plan->span.end, strlen(text));
  const zp_attr *attr = plan->attrs.data[0];
  cr_assert(attr->op == ZP_ATTR_LE &&
            !strncmp(text + attr->span.begin, "tensor <= 8", attr->span.end - attr->span.begin));
}

Test(tree, items) {
  zp_file *file =
      parse("use std.nn use \"g.dz\" as g use std.node as n\n"
            "block f(x: [B, S, 3 * d], w: f32[], ff: int, bias = true) -> ([B], i32[B, S]) { return x, w }\n"
            "model m { input t: i32[B] }\n"
            "node workstation(devices = 1, memory = 512GB) { }\n"
            "train { } plan as_trained { }");
  cr_assert_eq(file->items.len, 8);
  zp_item **item = file->items.data;
  cr_assert(item[0]->kind == ZP_ITEM_USE && !item[0]->is_file && !item[0]->alias.text);
  cr_assert_str_eq(item[0]->name.text, "std.nn");
  cr_assert(item[1]->is_file);
  cr_assert_str_eq(item[1]->name.text, "g.dz");
  cr_assert_str_eq(item[1]->alias.text, "g");
  cr_assert_str_eq(item[2]->name.text, "std.node");
  const zp_item *f = item[3];
  cr_assert(f->formals.len == 4 && f->returns.len == 2 && f->body.len == 1);
  cr_assert(f->formals.data[0].type->has_shape && !f->formals.data[0].type->element.text);
  expect_expr(f->formals.data[0].type->dims.data[2], "(3 * d)");
  cr_assert(f->formals.data[1].type->has_shape && f->formals.data[1].type->dims.len == 0);
  cr_assert(!f->formals.data[2].type->has_shape && !f->formals.data[2].init);
  cr_assert(!f->formals.data[3].type && f->formals.data[3].init);
  cr_assert_str_eq(f->returns.data[1]->element.text, "i32");
  cr_assert(f->body.data[0]->kind == ZP_STMT_RETURN && f->body.data[0]->exprs.len == 2);
  cr_assert(item[5]->kind == ZP_ITEM_NODE && item[5]->formals.len == 2);
  cr_assert(item[6]->kind == ZP_ITEM_TRAIN && !item[6]->name.text);
  cr_assert_str_eq(item[7]->name.text, "as_trained");
}

Test(tree, statements) {
  zp_file *file = parse("model m() {\n"
                        "  param w: [V, d] ~ normal(std = 0.02)\n"
                        "  a, b = split(x, 2) @ shard(axis = 1) @keep()\n"
                        "  repeat h in 0..layers { x = f(x) }\n"
                        "  if a == 1 { p = 1 } else if a == 2 { q = 2 } else { r = 3 }\n"
                        "  assert d % 2 == 0, \"even\"\n"
                        "  assert true\n"
                        "  output loss = x\n"
                        "}");
  zp_stmt **stmt = file->items.data[0]->body.data;
  cr_assert_eq(file->items.data[0]->body.len, 7);
  cr_assert(stmt[0]->kind == ZP_STMT_PARAM && stmt[0]->expr->kind == ZP_EXPR_CALL);
  cr_assert(stmt[1]->kind == ZP_STMT_ASSIGN && stmt[1]->names.len == 2 && stmt[1]->annotations.len == 2);
  expect_expr(stmt[1]->annotations.data[0], "shard(axis = 1)");
  cr_assert(stmt[2]->kind == ZP_STMT_REPEAT && stmt[2]->body.len == 1);
  expect_expr(stmt[2]->expr, "(0 .. layers)");
  cr_assert(stmt[3]->kind == ZP_STMT_IF && stmt[3]->otherwise.len == 1);
  const zp_stmt *chained = stmt[3]->otherwise.data[0];
  cr_assert(chained->kind == ZP_STMT_IF && chained->is_else_if && chained->otherwise.len == 1);
  cr_assert_str_eq(stmt[4]->message, "even");
  cr_assert(stmt[5]->message == NULL);
  cr_assert(stmt[6]->kind == ZP_STMT_OUTPUT);
}

Test(tree, attributes) {
  zp_file *file = parse("plan p { tensor in [1, 2] zero != 3 offload[optimizer] = \"cpu\" model = m node.cores >= 2\n"
                        "  stage \"first\" { layers = 5 with = embedding } a < 1 b > 2 in_flight = 3 }");
  const zp_attrs *attrs = &file->items.data[0]->attrs;
  static const zp_attr_op ops[] = {ZP_ATTR_IN,    ZP_ATTR_NE, ZP_ATTR_SET, ZP_ATTR_SET, ZP_ATTR_GE,
                                   ZP_ATTR_BLOCK, ZP_ATTR_LT, ZP_ATTR_GT,  ZP_ATTR_SET};
  cr_assert_eq(attrs->len, 9);
  for (int i = 0; i < 9; i++) cr_assert_eq(attrs->data[i]->op, ops[i], "attribute %d", i);
  cr_assert_str_eq(attrs->data[2]->key.text, "offload");
  cr_assert_str_eq(attrs->data[2]->index.text, "optimizer");
  cr_assert_str_eq(attrs->data[4]->key.text, "node.cores");
  cr_assert_str_eq(attrs->data[5]->label, "first");
  cr_assert_eq(attrs->data[5]->body.len, 2);
}

Test(tree, settings) {
  zp_attr *attr = zp_parse_setting(arena, diags, add("tensor<=8"));
  cr_assert(attr && attr->op == ZP_ATTR_LE && attr->value->number == 8);
  attr = zp_parse_setting(arena, diags, add("offload[optimizer]=\"cpu\""));
  cr_assert(attr && attr->index.text && !strcmp(attr->value->text, "cpu"));
  cr_assert_eq(zp_diags_count(diags), 0);
  cr_assert_null(zp_parse_setting(arena, diags, add("tensor")));
  cr_assert_null(zp_parse_setting(arena, diags, add("tensor = 8 pipeline = 2")));
  cr_assert_null(zp_parse_setting(arena, diags, add("")));
  cr_assert_null(zp_parse_setting(arena, diags, add("memory = 3GiX")));
  cr_assert_eq(zp_diags_count(diags), 4, "%s", printed());
}

static const char *const example_files[] = {"gpt2.dz", "tnlg.dz", "gpt1t.dz", "offload13b.dz", "zoo.dz"};

Test(tree, examples_parse) {
  static const int items[] = {9, 8, 10, 7, 9};
  for (int i = 0; i < 5; i++) {
    const char *path = zp_format(arena, "%s/tests/data/syntax/%s", ZPLAN_SOURCE_DIR, example_files[i]), *error;
    size_t len;
    char *text = zp_read_file(arena, path, &len, &error);
    cr_assert(text != NULL, "%s", error);
    zp_file *file = zp_parse(arena, diags, zp_diags_add_source(diags, example_files[i], text, len));
    cr_assert_eq(zp_diags_count(diags), 0, "%s", printed());
    cr_assert_eq(file->items.len, items[i], "%s has %d items", example_files[i], file->items.len);
  }
}

Test(tree, odd_but_legal_files) {
  cr_assert_eq(parse("")->items.len, 0);
  cr_assert_eq(parse("# only a comment")->items.len, 0);
  cr_assert_eq(parse("\xef\xbb\xbfuse std.nn\r\nuse std.hw\r\n")->items.len, 2);
  cr_assert_eq(parse("train{}plan{}model m{}block f(){}")->items.len, 4);
}

/* One wrong text: how many errors, and what the output must hold. */
typedef struct wrong {
  const char *text;
  int errors;
  const char *words[5];
} wrong;

static const wrong wrongs[] = {
    {"modle m(V = 3) {\n  x = 1\n}\n",
     1,
     {"Z0101", "expected a declaration", "found `modle`", "did you mean `model`?"}},
    {"model m() {\n  ouput loss = x\n}", 1, {"found `loss`", "did you mean `output`?", "taken for a name"}},
    {"block f(x: [B]) {\n  retrun x\n}", 1, {"did you mean `return`?"}},
    {"def f(x) { }", 1, {"found `def`", "did you mean `block`?"}},
    {"model m() {\n  y = linear(x, 3\n  z = y\n}",
     1,
     {"t.dz:2:18", "expected `,` or `)`, found `z`", "to match this `(`"}},
    {"block f(x: [B, S -> [B] { }", 1, {"found `->`", "`]`", "to match this `[`"}},
    {"plan {\n  tensor =< 8\n}", 1, {"`=<` is no operator", "did you mean `<=`?"}},
    {"plan {\n  tensor = 8,\n  zero = 1\n}", 1, {"expected a key or `}`, found `,`", "remove the comma"}},
    {"plan {\n  tensor: 8\n}", 1, {"expected an operator", "found `:`", "write `=`"}},
    {"plan {\n  tensor = = 8\n}", 1, {"expected an expression, found `=`"}},
    {"plan {\n  tensor = 8\n",
     1,
     {"t.dz:2:13", "expected a key or `}`, found the end of the file", "to match this `{`"}},
    {"model m() {\n  x = 1\nplan { }\n", 1, {"found the keyword `plan`", "to match this `{`"}},
    {"model m() {\n  x = f(a, , b)\n}", 1, {"expected an expression or `)`, found `,`"}},
    {"model m() {\n  if a = 3 { }\n}", 1, {"found `=`", "`==` compares"}},
    {"model m() {\n  repeat h 0..3 { x = 1 }\n}", 1, {"expected `in`, found `0`"}},
    {"model m() {\n  input x i32[B]\n}", 1, {"expected `:`, found `i32`"}},
    {"model model() { }", 1, {"expected a name, found the keyword `model`", "a keyword cannot be a name"}},
    {"let state = 3", 1, {"found the reserved word `state`", "reserved for later"}},
    {"let x = .5", 1, {"found `.`", "as in 0.5"}},
    {"let x = 1 < 2 < 3", 1, {"found `<`"}},
    {"}\n", 1, {"found `}`", "no `{` is open here"}},
    {"let x = [a = 3]", 1, {"list elements have no names"}},
    {"let x = 16GiX", 1, {"Z0102", "unknown unit `GiX`", "did you mean `GiB`?", "TFLOPS"}},
    {"let x = 12B2", 1, {"unknown unit `B2`"}},
    {"let x = 300G", 1, {"unknown unit `G`", "kB MB GB"}},
    {"let x = 1_000", 1, {"unknown unit `_000`", "digits are not grouped"}},
    {"let x = 1e999", 1, {"Z0102", "too large"}},
    {"let x = \"abc\nlet y = 3", 1, {"Z0102", "unterminated string", "t.dz:1:9"}},
    {"let x = 'abc'", 1, {"double quotes"}},
    {"let x = \"a\\q\"", 1, {"unknown escape", "t.dz:1:11"}},
    {"let x = 3;", 1, {"`;` is not used"}},
    {"let x = 3 // three", 1, {"comments start with `#`"}},
    {"let x = a && b || !c", 3, {"did you mean `and`?", "did you mean `or`?", "did you mean `not`?"}},
    {"let x = a ? b", 1, {"unexpected character `?`"}},
    {"let x = \xe2\x80\x9c"
     "a\xe2\x80\x9d",
     2,
     {"typographic quotes", "the quotes of a string"}},
    {"let x = \"\xff\"", 1, {"byte 0xff is not valid UTF-8"}},
    {"let x = \"\xed\xa0\x80\"", 1, {"byte 0xed is not valid UTF-8"}},
};

Test(errors, are_explained) {
  for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
    const wrong *w = &wrongs[i];
    diags = zp_diags_new(arena);
    zp_parse(arena, diags, add(w->text));
    int errors = zp_diags_errors(diags);
    const char *out = printed();
    cr_expect_eq(errors, w->errors, "%d errors in:\n%s\n%s", errors, w->text, out);
    for (int k = 0; k < 5 && w->words[k]; k++)
      cr_expect(strstr(out, w->words[k]), "`%s` is missing in:\n%s", w->words[k], out);
  }
}

Test(errors, many_are_found_in_one_run) {
  zp_file *file = zp_parse(arena, diags,
                           add("modle m(V = 3) {\n  x = 1\n}\n"
                               "block f(x: [B, S] -> [B] {\n  return x\n}\n"
                               "model a(V = 3) {\n"
                               "  input tokens i32[B]\n"
                               "  y = foo(a, , b = 3 + 4 + 5)\n"
                               "  z = linear(x, 3\n"
                               "  w = bar(z)\n"
                               "  repeat h n 0..layers {\n    q = 3\n  }\n"
                               "  return (x\n"
                               "}\n"
                               "train {\n"
                               "  batch: 16\n"
                               "  log { every = = 1 } b = 3\n"
                               "}\n"
                               "plan { tensor = 4 }\n"));
  static const int lines[] = {1, 4, 8, 9, 10, 12, 15, 18, 19};
  const char *out = printed();
  cr_assert_eq(zp_diags_errors(diags), 9, "%s", out);
  for (int i = 0; i < 9; i++)
    cr_assert(strstr(out, zp_format(arena, "t.dz:%d:", lines[i])), "line %d:\n%s", lines[i], out);
  cr_assert_eq(file->items.data[file->items.len - 1]->kind, ZP_ITEM_PLAN, "the rest of the file is parsed");
}

Test(errors, stop_at_twenty) {
  zp_buf text = zp_buf_new(arena);
  for (int i = 0; i < 100; i++) zp_buf_puts(&text, "let = 3\n");
  zp_parse(arena, diags, add(text.data));
  cr_assert_eq(zp_diags_errors(diags), 20);
}

static const char *repeated(const char *head, const char *part, int times, const char *tail) {
  zp_buf text = zp_buf_new(arena);
  zp_buf_puts(&text, head);
  for (int i = 0; i < times; i++) zp_buf_puts(&text, part);
  zp_buf_puts(&text, tail);
  return text.data;
}

Test(errors, deep_nesting_is_refused) {
  const char *texts[] = {
      repeated("let x = ", "(", 100000, ""),
      repeated("let x = ", "-", 500000, "1"),
      repeated("let x = a", " + a", 100000, ""),
      repeated("let x = a", ".a", 100000, ""),
      repeated("plan { ", "a { ", 100000, ""),
      repeated("let x = ", "[", 300, ""),
      repeated("block f() { ", "if a { x = 1 } else ", 100000, "{ } }"),
  };
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    diags = zp_diags_new(arena);
    zp_parse(arena, diags, add(texts[i]));
    cr_expect_eq(zp_diags_errors(diags), 1, "text %zu", i);
    cr_expect(strstr(printed(), "nested too deeply"), "text %zu", i);
  }
  diags = zp_diags_new(arena);
  parse(repeated("let x = a", " + a", 300, ""));
}

Test(errors, strange_files_end_soon) {
  enum { BYTES = 5 << 20 };
  static const char fills[] = {'\0', '\xff', '@', '"', '{', 'a', '1', '\n', '}', '\\'};
  char *text = zp_alloc(arena, BYTES + 1);
  for (size_t i = 0; i < sizeof fills; i++) {
    diags = zp_diags_new(arena);
    memset(text, fills[i], BYTES);
    zp_parse(arena, diags, zp_diags_add_source(diags, "t.dz", text, BYTES));
    cr_expect_eq(zp_diags_errors(diags) > 0, fills[i] != '\n', "byte 0x%02x", (unsigned char)fills[i]);
    cr_expect_lt(strlen(printed()), 20000);
  }
}

Test(errors, a_zero_byte_means_a_binary_file) {
  static const char text[] = "use std.nn # \0\nuse \"";
  zp_parse(arena, diags, zp_diags_add_source(diags, "t.dz", text, sizeof text - 1));
  cr_assert_eq(zp_diags_errors(diags), 1);
  cr_assert(strstr(printed(), "not a text file"));
}
