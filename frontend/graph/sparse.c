/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts of block-sparse attention: the rules of the patterns, and lists of runs made from the matrix of blocks. */
#include <assert.h>
#include <string.h>
#include <zplan/philox.h>
#include <zplan/sparse.h>

static const char *const names[] = {"fixed", "variable", "sliding", "bigbird", "longformer", "strided"};

const char *zp_sparse_name(zp_sparse_kind kind) {
  assert(kind <= ZP_SPARSE_STRIDED);
  return names[kind];
}

static const char *list_text(zp_arena *arena, const zp_ints *list) {
  const char *text = "[";
  for (int i = 0; i < list->len; i++) text = zp_format(arena, "%s%s%d", text, i ? ", " : "", list->data[i]);
  return zp_format(arena, "%s]", text);
}

const char *zp_sparse_text(zp_arena *arena, const zp_sparse *s) {
  assert(s->kind <= ZP_SPARSE_STRIDED);
#define N(x) ((long long)s->x)
  const char *head = zp_format(arena, "%s(block = %lld, ", names[s->kind], N(block));
  const char *random = s->random ? zp_format(arena, ", random = %lld, seed = %lld", N(random), N(seed)) : "";
  const char *rows = s->horizontal ? ", horizontal = true" : "";
  switch (s->kind) {
  case ZP_SPARSE_FIXED:
    return zp_format(arena, "%slocal = %lld, global = %lld%s%s)", head, N(local), N(global),
                     s->patterns > 1 ? zp_format(arena, ", patterns = %lld", N(patterns)) : "", rows);
  case ZP_SPARSE_VARIABLE:
    return zp_format(arena, "%swindows = %s, global = %s%s%s)", head, list_text(arena, &s->windows),
                     list_text(arena, &s->globals), random, rows);
  case ZP_SPARSE_SLIDING: return zp_format(arena, "%swindow = %lld)", head, N(window));
  case ZP_SPARSE_BIGBIRD:
    return zp_format(arena, "%swindow = %lld, global = %lld%s)", head, N(window), N(global), random);
  case ZP_SPARSE_LONGFORMER:
    return zp_format(arena, "%swindow = %lld, global = %s)", head, N(window), list_text(arena, &s->globals));
  case ZP_SPARSE_STRIDED: return zp_format(arena, "%slocal = %lld, stride = %lld)", head, N(local), N(stride));
  }
#undef N
  return head;
}

/* ---- the rules, for one pair of blocks ---- */

static bool in_window(const zp_sparse *s, int i, int j) {
  int64_t apart = i < j ? j - i : i - j;
  return apart <= s->window / 2;
}

/* Does block j stand for its run of `local` blocks? The last ones do, or those that the number of the set is before
 * them. A run that the sequence cuts off has at most the last blocks of the sequence. */
static bool is_representative(const zp_sparse *s, int number, int j, int n) {
  int64_t begin = j / s->local * s->local, first = begin + s->local - (1 + number) * s->global;
  if (begin + s->local > n && first > n - s->global) first = n - s->global;
  return j >= first && j < first + s->global;
}

static int window_of(const zp_ints *windows, int block) {
  int window = 0, end = 0;
  do {
    end += windows->data[window < windows->len ? window : windows->len - 1];
    window++;
  } while (end <= block);
  return window;
}

static bool listed(const zp_ints *list, int block) {
  for (int i = 0; i < list->len; i++)
    if (list->data[i] == block) return true;
  return false;
}

