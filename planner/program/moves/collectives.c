/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives over the tensor ranks, in expert groups and in context groups are steps of a unit, priced and run as
 * such; here are their elements, one record for all steps of an action that are alike. */
#include "strategy.h"

#include <zplan/buf.h>

typedef struct sums {
  int64_t reduced, gathered, scattered, statistics, slots, rows, counts, heads, choices,
      passed; /* whole arrays, a rank's */
} sums;

zp_move_way zp_step_way(const zp_step *step) {
  static const zp_move_way ways[ZP_OP_COUNT] = {
      [ZP_OP_ALL_REDUCE] = ZP_WAY_ALL_REDUCE,     [ZP_OP_GRAD_ALL_REDUCE] = ZP_WAY_ALL_REDUCE,
      [ZP_OP_ALL_GATHER_SEQ] = ZP_WAY_ALL_GATHER, [ZP_OP_GATHER_STATS] = ZP_WAY_ALL_GATHER,
      [ZP_OP_GATHER_CHOICES] = ZP_WAY_ALL_GATHER, [ZP_OP_REDUCE_SCATTER_SEQ] = ZP_WAY_REDUCE_SCATTER,
      [ZP_OP_SPREAD_SLOTS] = ZP_WAY_EXCHANGE,     [ZP_OP_RETURN_SLOTS] = ZP_WAY_EXCHANGE,
      [ZP_OP_SPREAD_HEADS] = ZP_WAY_EXCHANGE,     [ZP_OP_RETURN_HEADS] = ZP_WAY_EXCHANGE,
      [ZP_OP_SPREAD_COUNTS] = ZP_WAY_EXCHANGE,
  };
  if (step->kind == ZP_STEP_GATHER_SHARD) return ZP_WAY_ALL_GATHER;
  if (zp_step_is_ring(step)) return step->ring.window || step->ring.pairs ? ZP_WAY_PASS : ZP_WAY_EXCHANGE;
  return step->kind == ZP_STEP_NODE ? ways[step->op] : ZP_WAY_COPY;
}

static bool is_step_of(const zp_step *step, zp_op op) { return step->kind == ZP_STEP_NODE && step->op == op; }

bool zp_step_is_ring(const zp_step *step) { return step->ring.ranks > 0; }

bool zp_step_is_of_context(const zp_step *step) {
  return zp_step_is_ring(step) || is_step_of(step, ZP_OP_SPREAD_HEADS) || is_step_of(step, ZP_OP_RETURN_HEADS) ||
         is_step_of(step, ZP_OP_GATHER_CHOICES);
}

int zp_step_element_bytes(const zp_lowered *l, const zp_step *step) {
  if (is_step_of(step, ZP_OP_SPREAD_COUNTS)) return sizeof(int32_t);
  bool facts = is_step_of(step, ZP_OP_GATHER_STATS) || is_step_of(step, ZP_OP_GATHER_CHOICES);
  return facts ? l->stat_bytes : l->compute_bytes;
}

bool zp_step_is_exchange(const zp_step *step) {
  return zp_step_way(step) == ZP_WAY_EXCHANGE || zp_step_is_of_context(step);
}

static int64_t *exchanged(sums *to, const zp_step *step) {
  if (zp_step_is_of_context(step)) return &to->heads;
  if (is_step_of(step, ZP_OP_SPREAD_COUNTS)) return &to->counts;
  return step->routed ? &to->rows : &to->slots;
}

static void add(sums *to, const zp_step *step, const zp_choice *c) {
  switch (zp_step_way(step)) {
  case ZP_WAY_ALL_GATHER:
    if (is_step_of(step, ZP_OP_GATHER_CHOICES))
      to->choices += zp_context_ranks(c) * step->comm_elements;
    else
      *(is_step_of(step, ZP_OP_GATHER_STATS) ? &to->statistics : &to->gathered) += c->tensor * step->comm_elements;
    break;
  case ZP_WAY_REDUCE_SCATTER: to->scattered += step->comm_elements; break;
  case ZP_WAY_PASS: to->passed += step->comm_elements; break;
  case ZP_WAY_EXCHANGE: *exchanged(to, step) += step->comm_elements; break;
  default: to->reduced += step->comm_elements;
  }
}

static sums sums_of(const zp_move_scope *x) {
  const zp_segment_program *s = &x->lowered->segments[x->segment];
  bool splits = x->act == ZP_ACT_BI || x->act == ZP_ACT_BW;
  const zp_procedure *p = x->act == ZP_ACT_F ? &s->forward : splits ? &s->split : &s->backward;
  int first = x->act == ZP_ACT_BW ? p->n_inputs : 0, end = x->act == ZP_ACT_BI ? p->n_inputs : p->steps.len;
  sums found = {0};
  for (int i = first; i < end; i++)
    if (p->steps.data[i].comm_elements > 0) add(&found, &p->steps.data[i], x->choice);
  return found;
}

static void put(const zp_move_scope *x, zp_move move, zp_move_way way, zp_move_end peers, int ranks, int64_t elements,
                int element_bytes, zp_on_move *emit, void *user) {
  if (elements == 0) return;
  move.way = way;
  move.queue = ZP_QUEUE_COMPUTE;
  move.from = ZP_END_DEVICE;
  move.to = peers;
  move.elements = elements;
  move.element_bytes = element_bytes;
  move.ranks = ranks;
  move.all_elements = elements * (x->choice->tensor * x->choice->data / ranks);
  emit(user, &move);
}

static bool tensor_applies(const zp_move_scope *x) { return x->choice->tensor > 1; }

