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
  return refuse_modes(choice);
}
