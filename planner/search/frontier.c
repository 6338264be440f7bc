/* The order in which the space is looked at: best bounds first, degrees as a whole until their turn comes. Before that a
 * plan of some degrees that look as if they fit is found for every place of the ranking: plans that are known early leave
 * most degrees out. */
#include <math.h>
#include "search_internal.h"

static bool is_before(const zp_searcher *s, int a, int b) {
  const zp_point *x = &s->points.data[a], *y = &s->points.data[b];
  if (x->bound_s != y->bound_s) return x->bound_s < y->bound_s;
  int order = zp_choice_compare(&x->choice, &y->choice);
  return order ? order < 0 : a < b;
}

static void swap(zp_ints *heap, int i, int k) {
  int moved = heap->data[i];
  heap->data[i] = heap->data[k];
  heap->data[k] = moved;
}

static void push(zp_frontier *f, int point) {
  zp_push(f->s->arena, &f->heap, point);
  for (int i = f->heap.len - 1; i > 0 && is_before(f->s, f->heap.data[i], f->heap.data[(i - 1) / 2]); i = (i - 1) / 2)
    swap(&f->heap, i, (i - 1) / 2);
}

static int pop(zp_frontier *f) {
  if (f->heap.len == 0) return -1;
  int first = f->heap.data[0];
  f->heap.data[0] = f->heap.data[--f->heap.len];
  for (int i = 0, least; (least = 2 * i + 1) < f->heap.len; i = least) {
    if (least + 1 < f->heap.len && is_before(f->s, f->heap.data[least + 1], f->heap.data[least])) least++;
    if (!is_before(f->s, f->heap.data[least], f->heap.data[i])) break;
    swap(&f->heap, i, least);
  }
  return first;
}

/* Puts the points of the degrees on the heap. */
static void look_into(zp_frontier *f, zp_degrees *d, const zp_ranking *r) {
  zp_searcher *s = f->s;
  int first = s->points.len;
  if (d->seen) return;
  d->seen = true;
  f->known = r->len;
  s->cutoff_s = zp_cutoff(r, &(zp_choice){.tensor = d->tensor, .pipeline = d->pipeline, .data = d->data});
  if (d->bound_s >= s->cutoff_s) {
    s->left_out_s = fmin(s->left_out_s, d->bound_s);
    zp_search_reject(s, ZP_REJECT_WORK);
    return;
  }
  zp_search_expand(s, d);
  for (int i = first; i < s->points.len; i++) push(f, i);
}

/* Degrees that may fit are looked into one by one, each until it has given a plan, while the ranking has room. */
static int next_of_first(zp_frontier *f, const zp_ranking *r) {
  while (r->len < r->cap) {
    int point = r->len > f->known ? -1 : pop(f);
    if (point >= 0) return point;
    while (f->first < f->s->degrees.len && !f->s->degrees.data[f->first].may_fit) f->first++;
    if (f->first == f->s->degrees.len) return -1;
    look_into(f, &f->s->degrees.data[f->first++], r);
  }
  return -1;
}

int zp_frontier_next(zp_frontier *f, const zp_ranking *r) {
  zp_searcher *s = f->s;
  int point = next_of_first(f, r);
  if (point >= 0) return point;
  for (; f->next < s->degrees.len; f->next++) {
    zp_degrees *d = &s->degrees.data[f->next];
    if (f->heap.len && s->points.data[f->heap.data[0]].bound_s < d->bound_s) break;
    look_into(f, d, r);
  }
  return pop(f);
}
