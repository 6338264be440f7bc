/* SPDX-License-Identifier: Apache-2.0 */
/* Files that use files: paths, names, circles, missing files, and the choice of the model. */
#include "sema_fixture.h"

#define MODEL(name)                                                                                                    \
  "model " name "(V = 32, S = 8, d = 16) {\n  input tokens: i32[B, S]\n  input labels: i32[B, S]\n  param t: [V, d]\n" \
  "  x = embedding(tokens, t)\n  output l = cross_entropy(matmul(x, transpose(t)), labels)\n}\n"

#define FILE_OF(path, text)                                                                                            \
  { path, text, sizeof(text) - 1, false }

static fixture load_files(const zp_source_text *files, int count, const char *model) {
  fixture f = {.arena = zp_arena_new("test")};
  f.diags = zp_diags_new(f.arena);
  zp_load_options options = {.library_dir = ZPLAN_SOURCE_DIR "/frontend/library", .model_only = true, .model = model};
  f.spec = zp_load(f.arena, f.diags, files[0].path, files, count, &options);
  return f;
}

Test(sema_module, blocks_and_lets_of_used_files) {
  const zp_source_text files[] = {
      FILE_OF("a/main.dz", "use \"b/layers.dz\"\nuse \"../c.dz\" as c\nlet half = layers.wide / 2 + c.one\n"
                           "model m(V = half, S = 8, d = 16) {\n  input tokens: i32[B, S]\n  input labels: i32[B, S]\n"
                           "  param t: [V, d]\n  x = layers.twice(embedding(tokens, t))\n"
                           "  output l = cross_entropy(matmul(x, transpose(t)), labels)\n}\n"),
      FILE_OF("a/b/layers.dz", "use \"../../c.dz\" as other\nlet wide = 64\n"
                               "block twice(x: [B, S, d]) -> [B, S, d] { return other.once(once(x)) * wide }\n"
                               "block once(x: [B, S, d]) -> [B, S, d] { return exp(x) }\n"),
      FILE_OF("c.dz", "let one = 1\nblock once(x: [B, S, d]) -> [B, S, d] { return tanh(x) }\n"),
  };
  fixture f = load_files(files, 3, NULL);
  char *shown = printed(&f);
  cr_assert(f.spec, "%s", shown);
  free(shown);
  cr_expect(f.spec->model->vocabulary == 33);
  const zp_graph *graph = f.spec->model->segments.data[0].graph;
  cr_expect(graph->nodes.data[1].op == ZP_OP_EXP && graph->nodes.data[2].op == ZP_OP_TANH);
  cr_expect(graph->nodes.data[3].attr.value == 64);
  unload(&f);
}

/* A file used twice is one file: its text is kept once, and its blocks are the same. */
Test(sema_module, used_twice) {
  const zp_source_text files[] = {
      FILE_OF("main.dz", "use \"a.dz\"\nuse \"b.dz\"\nuse \"a.dz\" as again\n" MODEL("m")),
      FILE_OF("a.dz", "let n = 1\n"),
      FILE_OF("b.dz", "use \"a.dz\"\nlet k = a.n\n"),
  };
  fixture f = load_files(files, 3, NULL);
  cr_assert(f.spec);
  cr_expect(f.spec->sources.len == 3);
  cr_expect(strcmp(f.spec->sources.data[0].path, "main.dz") == 0);
  unload(&f);
}

Test(sema_module, circle) {
  const zp_source_text files[] = {FILE_OF("main.dz", "use \"a.dz\"\n" MODEL("m")),
                                  FILE_OF("a.dz", "use \"main.dz\"\n")};
  fixture f = load_files(files, 2, NULL);
  check_failure("circle", &f, 1, "Z0210|`main.dz` uses itself");
  unload(&f);
}

/* A file uses itself through longer and longer spellings of one path. */
Test(sema_module, circle_with_dots) {
  const zp_source_text files[] = {FILE_OF("d/main.dz", "use \"../d/./main.dz\"\n" MODEL("m"))};
  fixture f = load_files(files, 1, NULL);
  check_failure("circle", &f, 1, "Z0210|`d/main.dz` uses itself");
  unload(&f);
}

Test(sema_module, missing_files) {
  static const char *const cases[][2] = {
      {"use \"nowhere.dz\"\n" MODEL("m"), "Z0210|cannot read `nowhere.dz`|relative to the folder"},
      {"use std.nnn\n" MODEL("m"), "Z0210|cannot read `std/nnn.dz`|`std.nn`"},
      {"use gpt2\n" MODEL("m"), "Z0210|unknown library `gpt2`|use \"gpt2.dz\""},
  };
  for (int i = 0; i < 3; i++) {
    fixture f = load_text(cases[i][0]);
    check_failure(cases[i][0], &f, 1, cases[i][1]);
    unload(&f);
  }
}

Test(sema_module, missing_main) {
  fixture f = {.arena = zp_arena_new("test")};
  f.diags = zp_diags_new(f.arena);
  zp_load_options options = {.library_dir = "", .model_only = true};
  f.spec = zp_load(f.arena, f.diags, "no/such/file.dz", NULL, 0, &options);
  check_failure("missing main", &f, 1, "Z0210|no/such/file.dz");
  unload(&f);
}

/* A syntax error in a used file is told once, without errors about what that file should have defined. */
Test(sema_module, syntax_error_in_a_used_file) {
  const zp_source_text files[] = {FILE_OF("main.dz", "use \"a.dz\"\nlet k = 3\n" MODEL("m")),
                                  FILE_OF("a.dz", "block f(x: [B, S, d] { return x }\n")};
  fixture f = load_files(files, 2, NULL);
  check_failure("syntax", &f, 1, "Z0101|a.dz:1");
  unload(&f);
}

Test(sema_module, the_option_chooses_the_model) {
  const zp_source_text files[] = {FILE_OF("main.dz", MODEL("one") MODEL("two"))};
  fixture f = load_files(files, 1, "two");
  cr_assert(f.spec);
  cr_expect(strcmp(f.spec->model->name, "two") == 0);
  unload(&f);
  f = load_files(files, 1, "tow");
  check_failure("option", &f, 1, "Z0230|no model `tow`|did you mean `two`");
  unload(&f);
}
