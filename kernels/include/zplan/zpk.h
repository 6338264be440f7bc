/* SPDX-License-Identifier: Apache-2.0 */
/* CPU kernels that the row programs do not cover, and the call convention of the generated ones.
 *
 * Everything comes in f32, f64, bf16 and f16 (dtype argument). With the last two operands are stored in 16 bits, each
 * rounded once from what was computed in f32, and what is said to be `real` below is f32; otherwise `real` is the
 * dtype. Kernels work on a range of independent tasks [begin, end) so that the caller can spread them over threads;
 * results do not depend on how it does. Ranges are asserted to lie in the tasks that there are. Matrices are row-major;
 * `ld` is the distance between rows in elements (a view of a wider matrix has ld > columns). Legend: B micro-batch, S
 * sequence, H local heads, G local kv heads, hd head size, V local vocabulary, R = B * S rows. */
#ifndef ZPLAN_ZPK_H
#define ZPLAN_ZPK_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <zplan/zpd.h>

typedef enum zpk_dtype { ZPK_F32, ZPK_F64, ZPK_BF16, ZPK_F16 } zpk_dtype;
enum { ZPK_DTYPES = ZPK_F16 + 1 };
/* Are operands stored in 16 bits, bfloat16 or IEEE binary16 (zpk_narrow.h), and computed with in f32? */
static inline bool zpk_is_narrow(zpk_dtype dtype) { return dtype == ZPK_BF16 || dtype == ZPK_F16; }
/* Bytes of an operand, and of a `real`. */
static inline int64_t zpk_bytes(zpk_dtype dtype) { return dtype == ZPK_F64 ? 8 : zpk_is_narrow(dtype) ? 2 : 4; }
static inline int64_t zpk_real_bytes(zpk_dtype dtype) { return dtype == ZPK_F64 ? 8 : 4; }
/* What a dtype is computed in, and what gradients of parameters are, of which many are added: f32 for 16 bits. */
static inline zpk_dtype zpk_real(zpk_dtype dtype) { return zpk_is_narrow(dtype) ? ZPK_F32 : dtype; }

/* ---- arrays of a 16-bit dtype: widened, rounded to the nearest even ---- */
void zpk_widen(zpk_dtype dtype, const void *from, float *to, int64_t count);
void zpk_round(zpk_dtype dtype, const float *from, void *to, int64_t count);

/* ---- operands of 8 bits (zpk_float8.h): numbers of f32 as they come out of such a format, times a scale ---- */
/* How an operand is rounded: its format, and which numbers share a scale. "1X": along the sum of the product; a block
 * at the end may have fewer. */
typedef enum zpk_float8 {
  ZPK_E4M3,         /* all numbers */
  ZPK_E5M2,         /* all numbers */
  ZPK_E4M3_1X32,    /* MXFP8 */
  ZPK_E4M3_1X128,   /* activations and gradients of block scaling */
  ZPK_E4M3_128X128, /* and its weights */
} zpk_float8;
/* Numbers that share a scale, along the sum and across it; 0: all. */
typedef struct zpk_float8_block {
  int64_t along, across;
} zpk_float8_block;
zpk_float8_block zpk_float8_block_of(zpk_float8 format);
/* The largest magnitude of an array of bf16; NaN counts as nothing. */
float zpk_largest_bf16(const uint16_t *x, int64_t count);
/* The least power of two by which numbers up to `largest`, divided by it, lie in the format. Scaling by it is exact. */
float zpk_float8_scale(zpk_float8 format, float largest);
/* x = scale times the number of the format that is nearest to x / scale; scale: a power of two. */
void zpk_through_float8(zpk_float8 format, float scale, float *x, int64_t count);
/* Rounds x[rows][cols] with a scale for every block of it, the first of which begins with x. down: sums go down the
 * columns. Requires: a format with blocks, cols <= ZPK_FLOAT8_COLS. */
enum { ZPK_FLOAT8_COLS = 256 };
void zpk_through_float8_blocks(zpk_float8 format, bool down, int64_t rows, int64_t cols, float *x);
/* An operand that is kept in 8 bits, whose sums go down its columns: E4M3 numbers [rows][cols], then their scales: an
 * f32 of all numbers, or a byte of E8M0 of every block, [blocks of rows][cols]. Formats: E4M3, and those whose blocks
 * are one column wide. */
typedef struct zpk_kept_float8 {
  zpk_float8 format;
  int64_t rows, cols;
  uint8_t *numbers, *scales;
} zpk_kept_float8;
int64_t zpk_float8_bytes(zpk_float8 format, int64_t rows, int64_t cols);
zpk_kept_float8 zpk_kept_float8_at(zpk_float8 format, int64_t rows, int64_t cols, void *at);
/* Sets the scale of all numbers (zpk_float8_scale), before rows are kept. Requires: a format without blocks. */
void zpk_set_float8_scale(const zpk_kept_float8 *to, float scale);
/* Keeps rows [first, end) of x, of bf16, whole blocks of it: the numbers that zpk_through_float8 and
 * zpk_through_float8_blocks round to. */
