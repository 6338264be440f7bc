/* SPDX-License-Identifier: Apache-2.0 */
/* The machine of the report page: node types in the order in which ranks fill them, and groups of ranks. */
#include "page_internal.h"

static void set_link(zp_json *o, const char *key, const zp_link *link) {
  if (link->bytes_per_s <= 0) return;
  zp_json *j = zp_json_set(o, key, zp_json_object());
  zp_json_set_string(j, "kind", link->kind);
  zp_json_set_real(j, "bytes_per_s", link->bytes_per_s);
  zp_json_set_real(j, "latency_s", link->latency_s);
}

static void add_nodes(zp_json *list, const zp_node_type *type, int64_t devices, int devices_per_node) {
  zp_json *o = zp_json_append(list, zp_json_object());
  zp_json_set_string(o, "name", type->name);
  zp_json_set_string(o, "device", type->device.name);
  zp_json_set_int(o, "devices", devices);
  zp_json_set_int(o, "devices_per_node", devices_per_node);
  zp_json_set_int(o, "memory_bytes", type->device.memory_bytes);
  zp_json_set_int(o, "host_memory_bytes", type->host_memory_bytes);
  zp_json_set_real(o, "pcie_bytes_per_s", type->pcie_bytes_per_s);
  zp_json_set_int(o, "nics", type->nics);
  set_link(o, "link", &type->link);
  set_link(o, "nic", &type->nic);
}

static void set_nodes(zp_json *machine, const zp_plan *plan) {
  const zp_cluster *c = &plan->spec->cluster;
  zp_json *list = zp_json_set(machine, "nodes", zp_json_array());
  int64_t left = plan->devices;
  for (int g = 0; g < c->groups.len && left > 0; g++) {
    const zp_node_type *type = &c->groups.data[g].type;
    int64_t all = (int64_t)c->groups.data[g].nodes * type->devices, here = left < all ? left : all;
    add_nodes(list, type, here, type->devices);
    left -= here;
  }
  if (c->groups.len == 0) add_nodes(list, &c->node, plan->devices, plan->machine.devices_per_node);
}

static void add_group(zp_json *list, const char *axis, const zp_group_link *link) {
  if (link->n < 2) return;
  zp_json *o = zp_json_append(list, zp_json_object());
  zp_json_set_string(o, "axis", axis);
  zp_json_set_int(o, "ranks", link->n);
  zp_json_set_int(o, "nodes", link->nodes);
  zp_json_set_real(o, "bytes_per_s", link->bytes_per_s);
  zp_json_set_real(o, "latency_s", link->latency_s);
}

static void set_groups(zp_json *machine, const zp_plan *plan) {
  const zp_choice *c = &plan->best.choice;
  const zp_machine *m = &plan->machine;
  zp_json *list = zp_json_set(machine, "groups", zp_json_array());
  zp_group_link tensor = zp_machine_tensor_group(m, c->tensor, c->pipeline, c->data);
  add_group(list, "tensor", &tensor);
  zp_group_link data = zp_machine_data_group(m, c->tensor, c->pipeline, c->data, c->order);
  add_group(list, "data", &data);
  if (zp_expert_ranks(c) > 1) {
    zp_group_link expert = zp_machine_expert_group(m, c->tensor, c->pipeline, c->data, zp_expert_ranks(c), c->order);
    add_group(list, "expert", &expert);
  }
  if (zp_context_ranks(c) > 1) {
    zp_group_link context = zp_machine_expert_group(m, c->tensor, c->pipeline, c->data, c->context, c->order);
    add_group(list, "context", &context);
  }
  if (c->shard > 0) {
    zp_group_link shard = zp_machine_shard_group(m, c, false), copies = zp_machine_copies_group(m, c);
    add_group(list, "shard", &shard);
    add_group(list, "copies of shards", &copies);
  }
  if (c->hpz > 0) {
    zp_group_link hpz = zp_machine_hpz_group(m, c);
    add_group(list, "hpZ", &hpz);
  }
  if (c->pipeline == 1) return;
  zp_group_link messages = zp_machine_pipeline_link(m, c->tensor, c->pipeline, c->data, c->order);
  add_group(list, "pipeline", &messages);
}

void zp_page_set_machine(zp_json *page, const zp_plan *plan) {
  zp_json *machine = zp_json_set(page, "machine", zp_json_object());
  zp_json_set_bool(machine, "cpu", plan->spec->cluster.node.device.is_cpu);
  zp_json_set_int(machine, "devices", plan->devices);
  zp_json_set_int(machine, "ranks", zp_choice_ranks(&plan->best.choice));
  zp_json_set_real(machine, "flop_per_s", plan->machine.flop_per_s);
  zp_json_set_real(machine, "memory_bytes_per_s", plan->machine.memory_bytes_per_s);
  double dollars = zp_cluster_price(&plan->spec->cluster, plan->devices);
  if (dollars > 0) zp_json_set_real(machine, "device_hour_dollars", dollars);
  set_nodes(machine, plan);
  set_groups(machine, plan);
}
