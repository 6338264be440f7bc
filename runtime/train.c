/* The loop: a step, its log line, now and then a validation or a checkpoint, and an orderly end.
 *
 * SIGINT, SIGTERM and SIGUSR1 let the current step finish on all ranks, publish a checkpoint if there is a folder for
 * it, and end with status 130, 143 and 0. A second signal of the same kind ends the process at once.
 *
 * A step whose loss or gradient norm is not finite changes nothing and is told; after BAD_STEPS in a row the run ends.
 * Those do not count whose gradients a lower loss scale may mend: finite loss, and a scale that can fall
 * (loss_scale.c).
 */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "compress.h"
#include "state.h"
#include "tier.h"

enum { BAD_STEPS = 3, RECENT = 1024 };

typedef struct loop {
  zpr *c;
  zpr_data *validate;    /* NULL: none */
  int64_t last;          /* step to stop at */
  int64_t saved;         /* step of the newest checkpoint, or -1 */
  int bad_steps;         /* in a row */
  double smooth_ms;      /* moving average, for the ETA */
  double recent[RECENT]; /* the newest step times, a ring */
  zpr_losses losses;
  bool spike; /* the last step was one */
  zpr_totals totals;
} loop;

/* ---- signals ---- */

static volatile sig_atomic_t caught;

static void on_signal(int signal) { caught = signal; }

static const int handled[] = {SIGINT, SIGTERM, SIGUSR1};

static void catch_signals(void) {
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART | (int)SA_RESETHAND};
  caught = 0;
  for (int i = 0; i < 3; i++) sigaction(handled[i], &action, NULL);
}

static void release_signals(void) {
  for (int i = 0; i < 3; i++) signal(handled[i], SIG_DFL);
}

static int status_after(int signal) { return signal == 0 || signal == SIGUSR1 ? 0 : 128 + signal; }

/* ---- time ---- */

