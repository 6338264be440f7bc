/* SPDX-License-Identifier: Apache-2.0 */
/* Building blocks of attention on tensor cores: tiles of heads in shared memory, the two products of tiles, the walk
 * over the steps of the other side.
 *
 * A tile has rows of zpd_mma_columns(ZPD_HEAD) elements in chunks of 16 bytes. Chunk c of row r lies at place c ^ f(r)
 * of its row, where f has as many bits as chunks may be swapped within the row: whatever eight rows lanes read
 * together, and whatever eight neighbouring chunks are copied, lie in different banks.
 *
 * Warp w of a block has 16 M rows of the tile from 16 M (w % WM) on; the 4 / WM warps with the same rows share out the
 * rows of a step. A lane has rows g and g + 8 of each 16, and columns 2 t, 2 t + 1 of each 8, with its group g and its
 * place t: whatever the tensor cores are, which zpd_mma_ldmatrix.cuh and zpd_mma_quads.cuh know. */
#ifndef ZPD_MMA_TILE_CUH
#define ZPD_MMA_TILE_CUH

#include "zpd_layouts.cuh"
#include "zpd_mma.cuh"
#include "zplan/zpd_mma_geometry.h"

enum {
  ZPD_MMA_THREADS = ZPD_MMA_WARPS * ZPD_WARP,
  ZPD_MMA_COLS = zpd_mma_columns(ZPD_HEAD),
  ZPD_CHUNKS = ZPD_MMA_COLS / 8,
  ZPD_ROW_BYTES = ZPD_MMA_COLS * 2,
  /* Chunks that may be swapped: the largest power of two up to 8 that divides them. Rows that together fill the banks
   * have the same f. */
  ZPD_SWAPPED = ZPD_CHUNKS % 8 == 0   ? 8
                : ZPD_CHUNKS % 4 == 0 ? 4
                                      : 2,
  ZPD_SAME_ROWS = 8 / ZPD_SWAPPED,
#ifdef ZPD_QUAD_PAIRS
  /* What f changes by in rows 8 to 15 of each 16: two rows are read together with those 8 after them. */
  ZPD_SWAP_EIGHTS = ZPD_SWAPPED == 8 ? 2 : 1,
  ZPD_MMA_MOST_BYTES = ZPD_MMA_SHARED_BYTES_VOLTA
#else
  ZPD_SWAP_EIGHTS = 0,
  ZPD_MMA_MOST_BYTES = ZPD_MMA_SHARED_BYTES
#endif
};
static_assert(ZPD_MMA_WARPS != 4 || (int)ZPD_MMA_THREADS == (int)ZPD_ATTENTION_THREADS,
              "the launch is the same for both kinds of attention");

ZPD_DEVICE int zpd_mma_lane() { return threadIdx.x % ZPD_WARP; }
ZPD_DEVICE int zpd_swap(int row) { return row / ZPD_SAME_ROWS % ZPD_SWAPPED ^ row / 8 % 2 * ZPD_SWAP_EIGHTS; }

/* Rows g and g + 8 of each 16 are a lane's, and columns 2 t and 2 t + 1 of each 8. The four lanes of a row are those
 * that differ in the bits ZPD_MATE and 2 ZPD_MATE, the four of neighbouring rows, whose first is a multiple of four,
 * those that differ in ZPD_NEIGHBOUR, a row, and ZPD_SECOND_NEIGHBOUR, two. */
#ifdef ZPD_QUAD_PAIRS
enum { ZPD_MATE = 2, ZPD_NEIGHBOUR = 1, ZPD_SECOND_NEIGHBOUR = 16 };
ZPD_DEVICE int zpd_group() {
  const int lane = zpd_mma_lane();
  return lane % 2 + lane / 16 * 2 + lane / 8 % 2 * 4;
}
#else
enum { ZPD_MATE = 1, ZPD_NEIGHBOUR = 4, ZPD_SECOND_NEIGHBOUR = 8 };
ZPD_DEVICE int zpd_group() { return zpd_mma_lane() / 4; }
#endif
ZPD_DEVICE int zpd_place() { return zpd_mma_lane() / ZPD_MATE % 4; }

/* ---- rows of one head ---- */

/* From row 0 of a sample on. After `rows` and `cols` there are zeros. */
struct zpd_head_view {
  const elem *at;
  zpd_int ld;
  int rows, cols;
  bool chunks; /* whole ones: rows begin where 16 bytes may be moved at once, and end so */
};

