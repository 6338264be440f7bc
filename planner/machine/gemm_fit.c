/* The curve of matrix products: rate(m, n, k) = peak * m / (m + a) * n / (n + b) * k / (k + c), fitted to measured
 * rates.
 *
 * For given halves the best peak in the sense of squared logarithms is a mean; the halves are found by coordinate
 * search with shrinking steps, from several starts, because the error is not convex in them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <zplan/calibration.h>

static double log_shape(const zp_gemm_sample *s, const double half[3]) {
  return log(s->m / (s->m + half[0])) + log(s->n / (s->n + half[1])) + log(s->k / (s->k + half[2]));
}

/* Mean squared error of the logarithms, with the best peak in *log_peak. */
static double error_of(const zp_gemm_sample *samples, int n, const double half[3], double *log_peak) {
  double sum = 0, squares = 0;
  for (int i = 0; i < n; i++) {
    double r = log(samples[i].flop_per_s) - log_shape(&samples[i], half);
    sum += r;
    squares += r * r;
  }
  *log_peak = sum / n;
  return fmax(0, squares / n - *log_peak * *log_peak);
}

static double search_from(const zp_gemm_sample *samples, int n, double start, double half[3]) {
  double log_peak;
  for (int i = 0; i < 3; i++) half[i] = start;
  double best = error_of(samples, n, half, &log_peak);
  for (double factor = 4; factor > 1.001;) {
    bool better = false;
    for (int i = 0; i < 3; i++)
      for (int up = 0; up <= 1; up++) {
        double old = half[i];
        half[i] = up ? old * factor : old / factor;
        double error = error_of(samples, n, half, &log_peak);
        if (error < best * (1 - 1e-9))
          best = error, better = true;
        else
          half[i] = old;
      }
    if (!better) factor = sqrt(factor);
  }
  return best;
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static double median_error(const zp_gemm_sample *samples, int n, const zp_gemm_fit *fit) {
  zp_arena *scratch = zp_arena_new("fit");
  double *errors = ZP_NEW_ARRAY(scratch, double, n);
  for (int i = 0; i < n; i++)
    errors[i] = fabs(fit->flop_per_s * exp(log_shape(&samples[i], fit->half)) / samples[i].flop_per_s - 1);
  qsort(errors, (size_t)n, sizeof *errors, by_size);
  double median = errors[n / 2];
  zp_arena_free(scratch);
  return median;
}

zp_gemm_fit zp_fit_gemm(const zp_gemm_sample *samples, int n) {
  static const double starts[] = {1, 8, 64};
  zp_gemm_fit fit = {0};
  double best = HUGE_VAL, log_peak = 0;
  for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
    double half[3], error = search_from(samples, n, starts[i], half);
    if (error >= best) continue;
    best = error;
    for (int d = 0; d < 3; d++) fit.half[d] = half[d];
  }
  error_of(samples, n, fit.half, &log_peak);
  fit.flop_per_s = exp(log_peak);
  fit.median_error = median_error(samples, n, &fit);
  return fit;
}

/* ---- rows ---- */

static void put(zp_arena *arena, zp_calibration *c, const char *prefix, const char *suffix, double value,
                const char *unit, const char *how) {
  zp_measurement row = {zp_format(arena, "%s_%s", prefix, suffix), value, unit, how};
  zp_push(arena, &c->rows, row);
}

static void fit_group(zp_arena *arena, zp_calibration *c, const char *prefix) {
  ZP_VEC(zp_gemm_sample) samples = {0};
  size_t len = strlen(prefix);
  for (int i = 0; i < c->rows.len; i++) {
    const zp_measurement *row = &c->rows.data[i];
    zp_gemm_sample s = {.flop_per_s = row->value};
    if (strncmp(row->name, prefix, len) != 0 || row->value <= 0) continue;
    if (sscanf(row->name + len, "_%lfx%lfx%lf", &s.m, &s.n, &s.k) == 3) zp_push(arena, &samples, s);
  }
  if (samples.len < 4) return; /* four unknowns */
  zp_gemm_fit fit = zp_fit_gemm(samples.data, samples.len);
  const char *how = zp_format(arena, "fitted to %d shapes, median error %.0f %%", samples.len, 100 * fit.median_error);
  put(arena, c, prefix, "flop_per_s", fit.flop_per_s, "FLOP/s", how);
  put(arena, c, prefix, "m_half", fit.half[0], "rows", how);
  put(arena, c, prefix, "n_half", fit.half[1], "columns", how);
  put(arena, c, prefix, "k_half", fit.half[2], "depth", how);
}

void zp_calibration_fit(zp_arena *arena, zp_calibration *c) {
  enum { MOST_THREADS = 64 };
  static const char *const precisions[] = {"f32", "f64"};
  for (int p = 0; p < 2; p++)
    for (int t = 1; t <= MOST_THREADS; t++) fit_group(arena, c, zp_format(arena, "gemm_%s_t%d", precisions[p], t));
}
