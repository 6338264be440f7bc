/* SPDX-License-Identifier: Apache-2.0 */
/* Tables that other projects publish: what their columns do not say, each with where it stands. */
#include <ctype.h>
#include "columns.h"

/* ---- models by name ---- */

static const struct shape {
  const char *first, *second;
  zp_run_shape facts;
} shapes[] = {
#define ZP_DENSE(a, b, l, h, n, kv, f, v)                                                                              \
  {a, b, {.layers = l, .hidden = h, .heads = n, .kv_heads = kv, .ffn = f, .vocab = v}},
#define ZP_EXPERTS(a, b, l, h, n, kv, columns, f, v, e, k, ef, norms, w, biases, clamps)                               \
  {a,                                                                                                                  \
   b,                                                                                                                  \
   {.layers = l,                                                                                                       \
    .hidden = h,                                                                                                       \
    .heads = n,                                                                                                        \
    .kv_heads = kv,                                                                                                    \
    .head = columns,                                                                                                   \
    .ffn = f,                                                                                                          \
    .vocab = v,                                                                                                        \
    .experts = e,                                                                                                      \
    .top_k = k,                                                                                                        \
    .expert_ffn = ef,                                                                                                  \
    .head_norms = norms,                                                                                               \
    .window = w,                                                                                                       \
    .expert_biases = biases,                                                                                           \
    .clamped = clamps}},
#define ZP_LATENT(a, b, l, h, n, f, v, e, k, ef, s, d, more, g, tg)                                                    \
  {a,                                                                                                                  \
   b,                                                                                                                  \
   {.layers = l,                                                                                                       \
    .hidden = h,                                                                                                       \
    .heads = n,                                                                                                        \
    .kv_heads = n,                                                                                                     \
    .head = 128 + 64,                                                                                                  \
    .q_rank = 1536,                                                                                                    \
    .kv_rank = 512,                                                                                                    \
    .rotary_head = 64,                                                                                                 \
    .value_head = 128,                                                                                                 \
    .ffn = f,                                                                                                          \
    .vocab = v,                                                                                                        \
    .experts = e,                                                                                                      \
    .top_k = k,                                                                                                        \
    .expert_ffn = ef,                                                                                                  \
    .shared_experts = s,                                                                                               \
    .dense_layers = d,                                                                                                 \
    .further = more,                                                                                                   \
    .expert_groups = g,                                                                                                \
    .top_groups = tg}},
#define ZP_UNLIKE(a, why) {a, "", {.unlike = why}},
#include "shapes.def"
#undef ZP_DENSE
#undef ZP_EXPERTS
#undef ZP_LATENT
#undef ZP_UNLIKE
};

/* "DeepSeek V3 671B" -> "deepseekv3671b". */
static const char *squeezed(zp_arena *arena, const char *name) {
  char *out = zp_strdup(arena, name), *to = out;
  for (; *name; name++)
    if (isalnum((unsigned char)*name)) *to++ = (char)tolower((unsigned char)*name);
  *to = '\0';
  return out;
}

/* Layers that the row itself says stay. */
static void fill_shape(zp_arena *arena, zp_measured *run) {
  const char *name = squeezed(arena, run->model);
  run->shape.unlike = zp_format(arena, "the shape of `%s` is not known", run->model);
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    const struct shape *s = &shapes[i];
    if (!strstr(name, s->first) || !strstr(name, s->second)) continue;
    int64_t layers = run->shape.layers;
    run->shape = s->facts;
    if (layers) run->shape.layers = layers;
    run->shape.gated = run->shape.rotary = true;
    return;
  }
}

/* Sailor's scripts ask neither Megatron nor DeepSpeed for 16 bits (ae_scripts/clariden_scripts/run_opt.slurm @cf2c8e3c;
 * opened); its image is nvcr.io/nvidia/pytorch:24.10 (Dockerfile; opened). NVIDIA's PyTorch images set
 * TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1, so fp32 products run in TF32 (docs.monai.io, precision_accelerating; opened).
 * That this holds of 24.10, and that nothing unset it in the runs, is assumed. */
const char *zp_open_precision(const char *source) { return source && strstr(source, "sailor") ? "tf32" : NULL; }

/* ---- the tables ---- */

/* Facts of the vTrain tables that are no columns (measured/README.md, section 4). */
void zp_fill_vtrain(zp_arena *arena, zp_measured *run, const char *name) {
  run->id = zp_format(arena, "%s_%d", name, run->line);
  run->family = name;
  run->source = "vTrain (VIA-Research/vTrain), Megatron-DeepSpeed";
  run->year = 2022;
  run->gpu = "A100-SXM4-80GB";
  run->gpus_per_node = 8;
  run->intra_bytes_per_s = 300e9;
  run->inter_bytes_per_s = 12.5e9;
  run->chunks = 1;
  run->precision = "fp16";
  run->offload = "none";
  run->recompute = "full";
  run->sequence_said = true;
  run->zero = 0;
  run->fits = -1;
}

