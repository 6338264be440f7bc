/* SPDX-License-Identifier: Apache-2.0 */
/* The least work of a point that may be cut inside layers, and whether its layers have room at all: a relaxed knapsack.
 * Only the repeated segment with the most work is considered, other units take the time of their fastest mode and no
 * memory. Each proof stands at its function, in these letters:
 *
 *   item    a layer, or a run of parts of it that is no whole layer, in one mode
 *   value   of an item, v: seconds that the slowest mode would take longer (SECONDS), its parts (PARTS), or its seconds
 *           in the fastest mode of each part (WORK), the same whatever its mode
 *   bytes   of an item on a stage with w micro-batches in flight and q whose weight gradients wait, c: state, w times
 *           what it keeps, and q times what waits. They grow with w and q
 *   L       bytes of a stage
 *
 * On a stage the parts follow one after another as in the model, so a chunk is whole layers with at most one run of
 * parts more: what is left of the layers at its two ends, put together, is a run that begins in one layer and may go on
 * into the next, and if it were a layer or more, one would be taken off it. */
#include <math.h>
#include <zplan/cost.h>
#include <zplan/schedule.h>
#include "bound.h"
#include "procedures.h"

/* What a stage may hold in one mode: a layer, or a run of parts. */
enum { SECONDS, PARTS, WORK, VALUES };
typedef struct item {
  double elements[ZP_KINDS];
  double kept, waits; /* bytes saved of a micro-batch; of one whose weight gradients wait */
  double seconds;     /* of a micro-batch, in this mode */
  double value[VALUES];
} item;

enum { MOST_RUNS = ZP_MOST_PARTS * (ZP_MOST_PARTS - 1) };
typedef struct mode_items { /* of one mode */
  item layer, part[ZP_MOST_PARTS], run[MOST_RUNS];
  int n_runs;
  bool needless; /* a stage has room for no more parts than in another mode that is considered */
} mode_items;

/* The items of all points of a variant. */
struct zp_part_knapsack {
  mode_items mode[ZP_MOST_MODES];
  int n_modes;
  double others_s;                   /* of all units that are not such parts */
  double fast_s, slow_s;             /* of the parts: in the fastest mode of each, all in the slowest one */
  double n;                          /* parts */
  int parts;                         /* of a layer */
  zp_unit_bytes with[ZP_MOST_PARTS]; /* of a stage with this part, at least */
  zp_unit_bytes least;               /* with any part */
  bool between;                      /* all units but the first and the last one of the model are such parts */
};
typedef struct zp_part_knapsack knapsack;

/* ---- items ---- */

static int heaviest_repeat(const zp_variant *v) {
  int heaviest = 0;
  double most = -1;
  for (int i = 0; i < v->lowered->pieces->n_whole; i++) {
    double seconds = v->unit_s[i] * (double)v->lowered->segments[i].segment->count;
    if (seconds > most) heaviest = i, most = seconds;
  }
  return heaviest;
}

static void add_part(item *sum, const item *part) {
  for (zp_param_kind kind = 0; kind < ZP_KINDS; kind++) sum->elements[kind] += part->elements[kind];
  sum->kept += part->kept;
  sum->waits += part->waits;
  sum->seconds += part->seconds;
  for (int i = 0; i < VALUES; i++) sum->value[i] += part->value[i];
}

static mode_items items_of(const zp_variant *v, int segment, const zp_variant *slowest, const zp_variant *fastest) {
  mode_items g = {.n_runs = 0};
  item *part = g.part;
  int n = v->lowered->pieces->parts[segment];
  for (int i = 0; i < n; i++) {
    int piece = zp_pieces_find(v->lowered->pieces, segment, i, i + 1);
    part[i] = (item){.kept = v->kept_bytes[piece],
                     .waits = v->waiting_bytes[piece],
                     .seconds = v->unit_s[piece],
                     .value = {[SECONDS] = fmax(0, slowest->unit_s[piece] - v->unit_s[piece]),
                               [PARTS] = 1,
                               [WORK] = fastest->unit_s[piece]}};
    for (zp_param_kind kind = 0; kind < ZP_KINDS; kind++) part[i].elements[kind] = v->part_elements[kind][piece];
    add_part(&g.layer, &part[i]);
  }
  for (int first = 0; first < n; first++) {
    item run = {.kept = 0};
    for (int i = 0; i + 1 < n; i++) { /* on into the next layer, but no whole one */
      add_part(&run, &part[(first + i) % n]);
      g.run[g.n_runs++] = run;
    }
  }
  return g;
}

