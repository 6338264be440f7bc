/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays of f32 as 8-bit operands times a scale. */
#include "clones.h"
#include <assert.h>
#include <math.h>
#include <zplan/zpk.h>
#include <zplan/zpk_float8.h>

ZPK_CLONES static float largest(const uint16_t *x, int64_t count) {
  float most = 0;
  for (int64_t i = 0; i < count; i++) {
    float size = fabsf(zpk_widen_bf16(x[i]));
    most = size > most ? size : most;
  }
  return most;
}

float zpk_largest_bf16(const uint16_t *x, int64_t count) {
  assert(count >= 0);
  return largest(x, count);
}

float zpk_float8_scale(zpk_float8 format, float largest) {
  return zpk_widen_e8m0(zpk_above_e8m0(largest / (format == ZPK_E4M3 ? ZPK_E4M3_MOST : ZPK_E5M2_MOST)));
}

ZPK_CLONES static void through_e4m3(float scale, float inverse, float *x, int64_t count) {
  for (int64_t i = 0; i < count; i++) x[i] = scale * zpk_widen_e4m3(zpk_round_e4m3(x[i] * inverse));
}

ZPK_CLONES static void through_e5m2(float scale, float inverse, float *x, int64_t count) {
  for (int64_t i = 0; i < count; i++) x[i] = scale * zpk_widen_e5m2(zpk_round_e5m2(x[i] * inverse));
}

void zpk_through_float8(zpk_float8 format, float scale, float *x, int64_t count) {
  assert(count >= 0 && !(scale <= 0));
  (format == ZPK_E4M3 ? through_e4m3 : through_e5m2)(scale, 1 / scale, x, count);
}
