/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products, and those of experts: one an expert. */
#include "ops.h"

/* The product as it is written, with the weight transposed or not; NULL: it is not written as `matmul(..., w)`. */
static const char *turned_text(const zp_rule *rule, const char *weight) {
  if (!rule->diags || rule->span.file < 0) return NULL;
  zp_arena *arena = rule->graph->arena;
  size_t len;
  const char *source = zp_diags_source_text(rule->diags, rule->span.file, &len);
  const char *text = zp_strndup(arena, source + rule->span.begin, rule->span.end - rule->span.begin);
  const char *turned = zp_format(arena, "transpose(%s)", weight);
  const char *is = rule->attr.trans ? turned : weight, *fits = rule->attr.trans ? weight : turned;
  const char *end = zp_format(arena, ", %s)", is);
  size_t whole = strlen(text), tail = strlen(end);
  if (strncmp(text, "matmul(", 7) != 0 || whole < tail || strcmp(text + whole - tail, end) != 0) return NULL;
  return zp_format(arena, "%.*s, %s)", (int)(whole - tail), text, fits);
}

static void rule_matmul(zp_rule *rule) {
  if (!zp_want_activation(rule, 0) || !zp_want_element(rule, 1, ZP_ELEM_FLOAT) || !zp_want_param(rule, 1) ||
      !zp_want_rank(rule, 1, 2))
    return;
  const zp_shape *w = zp_rule_shape(rule, 1);
  int64_t k = w->dim[rule->attr.trans ? 1 : 0];
  if (zp_shape_cols(zp_rule_shape(rule, 0)) != k) {
    const char *x = zp_rule_operand(rule, 0)->name, *by = zp_rule_operand(rule, 1)->name;
    zp_diag *d = zp_rule_fail(rule, ZP_Z0204, "cannot multiply `%s` %s by %s`%s` %s: %lld columns meet %lld rows", x,
                              zp_rule_text(rule, 0), rule->attr.trans ? "the transpose of " : "", by,
                              zp_rule_text(rule, 1), (long long)zp_shape_cols(zp_rule_shape(rule, 0)), (long long)k);
    bool fits = zp_shape_cols(zp_rule_shape(rule, 0)) == w->dim[rule->attr.trans ? 0 : 1];
    const char *turned = d && fits ? turned_text(rule, by) : NULL;
    if (d && fits) {
      const char *what = rule->attr.trans ? "without `transpose` it fits" : "its transpose fits";
      zp_diag_help(d, "%s%s%s%s", what, turned ? ": `" : "", turned ? turned : "", turned ? "`" : "");
    }
    return;
  }
  zp_rule_answer(rule, ZP_ELEM_FLOAT, zp_rule_with_last_of(zp_rule_shape(rule, 0), w, rule->attr.trans ? 0 : 1));
}

static void parts_matmul(zp_parts_pass *pass, const zp_node *node) {
  int x = node->in.data[0], w = node->in.data[1], y = node->out.data[0];
  zp_parts_tie(pass, w, node->attr.trans ? 1 : 0, x, zp_parts_last_dim(pass, x));
  zp_parts_tie(pass, w, node->attr.trans ? 0 : 1, y, zp_parts_last_dim(pass, y));
  zp_parts_tie_trailing(pass, x, y, 1);
}

/* x[rows, k] w -> [rows, n], and its two derivatives: 2 rows k n each. dgrad is (dy, w), wgrad is (dy, x). An
 * epilogue's few operations for an element of the result are not counted: products are what model FLOPs are made of. */
static double flop_matmul(const zp_graph *graph, const zp_node *node, int64_t microbatch) {
  if (node->op == ZP_OP_MATMUL_WGRAD)
    return 2 * zp_cost_elements(graph, node->in.data[0], microbatch) *
           (double)zp_shape_cols(&zp_cost_tensor(graph, node->in.data[1])->shape);
  double rows = (double)zp_shape_rows(&zp_cost_tensor(graph, node->in.data[0])->shape, microbatch);
  return 2 * rows * zp_cost_elements(graph, node->in.data[1], microbatch);
}

/* The gradient of x first: the collective that may follow it can then run alongside the weight's gradient. */
static void diff_product(zp_diff_pass *pass, const zp_node *node, int product, zp_op dgrad_op, zp_op wgrad_op) {
  int x = node->in.data[0], w = node->in.data[1], dy = zp_diff_total(pass, product);
  int first = node->op == ZP_OP_BATCHED_MATMUL && node->in.len > 2 ? node->in.data[2] : -1;
  bool trained = zp_diff_trains(pass, w);
  int kept = trained ? zp_diff_kept_value(pass, x) : -1;
  if (pass->needs[x]) {
    zp_node dgrad = zp_diff_node(node, dgrad_op);
    zp_diff_add_in(pass, &dgrad, dy);
    zp_diff_add_in(pass, &dgrad, w);
    if (first >= 0) zp_diff_add_in(pass, &dgrad, first);
    zp_diff_add_gradient_of(pass, &dgrad, x);
    zp_graph_add_node(pass->graph, dgrad);
  }
  if (!trained) return;
  zp_node wgrad = zp_diff_node(node, wgrad_op);
  zp_diff_add_in(pass, &wgrad, dy);
  zp_diff_add_in(pass, &wgrad, kept);
  if (first >= 0) zp_diff_add_in(pass, &wgrad, first);
  zp_diff_add_param_grad(pass, &wgrad, w);
  zp_graph_add_node(pass->graph, wgrad);
}

