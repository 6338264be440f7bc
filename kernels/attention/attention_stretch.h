/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of a few queries in one dtype and instruction set: a query at a time over the keys as they lie, which
 * nothing is packed for. Two passes, scores and then values, because a query's scores are few.
 *
 * Workspace: the scaled query [hd padded], its scores [keys, whole blocks], its output [hd padded]. Less than what
 * zpk_attention packs. */

/* A query of a head at work. */
typedef struct NAME(one_query) {
  const zpk_attention_args *args;
  int64_t b, g, at; /* sample, kv head, position */
  NAME(by_distance) bias;
  REAL *q, *score, *o;
} NAME(one_query);

static inline REAL NAME(product_of_rows)(const REAL *restrict x, const ELEM *restrict y, int64_t count) {
  NAME(vec) sum = {0};
  REAL rest = 0;
  int64_t j = 0;
  for (; j + LANES <= count; j += LANES) {
    NAME(vec) wide = {0};
    for (int64_t l = 0; l < LANES; l++) wide[l] = GET(y[j + l]);
    sum += *(const NAME(vec) *)(x + j) * wide;
  }
  for (; j < count; j++) rest += x[j] * GET(y[j]);
  for (int64_t l = 0; l < LANES; l++) rest += sum[l];
  return rest;
}

/* Scores of keys from .. to - 1, tile after tile, -inf where the query does not see one. */
static void NAME(score_keys)(const NAME(one_query) * x, int64_t from, int64_t to) {
  const zpk_attention_args *args = x->args;
  const ELEM *k = (const ELEM *)args->k + x->b * zpk_keys(args) * args->k_ld + x->g * args->hd;
  for (int64_t key = from; key < to; key += BLOCK) {
    int64_t keys = to - key < BLOCK ? to - key : BLOCK;
    REAL *score = x->score + key;
    zpk_span seen = zpk_seen_keys(args, x->at, key, keys);
    for (int64_t j = 0; j < keys; j++) score[j] = NAME(product_of_rows)(x->q, k + (key + j) * args->k_ld, args->hd);
    for (int64_t j = keys; j < BLOCK; j++) score[j] = 0;
    if (NAME(bends)(args)) NAME(bend)(args, 1, &x->bias, x->at - key, score, NULL);
    for (int64_t j = 0; j < seen.from; j++) score[j] = (REAL)-INFINITY;
    for (int64_t j = seen.to; j < BLOCK; j++) score[j] = (REAL)-INFINITY;
  }
}

/* Scores to shares of 1, and with these the sum of the values. */
static void NAME(weigh_values)(const NAME(one_query) * x, int64_t from, int64_t to) {
  const zpk_attention_args *args = x->args;
  const ELEM *v = (const ELEM *)args->v + x->b * zpk_keys(args) * args->v_ld + x->g * args->hd;
  REAL max = (REAL)-INFINITY, sum = 0;
  for (int64_t j = from; j < to; j++) max = x->score[j] > max ? x->score[j] : max;
  for (int64_t j = from; j < to; j++) x->score[j] = REAL_EXP(x->score[j] - max);
  for (int64_t j = from; j < to; j++) sum += x->score[j];
  memset(x->o, 0, (size_t)args->hd * sizeof(REAL));
  for (int64_t j = from; j < to; j++) {
    const REAL share = x->score[j];
    const ELEM *restrict row = v + j * args->v_ld;
    REAL *restrict o = x->o;
    if (share == 0) continue;
    for (int64_t i = 0; i < args->hd; i++) o[i] += share * GET(row[i]);
  }
  for (int64_t i = 0; i < args->hd; i++) x->o[i] /= sum;
}

static void NAME(query_alone)(const NAME(one_query) * x, int64_t h) {
  const zpk_attention_args *args = x->args;
  int64_t row = x->b * args->S + x->at, all = zpk_keys(args);
  const ELEM *q = (const ELEM *)args->q + row * args->q_ld + h * args->hd;
  ELEM *out = (ELEM *)args->o + row * args->o_ld + h * args->hd;
  if (args->keys && args->lengths) all = args->lengths[x->b];
  if (args->causal) all = x->at + 1;
  for (int64_t i = 0; i < args->hd; i++) x->q[i] = GET(q[i]) * (REAL)args->scale;
  int64_t from = zpk_first_met(args, x->at), to = zpk_end_met(args, x->at, all);
  if (args->layout) {
    const zpk_layout *layout = NAME(layout_of)(args, h);
    int64_t i = x->at / layout->block, last = layout->keys.first[i + 1];
    from = layout->keys.run[layout->keys.first[i]].first * layout->block;
    for (int64_t j = from; j < to; j++) x->score[j] = (REAL)-INFINITY;
    for (int64_t r = layout->keys.first[i]; r < last; r++) {
      int64_t end = layout->keys.run[r].end * layout->block;
      NAME(score_keys)(x, layout->keys.run[r].first * layout->block, end < to ? end : to);
    }
  } else {
    NAME(score_keys)(x, from, to);
  }
  NAME(weigh_values)(x, from, to);
  for (int64_t i = 0; i < args->hd; i++) out[i] = PUT(x->o[i]);
}

static void NAME(some_queries)(const zpk_attention_args *args, int64_t b, int64_t g, int64_t first, int64_t n,
                               void *workspace, void *lines) {
  int64_t ld = zpk_padded_head(args->dtype, args->hd), group = args->H / args->G;
  NAME(one_query) x = {.args = args, .b = b, .g = g, .q = workspace};
  x.score = x.q + ld;
  x.o = x.score + (zpk_keys(args) + BLOCK - 1) / BLOCK * BLOCK + BLOCK;
  for (int64_t h = g * group; h < (g + 1) * group; h++) {
    if (g < args->kv_heads_valid) {
      x.bias = NAME(bias_of)(args, h, lines, false);
      NAME(begin_bias)(args, h, &x.bias);
    }
    for (x.at = first; x.at < first + n; x.at++)
      if (g < args->kv_heads_valid)
        NAME(query_alone)(&x, h);
      else
        memset((ELEM *)args->o + (b * args->S + x.at) * args->o_ld + h * args->hd, 0, (size_t)args->hd * sizeof(ELEM));
  }
}
