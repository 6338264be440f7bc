/* SPDX-License-Identifier: Apache-2.0 */
/* The replay of programs over poisoned memory: finds nothing in sound programs, and every kind of damage. */
#include "planner_models.h"
#include "../../planner/proof/replay_internal.h"

static zp_arena *arena;
static void setup(void) { arena = zp_arena_new("test"); }
static void teardown(void) { zp_arena_free(arena); }
TestSuite(replay, .init = setup, .fini = teardown);
TestSuite(shadow, .init = setup, .fini = teardown);

/* ---- shadow memory ---- */

static bool holds(const zp_shadow *s, zp_shadow_place place, uint64_t value) {
  uint64_t found;
  int64_t at;
  return zp_shadow_holds(s, place, value, &found, &at);
}

Test(shadow, bytes_hold_what_was_written_last) {
  zp_shadow s = {.arena = arena};
  cr_expect(!holds(&s, zp_shadow_whole(0, 10), 1));
  zp_shadow_write(&s, zp_shadow_whole(100, 50), 1);
  cr_expect(holds(&s, zp_shadow_whole(100, 50), 1) && holds(&s, zp_shadow_whole(100, 20), 1));
  cr_expect(!holds(&s, zp_shadow_whole(110, 20), 1), "byte 10 of a value is not its byte 0");
  cr_expect(!holds(&s, zp_shadow_whole(100, 51), 1) && !holds(&s, zp_shadow_whole(100, 50), 2));
  zp_shadow_write(&s, zp_shadow_whole(120, 10), 2);
  cr_expect(holds(&s, zp_shadow_whole(120, 10), 2) && holds(&s, zp_shadow_whole(100, 20), 1));
  cr_expect(!holds(&s, zp_shadow_whole(100, 50), 1));
  uint64_t found;
  int64_t at;
  zp_shadow_holds(&s, zp_shadow_whole(100, 50), 1, &found, &at);
  cr_expect(found == 2 && at == 120);
  zp_shadow_poison(&s, 90, 15);
  cr_expect_eq(zp_shadow_get(&s, 100, 20), ZP_POISON);
}

Test(shadow, columns_are_values_of_their_own) {
  zp_shadow s = {.arena = arena};
  zp_shadow_place all = {0, 40, 10, 0, 10, 0, 0}, left = {0, 40, 10, 0, 4, 0, 0}, right = {0, 40, 10, 4, 10, 4, 0};
  zp_shadow_place wrong = {0, 40, 10, 4, 8, 0, 0};
  zp_shadow_write(&s, left, 7);
  cr_expect(holds(&s, left, 7) && !holds(&s, all, 7));
  zp_shadow_write(&s, right, 7);
  cr_expect(holds(&s, all, 7) && holds(&s, right, 7) && !holds(&s, wrong, 7));
  zp_shadow_write(&s, (zp_shadow_place){0, 40, 10, 2, 6, 0, 0}, 8); /* columns 0 to 4 of another value */
  cr_expect(!holds(&s, all, 7) && !holds(&s, left, 7));
  cr_expect(holds(&s, (zp_shadow_place){0, 40, 10, 2, 6, 0, 0}, 8) &&
            holds(&s, (zp_shadow_place){0, 40, 10, 0, 2, 0, 0}, 7));
  zp_shadow_write(&s, all, 9);
  cr_expect(holds(&s, right, 9) && !holds(&s, wrong, 9));
}

/* A value may be written by parts of its rows and read as one, or the other way round; parts that changed places are
 * found. */
Test(shadow, rows_are_parts_of_a_value) {
  zp_shadow s = {.arena = arena};
  zp_shadow_place all = {0, 40, 10, 0, 10, 0, 0}, first = {0, 20, 10, 0, 10, 0, 0}, second = {20, 20, 10, 0, 10, 0, 20};
  zp_shadow_place swapped = {20, 20, 10, 0, 10, 0, 0};
  zp_shadow_write(&s, all, 7);
  cr_expect(holds(&s, first, 7) && holds(&s, second, 7) && !holds(&s, swapped, 7));
  zp_shadow_write(&s, first, 8);
  cr_expect(!holds(&s, all, 8) && holds(&s, second, 7));
  zp_shadow_write(&s, second, 8);
  cr_expect(holds(&s, all, 8));
  zp_shadow_write(&s, swapped, 8);
  cr_expect(!holds(&s, all, 8));
}

