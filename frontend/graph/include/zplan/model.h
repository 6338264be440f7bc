/* SPDX-License-Identifier: Apache-2.0 */
/* The model as a graph: what `model` and `block` in a .dz file mean after names, shapes and repeats are resolved.
 *
 * A model is a chain of segments. A segment is what a pipeline may be cut around: the statements before, between and
 * after `repeat`s (count 1), or one repeat body (count = iterations, one body for all of them). Between neighbouring
 * segments, and between iterations of one, flow the *carried* tensors.
 *
 * The same zp_graph type also holds local graphs: after sharding (planner) the shapes are those of one tensor rank
 * and collective nodes stand between; after differentiation (zp_differentiate) backward nodes follow. */
#ifndef ZPLAN_MODEL_H
#define ZPLAN_MODEL_H

#include <stdbool.h>
#include <zplan/diag.h>
#include <zplan/extent.h>
#include <zplan/vec.h>

#define ZP_MAX_RANK 4
#define ZP_MAX_OPERANDS 5 /* of an operation that users write: attention's */
#define ZP_MAX_EXPERTS 1024
#define ZP_MAX_TOP_K 16 /* experts that one token may choose */
#define ZP_MAX_EXPERT_GROUPS 64
#define ZP_DIM_B (-1) /* the micro-batch size; only as dim[0] */

typedef struct zp_shape {
  int rank;
  int64_t dim[ZP_MAX_RANK];
  /* The dimensions in symbols of the model, for texts: NULL where only the number is known, and for B; else its value
   * is dim[i]. Whoever changes a dimension calls zp_shape_resize. */
  const zp_extent *extent[ZP_MAX_RANK];
} zp_shape;

/* Element kinds, not storage formats: the plan's precision decides how many bytes a FLOAT has. */
typedef enum zp_element {
  ZP_ELEM_FLOAT, /* activations, weights: the compute type of the plan */
  ZP_ELEM_I32,   /* token ids */
  ZP_ELEM_STAT,  /* row statistics kept in the accumulation type (f32, or f64 when computing in f64) */
} zp_element;

typedef enum zp_role {
  ZP_ROLE_VALUE,    /* made by a node */
  ZP_ROLE_INPUT,    /* model input (tokens, labels): index into zp_model.inputs; every stage can load it */
  ZP_ROLE_PARAM,    /* index into zp_model.params */
  ZP_ROLE_CARRY_IN, /* comes from the previous segment or iteration: index into zp_graph.carry_in */
  ZP_ROLE_GRAD_IN,  /* backward: gradient of carry_out[index], comes from the next segment or iteration */
} zp_role;

/* How one dimension falls apart under tensor parallelism. The dimension is [outer][units][unit size]; rank t gets
 * units t*ceil(units/ways) .. of every outer slice. Ranks past the end hold zero padding, so that 5 heads go over 2
 * ranks. outer > 1: fused projections such as q,k,v in one matrix. */
typedef struct zp_parts {
  int64_t outer, units;
} zp_parts;

typedef struct zp_tensor {
  const char *name; /* path inside the segment: "mlp.c_fc", for messages and generated code */
  zp_element element;
  zp_shape shape;
  zp_role role;
  int index;    /* see zp_role */
  int producer; /* node index, -1 for inputs, params, carries, and values that fusion left over */
  zp_span span;
  /* A view is `width` columns of the last dimension of tensor `base`, from column `column`. base = -1: own storage.
   * Views are made by ZP_OP_SPLIT, where no node computes them, and by zp_differentiate: the gradient of a split tensor
   * is a base that nodes write view by view; its producer is the last of them. A base is never a view itself.
   * row_parts > 0: the view has all columns, of part `row_part` of so many equal parts of the base's rows; what has
   * columns only in name (token ids) is divided by its elements (zp_chunk_loss). */
  int base;
  int64_t column;
  int64_t row_part, row_parts;
  zp_parts parts[ZP_MAX_RANK]; /* filled in by zp_graph_infer_parts */
  /* Local graphs only: split_dim >= 0: this is the rank's share of that dimension (shape holds the padded local size,
   * full_dim the logical size). partial: a partial sum over tensor ranks. */
  int split_dim;
  int64_t full_dim;
  bool partial;
  int64_t position_parts; /* PARAM, local graphs: above 1, these are the rank's rows of so many equal parts, of which it
                           * holds all; INPUT: the rank's positions of so many shares. 0: all of it */
  bool frozen;            /* PARAM: it is not trained, so zp_differentiate gives it no gradient */
  bool sorted; /* VALUE of [B,S,k,columns]: its rows are a micro-batch's choices sorted by expert (ZP_OP_EXPERT_ROWS) */
} zp_tensor;

