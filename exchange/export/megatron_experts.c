/* SPDX-License-Identifier: Apache-2.0 */
/* A mixture of experts as arguments of Megatron-LM. */
#include "megatron.h"

#define PUT(flag) zp_megatron_put(m, ZP_MEGATRON_##flag)
#define PUT_INT(flag, value) zp_megatron_put_int(m, ZP_MEGATRON_##flag, value)
#define PUT_REAL(flag, value) zp_megatron_put_real(m, ZP_MEGATRON_##flag, value)
#define PUT_TEXT(flag, value) zp_megatron_put_text(m, ZP_MEGATRON_##flag, value)

/* Whole experts on the ranks of a tensor group, and further on those of an expert group; or parts of all on every
 * rank. */
static void put_degrees(zp_megatron *m) {
  const zp_choice *c = m->e->choice;
  const zp_param_split *split = &m->e->plan->program->lowered->sharding->param[m->gpt->expert_param];
  bool whole = split->split_dim == 0 || split->spread;
  int64_t expert = (int64_t)zp_expert_ranks(c) * (whole ? c->tensor : 1);
  PUT_INT(EXPERT, expert);
  PUT_INT(EXPERT_TENSOR, whole ? 1 : c->tensor);
  if (m->gpt->experts % expert != 0)
    zp_export_refuse(m->e, "--set tensor=..., --set expert=...", "%lld experts do not divide over %lld ranks",
                     (long long)m->gpt->experts, (long long)expert);
}

/* Slots of every sample, filled in the order of positions: with one sample a micro-batch and all its tokens on one
 * rank, Megatron-LM's capacity is the same (core/transformer/moe/moe_utils.py, get_capacity). */
static void put_capacity(zp_megatron *m) {
  const zp_gpt *gpt = m->gpt;
  const zp_choice *c = m->e->choice;
  if (gpt->capacity * (double)gpt->top_k >= (double)gpt->experts) {
    zp_export_note(m->e,
                   "no token is dropped, and none is padded either: memory and time of experts follow the tokens, in "
                   "the plan they are those of %lld tokens for each expert and sample",
                   (long long)gpt->slots);
    return;
  }
  if (c->microbatch > 1 || c->tensor > 1)
    zp_export_refuse(m->e,
                     zp_format(m->e->arena,
                               "a capacity of experts / top_k = %g drops no token; or --set microbatch=1 "
                               "and --set tensor=1",
                               (double)gpt->experts / (double)gpt->top_k),
                     "experts drop tokens by sample in the plan; with %s Megatron-LM drops them by %s",
                     c->tensor > 1 ? zp_format(m->e->arena, "tensor %d", c->tensor)
                                   : zp_format(m->e->arena, "micro-batch %lld", (long long)c->microbatch),
                     c->tensor > 1 ? "rank" : "micro-batch");
  PUT_REAL(CAPACITY, gpt->capacity);
  PUT(PAD_CAPACITY);
  PUT_TEXT(DROP_POLICY, "position");
}

void zp_megatron_experts(zp_megatron *m) {
  const zp_gpt *gpt = m->gpt;
  if (gpt->experts == 0) return;
  zp_megatron_section(m, "experts");
  PUT_INT(EXPERTS, gpt->experts);
  PUT_INT(TOP_K, gpt->top_k);
  put_degrees(m);
  bool drops = gpt->capacity * (double)gpt->top_k < (double)gpt->experts;
  bool spread = zp_expert_ranks(m->e->choice) > 1 || m->e->choice->tensor > 1;
  bool once = !drops && spread && zp_software_sends_once(m->e->spec->cluster.software, &m->e->spec->cluster);
  PUT_TEXT(DISPATCHER, once ? "flex" : "alltoall");
  if (once) PUT_TEXT(DISPATCHER_BACKEND, "deepep");
  if (!gpt->normalize) PUT(PRE_SOFTMAX);
  PUT_TEXT(BALANCING, gpt->balance > 0 ? "seq_aux_loss" : "none");
  if (gpt->balance > 0) PUT_REAL(BALANCE, gpt->balance);
  put_capacity(m);
  if (m->e->spec->cluster.node.device.has_bf16) PUT(GROUPED_GEMM);
  if (zp_software_launches_whole(m->e->spec->cluster.software))
    zp_export_note(
        m->e, "CUDA graphs, exchanges alongside another micro-batch and one kernel for all experts, which the step is "
              "predicted with, are settings of Megatron-Bridge's recipes: no flags are written for them");
  if (m->e->choice->tensor > 1 && !m->e->choice->sequence)
    zp_export_note(m->e,
                   "norms are split along the sequence: Megatron-LM wants that for experts on several tensor ranks");
}
