/* SPDX-License-Identifier: Apache-2.0 */
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

/* zplan escapes controls in paths that it hands to trainers; in UTF-8 they are the same bytes again. */
Test(rt_json, strings) {
  static const struct {
    const char *text, *value; /* NULL: refused */
  } cases[] = {{"\"\\u0041\\u007f\\n\"", "A\x7f\n"},
               {"\"\\u009b\\u00e9\"", "\xc2\x9b\xc3\xa9"},
               {"\"\\u202e\\uffff\"", "\xe2\x80\xae\xef\xbf\xbf"},
               {"\"\xff\xc3\xa9\"", "\xff\xc3\xa9"},
               {"\"\\ud83d\\ude00\"", NULL},
               {"\"\\u0000\"", NULL},
               {"\"0123456\"", "0123456"},
               {"\"01234567\"", NULL},
               {"\"012345\\u00e9\"", NULL}}; /* longer than the place for it */
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char value[8] = "";
    zpr_json j = zpr_json_open(cases[i].text, strlen(cases[i].text));
    bool good = zpr_json_string(&j, value, sizeof value) && zpr_json_done(&j);
    cr_expect_eq(good, cases[i].value != NULL, "%s", cases[i].text);
    if (good) cr_expect_str_eq(value, cases[i].value);
  }
}