typedef enum zp_op_class {
  ZP_CLASS_ROW,
  ZP_CLASS_MATMUL,
  ZP_CLASS_ATTENTION,
  ZP_CLASS_LOOKUP,
  ZP_CLASS_LOSS,
  ZP_CLASS_VIEW,
  ZP_CLASS_COMM,
  ZP_CLASS_FUSED,
  ZP_CLASS_GROUPED,   /* one matrix product an expert */
  ZP_CLASS_ROUTING,   /* tokens to the slots of experts and back */
  ZP_CLASS_POSITIONS, /* positions of samples copied or summed */
} zp_op_class;

/* The operations, in the order of their table. */
typedef enum zp_op {
#define OP(id, ...) ZP_OP_##id,
#include <zplan/ops.def>
  ZP_OP_COUNT
} zp_op;

/* What holds for an operation whatever its attributes; the letters are those of the table. */
typedef enum zp_op_flag {
  ZP_FLAG_ELEMENTWISE = 1,        /* E: an element of the result is made of the same element of the operands */
  ZP_FLAG_KEEPS_ZERO = 2,         /* Z: zeros in padded columns of the operands are zeros of the result */
  ZP_FLAG_INFIX = 4,              /* I: written between its operands, as a sum is */
  ZP_FLAG_MIXES_POSITIONS = 8,    /* M: a result may be made of several positions; attention aside */
  ZP_FLAG_SELDOM = 16,            /* S: trainers have its kernels only where the model has it */
  ZP_FLAG_AUTOGRAD_OPERANDS = 32, /* O: PyTorch's autograd keeps the operands for backward */
  ZP_FLAG_AUTOGRAD_RESULTS = 64,  /* R: it keeps the results */
  ZP_FLAG_LINEAR = 128,           /* L, ROW ops: of partial sums of the operands the result is a partial sum */
  ZP_FLAG_POLE = 256,             /* P, ROW ops: infinite, or of infinite slope, where an operand is zero */
  ZP_FLAG_HEADS = 512,            /* H: columns are `heads` heads, of which ranks that divide them have whole ones */
  ZP_FLAG_HEAD_ROWS = 1024,       /* N, ROW ops: with `heads` every head is a row of the kernel, else all columns */
  ZP_FLAG_COLUMN_RANGE = 2048,    /* C: a rank's columns must be one range of the logical ones */
} zp_op_flag;

/* In the order of zpk_reduction. */
typedef enum zp_reduction { ZP_REDUCE_SUM, ZP_REDUCE_MAX, ZP_REDUCE_LOG_SUM_EXP } zp_reduction;

/* What a convolution looks at: positions are `size[0]` rows of `size[1]`; windows of `kernel[0]` rows of `kernel[1]` of
 * them begin `padding` before the first one and move by `stride`. In one dimension there is one row. */
typedef struct zp_windows {
  int64_t size[2], kernel[2], stride[2], padding[2];
} zp_windows;

/* Dimensions after B, 0 after the last one. */
typedef int64_t zp_sample_dims[ZP_MAX_RANK - 1];

/* Attributes (attributes.def): the common ones, and those of the operation's group alone. Others of the union must not
 * be read, nor set. */
/* clang-format off */
typedef struct zp_op_attr {
#define COMMON(type, name, ...) type name;
#define GROUP(id)
#define OWN(type, name, ...)
#define END
#include <zplan/attributes.def>
  union {
#define COMMON(type, name, ...)
#define GROUP(id) struct {
#define OWN(type, name, ...) type name;
#define END };
#include <zplan/attributes.def>
  };
} zp_op_attr;
/* clang-format on */

