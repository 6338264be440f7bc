/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of a context rank that meets the keys and values of the others one rank after the other (arXiv 2310.01889):
 * while it computes with those of one, those of the next are under way, and gradients go back to whom they belong.
 *
 * In round i of n - 1 rank r has what rank r - i sent it, and sends its own to rank r + i: as many bytes as if they
 * went round a ring from neighbour to neighbour, but what a rank does not see need not be sent. Stretches are those of
 * by_keys.c, number 2 n - 1 - r and then r of rank r: of the keys before it a rank sees the early ones with both of its
 * stretches, of those after it both with its late one. So ranks compute as much in every round, and a late stretch goes
 * to earlier ranks alone. In a window some halves are seen by nobody in a round, which neither computes with them nor
 * gets them.
 *
 * Keys and values of a stretch stand in the same rows, side by side, late stretches of all samples before the early
 * ones. Results of calls are added up by pairs.c, gradients of keys in the order of the rounds, in `real`. */
#include <assert.h>
#include "device.h"
#include "pairs.h"
#include "state.h"

enum { KEYS, GRADIENTS }; /* what is under way */

typedef struct ring {
  zpr_pairs p;
  bool by_pairs;                   /* every pair of stretches has calls of its own */
  char *own, *there[2];            /* keys and values of a rank: this one's, and of others by turns */
  char *made[2], *came, *key_sums; /* backward: gradients of keys and values for others by turns, from them, all */
} ring;

static int64_t half_rows(const ring *x) { return x->p.a->B * x->p.rows; }
static int64_t half_bytes(const ring *x) { return half_rows(x) * 2 * x->p.keys * x->p.elem; }

static ring ring_of(zpr *c, const zpk_attention_args *a, const zpr_pattern *pattern, void *scratch, bool grad) {
  assert(!a->keys);
  ring x = {.p = zpr_pairs_of(c, a, pattern), .by_pairs = zpr_goes_by_pairs(a, pattern)};
  int64_t piece = ZPR_HALVES * half_bytes(&x), all = ZPR_HALVES * half_rows(&x);
  char *at = scratch;
  x.own = zpr_take_scratch(&at, piece);
  for (int i = 0; i < 2; i++) x.there[i] = zpr_take_scratch(&at, piece);
  x.p.sums = zpr_take_scratch(&at, all * x.p.queries * x.p.real);
  x.p.part = zpr_take_scratch(&at, a->S * x.p.queries * x.p.elem);
  if (!grad) x.p.part_lse = zpr_take_scratch(&at, a->S * a->H * x.p.real);
  for (int i = 0; i < 2 && grad; i++) x.made[i] = zpr_take_scratch(&at, piece);
  if (grad) {
    x.came = zpr_take_scratch(&at, piece);
    x.key_sums = zpr_take_scratch(&at, all * 2 * x.p.keys * x.p.real);
  }
  zpr_take_call_scratch(&x.p, &at, grad);
  return x;
}

/* ---- who sees what ---- */

/* Where kernels need not know positions, both stretches of queries are one call, or both of keys have one each. */
static int calls_of(const ring *x, int64_t b, int64_t owner, zpr_call *list) {
  int64_t n = x->p.rows;
  bool own = owner == x->p.me;
  if (x->by_pairs) return zpr_calls_by_pairs(&x->p, b, owner, list);
  if (!x->p.a->causal) {
    list[0] = (zpr_call){.queries = 2 * n, .half = ZPR_LATE, .keys = n, .first = own};
    list[1] = (zpr_call){.queries = 2 * n, .half = ZPR_EARLY, .keys = n};
    return 2;
  }
  if (owner < x->p.me) {
    list[0] = (zpr_call){.queries = 2 * n, .half = ZPR_EARLY, .keys = n};
    return 1;
  }
  list[0] = (zpr_call){.queries = n, .half = ZPR_LATE, .keys = n, .kind = own ? ZPR_OWN : ZPR_WHOLE, .first = own};
  list[1] = (zpr_call){.queries = n, .half = ZPR_EARLY, .keys = n};
  list[2] = (zpr_call){.query = n, .queries = n, .half = ZPR_EARLY, .keys = n, .kind = ZPR_OWN, .first = true};
  return own ? 3 : 2;
}

