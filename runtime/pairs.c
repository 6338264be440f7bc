/* SPDX-License-Identifier: Apache-2.0 */
/* Attention between stretches of queries and of keys: the list of calls, and one call. Kernels know nothing of
 * stretches. What a stretch sees in a window of one before it is a rectangle and a triangle, whose corner is the last
 * key of the first query: causal attention when both stand in the opposite order. Results are merged by their
 * log-sum-exps, and gradients of queries summed in the order of the calls, in `real`. */
#include "pairs.h"

#include <assert.h>
#include "device.h"
#include "state.h"

/* ---- who sees what ---- */

bool zpr_goes_by_pairs(const zpk_attention_args *a, const zpr_pattern *pattern) {
  return a->window || a->dropout.rate > 0 || a->documents || pattern;
}

zpr_pairs zpr_pairs_of(zpr *c, const zpk_attention_args *a, const zpr_pattern *pattern) {
  assert(a->S % 2 == 0 && !a->layout && !a->lengths);
  return (zpr_pairs){.c = c,
                     .a = a,
                     .ranks = zpr_context_ranks(c->program),
                     .me = zpr_axis_group(c, ZPR_CONTEXT).me,
                     .rows = a->S / 2,
                     .queries = a->H * a->hd,
                     .keys = a->G * a->hd,
                     .elem = zpk_bytes(c->program->dtype),
                     .real = zpk_real_bytes(c->program->dtype),
                     .pattern = pattern,
                     .documents = a->documents ? zpr_tokens_on_host(c, a->documents) : NULL};
}

void zpr_take_call_scratch(zpr_pairs *x, char **at, bool grad) {
  int64_t queries = x->rows * x->queries * x->elem, keys = x->rows * 2 * x->keys * x->elem;
  if (x->a->window) {
    x->turned_q = zpr_take_scratch(at, queries);
    x->turned_keys = zpr_take_scratch(at, keys);
    x->turned_lse = zpr_take_scratch(at, x->rows * x->a->H * x->real);
  }
  if (x->a->window && grad) {
    x->turned_o = zpr_take_scratch(at, queries);
    x->turned_do = zpr_take_scratch(at, queries);
  }
  if (grad && zpr_goes_by_pairs(x->a, x->pattern)) x->key_part = zpr_take_scratch(at, keys);
}

int64_t zpr_stretch_number(const zpr_pairs *x, int64_t rank, int half) {
  return half == ZPR_LATE ? 2 * x->ranks - 1 - rank : rank;
}

static const zpk_layout *layout_of(const zpr_pairs *x, int64_t query, int64_t key) {
  return x->pattern[query * 2 * x->ranks + key];
}

bool zpr_stretches_meet(const zpr_pairs *x, int64_t rank, int64_t owner, int half) {
  bool seen = false;
  for (int h = ZPR_LATE; h < ZPR_HALVES; h++) {
    int64_t query = zpr_stretch_number(x, rank, h), key = zpr_stretch_number(x, owner, half), away = query - key;
    bool sees = x->pattern ? layout_of(x, query, key) != NULL : !x->a->causal || away > 0;
    if (x->a->window) sees = sees && x->a->window - (away > 0 ? away : -away) * x->rows > 1 - x->rows;
    seen |= sees;
  }
  return seen;
}

/* Queries from one position on and keys from one before it; rows of the window's list count from these. */
typedef struct rectangle {
  int64_t query, queries, key, keys;
} rectangle;

/* Queries see keys at distances below `reach` of the first query from the first key: rows from reach on miss the first
 * keys, one more each. A triangle is left of these, and the rectangle after it. */
