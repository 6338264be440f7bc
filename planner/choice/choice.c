/* SPDX-License-Identifier: Apache-2.0 */
/* Choices: copied, modes of stages in one form, names of what lives where. */
#include <assert.h>
#include <string.h>
#include <zplan/choice.h>

zp_choice zp_choice_copy(zp_arena *arena, const zp_choice *from) {
  assert(from);
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
  if (from->mix) {
    copy.mix = ZP_NEW_ARRAY(arena, zp_stage_mix, stages);
    memcpy(copy.mix, from->mix, sizeof *copy.mix * stages);
  }
  return copy;
}

void zp_choice_set_modes(zp_choice *choice, zp_stage_mode *mode) {
  assert(choice->pipeline >= 1 && mode);
  choice->recompute = zp_stage_mode_recompute(mode[0]);
  choice->recompute_shard = zp_stage_mode_split(mode[0]);
  choice->stage_recompute = NULL;
  for (int s = 1; s < choice->pipeline; s++)
    if (mode[s] != mode[0]) choice->stage_recompute = mode;
}

void zp_choice_set_mix(zp_choice *choice, zp_stage_mix *mix) {
  assert(choice->pipeline >= 1 && mix);
  choice->mix = NULL;
  for (int s = 0; s < choice->pipeline; s++)
    if (mix[s].layers != ZP_ALL_LAYERS) choice->mix = mix;
}

bool zp_choice_runs_mode(const zp_choice *choice, int stage, zp_stage_mode mode) {
  return zp_choice_mode(choice, stage) == mode ||
         (zp_choice_layers(choice, stage) != ZP_ALL_LAYERS && choice->mix[stage].rest == mode);
}

static const char *const state_name[ZP_STATE_COUNT] = {"optimizer", "gradients", "params", "activations"};

const char *zp_state_name(zp_state state) {
  assert(state < ZP_STATE_COUNT);
  return state_name[state];
}

static const char *const tier_name[] = {"device", "host", "nvme"};

const char *zp_tier_name(zp_tier tier) {
  assert(tier <= ZP_TIER_NVME);
  return tier_name[tier];
}

static bool homes_are_whole(const zp_choice *choice) {
  for (int s = 0; s < ZP_STATE_COUNT; s++) {
    zp_home home = choice->home[s];
    if (home.eighths < 0 || home.eighths > 8 || (home.tier == ZP_TIER_DEVICE && home.eighths > 0)) return false;
  }
  return true;
}

bool zp_choice_is_whole(const zp_choice *choice, int64_t units) {
  if (!zp_choice_has_degrees(choice) || choice->microbatch < 1 || choice->zero < 0 || choice->zero > 3) return false;
  if (!homes_are_whole(choice) || !choice->cut || choice->cut[0] != 0) return false;
  int64_t chunks = (int64_t)choice->pipeline * zp_chunks(choice);
  for (int64_t k = 0; k < chunks; k++)
    if (choice->cut[k] >= choice->cut[k + 1]) return false;
  return choice->cut[chunks] == units;
}
