/* SPDX-License-Identifier: Apache-2.0 */
/* The decisions of a plan as constants of the script: mesh, batch, recomputation, offloading. */
#include "fsdp2.h"

/* Axes that the script does not have. */
static void check_axes(zp_exporter *e) {
  const zp_choice *c = e->choice;
  if (c->tensor > 1)
    zp_export_refuse(e, "--set tensor=1", "tensor %d: the script's ranks have whole layers", c->tensor);
  if (c->pipeline > 1) zp_export_refuse(e, "--set pipeline=1", "pipeline %d: the script has no stages", c->pipeline);
  if (zp_context_ranks(c) > 1)
    zp_export_refuse(e, "--set context=1", "context %d: the script's ranks have whole samples", c->context);
  if (c->compress)
    zp_export_refuse(e, "--set compress=false", "1-bit compressed gradients: PyTorch has no such optimizer");
  if (c->hpz > 0) zp_export_refuse(e, "--set hpz=1", "a second copy of the parameters: fully_shard keeps none");
  if (zp_plan_idle(e->plan, c) > 0)
    zp_export_note(e, "%d of %d devices stay idle: start %d ranks", zp_plan_idle(e->plan, c), e->plan->devices,
                   zp_choice_ranks(c));
}

/* Shard groups are neighbours, so that they are the inner dimension of the mesh. */
static void put_mesh(zp_fsdp2 *f) {
  const zp_choice *c = f->e->choice;
  if (c->zero < 2 && c->data > 1)
    zp_export_refuse(f->e, "--set 'zero in [2, 3]'", "ZeRO %d: fully_shard divides gradients and parameters, too",
                     c->zero);
  if (c->zero < 2 && c->data == 1)
    zp_export_note(f->e, "ZeRO %d of one data rank is written as ZeRO 2, which divides nothing over one rank", c->zero);
  zp_fsdp2_put_int(f, "REPLICATE", zp_shard_copies(c));
  zp_fsdp2_put_int(f, "SHARD", zp_shard_ranks(c));
  zp_fsdp2_put_int(f, "ZERO", c->zero < 2 ? 2 : c->zero);
  if (c->zero == 2)
    zp_export_note(f->e, "parameters are divided between steps and gathered in a step's first forward pass");
}

static void put_batch(zp_fsdp2 *f) {
  zp_fsdp2_put_int(f, "BATCH", f->e->spec->train.batch);
  zp_fsdp2_put_int(f, "MICROBATCH", f->e->choice->microbatch);
  zp_fsdp2_put_int(f, "ACCUMULATION", zp_export_accumulation(f->e));
}

/* Layers are rebuilt whole or not at all; the first ones where not all are. */
static void put_recomputation(zp_fsdp2 *f) {
  const zp_choice *c = f->e->choice;
  int64_t layers = 0;
  if (zp_choice_runs_mode(c, 0, zp_stage_mode_of(ZP_RECOMPUTE_SELECTIVE, false))) {
    layers = f->gpt->layers;
    zp_export_note(f->e,
                   "selective recomputation rebuilds norms and activations in the plan; the script rebuilds whole "
                   "layers, which keeps less and takes more time");
  } else if (zp_stage_mode_recompute(zp_choice_mode(c, 0)) == ZP_RECOMPUTE_FULL) {
    layers = zp_choice_layers(c, 0);
    if (layers > f->gpt->layers) layers = f->gpt->layers; /* ZP_ALL_LAYERS */
  }
  zp_fsdp2_put_int(f, "RECOMPUTED_LAYERS", layers);
}

static void put_offload(zp_fsdp2 *f) {
  zp_fsdp2_put_flag(f, "OFFLOAD", zp_export_offloads_state(f->e, "CPUOffloadPolicy moves"));
}

void zp_fsdp2_plan(zp_fsdp2 *f) {
  check_axes(f->e);
  put_mesh(f);
  put_batch(f);
  put_recomputation(f);
  put_offload(f);
}