static double clock_ms(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
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

static int64_t device_peak_bytes(const zpr_program *program) {
  int64_t peak = 0;
  for (int p = 0; p < program->pipeline; p++)
    if (program->stages[p].arena_bytes > peak) peak = program->stages[p].arena_bytes;
  return peak;
}

/* Parameters come from the update, and the sums of gradients go there: the rings start and end with the micro-batches.
 */
static void run_micro_batches(zpr *c, void (*run)(zpr *c)) {
  zpr_beside_join(c);
  run(c);
  zpr_wait_sends(c);
  zpr_beside_join(c);
}

static zpr_step_result run_step(loop *l, double lr) {
  zpr *c = l->c;
  int64_t before[ZPR_AXIS_COUNT], moved[ZPR_MOVE_COUNT];
  for (int a = 0; a < ZPR_AXIS_COUNT; a++) before[a] = zpr_comm_sent_bytes(c, (zpr_axis)a);
  for (int m = 0; m < ZPR_MOVE_COUNT; m++) moved[m] = zpr_moved_bytes(c, (zpr_move)m);
  bool frozen = zpr_is_frozen(c);
  zpr_data_load(c, c->state->data, c->samples);
  c->loss = 0;
  zpr_begin_step(c);
  run_micro_batches(c, c->program->micro_batches);
  zpr_step_result result = zpr_finish_step(c, lr, caught);
  for (int a = 0; a < ZPR_AXIS_COUNT; a++) l->totals.sent_bytes[a] += zpr_comm_sent_bytes(c, (zpr_axis)a) - before[a];
  l->totals.applied_steps += result.applied;
  for (int m = 0; m < ZPR_MOVE_COUNT && result.applied; m++)
    l->totals.moved_bytes[m] += zpr_moved_bytes(c, (zpr_move)m) - moved[m];
  l->totals.frozen_steps += frozen;
  l->totals.exchanges += frozen && result.applied;
  c->frozen_steps += frozen && result.applied;
  c->step++;
  c->samples += c->program->batch;
  return result;
}

static void log_step(loop *l, const zpr_step_result *result, int64_t loss_scale, double lr, double ms, double cpu_ms) {
  zpr *c = l->c;
  const zpr_program *p = c->program;
  l->recent[l->totals.steps++ % RECENT] = ms;
  double usual = 0;
  bool before = l->spike;
  l->spike = zpr_loss_is_spike(&l->losses, result->loss, &usual);
  l->smooth_ms = l->totals.steps <= 2 ? ms : 0.9 * l->smooth_ms + 0.1 * ms; /* the first step also touches its memory */
  zpr_record record = {.step = c->step,
                       .loss = result->loss,
                       .grad_norm = result->grad_norm,
                       .lr = lr,
                       .loss_scale = p->dtype == ZPK_F16 ? loss_scale : 0,
                       .skipped = c->skipped_steps,
                       .step_ms = ms,
                       .tokens_per_s = (double)(p->batch * p->sequence) / ms * 1e3,
                       .mfu = p->peak_flop_per_s > 0 ? p->model_flop_per_step / (ms / 1e3) / p->peak_flop_per_s : NAN,
                       .device_peak_bytes = device_peak_bytes(p),
                       .spike = l->spike};
  zpr_log_step(c, &record, cpu_ms, l->last, (double)(l->last - c->step) * l->smooth_ms / 1e3);
  if (l->spike && !before)
    zpr_log_note(c, "warning: loss %.6f of step %lld is far above the recent ones, whose median is %.6f", result->loss,
                 (long long)c->step, usual);
}

static void judge(loop *l, const zpr_step_result *result) {
  zpr *c = l->c;
  if (result->applied) l->bad_steps = 0;
  if (result->applied) return;
  if (result->rescaled && isfinite(result->loss)) {
    zpr_log_note(c, "step %lld skipped: gradients overflowed; loss scale is now %lld", (long long)c->step,
                 (long long)c->loss_scale);
    return;
  }
  l->bad_steps++;
  zpr_log_note(c, "warning: loss or gradient norm of step %lld is not finite; the step was not applied",
               (long long)c->step);
  zpr_error error = {0};
  if (l->bad_steps == BAD_STEPS)
    zpr_error_set(&error, "Z0830", "loss or gradient norm was not finite in %d steps in a row, up to step %lld",
                  BAD_STEPS, (long long)c->step);
  zpr_agree(c, &error);
}

static int train_step(loop *l) {
  double wall = clock_ms(CLOCK_MONOTONIC), cpu = clock_ms(CLOCK_THREAD_CPUTIME_ID);
  double lr = zpr_learning_rate(l->c->program, l->c->step);
  int64_t loss_scale = l->c->loss_scale;
  zpr_step_result result = run_step(l, lr);
  log_step(l, &result, loss_scale, lr, clock_ms(CLOCK_MONOTONIC) - wall, clock_ms(CLOCK_THREAD_CPUTIME_ID) - cpu);
  judge(l, &result);
  return result.signal;
}

/* ---- between steps ---- */

/* Mean loss over the first batches of the validation data, always the same ones. */
static void validate(loop *l) {
  zpr *c = l->c;
  const zpr_program *p = c->program;
  int64_t batches = p->validate_batches > 0 ? p->validate_batches : 1;
  double saved_loss = c->loss;
  c->training = false;
  c->loss = 0;
  for (int64_t b = 0; b < batches; b++) {
    zpr_data_load(c, l->validate, b * p->batch);
    run_micro_batches(c, p->forwards);
  }
  zpr_collect_loss(c);
  double sum = c->t == 0 ? c->loss : 0; /* 0 on stages without the end of the model */
  zpr_world_sum(c, &sum, 1);
  c->training = true;
  c->loss = saved_loss;
  zpr_log_validation(c, c->step, sum / (double)batches);
}

static void save(loop *l) {
  zpr *c = l->c;
  const char *dir = c->state->options.checkpoint_dir;
  if (!dir || l->saved == c->step) return;
  zpr_checkpoint_save(c, dir, c->step, c->program->checkpoint_keep);
  zpr_log_checkpoint(c, c->step, dir);
  l->saved = c->step;
}

static bool due(int64_t step, int64_t every) { return every > 0 && step % every == 0; }

int zpr_train(zpr *c, zpr_data *validate_data, int64_t last) {
  loop *l = zpr_alloc(c, 1, sizeof *l);
  *l = (loop){.c = c, .validate = validate_data, .last = last, .saved = c->step > 0 ? c->step : -1};
  int signal = 0;
  catch_signals();
  while (c->step < last && signal == 0) {
    signal = train_step(l);
    bool end = c->step == last;
    if (l->validate && (end || due(c->step, c->program->validate_every))) validate(l);
    if (due(c->step, c->program->checkpoint_every)) save(l);
  }
  save(l);
  release_signals();
  if (signal) zpr_log_note(c, "stopped by %s after step %lld", strsignal(signal), (long long)c->step);
  l->totals.median_step_ms = median_step_ms(l);
  bool as_planned = zpr_summary(c, &l->totals);
  free(l);
  if (signal && status_after(signal)) return status_after(signal);
  return as_planned ? 0 : ZPR_EXIT_FAILED;
}
