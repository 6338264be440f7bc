/* SPDX-License-Identifier: Apache-2.0 */
/* The answer of `zplan FILE --pareto --json`, which the report page draws alongside the plan. */
#include <math.h>
#include "page_internal.h"

static bool is_number(const zp_json *point, const char *key) {
  double x = zp_json_get_real(point, key, NAN);
  return isfinite(x) && x > 0;
}

const char *zp_report_front_refusal(zp_arena *arena, const zp_json *front) {
  static const char *const numbers[] = {"devices", "step_s", "peak_bytes", "step_device_hours"};
  if (!front || !zp_json_is_array(front) || zp_json_count(front) == 0)
    return "it is no list of plans: `zplan FILE --pareto --json` writes one";
  for (int i = 0; i < zp_json_count(front); i++) {
    const zp_json *plan = zp_json_get(zp_json_at(front, i), "plan");
    if (!plan || !zp_json_is_object(plan)) return zp_format(arena, "its plan %d has no decisions", i + 1);
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
      if (!is_number(zp_json_at(front, i), numbers[k]))
        return zp_format(arena, "its plan %d has no `%s`", i + 1, numbers[k]);
  }
  return NULL;
}
