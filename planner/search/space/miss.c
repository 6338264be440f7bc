/* SPDX-License-Identifier: Apache-2.0 */
/* Where nothing fits: the point that comes nearest, and what its fullest stage needs. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include "budget.h"
#include "cut.h"
#include "fit.h"
#include "procedures.h"
#include "space.h"

/* What the fullest stage of a cut needs when stage i runs own[i]. */
static zp_miss miss_of_cut(zp_search_cache *s, const zp_point *point, int64_t *cut, const zp_variant *const *own,
                           int64_t have) {
  zp_miss miss = {.choice = zp_choice_of_cut(s, point, cut, own), .have_bytes = have};
  int64_t context = s->machine.context_bytes, most_over = INT64_MIN;
  zp_limits smallest = zp_search_limits(s);
  for (int stage = 0; stage < point->choice.pipeline; stage++) {
    zp_stage layout;
    zp_layout_stage(s->arena, own[stage]->lowered, &miss.choice, stage, &layout);
    zp_limits limits = zp_limits_of_stage(s, &point->choice, stage, &smallest);
    int64_t need = zp_memory_on_device(&layout.memory);
    if (need - limits.device <= most_over) continue;
    most_over = need - limits.device;
    if (zp_has_types(s)) miss.have_bytes = limits.device + context > 0 ? limits.device + context : 1;
    miss.stage = stage;
    miss.need_bytes = need + context;
    miss.memory = layout.memory;
    miss.memory.context = context;
  }
  return miss;
}

static void note_miss(zp_search_progress *progress, const zp_point *point) {
  int64_t context = progress->s->machine.context_bytes, have = progress->s->limit_bytes + context;
  int64_t *cut = ZP_NEW_ARRAY(progress->s->arena, int64_t, point->choice.pipeline + 1);
  if (have <= 0) have = 1;
  if (progress->miss_ratio > 0) { /* not nearer than the nearest so far? one pass instead of a bisection */
    int64_t beat = (int64_t)(progress->miss_ratio * (double)have * (1 - ZP_CLOSE_STEP)) - context;
    if (!zp_cut_fits(progress->s, point, &(zp_limits){beat, INT64_MAX, INT64_MAX}, cut)) return;
  }
  int64_t least = zp_cut_least_memory(progress->s, point, cut);
  progress->miss_ratio = (double)(least + context) / (double)have;
  const zp_variant **own = ZP_NEW_ARRAY(progress->s->arena, const zp_variant *, point->choice.pipeline);
  bool fits = zp_cut_variants(progress->s, point, &(zp_limits){least, INT64_MAX, INT64_MAX}, cut, own);
  assert(fits);
  (void)fits;
  progress->miss = miss_of_cut(progress->s, point, cut, own, have);
}

/* Several chunks a stage, asked for by a constraint, or a pinned cut: of the cuts by every mode, all stages in it, the
 * one that needs least. */
static void note_chunks_miss(zp_search_progress *progress, const zp_point *point) {
  static const zp_limits none = {INT64_MAX, INT64_MAX, INT64_MAX};
  int64_t have = progress->s->limit_bytes + progress->s->machine.context_bytes;
  const zp_variant **own = ZP_NEW_ARRAY(progress->s->arena, const zp_variant *, point->choice.pipeline);
  for (int i = 0; i < 2 * point->n_modes; i++) {
    int64_t *cut = ZP_NEW_ARRAY(progress->s->arena, int64_t, zp_model_chunks(&point->choice) + 1);
    if (!zp_state_cut(progress->s, point, i / 2, i % 2, cut) || !zp_chunks_fit(progress->s, point, &none, cut))
      continue;
    for (int k = 0; k < point->choice.pipeline; k++) own[k] = &progress->s->variants.data[point->modes[i / 2]];
    zp_miss miss = miss_of_cut(progress->s, point, cut, own, have > 0 ? have : 1);
    double ratio = (double)miss.need_bytes / (double)miss.have_bytes;
    if (progress->miss_ratio > 0 && ratio >= progress->miss_ratio) continue;
    progress->miss = miss;
    progress->miss_ratio = ratio;
  }
}