static bool item_needs_no_more(const item *a, const item *b) {
  for (zp_param_kind kind = 0; kind < ZP_KINDS; kind++)
    if (a->elements[kind] > b->elements[kind]) return false;
  return a->kept <= b->kept && a->waits <= b->waits;
}

/* Needs a no more for every run of parts than b? */
static bool needs_no_more(const mode_items *a, const mode_items *b) {
  for (int i = 0; i < a->n_runs; i++)
    if (!item_needs_no_more(&a->run[i], &b->run[i])) return false;
  return item_needs_no_more(&a->layer, &b->layer);
}

static bool is_needless(const knapsack *all, int mode) {
  for (int i = 0; i < all->n_modes; i++)
    if (i != mode && needs_no_more(&all->mode[i], &all->mode[mode]) &&
        (i > mode || !needs_no_more(&all->mode[mode], &all->mode[i])))
      return true;
  return false;
}

static zp_unit_bytes least_of(zp_unit_bytes a, zp_unit_bytes b) {
  return (zp_unit_bytes){.transient = a.transient < b.transient ? a.transient : b.transient,
                         .elements = a.elements < b.elements ? a.elements : b.elements,
                         .saved = a.saved < b.saved ? a.saved : b.saved};
}

/* The least of all pieces that have the part, in all modes, backward split or not: a stage with the part has one. */
static zp_unit_bytes least_with_part(zp_search_cache *s, const zp_point *point, int segment, int part) {
  zp_unit_bytes least = {INT64_MAX, INT64_MAX, INT64_MAX};
  for (int i = 0; i < point->n_modes; i++) {
    const zp_lowered *l = s->variants.data[point->modes[i]].lowered;
    for (int first = 0; first <= part; first++)
      for (int end = part + 1; end <= l->pieces->parts[segment]; end++) {
        const zp_segment_program *piece = &l->segments[zp_pieces_find(l->pieces, segment, first, end)];
        least = least_of(least, zp_bytes_of_unit(piece, ZP_SCHEDULE_1F1B));
        if (l->splits) least = least_of(least, zp_bytes_of_unit(piece, ZP_SCHEDULE_ZB_H1));
      }
  }
  return least;
}

static void measure_parts(knapsack *fresh, zp_search_cache *s, const zp_point *point, int segment) {
  fresh->parts = zp_variant_of(s, point)->lowered->pieces->parts[segment];
  for (int i = 0; i < fresh->parts; i++) {
    fresh->with[i] = least_with_part(s, point, segment, i);
    fresh->least = i ? least_of(fresh->least, fresh->with[i]) : fresh->with[i];
  }
}

static const knapsack *find_knapsack(zp_search_cache *s, const zp_point *point) {
  zp_search_memo *memo = &s->memo;
  while (memo->knapsacks.len <= point->variant) zp_push(s->kept, &memo->knapsacks, NULL);
  knapsack **known = &memo->knapsacks.data[point->variant];
  if (*known) return *known;
  const zp_variant *all = zp_variant_of(s, point), *slowest = &s->variants.data[point->modes[point->n_modes - 1]];
  int segment = heaviest_repeat(all);
  double layers = (double)all->lowered->segments[segment].segment->count;
  knapsack *fresh = *known = ZP_NEW(s->kept, knapsack);
  fresh->n_modes = point->n_modes;
  for (int i = 0; i < point->n_modes; i++)
    fresh->mode[i] = items_of(&s->variants.data[point->modes[i]], segment, slowest, all);
  for (int i = 0; i < point->n_modes; i++) fresh->mode[i].needless = is_needless(fresh, i);
  fresh->n = layers * all->lowered->pieces->parts[segment];
  fresh->fast_s = layers * all->unit_s[segment];
  fresh->slow_s = layers * slowest->unit_s[segment];
  fresh->others_s = all->prefix_s[all->lowered->n_units] - fresh->fast_s;
  measure_parts(fresh, s, point, segment);
  fresh->between = zp_is_all_between(all->lowered, segment);
  return fresh;
}

