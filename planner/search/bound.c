/* Lower bounds of the simulated step time. They need only that a stage runs its order table in order, that a chunk waits
 * for the one before it (after it, backward), and that nothing runs faster than its procedures cost: gathers, copies
 * and messages only add.
 *
 * Legend: P stages, v chunks a stage, m micro-batches, X = F + B seconds of a stage and micro-batch, I = F + the part of
 * B on the way to the gradient of the inputs, W = sum of X, A and C what the stages before and after do, L the longest
 * unit, M the longest stage, M >= max(W / P, L).
 *   All: T >= m M; and a micro-batch goes all the way up and back, T >= R = sum of I + messages.
 *   GPipe: last in, first out, so T >= A + m X + C of every stage = W + (m - 1) M.
 *   1F1B: w = P - 1 - s warm-up forwards of stage s. The first stage has at most P in flight, so micro-batch i + P
 * starts after i is done: T >= (1 + floor((m - 1) / P)) R. Between its first forward and its first backward a stage
 * waits for C and fills the time with w forwards; between its last forward and its last backward again, with w
 * backwards; for m > P the two spans do not overlap: T >= A + m X + max(0, C - w F) + max(0, C - w B) >= A + m M +
 * max(0, 2 C - w M). Over all ways to place the work this is at least (m - 1) M + W - min((P - 1) M / 2, P M - W), whose
 * minimum over longer M is at the ends checked below. For m <= P the same with one span: T >= W + (m - 1) B of M.
 *   Split backward (ZB-H1, ZB-H2) with D forwards before the first backward: T >= F before + m X + max(0, I after -
 * (D - 1) F); and the gradient of the inputs goes on down: T >= I before + m I.
 *   Several chunks: stage s waits for chunks 0 .. s - 1; interleaving ends with the same ones backward: T >= A + m X of
 * the last stage, and its A is at least W less the other chunks, which are at most W / (P v) + L long where chunks are
 * cut for the shortest longest one. */
#include <math.h>
#include "cost.h"
#include "schedule.h"
#include "search_internal.h"

static double bound_1f1b(double m, double P, double W, double M) {
  return (m - 1) * M + W - fmin((P - 1) * M / 2, P * M - W);
}

static double message_s(const zp_searcher *s, const zp_point *point) {
  const zp_choice *c = &point->choice;
  const zp_variant *v = zp_variant_of(s, point);
  zp_group_link link = zp_machine_pipeline_link(&s->machine, c->tensor, c->pipeline, c->data);
  return zp_cost_message(&link, (double)v->carry_elements * v->lowered->compute_bytes);
}

static double pipeline_bound(const zp_searcher *s, const zp_point *point) {
  const zp_variant *v = zp_variant_of(s, point);
  const zp_choice *c = &point->choice;
  double P = c->pipeline, m = (double)zp_microbatches(s->spec, c), W = v->prefix_s[s->n_units];
  if (c->pipeline == 1) return m * W;
  double M = fmax(W / P, v->longest_s), K = zp_model_chunks(c);
  double hops = 2 * (K - 1 - (c->schedule == ZP_SCHEDULE_ZB_V)); /* ZB-V turns on the last stage */
  double messages = hops * message_s(s, point), trip = v->input_s[s->n_units] + messages;
  double bound = fmax(m * M, trip);
  switch (c->schedule) {
  case ZP_SCHEDULE_GPIPE: return fmax(bound, W + (m - 1) * M + messages);
  case ZP_SCHEDULE_INTERLEAVED: return fmax(bound, m * M + (P - 1) * W / K - (K - P + 1) * v->longest_s);
  case ZP_SCHEDULE_1F1B: break;
  default: return bound;
  }
  bound = fmax(bound, (1 + floor((m - 1) / P)) * (W + messages));
  if (m <= P) return fmax(bound, W + (m - 1) * v->backward_share * M);
  double turn = fmax(M, 2 * W / (P + 1));
  return fmax(bound, fmin(bound_1f1b(m, P, W, M), bound_1f1b(m, P, W, turn)));
}

