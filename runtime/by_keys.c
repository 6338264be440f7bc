/* SPDX-License-Identifier: Apache-2.0 */
/* A context rank that has keys and values of all positions. Of 2 n equal stretches of a sample, rank r of n has number
 * 2 n - 1 - r, then r: together as much of causal attention as every rank. Gathered keys stand in the order of the
 * ranks' first stretches, then of their second ones: 2 n - 1 ... n, then 0 ... n - 1. So what comes before a stretch is
 * one piece: seen whole, while the stretch's own keys are seen causally; the results of both are merged. In windows and
 * patterns, with dropout and of documents pairs of stretches have calls (pairs.c), what is not seen has none. */
#include <assert.h>
#include "pairs.h"
#include "state.h"

typedef struct halves {
  int64_t ranks, me, rows; /* of a stretch */
} halves;

static halves halves_of(const zpr *c, int64_t positions) {
  assert(positions % 2 == 0);
  return (halves){zpr_context_ranks(c->program), zpr_positions_part(c, 1), positions / 2};
}

/* ---- rows ---- */

enum { MOST_OPERANDS = 32 };

static void move_operands(const zpr *c, int64_t row, int n, const void *const *from, const int64_t *step,
                          const void **to) {
  assert(n <= MOST_OPERANDS);
  for (int i = 0; i < n; i++) to[i] = (const char *)from[i] + row * step[i] * zpk_bytes(c->program->dtype);
}

void zpr_rows_by_keys(zpr *c, const zpr_rows_call *call, int64_t samples, int64_t shares) {
  assert(call->n_sums == 0 && call->rows % samples == 0 && (shares == 1 || shares == c->program->tensor));
  int64_t rows = call->rows / samples, begin = shares > 1 ? c->t * rows : 0;
  halves x = halves_of(c, rows * shares);
  const void *in[MOST_OPERANDS], *out[MOST_OPERANDS];
  zpr_rows_call stretch = *call;
  stretch.in = in, stretch.out = (void *const *)(void *)out;
  for (int64_t s = 0; s < 2 * samples; s++) { /* rows from .. to - 1 of the rank's positions are of this half */
    int64_t half = s % 2 * x.rows, from = half > begin ? half : begin;
    int64_t to = half + x.rows < begin + rows ? half + x.rows : begin + rows;
    if (from >= to) continue;
    stretch.rows = to - from;
    stretch.first = zpr_positions_part(c, (int)(s % 2)) * x.rows + from - half;
    stretch.first_sample = call->first_sample + s / 2;
    int64_t row = s / 2 * rows + from - begin - stretch.first;
    move_operands(c, row, call->n_in, call->in, call->in_step, in);
    move_operands(c, row, call->n_out, (const void *const *)call->out, call->out_ld, out);
    zpr_rows(c, &stretch);
  }
}

/* ---- attention ---- */

/* A stretch of queries, and keys: rows among those of all samples. */
typedef struct pair {
  int64_t query, key, keys;
  bool own; /* the queries' own keys */
} pair;

static void *moved(const zpr *c, const void *x, int64_t row, int64_t ld) {
  return x ? (char *)(uintptr_t)x + row * ld * zpk_bytes(c->program->dtype) : NULL;
}

static void *moved_lse(const zpr *c, const zpk_attention_args *a, int64_t row) {
  return (char *)a->lse + row * a->H * zpk_real_bytes(c->program->dtype);
}

static zpk_attention_args args_of(const zpr *c, const zpk_attention_args *a, const halves *x, pair p) {
  zpk_attention_args one = *a;
  one.B = 1, one.S = x->rows;
  one.causal = p.own, one.keys = p.own ? 0 : p.keys;
  one.q = moved(c, a->q, p.query, a->q_ld);
  one.k = moved(c, a->k, p.key, a->k_ld);
  one.v = moved(c, a->v, p.key, a->v_ld);
  one.o = moved(c, a->o, p.query, a->o_ld);
  one.lse = moved_lse(c, a, p.query);
  one.d_o = moved(c, a->d_o, p.query, a->d_o_ld);
  one.dq = moved(c, a->dq, p.query, a->dq_ld);
  one.dk = moved(c, a->dk, p.key, a->dk_ld);
  one.dv = moved(c, a->dv, p.key, a->dv_ld);
  return one;
}

