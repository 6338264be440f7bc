/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of a few queries, as decoding asks for it, over keys and values that earlier calls have left: one
 * block for a query of a head, on the plain units, as zpk_attention_stretch.
 *
 * Eight lanes share a key, so that they read 128 bytes of its row together; a block takes 16 keys at once, and four
 * times as many between two looks at the running maximum. Every lane group has a softmax of its own keys; at the end
 * these are brought to one maximum and summed in the order of the groups, so that the result depends on the keys alone.
 * Time follows the keys that the query sees, which are read once. Only for texts with ZPD_DECODE. */
#ifndef ZPD_STRETCH_CUH
#define ZPD_STRETCH_CUH

#include "zpd_attention.cuh"

enum {
  ZPD_STRETCH_KEYS = 4, /* of a lane group between two looks */
  ZPD_STRETCH_COLS = zpd_parts < sizeof(real) == 8 ? 128 : 256 > ::COLS,
  ZPD_STRETCH_PACKS = ZPD_STRETCH_COLS / ZPD_UNIT /* of a lane */
};

/* What the groups have at the end. */
struct zpd_stretch_shared {
  zpd_pack o[ZPD_GROUPS * ZPD_STRETCH_COLS / ZPD_PACK];
  real max[ZPD_GROUPS], sum[ZPD_GROUPS];
};

/* Where a query's rows and those of its head of keys are; col: of the values. */
struct zpd_stretch_query {
  int at, keys, col; /* keys: before which it sees all but for windows and layouts */
  zpd_view q, k, v;
};

/* Scores of this group's keys `key` + 16 i before `end`, -inf where the query does not see one. */
ZPD_DEVICE void zpd_stretch_scores(const zpd_attention &a, const zpd_bend &bend, const zpd_stretch_query &x, int key,
                                   int end, real (&score)[ZPD_STRETCH_KEYS]) {
  ZPD_EACH (i, ZPD_STRETCH_KEYS) score[i] = 0;
  for (int c = zpd_x() * ZPD_PACK; c < x.q.cols; c += ZPD_UNIT) {
    const zpd_pack q = zpd_view_load(x.q, 0, c);
    ZPD_EACH (i, ZPD_STRETCH_KEYS) {
      const int at = key + i * ZPD_GROUPS;
      const zpd_pack k = zpd_view_load(x.k, at < end ? at : x.k.rows, c);
      ZPD_EACH (e, ZPD_PACK) score[i] += q.at[e] * k.at[e];
    }
  }
  ZPD_EACH (i, ZPD_STRETCH_KEYS) {
    const int at = key + i * ZPD_GROUPS;
    real grad;
    const real product = zpd_row_sum(score[i]);
    score[i] = at < end && zpd_sees(a, x.keys, x.at, at) ? bend.score(product, x.at, at, &grad) * (real)a.scale
                                                         : -zpd_infinity();
  }
}

/* A group's softmax so far, of the columns from x.col on. */
struct zpd_stretch_sum {
  real max, sum;
  zpd_pack o[ZPD_STRETCH_PACKS];

  __device__ __forceinline__ void add(const zpd_stretch_query &x, int key, real (&score)[ZPD_STRETCH_KEYS]) {
    real top = max;
    ZPD_EACH (i, ZPD_STRETCH_KEYS) top = score[i] > top ? score[i] : top;
    const real base = top == -zpd_infinity() ? 0 : top, shrink = zpd_exp(max - base);
    max = top;
    sum *= shrink;
    ZPD_EACH (i, ZPD_STRETCH_KEYS) sum += score[i] = zpd_exp(score[i] - base);
    ZPD_EACH (p, ZPD_STRETCH_PACKS) {
      ZPD_EACH (e, ZPD_PACK) o[p].at[e] *= shrink;
      ZPD_EACH (i, ZPD_STRETCH_KEYS) {
        /* What is not seen is not read: it may be anything. */
        const int at = key + i * ZPD_GROUPS;
        const zpd_pack v =
            zpd_view_load(x.v, score[i] > 0 ? at : x.v.rows, x.col + (zpd_x() + p * ZPD_LANES) * ZPD_PACK);
        ZPD_EACH (e, ZPD_PACK) o[p].at[e] += score[i] * v.at[e];
      }
    }
  }
};

