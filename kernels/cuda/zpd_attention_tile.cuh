/* SPDX-License-Identifier: Apache-2.0 */
/* Building blocks of attention: views of one head, and the two products of tiles that all three kernels are made of.
 *
 * A block of 128 threads holds a tile of 64 rows by N columns in registers: thread (y, x), y < 16, x < 8, has rows y
 * + 16 i and columns x + 8 j of scores, and packs x + 8 j of outputs. The eight threads of a row are neighbours in a
 * warp. A step of a product reads 4 + N / 8 packs from shared memory for 4 * (N / 8) * ZPD_PACK multiply-adds, so
 * arithmetic is the limit and not shared memory; paddings are chosen so that no two threads of a warp meet in a
 * bank. */
#ifndef ZPD_ATTENTION_TILE_CUH
#define ZPD_ATTENTION_TILE_CUH

#include "zpd_drop.cuh"

enum {
  ZPD_LANES = 8,                                  /* threads of a row */
  ZPD_GROUPS = ZPD_ATTENTION_THREADS / ZPD_LANES, /* rows that are handled at once */
  ZPD_MINE = ZPD_ATTENTION_ROWS / ZPD_GROUPS,     /* rows of a thread */
  ZPD_UNIT = ZPD_LANES * ZPD_PACK,                /* head sizes are rounded up to 128 bytes */
  ZPD_SLICE = ZPD_UNIT,                           /* columns of the head at once in scores */
  ZPD_SLICE_LD = ZPD_SLICE + ZPD_PACK
};

ZPD_DEVICE int zpd_x() { return threadIdx.x % ZPD_LANES; }
ZPD_DEVICE int zpd_y() { return threadIdx.x / ZPD_LANES; }

/* Rows of one head from some row on. Outside of rows x cols there are zeros. */
struct zpd_view {
  const elem *at;
  zpd_int ld;
  int rows, cols;
  bool packs; /* rows begin where packs may */
};

ZPD_DEVICE zpd_view zpd_head_rows(const void *x, zpd_int ld, zpd_int row, zpd_int rows, zpd_int head, zpd_int hd) {
  const elem *at = (const elem *)x + row * ld + head * hd;
  const zpd_view view = {at, ld, (int)rows, (int)hd, zpd_aligned(at) && ld % ZPD_PACK == 0};
  return view;
}

ZPD_DEVICE zpd_pack zpd_view_load(const zpd_view &v, int row, int col) {
  zpd_pack p = {};
  if (row < v.rows) {
    const elem *from = v.at + row * v.ld + col;
    if (v.packs && col + ZPD_PACK <= v.cols)
      p = zpd_get(from);
    else
      ZPD_EACH (e, ZPD_PACK) p.at[e] = col + e < v.cols ? (real)from[e] : 0;
  }
  return p;
}

/* ROWS x COLS of a view to shared memory: all loads first, neighbouring threads read neighbouring packs. */
template <int ROWS, int COLS> struct zpd_stage {
  enum { PACKS = COLS / ZPD_PACK, MINE = ROWS * PACKS / ZPD_ATTENTION_THREADS };
  static_assert(ROWS * PACKS % ZPD_ATTENTION_THREADS == 0, "every thread moves as many packs");
  zpd_pack held[MINE];

  __device__ __forceinline__ void load(const zpd_view &v, int row, int col) {
    ZPD_EACH (i, MINE) {
      const int p = threadIdx.x + i * ZPD_ATTENTION_THREADS;
      held[i] = zpd_view_load(v, row + p / PACKS, col + p % PACKS * ZPD_PACK);
    }
  }
  __device__ __forceinline__ void store(real *to, int ld) const {
    ZPD_EACH (i, MINE) {
      const int p = threadIdx.x + i * ZPD_ATTENTION_THREADS;
      *(zpd_pack *)(to + p / PACKS * ld + p % PACKS * ZPD_PACK) = held[i];
    }
  }
};

/* Elements of shared memory that the products want for staging. */
template <int N, int C> struct zpd_staging {
  enum {
    STEP = C > 64 ? 16 : 32, /* rows of a [N, C] factor at once */
    SLICES = (ZPD_ATTENTION_ROWS + N) * ZPD_SLICE_LD,
    FACTOR = STEP * C,
    PACKS = (SLICES > FACTOR ? SLICES : FACTOR) / ZPD_PACK
  };
};

/* score[i][j] = row y + 16 i of the first view times row x + 8 j (from `row` on) of the second: 64 x N numbers, over
 * slices of columns. 2 * 64 * N * hd FLOP for (64 + N) * hd loaded elements. */
