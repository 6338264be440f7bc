/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the attention kernels: block sizes, one block's place in the problem, and the table of one instruction
 * set. */
#ifndef ZPK_ATTENTION_H
#define ZPK_ATTENTION_H

#include "clones.h"
#include <zplan/zpk.h>

/* Queries and keys are handled in blocks of BLOCK (a multiple of every panel width and of ROWS); the inner kernel holds
 * ROWS rows of results in registers: 12 registers of accumulators with AVX2, 6 with AVX-512. */
enum { BLOCK = 48, ROWS = 6, PAD_BYTES = 64 };

/* hd rounded up to whole 64-byte vectors: the leading dimension of blocks in the workspace. */
static inline int64_t zpk_padded_head(zpk_dtype dtype, int64_t hd) {
  int64_t lanes = PAD_BYTES / zpk_real_bytes(dtype);
  return (hd + lanes - 1) / lanes * lanes;
}

static inline int64_t zpk_keys(const zpk_attention_args *args) { return args->keys ? args->keys : args->S; }

/* Positions of a sample in whole units of a layout: where they end in the middle of one, zeros follow. */
static inline int64_t zpk_padded_keys(int64_t S) {
  return (S + ZPK_SPARSE_UNIT - 1) / ZPK_SPARSE_UNIT * ZPK_SPARSE_UNIT;
}

/* Keys from .. to - 1 of a block, counted from its first one; none where to <= from. */
typedef struct zpk_span {
  int64_t from, to;
} zpk_span;

/* What a query sees of the keys key .. key + keys - 1. */
static inline zpk_span zpk_seen_keys(const zpk_attention_args *args, int64_t query, int64_t key, int64_t keys) {
  zpk_span seen = {0, keys};
  if (args->causal && query + 1 - key < keys) seen.to = query + 1 - key;
  if (args->window == 0) return seen;
  if (query - args->window + 1 > key) seen.from = query - args->window + 1 - key;
  if (query + args->window - key < seen.to) seen.to = query + args->window - key;
  return seen;
}

/* Where the blocks begin that rows of the other side from `first` on may meet in dense attention: a multiple of BLOCK.
 * Seeing goes both ways, so of keys and of queries alike, but for causality. */
static inline int64_t zpk_first_met(const zpk_attention_args *args, int64_t first) {
  return args->window && first >= args->window ? (first - args->window + 1) / BLOCK * BLOCK : 0;
}

/* After the last position that rows up to `last` may meet, of `all`. */
static inline int64_t zpk_end_met(const zpk_attention_args *args, int64_t last, int64_t all) {
  return args->window && last + args->window < all ? last + args->window : all;
}

/* Elements of a line with the bias of every distance: that of a key `behind` the query stands at behind + S - 1. Whole
 * blocks of keys are read, so there is room after the last one. */
static inline int64_t zpk_line_elements(int64_t S) { return (2 * S + BLOCK + 15) / 16 * 16; }

/* One task: sample b, kv head g; `workspace` is the worker's share, `line` that of bias_lines. Lengths do not get here:
 * a shorter sample is a task of one sample with S positions, in a layout maybe no multiple of the block. */
typedef void zpk_attention_task(const zpk_attention_args *args, int64_t b, int64_t g, void *workspace, void *line);

/* Likewise, of queries first .. first + n - 1. */
typedef void zpk_attention_some(const zpk_attention_args *args, int64_t b, int64_t g, int64_t first, int64_t n,
                                void *workspace, void *line);

typedef struct zpk_attention_level {
  zpk_attention_task *forward[ZPK_DTYPES], *backward[ZPK_DTYPES]; /* by zpk_dtype */
  zpk_attention_some *stretch[ZPK_DTYPES];
  void (*bias_grad[ZPK_DTYPES])(const zpk_attention_args *args);
} zpk_attention_level;

/* As zpk_attention and zpk_attention_grad, with the code of one level. */
void zpk_attention_on(const zpk_attention_level *level, bool backward, const zpk_attention_args *args, int64_t begin,
                      int64_t end, int worker);

/* As zpk_attention_stretch, likewise. */
void zpk_attention_stretch_on(const zpk_attention_level *level, const zpk_attention_args *args, int64_t first,
                              int64_t n, int64_t begin, int64_t end, int worker);

extern const zpk_attention_level zpk_attention_base;
#if ZPK_X86_LEVELS
extern const zpk_attention_level zpk_attention_v3, zpk_attention_v4;
#endif

#endif
