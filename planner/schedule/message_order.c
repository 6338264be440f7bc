/* SPDX-License-Identifier: Apache-2.0 */
/* Messages without tags: does every stage take those of a neighbour in the order in which they were sent? Transports
 * that match messages by their order alone (NCCL's) have a channel for every sender, receiver and direction. */
#include <zplan/schedule.h>

#include <assert.h>

/* One end of a channel: a walk over the order table of its stage. */
typedef struct end {
  const zp_action *at, *last;
  bool up;
  const int64_t *part; /* per chunk of the stage: the model chunk that sends in this channel; -1: none */
  int64_t microbatch;  /* of the message, */
  int64_t sender;      /* and the chunk that sent it */
} end;

/* To the next action that has a message of the channel; false: there is none. */
static bool next_message(end *e) {
  for (; e->at < e->last; e->at++) {
    const zp_action *a = e->at;
    if (e->part[a->chunk] < 0 || a->act == ZP_ACT_BW || (a->act == ZP_ACT_F) != e->up) continue;
    e->sender = e->part[a->chunk];
    e->microbatch = a->microbatch;
    e->at++;
    return true;
  }
  return false;
}

/* Which chunks of `stage` have messages to or from `other`; false: none has. */
static bool find_parts(const zp_choice *c, int stage, int other, bool up, bool sends, int64_t *part) {
  int64_t parts = (int64_t)c->pipeline * zp_chunks(c);
  bool any = false;
  for (int k = 0; k < zp_chunks(c); k++) {
    int64_t mine = zp_model_chunk(c, stage, k), theirs = mine + (up == sends ? 1 : -1);
    bool has = theirs >= 0 && theirs < parts && zp_chunk_stage(c, theirs, NULL) == other;
    part[k] = !has ? -1 : sends ? mine : theirs;
    any |= has;
  }
  return any;
}

/* room: for twice as many numbers as a stage has chunks. */
static bool channel_in_order(const zp_choice *c, zp_action *const *order, const int64_t *length, int from, int to,
                             bool up, int64_t *room) {
  end sender = {.at = order[from], .last = order[from] + length[from], .up = up, .part = room};
  end receiver = {.at = order[to], .last = order[to] + length[to], .up = up, .part = room + zp_chunks(c)};
  bool sends = find_parts(c, from, to, up, true, room), takes = find_parts(c, to, from, up, false, room + zp_chunks(c));
  assert(sends == takes);
  if (!sends || !takes) return true;
  for (;;) {
    bool sent = next_message(&sender), taken = next_message(&receiver);
    if (!sent || !taken) return sent == taken;
    if (sender.sender != receiver.sender || sender.microbatch != receiver.microbatch) return false;
  }
}

static bool all_in_order(const zp_choice *choice, zp_action *const *order, const int64_t *length, int64_t *room) {
  int p = choice->pipeline;
  for (int from = 0; from < p; from++)
    for (int step = -1; step <= 1; step += 2)
      for (int up = 0; up < 2; up++) {
        int to = (from + step + p) % p; /* the last and the first stage are neighbours, too, with several chunks */
        if (to != from && !channel_in_order(choice, order, length, from, to, up, room)) return false;
      }
  return true;
}

bool zp_messages_in_order(const zp_choice *choice, zp_action *const *order, const int64_t *length) {
  assert(order && length);
  zp_arena *scratch = zp_arena_new("messages");
  int64_t *room = ZP_NEW_ARRAY(scratch, int64_t, 2 * zp_chunks(choice));
  bool in_order = all_in_order(choice, order, length, room);
  zp_arena_free(scratch);
  return in_order;
}
