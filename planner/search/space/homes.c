/* SPDX-License-Identifier: Apache-2.0 */
/* The points of a choice: what of its state leaves the device, and what its stages may recompute.
 *
 * Classes leave the device in a fixed order: optimizer state, gradients, parameters, saved activations, each in
 * eighths, to the host or to disks, and only when those before it that may leave have left. Every share is a point of
 * its own, so more memory adds points and takes none. There are up to 240 of a choice, so they come in families: all
 * points with the same classes gone and a share of the next one, whatever the tiers. A family stands for them on the
 * fastest tier of every class, with the least share that may fit. It is considered in steps that take ever longer
 * (refine.c), and only what is left of it then becomes points. Before that, all families of a choice wait as one. */
#include <math.h>
#include <zplan/abilities.h>
#include <zplan/schedule.h>
#include "bound.h"
#include "fit.h"
#include "procedures.h"
#include "space.h"

/* The plan block leaves it nowhere else: all of it has to leave. */
static bool must_leave(const zp_search_input *in, zp_state state) {
  return in->may_leave[state] && !zp_limit_allows(&in->constraints->offload[state], ZP_TIER_DEVICE);
}

/* The last class that has to leave; -1: none. Points that leave it on the device are not in the space. */
static int last_to_leave(const zp_search_input *in) {
  int last = -1;
  for (int i = 0; i < ZP_STATE_COUNT; i++)
    if (must_leave(in, (zp_state)i)) last = i;
  return last;
}

/* Bytes of a rank's host and disks, where any class may go there. */
static int64_t bytes_off_device(const zp_search_cache *s) {
  bool host = false, nvme = false;
  for (int i = 0; i < ZP_STATE_COUNT; i++) {
    if (!s->in->may_leave[i]) continue;
    host |= zp_limit_allows(&s->in->constraints->offload[i], ZP_TIER_HOST);
    nvme |= zp_limit_allows(&s->in->constraints->offload[i], ZP_TIER_NVME);
  }
  return (host ? s->host_bytes : 0) + (nvme ? s->nvme_bytes : 0);
}

/* What is not on the device is on the host or on disks. */
static bool all_tiers_may_fit(const zp_search_cache *s, const zp_point *smallest) {
  zp_point here = *smallest;
  memset(here.choice.home, 0, sizeof here.choice.home);
  return zp_has_types(s) || zp_memory_floor(s, &here) <= s->most_bytes + bytes_off_device(s);
}

zp_rejection zp_refuse_floor(const zp_search_cache *s, const zp_point *smallest) {
  if (zp_memory_floor(s, smallest) > s->most_bytes) return ZP_REJECT_MEMORY;
  return all_tiers_may_fit(s, smallest) ? ZP_REJECT_NONE : ZP_REJECT_HOST;
}

/* What a stage has of its units is on one tier or another, so no plan fits unless the stages have room for the layers
 * with all of it on devices that are larger by what may be elsewhere. */
bool zp_all_tiers_have_room(zp_search_cache *s, const zp_point *smallest) {
  if (zp_has_types(s)) return true;
  zp_point here = *smallest;
  memset(here.choice.home, 0, sizeof here.choice.home);
  int64_t device_bytes = s->limit_bytes;
  s->limit_bytes += bytes_off_device(s);
  bool room = zp_find_least_work(s, &here, ZP_ASK_ROOM);
  s->limit_bytes = device_bytes;
  return room;
}

/* Nothing is faster on disks than on the host. */
static zp_tier fastest_tier(const zp_search_input *in, zp_state state) {
  return zp_limit_allows(&in->constraints->offload[state], ZP_TIER_HOST) ? ZP_TIER_HOST : ZP_TIER_NVME;
}

zp_choice zp_smallest(const zp_search_cache *s, const zp_choice *choice) {
  zp_choice c = *choice;
  for (int i = 0; i < ZP_STATE_COUNT; i++) /* wherever and however much of it */
    if (s->in->may_leave[i]) c.home[i] = (zp_home){ZP_TIER_HOST, 0};
  for (int zero = 1; zero <= 3 && c.data > 1; zero++)
    if (zp_search_considers(s->in, &s->in->constraints->zero, zero <= 1) &&
        zp_limit_allows(&s->in->constraints->zero, zero))
      c.zero = zero;
  return c;
}

