/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of zplan's GPU trainer on tensor cores, in 16 bits on sm_80 and later, in f16 on sm_70, which walks alike:
 * what its kernels do, counted as they walk (kernels/cuda/zpd_mma_attention.cuh, zpd_mma_attention_grad.cuh), and how
 * long that takes.
 *
 * A block of four warps has a tile of rows and walks by steps over the other side: forward and the gradient of queries
 * over the keys that some query of the tile sees, the gradient of keys and values over the queries that see some key,
 * of all heads of the group. Time: steps as long as the warp that has most to do in them, so what causality cuts from a
 * tile is paid for; a fill for every block; no block is faster than a multiprocessor. Rates are FlashAttention-2's on
 * the same GPUs, whose kernels are built alike, but on sm_70. Left out: what is read again from the L2 cache, which has
 * the bytes several times over; the difference between one and two blocks a multiprocessor. */
#include <assert.h>
#include <math.h>
#include <zplan/constants.h>
#include <zplan/own_gpu.h>
#include <zplan/rates.h>

enum { WARPS = 4, FRAGMENT = 16, FACT_BYTES = 8 };

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* ---- geometry ---- */

static int64_t columns_of(int64_t head) { return ceil_div(head, FRAGMENT) * FRAGMENT; }

static int64_t tile_rows(zp_tensor_kernel kernel, int64_t head, int64_t block) {
  int64_t widest = kernel == ZP_TENSOR_FORWARD  ? 128
                   : kernel == ZP_TENSOR_GRAD_Q ? 64
                                                : 0,
          whole = head <= widest ? 128 : 64;
  for (int64_t rows = whole; rows > FRAGMENT; rows /= 2)
    if (block % rows == 0) return rows;
  return FRAGMENT;
}

zp_attention_tile zp_attention_tile_of(zp_tensor_kernel kernel, int64_t head, int64_t block) {
  assert(head >= 1 && block >= 0);
  bool forward = kernel == ZP_TENSOR_FORWARD;
  zp_attention_tile t = {.rows = tile_rows(kernel, head, block), .sharers = 1, .step = 16};
  if (t.rows < 64) t.sharers = 64 / t.rows;
  if (t.rows < 32 || (forward ? head <= 64 || (head <= 128 && t.rows < 128) : head <= 64 && t.rows < 128))
    t.step = 64;
  else if (forward || head <= 128 || t.rows < 64)
    t.step = 32;
  return t;
}

static zp_attention_tile tile_of(zp_tensor_kernel kernel, const zp_attention_shape *s) {
  enum { BIAS_ROWS = 64 };
  bool bias = s->sums_bias && kernel == ZP_TENSOR_GRAD_Q;
  return zp_attention_tile_of(kernel, s->head, s->layout ? s->layout->block : bias ? BIAS_ROWS : 0);
}

/* Products of a pair of query and key with a head's columns. Sums of dV and dK for more than 128 columns do not fit
 * into registers together: scores are computed once for each. */
static int products(zp_tensor_kernel kernel, int64_t head) {
  enum { FORWARD = 2, GRAD_Q = 3, GRAD_KV = 4, GRAD_K_AND_V = 5, TOGETHER = 128 };
  if (kernel == ZP_TENSOR_FORWARD) return FORWARD;
  if (kernel == ZP_TENSOR_GRAD_Q) return GRAD_Q;
  return columns_of(head) <= TOGETHER ? GRAD_KV : GRAD_K_AND_V;
}

/* ---- the walk ---- */

typedef struct walk {
  const zp_attention_shape *shape;
  zp_attention_tile tile;
  bool over_queries;
  int64_t unit, part, warp_rows; /* rows of the other side that a step takes together, that a warp takes at once */
} walk;

/* Parts of `size` rows that begin in from .. to - 1. */
static int64_t parts_of(int64_t from, int64_t to, int64_t size) { return to > from ? ceil_div(to - from, size) : 0; }

/* Where steps of `size` rows begin that rows from `first` on meet for their window, and where they end. */
static int64_t window_begin(const zp_attention_shape *s, int64_t first, int64_t size) {
  return s->window > 0 && first >= s->window ? (first - s->window + 1) / size * size : 0;
}

