/* SPDX-License-Identifier: Apache-2.0 */
/* Literals: numbers with units, strings, and what the scanner says about text that is no token. */
#include "literal.h"

#include <zplan/shown.h>

#include <stdlib.h>

/* Every unit a number may carry. What each is worth is the business of sema. */
static const char *const units[] = {
    "%",      "B",      "kB",     "KB",     "MB",     "GB",      "TB",      "PB",      "KiB",     "MiB",
    "GiB",    "TiB",    "PiB",    "B/s",    "kB/s",   "KB/s",    "MB/s",    "GB/s",    "TB/s",    "PB/s",
    "KiB/s",  "MiB/s",  "GiB/s",  "TiB/s",  "bps",    "kbps",    "Mbps",    "Gbps",    "Tbps",    "FLOPS",
    "MFLOPS", "GFLOPS", "TFLOPS", "PFLOPS", "FLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s", "ns",
    "us",     "ms",     "s",      "min",    "h",      "d",       "W",       "kW",      "MW",
};
enum { UNITS = sizeof units / sizeof *units };
static const char unit_list[] =
    "units are B kB MB GB TB PB and KiB MiB GiB TiB PiB (each also with /s), kbps Mbps Gbps "
    "Tbps, MFLOPS GFLOPS TFLOPS PFLOPS, ns us ms s min h d, W kW MW, and %";

/* Scanner messages stop at the limit too: a binary file would give thousands. */
static zp_diag *report(zp_scan *scan, zp_span span, const char *message) {
  scan->reported = span.begin;
  if (scan->errors++ >= ZP_MAX_SYNTAX_ERRORS) return NULL;
  return zp_report(scan->diags, ZP_Z0102, span, "%s", message);
}

static const char *find_unit(const char *text, size_t len) {
  for (int i = 0; i < UNITS; i++)
    if (strlen(units[i]) == len && memcmp(units[i], text, len) == 0) return units[i];
  return NULL;
}

/* "Gb", "Gbit", "GBps": bits are written Gbps here, and no near word is meant. */
static bool is_bits(const char *unit) {
  size_t prefix = strcspn(unit, "b");
  return prefix <= 1 && unit[prefix] == 'b' && (prefix == 0 || strchr("kKMGT", unit[0])) &&
         (!unit[prefix + 1] || strcmp(unit + prefix, "bit") == 0 || strcmp(unit + prefix, "bits") == 0);
}

/* 1T, 300M: a count with a letter. */
static bool is_count(const char *unit) { return strlen(unit) == 1 && strchr("kKMGT", unit[0]) != NULL; }

static void report_unit(zp_scan *scan, zp_span span, const char *unit) {
  zp_diag *diag = report(scan, span, zp_format(scan->arena, "unknown unit `%s`", unit));
  if (!diag) return;
  if (unit[0] == '_')
    zp_diag_help(diag, "digits are not grouped: write 300000, or 3e5");
  else if (is_bits(unit))
    zp_diag_help(diag, "bits a second are `%.*sbps`, bytes a second `%.*sB/s`, eight times as much",
                 (int)strcspn(unit, "b"), unit, (int)strcspn(unit, "b"), unit);
  else if (is_count(unit))
    zp_diag_help(diag, "a count has an exponent: 12e6, 300e9, 1e12; memory is written `%sB`, rates `%sFLOPS`", unit,
                 *unit == 'k' || *unit == 'K' ? "M" : unit);
  else
    zp_diag_did_you_mean(diag, unit, units, UNITS);
  zp_diag_note(diag, "%s", unit_list);
}

/* Digits, fraction and exponent at the start of `text`. Stops before an `e` that is part of a word. */
static size_t number_len(const char *text, size_t len, bool *is_integer) {
  size_t i = 0;
  *is_integer = true;
  while (i < len && text[i] >= '0' && text[i] <= '9') i++;
  if (i + 1 < len && text[i] == '.' && text[i + 1] >= '0' && text[i + 1] <= '9') {
    *is_integer = false;
    i++;
    while (i < len && text[i] >= '0' && text[i] <= '9') i++;
  }
  size_t e = i + 1;
  if (i < len && (text[i] == 'e' || text[i] == 'E')) {
    if (e < len && (text[e] == '+' || text[e] == '-')) e++;
    size_t digits = e;
    while (e < len && text[e] >= '0' && text[e] <= '9') e++;
    if (e > digits) {
      *is_integer = false;
      i = e;
    }
  }
  return i;
}

/* strtod would follow the locale's decimal point; the compiler never sets one, so the point is a point. */
static double number_value(zp_scan *scan, zp_span span, const char *text, size_t len) {
  zp_arena_mark mark = zp_arena_get_mark(scan->arena);
  double value = strtod(zp_strndup(scan->arena, text, len), NULL);
  zp_arena_rewind(scan->arena, mark);
  if (value <= 1.7976931348623157e308) return value;
  report(scan, span, "this number is too large for a 64-bit float");
  return 0;
}

