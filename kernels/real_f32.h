/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the templates below speak f32: REAL is what they compute in, ELEM what operands are stored as, GET and PUT the
 * way between. Included before every template, so it undoes the header before it first. */
#include "exp.h"
#include <math.h>
#undef REAL
#undef NAME
#undef REAL_EXP
#undef REAL_SQRT
#undef ELEM
#undef GET
#undef PUT
#undef NARROW
#define REAL float
#define ELEM float
#define GET(x) (x)
#define PUT(x) (x)
#define NAME(x) x##_f32
#define REAL_EXP zpk_exp_f32
#define REAL_SQRT sqrtf
