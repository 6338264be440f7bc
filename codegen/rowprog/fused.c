/* SPDX-License-Identifier: Apache-2.0 */
/* From FUSED and FUSED_GRAD nodes to row programs. */
#include <assert.h>
#include "rowprog.h"

static zp_row_op leaf_op(zp_operand operand) {
  switch (operand) {
  case ZP_OPERAND_ROWS: return ZP_ROW_ROWS;
  case ZP_OPERAND_COLUMNS: return ZP_ROW_COLUMNS;
  case ZP_OPERAND_POSITION: return ZP_ROW_POSITION;
  }
  assert(!"unknown operand kind");
  return ZP_ROW_ROWS;
}

static int expand_with(zp_row_program *program, const zp_fused_op *op, const char *name, const int *value) {
  int arg[3] = {0};
  for (int k = 0; k < op->n_arg; k++) arg[k] = value[op->arg[k]];
  program->scope = name;
  int result = zp_row_expand(program, op, arg);
  program->scope = NULL;
  const char *words =
      zp_format(program->arena, "`%s` of the model, %s", op->name ? op->name : name, zp_op_name(op->op));
  return zp_row_named(program, result, name, words);
}

/* ---- names ---- */

/* The forward node of a group. */
static const zp_node *forward_of(const zp_graph *graph, const zp_node *node) {
  if (node->op == ZP_OP_FUSED) return node;
  for (int n = 0; graph && n < graph->nodes.len; n++)
    if (graph->nodes.data[n].op == ZP_OP_FUSED && graph->nodes.data[n].fused == node->fused)
      return &graph->nodes.data[n];
  return NULL;
}

static const char *input_name(zp_arena *arena, const zp_graph *graph, const zp_node *forward, int i) {
  static const char *const kind[] = {
      [ZP_OPERAND_ROWS] = "x", [ZP_OPERAND_COLUMNS] = "per_column", [ZP_OPERAND_POSITION] = "per_position"};
  const zp_tensor *t = graph ? &graph->tensors.data[forward->in.data[i]] : NULL;
  if (t) return t->role == ZP_ROLE_CARRY_IN ? "x" : zp_row_short_name(arena, t->name);
  return kind[forward->fused->operand[i]];
}

/* A name that none of the first `count` has. */
static const char *distinct(zp_arena *arena, const char *const *names, int count, const char *name) {
  static const char *const words[] = {"first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"};
  const char *found = name;
  for (size_t k = 1;; k++) {
    bool taken = false;
    for (int i = 0; i < count; i++) taken |= strcmp(names[i], found) == 0;
    if (!taken) return found;
    name = k % 8 ? name : zp_format(arena, "%s_other", name);
    found = zp_format(arena, "%s_%s", name, words[k % 8]);
  }
}

const char **zp_row_group_names(zp_arena *arena, const zp_graph *graph, const zp_node *node) {
  const zp_fused *fused = node->fused;
  const zp_node *forward = forward_of(graph, node);
  const zp_node unnamed = {.fused = node->fused};
  int n = fused->n_in + fused->ops.len;
  const char **names = ZP_NEW_ARRAY(arena, const char *, n + 1);
  for (int v = 0; v < n; v++) {
    const char *name = v >= fused->n_in ? zp_row_short_name(arena, fused->ops.data[v - fused->n_in].name)
                                        : input_name(arena, forward ? graph : NULL, forward ? forward : &unnamed, v);
    names[v] = distinct(arena, names, v, name);
  }
  return names;
}

/* The name of an operand of a gradient's kernel: a kept value, or the gradient of one that arrives. */
static const char *operand_name(zp_arena *arena, const char *const *group, zp_grad_arg arg) {
  if (arg.use == ZP_USE_SAVED) return group[arg.value];
  return zp_format(arena, arg.use == ZP_USE_ADDEND ? "d_%s_so_far" : "d_%s", group[arg.value]);
}

static void name_operands(zp_row_program *program, const zp_node *node, const char *const *group) {
  program->in_name = ZP_NEW_ARRAY(program->arena, const char *, program->n_in + 1);
  for (int k = 0; k < program->n_in; k++) {
    const char *name = node->op == ZP_OP_FUSED ? group[k] : operand_name(program->arena, group, node->grad_in.data[k]);
    program->in_name[k] = distinct(program->arena, program->in_name, k, name);
  }
}

/* ---- forward ---- */

static void build_forward(zp_row_program *program, const zp_node *node, const char *const *group) {
  const zp_fused *fused = node->fused;
  int *value = ZP_NEW_ARRAY(program->arena, int, fused->n_in + fused->ops.len);
  program->n_in = fused->n_in;
  name_operands(program, node, group);
  for (int i = 0; i < fused->n_in; i++)
    value[i] = zp_row_leaf(program, leaf_op(fused->operand[i]), i, fused->in_cols[i]);
  for (int i = 0; i < fused->ops.len; i++)
    value[fused->n_in + i] = expand_with(program, &fused->ops.data[i], group[fused->n_in + i], value);
  for (int i = 0; i < fused->out_value.len; i++) {
    int v = fused->out_value.data[i];
    zp_row_sink_value(program, ZP_ROW_STORE, value[v], fused->ops.data[v - fused->n_in].cols, group[v]);
  }
}

