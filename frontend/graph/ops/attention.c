/* SPDX-License-Identifier: Apache-2.0 */
/* Attention: its shapes and derivative, and what it sees: keys of a query on average, as a share of dense attention, in
 * words. */
#include <assert.h>
#include <math.h>
#include <string.h>
#include <zplan/sparse.h>
#include "ops.h"

/* ---- operands ---- */

/* What stands after q, k, v, and backward o, lse and do, but for a bias: lengths or documents; -1: nothing. */
static int attention_extents(const zp_node *node) {
  assert(node->op == ZP_OP_ATTENTION || node->op == ZP_OP_ATTENTION_GRAD);
  int first = node->op == ZP_OP_ATTENTION ? 3 : 6, biases = node->attr.max_distance > 0;
  return node->in.len - biases > first ? node->in.data[first] : -1;
}

int zp_attention_lengths(const zp_node *node) { return node->attr.documents ? -1 : attention_extents(node); }

int zp_attention_documents(const zp_node *node) { return node->attr.documents ? attention_extents(node) : -1; }

int zp_attention_bias(const zp_node *node) {
  assert(node->op == ZP_OP_ATTENTION || node->op == ZP_OP_ATTENTION_GRAD);
  return node->attr.max_distance > 0 ? node->in.data[node->in.len - 1] : -1;
}

/* ---- shapes ---- */

/* Checks call rules again with attributes that are filled in. */
static bool want_layout(zp_rule *rule) {
  zp_op_attr *attr = &rule->attr;
  int64_t sequence = zp_rule_shape(rule, 0)->dim[1];
  if (!attr->sparse || (attr->layout && attr->layout->n * attr->layout->block == sequence)) return true;
  const char *error;
  attr->layout = zp_layout_make(rule->graph->arena, attr->sparse, attr->heads, sequence, attr->causal, &error);
  if (!attr->layout) zp_rule_fail(rule, ZP_Z0205, "`attention` with a pattern: %s", error);
  return attr->layout != NULL;
}

/* Lengths are of samples: an input of the model. */
static bool want_lengths(zp_rule *rule, int i) {
  const zp_tensor *t = zp_rule_operand(rule, i);
  if (t->role == ZP_ROLE_INPUT && t->element == ZP_ELEM_I32 && zp_rule_shape(rule, i)->rank == 1) return true;
  zp_rule_fail(rule, ZP_Z0204, "`lengths` of `attention` is the model's `input lengths: i32[B]`, not `%s` %s", t->name,
               zp_rule_text(rule, i));
  return false;
}

/* Documents are of positions: an input of its own, of as many positions as there are queries. */
static bool want_documents(zp_rule *rule, int i) {
  const zp_tensor *t = zp_rule_operand(rule, i);
  const zp_shape *shape = zp_rule_shape(rule, i);
  int64_t positions = zp_rule_shape(rule, 0)->dim[1] * (rule->attr.parts > 1 ? rule->attr.parts : 1);
  bool taken = strcmp(t->name, "tokens") == 0 || strcmp(t->name, "labels") == 0;
  if (t->role != ZP_ROLE_INPUT || t->element != ZP_ELEM_I32 || shape->rank != 2 || shape->dim[1] != positions ||
      taken) {
    zp_diag *d = zp_rule_fail(rule, ZP_Z0204, "`documents` of `attention` are an input i32[B, %lld], not `%s` %s",
                              (long long)positions, t->name, zp_rule_text(rule, i));
    zp_rule_help(d,
                 "declare `input documents: i32[B, S]`, which says of every position which document it is of; `zplan "
                 "data jsonl --pack --documents` makes it");
    return false;
  }
  if (!rule->attr.cross && !rule->attr.sparse) return true;
  zp_rule_help(zp_rule_fail(rule, ZP_Z0216, "`attention` with documents and %s is known but not built yet",
                            rule->attr.cross ? "keys of another sequence" : "a pattern"),
               rule->attr.cross ? "where documents are apart, let each be a sample, with `lengths`"
                                : "dense attention of documents computes no pair of two of them, either");
  return false;
}

/* A window that reaches over the whole sequence is none. */
static bool want_window(zp_rule *rule) {
  zp_op_attr *attr = &rule->attr;
  if (attr->window >= zp_rule_shape(rule, 0)->dim[1] * (attr->parts > 1 ? attr->parts : 1)) attr->window = 0;
  if (!attr->window || !attr->sparse) return true;
  zp_rule_help(zp_rule_fail(rule, ZP_Z0216, "`attention` with a pattern and a window is known but not built yet"),
               "a pattern says already which blocks are seen: leave one of the two away");
  return false;
}

