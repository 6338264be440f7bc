/* Measurements of one machine, its cores and its first GPU (`zplan calibrate`), and what the cost model takes from them.
 *
 * A file is JSON: {"format": "zplan-calibration", "version": 1, "machine": TEXT, "date": TEXT,
 * "rows": [{"name", "value", "unit", "how"}]}. Rows that nobody knows are kept and ignored. */
#ifndef ZPLAN_CALIBRATION_H
#define ZPLAN_CALIBRATION_H

#include <zplan/json.h>
#include <zplan/spec.h>

typedef struct zp_measurement {
  const char *name;
  double value;
  const char *unit, *how;
} zp_measurement;
typedef struct zp_calibration {
  const char *machine, *date;
  ZP_VEC(zp_measurement) rows;
} zp_calibration;

/* Values that the cost model uses; *_flop_per_s and the halves exist per precision (f32, f64) and per number of threads
 * of a rank: gemm_f32_t2_flop_per_s is the asymptotic rate of one rank with two threads while all cores are busy. */
zp_calibration *zp_calibration_read(zp_arena *arena, const zp_json *json, const char **error);
zp_json *zp_calibration_json(const zp_calibration *calibration);
/* The value of that row; `missing` when there is none. */
double zp_calibration_value(const zp_calibration *calibration, const char *name, double missing);

/* ---- rates of matrix products ---- */
typedef struct zp_gemm_sample {
  double m, n, k, flop_per_s;
} zp_gemm_sample;
typedef struct zp_gemm_fit { /* flop_per_s * m / (m + half[0]) * n / (n + half[1]) * k / (k + half[2]) */
  double flop_per_s, half[3];
  double median_error; /* of the samples, relative */
} zp_gemm_fit;
/* Least squares of the logarithms, by coordinate search. Requires a sample. */
zp_gemm_fit zp_fit_gemm(const zp_gemm_sample *samples, int n);
/* Appends the fits of all groups of gemm_PRECISION_tN_MxNxK rows. */
void zp_calibration_fit(zp_arena *arena, zp_calibration *calibration);

/* The same for a GPU's products (gpu_gemm_PRECISION_MxNxK rows; half, f32): rate of the model's best tile. gpu_calibration.c */
void zp_calibration_fit_gpu(zp_arena *arena, zp_calibration *calibration);

/* Replaces the rates of a cluster by the measured ones, for the spec's precision and number of ranks; a CPU cluster
 * with another number of cores gets its share by core. `name` goes into the reports. false with *error (arena) for a
 * cluster of GPUs that were not measured, or a file without products of that precision. */
bool zp_calibration_apply(zp_arena *arena, const zp_calibration *calibration, const char *name, zp_spec *spec,
                          const char **error);
/* The part of it for a cluster of GPUs; links between them stay the library's. */
bool zp_calibration_apply_gpu(zp_arena *arena, const zp_calibration *calibration, zp_spec *spec, const char **error);

#endif