Test(shadow, pieces_of_a_value_come_together_again) {
  zp_shadow s = {.arena = arena}, offloaded = {.arena = arena};
  zp_shadow_write(&s, zp_shadow_whole(0, 100), 5);
  zp_shadow_copy(&s, 0, 60, &s, 200);
  zp_shadow_copy(&s, 60, 40, &offloaded, 0);
  zp_shadow_poison(&s, 0, 100);
  zp_shadow_copy(&offloaded, 0, 40, &s, 60);
  cr_expect(!holds(&s, zp_shadow_whole(0, 100), 5));
  zp_shadow_copy(&s, 200, 60, &s, 0);
  cr_expect(holds(&s, zp_shadow_whole(0, 100), 5));
  zp_shadow_copy(&s, 200, 60, &s, 40); /* the same bytes where others belong */
  cr_expect(!holds(&s, zp_shadow_whole(0, 100), 5));
}

/* ---- programs ---- */

static const model_size STREAMS = {STYLE_STREAMS, 64, 8, 24, 6, 4, 4, 32, true};
static const model_size LLAMA = {STYLE_LLAMA, 64, 8, 24, 6, 4, 4, 32, true};
static const model_size SCALED = {STYLE_SCALED, 64, 8, 24, 6, 4, 4, 32, true};
enum { BATCH = 16, LAYER = 1 };

static zp_cluster roomy(void) {
  zp_cluster c = gpu_cluster(1);
  c.node.host_memory_bytes = INT64_C(1) << 40;
  c.node.nvme_bytes = INT64_C(1) << 42;
  return c;
}

/* A program of its own for every call: mutants change it. */
static zp_program *make(const model_size *size, zp_choice c) {
  zp_spec *spec = build_spec(arena, size, roomy(), BATCH);
  spec->train.precision = ZP_PREC_MIXED_FP16;
  return evenly_cut(arena, spec, c);
}

static zp_strings play(const zp_program *program) {
  zp_strings findings = {0};
  zp_replay_program(arena, program, &findings);
  return findings;
}

static zp_choice plain(zp_recompute recompute) {
  return (zp_choice){.tensor = 1, .pipeline = 2, .data = 1, .microbatch = 1, .recompute = recompute};
}

static zp_choice one_stage(void) {
  zp_choice c = plain(ZP_RECOMPUTE_NONE);
  c.pipeline = 1;
  return c;
}

static zp_choice split_backward(void) {
  zp_choice c = plain(ZP_RECOMPUTE_NONE);
  c.schedule = ZP_SCHEDULE_ZB_H1;
  return c;
}

static zp_choice offloaded(void) {
  zp_choice c = plain(ZP_RECOMPUTE_NONE);
  c.home[ZP_STATE_ACTIVATIONS] = (zp_home){ZP_TIER_HOST, 4};
  return c;
}

static zp_choice sharded(void) {
  zp_choice c = plain(ZP_RECOMPUTE_NONE);
  c.data = 2, c.zero = 3;
  return c;
}

static zp_choice kept_shards(void) {
  zp_choice c = plain(ZP_RECOMPUTE_FULL);
  c.tensor = 2, c.recompute_shard = true;
  return c;
}

static zp_choice two_chunks(void) {
  zp_choice c = plain(ZP_RECOMPUTE_NONE);
  c.schedule = ZP_SCHEDULE_INTERLEAVED, c.chunks = 2;
  return c;
}

/* Every kind of model in every mode, under every schedule; test_plan_space.c has the other decisions. */
Test(replay, sound_programs) {
  for (int style = STYLE_GPT; style <= STYLE_STREAMS; style++)
    for (int keep = ZP_RECOMPUTE_NONE; keep <= ZP_RECOMPUTE_SELECTIVE; keep++)
      for (int schedule = 0; schedule < ZP_SCHEDULE_COUNT; schedule++)
        for (int tensor = 1; tensor <= 2; tensor++) {
          zp_arena_mark mark = zp_arena_get_mark(arena);
          model_size size = {(model_style)style, 64, 8, 24, 6, 4, 4, 32, true};
          zp_choice c = plain((zp_recompute)keep);
          c.tensor = tensor;
          c.schedule = (zp_schedule)schedule;
          if (c.schedule == ZP_SCHEDULE_INTERLEAVED || zp_schedule_folds(c.schedule)) c.chunks = 2;
          zp_strings findings = play(make(&size, c));
          cr_expect_eq(findings.len, 0, "style %d, mode %d, schedule %d: %s", style, keep, schedule,
                       findings.len ? findings.data[0] : "");
          zp_arena_rewind(arena, mark);
        }
}

/* ---- the list of moves ---- */

