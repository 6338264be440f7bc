/* SPDX-License-Identifier: Apache-2.0 */
/* A strict reader of the JSON in safetensors headers and manifests, and the writer of their strings. It never reads
 * beyond the text, limits depth, checks numbers for overflow, and refuses what those files never have: control
 * characters in strings, fractions where sizes are meant. */
#include "json_scan.h"
#include <string.h>

enum { MAX_DEPTH = 32 };

zpr_json zpr_json_open(const char *text, size_t bytes) { return (zpr_json){.at = text, .end = text + bytes}; }

static bool fail(zpr_json *j) {
  j->failed = true;
  return false;
}

static void skip_space(zpr_json *j) {
  while (j->at < j->end && (*j->at == ' ' || *j->at == '\n' || *j->at == '\t' || *j->at == '\r')) j->at++;
}

/* The next character that is not space, 0 at the end; not consumed. */
static char peek(zpr_json *j) {
  skip_space(j);
  return j->at < j->end ? *j->at : 0;
}

static bool expect(zpr_json *j, char c) {
  if (j->failed || peek(j) != c || c == 0) return fail(j);
  j->at++;
  return true;
}

static bool enter(zpr_json *j, char open) {
  if (!expect(j, open)) return false;
  if (++j->depth > MAX_DEPTH) return fail(j);
  j->fresh = true;
  return true;
}

/* Before a member: its comma, or the end of the container (false). */
static bool next_member(zpr_json *j, char close) {
  if (j->failed || j->depth == 0) return fail(j);
  if (peek(j) == close) {
    j->at++;
    j->depth--;
    j->fresh = false; /* the container around it has this one as a member */
    return false;
  }
  if (!j->fresh && !expect(j, ',')) return false;
  j->fresh = false;
  return true;
}

bool zpr_json_object(zpr_json *j) { return enter(j, '{'); }
bool zpr_json_array(zpr_json *j) { return enter(j, '['); }
bool zpr_json_item(zpr_json *j) { return next_member(j, ']'); }

bool zpr_json_key(zpr_json *j, char *key, size_t size) {
  return next_member(j, '}') && zpr_json_string(j, key, size) && expect(j, ':');
}

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/* What follows a backslash: a character of the basic plane, or -1. zplan writes others as they are, never as a pair of
 * surrogates. */
static int unescape(zpr_json *j) {
  static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
  if (j->at >= j->end) return -1;
  char c = *j->at++;
  const char *found = c ? strchr(from, c) : NULL;
  if (found) return to[found - from];
  if (c != 'u' || j->end - j->at < 4) return -1;
  int code = 0;
  for (int i = 0; i < 4; i++) {
    int digit = hex_digit(*j->at++);
    if (digit < 0) return -1;
    code = code * 16 + digit;
  }
  return code > 0 && (code < 0xd800 || code > 0xdfff) ? code : -1;
}

/* In UTF-8; the number of bytes. */
static size_t encode(int code, char bytes[3]) {
  if (code < 0x80) return bytes[0] = (char)code, 1;
  bool two = code < 0x800;
  bytes[0] = (char)(two ? 0xc0 | code >> 6 : 0xe0 | code >> 12);
  bytes[two ? 1 : 2] = (char)(0x80 | (code & 0x3f));
  if (!two) bytes[1] = (char)(0x80 | (code >> 6 & 0x3f));
  return two ? 2 : 3;
}

bool zpr_json_string(zpr_json *j, char *text, size_t size) {
  size_t length = 0;
  if (!expect(j, '"')) return false;
  while (j->at < j->end && *j->at != '"') {
    int c = (unsigned char)*j->at++;
    if (c < 0x20) return fail(j);
    char bytes[3] = {(char)c};
    size_t n = 1;
    if (c == '\\') {
      c = unescape(j);
      n = c < 0 ? 0 : encode(c, bytes);
    }
    if (n == 0 || length + n >= size) return fail(j);
    memcpy(text + length, bytes, n);
    length += n;
  }
  if (j->at >= j->end) return fail(j);
  j->at++;
  text[length] = 0;
  return true;
}

bool zpr_json_int(zpr_json *j, int64_t *value) {
  char first = j->failed ? 0 : peek(j);
  if (first < '0' || first > '9') return fail(j);
  int64_t sum = 0;
  const char *start = j->at;
  for (; j->at < j->end && *j->at >= '0' && *j->at <= '9'; j->at++)
    if (__builtin_mul_overflow(sum, (int64_t)10, &sum) || __builtin_add_overflow(sum, (int64_t)(*j->at - '0'), &sum))
      return fail(j);
  if (first == '0' && j->at - start > 1) return fail(j);
  if (j->at < j->end && strchr(".eE", *j->at) && *j->at) return fail(j);
  *value = sum;
  return true;
}

/* A number in general, true, false or null. */
static bool skip_word(zpr_json *j) {
  const char *start = j->at;
  while (j->at < j->end && ((*j->at >= '0' && *j->at <= '9') || (*j->at >= 'a' && *j->at <= 'z') || *j->at == 'E' ||
                            *j->at == '+' || *j->at == '-' || *j->at == '.'))
    j->at++;
  size_t length = (size_t)(j->at - start);
  if (length == 0) return fail(j);
  if (*start == '-' || (*start >= '0' && *start <= '9')) return true;
  static const char *const words[] = {"true", "false", "null"};
  for (int i = 0; i < 3; i++)
    if (strlen(words[i]) == length && memcmp(words[i], start, length) == 0) return true;
  return fail(j);
}

/* As long as it is, and with pairs of surrogates: nobody reads it. */
static bool skip_string(zpr_json *j) {
  if (!expect(j, '"')) return false;
  while (j->at < j->end && *j->at != '"') {
    unsigned char c = (unsigned char)*j->at++;
    if (c < 0x20) return fail(j);
    if (c != '\\') continue;
    if (j->at < j->end && *j->at == 'u') {
      for (int i = 1; i <= 4; i++)
        if (j->end - j->at <= i || hex_digit(j->at[i]) < 0) return fail(j);
      j->at += 5;
    } else if (unescape(j) < 0) {
      return fail(j);
    }
  }
  if (j->at >= j->end) return fail(j);
  j->at++;
  return true;
}

bool zpr_json_skip(zpr_json *j) {
  if (j->failed) return false;
  switch (peek(j)) {
  case '"': return skip_string(j);
  case '[':
    zpr_json_array(j);
    while (zpr_json_item(j)) zpr_json_skip(j);
    return !j->failed;
  case '{':
    zpr_json_object(j);
    while (next_member(j, '}') && skip_string(j) && expect(j, ':')) zpr_json_skip(j);
    return !j->failed;
  default: return skip_word(j);
  }
}

bool zpr_json_done(zpr_json *j) { return !j->failed && j->depth == 0 && peek(j) == 0 && j->at == j->end; }