/* Halves of a piece that are sent, late ones first: where they begin among its rows, and how many there are. */
typedef struct halves {
  int64_t first, rows;
} halves;

static halves sent(const ring *x, int64_t owner, int64_t to) {
  bool late = zpr_stretches_meet(&x->p, to, owner, ZPR_LATE), early = zpr_stretches_meet(&x->p, to, owner, ZPR_EARLY);
  return (halves){late ? 0 : half_rows(x), (late + early) * half_rows(x)};
}

static int64_t other(const ring *x, int64_t round, bool after) {
  return (x->p.me + (after ? round : x->p.ranks - round)) % x->p.ranks;
}

/* Own keys to the rank so many places after this one, its keys from the one before; and gradients the other way. */
static void start(const ring *x, int what, int64_t round, char *out, char *in) {
  int64_t me = x->p.me, to = other(x, round, what == KEYS), from = other(x, round, what != KEYS);
  int64_t row = 2 * x->p.keys * x->p.elem;
  halves leave = what == KEYS ? sent(x, me, to) : sent(x, to, me);
  halves come = what == KEYS ? sent(x, from, me) : sent(x, me, from);
  zpr_transfer t = {.to = (int)to, .from = (int)from, .out = out + leave.first * row, .in = in + come.first * row};
  t.out_bytes = leave.rows * row, t.in_bytes = come.rows * row;
  zpr_transfer_start(x->p.c, what, &t);
}

/* ---- rows ---- */

/* Between keys and values of the rank, a sample after the other, and the piece that is sent. */
static void pack(const ring *x) {
  const zpr_pairs *p = &x->p;
  for (int64_t s = 0; s < ZPR_HALVES * p->a->B; s++) {
    int64_t to = (s % ZPR_HALVES * p->a->B + s / ZPR_HALVES) * p->rows, ld = 2 * p->keys;
    zpk_merge m = {.rows = p->rows, .heads = 1, .hd = p->keys, .to_ld = ld, .set = 1};
    m.to = zpr_row_of(p, x->own, to, ld), m.from = zpr_row_of(p, p->a->k, s * p->rows, p->a->k_ld);
    m.from_ld = p->a->k_ld;
    zpr_merge_rows(p, m);
    m.to = (char *)m.to + p->keys * p->elem;
    m.from = zpr_row_of(p, p->a->v, s * p->rows, p->a->v_ld), m.from_ld = p->a->v_ld;
    zpr_merge_rows(p, m);
  }
}

static void unpack_gradients(const ring *x) {
  const zpr_pairs *p = &x->p;
  for (int64_t s = 0; s < ZPR_HALVES * p->a->B; s++) {
    int64_t from = (s % ZPR_HALVES * p->a->B + s / ZPR_HALVES) * p->rows, ld = 2 * p->keys;
    zpk_merge m = {.rows = p->rows, .heads = 1, .hd = p->keys, .from_ld = ld, .set = 1, .from_wide = 1};
    m.from = x->key_sums + from * ld * p->real;
    m.to = zpr_row_of(p, p->a->dk, s * p->rows, p->a->dk_ld), m.to_ld = p->a->dk_ld;
    zpr_merge_rows(p, m);
    m.from = (const char *)m.from + p->keys * p->real;
    m.to = zpr_row_of(p, p->a->dv, s * p->rows, p->a->dv_ld), m.to_ld = p->a->dv_ld;
    zpr_merge_rows(p, m);
  }
}

/* ---- calls ---- */

static zpr_key_rows keys_of(const ring *x, const zpr_call *call, int64_t b, char *piece, char *made) {
  int64_t row = (call->half * x->p.a->B + b) * x->p.rows + call->key, ld = 2 * x->p.keys;
  zpr_key_rows keys = {.k = zpr_row_of(&x->p, piece, row, ld), .ld = ld, .d_ld = ld};
  keys.v = keys.k + x->p.keys * x->p.elem;
  if (made) keys.dk = zpr_row_of(&x->p, made, row, ld), keys.dv = keys.dk + x->p.keys * x->p.elem;
  return keys;
}

