/* SPDX-License-Identifier: Apache-2.0 */
/* The replay of programs that several tensors flow through: sound in every schedule and mode, and what stands at
 * another tensor's place is found. */
#include "planner_models.h"
#include <zplan/proof.h>

static zp_arena *arena;
static void setup(void) { arena = zp_arena_new("test"); }
static void teardown(void) { zp_arena_free(arena); }
TestSuite(replay_carries, .init = setup, .fini = teardown);

enum { BATCH = 16, LAYER = 1 };

static zp_program *make(zp_choice c) {
  static const model_size size = {STYLE_LLAMA, 64, 8, 24, 6, 4, 4, 32, true};
  zp_spec *spec = build_spec(arena, &size, gpu_cluster(1), BATCH);
  hand_on(arena, spec->model);
  return evenly_cut(arena, spec, c);
}

static zp_strings play(const zp_program *program) {
  zp_strings findings = {0};
  zp_replay_program(arena, program, &findings);
  return findings;
}

Test(replay_carries, sound_programs) {
  for (int keep = ZP_RECOMPUTE_NONE; keep <= ZP_RECOMPUTE_SELECTIVE; keep++)
    for (int schedule = 0; schedule < ZP_SCHEDULE_COUNT; schedule++)
      for (int shards = 0; shards < 2; shards++) {
        if (shards && keep != ZP_RECOMPUTE_FULL) continue;
        zp_arena_mark mark = zp_arena_get_mark(arena);
        zp_choice c = {.tensor = 1 + shards, .pipeline = 2, .data = 1, .microbatch = 1};
        c.recompute = (zp_recompute)keep, c.recompute_shard = shards, c.schedule = (zp_schedule)schedule;
        if (c.schedule == ZP_SCHEDULE_INTERLEAVED || zp_schedule_folds(c.schedule)) c.chunks = 2;
        zp_strings findings = play(make(c));
        cr_expect_eq(findings.len, 0, "mode %d, schedule %d, shards %d: %s", keep, schedule, shards,
                     findings.len ? findings.data[0] : "");
        zp_arena_rewind(arena, mark);
      }
}

/* ---- damage: the program is ours to change ---- */

static zp_segment_program *layer_of(zp_program *p) {
  return (zp_segment_program *)(uintptr_t)&p->stage_lowered[0]->segments[LAYER];
}

/* The buffer of tensor `index` at an argument's place. */
static zp_buffer *argument(zp_procedure *p, zp_place place, int index) {
  for (int b = 0; b < p->buffers.len; b++)
    if (p->buffers.data[b].place == place && p->buffers.data[b].base < 0 && p->buffers.data[b].index == index)
      return &p->buffers.data[b];
  cr_assert_fail("no such buffer");
  return NULL;
}

static void exchanged(zp_procedure *p, zp_place place) {
  zp_buffer *a = argument(p, place, 0), *b = argument(p, place, 1);
  int64_t offset = a->offset;
  a->offset = b->offset, b->offset = offset;
  a->index = 1, b->index = 0;
}

static void results_exchanged(zp_program *p) { exchanged(&layer_of(p)->forward, ZP_AT_CARRY_OUT); }
static void gradients_exchanged(zp_program *p) { exchanged(&layer_of(p)->backward, ZP_AT_GRAD_OUT); }
static void read_alongside(zp_program *p) { layer_of(p)->carries[1] = (zp_carry){.stream = -1}; }
static void stream_without_room(zp_program *p) { p->stages[0].chunks[0].streams = 0; }
static void layers_on_stream(zp_program *p) {
  zp_stage *s = &p->stages[1];
  for (int r = 0; r < s->runs.len; r++) s->runs.data[r].saved -= 256;
}
static void message_on_gradients(zp_program *p) {
  p->stages[1].at[ZP_REGION_GRAD0] = p->stages[1].at[ZP_REGION_SEND_DOWN];
}

static void not_handed_on(zp_procedure *p) {
  for (int s = 0; s < p->steps.len; s++) {
    if (p->steps.data[s].kind != ZP_STEP_COPY) continue;
    for (int i = s; i + 1 < p->steps.len; i++) p->steps.data[i] = p->steps.data[i + 1];
    p->steps.len--;
    return;
  }
  cr_assert_fail("nothing is handed on");
}

static void tensor_not_handed_on(zp_program *p) { not_handed_on(&layer_of(p)->forward); }
static void gradient_not_handed_on(zp_program *p) { not_handed_on(&layer_of(p)->backward); }

/* Room for the first tensor alone. */
static void gradients_too_close(zp_program *p) {
  zp_stage *s = &p->stages[0];
  s->at[ZP_REGION_GRAD1] = s->at[ZP_REGION_GRAD0] + layer_of(p)->carry_in_elements / 2 * p->lowered->compute_bytes;
}

Test(replay_carries, finds_damage) {
  static const struct {
    const char *name;
    void (*change)(zp_program *program);
  } mutants[] = {{"results exchanged", results_exchanged},
                 {"gradients exchanged", gradients_exchanged},
                 {"read alongside", read_alongside},
                 {"stream without room", stream_without_room},
                 {"layers on a stream", layers_on_stream},
                 {"a message on gradients that leave", message_on_gradients},
                 {"tensor not handed on", tensor_not_handed_on},
                 {"gradient not handed on", gradient_not_handed_on},
                 {"gradients too close", gradients_too_close}};
  for (size_t i = 0; i < sizeof mutants / sizeof *mutants; i++) {
    zp_program *program = make((zp_choice){.tensor = 1, .pipeline = 2, .data = 1, .microbatch = 1});
    cr_expect_eq(play(program).len, 0, "%s: not sound before", mutants[i].name);
    mutants[i].change(program);
    zp_strings findings = play(program);
    cr_expect(findings.len > 0, "%s: not found", mutants[i].name);
  }
}
