/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of zp_differentiate. */
#ifndef ZPLAN_DIFF_INTERNAL_H
#define ZPLAN_DIFF_INTERNAL_H

#include "graph_internal.h"

/* The gradient of a forward tensor is the sum of its contributions: gradient tensors that later users have left behind.
 * When the node that made a tensor is visited, all its users have been, so the list is complete. */
typedef struct zp_diff_pass {
  zp_graph *graph; /* the result: the forward nodes, then what this pass appends */
  zp_arena *arena;
  int n_tensors;    /* of the forward part */
  bool *needs;      /* per forward tensor: depends on parameters or carried tensors */
  bool *active;     /* per forward node: the loss or a carried tensor depends on it */
  int *pending;     /* per forward tensor: contributions that may still come */
  zp_ints *contrib; /* per forward tensor */
  int *slot;        /* per forward tensor: for views, their part of the gradient of the split tensor; -1 not made */
  int *regathered;  /* per forward tensor: the same once more, for backward; -1 not made */
  int node;         /* the forward node that is visited */
  int *split_grad;  /* per forward node: for SPLIT, the gradient tensor of its input; -1 not made */
} zp_diff_pass;

/* ---- diff_tensors.c ---- */
/* Is the tensor a parameter that is trained? */
bool zp_diff_trains(const zp_diff_pass *pass, int tensor);
/* A tensor for the gradient of forward tensor t. For a view whose only contribution this will be, its slot. */
int zp_diff_target(zp_diff_pass *pass, int t);
/* A plain tensor of the gradient of t. */
int zp_diff_tensor(zp_diff_pass *pass, int t);
int zp_diff_slot(zp_diff_pass *pass, int view);
void zp_diff_contribute(zp_diff_pass *pass, int t, int gradient);
/* The gradient of t as one tensor, -1 when nothing depends on t. */
int zp_diff_total(zp_diff_pass *pass, int t);
/* The gradient of t as one tensor with its own storage, for nodes that work in place; -1 when nothing depends on t. */
int zp_diff_total_owned(zp_diff_pass *pass, int t);
/* Writes the total (zero when there is none) into tensor `into`. */
void zp_diff_total_into(zp_diff_pass *pass, int t, int into);
int zp_diff_param_index(const zp_diff_pass *pass, int tensor);
zp_node zp_diff_node(const zp_node *forward, zp_op op);
void zp_diff_add_in(zp_diff_pass *pass, zp_node *node, int tensor);
void zp_diff_add_param_grad(zp_diff_pass *pass, zp_node *node, int param_tensor);
/* Gives the node a new output tensor that contributes to the gradient of t. */
void zp_diff_add_gradient_of(zp_diff_pass *pass, zp_node *node, int t);
/* What backward reads of a forward value: the value itself, unless it was gathered along the sequence. */
int zp_diff_kept_value(zp_diff_pass *pass, int t);
/* What a collective has made of another tensor, made once more for backward. */
int zp_diff_gather_again(zp_diff_pass *pass, int t);
/* A node of `op` makes the gradient of the first operand of that of the result alone. */
void zp_diff_of_result(zp_diff_pass *pass, const zp_node *node, zp_op op);

/* ---- diff_fused.c ---- */
void zp_diff_fused(zp_diff_pass *pass, const zp_node *node);

#endif
