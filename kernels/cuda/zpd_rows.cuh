/* SPDX-License-Identifier: Apache-2.0 */
/* What generated row kernels call besides zpd_device.h: the random stream of dropout, the columns of rotary pairs.
 *
 * A block, or for narrow rows a warp, works on one row. */
#ifndef ZPD_ROWS_CUH
#define ZPD_ROWS_CUH

#include "zpd_philox.cuh"

/* ---- over a warp: every lane gives x and gets the same result ---- */

ZPD_DEVICE real zpd_warp_sum(real x) {
  for (int lane = ZPD_WARP / 2; lane > 0; lane /= 2) x += __shfl_xor_sync(0xffffffffu, x, lane);
  return x;
}
ZPD_DEVICE real zpd_warp_max(real x) {
  for (int lane = ZPD_WARP / 2; lane > 0; lane /= 2) x = zpd_max(x, __shfl_xor_sync(0xffffffffu, x, lane));
  return x;
}

/* ---- a row of `cols` columns, a multiple of ZPD_VEC: the packs of thread `thread` of THREADS ---- */

template <int THREADS, int PACKS>
ZPD_DEVICE void zpd_load_row(zpd_raw (&to)[PACKS], const elem *row, int thread, int cols, bool packs) {
  ZPD_EACH (i, PACKS) {
    const int first = (thread + i * THREADS) * ZPD_VEC;
    if (first < cols) to[i] = zpd_raw_load(row + first, ZPD_VEC, packs);
  }
}

/* ---- sums over columns ---- */

ZPD_DEVICE int zpd_group_begin() { return (int)blockIdx.x / ZPD_CHUNKS_OF_GROUP * ZPD_CHUNKS_OF_GROUP; }
ZPD_DEVICE int zpd_group_size(const zpd_rows &a) {
  const int left = a.chunks - zpd_group_begin();
  return left < ZPD_CHUNKS_OF_GROUP ? left : (int)ZPD_CHUNKS_OF_GROUP;
}

/* Asked by all threads of a block when its sums stand in partial[]. */
ZPD_DEVICE bool zpd_is_last_of_group(const zpd_rows &a) {
  unsigned *tickets = a.tickets + (zpd_int)blockIdx.y * ZPD_TICKETS_OF_TILE;
  return zpd_comes_last(tickets + 1 + blockIdx.x / ZPD_CHUNKS_OF_GROUP, (unsigned)zpd_group_size(a));
}
ZPD_DEVICE bool zpd_is_last_group(const zpd_rows &a) {
  const unsigned groups = (unsigned)(a.chunks + ZPD_CHUNKS_OF_GROUP - 1) / ZPD_CHUNKS_OF_GROUP;
  return zpd_comes_last(a.tickets + (zpd_int)blockIdx.y * ZPD_TICKETS_OF_TILE, groups);
}

/* ZPD_VEC sums to neighbouring places, 16 bytes at a time: `to` is at a multiple of them. */
ZPD_DEVICE void zpd_store_sums(real *to, const real *sum) {
  ZPD_EACH (i, ZPD_VEC / ZPD_PACK) {
    zpd_pack pack;
    ZPD_EACH (k, ZPD_PACK) pack.at[k] = sum[i * ZPD_PACK + k];
    *(zpd_pack *)(to + i * ZPD_PACK) = pack;
  }
}

ZPD_DEVICE void zpd_add(real &sum, real x) { sum += x; }
ZPD_DEVICE void zpd_add(zpd_pack &sum, const zpd_pack &x) {
  ZPD_EACH (k, ZPD_PACK) sum.at[k] += x.at[k];
}

/* `sum` and, in order, the `count` that stand `step` apart from `at` on. AT_ONCE are on their way at a time: one after
 * the other they would take as long as the rows did. */
template <int AT_ONCE, class T> ZPD_DEVICE T zpd_add_up(T sum, const T *at, int count, zpd_int step) {
  for (int first = 0; first < count; first += AT_ONCE) {
    T x[AT_ONCE];
    ZPD_EACH (k, AT_ONCE)
      if (first + k < count) x[k] = zpd_read_others(at + (zpd_int)(first + k) * step);
    ZPD_EACH (k, AT_ONCE)
      if (first + k < count) zpd_add(sum, x[k]);
  }
  return sum;
}

/* Whether packs of the sums may be moved: rows of partial[] are whole ones. */
ZPD_DEVICE bool zpd_sums_are_packs(const real *partial, int cols) {
  return cols % ZPD_PACK == 0 && zpd_begins_pack(partial);
}

