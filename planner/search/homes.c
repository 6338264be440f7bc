/* The points of a choice: what of its state leaves the device, and what its stages may recompute.
 *
 * Classes leave the device in a fixed order: optimizer state, gradients, parameters, saved activations, each in
 * eighths, to the host or to disks, and only when those before it that may leave have left. Every share is a point of
 * its own, so more memory adds points and takes none. There are up to 240 of a choice, so they come in families: all
 * points with the same classes gone and something of the next one. A family waits with a bound of all its points, at
 * first as if what may still leave moved for nothing, and is opened when that is the least one. */
#include <assert.h>
#include <math.h>
#include "schedule.h"
#include "search_internal.h"

/* Plans that leave devices idle keep all state on the device, unless `idle` is written: with both, the families of ten
 * times as many degrees would have to be opened. */
static bool may_leave(const zp_searcher *s, zp_state state) {
  bool asked = s->constraints->idle.set || s->machine.devices == s->devices;
  return asked && zp_limit_leaves_device(&s->constraints->offload[state]) && !s->generated_only;
}

/* The classes from `state` on that may leave, wherever and however much of them. */
static zp_choice leave_open(const zp_searcher *s, const zp_choice *choice, int state) {
  zp_choice open = *choice;
  for (int i = state; i < ZP_STATE_COUNT; i++)
    if (may_leave(s, (zp_state)i)) open.home[i] = (zp_home){ZP_TIER_HOST, 0};
  return open;
}

zp_choice zp_smallest(const zp_searcher *s, const zp_choice *choice) {
  zp_choice c = leave_open(s, choice, 0);
  for (int zero = 1; zero <= 3 && c.data > 1; zero++)
    if (zp_search_considers(s, &s->constraints->zero, zero <= 1) && zp_limit_allows(&s->constraints->zero, zero))
      c.zero = zero;
  return c;
}

/* ---- points ---- */

/* Why the point cannot be had, as far as that is known at once: what takes longest to find comes last. Raises its
 * bound. */
static zp_rejection refuse(zp_searcher *s, zp_point *point) {
  point->bound_s = zp_bound_moving(s, point);
  if (point->bound_s >= s->cutoff_s) return ZP_REJECT_COUNT;
  if (zp_memory_floor(s, point) > s->most_bytes) return ZP_REJECT_MEMORY;
  zp_limits away = zp_away_floor(s, point);
  if (away.host > s->host_bytes || away.nvme > s->nvme_bytes) return ZP_REJECT_HOST;
  if (!point->open) point->bound_s = zp_bound(s, point);
  if (point->bound_s >= s->cutoff_s) return ZP_REJECT_COUNT;
  if (!zp_find_least_work(s, point, false)) return ZP_REJECT_MEMORY;
  point->bound_s = point->open ? zp_bound_moving(s, point) : zp_bound(s, point);
  return ZP_REJECT_COUNT;
}

static void keep(zp_searcher *s, zp_point *point) {
  zp_rejection why = refuse(s, point);
  if (why != ZP_REJECT_COUNT) {
    zp_search_reject(s, why);
    if (s->keeps_all && !point->open) zp_push(s->arena, &s->points, *point);
    return;
  }
  s->certificate.stated_cuts += !point->open && zp_chunks(&point->choice) > 1 && !point->every_cut;
  if (zp_is_beaten(s, point->bound_s)) return;
  s->certificate.candidates += !point->open;
  zp_push(s->arena, &s->points, *point);
}

static void add_point(zp_searcher *s, const zp_choice *choice, zp_mode_set modes) {
  zp_point point;
  bool lowered = zp_search_point(s, choice, modes, &point);
  assert(lowered);
  (void)lowered;
  keep(s, &point);
}

/* Stages choose among all modes. One mode for all of them with saved values off the device, where keeping more moves
 * more, and with several chunks a stage and any state off the device. */
static bool has_one_mode(const zp_searcher *s, const zp_point *all, int leaving) {
  bool moves = leaving == ZP_STATE_ACTIVATIONS || (leaving < ZP_STATE_COUNT && zp_chunks(&all->choice) > 1);
  return !all->choice.stage_recompute && (moves || !zp_modes_are_ordered(s, all));
}

/* ---- families ---- */

static void add_family(zp_searcher *s, const zp_choice *choice, zp_mode_set modes, int state);

/* Nothing beats the known plans that moves as much or more. */
static bool moves_too_much(zp_searcher *s, const zp_choice *choice, zp_mode_set modes) {
  zp_point point;
  zp_search_point(s, choice, modes, &point);
  return !s->keeps_all && zp_is_beaten(s, zp_bound_moving(s, &point));
}

static bool may_fit(zp_searcher *s, zp_choice choice, zp_mode_set modes, int state, int eighths) {
  zp_point point;
  choice.home[state].eighths = eighths;
  zp_search_point(s, &choice, modes, &point);
  return zp_memory_floor(s, &point) <= s->most_bytes && zp_find_least_work(s, &point, false);
}