/* ---- what stages gain ---- */

typedef struct prices {
  zp_state_bytes each;                                                    /* of an element */
  double layer_state[ZP_MOST_MODES], run_state[ZP_MOST_MODES][MOST_RUNS]; /* bytes of an item's state */
  double kept, waits; /* shares of what is saved and of what waits that are there */
  double limit;       /* bytes of a stage */
  int chunks;         /* of a stage */
  bool mixes;         /* a stage may be in two modes */
} prices;

static double state_of(const prices *p, const item *x) {
  double state = 0;
  for (zp_param_kind kind = 0; kind < ZP_KINDS; kind++) state += p->each.of[kind] * x->elements[kind];
  return state;
}

static prices make_prices(const knapsack *all, zp_state_bytes each, double kept, double waits, double limit,
                          int chunks) {
  prices p = {.each = each, .kept = kept, .waits = waits, .limit = limit, .chunks = chunks};
  for (int i = 0; i < all->n_modes; i++) {
    p.layer_state[i] = state_of(&p, &all->mode[i].layer);
    for (int k = 0; k < all->mode[i].n_runs; k++) p.run_state[i][k] = state_of(&p, &all->mode[i].run[k]);
  }
  return p;
}

/* On the device, alongside what every stage with a part needs. limit: not above 0: no part has room. */
static prices prices_here(zp_search_cache *s, const zp_point *point, const knapsack *all, const zp_alongside *a) {
  const zp_shares shares = zp_shares_here(&point->choice);
  double limit = (double)s->limit_bytes - zp_bytes_alongside(a, &all->least);
  prices p = make_prices(all, zp_bytes_of_state(&point->choice, zp_variant_of(s, point)->lowered, &shares),
                         shares.of[ZP_STATE_ACTIVATIONS], 1, limit * (1 + ZP_BOUND_SLACK), zp_chunks(&point->choice));
  p.mixes = zp_may_mix(s, point);
  return p;
}

/* What a stage has of micro-batches: in flight; those whose weight gradients wait. */
typedef struct microbatches {
  double flight, waiting;
} microbatches;

static double bytes_of(const prices *p, double state, const item *x, microbatches n) {
  return state + n.flight * p->kept * x->kept + n.waiting * p->waits * x->waits;
}

static double bytes_of_layer(const knapsack *all, const prices *p, int mode, microbatches n) {
  return bytes_of(p, p->layer_state[mode], &all->mode[mode].layer, n);
}

/* The most value a byte: that of the item with the largest v / c. A stage is a sum of items, so its value is at most
 * that times its bytes. c grows with w and q, so the rate of more of them is never larger. */
static double best_rate(const knapsack *all, const prices *p, int mode, int which, microbatches n) {
  const mode_items *g = &all->mode[mode];
  double bytes = bytes_of_layer(all, p, mode, n), best = bytes > 0 ? g->layer.value[which] / bytes : HUGE_VAL;
  for (int i = 0; i < g->n_runs; i++) {
    bytes = bytes_of(p, p->run_state[mode][i], &g->run[i], n);
    if (g->run[i].value[which] > best * bytes) best = bytes > 0 ? g->run[i].value[which] / bytes : HUGE_VAL;
  }
  return best;
}

