/* Makes the templates below speak f32. Included before every template, so it undoes real_f64.h first. */
#include "exp.h"
#include <math.h>
#undef REAL
#undef NAME
#undef REAL_EXP
#undef REAL_SQRT
#define REAL float
#define NAME(x) x##_f32
#define REAL_EXP zpk_exp_f32
#define REAL_SQRT sqrtf
