/* SPDX-License-Identifier: Apache-2.0 */
/* JSON lines: an object a line, of which some fields are read. Memory is that of the longest line.
 *
 * All that RFC 8259 allows is taken, and what Python writes alongside it. It leaves some open, decided here: of a key
 * that comes again the last value counts; the character 0 and halves of surrogate pairs, which no text of ours holds,
 * become U+FFFD, and are counted; NaN and Infinity, which are no JSON, and numbers beyond 64 bits and doubles are no
 * numbers where one is asked for, and nothing elsewhere. */
#include "make_data_internal.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <zplan/json.h>
#include <zplan/json.h>

zp_diag *zp_bad_row(zp_data_job *job, zp_row_place place, const char *format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  job->rows.why = zp_format(job->arena, "%s:%lld: %s", place.path, (long long)place.line, text);
  return zp_report(job->diags, ZP_Z0810, ZP_NO_SPAN, "%s", job->rows.why);
}

/* "a.b": the field of that name, or else `b` of the object `a`. */
static const zp_json *find(const zp_json *object, const char *name) {
  char outer[256];
  const zp_json *value = zp_json_get(object, name);
  const char *dot = value ? NULL : strchr(name, '.');
  if (!dot || dot - name >= (ptrdiff_t)sizeof outer) return value;
  snprintf(outer, sizeof outer, "%.*s", (int)(dot - name), name);
  return find(zp_json_get(object, outer), dot + 1);
}

static zp_cell cell_of(const zp_json *value) {
  if (!value) return (zp_cell){.kind = ZP_CELL_MISSING};
  if (zp_json_is_null(value)) return (zp_cell){.kind = ZP_CELL_EMPTY};
  if (zp_json_is_bool(value)) return (zp_cell){.kind = ZP_CELL_NUMBER, .number = zp_json_bool(value)};
  const char *text = zp_json_string(value, NULL);
  if (text) return (zp_cell){.kind = ZP_CELL_TEXT, .text = text};
  if (zp_json_is_object(value) || zp_json_is_array(value)) return (zp_cell){.kind = ZP_CELL_OTHER};
  return (zp_cell){.kind = ZP_CELL_NUMBER, .number = zp_json_real(value, 0)};
}

static int hex_of(const char *digits, const char *end) {
  int code = 0;
  if (end - digits < 4) return -1;
  for (int i = 0; i < 4; i++) {
    const char *found = digits[i] ? strchr("0123456789abcdef", digits[i] | (digits[i] >= 'A' ? 0x20 : 0)) : NULL;
    if (!found) return -1;
    code = code * 16 + (int)(found - "0123456789abcdef");
  }
  return code;
}

/* After "\u": of half a pair, or the character 0, the digits become those of U+FFFD. After what was read. */
static char *mend_escape(char *digits, char *end, int64_t *mended) {
  enum { HIGH = 0xd800, LOW = 0xdc00, BEHIND = 0xe000 };
  int code = hex_of(digits, end);
  bool pair = code >= HIGH && code < LOW && end - digits >= 10 && digits[4] == '\\' && digits[5] == 'u';
  int second = pair ? hex_of(digits + 6, end) : -1;
  if (second >= LOW && second < BEHIND) return digits + 10;
  if (code == 0 || (code >= HIGH && code < BEHIND)) {
    memcpy(digits, "fffd", 4);
    ++*mended;
  }
  return code < 0 ? digits : digits + 4;
}

/* A word that is no JSON becomes an empty list, with spaces after it: no number, where one is asked for. */
static size_t mend_word(char *at, const char *end) {
  static const char *const words[] = {"NaN", "-Infinity", "Infinity"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    size_t len = strlen(words[i]);
    if ((size_t)(end - at) < len || memcmp(at, words[i], len) != 0) continue;
    memset(at, ' ', len);
    memcpy(at, "[]", 2);
    return len;
  }
  return 0;
}

static const char *skip_digits(const char *at, const char *end) {
  while (at < end && *at >= '0' && *at <= '9') at++;
  return at;
}

/* Behind a number of JSON; NULL: none. */
static const char *number_end(const char *at, const char *end, bool *whole) {
  if (at < end && *at == '-') at++;
  const char *digits = at;
  at = skip_digits(at, end);
  if (at == digits || (*digits == '0' && at > digits + 1)) return NULL;
  *whole = true;
  if (at < end && *at == '.') {
    digits = at + 1, at = skip_digits(digits, end), *whole = false;
    if (at == digits) return NULL;
  }
  if (at < end && (*at == 'e' || *at == 'E')) {
    at++, *whole = false;
    if (at < end && (*at == '+' || *at == '-')) at++;
    digits = at, at = skip_digits(digits, end);
    if (at == digits) return NULL;
  }
  return at;
}

