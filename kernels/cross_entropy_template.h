/* SPDX-License-Identifier: Apache-2.0 */
/* Cross-entropy in one dtype: see cross_entropy.c. */

/* Reductions run over LANES independent partial results in memory that stays in L1, because the compiler may not
 * reassociate a scalar sum or maximum; the loops over LANES have no dependence and vectorise. */
__attribute__((always_inline)) static inline REAL NAME(fold_max)(REAL *lane) {
  for (int width = LANES / 2; width >= 1; width /= 2)
    for (int l = 0; l < width; l++) lane[l] = lane[l + width] > lane[l] ? lane[l + width] : lane[l];
  return lane[0];
}

__attribute__((always_inline)) static inline REAL NAME(fold_sum)(REAL *lane) {
  for (int width = LANES / 2; width >= 1; width /= 2)
    for (int l = 0; l < width; l++) lane[l] += lane[l + width];
  return lane[0];
}

__attribute__((always_inline)) static inline REAL NAME(maximum)(const ELEM *x, int64_t count) {
  REAL lane[LANES];
  for (int l = 0; l < LANES; l++) lane[l] = (REAL)-INFINITY;
  int64_t j = 0;
  for (; j + LANES <= count; j += LANES)
    for (int l = 0; l < LANES; l++) lane[l] = GET(x[j + l]) > lane[l] ? GET(x[j + l]) : lane[l];
  for (int l = 0; l < count - j; l++) lane[l] = GET(x[j + l]) > lane[l] ? GET(x[j + l]) : lane[l];
  return NAME(fold_max)(lane);
}

__attribute__((always_inline)) static inline REAL NAME(sum_exp)(const ELEM *x, int64_t count, REAL max) {
  REAL lane[LANES] = {0};
  int64_t j = 0;
  for (; j + LANES <= count; j += LANES)
    for (int l = 0; l < LANES; l++) lane[l] += REAL_EXP(GET(x[j + l]) - max);
  for (int l = 0; l < count - j; l++) lane[l] += REAL_EXP(GET(x[j + l]) - max);
  return NAME(fold_sum)(lane);
}

ZPK_CLONES static void NAME(ce_stats)(const ELEM *logits, int64_t V, int64_t first_col, int64_t vocabulary,
                                      const int32_t *labels, const int32_t *lengths, REAL *stat, int64_t begin,
                                      int64_t end) {
  for (int64_t r = begin; r < end; r++) {
    const ELEM *x = logits + r * V;
    int64_t valid = valid_columns(V, first_col, lengths ? lengths[r] : vocabulary);
    REAL max = NAME(maximum)(x, valid);
    int64_t label = labels[r] - first_col;
    stat[r * 3] = max;
    stat[r * 3 + 1] = max == (REAL)-INFINITY ? 0 : NAME(sum_exp)(x, valid, max);
    stat[r * 3 + 2] = label >= 0 && label < valid ? GET(x[label]) : (REAL)-INFINITY;
  }
}

static double NAME(ce_loss)(const REAL *stat, int ranks, int64_t rows, int64_t vocabulary, const int32_t *labels,
                            REAL *lse, int64_t *right, int64_t begin, int64_t end) {
  double loss = 0;
  for (int64_t r = begin; r < end; r++) {
    double max = -INFINITY, label_logit = -INFINITY, sum = 0;
    for (int i = 0; i < ranks; i++) {
      const REAL *s = stat + (i * rows + r) * 3;
      max = fmax(max, (double)s[0]);
      label_logit = fmax(label_logit, (double)s[2]);
    }
    for (int i = 0; i < ranks; i++) {
      const REAL *s = stat + (i * rows + r) * 3;
      sum += (double)s[1] * exp((double)s[0] - max);
    }
    double row_lse = max + log(sum);
    lse[r] = (REAL)row_lse;
    if (labels && (labels[r] < 0 || labels[r] >= vocabulary)) continue;
    loss += row_lse - label_logit;
    *right += labels && label_logit == max;
  }
  return loss;
}

/* What a row's gradient is made of: probability * grown - even, all times factor. Without options 1 and 0. */
typedef struct NAME(slope) {
  REAL lse, grown, even, factor;
} NAME(slope);

__attribute__((always_inline)) static inline REAL NAME(slope_at)(REAL x, NAME(slope) s) {
  return (REAL_EXP(x - s.lse) * s.grown - s.even) * s.factor;
}

/* x and out do not overlap. */
__attribute__((always_inline)) static inline void NAME(softmax_row)(const ELEM *restrict x, int64_t count,
                                                                    NAME(slope) s, ELEM *restrict out) {
  for (int64_t j = 0; j < count; j++) out[j] = PUT(NAME(slope_at)(GET(x[j]), s));
}

ZPK_CLONES static void NAME(ce_grad)(const ELEM *logits, int64_t V, int64_t first_col, int64_t vocabulary,
                                     const int32_t *labels, const int32_t *lengths, const REAL *lse,
                                     zpk_targets targets, double scale, ELEM *dlogits, int64_t begin, int64_t end) {
  NAME(slope) s = {.even = (REAL)(targets.smoothing / (double)vocabulary), .factor = (REAL)scale};
  REAL hit = (REAL)(1 - targets.smoothing);
  for (int64_t r = begin; r < end; r++) {
    const ELEM *x = logits + r * V;
    ELEM *dx = dlogits + r * V;
    int64_t valid = valid_columns(V, first_col, lengths ? lengths[r] : vocabulary);
    s.lse = lse[r];
    s.grown = (REAL)(1 + 2 * targets.z * (double)lse[r]);
    if (labels[r] < 0 || labels[r] >= vocabulary) {
      memset(dx, 0, (size_t)V * sizeof(ELEM));
      continue;
    }
    int64_t label = labels[r] - first_col;
    bool here = label >= 0 && label < valid;
    REAL label_logit = here ? GET(x[label]) : 0; /* read first: dx may be x */
    if (dx == x)
      for (int64_t j = 0; j < valid; j++) dx[j] = PUT(NAME(slope_at)(GET(dx[j]), s));
    else
      NAME(softmax_row)(x, valid, s, dx);
    memset(dx + valid, 0, (size_t)(V - valid) * sizeof(ELEM));
    if (here) dx[label] = PUT((REAL_EXP(label_logit - s.lse) * s.grown - s.even - hit) * s.factor);
  }
}
