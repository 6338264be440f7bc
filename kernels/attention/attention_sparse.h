/* SPDX-License-Identifier: Apache-2.0 */
/* Block-sparse attention of one (sample, kv head) in one dtype and instruction set, and the choice between it and the
 * dense one. The inner steps are the dense ones; tiles begin and end where blocks do, so no tile is partly absent, and
 * only the pair of a block with itself is masked. Tiles of up to BLOCK keys run on over neighbouring blocks. A sample
 * may end in the middle of a block. */

#define MIN(x, y) ((x) < (y) ? (x) : (y))
#define TILE(left) MIN(left, BLOCK)

/* Keys transposed in panels of UNIT, so that a tile may begin at any of them: [S / UNIT, rounded up][hd
 * padded][UNIT]. */
static void NAME(panel_scores)(const zpk_attention_args *args, const NAME(query_block) * x, const REAL *keys_t,
                               int64_t key, int64_t keys) {
  for (int64_t at = 0; at < keys; at += ZPK_SPARSE_UNIT) NAME(multiply)
  (x->q, x->ld, 1, keys_t + (key + at) * x->ld, ZPK_SPARSE_UNIT, x->rows, ZPK_SPARSE_UNIT, args->hd, false, x->p + at,
   BLOCK);
}

/* The layout that head h has, of those here. */
static inline const zpk_layout *NAME(layout_of)(const zpk_attention_args *args, int64_t h) {
  return &args->layout[(args->first_head + h) % (1 + args->layout->others)];
}

/* Queries first .. first + rows - 1, all of one block. */
static void NAME(sparse_queries)(const zpk_attention_args *args, int64_t b, int64_t h, int64_t first, int64_t rows,
                                 const REAL *keys_t, const REAL *values, REAL *workspace) {
  const zpk_layout *layout = NAME(layout_of)(args, h);
  int64_t i = first / layout->block;
  NAME(query_block) x;
  NAME(begin_queries)(args, b, h, first, rows, workspace, NULL, &x);
  for (int r = layout->keys.first[i]; r < layout->keys.first[i + 1]; r++) {
    int64_t end = layout->keys.run[r].end * layout->block;
    end = MIN(end, args->causal ? first + rows : args->S);
    for (int64_t key = layout->keys.run[r].first * layout->block; key < end; key += BLOCK) {
      int64_t keys = TILE(end - key);
      NAME(panel_scores)(args, &x, keys_t, key, keys);
      NAME(add_keys)(args, &x, key, keys, values);
    }
  }
  NAME(store_output)(args, b, h, first, rows, &x.state, x.o, x.ld);
}

static void NAME(sparse_forward)(const zpk_attention_args *args, int64_t b, int64_t g, void *workspace) {
  int64_t S = args->S, hd = args->hd, ld = zpk_padded_head(args->dtype, hd), group = args->H / args->G;
  int64_t size = args->layout->block;
  int64_t padded_S = zpk_padded_keys(S);
  REAL *keys_t = workspace, *values = keys_t + padded_S * ld, *block = values + padded_S * ld;
  for (int64_t key = 0; key < S; key += ZPK_SPARSE_UNIT) {
    int64_t row = b * S + key;
    NAME(pack_transposed)
    ((const ELEM *)args->k + row * args->k_ld + g * hd, args->k_ld, MIN(S - key, ZPK_SPARSE_UNIT), hd,
     keys_t + key * ld, ZPK_SPARSE_UNIT);
  }
  NAME(pack_rows)((const ELEM *)args->v + b * S * args->v_ld + g * hd, args->v_ld, S, hd, values, ld);
  for (int64_t h = g * group; h < (g + 1) * group; h++)
    for (int64_t begin = 0; begin < S; begin += size)
      for (int64_t first = begin, end = MIN(begin + size, S); first < end; first += BLOCK)
        NAME(sparse_queries)(args, b, h, first, TILE(end - first), keys_t, values, block);
}

/* All queries of head h that see the keys, which are of one block. */
static void NAME(sparse_keys)(const zpk_attention_args *args, int64_t b, int64_t h, int64_t key, int64_t keys,
                              const NAME(backward_blocks) * w) {
  const zpk_layout *layout = NAME(layout_of)(args, h);
  int64_t j = key / layout->block;
  for (int r = layout->queries.first[j]; r < layout->queries.first[j + 1]; r++) {
    int64_t first = layout->queries.run[r].first * layout->block, end = layout->queries.run[r].end * layout->block;
    if (args->causal && first < key) first = key;
    end = MIN(end, args->S);
    for (; first < end; first += BLOCK)
      NAME(backward_pair)(args, b, h, first, TILE(end - first), key, keys, true, w, NULL);
  }
}

static void NAME(clear_queries)(const zpk_attention_args *args, int64_t b, int64_t h, const NAME(backward_blocks) * w) {
  int64_t ld = NAME(sums_apart)() ? w->ld : args->dq_ld;
  REAL *dq = NAME(dq_place)(args, b, h, 0, w);
  for (int64_t i = 0; i < args->S; i++) memset(dq + i * ld, 0, (size_t)args->hd * sizeof(REAL));
}

static void NAME(sparse_backward)(const zpk_attention_args *args, int64_t b, int64_t g, void *workspace) {
  int64_t S = args->S, group = args->H / args->G, size = args->layout->block;
  NAME(backward_blocks) w = NAME(cut_workspace)(workspace, zpk_padded_head(args->dtype, args->hd));
  for (int64_t h = g * group; h < (g + 1) * group; h++) NAME(clear_queries)(args, b, h, &w);
  for (int64_t begin = 0; begin < S; begin += size)
    for (int64_t key = begin, end = MIN(begin + size, S); key < end; key += BLOCK) {
      int64_t keys = TILE(end - key);
      NAME(begin_keys)(args, b, g, key, keys, &w);
      for (int64_t h = g * group; h < (g + 1) * group; h++) NAME(sparse_keys)(args, b, h, key, keys, &w);
      NAME(end_keys)(args, b, g, key, keys, &w);
    }
  NAME(end_queries)(args, b, g, &w);
}

#undef TILE
#undef MIN

static void NAME(forward)(const zpk_attention_args *args, int64_t b, int64_t g, void *workspace, void *lines) {
  if (args->layout)
    NAME(sparse_forward)(args, b, g, workspace);
  else
    NAME(dense_forward)(args, b, g, workspace, lines);
}

static void NAME(backward)(const zpk_attention_args *args, int64_t b, int64_t g, void *workspace, void *lines) {
  if (args->layout)
    NAME(sparse_backward)(args, b, g, workspace);
  else
    NAME(dense_backward)(args, b, g, workspace, lines);
}

/* Row b of every sum is one sample's; the order is the same whoever made them. */
static void NAME(add_bias_grad)(const zpk_attention_args *args) {
  for (int64_t bucket = 0; bucket < args->buckets; bucket++)
    for (int64_t h = 0; h < args->H; h++) {
      REAL sum = 0;
      for (int64_t b = 0; b < args->B; b++)
        sum += ((const REAL *)args->bias_sums)[(b * args->H + h) * args->buckets + bucket];
      ((REAL *)args->d_bias)[bucket * args->bias_ld + h] += sum;
    }
}
