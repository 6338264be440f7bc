/* SPDX-License-Identifier: Apache-2.0 */
/* The loop: a step, its log line, now and then a validation or a checkpoint, and an orderly end.
 *
 * SIGINT, SIGTERM and SIGUSR1 let the current step finish on all ranks, publish a checkpoint if there is a folder for
 * it, and end with status 130, 143 and 0 (signals.c).
 *
 * A step whose loss or gradient norm is not finite changes nothing and is told; after BAD_STEPS in a row the run ends.
 * Those do not count whose gradients a lower loss scale may mend: finite loss, and a scale that can fall
 * (loss_scale.c). */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "one_bit.h"
#include "profile.h"
#include "signals.h"
#include "state.h"
#include "tier.h"

enum { BAD_STEPS = 3, RECENT = 1024, OPEN = 2 };

/* A step that was started and whose outcome is not known. */
typedef struct started {
  int64_t step; /* 1: the first */
  double lr;
  int64_t moved_bytes[ZPR_MOVE_COUNT], data_bytes; /* data_bytes: sent over the data ranks */
  bool frozen;
  int64_t samples;  /* used when it has ended */
  unsigned without; /* a bit for every loss of which the batch has no label */
} started;

typedef struct loop {
  zpr *c;
  started open[OPEN];
  int n_open;
  double wall_ms, cpu_ms; /* clocks when the last step ended, or when a step began and none was open */
  zpr_data *validate;     /* NULL: none */
  int64_t last;           /* step to stop at */
  int64_t saved;          /* step of the newest checkpoint, or -1 */
  int bad_steps;          /* in a row */
  double smooth_ms;       /* moving average, for the ETA */
  double recent[RECENT];  /* the newest step times, a ring */
  zpr_losses losses;
  bool spike;        /* the last step was one */
  bool no_data;      /* a batch could not be loaded, on some rank: the run ends */
  unsigned reported; /* losses of which a batch had no label */
  zpr_totals totals;
} loop;

static int status_after(int signal) { return signal == 0 || signal == SIGUSR1 ? 0 : 128 + signal; }

/* ---- time ---- */

