/* SPDX-License-Identifier: Apache-2.0 */
/* Device kernels: their arguments, shared by the runtime (C), by the kernels' text and by the row kernels that zplan
 * generates (CUDA C, which NVRTC compiles). So only built-in types appear here.
 *
 * Every kernel has exactly one parameter, a struct passed by value, and is defined with ZPD_KERNEL. The same text also
 * compiles as C++ for the host (ZPD_HOST, see codegen/cuda/emulator): one fiber a thread of a block, blocks one after
 * the other.
 *
 * Arguments have no padding: the emulated GPU takes every word of them that is an address of its own for one, and what
 * stands in padding is whatever the stack held. The compiler of the host says where there is some.
 *
 * `real` is float or double: the text is compiled with ZPD_F64 defined or not. Operands are `real`; with ZPD_BF16 or
 * ZPD_F16 they have 16 bits, as zpk.h says. Matrices are row-major; `ld` counts elements. Legend: B micro-batch, S
 * sequence, H local heads, G local kv heads, hd head size, V local vocabulary, R = B * S rows. Results do not depend on
 * the size of the grid: whatever is summed over rows is summed in a fixed order. */
#ifndef ZPLAN_ZPD_H
#define ZPLAN_ZPD_H

#include "zplan/zpk_optimizers.h"

typedef long long zpd_int;
typedef unsigned long long zpd_uint;

/* ---- block-sparse layouts ---- */

/* Which blocks meet, as zpk_layout says; constants of the kernels' text. */
typedef struct zpd_run {
  int first, end;
} zpd_run;
typedef struct zpd_block_list {
  const int *first;
  const zpd_run *run;
} zpd_block_list;
typedef struct zpd_layout {
  int block; /* a multiple of ZPD_ATTENTION_ROWS, for zpd_mma_* of ZPD_MMA_UNIT */
  zpd_block_list keys, queries;
} zpd_layout;

/* ---- arguments ---- */

#if defined(__GNUC__) && !defined(__CUDACC__) && __SIZEOF_POINTER__ == 8 /* as on devices */
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wpadded"
#endif

/* ---- row kernels ---- */

#define ZPD_OPERANDS 16

/* Sums over the columns of rows are made in chunks of rows, whose number depends on the rows alone. A chunk's sums go
 * to partial[i] + chunk * columns_i, zeros where the chunk is empty; they are added up group by group of neighbouring
 * chunks, each by the block that came last, and the groups by the last of all (zpd_rows.cuh). */
enum {
  ZPD_ROWS_OF_CHUNK = 16, /* at least */
  ZPD_MOST_CHUNKS = 512,
  ZPD_CHUNKS_OF_GROUP = 16,
  ZPD_TICKETS_OF_TILE = 1 + ZPD_MOST_CHUNKS / ZPD_CHUNKS_OF_GROUP,
  ZPD_MOST_TILES = 512 /* of kernels with sums */
};
#ifndef __CUDACC_RTC__
static inline int zpd_row_chunks(zpd_int rows) {
  const zpd_int chunks = rows / ZPD_ROWS_OF_CHUNK;
  return chunks < 1 ? 1 : chunks < ZPD_MOST_CHUNKS ? (int)chunks : ZPD_MOST_CHUNKS;
}
#endif

/* Operands as in zpk_row_args, of row 0 on. gridDim.y: the tiles of columns that the kernel cuts rows into, or 1.
 * Without column sums: any gridDim.x; blocks share the rows out. With sums: gridDim.x == chunks, block b takes the rows
 * of chunk b, [rows * b / chunks, rows * (b + 1) / chunks). */
typedef struct zpd_rows {
  const void *in[ZPD_OPERANDS];
  void *out[ZPD_OPERANDS], *partial[ZPD_OPERANDS], *sum[ZPD_OPERANDS];
  zpd_int in_ld[ZPD_OPERANDS], out_ld[ZPD_OPERANDS];
  zpd_int first, rows;           /* the first row, 0 with column sums; the number after the last one */
  zpd_uint seed, step, instance; /* of the random stream, as in zpk_row_args */
  zpd_int first_sample, first_column, logical_columns;
  unsigned *tickets;   /* [gridDim.y][ZPD_TICKETS_OF_TILE], all 0, and 0 again when the kernel ends */
  unsigned accumulate; /* bit i: sum[i] is added to what is there */
  int dropout;         /* 0 during validation */
  zpd_int chunks;      /* 1 without sums */
} zpd_rows;

