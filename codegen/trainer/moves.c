/* SPDX-License-Identifier: Apache-2.0 */
/* Which calls of the runtime the list of moves (zplan/moves.h) asks for. A record belongs to every row with what it
 * moves, its time, its queue and its wait; a row is one call, for a unit, for each of its buckets or once a step. What
 * is on disks or summed on the host goes with the call that brings it there. Steps of a unit and messages have printers
 * of their own; norm and update are the runtime's. */
#include "emit.h"

#include <assert.h>

#define ON(queue) (1u << ZP_QUEUE_##queue)
#define WAITS(wait) (1u << ZP_WAIT_##wait)
#define ANY (~0u)

typedef enum grouping { EITHER, TOGETHER, ONE_BY_ONE } grouping; /* all buckets at once, or a record a bucket */

typedef struct row {
  zp_move_what what;
  zp_move_when when;
  unsigned queues, waits;
  grouping buckets;
} row;

static const row rows[ZP_CALL_COUNT] = {
    [ZP_CALL_READ_PARAMS] = {ZP_MOVE_PARAMETERS, ZP_WHEN_BEFORE_UNIT, ON(READ), ANY},
    [ZP_CALL_FETCH_PARAMS] = {ZP_MOVE_PARAMETERS, ZP_WHEN_BEFORE_UNIT, ON(UP), ANY},
    [ZP_CALL_GATHER_PARAMS] = {ZP_MOVE_PARAMETERS, ZP_WHEN_BEFORE_UNIT, ON(UP) | ON(DATA) | ON(DEVICE_MEMORY), ANY},
    [ZP_CALL_GATHER_OVERLAPPED] = {ZP_MOVE_PARAMETERS, ZP_WHEN_BEFORE_UNIT, ON(DATA), WAITS(BY_UNIT)},
    [ZP_CALL_SCATTER_GRADS] = {ZP_MOVE_GRADIENTS, ZP_WHEN_AFTER_UNIT, ANY, ANY},
    [ZP_CALL_SCATTER_OVER_RANKS] = {ZP_MOVE_GRADIENTS, ZP_WHEN_AFTER_UNIT, ON(DATA), ANY},
    [ZP_CALL_SCATTER_OVERLAPPED] = {ZP_MOVE_GRADIENTS, ZP_WHEN_AFTER_UNIT, ON(DATA), WAITS(BY_BUFFER)},
    [ZP_CALL_LAND_GRADS] = {ZP_MOVE_GRADIENTS, ZP_WHEN_AFTER_UNIT, ON(DOWN), ANY},
    [ZP_CALL_REDUCE_GRADS] = {ZP_MOVE_GRADIENTS, ZP_WHEN_OVERLAPPED_BACKWARD, ON(DATA), ANY},
    [ZP_CALL_SAVED_READ] = {ZP_MOVE_SAVED, ZP_WHEN_BEFORE_UNIT, ON(READ), ANY},
    [ZP_CALL_SAVED_GET] = {ZP_MOVE_SAVED, ZP_WHEN_BEFORE_UNIT, ON(UP) | ON(DEVICE_MEMORY), ANY},
    [ZP_CALL_SAVED_PUT] = {ZP_MOVE_SAVED, ZP_WHEN_AFTER_UNIT, ANY, ANY},
    [ZP_CALL_ONE_BIT_EXCHANGE] = {ZP_MOVE_SIGNS, ZP_WHEN_AFTER_BACKWARD, ANY, ANY},
    [ZP_CALL_SUM_FLAT] = {ZP_MOVE_GRADIENTS, ZP_WHEN_AFTER_BACKWARD, ON(DATA), ANY, TOGETHER},
    [ZP_CALL_SUM_BUCKETS] = {ZP_MOVE_GRADIENTS, ZP_WHEN_AFTER_BACKWARD, ANY, ANY, ONE_BY_ONE},
    [ZP_CALL_SUM_TIES] = {ZP_MOVE_GRADIENTS, ZP_WHEN_AFTER_BACKWARD, ON(TIES) | ON(READ) | ON(WRITE), ANY, TOGETHER},
    [ZP_CALL_SUM_PARTIAL] = {ZP_MOVE_GRADIENTS, ZP_WHEN_AFTER_BACKWARD, ON(TENSOR), ANY},
    [ZP_CALL_SHARE_WEIGHTS] = {ZP_MOVE_PARAMETERS, ZP_WHEN_AFTER_UPDATE, ANY, ANY},
};

