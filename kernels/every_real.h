/* SPDX-License-Identifier: Apache-2.0 */
/* Includes TEMPLATE, a file's name, once for f32 and once for f64: what gradients, optimizer state and master weights
 * are. With 16-bit operands they are f32. */
#include "real_f32.h"
#include TEMPLATE
#include "real_f64.h"
#include TEMPLATE
#undef TEMPLATE

/* Calls the one of what a dtype computes in. */
#ifndef ZPK_BY_REAL
#define ZPK_BY_REAL(dtype, f, ...) ((dtype) == ZPK_F64 ? f##_f64(__VA_ARGS__) : f##_f32(__VA_ARGS__))
#endif