/* Data ranks of what is left; a table that prints degrees which do not divide its GPUs is wrong by check_degrees. */
static void fill_data(zp_measured *run) {
  int64_t others = (int64_t)(run->tensor ? run->tensor : 1) * (run->pipeline ? run->pipeline : 1) *
                   (run->context ? run->context : 1);
  if (!run->data) run->data = others <= run->gpus ? (int)(run->gpus / others) : 1;
}

/* Node, NVLink and network of NVIDIA's systems: DGX H100, B200 and B300 as in std.hw. An NVL72 domain joins 72 GPUs, of
 * which jobs of 64 and its multiples have 64: their groups are of powers of two. */
static void fill_system(zp_measured *run) {
  static const struct {
    const char *word;
    int devices;
    double memory_gb, intra, inter;
  } systems[] = {{"GB300", 64, 279, 900e9, 100e9},
                 {"GB200", 64, 186, 900e9, 50e9},
                 {"B300", 8, 270, 900e9, 100e9},
                 {"B200", 8, 180, 900e9, 50e9},
                 {"H100", 8, 80, 450e9, 50e9}};
  for (size_t i = 0; i < sizeof systems / sizeof *systems; i++) {
    if (!strstr(run->gpu, systems[i].word)) continue;
    run->gpu_memory_gb = systems[i].memory_gb;
    run->gpus_per_node = systems[i].devices;
    run->intra_bytes_per_s = systems[i].intra;
    run->inter_bytes_per_s = systems[i].inter;
    return;
  }
}

static bool says(const char *text, const char *word) { return text && strstr(text, word); }

static bool fits(const char *value, const char *wanted) { return !*wanted || (value && strcmp(value, wanted) == 0); }

/* Releases compare as texts: "26.04.01 NeMo Container". */
static void fill_recipe(zp_arena *arena, zp_measured *run) {
  static const struct {
    const char *model, *system, *precision, *first, *dispatcher, *graphs;
    bool hides, one_kernel, narrow_attention;
    const char *again;
  } recipes[] = {
#define ZP_RECIPE(model, system, precision, first, dispatcher, graphs, hides, one_kernel, narrow, again)               \
  {model, system, precision, first, dispatcher, graphs, hides, one_kernel, narrow, again},
#include "expert_recipes.def"
#undef ZP_RECIPE
  };
  const char *name = squeezed(arena, run->model);
  for (size_t i = 0; run->shape.experts && i < sizeof recipes / sizeof *recipes; i++) {
    if (strncmp(name, recipes[i].model, strlen(recipes[i].model)) != 0 || !fits(run->gpu, recipes[i].system)) continue;
    if (!fits(run->precision, recipes[i].precision)) continue;
    if (strcmp(run->version ? run->version : "", recipes[i].first) < 0) continue;
    run->dispatcher = recipes[i].dispatcher;
    run->graphs = recipes[i].graphs;
    run->hides_exchange = recipes[i].hides;
    run->one_kernel = recipes[i].one_kernel;
    run->narrow_attention = recipes[i].narrow_attention;
    run->again = recipes[i].again;
    return;
  }
}

/* Megatron-Bridge prints 8-bit recipes as FP8-CS (current scaling), FP8-MX and MXFP8; two in one row are those of two
 * figures, of which the first is read; FP8 alone is its FP8-CS (scripts/performance/configs). Its distributed optimizer
 * is ZeRO 1, and with an `fsdp` degree Megatron-FSDP, ZeRO 3, in groups of so many. */
