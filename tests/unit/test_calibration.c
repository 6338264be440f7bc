/* Calibration: the fit finds the curve that made its samples, files survive a round trip, and clusters take the rates.
 */
#include <math.h>
#include <zplan/calibration.h>
#include "planner_models.h"

static zp_arena *arena;
static void setup(void) { arena = zp_arena_new("test"); }
static void teardown(void) { zp_arena_free(arena); }
TestSuite(calibration, .init = setup, .fini = teardown);

static double curve(double m, double n, double k) { return 80e9 * m / (m + 12) * n / (n + 5) * k / (k + 40); }

static void add_row(zp_calibration *c, const char *name, double value, const char *unit) {
  zp_measurement row = {name, value, unit, "test"};
  zp_push(arena, &c->rows, row);
}

/* Products of one rank with `threads` threads, `factor` times the curve. */
static void add_products(zp_calibration *c, const char *precision, int threads, double factor) {
  static const int sides[] = {16, 64, 256, 1024};
  for (int i = 0; i < 64; i++) {
    int m = sides[i / 16], n = sides[i / 4 % 4], k = sides[i % 4];
    add_row(c, zp_format(arena, "gemm_%s_t%d_%dx%dx%d", precision, threads, m, n, k), factor * curve(m, n, k),
            "FLOP/s");
  }
}

static zp_calibration sample_calibration(void) {
  zp_calibration c = {.machine = "test machine", .date = "2026-01-01"};
  add_row(&c, "cores", 4, "cores");
  add_products(&c, "f32", 1, 0.3);
  add_products(&c, "f32", 4, 1);
  add_row(&c, "update_bytes_per_s", 20e9, "B/s");
  add_row(&c, "row_bytes_per_s", 25e9, "B/s");
  add_row(&c, "attention_flop_per_s", 40e9, "FLOP/s");
  add_row(&c, "task_s", 2e-6, "s");
  add_row(&c, "all_reduce_bytes_per_s", 3e9, "B/s");
  add_row(&c, "all_reduce_latency_s", 4e-6, "s");
  zp_calibration_fit(arena, &c);
  return c;
}

static bool near(double a, double b, double tolerance) { return fabs(a / b - 1) < tolerance; }

Test(calibration, the_fit_finds_the_curve) {
  zp_calibration c = sample_calibration();
  cr_expect(near(zp_calibration_value(&c, "gemm_f32_t4_flop_per_s", 0), 80e9, 0.01));
  cr_expect(near(zp_calibration_value(&c, "gemm_f32_t4_m_half", 0), 12, 0.03));
  cr_expect(near(zp_calibration_value(&c, "gemm_f32_t4_n_half", 0), 5, 0.03));
  cr_expect(near(zp_calibration_value(&c, "gemm_f32_t4_k_half", 0), 40, 0.03));
  cr_expect(near(zp_calibration_value(&c, "gemm_f32_t1_flop_per_s", 0), 24e9, 0.01));
  cr_expect_eq(zp_calibration_value(&c, "gemm_f64_t1_flop_per_s", -1), -1);
}

Test(calibration, the_fit_survives_noise) {
  zp_gemm_sample samples[64];
  for (int i = 0; i < 64; i++) {
    samples[i] = (zp_gemm_sample){pow(4, 2 + i / 16), pow(4, 2 + i / 4 % 4), pow(4, 2 + i % 4), 0};
    samples[i].flop_per_s = curve(samples[i].m, samples[i].n, samples[i].k) * (1 + 0.1 * ((i * 37) % 11 - 5) / 5.0);
  }
  zp_gemm_fit fit = zp_fit_gemm(samples, 64);
  cr_expect(near(fit.flop_per_s, 80e9, 0.1), "%g", fit.flop_per_s);
  cr_expect(fit.median_error < 0.1 && fit.median_error > 0);
}

Test(calibration, one_sample_is_fitted_exactly) {
  zp_gemm_sample sample = {100, 100, 100, 1e9};
  zp_gemm_fit fit = zp_fit_gemm(&sample, 1);
  cr_expect(fit.median_error < 1e-9);
}

