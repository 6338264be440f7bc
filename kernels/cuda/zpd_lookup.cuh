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

/* Tokens are dealt to buckets by the number of their table row, and columns to groups of one per thread. A block takes
 * one bucket and one group: it looks through all ids, lists those of its bucket in order, and adds their rows. So
 * a table row has one owner, whatever the grid. Every block reads the ids (from L2: 4 * rows bytes), the rows of dy are
 * read once by one block. */
enum { ZPD_IDS_A_THREAD = 8, ZPD_IDS_A_PASS = ZPD_IDS_A_THREAD * ZPD_FLAT_THREADS };

/* The next ids of the bucket, at most one pass, as rows of dy in order; returns how many. Counting meets at a barrier,
 * so nobody reads the former list when this one is written. */
ZPD_DEVICE int zpd_list_bucket(const zpd_lookup &a, zpd_int first, int bucket, int buckets, zpd_int *list) {
  const zpd_int mine = first + threadIdx.x * ZPD_IDS_A_THREAD;
  bool taken[ZPD_IDS_A_THREAD];
  int count = 0, total;
  ZPD_EACH (i, ZPD_IDS_A_THREAD) {
    const zpd_int row = mine + i < a.rows ? a.ids[mine + i] - a.first_row : -1;
    taken[i] = row >= 0 && row < a.n_rows && (int)((unsigned)row % (unsigned)buckets) == bucket;
    count += taken[i];
  }
  int at = zpd_block_count_before(count, &total);
  ZPD_EACH (i, ZPD_IDS_A_THREAD)
    if (taken[i]) list[at++] = mine + i;
  __syncthreads();
  return total;
}

#ifdef ZPD_NARROW
/* All rows of the list that have the same table row are added in a register and rounded once: added one by one to a
 * 16-bit sum, the rows of a frequent token would soon be too small to change it. */
ZPD_DEVICE void zpd_add_listed(const zpd_lookup &a, const zpd_int *list, int count, zpd_int j) {
  const elem *dy = (const elem *)a.from;
  for (int i = 0; i < count; i++) {
    const int id = a.ids[list[i]];
    int before = 0;
    while (a.ids[list[before]] != id) before++;
    if (before < i) continue; /* done */
    elem *to = (elem *)a.to + (id - a.first_row) * a.cols + j;
    real sum = *to;
    for (int k = i; k < count; k++)
      if (a.ids[list[k]] == id) sum += dy[list[k] * a.cols + j];
    *to = sum;
  }
}
#else
/* Neighbours in the list that have the same table row are added in a register: frequent tokens do not wait for memory.
 */
ZPD_DEVICE void zpd_add_listed(const zpd_lookup &a, const zpd_int *list, int count, zpd_int j) {
  const real *dy = (const real *)a.from;
  for (int i = 0; i < count;) {
    const int id = a.ids[list[i]];
    real *to = (real *)a.to + (id - a.first_row) * a.cols + j, sum = *to;
    int end = i + 1;
    while (end < count && a.ids[list[end]] == id) end++;
    for (; i < end; i++) sum += dy[list[i] * a.cols + j];
    *to = sum;
  }
}
#endif

ZPD_KERNEL(zpd_embedding_grad, zpd_lookup) {
  __shared__ zpd_int list[ZPD_IDS_A_PASS];
  const int groups = (int)((a.cols + ZPD_FLAT_THREADS - 1) / ZPD_FLAT_THREADS), blocks = (int)gridDim.x;
  const int buckets = blocks > groups ? blocks / groups : 1;
  for (int part = blockIdx.x; part < buckets * groups; part += blocks) {
    const zpd_int j = (zpd_int)(part % groups) * ZPD_FLAT_THREADS + threadIdx.x;
    for (zpd_int first = 0; first < a.rows; first += ZPD_IDS_A_PASS) {
      const int count = zpd_list_bucket(a, first, part / groups, buckets, list);
      if (j < a.cols) zpd_add_listed(a, list, count, j);
    }
  }
}

/* A block a position, a thread a pack of columns. */
ZPD_KERNEL(zpd_position_grad, zpd_lookup) {
  const elem *dy = (const elem *)a.from;
  const bool packs = a.cols % ZPD_VEC == 0 && a.ld % ZPD_VEC == 0 && zpd_begins_pack(dy) && zpd_begins_pack(a.to);
  for (zpd_int s = blockIdx.x; s < a.S; s += gridDim.x) {
    elem *to = (elem *)a.to + s * a.cols;
    for (zpd_int j = threadIdx.x * ZPD_VEC; j < a.cols; j += ZPD_FLAT_THREADS * ZPD_VEC) {
      real sum[ZPD_VEC] = {};
      if (a.accumulate) {
        const zpd_raw old = zpd_raw_load(to + j, a.cols - j, packs);
        ZPD_EACH (k, ZPD_VEC) sum[k] = zpd_raw_at(old, k);
      }
      for (zpd_int b = 0; b < a.samples; b++) {
        const zpd_raw row = zpd_raw_load(dy + (b * a.S + s) * a.ld + j, a.cols - j, packs);
        ZPD_EACH (k, ZPD_VEC) sum[k] += zpd_raw_at(row, k);
      }
      zpd_raw_store(to + j, zpd_raw_of(sum), a.cols - j, packs);
    }
  }
}

#endif