void zp_fill_bridge(zp_arena *arena, zp_measured *run, const char *name) {
  (void)name;
  const char *printed = run->precision ? run->precision : "";
  run->program = "Megatron-Bridge";
  run->source = "NVIDIA-NeMo/Megatron-Bridge docs/performance-summary.md, Megatron-Core";
  run->year = 2025;
  run->adapters = says(run->notes, "LoRA");
  run->precision = says(printed, "NVFP4")                                     ? "nvfp4"
                   : says(printed, "MXFP8") || strcmp(printed, "FP8-MX") == 0 ? "mxfp8"
                   : says(printed, "FP8")                                     ? "fp8_current"
                   : says(printed, "BF16")                                    ? "bf16"
                                                                              : NULL;
  run->id = zp_format(arena, "bridge_%s_%s_%s_l%d", squeezed(arena, run->gpu), squeezed(arena, run->model),
                      run->precision ? run->precision : "open", run->line);
  run->family = zp_format(arena, "bridge_%s", squeezed(arena, run->gpu));
  fill_shape(arena, run);
  run->lays_out = true;
  fill_recipe(arena, run);
  if (run->adapters)
    run->lora_rank = 16, run->lora_of = "qkv"; /* configs/llama/llama3_llm_finetune.py of v0.5.0; opened */
  if (!run->precision)
    run->shape.unlike =
        *printed ? zp_format(arena, "products in `%s` are not known", printed) : "the precision is not printed";
  fill_system(run);
  fill_data(run);
  run->zero = run->shard > 0 ? 3 : 1;
  if (run->shard >= run->data) run->shard = 0;
  run->sequence = run->tensor > 1;
  run->sequence_said = true;
  run->fits = -1;
}

/* Its FSDP degree counts all ranks that share parameters; experts are spread over them. Where a pipeline prints local
 * batches, it is emptied after each. DeepSeek-V3 and Kimi K2 replay whole layers and gather parameters once a step, the
 * GPT-OSS rows replay nothing and spread experts over 64 and 8 ranks (examples/benchmark/configs of November 2025,
 * de7dff940; opened), the gate chooses consecutive experts (nemo_automodel/components/moe/layers.py, FakeBalancedGate);
 * adapters of rank 16 on all projections, the 70B model's layers replayed (examples/llm_benchmark/llama3_*; opened). */
void zp_fill_automodel(zp_arena *arena, zp_measured *run, const char *name) {
  (void)name;
  run->program = "AutoModel";
  run->source = "NVIDIA-NeMo/Automodel docs/performance-summary.mdx, FSDP";
  run->year = 2026;
  run->gpu = "H100-SXM5-80GB";
  run->precision = "bf16";
  run->adapters = says(run->notes, "LoRA");
  run->id = zp_format(arena, "automodel_%s_l%d", squeezed(arena, run->model), run->line);
  run->family = "automodel_";
  fill_shape(arena, run);
  run->lays_out = true;
  fill_system(run);
  fill_data(run);
  bool latent = run->shape.kv_rank > 0;
  run->zero = run->data <= 1 ? 0 : latent ? 1 : 3;
  run->recompute = latent || (run->adapters && run->gpus > 1) ? "full" : "none";
  if (run->shape.experts && !run->expert) run->expert = run->gpus;
  if (run->shape.experts) run->dispatcher = "deepep", run->graphs = "none", run->experts_in_a_row = true;
  run->flex_attention = says(run->kernels, "FlexAttn");
  if (run->adapters) run->lora_rank = 16, run->lora_of = "all";
  if (run->flushes < 1 || run->pipeline <= 1) run->flushes = 0;
  if (run->shard >= run->data) run->shard = 0;
  run->fits = -1;
}

enum { MOST_GPUS = 1000000 };

/* Runs of examples/pretrain scripts: micro-batch 1, distributed optimizer, sequence parallelism with tensor ranks, no
 * overlap (simu_tools/megatron_scripts; opened). Its 405B has 16 heads of keys and values
 * (configs/models/llama3-405b_padding_128.json). */
void zp_fill_simumax(zp_arena *arena, zp_measured *run, const char *name) {
  (void)name;
  run->id = zp_format(arena, "simumax_%s", run->id);
  run->family = "simumax_";
  run->program = "Megatron-LM core";
  run->version = "0.14";
  run->source = "MooreThreads/SimuMax docs/b200 (Megatron-LM core 0.14, one node of 8 B200)";
  run->notes = "no overlap of collectives";
  run->year = 2026;
  run->gpu = "B200-SXM-180GB";
  run->precision = "bf16";
  run->recompute = "none";
  run->offload = "none";
  fill_shape(arena, run);
  if (says(run->model, "405b")) run->shape.kv_heads = 16;
  /* of the cut models (MOE_LAYER_FREQ, --moe-token-dispatcher-type of run_pretrain_deepseekv2.sh) */
  if (run->shape.experts)
    run->shape.dense_layers = 1, run->shape.further = 0, run->dispatcher = "alltoall", run->graphs = "none";
  double gpus = (double)run->tensor * run->pipeline * run->data * run->context;
  run->gpus = gpus <= MOST_GPUS ? (int)gpus : MOST_GPUS; /* then they contradict the degrees */
  fill_system(run);
  run->microbatch = 1;
  run->batch *= run->data;
  run->chunks = 1;
  run->zero = 1;
  run->sequence = run->tensor > 1;
  run->sequence_said = true;
  run->serial = true;
  run->fits = -1;
}
