/* SPDX-License-Identifier: Apache-2.0 */
/* Attention by tiles of 64 rows, causal or full, dense or block-sparse, grouped queries: the online softmax of Milakov
 * and Gimelshein (2018) as FlashAttention (Dao et al., 2022) uses it. Scores exist for one pair of tiles only. In
 * backward, probabilities are computed again from the saved log-sum-exp: with P = exp(scale Q K^T - lse) and D =
 * rowsum(dO * O),
 *
 *   dV = P^T dO      dS = P * (dO V^T - D) * scale      dQ = dS K      dK = dS^T Q
 *
 * grad_q has tiles of queries and runs over keys, grad_kv has tiles of keys and runs over queries of all query heads of
 * its group; so every result is summed by one thread in a fixed order. FLOP a pair of query and key: forward 4 hd,
 * grad_q 6 hd, grad_kv 8 hd: Q K^T and dO V^T are computed in both, which is the price for having neither atomics nor a
 * workspace.
 *
 * ZPD_HEAD is the largest head size of the model: it decides how many results a thread holds. Heads of more columns
 * than that, or than registers take, are done in parts, with scores computed again for every part: right, but
 * slower. */
#ifndef ZPD_ATTENTION_CUH
#define ZPD_ATTENTION_CUH

#include "zpd_attention_tile.cuh"
#include "zpd_layouts.cuh"
#include "zpd_scores.cuh"

/* Columns of a head at once, at most LIMIT: in as few parts as possible, which are as equal as possible. */
template <int LIMIT> struct zpd_parts {
  enum {
    UNITS = (ZPD_HEAD + ZPD_UNIT - 1) / ZPD_UNIT,
    COUNT = (UNITS * ZPD_UNIT + LIMIT - 1) / LIMIT,
    COLS = (UNITS + COUNT - 1) / COUNT * ZPD_UNIT
  };
};

#ifdef ZPD_F64
enum { ZPD_KEYS = 32, ZPD_QUERIES = 32, ZPD_COLS = zpd_parts<64>::COLS, ZPD_KV_COLS = zpd_parts<32>::COLS };
#else
enum { ZPD_KEYS = 64, ZPD_QUERIES = 32, ZPD_COLS = zpd_parts<128>::COLS, ZPD_KV_COLS = zpd_parts<128>::COLS };
#endif
/* Blocks of a multiprocessor with 64 Ki registers: 3 leave 168 a thread, 2 leave 255. As many as need no memory for
 * registers with CUDA 13.0 on sm_80. */
#ifdef ZPD_DOCUMENTS
enum { ZPD_MOST_KV_BLOCKS = 2 };
#else
enum { ZPD_MOST_KV_BLOCKS = 3 };
#endif
enum { ZPD_Q_BLOCKS = 2, ZPD_KV_BLOCKS = sizeof(real) == 4 && ZPD_KV_COLS <= 64 ? ZPD_MOST_KV_BLOCKS : 2 };
enum { ZPD_O_MINE = ZPD_COLS / ZPD_LANES, ZPD_KV_MINE = ZPD_KV_COLS / ZPD_LANES };

/* The tile of queries of this block. Causal: the last ones have the most keys, so they come first. */
ZPD_DEVICE int zpd_first_query(const zpd_attention &a) {
  const int tiles = (int)((a.S + ZPD_ATTENTION_ROWS - 1) / ZPD_ATTENTION_ROWS);
  return (a.causal ? tiles - 1 - (int)blockIdx.x : (int)blockIdx.x) * ZPD_ATTENTION_ROWS;
}

/* Rows of a tile from position `first` on: the sequence has `all`, of which `rows` are there, none in a head of
 * padding. */
struct zpd_tile_rows {
  int all, rows;
};

/* there: positions of the sample, of `positions`. */
ZPD_DEVICE zpd_tile_rows zpd_rows_from(zpd_int positions, int there, int first, bool padding) {
  zpd_tile_rows t;
  t.all = (int)zpd_min(positions - first, ZPD_ATTENTION_ROWS);
  t.rows = padding || there <= first ? 0 : (int)zpd_min(there - first, ZPD_ATTENTION_ROWS);
  return t;
}

/* What a block of queries reads and writes; `first`: its first query. */
struct zpd_query_tile : zpd_tile_rows {
  int length;            /* keys of the sample that are there */
  int first, from, keys; /* keys: from `from` on, end of those that its queries see */
  zpd_int row;           /* of q, o, ... */
  zpd_int head, kv_head;
};