/* A number that neither 64 bits nor a double hold becomes an empty list, too. The line ends with a 0. */
static size_t mend_number(char *at, const char *end) {
  bool whole;
  const char *behind = number_end(at, end, &whole);
  if (!behind) return 0;
  errno = 0;
  if (whole)
    strtoll(at, NULL, 10);
  else if (isfinite(strtod(at, NULL)))
    errno = 0;
  if (errno == ERANGE) {
    memset(at, ' ', (size_t)(behind - at));
    memcpy(at, "[]", 2);
  }
  return (size_t)(behind - at);
}

static void mend(char *at, char *end, int64_t *mended) {
  bool inside = false;
  while (at < end) {
    if (inside && *at == '\\' && at + 1 < end) {
      at = at[1] == 'u' ? mend_escape(at + 2, end, mended) : at + 2;
      continue;
    }
    if (*at == '"') inside = !inside;
    size_t word = inside ? 0 : mend_word(at, end);
    if (!inside && !word) word = mend_number(at, end);
    at += word ? word : 1;
  }
}

static void tell_of_array(zp_diag *diag, const char *path) {
  zp_diag_help(
      diag, "the file is one array: `zplan data jsonl` reads an object a line, as `jq -c '.[]' %s` writes them", path);
}

/* With --skip-bad a row that cannot be read is counted, and the first one reported at the end. */
static bool skip(zp_data_job *job, int before) {
  const char *why = job->rows.why;
  if (!job->skip_bad || !why) return false;
  if (job->rows.bad++ == 0) job->rows.first_bad = why;
  while (zp_diags_count(job->diags) > before) zp_diags_drop(job->diags, zp_diags_count(job->diags) - 1);
  return true;
}

static bool read_line(zp_data_job *job, zp_row_place place, const char *line, size_t len, const zp_strings *columns,
                      zp_cell *cells, zp_on_row *on_row, void *user) {
  static const char where[] = "line 1, ";
  const char *error = NULL;
  zp_json *object = zp_json_parse_any(job->arena, line, len, &error);
  if (!object) {
    bool first = strncmp(error, where, sizeof where - 1) == 0;
    zp_diag *d = zp_bad_row(job, place, "no JSON: %s", first ? error + sizeof where - 1 : error);
    if (place.line == 1 && line[0] == '[') tell_of_array(d, place.path);
    return false;
  }
  bool ok = zp_json_is_object(object);
  if (!ok && place.line == 1 && line[0] == '[')
    tell_of_array(zp_bad_row(job, place, "no JSON object"), place.path);
  else if (!ok)
    zp_diag_help(zp_bad_row(job, place, "no JSON object"), "a line is {\"text\": \"...\", ...}");
  for (int i = 0; ok && i < columns->len; i++) cells[i] = cell_of(find(object, columns->data[i]));
  ok = ok && on_row(user, place, cells);
  zp_json_free(object);
  return ok;
}

bool zp_read_jsonl(zp_data_job *job, const char *path, const zp_strings *columns, zp_on_row *on_row, void *user) {
  static const char mark[] = "\xEF\xBB\xBF"; /* of UTF-8, where some programs begin a file */
  zp_cell *cells = ZP_NEW_ARRAY(job->arena, zp_cell, columns->len + 1);
  FILE *file = fopen(path, "rb");
  char *line = NULL;
  size_t room = 0;
  ssize_t n = -1;
  bool ok = file != NULL;
  zp_row_place place = {.path = path};
  for (; ok && (n = getline(&line, &room, file)) > 0;) {
    char *at = line, *end = line + n;
    int before = zp_diags_count(job->diags);
    if (place.line++ == 0 && n >= 3 && memcmp(line, mark, 3) == 0) at += 3;
    while (end > at && strchr(" \t\r\n", end[-1]) && end[-1]) end--;
    if (end == at) continue;
    job->rows.why = NULL;
    mend(at, end, &job->rows.mended);
    ok = read_line(job, place, at, (size_t)(end - at), columns, cells, on_row, user) || skip(job, before);
  }
  if (!file || (ok && ferror(file))) {
    zp_report(job->diags, ZP_Z0801, ZP_NO_SPAN, "cannot read %s: %s", path, strerror(errno));
    ok = false;
  }
  free(line);
  if (file) fclose(file);
  return ok;
}
