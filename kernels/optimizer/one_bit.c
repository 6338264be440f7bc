/* SPDX-License-Identifier: Apache-2.0 */
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
 * a variance that is tiny next to that of their block, as key biases have, whose gradient is rounding noise: their
 * momentum comes back as large as their neighbours'. The clamp is the bound that Adam's own steps keep (Kingma and Ba
 * 2015, section 2.1), max(1, (1 - b1) / sqrt(1 - b2)): without it they would move by lr scale / eps.
 *
 * With ZeRO 1 a rank has variance, momentum and exact weights p of the elements that it owns alone, and only the
 * weights w with which it computes of all. While the variance stays as it is Adam is linear in the gradients up to
 * momentum, so the worker's error may stand before it, and the owner's is what its own weights have and those of all
 * ranks have not:
 *
 *   worker   x = (1 - b1) g + e;    c = scale(x) sign(x);  e = x - c
 *   owner    m = b1 m + mean of the workers' c;  p as above by m;  x = p - w;  c as above
 *   all      w += c
 *
 * With 16 bits p is the master copy; otherwise p = w + E, E = x - c. The owner's elements with variance zero keep
 * momentum 0, but their weights take part in the exchange of differences: what is added to them in one step is taken
 * back later.
 *
 * 1-bit LAMB (arXiv 2104.06069) exchanges momentum likewise. How the variance would have gone on it follows by the
 * gradient that the exchanged momenta m and m' of this step and the one before stand for, (m - b1 m') / (1 - b1):
 * `fresh` begins as v. The steps are clamped as above. With ZeRO 1 that gradient is the mean of the workers' c, over
 * 1 - b1, and the owner's momentum and variance come first, then, when all ranks know the ratios, its weights. */
#include "clones.h"

#include <assert.h>
#include <string.h>
#include <zplan/zpk.h>

#include "real_f32.h"
#include "one_bit_template.h"
#include "one_bit_shards_template.h"
#include "one_bit_lamb_template.h"
#include "one_bit_local_template.h"
#include "real_f64.h"
#include "one_bit_template.h"
#include "one_bit_shards_template.h"
#include "one_bit_lamb_template.h"
#include "one_bit_local_template.h"
#define TEMPLATE "momentum_template.h"
#include "every_real.h"