ZPD_DEVICE zpd_head_view zpd_head_at(const zpd_attention &a, zpd_int first_row, int rows, const void *x, zpd_int ld,
                                     int head) {
  const elem *at = (const elem *)x + first_row * ld + (zpd_int)head * a.hd;
  const zpd_head_view view = {at, ld, rows, (int)a.hd, (zpd_uint)at % 16 == 0 && ld % 8 == 0 && a.hd % 8 == 0};
  return view;
}

/* From the first query or key of the block's sample on. */
ZPD_DEVICE zpd_head_view zpd_head_of(const zpd_attention &a, int rows, const void *x, zpd_int ld, int head) {
  return zpd_head_at(a, (zpd_int)blockIdx.z * a.S, rows, x, ld, head);
}
ZPD_DEVICE zpd_head_view zpd_kv_head_of(const zpd_attention &a, int rows, const void *x, zpd_int ld, int head) {
  return zpd_head_at(a, (zpd_int)blockIdx.z * zpd_keys_of_sample(a), rows, x, ld, head);
}

#ifdef ZPD_QUAD_PAIRS
/* One chunk to registers. */
ZPD_DEVICE zpd_raw zpd_get_chunk(const zpd_head_view &v, int row, int col) {
  const bool there = row < v.rows && col < v.cols;
  return zpd_raw_load(there ? v.at + row * v.ld + col : v.at, there ? v.cols - col : 0, v.chunks);
}

/* ROWS rows from `first` on to a tile. Four chunks of a thread are on their way at once. Whoever reads waits for a
 * barrier. */
template <int ROWS> ZPD_DEVICE void zpd_fetch(unsigned char *tile, const zpd_head_view &v, int first_row) {
  enum {
    ALL = ROWS * ZPD_CHUNKS,
    EACH = (ALL + ZPD_MMA_THREADS - 1) / ZPD_MMA_THREADS,
    TOGETHER = EACH < 4 ? EACH : 4
  };
#pragma unroll(1)
  for (int first = 0; first < EACH; first += TOGETHER) {
    zpd_raw chunk[TOGETHER];
    ZPD_EACH (i, TOGETHER) {
      const int p = threadIdx.x + (first + i) * ZPD_MMA_THREADS, some = p < ALL ? p : 0;
      chunk[i] = zpd_get_chunk(v, first_row + some / ZPD_CHUNKS, some % ZPD_CHUNKS * 8);
    }
    ZPD_EACH (i, TOGETHER) {
      const int p = threadIdx.x + (first + i) * ZPD_MMA_THREADS, r = p / ZPD_CHUNKS;
      if (p < ALL) *(zpd_raw *)(tile + r * ZPD_ROW_BYTES + (p % ZPD_CHUNKS ^ zpd_swap(r)) * 16) = chunk[i];
    }
  }
}
/* Every chunk is found anew. */
struct zpd_lane_view {};
enum { ZPD_ROWS_AT_ONCE = 1, ZPD_EVEN_CHUNKS = 0 };
ZPD_DEVICE zpd_lane_view zpd_lane_view_of(const zpd_head_view &, const zpd_head_view &) { return {}; }
template <int ROWS> ZPD_DEVICE void zpd_fetch_lane(unsigned char *, const zpd_lane_view &, int, int, int) {}
#else
/* One chunk to shared memory. */
ZPD_DEVICE void zpd_fetch_chunk(unsigned char *to, const zpd_head_view &v, int row, int col) {
  const bool there = row < v.rows && col < v.cols;
  const elem *from = there ? v.at + row * v.ld + col : v.at;
  const int left = v.cols - col;
  if (v.chunks) {
    zpd_cp_async_whole(to, from, there);
    return;
  }
  alignas(16) elem chunk[8];
  ZPD_EACH (e, 8) chunk[e] = there && e < left ? from[e] : elem(0);
  zpd_move_16(to, chunk);
}

/* Two views of the same rows and columns, as a thread copies them that has the same chunk of every row that it copies:
 * from row to row little is computed. */
struct zpd_lane_view {
  const unsigned char *from[2]; /* its chunk of its first row of row 0 on */
  int row_bytes[2];
  int rows;    /* that are there from its first one on, none right of the columns */
  int cols;    /* from its chunk on */
  unsigned to; /* bytes of a tile before its chunk */
  bool whole;
};
enum { ZPD_ROWS_AT_ONCE = ZPD_MMA_THREADS / ZPD_CHUNKS, ZPD_EVEN_CHUNKS = ZPD_MMA_THREADS % ZPD_CHUNKS == 0 };

