/* SPDX-License-Identifier: Apache-2.0 */
/* The op table: numbers and classes, and where the functions of an op are. */
#include <assert.h>
#include "ops.h"

/* The letters of the table. */
enum { _ = 0, A = 1, B = 2, AB = A | B };
enum {
  E = ZP_FLAG_ELEMENTWISE,
  Z = ZP_FLAG_KEEPS_ZERO,
  I = ZP_FLAG_INFIX,
  L = ZP_FLAG_LINEAR,
  P = ZP_FLAG_POLE,
  M = ZP_FLAG_MIXES_POSITIONS,
  S = ZP_FLAG_SELDOM,
  O = ZP_FLAG_AUTOGRAD_OPERANDS,
  R = ZP_FLAG_AUTOGRAD_RESULTS,
  H = ZP_FLAG_HEADS,
  N = ZP_FLAG_HEAD_ROWS,
  C = ZP_FLAG_COLUMN_RANGE
};

/* flop: of an element of the result. reads[k]: bit j set when the derivative with respect to operand k reads the
 * forward value of operand j. Both of ROW ops. */
static const struct {
  const char *identifier, *name;
  zp_op_class class;
  zp_attr_group attributes;
  int least, most;
  unsigned flags;
  double flop;
  unsigned reads[3];
} ops[ZP_OP_COUNT] = {
#define OP(id, name, class, attributes, least, most, flags)                                                            \
  {#id, name, ZP_CLASS_##class, ZP_ATTRS_##attributes, least, most, flags, 0, {0}},
#define ROW(id, name, operands, flop, a, b, c, flags)                                                                  \
  {#id, name, ZP_CLASS_ROW, ZP_ATTRS_ROW, operands, operands, flags, flop, {a, b, c}},
#include <zplan/ops.def>
};

const char *zp_op_name(zp_op op) {
  assert(op < ZP_OP_COUNT);
  return ops[op].name;
}
const char *zp_op_identifier(zp_op op) {
  assert(op < ZP_OP_COUNT);
  return ops[op].identifier;
}
zp_op_class zp_op_get_class(zp_op op) {
  assert(op < ZP_OP_COUNT);
  return ops[op].class;
}
zp_attr_group zp_op_get_attributes(zp_op op) {
  assert(op < ZP_OP_COUNT);
  return ops[op].attributes;
}
bool zp_op_has(zp_op op, zp_op_flag flag) {
  assert(op < ZP_OP_COUNT);
  return (ops[op].flags & flag) != 0;
}
bool zp_op_is_row(zp_op op) { return ops[op].class == ZP_CLASS_ROW; }
double zp_op_row_flop(zp_op op) { return ops[op].flop; }

unsigned zp_op_backward_reads(zp_op op, int operand) {
  assert(zp_op_is_row(op) && operand >= 0 && operand < ops[op].least);
  return ops[op].reads[operand];
}

bool zp_op_takes(zp_op op, int operands) { return operands >= ops[op].least && operands <= ops[op].most; }

int zp_op_arity(zp_op op) { return ops[op].least; }

const zp_op_row *zp_op_get_row(zp_op op) {
  static const zp_op_row *const rows[ZP_OP_COUNT] = {
#define OP(id, ...) &zp_op_row_##id,
#include <zplan/ops.def>
  };
  assert(op < ZP_OP_COUNT);
  return rows[op];
}
