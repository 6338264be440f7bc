/* SPDX-License-Identifier: Apache-2.0 */
/* The schedule of a plan file: the orders that it states are played at once, with the message buffers that the layout
 * has. Counts what every chunk has in flight on the way; verify_arena.c compares with the slots. */
#include <zplan/schedule.h>
#include "verify_internal.h"

void zp_verify_order(zp_verifier *v) {
  const zp_choice *c = &v->choice;
  zp_strings findings = {0};
  zp_action **order = ZP_NEW_ARRAY(v->arena, zp_action *, c->pipeline);
  int64_t *length = ZP_NEW_ARRAY(v->arena, int64_t, c->pipeline);
  for (int s = 0; s < c->pipeline; s++) {
    length[s] = zp_order_length(c, v->microbatches);
    order[s] = ZP_ROOM_FOR(v->arena, zp_action, length[s]);
    const char *wrong = zp_read_stage_order(v->arena, zp_json_at(v->stages, s), c, s, v->microbatches, order[s]);
    if (wrong) zp_push(v->arena, &findings, wrong);
  }
  int64_t messages = zp_message_buffers(c, v->microbatches);
  if (findings.len == 0) v->played = zp_play_order(v->arena, c, v->microbatches, messages, order, length, &findings);
  for (int i = 0; i < findings.len; i++) zp_find(v, "%s", findings.data[i]);
}
