/* SPDX-License-Identifier: Apache-2.0 */
/* Limits that leave values of every decision and yet no combination of them: ZeRO 3 with compressed gradients, chunks
 * without a schedule that has them. All combinations are tried with as many ranks of every kind as the limits allow,
 * which refuses the least. */
#include "answers_internal.h"

enum { MOST_CHUNKS = 8 };

/* The largest degree that the limit allows, a divisor of the devices where all are used; 1: none. */
static int most_ranks(const zp_plan *plan, const zp_limit *limit) {
  for (int n = plan->devices; n > 1; n--)
    if ((!zp_uses_all(plan) || plan->devices % n == 0) && zp_limit_allows(limit, n)) return n;
  return 1;
}

static void set_homes(const zp_constraints *limits, zp_choice *choice) {
  for (int s = 0; s < ZP_STATE_COUNT; s++) {
    const zp_limit *limit = &limits->offload[s];
    if (zp_limit_allows(limit, ZP_TIER_DEVICE)) continue;
    choice->home[s] = (zp_home){zp_limit_allows(limit, ZP_TIER_HOST) ? ZP_TIER_HOST : ZP_TIER_NVME, 8};
  }
}

static const char *refusal(const zp_choice *c, const zp_spec *spec) {
  if (c->recompute_shard && c->recompute != ZP_RECOMPUTE_FULL)
    return "kept inputs are split over the tensor ranks with full recomputation only";
  if (c->recompute_shard && c->tensor < 2) return "kept inputs are split over two or more tensor ranks";
  return zp_choice_refusal(c, spec);
}

static void add_once(zp_arena *arena, zp_strings *reasons, const char *reason) {
  for (int i = 0; i < reasons->len; i++)
    if (strcmp(reasons->data[i], reason) == 0) return;
  zp_push(arena, reasons, reason);
}

/* Decisions with few values, as one number each: value i of a row is i + first. */
typedef struct decision {
  const zp_limit *limit;
  int first, count;
} decision;
enum { SCHEDULE, CHUNKS, ZERO, COMPRESS, RECOMPUTE, SHARD, SEQUENCE, N_DECISIONS };

/* The value that refuses least, of a decision that nobody limits. */
static int plain_value(const zp_constraints *l, int d) {
  if (d == SCHEDULE) return zp_limit_allows(&l->chunks, 1) ? ZP_SCHEDULE_1F1B : ZP_SCHEDULE_INTERLEAVED;
  if (d == RECOMPUTE) return ZP_RECOMPUTE_FULL;
  if (d != CHUNKS) return 0;
  for (int s = 0; s < ZP_SCHEDULE_COUNT; s++)
    if (s != ZP_SCHEDULE_INTERLEAVED && !zp_schedule_folds((zp_schedule)s) && zp_limit_allows(&l->schedule, s))
      return 1;
  return 2;
}

static zp_choice choice_of(const zp_choice *base, const int *value) {
  zp_choice c = *base;
  c.schedule = (zp_schedule)value[SCHEDULE];
  c.chunks = value[CHUNKS] > 1 ? value[CHUNKS] : 0;
  c.zero = value[ZERO];
  c.compress = value[COMPRESS];
  c.recompute = (zp_recompute)value[RECOMPUTE];
  c.recompute_shard = value[SHARD];
  c.sequence = value[SEQUENCE];
  return c;
}

zp_strings zp_explain_conflicts(zp_arena *arena, const zp_plan *plan) {
  const zp_constraints *l = &plan->spec->plans.data[plan->spec->plan];
  zp_choice base = {.tensor = most_ranks(plan, &l->tensor),
                    .pipeline = most_ranks(plan, &l->pipeline),
                    .data = most_ranks(plan, &l->data),
                    .microbatch = 1};
  base.context = most_ranks(plan, &l->context);
  if (!l->context.set) base.context = 1;
  base.data *= base.context;
  while (base.expert < base.data && (base.data % ++base.expert || !zp_limit_allows(&l->expert, base.expert))) {
  }
  set_homes(l, &base);
  const decision all[N_DECISIONS] = {[SCHEDULE] = {&l->schedule, 0, ZP_SCHEDULE_COUNT},
                                     [CHUNKS] = {&l->chunks, 1, MOST_CHUNKS},
                                     [ZERO] = {&l->zero, 0, 4},
                                     [COMPRESS] = {&l->compress, 0, 2},
                                     [RECOMPUTE] = {&l->recompute, 0, 3},
                                     [SHARD] = {&l->recompute_shard, 0, 2},
                                     [SEQUENCE] = {&l->sequence, 0, 2}};
  zp_strings reasons = {0};
  int combinations = 1;
  for (int d = 0; d < N_DECISIONS; d++) combinations *= all[d].count;
  for (int number = 0; number < combinations; number++) {
    int value[N_DECISIONS], rest = number;
    bool allowed = true, plain = true; /* reasons are only told of combinations that are plain where they may be */
    for (int d = 0; d < N_DECISIONS; d++) {
      value[d] = all[d].first + rest % all[d].count;
      rest /= all[d].count;
      allowed = allowed && zp_limit_allows(all[d].limit, value[d]);
      plain = plain && (all[d].limit->set || value[d] == plain_value(l, d));
    }
    if (!allowed) continue;
    zp_choice c = choice_of(&base, value);
    const char *reason = refusal(&c, plan->spec);
    if (!reason) return (zp_strings){0};
    if (plain) add_once(arena, &reasons, reason);
  }
  return reasons;
}
