/* SPDX-License-Identifier: Apache-2.0 */
/* Context degrees, and ways to exchange, that nobody named. A sample that is long divides a device's memory like
 * nothing else does, so there the search opens them by itself: powers of two, and a rank keeps some thousands of
 * positions. Short samples have none, and cost the search nothing. Models that drop tokens would drop others with every
 * degree, and others by keys than by heads, so theirs must be named. */
#include <assert.h>
#include <zplan/plan.h>
#include <zplan/shard.h>
#include "space.h"

enum { LONG_SAMPLE = 32768, LEAST_POSITIONS = 4096 };

int zp_most_free_context(const zp_spec *spec, int devices) {
  assert(devices >= 1);
  int64_t positions = spec->model->sequence;
  if (spec->plans.data[spec->plan].context.set || spec->cluster.trainer != ZP_TRAINER_ZPLAN ||
      spec->cluster.node.device.is_cpu || positions < LONG_SAMPLE || zp_model_drops_tokens(spec->model))
    return 1;
  int most = 1;
  while (2 * most <= devices && positions % (2 * most) == 0 && positions / (2 * most) >= LEAST_POSITIONS) most *= 2;
  return most;
}

bool zp_may_exchange(const zp_spec *spec, const zp_choice *choice, zp_context_by by) {
  const zp_limit *limit = &spec->plans.data[spec->plan].context_by;
  if (zp_context_ranks(choice) == 1) return by == ZP_BY_HEADS;
  return limit->set ? zp_limit_allows(limit, by) : by == ZP_BY_HEADS || !zp_model_drops_tokens(spec->model);
}
