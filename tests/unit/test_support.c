/* SPDX-License-Identifier: Apache-2.0 */
/* The support layer: arenas, vectors, buffers, files, hashing, JSON, diagnostics. */
#include <criterion/criterion.h>

#include <zplan/buf.h>
#include <zplan/diag.h>
#include <zplan/hash.h>
#include <zplan/path.h>
#include <zplan/json.h>
#include <zplan/vec.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static zp_arena *arena;
static void set_up(void) { arena = zp_arena_new("test"); }
static void tear_down(void) { zp_arena_free(arena); }

static void expect_text(const char *actual, const char *wanted) {
  cr_assert(actual != NULL && strcmp(actual, wanted) == 0, "got:\n%s\nwanted:\n%s", actual ? actual : "(null)", wanted);
}

TestSuite(arena, .init = set_up, .fini = tear_down);

Test(arena, memory_is_zeroed_and_aligned_also_after_a_rewind) {
  zp_arena_mark mark = zp_arena_get_mark(arena);
  for (int round = 0; round < 2; round++) {
    for (size_t bytes = 1; bytes < 3000; bytes += 97) {
      unsigned char *block = zp_alloc(arena, bytes);
      cr_assert_eq((uintptr_t)block % 16, 0);
      for (size_t i = 0; i < bytes; i++) cr_assert_eq(block[i], 0);
      memset(block, 0xab, bytes);
    }
    zp_arena_rewind(arena, mark);
  }
}

Test(arena, a_budget_counts_what_its_arenas_hold) {
  zp_arena_budget budget = {.limit_bytes = 8 << 20};
  zp_arena *first = zp_arena_new_within("first", &budget), *second = zp_arena_new_alongside("second", first);
  zp_arena_mark mark = zp_arena_get_mark(first);
  zp_alloc(first, 3 << 20);
  zp_alloc(second, 2 << 20);
  cr_expect(budget.held_bytes == 5 << 20, "%zu", budget.held_bytes);
  cr_expect(zp_arena_has_room(second, 3 << 20) && !zp_arena_has_room(second, (3 << 20) + 1));
  zp_arena_rewind(first, mark);
  cr_expect(budget.held_bytes == 5 << 20, "spare blocks are held");
  zp_alloc(first, 5 << 20); /* the spare block is too small: it goes */
  cr_expect(budget.held_bytes == 7 << 20, "%zu", budget.held_bytes);
  zp_arena_free(first);
  zp_arena_free(second);
  cr_expect(budget.held_bytes == 0 && budget.peak_bytes == 7 << 20);
  cr_expect(zp_arena_has_room(arena, SIZE_MAX), "no budget");
}

Test(arena, rewind_keeps_what_is_older_than_the_mark) {
  char *kept = zp_strdup(arena, "kept");
  zp_arena_mark mark = zp_arena_get_mark(arena);
  zp_alloc(arena, 10 << 20);
  size_t peak = zp_arena_peak_bytes(arena);
  zp_arena_rewind(arena, mark);
  expect_text(kept, "kept");
  zp_alloc(arena, 16);
  cr_assert_eq(zp_arena_peak_bytes(arena), peak, "a rewind does not lower the peak");
  cr_assert_geq(peak, (size_t)10 << 20);
}

Test(arena, grow_moves_the_old_bytes_and_zeroes_the_rest) {
  for (int in_place = 0; in_place < 2; in_place++) {
    char *data = zp_alloc(arena, 10);
    memcpy(data, "0123456789", 10);
    if (!in_place) zp_alloc(arena, 1);
    char *more = zp_grow(arena, data, 10, 5000);
    cr_assert_eq(more == data, in_place == 1);
    cr_assert_eq(memcmp(more, "0123456789", 10), 0);
    for (int i = 10; i < 5000; i++) cr_assert_eq(more[i], 0);
  }
}

Test(arena, text_functions) {
  expect_text(zp_strndup(arena, "abcdef", 3), "abc");
  expect_text(zp_format(arena, "%s=%d", "x", 7), "x=7");
  char *large = zp_format(arena, "%*s", 100000, "x");
  cr_assert_eq(strlen(large), 100000);
}

