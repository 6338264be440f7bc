/* SPDX-License-Identifier: Apache-2.0 */
/* From what differentiation likes to what a loop over columns can do: SWAP moves to the leaves, where it is only
 * another address, RLSE becomes its three steps, and values that no sink needs disappear. */
#include <assert.h>
#include "rowprog.h"

typedef struct legalizer {
  const zp_row_program *old;
  zp_row_program *program;
  int *map; /* old value -> new value */
} legalizer;

static void mark_live(const zp_row_program *program, bool *live) {
  for (int i = 0; i < program->sinks.len; i++) live[program->sinks.data[i].value] = true;
  for (int v = program->values.len - 1; v >= 0; v--) {
    if (!live[v]) continue;
    const zp_row_value *value = &program->values.data[v];
    for (int i = 0; i < zp_row_args(value->op); i++) live[value->arg[i]] = true;
  }
}

static int swapped_leaf(zp_row_program *program, zp_row_value leaf, zp_row_pairs pairs) {
  /* Two different pairings of one row would need a general permutation. No group has them: all heads of a row have one
   * size, and fused rows agree in shape. */
  assert(leaf.swap.head == 0 || (leaf.swap.head == pairs.head && leaf.swap.interleaved == pairs.interleaved));
  leaf.swap = leaf.swap.head ? (zp_row_pairs){0} : pairs;
  return zp_row_emit(program, leaf);
}

/* The value that column j of the result reads at the other column of j's pair: elementwise ops commute with a
 * permutation of columns, reductions do not see it. done: per value, its swapped form or -1. */
static int push_swap(zp_row_program *program, int v, zp_row_pairs pairs, int *done) {
  const zp_row_value value = program->values.data[v];
  if (value.cols == 0) return v;
  if (done[v] >= 0) return done[v];
  int args = zp_row_args(value.op);
  if (args == 0) return done[v] = swapped_leaf(program, value, pairs);
  zp_row_value result = value;
  if (value.name) result.name = zp_format(program->arena, "%s_of_pair", value.name);
  for (int i = 0; i < args; i++) result.arg[i] = push_swap(program, value.arg[i], pairs, done);
  return done[v] = zp_row_emit(program, result);
}

static int move_swap(legalizer *l, int v, zp_row_pairs pairs) {
  int count = l->program->values.len;
  int *done = ZP_NEW_ARRAY(l->program->arena, int, count);
  for (int i = 0; i < count; i++) done[i] = -1;
  return push_swap(l->program, v, pairs, done);
}

static int legal_value(legalizer *l, const zp_row_value *old) {
  zp_row_value value = *old;
  value.level = 0;
  for (int i = 0; i < zp_row_args(old->op); i++) value.arg[i] = l->map[old->arg[i]];
  if (old->op == ZP_ROW_SWAP) return move_swap(l, value.arg[0], old->table);
  if (old->op == ZP_ROW_RLSE) {
    int sum = zp_row_unary(l->program, ZP_ROW_RSUM, zp_row_unary(l->program, ZP_ROW_EXP, value.arg[0]));
    return zp_row_unary(l->program, ZP_ROW_LOG, sum);
  }
  return zp_row_emit(l->program, value);
}

static zp_row_program *rebuild(const zp_row_program *old) {
  legalizer l = {.old = old, .program = zp_row_program_new(old->arena, old->rows_per_sample)};
  bool *live = ZP_NEW_ARRAY(old->arena, bool, old->values.len);
  l.map = ZP_NEW_ARRAY(old->arena, int, old->values.len);
  mark_live(old, live);
  for (int v = 0; v < old->values.len; v++)
    if (live[v]) l.map[v] = legal_value(&l, &old->values.data[v]);
  for (int i = 0; i < old->sinks.len; i++) {
    zp_row_sink sink = old->sinks.data[i];
    sink.value = l.map[sink.value];
    zp_push(old->arena, &l.program->sinks, sink);
  }
  l.program->in_name = old->in_name;
  l.program->n_in = old->n_in;
  l.program->n_out = old->n_out;
  l.program->n_partial = old->n_partial;
  return l.program;
}

zp_row_program *zp_row_legalize(const zp_row_program *program) {
  /* The second time removes what only SWAPs had used. */
  zp_row_program *legal = rebuild(rebuild(program));
  for (int v = 0; v < legal->values.len; v++) {
    zp_row_op op = legal->values.data[v].op;
    assert(op != ZP_ROW_UNKNOWN); /* backward reads a forward value that it was not given */
    assert(op != ZP_ROW_SWAP && op != ZP_ROW_RLSE);
    (void)op;
  }
  return legal;
}
