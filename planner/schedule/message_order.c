/* Messages without tags: does every stage take those of a neighbour in the order in which they were sent? Transports
 * that match messages by their order alone (NCCL's) have a channel for every sender, receiver and direction. */
#include "schedule.h"

/* One end of a channel: a walk over the order table of its stage. */
typedef struct end {
  const zp_choice *choice;
  const zp_action *at, *last;
  int stage, other;
  bool up, sends;
  int64_t part, microbatch; /* of the message: the model chunk that sent it */
} end;

/* To the next action that has a message of the channel; false: there is none. */
static bool next_message(end *e) {
  const zp_choice *c = e->choice;
  int64_t parts = (int64_t)c->pipeline * zp_chunks(c);
  for (; e->at < e->last; e->at++) {
    const zp_action *a = e->at;
    if (a->act == ZP_ACT_BW || (a->act == ZP_ACT_F) != e->up) continue;
    int64_t mine = zp_model_chunk(c, e->stage, a->chunk), other = mine + (e->up == e->sends ? 1 : -1);
    if (other < 0 || other >= parts || zp_chunk_stage(c, other, NULL) != e->other) continue;
    e->part = e->sends ? mine : other;
    e->microbatch = a->microbatch;
    e->at++;
    return true;
  }
  return false;
}

static bool channel_in_order(const zp_choice *c, zp_action *const *order, const int64_t *length, int from, int to,
                             bool up) {
  end sender = {.choice = c, .at = order[from], .last = order[from] + length[from], .stage = from, .other = to};
  end receiver = {.choice = c, .at = order[to], .last = order[to] + length[to], .stage = to, .other = from};
  sender.sends = true;
  sender.up = receiver.up = up;
  for (;;) {
    bool sent = next_message(&sender), taken = next_message(&receiver);
    if (!sent || !taken) return sent == taken;
    if (sender.part != receiver.part || sender.microbatch != receiver.microbatch) return false;
  }
}

bool zp_messages_in_order(const zp_choice *choice, zp_action *const *order, const int64_t *length) {
  int p = choice->pipeline;
  for (int from = 0; from < p; from++)
    for (int step = -1; step <= 1; step += 2)
      for (int up = 0; up < 2; up++) {
        int to = (from + step + p) % p; /* the last and the first stage are neighbours, too, with several chunks */
        if (to != from && !channel_in_order(choice, order, length, from, to, up)) return false;
      }
  return true;
}