Test(calibration, files_survive_a_round_trip) {
  zp_calibration c = sample_calibration();
  zp_json *json = zp_calibration_json(&c);
  const char *error = NULL;
  zp_calibration *again = zp_calibration_read(arena, json, &error);
  zp_json_free(json);
  cr_assert_not_null(again, "%s", error);
  cr_expect_eq(again->rows.len, c.rows.len);
  cr_expect_str_eq(again->machine, "test machine");
  cr_expect_eq(zp_calibration_value(again, "update_bytes_per_s", 0), 20e9);
}

static const char *why_refused(const char *text) {
  const char *error = NULL;
  zp_json *json = zp_json_parse(arena, text, strlen(text), &error);
  cr_assert_not_null(json, "%s", error);
  cr_expect_null(zp_calibration_read(arena, json, &error));
  zp_json_free(json);
  return error ? error : "";
}

Test(calibration, foreign_files_are_refused) {
  cr_expect(strstr(why_refused("{}"), "no calibration"));
  cr_expect(strstr(why_refused("[]"), "no calibration"));
  cr_expect(strstr(why_refused("{\"format\": \"zplan-calibration\", \"version\": 1, \"rows\": 3}"), "list"));
  cr_expect(strstr(why_refused("{\"format\": \"zplan-calibration\", \"version\": 9, \"rows\": []}"), "version is 9"));
  cr_expect(strstr(why_refused("{\"format\": \"zplan-calibration\", \"version\": 1, \"rows\": [{\"name\": \"x\"}]}"),
                   "row 1"));
  cr_expect(strstr(
      why_refused("{\"format\": \"zplan-calibration\", \"version\": 1, \"rows\": [{\"name\": \"x\", \"value\": -1}]}"),
      "row 1"));
}

/* ---- use ---- */

static const model_size TINY = {STYLE_GPT, 250, 32, 64, 4, 4, 4, 256, true};

Test(calibration, a_cpu_cluster_takes_the_rates) {
  zp_calibration c = sample_calibration();
  zp_spec *spec = build_spec(arena, &TINY, cpu_cluster(), 8);
  const char *error = NULL;
  spec->cluster.ranks = 1;
  cr_assert(zp_calibration_apply(arena, &c, "m.json", spec, &error), "%s", error);
  const zp_device *d = &spec->cluster.node.device;
  cr_expect(near(d->flop_per_s_fp32, 80e9, 0.01), "one rank with four threads");
  cr_expect(near(d->gemm_half[2], 40, 0.03));
  cr_expect(near(d->memory_bytes_per_s * d->eff_memory, 25e9, 1e-9));
  cr_expect(near(d->flop_per_s_fp32 * d->eff_attention, 40e9, 1e-9));
  cr_expect_eq(spec->cluster.node.link.bytes_per_s, 3e9);
  cr_expect_str_eq(spec->cluster.calibration, "m.json");
}

Test(calibration, ranks_with_one_thread_have_the_rates_of_one_thread) {
  zp_calibration c = sample_calibration();
  zp_spec *spec = build_spec(arena, &TINY, cpu_cluster(), 8);
  const char *error = NULL;
  spec->cluster.ranks = 4;
  cr_assert(zp_calibration_apply(arena, &c, "m.json", spec, &error));
  cr_expect(near(spec->cluster.node.device.flop_per_s_fp32, 4 * 24e9, 0.01));
}

/* A shape that the machine is bad at takes longer than without the measurement's curve. */
Test(calibration, short_depth_costs_what_was_measured) {
  zp_calibration c = sample_calibration();
  zp_spec *spec = build_spec(arena, &TINY, cpu_cluster(), 8);
  const char *error = NULL;
  spec->cluster.ranks = 1;
  cr_assert(zp_calibration_apply(arena, &c, "m.json", spec, &error));
  double with = zp_search(arena, spec, 1, NULL)->best.estimate.step_s;
  memset(spec->cluster.node.device.gemm_half, 0, sizeof spec->cluster.node.device.gemm_half);
  cr_expect_gt(with, zp_search(arena, spec, 1, NULL)->best.estimate.step_s);
}