/* ---- points ---- */

/* Why the point cannot be had, as far as that is known at once: what takes longest to find comes last. Raises its
 * bound. */
static zp_rejection refuse(zp_search_progress *progress, zp_point *point) {
  point->bound_s = zp_bound_moving(progress->s, point);
  if (point->bound_s >= progress->cutoff_s) return ZP_REJECT_NONE;
  if (zp_memory_floor(progress->s, point) > progress->s->most_bytes) return ZP_REJECT_MEMORY;
  zp_limits offloaded = zp_offloaded_floor(progress->s, point);
  if (offloaded.host > progress->s->host_bytes || offloaded.nvme > progress->s->nvme_bytes) return ZP_REJECT_HOST;
  point->bound_s = zp_bound(progress->s, point);
  if (point->bound_s >= progress->cutoff_s) return ZP_REJECT_NONE;
  if (!zp_hosts_have_room(progress->s, point)) return ZP_REJECT_HOST;
  if (!zp_find_least_work(progress->s, point, ZP_ASK_WORK)) return ZP_REJECT_MEMORY;
  point->bound_s = zp_bound(progress->s, point);
  return ZP_REJECT_NONE;
}

static void add_point(zp_search_progress *progress, const zp_point *point) {
  if (zp_trainer_refusal(progress->in->trainer, &progress->in->spec->train, &point->choice)) {
    zp_search_reject(progress, ZP_REJECT_GENERATED);
    return;
  }
  zp_point fresh = *point;
  fresh.every_cut = zp_every_chunk_cut(progress->s, point);
  zp_rejection why = refuse(progress, &fresh);
  if (why != ZP_REJECT_NONE) {
    zp_search_reject(progress, why);
    if (progress->keeps_all) zp_keep_point(progress, &fresh);
    return;
  }
  progress->certificate.stated_cuts += zp_has_stated_cuts(progress->s, &fresh);
  zp_note_unsearched(progress, &fresh, ZP_UNSEARCHED_POINT);
  if (zp_is_beaten(progress, fresh.bound_s)) return;
  if (zp_keep_point(progress, &fresh)) progress->certificate.candidates++;
}

/* Stages choose among all modes. One mode for all of them with saved values off the device, where keeping more moves
 * more, and with several chunks a stage and any state off the device. */
static bool has_one_mode(zp_search_cache *s, const zp_point *all, int leaving) {
  bool moves = leaving == ZP_STATE_ACTIVATIONS || (leaving < ZP_STATE_COUNT && zp_chunks(&all->choice) > 1);
  return !zp_choice_has_modes(&all->choice) && (moves || !zp_modes_are_ordered(s, all));
}

/* ---- families ---- */

static void set_share(zp_point *family, int eighths) { family->choice.home[family->leaving].eighths = eighths; }

static bool has_room(zp_search_cache *s, const zp_point *family) {
  zp_point share = *family;
  return zp_find_least_work(s, &share, ZP_ASK_ROOM);
}

/* With all of the class offloaded. */
static bool has_some_room(zp_search_cache *s, const zp_point *family) {
  zp_point share = *family;
  set_share(&share, ZP_EIGHTHS);
  return zp_find_least_work(s, &share, ZP_ASK_ROOM);
}

/* The family's share becomes the least one, from the one it has on, that fits: more of one class off the device never
 * needs more on it once some of it has left. False: none does. */
typedef bool zp_fits_share(zp_search_cache *s, const zp_point *family);
static bool raise_share(zp_search_cache *s, zp_point *family, zp_fits_share *fits) {
  int low = family->choice.home[family->leaving].eighths, high = ZP_EIGHTHS;
  set_share(family, high);
  if (!fits(s, family)) return false;
  while (low < high) {
    int middle = low + (high - low) / 2;
    set_share(family, middle);
    if (fits(s, family))
      high = middle;
    else
      low = middle + 1;
  }
  set_share(family, low);
  return true;
}

/* Is what has left of parameters, gradients and optimizer state no more than the hosts and disks hold? What may be on
 * either counts on both together. O(1). */
