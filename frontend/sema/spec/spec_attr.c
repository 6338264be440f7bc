/* SPDX-License-Identifier: Apache-2.0 */
/* Attribute blocks and calls, read by table (spec_internal.h, zp_field). */
#include <math.h>
#include "spec_internal.h"
#include <zplan/buf.h>

const zp_attr *zp_find_attr(const zp_attrs *attrs, const char *key) {
  for (int i = 0; i < attrs->len; i++)
    if (strcmp(attrs->data[i]->key.text, key) == 0) return attrs->data[i];
  return NULL;
}

const zp_field *zp_find_field(const zp_schema *schema, const char *key) {
  for (int i = 0; i < schema->count; i++)
    if (strcmp(schema->fields[i].key, key) == 0) return &schema->fields[i];
  return NULL;
}

/* Keys to offer: those that can be used, not the refused and foreign ones. */
static void field_names(zp_reader *reader, const zp_schema *schema, zp_strings *names) {
  for (int i = 0; i < schema->count; i++) {
    zp_field_kind kind = schema->fields[i].kind;
    if (kind != ZP_FIELD_REFUSED && kind != ZP_FIELD_FOREIGN) zp_push(reader->arena, names, schema->fields[i].key);
  }
}

/* A key of another block, or another tool's word for one; false: neither. */
static bool help_elsewhere(zp_diag *d, const char *key) {
  const zp_schema *others[] = {&zp_plan_schema, &zp_train_schema};
  for (int i = 0; i < 2; i++) {
    const zp_field *field = zp_find_field(others[i], key);
    if (!field) continue;
    if (field->kind == ZP_FIELD_FOREIGN || field->kind == ZP_FIELD_REFUSED)
      zp_diag_help(d, "%s, in `%s` blocks", field->note, others[i]->name);
    else
      zp_diag_help(d, "`%s` is a key of `%s` blocks", key, others[i]->name);
    return true;
  }
  return false;
}

void zp_report_unknown_attr(zp_reader *reader, const zp_schema *const *schemas, int n_schemas, const zp_attr *attr,
                            const char *where) {
  zp_strings names = {0};
  for (int i = 0; i < n_schemas; i++) field_names(reader, schemas[i], &names);
  zp_diag *d =
      zp_report(reader->diags, ZP_Z0301, attr->key.span, "unknown attribute `%s` in %s", attr->key.text, where);
  if (zp_help_foreign(d, attr->key.text) || zp_diag_did_you_mean(d, attr->key.text, names.data, names.len)) return;
  if (help_elsewhere(d, attr->key.text)) return;
  zp_buf list = zp_buf_new(reader->arena);
  for (int i = 0; i < names.len; i++) zp_buf_printf(&list, "%s`%s`", i ? ", " : "", names.data[i]);
  zp_diag_note(d, "possible here: %s", list.data);
}

/* Values beyond `low` and `high` are slips of a unit or of an exponent: no part of a machine has them. The ranks of the
 * largest node have less than 2^63 bytes together; over nodes none are summed. 0 is the range's business. */
static const struct {
  zp_dimension dimension;
  zp_range range; /* unless the field has its own */
  double low, high;
  const char *limits;
} number_kinds[] = {
    [ZP_FIELD_BYTES] = {ZP_DIM_BYTES, ZP_RANGE_NOT_NEGATIVE, 0, 4e14, "at most 400 TB"},
    [ZP_FIELD_RATE] = {ZP_DIM_BYTES_PER_S, ZP_RANGE_POSITIVE, 1e3, 1e15, "1 KB/s to 1 PB/s"},
    [ZP_FIELD_SECONDS] = {ZP_DIM_SECONDS, ZP_RANGE_NOT_NEGATIVE, 0, 1e6, "at most 1,000,000 s"},
    [ZP_FIELD_FLOPS] = {ZP_DIM_FLOP_PER_S, ZP_RANGE_POSITIVE, 1e6, 1e18, "1 MFLOPS to 1 EFLOPS"},
    [ZP_FIELD_LENGTH] = {ZP_DIM_SECONDS, ZP_RANGE_POSITIVE, 1, 3.1536e9, "1 s to 36,500 d"},
    [ZP_FIELD_WATTS] = {ZP_DIM_WATTS, ZP_RANGE_POSITIVE, 0.1, 1e6, "0.1 W to 1 MW"},
    [ZP_FIELD_SHARE] = {ZP_DIM_PERCENT, ZP_RANGE_FRACTION, 0, 1, ""},
    [ZP_FIELD_REAL] = {ZP_DIM_NONE, ZP_RANGE_ANY, -HUGE_VAL, HUGE_VAL, ""},
};