ZPD_DEVICE zpd_query_tile zpd_my_queries(const zpd_attention &a) {
  zpd_query_tile t;
  t.first = zpd_first_query(a);
  t.row = blockIdx.z * a.S + t.first;
  t.head = blockIdx.y;
  t.kv_head = t.head / (a.H / a.G);
  t.length = zpd_length(a);
  (zpd_tile_rows &)t = zpd_rows_from(a.S, zpd_query_length(a, t.length), t.first, t.kv_head >= a.kv_heads_valid);
  t.from = zpd_first_met(a, t.first, ZPD_KEYS);
  t.keys = (int)(a.causal ? zpd_min(t.length, t.first + ZPD_ATTENTION_ROWS)
                          : zpd_end_met(a, t.first + ZPD_ATTENTION_ROWS - 1, t.length));
  return t;
}

ZPD_DEVICE zpd_view zpd_queries(const zpd_attention &a, const zpd_query_tile &t, const void *x, zpd_int ld) {
  return zpd_head_rows(x, ld, t.row, t.rows, t.head, a.hd);
}

/* Zeros to the rows of a result that are not there. */
ZPD_DEVICE void zpd_clear_queries(const zpd_attention &a, const zpd_query_tile &t, void *x, zpd_int ld) {
  zpd_clear_rows(zpd_head_rows(x, ld, t.row, t.all, t.head, a.hd), t.rows);
}

ZPD_DEVICE zpd_view zpd_keys(const zpd_attention &a, const zpd_query_tile &t, const void *x, zpd_int ld) {
  return zpd_head_rows(x, ld, blockIdx.z * zpd_keys_of_sample(a), t.length, t.kv_head, a.hd);
}

/* ---- forward ---- */

/* Rows of the softmax so far: maximum, and this thread's share of the sum. */
struct zpd_softmax {
  real max[ZPD_MINE], sum[ZPD_MINE];
};

/* Scores to probabilities relative to the running maximum; what was summed before is brought to the new one. Sums are
 * of all probabilities, dropped ones included. */
ZPD_DEVICE void zpd_softmax_step(const zpd_attention &a, const zpd_bend &bend, zpd_int head, int length, int first,
                                 int key, zpd_softmax &s, real (&score)[ZPD_MINE][ZPD_KEYS / ZPD_LANES],
                                 real (&o)[ZPD_MINE][ZPD_O_MINE]) {
  ZPD_EACH (i, ZPD_MINE) {
    const int query = first + zpd_y() + i * ZPD_GROUPS;
    real max = s.max[i], sum = 0;
    ZPD_EACH (j, ZPD_KEYS / ZPD_LANES) {
      const int at = key + zpd_x() + j * ZPD_LANES;
      real grad;
      score[i][j] =
          zpd_sees(a, length, query, at) ? bend.score(score[i][j], query, at, &grad) * (real)a.scale : -zpd_infinity();
      max = score[i][j] > max ? score[i][j] : max;
    }
    max = zpd_row_max(max);
    const real base = zpd_meets_past(a) && max == -zpd_infinity() ? 0 : max, shrink = zpd_exp(s.max[i] - base);
    ZPD_EACH (j, ZPD_KEYS / ZPD_LANES) sum += score[i][j] = zpd_exp(score[i][j] - base);
    s.max[i] = max;
    s.sum[i] = s.sum[i] * shrink + sum;
    ZPD_EACH (c, ZPD_O_MINE) o[i][c] *= shrink;
    if (!zpd_drops(a)) continue;
    zpd_kept_keys<ZPD_KEYS> kept;
    kept.draw(a, head, query, key);
    ZPD_EACH (j, ZPD_KEYS / ZPD_LANES) score[i][j] *= kept.factor(a, j);
  }
}

ZPD_DEVICE void zpd_store_lse(const zpd_attention &a, const zpd_query_tile &t, int row, real lse) {
  if (zpd_x() == 0) ((real *)a.lse)[(t.row + row) * a.H + t.head] = lse;
}