Test(calibration, gpu_clusters_and_missing_precisions_are_refused) {
  zp_calibration c = sample_calibration();
  const char *error = NULL;
  cr_expect(!zp_calibration_apply(arena, &c, "m.json", build_spec(arena, &TINY, gpu_cluster(1), 8), &error));
  cr_expect(strstr(error, "no GPU was measured"));
  zp_spec *spec = build_spec(arena, &TINY, cpu_cluster(), 8);
  spec->train.precision = ZP_PREC_F64;
  cr_expect(!zp_calibration_apply(arena, &c, "m.json", spec, &error));
  cr_expect(strstr(error, "precision"));
  cr_expect_null(spec->cluster.calibration);
}

/* ---- GPUs ---- */

/* Products that fill whole waves of 80 multiprocessors with the largest tiles (256 x 128, 10 x 8 of them a wave): their
 * time is the products plus the filling of the pipeline, whatever else the model knows. */
static zp_calibration gpu_calibration(double rate) {
  zp_calibration c = {.machine = "test machine", .date = "2026-01-01"};
  add_row(&c, "gpu_cores", 80, "multiprocessors");
  add_row(&c, "gpu_memory_bytes", 34.1e9, "B");
  add_row(&c, "gpu_copy_bytes_per_s", 700e9, "B/s");
  add_row(&c, "pcie_to_device_bytes_per_s", 12e9, "B/s");
  add_row(&c, "pcie_to_host_bytes_per_s", 11e9, "B/s");
  add_row(&c, "gpu_launch_s", 3e-6, "s");
  for (int k = 1024; k <= 16384; k *= 4)
    add_row(&c, zp_format(arena, "gpu_gemm_half_2560x1024x%d", k), rate * k / (k + 96), "FLOP/s");
  zp_calibration_fit_gpu(arena, &c);
  return c;
}

static zp_spec *gpu_spec(void) {
  zp_spec *spec = build_spec(arena, &TINY, gpu_cluster(1), 8);
  spec->train.precision = ZP_PREC_MIXED_FP16;
  spec->cluster.node.device.cores = 80;
  return spec;
}

Test(calibration, the_rate_of_the_best_tiles_is_found) {
  zp_calibration c = gpu_calibration(90e12);
  cr_expect(near(zp_calibration_value(&c, "gpu_half_flop_per_s", 0), 90e12, 1e-9));
  cr_expect_eq(zp_calibration_value(&c, "gpu_f32_flop_per_s", 0), 0);
}

Test(calibration, a_gpu_cluster_takes_the_rates) {
  zp_calibration c = gpu_calibration(90e12);
  zp_spec *spec = gpu_spec();
  const char *error = NULL;
  cr_assert(zp_calibration_apply(arena, &c, "m.json", spec, &error), "%s", error);
  const zp_node_type *node = &spec->cluster.node;
  cr_expect(near(node->device.eff_matmul * 125e12, 90e12, 1e-9));
  cr_expect(near(node->device.eff_memory * 900e9, 700e9, 1e-9));
  cr_expect_eq(node->device.memory_bytes, INT64_C(34100000000));
  cr_expect_eq(node->device.launch_s, 3e-6);
  cr_expect_eq(node->pcie_bytes_per_s, 11e9, "the slower way");
  cr_expect_str_eq(spec->cluster.calibration, "m.json");
}

Test(calibration, another_gpu_is_refused) {
  zp_calibration c = gpu_calibration(90e12);
  zp_spec *spec = gpu_spec();
  const char *error = NULL;
  spec->cluster.node.device.cores = 108;
  cr_expect(!zp_calibration_apply(arena, &c, "m.json", spec, &error));
  cr_expect(strstr(error, "another GPU"), "%s", error);
  spec = gpu_spec();
  spec->train.precision = ZP_PREC_F32;
  cr_expect(!zp_calibration_apply(arena, &c, "m.json", spec, &error));
  cr_expect(strstr(error, "precision"), "%s", error);
  cr_expect_null(spec->cluster.calibration);
}
