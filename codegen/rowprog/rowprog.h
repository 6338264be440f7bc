/* SPDX-License-Identifier: Apache-2.0 */
/* Row programs: straight-line SSA over the columns of one row, run for every row of a tensor.
 *
 * A value is either *u*, one number per row (cols == 0), or *r*, one number per column of the row (cols > 0). A u in an
 * r operation stands for the same number in every column; reductions (rsum, rmax, rlse) turn r into u. Sinks write
 * values to outputs or add them up over rows. Nothing else exists: no general loops, no addresses.
 *
 * Invariants: arguments have smaller indices than their users; equal expressions are one value; all r arguments of a
 * value have its number of columns; after zp_row_legalize no SWAP, RLSE or UNKNOWN is left and every value is used.
 *
 * build.c makes values, expand.c turns graph ops into them, grad.c differentiates, fused.c turns FUSED and FUSED_GRAD
 * nodes into programs. codegen/host lowers programs to LLVM, codegen/cuda prints them as CUDA C; tests/oracle runs them
 * in f64 as the oracle. */
#ifndef ZPLAN_ROWPROG_H
#define ZPLAN_ROWPROG_H

#include <zplan/model.h>

/* name, printed name, number of arguments */
#define ZP_ROW_OPS(X)                                                                                                  \
  X(IMM, "imm", 0)           /* u: value.imm */                                                                        \
  X(UNKNOWN, "unknown", 0)   /* r: forward value that backward was not given; legal only in dead code */               \
  X(ROWS, "rows", 0)         /* r: in[input][row][column] */                                                           \
  X(COLUMNS, "columns", 0)   /* r: in[input][column] */                                                                \
  X(POSITION, "position", 0) /* r: in[input][row % S][column] */                                                       \
  X(KEEP, "keep", 0)         /* r: dropout factor 0 or 1 / (1 - rate); 1 everywhere when dropout is off */             \
  X(COS, "cos", 0)           /* r: rotary table, cos(position * theta^(-2i / head)), i = pair of the column */         \
  X(SIN, "sin", 0)           /* r: the same with sin, negative in the first column of a pair */                        \
  X(NEG, "neg", 1)                                                                                                     \
  X(ADD, "add", 2)                                                                                                     \
  X(SUB, "sub", 2)                                                                                                     \
  X(MUL, "mul", 2)                                                                                                     \
  X(DIV, "div", 2)                                                                                                     \
  X(EXP, "exp", 1)                                                                                                     \
  X(LOG, "log", 1)                                                                                                     \
  X(SQRT, "sqrt", 1)                                                                                                   \
  X(RSQRT, "rsqrt", 1)                                                                                                 \
  X(TANH, "tanh", 1)                                                                                                   \
  X(SIGMOID, "sigmoid", 1)                                                                                             \
  X(ERF, "erf", 1)                                                                                                     \
  X(CAST_BF16, "cast_bf16", 1) /* rounded to what the type holds */                                                    \
  X(CAST_F16, "cast_f16", 1)                                                                                           \
  X(CAST_F32, "cast_f32", 1)                                                                                           \
  X(SELECT_LE, "select_le", 4) /* a <= b ? c : d */                                                                    \
  X(SWAP, "swap", 1)           /* r: the other column of each rotary pair */                                           \
  X(RSUM, "rsum", 1)           /* u: sum over columns */                                                               \
  X(RMAX, "rmax", 1)           /* u: largest column; derivative taken as 0, see grad.c */                              \
  X(RLSE, "rlse", 1)           /* u: log of the sum of exp, for arguments <= 0 */

typedef enum zp_row_op {
#define ZP_ROW_ENUM(name, text, args) ZP_ROW_##name,
  ZP_ROW_OPS(ZP_ROW_ENUM)
#undef ZP_ROW_ENUM
      ZP_ROW_OP_COUNT
} zp_row_op;

/* How columns pair up: in heads of `head` columns, column i of the first half with column i of the second, or
 * neighbours when interleaved. head == 0: no pairing. */
typedef struct zp_row_pairs {
  int64_t head;
  bool interleaved;
} zp_row_pairs;

typedef struct zp_row_value {
  zp_row_op op;
  int64_t cols; /* 0: u */
  int arg[4];
  int input;          /* ROWS, COLUMNS, POSITION: kernel input; UNKNOWN: value number of the forward group */
  double imm;         /* IMM: the number; KEEP: the rate; COS, SIN: theta */
  int64_t stream;     /* KEEP: Philox stream */
  zp_row_pairs table; /* COS, SIN, SWAP */
  zp_row_pairs swap;  /* leaves of legalized programs: read at the other column of the pair */
  int level;          /* how many reductions, one after the other, must be finished before it can be computed */
  /* For texts, no part of what the value is (names.c). is_named: by the model or a rule, not after its operation. */
  const char *name, *words;
  bool is_named;
} zp_row_value;

typedef enum zp_row_sink_kind { ZP_ROW_STORE, ZP_ROW_CSUM } zp_row_sink_kind;
/* STORE: out[index][row] = value. CSUM: partial[index] + chunk * cols += value, over rows. */
typedef struct zp_row_sink {
  zp_row_sink_kind kind;
  int value, index;
  int64_t cols;
  const char *name; /* of what is stored, or of what gets the sum; NULL: not known */
} zp_row_sink;