static bool state_offloaded_may_fit(zp_search_cache *s, const zp_point *family) {
  zp_limits offloaded = zp_offloaded_floor(s, family);
  bool disks = false;
  for (int i = 0; i <= (int)family->leaving; i++)
    disks |=
        family->choice.home[i].tier == ZP_TIER_HOST && zp_limit_allows(&s->in->constraints->offload[i], ZP_TIER_NVME);
  return disks ? offloaded.host + offloaded.nvme <= s->host_bytes + s->nvme_bytes
               : offloaded.host <= s->host_bytes && offloaded.nvme <= s->nvme_bytes;
}

/* Have the hosts and disks room for all that has left? */
static bool offloaded_may_fit(zp_search_cache *s, const zp_point *family) {
  return state_offloaded_may_fit(s, family) && zp_hosts_have_room(s, family);
}

/* The least share that may fit, as far as is known in O(1), and the bound that goes with it. */
static zp_rejection measure_family(zp_search_cache *s, zp_point *family) {
  int eighths = zp_least_eighths(s, family, family->leaving);
  if (must_leave(s->in, family->leaving) && eighths < ZP_EIGHTHS) eighths = ZP_EIGHTHS;
  if (eighths > ZP_EIGHTHS) return ZP_REJECT_MEMORY;
  set_share(family, eighths);
  if (!state_offloaded_may_fit(s, family)) return ZP_REJECT_HOST;
  family->bound_s = zp_bound_moving(s, family);
  return ZP_REJECT_NONE;
}

/* Why no share of a measured family has room on the stages. */
static zp_rejection refuse_family_room(zp_search_cache *s, const zp_point *family) {
  if (!zp_hosts_have_room(s, family)) return ZP_REJECT_HOST;
  return has_some_room(s, family) ? ZP_REJECT_NONE : ZP_REJECT_MEMORY;
}

/* The least end of a step of all shares from the family's one on, on the fastest tiers: the end of a step may take
 * less with more of a class off the device (gradients need not go down to an update on the host). */
double zp_least_family_end(zp_search_cache *s, const zp_point *family) {
  zp_point point = *family;
  bool differs = family->leaving != ZP_STATE_ACTIVATIONS; /* these are gone by then */
  double least = HUGE_VAL;
  for (int i = family->choice.home[family->leaving].eighths; i <= ZP_EIGHTHS; i++) {
    set_share(&point, i);
    least = fmin(least, zp_bound_end_of_homes(s, &point));
    if (!differs) break;
  }
  return least;
}

/* A measured family. */
static void keep_family(zp_search_progress *progress, zp_point *family) {
  if (!zp_is_beaten(progress, family->bound_s)) zp_keep_point(progress, family);
}

zp_mode_points zp_find_modes(zp_search_cache *s, const zp_point *all) {
  zp_mode_points p = {.all = *all};
  for (int i = 0; i < all->n_modes && !zp_choice_has_modes(&all->choice); i++)
    zp_search_point(s, &all->choice, zp_set_of_mode(s->variants.data[all->modes[i]].mode), &p.one[i]);
  return p;
}

zp_point zp_with_choice(const zp_search_cache *s, const zp_point *like, const zp_choice *choice) {
  zp_point point = *like;
  point.choice = *choice;
  point.choice.recompute = like->choice.recompute;
  point.choice.recompute_shard = like->choice.recompute_shard;
  point.every_cut = zp_every_chunk_cut(s, &point);
  return point;
}

/* Calls for every family of a choice; all before its class of state have left, as far as they may. */
typedef void zp_on_family(zp_search_progress *progress, zp_point *family, void *user);
static void each_family(zp_search_progress *progress, const zp_point *all, const zp_mode_points *p,
                        zp_on_family *on_family, void *user) {
  zp_choice c = all->choice;
  int last = last_to_leave(progress->in);
  for (int state = 0; state < ZP_STATE_COUNT; state++) {
    if (!progress->in->may_leave[state]) continue;
    int least = must_leave(progress->in, (zp_state)state) ? ZP_EIGHTHS : 1;
    c.home[state] = (zp_home){fastest_tier(progress->in, (zp_state)state), least};
    if (zp_choice_refusal(&c, progress->in->spec)) return;
    if (state < last) {
      c.home[state].eighths = ZP_EIGHTHS;
      continue;
    }
    bool one = has_one_mode(progress->s, all, state);
    for (int i = 0; i < (one ? all->n_modes : 1); i++) {
      zp_point family = zp_with_choice(progress->s, one ? &p->one[i] : all, &c);
      family.next = ZP_REFINE_ROOM;
      family.leaving = (zp_state)state;
      on_family(progress, &family, user);
    }
    c.home[state].eighths = ZP_EIGHTHS;
  }
}

