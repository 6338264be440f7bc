/* SPDX-License-Identifier: Apache-2.0 */
/* What the measurements of a GPU change in a cluster. The model of products (operation.c) knows tiles and waves; what
 * it does not know is the rate that the best tiles reach, so that one number is fitted: the median over the shapes of
 * the rate at which the model would have taken the measured time. How far the single shapes are from it is in the
 * row. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <zplan/calibration.h>
#include <zplan/rates.h>

static const char *const precisions[] = {"half", "f32"};
enum { N_PRECISIONS = sizeof precisions / sizeof *precisions };

/* Seconds of a product on a device of 1 FLOP/s with that many multiprocessors: the work that the model counts. */
static double model_flop(double cores, int float_bytes, double m, double n, double k) {
  zp_node_type node = {.devices = 1, .device = {.cores = (int)cores}};
  zp_machine machine = {.node = &node, .devices = 1, .flop_per_s = 1, .memory_bytes_per_s = HUGE_VAL};
  return zp_cost_matmul(&machine, m, n, k, float_bytes);
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static double median(double *values, int n) {
  qsort(values, (size_t)n, sizeof *values, by_size);
  return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* The rate at which the model agrees with every measured product: model FLOP over measured seconds. */
static int rates_of(zp_arena *arena, const zp_calibration *c, const char *precision, double cores, double *rate) {
  int n = 0, float_bytes = strcmp(precision, "half") == 0 ? 2 : 4;
  const char *prefix = zp_format(arena, "gpu_gemm_%s_", precision);
  for (int i = 0; i < c->rows.len; i++) {
    const zp_measurement *row = &c->rows.data[i];
    double m, n_cols, k;
    if (strncmp(row->name, prefix, strlen(prefix)) != 0 || row->value <= 0) continue;
    if (sscanf(row->name + strlen(prefix), "%lfx%lfx%lf", &m, &n_cols, &k) != 3) continue;
    rate[n++] = model_flop(cores, float_bytes, m, n_cols, k) * row->value / (2 * m * n_cols * k);
  }
  return n;
}

void zp_calibration_fit_gpu(zp_arena *arena, zp_calibration *c) {
  double cores = zp_calibration_value(c, "gpu_cores", 0);
  double *rate = ZP_NEW_ARRAY(arena, double, c->rows.len + 1);
  for (int p = 0; p < N_PRECISIONS && cores >= 1; p++) {
    int n = rates_of(arena, c, precisions[p], cores, rate);
    if (n < 3) continue; /* a median that one odd shape decides is none */
    double fitted = median(rate, n);
    for (int i = 0; i < n; i++) rate[i] = fabs(rate[i] / fitted - 1);
    zp_measurement row = {zp_format(arena, "gpu_%s_flop_per_s", precisions[p]), fitted, "FLOP/s",
                          zp_format(arena, "fitted to %d shapes, median error %.0f %%", n, 100 * median(rate, n))};
    zp_push(arena, &c->rows, row);
  }
}

/* Share of a device's memory: boards of one kind differ by less (drivers and ECC keep some), kinds with as many cores
 * by more. */
static const double MEMORY_DIFFERS = 0.1;

/* Is the calibration of the device that the cluster names? */
static bool same_device(const zp_calibration *c, const zp_device *d) {
  double cores = zp_calibration_value(c, "gpu_cores", 0), memory = zp_calibration_value(c, "gpu_memory_bytes", 0);
  return (int)cores == d->cores && fabs(memory / (double)d->memory_bytes - 1) < MEMORY_DIFFERS;
}

static void apply_rates(const zp_calibration *c, zp_node_type *node, double rate, double peak) {
  zp_device *d = &node->device;
  double copy = zp_calibration_value(c, "gpu_copy_bytes_per_s", 0);
  double in = zp_calibration_value(c, "pcie_to_device_bytes_per_s", 0);
  double out = zp_calibration_value(c, "pcie_to_host_bytes_per_s", 0);
  double memory = zp_calibration_value(c, "gpu_memory_bytes", 0);
  d->calibrated = true;
  d->eff_matmul = rate / peak;
  if (copy > 0) d->eff_memory = copy / d->memory_bytes_per_s;
  if (in > 0 && out > 0) node->pcie_bytes_per_s = fmin(in, out);
  if (memory > 0) d->memory_bytes = (int64_t)memory;
  d->launch_s = zp_calibration_value(c, "gpu_launch_s", d->launch_s);
}

bool zp_calibration_apply_gpu(zp_arena *arena, const zp_calibration *c, zp_spec *spec, const char **error) {
  assert(!spec->cluster.node.device.is_cpu && error);
  zp_device *d = &spec->cluster.node.device;
  bool half = zp_is_mixed(&spec->train);
  double rate = zp_calibration_value(c, half ? "gpu_half_flop_per_s" : "gpu_f32_flop_per_s", 0);
  double peak = half ? d->flop_per_s_half : d->flop_per_s_fp32;
  if (zp_calibration_value(c, "gpu_cores", 0) <= 0) {
    *error = zp_format(arena, "cluster `%s` has `%s` devices; no GPU was measured", spec->cluster.name, d->name);
    return false;
  }
  if (!same_device(c, d)) {
    *error = zp_format(
        arena, "it is of another GPU than the cluster's `%s`: %.0f multiprocessors and %.0f GB, not %d and %.0f GB",
        d->name, zp_calibration_value(c, "gpu_cores", 0), zp_calibration_value(c, "gpu_memory_bytes", 0) / 1e9,
        d->cores, (double)d->memory_bytes / 1e9);
    return false;
  }
  if (rate <= 0 || peak <= 0 || spec->train.precision == ZP_PREC_F64) {
    *error = "it has no rates of matrix products in this precision";
    return false;
  }
  apply_rates(c, &spec->cluster.node, rate, peak);
  return true;
}
