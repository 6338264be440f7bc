/* SPDX-License-Identifier: Apache-2.0 */
/* Decisions that do not go together, by the strategies' rows: whatever the model, and in zplan's own trainer. The
 * search asks before it prices, plan files are asked when they are read. */
#include "strategy.h"

#include <assert.h>
#include <zplan/schedule.h>

const char *zp_refuse_home(const zp_choice *c, const zp_spec *spec, zp_state state) {
  const zp_home *home = &c->home[state];
  const zp_node_type *node = &spec->cluster.node;
  if (home->eighths < 0 || home->eighths > 8) return "offloaded shares are 0 to 8 eighths";
  if ((home->tier == ZP_TIER_DEVICE) != (home->eighths == 0)) return "what is offloaded needs a share and a place";
  if (home->tier == ZP_TIER_DEVICE) return NULL;
  if (node->device.is_cpu) return "CPU ranks compute in host memory: there is nowhere to offload to";
  if (node->pcie_bytes_per_s <= 0 || node->host_bytes_per_s <= 0)
    return "the node type states no PCIe or host memory bandwidth, which offloading needs";
  if (home->tier == ZP_TIER_NVME && (node->nvme_read_bytes_per_s <= 0 || node->nvme_write_bytes_per_s <= 0))
    return "the node type states no NVMe bandwidth";
  return NULL;
}

/* A parameter alongside rows of heads. */
static bool is_shared_by_heads(const zp_node *node) {
  return zp_op_has(node->op, ZP_FLAG_HEAD_ROWS) && node->attr.heads > 0 && node->in.len > 1;
}

static bool has_norms_of_heads(const zp_model *model) {
  for (int s = 0; s < model->segments.len; s++) {
    const zp_graph *graph = model->segments.data[s].graph;
    for (int n = 0; n < graph->nodes.len; n++)
      if (is_shared_by_heads(&graph->nodes.data[n])) return true;
  }
  return false;
}

const char *zp_refuse_shared_by_heads(const zp_choice *c, const zp_spec *spec, zp_state state) {
  if (c->home[state].eighths > 0 && c->tensor > 1 && has_norms_of_heads(spec->model))
    return "of parameters and gradients off the device no part of another tensor rank is summed, which norms of heads "
           "need";
  return zp_refuse_home(c, spec, state);
}

/* ---- what no strategy of the list provides ---- */

static bool puts_offloaded(const zp_choice *c, zp_state state) { return c->home[state].tier != ZP_TIER_DEVICE; }
static bool params_leave(const zp_choice *c) { return puts_offloaded(c, ZP_STATE_PARAMS); }
static bool gradients_leave(const zp_choice *c) { return puts_offloaded(c, ZP_STATE_GRADIENTS); }
static bool optimizer_leaves(const zp_choice *c) { return puts_offloaded(c, ZP_STATE_OPTIMIZER); }
static bool saved_leave(const zp_choice *c) { return puts_offloaded(c, ZP_STATE_ACTIVATIONS); }
static bool sums(const zp_choice *c) { return c->data > 1 && !zp_shards_gradients(c) && !c->compress; }
static bool sends_back(const zp_choice *c) { return c->data > 1 && zp_shards_state(c) && !zp_shards_params(c); }
static bool has_copies(const zp_choice *c) { return zp_shards_state(c) && zp_shard_copies(c) > 1; }
static bool has_second_copy(const zp_choice *c) { return c->hpz > 0; }
static bool compresses(const zp_choice *c) { return c->compress; }
static bool has_stages(const zp_choice *c) { return c->pipeline > 1; }
static bool divides_positions(const zp_choice *c) { return zp_context_ranks(c) > 1; }
static bool spreads_experts(const zp_choice *c) { return zp_expert_ranks(c) > 1; }

/* Known without the strategies, because of one that is not in the list nobody else says it. */
static const struct {
  bool (*is_needed)(const zp_choice *choice);
  const char *missing;
} needs[ZP_MOVE_NEED_COUNT] = {
    [ZP_MOVE_NEED_PARAMS_OFFLOADED] = {params_leave, "no strategy moves parameters off the device"},
    [ZP_MOVE_NEED_GRADIENTS_OFFLOADED] = {gradients_leave, "no strategy moves gradients off the device"},
    [ZP_MOVE_NEED_OPTIMIZER_OFFLOADED] = {optimizer_leaves, "no strategy moves optimizer state off the device"},
    [ZP_MOVE_NEED_SAVED_OFFLOADED] = {saved_leave, "no strategy moves saved values off the device"},
    [ZP_MOVE_NEED_GATHER] = {zp_shards_params, "no strategy gathers parameters for ZeRO 3"},
    [ZP_MOVE_NEED_SCATTER] = {zp_shards_gradients, "no strategy scatters gradients for ZeRO 2 and 3"},
    [ZP_MOVE_NEED_SUMS] = {sums, "no strategy sums gradients over replicas"},
    [ZP_MOVE_NEED_BACK] = {sends_back, "no strategy sends updated weights back for ZeRO 1 and 2"},
    [ZP_MOVE_NEED_COPIES] = {has_copies, "no strategy sums gradients over copies of shards"},
    [ZP_MOVE_NEED_HPZ] = {has_second_copy, "no strategy keeps a second copy of the parameters"},
    [ZP_MOVE_NEED_SIGNS] = {compresses, "no strategy exchanges 1-bit gradients"},
    [ZP_MOVE_NEED_MESSAGES] = {has_stages, "no strategy sends messages between stages"},
    [ZP_MOVE_NEED_HEADS] = {divides_positions, "no strategy exchanges heads or keys in context groups"},
    [ZP_MOVE_NEED_EXCHANGE] = {spreads_experts, "no strategy exchanges slots in expert groups"},
};

static const char *find_missing(const zp_choice *choice) {
  unsigned missing = (1u << ZP_MOVE_NEED_COUNT) - 1;
  for (int i = 0; zp_move_strategies[i]; i++) missing &= ~zp_move_strategies[i]->provides;
  for (int i = 0; missing >> i; i++)
    if (missing >> i & 1 && needs[i].is_needed(choice)) return needs[i].missing;
  return NULL;
}

const char *zp_choice_refusal(const zp_choice *choice, const zp_spec *spec) {
  assert(choice && spec);
  const char *why = zp_schedule_refusal(choice);
  if (!why) why = find_missing(choice);
  for (int i = 0; zp_move_strategies[i] && !why; i++)
    if (zp_move_strategies[i]->refuses) why = zp_move_strategies[i]->refuses(choice, spec);
  return why || (choice->zero >= 0 && choice->zero <= 3) ? why : "ZeRO stages are 0 to 3";
}

const char *zp_choice_refusal_complete(const zp_choice *choice, const zp_spec *spec) {
  assert(choice && spec);
  const char *why = NULL;
  for (int i = 0; zp_move_strategies[i] && !why; i++)
    if (zp_move_strategies[i]->refuses_complete) why = zp_move_strategies[i]->refuses_complete(choice, spec);
  return why;
}

const char *zp_choice_lacking(const zp_choice *choice) {
  assert(choice);
  const char *why = find_missing(choice);
  for (int i = 0; zp_move_strategies[i] && !why; i++)
    if (zp_move_strategies[i]->lacks) why = zp_move_strategies[i]->lacks(choice);
  return why;
}
