/* SPDX-License-Identifier: Apache-2.0 */
/* The machine as the cost model sees it: one cluster, one precision, and the groups that a choice of degrees makes.
 * Nodes are filled with ranks in order; zp_rank_order says how ranks are numbered. */
#ifndef ZPLAN_MACHINE_H
#define ZPLAN_MACHINE_H

#include <zplan/choice.h>

/* How many nodes groups span, kept between questions: with several node types every rank is considered. Zeroed by
 * whoever owns it. */
enum { ZP_SPAN_SLOTS = 256 };
typedef struct zp_span_memo {
  struct zp_group_span {
    int64_t key[6]; /* layout of the groups; 0 ranks: empty */
    int nodes;
  } slots[ZP_SPAN_SLOTS];
} zp_span_memo;

/* What some ranks of a cluster can count on: all that are in use, or those of one stage (zp_machine_of_stage). */
typedef struct zp_machine {
  const zp_cluster *cluster;
  const zp_node_type *node; /* that its ranks stand on; several types: the slowest of them */
  zp_node_set types;        /* the node groups of the cluster that the ranks stand on; one type: 1 */
  zp_precision precision;
  int devices; /* ranks that the plan uses, on whatever machine: the first of the cluster */
  int devices_per_node;
  int compute_bytes;         /* of an activation element: 4, 8 or 2 */
  double flop_per_s;         /* dense peak of one device in the compute precision */
  double memory_bytes_per_s; /* of one device; CPU ranks share their node's */
  double collective_share;   /* of the network's bandwidth that collectives over several nodes reach, 1 unless measured;
                              * messages reach all of it */
  int64_t memory_bytes, context_bytes; /* of one device; CPU ranks share their node's */
  zp_span_memo *spans;                 /* borrowed; NULL: nothing is kept */
} zp_machine;

/* How bytes of a collective travel. RING: every member sends to the next one, NCCL's and other programs' way. FLAT:
 * every member sends to all others, each its part (runtime/comm/comm.c, runtime/cuda/nccl.c). TWO_LEVELS: inside nodes,
 * then between the same places of them, or the other way round (runtime/comm/comm_levels.c,
 * runtime/cuda/nccl_levels.c). */
typedef enum zp_algorithm { ZP_ALGORITHM_RING, ZP_ALGORITHM_FLAT, ZP_ALGORITHM_TWO_LEVELS } zp_algorithm;

/* A communicating group: n ranks, of which `local` stand in one node; link: the slowest one on its ring, already
 * divided among the groups that use it at the same time. */
typedef struct zp_group_link {
  int n, local, nodes;
  int fullest;   /* members in one node at most, whatever group and node: more than `local` where they stand unevenly */
  double blocks; /* thread blocks that a collective runs on; 0 on CPUs */
  double bytes_per_s;
  double local_bytes_per_s, network_bytes_per_s; /* of a ring inside a node, and of all that the group's members in a
                                                  * node send out of it; 0 where there is no network between them */
  double latency_s;                              /* mean hop of the ring */
  double local_latency_s, network_latency_s;     /* a hop in a node and between nodes */
  bool trees;                                    /* runs NCCL: trees of nodes for all-reduces, low-latency protocols */
  zp_algorithm sums, gathers;                    /* of reduce-scatters and all-gathers, also those of an all-reduce */
  bool rounds;                                   /* sums leave a node in half of their bytes */
} zp_group_link;

/* Its machine is that of the first `devices`. */
zp_machine zp_machine_make(const zp_cluster *cluster, zp_precision precision, int devices);
/* The machine of one stage's ranks: the slowest device and the smallest memory of the node types they stand on. The
 * machine itself when all nodes are of one type. */
zp_machine zp_machine_of_stage(const zp_machine *m, const zp_choice *choice, int stage);
/* The machine of the ranks of stages first .. last together: for what lies between them. */
zp_machine zp_machine_of_stages(const zp_machine *m, const zp_choice *choice, int first, int last);

/* The machine of ranks on a set of node groups, at least one; clusters of several node types only. */
zp_machine zp_machine_of_types(const zp_machine *m, zp_node_set types);

