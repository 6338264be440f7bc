/* SPDX-License-Identifier: Apache-2.0 */
/* Attention on tensor cores: backward. With P = exp(scale Q K^T - lse) computed again, and D = rowsum(dO * O),
 *
 *   dV = P^T dO      dS = P * (dO V^T - D) * scale      dQ = dS K      dK = dS^T Q
 *
 * grad_q has tiles of queries and walks over keys; it writes lse and D of its queries where grad_kv, which starts after
 * it, finds them side by side (`facts`). grad_kv has tiles of keys and walks over the queries of all heads of its
 * group. So every result is summed by one warp in a fixed order, or by several in the order of the warps. FLOP a pair
 * of query and key: 6 hd and 8 hd, where 10 hd are counted as work. Heads above 128 columns have sums for dV and dK
 * that do not fit into registers together: dV is done first, with 4 hd more, and dK then with 6 hd. Rounded to 16 bits:
 * P and dS (without the scale) as operands, results. */
#ifndef ZPD_MMA_ATTENTION_GRAD_CUH
#define ZPD_MMA_ATTENTION_GRAD_CUH

#include "zpd_mma_attention.cuh"

/* Log-sum-exp over log 2 and D of a query. */
struct alignas(8) zpd_fact {
  float lse, delta;
};

/* Facts of a head: rows S, rounded up to even, for each. */
ZPD_DEVICE zpd_fact *zpd_facts_of(const zpd_attention &a, int head) {
  return (zpd_fact *)a.facts + ((zpd_int)blockIdx.z * a.H + head) * ((a.S + 1) / 2 * 2);
}

/* Scores and dO v of a fragment to P and dS / scale. */
ZPD_DEVICE void zpd_probability_grad(float c, const zpd_fact &fact, float &p, float &ds) {
  p = zpd_exp2(p * c - fact.lse);
  ds = p * (ds - fact.delta);
}

#ifdef ZPD_SCORES
/* Likewise, of a product that is no score yet. */
ZPD_DEVICE void zpd_bent_grad(const zpd_bend &bend, float c, const zpd_fact &fact, int query, int key, float &p,
                              float &ds) {
  float grad;
  p = bend.score(p, query, key, &grad);
  zpd_probability_grad(c, fact, p, ds);
  ds *= grad;
}
#endif

/* Whatever is in the values, 0 where the key is not seen. */
ZPD_DEVICE void zpd_hide_grad(bool sees, float &p, float &ds) {
  p = sees ? p : 0;
  ds = sees ? ds : 0;
}

/* ---- gradient of queries ---- */

/* Sums of o * d_o of this lane's rows; the first of the warps with these rows writes what grad_kv will read, by
 * twos. */
template <class SHAPE>
ZPD_DEVICE void zpd_find_facts(const zpd_attention &a, const zpd_query_block<SHAPE> &t, zpd_fact (&fact)[SHAPE::M][2]) {
  const zpd_head_view o = zpd_head_of(a, t.queries, a.o, a.o_ld, t.head),
                      d_o = zpd_head_of(a, t.queries, a.d_o, a.d_o_ld, t.head);
  zpd_fact *to = zpd_facts_of(a, t.head);
  ZPD_EACH (m, SHAPE::M)
    ZPD_EACH (half, 2) {
      const int row = t.query(m, half);
      float sum = 0, lse = 0;
      if (row < t.queries) {
        for (int col = zpd_place() * 8; col < o.cols; col += 32) {
          alignas(16) elem x[8], y[8];
          if (o.chunks && d_o.chunks && col + 8 <= o.cols) {
            zpd_move_16(x, o.at + row * o.ld + col);
            zpd_move_16(y, d_o.at + row * d_o.ld + col);
            ZPD_EACH (e, 8) sum += (float)x[e] * (float)y[e];
          } else
            for (int e = 0; e < 8 && col + e < o.cols; e++)
              sum += (float)o.at[row * o.ld + col + e] * (float)d_o.at[row * d_o.ld + col + e];
        }
        lse = ((const float *)a.lse)[((zpd_int)blockIdx.z * a.S + row) * a.H + t.head];
      }
      fact[m][half].delta = zpd_quad_sum(sum);
      fact[m][half].lse = lse * (float)ZPD_LOG2E;
      if (row < (t.queries + 1) / 2 * 2 && zpd_place() == 0 && SHAPE::my_column() == 0) to[row] = fact[m][half];
    }
}

