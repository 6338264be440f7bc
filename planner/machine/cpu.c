/* SPDX-License-Identifier: Apache-2.0 */
/* Time of single operations on CPU cores that were measured (zplan calibrate): work over the rate that the same kernel
 * reached for the same sizes, plus the start of a task. Matrix products and attention by their shapes, row kernels by
 * the bytes of a call or by their arithmetic, whichever takes longer. What is measured includes the caches: a call's
 * operands were as far away as in a trainer whose steps have about that size. Left out: what else lies in the caches
 * then, waiting of threads and ranks for each other where cores are unevenly fast. */
#include <assert.h>
#include <math.h>
#include <zplan/cpu_kernels.h>
#include <zplan/rates.h>

static const zp_cpu_kernels *kernels_of(const zp_machine *machine) { return machine->node->device.measured; }

static double start_s(const zp_machine *machine) { return machine->node->device.launch_s; }

double zp_cost_cpu_product(const zp_machine *machine, zp_product_kind kind, double batch, double m, double n,
                           double k) {
  assert(kernels_of(machine) && kind < ZP_PRODUCT_KINDS);
  double rate = machine->flop_per_s * zp_rate_at(&kernels_of(machine)->product[kind], (double[]){m, n, k});
  return start_s(machine) + batch * 2 * m * n * k / rate;
}

double zp_cost_cpu_attention(const zp_machine *machine, double flop, double sequence, double head, bool backward) {
  assert(kernels_of(machine));
  double share = zp_rate_at(&kernels_of(machine)->attention[backward], (double[]){sequence, head});
  return start_s(machine) + flop / (machine->flop_per_s * share);
}

/* Calibrations from before there was block-sparse attention have no table of it: then as dense attention over sequences
 * of as many positions as a block has. */
double zp_cost_cpu_sparse_attention(const zp_machine *machine, double flop, double block, double head, bool backward) {
  assert(kernels_of(machine));
  const zp_rate_table *table = &kernels_of(machine)->sparse_attention[backward];
  if (!table->log_share) return zp_cost_cpu_attention(machine, flop, block, head, backward);
  return start_s(machine) + flop / (machine->flop_per_s * zp_rate_at(table, (double[]){block, head}));
}

/* All ranks of a node run such a call at the same time, and the rates are those of all cores. */
double zp_cost_cpu_row_kernel(const zp_machine *machine, double bytes, double flop, bool gradient) {
  assert(kernels_of(machine));
  if (bytes <= 0) return start_s(machine);
  const zp_cpu_kernels *kernels = kernels_of(machine);
  double share = zp_rate_at(&kernels->row_bytes, (double[]){bytes * machine->devices_per_node});
  double moving = bytes / (machine->memory_bytes_per_s * share),
         computing = flop / (machine->flop_per_s * kernels->row_flop[gradient]);
  return start_s(machine) + fmax(moving, computing);
}

double zp_cost_cpu_update(const zp_machine *machine, double norm_bytes, double update_bytes) {
  assert(kernels_of(machine));
  const zp_cpu_kernels *kernels = kernels_of(machine);
  return 2 * start_s(machine) +
         (norm_bytes / kernels->norm + update_bytes / kernels->update) / machine->memory_bytes_per_s;
}