ZPD_DEVICE zpd_lane_view zpd_lane_view_of(const zpd_head_view &v, const zpd_head_view &w) {
  const int r = (int)(threadIdx.x / ZPD_CHUNKS), c = (int)(threadIdx.x % ZPD_CHUNKS);
  zpd_lane_view mine;
  mine.row_bytes[0] = (int)v.ld * 2;
  mine.row_bytes[1] = (int)w.ld * 2;
  mine.from[0] = (const unsigned char *)v.at + (zpd_int)r * mine.row_bytes[0] + 16 * c;
  mine.from[1] = (const unsigned char *)w.at + (zpd_int)r * mine.row_bytes[1] + 16 * c;
  mine.cols = v.cols - 8 * c;
  mine.rows = mine.cols > 0 ? v.rows - r : 0;
  mine.to = r * ZPD_ROW_BYTES + (c ^ zpd_swap(r)) * 16;
  mine.whole = v.chunks && w.chunks;
#ifndef ZPD_HOST
  /* Numbers that a compiler does not take to pieces. */
  asm("" : "+r"(mine.to), "+r"(mine.rows), "+l"(mine.from[0]), "+l"(mine.from[1]));
#endif
  return mine;
}

/* ROWS rows from `first` on of view i, of the head `bytes` further. */
template <int ROWS>
ZPD_DEVICE void zpd_fetch_lane(unsigned char *tile, const zpd_lane_view &v, int i, int first, int bytes) {
  static_assert(ROWS % ZPD_ROWS_AT_ONCE == 0, "all threads copy as much");
  enum { PER = ZPD_ROWS_AT_ONCE };
  const unsigned char *from = v.from[i] + (zpd_int)first * v.row_bytes[i] + bytes;
  const int there = v.rows - first;
  if (v.whole) {
#ifndef ZPD_HOST
    const unsigned at = zpd_shared_address(tile) + v.to;
#endif
    ZPD_EACH (n, ROWS / PER) {
      const unsigned char *row = from + (zpd_int)v.row_bytes[i] * (n * PER);
#ifdef ZPD_HOST
      zpd_cp_async_whole(tile + (v.to ^ zpd_swap(n * PER) * 16) + n * PER * ZPD_ROW_BYTES,
                         n * PER < there ? row : v.from[i], n * PER < there);
#else
      zpd_cp_async_whole_at((at ^ zpd_swap(n * PER) * 16) + n * PER * ZPD_ROW_BYTES, row, n * PER < there);
#endif
    }
    return;
  }
#pragma unroll(1)
  for (int r = 0; r < ROWS; r += PER) {
    alignas(16) elem chunk[8];
    const elem *row = (const elem *)(from + (zpd_int)v.row_bytes[i] * r);
    ZPD_EACH (e, 8) chunk[e] = r < there && e < v.cols ? row[e] : elem(0);
    zpd_move_16(tile + (v.to ^ zpd_swap(r) * 16) + r * ZPD_ROW_BYTES, chunk);
  }
}

/* ROWS rows from `first` on to a tile. Whoever reads waits for copies and for a barrier. */
template <int ROWS> ZPD_DEVICE void zpd_fetch(unsigned char *tile, const zpd_head_view &v, int first) {
  if constexpr (ZPD_EVEN_CHUNKS && ROWS % ZPD_ROWS_AT_ONCE == 0)
    zpd_fetch_lane<ROWS>(tile, zpd_lane_view_of(v, v), 0, first, 0);
  else {
#pragma unroll(1)
    for (int i = 0; i < (ROWS * ZPD_CHUNKS + ZPD_MMA_THREADS - 1) / ZPD_MMA_THREADS; i++) {
      const int p = threadIdx.x + i * ZPD_MMA_THREADS, r = p / ZPD_CHUNKS, c = p % ZPD_CHUNKS;
      if (ROWS * ZPD_CHUNKS % ZPD_MMA_THREADS == 0 || r < ROWS)
        zpd_fetch_chunk(tile + r * ZPD_ROW_BYTES + (c ^ zpd_swap(r)) * 16, v, first + r, 8 * c);
    }
  }
}

