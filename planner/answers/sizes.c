/* SPDX-License-Identifier: Apache-2.0 */
/* How many devices: counts worth a look, the fewest that fit, a sweep.
 *
 * Where devices may stay idle more of them are a larger space: strides that double, then halves. Where none may,
 * fitting is not monotone in the count (a batch or a head count may not divide), and the search goes upwards from a
 * bound below which nothing can fit. */
#include <assert.h>
#include <math.h>
#include "answers_internal.h"

enum { NEXT_SIZES = 3, FINE_NODES = 16, COARSE_PART = 8 };
/* Counts that nobody asked for are considered up to here, or to twice of what is needed at least. */
enum { MOST_LOOKED_AT = 20000 };

int zp_count_unit(const zp_spec *spec) {
  const zp_node_type *node = &spec->cluster.node;
  return node->device.is_cpu || node->devices < 1 ? 1 : node->devices;
}

int zp_most_devices(const zp_spec *spec) {
  const zp_node_type *node = &spec->cluster.node;
  int64_t written = zp_cluster_devices(&spec->cluster);
  if (spec->cluster.groups.len) return written < ZP_MOST_RANKS ? (int)written : ZP_MOST_RANKS;
  bool connected = node->nics > 0 && node->nic.bytes_per_s > 0;
  return connected || node->device.is_cpu ? ZP_MOST_RANKS : zp_count_unit(spec);
}

int zp_most_looked_at(const zp_spec *spec, int at_least) {
  int most = zp_most_devices(spec);
  if (most / 2 <= at_least || most <= MOST_LOOKED_AT) return most;
  return at_least > MOST_LOOKED_AT / 2 ? 2 * at_least : MOST_LOOKED_AT;
}

/* ---- counts ---- */

/* count = m * 2^e with m < limit? */
static bool is_round(int count, int limit) {
  while (count % 2 == 0) count /= 2;
  return count < limit;
}

/* A divisor of the node, or whole nodes with a round number of them. */
static bool is_sensible(int devices, int unit, int limit) {
  if (devices < unit) return unit % devices == 0;
  return devices % unit == 0 && is_round(devices / unit, limit);
}

zp_ints zp_sweep_counts(zp_arena *arena, const zp_spec *spec, int low, int high) {
  assert(low >= 1 && low <= high);
  static const int limits[] = {8, 4, 2};
  int unit = zp_count_unit(spec);
  zp_ints counts = {0};
  for (int i = 0; i < 3; i++) {
    counts.len = 0;
    for (int n = low; n <= high; n++)
      if (n == low || n == high || is_sensible(n, unit, limits[i])) zp_push(arena, &counts, n);
    if (counts.len <= ZP_SWEEP_SIZES) break;
  }
  return counts;
}

/* ---- one count ---- */

static void fill_cost(zp_size *size, const zp_spec *spec) {
  size->run_device_hours = (double)spec->train.steps * size->best.estimate.step_s / 3600 * size->devices;
  size->run_dollars = size->run_device_hours * zp_cluster_price(&spec->cluster, size->devices);
}

static zp_size plan_size(zp_arena *arena, const zp_spec *spec, int devices, bool no_miss, zp_shared_work *left) {
  assert(devices >= 1);
  zp_size none = {.devices = devices, .stopped = true};
  if (left && *left <= 0) return none;
  zp_arena *scratch = zp_arena_new("size");
  const zp_spec *changed = zp_spec_with_devices(scratch, spec, devices);
  const zp_plan *plan = zp_search(scratch, changed, devices,
                                  &(zp_search_options){.no_miss = no_miss, .work = left ? (*left + 1) / 2 : 0});
  if (left) *left -= plan->certificate.work < *left ? plan->certificate.work : *left;
  zp_size size = {.devices = devices, .feasible = plan->feasible, .stopped = plan->stopped};
  if (plan->feasible) {
    size.best = zp_keep_candidate(arena, &plan->best);
    fill_cost(&size, spec);
  } else {
    size.miss = plan->miss;
    size.miss.choice = zp_choice_copy(arena, &plan->miss.choice);
  }
  zp_arena_free(scratch);
  return size;
}

zp_size zp_plan_size(zp_arena *arena, const zp_spec *spec, int devices) {
  return plan_size(arena, spec, devices, false, NULL);
}

const zp_size *zp_first_fit(const zp_sizes *sizes) {
  for (int i = 0; i < sizes->len; i++)
    if (sizes->data[i].feasible) return &sizes->data[i];
  return NULL;
}

double zp_scaling(const zp_size *base, const zp_size *size) {
  assert(base->feasible && size->feasible);
  return size->best.estimate.tokens_per_s / size->devices / (base->best.estimate.tokens_per_s / base->devices);
}

/* ---- the fewest ---- */

int64_t zp_least_state_bytes(zp_arena *arena, const zp_spec *spec) {
  assert(spec->plan >= 0 && spec->plan < spec->plans.len);
  const zp_constraints *c = &spec->plans.data[spec->plan];
  zp_machine machine = zp_machine_make(&spec->cluster, spec->train.precision, 1);
  const char *reason = NULL;
  zp_sharding *sharding = zp_shard(arena, spec->model, &machine, 1, 1, false, &reason);
  const zp_lowered *lowered = sharding ? zp_lower(arena, spec, sharding, 1, ZP_RECOMPUTE_NONE, false, &reason) : NULL;
  if (!lowered) return 0;
  int64_t each = 0;
  if (!zp_limit_leaves_device(&c->offload[ZP_STATE_PARAMS])) each += lowered->param_bytes;
  if (!zp_limit_leaves_device(&c->offload[ZP_STATE_GRADIENTS])) each += lowered->sum_bytes;
  if (!zp_limit_leaves_device(&c->offload[ZP_STATE_OPTIMIZER])) each += lowered->state_bytes;
  return zp_model_parameters(spec->model) * each;
}

