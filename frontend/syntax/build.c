/* SPDX-License-Identifier: Apache-2.0 */
/* Tree nodes. Expressions count how deep they are, so that no later recursion over the tree can run out of stack. */
#include "build.h"

#include <ctype.h>

zp_span zp_join(zp_span a, zp_span b) { return (zp_span){a.file, a.begin, b.end}; }

zp_name zp_name_at(zp_feed *feed, zp_span span) {
  const char *source = zp_diags_source_text(feed->scan.diags, span.file, NULL);
  char *text = zp_alloc(feed->scan.arena, span.end - span.begin + 1);
  size_t used = 0;
  for (uint32_t i = span.begin; i < span.end; i++) {
    if (source[i] == '#')
      while (i < span.end && source[i] != '\n') i++;
    else if (!isspace((unsigned char)source[i]))
      text[used++] = source[i];
  }
  return (zp_name){text, span};
}

static zp_expr *new_expr(zp_feed *feed, zp_expr_kind kind, zp_span at, zp_span span) {
  zp_expr *expr = ZP_NEW(feed->scan.arena, zp_expr);
  expr->kind = kind;
  expr->at = at;
  expr->span = span;
  expr->depth = 1;
  return expr;
}

static void contain(zp_feed *feed, zp_expr *outer, const zp_expr *inner) {
  if (inner->depth < outer->depth) return;
  outer->depth = inner->depth + 1;
  if (outer->depth == ZP_MAX_EXPR_DEPTH) zp_feed_too_deep(feed, outer->at);
}

static void contain_args(zp_feed *feed, zp_expr *outer, zp_args args) {
  outer->args = args;
  for (int i = 0; i < args.len; i++) contain(feed, outer, args.data[i].value);
}

zp_expr *zp_expr_number(zp_feed *feed, zp_literal literal, zp_span span) {
  zp_expr *expr = new_expr(feed, ZP_EXPR_NUMBER, span, span);
  expr->number = literal.number;
  expr->is_integer = literal.is_integer;
  expr->unit = literal.unit;
  return expr;
}

zp_expr *zp_expr_string(zp_feed *feed, zp_literal literal, zp_span span) {
  zp_expr *expr = new_expr(feed, ZP_EXPR_STRING, span, span);
  expr->text = literal.text;
  return expr;
}

zp_expr *zp_expr_bool(zp_feed *feed, bool value, zp_span span) {
  zp_expr *expr = new_expr(feed, ZP_EXPR_BOOL, span, span);
  expr->number = value;
  return expr;
}

zp_expr *zp_expr_name(zp_feed *feed, zp_name name) {
  zp_expr *expr = new_expr(feed, ZP_EXPR_NAME, name.span, name.span);
  expr->text = name.text;
  return expr;
}

zp_expr *zp_expr_list(zp_feed *feed, zp_args args, zp_span span) {
  zp_expr *expr = new_expr(feed, ZP_EXPR_LIST, span, span);
  contain_args(feed, expr, args);
  for (int i = 0; i < args.len; i++) {
    if (!args.data[i].name.text || feed->scan.errors++ >= ZP_MAX_SYNTAX_ERRORS) continue;
    zp_diag *diag = zp_report(feed->scan.diags, ZP_Z0101, args.data[i].name.span, "list elements have no names");
    zp_diag_help(diag, "write the value alone");
  }
  return expr;
}

zp_expr *zp_expr_call(zp_feed *feed, zp_expr *callee, zp_args args, zp_span span) {
  zp_expr *expr = new_expr(feed, ZP_EXPR_CALL, callee->at, span);
  expr->left = callee;
  contain(feed, expr, callee);
  contain_args(feed, expr, args);
  return expr;
}

zp_expr *zp_expr_index(zp_feed *feed, zp_expr *left, zp_args args, zp_span span) {
  zp_expr *expr = new_expr(feed, ZP_EXPR_INDEX, left->at, span);
  expr->left = left;
  contain(feed, expr, left);
  contain_args(feed, expr, args);
  return expr;
}

zp_expr *zp_expr_field(zp_feed *feed, zp_expr *left, zp_name field, zp_span span) {
  zp_expr *expr = new_expr(feed, ZP_EXPR_FIELD, field.span, span);
  expr->left = left;
  expr->text = field.text;
  contain(feed, expr, left);
  return expr;
}

zp_expr *zp_expr_operator(zp_feed *feed, zp_expr_kind kind, zp_operator op, zp_span at, zp_expr *left, zp_expr *right,
                          zp_span span) {
  zp_expr *expr = new_expr(feed, kind, at, span);
  expr->op = op;
  expr->left = left;
  expr->right = right;
  contain(feed, expr, left);
  if (right) contain(feed, expr, right);
  return expr;
}

zp_type_expr *zp_type_new(zp_feed *feed, zp_name element, const zp_exprs *dims, zp_span span) {
  zp_type_expr *type = ZP_NEW(feed->scan.arena, zp_type_expr);
  type->element = element;
  type->has_shape = dims != NULL;
  if (dims) type->dims = *dims;
  type->span = span;
  return type;
}

