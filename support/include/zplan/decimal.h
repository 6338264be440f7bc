/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers as decimals that read back equal: what generated code and its tables are printed with. */
#ifndef ZPLAN_DECIMAL_H
#define ZPLAN_DECIMAL_H

#include <zplan/arena.h>

/* The decimal with the fewest digits that strtod and compilers read back as x, sign of zero included: "0.9", "1e-08".
 * x: finite. Arena or static. */
const char *zp_decimal(zp_arena *arena, double x);

#endif
