/* SPDX-License-Identifier: Apache-2.0 */
/* Tables: comma-separated values as in RFC 4180, or with tabs. The first line names the columns; a cell in quotes may
 * hold commas, line ends and doubled quotes. Memory is that of the longest row. */
#include "make_data_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct table {
  zp_data_job *job;
  FILE *file;
  zp_row_place place; /* of the row's first line */
  int64_t line;       /* being read, from 1 on */
  char separator;
  char *text; /* cells, each with a zero after it */
  size_t len, room;
  ZP_VEC(size_t) begins; /* in text */
  ZP_VEC(bool) quoted;
} table;

static void put(table *t, char c) {
  if (t->len == t->room) {
    t->room = t->room ? 2 * t->room : 4096;
    t->text = realloc(t->text, t->room);
    if (!t->text) abort();
  }
  t->text[t->len++] = c;
}

static int next(table *t) {
  int c = getc(t->file);
  if (c == '\n') t->line++;
  return c;
}

static bool refuse(table *t, const char *what) {
  zp_diag_help(zp_bad_row(t->job, t->place, "%s", what),
               "a cell that holds quotes stands in quotes, and they are doubled: \"so \"\"called\"\"\"");
  return false;
}

/* A cell after its opening quote. What follows the closing one; -2 after reporting. */
static int read_quoted(table *t) {
  for (int c = next(t);; c = next(t)) {
    if (c == EOF || c == 0) return refuse(t, c == EOF ? "a quote is not closed" : "it has a byte 0"), -2;
    if (c == '"' && (c = next(t)) != '"') return c;
    put(t, (char)c);
  }
}

/* *end: there is no row any more. */
static bool read_row(table *t, bool *end) {
  t->place.line = t->line;
  t->len = 0;
  t->begins.len = t->quoted.len = 0;
  int c = next(t);
  *end = c == EOF;
  while (!*end) {
    zp_push(t->job->arena, &t->begins, t->len);
    zp_push(t->job->arena, &t->quoted, c == '"');
    if (c == '"') {
      c = read_quoted(t);
      if (c == -2) return false;
      if (c == '\r') c = next(t);
      if (c != t->separator && c != '\n' && c != EOF) return refuse(t, "something follows a closing quote");
    }
    for (; c != t->separator && c != '\n' && c != EOF; c = next(t)) {
      if (c == '"' || c == 0) return refuse(t, c == 0 ? "it has a byte 0" : "a quote stands inside a cell");
      put(t, (char)c);
    }
    if (c != t->separator && t->len > t->begins.data[t->begins.len - 1] && t->text[t->len - 1] == '\r' &&
        !t->quoted.data[t->quoted.len - 1])
      t->len--;
    put(t, 0);
    if (c != t->separator) return true;
    c = next(t);
    if (c == EOF) { /* an empty cell ends the file */
      zp_push(t->job->arena, &t->begins, t->len);
      zp_push(t->job->arena, &t->quoted, false);
      put(t, 0);
      return true;
    }
  }
  return true;
}

static const char *cell_text(const table *t, int i) { return t->text + t->begins.data[i]; }

static bool is_blank(const char *text) { return text[strspn(text, " \t")] == 0; }

/* An empty line is no row. */
static bool is_empty(const table *t) { return t->begins.len == 1 && !t->quoted.data[0] && !cell_text(t, 0)[0]; }

/* Where the columns that are read stand; false after reporting. */
static bool find_columns(table *t, const zp_strings *columns, int *at) {
  zp_strings names = {0};
  for (int i = 0; i < t->begins.len; i++) {
    const char *name = cell_text(t, i);
    if (i == 0 && strncmp(name, "\xEF\xBB\xBF", 3) == 0) name += 3; /* the mark of UTF-8 */
    zp_push(t->job->arena, &names, zp_strdup(t->job->arena, name));
  }
  for (int k = 0; k < columns->len; k++) {
    at[k] = -1;
    for (int i = 0; i < names.len; i++) {
      if (strcmp(names.data[i], columns->data[k]) != 0) continue;
      if (at[k] >= 0) return zp_bad_row(t->job, t->place, "the column `%s` is there twice", columns->data[k]), false;
      at[k] = i;
    }
    if (at[k] >= 0) continue;
    zp_diag *d = zp_bad_row(t->job, t->place, "there is no column `%s`", columns->data[k]);
    if (!zp_diag_did_you_mean(d, columns->data[k], names.data, names.len))
      zp_diag_help(d, "the first line of a table names its columns");
    return false;
  }
  return true;
}

static bool read_rows(table *t, const zp_strings *columns, zp_on_row *on_row, void *user) {
  int *at = ZP_NEW_ARRAY(t->job->arena, int, columns->len + 1), named = 0;
  zp_cell *cells = ZP_NEW_ARRAY(t->job->arena, zp_cell, columns->len + 1);
  for (;;) {
    bool end;
    if (!read_row(t, &end)) return false;
    if (end && named == 0) return zp_bad_row(t->job, t->place, "the table is empty"), false;
    if (end) return true;
    if (is_empty(t)) continue;
    if (named == 0) {
      named = t->begins.len;
      if (!find_columns(t, columns, at)) return false;
      continue;
    }
    if (t->begins.len != named)
      return zp_bad_row(t->job, t->place, "%d cells, the first line names %d", t->begins.len, named), false;
    for (int k = 0; k < columns->len; k++) {
      const char *text = cell_text(t, at[k]);
      bool blank = !t->quoted.data[at[k]] && is_blank(text);
      cells[k] = (zp_cell){.kind = blank ? ZP_CELL_EMPTY : ZP_CELL_TEXT, .text = text};
    }
    if (!on_row(user, t->place, cells)) return false;
  }
}

bool zp_read_table(zp_data_job *job, const char *path, const zp_strings *columns, zp_on_row *on_row, void *user) {
  size_t len = strlen(path);
  bool tabs = len > 4 && strcmp(path + len - 4, ".tsv") == 0;
  table t = {.job = job, .place = {.path = path}, .line = 1, .separator = tabs ? '\t' : ','};
  t.file = fopen(path, "rb");
  bool ok = t.file && (getc(t.file), !ferror(t.file)); /* of a folder the first byte cannot be read */
  if (ok) {
    rewind(t.file);
    ok = read_rows(&t, columns, on_row, user);
  }
  if (!t.file || ferror(t.file)) {
    zp_report(job->diags, ZP_Z0801, ZP_NO_SPAN, "cannot read %s: %s", path, strerror(errno));
    ok = false;
  }
  free(t.text);
  if (t.file) fclose(t.file);
  return ok;
}
