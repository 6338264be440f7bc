/* SPDX-License-Identifier: Apache-2.0 */
/* Private to elaboration: how `model` and `block` become segments of graphs. Reading order: elaborate.c (the model),
 * statements.c, segments.c (what repeats cut), blocks.c (inlining), arguments.c, operators.c and builtins.c (what ends
 * up as nodes), params.c (parameters and their names), usage.c (last checks). */
#ifndef ZPLAN_SEMA_ELABORATE_H
#define ZPLAN_SEMA_ELABORATE_H

#include "eval.h"
#include "names.h"

/* What a tensor value stands for. Parameters and inputs become tensors of a graph only where an op uses them. */
typedef enum zp_handle_kind {
  ZP_HANDLE_VALUE,     /* tensor `index` of the graph of `segment` */
  ZP_HANDLE_PARAM,     /* model parameter `index` */
  ZP_HANDLE_INPUT,     /* model input `index` */
  ZP_HANDLE_LOSSES,    /* a sum of losses, the first of which is tensor `index` of the graph of `segment` */
  ZP_HANDLE_ITERATION, /* the variable of a repeat: no value at all, may only be named on the repeat itself */
} zp_handle_kind;

typedef struct zp_handle {
  zp_handle_kind kind;
  int segment, index;
  bool transposed; /* made by transpose(w) for the matmul around it */
  int sum;         /* LOSSES: index into zp_elab.sums */
} zp_handle;

/* A loss in a sum of losses. */
typedef struct zp_loss_term {
  int tensor; /* of the segment's graph */
  double weight;
} zp_loss_term;
typedef ZP_VEC(zp_loss_term) zp_loss_terms;

typedef enum zp_frame_kind { ZP_FRAME_MODEL, ZP_FRAME_REPEAT, ZP_FRAME_BLOCK } zp_frame_kind;

/* One body being executed: the model, a repeat in it, or an instance of a block. */
typedef struct zp_frame zp_frame;
struct zp_frame {
  zp_frame_kind kind;
  zp_frame *caller;
  const zp_item *item; /* the block or model */
  zp_module *module;   /* where the item's names are looked up */
  zp_scope *scope;
  const char *param_path; /* prefix of parameter names: "", "h.{}", "h.{}.mlp" */
  const char
      *result_name; /* node name of an op that is returned as it is: "mlp.c_fc"; NULL: none better than its own */
  bool returned;
  zp_value result; /* after `return`: a tensor or number, or a LIST of several */
};

/* The expression that is the whole right side of a statement, and what names it (see params.c). */
typedef struct zp_whole {
  const zp_expr *expr;
  const char *name; /* NULL: return, output, several names */
  bool is_new;      /* the name is not yet a tensor in this scope */
} zp_whole;

/* A call of a library's block in the user's text, and which nodes of a segment it made. */
typedef struct zp_library_call {
  zp_span span;
  int segment, first, behind;
} zp_library_call;

typedef struct zp_elab {
  zp_arena *arena;
  zp_diags *diags;
  zp_model *model;
  zp_frame *frame;
  zp_whole whole;
  const char *library_dir;
  const zp_expr *transposable; /* the second operand of the matmul being read: the one place for transpose() */
  double dropout;              /* train's rate */
  int64_t calls;               /* of blocks, written out so far */
  int64_t streams;             /* dropout streams given out */
  int64_t attention_streams;   /* likewise of attention's probabilities */
  ZP_VEC(zp_handle) handles;
  ZP_VEC(zp_loss_terms) sums;
  int segment;                    /* open segment, -1: the next op opens one */
  int middles;                    /* segments between repeats so far */
  zp_ints replaced;               /* places of what comes into the open repeat that its body assigns again */
  zp_taken_names paths;           /* parameter paths given out */
  zp_taken_names segment_names;   /* given out, and those that flat segments have */
  zp_taken_names names;           /* node names given out in the open segment */
  ZP_VEC(const zp_item *) failed; /* blocks whose body had an error: told once, not at every call */
  ZP_VEC(zp_library_call) library_calls;
  bool has_output;
  zp_span output_span;
  zp_facts *facts; /* NULL: nobody wants them */
} zp_elab;

/* One argument place of a call. */
typedef struct zp_slot {
  bool given;
  zp_value value;
} zp_slot;
enum { ZP_MAX_ARGS = 32 };

/* ---- elaborate.c ---- */
bool zp_elab_eval(zp_elab *e, const zp_expr *expr, zp_value *value); /* in the scope of the current frame */
bool zp_elab_in_repeat(const zp_elab *e);

/* ---- statements.c ---- */
void zp_elab_statements(zp_elab *e, const zp_stmts *stmts);
/* A size in a shape: a whole number >= 1, or B in first place. */
bool zp_elab_dim(zp_elab *e, const zp_expr *expr, int position, int64_t *dim, const zp_extent **extent);
bool zp_elab_shape(zp_elab *e, const zp_type_expr *type, zp_shape *shape);
bool zp_elab_check_size(zp_elab *e, const zp_shape *shape, zp_span span);

