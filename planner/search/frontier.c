/* The order in which the space is looked at: best bounds first, degrees as a whole until their turn comes: they start
 * with the bound of their products, are measured, and are looked into at last. Before that a plan of some degrees that
 * look as if they fit is found for every place of the ranking: plans that are known early leave most degrees out. For
 * the same reason degrees that leave devices idle wait until all others are settled: they are many, and seldom the
 * best. */
#include <math.h>
#include "budget.h"
#include "frontier.h"
#include "space.h"

/* ---- heaps ---- */

/* Bounds lie beside the indices, because what waits is far apart in memory. Equal bounds: what came first. */
static bool is_before(const zp_wait *x, const zp_wait *y) {
  return x->bound_s != y->bound_s ? x->bound_s < y->bound_s : x->item < y->item;
}

static void push(zp_search_run *run, zp_heap *heap, int item) {
  zp_wait fresh = {heap->of_points ? run->points.data[item].bound_s : run->degrees.data[item].bound_s, item};
  zp_push(run->s->arena, &heap->all, fresh);
  zp_wait *at = heap->all.data;
  int i = heap->all.len - 1;
  for (; i > 0 && is_before(&fresh, &at[(i - 1) / 2]); i = (i - 1) / 2) at[i] = at[(i - 1) / 2];
  at[i] = fresh;
}

static int pop(zp_heap *heap) {
  if (heap->all.len == 0) return -1;
  zp_wait *at = heap->all.data;
  int first = at[0].item, n = --heap->all.len, i = 0;
  zp_wait moved = at[n];
  for (int least; (least = 2 * i + 1) < n; i = least) {
    if (least + 1 < n && is_before(&at[least + 1], &at[least])) least++;
    if (!is_before(&at[least], &moved)) break;
    at[i] = at[least];
  }
  at[i] = moved;
  return first;
}

/* The bound of what comes next; endless when nothing waits. */
static double next_bound(const zp_heap *heap) { return heap->all.len ? heap->all.data[0].bound_s : HUGE_VAL; }

/* ---- degrees ---- */

static bool uses_all(const zp_search_input *in, const zp_degrees *d) {
  return d->tensor * d->pipeline * d->data == in->devices;
}

zp_frontier zp_frontier_new(zp_search_run *run) {
  zp_frontier f = {.run = run, .points.of_points = true};
  for (int i = 0; i < run->degrees.len; i++)
    if (uses_all(run->in, &run->degrees.data[i]))
      push(run, &f.degrees, i);
    else
      zp_push(run->s->arena, &f.idle, i);
  return f;
}

/* What looking closer at the degrees makes grow. The first plans have what others must leave. */
static zp_growth growth_of(const zp_frontier *f, const zp_degrees *d) {
  return !d->measured ? ZP_GROW_PROCEDURES : f->opens ? ZP_GROW_POINTS : ZP_GROW_MORE;
}

/* The measured degrees with the least bound, which leave the heap; -1: none has one up to limit_s. What cannot beat the
 * known plans is left out unmeasured. */
static int pop_degrees(zp_frontier *f, const zp_ranking *r, double limit_s) {
  zp_search_run *run = f->run;
  while (f->degrees.all.len && next_bound(&f->degrees) <= limit_s) {
    int i = pop(&f->degrees);
    zp_degrees *d = &run->degrees.data[i];
    run->cutoff_s = zp_cutoff(r, &(zp_choice){.tensor = d->tensor, .pipeline = d->pipeline, .data = d->data});
    if (d->bound_s >= run->cutoff_s) {
      run->left_out_s = fmin(run->left_out_s, d->bound_s);
      zp_search_reject(run, ZP_REJECT_WORK);
    } else if (!f->opens && !d->measured && !zp_has_room(run->s, ZP_GROW_EARLY, 0)) {
      zp_push(run->s->arena, &f->later, i);
    } else if (!zp_may_grow(run->s, growth_of(f, d), 0)) {
      zp_leave_out(run, d->bound_s);
    } else if (d->measured) {
      return i;
    } else if (zp_measure_degrees(run, d)) {
      push(run, &f->degrees, i);
    }
  }
  return -1;
}

static void push_points(zp_frontier *f, int first) {
  zp_search_run *run = f->run;
  for (int i = first; i < run->points.len; i++)
    if (run->points.data[i].open && !f->opens)
      zp_push(run->s->arena, &f->families, i);
    else
      push(run, &f->points, i);
}

/* Requires: the degrees were popped just now. */
static void look_into(zp_frontier *f, int degrees, const zp_ranking *r) {
  zp_search_run *run = f->run;
  int first = run->points.len;
  f->known = r->len;
  zp_search_expand(run, &run->degrees.data[degrees]);
  push_points(f, first);
}

/* ---- the next point ---- */

/* Degrees that may fit are looked into one by one, each until it has given a plan, while the ranking has room. */
static int next_of_first(zp_frontier *f, const zp_ranking *r) {
  zp_search_run *run = f->run;
  while (r->len < r->cap) {
    int point = r->len == f->known ? pop(&f->points) : -1;
    if (point >= 0) return point;
    int degrees = pop_degrees(f, r, HUGE_VAL);
    if (degrees < 0) break;
    if (run->degrees.data[degrees].may_fit)
      look_into(f, degrees, r);
    else
      zp_push(run->s->arena, &f->later, degrees);
  }
  while (f->later.len) push(run, &f->degrees, f->later.data[--f->later.len]);
  f->opens = true;
  while (f->families.len) push(run, &f->points, f->families.data[--f->families.len]);
  return -1;
}

/* The next point of all degrees that do not wait. */
static int next_of_all(zp_frontier *f, const zp_ranking *r) {
  zp_search_run *run = f->run;
  int point = next_of_first(f, r), degrees;
  if (point >= 0) return point;
  while (!(f->one_by_one && f->points.all.len)) {
    if (f->one_by_one) run->points.len = 0; /* all of them have been looked at */
    degrees = pop_degrees(f, r, next_bound(&f->points));
    if (degrees < 0) break;
    look_into(f, degrees, r);
  }
  return pop(&f->points);
}

/* Looks into idle degrees, too. Where state of theirs may leave the device, one after the other: they have many points,
 * few have anything to offer, and nearly all are looked into. */
int zp_frontier_next(zp_frontier *f, const zp_ranking *r) {
  int point = next_of_all(f, r);
  if (point >= 0 || f->idle.len == 0) return point;
  while (f->idle.len) push(f->run, &f->degrees, f->idle.data[--f->idle.len]);
  f->one_by_one = f->run->opens_families = zp_some_state_may_leave(f->run->in);
  return next_of_all(f, r);
}

void zp_frontier_open(zp_frontier *f, int family, const zp_ranking *r) {
  zp_search_run *run = f->run;
  zp_point opened = run->points.data[family];
  if (!zp_may_grow(run->s, ZP_GROW_POINTS, 0)) {
    zp_leave_out(run, opened.bound_s);
    return;
  }
  int first = run->points.len;
  run->cutoff_s = zp_cutoff(r, &opened.choice);
  zp_open_family(run, &opened);
  push_points(f, first);
}

void zp_frontier_return(zp_frontier *f, int point) { push(f->run, &f->points, point); }
