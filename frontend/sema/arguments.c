/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments of calls: by position or keyword into places, then typed. */
#include <math.h>
#include "elaborate.h"

/* What other code bases call our customary formals. */
static const char *const foreign_words[][2] = {
    {"n_embd", "d"},
    {"hidden_size", "d"},
    {"d_model", "d"},
    {"n_head", "heads"},
    {"num_heads", "heads"},
    {"num_attention_heads", "heads"},
    {"n_layer", "layers"},
    {"num_layers", "layers"},
    {"num_hidden_layers", "layers"},
    {"vocab_size", "V"},
    {"seq_len", "S"},
    {"n_positions", "S"},
    {"n_kv_heads", "kv_heads"},
    {"num_key_value_heads", "kv_heads"},
    {"intermediate_size", "ff"},
    {"d_ff", "ff"},
    {"p", "rate"},
    {"out_features", "out"},
    {"rope_theta", "theta"},
    {"is_causal", "causal"},
    {"sliding_window", "window"},
};

static const char *translate(const char *word, const char *const *names, int count) {
  for (size_t f = 0; f < sizeof foreign_words / sizeof *foreign_words; f++) {
    if (strcmp(foreign_words[f][0], word) != 0) continue;
    for (int i = 0; i < count; i++)
      if (strcmp(names[i], foreign_words[f][1]) == 0) return names[i];
  }
  return NULL;
}

/* Names without the mark of those that are known but not built. */
static const char *plain(const char *name) { return *name == '!' ? name + 1 : name; }

static int find_name(const char *const *names, int count, const char *word) {
  for (int i = 0; i < count; i++)
    if (strcmp(plain(names[i]), word) == 0) return i;
  return -1;
}

static void report_unknown(zp_elab *e, const zp_arg *arg, const char *callee, const char *const *names, int count) {
  const char *word = arg->name.text, *ours = translate(word, names, count);
  zp_diag *d = zp_report(e->diags, ZP_Z0214, arg->name.span, "`%s` has no argument `%s`", callee, word);
  if (ours)
    zp_diag_help(d, "it is called `%s` here", ours);
  else if (!zp_diag_did_you_mean(d, word, names, count) && count) {
    const char *list = "";
    for (int i = 0; i < count; i++)
      if (*names[i] != '!') list = zp_format(e->arena, "%s%s`%s`", list, *list ? ", " : "", names[i]);
    zp_diag_help(d, "its arguments are %s", list);
  }
}

/* The place an argument goes to; -1 after reporting. */
static int place_of(zp_elab *e, const zp_arg *arg, int position, const char *callee, const char *const *names,
                    int count) {
  if (arg->name.text) {
    int i = find_name(names, count, arg->name.text);
    if (i < 0) report_unknown(e, arg, callee, names, count);
    return i;
  }
  if (position < count && *names[position] != '!') return position;
  zp_report(e->diags, ZP_Z0214, arg->value->span, "too many arguments for `%s`", callee);
  return -1;
}

bool zp_elab_collect(zp_elab *e, const zp_expr *call, const char *callee, const char *const *names, int count,
                     zp_slot *slots) {
  bool ok = true;
  for (int i = 0; i < call->args.len; i++) {
    const zp_arg *arg = &call->args.data[i];
    int at = place_of(e, arg, i, callee, names, count);
    if (at < 0) return false;
    if (*names[at] == '!') {
      zp_report(e->diags, ZP_Z0216, arg->name.span, "argument `%s` of `%s` is known but not built yet",
                plain(names[at]), callee);
      return false;
    }
    if (slots[at].given) {
      zp_diag *d = zp_report(e->diags, ZP_Z0214, arg->value->span, "`%s` of `%s` is given twice", names[at], callee);
      zp_diag_also(d, slots[at].value.span, "first here");
      return false;
    }
    ok = zp_elab_eval(e, arg->value, &slots[at].value) && ok;
    slots[at].given = true;
    slots[at].value.span = arg->value->span;
  }
  return ok;
}

bool zp_elab_require(zp_elab *e, const zp_expr *call, const char *callee, const char *name, const zp_slot *slot) {
  if (slot->given) return true;
  zp_report(e->diags, ZP_Z0214, call->at, "`%s` needs the argument `%s`", callee, name);
  return false;
}

static bool reject(zp_elab *e, const zp_slot *slot, const char *name, const char *wanted) {
  zp_report(e->diags, ZP_Z0202, slot->value.span, "`%s` must be %s, this is %s", name, wanted,
            slot->value.kind == ZP_VAL_NUMBER && slot->value.dimension == ZP_DIM_NONE
                ? zp_value_text(e->arena, &slot->value)
                : zp_value_kind_name(&slot->value));
  return false;
}

bool zp_slot_number(zp_elab *e, const zp_slot *slot, const char *name, double missing, double *number) {
  *number = slot->given ? slot->value.number : missing;
  if (!slot->given) return true;
  bool is_plain = slot->value.kind == ZP_VAL_NUMBER && slot->value.dimension == ZP_DIM_NONE && isfinite(*number);
  return is_plain || reject(e, slot, name, "a number");
}

bool zp_slot_count(zp_elab *e, const zp_slot *slot, const char *name, int64_t missing, int64_t *count) {
  *count = missing;
  if (!slot->given) return true;
  const zp_value *value = &slot->value;
  if (value->kind != ZP_VAL_NUMBER || value->dimension != ZP_DIM_NONE || !value->is_integer || value->number < 1 ||
      value->number > 1e13)
    return reject(e, slot, name, "a whole number of at least 1");
  *count = (int64_t)value->number;
  return true;
}

bool zp_slot_bool(zp_elab *e, const zp_slot *slot, const char *name, bool missing, bool *truth) {
  *truth = slot->given ? slot->value.number != 0 : missing;
  return !slot->given || slot->value.kind == ZP_VAL_BOOL || reject(e, slot, name, "true or false");
}

bool zp_slot_choice(zp_elab *e, const zp_slot *slot, const char *name, const char *const *choices, int *choice) {
  *choice = 0;
  if (!slot->given) return true;
  if (slot->value.kind != ZP_VAL_STRING) return reject(e, slot, name, "a string");
  int count = 0;
  for (; choices[count]; count++) {
    if (strcmp(choices[count], slot->value.text) != 0) continue;
    *choice = count;
    return true;
  }
  zp_diag *d = zp_report(e->diags, ZP_Z0237, slot->value.span, "unknown value \"%s\" for `%s`", slot->value.text, name);
  if (!zp_diag_did_you_mean(d, slot->value.text, choices, count)) {
    const char *list = "";
    for (int i = 0; i < count; i++) list = zp_format(e->arena, "%s%s\"%s\"", list, i ? " or " : "", choices[i]);
    zp_diag_help(d, "use %s", list);
  }
  return false;
}
