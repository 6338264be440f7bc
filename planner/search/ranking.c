/* SPDX-License-Identifier: Apache-2.0 */
/* The best plans, one per triple of degrees, ascending. Equally fast plans have a fixed order, so that the result does
 * not depend on the order in which they are found. */
#include <math.h>
#include "ranking.h"

/* Fewer ranks first, then fewer tensor ranks, fewer stages, and so on. */
int zp_choice_compare(const zp_choice *a, const zp_choice *b) {
  int64_t difference[17 + 2 * ZP_STATE_COUNT] = {zp_choice_ranks(a) - zp_choice_ranks(b),
                                                 a->tensor - b->tensor,
                                                 a->pipeline - b->pipeline,
                                                 a->data - b->data,
                                                 zp_context_ranks(a) - zp_context_ranks(b),
                                                 zp_expert_ranks(a) - zp_expert_ranks(b),
                                                 zp_shard_ranks(a) - zp_shard_ranks(b),
                                                 a->zero - b->zero,
                                                 a->microbatch - b->microbatch,
                                                 (int64_t)a->recompute - (int64_t)b->recompute,
                                                 a->recompute_shard - b->recompute_shard,
                                                 (int64_t)a->schedule - (int64_t)b->schedule,
                                                 (int64_t)a->chunks * 2 + a->sequence - b->chunks * 2 - b->sequence,
                                                 (zp_loss_chunks(a) - zp_loss_chunks(b)) * 2 + a->compress -
                                                     b->compress,
                                                 ((int64_t)a->order - (int64_t)b->order) * 2 + a->fine - b->fine,
                                                 (int64_t)a->context_by - (int64_t)b->context_by,
                                                 a->hpz - b->hpz};
  for (int i = 0; i < ZP_STATE_COUNT; i++) {
    difference[17 + 2 * i] = a->home[i].eighths - b->home[i].eighths;
    difference[18 + 2 * i] = (int64_t)a->home[i].tier - (int64_t)b->home[i].tier;
  }
  for (size_t i = 0; i < sizeof difference / sizeof *difference; i++)
    if (difference[i]) return difference[i] < 0 ? -1 : 1;
  for (int s = 0; s < a->pipeline; s++)
    if (zp_choice_mode(a, s) != zp_choice_mode(b, s)) return zp_choice_mode(a, s) < zp_choice_mode(b, s) ? -1 : 1;
  for (int s = 0; s < a->pipeline && (a->mix || b->mix); s++)
    if (zp_choice_layers(a, s) != zp_choice_layers(b, s))
      return zp_choice_layers(a, s) < zp_choice_layers(b, s) ? -1 : 1;
  return 0;
}

static bool faster(const zp_candidate *a, const zp_candidate *b) {
  double x = a->estimate.step_s, y = b->estimate.step_s;
  if (x < y * (1 - ZP_ROUNDING)) return true;
  return x <= y * (1 + ZP_ROUNDING) && zp_choice_compare(&a->choice, &b->choice) < 0;
}

static bool same_degrees(const zp_choice *a, const zp_choice *b) {
  return a->tensor == b->tensor && a->pipeline == b->pipeline && a->data == b->data &&
         zp_context_ranks(a) == zp_context_ranks(b);
}

static int find_degrees(const zp_ranking *r, const zp_choice *choice) {
  for (int i = 0; i < r->len; i++)
    if (same_degrees(&r->best[i].choice, choice)) return i;
  return -1;
}

static void remove_at(zp_ranking *r, int i) {
  memmove(&r->best[i], &r->best[i + 1], sizeof *r->best * (size_t)(--r->len - i));
}

/* A plan that might cut inside layers and does not is the plan without that freedom: same procedures, same price. */
static void leave_layers_whole(const zp_search_input *in, zp_choice *c) {
  int chunks = zp_model_chunks(c);
  if (!c->fine || !zp_limit_allows(&in->constraints->cut, 0)) return;
  for (int k = 0; k <= chunks; k++)
    if (zp_pieces_whole_unit(in->pieces, c->cut[k]) < 0) return;
  for (int k = 0; k <= chunks; k++) c->cut[k] = zp_pieces_whole_unit(in->pieces, c->cut[k]);
  c->fine = false;
}

void zp_rank(zp_search_cache *s, zp_ranking *r, const zp_candidate *candidate) {
  int same = find_degrees(r, &candidate->choice);
  if (same >= 0) {
    if (!faster(candidate, &r->best[same])) return;
    remove_at(r, same);
  }
  int at = r->len;
  while (at > 0 && faster(candidate, &r->best[at - 1])) at--;
  if (at == r->cap) return;
  if (r->len == r->cap) r->len--;
  memmove(&r->best[at + 1], &r->best[at], sizeof *r->best * (size_t)(r->len - at));
  r->len++;
  r->best[at] = *candidate;
  r->best[at].choice = zp_choice_copy(s->arena, &candidate->choice);
  leave_layers_whole(s->in, &r->best[at].choice);
}

/* Plans that are slower enter no place. */
static double range_of(const zp_ranking *r) {
  bool best_only = !r->exact && r->behind >= ZP_MOST_BEHIND;
  return (best_only ? 1 : r->range) * r->best[0].estimate.step_s;
}

double zp_most_cutoff(const zp_ranking *r) { return r->len ? range_of(r) / r->closer : HUGE_VAL; }

double zp_cutoff(const zp_ranking *r, const zp_choice *choice) {
  if (r->len == 0) return HUGE_VAL;
  double range = range_of(r);
  int same = find_degrees(r, choice);
  double beat = same >= 0         ? r->best[same].estimate.step_s
                : r->len < r->cap ? range
                                  : r->best[r->len - 1].estimate.step_s;
  return fmin(range, beat) / r->closer;
}