/* ---- lookups: as zpk_embedding, zpk_embedding_grad, zpk_position_grad over all rows, columns, positions ---- */
typedef struct zpd_lookup {
  const int *ids;
  const void *from; /* table, or dy */
  void *to;         /* out, or gradient */
  zpd_int first_row, n_rows, rows, cols;
  zpd_int ld, samples, S; /* position_grad */
  zpd_int accumulate;     /* position_grad */
} zpd_lookup;             /* kernels zpd_embedding, zpd_embedding_grad, zpd_position_grad */

/* ---- positions of samples: as zpk_move_positions, zpk_mean_positions, zpk_spread_positions over all tasks ---- */
typedef struct zpd_positions {
  const void *from;
  void *to;
  zpd_int from_S, from_at, to_S, to_at, n, shared; /* move_positions */
  zpd_int S;                                       /* mean_positions, spread_positions */
  zpd_int samples, cols;
  double scale;
} zpd_positions; /* kernels zpd_move_positions, zpd_mean_positions, zpd_spread_positions; any gridDim.x */

/* ---- parts of results: as zpk_merge_parts over all rows; any gridDim.x ---- */
typedef struct zpd_merge {
  void *to; /* rows of heads * hd elements with leading dimension to_ld */
  const void *from;
  void *lse; /* `real` [rows, heads], or NULL */
  const void *from_lse;
  zpd_int rows, heads, hd, to_ld, from_ld;
  zpd_int to_wide, from_wide; /* 1: elements there are `real` */
  zpd_int set;                /* 1: nothing is in `to` yet, and without log-sum-exps */
} zpd_merge;                  /* kernel zpd_merge_parts */

/* ---- positions by number: as zpk_gather and zpk_gather_grad over all tasks; any gridDim.x ---- */
typedef struct zpd_gather_args {
  const void *from; /* x[samples * S], or dy[samples * n] */
  void *to;         /* y, or dx */
  const int *index;
  zpd_int samples, S, first, n, cols;
} zpd_gather_args; /* kernels zpd_gather, zpd_gather_grad */

/* ---- windows over positions: as zpk_unfold and zpk_unfold_grad over all tasks; any gridDim.x ---- */
typedef struct zpd_unfold_args {
  const void *from; /* x[samples * positions, cols], or dy[samples * n, cols * places] */
  void *to;         /* y, or dx */
  zpd_int samples, cols;
  zpd_int size[2], count[2], kernel[2], stride[2], padding[2];
  zpd_int first, n;
} zpd_unfold_args; /* kernels zpd_unfold, zpd_unfold_grad */

/* ---- one axis made one number: as zpk_reduce and zpk_reduce_grad over all tasks; any gridDim.x ---- */
typedef struct zpd_reduce_args {
  const void *x, *dy;
  void *to;                /* y, or dx */
  zpd_int outer, n, inner; /* on a GPU n below 2^24 */
  zpd_int kind;            /* a zpk_reduction */
  double scale;
} zpd_reduce_args; /* kernels zpd_reduce, zpd_reduce_grad */
enum { ZPD_SUM, ZPD_MAX, ZPD_LOG_SUM_EXP };

/* ---- matrices of samples turned over: as zpk_transpose over all tasks; any gridDim.x ---- */
typedef struct zpd_transpose_args {
  const void *x;
  void *y;
  zpd_int samples, rows, cols;
} zpd_transpose_args; /* kernel zpd_transpose */
enum { ZPD_TRANSPOSE_TILE = 32 };

/* ---- squared errors: as zpk_squared_error and its gradient over all rows; any gridDim.x ---- */
typedef struct zpd_squared_error_args {
  const void *x, *target;
  void *to; /* stat, or dx */
  zpd_int rows, cols;
  double scale;             /* of the gradient, */
  const double *loss_scale; /* and this one after it, where there is one */
} zpd_squared_error_args;   /* kernels zpd_squared_error, zpd_squared_error_grad */

/* ---- attention: as zpk_attention and zpk_attention_grad. For sm_80 and later with 16-bit operands the kernels
 * zpd_mma_*, on tensor cores; else zpd_attention_*, which have no workspace: backward computes the row sums of o * d_o
 * again where it needs them ---- */