#endif

/* Changes the signs of a tile. A barrier after. */
template <int ROWS> ZPD_DEVICE void zpd_negate(unsigned char *tile) {
  for (int p = threadIdx.x; p < ROWS * ZPD_ROW_BYTES / 4; p += ZPD_MMA_THREADS) ((unsigned *)tile)[p] ^= 0x80008000u;
  __syncthreads();
}

/* A tile that all threads see to ROWS rows of a view from `first` on. */
template <int ROWS> ZPD_DEVICE void zpd_store_tile(const unsigned char *tile, const zpd_head_view &v, int first) {
  enum { PER = ZPD_MMA_THREADS / ZPD_CHUNKS, EVEN = ZPD_MMA_THREADS % ZPD_CHUNKS == 0 && ROWS % PER == 0 };
  if (EVEN && v.chunks) {
    const int r = (int)(threadIdx.x / ZPD_CHUNKS), c = (int)(threadIdx.x % ZPD_CHUNKS);
    const int there = 8 * c < v.cols ? v.rows - first - r : 0;
    const int row_bytes = (int)v.ld * 2;
    unsigned char *to = (unsigned char *)v.at + (zpd_int)(first + r) * row_bytes + 16 * c;
    unsigned offset = r * ZPD_ROW_BYTES + (c ^ zpd_swap(r)) * 16;
#ifndef ZPD_HOST
    asm("" : "+r"(offset)); /* an address that a compiler does not take to pieces */
#endif
    ZPD_EACH (i, ROWS / PER)
      if (i * PER < there)
        zpd_move_16(to + (zpd_int)row_bytes * (i * PER),
                    tile + (offset ^ zpd_swap(i * PER) * 16) + i * PER * ZPD_ROW_BYTES);
    return;
  }
#pragma unroll(1)
  for (int i = 0; i < (ROWS * ZPD_CHUNKS + ZPD_MMA_THREADS - 1) / ZPD_MMA_THREADS; i++) {
    const int p = threadIdx.x + i * ZPD_MMA_THREADS, r = p / ZPD_CHUNKS, c = p % ZPD_CHUNKS;
    const int row = first + r, left = v.cols - 8 * c;
    if (r >= ROWS || row >= v.rows || left <= 0) continue;
    elem *to = (elem *)v.at + row * v.ld + 8 * c;
    const unsigned char *from = tile + r * ZPD_ROW_BYTES + (c ^ zpd_swap(r)) * 16;
    if (v.chunks && left >= 8)
      zpd_move_16(to, from);
    else
      ZPD_EACH (e, 8)
        if (e < left) to[e] = ((const elem *)from)[e];
  }
}

/* Zeros to the rows of a tile from position `length` on, of a view of the whole sample: heads of padding have none
 * there. */
template <int ROWS> ZPD_DEVICE void zpd_clear_tile(const zpd_head_view &v, int first, int length) {
  const int begin = length > first ? length : first, end = (int)zpd_min(v.rows, first + ROWS);
  for (int p = threadIdx.x; p < (end - begin) * v.cols; p += ZPD_MMA_THREADS)
    ((elem *)v.at)[(begin + p / v.cols) * v.ld + p % v.cols] = elem(0);
}

/* ---- factors ---- */

/* Where a lane reads in every 16 rows of a tile, or names a row for ldmatrix: its row, whose chunks are swapped. */
struct zpd_rows_of_lane {
  int row_bytes, swap_bytes;
  __device__ __forceinline__ const unsigned char *at(const unsigned char *tile, int rows, int chunk) const {
    return tile + rows * ZPD_ROW_BYTES + row_bytes + (chunk * 16 ^ swap_bytes);
  }
};

#ifdef ZPD_QUAD_PAIRS
#include "zpd_mma_quads.cuh"
#else
#include "zpd_mma_ldmatrix.cuh"
#endif

template <int M, int N, bool HELD>
ZPD_DEVICE void zpd_scores_of(float (&score)[M][N][4], const zpd_left<M, HELD> &left, const unsigned char *right) {
  const float nothing[M][2] = {};
  zpd_scores_of<M, N>(score, left, right, nothing);
}

/* ---- sums in registers ---- */

template <int M> ZPD_DEVICE void zpd_clear_sums(float (&out)[M][ZPD_CHUNKS][4]) {
  ZPD_EACH (m, M)
    ZPD_EACH (c, ZPD_CHUNKS)
      ZPD_EACH (i, 4) out[m][c][i] = 0;
}

