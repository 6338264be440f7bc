/* SPDX-License-Identifier: Apache-2.0 */
/* Pages: no line is wider than the screen, words stay whole, and what a terminal would obey is shown. */
#include <criterion/criterion.h>
#include <zplan/page.h>

static zp_arena *arena;
static void setup(void) { arena = zp_arena_new("test"); }
static void teardown(void) { zp_arena_free(arena); }
TestSuite(page, .init = setup, .fini = teardown);

static int widest(const char *text) {
  int most = 0;
  while (*text) {
    size_t len = strcspn(text, "\n");
    int columns = zp_columns(zp_strndup(arena, text, len));
    if (columns > most) most = columns;
    text += len + (text[len] == '\n');
  }
  return most;
}

static zp_page page_of(int width, int label) { return zp_page_new(arena, zp_plain_screen(width), label); }

Test(page, width_is_of_columns_then_terminal_then_80) {
  cr_expect_eq(zp_screen_from(132, NULL, NULL, NULL, "xterm", ZP_COLOR_AUTO).width, 132);
  cr_expect_eq(zp_screen_from(132, "50", NULL, NULL, "xterm", ZP_COLOR_AUTO).width, 50);
  cr_expect_eq(zp_screen_from(0, NULL, NULL, NULL, NULL, ZP_COLOR_AUTO).width, 80);
  static const char *const no_numbers[] = {"", "0", "-5", "x", "80x", "99999999999999"};
  for (size_t i = 0; i < sizeof no_numbers / sizeof *no_numbers; i++)
    cr_expect_eq(zp_screen_from(0, no_numbers[i], NULL, NULL, NULL, ZP_COLOR_AUTO).width, 80, "%s", no_numbers[i]);
  cr_expect_eq(zp_screen_from(3, NULL, NULL, NULL, "xterm", ZP_COLOR_AUTO).width, ZP_LEAST_COLUMNS);
}

Test(page, colours_are_for_terminals_that_want_them) {
  cr_expect(zp_screen_from(80, NULL, NULL, NULL, "xterm", ZP_COLOR_AUTO).color);
  cr_expect(zp_screen_from(80, NULL, NULL, "", "xterm", ZP_COLOR_AUTO).color, "empty is not set");
  cr_expect_not(zp_screen_from(80, NULL, NULL, "1", "xterm", ZP_COLOR_AUTO).color);
  cr_expect_not(zp_screen_from(80, NULL, NULL, NULL, "dumb", ZP_COLOR_AUTO).color);
  cr_expect_not(zp_screen_from(80, NULL, NULL, NULL, NULL, ZP_COLOR_AUTO).color);
  cr_expect_not(zp_screen_from(0, NULL, NULL, NULL, "xterm", ZP_COLOR_AUTO).color);
  cr_expect(zp_screen_from(0, NULL, NULL, "1", "dumb", ZP_COLOR_ALWAYS).color);
  cr_expect_not(zp_screen_from(80, NULL, NULL, NULL, "xterm", ZP_COLOR_NEVER).color);
}

Test(page, characters_are_those_of_the_locale) {
  static const char *const yes[] = {"C.UTF-8", "en_US.utf8", "de_DE.UTF-8@euro"};
  static const char *const no[] = {NULL, "C", "POSIX", "de_DE.ISO-8859-1", "utf8"};
  for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
    cr_expect(zp_screen_from(80, NULL, yes[i], NULL, NULL, ZP_COLOR_AUTO).utf8, "%s", yes[i]);
  for (size_t i = 0; i < sizeof no / sizeof *no; i++)
    cr_expect_not(zp_screen_from(80, NULL, no[i], NULL, NULL, ZP_COLOR_AUTO).utf8, "%s", no[i] ? no[i] : "none");
}

Test(page, columns_are_not_bytes) {
  cr_expect_eq(zp_columns("abc"), 3);
  cr_expect_eq(zp_columns("a\xcc\x81"
                          "b"),
               2, "a combining mark takes none");
  cr_expect_eq(zp_columns("\xe6\xbc\xa2\xe5\xad\x97"), 4, "wide characters take two");
  cr_expect_eq(zp_fitting_bytes("\xe6\xbc\xa2\xe5\xad\x97", 3), 3);
}

