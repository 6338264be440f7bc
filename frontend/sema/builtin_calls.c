/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the call of an operation by its row: arguments into attributes and operands. */
#include <assert.h>
#include <math.h>
#include "builtins.h"

static int find_argument(const zp_builtin *row, const char *name) {
  int i = 0;
  while (row->arguments[i].name && strcmp(row->arguments[i].name, name) != 0) i++;
  assert(row->arguments[i].name);
  return i;
}

const zp_slot *zp_call_slot(const zp_call *call, const char *argument) {
  return &call->slots[find_argument(call->row, argument)];
}

bool zp_call_is_tensor(zp_elab *e, const zp_call *call, const char *argument) {
  const zp_value *value = &zp_call_slot(call, argument)->value;
  if (value->kind == ZP_VAL_TENSOR) return true;
  zp_report(e->diags, ZP_Z0202, value->span, "`%s` of `%s` must be a tensor, this is %s", argument, call->row->name,
            zp_value_kind_name(value));
  return false;
}

bool zp_call_requires(zp_elab *e, const zp_call *call, const char *argument) {
  return zp_elab_require(e, call->expr, call->row->name, argument, zp_call_slot(call, argument));
}

/* ---- attributes ---- */

static bool read_axis(zp_elab *e, zp_call *call, const zp_slot *slot) {
  double number;
  if (!zp_slot_number(e, slot, "axis", 1, &number)) return false;
  if (number == 1 || number == -2) return true;
  bool columns = number == 2 || number == -1;
  if (columns && call->row->along_columns) {
    call->op = call->row->along_columns;
    return true;
  }
  zp_diag *d = zp_report(e->diags, ZP_Z0216, slot->value.span, "`%s` along %s is known but not built yet",
                         call->row->name, columns ? "the columns" : zp_format(e->arena, "axis %g", number));
  zp_diag_help(d, columns ? "axis 1, the positions of a sample, is the one that is built"
                          : "the positions of a sample, `axis = 1`, and its columns, `axis = -1`, are built");
  return false;
}

static bool read_column_heads(zp_elab *e, const zp_call *call, const zp_slot *slot, int64_t *heads) {
  if (!zp_slot_count(e, slot, "heads", 1, heads)) return false;
  if (call->op == call->row->along_columns) return true;
  *heads = 0;
  if (slot->given)
    zp_report(e->diags, ZP_Z0237, slot->value.span, "`heads` of `%s` are of its columns: `axis = -1`", call->row->name);
  return !slot->given;
}

/* Infinite: `dropless`. */
static bool read_number(zp_elab *e, const zp_argument *argument, const zp_slot *slot, double *number) {
  bool capacity = argument->range == ZP_ARGUMENT_CAPACITY && slot->given;
  if (capacity && slot->value.kind == ZP_VAL_STRING) {
    zp_diag *d = zp_report(e->diags, ZP_Z0202, slot->value.span, "`%s` must be a number or `dropless`, this is %s",
                           argument->name, zp_value_text(e->arena, &slot->value));
    zp_diag_help(d, "`capacity = dropless`, without quotes, leaves no choice out and no slot empty");
    return false;
  }
  if (capacity && slot->value.kind == ZP_VAL_NUMBER && isinf(slot->value.number)) {
    *number = slot->value.number;
    return true;
  }
  return zp_slot_number(e, slot, argument->name, argument->missing, number);
}

static bool read_attribute(zp_elab *e, zp_call *call, const zp_argument *argument, const zp_slot *slot) {
  void *at = (char *)&call->attr + argument->at;
  int word;
  switch (argument->kind) {
  case ZP_ARGUMENT_NUMBER: return read_number(e, argument, slot, at);
  case ZP_ARGUMENT_COUNT: return zp_slot_count(e, slot, argument->name, (int64_t)argument->missing, at);
  case ZP_ARGUMENT_FLAG: return zp_slot_bool(e, slot, argument->name, argument->missing != 0, at);
  case ZP_ARGUMENT_WORD:
    if (!zp_slot_choice(e, slot, argument->name, argument->words, &word)) return false;
    *(bool *)at = word == 1;
    return true;
  case ZP_ARGUMENT_PATTERN: return zp_slot_sparse(e, slot, argument->name, at);
  case ZP_ARGUMENT_AXIS: return read_axis(e, call, slot);
  case ZP_ARGUMENT_COLUMN_HEADS: return read_column_heads(e, call, slot, at);
  case ZP_ARGUMENT_OPERAND:
  case ZP_ARGUMENT_WEIGHT:
  case ZP_ARGUMENT_OTHER: return true;
  }
  return false;
}

