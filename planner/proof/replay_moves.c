/* SPDX-License-Identifier: Apache-2.0 */
/* What the list of moves (zplan/moves.h) says of when things go and where they are waited for, against what is played:
 * what is in a ring of two buffers may be on its way while a unit works, what is in one may not; what a unit reads came
 * before it, in every action that reads it; sums are complete before the norm. Who reads the list (prices, sizes of
 * rings, the trainer's printer) then reads what the replay has shown to be sound. Decisions are asked here, not
 * strategies. */
#include <zplan/buf.h>
#include "replay_internal.h"

/* Who waits, for moves of a class at a time on some queues. */
typedef struct rule {
  zp_move_what what;
  zp_move_when when;
  unsigned queues; /* bit zp_move_queue */
  zp_move_wait wait;
} rule;

#define ON(queue) (1u << ZP_QUEUE_##queue)
enum { TIERS = ON(UP) | ON(DOWN) | ON(READ) | ON(WRITE), ANY = ~0, MOST_RULES = 24 };

/* out: room for MOST_RULES. */
static int rules_of(const zp_replay *r, rule *out) {
  bool overlapped = zp_replay_buckets_overlap(r);
  const rule all[] = {
      {ZP_MOVE_PARAMETERS, ZP_WHEN_BEFORE_UNIT, TIERS, ZP_WAIT_BY_UNIT},
      {ZP_MOVE_PARAMETERS, ZP_WHEN_BEFORE_UNIT, ON(DATA), overlapped ? ZP_WAIT_BY_UNIT : ZP_WAIT_AT_ONCE},
      {ZP_MOVE_GRADIENTS, ZP_WHEN_AFTER_UNIT, TIERS | ON(HOST_MEMORY), ZP_WAIT_BY_BUFFER},
      {ZP_MOVE_GRADIENTS, ZP_WHEN_AFTER_UNIT, ON(DATA), overlapped ? ZP_WAIT_BY_BUFFER : ZP_WAIT_AT_ONCE},
      {ZP_MOVE_SAVED, ZP_WHEN_BEFORE_UNIT, TIERS, ZP_WAIT_BY_UNIT},
      {ZP_MOVE_SAVED, ZP_WHEN_AFTER_UNIT, TIERS, ZP_WAIT_BY_BUFFER},
      {ZP_MOVE_MESSAGE, ZP_WHEN_AFTER_ACTION, ANY, ZP_WAIT_BY_RECEIVER},
      {ZP_MOVE_PARTIAL, ZP_WHEN_IN_UNIT, ANY, ZP_WAIT_AT_ONCE},
      {ZP_MOVE_SLOTS, ZP_WHEN_IN_UNIT, ANY, ZP_WAIT_AT_ONCE},
      {ZP_MOVE_HEADS, ZP_WHEN_IN_UNIT, ANY, ZP_WAIT_AT_ONCE},
      {ZP_MOVE_GRADIENTS, ZP_WHEN_OVERLAPPED_BACKWARD, ANY, ZP_WAIT_BY_NORM},
      {ZP_MOVE_GRADIENTS, ZP_WHEN_AFTER_BACKWARD, ANY, ZP_WAIT_BY_NORM},
      {ZP_MOVE_GRADIENTS, ZP_WHEN_AT_HOST_UPDATE, TIERS | ON(HOST_MEMORY), ZP_WAIT_BY_STEP},
      {ZP_MOVE_PARAMETERS, ZP_WHEN_AT_HOST_UPDATE, (TIERS | ON(HOST_MEMORY)) & ~ON(DOWN), ZP_WAIT_BY_STEP},
      {ZP_MOVE_PARAMETERS, ZP_WHEN_AT_HOST_UPDATE, ON(DOWN), ZP_WAIT_AT_ONCE}, /* of all ranks, to an owner */
      {ZP_MOVE_OPTIMIZER, ZP_WHEN_AT_HOST_UPDATE, ANY, ZP_WAIT_BY_STEP},
      {ZP_MOVE_OPTIMIZER, ZP_WHEN_OVERLAPPED_NEXT, ANY, ZP_WAIT_BY_NEXT},
  };
  memcpy(out, all, sizeof all);
  return (int)(sizeof all / sizeof *all);
}