/* Columns [from, to) of sum i: the group's chunks to the place of its first one, in order. `from`: a multiple of 32. */
template <int AT_ONCE> ZPD_DEVICE void zpd_add_chunks_of_group(const zpd_rows &a, int i, int cols, int from, int to) {
  real *partial = (real *)a.partial[i] + (zpd_int)zpd_group_begin() * cols;
  const int size = zpd_group_size(a), end = to < cols ? to : cols;
  if (zpd_sums_are_packs(partial, cols)) {
    const zpd_pack none = {};
    for (int c = from + (int)threadIdx.x * ZPD_PACK; c < end; c += ZPD_ROW_THREADS * ZPD_PACK) {
      const zpd_pack sum = zpd_add_up<AT_ONCE>(none, (const zpd_pack *)(partial + c), size, cols / ZPD_PACK);
      zpd_move_16(partial + c, &sum);
    }
  } else
    for (int c = from + (int)threadIdx.x; c < end; c += ZPD_ROW_THREADS)
      partial[c] = zpd_add_up<AT_ONCE, real>(0, partial + c, size, cols);
}

/* Columns [from, to) of sum i: the groups, in order, to where the sum is wanted. */
template <int AT_ONCE> ZPD_DEVICE void zpd_add_groups(const zpd_rows &a, int i, int cols, int from, int to) {
  const real *partial = (const real *)a.partial[i];
  real *out = (real *)a.sum[i];
  const bool add = a.accumulate >> i & 1;
  const int groups = (a.chunks + ZPD_CHUNKS_OF_GROUP - 1) / ZPD_CHUNKS_OF_GROUP, end = to < cols ? to : cols;
  const zpd_int step = (zpd_int)ZPD_CHUNKS_OF_GROUP * cols;
  if (zpd_sums_are_packs(partial, cols) && zpd_begins_pack(out)) {
    const zpd_pack none = {};
    for (int c = from + (int)threadIdx.x * ZPD_PACK; c < end; c += ZPD_ROW_THREADS * ZPD_PACK)
      *(zpd_pack *)(out + c) = zpd_add_up<AT_ONCE>(add ? *(const zpd_pack *)(out + c) : none,
                                                   (const zpd_pack *)(partial + c), groups, step / ZPD_PACK);
  } else
    for (int c = from + (int)threadIdx.x; c < end; c += ZPD_ROW_THREADS)
      out[c] = zpd_add_up<AT_ONCE, real>(add ? out[c] : 0, partial + c, groups, step);
}

/* ---- dropout ---- */

/* The numbers of one row: zpk_philox with column 0 at `element`. */
struct zpd_stream {
  zpd_uint element;
  unsigned stream_instance, sample, step, key0, key1;
};

ZPD_DEVICE zpd_stream zpd_stream_of_row(const zpd_rows &a, zpd_uint stream, unsigned sample, unsigned position) {
  zpd_stream s;
  s.element = (zpd_uint)position * (zpd_uint)a.logical_columns + (zpd_uint)a.first_column;
  s.stream_instance = (unsigned)(stream << 16 | a.instance);
  s.sample = (unsigned)((zpd_uint)a.first_sample + sample);
  s.step = (unsigned)a.step;
  s.key0 = (unsigned)a.seed;
  s.key1 = (unsigned)(a.seed >> 32);
  return s;
}

/* Word element % 4 of zpk_philox at counter (element / 4, stream and instance, sample, step). */
ZPD_DEVICE unsigned zpd_random_word(const zpd_stream &s, int column) {
  zpd_uint element = s.element + (zpd_uint)column;
  unsigned x[4] = {(unsigned)(element / 4), s.stream_instance, s.sample, s.step};
  zpd_philox(x, s.key0, s.key1);
  unsigned word = (unsigned)element & 3;
  return word < 2 ? word == 0 ? x[0] : x[1] : word == 2 ? x[2] : x[3];
}

/* ---- rotary pairs: column i of the first half of a head with column i of the second, or neighbours ---- */

ZPD_DEVICE int zpd_other_half(int column, int head) {
  return column % head < head / 2 ? column + head / 2 : column - head / 2;
}
ZPD_DEVICE int zpd_other_neighbour(int column) { return column ^ 1; }

ZPD_DEVICE void zpd_turn(double angle, real *cosine, real *sine) {
  double s, c;
  sincos(angle, &s, &c);
  *cosine = (real)c;
  *sine = (real)s;
}

/* x in the first column of a pair is -x. */
ZPD_DEVICE real zpd_sign_of_half(int column, int head, real x) { return column % head < head / 2 ? -x : x; }
ZPD_DEVICE real zpd_sign_of_neighbour(int column, real x) { return column % 2 == 0 ? -x : x; }

#endif