typedef struct zpd_attention {
  zpd_int B, S, H, G, hd, kv_heads_valid;
  double scale;
  int causal;
  int layout; /* 0: dense; else what zpd_layout_of, which stands before zpd_attention.cuh with ZPD_LAYOUTS, is asked
               * for, of head 0 of the model where heads have different ones */
  const void *q, *k, *v;
  zpd_int q_ld, k_ld, v_ld;
  void *o;
  zpd_int o_ld;
  void *lse; /* [R, H] */
  const void *d_o;
  zpd_int d_o_ld;
  void *dq, *dk, *dv;
  zpd_int dq_ld, dk_ld, dv_ld;
  zpd_int window; /* as zpk_attention_args.window; in texts with ZPD_WINDOWS, else 0 */
  double softcap; /* this and the next one: in texts with ZPD_SCORES, else 0. Then scale is not 0 */
  zpd_int alibi_heads;
  zpd_int first_head, other_layouts; /* as zpk_attention_args.first_head, zpk_layout.others; the latter in texts with
                                        ZPD_HEAD_LAYOUTS, else 0 */
  const int *lengths;   /* [B], on the device; NULL: all samples have S positions. A larger one counts as S. */
  const int *documents; /* as zpk_attention_args.documents, on the device; in texts with ZPD_DOCUMENTS, else NULL */
  void *facts;  /* of zpd_mma_grad_q, which writes it, and zpd_mma_grad_kv: 8 bytes a query, S rounded up to even, of
                   [B, H]: log-sum-exp over log 2, sum of o * d_o */
  zpd_int keys; /* as zpk_attention_args.keys; in texts with ZPD_CROSS, else 0 */
  /* A relative bias, in texts with ZPD_BIAS, else NULL: what zpd_bias_lines has written; where its gradient is wanted
   * also the sums of zpd_bias, which the kernel for queries writes, and their reach. */
  const void *lines;
  void *bias_sums;
  zpd_int bias_reach;
  /* Dropout of probabilities, in texts with ZPD_DROPOUT: as zpk_attention_dropout. What has a word from keep_from on is
   * kept and weighs `more`; keep_from 0: all is, and nothing else is read. */
  zpd_uint seed;
  double more;
  zpd_int drop_queries, drop_groups;         /* of a whole sample: queries, groups of four keys */
  zpd_int drop_query, drop_key, drop_turned; /* as first_query, first_key, turned; in texts with ZPD_CONTEXT_KEYS, else
                                                0 */
  unsigned drop_step, keep_from, first_sample, stream_instance; /* no two of them are like an address */
} zpd_attention; /* kernels zpd_attention_forward, zpd_attention_grad_q, zpd_attention_grad_kv; zpd_mma_forward,
                    zpd_mma_grad_q, zpd_mma_grad_kv and these three with _64, _32 and _16 */

/* ---- relative biases of attention: from the table to a line of a head, from sums of gradients to the table ---- */
typedef struct zpd_bias {
  zpd_int B, S, H, buckets, max_distance, causal;
  const void *bias; /* [buckets, ld], */
  void *d_bias;     /* and its gradient, which is added to */
  zpd_int ld;
  void *lines;          /* [H, 2 S] `real`: the bias of a key `behind` the query at behind + S - 1 */
  int *bucket;          /* [2 S]: the bucket of every distance; NULL: not needed */
  zpd_int tiles, reach; /* zpd_bias_tiles, zpd_bias_reach */
  void *sums; /* [B, H, tiles, 2 reach + 1] `real`: of the scores' gradients by distance, of tiles of queries; the first
                 and the last sum are of all that is as distant or more */
} zpd_bias;   /* kernels zpd_bias_lines, zpd_bias_grad: grid-stride */
#ifndef __CUDACC_RTC__
/* Bytes of lines, of buckets after them, of sums. */
static inline zpd_int zpd_bias_line_bytes(zpd_int H, zpd_int S, zpd_int real_bytes) { return 2 * H * S * real_bytes; }
static inline zpd_int zpd_bias_bucket_bytes(zpd_int S) { return 2 * S * (zpd_int)sizeof(int); }
static inline zpd_int zpd_bias_reach(zpd_int S, zpd_int max_distance) {
  return max_distance < S - 1 ? max_distance : S - 1;
}
static inline zpd_int zpd_bias_sum_bytes(zpd_int B, zpd_int H, zpd_int tiles, zpd_int reach, zpd_int real_bytes) {
  return B * H * tiles * (2 * reach + 1) * real_bytes;
}
#endif

