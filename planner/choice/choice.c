/* Choices: copied, modes of stages in one form, names of what lives where. */
#include <string.h>
#include <zplan/choice.h>

zp_choice zp_choice_copy(zp_arena *arena, const zp_choice *from) {
  zp_choice copy = *from;
  size_t stages = (size_t)from->pipeline, cuts = stages * (size_t)zp_chunks(from) + 1;
  if (from->cut) {
    copy.cut = ZP_NEW_ARRAY(arena, int64_t, cuts);
    memcpy(copy.cut, from->cut, sizeof *copy.cut * cuts);
  }
  if (from->stage_recompute) {
    copy.stage_recompute = ZP_NEW_ARRAY(arena, zp_stage_mode, stages);
    memcpy(copy.stage_recompute, from->stage_recompute, sizeof *copy.stage_recompute * stages);
  }
  return copy;
}

void zp_choice_set_modes(zp_choice *choice, zp_stage_mode *mode) {
  choice->recompute = zp_stage_mode_recompute(mode[0]);
  choice->recompute_shard = zp_stage_mode_split(mode[0]);
  choice->stage_recompute = NULL;
  for (int s = 1; s < choice->pipeline; s++)
    if (mode[s] != mode[0]) choice->stage_recompute = mode;
}

static const char *const state_name[ZP_STATE_COUNT] = {"optimizer", "gradients", "params", "activations"};

const char *zp_state_name(zp_state state) { return state_name[state]; }

static const char *const tier_name[] = {"device", "host", "nvme"};

const char *zp_tier_name(zp_tier tier) { return tier_name[tier]; }