void zpk_keep_float8(const zpk_kept_float8 *to, int64_t first, int64_t end, const uint16_t *x, int64_t ld);
/* The part [rows][cols] of it that begins at `row` and `col`, as numbers; `row` begins a block. Requires: cols <=
 * ZPK_FLOAT8_COLS. */
void zpk_read_float8(const zpk_kept_float8 *from, int64_t row, int64_t col, int64_t rows, int64_t cols, float *x);

/* ---- generated row kernels ---- */

/* Rows are cut into this many chunks, whatever the number of threads; every chunk has its own partial column sums, and
 * they are added in chunk order: results are the same on any number of threads. */
#define ZPK_CHUNKS 8

typedef struct zpk_row_args {
  const void *const *in; /* in the order of the node's inputs */
  const int64_t
      *in_ld; /* for row operands; ignored for per-column and per-position operands (position: ld = columns) */
  void *const *out;
  const int64_t *out_ld;
  /* Column sums of kernel call (begin, end, chunk) are *stored* (not added) to partial[i] + chunk * columns_i, as
   * `real`. */
  void *const *partial;
  uint64_t seed, step, instance; /* of the random stream (see zpk_philox_uniform) */
  int64_t first_sample;          /* global index, inside the step's batch, of the sample that row 0 belongs to */
  int64_t first_column;          /* logical column of local column 0 */
  int64_t
      logical_columns; /* logical columns of a row: elements are numbered row_in_sample * logical_columns + column */
  bool dropout;        /* false during validation: dropout is the identity */
} zpk_row_args;
typedef void zpk_row_kernel(const zpk_row_args *args, int64_t row_begin, int64_t row_end, int64_t chunk);

/* ---- lookups ---- */
/* out[r] = table[ids[r] - first_row] for rows [begin, end), zero rows for ids outside [first_row, first_row +
 * n_rows). */
void zpk_embedding(zpk_dtype dtype, const int32_t *ids, const void *table, int64_t first_row, int64_t n_rows,
                   int64_t cols, void *out, int64_t begin, int64_t end);
/* table_grad[ids[r] - first_row][begin..end) += dy[r][begin..end) for all `rows` rows: tasks are *columns*, so threads
 * never meet and the order of sums is fixed. */
void zpk_embedding_grad(zpk_dtype dtype, const int32_t *ids, const void *dy, int64_t first_row, int64_t n_rows,
                        int64_t rows, int64_t cols, void *table_grad, int64_t begin, int64_t end);
/* grad[s] (+)= sum over samples b of dy[b * S + s], for positions s in [begin, end). Either gradient is `real`. */
void zpk_position_grad(zpk_dtype dtype, const void *dy, int64_t ld, int64_t samples, int64_t S, int64_t cols,
                       bool accumulate, void *grad, int64_t begin, int64_t end);

/* ---- positions of samples ---- */
/* to[b][to_at + i] = from[b][from_at + i] for i in [0, n), zeros where `from` has no such position; from[b] and to[b]
 * are [from_S, cols] and [to_S, cols]. shared: all samples read one from[from_S, cols]. */
typedef zpd_positions zpk_positions;
/* Positions without what `to` has no place for. */
zpk_positions zpk_clip_positions(const zpk_positions *positions);
/* Tasks are the samples * n rows that are written. Requires: all of them have a place in `to`. */
void zpk_move_positions(zpk_dtype dtype, const zpk_positions *p, int64_t begin, int64_t end);
/* y[b] = scale * the sum over s of x[b * S + s]: tasks are columns. */
void zpk_mean_positions(zpk_dtype dtype, const void *x, int64_t samples, int64_t S, int64_t cols, double scale, void *y,
                        int64_t begin, int64_t end);
/* dx[r] = scale * dy[r / S]: tasks are the rows of dx. */
void zpk_spread_positions(zpk_dtype dtype, const void *dy, int64_t S, int64_t cols, double scale, void *dx,
                          int64_t begin, int64_t end);

/* ---- parts of results ---- */
/* What attention has made for the same queries of two sets of keys, each with its log-sum-exp, becomes what it makes of
 * all of them, in `to` and lse. Without log-sum-exps: to += from, or with `set` to = from. Tasks are the rows. */
typedef zpd_merge zpk_merge;
void zpk_merge_parts(zpk_dtype dtype, const zpk_merge *m, int64_t begin, int64_t end);

/* ---- positions by number ---- */
/* y[b * n + i] = x[b * S + index[b * n + i] - first], zeros where a rank's share of the positions, the S from `first`
 * on, has no such one. Rows are of `cols`. */