/* Whether block i sees block j in the set of this number. */
static bool meets(const zp_sparse *s, int number, int i, int j, int n) {
  int64_t apart = i < j ? j - i : i - j;
  switch (s->kind) {
  case ZP_SPARSE_FIXED:
    return i / s->local == j / s->local || is_representative(s, number, j, n) ||
           (s->horizontal && is_representative(s, number, i, n));
  case ZP_SPARSE_VARIABLE:
    return window_of(&s->windows, i) == window_of(&s->windows, j) || listed(&s->globals, j) ||
           (s->horizontal && listed(&s->globals, i));
  case ZP_SPARSE_SLIDING: return in_window(s, i, j);
  case ZP_SPARSE_BIGBIRD: return in_window(s, i, j) || i < s->global || j < s->global;
  case ZP_SPARSE_LONGFORMER: return in_window(s, i, j) || listed(&s->globals, i) || listed(&s->globals, j);
  case ZP_SPARSE_STRIDED: return apart < s->local || apart % s->stride == 0;
  }
  return false;
}

/* `random` different blocks of the first `limit`, all when there are no more: a number of the stream of all plans, and
 * where that block is drawn already the next one that is not. */
static void draw(const zp_sparse *s, int i, int limit, bool *drawn, bool *row) {
  for (int j = 0; j < limit; j++) drawn[j] = false;
  for (int k = 0; k < s->random && k < limit; k++) {
    double u = zp_philox_uniform((uint64_t)s->seed, 0, (uint64_t)i, 0, 0, (uint64_t)k);
    int j = (int)(u * limit);
    while (drawn[j]) j = (j + 1) % limit;
    drawn[j] = row[j] = true;
  }
}

static bool *matrix_of(zp_arena *arena, const zp_sparse *s, int number, int n, bool causal) {
  bool *seen = ZP_NEW_ARRAY(arena, bool, (size_t)n *(size_t)n), *drawn = ZP_NEW_ARRAY(arena, bool, (size_t)n);
  for (int i = 0; i < n; i++) {
    int limit = causal ? i + 1 : n;
    for (int j = 0; j < limit; j++) seen[(size_t)i * (size_t)n + (size_t)j] = meets(s, number, i, j, n);
    draw(s, i, limit, drawn, seen + (size_t)i * (size_t)n);
    assert(seen[(size_t)i * (size_t)n + (size_t)i]);
  }
  return seen;
}

/* ---- lists ---- */

/* Lines of the matrix, whose elements are `step` apart, and lines `line` apart. */
static zp_block_list list_of(zp_arena *arena, const bool *seen, int n, size_t line, size_t step) {
  ZP_VEC(zp_block_run) runs = {0};
  int *first = ZP_NEW_ARRAY(arena, int, (size_t)n + 1);
  for (int i = 0; i < n; i++) {
    first[i] = runs.len;
    for (int j = 0; j < n; j++) {
      if (!seen[(size_t)i * line + (size_t)j * step]) continue;
      int end = j + 1;
      while (end < n && seen[(size_t)i * line + (size_t)end * step]) end++;
      zp_push(arena, &runs, ((zp_block_run){j, end}));
      j = end;
    }
  }
  first[n] = runs.len;
  return (zp_block_list){first, runs.data};
}

static const char *unfit(zp_arena *arena, const zp_sparse *s, int64_t sequence, bool causal) {
  if (s->horizontal && causal) return "`horizontal` lets global blocks see all keys, which is for `causal = false`";
  if (sequence % s->block)
    return zp_format(arena, "a sequence of %lld positions is no multiple of the pattern's block of %lld",
                     (long long)sequence, (long long)s->block);
  int64_t n = sequence / s->block;
  if (n > ZP_SPARSE_MAX_BLOCKS)
    return zp_format(arena, "a sequence of %lld positions has %lld blocks of %lld, at most %d are built",
                     (long long)sequence, (long long)n, (long long)s->block, ZP_SPARSE_MAX_BLOCKS);
  for (int i = 0; i < s->globals.len; i++)
    if (s->globals.data[i] >= n)
      return zp_format(arena,
                       "block %d of `global` does not exist: a sequence of %lld positions has %lld blocks of %lld",
                       s->globals.data[i], (long long)sequence, (long long)n, (long long)s->block);
  return NULL;
}

