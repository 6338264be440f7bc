/* SPDX-License-Identifier: Apache-2.0 */
/* Plan constraints: what the planner asks about a limit. */
#include <zplan/spec.h>

bool zp_limit_allows(const zp_limit *limit, double value) {
  if (!limit->set) return true;
  if (limit->in.len == 0) return value >= limit->low && value <= limit->high;
  for (int i = 0; i < limit->in.len; i++)
    if (limit->in.data[i] == value) return true;
  return false;
}

bool zp_limit_leaves_device(const zp_limit *limit) {
  return limit->set && (zp_limit_allows(limit, ZP_TIER_HOST) || zp_limit_allows(limit, ZP_TIER_NVME));
}

bool zp_uses_all_devices(const zp_constraints *constraints, const zp_cluster *cluster) {
  const zp_limit *idle = &constraints->idle;
  if (!idle->set) return cluster->node.device.is_cpu;
  bool some = idle->in.len == 0 && idle->high > 0;
  for (int i = 0; i < idle->in.len; i++) some |= idle->in.data[i] > 0;
  return !some;
}
