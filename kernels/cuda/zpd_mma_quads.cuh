/* SPDX-License-Identifier: Apache-2.0 */
/* The two products of tiles on Volta's tensor cores, mma.m8n8k4: four quad pairs multiply for themselves. Part of
 * zpd_mma_tile.cuh.
 *
 * The pairs of a warp have a fragment of 16 rows and 16 columns: two and two share 8 rows, and two and two 8 columns.
 * Its rows and columns are dealt out so that a lane has of the fragment what it has of two of mma.m16n8k16: scores and
 * weights are [M][N][4] a lane, and value i of part n of 16 rows m is row 16 m + 8 (i / 2) + group, column 8 n + 2
 * place
 * + i % 2. Lanes l have, in bits of l: rows group = l0 + 2 l4 + 4 l3, columns place = l1 + 2 l2. As a factor of the
 * scores a lane has row 8 l1 + group of the left, and row l0 + 2 l1 + 4 l2 + 8 l4 of the right.
 *
 * Sums come with two rows and two neighbouring columns a lane, but are wanted with one row and four as left factors of
 * the second product: lanes l and l ^ 2 change what they have, and lanes l and l ^ 4, whose pairs share rows, give each
 * other a copy. Each pair begins with the columns that are its own. */
#ifndef ZPD_MMA_QUADS_CUH
#define ZPD_MMA_QUADS_CUH

/* Wide heads have no registers for addresses that a compiler would keep from step to step: it must not know that it has
 * computed them before. */
ZPD_DEVICE int zpd_computed_again(int x) {
#ifndef ZPD_HOST
  if (ZPD_MMA_COLS > 128) asm volatile("" : "+r"(x));
#endif
  return x;
}

ZPD_DEVICE zpd_rows_of_lane zpd_reads_row(int row) {
  const int again = zpd_computed_again(row);
  const zpd_rows_of_lane mine = {again * ZPD_ROW_BYTES, zpd_swap(again) * 16};
  return mine;
}

ZPD_DEVICE zpd_rows_of_lane zpd_my_left_row() { return zpd_reads_row(zpd_mma_lane() / 2 % 2 * 8 + zpd_group()); }
ZPD_DEVICE zpd_rows_of_lane zpd_my_right_row() { return zpd_reads_row(zpd_mma_lane() % 8 + zpd_mma_lane() / 16 * 8); }

/* Rows of this warp's part of a tile as a left factor, read once and held, or each time. */
template <int M, bool HELD> struct zpd_left {
  alignas(16) unsigned held[HELD ? ZPD_CHUNKS : 1][M][4];
  const unsigned char *tile;
  __device__ __forceinline__ void begin(const unsigned char *rows) {
    tile = rows;
    if constexpr (HELD) {
      const zpd_rows_of_lane mine = zpd_my_left_row();
      ZPD_EACH (k, ZPD_CHUNKS)
        ZPD_EACH (m, M) zpd_move_16(held[k][m], mine.at(tile, 16 * m, k));
    }
  }
  __device__ __forceinline__ void get(unsigned (&to)[M][4], const zpd_rows_of_lane &mine, int k) const {
    if constexpr (HELD) {
      ZPD_EACH (m, M)
        ZPD_EACH (i, 4) to[m][i] = held[k][m][i];
    } else
      ZPD_EACH (m, M) zpd_move_16(to[m], mine.at(tile, 16 * m, k));
  }
};

/* score [16 M, 8 N] = left times rows from `right` on, transposed, plus a number for each row. A chunk is two steps of
 * four elements. */
template <int M, int N, bool HELD>
ZPD_DEVICE void zpd_scores_of(float (&score)[M][N][4], const zpd_left<M, HELD> &left, const unsigned char *right,
                              const float (&plus)[M][2]) {
  const zpd_rows_of_lane left_row = zpd_my_left_row(), right_row = zpd_my_right_row();
  ZPD_EACH (m, M)
    ZPD_EACH (n, N)
      ZPD_EACH (i, 4) score[m][n][i] = plus[m][i / 2];
#pragma unroll(HELD ? ZPD_CHUNKS : ZPD_MMA_COLS > 128 ? 1 : 8)
  for (int k = 0; k < ZPD_CHUNKS; k++) {
    alignas(16) unsigned a[M][4];
    left.get(a, left_row, k);
    ZPD_EACH (n, N / 2) {
      alignas(16) unsigned b[4];
      zpd_move_16(b, right_row.at(right, 16 * n, k));
      ZPD_EACH (step, 2)
        ZPD_EACH (m, M)
          zpd_mma_m8n8k4<false>(score[m][2 * n], score[m][2 * n + 1], a[m][2 * step], a[m][2 * step + 1], b[2 * step],
                                b[2 * step + 1]);
    }
  }
}

/* Weights of 16 rows and 16 columns as left factors of four steps: columns 8 (s % 2) + 4 (own ^ s / 2) and the three
 * next, where `own` is bit 2 of the lane. */
ZPD_DEVICE void zpd_left_of_sums(unsigned (&to)[4][2], const float (&low)[4], const float (&high)[4]) {
  const bool second = zpd_mma_lane() / 2 % 2;
  ZPD_EACH (s, 2) {
    const float(&x)[4] = s ? high : low;
    const unsigned row = zpd_round_pair(x[0], x[1]), row_8 = zpd_round_pair(x[2], x[3]);
    const unsigned mine = second ? row_8 : row, taken = __shfl_xor_sync(0xffffffffu, second ? row : row_8, 2);
    to[s][0] = second ? taken : mine;
    to[s][1] = second ? mine : taken;
    ZPD_EACH (i, 2) to[2 + s][i] = __shfl_xor_sync(0xffffffffu, to[s][i], 4);
  }
}

/* out [16 M, cols] += weights [16 M, 8 N], rounded to 16 bits, times rows from `right` on. */
template <int M, int N>
ZPD_DEVICE void zpd_add_product(float (&out)[M][ZPD_CHUNKS][4], const float (&weights)[M][N][4],
                                const unsigned char *right) {
  const int lane = zpd_mma_lane(), own = lane / 4 % 2, chunk = lane / 16;
  const zpd_rows_of_lane rows[2] = {zpd_reads_row(lane % 4 + 4 * own), zpd_reads_row(lane % 4 + 4 * (1 - own))};
  ZPD_EACH (k, N / 2) {
    unsigned a[M][4][2];
    ZPD_EACH (m, M) zpd_left_of_sums(a[m], weights[m][2 * k], weights[m][2 * k + 1]);
    ZPD_EACH (s, 4)
      ZPD_EACH (c, ZPD_CHUNKS / 2) {
        alignas(8) unsigned b[2];
        const zpd_rows_of_lane mine = {rows[s / 2].row_bytes + 8 * own,
                                       rows[s / 2].swap_bytes ^ (chunk ^ (int)(s % 2 * ZPD_SWAP_EIGHTS)) * 16};
        zpd_move_8(b, mine.at(right, 16 * k + s % 2 * 8, 2 * c));
        ZPD_EACH (m, M) zpd_mma_m8n8k4<true>(out[m][2 * c], out[m][2 * c + 1], a[m][s][0], a[m][s][1], b[0], b[1]);
      }
  }
}

#endif