static const char *act_word(zp_act act) {
  static const char *const words[] = {[ZP_ACT_F] = "forward",
                                      [ZP_ACT_B] = "backward",
                                      [ZP_ACT_BI] = "gradients of inputs",
                                      [ZP_ACT_BW] = "gradients of weights"};
  return words[act];
}

static void check_waits(zp_replay *r, const zp_move_list *list) {
  rule rules[MOST_RULES];
  int n = rules_of(r, rules);
  for (int i = 0; i < list->len; i++) {
    const zp_move *m = &list->data[i];
    for (int k = 0; k < n; k++)
      if (rules[k].what == m->what && rules[k].when == m->when && rules[k].queues >> m->queue & 1 &&
          rules[k].wait != m->wait)
        zp_replay_find(r, NULL, "the list of moves has %s waited for elsewhere than the steps do", m->strategy->name);
  }
}

/* Elements that data ranks gather or scatter in an action, all units together; one rank alone copies. */
static int64_t listed(const zp_move_list *list, zp_move_what what, zp_move_when when, zp_act act) {
  int64_t elements = 0;
  for (int i = 0; i < list->len; i++) {
    const zp_move *m = &list->data[i];
    if (m->what == what && m->when == when && m->act == act && m->queue == ZP_QUEUE_DATA)
      elements += m->elements * m->count;
  }
  return elements;
}

/* Elements of the buckets of all calls, or of those that are trained. */
static int64_t bucket_elements(const zp_replay *r, bool trained) {
  const zp_choice *c = &r->program->choice;
  zp_arena_mark mark = zp_arena_get_mark(r->arena);
  zp_bucket *bucket = ZP_NEW_ARRAY(r->arena, zp_bucket, ZP_KINDS + r->lowered->shared.len);
  int64_t elements = 0;
  for (int k = 0; k < r->stage->n_chunks; k++)
    for (int64_t j = 0; j < r->chunk[k].calls; j++) {
      int n = zp_unit_buckets(r->lowered, c, r->chunk[k].call[j].run->segment, bucket);
      for (int b = 0; b < n; b++) elements += !trained || zp_kinds[bucket[b].kind].trained ? bucket[b].elements : 0;
    }
  zp_arena_rewind(r->arena, mark);
  return elements;
}

static void check_presence(zp_replay *r, const zp_move_list *list, zp_act act) {
  const zp_choice *c = &r->program->choice;
  int64_t read = zp_shards_params(c) && act != ZP_ACT_BW ? bucket_elements(r, false) : 0,
          made = zp_shards_gradients(c) && (act == ZP_ACT_B || act == ZP_ACT_BW) ? bucket_elements(r, true) : 0;
  if (listed(list, ZP_MOVE_PARAMETERS, ZP_WHEN_BEFORE_UNIT, act) != read)
    zp_replay_find(r, NULL, "the list of moves gathers other parameters than %s reads", act_word(act));
  if (listed(list, ZP_MOVE_GRADIENTS, ZP_WHEN_AFTER_UNIT, act) != made)
    zp_replay_find(r, NULL, "the list of moves scatters other gradients than %s makes", act_word(act));
}

/* ---- bytes of gathered weights ---- */

static int64_t gathered_bytes(const zp_move_list *list, zp_move_when when, zp_act act) {
  int64_t bytes = 0;
  for (int i = 0; i < list->len; i++) {
    const zp_move *m = &list->data[i];
    bool here = m->what == ZP_MOVE_PARAMETERS && m->when == when && (when == ZP_WHEN_AFTER_UPDATE || m->act == act);
    if (here && m->queue == ZP_QUEUE_DATA) bytes += m->elements * m->element_bytes * m->count;
  }
  return bytes;
}

/* What a gather is spared of a cast that stands alone, in bits. After an update MXFP8 comes in 16 bits by way of the
 * gradients, or in rows and in columns. */
static int spared_bits(const zp_replay *r) {
  switch (r->program->spec->train.precision) {
  case ZP_PREC_MIXED_FP8:
  case ZP_PREC_MIXED_FP8_DELAYED: return 8;
  case ZP_PREC_MIXED_MXFP8: return zp_shards_params(&r->program->choice) ? 8 : 0;
  case ZP_PREC_MIXED_NVFP4: return 12;
  default: return 0;
  }
}

