/* Optimizer updates with the semantics of torch.optim, one fused pass over parameter, gradient and moments: Adam reads
 * four arrays and writes three, 28 bytes a parameter in f32, and memory is the limit.
 *
 *   AdamW   p *= 1 - lr wd;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;
 *           p -= lr / bias1 * m / (sqrt(v) / sqrt(bias2) + eps)
 *   Adam    the same with g += wd p instead of the first step
 *   SGD     g += wd p;  m = momentum m + g;  p -= lr m   (torch starts m as the first g: the same as from zero;
 *           without m: p -= lr g)
 *   Lion    (arXiv 2302.06675, algorithm 2) c = b1 m + (1 - b1) g;  m = b2 m + (1 - b2) g;
 *           p -= lr (sign(c) + wd p);  sign(0) is 0
 *   LAMB    (arXiv 1904.00962, algorithm 2) m and v as Adam's;  r = m / bias1 / (sqrt(v) / sqrt(bias2) + eps) + wd p;
 *           p -= lr |p| / |r| r, lengths of whole tensors
 *   EMA     a += (1 - ema) (p - a), as torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn(ema), whose lerp
 * it is: what is the same in both stays, while ema and 1 - ema, each rounded, may not add up to 1
 *
 * Coefficients are computed in f64 and rounded once. */
#include "clones.h"

#include <assert.h>
#include <zplan/zpk.h>

#define TEMPLATE "optimizer_template.h"
#include "every_real.h"

void zpk_optimizer(const zpk_update *u, void *param, const void *grad, void *const *moment, int64_t begin,
                   int64_t end) {
  assert(u->dtype <= ZPK_F16 && begin >= 0 && begin <= end);
  ZPK_BY_REAL(u->dtype, update, u, param, grad, moment, begin, end);
}

void zpk_average(const zpk_update *u, const void *param, void *average, int64_t begin, int64_t end) {
  assert(u->dtype <= ZPK_F16 && u->ema > 0 && u->ema < 1 && begin >= 0 && begin <= end);
  ZPK_BY_REAL(u->dtype, average, u, param, average, begin, end);
}

void zpk_optimizer_and_average(const zpk_update *u, void *param, const void *grad, void *const *moment, void *average,
                               int64_t begin, int64_t end) {
  enum { AT_ONCE = 4096 }; /* elements; their arrays fit into any cache of the second level */
  assert(!average || u->ema > 0);
  int64_t step = average ? AT_ONCE : end - begin;
  for (int64_t at = begin, to; at < end; at = to) {
    to = end - at < step ? end : at + step;
    zpk_optimizer(u, param, grad, moment, at, to);
    if (average) zpk_average(u, param, average, at, to);
  }
}

void zpk_lamb_moments(const zpk_update *u, const void *param, const void *grad, void *m, void *v, int64_t begin,
                      int64_t end, double sums[2]) {
  assert(u->dtype <= ZPK_F16 && u->kind == ZPK_LAMB && begin >= 0 && begin <= end);
  ZPK_BY_REAL(u->dtype, lamb_moments, u, param, grad, m, v, begin, end, sums);
}

void zpk_lamb_apply(const zpk_update *u, void *param, const void *m, const void *v, int64_t begin, int64_t end) {
  assert(u->dtype <= ZPK_F16 && u->kind == ZPK_LAMB && begin >= 0 && begin <= end);
  ZPK_BY_REAL(u->dtype, lamb_apply, u, param, m, v, begin, end);
}
