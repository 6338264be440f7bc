/* SPDX-License-Identifier: Apache-2.0 */
/* Gradient of attention for one (sample, kv head) in one dtype and instruction set. Probabilities are recomputed from
 * the saved log-sum-exp: with P = exp(scale Q K^T - lse) and D = rowsum(dO * O),
 *
 *   dV += P^T dO      dS = P * (dO V^T - D) * scale      dQ += dS K      dK += dS^T Q
 *
 * and with bent scores (attention_bend.h) their slope alongside the scale; with dropout P of dV, and dO V^T, are
 * multiplied by its factors, and D is what it was. Key blocks outside, query blocks of all query heads of the group
 * inside: dK and dV of a block are finished before the next; dQ is added up in the order of key blocks: in memory, or
 * in the workspace when memory has no REALs. */

/* The worker's share: ten blocks, and where ELEM is shorter than REAL the group's sums of dQ, [heads][S][ld]. */
typedef struct NAME(backward_blocks) {
  REAL *keys_t, *values_t, *keys, *dk, *dv; /* of the key block */
  REAL *q, *d_o, *dq;                       /* of the query block */
  REAL *p, *ds;                             /* [BLOCK][BLOCK] of the pair */
  REAL *dq_sum;
  int64_t ld;
} NAME(backward_blocks);

static NAME(backward_blocks) NAME(cut_workspace)(void *workspace, int64_t ld) {
  REAL *at = workspace;
  int64_t size = BLOCK * ld;
  return (NAME(backward_blocks)){.keys_t = at,
                                 .values_t = at + size,
                                 .keys = at + 2 * size,
                                 .dk = at + 3 * size,
                                 .dv = at + 4 * size,
                                 .q = at + 5 * size,
                                 .d_o = at + 6 * size,
                                 .dq = at + 7 * size,
                                 .p = at + 8 * size,
                                 .ds = at + 8 * size + BLOCK * BLOCK,
                                 .dq_sum = at + 8 * size + 2 * BLOCK * BLOCK,
                                 .ld = ld};
}

/* On entry p has q k and ds has dO v of one row; on return they have what their names say. */
static inline void NAME(softmax_grad)(REAL *restrict p, REAL *restrict ds, zpk_span seen, REAL scale, REAL lse,
                                      REAL delta) {
  if (seen.from >= seen.to) seen = (zpk_span){BLOCK, BLOCK};
  for (int64_t j = 0; j < seen.from; j++) {
    p[j] = (REAL)-INFINITY;
    ds[j] = 0;
  }
  for (int64_t j = seen.to; j < BLOCK; j++) {
    p[j] = (REAL)-INFINITY;
    ds[j] = 0;
  }
  for (int64_t j = 0; j < BLOCK; j++) {
    p[j] = REAL_EXP(p[j] * scale - lse);
    ds[j] = p[j] * (ds[j] - delta) * scale;
  }
}

/* rows x hd of a block to memory. */
static void NAME(unpack)(const REAL *block, int64_t ld, int64_t rows, int64_t hd, ELEM *to, int64_t to_ld) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < hd; j++) to[i * to_ld + j] = PUT(block[i * ld + j]);
}

/* rows x hd of a block to a sum, added to what is there or stored. */
static void NAME(sum_block)(const REAL *block, int64_t ld, int64_t rows, int64_t hd, bool add, REAL *to,
                            int64_t to_ld) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < hd; j++)
      to[i * to_ld + j] = add ? to[i * to_ld + j] + block[i * ld + j] : block[i * ld + j];
}

static bool NAME(sums_apart)(void) { return sizeof(ELEM) < sizeof(REAL); }

/* The sum of dQ of head h from query row `row` of the sample on. */
static REAL *NAME(dq_place)(const zpk_attention_args *args, int64_t b, int64_t h, int64_t row,
                            const NAME(backward_blocks) * w) {
  if (NAME(sums_apart)()) return w->dq_sum + (h % (args->H / args->G) * args->S + row) * w->ld;
  return (REAL *)args->dq + (b * args->S + row) * args->dq_ld + h * args->hd;
}

