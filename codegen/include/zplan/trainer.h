/* SPDX-License-Identifier: Apache-2.0 */
/* From a program to a trainer: C text, kernels, build files, and the binary. */
#ifndef ZPLAN_TRAINER_H
#define ZPLAN_TRAINER_H

#include <zplan/plan_file.h>
#include <zplan/rowkernel.h>

typedef struct zp_trainer_text {
  const char *trainer_c; /* one source for all ranks */
  const char *makefile;  /* to rebuild by hand */
  zp_kernel_set *kernels;
} zp_trainer_text;

/* What operands are stored as in the trainer of a plan. */
zpk_dtype zp_trainer_dtype(const zp_plan *plan);
/* What a trainer can do alongside training. */
typedef struct zp_trainer_extras {
  bool profile; /* say where its time goes: --profile */
  bool decode;  /* go on with a text position by position. Requires: nothing forbids it (zp_trainer_cannot_decode) */
} zp_trainer_extras;

/* Why a trainer of the plan cannot go on with a text position by position, which keeps what earlier positions have
 * computed; NULL: it can. Requires: tensor ranks alone, micro-batches of one sample, nothing recomputed.
 * Arena. */
const char *zp_trainer_cannot_decode(zp_arena *arena, const zp_plan *plan, zp_span *where);

/* Prints the trainer of a plan, for CPU ranks or for GPUs as its cluster has them. arch: of the GPU, for the Makefile;
 * NULL for CPU plans. diags: only to turn spans into file:line for
 * comments. Deterministic: no dates, host names or absolute paths. */
zp_trainer_text zp_trainer_print(zp_arena *arena, const zp_plan *plan, const zp_diags *diags, const char *arch,
                                 zp_trainer_extras extras);
/* GPU plans: the CUDA C text of all device kernels, which names arch. Arena. NULL with *error when a row kernel cannot
 * be printed. */
const char *zp_trainer_kernels_cu(zp_arena *arena, const zp_plan *plan, const zp_kernel_set *kernels, const char *arch,
                                  zp_trainer_extras extras, const char **error);

/* Where the runtime's headers and libraries are. */
typedef struct zp_toolchain {
  const char *source_dir, *build_dir; /* tidy: what the folders below are in; an installed zplan has one for both */
  const char *include_dirs[2];        /* runtime, kernels */
  const char *library_dirs[2];
  const char *device_dirs[3]; /* headers of device kernels: zpd.h, kernel text, emulator (<zplan/cuda.h>) */
  const char *arch;           /* of a GPU plan: "sm_90", or "host" */
  const char *kept_kernels;   /* folder of compiled CPU kernels; NULL: none are kept */
  const char *cc;             /* NULL: $CC or cc; plans of several ranks link through mpicc */
  bool sanitize;
  bool force; /* files of a generated folder that were edited are written anew */
  zp_trainer_extras extras;
} zp_toolchain;

/* ---- tree_lock.c ---- */

/* Makes the folder DIR and waits until nobody else builds in it. A file descriptor that ends the lock when it is
 * closed, as it is when the process ends; -1 with *error (arena). */
int zp_tree_lock(zp_arena *arena, const char *dir, const char **error);
/* Keeps others from changing what is in DIR, while a trainer of it runs, until the file descriptor is closed; -1 where
 * files cannot be locked. Requires: zp_tree_lock is held; it may then be closed. */
int zp_tree_use(zp_arena *arena, const char *dir);
/* Does anybody? Requires: zp_tree_lock is held. */
bool zp_tree_in_use(zp_arena *arena, const char *dir);
/* What is said where something would have to change. Arena. */
const char *zp_tree_busy(zp_arena *arena, const char *dir);

/* Writes DIR/{trainer.c,rows.txt,Makefile,zplan.mk,plan.json}, and for CPU plans kernels.{o,ll}, for GPU plans
 * kernels.cu, what it compiles to and the assembly that puts it into the trainer, kernels_image.S; compiles
 * DIR/trainer. Files that would not change are left alone; the binary is published by rename. Where a trainer of DIR
 * runs nothing is written, and *error says so if something would change. Requires: zp_tree_lock of DIR is held. Returns
 * the binary's path (arena), NULL with *error. */
const char *zp_trainer_build(zp_arena *arena, const zp_plan *plan, const zp_diags *diags, const zp_toolchain *tools,
                             const char *dir, const char **error);

#endif
