/* SPDX-License-Identifier: Apache-2.0 */
/* Attention on tensor cores for sm_80 and later, with bf16 or f16 operands: forward. After FlashAttention-2 (Dao,
 * 2023): scores of a tile of queries and a step of keys stay in registers, probabilities become operands of the second
 * product there, keys and values of the next step are copied while this one is computed with, and a tile's queries are
 * read once. Rounded to 16 bits: probabilities relative to about the largest score so far, as operands; the output.
 *
 * ZPD_HEAD is the largest head size of the model; smaller heads are computed with zeros after them. Causal, full, over
 * the runs of blocks of a layout, grouped queries. zpd.h has the geometry. */
#ifndef ZPD_MMA_ATTENTION_CUH
#define ZPD_MMA_ATTENTION_CUH

#include "zpd_drop.cuh"
#include "zpd_mma_tile.cuh"
#include "zpd_scores.cuh"

#define ZPD_LOG2E 1.4426950408889634
#define ZPD_LN2 0.6931471805599453f

/* How many of the left factors of a warp, with M fragments of rows, stay in registers; those that do not are read from
 * shared memory in each step, and leave registers for sums. Chosen by times on an H100 (docs/evidence/gpu.md), and so
 * that no arch spills. */
ZPD_CONSTANT int zpd_mma_held(int kind, int columns, int rows, int m) {
#ifdef ZPD_QUAD_PAIRS
  (void)rows;
  return kind == ZPD_MMA_FORWARD ? columns <= 128 && m == 1 : columns <= 32 ? 2 : 0;
#else
#if defined(ZPD_DROPOUT) || defined(ZPD_BIAS)
  const int fewer = 1; /* random numbers and biases take registers */
#else
  const int fewer = 0;
#endif
#if !defined(ZPD_HOST) && __CUDA_ARCH__ >= 1000
  const int wide_kv = 0;
#else
  const int wide_kv = 1 - fewer;
#endif
  if (kind == ZPD_MMA_FORWARD) return (columns <= 64 && !fewer) || (columns <= 128 && m == 1);
  if (m > 1) return 1 - fewer;
  if (columns <= 64) return 2;
  return columns > 128 || rows != 64 ? 0 : kind != ZPD_MMA_GRAD_KV ? 2 - fewer : wide_kv;
#endif
}

/* A kernel of a kind with tiles of ROWS rows. */
template <int KIND_, int ROWS_> struct zpd_shape {
  enum {
    KIND = KIND_,
    SUMS_BIAS = KIND_ == ZPD_MMA_GRAD_Q_BIAS,
    ROWS = ROWS_,
    STEP = zpd_mma_step(KIND, ZPD_HEAD, ROWS),
    STAGES = zpd_mma_stages(KIND, ZPD_HEAD, ROWS, ZPD_MMA_MOST_BYTES),
    SHARERS = zpd_mma_sharers(ROWS),
    WM = ZPD_MMA_WARPS / SHARERS,
    M = ROWS / (16 * WM),
    N = STEP / SHARERS / 8, /* columns of scores of a warp, in eights */
    UNIT = ROWS < 64 ? ROWS : STEP,
    TILE_BYTES = ROWS * ZPD_ROW_BYTES,
    OTHER_BYTES = STEP * ZPD_ROW_BYTES,
    STAGE_BYTES = 2 * OTHER_BYTES + (KIND == ZPD_MMA_GRAD_KV ? 8 * STEP : 0),
    HELD = zpd_mma_held(KIND, ZPD_MMA_COLS, ROWS, M)
  };
  static_assert(16 * M * WM == ROWS && N % 2 == 0 && STEP % UNIT == 0, "whole fragments");
  static_assert(zpd_mma_shared_bytes(KIND, ZPD_HEAD, ROWS, ZPD_MMA_MOST_BYTES) <= ZPD_MMA_MOST_BYTES,
                "every GPU has as much");
  static_assert(SHARERS == 1 || STAGES * STAGE_BYTES >= SHARERS * ROWS * ZPD_MMA_COLS * 4, "sums of the warps fit");

  /* First row of the warp in the tile, first of its rows of a step. */
  static __device__ __forceinline__ int my_row() { return threadIdx.x / ZPD_WARP % WM * 16 * M; }
  static __device__ __forceinline__ int my_column() { return threadIdx.x / ZPD_WARP / WM * 8 * N; }
};

