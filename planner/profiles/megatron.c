/* SPDX-License-Identifier: Apache-2.0 */
/* Megatron-LM itself, by version. */
#include "profiles.h"

/* First bucket size of distributed_data_parallel.py, 40,000,000 elements, in bytes of fp32 gradients. */
#define MCORE_BUCKET_BYTES (4 * 40e6)

/* Megatron-Bridge's performance recipes (src/megatron/bridge/perf_recipes/_common.py of 067f987d, mixed_precision.py;
 * opened): gradients kept and reduced in 16 bits (grad_reduce_in_fp32 = False), weights of narrow products as casts
 * alone (fp8_param_gather, fp4_param_gather), experts that drop no token. As FSDP everything is sharded
 * (scripts/performance/utils/overrides.py); of chunks a stage has 20 at most (70B on 32 GB300). */
#define BRIDGE                                                                                                         \
  .engine = true, .measured_narrow = true, .casts_alone = true, .dropless = true, .own_experts = true,                 \
  .dispatcher = ZP_DISPATCH_NODES, .sm90_attention = SM90_ATTENTION_2025, EAGER, .communicators = MEGATRON_GROUPS,     \
  .overlaps_tensor = true, .overlaps_data = true, .bucket_bytes = MCORE_BUCKET_BYTES / 2, .blocking_messages = true,   \
  .fused_loss = true, .stand_ins = true, .prints_allocator = true, .splits_heads = true, .weighs_gates = true,         \
  .interleaves = true, .cuts_units = true, .most_chunks = 20, .shards_all = true, .rebuilds_modules = true

static const zp_software profiles[] = {
    {.name = "megatron-core",
     .trainer = ZP_TRAINER_MEGATRON,
     .newest = true,
     .source_words = {"model_table.png"},
     .engine = true,
     EAGER,
     .communicators = MEGATRON_GROUPS,
     .float_gradients = true,
     .casts_alone = true,
     .dropless = true,
     .own_experts = true,
     .dispatcher = ZP_DISPATCH_NODES,
     .overlaps_tensor = true,
     .overlaps_data = true,
     .bucket_bytes = MCORE_BUCKET_BYTES,
     .blocking_messages = true,
     .loss_bytes = LOSS_MEGATRON,
     .splits_heads = true,
     .weighs_gates = true,
     .interleaves = true,
     .facts = "FlashAttention or cuDNN attention, fp32 gradient accumulation, --overlap-grad-reduce, "
              "--overlap-param-gather, --tp-comm-overlap (Megatron-Core r0.8 README); experts without "
              "--moe-expert-capacity-factor drop and pad no token (core/transformer/transformer_config.py) and come by "
              "--moe-token-dispatcher-type flex"},
    {.name = "megatron-core-2025",
     .trainer = ZP_TRAINER_MEGATRON,
     .source_words = {"SimuMax"},
     .engine = true,
     EAGER,
     .communicators = MEGATRON_GROUPS,
     .float_gradients = true,
     .blocking_messages = true,
     .fused_loss = true,
     .stand_ins = true,
     .prints_allocator = true,
     .splits_heads = true,
     .weighs_gates = true,
     .interleaves = true,
     .facts = "Megatron-Core 0.14 with Transformer Engine 2.11 (docs/b200/b200_real_repro_guide.md), all overlap off, "
              "the loss in place of the logits "
              "(SimuMax simu_tools/megatron_scripts, run_pretrain_llama3.sh, cases \"cef\"; opened)"},
    {.name = "megatron-bridge",
     .trainer = ZP_TRAINER_MEGATRON,
     .source_words = {"Megatron-Bridge"},
     BRIDGE,
     .facts =
         "Megatron-Core with Transformer Engine: gradients reduced in 16 bits, tensor collectives in user buffers "
         "alongside products, but with NVFP4, no recomputation (NVIDIA-NeMo/Megatron-Bridge scripts/performance/"
         "configs/llama: llama3_llm_pretrain.py, *_workload_base_configs.py; opened); tables count as layers where "
         "126 are divided over 32 chunks"},
    {.name = "megatron-bridge-parts",
     .trainer = ZP_TRAINER_MEGATRON,
     BRIDGE,
     .graphs = ZP_GRAPHS_PARTS,
     .facts = "the same with CUDA graphs of attention, gate and what comes before the exchange "
              "(../validate/expert_recipes.def: parts)"},
    {.name = "megatron-bridge-gates",
     .trainer = ZP_TRAINER_MEGATRON,
     BRIDGE,
     .graphs = ZP_GRAPHS_GATES,
     .facts = "the same with CUDA graphs of the gate and what comes before the exchange "
              "(../validate/expert_recipes.def: gates)"},
    {.name = "megatron-bridge-26.06",
     .trainer = ZP_TRAINER_MEGATRON,
     BRIDGE,
     .graphs = ZP_GRAPHS_WHOLE,
     .hides_exchange = true,
     .one_kernel = true,
     .narrow_attention = true,
     .facts = "the same with what its recipes of experts in MXFP8 have from release 26.06 on: CUDA graphs of whole "
              "iterations, exchanges alongside another micro-batch, one kernel for the products of all experts, "
              "attention in 8 bits "
              "(../validate/expert_recipes.def)"},
    {.name = "megatron-core-serial",
     .source_words = {"Megatron-Core without overlap"},
     EAGER,
     .communicators = MEGATRON_GROUPS,
     .float_gradients = true,
     .blocking_messages = true,
     .loss_bytes = LOSS_MEGATRON,
     .interleaves = true,
     .facts = "as megatron-core, where the launcher leaves --overlap-grad-reduce, --overlap-param-gather and "
              "--tp-comm-overlap off"},
    {.name = "megatron-lm-interleaved",
     .trainer = ZP_TRAINER_MEGATRON,
     .source_words = {"cases_april2021", "2104.04473"},
     MEGATRON,
     .communicators = MEGATRON_GROUPS,
     .interleaves = true,
     .scatter_gather = true,
     .accumulate_bytes = ACCUMULATE_HALF,
     .update_copies = COPIES_SHARD,
     .facts = "scatter-gather messages came with the interleaved schedule (arXiv 2104.04473, section 4.1)"},
    {.name = "megatron-lm-v3",
     .trainer = ZP_TRAINER_MEGATRON,
     .source_words = {"2205.05198"},
     MEGATRON,
     .communicators = MEGATRON_GROUPS,
     .interleaves = true,
     .scatter_gather = true,
     .update_copies = COPIES_SHARD,
     .facts = "as before, weight gradients added in the matrix product (Megatron-LM v3.0 release notes)"},
    {.name = "megatron",
     .trainer = ZP_TRAINER_MEGATRON,
     .first_year = 0,
     .last_year = 2022,
     MEGATRON,
     .communicators = MEGATRON_GROUPS,
     .accumulate_bytes = ACCUMULATE_HALF,
     .update_copies = COPIES_SHARD,
     .facts =
         "before FlashAttention (arXiv 2205.14135): batched products, fused scale-mask-softmax and dropout through "
         "device memory (Megatron-LM v2, megatron/model/transformer.py)"},
    {.name = "flash-attention",
     .first_year = 2023,
     .last_year = 9999,
     .separate_rows = true,
     .communicators = PLAN_GROUPS,
     .blocking_messages = true,
     .facts = "sources after FlashAttention"},
};

const zp_profiles zp_profiles_megatron = ZP_PROFILES(profiles);
