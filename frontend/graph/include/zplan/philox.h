/* SPDX-License-Identifier: Apache-2.0 */
/* The random stream of all plans: what dropout and random patterns of attention draw. */
#ifndef ZPLAN_PHILOX_H
#define ZPLAN_PHILOX_H

#include <stdint.h>

/* Uniform in [0, 1) for one logical element. Philox4x32-10 with
 * key = (seed low, seed high), counter = (element / 4, stream << 16 | instance, sample, step); word element % 4,
 * divided by 2^32. `element` counts inside one sample: row in sample * logical columns + logical column. Requires what
 * the counter has room for: stream and instance below 2^16, sample and step below 2^32, element below 2^34. */
double zp_philox_uniform(uint64_t seed, uint64_t step, uint64_t sample, uint64_t stream, uint64_t instance,
                         uint64_t element);
/* The generator itself, for known-answer tests and other users of the stream. */
void zp_philox4x32(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]);

#endif