/* Calls compute(step, its tiles) for every step of a walk; fetch(step, its tiles) has asked for its copies one step
 * before. `begin` is called when what was committed before this call has arrived for all threads. */
template <class SHAPE, class BEGIN, class FETCH, class COMPUTE>
ZPD_DEVICE void zpd_each_step(zpd_walk<SHAPE::UNIT> &walk, unsigned char *stages, BEGIN begin, FETCH fetch,
                              COMPUTE compute) {
  zpd_walk_step<SHAPE::STEP, SHAPE::UNIT> now, next;
  now.take(walk);
  if (now.any) fetch(now, stages);
  zpd_cp_async_commit();
  zpd_cp_async_wait<1>();
  __syncthreads();
  begin();
  for (int stage = 0; now.any; stage ^= SHAPE::STAGES - 1) {
    unsigned char *here = stages + stage * SHAPE::STAGE_BYTES, *there = stages + (stage ^ 1) * SHAPE::STAGE_BYTES;
    next.take(walk);
    zpd_cp_async_wait<0>();
    __syncthreads(); /* the copies of all; and nobody computes with the step before any more */
    if (SHAPE::STAGES == 2 && next.any) fetch(next, there);
    zpd_cp_async_commit();
    compute(now, here);
    if (SHAPE::STAGES == 1) {
      __syncthreads();
      if (next.any) fetch(next, here);
      zpd_cp_async_commit();
    }
    now = next;
  }
}

/* The tile of a block of queries. Causal: the last ones have the most keys, so they come first. */
template <class SHAPE> struct zpd_query_block {
  int first, head, kv_head; /* first query */
  int length, queries;      /* keys and queries of the sample that are there, none in a head of padding */
  int my_first, last_key;   /* of the warp; the last key that any of its queries sees, -1: it has none */
  int full_key;             /* the last key that all of its queries see, */
  int full_from;            /* and the first */
#ifdef ZPD_DOCUMENTS
  int seen_from; /* the first key that any of its queries sees */
#endif

  __device__ __forceinline__ void begin(const zpd_attention &a) {
    const int tiles = ((int)a.S + SHAPE::ROWS - 1) / SHAPE::ROWS;
    first = (a.causal ? tiles - 1 - (int)blockIdx.x : (int)blockIdx.x) * SHAPE::ROWS;
    head = blockIdx.y;
    kv_head = head / ((int)a.H / (int)a.G);
    length = kv_head < a.kv_heads_valid ? zpd_length(a) : 0;
    queries = zpd_query_length(a, length);
    my_first = first + SHAPE::my_row();
    const int end = (int)zpd_min(queries, my_first + 16 * SHAPE::M);
    last_key = my_first >= queries ? -1 : a.causal ? end - 1 : length - 1;
    full_key = a.causal ? (int)zpd_min(my_first, length - 1) : length - 1;
    full_from = 0;
    if (zpd_window(a) > 0) narrow(a, end - 1);
#ifdef ZPD_DOCUMENTS
    seen_from = 0;
    if (a.documents && last_key >= 0) keep_to_documents(a, end - 1);
#endif
  }
#ifdef ZPD_DOCUMENTS
  __device__ __forceinline__ void keep_to_documents(const zpd_attention &a, int last) {
    const zpd_reach reach = zpd_reach_of(a, my_first, last);
    last_key = (int)zpd_min(last_key, reach.any.end - 1);
    full_key = (int)zpd_min(full_key, reach.all.end - 1);
    full_from = full_from < reach.all.first ? reach.all.first : full_from;
    seen_from = reach.any.first;
  }
#endif
  /* To windows of tokens; last: the warp's last query. */
  __device__ __forceinline__ void narrow(const zpd_attention &a, int last) {
    const int window = zpd_window(a);
    if (last_key >= 0) last_key = (int)zpd_min(last_key, last + window - 1);
    full_key = (int)zpd_min(full_key, my_first + window - 1);
    full_from = last - window + 1;
  }
  /* Is a key before the windows, or the documents, of all of the warp's queries? */
  __device__ __forceinline__ bool is_past(const zpd_attention &a, int key) const {
#ifdef ZPD_DOCUMENTS
    if (key < seen_from) return true;
#endif
    return zpd_window(a) > 0 && key <= my_first - zpd_window(a);
  }
  /* Query of half 0 or 1 of fragment m of this lane. */
  __device__ __forceinline__ int query(int m, int half) const { return my_first + 16 * m + 8 * half + zpd_group(); }
  __device__ __forceinline__ zpd_walk<SHAPE::UNIT> keys(const zpd_attention &a) const {
    zpd_walk<SHAPE::UNIT> walk;
    walk.begin(zpd_meets(a, head, first, true), zpd_first_met(a, first, SHAPE::STEP),
               (int)(a.causal ? zpd_min(length, first + SHAPE::ROWS) : zpd_end_met(a, first + SHAPE::ROWS - 1, length)),
               kv_head, 1);
    return walk;
  }
};

