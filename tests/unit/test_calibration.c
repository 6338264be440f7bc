/* SPDX-License-Identifier: Apache-2.0 */
/* Calibration: files survive a round trip, tables of rates give back what was measured and lie between it elsewhere,
 * clusters take the rates, and what does not fit is refused. */
#include <math.h>
#include <zplan/calibration.h>
#include <zplan/cpu_kernels.h>
#include <zplan/cost.h>
#include "planner_models.h"

static zp_arena *arena;
static void setup(void) { arena = zp_arena_new("test"); }
static void teardown(void) { zp_arena_free(arena); }
TestSuite(calibration, .init = setup, .fini = teardown);

static void add_row(zp_calibration *c, const char *name, double value, const char *unit) {
  zp_measurement row = {name, value, unit, "test"};
  zp_push(arena, &c->rows, row);
}

/* What a made-up core reaches: a power of every size, which a table between measured sizes must hit exactly. */
static double power_rate(double m, double n, double k) { return 1e9 * pow(m, 0.3) * pow(n, 0.2) * pow(k, 0.1); }

/* Products of one rank with `threads` threads; the kinds differ by a factor of two. */
static void add_products(zp_calibration *c, const char *precision, int threads, double factor) {
  static const int sides[] = {16, 64, 256, 1024};
  static const char *const kinds[] = {"nt", "nn", "tn"};
  for (int kind = 0; kind < 3; kind++, factor *= 2)
    for (int i = 0; i < 64; i++) {
      int m = sides[i / 16], n = sides[i / 4 % 4], k = sides[i % 4];
      add_row(c, zp_format(arena, "gemm_%s_t%d_%s_%dx%dx%d", precision, threads, kinds[kind], m, n, k),
              factor * power_rate(m, n, k), "FLOP/s");
    }
}

static zp_calibration sample_calibration(void) {
  zp_calibration c = {.machine = "test machine", .date = "2026-01-01"};
  add_row(&c, "cores", 4, "cores");
  add_products(&c, "f32", 1, 0.3);
  add_products(&c, "f32", 4, 1);
  for (int s = 64; s <= 1024; s *= 4)
    for (int h = 32; h <= 128; h *= 2) {
      add_row(&c, zp_format(arena, "attention_forward_%dx%d", s, h), 1e6 * s * h, "FLOP/s");
      add_row(&c, zp_format(arena, "attention_backward_%dx%d", s, h), 2e6 * s * h, "FLOP/s");
      add_row(&c, zp_format(arena, "sparse_attention_forward_%dx%d", s / 4, h), 3e6 * s * h, "FLOP/s");
      add_row(&c, zp_format(arena, "sparse_attention_backward_%dx%d", s / 4, h), 4e6 * s * h, "FLOP/s");
    }
  add_row(&c, "row_bytes_per_s_100000", 40e9, "B/s");
  add_row(&c, "row_bytes_per_s_10000000", 10e9, "B/s");
  add_row(&c, "row_flop_per_s", 30e9, "FLOP/s");
  add_row(&c, "row_grad_flop_per_s", 60e9, "FLOP/s");
  add_row(&c, "update_bytes_per_s", 20e9, "B/s");
  add_row(&c, "norm_bytes_per_s", 5e9, "B/s");
  add_row(&c, "task_s", 2e-6, "s");
  add_row(&c, "all_reduce_bytes_per_s", 3e9, "B/s");
  add_row(&c, "all_reduce_latency_s", 4e-6, "s");
  return c;
}

static bool near(double a, double b, double tolerance) { return fabs(a / b - 1) < tolerance; }

/* ---- tables ---- */

static zp_rate_table table_of(const zp_rate_sample *samples, int n, int axes, bool whole) {
  zp_rate_table table;
  const char *error = NULL;
  cr_assert(zp_rate_table_make(arena, samples, n, axes, whole, &table, &error), "%s", error);
  return table;
}

static double at(const zp_rate_table *table, double a, double b) { return zp_rate_at(table, (double[]){a, b}); }

/* Samples in any order. */
static const zp_rate_sample grid[] = {{{100, 8}, 4}, {{10, 8}, 1},    {{10, 2}, 2},
                                      {{100, 2}, 8}, {{1000, 2}, 16}, {{1000, 8}, 2}};

