/* Software profiles: in which documented, physical ways the program of a measured run differs from the one that the
 * planner lowers and the generator prints. A profile is chosen by the row's source, or by its year where the source is
 * not listed. The facts are cited from memory and most were not opened again; two were settled with the measurements in
 * view (docs/accuracy.md, "What was fitted"). */
#include "validate_internal.h"

/* Bytes a gradient element moves when it is added to those of earlier micro-batches: two reads and a write in fp16
 * (autograd's AccumulateGrad), or one 2-byte read, an fp32 read and write (main_grad.add_). Megatron-LM v3 (2022) adds
 * in the matrix product (--gradient-accumulation-fusion). */
enum { ACCUMULATE_HALF = 6, ACCUMULATE_FLOAT = 10 };
/* ZeRO 3 copies every gradient into a bucket and divides it by the ranks there (deepspeed/runtime/zero/stage3.py). */
enum { ACCUMULATE_BUCKET = 8 };

/* Mixed-precision optimizer as separate kernels: gradients copied to fp32 (6), unscaled and checked (8), their norm
 * (4), clipped (8), weights copied back (6): megatron/optimizer/optimizer.py, 2021. The trainer's update reads the
 * gradient twice (4) and writes the weights (2) in one pass. */
enum { UPDATE_SEPARATE = 6 + 8 + 4 + 8 + 6 - 4 - 2 };

/* FlashAttention-2 is about twice as fast as the first version (arXiv 2307.08691, abstract). */
enum { FIRST_FLASH_ATTENTION = 2 };

/* Bytes per logit that the loss holds at its peak, besides the one half-precision buffer in which the planner's program
 * turns logits into their gradient. Megatron: an fp32 copy that becomes the softmax, and a gradient (megatron/mpu/
 * cross_entropy.py). nanotron: an fp32 copy and one less its maximum (tensor_parallel/functional.py,
 * sharded_cross_entropy). PyTorch on fp32 logits: log-softmax and the gradients of both derivatives, when the
 * half-precision logits are gone. */
enum { LOSS_MEGATRON = 6, LOSS_NANOTRON = 4 + 4, LOSS_PYTORCH = 3 * 4 - 2 };

/* Bytes per updated parameter that exist in the update alone. Megatron and DeepSpeed's ZeRO 1 and 2: fp32 gradients
 * (megatron/optimizer/optimizer.py; deepspeed/runtime/zero/stage1.py, step; opened). DeepSpeed without ZeRO: a list of
 * them, and the same flattened (deepspeed/runtime/fp16/fused_optimizer.py, step; opened). */
enum { COPIES_SHARD = 4, COPIES_WHOLE = 4 + 4 };

/* Elements that DeepSpeed collects before it reduces them, by default (deepspeed/runtime/zero/config.py). */
enum { REDUCE_BUCKET_2022 = 500000000 };

/* PyTorch's context and kernels on A100, without NCCL: 1,573 MiB by nvidia-smi (bigscience tr11 chronicles-prequel.md,
 * "104B topology / memory usage"; opened). */
#define CONTEXT_A100 (INT64_C(1573) << 20)

/* Eager PyTorch: Python, dispatcher, autograd and checkpointing around one kernel. Estimate: the smallest runs on odd
 * lines of vTrain's one-node table (hidden 1,024, micro-batch 1) take 3.2 to 3.7 ms a layer for about 60 kernels
 * whatever their size. */
#define EAGER_CALL_S 53e-6