/* The most value of a stage in one mode. With rate r = v / c of a layer: whole layers have r a byte, and a run has
 * v - r c more than layers of its bytes would have. A stage has at most one run a chunk, so its value is at most
 * r L + chunks * the most of v - r c; and at most L at the best rate there is (best_rate). The lesser of both. Loose:
 * numbers of layers need not be whole. */
static double most_value(const knapsack *all, const prices *p, int mode, int which, microbatches n) {
  const mode_items *g = &all->mode[mode];
  double layer_bytes = bytes_of_layer(all, p, mode, n), gain = 0;
  if (layer_bytes <= 0) return g->layer.value[which] > 0 ? HUGE_VAL : 0;
  double of_byte = g->layer.value[which] / layer_bytes, best = of_byte;
  for (int i = 0; i < g->n_runs; i++) {
    double bytes = bytes_of(p, p->run_state[mode][i], &g->run[i], n), value = g->run[i].value[which],
           more = value - of_byte * bytes;
    if (more <= 0) continue;
    gain = zp_later(gain, more);
    if (value > best * bytes) best = bytes > 0 ? value / bytes : HUGE_VAL;
  }
  return zp_sooner(p->limit * of_byte + p->chunks * gain, p->limit * best);
}

/* What a stage has, or is wanted of all: seconds that it gains on the slowest mode; parts that it has room for. */
typedef struct gains {
  double seconds, parts;
} gains;

/* May a stage have more in this mode? An item of a mode that is needless has as many parts in another one, in no more
 * room; the slowest mode gains no seconds. */
static bool has_value(const mode_items *g, int which) {
  return which == PARTS ? !g->needless : g->layer.value[which] > 0;
}

/* The most value of a stage in several modes, with one chunk: items have at most r a byte, the most of all modes'
 * layers, but for the runs at its two ends, which may be in different modes. */
static double most_mixed(const knapsack *all, const prices *p, int which, microbatches n) {
  double of_byte = 0, gain = 0;
  for (int i = 0; i < all->n_modes; i++) {
    if (!has_value(&all->mode[i], which)) continue;
    double bytes = bytes_of_layer(all, p, i, n), value = all->mode[i].layer.value[which];
    if (bytes <= 0 && value > 0) return HUGE_VAL;
    if (bytes > 0) of_byte = zp_later(of_byte, value / bytes);
  }
  double best = of_byte;
  for (int i = 0; i < all->n_modes; i++)
    for (int k = 0; k < all->mode[i].n_runs && has_value(&all->mode[i], which); k++) {
      const item *run = &all->mode[i].run[k];
      double bytes = bytes_of(p, p->run_state[i][k], run, n), value = run->value[which], more = value - of_byte * bytes;
      if (more <= 0) continue; /* nor has it a better rate */
      gain = zp_later(gain, more);
      if (value > best * bytes) best = bytes > 0 ? value / bytes : HUGE_VAL;
    }
  return zp_sooner(p->limit * of_byte + 2 * gain, p->limit * best);
}

/* A stage is in one mode, so the most of any of its modes is the most it can have; of all of them together where it may
 * be mixed, of which one mode is a case. `wanted`: 0: need not be found. */
static gains most_of_stage(const knapsack *all, const prices *p, microbatches n, const gains *wanted) {
  gains most = {0};
  if (p->mixes) {
    if (wanted->seconds > 0) most.seconds = most_mixed(all, p, SECONDS, n);
    if (wanted->parts > 0) most.parts = most_mixed(all, p, PARTS, n);
    return most;
  }
  for (int i = 0; i < all->n_modes; i++) {
    const mode_items *g = &all->mode[i];
    if (wanted->seconds > 0 && has_value(g, SECONDS))
      most.seconds = zp_later(most.seconds, most_value(all, p, i, SECONDS, n));
    if (wanted->parts > 0 && has_value(g, PARTS)) most.parts = zp_later(most.parts, most_value(all, p, i, PARTS, n));
  }
  return most;
}

/* Parts that any stage with so many or more micro-batches has room for, at most: all of L at the best rate of all
 * modes. Modes that need no less than another one everywhere are left out, because they have no more room. */
