/* SPDX-License-Identifier: Apache-2.0 */
/* libzplanrt: what a generated trainer links. The trainer supplies constant tables (rt_tables.h) and one function that
 * runs the micro-batches of a step; the runtime does the rest: options, ranks, arena, data, loop, optimizer, log,
 * checkpoints.
 *
 * Ranks: rank = (p * data + d) * tensor + t, tensor fastest. "Collective" = all ranks of the named axis must call it,
 * in the same order. Errors of the environment end all ranks with one message (zpr_fail); nothing returns half-done.
 * What the tables and the calls of a trainer require is asserted: its generator is wrong otherwise. */
#ifndef ZPLAN_RT_H
#define ZPLAN_RT_H

#include <zplan/product_tile.h>
#include <zplan/rt_tables.h>

/* ---- context: fields that generated code reads ---- */
/* This rank's sums over the labels of one loss, times its token weight; right: of those that have the largest logit. */
typedef struct zpr_tally {
  double loss, right;
} zpr_tally;

struct zpr {
  const zpr_program *program;
  const zpr_stage *stage; /* this rank's */
  int rank, ranks, t, d, p;
  char *arena;
  int64_t step;         /* of the learning rate and the random numbers, from 0 */
  int64_t samples;      /* of the data used so far: the number of the next one */
  int64_t frozen_steps; /* those of them that left the variance as it was: 1-bit Adam */
  bool training;        /* false during validation */
  /* For every loss 1 / (labels of the batch that are there), 0 where none is; 1 during validation, whose tallies are
   * sums (runtime/denominators.h). */
  double token_weight[ZPR_MOST_LOSSES];
  double loss; /* this rank's share of the step's loss: the losses of the tally times their weights */
  zpr_tally tally[ZPR_MOST_LOSSES];
  /* f16: what gradients are multiplied by, so that small ones do not vanish; a power of two, 1 with other dtypes. */
  int64_t loss_scale;
  int64_t scale_steps; /* applied with this scale and no overflow between them: doubled after program->scale_window */
  int64_t
      skipped_steps; /* not applied, because loss or norm was not finite: `step` counts them, the optimizer does not */
  int64_t first_sample;    /* index, inside the batch, of this replica's first sample */
  struct zpr_state *state; /* private to the runtime */
};

/* Exit statuses of a trainer; the command of `zplan run` ends with the same. Interrupted by SIGINT or SIGTERM: 130,
 * 143. */
enum {
  ZPR_EXIT_REFUSED = 1, /* data, checkpoint, log, number of ranks: nothing that another plan would help */
  ZPR_EXIT_USAGE = 2,   /* options */
  ZPR_EXIT_FAILED =
      5, /* loss or norm stayed NaN or infinite, communication broke, memory or traffic was not as planned */
  ZPR_EXIT_MEMORY = 8, /* the system refused memory */
};

/* Runs the trainer; the exit status of the process. Options: --steps N, --resume, --init MAP, --log F, --data PATH,
 * --validate PATH,
 * --checkpoint DIR, --offload DIR, --threads N, --products LIBRARY, --check-memory, --profile, --profile-steps A..B,
 * --no-progress, --help. */
int zpr_main(int argc, char **argv, const zpr_program *program);

/* ---- what the step functions of a generated trainer call ---- */

/* Address of byte `offset` of the arena; on a GPU it is the device's, so only kernels and zpr_ functions may read
 * it. */
static inline void *zpr_at(zpr *c, int64_t offset) { return c->arena + offset; }
/* Ids of model input i (0 tokens, 1 labels) of micro-batch mb: int32 [microbatch][S]; after them, where the program
 * has lengths, input n_inputs: int32 [microbatch]. */
const int32_t *zpr_input(zpr *c, int input, int64_t mb);
/* Input i where it is numbers, of the program's dtype. */
const void *zpr_numbers(zpr *c, int input, int64_t mb);

/* Products of 16-bit operands that are widened are made of tiles of this size, in f32: a worker's share of
 * zpr_stage.products holds one of either operand and one of the result. */
