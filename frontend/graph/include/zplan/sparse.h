/* SPDX-License-Identifier: Apache-2.0 */
/* Block-sparse attention: which blocks of keys a block of queries sees, known when the model is read. A *pattern* is
 * what the user writes, a *layout* what it comes to for one sequence length: sets of pairs of blocks, one for all heads
 * or several that the heads take in turns, the same for all samples and layers. In every set a query block sees itself,
 * so no row of the softmax is empty and no key is unused. */
#ifndef ZPLAN_SPARSE_H
#define ZPLAN_SPARSE_H

#include <stdbool.h>
#include <stdint.h>
#include <zplan/model.h>

/* Kernels handle 16 positions at once; a layout is a matrix of blocks while it is made. */
enum { ZP_SPARSE_UNIT = 16, ZP_SPARSE_MAX_BLOCKS = 4096 };

/* Rules for query block i and key block j of n, without causality. Fixed and strided: Child et al. 2019 (arXiv
 * 1904.10509) as DeepSpeed has the former; BigBird: Zaheer et al. 2020 (2007.14062); Longformer: Beltagy et al. 2020
 * (2004.05150). */
typedef enum zp_sparse_kind {
  ZP_SPARSE_FIXED, /* i / local == j / local, or j global: of the last `global` blocks of its run of `local` (a shorter
                    * last run: of the sequence); of head h those (h % patterns) * global before */
  ZP_SPARSE_VARIABLE,   /* i and j in the same window of the listed sizes, the last of which repeats; j global: listed;
                         * random j */
  ZP_SPARSE_SLIDING,    /* |i - j| <= window / 2 */
  ZP_SPARSE_BIGBIRD,    /* sliding; i or j < global; random j */
  ZP_SPARSE_LONGFORMER, /* sliding; i or j listed */
  ZP_SPARSE_STRIDED,    /* |i - j| < local, or |i - j| a multiple of stride */
} zp_sparse_kind;

typedef struct zp_sparse {
  zp_sparse_kind kind;
  int64_t block; /* positions, a multiple of ZP_SPARSE_UNIT */
  int64_t local, global, window, stride;
  int64_t patterns;     /* FIXED: as many different global blocks, which heads take in turns; at least 1 */
  bool horizontal;      /* FIXED, VARIABLE: global blocks also see all keys. Not causal */
  int64_t random, seed; /* so many different key blocks for every query block, of those that causality leaves */
  zp_ints windows;      /* VARIABLE: sizes in blocks */
  zp_ints globals;      /* VARIABLE, LONGFORMER: block numbers */
} zp_sparse;

/* Blocks first .. end - 1. */
typedef struct zp_block_run {
  int first, end;
} zp_block_run;

/* One direction: the runs that block i meets are run[first[i]] .. run[first[i + 1] - 1], ascending and apart. */
typedef struct zp_block_list {
  const int *first; /* [n + 1] */
  const zp_block_run *run;
} zp_block_list;

/* The pairs of blocks that a head sees. */
typedef struct zp_pair_set {
  zp_block_list keys, queries; /* of every query block, of every key block */
  int64_t pairs;
} zp_pair_set;

typedef struct zp_layout {
  const zp_sparse *sparse; /* borrowed */
  int64_t block;
  int n;         /* blocks of the sequence */
  bool causal;   /* then no key block is after its query block, and the pair of a block with itself is half seen */
  int64_t heads; /* query heads of the model */
  int sets;      /* 1 .. heads */
  const zp_pair_set *set; /* [sets]: query head h of the model has set[h % sets] */
} zp_layout;

/* Arena; NULL with *error (arena) when the pattern does not fit the sequence. */
const zp_layout *zp_layout_make(zp_arena *arena, const zp_sparse *sparse, int64_t heads, int64_t sequence, bool causal,
                                const char **error);
/* Positions are cut into equal stretches, whose number divides the blocks. What queries of one see of keys of another,
 * as a layout of its own, causal if both are the same; NULL: no head sees any. Arena. */
const zp_layout *zp_layout_part(zp_arena *arena, const zp_layout *layout, int stretches, int query, int key);
/* Pairs of positions that a head sees on average, by [stretch of queries][stretch of keys], counted as
 * zp_layout_work.seen. Arena. */
const double *zp_layout_between(zp_arena *arena, const zp_layout *layout, int stretches);
/* Positions; causality included. */
bool zp_layout_sees(const zp_layout *layout, int64_t head, int64_t query, int64_t key);
/* Do kernels need the same tables for both? */
bool zp_layout_equal(const zp_layout *a, const zp_layout *b);
/* Pairs of positions, of a head on average, of the rank that has most to do where every rank has so many heads, side by
 * side from the model's first on, padding heads as any: with the heads of the model that of one rank, the mean of all.
 * seen: with half of a causal pair of a block with itself, as dense attention is counted. computed: by kernels, which
 * compute such pairs whole; so at least as many. first_head: of that rank. */
typedef struct zp_layout_work {
  int64_t first_head;
  double seen, computed;
} zp_layout_work;
zp_layout_work zp_layout_longest(const zp_layout *layout, int64_t heads);
double zp_layout_excess(const zp_layout *layout, int64_t heads); /* of that rank: computed over seen */
/* Pairs that the heads of the model see as a share of dense attention's. */
double zp_layout_density(const zp_layout *layout);
/* The different layouts of a model, in the order of its ops; in the model's arena. */
typedef ZP_VEC(const zp_layout *) zp_layouts;
zp_layouts zp_model_layouts(const zp_model *model);
int zp_layouts_find(const zp_layouts *list, const zp_layout *layout); /* -1: none is equal */
/* "sparse.sliding(block = 64, window = 3), causal, 32 blocks a sequence: 6.2% of dense attention". Arena. */
const char *zp_layout_text(zp_arena *arena, const zp_layout *layout);
const char *zp_sparse_name(zp_sparse_kind kind);                      /* "bigbird" */
const char *zp_sparse_text(zp_arena *arena, const zp_sparse *sparse); /* "bigbird(block = 64, window = 3, ...)" */

#endif