static double most_room(const knapsack *all, const prices *p, microbatches n) {
  double most = 0;
  for (int i = 0; i < all->n_modes; i++)
    if (!all->mode[i].needless) most = zp_later(most, best_rate(all, p, i, PARTS, n));
  return p->limit * most;
}

/* What any stage with so many or fewer micro-batches may gain in most_of_stage, at least: L / c layers of it (c falls
 * with fewer), whole or not, as most_value counts them. Used only to see that nothing is wanted any more. */
static gains least_of_stage(const knapsack *all, const prices *p, microbatches n) {
  gains least = {0};
  for (int i = 0; i < all->n_modes; i++) {
    const item *layer = &all->mode[i].layer;
    double layers = p->limit / bytes_of_layer(all, p, i, n); /* endless where a layer needs nothing */
    if (layer->value[SECONDS] > 0) least.seconds = zp_later(least.seconds, layers * layer->value[SECONDS]);
    least.parts = zp_later(least.parts, layers * layer->value[PARTS]);
  }
  return least;
}

static bool is_power_of_two(int n) { return (n & (n - 1)) == 0; }

/* At most as many as wait on a stage, so that few stages differ: the power of two below. */
static double fewer(double waiting) { return waiting >= 1 ? exp2(floor(log2(waiting))) : 0; }

static microbatches of_stage(const zp_flight_memo *flights, int stage) {
  return (microbatches){flights->flight[stage], fewer(flights->pending[stage])};
}

/* What the stages up to this one have at least. */
static microbatches of_any_up_to(const zp_flight_memo *flights, int stage) {
  return (microbatches){flights->descend ? flights->flight[stage] : flights->least, fewer(flights->least_pending)};
}

/* *wanted becomes what is still wanted when all stages have given the most that they have; not above zero: enough.
 * What all stages gain is at most the sum of their most (most_of_stage), so what remains of slow_s - fast_s is work
 * that memory forces, and parts that remain have no room: false. A stage that has to have a part needs room for one.
 * The sum is cut short in both directions, which changes no answer of the sums: where the stages that are left give
 * what is wanted even if each gives the least (least_of_stage), it is enough; where they do not have room even if each
 * has the most of any of them (most_room), there is none. The last stages come first, because they have the fewest in
 * flight. */
static bool serve_stages(const knapsack *all, const prices *p, const zp_flight_memo *flights, gains *wanted) {
  gains least = least_of_stage(all, p, (microbatches){flights->most, flights->most_pending}), most = {0};
  microbatches known = {-1, -1};
  for (int left = flights->pipeline; left > 0; left--) {
    if (left * least.parts >= wanted->parts) wanted->parts = 0;
    if (left * least.seconds >= wanted->seconds) wanted->seconds = 0;
    if (wanted->parts <= 0 && wanted->seconds <= 0) return true;
    int stage = left - 1;
    if (wanted->parts > 0 && is_power_of_two(flights->pipeline - stage) &&
        left * most_room(all, p, of_any_up_to(flights, stage)) < wanted->parts - ZP_BOUND_SLACK * all->n)
      return false;
    microbatches n = of_stage(flights, stage);
    if (n.flight != known.flight || n.waiting != known.waiting) most = most_of_stage(all, p, known = n, wanted);
    bool inner = all->between && stage > 0 && left < flights->pipeline;
    if (inner && wanted->parts > 0 && most.parts < p->chunks * (1 - ZP_BOUND_SLACK)) return false;
    wanted->seconds -= most.seconds;
    wanted->parts -= most.parts;
  }
  return wanted->parts <= ZP_BOUND_SLACK * all->n;
}

typedef struct stages_of {
  const knapsack *all;
  const prices *p;
  zp_search_cache *s;
  const zp_choice *c;
  const zp_part_bytes *whole; /* NULL: nothing is known of whole numbers of layers */
} stages_of;