static zp_pair_set pairs_of(zp_arena *arena, const zp_sparse *sparse, int number, size_t n, bool causal) {
  const bool *seen = matrix_of(arena, sparse, number, (int)n, causal);
  zp_pair_set set = {.keys = list_of(arena, seen, (int)n, n, 1), .queries = list_of(arena, seen, (int)n, 1, n)};
  for (size_t i = 0; i < n * n; i++) set.pairs += seen[i];
  return set;
}

const zp_layout *zp_layout_make(zp_arena *arena, const zp_sparse *sparse, int64_t heads, int64_t sequence, bool causal,
                                const char **error) {
  assert(sparse && error && heads >= 1 && (sparse->kind != ZP_SPARSE_FIXED || sparse->patterns >= 1));
  *error = unfit(arena, sparse, sequence, causal);
  if (*error) return NULL;
  int64_t n = sequence / sparse->block, sets = sparse->kind == ZP_SPARSE_FIXED ? sparse->patterns : 1;
  if (sets > heads) sets = heads;
  zp_pair_set *set = ZP_NEW_ARRAY(arena, zp_pair_set, (size_t)sets);
  for (int64_t i = 0; i < sets; i++) set[i] = pairs_of(arena, sparse, (int)i, (size_t)n, causal);
  zp_layout *layout = ZP_NEW(arena, zp_layout);
  *layout = (zp_layout){.sparse = sparse, .block = sparse->block, .n = (int)n, .causal = causal};
  layout->heads = heads;
  layout->sets = (int)sets;
  layout->set = set;
  return layout;
}

/* ---- parts ---- */

/* What rows of stretch `of` have in columns of stretch `in`, of n blocks each. */
static zp_block_list part_of_list(zp_arena *arena, const zp_block_list *list, int n, int of, int in) {
  int *first = ZP_NEW_ARRAY(arena, int, (size_t)n + 1), runs = 0,
      most = list->first[(of + 1) * n] - list->first[of * n];
  zp_block_run *run = ZP_NEW_ARRAY(arena, zp_block_run, (size_t)most + 1);
  for (int i = 0; i < n; i++) {
    for (int r = list->first[of * n + i]; r < list->first[of * n + i + 1]; r++) {
      int begin = list->run[r].first - in * n, end = list->run[r].end - in * n;
      if (begin < 0) begin = 0;
      if (end > n) end = n;
      if (begin < end) run[runs++] = (zp_block_run){begin, end};
    }
    first[i + 1] = runs;
  }
  return (zp_block_list){first, run};
}

const zp_layout *zp_layout_part(zp_arena *arena, const zp_layout *layout, int stretches, int query, int key) {
  assert(stretches >= 1 && layout->n % stretches == 0);
  assert(query >= 0 && query < stretches && key >= 0 && key < stretches);
  int n = layout->n / stretches;
  zp_pair_set *set = ZP_NEW_ARRAY(arena, zp_pair_set, (size_t)layout->sets);
  int64_t pairs = 0;
  for (int i = 0; i < layout->sets; i++) {
    set[i].keys = part_of_list(arena, &layout->set[i].keys, n, query, key);
    set[i].queries = part_of_list(arena, &layout->set[i].queries, n, key, query);
    for (int r = 0; r < set[i].keys.first[n]; r++) set[i].pairs += set[i].keys.run[r].end - set[i].keys.run[r].first;
    pairs += set[i].pairs;
  }
  if (pairs == 0) return NULL;
  zp_layout *part = ZP_NEW(arena, zp_layout);
  *part = *layout;
  part->n = n, part->set = set, part->causal = layout->causal && query == key;
  return part;
}

const double *zp_layout_between(zp_arena *arena, const zp_layout *layout, int stretches) {
  assert(stretches >= 1 && layout->n % stretches == 0);
  int n = layout->n / stretches;
  double *pairs = ZP_NEW_ARRAY(arena, double, (size_t)stretches *(size_t)stretches);
  double one = (double)layout->block * (double)layout->block / layout->sets;
  for (int i = 0; i < layout->sets; i++) {
    const zp_block_list *keys = &layout->set[i].keys;
    for (int b = 0; b < layout->n; b++)
      for (int r = keys->first[b]; r < keys->first[b + 1]; r++)
        for (int j = keys->run[r].first; j < keys->run[r].end; j++)
          pairs[b / n * stretches + j / n] += layout->causal && j == b ? one / 2 : one;
  }
  return pairs;
}

