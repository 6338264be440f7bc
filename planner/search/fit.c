/* Memory: does a point fit?
 *
 * Limits are per rank: what the plan block allows of the device, less the context, and an equal share of its node's
 * host memory and disks among the ranks on the node. Where node types are mixed, limits are handed around for the
 * smallest type, and a stage on larger ones may use so much more. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <zplan/schedule.h>
#include "budget.h"
#include "cut.h"
#include "fit.h"
#include "procedures.h"
#include "space.h"

enum { ROUNDED_ELEMENTS = 128 }; /* at most, of a part of a class */

zp_limits zp_machine_limits(const zp_searcher *s, const zp_machine *machine) {
  double fraction = s->constraints->memory_fraction;
  int here = machine->devices < machine->devices_per_node ? machine->devices : machine->devices_per_node;
  return (zp_limits){(int64_t)(fraction * (double)machine->memory_bytes) - machine->context_bytes,
                     (int64_t)(fraction * (double)machine->node->host_memory_bytes) / here,
                     (int64_t)(fraction * (double)machine->node->nvme_bytes) / here};
}

zp_limits zp_search_limits(const zp_searcher *s) { return (zp_limits){s->limit_bytes, s->host_bytes, s->nvme_bytes}; }

static int64_t shifted(int64_t limit, int64_t smallest, int64_t own) {
  return limit == INT64_MAX ? limit : limit + (own - smallest);
}

zp_limits zp_limits_of_stage(const zp_searcher *s, const zp_choice *choice, int stage, const zp_limits *smallest) {
  if (!zp_has_types(s)) return *smallest;
  const zp_limits *own = &zp_find_places(s, choice)->limits[stage];
  return (zp_limits){shifted(smallest->device, s->limit_bytes, own->device),
                     shifted(smallest->host, s->host_bytes, own->host),
                     shifted(smallest->nvme, s->nvme_bytes, own->nvme)};
}

/* Bytes of all stages together, in eighths: states once, and of every micro-batch what the stage with the fewest in
 * flight keeps. */
static int64_t floor_eighths(const zp_searcher *s, const zp_point *point) {
  const zp_choice *c = &point->choice;
  const zp_variant *v = zp_variant_of(s, point);
  const zp_lowered *l = v->lowered;
  int64_t m = zp_microbatches(s->spec, c), flight = 1; /* a pool of slots may hold less than the chunks' own */
  if (zp_chunks(c) == 1) {
    int64_t first = zp_in_flight_chunk(c, 0, 0, m), last = zp_in_flight_chunk(c, c->pipeline - 1, 0, m);
    flight = first < last ? first : last;
  }
  int64_t whole = v->elements, spread = v->spread_elements;
  int64_t eighths = v->saved_bytes * flight * zp_eighths_here(c, ZP_STATE_ACTIVATIONS);
  eighths += zp_held_elements(c, whole, spread, c->zero >= 3) * l->param_bytes * zp_eighths_here(c, ZP_STATE_PARAMS);
  eighths += zp_held_elements(c, whole, spread, c->zero >= 2) * l->grad_bytes * zp_eighths_here(c, ZP_STATE_GRADIENTS);
  eighths += zp_held_elements(c, whole, spread, c->zero >= 1) * l->state_bytes * zp_eighths_here(c, ZP_STATE_OPTIMIZER);
  return eighths;
}

/* The mean over the stages. */
int64_t zp_memory_floor(const zp_searcher *s, const zp_point *point) {
  return floor_eighths(s, point) / ZP_EIGHTHS / point->choice.pipeline;
}

int zp_least_eighths(const zp_searcher *s, const zp_point *point, zp_state state) {
  zp_point share = *point;
  int64_t bytes =
      s->most_bytes - zp_choice_communicator_bytes(s, &share.choice, zp_variant_of(s, point)->lowered->ties);
  int64_t limit = (bytes + 1) * ZP_EIGHTHS * point->choice.pipeline - 1; /* a stage's floor is rounded down */
  share.choice.home[state].eighths = 1;
  int64_t most = floor_eighths(s, &share);
  if (most <= limit) return 1;
  share.choice.home[state].eighths = ZP_EIGHTHS;
  int64_t least = floor_eighths(s, &share), of_one = (most - least) / (ZP_EIGHTHS - 1);
  for (int eighths = 2; eighths < ZP_EIGHTHS; eighths++)
    if (least + (ZP_EIGHTHS - eighths) * of_one <= limit) return eighths;
  return least <= limit ? ZP_EIGHTHS : ZP_EIGHTHS + 1;
}

