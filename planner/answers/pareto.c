/* SPDX-License-Identifier: Apache-2.0 */
/* The Pareto front of step time, peak memory, devices and device hours, by the epsilon-constraint method: for one count
 * the fastest plan, then the fastest under a lower and lower memory limit until nothing fits. Every point is the
 * optimum under its limit. */
#include <assert.h>
#include <stdlib.h>
#include "answers_internal.h"

enum { MOST_POINTS = 24 }; /* of one count: at 5 % a step, peaks down to 0.29 of the fastest plan's */
static const double memory_step = 0.95;

static bool no_worse(const zp_pareto_point *a, const zp_pareto_point *b) {
  const zp_estimate *x = &a->candidate.estimate, *y = &b->candidate.estimate;
  return x->step_s <= y->step_s && x->peak_bytes <= y->peak_bytes && a->devices <= b->devices &&
         a->step_device_hours <= b->step_device_hours;
}

static zp_pareto_point make_point(const zp_spec *spec, int devices, const zp_candidate *candidate) {
  zp_pareto_point p = {.devices = devices, .candidate = *candidate};
  p.step_device_hours = candidate->estimate.step_s / 3600 * devices;
  p.step_dollars = p.step_device_hours * zp_cluster_price(&spec->cluster, p.devices);
  return p;
}

static void add_count(zp_arena *arena, const zp_spec *spec, int devices, zp_pareto *all) {
  zp_spec *changed = zp_spec_with_devices(arena, spec, devices);
  zp_machine machine = zp_machine_make(&changed->cluster, changed->train.precision, devices);
  zp_candidate best;
  zp_tried tried = ZP_TRIED_FITS;
  for (int i = 0; i < MOST_POINTS && (tried = zp_try(arena, changed, devices, &best)) == ZP_TRIED_FITS; i++) {
    zp_pareto_point point = make_point(spec, devices, &best);
    zp_push(arena, &all->points, point);
    double limit = memory_step * (double)best.estimate.peak_bytes;
    if (limit <= (double)machine.context_bytes) break;
    zp_copied_constraints(changed)->memory_fraction = limit / (double)machine.memory_bytes;
  }
  all->stopped += tried == ZP_TRIED_UNKNOWN;
}

static int by_time(const void *a, const void *b) {
  const zp_pareto_point *x = a, *y = b;
  double s = x->candidate.estimate.step_s, t = y->candidate.estimate.step_s;
  if (s != t) return s < t ? -1 : 1;
  if (x->devices != y->devices) return x->devices < y->devices ? -1 : 1;
  int64_t p = x->candidate.estimate.peak_bytes, q = y->candidate.estimate.peak_bytes;
  return p < q ? -1 : p > q;
}

zp_pareto zp_find_pareto(zp_arena *arena, const zp_spec *spec, const int *devices, int n) {
  assert(n >= 0 && (devices || n == 0));
  zp_pareto all = {0}, front = {0};
  for (int i = 0; i < n; i++) add_count(arena, spec, devices[i], &all);
  zp_pareto_point *point = all.points.data;
  int len = all.points.len;
  if (len) qsort(point, (size_t)len, sizeof *point, by_time);
  front.stopped = all.stopped;
  for (int i = 0; i < len; i++) {
    bool beaten = false;
    for (int k = 0; k < len && !beaten; k++)
      beaten = k != i && no_worse(&point[k], &point[i]) && (k < i || !no_worse(&point[i], &point[k]));
    if (!beaten) zp_push(arena, &front.points, point[i]);
  }
  return front;
}