Test(calibration, tables_give_back_what_was_measured) {
  zp_rate_table t = table_of(grid, 6, 2, true);
  for (int i = 0; i < 6; i++) cr_expect(near(at(&t, grid[i].size[0], grid[i].size[1]), grid[i].share, 1e-12));
}

Test(calibration, between_measured_sizes_logarithms_are_linear) {
  zp_rate_table t = table_of(grid, 6, 2, true);
  cr_expect(near(at(&t, sqrt(10 * 100), 2), 4, 1e-12));                     /* the geometric mean of 2 and 8 */
  cr_expect(near(at(&t, 100, 4), sqrt(8 * 4), 1e-12));                      /* halfway between 2 and 8 */
  cr_expect(near(at(&t, sqrt(1e5), 4), sqrt(sqrt(8 * 16 * 4 * 2)), 1e-12)); /* the middle of four corners */
}

Test(calibration, between_rising_rates_they_rise) {
  zp_rate_table t = table_of(grid, 6, 2, true);
  for (double x = 5, last = 0; x < 1500; x *= 1.07) {
    double rate = at(&t, x, 2);
    cr_expect_geq(rate, last);
    last = rate;
  }
}

Test(calibration, outside_the_measured_sizes) {
  zp_rate_table whole = table_of(grid, 6, 2, true), flat = table_of(grid, 6, 2, false);
  cr_expect(near(at(&whole, 1e6, 2), 16, 1e-12), "above: the rate stays");
  cr_expect(near(at(&whole, 5, 2), 1, 1e-12), "below: half the work in the same time");
  cr_expect(near(at(&whole, 5, 1), 0.5, 1e-12));
  cr_expect(near(at(&flat, 5, 1), 2, 1e-12));
}

Test(calibration, holes_and_zeros_are_no_tables) {
  zp_rate_table table;
  const char *error = "";
  cr_expect_not(zp_rate_table_make(arena, grid, 5, 2, true, &table, &error));
  cr_expect(strstr(error, "1 of the 6 sizes"), "%s", error);
  cr_expect_not(zp_rate_table_make(arena, grid, 0, 2, true, &table, &error));
  cr_expect(strstr(error, "there is none"), "%s", error);
  const zp_rate_sample zero = {{1}, 0};
  cr_expect_not(zp_rate_table_make(arena, &zero, 1, 1, true, &table, &error));
  cr_expect(strstr(error, "positive"), "%s", error);
  zp_rate_sample many[ZP_RATE_SIDES + 1];
  for (int i = 0; i <= ZP_RATE_SIDES; i++) many[i] = (zp_rate_sample){{i + 1}, 1};
  cr_expect_not(zp_rate_table_make(arena, many, ZP_RATE_SIDES + 1, 1, true, &table, &error));
  cr_expect(zp_rate_table_make(arena, many, ZP_RATE_SIDES, 1, true, &table, &error));
}

/* ---- files ---- */

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

/* What plan files carry names the calibration, and gives its rates back. */
Test(calibration, plans_carry_them) {
  zp_calibration c = sample_calibration();
  c.rows.data[1].value *= 1.0000123456789; /* more digits than a program prints */
  zp_json *json = zp_calibration_in_plan(arena, &c);
  const char *error = NULL, *hash = zp_calibration_hash(arena, &c);
  cr_expect_str_eq(zp_json_get_string(json, "hash", ""), hash);
  const char *text = zp_json_text(arena, json, true);
  zp_json_free(json);
  json = zp_json_parse(arena, text, strlen(text), &error);
  zp_calibration *again = zp_calibration_from_plan(arena, json, &error);
  zp_json_free(json);
  cr_assert_not_null(again, "%s", error);
  cr_expect_eq(again->rows.len, c.rows.len);
  cr_expect_str_eq(zp_calibration_hash(arena, again), hash);
  cr_expect(near(zp_calibration_value(again, c.rows.data[1].name, 0), c.rows.data[1].value, 1e-11));
}

Test(calibration, every_change_has_another_hash) {
  zp_calibration c = sample_calibration();
  const char *hash = zp_calibration_hash(arena, &c);
  c.rows.data[3].value *= 1.001;
  cr_expect_str_neq(zp_calibration_hash(arena, &c), hash);
  c = sample_calibration();
  c.rows.data[3].name = "another";
  cr_expect_str_neq(zp_calibration_hash(arena, &c), hash);
  c = sample_calibration();
  c.machine = "another machine";
  cr_expect_str_neq(zp_calibration_hash(arena, &c), hash);
  c = sample_calibration();
  c.date = "2026-01-02";
  cr_expect_str_neq(zp_calibration_hash(arena, &c), hash);
}