template <int N>
ZPD_DEVICE void zpd_scores(const zpd_view &a, const zpd_view &b, int row, real *stage,
                           real (&score)[ZPD_MINE][N / ZPD_LANES]) {
  real *a_slice = stage, *b_slice = stage + ZPD_ATTENTION_ROWS * ZPD_SLICE_LD;
  ZPD_EACH (i, ZPD_MINE)
    ZPD_EACH (j, N / ZPD_LANES) score[i][j] = 0;
  for (int first = 0; first < a.cols; first += ZPD_SLICE) {
    zpd_stage<ZPD_ATTENTION_ROWS, ZPD_SLICE> of_a;
    zpd_stage<N, ZPD_SLICE> of_b;
    of_a.load(a, 0, first);
    of_b.load(b, row, first);
    __syncthreads(); /* nobody reads the former contents any more */
    of_a.store(a_slice, ZPD_SLICE_LD);
    of_b.store(b_slice, ZPD_SLICE_LD);
    __syncthreads();
#pragma unroll 1
    for (int c = 0; c < ZPD_SLICE; c += ZPD_PACK) {
      zpd_pack left[ZPD_MINE];
      ZPD_EACH (i, ZPD_MINE) left[i] = *(const zpd_pack *)(a_slice + (zpd_y() + i * ZPD_GROUPS) * ZPD_SLICE_LD + c);
      ZPD_EACH (j, N / ZPD_LANES) {
        const zpd_pack right = *(const zpd_pack *)(b_slice + (zpd_x() + j * ZPD_LANES) * ZPD_SLICE_LD + c);
        ZPD_EACH (i, ZPD_MINE)
          ZPD_EACH (e, ZPD_PACK) score[i][j] += left[i].at[e] * right.at[e];
      }
    }
  }
}

/* A 64 x N matrix in shared memory, between the threads that have computed it and those that multiply with it. */
template <int N> struct zpd_weights {
  enum { LD = N + 8, PACKS = ZPD_ATTENTION_ROWS * LD / ZPD_PACK };
};

template <int N> ZPD_DEVICE void zpd_share(const real (&mine)[ZPD_MINE][N / ZPD_LANES], real *weights) {
  ZPD_EACH (i, ZPD_MINE)
    ZPD_EACH (j, N / ZPD_LANES)
      weights[(zpd_y() + i * ZPD_GROUPS) * zpd_weights<N>::LD + zpd_x() + j * ZPD_LANES] = mine[i][j];
}

/* out [64, C] += weights [64, N] times rows `row` .. row + N - 1, columns `col` .. col + C - 1 of a view. The
 * first barrier inside makes the weights visible that were shared before the call. */
template <int N, int C>
ZPD_DEVICE void zpd_multiply(const real *weights, const zpd_view &b, int row, int col, real *stage,
                             real (&out)[ZPD_MINE][C / ZPD_LANES]) {
  enum { STEP = zpd_staging<N, C>::STEP, PACKS = C / ZPD_UNIT };
#pragma unroll 1
  for (int first = 0; first < N; first += STEP) {
    zpd_stage<STEP, C> of_b;
    of_b.load(b, row + first, col);
    __syncthreads();
    of_b.store(stage, C);
    __syncthreads();
#pragma unroll 1
    for (int k = 0; k < STEP; k += ZPD_PACK) {
      zpd_pack left[ZPD_MINE];
      ZPD_EACH (i, ZPD_MINE)
        left[i] = *(const zpd_pack *)(weights + (zpd_y() + i * ZPD_GROUPS) * zpd_weights<N>::LD + first + k);
      ZPD_EACH (e, ZPD_PACK)
        ZPD_EACH (p, PACKS) {
          const zpd_pack right = *(const zpd_pack *)(stage + (k + e) * C + (zpd_x() + p * ZPD_LANES) * ZPD_PACK);
          ZPD_EACH (i, ZPD_MINE)
            ZPD_EACH (f, ZPD_PACK) out[i][p * ZPD_PACK + f] += left[i].at[e] * right.at[f];
        }
    }
  }
}

