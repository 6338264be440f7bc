/* SPDX-License-Identifier: Apache-2.0 */
/* What is done to a text. Words and numbers are those that readers of this project have met at their limits. */
#include "mutate.h"

#include <assert.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

uint64_t fuzz_next(fuzz_random *random) {
  uint64_t z = random->state += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

size_t fuzz_below(fuzz_random *random, size_t n) {
  assert(n > 0);
  return (size_t)(fuzz_next(random) % n);
}

static const char *const numbers[] = {
    "0",      "-1",  "1",          "2",          "3",    "7",          "1e300",  "1e18",   "9223372036854775807",
    "1e-300", "0.5", "2147483648", "4294967296", "-0.0", "1e9GB/s",    "16GiB",  "0GiB",   "99999999999999999999",
    "1%",     "0%",  "1e308",      "65536",      "1000", "2147483647", "3us",    "1e999",  "-9223372036854775808",
    "64",     "12",  "0x10",       "NaN",        "inf",  "1 / 0",      "131072", "100000", "1048577"};
/* clang-format off */
static const char *const words[] = {
    "{", "}", "(", ")", "[", "]", "=", "\"", "\\", "#", "\n", "..",
    "~", "->", "<=", ">=", "null", "true", "false", "\"\"", "[]", "{}", "\\u0000", "\xff",
    "\x1b[31m", "\x1b]0;x\x07", "\x7f", "\xc2\x9b", "\xe2\x80\xae", "\x9b", "\x08", "\r",
    "?\?/", "*/", "$(x)", "'", "%s%n",
    ",",   ":",     "/",     "<",     ">",        "</a>",  "<!--",   "&amp;",     "&#0;",  "\xef\xbb\xbf", "\r\n", "\t",
    "repeat h in 0..layers {", "-x", "x + x", "x / x", "sqrt(-1)", "transpose(x)", "split(x, 3)", "B", "S", "d"};
/* clang-format on */

static const char *any(fuzz_random *random, const char *const *list, size_t n) { return list[fuzz_below(random, n)]; }
#define ANY(random, list) any(random, list, sizeof(list) / sizeof *(list))

/* text[from, to) becomes `with`. */
static void replace(fuzz_text *text, size_t from, size_t to, const char *with, size_t n) {
  size_t len = text->len - (to - from) + n;
  char *data = malloc(len + 1);
  if (!data) abort();
  memcpy(data, text->data, from);
  memcpy(data + from, with, n);
  memcpy(data + from + n, text->data + to, text->len - to);
  free(text->data);
  text->data = data;
  text->len = len;
}

typedef struct range {
  size_t from, to;
} range;

static size_t somewhere(fuzz_random *random, const fuzz_text *text) { return fuzz_below(random, text->len + 1); }

/* The word at a place: letters, digits and what stands in names and numbers. */
static range word_at(const fuzz_text *text, size_t at) {
  range r = {at, at};
  while (r.from > 0 && (isalnum((unsigned char)text->data[r.from - 1]) || strchr("_.", text->data[r.from - 1])))
    r.from--;
  while (r.to < text->len && (isalnum((unsigned char)text->data[r.to]) || strchr("_.", text->data[r.to]))) r.to++;
  if (r.from == r.to && r.to < text->len) r.to++;
  return r;
}

static range line_at(const fuzz_text *text, size_t at) {
  range r = {at, at};
  while (r.from > 0 && text->data[r.from - 1] != '\n') r.from--;
  while (r.to < text->len && text->data[r.to] != '\n') r.to++;
  if (r.to < text->len) r.to++;
  return r;
}

/* The next number after a place; empty where none is near. */
static range number_after(const fuzz_text *text, size_t at) {
  size_t end = at + 400 < text->len ? at + 400 : text->len;
  while (at < end && !isdigit((unsigned char)text->data[at])) at++;
  if (at == end) return (range){at, at};
  return word_at(text, at);
}

/* From a bracket to the one that closes it; a word where there is none. */
static range group_after(const fuzz_text *text, size_t at) {
  size_t start = at, end = at + 2000 < text->len ? at + 2000 : text->len;
  while (start < end && !strchr("{[(<", text->data[start])) start++;
  if (start == end) return word_at(text, at);
  char open = text->data[start], close = open == '{' ? '}' : open == '[' ? ']' : open == '(' ? ')' : '>';
  int depth = 0;
  for (size_t i = start; i < text->len; i++) {
    if (text->data[i] == open) depth++;
    if (text->data[i] == close && --depth == 0) return (range){start, i + 1};
  }
  return word_at(text, at);
}

static range any_range(fuzz_random *random, const fuzz_text *text) {
  size_t at = somewhere(random, text);
  switch (fuzz_below(random, 4)) {
  case 0: return word_at(text, at);
  case 1: return line_at(text, at);
  case 2: return group_after(text, at);
  default: {
    size_t to = at + fuzz_below(random, 64);
    return (range){at, to < text->len ? to : text->len};
  }
  }
}

static void put(fuzz_text *text, range r, const char *word) { replace(text, r.from, r.to, word, strlen(word)); }

/* A piece of `from` takes the place of a piece of the text, or is put in before it. */
static void graft(fuzz_random *random, fuzz_text *text, const fuzz_text *from) {
  range piece = any_range(random, from), place = any_range(random, text);
  if (fuzz_below(random, 2)) place.to = place.from;
  size_t n = piece.to - piece.from;
  char *copy = malloc(n + 1); /* the two texts may be one */
  if (!copy) abort();
  memcpy(copy, from->data + piece.from, n);
  replace(text, place.from, place.to, copy, n);
  free(copy);
}

static void flip_bits(fuzz_random *random, fuzz_text *text) {
  for (size_t n = 1 + fuzz_below(random, 4); n > 0 && text->len > 0; n--)
    text->data[fuzz_below(random, text->len)] ^= (char)(1 << fuzz_below(random, 8));
}

/* Repeats a piece many times in a row: depth and length. */
static void multiply(fuzz_random *random, fuzz_text *text, size_t most) {
  range r = any_range(random, text);
  size_t n = r.to - r.from, times = (size_t)1 << fuzz_below(random, 12);
  while (times > 1 && n * times > most / 2) times /= 2;
  char *copy = malloc(n * times + 1);
  if (!copy) abort();
  for (size_t i = 0; i < times; i++) memcpy(copy + i * n, text->data + r.from, n);
  replace(text, r.to, r.to, copy, n * times);
  free(copy);
}

static void change(fuzz_random *random, fuzz_text *text, const fuzz_text *other, size_t most) {
  switch (fuzz_below(random, 12)) {
  case 0: flip_bits(random, text); break;
  case 1:
  case 2:
  case 3:
  case 4: put(text, number_after(text, somewhere(random, text)), ANY(random, numbers)); break;
  case 5: put(text, word_at(text, somewhere(random, text)), ANY(random, words)); break;
  case 6: put(text, word_at(text, somewhere(random, text)), ANY(random, numbers)); break;
  case 7: put(text, any_range(random, text), ""); break;
  case 8: graft(random, text, other); break;
  case 9: graft(random, text, text); break;
  case 10: multiply(random, text, most); break;
  default: text->len = fuzz_below(random, 8) ? text->len : somewhere(random, text); break; /* cut off */
  }
}

fuzz_text fuzz_damage(fuzz_random *random, const fuzz_text *text, const fuzz_text *other, size_t most) {
  static const size_t changes[] = {1, 1, 1, 2, 2, 3, 5, 9};
  fuzz_text damaged = {malloc(text->len + 1), text->len};
  if (!damaged.data) abort();
  memcpy(damaged.data, text->data, text->len);
  for (size_t n = changes[fuzz_below(random, sizeof changes / sizeof *changes)]; n > 0; n--)
    change(random, &damaged, other, most);
  if (damaged.len > most) damaged.len = most;
  return damaged;
}
