/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of the `plan` block: which values the search may take. Every limit becomes one zp_limit; limits on the same
 * key add up, and two that leave nothing are reported with both places. */
#include <assert.h>
#include <math.h>
#include "spec_internal.h"
#include <zplan/buf.h>

/* A word stands for one value or for several neighbouring ones. */
typedef struct plan_word {
  const char *text;
  double first, last;
} plan_word;

/* One plan key that is a limit. */
typedef struct limit_key {
  const char *key;
  size_t offset;
  double lowest, highest; /* of numbers */
  const plan_word *words; /* for keys whose values are words */
  const char *index;      /* of keys that are written `key[index]` */
  bool is_flag;           /* true or false */
} limit_key;

#define WORD(text, value)                                                                                              \
  { text, value, value }
static const plan_word recompute_words[] = {WORD("none", ZP_RECOMPUTE_NONE),
                                            WORD("selective", ZP_RECOMPUTE_SELECTIVE),
                                            WORD("attention", ZP_RECOMPUTE_SELECTIVE),
                                            WORD("full", ZP_RECOMPUTE_FULL),
                                            WORD("layer", ZP_RECOMPUTE_FULL),
                                            {"auto", ZP_RECOMPUTE_NONE, ZP_RECOMPUTE_SELECTIVE},
                                            {NULL, 0, 0}};
static const plan_word rest_words[] = {
    WORD("none", ZP_RECOMPUTE_NONE), WORD("selective", ZP_RECOMPUTE_SELECTIVE), {NULL, 0, 0}};
static const plan_word shard_words[] = {WORD("none", 0), WORD("tensor", 1), {NULL, 0, 0}};
static const plan_word schedule_words[] = {
#define SCHEDULE_WORD(name, text) WORD(text, ZP_SCHEDULE_##name),
    ZP_SCHEDULES(SCHEDULE_WORD)
#undef SCHEDULE_WORD
        {"zero_bubble", ZP_SCHEDULE_ZB_H1, ZP_SCHEDULE_ZB_V},
    {NULL, 0, 0}};
/* Megatron-LM's names, without the axes that zplan does not have, mean the same. */
static const plan_word order_words[] = {
#define ORDER_WORD(name, text) WORD(text, ZP_ORDER_##name),
    ZP_RANK_ORDERS(ORDER_WORD)
#undef ORDER_WORD
        WORD("tp-dp-pp", ZP_ORDER_TDP),
    WORD("tp-pp-dp", ZP_ORDER_TPD),
    {NULL, 0, 0}};
static const plan_word node_order_words[] = {
    WORD("written", ZP_NODES_WRITTEN), {"any", ZP_NODES_WRITTEN, ZP_NODES_ANY}, {NULL, 0, 0}};
static const plan_word context_by_words[] = {WORD("heads", 0), WORD("keys", 1), WORD("ring", 2), {NULL, 0, 0}};
static const plan_word cut_words[] = {WORD("layer", 0), WORD("block", 1), {"auto", 0, 1}, {NULL, 0, 0}};
static const plan_word offload_words[] = {
    WORD("none", ZP_TIER_DEVICE), WORD("cpu", ZP_TIER_HOST), WORD("nvme", ZP_TIER_NVME), {NULL, 0, 0}};