#ifdef ZPD_DROPOUT
/* dO v to what is kept of it, less D. */
template <class SHAPE>
ZPD_DEVICE void zpd_drop_grad(const zpd_attention &a, const zpd_query_block<SHAPE> &t,
                              const zpd_walk_step<SHAPE::STEP, SHAPE::UNIT> &step,
                              const float (&minus_delta)[SHAPE::M][2], float (&ds)[SHAPE::M][SHAPE::N][4]) {
  ZPD_EACH (m, SHAPE::M) {
    zpd_kept_keys<SHAPE> kept;
    if (zpd_drops(a)) kept.draw(a, t, step, m);
    ZPD_EACH (n, SHAPE::N)
      ZPD_EACH (i, 4) ds[m][n][i] = ds[m][n][i] * (zpd_drops(a) ? kept.factor(a, n, i) : 1) + minus_delta[m][i / 2];
  }
}
#endif

#ifdef ZPD_BIAS
/* Where a warp sums the gradients of its scores by distance: they stand in its rows of shared memory, after the steps,
 * while a lane walks along some of the diagonals. */
template <class SHAPE> struct zpd_bias_warp {
  enum { ROWS = 16 * SHAPE::M, COLUMNS = 8 * SHAPE::N, LD = COLUMNS + 8 };
  real *line; /* of sums */
  float *rows;

  __device__ __forceinline__ void begin(const zpd_attention &a, int head, unsigned char *shared) {
    static_assert(SHAPE::SHARERS == 1 && LD == zpd_mma_bias_columns(ZPD_HEAD), "a warp has whole rows");
    const int warp = threadIdx.x / ZPD_WARP;
    line = zpd_bias_sums_of(a, head, blockIdx.x * ZPD_MMA_WARPS + warp, gridDim.x * ZPD_MMA_WARPS);
    rows = (float *)(shared + 2 * SHAPE::TILE_BYTES + SHAPE::STAGES * SHAPE::STAGE_BYTES) + warp * ROWS * LD;
    zpd_clear_bias_sums(a, line, zpd_mma_lane(), ZPD_WARP);
  }
  /* behind: the distance of the first key of the step from the warp's first query. */
  __device__ __forceinline__ void add(const zpd_attention &a, const float (&ds)[SHAPE::M][SHAPE::N][4], int behind) {
    __syncwarp(); /* nobody reads the rows of the step before any more */
    ZPD_EACH (m, SHAPE::M)
      ZPD_EACH (n, SHAPE::N)
        ZPD_EACH (i, 4) rows[(16 * m + 8 * (i / 2) + zpd_group()) * LD + 8 * n + 2 * zpd_place() + i % 2] = ds[m][n][i];
    __syncwarp();
    const float *from = rows;
    zpd_add_diagonals(a, line, ROWS + COLUMNS - 1, behind - (ROWS - 1), [from](int d) {
      float sum = 0;
      ZPD_EACH (r, ROWS) {
        const int column = d - (ROWS - 1) + r;
        sum += column >= 0 && column < COLUMNS ? from[r * LD + column] : 0;
      }
      return sum;
    });
  }
};
#endif

