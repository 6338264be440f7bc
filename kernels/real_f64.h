/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the templates below speak f64. Included before every template, so it undoes the header before it first. */
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
#define REAL double
#define ELEM double
#define GET(x) (x)
#define PUT(x) (x)
#define NAME(x) x##_f64
#define REAL_EXP zpk_exp_f64
#define REAL_SQRT sqrt
