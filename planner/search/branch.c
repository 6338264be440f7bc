/* Branch and bound over the cuts of one point with one chunk a stage.
 *
 * A node fixes the units of the first stages. Its children differ in the end of the next stage, furthest first. It is
 * pruned when
 *   the rest cannot be cut so that every stage fits into memory and every stage (bound.c) and, for 1F1B, every window
 * of neighbours (window.c) meets the deadline, or the fixed stages alone, with a rest that answers as fast as any can,
 * miss it in the event simulation. Both are admissible; the second one is exact for whole cuts. It is asked for whole
 * cuts and for ends that are not the furthest; a whole cut that misses is blamed on its fewest first stages that miss,
 * and the search goes back there. Equal ranges of a repeat are one and the same stage (stage_cost.c). A stage that ends
 * too near leaves more to the others: when the rest cannot be cut, nearer ends are not looked at.
 *
 * The search is for any cut below a target between the proven bound and the best plan. Finding one lowers the best
 * plan, finding none raises the bound; they meet. Work is counted in simulated actions and limited, so that the search
 * stops at the same place on every machine. */
#include <math.h>
#include "cost.h"
#include "labels.h"
#include "schedule.h"

typedef struct tree {
  zp_searcher *s;
  const zp_point *point;
  const zp_branching *task;
  zp_effort *effort;
  int64_t stop_at;  /* of effort->work_left */
  zp_choice choice; /* cut: the stages fixed so far */
  const zp_variant *v;
  int64_t units;
  zp_windows windows;
  zp_windows way;     /* the same, of what is on the way to the gradients of inputs */
  zp_mode_work *work; /* where stages choose among modes; else NULL */
  zp_stage_graph *graph;   /* of 1F1B; else NULL */
  zp_label_search *labels; /* over the graph */
  double **prefix;         /* [fixed]: label of the fixed stages */
  double *known_s;    /* [fixed]: seconds of the fixed stages, a micro-batch */
  zp_limits limits;
  zp_stage_costs *costs;
  zp_group_link link;  /* between stages */
  zp_arena *scratch;   /* of simulations */
  bool many;           /* micro-batches: the waits of stages count (zp_bound_of_stage) */
  double ties_s;       /* of the first and the last stage */
  double target_s;     /* cuts that take as long or longer are not looked for */
  double *update_s;    /* [fixed]: longest update of the fixed stages, and at least that of any cut */
  zp_stage_cost *cost; /* [stage], fixed ones */
  int miss;            /* see visit */
  int64_t *low;        /* [stages + 1]: nearest starts, where stages choose among modes */
  int64_t *reach;      /* ends of the stages when every one goes as far as it can */
  zp_pipeline_run run; /* of the fixed stages */
  zp_stage_time *time; /* run.time */
  double *message_s;   /* run.message_s */
} tree;

/* Bounds this close to the best plan count as equal to it: rounding of sums of up to a million actions stays below. */
static const double CLOSED = 1e-9;

typedef enum outcome { NONE, FOUND, SPENT } outcome;

/* When the last reduction has to be over. */
static double deadline(const tree *t, int fixed) { return t->target_s - t->update_s[fixed]; }

/* ---- completions ---- */

/* What a stage must keep to, beside its memory: windows with the ends of the stages before it, and seconds of its
 * update.
 */
typedef struct stage_limit {
  const int64_t *cut;
  double work_s;    /* of all units up to its end */
  double windows_s; /* deadline of windows; HUGE_VAL: none are looked at */
  double bound_s;   /* of bound.c's bound of the stage */
  double update_s;
  const zp_known_stages *known; /* where stages choose among modes; else NULL */
} stage_limit;

/* What the stage runs; NULL when it does not fit. */
static const zp_variant *variant_of_stage(const tree *t, int stage, int64_t first, int64_t end) {
  bool known = false;
  const zp_variant *own = t->work ? zp_mode_work_variant(t->work, stage, first, end, &known) : NULL;
  return known ? own : zp_stage_variant(t->s, t->point, stage, &(zp_units){first, end - first}, &t->limits);
}

