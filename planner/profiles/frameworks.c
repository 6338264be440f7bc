/* SPDX-License-Identifier: Apache-2.0 */
/* Programs with layers and communication of their own: PyTorch's FSDP, nanotron, OneFlow. */
#include "profiles.h"

/* FlashAttention-2 is about twice as fast as the first version (arXiv 2307.08691, abstract). */
enum { FIRST_FLASH_ATTENTION = 2 };

/* First bucket size of torch.nn.parallel.DistributedDataParallel (bucket_cap_mb = 25). */
#define DDP_BUCKET_BYTES (25.0 * 1024 * 1024)

/* Softmax in half precision alongside its gradient (sparse_softmax_cross_entropy in auto_mixed_precision_lists.cpp),
 * fp32 gradients in the update, from the cast of the weights; OneFlow of June 2021, opened. */
#define ONEFLOW                                                                                                        \
  .score_matrix = true, .separate_rows = true, .accumulate_bytes = ACCUMULATE_HALF, .loss_bytes = 2,                   \
  .update_copies = COPIES_SHARD, .dropout = true, .static_plan = true,                                                 \
  .communicators = {.tensor = 1, .data = 1, .pairs = 1}

#define FSDP_2                                                                                                         \
  .selects_operations = true, .overlaps_data = true, .loss_bytes = LOSS_PYTORCH, .prints_allocator = true,             \
  .communicators = PLAN_GROUPS

/* torch.compile fuses what moves rows in a layer; the loss is outside (torchtitan train.py: loss_fn). */
#define COMPILED .separate_loss = true, .replays_all = true, .host_call_s = EAGER_CALL_S, .autograd = true