static int calls_in_window(const rectangle *r, int64_t reach, zpr_call *list) {
  int64_t whole = reach < 0 ? 0 : reach < r->queries ? reach : r->queries, key = whole + 1 - reach;
  int64_t turned = r->queries - whole < r->keys - key ? r->queries - whole : r->keys - key, after = key + turned;
  int calls = 0;
  if (whole > 0) list[calls++] = (zpr_call){.query = r->query, .queries = whole, .key = r->key, .keys = r->keys};
  if (turned <= 0) return calls;
  list[calls++] = (zpr_call){
      .query = r->query + whole, .queries = turned, .key = r->key + key, .keys = turned, .kind = ZPR_REVERSED};
  if (after < r->keys)
    list[calls++] =
        (zpr_call){.query = r->query + whole, .queries = turned, .key = r->key + after, .keys = r->keys - after};
  return calls;
}

/* Keys after the queries, at distances below `reach` of the first query from the key before the first: rows see the
 * first keys, one more each. A rectangle is left of these and a triangle, and the rows that see all. */
static int calls_ahead(const rectangle *r, int64_t reach, zpr_call *list) {
  int64_t none = reach < 1 ? 1 - reach : 0,
          key = reach + none - 1; /* rows that see nothing; keys that all others see */
  if (none >= r->queries) return 0;
  if (key > r->keys) key = r->keys;
  int64_t turns = r->queries - none < r->keys - key ? r->queries - none : r->keys - key, after = none + turns;
  int calls = 0;
  if (key > 0 && turns > 0)
    list[calls++] = (zpr_call){.query = r->query + none, .queries = turns, .key = r->key, .keys = key};
  if (turns > 0)
    list[calls++] = (zpr_call){
        .query = r->query + none, .queries = turns, .key = r->key + key, .keys = turns, .kind = ZPR_TRIANGLE};
  if (after < r->queries)
    list[calls++] =
        (zpr_call){.query = r->query + after, .queries = r->queries - after, .key = r->key, .keys = r->keys};
  return calls;
}

/* Rows of two stretches that are of one document: the last ones of the earlier stretch, the first ones of the later. */
static rectangle shared_document(const zpr_pairs *x, int64_t b, int64_t query, int64_t key) {
  int64_t n = x->rows, earlier = query < key ? query : key, later = query < key ? key : query, last = 0, first = 0;
  const int32_t *sample = x->documents + b * 2 * x->ranks * n, *begin = sample + later * n,
                *end = sample + earlier * n + n;
  if (*begin < 0) return (rectangle){0};
  while (last < n && end[-1 - last] == *begin) last++;
  while (last > 0 && first < n && begin[first] == *begin) first++;
  return query > key ? (rectangle){0, first, n - last, last} : (rectangle){n - last, last, 0, first};
}

/* Calls of a stretch of queries with one of keys, in rows of either. */
static int calls_of_pair(const zpr_pairs *x, int64_t b, int64_t query, int64_t key, zpr_call *list) {
  int64_t n = x->rows, away = query - key;
  rectangle all = {0, n, 0, n};
  if (x->pattern ? !layout_of(x, query, key) : x->a->causal && away < 0) return 0;
  if (away != 0 && x->documents) all = shared_document(x, b, query, key);
  if (all.queries == 0) return 0;
  if (x->a->window && away > 0) return calls_in_window(&all, x->a->window - away * n + all.key, list);
  if (x->a->window && away < 0) return calls_ahead(&all, x->a->window + away * n + all.query - all.key, list);
  list[0] = (zpr_call){.query = all.query, .queries = all.queries, .key = all.key, .keys = all.keys};
  list[0].kind = away == 0 ? ZPR_OWN : ZPR_WHOLE;
  return 1;
}

int zpr_calls_by_pairs(const zpr_pairs *x, int64_t b, int64_t owner, zpr_call *list) {
  int n = 0;
  for (int h = ZPR_LATE; h < ZPR_HALVES; h++)
    for (int i = ZPR_LATE; i < ZPR_HALVES; i++) {
      int g = (h + i) % ZPR_HALVES; /* of own keys those of the queries first */
      int64_t query = zpr_stretch_number(x, x->me, h), key = zpr_stretch_number(x, owner, g);
      int calls = calls_of_pair(x, b, query, key, list + n);
      for (int k = 0; k < calls; k++, n++) {
        list[n].half = g;
        list[n].first = query == key;
        list[n].at_query = query * x->rows + list[n].query, list[n].at_key = key * x->rows + list[n].key;
        list[n].query += h * x->rows;
      }
    }
  assert(n <= ZPR_MOST_CALLS);
  return n;
}

