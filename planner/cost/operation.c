/* Time of single operations from their sizes and the machine's rates.
 *
 * Matrix product: 2 m n k FLOP at peak * eff_matmul * shape efficiency, and not faster than its bytes (roofline).
 * Shape efficiency on GPUs: output tiles fill waves of the device's units, and short inner lengths do not fill the
 * pipelines; on CPUs every dimension saturates as x / (x + half). Left out: clocks, library choices, caches. */
#include <math.h>
#include "constants.h"
#include "cost.h"

static const zp_device *device_of(const zp_machine *machine) { return &machine->cluster->node.device; }

static double share(double efficiency) { return efficiency > 0 ? efficiency : 1; }

static double saturation(double x, double half) { return x / (x + half); }

static double gpu_shape_efficiency(double m, double n, double k) {
  double tile = zp_cost_constant(ZP_COST_GPU_GEMM_TILE), units = zp_cost_constant(ZP_COST_GPU_GEMM_UNITS);
  double tiles = ceil(m / tile) * ceil(n / tile);
  double slots = ceil(tiles / units) * units;
  /* tiles that exist against tile slots that run, and elements that exist against elements of the tiles */
  return tiles / slots * (m * n) / (tiles * tile * tile) * saturation(k, zp_cost_constant(ZP_COST_GPU_GEMM_K_HALF));
}

static double cpu_shape_efficiency(double m, double n, double k) {
  return saturation(m, zp_cost_constant(ZP_COST_CPU_GEMM_M_HALF)) *
         saturation(n, zp_cost_constant(ZP_COST_CPU_GEMM_N_HALF)) *
         saturation(k, zp_cost_constant(ZP_COST_CPU_GEMM_K_HALF));
}

static double memory_s(const zp_machine *machine, double bytes) {
  return bytes / (machine->memory_bytes_per_s * share(device_of(machine)->eff_memory));
}

double zp_cost_matmul(const zp_machine *machine, double m, double n, double k, int float_bytes) {
  if (m <= 0 || n <= 0 || k <= 0) return 0;
  const zp_device *device = device_of(machine);
  double shape = device->is_cpu ? cpu_shape_efficiency(m, n, k) : gpu_shape_efficiency(m, n, k);
  double compute = 2 * m * n * k / (machine->flop_per_s * share(device->eff_matmul) * shape);
  double bytes = (m * k + k * n + m * n) * float_bytes;
  return device->launch_s + fmax(compute, memory_s(machine, bytes));
}

double zp_cost_memory_bound(const zp_machine *machine, double bytes, double flop) {
  return device_of(machine)->launch_s + fmax(memory_s(machine, bytes), flop / machine->flop_per_s);
}

double zp_cost_roofline(const zp_machine *machine, double flop, double efficiency, double bytes) {
  double compute = flop / (machine->flop_per_s * share(efficiency));
  return device_of(machine)->launch_s + fmax(compute, memory_s(machine, bytes));
}

double zp_cost_attention(const zp_machine *machine, double flop, double bytes) {
  return zp_cost_roofline(machine, flop, device_of(machine)->eff_attention, bytes);
}
