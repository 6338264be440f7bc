/* The machine as the cost model sees it: one cluster, one precision, and the groups that a choice of degrees makes.
 * Ranks are placed tensor fastest, then data, then pipeline, filling nodes in order. */
#ifndef ZPLAN_MACHINE_H
#define ZPLAN_MACHINE_H

#include <zplan/spec.h>

typedef struct zp_machine {
  const zp_cluster *cluster;
  const zp_node_type *node; /* that its ranks stand on */
  int devices; /* ranks that the plan uses */
  int devices_per_node;
  int compute_bytes;         /* of an activation element: 4, 8 or 2 */
  double flop_per_s;         /* dense peak of one device in the compute precision */
  double memory_bytes_per_s; /* of one device; CPU ranks share their node's */
  double collective_share;   /* of the network's bandwidth that collectives over several nodes reach, 1 unless measured;
                              * messages reach all of it */
  int64_t memory_bytes, context_bytes; /* of one device; CPU ranks share their node's */
} zp_machine;

/* A communicating group: n ranks, of which `local` stand in one node; link: the slowest one on its ring, already
 * divided among the groups that use it at the same time. */
typedef struct zp_group_link {
  int n, local, nodes;
  double bytes_per_s;
  double latency_s;                          /* mean hop of the ring */
  double local_latency_s, network_latency_s; /* a hop in a node and between nodes */
  bool trees;                                /* runs NCCL: trees of nodes for all-reduces, low-latency protocols */
} zp_group_link;

zp_machine zp_machine_make(const zp_cluster *cluster, zp_precision precision, int devices);
/* Groups for degrees (tensor, pipeline, data). */
zp_group_link zp_machine_tensor_group(const zp_machine *m, int tensor, int pipeline, int data);
zp_group_link zp_machine_data_group(const zp_machine *m, int tensor, int pipeline, int data);
zp_group_link zp_machine_pipeline_link(const zp_machine *m, int tensor, int pipeline, int data);

#endif
