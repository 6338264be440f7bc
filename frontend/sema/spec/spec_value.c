/* SPDX-License-Identifier: Apache-2.0 */
/* Single values of attribute blocks: numbers with the right unit and range, strings, words. */
#include <math.h>
#include "spec_internal.h"
#include <zplan/buf.h>

bool zp_is_setting(const zp_reader *reader, zp_span span) {
  return span.file >= reader->settings_begin && span.file < reader->settings_end;
}

const char *zp_source_of(const zp_reader *reader, zp_span span) {
  size_t len;
  const char *text = zp_diags_source_text(reader->diags, span.file, &len);
  return zp_strndup(reader->arena, text + span.begin, span.end - span.begin);
}

/* What to write for a number of a dimension; NULL where a plain number is meant. */
static const char *unit_help(zp_dimension dimension) {
  switch (dimension) {
  case ZP_DIM_BYTES: return "write `32GB` (10^9 bytes) or `16GiB` (2^30 bytes)";
  case ZP_DIM_BYTES_PER_S: return "write `25GB/s` (gigabytes) or `200Gbps` (gigabits)";
  case ZP_DIM_SECONDS: return "write `5us`, `2ms` or `60s`";
  case ZP_DIM_FLOP_PER_S: return "write `125TFLOPS` or `100GFLOPS`";
  case ZP_DIM_WATTS: return "write `700W` or `1.3kW`";
  case ZP_DIM_PERCENT: return "write `92%`";
  case ZP_DIM_NONE: return NULL;
  }
  return NULL;
}

bool zp_in_range(double number, zp_range range) {
  switch (range) {
  case ZP_RANGE_ANY: return true;
  case ZP_RANGE_POSITIVE: return number > 0;
  case ZP_RANGE_NOT_NEGATIVE: return number >= 0;
  case ZP_RANGE_BELOW_ONE: return number >= 0 && number < 1;
  case ZP_RANGE_INSIDE: return number > 0 && number < 1;
  case ZP_RANGE_FRACTION: return number > 0 && number <= 1;
  case ZP_RANGE_ONE_OR_MORE: return number >= 1;
  case ZP_RANGE_LATENCY: return number >= 0 && number <= 1;
  }
  return false;
}

const char *zp_range_text(zp_range range) {
  switch (range) {
  case ZP_RANGE_ANY: return "any number";
  case ZP_RANGE_POSITIVE: return "greater than 0";
  case ZP_RANGE_NOT_NEGATIVE: return "0 or more";
  case ZP_RANGE_BELOW_ONE: return "at least 0 and below 1";
  case ZP_RANGE_INSIDE: return "above 0 and below 1";
  case ZP_RANGE_FRACTION: return "above 0 and at most 1 (100%)";
  case ZP_RANGE_ONE_OR_MORE: return "1 or more";
  case ZP_RANGE_LATENCY: return "0 or more and at most 1s";
  }
  return "";
}

static bool report_dimension(zp_reader *reader, const zp_value *value, const char *key, zp_dimension dimension) {
  zp_dimension found = value->dimension;
  const char *help = unit_help(dimension);
  if (found == ZP_DIM_NONE) {
    zp_diag *d = zp_report(reader->diags, ZP_Z0302, value->span, "`%s` needs a unit", key);
    zp_diag_label(d, "%s is expected here", zp_dimension_name(dimension));
    zp_diag_help(d, "%s", help);
    return false;
  }
  zp_diag *d = zp_report(reader->diags, ZP_Z0303, value->span, "`%s` is %s, not %s", key,
                         dimension == ZP_DIM_NONE ? "a number without unit" : zp_dimension_name(dimension),
                         zp_dimension_name(found));
  zp_diag_label(d, "%s", zp_dimension_name(found));
  const zp_field *field = reader->field && strcmp(reader->field->key, key) == 0 ? reader->field : NULL;
  if (help)
    zp_diag_help(d, "%s", help);
  else if (field && field->meaning && field->example)
    zp_diag_help(d, "%s: write `%s`", field->meaning, field->example);
  return false;
}

bool zp_check_number(zp_reader *reader, const zp_value *value, const char *key, zp_dimension dimension, zp_range range,
                     double *number) {
  if (value->kind != ZP_VAL_NUMBER) {
    zp_diag *d =
        zp_report(reader->diags, ZP_Z0304, value->span, "`%s` is a number, not %s", key, zp_value_kind_name(value));
    if (unit_help(dimension)) zp_diag_help(d, "%s", unit_help(dimension));
    return false;
  }
  /* A share may be written as a fraction. */
  bool fraction = dimension == ZP_DIM_PERCENT && value->dimension == ZP_DIM_NONE;
  if (value->dimension != dimension && !fraction) return report_dimension(reader, value, key, dimension);
  if (!zp_in_range(value->number, range)) {
    zp_diag *d = zp_report(reader->diags, ZP_Z0306, value->span, "`%s` must be %s", key, zp_range_text(range));
    if (fraction && value->number > 1) zp_diag_help(d, "for a percentage write `%g%%`", value->number);
    return false;
  }
  *number = value->number;
  return true;
}

