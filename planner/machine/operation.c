/* SPDX-License-Identifier: Apache-2.0 */
/* Time of single operations from their sizes and the machine's rates.
 *
 * Matrix product on a GPU: the output is cut into tiles, tiles run in waves over the device's multiprocessors, a tile
 * costs its products plus the filling of its pipeline, and small tiles wait more for their operands. The library picks
 * the fastest of some tile shapes and may divide a long inner dimension; so does this model. Operands whose rows are
 * not aligned have slower kernels. On CPUs every dimension saturates as x / (x + half), unless they were
 * measured (cpu.c). Nothing is faster than its bytes (roofline). Left out: clocks that depend on the data, caches,
 * differences between library versions. */
#include <assert.h>
#include <math.h>
#include <string.h>
#include <zplan/constants.h>
#include <zplan/own_gpu.h>
#include <zplan/rates.h>

static const zp_device *device_of(const zp_machine *machine) { return &machine->node->device; }

static double share(double efficiency) { return efficiency > 0 ? efficiency : 1; }

static double saturation(double x, double half) { return x / (x + half); }

static double memory_s(const zp_machine *machine, double bytes) {
  return bytes / (machine->memory_bytes_per_s * share(device_of(machine)->eff_memory));
}

/* ---- matrix products on GPUs ---- */

double zp_cost_units(const zp_machine *machine) {
  int cores = device_of(machine)->cores;
  return cores > 0 ? cores : zp_cost_constant(ZP_COST_GPU_UNITS);
}

typedef struct tile {
  double rows, cols;
} tile;
/* Output tiles of cuBLAS and CUTLASS kernels, the largest and most efficient first. */
static const tile tiles[] = {{256, 128}, {128, 256}, {128, 128}, {256, 64}, {64, 256}, {128, 64}, {64, 128}, {64, 64}};
enum { N_TILES = sizeof tiles / sizeof *tiles, MOST_SPLITS = 8 };

/* Share of the peak that a tile of this shape reaches, relative to the first one. */
static double tile_efficiency(const tile *t) {
  double best = 1 / tiles[0].rows + 1 / tiles[0].cols, own = 1 / t->rows + 1 / t->cols;
  return 1 / (1 + zp_cost_constant(ZP_COST_GPU_TILE_LOAD) * (own - best));
}

/* Waves of tiles, the inner dimension divided by 1, 2, 4, ...; unit: seconds at one FLOP/s of the whole device. */
static double tile_flop(const tile *t, double units, double batch, double m, double n, double k) {
  double fill = zp_cost_constant(ZP_COST_GPU_TILE_FILL), split_depth = zp_cost_constant(ZP_COST_GPU_SPLIT_DEPTH);
  double blocks = batch * ceil(m / t->rows) * ceil(n / t->cols), efficiency = tile_efficiency(t), best = HUGE_VAL;
  for (int splits = 1; splits <= MOST_SPLITS && (splits == 1 || k / splits >= split_depth); splits *= 2) {
    double waves = ceil(blocks * splits / units), depth = k / splits + fill;
    best = zp_sooner(best, waves * units * 2 * t->rows * t->cols * depth / efficiency);
  }
  return best;
}

static double fastest_tile_flop(double units, double batch, double m, double n, double k) {
  double best = HUGE_VAL;
  for (int i = 0; i < N_TILES; i++) best = zp_sooner(best, tile_flop(&tiles[i], units, batch, m, n, k));
  return best;
}

/* Bytes that rows of operands must be multiples of for the fastest kernels. */
static double align_bytes(const zp_device *device) {
  bool volta = device->arch && strcmp(device->arch, "sm_70") == 0;
  return zp_cost_constant(volta ? ZP_COST_VOLTA_ALIGN_BYTES : ZP_COST_GPU_ALIGN_BYTES);
}

/* The dimensions along which the matrices of a product lie in memory: those of op(A), op(B) and the result; the third
 * one's length is free. */
static bool rows_are_aligned(const zp_device *device, zp_product_kind kind, double m, double n, double k,
                             int float_bytes) {
  double bytes = align_bytes(device), along_a = kind == ZP_PRODUCT_TN ? m : k, along_b = kind == ZP_PRODUCT_NT ? k : n;
  return fmod(along_a * float_bytes, bytes) == 0 && fmod(along_b * float_bytes, bytes) == 0 &&
         fmod(n * float_bytes, bytes) == 0;
}

/* Rate of 16-bit products whose rows are not aligned: one large product has tensor-core kernels with narrow loads, the
 * batched ones have none. */
static double unaligned_rate(const zp_machine *machine, double batch) {
  const zp_device *device = &machine->node->device;
  double narrow = machine->flop_per_s * zp_cost_constant(ZP_COST_GPU_UNALIGNED);
  return batch > 1 && device->flop_per_s_fp32 > 0 ? fmin(narrow, device->flop_per_s_fp32) : narrow;
}

static double gpu_product_s(const zp_machine *machine, zp_product_kind kind, double batch, double m, double n, double k,
                            int float_bytes) {
  const zp_device *device = device_of(machine);
  bool aligned = float_bytes != 2 || rows_are_aligned(device, kind, m, n, k, float_bytes);
  double rate = aligned ? machine->flop_per_s : unaligned_rate(machine, batch);
  return fastest_tile_flop(zp_cost_units(machine), batch, m, n, k) / (rate * share(device->eff_matmul));
}