typedef zp_calibration *reader(zp_arena *arena, const zp_json *json, const char **error);

static const char *why_refused_by(reader *read, const char *text) {
  const char *error = NULL;
  zp_json *json = zp_json_parse(arena, text, strlen(text), &error);
  cr_assert_not_null(json, "%s", error);
  cr_expect_null(read(arena, json, &error));
  zp_json_free(json);
  return error ? error : "";
}

static const char *why_refused_in_plan(const char *text) { return why_refused_by(zp_calibration_from_plan, text); }
static const char *why_refused(const char *text) { return why_refused_by(zp_calibration_read, text); }

Test(calibration, damaged_ones_in_plans_are_refused) {
  cr_expect(strstr(why_refused_in_plan("{}"), "`rows`"));
  cr_expect(strstr(why_refused_in_plan("[]"), "`rows`"));
  cr_expect(strstr(why_refused_in_plan("{\"rows\": {\"x\": \"y\"}}"), "row x"));
  cr_expect(strstr(why_refused_in_plan("{\"rows\": {\"x\": -1}}"), "at least 0"));
}

Test(calibration, foreign_files_are_refused) {
  cr_expect(strstr(why_refused("{}"), "no calibration"));
  cr_expect(strstr(why_refused("[]"), "no calibration"));
  cr_expect(strstr(why_refused("{\"format\": \"zplan-calibration\", \"version\": 2, \"rows\": 3}"), "list"));
  cr_expect(strstr(why_refused("{\"format\": \"zplan-calibration\", \"version\": 1, \"rows\": []}"),
                   "version is 1, this zplan reads 2: `zplan calibrate` measures again"));
  cr_expect(strstr(why_refused("{\"format\": \"zplan-calibration\", \"version\": 9, \"rows\": []}"), "version is 9"));
  cr_expect(strstr(why_refused("{\"format\": \"zplan-calibration\", \"version\": 2, \"rows\": [{\"name\": \"x\", "
                               "\"value\": 1}, {\"name\": \"x\", \"value\": 1}]}"),
                   "again"));
  cr_expect(strstr(why_refused("{\"format\": \"zplan-calibration\", \"version\": 2, \"rows\": [{\"name\": \"x\"}]}"),
                   "row 1"));
  cr_expect(strstr(
      why_refused("{\"format\": \"zplan-calibration\", \"version\": 2, \"rows\": [{\"name\": \"x\", \"value\": -1}]}"),
      "row 1"));
}

/* ---- use ---- */

static const model_size TINY = {STYLE_GPT, 250, 32, 64, 4, 4, 4, 256, true};

/* A cluster of four cores with so many ranks, calibrated; its machine. */
static zp_machine calibrated(zp_calibration *c, int ranks, zp_spec **spec) {
  const char *error = NULL;
  *spec = build_spec(arena, &TINY, cpu_cluster(), 8);
  (*spec)->cluster.ranks = ranks;
  cr_assert(zp_calibration_apply(arena, c, *spec, &error), "%s", error);
  return zp_machine_make(&(*spec)->cluster, ZP_PREC_F32, ranks);
}

static double product_s(const zp_machine *m, zp_product_kind kind, double rows, double cols, double depth) {
  return zp_cost_product(m, kind, 1, rows, cols, depth, 4);
}

Test(calibration, a_cpu_cluster_takes_the_rates) {
  zp_calibration c = sample_calibration();
  zp_spec *spec;
  zp_machine m = calibrated(&c, 1, &spec);
  const zp_device *d = &spec->cluster.node.device;
  cr_expect(near(d->flop_per_s_fp32, 4 * power_rate(1024, 1024, 1024), 1e-9), "nothing is faster than the fastest");
  cr_expect(near(d->memory_bytes_per_s, 20e9, 1e-9));
  cr_expect_eq(spec->cluster.node.link.bytes_per_s, 3e9);
  cr_expect_eq(spec->cluster.calibration, &c);
  double flop = 2.0 * 100 * 200 * 300;
  cr_expect(near(product_s(&m, ZP_PRODUCT_NT, 100, 200, 300), 2e-6 + flop / power_rate(100, 200, 300), 1e-9));
  cr_expect(near(product_s(&m, ZP_PRODUCT_NN, 100, 200, 300), 2e-6 + flop / 2 / power_rate(100, 200, 300), 1e-9));
  cr_expect(near(product_s(&m, ZP_PRODUCT_TN, 100, 200, 300), 2e-6 + flop / 4 / power_rate(100, 200, 300), 1e-9));
}

