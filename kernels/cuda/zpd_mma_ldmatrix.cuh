/* SPDX-License-Identifier: Apache-2.0 */
/* The two products of tiles where there are ldmatrix and mma.m16n8k16: sm_80 and later. Part of zpd_mma_tile.cuh.
 *
 * Scores and weights are [M][N][4] a lane: value i of part n of 16 rows m is row 16 m + 8 (i / 2) + group, column 8 n +
 * 2 place + i % 2. */
#ifndef ZPD_MMA_LDMATRIX_CUH
#define ZPD_MMA_LDMATRIX_CUH

/* Where a lane reads in every 16 rows of some rows of a tile: it names a row for ldmatrix, whose chunks are swapped.
 * Rows and the chunks that are swapped begin at multiples of their size, so that one exclusive or finds a chunk.
 *
 * LEFT: rows 0 to 7 and 8 to 15 of the first chunk, then of the second: registers of a left factor, and, transposed, of
 * a right one. Else both chunks of rows 0 to 7, then of rows 8 to 15: two right factors. */
template <bool LEFT> struct zpd_lane_rows {
  enum { MASK = (ZPD_SWAPPED - 1) * 16 };
#ifdef ZPD_HOST
  const unsigned char *row;
  int swap_bytes;
#else
  unsigned row;
#endif
  __device__ __forceinline__ zpd_lane_rows(const unsigned char *rows) {
    const int l = zpd_mma_lane(), r = LEFT ? l % 16 : l / 16 * 8 + l % 8, second = LEFT ? l / 16 : l / 8 % 2;
#ifdef ZPD_HOST
    row = rows + r * ZPD_ROW_BYTES;
    swap_bytes = (second ^ zpd_swap(r)) * 16;
#else
    unsigned offset = r * ZPD_ROW_BYTES + (second ^ zpd_swap(r)) * 16;
    asm("" : "+r"(offset)); /* an address that a compiler does not take to pieces */
    row = zpd_shared_address(rows) + offset;
#endif
  }
  template <bool TRANSPOSED> __device__ __forceinline__ void get(unsigned (&to)[4], int rows, int chunk) const {
#ifdef ZPD_HOST
    zpd_ldmatrix<TRANSPOSED>(to, row + rows * ZPD_ROW_BYTES + (chunk * 16 ^ swap_bytes));
#else
    zpd_ldmatrix_at<TRANSPOSED>(to, (row ^ (chunk * 16 & MASK)) + (rows * ZPD_ROW_BYTES + (chunk * 16 & ~MASK)));
#endif
  }
};

/* Rows of this warp's part of a tile as a left factor, read once and held, or each time. */
template <int M, bool HELD> struct zpd_left {
  unsigned held[HELD ? ZPD_CHUNKS / 2 : 1][M][4];
  const unsigned char *tile;
  __device__ __forceinline__ void begin(const unsigned char *rows) {
    tile = rows;
    if constexpr (HELD) {
      const zpd_lane_rows<true> mine(tile);
      ZPD_EACH (k, ZPD_CHUNKS / 2)
        ZPD_EACH (m, M) mine.template get<false>(held[k][m], 16 * m, 2 * k);
    }
  }
  __device__ __forceinline__ void get(unsigned (&to)[M][4], const zpd_lane_rows<true> &mine, int k) const {
    if constexpr (HELD) {
      ZPD_EACH (m, M)
        ZPD_EACH (i, 4) to[m][i] = held[k][m][i];
    } else
      ZPD_EACH (m, M) mine.template get<false>(to[m], 16 * m, 2 * k);
  }
};

/* score [16 M, 8 N] = left times rows from `right` on, transposed, plus a number for each row. */
template <int M, int N, bool HELD>
ZPD_DEVICE void zpd_scores_of(float (&score)[M][N][4], const zpd_left<M, HELD> &left, const unsigned char *right,
                              const float (&plus)[M][2]) {
  const zpd_lane_rows<true> left_rows(left.tile);
  const zpd_lane_rows<false> right_rows(right);
  ZPD_EACH (m, M)
    ZPD_EACH (n, N)
      ZPD_EACH (i, 4) score[m][n][i] = plus[m][i / 2];
#pragma unroll(HELD ? ZPD_CHUNKS / 2 : ZPD_MMA_COLS > 128 ? 2 : 8)
  for (int k = 0; k < ZPD_CHUNKS / 2; k++) {
    unsigned a[M][4];
    left.get(a, left_rows, k);
    ZPD_EACH (n, N / 2) {
      unsigned b[4];
      right_rows.template get<false>(b, 16 * n, 2 * k);
      ZPD_EACH (m, M) {
        zpd_mma_m16n8k16(score[m][2 * n], a[m], b[0], b[1]);
        zpd_mma_m16n8k16(score[m][2 * n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

/* out [16 M, cols] += weights [16 M, 8 N], rounded to 16 bits, times rows from `right` on. */
template <int M, int N>
ZPD_DEVICE void zpd_add_product(float (&out)[M][ZPD_CHUNKS][4], const float (&weights)[M][N][4],
                                const unsigned char *right) {
  const zpd_lane_rows<true> rows(right);
  ZPD_EACH (k, N / 2) {
    unsigned a[M][4];
    ZPD_EACH (m, M)
      ZPD_EACH (i, 4)
        a[m][i] = zpd_round_pair(weights[m][2 * k + i / 2][i % 2 * 2], weights[m][2 * k + i / 2][i % 2 * 2 + 1]);
    ZPD_EACH (c, ZPD_CHUNKS / 2) {
      unsigned b[4];
      rows.template get<true>(b, 16 * k, 2 * c);
      ZPD_EACH (m, M) {
        zpd_mma_m16n8k16(out[m][2 * c], a[m], b[0], b[1]);
        zpd_mma_m16n8k16(out[m][2 * c + 1], a[m], b[2], b[3]);
      }
    }
  }
}

#endif