static unsigned calls_of(const zp_move *m) {
  unsigned calls = 0;
  for (int i = 0; i < ZP_CALL_COUNT; i++)
    if (rows[i].what == m->what && rows[i].when == m->when && rows[i].queues >> m->queue & 1 &&
        rows[i].waits >> m->wait & 1 &&
        (rows[i].buckets == EITHER || rows[i].buckets == (m->bucket < 0 ? TOGETHER : ONE_BY_ONE)))
      calls |= 1u << i;
  return calls;
}

static void add_calls(void *user, const zp_move *m) {
  unsigned calls = calls_of(m);
  bool updates =
      (m->when >= ZP_WHEN_AT_NORM && m->when <= ZP_WHEN_AT_DEVICE_UPDATE) || m->when == ZP_WHEN_OVERLAPPED_NEXT;
  bool elsewhere = m->when == ZP_WHEN_IN_UNIT || m->when == ZP_WHEN_AFTER_ACTION || updates;
  assert(calls || elsewhere); /* nothing moves without a call */
  (void)elsewhere;
  *(unsigned *)user |= calls;
}

static zp_move_scope scope_of(const zp_emit *e, const zp_lowered *lowered, zp_move_moment moment) {
  zp_move_scope scope = zp_move_scope_of(lowered, &e->program->choice);
  scope.cpu = !e->gpu;
  scope.moment = moment;
  return scope;
}

unsigned zp_emit_find_calls(const zp_emit *e) {
  unsigned calls = 0;
  for (int s = 0; s < e->program->choice.pipeline; s++) {
    zp_move_scope unit = scope_of(e, zp_program_lowered(e->program, s), ZP_MOMENT_ACTION);
    for (unit.segment = 0; unit.segment < e->lowered->n_segments; unit.segment++) {
      unit.moment = ZP_MOMENT_ACTION;
      for (int act = 0; act <= ZP_ACT_BW; act++) {
        unit.act = (zp_act)act;
        zp_make_moves(&unit, add_calls, &calls);
      }
      unit.moment = ZP_MOMENT_BUCKETS;
      zp_make_moves(&unit, add_calls, &calls);
    }
    zp_move_scope end = zp_move_scope_of_stage(e->program, s);
    end.cpu = !e->gpu;
    end.moment = ZP_MOMENT_STEP;
    zp_make_moves(&end, add_calls, &calls);
  }
  return calls;
}

/* ---- of one unit ---- */

typedef struct listing {
  const zp_emit *e;
  zp_call call;
  zp_ints buckets;
} listing;

static void add_bucket(void *user, const zp_move *m) {
  listing *x = user;
  if (m->bucket < 0 || !(calls_of(m) >> x->call & 1)) return;
  for (int i = 0; i < x->buckets.len; i++)
    if (x->buckets.data[i] == m->bucket) return; /* a record before has asked for the call */
  zp_push(x->e->arena, &x->buckets, m->bucket);
}

zp_ints zp_emit_bucket_calls(const zp_emit *e, int segment, zp_act act, zp_call call) {
  listing x = {.e = e, .call = call};
  zp_move_scope unit = scope_of(e, e->lowered, ZP_MOMENT_ACTION);
  unit.segment = segment;
  unit.act = act;
  zp_make_moves(&unit, add_bucket, &x);
  return x.buckets;
}