Test(calibration, ranks_with_one_thread_have_the_rates_of_one_thread) {
  zp_calibration c = sample_calibration();
  zp_spec *spec;
  zp_machine m = calibrated(&c, 4, &spec);
  double flop = 2.0 * 100 * 200 * 300;
  cr_expect(near(product_s(&m, ZP_PRODUCT_NT, 100, 200, 300), 2e-6 + flop / 0.3 / power_rate(100, 200, 300), 1e-9));
}

Test(calibration, ranks_with_one_thread_start_none) {
  zp_calibration c = sample_calibration();
  add_row(&c, "task_t1_s", 5e-9, "s");
  zp_spec *spec;
  zp_machine four = calibrated(&c, 4, &spec), one = calibrated(&c, 1, &spec);
  cr_expect_eq(four.node->device.launch_s, 5e-9);
  cr_expect_eq(one.node->device.launch_s, 2e-6);
}

Test(calibration, attention_costs_what_was_measured_for_its_shape) {
  zp_calibration c = sample_calibration();
  zp_spec *spec;
  zp_machine all = calibrated(&c, 1, &spec), quarter = calibrated(&c, 4, &spec);
  cr_expect(near(zp_cost_attention(&all, 1e9, 0, 256, 64, false), 2e-6 + 1e9 / (1e6 * 256 * 64), 1e-9));
  cr_expect(near(zp_cost_attention(&all, 1e9, 0, 256, 64, true), 2e-6 + 1e9 / (2e6 * 256 * 64), 1e-9));
  cr_expect(near(zp_cost_attention(&quarter, 1e9, 0, 64, 32, true), 2e-6 + 4e9 / (2e6 * 64 * 32), 1e-9));
  cr_expect(near(zp_cost_attention(&all, 1e9, 0, 16, 32, false), 2e-6 + 4e9 / (1e6 * 64 * 32), 1e-9));
  cr_expect_eq(zp_cost_dropped_flop(1e9, 0, 64, true), 1e9);
  cr_expect(near(zp_cost_dropped_flop(4 * 64 * 1e6, 0.1, 64, false), (4 * 64 + 240) * 1e6, 1e-12));
  cr_expect(near(zp_cost_dropped_flop(10 * 64 * 1e6, 0.1, 64, true), (10 * 64 + 240) * 1e6, 1e-12));
  cr_expect(near(zp_cost_sparse_attention(&all, 1e9, 0, 64, 64, false), 2e-6 + 1e9 / (3e6 * 256 * 64), 1e-9));
  cr_expect(near(zp_cost_sparse_attention(&quarter, 1e9, 0, 16, 32, true), 2e-6 + 4e9 / (4e6 * 64 * 32), 1e-9));
}

Test(calibration, row_kernels_cost_their_bytes_or_their_arithmetic) {
  zp_calibration c = sample_calibration();
  zp_spec *spec;
  zp_machine all = calibrated(&c, 1, &spec), half = calibrated(&c, 2, &spec);
  cr_expect(near(zp_cost_row_kernel(&all, 1e5, 0, false), 2e-6 + 1e5 / 40e9, 1e-9));
  cr_expect(near(zp_cost_row_kernel(&all, 1e6, 0, false), 2e-6 + 1e6 / 20e9, 1e-9), "between two sizes");
  cr_expect(near(zp_cost_row_kernel(&all, 1e8, 0, false), 2e-6 + 1e8 / 10e9, 1e-9));
  cr_expect(near(zp_cost_row_kernel(&half, 5e6, 0, false), 2e-6 + 1e7 / 10e9, 1e-9), "both ranks move as much");
  cr_expect(near(zp_cost_row_kernel(&all, 1e5, 1e9, false), 2e-6 + 1e9 / 30e9, 1e-9));
  cr_expect(near(zp_cost_row_kernel(&all, 1e5, 1e9, true), 2e-6 + 1e9 / 60e9, 1e-9));
}

Test(calibration, norm_and_update_have_rates_of_their_own) {
  zp_calibration c = sample_calibration();
  zp_spec *spec;
  zp_machine all = calibrated(&c, 1, &spec);
  cr_expect(near(zp_cost_update(&all, 4e9, 28e9), 4e-6 + 4.0 / 5 + 28.0 / 20, 1e-9));
}

