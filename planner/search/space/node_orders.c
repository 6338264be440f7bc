/* SPDX-License-Identifier: Apache-2.0 */
/* In which order ranks fill nodes of several types. An order is a cluster of its own, with stages on other nodes, so
 * each is searched: the written one first, then the others for what is faster than the best plan known by then, which
 * bounds leave nearly all of out. The one that has the best plan is searched whole in the end, so that alternatives are
 * those of its nodes.
 *
 * --gpus takes the first devices as written: groups that are used change places, of one that is used in part so many
 * whole nodes. A node that is used in part stays the last. */
#include <zplan/interrupt.h>
#include <assert.h>
#include <math.h>
#include <zplan/search_numbers.h>
#include "node_orders.h"
#include "robust.h"

/* Where there are more, alike nodes stay side by side, but for the written order: all of four groups, which is what
 * clusters have. */
enum { MOST_ORDERS = 24 };

typedef struct node_orders {
  zp_node_range range[ZP_MOST_NODE_GROUPS]; /* as written */
  int n, movable;                           /* of them: the first so many may change places */
  int kind[ZP_MOST_NODE_GROUPS];            /* equal ones have equal numbers, slower ones lower ones */
  int place[ZP_MOST_NODE_GROUPS];           /* kinds of the next order */
  bool together;                            /* there are too many: only those with equal ones side by side */
} node_orders;

/* The groups as written, cut after the last node that is used whole. */
static node_orders ranges_of(const zp_cluster *c, int64_t devices) {
  node_orders o = {0};
  int first = 0;
  for (int g = 0; g < c->groups.len; g++) {
    const zp_node_group *group = &c->groups.data[g];
    int64_t whole = devices / group->type.devices;
    int used = whole < group->nodes ? (int)whole : group->nodes;
    if (used > 0 && o.n == o.movable) o.range[o.n++] = (zp_node_range){first, used}, o.movable++;
    if (used < group->nodes) o.range[o.n++] = (zp_node_range){first + used, group->nodes - used};
    devices = used < group->nodes ? 0 : devices - (int64_t)used * group->type.devices;
    first += group->nodes;
  }
  return o;
}

static const zp_node_type *type_of(const zp_cluster *c, int node) {
  int g = 0;
  while (node >= c->groups.data[g].nodes) node -= c->groups.data[g++].nodes;
  return &c->groups.data[g].type;
}

static int sign(double difference) { return (difference > 0) - (difference < 0); }

/* By what the nodes have, so that the sequence of orders is the same however they are written. */
static int compare(const node_orders *o, const zp_cluster *c, int i, int k) {
  const zp_node_type *a = type_of(c, o->range[i].first), *b = type_of(c, o->range[k].first);
  const double difference[] = {a->device.flop_per_s_half - b->device.flop_per_s_half,
                               a->device.flop_per_s_fp32 - b->device.flop_per_s_fp32,
                               (double)(a->device.memory_bytes - b->device.memory_bytes),
                               a->device.memory_bytes_per_s - b->device.memory_bytes_per_s,
                               a->nics * a->nic.bytes_per_s - b->nics * b->nic.bytes_per_s,
                               a->link.bytes_per_s - b->link.bytes_per_s,
                               a->devices - b->devices,
                               o->range[i].nodes - o->range[k].nodes};
  for (size_t d = 0; d < sizeof difference / sizeof *difference; d++)
    if (difference[d] != 0) return sign(difference[d]);
  return a->name && b->name ? strcmp(a->name, b->name) : 0;
}

/* Those that come before it by what they have; of alike ones that are not equal, by place. */
static void find_kinds(node_orders *o, const zp_cluster *c) {
  for (int i = 0; i < o->movable; i++)
    for (int k = 0; k < o->movable; k++) {
      int before = compare(o, c, k, i);
      bool equal = before == 0 && zp_node_type_equal(type_of(c, o->range[k].first), type_of(c, o->range[i].first));
      o->kind[i] += before < 0 || (before == 0 && !equal && k < i);
    }
}

static void swap(int *a, int *b) {
  int was = *a;
  *a = *b;
  *b = was;
}