static bool stage_may_end(tree *t, int stage, int64_t first, int64_t end, const stage_limit *limit) {
  if (t->windows.prefix_s[end] > limit->work_s) return false;
  const zp_variant *own = variant_of_stage(t, stage, first, end);
  if (!own) return false;
  if (isfinite(limit->update_s) &&
      zp_stage_cost_of(t->costs, t->v->lowered, stage, first, end).update_s > limit->update_s)
    return false;
  return !isfinite(limit->bound_s) ||
         zp_bound_of_stage(t->s, t->point, own, stage, first, end, t->many) * (1 - CLOSED) <= limit->bound_s;
}

/* The furthest end of a stage; where it starts when there is none. Windows of stages that choose among modes count the
 * work behind the end with its modes, which shrinks in steps as the end moves on: they are asked one by one. */
static int64_t furthest_end(tree *t, int stage, int64_t first, const stage_limit *limit) {
  int64_t low = first, high = t->units - (t->choice.pipeline - 1 - stage);
  if (limit->known) {
    int64_t reach = zp_mode_work_reach(t->work, stage, first);
    high = reach < high ? reach : high;
  }
  while (low < high) {
    int64_t end = low + (high - low + 1) / 2;
    if (stage_may_end(t, stage, first, end, limit))
      low = end;
    else
      high = end - 1;
  }
  if (limit->known && isfinite(limit->windows_s))
    while (low > first &&
           !zp_window_allows(&t->windows, t->work, limit->known, stage, limit->cut, low, limit->windows_s))
      low--;
  return low;
}

/* When the micro-batches have to be over on the first stage, where the chains of the windows end. */
static double deadline_of_windows(const tree *t, int fixed) {
  return deadline(t, fixed) - t->ties_s - (fixed > 0 ? t->cost[0].reduce_s : 0);
}

/* Can the stages behind the fixed ones be filled, when the updates and reductions of the first `counted` stages count?
 * t->reach: their ends when each goes as far as it can. */
static bool can_complete(tree *t, int fixed, int counted) {
  bool windows = t->choice.schedule == ZP_SCHEDULE_1F1B;
  double windows_s = deadline_of_windows(t, counted);
  int64_t windows_seen = (int64_t)t->choice.pipeline * t->choice.pipeline / 2;
  t->effort->work_left -= t->work ? 4 * windows_seen : windows_seen / 2; /* what takes about as long */
  zp_known_stages known = {counted, t->known_s};
  memcpy(t->reach, t->choice.cut, sizeof *t->reach * (size_t)(fixed + 1));
  for (int k = fixed; k < t->choice.pipeline; k++) {
    stage_limit limit = {t->reach, HUGE_VAL, HUGE_VAL, deadline(t, counted), HUGE_VAL, t->work ? &known : NULL};
    if (windows) limit.windows_s = windows_s;
    if (windows && !t->work) limit.work_s = zp_window_reach(&t->windows, k, t->reach, windows_s);
    t->reach[k + 1] = furthest_end(t, k, t->reach[k], &limit);
    if (t->reach[k + 1] == t->reach[k]) return false;
  }
  return t->reach[t->choice.pipeline] == t->units;
}

/* A cut whose longest update is at most this long, anyhow? */
static bool can_update_within(tree *t, double update_s) {
  stage_limit limit = {NULL, HUGE_VAL, HUGE_VAL, HUGE_VAL, update_s, NULL};
  int64_t at = 0;
  for (int k = 0; k < t->choice.pipeline; k++) {
    int64_t end = furthest_end(t, k, at, &limit);
    if (end == at) return false;
    at = end;
  }
  return at == t->units;
}

/* The shortest possible longest update, or a little less. */
static double least_update(tree *t) {
  double low = 0, high = zp_stage_cost_of(t->costs, t->v->lowered, 0, 0, t->units).update_s;
  while (high - low > 1e-7 * high) {
    double middle = low + (high - low) / 2;
    if (can_update_within(t, middle))
      high = middle;
    else
      low = middle;
  }
  return low;
}

/* ---- the fixed stages ---- */

