/* Makes the templates below speak f64. Included before every template, so it undoes real_f32.h first. */
#include "exp.h"
#include <math.h>
#undef REAL
#undef NAME
#undef REAL_EXP
#undef REAL_SQRT
#define REAL double
#define NAME(x) x##_f64
#define REAL_EXP zpk_exp_f64
#define REAL_SQRT sqrt
