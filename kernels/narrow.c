/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays of 16-bit operands to f32 and back. */
#include "clones.h"
#include <assert.h>
#include <zplan/zpk.h>

#define FORMAT bf16
#include "real_narrow.h"
#include "narrow_template.h"
#undef FORMAT
#define FORMAT f16
#include "real_narrow.h"
#include "narrow_template.h"

void zpk_widen(zpk_dtype dtype, const void *from, float *to, int64_t count) {
  assert(count >= 0);
  assert(zpk_is_narrow(dtype));
  dtype == ZPK_F16 ? widen_f16(from, to, count) : widen_bf16(from, to, count);
}

void zpk_round(zpk_dtype dtype, const float *from, void *to, int64_t count) {
  assert(count >= 0);
  assert(zpk_is_narrow(dtype));
  dtype == ZPK_F16 ? round_f16(from, to, count) : round_bf16(from, to, count);
}