/* Requires: the stage fits. */
static void fix_stage(tree *t, int stage, int64_t end) {
  zp_units part = {t->choice.cut[stage], end - t->choice.cut[stage]};
  const zp_variant *own = variant_of_stage(t, stage, part.first, end);
  zp_stage_cost cost = zp_stage_cost_of(t->costs, own->lowered, stage, part.first, end);
  t->choice.cut[stage + 1] = end;
  t->cost[stage] = cost;
  t->update_s[stage + 1] = fmax(t->update_s[stage], cost.update_s + cost.offload_s);
  t->time[stage] = cost.time;
  t->known_s[stage + 1] = t->known_s[stage] + cost.time.forward_s + cost.time.backward_s;
  if (stage + 1 == t->choice.pipeline) return;
  double elements = (double)zp_cost_carry_elements(t->v->lowered, &t->choice, stage);
  t->message_s[stage] = zp_cost_message(&t->link, elements * t->v->lowered->compute_bytes);
}

/* What the stages behind the fixed ones take at least to answer an activation with its gradient, and the message back.
 */
static void set_rest(tree *t, int fixed) {
  int stages = t->choice.pipeline;
  int64_t done = t->choice.cut[fixed];
  double message = t->message_s[fixed - 1];
  if (t->graph) {
    const zp_stage_node *node = &t->graph->nodes[fixed][done];
    t->run.rest_s = node->after_s + message;
    t->run.first_rest_s = node->answer_s[ZP_FIRST_TURN] + message;
    t->run.last_rest_s = node->answer_s[ZP_LAST_TURN] + message;
    return;
  }
  double rest =
      t->work ? zp_mode_work_of(t->work, fixed, stages, done, t->units) + 2 * (stages - 1 - fixed) * t->way.message_s
              : zp_window_rest(&t->way, fixed, done);
  t->run.rest_s = t->run.first_rest_s = t->run.last_rest_s = rest + message;
  if (!t->work || !t->windows.one_f_one_b) return;
  t->run.first_rest_s = fmax(rest, zp_mode_work_answer(t->work, &t->windows, ZP_FIRST_TURN, fixed, done)) + message;
  t->run.last_rest_s = fmax(rest, zp_mode_work_answer(t->work, &t->windows, ZP_LAST_TURN, fixed, done)) + message;
}

/* End of the last reduction among the fixed stages, at least; exact when all are fixed, but for ties in the middle. */
static double simulate_fixed(tree *t, int fixed) {
  int stages = t->choice.pipeline;
  double end = 0;
  t->effort->work_left -= fixed * t->windows.microbatches * (t->choice.schedule == ZP_SCHEDULE_1F1B ? 1 : 4);
  t->run.known = fixed;
  if (fixed < stages) set_rest(t, fixed);
  zp_cost_microbatches(t->scratch, &t->run);
  for (int s = 0; s < fixed; s++)
    end = fmax(end, t->run.end_s[s] + t->cost[s].reduce_s + (s == 0 || s == stages - 1 ? t->ties_s : 0));
  return end;
}

/* Do the fixed stages alone miss the deadline? More stages only ever take longer. */
static bool prefix_misses(tree *t, int fixed) { return simulate_fixed(t, fixed) * (1 - 1e-12) >= deadline(t, fixed); }

/* The fewest of the first stages that miss the deadline already. Requires: all `fixed` stages together do. */
static int first_miss(tree *t, int fixed) {
  int low = 0, high = fixed; /* invariant: high stages miss, low do not */
  while (high - low > 1) {
    int middle = low + (high - low) / 2;
    if (prefix_misses(t, middle))
      high = middle;
    else
      low = middle;
  }
  t->effort->pruned[ZP_CUT_PREFIX]++;
  return high;
}

static bool rest_misses(tree *t, int fixed) {
  if (can_complete(t, fixed, fixed)) return false;
  t->effort->pruned[ZP_CUT_WINDOW]++;
  return true;
}

/* ---- the search ---- */

/* NONE leaves the number of first stages that are to blame in t->miss: no cut that starts like them is below the
 * target. Requires: the rest can be cut, t->reach says how far. */
static outcome visit(tree *t, int fixed, bool check);

static outcome visit_leaf(tree *t) {
  int stages = t->choice.pipeline;
  if (prefix_misses(t, stages)) {
    t->miss = first_miss(t, stages);
    return NONE;
  }
  t->miss = stages; /* ties between other stages */
  return t->task->on_cut(t->task->user, t->choice.cut) < t->target_s ? FOUND : NONE;
}

