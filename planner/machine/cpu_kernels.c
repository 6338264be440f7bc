/* SPDX-License-Identifier: Apache-2.0 */
/* Measured kernels of CPU ranks: rows of a calibration as tables of rates. Everything is measured on all cores; a
 * cluster with another number of cores gets its share by core. In f64, rows measured in f32 alone count half their FLOP
 * rate: vectors hold half as many elements. Products of bf16 have rows of their own where the processor multiplies bf16
 * itself. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <zplan/calibration.h>
#include <zplan/cpu_kernels.h>

static const char *const kinds[ZP_PRODUCT_KINDS] = {"nt", "nn", "tn"};
static const char *const passes[2] = {"forward", "backward"};

typedef struct kernels {
  zp_arena *arena;
  const zp_calibration *calibration;
  const char *precision;
  int cores, threads; /* of the cluster's node; those of a rank that products were measured with */
  bool f64;
  const char **error;
} kernels;

/* Reads the rows "PREFIX_64x32": one size for each axis. */
static bool make_table(const kernels *k, const char *prefix, int axes, bool whole, double unit, zp_rate_table *table) {
  const zp_calibration *c = k->calibration;
  zp_rate_sample *samples = ZP_NEW_ARRAY(k->arena, zp_rate_sample, c->rows.len + 1);
  size_t length = strlen(prefix);
  int n = 0;
  for (int i = 0; i < c->rows.len; i++) {
    const zp_measurement *row = &c->rows.data[i];
    zp_rate_sample s = {.share = row->value / unit};
    int end = 0;
    if (strncmp(row->name, prefix, length) != 0) continue;
    const char *sizes = row->name + length;
    if (axes == 1) sscanf(sizes, "_%lf%n", &s.size[0], &end);
    if (axes == 2) sscanf(sizes, "_%lfx%lf%n", &s.size[0], &s.size[1], &end);
    if (axes == 3) sscanf(sizes, "_%lfx%lfx%lf%n", &s.size[0], &s.size[1], &s.size[2], &end);
    if (end > 0 && sizes[end] == '\0') samples[n++] = s;
  }
  const char *why;
  if (zp_rate_table_make(k->arena, samples, n, axes, whole, table, &why)) return true;
  *k->error = zp_format(k->arena, "its rows %s_* cannot be used: %s", prefix, why);
  return false;
}

static const char *product_prefix(const kernels *k, int kind, int threads) {
  return zp_format(k->arena, "gemm_%s_t%d_%s", k->precision, threads, kinds[kind]);
}

static bool has_rows(const zp_calibration *c, const char *prefix) {
  for (int i = 0; i < c->rows.len; i++)
    if (strncmp(c->rows.data[i].name, prefix, strlen(prefix)) == 0) return true;
  return false;
}

/* The measured thread count nearest to `wanted` from below; 0: there is none. */
static int measured_threads(const kernels *k, int wanted) {
  int threads = wanted;
  while (threads > 0 && !has_rows(k->calibration, product_prefix(k, 0, threads))) threads--;
  return threads;
}

/* All cores at the rate of the fastest product: nothing is computed faster. */
static double fastest_product(const kernels *k) {
  double fastest = 0;
  const char *prefix = zp_format(k->arena, "gemm_%s_t%d_", k->precision, k->threads);
  for (int i = 0; i < k->calibration->rows.len; i++) {
    const zp_measurement *row = &k->calibration->rows.data[i];
    if (strncmp(row->name, prefix, strlen(prefix)) == 0) fastest = fmax(fastest, row->value);
  }
  return fastest / k->threads * k->cores;
}

static bool make_products(const kernels *k, double flop_per_s, zp_cpu_kernels *out) {
  double unit = flop_per_s * k->threads / k->cores;
  for (int i = 0; i < ZP_PRODUCT_KINDS; i++)
    if (!make_table(k, product_prefix(k, i, k->threads), 3, true, unit, &out->product[i])) return false;
  return true;
}

static bool one_rate(const kernels *k, const char *name, double unit, double *share) {
  *share = zp_calibration_value(k->calibration, name, 0) / unit;
  if (*share <= 0) *k->error = zp_format(k->arena, "its row %s is missing", name);
  return *share > 0;
}

