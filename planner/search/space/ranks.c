/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks that the current plan uses: the first of the cluster, as many as its degrees make. Links, shares of a node
 * and node types may follow from their number; what does not is shared by plans of different numbers.
 *
 * Memory limits are per rank: what the plan block allows of the device, less the context, and an equal share of its
 * node's host memory and disks among the ranks on the node. Where node types are mixed, limits are those of the
 * smallest type, and a stage on larger ones may use so much more. */
#include "procedures.h"

zp_limits zp_machine_limits(const zp_search_input *in, const zp_machine *machine) {
  double fraction = in->constraints->memory_fraction;
  int here = machine->devices < machine->devices_per_node ? machine->devices : machine->devices_per_node;
  return (zp_limits){(int64_t)(fraction * (double)machine->memory_bytes) - machine->context_bytes,
                     (int64_t)(fraction * (double)machine->node->host_memory_bytes) / here,
                     (int64_t)(fraction * (double)machine->node->nvme_bytes) / here};
}

zp_limits zp_search_limits(const zp_search_cache *s) {
  return (zp_limits){s->limit_bytes, s->host_bytes, s->nvme_bytes};
}

void zp_use_limits(zp_search_cache *s) {
  const zp_machine *machine = &s->machine;
  zp_limits limits = zp_machine_limits(s->in, machine);
  s->limit_bytes = s->most_bytes = limits.device;
  s->host_bytes = limits.host;
  s->nvme_bytes = limits.nvme;
  for (int g = 0; g < machine->cluster->groups.len; g++) {
    if (!(machine->types >> g & 1)) continue;
    zp_machine one = zp_machine_of_types(machine, 1u << g);
    int64_t bytes = zp_machine_limits(s->in, &one).device;
    if (bytes > s->most_bytes) s->most_bytes = bytes;
  }
}

void zp_search_use(zp_search_cache *s, int ranks) {
  if (s->machine.devices == ranks) return;
  zp_span_memo *spans = s->machine.spans;
  s->machine = zp_machine_make(s->machine.cluster, s->machine.precision, ranks);
  s->machine.spans = spans;
  zp_use_limits(s);
}

/* ---- tensor groups ---- */

/* Do groups of that size never lie across two nodes? Then it does not matter how many there are. */
static bool stay_in_nodes(const zp_search_cache *s, int tensor) {
  const zp_cluster *c = s->machine.cluster;
  for (int g = 0; g < c->groups.len; g++)
    if (c->groups.data[g].type.devices % tensor) return false;
  return true;
}

/* Those of the current ranks. */
static zp_tensor_groups current_groups(const zp_search_cache *s, int tensor) {
  int count = s->machine.devices / tensor;
  return (zp_tensor_groups){.tensor = tensor,
                            .count = zp_has_types(s) && !stay_in_nodes(s, tensor) ? count : 0,
                            .machine = s->machine,
                            .link = zp_machine_tensor_group(&s->machine, tensor, count, 1)};
}

bool zp_same_link(const zp_group_link *a, const zp_group_link *b) {
  return a->n == b->n && a->local == b->local && a->nodes == b->nodes && a->fullest == b->fullest &&
         a->blocks == b->blocks && a->bytes_per_s == b->bytes_per_s && a->local_bytes_per_s == b->local_bytes_per_s &&
         a->network_bytes_per_s == b->network_bytes_per_s && a->local_latency_s == b->local_latency_s &&
         a->network_latency_s == b->network_latency_s && a->sums == b->sums && a->gathers == b->gathers;
}

bool zp_same_links(const zp_exchange_links *a, const zp_exchange_links *b) {
  return zp_same_link(&a->expert, &b->expert) && zp_same_link(&a->context, &b->context);
}

static bool same_groups(const zp_tensor_groups *a, const zp_tensor_groups *b) {
  return a->tensor == b->tensor && a->count == b->count && a->machine.types == b->machine.types &&
         a->machine.flop_per_s == b->machine.flop_per_s &&
         a->machine.memory_bytes_per_s == b->machine.memory_bytes_per_s && zp_same_link(&a->link, &b->link);
}

static int find(const zp_search_cache *s, const zp_tensor_groups *wanted) {
  for (int i = s->groups.len - 1; i >= 0; i--)
    if (same_groups(&s->groups.data[i], wanted)) return i;
  return -1;
}

static bool are_known(const zp_search_memo *memo, const zp_search_cache *s, int tensor) {
  return memo->groups_tensor == tensor && memo->groups_ranks == s->machine.devices;
}

int zp_find_groups(const zp_search_cache *s, int tensor) {
  if (are_known(&s->memo, s, tensor)) return s->memo.groups;
  zp_tensor_groups wanted = current_groups(s, tensor);
  return find(s, &wanted);
}

int zp_use_groups(zp_search_cache *s, int tensor) {
  if (are_known(&s->memo, s, tensor)) return s->memo.groups;
  zp_tensor_groups wanted = current_groups(s, tensor);
  int at = find(s, &wanted);
  if (at < 0) {
    at = s->groups.len;
    zp_push(s->arena, &s->groups, wanted);
  }
  s->memo.groups = at;
  s->memo.groups_tensor = tensor;
  s->memo.groups_ranks = s->machine.devices;
  return at;
}

/* ---- where the stages of a choice stand: several node types ---- */

static bool same_nodes(const zp_choice *a, const zp_choice *b) {
  return a->tensor == b->tensor && a->pipeline == b->pipeline && a->data == b->data && a->order == b->order;
}

const zp_stage_nodes_memo *zp_find_stage_nodes(zp_search_cache *s, const zp_choice *c) {
  zp_stage_nodes_memo *memo = &s->memo.stage_nodes;
  if (memo->known && same_nodes(&memo->choice, c)) return memo;
  memo->known = true;
  memo->choice = *c;
  memo->n_sets = 0;
  for (int stage = 0; stage < c->pipeline; stage++) {
    zp_machine machine = zp_machine_of_stage(&s->machine, c, stage);
    memo->types[stage] = machine.types;
    memo->limits[stage] = zp_machine_limits(s->in, &machine);
    bool seen = false;
    for (int i = 0; i < memo->n_sets; i++) seen |= memo->sets[i] == machine.types;
    if (!seen) memo->sets[memo->n_sets++] = machine.types;
  }
  return memo;
}

static int64_t shifted(int64_t limit, int64_t smallest, int64_t own) {
  return limit == INT64_MAX ? limit : limit + (own - smallest);
}

zp_limits zp_limits_of_stage(zp_search_cache *s, const zp_choice *choice, int stage, const zp_limits *smallest) {
  if (!zp_has_types(s)) return *smallest;
  const zp_limits *own = &zp_find_stage_nodes(s, choice)->limits[stage];
  return (zp_limits){shifted(smallest->device, s->limit_bytes, own->device),
                     shifted(smallest->host, s->host_bytes, own->host),
                     shifted(smallest->nvme, s->nvme_bytes, own->nvme)};
}
