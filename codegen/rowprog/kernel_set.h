/* SPDX-License-Identifier: Apache-2.0 */
/* Private to codegen: what a kernel set holds. Each target compiles or prints it in its own folder. */
#ifndef ZPLAN_KERNEL_SET_H
#define ZPLAN_KERNEL_SET_H

#include <zplan/rowkernel.h>
#include "rowprog.h"

typedef struct zp_kernel {
  const zp_row_program *program;
  const char *symbol, *about;
  bool has_note;    /* at the end of `about` */
  const char *text; /* of the program: its identity */
} zp_kernel;

struct zp_kernel_set {
  zp_arena *arena; /* borrowed */
  zpk_dtype dtype;
  ZP_VEC(zp_kernel) kernels;
};

#endif
