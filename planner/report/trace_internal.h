/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the parts of the Chrome trace. */
#ifndef ZPLAN_TRACE_INTERNAL_H
#define ZPLAN_TRACE_INTERNAL_H

#include "report_internal.h"

/* ---- trace_lanes.c ---- */
/* Seconds and bytes of every queue alongside one action; ZP_QUEUE_COMPUTE: collectives in its units. They are spread
 * over the action; a lane shows their sum from its begin on. */
typedef struct zp_action_lanes {
  double busy_s[ZP_QUEUE_COUNT];
  int64_t bytes[ZP_QUEUE_COUNT];
} zp_action_lanes;
typedef struct zp_stage_lanes {
  zp_action_lanes *action; /* [chunk * (ZP_ACT_BW + 1) + act] */
  bool has[ZP_QUEUE_COUNT];
} zp_stage_lanes;
zp_stage_lanes zp_trace_lanes(zp_arena *arena, const zp_plan *plan, int stage);
const zp_action_lanes *zp_trace_action_lanes(const zp_stage_lanes *lanes, const zp_action *action);

#endif
