/* SPDX-License-Identifier: Apache-2.0 */
/* Words of other tools that mean the same wherever they are written: as a key of any block, as a value, as a name, with
 * `--set` or as an option. Words of one block alone stand in its table (spec/). */
#include <ctype.h>
#include <string.h>
#include <zplan/sema.h>

#define CONTEXT "ranks that share the positions of a sample are `context = 2`, in the `plan` block"
#define RING "a ring (p2p) is `context_by = \"ring\"` with `context = 2`, in the `plan` block"
#define CONTEXT_BY                                                                                                     \
  "what context ranks exchange is `context_by = \"heads\"` (a2a, Ulysses) `\"keys\"` (all_gather) or `\"ring\"` "      \
  "(p2p), in the `plan` block"
#define SEQUENCE                                                                                                       \
  "norms split along the sequence over tensor ranks are `sequence = true`, in the `plan` block; ranks that share the " \
  "positions of a sample are `context = 2`"
#define NO_ETP                                                                                                         \
  "not built: tensor ranks divide the experts as the plan says, with no degree of their own; `expert = 2` spreads "    \
  "them over data ranks"
#define ZERO(stage)                                                                                                    \
  "that is `zero = " stage "`, in the `plan` block; `shard` is the number of ranks that divide the state"
#define CHUNKS                                                                                                         \
  "several parts of the model a stage are `schedule = \"interleaved\"` with `chunks = 2`, in the `plan` block"
#define DROPLESS "write `capacity = dropless` in the model's `top_k_gate`: every expert's product has its own rows"
#define EXCHANGE "not built: rows of experts travel in one exchange over the `expert` ranks, which the plan chooses"
#define TILED "write `attention(q, k, v, heads = 8)`: it is computed in tiles, and scores are never whole"
#define DUALPIPEV "write `schedule = \"dualpipev\"`, in the `plan` block"
#define DUALPIPE                                                                                                       \
  "its form with two copies of the parameters is not built; its V form is `schedule = \"dualpipev\"`, in the `plan` "  \
  "block"
#define OFFLOAD(state) "write `offload[" state "] = \"cpu\"` or `\"nvme\"`, in the `plan` block"
#define PRECISION(word) "write `precision = \"" word "\"`, in the `train` block"
#define RECOMPUTE "what backward computes again is `recompute = \"selective\"` or `\"full\"`, in the `plan` block"
#define RECOMPUTE_LAYERS                                                                                               \
  "the first layers of every stage recompute with `recompute_layers = 3`, in the `plan` block; without it all do"
#define ACCUMULATION "derived: batch / (data x microbatch); `batch` is a key of `train`, the others are of `plan`"
#define MACHINE(node, name) "write `node = std.hw." node "` in the `cluster` block, or --machine " name
#define NO_SLICES                                                                                                      \
  "not built: a micro-batch has whole samples; `context = 2` in the `plan` block divides them over ranks"