/* The next stage ends at `end`, the furthest one or nearer. */
static outcome visit_child(tree *t, int fixed, int64_t end, bool far) {
  double before_s = deadline_of_windows(t, fixed);
  fix_stage(t, fixed, end);
  if (far && deadline_of_windows(t, fixed + 1) == before_s)
    return visit(t, fixed + 1, false); /* t->reach still holds */
  if (!rest_misses(t, fixed + 1)) return visit(t, fixed + 1, !far);
  /* Nor with a nearer end, whatever its own update and reduction? */
  t->miss = can_complete(t, fixed + 1, fixed) ? fixed + 1 : fixed;
  return NONE;
}

/* The same over the graph: its arcs are what the next stage may run. */
static outcome visit_arcs(tree *t, int fixed) {
  const zp_stage_node *node = &t->graph->nodes[fixed][t->choice.cut[fixed]];
  for (int i = node->n; i-- > 0;) {
    const zp_stage_arc *arc = &node->arcs[i];
    zp_prefix_extend(zp_label_search_labels(t->labels), t->prefix[fixed], fixed, &t->graph->cost.data[arc->cost],
                     t->prefix[fixed + 1]);
    if (!zp_label_search_may_follow(t->labels, t->prefix[fixed + 1], fixed + 1, arc->end)) {
      t->effort->pruned[ZP_CUT_WINDOW]++;
      continue;
    }
    fix_stage(t, fixed, arc->end);
    outcome found = visit(t, fixed + 1, true);
    if (found != NONE || t->miss <= fixed) return found;
  }
  t->miss = fixed;
  return NONE;
}

static outcome visit(tree *t, int fixed, bool check) {
  int stages = t->choice.pipeline;
  t->effort->nodes++;
  t->effort->work_left -= stages;
  if (t->effort->work_left < t->stop_at) return SPENT;
  if (fixed == stages) return visit_leaf(t);
  if (check && fixed > 0 && prefix_misses(t, fixed)) {
    t->miss = first_miss(t, fixed);
    return NONE;
  }
  if (t->graph) return visit_arcs(t, fixed);
  int64_t far = t->reach[fixed + 1], near = fixed + 1 == stages ? t->units : t->choice.cut[fixed] + 1;
  for (int64_t end = far; end >= near; end--) {
    outcome found = visit_child(t, fixed, end, end == far);
    if (found != NONE || t->miss <= fixed) return found;
  }
  t->miss = fixed;
  return NONE;
}

/* Times that the ranges of the starts of stages are narrowed: each narrows those of the next. */
enum { NARROWED = 3 };

/* Requires: the target. False: no cut is below it. */
static bool aim(tree *t) {
  if (!t->work) return true;
  double deadline_s = deadline_of_windows(t, 0);
  bool possible = zp_mode_work_meet(t->work, &t->windows, deadline_s);
  for (int i = 0; i < NARROWED && possible && t->windows.one_f_one_b; i++)
    possible = can_complete(t, 0, 0) && zp_window_lows(&t->windows, t->work, t->reach, deadline_s, t->low) &&
               zp_mode_work_narrow(t->work, &t->windows, deadline_s, t->low, t->reach);
  if (!possible) t->effort->pruned[ZP_CUT_WINDOW]++;
  return possible;
}

static outcome search_below(tree *t, double target_s) {
  t->target_s = target_s;
  if (!aim(t)) return NONE;
  return rest_misses(t, 0) ? NONE : visit(t, 0, false);
}

/* ---- a good cut to start from ---- */

/* Step time of t->choice.cut, ties in the middle left out; HUGE_VAL when a stage does not fit. */
static double time_of_cut(tree *t) {
  int stages = t->choice.pipeline;
  for (int k = 0; k < stages; k++) {
    int64_t first = t->choice.cut[k], end = t->choice.cut[k + 1];
    if (end <= first || !variant_of_stage(t, k, first, end)) return HUGE_VAL;
    fix_stage(t, k, end);
  }
  return simulate_fixed(t, stages) + t->update_s[stages];
}

/* Moves the boundaries between two stages by one unit. */
static void move_unit(tree *t, int from, int to) {
  for (int k = from + 1; k <= to; k++) t->choice.cut[k]--;
  for (int k = to + 1; k <= from; k++) t->choice.cut[k]++;
}