#define ZPR_PRODUCT_BYTES                                                                                              \
  (((int64_t)ZPK_PRODUCT_M * ZPK_PRODUCT_K + ZPK_PRODUCT_K * ZPK_PRODUCT_N + ZPK_PRODUCT_M * ZPK_PRODUCT_N) * 4)
/* y[m,n] (+)= op(a) op(b): a is [m,k] (or [k,m] when trans_a), b is [k,n] (or [n,k] when trans_b). With 16 bits nothing
 * is added. */
void zpr_gemm(zpr *c, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const void *a, int64_t lda,
              const void *b, int64_t ldb, bool accumulate, void *y, int64_t ldy);
/* The gradient of a parameter: dw[m,n] (+)= a' b, where a is [k,m] and b is [k,n]. Gradients of parameters are what
 * operands are computed in, f32 for 16 bits, wherever a function of this header makes them or adds to them: of many
 * micro-batches, replicas, stages and experts a sum in 16 bits would stand still. */
void zpr_wgrad(zpr *c, int64_t m, int64_t n, int64_t k, const void *a, int64_t lda, const void *b, int64_t ldb,
               bool accumulate, void *dw);

/* Trainers of CPU ranks only: the same with operands of bf16 that are rounded to 8 bits first. Scales, of an operand or
 * of its blocks, are by the largest magnitude of what this rank has of it: zpk_float8_scale. Sums are f32, as ever. */
void zpr_gemm_float8(zpr *c, zpk_float8 a_format, zpk_float8 b_format, bool trans_a, bool trans_b, int64_t m, int64_t n,
                     int64_t k, const void *a, int64_t lda, const void *b, int64_t ldb, void *y, int64_t ldy);
void zpr_wgrad_float8(zpr *c, zpk_float8 a_format, zpk_float8 b_format, int64_t m, int64_t n, int64_t k, const void *a,
                      int64_t lda, const void *b, int64_t ldb, bool accumulate, void *dw);
/* An activation x[rows, cols] of bf16 as the gradient of a weight reads it, whose sums go down the rows: `kept` has
 * zpk_float8_bytes of it. The same gradient then, with one operand that was kept so, without gaps. */
void zpr_keep_float8(zpr *c, zpk_float8 format, int64_t rows, int64_t cols, const void *x, int64_t ld, void *kept);
typedef enum zpr_kept_side { ZPR_KEPT_A, ZPR_KEPT_B } zpr_kept_side;
void zpr_wgrad_kept_float8(zpr *c, zpk_float8 a_format, zpk_float8 b_format, zpr_kept_side kept, int64_t m, int64_t n,
                           int64_t k, const void *a, int64_t lda, const void *b, int64_t ldb, bool accumulate,
                           void *dw);

/* Trainers for GPUs only: a product with row operations that it does to its result before it is written, as cuBLASLt
 * has them (its epilogues). y[m,n] = op(a) op(b), then one of bias, residual           y += bias of every row, y +=
 * residual[m,n]; either or both bias, gelu_input         y += bias goes to gelu_input, and y = gelu of it, in the
 * approximation by tanh gelu_of, sum_of Y        y *= gelu'(gelu_of), and sum = the sum of y's rows sum_of A, B sum[m]
 * = the sum of op(a) over k, sum[n] = that of op(b); y is a gradient of a parameter, the plain product, added where
 * `accumulate`. `sum` is one, too: of a bias. Sums are f32 and rounded once; sum_of Y is rounded as y is before it is
 * added to, or written. */
typedef enum zpr_sum_of { ZPR_SUM_NOTHING, ZPR_SUM_A, ZPR_SUM_B, ZPR_SUM_Y } zpr_sum_of;
typedef struct zpr_matmul_call {
  bool trans_a, trans_b, accumulate;
  int64_t m, n, k;
  const void *a;
  int64_t lda;
  const void *b;
  int64_t ldb;
  void *y;
  int64_t ldy;
  const void *bias, *residual;
  int64_t residual_ld;
  void *gelu_input;
  const void *gelu_of;
  int64_t gelu_ld; /* of either; a multiple of 8 */
  zpr_sum_of sum_of;
  void *sum;
  bool accumulate_sum; /* sum += instead of = */
  void *workspace;     /* as long as sum, with any sum */
} zpr_matmul_call;
void zpr_matmul(zpr *c, const zpr_matmul_call *call);

