/* Branch and bound over the cuts of one point with one chunk a stage. 1F1B: branch_labels.c. Other schedules:
 *
 * A node fixes the units of the first stages. Its children differ in the end of the next stage, furthest first. It is
 * pruned when
 *   the rest cannot be cut so that every stage fits into memory and meets the deadline (bound.c), or the fixed stages
 * alone, with a rest that answers as fast as any can, miss it in the event simulation (tree.c).
 * Both are admissible; the second one is exact for whole cuts. It is asked for whole cuts and for ends that are not the
 * furthest; a whole cut that misses is blamed on its fewest first stages that miss, and the search goes back there. A
 * stage that ends too near leaves more to the others: when the rest cannot be cut, nearer ends are not looked at.
 *
 * The search is for any cut below a target between the proven bound and the best plan. Finding one lowers the best
 * plan, finding none raises the bound; they meet. Work is counted in simulated actions and limited, so that the search
 * stops at the same place on every machine. */
#include <math.h>
#include "tree.h"

/* ---- completions ---- */

static bool stage_may_end(const zp_tree *t, int stage, int64_t first, int64_t end, double bound_s) {
  const zp_variant *own = zp_tree_variant(t, stage, first, end);
  return own && zp_bound_of_stage(t->s, t->point, own, stage, first, end, t->many) * (1 - ZP_TREE_CLOSED) <= bound_s;
}

/* The furthest end of a stage; where it starts when there is none. */
static int64_t furthest_end(const zp_tree *t, int stage, int64_t first, double bound_s) {
  int64_t low = first, high = t->units - (t->choice.pipeline - 1 - stage);
  if (t->work) {
    int64_t reach = zp_mode_work_reach(t->work, stage, first);
    high = reach < high ? reach : high;
  }
  while (low < high) {
    int64_t end = low + (high - low + 1) / 2;
    if (stage_may_end(t, stage, first, end, bound_s))
      low = end;
    else
      high = end - 1;
  }
  return low;
}

/* Can the stages behind the fixed ones be filled, when the updates of the first `counted` stages count? t->reach: their
 * ends when each goes as far as it can. */
static bool can_complete(zp_tree *t, int fixed, int counted) {
  int stages = t->choice.pipeline;
  t->effort->work_left -= 2 * stages; /* what takes about as long */
  memcpy(t->reach, t->choice.cut, sizeof *t->reach * (size_t)(fixed + 1));
  for (int k = fixed; k < stages; k++) {
    t->reach[k + 1] = furthest_end(t, k, t->reach[k], zp_tree_deadline(t, counted));
    if (t->reach[k + 1] == t->reach[k]) return false;
  }
  return t->reach[stages] == t->units;
}

static bool rest_misses(zp_tree *t, int fixed) {
  if (can_complete(t, fixed, fixed)) return false;
  t->effort->pruned[ZP_CUT_WINDOW]++;
  return true;
}

/* ---- the search ---- */

/* Requires: the rest can be cut, t->reach says how far. */
static zp_outcome visit(zp_tree *t, int fixed, bool check);

/* The next stage ends at `end`, the furthest one or nearer. */
static zp_outcome visit_child(zp_tree *t, int fixed, int64_t end, bool far) {
  double before_s = zp_tree_deadline(t, fixed);
  zp_tree_fix(t, fixed, end);
  if (far && zp_tree_deadline(t, fixed + 1) == before_s) return visit(t, fixed + 1, false); /* t->reach still holds */
  if (!rest_misses(t, fixed + 1)) return visit(t, fixed + 1, !far);
  /* Nor with a nearer end, whatever its own update? */
  t->miss = can_complete(t, fixed + 1, fixed) ? fixed + 1 : fixed;
  return ZP_FOUND_NONE;
}

static zp_outcome visit(zp_tree *t, int fixed, bool check) {
  int stages = t->choice.pipeline;
  t->effort->nodes++;
  t->effort->work_left -= stages;
  if (t->effort->work_left < t->stop_at) return ZP_SPENT;
  if (fixed == stages) return zp_tree_visit_leaf(t);
  if (check && zp_tree_misses(t, fixed)) {
    t->miss = zp_tree_first_miss(t, fixed);
    return ZP_FOUND_NONE;
  }
  int64_t far = t->reach[fixed + 1], near = fixed + 1 == stages ? t->units : t->choice.cut[fixed] + 1;
  for (int64_t end = far; end >= near; end--) {
    zp_outcome found = visit_child(t, fixed, end, end == far);
    if (found != ZP_FOUND_NONE || t->miss <= fixed) return found;
  }
  t->miss = fixed;
  return ZP_FOUND_NONE;
}

/* Requires: the target. False: no cut is below it. */
static bool aim(zp_tree *t) {
  const zp_mode_work_aim deadline = {t->microbatches, t->message_s, zp_tree_deadline(t, 0) - t->ties_s};
  if (!t->work || zp_mode_work_meet(t->work, &deadline)) return true;
  t->effort->pruned[ZP_CUT_WINDOW]++;
  return false;
}