/* ---- attention of queries first .. first + gridDim.x - 1 of every sample alone, as zpk_attention_stretch: causal
 * without lengths, or over keys of another sequence ---- */
typedef struct zpd_stretch {
  zpd_attention of;
  zpd_int first;
} zpd_stretch; /* kernel zpd_attention_stretch, in texts with ZPD_DECODE; gridDim.y: H, .z: B */

/* ---- mixture of experts: as zpk_top_k_gate, zpk_top_k_gate_grad, zpk_dispatch, zpk_combine, zpk_combine_grad over
 * all samples and tokens; members as those of zpk_routing. The gate in two kernels: which experts, then which places.
 * ---- */
typedef struct zpd_routing {
  zpd_int B, S, k, experts, slots, d, first_slot, n_slots;
  zpd_int normalize, sigmoid;
  zpd_int groups, top_groups; /* gate_choose */
  double balance, loss_scale;
  const double *scale_there; /* gate_grad: a further factor of loss_scale that only the device knows; NULL: 1 */
  const void *in;            /* scores; x of dispatch, y of the others */
  const void *bias;          /* gate_choose; NULL: none */
  const void *weight;        /* combine: NULL, 1; gate_grad: d_weight */
  const void *d_out;         /* combine_grad */
  const int *slot;           /* all but gate_choose and gate_places */
  void *out;                 /* gate_choose: weights; else d_scores, slots, tokens, dy */
  void *d_weight;            /* combine_grad */
  int *choice;               /* gate_choose: -1 - expert; gate_places: that becomes the slot where there is a place */
  zpd_int *count;            /* count_load */
  const void *choices;       /* gate_grad: as zpk_routing has it */
  zpd_int ranks;
} zpd_routing; /* kernels zpd_gate_choose, zpd_gate_places, zpd_gate_grad, zpd_count_choices (a block a sample, to out),
                * zpd_count_load, zpd_dispatch, zpd_combine, zpd_combine_grad */
/* Which way a bias moves: 1 at experts that have more choices than the mean, -1 below it, 0 at it, for n experts from
 * `first` on. */
typedef struct zpd_expert_load {
  const zpd_int *count; /* choices of all experts */
  zpd_int experts, first, n;
  void *grad;      /* [n], as gradients are */
} zpd_expert_load; /* kernel zpd_load_signs */

/* ---- cross-entropy: as zpk_ce_stats, zpk_ce_loss, zpk_ce_grad ---- */
enum { ZPD_LOSS_BLOCKS = 128 };
#ifndef __CUDACC_RTC__
static inline int zpd_loss_blocks(zpd_int rows) {
  const zpd_int full = (rows + 255) / 256;
  return full < 1 ? 1 : full < ZPD_LOSS_BLOCKS ? (int)full : ZPD_LOSS_BLOCKS;
}
#endif
enum { ZPD_MOST_LOSSES = 8 };
/* Sums over the labels of one loss, times the scale; right: how many have the largest logit. */
typedef struct zpd_tally {
  double loss, right;
} zpd_tally;
typedef struct zpd_ce {
  const void *logits, *stat, *lse;
  void *out;                   /* stat; lse; dlogits */
  const int *labels, *lengths; /* lengths: classes of every row; NULL: vocabulary. No labels: all rows count */
  zpd_int V, first_col, vocabulary, rows;
  zpd_int ranks;
  double scale;
  double smoothing, z;      /* ce_grad: zpk_targets */
  const double *loss_scale; /* ce_grad: a further factor that only the device knows; NULL: 1 */
  double weight;            /* ce_loss: of this loss in the sum of all */
  double *loss;             /* ce_loss, zpd_loss_blocks: *loss += weight * scale * the summed loss, in a fixed order */
  zpd_tally *tally;         /* ce_loss: the same without the weight, and what is right */
  double *parts;            /* [2 * ZPD_LOSS_BLOCKS] */
  unsigned *ticket;         /* 0, and 0 again when the kernel ends */
} zpd_ce;                   /* kernels zpd_ce_stats, zpd_ce_loss, zpd_ce_grad */

/* ---- the end of a step ---- */