/* Queries and keys are of one sequence, or of two that are distinguished. */
static bool want_sequences(zp_rule *rule) {
  const zp_op_attr *attr = &rule->attr;
  int64_t ranks = attr->parts > 1 && !attr->ring ? attr->parts : 1; /* that have queries of their own, and all keys */
  if (!attr->cross && zp_rule_shape(rule, 0)->dim[1] * ranks != zp_rule_shape(rule, 1)->dim[1]) {
    zp_rule_help(
        zp_rule_fail(rule, ZP_Z0204,
                     "`attention` needs queries and keys of one sequence length, but `%s` is %s and `%s` is %s",
                     zp_rule_operand(rule, 0)->name, zp_rule_text(rule, 0), zp_rule_operand(rule, 1)->name,
                     zp_rule_text(rule, 1)),
        "where keys are of another sequence, as an encoder's output is, write `cross = true, causal = false`");
    return false;
  }
  const char *along = attr->causal         ? "`causal = true`"
                      : attr->sparse       ? "a pattern"
                      : attr->window       ? "a window"
                      : attr->alibi_heads  ? "ALiBi"
                      : attr->max_distance ? "a relative bias"
                                           : NULL;
  if (!attr->cross || !along) return true;
  zp_rule_help(zp_rule_fail(rule, ZP_Z0205,
                            "`attention` with `cross = true` has %s, which counts positions of one sequence", along),
               "positions of two sequences have no distance: write `cross = true, causal = false`");
  return false;
}

/* A parameter [buckets, heads]. Without causality half of the buckets are for keys after the query; of those of a
 * side, half are single distances and the others longer and longer stretches. */
static bool want_bias(zp_rule *rule) {
  const zp_op_attr *attr = &rule->attr;
  if (!attr->max_distance) return true;
  int i = rule->n_in - 1;
  const zp_tensor *t = zp_rule_operand(rule, i);
  const zp_shape *shape = zp_rule_shape(rule, i);
  if (t->role != ZP_ROLE_PARAM || shape->rank != 2 || shape->dim[1] != attr->heads) {
    zp_rule_fail(rule, ZP_Z0204, "`relative_bias` of `attention` is a parameter [buckets, heads], not `%s` %s", t->name,
                 zp_rule_text(rule, i));
    return false;
  }
  int64_t side = attr->causal ? shape->dim[0] : shape->dim[0] / 2;
  if (side < 2 || side % 2 || (!attr->causal && shape->dim[0] % 2) || attr->max_distance <= side / 2) {
    zp_rule_fail(
        rule, ZP_Z0205,
        "a relative bias has an even number of buckets for each side that is seen, and `max_distance` is above "
        "half of it: not %lld buckets and %lld",
        (long long)shape->dim[0], (long long)attr->max_distance);
    return false;
  }
  if (!attr->sparse && !attr->alibi_heads) return true;
  zp_rule_fail(rule, ZP_Z0216, "`attention` with a relative bias and %s is known but not built yet",
               attr->sparse ? "a pattern" : "ALiBi");
  return false;
}

/* The numbers of a sample's pairs of positions must have room in the counter, in which rows of keys begin at multiples
 * of four. */
static bool want_dropout(zp_rule *rule) {
  const zp_op_attr *attr = &rule->attr;
  double keys = ceil((double)zp_rule_shape(rule, 1)->dim[1] / 4) * 4;
  double pairs = (double)attr->heads * (double)zp_rule_shape(rule, 0)->dim[1] * keys;
  if (!(attr->rate >= 0 && attr->rate < 1)) {
    zp_rule_fail(rule, ZP_Z0208, "`dropout` of `attention` must be at least 0 and below 1, not %g", attr->rate);
    return false;
  }
  if (attr->rate == 0 || pairs <= 0x1p34) return true;
  zp_rule_help(zp_rule_fail(rule, ZP_Z0208,
                            "`dropout` of `attention` has numbers for 2^34 pairs of positions, not for %.4g", pairs),
               "heads * queries * keys of one sample: shorter samples, or no dropout on probabilities");
  return false;
}