static void check_bytes(zp_replay *r, const zp_move_list *list) {
  const zp_choice *c = &r->program->choice;
  int64_t each = r->lowered->param_bytes, spared = zp_replay_count_casts(r) * spared_bits(r) / 8, got, want;
  if (r->program->spec->cluster.node.device.is_cpu || c->home[ZP_STATE_PARAMS].eighths > 0 || c->data == 1) return;
  if (zp_shards_params(c)) {
    got = gathered_bytes(list, ZP_WHEN_BEFORE_UNIT, ZP_ACT_F);
    want = bucket_elements(r, false) * each - spared;
  } else {
    got = gathered_bytes(list, ZP_WHEN_AFTER_UPDATE, ZP_ACT_F);
    want = zp_shards_state(c) ? zp_flat_trained(&r->stage->flat) * each - spared : 0;
  }
  if (got != want)
    zp_replay_find(r, NULL, "the list of moves gathers %lld bytes of weights, the stage has %lld", (long long)got,
                   (long long)want);
}

/* One kind a chunk and direction: sent where the next chunk of the model is another stage's, else copied. */
static void check_messages(zp_replay *r, const zp_move_list *list, bool stays) {
  const zp_choice *c = &r->program->choice;
  int64_t sent = 0, wanted = 0;
  for (int i = 0; i < list->len; i++)
    sent += list->data[i].what == ZP_MOVE_MESSAGE && (list->data[i].way == ZP_WAY_COPY) == stays;
  for (int k = 0; k < r->stage->n_chunks; k++) {
    int64_t part = r->chunk[k].part;
    wanted += !r->chunk[k].is_last && (zp_chunk_stage(c, part + 1, NULL) == r->stage->index) == stays;
    wanted += part > 0 && (zp_chunk_stage(c, part - 1, NULL) == r->stage->index) == stays;
  }
  if (sent != wanted)
    zp_replay_find(r, NULL, "the list of moves has %lld kinds of messages that are %s, the stage %lld", (long long)sent,
                   stays ? "copied" : "sent", (long long)wanted);
}

/* A delayed update changes all of the stage's state alongside the next step, and nothing of it in its own; another one
 * leaves nothing to the next step. Gradients and weights cross in either case by the end of the step (check_waits), so
 * the next one neither writes to what is still read nor computes with weights in part. */
static void check_delayed(zp_replay *r, const zp_move_list *list) {
  int64_t late = 0, at_once = 0, up = 0, down = 0;
  bool delayed = r->program->spec->train.delayed;
  for (int i = 0; i < list->len; i++) {
    const zp_move *m = &list->data[i];
    int64_t elements = m->elements * m->times * m->count;
    if (m->when == ZP_WHEN_OVERLAPPED_NEXT && m->what != ZP_MOVE_OPTIMIZER)
      zp_replay_find(r, NULL, "the list of moves leaves %s to the next step", m->strategy->name);
    if (m->when == ZP_WHEN_OVERLAPPED_NEXT) late += elements;
    if (m->when != ZP_WHEN_AT_HOST_UPDATE) continue;
    at_once += m->what == ZP_MOVE_OPTIMIZER ? elements : 0;
    up += m->queue == ZP_QUEUE_UP ? elements : 0;
    down +=
        m->what == ZP_MOVE_GRADIENTS && (m->queue == ZP_QUEUE_DOWN || m->queue == ZP_QUEUE_HOST_MEMORY) ? elements : 0;
  }
  int64_t state = zp_flat_trained(&r->stage->shard);
  if (!delayed && late > 0) zp_replay_find(r, NULL, "the list of moves leaves an update to the next step, unasked");
  if (delayed && (late != state || at_once > 0))
    zp_replay_find(r, NULL, "the list of moves updates %lld of %lld elements alongside the next step", (long long)late,
                   (long long)state);
  if (delayed && (up != state || down != state))
    zp_replay_find(r, NULL, "the list of moves exchanges other gradients and weights than a delayed update has");
}

void zp_replay_check_moves(zp_replay *r, const zp_move_list *list) {
  bool splits = zp_schedule_splits(r->program->choice.schedule);
  check_waits(r, list);
  check_presence(r, list, ZP_ACT_F);
  check_presence(r, list, splits ? ZP_ACT_BI : ZP_ACT_B);
  if (splits) check_presence(r, list, ZP_ACT_BW);
  check_bytes(r, list);
  check_delayed(r, list);
  check_messages(r, list, false);
  check_messages(r, list, true);
}