/* What half h of sample b sees: its own keys, and those before it. */
static pair own_keys(const halves *x, int64_t b, int h) {
  int64_t at = h == 0 ? x->me : x->ranks + x->me;
  return (pair){(2 * b + h) * x->rows, (2 * b * x->ranks + at) * x->rows, x->rows, true};
}

static pair keys_before(const halves *x, int64_t b, int h) {
  int64_t at = h == 0 ? x->me + 1 : x->ranks, n = h == 0 ? 2 * x->ranks - 1 - x->me : x->me;
  return (pair){(2 * b + h) * x->rows, (2 * b * x->ranks + at) * x->rows, n * x->rows, false};
}

/* ---- by pairs of stretches ---- */

/* Sums are of one sample's queries. */
static zpr_pairs pairs_of(zpr *c, const zpk_attention_args *a, const zpr_pattern *pattern, char *scratch, bool grad) {
  assert(a->k_ld == a->v_ld);
  zpr_pairs x = zpr_pairs_of(c, a, pattern);
  x.sums = zpr_take_scratch(&scratch, a->S * x.queries * x.real);
  x.part = zpr_take_scratch(&scratch, x.rows * x.queries * x.elem);
  if (!grad) x.part_lse = zpr_take_scratch(&scratch, x.rows * a->H * x.real);
  zpr_take_call_scratch(&x, &scratch, grad);
  return x;
}

static zpr_key_rows gathered(const zpr_pairs *x, const zpr_call *call, int64_t owner, int64_t b) {
  const zpk_attention_args *a = x->a;
  int64_t row = (2 * b * x->ranks + call->half * x->ranks + owner) * x->rows + call->key;
  return (zpr_key_rows){.k = zpr_row_of(x, a->k, row, a->k_ld),
                        .v = zpr_row_of(x, a->v, row, a->v_ld),
                        .ld = a->k_ld,
                        .dk = a->dk ? zpr_row_of(x, a->dk, row, a->dk_ld) : NULL,
                        .dv = a->dv ? zpr_row_of(x, a->dv, row, a->dv_ld) : NULL,
                        .d_ld = a->dk_ld};
}

static void pairs_of_sample(const zpr_pairs *x, int64_t b, bool grad) {
  for (int64_t i = 0; i < x->ranks; i++) {
    int64_t owner = (x->me + i) % x->ranks;
    zpr_call list[ZPR_MOST_CALLS];
    int n = zpr_calls_by_pairs(x, b, owner, list);
    for (int j = 0; j < n; j++) {
      zpr_key_rows keys = gathered(x, &list[j], owner, b);
      if (grad)
        zpr_meet_grad(x, &list[j], b, list[j].query, &keys, false);
      else
        zpr_meet(x, &list[j], b, list[j].query, &keys);
    }
  }
}

static void attend_by_pairs(zpr *c, const zpk_attention_args *a, const zpr_pattern *pattern, char *scratch) {
  zpr_pairs x = pairs_of(c, a, pattern, scratch, false);
  for (int64_t b = 0; b < a->B; b++) {
    pairs_of_sample(&x, b, false);
    zpr_put_sums(&x, a->S, moved(c, a->o, b * a->S, a->o_ld), a->o_ld);
  }
}

static void grad_by_pairs(zpr *c, const zpk_attention_args *a, const zpr_pattern *pattern, char *scratch) {
  zpr_pairs x = pairs_of(c, a, pattern, scratch, true);
  zpr_zero(c, a->dk, a->B * a->keys * a->dk_ld * x.elem);
  zpr_zero(c, a->dv, a->B * a->keys * a->dv_ld * x.elem);
  for (int64_t b = 0; b < a->B; b++) {
    pairs_of_sample(&x, b, true);
    zpr_put_sums(&x, a->S, moved(c, a->dq, b * a->S, a->dq_ld), a->dq_ld);
  }
}

/* ---- all before a stretch at once ---- */

