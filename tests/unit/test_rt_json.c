/* The runtime's reader of JSON: what it takes, and the limits of its integers. */
#include "checkpoint.h"
#include <criterion/criterion.h>
#include <string.h>

static bool accepts(const char *text) {
  zpr_json j = zpr_json_open(text, strlen(text));
  zpr_json_skip(&j);
  return zpr_json_done(&j);
}

Test(rt_json, accepts_and_refuses) {
  static const char *const good[] = {"{}", "[]", " [1, 2.5e-3, -7, true, null] ",
                                     "{\"a\": {\"b\": [[], {}]}, \"c\": \"\\u0041\\n\"}"};
  static const char *const bad[] = {"",      "{",     "[",     "[1,]",     "{\"a\":1,}", "{\"a\" 1}",
                                    "{a:1}", "[1 2]", "\"abc", "\"\\q\"",  "\"\\u00",    "nul",
                                    "[}",    "{]",    "{} x",  "\"a\nb\"", "[,1]"};
  char deep[101] = "";
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) cr_expect(accepts(good[i]), "%s", good[i]);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) cr_expect(!accepts(bad[i]), "%s", bad[i]);
  for (int i = 0; i < 50; i++) deep[i] = '[', deep[99 - i] = ']';
  cr_expect(!accepts(deep), "deeper than the limit");
}

Test(rt_json, integers) {
  static const struct {
    const char *text;
    bool good;
    int64_t value;
  } cases[] = {{"0", true, 0},
               {"9223372036854775807", true, INT64_MAX},
               {"9223372036854775808", false, 0},
               {"99999999999999999999", false, 0},
               {"-1", false, 0},
               {"1.5", false, 0},
               {"1e3", false, 0},
               {"007", false, 0},
               {"", false, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int64_t value = -1;
    zpr_json j = zpr_json_open(cases[i].text, strlen(cases[i].text));
    bool good = zpr_json_int(&j, &value) && zpr_json_done(&j);
    cr_expect_eq(good, cases[i].good, "%s", cases[i].text);
    if (good) cr_expect_eq(value, cases[i].value);
  }
}
