/* The op table: names and classes from ZP_OPS, and what else is known about an op without looking at shapes. */
#include <assert.h>
#include "graph_internal.h"

static const struct {
  const char *identifier, *name;
  zp_op_class class;
} op_names[ZP_OP_COUNT] = {
#define ZP_OP_ROW(id, text, kind) {#id, text, ZP_CLASS_##kind},
    ZP_OPS(ZP_OP_ROW)
#undef ZP_OP_ROW
};

/* FLOP per element: adds and multiplies as written; an exponential, logarithm or tangent counts 10, about what its
 * polynomial costs. Row kernels are bound by memory, so these estimates hardly move a plan. `reads[k]`: bit j set when
 * the derivative with respect to operand k reads the forward value of operand j. */
typedef struct row_facts {
  int arity;
  double flop;
  unsigned reads[3];
} row_facts;
enum { A = 1, B = 2 };
static const row_facts rows[ZP_OP_COUNT] = {
    [ZP_OP_ADD] = {2, 1, {0}},
    [ZP_OP_SUB] = {2, 1, {0}},
    [ZP_OP_MUL] = {2, 1, {B, A}},
    [ZP_OP_DIV] = {2, 1, {B, A | B}},
    [ZP_OP_ADD_CONST] = {1, 1, {0}},
    [ZP_OP_MUL_CONST] = {1, 1, {0}},
    [ZP_OP_EXP] = {1, 10, {A}},
    [ZP_OP_LOG] = {1, 10, {A}},
    [ZP_OP_SQRT] = {1, 1, {A}},
    [ZP_OP_RSQRT] = {1, 2, {A}},
    [ZP_OP_TANH] = {1, 10, {A}},
    [ZP_OP_SIGMOID] = {1, 12, {A}},
    [ZP_OP_RELU] = {1, 1, {A}},
    [ZP_OP_SILU] = {1, 13, {A}},
    [ZP_OP_GELU] = {1, 16, {A}},
    [ZP_OP_CAST_BF16] = {1, 4, {0}},
    [ZP_OP_CAST_F16] = {1, 4, {0}},
    [ZP_OP_CAST_F32] = {1, 1, {0}},
    [ZP_OP_LAYER_NORM] = {3, 8, {A | B, A, 0}},
    [ZP_OP_RMS_NORM] = {2, 4, {A | B, A}},
    [ZP_OP_SOFTMAX] = {1, 13, {A}},
    [ZP_OP_DROPOUT] = {1, 2, {0}},
    [ZP_OP_ROPE] = {1, 3, {0}},
};

const char *zp_op_name(zp_op op) {
  assert(op < ZP_OP_COUNT);
  return op_names[op].name;
}
const char *zp_op_identifier(zp_op op) {
  assert(op < ZP_OP_COUNT);
  return op_names[op].identifier;
}
zp_op_class zp_op_get_class(zp_op op) {
  assert(op < ZP_OP_COUNT);
  return op_names[op].class;
}
bool zp_op_is_row(zp_op op) { return op_names[op].class == ZP_CLASS_ROW; }
double zp_op_row_flop(zp_op op) { return rows[op].flop; }

unsigned zp_op_backward_reads(zp_op op, int operand) {
  assert(zp_op_is_row(op) && operand >= 0 && operand < rows[op].arity);
  return rows[op].reads[operand];
}

bool zp_op_takes(zp_op op, int operands) {
  return operands == zp_op_arity(op) || (op == ZP_OP_ATTENTION && operands <= 5 && operands > 3) ||
         (op == ZP_OP_TOP_K_GATE && operands == 2) ||
         ((op == ZP_OP_CROSS_ENTROPY || op == ZP_OP_CE_STATS) && operands == 3) ||
         (op == ZP_OP_CE_LOSS && operands == 1);
}

int zp_op_arity(zp_op op) {
  if (zp_op_is_row(op)) return rows[op].arity;
  switch (op) {
  case ZP_OP_SPLIT:
  case ZP_OP_MEAN:
  case ZP_OP_SLICE:
  case ZP_OP_COLUMN:
  case ZP_OP_REDUCE:
  case ZP_OP_REDUCE_COLUMNS:
  case ZP_OP_RESHAPE:
  case ZP_OP_TRANSPOSE:
  case ZP_OP_UNFOLD:
  case ZP_OP_COLUMNS:
  case ZP_OP_REPEAT_COLUMNS:
  case ZP_OP_TOP_K_GATE:
  case ZP_OP_ALL_REDUCE:
  case ZP_OP_ENTER:
  case ZP_OP_ALL_GATHER_SEQ:
  case ZP_OP_REDUCE_SCATTER_SEQ:
  case ZP_OP_SPREAD_SLOTS:
  case ZP_OP_RETURN_SLOTS:
  case ZP_OP_GATHER_STATS: return 1;
  case ZP_OP_EMBEDDING:
  case ZP_OP_MATMUL:
  case ZP_OP_BATCHED_MATMUL:
  case ZP_OP_DISPATCH:
  case ZP_OP_CONCAT:
  case ZP_OP_GATHER:
  case ZP_OP_JOIN_COLUMNS:
  case ZP_OP_SQUARED_ERROR:
  case ZP_OP_SE_STATS:
  case ZP_OP_CROSS_ENTROPY:
  case ZP_OP_CE_STATS:
  case ZP_OP_CE_LOSS: return 2;
  case ZP_OP_COMBINE:
  case ZP_OP_ATTENTION: return 3;
  default: return -1;
  }
}
