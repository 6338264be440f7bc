/* SPDX-License-Identifier: Apache-2.0 */
/* Private: the seam between the runtime and what a rank computes on. Two libraries have these functions, and a trainer
 * links one of them: libzplanrt_cpu (cpu/, this rank's threads, the arena is the process's memory) and libzplanrt_cuda
 * (cuda/, a GPU, the arena is its memory). Each also has the step functions of rt.h (zpr_gemm, zpr_rows, ... zpr_zero,
 * collectives and pipeline messages) and the zpr_group_* collectives of internal.h, which work on the arena.
 *
 * Addresses from zpr_at are the device's. Common code gives them to these functions and never reads after them. */
#ifndef ZPLAN_RT_DEVICE_H
#define ZPLAN_RT_DEVICE_H

#include <zplan/zpd.h>
#include "internal.h"

/* Before the arena: ranks, coordinates and stage are known, threads run. Collective. */
void zpr_device_open(zpr *c);
void zpr_device_close(zpr *c);
/* When everything is open and before the arena is filled: what steps start is loaded, and ranks that talk to each other
 * are connected. Collective. While c->state->rehearses, the trainer walks its micro-batches for that alone: nothing
 * that it calls moves bytes or changes what the runtime knows. */
void zpr_prepare(zpr *c);
/* What computes, for the start of a run. */
typedef struct zpr_device_text {
  char device[160];  /* "threads per rank 2" */
  char products[96]; /* what multiplies matrices: "oneDNN 2.6.3 avx512_core", "cuBLASLt" */
  char warning[320]; /* where it could be faster on this machine; else empty */
} zpr_device_text;
void zpr_device_describe(zpr *c, zpr_device_text *text);
/* What has multiplied so far, where it chooses its own algorithms: library, version and device, and a number that
 * stands for this rank's products and their algorithms, in order. by "": it chooses none. */
typedef struct zpr_products_used {
  char by[128];
  uint64_t algorithms;
} zpr_products_used;
void zpr_device_products(zpr *c, zpr_products_used *used);
/* Product i and its algorithm, as members of a JSON object; false: there is none. */
bool zpr_device_product_text(zpr *c, int i, char *text, size_t size);

/* Do messages take the ways that the plan has them take? A GPU's that are staged take the host's. */
bool zpr_sends_as_planned(const zpr *c);

/* ---- the arena ---- */
/* Exactly stage->arena_bytes, at c->arena. check: filled with the pattern 0xE7. */
void zpr_arena_open(zpr *c, bool check);
void zpr_arena_close(zpr *c);
/* 1 + the highest byte that was ever written (only with check). */
int64_t zpr_arena_measured_peak(zpr *c);
/* Memory of the device that is taken, measured: on a GPU all that its driver counts, other processes' included; of a
 * CPU rank the most that its process ever had resident, libraries included. 0: it cannot be measured. */
int64_t zpr_device_used_bytes(zpr *c);

/* Host access to at most zpr_window_bytes() bytes of the arena, one window at a time: on the host the bytes themselves,
 * on a GPU a buffer with what they hold (to_read), whose contents zpr_window_close puts there (to write). */
int64_t zpr_window_bytes(const zpr *c);
void *zpr_window_open(zpr *c, void *part, int64_t bytes, bool to_read);
void zpr_window_close(zpr *c);

/* ---- memory of the host that the device copies from and to (tier.h) ---- */
/* NULL when there is none. On a GPU pinned, at a multiple of ZPR_PAGE. */
void *zpr_pinned_open(zpr *c, int64_t bytes);
void zpr_pinned_close(zpr *c, void *memory, int64_t bytes);
/* Start after all work that the device has been given, run alongside what it is given later, and return a ticket;
 * copies of one direction run in order. Host addresses are of zpr_host_at. A copy up also waits for the copy `after`,
 * 0: for none. Counted as moved. */
int64_t zpr_copy_down(zpr *c, void *host, const void *device, int64_t bytes);
int64_t zpr_copy_up(zpr *c, void *device, const void *host, int64_t bytes, int64_t after);
/* The host waits for a copy; work that the device is given from now on does. 0 and finished ones: nobody waits. */
void zpr_copy_wait(zpr *c, int64_t ticket);
void zpr_copy_before(zpr *c, int64_t ticket);

/* Bytes from this member of the context group to another one and from a third, alongside what the device computes. At
 * most one with the number i, 0 or 1, is under way. Starts when the work that the device has been given is done; until
 * the wait nothing writes what goes out or reads what comes in. Collective over the context group. */
enum { ZPR_TRANSFERS = 2 };
typedef struct zpr_transfer {
  int to, from; /* members */
  const void *out;
  void *in;
  int64_t out_bytes, in_bytes;
} zpr_transfer;
void zpr_transfer_start(zpr *c, int i, const zpr_transfer *t);
void zpr_transfer_wait(zpr *c, int i);
/* On memory of the host. */
void zpr_host_transfer_start(zpr *c, int i, const zpr_transfer *t);
void zpr_host_transfer_wait(zpr *c, int i);

