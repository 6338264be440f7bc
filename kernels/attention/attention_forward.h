/* SPDX-License-Identifier: Apache-2.0 */
/* Forward attention of one (sample, kv head) in one dtype and instruction set: the online softmax of Milakov and
 * Gimelshein (2018) over key blocks, as FlashAttention (Dao et al., 2022) uses it. Per query block it holds the running
 * maximum, the running sum and the unnormalised output; scores exist for one pair of blocks only.
 *
 * Workspace: transposed keys [S blocks][hd padded][BLOCK], values [S blocks * BLOCK][hd padded], then the block's q, p,
 * o. */

typedef struct NAME(rows) {
  REAL max[BLOCK], sum[BLOCK];
} NAME(rows);

/* Scores of one row of the block to probabilities relative to the running maximum; rescales what was summed before. */
static inline void NAME(softmax_step)(REAL *score, zpk_span seen, NAME(rows) * state, int64_t i, REAL *o, int64_t ld) {
  for (int64_t j = 0; j < seen.from; j++) score[j] = (REAL)-INFINITY;
  for (int64_t j = seen.to; j < BLOCK; j++) score[j] = (REAL)-INFINITY;
  REAL old = state->max[i], max = NAME(block_max)(score);
  if (max > old) {
    REAL shrink = REAL_EXP(old - max);
    state->max[i] = max;
    state->sum[i] *= shrink;
    for (int64_t j = 0; j < ld; j++) o[j] *= shrink;
  }
  max = state->max[i];
  for (int64_t j = 0; j < BLOCK; j++) score[j] = REAL_EXP(score[j] - max);
  state->sum[i] += NAME(block_sum)(score);
}

/* What dropout multiplies probabilities of a query and of a tile's keys with. */
static inline void NAME(draw_factors)(const zpk_attention_args *args, int64_t b, int64_t h, int64_t query, int64_t key,
                                      REAL factor[BLOCK]) {
  uint32_t kept[BLOCK];
  const REAL more = (REAL)(1 / (1 - args->dropout.rate));
  draw_keys(args, b, h, query, key, kept);
  for (int64_t j = 0; j < BLOCK; j++) factor[j] = kept[j] ? more : 0;
}

/* Output and log-sum-exp of the block's rows, which are queries first .. first + rows - 1 of head h. */
static void NAME(store_output)(const zpk_attention_args *args, int64_t b, int64_t h, int64_t first, int64_t rows,
                               const NAME(rows) * state, const REAL *o, int64_t ld) {
  for (int64_t i = 0; i < rows; i++) {
    int64_t row = b * args->S + first + i;
    ELEM *out = (ELEM *)args->o + row * args->o_ld + h * args->hd;
    REAL inverse = state->sum[i] > 0 ? 1 / state->sum[i] : 0; /* 0: of a part of a layout, in which it sees no key */
    for (int64_t j = 0; j < args->hd; j++) out[j] = PUT(o[i * ld + j] * inverse);
    ((REAL *)args->lse)[row * args->H + h] = state->max[i] + (REAL)log((double)state->sum[i]);
  }
}

/* A block of queries, first .. first + rows - 1 of a head, while it meets keys. */
typedef struct NAME(query_block) {
  int64_t b, h, first, rows, ld;
  REAL *q, *o, *p; /* [BLOCK][ld] twice, [BLOCK][BLOCK] */
  NAME(by_distance) bias;
  NAME(rows) state;
} NAME(query_block);

static void NAME(begin_queries)(const zpk_attention_args *args, int64_t b, int64_t h, int64_t first, int64_t rows,
                                REAL *workspace, REAL *lines, NAME(query_block) * x) {
  int64_t hd = args->hd, ld = zpk_padded_head(args->dtype, hd);
  x->b = b;
  x->h = h;
  x->first = first;
  x->rows = rows;
  x->ld = ld;
  x->bias = NAME(bias_of)(args, h, lines, false);
  x->q = workspace;
  x->o = x->q + BLOCK * ld;
  x->p = x->o + BLOCK * ld;
  NAME(pack_rows)((const ELEM *)args->q + (b * args->S + first) * args->q_ld + h * hd, args->q_ld, rows, hd, x->q, ld);
  for (int64_t i = 0; i < BLOCK * ld; i++) x->q[i] *= (REAL)args->scale;
  memset(x->o, 0, (size_t)(BLOCK * ld) * sizeof(REAL));
  for (int64_t i = 0; i < BLOCK; i++) {
    x->state.max[i] = (REAL)-INFINITY;
    x->state.sum[i] = 0;
  }
}