static double parts_of_stage(void *user, int stage) {
  const stages_of *x = user;
  zp_stage_flight f = zp_find_stage_flight(x->s, x->c, stage);
  microbatches n = {f.flight, fewer(f.pending)};
  return x->whole ? zp_most_parts(x->whole, n.flight, n.waiting) : most_of_stage(x->all, x->p, n, &(gains){0, 1}).parts;
}

/* serve_stages where parts alone are wanted. What a stage has room for falls with its micro-batches, so it does not
 * turn from stage to stage, and the inner stage with the least is the first or the last one. */
static bool house_parts(stages_of *x) {
  int stages = x->c->pipeline;
  double least = x->p->chunks * (1 - ZP_BOUND_SLACK);
  if (x->all->between && stages > 2 && (parts_of_stage(x, 1) < least || parts_of_stage(x, stages - 2) < least))
    return false;
  return zp_stages_reach(0, stages, x->all->n * (1 - ZP_BOUND_SLACK), parts_of_stage, x);
}

/* What the stages with the fewest and the most micro-batches say of all decides most. */
static bool serve(const knapsack *all, const prices *p, zp_search_cache *s, const zp_choice *c,
                  const zp_part_bytes *whole, gains *wanted) {
  const zp_flight_memo *few = zp_find_flight_extremes(s, c);
  if (c->pipeline * most_room(all, p, (microbatches){few->least, fewer(few->least_pending)}) <
      wanted->parts - ZP_BOUND_SLACK * all->n)
    return false;
  gains least = least_of_stage(all, p, (microbatches){few->most, few->most_pending});
  bool enough = c->pipeline * least.parts >= wanted->parts && c->pipeline * least.seconds >= wanted->seconds;
  bool housed = enough && (!whole || c->pipeline * zp_most_parts(whole, few->most, few->most_pending) >= all->n);
  if (!housed && !house_parts(&(stages_of){all, p, s, c, whole})) return false;
  if (enough) *wanted = (gains){0, 0};
  return wanted->seconds <= 0 || serve_stages(all, p, zp_find_flights(s, c), wanted);
}

/* Every part is on some stage, alone at best. */
static bool every_part_has_room(const knapsack *all, const zp_search_cache *s, const zp_alongside *alongside) {
  for (int i = 0; i < all->parts; i++)
    if (zp_bytes_alongside(alongside, &all->with[i]) >= (double)s->limit_bytes) return false;
  return true;
}

/* work_s: all units of other segments, the parts in the fastest mode of each, and what memory lets no stage gain on the
 * slowest mode (`serve`). First a look with the fewest that any schedule has in flight, which needs no flights. Loose:
 * what a stage needs alongside its parts is that of the smallest piece; the value of a mode that is faster in one part
 * and slower in another is cut at zero. */
bool zp_find_least_parts(zp_search_cache *s, zp_point *point, zp_least_ask ask) {
  const knapsack *all = find_knapsack(s, point);
  const zp_choice *c = &point->choice;
  const zp_alongside alongside = zp_find_alongside(s, point, zp_variant_of(s, point));
  const prices p = prices_here(s, point, all, &alongside);
  if (p.limit <= 0 || !every_part_has_room(all, s, &alongside)) return false;
  if (c->pipeline * most_room(all, &p, (microbatches){ZP_LEAST_FLIGHT(s->in), 0}) < all->n * (1 - ZP_BOUND_SLACK))
    return false;
  gains wanted = {ask == ZP_ASK_ROOM ? 0 : all->slow_s - all->fast_s, all->n};
  zp_part_bytes whole;
  bool counts = zp_chunks(c) == 1;
  if (counts) whole = zp_bytes_of_parts(s, point, &alongside);
  if (!serve(all, &p, s, c, counts ? &whole : NULL, &wanted)) return false;
  point->work_s = fmax(point->work_s, (all->others_s + all->fast_s + fmax(0, wanted.seconds)) * (1 - ZP_BOUND_SLACK));
  return true;
}

/* ---- what stages run in a time ---- */

