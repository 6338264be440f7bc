/* Decisions that do not go together, whatever the model and its size. The search asks before it prices, plan files are
 * asked when they are read. What is about moves the strategies refuse themselves. */
#include "lower_internal.h"

#include <assert.h>
#include <zplan/schedule.h>
#include <zplan/moves.h>

static const char *refuse_modes(const zp_choice *c) {
  int modes = c->stage_recompute ? c->pipeline
                                 : 1; /* else all stages have the first one's; the search asks millions of times */
  for (int s = 0; c->sequence && s < modes; s++)
    if (zp_stage_mode_split(zp_choice_mode(c, s))) return "sequence sharding splits kept inputs already";
  return NULL;
}

const char *zp_delay_refusal(const zp_choice *choice, const zp_train *train) {
  const zp_home *home = &choice->home[ZP_STATE_OPTIMIZER];
  if (!train->delayed || (home->tier == ZP_TIER_HOST && home->eighths == 8)) return NULL;
  return "delayed_update needs all of the optimizer's state on the host: offload[optimizer] = \"cpu\"";
}

/* Has every node equally many members, so that every element crosses as often? */
static bool is_even(const zp_group_link *link) {
  return link->nodes < 2 || link->fullest == 1 || link->sums == ZP_ALGORITHM_TWO_LEVELS;
}

/* Of a bucket in two parts, here and on the host, the owners of elements are others than of a whole one. Where they
 * send unlike numbers of bytes, the list of moves would not say how many. */
static const char *refuse_rounding(const zp_choice *c, const zp_spec *spec) {
  if (!spec->train.rounds_sums) return NULL;
  if (c->compress) return "`reduce_dtype` does not go with `compress`, which sends signs";
  if (c->home[ZP_STATE_GRADIENTS].eighths == 0 || zp_shards_state(c)) return NULL;
  zp_machine m = zp_machine_make(&spec->cluster, spec->train.precision, zp_choice_ranks(c));
  int t = c->tensor, p = c->pipeline, e = zp_expert_ranks(c);
  zp_group_link data = zp_machine_data_group(&m, t, p, c->data, c->order);
  bool even = is_even(&data);
  if (even && e > 1 && c->data % e == 0) {
    zp_group_link replicas = zp_machine_replica_group(&m, t, p, c->data, e, c->order);
    even = is_even(&replicas);
  }
  return even ? NULL
              : "`reduce_dtype` with ZeRO 0 and gradients off the device needs equally many data ranks in every node";
}

const char *zp_choice_refusal(const zp_choice *choice, const zp_spec *spec) {
  assert(choice && spec);
  const char *why = zp_schedule_refusal(choice);
  if (!why) why = zp_moves_refusal(choice, spec);
  if (why) return why;
  if (choice->zero < 0 || choice->zero > 3) return "ZeRO stages are 0 to 3";
  if (choice->data % zp_expert_ranks(choice)) return "expert groups divide the data ranks";
  if (zp_expert_ranks(choice) > 1 && zp_model_has_frozen_experts(spec->model))
    return "frozen experts are not spread over data ranks";
  if (choice->sequence && choice->tensor < 2) return "sequence sharding needs two or more tensor ranks";
  why = refuse_modes(choice);
  return why ? why : refuse_rounding(choice, spec);
}
