/* SPDX-License-Identifier: Apache-2.0 */
/* Building blocks of attention in one dtype and one instruction set: packing, the small matrix product, row reductions.
 * Expects REAL, ELEM, GET, NAME, VECTOR_BYTES and VECTORS (vectors per panel of results). */

typedef REAL NAME(vec) __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL)), may_alias));
#define LANES ((int64_t)(VECTOR_BYTES / sizeof(REAL)))
#define PANEL (VECTORS * LANES)

/* rows x hd of a strided matrix into `to` with leading dimension ld; padding columns, and rows up to a multiple of
 * ROWS, are zero. */
static void NAME(pack_rows)(const ELEM *from, int64_t from_ld, int64_t rows, int64_t hd, REAL *to, int64_t ld) {
  int64_t padded_rows = (rows + ROWS - 1) / ROWS * ROWS;
  for (int64_t i = 0; i < padded_rows; i++, to += ld) {
    int64_t cols = i < rows ? hd : 0;
    for (int64_t j = 0; j < cols; j++) to[j] = GET(from[i * from_ld + j]);
    memset(to + cols, 0, (size_t)(ld - cols) * sizeof(REAL));
  }
}

/* The transpose of rows x hd: to[hd][width], zero in columns >= rows. */
static void NAME(pack_transposed)(const ELEM *from, int64_t from_ld, int64_t rows, int64_t hd, REAL *to,
                                  int64_t width) {
  if (rows < width) memset(to, 0, (size_t)(hd * width) * sizeof(REAL));
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < hd; j++) to[j * width + i] = GET(from[i * from_ld + j]);
}

/* c[m, n] = (add ? c : 0) + a[m, k] b[k, n]; a's element (i, p) is a[i * a_row + p * a_col], so a transposed matrix
 * costs nothing. m is rounded up to ROWS and n to 64 bytes: a, b and c must have room for that. */
static void NAME(multiply)(const REAL *restrict a, int64_t a_row, int64_t a_col, const REAL *restrict b, int64_t ldb,
                           int64_t m, int64_t n, int64_t k, bool add, REAL *restrict c, int64_t ldc) {
  for (int64_t j = 0; j < n; j += PANEL)
    for (int64_t i = 0; i < m; i += ROWS) {
      NAME(vec) sum[ROWS][VECTORS];
      REAL *c_tile = c + i * ldc + j;
      for (int x = 0; x < ROWS; x++)
        for (int y = 0; y < VECTORS; y++)
          sum[x][y] = add ? *(NAME(vec) *)(c_tile + x * ldc + y * LANES) : (NAME(vec)){0};
      const REAL *a_col_p = a + i * a_row, *b_row_p = b + j;
      for (int64_t p = 0; p < k; p++, a_col_p += a_col, b_row_p += ldb)
        for (int x = 0; x < ROWS; x++)
          for (int y = 0; y < VECTORS; y++) sum[x][y] += a_col_p[x * a_row] * *(const NAME(vec) *)(b_row_p + y * LANES);
      for (int x = 0; x < ROWS; x++)
        for (int y = 0; y < VECTORS; y++) *(NAME(vec) *)(c_tile + x * ldc + y * LANES) = sum[x][y];
    }
}

/* Sum of 16 partial results, pairwise. */
static inline REAL NAME(fold_sum)(REAL part[16]) {
  for (int width = 8; width >= 1; width /= 2)
    for (int l = 0; l < width; l++) part[l] += part[l + width];
  return part[0];
}

static inline REAL NAME(dot)(const REAL *x, const ELEM *y, int64_t count) {
  REAL part[16] = {0};
  int64_t j = 0;
  for (; j + 16 <= count; j += 16)
    for (int l = 0; l < 16; l++) part[l] += x[j + l] * GET(y[j + l]);
  for (int l = 0; l < count - j; l++) part[l] += x[j + l] * GET(y[j + l]);
  return NAME(fold_sum)(part);
}

static inline REAL NAME(block_sum)(const REAL *x) {
  REAL part[16];
  for (int l = 0; l < 16; l++) part[l] = x[l] + x[l + 16] + x[l + 32];
  return NAME(fold_sum)(part);
}

static inline REAL NAME(block_max)(const REAL *x) {
  REAL part[16];
  for (int l = 0; l < 16; l++) {
    REAL two = x[l] > x[l + 16] ? x[l] : x[l + 16];
    part[l] = two > x[l + 32] ? two : x[l + 32];
  }
  for (int width = 8; width >= 1; width /= 2)
    for (int l = 0; l < width; l++) part[l] = part[l] > part[l + width] ? part[l] : part[l + width];
  return part[0];
}