static void make_tensor(const zp_move_scope *x, zp_on_move *emit, void *user) {
  const zp_lowered *l = x->lowered;
  int t = x->choice->tensor;
  sums s = sums_of(x);
  zp_move move = zp_move_begin(x, &zp_tensor_collectives, ZP_MOVE_PARTIAL, ZP_WHEN_IN_UNIT, ZP_WAIT_AT_ONCE);
  put(x, move, ZP_WAY_ALL_REDUCE, ZP_END_TENSOR_RANKS, t, s.reduced, l->compute_bytes, emit, user);
  put(x, move, ZP_WAY_ALL_GATHER, ZP_END_TENSOR_RANKS, t, s.gathered, l->compute_bytes, emit, user);
  put(x, move, ZP_WAY_REDUCE_SCATTER, ZP_END_TENSOR_RANKS, t, s.scattered, l->compute_bytes, emit, user);
  put(x, move, ZP_WAY_ALL_GATHER, ZP_END_TENSOR_RANKS, t, s.statistics, l->stat_bytes, emit, user);
}

static const char *explain_tensor(zp_arena *arena, const zp_move_scope *x) {
  return zp_format(arena, "%d tensor ranks share every layer: partial results are summed%s in the units",
                   x->choice->tensor, x->choice->sequence ? ", cut along the sequence and gathered" : "");
}

/* Asked millions of times by the search: without modes of their own all stages have the first one's. */
static const char *refuses_sequence(const zp_choice *c, const zp_spec *spec) {
  int modes = c->stage_recompute ? c->pipeline : 1;
  (void)spec;
  if (!c->sequence) return NULL;
  if (c->tensor < 2) return "sequence sharding needs two or more tensor ranks";
  for (int s = 0; s < modes; s++)
    if (zp_stage_mode_split(zp_choice_mode(c, s))) return "sequence sharding splits kept inputs already";
  return NULL;
}

const zp_move_strategy zp_tensor_collectives = {
    .name = "tensor collectives",
    .applies = tensor_applies,
    .make = make_tensor,
    .explain = explain_tensor,
    .refuses = refuses_sequence,
};

static bool experts_apply(const zp_move_scope *x) { return zp_expert_ranks(x->choice) > 1; }

static void make_experts(const zp_move_scope *x, zp_on_move *emit, void *user) {
  zp_move move = zp_move_begin(x, &zp_expert_exchange, ZP_MOVE_SLOTS, ZP_WHEN_IN_UNIT, ZP_WAIT_AT_ONCE);
  int n = zp_expert_ranks(x->choice);
  sums s = sums_of(x);
  put(x, move, ZP_WAY_EXCHANGE, ZP_END_EXPERT_RANKS, n, s.slots, x->lowered->compute_bytes, emit, user);
  put(x, move, ZP_WAY_EXCHANGE, ZP_END_EXPERT_RANKS, n, s.counts, sizeof(int32_t), emit, user);
  move.routed = true;
  put(x, move, ZP_WAY_EXCHANGE, ZP_END_EXPERT_RANKS, n, s.rows, x->lowered->compute_bytes, emit, user);
}

static const char *explain_experts(zp_arena *arena, const zp_move_scope *x) {
  return zp_format(arena, "%d data ranks share their experts and exchange the %s of their samples",
                   zp_expert_ranks(x->choice), sums_of(x).rows > 0 ? "rows" : "slots");
}

static const char *refuses_experts(const zp_choice *c, const zp_spec *spec) {
  if (c->data % zp_expert_ranks(c)) return "expert groups divide the data ranks";
  if (zp_expert_ranks(c) > 1 && zp_model_has_frozen_experts(spec->model))
    return "frozen experts are not spread over data ranks";
  return NULL;
}

const zp_move_strategy zp_expert_exchange = {
    .name = "expert exchange",
    .applies = experts_apply,
    .make = make_experts,
    .explain = explain_experts,
    .refuses = refuses_experts,
    .provides = 1u << ZP_MOVE_NEED_EXCHANGE,
};

static bool context_applies(const zp_move_scope *x) { return zp_context_ranks(x->choice) > 1; }

static void make_context(const zp_move_scope *x, zp_on_move *emit, void *user) {
  zp_move move = zp_move_begin(x, &zp_context_exchange, ZP_MOVE_HEADS, ZP_WHEN_IN_UNIT, ZP_WAIT_AT_ONCE);
  int n = zp_context_ranks(x->choice);
  sums s = sums_of(x);
  put(x, move, ZP_WAY_EXCHANGE, ZP_END_CONTEXT_RANKS, n, s.heads, x->lowered->compute_bytes, emit, user);
  put(x, move, ZP_WAY_PASS, ZP_END_CONTEXT_RANKS, n, s.passed, x->lowered->compute_bytes, emit, user);
  put(x, move, ZP_WAY_ALL_GATHER, ZP_END_CONTEXT_RANKS, n, s.choices, x->lowered->stat_bytes, emit, user);
}

static const char *explain_context(zp_arena *arena, const zp_move_scope *x) {
  static const char *const around[ZP_CONTEXT_BY_COUNT] = {"exchange heads around attention",
                                                          "gather keys and values for attention",
                                                          "pass keys and values on while attention computes"};
  return zp_format(arena, "%d data ranks share the positions of their samples and %s", zp_context_ranks(x->choice),
                   around[x->choice->context_by]);
}

static const char *refuses_context(const zp_choice *c, const zp_spec *spec) {
  (void)spec;
  return c->data % zp_context_ranks(c) ? "context groups divide the data ranks" : NULL;
}

const zp_move_strategy zp_context_exchange = {
    .name = "context exchange",
    .applies = context_applies,
    .make = make_context,
    .explain = explain_context,
    .refuses = refuses_context,
    .provides = 1u << ZP_MOVE_NEED_HEADS,
};
