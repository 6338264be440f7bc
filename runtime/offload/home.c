/* SPDX-License-Identifier: Apache-2.0 */
/* Where parameters and gradients stand that may be off the device: buckets, and what a rank updates. */
#include "home.h"
#include <assert.h>
#include <stdlib.h>
#include "state.h"

static bool holds_whole(const zpr *c, zpr_class class) {
  return class == ZPR_CLASS_PARAMS ? !zpr_shards_params(c->program) : !zpr_shards_gradients(c->program);
}

static int64_t offloaded_of(const zpr *c, zpr_class class) {
  return class == ZPR_CLASS_PARAMS ? c->stage->params_offloaded.elements : c->stage->grads_offloaded.elements;
}

/* Ranks that own a piece each of what they hold alike. */
static int owners_of(const zpr *c, zpr_kind kind) {
  if (!(zpr_is_trained(kind) ? zpr_shards_state(c->program) : zpr_shards_params(c->program))) return 1;
  return zpr_shard_ranks(c->program) / (kind == ZPR_KIND_SPREAD ? zpr_expert_ranks(c->program) : 1);
}

int64_t zpr_own_here(const zpr *c, zpr_class class) { return zpr_shard_elements(c->stage) - offloaded_of(c, class); }

int64_t zpr_held(const zpr *c, zpr_class class) {
  return holds_whole(c, class) ? zpr_flat_elements(c->stage) : zpr_shard_elements(c->stage);
}

/* Elements that all owners together have before own element `own` of each. */
static int64_t held_before(const zpr *c, int64_t own) {
  int64_t held = 0;
  for (zpr_kind kind = 0; kind < ZPR_KINDS && own > 0; kind++) {
    int64_t part = own < c->stage->shard[kind] ? own : c->stage->shard[kind];
    held += part * owners_of(c, kind);
    own -= part;
  }
  return held;
}

int64_t zpr_held_here(zpr *c, zpr_class class) {
  int64_t here = zpr_own_here(c, class);
  if (offloaded_of(c, class) == 0) return zpr_held(c, class);
  return holds_whole(c, class) ? held_before(c, here) : here;
}

zpr_bucket_home zpr_home_of_bucket(zpr *c, zpr_class class, const zpr_run *run, int64_t i) {
  bool whole = holds_whole(c, class);
  zpr_part part = zpr_part_of(c, run->kind);
  int owners = owners_of(c, run->kind);
  assert(zpr_is_trained(run->kind) || class == ZPR_CLASS_PARAMS);
  int64_t first = run->base + i * run->stride, end = zpr_own_here(c, class);
  zpr_bucket_home home = {
      .run = run, .i = i, .shards = whole ? owners : 1, .mine = whole && owners > 1 ? part.place : 0};
  home.size = run->stride / owners;
  home.own = part.state_begin + (first - part.begin) / owners;
  home.flat = first + (owners > 1 ? part.place * home.size : 0);
  if (run->kind == ZPR_KIND_FROZEN) end = home.own + home.size; /* never leaves the device */
  home.here = end <= home.own ? 0 : end < home.own + home.size ? end - home.own : home.size;
  home.device = whole ? first : home.own;
  home.host = home.device + home.shards * home.here - (whole ? held_before(c, end) : end);
  return home;
}

zpr_side zpr_side_of(const zpr_bucket_home *b, bool offloaded) {
  zpr_side s = {
      .n = b->shards, .first = offloaded ? b->here : 0, .stride = b->size, .at = offloaded ? b->host : b->device};
  s.count = offloaded ? b->size - b->here : b->here;
  if (s.count == 0) s.n = 0;
  if (s.count == b->size) {
    s.n = 1;
    s.count *= b->shards;
  }
  return s;
}

/* ---- own elements ---- */

static zpr_stretch stretch_of(zpr *c, const zpr_run *run, int64_t i) {
  zpr_stretch s = {0};
  for (int k = 0; k < ZPR_CLASSES; k++) {
    zpr_bucket_home home = zpr_home_of_bucket(c, (zpr_class)k, run, i);
    s.begin = home.own;
    s.end = home.own + home.size;
    s.here[k] = home.device + home.mine * home.here - home.own;
    s.offloaded[k] = home.host + home.mine * (home.size - home.here) - home.here - home.own;
    if (k == ZPR_CLASS_PARAMS && holds_whole(c, ZPR_CLASS_PARAMS)) s.held = home.flat - home.own;
  }
  return s;
}

