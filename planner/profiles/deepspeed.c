/* SPDX-License-Identifier: Apache-2.0 */
/* DeepSpeed, by version and by what it did: its optimizers, its pipeline and its ZeRO 3 around Megatron-LM's layers. */
#include "profiles.h"

/* ZeRO 3 copies every gradient into a bucket and divides it by the ranks there (deepspeed/runtime/zero/stage3.py). */
enum { ACCUMULATE_BUCKET = 8 };

/* Two reads and a write of fp32 gradients. */
enum { ACCUMULATE_PLAIN = 12 };

/* Elements that are collected before they are reduced, by default (deepspeed/runtime/zero/config.py). */
enum { REDUCE_BUCKET_2022 = 500000000 };

/* ZeRO 1 of February 2022 (deepspeed/runtime/zero/stage_1_and_2.py; opened): gradients of a bucket in one piece
 * (allreduce_bucket), norms in fp64 tensor by tensor (get_grad_norm_direct), this rank's gradients in one piece and
 * that in fp32 (step). */
#define ZERO_1_2022                                                                                                    \
  .reduce_bucket = REDUCE_BUCKET_2022, .norm_bytes = 8, .flat_copies = 2, .update_copies = COPIES_SHARD
/* BF16_Optimizer (deepspeed/runtime/bf16_optimizer.py, update_hp_grads; runtime/engine.py, allreduce_bucket: all
 * gradients in one piece, sent as bf16; both of April 2022, opened). */
#define BF16_OPTIMIZER .half_gradients = true, .sum_bytes = 4, .reduce_copy = 2

/* Megatron's groups, and DeepSpeed's own alongside them, for tensor ranks and for losses along the pipeline
 * (deepspeed/runtime/pipe/topology.py, PipelineParallelGrid; pipe/engine.py, _aggregate_total_loss; opened). */
#define DEEPSPEED_GROUPS                                                                                               \
  { .world = 1, .tensor = 2, .data = 1, .pipeline = 1, .model = 1, .ties = 1, .pairs = 1 }

/* Parameters gathered tensor by tensor, nothing alongside it. */
#define ZERO_3                                                                                                         \
  .zero = 3, .gathers_wait = true, .gathers_tensors = true, .accumulate_bytes = ACCUMULATE_BUCKET,                     \
  .communicators = PLAN_GROUPS
/* The pipeline sends a piece a tensor rank, keeps what it has sent until backward (deepspeed/runtime/pipe/schedule.py,
 * num_pipe_buffers), as pieces, and gathers them again there (engine.py: is_pipe_partitioned, _exec_forward_pass,
 * _exec_backward_pass; opened). Gradients went whole until 29 September 2021 (is_grad_partitioned; history opened). */
#define PIPELINE                                                                                                       \
  .scatter_gather = true, .keeps_outputs = true, .partitioned_outputs = true, .communicators = DEEPSPEED_GROUPS
#define PIPELINE_2020 PIPELINE, .whole_gradients = true
/* Megatron-LM's first version, the base of DeepSpeedExamples/Megatron-LM: mpu/transformer.py, mpu/layers.py. */
#define MEGATRON_V1                                                                                                    \
  MEGATRON_BASE, .separate_scores = true, .separate_biases = true, .accumulate_bytes = ACCUMULATE_HALF,                \
                 .update_copies = COPIES_WHOLE

/* What one program does by its settings, measured runs have one profile each for: with pipelines and ZeRO 0 or 1 the
 * terms are those of megatron-deepspeed-bf16, with ZeRO 3 those of deepspeed-zero3-2022. No row is of this profile. */
#define NO_ROW .first_year = 9999