/* Adds keys `key` on, whose scores are in p. */
static void NAME(add_keys)(const zpk_attention_args *args, NAME(query_block) * x, int64_t key, int64_t keys,
                           const REAL *values) {
  int64_t ld = x->ld;
  for (int64_t i = 0; i < x->rows; i++) {
    zpk_span seen = zpk_seen_keys(args, x->first + i, key, keys);
    REAL *p = x->p + i * BLOCK, factor[BLOCK];
    if (NAME(bends)(args)) NAME(bend)(args, 1, &x->bias, x->first + i - key, p, NULL);
    if (seen.from < seen.to)
      NAME(softmax_step)(p, seen, &x->state, i, x->o + i * ld, ld);
    else
      memset(p, 0, BLOCK * sizeof(REAL));
    if (args->dropout.rate == 0 || seen.from >= seen.to) continue;
    NAME(draw_factors)(args, x->b, x->h, x->first + i, key, factor);
    for (int64_t j = 0; j < BLOCK; j++) p[j] *= factor[j];
  }
  NAME(multiply)(x->p, BLOCK, 1, values + key * ld, ld, x->rows, ld, keys, true, x->o, ld);
}

static void NAME(forward_block)(const zpk_attention_args *args, int64_t b, int64_t h, int64_t first, const REAL *keys_t,
                                const REAL *values, REAL *workspace, REAL *lines) {
  int64_t S = args->S, rows = S - first < BLOCK ? S - first : BLOCK;
  int64_t end = args->causal ? first + rows : zpk_end_met(args, first + rows - 1, zpk_keys(args));
  NAME(query_block) x;
  NAME(begin_queries)(args, b, h, first, rows, workspace, lines, &x);
  for (int64_t key = zpk_first_met(args, first); key < end; key += BLOCK) {
    int64_t keys = end - key < BLOCK ? end - key : BLOCK;
    NAME(multiply)(x.q, x.ld, 1, keys_t + key * x.ld, BLOCK, rows, keys, args->hd, false, x.p, BLOCK);
    NAME(add_keys)(args, &x, key, keys, values);
  }
  NAME(store_output)(args, b, h, first, rows, &x.state, x.o, x.ld);
}

static void NAME(dense_forward)(const zpk_attention_args *args, int64_t b, int64_t g, void *workspace, REAL *lines) {
  int64_t S = args->S, all = zpk_keys(args), hd = args->hd, ld = zpk_padded_head(args->dtype, hd);
  int64_t padded = (all + BLOCK - 1) / BLOCK * BLOCK, group = args->H / args->G;
  REAL *keys_t = workspace, *values = keys_t + padded * ld, *block = values + padded * ld;
  for (int64_t key = 0; key < all; key += BLOCK) {
    int64_t keys = all - key < BLOCK ? all - key : BLOCK, row = b * all + key;
    NAME(pack_transposed)
    ((const ELEM *)args->k + row * args->k_ld + g * hd, args->k_ld, keys, hd, keys_t + key * ld, BLOCK);
    NAME(pack_rows)((const ELEM *)args->v + row * args->v_ld + g * hd, args->v_ld, keys, hd, values + key * ld, ld);
  }
  for (int64_t h = g * group; h < (g + 1) * group; h++) {
    NAME(by_distance) bias = NAME(bias_of)(args, h, lines, false);
    NAME(begin_bias)(args, h, &bias);
    for (int64_t first = 0; first < S; first += BLOCK)
      NAME(forward_block)(args, b, h, first, keys_t, values, block, lines);
  }
}
