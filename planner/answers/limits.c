/* SPDX-License-Identifier: Apache-2.0 */
/* The limits of a plan block that an answer may drop, a row each; and context degrees that it may add. */
#include <assert.h>
#include <stddef.h>
#include "answers_internal.h"

typedef struct limit_row {
  const char *key;
  size_t at; /* in zp_constraints */
  zp_relaxation_kind kind;
} limit_row;
#define LIMIT(name, kind)                                                                                              \
  { #name, offsetof(zp_constraints, name), kind }
#define OFFLOADED(state, name)                                                                                         \
  { name, offsetof(zp_constraints, offload[ZP_STATE_##state]), ZP_RELAX_CONSTRAINT }
static const limit_row limits[] = {LIMIT(tensor, ZP_RELAX_CONSTRAINT),
                                   LIMIT(pipeline, ZP_RELAX_CONSTRAINT),
                                   LIMIT(data, ZP_RELAX_CONSTRAINT),
                                   LIMIT(expert, ZP_RELAX_CONSTRAINT),
                                   LIMIT(context, ZP_RELAX_CONSTRAINT),
                                   LIMIT(context_by, ZP_RELAX_CONSTRAINT),
                                   LIMIT(shard, ZP_RELAX_ZERO),
                                   LIMIT(idle, ZP_RELAX_IDLE),
                                   LIMIT(zero, ZP_RELAX_ZERO),
                                   LIMIT(microbatch, ZP_RELAX_MICROBATCH),
                                   LIMIT(loss_chunks, ZP_RELAX_CONSTRAINT),
                                   LIMIT(recompute, ZP_RELAX_RECOMPUTE),
                                   LIMIT(recompute_shard, ZP_RELAX_RECOMPUTE),
                                   LIMIT(schedule, ZP_RELAX_CONSTRAINT),
                                   LIMIT(chunks, ZP_RELAX_CONSTRAINT),
                                   LIMIT(sequence, ZP_RELAX_CONSTRAINT),
                                   LIMIT(compress, ZP_RELAX_CONSTRAINT),
                                   LIMIT(rank_order, ZP_RELAX_CONSTRAINT),
                                   LIMIT(node_order, ZP_RELAX_CONSTRAINT),
                                   LIMIT(cut, ZP_RELAX_CONSTRAINT),
                                   OFFLOADED(OPTIMIZER, "offload[optimizer]"),
                                   OFFLOADED(GRADIENTS, "offload[gradients]"),
                                   OFFLOADED(PARAMS, "offload[params]"),
                                   OFFLOADED(ACTIVATIONS, "offload[activations]")};
_Static_assert(sizeof limits / sizeof *limits == ZP_LIMITS, "a row each");

const char *zp_limit_key(int i) {
  assert(i >= 0 && i < ZP_LIMITS);
  return limits[i].key;
}

zp_relaxation_kind zp_limit_kind(int i) {
  assert(i >= 0 && i < ZP_LIMITS);
  return limits[i].kind;
}

/* Defaults of the language have no place in a file. A list of layers pins stages and chunks, which are dropped with it:
 * zp_drop_modes. */
bool zp_drop_limit(zp_constraints *c, int i) {
  assert(i >= 0 && i < ZP_LIMITS);
  zp_limit *limit = (zp_limit *)(void *)((char *)c + limits[i].at);
  bool pinned = c->cut_layers.len > 0 && (limit == &c->pipeline || limit == &c->chunks);
  bool written = limit->set && limit->span.file >= 0 && !pinned;
  if (written) *limit = (zp_limit){0};
  return written;
}

/* Powers of two above 1 that leave a rank enough positions to be worth an exchange. Models that drop tokens would drop
 * others. */
bool zp_allow_context(zp_arena *arena, zp_spec *copy, int devices) {
  enum { MOST = 64, LEAST_POSITIONS = 1024 };
  zp_limit limit = {.set = true, .low = 2, .span = ZP_NO_SPAN};
  int64_t positions = copy->model->sequence;
  for (int n = 2; n <= MOST && n <= devices && positions % n == 0 && positions / n >= LEAST_POSITIONS; n *= 2) {
    zp_push(arena, &limit.in, n);
    limit.high = n;
  }
  if (limit.in.len == 0 || zp_model_drops_tokens(copy->model)) return false;
  zp_copied_constraints(copy)->context = limit;
  return true;
}

const char *zp_drop_modes(zp_constraints *c) {
  const char *key = c->stage_recompute.len > 0    ? "stage_recompute"
                    : c->recompute_layers.len > 0 ? "recompute_layers"
                    : c->cut_layers.len > 0       ? "cut"
                                                  : NULL;
  if (c->stage_recompute.len > 0 || c->recompute_layers_listed || c->cut_layers.len > 0) c->pipeline = (zp_limit){0};
  if (c->cut_layers.len > 0) c->chunks = (zp_limit){0};
  c->cut_layers.len = 0;
  c->stage_recompute.len = c->recompute_layers.len = 0;
  c->recompute_layers_listed = false;
  return key;
}

bool zp_has_limits(zp_arena *arena, const zp_plan *plan) {
  zp_constraints *c = zp_copied_constraints(zp_copy_spec(arena, zp_plan_asked(plan)));
  int written = zp_drop_modes(c) != NULL;
  for (int i = 0; i < ZP_LIMITS; i++) written += zp_drop_limit(c, i);
  return written > 0;
}