bool zp_read_number(zp_reader *reader, const zp_env *env, const zp_expr *expr, const char *key, zp_dimension dimension,
                    zp_range range, double *number) {
  zp_value value = {0};
  if (!zp_eval(reader->arena, reader->diags, env->scope, expr, &value)) return false;
  return zp_check_number(reader, &value, key, dimension, range, number);
}

/* Whole numbers may be written 300e9. Above 2^53 a double no longer tells neighbours apart. */
bool zp_read_whole(zp_reader *reader, const zp_env *env, const zp_expr *expr, const char *key, zp_range range,
                   int64_t *number) {
  double real;
  if (!zp_read_number(reader, env, expr, key, ZP_DIM_NONE, range, &real)) return false;
  if (real != floor(real) || fabs(real) > 9007199254740992.0) {
    zp_report(reader->diags, ZP_Z0306, expr->span, "`%s` must be a whole number%s", key,
              real != floor(real) ? "" : " below 2^53");
    return false;
  }
  *number = (int64_t)real;
  return true;
}

/* A name that means nothing here is most likely a string without quotes. In --set the quotes may be left out, since
 * the shell would eat them. */
static bool bare_text(zp_reader *reader, const zp_env *env, const zp_expr *expr, const char *key, const char **text) {
  const char *written = zp_source_of(reader, expr->span);
  if (zp_is_setting(reader, expr->span)) {
    *text = written;
    return true;
  }
  const char *name = zp_dotted_name(reader->arena, expr);
  if (!name || zp_scope_get(env->scope, name)) return false;
  zp_diag *d = zp_report(reader->diags, ZP_Z0304, expr->span, "`%s` is a string", key);
  zp_diag_label(d, "needs quotes");
  zp_diag_help(d, "write `%s = \"%s\"`", key, written);
  return false;
}

bool zp_read_string(zp_reader *reader, const zp_env *env, const zp_expr *expr, const char *key, const char **text) {
  int before = zp_diags_errors(reader->diags);
  if (expr->kind != ZP_EXPR_STRING) {
    if (bare_text(reader, env, expr, key, text)) return true;
    if (zp_diags_errors(reader->diags) != before) return false;
  }
  zp_value value = {0};
  if (!zp_eval(reader->arena, reader->diags, env->scope, expr, &value)) return false;
  if (value.kind != ZP_VAL_STRING) {
    zp_report(reader->diags, ZP_Z0304, value.span, "`%s` is a string, not %s", key, zp_value_kind_name(&value));
    return false;
  }
  *text = value.text;
  return true;
}

static void report_word(zp_reader *reader, zp_span span, const char *key, const char *text, const zp_word *words) {
  zp_strings names = {0};
  zp_buf list = zp_buf_new(reader->arena);
  for (const zp_word *w = words; w->text; w++) {
    zp_push(reader->arena, &names, w->text);
    zp_buf_printf(&list, "%s\"%s\"", w == words ? "" : ", ", w->text);
  }
  zp_diag *d = zp_report(reader->diags, ZP_Z0308, span, "`%s` cannot be \"%s\"", key, text);
  if (!zp_help_foreign(d, text)) zp_diag_did_you_mean(d, text, names.data, names.len);
  zp_diag_note(d, "possible here: %s", list.data);
}

bool zp_read_word(zp_reader *reader, const zp_env *env, const zp_expr *expr, const char *key, const zp_word *words,
                  int *value) {
  const char *text, *bare = expr->kind == ZP_EXPR_NAME ? zp_dotted_name(reader->arena, expr) : NULL;
  bool known = !bare || zp_is_setting(reader, expr->span) || zp_scope_get(env->scope, bare) != NULL;
  for (const zp_word *w = words; w->text && !known; w++) known = strcmp(w->text, bare) == 0;
  if (!known) { /* with its quotes it would be wrong as well */
    report_word(reader, expr->span, key, bare, words);
    return false;
  }
  if (!zp_read_string(reader, env, expr, key, &text)) return false;
  for (const zp_word *w = words; w->text; w++)
    if (strcmp(w->text, text) == 0) {
      *value = w->value;
      return true;
    }
  report_word(reader, expr->span, key, text, words);
  return false;
}