/* Groups of operations that have the same attributes. NONE: the common ones alone. */
typedef enum zp_attr_group {
  ZP_ATTRS_NONE,
#define COMMON(...)
#define GROUP(id) ZP_ATTRS_##id,
#define OWN(...)
#define END
#include <zplan/attributes.def>
  ZP_ATTRS_COUNT
} zp_attr_group;

/* Inside a FUSED node: a small straight-line program over row values. Values 0..n_in-1 are the node's inputs (in
 * order), value n_in + i is the result of ops[i]. */
typedef struct zp_fused_op {
  zp_op op;          /* class ROW */
  int arg[3], n_arg; /* value numbers */
  zp_op_attr attr;
  zp_span span;
  const char *name;
  int64_t cols; /* of the result */
} zp_fused_op;

/* How a FUSED input is read. */
typedef enum zp_operand {
  ZP_OPERAND_ROWS,     /* [rows, cols]: one row per row */
  ZP_OPERAND_COLUMNS,  /* [cols]: the same for every row (bias, norm weight) */
  ZP_OPERAND_POSITION, /* [S, cols]: row r reads row r % S */
} zp_operand;

typedef struct zp_fused {
  int n_in;
  zp_operand *operand; /* n_in */
  int64_t *in_cols;    /* n_in */
  ZP_VEC(zp_fused_op) ops;
  zp_ints out_value;       /* value number of every output of the FUSED node, in order of node.out */
  int64_t rows_per_sample; /* S: rows of one sample (position = row % rows_per_sample) */
  /* Rows of a tensor are so many rows of the group, side by side: heads that are normalised each by itself. 1: rows are
   * rows. Then the tensors are no views, and every op is of `in_cols` of the first operand columns. */
  int64_t row_parts;
  /* The rank's share of this group, for dropout counters. split: of the columns: logical column of local column c is
   * rank * local_cols + c (legal for outer == 1 only). split_rows: of every sample's positions: the position of local
   * row r is rank * rows_per_sample + r % rows_per_sample. Otherwise c, and r % rows_per_sample. */
  bool split, split_rows;
} zp_fused;

/* FUSED_GRAD inputs and outputs refer to values of the forward group. */
typedef enum zp_grad_use {
  ZP_USE_SAVED,   /* in: the forward value `value` itself (group input or materialised output) */
  ZP_USE_GRAD,    /* in: a contribution to the gradient of group output value `value`; several are summed */
  ZP_USE_ADDEND,  /* in: an earlier contribution to the gradient of group input `value`, to be added to the result */
  ZP_USE_ROWS,    /* out: gradient of group input `value`, [rows, cols] (POSITION operands too: per row, unreduced) */
  ZP_USE_COLUMNS, /* out: gradient of a COLUMNS operand, summed over rows, accumulated into the parameter's gradient */
} zp_grad_use;
typedef struct zp_grad_arg {
  zp_grad_use use;
  int value;
} zp_grad_arg;

typedef struct zp_node {
  zp_op op;
  zp_ints in, out; /* tensor indices. Parameter-gradient outputs: see param_grad */
  zp_op_attr attr;
  zp_span span;
  const char *name; /* path: "mlp.c_fc" */
  /* *_GRAD/WGRAD nodes that accumulate into a parameter's gradient: index into zp_graph.params of each such output,
   * in order: outputs of the node that are parameter gradients are *not* in `out`. For FUSED_GRAD the order is that of
   * the ZP_USE_COLUMNS entries of grad_out. */
  zp_ints param_grad;
  zp_fused *fused;             /* FUSED, FUSED_GRAD: the forward group; of products: their epilogue (epilogue.c) */
  int product;                 /* MATMUL, MATMUL_DGRAD with an epilogue: the product, a tensor that is stored nowhere */
  ZP_VEC(zp_grad_arg) grad_in; /* FUSED_GRAD: parallel to in; of products: to that of zp_epilogue_group */
  ZP_VEC(zp_grad_arg)
  grad_out; /* FUSED_GRAD: the ROWS entries parallel to out, then the COLUMNS entries parallel to param_grad */
} zp_node;