/* Parts of a class are whole numbers of aligned elements. */
static void add_away(zp_limits *floor, const zp_choice *c, zp_state state, int64_t elements, int64_t element_bytes) {
  const zp_home *home = &c->home[state];
  int64_t rounded = home->eighths < ZP_EIGHTHS ? ROUNDED_ELEMENTS : 0;
  int64_t here = elements / c->pipeline * home->eighths / ZP_EIGHTHS - rounded;
  if (home->tier == ZP_TIER_DEVICE || here <= 0) return;
  *(home->tier == ZP_TIER_HOST ? &floor->host : &floor->nvme) += here * element_bytes;
}

/* The mean over the stages, without buffers and saved activations. */
zp_limits zp_away_floor(const zp_searcher *s, const zp_point *point) {
  const zp_choice *c = &point->choice;
  const zp_variant *v = zp_variant_of(s, point);
  int64_t whole = v->elements, spread = v->spread_elements;
  zp_limits floor = {0};
  if (zp_has_types(s)) return floor;
  add_away(&floor, c, ZP_STATE_PARAMS, zp_held_elements(c, whole, spread, c->zero >= 3), v->lowered->param_bytes);
  add_away(&floor, c, ZP_STATE_GRADIENTS, zp_held_elements(c, whole, spread, c->zero >= 2), v->lowered->grad_bytes);
  add_away(&floor, c, ZP_STATE_OPTIMIZER, zp_held_elements(c, whole, spread, c->zero >= 1), v->lowered->state_bytes);
  return floor;
}

/* Some cut of the point's space fits. */
static bool some_cut_fits(const zp_searcher *s, const zp_point *point, zp_limits limits) {
  zp_arena_mark mark = zp_arena_get_mark(s->arena);
  bool fits = false;
  if (zp_chunks(&point->choice) > 1) {
    zp_stated_cuts stated = zp_state_cuts(s->arena, s, point);
    for (int i = 0; i < stated.n && !fits; i++) fits = zp_chunks_fit(s, point, &limits, stated.cut[i]);
  } else {
    zp_cut_rule rule = {.stage_s = HUGE_VAL, .total_s = HUGE_VAL, .limits = limits};
    fits = zp_cut_within(s, point, &rule, ZP_NEW_ARRAY(s->arena, int64_t, point->choice.pipeline + 1));
  }
  zp_arena_rewind(s->arena, mark);
  return fits;
}

static bool any_away(const zp_choice *c) {
  for (int i = 0; i < ZP_STATE_COUNT; i++)
    if (c->home[i].eighths > 0) return true;
  return false;
}

bool zp_fits_device(const zp_searcher *s, const zp_point *point) {
  zp_point trial = *point;
  zp_limits limits = {s->limit_bytes, INT64_MAX, INT64_MAX};
  zp_remember_fits(s, &trial, &limits);
  return some_cut_fits(s, &trial, limits);
}

bool zp_point_fits(const zp_searcher *s, zp_point *point, zp_rejection *why) {
  zp_limits limits = zp_search_limits(s);
  zp_remember_fits(s, point, &limits);
  if (some_cut_fits(s, point, limits)) return true;
  *why = any_away(&point->choice) && zp_fits_device(s, point) ? ZP_REJECT_HOST : ZP_REJECT_MEMORY;
  return false;
}

/* ---- nothing fits ---- */

