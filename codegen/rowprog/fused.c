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

static int expand_with(zp_row_program *program, const zp_fused_op *op, const int *value) {
  int arg[3] = {0};
  for (int k = 0; k < op->n_arg; k++) arg[k] = value[op->arg[k]];
  return zp_row_expand(program, op, arg);
}

static void build_forward(zp_row_program *program, const zp_node *node) {
  const zp_fused *fused = node->fused;
  int *value = ZP_NEW_ARRAY(program->arena, int, fused->n_in + fused->ops.len);
  program->n_in = fused->n_in;
  for (int i = 0; i < fused->n_in; i++)
    value[i] = zp_row_leaf(program, leaf_op(fused->operand[i]), i, fused->in_cols[i]);
  for (int i = 0; i < fused->ops.len; i++) value[fused->n_in + i] = expand_with(program, &fused->ops.data[i], value);
  for (int i = 0; i < fused->out_value.len; i++) {
    int v = fused->out_value.data[i];
    zp_row_sink_value(program, ZP_ROW_STORE, value[v], fused->ops.data[v - fused->n_in].cols);
  }
}

/* ---- backward ---- */

typedef struct backward {
  zp_row_program *program;
  const zp_node *node;
  const zp_fused *fused;
  int *result; /* per group value: as its op computes it */
  int *given;  /* per group value: as backward should read it: the saved one, else `result` */
  int *grad;   /* per group value: its gradient so far, -1 for none */
  int *alias;  /* per row value of the forward part: the saved value that it equals, or -1 */
  int n_alias;
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
 * dead code (the derivative of a sum does not need its terms). */
static void rebuild_forward(backward *b) {
  const zp_fused *fused = b->fused;
  int n = fused->n_in + fused->ops.len;
  for (int v = 0; v < n; v++) {
    int input = saved_input(b->node, v);
    int leaf = input < 0 ? -1 : saved_leaf(b, v, input);
    if (v >= fused->n_in)
      b->result[v] = expand_with(b->program, &fused->ops.data[v - fused->n_in], b->given);
    else
      b->result[v] = leaf >= 0 ? leaf : zp_row_leaf(b->program, ZP_ROW_UNKNOWN, v, fused->in_cols[v]);
    b->given[v] = leaf >= 0 ? leaf : b->result[v];
  }
  b->n_alias = b->program->values.len;
  b->alias = ZP_NEW_ARRAY(b->program->arena, int, b->n_alias);
  for (int v = 0; v < b->n_alias; v++) b->alias[v] = -1;
  for (int v = fused->n_in; v < n; v++)
    if (b->given[v] != b->result[v]) b->alias[b->result[v]] = b->given[v];
}

static void add_gradient(backward *b, int value, int g) {
  b->grad[value] = b->grad[value] < 0 ? g : zp_row_binary(b->program, ZP_ROW_ADD, b->grad[value], g);
}

static void add_inputs(backward *b, zp_grad_use use) {
  for (int k = 0; k < b->node->grad_in.len; k++) {
    zp_grad_arg arg = b->node->grad_in.data[k];
    if (arg.use == use)
      add_gradient(b, arg.value, zp_row_leaf(b->program, ZP_ROW_ROWS, k, group_cols(b->fused, arg.value)));
  }
}

static void differentiate_op(backward *b, int i) {
  const zp_fused_op *op = &b->fused->ops.data[i];
  int v = b->fused->n_in + i;
  if (b->grad[v] < 0) return;
  int arg[3] = {0}, grad[3] = {-1, -1, -1};
  for (int k = 0; k < op->n_arg; k++) arg[k] = b->given[op->arg[k]];
  zp_row_differentiate(b->program, b->result[v], b->grad[v], arg, op->n_arg, b->alias, b->n_alias, grad);
  for (int k = 0; k < op->n_arg; k++)
    if (grad[k] >= 0) add_gradient(b, op->arg[k], grad[k]);
}

static void store_gradients(backward *b) {
  for (int k = 0; k < b->node->grad_out.len; k++) {
    zp_grad_arg arg = b->node->grad_out.data[k];
    assert(arg.use == ZP_USE_ROWS || arg.use == ZP_USE_COLUMNS);
    int g = b->grad[arg.value] < 0 ? zp_row_imm(b->program, 0) : b->grad[arg.value];
    zp_row_sink_value(b->program, arg.use == ZP_USE_ROWS ? ZP_ROW_STORE : ZP_ROW_CSUM, g,
                      group_cols(b->fused, arg.value));
  }
}

static void build_backward(zp_row_program *program, const zp_node *node) {
  backward b = {.program = program, .node = node, .fused = node->fused};
  int n = node->fused->n_in + node->fused->ops.len;
  program->n_in = node->grad_in.len;
  b.result = ZP_NEW_ARRAY(program->arena, int, n);
  b.given = ZP_NEW_ARRAY(program->arena, int, n);
  b.grad = ZP_NEW_ARRAY(program->arena, int, n);
  for (int v = 0; v < n; v++) b.grad[v] = -1;
  rebuild_forward(&b);
  add_inputs(&b, ZP_USE_GRAD);
  for (int i = node->fused->ops.len - 1; i >= 0; i--) differentiate_op(&b, i);
  add_inputs(&b, ZP_USE_ADDEND);
  store_gradients(&b);
}

zp_row_program *zp_row_from_node(zp_arena *arena, const zp_node *node) {
  assert(node->op == ZP_OP_FUSED || node->op == ZP_OP_FUSED_GRAD);
  zp_row_program *program = zp_row_program_new(arena, node->fused->rows_per_sample);
  if (node->op == ZP_OP_FUSED)
    build_forward(program, node);
  else
    build_backward(program, node);
  return zp_row_legalize(program);
}
