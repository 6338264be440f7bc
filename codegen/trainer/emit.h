/* Private to the trainer printer. All decisions are in the program; these functions only print. */
#ifndef ZPLAN_TRAINER_EMIT_H
#define ZPLAN_TRAINER_EMIT_H

#include <zplan/trainer.h>

typedef struct zp_emit {
  zp_arena *arena;
  zp_buf out;
  const zp_plan *plan;
  const zp_program *program;
  const zp_lowered *lowered;
  const zp_model *model;
  const zp_diags *diags;
  zp_kernel_set *kernels;
} zp_emit;

/* "mlp.c_fc" -> "mlp_c_fc"; C keywords and leading digits are escaped. Arena. */
const char *zp_emit_identifier(zp_arena *arena, const char *name);
/* "gpt2.dz:14" with the folder left out, "" without a place. */
const char *zp_emit_place(const zp_emit *e, zp_span span);
/* SEGMENT name in the generated enum: "SEG_H". */
const char *zp_emit_segment(const zp_emit *e, int segment);

void zp_emit_header(zp_emit *e); /* the comment at the top */
void zp_emit_tables(zp_emit *e); /* dimensions, parameters, stages */
void zp_emit_procedure(zp_emit *e, int segment, bool backward);
void zp_emit_schedule(zp_emit *e); /* units of a stage, order of micro-batches */
void zp_emit_program(zp_emit *e);  /* the zpr_program table and main */

#endif
