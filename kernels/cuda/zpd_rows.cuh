/* What generated row kernels call besides zpd_device.h: the random stream of dropout, the columns of rotary pairs.
 *
 * A block, or for narrow rows a warp, works on one row. */
#ifndef ZPD_ROWS_CUH
#define ZPD_ROWS_CUH

#include "zpd_device.h"

/* ---- over a warp: every lane gives x and gets the same result ---- */

ZPD_DEVICE real zpd_warp_sum(real x) {
  for (int lane = ZPD_WARP / 2; lane > 0; lane /= 2) x += __shfl_xor_sync(0xffffffffu, x, lane);
  return x;
}
ZPD_DEVICE real zpd_warp_max(real x) {
  for (int lane = ZPD_WARP / 2; lane > 0; lane /= 2) x = zpd_max(x, __shfl_xor_sync(0xffffffffu, x, lane));
  return x;
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

/* Columns [from, to) of sum i: the group's chunks to the place of its first one, in order. */
ZPD_DEVICE void zpd_add_chunks_of_group(const zpd_rows &a, int i, int cols, int from, int to) {
  real *partial = (real *)a.partial[i] + (zpd_int)zpd_group_begin() * cols;
  const int size = zpd_group_size(a);
  for (int c = from + (int)threadIdx.x; c < to && c < cols; c += ZPD_ROW_THREADS) {
    real sum = 0;
    for (int chunk = 0; chunk < size; chunk++) sum += zpd_read_others(partial + (zpd_int)chunk * cols + c);
    partial[c] = sum;
  }
}

/* Columns [from, to) of sum i: the groups, in order, to where the sum is wanted; rounded once. */
ZPD_DEVICE void zpd_add_groups(const zpd_rows &a, int i, int cols, int from, int to) {
  const real *partial = (const real *)a.partial[i];
  elem *out = (elem *)a.sum[i];
  const bool add = a.accumulate >> i & 1;
  for (int c = from + (int)threadIdx.x; c < to && c < cols; c += ZPD_ROW_THREADS) {
    real sum = add ? (real)out[c] : 0;
    for (int chunk = 0; chunk < a.chunks; chunk += ZPD_CHUNKS_OF_GROUP)
      sum += zpd_read_others(partial + (zpd_int)chunk * cols + c);
    out[c] = sum;
  }
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

/* Word element % 4 of Philox4x32-10 (Salmon et al., SC 2011) at counter (element / 4, stream and instance, sample,
 * step). */
ZPD_DEVICE unsigned zpd_random_word(const zpd_stream &s, int column) {
  zpd_uint element = s.element + (zpd_uint)column;
  unsigned x0 = (unsigned)(element / 4), x1 = s.stream_instance, x2 = s.sample, x3 = s.step;
  unsigned key0 = s.key0, key1 = s.key1;
#pragma unroll
  for (int round = 0; round < 10; round++) {
    zpd_uint p = (zpd_uint)0xD2511F53u * x0, q = (zpd_uint)0xCD9E8D57u * x2;
    x0 = (unsigned)(q >> 32) ^ x1 ^ key0;
    x1 = (unsigned)q;
    x2 = (unsigned)(p >> 32) ^ x3 ^ key1;
    x3 = (unsigned)p;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  unsigned word = (unsigned)element & 3;
  return word < 2 ? word == 0 ? x0 : x1 : word == 2 ? x2 : x3;
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