/* Moves single units from one stage to another while that makes the step faster, from the cut at hand. */
static double improve_cut(tree *t, int64_t most_work) {
  int stages = t->choice.pipeline, since = 0;
  int64_t stop_at = t->effort->work_left - most_work;
  double best = time_of_cut(t);
  for (int i = 0; since < stages * stages && t->effort->work_left > stop_at; i = (i + 1) % (stages * stages), since++) {
    int from = i / stages, to = i % stages;
    if (from == to) continue;
    move_unit(t, from, to);
    double seconds = time_of_cut(t);
    if (seconds < best * (1 - CLOSED))
      best = seconds, since = 0;
    else
      move_unit(t, to, from);
  }
  return best;
}

/* Simulates a good cut near the furthest ends of the target, where trying all moves once is little of the work. */
static void start_from_reach(tree *t, double target_s) {
  int64_t stages = t->choice.pipeline, share = (t->effort->work_left - t->stop_at) / 4;
  if (stages * stages * stages * t->windows.microbatches > share) return;
  t->target_s = target_s;
  if (!aim(t) || !can_complete(t, 0, 0)) return;
  memcpy(t->choice.cut, t->reach, sizeof *t->reach * (size_t)(stages + 1));
  double best = improve_cut(t, share);
  if (best < t->task->limit_s(t->task->user)) t->task->on_cut(t->task->user, t->choice.cut);
}

/* What is known of the stages whatever the cut. */
static void set_windows(tree *t) {
  const zp_choice *c = &t->choice;
  const zp_variant *v = t->v;
  zp_least least = {.work_s = v->prefix_s, .input_s = v->input_s};
  if (t->point->n_modes == 1 && !c->fine) least = zp_least_times(t->scratch, t->costs, v);
  t->windows = (zp_windows){.stages = c->pipeline,
                            .units = t->units,
                            .microbatches = zp_microbatches(t->s->spec, c),
                            .prefix_s = least.work_s,
                            .total_s = least.work_s[t->units],
                            .message_s = zp_least_message(t->s, t->point),
                            .extra_s = least.work_extra_s,
                            .one_f_one_b = c->schedule == ZP_SCHEDULE_1F1B};
  t->way = t->windows;
  if (!zp_schedule_splits(c->schedule)) return;
  t->way.prefix_s = least.input_s;
  t->way.total_s = least.input_s[t->units];
  t->way.extra_s = least.input_extra_s;
}

static void set_run(tree *t) {
  zp_arena *a = t->scratch;
  int stages = t->choice.pipeline;
  t->time = ZP_NEW_ARRAY(a, zp_stage_time, stages);
  t->message_s = ZP_NEW_ARRAY(a, double, stages);
  t->run = (zp_pipeline_run){.stages = stages,
                             .chunks = 1,
                             .choice = &t->choice,
                             .microbatches = t->windows.microbatches,
                             .buffers = zp_message_buffers(&t->choice, t->windows.microbatches),
                             .time = t->time,
                             .message_s = t->message_s,
                             .end_s = ZP_NEW_ARRAY(a, double, stages)};
  if (t->choice.schedule == ZP_SCHEDULE_1F1B) return;
  int64_t *actions = ZP_NEW_ARRAY(a, int64_t, stages);
  t->run.order = zp_orders(a, &t->choice, t->run.microbatches, actions);
  t->run.actions = actions;
}

static void plant(tree *t, zp_searcher *s, const zp_point *point, const zp_branching *task) {
  zp_arena *a = t->scratch;
  const zp_choice *c = &point->choice;
  t->s = s;
  t->point = point;
  t->task = task;
  t->effort = &s->effort;
  t->choice = *c;
  t->v = zp_variant_of(s, point);
  t->units = zp_point_units(s, point);
  t->limits = zp_search_limits(s);
  t->costs = zp_stage_costs_new(a, s, point);
  t->link = zp_machine_pipeline_link(&s->machine, c->tensor, c->pipeline, c->data, c->order);
  t->many = zp_many_microbatches(s, c);
  t->ties_s = zp_least_ties(a, s, point);
  t->choice.cut = ZP_NEW_ARRAY(a, int64_t, c->pipeline + 1);
  t->reach = ZP_NEW_ARRAY(a, int64_t, c->pipeline + 1);
  t->low = ZP_NEW_ARRAY(a, int64_t, c->pipeline + 1);
  t->update_s = ZP_NEW_ARRAY(a, double, c->pipeline + 1);
  t->cost = ZP_NEW_ARRAY(a, zp_stage_cost, c->pipeline);
  t->known_s = ZP_NEW_ARRAY(a, double, c->pipeline + 1);
  set_windows(t);
  if (point->n_modes > 1 && !c->fine && !t->windows.one_f_one_b) t->work = zp_mode_work_new(a, s, point, t->costs);
  set_run(t);
  t->update_s[0] = least_update(t);
}

