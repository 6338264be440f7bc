/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators that a measured program makes, and what they take of a device: a group's ranks on their nodes, as the
 * planner's ranks stand (tensor ranks side by side, then data, then stages). What two neighbouring stages send each
 * other is a communicator of two ranks: torch.distributed makes one for every pair (PyTorch ProcessGroupNCCL.cpp). */
#include "software_memory.h"

static int64_t group_bytes(const zp_machine *machine, int ranks, int nodes) {
  return zp_communicator_bytes(machine->node, ranks, nodes);
}

static int64_t link_bytes(const zp_machine *machine, const zp_group_link *link) {
  return group_bytes(machine, link->n, link->nodes);
}

static int nodes_of(const zp_machine *machine, int ranks) {
  return (ranks + machine->devices_per_node - 1) / machine->devices_per_node;
}

/* Neighbours of a stage, each a pair. */
static int pairs_of(const zp_choice *c, int stage) { return (stage > 0) + (stage < c->pipeline - 1); }

int64_t zp_software_communicators(const zp_choice *c, const zp_machine *machine, const zp_software_groups *made,
                                  int stage) {
  zp_group_link tensor = zp_machine_tensor_group(machine, c->tensor, c->pipeline, c->data);
  zp_group_link data = zp_machine_data_group(machine, c->tensor, c->pipeline, c->data, c->order);
  zp_group_link pipeline = zp_machine_pipeline_link(machine, c->tensor, c->pipeline, c->data, c->order);
  int all = c->tensor * c->pipeline * c->data, model = c->tensor * c->pipeline;
  bool apart = pipeline.nodes > 1, end = stage == 0 || stage == c->pipeline - 1;
  int64_t bytes = made->world * group_bytes(machine, all, nodes_of(machine, all));
  bytes += made->tensor * link_bytes(machine, &tensor) + made->data * link_bytes(machine, &data);
  bytes += made->pipeline * group_bytes(machine, c->pipeline, apart ? c->pipeline : 1);
  if (c->pipeline > 1)
    bytes += made->model * group_bytes(machine, model, apart ? c->pipeline : nodes_of(machine, model));
  int64_t pair = group_bytes(machine, 2, apart ? 2 : 1);
  if (c->pipeline > 1 && end) bytes += made->ties * pair;
  return bytes + made->pairs * pairs_of(c, stage) * pair;
}