const char *zp_plausible_text(zp_field_kind kind) { return kind <= ZP_FIELD_SHARE ? number_kinds[kind].limits : ""; }

zp_range zp_range_of(const zp_field *field) {
  bool number = field->kind <= ZP_FIELD_SHARE || field->kind == ZP_FIELD_REAL;
  return field->range || !number ? field->range : number_kinds[field->kind].range;
}

static bool is_plausible(zp_reader *reader, const zp_field *field, const zp_expr *expr, double number) {
  double low = number_kinds[field->kind].low, high = number_kinds[field->kind].high;
  if (number <= high && (number >= low || number == 0)) return true;
  zp_diag *d = zp_report(reader->diags, ZP_Z0306, expr->span, "`%s` is %s what any machine has", field->key,
                         number > high ? "above" : "below");
  zp_diag_note(d, "accepted: %s; check the unit and the exponent", number_kinds[field->kind].limits);
  return false;
}

static void store_number(zp_reader *reader, const zp_env *env, const zp_field *field, const zp_expr *expr, void *base) {
  double number;
  bool ok =
      zp_read_number(reader, env, expr, field->key, number_kinds[field->kind].dimension, zp_range_of(field), &number);
  if (!ok || !is_plausible(reader, field, expr, number) || field->offset == ZP_CHECK_ONLY) return;
  char *target = (char *)base + field->offset;
  if (field->kind == ZP_FIELD_BYTES)
    *(int64_t *)target = (int64_t)number;
  else
    *(double *)target = number;
}

static void store_whole(zp_reader *reader, const zp_env *env, const zp_field *field, const zp_expr *expr, void *base) {
  int64_t number;
  if (!zp_read_whole(reader, env, expr, field->key, field->range, &number)) return;
  if (field->kind == ZP_FIELD_INT && number > INT32_MAX) {
    zp_report(reader->diags, ZP_Z0306, expr->span, "`%s` must be below 2^31", field->key);
    return;
  }
  if (field->offset == ZP_CHECK_ONLY) return;
  char *target = (char *)base + field->offset;
  if (field->kind == ZP_FIELD_INT)
    *(int *)target = (int)number;
  else
    *(int64_t *)target = number;
}

static void store_bool(zp_reader *reader, const zp_env *env, const zp_field *field, const zp_expr *expr, void *base) {
  zp_value value = {0};
  if (!zp_eval(reader->arena, reader->diags, env->scope, expr, &value)) return;
  if (value.kind != ZP_VAL_BOOL) {
    zp_report(reader->diags, ZP_Z0304, value.span, "`%s` is `true` or `false`, not %s", field->key,
              zp_value_kind_name(&value));
    return;
  }
  if (field->offset != ZP_CHECK_ONLY) *(bool *)((char *)base + field->offset) = value.number != 0;
}

static void store_word(zp_reader *reader, const zp_env *env, const zp_field *field, const zp_expr *expr, void *base) {
  int word;
  if (field->kind == ZP_FIELD_BLOCK && expr->kind == ZP_EXPR_STRING && strcmp(expr->text, field->words[0].text) != 0) {
    zp_diag *d = zp_report(reader->diags, ZP_Z0308, expr->span, "`%s` cannot be \"%s\"", field->key, expr->text);
    zp_diag_help(d, "it is a block, `%s`, or \"%s\"", field->example, field->words[0].text);
    return;
  }
  if (zp_read_word(reader, env, expr, field->key, field->words, &word) && field->offset != ZP_CHECK_ONLY)
    *(int *)((char *)base + field->offset) = word;
}

static void store_text(zp_reader *reader, const zp_env *env, const zp_field *field, const zp_expr *expr, void *base) {
  const char *text;
  if (field->kind == ZP_FIELD_WORD) {
    store_word(reader, env, field, expr, base);
  } else if (zp_read_string(reader, env, expr, field->key, &text) && field->offset != ZP_CHECK_ONLY) {
    *(const char **)((char *)base + field->offset) = text;
  }
}