/* One use of a model parameter by a graph. A parameter used twice in one graph stands here once. */
typedef struct zp_param_use {
  int param;  /* index into zp_model.params */
  int tensor; /* its tensor in this graph */
} zp_param_use;

typedef struct zp_graph {
  zp_arena *arena; /* borrowed */
  ZP_VEC(zp_tensor) tensors;
  ZP_VEC(zp_node) nodes;       /* topological order */
  ZP_VEC(zp_param_use) params; /* in order of first use: the order of the flat parameter buffer */
  zp_ints carry_in, carry_out; /* tensor indices; equal shapes position by position between neighbours, and in a repeat
                                * between iterations. A tensor that is only handed on is in both */
  zp_ints losses; /* tensor indices of the losses, which are summed by the weights of their nodes (zp_graph_add_loss) */
  bool first_trained; /* nothing before it is trained: nobody asks for gradients of what is carried in */
  /* After zp_differentiate: nodes[0 .. n_forward) are forward, the rest backward. grad_in[i] is the tensor (role
   * GRAD_IN) of the gradient of carry_out[i]; grad_out[i] that of carry_in[i]. */
  int n_forward;
  zp_ints grad_in, grad_out;
  int n_loss; /* the last forward nodes that backward does not need: they make the loss where no backward follows
               * (zp_chunk_loss); 0: there are none */
} zp_graph;

typedef enum zp_init_kind { ZP_INIT_NORMAL, ZP_INIT_UNIFORM, ZP_INIT_CONSTANT } zp_init_kind;
typedef struct zp_param {
  const char *name; /* "wte", or with one {} for the iteration: "h.{}.mlp.c_fc.weight" */
  zp_shape shape;
  zp_init_kind init;
  double init_a, init_b; /* normal: mean, std; uniform: low, high; constant: value */
  int segment; /* the repeat segment that owns it, one copy per iteration; -1: declared outside repeats, one copy */
  bool frozen; /* it is not trained: no gradient, no optimizer state (zp_model_freeze) */
  /* The bias of a gate: a step takes that much off or adds it, by the sign of what stands for its gradient, which
   * counts in no norm (zp_model_find_biases); 0: any other parameter. */
  double sign_rate;
  zp_span span;
} zp_param;

typedef struct zp_input {
  const char *name;   /* "tokens", "labels", "images" */
  zp_shape shape;     /* [B], [B, n] or [B, S, n] */
  zp_element element; /* FLOAT: read in the compute type; or I32 */
  /* I32: what the loss, lookups and attention take, from `least` to before `limit`. labels: those of the loss, where -1
   * stands for none. Known when the whole model is (zp_model_find_ranges). */
  int64_t least, limit;
  bool labels;
  bool documents; /* of an attention: numbers that ascend, and -1 after them */
  int64_t none;   /* labels: what stands for none in the data; trainers have -1 for it */
  zp_span span;
} zp_input;

/* x w + scale dropout(x) a b: w[k, n], a[k, r] and b[r, n], or transposed as w is; a and b are parameters of their own.
 * Every expert has its own: w[E, k, n] and so on. An embedding is w[ids] + scale a[ids] b, w[V, n], a[V, r]. */
typedef struct zp_adapter {
  int weight, a, b; /* indices into zp_model.params */
  zp_op of;         /* MATMUL, BATCHED_MATMUL or EMBEDDING: that one alone where others read the weight, too */
  double scale, dropout;
  int64_t stream; /* of the dropout */
} zp_adapter;

typedef struct zp_segment {
  const char *name; /* the repeat variable ("h"), or "begin", "middle1", "end" */
  int64_t count;    /* iterations; 1 outside repeats */
  bool is_repeat;
  zp_graph *graph;
  zp_span span;
} zp_segment;