/* Over the four lanes of a row; all get the result. */
ZPD_DEVICE float zpd_quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, ZPD_MATE);
  return x + __shfl_xor_sync(0xffffffffu, x, 2 * ZPD_MATE);
}

ZPD_DEVICE float zpd_quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, ZPD_MATE));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2 * ZPD_MATE));
}

/* ---- out of registers ---- */

/* The sums of a warp's rows, times a factor a row, rounded, into rows of a tile. Only the warp's own rows. */
template <int M>
ZPD_DEVICE void zpd_put_rows(unsigned char *rows, const float (&out)[M][ZPD_CHUNKS][4], const float (&factor)[M][2]) {
  enum { MASK = ZPD_SWAPPED - 1 };
  unsigned offset = zpd_group() * ZPD_ROW_BYTES + zpd_swap(zpd_group()) * 16 + 4 * zpd_place();
#ifndef ZPD_HOST
  asm("" : "+r"(offset)); /* an address that a compiler does not take to pieces */
#endif
  ZPD_EACH (m, M)
    ZPD_EACH (half, 2)
      ZPD_EACH (c, ZPD_CHUNKS) {
        const float x = out[m][c][2 * half] * factor[m][half], y = out[m][c][2 * half + 1] * factor[m][half];
        const unsigned swapped = offset ^ ((c & MASK) ^ zpd_swap(8 * half)) * 16;
        *(unsigned *)(rows + swapped + (16 * m + 8 * half) * ZPD_ROW_BYTES + (c & ~MASK) * 16) = zpd_round_pair(x, y);
      }
}

/* Sums of the warps that have the same rows, in their order, times a factor, into the tile. `buffer`: f32, as large as
 * all sums. Barriers: before, between and after. */
template <int M, int WM>
ZPD_DEVICE void zpd_put_shared_rows(unsigned char *tile, const float (&out)[M][ZPD_CHUNKS][4],
                                    const float (&factor)[M][2], float *buffer) {
  enum { ROWS = 16 * M * WM, SHARERS = ZPD_MMA_WARPS / WM };
  const int warp = threadIdx.x / ZPD_WARP, g = zpd_group(), t = zpd_place();
  float *mine = buffer + (warp / WM * ROWS + warp % WM * 16 * M) * ZPD_MMA_COLS;
  __syncthreads();
  ZPD_EACH (m, M)
    ZPD_EACH (i, 4)
      ZPD_EACH (c, ZPD_CHUNKS)
        mine[(16 * m + i / 2 * 8 + g) * ZPD_MMA_COLS + 8 * c + 2 * t + i % 2] = out[m][c][i] * factor[m][i / 2];
  __syncthreads();
  for (int p = threadIdx.x; p < ROWS * ZPD_MMA_COLS / 2; p += ZPD_MMA_THREADS) {
    const int row = p / (ZPD_MMA_COLS / 2), pair = p % (ZPD_MMA_COLS / 2);
    float x = 0, y = 0;
    ZPD_EACH (s, SHARERS) {
      x += buffer[(s * ROWS + row) * ZPD_MMA_COLS + 2 * pair];
      y += buffer[(s * ROWS + row) * ZPD_MMA_COLS + 2 * pair + 1];
    }
    *(unsigned *)(tile + row * ZPD_ROW_BYTES + (pair / 4 ^ zpd_swap(row)) * 16 + pair % 4 * 4) = zpd_round_pair(x, y);
  }
  __syncthreads();
}

/* Sums of all warps to memory, through a tile of which nobody needs the contents any more when all have come. */
template <int M, int WM>
ZPD_DEVICE void zpd_store_sums(unsigned char *tile, float *buffer, const float (&out)[M][ZPD_CHUNKS][4],
                               const float (&factor)[M][2], const zpd_head_view &to, int first) {
  if constexpr (WM == ZPD_MMA_WARPS) {
    __syncthreads();
    zpd_put_rows<M>(tile + threadIdx.x / ZPD_WARP * 16 * M * ZPD_ROW_BYTES, out, factor);
    __syncthreads();
  } else
    zpd_put_shared_rows<M, WM>(tile, out, factor, buffer);
  zpd_store_tile<16 * M * WM>(tile, to, first);
}

/* ---- the walk over the other side ---- */

