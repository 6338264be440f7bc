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
 * `real`.
 *
 * In a window some halves are seen by nobody in a round, which neither computes with them nor gets them. What a stretch
 * sees of one before it is a rectangle and a triangle, whose corner is the last key of the first query: causal
 * attention when both stand in the opposite order. So kernels know nothing of stretches. */
#include <assert.h>
#include "device.h"
#include "state.h"

enum { LATE, EARLY, HALVES, MOST_CALLS = 9 };
enum { KEYS, GRADIENTS }; /* what is under way */

typedef struct ring {
  zpr *c;
  const zpk_attention_args *a;
  int64_t ranks, me, rows;           /* of a stretch */
  int64_t queries, keys, elem, real; /* columns of queries; of keys, and as many of values; bytes of elements */
  char *own, *there[2];              /* keys and values of a rank: this one's, and of others by turns */
  char *sums, *part, *part_lse;      /* results, or gradients of queries: of all rounds, and what a call makes */
  char *made[2], *came, *key_sums;   /* backward: gradients of keys and values for others by turns, from them, all */
  /* With a window: rows of a call in the opposite order, and gradients of keys of a call. */
  char *turned_q, *turned_o, *turned_do, *turned_keys, *turned_lse, *key_part;
} ring;

/* Queries `query` .. of a sample and keys `key` .. of one half. All of these; or causal ones, a query as many as its
 * number and itself; or REVERSED, a query its own number and those after it: causal in the opposite order. */
typedef struct call {
  int64_t query, queries;
  int half;
  int64_t key, keys;
  enum { WHOLE, CAUSAL, REVERSED } kind;
  bool first; /* these queries have met no keys before */
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
  assert(a->S % 2 == 0 && !a->keys && !a->layout && (a->causal || !a->window) && !a->lengths && !a->documents);
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
  if (!grad) x.part_lse = take(&at, a->S * a->H * x.real);
  for (int i = 0; i < 2 && grad; i++) x.made[i] = take(&at, piece);
  if (grad) x.came = take(&at, piece), x.key_sums = take(&at, all * 2 * x.keys * x.real);
  if (a->window) {
    x.turned_q = take(&at, x.rows * x.queries * x.elem);
    x.turned_keys = take(&at, x.rows * 2 * x.keys * x.elem);
    x.turned_lse = take(&at, x.rows * a->H * x.real);
  }
  if (a->window && grad) {
    x.turned_o = take(&at, x.rows * x.queries * x.elem);
    x.turned_do = take(&at, x.rows * x.queries * x.elem);
    x.key_part = take(&at, x.rows * 2 * x.keys * x.elem);
  }
  return x;
}

/* ---- who sees what ---- */

/* Which of the 2 n stretches of a sample a half is. */
static int64_t stretch_of(const ring *x, int64_t rank, int half) {
  return half == LATE ? 2 * x->ranks - 1 - rank : rank;
}

/* Queries of stretch s see keys of stretch t at distances below `reach` of the first query from the first key, where
 * all of them are before it: rows from reach on miss the first keys, one more each. A triangle is left of these, and
 * the rectangle after it. */
static int window_calls(const ring *x, int64_t query, int half, int64_t reach, call *list) {
  int64_t n = x->rows, whole = reach > 0 ? (reach < n ? reach : n) : 0, turned = reach > 0 ? n - whole : n - 1 + reach;
  int calls = 0;
  if (whole > 0) list[calls++] = (call){query, whole, half, 0, n, WHOLE, false};
  if (turned <= 0) return calls;
  int64_t key = reach > 0 ? 1 : 1 - reach;
  list[calls++] = (call){query + whole, turned, half, key, turned, REVERSED, false};
  if (key + turned < n)
    list[calls++] = (call){query + whole, turned, half, key + turned, n - key - turned, WHOLE, false};
  return calls;
}

static int calls_in_window(const ring *x, int64_t owner, call *list) {
  int calls = 0;
  for (int h = LATE; h < HALVES; h++)
    for (int g = LATE; g < HALVES; g++) {
      int64_t away = stretch_of(x, x->me, h) - stretch_of(x, owner, g), n = x->rows;
      if (away == 0) list[calls++] = (call){h * n, n, g, 0, n, CAUSAL, true};
      if (away > 0) calls += window_calls(x, h * n, g, x->a->window - away * n, list + calls);
    }
  return calls;
}