static void rule_attention(zp_rule *rule) {
  zp_op_attr *attr = &rule->attr;
  for (int i = 0; i < 3; i++)
    if (!zp_want_activation(rule, i) || !zp_want_rank(rule, i, 3)) return;
  if (!attr->kv_heads) attr->kv_heads = attr->heads;
  if (!zp_want_heads(rule, 0, attr->heads, "heads") || !zp_want_positive(rule, "kv_heads", (double)attr->kv_heads))
    return;
  if (attr->heads % attr->kv_heads) {
    zp_rule_fail(rule, ZP_Z0205, "kv_heads %lld does not divide heads %lld", (long long)attr->kv_heads,
                 (long long)attr->heads);
    return;
  }
  if (!zp_want_heads(rule, 1, attr->kv_heads, "kv_heads") || !zp_want_same_shape(rule, 1, 2)) return;
  if (!want_sequences(rule)) return;
  if (!(attr->softcap >= 0 && isfinite(attr->softcap))) {
    zp_rule_fail(rule, ZP_Z0208, "`softcap` of `attention` must be positive, not %g", attr->softcap);
    return;
  }
  if (!want_dropout(rule)) return;
  bool extents = rule->n_in - (attr->max_distance > 0) > 3;
  if (extents && !(attr->documents ? want_documents : want_lengths)(rule, 3)) return;
  if (!want_window(rule) || !want_layout(rule) || !want_bias(rule)) return;
  if (attr->scale == 0) attr->scale = 1 / sqrt((double)attr->head_size);
  zp_rule_answer(rule, ZP_ELEM_FLOAT, *zp_rule_shape(rule, 0));
  const zp_extent *heads = attr->heads_extent;
  zp_rule_answer(
      rule, ZP_ELEM_STAT,
      zp_rule_with_last(zp_rule_shape(rule, 0), attr->heads, heads && heads->value == attr->heads ? heads : NULL));
}

/* Attention maps unit to unit: the same number of units everywhere, of different sizes. */
static void parts_attention(zp_parts_pass *pass, const zp_node *node) {
  int ids[4] = {node->in.data[0], node->out.data[0], node->in.data[1], node->in.data[2]};
  int bias = zp_attention_bias(node);
  for (int i = 0; i < 4; i++) {
    zp_parts_require(pass, ids[i], 2, (zp_parts){1, node->attr.kv_heads});
    zp_parts_tie(pass, ids[0], 2, ids[i], 2);
    zp_parts_tie(pass, node->attr.cross && i > 1 ? ids[2] : ids[0], 1, ids[i], 1);
  }
  if (bias < 0) return;
  zp_parts_require(pass, bias, 1, (zp_parts){1, node->attr.kv_heads});
  zp_parts_tie(pass, ids[0], 2, bias, 1);
}

/* Numbers of documents, which ascend; lengths of samples. */
static zp_input_range range_of_extents(zp_input *input, const zp_graph *graph, const zp_node *node, int i) {
  (void)i;
  if (!node->attr.documents) return (zp_input_range){1, graph->tensors.data[node->in.data[1]].shape.dim[1] + 1};
  input->documents = true;
  return (zp_input_range){-1, INT32_MAX};
}

bool zp_attention_by_pairs(const zp_op_attr *attr) {
  return attr->parts > 1 && (attr->window || attr->rate > 0 || attr->documents || attr->sparse);
}

int64_t zp_attention_most(const zp_graph *graph, const zp_node *node) {
  int i = node->op == ZP_OP_ATTENTION_GRAD || zp_attention_by_pairs(&node->attr) ? 0 : 1;
  int64_t positions = graph->tensors.data[node->in.data[i]].shape.dim[1];
  return zp_attention_by_pairs(&node->attr) ? positions / 2 : positions;
}

/* ---- work and derivative ---- */

int64_t zp_attention_positions(const zp_graph *graph, const zp_node *node) {
  return zp_cost_tensor(graph, node->in.data[1])->shape.dim[1] * (node->attr.ring ? node->attr.parts : 1);
}

/* Forward: scores q k^T and p v, 2 B S^2 heads head_size each (S times the keys of another sequence), half of it when
 * causal, less where not all is seen. Backward: dv, dp, dq, dk and the scores once more, because they are never
 * stored: 2.5 times the forward work. */