/* Columns `col` on of the output, and the log-sum-exp. */
ZPD_DEVICE void zpd_forward_part(const zpd_attention &a, const zpd_query_tile &t, int col, real *stage, real *weights) {
  const zpd_view q = zpd_queries(a, t, a.q, a.q_ld), k = zpd_keys(a, t, a.k, a.k_ld), v = zpd_keys(a, t, a.v, a.v_ld);
  real o[ZPD_MINE][ZPD_O_MINE], score[ZPD_MINE][ZPD_KEYS / ZPD_LANES], inverse[ZPD_MINE];
  zpd_softmax s;
  zpd_bend bend;
  bend.begin(a, t.head, (real)a.scale);
  ZPD_EACH (i, ZPD_MINE) {
    s.max[i] = -zpd_infinity();
    s.sum[i] = 0;
    ZPD_EACH (c, ZPD_O_MINE) o[i][c] = 0;
  }
  const zpd_met met = zpd_meets(a, t.head, t.first, true);
  for (int r = 0; r < met.runs; r++) {
    const zpd_tiles tiles = met.tiles(r, t.keys);
    for (int key = tiles.first + t.from; key < tiles.end; key += ZPD_KEYS) {
      zpd_scores<ZPD_KEYS>(q, k, key, stage, score);
      zpd_softmax_step(a, bend, t.head, t.length, t.first, key, s, score, o);
      zpd_share<ZPD_KEYS>(score, weights);
      zpd_multiply<ZPD_KEYS, ZPD_COLS>(weights, v, key, col, stage, o);
    }
  }
  ZPD_EACH (i, ZPD_MINE) {
    const real sum = zpd_row_sum(s.sum[i]);
    const int row = zpd_y() + i * ZPD_GROUPS;
    inverse[i] = sum > 0 ? 1 / sum : 0; /* 0: of a part of a layout, in which it sees no key */
    if (row < t.rows) zpd_store_lse(a, t, row, s.max[i] + zpd_log(sum));
  }
  zpd_store_rows<ZPD_COLS>(o, inverse, zpd_queries(a, t, a.o, a.o_ld), col);
}

ZPD_KERNEL_OF(ZPD_ATTENTION_THREADS, ZPD_Q_BLOCKS, zpd_attention_forward, zpd_attention) {
  __shared__ zpd_pack stage[zpd_staging<ZPD_KEYS, ZPD_COLS>::PACKS], weights[zpd_weights<ZPD_KEYS>::PACKS];
  const zpd_query_tile t = zpd_my_queries(a);
  for (int col = 0; t.rows > 0 && col < a.hd; col += ZPD_COLS) zpd_forward_part(a, t, col, stage->at, weights->at);
  zpd_clear_queries(a, t, a.o, a.o_ld);
  for (int row = t.rows + zpd_y(); row < t.all; row += ZPD_GROUPS) zpd_store_lse(a, t, row, 0);
}

/* ---- backward ---- */

/* On entry p has products and ds has dO v of a pair; on return p is the probability, times its factor of dropout
 * `kept`, and ds the gradient of the score. What is not seen is 0 whatever is in the values. The gradient of the score
 * by the product is returned. */
ZPD_DEVICE real zpd_softmax_grad(const zpd_attention &a, const zpd_bend &bend, int length, int query, int key,
                                 real kept, real &p, real &ds, real lse, real delta) {
  const bool sees = zpd_sees(a, length, query, key);
  const real scale = (real)a.scale;
  real grad = 1;
  p = sees ? zpd_exp(bend.score(p, query, key, &grad) * scale - lse) : 0;
  ds = sees ? p * (ds * kept - delta) : 0;
  p *= kept;
  return scale * grad;
}

#ifdef ZPD_BIAS
/* Sums the gradients of a tile's scores, which stand in `weights`, by distance; key: of its first column. */
struct zpd_diagonals {
  enum { COUNT = ZPD_ATTENTION_ROWS + ZPD_KEYS - 1 };
  real sum[COUNT];

  __device__ __forceinline__ void add(const zpd_attention &a, int head, int query, int key, const real *weights) {
    __syncthreads(); /* all have shared theirs */
    const int d = threadIdx.x, last = ZPD_ATTENTION_ROWS - 1;
    if (d < COUNT) {
      const int from = d < last ? last - d : 0, to = d < ZPD_KEYS ? last : last + ZPD_KEYS - 1 - d;
      real all = 0;
      for (int r = from; r <= to; r++) all += weights[r * zpd_weights<ZPD_KEYS>::LD + d - last + r];
      sum[d] = all;
    }
    __syncthreads();
    if (threadIdx.x < ZPD_WARP)
      zpd_add_diagonals(a, zpd_bias_sums_of(a, head, blockIdx.x, gridDim.x), COUNT, key - query - last,
                        [&](int i) { return sum[i]; });
  }
};
static_assert((int)zpd_diagonals::COUNT <= (int)ZPD_ATTENTION_THREADS, "a thread a diagonal");
#endif