/* The groups' sums to one output. */
ZPD_DEVICE void zpd_stretch_store(const zpd_stretch_sum &mine, zpd_stretch_shared &shared, elem *out, int cols) {
  real top = -zpd_infinity(), sum = 0;
  __syncthreads(); /* the part before is read */
  if (zpd_x() == 0) shared.max[zpd_y()] = mine.max, shared.sum[zpd_y()] = mine.sum;
  ZPD_EACH (p, ZPD_STRETCH_PACKS)
    shared.o[zpd_y() * (ZPD_STRETCH_COLS / ZPD_PACK) + zpd_x() + p * ZPD_LANES] = mine.o[p];
  __syncthreads();
  for (int g = 0; g < ZPD_GROUPS; g++) top = shared.max[g] > top ? shared.max[g] : top;
  for (int g = 0; g < ZPD_GROUPS; g++) sum += shared.sum[g] * zpd_exp(shared.max[g] - top);
  for (int c = threadIdx.x; c < cols; c += ZPD_ATTENTION_THREADS) {
    real o = 0;
    for (int g = 0; g < ZPD_GROUPS; g++)
      o += shared.o[g * (ZPD_STRETCH_COLS / ZPD_PACK) + c / ZPD_PACK].at[c % ZPD_PACK] * zpd_exp(shared.max[g] - top);
    out[c] = o / sum;
  }
}

ZPD_DEVICE void zpd_stretch_part(const zpd_attention &a, const zpd_stretch_query &x, zpd_int head, elem *out,
                                 zpd_stretch_shared &shared) {
  zpd_stretch_sum mine = {-zpd_infinity(), 0, {}};
  zpd_bend bend;
  bend.begin(a, head, (real)a.scale);
  const zpd_met met = zpd_meets(a, head, x.at, true);
  const int seen = zpd_first_seen(a, x.at);
  for (int r = 0; r < met.runs; r++) {
    const zpd_tiles tiles = met.tiles(r, x.keys);
    for (int first = tiles.first < seen ? seen : tiles.first; first < tiles.end;
         first += ZPD_STRETCH_KEYS * ZPD_GROUPS) {
      real score[ZPD_STRETCH_KEYS];
      zpd_stretch_scores(a, bend, x, first + zpd_y(), tiles.end, score);
      mine.add(x, first + zpd_y(), score);
    }
  }
  zpd_stretch_store(mine, shared, out + x.col, (int)zpd_min(a.hd - x.col, ZPD_STRETCH_COLS));
}

ZPD_KERNEL_OF(ZPD_ATTENTION_THREADS, 2, zpd_attention_stretch, zpd_stretch) {
  __shared__ zpd_stretch_shared shared;
  const zpd_attention &of = a.of;
  const zpd_int head = blockIdx.y, kv_head = head / (of.H / of.G), sample = blockIdx.z * of.S;
  const int at = (int)a.first + (int)blockIdx.x, keys = of.causal ? at + 1 : zpd_length(of);
  const zpd_int first_key = blockIdx.z * zpd_keys_of_sample(of);
  elem *out = (elem *)of.o + (sample + at) * of.o_ld + head * of.hd;
  if (kv_head >= of.kv_heads_valid) {
    for (int c = threadIdx.x; c < of.hd; c += ZPD_ATTENTION_THREADS) out[c] = 0;
    return;
  }
  for (int col = 0; col < of.hd; col += ZPD_STRETCH_COLS) {
    const zpd_stretch_query x = {at,
                                 keys,
                                 col,
                                 zpd_head_rows(of.q, of.q_ld, sample + at, 1, head, of.hd),
                                 zpd_head_rows(of.k, of.k_ld, first_key, keys, kv_head, of.hd),
                                 zpd_head_rows(of.v, of.v_ld, first_key, keys, kv_head, of.hd)};
    zpd_stretch_part(of, x, head, out, shared);
  }
}

#endif
