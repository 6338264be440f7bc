/* The order in which the space is looked at: best bounds first, degrees as a whole until their turn comes. While the
 * ranking still has room, the best point of degrees is priced as soon as they are looked into: plans that are known
 * early leave most degrees out. */
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

/* Puts the points of the degrees on the heap; the best of them is returned instead while plans are still wanted. */
static int look_into(zp_frontier *f, const zp_degrees *d, const zp_ranking *r) {
  zp_searcher *s = f->s;
  s->cutoff_s = zp_cutoff(r, &(zp_choice){.tensor = d->tensor, .pipeline = d->pipeline, .data = d->data});
  if (d->bound_s >= s->cutoff_s) {
    s->left_out_s = fmin(s->left_out_s, d->bound_s);
    zp_search_reject(s, ZP_REJECT_WORK);
    return -1;
  }
  int first = s->points.len, best = -1;
  zp_search_expand(s, d);
  for (int i = first; i < s->points.len && r->len < r->cap; i++)
    if (best < 0 || is_before(s, i, best)) best = i;
  for (int i = first; i < s->points.len; i++)
    if (i != best) push(f, i);
  return best;
}

int zp_frontier_next(zp_frontier *f, const zp_ranking *r) {
  zp_searcher *s = f->s;
  while (f->next < s->degrees.len) {
    const zp_degrees *d = &s->degrees.data[f->next];
    if (f->heap.len && s->points.data[f->heap.data[0]].bound_s < d->bound_s) break;
    f->next++;
    int point = look_into(f, d, r);
    if (point >= 0) return point;
  }
  return pop(f);
}