/* What stays on the device from step to step. The runtime writes it where it decides itself. */
typedef struct zpd_step {
  double loss; /* grows with every zpd_ce_loss, as does the tally of the loss; decide clears both */
  zpd_tally tally[ZPD_MOST_LOSSES];
  /* of the update */
  double grad_scale; /* see zpd_update */
  ZPK_BIASES(ZPK_BIAS_MEMBER)
  double applies; /* 0: it changes nothing */
  /* f16: what gradients are multiplied by, a power of two; steps without overflow since it was changed; and with every
   * format the steps that were not applied */
  double loss_scale, scale_steps, skipped_steps;
} zpd_step;

/* What the host reads of a step. */
typedef struct zpd_outcome {
  double loss, grad_norm, applied;
  double loss_scale; /* that the step had */
  zpd_tally tally[ZPD_MOST_LOSSES];
} zpd_outcome;

/* Elements of the gradients that are treated alike, as zpr_block; `first`: of the blocks of threads that share out all
 * segments of a table in its order, the first one of this segment. */
typedef struct zpd_segment {
  zpd_int begin, count, to_params, to_state, first;
  double lr_factor, weight_decay; /* lr_factor: of zpd_updates.lr */
  double sign_rate;               /* above 0: so much against the sign of the gradient, instead of the optimizer */
} zpd_segment;

/* sums[b] = sum of x^2, in f64, over the part of block b: how many blocks a segment has is up to its elements alone. */
typedef struct zpd_squares {
  const void *grads;
  const zpd_segment *segments;
  zpd_int n;    /* segments */
  double *sums; /* [gridDim.x] */
} zpd_squares;  /* kernel zpd_square_segments: gridDim.x is the number of blocks of the table */

/* From the sums of squares to what the update does: one block. */
typedef struct zpd_decision {
  double *sums; /* of zpd_squares; overwritten */
  const zpd_segment *segments;
  zpd_int n;
  zpd_int blocks; /* of all segments */
  double clip;    /* 0: none */
  /* of the optimizer, by how many steps were skipped since the host last read it: none or one */
  ZPK_BIASES(ZPK_BIAS_MEMBERS)
  double skipped_steps;            /* that the host knows of */
  double scale_window, most_scale; /* window 0: the loss scale does not move */
  zpd_step *step;
  zpd_outcome *outcome;
} zpd_decision; /* kernel zpd_decide */

/* The optimizer over all segments of a table; buffers begin at element 0 of the gradients, the parameters and the
 * state. */
typedef struct zpd_updates {
  int kind, n; /* zpk_update.kind; segments */
  double lr;
  ZPK_SETTINGS(ZPK_SETTING_MEMBER)
  double ema;
  const zpd_step *step;
  void *params; /* what is computed with */
  void *master; /* with 16-bit operands f32 copies of the parameters, which are updated; else NULL */
  const void *grads;
  void *moment[ZPK_MOMENTS];   /* by ZPK_MOMENT1 ...; NULL: the optimizer does not keep it */
  void *average;               /* of the weights, which follows them; NULL: there is none */
  const zpd_segment *segments; /* NULL: `one` */
  zpd_segment one;
  zpd_int blocks;
  /* LAMB: squares of parameters and of updates in every block of threads, [gridDim.x][2]; and trust ratios of the
   * segments. Else NULL. */
  double *sums;
  const double *ratios;
} zpd_updates; /* kernel zpd_optimizer: any grid; zpd_lamb_moments: a grid as of zpd_square_segments, over segments */

/* ---- flat buffers ---- */
typedef struct zpd_update {
  zpd_int kind; /* zpk_update.kind */
  double lr, beta1, beta2, eps, weight_decay, momentum, bias1, bias2;
  double grad_scale;
  void *param;  /* with 16-bit operands the master copy, */
  void *weight; /* and what is rounded from it; else NULL */
  const void *grad;
  void *m, *v;
  zpd_int count;
} zpd_update; /* kernels zpd_momentum, zpd_frozen_update (as zpk_ without zpk's ranges): a thread an element,
               * grid-stride */

/* Adafactor, of a tensor whose last two dimensions are rows and cols (a vector has one row): `count` elements that a
 * rank updates, from element `first` of its share on, which is blocks of `width` of the tensor's, the first at
 * share_first, strides from one to the next in either. Statistics, sums and factors are n_rows, then n_cols. */
