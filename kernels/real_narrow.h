/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the templates below speak FORMAT, bf16 or f16: f32 arithmetic on operands that are stored in 16 bits. Included
 * before every template, so it undoes the header before it first. */
#include "exp.h"
#include <math.h>
#include <zplan/zpk_narrow.h>
#undef REAL
#undef NAME
#undef REAL_EXP
#undef REAL_SQRT
#undef ELEM
#undef GET
#undef PUT
#undef NARROW
#ifndef JOIN
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#endif
#define NARROW
#define REAL float
#define ELEM uint16_t
#define GET(x) JOIN(zpk_widen_, FORMAT)(x)
#define PUT(x) JOIN(zpk_round_, FORMAT)(x)
#define NAME(x) JOIN(x##_, FORMAT)
#define REAL_EXP zpk_exp_f32
#define REAL_SQRT sqrtf
