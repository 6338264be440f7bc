/* Makes the templates below speak bf16: f32 arithmetic on operands that are stored in 16 bits. Included before every
 * template, so it undoes the header before it first. */
#include "bf16.h"
#include "exp.h"
#include <math.h>
#undef REAL
#undef NAME
#undef REAL_EXP
#undef REAL_SQRT
#undef ELEM
#undef GET
#undef PUT
#define REAL float
#define ELEM zpk_bf16
#define GET(x) zpk_widen_bf16(x)
#define PUT(x) zpk_round_bf16(x)
#define NAME(x) x##_bf16
#define REAL_EXP zpk_exp_f32
#define REAL_SQRT sqrtf
