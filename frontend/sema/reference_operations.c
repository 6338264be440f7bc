/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of the reference for operations: the rows of builtins.c. */
#include "builtins.h"
#include "reference_internal.h"
#include "spec/spec_internal.h"

#include <zplan/decimal.h>

/* Arguments of one name mean one thing; where an operation means another by it, it stands first, with the operation.
 * unless: what holds where the argument is not given and its row's number says it is not there. */
static const struct {
  const char *operation, *name, *meaning, *unless;
} argument_words[] = {
    {"top_k_gate", "bias", "[experts]: added to the scores when experts are chosen, not to their weights", "none"},
    {"top_k_gate", "k", "experts of a token", NULL},
    {"top_k_gate", "normalize", "weights of the chosen experts sum to 1", NULL},
    {"split", "n", "number of parts", NULL},
    {"combine", "weight", "weights of the chosen experts, from `top_k_gate`", NULL},
    {"repeat_heads", "heads", "heads that there are afterwards", NULL},
    {"attention", "k", "keys", NULL},
    {"cross_entropy", "logits", "[B, S, V], or [B, V]", NULL},
    {"cross_entropy", "labels", "i32 [B, S], or [B]", NULL},
    {"cross_entropy", "lengths", "with [B, V]: i32 [B], classes that a sample has", "V"},
    {"matmul", "w", "[d, n], or transpose of [n, d]", NULL},
    {"transpose", "w", "a matrix", NULL},
    {"batched_matmul", "w", "[experts, d, n], or its transpose", NULL},
    {"conv1d", "w", "[out, C * kernel]", NULL},
    {"conv2d", "w", "[out, C * kernel * kernel]", NULL},
    {"gather", "index", "numbers of positions", NULL},
    {"select", "index", "number of the position or column; negative ones count from the end", NULL},
    {"reshape", "n", "the size after that of the batch", NULL},
    {"concat", "a", "tensor", NULL},
    {"concat", "b", "tensor that follows it", NULL},
    {"einsum", "a", "first tensor", "none"},
    {"einsum", "b", "second tensor", "none"},
    {NULL, "x", "tensor", NULL},
    {NULL, "ids", "i32 [B, S]: rows of the table", NULL},
    {NULL, "table", "[V, d]: a parameter", NULL},
    {NULL, "weight", "[d]: scale of every column", NULL},
    {NULL, "bias", "[d]: shift of every column", NULL},
    {NULL, "eps", "added under the root", NULL},
    {NULL, "offset", "added to `weight` (Gemma: 1)", NULL},
    {NULL, "heads", "number of heads that the columns are divided into", "none: all columns together"},
    {NULL, "negative_slope", "factor of x below 0", NULL},
    {NULL, "approximate", "the approximation by tanh instead of the error function", NULL},
    {NULL, "rate", "share of elements that become zero", "that of `train`"},
    {NULL, "theta", "base of the angles", NULL},
    {NULL, "style", "which columns of a head rotate together: halves (LLaMA) or neighbours (GPT-J)", NULL},
    {NULL, "axis", "1: positions; -1: columns", NULL},
    {NULL, "begin", "first position or column; negative ones count from the end", NULL},
    {NULL, "end", "the one after the last", "the size"},
    {NULL, "width", "columns that there are afterwards", NULL},
    {NULL, "m", "the size after `n`", "none"},
    {NULL, "k", "the size after `m`", "none"},
    {NULL, "stride", "positions from one window to the next", "1"},
    {NULL, "padding", "zeros on every side", "0"},
    {NULL, "height", "rows of the image", NULL},
    {NULL, "equation", "letters of the operands and of the result", NULL},
    {NULL, "target", "what x should be", NULL},
    {NULL, "type", "\"f32\", \"bf16\" or \"f16\"", NULL},
    {NULL, "q", "queries", NULL},
    {NULL, "v", "values", NULL},
    {NULL, "kv_heads", "heads of keys and values (GQA)", "as many as `heads`"},
    {NULL, "causal", "a position sees itself and those before it", NULL},
    {NULL, "scale", "factor of the scores", "1 / sqrt(head size)"},
    {NULL, "pattern", "blocks that are computed: `sparse.fixed(...)` and its like", "all"},
    {NULL, "lengths", "i32 [B]: positions of a sample that are there", "all"},
    {NULL, "window", "positions that one sees, itself among them", "all"},
    {NULL, "softcap", "scores s become softcap * tanh(s / softcap)", "none"},
    {NULL, "alibi", "scores fall with the distance (ALiBi)", "false"},
    {NULL, "cross", "keys and values are of another sequence", NULL},
    {NULL, "relative_bias", "[buckets, heads]: added to scores by distance (T5)", "none"},
    {NULL, "max_distance", "distance from which all share the last bucket", "128 with `relative_bias`"},
    {NULL, "dropout", "rate of dropout of the probabilities", NULL},
    {NULL, "documents", "i32 [B, S]: the document of every position, which sees no other", "none"},
    {NULL, "scores", "[B, S, experts]", NULL},
    {NULL, "capacity",
     "places of an expert in a sample, times those of an even share; or `dropless`: as many as choose it", NULL},
    {NULL, "balance", "factor of the term that evens the load of experts", NULL},
    {NULL, "affinity", "function of the scores", NULL},
    {NULL, "bias_rate", "step by which the bias evens the load", NULL},
    {NULL, "groups", "groups that experts are chosen from", "none"},
    {NULL, "top_groups", "groups that a token may take experts of", "none"},
    {NULL, "room",
     "1 or more, with `capacity = dropless` and `expert`: rows that a rank has room for, times those of an even load",
     "all that could come"},
    {NULL, "slot", "places, from `top_k_gate`", NULL},
    {NULL, "y", "outputs of the experts", NULL},
    {NULL, "ignore_index", "label that does not count", "-1"},
    {NULL, "label_smoothing", "share of the probability that all labels have alike", NULL},
    {NULL, "z_loss", "factor of the squared logarithm of the softmax's sum", NULL},
};