typedef struct zpd_factored {
  double grad_scale, beta1, beta2, eps, ema, keep, factor; /* keep: of parameters */
  const void *grad;
  void *param, *weight; /* as those of zpd_update; squares: param NULL: of updates alone */
  void *m, *average;    /* NULL: there is none */
  void *state, *factors;
  double *sums; /* of rows and columns; squares: of parameters and of updates, [gridDim.x][2] */
  zpd_int count, first, width, share_first, stride, local_stride;
  zpd_int rows, cols, n_rows, n_cols;
} zpd_factored; /* kernels zpd_adafactor_rows, _cols, _means, _factors, _squares, _apply: any grid */

/* to[i] = from[i] + from[count + i] + .., of n ranks. */
typedef struct zpd_arrivals {
  double *to;
  const double *from;
  zpd_int count, n;
} zpd_arrivals; /* kernel zpd_adafactor_add: grid-stride */

/* Muon: new momentum, and the update of a matrix before it is orthogonalised, with its squares in every block of
 * threads. */
typedef struct zpd_muon_update {
  double momentum, grad_scale;
  const void *grad;
  void *m, *x;
  zpd_int count;
} zpd_muon_update; /* kernel zpd_muon_momentum: grid-stride */

typedef struct zpd_muon_length {
  const void *x;
  double *sums; /* of squares, [gridDim.x] */
  zpd_int count;
} zpd_muon_length; /* kernel zpd_muon_squares: grid-stride */

/* Blocks of `width` elements, strides from one to the next. */
typedef struct zpd_muon_blocks {
  const void *from;
  void *to;
  zpd_int blocks, width, from_stride, to_stride;
} zpd_muon_blocks; /* kernel zpd_muon_place: grid-stride */

/* y = factor x, with `diagonal` on the diagonal of n x n (n 0: none); or y = x / max(sqrt(their sum), least) where
 * there are sums. x may be y. */
typedef struct zpd_muon_mixture {
  const void *x;
  void *y;
  zpd_int count, n;
  double factor, diagonal, least;
  const double *sums;
  zpd_int n_sums;
} zpd_muon_mixture; /* kernel zpd_muon_mix: grid-stride */

typedef struct zpd_muon_weights {
  double lr, weight_decay, scale, ema;
  void *param;   /* with 16-bit operands the master copy, */
  void *weight;  /* and what is rounded from it; else NULL */
  void *average; /* NULL: there is none */
  const void *x;
  zpd_int count;
} zpd_muon_weights; /* kernel zpd_muon_apply: grid-stride */

/* 1-bit Adam: as zpk_pack_signs, zpk_average_signs, zpk_unpack_signs over the first blocks of records; a warp a
 * block of 64 elements, grid-stride. */
typedef struct zpd_signs {
  void *m; /* unpack writes it */
  const void *v;
  float *error;         /* pack, average */
  const void *records;  /* average: n of them; unpack: one */
  void *record;         /* pack, average */
  zpd_int blocks, here; /* of a record; of them these first ones are worked on */
  zpd_int n;
} zpd_signs; /* kernels zpd_pack_signs, zpd_average_signs, zpd_unpack_signs */

/* 1-bit Adam with ZeRO 1: as zpk_add_to_error, zpk_pack_error, zpk_owner_update, zpk_apply_signs of the elements of
 * `update`, whose `weight` is that of all ranks and whose `param` is the owner's master copy or NULL; grad_scale is
 * zpk_add_to_error's scale. */
/* Kernels zpd_add_to_error, zpd_pack_error, zpd_owner_update, zpd_apply_signs: a warp a block, grid-stride. */
typedef struct zpd_owned {
  zpd_update update;
  float *error;        /* the worker's, or what the owner has more than the weights (NULL with a master copy) */
  const void *records; /* owner: n of them; apply: one */
  void *record;        /* pack, owner */
  zpd_int blocks;      /* of a record */
  zpd_int first;       /* of them the one that the first element begins */
  zpd_int n;           /* owner: 0: momentum is new already */
} zpd_owned;

/* 1-bit LAMB: zpk_lamb_fresh, or where there are records zpk_lamb_owner, over all segments; the largest ratio in every
 * block of threads goes to updates.sums. */
