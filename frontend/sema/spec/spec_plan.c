/* SPDX-License-Identifier: Apache-2.0 */
/* The `plan` block: the table of its keys, those that are no limits (spec_limits.c reads these), and defaults. */
#include "spec_internal.h"

static void read_memory(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base) {
  zp_constraints *plan = base;
  double share;
  if (attr->op != ZP_ATTR_LE && attr->op != ZP_ATTR_SET && attr->op != ZP_ATTR_LT) {
    zp_diag *d = zp_report(reader->diags, ZP_Z0622, attr->span, "`memory` is an upper limit");
    zp_diag_help(d, "write `memory <= 92%%`: the share of device memory that a plan may use");
    return;
  }
  if (zp_read_number(reader, env, attr->value, "memory", ZP_DIM_PERCENT, ZP_RANGE_FRACTION, &share))
    plan->memory_fraction = share;
}

/* Robust: time that a less exposed plan may cost. Where plans were measured, the one that is ranked first took 0.0 to
 * 0.7 % longer than the fastest of its group (docs/evidence/accuracy.md): the model does not tell apart less than that.
 * Memory: of the search. */
static const zp_constraints unwritten = {.robust = 0.005, .search_memory = ZP_SEARCH_MEMORY};

/* The search ends by itself, so its budget of time is never exhausted: checked, not kept. */
static const zp_field search_fields[] = {
    {"gap", ZP_FIELD_SHARE, .offset = offsetof(zp_constraints, search_gap), .range = ZP_RANGE_BELOW_ONE,
     .meaning = "the search stops when no plan is faster by more than this", .example = "gap = 1%"},
    {"memory", ZP_FIELD_BYTES, .offset = offsetof(zp_constraints, search_memory), .range = ZP_RANGE_POSITIVE,
     .meaning = "memory that the search may hold", .example = "memory = 512MiB"},
    {"budget", ZP_FIELD_SECONDS, .offset = ZP_CHECK_ONLY, .range = ZP_RANGE_POSITIVE,
     .meaning = "accepted and not used: the search ends by itself", .example = "budget = 60s", .missing = "no limit"},
    {"keep", ZP_FIELD_INT, .offset = ZP_CHECK_ONLY, .range = ZP_RANGE_ONE_OR_MORE,
     .meaning = "accepted and not used: `--top K` lists more plans", .example = "keep = 3", .missing = "1"},
};
static const zp_schema search_schema = ZP_SCHEMA_WITH("search", search_fields, 0, &unwritten);

#define TENSOR_WORD(word)                                                                                              \
  { word, ZP_FIELD_FOREIGN, .note = "here it is called `tensor`" }
#define PIPELINE_WORD(word)                                                                                            \
  { word, ZP_FIELD_FOREIGN, .note = "here it is called `pipeline`" }
#define DATA_WORD(word)                                                                                                \
  { word, ZP_FIELD_FOREIGN, .note = "here it is called `data`" }
#define CONTEXT_WORD(word)                                                                                             \
  { word, ZP_FIELD_FOREIGN, .note = "ranks that share a sequence are called `context`" }
#define EXPERT_WORD(word)                                                                                              \
  { word, ZP_FIELD_FOREIGN, .note = "here it is called `expert`" }
#define SHARD_WORD(word)                                                                                               \
  { word, ZP_FIELD_FOREIGN, .note = "here it is called `shard`: data ranks that divide the state" }
#define LIMIT_UNLESS(word, says, written, unless)                                                                      \
  { word, ZP_FIELD_CUSTOM, .read = NULL, .meaning = says, .example = written, .missing = unless }
