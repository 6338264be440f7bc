/* Two plans side by side: every decision, and the cuts. The terms of the price are compare.c's. */
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

static void add(zp_arena *arena, zp_plan_diff *diff, const char *name, const char *a, const char *b) {
  zp_decision_pair pair = {name, a, b, strcmp(a, b) == 0};
  diff->same &= pair.same;
  zp_push(arena, &diff->decisions, pair);
}

static void add_input(zp_arena *arena, zp_plan_diff *diff, const zp_plan *a, const zp_plan *b) {
  const zp_spec *x = a->spec, *y = b->spec;
  add(arena, diff, "model", x->model->name, y->model->name);
  add(arena, diff, "parameters", int_words(arena, zp_model_parameters(x->model)),
      int_words(arena, zp_model_parameters(y->model)));
  add(arena, diff, "devices", zp_format(arena, "%d x %s", a->devices, a->machine.node->device.name),
      zp_format(arena, "%d x %s", b->devices, b->machine.node->device.name));
  add(arena, diff, "batch", int_words(arena, x->train.batch), int_words(arena, y->train.batch));
}

zp_plan_diff zp_diff_plans(zp_arena *arena, const zp_plan *a, const zp_plan *b) {
  zp_plan_diff diff = {.same = true};
  const zp_choice *x = &a->program->choice, *y = &b->program->choice;
  add_input(arena, &diff, a, b);
  const struct {
    const char *name;
    int64_t a, b;
  } numbers[] = {{"tensor", x->tensor, y->tensor},
                 {"pipeline", x->pipeline, y->pipeline},
                 {"data", x->data, y->data},
                 {"expert", zp_expert_ranks(x), zp_expert_ranks(y)},
                 {"idle", zp_plan_idle(a, x), zp_plan_idle(b, y)},
                 {"zero", x->zero, y->zero},
                 {"microbatch", x->microbatch, y->microbatch}};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    add(arena, &diff, numbers[i].name, int_words(arena, numbers[i].a), int_words(arena, numbers[i].b));
  add(arena, &diff, "schedule", zp_schedule_name(x->schedule), zp_schedule_name(y->schedule));
  add(arena, &diff, "chunks", int_words(arena, x->chunks > 1 ? x->chunks : 1),
      int_words(arena, y->chunks > 1 ? y->chunks : 1));
  add(arena, &diff, "recompute", zp_report_recompute(arena, x), zp_report_recompute(arena, y));
  add(arena, &diff, "sequence", x->sequence ? "true" : "false", y->sequence ? "true" : "false");
  add(arena, &diff, "compress", x->compress ? "true" : "false", y->compress ? "true" : "false");
  for (int s = 0; s < ZP_STATE_COUNT; s++)
    add(arena, &diff, zp_format(arena, "offload[%s]", zp_state_name((zp_state)s)), home_words(arena, x->home[s]),
        home_words(arena, y->home[s]));
  add(arena, &diff, "cut", x->fine ? "block" : "layer", y->fine ? "block" : "layer");
  add(arena, &diff, "units", cut_words(arena, x), cut_words(arena, y));
  diff.prices = zp_compare(arena, a, b);
  return diff;
}