typedef struct zp_model {
  const char *name;
  zp_arena *arena;
  ZP_VEC(zp_param) params;
  ZP_VEC(zp_input) inputs;
  ZP_VEC(zp_segment) segments;
  ZP_VEC(zp_adapter) adapters;       /* zp_model_adapt */
  ZP_VEC(const zp_extent *) symbols; /* the whole numbers that it declares, in order: what extents are made of */
  int64_t sequence;   /* S: positions of a sample, dim[1] of `tokens` or the first input that has them; 1: none */
  int64_t vocabulary; /* rows of the (first) loss's logits, or with other inputs alongside them those of the table of
                       * `tokens`: valid token ids are below it */
  zp_span span;
} zp_model;

/* ---- op table (ops.c) ---- */
const char *zp_op_name(zp_op op);       /* "layer_norm" */
const char *zp_op_identifier(zp_op op); /* "LAYER_NORM" */
zp_op_class zp_op_get_class(zp_op op);
zp_attr_group zp_op_get_attributes(zp_op op);
bool zp_op_has(zp_op op, zp_op_flag flag);
/* Adds what the text of a graph leaves out of a node: its attributes by their kinds. */
uint64_t zp_node_hash(uint64_t hash, const zp_node *node);
/* What the derivative of a ROW op with respect to operand `operand` reads: bit j set = the forward value of operand j.
 * zp_differentiate saves by this table, and kernels may rely on no more than that. */
unsigned zp_op_backward_reads(zp_op op, int operand);
/* Forward or backward work of a node at micro-batch size b, in the graph's (local) shapes. Multiply-add = 2 FLOP.
 * Bytes: every operand once, with the given bytes per FLOAT, and per element of a parameter's gradient. */
double zp_node_flop(const zp_graph *graph, const zp_node *node, int64_t microbatch);
double zp_node_bytes(const zp_graph *graph, const zp_node *node, int64_t microbatch, int float_bytes, int sum_bytes);

/* ---- building (graph.c): used by sema, and by tests directly ---- */
zp_model *zp_model_new(zp_arena *arena, const char *name);
int zp_model_add_param(zp_model *model, zp_param param);
/* The parameter is not trained, nor are its tensors in the segments' graphs. */
void zp_model_freeze(zp_model *model, int param);
/* All parameters are trained. */
void zp_model_unfreeze(zp_model *model);
/* Products of layers with parameters whose rows and columns are multiples of that take operands of 8 bits; 0: none does
 * (float8.c). How many do. */
int zp_model_set_float8(zp_model *model, int multiple);
/* Why the weight cannot have an adapter of that rank; NULL: it can. Arena. */
const char *zp_model_refuse_adapter(const zp_model *model, int weight, int64_t rank);
/* Gives a weight an adapter: `NAME.lora_A.weight` and `NAME.lora_B.weight` of a weight `NAME.weight`, with the start
 * values of PEFT: a uniform within 1 / sqrt(k) (Kaiming's with a slope of sqrt(5)), b zero; of an embedding a zero and
 * b normal. Embeddings and experts have no dropout, as in PEFT. Requires: not refused; no parts were inferred, or they
 * are once more. */
void zp_model_adapt(zp_model *model, int weight, int64_t rank, double scale, double dropout);
/* Is the parameter read more than once? */
bool zp_model_is_tied(const zp_model *model, int param);
/* Is the parameter a matrix of an adapter? */
bool zp_model_is_adapter(const zp_model *model, int param);
int zp_model_add_input(zp_model *model, const char *name, zp_shape shape, zp_span span);
int zp_model_add_array(zp_model *model, const char *name, zp_element element, zp_shape shape, zp_span span);
/* Bytes of one micro-batch of input i, and of the first n inputs. They stand in memory one after the other, each with
 * all of its micro-batches: first those of numbers, each micro-batch at a multiple of ZP_INPUT_ALIGN, then i32: tokens,
 * labels, lengths where a model has them, and others. Every stage has the latter; numbers only where it reads some. */