static int bound_by_state(zp_arena *arena, const zp_spec *spec) {
  const zp_device *device = &spec->cluster.node.device;
  double fraction = spec->plans.data[spec->plan].memory_fraction;
  int64_t memory = device->memory_bytes; /* the largest of several types: nothing fits below */
  for (int g = 0; g < spec->cluster.groups.len; g++)
    if (spec->cluster.groups.data[g].type.device.memory_bytes > memory)
      memory = spec->cluster.groups.data[g].type.device.memory_bytes;
  double usable = fraction * (double)memory - (double)device->context_bytes;
  if (device->is_cpu) return 1; /* more ranks of a node have no more memory together */
  if (usable <= 0) return ZP_MOST_RANKS + 1;
  double count = ceil((double)zp_least_state_bytes(arena, spec) / usable);
  return count > ZP_MOST_RANKS ? ZP_MOST_RANKS + 1 : count < 1 ? 1 : (int)count;
}

/* More devices are a larger space where some may be left out: CPU ranks share what their node has. */
static bool is_monotone(const zp_spec *spec) {
  return !spec->plans.data[spec->plan].idle.set && !spec->cluster.node.device.is_cpu;
}

/* The next count of the upward pass: divisors of a node, then whole nodes. Where more devices are a larger space, twice
 * as far as the step before; else, above FINE_NODES, by at most 1/COARSE_PART. */
static int next_count(int devices, int unit, int *stride) {
  do devices++;
  while (devices < unit && unit % devices != 0);
  if (devices <= unit) return devices;
  int nodes = (devices + unit - 1) / unit, step = 1;
  if (*stride > 0) {
    nodes += *stride - 1;
    *stride *= 2;
    return nodes <= ZP_MOST_RANKS / unit ? nodes * unit : ZP_MOST_RANKS;
  }
  while (nodes / step > FINE_NODES) step *= 2;
  return (nodes + step - 1) / step * step * unit;
}

static bool try_count(zp_arena *arena, const zp_spec *spec, int devices, zp_fewest *out, zp_shared_work *left) {
  zp_size size = plan_size(arena, spec, devices, true, left);
  out->searched++;
  out->stopped += size.stopped;
  if (!size.feasible && out->found) return false;
  if (!out->found) out->sizes.len = 0; /* of misses the last one is kept */
  zp_push(arena, &out->sizes, size);
  out->found |= size.feasible;
  return size.feasible;
}

/* Multiples of `step` between the last count that did not fit and the first that did: halves decide where more devices
 * are a larger space, else every one from below is asked. */
static void refine(zp_arena *arena, const zp_spec *spec, int step, zp_fewest *out, zp_shared_work *left) {
  bool halves = is_monotone(spec);
  for (int low = out->below / step * step, high = out->sizes.data[0].devices; low + step < high;) {
    int half = (high - low) / step / 2, devices = low + (halves && half > 1 ? half : 1) * step;
    zp_size size = plan_size(arena, spec, devices, true, left);
    out->searched++;
    if (size.feasible) {
      out->sizes.data[0] = size;
      high = devices;
      if (!halves) return;
    } else {
      out->below = low = devices;
    }
  }
}

/* Round counts above the fewest; those that do not fit are left out. */
static void add_next_sizes(zp_arena *arena, const zp_spec *spec, zp_fewest *out) {
  int unit = zp_count_unit(spec), first = out->sizes.data[0].devices, tried = 0;
  for (int n = first + 1; n <= 4 * first + 4 * unit && n <= zp_most_devices(spec) && tried < 2 * NEXT_SIZES; n++) {
    if (!is_sensible(n, unit, 8)) continue;
    tried++;
    try_count(arena, spec, n, out, NULL);
    if (out->sizes.len == 1 + NEXT_SIZES) return;
  }
}

zp_fewest zp_fewest_above(zp_arena *arena, const zp_spec *spec, int above, int most, zp_shared_work *left) {
  zp_fewest out = {.lower_bound = bound_by_state(arena, spec)};
  int unit = zp_count_unit(spec), stride = is_monotone(spec) ? 1 : 0;
  if (above < out.lower_bound - 1) above = out.lower_bound - 1;
  while (above < most && !(left && *left <= 0)) {
    int n = next_count(above, unit, &stride);
    if (n > most && stride) n = most / unit * unit; /* the largest space */
    if (n > most || n <= above || try_count(arena, spec, n, &out, left)) break;
    above = n;
  }
  out.below = above;
  if (out.found) refine(arena, spec, unit, &out, left);
  return out;
}

zp_fewest zp_find_fewest(zp_arena *arena, const zp_spec *spec) {
  const zp_cluster *c = &spec->cluster;
  /* More CPU ranks than cores never have more memory than fewer: one pass over the cores settles it. */
  int most = c->node.device.is_cpu ? c->node.devices * (c->nodes > 0 ? c->nodes : 1)
                                   : zp_most_looked_at(spec, bound_by_state(arena, spec));
  zp_fewest out = zp_fewest_above(arena, spec, 0, most, NULL);
  if (out.found) refine(arena, spec, 1, &out, NULL);
  if (out.found) add_next_sizes(arena, spec, &out);
  if (!out.found && out.sizes.len) out.sizes.data[0] = zp_plan_size(arena, spec, out.sizes.data[0].devices);
  return out;
}