/* ---- 1F1B: labels ---- */

/* The graph of all plans below the target. False: there are none. */
static bool plant_graph(tree *t, double target_s) {
  int stages = t->choice.pipeline;
  const zp_pipe pipe = {.stages = stages,
                        .units = t->units,
                        .microbatches = t->windows.microbatches,
                        .message_s = t->windows.message_s,
                        .ties_s = t->ties_s,
                        .update_s = t->update_s[0]};
  t->graph = zp_stage_graph_new(t->scratch, t->s, t->point, t->costs, &pipe, target_s);
  t->prefix = ZP_NEW_ARRAY(t->scratch, double *, stages + 1);
  for (int k = 0; k <= stages; k++) t->prefix[k] = ZP_NEW_ARRAY(t->scratch, double, zp_prefix_length(k));
  return zp_stage_graph_narrow(t->graph, target_s);
}

/* Looking at a number of a label takes about this share of simulating an action. */
static const int64_t NUMBERS_PER_ACTION = 8;

static zp_label_round look_at_labels(tree *t, int width) {
  int64_t before = zp_label_search_work(t->labels);
  zp_label_round round = zp_label_search_round(t->labels, width, t->target_s, t->reach);
  t->effort->work_left -= (zp_label_search_work(t->labels) - before) / NUMBERS_PER_ACTION;
  t->effort->nodes++;
  if (!round.open) t->effort->pruned[ZP_CUT_WINDOW]++;
  return round;
}

/* Simulates t->reach. */
static outcome try_cut(tree *t) {
  memcpy(t->choice.cut, t->reach, sizeof *t->reach * (size_t)(t->choice.pipeline + 1));
  if (time_of_cut(t) >= t->target_s) return NONE;
  return t->task->on_cut(t->task->user, t->choice.cut) < t->target_s ? FOUND : NONE;
}

enum { WIDER = 4 };
/* Gaps below this are closed in one search. */
static const double NEAR = 1e-4;

/* Rounds take stages away until none are left or a plan is found; what labels without merging leave is searched. */
static outcome rounds_below(tree *t, double *low) {
  for (int width = 1; t->effort->work_left > t->stop_at;) {
    int64_t arcs = zp_stage_graph_arcs(t->graph);
    zp_label_round round = look_at_labels(t, width);
    if (!round.open) return NONE;
    *low = fmax(*low, round.bound_s);
    if (try_cut(t) == FOUND) return FOUND;
    if (round.exact) {
      zp_stage_graph_narrow(t->graph, t->target_s);
      zp_prefix_start(zp_label_search_labels(t->labels), t->prefix[0]);
      return visit(t, 0, false);
    }
    if (10 * zp_stage_graph_arcs(t->graph) > 9 * arcs) width *= WIDER;
  }
  return SPENT;
}

static outcome labels_below(tree *t, double target_s, double *low) {
  t->target_s = target_s;
  if (!zp_stage_graph_narrow(t->graph, target_s)) return NONE;
  t->labels = zp_label_search_new(t->graph);
  outcome found = rounds_below(t, low);
  zp_label_search_free(t->labels);
  return found;
}

/* Targets between the bound and the best plan: far below the best one little is left of the graph, and either outcome
 * brings the two closer. A plan that is found lowers all targets to come, so the graph stays as it is; where there is
 * none, it is as it was before. */
