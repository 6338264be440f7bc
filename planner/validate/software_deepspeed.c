/* DeepSpeed, by version and by what it did: its optimizers, its pipeline and its ZeRO 3 around Megatron-LM's layers. */
#include "software_profiles.h"

/* ZeRO 3 copies every gradient into a bucket and divides it by the ranks there (deepspeed/runtime/zero/stage3.py). */
enum { ACCUMULATE_BUCKET = 8 };

/* Elements that are collected before they are reduced, by default (deepspeed/runtime/zero/config.py). */
enum { REDUCE_BUCKET_2022 = 500000000 };

/* PyTorch's context and kernels on A100, without NCCL: 1,573 MiB by nvidia-smi (bigscience tr11 chronicles-prequel.md,
 * "104B topology / memory usage"; opened). */
#define CONTEXT_A100 (INT64_C(1573) << 20)

/* Parameters gathered tensor by tensor, nothing beside it. */
#define ZERO_3 .zero = 3, .gathers_wait = true, .gathers_tensors = true, .accumulate_bytes = ACCUMULATE_BUCKET
/* The pipeline sends a piece a tensor rank, keeps what it has sent until backward (deepspeed/runtime/pipe/schedule.py,
 * num_pipe_buffers), as pieces, and gathers them again there (engine.py: is_pipe_partitioned, _exec_forward_pass,
 * _exec_backward_pass; opened). Gradients went whole until 29 September 2021 (is_grad_partitioned; history opened). */
#define PIPELINE .scatter_gather = true, .keeps_outputs = true, .partitioned_outputs = true
#define PIPELINE_2020 PIPELINE, .whole_gradients = true
/* Megatron-LM's first version, the base of DeepSpeedExamples/Megatron-LM: mpu/transformer.py, mpu/layers.py. */
#define MEGATRON_V1                                                                                                    \
  MEGATRON_BASE, .separate_scores = true, .separate_biases = true, .accumulate_bytes = ACCUMULATE_HALF,                \
                 .update_copies = COPIES_WHOLE
/* BigScience's instrument. */
#define NVIDIA_SMI_A100 .context_bytes = CONTEXT_A100, .prints_reserved = true

static const zp_software profiles[] = {
    {.name = "megatron-deepspeed-fp16",
     .source_words = {"chronicles-prequel"},
     MEGATRON,
     PIPELINE,
     NVIDIA_SMI_A100,
     .accumulate_bytes = ACCUMULATE_HALF,
     .update_copies = COPIES_SHARD,
     .reduce_bucket = REDUCE_BUCKET_2022,
     .facts = "gradients in half precision until 27 February 2022, memory read from nvidia-smi (bigscience tr11 "
              "chronicles-prequel.md, \"Rebalancing layers\" and the end of the tables; opened)"},
    {.name = "megatron-deepspeed-bf16",
     .source_words = {"tr11-176B"},
     MEGATRON,
     PIPELINE,
     NVIDIA_SMI_A100,
     .cuts_units = true,
     .float_gradients = true,
     .half_gradients = true,
     .accumulate_bytes = ACCUMULATE_COPY,
     .facts =
         "DeepSpeed's BF16_Optimizer accumulates and reduces gradients in fp32; embedding and head count as layers in "
         "the cut (bigscience tr11 chronicles-prequel.md, \"Rebalancing layers\"; opened)"},
    {.name = "megatron-deepspeed",
     .source_words = {"Megatron-DeepSpeed", "gpt-neox", "GLM-130B"},
     .most_zero = 1,
     MEGATRON,
     PIPELINE,
     .accumulate_bytes = ACCUMULATE_HALF,
     .update_copies = COPIES_SHARD,
     .facts = "Megatron-LM v2 under DeepSpeed's pipeline"},
    {.name = "deepspeed-zero3-2021",
     .source_words = {"PTD-P vs ZeRO-3"},
     MEGATRON,
     ZERO_3,
     .lists_ranks = true,
     .facts =
         "DeepSpeed 0.3: parameters gathered one by one with torch.distributed.all_gather into a list of one piece "
         "a rank (deepspeed/runtime/zero/partition_parameters.py: _allgather_param)"},
    {.name = "deepspeed-zero3-2022",
     .source_words = {"deepspeed-azure"},
     MEGATRON,
     ZERO_3,
     .facts = "prefetch bucket of 5e7 elements, less than one matrix of these models (examples_deepspeed/azure/*.sh)"},
    {.name = "deepspeed-zero3-offload",
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
     .source_words = {"pp-lowbw"},
     MEGATRON_V1,
     PIPELINE_2020,
     .cuts_by_parameters = true,
     .facts = "PipelineModule's partition_method is \"parameters\" by default (deepspeed/runtime/pipe/module.py)"},
    {.name = "deepspeed-3d",
     .source_words = {"Extreme-scale"},
     MEGATRON,
     PIPELINE_2020,
     .accumulate_bytes = ACCUMULATE_HALF,
     .update_copies = COPIES_SHARD,
     .splits_checkpoints = true,
     .facts = "Megatron with DeepSpeed's pipeline and partitioned checkpoints (microsoft/DeepSpeedExamples Megatron-LM-"
              "v1.1.5-3D_parallelism/examples/ds_pretrain_gpt2_pipe.sh: --partition-activations; opened)"},
    {.name = "deepspeed-2020",
     .source_words = {"1910.02054", "ZeRO paper", "microsoft/DeepSpeed docs", "DeepSpeed docs and", "ZeRO-Offload"},
     MEGATRON_V1,
     .gathers_wait = true,
     .offload_waits = true,
     .facts = "DeepSpeedExamples/Megatron-LM (opened): unfused attention, biases and dropouts; ZeRO 2 waits for its "
              "reductions (overlap_comm is false by default, deepspeed/runtime/zero/config.py)"},
};

const zp_profiles zp_profiles_deepspeed = ZP_PROFILES(profiles);
