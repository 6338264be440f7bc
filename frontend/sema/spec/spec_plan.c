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

static void read_objective(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base) {
  (void)env, (void)base;
  const zp_expr *call = attr->value;
  const char *name = call && call->kind == ZP_EXPR_CALL ? zp_dotted_name(reader->arena, call->left) : NULL;
  const char *what = name && call->args.len == 1 ? zp_dotted_name(reader->arena, call->args.data[0].value) : NULL;
  if (attr->op == ZP_ATTR_SET && what && strcmp(name, "minimize") == 0 && strcmp(what, "step_time") == 0) return;
  zp_diag *d = zp_report(reader->diags, ZP_Z0623, attr->span, "this objective is not built");
  bool money = what && (strstr(what, "cost") || strstr(what, "price") || strstr(what, "dollar"));
  zp_diag_help(d, "the fastest plan is searched: `objective = minimize(step_time)`, or leave it out");
  if (money)
    zp_diag_help(
        d, "`price = 2.5` in the cluster block shows dollars; `--gpus 8..64` and `--pareto` set them against time");
  else if (what && strstr(what, "memory"))
    zp_diag_help(d, "`--pareto` sets memory against time; `memory <= 60%%` limits it");
}

/* The search ends by itself, so its budget of time is never exhausted: checked, not kept. */
static const zp_field search_fields[] = {
    {"gap", ZP_FIELD_SHARE, .offset = offsetof(zp_constraints, search_gap), .range = ZP_RANGE_BELOW_ONE},
    {"memory", ZP_FIELD_BYTES, .offset = offsetof(zp_constraints, search_memory), .range = ZP_RANGE_POSITIVE},
    {"budget", ZP_FIELD_SECONDS, .offset = ZP_CHECK_ONLY, .range = ZP_RANGE_POSITIVE},
    {"keep", ZP_FIELD_INT, .offset = ZP_CHECK_ONLY, .range = ZP_RANGE_ONE_OR_MORE},
};
static const zp_schema search_schema = ZP_SCHEMA("search", search_fields, 0);

#define TENSOR_WORD(word)                                                                                              \
  { word, ZP_FIELD_FOREIGN, .note = "here it is called `tensor`" }
#define PIPELINE_WORD(word)                                                                                            \
  { word, ZP_FIELD_FOREIGN, .note = "here it is called `pipeline`" }
#define DATA_WORD(word)                                                                                                \
  { word, ZP_FIELD_FOREIGN, .note = "here it is called `data`" }
#define EXPERT_WORD(word)                                                                                              \
  { word, ZP_FIELD_FOREIGN, .note = "here it is called `expert`" }
#define LIMIT(word)                                                                                                    \
  { word, ZP_FIELD_CUSTOM, .read = NULL }
/* LIMIT rows are read by spec_limits.c; they stand here so that the table is the whole list of keys. */
static const zp_field plan_fields[] = {
    LIMIT("tensor"),
    LIMIT("pipeline"),
    LIMIT("data"),
    LIMIT("expert"),
    LIMIT("idle"),
    LIMIT("zero"),
    LIMIT("microbatch"),
    LIMIT("loss_chunks"),
    LIMIT("recompute"),
    LIMIT("recompute_shard"),
    {"stage_recompute", ZP_FIELD_CUSTOM, .read = zp_read_stage_modes},
    LIMIT("schedule"),
    LIMIT("cut"),
    LIMIT("chunks"),
    LIMIT("sequence"),
    LIMIT("compress"),
    LIMIT("offload"),
    LIMIT("rank_order"),
    LIMIT("node_order"),
    {"memory", ZP_FIELD_CUSTOM, .read = read_memory},
    {"robust", ZP_FIELD_SHARE, .offset = offsetof(zp_constraints, robust), .range = ZP_RANGE_BELOW_ONE},
    {"objective", ZP_FIELD_CUSTOM, .read = read_objective},
    {"search", ZP_FIELD_BLOCK, .block = &search_schema},
    {"context", ZP_FIELD_REFUSED, .note = "this version splits by tensor, pipeline, data and experts only"},
    {"stage", ZP_FIELD_REFUSED,
     .note = "the planner cuts the stages, also unevenly; pin their number with `pipeline = ...`"},
    TENSOR_WORD("tp"),
    TENSOR_WORD("mp_size"),
    TENSOR_WORD("model_parallel"),
    TENSOR_WORD("tensor_parallel"),
    TENSOR_WORD("tensor_model_parallel_size"),
    PIPELINE_WORD("pp"),
    PIPELINE_WORD("pipeline_parallel"),
    PIPELINE_WORD("pipeline_model_parallel_size"),
    DATA_WORD("dp"),
    DATA_WORD("data_parallel"),
    EXPERT_WORD("ep"),
    EXPERT_WORD("expert_parallel"),
    EXPERT_WORD("expert_model_parallel_size"),
    {"zero_stage", ZP_FIELD_FOREIGN, .note = "here it is called `zero`"},
    {"micro_batch_size", ZP_FIELD_FOREIGN, .note = "here it is called `microbatch`"},
    {"gradient_accumulation_steps", ZP_FIELD_FOREIGN, .note = "derived: batch / (data x microbatch)"},
    {"activation_checkpointing", ZP_FIELD_FOREIGN,
     .note = "here it is called `recompute`: \"none\", \"selective\", \"layer\" or \"auto\""},
};
const zp_schema zp_plan_schema = ZP_SCHEMA("plan", plan_fields, 0);

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
  zp_attrs others = zp_check_limit_keys(reader, attrs);
  zp_read_attrs(reader, env, &zp_plan_schema, &others, plan);
  zp_read_limits(reader, env, attrs, plan);
  zp_check_stage_modes(reader, plan);
  set_defaults(reader, plan);
}