static int by_begin(const void *a, const void *b) {
  int64_t x = ((const zpr_stretch *)a)->begin, y = ((const zpr_stretch *)b)->begin;
  return (x > y) - (x < y);
}

static bool goes_on(const zpr_stretch *s, const zpr_stretch *next) {
  bool same = s->end == next->begin && s->held == next->held;
  for (int k = 0; k < ZPR_CLASSES; k++) same &= s->here[k] == next->here[k] && s->offloaded[k] == next->offloaded[k];
  return same;
}

/* Without ZeRO own elements are numbered as the flat buffers, gaps between buckets included. */
zpr_stretches zpr_find_stretches(zpr *c) {
  zpr_stretches all = {0};
  if (!zpr_shards_state(c->program)) {
    all.item = zpr_alloc(c, 1, sizeof *all.item);
    all.n = 1;
    all.item[0].end = zpr_shard_elements(c->stage);
    for (int k = 0; k < ZPR_CLASSES; k++) all.item[0].offloaded[k] = -zpr_own_here(c, (zpr_class)k);
    return all;
  }
  int64_t buckets = 0, n = 0;
  for (int r = 0; r < c->stage->n_runs; r++) buckets += c->stage->runs[r].count;
  all.item = zpr_alloc(c, (size_t)buckets, sizeof *all.item);
  for (int r = 0; r < c->stage->n_runs; r++)
    for (int64_t i = 0; i < c->stage->runs[r].count && zpr_is_trained(c->stage->runs[r].kind); i++)
      all.item[n++] = stretch_of(c, &c->stage->runs[r], i);
  qsort(all.item, (size_t)n, sizeof *all.item, by_begin);
  for (int64_t k = 0; k < n; k++) {
    zpr_stretch *last = all.n > 0 ? &all.item[all.n - 1] : NULL;
    if (last && goes_on(last, &all.item[k]))
      last->end = all.item[k].end;
    else
      all.item[all.n++] = all.item[k];
  }
  return all;
}

const zpr_stretch *zpr_stretch_of(const zpr_stretches *all, int64_t own) {
  int64_t low = 0, high = all->n - 1;
  while (low < high) {
    int64_t middle = (low + high + 1) / 2;
    if (all->item[middle].begin <= own)
      low = middle;
    else
      high = middle - 1;
  }
  assert(all->n > 0 && all->item[low].begin <= own && own < all->item[low].end);
  return &all->item[low];
}

zpr_block zpr_block_here(const zpr_stretches *all, const zpr_block *own, int64_t end) {
  const zpr_stretch *s = zpr_stretch_of(all, own->begin);
  int64_t to_grads = s->here[ZPR_CLASS_GRADS];
  zpr_block b = *own;
  if (b.end > end) b.end = end;
  if (b.end <= b.begin) b.counted = false;
  b.begin += to_grads;
  b.end += to_grads;
  b.to_params = s->here[ZPR_CLASS_PARAMS] - to_grads;
  b.to_state = -to_grads;
  return b;
}

zpr_block zpr_own_block(zpr *c, const zpr_stretches *all, const zpr_run *run, int64_t i, const zpr_param *param,
                        int64_t *first) {
  zpr_bucket_home home = zpr_home_of_bucket(c, ZPR_CLASS_GRADS, run, i);
  int64_t start = run->base + i * run->stride + param->offset, begin = start, end = start + param->elements,
          to_own = home.own - home.flat;
  if (zpr_shards_state(c->program) && begin < home.flat) begin = home.flat;
  if (zpr_shards_state(c->program) && end > home.flat + home.size) end = home.flat + home.size;
  *first = begin - start;
  if (begin >= end) return (zpr_block){0};
  zpr_block own = {.begin = begin + to_own, .end = end + to_own, .recipe = param->recipe};
  return zpr_block_here(all, &own, own.end);
}