typedef struct floor_of {
  int64_t bytes;
  int point;
} floor_of;

static int by_floor(const void *a, const void *b) {
  const floor_of *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
  return x->point - y->point;
}

/* Floors of the points with low to high chunks a stage; how many. */
static int floors_of(const zp_search_progress *progress, int low, int high, floor_of *floors) {
  int n = 0;
  for (int i = 0; i < progress->points.len; i++) {
    int chunks = zp_chunks(&progress->points.data[i].choice);
    if (chunks >= low && chunks <= high)
      floors[n++] = (floor_of){zp_memory_floor(progress->s, &progress->points.data[i]), i};
  }
  return n;
}

static bool is_nearer(const zp_search_progress *progress, int64_t floor_bytes) {
  double need = (double)(floor_bytes + progress->s->machine.context_bytes);
  return progress->miss_ratio == 0 || need < progress->miss_ratio * (double)progress->miss.have_bytes;
}

/* Points with one chunk a stage (or, where there are none, some with several), the lowest floors first, until no floor
 * is below the nearest miss. */
static void note_points(zp_search_progress *progress) {
  floor_of *floors = ZP_NEW_ARRAY(progress->s->arena, floor_of, progress->points.len + 1);
  int n = floors_of(progress, 1, 1, floors);
  bool chunked = n == 0 || progress->in->pinned_cut;
  if (n == 0) n = floors_of(progress, 2, ZP_MOST_CHUNKS, floors);
  if (n) qsort(floors, (size_t)n, sizeof *floors, by_floor);
  if (chunked && n > ZP_CHUNKED_MISSES) n = ZP_CHUNKED_MISSES;
  for (int i = 0; i < n; i++) {
    const zp_point *point = &progress->points.data[floors[i].point];
    if (!is_nearer(progress, floors[i].bytes)) break;
    if (progress->miss_ratio > 0 && !zp_has_room(progress->s, ZP_GROW_CUTS, 0)) break;
    zp_search_use(progress->s, zp_choice_ranks(&point->choice));
    (chunked ? note_chunks_miss : note_miss)(progress, point);
  }
  zp_forget_points(progress);
}

static int by_degrees_floor(const void *a, const void *b) {
  const zp_degrees *x = a, *y = b;
  if (x->floor_bytes != y->floor_bytes) return x->floor_bytes < y->floor_bytes ? -1 : 1;
  if (x->tensor != y->tensor) return x->tensor - y->tensor;
  if (x->pipeline != y->pipeline) return x->pipeline - y->pipeline;
  if (x->data != y->data) return x->data - y->data;
  return x->expert != y->expert ? x->expert - y->expert : x->context - y->context;
}

static bool may_go_on(const zp_search_progress *progress) {
  return progress->miss_ratio > 0 ? zp_has_room(progress->s, ZP_GROW_POINTS, 0)
                                  : zp_has_room(progress->s, ZP_GROW_CUTS, 0);
}

/* Degrees in the order of their floors are looked into once more, as long as work is left (ZP_MOST_MISS_WORK). */
void zp_note_misses(zp_search_progress *progress) {
  zp_degrees_list *all = &progress->too_small;
  for (int i = 0; i < progress->degrees.len; i++)
    if (progress->degrees.data[i].next == ZP_REFINE_DEGREES && isfinite(progress->degrees.data[i].bound_s))
      zp_push(progress->s->arena, all, progress->degrees.data[i]);
  if (all->len) qsort(all->data, (size_t)all->len, sizeof *all->data, by_degrees_floor);
  progress->keeps_all = true;
  progress->cutoff_s = HUGE_VAL;
  zp_forget_points(progress);
  for (int i = 0; i < all->len && is_nearer(progress, all->data[i].floor_bytes) && may_go_on(progress); i++) {
    zp_search_expand(progress, &all->data[i]);
    note_points(progress);
  }
  progress->miss.is_partial = !may_go_on(progress);
}
