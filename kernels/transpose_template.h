/* SPDX-License-Identifier: Apache-2.0 */
/* Transpositions in one dtype: see transpose.c. */

ZPK_CLONES static void NAME(transpose)(const ELEM *restrict x, int64_t rows, int64_t cols, ELEM *restrict y,
                                       int64_t begin, int64_t end) {
  for (int64_t at = begin; at < end; at++) {
    int64_t b = at / ((cols + TILE - 1) / TILE), first = at % ((cols + TILE - 1) / TILE) * TILE;
    int64_t last = first + TILE < cols ? first + TILE : cols;
    const ELEM *restrict from = x + b * rows * cols;
    ELEM *restrict to = y + b * rows * cols;
    for (int64_t i = 0; i < rows; i += TILE)
      for (int64_t j = first; j < last; j++)
        for (int64_t k = i; k < (i + TILE < rows ? i + TILE : rows); k++) to[j * rows + k] = from[k * cols + j];
  }
}