enum { ZP_INPUT_ALIGN = 256 };
int64_t zp_model_input_bytes(const zp_model *model, int i, int64_t microbatch, int compute_bytes);
int64_t zp_model_inputs_bytes(const zp_model *model, int n, int64_t microbatch, int compute_bytes, bool numbers);
bool zp_graph_reads_numbers(const zp_graph *graph);
/* Are its inputs tokens [B, S] and perhaps their labels [B, S] and lengths [B]? Sources of text feed those alone. */
bool zp_model_reads_tokens(const zp_model *model);
/* The first input that is none of these; NULL: there is none. */
const zp_input *zp_model_foreign_input(const zp_model *model);
/* Fills in the ranges of i32 inputs from what reads them. Requires: all segments are there. */
void zp_model_find_ranges(zp_model *model);
/* Sets sign_rate. Returns the first node that uses such a bias in any other way or at another rate, NULL if there is
 * none. Call it once all segments exist. */
const zp_node *zp_model_find_biases(zp_model *model);
bool zp_model_has_gate_biases(const zp_model *model); /* that are not frozen */
/* The operand of an attention, forward or backward, that holds the lengths of samples; -1: all positions are there. */
int zp_attention_lengths(const zp_node *node);
/* The operand that holds the documents of positions; -1: a sample is one. */
int zp_attention_documents(const zp_node *node);
/* The operand that is the table of its relative bias; -1: it has none. */
int zp_attention_bias(const zp_node *node);
/* Keys that a query sees on average of so many: of causal attention half of all, as it is counted everywhere. */
double zp_attention_keys(const zp_op_attr *attr, int64_t sequence);
/* Sequence length at which dense attention wastes the same fraction of each tile on masked keys. For windowed attention
 * this is the window size, since both ends of a row are cut. */
double zp_attention_reach(const zp_op_attr *attr, double sequence);
/* The share of dense attention. */
double zp_attention_density(const zp_op_attr *attr, int64_t sequence);
/* What attentions of the model see, where some do not see all: one text a kind, in the order of the model. Arena. */
zp_strings zp_attention_texts(zp_arena *arena, const zp_model *model);
/* Opens a new segment, with one iteration unless it is a repeat; its graph's carry_in are fresh tensors with these
 * shapes (n may be 0). */
zp_segment *zp_model_add_segment(zp_model *model, const char *name, int64_t count, bool is_repeat,
                                 const zp_shape *carry, const char *const *carry_names, int n_carry, zp_span span);
/* One more tensor that comes from the segment before, like the one that flows out there. */
int zp_graph_add_carry(zp_graph *graph, const zp_tensor *from);
int zp_graph_param(zp_graph *graph, const zp_model *model, int param); /* the tensor of a parameter (made once) */
int zp_graph_input(zp_graph *graph, const zp_model *model, int input);
/* Applies an op. Shape errors are reported to diags (Z0204 and the like, naming the shapes) and -1 is returned;
 * otherwise the index of the first output tensor (SPLIT: parts consecutive tensors; ATTENTION: o, then lse;
 * TOP_K_GATE: weight, then slot). */
int zp_graph_apply(zp_graph *graph, zp_diags *diags, zp_op op, const int *in, int n_in, zp_op_attr attr,
                   const char *name, zp_span span);
int zp_graph_add_tensor(zp_graph *graph, zp_tensor tensor);
int zp_graph_add_node(zp_graph *graph, zp_node node);
enum { ZP_MOST_LOSSES = 8 }; /* as zplan/rt_tables.h has it */
/* One loss more of the graph, made by a CROSS_ENTROPY, a SQUARED_ERROR or CE_LOSS. Requires: weight > 0. */
void zp_graph_add_loss(zp_graph *graph, int tensor, double weight);