/* The families of a choice that may be had. */
typedef struct findings {
  zp_point family[ZP_STATE_COUNT * ZP_MOST_MODES];
  int len, n_rejected;
  double bound_s;
  zp_rejection why[ZP_STATE_COUNT * ZP_MOST_MODES];   /* the others cannot */
  zp_mode_set beaten[ZP_STATE_COUNT * ZP_MOST_MODES]; /* modes of the families whose bounds beat nothing */
  int n_beaten;
} findings;

/* All of the state of families before this one is offloaded here, and more, and of more modes the least counts. */
static bool is_known_beaten(const findings *found, zp_mode_set modes) {
  for (int i = 0; i < found->n_beaten; i++)
    if ((modes & ~found->beaten[i]) == 0) return true;
  return false;
}

/* A family whose bound beats nothing is left out with it, and nobody asks whether it has room. */
static void find_family(zp_search_progress *progress, zp_point *family, void *user) {
  findings *found = user;
  zp_mode_set modes = zp_variant_of(progress->s, family)->modes;
  if (is_known_beaten(found, modes)) return;
  zp_rejection why = measure_family(progress->s, family);
  bool beaten = why == ZP_REJECT_NONE && family->bound_s >= progress->cutoff_s &&
                !zp_may_note_unsearched(progress, family, ZP_UNSEARCHED_FAMILY);
  if (beaten) found->beaten[found->n_beaten++] = modes;
  if (why == ZP_REJECT_NONE && !beaten) why = refuse_family_room(progress->s, family);
  if (why != ZP_REJECT_NONE) {
    found->why[found->n_rejected++] = why;
    return;
  }
  zp_note_unsearched(progress, family, ZP_UNSEARCHED_FAMILY);
  found->bound_s = fmin(found->bound_s, family->bound_s);
  found->family[found->len++] = *family;
}

static void find_families(zp_search_progress *progress, const zp_point *all, const zp_mode_points *p, findings *found) {
  found->len = found->n_rejected = found->n_beaten = 0;
  found->bound_s = HUGE_VAL;
  each_family(progress, all, p, find_family, found);
}

static void keep_families(zp_search_progress *progress, findings *found) {
  for (int i = 0; i < found->n_rejected; i++) zp_search_reject(progress, found->why[i]);
  for (int i = 0; i < found->len; i++) keep_family(progress, &found->family[i]);
}

/* No share needs less than all of the class. */
static void keep_smallest(zp_search_progress *progress, zp_point *family, void *user) {
  (void)user;
  set_share(family, ZP_EIGHTHS);
  family->next = ZP_REFINE_WORK;
  add_point(progress, family);
}

/* The families of a choice wait as one until its turn comes: most never have it. all: everything on the device, which
 * moves least. */
static void add_families(zp_search_progress *progress, const zp_point *all, const zp_mode_points *p) {
  if (progress->keeps_all) {
    each_family(progress, all, p, keep_smallest, NULL);
    return;
  }
  zp_point family = *all;
  family.every_cut &= zp_few_chunk_cuts(progress->s, all); /* with state offloaded */
  if (zp_is_beaten(progress, zp_bound_moving(progress->s, &family))) {
    zp_note_unsearched(progress, &family, ZP_UNSEARCHED_CHOICE);
    return;
  }
  findings found;
  find_families(progress, all, p, &found);
  family.next = ZP_REFINE_CLASSES;
  family.bound_s = found.bound_s;
  if (found.len == 0)
    zp_search_reject(progress, found.n_rejected ? found.why[found.n_rejected - 1] : ZP_REJECT_SCHEDULE);
  else if (zp_is_beaten(progress, family.bound_s))
    return;
  else if (progress->opens_families)
    keep_families(progress, &found);
  else
    zp_keep_point(progress, &family);
}