Test(arena, vectors_keep_their_elements_while_they_grow) {
  zp_ints list = {0}, other = {0};
  for (int i = 0; i < 10000; i++) {
    zp_push(arena, &list, i);
    zp_push(arena, &other, -i);
  }
  cr_assert_eq(list.len, 10000);
  for (int i = 0; i < list.len; i++) cr_assert(list.data[i] == i && other.data[i] == -i);
}

TestSuite(buf, .init = set_up, .fini = tear_down);

Test(buf, lines_are_indented_and_empty_lines_are_not) {
  zp_buf buf = zp_buf_new(arena);
  zp_buf_line(&buf, "a {");
  buf.indent = 2;
  zp_buf_line(&buf, "b = %d;", 3);
  zp_buf_line(&buf, "");
  buf.indent = 0;
  zp_buf_printf(&buf, "%s", "}");
  expect_text(buf.data, "a {\n    b = 3;\n\n}");
  cr_assert_eq(buf.len, strlen(buf.data));
}

Test(buf, human_sizes) {
  static const struct {
    int64_t bytes;
    const char *decimal, *binary;
  } rows[] = {
      {0, "0 B", "0 B"},
      {999, "999 B", "999 B"},
      {1000, "1.00 kB", "1000 B"},
      {999600, "1.00 MB", "976 KiB"},
      {27400000000, "27.4 GB", "25.5 GiB"},
      {17179869184, "17.2 GB", "16.0 GiB"},
      {-1500, "-1.50 kB", "-1.46 KiB"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    expect_text(zp_show_bytes(arena, rows[i].bytes), rows[i].decimal);
    expect_text(zp_show_gib(arena, rows[i].bytes), rows[i].binary);
  }
  expect_text(zp_show_count(arena, 1084659961856), "1.085 T");
  expect_text(zp_show_count(arena, 124439808), "124.4 M");
  expect_text(zp_show_count(arena, 42), "42");
  expect_text(zp_show_seconds(arena, INFINITY), "inf days");
  expect_text(zp_show_seconds(arena, -INFINITY), "-inf days");
}

Test(buf, human_times) {
  static const struct {
    double seconds;
    const char *text;
  } rows[] = {{0, "0 s"},     {5e-9, "5.00 ns"}, {0.0123, "12.3 ms"}, {0.9996, "1.00 s"},
              {61, "61.0 s"}, {600, "10.0 min"}, {36000, "10.0 h"},   {864000, "10.0 days"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    expect_text(zp_show_seconds(arena, rows[i].seconds), rows[i].text);
}

/* A folder of its own for each test process. */
static const char *scratch_folder(void) {
  char *path = zp_strdup(arena, ZPLAN_BUILD_DIR "/test-support-XXXXXX");
  cr_assert(mkdtemp(path) != NULL);
  return path;
}

Test(buf, files_are_replaced_whole) {
  const char *folder = scratch_folder(), *path = zp_format(arena, "%s/a.txt", folder), *error = NULL;
  size_t len;
  cr_assert(zp_can_write(arena, path, &error) && access(path, F_OK) != 0, "asking writes nothing");
  cr_assert(zp_write_file(arena, path, "one", 3, &error), "%s", error);
  cr_assert_eq(chmod(path, 0640), 0);
  cr_assert(zp_write_file(arena, path, "two\0!", 5, &error), "%s", error);
  char *data = zp_read_file(arena, path, &len, &error);
  cr_assert(data && len == 5 && memcmp(data, "two\0!", 6) == 0);
  struct stat info;
  cr_assert(stat(path, &info) == 0 && (info.st_mode & 0777) == 0640, "the mode of the old file is kept");
  cr_assert_eq(unlink(path), 0);
  cr_assert_eq(rmdir(folder), 0, "no temporary file is left");
}

Test(buf, file_errors_name_the_path_and_the_reason) {
  const char *error = NULL;
  cr_assert_null(zp_read_file(arena, "/no/such/file", NULL, &error));
  expect_text(error, "cannot read `/no/such/file`: No such file or directory");
  cr_assert_null(zp_read_file(arena, "/", NULL, &error));
  expect_text(error, "cannot read `/`: Is a directory");
  cr_assert_not(zp_write_file(arena, "/no/such/file", "x", 1, &error));
  expect_text(error, "cannot write `/no/such/file`: No such file or directory");
  cr_assert_not(zp_write_file(arena, "/", "x", 1, &error));
  cr_assert_not(zp_write_file(arena, "/dev/full", "x", 1, &error));
  expect_text(error, "cannot write `/dev/full`: No space left on device");
  cr_assert_not(zp_can_write(arena, "/no/such/file", &error));
  expect_text(error, "cannot write `/no/such/file`: No such file or directory");
  cr_assert_not(zp_can_write(arena, "/", &error));
  cr_assert(zp_can_write(arena, "/dev/null", &error));
}

Test(hash, is_fnv_1a) {
  cr_assert_eq(zp_hash(ZP_HASH_START, "", 0), UINT64_C(0xcbf29ce484222325));
  cr_assert_eq(zp_hash(ZP_HASH_START, "a", 1), UINT64_C(0xaf63dc4c8601ec8c));
  cr_assert_eq(zp_hash(zp_hash(ZP_HASH_START, "foo", 3), "bar", 3), UINT64_C(0x85944171f73967e8));
}

TestSuite(json, .init = set_up, .fini = tear_down);

Test(json, writes_keys_in_order_and_exact_integers) {
  zp_json *root = zp_json_object();
  zp_json_set_int(root, "z", INT64_MAX);
  zp_json_set_real(root, "a", 0.1);
  zp_json_set_real(root, "third", 1.0 / 3);
  zp_json_set_real(root, "nan", NAN);
  zp_json_set_bool(root, "yes", true);
  zp_json_set_string(root, "none", NULL);
  zp_json_set_string(root, "foreign", "a\xff\"");
  zp_json *list = zp_json_set(root, "list", zp_json_array());
  zp_json_append_int(list, -1);
  zp_json_append_real(list, INFINITY);
  zp_json_append_string(list, "s");
  expect_text(zp_json_text(arena, root, false),
              "{\"z\":9223372036854775807,\"a\":0.1,\"third\":0.333333333333,\"nan\":null,\"yes\":true,\"none\":null,"
              "\"foreign\":\"a?\\\"\",\"list\":[-1,null,\"s\"]}");
  zp_json_free(root);
}

Test(json, reads_with_defaults_for_what_is_absent_or_of_another_type) {
  const char *text = "{\"i\": 3, \"r\": 2.5, \"s\": \"x\", \"b\": true, \"l\": [1, {\"k\": 2}]}", *error = NULL;
  zp_json *root = zp_json_parse(arena, text, strlen(text), &error);
  cr_assert(root != NULL, "%s", error);
  cr_assert_eq(zp_json_get_int(root, "i", -1), 3);
  cr_assert_eq(zp_json_get_int(root, "r", -1), -1);
  cr_assert_eq(zp_json_get_real(root, "i", -1), 3.0);
  cr_assert_eq(zp_json_get_real(root, "s", -1), -1.0);
  cr_assert(zp_json_get_bool(root, "b", false));
  cr_assert(zp_json_get_bool(root, "missing", true));
  expect_text(zp_json_get_string(root, "s", "none"), "x");
  expect_text(zp_json_get_string(root, "i", "none"), "none");
  const zp_json *list = zp_json_get(root, "l");
  cr_assert(zp_json_is_array(list) && zp_json_count(list) == 2);
  cr_assert(zp_json_is_object(zp_json_at(list, 1)));
  cr_assert_eq(zp_json_get_int(zp_json_at(list, 1), "k", 0), 2);
  cr_assert_null(zp_json_at(list, 2));
  cr_assert_null(zp_json_at(list, -1));
  cr_assert_null(zp_json_get(NULL, "x"));
  cr_assert_eq(zp_json_count(NULL), 0);
  zp_json_free(root);
}

Test(json, refuses_bad_text_with_its_place) {
  static const char *const bad[] = {"", "{", "{\"a\": 1, \"a\": 2}", "[1,]", "[1] x", "99999999999999999999", "[NaN]"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    const char *error = NULL;
    cr_assert_null(zp_json_parse(arena, bad[i], strlen(bad[i]), &error), "%s was read", bad[i]);
    cr_assert(error && strncmp(error, "line ", 5) == 0, "%s: %s", bad[i], error);
  }
}

Test(json, what_was_written_reads_back) {
  zp_json *root = zp_json_object();
  zp_json_set_int(root, "n", INT64_MIN);
  zp_json_set_real(root, "x", 1e300);
  const char *text = zp_json_text(arena, root, true), *error = NULL;
  zp_json *again = zp_json_parse(arena, text, strlen(text), &error);
  cr_assert(again != NULL, "%s", error);
  cr_assert_eq(zp_json_get_int(again, "n", 0), INT64_MIN);
  expect_text(zp_json_text(arena, again, true), text);
  zp_json_free(root);
  zp_json_free(again);
}

Test(json, values_made_in_an_arena_need_no_free) {
  zp_json_make_in(arena);
  zp_json *root = zp_json_object();
  for (int i = 0; i < 100; i++) zp_json_set_int(root, zp_format(arena, "key %d", i), i);
  zp_json *other = zp_json_parse(arena, "[1, \"two\"]", 10, &(const char *){NULL});
  expect_text(zp_json_text(arena, other, false), "[1,\"two\"]");
  zp_json_free(other);
  cr_assert_eq(zp_json_get_int(root, "key 99", -1), 99);
  zp_json_make_in(NULL);
  zp_json *after = zp_json_parse(arena, "{}", 2, &(const char *){NULL});
  expect_text(zp_json_text(arena, after, false), "{}");
  zp_json_free(after);
}

/* Diagnostics. */
static zp_diags *diags;
static void set_up_diags(void) {
  set_up();
  diags = zp_diags_new(arena);
}
TestSuite(diag, .init = set_up_diags, .fini = tear_down);

static int add(const char *path, const char *text) { return zp_diags_add_source(diags, path, text, strlen(text)); }

/* The nth place of `word` in the source. */
static zp_span find(int file, const char *word, int nth) {
  const char *text = zp_diags_source_text(diags, file, NULL), *at = text;
  for (int i = 0; i <= nth; i++) {
    at = strstr(i ? at + 1 : at, word);
    cr_assert(at != NULL, "`%s` is not in the source", word);
  }
  return (zp_span){file, (uint32_t)(at - text), (uint32_t)(at - text + (long)strlen(word))};
}

static const char *printed(bool json, bool color) {
  char *text = NULL;
  size_t len = 0;
  FILE *out = open_memstream(&text, &len);
  if (json)
    zp_diags_print_json(diags, out);
  else
    zp_diags_print(diags, out, color);
  fclose(out);
  const char *copy = zp_strdup(arena, text);
  free(text);
  return copy;
}

Test(diag, labels_hang_below_their_marks) {
  int file = add("gpt2.dz", "\n\n\n\n\n\n\n\n\n  return a + mlp(x)\n");
  zp_diag *d = zp_report(diags, ZP_Z0101, find(file, "mlp(x)", 0), "shapes do not agree in `%s`", "+");
  zp_diag_label(d, "[B, S, 3072]");
  zp_diag_also(d, find(file, "a", 0), "[B, S, 768]");
  zp_diag_note(d, "the last size is %d", 3072);
  zp_diag_help(d, "project back");
  expect_text(printed(false, false), "error[Z0101]: shapes do not agree in `+`\n"
                                     "  --> gpt2.dz:10:14\n"
                                     "   |\n"
                                     "10 |   return a + mlp(x)\n"
                                     "   |          -   ^^^^^^ [B, S, 3072]\n"
                                     "   |          |\n"
                                     "   |          [B, S, 768]\n"
                                     "   = note: the last size is 3072\n"
                                     "   = help: project back\n"
                                     "\n"
                                     "error: 1 error in gpt2.dz\n");
  expect_text(printed(false, false), "");
}

Test(diag, places_on_other_lines_and_files_have_their_own_snippets) {
  int first = add("a.dz", "one\ntwo\nthree\n"), second = add("b.dz", "four\n");
  zp_diag *d = zp_report(diags, ZP_Z0101, find(first, "three", 0), "text");
  zp_diag_also(d, find(second, "four", 0), "there");
  zp_diag_also(d, find(first, "one", 0), "here");
  zp_report(diags, ZP_Z0102, find(second, "four", 0), "again");
  zp_report(diags, ZP_Z0102, ZP_NO_SPAN, "no place");
  expect_text(printed(false, false), "error[Z0101]: text\n"
                                     " --> a.dz:3:1\n"
                                     "  |\n"
                                     "1 | one\n"
                                     "  | --- here\n"
                                     "...\n"
                                     "3 | three\n"
                                     "  | ^^^^^\n"
                                     " --> b.dz:1:1\n"
                                     "  |\n"
                                     "1 | four\n"
                                     "  | ---- there\n"
                                     "\n"
                                     "error[Z0102]: again\n"
                                     " --> b.dz:1:1\n"
                                     "  |\n"
                                     "1 | four\n"
                                     "  | ^^^^\n"
                                     "\n"
                                     "error[Z0102]: no place\n"
                                     "\n"
                                     "error: 3 errors\n");
}

Test(diag, tabs_and_foreign_bytes_keep_the_carets_in_place) {
  int file = add("t.dz", "\tx\xff\xc3\xa9 = bad\r\n");
  zp_report(diags, ZP_Z0102, find(file, "bad", 0), "odd");
  expect_text(printed(false, false), "error[Z0102]: odd\n"
                                     " --> t.dz:1:9\n"
                                     "  |\n"
                                     "1 |     x?\xc3\xa9 = bad\n"
                                     "  |           ^^^\n"
                                     "\n"
                                     "error: 1 error in t.dz\n");
}

Test(diag, a_long_line_is_cut_around_the_mark) {
  char *text = zp_format(arena, "%*s%*s", 5000, "here", 5000, "end");
  int file = add("long.dz", text);
  zp_report(diags, ZP_Z0102, find(file, "here", 0), "far away");
  const char *out = printed(false, false);
  cr_assert(strlen(out) < 600 && strstr(out, "here") && strstr(out, "..."), "%s", out);
}

Test(diag, colour_only_when_asked) {
  add("a.dz", "x\n");
  zp_report(diags, ZP_Z0101, (zp_span){0, 0, 1}, "text");
  cr_assert_not_null(strstr(printed(false, true), "\033[1;31m"));
}

Test(diag, at_most_twenty_are_shown) {
  add("a.dz", "x\n");
  for (int i = 0; i < 25; i++) zp_report(diags, ZP_Z0101, (zp_span){0, 0, 1}, "number %d", i);
  const char *out = printed(false, false);
  cr_assert(strstr(out, "number 19") && !strstr(out, "number 20"));
  cr_assert(strstr(out, "error: 25 errors in a.dz (the first 20 are shown)\n"), "%s", out);
  cr_assert_eq(zp_diags_errors(diags), 25);
  cr_assert_eq(zp_diags_count(diags), 25);
}

Test(diag, json_lines_have_the_fields_of_rustc) {
  int file = add("a.dz", "one\ntwo\n");
  zp_diag *d = zp_report(diags, ZP_Z0101, find(file, "two", 0), "text");
  zp_diag_label(d, "label");
  zp_diag_help(d, "help");
  const char *out = printed(true, false), *error = NULL;
  zp_json *root = zp_json_parse(arena, out, strlen(out), &error);
  cr_assert(root != NULL, "%s", error);
  expect_text(zp_json_get_string(root, "level", ""), "error");
  expect_text(zp_json_get_string(zp_json_get(root, "code"), "code", ""), "Z0101");
  const zp_json *span = zp_json_at(zp_json_get(root, "spans"), 0);
  expect_text(zp_json_get_string(span, "file_name", ""), "a.dz");
  expect_text(zp_json_get_string(span, "label", ""), "label");
  cr_assert_eq(zp_json_get_int(span, "byte_start", 0), 4);
  cr_assert_eq(zp_json_get_int(span, "line_start", 0), 2);
  cr_assert_eq(zp_json_get_int(span, "column_end", 0), 4);
  expect_text(zp_json_get_string(zp_json_at(zp_json_get(root, "children"), 0), "message", ""), "help");
  cr_assert(strstr(zp_json_get_string(root, "rendered", ""), " --> a.dz:2:1"));
  zp_json_free(root);
}

Test(diag, places) {
  int file = add("a.dz", "one\ntwo"), line, column;
  zp_diags_locate(diags, (zp_span){file, 7, 7}, &line, &column);
  cr_assert(line == 2 && column == 4);
  expect_text(zp_diags_place(diags, arena, find(file, "two", 0)), "a.dz:2");
  expect_text(zp_diags_place(diags, arena, ZP_NO_SPAN), "");
  cr_assert_eq(zp_diags_source_count(diags), 1);
}

Test(diag, suggestions_stay_near) {
  static const char *const words[] = {"tensor", "pipeline", "data", "zero", "d"};
  expect_text(zp_closest("tensr", words, 5), "tensor");
  expect_text(zp_closest("tenosr", words, 5), "tensor");
  expect_text(zp_closest("piplein", words, 5), "pipeline");
  expect_text(zp_closest("dat", words, 5), "data");
  cr_assert_null(zp_closest("sensory_x", words, 5));
  cr_assert_null(zp_closest("x", words, 5), "one letter for another is another word");
  cr_assert_null(zp_closest("tensor", words, 1), "the word itself is no suggestion");
  cr_assert_null(zp_closest("", words, 5));
  cr_assert_null(zp_closest(zp_format(arena, "%*s", 1000, "x"), words, 5));
  zp_diag *d = zp_report(diags, ZP_Z0101, ZP_NO_SPAN, "unknown");
  cr_assert(zp_diag_did_you_mean(d, "tensr", words, 5));
  cr_assert_not(zp_diag_did_you_mean(d, "qqqqq", words, 5));
  cr_assert(strstr(printed(false, false), "= help: did you mean `tensor`?"));
}

Test(diag, every_code_has_a_name_a_title_and_a_page) {
  for (int i = 0; i < ZP_DIAG_CODE_COUNT; i++) {
    const char *name = zp_code_name((zp_diag_code)i);
    cr_assert(name[0] == 'Z' && strlen(name) == 5, "%s", name);
    cr_assert_eq((int)zp_code_by_name(name), i, "%s stands twice in the table", name);
    cr_assert(zp_code_title((zp_diag_code)i)[0] && zp_code_page((zp_diag_code)i)[0], "%s", name);
  }
  cr_assert_eq(zp_code_by_name("Z9999"), ZP_DIAG_CODE_COUNT);
}

/* ---- paths ---- */

Test(path, one_file_has_one_path) {
  zp_arena *paths = zp_arena_new("test");
  cr_expect_str_eq(zp_path_tidy(paths, "a/./b/../c//d.dz"), "a/c/d.dz");
  cr_expect_str_eq(zp_path_tidy(paths, "/a/../../b"), "/b");
  cr_expect_str_eq(zp_path_tidy(paths, "../../a"), "../../a");
  zp_arena_free(paths);
}

/* What a file calls another leads back to it, wherever the two stand. */
Test(path, names_lead_back) {
  static const char *const pairs[][3] = {
      {"examples/capacity/card.dz", "examples/gpt2.dz", "../gpt2.dz"},
      {"card.dz", "gpt2.dz", "gpt2.dz"},
      {"card.dz", "../gpt2.dz", "../gpt2.dz"},
      {"/a/b/card.dz", "/a/c/d.dz", "../c/d.dz"},
      {"/a/card.dz", "/a/card.dz", "card.dz"},
      {"a/card.dz", "/b/gpt2.dz", "/b/gpt2.dz"},
      {"abc/card.dz", "abd/card.dz", "../abd/card.dz"},
  };
  zp_arena *paths = zp_arena_new("test");
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
    const char *name = zp_path_from(paths, pairs[i][0], pairs[i][1]);
    cr_expect_str_eq(name, pairs[i][2]);
    cr_expect_str_eq(zp_path_alongside(paths, pairs[i][0], name), pairs[i][1]);
  }
  zp_arena_free(paths);
}