static void meet(const ring *x, int64_t owner, char *piece) {
  for (int64_t b = 0; b < x->p.a->B; b++) {
    zpr_call list[ZPR_MOST_CALLS];
    int n = calls_of(x, b, owner, list);
    for (int i = 0; i < n; i++) {
      zpr_key_rows keys = keys_of(x, &list[i], b, piece, NULL);
      zpr_meet(&x->p, &list[i], b, b * x->p.a->S + list[i].query, &keys);
    }
  }
}

/* Gradients of a piece. With one call for both stretches of queries each half has one call of a sample, but the own
 * early one, which both stretches see: what the late one makes of it goes to `more`. */
static void meet_grad(const ring *x, int64_t owner, char *piece, char *made, char *more) {
  if (x->by_pairs) zpr_zero(x->p.c, made, ZPR_HALVES * half_bytes(x));
  for (int64_t b = 0; b < x->p.a->B; b++) {
    zpr_call list[ZPR_MOST_CALLS];
    int n = calls_of(x, b, owner, list);
    for (int i = 0; i < n; i++) {
      bool shared = more && x->p.a->causal && list[i].half == ZPR_EARLY && list[i].kind == ZPR_WHOLE;
      zpr_key_rows keys = keys_of(x, &list[i], b, piece, shared && !x->by_pairs ? more : made);
      zpr_meet_grad(&x->p, &list[i], b, b * x->p.a->S + list[i].query, &keys, !x->by_pairs);
    }
  }
}

/* Adds gradients of own keys and values, of all or of some halves. */
static void add_gradients(const ring *x, halves of, char *from, bool set) {
  int64_t cols = 2 * x->p.keys;
  zpr_merge_rows(&x->p, (zpk_merge){.to = x->key_sums + of.first * cols * x->p.real,
                                    .from = zpr_row_of(&x->p, from, of.first, cols),
                                    .rows = of.rows,
                                    .heads = 1,
                                    .hd = cols,
                                    .to_ld = cols,
                                    .from_ld = cols,
                                    .to_wide = 1,
                                    .set = set});
}

/* ---- rounds ---- */

void zpr_attention_ring(zpr *c, const zpk_attention_args *a, const zpr_pattern *pattern, void *scratch) {
  ring x = ring_of(c, a, pattern, scratch, false);
  pack(&x);
  for (int64_t round = 0; round < x.p.ranks; round++) {
    bool more = round + 1 < x.p.ranks;
    if (more) start(&x, KEYS, round + 1, x.own, x.there[(round + 1) % 2]);
    meet(&x, other(&x, round, false), round == 0 ? x.own : x.there[round % 2]);
    if (more) zpr_transfer_wait(c, KEYS);
  }
  zpr_put_sums(&x.p, ZPR_HALVES * half_rows(&x), a->o, a->o_ld);
}

/* Gradients of round i come back while round i + 1 is computed. */
void zpr_attention_ring_grad(zpr *c, const zpk_attention_args *a, const zpr_pattern *pattern, void *scratch) {
  ring x = ring_of(c, a, pattern, scratch, true);
  pack(&x);
  for (int64_t round = 0; round < x.p.ranks; round++) {
    bool more = round + 1 < x.p.ranks;
    char *made = x.made[round % 2];
    if (more) start(&x, KEYS, round + 1, x.own, x.there[(round + 1) % 2]);
    meet_grad(&x, other(&x, round, false), round == 0 ? x.own : x.there[round % 2], made,
              round == 0 ? x.made[1] : NULL);
    if (round == 0) {
      add_gradients(&x, (halves){0, ZPR_HALVES * half_rows(&x)}, made, true);
      if (a->causal && !x.by_pairs) add_gradients(&x, (halves){half_rows(&x), half_rows(&x)}, x.made[1], false);
    }
    if (more) zpr_transfer_wait(c, KEYS);
    if (round > 1) {
      zpr_transfer_wait(c, GRADIENTS);
      add_gradients(&x, sent(&x, x.p.me, other(&x, round - 1, true)), x.came, false);
    }
    if (round > 0) start(&x, GRADIENTS, round, made, x.came);
  }
  zpr_transfer_wait(c, GRADIENTS);
  add_gradients(&x, sent(&x, x.p.me, other(&x, x.p.ranks - 1, true)), x.came, false);
  unpack_gradients(&x);
  zpr_put_sums(&x.p, ZPR_HALVES * half_rows(&x), a->dq, a->dq_ld);
}