Test(page, words_wrap_and_units_stay_with_numbers) {
  zp_page page = page_of(24, 0);
  zp_page_text(&page, ZP_PLAIN, 2, "the step takes about ~10.3 min of them 2.5 GB.");
  cr_expect_str_eq(page.out.data, "the step takes about\n  ~10.3 min of them\n  2.5 GB.\n");
  page = page_of(24, 0);
  zp_page_text(&page, ZP_PLAIN, 0, "a plan that has tensor" ZP_GLUE "16");
  cr_expect_str_eq(page.out.data, "a plan that has\ntensor 16\n");
}

Test(page, only_words_wider_than_the_screen_break) {
  for (int width = 20; width <= 60; width++) {
    zp_page page = page_of(width, 10);
    zp_page_field(&page, "next", "zplan examples/of/a/folder/with_a_long_name.dz -o plan.json");
    cr_expect_leq(widest(page.out.data), width, "%d: %s", width, page.out.data);
    cr_expect(strstr(page.out.data, "plan.json"), "%d: %s", width, page.out.data);
  }
}

Test(page, labels_have_their_own_lines_where_it_is_narrow) {
  zp_page page = page_of(80, 10);
  zp_page_field(&page, "step", "1 s");
  cr_expect_str_eq(page.out.data, "step      1 s\n");
  page = page_of(20, 10);
  zp_page_field(&page, "step", "1 s");
  cr_expect_str_eq(page.out.data, "step\n  1 s\n");
  page = page_of(80, 6);
  zp_page_field(&page, "throughput", "1");
  cr_expect_str_eq(page.out.data, "throughput 1\n");
}

Test(page, lines_that_fit_stay_and_others_keep_their_labels) {
  zp_page page = page_of(40, 0);
  zp_page_lines(&page, "as it   was\n  measured     step 300 ms, median of 2, which is more\n");
  cr_expect_str_eq(page.out.data,
                   "as it   was\n  measured     step 300 ms, median of 2,\n               which is more\n");
}

/* What a name in a file may hold. */
Test(page, terminals_obey_nothing) {
  zp_page page = page_of(80, 10);
  zp_page_field(&page, "model", "%s", "a\x1b[31mb\nc");
  zp_page_lines(&page, "x\x1b]0;t\a\n");
  cr_expect_null(strchr(page.out.data, '\x1b'), "%s", page.out.data);
  cr_expect(strstr(page.out.data, "a\\x1b[31mb\\x0ac"), "%s", page.out.data);
}

static const zp_part parts[] = {
    {"first", "6 GB", 6, 'F'}, {"second", "~3 GB", 3, 'S'}, {"none", "0 B", 0, 'N'}, {"free", "1 GB", 1, '.'}};

Test(page, bars_are_to_scale) {
  zp_page page = page_of(60, 10);
  zp_page_bar(&page, "memory", parts, 4);
  cr_expect_str_eq(page.out.data, "memory    FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFSSSSSSSSSSSSSSS.....\n"
                                  "          F first 6 GB  S second ~3 GB  . free 1 GB\n");
}

Test(page, bars_have_patterns_and_colours) {
  zp_screen screen = {.width = 60, .utf8 = true, .color = true};
  zp_page page = zp_page_new(arena, screen, 10);
  zp_page_bar(&page, "memory", parts, 4);
  cr_expect(strstr(page.out.data, "\x1b[38;5;25m\xe2\x96\x88"), "%s", page.out.data);
  cr_expect(strstr(page.out.data, "\x1b[0m \x1b") == NULL);
  screen.color = false;
  for (int width = 20; width < 100; width++) {
    screen.width = width;
    page = zp_page_new(arena, screen, 10);
    zp_page_bar(&page, "memory", parts, 4);
    cr_expect_leq(widest(page.out.data), width);
    cr_expect_null(strchr(page.out.data, '\x1b'));
  }
}
