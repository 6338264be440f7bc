/* Shared by the files of the interpreter. */
#ifndef ZPLAN_INTERPRET_INTERNAL_H
#define ZPLAN_INTERPRET_INTERNAL_H

#include <zplan/interpret.h>
#include "graph_internal.h"

/* ---- interpret_row.c: one ROW op on one row ---- */
typedef struct zp_row_place {
  const zp_interpreter *in;
  int64_t row, rows_per_sample;
  /* where the rank's share begins, and how many columns whole rows have */
  int64_t first_position, first_column, logical_cols;
} zp_row_place;
void zp_row_forward(const zp_row_place *place, const zp_fused_op *op, double *const arg[3], double *y);
/* Adds to d_arg[k] (a whole row, also for broadcast operands; NULL: not wanted). */
void zp_row_backward(const zp_row_place *place, const zp_fused_op *op, double *const arg[3], const double *dy,
                     double *const d_arg[3]);

/* ---- interpret_fused.c: rows of groups ---- */
void zp_interpret_row_node(zp_interpreter *in, const zp_node *node);
void zp_interpret_fused(zp_interpreter *in, const zp_node *node);
void zp_interpret_fused_grad(zp_interpreter *in, const zp_node *node);

/* ---- interpret_ops.c: everything else ---- */
void zp_interpret_op(zp_interpreter *in, const zp_node *node);

/* ---- interpret_experts.c: routing and the products of experts ---- */
void zp_interpret_experts(zp_interpreter *in, const zp_node *node);

/* ---- interpret_positions.c: means, slices and joins of positions ---- */
void zp_interpret_positions(zp_interpreter *in, const zp_node *node);

/* ---- interpret_columns.c: columns of heads, one number made of an axis ---- */
void zp_interpret_columns(zp_interpreter *in, const zp_node *node);

static inline const zp_shape *zp_in_shape(const zp_interpreter *in, int tensor) {
  return &in->graph->tensors.data[tensor].shape;
}
static inline double *zp_in_value(const zp_interpreter *in, const zp_node *node, int i) {
  return in->value[node->in.data[i]];
}
static inline double *zp_out_value(const zp_interpreter *in, const zp_node *node, int i) {
  return in->value[node->out.data[i]];
}

#endif