/* ---- questions ---- */
int64_t zp_shape_elements(const zp_shape *shape, int64_t microbatch);
/* Elements of the first n carried tensors of a list. On their way they stand one after the other, without gaps. */
int64_t zp_carried_elements(const zp_graph *graph, const zp_ints *carry, int n, int64_t microbatch);
int64_t zp_shape_rows(const zp_shape *shape, int64_t microbatch); /* all but the last dim; 1 for rank 1, but of [B] B */
int64_t zp_shape_cols(const zp_shape *shape);                     /* last dim; 1 for rank 0 and [B] */
bool zp_shape_equal(const zp_shape *a, const zp_shape *b);        /* of numbers; extents are not compared */
/* How many windows there are along one of the two dimensions, 0 or less: none; how many places one has. */
int64_t zp_windows_count(const zp_windows *windows, int dimension);
int64_t zp_windows_places(const zp_windows *windows);
/* Makes dimension i `size`, a share or a multiple of what it was: its extent follows. */
void zp_shape_resize(zp_arena *arena, zp_shape *shape, int i, int64_t size);
/* The shape of a cross-entropy's statistics that are gathered from so many ranks. */
zp_shape zp_gathered_stats(zp_arena *arena, const zp_shape *stat, int64_t ranks);
/* Dimension i in symbols, B being the symbol of a micro-batch of that size; a plain number where no more is known. */
const zp_extent *zp_shape_extent(zp_arena *arena, const zp_shape *shape, int i, int64_t microbatch);
const char *zp_shape_text(zp_arena *arena, const zp_shape *shape); /* "[B, 1024, 768]" */
/* Parameters, tied ones once, all iterations counted. */
int64_t zp_model_parameters(const zp_model *model);
/* Is some parameter not trained? Are matrices of experts? */
bool zp_model_has_frozen(const zp_model *model);
bool zp_model_has_frozen_experts(const zp_model *model);
/* Parameters that are trained. */
int64_t zp_model_trained_parameters(const zp_model *model);
/* Parameters that one token meets: all of them, but of matrices of experts only its top_k. */
int64_t zp_model_active_parameters(const zp_model *model);
/* Model FLOPs of one sequence, forward + backward without recomputation (attention counted causally where causal, of
 * experts the top_k of every token, or fewer where there are fewer slots). The gradients of frozen weights are no
 * work. */
double zp_model_flop_per_sequence(const zp_model *model);
/* For programs whose experts take the tokens that come: where slots drop no token, as many as even routing fills.
 * Changes slots and shapes of expert tensors alone. Idempotent. */
void zp_model_route_evenly(zp_model *model);
/* "h.3.mlp.c_fc.weight" for iteration 3. Arena. */
const char *zp_param_instance_name(zp_arena *arena, const zp_param *param, int64_t iteration);
/* Readable dump, one line a node: for --dump-after and tests. Arena. */
const char *zp_graph_text(zp_arena *arena, const zp_graph *graph);
/* Structural invariants (shapes of nodes, producers, order, views). NULL when sound, else what is wrong (arena). */
const char *zp_graph_check(zp_arena *arena, const zp_graph *graph);

/* ---- passes ---- */
/* Fills in tensor.parts: the natural units in which every dimension may be split (heads, fused q/k/v slices, single
 * columns), as a fixed point over the ops. Requires: a logical graph. */
void zp_graph_infer_parts(zp_graph *graph);
/* The local graph at tensor degree 1: CROSS_ENTROPY becomes CE_STATS and CE_LOSS, which reads stat[B,S,3] = [1,B*S,3]
 * directly; graph.losses are then CE_LOSS's outputs. Tensors keep their indices. Returns a new graph in the same
 * arena. */
zp_graph *zp_graph_localize_trivial(const zp_graph *graph);
/* The graph of one rank of an expert group of `parts` data ranks, from that of its tensor rank (undifferentiated): it
 * has a share of the tensor rank's experts. Tensors keep their indices. A new graph in the same arena; NULL with
 * *reason. Rows sorted by expert go to their experts' ranks in numbers that routing decides, which counts say. */
zp_graph *zp_graph_spread_experts(const zp_graph *graph, int parts, const char **reason);
/* Rows for a sample that a rank of an expert group has room for, whatever is chosen: a token's choices are of different
 * experts, of which the rank has a share. Fewer where the gate says so. Of ZP_OP_SPREAD_COUNTS and of exchanges that
 * follow its counts. */
int64_t zp_graph_room(const zp_op_attr *attr);
/* Rows and experts of a product of sorted rows: of rows that come from other ranks as many as an even load brings. */
typedef struct zp_sorted_rows {
  const zp_node *counts; /* that says how many come; NULL: the rank's own rows */
  int64_t rows, experts;
} zp_sorted_rows;
zp_sorted_rows zp_graph_sorted_rows(const zp_graph *graph, const zp_node *product, int64_t microbatch);
/* What ranks of a context group exchange around attention: heads; keys and values, which all gather; or these, which
 * pass from rank to rank. In the plan's order: its words are of this order, too. */
