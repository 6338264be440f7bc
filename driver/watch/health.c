/* SPDX-License-Identifier: Apache-2.0 */
/* What is wrong with a run, by its log alone.
 *
 * spike: the trainer marks such steps, by the rule in runtime/spike.c: a loss above the median of its recent ones by 8
 * deviations. stall: no record for STALL_STEPS median steps, and for LEAST_STALL_S, while a process of this machine has
 * the log open. no_end: the same time without a record or an end record, and no process of this machine has it. */
#include <zplan/buf.h>
#include <zplan/watch.h>

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#define STALL_STEPS 20.0
#define LEAST_STALL_S 10.0
#define FIRST_STALL_S 600.0 /* before the first step: data, weights and connections are prepared */
#define STANDS_OUT 1.02

const char *zp_trouble_name(zp_trouble_kind kind) {
  static const char *const names[] = {[ZP_TROUBLE_SPIKE] = "spike",
                                      [ZP_TROUBLE_NOT_FINITE] = "not_finite",
                                      [ZP_TROUBLE_STALL] = "stall",
                                      [ZP_TROUBLE_NO_END] = "no_end",
                                      [ZP_TROUBLE_DAMAGED] = "damaged"};
  assert(kind < ZP_TROUBLE_KINDS);
  return names[kind];
}

static void add(zp_arena *arena, zp_troubles *all, zp_trouble_kind kind, bool now, const char *text) {
  zp_trouble trouble = {kind, now, text};
  zp_push(arena, all, trouble);
}

static double patience_s(const zp_run_view *v) {
  double median_ms = zp_run_view_median_ms(v);
  return isfinite(median_ms) ? fmax(LEAST_STALL_S, STALL_STEPS * median_ms / 1e3) : FIRST_STALL_S;
}

static void add_silence(zp_arena *arena, const zp_watched *w, bool at_once, zp_troubles *all) {
  const zp_run_view *v = &w->view;
  bool late = w->age_s > patience_s(v);
  if (w->missing || w->failed || v->ended) return;
  if (w->writer == 0 && (late || at_once))
    add(arena, all, ZP_TROUBLE_NO_END, true,
        "there is no end record, and no process of this machine writes the log: the run failed, was killed, or is on "
        "another machine");
  else if (late)
    add(arena, all, ZP_TROUBLE_STALL, true,
        zp_format(arena, "no record for %s, %s", zp_show_seconds(arena, w->age_s),
                  v->n_steps ? zp_format(arena, "the median step takes %s",
                                         zp_show_seconds(arena, zp_run_view_median_ms(v) / 1e3))
                             : "and no step yet"));
}

zp_troubles zp_watched_troubles(zp_arena *arena, const zp_watched *w, bool at_once) {
  const zp_run_view *v = &w->view;
  zp_troubles all = {0};
  if (v->unread)
    add(arena, &all, ZP_TROUBLE_DAMAGED, true,
        zp_format(arena, "%lld line%s cannot be read, line %lld first", (long long)v->unread, v->unread == 1 ? "" : "s",
                  (long long)v->unread_line));
  if (v->not_finite_step >= 0)
    add(arena, &all, ZP_TROUBLE_NOT_FINITE, true,
        zp_format(arena, "loss or gradient norm of step %lld is not finite", (long long)v->not_finite_step));
  else if (v->not_finite > 0)
    add(arena, &all, ZP_TROUBLE_NOT_FINITE, false,
        zp_format(arena, "loss or gradient norm was not finite in %lld step%s", (long long)v->not_finite,
                  v->not_finite == 1 ? "" : "s"));
  if (v->spikes > 0)
    add(arena, &all, ZP_TROUBLE_SPIKE, false,
        zp_format(arena, "loss %.6f of step %lld was far above the ones before; %lld such step%s", v->spike_loss,
                  (long long)v->spike_step, (long long)v->spikes, v->spikes == 1 ? "" : "s"));
  add_silence(arena, w, at_once, &all);
  return all;
}

bool zp_watched_is_healthy(zp_arena *arena, const zp_watched *w, bool at_once) {
  zp_troubles troubles = zp_watched_troubles(arena, w, at_once);
  bool healthy = !w->failed && !w->missing;
  for (int i = 0; i < troubles.len; i++) healthy &= !troubles.data[i].now;
  return healthy;
}

const char *zp_watched_state(const zp_watched *w) {
  if (w->failed) return "failed";
  if (w->missing) return "missing";
  if (w->view.ended) return "ended";
  if (w->view.records == 0) return "empty";
  return w->age_s > patience_s(&w->view) ? "silent" : "running";
}

static bool same_plan(const zp_watched *a, const zp_watched *b) {
  return a->view.plan[0] && strcmp(a->view.plan, b->view.plan) == 0;
}

/* Median of the median steps of logs with its plan; NAN below two of them. */
static double usual_ms(const zp_watched_list *all, int index) {
  double *ms = malloc(sizeof *ms * (size_t)all->len);
  int n = 0;
  for (int i = 0; ms && i < all->len; i++) {
    double median = zp_run_view_median_ms(&all->data[i].view);
    if (same_plan(&all->data[i], &all->data[index]) && isfinite(median)) ms[n++] = median;
  }
  double usual = n < 2 ? NAN : zp_median(ms, n);
  free(ms);
  return usual;
}

double zp_slowest_by(const zp_watched_list *all, int slowest) {
  assert(slowest >= 0 && slowest < all->len);
  return zp_run_view_median_ms(&all->data[slowest].view) / usual_ms(all, slowest);
}

int zp_slowest(const zp_watched_list *all) {
  int slowest = -1;
  double most = STANDS_OUT;
  for (int i = 0; i < all->len; i++) {
    double by = zp_slowest_by(all, i);
    if (by >= most && (slowest < 0 || by > most)) slowest = i, most = by;
  }
  return slowest;
}