/* ---- questions ---- */

bool zp_layout_sees(const zp_layout *layout, int64_t head, int64_t query, int64_t key) {
  assert(head >= 0);
  assert(query >= 0 && query < layout->n * layout->block);
  assert(key >= 0 && key < layout->n * layout->block);
  if (layout->causal && key > query) return false;
  int64_t i = query / layout->block, j = key / layout->block;
  const zp_block_list *keys = &layout->set[head % layout->sets].keys;
  for (int r = keys->first[i]; r < keys->first[i + 1]; r++)
    if (keys->run[r].first <= j && j < keys->run[r].end) return true;
  return false;
}

static bool same_list(const zp_block_list *a, const zp_block_list *b, int n) {
  return memcmp(a->first, b->first, ((size_t)n + 1) * sizeof *a->first) == 0 &&
         memcmp(a->run, b->run, (size_t)a->first[n] * sizeof *a->run) == 0;
}

bool zp_layout_equal(const zp_layout *a, const zp_layout *b) {
  if (a->block != b->block || a->n != b->n || a->causal != b->causal || a->sets != b->sets) return false;
  for (int i = 0; i < a->sets; i++)
    if (!same_list(&a->set[i].keys, &b->set[i].keys, a->n)) return false;
  return true;
}

zp_layout_work zp_layout_longest(const zp_layout *layout, int64_t heads) {
  assert(heads >= 1 && heads <= layout->heads);
  int64_t most = 0, first_head = 0;
  for (int64_t first = 0; first < layout->heads; first += heads) {
    int64_t pairs = 0;
    for (int64_t h = first; h < first + heads; h++) pairs += layout->set[h % layout->sets].pairs;
    if (pairs > most) most = pairs, first_head = first;
  }
  double of_head = (double)most / (double)heads, halves = layout->causal ? layout->n / 2.0 : 0;
  double positions = (double)layout->block * (double)layout->block;
  return (zp_layout_work){first_head, (of_head - halves) * positions, of_head * positions};
}

double zp_layout_excess(const zp_layout *layout, int64_t heads) {
  zp_layout_work work = zp_layout_longest(layout, heads);
  return work.computed / work.seen;
}

double zp_layout_density(const zp_layout *layout) {
  double sequence = (double)layout->n * (double)layout->block;
  return zp_layout_longest(layout, layout->heads).seen / (sequence * sequence * (layout->causal ? 0.5 : 1));
}

int zp_layouts_find(const zp_layouts *list, const zp_layout *layout) {
  for (int i = 0; i < list->len; i++)
    if (zp_layout_equal(list->data[i], layout)) return i;
  return -1;
}

zp_layouts zp_model_layouts(const zp_model *model) {
  zp_layouts list = {0};
  for (int s = 0; s < model->segments.len; s++) {
    const zp_graph *graph = model->segments.data[s].graph;
    for (int n = 0; n < graph->nodes.len; n++) {
      const zp_node *node = &graph->nodes.data[n];
      const zp_layout *layout = node->op == ZP_OP_ATTENTION ? node->attr.layout : NULL;
      if (layout && zp_layouts_find(&list, layout) < 0) zp_push(model->arena, &list, layout);
    }
  }
  return list;
}

const char *zp_layout_text(zp_arena *arena, const zp_layout *layout) {
  return zp_format(arena, "sparse.%s, %s, %d blocks a sequence: %.3g%% of dense attention",
                   zp_sparse_text(arena, layout->sparse), layout->causal ? "causal" : "both ways", layout->n,
                   100 * zp_layout_density(layout));
}