void zp_try_homes(zp_search_progress *progress, const zp_choice *choice, const zp_mode_points *p) {
  zp_point all = zp_with_choice(progress->s, &p->all, choice);
  if (last_to_leave(progress->in) >= 0)
    zp_search_reject(progress, ZP_REJECT_CONSTRAINT);
  else if (!has_one_mode(progress->s, &all, ZP_STATE_COUNT))
    add_point(progress, &all);
  else
    for (int i = 0; i < all.n_modes; i++) {
      zp_point one = zp_with_choice(progress->s, &p->one[i], choice);
      add_point(progress, &one);
    }
  if (zp_some_state_may_leave(progress->in)) add_families(progress, &all, p);
}

/* ---- looks at a family ---- */

/* With a share: what moves, and the work that memory forces on the stages. *moves: the first decides. */
static double bound_share(zp_search_progress *progress, const zp_point *family, double alone_s, int eighths,
                          bool *moves) {
  zp_point point = *family;
  point.choice.home[family->leaving].eighths = eighths;
  double moving = zp_bound_moving_overlapped(progress->s, &point, alone_s);
  *moves = true;
  if (moving >= progress->cutoff_s || !zp_find_least_work(progress->s, &point, ZP_ASK_WORK)) return moving;
  double all = zp_bound_moving_overlapped(progress->s, &point, alone_s);
  *moves = all <= moving;
  return all;
}

/* What moves takes ever longer with the share, and the work that memory forces on the stages ever less, so the least is
 * where they meet. What moves alone is added to the work: that of the least share counts for all. */
static double least_of_shares(zp_search_progress *progress, const zp_point *family) {
  double least = HUGE_VAL, alone_s = zp_bound_alone(progress->s, family);
  for (int low = family->choice.home[family->leaving].eighths, high = ZP_EIGHTHS; low <= high;) {
    int middle = low + (high - low) / 2;
    bool moves;
    least = fmin(least, bound_share(progress, family, alone_s, middle, &moves));
    if (moves)
      high = middle - 1;
    else
      low = middle + 1;
  }
  return least;
}

static zp_rejection look_at_share(zp_search_progress *progress, zp_point *family, zp_fits_share *fits) {
  if (!raise_share(progress->s, family, fits)) return ZP_REJECT_MEMORY;
  if (!offloaded_may_fit(progress->s, family)) return ZP_REJECT_HOST;
  family->end_s = zp_least_family_end(progress->s, family);
  family->bound_s = fmax(family->bound_s, least_of_shares(progress, family) + family->end_s);
  return ZP_REJECT_NONE;
}

zp_rejection zp_bound_family(zp_search_progress *progress, zp_point *family) {
  return look_at_share(progress, family, has_room);
}

zp_rejection zp_fit_family(zp_search_progress *progress, zp_point *family) {
  return look_at_share(progress, family, zp_fits_device);
}

/* ---- its points ---- */

/* Every tier of the classes up to the family's one. */
static void add_tiers(zp_search_progress *progress, const zp_point *point, int state, int last) {
  if (state > last) {
    if (zp_choice_refusal(&point->choice, progress->in->spec))
      zp_search_reject(progress, ZP_REJECT_SCHEDULE);
    else
      add_point(progress, point);
    return;
  }
  zp_point placed = *point;
  bool left = placed.choice.home[state].tier != ZP_TIER_DEVICE;
  for (int tier = ZP_TIER_HOST; tier <= ZP_TIER_NVME; tier++) {
    if (left && !zp_limit_allows(&progress->in->constraints->offload[state], tier)) continue;
    if (left) placed.choice.home[state].tier = (zp_tier)tier;
    add_tiers(progress, &placed, state + 1, last);
    if (!left) break;
  }
}

void zp_open_family(zp_search_progress *progress, const zp_point *family) {
  if (family->next == ZP_REFINE_CLASSES) {
    zp_point all = *family;
    all.next = ZP_REFINE_WORK;
    zp_mode_points p = zp_find_modes(progress->s, &all);
    findings found;
    find_families(progress, &all, &p, &found);
    keep_families(progress, &found);
    return;
  }
  int state = family->leaving;
  zp_point point = *family;
  point.next = ZP_REFINE_WORK;
  for (int eighths = family->choice.home[state].eighths; eighths <= ZP_EIGHTHS; eighths++) {
    point.choice.home[state].eighths = eighths;
    if (zp_is_beaten(progress, zp_bound_moving(progress->s, &point))) break; /* and more moves more */
    add_tiers(progress, &point, 0, state);
  }
}