#define LIMIT(word, says, written) LIMIT_UNLESS(word, says, written, "the search chooses")
/* LIMIT rows are read by spec_limits.c; they stand here so that the table is the whole list of keys. */
static const zp_field plan_fields[] = {
    LIMIT("tensor", "ranks that share every layer (tensor parallelism)", "tensor = 2"),
    LIMIT("pipeline", "stages that the layers are divided into (pipeline parallelism)", "pipeline = 2"),
    LIMIT("data", "copies of the model, each on samples of its own (data parallelism)", "data = 2"),
    LIMIT("expert", "ranks that the experts of a layer are spread over (expert parallelism)", "expert = 1"),
    LIMIT_UNLESS("context", "ranks that share the positions of every sample (context parallelism)", "context = 2",
                 "1; the search chooses where a GPU's sample has 32,768 positions or more"),
    LIMIT_UNLESS(
        "context_by",
        "what context ranks exchange around attention: heads (Ulysses), or keys and values, gathered or in a ring",
        "context_by = \"keys\" context = 2", "the search chooses"),
    LIMIT_UNLESS("idle", "devices of the cluster that a plan may leave out", "idle <= 2", "the search chooses"),
    LIMIT("zero",
          "ZeRO stage: what data ranks share of the state: 1 the optimizer's, 2 gradients too, 3 parameters too",
          "zero in [0, 1]"),
    LIMIT_UNLESS(
        "shard",
        "neighbouring data ranks that divide ZeRO's state among them; each group has a copy of all of it (HSDP, "
        "MiCS)",
        "shard = 1", "all data ranks"),
    LIMIT_UNLESS(
        "hpz",
        "neighbouring data ranks that divide a second copy of ZeRO 3's parameters among them, which backward gathers "
        "(hpZ of ZeRO++)",
        "hpz = 1", "none is kept"),
    LIMIT("microbatch", "sequences of a micro-batch on a data rank", "microbatch <= 4"),
    LIMIT("loss_chunks", "parts in which the loss of a micro-batch is computed, so that its logits need less memory",
          "loss_chunks = 1"),
    LIMIT("recompute", "what backward computes again instead of keeping it: nothing, inside attention, or whole layers",
          "recompute = \"auto\""),
    LIMIT("recompute_shard", "whether kept inputs of recomputed layers are split over the tensor ranks",
          "recompute_shard = \"tensor\""),
    {"stage_recompute", ZP_FIELD_CUSTOM, .read = zp_read_stage_modes,
     .meaning = "what single stages recompute, in the order of the stages; their number is the pipeline's",
     .example = "stage_recompute = [\"full\", \"none\"]", .missing = "the search chooses",
     .outside = "stage_recompute = [\"some\"]"},
    {"recompute_layers", ZP_FIELD_CUSTOM, .read = zp_read_mixed_layers,
     .meaning =
         "how many layers recompute of a stage, or of every chunk of it: the first ones; a number, or a list with "
         "one for every stage",
     .example = "recompute_layers = 3", .missing = "all of them", .outside = "recompute_layers = -1"},
    LIMIT_UNLESS("recompute_rest", "what the layers of a stage after `recompute_layers` recompute",
                 "recompute_rest = \"selective\" recompute_layers = 3", "nothing"),
    LIMIT("schedule", "order of micro-batches in the pipeline", "schedule = \"1f1b\""),
    LIMIT("cut",
          "where stages may begin: at layers, or also inside them; or the layers of every stage, `cut = [9, 8, 7]`",
          "cut = \"layer\""),
    LIMIT("chunks", "parts of the model on every stage (interleaved schedules)", "chunks = 2"),
    LIMIT_UNLESS("sequence",
                 "norms and dropout are split along the sequence over the tensor ranks (sequence parallelism)",
                 "sequence = true", "the search chooses; false on CPU nodes"),
    LIMIT_UNLESS("compress", "gradients are exchanged in 1 bit (1-bit Adam, 1-bit LAMB)", "compress = true", "=false"),
    LIMIT_UNLESS("offload", "where a class of state lives: params, gradients, optimizer or activations",
                 "offload[optimizer] = \"cpu\"", "=\"none\""),
    LIMIT("rank_order", "which ranks are neighbours: the axes from the innermost to the outermost",
          "rank_order = \"tdp\""),
    LIMIT("node_order", "whether nodes of several types may be taken in another order than written",
          "node_order = \"any\""),
    {"memory", ZP_FIELD_CUSTOM, .read = read_memory, .range = ZP_RANGE_FRACTION,
     .meaning = "share of a device's memory that a plan may use", .example = "memory <= 90%",
     .missing = ZP_TEXT(ZP_GPU_MEMORY_PERCENT) "% on GPUs, " ZP_TEXT(ZP_CPU_MEMORY_PERCENT) "% on CPU nodes",
     .outside = "memory <= 150%"},
    {"robust", ZP_FIELD_SHARE, .offset = offsetof(zp_constraints, robust), .range = ZP_RANGE_BELOW_ONE,
     .meaning = "a plan that shares its state over fewer ranks is taken if it is slower by at most this",
     .example = "robust = 1%"},
    {"objective", ZP_FIELD_CUSTOM, .read = zp_read_objective,
     .meaning = "what decides between machines and numbers of devices: `minimize(step_time)`, `minimize(cost)`",
     .example = "objective = minimize(step_time)", .missing = "=minimize(step_time)"},
    {"deadline", ZP_FIELD_LENGTH, .offset = offsetof(zp_constraints, terms.deadline_s),
     .meaning = "time in which the whole training must end", .example = "deadline = 30d", .missing = "none"},
    {"budget", ZP_FIELD_REAL, .offset = offsetof(zp_constraints, terms.budget), .range = ZP_RANGE_POSITIVE,
     .meaning = "dollars that the whole training may cost", .example = "budget = 250e3", .missing = "none"},
    {"search", ZP_FIELD_BLOCK, .block = &search_schema, .meaning = "effort of the search",
     .example = "search { gap = 1% }", .missing = "exact"},
    {"for", ZP_FIELD_STRING, .offset = offsetof(zp_constraints, program),
     .meaning = "program that the plan is for, where --for does not say it", .example = "for = \"megatron\"",
     .missing = "zplan's own trainer"},
    {"stage", ZP_FIELD_REFUSED,
     .note = "pin the layers of every stage with `cut = [9, 8, 7]`, or their number with `pipeline = ...`"},
    TENSOR_WORD("tp"),
    TENSOR_WORD("mp_size"),
    TENSOR_WORD("model_parallel"),
    TENSOR_WORD("tensor_parallel"),
    TENSOR_WORD("tensor_parallel_size"),
    TENSOR_WORD("tp_size"),
    TENSOR_WORD("tensor_model_parallel_size"),
    PIPELINE_WORD("pp"),
    PIPELINE_WORD("pipeline_parallel"),
    PIPELINE_WORD("pipeline_parallel_size"),
    PIPELINE_WORD("pp_size"),
    PIPELINE_WORD("pipeline_model_parallel_size"),
    DATA_WORD("dp"),
    DATA_WORD("data_parallel"),
    DATA_WORD("data_parallel_size"),
    DATA_WORD("dp_size"),
    EXPERT_WORD("ep"),
    EXPERT_WORD("expert_parallel"),
    EXPERT_WORD("expert_model_parallel_size"),
    SHARD_WORD("hsdp"),
    SHARD_WORD("mics"),
    SHARD_WORD("mics_shard_size"),
    {"zero_hpz_partition_size", ZP_FIELD_FOREIGN, .note = "here it is called `hpz`"},
    SHARD_WORD("hybrid_shard"),
    SHARD_WORD("data_parallel_shard_degree"),
    {"data_parallel_replicate_degree", ZP_FIELD_FOREIGN, .note = "derived: data / shard"},
    {"num_distributed_optimizer_instances", ZP_FIELD_FOREIGN, .note = "derived: data / shard"},
    {"zero_stage", ZP_FIELD_FOREIGN, .note = "here it is called `zero`"},
    {"micro_batch_size", ZP_FIELD_FOREIGN, .note = "here it is called `microbatch`"},
    {"micro_batch", ZP_FIELD_FOREIGN, .note = "here it is called `microbatch`"},
    {"train_micro_batch_size_per_gpu", ZP_FIELD_FOREIGN, .note = "here it is called `microbatch`"},
    {"gradient_checkpointing", ZP_FIELD_FOREIGN,
     .note = "here it is called `recompute`: \"none\", \"selective\", \"layer\" or \"auto\""},
    {"gradient_accumulation_steps", ZP_FIELD_FOREIGN, .note = "derived: batch / (data x microbatch)"},
    CONTEXT_WORD("cp"),
    CONTEXT_WORD("context_parallel"),
    CONTEXT_WORD("context_parallel_size"),
    {"zero_stage", ZP_FIELD_FOREIGN, .note = "here it is called `zero`"},
    {"micro_batch_size", ZP_FIELD_FOREIGN, .note = "here it is called `microbatch`"},
    {"gradient_accumulation_steps", ZP_FIELD_FOREIGN, .note = "derived: batch / (data x microbatch)"},
    {"recompute_num_layers", ZP_FIELD_FOREIGN, .note = "here it is called `recompute_layers`"},
    {"dualpipe", ZP_FIELD_FOREIGN, .note = "its V form, with half the stages, is written `schedule = \"dualpipev\"`"},
    {"activation_checkpointing", ZP_FIELD_FOREIGN,
     .note = "here it is called `recompute`: \"none\", \"selective\", \"layer\" or \"auto\""},
};
const zp_schema zp_plan_schema = ZP_SCHEMA_WITH("plan", plan_fields, 0, &unwritten);

