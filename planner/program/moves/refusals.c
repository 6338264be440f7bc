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

static bool has_norms_of_heads(const zp_model *model) {
  for (int s = 0; s < model->segments.len; s++) {
    const zp_graph *graph = model->segments.data[s].graph;
    for (int n = 0; n < graph->nodes.len; n++)
      if (graph->nodes.data[n].op == ZP_OP_RMS_NORM && graph->nodes.data[n].attr.heads > 0) return true;
  }
  return false;
}

const char *zp_refuse_shared_by_heads(const zp_choice *c, const zp_spec *spec, zp_state state) {
  if (c->home[state].eighths > 0 && c->tensor > 1 && has_norms_of_heads(spec->model))
    return "of parameters and gradients off the device no part of another tensor rank is summed, which norms of heads "
           "need";
  return zp_refuse_home(c, spec, state);
}

const char *zp_moves_lacking(const zp_choice *choice) {
  assert(choice);
  const char *why = NULL;
  for (int i = 0; zp_move_strategies[i] && !why; i++)
    if (zp_move_strategies[i]->lacks) why = zp_move_strategies[i]->lacks(choice);
  return why;
}

bool zp_choice_is_generated(const zp_choice *choice, const char **why_not) {
  const char *why = zp_moves_lacking(choice);
  if (why_not) *why_not = why;
  return why == NULL;
}
