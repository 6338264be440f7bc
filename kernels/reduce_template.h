/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions in one dtype: see reduce.c. */

/* The largest of every column of x[n, ld]; NaN if there is one. */
ZPK_CLONES static void NAME(largest)(const ELEM *restrict x, int64_t n, int64_t ld, int64_t count, REAL *restrict max) {
  for (int64_t j = 0; j < count; j++) max[j] = GET(x[j]);
  for (int64_t i = 1; i < n; i++)
    for (int64_t j = 0; j < count; j++) {
      REAL v = GET(x[i * ld + j]);
      max[j] = v > max[j] || v != v ? v : max[j];
    }
}

ZPK_CLONES static void NAME(sums)(const ELEM *restrict x, int64_t n, int64_t ld, int64_t count, REAL *restrict sum) {
  for (int64_t j = 0; j < count; j++) sum[j] = 0;
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < count; j++) sum[j] += GET(x[i * ld + j]);
}

ZPK_CLONES static void NAME(sums_of_exp)(const ELEM *restrict x, int64_t n, int64_t ld, int64_t count,
                                         const REAL *restrict max, REAL *restrict sum) {
  for (int64_t j = 0; j < count; j++) sum[j] = 0;
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < count; j++) sum[j] += REAL_EXP(GET(x[i * ld + j]) - max[j]);
}

/* A line whose numbers stand side by side is LANES columns, and a rest. */
static void NAME(row)(const ELEM *x, int64_t n, zpk_reduction kind, REAL *max, REAL *sum) {
  REAL lanes[LANES], shift[LANES];
  int64_t whole = n / LANES;
  *max = GET(x[0]);
  *sum = 0;
  if (kind != ZPK_SUM && whole > 0) {
    NAME(largest)(x, whole, LANES, LANES, lanes);
    for (int l = 0; l < LANES; l++) *max = lanes[l] > *max || lanes[l] != lanes[l] ? lanes[l] : *max;
  }
  for (int64_t i = whole * LANES; kind != ZPK_SUM && i < n; i++) {
    REAL v = GET(x[i]);
    *max = v > *max || v != v ? v : *max;
  }
  if (kind == ZPK_MAX) return;
  for (int l = 0; l < LANES; l++) shift[l] = *max;
  if (whole > 0 && kind == ZPK_SUM) NAME(sums)(x, whole, LANES, LANES, lanes);
  if (whole > 0 && kind != ZPK_SUM) NAME(sums_of_exp)(x, whole, LANES, LANES, shift, lanes);
  for (int l = 0; whole > 0 && l < LANES; l++) *sum += lanes[l];
  for (int64_t i = whole * LANES; i < n; i++) *sum += kind == ZPK_SUM ? GET(x[i]) : REAL_EXP(GET(x[i]) - *max);
}

/* max and sum of `count` lines side by side, what of them the kind wants. */
static void NAME(lines)(const zpk_reduce_args *a, const ELEM *x, int64_t count, REAL *max, REAL *sum) {
  if (a->inner == 1) {
    NAME(row)(x, a->n, (zpk_reduction)a->kind, max, sum);
    return;
  }
  if (a->kind != ZPK_SUM) NAME(largest)(x, a->n, a->inner, count, max);
  if (a->kind == ZPK_SUM) NAME(sums)(x, a->n, a->inner, count, sum);
  if (a->kind == ZPK_LOG_SUM_EXP) NAME(sums_of_exp)(x, a->n, a->inner, count, max, sum);
}

static void NAME(reduce)(const zpk_reduce_args *a, int64_t begin, int64_t end) {
  REAL max[BLOCK], sum[BLOCK];
  for (int64_t at = begin, count; at < end; at += count) {
    count = zpk_reduce_stretch(a, at, end);
    NAME(lines)(a, (const ELEM *)a->x + at / a->inner * a->n * a->inner + at % a->inner, count, max, sum);
    for (int64_t j = 0; j < count; j++) {
      REAL y = a->kind == ZPK_SUM   ? sum[j] * (REAL)a->scale
               : a->kind == ZPK_MAX ? max[j]
                                    : max[j] + (REAL)log((double)sum[j]);
      ((ELEM *)a->to)[at + j] = PUT(y);
    }
  }
}

/* dx of `count` lines side by side; the gradient of a maximum goes to the first one that is as large. */
ZPK_CLONES static void NAME(lines_grad)(const zpk_reduce_args *a, const ELEM *restrict x, const ELEM *restrict dy,
                                        ELEM *restrict dx, int64_t count, const REAL *max, REAL *restrict sum) {
  for (int64_t j = 0; j < count; j++) {
    REAL d = GET(dy[j]) * (REAL)a->scale;
    sum[j] = a->kind == ZPK_LOG_SUM_EXP ? d / sum[j] : d; /* from here on the factor of what is left of it */
  }
  for (int64_t i = 0; i < a->n; i++) {
    const ELEM *restrict from = x + i * a->inner;
    ELEM *restrict to = dx + i * a->inner;
    if (a->kind == ZPK_SUM)
      for (int64_t j = 0; j < count; j++) to[j] = PUT(sum[j]);
    else if (a->kind == ZPK_LOG_SUM_EXP)
      for (int64_t j = 0; j < count; j++) to[j] = PUT(sum[j] * REAL_EXP(GET(from[j]) - max[j]));
    else
      for (int64_t j = 0; j < count; j++) {
        bool hit = GET(from[j]) == max[j];
        to[j] = PUT(hit ? sum[j] : 0);
        sum[j] = hit ? 0 : sum[j];
      }
  }
}

static void NAME(reduce_grad)(const zpk_reduce_args *a, int64_t begin, int64_t end) {
  REAL max[BLOCK], sum[BLOCK];
  for (int64_t at = begin, count; at < end; at += count) {
    count = zpk_reduce_stretch(a, at, end);
    int64_t first = at / a->inner * a->n * a->inner + at % a->inner;
    const ELEM *x = (const ELEM *)a->x + first;
    if (a->kind != ZPK_SUM) NAME(lines)(a, x, count, max, sum);
    NAME(lines_grad)(a, x, (const ELEM *)a->dy + at, (ELEM *)a->to + first, count, max, sum);
  }
}