typedef zpd_gather_args zpk_gather_args;
/* Tasks are the rows of y. */
void zpk_gather(zpk_dtype dtype, const zpk_gather_args *a, int64_t begin, int64_t end);
/* dx[b * S + s] = the sum of the dy whose index is s, in their order. Tasks are the rows of dx. */
void zpk_gather_grad(zpk_dtype dtype, const zpk_gather_args *a, int64_t begin, int64_t end);

/* ---- windows over positions ---- */
/* Positions are size[0] rows of size[1]; windows of kernel[0] rows of kernel[1], `stride` apart, the first one
 * `padding` before the first position, are count[0] rows of count[1], of which a rank has the n from `first` on.
 * y[window][c][place] = x[position][c], zeros after the edges. */
typedef zpd_unfold_args zpk_unfold_args;
/* Tasks are the rank's windows of all samples. */
void zpk_unfold(zpk_dtype dtype, const zpk_unfold_args *a, int64_t begin, int64_t end);
/* dx[position] = the sum over those windows that have it, in their order. Tasks are the positions of all samples. */
void zpk_unfold_grad(zpk_dtype dtype, const zpk_unfold_args *a, int64_t begin, int64_t end);

/* ---- one axis made one number ---- */
typedef enum zpk_reduction { ZPK_SUM = ZPD_SUM, ZPK_MAX = ZPD_MAX, ZPK_LOG_SUM_EXP = ZPD_LOG_SUM_EXP } zpk_reduction;
/* x[outer, n, inner] -> y[outer, inner], and dy[outer, inner] -> dx[outer, n, inner]. The gradient of the largest is of
 * the first that is as large. scale: of a sum, and of every gradient. */
typedef zpd_reduce_args zpk_reduce_args;
/* Tasks are the outer * inner results. */
void zpk_reduce(zpk_dtype dtype, const zpk_reduce_args *a, int64_t begin, int64_t end);
/* Tasks are the outer * inner results; reads x unless it is a sum. */
void zpk_reduce_grad(zpk_dtype dtype, const zpk_reduce_args *a, int64_t begin, int64_t end);

/* ---- matrices of samples turned over ---- */
/* y[b][j][i] = x[b][i][j] of x[samples, rows, cols]. Tasks are strips of columns of a sample, so many: */
int64_t zpk_transpose_tasks(int64_t samples, int64_t cols);
void zpk_transpose(zpk_dtype dtype, const void *x, int64_t rows, int64_t cols, void *y, int64_t begin, int64_t end);

/* ---- squared errors ---- */
/* Statistics of rows as zpk_ce_loss takes them: the mean of (x - target)^2, 1, 0. Tasks are rows of `cols`. */
void zpk_squared_error(zpk_dtype dtype, const void *x, const void *target, int64_t cols, void *stat, int64_t begin,
                       int64_t end);
/* dx = scale * the gradient of that mean. */
void zpk_squared_error_grad(zpk_dtype dtype, const void *x, const void *target, int64_t cols, double scale, void *dx,
                            int64_t begin, int64_t end);

/* ---- attention: causal or full, dense or block-sparse, grouped queries, never stores S x S scores ---- */
/* Blocks first .. end - 1. */
typedef struct zpk_run {
  int32_t first, end;
} zpk_run;
/* What block i meets: run[first[i]] .. run[first[i + 1] - 1], ascending and apart. */
typedef struct zpk_block_list {
  const int32_t *first; /* [S / block + 1] */
  const zpk_run *run;
} zpk_block_list;
/* Which blocks of keys the blocks of queries see. Every block sees itself, so every query a key; but in a part of a
 * layout, between different positions, some see none: their outputs are 0, their log-sum-exps -inf. */
typedef struct zpk_layout {
  int64_t block;          /* positions, a multiple of ZPK_SPARSE_UNIT; S is a multiple of it. On a GPU: zpd.h */
  zpk_block_list keys;    /* of query blocks; when causal none after the block itself */
  zpk_block_list queries; /* the same pairs by key block */
  int id;                 /* on a GPU: number of the table in the device kernels, from 1 on */
  int others; /* further layouts of the attention, after this one in memory, on a GPU in the numbers: head h of the
               * model has number h % (1 + others). All have the same block */
} zpk_layout;
enum { ZPK_SPARSE_UNIT = 16 };
/* Dropout of probabilities: sums of the softmax are of all keys, what is kept weighs 1 / (1 - rate) as much. Numbers
 * are those of zpk_philox_uniform, in which a pair of query and key is zpk_attention_element; nothing is stored. */
