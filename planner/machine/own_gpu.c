/* Kernels of zplan's own GPU trainer where they are not a library's. Matrix products are cuBLAS', row kernels move
 * their bytes as any do, 16 at a time; attention is its own, and slower than what other programs call.
 *
 * Attention (kernels/cuda/zpd_attention.cuh) computes on the cores for single precision. In 16 bits on sm_80 and later
 * it is on tensor cores (zpd_mma_attention.cuh), which nothing here knows yet: plans there say more than it should
 * take. The former does 4 operations forward and 14 backward for a pair of query and key and a column of a head, where
 * 4 and 10 are counted as work. A gradient's sums over rows (zpd_rows.cuh) are made by a number of thread blocks that
 * depends on the rows alone, step.row_chunks, whatever the device has. Left out: tiles that causality cuts. Nothing
 * here has been measured on a GPU. */
#include <assert.h>
#include <math.h>
#include <zplan/constants.h>
#include <zplan/rates.h>

bool zp_cost_is_own_gpu(const zp_machine *machine) {
  const zp_cluster *cluster = machine->cluster;
  return cluster && cluster->trainer == ZP_TRAINER_ZPLAN && !machine->node->device.is_cpu;
}

double zp_cost_own_attention(const zp_machine *machine, double flop, double bytes, bool backward) {
  assert(flop >= 0 && bytes >= 0);
  enum { COUNTED = 10, DONE = 14 };
  const zp_device *device = &machine->node->device;
  double peak = machine->precision == ZP_PREC_F64 ? device->flop_per_s_fp64 : device->flop_per_s_fp32;
  if (peak <= 0) peak = machine->flop_per_s;
  double done = backward ? flop * DONE / COUNTED : flop;
  double compute = done / (peak * zp_cost_constant(ZP_COST_OWN_ATTENTION));
  return fmax(device->launch_s + compute, zp_cost_memory_bound(machine, bytes, 0));
}

/* Sums of chunks are written and read, those of groups of them again. A chunk is the work of one thread block or, where
 * rows are not reduced, of one for each tile of columns: the former is what is priced. */
double zp_cost_column_sums(const zp_machine *machine, double bytes, double sum_bytes, double flop, int chunks) {
  enum { CHUNKS_OF_GROUP = 16 };
  assert(bytes >= 0 && sum_bytes >= 0 && flop >= 0 && chunks >= 1);
  double moved = bytes + 2 * sum_bytes * (chunks + (double)((chunks + CHUNKS_OF_GROUP - 1) / CHUNKS_OF_GROUP));
  double rate = chunks * zp_cost_constant(ZP_COST_OWN_COLUMN_BYTES_PER_S);
  return fmax(machine->node->device.launch_s + moved / rate, zp_cost_memory_bound(machine, moved, flop));
}
