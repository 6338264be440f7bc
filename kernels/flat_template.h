/* Flat buffers in one dtype: see flat.c. */

ZPK_CLONES static double NAME(block_squares)(const REAL *restrict x, int64_t count) {
  double lane[LANES] = {0};
  int64_t j = 0;
  for (; j + LANES <= count; j += LANES)
    for (int l = 0; l < LANES; l++) lane[l] += (double)x[j + l] * (double)x[j + l];
  for (int l = 0; l < count - j; l++) lane[l] += (double)x[j + l] * (double)x[j + l];
  for (int width = LANES / 2; width >= 1; width /= 2)
    for (int l = 0; l < width; l++) lane[l] += lane[l + width];
  return lane[0];
}

ZPK_CLONES static void NAME(add)(REAL *restrict y, const REAL *restrict x, int64_t count) {
  for (int64_t i = 0; i < count; i++) y[i] += x[i];
}

static void NAME(fill)(REAL *y, REAL value, int64_t count) {
  for (int64_t i = 0; i < count; i++) y[i] = value;
}
