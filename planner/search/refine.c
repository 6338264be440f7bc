/* SPDX-License-Identifier: Apache-2.0 */
/* The search: one queue of nodes (frontier.c), and one table of refinements. A node is what is decided so far, a proven
 * bound of all plans that decide so, and its next refinement. Refining it gives a better bound, children in its place,
 * plans, or a refusal with its reason. Nodes whose bound cannot beat the plans that are known by then are refused
 * without being refined. The refinements of a node take ever longer; it waits in between until its bound is the least
 * one again, so most points are never simulated. */
#include <assert.h>
#include <zplan/buf.h>
#include <zplan/status_line.h>
#include "bound.h"
#include "budget.h"
#include "procedures.h"
#include "refine.h"
#include "space.h"

/* ---- degrees ---- */

static bool may_grow(zp_refiner *x, zp_growth what, double bound_s) {
  if (zp_may_grow(x->progress->s, what, 0)) return true;
  zp_leave_out(x->progress, bound_s);
  return false;
}

static double cutoff_of(const zp_refiner *x, const zp_degrees *d) {
  return zp_cutoff(x->ranking, &(zp_choice){.tensor = d->tensor, .pipeline = d->pipeline, .data = d->data});
}

static void leave_degrees(zp_search_progress *progress, const zp_degrees *d) {
  progress->left_out_s = fmin(progress->left_out_s, d->bound_s);
  zp_search_reject(progress, ZP_REJECT_WORK);
}

/* Those that cannot win by now are not kept. */
static zp_outcome open_idle(zp_refiner *x) {
  zp_degrees_list *all = &x->progress->degrees;
  int before = all->len, kept = before;
  zp_open_idle(x->progress);
  for (int i = before; i < all->len; i++) {
    const zp_degrees *d = &all->data[i];
    if (d->bound_s >= cutoff_of(x, d))
      leave_degrees(x->progress, d);
    else
      all->data[kept++] = *d;
  }
  all->len = kept;
  for (int i = before; i < kept; i++) zp_frontier_add_degrees(x->frontier, i);
  return ZP_CHILDREN;
}

/* The node is copied, because the list that it is in grows. */
static zp_outcome open_groups(zp_refiner *x) {
  zp_degrees open = *x->degrees;
  int before = x->progress->degrees.len;
  zp_open_groups(x->progress, &open);
  for (int i = before; i < x->progress->degrees.len; i++) zp_frontier_add_degrees(x->frontier, i);
  return ZP_CHILDREN;
}

static zp_outcome bound_degrees(zp_refiner *x) {
  if (!may_grow(x, ZP_GROW_PROCEDURES, x->degrees->bound_s)) return ZP_CHILDREN;
  return zp_measure_degrees(x->progress, x->degrees) ? ZP_BETTER_BOUND : ZP_CHILDREN;
}

static zp_outcome add_points(zp_refiner *x) {
  zp_ints *fresh = &x->progress->fresh;
  for (int i = 0; i < fresh->len; i++) zp_frontier_add_point(x->frontier, fresh->data[i]);
  fresh->len = 0;
  return ZP_CHILDREN;
}

/* What is begun goes on while the first plans are looked for. */
static zp_growth opening(const zp_refiner *x) { return x->frontier->opens ? ZP_GROW_POINTS : ZP_GROW_MORE; }

/* The first plans have what others must leave. */
static zp_outcome expand_degrees(zp_refiner *x) {
  if (!may_grow(x, opening(x), x->degrees->bound_s)) return ZP_CHILDREN;
  x->frontier->known = x->ranking->len;
  zp_search_expand(x->progress, x->degrees);
  return add_points(x);
}

/* ---- procedures, schedules ---- */

static zp_outcome open_modes(zp_refiner *x) {
  zp_point choice = *x->point;
  if (!may_grow(x, opening(x), choice.bound_s)) return ZP_CHILDREN;
  zp_open_modes(x->progress, &choice);
  return add_points(x);
}

static zp_outcome open_inside(zp_refiner *x) {
  zp_point whole = *x->point;
  if (!may_grow(x, opening(x), whole.bound_s)) return ZP_CHILDREN;
  zp_open_inside(x->progress, &whole);
  return add_points(x);
}

