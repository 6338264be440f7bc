/* SPDX-License-Identifier: Apache-2.0 */
/* When nothing fits: the smallest changes of the input under which something does. Every kind of change is one row of a
 * table; each proposal is planned, and only what then fits is reported. All of them share one budget of work: where it
 * ends, the rest is left out, which zp_relaxations says.
 *
 * Sizes of memory are found exactly for the nearest miss (its bytes are known) and checked; where the nearest miss is
 * not among the candidates any more, by doubling and bisection to 1 %. */
#include <math.h>
#include <stdlib.h>
#include "answers_internal.h"
#include <zplan/buf.h>

enum { MOST_TIMES = 16, BISECTIONS = 7 };
/* Work of all proposals together: so many times that of the search that found nothing, and some seconds. */
enum { WORK_TIMES = 4, WORK_MORE = 6000000 };
enum { FINE_PART = 64 }; /* of the bytes: the step down that a guess is tried against, 1.6 % */

typedef struct relaxer {
  zp_arena *arena;
  const zp_plan *plan;
  zp_shared_work left;
  zp_relaxations found;
} relaxer;

static const zp_constraints *constraints(const relaxer *r) { return &r->plan->spec->plans.data[r->plan->spec->plan]; }

/* Notes the change when something fits. */
static bool propose(relaxer *r, const zp_spec *changed, int devices, zp_relaxation relaxation) {
  zp_candidate best;
  if (zp_try_within(r->arena, changed, devices, &best, &r->left) != ZP_TRIED_FITS) return false;
  relaxation.choice = best.choice;
  relaxation.estimate = best.estimate;
  zp_push(r->arena, &r->found, relaxation);
  return true;
}

/* ---- constraints ---- */

static int propose_free_modes(relaxer *r) {
  zp_spec *changed = zp_copy_spec(r->arena, zp_plan_asked(r->plan));
  const char *key = zp_drop_modes(zp_copied_constraints(changed));
  if (!key) return 0;
  propose(
      r, changed, r->plan->devices,
      (zp_relaxation){.kind = ZP_RELAX_RECOMPUTE, .words = zp_format(r->arena, "without the constraint on `%s`", key)});
  return 1;
}

/* Each limit that is set dropped alone; when that never suffices, all together. */
static void drop_constraints(relaxer *r) {
  int set = propose_free_modes(r);
  for (int i = 0; i < ZP_LIMITS; i++) {
    zp_spec *changed = zp_copy_spec(r->arena, zp_plan_asked(r->plan));
    if (!zp_drop_limit(zp_copied_constraints(changed), i)) continue;
    set++;
    const char *words = zp_format(r->arena, "without the constraint on `%s`", zp_limit_key(i));
    propose(r, changed, r->plan->devices, (zp_relaxation){.kind = zp_limit_kind(i), .words = words});
  }
  if (r->found.len || set < 2) return;
  zp_spec *changed = zp_copy_spec(r->arena, zp_plan_asked(r->plan));
  zp_drop_modes(zp_copied_constraints(changed));
  for (int i = 0; i < ZP_LIMITS; i++) zp_drop_limit(zp_copied_constraints(changed), i);
  propose(r, changed, r->plan->devices,
          (zp_relaxation){.kind = ZP_RELAX_CONSTRAINT, .words = "without any constraint on degrees"});
}

/* ---- offload ---- */

static const char *const state_names[ZP_STATE_COUNT] = {"optimizer", "gradients", "params", "activations"};
static const char *const tier_names[] = {"none", "cpu", "nvme"};

static void allow(relaxer *r, zp_constraints *c, zp_state state, zp_tier tier) {
  c->offload[state] = (zp_limit){.set = true, .low = ZP_TIER_DEVICE, .high = tier, .span = ZP_NO_SPAN};
  zp_push(r->arena, &c->offload[state].in, ZP_TIER_DEVICE);
  zp_push(r->arena, &c->offload[state].in, tier);
}

/* Optimizer, gradients, parameters, activations: the first n of them to the host, then to disk; the first that fits. */
static void allow_offload(relaxer *r) {
  const zp_node_type *node = &r->plan->spec->cluster.node;
  if (node->device.is_cpu) return;
  for (zp_tier tier = ZP_TIER_HOST; tier <= ZP_TIER_NVME; tier++) {
    if (tier == ZP_TIER_NVME && node->nvme_bytes == 0) continue;
    zp_spec *changed = zp_copy_spec(r->arena, zp_plan_asked(r->plan));
    const char *option = "";
    for (zp_state state = 0; state < ZP_STATE_COUNT; state++) {
      zp_constraints *c = zp_copied_constraints(changed);
      if (zp_limit_allows(&c->offload[state], tier) && c->offload[state].set) continue;
      allow(r, c, state, tier);
      option = zp_format(r->arena, "%s%s--set 'offload[%s] in [\"none\", \"%s\"]'", option, *option ? " " : "",
                         state_names[state], tier_names[tier]);
      zp_relaxation relaxation = {.kind = ZP_RELAX_OFFLOAD, .option = option};
      relaxation.words = zp_format(r->arena, "with %s%s allowed on the %s", state ? "state up to " : "",
                                   state_names[state], tier == ZP_TIER_HOST ? "host" : "disks");
      if (propose(r, changed, r->plan->devices, relaxation)) return;
    }
  }
}