/* The next order of kinds, by the alphabet; after the last one the first, and false. */
static bool step_order(node_orders *o) {
  int n = o->movable, i = n - 2, k = n - 1;
  while (i >= 0 && o->place[i] >= o->place[i + 1]) i--;
  if (i >= 0) {
    while (o->place[k] <= o->place[i]) k--;
    swap(&o->place[i], &o->place[k]);
  }
  for (int a = i + 1, b = n - 1; a < b; a++, b--) swap(&o->place[a], &o->place[b]);
  return i >= 0;
}

static bool is_together(const node_orders *o) {
  for (int i = 1; i < o->movable; i++)
    for (int k = i + 1; o->place[i] != o->place[i - 1] && k < o->movable; k++)
      if (o->place[k] == o->place[i - 1]) return false;
  return true;
}

static bool next_order(node_orders *o) {
  bool more = step_order(o);
  while (more && o->together && !is_together(o)) more = step_order(o);
  return more;
}

static void first_order(node_orders *o) {
  memcpy(o->place, o->kind, sizeof o->place);
  for (int i = 1; i < o->movable; i++)
    for (int k = i; k > 0 && o->place[k] < o->place[k - 1]; k--) swap(&o->place[k], &o->place[k - 1]);
}

static bool is_written(const node_orders *o) {
  return memcmp(o->place, o->kind, sizeof *o->place * (size_t)o->movable) == 0;
}

static int64_t count(node_orders *o) {
  int64_t n = 1;
  first_order(o);
  while (next_order(o)) n++;
  return n;
}

/* With the written one, which is searched in any case. */
static int64_t count_with_written(node_orders *o) {
  int64_t n = count(o);
  memcpy(o->place, o->kind, sizeof o->place);
  return n + (o->together && !is_together(o));
}

/* Do alike nodes stay side by side, since not every node changes places by itself? */
static bool keeps_together(const node_orders *o) {
  bool groups = false;
  for (int i = 0; i < o->movable; i++) groups |= o->range[i].nodes > 1;
  return o->together || groups;
}

/* Groups fall into single nodes where these are few, so that [2 * a, b] and [a, b, a] are the same question. */
static node_orders divided(const node_orders *whole, const zp_cluster *c) {
  node_orders o = {0};
  int nodes = 0, rest = whole->n - whole->movable;
  for (int i = 0; i < whole->movable; i++) nodes += whole->range[i].nodes;
  if (nodes + rest > ZP_MOST_NODE_GROUPS) return *whole;
  for (int i = 0; i < whole->n; i++) {
    int parts = i < whole->movable ? whole->range[i].nodes : 1;
    for (int k = 0; k < parts; k++)
      o.range[o.n++] = (zp_node_range){whole->range[i].first + k, whole->range[i].nodes / parts};
  }
  o.movable = nodes;
  find_kinds(&o, c);
  return count(&o) <= MOST_ORDERS ? o : *whole;
}

static node_orders orders_of(const zp_cluster *c, int64_t devices) {
  node_orders o = ranges_of(c, devices);
  find_kinds(&o, c);
  o = divided(&o, c);
  o.together = count(&o) > MOST_ORDERS;
  return o;
}

/* Neighbours that are neighbours as written, of one group, are one range. */
static int join_ranges(const zp_cluster *c, zp_node_range *range, int n) {
  int kept = 1;
  for (int i = 1; i < n; i++) {
    zp_node_range *last = &range[kept - 1];
    bool follows = range[i].first == last->first + last->nodes && type_of(c, range[i].first) == type_of(c, last->first);
    if (follows)
      last->nodes += range[i].nodes;
    else
      range[kept++] = range[i];
  }
  return kept;
}

static const zp_spec *arranged(zp_arena *arena, const zp_spec *spec, const node_orders *o) {
  zp_node_range ranges[ZP_MOST_NODE_GROUPS];
  bool taken[ZP_MOST_NODE_GROUPS] = {false};
  memcpy(ranges, o->range, sizeof ranges);
  for (int i = 0; i < o->movable; i++) {
    int k = 0;
    while (taken[k] || o->kind[k] != o->place[i]) k++;
    taken[k] = true;
    ranges[i] = o->range[k];
  }
  zp_spec *copy = ZP_NEW(arena, zp_spec);
  *copy = *spec;
  int n = join_ranges(&spec->cluster, ranges, o->n);
  bool whole = zp_cluster_arrange(arena, &spec->cluster, ranges, n, &copy->cluster);
  assert(whole && "the ranges are those of the cluster");
  (void)whole;
  return copy;
}

