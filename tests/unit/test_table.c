/* SPDX-License-Identifier: Apache-2.0 */
/* Tables: they fold, leave columns out, become lists; no line is wider than the screen. */
#include <criterion/criterion.h>
#include <zplan/table.h>

static zp_arena *arena;
static void setup(void) { arena = zp_arena_new("test"); }
static void teardown(void) { zp_arena_free(arena); }
TestSuite(table, .init = setup, .fini = teardown);

static const zp_column columns[] = {
    {"devices", 7, 0, 0}, {"plan", 0, 10, 0}, {"step", 8, 0, 0}, {"rate", 8, 0, 2}, {"peak", 8, 0, 1}};

static const char *shown(int width) {
  zp_page page = zp_page_new(arena, zp_plain_screen(width), 0);
  zp_table table = {.columns = columns, .n = 5};
  const char *one[] = {"1", "tensor 1 data 1", "~9 s", "~1 k", "~2 GB"},
             *two[] = {"16", "tensor 8 data 2", "~1 s", "~9 k", NULL};
  zp_table_add(arena, &table, one);
  zp_table_add(arena, &table, two);
  zp_page_table(&page, &table);
  return page.out.data;
}

Test(table, wide_enough_it_stands_as_it_is) {
  cr_expect_str_eq(shown(80), "devices  plan                 step      rate      peak\n"
                              "      1  tensor 1 data 1      ~9 s      ~1 k     ~2 GB\n"
                              "     16  tensor 8 data 2      ~1 s      ~9 k\n");
}

Test(table, texts_fold_first) {
  cr_expect_str_eq(shown(50), "devices  plan             step      rate      peak\n"
                              "      1  tensor 1         ~9 s      ~1 k     ~2 GB\n"
                              "         data 1\n"
                              "     16  tensor 8         ~1 s      ~9 k\n"
                              "         data 2\n");
}

Test(table, then_columns_are_left_out_and_named) {
  cr_expect_str_eq(shown(40), "devices  plan             step      peak\n"
                              "      1  tensor 1         ~9 s     ~2 GB\n"
                              "         data 1\n"
                              "     16  tensor 8         ~1 s\n"
                              "         data 2\n"
                              "not shown in 40 columns: rate\n");
}

Test(table, at_last_rows_are_lists) {
  cr_expect_str_eq(shown(20), "devices: 1\n  plan: tensor 1\n    data 1\n  step: ~9 s\n  rate: ~1 k\n  peak: ~2 GB\n"
                              "devices: 16\n  plan: tensor 8\n    data 2\n  step: ~1 s\n  rate: ~9 k\n");
}

/* Names and texts of a row, with a text between rows. */
static const char *texts(int width, const char *name, const char *a, const char *b) {
  static const zp_column folding[] = {{"", 4, 4, 0}, {"A", 4, 4, 0}, {"B", 4, 4, 0}};
  zp_page page = zp_page_new(arena, zp_plain_screen(width), 0);
  zp_table table = {.columns = folding, .n = 3};
  const char *cells[] = {name, a, b};
  zp_table_add_text(arena, &table, "\none part of it");
  zp_table_add(arena, &table, cells);
  zp_table_add_text(arena, &table, "the same: all other things");
  zp_page_table(&page, &table);
  return page.out.data;
}

Test(table, words_stay_whole_and_the_widest_column_folds) {
  cr_expect_str_eq(texts(30, "recompute", "selective and then full", "none"),
                   "           A              B\n\none part of it\nrecompute  selective and  none\n"
                   "           then full\nthe same: all other things\n");
  cr_expect(strstr(texts(24, "recompute", "selective", "none"), "recompute\n  A: selective\n  B: none\n"), "%s",
            texts(24, "recompute", "selective", "none"));
}

Test(table, parts_of_long_words_are_folded_last) {
  cr_expect_str_eq(texts(30, "file", "a/folder/of/somebody/plan.json", "none"),
                   "      A                   B\n\none part of it\nfile  a/folder/of/        none\n"
                   "      somebody/plan.json\nthe same: all other things\n");
}

Test(table, spaces_that_hold_together_are_spaces_on_the_page) {
  cr_expect(strstr(texts(40, "a", "zero" ZP_GLUE "0", "b"), "a     zero 0  b\n"));
}

Test(table, no_line_is_wider) {
  for (int width = 20; width <= 90; width++) {
    const char *text = shown(width);
    while (*text) {
      size_t len = strcspn(text, "\n");
      cr_expect_leq(zp_columns(zp_strndup(arena, text, len)), width, "%d: %.*s", width, (int)len, text);
      text += len + 1;
    }
  }
}
