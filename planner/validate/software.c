/* Software profiles: in which documented, physical ways the program of a measured run differs from the one that the
 * planner lowers and the generator prints. A profile is chosen by the row's source, or by its year where the source is
 * not listed. Which facts were read again and which are from memory: docs/accuracy.md, "What was fitted". */
#include "validate_internal.h"

/* Bytes a gradient element moves when it is added to those of earlier micro-batches: two reads and a write in fp16
 * (autograd's AccumulateGrad). Megatron-LM v3 (2022) adds in the matrix product (--gradient-accumulation-fusion). */
enum { ACCUMULATE_HALF = 6 };
/* Added to a sum in fp32 in one kernel (nanotron src/nanotron/optim/gradient_accumulator.py), or by way of a copy
 * (deepspeed/runtime/bf16_optimizer.py: update_hp_grads). */
enum { ACCUMULATE_FLOAT = 2 + 8, ACCUMULATE_COPY = 6 + 12 };
/* ZeRO 3 copies every gradient into a bucket and divides it by the ranks there (deepspeed/runtime/zero/stage3.py). */
enum { ACCUMULATE_BUCKET = 8 };

/* Mixed-precision optimizer as separate kernels: gradients copied to fp32 (6), unscaled and checked (8), their norm
 * (4), clipped (8), weights copied back (6): megatron/optimizer/optimizer.py, 2021. The trainer's update reads the
 * gradient twice (4) and writes the weights (2) in one pass. */
enum { UPDATE_SEPARATE = 6 + 8 + 4 + 8 + 6 - 4 - 2 };

/* FlashAttention-2 is about twice as fast as the first version (arXiv 2307.08691, abstract). */
enum { FIRST_FLASH_ATTENTION = 2 };

/* Eager PyTorch: Python, dispatcher, autograd and checkpointing around one kernel. Estimate: the smallest runs on odd
 * lines of vTrain's one-node table (hidden 1,024, micro-batch 1) take 3.2 to 3.7 ms a layer for about 60 kernels
 * whatever their size. */
#define EAGER_CALL_S 53e-6

/* First bucket sizes of torch.nn.parallel.DistributedDataParallel (bucket_cap_mb = 25) and of Megatron-Core
 * (distributed_data_parallel.py: 40,000,000 elements), in bytes of fp32 gradients. */
#define DDP_BUCKET_BYTES (25.0 * 1024 * 1024)
#define MCORE_BUCKET_BYTES (4 * 40e6)

/* What all eager PyTorch programs have in common. */
#define EAGER .separate_rows = true, .replays_all = true, .host_call_s = EAGER_CALL_S
/* Batched products and scores in device memory, and a mixed-precision optimizer of separate kernels: Megatron-LM and
 * its descendants until FlashAttention. */
#define MEGATRON_BASE EAGER, .score_matrix = true, .blocking_messages = true, .update_bytes = UPDATE_SEPARATE
#define MEGATRON MEGATRON_BASE, .fused_softmax = true
/* Megatron-LM's first version, the base of DeepSpeedExamples/Megatron-LM: mpu/transformer.py, mpu/layers.py. */
#define MEGATRON_V1                                                                                                    \
  MEGATRON_BASE, .separate_scores = true, .separate_biases = true, .scatter_gather = true,                             \
                 .accumulate_bytes = ACCUMULATE_HALF

#define ONEFLOW .score_matrix = true, .separate_rows = true, .accumulate_bytes = ACCUMULATE_HALF