/* One pair of blocks: queries from `first` of head h, keys from `key`. add: dQ has something to be added to. */
static void NAME(backward_pair)(const zpk_attention_args *args, int64_t b, int64_t h, int64_t first, int64_t rows,
                                int64_t key, int64_t keys, bool add, const NAME(backward_blocks) * w, REAL *lines) {
  int64_t hd = args->hd, ld = w->ld, row = b * args->S + first;
  const ELEM *o = (const ELEM *)args->o + row * args->o_ld + h * hd;
  const REAL *lse = (const REAL *)args->lse + row * args->H + h;
  NAME(by_distance) bias = NAME(bias_of)(args, h, lines, true);
  NAME(pack_rows)((const ELEM *)args->q + row * args->q_ld + h * hd, args->q_ld, rows, hd, w->q, ld);
  NAME(pack_rows)((const ELEM *)args->d_o + row * args->d_o_ld + h * hd, args->d_o_ld, rows, hd, w->d_o, ld);
  NAME(multiply)(w->q, ld, 1, w->keys_t, BLOCK, rows, keys, hd, false, w->p, BLOCK);
  NAME(multiply)(w->d_o, ld, 1, w->values_t, BLOCK, rows, keys, hd, false, w->ds, BLOCK);
  for (int64_t i = 0; i < rows; i++) {
    zpk_span seen = zpk_seen_keys(args, first + i, key, keys);
    REAL delta = NAME(dot)(w->d_o + i * ld, o + i * args->o_ld, hd);
    REAL *p = w->p + i * BLOCK, *ds = w->ds + i * BLOCK, grad[BLOCK], factor[BLOCK];
    bool drops = args->dropout.rate > 0 && seen.from < seen.to;
    if (drops) NAME(draw_factors)(args, b, h, first + i, key, factor);
    for (int64_t j = 0; drops && j < BLOCK; j++) ds[j] *= factor[j];
    if (NAME(bends)(args)) {
      NAME(bend)(args, (REAL)args->scale, &bias, first + i - key, p, grad);
      NAME(softmax_grad)(p, ds, seen, 1, lse[i * args->H], delta);
      if (bias.d_line) NAME(sum_bias)(args, &bias, first + i - key, seen, ds);
      for (int64_t j = seen.from; j < seen.to; j++) ds[j] *= grad[j];
    } else
      NAME(softmax_grad)(p, ds, seen, (REAL)args->scale, lse[i * args->H], delta);
    for (int64_t j = 0; drops && j < BLOCK; j++) p[j] *= factor[j];
  }
  NAME(multiply)(w->p, 1, BLOCK, w->d_o, ld, keys, ld, rows, true, w->dv, ld);
  NAME(multiply)(w->ds, 1, BLOCK, w->q, ld, keys, ld, rows, true, w->dk, ld);
  NAME(multiply)(w->ds, BLOCK, 1, w->keys, ld, rows, ld, keys, false, w->dq, ld);
  NAME(sum_block)
  (w->dq, ld, rows, hd, add, NAME(dq_place)(args, b, h, first, w), NAME(sums_apart)() ? ld : args->dq_ld);
}

static void NAME(begin_keys)(const zpk_attention_args *args, int64_t b, int64_t g, int64_t key, int64_t keys,
                             const NAME(backward_blocks) * w) {
  int64_t hd = args->hd, ld = w->ld, row = b * zpk_keys(args) + key;
  const ELEM *k = (const ELEM *)args->k + row * args->k_ld + g * hd;
  NAME(pack_transposed)(k, args->k_ld, keys, hd, w->keys_t, BLOCK);
  NAME(pack_rows)(k, args->k_ld, keys, hd, w->keys, ld);
  NAME(pack_transposed)((const ELEM *)args->v + row * args->v_ld + g * hd, args->v_ld, keys, hd, w->values_t, BLOCK);
  memset(w->dk, 0, (size_t)(BLOCK * ld) * sizeof(REAL));
  memset(w->dv, 0, (size_t)(BLOCK * ld) * sizeof(REAL));
}

static void NAME(end_keys)(const zpk_attention_args *args, int64_t b, int64_t g, int64_t key, int64_t keys,
                           const NAME(backward_blocks) * w) {
  int64_t hd = args->hd, row = b * zpk_keys(args) + key;
  NAME(unpack)(w->dk, w->ld, keys, hd, (ELEM *)args->dk + row * args->dk_ld + g * hd, args->dk_ld);
  NAME(unpack)(w->dv, w->ld, keys, hd, (ELEM *)args->dv + row * args->dv_ld + g * hd, args->dv_ld);
}

/* The sums of dQ to their place, where they are apart. */
static void NAME(end_queries)(const zpk_attention_args *args, int64_t b, int64_t g, const NAME(backward_blocks) * w) {
  int64_t S = args->S, hd = args->hd, group = args->H / args->G;
  for (int64_t h = g * group; h < (g + 1) * group && NAME(sums_apart)(); h++) NAME(unpack)
  (NAME(dq_place)(args, b, h, 0, w), w->ld, S, hd, (ELEM *)args->dq + b * S * args->dq_ld + h * hd, args->dq_ld);
}

static void NAME(dense_backward)(const zpk_attention_args *args, int64_t b, int64_t g, void *workspace, REAL *lines) {
  int64_t S = args->S, all = zpk_keys(args), group = args->H / args->G;
  NAME(backward_blocks) w = NAME(cut_workspace)(workspace, zpk_padded_head(args->dtype, args->hd));
  for (int64_t h = g * group; h < (g + 1) * group; h++) {
    NAME(by_distance) bias = NAME(bias_of)(args, h, lines, true);
    NAME(begin_bias)(args, h, &bias);
  }
  for (int64_t key = 0; key < all; key += BLOCK) {
    int64_t keys = all - key < BLOCK ? all - key : BLOCK;
    NAME(begin_keys)(args, b, g, key, keys, &w);
    int64_t begin = args->causal ? key : zpk_first_met(args, key), end = zpk_end_met(args, key + keys - 1, S);
    for (int64_t h = g * group; h < (g + 1) * group; h++)
      for (int64_t first = begin; first < end; first += BLOCK) {
        int64_t rows = S - first < BLOCK ? S - first : BLOCK;
        bool add = key > zpk_first_met(args, first);
        NAME(backward_pair)(args, b, h, first, rows, key, keys, add, &w, lines);
      }
    NAME(end_keys)(args, b, g, key, keys, &w);
  }
  NAME(end_queries)(args, b, g, &w);
  for (int64_t h = g * group; h < (g + 1) * group; h++) {
    NAME(by_distance) bias = NAME(bias_of)(args, h, lines, true);
    NAME(end_bias)(args, b, h, &bias);
  }
}
