/* JSON lines: an object a line, of which some fields are read. Memory is that of the longest line. */
#include "make_data.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <zplan/json.h>

zp_diag *zp_bad_row(zp_run_state *run, zp_row_place place, const char *format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return zp_report(run->diags, ZP_Z0810, ZP_NO_SPAN, "%s:%lld: %s", place.path, (long long)place.line, text);
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

static bool read_line(zp_run_state *run, zp_row_place place, const char *line, size_t len, const zp_strings *columns,
                      zp_cell *cells, zp_on_row *on_row, void *user) {
  static const char where[] = "line 1, ";
  const char *error = NULL;
  zp_json *object = zp_json_parse(run->arena, line, len, &error);
  if (!object) {
    bool first = strncmp(error, where, sizeof where - 1) == 0;
    zp_bad_row(run, place, "no JSON: %s", first ? error + sizeof where - 1 : error);
    return false;
  }
  bool ok = zp_json_is_object(object);
  if (!ok) zp_diag_help(zp_bad_row(run, place, "no JSON object"), "a line is {\"text\": \"...\", ...}");
  for (int i = 0; ok && i < columns->len; i++) cells[i] = cell_of(find(object, columns->data[i]));
  ok = ok && on_row(user, place, cells);
  zp_json_free(object);
  return ok;
}

bool zp_read_jsonl(zp_run_state *run, const char *path, const zp_strings *columns, zp_on_row *on_row, void *user) {
  static const char mark[] = "\xEF\xBB\xBF"; /* of UTF-8, where some programs begin a file */
  zp_cell *cells = ZP_NEW_ARRAY(run->arena, zp_cell, columns->len + 1);
  FILE *file = fopen(path, "rb");
  char *line = NULL;
  size_t room = 0;
  ssize_t n = -1;
  bool ok = file != NULL;
  zp_row_place place = {.path = path};
  for (; ok && (n = getline(&line, &room, file)) > 0;) {
    const char *at = line, *end = line + n;
    if (place.line++ == 0 && n >= 3 && memcmp(line, mark, 3) == 0) at += 3;
    while (end > at && strchr(" \t\r\n", end[-1]) && end[-1]) end--;
    if (end > at) ok = read_line(run, place, at, (size_t)(end - at), columns, cells, on_row, user);
  }
  if (!file || (ok && ferror(file))) {
    zp_report(run->diags, ZP_Z0801, ZP_NO_SPAN, "cannot read %s: %s", path, strerror(errno));
    ok = false;
  }
  free(line);
  if (file) fclose(file);
  return ok;
}