/* One product for every expert of every sample: y[samples, experts, slots, n] = x[.., k] w[expert], which is [k, n], or
 * [n, k] with trans. */
void zpr_batched_gemm(zpr *c, bool trans, int64_t samples, int64_t experts, int64_t slots, int64_t n, int64_t k,
                      const void *x, int64_t x_ld, const void *w, void *y, int64_t y_ld);
/* dw[expert] (+)= the sum over samples of a' b: a is [samples, experts, slots, m], b [.., n], dw[expert] is [m, n]. */
void zpr_batched_wgrad(zpr *c, int64_t samples, int64_t experts, int64_t slots, int64_t m, int64_t n, const void *a,
                       int64_t lda, const void *b, int64_t ldb, bool accumulate, void *dw);

/* Products of rows sorted by expert: those of expert e are first[e] .. first[e + 1] - 1, of the last to rows - 1, and
 * may be none. y[rows, n] = x[rows, k] w[expert], which is [k, n], or [n, k] with trans; y has `room`, where rows
 * after the last one become zeros. */
void zpr_ragged_gemm(zpr *c, bool trans, int64_t rows, int64_t room, int64_t experts, int64_t n, int64_t k,
                     const void *x, int64_t x_ld, const void *w, const int32_t *first, void *y, int64_t y_ld);
/* dw[expert] (+)= a' b over its rows: a is [rows, m], b [rows, n], dw[expert] is [m, n]. */
void zpr_ragged_wgrad(zpr *c, int64_t rows, int64_t experts, int64_t m, int64_t n, const void *a, int64_t lda,
                      const void *b, int64_t ldb, const int32_t *first, bool accumulate, void *dw);

/* Trainers of CPU ranks only: the same with operands of bf16 that are rounded to 8 bits first (zpr_gemm_float8). Every
 * expert's matrix and rows have scales of their own: a scale is of the rows in all samples, a block of one sample's. */
void zpr_batched_gemm_float8(zpr *c, zpk_float8 x_format, zpk_float8 w_format, bool trans, int64_t samples,
                             int64_t experts, int64_t slots, int64_t n, int64_t k, const void *x, int64_t x_ld,
                             const void *w, void *y, int64_t y_ld);
void zpr_batched_wgrad_float8(zpr *c, zpk_float8 a_format, zpk_float8 b_format, int64_t samples, int64_t experts,
                              int64_t slots, int64_t m, int64_t n, const void *a, int64_t lda, const void *b,
                              int64_t ldb, bool accumulate, void *dw);
void zpr_ragged_gemm_float8(zpr *c, zpk_float8 x_format, zpk_float8 w_format, bool trans, int64_t rows, int64_t room,
                            int64_t experts, int64_t n, int64_t k, const void *x, int64_t x_ld, const void *w,
                            const int32_t *first, void *y, int64_t y_ld);
void zpr_ragged_wgrad_float8(zpr *c, zpk_float8 a_format, zpk_float8 b_format, int64_t rows, int64_t experts, int64_t m,
                             int64_t n, const void *a, int64_t lda, const void *b, int64_t ldb, const int32_t *first,
                             bool accumulate, void *dw);

/* A kernel of the device image. The runtime looks the function up at the first launch. */
typedef struct zpr_device_kernel {
  const char *name; /* as in the kernels' text, "row_h_ln_1" */
  void *function;   /* NULL until then */
  int tiles;        /* of columns that a row is cut into; 0: a row is not cut */
} zpr_device_kernel;

