/* SPDX-License-Identifier: Apache-2.0 */
/* Shared inside the planner: seconds of single operations and collectives on a machine, whatever program they belong
 * to. */
#ifndef ZPLAN_RATES_H
#define ZPLAN_RATES_H

#include <zplan/cpu_kernels.h>
#include <zplan/machine.h>
#include <zplan/seconds.h>

/* ---- link_bytes.c ---- */
/* Bytes that a group sends in one pass (a reduce-scatter, an all-gather, an exchange) over an array of `bytes`: inside,
 * a member to others in its node at most (of a ring on average); across, all members in a node out of it, of the node
 * that sends most. Prices are made of them; what trainers send by these classes is counted (zp_program_across). */
typedef struct zp_class_bytes {
  double inside, across;
} zp_class_bytes;
zp_class_bytes zp_pass_bytes(const zp_group_link *link, zp_algorithm algorithm, double bytes);

/* ---- collective.c: by the link's algorithms ---- */
/* Time of an all-reduce of `bytes` on every rank; 0 for one rank. */
double zp_cost_all_reduce(const zp_group_link *link, double bytes);
/* Time of a reduce-scatter, and of an all-gather, whose full array has `bytes`. */
double zp_cost_reduce_scatter(const zp_group_link *link, double bytes);
double zp_cost_all_gather(const zp_group_link *link, double bytes);
/* Time of an exchange among data ranks, which zplan's own trainer makes of messages between all; a pass of others. */
double zp_cost_exchange(const zp_group_link *link, double bytes);
/* Time of a pass as a ring, whatever the link's algorithms are. */
double zp_cost_ring_pass(const zp_group_link *link, double bytes);
/* Time of an exchange of `bytes` of every rank in equal parts, one for each member and one of them for itself. */
double zp_cost_all_to_all(const zp_group_link *link, double bytes);
/* Share of the multiprocessors that the group's collectives keep from kernels alongside them; 0 on CPUs. */
double zp_cost_taken(const zp_machine *machine, const zp_group_link *link);
/* From one member to all. */
double zp_cost_broadcast(const zp_group_link *link, double bytes);
/* Time of one message. */
double zp_cost_message(const zp_group_link *link, double bytes);

/* ---- operation.c ---- */
/* Multiprocessors of the device. */
double zp_cost_units(const zp_machine *machine);
/* `batch` independent products [m, k] x [k, n] in one call, with operands that lie so. */
double zp_cost_product(const zp_machine *machine, zp_product_kind kind, double batch, double m, double n, double k,
                       int float_bytes);
/* What such products of a GPU compute, without what they move and without a launch. */
double zp_cost_product_compute(const zp_machine *machine, zp_product_kind kind, double batch, double m, double n,
                               double k, int float_bytes);
/* Neither operand is turned. Matrix product [m, k] x [k, n]. */
double zp_cost_matmul(const zp_machine *machine, double m, double n, double k, int float_bytes);
/* `batch` independent products [m, k] x [k, n] in one call. */
double zp_cost_batched_matmul(const zp_machine *machine, double batch, double m, double n, double k, int float_bytes);
/* Moves `bytes` and computes `flop` alongside it. */
double zp_cost_memory_bound(const zp_machine *machine, double bytes, double flop);
/* The larger of computing and moving. */
double zp_cost_roofline(const zp_machine *machine, double flop, double efficiency, double bytes);
double zp_cost_attention(const zp_machine *machine, double flop, double bytes, double sequence, double head,
                         bool backward);
/* FLOP of attention with those whose time dropout of its probabilities takes, forward and backward alike for a pair. */
double zp_cost_dropped_flop(double flop, double rate, double head, bool backward);
/* flop: of whole pairs of blocks of `block` positions. */
double zp_cost_sparse_attention(const zp_machine *machine, double flop, double bytes, double block, double head,
                                bool backward);
/* A row kernel, a lookup or a loss; gradient: of a fused row kernel. */
double zp_cost_row_kernel(const zp_machine *machine, double bytes, double flop, bool gradient);
/* Norm and optimizer over elements that this device updates; zplan's own GPU trainer: own_gpu.h. */
double zp_cost_update(const zp_machine *machine, double norm_bytes, double update_bytes);

/* ---- cpu.c: the same on measured CPU cores; the device has `measured` ---- */
double zp_cost_cpu_product(const zp_machine *machine, zp_product_kind kind, double batch, double m, double n, double k);
double zp_cost_cpu_attention(const zp_machine *machine, double flop, double sequence, double head, bool backward);
double zp_cost_cpu_sparse_attention(const zp_machine *machine, double flop, double block, double head, bool backward);
double zp_cost_cpu_row_kernel(const zp_machine *machine, double bytes, double flop, bool gradient);
double zp_cost_cpu_update(const zp_machine *machine, double norm_bytes, double update_bytes);

#endif