static int findings_of(const zp_program *program, const zp_move_list *list) {
  zp_strings findings = {0};
  zp_replay_moves(arena, program, 0, list, &findings);
  return findings.len;
}

/* Between units, what the norm needs and what an update on the host does: waits elsewhere are found. */
static bool is_judged(const zp_move *m) {
  bool on_host = m->when == ZP_WHEN_AT_HOST_UPDATE || m->when == ZP_WHEN_OVERLAPPED_NEXT;
  return (m->when <= ZP_WHEN_AFTER_BACKWARD || on_host) && m->queue != ZP_QUEUE_DEVICE_MEMORY &&
         m->what != ZP_MOVE_SIGNS;
}

/* Parameters that come, gradients that leave, messages: without them a unit or a stage would wait for ever. A delayed
 * update would do without gradients, or the device without weights. */
static bool is_missed(const zp_move *m) {
  if (m->when == ZP_WHEN_OVERLAPPED_NEXT) return true;
  return m->what == ZP_MOVE_MESSAGE || (m->queue == ZP_QUEUE_DATA && m->when <= ZP_WHEN_AFTER_UNIT && m->bucket == 0);
}

static bool delays; /* the update */

static void damage_list(zp_choice c) {
  const zp_program *program = make(&LLAMA, c);
  ((zp_spec *)(uintptr_t)program->spec)->train.delayed = delays;
  zp_move_list list = zp_stage_moves(arena, program, 0);
  int judged = 0;
  cr_expect_eq(findings_of(program, &list), 0);
  for (int i = 0; i < list.len; i++) {
    zp_move kept = list.data[i];
    for (int wait = 0; wait < ZP_WAIT_COUNT && is_judged(&kept); wait++) {
      list.data[i].wait = (zp_move_wait)wait;
      cr_expect_eq(findings_of(program, &list) > 0, wait != (int)kept.wait, "move %d, %s, waited for %d instead of %d",
                   i, kept.strategy->name, wait, kept.wait);
      judged++;
    }
    list.data[i] = kept;
    if (!is_missed(&kept)) continue;
    list.data[i].what = ZP_MOVE_WHAT_COUNT;
    cr_expect(findings_of(program, &list) > 0, "without move %d, %s", i, kept.strategy->name);
    list.data[i] = kept;
  }
  cr_expect(judged > 0);
}

Test(replay, lists_of_moves_that_wait_elsewhere) {
  zp_choice scattered = sharded(), down = sharded(), chunks = two_chunks();
  scattered.zero = 2;
  down.home[ZP_STATE_OPTIMIZER] = down.home[ZP_STATE_GRADIENTS] = down.home[ZP_STATE_PARAMS] =
      (zp_home){ZP_TIER_NVME, 8};
  chunks.data = 2;
  damage_list(sharded());
  damage_list(scattered);
  damage_list(down);
  damage_list(offloaded());
  damage_list(split_backward());
  damage_list(chunks);
}

/* Weights that are kept as casts alone are gathered as such, all of them and no others. */
Test(replay, lists_of_moves_with_other_bytes) {
  static const zp_precision recipes[] = {ZP_PREC_MIXED_FP8, ZP_PREC_MIXED_FP8_DELAYED, ZP_PREC_MIXED_MXFP8,
                                         ZP_PREC_MIXED_NVFP4};
  static const model_size wide = {STYLE_LLAMA, 64, 8, 64, 6, 4, 4, 128, true};
  for (int i = 0; i < 4; i++)
    for (int zero = 1; zero <= 3; zero++) {
      zp_spec *spec = build_spec(arena, &wide, roomy(), BATCH);
      narrow_products(arena, spec, recipes[i]);
      zp_choice c = sharded();
      c.zero = zero;
      const zp_program *program = evenly_cut(arena, spec, c);
      zp_move_list list = zp_stage_moves(arena, program, 0);
      cr_expect_eq(findings_of(program, &list), 0, "recipe %d, ZeRO %d", i, zero);
      for (int m = 0; m < list.len; m++) {
        zp_move kept = list.data[m];
        bool forward = kept.when == ZP_WHEN_BEFORE_UNIT && kept.act == ZP_ACT_F;
        if (kept.what != ZP_MOVE_PARAMETERS || !(forward || kept.when == ZP_WHEN_AFTER_UPDATE)) continue;
        list.data[m].element_bytes = kept.element_bytes == 1 ? 2 : 1;
        cr_expect(findings_of(program, &list) > 0, "recipe %d, ZeRO %d, move %d of other bytes", i, zero, m);
        list.data[m] = kept;
      }
    }
}

