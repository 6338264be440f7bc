/* SPDX-License-Identifier: Apache-2.0 */
/* Includes TEMPLATE, a file's name, once for every dtype: its functions are NAME(f), f_f32, f_f64, f_bf16, f_f16. They
 * compute in REAL; operands are stored as ELEM, and GET and PUT are the way between. NARROW is defined where the two
 * differ. */
#include "real_f32.h"
#include TEMPLATE
#include "real_f64.h"
#include TEMPLATE
#define FORMAT bf16
#include "real_narrow.h"
#include TEMPLATE
#undef FORMAT
#define FORMAT f16
#include "real_narrow.h"
#include TEMPLATE
#undef FORMAT
#undef TEMPLATE

/* Calls the one of a dtype. */
#ifndef ZPK_BY_DTYPE
#define ZPK_BY_DTYPE(dtype, f, ...)                                                                                    \
  ((dtype) == ZPK_F64    ? f##_f64(__VA_ARGS__)                                                                        \
   : (dtype) == ZPK_BF16 ? f##_bf16(__VA_ARGS__)                                                                       \
   : (dtype) == ZPK_F16  ? f##_f16(__VA_ARGS__)                                                                        \
                         : f##_f32(__VA_ARGS__))
#endif
