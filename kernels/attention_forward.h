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
static inline void NAME(softmax_step)(REAL *score, int64_t valid, NAME(rows) * state, int64_t i, REAL *o, int64_t ld) {
  for (int64_t j = valid; j < BLOCK; j++) score[j] = (REAL)-INFINITY;
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

/* Output and log-sum-exp of the block's rows, which are queries first .. first + rows - 1 of head h. */
static void NAME(store_output)(const zpk_attention_args *args, int64_t b, int64_t h, int64_t first, int64_t rows,
                               const NAME(rows) * state, const REAL *o, int64_t ld) {
  for (int64_t i = 0; i < rows; i++) {
    int64_t row = b * args->S + first + i;
    ELEM *out = (ELEM *)args->o + row * args->o_ld + h * args->hd;
    REAL inverse = 1 / state->sum[i];
    for (int64_t j = 0; j < args->hd; j++) out[j] = PUT(o[i * ld + j] * inverse);
    ((REAL *)args->lse)[row * args->H + h] = state->max[i] + (REAL)log((double)state->sum[i]);
  }
}

static void NAME(forward_block)(const zpk_attention_args *args, int64_t b, int64_t h, int64_t first, const REAL *keys_t,
                                const REAL *values, REAL *block) {
  int64_t S = args->S, hd = args->hd, ld = zpk_padded_head(args->dtype, hd);
  int64_t rows = S - first < BLOCK ? S - first : BLOCK, end = args->causal ? first + rows : S;
  REAL *q = block, *o = q + BLOCK * ld, *p = o + BLOCK * ld;
  NAME(rows) state;
  NAME(pack_rows)((const ELEM *)args->q + (b * S + first) * args->q_ld + h * hd, args->q_ld, rows, hd, q, ld);
  for (int64_t i = 0; i < BLOCK * ld; i++) q[i] *= (REAL)args->scale;
  memset(o, 0, (size_t)(BLOCK * ld) * sizeof(REAL));
  for (int64_t i = 0; i < BLOCK; i++) {
    state.max[i] = (REAL)-INFINITY;
    state.sum[i] = 0;
  }
  for (int64_t key = 0; key < end; key += BLOCK) {
    int64_t keys = end - key < BLOCK ? end - key : BLOCK;
    NAME(multiply)(q, ld, 1, keys_t + key * ld, BLOCK, rows, keys, hd, false, p, BLOCK);
    for (int64_t i = 0; i < rows; i++) {
      int64_t causal_keys = first + i - key + 1;
      int64_t valid = args->causal && causal_keys < keys ? causal_keys : keys;
      NAME(softmax_step)(p + i * BLOCK, valid, &state, i, o + i * ld, ld);
    }
    NAME(multiply)(p, BLOCK, 1, values + key * ld, ld, rows, ld, keys, true, o, ld);
  }
  NAME(store_output)(args, b, h, first, rows, &state, o, ld);
}

static void NAME(forward)(const zpk_attention_args *args, int64_t b, int64_t g, void *workspace) {
  int64_t S = args->S, hd = args->hd, ld = zpk_padded_head(args->dtype, hd), group = args->H / args->G;
  int64_t padded_S = (S + BLOCK - 1) / BLOCK * BLOCK;
  REAL *keys_t = workspace, *values = keys_t + padded_S * ld, *block = values + padded_S * ld;
  for (int64_t key = 0; key < S; key += BLOCK) {
    int64_t keys = S - key < BLOCK ? S - key : BLOCK, row = b * S + key;
    NAME(pack_transposed)((const ELEM *)args->k + row * args->k_ld + g * hd, args->k_ld, keys, hd, keys_t + key * ld);
    NAME(pack_rows)((const ELEM *)args->v + row * args->v_ld + g * hd, args->v_ld, keys, hd, values + key * ld, ld);
  }
  for (int64_t h = g * group; h < (g + 1) * group; h++)
    for (int64_t first = 0; first < S; first += BLOCK) NAME(forward_block)(args, b, h, first, keys_t, values, block);
}