/* ---- segments.c ---- */
zp_value zp_elab_tensor(zp_elab *e, zp_handle handle, zp_span span);
zp_graph *zp_elab_graph(zp_elab *e); /* of the open segment; opens the one after a repeat when none is open */
/* The tensor of a value in the open segment's graph; -1 after reporting. */
int zp_elab_operand(zp_elab *e, const zp_value *value);
/* Is the tensor behind this name reachable from here? Reports. (An evaluator hook; user is the zp_elab.) */
bool zp_elab_check_name(void *user, const zp_expr *name, zp_value *value);
zp_shape zp_elab_value_shape(const zp_elab *e, const zp_value *value);
zp_element zp_elab_value_element(const zp_elab *e, const zp_value *value);
void zp_elab_repeat(zp_elab *e, const zp_stmt *stmt);

/* ---- params.c ---- */
const char *zp_elab_join(zp_arena *arena, const char *prefix, const char *name);
/* A parameter path without the repeat in front: "mlp.c_fc" for "h.{}.mlp.c_fc". Names of nodes and tensors. */
const char *zp_elab_local(const char *path);
/* Path component of a block instance; "" when the call adds none. */
const char *zp_elab_instance(const zp_elab *e, const zp_expr *call, const zp_item *block);
void zp_elab_param(zp_elab *e, const zp_stmt *stmt);

/* ---- arguments.c ---- */
/* Evaluates the arguments of a call into the places named by `names`. A name starting with '!' is known to the
 * language but refused as not built. */
bool zp_elab_collect(zp_elab *e, const zp_expr *call, const char *callee, const char *const *names, int count,
                     zp_slot *slots);
bool zp_elab_require(zp_elab *e, const zp_expr *call, const char *callee, const char *name, const zp_slot *slot);
/* Typed reads with a default for absent arguments. False after reporting. */
bool zp_slot_number(zp_elab *e, const zp_slot *slot, const char *name, double missing, double *number);
bool zp_slot_count(zp_elab *e, const zp_slot *slot, const char *name, int64_t missing, int64_t *count);
bool zp_slot_bool(zp_elab *e, const zp_slot *slot, const char *name, bool missing, bool *truth);
/* Which of `choices` (NULL-terminated) the string is; 0 when absent. */
bool zp_slot_choice(zp_elab *e, const zp_slot *slot, const char *name, const char *const *choices, int *choice);

/* ---- sparse.c: patterns of block-sparse attention ---- */
bool zp_is_sparse(const char *name); /* "sparse.*" */
bool zp_elab_sparse(zp_elab *e, const zp_expr *call, const char *name, zp_value *value);
/* NULL when absent. False after reporting. */
bool zp_slot_sparse(zp_elab *e, const zp_slot *slot, const char *name, const struct zp_sparse **sparse);

/* ---- blocks.c ---- */
/* Binds the formals of a block or model in e->frame. */
bool zp_elab_bind(zp_elab *e, const zp_expr *call, const zp_item *item, const zp_slot *slots);
bool zp_elab_formal_names(zp_elab *e, const zp_item *item, const char **names);
bool zp_elab_inline(zp_elab *e, const zp_expr *call, const zp_item *block, zp_module *where, zp_value *value);

/* ---- operators.c ---- */
bool zp_elab_tensor_operator(void *user, const zp_expr *expr, const zp_value *left, const zp_value *right,
                             zp_value *value);
/* Applies an op to values and gives its first output back. `word` names the node when the statement does not. */
bool zp_elab_apply(zp_elab *e, const zp_expr *expr, zp_op op, const zp_value *in, int n_in, zp_op_attr attr,
                   const char *word, zp_value *value);

/* ---- losses.c ---- */
/* Is the value a loss, or a sum of losses? */
bool zp_elab_is_loss(const zp_elab *e, const zp_value *value);
/* Requires: it is. */
zp_loss_terms zp_elab_loss_terms(zp_elab *e, const zp_value *value);
/* An operator with a loss on at least one side. */
bool zp_elab_loss_operator(zp_elab *e, const zp_expr *expr, const zp_value *left, const zp_value *right,
                           zp_value *value);

/* ---- builtins.c ---- */
bool zp_is_builtin(const char *name);
bool zp_elab_call(void *user, const zp_expr *call, zp_value *value);

/* ---- facts.c: what editors show; nothing where nobody wants it ---- */
/* The name at `span` has this value, which it got at `defined`. */
void zp_elab_note(zp_elab *e, zp_span span, const char *name, const zp_value *value, zp_span defined);
void zp_elab_note_name(void *user, const zp_expr *name, const zp_value *found); /* an evaluator hook */
void zp_elab_note_formals(zp_elab *e, const zp_item *item);
/* block: NULL for an operation; first_param: of those that the call has made. */
void zp_elab_note_call(zp_elab *e, const zp_expr *call, const char *name, const zp_item *block, int first_param,
                       const zp_value *value);

/* ---- usage.c ---- */
void zp_elab_check_usage(zp_elab *e);

#endif
