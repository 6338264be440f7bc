/* SPDX-License-Identifier: Apache-2.0 */
/* The oracle of row programs. */
#ifndef ZPLAN_ORACLE_INTERPRET_PROGRAM_H
#define ZPLAN_ORACLE_INTERPRET_PROGRAM_H

#include "rowprog.h"

struct zpk_row_args; /* <zplan/zpk.h> */
/* Runs rows [begin, end); the conventions of zpk_row_kernel, all pointers to double. */
void zp_row_interpret(const zp_row_program *program, const struct zpk_row_args *args, int64_t begin, int64_t end,
                      int64_t chunk);

#endif