typedef struct zpk_attention_dropout {
  double rate; /* 0: none, and all else is not read */
  uint64_t seed, step, stream, instance;
  int64_t first_sample;  /* the number that the first one here has in the whole batch */
  int64_t queries, keys; /* positions of whole samples, whatever lengths say */
  /* Positions that the first query and key here have in their sample: of a document, or of a context rank's stretch. */
  int64_t first_query, first_key;
  bool turned; /* those after the first ones have positions before them */
} zpk_attention_dropout;
typedef struct zpk_attention_args {
  zpk_dtype dtype;
  int64_t B, S, H, G, hd; /* H a multiple of G; query head h reads kv head h / (H / G) */
  /* Keys of a sample, where they are of another sequence than its S queries; 0: of the same. Dense attention without
   * causality and windows alone. */
  int64_t keys;
  int64_t kv_heads_valid; /* kv heads that are not padding; the rest: outputs and gradients are zero */
  double scale;
  bool causal;
  const zpk_layout *layout; /* NULL: dense. The first one, where heads have different ones */
  /* A query sees keys at a distance below so many positions, so causal itself and the window - 1 before it;
   * 0: at any distance. Dense attention alone. Time follows it. */
  int64_t window;
  /* What becomes of scaled scores s before the softmax: softcap * tanh(s / softcap), where that is above 0 (Gemma 2,
   * arXiv 2408.00118); then, where alibi_heads, the model's number of heads, is above 0, - slope * |query - key|
   * (ALiBi, arXiv 2108.12409). */
  double softcap;
  int64_t alibi_heads;
  int64_t first_head; /* the number that the first one here has among the model's heads */
  zpk_attention_dropout dropout;
  /* Where buckets is above 0, + bias[zpk_bias_bucket(...), head] (T5, arXiv 1910.10683, section 2.1), rows of bias_ld
   * elements. Dense attention of one sequence alone. */
  int64_t buckets, max_distance, bias_ld;
  const void *bias;
  const void *q, *k, *v; /* [R, H*hd], [R, G*hd], [R, G*hd] with these leading dimensions */
  int64_t q_ld, k_ld, v_ld;
  void *o; /* [R, H*hd]; backward: input */
  int64_t o_ld;
  void *lse;       /* [R, H] `real`: log-sum-exp of scaled scores */
  const void *d_o; /* backward only, [R, H*hd] */
  int64_t d_o_ld;
  void *dq, *dk, *dv;
  int64_t dq_ld, dk_ld, dv_ld;
  void *d_bias; /* `real` [buckets, bias_ld], NULL: not wanted. zpk_attention_bias_grad adds to it when all tasks are
                   done */
  /* [B], 1..S: positions of each sample that are there; NULL: all. Keys at and after it are seen by no query and not
   * read, nor are queries there, which have no meaning: their outputs, their log-sum-exps and their gradients are 0, as
   * are dk and dv there. A query that is there sees itself, in every layout. Time follows the lengths. Of keys of
   * another sequence: 1..keys, and all queries are there. */
  const int32_t *lengths;
  /* [B, S], numbers of documents; NULL: a sample is one. They ascend within a sample, and a query sees keys of its own
   * document alone; -1 stands after the last one, at positions that are not there, as after a length. Each is a
   * sample of its own, to the bit. Dense attention of one sequence, without lengths. Time follows the documents. */
  const int32_t *documents;
  void *workspace; /* zpk_attention_workspace bytes a worker; worker w uses its w-th share */
  /* Where buckets is above 0: zpk_attention_bias_line bytes a worker, and where d_bias is wanted [B, H, buckets]
   * `real`. */
  void *bias_lines, *bias_sums;
} zpk_attention_args;
/* Rows of keys begin at multiples of four, as many numbers as are drawn at a time. Must stay below 2^34. */
static inline int64_t zpk_attention_element(const zpk_attention_dropout *drop, int64_t head, int64_t query,
                                            int64_t key) {
  int64_t step = drop->turned ? -1 : 1, row = head * drop->queries + drop->first_query + step * query;
  return row * ((drop->keys + 3) / 4 * 4) + drop->first_key + step * key;
}
/* The slopes of ALiBi: a geometric sequence down to 2^-8, where the number of heads is a power of two; else that of the
 * next smaller one, followed by every second of the next larger one's. Padding has slopes, too, that nobody sees. */
static inline double zpk_alibi_slope(int64_t head, int64_t heads) {
  int64_t power = 1;
  while (2 * power <= heads) power *= 2;
  return head < power ? exp2(-8.0 * (double)(head + 1) / (double)power)
                      : exp2(-4.0 * (double)(2 * (head - power) + 1) / (double)power);
}
/* The bucket of a key so many positions behind the query (before it: negative). sides: 1 where queries see no keys
 * after them, else 2, and these have the second half of the buckets. Half of a side's buckets are one distance each,
 * the others stretches that grow with the logarithm; the last one has all distances from max_distance on. Distances at
 * the edge of a stretch belong to it, as in f32, in which T5 computes. */