typedef struct zp_row_program {
  zp_arena *arena; /* borrowed */
  ZP_VEC(zp_row_value) values;
  ZP_VEC(zp_row_sink) sinks;
  int n_in, n_out, n_partial;
  int64_t rows_per_sample;
  const char **in_name; /* [n_in], each once */
  const char *scope;    /* while values are made: the graph op that they are part of; NULL: none */
} zp_row_program;

/* ---- build.c: values, with folding of constants, identities and common subexpressions ---- */
zp_row_program *zp_row_program_new(zp_arena *arena, int64_t rows_per_sample);
int zp_row_emit(zp_row_program *program, zp_row_value value);
int zp_row_imm(zp_row_program *program, double number);
int zp_row_leaf(zp_row_program *program, zp_row_op op, int input, int64_t cols);
int zp_row_unary(zp_row_program *program, zp_row_op op, int a);
int zp_row_binary(zp_row_program *program, zp_row_op op, int a, int b);
int zp_row_select_le(zp_row_program *program, int a, int b, int c, int d);
int zp_row_swap(zp_row_program *program, int a, zp_row_pairs pairs);
int zp_row_sum(zp_row_program *program, int a, int64_t cols); /* over cols columns, also of a u */
/* name: of what is stored or gets the sum, NULL when it has none */
void zp_row_sink_value(zp_row_program *program, zp_row_sink_kind kind, int value, int64_t cols, const char *name);
bool zp_row_is_zero(const zp_row_program *program, int value); /* the constant */
int zp_row_args(zp_row_op op);
const char *zp_row_op_name(zp_row_op op);
static inline bool zp_row_is_u(const zp_row_program *program, int value) {
  return program->values.data[value].cols == 0;
}

/* ---- the passes ---- */
/* expand.c: the value of a graph op; arg: values of its operands. */
int zp_row_expand(zp_row_program *program, const zp_fused_op *op, const int *arg);
/* grad.c: reverse mode over values 0 .. count - 1. adjoint[v]: the incoming gradient of value v, -1 for none; on return
 * the whole gradient, -1 where none arrives. origin[v] >= 0: v is a leaf that holds the saved result of the earlier
 * value origin[v]: the leaf is read in its place, and its gradient is that of the origin. */
void zp_row_differentiate(zp_row_program *program, int count, const int *origin, int *adjoint);
/* legalize.c: a new program without SWAP, RLSE and dead values. */
zp_row_program *zp_row_legalize(const zp_row_program *program);
/* fused.c: the legalized program of a FUSED or FUSED_GRAD node, with names for all values. graph: where operands have
 * theirs; NULL: they are called after their kind. */
zp_row_program *zp_row_from_node(zp_arena *arena, const zp_graph *graph, const zp_node *node);
/* Names of the values of a node's group, of its inputs and results: as they are called in texts. Arena. */
const char **zp_row_group_names(zp_arena *arena, const zp_graph *graph, const zp_node *node);

/* ---- names.c ---- */
/* "h.{}.attn.c_proj.bias" -> "c_proj_bias": an identifier of the last parts that say something. Arena. */
const char *zp_row_short_name(zp_arena *arena, const char *path);
/* Names a value that is computed and has no name yet; the second: as a part of the graph op that is expanded,
 * "ln_1_mean". Both return it. */
int zp_row_named(zp_row_program *program, int v, const char *name, const char *words);
int zp_row_part(zp_row_program *program, int v, const char *part, const char *words);
/* Gives every value a name of its own, and words that explain it. */
void zp_row_name_values(zp_row_program *program);

/* ---- schedule.c ---- */
/* One loop over columns: values to compute in order, and the sinks and reductions that end in it. */
typedef struct zp_row_pass {
  int level;
  int64_t cols;
  zp_ints values;     /* r values, leaves included */
  zp_ints reductions; /* value indices of RSUM and RMAX over values of this pass */
  zp_ints sinks;      /* sink indices */
} zp_row_pass;
/* Levels run in order; at each level first its u values (those with no reduction left to wait for), then its passes. */
typedef struct zp_row_schedule {
  int n_levels;
  zp_ints *scalars; /* per level: u values in order, reductions excluded */
  ZP_VEC(zp_row_pass) passes;
} zp_row_schedule;
zp_row_schedule zp_row_make_schedule(const zp_row_program *program);

/* ---- leaves.c: what the targets must agree on ---- */
/* Rotary pairs: of column c of a head, its pair and whether it is the pair's first column, whose sine is negative; the
 * angle of a pair (of a COS or SIN) for each position. */
int64_t zp_row_pair_of(zp_row_pairs pairs, int64_t c);
bool zp_row_first_of_pair(zp_row_pairs pairs, int64_t c);
double zp_row_frequency(const zp_row_value *rotary, int64_t pair);

/* ---- text.c, describe.c ---- */
const char *zp_row_text(const zp_row_program *program);       /* values by number: equal for equal kernels */
const char *zp_row_named_text(const zp_row_program *program); /* by name, for readers */
/* "ln_1 = layer_norm(x, ln_1_weight, ln_1_bias)". Arena. */
const char *zp_row_describe(zp_arena *arena, const zp_graph *graph, const zp_node *node);

#endif