/* The layout gives every chunk slots of its own, or all chunks one pool, whatever needs less (room_of_chunks). */
enum { OWN_SLOTS, POOL, LAYOUTS = ZP_PART_LAYOUTS };
typedef zp_part_room part_room;

/* A pool has as many slots as the stage has micro-batches in flight, of the size of the largest chunk, which is no
 * smaller than the mean. Own slots: no chunk has fewer in flight than `fewest`. */
static microbatches in_layout(const zp_flight_memo *flights, int stage, int layout) {
  return (microbatches){layout == POOL ? flights->slots[stage] / flights->chunks : flights->fewest[stage],
                        fewer(flights->pending[stage])};
}

/* Where every chunk is known to have a part, own slots hold at least the smallest one for the micro-batches that each
 * has in flight beyond the fewest. */
static double least_beyond(const knapsack *all, const zp_flight_memo *flights, int stage, int mode) {
  if (!all->between || stage == 0 || stage == flights->pipeline - 1) return 0;
  double least = HUGE_VAL;
  for (int i = 0; i < all->parts; i++) least = zp_sooner(least, all->mode[mode].part[i].kept);
  return least * (flights->all[stage] - flights->chunks * flights->fewest[stage]);
}

static part_room room_of(const knapsack *all, const prices *p, int mode, microbatches n, double beyond) {
  part_room room = {.beyond = beyond / p->limit};
  double best = 0;
  for (int i = 0; i < all->parts; i++) {
    const item *part = &all->mode[mode].part[i];
    room.part[i] = bytes_of(p, state_of(p, part), part, n) / p->limit;
    if (part->value[WORK] > best * room.part[i]) best = part->value[WORK] / room.part[i];
  }
  room.most = best * zp_later(0, 1 - room.beyond);
  return room;
}

const part_room *zp_find_part_rooms(zp_search_cache *s, const zp_point *point) {
  const knapsack *all = find_knapsack(s, point);
  const zp_choice *c = &point->choice;
  const zp_alongside alongside = zp_find_alongside(s, point, zp_variant_of(s, point));
  prices p = prices_here(s, point, all, &alongside);
  p.limit = fmax(1, p.limit); /* shares of less than nothing are shares of next to nothing */
  const zp_flight_memo *flights = zp_find_flights(s, c);
  part_room *room = ZP_NEW_ARRAY(s->arena, part_room, c->pipeline * all->n_modes * LAYOUTS), *next = room;
  for (int stage = 0; stage < c->pipeline; stage++)
    for (int mode = 0; mode < all->n_modes; mode++)
      for (int layout = 0; layout < LAYOUTS; layout++)
        *next++ = room_of(all, &p, mode, in_layout(flights, stage, layout),
                          layout == OWN_SLOTS ? p.kept * least_beyond(all, flights, stage, mode) : 0);
  return room;
}

/* A stage's time and room, what parts in one mode take of them, and how often each part is there beyond layers. */
typedef struct part_fill {
  const knapsack *all;
  const mode_items *mode;
  const part_room *room; /* NULL: memory is not counted */
  double seconds, layer_room;
  int chunks, more[ZP_MOST_PARTS];
} part_fill;

/* WORK of these parts with all whole layers for which time and room are left; below 0: no room for the parts. */
static double fill_with_layers(const part_fill *x) {
  double seconds = x->seconds, room = x->room ? 1 - x->room->beyond : 1, work = 0;
  for (int i = 0; i < x->all->parts; i++) {
    const item *part = &x->mode->part[i];
    seconds -= x->more[i] * part->seconds;
    work += x->more[i] * part->value[WORK];
    if (x->room) room -= x->more[i] * x->room->part[i];
  }
  double slack = ZP_BOUND_SLACK, layers = seconds / x->mode->layer.seconds;
  if (x->room && x->layer_room > 0) layers = zp_sooner(layers, room / x->layer_room);
  return layers < -slack || room < -slack ? -1
                                          : floor(layers * (1 + slack) + slack) * x->mode->layer.value[WORK] + work;
}