static int64_t keys_of(const zp_attention_shape *s) { return s->keys ? s->keys : s->sequence; }

/* Positions that tiles are of, and those of the other side. */
static int64_t tiled(const walk *w) { return w->over_queries ? keys_of(w->shape) : w->shape->sequence; }
static int64_t walked(const walk *w) { return w->over_queries ? w->shape->sequence : keys_of(w->shape); }

static int64_t window_end(const walk *w, int64_t last) {
  int64_t window = w->shape->window;
  return window > 0 && last + window < walked(w) ? last + window : walked(w);
}

/* Parts of those from `from` on that lie before the windows of all rows of a warp from `mine` on. */
static int64_t past_parts(const walk *w, int64_t mine, int64_t from) {
  int64_t window = w->shape->window, past = window > 0 ? mine - window + 1 - from : 0;
  return past > 0 ? past / w->part : 0;
}

/* The parts that a warp whose rows begin at `mine` computes with, of rows from .. to - 1 of the other side. */
static int64_t seen_parts(const walk *w, int64_t mine, int64_t from, int64_t to) {
  int64_t end = tiled(w), all;
  bool causal = w->shape->causal;
  if (mine >= end) return 0;
  if (w->over_queries) { /* none before a part whose last query sees its first key */
    int64_t before = causal && mine > from ? (mine - from) / w->part : past_parts(w, mine, from);
    int64_t last = window_end(w, mine + w->warp_rows - 1);
    all = parts_of(from, to < last ? to : last, w->part);
    return all > before ? all - before : 0;
  }
  int64_t last = causal && mine + w->warp_rows < end ? mine + w->warp_rows : end;
  if (!causal) last = window_end(w, (mine + w->warp_rows < end ? mine + w->warp_rows : end) - 1);
  return parts_of(from, to < last ? to : last, w->part) - past_parts(w, mine, from);
}

/* Pairs of rows of one tile with those of one head: computed, and as many as if all warps did what the busiest does. */
typedef struct pairs {
  double computed, waited;
} pairs;

/* A tile's pairs with a head that has this set of a layout's. */
static pairs pairs_of_tile(const walk *w, int set, int64_t first) {
  const zp_attention_shape *s = w->shape;
  int64_t low = s->causal && w->over_queries ? first : window_begin(s, first, w->tile.step), units = 0, seen = 0;
  int64_t end = window_end(w, first + w->tile.rows - 1);
  if (s->causal && !w->over_queries && first + w->tile.rows < end) end = first + w->tile.rows;
  const zp_pair_set *seen_of = s->layout ? &s->layout->set[set] : NULL;
  const zp_block_list *list = seen_of ? w->over_queries ? &seen_of->queries : &seen_of->keys : NULL;
  int64_t block = s->layout ? s->layout->block : end, i = first / block;
  static const zp_block_run dense = {0, 1};
  const zp_block_run *run = list ? list->run + list->first[i] : &dense;
  for (int n = list ? list->first[i + 1] - list->first[i] : 1; n > 0; n--, run++) {
    int64_t from = run->first * block > low ? run->first * block : low;
    int64_t to = run->end * block < end ? run->end * block : end;
    units += parts_of(from, to, w->unit);
    for (int64_t mine = first; mine < first + w->tile.rows; mine += w->warp_rows) seen += seen_parts(w, mine, from, to);
  }
  int64_t steps = ceil_div(units, w->tile.step / w->unit);
  return (pairs){(double)(seen * w->warp_rows * w->part), (double)(steps * w->tile.step * w->tile.rows)};
}

/* Pairs of one tile with all heads of a group. Heads take `sets` sets in turns, and the first one has this set. */
static pairs pairs_of_group(const walk *w, int set, int sets, int64_t group, int64_t first) {
  pairs all = {0};
  int64_t heads = sets > 1 ? group : 1, alike = group / heads;
  for (int64_t h = 0; h < heads; h++) {
    pairs p = pairs_of_tile(w, (int)((set + h) % sets), first);
    all.computed += (double)alike * p.computed;
    all.waited += (double)alike * p.waited;
  }
  return all;
}

