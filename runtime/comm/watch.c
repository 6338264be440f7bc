/* SPDX-License-Identifier: Apache-2.0 */
/* A rank that waits for another one says so when it lasts, and ends the run when it lasts too long: a process that is
 * stopped and a link that is dead say nothing, and neither MPI nor NCCL takes notice of them.
 *
 * What may take long differs. A step is as long as those before it; starting, loading and saving depend on disks. So
 * the end of a wait within a step comes sooner, but never before four times the longest step so far. After a signal
 * that asks to end, whoever waits has the time of grace: there is no step to finish without the other rank.
 *
 * Waiting is counted while this process runs: one that was stopped itself and goes on has not waited. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "comm.h"
#include "signals.h"
#include "watch.h"

enum { MOST_TICK_MS = 250, STEPS_LONG = 4, STORE_GRACES = 10 };

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void count(zpr_wait *wait) {
  int64_t now = now_ms(), since = wait->asked_ms ? now - wait->asked_ms : 0;
  wait->waited_ms += since < MOST_TICK_MS ? since : MOST_TICK_MS;
  wait->asked_ms = now;
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* When a wait has lasted too long; INT64_MAX: never. */
static int64_t end_ms(const zpr *c) {
  const zpr_options *o = &c->state->options;
  bool in_step = c->state->phase == ZPR_IN_STEP;
  int64_t steps = in_step ? STEPS_LONG * (int64_t)c->state->longest_step_ms : 0, end = INT64_MAX;
  if (o->wait_end > 0) end = 1000 * (int64_t)o->wait_end;
  if (o->wait_end < 0) end = larger(1000 * (in_step ? ZPR_WAIT_END_S : ZPR_WAIT_END_OUTSIDE_S), steps);
  if (!zpr_signal_caught() || o->grace <= 0) return end;
  return smaller(end, larger(1000 * (int64_t)o->grace * (in_step ? 1 : STORE_GRACES), steps));
}

/* "step 13", "the start". */
static const char *phase_text(const zpr *c, char *text, size_t size) {
  switch (c->state->phase) {
  case ZPR_IN_START: return "the start";
  case ZPR_IN_CHECKPOINT: snprintf(text, size, "the checkpoint of step %lld", (long long)c->step); return text;
  case ZPR_IN_STEP: snprintf(text, size, "step %lld", (long long)c->step + 1); return text;
  }
  return "";
}

static const char *message_text(zpr_axis axis) {
  static const char *const texts[ZPR_AXIS_COUNT] = {
      [ZPR_TENSOR] = "a sum over tensor ranks",       [ZPR_PIPELINE] = "a message along the pipeline",
      [ZPR_DATA] = "an exchange over data ranks",     [ZPR_TIE] = "the sum of a tied parameter",
      [ZPR_EXPERT] = "an exchange over expert ranks", [ZPR_CONTEXT] = "an exchange over context ranks",
      [ZPR_CONTROL] = "what all ranks agree on"};
  return texts[axis];
}

/* " (stage 1, data 0, on node7)" */
static void place_text(zpr *c, int rank, char *text, size_t size) {
  const zpr_program *p = c->program;
  int stride = zpr_pipeline_stride(p), data = p->tensor * (p->pipeline_before_data ? p->pipeline : 1);
  size_t at = 0;
  text[0] = 0;
  const struct {
    const char *name;
    int n, place;
  } parts[] = {{"stage", p->pipeline, rank / stride % p->pipeline},
               {"data", p->data, rank / data % p->data},
               {"tensor", p->tensor, rank % p->tensor}};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if (parts[i].n > 1) at += (size_t)snprintf(text + at, size - at, "%s %d, ", parts[i].name, parts[i].place);
  snprintf(text + at, size - at, "on %s", zpr_host_of(c, rank));
}

static const char *link_text(zpr *c, int peer) {
  return strcmp(zpr_host_of(c, c->rank), zpr_host_of(c, peer)) == 0 ? "within one machine" : "between two machines";
}

static _Noreturn void end(zpr *c, const zpr_wait *wait, const char *whom, const char *what) {
  char phase[64];
  const char *asked = zpr_signal_caught() ? "asked to end, but " : "", *at = phase_text(c, phase, sizeof phase);
  zpr_fail(c, "Z0823", "%swaited %lld s for %s: %s of %s", asked, (long long)(wait->waited_ms / 1000), whom, what, at);
}