#ifdef ZPD_DROPOUT
/* Which keys of a step the rows of fragment m keep. Two lanes of a row have four neighbouring keys: each of them draws
 * for one half of the rows. */
template <class SHAPE> struct zpd_kept_keys {
  static_assert(SHAPE::N <= 8, "four bits for eight columns");
  unsigned word[2]; /* by half */

  __device__ __forceinline__ void draw(const zpd_attention &a, const zpd_query_block<SHAPE> &t,
                                       const zpd_walk_step<SHAPE::STEP, SHAPE::UNIT> &step, int m) {
    const int half = zpd_place() % 2, query = t.query(m, half);
    unsigned bits = 0;
    ZPD_EACH (n, SHAPE::N)
      bits |= zpd_keep_four(a, t.head, query, step.row(SHAPE::my_column() + 8 * n + zpd_place() / 2 * 4)) << 4 * n;
    const unsigned other = __shfl_xor_sync(0xffffffffu, bits, ZPD_MATE);
    word[0] = half == 0 ? bits : other;
    word[1] = half == 0 ? other : bits;
  }
  /* What element i of the fragment's n-th eight columns weighs. */
  __device__ __forceinline__ float factor(const zpd_attention &a, int n, int i) const {
    return word[i / 2] >> (4 * n + zpd_place() % 2 * 2 + i % 2) & 1 ? (float)a.more : 0;
  }
};
#endif

/* ---- forward ---- */

/* Rows of the softmax so far: the base, a maximum of scores that were seen, and this lane's share of the sum of powers
 * relative to it. */
template <int M> struct zpd_online { float max[M][2], sum[M][2]; };

/* The maximum, or 0 instead of minus infinity, which nobody may subtract from itself. */
ZPD_DEVICE float zpd_base(float max) { return max == -zpd_infinity() ? 0 : max; }

/* Brings what was summed to new bases. */
template <class SHAPE>
ZPD_DEVICE void zpd_rebase(float c, zpd_online<SHAPE::M> &s, const float (&max)[SHAPE::M][2],
                           float (&o)[SHAPE::M][ZPD_CHUNKS][4]) {
  ZPD_EACH (m, SHAPE::M)
    ZPD_EACH (half, 2) {
      const float shrink = zpd_exp2((s.max[m][half] - zpd_base(max[m][half])) * c);
      s.max[m][half] = max[m][half];
      s.sum[m][half] *= shrink;
      ZPD_EACH (n, ZPD_CHUNKS)
        ZPD_EACH (i, 2) o[m][n][2 * half + i] *= shrink;
    }
}

/* Scores to powers relative to the bases, 2^(c * (score - base)). A base follows the maximum only when that has left it
 * by more than ZPD_LEAVE powers of two: powers up to 2^ZPD_LEAVE are rounded to 16 bits as well as those up to 1, and
 * most steps leave what was summed as it is. */