static zp_outcome open_schedules(zp_refiner *x) {
  zp_point procedures = *x->point;
  if (!may_grow(x, opening(x), procedures.bound_s)) return ZP_CHILDREN;
  zp_open_schedules(x->progress, &procedures);
  return add_points(x);
}

static zp_outcome open_zero(zp_refiner *x) {
  zp_point schedule = *x->point;
  if (may_grow(x, opening(x), schedule.bound_s))
    zp_open_zero(x->progress, &schedule);
  else
    zp_note_open_zero(x->progress, &schedule);
  return add_points(x);
}

/* ---- families ---- */

static zp_outcome bounded(zp_refiner *x, zp_rejection why) {
  return why == ZP_REJECT_NONE ? ZP_BETTER_BOUND : zp_refuse(x, why);
}

static zp_outcome bound_room(zp_refiner *x) { return bounded(x, zp_bound_family(x->progress, x->point)); }

static zp_outcome bound_stated(zp_refiner *x) {
  if (!zp_bounds_stated_cuts(x)) return ZP_BETTER_BOUND;
  x->point->cut_s = zp_bound_stated_cuts(x);
  zp_raise_bound(x, x->point->cut_s * (1 - ZP_BOUND_SLACK) + x->point->end_s);
  return ZP_BETTER_BOUND;
}

/* Where every cut is considered, none says by itself whether a share fits. */
static zp_outcome fit_share(zp_refiner *x) {
  return x->point->every_cut ? ZP_BETTER_BOUND : bounded(x, zp_fit_family(x->progress, x->point));
}

static zp_outcome open_family(zp_refiner *x) {
  zp_point family = *x->point;
  if (!may_grow(x, ZP_GROW_POINTS, family.bound_s)) return ZP_CHILDREN;
  zp_open_family(x->progress, &family);
  return add_points(x);
}

/* ---- the table ---- */

/* A family goes on to its next refinement at once while its bound stays: it would be the least one again. */
typedef struct refinement {
  zp_outcome (*refine)(zp_refiner *x);
  bool goes_on;
} refinement;

static const refinement REFINEMENTS[ZP_REFINEMENTS] = {
    [ZP_REFINE_IDLE] = {open_idle, false},           [ZP_REFINE_GROUPS] = {open_groups, false},
    [ZP_REFINE_PROCEDURES] = {bound_degrees, false}, [ZP_REFINE_DEGREES] = {expand_degrees, false},
    [ZP_REFINE_MODES] = {open_modes, false},         [ZP_REFINE_INSIDE] = {open_inside, false},
    [ZP_REFINE_SCHEDULES] = {open_schedules, false}, [ZP_REFINE_ZERO] = {open_zero, false},
    [ZP_REFINE_CLASSES] = {open_family, false},      [ZP_REFINE_ROOM] = {bound_room, true},
    [ZP_REFINE_STATED] = {bound_stated, true},       [ZP_REFINE_SHARE] = {fit_share, true},
    [ZP_REFINE_TIERS] = {open_family, false},        [ZP_REFINE_WORK] = {zp_price_work, false},
    [ZP_REFINE_MEMORY] = {zp_price_memory, false},   [ZP_REFINE_CUTS] = {zp_price_cuts, false}};

/* ---- a turn of degrees ---- */

static void refine_degrees(zp_refiner *x, const zp_search_node *node) {
  zp_search_progress *progress = x->progress;
  zp_degrees *d = x->degrees = &progress->degrees.data[node->item];
  x->point = NULL;
  assert(d->next == node->next && d->bound_s == node->bound_s && "degrees stay as they are while they wait");
  progress->cutoff_s = d->next == ZP_REFINE_IDLE ? zp_most_cutoff(x->ranking) : cutoff_of(x, d);
  if (d->bound_s >= progress->cutoff_s)
    leave_degrees(progress, d);
  else if (REFINEMENTS[d->next].refine(x) == ZP_BETTER_BOUND)
    zp_frontier_add_degrees(x->frontier, node->item);
}

/* ---- a turn of a point or family ---- */