typedef enum zp_context_by { ZP_BY_HEADS, ZP_BY_KEYS, ZP_BY_RING, ZP_CONTEXT_BY_COUNT } zp_context_by;
const char *zp_context_by_name(zp_context_by by);
/* Positions of all keys that queries of an attention, forward or backward, see: on the ranks of a ring more than are
 * here. */
int64_t zp_attention_positions(const zp_graph *graph, const zp_node *node);
/* By keys and in a ring: does every pair of a stretch of queries and one of keys have calls of its own? In windows and
 * patterns, with dropout and of documents, which know positions. */
bool zp_attention_by_pairs(const zp_op_attr *attr);
/* Rows that workspace is made for: keys of a call, at most, backward its queries. */
int64_t zp_attention_most(const zp_graph *graph, const zp_node *node);
/* The graph of one rank of a context group of `parts` data ranks, from that of its tensor rank (undifferentiated; of
 * `tensor` ranks): it has an equal share of every sample's positions, its place in the group first. Heads are exchanged
 * around attention; otherwise keys and values are gathered or passed on, and the share is two stretches. Parameters
 * stay whole; of one with a row for every position the graph reads the rank's (zp_tensor.position_parts). Tensors keep
 * their indices. A new graph in the same arena; NULL with *reason. */
zp_graph *zp_graph_divide_positions(const zp_graph *graph, int tensor, int parts, zp_context_by by,
                                    const char **reason);
/* Groups neighbouring ROW nodes of a (local, undifferentiated) graph into FUSED nodes, greedily, where the rows agree;
 * every ROW node ends up in a FUSED node, alone if need be. Nothing else changes order relative to its users.
 * Group outputs are the values that someone outside needs, or backward needs and cannot cheaply rebuild.
 * Tensors keep their indices; those inside a group are left over without a producer. Requires: no backward nodes.
 * Returns a new graph in the same arena. */
zp_graph *zp_fuse(const zp_graph *graph);
/* Reverse-mode differentiation of a fused local graph (required: no ROW op outside a group, no backward nodes): returns
 * a new graph with the backward nodes appended. Parameters' gradients accumulate (node.param_grad); identities are
 * aliased, never copied: grad_out[i] may be a grad_in tensor itself (a residual path), and one gradient tensor may
 * belong to several forward tensors. Sums that no FUSED_GRAD takes in are FUSED nodes of additions. */
zp_graph *zp_differentiate(const zp_graph *graph);
/* Gives products the groups that they can compute as epilogues, where nobody else reads the product; of a fused graph,
 * before and after it is differentiated. gelu: gelu's derivative, too. Operands of a product with an epilogue: its own
 * two, then those of the group but the product. Tensors keep their indices. New graphs in the same arena. */
zp_graph *zp_fold_epilogues(const zp_graph *graph);
zp_graph *zp_fold_gradients(const zp_graph *graph, bool gelu);
/* The graph whose loss is made in backward, by equal parts of the tokens, so that the logits never exist whole: for
 * every part the product, the row statistics, the loss, the gradients of the logits, of the product's input and of its
 * weight. Forward ends before that product; what makes the loss without gradients stands after it (n_loss). Tensors
 * keep their indices. A new graph in the same arena; NULL with *reason (arena) when the loss is not that of a product
 * alone, or the sequence does not fall into so many parts. Requires: a differentiated local graph with a loss, chunks
 * >= 2. */
zp_graph *zp_chunk_loss(const zp_graph *graph, int chunks, const char **reason);
/* Is the loss of the model taken of a matrix product that nothing else reads? Else zp_chunk_loss refuses its graphs. */
bool zp_has_product_loss(const zp_model *model);
/* The epilogue of a product as the node that would compute it alone: FUSED or FUSED_GRAD, which reads `product`.
 * Arena. */
zp_node zp_epilogue_group(zp_arena *arena, const zp_node *node);

#endif