static const zp_software profiles[] = {
    {.name = "fsdp-2023",
     .source_words = {"mosaicml"},
     .attention_slowdown = FIRST_FLASH_ATTENTION,
     .separate_rows = true,
     .replays_all = true,
     .overlaps_data = true,
     .host_call_s = EAGER_CALL_S,
     .facts =
         "PyTorch FSDP with the first FlashAttention in Triton and overlapped gathers (llm-foundry README), loss fused "
         "in half precision (llmfoundry/models/mpt/modeling_mpt.py: fused_crossentropy; opened)"},
    {.name = "fsdp",
     .source_words = {"torchtitan"},
     .separate_rows = true,
     .replays_all = true,
     .overlaps_data = true,
     .host_call_s = EAGER_CALL_S,
     .loss_bytes = LOSS_PYTORCH,
     .selects_operations = true,
     .prints_allocator = true,
     .facts = "PyTorch FSDP2 with FlashAttention-2 and overlapped gathers (torchtitan docs)"},
    {.name = "megatron-core",
     .source_words = {"model_table.png"},
     .separate_rows = true,
     .float_gradients = true,
     .replays_all = true,
     .overlaps_data = true,
     .blocking_messages = true,
     .host_call_s = EAGER_CALL_S,
     .loss_bytes = LOSS_MEGATRON,
     .facts = "FlashAttention or cuDNN attention, fp32 gradient accumulation, overlapped data-parallel communication "
              "(Megatron-Core r0.8 README)"},
    {.name = "nanotron",
     .source_words = {"nanotron"},
     .separate_rows = true,
     .float_gradients = true,
     .replays_all = true,
     .overlaps_data = true,
     .blocking_messages = true,
     .host_call_s = EAGER_CALL_S,
     .loss_bytes = LOSS_NANOTRON,
     .gradient_buckets = true,
     .holds_scattered = true,
     .prints_allocator = true,
     .facts = "FlashAttention, fp32 gradients beside the half-precision buckets of DistributedDataParallel "
              "(src/nanotron/trainer.py, optim/gradient_accumulator.py; opened)"},
    {.name = "oneflow",
     .source_words = {"OneFlow"},
     .score_matrix = true,
     .accumulate_bytes = ACCUMULATE_HALF,
     .facts = "static graph with fused kernels (arXiv 2110.15032); collectives on the compute stream, so nothing "
              "overlaps (LiBai, libai/models/utils/graph_base.py: enable_use_compute_stream)"},
    {.name = "megatron-deepspeed-fp16",
     .source_words = {"chronicles-prequel"},
     .score_matrix = true,
     .separate_rows = true,
     .replays_all = true,
     .blocking_messages = true,
     .accumulate_bytes = ACCUMULATE_HALF,
     .update_bytes = UPDATE_SEPARATE,
     .host_call_s = EAGER_CALL_S,
     .loss_bytes = LOSS_MEGATRON,
     .update_copies = COPIES_SHARD,
     .reduce_bucket = REDUCE_BUCKET_2022,
     .context_bytes = CONTEXT_A100,
     .keeps_outputs = true,
     .prints_reserved = true,
     .facts = "gradients in half precision until 27 February 2022, memory read from nvidia-smi (bigscience tr11 "
              "chronicles-prequel.md, \"Rebalancing layers\" and the end of the tables; opened)"},
    {.name = "megatron-deepspeed-bf16",
     .source_words = {"tr11-176B"},
     .cuts_units = true,
     .half_gradients = true,
     .context_bytes = CONTEXT_A100,
     .keeps_outputs = true,
     .prints_reserved = true,
     .score_matrix = true,
     .separate_rows = true,
     .float_gradients = true,
     .replays_all = true,
     .blocking_messages = true,
     .accumulate_bytes = ACCUMULATE_FLOAT,
     .update_bytes = UPDATE_SEPARATE,
     .host_call_s = EAGER_CALL_S,
     .loss_bytes = LOSS_MEGATRON,
     .facts =
         "DeepSpeed's BF16_Optimizer accumulates and reduces gradients in fp32; embedding and head count as layers in "
         "the cut (bigscience tr11 chronicles-prequel.md, \"Rebalancing layers\"; opened)"},
    {.name = "deepspeed-zero3-2021",
     .source_words = {"PTD-P vs ZeRO-3"},
     .zero = 3,
     .score_matrix = true,
     .separate_rows = true,
     .replays_all = true,
     .gathers_wait = true,
     .accumulate_bytes = ACCUMULATE_BUCKET,
     .gather_copies = true,
     .update_bytes = UPDATE_SEPARATE,
     .host_call_s = EAGER_CALL_S,
     .loss_bytes = LOSS_MEGATRON,
     .gathers_tensors = true,
     .facts = "DeepSpeed 0.3: parameters gathered one by one with torch.distributed.all_gather into a list "
              "(deepspeed/runtime/zero/partition_parameters.py)"},
    {.name = "deepspeed-zero3-2022",
     .source_words = {"deepspeed-azure"},
     .zero = 3,
     .score_matrix = true,
     .separate_rows = true,
     .replays_all = true,
     .gathers_wait = true,
     .accumulate_bytes = ACCUMULATE_BUCKET,
     .update_bytes = UPDATE_SEPARATE,
     .host_call_s = EAGER_CALL_S,
     .loss_bytes = LOSS_MEGATRON,
     .gathers_tensors = true,
     .facts = "prefetch bucket of 5e7 elements, less than one matrix of these models (examples_deepspeed/azure/*.sh)"},
    {.name = "deepspeed-zero3-offload",
     .source_words = {"2021-03-08-zero3-offload"},
     .zero = 3,
     .score_matrix = true,
     .separate_rows = true,
     .replays_all = true,
     .gathers_wait = true,
     .accumulate_bytes = ACCUMULATE_BUCKET,
     .gather_copies = true,
     .update_bytes = UPDATE_SEPARATE,
     .host_call_s = EAGER_CALL_S,
     .offload_waits = true,
     .loss_bytes = LOSS_MEGATRON,
     .gathers_tensors = true,
     .splits_checkpoints = true,
     .host_checkpoints = true,
     .facts = "ZeRO 3 by tensors, checkpoints on the host (microsoft/DeepSpeedExamples Megatron-LM-v1.1.5-ZeRO3/"
              "examples/ds_pretrain_gpt2-zero3.sh: --partition-activations --checkpoint-in-cpu; opened)"},
    {.name = "deepspeed",
     .source_words = {"microsoft/DeepSpeed docs", "ZeRO-2 blog", "ZeRO-Offload", "DeepSpeed docs and"},
     .score_matrix = true,
     .separate_rows = true,
     .replays_all = true,
     .blocking_messages = true,
     .accumulate_bytes = ACCUMULATE_HALF,
     .update_bytes = UPDATE_SEPARATE,
     .host_call_s = EAGER_CALL_S,
     .update_copies = COPIES_WHOLE,
     .offload_waits = true,
     .loss_bytes = LOSS_MEGATRON,
     .facts = "Megatron-LM with DeepSpeed's optimizers (microsoft/DeepSpeedExamples Megatron-LM; opened)"},
    {.name = "deepspeed-3d",
     .source_words = {"Extreme-scale"},
     .score_matrix = true,
     .separate_rows = true,
     .replays_all = true,
     .blocking_messages = true,
     .accumulate_bytes = ACCUMULATE_HALF,
     .update_bytes = UPDATE_SEPARATE,
     .host_call_s = EAGER_CALL_S,
     .update_copies = COPIES_SHARD,
     .keeps_outputs = true,
     .loss_bytes = LOSS_MEGATRON,
     .splits_checkpoints = true,
     .facts = "Megatron with DeepSpeed's pipeline and partitioned checkpoints (microsoft/DeepSpeedExamples Megatron-LM-"
              "v1.1.5-3D_parallelism/examples/ds_pretrain_gpt2_pipe.sh: --partition-activations; opened)"},
    {.name = "deepspeed-pipeline",
     .source_words = {"pp-lowbw"},
     .score_matrix = true,
     .separate_rows = true,
     .replays_all = true,
     .cuts_by_parameters = true,
     .blocking_messages = true,
     .accumulate_bytes = ACCUMULATE_HALF,
     .update_bytes = UPDATE_SEPARATE,
     .host_call_s = EAGER_CALL_S,
     .update_copies = COPIES_WHOLE,
     .keeps_outputs = true,
     .loss_bytes = LOSS_MEGATRON,
     .facts = "PipelineModule's partition_method is \"parameters\" by default (deepspeed/runtime/pipe/module.py)"},
    {.name = "megatron-lm-interleaved",
     .source_words = {"cases_april2021", "2104.04473"},
     .score_matrix = true,
     .separate_rows = true,
     .replays_all = true,
     .blocking_messages = true,
     .scatter_gather = true,
     .accumulate_bytes = ACCUMULATE_HALF,
     .update_bytes = UPDATE_SEPARATE,
     .host_call_s = EAGER_CALL_S,
     .update_copies = COPIES_SHARD,
     .loss_bytes = LOSS_MEGATRON,
     .facts = "scatter-gather messages came with the interleaved schedule (arXiv 2104.04473, section 4.1)"},
    {.name = "megatron-lm-v3",
     .source_words = {"2205.05198"},
     .score_matrix = true,
     .separate_rows = true,
     .replays_all = true,
     .blocking_messages = true,
     .scatter_gather = true,
     .update_bytes = UPDATE_SEPARATE,
     .host_call_s = EAGER_CALL_S,
     .update_copies = COPIES_SHARD,
     .loss_bytes = LOSS_MEGATRON,
     .facts = "as before, weight gradients added in the matrix product (Megatron-LM v3.0 release notes)"},
    {.name = "megatron",
     .first_year = 0,
     .last_year = 2022,
     .score_matrix = true,
     .separate_rows = true,
     .replays_all = true,
     .blocking_messages = true,
     .accumulate_bytes = ACCUMULATE_HALF,
     .update_bytes = UPDATE_SEPARATE,
     .host_call_s = EAGER_CALL_S,
     .update_copies = COPIES_SHARD,
     .loss_bytes = LOSS_MEGATRON,
     .facts =
         "before FlashAttention (arXiv 2205.14135): batched products, fused scale-mask-softmax and dropout through "
         "device memory (Megatron-LM v2, megatron/model/transformer.py)"},
    {.name = "flash-attention",
     .first_year = 2023,
     .last_year = 9999,
     .separate_rows = true,
     .blocking_messages = true,
     .facts = "sources after FlashAttention"},
};

const zp_software *zp_software_of(const zp_measured *run) {
  enum { N = sizeof profiles / sizeof *profiles };
  for (int i = 0; i < N; i++)
    for (int w = 0; w < 4 && profiles[i].source_words[w]; w++)
      if (run->source && strstr(run->source, profiles[i].source_words[w]) &&
          (profiles[i].zero == 0 || run->zero >= profiles[i].zero))
        return &profiles[i];
  for (int i = 0; i < N; i++)
    if (!profiles[i].source_words[0] && run->year >= profiles[i].first_year && run->year <= profiles[i].last_year)
      return &profiles[i];
  return &profiles[N - 1];
}