/* ---- backward ---- */

typedef struct backward {
  zp_row_program *program;
  const zp_node *node;
  const zp_fused *fused;
  const char *const *group; /* per group value: its name */
  int *value;               /* per group value: as backward reads it, the saved one where there is one */
  int count;                /* row values of the forward part */
  int *origin;              /* per row value: of a saved result, the value that its op computes; else -1 */
  int *adjoint;             /* per row value: its gradient so far, -1 for none */
} backward;

static int64_t group_cols(const zp_fused *fused, int value) {
  return value < fused->n_in ? fused->in_cols[value] : fused->ops.data[value - fused->n_in].cols;
}

/* The kernel input that holds group value `value`, -1 when it was not saved. */
static int saved_input(const zp_node *node, int value) {
  for (int k = 0; k < node->grad_in.len; k++)
    if (node->grad_in.data[k].use == ZP_USE_SAVED && node->grad_in.data[k].value == value) return k;
  return -1;
}

static int saved_leaf(backward *b, int value, int input) {
  zp_operand kind = value < b->fused->n_in ? b->fused->operand[value] : ZP_OPERAND_ROWS;
  return zp_row_leaf(b->program, leaf_op(kind), input, group_cols(b->fused, value));
}

/* Values that were not saved are computed again; group inputs that were not saved stay UNKNOWN and must turn out to be
 * dead code (the derivative of a sum does not need its terms). A saved result is a leaf that stands after the value it
 * was computed as; both are on the tape. */
static void rebuild_forward(backward *b) {
  const zp_fused *fused = b->fused;
  int n = fused->n_in + fused->ops.len;
  int *computed = ZP_NEW_ARRAY(b->program->arena, int, n);
  for (int v = 0; v < n; v++) {
    computed[v] =
        v < fused->n_in ? -1 : expand_with(b->program, &fused->ops.data[v - fused->n_in], b->group[v], b->value);
    int input = saved_input(b->node, v);
    if (input >= 0)
      b->value[v] = saved_leaf(b, v, input);
    else
      b->value[v] = computed[v] >= 0 ? computed[v] : zp_row_leaf(b->program, ZP_ROW_UNKNOWN, v, fused->in_cols[v]);
  }
  b->count = b->program->values.len;
  b->origin = ZP_NEW_ARRAY(b->program->arena, int, b->count);
  b->adjoint = ZP_NEW_ARRAY(b->program->arena, int, b->count);
  for (int v = 0; v < b->count; v++) b->origin[v] = b->adjoint[v] = -1;
  for (int v = fused->n_in; v < n; v++)
    if (b->value[v] != computed[v]) b->origin[b->value[v]] = computed[v];
}

static void add_gradient(backward *b, int group_value, int g) {
  int *adjoint = &b->adjoint[b->value[group_value]];
  *adjoint = *adjoint < 0 ? g : zp_row_binary(b->program, ZP_ROW_ADD, *adjoint, g);
}

static void add_inputs(backward *b, zp_grad_use use) {
  for (int k = 0; k < b->node->grad_in.len; k++) {
    zp_grad_arg arg = b->node->grad_in.data[k];
    if (arg.use == use)
      add_gradient(b, arg.value, zp_row_leaf(b->program, ZP_ROW_ROWS, k, group_cols(b->fused, arg.value)));
  }
}

static void store_gradients(backward *b) {
  for (int k = 0; k < b->node->grad_out.len; k++) {
    zp_grad_arg arg = b->node->grad_out.data[k];
    assert(arg.use == ZP_USE_ROWS || arg.use == ZP_USE_COLUMNS);
    int g = b->adjoint[b->value[arg.value]];
    assert(g >= 0); /* the graph asks only for gradients of values that a gradient reaches */
    zp_row_sink_value(b->program, arg.use == ZP_USE_ROWS ? ZP_ROW_STORE : ZP_ROW_CSUM, g,
                      group_cols(b->fused, arg.value), zp_format(b->program->arena, "d_%s", b->group[arg.value]));
  }
}

static void build_backward(zp_row_program *program, const zp_node *node, const char *const *group) {
  backward b = {.program = program, .node = node, .fused = node->fused, .group = group};
  program->n_in = node->grad_in.len;
  name_operands(program, node, group);
  b.value = ZP_NEW_ARRAY(program->arena, int, node->fused->n_in + node->fused->ops.len);
  rebuild_forward(&b);
  add_inputs(&b, ZP_USE_GRAD);
  zp_row_differentiate(program, b.count, b.origin, b.adjoint);
  add_inputs(&b, ZP_USE_ADDEND);
  store_gradients(&b);
}

zp_row_program *zp_row_from_node(zp_arena *arena, const zp_graph *graph, const zp_node *node) {
  assert(node->op == ZP_OP_FUSED || node->op == ZP_OP_FUSED_GRAD);
  zp_row_program *program = zp_row_program_new(arena, node->fused->rows_per_sample);
  const char **group = zp_row_group_names(arena, graph, node);
  if (node->op == ZP_OP_FUSED)
    build_forward(program, node, group);
  else
    build_backward(program, node, group);
  program = zp_row_legalize(program);
  zp_row_name_values(program);
  return program;
}
