/* SPDX-License-Identifier: Apache-2.0 */
/* Configurations of other programs: values by path, and what the program's keys mean. */
#include "config.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <strings.h>

enum { MOST_DEPTH = 6 };

/* ---- keys ---- */

static int find_row(const config *d, const char *path) {
  const char *section = zp_format(d->l->arena, "%s.", path);
  for (int i = 0; i < d->n_rows; i++)
    if (launch_among(d->rows[i].names, path) || launch_among(d->rows[i].names, section)) return i;
  return -1;
}

/* Are there keys below it in the table? */
static bool is_section(const config *d, const char *path) {
  const char *begin = zp_format(d->l->arena, "%s.", path);
  for (int i = 0; i < d->n_rows; i++)
    for (const char *at = d->rows[i].names; (at = strstr(at, begin)) != NULL; at++)
      if ((at == d->rows[i].names || at[-1] == ' ') && isalnum((unsigned char)at[strlen(begin)])) return true;
  return false;
}

static const char *closest(const config *d, const char *path) {
  zp_strings names = {0};
  for (int i = 0; i < d->n_rows; i++)
    for (const char *at = d->rows[i].names; *at; at += strspn(at, " ")) {
      size_t n = strcspn(at, " ");
      zp_push(d->l->arena, &names, zp_strndup(d->l->arena, at, at[n - 1] == '.' ? n - 1 : n));
      at += n;
    }
  return zp_closest(path, names.data, names.len);
}

zp_span config_at(const config *d, const char *path) {
  const char *dot = strrchr(path, '.');
  const char *quoted = zp_format(d->l->arena, d->quoted ? "\"%s\"" : "%s", dot ? dot + 1 : path);
  const char *found = strstr(d->text, quoted);
  if (!found) return ZP_NO_SPAN;
  uint32_t begin = (uint32_t)(found - d->text);
  return (zp_span){d->file, begin, begin + (uint32_t)strlen(quoted)};
}

/* Does the program do the same without it? */
static bool is_off(const zp_json *value) {
  return (zp_json_is_bool(value) && !zp_json_bool(value)) || zp_json_is_null(value) ||
         (zp_json_is_object(value) && zp_json_get(value, "enabled") && !zp_json_get_bool(value, "enabled", true));
}

/* row: of the table, -1: it has none. */
static void look_at(config *d, const char *path, const zp_json *value, int row) {
  launch *l = d->l;
  if (row < 0) {
    const char *near = closest(d, path);
    zp_diag *diag = launch_complain(l, config_at(d, path), "`%s` is no key of %s", path, d->what);
    if (near) zp_diag_help(diag, "did you mean `%s`?", near);
    return;
  }
  if (is_off(value) || (zp_json_is_int(value) && zp_json_int(value, 0) <= 1 && d->rows[row].meaning == KEY_REFUSED))
    return;
  const char *shown = zp_json_text(l->arena, value, false);
  if (strlen(shown) > 60) shown = "{...}";
  if (d->rows[row].meaning == KEY_NAMED) launch_note(l, "`%s` (%s) is not planned: %s", path, shown, d->rows[row].text);
  if (d->rows[row].meaning == KEY_REFUSED)
    launch_refuse(l, config_at(d, path), "`%s` (%s): %s", path, shown, d->rows[row].text);
}

/* All keys of an object, whose own path is "" or ends with a dot. A dot or a blank in a key is none of a path. */
static void look_into(config *d, const char *section, const zp_json *object, int depth) {
  const char *key;
  for (int i = 0; (key = zp_json_key(object, i)) != NULL; i++) {
    const char *path = zp_format(d->l->arena, "%s%s", section, key);
    const zp_json *value = zp_json_get(object, key);
    if (zp_json_is_object(value) && is_section(d, path) && depth < MOST_DEPTH)
      look_into(d, zp_format(d->l->arena, "%s.", path), value, depth + 1);
    else
      look_at(d, path, value, strpbrk(key, ". ") ? -1 : find_row(d, path));
  }
}

void config_look(config *d) { look_into(d, "", d->root, 0); }

