/* SPDX-License-Identifier: Apache-2.0 */
/* Offloading and recomputation as arguments of torchtitan (config/configs.py, distributed/activation_checkpoint.py). */
#include "torchtitan.h"

void zp_titan_memory(zp_titan *t) {
  zp_titan_section(t, "memory");
  if (zp_export_offloads_state(t->e, "torchtitan offloads")) zp_titan_put(t, "training.enable_cpu_offload");
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