/* ---- matrix products ---- */

static double cpu_product_s(const zp_machine *machine, double batch, double m, double n, double k) {
  double shape = saturation(m, zp_cost_constant(ZP_COST_CPU_GEMM_M_HALF)) *
                 saturation(n, zp_cost_constant(ZP_COST_CPU_GEMM_N_HALF)) *
                 saturation(k, zp_cost_constant(ZP_COST_CPU_GEMM_K_HALF));
  return batch * 2 * m * n * k / (machine->flop_per_s * share(device_of(machine)->eff_matmul) * shape);
}

double zp_cost_product_compute(const zp_machine *machine, zp_product_kind kind, double batch, double m, double n,
                               double k, int float_bytes) {
  assert(kind < ZP_PRODUCT_KINDS && float_bytes >= 2 && float_bytes <= 8 && !device_of(machine)->is_cpu);
  bool some = batch > 0 && m > 0 && n > 0 && k > 0;
  return some ? gpu_product_s(machine, kind, batch, m, n, k, float_bytes) : 0;
}

double zp_cost_product(const zp_machine *machine, zp_product_kind kind, double batch, double m, double n, double k,
                       int float_bytes) {
  assert(kind < ZP_PRODUCT_KINDS && float_bytes >= 2 && float_bytes <= 8);
  if (batch <= 0 || m <= 0 || n <= 0 || k <= 0) return 0;
  const zp_device *device = device_of(machine);
  if (device->measured) return zp_cost_cpu_product(machine, kind, batch, m, n, k);
  double compute = device->is_cpu ? cpu_product_s(machine, batch, m, n, k)
                                  : gpu_product_s(machine, kind, batch, m, n, k, float_bytes);
  double bytes = batch * (m * k + k * n + m * n) * float_bytes;
  return device->launch_s + fmax(compute, memory_s(machine, bytes));
}

double zp_cost_batched_matmul(const zp_machine *machine, double batch, double m, double n, double k, int float_bytes) {
  return zp_cost_product(machine, ZP_PRODUCT_NN, batch, m, n, k, float_bytes);
}

double zp_cost_matmul(const zp_machine *machine, double m, double n, double k, int float_bytes) {
  return zp_cost_batched_matmul(machine, 1, m, n, k, float_bytes);
}

/* ---- the rest ---- */

double zp_cost_memory_bound(const zp_machine *machine, double bytes, double flop) {
  assert(bytes >= 0 && flop >= 0);
  return device_of(machine)->launch_s + fmax(memory_s(machine, bytes), flop / machine->flop_per_s);
}

double zp_cost_roofline(const zp_machine *machine, double flop, double efficiency, double bytes) {
  assert(flop >= 0 && bytes >= 0);
  double compute = flop / (machine->flop_per_s * share(efficiency));
  return device_of(machine)->launch_s + fmax(compute, memory_s(machine, bytes));
}

double zp_cost_row_kernel(const zp_machine *machine, double bytes, double flop, bool gradient) {
  assert(bytes >= 0 && flop >= 0);
  if (device_of(machine)->measured) return zp_cost_cpu_row_kernel(machine, bytes, flop, gradient);
  return zp_cost_memory_bound(machine, bytes, flop);
}

double zp_cost_update(const zp_machine *machine, double norm_bytes, double update_bytes) {
  assert(norm_bytes >= 0 && update_bytes >= 0);
  if (device_of(machine)->measured) return zp_cost_cpu_update(machine, norm_bytes, update_bytes);
  if (zp_cost_is_own_gpu(machine)) return zp_cost_own_update(machine, norm_bytes, update_bytes);
  return zp_cost_memory_bound(machine, norm_bytes + update_bytes, 0);
}

double zp_cost_attention(const zp_machine *machine, double flop, double bytes, double sequence, double head,
                         bool backward) {
  assert(flop >= 0 && bytes >= 0 && sequence > 0 && head > 0);
  if (device_of(machine)->measured) return zp_cost_cpu_attention(machine, flop, sequence, head, backward);
  return zp_cost_roofline(machine, flop, device_of(machine)->eff_attention, bytes);
}

double zp_cost_dropped_flop(double flop, double rate, double head, bool backward) {
  enum { FORWARD = 4, BACKWARD = 10 }; /* for a pair and a column, as zp_node_flop counts */
  assert(flop >= 0 && rate >= 0 && head > 0);
  if (rate == 0) return flop;
  return flop * (1 + zp_cost_constant(ZP_COST_ATTENTION_DROPOUT) / ((backward ? BACKWARD : FORWARD) * head));
}

double zp_cost_sparse_attention(const zp_machine *machine, double flop, double bytes, double block, double head,
                                bool backward) {
  assert(flop >= 0 && bytes >= 0 && block > 0 && head > 0);
  if (device_of(machine)->measured) return zp_cost_cpu_sparse_attention(machine, flop, block, head, backward);
  return zp_cost_roofline(machine, flop, device_of(machine)->eff_attention, bytes);
}