/* ---- values ---- */

const zp_json *config_value(const config *d, const char *path) {
  const zp_json *value = d->root;
  while (value && *path) {
    size_t n = strcspn(path, ".");
    value = zp_json_is_object(value) ? zp_json_get(value, zp_strndup(d->l->arena, path, n)) : NULL;
    path += n + (path[n] == '.');
  }
  if (!value || zp_json_is_null(value) || strcmp(zp_json_string(value, ""), "auto") == 0) return NULL;
  return value;
}

bool config_has(const config *d, const char *path) { return config_value(d, path) != NULL; }

int64_t config_int(config *d, const char *path, int64_t missing, int64_t least, int64_t most) {
  const zp_json *value = config_value(d, path);
  if (!value) return missing;
  double real = zp_json_real(value, -1e18);
  int64_t whole = zp_json_is_int(value)           ? zp_json_int(value, 0)
                  : real >= -1e15 && real <= 1e15 ? (int64_t)real
                                                  : INT64_MIN;
  if (whole >= least && whole <= most && (zp_json_is_int(value) || (double)whole == real)) return whole;
  launch_complain(d->l, config_at(d, path), "`%s` is %s, no whole number from %lld to %lld", path,
                  zp_json_text(d->l->arena, value, false), (long long)least, (long long)most);
  return missing;
}

double config_real(config *d, const char *path, double missing, double least, double most) {
  const zp_json *value = config_value(d, path);
  if (!value) return missing;
  double real = zp_json_real(value, -1e300);
  if (real >= least && real <= most) return real;
  launch_complain(d->l, config_at(d, path), "`%s` is %s, no number from %g to %g", path,
                  zp_json_text(d->l->arena, value, false), least, most);
  return missing;
}

bool config_bool(config *d, const char *path, bool missing) {
  const zp_json *value = config_value(d, path);
  if (!value) return missing;
  if (zp_json_is_bool(value)) return zp_json_bool(value);
  launch_complain(d->l, config_at(d, path), "`%s` is %s, neither true nor false", path,
                  zp_json_text(d->l->arena, value, false));
  return missing;
}

const char *config_text(config *d, const char *path, const char *missing) {
  const zp_json *value = config_value(d, path);
  if (!value) return missing;
  const char *text = zp_json_string(value, NULL);
  if (text) return zp_strdup(d->l->arena, text);
  launch_complain(d->l, config_at(d, path), "`%s` is %s, no text", path, zp_json_text(d->l->arena, value, false));
  return missing;
}

const char *config_from(const config *d, const char *path) {
  const zp_json *value = config_value(d, path);
  return value ? zp_format(d->l->arena, "%s %s", path, zp_json_text(d->l->arena, value, false))
               : zp_format(d->l->arena, "%s, by default", path);
}

void config_set(config *d, const char *path, const char *value) {
  zp_arena *arena = d->l->arena;
  zp_json *object = d->root;
  for (const char *c = path; *c; c++)
    if (!isascii((unsigned char)*c)) { /* maybe no UTF-8, which no JSON object has as a key */
      launch_complain(d->l, ZP_NO_SPAN, "`%s` is no key of %s", path, d->what);
      return;
    }
  for (size_t n; (n = strcspn(path, ".")) > 0 && path[n] == '.'; path += n + 1) {
    const char *key = zp_strndup(arena, path, n);
    const zp_json *inner = zp_json_get(object, key);
    object = zp_json_is_object(inner) ? (zp_json *)(uintptr_t)inner : zp_json_set(object, key, zp_json_object());
  }
  char *end = NULL;
  long long whole = strtoll(value, &end, 10);
  if (*value && !*end) {
    zp_json_set_int(object, path, whole);
    return;
  }
  double real = strtod(value, &end);
  if (*value && !*end && isfinite(real))
    zp_json_set_real(object, path, real);
  else if (strcasecmp(value, "true") == 0 || strcasecmp(value, "false") == 0)
    zp_json_set_bool(object, path, tolower((unsigned char)*value) == 't');
  else
    zp_json_set_string(object, path, value);
}
