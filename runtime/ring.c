/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of a context rank that meets the keys and values of the others one rank after the other (arXiv 2310.01889):
 * while it computes with those of one, those of the next are under way, and gradients go back to whom they belong.
 *
 * In round i of n - 1 rank r has what rank r - i sent it, and sends its own to rank r + i: as many bytes as if they
 * went round a ring from neighbour to neighbour, but what a rank does not see need not be sent. Stretches are those of
 * by_keys.c, number 2 n - 1 - r and then r of rank r: of the keys before it a rank sees the early ones with both of its
 * stretches, of those after it both with its late one. So ranks compute as much in every round, and a late stretch goes
 * to earlier ranks alone.
 *
 * Keys and values of a stretch stand in the same rows, side by side, late stretches of all samples before the early
 * ones. Results of rounds are merged by their log-sum-exps, and gradients summed in the order of the rounds, in
 * `real`. */
#include <assert.h>
#include "device.h"
#include "state.h"

enum { LATE, EARLY, HALVES, MOST_CALLS = 3 };
enum { KEYS, GRADIENTS }; /* what is under way */

typedef struct ring {
  zpr *c;
  const zpk_attention_args *a;
  int64_t ranks, me, rows;           /* of a stretch */
  int64_t queries, keys, elem, real; /* columns of queries; of keys, and as many of values; bytes of elements */
  char *own, *there[2];              /* keys and values of a rank: this one's, and of others by turns */
  char *sums, *part, *part_lse;      /* results, or gradients of queries: of all rounds, and what a call makes */
  char *made[2], *came, *key_sums;   /* backward: gradients of keys and values for others by turns, from them, all */
} ring;

/* Queries `query` .. of a sample and the keys of one half. */
typedef struct call {
  int64_t query, queries;
  int half;
  bool causal, first; /* first: these queries have met no keys before */
} call;

static int64_t aligned(int64_t bytes) { return (bytes + ZPR_MERGE_ALIGN - 1) / ZPR_MERGE_ALIGN * ZPR_MERGE_ALIGN; }

static char *take(char **at, int64_t bytes) {
  char *place = *at;
  *at += aligned(bytes);
  return place;
}

static int64_t half_rows(const ring *x) { return x->a->B * x->rows; }
static int64_t half_bytes(const ring *x) { return half_rows(x) * 2 * x->keys * x->elem; }

static ring ring_of(zpr *c, const zpk_attention_args *a, void *scratch, bool grad) {
  assert(a->S % 2 == 0 && !a->keys && !a->layout && !a->window && !a->lengths && !a->documents);
  ring x = {.c = c,
            .a = a,
            .ranks = zpr_context_ranks(c->program),
            .me = zpr_axis_group(c, ZPR_CONTEXT).me,
            .rows = a->S / 2,
            .queries = a->H * a->hd,
            .keys = a->G * a->hd,
            .elem = zpk_bytes(c->program->dtype),
            .real = zpk_real_bytes(c->program->dtype)};
  int64_t piece = HALVES * half_bytes(&x), all = HALVES * half_rows(&x);
  char *at = scratch;
  x.own = take(&at, piece);
  for (int i = 0; i < 2; i++) x.there[i] = take(&at, piece);
  x.sums = take(&at, all * x.queries * x.real);
  x.part = take(&at, a->S * x.queries * x.elem);
  if (!grad) {
    x.part_lse = take(&at, a->S * a->H * x.real);
    return x;
  }
  for (int i = 0; i < 2; i++) x.made[i] = take(&at, piece);
  x.came = take(&at, piece);
  x.key_sums = take(&at, all * 2 * x.keys * x.real);
  return x;
}

/* ---- who sees what ---- */

static int calls_of(const ring *x, int64_t owner, call *list) {
  int64_t n = x->rows;
  bool own = owner == x->me;
  if (!x->a->causal) {
    list[0] = (call){0, 2 * n, LATE, false, own};
    list[1] = (call){0, 2 * n, EARLY, false, false};
    return 2;
  }
  if (owner < x->me) {
    list[0] = (call){0, 2 * n, EARLY, false, false};
    return 1;
  }
  list[0] = (call){0, n, LATE, own, own};
  list[1] = (call){0, n, EARLY, false, false};
  list[2] = (call){n, n, EARLY, true, true};
  return own ? 3 : 2;
}

/* Which of two ranks' halves are sent: all, or the early ones, which stand last. */
static bool sends_late(const ring *x, int64_t owner, int64_t to) { return !x->a->causal || owner > to; }

