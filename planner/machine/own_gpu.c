/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of zplan's own GPU trainer: rates of their classes, and the time of those that are not a library's. Matrix
 * products are cuBLASLt's (operation.c). Row kernels, losses, lookups and the update move every operand once, 16 bytes
 * at a time, and compute alongside that on the cores for single precision.
 *
 * Attention in 16 bits on sm_80 and later, and in f16 on sm_70, is on tensor cores (own_attention.c). Other attention
 * (kernels/cuda/zpd_attention.cuh) is on the cores for single precision: 4 operations forward and 14 backward for a
 * pair of query and key and a column of a head, where 4 and 10 are counted as work; tiles that causality cuts are in
 * its rate. A gradient's sums over rows (zpd_rows.cuh) are made by a number of thread blocks that depends on the rows
 * alone, step.row_chunks, whatever the device has. Rates of sm_90 are those of an H100 (docs/evidence/gpu_measured.md);
 * nothing else has been measured on a GPU. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zplan/constants.h>
#include <zplan/own_gpu.h>
#include <zplan/rates.h>

static const char *const names[] = {
#define NAME(name, text) text,
    ZP_KERNELS(NAME)
#undef NAME
};

const char *zp_kernel_name(zp_kernel kernel) {
  assert(kernel < ZP_KERNEL_COUNT);
  return names[kernel];
}

bool zp_cost_is_own_gpu(const zp_machine *machine) {
  const zp_cluster *cluster = machine->cluster;
  return cluster && cluster->trainer == ZP_TRAINER_ZPLAN && !machine->node->device.is_cpu;
}

/* ---- rates ---- */

static double share(double efficiency) { return efficiency > 0 ? efficiency : 1; }

static double core_flop_per_s(const zp_machine *machine) {
  const zp_device *device = &machine->node->device;
  double peak = machine->precision == ZP_PREC_F64 ? device->flop_per_s_fp64 : device->flop_per_s_fp32;
  return peak > 0 ? peak : machine->flop_per_s;
}

enum { TURING = 75, AMPERE = 80, HOPPER = 90, BLACKWELL = 100, CONSUMER_BLACKWELL = 120 };

/* 90 of "sm_90a"; 0: not said. */
static long arch_number(const zp_device *device) {
  return device->arch && strncmp(device->arch, "sm_", 3) == 0 ? strtol(device->arch + 3, NULL, 10) : 0;
}

bool zp_products_do_gelu_gradients(const zp_machine *machine) { return arch_number(&machine->node->device) < HOPPER; }

static enum zp_cost_constant row_share(const zp_device *device) {
  long arch = arch_number(device);
  return arch > 0 && arch <= AMPERE ? ZP_COST_OWN_ROW_OPERATIONS_SM80 : ZP_COST_OWN_ROW_OPERATIONS;
}

/* Tensor cores that mma.sync reaches: those of sm_90 and sm_100 are made for other instructions. */
static enum zp_cost_constant tensor_share(const zp_device *device, bool backward, int64_t head) {
  enum { NARROW = 64 };
  long arch = arch_number(device);
  if (arch >= BLACKWELL && arch < CONSUMER_BLACKWELL)
    return backward ? ZP_COST_OWN_MMA_BACKWARD_SM100 : ZP_COST_OWN_MMA_FORWARD_SM100;
  if (arch >= HOPPER && arch < BLACKWELL) {
    if (head <= NARROW) return backward ? ZP_COST_OWN_MMA_BACKWARD_SM90 : ZP_COST_OWN_MMA_FORWARD_SM90;
    return backward ? ZP_COST_OWN_MMA_BACKWARD_WIDE_SM90 : ZP_COST_OWN_MMA_FORWARD_WIDE_SM90;
  }
  if (arch > 0 && arch < TURING) return backward ? ZP_COST_OWN_MMA_BACKWARD_SM70 : ZP_COST_OWN_MMA_FORWARD_SM70;
  return backward ? ZP_COST_OWN_MMA_BACKWARD_SM80 : ZP_COST_OWN_MMA_FORWARD_SM80;
}

/* Whether rates are those of the H100 that was measured: relative to the device's efficiencies as the library has
 * them. */
static bool is_measured(const zp_machine *machine) {
  const zp_device *device = &machine->node->device;
  long arch = arch_number(device);
  return arch >= HOPPER && arch < BLACKWELL && !device->calibrated;
}

static double measured_share(const zp_machine *machine, enum zp_cost_constant row) {
  return is_measured(machine) ? zp_cost_constant(row) : 1;
}

static double bytes_share(const zp_machine *machine, zp_kernel kernel) {
  if (kernel == ZP_KERNEL_PRODUCT) return 1;
  return measured_share(machine,
                        kernel == ZP_KERNEL_COLUMN_SUMS ? ZP_COST_OWN_COLUMN_SUMS_SM90 : ZP_COST_OWN_BYTES_SM90);
}

