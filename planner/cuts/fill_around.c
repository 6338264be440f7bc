/* SPDX-License-Identifier: Apache-2.0 */
/* Filling where a unit has no room on a place: it may have room on a place further on, so everything that the first
 * places can run is kept instead of their furthest reach, as intervals of units where the next place may begin. */
#include <assert.h>
#include <math.h>
#include <zplan/seconds.h>
#include <zplan/vec.h>
#include "fill.h"

/* Where a place may begin, in ascending order, no two neighbours. */
typedef struct interval {
  int64_t first, last;
} interval;
typedef ZP_VEC(interval) intervals;

static void add_interval(zp_arena *arena, intervals *to, interval next) {
  interval *before = to->len > 0 ? &to->data[to->len - 1] : NULL;
  if (before && next.first <= before->last + 1)
    before->last = next.last > before->last ? next.last : before->last;
  else
    zp_push(arena, to, next);
}

/* Which units a place has room for alone: asked once for units that are alike. */
enum { MOST_KINDS = 64 };
typedef struct kinds {
  zp_filling *f;
  int place, n;
  struct {
    int64_t unit;
    bool takes;
  } known[MOST_KINDS];
} kinds;

static bool ask(const kinds *k, int64_t unit) {
  double need;
  bool takes = zp_fill_takes(k->f, k->place, unit, unit + 1, &need);
  if (!takes) k->f->next = zp_sooner(k->f->next, need);
  return takes;
}

static bool takes_one(kinds *k, int64_t unit) {
  const zp_cut_row *row = k->f->row;
  int64_t alike = row->alike ? row->alike(row->user, unit) : unit;
  for (int i = 0; i < k->n; i++)
    if (k->known[i].unit == alike) return k->known[i].takes;
  bool takes = ask(k, unit);
  if (k->n < MOST_KINDS) {
    k->known[k->n].unit = alike;
    k->known[k->n++].takes = takes;
  }
  return takes;
}

/* Where the place after may begin. Begins that each have room for their own unit reach all ends up to the furthest one
 * of the last of them. */
static intervals ends_of(zp_filling *f, int place, const intervals *begins) {
  intervals ends = {0};
  kinds own = {.f = f, .place = place};
  int64_t behind = f->row->units - (f->row->places - 1 - place);
  for (int i = 0; i < begins->len; i++)
    for (int64_t at = begins->data[i].first; at <= begins->data[i].last && at < behind; at++) {
      int64_t last = at;
      if (!takes_one(&own, at)) continue;
      while (last < begins->data[i].last && last + 1 < behind && takes_one(&own, last + 1)) last++;
      add_interval(f->row->scratch, &ends, (interval){at + 1, last + zp_fill_reach(f, place, last, behind - last, 1)});
      at = last;
    }
  return ends;
}

/* The largest begin before `end`; -1: none. A shorter range has room where a longer one has. */
static int64_t last_before(const intervals *begins, int64_t end) {
  for (int i = begins->len - 1; i >= 0; i--)
    if (begins->data[i].first < end) return begins->data[i].last < end ? begins->data[i].last : end - 1;
  return -1;
}

/* Is there any cut? All ends of the first places are kept. */
static bool cut_by_intervals(zp_filling *around, int64_t *cut) {
  int places = around->row->places;
  zp_arena *arena = around->row->scratch;
  zp_arena_mark mark = zp_arena_get_mark(arena);
  zp_filling f = *around;
  f.side = ZP_FILL_FRONT;
  intervals *begins = ZP_NEW_ARRAY(arena, intervals, places + 1);
  add_interval(arena, &begins[0], (interval){0, 0});
  for (int k = 0; k < places; k++) begins[k + 1] = ends_of(&f, k, &begins[k]);
  const intervals *ends = &begins[places];
  bool found = ends->len > 0 && ends->data[ends->len - 1].last == cut[places];
  around->next = f.next;
  if (found) around->longest = 0;
  for (int k = places - 1; k >= 0 && found; k--) {
    double need;
    cut[k] = last_before(&begins[k], cut[k + 1]);
    bool fits = zp_fill_takes(&f, k, cut[k], cut[k + 1], &need);
    assert(fits && "a shorter range has room where a longer one has");
    (void)fits;
    around->longest = zp_later(around->longest, need);
  }
  zp_arena_rewind(arena, mark);
  return found;
}

/* Has any of these places room for the unit? The first and the last place run all units up to their end of the row.
 * Asked from the last one on. */
static bool any_takes(zp_filling *f, int first_place, int last_place, int64_t unit) {
  const zp_cut_row *row = f->row;
  int without_room = -1; /* an inner place */
  for (int place = last_place; place >= first_place; place--) {
    double need;
    bool is_last = place == row->places - 1, is_inner = place > 0 && !is_last;
    if (without_room >= 0 && is_inner && row->needs_as_much && row->needs_as_much(row->user, place, without_room))
      continue;
    if (zp_fill_takes(f, place, place == 0 ? 0 : unit, is_last ? row->units : unit + 1, &need)) return true;
    f->next = zp_sooner(f->next, need);
    if (need == HUGE_VAL && is_inner) without_room = place;
  }
  return false;
}

/* A place after it in the order of filling runs this unit, with units enough on the way for one on every place, or
 * there is no cut. */
bool zp_fill_around(zp_filling *f, int place, int64_t unit, int64_t *cut) {
  int last_place = f->row->places - 1;
  int64_t behind = f->row->units - 1 - unit;
  bool any = f->side == ZP_FILL_BACK ? any_takes(f, behind < last_place ? last_place - (int)behind : 0, place - 1, unit)
                                     : any_takes(f, place + 1, unit < last_place ? (int)unit : last_place, unit);
  return any && cut_by_intervals(f, cut);
}
