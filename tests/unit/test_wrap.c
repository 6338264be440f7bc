/* SPDX-License-Identifier: Apache-2.0 */
/* Long lines of generated text. */
#include <criterion/criterion.h>

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include "../../codegen/wrap.h"

static zp_arena *arena;
static void set_up(void) { arena = zp_arena_new("test"); }
static void tear_down(void) { zp_arena_free(arena); }
TestSuite(wrap, .init = set_up, .fini = tear_down);

#define TEN "ten digits"
#define FORTY "aaaaaaaaa bbbbbbbbb ccccccccc ddddddddd "

static void expect(const char *text, const char *wanted) {
  const char *got = zp_wrap(arena, text);
  cr_expect(strcmp(got, wanted) == 0, "got:\n%s\nwanted:\n%s", got, wanted);
}

Test(wrap, short_lines_stay) {
  expect("", "");
  expect("a, b\n\n  c", "a, b\n\n  c");
  char line[122];
  memset(line, 'x', 121), line[121] = 0;
  line[40] = ' ', line[120] = 0;
  expect(line, line);
}

Test(wrap, code_breaks_after_the_outermost_comma) {
  expect("  f(g(" FORTY ", 1), (" FORTY ", 2), h[" FORTY ", 3]);\n",
         "  f(g(" FORTY ", 1), (" FORTY ", 2),\n      h[" FORTY ", 3]);\n");
  expect("  int x = " FORTY "+ " FORTY "+ " FORTY "+ y;",
         "  int x = " FORTY "+ " FORTY "+ aaaaaaaaa bbbbbbbbb\n      ccccccccc ddddddddd + y;");
}

Test(wrap, strings_and_lines_of_the_preprocessor_stay_whole) {
  expect("  call(\"" FORTY FORTY "\\\" /* , \", \"" FORTY "\");",
         "  call(\"" FORTY FORTY "\\\" /* , \",\n      \"" FORTY "\");");
  expect("#define A " FORTY FORTY FORTY FORTY, "#define A " FORTY FORTY FORTY FORTY);
  expect("x = '\"'; /* \" */\n", "x = '\"'; /* \" */\n");
}

Test(wrap, comments_go_on_after_a_star) {
  expect("/* one\n * " FORTY FORTY FORTY TEN "\n */\n",
         "/* one\n * " FORTY FORTY "aaaaaaaaa bbbbbbbbb ccccccccc\n * ddddddddd " TEN "\n */\n");
  expect("  f(a,\n    b); /* " FORTY FORTY FORTY "*/\n",
         "  f(a,\n    b); /* " FORTY FORTY "aaaaaaaaa bbbbbbbbb ccccccccc\n         * ddddddddd */\n");
}

/* Whatever is broken, only blanks and stars at the begin of a line come in. */
Test(wrap, nothing_is_lost) {
  static const char *const piece[] = {"word", ", ", " ", "(", ")", "\"a, b\"", "/* ", " */ ", "{", "}", "\n"};
  unsigned state = 1;
  for (int round = 0; round < 300; round++) {
    char text[4000] = "", *end = text;
    bool in_comment = false;
    for (int i = 0; i < 200; i++) {
      state = state * 1664525u + 1013904223u;
      unsigned k = (state >> 16) % (sizeof piece / sizeof *piece);
      if ((k == 6 && in_comment) || (k == 7 && !in_comment)) continue;
      in_comment = k == 6 || (in_comment && k != 7);
      end += sprintf(end, "%s", piece[k]);
    }
    const char *got = zp_wrap(arena, text);
    for (const char *a = text;; a++, got++) {
      while (isspace((unsigned char)*a)) a++;
      while (isspace((unsigned char)*got) || (*got == '*' && got[1] == ' ' && *a != '*')) got++;
      cr_assert(*a == *got, "round %d: \"%.20s\" became \"%.20s\"", round, a, got);
      if (!*a) break;
    }
  }
}