static double branch_labels(tree *t, double low) {
  double high = t->task->limit_s(t->task->user), share = 0.5;
  if (low >= high * (1 - CLOSED)) return low;
  if (!plant_graph(t, high * (1 - CLOSED))) return high * (1 - CLOSED);
  zp_stage_graph *all = zp_stage_graph_copy(t->scratch, t->graph, NULL);
  while (high = t->task->limit_s(t->task->user), low < high * (1 - CLOSED)) {
    double target = fmin(low + share * (high - low), high * (1 - CLOSED));
    outcome found = labels_below(t, target, &low);
    if (found == SPENT) break;
    if (found == NONE) low = target;
    if (found == FOUND)
      zp_stage_graph_copy(t->scratch, t->graph, all);
    else
      zp_stage_graph_copy(t->scratch, all, t->graph);
    share = high - low < NEAR * high ? 1 : found == FOUND ? 0.25 : fmin(2 * share, 1);
  }
  return low;
}

/* ---- one point ---- */

/* Without windows that know the modes few targets are refuted at once: the
 * third one is the best plan. */
/* The first targets are near the bound, where little is left to search and a cut that is found is good. Targets that
 * the root rules out cost next to nothing; after one that took a search the best plan is near, and the target is the
 * best plan itself. */
double zp_branch(zp_searcher *s, const zp_point *point, const zp_branching *task) {
  tree t = {.scratch = zp_arena_new("branch")};
  plant(&t, s, point, task);
  t.stop_at = s->effort.work_left - s->effort.work_left / (t.windows.one_f_one_b ? 2 : 4); /* other points want their share */
  double low = point->bound_s, high, share = 0.25;
  if (t.windows.one_f_one_b) {
    low = branch_labels(&t, low);
    zp_arena_free(t.scratch);
    return low;
  }
  if (t.work) start_from_reach(&t, task->limit_s(task->user));
  while (high = task->limit_s(task->user), low < high * (1 - CLOSED)) {
    double target = fmin(low + share * (high - low), high * (1 - CLOSED));
    int64_t nodes = s->effort.nodes;
    outcome found = search_below(&t, target);
    if (found == SPENT) break;
    if (found == NONE) low = target;
    bool searched = s->effort.nodes > nodes;
    bool near = t.work ? high - low < NEAR * high : share >= 0.5;
    share = found == FOUND ? 0.25 : searched || near ? 1 : 0.5;
  }
  zp_arena_free(t.scratch);
  return low;
}

/* The same for labels, after a round that merges. */
static int refusal_of_labels(tree *t, const int64_t *cut) {
  int stages = t->choice.pipeline, refused = -1;
  if (!plant_graph(t, t->target_s)) return 0;
  t->labels = zp_label_search_new(t->graph);
  zp_prefix_start(zp_label_search_labels(t->labels), t->prefix[0]);
  if (!look_at_labels(t, 2).open) refused = 0;
  for (int k = 0; k < stages && refused < 0; k++) {
    const zp_stage_arc *arc = zp_stage_graph_find(t->graph, k, cut[k], cut[k + 1]);
    if (arc)
      zp_prefix_extend(zp_label_search_labels(t->labels), t->prefix[k], k, &t->graph->cost.data[arc->cost],
                       t->prefix[k + 1]);
    if (!arc || !zp_label_search_may_follow(t->labels, t->prefix[k + 1], k + 1, cut[k + 1])) {
      refused = k + 1;
    } else {
      fix_stage(t, k, cut[k + 1]);
      if (prefix_misses(t, k + 1)) refused = k + 1;
    }
  }
  zp_label_search_free(t->labels);
  return refused;
}

int zp_branch_refusal(zp_searcher *s, const zp_point *point, const int64_t *cut, double target_s) {
  tree t = {.scratch = zp_arena_new("branch"), .target_s = target_s};
  int stages = point->choice.pipeline, refused = -1;
  plant(&t, s, point, NULL);
  if (t.windows.one_f_one_b) {
    refused = refusal_of_labels(&t, cut);
    zp_arena_free(t.scratch);
    return refused;
  }
  if (!aim(&t)) refused = 0;
  for (int fixed = 0; fixed <= stages && refused < 0; fixed++) {
    int counted = fixed > 0 ? fixed - 1 : 0;
    if (fixed > 0) fix_stage(&t, fixed - 1, cut[fixed]);
    bool dropped = !can_complete(&t, fixed, counted) || !can_complete(&t, fixed, fixed) ||
                   (fixed < stages && t.reach[fixed + 1] < cut[fixed + 1]);
    if (dropped || (fixed > 0 && prefix_misses(&t, fixed))) refused = fixed;
  }
  zp_arena_free(t.scratch);
  return refused;
}
