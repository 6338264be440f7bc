/* SPDX-License-Identifier: Apache-2.0 */
/* The simulation of 1F1B without order tables yields what the event simulation does, to the last bit. */
#include <zplan/plan.h>

#include <zplan/cost.h>
#include <zplan/schedule.h>

#include <criterion/criterion.h>
#include <math.h>

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

/* In every second run, about, no message takes longer than a stage works. */
static zp_pipeline_run random_run(zp_arena *arena, zp_choice *choice, int stages, int64_t microbatches) {
  *choice = (zp_choice){.tensor = 1, .pipeline = stages, .data = 1, .schedule = ZP_SCHEDULE_1F1B};
  zp_stage_time *time = ZP_NEW_ARRAY(arena, zp_stage_time, stages);
  double *message = ZP_NEW_ARRAY(arena, double, stages);
  int64_t *actions = ZP_NEW_ARRAY(arena, int64_t, stages);
  double least_s = (double)below(2);
  for (int s = 0; s < stages; s++)
    time[s] = (zp_stage_time){.forward_s = least_s + seconds(), .backward_s = least_s + seconds()};
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
    int stages = 1 + (int)below(22);
    int64_t microbatches = 1 + below(i % 4 ? 40 : 120);
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

/* The first stages alone: a rest of no more time than there is never makes them later than they are, and knowing more
 * stages never makes them sooner. */
Test(cost_pipeline, first_stages_alone) {
  zp_arena *arena = zp_arena_new("test");
  for (int i = 0; i < 2000; i++) {
    bool wide = i % 10 == 0;
    int stages = 2 + (int)below(wide ? 20 : 10);
    zp_choice choice;
    zp_pipeline_run run = random_run(arena, &choice, stages, 1 + below(wide ? 120 : 30)), turns = run;
    turns.end_s = ZP_NEW_ARRAY(arena, double, stages);
    double *fewer_s = ZP_NEW_ARRAY(arena, double, stages), rest = 0;
    zp_pipeline_simulate(arena, &run, NULL, NULL);
    for (int s = 1; s < stages; s++) rest += run.time[s].forward_s + run.time[s].backward_s + 2 * run.message_s[s - 1];
    for (int known = 1; known <= stages; known++) {
      turns.known = known;
      turns.rest_s = known < stages ? rest - run.message_s[known - 1] : 0;
      zp_pipeline_1f1b(arena, &turns);
      for (int s = 0; s < known; s++) {
        cr_assert(turns.end_s[s] <= run.end_s[s] * (1 + 1e-12),
                  "case %d: stage %d of %d known ends after %.17g, not %.17g", i, s, known, turns.end_s[s],
                  run.end_s[s]);
        cr_assert(turns.end_s[s] >= fewer_s[s] * (1 - 1e-12), "case %d: stage %d ends sooner with %d known stages", i,
                  s, known);
        fewer_s[s] = turns.end_s[s];
      }
      if (known < stages) rest -= run.time[known].forward_s + run.time[known].backward_s + 2 * run.message_s[known - 1];
    }
  }
  zp_arena_free(arena);
}

/* ---- order tables as a graph ---- */

/* Any schedule with any number of chunks that it allows. */
static zp_pipeline_run random_table(zp_arena *arena, zp_choice *choice) {
  zp_pipeline_run run = random_run(arena, choice, 2 + (int)below(7), 1 + below(24));
  choice->schedule = (zp_schedule)below(ZP_SCHEDULE_COUNT);
  if (zp_schedule_folds(choice->schedule)) choice->chunks = 2;
  if (choice->schedule == ZP_SCHEDULE_INTERLEAVED) choice->chunks = 2 + (int)below(3);
  if (choice->schedule == ZP_SCHEDULE_INTERLEAVED && run.microbatches < run.stages) run.microbatches = run.stages;
  run.chunks = zp_chunks(choice);
  int places = run.stages * run.chunks;
  zp_stage_time *time = ZP_NEW_ARRAY(arena, zp_stage_time, places);
  double *message = ZP_NEW_ARRAY(arena, double, places);
  for (int k = 0; k < places; k++) {
    double weights = seconds();
    time[k] = (zp_stage_time){.forward_s = seconds(), .backward_s = seconds() + weights, .weights_s = weights};
    message[k] = seconds();
  }
  run.time = time;
  run.message_s = message;
  run.buffers = zp_message_buffers(choice, run.microbatches);
  int64_t *actions = ZP_NEW_ARRAY(arena, int64_t, run.stages);
  run.order = zp_orders(arena, choice, run.microbatches, actions);
  run.actions = actions;
  return run;
}

/* What the actions and messages of a chain take together. */
static double chain_s(const zp_pipeline_run *run, const zp_place_weights *weights) {
  bool split = zp_schedule_splits(run->choice->schedule);
  double sum = 0;
  for (int k = 0; k < run->stages * run->chunks; k++) {
    int chunk, stage = zp_chunk_stage(run->choice, k, &chunk);
    const zp_stage_time *time = &run->time[stage * run->chunks + chunk];
    sum += weights[k].forwards * time->forward_s + weights[k].weights * time->weights_s +
           weights[k].backwards * (time->backward_s - (split ? time->weights_s : 0)) +
           weights[k].messages * run->message_s[k];
  }
  return sum;
}

/* The graph ends when the event simulation does; the chain of what an end waited for is as long as that, and chains of
 * other durations, made-up ones included, are never longer. */
Test(cost_pipeline, graph_matches_events) {
  for (int i = 0; i < 1500; i++) {
    zp_arena *arena = zp_arena_new("test");
    zp_choice choice;
    zp_pipeline_run run = random_table(arena, &choice), events = run;
    int places = run.stages * run.chunks, end = (int)below(run.stages), stage = (int)below(run.stages);
    events.end_s = ZP_NEW_ARRAY(arena, double, run.stages);
    zp_pipeline_simulate(arena, &events, NULL, NULL);
    zp_order_graph *graph = zp_order_graph_new(arena, &run);
    zp_order_graph_run(graph);
    for (int s = 0; s < run.stages; s++)
      cr_assert(run.end_s[s] == events.end_s[s], "case %d, %s: stage %d ends at %.17g, %.17g", i,
                zp_schedule_name(choice.schedule), s, run.end_s[s], events.end_s[s]);
    zp_place_weights *chain = ZP_NEW_ARRAY(arena, zp_place_weights, places),
                     *through = ZP_NEW_ARRAY(arena, zp_place_weights, places);
    zp_order_graph_chain(graph, end, chain);
    cr_assert(fabs(chain_s(&run, chain) - run.end_s[end]) <= 1e-12 * run.end_s[end],
              "case %d: a chain of %.17g of %.17g", i, chain_s(&run, chain), run.end_s[end]);
    int to = below(2) ? 0 : stage;
    zp_order_graph_through(graph, to, stage, through);
    cr_assert(chain_s(&run, through) <= run.end_s[to] * (1 + 1e-12));
    zp_stage_time *other = ZP_NEW_ARRAY(arena, zp_stage_time, places);
    for (int k = 0; k < places; k++)
      other[k] = (zp_stage_time){.forward_s = seconds(), .backward_s = 1 + seconds(), .weights_s = seconds()};
    run.time = other;
    zp_order_graph_run(graph);
    cr_assert(chain_s(&run, chain) <= run.end_s[end] * (1 + 1e-12), "case %d: %s, a chain of %.17g, all of %.17g", i,
              zp_schedule_name(choice.schedule), chain_s(&run, chain), run.end_s[end]);
    zp_arena_free(arena);
  }
}