/* A stage with the mean of the parameters exists. */
double zp_bound_step_end(const zp_searcher *s, const zp_point *point) {
  const zp_variant *v = zp_variant_of(s, point);
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

double zp_bound(const zp_searcher *s, const zp_point *point) {
  return below(pipeline_bound(s, point) + zp_bound_step_end(s, point));
}

/* ---- one stage of known units ---- */

static double bound_1f1b_stage(const zp_variant *v, const zp_choice *c, double m, int stage, int64_t first,
                               int64_t end, double total) {
  double before = v->prefix_s[first], work = v->prefix_s[end] - before, after = total - v->prefix_s[end];
  double forward = v->forward_s[end] - v->forward_s[first], warmup = fmin(c->pipeline - 1 - stage, m - 1);
  double first_wait = fmax(0, after - warmup * forward), last_wait = fmax(0, after - warmup * (work - forward));
  return before + m * work + (m > c->pipeline ? first_wait + last_wait : fmax(first_wait, last_wait));
}

static double bound_split_stage(const zp_variant *v, const zp_choice *c, double m, int stage, int64_t first,
                                int64_t end, double input_total) {
  double forwards = c->pipeline - stage; /* before the first backward */
  if (c->schedule == ZP_SCHEDULE_ZB_H2) forwards = 2 * forwards - 1;
  double forward = v->forward_s[end] - v->forward_s[first], work = v->prefix_s[end] - v->prefix_s[first];
  double wait = fmax(0, input_total - v->input_s[end] - (fmin(forwards, m) - 1) * forward);
  double drain = v->input_s[first] + m * (v->input_s[end] - v->input_s[first]);
  return fmax(v->forward_s[first] + m * work + wait, drain);
}

double zp_bound_of_stage(const zp_searcher *s, const zp_point *point, int stage, int64_t first, int64_t end) {
  const zp_variant *v = zp_variant_of(s, point);
  const zp_choice *c = &point->choice;
  double m = (double)zp_microbatches(s->spec, c), total = v->prefix_s[s->n_units];
  if (c->schedule == ZP_SCHEDULE_GPIPE) return total + (m - 1) * (v->prefix_s[end] - v->prefix_s[first]);
  if (c->schedule == ZP_SCHEDULE_1F1B) return bound_1f1b_stage(v, c, m, stage, first, end, total);
  return bound_split_stage(v, c, m, stage, first, end, v->input_s[s->n_units]);
}

static double bound_of_chunks(const zp_searcher *s, const zp_point *point, const int64_t *cut) {
  const zp_variant *v = zp_variant_of(s, point);
  const zp_choice *c = &point->choice;
  double m = (double)zp_microbatches(s->spec, c), longest = 0;
  for (int stage = 0; stage < c->pipeline; stage++) {
    double work = 0, input = 0;
    for (int k = 0; k < zp_model_chunks(c); k++) {
      if (zp_chunk_stage(c, k, NULL) != stage) continue;
      work += v->prefix_s[cut[k + 1]] - v->prefix_s[cut[k]];
      input += v->input_s[cut[k + 1]] - v->input_s[cut[k]];
    }
    bool split = zp_schedule_splits(c->schedule);
    double before = split ? v->forward_s[cut[stage]] : v->prefix_s[cut[stage]];
    longest = fmax(longest, before + m * work);
    if (split) longest = fmax(longest, v->input_s[cut[stage]] + m * input);
  }
  return longest;
}

double zp_bound_of_cut(const zp_searcher *s, const zp_point *point, const int64_t *cut) {
  double longest = 0;
  if (zp_model_chunks(&point->choice) > point->choice.pipeline)
    longest = bound_of_chunks(s, point, cut);
  else
    for (int i = 0; i < point->choice.pipeline; i++)
      longest = fmax(longest, zp_bound_of_stage(s, point, i, cut[i], cut[i + 1]));
  return fmax(zp_bound(s, point), below(longest + zp_bound_step_end(s, point)));
}