/* Tiles from .. end - 1 of dense attention, of which each differs from the one before by as much. One tile on, all
 * positions move by its rows, which are whole parts, units and steps, unless an end of the samples cuts a window or
 * the tile short. */
typedef struct tile_range {
  int64_t from, end;
} tile_range;
static tile_range regular_tiles(const walk *w) {
  const zp_attention_shape *s = w->shape;
  int64_t rows = w->tile.rows;
  if (s->layout || rows % w->part || rows % w->unit || rows % w->tile.step) return (tile_range){0, 0};
  int64_t end = (tiled(w) - s->window) / rows, from = ceil_div(s->window, rows);
  return end - from > 2 ? (tile_range){from, end} : (tile_range){0, 0};
}

static void add_tiles(zp_attention_walk *sum, const pairs *tiles, const pairs *longest, double blocks) {
  sum->flop += blocks * tiles->computed;
  sum->waited_flop += blocks * tiles->waited;
  sum->longest_flop = fmax(sum->longest_flop, longest->waited);
}

/* An arithmetic series: numbers of pairs are whole, so the sum is that of the tiles one by one. */
static double series(double first, double second, double n) { return n * first + (second - first) * (n * (n - 1) / 2); }

static void add_regular(zp_attention_walk *sum, const pairs *first, const pairs *second, double n, double blocks) {
  pairs all = {series(first->computed, second->computed, n), series(first->waited, second->waited, n)},
        longest = {0, fmax(first->waited, first->waited + (n - 1) * (second->waited - first->waited))};
  add_tiles(sum, &all, &longest, blocks);
}

/* Pairs, of one sample, of the blocks whose first query head has this set. */
static void add_blocks(const walk *w, int set, int sets, zp_attention_walk *sum) {
  const zp_attention_shape *s = w->shape;
  int64_t group = w->over_queries ? s->heads / s->kv_heads : 1, blocks = 0, rows = w->tile.rows;
  int64_t from = s->layout ? zp_layout_longest(s->layout, s->heads).first_head : 0;
  for (int64_t h = from; h < from + s->heads; h += group) blocks += h % sets == set;
  if (blocks == 0) return;
  tile_range regular = regular_tiles(w);
  for (int64_t tile = 0; tile * rows < tiled(w);) {
    pairs all = pairs_of_group(w, set, sets, group, tile * rows);
    if (tile == regular.from && regular.end > tile) {
      pairs next = pairs_of_group(w, set, sets, group, (tile + 1) * rows);
      add_regular(sum, &all, &next, (double)(regular.end - tile), (double)blocks);
      tile = regular.end;
    } else {
      add_tiles(sum, &all, &all, (double)blocks);
      tile++;
    }
  }
}

zp_attention_walk zp_attention_walk_of(zp_tensor_kernel kernel, const zp_attention_shape *shape) {
  assert(shape->samples >= 1 && shape->kv_heads >= 1 && shape->sequence >= 1 && shape->width <= shape->head);
  assert(shape->float_bytes == 2 && !(shape->layout && shape->layout->causal != shape->causal));
  assert(shape->window >= 0 && !(shape->layout && shape->window));
  assert(!shape->keys || !(shape->causal || shape->window || shape->layout));
  walk w = {.shape = shape, .tile = tile_of(kernel, shape), .over_queries = kernel == ZP_TENSOR_GRAD_KV};
  int64_t row_warps = WARPS / w.tile.sharers, heads = w.over_queries ? shape->kv_heads : shape->heads;
  w.warp_rows = w.tile.rows / row_warps;
  w.part = w.tile.step / w.tile.sharers;
  w.unit = w.tile.rows < 64 ? w.tile.rows : w.tile.step;
  zp_attention_walk sum = {.blocks = (double)(heads * ceil_div(tiled(&w), w.tile.rows) * shape->samples)};
  int sets = shape->layout ? shape->layout->sets : 1;
  for (int set = 0; set < sets; set++) add_blocks(&w, set, sets, &sum);
  double flop = 2.0 * (double)columns_of(shape->head) * products(kernel, shape->head);
  sum.flop *= flop * (double)shape->samples;
  sum.waited_flop *= flop * (double)shape->samples;
  sum.longest_flop *= flop;
  return sum;
}