#define ZPD_LEAVE 8.0f
template <class SHAPE>
ZPD_DEVICE void zpd_online_bases(float c, zpd_online<SHAPE::M> &s, const float (&score)[SHAPE::M][SHAPE::N][4],
                                 float (&o)[SHAPE::M][ZPD_CHUNKS][4]) {
  float max[SHAPE::M][2];
  bool leaves = false;
  ZPD_EACH (m, SHAPE::M)
    ZPD_EACH (half, 2) {
      max[m][half] = s.max[m][half];
      ZPD_EACH (n, SHAPE::N)
        ZPD_EACH (i, 2) max[m][half] = fmaxf(max[m][half], score[m][n][2 * half + i]);
      max[m][half] = zpd_quad_max(max[m][half]);
      leaves = leaves || (max[m][half] - s.max[m][half]) * c > ZPD_LEAVE;
    }
  if (__any_sync(0xffffffffu, leaves)) zpd_rebase<SHAPE>(c, s, max, o);
}
template <class SHAPE>
ZPD_DEVICE void zpd_online_powers(float c, zpd_online<SHAPE::M> &s, float (&score)[SHAPE::M][SHAPE::N][4]) {
  ZPD_EACH (m, SHAPE::M)
    ZPD_EACH (half, 2) {
      const float base = zpd_base(s.max[m][half]) * c;
      float sum = 0;
      ZPD_EACH (n, SHAPE::N)
        ZPD_EACH (i, 2) sum += score[m][n][2 * half + i] = zpd_exp2(score[m][n][2 * half + i] * c - base);
      s.sum[m][half] += sum;
    }
}

/* Hides what is not seen. */
template <class SHAPE>
ZPD_DEVICE void zpd_hide(const zpd_attention &a, const zpd_query_block<SHAPE> &t,
                         const zpd_walk_step<SHAPE::STEP, SHAPE::UNIT> &step, float (&score)[SHAPE::M][SHAPE::N][4]) {
  int last[SHAPE::M][2];
  ZPD_EACH (m, SHAPE::M)
    ZPD_EACH (half, 2) last[m][half] = zpd_last_key(a, t.length, t.query(m, half));
  ZPD_EACH (n, SHAPE::N) {
    const int key = step.row(SHAPE::my_column() + 8 * n) + zpd_place() * 2;
    ZPD_EACH (m, SHAPE::M)
      ZPD_EACH (i, 4)
        if (key + i % 2 > last[m][i / 2] || !zpd_is_near(a, t.length, t.query(m, i / 2), key + i % 2))
          score[m][n][i] = -zpd_infinity();
  }
}

#ifdef ZPD_SCORES
/* Products to scores, in units of products. */
template <class SHAPE>
ZPD_DEVICE void zpd_bend_scores(const zpd_bend &bend, const zpd_query_block<SHAPE> &t,
                                const zpd_walk_step<SHAPE::STEP, SHAPE::UNIT> &step,
                                float (&score)[SHAPE::M][SHAPE::N][4]) {
  ZPD_EACH (n, SHAPE::N)
    ZPD_EACH (i, 4) {
      const int key = step.row(SHAPE::my_column() + 8 * n + zpd_place() * 2 + i % 2);
      float grad;
      ZPD_EACH (m, SHAPE::M) score[m][n][i] = bend.score(score[m][n][i], t.query(m, i / 2), key, &grad);
    }
}
#endif

