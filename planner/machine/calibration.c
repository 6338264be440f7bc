/* Calibration files: reading, writing, and what they change in a cluster. */
#include <math.h>
#include <stdio.h>
#include <zplan/calibration.h>

static const char format_name[] = "zplan-calibration";
enum { VERSION = 1 };

/* ---- files ---- */

static bool read_row(zp_arena *arena, const zp_json *json, int index, zp_measurement *row, const char **error) {
  const char *name = zp_json_get_string(json, "name", NULL);
  double value = zp_json_get_real(json, "value", NAN);
  if (!name || !isfinite(value) || value < 0) {
    *error = zp_format(arena, "row %d wants a name and a value of at least 0", index);
    return false;
  }
  *row = (zp_measurement){.name = zp_strdup(arena, name),
                          .value = value,
                          .unit = zp_strdup(arena, zp_json_get_string(json, "unit", "")),
                          .how = zp_strdup(arena, zp_json_get_string(json, "how", ""))};
  return true;
}

zp_calibration *zp_calibration_read(zp_arena *arena, const zp_json *json, const char **error) {
  const zp_json *rows = zp_json_get(json, "rows");
  if (strcmp(zp_json_get_string(json, "format", ""), format_name) != 0 || !zp_json_is_array(rows)) {
    *error = zp_format(arena, "it is no calibration: \"format\" must be \"%s\" and \"rows\" a list", format_name);
    return NULL;
  }
  if (zp_json_get_int(json, "version", 0) != VERSION) {
    *error = zp_format(arena, "its version is %lld, this zplan reads %d",
                       (long long)zp_json_get_int(json, "version", 0), VERSION);
    return NULL;
  }
  zp_calibration *c = ZP_NEW(arena, zp_calibration);
  c->machine = zp_strdup(arena, zp_json_get_string(json, "machine", ""));
  c->date = zp_strdup(arena, zp_json_get_string(json, "date", ""));
  for (int i = 0; i < zp_json_count(rows); i++) {
    zp_measurement row;
    if (!read_row(arena, zp_json_at(rows, i), i + 1, &row, error)) return NULL;
    zp_push(arena, &c->rows, row);
  }
  return c;
}

zp_json *zp_calibration_json(const zp_calibration *c) {
  zp_json *o = zp_json_object();
  zp_json_set_string(o, "format", format_name);
  zp_json_set_int(o, "version", VERSION);
  zp_json_set_string(o, "machine", c->machine);
  zp_json_set_string(o, "date", c->date);
  zp_json *rows = zp_json_set(o, "rows", zp_json_array());
  for (int i = 0; i < c->rows.len; i++) {
    zp_json *row = zp_json_append(rows, zp_json_object());
    zp_json_set_string(row, "name", c->rows.data[i].name);
    zp_json_set_real(row, "value", c->rows.data[i].value);
    zp_json_set_string(row, "unit", c->rows.data[i].unit);
    zp_json_set_string(row, "how", c->rows.data[i].how);
  }
  return o;
}

double zp_calibration_value(const zp_calibration *c, const char *name, double missing) {
  for (int i = 0; i < c->rows.len; i++)
    if (strcmp(c->rows.data[i].name, name) == 0) return c->rows.data[i].value;
  return missing;
}

/* ---- use ---- */

/* gemm_f32_t2_SUFFIX of the measured thread count nearest to `threads` from below, or the smallest. */
static double gemm_value(zp_arena *arena, const zp_calibration *c, const char *precision, int threads,
                         const char *suffix) {
  for (int t = threads; t >= 1; t--) {
    double value = zp_calibration_value(c, zp_format(arena, "gemm_%s_t%d_%s", precision, t, suffix), -1);
    if (value >= 0) return value;
  }
  return -1;
}

static int measured_threads(zp_arena *arena, const zp_calibration *c, const char *precision, int threads) {
  while (threads > 1 && zp_calibration_value(c, zp_format(arena, "gemm_%s_t%d_flop_per_s", precision, threads), -1) < 0)
    threads--;
  return threads;
}

/* Rates of a device are those of all its cores. */
static bool apply_products(zp_arena *arena, const zp_calibration *c, zp_spec *spec) {
  zp_device *d = &spec->cluster.node.device;
  int nodes = spec->cluster.nodes > 0 ? spec->cluster.nodes : 1, ranks = ((int)spec->cluster.ranks + nodes - 1) / nodes;
  int cores = d->cores > 0 ? d->cores : 1, threads = ranks > 0 && cores / ranks > 1 ? cores / ranks : 1;
  const char *precision = spec->train.precision == ZP_PREC_F64 ? "f64" : "f32";
  double rank_rate = gemm_value(arena, c, precision, threads, "flop_per_s");
  if (rank_rate <= 0) return false;
  double rate = rank_rate / measured_threads(arena, c, precision, threads) * cores;
  *(spec->train.precision == ZP_PREC_F64 ? &d->flop_per_s_fp64 : &d->flop_per_s_fp32) = rate;
  if (d->flop_per_s_half > 0) d->flop_per_s_half = d->flop_per_s_fp32; /* 16-bit operands are widened */
  d->eff_matmul = 1;
  static const char *const halves[3] = {"m_half", "n_half", "k_half"};
  for (int i = 0; i < 3; i++) d->gemm_half[i] = fmax(0, gemm_value(arena, c, precision, threads, halves[i]));
  double measured_cores = zp_calibration_value(c, "cores", cores);
  double attention = zp_calibration_value(c, "attention_flop_per_s", 0) / measured_cores * cores;
  if (attention > 0) d->eff_attention = attention * (spec->train.precision == ZP_PREC_F64 ? 0.5 : 1) / rate;
  return true;
}

/* Most bytes move in row kernels; the optimizer's stream gives the device its bandwidth, and what row kernels reach of
 * it, more or less because of caches, is the efficiency. */
static void apply_memory(const zp_calibration *c, zp_spec *spec) {
  zp_device *d = &spec->cluster.node.device;
  double update = zp_calibration_value(c, "update_bytes_per_s", 0), row = zp_calibration_value(c, "row_bytes_per_s", 0);
  if (update > 0) d->memory_bytes_per_s = update;
  if (update > 0 && row > 0) d->eff_memory = row / update;
  d->launch_s = zp_calibration_value(c, "task_s", d->launch_s);
}

static void apply_links(const zp_calibration *c, zp_spec *spec) {
  zp_link *link = &spec->cluster.node.link;
  double rate = zp_calibration_value(c, "all_reduce_bytes_per_s", 0);
  if (rate > 0) link->bytes_per_s = rate;
  link->latency_s = zp_calibration_value(c, "all_reduce_latency_s", link->latency_s);
}

bool zp_calibration_apply(zp_arena *arena, const zp_calibration *c, const char *name, zp_spec *spec,
                          const char **error) {
  if (spec->cluster.groups.len > 0) {
    *error = zp_format(arena, "cluster `%s` has several node types; a calibration is of one", spec->cluster.name);
    return false;
  }
  if (!spec->cluster.node.device.is_cpu) {
    if (!zp_calibration_apply_gpu(arena, c, spec, error)) return false;
    spec->cluster.calibration = zp_strdup(arena, name);
    return true;
  }
  if (!apply_products(arena, c, spec)) {
    *error = "it has no rates of matrix products in this precision";
    return false;
  }
  apply_memory(c, spec);
  apply_links(c, spec);
  spec->cluster.calibration = zp_strdup(arena, name);
  return true;
}
