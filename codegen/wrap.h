/* SPDX-License-Identifier: Apache-2.0 */
/* Width of generated text. */
#ifndef ZPLAN_WRAP_H
#define ZPLAN_WRAP_H

#include <zplan/buf.h>

enum { ZP_GENERATED_COLUMNS = 120 };

/* C or CUDA text with lines of at most so many columns: longer ones are broken after a comma, the outermost there is,
 * else at a space, and go on four columns further in; comments go on after " *". Strings stay whole, and lines of the
 * preprocessor as they are; macros of several lines are not for it. Arena. */
const char *zp_wrap(zp_arena *arena, const char *text);

#endif