static void store_list(zp_reader *reader, const zp_env *env, const zp_field *field, const zp_expr *expr, void *base) {
  static const char *const counts[] = {[2] = "two", [3] = "three"};
  zp_value value = {0};
  double number[ZP_OPTION_MOST_VALUES];
  if (!zp_eval(reader->arena, reader->diags, env->scope, expr, &value)) return;
  if (value.kind != ZP_VAL_LIST || value.list.len != field->n) {
    zp_diag *d =
        zp_report(reader->diags, ZP_Z0304, value.span, "`%s` is a list of %s numbers", field->key, counts[field->n]);
    zp_diag_help(d, "for example `%s`", field->note);
    return;
  }
  for (int i = 0; i < field->n; i++)
    if (!zp_check_number(reader, &value.list.data[i], field->key, ZP_DIM_NONE, field->range, &number[i])) return;
  for (int i = 0; i < field->n; i++) *(double *)(void *)((char *)base + field->each[i]) = number[i];
}

static const char *operator_text(zp_attr_op op) {
  static const char *const texts[] = {"=", "<=", ">=", "<", ">", "!=", "in", "{"};
  return texts[op];
}

/* Fields with a value: `key = value` only. */
static bool check_form(zp_reader *reader, const zp_field *field, const zp_attr *attr) {
  bool wants_block = field->kind == ZP_FIELD_BLOCK;
  if (wants_block && field->words && attr->op == ZP_ATTR_SET && !attr->index.text) return true;
  if (attr->index.text) {
    zp_report(reader->diags, ZP_Z0305, attr->index.span, "`%s` takes no `[...]`", field->key);
    return false;
  }
  if (wants_block == (attr->op == ZP_ATTR_BLOCK) && (wants_block || attr->op == ZP_ATTR_SET)) return true;
  zp_diag *d;
  if (wants_block) {
    d = zp_report(reader->diags, ZP_Z0305, attr->span, "`%s` is a block", field->key);
    zp_diag_help(d, "write `%s`", field->example ? field->example : zp_format(reader->arena, "%s { ... }", field->key));
  } else if (attr->op == ZP_ATTR_BLOCK) {
    d = zp_report(reader->diags, ZP_Z0305, attr->key.span, "`%s` is not a block", field->key);
    zp_diag_help(d, "write `%s = ...`", field->key);
  } else {
    d = zp_report(reader->diags, ZP_Z0305, attr->span, "`%s` is set with `=`, not with `%s`", field->key,
                  operator_text(attr->op));
    zp_diag_note(d, "limits are written in `plan` blocks");
  }
  return false;
}

static void read_value(zp_reader *reader, const zp_env *env, const zp_field *field, const zp_attr *attr, void *base) {
  switch (field->kind) {
  case ZP_FIELD_BYTES:
  case ZP_FIELD_RATE:
  case ZP_FIELD_SECONDS:
  case ZP_FIELD_FLOPS:
  case ZP_FIELD_LENGTH:
  case ZP_FIELD_WATTS:
  case ZP_FIELD_SHARE:
  case ZP_FIELD_REAL: store_number(reader, env, field, attr->value, base); return;
  case ZP_FIELD_INT:
  case ZP_FIELD_INT64: store_whole(reader, env, field, attr->value, base); return;
  case ZP_FIELD_LIST: store_list(reader, env, field, attr->value, base); return;
  case ZP_FIELD_BOOL: store_bool(reader, env, field, attr->value, base); return;
  case ZP_FIELD_STRING:
  case ZP_FIELD_WORD: store_text(reader, env, field, attr->value, base); return;
  case ZP_FIELD_BLOCK:
    if (attr->op == ZP_ATTR_BLOCK)
      zp_read_attrs(reader, env, field->block, &attr->body, base);
    else
      store_word(reader, env, field, attr->value, base);
    return;
  case ZP_FIELD_CUSTOM: field->read(reader, env, attr, base); return;
  case ZP_FIELD_REFUSED:
  case ZP_FIELD_FOREIGN: return; /* handled by read_attr */
  }
}

static void read_field(zp_reader *reader, const zp_env *env, const zp_field *field, const zp_attr *attr, void *base) {
  const zp_field *outer = reader->field;
  reader->field = field;
  read_value(reader, env, field, attr, base);
  reader->field = outer;
}

