/* SPDX-License-Identifier: Apache-2.0 */
/* Columns of rows as arrays: --numbers NAME=A,B,C is NAME.npy, f4 [rows, 3]; --labels NAME=D is NAME.npy, i4 [rows]:
 * whole numbers as they are, -1 for none, or names, which are numbered in the order of their bytes and listed in
 * NAME.classes.txt. */
#include "make_data_internal.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_NAMES = 4096, LONGEST_NAME = 64 };

typedef struct class_name {
  const char *text;
  int32_t seen; /* how many names came before it */
} class_name;

typedef struct column_array {
  const char *name;
  bool labels;
  int first, count; /* of the columns that are read */
  ZP_VEC(float) numbers;
  zp_ids ids;               /* labels; of names `seen` until they are written */
  ZP_VEC(class_name) names; /* sorted */
  bool has_numbers;         /* a label that is no name was there */
} column_array;

struct zp_columns {
  zp_data_job *job;
  const zp_strings *columns; /* all that are read */
  ZP_VEC(column_array) arrays;
  int64_t rows;
};

/* ---- what is asked for ---- */

static bool is_name(const char *text, size_t len) {
  if (len == 0 || len > LONGEST_NAME || isdigit((unsigned char)text[0])) return false;
  for (size_t i = 0; i < len; i++)
    if (!isalnum((unsigned char)text[i]) && text[i] != '_') return false;
  return true;
}

static bool is_taken(const zp_columns *c, const char *name) {
  bool texts = c->job->field != NULL;
  if (texts && (strcmp(name, "tokens") == 0 || strcmp(name, "lengths") == 0)) return true;
  for (int i = 0; i < c->arrays.len; i++)
    if (strcmp(c->arrays.data[i].name, name) == 0) return true;
  return false;
}

/* NAME=A,B,C */
static bool add_array(zp_columns *c, const char *option, const char *value, bool labels, zp_strings *columns) {
  zp_arena *arena = c->job->arena;
  const char *equals = strchr(value, '=');
  column_array a = {.labels = labels, .first = columns->len};
  if (!equals || !is_name(value, (size_t)(equals - value)))
    return zp_data_usage(c->job, "%s wants NAME=COLUMN, NAME as the model's input, not `%s`", option, value), false;
  a.name = zp_strndup(arena, value, (size_t)(equals - value));
  if (is_taken(c, a.name)) return zp_data_usage(c->job, "two arrays are called `%s`", a.name), false;
  for (const char *at = equals + 1;; a.count++) {
    size_t len = strcspn(at, ",");
    if (len == 0)
      return zp_data_usage(c->job, "%s wants the name of a column after `=` and `,`: `%s`", option, value), false;
    zp_push(arena, columns, zp_strndup(arena, at, len));
    at += len;
    if (!*at++) break;
  }
  a.count++;
  if (labels && a.count > 1) return zp_data_usage(c->job, "--labels is of one column, not `%s`", value), false;
  zp_push(arena, &c->arrays, a);
  return true;
}

zp_columns *zp_columns_open(zp_data_job *job, zp_strings *columns) {
  const zp_data_job *o = job;
  zp_columns *c = ZP_NEW(job->arena, zp_columns);
  *c = (zp_columns){.job = job, .columns = columns};
  for (int i = 0; i < o->numbers.len; i++)
    if (!add_array(c, "--numbers", o->numbers.data[i], false, columns)) return NULL;
  for (int i = 0; i < o->labels.len; i++)
    if (!add_array(c, "--labels", o->labels.data[i], true, columns)) return NULL;
  return c;
}

/* ---- rows ---- */

/* Is the text a number in decimal digits, but for spaces around it? */
static bool number_of(const char *text, double *number) {
  char *end;
  text += strspn(text, " \t");
  size_t digits = strspn(text, "0123456789+-.eE");
  *number = strtod(text, &end);
  return digits > 0 && end == text + digits && end[strspn(end, " \t")] == 0;
}

static bool is_there(zp_columns *c, zp_row_place place, const char *column, const zp_cell *cell) {
  if (cell->kind == ZP_CELL_TEXT || cell->kind == ZP_CELL_NUMBER) return true;
  if (cell->kind == ZP_CELL_MISSING)
    zp_bad_row(c->job, place, "there is no field `%s`", column);
  else
    zp_bad_row(c->job, place, cell->kind == ZP_CELL_EMPTY ? "`%s` is empty" : "`%s` is a list or an object", column);
  return false;
}

static bool add_number(zp_columns *c, column_array *a, zp_row_place place, const char *column, const zp_cell *cell) {
  double number = cell->number;
  if (cell->kind == ZP_CELL_TEXT && !number_of(cell->text, &number))
    return zp_bad_row(c->job, place, "`%s` is no number: %.60s", column, cell->text), false;
  if (!isfinite((float)number))
    return zp_bad_row(c->job, place, "`%s` is %g, beyond what 32 bits hold", column, number), false;
  zp_push(c->job->arena, &a->numbers, (float)number);
  return true;
}

