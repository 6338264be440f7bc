/* What strategies refuse, and what zplan's own trainer lacks of them. */
#include "strategy.h"

#include <assert.h>

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

/* A parameter beside rows of heads. */
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

static unsigned needs_of(const zp_choice *c) {
  static const zp_state state_of[] = {[ZP_MOVE_NEED_PARAMS_AWAY] = ZP_STATE_PARAMS,
                                      [ZP_MOVE_NEED_GRADIENTS_AWAY] = ZP_STATE_GRADIENTS,
                                      [ZP_MOVE_NEED_OPTIMIZER_AWAY] = ZP_STATE_OPTIMIZER,
                                      [ZP_MOVE_NEED_SAVED_AWAY] = ZP_STATE_ACTIVATIONS};
  bool several = c->data > 1, back = zp_shards_state(c) && !zp_shards_params(c);
  const struct {
    zp_move_need need;
    bool is;
  } all[] = {{ZP_MOVE_NEED_GATHER, zp_shards_params(c)},
             {ZP_MOVE_NEED_SCATTER, zp_shards_gradients(c)},
             {ZP_MOVE_NEED_SUMS, several && !zp_shards_gradients(c) && !c->compress},
             {ZP_MOVE_NEED_BACK, several && back},
             {ZP_MOVE_NEED_SIGNS, c->compress},
             {ZP_MOVE_NEED_MESSAGES, c->pipeline > 1},
             {ZP_MOVE_NEED_EXCHANGE, zp_expert_ranks(c) > 1}};
  unsigned needs = 0;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) needs |= (unsigned)all[i].is << all[i].need;
  for (unsigned i = 0; i < sizeof state_of / sizeof *state_of; i++)
    needs |= (unsigned)(c->home[state_of[i]].tier != ZP_TIER_DEVICE) << i;
  return needs;
}

const char *zp_moves_missing(const zp_choice *choice) {
  static const char *const words[ZP_MOVE_NEED_COUNT] = {
      [ZP_MOVE_NEED_PARAMS_AWAY] = "no strategy moves parameters off the device",
      [ZP_MOVE_NEED_GRADIENTS_AWAY] = "no strategy moves gradients off the device",
      [ZP_MOVE_NEED_OPTIMIZER_AWAY] = "no strategy moves optimizer state off the device",
      [ZP_MOVE_NEED_SAVED_AWAY] = "no strategy moves saved values off the device",
      [ZP_MOVE_NEED_GATHER] = "no strategy gathers parameters for ZeRO 3",
      [ZP_MOVE_NEED_SCATTER] = "no strategy scatters gradients for ZeRO 2 and 3",
      [ZP_MOVE_NEED_SUMS] = "no strategy sums gradients over replicas",
      [ZP_MOVE_NEED_BACK] = "no strategy sends updated weights back for ZeRO 1 and 2",
      [ZP_MOVE_NEED_SIGNS] = "no strategy exchanges 1-bit gradients",
      [ZP_MOVE_NEED_MESSAGES] = "no strategy sends messages between stages",
      [ZP_MOVE_NEED_EXCHANGE] = "no strategy exchanges slots in expert groups",
  };
  unsigned missing = needs_of(choice);
  for (int i = 0; zp_move_strategies[i]; i++) missing &= ~zp_move_strategies[i]->provides;
  for (int i = 0; i < ZP_MOVE_NEED_COUNT; i++)
    if (missing >> i & 1) return words[i];
  return NULL;
}

const char *zp_moves_lacking(const zp_choice *choice) {
  assert(choice);
  const char *why = zp_moves_missing(choice);
  for (int i = 0; zp_move_strategies[i] && !why; i++)
    if (zp_move_strategies[i]->lacks) why = zp_move_strategies[i]->lacks(choice);
  return why;
}

bool zp_choice_is_generated(const zp_choice *choice, const char **why_not) {
  const char *why = zp_moves_lacking(choice);
  if (why_not) *why_not = why;
  return why == NULL;
}