/* The softmax of rows whose keys several warps have shared out, and what each has to multiply its output with. */
template <class SHAPE>
ZPD_DEVICE void zpd_join_softmax(float c, zpd_online<SHAPE::M> &s, float (&factor)[SHAPE::M][2], float *buffer) {
  const int warp = threadIdx.x / ZPD_WARP;
  if (SHAPE::SHARERS > 1) __syncthreads();
  ZPD_EACH (m, SHAPE::M)
    ZPD_EACH (half, 2) {
      const int row = SHAPE::my_row() + 16 * m + 8 * half + zpd_group();
      s.sum[m][half] = zpd_quad_sum(s.sum[m][half]);
      if (SHAPE::SHARERS > 1 && zpd_place() == 0) {
        buffer[2 * (warp / SHAPE::WM * SHAPE::ROWS + row)] = s.max[m][half];
        buffer[2 * (warp / SHAPE::WM * SHAPE::ROWS + row) + 1] = s.sum[m][half];
      }
    }
  if (SHAPE::SHARERS > 1) __syncthreads();
  ZPD_EACH (m, SHAPE::M)
    ZPD_EACH (half, 2) {
      const int row = SHAPE::my_row() + 16 * m + 8 * half + zpd_group();
      float max = s.max[m][half], sum = s.sum[m][half];
      if (SHAPE::SHARERS > 1) {
        ZPD_EACH (i, SHAPE::SHARERS) {
          const float other = buffer[2 * (i * SHAPE::ROWS + row)];
          max = other > max ? other : max;
        }
        sum = 0;
        ZPD_EACH (i, SHAPE::SHARERS)
          sum += buffer[2 * (i * SHAPE::ROWS + row) + 1] *
                 zpd_exp2((buffer[2 * (i * SHAPE::ROWS + row)] - zpd_base(max)) * c);
      }
      factor[m][half] = (SHAPE::SHARERS > 1 ? zpd_exp2((s.max[m][half] - zpd_base(max)) * c) : 1) *
                        zpd_reciprocal(sum == 0 ? 1 : sum);
      s.max[m][half] = max;
      s.sum[m][half] = sum;
    }
}

template <class SHAPE>
ZPD_DEVICE void zpd_store_softmax(const zpd_attention &a, const zpd_query_block<SHAPE> &t, float c,
                                  const zpd_online<SHAPE::M> &s) {
  if (SHAPE::my_column() != 0 || zpd_place() != 0) return;
  ZPD_EACH (m, SHAPE::M)
    ZPD_EACH (half, 2)
      if (t.query(m, half) < t.queries)
        ((float *)a.lse)[((zpd_int)blockIdx.z * a.S + t.query(m, half)) * a.H + t.head] =
            (s.max[m][half] * c + zpd_log2(s.sum[m][half])) * ZPD_LN2;
}

/* Positions that are not there have 0. */
template <class SHAPE> ZPD_DEVICE void zpd_clear_softmax(const zpd_attention &a, const zpd_query_block<SHAPE> &t) {
  const int begin = t.queries > t.first ? t.queries : t.first, end = (int)zpd_min(a.S, t.first + SHAPE::ROWS);
  for (int row = begin + (int)threadIdx.x; row < end; row += ZPD_MMA_THREADS)
    ((float *)a.lse)[((zpd_int)blockIdx.z * a.S + row) * a.H + t.head] = 0;
}