/* What the search leaves alone unless it is told: state off the device and compressed gradients change how a cluster is
 * used, and norms split along the sequence pay where links are fast. */
static void set_defaults(const zp_reader *reader, zp_constraints *plan) {
  const zp_limit zero = {.set = true, .span = ZP_NO_SPAN};
  for (int i = 0; i < ZP_STATE_COUNT; i++)
    if (!plan->offload[i].set) plan->offload[i] = zero; /* ZP_TIER_DEVICE */
  if (!plan->compress.set) plan->compress = zero;
  if (!plan->sequence.set && reader->spec->cluster.node.device.is_cpu) plan->sequence = zero;
}

void zp_read_plan(zp_reader *reader, const zp_env *env, const zp_attrs *attrs, zp_constraints *plan) {
  zp_attrs limits = {0};
  for (int i = 0; i < attrs->len; i++)
    if (!zp_pins_cut(attrs->data[i])) zp_push(reader->arena, &limits, attrs->data[i]);
  zp_attrs others = zp_check_limit_keys(reader, &limits);
  zp_read_attrs(reader, env, &zp_plan_schema, &others, plan);
  zp_read_limits(reader, env, &limits, plan);
  zp_read_cut_layers(reader, env, attrs, plan);
  zp_check_cut_layers(reader, plan);
  zp_check_stage_modes(reader, plan);
  zp_check_mixed_layers(reader, plan);
  zp_place_terms(attrs, &plan->terms);
  const zp_attr *program = zp_find_attr(attrs, "for");
  plan->program_span = program ? program->span : ZP_NO_SPAN;
  set_defaults(reader, plan);
}