/* ---- rows ---- */

void zpr_merge_rows(const zpr_pairs *x, zpk_merge m) {
  if (m.rows > 0) zpr_merge_parts(x->c, &m);
}

/* Copies rows in the opposite order; wide: of `real`. */
static void turn(const zpr_pairs *x, char *to, int64_t to_ld, const void *from, int64_t from_ld, int64_t rows,
                 int64_t cols, bool wide) {
  zpr_merge_rows(x, (zpk_merge){.to = to + (rows - 1) * to_ld * (wide ? x->real : x->elem),
                                .from = from,
                                .rows = rows,
                                .heads = 1,
                                .hd = cols,
                                .to_ld = -to_ld,
                                .from_ld = from_ld,
                                .to_wide = wide,
                                .from_wide = wide,
                                .set = 1});
}

/* What a call has made in `part` to the sums of its queries; with log-sum-exps, where it made results. */
static void add_part(const zpr_pairs *x, int64_t row, int64_t sum, const zpr_call *call, bool results) {
  bool turned = call->kind == ZPR_REVERSED;
  zpk_merge m = {.to = x->sums + sum * x->queries * x->real,
                 .from = zpr_row_of(x, x->part, turned ? call->queries - 1 : 0, x->queries),
                 .rows = call->queries,
                 .heads = x->a->H,
                 .hd = x->a->hd,
                 .to_ld = x->queries,
                 .from_ld = turned ? -x->queries : x->queries,
                 .to_wide = 1,
                 .set = call->first};
  if (results && turned) turn(x, x->turned_lse, x->a->H, x->part_lse, x->a->H, call->queries, x->a->H, true);
  if (results && !call->first)
    m.lse = (char *)x->a->lse + row * x->a->H * x->real, m.from_lse = turned ? x->turned_lse : x->part_lse;
  zpr_merge_rows(x, m);
}

void zpr_put_sums(const zpr_pairs *x, int64_t rows, void *to, int64_t to_ld) {
  zpr_merge_rows(x, (zpk_merge){.to = to,
                                .from = x->sums,
                                .rows = rows,
                                .heads = 1,
                                .hd = x->queries,
                                .to_ld = to_ld,
                                .from_ld = x->queries,
                                .from_wide = 1,
                                .set = 1});
}

/* ---- calls ---- */

static void number_pairs(const zpr_pairs *x, const zpr_call *call, int64_t b, zpk_attention_dropout *drop) {
  if (x->a->dropout.rate == 0) return;
  drop->turned = call->kind == ZPR_REVERSED;
  drop->first_sample += b;
  drop->first_query = call->at_query + (drop->turned ? call->queries - 1 : 0);
  drop->first_key = call->at_key + (drop->turned ? call->keys - 1 : 0);
}