void zpk_momentum(const zpk_update *u, const void *param, const void *grad, void *m, int64_t begin, int64_t end) {
  assert(u->dtype <= ZPK_F16 && begin >= 0 && begin <= end);
  ZPK_BY_REAL(u->dtype, momentum, u, param, grad, m, begin, end);
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

/* ---- ZeRO 1 ---- */

static int64_t block_end(int64_t at, int64_t count) { return at + ZPK_SIGNS < count ? at + ZPK_SIGNS : count; }

void zpk_add_to_error(zpk_dtype dtype, const void *grad, double scale, float *error, int64_t count) {
  assert(dtype <= ZPK_F16 && count >= 0);
  ZPK_BY_REAL(dtype, add_to_error, grad, scale, error, count);
}

void zpk_pack_error(float *error, int64_t count, zpk_signs to, int64_t block) {
  for (int64_t at = 0, end; at < count; at = end, block++) {
    float x[ZPK_SIGNS];
    end = block_end(at, count);
    memcpy(x, error + at, (size_t)(end - at) * sizeof *x);
    pack_f32(x, NULL, (int)(end - at), error + at, to, block);
  }
}

void zpk_owner_update(const zpk_update *u, const zpk_owner *owner, zpk_records in, zpk_signs to, int64_t block,
                      int64_t count) {
  assert(u->dtype <= ZPK_F16 && in.n >= 0 && count >= 0 && !owner->master == !zpk_is_narrow(u->dtype));
  assert(!owner->server_error == zpk_is_narrow(u->dtype));
  if (u->dtype == ZPK_F64) owner_update_f64(u, owner, in, to, block, count);
  if (u->dtype == ZPK_F32) owner_update_f32(u, owner, in, to, block, count);
  for (int64_t at = 0, end; zpk_is_narrow(u->dtype) && at < count; at = end, block++) {
    float wide[ZPK_SIGNS];
    end = block_end(at, count);
    zpk_widen(u->dtype, (const uint16_t *)owner->weights + at, wide, end - at);
    zpk_owner o = {wide, (float *)owner->master + at, (float *)owner->m + at, (const float *)owner->v + at, NULL};
    owner_update_f32(u, &o, in, to, block, end - at);
  }
}

void zpk_apply_signs(zpk_dtype dtype, zpk_signs from, int64_t block, void *weights, int64_t count) {
  assert(dtype <= ZPK_F16 && count >= 0);
  if (dtype == ZPK_F64) apply_signs_f64(from, block, weights, count);
  if (dtype == ZPK_F32) apply_signs_f32(from, block, weights, count);
  for (int64_t at = 0, end; zpk_is_narrow(dtype) && at < count; at = end, block++) {
    float wide[ZPK_SIGNS];
    end = block_end(at, count);
    zpk_widen(dtype, (uint16_t *)weights + at, wide, end - at);
    apply_signs_f32(from, block, wide, end - at);
    zpk_round(dtype, wide, (uint16_t *)weights + at, end - at);
  }
}

/* ---- LAMB ---- */

double zpk_lamb_fresh(const zpk_update *u, const void *m, const void *before, const void *v, void *fresh,
                      double fresh_bias2, int64_t begin, int64_t end) {
  assert(u->dtype <= ZPK_F16 && begin >= 0 && begin <= end && fresh_bias2 > 0);
  if (u->dtype == ZPK_F64) return lamb_fresh_f64(u, m, before, v, fresh, fresh_bias2, begin, end);
  return lamb_fresh_f32(u, m, before, v, fresh, fresh_bias2, begin, end);
}

double zpk_lamb_owner(const zpk_update *u, zpk_records in, int64_t first, void *m, const void *v, void *fresh,
                      double fresh_bias2, int64_t count) {
  assert(u->dtype <= ZPK_F16 && in.n >= 1 && count >= 0 && fresh_bias2 > 0);
  if (u->dtype == ZPK_F64) return lamb_owner_f64(u, in, first, m, v, fresh, fresh_bias2, count);
  return lamb_owner_f32(u, in, first, m, v, fresh, fresh_bias2, count);
}

void zpk_lamb_frozen(const zpk_update *u, void *param, const void *m, const void *v, int64_t begin, int64_t end) {
  assert(u->dtype <= ZPK_F16 && begin >= 0 && begin <= end);
  if (u->dtype == ZPK_F64)
    lamb_frozen_f64(u, param, m, v, begin, end);
  else
    lamb_frozen_f32(u, param, m, v, begin, end);
}

/* ---- 0/1 Adam ---- */

void zpk_variance(const zpk_update *u, const void *grad, void *v, int64_t begin, int64_t end) {
  assert(u->dtype <= ZPK_F16 && begin >= 0 && begin <= end);
  ZPK_BY_REAL(u->dtype, variance, u, grad, v, begin, end);
}

void zpk_local_sum(zpk_dtype dtype, double weight, const void *m, void *sum, int64_t begin, int64_t end) {
  assert(dtype <= ZPK_F16 && begin >= 0 && begin <= end);
  ZPK_BY_REAL(dtype, local_sum, weight, m, sum, begin, end);
}

void zpk_local_mean(zpk_dtype dtype, double total, void *m, void *sum, int64_t begin, int64_t end) {
  assert(dtype <= ZPK_F16 && begin >= 0 && begin <= end && total > 0);
  ZPK_BY_REAL(dtype, local_mean, total, m, sum, begin, end);
}

void zpk_local_decay(zpk_dtype dtype, double keep, void *anchor, int64_t begin, int64_t end) {
  assert(dtype <= ZPK_F16 && begin >= 0 && begin <= end);
  ZPK_BY_REAL(dtype, local_decay, keep, anchor, begin, end);
}

void zpk_local_weights(const zpk_update *u, double total, const void *anchor, const void *sum, const void *v, void *out,
                       int64_t count) {
  assert(u->dtype <= ZPK_F16 && count >= 0 && total > 0);
  ZPK_BY_REAL(u->dtype, local_weights, u, total, anchor, sum, v, out, count);
}
