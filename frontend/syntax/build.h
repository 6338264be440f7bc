/* SPDX-License-Identifier: Apache-2.0 */
/* Makes tree nodes for the actions of the grammar. All in the arena of the feed. */
#ifndef ZPLAN_SYNTAX_BUILD_H
#define ZPLAN_SYNTAX_BUILD_H

#include "parser_internal.h"

typedef ZP_VEC(zp_type_expr *) zp_types;

/* From the first byte of `a` to the last of `b`. */
zp_span zp_join(zp_span a, zp_span b);
/* The source text at `span` as a name; blanks and comments between the parts of a dotted name are left out. */
zp_name zp_name_at(zp_feed *feed, zp_span span);

zp_expr *zp_expr_number(zp_feed *feed, zp_literal literal, zp_span span);
zp_expr *zp_expr_string(zp_feed *feed, zp_literal literal, zp_span span);
zp_expr *zp_expr_bool(zp_feed *feed, bool value, zp_span span);
zp_expr *zp_expr_name(zp_feed *feed, zp_name name);
zp_expr *zp_expr_list(zp_feed *feed, zp_args args, zp_span span);
zp_expr *zp_expr_call(zp_feed *feed, zp_expr *callee, zp_args args, zp_span span);
zp_expr *zp_expr_index(zp_feed *feed, zp_expr *left, zp_args args, zp_span span);
zp_expr *zp_expr_field(zp_feed *feed, zp_expr *left, zp_name field, zp_span span);
/* right == NULL: unary. `at` is the operator. */
zp_expr *zp_expr_operator(zp_feed *feed, zp_expr_kind kind, zp_operator op, zp_span at, zp_expr *left, zp_expr *right,
                          zp_span span);

/* dims == NULL: no brackets were written. */
zp_type_expr *zp_type_new(zp_feed *feed, zp_name element, const zp_exprs *dims, zp_span span);

zp_stmt *zp_stmt_declare(zp_feed *feed, zp_stmt_kind kind, zp_name name, zp_type_expr *type, zp_expr *init,
                         zp_span span);
zp_stmt *zp_stmt_assign(zp_feed *feed, zp_names names, zp_expr *expr, zp_exprs annotations, zp_span span);
zp_stmt *zp_stmt_output(zp_feed *feed, zp_name name, zp_expr *expr, zp_span span);
zp_stmt *zp_stmt_repeat(zp_feed *feed, zp_name name, zp_expr *range, zp_stmts body, zp_span span);
zp_stmt *zp_stmt_return(zp_feed *feed, zp_exprs exprs, zp_span span);
zp_stmt *zp_stmt_if(zp_feed *feed, zp_expr *condition, zp_stmts body, zp_stmts otherwise, zp_span span);
zp_stmt *zp_stmt_assert(zp_feed *feed, zp_expr *condition, const char *message, zp_span span);

zp_attr *zp_attr_value(zp_feed *feed, zp_name key, zp_name index, zp_attr_op op, zp_expr *value, zp_span span);
zp_attr *zp_attr_block(zp_feed *feed, zp_name key, const char *label, zp_attrs body, zp_span span);

zp_item *zp_item_use(zp_feed *feed, zp_name path, zp_name alias, bool is_file, zp_span span);
zp_item *zp_item_let(zp_feed *feed, zp_name name, zp_expr *expr, zp_span span);
zp_item *zp_item_code(zp_feed *feed, zp_item_kind kind, zp_name name, zp_formals formals, zp_types returns,
                      zp_stmts body, zp_span span);
zp_item *zp_item_attrs(zp_feed *feed, zp_item_kind kind, zp_name name, zp_formals formals, zp_attrs attrs,
                       zp_span span);

#endif
