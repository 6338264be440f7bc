/* SPDX-License-Identifier: Apache-2.0 */
/* Table lookups and their gradients: token embedding and learned positions. Rows move once: 2 * rows * cols elements.
 * Every element of a gradient is summed by one thread, in the order of the rows: no atomics. */
#ifndef ZPD_LOOKUP_CUH
#define ZPD_LOOKUP_CUH

#include "zpd_device.h"

/* A block a row; 16 bytes a thread where all rows begin at multiples of 16. */
ZPD_KERNEL(zpd_embedding, zpd_lookup) {
  const elem *table = (const elem *)a.from;
  elem *out = (elem *)a.to;
  const bool packs = a.cols % ZPD_VEC == 0 && zpd_begins_pack(table) && zpd_begins_pack(out);
  const int cols = (int)a.cols;
  for (zpd_int r = blockIdx.x; r < a.rows; r += gridDim.x) {
    const zpd_int row = a.ids[r] - a.first_row;
    const bool here = row >= 0 && row < a.n_rows;
    const elem *from = table + (here ? row : 0) * a.cols;
    elem *to = out + r * a.cols;
    if (packs) {
      const zpd_raw zeros = {};
      for (int j = threadIdx.x * ZPD_VEC; j < cols; j += ZPD_FLAT_THREADS * ZPD_VEC)
        *(zpd_raw *)(to + j) = here ? *(const zpd_raw *)(from + j) : zeros;
    } else
      for (int j = threadIdx.x; j < cols; j += ZPD_FLAT_THREADS) to[j] = here ? from[j] : elem(0);
  }
}

/* Tokens are dealt to buckets by the number of their table row, and columns to groups of a pack for each lane. A block
 * takes one bucket and one group: it looks through all ids, a pass at a time, lists those of its bucket, sorts them by
 * their table row and adds the rows of dy that belong together: a warp where they are few, all warps of the block where
 * a token is frequent. So a table row has one owner, and the order of its sum does not depend on the grid. Every block
 * reads the ids (from L2: 4 * rows bytes), the rows of dy are read once by one block. */
enum {
  ZPD_IDS_A_THREAD = 8,
  ZPD_IDS_A_PASS = ZPD_IDS_A_THREAD * ZPD_FLAT_THREADS,
  ZPD_FREQUENT = 32, /* rows of one token in a pass that a warp does not add alone */
  ZPD_TOKENS_AT_ONCE = 8
};

/* Tokens of one pass: place in the pass and table row of each, in the order of the table rows; `same` is 0, or where
 * the first token of a table row stands, how many have it. */
struct zpd_bucket {
  int place[ZPD_IDS_A_PASS], row[ZPD_IDS_A_PASS], same[ZPD_IDS_A_PASS];
};

/* The next tokens of the bucket, at most one pass, in their order; returns how many. Counting meets at a barrier, so
 * nobody reads the former list when this one is written. */
ZPD_DEVICE int zpd_list_bucket(const zpd_lookup &a, zpd_int first, int bucket, int buckets, zpd_bucket &to) {
  const int mine = threadIdx.x * ZPD_IDS_A_THREAD;
  int row[ZPD_IDS_A_THREAD], count = 0, total;
  ZPD_EACH (i, ZPD_IDS_A_THREAD) {
    const zpd_int at = first + mine + i, id = at < a.rows ? a.ids[at] - a.first_row : -1;
    row[i] = id >= 0 && id < a.n_rows && (int)((unsigned)id % (unsigned)buckets) == bucket ? (int)id : -1;
    count += row[i] >= 0;
  }
  int at = zpd_block_count_before(count, &total);
  ZPD_EACH (i, ZPD_IDS_A_THREAD)
    if (row[i] >= 0) {
      to.place[at] = mine + i;
      to.row[at++] = row[i];
    }
  __syncthreads();
  return total;
}

/* Sorts by table row, stable: each token goes after those that come before it. Barriers before and after the
 * moves. */
ZPD_DEVICE void zpd_sort_bucket(zpd_bucket &b, int count) {
  int place[ZPD_IDS_A_THREAD], row[ZPD_IDS_A_THREAD], begin[ZPD_IDS_A_THREAD], before[ZPD_IDS_A_THREAD],
      same[ZPD_IDS_A_THREAD];
  ZPD_EACH (i, ZPD_IDS_A_THREAD) {
    const int at = threadIdx.x + i * ZPD_FLAT_THREADS;
    if (at >= count) break;
    place[i] = b.place[at], row[i] = b.row[at];
    begin[i] = before[i] = same[i] = 0;
    for (int other = 0; other < count; other++) {
      const int its = b.row[other];
      begin[i] += its < row[i];
      same[i] += its == row[i];
      before[i] += its == row[i] && other < at;
    }
  }
  __syncthreads();
  ZPD_EACH (i, ZPD_IDS_A_THREAD) {
    if ((int)threadIdx.x + i * ZPD_FLAT_THREADS >= count) break;
    const int to = begin[i] + before[i];
    b.place[to] = place[i];
    b.row[to] = row[i];
    b.same[to] = before[i] == 0 ? same[i] : 0;
  }
  __syncthreads();
}

