/* SPDX-License-Identifier: Apache-2.0 */
/* Orders that are not those of the schedule: a plan file's. Legal are those in which every stage comes to its end, with
 * as many message buffers as that takes. */
#include <zplan/hash.h>

#include <assert.h>
#include <zplan/schedule.h>

/* The fewest buffers with which nothing stands still, at least those of the schedule; 0 with *error: no number does.
 * Doubled from there on: one play each. */
static int64_t buffers_for(zp_arena *arena, const zp_choice *c, zp_own_order *own, const char **error) {
  int64_t messages = zp_message_buffers(c, own->microbatches), most = own->microbatches;
  for (;;) {
    zp_strings findings = {0};
    own->kept = zp_play_order(arena, c, own->microbatches, messages, own->table, own->length, &findings);
    if (findings.len == 0) return messages;
    *error = findings.data[0];
    if (messages >= most) return 0;
    messages = 2 * messages < most ? 2 * messages : most;
  }
}

static uint64_t hash_of(const zp_own_order *own, int stages) {
  uint64_t hash = ZP_HASH_START;
  for (int s = 0; s < stages; s++)
    for (int64_t i = 0; i < own->length[s]; i++) {
      const int32_t action[] = {s, own->table[s][i].act, own->table[s][i].chunk};
      hash = zp_hash(hash, action, sizeof action);
    }
  return hash;
}

const zp_own_order *zp_own_order_make(zp_arena *arena, const zp_choice *choice, int64_t microbatches, zp_action **table,
                                      const int64_t *length, const char **error) {
  assert(microbatches >= 1 && table && length && error);
  zp_choice of_schedule = *choice;
  zp_own_order *own = ZP_NEW(arena, zp_own_order);
  of_schedule.own_order = NULL;
  *own = (zp_own_order){.microbatches = microbatches, .table = table, .length = length};
  own->hash = hash_of(own, choice->pipeline);
  own->messages = buffers_for(arena, &of_schedule, own, error);
  return own->messages > 0 ? own : NULL;
}