/* Points that were considered and cannot be the best plan: few of them are, unless alternatives are to be exact. */
static void count_behind(const zp_refiner *x) {
  zp_ranking *r = x->ranking;
  zp_refinement next = x->point->next;
  bool fresh = next <= ZP_REFINE_CLASSES || next == ZP_REFINE_ROOM || next == ZP_REFINE_WORK;
  r->behind += !fresh && r->len && x->point->bound_s >= r->best[0].estimate.step_s;
}

static zp_outcome refine_point(zp_refiner *x) {
  zp_point *point = x->point;
  double before_s = point->bound_s;
  x->progress->cutoff_s = zp_point_cutoff(x);
  if (before_s >= x->progress->cutoff_s) return zp_refuse(x, ZP_REJECT_BOUND);
  count_behind(x);
  for (;;) {
    assert(point->next < ZP_REFINEMENTS);
    const refinement *row = &REFINEMENTS[point->next];
    zp_outcome outcome = row->refine(x);
    if (outcome != ZP_BETTER_BOUND) return outcome;
    point->next++;
    if (!row->goes_on || point->bound_s > before_s) return ZP_BETTER_BOUND;
  }
}

/* Points were counted as candidates when they were found. What stands for many points was not: it counts as one. */
static void refuse(zp_refiner *x) {
  if (x->point->next == ZP_REFINE_ZERO) zp_note_open_zero(x->progress, x->point);
  if (x->point->next < ZP_REFINE_WORK)
    zp_search_reject(x->progress, x->why);
  else
    x->progress->certificate.rejected[x->why]++;
}

static void take_turn(zp_refiner *x, const zp_search_node *node, zp_open_points *open) {
  x->degrees = NULL;
  x->point = &x->progress->points.data[node->item];
  assert(x->point->next == node->next && x->point->bound_s == node->bound_s && "a point stays as it is while it waits");
  zp_search_use(x->progress->s, zp_choice_ranks(&x->point->choice));
  zp_arena_mark mark = zp_arena_get_mark(x->scratch);
  zp_outcome outcome = refine_point(x);
  zp_arena_rewind(x->scratch, mark);
  switch (outcome) {
  case ZP_BETTER_BOUND: zp_frontier_add_point(x->frontier, node->item); return;
  case ZP_CHILDREN: break;
  case ZP_PLANS: x->progress->certificate.priced++; break;
  case ZP_REFUSED: refuse(x); break;
  }
  x->point = &x->progress->points.data[node->item]; /* the list may have grown */
  if (outcome == ZP_PLANS || (outcome == ZP_REFUSED && x->why == ZP_REJECT_BOUND)) zp_keep_open(x, open);
  zp_push(x->progress->s->arena, &x->progress->done, node->item);
}

/* Progress of the search so far, for the status line. */
static void say_status(const zp_refiner *x) {
  if (!zp_status_due()) return;
  const zp_ranking *r = x->ranking;
  zp_arena_mark mark = zp_arena_get_mark(x->scratch);
  zp_status_say("%s candidates, %s%s", zp_show_count(x->scratch, (double)x->progress->certificate.candidates),
                r->len ? "best so far ~" : "no plan yet",
                r->len ? zp_show_seconds(x->scratch, r->best[0].estimate.step_s) : "");
  zp_arena_rewind(x->scratch, mark);
}

void zp_refine_all(zp_search_progress *progress, zp_ranking *r) {
  zp_frontier frontier = zp_frontier_new(progress);
  zp_refiner x = {.progress = progress,
                  .ranking = r,
                  .frontier = &frontier,
                  .scratch = zp_arena_new_alongside("simulate", progress->s->arena)};
  x.own = ZP_NEW_ARRAY(progress->s->arena, const zp_variant *, zp_most_stages(progress->in));
  zp_open_points open = {0};
  for (zp_search_node node; zp_frontier_next(&frontier, r, &node);) {
    say_status(&x);
    if (zp_refines_degrees(node.next))
      refine_degrees(&x, &node);
    else
      take_turn(&x, &node, &open);
  }
  progress->certificate.searched_s = r->len ? zp_settle(&x, &open, progress->left_out_s) : 0;
  zp_arena_free(x.scratch);
}
