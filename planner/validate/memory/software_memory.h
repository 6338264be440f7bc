/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of other training programs: what their framework holds, asks the driver for and prints. */
#ifndef ZPLAN_SOFTWARE_MEMORY_H
#define ZPLAN_SOFTWARE_MEMORY_H

#include <zplan/program.h>
#include <zplan/profile.h>

/* ---- communicators.c ---- */
/* Bytes of a device of the stage. */
int64_t zp_software_communicators(const zp_choice *choice, const zp_machine *machine, const zp_software_groups *made,
                                  int stage);

/* ---- reserved.c ---- */
enum { ZP_RESERVED_BLOCKS = 16 };
/* Memory that a caching allocator took, and large blocks of it that are free. */
typedef struct zp_reserved {
  int64_t bytes;
  int n;
  int64_t free[ZP_RESERVED_BLOCKS];
} zp_reserved;
/* What the allocator asks the driver for when no block fits. */
int64_t zp_reserved_segment(int64_t bytes);
/* A request: cut from the smallest free block that holds it, else new memory. */
void zp_reserved_take(zp_reserved *reserved, int64_t bytes);
/* A block comes back. */
void zp_reserved_give(zp_reserved *reserved, int64_t bytes);

/* ---- autograd.c ---- */
/* Bytes that one unit keeps from forward to backward in an eager framework; by_operations: with torchtitan's
 * checkpointing of single operations. */
int64_t zp_autograd_kept_bytes(zp_arena *arena, const zp_graph *local, int64_t microbatch, int compute_bytes,
                               bool by_operations);

/* Bytes of scores, for an attention that has them in device memory: what waits for backward, and what backward adds to
 * it. */
typedef struct zp_autograd_scores {
  int64_t kept, gradient;
} zp_autograd_scores;
/* The most that the backward of one unit holds: what is still kept, gradients, and, if `fresh`, of weights' gradients
 * the one that was just made. */
int64_t zp_autograd_backward_bytes(zp_arena *arena, const zp_graph *local, int64_t microbatch, int compute_bytes,
                                   const zp_autograd_scores *scores, bool fresh);
/* Keys and values that stay with the queries when these are a view of a block that had all three; 0 where keys have
 * fewer heads, which makes blocks apart. */
int64_t zp_autograd_joint_bytes(const zp_graph *local, int64_t microbatch, int compute_bytes);

/* ---- temporaries.c ---- */
/* One stage of a predicted run, and how its memory is asked for. */
typedef struct asking {
  const zp_program *program;
  const zp_software *software;
  const zp_lowered *lowered; /* of the current stage */
  bool keeps_scores, by_operations;
} asking;
/* Bytes: of the largest gradient while it is added, of what is reduced at once, of the largest gradient while its norm
 * is taken, of gradients made one piece, of copies that the update works on. */
typedef struct zp_temporaries {
  int64_t sum, reduce, norm, flat, update;
} zp_temporaries;
zp_temporaries zp_software_temporaries(const asking *a, const zp_stage *stage);

/* ---- stand_ins.c ---- */
/* Bytes of tensors that stand for gradients of weights which products have added: kept for the modules of the stage's
 * layers, and of the segment's largest product outside layers while its backward runs. */
int64_t zp_software_stand_ins(const asking *a, const zp_stage *stage);
int64_t zp_software_stand_in_of_head(const asking *a, int segment);

/* ---- memory.c ---- */
typedef struct zp_software_memory {
  int64_t device;  /* what the fullest device needs, context and communicators included */
  int64_t printed; /* what the source's instrument shows for it */
} zp_software_memory;
/* known: the program recomputes what the choice says; else that is not published. */
zp_software_memory zp_software_peak(const zp_program *program, const zp_machine *machine, const zp_software *software,
                                    bool known);

#endif