zp_kernel_rate zp_kernel_rate_of(const zp_machine *machine, zp_kernel kernel, int64_t head) {
  assert(kernel < ZP_KERNEL_COUNT && head >= 0);
  const zp_device *device = &machine->node->device;
  enum zp_cost_constant row = row_share(device);
  double peak = core_flop_per_s(machine);
  if (kernel == ZP_KERNEL_ATTENTION || kernel == ZP_KERNEL_ATTENTION_GRAD) {
    row = head > 0 ? tensor_share(device, kernel == ZP_KERNEL_ATTENTION_GRAD, head) : ZP_COST_OWN_ATTENTION;
    if (head > 0) peak = machine->flop_per_s;
  }
  zp_kernel_rate rate = {.flop_per_s = peak * zp_cost_constant(row),
                         .bytes_per_s =
                             machine->memory_bytes_per_s * share(device->eff_memory) * bytes_share(machine, kernel),
                         .source = zp_cost_rows()[row].source};
  if (kernel == ZP_KERNEL_PRODUCT) {
    rate.flop_per_s =
        machine->flop_per_s * share(device->eff_matmul) * measured_share(machine, ZP_COST_OWN_PRODUCTS_SM90);
    rate.source = "the device's peak and efficiency.matmul, before tiles, waves and alignment (operation.c)";
  }
  return rate;
}

/* Measured on sm_90, an epilogue's bytes are added to the product's time; elsewhere they are taken to move alongside
 * it. */
double zp_cost_own_product(const zp_machine *machine, double library_s, double bytes, double alongside_bytes) {
  assert(library_s >= 0 && bytes >= 0 && alongside_bytes >= 0);
  double launch = fmin(library_s, machine->node->device.launch_s);
  double bytes_per_s = zp_kernel_rate_of(machine, ZP_KERNEL_PRODUCT, 0).bytes_per_s;
  double moved_s = alongside_bytes > 0 ? launch + bytes / bytes_per_s : 0;
  if (!is_measured(machine)) return fmax(library_s, moved_s);
  return launch + (library_s - launch) / zp_cost_constant(ZP_COST_OWN_PRODUCTS_SM90) +
         zp_cost_constant(ZP_COST_OWN_EPILOGUE_BYTES) * alongside_bytes / bytes_per_s;
}

double zp_cost_own_kernel(const zp_machine *machine, const zp_kernel_work *work, int64_t head) {
  assert(work->launches >= 1 && work->flop >= 0 && work->bytes >= 0);
  zp_kernel_rate rate = zp_kernel_rate_of(machine, work->kernel, head);
  return work->launches * machine->node->device.launch_s +
         fmax(work->flop / rate.flop_per_s, work->bytes / rate.bytes_per_s);
}

/* ---- kernels ---- */

double zp_cost_own_attention(const zp_machine *machine, double flop, double bytes, bool backward,
                             zp_kernel_work *work) {
  assert(flop >= 0 && bytes >= 0 && work);
  enum { COUNTED = 10, DONE = 14 };
  *work = (zp_kernel_work){.kernel = backward ? ZP_KERNEL_ATTENTION_GRAD : ZP_KERNEL_ATTENTION,
                           .launches = backward ? 2 : 1,
                           .flop = backward ? flop * DONE / COUNTED : flop,
                           .bytes = bytes};
  return zp_cost_own_kernel(machine, work, 0);
}

/* Sums of chunks are written and read, those of groups of them again. A chunk is the work of one thread block or, where
 * rows are not reduced, of one for each tile of columns: the former is what is priced. */
double zp_cost_column_sums(const zp_machine *machine, double bytes, double sum_bytes, double flop, int chunks,
                           zp_kernel_work *work) {
  enum { CHUNKS_OF_GROUP = 16 };
  assert(bytes >= 0 && sum_bytes >= 0 && flop >= 0 && chunks >= 1 && work);
  double moved = bytes + 2 * sum_bytes * (chunks + (double)((chunks + CHUNKS_OF_GROUP - 1) / CHUNKS_OF_GROUP));
  double rate = chunks * zp_cost_constant(ZP_COST_OWN_COLUMN_BYTES_PER_S);
  *work = (zp_kernel_work){.kernel = ZP_KERNEL_COLUMN_SUMS, .launches = 1, .flop = flop, .bytes = moved};
  return fmax(machine->node->device.launch_s + moved / rate, zp_cost_own_kernel(machine, work, 0));
}

/* The kernel between norm and update adds up the parts of every segment: as many as its elements fill, at most 256. */
static double decision_s(const zp_machine *machine, double norm_bytes) {
  enum { PARTS = 256, ELEMENTS_OF_PART = 16384 };
  double filled = norm_bytes / machine->compute_bytes / ((double)PARTS * ELEMENTS_OF_PART);
  return zp_cost_constant(ZP_COST_OWN_DECISION_S) * fmin(1, filled);
}

double zp_cost_own_update(const zp_machine *machine, double norm_bytes, double update_bytes) {
  assert(norm_bytes >= 0 && update_bytes >= 0);
  zp_kernel_work work = {
      .kernel = ZP_KERNEL_UPDATE, .launches = ZP_UPDATE_LAUNCHES, .bytes = norm_bytes + update_bytes};
  return zp_cost_own_kernel(machine, &work, 0) + decision_s(machine, norm_bytes);
}
