/* SPDX-License-Identifier: Apache-2.0 */
/* The decisions of a plan in words, and those of two plans side by side. The terms of the price are compare.c's. */
#include <assert.h>
#include "answers_internal.h"
#include <zplan/buf.h>

static const char *int_words(zp_arena *arena, int64_t value) { return zp_format(arena, "%lld", (long long)value); }

/* "4, 3 x 98, 2": units of the model chunks in order, equal neighbours counted. */
static const char *cut_words(zp_arena *arena, const zp_choice *c) {
  zp_buf out = zp_buf_new(arena);
  int chunks = c->pipeline * (c->chunks > 1 ? c->chunks : 1);
  for (int k = 0; k < chunks;) {
    int64_t units = c->cut[k + 1] - c->cut[k];
    int same = 1;
    while (k + same < chunks && c->cut[k + same + 1] - c->cut[k + same] == units) same++;
    zp_buf_printf(&out, "%s%lld", k ? ", " : "", (long long)units);
    if (same > 1) zp_buf_printf(&out, " x %d", same);
    k += same;
  }
  return out.data;
}

static const char *home_words(zp_arena *arena, zp_home home) {
  return home.eighths ? zp_format(arena, "%d/8 on %s", home.eighths, zp_tier_name(home.tier)) : "device";
}

static void add(zp_arena *arena, zp_decisions *out, const char *name, const char *words) {
  zp_push(arena, out, ((zp_decision){name, words}));
}

static void add_number(zp_arena *arena, zp_decisions *out, const char *name, int64_t value) {
  add(arena, out, name, int_words(arena, value));
}

static void add_input(zp_arena *arena, zp_decisions *out, const zp_plan *plan) {
  const zp_spec *spec = plan->spec;
  add(arena, out, "model", spec->model->name);
  add_number(arena, out, "parameters", zp_model_parameters(spec->model));
  add(arena, out, "devices", zp_format(arena, "%d x %s", plan->devices, plan->machine.node->device.name));
  add(arena, out, "nodes", spec->cluster.arranged ? zp_show_nodes(arena, &spec->cluster) : "as written");
  add_number(arena, out, "batch", spec->train.batch);
  add(arena, out, "precision", zp_precision_name(spec->train.precision));
}

zp_decisions zp_plan_decisions(zp_arena *arena, const zp_plan *plan) {
  assert(plan->feasible);
  zp_decisions out = {0};
  const zp_choice *c = &plan->program->choice;
  add_input(arena, &out, plan);
  add_number(arena, &out, "tensor", c->tensor);
  add_number(arena, &out, "pipeline", c->pipeline);
  add_number(arena, &out, "context", zp_context_ranks(c));
  if (zp_context_ranks(c) > 1) add(arena, &out, "context_by", zp_context_by_name(c->context_by));
  add_number(arena, &out, "data", zp_replicas(c));
  add_number(arena, &out, "expert", zp_expert_ranks(c));
  add_number(arena, &out, "shard", zp_shards_state(c) ? zp_shard_ranks(c) : 1);
  if (c->hpz > 0) add_number(arena, &out, "hpz", c->hpz);
  add_number(arena, &out, "idle", zp_plan_idle(plan, c));
  add_number(arena, &out, "zero", c->zero);
  add_number(arena, &out, "microbatch", c->microbatch);
  add_number(arena, &out, "loss_chunks", zp_loss_chunks(c));
  add(arena, &out, "rank_order", zp_rank_order_name(c->order));
  add(arena, &out, "schedule", zp_schedule_name(c->schedule));
  add(arena, &out, "order",
      c->own_order ? zp_format(arena, "its own, %08x", (unsigned)c->own_order->hash) : "the schedule's");
  add_number(arena, &out, "chunks", c->chunks > 1 ? c->chunks : 1);
  add(arena, &out, "recompute", zp_choice_recompute_words(arena, c));
  add(arena, &out, "sequence", c->sequence ? "true" : "false");
  add(arena, &out, "compress", c->compress ? "true" : "false");
  for (int s = 0; s < ZP_STATE_COUNT; s++)
    add(arena, &out, zp_format(arena, "offload[%s]", zp_state_name((zp_state)s)), home_words(arena, c->home[s]));
  add(arena, &out, "cut", c->fine ? "block" : "layer");
  add(arena, &out, "units", cut_words(arena, c));
  return out;
}

zp_plan_diff zp_diff_plans(zp_arena *arena, const zp_plan *a, const zp_plan *b) {
  assert(a->feasible && b->feasible);
  zp_plan_diff diff = {.same = true};
  const zp_decisions x = zp_plan_decisions(arena, a), y = zp_plan_decisions(arena, b);
  for (int i = 0; i < x.len; i++) {
    zp_decision_pair pair = {x.data[i].name, x.data[i].words, y.data[i].words, false};
    pair.same = strcmp(pair.a, pair.b) == 0;
    diff.same &= pair.same;
    zp_push(arena, &diff.decisions, pair);
  }
  diff.prices = zp_compare(arena, a, b);
  return diff;
}