/* What the fullest stage of a cut needs when stage i runs own[i]. */
static zp_miss miss_of_cut(const zp_searcher *s, const zp_point *point, int64_t *cut, const zp_variant *const *own,
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

static void note_miss(zp_searcher *s, const zp_point *point) {
  int64_t context = s->machine.context_bytes, have = s->limit_bytes + context;
  int64_t *cut = ZP_NEW_ARRAY(s->arena, int64_t, point->choice.pipeline + 1);
  if (have <= 0) have = 1;
  if (s->miss_ratio > 0) { /* not nearer than the nearest so far? one pass instead of a bisection */
    int64_t beat = (int64_t)(s->miss_ratio * (double)have * (1 - ZP_CLOSE_STEP)) - context;
    zp_cut_rule rule = {.stage_s = HUGE_VAL, .total_s = HUGE_VAL, .limits = {beat, INT64_MAX, INT64_MAX}};
    if (!zp_cut_within(s, point, &rule, cut)) return;
  }
  int64_t least = zp_cut_least_memory(s, point, cut);
  s->miss_ratio = (double)(least + context) / (double)have;
  const zp_variant **own = ZP_NEW_ARRAY(s->arena, const zp_variant *, point->choice.pipeline);
  bool fits = zp_cut_variants(s, point, &(zp_limits){least, INT64_MAX, INT64_MAX}, cut, own);
  assert(fits);
  (void)fits;
  s->miss = miss_of_cut(s, point, cut, own, have);
}

/* Several chunks a stage, asked for by a constraint: of the cuts by every mode, all stages in it, the one that needs
 * least. */
static void note_chunks_miss(zp_searcher *s, const zp_point *point) {
  static const zp_limits none = {INT64_MAX, INT64_MAX, INT64_MAX};
  int64_t have = s->limit_bytes + s->machine.context_bytes;
  const zp_variant **own = ZP_NEW_ARRAY(s->arena, const zp_variant *, point->choice.pipeline);
  for (int i = 0; i < 2 * point->n_modes; i++) {
    int64_t *cut = ZP_NEW_ARRAY(s->arena, int64_t, zp_model_chunks(&point->choice) + 1);
    if (!zp_state_cut(s, point, i / 2, i % 2, cut) || !zp_chunks_fit(s, point, &none, cut)) continue;
    for (int k = 0; k < point->choice.pipeline; k++) own[k] = &s->variants.data[point->modes[i / 2]];
    zp_miss miss = miss_of_cut(s, point, cut, own, have > 0 ? have : 1);
    double ratio = (double)miss.need_bytes / (double)miss.have_bytes;
    if (s->miss_ratio > 0 && ratio >= s->miss_ratio) continue;
    s->miss = miss;
    s->miss_ratio = ratio;
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
static int floors_of(const zp_searcher *s, int low, int high, floor_of *floors) {
  int n = 0;
  for (int i = 0; i < s->points.len; i++) {
    int chunks = zp_chunks(&s->points.data[i].choice);
    if (chunks >= low && chunks <= high) floors[n++] = (floor_of){zp_memory_floor(s, &s->points.data[i]), i};
  }
  return n;
}

static bool is_nearer(const zp_searcher *s, int64_t floor_bytes) {
  double need = (double)(floor_bytes + s->machine.context_bytes);
  return s->miss_ratio == 0 || need < s->miss_ratio * (double)s->miss.have_bytes;
}

/* Points with one chunk a stage (or, where there are none, some with several), the lowest floors first, until no floor
 * is below the nearest miss. */
static void note_points(zp_searcher *s) {
  floor_of *floors = ZP_NEW_ARRAY(s->arena, floor_of, s->points.len + 1);
  int n = floors_of(s, 1, 1, floors);
  bool chunked = n == 0;
  if (chunked) n = floors_of(s, 2, ZP_MOST_CHUNKS, floors);
  if (n) qsort(floors, (size_t)n, sizeof *floors, by_floor);
  if (chunked && n > ZP_CHUNKED_MISSES) n = ZP_CHUNKED_MISSES;
  for (int i = 0; i < n; i++) {
    const zp_point *point = &s->points.data[floors[i].point];
    if (!is_nearer(s, floors[i].bytes)) break;
    zp_search_use(s, zp_choice_ranks(&point->choice));
    (chunked ? note_chunks_miss : note_miss)(s, point);
  }
  s->points.len = 0;
}

static int by_degrees_floor(const void *a, const void *b) {
  const zp_degrees *x = a, *y = b;
  if (x->floor_bytes != y->floor_bytes) return x->floor_bytes < y->floor_bytes ? -1 : 1;
  if (x->tensor != y->tensor) return x->tensor - y->tensor;
  return x->pipeline != y->pipeline ? x->pipeline - y->pipeline : x->data - y->data;
}

/* Degrees in the order of their floors are looked into once more. */
void zp_note_misses(zp_searcher *s) {
  zp_degrees_list *all = &s->too_small;
  for (int i = 0; i < s->degrees.len; i++)
    if (s->degrees.data[i].measured && isfinite(s->degrees.data[i].bound_s)) zp_push(s->arena, all, s->degrees.data[i]);
  if (all->len) qsort(all->data, (size_t)all->len, sizeof *all->data, by_degrees_floor);
  s->keeps_all = true;
  s->cutoff_s = HUGE_VAL;
  s->points.len = 0;
  for (int i = 0; i < all->len && is_nearer(s, all->data[i].floor_bytes) && zp_may_grow(s, ZP_GROW_POINTS, 0); i++) {
    zp_search_expand(s, &all->data[i]);
    note_points(s);
  }
}