static zpk_attention_args args_of(const zpr_pairs *x, const zpr_call *call, int64_t b, const zpr_key_rows *keys) {
  zpk_attention_args args = *x->a;
  int64_t row = b * x->a->S + call->query;
  args.B = 1, args.S = call->queries;
  args.causal = call->kind == ZPR_REVERSED || call->kind == ZPR_TRIANGLE || (call->kind == ZPR_OWN && x->a->causal);
  args.keys = call->kind == ZPR_WHOLE && !x->pattern ? call->keys : 0;
  if (x->pattern) args.layout = layout_of(x, call->at_query / x->rows, call->at_key / x->rows);
  args.window = call->kind == ZPR_OWN && x->a->window < x->rows ? x->a->window : 0;
  if (x->a->documents)
    args.documents = call->kind == ZPR_OWN ? x->a->documents + b * 2 * x->ranks * x->rows + call->at_query : NULL;
  args.q = zpr_row_of(x, x->a->q, row, x->a->q_ld);
  args.k = keys->k, args.v = keys->v, args.k_ld = args.v_ld = keys->ld;
  args.lse = (char *)x->a->lse + row * x->a->H * x->real;
  number_pairs(x, call, b, &args.dropout);
  if (call->kind != ZPR_REVERSED) return args;
  char *values = x->turned_keys + x->keys * x->elem;
  turn(x, x->turned_q, x->queries, args.q, args.q_ld, call->queries, x->queries, false);
  turn(x, x->turned_keys, 2 * x->keys, keys->k, keys->ld, call->keys, x->keys, false);
  turn(x, values, 2 * x->keys, keys->v, keys->ld, call->keys, x->keys, false);
  args.q = x->turned_q, args.q_ld = x->queries, args.k = x->turned_keys, args.v = values;
  args.k_ld = args.v_ld = 2 * x->keys;
  return args;
}

void zpr_meet(const zpr_pairs *x, const zpr_call *call, int64_t b, int64_t sum, const zpr_key_rows *keys) {
  zpk_attention_args args = args_of(x, call, b, keys);
  args.o = x->part, args.o_ld = x->queries;
  if (!call->first) args.lse = x->part_lse;
  zpr_attention(x->c, &args);
  add_part(x, b * x->a->S + call->query, sum, call, true);
}

/* Results of the call's queries and their gradients, in its order. */
static void take_results(const zpr_pairs *x, const zpr_call *call, int64_t row, zpk_attention_args *args) {
  args->o = zpr_row_of(x, x->a->o, row, x->a->o_ld);
  args->d_o = zpr_row_of(x, x->a->d_o, row, x->a->d_o_ld);
  if (call->kind != ZPR_REVERSED) return;
  turn(x, x->turned_o, x->queries, args->o, args->o_ld, call->queries, x->queries, false);
  turn(x, x->turned_do, x->queries, args->d_o, args->d_o_ld, call->queries, x->queries, false);
  turn(x, x->turned_lse, x->a->H, args->lse, x->a->H, call->queries, x->a->H, true);
  args->o = x->turned_o, args->d_o = x->turned_do, args->lse = x->turned_lse;
  args->o_ld = args->d_o_ld = x->queries;
}

/* Keys that several calls see: gradients of keys, or of values, which stand in columns after them. */
static void add_key_part(const zpr_pairs *x, const zpr_call *call, const char *part, char *to, int64_t to_ld) {
  int64_t cols = 2 * x->keys;
  bool turned = call->kind == ZPR_REVERSED;
  zpr_merge_rows(x, (zpk_merge){.to = to,
                                .from = zpr_row_of(x, part, turned ? call->keys - 1 : 0, cols),
                                .rows = call->keys,
                                .heads = 1,
                                .hd = x->keys,
                                .to_ld = to_ld,
                                .from_ld = turned ? -cols : cols});
}

void zpr_meet_grad(const zpr_pairs *x, const zpr_call *call, int64_t b, int64_t sum, const zpr_key_rows *keys,
                   bool set) {
  int64_t row = b * x->a->S + call->query;
  zpk_attention_args args = args_of(x, call, b, keys);
  assert(set || x->key_part);
  take_results(x, call, row, &args);
  args.dq = x->part, args.dq_ld = x->queries;
  args.dk = set ? keys->dk : x->key_part, args.dv = set ? keys->dv : x->key_part + x->keys * x->elem;
  args.dk_ld = args.dv_ld = set ? keys->d_ld : 2 * x->keys;
  zpr_attention_grad(x->c, &args);
  add_part(x, row, sum, call, false);
  if (set) return;
  add_key_part(x, call, x->key_part, keys->dk, keys->d_ld);
  add_key_part(x, call, x->key_part + x->keys * x->elem, keys->dv, keys->d_ld);
}
