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
