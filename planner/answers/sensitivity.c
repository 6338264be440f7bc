/* SPDX-License-Identifier: Apache-2.0 */
/* What if the machine were different: the best plan again with one rate at a time turned down and up, and how far it
 * can be turned before another plan is best. */
#include <assert.h>
#include <math.h>
#include "answers_internal.h"

const double zp_reaction_factors[ZP_REACTIONS] = {0.5, 0.9, 1.1, 2};

enum { MOST_BISECTIONS = 8 };
static const double precision = 1.05; /* width of the last interval, as a ratio */

/* Rates of one knob, all turned together; the first that is not 0 is shown. */
enum { KNOB_FIELDS = 4 };
typedef struct knob {
  const char *name, *unit;
  size_t rate[KNOB_FIELDS]; /* offsets in zp_node_type of doubles; 0 ends the list */
  bool is_memory;           /* device memory is a whole number of bytes */
  bool network;             /* matters between nodes only */
} knob;

#define AT(field) offsetof(zp_node_type, field)
static const knob knobs[] = {
    {"device memory", "B", {0}, true, false},
    {"memory bandwidth", "B/s", {AT(device.memory_bytes_per_s)}, false, false},
    {"FLOPs",
     "FLOP/s",
     {AT(device.flop_per_s_half), AT(device.flop_per_s_fp32), AT(device.flop_per_s_fp64)},
     false,
     false},
    {"link in a node", "B/s", {AT(link.bytes_per_s)}, false, false},
    {"network card", "B/s", {AT(nic.bytes_per_s)}, false, true},
    {"PCIe and host", "B/s", {AT(pcie_bytes_per_s), AT(host_bytes_per_s)}, false, false},
};
enum { N_KNOBS = sizeof knobs / sizeof *knobs };

static double *rate_at(zp_node_type *node, size_t offset) { return (double *)(void *)((char *)node + offset); }

static double value_of(const knob *k, const zp_spec *spec) {
  zp_node_type node = spec->cluster.node; /* several types: the slowest is shown, all are turned */
  if (k->is_memory) return (double)node.device.memory_bytes;
  for (int i = 0; i < KNOB_FIELDS && k->rate[i]; i++)
    if (*rate_at(&node, k->rate[i]) > 0) return *rate_at(&node, k->rate[i]);
  return 0;
}

typedef struct turning {
  const knob *knob;
  double factor;
} turning;

static void turn(zp_node_type *node, const void *user) {
  const turning *t = user;
  if (t->knob->is_memory) node->device.memory_bytes = (int64_t)(t->factor * (double)node->device.memory_bytes);
  for (int i = 0; i < KNOB_FIELDS && t->knob->rate[i]; i++) *rate_at(node, t->knob->rate[i]) *= t->factor;
}

static zp_reaction react(zp_arena *arena, const zp_plan *plan, const knob *k, double factor) {
  zp_spec *changed = zp_copy_spec(arena, zp_plan_asked(plan));
  zp_cluster_change(arena, &changed->cluster, turn, &(turning){k, factor});
  zp_reaction r = {.factor = factor};
  zp_candidate best;
  zp_tried tried = zp_try(arena, changed, plan->devices, &best);
  r.feasible = tried == ZP_TRIED_FITS;
  r.stopped = tried == ZP_TRIED_UNKNOWN;
  if (!r.feasible) return r;
  r.best = best;
  r.same_plan = zp_same_decisions(&best.choice, &plan->best.choice);
  return r;
}

/* The plan is the same at `same` and another at `other`: where it switches, on the `same` side. */
static double switch_point(zp_arena *arena, const zp_plan *plan, const knob *k, double same, double other) {
  for (int i = 0; i < MOST_BISECTIONS && fmax(same, other) / fmin(same, other) > precision; i++) {
    double middle = sqrt(same * other);
    if (react(arena, plan, k, middle).same_plan)
      same = middle;
    else
      other = middle;
  }
  return same;
}

static zp_sensitivity examine(zp_arena *arena, const zp_plan *plan, const knob *k) {
  zp_sensitivity s = {.knob = k->name, .value = value_of(k, plan->spec), .unit = k->unit, .low = 1, .high = 1};
  for (int i = 0; i < ZP_REACTIONS; i++) s.reaction[i] = react(arena, plan, k, zp_reaction_factors[i]);
  int below = ZP_REACTIONS / 2 - 1, above = ZP_REACTIONS / 2;
  while (below >= 0 && s.reaction[below].same_plan) s.low = s.reaction[below--].factor;
  while (above < ZP_REACTIONS && s.reaction[above].same_plan) s.high = s.reaction[above++].factor;
  if (below >= 0 && !s.reaction[below].stopped) s.low = switch_point(arena, plan, k, s.low, s.reaction[below].factor);
  if (above < ZP_REACTIONS && !s.reaction[above].stopped)
    s.high = switch_point(arena, plan, k, s.high, s.reaction[above].factor);
  return s;
}

zp_sensitivities zp_find_sensitivity(zp_arena *arena, const zp_plan *plan) {
  assert(plan->feasible);
  zp_sensitivities all = {0};
  for (int i = 0; i < N_KNOBS; i++) {
    if (value_of(&knobs[i], plan->spec) <= 0) continue;
    if (knobs[i].network && zp_machine_nodes(&plan->machine) == 1) continue;
    zp_sensitivity s = examine(arena, plan, &knobs[i]);
    zp_push(arena, &all, s);
  }
  return all;
}