static void tell(zpr *c, zpr_wait *wait, const char *whom, const char *what) {
  char phase[64], place[160], until[64] = "";
  int64_t last = end_ms(c);
  place_text(c, c->rank, place, sizeof place);
  if (last != INT64_MAX) snprintf(until, sizeof until, "; the run ends after %lld s", (long long)(last / 1000));
  zpr_log_clear(c);
  fflush(stdout);
  zpr_say_line(stderr, "warning: rank %d (%s) has waited %lld s for %s: %s of %s%s", c->rank, place,
               (long long)(wait->waited_ms / 1000), whom, what, phase_text(c, phase, sizeof phase), until);
  wait->reported_ms = wait->waited_ms;
}

/* Told at the warning time, then whenever the wait has doubled. */
static bool is_due(const zpr *c, const zpr_wait *wait) {
  int64_t warn = 1000 * (int64_t)c->state->options.wait_warn;
  return warn > 0 && wait->waited_ms >= larger(warn, 2 * wait->reported_ms);
}

void zpr_watch(zpr *c, zpr_wait *wait, int peer, zpr_axis axis, int others) {
  count(wait);
  bool over = wait->waited_ms >= end_ms(c);
  if (!over && !is_due(c, wait)) return;
  char place[160], whom[224], what[128], more[32] = "";
  place_text(c, peer, place, sizeof place);
  if (others > 0) snprintf(more, sizeof more, " and %d more", others);
  snprintf(whom, sizeof whom, "rank %d%s (%s)", peer, more, place);
  snprintf(what, sizeof what, "%s, %s,", message_text(axis), link_text(c, peer));
  if (over) end(c, wait, whom, what);
  tell(c, wait, whom, what);
}

void zpr_watch_gpu(zpr *c, zpr_wait *wait) {
  count(wait);
  const char *whom = "its GPU, whose work waits for other ranks", *what = "messages over NCCL";
  if (wait->waited_ms >= end_ms(c)) end(c, wait, whom, what);
  if (is_due(c, wait)) tell(c, wait, whom, what);
}

/* ---- calls that cannot be asked ---- */

static struct {
  char warning[256], error[256];
  volatile sig_atomic_t left_s; /* to the end, after the warning; 0: no end */
  volatile sig_atomic_t warned;
} call;

/* In a handler nothing but system calls is safe. */
static void write_line(const char *text) {
  ssize_t done = write(STDERR_FILENO, text, strlen(text));
  (void)done;
}

static void on_alarm(int signal_number) {
  (void)signal_number;
  if (call.warned) {
    write_line(call.error);
    _exit(ZPR_EXIT_FAILED);
  }
  call.warned = 1;
  write_line(call.warning);
  if (call.left_s > 0) alarm((unsigned)call.left_s);
}

void zpr_watch_call(const zpr_options *options, const char *what) {
  const char *rank = getenv("OMPI_COMM_WORLD_RANK");
  int warn = options->wait_warn, last = options->wait_end < 0 ? ZPR_WAIT_END_OUTSIDE_S : options->wait_end;
  if (!rank) rank = "?";
  if (warn > 0 && warn < ZPR_WAIT_WARN_S) warn = ZPR_WAIT_WARN_S;
  if (last > 0 && last < 2 * ZPR_WAIT_WARN_S) last = 2 * ZPR_WAIT_WARN_S;
  if (last > 0 && warn >= last) warn = 0; /* the end says it */
  if (warn == 0 && last == 0) return;
  call.warned = warn == 0;
  call.left_s = last > 0 ? last - warn : 0;
  snprintf(call.warning, sizeof call.warning, "warning: rank %s has waited %d s for other ranks %s\n", rank, warn,
           what);
  snprintf(call.error, sizeof call.error, "error[Z0823]: waited %d s for other ranks %s (rank %s)\n", last, what, rank);
  struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART | SA_ONSTACK};
  sigaction(SIGALRM, &action, NULL);
  alarm((unsigned)(warn > 0 ? warn : last));
}

void zpr_watch_call_end(void) { alarm(0); }
