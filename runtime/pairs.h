/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of context ranks, a stretch of queries and a stretch of keys at a time: which calls of kernels a pair
 * takes, and how their results are added up. Walked by ring.c with the keys of one rank after the other, and by
 * by_keys.c where those of all positions stand side by side. */
#ifndef ZPLAN_RT_PAIRS_H
#define ZPLAN_RT_PAIRS_H

#include "internal.h"

/* Rank r of n has two of 2 n stretches of a sample: the late one 2 n - 1 - r, then the early one r. */
enum { ZPR_LATE, ZPR_EARLY, ZPR_HALVES };

typedef enum zpr_call_kind {
  ZPR_WHOLE,    /* queries see all of the keys, or what a layout says */
  ZPR_OWN,      /* of the same positions: causal, in a window, of documents, as all of the attention is */
  ZPR_TRIANGLE, /* a query as many keys as its number and itself */
  ZPR_REVERSED, /* a query the key of its own number and those after it: causal in the opposite order */
} zpr_call_kind;

/* Rows `query` .. of a sample's queries, and keys `key` .. of one half of their owner's. */
typedef struct zpr_call {
  int64_t query, queries;
  int half;
  int64_t key, keys;
  zpr_call_kind kind;
  bool first;               /* these queries have met no keys before */
  int64_t at_query, at_key; /* positions of the first query and key in the sample */
} zpr_call;

enum { ZPR_MOST_CALLS = 12 }; /* of a rank with the keys of one owner */

typedef struct zpr_pairs {
  zpr *c;
  const zpk_attention_args *a;
  int64_t ranks, me, rows;           /* of a stretch */
  int64_t queries, keys, elem, real; /* columns of queries; of keys, and as many of values; bytes of elements */
  char *sums, *part, *part_lse;      /* results, or gradients of queries: of all calls, and what one makes */
  /* For one call: its rows in the opposite order, and backward what it makes of keys, then of values. */
  char *turned_q, *turned_o, *turned_do, *turned_keys, *turned_lse, *key_part;
  const zpr_pattern *pattern; /* NULL: dense */
  const int32_t *documents;   /* the host's, of all positions; NULL: samples are not cut into any */
} zpr_pairs;

/* Keys and values from the first one of a call on; backward also their gradients. */
typedef struct zpr_key_rows {
  const char *k, *v;
  int64_t ld;
  char *dk, *dv;
  int64_t d_ld;
} zpr_key_rows;

static inline int64_t zpr_merge_aligned(int64_t bytes) {
  return (bytes + ZPR_MERGE_ALIGN - 1) / ZPR_MERGE_ALIGN * ZPR_MERGE_ALIGN;
}
/* The next part of scratch memory. */
static inline char *zpr_take_scratch(char **at, int64_t bytes) {
  char *place = *at;
  *at += zpr_merge_aligned(bytes);
  return place;
}

/* Does every pair of stretches have calls of its own? Windows go by distance, random numbers by position, a pattern
 * has layouts for each, and documents end where data says. */
bool zpr_goes_by_pairs(const zpk_attention_args *a, const zpr_pattern *pattern);
/* All but sums and parts, which are the walk's. */
zpr_pairs zpr_pairs_of(zpr *c, const zpk_attention_args *a, const zpr_pattern *pattern);
/* Scratch memory of single calls. */
void zpr_take_call_scratch(zpr_pairs *x, char **at, bool grad);
int64_t zpr_stretch_number(const zpr_pairs *x, int64_t rank, int half);
/* Does some stretch of `rank` see this half of the owner's keys? */
bool zpr_stretches_meet(const zpr_pairs *x, int64_t rank, int64_t owner, int half);
/* Calls of this rank's queries of a sample with the owner's keys, by pairs of stretches; how many. A stretch meets its
 * own keys first. */
int zpr_calls_by_pairs(const zpr_pairs *x, int64_t b, int64_t owner, zpr_call *list);
/* Row `row` of an array of the trainer's type. */
static inline char *zpr_row_of(const zpr_pairs *x, const void *at, int64_t row, int64_t ld) {
  return (char *)(uintptr_t)at + row * ld * x->elem;
}
/* With no rows: nothing. */
void zpr_merge_rows(const zpr_pairs *x, zpk_merge m);
/* One call of a sample's queries from row `row` on: what it makes is added to row `sum` of the sums. */
void zpr_meet(const zpr_pairs *x, const zpr_call *call, int64_t b, int64_t sum, const zpr_key_rows *keys);
/* Gradients of keys are added to what there is, or stored if `set`. */
void zpr_meet_grad(const zpr_pairs *x, const zpr_call *call, int64_t b, int64_t sum, const zpr_key_rows *keys,
                   bool set);
/* `rows` rows of the sums to their place. */
void zpr_put_sums(const zpr_pairs *x, int64_t rows, void *to, int64_t to_ld);

#endif