/* The whole of a plan follows: twice slower products, a slower step. */
/* What pairs of ranks take: a latency and a rate, slower where four ranks of the machine do so. */
static void add_pairs(zp_calibration *c, int ranks, double latency_s, double bytes_per_s) {
  static const int bytes[] = {32, 2048, 32768, 524288, 8388608};
  for (int i = 0; i < 5; i++) {
    add_row(c, zp_format(arena, "reduce_round_s_%dx%d", ranks, bytes[i]), latency_s + bytes[i] / bytes_per_s, "s");
    add_row(c, zp_format(arena, "message_s_%dx%d", ranks, bytes[i]), latency_s / 2 + bytes[i] / (2 * bytes_per_s), "s");
  }
}

Test(calibration, links_have_the_latency_and_the_rate_of_their_times) {
  zp_calibration c = sample_calibration();
  add_pairs(&c, 2, 1e-6, 4e9);
  add_pairs(&c, 8, 16e-6, 1e9);
  zp_spec *spec;
  zp_machine two = calibrated(&c, 2, &spec);
  zp_group_link pair = zp_machine_tensor_group(&two, 2, 1, 1),
                sums = zp_machine_data_group(&two, 1, 1, 2, ZP_ORDER_TDP);
  cr_expect(near(pair.bytes_per_s, 4e9, 1e-6) && near(pair.local_latency_s, 1e-6, 1e-6));
  cr_expect(near(sums.bytes_per_s, 4e9, 1e-6));
  zp_group_link message = zp_machine_pipeline_link(&two, 1, 2, 1, ZP_ORDER_TDP);
  cr_expect(near(message.bytes_per_s, 8e9, 1e-6) && near(message.latency_s, 0.5e-6, 1e-6));
  /* Four ranks: half-way between 2 and 8 by logarithms; sixteen: twice as long as eight on the four cores. */
  zp_machine four = calibrated(&c, 4, &spec), many = calibrated(&c, 16, &spec);
  pair = zp_machine_tensor_group(&four, 4, 1, 1);
  cr_expect(near(pair.bytes_per_s, 2e9, 1e-6) && near(pair.local_latency_s, 4e-6, 1e-6));
  pair = zp_machine_tensor_group(&many, 16, 1, 1);
  cr_expect(near(pair.bytes_per_s, 0.5e9, 1e-6) && near(pair.local_latency_s, 32e-6, 1e-6));
}

Test(calibration, slow_memory_counts_for_large_sums_alone) {
  zp_calibration c = sample_calibration();
  add_pairs(&c, 2, 1e-6, 4e9);
  for (int i = 0; i < c.rows.len; i++)
    if (strcmp(c.rows.data[i].name, "reduce_round_s_2x8388608") == 0) c.rows.data[i].value *= 4;
  zp_spec *spec;
  zp_machine m = calibrated(&c, 2, &spec);
  zp_group_link tensor = zp_machine_tensor_group(&m, 2, 1, 1), data = zp_machine_data_group(&m, 1, 1, 2, ZP_ORDER_TDP);
  cr_expect(near(tensor.bytes_per_s, 4e9, 1e-6));
  cr_expect(near(data.bytes_per_s, 1e9, 1e-3), "%g", data.bytes_per_s);
}

Test(calibration, times_of_one_size_are_no_link) {
  zp_calibration c = sample_calibration();
  add_row(&c, "reduce_round_s_2x32", 1e-6, "s");
  add_row(&c, "message_s_2x64", 1e-6, "s");
  zp_spec *spec;
  zp_machine m = calibrated(&c, 2, &spec);
  cr_expect_eq(zp_machine_tensor_group(&m, 2, 1, 1).bytes_per_s, 3e9); /* the row of older files */
}

Test(calibration, slower_products_make_a_slower_step) {
  zp_calibration c = sample_calibration(), slow = sample_calibration();
  for (int i = 0; i < slow.rows.len; i++)
    if (strncmp(slow.rows.data[i].name, "gemm_f32_t4_tn", 14) == 0) slow.rows.data[i].value /= 2;
  zp_spec *spec;
  calibrated(&c, 1, &spec);
  double step_s = zp_search(arena, spec, 1, NULL)->best.estimate.step_s;
  calibrated(&slow, 1, &spec);
  cr_expect_gt(zp_search(arena, spec, 1, NULL)->best.estimate.step_s, step_s);
}

