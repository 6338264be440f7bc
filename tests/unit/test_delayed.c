/* SPDX-License-Identifier: Apache-2.0 */
/* The price of steps whose updates go on alongside the next one, against step after step event by event: threads of
 * hosts that begin when their stage has exchanged and are waited for before it exchanges again. */
#include "planner_models.h"
#include <zplan/abilities.h>
#include <zplan/buf.h>
#include <zplan/cost.h>
#include <zplan/stage_step.h>

static zp_arena *arena;
static void setup(void) { arena = zp_arena_new("test"); }
static void teardown(void) { zp_arena_free(arena); }
TestSuite(delayed, .init = setup, .fini = teardown);

static const model_size TINY = {STYLE_GPT, 250, 32, 64, 4, 4, 4, 256, true};
enum { MOST_STAGES = 4, STEPS = 40 };

static zp_plan *plan_of(int pipeline, int data, zp_schedule schedule, double host_bytes_per_s) {
  zp_spec *spec = build_spec(arena, &TINY, gpu_cluster(1), 8);
  zp_constraints *c = &spec->plans.data[0];
  zp_node_type *node = &spec->cluster.node;
  node->host_memory_bytes = INT64_C(1) << 40;
  node->pcie_bytes_per_s = 10e9;
  node->host_bytes_per_s = host_bytes_per_s;
  spec->train.delayed = true;
  pin(&c->tensor, 1), pin(&c->pipeline, pipeline), pin(&c->data, data), pin(&c->schedule, schedule);
  pin(&c->microbatch, 1);
  (void)zp_trainer_narrow(arena, spec);
  zp_plan *plan = zp_search(arena, spec, pipeline * data, NULL);
  cr_assert(plan->feasible && plan->program->choice.home[ZP_STATE_OPTIMIZER].eighths == 8);
  return plan;
}

/* Seconds of one step of many, once the threads are under way. */
static double simulated(const zp_plan *plan) {
  const zp_program *p = plan->program;
  zp_pipeline_run run = zp_cost_pipeline(arena, p, &plan->machine);
  zp_pipeline_simulate(arena, &run, NULL, NULL);
  zp_step_end end[MOST_STAGES];
  double thread_ends[MOST_STAGES] = {0}, begin = 0, before = 0;
  for (int s = 0; s < run.stages; s++) {
    zp_stage_time time = zp_cost_stage_time(&run, s);
    end[s] = zp_cost_stage_end(p, &plan->machine, s, zp_cost_overlapped(&p->choice, &time));
  }
  for (int n = 0; n < STEPS; n++) {
    double met = 0, over = 0;
    for (int s = 0; s < run.stages; s++) met = fmax(met, begin + run.end_s[s] + end[s].reduce_s);
    for (int s = 0; s < run.stages; s++) {
      double exchanged = fmax(met + end[s].optimizer_s, thread_ends[s]) + end[s].offload_s;
      thread_ends[s] = exchanged + zp_cost_delayed(p, &plan->machine, s);
      over = fmax(over, exchanged + end[s].gather_s);
    }
    before = begin, begin = over;
  }
  return begin - before;
}

static void check_report(const zp_plan *plan, const zp_delay *delay) {
  const char *html = zp_report_html(arena, &(zp_report_page){.plan = plan});
  const char *trace = zp_report_trace(arena, plan, NULL);
  const char *said = zp_format(arena, "\"host_s\":%.12g,\"hidden_s\":%.12g,\"shown_s\":%.12g", delay->host_s,
                               delay->host_s - delay->shown_s, delay->shown_s);
  cr_expect(strstr(html, said), "no %s", said);
  cr_expect(strstr(trace, "\"update of the step before\", \"cat\": \"host\""));
}

/* *in_bubbles: plans whose update is longer than what its stage computes, and yet hidden. */
static void check(const zp_plan *plan, int *in_bubbles, int *shown) {
  const zp_program *p = plan->program;
  double step = plan->best.estimate.step_s, events = simulated(plan), met = 0, longest = 0, sum = 0;
  cr_expect(fabs(events / step - 1) < 1e-9, "pipeline %d data %d schedule %d: %.12g s by events, %.12g s by the plan",
            p->choice.pipeline, p->choice.data, (int)p->choice.schedule, events, step);
  zp_delay delay = zp_cost_delay(arena, p, &plan->machine);
  cr_expect(delay.shown_s >= 0 && delay.shown_s <= delay.host_s && delay.shown_s <= plan->best.estimate.offload_s);
  const zp_stage_step *steps = zp_cost_stage_steps(arena, p, &plan->machine);
  for (int s = 0; s < p->choice.pipeline; s++) {
    const zp_stage_step *t = &steps[s];
    met = t->units_s + t->waiting_s + t->data_s + t->offload_s + t->reduce_s + t->meet_s;
    longest = fmax(longest, t->update_s + t->gather_s);
    *in_bubbles += delay.shown_s == 0 && zp_cost_delayed(p, &plan->machine, s) > t->units_s + t->data_s + t->offload_s;
  }
  cr_expect(fabs((met + longest) / step - 1) < 1e-9, "stages take %.12g s of %.12g", met + longest, step);
#define ADD(field, name) sum += plan->best.estimate.field;
  ZP_STEP_TERMS(ADD)
#undef ADD
  cr_expect(fabs(sum / step - 1) < 1e-9, "terms sum to %.12g s of %.12g", sum, step);
  *shown += delay.shown_s > 0;
  check_report(plan, &delay);
}

Test(delayed, steps_take_what_events_say) {
  static const struct {
    int pipeline, data;
    zp_schedule schedule;
  } of[] = {{1, 2, ZP_SCHEDULE_1F1B},  {2, 1, ZP_SCHEDULE_1F1B},  {4, 1, ZP_SCHEDULE_1F1B},
            {4, 2, ZP_SCHEDULE_GPIPE}, {2, 2, ZP_SCHEDULE_ZB_H1}, {2, 1, ZP_SCHEDULE_INTERLEAVED}};
  enum { KINDS = sizeof of / sizeof *of, SPEEDS = 6 };
  int in_bubbles = 0, shown = 0;
  for (int k = 0; k < KINDS; k++)
    for (int i = 0; i < SPEEDS; i++)
      check(plan_of(of[k].pipeline, of[k].data, of[k].schedule, 32e9 * pow(0.5, i)), &in_bubbles, &shown);
  cr_expect(in_bubbles > 0 && shown > 0 && shown < KINDS * SPEEDS,
            "%d stages hide it in bubbles, %d of %d plans show it", in_bubbles, shown, KINDS * SPEEDS);
}