/* Adds tokens `from`, from + step, ... before `end` of a sorted bucket to the sums of a lane's columns. */
ZPD_DEVICE void zpd_add_tokens(const zpd_lookup &a, const zpd_bucket &b, zpd_int first, int from, int end, int step,
                               zpd_int column, bool packs, real (&sum)[ZPD_VEC]) {
  for (int i = from; i < end; i += step * ZPD_TOKENS_AT_ONCE) {
    zpd_raw row[ZPD_TOKENS_AT_ONCE];
    ZPD_EACH (k, ZPD_TOKENS_AT_ONCE)
      if (i + k * step < end)
        row[k] = zpd_raw_load((const elem *)a.from + (first + b.place[i + k * step]) * a.cols + column, a.cols - column,
                              packs);
    ZPD_EACH (k, ZPD_TOKENS_AT_ONCE)
      if (i + k * step < end)
        ZPD_EACH (c, ZPD_VEC) sum[c] += zpd_raw_at(row[k], c);
  }
}

ZPD_DEVICE void zpd_add_to_row(real *to, zpd_int left, bool packs, const real (&sum)[ZPD_VEC]) {
  zpd_reals x = zpd_reals_load_some(to, left, packs);
  ZPD_EACH (c, ZPD_VEC) x.at[c] += sum[c];
  zpd_reals_store_some(to, x, left, packs);
}

/* The sums of a pass. of_warps: ZPD_WARP * ZPD_VEC columns for each warp. */
ZPD_DEVICE void zpd_add_bucket(const zpd_lookup &a, const zpd_bucket &b, int count, zpd_int first, zpd_int first_column,
                               bool packs, real *of_warps) {
  enum { COLUMNS = ZPD_WARP * ZPD_VEC };
  const int warp = threadIdx.x / ZPD_WARP, lane = threadIdx.x % ZPD_WARP;
  const zpd_int column = first_column + lane * ZPD_VEC, left = a.cols - column;
  real *to = (real *)a.to + column;
  for (int i = 0, turn = 0; i < count; i += b.same[i], turn++) {
    if (b.same[i] > ZPD_FREQUENT || turn % ZPD_WARPS != warp) continue;
    real sum[ZPD_VEC] = {};
    zpd_add_tokens(a, b, first, i, i + b.same[i], 1, column, packs, sum);
    zpd_add_to_row(to + b.row[i] * a.cols, left, packs, sum);
  }
  for (int i = 0; i < count; i += b.same[i]) {
    if (b.same[i] <= ZPD_FREQUENT) continue;
    real sum[ZPD_VEC] = {};
    zpd_add_tokens(a, b, first, i + warp, i + b.same[i], ZPD_WARPS, column, packs, sum);
    ZPD_EACH (c, ZPD_VEC) of_warps[warp * COLUMNS + lane * ZPD_VEC + c] = sum[c];
    __syncthreads();
    if (warp == 0) {
      for (int w = 1; w < ZPD_WARPS; w++)
        ZPD_EACH (c, ZPD_VEC) sum[c] += of_warps[w * COLUMNS + lane * ZPD_VEC + c];
      zpd_add_to_row(to + b.row[i] * a.cols, left, packs, sum);
    }
    __syncthreads();
  }
}

ZPD_KERNEL(zpd_embedding_grad, zpd_lookup) {
  enum { COLUMNS = ZPD_WARP * ZPD_VEC };
  __shared__ zpd_bucket bucket;
  __shared__ real of_warps[ZPD_WARPS * COLUMNS];
  const bool packs = a.cols % ZPD_VEC == 0 && zpd_begins_pack(a.from) && zpd_begins_pack(a.to);
  const int groups = (int)((a.cols + COLUMNS - 1) / COLUMNS), blocks = (int)gridDim.x;
  const int buckets = blocks > groups ? blocks / groups : 1;
  for (int part = blockIdx.x; part < buckets * groups; part += blocks)
    for (zpd_int first = 0; first < a.rows; first += ZPD_IDS_A_PASS) {
      const int count = zpd_list_bucket(a, first, part / groups, buckets, bucket);
      zpd_sort_bucket(bucket, count);
      zpd_add_bucket(a, bucket, count, first, (zpd_int)(part % groups) * COLUMNS, packs, of_warps);
    }
}

/* A block a position, a thread a pack of columns. */
ZPD_KERNEL(zpd_position_grad, zpd_lookup) {
  const elem *dy = (const elem *)a.from;
  const bool packs = a.cols % ZPD_VEC == 0 && a.ld % ZPD_VEC == 0 && zpd_begins_pack(dy) && zpd_begins_pack(a.to);
  for (zpd_int s = blockIdx.x; s < a.S; s += gridDim.x) {
    real *to = (real *)a.to + s * a.cols;
    for (zpd_int j = threadIdx.x * ZPD_VEC; j < a.cols; j += ZPD_FLAT_THREADS * ZPD_VEC) {
      zpd_reals sum = {};
      if (a.accumulate) sum = zpd_reals_load_some(to + j, a.cols - j, packs);
      for (zpd_int b = 0; b < a.samples; b++) {
        const zpd_raw row = zpd_raw_load(dy + (b * a.S + s) * a.ld + j, a.cols - j, packs);
        ZPD_EACH (k, ZPD_VEC) sum.at[k] += zpd_raw_at(row, k);
      }
      zpd_reals_store_some(to + j, sum, a.cols - j, packs);
    }
  }
}

#endif
