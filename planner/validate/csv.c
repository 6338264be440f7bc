/* SPDX-License-Identifier: Apache-2.0 */
/* Comma-separated values as in RFC 4180: fields may be quoted, quotes inside are doubled, quoted fields may hold commas
 * and line ends. A record that breaks these rules is named, not guessed. */
#include <zplan/buf.h>
#include "validate_internal.h"

static bool at_end_of_record(const zp_csv *csv) {
  return csv->at >= csv->len || csv->text[csv->at] == '\n' || csv->text[csv->at] == '\r';
}

static void skip_line_end(zp_csv *csv) {
  if (csv->at < csv->len && csv->text[csv->at] == '\r') csv->at++;
  if (csv->at < csv->len && csv->text[csv->at] == '\n') csv->at++;
  csv->line++;
}

static const char *quoted_field(zp_arena *arena, zp_csv *csv) {
  zp_buf field = zp_buf_new(arena);
  zp_buf_puts(&field, "");
  for (csv->at++; csv->at < csv->len; csv->at++) {
    char c = csv->text[csv->at];
    if (c == '\n') csv->line++;
    if (c == '"' && (csv->at + 1 >= csv->len || csv->text[csv->at + 1] != '"')) {
      csv->at++;
      return field.data;
    }
    if (c == '"') csv->at++;
    zp_buf_put(&field, &c, 1);
  }
  csv->wrong = "a quote is not closed";
  return field.data;
}

static const char *plain_field(zp_arena *arena, zp_csv *csv) {
  size_t begin = csv->at;
  while (!at_end_of_record(csv) && csv->text[csv->at] != ',') csv->at++;
  return zp_strndup(arena, csv->text + begin, csv->at - begin);
}

bool zp_csv_next(zp_arena *arena, zp_csv *csv, zp_strings *fields, int *line) {
  fields->len = 0;
  while (csv->at < csv->len && at_end_of_record(csv)) skip_line_end(csv); /* empty lines */
  if (csv->at >= csv->len) return false;
  *line = csv->line;
  csv->wrong = NULL;
  size_t begin = csv->at;
  for (;;) {
    const char *field =
        csv->at < csv->len && csv->text[csv->at] == '"' ? quoted_field(arena, csv) : plain_field(arena, csv);
    for (; !at_end_of_record(csv) && csv->text[csv->at] != ','; csv->at++)
      if (!csv->wrong) csv->wrong = "text follows a closing quote";
    zp_push(arena, fields, field);
    if (at_end_of_record(csv)) break;
    csv->at++;
  }
  if (memchr(csv->text + begin, '\0', csv->at - begin)) csv->wrong = "a byte is zero: this is no text";
  if (csv->at < csv->len) skip_line_end(csv);
  return true;
}
