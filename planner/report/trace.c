/* Chrome trace of the simulated step, and of a measured one where a profile has it (lanes of their own below): one
 * process per pipeline stage (one rank stands for its tensor and data ranks), thread 0 computes micro-batches, thread 1
 * ends the step, thread 2 is the host alongside it. Long steps: the first micro-batches only, which the trace's
 * metadata says; a viewer cannot show more anyway. */
#include <zplan/cost.h>

#include <assert.h>
#include <math.h>
#include "report_internal.h"

enum { MAX_EVENTS = 20000 };

typedef struct tracer {
  zp_buf out;
  int64_t microbatches; /* shown */
  bool first;
} tracer;

static void separate(tracer *t) {
  zp_buf_puts(&t->out, t->first ? "\n" : ",\n");
  t->first = false;
}

static void put_box(tracer *t, int pid, int tid, const char *name, const char *category, double begin_s, double end_s,
                    int64_t microbatch) {
  separate(t);
  zp_buf_printf(&t->out,
                "{\"name\": %s, \"cat\": %s, \"ph\": \"X\", \"ts\": %.3f, \"dur\": %.3f, \"pid\": %d, \"tid\": %d",
                zp_quote_json(t->out.arena, name), zp_quote_json(t->out.arena, category), begin_s * 1e6,
                (end_s - begin_s) * 1e6, pid, tid);
  if (microbatch >= 0) zp_buf_printf(&t->out, ", \"args\": {\"microbatch\": %lld}", (long long)microbatch);
  zp_buf_puts(&t->out, "}");
}

static void put_event(void *user, const zp_event *e) {
  tracer *t = user;
  if (e->action.microbatch >= t->microbatches) return;
  const char *name = zp_format(t->out.arena, "%c%lld", e->action.forward ? 'F' : 'B', (long long)e->action.microbatch);
  put_box(t, e->stage, 0, name, e->action.forward ? "forward" : "backward", e->begin_s, e->end_s, e->action.microbatch);
}

static void put_name(tracer *t, int pid, const char *name) {
  zp_json *meta = zp_json_object(), *args = zp_json_object();
  zp_json_set_string(meta, "name", "process_name");
  zp_json_set_string(meta, "ph", "M");
  zp_json_set_int(meta, "pid", pid);
  zp_json_set(meta, "args", args);
  zp_json_set_string(args, "name", name);
  separate(t);
  zp_buf_puts(&t->out, zp_json_text(t->out.arena, meta, false));
  zp_json_free(meta);
}

static void put_names(tracer *t, const zp_program *program, const char *predicted) {
  for (int s = 0; s < program->choice.pipeline; s++)
    put_name(t, s,
             zp_format(t->out.arena, "stage %d%s: %s", s, predicted,
                       zp_words_stage(t->out.arena, program->lowered, &program->stages[s])));
}

/* Stage s of the measured step is process `pipeline` + s: its micro-batches in thread 0, everything else in thread 1.
 * Every stage's time begins with its own step; they begin when all have met for the norm of the step before. */
static void put_measured(tracer *t, const zp_program *program, const zp_profile *profile) {
  int stages = program->choice.pipeline;
  for (int s = 0; s < stages; s++) put_name(t, stages + s, zp_format(t->out.arena, "stage %d, measured", s));
  for (int i = 0; i < profile->spans.len; i++) {
    const zp_profile_span *span = &profile->spans.data[i];
    char first = span->name[0];
    bool action = first && strchr("FBIW", first) && span->name[1] >= '0' && span->name[1] <= '9';
    put_box(t, stages + span->stage, !action, span->name,
            !action        ? "other"
            : first == 'F' ? "forward"
                           : "backward",
            span->begin_ms / 1e3, span->end_ms / 1e3, -1);
  }
}

/* Reduction and update of every stage, at the times that zp_simulate gives them. A delayed update begins with the
 * step's own gather of weights, here with the step, and ends before the exchange. */
static void put_step_end(tracer *t, const zp_plan *plan, const zp_pipeline_run *run) {
  const zp_program *p = plan->program;
  double ready = 0;
  for (int pass = 0; pass < 2; pass++)
    for (int s = 0; s < run->stages; s++) {
      zp_stage_time time = zp_cost_stage_time(run, s);
      zp_step_end end = zp_cost_stage_end(p, &plan->machine, s, zp_cost_overlapped(&p->choice, &time));
      double reduced = run->end_s[s] + end.reduce_s;
      if (pass == 0) {
        if (reduced > ready) ready = reduced;
        if (reduced > run->end_s[s]) put_box(t, s, 1, "reduce gradients", "data", run->end_s[s], reduced, -1);
        continue;
      }
      double updated = ready + end.optimizer_s;
      put_box(t, s, 1, "optimizer", "optimizer", ready, updated, -1);
      if (end.delayed_s > end.gather_s) {
        double delayed = end.delayed_s - end.gather_s;
        put_box(t, s, 2, "update of the step before", "host", 0, delayed, -1);
        updated = fmax(updated, delayed);
      }
      if (end.offload_s > 0)
        put_box(t, s, 1, end.delayed_s > 0 ? "exchange with the host" : "update on the host", "host", updated,
                updated + end.offload_s, -1);
      updated += end.offload_s;
      if (end.gather_s > 0) put_box(t, s, 1, "gather weights", "data", updated, updated + end.gather_s, -1);
    }
}

const char *zp_report_trace(zp_arena *arena, const zp_plan *plan, const zp_profile *profile) {
  assert(plan->feasible);
  const zp_program *p = plan->program;
  tracer t = {.out = zp_buf_new(arena), .first = true};
  int64_t room = MAX_EVENTS / (2 * p->choice.pipeline);
  t.microbatches = p->microbatches < room ? p->microbatches : room > 0 ? room : 1;
  zp_buf_puts(
      &t.out,
      profile ? "{\"displayTimeUnit\": \"ms\", \"otherData\": {\"source\": \"zplan, simulated step (estimate), and the "
                "last measured step of a run\", "
              : "{\"displayTimeUnit\": \"ms\", \"otherData\": {\"source\": \"zplan, simulated step (estimate)\", ");
  zp_buf_printf(&t.out, "\"microbatches\": %lld, \"microbatches_shown\": %lld}, \"traceEvents\": [",
                (long long)p->microbatches, (long long)t.microbatches);
  put_names(&t, p, profile ? ", predicted" : "");
  zp_pipeline_run run = zp_cost_pipeline(arena, p, &plan->machine);
  zp_arena *scratch = zp_arena_new("trace"); /* of its own: events are written to `arena` while it runs */
  zp_pipeline_simulate(scratch, &run, put_event, &t);
  zp_arena_free(scratch);
  put_step_end(&t, plan, &run);
  if (profile) put_measured(&t, p, profile);
  zp_buf_puts(&t.out, "\n]}\n");
  return t.out.data;
}