static void half_of(const ring *x, bool late, char *piece, void **at, int64_t *bytes) {
  *at = piece + (late ? 0 : half_bytes(x));
  *bytes = (late ? HALVES : 1) * half_bytes(x);
}

static int64_t other(const ring *x, int64_t round, bool after) {
  return (x->me + (after ? round : x->ranks - round)) % x->ranks;
}

/* Own keys to the rank so many places after this one, its keys from the one before; and gradients the other way. */
static void start(const ring *x, int what, int64_t round, char *out, char *in) {
  int64_t to = other(x, round, what == KEYS), from = other(x, round, what != KEYS);
  int64_t owner_out = what == KEYS ? x->me : to, owner_in = what == KEYS ? from : x->me;
  zpr_transfer t = {.to = (int)to, .from = (int)from};
  void *send;
  half_of(x, sends_late(x, owner_out, what == KEYS ? to : x->me), out, &send, &t.out_bytes);
  half_of(x, sends_late(x, owner_in, what == KEYS ? x->me : from), in, &t.in, &t.in_bytes);
  t.out = send;
  zpr_transfer_start(x->c, what, &t);
}

/* ---- rows ---- */

static void merge(const ring *x, zpk_merge m) {
  if (m.rows > 0) zpr_merge_parts(x->c, &m);
}

static void *row_of(const ring *x, const void *at, int64_t row, int64_t ld) {
  return (char *)(uintptr_t)at + row * ld * x->elem;
}

/* Between keys and values of the rank, a sample after the other, and the piece that is sent. */
static void pack(const ring *x) {
  for (int64_t s = 0; s < HALVES * x->a->B; s++) {
    int64_t to = (s % HALVES * x->a->B + s / HALVES) * x->rows, ld = 2 * x->keys;
    zpk_merge m = {.rows = x->rows, .heads = 1, .hd = x->keys, .to_ld = ld, .set = 1};
    m.to = row_of(x, x->own, to, ld), m.from = row_of(x, x->a->k, s * x->rows, x->a->k_ld), m.from_ld = x->a->k_ld;
    merge(x, m);
    m.to = (char *)m.to + x->keys * x->elem;
    m.from = row_of(x, x->a->v, s * x->rows, x->a->v_ld), m.from_ld = x->a->v_ld;
    merge(x, m);
  }
}

static void unpack_gradients(const ring *x) {
  for (int64_t s = 0; s < HALVES * x->a->B; s++) {
    int64_t from = (s % HALVES * x->a->B + s / HALVES) * x->rows, ld = 2 * x->keys;
    zpk_merge m = {.rows = x->rows, .heads = 1, .hd = x->keys, .from_ld = ld, .set = 1, .from_wide = 1};
    m.from = x->key_sums + from * ld * x->real;
    m.to = row_of(x, x->a->dk, s * x->rows, x->a->dk_ld), m.to_ld = x->a->dk_ld;
    merge(x, m);
    m.from = (const char *)m.from + x->keys * x->real;
    m.to = row_of(x, x->a->dv, s * x->rows, x->a->dv_ld), m.to_ld = x->a->dv_ld;
    merge(x, m);
  }
}

/* All rounds' results, or gradients of queries. */
static void put_sums(const ring *x, void *to, int64_t to_ld) {
  merge(x, (zpk_merge){.to = to,
                       .from = x->sums,
                       .rows = HALVES * half_rows(x),
                       .heads = 1,
                       .hd = x->queries,
                       .to_ld = to_ld,
                       .from_ld = x->queries,
                       .from_wide = 1,
                       .set = 1});
}

/* What a call has made in `part` to the sums of its queries; with log-sum-exps, where it made results. */
static void add_part(const ring *x, int64_t row, const call *one, bool results) {
  zpk_merge m = {.to = x->sums + row * x->queries * x->real,
                 .from = x->part,
                 .rows = one->queries,
                 .heads = x->a->H,
                 .hd = x->a->hd,
                 .to_ld = x->queries,
                 .from_ld = x->queries,
                 .to_wide = 1,
                 .set = one->first};
  if (results && !one->first) m.lse = (char *)x->a->lse + row * x->a->H * x->real, m.from_lse = x->part_lse;
  merge(x, m);
}

/* ---- calls ---- */

static zpk_attention_args args_of(const ring *x, const call *one, int64_t row, char *piece, int64_t key) {
  zpk_attention_args args = *x->a;
  int64_t ld = 2 * x->keys;
  args.B = 1, args.S = one->queries;
  args.causal = one->causal, args.keys = one->causal ? 0 : x->rows;
  args.q = row_of(x, x->a->q, row, x->a->q_ld);
  args.k = row_of(x, piece, key, ld);
  args.v = (const char *)args.k + x->keys * x->elem;
  args.k_ld = args.v_ld = ld;
  args.lse = (char *)x->a->lse + row * x->a->H * x->real;
  return args;
}