Test(calibration, missing_rows_are_named) {
  static const char *const needed[] = {"row_grad_flop_per_s", "norm_bytes_per_s", "attention_backward_64x32",
                                       "gemm_f32_t4_tn_64x64x64"};
  for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
    zp_calibration c = sample_calibration();
    zp_spec *spec = build_spec(arena, &TINY, cpu_cluster(), 8);
    const char *error = "";
    spec->cluster.ranks = 1;
    for (int r = 0; r < c.rows.len; r++)
      if (strcmp(c.rows.data[r].name, needed[i]) == 0) c.rows.data[r].name = "something_else";
    cr_expect_not(zp_calibration_apply(arena, &c, spec, &error));
    cr_expect(strncmp(error, "its row", 7) == 0, "%s: %s", needed[i], error);
    cr_expect_null(spec->cluster.calibration);
    cr_expect_null(spec->cluster.node.device.measured);
    cr_expect_eq(spec->cluster.node.device.flop_per_s_fp32, 100e9, "nothing is changed by half");
  }
}

/* Where a processor multiplies bf16 itself, its products were measured apart; elsewhere operands are widened to f32. */
Test(calibration, bf16_has_the_rates_of_its_products) {
  double flop = 2.0 * 128 * 256 * 384;
  for (int measured = 0; measured < 2; measured++) {
    zp_calibration c = sample_calibration();
    double factor = measured ? 2 : 1;
    const char *error = NULL;
    if (measured) add_products(&c, "bf16", 4, factor);
    zp_spec *spec = build_spec(arena, &TINY, cpu_cluster(), 8);
    spec->train.precision = ZP_PREC_MIXED_BF16;
    spec->cluster.node.device.flop_per_s_half = 1e9;
    spec->cluster.ranks = 1;
    cr_assert(zp_calibration_apply(arena, &c, spec, &error), "%s", error);
    double want = factor * 4 * power_rate(1024, 1024, 1024), got = spec->cluster.node.device.flop_per_s_half;
    cr_expect(near(got, want, 1e-9), "%g, not %g", got, want);
    zp_machine m = zp_machine_make(&spec->cluster, ZP_PREC_MIXED_BF16, 1);
    double seconds = zp_cost_product(&m, ZP_PRODUCT_NT, 1, 128, 256, 384, 2);
    cr_expect(near(seconds, 2e-6 + flop / factor / power_rate(128, 256, 384), 1e-9), "%g", seconds);
  }
}

Test(calibration, gpu_clusters_and_missing_precisions_are_refused) {
  zp_calibration c = sample_calibration();
  const char *error = NULL;
  cr_expect(!zp_calibration_apply(arena, &c, build_spec(arena, &TINY, gpu_cluster(1), 8), &error));
  cr_expect(strstr(error, "no GPU was measured"));
  zp_spec *spec = build_spec(arena, &TINY, cpu_cluster(), 8);
  spec->train.precision = ZP_PREC_F64;
  cr_expect(!zp_calibration_apply(arena, &c, spec, &error));
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
  cr_assert(zp_calibration_apply(arena, &c, spec, &error), "%s", error);
  const zp_node_type *node = &spec->cluster.node;
  cr_expect(near(node->device.eff_matmul * 125e12, 90e12, 1e-9));
  cr_expect(near(node->device.eff_memory * 900e9, 700e9, 1e-9));
  cr_expect_eq(node->device.memory_bytes, INT64_C(34100000000));
  cr_expect_eq(node->device.launch_s, 3e-6);
  cr_expect_eq(node->pcie_bytes_per_s, 11e9, "the slower way");
  cr_expect_eq(spec->cluster.calibration, &c);
}

Test(calibration, another_gpu_is_refused) {
  zp_calibration c = gpu_calibration(90e12);
  zp_spec *spec = gpu_spec();
  const char *error = NULL;
  spec->cluster.node.device.cores = 108;
  cr_expect(!zp_calibration_apply(arena, &c, spec, &error));
  cr_expect(strstr(error, "another GPU"), "%s", error);
  spec = gpu_spec();
  spec->train.precision = ZP_PREC_F32;
  cr_expect(!zp_calibration_apply(arena, &c, spec, &error));
  cr_expect(strstr(error, "precision"), "%s", error);
  cr_expect_null(spec->cluster.calibration);
}
