/* SPDX-License-Identifier: Apache-2.0 */
/* What shape rules ask of operands, and how they answer. Logical and local graphs follow the same rules; in local
 * graphs the sharder gives attr.head_size, and heads are local. */
#ifndef ZPLAN_GRAPH_RULES_H
#define ZPLAN_GRAPH_RULES_H

#include "graph_internal.h"

const zp_tensor *zp_rule_operand(const zp_rule *rule, int i);
const zp_shape *zp_rule_shape(const zp_rule *rule, int i);
const char *zp_rule_text(const zp_rule *rule, int i); /* of that shape */
/* Sets the rule's error. The diagnostic, to which help may be added; NULL: nobody asked for one. */
__attribute__((format(printf, 3, 4))) zp_diag *zp_rule_fail(zp_rule *rule, zp_diag_code code, const char *format, ...);
void zp_rule_help(zp_diag *diag, const char *text); /* diag may be NULL */
/* One more result. */
void zp_rule_answer(zp_rule *rule, zp_element element, zp_shape shape);
/* Puts dimension j of `from`, its extent with it, at place i. */
void zp_rule_put_dim(zp_shape *to, int i, const zp_shape *from, int j);
/* The shape with another last dimension; that of dimension j of `from`. */
zp_shape zp_rule_with_last(const zp_shape *shape, int64_t last, const zp_extent *extent);
zp_shape zp_rule_with_last_of(const zp_shape *shape, const zp_shape *from, int j);
void zp_rule_resize(const zp_rule *rule, zp_shape *shape, int i, int64_t size);
/* Checks: false after reporting. */
bool zp_want_element(zp_rule *rule, int i, zp_element want);
bool zp_want_param(zp_rule *rule, int i);
bool zp_want_activation(zp_rule *rule, int i);
bool zp_want_rank(zp_rule *rule, int i, int rank);
bool zp_want_same_shape(zp_rule *rule, int i, int j);
bool zp_want_positive(zp_rule *rule, const char *what, double value);
/* ids [B, S] alongside rows [B, S, n], or [B] alongside [B, n]. */
bool zp_want_labels(zp_rule *rule, int ids, int rows);
/* Kernels of positions read whole rows, one after the other. */
bool zp_want_samples(zp_rule *rule, int i);
bool zp_want_whole(zp_rule *rule, int i); /* no part of a split */
/* `heads` into the columns; fills in attr.head_size where the sharder has not. */
bool zp_want_heads(zp_rule *rule, int i, int64_t heads, const char *what);

/* ---- answers that several operations give ---- */
void zp_rule_keep_shape(zp_rule *rule); /* that of the first operand, an activation */
/* Positions of whole samples, also where x is a rank's share of them. */
int64_t zp_rule_positions(const zp_tensor *x);
zp_shape zp_rule_without_positions(const zp_shape *x);

#endif
