/* SPDX-License-Identifier: Apache-2.0 */
/* A made-up language that can be learned: no file needed. After token x comes (5 x + 3) mod V in half of the cases and
 * any token, all equally likely, in the other half. The best possible loss is therefore near ln 2 + ln(V) / 2, and a
 * model that learns the rule gets there from ln V. */
#include "data.h"

enum { STREAM = 0x5D47 }; /* of the random numbers; far from the small numbers that a model's dropout uses */

void zpr_synthetic(uint64_t seed, uint64_t sample, int64_t vocabulary, int64_t count, int32_t *out) {
  for (int64_t i = 0; i < count; i++) {
    double u = zpk_philox_uniform(seed, 0, sample, STREAM, 0, 2 * (uint64_t)i);
    double v = zpk_philox_uniform(seed, 0, sample, STREAM, 0, 2 * (uint64_t)i + 1);
    if (i > 0 && u < 0.5)
      out[i] = (int32_t)((5 * (int64_t)out[i - 1] + 3) % vocabulary);
    else
      out[i] = (int32_t)(v * (double)vocabulary);
  }
}
