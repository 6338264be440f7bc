/* SPDX-License-Identifier: Apache-2.0 */
/* The syntax tree of a .dz file, as written: no names resolved, no units converted. Every node keeps its span.
 * Grammar: frontend/syntax/README.md. All memory is in the arena given to zp_parse. */
#ifndef ZPLAN_AST_H
#define ZPLAN_AST_H

#include <zplan/diag.h>
#include <zplan/vec.h>

typedef struct zp_expr zp_expr;
typedef struct zp_stmt zp_stmt;
typedef struct zp_attr zp_attr;
typedef ZP_VEC(zp_expr *) zp_exprs;
typedef ZP_VEC(zp_stmt *) zp_stmts;
typedef ZP_VEC(zp_attr *) zp_attrs;

/* A name with its place. text == NULL: absent. */
typedef struct zp_name {
  const char *text;
  zp_span span;
} zp_name;
typedef ZP_VEC(zp_name) zp_names;

/* f(x, ff = 4): `name` is absent for positional arguments. */
typedef struct zp_arg {
  zp_name name;
  zp_expr *value;
} zp_arg;
typedef ZP_VEC(zp_arg) zp_args;

typedef enum zp_expr_kind {
  ZP_EXPR_NUMBER, /* number, unit (may be NULL): 16, 0.02, 300e9, 25GB/s, 92% */
  ZP_EXPR_STRING, /* text, escapes resolved */
  ZP_EXPR_BOOL,   /* number 0 or 1 */
  ZP_EXPR_NAME,   /* text */
  ZP_EXPR_LIST,   /* args, all without names: [1, 2, 4] */
  ZP_EXPR_UNARY,  /* op, left: -x, not x */
  ZP_EXPR_BINARY, /* op, left, right; ".." makes a range */
  ZP_EXPR_CALL,   /* left(args) */
  ZP_EXPR_INDEX,  /* left[args] */
  ZP_EXPR_FIELD,  /* left.text */
} zp_expr_kind;

typedef enum zp_operator {
  ZP_OPR_ADD,
  ZP_OPR_SUB,
  ZP_OPR_MUL,
  ZP_OPR_DIV,
  ZP_OPR_MOD,
  ZP_OPR_NEG,
  ZP_OPR_NOT,
  ZP_OPR_AND,
  ZP_OPR_OR,
  ZP_OPR_EQ,
  ZP_OPR_NE,
  ZP_OPR_LT,
  ZP_OPR_LE,
  ZP_OPR_GT,
  ZP_OPR_GE,
  ZP_OPR_IN,
  ZP_OPR_RANGE,
} zp_operator;

struct zp_expr {
  zp_expr_kind kind;
  zp_operator op;
  zp_span span; /* the whole expression */
  zp_span at;   /* operator, called name, or field name: where a caret points best */
  double number;
  bool is_integer; /* NUMBER written without '.' or exponent */
  const char *unit;
  const char *text;
  zp_expr *left, *right;
  zp_args args;
  int depth; /* 1 for a leaf; the parser refuses expressions deeper than 400 */
};

/* [B, S, 3 * d], f32[], i32[B, S]. `element` is absent when not written. has_shape: brackets were written. */
typedef struct zp_type_expr {
  zp_name element;
  bool has_shape;
  zp_exprs dims;
  zp_span span;
} zp_type_expr;

/* Formal of a block or model: x: [B, S, d] / ff: int / bias = true. */
typedef struct zp_formal {
  zp_name name;
  zp_type_expr *type; /* NULL when not written */
  zp_expr *init;      /* NULL without a default */
} zp_formal;
typedef ZP_VEC(zp_formal) zp_formals;

typedef enum zp_stmt_kind {
  ZP_STMT_INPUT,  /* input names[0]: type */
  ZP_STMT_PARAM,  /* param names[0]: type [~ init], init is a CALL */
  ZP_STMT_ASSIGN, /* names = expr { @annotation(...) } */
  ZP_STMT_OUTPUT, /* output names[0] = expr */
  ZP_STMT_REPEAT, /* repeat names[0] in expr { body } */
  ZP_STMT_RETURN, /* return exprs */
  ZP_STMT_IF,     /* if expr { body } else { otherwise } */
  ZP_STMT_ASSERT, /* assert expr, message */
} zp_stmt_kind;

struct zp_stmt {
  zp_stmt_kind kind;
  zp_span span;
  zp_names names;
  zp_type_expr *type;
  zp_expr *expr;
  zp_exprs exprs;       /* RETURN */
  zp_exprs annotations; /* ASSIGN: CALL expressions */
  const char *message;  /* ASSERT: NULL without one */
  zp_stmts body, otherwise;
  bool is_else_if; /* IF: it is the whole `otherwise` of the statement before */
};

typedef enum zp_attr_op {
  ZP_ATTR_SET,
  ZP_ATTR_LE,
  ZP_ATTR_GE,
  ZP_ATTR_LT,
  ZP_ATTR_GT,
  ZP_ATTR_NE,
  ZP_ATTR_IN,
  ZP_ATTR_BLOCK
} zp_attr_op;

/* key op value, or key ["label"] { body }. `offload[optimizer]` has key "offload" and index "optimizer". */
struct zp_attr {
  zp_name key;   /* dotted keys keep their dots: "std.hw" */
  zp_name index; /* absent without [..] */
  zp_attr_op op;
  zp_expr *value; /* NULL for ZP_ATTR_BLOCK */
  const char *label;
  zp_attrs body;
  zp_span span;
};

typedef enum zp_item_kind {
  ZP_ITEM_USE,   /* use path [as alias], path in `name`; is_file: it was a string */
  ZP_ITEM_LET,   /* let name = expr */
  ZP_ITEM_BLOCK, /* block name(formals) -> returns { body } */
  ZP_ITEM_MODEL, /* model name(formals) { body } */
  ZP_ITEM_DEVICE,
  ZP_ITEM_NODE,
  ZP_ITEM_CLUSTER,
  ZP_ITEM_FABRIC,
  ZP_ITEM_TRAIN,
  ZP_ITEM_PLAN, /* kind [name] [(formals)] { attrs } */
} zp_item_kind;

typedef struct zp_item {
  zp_item_kind kind;
  zp_span span;
  zp_name name, alias;
  bool is_file;
  zp_formals formals;
  ZP_VEC(zp_type_expr *) returns; /* types only */
  zp_stmts body;
  zp_attrs attrs;
  zp_expr *expr;
} zp_item;

typedef struct zp_file {
  int source; /* index in the diags */
  ZP_VEC(zp_item *) items;
} zp_file;

/* Parses a registered source. Syntax errors are reported (several per run) and the parsed rest is returned;
 * never NULL, but use the tree only when no error was added. */
zp_file *zp_parse(zp_arena *arena, zp_diags *diags, int source);
/* Parses one `key op value` of --set, e.g. "tensor<=8" or "offload[optimizer]=\"cpu\"". NULL after reporting. */
zp_attr *zp_parse_setting(zp_arena *arena, zp_diags *diags, int source);
/* Canonical layout with comments kept; NULL when the text has syntax errors. Idempotent. Arena. */
const char *zp_format_source(zp_arena *arena, zp_diags *diags, int source);

#endif
