/* From a program to a trainer: C text, kernels, build files, and the binary. */
#ifndef ZPLAN_TRAINER_H
#define ZPLAN_TRAINER_H

#include <zplan/plan.h>
#include <zplan/rowkernel.h>

typedef struct zp_trainer_text {
  const char *trainer_c; /* one source for all ranks */
  const char *makefile;  /* to rebuild by hand */
  zp_kernel_set *kernels;
} zp_trainer_text;

/* Prints the trainer of a CPU plan. diags: only to turn spans into file:line for comments. Deterministic: no dates, host names
 * or absolute paths. */
zp_trainer_text zp_trainer_print(zp_arena *arena, const zp_plan *plan, const zp_diags *diags);

/* Where the runtime's headers and libraries are. */
typedef struct zp_toolchain {
  const char *include_dirs[2]; /* runtime, kernels */
  const char *library_dirs[2];
  const char *cc;              /* NULL: $CC or cc; plans of several ranks link through mpicc */
  bool sanitize;
} zp_toolchain;

/* Writes DIR/{trainer.c,Makefile,plan.json,kernels.o,kernels.ll} and compiles DIR/trainer. Files that would not change are left
 * alone; the binary is published by rename. Returns the binary's path (arena), NULL with *error. */
const char *zp_trainer_build(zp_arena *arena, const zp_plan *plan, const zp_diags *diags, const zp_toolchain *tools,
                             const char *dir, const char **error);

#endif