static inline int64_t zpk_bias_bucket(int64_t behind, int64_t buckets, int sides, int64_t max_distance) {
  int64_t side = buckets / sides, exact = side / 2, distance = behind < 0 ? -behind : behind;
  int64_t first = behind > 0 ? side : 0;
  if (distance < exact) return first + distance;
  double share = log((double)distance / (double)exact) / log((double)max_distance / (double)exact);
  int64_t bucket = exact + (int64_t)(share * (double)(side - exact) + 1e-6);
  return first + (bucket < side ? bucket : side - 1);
}
/* Bytes of a worker's share of bias_lines, of `group` heads: the bias of every distance, backward also its gradient. */
int64_t zpk_attention_bias_line(zpk_dtype dtype, int64_t S, int64_t group, bool backward);
/* Bytes of one share; S: of keys, backward of queries; `group` is H / G. In `real`, with hd' = hd rounded up to 64
 * bytes and S' = S rounded up to 48: forward 2 S' hd' + 48 (2 hd' + 48); backward 48 (8 hd' + 96), and with 16-bit
 * operands group S hd' more, where the gradient of queries is summed. */
int64_t zpk_attention_workspace(zpk_dtype dtype, int64_t S, int64_t hd, int64_t group, bool backward);
/* Bytes at the end of a share that a task of this size, its head no padding, may leave unwritten: rows of a tile that
 * are not there, the padding of the last row of sums, what the longest sample leaves of S. Exactly so many for dense
 * attention of 48 positions and more. */
int64_t zpk_attention_unwritten(const zpk_attention_args *args, bool backward);
/* Tasks: (sample, kv head) pairs, B * G of them. `worker`: which workspace share. */
void zpk_attention(const zpk_attention_args *args, int64_t begin, int64_t end, int worker);
void zpk_attention_grad(const zpk_attention_args *args, int64_t begin, int64_t end, int worker);
/* Queries first .. first + n - 1 of every sample alone, as zpk_attention has them: of decoding, whose keys and values
 * stay where they are from call to call. Time and memory traffic follow the keys that these queries see. lse is not
 * written; lengths, where keys are of the same sequence, are not read: all positions up to the last query are there.
 * Requires without `keys`: causal; no dropout. */
void zpk_attention_stretch(const zpk_attention_args *args, int64_t first, int64_t n, int64_t begin, int64_t end,
                           int worker);
/* Adds the tasks' sums to d_bias, in the order of the samples. Once, when all tasks of the gradient are done. */
void zpk_attention_bias_grad(const zpk_attention_args *args);

/* ---- mixture of experts: every sample routes its own tokens to the slots of experts ---- */
#define ZPK_MAX_EXPERTS 1024
#define ZPK_MAX_TOP_K 16
#define ZPK_MAX_EXPERT_GROUPS 64
typedef struct zpk_routing {
  zpk_dtype dtype;
  int64_t B, S, k;        /* k: choices of a token */
  int64_t experts, slots; /* of all ranks; slots of one expert for one sample. Gates, and where rows are sorted */
  bool normalize;         /* gates: weights sum to 1 over the chosen experts, else they are probabilities among all */
  bool sigmoid; /* gates: affinities are sigmoids of scores, and such weights are these; probabilities are their
                   parts of the sum (arXiv 2412.19437, section 2.1.2). Else softmax */
  /* gates: of so many equal groups of experts, scored by their two best affinities with the bias, a token keeps
   * top_groups (arXiv 2412.19437, section 2.1.2); equal ones: the lower. 0 both: all experts. Requires sigmoid */
  int64_t groups, top_groups;
  double balance; /* gates: weight of the balancing loss, only in the gradient */
  int64_t d;      /* the others: columns of a token */
  /* the others: this rank's share of a sample's experts * slots, padding experts included */
  int64_t first_slot, n_slots;
  /* the others, where rows are sorted by expert, one a choice: what zpk_expert_rows says of these samples; slots is S,
   * so that no choice is dropped. NULL: rows are slots */
  const int32_t *first_row;
  /* gate_grad, where S are the positions of one of `ranks` ranks: of every rank what zpk_count_choices says of these
   * samples, [ranks, B, experts]. NULL: S are all positions */
  const void *choices;
  int64_t ranks;
} zpk_routing;
/* Scores [R, experts] -> weights and slots [R, k]: expert * slots + place, positions in order, or -1 - expert when it
 * has no place left. Equal scores go to the lower expert. bias [experts]: of sigmoids, added to them for the choice
 * alone; NULL: none. Tasks: samples. */
void zpk_top_k_gate(const zpk_routing *r, const void *score, const void *bias, void *weight, int32_t *slot,
                    int64_t begin, int64_t end);
/* Adds the choices of every expert, dropped ones included, to count [experts]. */
void zpk_count_load(const zpk_routing *r, const int32_t *slot, int64_t *count);
/* count[sample, expert], `real`: of every sample the choices of every expert, dropped ones included. Tasks: samples. */
void zpk_count_choices(const zpk_routing *r, const int32_t *slot, void *count, int64_t begin, int64_t end);
void zpk_top_k_gate_grad(const zpk_routing *r, const void *score, const int32_t *slot, const void *d_weight,
                         double loss_scale, void *d_score, int64_t begin, int64_t end);