static const zp_software profiles[] = {
    {.name = "deepspeed-2022",
     .trainer = ZP_TRAINER_DEEPSPEED,
     .newest = true,
     .of_year = 2022,
     NO_ROW,
     MEGATRON,
     PIPELINE,
     BF16_OPTIMIZER,
     .float_gradients = true,
     .fp16_sums = true,
     .accumulate_bytes = ACCUMULATE_COPY,
     .gathers_wait = true,
     .gathers_tensors = true,
     .update_copies = COPIES_SHARD,
     .facts =
         "Megatron-DeepSpeed's layers and pipeline with BF16_Optimizer, ZeRO 3 by tensors: see "
         "megatron-deepspeed-bf16 and deepspeed-zero3-2022; sums of gradients in fp32 with bf16, in fp16 with fp16 "
         "(grad_accum_dtype of the exported file)"},
    {.name = "megatron-deepspeed-fp16",
     .trainer = ZP_TRAINER_DEEPSPEED,
     .source_words = {"chronicles-prequel"},
     MEGATRON,
     PIPELINE,
     ZERO_1_2022,
     .prints_reserved = true,
     .accumulate_bytes = ACCUMULATE_HALF,
     .facts = "gradients in half precision until 27 February 2022, memory read from nvidia-smi (bigscience tr11 "
              "chronicles-prequel.md, \"Rebalancing layers\" and the end of the tables; opened)"},
    {.name = "megatron-deepspeed-bf16",
     .trainer = ZP_TRAINER_DEEPSPEED,
     .source_words = {"tr11-176B"},
     MEGATRON,
     PIPELINE,
     BF16_OPTIMIZER,
     .prints_reserved = true,
     .cuts_units = true,
     .float_gradients = true,
     .accumulate_bytes = ACCUMULATE_COPY,
     .embedding_norm = true,
     .facts = "DeepSpeed's BF16_Optimizer accumulates gradients in fp32; embedding and head count as layers in the cut "
              "(bigscience tr11 chronicles-prequel.md, \"Rebalancing layers\"; opened); --embed-layernorm "
              "(tr11-176B-ml.slurm; opened)"},
    {.name = "sailor",
     .source_words = {"sailor"},
     MEGATRON,
     PIPELINE,
     .accumulate_bytes = ACCUMULATE_PLAIN,
     .facts = "Megatron-DeepSpeed in fp32 with its unfused softmax, no FlashAttention (ae_scripts/clariden_scripts/"
              "run_opt.slurm @cf2c8e3c; opened)"},
    {.name = "megatron-deepspeed",
     .trainer = ZP_TRAINER_DEEPSPEED,
     .source_words = {"Megatron-DeepSpeed", "gpt-neox", "GLM-130B"},
     .most_zero = 1,
     MEGATRON,
     PIPELINE,
     .accumulate_bytes = ACCUMULATE_HALF,
     .update_copies = COPIES_SHARD,
     .facts = "Megatron-LM v2 under DeepSpeed's pipeline"},
    {.name = "deepspeed-zero3-2021",
     .trainer = ZP_TRAINER_DEEPSPEED,
     .source_words = {"PTD-P vs ZeRO-3"},
     MEGATRON,
     ZERO_3,
     .lists_ranks = true,
     .facts =
         "DeepSpeed 0.3: parameters gathered one by one with torch.distributed.all_gather into a list of one piece "
         "a rank (deepspeed/runtime/zero/partition_parameters.py: _allgather_param)"},
    {.name = "deepspeed-zero3-2022",
     .trainer = ZP_TRAINER_DEEPSPEED,
     .source_words = {"deepspeed-azure"},
     MEGATRON,
     ZERO_3,
     .facts = "prefetch bucket of 5e7 elements, less than one matrix of these models (examples_deepspeed/azure/*.sh)"},
    {.name = "deepspeed-zero3-offload",
     .trainer = ZP_TRAINER_DEEPSPEED,
     .source_words = {"2021-03-08-zero3-offload"},
     MEGATRON,
     ZERO_3,
     .lists_ranks = true,
     .offload_waits = true,
     .splits_checkpoints = true,
     .host_checkpoints = true,
     .facts = "ZeRO 3 by tensors, checkpoints on the host (microsoft/DeepSpeedExamples Megatron-LM-v1.1.5-ZeRO3/"
              "examples/ds_pretrain_gpt2-zero3.sh: --partition-activations --checkpoint-in-cpu; opened)"},
    {.name = "deepspeed-pipeline",
     .trainer = ZP_TRAINER_DEEPSPEED,
     .source_words = {"pp-lowbw"},
     MEGATRON_V1,
     PIPELINE_2020,
     .cuts_by_parameters = true,
     .facts = "PipelineModule's partition_method is \"parameters\" by default (deepspeed/runtime/pipe/module.py)"},
    {.name = "deepspeed-3d",
     .trainer = ZP_TRAINER_DEEPSPEED,
     .source_words = {"Extreme-scale"},
     MEGATRON,
     PIPELINE_2020,
     .accumulate_bytes = ACCUMULATE_HALF,
     .update_copies = COPIES_SHARD,
     .splits_checkpoints = true,
     .facts = "Megatron with DeepSpeed's pipeline and partitioned checkpoints (microsoft/DeepSpeedExamples Megatron-LM-"
              "v1.1.5-3D_parallelism/examples/ds_pretrain_gpt2_pipe.sh: --partition-activations; opened)"},
    {.name = "deepspeed-2020",
     .trainer = ZP_TRAINER_DEEPSPEED,
     .source_words = {"1910.02054", "ZeRO paper", "microsoft/DeepSpeed docs", "DeepSpeed docs and", "ZeRO-Offload"},
     MEGATRON_V1,
     .communicators = PLAN_GROUPS,
     .gathers_wait = true,
     .offload_waits = true,
     .facts = "DeepSpeedExamples/Megatron-LM (opened): unfused attention, biases and dropouts; ZeRO 2 waits for its "
              "reductions (overlap_comm is false by default, deepspeed/runtime/zero/config.py)"},
};

const zp_profiles zp_profiles_deepspeed = ZP_PROFILES(profiles);
