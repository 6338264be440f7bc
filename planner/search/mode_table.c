/* What one stage runs and takes by its number of counted units (mode_work.h): in the fastest mode that fits. x grows
 * with the units, because a slower mode is longer. */
#include "schedule.h"
#include "mode_work.h"

zp_units zp_mode_least_part(const zp_mode_work *w, int stage, int64_t n) {
  if (stage == 0) return (zp_units){0, w->first + n};
  if (stage == w->stages - 1) return (zp_units){w->end - n, w->n_units - w->end + n};
  return (zp_units){w->first, n};
}

/* Only where no other units can join those of the part, what they move counts: it may hide behind the others. */
static zp_stage_time part_time(const zp_mode_work *w, zp_stage_costs *costs, const zp_variant *own, int stage,
                               zp_units part) {
  int64_t end = part.first + part.count;
  if (w->alone) return zp_stage_cost_of(costs, own->lowered, stage, part.first, end).time;
  double work = own->prefix_s[end] - own->prefix_s[part.first],
         forward = own->forward_s[end] - own->forward_s[part.first],
         input = own->input_s[end] - own->input_s[part.first];
  return (zp_stage_time){.forward_s = forward, .backward_s = work - forward, .weights_s = work - input};
}

/* Of stages that have at least n units. */
static void make_least(double *seconds, int64_t most) {
  for (int64_t n = most; n-- > 0;) seconds[n] = zp_sooner(seconds[n], seconds[n + 1]);
}

/* Without counted units a stage may have none of the others, where these are several. */
static bool may_be_empty(const zp_mode_work *w, int64_t n, zp_units part) {
  return part.count == 0 || (n == 0 && !w->alone);
}

static void measure_stage(zp_mode_work *w, const zp_searcher *s, const zp_point *point, zp_stage_costs *costs,
                          int stage) {
  zp_limits limits = zp_search_limits(s);
  int64_t counted = zp_counted(w), n = 0;
  bool split = zp_schedule_splits(point->choice.schedule);
  double *work_s = ZP_NEW_ARRAY(w->arena, double, counted + 1),
         *forward_s = w->way_s[0][stage] = ZP_NEW_ARRAY(w->arena, double, counted + 1),
         *backward_s = w->way_s[1][stage] = ZP_NEW_ARRAY(w->arena, double, counted + 1);
  const zp_variant **variant = w->variant[stage] = ZP_NEW_ARRAY(w->arena, const zp_variant *, counted + 1);
  for (; n <= counted; n++) {
    zp_units part = zp_mode_least_part(w, stage, n);
    if (part.count == w->n_units) break; /* there are other stages */
    if (may_be_empty(w, n, part)) continue;
    variant[n] = zp_stage_variant(s, point, stage, &part, &limits);
    if (!variant[n]) break;
    zp_stage_time time = part_time(w, costs, variant[n], stage, part);
    forward_s[n] = time.forward_s;
    backward_s[n] = time.backward_s;
    work_s[n] = time.forward_s + time.backward_s - (split ? time.weights_s : 0) -
                zp_others_s(w, part.first, part.first + part.count);
  }
  w->own[stage] = (zp_row){0, n - 1, work_s};
  if (w->alone && n > 1 && zp_mode_least_part(w, stage, 0).count == 0) { /* every stage has units */
    work_s[0] = work_s[1];
    forward_s[0] = forward_s[1];
    backward_s[0] = backward_s[1];
  }
  make_least(work_s, n - 1);
  make_least(forward_s, n - 1);
  make_least(backward_s, n - 1);
}

/* The longest repeat; of equally long ones the one with the most work. */
static void choose_counted(zp_mode_work *w, const zp_variant *v) {
  const zp_lowered *l = v->lowered;
  int64_t start = 0, most = 0;
  double most_s = 0;
  for (int i = 0; start < w->n_units; i++) { /* segments of pieces of layers follow */
    int64_t n = l->segments[i].segment->count;
    if (n > most || (n == most && v->unit_s[i] > most_s)) {
      most = n, most_s = v->unit_s[i];
      w->first = start, w->end = start + n;
    }
    start += n;
  }
  w->unit_s = w->prefix_s[w->first + 1] - w->prefix_s[w->first];
  w->alone = w->first <= 1 && w->end >= w->n_units - 1;
}

static double least_unit_s(const zp_mode_work *w) {
  double least = HUGE_VAL;
  for (int stage = 0; stage < w->stages; stage++)
    for (int64_t n = 1; n <= w->own[stage].most; n++) least = zp_sooner(least, w->own[stage].work_s[n] / (double)n);
  return isfinite(least) ? least : 0;
}

static void make_rows(zp_mode_work *w) {
  zp_arena *arena = w->arena;
  int64_t stages = w->stages;
  w->own = ZP_NEW_ARRAY(arena, zp_row, stages);
  w->variant = ZP_NEW_ARRAY(arena, const zp_variant **, stages);
  w->most = ZP_NEW_ARRAY(arena, int64_t, stages);
  w->low = ZP_NEW_ARRAY(arena, int64_t, stages + 1);
  w->high = ZP_NEW_ARRAY(arena, int64_t, stages + 1);
  w->runs = ZP_NEW_ARRAY(arena, zp_row, stages * stages);
  for (int way = 0; way < 2; way++) w->way_s[way] = ZP_NEW_ARRAY(arena, double *, stages);
  zp_row **sums[] = {&w->before, &w->after, &w->turn[0], &w->turn[1], &w->climb[0], &w->climb[1]};
  for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) {
    *sums[i] = ZP_NEW_ARRAY(arena, zp_row, stages + 1);
    for (int64_t k = 0; k <= stages; k++) (*sums[i])[k].work_s = ZP_NEW_ARRAY(arena, double, zp_counted(w) + 1);
  }
}

zp_mode_work *zp_mode_work_new(zp_arena *arena, const zp_searcher *s, const zp_point *point, zp_stage_costs *costs) {
  const zp_variant *v = zp_variant_of(s, point);
  zp_mode_work *w = ZP_NEW(arena, zp_mode_work);
  *w = (zp_mode_work){.arena = arena, .stages = point->choice.pipeline, .n_units = zp_point_units(s, point)};
  w->prefix_s = zp_schedule_splits(point->choice.schedule) ? v->input_s : v->prefix_s;
  choose_counted(w, v);
  make_rows(w);
  for (int stage = 0; stage < w->stages; stage++) measure_stage(w, s, point, costs, stage);
  w->least_unit_s = least_unit_s(w);
  return w;
}

const zp_variant *zp_mode_work_variant(const zp_mode_work *w, int stage, int64_t first, int64_t end, bool *known) {
  int64_t counted = zp_counted_before(w, end) - zp_counted_before(w, first);
  zp_units part = zp_mode_least_part(w, stage, counted);
  *known = false;
  if (may_be_empty(w, counted, part)) return NULL;
  bool inner = stage > 0 && stage < w->stages - 1 && first >= w->first && end <= w->end;
  *known = inner || (part.first == first && part.count == end - first);
  if (!*known) return NULL;
  return counted > w->own[stage].most ? NULL : w->variant[stage][counted];
}