/* out, times a factor a row, to columns `col` on of `rows` rows of a head. */
template <int C>
ZPD_DEVICE void zpd_store_rows(const real (&out)[ZPD_MINE][C / ZPD_LANES], const real (&factor)[ZPD_MINE],
                               const zpd_view &to, int col) {
  ZPD_EACH (i, ZPD_MINE) {
    const int row = zpd_y() + i * ZPD_GROUPS;
    if (row >= to.rows) continue;
    ZPD_EACH (p, C / ZPD_UNIT) {
      const int first = col + (zpd_x() + p * ZPD_LANES) * ZPD_PACK;
      elem *at = (elem *)to.at + row * to.ld + first;
      zpd_pack pack;
      ZPD_EACH (e, ZPD_PACK) pack.at[e] = out[i][p * ZPD_PACK + e] * factor[i];
      if (to.packs && first + ZPD_PACK <= to.cols)
        zpd_put(at, pack);
      else
        ZPD_EACH (e, ZPD_PACK)
          if (first + e < to.cols) at[e] = pack.at[e];
    }
  }
}

/* Heads of padding have zeros, and rows from `first` on that are not there. */
ZPD_DEVICE void zpd_clear_rows(const zpd_view &to, int first) {
  for (int row = first + zpd_y(); row < to.rows; row += ZPD_GROUPS)
    for (int c = zpd_x(); c < to.cols; c += ZPD_LANES) ((elem *)to.at)[row * to.ld + c] = 0;
}

/* Over the eight threads of a row; all get the result. */
ZPD_DEVICE real zpd_row_sum(real x) {
  for (int lane = ZPD_LANES / 2; lane > 0; lane /= 2) x += __shfl_xor_sync(0xffffffffu, x, lane);
  return x;
}

ZPD_DEVICE real zpd_row_max(real x) {
  for (int lane = ZPD_LANES / 2; lane > 0; lane /= 2) {
    const real other = __shfl_xor_sync(0xffffffffu, x, lane);
    x = other > x ? other : x;
  }
  return x;
}

/* ---- dropout ---- */

#ifdef ZPD_DROPOUT
/* Which of N keys from `key` on a row of eight threads keeps. */
template <int N> struct zpd_kept_keys {
  unsigned word[N / 32];

  __device__ __forceinline__ void draw(const zpd_attention &a, zpd_int head, int query, int key) {
    ZPD_EACH (w, N / 32)
      word[w] = zpd_join_bits<1, 2>(zpd_keep_four(a, head, query, key + 32 * w + 4 * zpd_x()) << 4 * zpd_x());
    ZPD_EACH (w, N / 32) word[w] |= __shfl_xor_sync(0xffffffffu, word[w], 4);
  }
  /* What key zpd_x() + 8 j weighs. */
  __device__ __forceinline__ real factor(const zpd_attention &a, int j) const {
    return word[j / 4] >> (zpd_x() + j % 4 * ZPD_LANES) & 1 ? (real)a.more : 0;
  }
};

/* Which pairs of this thread are kept whose keys are the rows of a tile from `first` on and whose queries are N columns
 * from `query` on. Four rows of a warp are neighbours: each draws for one of its rows. */
template <int N> struct zpd_kept_queries {
  enum { COLUMNS = N / ZPD_LANES, LANE_STEP = ZPD_LANES };
  static_assert(COLUMNS == 4 && ZPD_MINE == 4, "sixteen bits a row");
  unsigned word[2];

  __device__ __forceinline__ void draw(const zpd_attention &a, zpd_int head, int query, int first) {
    const int mine = zpd_y() % ZPD_MINE, key = first + zpd_y() - mine + mine * ZPD_GROUPS;
    unsigned bits = 0;
    ZPD_EACH (j, COLUMNS) bits |= zpd_keep_four(a, head, query + zpd_x() + j * ZPD_LANES, key) << 4 * j;
    ZPD_EACH (w, 2) word[w] = zpd_join_bits<LANE_STEP, 2 * LANE_STEP>(mine / 2 == w ? bits << mine % 2 * 16 : 0);
  }
  __device__ __forceinline__ real factor(const zpd_attention &a, int i, int j) const {
    return word[i / 2] >> (i % 2 * 16 + 4 * j + zpd_y() % ZPD_MINE) & 1 ? (real)a.more : 0;
  }
};
#else
template <int N> struct zpd_kept_keys {
  __device__ __forceinline__ void draw(const zpd_attention &, zpd_int, int, int) {}
  __device__ __forceinline__ real factor(const zpd_attention &, int) const { return 1; }
};
template <int N> struct zpd_kept_queries {
  __device__ __forceinline__ void draw(const zpd_attention &, zpd_int, int, int) {}
  __device__ __forceinline__ real factor(const zpd_attention &, int, int) const { return 1; }
};
#endif

#endif