/* One generated row kernel over `rows` rows, spread over the threads of this rank, or over a GPU. */
typedef struct zpr_rows_call {
  zpk_row_kernel *kernel;    /* on the host */
  zpr_device_kernel *device; /* on a GPU */
  int64_t first, rows;       /* number of the first one, 0 where there are sums and on a GPU; how many */
  const void *const *in;
  const int64_t *in_ld;
  void *const *out;
  const int64_t *out_ld;
  int n_in, n_out; /* for zpr_slot_rows, zpr_rows_by_keys and on a GPU: at most ZPD_OPERANDS there */
  const int64_t
      *in_step; /* for the first two; elements from row to row: in_ld, or 0 where all rows read the same one */
  int n_sums;   /* column sums: added over chunks into sum[i] (of sum_cols[i] elements) */
  const int64_t *sum_cols;
  void *const *sum;
  const bool *accumulate; /* per sum: add to what is there, or overwrite */
  void *workspace; /* ZPK_CHUNKS, on a GPU zpd_row_chunks(rows), * (total of sum_cols) reals; NULL without sums */
  int64_t instance, first_sample, first_column, logical_columns; /* of the random stream */
} zpr_rows_call;
void zpr_rows(zpr *c, const zpr_rows_call *call);
/* Runs a row kernel over slots that an expert group has spread, [samples, experts, n, slots] rows: the random stream of
 * every sample is that of the member who has it. first_column: of the rank's first expert. */
void zpr_slot_rows(zpr *c, const zpr_rows_call *call, int64_t samples, int64_t experts, int64_t slots);

/* Runs a row kernel that knows positions, without sums, over a context rank's rows of `samples`, of which tensor ranks
 * have `shares`: row r of the kernel has position r. The random stream of every sample is its own. */
void zpr_rows_by_keys(zpr *c, const zpr_rows_call *call, int64_t samples, int64_t shares);

void zpr_embedding(zpr *c, const int32_t *ids, const void *table, int64_t first_row, int64_t n_rows, int64_t rows,
                   int64_t cols, void *out);
void zpr_embedding_grad(zpr *c, const int32_t *ids, const void *dy, int64_t first_row, int64_t n_rows, int64_t rows,
                        int64_t cols, void *grad);
void zpr_position_grad(zpr *c, const void *dy, int64_t ld, int64_t samples, int64_t S, int64_t cols, bool accumulate,
                       void *grad);
/* Stretches of positions: what of them `to` has no place for is left out. */
void zpr_move_positions(zpr *c, const zpk_positions *positions);
void zpr_mean_positions(zpr *c, const void *x, int64_t samples, int64_t S, int64_t cols, double scale, void *y);
void zpr_spread_positions(zpr *c, const void *dy, int64_t samples, int64_t S, int64_t cols, double scale, void *dx);
/* Positions by number; windows over them; one axis made one number. */
void zpr_gather(zpr *c, const zpk_gather_args *args);
void zpr_gather_grad(zpr *c, const zpk_gather_args *args);
void zpr_unfold(zpr *c, const zpk_unfold_args *args);
void zpr_unfold_grad(zpr *c, const zpk_unfold_args *args);
void zpr_reduce(zpr *c, const zpk_reduce_args *args);
void zpr_reduce_grad(zpr *c, const zpk_reduce_args *args);
/* y[b] is x[b] turned over, of x[samples, rows, cols]. */
void zpr_transpose(zpr *c, const void *x, int64_t samples, int64_t rows, int64_t cols, void *y);
/* args->workspace holds zpr_attention_shares of zpk_attention_workspace bytes, bias_lines as many lines; kernels run
 * one BLAS thread each. On a GPU with attention on tensor cores it is zpd_attention.facts of backward; else it may be
 * NULL. args->lengths lies where the tensors do. */
void zpr_attention(zpr *c, const zpk_attention_args *args);
void zpr_attention_grad(zpr *c, const zpk_attention_args *args);
/* Attention of a context rank whose keys and values are those of all positions, n times the S of its queries: which
 * positions it has is in by_keys.c. The workspace is as for zpr_attention. Causal attention needs scratch for half of a
 * sample's queries, each part at a multiple of ZPR_MERGE_ALIGN bytes: results and log-sum-exps; in backward gradients
 * of these queries, and those of half of all keys and values. dk_ld and dv_ld are the columns.
 * In a window and a pattern, with dropout and of documents: a sample's queries in `real`; half of them; forward their
 * log-sum-exps in `real`; and what single calls need. This is, of half of a sample: in a window its queries, its keys
 * with its values, and its log-sum-exps in `real`, in backward the queries twice more; in backward its keys with its
 * values. */