void zpr_attention_by_keys(zpr *c, const zpk_attention_args *a, const zpr_pattern *pattern, void *scratch) {
  assert(a->keys == a->S * zpr_context_ranks(c->program) && !a->layout && !a->lengths);
  if (zpr_goes_by_pairs(a, pattern)) {
    attend_by_pairs(c, a, pattern, scratch);
    return;
  }
  if (!a->causal) {
    zpr_attention(c, a);
    return;
  }
  halves x = halves_of(c, a->S);
  int64_t cols = a->H * a->hd;
  char *other_lse = (char *)scratch + zpr_merge_aligned(x.rows * cols * zpk_bytes(c->program->dtype));
  for (int64_t s = 0; s < 2 * a->B; s++) {
    pair before = keys_before(&x, s / 2, (int)(s % 2));
    zpk_attention_args own = args_of(c, a, &x, own_keys(&x, s / 2, (int)(s % 2)));
    zpr_attention(c, &own);
    if (before.keys == 0) continue;
    zpk_attention_args rest = args_of(c, a, &x, before);
    rest.o = scratch, rest.o_ld = cols, rest.lse = other_lse;
    zpr_attention(c, &rest);
    zpr_merge_parts(c, &(zpk_merge){.to = own.o,
                                    .from = scratch,
                                    .lse = own.lse,
                                    .from_lse = other_lse,
                                    .rows = x.rows,
                                    .heads = a->H,
                                    .hd = a->hd,
                                    .to_ld = a->o_ld,
                                    .from_ld = cols});
  }
}

static void add_rows(zpr *c, void *to, int64_t to_ld, const void *from, int64_t rows, int64_t cols) {
  if (rows > 0)
    zpr_merge_parts(
        c, &(zpk_merge){.to = to, .from = from, .rows = rows, .heads = 1, .hd = cols, .to_ld = to_ld, .from_ld = cols});
}

/* Gradients of keys and values that the second half sees: the end of what there is room for, which is half of all. */
typedef struct second_half {
  char *dk, *dv;
  int64_t first, rows; /* the first row of keys, of all samples; how many */
} second_half;

static zpk_attention_args into_scratch(const zpr *c, zpk_attention_args one, const second_half *to, int64_t key) {
  one.dk_ld = one.dv_ld = one.G * one.hd;
  one.dk = moved(c, to->dk, key - to->first, one.dk_ld);
  one.dv = moved(c, to->dv, key - to->first, one.dv_ld);
  return one;
}

static void half_grad(zpr *c, const zpk_attention_args *a, const halves *x, int64_t b, int h, char *dq,
                      const second_half *second) {
  pair own = own_keys(x, b, h), before = keys_before(x, b, h);
  zpk_attention_args one = args_of(c, a, x, own), rest = args_of(c, a, x, before);
  if (h == 1) one = into_scratch(c, one, second, own.key), rest = into_scratch(c, rest, second, before.key);
  zpr_attention_grad(c, &one);
  if (before.keys == 0) return;
  rest.dq = dq, rest.dq_ld = a->H * a->hd;
  zpr_attention_grad(c, &rest);
  add_rows(c, one.dq, a->dq_ld, dq, x->rows, a->H * a->hd);
}

void zpr_attention_by_keys_grad(zpr *c, const zpk_attention_args *a, const zpr_pattern *pattern, void *scratch) {
  assert(a->keys == a->S * zpr_context_ranks(c->program) && !a->layout && !a->lengths);
  assert(a->dk_ld == a->G * a->hd && a->dv_ld == a->dk_ld);
  if (zpr_goes_by_pairs(a, pattern)) {
    grad_by_pairs(c, a, pattern, scratch);
    return;
  }
  if (!a->causal) {
    zpr_attention_grad(c, a);
    return;
  }
  halves x = halves_of(c, a->S);
  int64_t elem = zpk_bytes(c->program->dtype), cols = a->G * a->hd, half = x.ranks * x.rows;
  char *keys = (char *)scratch + zpr_merge_aligned(x.rows * a->H * a->hd * elem);
  for (int64_t b = 0; b < a->B; b++) {
    second_half second = {.first = (2 * b + 1) * half, .rows = (x.me + 1) * x.rows};
    second.dk = keys + (half - second.rows) * cols * elem;
    second.dv = keys + zpr_merge_aligned(half * cols * elem) + (half - second.rows) * cols * elem;
    zpr_zero(c, moved(c, a->dk, 2 * b * half, cols), x.me * x.rows * cols * elem); /* nobody here sees them */
    zpr_zero(c, moved(c, a->dv, 2 * b * half, cols), x.me * x.rows * cols * elem);
    for (int h = 0; h < 2; h++) half_grad(c, a, &x, b, h, scratch, &second);
    add_rows(c, moved(c, a->dk, second.first, cols), cols, second.dk, second.rows, cols);
    add_rows(c, moved(c, a->dv, second.first, cols), cols, second.dv, second.rows, cols);
  }
}