/* unit: what the device's rate is worth on the cores that were measured. */
static bool make_others(const kernels *k, double flop_unit, double memory_unit, zp_cpu_kernels *out) {
  double flop32 = k->f64 ? 2 * flop_unit : flop_unit;
  for (int i = 0; i < 2; i++)
    if (!make_table(k, zp_format(k->arena, "attention_%s", passes[i]), 2, true, flop32, &out->attention[i]))
      return false;
  for (int i = 0; i < 2; i++) {
    const char *prefix = zp_format(k->arena, "sparse_attention_%s", passes[i]);
    if (has_rows(k->calibration, prefix) && !make_table(k, prefix, 2, true, flop32, &out->sparse_attention[i]))
      return false;
  }
  return make_table(k, "row_bytes_per_s", 1, false, memory_unit, &out->row_bytes) &&
         one_rate(k, "row_flop_per_s", flop32, &out->row_flop[0]) &&
         one_rate(k, "row_grad_flop_per_s", flop32, &out->row_flop[1]) &&
         one_rate(k, "update_bytes_per_s", memory_unit, &out->update) &&
         one_rate(k, "norm_bytes_per_s", memory_unit, &out->norm);
}

static double largest_share(const zp_rate_table *table) {
  double most = -HUGE_VAL;
  int n = 1;
  for (int a = 0; a < table->axes; a++) n *= table->sides[a];
  for (int i = 0; i < n; i++) most = fmax(most, table->log_share[i]);
  return exp(most);
}

bool zp_calibration_apply_kernels(zp_arena *arena, const zp_calibration *c, zp_spec *spec, const char **error) {
  assert(spec->cluster.node.device.is_cpu && error);
  zp_device *d = &spec->cluster.node.device, changed = *d;
  bool f64 = spec->train.precision == ZP_PREC_F64;
  bool bf16 = zp_computes_bf16(spec->train.precision) && has_rows(c, "gemm_bf16_");
  int nodes = spec->cluster.nodes > 0 ? spec->cluster.nodes : 1, ranks = ((int)spec->cluster.ranks + nodes - 1) / nodes;
  kernels k = {.arena = arena,
               .calibration = c,
               .precision = f64    ? "f64"
                            : bf16 ? "bf16"
                                   : "f32",
               .cores = d->cores > 0 ? d->cores : 1,
               .f64 = f64,
               .error = error};
  k.threads = measured_threads(&k, ranks > 0 && k.cores / ranks > 1 ? k.cores / ranks : 1);
  if (k.threads == 0) {
    *error = "it has no rates of matrix products in this precision";
    return false;
  }
  zp_cpu_kernels *out = ZP_NEW(arena, zp_cpu_kernels);
  double measured_cores = zp_calibration_value(c, "cores", k.cores), flop_per_s = fastest_product(&k);
  *(f64 ? &changed.flop_per_s_fp64 : bf16 ? &changed.flop_per_s_half : &changed.flop_per_s_fp32) = flop_per_s;
  if (d->flop_per_s_half > 0 && !bf16) changed.flop_per_s_half = changed.flop_per_s_fp32; /* operands are widened */
  changed.memory_bytes_per_s = zp_calibration_value(c, "update_bytes_per_s", d->memory_bytes_per_s);
  if (!make_products(&k, flop_per_s, out) ||
      !make_others(&k, flop_per_s * measured_cores / k.cores, changed.memory_bytes_per_s, out))
    return false;
  zp_cpu_links_make(c, k.cores, out);
  changed.eff_matmul = 1;
  changed.eff_attention = fmax(largest_share(&out->attention[0]), largest_share(&out->attention[1]));
  changed.eff_memory = largest_share(&out->row_bytes);
  double task_s = zp_calibration_value(c, "task_s", d->launch_s);
  changed.launch_s = k.threads == 1 ? zp_calibration_value(c, "task_t1_s", task_s) : task_s;
  changed.measured = out;
  *d = changed;
  return true;
}
