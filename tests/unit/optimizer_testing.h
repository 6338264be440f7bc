/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizer steps by the formulas of torch.optim, and Lion and Adan by those of their papers, for the tests of the CPU
 * and of the device kernels. */
#ifndef OPTIMIZER_TESTING_H
#define OPTIMIZER_TESTING_H

#include <math.h>
#include <zplan/zpk.h>

static inline double start(int i) { return 0.3 * sin(i * 1.7) + 0.1; }
static inline double gradient(int i, int step) { return cos(i * 0.9 + step * 2.3) * (i % 5 == 0 ? 1e-3 : 1); }

static inline zpk_update settings(zpk_dtype dtype, int kind, bool decay, int step) {
  return (zpk_update){.dtype = dtype,
                      .kind = kind,
                      .lr = 0.01 / step,
                      .beta1 = 0.9,
                      .beta2 = 0.95,
                      .eps = 1e-8,
                      .weight_decay = decay ? 0.1 : 0,
                      .beta3 = 0.97,
                      .momentum = 0.8,
                      .bias1 = 1 - pow(0.9, step),
                      .bias2 = 1 - pow(0.95, step),
                      .bias3 = 1 - pow(0.97, step),
                      .grad_scale = 0.7};
}

/* One element, in the order of operations of torch's single-tensor implementation. */
static inline void torch_step(const zpk_update *u, bool first, double g, double *p, double *m, double *v) {
  double wd = u->weight_decay;
  g *= u->grad_scale;
  if (u->kind == 2) {
    g += wd * *p;
    *m = first ? g : u->momentum * *m + g;
    *p -= u->lr * *m;
    return;
  }
  if (u->kind == 3) { /* Lion, as the paper writes it */
    double c = u->beta1 * *m + (1 - u->beta1) * g;
    *p -= u->lr * ((c > 0 ? 1 : c < 0 ? -1 : 0) + wd * *p);
    *m = u->beta2 * *m + (1 - u->beta2) * g;
    return;
  }
  if (u->kind == 0) *p *= 1 - u->lr * wd;
  if (u->kind == 1) g += wd * *p;
  *m = u->beta1 * *m + (1 - u->beta1) * g;
  *v = u->beta2 * *v + (1 - u->beta2) * g * g;
  double denominator = sqrt(*v) / sqrt(u->bias2) + u->eps;
  *p -= u->lr / u->bias1 * (*m / denominator);
}

/* One element by algorithm 1 of arXiv 2208.06677, whose betas are 1 - these, with the corrections of the averages'
 * start that the authors' code has. state: by ZPK_MOMENT1 ... */
static inline void adan_step(const zpk_update *u, bool first, double g, double *p, double state[ZPK_MOMENTS]) {
  double *m = &state[ZPK_MOMENT1], *n = &state[ZPK_MOMENT2], *v = &state[ZPK_DIFFERENCE];
  g *= u->grad_scale;
  double change = first ? 0 : g - state[ZPK_GRADIENT_BEFORE], ahead = g + u->beta2 * change;
  *m = u->beta1 * *m + (1 - u->beta1) * g;
  *v = u->beta2 * *v + (1 - u->beta2) * change;
  *n = u->beta3 * *n + (1 - u->beta3) * ahead * ahead;
  double rate = u->lr / (sqrt(*n / u->bias3) + u->eps);
  *p = (*p - rate * (*m / u->bias1 + u->beta2 * *v / u->bias2)) / (1 + u->lr * u->weight_decay);
  state[ZPK_GRADIENT_BEFORE] = g;
}

/* One element of any rule. */
static inline void optimizer_step(const zpk_update *u, bool first, double g, double *p, double state[ZPK_MOMENTS]) {
  if (u->kind == ZPK_ADAN)
    adan_step(u, first, g, p, state);
  else
    torch_step(u, first, g, p, &state[ZPK_MOMENT1], &state[ZPK_MOMENT2]);
}
/* Does the rule keep the array? */
static inline bool rule_keeps(int kind, int array) {
  if (kind == ZPK_ADAN) return true;
  return array == ZPK_MOMENT1 || (array == ZPK_MOMENT2 && (kind == ZPK_ADAMW || kind == ZPK_ADAM));
}

#endif
