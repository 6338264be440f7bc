/* Memory: does a point fit, and with how much of its state off the device?
 *
 * Limits are per rank: what the plan block allows of the device, less the context, and an equal share of its node's
 * host memory and disks among the ranks on the node. Where node types are mixed, limits are handed around for the
 * smallest type, and a stage on larger ones may use so much more.
 *
 * Classes leave the device in a fixed order: optimizer state, gradients, parameters, saved activations, each only when
 * those before it that may leave have left, in eighths. The first step of this chain for which some cut fits is taken:
 * more off the device costs more time. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include "schedule.h"
#include "search_internal.h"

enum { EIGHTHS = 8, CHUNKED_MISSES = 32 };

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

bool zp_stage_fits(const zp_lowered *lowered, const zp_choice *choice, int stage, const zp_units *part,
                   const int64_t *flight, const zp_limits *limits) {
  zp_memory m = zp_stage_footprint(lowered, choice, stage, part, flight);
  return zp_memory_of_arena(&m) <= limits->device && m.host <= limits->host && m.nvme <= limits->nvme;
}

/* May the class leave the device? The point then names the tier. */
static bool may_leave(const zp_choice *c, zp_state state) { return c->home[state].tier != ZP_TIER_DEVICE; }

/* The mean over the stages: states once, and of every micro-batch what the stage with the fewest in flight keeps. */
int64_t zp_memory_floor(const zp_searcher *s, const zp_point *point) {
  const zp_choice *c = &point->choice;
  const zp_variant *v = zp_variant_of(s, point);
  const zp_lowered *l = v->lowered;
  int64_t m = zp_microbatches(s->spec, c), flight = 1; /* a pool of slots may hold less than the chunks' own */
  if (zp_chunks(c) == 1) {
    int64_t first = zp_in_flight_chunk(c, 0, 0, m), last = zp_in_flight_chunk(c, c->pipeline - 1, 0, m);
    flight = first < last ? first : last;
  }
  int64_t bytes = may_leave(c, ZP_STATE_ACTIVATIONS) ? 0 : v->saved_bytes * flight;
  int64_t whole = v->elements, spread = v->spread_elements;
  if (!may_leave(c, ZP_STATE_PARAMS)) bytes += zp_held_elements(c, whole, spread, c->zero >= 3) * l->param_bytes;
  if (!may_leave(c, ZP_STATE_GRADIENTS)) bytes += zp_held_elements(c, whole, spread, c->zero >= 2) * l->grad_bytes;
  if (!may_leave(c, ZP_STATE_OPTIMIZER)) bytes += zp_held_elements(c, whole, spread, c->zero >= 1) * l->state_bytes;
  return bytes / c->pipeline;
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

/* ---- the offload chain ---- */

/* Steps of the chain, and the point at one of them. */
static int chain_length(const zp_choice *c) {
  int steps = 0;
  for (int i = 0; i < ZP_STATE_COUNT; i++) steps += may_leave(c, (zp_state)i) ? EIGHTHS : 0;
  return steps;
}

static zp_point at_step(const zp_point *point, int step) {
  zp_point p = *point;
  for (int i = 0; i < ZP_STATE_COUNT; i++) {
    if (!may_leave(&p.choice, (zp_state)i)) continue;
    p.choice.home[i].eighths = step < EIGHTHS ? step : EIGHTHS;
    step -= p.choice.home[i].eighths;
    if (p.choice.home[i].eighths == 0) p.choice.home[i].tier = ZP_TIER_DEVICE;
  }
  return p;
}

static bool step_fits(const zp_searcher *s, const zp_point *point, int step, zp_limits limits) {
  zp_point p = at_step(point, step);
  return !zp_choice_refusal(&p.choice, s->spec) && some_cut_fits(s, &p, limits);
}

/* The first step within one class whose device bytes fit. Device bytes only shrink as a class leaves, but for the rings
 * that appear with the first eighth. Requires: the last step of the class fits. */
static int first_in_class(const zp_searcher *s, const zp_point *point, int before, zp_limits limits) {
  int low = before + 1, high = before + EIGHTHS;
  while (low < high) {
    int middle = low + (high - low) / 2;
    if (step_fits(s, point, middle, limits))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/* Requires: some class may leave. */
static bool find_step(const zp_searcher *s, zp_point *point, zp_rejection *why) {
  zp_limits limits = zp_search_limits(s), device_only = {limits.device, INT64_MAX, INT64_MAX},
            off_device = {INT64_MAX, limits.host, limits.nvme};
  int step = 0, last = chain_length(&point->choice);
  if (!step_fits(s, point, 0, device_only)) {
    int class_end = EIGHTHS;
    while (class_end <= last && !step_fits(s, point, class_end, device_only)) class_end += EIGHTHS;
    *why = ZP_REJECT_MEMORY;
    if (class_end > last) return false;
    step = first_in_class(s, point, class_end - EIGHTHS, device_only);
  }
  *why = ZP_REJECT_HOST;
  if (!step_fits(s, point, step, off_device)) return false; /* and what leaves only grows */
  for (; step <= last; step++)
    if (step_fits(s, point, step, limits)) {
      *point = at_step(point, step);
      return true;
    }
  return false;
}

bool zp_find_home(const zp_searcher *s, zp_point *point, zp_rejection *why) {
  bool leaves = chain_length(&point->choice) > 0;
  if (leaves && !find_step(s, point, why)) return false;
  zp_remember_fits(s, point);
  *why = ZP_REJECT_MEMORY;
  return leaves || step_fits(s, point, 0, zp_search_limits(s));
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
    int64_t beat = (int64_t)(s->miss_ratio * (double)have * (1 - 1e-6)) - context;
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
  if (chunked && n > CHUNKED_MISSES) n = CHUNKED_MISSES;
  for (int i = 0; i < n; i++) {
    const zp_point *point = &s->points.data[floors[i].point];
    if (!is_nearer(s, floors[i].bytes)) break;
    zp_search_use(s, zp_choice_ranks(&point->choice));
    zp_point p = at_step(point, chain_length(&point->choice));
    if (!zp_choice_refusal(&p.choice, s->spec)) (chunked ? note_chunks_miss : note_miss)(s, &p);
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
  for (int i = 0; i < all->len && is_nearer(s, all->data[i].floor_bytes); i++) {
    zp_search_expand(s, &all->data[i]);
    note_points(s);
  }
}