template <class SHAPE> ZPD_DEVICE void zpd_mma_grad_q_of(const zpd_attention &a) {
  ZPD_DYNAMIC_SHARED(shared);
  enum { M = SHAPE::M, N = SHAPE::N };
  zpd_query_block<SHAPE> t;
  t.begin(a);
  zpd_clear_tile<SHAPE::ROWS>(zpd_head_of(a, (int)a.S, a.dq, a.dq_ld, t.head), t.first, t.queries);
#ifdef ZPD_BIAS
  zpd_bias_warp<SHAPE> bias;
  if constexpr (SHAPE::SUMS_BIAS) bias.begin(a, t.head, shared);
#endif
  if (t.first >= t.queries) return;
  const zpd_head_view q = zpd_head_of(a, t.queries, a.q, a.q_ld, t.head),
                      d_o = zpd_head_of(a, t.queries, a.d_o, a.d_o_ld, t.head),
                      k = zpd_kv_head_of(a, t.length, a.k, a.k_ld, t.kv_head),
                      v = zpd_kv_head_of(a, t.length, a.v, a.v_ld, t.kv_head);
  const zpd_lane_view mine = zpd_lane_view_of(k, v);
  unsigned char *stages = shared + 2 * SHAPE::TILE_BYTES;
  const float c = (float)(a.scale * ZPD_LOG2E);
  zpd_left<M, SHAPE::HELD >= 1> q_left;
  zpd_left<M, SHAPE::HELD >= 2> d_o_left;
  zpd_fact fact[M][2];
  float dq[M][ZPD_CHUNKS][4], factor[M][2];
  zpd_clear_sums(dq);
  ZPD_EACH (m, M)
    ZPD_EACH (half, 2) factor[m][half] = (float)a.scale;
  zpd_fetch<SHAPE::ROWS>(shared, q, t.first);
  zpd_fetch<SHAPE::ROWS>(shared + SHAPE::TILE_BYTES, d_o, t.first);
  zpd_cp_async_commit();
  zpd_walk<SHAPE::UNIT> walk = t.keys(a);
  typedef zpd_walk_step<SHAPE::STEP, SHAPE::UNIT> step_of;
  zpd_find_facts(a, t, fact);
#ifdef ZPD_SCORES
  zpd_bend bend;
  bend.begin(a, t.head, (float)a.scale);
#endif
  float minus_delta[M][2];
  ZPD_EACH (m, M)
    ZPD_EACH (half, 2) minus_delta[m][half] = -fact[m][half].delta;
  zpd_each_step<SHAPE>(
      walk, stages,
      [&] {
        q_left.begin(shared + SHAPE::my_row() * ZPD_ROW_BYTES);
        d_o_left.begin(shared + SHAPE::TILE_BYTES + SHAPE::my_row() * ZPD_ROW_BYTES);
      },
      [&](const step_of &step, unsigned char *to) {
        step.fetch(to, k, mine, 0, 0);
        step.fetch(to + SHAPE::OTHER_BYTES, v, mine, 1, 0);
      },
      [&](const step_of &step, const unsigned char *at) {
        const unsigned char *keys = at + SHAPE::my_column() * ZPD_ROW_BYTES;
        float p[M][N][4], ds[M][N][4];
        if (step.row(SHAPE::my_column()) > t.last_key) return; /* the whole warp */
        if (t.is_past(a, step.row(SHAPE::my_column() + 8 * N - 1))) return;
        zpd_scores_of<M, N>(p, q_left, keys);
#ifdef ZPD_DROPOUT
        zpd_scores_of<M, N>(ds, d_o_left, keys + SHAPE::OTHER_BYTES);
        zpd_drop_grad<SHAPE>(a, t, step, minus_delta, ds);
#else
        zpd_scores_of<M, N>(ds, d_o_left, keys + SHAPE::OTHER_BYTES, minus_delta);
#endif
#ifdef ZPD_SCORES
        /* Then p is the gradient of the score by the product. */
        ZPD_EACH (n, N)
          ZPD_EACH (i, 4) {
            const int key = step.row(SHAPE::my_column() + 8 * n + zpd_place() * 2 + i % 2);
            ZPD_EACH (m, M) {
              float grad;
              const float score = bend.score(p[m][n][i], t.query(m, i / 2), key, &grad);
              ds[m][n][i] *= zpd_exp2(score * c - fact[m][i / 2].lse);
              p[m][n][i] = grad;
            }
          }
#else
        ZPD_EACH (m, M)
          ZPD_EACH (n, N)
            ZPD_EACH (i, 4) ds[m][n][i] *= zpd_exp2(p[m][n][i] * c - fact[m][i / 2].lse);
#endif
        if (!step.template inside<8 * N>(SHAPE::my_column(), t.full_from, t.full_key))
          ZPD_EACH (n, N) {
            const int key = step.row(SHAPE::my_column() + 8 * n) + zpd_place() * 2;
            ZPD_EACH (m, M)
              ZPD_EACH (i, 4)
                if (!zpd_is_between(a, t.length, t.query(m, i / 2), key + i % 2)) ds[m][n][i] = 0;
          }
#ifdef ZPD_BIAS
        if constexpr (SHAPE::SUMS_BIAS) bias.add(a, ds, step.row(0) - t.my_first);
#endif
#ifdef ZPD_SCORES
        ZPD_EACH (m, M)
          ZPD_EACH (n, N)
            ZPD_EACH (i, 4) ds[m][n][i] *= p[m][n][i];
#endif
        zpd_add_product<M, N>(dq, ds, keys);
      });
  zpd_store_sums<M, SHAPE::WM>(shared, (float *)stages, dq, factor, zpd_head_of(a, t.queries, a.dq, a.dq_ld, t.head),
                               t.first);
}

