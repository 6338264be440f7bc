/* 1-bit Adam (arXiv 2102.02888): momentum as signs and scales with error feedback, and the update with a variance that
 * stays as it is.
 *
 *   worker   m = b1 m + (1 - b1) g;  x = m + e;    c = scale(x) sign(x);  e = x - c
 *   server   y = mean of the workers' c;  x = y + E;    c as above;  E = x - c;  m = c on every rank
 *   update   p -= lr clamp(m / bias1 / (sqrt(v) / sqrt(bias2) + eps)), after p *= 1 - lr wd with AdamW
 *
 * ZPK_SIGNS neighbouring elements share a scale, their mean absolute value: of all multiples of the signs that one is
 * nearest to x, so what is left out is always shorter than x and errors stay bounded (arXiv 1901.09847). sign(0) is +1.
 * The blocks begin where parameters may begin, so that none has elements of two of them, and what becomes
 * of an element does not depend on where in a buffer its parameter stands: copies of tied weights stay equal.
 *
 * Elements whose variance is zero have had no gradient before it froze: padding, rows of tables for ids that did not
 * occur. A scale divided by their eps would throw them far away, so they take no part and keep their value. Others have
 * a variance that is tiny beside that of their block, as key biases have, whose gradient is rounding noise: their
 * momentum comes back as large as their neighbours'. The clamp is the bound that Adam's own steps keep (Kingma and Ba
 * 2015, section 2.1), max(1, (1 - b1) / sqrt(1 - b2)): without it they would move by lr scale / eps. */
#include "clones.h"

#include <assert.h>
#include <zplan/zpk.h>

#include "real_f32.h"
#include "compress_template.h"
#include "real_f64.h"
#include "compress_template.h"
#define TEMPLATE "momentum_template.h"
#include "every_dtype.h"

void zpk_momentum(const zpk_update *u, const void *param, const void *grad, void *m, int64_t begin, int64_t end) {
  assert(u->dtype <= ZPK_F16 && begin >= 0 && begin <= end);
  ZPK_BY_DTYPE(u->dtype, momentum, u, param, grad, m, begin, end);
}

void zpk_pack_signs(zpk_dtype dtype, const void *m, const void *v, float *error, zpk_signs to, int64_t begin,
                    int64_t end) {
  assert(dtype <= ZPK_F16 && begin >= 0 && begin <= end);
  if (dtype == ZPK_F64)
    pack_signs_f64(m, v, error, to, begin, end);
  else
    pack_signs_f32(m, v, error, to, begin, end);
}

void zpk_average_signs(zpk_dtype dtype, int n, const void *records, int64_t blocks, const void *v, float *error,
                       zpk_signs to, int64_t begin, int64_t end) {
  assert(dtype <= ZPK_F16 && n >= 1 && begin >= 0 && begin <= end && end <= blocks);
  if (dtype == ZPK_F64)
    average_signs_f64(n, records, blocks, v, error, to, begin, end);
  else
    average_signs_f32(n, records, blocks, v, error, to, begin, end);
}

void zpk_unpack_signs(zpk_dtype dtype, zpk_signs from, const void *v, void *m, int64_t begin, int64_t end) {
  assert(dtype <= ZPK_F16 && begin >= 0 && begin <= end);
  if (dtype == ZPK_F64)
    unpack_signs_f64(from, v, m, begin, end);
  else
    unpack_signs_f32(from, v, m, begin, end);
}

void zpk_frozen_update(const zpk_update *u, void *param, const void *m, const void *v, int64_t begin, int64_t end) {
  assert(u->dtype <= ZPK_F16 && begin >= 0 && begin <= end);
  if (u->dtype == ZPK_F64)
    frozen_f64(u, param, m, v, begin, end);
  else
    frozen_f32(u, param, m, v, begin, end);
}
