/* Asks the list of moves (zplan/moves.h) what the trainer prints calls for. */
#include "emit.h"

typedef struct question {
  zp_move_queue queue;
  zp_move_when when;
  zp_move_wait wait;
  bool found;
} question;

static void look(void *user, const zp_move *move) {
  question *q = user;
  q->found |= move->queue == q->queue && move->when == q->when && move->wait == q->wait;
}

/* Has any unit such a record, at that moment, in that action? */
static bool has(const zp_emit *e, zp_move_moment moment, zp_act act, question q) {
  zp_move_scope scope = zp_move_scope_of(e->program->lowered, &e->program->choice);
  scope.cpu = !e->gpu;
  scope.moment = moment;
  scope.act = act;
  for (scope.segment = 0; scope.segment < e->program->lowered->n_segments && !q.found; scope.segment++)
    zp_make_moves(&scope, look, &q);
  return q.found;
}

bool zp_emit_scatters_beside(const zp_emit *e) {
  question q = {.queue = ZP_QUEUE_DATA, .when = ZP_WHEN_AFTER_UNIT, .wait = ZP_WAIT_BY_BUFFER};
  return has(e, ZP_MOMENT_ACTION, ZP_ACT_B, q);
}

bool zp_emit_gathers_beside(const zp_emit *e) {
  question q = {.queue = ZP_QUEUE_DATA, .when = ZP_WHEN_BEFORE_UNIT, .wait = ZP_WAIT_BY_UNIT};
  return has(e, ZP_MOMENT_ACTION, ZP_ACT_F, q);
}

bool zp_emit_reduces_beside(const zp_emit *e) {
  question q = {.queue = ZP_QUEUE_DATA, .when = ZP_WHEN_BESIDE_BACKWARD, .wait = ZP_WAIT_BY_NORM};
  return has(e, ZP_MOMENT_BUCKETS, ZP_ACT_B, q);
}