ZPD_MMA_KERNELS(zpd_mma_grad_q, ZPD_MMA_GRAD_Q, zpd_mma_grad_q_of)
#ifdef ZPD_BIAS
ZPD_MMA_KERNEL(zpd_mma_grad_q_bias, ZPD_MMA_GRAD_Q_BIAS, 64, zpd_mma_grad_q_of)
#endif

/* ---- gradient of keys and values ---- */

/* The first query that sees all keys of a warp, ROWS of them, if only they are near enough behind. */
template <int ROWS> ZPD_DEVICE int zpd_full_from(const zpd_attention &a, int my_first) {
  const int last = my_first + ROWS - 1;
  return a.causal ? last : zpd_window(a) > 0 ? last - zpd_window(a) + 1 : 0;
}

/* What the keys of a warp that are there meet in their documents. */
template <int ROWS> ZPD_DEVICE zpd_reach zpd_reach_of_keys(const zpd_attention &a, int length, int my_first) {
  zpd_reach reach = {{0, (int)a.S}, {0, (int)a.S}};
#ifdef ZPD_DOCUMENTS
  if (a.documents && my_first < length) reach = zpd_reach_of(a, my_first, (int)zpd_min(my_first + ROWS, length) - 1);
#else
  (void)length, (void)my_first;
#endif
  return reach;
}

#ifdef ZPD_DROPOUT
/* Which queries of a step keep the keys of fragment m, which are rows. Four lanes have neighbouring keys, as many as
 * are drawn together: each of them draws for a fourth of the queries. */
template <class SHAPE> struct zpd_kept_queries {
  enum { WORDS = (SHAPE::N + 3) / 4 };
  unsigned word[2][WORDS]; /* by half: four bits for each query of four times eight columns */

  __device__ __forceinline__ void draw(const zpd_attention &a, int head,
                                       const zpd_walk_step<SHAPE::STEP, SHAPE::UNIT> &step, int first) {
    const int mine = zpd_group() % 4;
    ZPD_EACH (half, 2) {
      const int key = first + 8 * half + zpd_group() - mine;
      ZPD_EACH (w, WORDS) {
        unsigned bits = 0;
        ZPD_EACH (k, 2) { /* twice eight columns have four queries of the lanes, one for each */
          const int n = 4 * w + 2 * k + mine / 2;
          if (4 * w + 2 * k < SHAPE::N)
            bits |= zpd_keep_four(a, head, step.row(SHAPE::my_column() + 8 * n + 2 * zpd_place() + mine % 2), key)
                    << 4 * (2 * (2 * k + mine / 2) + mine % 2);
        }
        word[half][w] = zpd_join_bits<ZPD_NEIGHBOUR, ZPD_SECOND_NEIGHBOUR>(bits);
      }
    }
  }
  __device__ __forceinline__ float factor(const zpd_attention &a, int n, int i) const {
    return word[i / 2][n / 4] >> (4 * (2 * (n % 4) + i % 2) + zpd_group() % 4) & 1 ? (float)a.more : 0;
  }
};
#endif

