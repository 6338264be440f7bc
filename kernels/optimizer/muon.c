/* SPDX-License-Identifier: Apache-2.0 */
/* What Muon does to a matrix alongside products (Keller Jordan, "Muon: An optimizer for hidden layers in neural
 * networks", 2024; scale and decay of arXiv 2502.16982, section 2.2), with the momentum of torch.optim.Muon:
 *
 *   m += (1 - momentum) (g - m);  x = g + momentum (m - g)
 *   x = x / max(|x|, 1e-7), then five times x = a x + (b G + c G G) x with G = x x' (turned where x is taller than
 * wide) p = p (1 - lr wd) - lr 0.2 sqrt(max(rows, columns)) x
 *
 * Coefficients are computed in f64 and rounded once; products and everything else are in the type of the master
 * weights, while torch multiplies in bf16. */
#include "clones.h"

#include <assert.h>
#include <zplan/zpk.h>

#define TEMPLATE "muon_template.h"
#include "every_real.h"

void zpk_muon_momentum(const zpk_update *u, const void *grad, void *m, void *x, int64_t begin, int64_t end) {
  assert(u->dtype <= ZPK_F16 && u->momentum >= 0 && u->momentum < 1 && begin >= 0 && begin <= end);
  ZPK_BY_REAL(u->dtype, muon_momentum, u, grad, m, x, begin, end);
}

double zpk_muon_squares(zpk_dtype dtype, const void *x, int64_t begin, int64_t end) {
  double sum;
  assert(begin >= 0 && begin <= end);
  ZPK_BY_REAL(dtype, muon_squares, x, begin, end, &sum);
  return sum;
}

void zpk_muon_scale(zpk_dtype dtype, double factor, const void *x, void *y, int64_t begin, int64_t end) {
  assert(begin >= 0 && begin <= end);
  ZPK_BY_REAL(dtype, muon_scale, factor, x, y, begin, end);
}

void zpk_muon_diagonal(zpk_dtype dtype, double value, void *x, int64_t n) {
  assert(n >= 1);
  ZPK_BY_REAL(dtype, muon_diagonal, value, x, n);
}

void zpk_muon_apply(const zpk_update *u, void *param, const void *x, double scale, int64_t begin, int64_t end) {
  assert(u->dtype <= ZPK_F16 && scale > 0 && begin >= 0 && begin <= end);
  ZPK_BY_REAL(u->dtype, muon_apply, u, param, x, scale, begin, end);
}