typedef struct zpd_fresh {
  zpd_updates updates; /* zpk_lamb_frozen: these alone, kernel zpd_lamb_frozen, any grid */
  const void *before;  /* NULL with records */
  void *fresh;
  double fresh_bias2;
  const void *records; /* of n ranks, of so many blocks each, element 0 of the state being the first; else NULL */
  zpd_int blocks, n;
} zpd_fresh; /* kernel zpd_lamb_fresh: a grid as of zpd_square_segments */

/* 0/1 Adam: as zpk_local_sum and zpk_local_decay (AdamW's), zpk_local_mean, zpk_local_weights of the elements of
 * `update`; zpk_variance is the kernel zpd_variance with a zpd_update. */
typedef struct zpd_local {
  zpd_update update;
  void *sum, *anchor;
  double rate; /* add: the weight of this step; mean, weights: the sum of all weights */
} zpd_local;   /* kernels zpd_local_add, zpd_local_mean, zpd_local_weights: a thread an element, grid-stride */

/* mine = x[0] + x[1] + ... + x[n - 1] in this order, gradients, which are `real`: x[me] is mine, x[r] the others'
 * elements from r * slot; and after them what was rounded to the type of operands, NULL: nothing. */
typedef struct zpd_rank_sum {
  void *mine;
  const void *others, *rounded;
  zpd_int slot, count;
  int n, me;
} zpd_rank_sum; /* kernel zpd_sum_parts */

/* Sums of gradients that are rounded to bf16 to leave a node. */
typedef struct zpd_rounding {
  float *sum;
  unsigned short *bits;
  zpd_int count;
} zpd_rounding; /* kernels zpd_round_sum, sum to bits, and zpd_widen_sum */

/* sum = x, or sum + x, in f32, rounded stochastically to bf16: elements [first, first + count) of a share of a logical
 * tensor. Element i of the share is number i / local_stride * stride + logical_first + i % local_stride of it. Its
 * random number is a function of that number, key, tensor and addend: 16 bits of a Philox draw for each. */
typedef struct zpd_stochastic {
  unsigned short *sum;
  const float *x;
  zpd_int first, count, local_stride, logical_first, stride;
  zpd_uint tensor;
  unsigned key[2], addend;
  int add;
} zpd_stochastic; /* kernel zpd_add_stochastic */
enum { ZPD_STOCHASTIC_BLOCK = 8 };

#if defined(__GNUC__) && !defined(__CUDACC__) && __SIZEOF_POINTER__ == 8
#pragma GCC diagnostic pop
#endif

/* Threads of a block that the kernels are written for; the launcher uses exactly these. Shared memory is static. */
enum {
  ZPD_ROW_THREADS = 256,       /* row kernels, in */
  ZPD_ROW_WARPS = 8,           /* warps */
  ZPD_FLAT_THREADS = 256,      /* everything not named here */
  ZPD_ATTENTION_THREADS = 128, /* the three of attention */
  ZPD_ATTENTION_ROWS = 64, /* forward, grad_q: block (x, y, z) takes query rows [64 x, 64 x + 64) of head y of sample z;
                              grad_kv: the same rows of keys, of kv head y */
  ZPD_GATE_TOKENS = 256, /* gate_grad: block (x, y) takes tokens [256 x, 256 x + 256) of sample y; gate_places: a block
                            a sample; dispatch, combine: a block a token */
  ZPD_MAX_EXPERTS = 1024,
  ZPD_MAX_EXPERT_GROUPS = 64,
  ZPD_CE_THREADS = 256,         /* stats, grad: a block a row; loss: zpd_loss_blocks */
  ZPD_SQUARES_BLOCKS = 256,     /* square_segments: most blocks of a segment, */
  ZPD_SQUARES_ELEMENTS = 16384, /* each with at least as many elements, but the last */
  ZPD_UPDATE_ELEMENTS = 4096    /* optimizer: elements of a segment that a block takes at a time */
};

#ifndef __CUDACC_RTC__
/* Sums of a bias's gradients in a sample and head: one a block of queries, on tensor cores one a warp. */
static inline zpd_int zpd_bias_tiles(zpd_int S, int tensor_cores) {
  return (S + ZPD_ATTENTION_ROWS - 1) / ZPD_ATTENTION_ROWS * (tensor_cores ? ZPD_ATTENTION_THREADS / 32 : 1);
}
#endif

#endif