/* One walk over the queries of a sample that has `length` keys, for dK, dV or both. */
template <class SHAPE, bool DK, bool DV>
ZPD_DEVICE void zpd_grad_kv_walk(const zpd_attention &a, int length, int first, unsigned char *shared) {
  enum { M = SHAPE::M, N = SHAPE::N, FACTS_AT = 2 * SHAPE::OTHER_BYTES };
  const int g = blockIdx.y, group = (int)(a.H / a.G), my_first = first + SHAPE::my_row();
  const int queries_there = zpd_query_length(a, length);
  const zpd_head_view k = zpd_kv_head_of(a, length, a.k, a.k_ld, g), v = zpd_kv_head_of(a, length, a.v, a.v_ld, g);
  const zpd_lane_view mine = zpd_lane_view_of(zpd_head_of(a, queries_there, a.q, a.q_ld, g * group),
                                              zpd_head_of(a, queries_there, a.d_o, a.d_o_ld, g * group));
  unsigned char *stages = shared + 2 * SHAPE::TILE_BYTES;
  const float c = (float)(a.scale * ZPD_LOG2E);
  zpd_left<M, SHAPE::HELD >= 1> k_left;
  zpd_left<M, SHAPE::HELD >= 2> v_left;
  float dk[DK ? M : 1][ZPD_CHUNKS][4], dv[DV ? M : 1][ZPD_CHUNKS][4];
  if constexpr (DK) zpd_clear_sums(dk);
  if constexpr (DV) zpd_clear_sums(dv);
  zpd_fetch<SHAPE::ROWS>(shared, k, first);
  if (DK) zpd_fetch<SHAPE::ROWS>(shared + SHAPE::TILE_BYTES, v, first);
  zpd_cp_async_commit();
  zpd_walk<SHAPE::UNIT> walk;
  walk.begin_heads(a, first, a.causal ? first : zpd_first_met(a, first, SHAPE::STEP),
                   zpd_end_met(a, first + SHAPE::ROWS - 1, queries_there), g * group, group);
#ifdef ZPD_DOCUMENTS
  const zpd_reach reach = zpd_reach_of_keys<16 * M>(a, length, my_first);
#endif
  typedef zpd_walk_step<SHAPE::STEP, SHAPE::UNIT> step_of;
  zpd_each_step<SHAPE>(
      walk, stages,
      [&] {
        k_left.begin(shared + SHAPE::my_row() * ZPD_ROW_BYTES);
        if (DK) v_left.begin(shared + SHAPE::TILE_BYTES + SHAPE::my_row() * ZPD_ROW_BYTES);
      },
      [&](const step_of &step, unsigned char *to) {
        const zpd_head_view q = zpd_head_of(a, queries_there, a.q, a.q_ld, step.head),
                            d_o = zpd_head_of(a, queries_there, a.d_o, a.d_o_ld, step.head);
        step.fetch(to, q, mine, 0, (step.head - g * group) * (int)a.hd * 2);
        step.fetch(to + SHAPE::OTHER_BYTES, d_o, mine, 1, (step.head - g * group) * (int)a.hd * 2);
        if ((int)threadIdx.x < SHAPE::STEP / 2) {
          const int row = step.row(2 * threadIdx.x);
          const zpd_fact *facts = zpd_facts_of(a, step.head);
          zpd_cp_async_whole(to + FACTS_AT + 16 * threadIdx.x, facts + (row < queries_there ? row : 0),
                             row < queries_there);
        }
      },
      [&](const step_of &step, const unsigned char *at) {
        const int column = SHAPE::my_column(), last = step.row(column + 8 * N - 1), pair = zpd_place() * 2;
        const unsigned char *queries = at + column * ZPD_ROW_BYTES;
        float p[M][N][4], ds[M][N][4];
        /* The whole warp: no keys, no queries, or none that see them. */
        if (my_first >= length || step.row(column) >= queries_there || (a.causal && last < my_first)) return;
        if (zpd_window(a) > 0 && /* none within a window of some key */
            (step.row(column) >= my_first + 16 * M - 1 + zpd_window(a) || last <= my_first - zpd_window(a)))
          return;
#ifdef ZPD_DOCUMENTS
        if (last < reach.any.first || step.row(column) >= reach.any.end) return;
#endif
        zpd_scores_of<M, N>(p, k_left, queries);
        if constexpr (DK)
          zpd_scores_of<M, N>(ds, v_left, queries + SHAPE::OTHER_BYTES);
        else
          ZPD_EACH (m, M)
            ZPD_EACH (n, N)
              ZPD_EACH (i, 4) ds[m][n][i] = 0;
#ifdef ZPD_DROPOUT
        zpd_kept_queries<SHAPE> kept[M];
        ZPD_EACH (m, M)
          if (zpd_drops(a)) {
            kept[m].draw(a, step.head, step, my_first + 16 * m);
            ZPD_EACH (n, N)
              ZPD_EACH (i, 4) ds[m][n][i] *= kept[m].factor(a, n, i);
          }
#endif
#ifdef ZPD_SCORES
        zpd_bend bend;
        bend.begin(a, step.head, (float)a.scale);
#endif
        int full_from = zpd_full_from<16 * M>(a, my_first), full_end = zpd_end_in_window(a, my_first, queries_there);
#ifdef ZPD_DOCUMENTS
        full_from = full_from < reach.all.first ? reach.all.first : full_from;
        full_end = (int)zpd_min(full_end, reach.all.end);
#endif
        const bool full = step.template inside<8 * N>(column, full_from, full_end - 1);
        ZPD_EACH (n, N) {
          const zpd_fact *fact = (const zpd_fact *)(at + FACTS_AT) + column + 8 * n + pair;
#ifdef ZPD_SCORES
          ZPD_EACH (m, M)
            ZPD_EACH (i, 4)
              zpd_bent_grad(bend, c, fact[i % 2], step.row(column + 8 * n + pair + i % 2),
                            my_first + 16 * m + 8 * (i / 2) + zpd_group(), p[m][n][i], ds[m][n][i]);
#else
          ZPD_EACH (m, M)
            ZPD_EACH (i, 4) zpd_probability_grad(c, fact[i % 2], p[m][n][i], ds[m][n][i]);
#endif
        }
        if (!full)
          ZPD_EACH (n, N) {
            const int query = step.row(column + 8 * n) + pair;
            ZPD_EACH (m, M)
              ZPD_EACH (i, 4) {
                const int key = my_first + 16 * m + 8 * (i / 2) + zpd_group();
                const int first_query = a.causal ? key : zpd_first_seen(a, key);
                const int count = key < length ? zpd_end_in_window(a, key, queries_there) - first_query : 0;
                const bool near = (unsigned)(query + i % 2 - first_query) < (unsigned)count;
                zpd_hide_grad(near && zpd_shares_document(a, query + i % 2, key), p[m][n][i], ds[m][n][i]);
              }
          }
#ifdef ZPD_DROPOUT
        ZPD_EACH (m, M)
          ZPD_EACH (n, N)
            ZPD_EACH (i, 4)
              if (zpd_drops(a)) p[m][n][i] *= kept[m].factor(a, n, i);
#endif
        if constexpr (DV) zpd_add_product<M, N>(dv, p, queries + SHAPE::OTHER_BYTES);
        if constexpr (DK) zpd_add_product<M, N>(dk, ds, queries);
      });
  float factor[M][2];
  if constexpr (DV) {
    ZPD_EACH (m, M)
      ZPD_EACH (half, 2) factor[m][half] = 1;
    zpd_store_sums<M, SHAPE::WM>(shared, (float *)stages, dv, factor, zpd_kv_head_of(a, length, a.dv, a.dv_ld, g),
                                 first);
  }
  if constexpr (DK) {
    ZPD_EACH (m, M)
      ZPD_EACH (half, 2) factor[m][half] = (float)a.scale;
    zpd_store_sums<M, SHAPE::WM>(shared + SHAPE::TILE_BYTES, (float *)stages, dk, factor,
                                 zpd_kv_head_of(a, length, a.dk, a.dk_ld, g), first);
  }
  __syncthreads(); /* tiles may be read into again */
}

template <class SHAPE> ZPD_DEVICE void zpd_mma_grad_kv_of(const zpd_attention &a) {
  ZPD_DYNAMIC_SHARED(shared);
  const int first = blockIdx.x * SHAPE::ROWS, length = blockIdx.y < a.kv_heads_valid ? zpd_length(a) : 0;
  const int keys = (int)zpd_keys_of_sample(a);
  zpd_clear_tile<SHAPE::ROWS>(zpd_kv_head_of(a, keys, a.dk, a.dk_ld, blockIdx.y), first, length);
  zpd_clear_tile<SHAPE::ROWS>(zpd_kv_head_of(a, keys, a.dv, a.dv_ld, blockIdx.y), first, length);
  if (first >= length) return;
  if constexpr (SHAPE::M * ZPD_MMA_COLS <= 128)
    zpd_grad_kv_walk<SHAPE, true, true>(a, length, first, shared);
  else {
    zpd_grad_kv_walk<SHAPE, false, true>(a, length, first, shared);
    zpd_grad_kv_walk<SHAPE, true, false>(a, length, first, shared);
  }
}

ZPD_MMA_KERNELS(zpd_mma_grad_kv, ZPD_MMA_GRAD_KV, zpd_mma_grad_kv_of)

#endif