/* One node with the ranks on it. */
typedef struct zp_node_place {
  const zp_node_type *type;
  int group;            /* of the cluster; 0 when it has one type */
  int64_t index;        /* along the cluster */
  int64_t first, ranks; /* those in use */
} zp_node_place;
zp_node_place zp_machine_node_of(const zp_machine *m, int64_t rank);
/* Peak of all ranks in use together, in the compute precision. */
double zp_machine_peak_flop_per_s(const zp_machine *m);
/* Nodes that the ranks in use need. */
int64_t zp_machine_nodes(const zp_machine *m);

/* How trainers that the machine's devices run sum over a group, and gather in it. even: nodes have equally many of its
 * members, and more than one. by_nccl: activations of tensor groups,
 * which on GPUs no trainer sums by itself. */
zp_algorithm zp_machine_sums(const zp_machine *m, bool even, bool by_nccl);
zp_algorithm zp_machine_gathers(const zp_machine *m, bool even);
/* Groups for degrees (tensor, pipeline, data). In a cluster of several node types: the slowest group among those that
 * stand on the machine's types alone. Tensor groups are the same in every order. */
zp_group_link zp_machine_tensor_group(const zp_machine *m, int tensor, int pipeline, int data);
/* Tensor ranks where they sum gradients, in rank order. */
zp_group_link zp_machine_partial_group(const zp_machine *m, int tensor, int pipeline, int data);
zp_group_link zp_machine_data_group(const zp_machine *m, int tensor, int pipeline, int data, zp_rank_order order);
/* Expert groups: `expert` data ranks next to each other, a number that divides `data`. Their replicas: the data ranks
 * at the same place of every expert group of a stage and tensor rank. */
zp_group_link zp_machine_expert_group(const zp_machine *m, int tensor, int pipeline, int data, int expert,
                                      zp_rank_order order);
zp_group_link zp_machine_replica_group(const zp_machine *m, int tensor, int pipeline, int data, int expert,
                                       zp_rank_order order);
/* Who divides state with ZeRO: the data ranks of a shard group, of the choice's experts those at the same place of its
 * expert groups; and the data ranks at the same place of every shard group, which have copies of the same shards. */
zp_group_link zp_machine_shard_group(const zp_machine *m, const zp_choice *choice, bool experts);
zp_group_link zp_machine_copies_group(const zp_machine *m, const zp_choice *choice);
/* Who divides the second copy of the parameters. Requires: choice->hpz > 0. */
zp_group_link zp_machine_hpz_group(const zp_machine *m, const zp_choice *choice);
zp_group_link zp_machine_pipeline_link(const zp_machine *m, int tensor, int pipeline, int data, zp_rank_order order);

/* ---- communicators.c ---- */
/* Device memory of one NCCL communicator of so many ranks on so many nodes; 0 without NCCL. */
int64_t zp_communicator_bytes(const zp_node_type *node, int ranks, int nodes);
/* What it takes more where its ranks also send to each other, by messages of their own. */
int64_t zp_pairs_bytes(const zp_node_type *node, int ranks, int nodes);
typedef enum zp_communicator_kind {
  ZP_COMMUNICATOR_TENSOR,
  ZP_COMMUNICATOR_DATA,
  ZP_COMMUNICATOR_PIPELINE, /* pairs of neighbouring stages, one for each direction and sender */
  ZP_COMMUNICATOR_TIES,     /* first and last stage, one for each tied parameter */
  ZP_COMMUNICATOR_EXPERT,
  ZP_COMMUNICATOR_CONTEXT,
  ZP_COMMUNICATOR_REPLICAS, /* expert groups; who holds the same experts */
  ZP_COMMUNICATOR_COPIES,   /* who has copies of the same shards; DATA and REPLICAS are then those of a shard group */
  ZP_COMMUNICATOR_HPZ,      /* who divides a second copy of the parameters */
  ZP_COMMUNICATOR_SUMS,     /* none of NCCL's: where the trainer lets shares of gradients arrive */
  ZP_COMMUNICATOR_COUNT
} zp_communicator_kind;
/* Those of one rank of a choice, the most that a rank has. */
typedef struct zp_communicators {
  int64_t bytes[ZP_COMMUNICATOR_COUNT], total_bytes;
} zp_communicators;
/* ties: parameters that several segments share. Several node types: for the cluster's common node. */
zp_communicators zp_communicators_of(const zp_cluster *cluster, const zp_choice *choice, int ties);
const char *zp_communicator_name(zp_communicator_kind kind);

#endif