#define ZPR_MERGE_ALIGN 16
/* Block-sparse attention whose positions are cut into stretches: the layout of what a stretch of queries sees of one
 * of keys, by both; NULL: nothing. */
typedef const zpk_layout *const zpr_pattern;
void zpr_attention_by_keys(zpr *c, const zpk_attention_args *args, const zpr_pattern *pattern, void *scratch);
void zpr_attention_by_keys_grad(zpr *c, const zpk_attention_args *args, const zpr_pattern *pattern, void *scratch);
/* Attention of a context rank that has keys and values of its own positions alone, and meets those of the others one
 * rank after the other (ring.c). Scratch has, each part at a multiple of ZPR_MERGE_ALIGN bytes, three times the rank's
 * keys with its values; its queries in `real`; a sample's queries; forward log-sum-exps of these in `real`, backward
 * three times the keys with the values, and these in `real`; in those cases what single calls need. */
void zpr_attention_ring(zpr *c, const zpk_attention_args *args, const zpr_pattern *pattern, void *scratch);
void zpr_attention_ring_grad(zpr *c, const zpk_attention_args *args, const zpr_pattern *pattern, void *scratch);
void zpr_merge_parts(zpr *c, const zpk_merge *merge);
/* Never more threads than this take part in a task. */
#define ZPR_MAX_WORKERS 8
/* Shares of attention's workspace, whatever the number of threads: a task is a sample's head of keys. */
static inline int64_t zpr_attention_shares(int64_t samples, int64_t kv_heads) {
  return samples * kv_heads < ZPR_MAX_WORKERS ? samples * kv_heads : ZPR_MAX_WORKERS;
}
/* Cross-entropy over `classes` classes. loss: which one of the program's; lengths: as for zpk_ce_stats, or NULL. */
void zpr_ce_stats(zpr *c, int loss, const void *logits, int64_t V, int64_t first_col, int64_t classes,
                  const int32_t *labels, const int32_t *lengths, int64_t rows, void *stat);
void zpr_ce_loss(zpr *c, int loss, const void *stat, int ranks, int64_t rows, int64_t classes, const int32_t *labels,
                 void *lse); /* adds to c->loss and to the loss's tally */
void zpr_ce_grad(zpr *c, int loss, const void *logits, int64_t V, int64_t first_col, int64_t classes,
                 const int32_t *labels, const int32_t *lengths, const void *lse, zpk_targets targets, int64_t rows,
                 void *dlogits);
/* Squared errors of rows alongside a target of numbers, as statistics for zpr_ce_loss, which then takes no labels;
 * `share`: what of the gradient is this rank's. */
void zpr_squared_error(zpr *c, int loss, const void *x, const void *target, int64_t rows, int64_t cols, void *stat);
void zpr_squared_error_grad(zpr *c, int loss, const void *x, const void *target, int64_t rows, int64_t cols,
                            double share, void *dx);
/* Mixture of experts; r->B samples. */
void zpr_top_k_gate(zpr *c, const zpk_routing *r, const void *score, const void *bias, void *weight, int32_t *slot);
/* Counts choices for the bias whose first element in the flat buffers is this one (zpr_recipe.sign_rate). */
void zpr_count_load(zpr *c, const zpk_routing *r, const int32_t *slot, int64_t bias);
void zpr_top_k_gate_grad(zpr *c, const zpk_routing *r, const void *score, const int32_t *slot, const void *d_weight,
                         void *d_score);