/* Exchanged by the end of the step, updated by that of the next one: all of the state, and none of it in its own. */
Test(replay, lists_of_delayed_updates) {
  zp_choice c = sharded();
  c.home[ZP_STATE_OPTIMIZER] = (zp_home){ZP_TIER_HOST, 8};
  c.home[ZP_STATE_GRADIENTS] = (zp_home){ZP_TIER_HOST, 3};
  delays = true;
  damage_list(c);
  const zp_program *program = make(&LLAMA, c);
  zp_train *train = &((zp_spec *)(uintptr_t)program->spec)->train;
  zp_move_list list = zp_stage_moves(arena, program, 0);
  train->delayed = true;
  cr_expect(findings_of(program, &list) > 0, "a list without delay, and a training with it");
  list = zp_stage_moves(arena, program, 0);
  cr_expect_eq(findings_of(program, &list), 0);
  for (int i = 0; i < list.len; i++) {
    zp_move kept = list.data[i];
    bool late = kept.when == ZP_WHEN_OVERLAPPED_NEXT, crosses = kept.when == ZP_WHEN_AT_HOST_UPDATE;
    if (!late && !(crosses && (kept.queue == ZP_QUEUE_UP || kept.what == ZP_MOVE_GRADIENTS))) continue;
    list.data[i].elements--;
    cr_expect(findings_of(program, &list) > 0, "move %d is short of an element", i);
    list.data[i] = kept;
    if (late) list.data[i].when = ZP_WHEN_AT_HOST_UPDATE;
    cr_expect(!late || findings_of(program, &list) > 0, "an update in its own step");
    list.data[i] = kept;
  }
  train->delayed = false;
  cr_expect(findings_of(program, &list) > 0, "a list with delay, and a training without");
}

/* ---- any decisions ---- */

static uint64_t state; /* of the choices */

static int any(int n) { /* 0 .. n - 1 */
  state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (int)((state >> 33) % (uint64_t)n);
}

static zp_choice any_choice(void) {
  static const int chunks[ZP_SCHEDULE_COUNT] = {
      [ZP_SCHEDULE_INTERLEAVED] = 2, [ZP_SCHEDULE_ZB_V] = 2, [ZP_SCHEDULE_DUALPIPEV] = 2};
  zp_choice c = {
      .tensor = 1 + any(3), .pipeline = 1 + any(4), .data = 1 << any(3), .zero = any(4), .microbatch = 1 + any(2)};
  c.schedule = (zp_schedule)any(ZP_SCHEDULE_COUNT);
  c.chunks = chunks[c.schedule];
  if (c.schedule == ZP_SCHEDULE_INTERLEAVED) c.chunks += any(2);
  c.recompute = (zp_recompute)any(3);
  c.recompute_shard = c.recompute == ZP_RECOMPUTE_FULL && any(3) == 0;
  c.sequence = c.tensor == 2 && any(3) == 0;
  c.fine = any(4) == 0;
  c.expert = any(3) == 0 ? c.data : 1;
  c.compress = any(8) == 0;
  for (int i = 0; i < ZP_STATE_COUNT && any(3) == 0; i++)
    if (any(2)) c.home[i] = (zp_home){any(2) ? ZP_TIER_HOST : ZP_TIER_NVME, 1 + any(8)};
  return c;
}

/* Units in random shares, at least one a chunk; NULL: there are too few. */
static int64_t *any_cut(const zp_choice *c, int64_t units) {
  int64_t parts = c->pipeline * zp_chunks(c), *cut = ZP_NEW_ARRAY(arena, int64_t, parts + 1);
  if (units < parts) return NULL;
  for (int64_t k = 1; k <= parts; k++)
    cut[k] = k == parts ? units : cut[k - 1] + 1 + any((int)(units - cut[k - 1] - 1 - (parts - k)) + 1);
  return cut;
}

static zp_stage_mode *any_modes(const zp_choice *c) {
  zp_stage_mode *mode = ZP_NEW_ARRAY(arena, zp_stage_mode, c->pipeline);
  for (int s = 0; s < c->pipeline; s++) mode[s] = zp_stage_mode_of((zp_recompute)any(3), false);
  return mode;
}

/* Layers after the first ones in another mode, on some stages. */
static zp_stage_mix *any_mix(const zp_choice *c) {
  zp_stage_mix *mix = ZP_NEW_ARRAY(arena, zp_stage_mix, c->pipeline);
  for (int s = 0; s < c->pipeline; s++) {
    mix[s] = (zp_stage_mix){1 + any(3), zp_stage_mode_of((zp_recompute)any(3), false)};
    if (any(3) == 0 || mix[s].rest == zp_choice_mode(c, s)) mix[s].layers = ZP_ALL_LAYERS;
  }
  return mix;
}