static const struct {
  const char *word, *help;
} words[] = {
    {"cp_size", CONTEXT},
    {"context_parallelism", CONTEXT},
    {"context_parallel_degree", CONTEXT},
    {"ulysses", CONTEXT},
    {"ulysses_degree", CONTEXT},
    {"ulysses_sequence_parallel_size", CONTEXT},
    {"ds_sequence_parallel_size", CONTEXT},
    {"ring_attention", RING},
    {"ring_attn", RING},
    {"ring_degree", RING},
    {"cp_comm_type", CONTEXT_BY},
    {"context_parallel_rotate_method", CONTEXT_BY},
    {"sp", SEQUENCE},
    {"sp_size", SEQUENCE},
    {"sequence_parallel", SEQUENCE},
    {"sequence_parallel_size", SEQUENCE},
    {"tensor_parallelism", "that is `tensor = 2`, in the `plan` block"},
    {"pipeline_parallelism", "that is `pipeline = 2`, in the `plan` block"},
    {"data_parallelism", "that is `data = 2`, in the `plan` block"},
    {"expert_parallelism", "that is `expert = 2`, in the `plan` block"},
    {"ep_size", "that is `expert = 2`, in the `plan` block"},
    {"etp", NO_ETP},
    {"expert_tensor_parallel_size", NO_ETP},
    {"ddp", ZERO("0")},
    {"zero1", ZERO("1")},
    {"distributed_optimizer", ZERO("1")},
    {"use_distributed_optimizer", ZERO("1")},
    {"zero2", ZERO("2")},
    {"shard_grad_op", ZERO("2")},
    {"zero3", ZERO("3")},
    {"fsdp", ZERO("3")},
    {"fsdp2", ZERO("3")},
    {"full_shard", ZERO("3")},
    {"fully_shard", ZERO("3")},
    {"use_megatron_fsdp", ZERO("3")},
    {"vp", CHUNKS},
    {"vpp", CHUNKS},
    {"vp_size", CHUNKS},
    {"virtual_pipeline", CHUNKS},
    {"virtual_pipeline_model_parallel_size", CHUNKS},
    {"num_layers_per_virtual_pipeline_stage", CHUNKS},
    {"dualpipev", DUALPIPEV},
    {"dualpipe_v", DUALPIPEV},
    {"dualpipe", DUALPIPE},
    {"seq1f1b", NO_SLICES},
    {"num_microbatches", ACCUMULATION},
    {"grad_accum", ACCUMULATION},
    {"gas", ACCUMULATION},
    {"mbs", "that is `microbatch = 1`, in the `plan` block"},
    {"gbs", "that is `batch = 8`, in the `train` block"},
    {"recompute_granularity", RECOMPUTE},
    {"recompute_activations", RECOMPUTE},
    {"remat", RECOMPUTE},
    {"ac_mode", RECOMPUTE},
    {"recompute_method", RECOMPUTE_LAYERS},
    {"checkpoint_num_layers", RECOMPUTE_LAYERS},
    {"flash_attention", TILED},
    {"flash_attention_2", TILED},
    {"flash_attn", TILED},
    {"use_flash_attn", TILED},
    {"sdpa", TILED},
    {"deepep", EXCHANGE},
    {"hybridep", EXCHANGE},
    {"moe_token_dispatcher_type", EXCHANGE},
    {"moe_enable_deepep", EXCHANGE},
    {"dropless_moe", DROPLESS},
    {"megablocks", DROPLESS},
    {"grouped_gemm", DROPLESS},
    {"moe_grouped_gemm", DROPLESS},
    {"capacity_factor", "it is an argument in the model: `top_k_gate(scores, k = 2, capacity = 1.25)`"},
    {"moe_expert_capacity_factor", "it is an argument in the model: `top_k_gate(scores, k = 2, capacity = 1.25)`"},
    {"cpu_offload", OFFLOAD("optimizer")},
    {"offload_optimizer", OFFLOAD("optimizer")},
    {"optimizer_cpu_offload", OFFLOAD("optimizer")},
    {"zero_offload", OFFLOAD("optimizer")},
    {"offload_param", OFFLOAD("params")},
    {"zero_infinity", OFFLOAD("params")},
    {"cpu_offloading", OFFLOAD("activations")},
    {"bf16", PRECISION("mixed_bf16")},
    {"bf16_mixed", PRECISION("mixed_bf16")},
    {"fp16", PRECISION("mixed_fp16")},
    {"fp16_mixed", PRECISION("mixed_fp16")},
    {"fp8_hybrid", PRECISION("mixed_fp8")},
    {"fp8", PRECISION("mixed_fp8")},
    {"mxfp8", PRECISION("mixed_mxfp8")},
    {"nvfp4", PRECISION("mixed_nvfp4")},
    {"fp4", PRECISION("mixed_nvfp4")},
    {"fp8_block", PRECISION("mixed_fp8_block")},
    {"fp8_blockwise", PRECISION("mixed_fp8_block")},
    {"blockwise", PRECISION("mixed_fp8_block")},
    {"a100", MACHINE("dgx_a100", "dgx-a100")},
    {"h100", MACHINE("dgx_h100", "dgx-h100")},
    {"h200", MACHINE("dgx_h200", "dgx-h200")},
    {"h800", MACHINE("hgx_h800", "hgx-h800")},
    {"b200", MACHINE("dgx_b200", "dgx-b200")},
    {"gb200", MACHINE("nvl72", "gb200-nvl72")},
    {"sharp", "not built: sums inside switches of the network are neither planned nor trained"},
    {"nccl_sharp", "not built: sums inside switches of the network are neither planned nor trained"},
};

static bool is_spelt(const char *written, const char *word) {
  for (; *written && *word; written++, word++) {
    char c = *written == '-' ? '_' : (char)tolower((unsigned char)*written);
    if (c != *word) return false;
  }
  return *written == *word;
}

const char *zp_foreign_word(const char *word) {
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (is_spelt(word, words[i].word)) return words[i].help;
  return NULL;
}

bool zp_help_foreign(zp_diag *d, const char *word) {
  const char *help = zp_foreign_word(word);
  if (help) zp_diag_help(d, "%s", help);
  return help;
}