bool zp_orders_nodes(const zp_spec *spec, int devices) {
  const zp_cluster *c = &spec->cluster;
  if (c->groups.len < 2 || c->arranged) return false;
  if (!zp_limit_allows(&spec->plans.data[spec->plan].node_order, ZP_NODES_ANY)) return false;
  node_orders o = orders_of(c, devices);
  return count(&o) > 1;
}

/* What is known while orders are searched one after the other. */
typedef struct trial {
  const zp_spec *best;     /* arranged so has the best plan; NULL: as written */
  double best_s, bound_s;  /* of all that were searched; HUGE_VAL: no plan */
  int64_t work, work_left; /* spent; what all orders but the first may still take */
  int searched;
  bool short_of_memory, short_of_work, interrupted, stopped;
} trial;

static void note(trial *t, const zp_plan *plan) {
  const zp_certificate *c = &plan->certificate;
  t->searched++;
  t->work += c->work;
  t->work_left -= c->work < t->work_left ? c->work : t->work_left;
  t->short_of_memory |= c->short_of_memory;
  t->short_of_work |= c->short_of_work;
  t->interrupted |= c->interrupted;
  t->stopped |= plan->stopped;
  if (c->best_s > 0) t->bound_s = fmin(t->bound_s, c->bound_s); /* else nothing fits */
}

static void try_order(zp_arena *arena, trial *t, const zp_spec *spec, const node_orders *o, int devices,
                      const zp_search_options *options) {
  zp_arena *scratch = zp_arena_new("node order");
  const zp_spec *there = arranged(scratch, spec, o);
  zp_search_options asked = options ? *options : (zp_search_options){0};
  asked.top = 0;
  asked.no_miss = true;
  asked.rival_s = t->best_s < HUGE_VAL ? t->best_s : 0;
  asked.work = (t->work_left + 1) / 2; /* others want their share */
  const zp_plan *plan = zp_search_placed(scratch, there, devices, &asked);
  note(t, plan);
  if (plan->feasible && plan->certificate.best_s < t->best_s * (1 - ZP_GAP_TOLERANCE)) {
    t->best_s = plan->certificate.best_s;
    t->best = arranged(arena, spec, o);
  }
  zp_arena_free(scratch);
}

/* The certificate is about all orders: its bound is the least one, its counts are those of the order of the plan. */
static zp_plan *conclude(zp_plan *plan, const trial *t, int64_t orders, bool together) {
  zp_certificate *c = &plan->certificate;
  if (plan->feasible) {
    double ratio = c->bound_s > 0 ? c->searched_s / c->bound_s : 1;
    c->bound_s = fmin(c->bound_s, t->bound_s > c->best_s * (1 - ZP_GAP_TOLERANCE) ? c->best_s : t->bound_s);
    c->searched_s = fmin(c->searched_s, c->bound_s * ratio);
  }
  c->node_orders = t->searched;
  c->node_orders_there = orders;
  c->nodes_together = together;
  c->work = t->work;
  c->short_of_memory |= t->short_of_memory;
  c->short_of_work |= t->short_of_work;
  c->interrupted |= t->interrupted;
  plan->stopped |= !plan->feasible && t->stopped;
  return plan;
}

zp_plan *zp_search_node_orders(zp_arena *arena, zp_plan *written, const zp_search_options *options) {
  const zp_spec *spec = written->spec;
  int devices = written->devices;
  assert(zp_orders_nodes(spec, devices));
  bool limited = options && options->work > 0;
  trial t = {.best_s = written->feasible ? written->certificate.best_s : HUGE_VAL, .bound_s = HUGE_VAL};
  note(&t, written);
  t.work_left = limited ? options->work : ZP_MOST_SEARCH_WORK;
  node_orders o = orders_of(&spec->cluster, devices);
  int64_t orders = count_with_written(&o);
  bool together = keeps_together(&o);
  first_order(&o);
  do {
    if (!is_written(&o) && t.work_left > 0) try_order(arena, &t, spec, &o, devices, options);
  } while (next_order(&o) && t.searched < MOST_ORDERS && !zp_interrupted());
  if (!t.best || zp_interrupted()) return conclude(written, &t, orders, together);
  zp_plan *plan = zp_search_placed(arena, t.best, devices, options);
  t.searched--; /* it was noted before */
  note(&t, plan);
  plan->asked = spec;
  return conclude(plan, &t, orders, together);
}
