/* Plan constraints: the one question that the planner asks about a limit. */
#include <zplan/spec.h>

bool zp_limit_allows(const zp_limit *limit, double value) {
  if (!limit->set) return true;
  if (limit->in.len == 0) return value >= limit->low && value <= limit->high;
  for (int i = 0; i < limit->in.len; i++)
    if (limit->in.data[i] == value) return true;
  return false;
}