/* Collective over a context group: zpk_routing.choices of its ranks, from their positions' slots. */
void zpr_gather_choices(zpr *c, const zpk_routing *r, const int32_t *slot, void *choices);
/* Where experts begin in sorted rows (zpk_expert_rows). */
void zpr_expert_rows(zpr *c, const zpk_routing *r, const int32_t *slot, int32_t *first);
void zpr_dispatch(zpr *c, const zpk_routing *r, const void *x, const int32_t *slot, void *out);
void zpr_combine(zpr *c, const zpk_routing *r, const void *y, const void *weight, const int32_t *slot, void *out);
void zpr_combine_grad(zpr *c, const zpk_routing *r, const void *y, const void *weight, const int32_t *slot,
                      const void *d_out, void *dy, void *d_weight);
/* ---- incremental decoding, of trainers with zpr_program.decode: one sample ---- */

/* Attention of those queries alone, whose log-sum-exps stay unwritten but where p.first is 0. Keys and values of
 * positions before them are where earlier calls have left them. */
void zpr_attention_stretch(zpr *c, const zpk_attention_args *args, zpr_positions p);
/* What routes those tokens alone; a gate has all positions up to them for a sample of its own. Slots of other tokens
 * stay as they are. */
void zpr_dispatch_stretch(zpr *c, const zpk_routing *r, const void *x, const int32_t *slot, void *out, zpr_positions p);
void zpr_combine_stretch(zpr *c, const zpk_routing *r, const void *y, const void *weight, const int32_t *slot,
                         void *out, zpr_positions p);
/* Some of a rank's [experts, slots] rows, of which row 0 has the number `first`: those whose numbers are slot[0 .. n -
 * 1], where they are here; negative ones are none's. Tokens take an expert's slots in order, so that those of a stretch
 * lie side by side. */
typedef struct zpr_chosen {
  const int32_t *slot;
  int64_t n, first, experts, slots;
} zpr_chosen;
void zpr_chosen_rows(zpr *c, const zpr_rows_call *call, zpr_chosen chosen);
void zpr_chosen_gemm(zpr *c, bool trans, int64_t n, int64_t k, const void *x, int64_t x_ld, const void *w, void *y,
                     int64_t y_ld, zpr_chosen chosen);
/* Collective over the tensor ranks, which have parts of all experts: sums the chosen rows, of cols elements. */
void zpr_chosen_all_reduce(zpr *c, void *x, int64_t cols, zpr_chosen chosen);
/* The logits of the last position, which zpr_ce_stats would have seen. */
void zpr_show_logits(zpr *c, int loss, const void *logits, int64_t V, int64_t classes);

/* Saved values of a unit that leave the device: where the unit works, and its slot, whose first bytes are on the
 * device. */
typedef struct zpr_saved {
  void *at, *here;
  int64_t here_bytes;
  int64_t offloaded, offloaded_bytes; /* byte of the host arena, or of the file */
} zpr_saved;
/* Start after the work that the device has been given. put: from where the unit worked to its slot; get: back. At most
 * two are under way. */
void zpr_saved_put(zpr *c, zpr_saved saved);
void zpr_saved_get(zpr *c, zpr_saved saved);
/* On disks only: starts to read what the next but one zpr_saved_get asks for (before the first one: the first two). */
void zpr_saved_read(zpr *c, zpr_saved saved);
/* Work that the device is given from now on finds all of them done but the last `under_way`. */
void zpr_saved_wait(zpr *c, int under_way);
void zpr_copy(zpr *c, void *dst, const void *src, int64_t bytes);
void zpr_zero(zpr *c, void *dst, int64_t bytes);

/* Collective over the axis. Elements of the program's dtype; 16-bit ones are added in f32 and rounded once.
 * Reduce-scatter then all-gather; every element is summed in rank order, so the bits are the same on every rank and do
 * not depend on where in a buffer the element lies. All ranks together send 2(n-1) * count elements, as a ring does
 * (all-gather: (n-1) * n * count). */