static const zp_software profiles[] = {
    {.name = "fsdp-2023",
     .source_words = {"mosaicml"},
     EAGER,
     .attention_slowdown = FIRST_FLASH_ATTENTION,
     .overlaps_data = true,
     .facts = "PyTorch FSDP with the first FlashAttention in Triton and overlapped gathers (llm-foundry README)"},
    {.name = "fsdp",
     .source_words = {"torchtitan"},
     EAGER,
     .replayed_products = 0.5,
     .overlaps_data = true,
     .facts =
         "PyTorch FSDP2 with FlashAttention-2 and overlapped gathers (torchtitan docs); selective checkpointing by "
         "operator keeps attention and every second product (parallelize_llama.py)"},
    {.name = "megatron-core",
     .source_words = {"model_table.png"},
     EAGER,
     .float_gradients = true,
     .overlaps_tensor = true,
     .overlaps_data = true,
     .bucket_bytes = MCORE_BUCKET_BYTES,
     .blocking_messages = true,
     .facts = "FlashAttention or cuDNN attention, fp32 gradient accumulation, --overlap-grad-reduce, "
              "--overlap-param-gather, --tp-comm-overlap (Megatron-Core r0.8 README)"},
    {.name = "nanotron",
     .source_words = {"nanotron"},
     EAGER,
     .float_gradients = true,
     .overlaps_tensor = true,
     .scatters_wait = true,
     .overlaps_data = true,
     .bucket_bytes = DDP_BUCKET_BYTES,
     .cuts_by_products = true,
     .lists_ranks = true,
     .accumulate_bytes = ACCUMULATE_FLOAT,
     .blocking_messages = true,
     .facts = "FlashAttention-2, fp32 gradient accumulation, DDP's buckets, asynchronous tensor parallelism "
              "(scripts/scaling_benchmarks.py; src/nanotron/parallel/tensor_parallel/functional.py), ZeRO 1 with lists "
              "of one slice a rank (src/nanotron/optim/zero.py)"},
    {.name = "oneflow",
     .source_words = {"OneFlow"},
     .most_tensor = 1,
     ONEFLOW,
     .overlaps_data = true,
     .facts = "static graph (arXiv 2110.15032), issued without Python; without tensor parallelism, collectives have a "
              "stream of their own"},
    {.name = "oneflow-tensor",
     .source_words = {"OneFlow"},
     ONEFLOW,
     .facts = "the same; with tensor parallelism its GPT puts collectives on the compute stream, so nothing overlaps "
              "(OneFlow-Benchmark, LanguageModeling/GPT: nccl_use_compute_stream)"},
    {.name = "megatron-deepspeed-bf16",
     .source_words = {"tr11-176B"},
     MEGATRON,
     .float_gradients = true,
     .scatter_gather = true,
     .accumulate_bytes = ACCUMULATE_COPY,
     .facts = "DeepSpeed's BF16_Optimizer accumulates and reduces gradients in fp32 (bigscience tr11 chronicles); its "
              "pipeline sends a piece a tensor rank (deepspeed/runtime/pipe/engine.py: pipe_partitioned)"},
    {.name = "megatron-deepspeed",
     .source_words = {"Megatron-DeepSpeed", "gpt-neox", "GLM-130B"},
     .most_zero = 1,
     MEGATRON,
     .scatter_gather = true,
     .accumulate_bytes = ACCUMULATE_HALF,
     .facts = "Megatron-LM v2 under DeepSpeed's pipeline, which sends a piece a tensor rank "
              "(deepspeed/runtime/pipe/engine.py: pipe_partitioned)"},
    {.name = "deepspeed-zero3-2021",
     .source_words = {"PTD-P vs ZeRO-3"},
     .zero = 3,
     MEGATRON,
     .gathers_wait = true,
     .accumulate_bytes = ACCUMULATE_BUCKET,
     .lists_ranks = true,
     .facts =
         "DeepSpeed 0.3: parameters gathered one by one with torch.distributed.all_gather into a list of one piece "
         "a rank (deepspeed/runtime/zero/partition_parameters.py: _allgather_param)"},
    {.name = "deepspeed-zero3-2022",
     .source_words = {"deepspeed-azure"},
     .zero = 3,
     MEGATRON,
     .gathers_wait = true,
     .accumulate_bytes = ACCUMULATE_BUCKET,
     .facts = "prefetch bucket of 5e7 elements, less than one matrix of these models (examples_deepspeed/azure/*.sh)"},
    {.name = "deepspeed-pipeline",
     .source_words = {"pp-lowbw"},
     MEGATRON_V1,
     .cuts_by_parameters = true,
     .facts = "PipelineModule's partition_method is \"parameters\" by default (deepspeed/runtime/pipe/module.py)"},
    {.name = "deepspeed-2020",
     .source_words = {"1910.02054", "ZeRO paper", "_tutorials/zero", "Sep 2020 blog", "blog, Sep 2020"},
     MEGATRON_V1,
     .gathers_wait = true,
     .facts = "DeepSpeedExamples/Megatron-LM: unfused attention, biases and dropouts; ZeRO 2 waits for its reductions "
              "(overlap_comm is false by default, deepspeed/runtime/zero/config.py)"},
    {.name = "megatron-lm-interleaved",
     .source_words = {"cases_april2021", "2104.04473"},
     MEGATRON,
     .scatter_gather = true,
     .accumulate_bytes = ACCUMULATE_HALF,
     .facts = "scatter-gather messages came with the interleaved schedule (arXiv 2104.04473, section 4.1)"},
    {.name = "megatron-lm-v3",
     .source_words = {"2205.05198"},
     MEGATRON,
     .scatter_gather = true,
     .facts = "as before, weight gradients added in the matrix product (Megatron-LM v3.0 release notes)"},
    {.name = "megatron",
     .first_year = 0,
     .last_year = 2022,
     MEGATRON,
     .accumulate_bytes = ACCUMULATE_HALF,
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

/* Several profiles fit a source that is known; the first in the table counts. Sources that are not: by year. */
static bool matches(const zp_software *software, const zp_measured *run) {
  if (run->zero < software->zero || (software->most_zero > 0 && run->zero > software->most_zero)) return false;
  if (software->most_tensor > 0 && run->tensor > software->most_tensor) return false;
  for (int w = 0; w < ZP_SOURCE_WORDS && software->source_words[w]; w++)
    if (run->source && strstr(run->source, software->source_words[w])) return true;
  return false;
}

const zp_software *zp_software_of(const zp_measured *run) {
  enum { N = sizeof profiles / sizeof *profiles };
  for (int i = 0; i < N; i++)
    if (matches(&profiles[i], run)) return &profiles[i];
  for (int i = 0; i < N; i++)
    if (!profiles[i].source_words[0] && run->year >= profiles[i].first_year && run->year <= profiles[i].last_year)
      return &profiles[i];
  return &profiles[N - 1];
}