/* ---- context ---- */

/* Where the search does not open degrees by itself. */
static void divide_positions(relaxer *r) {
  zp_spec *changed = zp_copy_spec(r->arena, zp_plan_asked(r->plan));
  if (constraints(r)->context.set || zp_most_free_context(changed, r->plan->devices) > 1) return;
  if (!zp_allow_context(r->arena, changed, r->plan->devices)) return;
  if (!propose(r, changed, r->plan->devices, (zp_relaxation){.kind = ZP_RELAX_CONTEXT})) return;
  zp_relaxation *found = &r->found.data[r->found.len - 1];
  found->amount = zp_context_ranks(&found->choice);
  found->words = zp_format(r->arena, "with context %lld", (long long)found->amount);
  found->option = zp_format(r->arena, "--set context=%lld", (long long)found->amount);
}

/* ---- batch ---- */

/* Halves, and when the batch is what does not divide, the nearest batches on both sides. */
static void change_batch(relaxer *r) {
  const zp_spec *spec = zp_plan_asked(r->plan);
  bool divides = r->plan->certificate.rejected[ZP_REJECT_BATCH] == 0;
  for (int64_t batch = spec->train.batch / 2, tries = 0; batch >= 1 && tries < 4; batch /= 2, tries++) {
    zp_spec *changed = zp_copy_spec(r->arena, spec);
    changed->train.batch = batch;
    zp_relaxation relaxation = {.kind = ZP_RELAX_BATCH, .amount = batch};
    relaxation.words = zp_format(r->arena, "with a batch of %lld", (long long)batch);
    relaxation.option = zp_format(r->arena, "--set batch=%lld", (long long)batch);
    if (propose(r, changed, r->plan->devices, relaxation)) return;
  }
  if (divides) return;
  int64_t devices = r->plan->devices, above = (spec->train.batch + devices - 1) / devices * devices;
  if (above == spec->train.batch) return;
  zp_spec *changed = zp_copy_spec(r->arena, spec);
  changed->train.batch = above;
  zp_relaxation relaxation = {.kind = ZP_RELAX_BATCH, .amount = above};
  relaxation.words = zp_format(r->arena, "with a batch of %lld", (long long)above);
  relaxation.option = zp_format(r->arena, "--set batch=%lld", (long long)above);
  propose(r, changed, (int)devices, relaxation);
}

/* ---- devices ---- */

/* The fewest above those that were asked for. CPU ranks would only share what is there. */
static void add_devices(relaxer *r) {
  const zp_spec *spec = zp_plan_asked(r->plan);
  int devices = r->plan->devices, most = zp_most_looked_at(spec, devices);
  if (spec->cluster.node.device.is_cpu) return;
  if (most / MOST_TIMES > devices) most = devices * MOST_TIMES;
  zp_fewest fewest = zp_fewest_above(r->arena, spec, devices, most, &r->left);
  if (!fewest.found) return;
  const zp_size *size = &fewest.sizes.data[0];
  zp_relaxation relaxation = {.kind = ZP_RELAX_DEVICES,
                              .amount = size->devices,
                              .words = zp_format(r->arena, "on %d devices", size->devices),
                              .option = zp_format(r->arena, "--gpus %d", size->devices),
                              .choice = size->best.choice,
                              .estimate = size->best.estimate};
  zp_push(r->arena, &r->found, relaxation);
}

/* Where all devices are used because nobody said otherwise. */
static void leave_ranks_out(relaxer *r) {
  const zp_spec *spec = zp_plan_asked(r->plan);
  if (constraints(r)->idle.set || !zp_uses_all_devices(constraints(r), &spec->cluster)) return;
  zp_spec *changed = zp_spec_with_idle(r->arena, spec);
  if (!propose(r, changed, r->plan->devices, (zp_relaxation){.kind = ZP_RELAX_IDLE, .option = "--set 'idle >= 0'"}))
    return;
  zp_relaxation *found = &r->found.data[r->found.len - 1];
  found->amount = zp_choice_ranks(&found->choice);
  found->words = zp_format(r->arena, "on %lld of them, %lld idle,", (long long)found->amount,
                           (long long)(r->plan->devices - found->amount));
}

/* ---- memory ---- */

