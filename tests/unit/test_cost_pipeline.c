/* The simulation of 1F1B without order tables yields what the event simulation does, to the last bit. */
#include <zplan/plan.h>

#include "../../planner/cost/cost.h"
#include "../../planner/schedule/schedule.h"

#include <criterion/criterion.h>

static uint64_t state = 1;
static int64_t below(int64_t n) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (int64_t)((state >> 33) % (uint64_t)n);
}

/* Lengths over three orders of magnitude, some of them equal, some zero. */
static double seconds(void) {
  static const double scale[] = {0, 1e-3, 1e-2, 1};
  return scale[below(4)] * (double)(1 + below(7)) / 7;
}

static zp_pipeline_run random_run(zp_arena *arena, zp_choice *choice, int stages, int64_t microbatches) {
  *choice = (zp_choice){.tensor = 1, .pipeline = stages, .data = 1, .schedule = ZP_SCHEDULE_1F1B};
  zp_stage_time *time = ZP_NEW_ARRAY(arena, zp_stage_time, stages);
  double *message = ZP_NEW_ARRAY(arena, double, stages);
  int64_t *actions = ZP_NEW_ARRAY(arena, int64_t, stages);
  for (int s = 0; s < stages; s++) time[s] = (zp_stage_time){.forward_s = seconds(), .backward_s = seconds()};
  for (int s = 0; s + 1 < stages; s++) message[s] = seconds();
  zp_action **order = zp_orders(arena, choice, microbatches, actions);
  return (zp_pipeline_run){.stages = stages,
                           .chunks = 1,
                           .choice = choice,
                           .microbatches = microbatches,
                           .buffers = zp_message_buffers(choice, microbatches),
                           .order = order,
                           .actions = actions,
                           .time = time,
                           .message_s = message,
                           .end_s = ZP_NEW_ARRAY(arena, double, stages)};
}

Test(cost_pipeline, turns_match_events) {
  zp_arena *arena = zp_arena_new("test");
  for (int i = 0; i < 2000; i++) {
    int stages = 1 + (int)below(12);
    int64_t microbatches = 1 + below(40);
    zp_choice choice;
    zp_pipeline_run run = random_run(arena, &choice, stages, microbatches), turns = run;
    turns.end_s = ZP_NEW_ARRAY(arena, double, stages);
    turns.order = NULL, turns.actions = NULL;
    zp_pipeline_simulate(arena, &run, NULL, NULL);
    zp_pipeline_1f1b(arena, &turns);
    for (int s = 0; s < stages; s++)
      cr_assert(run.end_s[s] == turns.end_s[s], "case %d: stage %d of %d, %lld micro-batches: %.17g and %.17g", i, s,
                stages, (long long)microbatches, run.end_s[s], turns.end_s[s]);
  }
  zp_arena_free(arena);
}

/* The first stages alone: both simulations agree, a rest of no time never makes them later than they are, and knowing
 * more stages never makes them sooner. */
Test(cost_pipeline, first_stages_alone) {
  zp_arena *arena = zp_arena_new("test");
  for (int i = 0; i < 2000; i++) {
    int stages = 2 + (int)below(10);
    zp_choice choice;
    zp_pipeline_run run = random_run(arena, &choice, stages, 1 + below(30)), turns = run;
    turns.end_s = ZP_NEW_ARRAY(arena, double, stages);
    double *fewer_s = ZP_NEW_ARRAY(arena, double, stages), rest = 0;
    for (int s = 1; s < stages; s++) rest += run.time[s].forward_s + run.time[s].backward_s + 2 * run.message_s[s - 1];
    for (int known = 1; known <= stages; known++) {
      run.known = turns.known = known;
      run.rest_s = turns.rest_s = known < stages ? rest - run.message_s[known - 1] : 0;
      zp_pipeline_simulate(arena, &run, NULL, NULL);
      zp_pipeline_1f1b(arena, &turns);
      for (int s = 0; s < known; s++) {
        cr_assert(run.end_s[s] == turns.end_s[s], "case %d: stage %d of %d known: %.17g and %.17g", i, s, known,
                  run.end_s[s], turns.end_s[s]);
        cr_assert(run.end_s[s] >= fewer_s[s] * (1 - 1e-12), "case %d: stage %d ends sooner with %d known stages", i, s,
                  known);
        fewer_s[s] = run.end_s[s];
      }
      if (known < stages) rest -= run.time[known].forward_s + run.time[known].backward_s + 2 * run.message_s[known - 1];
    }
  }
  zp_arena_free(arena);
}