size_t zp_scan_number(zp_scan *scan, zp_span span, const char *text, size_t len, zp_literal *literal) {
  *literal = (zp_literal){0};
  size_t digits = number_len(text, len, &literal->is_integer);
  literal->number = number_value(scan, span, text, digits);
  if (digits == len) return len;
  const char *suffix = text + digits, *slash = memchr(suffix, '/', len - digits);
  literal->unit = find_unit(suffix, len - digits);
  if (literal->unit) return len;
  if (slash) len = (size_t)(slash - text);
  literal->unit = find_unit(suffix, len - digits);
  if (literal->unit) return len;
  zp_span unit = {span.file, span.begin + (uint32_t)digits, span.begin + (uint32_t)len};
  report_unit(scan, unit, zp_strndup(scan->arena, suffix, len - digits));
  return len;
}

const char *zp_scan_string(zp_scan *scan, zp_span span, const char *text, size_t len) {
  char *out = zp_alloc(scan->arena, len + 1);
  size_t used = 0;
  for (size_t i = 0; i < len; i++) {
    char c = text[i];
    zp_span here = {span.file, span.begin + 1 + (uint32_t)i, span.begin + 2 + (uint32_t)i};
    if (c == '\\') {
      c = text[++i];
      here.end++;
      if (c == 'n')
        c = '\n';
      else if (c == 't')
        c = '\t';
      else if (c != '"' && c != '\\') {
        zp_diag *diag = report(scan, here, "unknown escape in a string");
        if (diag) zp_diag_help(diag, "the escapes are \\n \\t \\\" and \\\\");
      }
    }
    out[used++] = c;
  }
  return out;
}

void zp_scan_unclosed_string(zp_scan *scan, zp_span span) {
  zp_diag *diag = report(scan, span, "unterminated string");
  if (!diag) return;
  zp_diag_label(diag, "the closing `\"` is missing");
  zp_diag_note(diag, "a string ends on the line where it begins");
}

void zp_scan_quote(zp_scan *scan, zp_span span) {
  zp_diag *diag = report(scan, span, "strings are written with double quotes");
  if (diag) zp_diag_help(diag, "write \"...\" instead of '...'");
}

void zp_scan_foreign(zp_scan *scan, zp_span span, const char *found, const char *meant) {
  if (scan->errors++ >= ZP_MAX_SYNTAX_ERRORS) return;
  zp_diag *diag = zp_report(scan->diags, ZP_Z0101, span, "`%s` is no operator", found);
  zp_diag_help(diag, "did you mean `%s`?", meant);
}

void zp_scan_foreign_comment(zp_scan *scan, zp_span span) {
  zp_span slashes = {span.file, span.begin, span.begin + 2};
  bool is_block = zp_diags_source_text(scan->diags, span.file, NULL)[span.begin + 1] == '*';
  zp_diag *diag = report(scan, slashes, is_block ? "`/*` does not start a comment" : "`//` does not start a comment");
  if (diag) zp_diag_help(diag, "comments start with `#`");
}

void zp_scan_semicolon(zp_scan *scan, zp_span span) {
  zp_diag *diag = report(scan, span, "`;` is not used");
  if (diag) zp_diag_help(diag, "statements need no separator: remove it");
}

void zp_scan_bad_bytes(zp_scan *scan, zp_span span) {
  const char *text = zp_diags_source_text(scan->diags, span.file, NULL);
  const unsigned char *bytes = (const unsigned char *)text + span.begin;
  size_t len = span.end - span.begin;
  if (zp_character_length(bytes, len) == 0) return; /* zp_scan_check_text has said so */
  const char *message;
  if (len >= 3 && bytes[0] == 0xe2 && bytes[1] == 0x80 && (bytes[2] == 0x9c || bytes[2] == 0x9d))
    message = "typographic quotes do not start a string";
  else if (*bytes < 0x20 || *bytes == 0x7f)
    message = zp_format(scan->arena, "unexpected byte 0x%02x", *bytes);
  else if (*bytes >= 0x80)
    message = "unexpected character: only strings and comments may hold more than ASCII";
  else
    message = zp_format(scan->arena, "unexpected character `%c`", *bytes);
  zp_diag *diag = report(scan, span, message);
  if (diag && len >= 3 && bytes[0] == 0xe2) zp_diag_help(diag, "the quotes of a string are \"...\"");
}

bool zp_scan_check_text(zp_scan *scan) {
  size_t len;
  const unsigned char *text = (const unsigned char *)zp_diags_source_text(scan->diags, scan->source, &len);
  const unsigned char *zero = memchr(text, 0, len);
  if (zero) {
    zp_span span = {scan->source, (uint32_t)(zero - text), (uint32_t)(zero - text) + 1};
    report(scan, span, "this is not a text file: it holds a zero byte");
    return false;
  }
  for (size_t i = 0; i < len;) {
    size_t size = zp_character_length(text + i, len - i);
    if (size == 0) {
      zp_span span = {scan->source, (uint32_t)i, (uint32_t)i + 1};
      zp_diag *diag = report(scan, span, zp_format(scan->arena, "byte 0x%02x is not valid UTF-8", text[i]));
      if (diag) zp_diag_help(diag, "save the file as UTF-8");
      return true;
    }
    i += size;
  }
  return true;
}