/* first[sample, expert]: the first row of the sample's choices of the expert where all B S k are sorted by expert, an
 * expert's by sample, a sample's by position. Requires that none is dropped. */
void zpk_expert_rows(const zpk_routing *r, const int32_t *slot, int32_t *first);
/* Rows of x [R, d] to the rank's slots [B, n_slots, d], which the caller has zeroed, or to sorted rows [B S k, d], all
 * of which are written. Tasks: tokens. */
void zpk_dispatch(const zpk_routing *r, const void *x, const int32_t *slot, void *out, int64_t begin, int64_t end);
/* out[token] = sum of weight * y[slot] over its choices that are here; weight NULL: 1, which is dispatch backward. */
void zpk_combine(const zpk_routing *r, const void *y, const void *weight, const int32_t *slot, void *out, int64_t begin,
                 int64_t end);
/* dy, whose slots the caller has zeroed, and d_weight; of choices that are not here the latter is zero. */
void zpk_combine_grad(const zpk_routing *r, const void *y, const void *weight, const int32_t *slot, const void *d_out,
                      void *dy, void *d_weight, int64_t begin, int64_t end);

/* ---- cross-entropy over a vocabulary that may be split over tensor ranks ---- */
/* stat and lse are `real`. stat[r] = {max, sum exp(x - max), logit of the label or -inf when the label is not here};
 * columns first_col + j >= vocabulary are padding and do not count, nor, where there are lengths, those from lengths[r]
 * on. Labels outside [0, vocabulary) mean: ignore this row; others lie before lengths[r]. */
void zpk_ce_stats(zpk_dtype dtype, const void *logits, int64_t V, int64_t first_col, int64_t vocabulary,
                  const int32_t *labels, const int32_t *lengths, void *stat, int64_t begin, int64_t end);
/* Combines `ranks` stat blocks [ranks][rows][3] into lse[rows] and returns the summed loss of rows [begin, end) in f64.
 * *right grows by the rows whose label has the largest logit, also where others have the same; NULL: nobody asks.
 * labels NULL: all rows count, and none is right. */
double zpk_ce_loss(zpk_dtype dtype, const void *stat, int ranks, int64_t rows, int64_t vocabulary,
                   const int32_t *labels, void *lse, int64_t *right, int64_t begin, int64_t end);
/* dlogits[r][j] = (exp(logit - lse[r]) * (1 + 2 z lse[r]) - (1 - smoothing) [first_col + j == label] - smoothing /
 * vocabulary) * scale; zero in padding columns and ignored rows: the gradient of cross-entropy whose targets are
 * smoothed (Szegedy et al., arXiv 1512.00567), plus z lse^2 (PaLM, arXiv 2204.02311). dlogits may be logits (in place).
 * Where there are lengths nothing is smoothed. */
typedef struct zpk_targets {
  double smoothing, z; /* 0, 0: the labels themselves */
} zpk_targets;
void zpk_ce_grad(zpk_dtype dtype, const void *logits, int64_t V, int64_t first_col, int64_t vocabulary,
                 const int32_t *labels, const int32_t *lengths, const void *lse, zpk_targets targets, double scale,
                 void *dlogits, int64_t begin, int64_t end);

/* ---- optimizer and flat buffers; element ranges [begin, end) ---- */
typedef struct zpk_update {
  zpk_dtype dtype;
  int kind; /* ZPK_ADAMW .. ZPK_SIGN */
  double lr, weight_decay;
  ZPK_SETTINGS(ZPK_SETTING_MEMBER)
  ZPK_BIASES(ZPK_BIAS_MEMBER)
  double grad_scale; /* clipping factor applied to the gradient */
  double ema;        /* what a step leaves of the average of the weights; 0: there is none */
} zpk_update;
/* moment[ZPK_MOMENTS], by ZPK_MOMENT1 ...; those that the rule does not keep are not read, and SGD without momentum
 * keeps none: NULL. With a 16-bit dtype everything is f32: param is the master copy, from which the caller rounds the
 * weights. */
void zpk_optimizer(const zpk_update *u, void *param, const void *grad, void *const *moment, int64_t begin, int64_t end);
/* The average of the weights after a step: average += (1 - ema) (param - average). It has the type of param. */
void zpk_average(const zpk_update *u, const void *param, void *average, int64_t begin, int64_t end);
/* Both, while what is new is in the processor's cache. average NULL: there is none. */
void zpk_optimizer_and_average(const zpk_update *u, void *param, const void *grad, void *const *moment, void *average,
                               int64_t begin, int64_t end);
/* LAMB in two passes: new moments, with the squares of the parameters and of their updates, sums[0] and sums[1], in
 * f64; then the parameters, where lr has the trust ratio of the tensor in it. m and v: the moments. */
