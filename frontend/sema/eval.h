/* SPDX-License-Identifier: Apache-2.0 */
/* Private to sema. Scalar values of expressions, units, and the name tables that model elaboration (elaborate*.c) and
 * the attribute blocks (spec*.c) share. */
#ifndef ZPLAN_SEMA_EVAL_H
#define ZPLAN_SEMA_EVAL_H

#include <zplan/ast.h>
#include <zplan/sema.h>

typedef enum zp_dimension {
  ZP_DIM_NONE,
  ZP_DIM_BYTES,
  ZP_DIM_BYTES_PER_S,
  ZP_DIM_SECONDS,
  ZP_DIM_FLOP_PER_S,
  ZP_DIM_WATTS,
  ZP_DIM_PERCENT,
} zp_dimension;

/* POISON: stands for a value whose error was already reported; using it fails without another message. */
typedef enum zp_value_kind {
  ZP_VAL_NUMBER,
  ZP_VAL_STRING,
  ZP_VAL_BOOL,
  ZP_VAL_LIST,
  ZP_VAL_TENSOR,
  ZP_VAL_PATTERN,
  ZP_VAL_POISON,
} zp_value_kind;

typedef struct zp_value zp_value;
struct zp_value {
  zp_value_kind kind;
  double number; /* NUMBER in base units (bytes, bytes/s, s, FLOP/s; percent as a fraction), BOOL 0/1 */
  bool is_integer;
  const zp_extent *extent; /* NUMBER: in symbols of the model; NULL: only its value is known */
  zp_dimension dimension;
  const char *text; /* STRING */
  ZP_VEC(zp_value) list;
  int tensor;                     /* TENSOR: handle in the elaboration's table (elaboration only) */
  const struct zp_sparse *sparse; /* PATTERN: of block-sparse attention (elaboration only) */
  zp_span span;                   /* of the expression; of values in a scope: where the name got its value */
};

/* Names in scope; a child scope sees its parent. */
typedef struct zp_scope zp_scope;
zp_scope *zp_scope_new(zp_arena *arena, zp_scope *parent);
void zp_scope_set(zp_scope *scope, const char *name, zp_value value);
const zp_value *zp_scope_get(const zp_scope *scope, const char *name);
/* All visible names, for did-you-mean. */
void zp_scope_names(zp_arena *arena, const zp_scope *scope, zp_strings *out);

/* Converts a literal with unit, e.g. 25 "GB/s" -> 25e9 BYTES_PER_S, 100 "Gbps" -> 12.5e9 BYTES_PER_S, 92 "%" -> 0.92
 * PERCENT. false for an unknown unit. Decimal prefixes are powers of ten, Ki/Mi/Gi/Ti powers of two. */
bool zp_unit_convert(double number, const char *unit, double *base, zp_dimension *dimension);
const char *zp_dimension_name(zp_dimension dimension); /* "a size in bytes", "a bandwidth", ... for messages */

/* Evaluates an expression without tensors and calls: literals, names, lists, arithmetic, comparisons, and/or/not.
 * false after reporting (unknown name with suggestion, units that do not agree, division by zero, ...). */
bool zp_eval(zp_arena *arena, zp_diags *diags, const zp_scope *scope, const zp_expr *expr, zp_value *value);

/* An evaluator of all that elaboration needs: expressions as in zp_eval, calls and operators on tensors, and a check of
 * every tensor name. */
typedef struct zp_evaluator {
  zp_arena *arena;
  zp_diags *diags;
  const zp_scope *scope;
  void *user;
  bool (*call)(void *user, const zp_expr *call, zp_value *value);
  /* At least one operand is a tensor; right is NULL for unary operators. */
  bool (*tensor_operator)(void *user, const zp_expr *expr, const zp_value *left, const zp_value *right,
                          zp_value *value);
  bool (*tensor_name)(void *user, const zp_expr *name, zp_value *value);
  /* What a name stands for, with the place where it got that; NULL: nobody wants to know. */
  void (*seen)(void *user, const zp_expr *name, const zp_value *found);
} zp_evaluator;
bool zp_evaluate(const zp_evaluator *evaluator, const zp_expr *expr, zp_value *value);
/* sqrt or rsqrt of a plain number. */
bool zp_eval_root(zp_diags *diags, const zp_expr *call, const zp_value *operand, bool is_sqrt, zp_value *value);

zp_value zp_number_value(double number, bool is_integer, zp_span span);
/* "768", "[1, 2]", "\"fp32\"" and "a number", "a string", "a size in bytes": for messages. */
const char *zp_value_text(zp_arena *arena, const zp_value *value);
const char *zp_value_kind_name(const zp_value *value);
/* `g.gpt_layer` and `linear` as text; NULL for any other expression. */
const char *zp_dotted_name(zp_arena *arena, const zp_expr *expr);

/* One loaded file and the files it uses. */
typedef struct zp_module zp_module;
struct zp_module {
  /* alias: how the using file names it ("g", "std.hw"); last path part when no `as` was written */
  const char *path, *alias;
  bool is_absolute; /* named from the root, or by a file that is */
  zp_file *file;
  ZP_VEC(zp_module *) uses;
  zp_scope *lets;         /* values of `let` items */
  const zp_item *machine; /* the cluster of zp_load_options.machine; NULL: there is none */
};
/* Loads path and, recursively, its uses (cycles are errors). std.X comes from options->library_dir. Registers
 * sources. */
zp_module *zp_module_load(zp_arena *arena, zp_diags *diags, zp_spec *spec, const char *path,
                          const zp_source_text *sources, int n_sources, const zp_load_options *options);
/* Finds an item by possibly dotted name ("gpt_layer", "g.gpt_layer", "std.hw.dgx2", or plain names of `use`d std
 * modules: after `use std.nn`, `linear` is visible unqualified). kind_mask: bits 1 << zp_item_kind. *where: the module
 * it was found in. */
const zp_item *zp_module_find(zp_module *module, const char *name, unsigned kind_mask, zp_module **where);
void zp_module_names(zp_arena *arena, zp_module *module, unsigned kind_mask, zp_strings *out);

/* blame.c: diagnostics from `first` on that lie in library text move to the argument of `call` that they speak of, or
 * to the call as a whole. To be called after the body of `item` was read for `call`. */
void zp_blame_call(zp_diags *diags, int first, const zp_expr *call, const zp_item *item);

/* spec.c: fills cluster, train, plans from the main module. The model part (name, arguments) of `train` is handed back
 * for elaboration: `call` is a NAME/FIELD or CALL expression, NULL when not written. */
bool zp_spec_read(zp_arena *arena, zp_diags *diags, zp_spec *spec, zp_module *main, const zp_load_options *options,
                  const zp_expr **model_call);
/* spec_train.c, after zp_elaborate: what needs the model's sequence length (steps from tokens). */
bool zp_spec_finish(zp_diags *diags, zp_spec *spec);
/* lookahead.c, after zp_elaborate: warns of attention that sees the labels. */
void zp_check_lookahead(zp_diags *diags, const zp_spec *spec);
/* elaborate.c: builds spec->model by inlining blocks. default_dropout: from train. */
bool zp_elaborate(zp_arena *arena, zp_diags *diags, zp_spec *spec, zp_module *main, const zp_load_options *options,
                  const zp_expr *model_call, double default_dropout);

#endif