typedef int64_t *memory_field(zp_node_type *node);
static int64_t *device_memory(zp_node_type *node) { return &node->device.memory_bytes; }
static int64_t *host_memory(zp_node_type *node) { return &node->host_memory_bytes; }

typedef struct raising {
  memory_field *field;
  int64_t bytes;
} raising;

static void raise_memory(zp_node_type *node, const void *user) {
  const raising *to = user;
  if (*to->field(node) < to->bytes) *to->field(node) = to->bytes;
}

/* Nodes that have less get so much. */
static zp_spec *with_memory(relaxer *r, memory_field *field, int64_t bytes) {
  zp_spec *changed = zp_copy_spec(r->arena, zp_plan_asked(r->plan));
  zp_cluster_change(r->arena, &changed->cluster, raise_memory, &(raising){field, bytes});
  if (field == device_memory) changed->cluster.rank_memory_bytes = 0;
  return changed;
}

static bool fits_with(relaxer *r, memory_field *field, int64_t bytes) {
  return zp_fits(with_memory(r, field, bytes), r->plan->devices, &r->left);
}

/* Least bytes in (low, high] that suffice, to 1 %; 0: not even MOST_TIMES of what is there. `guess`: 0 or what is
 * thought to be exactly enough. */
static int64_t least_memory(relaxer *r, memory_field *field, int64_t low, int64_t guess) {
  if (guess > low && fits_with(r, field, guess)) {
    if (!fits_with(r, field, guess - guess / FINE_PART)) return guess;
    guess -= guess / FINE_PART;
  } else {
    for (guess = 2 * low; !fits_with(r, field, guess); guess *= 2)
      if (guess / MOST_TIMES >= low) return 0;
  }
  for (int i = 0; i < BISECTIONS && guess - low > guess / 100; i++) {
    int64_t middle = low + (guess - low) / 2;
    if (fits_with(r, field, middle))
      guess = middle;
    else
      low = middle;
  }
  return guess;
}

static void add_device_memory(relaxer *r) {
  const zp_plan *plan = r->plan;
  int ranks = plan->spec->cluster.node.device.is_cpu ? plan->machine.devices_per_node : 1;
  double fraction = constraints(r)->memory_fraction;
  int64_t guess = (int64_t)((double)plan->miss.need_bytes / (fraction > 0 ? fraction : 1) + 1) * ranks + ranks;
  int64_t bytes = least_memory(r, device_memory, plan->spec->cluster.node.device.memory_bytes, guess);
  if (!bytes) return;
  zp_relaxation relaxation = {.kind = ZP_RELAX_DEVICE_MEMORY, .amount = bytes / ranks};
  relaxation.words = zp_format(r->arena, "with %s of memory per %s", zp_show_bytes(r->arena, bytes / ranks),
                               plan->spec->cluster.node.device.is_cpu ? "rank" : "device");
  propose(r, with_memory(r, device_memory, bytes), plan->devices, relaxation);
}

/* Only where something may go to the host. */
static void add_host_memory(relaxer *r) {
  const zp_spec *spec = zp_plan_asked(r->plan);
  bool offload = false;
  for (int s = 0; s < ZP_STATE_COUNT; s++)
    offload |= constraints(r)->offload[s].set && zp_limit_allows(&constraints(r)->offload[s], ZP_TIER_HOST);
  if (!offload || spec->cluster.node.host_memory_bytes <= 0) return;
  int64_t bytes = least_memory(r, host_memory, spec->cluster.node.host_memory_bytes, 0);
  if (!bytes) return;
  zp_relaxation relaxation = {.kind = ZP_RELAX_HOST_MEMORY, .amount = bytes};
  relaxation.words = zp_format(r->arena, "with %s of host memory per node", zp_show_bytes(r->arena, bytes));
  propose(r, with_memory(r, host_memory, bytes), r->plan->devices, relaxation);
}

/* ---- all ---- */

static int by_kind(const void *a, const void *b) {
  const zp_relaxation *x = a, *y = b;
  if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
  return strcmp(x->words, y->words);
}

zp_relaxations zp_find_relaxations(zp_arena *arena, const zp_plan *plan) {
  const int64_t most = WORK_TIMES * plan->certificate.work + WORK_MORE;
  relaxer r = {.arena = arena, .plan = plan, .left = most};
  bool memory = plan->miss.have_bytes > 0;
  if (plan->feasible) return r.found;
  drop_constraints(&r);
  change_batch(&r);
  if (memory) {
    divide_positions(&r);
    add_device_memory(&r); /* what takes least first */
    add_devices(&r);
    allow_offload(&r);
    add_host_memory(&r);
  } else {
    leave_ranks_out(&r);
  }
  r.found.cut_short = r.left <= 0;
  r.found.work = most - r.left;
  if (r.found.len) qsort(r.found.data, (size_t)r.found.len, sizeof *r.found.data, by_kind);
  return r.found;
}