static const zp_software profiles[] = {
    {.name = "fsdp-2023",
     .trainer = ZP_TRAINER_FSDP,
     .source_words = {"mosaicml"},
     .engine = true,
     EAGER,
     .communicators = PLAN_GROUPS,
     .attention_slowdown = FIRST_FLASH_ATTENTION,
     .overlaps_data = true,
     .facts =
         "PyTorch FSDP with the first FlashAttention in Triton and overlapped gathers (llm-foundry README), loss fused "
         "in half precision (llmfoundry/models/mpt/modeling_mpt.py: fused_crossentropy; opened)"},
    {.name = "fsdp-compiled",
     .trainer = ZP_TRAINER_FSDP,
     .newest = true,
     .source_words = {"asyncTP_llama3"},
     FSDP_2,
     COMPILED,
     .facts = "the same as fsdp, every layer through torch.compile (its table headings; opened)"},
    {.name = "fsdp-compiled",
     .trainer = ZP_TRAINER_FSDP,
     .source_words = {"torchtitan"},
     .only_compiled = true,
     FSDP_2,
     COMPILED,
     .facts = "the same as fsdp, every layer through torch.compile (the row's notes)"},
    {.name = "fsdp",
     .trainer = ZP_TRAINER_FSDP,
     .source_words = {"torchtitan"},
     EAGER,
     FSDP_2,
     .separate_gates = true,
     .float_norms = true,
     .float_rotary = true,
     .repeats_heads = true,
     .facts =
         "PyTorch FSDP2 with FlashAttention-2 and overlapped gathers (torchtitan docs); selective checkpointing by "
         "operator keeps attention and every second product (parallelize_llama.py; opened); norms, rotary positions, "
         "gates and repeated heads are single operations of PyTorch (models/norms.py, models/llama/model.py of "
         "December "
         "2024, norm_type \"rmsnorm\" in train_configs; opened)"},
    {.name = "automodel",
     .source_words = {"Automodel"},
     .engine = true,
     .sm90_attention = SM90_ATTENTION_2025,
     EAGER,
     .communicators = PLAN_GROUPS,
     .overlaps_data = true,
     .loss_bytes = LOSS_PYTORCH,
     .prints_allocator = true,
     .interleaves = true,
     .facts = "PyTorch FSDP2 and pipelining with Transformer Engine's linear layers, attention, norms and rotary "
              "positions, experts by DeepEP (NVIDIA-NeMo/Automodel examples/benchmark/configs, "
              "nemo_automodel/components/moe of November 2025, de7dff940; opened)"},
    {.name = "nanotron",
     .source_words = {"nanotron"},
     EAGER,
     .float_gradients = true,
     .separate_gates = true,
     .merged_products = true,
     .rearranges_heads = true,
     .overlaps_tensor = true,
     .whole_pieces = true,
     .scatters_wait = true,
     .overlaps_data = true,
     .sums_whole = true,
     .bucket_bytes = 2 * DDP_BUCKET_BYTES, /* sums in fp32 of a bucket in half precision */
     .cuts_by_products = true,
     .lists_ranks = true,
     .accumulate_bytes = ACCUMULATE_FLOAT,
     .blocking_messages = true,
     .communicators = MEGATRON_GROUPS,
     .joint_queries = true,
     .loss_bytes = LOSS_NANOTRON,
     .half_gradients = true,
     .holds_scattered = true,
     .prints_allocator = true,
     .prints_first_stage = true,
     .facts = "FlashAttention-2; fp32 gradients alongside half-precision ones of a whole backward pass (src/nanotron/"
              "optim/gradient_accumulator.py); queries are a view of the block of queries, keys and values (models/"
              "llama.py); memory is printed by rank 0 (helpers.py, log_throughput; all opened); asynchronous tensor "
              "parallelism "
              "(scripts/scaling_benchmarks.py; src/nanotron/parallel/tensor_parallel/functional.py), ZeRO 1 with lists "
              "of one slice a rank (src/nanotron/optim/zero.py)"},
    /* Norms: operand cast to fp32 (3 passes), read as such (2 more). Backward replays sum, cast and norm (3 + 3 + 5),
     * reads and writes fp32 (3) and casts the gradient (3). Logits: cast to fp32 and back (12 bytes), a loss on fp32
     * (12 for 6). */
    {.name = "internevo",
     .source_words = {"InternEvo", "InternLM"},
     EAGER,
     .communicators = PLAN_GROUPS,
     .attention_slowdown = FIRST_FLASH_ATTENTION,
     .separate_gates = true,
     .fused_loss = true,
     .norm_passes = 3 + 2,
     .norm_grad_passes = 3 + 3 + 5 + 3 + 3,
     .loss_moved = 12 + 12 - 6,
     .accumulate_bytes = ACCUMULATE_HALF,
     .update_bytes = UPDATE_SEPARATE,
     .update_copies = COPIES_SHARD,
     .overlaps_data = true,
     .broadcasts = true,
     .bucket_bytes = 2.0 * 512 * 1024 * 1024, /* elements of 2 bytes */
     .facts = "FlashAttention 1.0.5 with its fused loss and rotary positions, apex's RMS norm, SiLU and its product by "
              "PyTorch "
              "1.13, norms of fp32 operands that are replayed, logits in fp32 (core/naive_amp.py; doc/en/install.md, "
              "internlm/model/linear.py, modeling_internlm.py); gradients reduced alongside the "
              "last backward, weights broadcast rank by rank after it (solver/optimizer/hybrid_zero_optim.py, "
              "configs/7B_sft.py), all of 8 July 2023 (c18bec9), when the runs were published; opened"},
    {.name = "oneflow",
     .source_words = {"OneFlow"},
     .most_tensor = 1,
     ONEFLOW,
     .gradient_buckets = true,
     .overlaps_data = true,
     .facts = "static graph (arXiv 2110.15032), issued without Python; without tensor parallelism, collectives have a "
              "stream of their own"},
    {.name = "oneflow-tensor",
     .source_words = {"OneFlow"},
     ONEFLOW,
     .facts = "the same; with tensor parallelism its GPT puts collectives on the compute stream, so nothing overlaps "
              "(OneFlow-Benchmark, LanguageModeling/GPT: nccl_use_compute_stream)"},
};

const zp_profiles zp_profiles_frameworks = ZP_PROFILES(profiles);