/* Shared memory of grad_q. */
struct zpd_q_shared {
  zpd_pack stage[zpd_staging<ZPD_KEYS, ZPD_COLS>::PACKS], weights[zpd_weights<ZPD_KEYS>::PACKS];
#ifdef ZPD_BIAS
  zpd_diagonals diagonals;
#endif
};

ZPD_DEVICE void zpd_grad_q_part(const zpd_attention &a, const zpd_query_tile &t, int col, const real (&lse)[ZPD_MINE],
                                const real (&delta)[ZPD_MINE], zpd_q_shared &shared) {
  real *stage = shared.stage->at, *weights = shared.weights->at;
  const zpd_view q = zpd_queries(a, t, a.q, a.q_ld), d_o = zpd_queries(a, t, a.d_o, a.d_o_ld);
  const zpd_view k = zpd_keys(a, t, a.k, a.k_ld), v = zpd_keys(a, t, a.v, a.v_ld);
  real dq[ZPD_MINE][ZPD_O_MINE], p[ZPD_MINE][ZPD_KEYS / ZPD_LANES], ds[ZPD_MINE][ZPD_KEYS / ZPD_LANES];
  zpd_bend bend;
  bend.begin(a, t.head, (real)a.scale);
  ZPD_EACH (i, ZPD_MINE)
    ZPD_EACH (c, ZPD_O_MINE) dq[i][c] = 0;
  const zpd_met met = zpd_meets(a, t.head, t.first, true);
  for (int r = 0; r < met.runs; r++) {
    const zpd_tiles tiles = met.tiles(r, t.keys);
    for (int key = tiles.first + t.from; key < tiles.end; key += ZPD_KEYS) {
      zpd_scores<ZPD_KEYS>(q, k, key, stage, p);
      zpd_scores<ZPD_KEYS>(d_o, v, key, stage, ds);
      ZPD_EACH (i, ZPD_MINE) {
        const int query = t.first + zpd_y() + i * ZPD_GROUPS;
        zpd_kept_keys<ZPD_KEYS> kept;
        if (zpd_drops(a)) kept.draw(a, t.head, query, key);
        ZPD_EACH (j, ZPD_KEYS / ZPD_LANES) {
          const real slope =
              zpd_softmax_grad(a, bend, t.length, query, key + zpd_x() + j * ZPD_LANES,
                               zpd_drops(a) ? kept.factor(a, j) : 1, p[i][j], ds[i][j], lse[i], delta[i]);
          p[i][j] = slope; /* nobody needs the probability any more */
        }
      }
#ifdef ZPD_BIAS
      if (a.bias_sums && col == 0) {
        zpd_share<ZPD_KEYS>(ds, weights);
        shared.diagonals.add(a, (int)t.head, t.first, key, weights);
      }
#endif
      ZPD_EACH (i, ZPD_MINE)
        ZPD_EACH (j, ZPD_KEYS / ZPD_LANES) ds[i][j] *= p[i][j];
      zpd_share<ZPD_KEYS>(ds, weights);
      zpd_multiply<ZPD_KEYS, ZPD_COLS>(weights, k, key, col, stage, dq);
    }
  }
  const real ones[ZPD_MINE] = {1, 1, 1, 1};
  zpd_store_rows<ZPD_COLS>(dq, ones, zpd_queries(a, t, a.dq, a.dq_ld), col);
}

/* Log-sum-exp and rowsum(dO * O) of this thread's rows. */
ZPD_DEVICE void zpd_row_facts(const zpd_attention &a, const zpd_query_tile &t, real (&lse)[ZPD_MINE],
                              real (&delta)[ZPD_MINE]) {
  const zpd_view o = zpd_queries(a, t, a.o, a.o_ld), d_o = zpd_queries(a, t, a.d_o, a.d_o_ld);
  ZPD_EACH (i, ZPD_MINE) {
    const int row = zpd_y() + i * ZPD_GROUPS;
    real sum = 0;
    if (row < o.rows)
      for (int c = zpd_x(); c < o.cols; c += ZPD_LANES)
        sum += (real)d_o.at[row * d_o.ld + c] * (real)o.at[row * o.ld + c];
    delta[i] = zpd_row_sum(sum);
    lse[i] = row < o.rows ? ((const real *)a.lse)[(t.row + row) * a.H + t.head] : 0;
  }
}

