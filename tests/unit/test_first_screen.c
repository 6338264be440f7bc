/* SPDX-License-Identifier: Apache-2.0 */
/* The first screen of every example at several widths: no line is wider, no word is broken, it is short, and its
 * figures are those of the JSON. Searches stop early: what a screen shows does not depend on how good a plan is. */
#include <criterion/criterion.h>
#include <glob.h>
#include "../support/turn.h"
#include "../support/user_spec.h"

enum { LEAST_WORK = 30000, MOST_LINES = 22 }; /* lines: the command adds two or three */

static zp_arena *arena;
static void setup(void) { arena = zp_arena_new("test"); }
static void teardown(void) { zp_arena_free(arena); }
TestSuite(first_screen, .init = setup, .fini = teardown);

static const char *screen_of(const zp_plan *plan, int width) {
  zp_page page = zp_page_new(arena, zp_plain_screen(width), ZP_FIRST_LABEL);
  zp_report_first_screen(&page, plan);
  return page.out.data;
}

static int lines_of(const char *text) {
  int lines = 0;
  for (; *text; text++) lines += *text == '\n';
  return lines;
}

static void expect_narrow(const char *example, const char *text, int width) {
  while (*text) {
    size_t len = strcspn(text, "\n");
    cr_expect_leq(zp_columns(zp_strndup(arena, text, len)), width, "%s at %d: %.*s", example, width, (int)len, text);
    text += len + 1;
  }
}

/* All words in order, with single spaces between them, but for bars, whose widths differ. */
static const char *words_of(const char *text) {
  zp_buf out = zp_buf_new(arena);
  for (text += strspn(text, " \n"); *text; text += strspn(text, " \n")) {
    size_t len = strcspn(text, " \n");
    const char *word = zp_strndup(arena, text, len);
    bool is_bar = len >= 10 && strspn(word, "WGOSBCNXH.") == len;
    if (!is_bar) zp_buf_printf(&out, "%s ", word);
    text += len;
  }
  return out.data;
}

static void expect_field(const char *example, const char *words, const char *label, const char *value) {
  const char *field = zp_format(arena, " %s %s ", label, value);
  cr_expect(strstr(words, field) || strstr(words, zp_format(arena, " %s %s,", label, value)), "%s: no `%s` in: %s",
            example, field, words);
}

/* Figures are those of the JSON that scripts read. */
static void expect_numbers(const char *example, const char *words, const zp_plan *plan) {
  zp_json *json = zp_plan_to_json(arena, plan);
  const zp_json *e = zp_json_get(json, "estimate");
  double step_s = zp_json_get_real(e, "step_s", -1), compute_s = zp_json_get_real(e, "compute_s", -1);
  expect_field(example, words, "step", zp_format(arena, "~%s", zp_show_seconds(arena, step_s)));
  expect_field(example, words, "speed",
               zp_format(arena, "~%s tokens/s, MFU ~%.1f%%",
                         zp_show_count(arena, zp_json_get_real(e, "tokens_per_s", -1)),
                         100 * zp_json_get_real(e, "mfu", -1)));
  expect_field(example, words, "peak",
               zp_format(arena, "~%s", zp_show_bytes(arena, zp_json_get_int(e, "peak_bytes", -1))));
  expect_field(example, words, "C compute", zp_format(arena, "~%.1f%%", 100 * compute_s / step_s));
  const zp_json *memory =
      zp_json_get(zp_json_at(zp_json_get(json, "stages"), (int)zp_json_get_int(e, "peak_stage", -1)), "memory");
  static const char *const classes[][2] = {{"W", "weights"}, {"G", "gradients"}, {"O", "optimizer"}, {"S", "saved"}};
  for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
    int64_t bytes = zp_json_get_int(memory, classes[i][1], -1);
    if (bytes != 0)
      expect_field(example, words, zp_format(arena, "%s %s", classes[i][0], classes[i][1]),
                   zp_show_bytes(arena, bytes));
  }
  zp_json_free(json);
}

/* Most examples need a hundredth of the work that the largest need for a plan. */
static zp_plan *first_found(const zp_spec *spec) {
  for (int64_t work = LEAST_WORK;; work *= 4) {
    zp_plan *plan = zp_search(arena, spec, (int)spec->cluster.ranks, &(zp_search_options){.work = work});
    if (!plan->stopped) return plan;
  }
}

static void check(const char *example) {
  const char *words[] = {example};
  zp_spec *spec = user_spec(arena, words, 1);
  cr_assert(spec, "%s", example);
  zp_plan *plan = first_found(spec);
  cr_assert(plan->feasible, "%s", example);
  const char *all = words_of(screen_of(plan, 200));
  static const int widths[] = {20, 40, 80, 200};
  for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
    const char *text = screen_of(plan, widths[i]);
    expect_narrow(example, text, widths[i]);
    if (widths[i] >= 40) cr_expect_str_eq(words_of(text), all, "%s at %d:\n%s", example, widths[i], text);
  }
  cr_expect_leq(lines_of(screen_of(plan, 80)), MOST_LINES, "%s:\n%s", example, screen_of(plan, 80));
  expect_numbers(example, all, plan);
}

Test(first_screen, of_every_example) {
  glob_t found;
  cr_assert_eq(glob(ZPLAN_SOURCE_DIR "/examples/*.dz", 0, NULL, &found), 0);
  for (size_t i = 0; i < found.gl_pathc; i++)
    if (has_turn((int)i, 3)) check(found.gl_pathv[i]);
  globfree(&found);
}