static double flop_attention(const zp_graph *graph, const zp_node *node, int64_t microbatch) {
  const zp_shape *q = &zp_cost_tensor(graph, node->in.data[0])->shape;
  int64_t keys = zp_attention_positions(graph, node);
  double forward = 4 * (double)zp_shape_elements(q, microbatch) * zp_attention_keys(&node->attr, keys);
  return node->op == ZP_OP_ATTENTION_GRAD ? 2.5 * forward : forward;
}

static void diff_attention(zp_diff_pass *pass, const zp_node *node) {
  zp_node grad = zp_diff_node(node, ZP_OP_ATTENTION_GRAD);
  int dy = zp_diff_total(pass, node->out.data[0]);
  for (int i = 0; i < 3; i++)
    zp_diff_add_in(pass, &grad,
                   i > 0 && node->attr.parts > 1 && !node->attr.ring ? zp_diff_gather_again(pass, node->in.data[i])
                                                                     : node->in.data[i]);
  for (int i = 0; i < 2; i++) zp_diff_add_in(pass, &grad, node->out.data[i]);
  zp_diff_add_in(pass, &grad, dy);
  int bias = zp_attention_bias(node);
  if (zp_attention_lengths(node) >= 0) zp_diff_add_in(pass, &grad, zp_attention_lengths(node));
  if (zp_attention_documents(node) >= 0) zp_diff_add_in(pass, &grad, zp_attention_documents(node));
  if (bias >= 0) zp_diff_add_in(pass, &grad, bias);
  if (bias >= 0 && zp_diff_trains(pass, bias)) zp_diff_add_param_grad(pass, &grad, bias);
  for (int i = 0; i < 3; i++) zp_diff_add_gradient_of(pass, &grad, node->in.data[i]);
  zp_graph_add_node(pass->graph, grad);
}

const zp_op_row zp_op_row_ATTENTION = {.second = "lse",
                                       .rule = rule_attention,
                                       .range = range_of_extents,
                                       .parts = parts_attention,
                                       .flop = flop_attention,
                                       .differentiate = diff_attention};
const zp_op_row zp_op_row_ATTENTION_GRAD = {.flop = flop_attention};

/* ---- what it sees ---- */

/* In a window: of causal attention `window` keys, but for the first queries, before which fewer stand; as in dense
 * attention half of a query's pair with itself is counted. Both ways there are as many on the other side. */
static double window_keys(const zp_op_attr *attr, double sequence) {
  double window = (double)attr->window, one_side = window - 0.5 - window * (window - 1) / (2 * sequence);
  return attr->causal ? one_side : 2 * one_side;
}

double zp_attention_keys(const zp_op_attr *attr, int64_t sequence) {
  assert(sequence >= 1 && attr->window >= 0 && attr->window < sequence + 1);
  if (attr->layout) return zp_layout_longest(attr->layout, attr->heads).seen / (double)sequence;
  if (attr->window) return window_keys(attr, (double)sequence);
  return (double)sequence * (attr->causal ? 0.5 : 1);
}

double zp_attention_reach(const zp_op_attr *attr, double sequence) {
  assert(sequence >= 1);
  return attr->window ? fmin((double)attr->window, sequence) : sequence;
}

double zp_attention_density(const zp_op_attr *attr, int64_t sequence) {
  return zp_attention_keys(attr, sequence) / ((double)sequence * (attr->causal ? 0.5 : 1));
}

static void add_new(zp_arena *arena, zp_strings *list, const char *text) {
  for (int i = 0; i < list->len; i++)
    if (strcmp(list->data[i], text) == 0) return;
  zp_push(arena, list, text);
}

zp_strings zp_attention_texts(zp_arena *arena, const zp_model *model) {
  zp_strings list = {0};
  for (int s = 0; s < model->segments.len; s++) {
    const zp_graph *graph = model->segments.data[s].graph;
    for (int n = 0; n < graph->nodes.len; n++) {
      const zp_op_attr *attr = &graph->nodes.data[n].attr;
      if (graph->nodes.data[n].op != ZP_OP_ATTENTION) continue;
      if (attr->layout) add_new(arena, &list, zp_layout_text(arena, attr->layout));
      if (attr->window)
        add_new(arena, &list,
                zp_format(arena, "window of %lld tokens, %s: %.3g%% of dense attention", (long long)attr->window,
                          attr->causal ? "causal" : "both ways", 100 * zp_attention_density(attr, model->sequence)));
    }
  }
  return list;
}