static void diff_matmul(zp_diff_pass *pass, const zp_node *node) {
  if (node->fused) {
    zp_node epilogue = zp_epilogue_group(pass->arena, node);
    zp_diff_fused(pass, &epilogue);
  }
  diff_product(pass, node, node->fused ? node->product : node->out.data[0], ZP_OP_MATMUL_DGRAD, ZP_OP_MATMUL_WGRAD);
}

/* ---- one product an expert ---- */

static void rule_batched(zp_rule *rule) {
  if (!zp_want_activation(rule, 0) || !zp_want_element(rule, 1, ZP_ELEM_FLOAT) || !zp_want_param(rule, 1) ||
      !zp_want_rank(rule, 0, 4) || !zp_want_rank(rule, 1, 3))
    return;
  const zp_shape *x = zp_rule_shape(rule, 0), *w = zp_rule_shape(rule, 1);
  int64_t k = w->dim[rule->attr.trans ? 2 : 1];
  bool sorted = rule->n_in > 2;
  if (sorted && !zp_want_element(rule, 2, ZP_ELEM_I32)) return;
  int64_t experts = x->dim[1];
  if (sorted) {
    const zp_tensor *first = zp_rule_operand(rule, 2);
    const zp_node *maker = first->producer >= 0 ? &rule->graph->nodes.data[first->producer] : NULL;
    bool received = maker && maker->op == ZP_OP_SPREAD_COUNTS;
    experts = received ? maker->attr.experts / maker->attr.parts : first->shape.dim[1];
  }
  if (w->dim[0] != experts || x->dim[3] != k) {
    zp_rule_fail(rule, ZP_Z0204,
                 "cannot multiply `%s` %s by %s`%s` %s, one product an expert: %lld experts and %lld columns meet"
                 " %lld experts and %lld rows",
                 zp_rule_operand(rule, 0)->name, zp_rule_text(rule, 0), rule->attr.trans ? "the transposes of " : "",
                 zp_rule_operand(rule, 1)->name, zp_rule_text(rule, 1), (long long)experts, (long long)x->dim[3],
                 (long long)w->dim[0], (long long)k);
    return;
  }
  zp_rule_answer(rule, ZP_ELEM_FLOAT, zp_rule_with_last_of(x, w, rule->attr.trans ? 1 : 2));
}

static void parts_batched(zp_parts_pass *pass, const zp_node *node) {
  int x = node->in.data[0], w = node->in.data[1], y = node->out.data[0];
  if (node->in.len == 2) zp_parts_tie(pass, w, 0, x, 1);
  zp_parts_tie(pass, w, node->attr.trans ? 2 : 1, x, 3);
  zp_parts_tie(pass, w, node->attr.trans ? 1 : 2, y, 3);
  zp_parts_tie_trailing(pass, x, y, 1);
}

/* x[B, experts, slots, k] w[experts, k, n] and its two derivatives: 2 rows k n each, rows of all experts' slots, or one
 * a choice where they are sorted; of those that come from other ranks as many as an even load brings. */
static double flop_batched(const zp_graph *graph, const zp_node *node, int64_t microbatch) {
  const zp_shape *x = &zp_cost_tensor(graph, node->in.data[0])->shape;
  double rows = node->in.len > 2 ? (double)zp_graph_sorted_rows(graph, node, microbatch).rows
                                 : (double)zp_shape_rows(x, microbatch);
  int64_t other = node->op == ZP_OP_BATCHED_MATMUL_WGRAD
                      ? zp_shape_cols(&zp_cost_tensor(graph, node->in.data[1])->shape)
                      : zp_shape_cols(&zp_cost_tensor(graph, node->out.data[0])->shape);
  return 2 * rows * (double)zp_shape_cols(x) * (double)other;
}

static void diff_batched(zp_diff_pass *pass, const zp_node *node) {
  diff_product(pass, node, node->out.data[0], ZP_OP_BATCHED_MATMUL_DGRAD, ZP_OP_BATCHED_MATMUL_WGRAD);
}

const zp_op_row zp_op_row_MATMUL = {
    .rule = rule_matmul, .parts = parts_matmul, .flop = flop_matmul, .differentiate = diff_matmul};
const zp_op_row zp_op_row_MATMUL_DGRAD = {.flop = flop_matmul};
const zp_op_row zp_op_row_MATMUL_WGRAD = {.flop = flop_matmul};
const zp_op_row zp_op_row_BATCHED_MATMUL = {
    .rule = rule_batched, .parts = parts_batched, .flop = flop_batched, .differentiate = diff_batched};
const zp_op_row zp_op_row_BATCHED_MATMUL_DGRAD = {.flop = flop_batched};
const zp_op_row zp_op_row_BATCHED_MATMUL_WGRAD = {.flop = flop_batched};
