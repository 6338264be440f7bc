/* Lower bounds of the simulated step time of a point, over all its cuts.
 *
 * Legend: P stages, m micro-batches, X_s = F_s + B_s seconds of stage s, W = sum of X_s, M = longest X_s.
 * Stage s runs 1F1B: w = P - 1 - s warm-up forwards. A = work of the stages before s, C = of those after it.
 *   (1) T >= R = W + 2 (P - 1) message: a micro-batch goes all the way up and back. The first stage has at most P of
 * them in flight, so micro-batch i + P starts after i is done: T >= (1 + floor((m - 1) / P)) R. (2) T >= m M: the
 * longest stage alone. (3) m > P: between its first forward and its first backward a stage waits for C and fills the
 * time with w forwards; between its last forward and its last backward again, with w backwards; the two spans do not
 * overlap. So T >= A + m X_s + max(0, C - w F_s) + max(0, C - w B_s) >= A + m M + max(0, 2 C - w M). The stages after s
 * have at most w M and those before at most s M; over all ways to place the work this is at least (m - 1) M + W -
 * min((P - 1) M / 2, P M - W), whose minimum over longer M is at the ends checked below. (4) m <= P: the same with the
 * first span only: T >= W + (m - 1) B_s of the longest stage. M is at least W / P, the longest unit, and what memory
 * allows (bottleneck_s). The end of the step adds the reduction on the first stage, which finishes last, and an update
 * at least as long as the mean stage's. */
#include <math.h>
#include "cost.h"
#include "search_internal.h"

static double bound_3(double m, double P, double W, double M) {
  return (m - 1) * M + W - fmin((P - 1) * M / 2, P * M - W);
}

static double pipeline_bound(const zp_searcher *s, const zp_point *point, double bottleneck_s) {
  const zp_variant *v = &s->variants.data[point->variant];
  const zp_choice *c = &point->choice;
  double P = c->pipeline, m = (double)zp_microbatches(s->spec, c), W = v->prefix_s[s->n_units];
  if (c->pipeline == 1) return m * W;
  double M = fmax(fmax(W / P, v->longest_s), bottleneck_s);
  zp_group_link link = zp_machine_pipeline_link(&s->machine, c->tensor, c->pipeline, c->data);
  double message = zp_cost_message(&link, (double)v->carry_elements * v->lowered->compute_bytes);
  double bound = fmax((1 + floor((m - 1) / P)) * (W + 2 * (P - 1) * message), m * M);
  if (m > P) {
    double turn = fmax(M, 2 * W / (P + 1));
    return fmax(bound, fmin(bound_3(m, P, W, M), bound_3(m, P, W, turn)));
  }
  return fmax(bound, W + (m - 1) * v->backward_share * M);
}

/* Seconds between the micro-batches and the end of the step, at least; a stage with the mean of the parameters exists.
 */
static double step_end_bound(const zp_searcher *s, const zp_point *point) {
  const zp_variant *v = &s->variants.data[point->variant];
  const zp_choice *c = &point->choice;
  int64_t shards = c->zero >= 1 ? c->data : 1;
  int64_t mean = v->elements / c->pipeline;
  int64_t first = c->pipeline == 1 ? v->elements : v->lowered->segments[0].elements;
  double reduce = zp_cost_step_end(v->lowered, &s->machine, c, first, first / shards).reduce_s;
  zp_step_end end = zp_cost_step_end(v->lowered, &s->machine, c, mean, mean / shards);
  return reduce + end.optimizer_s + end.gather_s;
}

/* A little below, so that rounding never makes a bound exceed what it bounds. */
static double below(double seconds) { return seconds * (1 - 1e-9); }

double zp_bound(const zp_searcher *s, const zp_point *point, double bottleneck_s) {
  return below(pipeline_bound(s, point, bottleneck_s) + step_end_bound(s, point));
}

double zp_bound_of_cut(const zp_searcher *s, const zp_point *point, const int64_t *cut) {
  const zp_variant *v = &s->variants.data[point->variant];
  int stages = point->choice.pipeline;
  double m = (double)zp_microbatches(s->spec, &point->choice), total = v->prefix_s[s->n_units], longest = 0;
  for (int i = 0; i < stages; i++) {
    double before = v->prefix_s[cut[i]], work = v->prefix_s[cut[i + 1]] - before, after = total - before - work;
    double forward = v->forward_s[cut[i + 1]] - v->forward_s[cut[i]];
    double warmup = fmin(stages - 1 - i, m - 1);
    double first_wait = fmax(0, after - warmup * forward), last_wait = fmax(0, after - warmup * (work - forward));
    double wait = m > stages ? first_wait + last_wait : fmax(first_wait, last_wait);
    longest = fmax(longest, before + m * work + wait);
  }
  return fmax(zp_bound(s, point, 0), below(longest + step_end_bound(s, point)));
}