static zp_stmt *new_stmt(zp_feed *feed, zp_stmt_kind kind, zp_span span) {
  zp_stmt *stmt = ZP_NEW(feed->scan.arena, zp_stmt);
  stmt->kind = kind;
  stmt->span = span;
  return stmt;
}

zp_stmt *zp_stmt_declare(zp_feed *feed, zp_stmt_kind kind, zp_name name, zp_type_expr *type, zp_expr *init,
                         zp_span span) {
  zp_stmt *stmt = new_stmt(feed, kind, span);
  zp_push(feed->scan.arena, &stmt->names, name);
  stmt->type = type;
  stmt->expr = init;
  return stmt;
}

zp_stmt *zp_stmt_assign(zp_feed *feed, zp_names names, zp_expr *expr, zp_exprs annotations, zp_span span) {
  zp_stmt *stmt = new_stmt(feed, ZP_STMT_ASSIGN, span);
  stmt->names = names;
  stmt->expr = expr;
  stmt->annotations = annotations;
  return stmt;
}

zp_stmt *zp_stmt_output(zp_feed *feed, zp_name name, zp_expr *expr, zp_span span) {
  zp_stmt *stmt = new_stmt(feed, ZP_STMT_OUTPUT, span);
  zp_push(feed->scan.arena, &stmt->names, name);
  stmt->expr = expr;
  return stmt;
}

zp_stmt *zp_stmt_repeat(zp_feed *feed, zp_name name, zp_expr *range, zp_stmts body, zp_span span) {
  zp_stmt *stmt = new_stmt(feed, ZP_STMT_REPEAT, span);
  zp_push(feed->scan.arena, &stmt->names, name);
  stmt->expr = range;
  stmt->body = body;
  return stmt;
}

zp_stmt *zp_stmt_return(zp_feed *feed, zp_exprs exprs, zp_span span) {
  zp_stmt *stmt = new_stmt(feed, ZP_STMT_RETURN, span);
  stmt->exprs = exprs;
  return stmt;
}

zp_stmt *zp_stmt_if(zp_feed *feed, zp_expr *condition, zp_stmts body, zp_stmts otherwise, zp_span span) {
  zp_stmt *stmt = new_stmt(feed, ZP_STMT_IF, span);
  stmt->expr = condition;
  stmt->body = body;
  stmt->otherwise = otherwise;
  return stmt;
}

zp_stmt *zp_stmt_assert(zp_feed *feed, zp_expr *condition, const char *message, zp_span span) {
  zp_stmt *stmt = new_stmt(feed, ZP_STMT_ASSERT, span);
  stmt->expr = condition;
  stmt->message = message;
  return stmt;
}

zp_attr *zp_attr_value(zp_feed *feed, zp_name key, zp_name index, zp_attr_op op, zp_expr *value, zp_span span) {
  zp_attr *attr = ZP_NEW(feed->scan.arena, zp_attr);
  *attr = (zp_attr){.key = key, .index = index, .op = op, .value = value, .span = span};
  return attr;
}

zp_attr *zp_attr_block(zp_feed *feed, zp_name key, const char *label, zp_attrs body, zp_span span) {
  zp_attr *attr = ZP_NEW(feed->scan.arena, zp_attr);
  *attr = (zp_attr){.key = key, .op = ZP_ATTR_BLOCK, .label = label, .body = body, .span = span};
  return attr;
}

static zp_item *new_item(zp_feed *feed, zp_item_kind kind, zp_name name, zp_span span) {
  zp_item *item = ZP_NEW(feed->scan.arena, zp_item);
  item->kind = kind;
  item->name = name;
  item->span = span;
  return item;
}

zp_item *zp_item_use(zp_feed *feed, zp_name path, zp_name alias, bool is_file, zp_span span) {
  zp_item *item = new_item(feed, ZP_ITEM_USE, path, span);
  item->alias = alias;
  item->is_file = is_file;
  return item;
}

zp_item *zp_item_let(zp_feed *feed, zp_name name, zp_expr *expr, zp_span span) {
  zp_item *item = new_item(feed, ZP_ITEM_LET, name, span);
  item->expr = expr;
  return item;
}

zp_item *zp_item_code(zp_feed *feed, zp_item_kind kind, zp_name name, zp_formals formals, zp_types returns,
                      zp_stmts body, zp_span span) {
  zp_item *item = new_item(feed, kind, name, span);
  item->formals = formals;
  for (int i = 0; i < returns.len; i++) zp_push(feed->scan.arena, &item->returns, returns.data[i]);
  item->body = body;
  return item;
}

zp_item *zp_item_attrs(zp_feed *feed, zp_item_kind kind, zp_name name, zp_formals formals, zp_attrs attrs,
                       zp_span span) {
  zp_item *item = new_item(feed, kind, name, span);
  item->formals = formals;
  item->attrs = attrs;
  return item;
}