static int calls_of(const ring *x, int64_t owner, call *list) {
  int64_t n = x->rows;
  bool own = owner == x->me;
  if (x->a->window) return calls_in_window(x, owner, list);
  if (!x->a->causal) {
    list[0] = (call){0, 2 * n, LATE, 0, n, WHOLE, own};
    list[1] = (call){0, 2 * n, EARLY, 0, n, WHOLE, false};
    return 2;
  }
  if (owner < x->me) {
    list[0] = (call){0, 2 * n, EARLY, 0, n, WHOLE, false};
    return 1;
  }
  list[0] = (call){0, n, LATE, 0, n, own ? CAUSAL : WHOLE, own};
  list[1] = (call){0, n, EARLY, 0, n, WHOLE, false};
  list[2] = (call){n, n, EARLY, 0, n, CAUSAL, true};
  return own ? 3 : 2;
}

/* Does some stretch of a rank see this half of another one's keys? */
static bool sees(const ring *x, int64_t rank, int64_t owner, int half) {
  bool seen = !x->a->causal;
  for (int h = LATE; h < HALVES; h++) {
    int64_t away = stretch_of(x, rank, h) - stretch_of(x, owner, half);
    seen |= away > 0 && (!x->a->window || x->a->window - away * x->rows > 1 - x->rows);
  }
  return seen;
}

/* Halves of a piece that are sent, late ones first: where they begin among its rows, and how many there are. */
typedef struct halves {
  int64_t first, rows;
} halves;

static halves sent(const ring *x, int64_t owner, int64_t to) {
  bool late = sees(x, to, owner, LATE), early = sees(x, to, owner, EARLY);
  return (halves){late ? 0 : half_rows(x), (late + early) * half_rows(x)};
}

static int64_t other(const ring *x, int64_t round, bool after) {
  return (x->me + (after ? round : x->ranks - round)) % x->ranks;
}

