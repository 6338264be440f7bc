/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of pairs of stretches (runtime/pairs.c) against the definition of attention, position by position: windows of
 * every size, documents that end anywhere, patterns of stretches, both ways and causal. Every pair of a query and a key
 * that is seen is in one call of one rank, others in none; a query's first call is the one that says so; halves not
 * sent have none. */
#include <criterion/criterion.h>
#include "pairs.h"

enum { MOST_RANKS = 4, MOST_ROWS = 4, MOST = 2 * MOST_RANKS * MOST_ROWS };

typedef struct problem {
  int64_t ranks, rows, positions;
  zpk_attention_args a;
  int32_t documents[MOST];
  bool has_documents, has_pattern;
  const zpk_layout *pattern[4 * MOST_RANKS * MOST_RANKS]; /* of a stretch of queries and one of keys */
} problem;

static bool sees(const problem *p, int64_t q, int64_t k) {
  if (p->has_pattern) return p->pattern[q / p->rows * 2 * p->ranks + k / p->rows] != NULL;
  if (p->has_documents && (p->documents[q] < 0 || p->documents[q] != p->documents[k])) return false;
  if (p->a.causal && k > q) return false;
  return !p->a.window || (q - k < p->a.window && k - q < p->a.window);
}

static bool call_sees(const problem *p, const zpr_call *call, int64_t i, int64_t j) {
  if (call->kind == ZPR_WHOLE) return true;
  if (call->kind == ZPR_REVERSED) return j >= i;
  if (call->kind == ZPR_TRIANGLE) return j <= i;
  return sees(p, call->at_query + i, call->at_key + j);
}

static void check_rank(const problem *p, int64_t me) {
  zpr_pairs x = {.a = &p->a, .ranks = p->ranks, .me = me, .rows = p->rows};
  int seen[MOST][MOST] = {{0}}, met[MOST] = {0};
  if (p->has_documents) x.documents = p->documents;
  if (p->has_pattern) x.pattern = p->pattern;
  for (int64_t n = 0; n < p->ranks; n++) {
    int64_t owner = (me + n) % p->ranks;
    zpr_call list[ZPR_MOST_CALLS];
    int calls = zpr_calls_by_pairs(&x, 0, owner, list);
    for (int c = 0; c < calls; c++) {
      const zpr_call *call = &list[c];
      int64_t half = call->query / p->rows;
      cr_assert_eq(call->at_query, zpr_stretch_number(&x, me, (int)half) * p->rows + call->query % p->rows);
      cr_assert_eq(call->at_key, zpr_stretch_number(&x, owner, call->half) * p->rows + call->key);
      cr_assert(call->query % p->rows + call->queries <= p->rows && call->key + call->keys <= p->rows);
      cr_assert(call->kind == ZPR_WHOLE || call->queries == call->keys);
      cr_assert(zpr_stretches_meet(&x, me, owner, call->half) || owner == me);
      for (int64_t i = 0; i < call->queries; i++) {
        cr_assert_eq(call->first, met[call->at_query + i]++ == 0);
        for (int64_t j = 0; j < call->keys; j++) seen[call->at_query + i][call->at_key + j] += call_sees(p, call, i, j);
      }
    }
  }
  for (int64_t q = 0; q < p->positions; q++) {
    bool mine = q / p->rows == me || q / p->rows == 2 * p->ranks - 1 - me;
    cr_assert_eq(met[q] > 0, mine);
    for (int64_t k = 0; k < p->positions; k++)
      cr_assert_eq(seen[q][k], mine && sees(p, q, k), "%d ranks of %d rows, window %d: query %d, key %d", (int)p->ranks,
                   (int)p->rows, (int)p->a.window, (int)q, (int)k);
  }
}

/* Documents of lengths that a small generator draws, and sometimes nothing at the end. */
static void cut_documents(problem *p, unsigned seed) {
  unsigned state = seed * 2654435761u + 1;
  int32_t number = 0;
  for (int64_t i = 0; i < p->positions; i++) {
    state = state * 1664525u + 1013904223u;
    if (state >> 28 < 2 + seed % 4) number++;
    p->documents[i] = seed % 3 == 0 && i + (int64_t)(seed % 5) >= p->positions ? -1 : number;
  }
  p->has_documents = true;
}

static void check_problem(const problem *p) {
  for (int64_t me = 0; me < p->ranks; me++) check_rank(p, me);
}

Test(rt_pairs, calls_are_what_attention_sees) {
  enum { DOCUMENTS = 12 };
  for (int64_t ranks = 2; ranks <= MOST_RANKS; ranks++)
    for (int64_t rows = 1; rows <= MOST_ROWS; rows++)
      for (int64_t window = 0; window < 4 * ranks * rows; window++) { /* the second half: both ways */
        problem p = {.ranks = ranks, .rows = rows, .positions = 2 * ranks * rows};
        p.a.causal = window < p.positions, p.a.window = window % p.positions;
        check_problem(&p);
        for (unsigned seed = 0; seed < DOCUMENTS; seed++) {
          cut_documents(&p, seed);
          check_problem(&p);
        }
      }
}

/* Which blocks of a pair are seen its layout says: calls are of whole stretches, where a pair has one. Every stretch
 * sees itself (zplan/sparse.h). */
Test(rt_pairs, patterns_have_calls_where_stretches_meet) {
  enum { DRAWN = 40 };
  static const zpk_layout some = {.block = 1};
  unsigned state = 1;
  for (int64_t ranks = 2; ranks <= MOST_RANKS; ranks++)
    for (int drawn = 0; drawn < DRAWN; drawn++) {
      problem p = {.ranks = ranks, .rows = 1 + drawn % MOST_ROWS, .has_pattern = true};
      int64_t all = 2 * ranks, calls = 0, pairs = 0;
      p.positions = all * p.rows, p.a.causal = drawn % 2 == 0;
      for (int64_t i = 0; i < all * all; i++) {
        int64_t query = i / all, key = i % all;
        state = state * 1664525u + 1013904223u;
        bool sees_it = query == key || ((!p.a.causal || query > key) && state >> 28 < (unsigned)drawn % 16);
        p.pattern[i] = sees_it ? &some : NULL;
        pairs += sees_it;
      }
      check_problem(&p);
      for (int64_t me = 0; me < ranks; me++)
        for (int64_t owner = 0; owner < ranks; owner++) {
          zpr_pairs x = {.a = &p.a, .ranks = ranks, .me = me, .rows = p.rows, .pattern = p.pattern};
          zpr_call list[ZPR_MOST_CALLS];
          calls += zpr_calls_by_pairs(&x, 0, owner, list);
          for (int half = 0; half < 2; half++) {
            bool met = false;
            for (int h = 0; h < 2; h++)
              met |= p.pattern[zpr_stretch_number(&x, me, h) * all + zpr_stretch_number(&x, owner, half)] != NULL;
            cr_assert_eq(zpr_stretches_meet(&x, me, owner, half), met);
          }
        }
      cr_assert_eq(calls, pairs);
    }
}