static void meet(const ring *x, int64_t owner, char *piece) {
  call list[MOST_CALLS];
  int n = calls_of(x, owner, list);
  for (int64_t b = 0; b < x->a->B; b++)
    for (int i = 0; i < n; i++) {
      int64_t row = b * x->a->S + list[i].query;
      zpk_attention_args args = args_of(x, &list[i], row, piece, (list[i].half * x->a->B + b) * x->rows);
      args.o = x->part, args.o_ld = x->queries;
      if (!list[i].first) args.lse = x->part_lse;
      zpr_attention(x->c, &args);
      add_part(x, row, &list[i], true);
    }
}

/* Gradients of a piece: each half has one call of a sample, but the own early one, which both stretches see: what the
 * late one makes of it goes to `more`. */
static void meet_grad(const ring *x, int64_t owner, char *piece, char *made, char *more) {
  call list[MOST_CALLS];
  int n = calls_of(x, owner, list);
  for (int64_t b = 0; b < x->a->B; b++)
    for (int i = 0; i < n; i++) {
      int64_t row = b * x->a->S + list[i].query, key = (list[i].half * x->a->B + b) * x->rows, ld = 2 * x->keys;
      bool shared = more && x->a->causal && list[i].half == EARLY && !list[i].causal;
      zpk_attention_args args = args_of(x, &list[i], row, piece, key);
      args.o = row_of(x, x->a->o, row, x->a->o_ld);
      args.d_o = row_of(x, x->a->d_o, row, x->a->d_o_ld);
      args.dq = x->part, args.dq_ld = x->queries;
      args.dk = row_of(x, shared ? more : made, key, ld), args.dk_ld = ld;
      args.dv = (char *)args.dk + x->keys * x->elem, args.dv_ld = ld;
      zpr_attention_grad(x->c, &args);
      add_part(x, row, &list[i], false);
    }
}

/* Adds gradients of own keys and values: of both halves, or of the early one. */
static void add_gradients(const ring *x, bool late, char *from, bool set) {
  int64_t first = late ? 0 : half_rows(x), cols = 2 * x->keys;
  merge(x, (zpk_merge){.to = x->key_sums + first * cols * x->real,
                       .from = row_of(x, from, first, cols),
                       .rows = HALVES * half_rows(x) - first,
                       .heads = 1,
                       .hd = cols,
                       .to_ld = cols,
                       .from_ld = cols,
                       .to_wide = 1,
                       .set = set});
}

/* ---- rounds ---- */

void zpr_attention_ring(zpr *c, const zpk_attention_args *a, void *scratch) {
  ring x = ring_of(c, a, scratch, false);
  pack(&x);
  for (int64_t round = 0; round < x.ranks; round++) {
    bool more = round + 1 < x.ranks;
    if (more) start(&x, KEYS, round + 1, x.own, x.there[(round + 1) % 2]);
    meet(&x, other(&x, round, false), round == 0 ? x.own : x.there[round % 2]);
    if (more) zpr_transfer_wait(c, KEYS);
  }
  put_sums(&x, a->o, a->o_ld);
}

/* Gradients of round i come back while round i + 1 is computed. */
void zpr_attention_ring_grad(zpr *c, const zpk_attention_args *a, void *scratch) {
  ring x = ring_of(c, a, scratch, true);
  pack(&x);
  for (int64_t round = 0; round < x.ranks; round++) {
    bool more = round + 1 < x.ranks;
    char *made = x.made[round % 2];
    if (more) start(&x, KEYS, round + 1, x.own, x.there[(round + 1) % 2]);
    meet_grad(&x, other(&x, round, false), round == 0 ? x.own : x.there[round % 2], made,
              round == 0 ? x.made[1] : NULL);
    if (round == 0) {
      add_gradients(&x, true, made, true);
      if (a->causal) add_gradients(&x, false, x.made[1], false);
    }
    if (more) zpr_transfer_wait(c, KEYS);
    if (round > 1) {
      zpr_transfer_wait(c, GRADIENTS);
      add_gradients(&x, sends_late(&x, x.me, other(&x, round - 1, true)), x.came, false);
    }
    if (round > 0) start(&x, GRADIENTS, round, made, x.came);
  }
  zpr_transfer_wait(c, GRADIENTS);
  add_gradients(&x, sends_late(&x, x.me, other(&x, x.ranks - 1, true)), x.came, false);
  unpack_gradients(&x);
  put_sums(&x, a->dq, a->dq_ld);
}
