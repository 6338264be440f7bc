/* The order in which the space is looked at: best bounds first, degrees as a whole until their turn comes: they start
 * with the bound of their products, are measured, and are looked into at last. Before that a plan of some degrees that
 * look as if they fit is found for every place of the ranking: plans that are known early leave most degrees out. For
 * the same reason degrees that leave devices idle wait until all others are settled: they are many, and seldom the
 * best. */
#include <math.h>
#include "search_internal.h"

/* ---- heaps ---- */

typedef bool is_before(const zp_searcher *s, int a, int b);

static bool point_is_before(const zp_searcher *s, int a, int b) {
  const zp_point *x = &s->points.data[a], *y = &s->points.data[b];
  if (x->bound_s != y->bound_s) return x->bound_s < y->bound_s;
  int order = zp_choice_compare(&x->choice, &y->choice);
  return order ? order < 0 : a < b;
}

static bool degrees_are_before(const zp_searcher *s, int a, int b) {
  const zp_degrees *x = &s->degrees.data[a], *y = &s->degrees.data[b];
  return x->bound_s != y->bound_s ? x->bound_s < y->bound_s : a < b;
}

static void swap(zp_ints *heap, int i, int k) {
  int moved = heap->data[i];
  heap->data[i] = heap->data[k];
  heap->data[k] = moved;
}

static void push(zp_searcher *s, zp_ints *heap, is_before *before, int item) {
  zp_push(s->arena, heap, item);
  for (int i = heap->len - 1; i > 0 && before(s, heap->data[i], heap->data[(i - 1) / 2]); i = (i - 1) / 2)
    swap(heap, i, (i - 1) / 2);
}

static int pop(const zp_searcher *s, zp_ints *heap, is_before *before) {
  if (heap->len == 0) return -1;
  int first = heap->data[0];
  heap->data[0] = heap->data[--heap->len];
  for (int i = 0, least; (least = 2 * i + 1) < heap->len; i = least) {
    if (least + 1 < heap->len && before(s, heap->data[least + 1], heap->data[least])) least++;
    if (!before(s, heap->data[least], heap->data[i])) break;
    swap(heap, i, least);
  }
  return first;
}

/* ---- degrees ---- */

static bool uses_all(const zp_searcher *s, const zp_degrees *d) {
  return d->tensor * d->pipeline * d->data == s->devices;
}

zp_frontier zp_frontier_new(zp_searcher *s) {
  zp_frontier f = {.s = s};
  for (int i = 0; i < s->degrees.len; i++)
    if (uses_all(s, &s->degrees.data[i]))
      push(s, &f.degrees, degrees_are_before, i);
    else
      zp_push(s->arena, &f.idle, i);
  return f;
}

/* The measured degrees with the least bound, which leave the heap; -1: none has one up to limit_s. What cannot beat the
 * known plans is left out unmeasured. */
static int pop_degrees(zp_frontier *f, const zp_ranking *r, double limit_s) {
  zp_searcher *s = f->s;
  while (f->degrees.len && s->degrees.data[f->degrees.data[0]].bound_s <= limit_s) {
    int i = pop(s, &f->degrees, degrees_are_before);
    zp_degrees *d = &s->degrees.data[i];
    s->cutoff_s = zp_cutoff(r, &(zp_choice){.tensor = d->tensor, .pipeline = d->pipeline, .data = d->data});
    if (d->bound_s >= s->cutoff_s) {
      s->left_out_s = fmin(s->left_out_s, d->bound_s);
      zp_search_reject(s, ZP_REJECT_WORK);
    } else if (d->measured) {
      return i;
    } else if (zp_measure_degrees(s, d)) {
      push(s, &f->degrees, degrees_are_before, i);
    }
  }
  return -1;
}

static void push_points(zp_frontier *f, int first) {
  zp_searcher *s = f->s;
  for (int i = first; i < s->points.len; i++)
    if (s->points.data[i].open && !f->opens)
      zp_push(s->arena, &f->families, i);
    else
      push(s, &f->points, point_is_before, i);
}

/* Requires: the degrees were popped just now. */
static void look_into(zp_frontier *f, int degrees, const zp_ranking *r) {
  zp_searcher *s = f->s;
  int first = s->points.len;
  f->known = r->len;
  zp_search_expand(s, &s->degrees.data[degrees]);
  push_points(f, first);
}

/* ---- the next point ---- */

/* Degrees that may fit are looked into one by one, each until it has given a plan, while the ranking has room. */
static int next_of_first(zp_frontier *f, const zp_ranking *r) {
  zp_searcher *s = f->s;
  while (r->len < r->cap) {
    int point = r->len == f->known ? pop(s, &f->points, point_is_before) : -1;
    if (point >= 0) return point;
    int degrees = pop_degrees(f, r, HUGE_VAL);
    if (degrees < 0) break;
    if (s->degrees.data[degrees].may_fit)
      look_into(f, degrees, r);
    else
      zp_push(s->arena, &f->later, degrees);
  }
  while (f->later.len) push(s, &f->degrees, degrees_are_before, f->later.data[--f->later.len]);
  f->opens = true;
  while (f->families.len) push(s, &f->points, point_is_before, f->families.data[--f->families.len]);
  return -1;
}

/* Of all degrees that do not wait. */
static int next_of_all(zp_frontier *f, const zp_ranking *r) {
  zp_searcher *s = f->s;
  int point = next_of_first(f, r), degrees;
  if (point >= 0) return point;
  do {
    if (f->one_by_one && f->points.len) break;
    if (f->one_by_one) s->points.len = 0;
    degrees = pop_degrees(f, r, f->points.len ? s->points.data[f->points.data[0]].bound_s : HUGE_VAL);
    if (degrees >= 0) look_into(f, degrees, r);
  } while (degrees >= 0);
  return pop(s, &f->points, point_is_before);
}

int zp_frontier_next(zp_frontier *f, const zp_ranking *r) {
  int point = next_of_all(f, r);
  if (point >= 0 || f->idle.len == 0) return point;
  while (f->idle.len) push(f->s, &f->degrees, degrees_are_before, f->idle.data[--f->idle.len]);
  f->one_by_one = f->s->opens_families = true;
  return next_of_all(f, r);
}

void zp_frontier_open(zp_frontier *f, int family, const zp_ranking *r) {
  zp_searcher *s = f->s;
  zp_point opened = s->points.data[family];
  int first = s->points.len;
  s->cutoff_s = zp_cutoff(r, &opened.choice);
  zp_open_family(s, &opened);
  push_points(f, first);
}

void zp_frontier_return(zp_frontier *f, int point) { push(f->s, &f->points, point_is_before, point); }