/* Units of UNIT rows that a tile meets, for each of some heads: those of the runs of blocks, cut to first .. end -
 * 1. */
template <int UNIT> struct zpd_walk {
  zpd_met met;
  int heads_left, head, run, from, to; /* the next unit begins at `from`, the run ends before `to` */
  int first, end;
#ifdef ZPD_HEAD_LAYOUTS
  int key, layout, number, others; /* the key that several heads meet, in layouts that they take in turns */
#endif

  __device__ __forceinline__ void begin(const zpd_met &m, int first_row, int end_row, int first_head, int heads) {
    met = m;
    first = first_row;
    end = end_row;
    head = first_head;
    heads_left = heads;
    run = -1;
    from = to = 0;
    seek();
  }
  /* What the tile of keys from key_row on meets, of several heads. */
  __device__ __forceinline__ void begin_heads(const zpd_attention &a, int key_row, int first_row, int end_row,
                                              int first_head, int heads) {
#ifdef ZPD_HEAD_LAYOUTS
    key = key_row;
    layout = a.layout;
    number = zpd_layout_number(a, first_head);
    others = (int)a.other_layouts;
#endif
    begin(zpd_meets(a, first_head, key_row, false), first_row, end_row, first_head, heads);
  }
  /* To a run that is not empty, of this head or one of the next. */
  __device__ __forceinline__ void seek() {
#ifdef ZPD_LAYOUTS
    while (from >= to && heads_left > 0) {
      if (++run == met.runs) {
        run = -1;
        head++;
        heads_left--;
#ifdef ZPD_HEAD_LAYOUTS
        if (heads_left > 0) {
          number = number < others ? number + 1 : 0;
          met = zpd_met_of(layout + number, key, false);
        }
#endif
        continue;
      }
      const zpd_tiles tiles = met.tiles(run, end);
      from = tiles.first < first ? first : tiles.first;
      to = tiles.end;
    }
#else
    /* One run for each head, which every head has. */
    if (run < 0) {
      run = 0;
      heads_left = first < end ? heads_left : 0;
      from = first;
      to = end;
    }
    if (from >= to) {
      from = first;
      head++;
      heads_left--;
    }
#endif
  }
  __device__ __forceinline__ bool more() const { return heads_left > 0; }
};

/* A step: up to STEP / UNIT units of one head. Row r of the step is row(r) of the head, a large number where there is
 * none. */
template <int STEP, int UNIT> struct zpd_walk_step {
  enum { UNITS = STEP / UNIT, NONE = 0x40000000 };
  int begin[UNITS], head;
  bool any;

  __device__ __forceinline__ void take(zpd_walk<UNIT> &walk) {
    any = walk.more();
    head = walk.head;
    ZPD_EACH (u, UNITS) {
      begin[u] = NONE;
      if (walk.more() && walk.head == head) {
        begin[u] = walk.from;
        walk.from += UNIT;
        walk.seek();
      }
    }
  }
  __device__ __forceinline__ int row(int r) const {
    if constexpr (UNITS == 1) return begin[0] + r;
    int unit = begin[0];
    ZPD_EACH (u, UNITS) unit = r / UNIT == u ? begin[u] : unit;
    return unit + r % UNIT;
  }
  /* Its rows of a view to a tile; which is view i of `mine`, of the head `bytes` before. */
  __device__ __forceinline__ void fetch(unsigned char *tile, const zpd_head_view &v, const zpd_lane_view &mine, int i,
                                        int bytes) const {
    ZPD_EACH (u, UNITS)
      if constexpr (ZPD_EVEN_CHUNKS && UNIT % ZPD_ROWS_AT_ONCE == 0)
        zpd_fetch_lane<UNIT>(tile + u * UNIT * ZPD_ROW_BYTES, mine, i, begin[u], bytes);
      else
        zpd_fetch<UNIT>(tile + u * UNIT * ZPD_ROW_BYTES, v, begin[u]);
  }
  /* Are all COUNT rows from r on there and in first .. last? */
  template <int COUNT> __device__ __forceinline__ bool inside(int r, int first, int last) const {
    bool yes = true;
    ZPD_EACH (i, (COUNT + UNIT - 1) / UNIT) {
      const int begin_row = row(r + i * UNIT), count = COUNT < UNIT ? COUNT : UNIT;
      yes = yes && begin_row >= first && begin_row + count - 1 <= last;
    }
    return yes;
  }
};

#endif
