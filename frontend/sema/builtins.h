/* SPDX-License-Identifier: Apache-2.0 */
/* How a call of an operation is read: a row says its arguments, and functions what a row cannot. */
#ifndef ZPLAN_SEMA_BUILTINS_H
#define ZPLAN_SEMA_BUILTINS_H

#include "elaborate.h"

typedef enum zp_argument_kind {
  ZP_ARGUMENT_OTHER, /* read by a function of the row */
  ZP_ARGUMENT_OPERAND,
  ZP_ARGUMENT_WEIGHT,       /* an operand that may be transpose(w); bool: it is */
  ZP_ARGUMENT_NUMBER,       /* double */
  ZP_ARGUMENT_COUNT,        /* int64_t: a whole number of at least 1 */
  ZP_ARGUMENT_FLAG,         /* bool */
  ZP_ARGUMENT_WORD,         /* bool: the second of two words; the first where it is not given */
  ZP_ARGUMENT_PATTERN,      /* of block-sparse attention, NULL where it is not given */
  ZP_ARGUMENT_AXIS,         /* positions, where it is not given, or columns: which of the row's operations it is */
  ZP_ARGUMENT_COLUMN_HEADS, /* int64_t: heads of the columns, 1 where they are not given; along positions 0 */
} zp_argument_kind;

/* What a given number must be. */
typedef enum zp_argument_range {
  ZP_ARGUMENT_ANY,
  ZP_ARGUMENT_POSITIVE,
  ZP_ARGUMENT_NOT_NEGATIVE,
  ZP_ARGUMENT_SHARE,    /* 0 <= x < 1 */
  ZP_ARGUMENT_DROPOUT,  /* the same, a rate of dropout */
  ZP_ARGUMENT_CAPACITY, /* above 0, or `dropless` */
} zp_argument_range;

typedef struct zp_argument {
  const char *name; /* with '!' in front: known to the language, but refused as not built */
  zp_argument_kind kind;
  bool required;
  int place;      /* operands stand in the order of their places */
  size_t at;      /* byte of zp_op_attr */
  double missing; /* the attribute of a NUMBER, COUNT or FLAG that is not given */
  zp_argument_range range;
  const char *words[3]; /* WORD; ends with NULL */
  const char *needs;    /* the argument that it does not come without */
} zp_argument;

/* A call as far as it has been read. */
typedef struct zp_call zp_call;
enum { ZP_MAX_BUILTIN_ARGS = 18 };

typedef struct zp_builtin {
  const char *name;
  zp_op op;
  const zp_argument *arguments; /* ends with a NULL name */
  /* What else must hold of the arguments, and the attributes that follow from several; before operands are read.
   * NULL: nothing. False after reporting. */
  bool (*check)(zp_elab *e, zp_call *call);
  /* What the call is; NULL: the operation on its operands. False after reporting. */
  bool (*apply)(zp_elab *e, zp_call *call, zp_value *value);
  zp_op along_columns; /* with an axis: the operation along the columns; 0: it is built along positions alone */
  const char *meaning, *example; /* a phrase; a statement */
} zp_builtin;
int zp_builtin_count(void);
const zp_builtin *zp_builtin_at(int index);

struct zp_call {
  const zp_builtin *row;
  const zp_expr *expr;
  zp_slot slots[ZP_MAX_BUILTIN_ARGS];
  zp_op op; /* the row's; along the columns `along_columns` */
  zp_op_attr attr;
  zp_value in[ZP_MAX_OPERANDS]; /* tensors */
  int n_in;
};

/* ---- builtin_calls.c ---- */
/* Reads the call by its row, and gives what it is. False after reporting. */
bool zp_call_read(zp_elab *e, const zp_builtin *row, const zp_expr *expr, zp_value *value);
/* The slot of the argument, which the row must have. */
const zp_slot *zp_call_slot(const zp_call *call, const char *argument);
/* Is the argument a tensor? Reports. */
bool zp_call_is_tensor(zp_elab *e, const zp_call *call, const char *argument);
bool zp_call_requires(zp_elab *e, const zp_call *call, const char *argument);
/* The operation on the call's operands. */
bool zp_call_apply(zp_elab *e, const zp_call *call, zp_value *value);
/* Makes a list of `value`, the first of n results that follow one another in the graph, and of the others. */
void zp_call_list_results(zp_elab *e, const zp_call *call, int64_t n, zp_value *value);

/* ---- functions of rows ---- */
typedef bool zp_call_check(zp_elab *e, zp_call *call);
typedef bool zp_call_function(zp_elab *e, zp_call *call, zp_value *value);
/* builtin_rules.c */
zp_call_check zp_check_attention, zp_check_gate, zp_check_cross_entropy;
zp_call_function zp_apply_root, zp_apply_dropout, zp_apply_split, zp_apply_cast, zp_apply_transpose, zp_apply_gate;
/* builtins_axes.c */
zp_call_function zp_apply_reduction, zp_apply_slice, zp_apply_select, zp_apply_pad;
/* convolutions.c */
zp_call_function zp_apply_conv1d, zp_apply_conv2d;
/* einsum.c */
zp_call_function zp_apply_einsum;

#endif