/* NULL: there is no such plan. */
static zp_plan *any_plan(void) {
  static const zp_precision precision[] = {ZP_PREC_F32, ZP_PREC_F64, ZP_PREC_MIXED_FP16};
  const char *reason = NULL;
  model_size size = {(model_style)any(STYLE_STREAMS + 1), 64, 8, 24, 2 + any(5), 4, 4, 32, any(2)};
  zp_spec *spec = build_spec(arena, &size, any(2) ? roomy() : cpu_cluster(), 8 * (1 + any(4)));
  spec->train.precision = precision[any(3)];
  for (int i = 0; i < spec->model->params.len; i++) /* in a plan file they have names of their own */
    spec->model->params.data[i].name = zp_format(arena, "%s.%d", spec->model->params.data[i].name, i);
  zp_choice c = any_choice();
  if (size.style != STYLE_EXPERTS) c.expert = 1;
  if (spec->train.batch % (c.data * c.microbatch) != 0 || zp_choice_refusal(&c, spec)) return NULL;
  zp_machine machine = zp_machine_make(&spec->cluster, spec->train.precision, zp_choice_ranks(&c));
  zp_sharding *sharding =
      zp_shard_experts(arena, spec->model, &machine, c.tensor, zp_expert_ranks(&c), c.sequence, &reason);
  if (any(3) == 0 && !c.recompute_shard) zp_choice_set_modes(&c, any_modes(&c));
  if (any(4) == 0 && c.home[ZP_STATE_ACTIVATIONS].eighths == 0) zp_choice_set_mix(&c, any_mix(&c));
  zp_lowered **l = sharding ? zp_lower_stages(arena, spec, sharding, &c, &reason) : NULL;
  c.cut = l ? any_cut(&c, l[0]->n_units) : NULL;
  if (!c.cut) return NULL;
  zp_plan *plan = ZP_NEW(arena, zp_plan);
  *plan = (zp_plan){.arena = arena, .spec = spec, .devices = machine.devices, .machine = machine, .feasible = true};
  plan->program = zp_program_make(arena, zp_price_stages(l, &machine, &c), &c);
  plan->best.choice = plan->program->choice;
  plan->best.estimate = zp_simulate(arena, plan->program, &machine);
  return plan;
}

/* As the command proves plans. */
static zp_strings prove(const zp_plan *plan) {
  zp_strings findings = play(plan->program);
  zp_json *json = zp_plan_to_json(arena, plan);
  zp_verify(arena, plan->spec, json, &findings);
  zp_json_free(json);
  return findings;
}

static const char *words_of(const zp_choice *c, uint64_t seed) {
  return zp_format(arena, "choice %llu: t%d p%d d%d e%d zero %d %s x %d recompute %d fine %d sequence %d",
                   (unsigned long long)seed, c->tensor, c->pipeline, c->data, c->expert, c->zero,
                   zp_schedule_name(c->schedule), c->chunks, (int)c->recompute, c->fine, c->sequence);
}

/* Random decisions, the same ones every time: no sound plan is refused. REPLAY_SEEDS=N: more of them. */
Test(replay, any_decisions) {
  const char *seeds = getenv("REPLAY_SEEDS");
  int proven = 0;
  for (uint64_t seed = 1; seed <= (seeds ? strtoull(seeds, NULL, 10) : 1000); seed++) {
    zp_arena_mark mark = zp_arena_get_mark(arena);
    state = seed;
    const zp_plan *plan = any_plan();
    zp_strings findings = {0};
    if (plan) findings = prove(plan);
    proven += plan != NULL;
    if (findings.len > 0) cr_expect_fail("%s: %s", words_of(&plan->best.choice, seed), findings.data[0]);
    zp_arena_rewind(arena, mark);
  }
  cr_expect_gt(proven, 150, "%d", proven);
}

/* ---- damage ---- */

/* The program is ours to change. */
static zp_segment_program *layer_of(zp_program *p) {
  return (zp_segment_program *)(uintptr_t)&p->stage_lowered[0]->segments[LAYER];
}

static int root_of(const zp_procedure *p, int b) { return p->buffers.data[b].base >= 0 ? p->buffers.data[b].base : b; }