static bool in_range(zp_elab *e, const zp_argument *argument, const zp_slot *slot) {
  double number = slot->value.number;
  const char *name = zp_format(e->arena, "`%s`", argument->name), *must = NULL;
  switch (argument->range) {
  case ZP_ARGUMENT_ANY: return true;
  case ZP_ARGUMENT_CAPACITY:
  case ZP_ARGUMENT_POSITIVE:
    if (number <= 0) must = "must be above 0";
    break;
  case ZP_ARGUMENT_NOT_NEGATIVE:
    if (number < 0) must = "must not be negative";
    break;
  case ZP_ARGUMENT_DROPOUT: name = "a dropout rate"; /* fallthrough */
  case ZP_ARGUMENT_SHARE:
    if (number < 0 || number >= 1) must = "lies in 0 .. 1 (1 excluded)";
    break;
  }
  if (must) zp_report(e->diags, ZP_Z0237, slot->value.span, "%s %s, this is %g", name, must, number);
  return !must;
}

/* Attributes one by one; then their ranges, and which of them come without another. */
static bool read_attributes(zp_elab *e, zp_call *call) {
  const zp_argument *arguments = call->row->arguments;
  for (int i = 0; arguments[i].name; i++) {
    if (arguments[i].required && !zp_call_requires(e, call, arguments[i].name)) return false;
    if (!read_attribute(e, call, &arguments[i], &call->slots[i])) return false;
  }
  for (int i = 0; arguments[i].name; i++) {
    if (!call->slots[i].given) continue;
    if (arguments[i].needs && !zp_call_requires(e, call, arguments[i].needs)) return false;
    if (!in_range(e, &arguments[i], &call->slots[i])) return false;
  }
  return true;
}

/* ---- operands ---- */

static bool is_operand(const zp_argument *argument) {
  return argument->kind == ZP_ARGUMENT_OPERAND || argument->kind == ZP_ARGUMENT_WEIGHT;
}

static bool has_operands(zp_elab *e, const zp_call *call) {
  for (const zp_argument *a = call->row->arguments; a->name; a++)
    if (is_operand(a) && a->required && !zp_call_requires(e, call, a->name)) return false;
  return true;
}

static bool read_operands(zp_elab *e, zp_call *call) {
  for (int place = 0; place < ZP_MAX_OPERANDS; place++)
    for (const zp_argument *a = call->row->arguments; a->name; a++) {
      const zp_slot *slot = zp_call_slot(call, a->name);
      if (!is_operand(a) || a->place != place || !slot->given) continue;
      if (!zp_call_is_tensor(e, call, a->name)) return false;
      if (a->kind == ZP_ARGUMENT_WEIGHT)
        *(bool *)((char *)&call->attr + a->at) = e->handles.data[slot->value.tensor].transposed;
      assert(call->n_in < ZP_MAX_OPERANDS);
      call->in[call->n_in++] = slot->value;
    }
  return true;
}

/* ---- the whole call ---- */

bool zp_call_apply(zp_elab *e, const zp_call *call, zp_value *value) {
  return zp_elab_apply(e, call->expr, call->op, call->in, call->n_in, call->attr, call->row->name, value);
}

void zp_call_list_results(zp_elab *e, const zp_call *call, int64_t n, zp_value *value) {
  zp_handle handle = e->handles.data[value->tensor];
  *value = (zp_value){.kind = ZP_VAL_LIST, .span = call->expr->span};
  for (int64_t i = 0; i < n; i++, handle.index++) {
    zp_value result = zp_elab_tensor(e, handle, call->expr->span);
    zp_push(e->arena, &value->list, result);
  }
}

static bool collect(zp_elab *e, zp_call *call) {
  const zp_builtin *row = call->row;
  const char *names[ZP_MAX_BUILTIN_ARGS];
  int count = 0;
  for (; row->arguments[count].name; count++) {
    assert(count < ZP_MAX_BUILTIN_ARGS);
    names[count] = row->arguments[count].name;
  }
  const zp_expr *outer = e->transposable;
  if (count > 1 && row->arguments[1].kind == ZP_ARGUMENT_WEIGHT)
    e->transposable = call->expr->args.len > 1 ? call->expr->args.data[1].value : NULL;
  bool ok = zp_elab_collect(e, call->expr, row->name, names, count, call->slots);
  e->transposable = outer;
  return ok;
}

bool zp_call_read(zp_elab *e, const zp_builtin *row, const zp_expr *expr, zp_value *value) {
  zp_call call = {.row = row, .expr = expr, .op = row->op};
  if (!collect(e, &call) || !has_operands(e, &call) || !read_attributes(e, &call)) return false;
  if ((row->check && !row->check(e, &call)) || !read_operands(e, &call)) return false;
  return row->apply ? row->apply(e, &call, value) : zp_call_apply(e, &call, value);
}