/* The least share of a class that may fit; ZP_EIGHTHS + 1: none. */
static int least_share(zp_searcher *s, const zp_choice *choice, zp_mode_set modes, int state) {
  int low = 1, high = ZP_EIGHTHS + 1;
  if (!may_fit(s, *choice, modes, state, ZP_EIGHTHS)) {
    zp_search_reject(s, ZP_REJECT_MEMORY);
    return high;
  }
  for (high = ZP_EIGHTHS; low < high;) {
    int middle = low + (high - low) / 2;
    if (may_fit(s, *choice, modes, state, middle))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/* The points whose class `state` lies on that tier and those after it on the device, and those after all of it has
 * left.
 */
static void leave(zp_searcher *s, const zp_choice *choice, zp_mode_set modes, int state, zp_tier tier) {
  zp_choice c = *choice;
  for (int i = state; i < ZP_STATE_COUNT; i++) c.home[i] = (zp_home){ZP_TIER_DEVICE, 0};
  c.home[state] = (zp_home){tier, 1};
  if (zp_choice_refusal(&c, s->spec)) {
    zp_search_reject(s, ZP_REJECT_SCHEDULE);
    return;
  }
  bool some = !moves_too_much(s, &c, modes);
  if (!some) return;
  int eighths = s->keeps_all ? ZP_EIGHTHS : least_share(s, &c, modes, state);
  for (; eighths <= ZP_EIGHTHS && some; eighths++) {
    c.home[state].eighths = eighths;
    some = !moves_too_much(s, &c, modes);
    if (some) add_point(s, &c, modes);
  }
  c.home[state].eighths = ZP_EIGHTHS;
  if (some) add_family(s, &c, modes, state + 1);
}

void zp_open_family(zp_searcher *s, const zp_point *family) {
  int state = family->open - 1;
  for (int tier = ZP_TIER_HOST; tier <= ZP_TIER_NVME; tier++)
    if (zp_limit_allows(&s->constraints->offload[state], tier))
      leave(s, &family->choice, zp_variant_of(s, family)->modes, state, (zp_tier)tier);
}

static void keep_family(zp_searcher *s, const zp_choice *open, zp_mode_set modes, int state) {
  zp_point family;
  zp_search_point(s, open, modes, &family);
  family.open = 1 + state;
  if (s->keeps_all)
    zp_open_family(s, &family);
  else
    keep(s, &family);
}

/* The classes before the first one from `state` on have left, as far as they may; of that one something leaves. */
static void add_family(zp_searcher *s, const zp_choice *choice, zp_mode_set modes, int state) {
  while (state < ZP_STATE_COUNT && !may_leave(s, (zp_state)state)) state++;
  if (state == ZP_STATE_COUNT) return;
  zp_choice open = leave_open(s, choice, state);
  zp_point all;
  zp_search_point(s, &open, modes, &all);
  if (!has_one_mode(s, &all, state))
    keep_family(s, &open, modes, state);
  else
    for (int i = 0; i < all.n_modes; i++)
      keep_family(s, &open, zp_set_of_mode(s->variants.data[all.modes[i]].mode), state);
}

void zp_try_homes(zp_searcher *s, const zp_choice *choice, zp_mode_set modes) {
  zp_point all;
  zp_search_point(s, choice, modes, &all);
  if (!has_one_mode(s, &all, ZP_STATE_COUNT))
    add_point(s, choice, modes);
  else
    for (int i = 0; i < all.n_modes; i++) add_point(s, choice, zp_set_of_mode(s->variants.data[all.modes[i]].mode));
  add_family(s, choice, modes, 0);
}

/* ---- the bound of a family ---- */

/* Steps of the order in which classes leave: eighths of those that may, from the family's class on. */
static int steps_before(const zp_searcher *s, const zp_point *family, int end) {
  int steps = 0;
  for (int i = family->open - 1; i < end; i++) steps += may_leave(s, (zp_state)i) ? ZP_EIGHTHS : 0;
  return steps;
}

static zp_choice at_step(const zp_searcher *s, const zp_point *family, int step) {
  zp_choice c = family->choice;
  for (int i = family->open - 1; i < ZP_STATE_COUNT; i++) {
    int eighths = !may_leave(s, (zp_state)i) ? 0 : step < ZP_EIGHTHS ? step : ZP_EIGHTHS;
    c.home[i] = (zp_home){eighths ? ZP_TIER_HOST : ZP_TIER_DEVICE, eighths};
    step -= eighths;
  }
  return c;
}

/* At one step, on the host: no disk is faster. *moves: what moves is what takes the time, not the work. */
static double bound_of_step(zp_searcher *s, const zp_point *family, zp_mode_set modes, int step, bool *moves) {
  zp_choice c = at_step(s, family, step);
  zp_point point;
  zp_search_point(s, &c, modes, &point);
  double moving = zp_bound_moving(s, &point);
  *moves = moving >= s->cutoff_s; /* and more of it is no use, whatever fits */
  if (*moves) return moving;
  if (zp_memory_floor(s, &point) > s->most_bytes || !zp_find_least_work(s, &point, false)) return HUGE_VAL;
  double all = zp_bound_moving(s, &point);
  *moves = all <= moving;
  return all;
}

/* Of the steps low to high: what moves takes ever longer, and the work that memory forces on the stages ever less, so
 * the least is where they meet. */
static double least_of_steps(zp_searcher *s, const zp_point *family, zp_mode_set modes, int low, int high) {
  double least = HUGE_VAL;
  while (low <= high) {
    int middle = low + (high - low) / 2;
    bool moves;
    least = fmin(least, bound_of_step(s, family, modes, middle, &moves));
    if (moves)
      high = middle - 1;
    else
      low = middle + 1;
  }
  return least;
}

double zp_bound_family(zp_searcher *s, const zp_point *family) {
  int before = steps_before(s, family, ZP_STATE_ACTIVATIONS), all = steps_before(s, family, ZP_STATE_COUNT);
  zp_mode_set modes = zp_variant_of(s, family)->modes;
  if (family->n_modes == 1 || family->choice.stage_recompute) return least_of_steps(s, family, modes, 1, all);
  double least = least_of_steps(s, family, modes, 1, before);
  for (int i = 0; i < family->n_modes && all > before; i++) {
    zp_mode_set one = zp_set_of_mode(s->variants.data[family->modes[i]].mode);
    least = fmin(least, least_of_steps(s, family, one, before + 1, all));
  }
  return least;
}