/* The most WORK of a stage in one mode and layout: whole layers, and of every part at most one more for each of the
 * chunks, since a chunk has at most one run that is no whole layer. Parts that all have one more are a layer. Loose:
 * which of them may be neighbours. */
static double most_of_parts(part_fill *x) {
  int last = x->all->parts - 1, at = 0;
  double most = 0;
  memset(x->more, 0, sizeof x->more);
  for (;;) { /* all combinations, in the order of a counter whose places are the parts */
    bool layer = true;
    for (int i = 0; i <= last; i++) layer &= x->more[i] > 0;
    double work = layer ? -1 : fill_with_layers(x);
    most = zp_later(most, work);
    for (at = 0; at <= last && (x->more[at] == x->chunks || (at == 0 && work < 0)); at++) x->more[at] = 0;
    if (at > last) return most;
    x->more[at]++;
  }
}

int zp_parts_segment(const zp_search_cache *s, const zp_point *point) {
  return heaviest_repeat(zp_variant_of(s, point));
}

/* WORK that a stage runs within its time, at most: it is in one mode and one layout, and has no more than time and room
 * allow. What cannot have more than another one is left out. */
static double most_of_stage_within(const knapsack *all, int chunks, double seconds, const part_room *room) {
  double most = 0;
  for (int mode = 0; mode < all->n_modes; mode++) {
    const mode_items *items = &all->mode[mode];
    double best = 0;
    for (int i = 0; i < all->parts; i++) best = zp_later(best, items->part[i].value[WORK] / items->part[i].seconds);
    for (int layout = 0; layout < (room ? LAYOUTS : 1); layout++) {
      part_fill x = {.all = all, .mode = items, .seconds = seconds, .chunks = chunks};
      double limit = best * seconds;
      if (room) {
        x.room = &room[mode * LAYOUTS + layout];
        limit = zp_sooner(limit, x.room->most);
        for (int i = 0; i < all->parts; i++) x.layer_room += x.room->part[i];
      }
      if (limit > most) most = zp_later(most, zp_sooner(limit, most_of_parts(&x)));
    }
  }
  return most;
}

bool zp_parts_run_within(zp_search_cache *s, const zp_point *point, const double *own_s, const part_room *room) {
  const knapsack *all = find_knapsack(s, point);
  double reached = 0, wanted = all->fast_s * (1 - ZP_BOUND_SLACK);
  for (int stage = 0; stage < point->choice.pipeline && reached < wanted; stage++)
    if (own_s[stage] > 0)
      reached += most_of_stage_within(all, zp_chunks(&point->choice), own_s[stage],
                                      room ? &room[stage * all->n_modes * LAYOUTS] : NULL);
  return reached >= wanted;
}

/* A share of e eighths of a piece's n bytes is n e / 8, rounded down to aligned buffers (zp_saved_offloaded). Where n
 * is large that takes less than half an eighth, so (e - 1/2) / 8 are off the device; small pieces are not counted. */
enum { LARGE_BYTES = 1 << 16 };
static double share_offloaded(const knapsack *all, const zp_choice *c) {
  double eighths = c->home[ZP_STATE_ACTIVATIONS].eighths;
  if (eighths == ZP_EIGHTHS) return 1;
  return all->least.saved >= LARGE_BYTES ? (eighths - 0.5) / ZP_EIGHTHS : 0;
}

bool zp_hosts_have_room_for_parts(zp_search_cache *s, const zp_point *point, const zp_shares *shares) {
  const knapsack *all = find_knapsack(s, point);
  const zp_choice *c = &point->choice;
  const prices p =
      make_prices(all, zp_bytes_of_state(c, zp_variant_of(s, point)->lowered, shares), share_offloaded(all, c), 0,
                  ((double)s->host_bytes + 1) * (1 + ZP_BOUND_SLACK), zp_chunks(c));
  gains wanted = {0, all->n};
  return serve(all, &p, s, c, NULL, &wanted);
}