/* ---- seconds ---- */

/* What every block does besides its steps, as FLOP. */
static double fill_flop(zp_tensor_kernel kernel, const zp_attention_shape *s, double blocks) {
  double rows = (double)tile_of(kernel, s).rows;
  return blocks * rows * zp_cost_constant(ZP_COST_OWN_MMA_FILL) * 2 * (double)columns_of(s->head) *
         products(kernel, s->head);
}

static double kernel_s(const zp_machine *machine, zp_tensor_kernel kernel, const zp_attention_shape *s, double bytes,
                       double *flop) {
  zp_attention_walk all = zp_attention_walk_of(kernel, s);
  zp_kernel_rate rate =
      zp_kernel_rate_of(machine, kernel == ZP_TENSOR_FORWARD ? ZP_KERNEL_ATTENTION : ZP_KERNEL_ATTENTION_GRAD, s->head);
  double filled = all.waited_flop + fill_flop(kernel, s, all.blocks);
  double alone = (all.longest_flop + fill_flop(kernel, s, 1)) * zp_cost_units(machine);
  *flop += all.flop;
  return machine->node->device.launch_s + fmax(fmax(filled, alone) / rate.flop_per_s, bytes / rate.bytes_per_s);
}

/* Forward reads q, k and v and writes o and log-sum-exps. The gradient of queries reads these and d_o, and writes dq
 * and what the other kernel knows of queries; that reads it, q, k, v and d_o and writes dk and dv. */
double zp_cost_tensor_attention(const zp_machine *machine, const zp_attention_shape *s, bool backward,
                                zp_kernel_work *work) {
  assert(machine && s && work);
  double rows = (double)(s->samples * s->sequence), element = s->float_bytes, stat = rows * (double)s->heads * 4;
  double q = rows * (double)(s->heads * s->width) * element,
         k = (double)(s->samples * keys_of(s) * s->kv_heads * s->width) * element;
  double facts = rows * (double)s->heads * FACT_BYTES, seconds = 0;
  *work = (zp_kernel_work){.kernel = backward ? ZP_KERNEL_ATTENTION_GRAD : ZP_KERNEL_ATTENTION,
                           .launches = backward ? 2 : 1};
  if (!backward) {
    work->bytes = 2 * q + 2 * k + stat;
    return kernel_s(machine, ZP_TENSOR_FORWARD, s, work->bytes, &work->flop);
  }
  double of_q = 4 * q + 2 * k + stat + facts, of_kv = 2 * q + 4 * k + facts;
  work->bytes = of_q + of_kv;
  seconds += kernel_s(machine, ZP_TENSOR_GRAD_Q, s, of_q, &work->flop);
  return seconds + kernel_s(machine, ZP_TENSOR_GRAD_KV, s, of_kv, &work->flop);
}

/* ---- alongside the products ---- */

double zp_cost_score_extras(const zp_machine *machine, const zp_score_extras *x, bool backward, zp_kernel_work *work) {
  assert(machine && x && work && x->pairs >= 0);
  enum { KERNELS_BACKWARD = 2 };
  double kernels = backward ? KERNELS_BACKWARD : 1, flop = 0;
  int launches = x->bias ? 1 + (backward && x->sums_bias) : 0;
  if (x->drops) flop += kernels * zp_cost_constant(ZP_COST_OWN_DROPOUT);
  if (x->bias) flop += (kernels + (backward && x->sums_bias)) * zp_cost_constant(ZP_COST_OWN_RELATIVE_BIAS);
  zp_kernel kernel = backward ? ZP_KERNEL_ATTENTION_GRAD : ZP_KERNEL_ATTENTION;
  work->launches += launches;
  work->flop += x->pairs * flop;
  return launches * machine->node->device.launch_s + x->pairs * flop / zp_kernel_rate_of(machine, kernel, 0).flop_per_s;
}