ZPD_KERNEL_OF(ZPD_ATTENTION_THREADS, ZPD_Q_BLOCKS, zpd_attention_grad_q, zpd_attention) {
  __shared__ zpd_q_shared shared;
  const zpd_query_tile t = zpd_my_queries(a);
  zpd_clear_queries(a, t, a.dq, a.dq_ld);
#ifdef ZPD_BIAS
  if (a.bias_sums && threadIdx.x < ZPD_WARP)
    zpd_clear_bias_sums(a, zpd_bias_sums_of(a, (int)t.head, blockIdx.x, gridDim.x), threadIdx.x, ZPD_WARP);
#endif
  if (t.rows == 0) return;
  real lse[ZPD_MINE], delta[ZPD_MINE];
  zpd_row_facts(a, t, lse, delta);
  for (int col = 0; col < a.hd; col += ZPD_COLS) zpd_grad_q_part(a, t, col, lse, delta, shared);
}

/* Shared memory of grad_kv. */
struct zpd_kv_shared {
  zpd_pack stage[zpd_staging<ZPD_QUERIES, ZPD_KV_COLS>::PACKS], weights[zpd_weights<ZPD_QUERIES>::PACKS];
  real lse[ZPD_QUERIES], delta[ZPD_QUERIES]; /* of the current queries */
};

/* Rows of one query head from the first of the sample on; length: of its keys. */
ZPD_DEVICE zpd_view zpd_all_queries(const zpd_attention &a, int length, zpd_int head, const void *x, zpd_int ld) {
  return zpd_head_rows(x, ld, blockIdx.z * a.S, zpd_query_length(a, length), head, a.hd);
}

