/* Arrays from bf16 to f32 and back. */
#include "bf16.h"
#include "clones.h"

ZPK_CLONES void zpk_widen(const zpk_bf16 *restrict from, float *restrict to, int64_t count) {
  for (int64_t i = 0; i < count; i++) to[i] = zpk_widen_bf16(from[i]);
}

ZPK_CLONES void zpk_round(const float *restrict from, zpk_bf16 *restrict to, int64_t count) {
  for (int64_t i = 0; i < count; i++) to[i] = zpk_round_bf16(from[i]);
}

ZPK_CLONES void zpk_round_add(const float *restrict from, zpk_bf16 *restrict to, int64_t count) {
  for (int64_t i = 0; i < count; i++) to[i] = zpk_round_bf16(zpk_widen_bf16(to[i]) + from[i]);
}