static bool reads(const zp_procedure *p, int step, int root) {
  for (int i = 0; i < p->steps.data[step].in.len; i++)
    if (root_of(p, p->steps.data[step].in.data[i]) == root) return true;
  return false;
}

/* The last step that reads the buffer; -1. */
static int last_reader(const zp_procedure *p, int root) {
  for (int s = p->steps.len - 1; s >= 0; s--)
    if (reads(p, s, root)) return s;
  return -1;
}

static void swap_steps(zp_procedure *p, int a, int b) {
  zp_step step = p->steps.data[a];
  p->steps.data[a] = p->steps.data[b];
  p->steps.data[b] = step;
}

/* Two neighbours of which the second reads what the first one writes. */
static void swap_dependent(zp_procedure *p, int first, int last) {
  for (int s = first; s + 1 < last; s++)
    for (int i = 0; i < p->steps.data[s].out.len; i++)
      if (reads(p, s + 1, root_of(p, p->steps.data[s].out.data[i]))) {
        swap_steps(p, s, s + 1);
        return;
      }
  cr_assert_fail("no such steps");
}

static void remove_step(zp_procedure *p, int s) {
  for (int i = s; i + 1 < p->steps.len; i++) p->steps.data[i] = p->steps.data[i + 1];
  p->steps.len--;
}

/* A transient that some step reads after another one was written: where that one stands, too. */
static void lay_on_another(zp_procedure *p) {
  for (int s = 1; s < p->steps.len; s++)
    for (int i = 0; i < p->steps.data[s].out.len; i++) {
      int written = root_of(p, p->steps.data[s].out.data[i]);
      for (int b = 0; b < p->buffers.len; b++) {
        zp_buffer *x = &p->buffers.data[b], *y = &p->buffers.data[written];
        bool both = x->place == ZP_AT_TRANSIENT && y->place == ZP_AT_TRANSIENT && x->base < 0 && x->tensor >= 0;
        if (!both || b == written || x->first_step >= s || last_reader(p, b) <= s) continue;
        y->offset = x->offset;
        return;
      }
    }
  cr_assert_fail("no such buffers");
}

static zp_buffer *first_buffer(zp_procedure *p, zp_place place, bool view) {
  for (int b = 0; b < p->buffers.len; b++)
    if (p->buffers.data[b].place == place && (p->buffers.data[b].base >= 0) == view && p->buffers.data[b].tensor >= 0)
      return &p->buffers.data[b];
  cr_assert_fail("no such buffer");
  return NULL;
}