/* More ranks or sequences than anybody has; numbers of the search are ints. */
#define MOST_DEGREE 1e9
#define DEGREE(name)                                                                                                   \
  { .key = #name, .offset = offsetof(zp_constraints, name), .lowest = 1, .highest = MOST_DEGREE }
#define WORDS(name)                                                                                                    \
  { .key = #name, .offset = offsetof(zp_constraints, name), .words = name##_words }
#define FLAG(name)                                                                                                     \
  { .key = #name, .offset = offsetof(zp_constraints, name), .highest = 1, .is_flag = true }
#define OFFLOAD(state, name)                                                                                           \
  { .key = "offload", .offset = offsetof(zp_constraints, offload[state]), .words = offload_words, .index = name }
static const limit_key limit_keys[] = {
    DEGREE(tensor),
    DEGREE(pipeline),
    DEGREE(data),
    DEGREE(expert),
    DEGREE(context),
    DEGREE(shard),
    DEGREE(hpz),
    DEGREE(microbatch),
    DEGREE(chunks),
    DEGREE(loss_chunks),
    {.key = "idle", .offset = offsetof(zp_constraints, idle), .highest = MOST_DEGREE},
    {.key = "zero", .offset = offsetof(zp_constraints, zero), .highest = 3},
    WORDS(recompute),
    {.key = "recompute_shard", .offset = offsetof(zp_constraints, recompute_shard), .words = shard_words},
    {.key = "recompute_rest", .offset = offsetof(zp_constraints, recompute_rest), .words = rest_words},
    WORDS(schedule),
    {.key = "rank_order", .offset = offsetof(zp_constraints, rank_order), .words = order_words},
    WORDS(node_order),
    WORDS(context_by),
    WORDS(cut),
    FLAG(sequence),
    FLAG(compress),
    OFFLOAD(ZP_STATE_PARAMS, "params"),
    OFFLOAD(ZP_STATE_GRADIENTS, "gradients"),
    OFFLOAD(ZP_STATE_OPTIMIZER, "optimizer"),
    OFFLOAD(ZP_STATE_ACTIVATIONS, "activations"),
};

enum { N_LIMIT_KEYS = sizeof limit_keys / sizeof *limit_keys };

static bool is_limit_key(const char *key) {
  for (int i = 0; i < N_LIMIT_KEYS; i++)
    if (strcmp(limit_keys[i].key, key) == 0) return true;
  return false;
}

static bool is_ordered(const limit_key *key) { return !key->words && !key->is_flag; }

static const char *example_of(zp_reader *reader, const limit_key *key) {
  if (is_ordered(key)) return zp_format(reader->arena, "%s in [1, 2, 4]", key->key);
  if (key->is_flag) return zp_format(reader->arena, "%s = true", key->key);
  const char *index = key->index ? zp_format(reader->arena, "[%s]", key->index) : "";
  return zp_format(reader->arena, "%s%s = \"%s\"", key->key, index, key->words[0].text);
}

static const char *words_text(zp_arena *arena, const plan_word *words) {
  zp_buf list = zp_buf_new(arena);
  for (const plan_word *w = words; w->text; w++) zp_buf_printf(&list, "%s\"%s\"", w == words ? "" : ", ", w->text);
  return list.data;
}

/* Adds the values of a word to the list. */
static bool add_word(zp_reader *reader, const zp_env *env, const limit_key *key, const zp_expr *expr, zp_limit *limit) {
  const char *text;
  if (!zp_read_string(reader, env, expr, key->key, &text)) return false;
  zp_strings names = {0};
  for (const plan_word *w = key->words; w->text; w++) {
    zp_push(reader->arena, &names, w->text);
    if (strcmp(w->text, text) != 0) continue;
    for (double v = w->first; v <= w->last; v++) zp_push(reader->arena, &limit->in, v);
    return true;
  }
  zp_diag *d = zp_report(reader->diags, ZP_Z0308, expr->span, "`%s` cannot be \"%s\"", key->key, text);
  if (!zp_help_foreign(d, text)) zp_diag_did_you_mean(d, text, names.data, names.len);
  zp_diag_note(d, "possible here: %s", words_text(reader->arena, key->words));
  return false;
}

/* Adds true or false to the list, as 1 or 0. */
static bool add_flag(zp_reader *reader, const zp_env *env, const limit_key *key, const zp_expr *expr, zp_limit *limit) {
  zp_value value = {0};
  if (!zp_eval(reader->arena, reader->diags, env->scope, expr, &value)) return false;
  if (value.kind != ZP_VAL_BOOL) {
    zp_report(reader->diags, ZP_Z0304, value.span, "`%s` is `true` or `false`, not %s", key->key,
              zp_value_kind_name(&value));
    return false;
  }
  zp_push(reader->arena, &limit->in, value.number);
  return true;
}

static bool check_degree(zp_reader *reader, const limit_key *key, const zp_value *value, zp_attr_op op,
                         double *number) {
  if (!zp_check_number(reader, value, key->key, ZP_DIM_NONE, ZP_RANGE_ANY, number)) return false;
  bool is_pin = op == ZP_ATTR_SET || op == ZP_ATTR_IN;
  if (*number != floor(*number) || (is_pin && (*number < key->lowest || *number > key->highest))) {
    zp_diag *d = zp_report(reader->diags, ZP_Z0621, value->span, "`%s` cannot be %g", key->key, *number);
    zp_diag_note(d, "`%s` is a whole number from %.0f to %.0f", key->key, key->lowest, key->highest);
    return false;
  }
  return true;
}

static bool needs_equals_or_in(zp_reader *reader, const limit_key *key, const zp_attr *attr) {
  if (attr->op == ZP_ATTR_SET || attr->op == ZP_ATTR_IN) return true;
  zp_diag *d = zp_report(reader->diags, ZP_Z0622, attr->span, "`%s` has no order to compare by", key->key);
  zp_diag_help(d, "write `%s` or `%s in [...]`", example_of(reader, key), key->key);
  return false;
}

/* The elements of `in [...]`; a single value for any other operator. */
static bool limit_values(zp_reader *reader, const zp_attr *attr, zp_exprs *values) {
  if (attr->op != ZP_ATTR_IN) {
    zp_push(reader->arena, values, attr->value);
    return true;
  }
  if (attr->value->kind == ZP_EXPR_LIST && attr->value->args.len > 0) {
    for (int i = 0; i < attr->value->args.len; i++) zp_push(reader->arena, values, attr->value->args.data[i].value);
    return true;
  }
  zp_diag *d = zp_report(reader->diags, ZP_Z0622, attr->value->span, "`in` needs a list of values");
  if (attr->value->kind == ZP_EXPR_BINARY && attr->value->op == ZP_OPR_RANGE)
    zp_diag_help(d, "write two limits: `%s >= low` and `%s <= high`", attr->key.text, attr->key.text);
  else
    zp_diag_help(d, "for example `%s in [1, 2, 4]`", attr->key.text);
  return false;
}

static bool read_number_limit(zp_reader *reader, const zp_env *env, const limit_key *key, const zp_attr *attr,
                              const zp_exprs *values, zp_limit *limit) {
  double number = 0;
  for (int i = 0; i < values->len; i++) {
    zp_value value = {0};
    if (!zp_eval(reader->arena, reader->diags, env->scope, values->data[i], &value)) return false;
    if (!check_degree(reader, key, &value, attr->op, &number)) return false;
    if (attr->op == ZP_ATTR_IN) zp_push(reader->arena, &limit->in, number);
  }
  switch (attr->op) {
  case ZP_ATTR_SET: limit->low = limit->high = number; break;
  case ZP_ATTR_LE: limit->high = fmin(number, key->highest); break;
  case ZP_ATTR_LT: limit->high = fmin(number - 1, key->highest); break;
  case ZP_ATTR_GE: limit->low = fmax(number, key->lowest); break;
  case ZP_ATTR_GT: limit->low = fmax(number + 1, key->lowest); break;
  case ZP_ATTR_IN: break;
  case ZP_ATTR_NE:
  case ZP_ATTR_BLOCK: return false; /* refused by read_limit */
  }
  return true;
}

static bool is_empty(const zp_limit *limit) {
  for (int i = 0; i < limit->in.len; i++)
    if (limit->in.data[i] >= limit->low && limit->in.data[i] <= limit->high) return false;
  return limit->in.len > 0 || limit->low > limit->high;
}

/* What one attribute allows, on its own. */
static bool read_limit(zp_reader *reader, const zp_env *env, const limit_key *key, const zp_attr *attr,
                       zp_limit *limit) {
  zp_exprs values = {0};
  *limit = (zp_limit){.set = true, .low = key->lowest, .high = key->highest, .span = attr->span};
  if (attr->op == ZP_ATTR_BLOCK || attr->op == ZP_ATTR_NE) {
    zp_diag *d = zp_report(reader->diags, ZP_Z0622, attr->span, "`%s` is limited with =, <=, >=, <, > or in", key->key);
    zp_diag_help(d, "for example `%s`", example_of(reader, key));
    return false;
  }
  if (!is_ordered(key) && !needs_equals_or_in(reader, key, attr)) return false;
  if (attr->op != ZP_ATTR_IN && attr->value->kind == ZP_EXPR_LIST) {
    zp_diag *d = zp_report(reader->diags, ZP_Z0622, attr->value->span, "`%s` is compared with one value", key->key);
    zp_diag_help(d, "one of several: `%s in [...]`", key->key);
    return false;
  }
  if (key->words && attr->value->kind == ZP_EXPR_BOOL) {
    zp_diag *d = zp_report(reader->diags, ZP_Z0304, attr->value->span, "`%s` is a word, not true or false", key->key);
    zp_diag_note(d, "possible here: %s", words_text(reader->arena, key->words));
    return false;
  }
  if (!limit_values(reader, attr, &values)) return false;
  if (!is_ordered(key)) {
    for (int i = 0; i < values.len; i++)
      if (!(key->words ? add_word : add_flag)(reader, env, key, values.data[i], limit)) return false;
    limit->low = limit->high = limit->in.data[0];
    for (int i = 1; i < limit->in.len; i++) {
      limit->low = fmin(limit->low, limit->in.data[i]);
      limit->high = fmax(limit->high, limit->in.data[i]);
    }
    return true;
  }
  if (!read_number_limit(reader, env, key, attr, &values, limit)) return false;
  if (!is_empty(limit)) return true;
  zp_diag *d = zp_report(reader->diags, ZP_Z0621, attr->span, "no value of `%s` is within this limit", key->key);
  zp_diag_note(d, "`%s` is a whole number, %g or more", key->key, key->lowest);
  return false;
}

static zp_limit intersect(zp_reader *reader, const zp_limit *a, const zp_limit *b) {
  zp_limit both = {.set = true, .low = fmax(a->low, b->low), .high = fmin(a->high, b->high), .span = b->span};
  const zp_limit *list = a->in.len ? a : b, *other = a->in.len ? b : a;
  for (int i = 0; i < list->in.len; i++)
    if (zp_limit_allows(other, list->in.data[i])) zp_push(reader->arena, &both.in, list->in.data[i]);
  if (list->in.len && !both.in.len) both.low = 1, both.high = 0; /* nothing left: is_empty must say so */
  return both;
}

/* Earlier limits on one key, so that a contradiction can name the other side. */
typedef ZP_VEC(zp_limit) limit_list;

static void add_limit(zp_reader *reader, const limit_key *key, limit_list *earlier, const zp_limit *fresh,
                      zp_limit *sum) {
  zp_limit both = earlier->len ? intersect(reader, sum, fresh) : *fresh;
  if (is_empty(&both)) {
    const zp_limit *other = &earlier->data[0];
    for (int i = 0; i < earlier->len; i++) {
      zp_limit pair = intersect(reader, &earlier->data[i], fresh);
      if (is_empty(&pair)) other = &earlier->data[i];
    }
    zp_diag *d = zp_report(reader->diags, ZP_Z0620, fresh->span, "no value of `%s` satisfies all limits", key->key);
    zp_diag_label(d, "contradicts the other limit");
    zp_diag_also(d, other->span, "the other limit");
    return;
  }
  zp_push(reader->arena, earlier, *fresh);
  *sum = both;
}

static void check_index(zp_reader *reader, const zp_attr *attr) {
  static const char *const places[] = {"params", "gradients", "optimizer", "activations"};
  bool takes_index = strcmp(attr->key.text, "offload") == 0;
  if (!takes_index && attr->index.text)
    zp_report(reader->diags, ZP_Z0305, attr->index.span, "`%s` takes no `[...]`", attr->key.text);
  if (!takes_index) return;
  for (int i = 0; i < 4 && attr->index.text; i++)
    if (strcmp(places[i], attr->index.text) == 0) return;
  zp_span span = attr->index.text ? attr->index.span : attr->key.span;
  zp_diag *d =
      zp_report(reader->diags, ZP_Z0305, span, "`offload` must say what: params, gradients, optimizer or activations");
  if (!attr->index.text || !zp_diag_did_you_mean(d, attr->index.text, places, 4))
    zp_diag_help(d, "for example `offload[optimizer] = \"none\"`");
}

static bool is_about(const limit_key *key, const zp_attr *attr) {
  if (strcmp(attr->key.text, key->key) != 0) return false;
  if (!key->index || !attr->index.text) return key->index == attr->index.text;
  return strcmp(key->index, attr->index.text) == 0;
}

static zp_limit *limit_of(const limit_key *key, zp_constraints *plan) {
  return (zp_limit *)((char *)plan + key->offset);
}

/* All limits on one key, in the order they are written. */
static void read_limits(zp_reader *reader, const zp_env *env, const limit_key *key, const zp_attrs *attrs,
                        zp_constraints *plan) {
  limit_list earlier = {0};
  for (int i = 0; i < attrs->len; i++) {
    zp_limit fresh;
    if (is_about(key, attrs->data[i]) && read_limit(reader, env, key, attrs->data[i], &fresh))
      add_limit(reader, key, &earlier, &fresh, limit_of(key, plan));
  }
}

void zp_read_limits(zp_reader *reader, const zp_env *env, const zp_attrs *attrs, zp_constraints *plan) {
  for (int i = 0; i < N_LIMIT_KEYS; i++) read_limits(reader, env, &limit_keys[i], attrs, plan);
}

void zp_describe_limit(zp_arena *arena, const char *key, const char **type, const char **range, const char **outside) {
  assert(is_limit_key(key));
  const limit_key *row = limit_keys;
  while (strcmp(row->key, key) != 0) row++;
  const char *index = row->index ? "[optimizer]" : "";
  *type = row->words ? "word" : row->is_flag ? "true, false" : "whole number";
  *range = row->words            ? words_text(arena, row->words)
           : row->is_flag        ? ""
           : row->highest < 1000 ? zp_format(arena, "%.0f to %.0f", row->lowest, row->highest)
                                 : zp_format(arena, "%.0f or more", row->lowest);
  *outside = row->words || row->is_flag ? zp_format(arena, "%s%s = \"no such word\"", key, index)
                                        : zp_format(arena, "%s = %.0f", key, row->lowest - 1);
}

zp_attrs zp_check_limit_keys(zp_reader *reader, const zp_attrs *attrs) {
  zp_attrs others = {0};
  for (int i = 0; i < attrs->len; i++)
    if (is_limit_key(attrs->data[i]->key.text))
      check_index(reader, attrs->data[i]);
    else
      zp_push(reader->arena, &others, attrs->data[i]);
  return others;
}