template <class SHAPE> ZPD_DEVICE void zpd_mma_forward_of(const zpd_attention &a) {
  ZPD_DYNAMIC_SHARED(shared);
  enum { M = SHAPE::M, N = SHAPE::N };
  zpd_query_block<SHAPE> t;
  t.begin(a);
  zpd_clear_tile<SHAPE::ROWS>(zpd_head_of(a, (int)a.S, a.o, a.o_ld, t.head), t.first, t.queries);
  zpd_clear_softmax(a, t);
  if (t.first >= t.queries) return;
  const zpd_head_view q = zpd_head_of(a, t.queries, a.q, a.q_ld, t.head),
                      k = zpd_kv_head_of(a, t.length, a.k, a.k_ld, t.kv_head),
                      v = zpd_kv_head_of(a, t.length, a.v, a.v_ld, t.kv_head);
  const zpd_lane_view mine = zpd_lane_view_of(k, v);
  unsigned char *stages = shared + SHAPE::TILE_BYTES;
  const float c = a.scale == 0 ? 1e-30f : fabsf((float)(a.scale * ZPD_LOG2E));
#ifdef ZPD_SCORES
  zpd_bend bend;
  bend.begin(a, t.head, c * ZPD_LN2);
#endif
  zpd_left<M, SHAPE::HELD >= 1> left;
  zpd_online<M> s;
  float o[M][ZPD_CHUNKS][4], factor[M][2];
  zpd_clear_sums(o);
  ZPD_EACH (m, M)
    ZPD_EACH (half, 2) s.max[m][half] = -zpd_infinity(), s.sum[m][half] = 0;
  zpd_fetch<SHAPE::ROWS>(shared, q, t.first);
  zpd_cp_async_commit();
  zpd_walk<SHAPE::UNIT> walk = t.keys(a);
  typedef zpd_walk_step<SHAPE::STEP, SHAPE::UNIT> step_of;
  const auto begin = [&] {
    if (a.scale < 0) zpd_negate<SHAPE::ROWS>(shared); /* then the largest product has the largest score */
    left.begin(shared + SHAPE::my_row() * ZPD_ROW_BYTES);
  };
  zpd_each_step<SHAPE>(
      walk, stages, begin,
      [&](const step_of &step, unsigned char *to) {
        step.fetch(to, k, mine, 0, 0);
        step.fetch(to + SHAPE::OTHER_BYTES, v, mine, 1, 0);
      },
      [&](const step_of &step, const unsigned char *at) {
        float score[M][N][4];
        if (step.row(SHAPE::my_column()) > t.last_key) return; /* the whole warp */
        if (t.is_past(a, step.row(SHAPE::my_column() + 8 * N - 1))) return;
        zpd_scores_of<M, N>(score, left, at + SHAPE::my_column() * ZPD_ROW_BYTES);
#ifdef ZPD_SCORES
        zpd_bend_scores<SHAPE>(bend, t, step, score);
#endif
        if (!step.template inside<8 * N>(SHAPE::my_column(), t.full_from, t.full_key)) zpd_hide(a, t, step, score);
        zpd_online_bases<SHAPE>(c, s, score, o);
        zpd_online_powers<SHAPE>(c, s, score);
#ifdef ZPD_DROPOUT
        if (zpd_drops(a)) {
          zpd_kept_keys<SHAPE> kept;
          ZPD_EACH (m, M) {
            kept.draw(a, t, step, m);
            ZPD_EACH (n, N)
              ZPD_EACH (i, 4) score[m][n][i] *= kept.factor(a, n, i);
          }
        }
#endif
        zpd_add_product<M, N>(o, score, at + SHAPE::OTHER_BYTES + SHAPE::my_column() * ZPD_ROW_BYTES);
      });
  zpd_join_softmax<SHAPE>(c, s, factor, (float *)stages);
  zpd_store_softmax(a, t, c, s);
  zpd_store_sums<M, SHAPE::WM>(shared, (float *)stages, o, factor, zpd_head_of(a, t.queries, a.o, a.o_ld, t.head),
                               t.first);
}

/* For dense attention and blocks that are multiples of its tile; and the kernels for smaller blocks. */
#define ZPD_MMA_KERNEL(name, kind, rows, body)                                                                         \
  ZPD_KERNEL_OF(ZPD_MMA_THREADS, 2, name, zpd_attention) { body<zpd_shape<kind, rows>>(a); }
#ifdef ZPD_LAYOUTS
#define ZPD_MMA_KERNELS(name, kind, body)                                                                              \
  ZPD_MMA_KERNEL(name, kind, zpd_mma_rows(kind, ZPD_HEAD, 0), body)                                                    \
  ZPD_MMA_KERNEL(name##_64, kind, 64, body)                                                                            \
  ZPD_MMA_KERNEL(name##_32, kind, 32, body)                                                                            \
  ZPD_MMA_KERNEL(name##_16, kind, 16, body)
#else
#define ZPD_MMA_KERNELS(name, kind, body) ZPD_MMA_KERNEL(name, kind, zpd_mma_rows(kind, ZPD_HEAD, 0), body)
#endif

ZPD_MMA_KERNELS(zpd_mma_forward, ZPD_MMA_FORWARD, zpd_mma_forward_of)

#endif
