/* Shared by the files of operations: the row of their table, what all of them do with arguments. */
#ifndef ZPLAN_SEMA_BUILTINS_H
#define ZPLAN_SEMA_BUILTINS_H

#include "elaborate.h"

typedef struct zp_builtin zp_builtin;
typedef bool zp_builtin_function(zp_elab *e, const zp_builtin *op, const zp_expr *call, const zp_slot *slots,
                                 zp_value *value);
enum { ZP_MAX_BUILTIN_ARGS = 18 };
struct zp_builtin {
  const char *name;
  int required; /* the first ones must be given, and are tensors */
  const char *args[ZP_MAX_BUILTIN_ARGS];
  zp_builtin_function *apply;
  zp_op op;
};

/* ---- builtins.c ---- */
/* Is argument i a tensor? Reports. */
bool zp_builtin_is_tensor(zp_elab *e, const zp_builtin *op, const zp_slot *slots, int i);
/* The first `required` arguments as tensors. */
bool zp_builtin_tensors(zp_elab *e, const zp_builtin *op, const zp_slot *slots, zp_value *in);
/* The row's op on them. */
bool zp_builtin_apply(zp_elab *e, const zp_builtin *op, const zp_expr *call, const zp_slot *slots, zp_op_attr attr,
                      zp_value *value);

/* ---- builtins_axes.c ---- */
zp_builtin_function zp_apply_reduction, zp_apply_slice, zp_apply_select, zp_apply_gather, zp_apply_concat, zp_apply_pad,
    zp_apply_repeat_heads, zp_apply_reshape;

/* ---- convolutions.c ---- */
zp_builtin_function zp_apply_conv1d, zp_apply_conv2d;

/* ---- einsum.c ---- */
zp_builtin_function zp_apply_einsum;

#endif