void zpk_lamb_moments(const zpk_update *u, const void *param, const void *grad, void *m, void *v, int64_t begin,
                      int64_t end, double sums[2]);
void zpk_lamb_apply(const zpk_update *u, void *param, const void *m, const void *v, int64_t begin, int64_t end);
/* Adafactor (formulas in adafactor.c): `count` elements from element `first` on of a tensor whose last two dimensions
 * are rows and cols; a vector has one row. What they are multiplied by, and sums, are those of the whole tensor, `rows`
 * NULL: none. The sums of squared gradients by row and column are added to. Sums of squares of parameters and of
 * updates, as well. The parameters: `factor` of the update before it, which is m's with momentum, else m is NULL; lr
 * only decays. */
typedef struct zpk_rows {
  int64_t rows, cols, first, count;
} zpk_rows;
void zpk_adafactor_sums(const zpk_update *u, const zpk_rows *at, const void *grad, double *rows, double *cols);
void zpk_adafactor_squares(const zpk_update *u, const zpk_rows *at, const void *param, const void *grad,
                           const void *rows, const void *cols, double sums[2]);
void zpk_adafactor_apply(const zpk_update *u, const zpk_rows *at, void *param, const void *grad, void *m,
                         const void *rows, const void *cols, double factor);
/* Muon (formulas in muon.c), all of the type of the master weights: momentum, and the update before it is
 * orthogonalised; the sum of its squares; y = factor x; x[i][i] += value; the parameters. */
void zpk_muon_momentum(const zpk_update *u, const void *grad, void *m, void *x, int64_t begin, int64_t end);
double zpk_muon_squares(zpk_dtype dtype, const void *x, int64_t begin, int64_t end);
void zpk_muon_scale(zpk_dtype dtype, double factor, const void *x, void *y, int64_t begin, int64_t end);
void zpk_muon_diagonal(zpk_dtype dtype, double value, void *x, int64_t n);
void zpk_muon_apply(const zpk_update *u, void *param, const void *x, double scale, int64_t begin, int64_t end);
/* 1-bit Adam: formulas in one_bit.c. ZPK_SIGNS elements are a block: signs, bit i of element i, 1 for what is not
 * negative, and a scale. A record of many blocks has all signs before the scales. Ranges of pack, average and unpack
 * count blocks; element b * ZPK_SIGNS of m, v and error is the first of block b. What has variance 0 stays 0, with
 * error 0. With a 16-bit dtype everything is f32, as in zpk_optimizer. */
enum { ZPK_SIGNS = 64, ZPK_SIGNS_BYTES = ZPK_SIGNS / 8 + 4 /* of a block in a record */ };
typedef struct zpk_signs {
  uint32_t *bits; /* [blocks][2] */
  float *scale;   /* [blocks] */
} zpk_signs;
/* Record r of records of so many blocks, side by side. */
static inline zpk_signs zpk_signs_of(const void *records, int64_t blocks, int64_t r) {
  uint32_t *bits = (uint32_t *)(uintptr_t)records + r * blocks * (ZPK_SIGNS_BYTES / 4);
  return (zpk_signs){bits, (float *)(void *)(bits + 2 * blocks)};
}
/* The most that m / sqrt(v), both corrected, comes to in Adam (Kingma and Ba 2015, section 2.1). */
static inline double zpk_most_of_adam(double beta1, double beta2) {
  double rest1 = 1 - beta1, rest2 = 1 - beta2;
  return rest1 * rest1 > rest2 ? rest1 / sqrt(rest2) : 1;
}
/* m = beta1 m + (1 - beta1) (grad_scale grad), with Adam's decay in the gradient; elements. */
void zpk_momentum(const zpk_update *u, const void *param, const void *grad, void *m, int64_t begin, int64_t end);
/* The worker's side: of m + error; updates the error. */
void zpk_pack_signs(zpk_dtype dtype, const void *m, const void *v, float *error, zpk_signs to, int64_t begin,
                    int64_t end);
/* The server's side: of the mean of n workers' records, summed in their order, + error; updates the error. */
void zpk_average_signs(zpk_dtype dtype, int n, const void *records, int64_t blocks, const void *v, float *error,
                       zpk_signs to, int64_t begin, int64_t end);
void zpk_unpack_signs(zpk_dtype dtype, zpk_signs from, const void *v, void *m, int64_t begin, int64_t end);
/* The parameters by momentum, the variance as it is; elements. bias2: of the last step that changed the variance. */
void zpk_frozen_update(const zpk_update *u, void *param, const void *m, const void *v, int64_t begin, int64_t end);
/* With ZeRO 1, of `count` elements of one parameter, the first of which begins block `block` of a record; the last
 * block may be shorter. error += scale grad: */