/* Four threads a query. After the end: zeros; q and dO are zeros there, too, so such a query adds nothing. */
ZPD_DEVICE void zpd_query_facts(const zpd_attention &a, int length, zpd_int head, int first, zpd_kv_shared &shared) {
  enum { THREADS = ZPD_ATTENTION_THREADS / ZPD_QUERIES };
  const zpd_view o = zpd_all_queries(a, length, head, a.o, a.o_ld),
                 d_o = zpd_all_queries(a, length, head, a.d_o, a.d_o_ld);
  const int query = threadIdx.x / THREADS, lane = threadIdx.x % THREADS, row = first + query;
  real sum = 0;
  if (row < o.rows)
    for (int c = lane; c < o.cols; c += THREADS) sum += (real)d_o.at[row * d_o.ld + c] * (real)o.at[row * o.ld + c];
  for (int step = THREADS / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (lane == 0) {
    shared.delta[query] = sum;
    shared.lse[query] = row < o.rows ? ((const real *)a.lse)[(blockIdx.z * a.S + row) * a.H + head] : 0;
  }
}

/* Adds one tile of queries of one head to the gradients of the block's keys, which begin at key `first` of a sample of
 * `length`. The rows of all tiles are keys, the columns of scores are queries. */
ZPD_DEVICE void zpd_grad_kv_step(const zpd_attention &a, const zpd_view &k, const zpd_view &v, int length, int first,
                                 zpd_int head, int query, int col, zpd_kv_shared &shared,
                                 real (&dk)[ZPD_MINE][ZPD_KV_MINE], real (&dv)[ZPD_MINE][ZPD_KV_MINE]) {
  const zpd_view q = zpd_all_queries(a, length, head, a.q, a.q_ld),
                 d_o = zpd_all_queries(a, length, head, a.d_o, a.d_o_ld);
  real p[ZPD_MINE][ZPD_QUERIES / ZPD_LANES], ds[ZPD_MINE][ZPD_QUERIES / ZPD_LANES];
  zpd_bend bend;
  bend.begin(a, head, (real)a.scale);
  zpd_kept_queries<ZPD_QUERIES> kept;
  if (zpd_drops(a)) kept.draw(a, head, query, first);
  zpd_query_facts(a, length, head, query, shared);
  zpd_scores<ZPD_QUERIES>(k, q, query, shared.stage->at, p);
  zpd_scores<ZPD_QUERIES>(v, d_o, query, shared.stage->at, ds);
  ZPD_EACH (j, ZPD_QUERIES / ZPD_LANES) {
    const int column = zpd_x() + j * ZPD_LANES;
    const real lse = shared.lse[column], delta = shared.delta[column];
    ZPD_EACH (i, ZPD_MINE) {
      const real slope = zpd_softmax_grad(a, bend, length, query + column, first + zpd_y() + i * ZPD_GROUPS,
                                          zpd_drops(a) ? kept.factor(a, i, j) : 1, p[i][j], ds[i][j], lse, delta);
      ds[i][j] *= slope;
    }
  }
  zpd_share<ZPD_QUERIES>(p, shared.weights->at);
  zpd_multiply<ZPD_QUERIES, ZPD_KV_COLS>(shared.weights->at, d_o, query, col, shared.stage->at, dv);
  __syncthreads(); /* all have multiplied with p */
  zpd_share<ZPD_QUERIES>(ds, shared.weights->at);
  zpd_multiply<ZPD_QUERIES, ZPD_KV_COLS>(shared.weights->at, q, query, col, shared.stage->at, dk);
}

ZPD_DEVICE void zpd_grad_kv_part(const zpd_attention &a, int length, int first, int col, const zpd_view &dk_out,
                                 const zpd_view &dv_out, zpd_kv_shared &shared) {
  const zpd_int row = blockIdx.z * zpd_keys_of_sample(a) + first, group = a.H / a.G, g = blockIdx.y;
  const zpd_view k = zpd_head_rows(a.k, a.k_ld, row, dk_out.rows, g, a.hd),
                 v = zpd_head_rows(a.v, a.v_ld, row, dk_out.rows, g, a.hd);
  real dk[ZPD_MINE][ZPD_KV_MINE], dv[ZPD_MINE][ZPD_KV_MINE];
  ZPD_EACH (i, ZPD_MINE)
    ZPD_EACH (c, ZPD_KV_MINE) dk[i][c] = dv[i][c] = 0;
  const int from = a.causal ? first : zpd_first_met(a, first, ZPD_QUERIES),
            end = zpd_end_met(a, first + ZPD_ATTENTION_ROWS - 1, zpd_query_length(a, length));
  for (zpd_int head = g * group; head < (g + 1) * group; head++) {
    const zpd_met met = zpd_meets(a, head, first, false);
    for (int r = 0; r < met.runs; r++) {
      const zpd_tiles tiles = met.tiles(r, end);
      for (int query = tiles.first < from ? from : tiles.first; query < tiles.end; query += ZPD_QUERIES)
        zpd_grad_kv_step(a, k, v, length, first, head, query, col, shared, dk, dv);
    }
  }
  const real ones[ZPD_MINE] = {1, 1, 1, 1};
  zpd_store_rows<ZPD_KV_COLS>(dk, ones, dk_out, col);
  zpd_store_rows<ZPD_KV_COLS>(dv, ones, dv_out, col);
}

ZPD_KERNEL_OF(ZPD_ATTENTION_THREADS, ZPD_KV_BLOCKS, zpd_attention_grad_kv, zpd_attention) {
  __shared__ zpd_kv_shared shared;
  const int first = blockIdx.x * ZPD_ATTENTION_ROWS, length = zpd_length(a);
  const zpd_int row = blockIdx.z * zpd_keys_of_sample(a) + first;
  const zpd_tile_rows t = zpd_rows_from(zpd_keys_of_sample(a), length, first, blockIdx.y >= a.kv_heads_valid);
  zpd_clear_rows(zpd_head_rows(a.dk, a.dk_ld, row, t.all, blockIdx.y, a.hd), t.rows);
  zpd_clear_rows(zpd_head_rows(a.dv, a.dv_ld, row, t.all, blockIdx.y, a.hd), t.rows);
  if (t.rows == 0) return;
  const zpd_view dk = zpd_head_rows(a.dk, a.dk_ld, row, t.rows, blockIdx.y, a.hd);
  const zpd_view dv = zpd_head_rows(a.dv, a.dv_ld, row, t.rows, blockIdx.y, a.hd);
  for (int col = 0; col < a.hd; col += ZPD_KV_COLS) zpd_grad_kv_part(a, length, first, col, dk, dv, shared);
}

#endif