static void old_selective_order(zp_program *p) {
  zp_procedure *backward = &layer_of(p)->backward;
  for (int s = 0; s < backward->n_recompute / 2; s++) swap_steps(backward, s, backward->n_recompute - 1 - s);
}
static void swapped_steps_of_backward(zp_program *p) {
  zp_procedure *backward = &layer_of(p)->backward;
  swap_dependent(backward, backward->n_recompute, backward->steps.len);
}
static void swapped_steps_of_forward(zp_program *p) {
  swap_dependent(&layer_of(p)->forward, 0, layer_of(p)->forward.steps.len);
}
static void missing_step(zp_program *p) { remove_step(&layer_of(p)->backward, 0); }
static void offset_overlaps(zp_program *p) { lay_on_another(&layer_of(p)->backward); }
static void freed_too_early(zp_program *p) { lay_on_another(&layer_of(p)->forward); }
static void wrong_operand(zp_program *p) {
  zp_procedure *forward = &layer_of(p)->forward;
  for (int s = 2; s < forward->steps.len; s++)
    if (forward->steps.data[s].in.data[0] != forward->steps.data[1].in.data[0]) {
      forward->steps.data[s].in.data[0] = forward->steps.data[1].in.data[0];
      return;
    }
}
static void wrong_column_of_a_view(zp_program *p) {
  first_buffer(&layer_of(p)->forward, ZP_AT_SAVED, true)->offset +=
      first_buffer(&layer_of(p)->forward, ZP_AT_SAVED, true)->cols;
}
static void saved_elsewhere(zp_program *p) { first_buffer(&layer_of(p)->backward, ZP_AT_SAVED, false)->offset += 256; }
static void saved_on_each_other(zp_program *p) {
  for (int backward = 0; backward < 2; backward++) {
    zp_procedure *q = backward ? &layer_of(p)->backward : &layer_of(p)->forward;
    for (int b = 0; b < q->buffers.len; b++)
      if (q->buffers.data[b].place == ZP_AT_SAVED && q->buffers.data[b].base < 0) q->buffers.data[b].offset = 1024;
  }
}
static void too_few_slots(zp_program *p) {
  p->stages[0].slots--;
  for (int k = 0; k < p->stages[0].n_chunks; k++) p->stages[0].chunks[k].slots--;
}
static void slots_too_close(zp_program *p) {
  p->stages[0].slot_stride -= 256;
  for (int k = 0; k < p->stages[0].n_chunks; k++) p->stages[0].chunks[k].slot_stride -= 256;
}
static void units_too_close(zp_program *p) { layer_of(p)->saved_bytes -= 256; }
static void runs_on_each_other(zp_program *p) { p->stages[1].runs.data[1].saved = p->stages[1].runs.data[0].saved; }
static void one_gradient_buffer(zp_program *p) { p->stages[0].at[ZP_REGION_GRAD1] = p->stages[0].at[ZP_REGION_GRAD0]; }
static void one_carry_buffer(zp_program *p) { p->stages[0].at[ZP_REGION_CARRY1] = p->stages[0].at[ZP_REGION_CARRY0]; }
static void message_in_transients(zp_program *p) {
  p->stages[0].at[ZP_REGION_SEND_UP] = p->stages[0].at[ZP_REGION_TRANSIENT];
}
static void message_on_slots(zp_program *p) { p->stages[0].at[ZP_REGION_SEND_UP] = p->stages[0].at[ZP_REGION_SLOTS]; }
static void inputs_on_slots(zp_program *p) { p->stages[0].at[ZP_REGION_INPUTS] = p->stages[0].at[ZP_REGION_SLOTS]; }
static void transients_on_state(zp_program *p) {
  p->stages[0].at[ZP_REGION_TRANSIENT] = p->stages[0].at[ZP_REGION_MOMENT1];
}
static void instances_too_close(zp_program *p) { p->stages[0].runs.data[1].stride.of[ZP_KIND_WHOLE] -= 64; }
static void parameter_elsewhere(zp_program *p) {
  first_buffer(&layer_of(p)->forward, ZP_AT_PARAM, false)->offset += 64, layer_of(p)->param_offset[0] += 64;
}
static zp_param_sum *sum_of(zp_program *p, bool accumulate) {
  for (int g = 0; g < p->stage_lowered[0]->n_segments; g++) {
    zp_procedure *q = (zp_procedure *)(uintptr_t)&p->stage_lowered[0]->segments[g].backward;
    for (int s = 0; s < q->steps.len; s++)
      for (int i = 0; i < q->steps.data[s].sums.len; i++)
        if (q->steps.data[s].sums.data[i].accumulate == accumulate) return &q->steps.data[s].sums.data[i];
  }
  cr_assert_fail("no such sum");
  return NULL;
}
static void sum_overwrites(zp_program *p) { sum_of(p, true)->accumulate = false; }
static void sum_adds_to_nothing(zp_program *p) { sum_of(p, false)->accumulate = true; }
static void sum_of_another(zp_program *p) { sum_of(p, false)->use ^= 1; }
static void not_zeroed(zp_program *p) {
  for (int i = 0; i < p->spec->model->params.len; i++) p->stage_lowered[0]->zero_first[i] = false;
}
static void gradient_does_not_wait(zp_program *p) { layer_of(p)->keeps_gradient = false; }
static void waiting_values_overlap(zp_program *p) {
  zp_procedure *q = &layer_of(p)->split;
  for (int b = 0; b < q->buffers.len; b++)
    if (q->buffers.data[b].place == ZP_AT_PENDING && q->buffers.data[b].base < 0) q->buffers.data[b].offset = 0;
}
static void too_few_waiting(zp_program *p) { p->stages[0].chunks[0].pending--; }
static void waits_too_early(zp_program *p) { layer_of(p)->split.n_inputs -= 2; }
static void one_saved_buffer(zp_program *p) { p->stages[0].saved_ring_stride = 0; }
static void offloaded_slots_overlap(zp_program *p) {
  p->stages[0].offloaded_stride = 0;
  for (int k = 0; k < p->stages[0].n_chunks; k++) p->stages[0].chunks[k].offloaded_stride = 0;
}
static void one_bucket(zp_program *p) { p->stages[0].bucket = (zp_flat){{0}}; }
static void ring_of_gradients_on_parameters(zp_program *p) {
  p->stages[0].at[ZP_REGION_GRAD_RING] = p->stages[0].at[ZP_REGION_PARAM_RING];
}
static void shard_elsewhere(zp_program *p) {
  for (int b = 0; b < layer_of(p)->backward.buffers.len; b++)
    if (layer_of(p)->backward.buffers.data[b].place == ZP_AT_SAVED) layer_of(p)->backward.buffers.data[b].offset += 256;
}

