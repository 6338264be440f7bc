/* SPDX-License-Identifier: Apache-2.0 */
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

/* Classes of every row that there are, each label among them. */
static const int32_t some_classes[ROWS] = {1, 203, 100, 69, 50, 7, 150, 30, 135};

/* What is counted over the labels. */
typedef struct counted {
  double loss;
  int64_t right;
} counted;

/* The reference loss sum, of the labels, and the gradient [ROWS][WORDS] of (loss of the targets) * scale. lengths: the
 * classes of every row; NULL: WORDS. */
static inline counted reference(double *grad, zpk_targets targets, const int32_t *lengths, double scale) {
  counted all = {0, 0};
  for (int64_t r = 0; r < ROWS; r++) {
    double sum = 0, top = -INFINITY;
    int64_t classes = lengths ? lengths[r] : WORDS;
    for (int64_t c = 0; c < classes; c++) sum += exp(logit(r, c));
    for (int64_t c = 0; c < classes; c++) top = fmax(top, logit(r, c));
    bool counts = labels[r] >= 0 && labels[r] < WORDS;
    for (int64_t c = 0; c < WORDS; c++)
      grad[r * WORDS + c] = counts && c < classes
                                ? (exp(logit(r, c)) / sum * (1 + 2 * targets.z * log(sum)) -
                                   (targets.smoothing / WORDS + (c == labels[r] ? 1 - targets.smoothing : 0))) *
                                      scale
                                : 0;
    if (!counts) continue;
    all.loss += log(sum) - logit(r, labels[r]);
    all.right += logit(r, labels[r]) == top;
  }
  return all;
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
