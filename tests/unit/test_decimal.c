/* SPDX-License-Identifier: Apache-2.0 */
/* Decimals that read back equal: no digit too few, none too many. */
#include <criterion/criterion.h>

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zplan/decimal.h>

static zp_arena *arena;
static void set_up(void) { arena = zp_arena_new("test"); }
static void tear_down(void) { zp_arena_free(arena); }
TestSuite(decimal, .init = set_up, .fini = tear_down);

Test(decimal, reads_as_one_writes_it) {
  static const struct {
    double x;
    const char *text;
  } row[] = {{0.9, "0.9"},
             {0.1 + 0.2, "0.30000000000000004"},
             {1e-8, "1e-08"},
             {0.02, "0.02"},
             {1, "1"},
             {-2.5, "-2.5"},
             {100000, "100000"},
             {0, "0"},
             {-0.0, "-0.0"},
             {1e300, "1e+300"},
             {DBL_TRUE_MIN, "5e-324"},
             {-DBL_TRUE_MIN, "-5e-324"},
             {DBL_MIN, "2.2250738585072014e-308"},
             {DBL_MAX, "1.7976931348623157e+308"},
             {9007199254740993.0, "9007199254740992"},
             {1.0 / 3, "0.3333333333333333"}};
  for (size_t i = 0; i < sizeof row / sizeof *row; i++)
    cr_expect_str_eq(zp_decimal(arena, row[i].x), row[i].text, "%a: \"%s\", not \"%s\"", row[i].x,
                     zp_decimal(arena, row[i].x), row[i].text);
}

/* Significant digits of a decimal: those between the first and the last that is not 0. */
static int digits_of(const char *text) {
  int n = 0, zeros = 0;
  for (; *text && *text != 'e'; text++) {
    if (*text < '0' || *text > '9' || (n == 0 && *text == '0')) continue;
    zeros = *text == '0' ? zeros + 1 : 0;
    n++;
  }
  return n - zeros;
}

static void expect_shortest(double x) {
  zp_arena_mark mark = zp_arena_get_mark(arena);
  const char *text = zp_decimal(arena, x);
  double back = strtod(text, NULL);
  cr_assert(memcmp(&back, &x, sizeof x) == 0, "%a printed as %s reads back as %a", x, text, back);
  int digits = digits_of(text);
  char shorter[64];
  snprintf(shorter, sizeof shorter, "%.*e", digits - 2, x); /* one digit fewer */
  cr_assert(digits <= 1 || strtod(shorter, NULL) != x, "%s is longer than %s", text, shorter);
  zp_arena_rewind(arena, mark);
}

/* All bit patterns that are numbers, and numbers as people write them: few digits. */
Test(decimal, random_numbers_read_back_equal) {
  uint64_t state = 1;
  for (int i = 0; i < 20000; i++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    uint64_t bits = state ^ (state >> 29);
    double x;
    memcpy(&x, &bits, sizeof x);
    if (isfinite(x)) expect_shortest(x);
    bits &= 0x800fffffffffffffu; /* subnormal */
    memcpy(&x, &bits, sizeof x);
    if (x != 0) expect_shortest(x);
    expect_shortest((double)(int64_t)(state >> 44) / pow(10, (double)(state >> 20 & 15)));
  }
}