static const char *number_range(zp_argument_range range) {
  switch (range) {
  case ZP_ARGUMENT_ANY: return "";
  case ZP_ARGUMENT_CAPACITY:
  case ZP_ARGUMENT_POSITIVE: return zp_range_text(ZP_RANGE_POSITIVE);
  case ZP_ARGUMENT_NOT_NEGATIVE: return zp_range_text(ZP_RANGE_NOT_NEGATIVE);
  case ZP_ARGUMENT_SHARE:
  case ZP_ARGUMENT_DROPOUT: return zp_range_text(ZP_RANGE_BELOW_ONE);
  }
  return "";
}

static const char *refused_number(zp_argument_range range) {
  static const char *const values[] = {
      [ZP_ARGUMENT_ANY] = "\"no number\"", [ZP_ARGUMENT_POSITIVE] = "0", [ZP_ARGUMENT_CAPACITY] = "0",
      [ZP_ARGUMENT_NOT_NEGATIVE] = "-1",   [ZP_ARGUMENT_SHARE] = "1",    [ZP_ARGUMENT_DROPOUT] = "1"};
  return values[range];
}

/* Type, range, what is refused, and the value that holds without the argument; NULL: in words. */
static const char *describe(zp_arena *arena, const zp_argument *a, zp_reference_row *row) {
  const char *refused = NULL, *unless = NULL;
  bool there = a->missing != 0 || (a->range != ZP_ARGUMENT_POSITIVE && a->kind == ZP_ARGUMENT_NUMBER);
  switch (a->kind) {
  case ZP_ARGUMENT_OPERAND:
  case ZP_ARGUMENT_WEIGHT: row->type = "tensor"; break;
  case ZP_ARGUMENT_NUMBER:
    row->type = "number", row->range = number_range(a->range), refused = refused_number(a->range);
    if (there) unless = zp_decimal(arena, a->missing);
    break;
  case ZP_ARGUMENT_COUNT:
    row->type = "whole number", row->range = zp_range_text(ZP_RANGE_ONE_OR_MORE), refused = "0";
    if (there) unless = zp_format(arena, "%.0f", a->missing);
    break;
  case ZP_ARGUMENT_COLUMN_HEADS:
    row->type = "whole number", row->range = zp_range_text(ZP_RANGE_ONE_OR_MORE), refused = "0";
    break;
  case ZP_ARGUMENT_FLAG: row->type = "true, false", refused = "5", unless = a->missing != 0 ? "true" : "false"; break;
  case ZP_ARGUMENT_WORD:
    row->type = "word", row->range = zp_format(arena, "\"%s\", \"%s\"", a->words[0], a->words[1]);
    refused = "\"no such word\"", unless = zp_format(arena, "\"%s\"", a->words[0]);
    break;
  case ZP_ARGUMENT_PATTERN: row->type = "call", refused = "5"; break;
  case ZP_ARGUMENT_AXIS: row->type = "axis", row->range = "1, -1", refused = "7", unless = "1"; break;
  case ZP_ARGUMENT_OTHER: row->type = "value"; break;
  }
  if (refused) row->outside = zp_format(arena, "%s = %s", a->name, refused);
  return unless;
}

static void add_argument(zp_arena *arena, zp_reference_page *page, const zp_argument *a) {
  zp_reference_row row = {.key = a->name, .type = "", .range = "", .meaning = "", .example = a->name};
  const char *value = describe(arena, a, &row), *words = "none";
  for (size_t i = 0; i < sizeof argument_words / sizeof *argument_words; i++) {
    const char *operation = argument_words[i].operation;
    if (strcmp(argument_words[i].name, a->name) != 0 || (operation && strcmp(operation, page->name) != 0)) continue;
    row.meaning = argument_words[i].meaning;
    words = argument_words[i].unless ? argument_words[i].unless : words;
    break;
  }
  bool by_train = a->range == ZP_ARGUMENT_DROPOUT && strcmp(a->name, "rate") == 0;
  row.unless = a->required ? "required" : value && !by_train ? value : words;
  if (!a->required && value && !by_train) row.written = zp_format(arena, "%s = %s", a->name, value);
  zp_push(arena, &page->rows, row);
}

void zp_reference_operations(zp_arena *arena, zp_reference_pages *pages) {
  for (int i = 0; i < zp_builtin_count(); i++) {
    const zp_builtin *b = zp_builtin_at(i);
    zp_reference_page page = {
        .name = b->name, .within = "", .kind = ZP_REFERENCE_OPERATION, .meaning = b->meaning, .example = b->example};
    for (const zp_argument *a = b->arguments; a->name; a++)
      if (a->name[0] != '!') add_argument(arena, &page, a);
    zp_push(arena, pages, page);
  }
}
