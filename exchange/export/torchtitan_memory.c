/* SPDX-License-Identifier: Apache-2.0 */
/* Offloading and recomputation as arguments of torchtitan (config/configs.py, distributed/activation_checkpoint.py). */
#include "torchtitan.h"

static bool whole_on_host(zp_home home) { return home.tier == ZP_TIER_HOST && home.eighths == 8; }

/* All of parameters, gradients and optimizer state goes to the host, or nothing. */
void zp_titan_memory(zp_titan *t) {
  const zp_home *home = t->e->choice->home;
  zp_titan_section(t, "memory");
  bool all = whole_on_host(home[ZP_STATE_PARAMS]) && whole_on_host(home[ZP_STATE_GRADIENTS]) &&
             whole_on_host(home[ZP_STATE_OPTIMIZER]);
  for (int s = 0; s < ZP_STATE_COUNT; s++) {
    if (home[s].tier == ZP_TIER_DEVICE || (all && s != ZP_STATE_ACTIVATIONS)) continue;
    zp_export_refuse(t->e, zp_format(t->e->arena, "--set 'offload[%s]=none'", zp_state_name(s)),
                     "%s on %s: torchtitan offloads parameters, gradients and the optimizer together, to the host",
                     zp_state_name(s), zp_tier_name(home[s].tier));
  }
  if (all) zp_titan_put(t, "training.enable_cpu_offload");
  if (zp_loss_chunks(t->e->choice) > 1)
    zp_titan_put_int(t, "loss.num_chunks", zp_loss_chunks(t->e->choice));
  else
    zp_export_note(t->e, "torchtitan's configurations make the loss in 8 chunks, which needs less memory than planned");
  zp_titan_put(t, "compile.enable");
}

void zp_titan_checkpoint(zp_titan *t) {
  zp_exporter *e = t->e;
  const zp_choice *c = e->choice;
  zp_recompute mode = zp_export_recompute(e);
  bool split = false;
  for (int s = 0; s < c->pipeline; s++) split |= zp_stage_mode_split(zp_choice_mode(c, s));
  if (split) zp_export_note(e, "inputs of recomputed layers are kept whole on every tensor rank, not divided");
  static const char *const words[] = {
      [ZP_RECOMPUTE_NONE] = "none", [ZP_RECOMPUTE_SELECTIVE] = "selective", [ZP_RECOMPUTE_FULL] = "full"};
  if (mode == ZP_RECOMPUTE_SELECTIVE)
    zp_export_note(e, "selective recomputation rebuilds norms and activations in the plan; torchtitan rebuilds every "
                      "second product, too, and keeps less");
  zp_titan_section(t, "recomputation: a class, after all other arguments");
  zp_buf_printf(&t->out, "  activation_checkpoint:%s\n", words[mode]);
}