void zpr_all_reduce(zpr *c, zpr_axis axis, void *data, int64_t count);
/* out[i * count ..] = rank i's `in`; in may be its own place in out. */
void zpr_all_gather(zpr *c, zpr_axis axis, const void *in, int64_t count, void *out);
/* Collective over the n tensor ranks, between a rank's share of every sample's positions, [samples, elements], and all
 * of them, [samples, n, elements]; `elements` are those of one share of one sample. The gather sends as n ranks'
 * all-gather of samples * elements each. The reduce-scatter adds what the ranks have for my share, in rank order on the
 * host, and leaves `in` as it is; all ranks together send (n-1) * n * samples * elements. */
void zpr_all_gather_sequence(zpr *c, const void *in, int64_t samples, int64_t elements, void *out);
void zpr_reduce_scatter_sequence(zpr *c, const void *in, int64_t samples, int64_t elements, void *out);
/* Collective over an expert group, n ranks, of which each has `experts`: from the slots of all experts for this rank's
 * samples, in[samples, n, experts, elements], to those of this rank's experts for the samples of all members,
 * out[samples, experts, n, elements]; `elements` are the slots of one expert for one sample. And back. Each rank sends
 * all but 1/n. */
void zpr_spread_slots(zpr *c, const void *in, int64_t samples, int64_t experts, int64_t elements, void *out);
void zpr_return_slots(zpr *c, const void *in, int64_t samples, int64_t experts, int64_t elements, void *out);
/* Collective over an expert group, n ranks, of which each has `experts`: a row for every one of `choices`, sorted by
 * expert, goes to the rank of its expert, which has `room` for all that could come, sorted by its experts and then by
 * member; and back. Each rank sends what routing decides, and the counts all but 1/n of 4 bytes an expert. */
typedef struct zpr_spread {
  int64_t experts, choices, room;
} zpr_spread;
/* first[n * experts]: where every expert's rows begin (zpk_expert_rows, its first sample). counts[size], of which
 * (2 n + 1) * experts + 1 are used and the rest is 0: where the rank's experts begin among what comes, and how much
 * comes; rows for every member's experts; rows of every member for the rank's experts. */
void zpr_spread_counts(zpr *c, const zpr_spread *s, const int32_t *first, int64_t size, int32_t *counts);
/* in[choices, cols] to out[room, cols], zeros after the last row; and in[room, cols] to out[choices, cols]. */
void zpr_spread_rows(zpr *c, const zpr_spread *s, const int32_t *counts, const void *in, int64_t cols, void *out);
void zpr_return_rows(zpr *c, const zpr_spread *s, const int32_t *counts, const void *in, int64_t cols, void *out);
/* Collective over a context group, n ranks: from all heads at this rank's positions, rows of `ld` elements with heads *
 * width columns, to this rank's heads at all positions, [samples, n * positions, heads / n * width], and back. Where n
 * is a multiple of `heads`, ranks have one head, several the same, and what comes back is their sum. scratch: as many
 * elements as a rank has at all positions; where sums come back, twice as many. */
typedef struct zpr_heads {
  int64_t samples, positions, heads, width, ld;
  void *scratch;
} zpr_heads;
void zpr_spread_heads(zpr *c, const zpr_heads *h, const void *in, void *out);
void zpr_return_heads(zpr *c, const zpr_heads *h, const void *in, void *out);
/* Collective over the data ranks that hold the same. The bucket that begins at flat element `first` (zpr_run), from the
 * shards of these ranks to all of it at `to` (zero == 3). */
void zpr_gather_params(zpr *c, int64_t first, void *to);
/* hpZ (program->hpz > 0). The bucket that begins at flat element `first`, all of it at `from`: keeps this rank's part
 * of its second copy. Not collective. */
void zpr_keep_hpz(zpr *c, int64_t first, const void *from);
/* Collective over the ranks that divide the second copy: the bucket as it was kept last, from their parts to all of it
 * at `to`. */
void zpr_gather_hpz(zpr *c, int64_t first, void *to);
/* Parameters on disks: starts to read what this rank has of the bucket, which zpr_fetch_params will ask for. Not
 * collective. */
