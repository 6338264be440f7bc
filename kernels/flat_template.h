/* SPDX-License-Identifier: Apache-2.0 */
/* Flat buffers in one dtype: see flat.c. */

ZPK_CLONES static double NAME(block_squares)(const ELEM *restrict x, int64_t count) {
  double lane[LANES] = {0};
  int64_t j = 0;
  for (; j + LANES <= count; j += LANES)
    for (int l = 0; l < LANES; l++) lane[l] += (double)GET(x[j + l]) * (double)GET(x[j + l]);
  for (int l = 0; l < count - j; l++) lane[l] += (double)GET(x[j + l]) * (double)GET(x[j + l]);
  for (int width = LANES / 2; width >= 1; width /= 2)
    for (int l = 0; l < width; l++) lane[l] += lane[l + width];
  return lane[0];
}

/* Columns in blocks that stay in registers or the nearest cache, so that a sum is rounded to ELEM once. */
ZPK_CLONES static void NAME(sum_parts)(ELEM *out, const void *const *part, int n, int64_t begin, int64_t end) {
  REAL sum[BLOCK_SUMS];
  for (int64_t at = begin; at < end; at += BLOCK_SUMS) {
    int64_t cols = end - at < BLOCK_SUMS ? end - at : BLOCK_SUMS;
    for (int p = 0; p < n; p++) {
      const ELEM *x = (const ELEM *)part[p] + at;
      for (int64_t i = 0; i < cols; i++) sum[i] = p == 0 ? GET(x[i]) : sum[i] + GET(x[i]);
    }
    for (int64_t i = 0; i < cols; i++) out[at + i] = PUT(sum[i]);
  }
}
