/* SPDX-License-Identifier: Apache-2.0 */
/* fmax and fmin of seconds, which are never NaN: those of libm are calls. */
#ifndef ZPLAN_SECONDS_H
#define ZPLAN_SECONDS_H

static inline double zp_later(double a, double b) { return a > b ? a : b; }
static inline double zp_sooner(double a, double b) { return a < b ? a : b; }

#endif
