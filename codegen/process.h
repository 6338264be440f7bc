/* SPDX-License-Identifier: Apache-2.0 */
/* Private to codegen: other programs, which are compilers. */
#ifndef ZPLAN_PROCESS_H
#define ZPLAN_PROCESS_H

#include <stdbool.h>
#include <zplan/vec.h>

/* Runs a compiler to its end; all that it prints goes to stderr. argv without the final NULL. False with *error (arena)
 * when it is not there or fails on `what` ("the generated trainer"). */
bool zp_run_compiler(zp_arena *arena, zp_strings *argv, const char *what, const char **error);
/* Is there a program of this name in one of PATH's folders? */
bool zp_is_on_path(const char *tool);

#endif