void zpk_add_to_error(zpk_dtype dtype, const void *grad, double scale, float *error, int64_t count);
/* The worker's side: of the error, which becomes what is not sent. */
void zpk_pack_error(float *error, int64_t count, zpk_signs to, int64_t block);
/* The owner's side. */
typedef struct zpk_records {
  int n; /* workers; 0: momentum is new already */
  const void *records;
  int64_t blocks; /* of each record */
} zpk_records;
typedef struct zpk_owner {
  const void *weights; /* of all ranks */
  void *master;        /* 16-bit dtypes: the owner's; else NULL, and */
  void *m;
  const void *v;
  float *server_error; /* what it has more than `weights` */
} zpk_owner;
/* Momentum by the mean of the workers' records, the owner's weights by momentum, and in `to` what all shall add. */
void zpk_owner_update(const zpk_update *u, const zpk_owner *owner, zpk_records in, zpk_signs to, int64_t block,
                      int64_t count);
/* weights += signs and scales */
void zpk_apply_signs(zpk_dtype dtype, zpk_signs from, int64_t block, void *weights, int64_t count);
/* 1-bit LAMB: the variance goes on by momentum and momentum before; the largest sqrt(v) / sqrt(fresh), both corrected.
 * Then the parameters, as zpk_lamb_apply, with steps that keep Adam's bound. */
double zpk_lamb_fresh(const zpk_update *u, const void *m, const void *before, const void *v, void *fresh,
                      double fresh_bias2, int64_t begin, int64_t end);
/* With ZeRO 1, of an owner's elements, of which the first is element `first` of the records: momentum by the mean of
 * what was sent, the variance by the gradient that it stands for, and the same ratio. Then zpk_owner_update. */
double zpk_lamb_owner(const zpk_update *u, zpk_records in, int64_t first, void *m, const void *v, void *fresh,
                      double fresh_bias2, int64_t count);
void zpk_lamb_frozen(const zpk_update *u, void *param, const void *m, const void *v, int64_t begin, int64_t end);
/* 0/1 Adam: v = beta2 v + (1 - beta2) (grad_scale grad)^2; sum += weight m; m = sum / total and sum = 0; anchor *=
 * keep; out = anchor - lr clamp(sum / total / denominator), `real` whatever the dtype, of the elements at the
 * pointers. */
void zpk_variance(const zpk_update *u, const void *grad, void *v, int64_t begin, int64_t end);
void zpk_local_sum(zpk_dtype dtype, double weight, const void *m, void *sum, int64_t begin, int64_t end);
void zpk_local_mean(zpk_dtype dtype, double total, void *m, void *sum, int64_t begin, int64_t end);
void zpk_local_decay(zpk_dtype dtype, double keep, void *anchor, int64_t begin, int64_t end);
void zpk_local_weights(const zpk_update *u, double total, const void *anchor, const void *sum, const void *v, void *out,
                       int64_t count);
/* Sum of squares in f64 with a fixed association that does not depend on begin/end splits at multiples of 4096. */
double zpk_sum_squares(zpk_dtype dtype, const void *x, int64_t begin, int64_t end);
/* out = part[0] + part[1] + ..., in this order and rounded once, for elements [begin, end); out may be one of the
 * parts, of which there is at least one. */
void zpk_sum_parts(zpk_dtype dtype, void *out, const void *const *part, int n, int64_t begin, int64_t end);
/* Elements [begin, end) of those that the arguments say (zpd.h). */
void zpk_add_stochastic(const zpd_stochastic *a, int64_t begin, int64_t end);

/* ---- the random stream of all plans ---- */
/* Philox4x32-10: key (seed low, seed high), counter (element / 4, stream << 16 | instance, sample, step), word element
 * % 4; uniform = word / 2^32. The same as zp_philox_uniform and as the generated kernels. */
void zpk_philox(uint32_t counter[4], uint32_t key0, uint32_t key1); /* ten rounds in place */
double zpk_philox_uniform(uint64_t seed, uint64_t step, uint64_t sample, uint64_t stream, uint64_t instance,
                          uint64_t element);
/* Dropout keeps what has a word not below this: word / 2^32 >= rate, in integers. */
static inline uint32_t zpk_keep_threshold(double rate) {
  double scaled = ceil(ldexp(rate, 32));
  return scaled >= 0x1p32 ? UINT32_MAX : (uint32_t)scaled;
}
/* Initial weights: elements [first, first + n) of the parameter whose instance name hashes (FNV-1a 64) to `name_hash`;
 * normal by Box-Muller. kind: 0 normal(a = mean, b = std), 1 uniform(a, b), 2 constant a. Each is the same whichever
 * others are asked for. */
void zpk_initial_weights(uint64_t seed, uint64_t name_hash, uint64_t first, int64_t n, int kind, double a, double b,
                         double *out);
double zpk_initial_weight(uint64_t seed, uint64_t name_hash, uint64_t element, int kind, double a, double b);

#endif