static zp_outcome search_below(zp_tree *t, double target_s) {
  t->target_s = target_s;
  if (!aim(t)) return ZP_FOUND_NONE;
  return rest_misses(t, 0) ? ZP_FOUND_NONE : visit(t, 0, false);
}

/* ---- a good cut to start from ---- */

/* Moves the boundaries between two stages by one unit. */
static void move_unit(zp_tree *t, int from, int to) {
  for (int k = from + 1; k <= to; k++) t->choice.cut[k]--;
  for (int k = to + 1; k <= from; k++) t->choice.cut[k]++;
}

/* Moves single units from one stage to another while that makes the step faster, from the cut at hand. */
static double improve_cut(zp_tree *t, int64_t most_work) {
  int stages = t->choice.pipeline, since = 0;
  int64_t stop_at = t->effort->work_left - most_work;
  double best = zp_tree_time_of_cut(t);
  for (int i = 0; since < stages * stages && t->effort->work_left > stop_at; i = (i + 1) % (stages * stages), since++) {
    int from = i / stages, to = i % stages;
    if (from == to) continue;
    move_unit(t, from, to);
    double seconds = zp_tree_time_of_cut(t);
    if (seconds < best * (1 - ZP_TREE_CLOSED))
      best = seconds, since = 0;
    else
      move_unit(t, to, from);
  }
  return best;
}

/* Simulates a good cut near the furthest ends of the target, where trying all moves once is little of the work. */
static void start_from_reach(zp_tree *t, double target_s) {
  int64_t stages = t->choice.pipeline, share = (t->effort->work_left - t->stop_at) / 4;
  if (stages * stages * stages * t->microbatches > share) return;
  t->target_s = target_s;
  if (!aim(t) || !can_complete(t, 0, 0)) return;
  memcpy(t->choice.cut, t->reach, sizeof *t->reach * (size_t)(stages + 1));
  double best = improve_cut(t, share);
  if (best < t->task->limit_s(t->task->user)) t->task->on_cut(t->task->user, t->choice.cut);
}

/* ---- one point ---- */

/* Where stages choose among modes, gaps below this are closed in one search. */
static const double NEAR = 1e-4;

/* The first targets are near the bound, where little is left to search and a cut that is found is good. Targets that
 * the root rules out cost next to nothing; after one that took a search the best plan is near, and the target is the
 * best plan itself. */
double zp_branch(zp_searcher *s, const zp_point *point, const zp_branching *task) {
  zp_tree t = {.scratch = zp_arena_new("branch")};
  zp_tree_plant(&t, s, point, task);
  t.stop_at =
      s->effort.work_left - s->effort.work_left / (zp_tree_has_labels(&t) ? 2 : 4); /* others want their share */
  double low = point->bound_s, high, share = 0.25;
  if (zp_tree_has_labels(&t)) low = zp_branch_labels(&t, low);
  if (t.work) start_from_reach(&t, task->limit_s(task->user));
  while (!zp_tree_has_labels(&t) && (high = task->limit_s(task->user), low < high * (1 - ZP_TREE_CLOSED))) {
    double target = fmin(low + share * (high - low), high * (1 - ZP_TREE_CLOSED));
    int64_t nodes = s->effort.nodes;
    zp_outcome found = search_below(&t, target);
    if (found == ZP_SPENT) break;
    if (found == ZP_FOUND_NONE) low = target;
    bool searched = s->effort.nodes > nodes;
    bool near = t.work ? high - low < NEAR * high : share >= 0.5;
    share = found == ZP_FOUND ? 0.25 : searched || near ? 1 : 0.5;
  }
  zp_arena_free(t.scratch);
  return low;
}

int zp_branch_refusal(zp_searcher *s, const zp_point *point, const int64_t *cut, double target_s) {
  zp_tree t = {.scratch = zp_arena_new("branch"), .target_s = target_s};
  int stages = point->choice.pipeline, refused = -1;
  zp_tree_plant(&t, s, point, NULL);
  bool labels = zp_tree_has_labels(&t);
  if (labels)
    refused = zp_branch_labels_refusal(&t, cut);
  else if (!aim(&t))
    refused = 0;
  for (int fixed = 0; fixed <= stages && refused < 0 && !labels; fixed++) {
    int counted = fixed > 0 ? fixed - 1 : 0;
    if (fixed > 0) zp_tree_fix(&t, fixed - 1, cut[fixed]);
    bool dropped = !can_complete(&t, fixed, counted) || !can_complete(&t, fixed, fixed) ||
                   (fixed < stages && t.reach[fixed + 1] < cut[fixed + 1]);
    if (dropped || (fixed > 0 && zp_tree_misses(&t, fixed))) refused = fixed;
  }
  zp_arena_free(t.scratch);
  return refused;
}