/* Own keys to the rank so many places after this one, its keys from the one before; and gradients the other way. */
static void start(const ring *x, int what, int64_t round, char *out, char *in) {
  int64_t to = other(x, round, what == KEYS), from = other(x, round, what != KEYS), row = 2 * x->keys * x->elem;
  halves leave = what == KEYS ? sent(x, x->me, to) : sent(x, to, x->me);
  halves come = what == KEYS ? sent(x, from, x->me) : sent(x, x->me, from);
  zpr_transfer t = {.to = (int)to, .from = (int)from, .out = out + leave.first * row, .in = in + come.first * row};
  t.out_bytes = leave.rows * row, t.in_bytes = come.rows * row;
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

/* Copies rows in the opposite order; wide: of `real`. */
static void turn(const ring *x, char *to, const void *from, int64_t from_ld, int64_t rows, int64_t cols, bool wide) {
  merge(x, (zpk_merge){.to = to + (rows - 1) * cols * (wide ? x->real : x->elem),
                       .from = from,
                       .rows = rows,
                       .heads = 1,
                       .hd = cols,
                       .to_ld = -cols,
                       .from_ld = from_ld,
                       .to_wide = wide,
                       .from_wide = wide,
                       .set = 1});
}

/* What a call has made in `part` to the sums of its queries; with log-sum-exps, where it made results. */
static void add_part(const ring *x, int64_t row, const call *one, bool results) {
  bool turned = one->kind == REVERSED;
  zpk_merge m = {.to = x->sums + row * x->queries * x->real,
                 .from = row_of(x, x->part, turned ? one->queries - 1 : 0, x->queries),
                 .rows = one->queries,
                 .heads = x->a->H,
                 .hd = x->a->hd,
                 .to_ld = x->queries,
                 .from_ld = turned ? -x->queries : x->queries,
                 .to_wide = 1,
                 .set = one->first};
  if (results && turned) turn(x, x->turned_lse, x->part_lse, x->a->H, one->queries, x->a->H, true);
  if (results && !one->first)
    m.lse = (char *)x->a->lse + row * x->a->H * x->real, m.from_lse = turned ? x->turned_lse : x->part_lse;
  merge(x, m);
}

/* ---- calls ---- */

static zpk_attention_args args_of(const ring *x, const call *one, int64_t row, char *piece, int64_t key) {
  zpk_attention_args args = *x->a;
  int64_t ld = 2 * x->keys;
  bool turned = one->kind == REVERSED;
  args.B = 1, args.S = one->queries;
  args.causal = one->kind != WHOLE, args.keys = one->kind == WHOLE ? one->keys : 0;
  args.window = one->kind == CAUSAL && x->a->window < x->rows ? x->a->window : 0;
  args.q = row_of(x, x->a->q, row, x->a->q_ld);
  args.k = row_of(x, piece, key, ld);
  if (turned) {
    turn(x, x->turned_q, args.q, args.q_ld, one->queries, x->queries, false);
    turn(x, x->turned_keys, args.k, ld, one->keys, ld, false);
    args.q = x->turned_q, args.q_ld = x->queries, args.k = x->turned_keys;
  }
  args.v = (const char *)args.k + x->keys * x->elem;
  args.k_ld = args.v_ld = ld;
  args.lse = (char *)x->a->lse + row * x->a->H * x->real;
  return args;
}

static int64_t key_row(const ring *x, const call *one, int64_t b) {
  return (one->half * x->a->B + b) * x->rows + one->key;
}

static void meet(const ring *x, int64_t owner, char *piece) {
  call list[MOST_CALLS];
  int n = calls_of(x, owner, list);
  for (int64_t b = 0; b < x->a->B; b++)
    for (int i = 0; i < n; i++) {
      int64_t row = b * x->a->S + list[i].query;
      zpk_attention_args args = args_of(x, &list[i], row, piece, key_row(x, &list[i], b));
      args.o = x->part, args.o_ld = x->queries;
      if (!list[i].first) args.lse = x->part_lse;
      zpr_attention(x->c, &args);
      add_part(x, row, &list[i], true);
    }
}

/* Results of the call's queries and their gradients, in its order. */
static void take_results(const ring *x, const call *one, int64_t row, zpk_attention_args *args) {
  args->o = row_of(x, x->a->o, row, x->a->o_ld);
  args->d_o = row_of(x, x->a->d_o, row, x->a->d_o_ld);
  if (one->kind != REVERSED) return;
  turn(x, x->turned_o, args->o, args->o_ld, one->queries, x->queries, false);
  turn(x, x->turned_do, args->d_o, args->d_o_ld, one->queries, x->queries, false);
  turn(x, x->turned_lse, args->lse, x->a->H, one->queries, x->a->H, true);
  args->o = x->turned_o, args->d_o = x->turned_do, args->lse = x->turned_lse;
  args->o_ld = args->d_o_ld = x->queries;
}

/* In a window keys have several calls. */
static void add_key_part(const ring *x, const call *one, char *made, int64_t key) {
  int64_t cols = 2 * x->keys;
  bool turned = one->kind == REVERSED;
  merge(x, (zpk_merge){.to = row_of(x, made, key, cols),
                       .from = row_of(x, x->key_part, turned ? one->keys - 1 : 0, cols),
                       .rows = one->keys,
                       .heads = 1,
                       .hd = cols,
                       .to_ld = cols,
                       .from_ld = turned ? -cols : cols});
}

/* Gradients of a piece. Without a window each half has one call of a sample, but the own early one, which both
 * stretches see: what the late one makes of it goes to `more`. */
static void meet_grad(const ring *x, int64_t owner, char *piece, char *made, char *more) {
  call list[MOST_CALLS];
  int n = calls_of(x, owner, list);
  if (x->a->window && n > 0) zpr_zero(x->c, made, HALVES * half_bytes(x));
  for (int64_t b = 0; b < x->a->B; b++)
    for (int i = 0; i < n; i++) {
      int64_t row = b * x->a->S + list[i].query, key = key_row(x, &list[i], b), ld = 2 * x->keys;
      bool shared = more && x->a->causal && list[i].half == EARLY && list[i].kind == WHOLE;
      zpk_attention_args args = args_of(x, &list[i], row, piece, key);
      take_results(x, &list[i], row, &args);
      args.dq = x->part, args.dq_ld = x->queries;
      args.dk = x->a->window ? x->key_part : row_of(x, shared ? more : made, key, ld), args.dk_ld = ld;
      args.dv = (char *)args.dk + x->keys * x->elem, args.dv_ld = ld;
      zpr_attention_grad(x->c, &args);
      add_part(x, row, &list[i], false);
      if (x->a->window) add_key_part(x, &list[i], made, key);
    }
}

/* Adds gradients of own keys and values, of all or of some halves. */
static void add_gradients(const ring *x, halves of, char *from, bool set) {
  int64_t cols = 2 * x->keys;
  merge(x, (zpk_merge){.to = x->key_sums + of.first * cols * x->real,
                       .from = row_of(x, from, of.first, cols),
                       .rows = of.rows,
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
      add_gradients(&x, (halves){0, HALVES * half_rows(&x)}, made, true);
      if (a->causal && !a->window) add_gradients(&x, (halves){half_rows(&x), half_rows(&x)}, x.made[1], false);
    }
    if (more) zpr_transfer_wait(c, KEYS);
    if (round > 1) {
      zpr_transfer_wait(c, GRADIENTS);
      add_gradients(&x, sent(&x, x.me, other(&x, round - 1, true)), x.came, false);
    }
    if (round > 0) start(&x, GRADIENTS, round, made, x.came);
  }
  zpr_transfer_wait(c, GRADIENTS);
  add_gradients(&x, sent(&x, x.me, other(&x, x.ranks - 1, true)), x.came, false);
  unpack_gradients(&x);
  put_sums(&x, a->dq, a->dq_ld);
}