typedef struct mutant {
  const char *name;
  const model_size *model;
  zp_choice choice;
  void (*change)(zp_program *program);
} mutant;

#define MUTANT(model, choice, change)                                                                                  \
  { #change, &model, choice, change }

/* Every kind of damage is found, with a place. */
Test(replay, finds_damage) {
  const mutant mutants[] = {
      MUTANT(SCALED, plain(ZP_RECOMPUTE_SELECTIVE), old_selective_order),
      MUTANT(STREAMS, plain(ZP_RECOMPUTE_NONE), swapped_steps_of_backward),
      MUTANT(STREAMS, plain(ZP_RECOMPUTE_FULL), swapped_steps_of_forward),
      MUTANT(STREAMS, plain(ZP_RECOMPUTE_FULL), missing_step),
      MUTANT(STREAMS, plain(ZP_RECOMPUTE_NONE), offset_overlaps),
      MUTANT(STREAMS, plain(ZP_RECOMPUTE_FULL), freed_too_early),
      MUTANT(STREAMS, plain(ZP_RECOMPUTE_NONE), wrong_operand),
      MUTANT(STREAMS, plain(ZP_RECOMPUTE_NONE), wrong_column_of_a_view),
      MUTANT(STREAMS, plain(ZP_RECOMPUTE_NONE), saved_elsewhere),
      MUTANT(STREAMS, plain(ZP_RECOMPUTE_NONE), saved_on_each_other),
      MUTANT(STREAMS, plain(ZP_RECOMPUTE_NONE), too_few_slots),
      MUTANT(STREAMS, two_chunks(), too_few_slots),
      MUTANT(STREAMS, plain(ZP_RECOMPUTE_FULL), slots_too_close),
      MUTANT(STREAMS, plain(ZP_RECOMPUTE_NONE), units_too_close),
      MUTANT(STREAMS, plain(ZP_RECOMPUTE_NONE), runs_on_each_other),
      MUTANT(STREAMS, plain(ZP_RECOMPUTE_NONE), one_gradient_buffer),
      MUTANT(STREAMS, kept_shards(), one_carry_buffer),
      MUTANT(STREAMS, kept_shards(), shard_elsewhere),
      MUTANT(STREAMS, plain(ZP_RECOMPUTE_NONE), message_in_transients),
      MUTANT(STREAMS, plain(ZP_RECOMPUTE_NONE), message_on_slots),
      MUTANT(STREAMS, plain(ZP_RECOMPUTE_NONE), inputs_on_slots),
      MUTANT(STREAMS, plain(ZP_RECOMPUTE_NONE), transients_on_state),
      MUTANT(STREAMS, plain(ZP_RECOMPUTE_NONE), instances_too_close),
      MUTANT(STREAMS, plain(ZP_RECOMPUTE_NONE), parameter_elsewhere),
      MUTANT(STREAMS, one_stage(), sum_overwrites),
      MUTANT(STREAMS, plain(ZP_RECOMPUTE_NONE), sum_adds_to_nothing),
      MUTANT(STREAMS, plain(ZP_RECOMPUTE_NONE), sum_of_another),
      MUTANT(STREAMS, plain(ZP_RECOMPUTE_NONE), not_zeroed),
      MUTANT(LLAMA, split_backward(), gradient_does_not_wait),
      MUTANT(STREAMS, split_backward(), waiting_values_overlap),
      MUTANT(STREAMS, split_backward(), too_few_waiting),
      MUTANT(STREAMS, split_backward(), waits_too_early),
      MUTANT(STREAMS, offloaded(), one_saved_buffer),
      MUTANT(STREAMS, offloaded(), offloaded_slots_overlap),
      MUTANT(STREAMS, sharded(), one_bucket),
      MUTANT(STREAMS, sharded(), ring_of_gradients_on_parameters),
  };
  for (size_t i = 0; i < sizeof mutants / sizeof *mutants; i++) {
    zp_arena_mark mark = zp_arena_get_mark(arena);
    zp_program *program = make(mutants[i].model, mutants[i].choice);
    cr_expect_eq(play(program).len, 0, "%s: not sound before", mutants[i].name);
    mutants[i].change(program);
    zp_strings findings = play(program);
    cr_expect(findings.len > 0, "%s is not found", mutants[i].name);
    cr_expect(findings.len == 0 || strncmp(findings.data[0], "stage ", 6) == 0);
    zp_arena_rewind(arena, mark);
  }
}