void zpr_read_params(zpr *c, int64_t first);
/* Parameters that are off the device (params_offloaded): starts to bring what this rank has of the bucket to its place
 * at `to`, for which zpr_gather_params then does the rest, also with zero == 0. Not collective. */
void zpr_fetch_params(zpr *c, int64_t first, void *to);
/* Work that the device is given from now on finds all that was fetched. */
void zpr_await_params(zpr *c);
/* zero >= 2: sums the bucket's gradients `from` over these ranks; this rank's shard of the sum replaces the one that it
 * has, or is added to it. moves_gradients: the whole bucket does so, and ranks are summed once a step, later.
 * Overwrites `from`. Padding counts as zero. */
void zpr_scatter_grads(zpr *c, int64_t first, void *from, bool add);
/* Collective over the data ranks that hold the same, zero 0 or 1, once a step: the gradients of the bucket that begins
 * at flat element `first` are complete. Sums them in place; with zero == 1 every rank the shard that it owns, and the
 * rest is undefined. Padding counts as zero. */
void zpr_reduce_grads(zpr *c, int64_t first);
/* Once a step, after the micro-batches, in this order. Over the data ranks that hold the same, zero 0 or 1: the flat
 * gradients all at once, but not when 1-bit Adam exchanges momentum instead; or bucket by bucket, as zpr_reduce_grads,
 * also of what is off the device. Over the stages of every tie. Over the tensor ranks, what is partial there. */
void zpr_sum_flat(zpr *c);
void zpr_sum_buckets(zpr *c);
void zpr_sum_ties(zpr *c);
void zpr_sum_partial(zpr *c);
/* After the update, zero 1 or 2: parameters from their owners to all. */
void zpr_gather_updated(zpr *c);
/* Where gradients leave the device: the buffer of the ring for the next unit's, of stage->bucket_elements each. What is
 * computed from now on waits until it is free. */
void *zpr_grad_buffer(zpr *c, void *ring);
/* GPUs: buckets move alongside the units, in a stream of their own. A ring in the arena has two buffers, 0 and 1,
 * that neighbouring units use in turn. What is called between zpr_overlapped and zpr_overlapped_end (gathers, scatters,
 * reductions) runs when the units have left the buffer; a unit that uses it comes after zpr_ring_wait and before
 * zpr_ring_done. For zpr_reduce_grads there is no buffer to wait for: gradients are reduced where they stand, after
 * zpr_ring_done of their unit. */
typedef enum zpr_ring { ZPR_PARAM_RING, ZPR_GRAD_RING } zpr_ring;
void zpr_overlapped(zpr *c, zpr_ring ring, int64_t buffer);
void zpr_overlapped_end(zpr *c, zpr_ring ring, int64_t buffer);
void zpr_ring_wait(zpr *c, zpr_ring ring, int64_t buffer);
void zpr_ring_done(zpr *c, zpr_ring ring, int64_t buffer);
/* Messages along the pipeline, same t and d: from this rank's `chunk` to the next part of the model (up) or the one
 * before. A send returns at once; its buffer may be written again after zpr_send_wait of the same chunk, direction and
 * mb modulo program->messages. Receives wait. Where the next part is on the same stage nothing is sent: the receiver
 * copies. */
void zpr_send(zpr *c, int chunk, bool up, const void *data, int64_t count, int64_t mb);
void zpr_send_wait(zpr *c, int chunk, bool up, int64_t mb);
void zpr_recv(zpr *c, int chunk, bool from_below, void *data, int64_t count, int64_t mb);

/* Trainers built with --profile. From here on step i of the profile's table; what is between steps; micro-batch mb of
 * `what`: 'F' forward, 'B' backward, 'I' its gradients of inputs, 'W' of weights. They do nothing while a training step
 * is not measured. */
void zpr_step(zpr *c, int i);
void zpr_step_end(zpr *c);
void zpr_begin_action(zpr *c, char what, int chunk, int64_t mb);

/* Ends all ranks with one line on stderr: "error[Z0801]: ...". Codes as in `zplan explain`; the code decides
 * the exit status. */
_Noreturn void zpr_fail(zpr *c, const char *code, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