/* sum[i] += x[i], gradients both. */
void zpr_add(zpr *c, void *sum, const void *x, int64_t count);
/* Additions to sums in bf16, rounded stochastically (zplan/zpd.h); such sums in f32. */
void zpr_add_stochastic(zpr *c, const zpd_stochastic *a);
void zpr_widen_sums(zpr *c, float *to, const void *from, int64_t count);

/* What moves alongside the units and what they compute wait for each other here (rt.h; on CPU ranks nothing does). */
void zpr_overlapped_join(zpr *c);
/* A walk over the micro-batches begins, that of training or forward alone: messages may come in. */
void zpr_messages_begin(zpr *c);

/* Room for the tokens of a batch, which zpr_tokens_close puts to `place` of the arena: work that the device is given
 * later finds them there. On a GPU the host does not wait for work that still reads those of the batch before. */
int32_t *zpr_tokens_open(zpr *c, int32_t *place, int64_t count);
void zpr_tokens_close(zpr *c);
/* What the host has of the last batch, from a place among its inputs on. */
const int32_t *zpr_tokens_on_host(const zpr *c, const int32_t *place);

/* ---- points in time (profile.c) ---- */
/* Room for `n` points between two calls of zpr_points_read; 0: they are not needed any more. */
void zpr_points_open(zpr *c, int n);
/* Marks when all work is done that the device has been given so far: as point i, in the order of their numbers. first:
 * of a training step, from which later points may be counted. */
void zpr_point(zpr *c, int i, bool first);
/* When the first n points were, in ns from some moment that is the same for all points of a training step. Waits. */
void zpr_points_read(zpr *c, int n, double *at_ns);

/* ---- the step's end ---- */
/* Adds to c->loss and c->tally what zpr_ce_loss has summed on the device since the last call. */
void zpr_collect_loss(zpr *c);

/* Elements of the gradients that lie in one parameter. */
typedef struct zpr_block {
  int64_t begin, end;
  int64_t to_params, to_state; /* from there to the same elements of the parameters and of the optimizer state */
  zpr_recipe recipe;
  int64_t tensor;  /* its number (optimizer/lamb.h) */
  bool counted;    /* in the norm: otherwise somebody else counts the same elements, or nobody does (sign_rate) */
  bool orthogonal; /* Muon's, whose update is not element by element (optimizer/muon.h) */
} zpr_block;
/* A block's elements on the device, from its first one on. */
typedef struct zpr_block_arrays {
  char *param;           /* what is updated: the f32 master copy of 16-bit weights, */
  char *weight;          /* and these, to which it is rounded; else NULL */
  char *grad;            /* of zpr_gradient_type */
  char *m, *v, *average; /* NULL: there is none */
} zpr_block_arrays;
zpr_block_arrays zpr_arrays_of(zpr *c, const zpr_block *block);
/* What the optimizer keeps of the elements on the device, by ZPK_MOMENT1 ...; NULL: not such an array
 * (offload/state_home.c). */
void zpr_moments_here(zpr *c, void *moment[ZPK_MOMENTS]);
/* The rule for a block, from the rule for all. */
static inline zpk_update zpr_rule_with(const zpk_update *rule, zpr_recipe recipe) {
  zpk_update own = *rule;
  own.lr *= recipe.lr_factor;
  own.weight_decay = recipe.weight_decay;
  if (recipe.sign_rate > 0) own.kind = ZPK_SIGN, own.lr = recipe.sign_rate;
  return own;
}
/* Blocks are cut at multiples of this. */
extern const int64_t zpr_block_elements;
/* Blocks that stay what they are until the list is closed. */
typedef struct zpr_block_list {
  const zpr_block *block; /* borrowed */
  int64_t n;
  void *there; /* what the back end made of them; NULL: nothing yet */
} zpr_block_list;
void zpr_block_list_close(zpr *c, zpr_block_list *list);
/* squares[i] = sum of squares of block i of the gradients, 0 where it is not counted. */
void zpr_square_blocks(zpr *c, zpr_block_list *list, double *squares);
/* The optimizer over all blocks. */
void zpr_update_blocks(zpr *c, zpr_block_list *list, const zpk_update *rule);

/* Whether the device can decide about a step itself: what its norm is, how far gradients are clipped, whether the step
 * is applied and how the loss scale moves, as zpr_finish_step does on the host. Then the host hears of it later. */
bool zpr_device_decides(const zpr *c);
/* Once, before the first step: what is known of the loss scale. From then on the device's is what counts. */
void zpr_decide_begin(zpr *c);
/* Norm, decision and update. rule: what is the same whether the step before was applied; biases: without and with one
 * more skipped step than c->skipped_steps. */
typedef struct zpr_biases {
  ZPK_BIASES(ZPK_BIAS_MEMBERS)
} zpr_biases;
void zpr_decide(zpr *c, zpr_block_list *counted, zpr_block_list *updated, const zpk_update *rule,
                const zpr_biases *biases);
typedef struct zpr_decided {
  double loss, grad_norm, loss_scale;
  zpr_tally tally[ZPR_MOST_LOSSES];
  bool applied;
} zpr_decided;
/* Waits for what was decided about the oldest step that was not asked for; at most two are under way. */
zpr_decided zpr_decided_wait(zpr *c);

#endif