static void read_attr(zp_reader *reader, const zp_env *env, const zp_schema *schema, const zp_attr *attr, void *base) {
  const zp_field *field = zp_find_field(schema, attr->key.text);
  if (!field) {
    zp_report_unknown_attr(reader, &schema, 1, attr, zp_format(reader->arena, "`%s`", schema->name));
  } else if (field->kind == ZP_FIELD_REFUSED) {
    zp_diag *d = zp_report(reader->diags, ZP_Z0309, attr->key.span, "`%s` is not built yet", attr->key.text);
    zp_diag_help(d, "%s", field->note);
  } else if (field->kind == ZP_FIELD_FOREIGN) {
    zp_diag *d = zp_report(reader->diags, ZP_Z0301, attr->key.span, "unknown attribute `%s` in `%s`", attr->key.text,
                           schema->name);
    zp_diag_help(d, "%s", field->note);
  } else if (field->kind == ZP_FIELD_CUSTOM || check_form(reader, field, attr)) {
    read_field(reader, env, field, attr, base);
  }
}

/* Is an attribute with this key earlier in the list? Reports and says so. Limits of a plan may be repeated; they are
 * not read by this function. */
static bool is_repeated(zp_reader *reader, const zp_attrs *attrs, int at) {
  const zp_attr *attr = attrs->data[at];
  for (int i = 0; i < at; i++) {
    if (strcmp(attrs->data[i]->key.text, attr->key.text) != 0) continue;
    zp_diag *d = zp_report(reader->diags, ZP_Z0310, attr->key.span, "`%s` is given twice", attr->key.text);
    zp_diag_also(d, attrs->data[i]->key.span, "first given here");
    return true;
  }
  return false;
}

void zp_read_attrs(zp_reader *reader, const zp_env *env, const zp_schema *schema, const zp_attrs *attrs, void *base) {
  for (int pass = 0; pass < 2; pass++)
    for (int i = 0; i < attrs->len; i++) {
      bool is_base = strcmp(attrs->data[i]->key.text, "base") == 0;
      if (is_base != (pass == 0) || is_repeated(reader, attrs, i)) continue;
      read_attr(reader, env, schema, attrs->data[i], base);
    }
}

/* The arguments of a call as attributes, so that both are read by the same tables. */
static bool args_as_attrs(zp_reader *reader, const zp_schema *schema, const zp_expr *call, zp_attrs *attrs) {
  for (int i = 0; i < call->args.len; i++) {
    const zp_arg *arg = &call->args.data[i];
    zp_attr *attr = ZP_NEW(reader->arena, zp_attr);
    if (!arg->name.text && i >= schema->positional) {
      zp_diag *d =
          zp_report(reader->diags, ZP_Z0311, arg->value->span, "this argument of `%s` needs a name", schema->name);
      zp_strings names = {0};
      field_names(reader, schema, &names);
      zp_buf list = zp_buf_new(reader->arena);
      for (int k = 0; k < names.len; k++) zp_buf_printf(&list, "%s`%s = ...`", k ? ", " : "", names.data[k]);
      zp_diag_help(d, "write %s", list.data);
      return false;
    }
    attr->key = arg->name.text ? arg->name : (zp_name){schema->fields[i].key, arg->value->span};
    attr->op = ZP_ATTR_SET;
    attr->value = arg->value;
    attr->span = arg->value->span;
    zp_push(reader->arena, attrs, attr);
  }
  return true;
}

const zp_function *zp_read_call(zp_reader *reader, const zp_env *env, const zp_expr *expr, const char *key,
                                const zp_function *functions, int count, void *base) {
  bool is_call = expr->kind == ZP_EXPR_CALL;
  const char *name = zp_dotted_name(reader->arena, is_call ? expr->left : expr);
  zp_strings names = {0};
  zp_buf list = zp_buf_new(reader->arena);
  for (int i = 0; i < count; i++) {
    if (name && strcmp(functions[i].name, name) == 0) {
      zp_attrs attrs = {0};
      if (is_call && !args_as_attrs(reader, &functions[i].schema, expr, &attrs)) return NULL;
      zp_read_attrs(reader, env, &functions[i].schema, &attrs, base);
      return &functions[i];
    }
    zp_push(reader->arena, &names, functions[i].name);
    zp_buf_printf(&list, "%s`%s(...)`", i ? ", " : "", functions[i].name);
  }
  zp_diag *d = name ? zp_report(reader->diags, ZP_Z0308, expr->span, "`%s` cannot be `%s`", key, name)
                    : zp_report(reader->diags, ZP_Z0304, expr->span, "`%s` is written like a call", key);
  if (name) zp_diag_did_you_mean(d, name, names.data, names.len);
  zp_diag_note(d, "possible here: %s", list.data);
  return NULL;
}