static double clock_ms(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void restart_clocks(loop *l) {
  l->wall_ms = clock_ms(CLOCK_MONOTONIC);
  l->cpu_ms = clock_ms(CLOCK_THREAD_CPUTIME_ID);
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Sorts the ring: only for the end of a run. */
static double median_step_ms(loop *l) {
  size_t n = l->totals.steps < RECENT ? (size_t)l->totals.steps : RECENT;
  if (n == 0) return 0;
  qsort(l->recent, n, sizeof *l->recent, compare);
  return n % 2 ? l->recent[n / 2] : (l->recent[n / 2 - 1] + l->recent[n / 2]) / 2;
}

/* ---- a step ---- */

/* Parameters come from the update, and the sums of gradients go there: the rings start and end with the
 * micro-batches. */
static void run_micro_batches(zpr *c, void (*run)(zpr *c)) {
  zpr_overlapped_join(c);
  zpr_messages_begin(c);
  run(c);
  zpr_wait_sends(c);
  zpr_overlapped_join(c);
}

void zpr_run_forwards(zpr *c) { run_micro_batches(c, c->program->forwards); }

static bool due(int64_t step, int64_t every) { return every > 0 && step % every == 0; }

static unsigned losses_without_labels(const zpr *c) {
  unsigned losses = 0;
  for (int i = 0; i < zpr_n_losses(c->program); i++) losses |= (unsigned)(zpr_data_labels(c->state->data, i) == 0) << i;
  return losses;
}

/* A loss without labels adds nothing to the step; reported once a loss, and null in every line of the log. */
static void tell_without_labels(loop *l, const started *s) {
  zpr *c = l->c;
  for (int i = 0; i < zpr_n_losses(c->program); i++)
    if ((s->without & ~l->reported) >> i & 1)
      zpr_log_note(c,
                   "note: no sample of step %lld (samples %lld to %lld) has a label of `%s`, which adds nothing there; "
                   "reported once",
                   (long long)s->step, (long long)(s->samples - c->program->batch), (long long)(s->samples - 1),
                   zpr_loss_name(c->program, i));
  l->reported |= s->without;
}

/* False where there is no batch for it, and this rank is the only one: then it was not started. */
static bool start_step(loop *l) {
  zpr *c = l->c;
  c->state->local.meets = c->step + 1 == l->last || due(c->step + 1, c->program->checkpoint_every);
  int64_t before[ZPR_AXIS_COUNT], across[ZPR_AXIS_COUNT], moved[ZPR_MOVE_COUNT], routed = zpr_comm_routed_bytes(c);
  started *now = &l->open[l->n_open++];
  if (l->n_open == 1) restart_clocks(l);
  zpr_profile_begin_step(c);
  c->state->phase = ZPR_IN_STEP;
  *now = (started){.lr = zpr_learning_rate(c->program, c->step), .frozen = zpr_is_frozen(c)};
  for (int a = 0; a < ZPR_AXIS_COUNT; a++) {
    before[a] = zpr_comm_sent_bytes(c, (zpr_axis)a);
    across[a] = zpr_comm_across_bytes(c, (zpr_axis)a);
  }
  for (int m = 0; m < ZPR_MOVE_COUNT; m++) moved[m] = zpr_moved_bytes(c, (zpr_move)m);
  int at = zpr_enter(c, ZPR_AT_LOAD);
  zpr_data_load(c, c->state->data, c->samples);
  now->without = losses_without_labels(c);
  zpr_leave(c, at);
  if (c->state->data_error.code[0] && c->ranks == 1) {
    l->n_open--;
    l->no_data = true;
    return false;
  }
  c->loss = 0;
  memset(c->tally, 0, sizeof c->tally);
  at = zpr_enter(c, ZPR_AT_ZERO);
  zpr_begin_step(c);
  zpr_leave(c, at);
  run_micro_batches(c, c->program->micro_batches);
  zpr_finish_step(c, now->lr, zpr_signal_caught());
  for (int a = 0; a < ZPR_AXIS_COUNT; a++) {
    l->totals.sent_bytes[a] += zpr_comm_sent_bytes(c, (zpr_axis)a) - before[a];
    l->totals.across_bytes[a] += zpr_comm_across_bytes(c, (zpr_axis)a) - across[a];
  }
  l->totals.routed_bytes += zpr_comm_routed_bytes(c) - routed;
  now->data_bytes = zpr_comm_sent_bytes(c, ZPR_DATA) - before[ZPR_DATA];
  for (int m = 0; m < ZPR_MOVE_COUNT; m++) now->moved_bytes[m] = zpr_moved_bytes(c, (zpr_move)m) - moved[m];
  now->step = ++c->step;
  now->samples = c->samples += c->program->batch;
  return true;
}

static void count_step(loop *l, const started *s, const zpr_step_result *result) {
  l->totals.applied_steps += result->applied;
  for (int m = 0; m < ZPR_MOVE_COUNT && result->applied; m++) l->totals.moved_bytes[m] += s->moved_bytes[m];
  l->totals.frozen_steps += s->frozen;
  bool local = zpr_is_zero_one_adam(l->c->program);
  l->totals.exchanges += local ? l->c->state->local.synced : s->frozen && result->applied;
  l->totals.summed_steps += local && l->c->state->local.summed;
  l->totals.exchanged_bytes += s->frozen ? s->data_bytes : 0;
  l->c->frozen_steps += s->frozen && result->applied;
}

static void log_step(loop *l, const started *s, const zpr_step_result *result) {
  zpr *c = l->c;
  const zpr_program *p = c->program;
  double ms = clock_ms(CLOCK_MONOTONIC) - l->wall_ms, cpu_ms = clock_ms(CLOCK_THREAD_CPUTIME_ID) - l->cpu_ms;
  zpr_profile_end_step(c, ms);
  if (ms > c->state->longest_step_ms) c->state->longest_step_ms = ms;
  restart_clocks(l);
  l->recent[l->totals.steps++ % RECENT] = ms;
  double usual = 0;
  bool before = l->spike;
  l->spike = zpr_loss_is_spike(&l->losses, result->loss, &usual);
  l->smooth_ms = l->totals.steps <= 2 ? ms : 0.9 * l->smooth_ms + 0.1 * ms; /* the first step also touches its memory */
  zpr_tally tally[ZPR_MOST_LOSSES];
  for (int i = 0; i < zpr_n_losses(p); i++) tally[i] = s->without >> i & 1 ? (zpr_tally){NAN, NAN} : result->tally[i];
  tell_without_labels(l, s);
  zpr_record record = {.step = s->step,
                       .loss = result->loss,
                       .tally = tally,
                       .grad_norm = result->grad_norm,
                       .lr = s->lr,
                       .loss_scale = p->dtype == ZPK_F16 ? result->loss_scale : 0,
                       .skipped = c->skipped_steps,
                       .step_ms = ms,
                       .tokens_per_s = (double)(p->batch * p->sequence) / ms * 1e3,
                       .mfu = p->peak_flop_per_s > 0 ? p->model_flop_per_step / (ms / 1e3) / p->peak_flop_per_s : NAN,
                       .device_peak_bytes = c->rank == 0 ? zpr_device_used_bytes(c) : 0,
                       .spike = l->spike,
                       .samples = s->samples,
                       .staleness = !p->delayed ? -1 : s->step > p->delay_after + 1};
  zpr_log_step(c, &record, cpu_ms, l->last, (double)(l->last - s->step) * l->smooth_ms / 1e3);
  if (l->spike && !before)
    zpr_log_note(c, "warning: loss %.6f of step %lld is far above the recent ones, whose median is %.6f", result->loss,
                 (long long)s->step, usual);
}

static void judge(loop *l, const started *s, const zpr_step_result *result) {
  zpr *c = l->c;
  if (result->applied) l->bad_steps = 0;
  if (result->applied) return;
  if (result->rescaled && isfinite(result->loss)) {
    zpr_log_note(c, "step %lld skipped: gradients overflowed; loss scale is now %lld", (long long)s->step,
                 (long long)c->loss_scale);
    return;
  }
  l->bad_steps++;
  zpr_log_note(c, "warning: loss or gradient norm of step %lld is not finite; the step was not applied",
               (long long)s->step);
  zpr_error error = {0};
  if (l->bad_steps == BAD_STEPS)
    zpr_error_set(&error, "Z0830", "loss or gradient norm was not finite in %d steps in a row, up to step %lld",
                  BAD_STEPS, (long long)s->step);
  zpr_agree(c, &error);
}

/* The outcome of the oldest step that was started. Returns a signal that came meanwhile, or 0. */
static int end_step(loop *l) {
  zpr *c = l->c;
  zpr_step_result result = zpr_step_outcome(c);
  started s = l->open[0];
  for (int i = 1; i < l->n_open; i++) l->open[i - 1] = l->open[i];
  l->n_open--;
  if (result.no_data) { /* as if it had not been started */
    l->no_data = true;
    c->step--;
    c->samples -= c->program->batch;
    return result.signal;
  }
  count_step(l, &s, &result);
  log_step(l, &s, &result);
  judge(l, &s, &result);
  if (!s.frozen && zpr_is_frozen(c)) zpr_variance_freeze_report(c);
  return result.signal;
}

/* ---- between steps ---- */

static void save(loop *l) {
  zpr *c = l->c;
  const char *dir = c->state->options.checkpoint_dir;
  if (!dir || l->saved == c->step) return;
  c->state->phase = ZPR_IN_CHECKPOINT;
  zpr_checkpoint_save(c, dir, c->step, c->program->checkpoint_keep);
  c->state->phase = ZPR_IN_STEP;
  zpr_log_checkpoint(c, c->step, dir);
  l->saved = c->step;
}

/* The batch of the next step, or of a validation, cannot be loaded: what was trained is saved, then all ranks leave. */
static void end_without_data(loop *l, const char *what) {
  zpr *c = l->c;
  zpr_error *found = &c->state->data_error, error = {0};
  if (c->step > 0) save(l);
  if (found->code[0]) {
    zpr_error_set(&error, found->code, "%s %lld: %s", what, (long long)c->step + (strcmp(what, "step") == 0),
                  found->text);
    size_t used = strlen(error.text), room = sizeof error.text - used;
    if (c->state->options.checkpoint_dir && l->saved == c->step)
      snprintf(error.text + used, room, "; the checkpoint of step %lld is saved in \"%s\"", (long long)c->step,
               c->state->options.checkpoint_dir);
    else
      snprintf(error.text + used, room, "; %lld steps were trained, and there is no checkpoint of them",
               (long long)c->step);
  }
  zpr_agree(c, &error);
}

/* Does something follow the step that needs its outcome? */
static bool stops_here(const loop *l) {
  const zpr *c = l->c;
  return c->step == l->last || zpr_signal_caught() || due(c->step, c->program->checkpoint_every) ||
         (l->validate && due(c->step, c->program->validate_every));
}

int zpr_train(zpr *c, zpr_data *validate_data, int64_t last) {
  loop *l = zpr_alloc(c, 1, sizeof *l);
  *l = (loop){.c = c, .validate = validate_data, .last = last, .saved = c->step > 0 ? c->step : -1};
  int signal = 0;
  bool first = true;
  zpr_signals_catch();
  while (c->step < last && signal == 0) {
    bool begun = start_step(l);
    if (first && begun) zpr_algorithms_note(c);
    first = first && !begun;
    int stay = zpr_runs_ahead(c) && !stops_here(l) && !l->no_data ? 1 : 0;
    while (l->n_open > (signal ? 0 : stay)) {
      int caught_in = end_step(l);
      if (signal == 0) signal = caught_in;
    }
    if (l->n_open > 0) continue;
    if (l->no_data) end_without_data(l, "step");
    bool end = c->step == last;
    if (end && zpr_is_behind(c)) { /* the next step of a run that goes on computes with what is there now */
      save(l);
      zpr_update_catch_up(c);
    }
    if (l->validate && (end || due(c->step, c->program->validate_every)) && !zpr_validate(c, l->validate))
      end_without_data(l, "validation after step");
    if (due(c->step, c->program->checkpoint_every)) save(l);
    zpr_profile_tell(c, false);
  }
  save(l);
  if (signal) zpr_log_note(c, "stopped by %s after step %lld", strsignal(signal), (long long)c->step);
  l->totals.median_step_ms = median_step_ms(l);
  zpr_profile_tell(c, true);
  bool as_planned = zpr_summary(c, &l->totals);
  free(l);
  if (signal && status_after(signal)) return status_after(signal);
  return as_planned ? 0 : ZPR_EXIT_FAILED;
}