static bool check_class(zp_columns *c, zp_row_place place, const char *column, double label) {
  int64_t classes = c->job->classes;
  if (label != floor(label))
    zp_bad_row(c->job, place, "`%s` is %g, and a label is a whole number or a name", column, label);
  else if (label < -1 || label > INT32_MAX || (classes > 0 && label >= (double)classes))
    zp_diag_help(zp_bad_row(c->job, place, "label %.0f of `%s` is out of range", label, column),
                 "labels go from 0 to %lld, -1 is none", classes > 0 ? (long long)classes - 1 : (long long)INT32_MAX);
  else
    return true;
  return false;
}

/* Where the name stands, or would. */
static int find_name(const column_array *a, const char *text, bool *there) {
  int low = 0, high = a->names.len;
  while (low < high) {
    int middle = (low + high) / 2, order = strcmp(text, a->names.data[middle].text);
    if (order == 0) return *there = true, middle;
    if (order < 0)
      high = middle;
    else
      low = middle + 1;
  }
  return *there = false, low;
}

static bool add_class_name(zp_columns *c, column_array *a, zp_row_place place, const char *column, const char *text) {
  int64_t classes = c->job->classes, most = classes > 0 && classes < MOST_NAMES ? classes : MOST_NAMES;
  bool there;
  int at = find_name(a, text, &there);
  if (!there) {
    class_name name = {zp_strdup(c->job->arena, text), a->names.len};
    if (a->names.len >= most || strchr(text, '\n')) {
      zp_diag *d = zp_bad_row(c->job, place, "`%s` is \"%.60s\", which is no class", column, text);
      zp_diag_help(d, "a column of labels has at most %lld names, each of one line", (long long)most);
      return false;
    }
    zp_push(c->job->arena, &a->names, name);
    for (int i = a->names.len - 1; i > at; i--) a->names.data[i] = a->names.data[i - 1];
    a->names.data[at] = name;
  }
  zp_push(c->job->arena, &a->ids, a->names.data[at].seen);
  return true;
}

static bool add_label(zp_columns *c, column_array *a, zp_row_place place, const char *column, const zp_cell *cell) {
  double label = cell->number;
  bool number = cell->kind == ZP_CELL_NUMBER || number_of(cell->text, &label);
  if (number ? a->names.len > 0 : a->has_numbers) {
    zp_bad_row(c->job, place, "`%s` is %s here, and %s before", column, number ? "a number" : "a name",
               number ? "names" : "numbers");
    return false;
  }
  if (!number) return add_class_name(c, a, place, column, cell->text);
  if (!check_class(c, place, column, label)) return false;
  a->has_numbers = true;
  zp_push(c->job->arena, &a->ids, (int32_t)label);
  return true;
}

bool zp_columns_add(zp_columns *c, zp_row_place place, const zp_cell *cells) {
  for (int i = 0; i < c->arrays.len; i++) {
    column_array *a = &c->arrays.data[i];
    if ((c->rows + 1) * a->count > INT32_MAX)
      return zp_bad_row(c->job, place, "more numbers than one array takes here (2147483647)"), false;
    for (int k = a->first; k < a->first + a->count; k++) {
      const char *column = c->columns->data[k];
      if (!is_there(c, place, column, &cells[k])) return false;
      if (!(a->labels ? add_label : add_number)(c, a, place, column, &cells[k])) return false;
    }
  }
  c->rows++;
  return true;
}

/* ---- arrays ---- */

/* Names get their numbers in the order of their bytes. */
static bool write_names(zp_columns *c, column_array *a, zp_out_folder *out) {
  zp_buf list = zp_buf_new(c->job->arena);
  int32_t *number = ZP_NEW_ARRAY(c->job->arena, int32_t, a->names.len);
  for (int i = 0; i < a->names.len; i++) {
    number[a->names.data[i].seen] = i;
    zp_buf_printf(&list, "%s\n", a->names.data[i].text);
  }
  for (int i = 0; i < a->ids.len; i++) a->ids.data[i] = number[a->ids.data[i]];
  return zp_out_file(out, zp_format(c->job->arena, "%s.classes.txt", a->name), list.data, list.len);
}

bool zp_columns_write(zp_columns *c, zp_out_folder *out) {
  for (int i = 0; i < c->arrays.len; i++) {
    column_array *a = &c->arrays.data[i];
    if (a->names.len > 0 && !write_names(c, a, out)) return false;
    bool good = a->labels ? zp_npy_write(out, a->name, "i4", c->rows, 0, a->ids.data)
                          : zp_npy_write(out, a->name, "f4", c->rows, a->count, a->numbers.data);
    if (!good) return false;
  }
  return true;
}

void zp_columns_tell(const zp_columns *c) {
  for (int i = 0; i < c->arrays.len; i++) {
    const column_array *a = &c->arrays.data[i];
    if (!a->labels)
      zp_say_lines(stdout, "  %s: %d number%s a row\n", a->name, a->count, a->count == 1 ? "" : "s");
    else if (a->names.len > 0)
      zp_say_lines(stdout, "  %s: a label a row, %d names (%s.classes.txt)\n", a->name, a->names.len, a->name);
    else
      zp_say_lines(stdout, "  %s: a label a row\n", a->name);
  }
}
