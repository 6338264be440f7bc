/* Logits with their naive f64 loss and gradient, for the tests of the CPU and of the device kernels. */
#ifndef CROSS_ENTROPY_TESTING_H
#define CROSS_ENTROPY_TESTING_H

#include <math.h>
#include <zplan/zpk.h>

enum { ROWS = 9, WORDS = 203 };

static inline float logit(int64_t r, int64_t c) {
  return (float)(8 * sin((double)(r * 131 + c * 17)) + (c == 5 * r ? 6 : 0));
}

static const int32_t labels[ROWS] = {0, 202, 67, 68, -1, 203, 101, 5, 134};

/* The labels themselves, and what the gradient may be of instead. */
static const zpk_targets all_targets[] = {{0, 0}, {0.1, 0}, {0, 0.01}, {0.3, 1e-4}};
enum { N_TARGETS = sizeof all_targets / sizeof *all_targets };

/* The reference loss sum, of the labels, and the gradient [ROWS][WORDS] of (loss of the targets) * scale. */
static inline double reference(double *grad, zpk_targets targets, double scale) {
  double loss = 0;
  for (int64_t r = 0; r < ROWS; r++) {
    double sum = 0;
    for (int64_t c = 0; c < WORDS; c++) sum += exp(logit(r, c));
    bool counts = labels[r] >= 0 && labels[r] < WORDS;
    for (int64_t c = 0; c < WORDS; c++)
      grad[r * WORDS + c] = counts ? (exp(logit(r, c)) / sum * (1 + 2 * targets.z * log(sum)) -
                                      (targets.smoothing / WORDS + (c == labels[r] ? 1 - targets.smoothing : 0))) *
                                         scale
                                   : 0;
    if (counts) loss += log(sum) - logit(r, labels[r]);
  }
  return loss;
}

static inline double get(zpk_dtype dtype, const void *x, int64_t i) {
  return dtype == ZPK_F64 ? ((const double *)x)[i] : (double)((const float *)x)[i];
}

/* Padding columns hold huge values that must not count. */
static inline void fill(zpk_dtype dtype, void *x, int64_t first, int64_t V) {
  for (int64_t r = 0; r < ROWS; r++)
    for (int64_t c = 0; c < V; c++) {
      float value = first + c < WORDS ? logit(r, first + c) : 1e30f;
      if (dtype == ZPK_F64)
        ((double *)x)[r * V + c] = value;
      else
        ((float *)x)[r * V + c] = value;
    }
}

#endif
