/* The two products of tiles where there are ldmatrix and mma.m16n8k16: sm_80 and later. Part of zpd_mma_tile.cuh.
 *
 * Scores and weights are [M][N][4] a lane: value i of part n of 16 rows m is row 16 m + 8 (i / 2) + group, column 8 n +
 * 2 place + i % 2. */
#ifndef ZPD_MMA_LDMATRIX_CUH
#define ZPD_MMA_LDMATRIX_CUH

/* LEFT: rows 0 to 7 and 8 to 15 of the first chunk, then of the second: registers of a left factor, and, transposed, of
 * a right one. Else both chunks of rows 0 to 7, then of rows 8 to 15: two right factors. */
template <bool LEFT> ZPD_DEVICE zpd_rows_of_lane zpd_my_rows() {
  const int l = zpd_mma_lane(), row = LEFT ? l % 16 : l / 16 * 8 + l % 8, second = LEFT ? l / 16 : l / 8 % 2;
  const zpd_rows_of_lane mine = {row * ZPD_ROW_BYTES, (second ^ zpd_swap(row)) * 16};
  return mine;
}

/* Rows of this warp's part of a tile as a left factor, read once and held, or each time. */
template <int M, bool HELD> struct zpd_left {
  unsigned held[HELD ? ZPD_CHUNKS / 2 : 1][M][4];
  const unsigned char *tile;
  __device__ __forceinline__ void begin(const unsigned char *rows) {
    tile = rows;
    if constexpr (HELD) {
      const zpd_rows_of_lane mine = zpd_my_rows<true>();
      ZPD_EACH (k, ZPD_CHUNKS / 2)
        ZPD_EACH (m, M) zpd_ldmatrix<false>(held[k][m], mine.at(tile, 16 * m, 2 * k));
    }
  }
  __device__ __forceinline__ void get(unsigned (&to)[M][4], const zpd_rows_of_lane &mine, int k) const {
    if constexpr (HELD) {
      ZPD_EACH (m, M)
        ZPD_EACH (i, 4) to[m][i] = held[k][m][i];
    } else
      ZPD_EACH (m, M) zpd_ldmatrix<false>(to[m], mine.at(tile, 16 * m, 2 * k));
  }
};

/* score [16 M, 8 N] = left times rows from `right` on, transposed. */
template <int M, int N, bool HELD>
ZPD_DEVICE void zpd_scores_of(float (&score)[M][N][4], const zpd_left<M, HELD> &left, const unsigned char *right) {
  const zpd_rows_of_lane left_rows = zpd_my_rows<true>(), right_rows = zpd_my_rows<false>();
  ZPD_EACH (m, M)
    ZPD_EACH (n, N)
      ZPD_EACH (i, 4) score[m][n][i] = 0;
#pragma unroll(HELD ? ZPD_CHUNKS / 2 : ZPD_MMA_COLS > 128 ? 2 : 8)
  for (int k = 0; k < ZPD_CHUNKS / 2; k++) {
    unsigned a[M][4];
    left.get(a, left_rows, k);
    ZPD_EACH (n, N / 2) {
      unsigned b[4];
      zpd_ldmatrix<false>(b, right_rows.at(right, 16 * n, 2 * k));
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
  const zpd_rows_of_lane rows = zpd_my_rows<true>();
  ZPD_EACH (k, N / 2) {
    unsigned a[M][4];
    ZPD_EACH (m, M)
      ZPD_EACH (i, 4)
        a[m][i] = zpd_round_pair(weights[m][2 * k + i / 2][i % 2 * 2], weights[m][2 * k + i / 2][i % 2 * 2 + 1]);
    ZPD_EACH (c, ZPD_CHUNKS / 2) {
      unsigned b[4];
      zpd_ldmatrix<true>(b, rows.at(right, 16 * k, 2 * c));
      ZPD_EACH (m, M) {
        zpd_mma_m16n8k16(out[m][2 * c], a[m], b[0], b[1]);
        zpd_mma_m16n8k16(out[m][2 * c + 1], a[m], b[2], b[3]);
      }
    }
  }
}

#endif
