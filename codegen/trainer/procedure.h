/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the printing of procedures: what the step printers know about the function that they print into. */
#ifndef ZPLAN_TRAINER_PROCEDURE_H
#define ZPLAN_TRAINER_PROCEDURE_H

#include "emit.h"

/* For %lld: the printed numbers are int64_t. */
#define ZP_LL(x) ((long long)(x))

typedef struct zp_frame {
  zp_emit *e;
  const zp_segment_program *seg;
  const zp_procedure *p;
  const zp_model *model;
  int first, last;   /* steps [first, last) */
  const char **name; /* C identifier per buffer, NULL when no step names it */
  bool uses_t, uses_saved, uses_pending, uses_layer;
  bool uses_params[ZP_KINDS], uses_grads[ZP_KINDS]; /* of the segment itself, by kind */
  zp_pass pass;
  int segment;
  zp_stage_mode mode;
  const char *title; /* "h forward", for who profiles */
  zp_bucket *bucket; /* of the unit, where some of them move */
  int n_buckets;
  zp_ints gathered, scattered; /* which of them this function gathers, scatters */
  /* It gathers parameters; the gradients that it yields wait; it scatters gradients. */
  bool gathers, keeps_early, scatters;
  const struct zp_decode_procedure *decode; /* ZP_PASS_DECODE: what becomes of the steps (decode.h) */
  bool stretch;                             /* the current step is one of the positions of `p` alone */
} zp_frame;

/* ---- steps/frame.c ---- */
const char *zp_frame_name(const zp_frame *f, int buffer);
const zp_buffer *zp_frame_buffer(const zp_frame *f, int buffer);
const zp_tensor *zp_frame_tensor(const zp_frame *f, int buffer);
/* Rows and columns of a buffer, with their extents. */
zp_shape zp_frame_matrix(const zp_frame *f, int buffer);
/* The parameter that a use of the segment means, its kind, and, where it is declared outside repeats, the field of a
 * layout with its place. Arena. */
const zp_param *zp_frame_param(const zp_frame *f, int use);
zp_param_kind zp_frame_kind(const zp_frame *f, int use);
const char *zp_frame_shared(const zp_frame *f, int use);
/* Pointers to a unit's own parameters of a kind and to their gradients; what the comment of such a parameter adds. */
typedef struct zp_kind_text {
  const char *params, *grads, *remark;
} zp_kind_text;
extern const zp_kind_text zp_frame_kinds[ZP_KINDS];
/* Address of a parameter's gradient, as C text. Arena. */
const char *zp_frame_gradient(const zp_frame *f, int use);
/* A parameter's first element in the flat buffers, as C text. Arena. */
const char *zp_frame_flat(const zp_frame *f, int use);
/* Whether a sum is added to what stands there, as C text. */
const char *zp_frame_accumulate(const zp_frame *f, const zp_param_sum *sum);
/* First logical row or column of this rank's share, as C text: "c->t * 25152" or "0". Arena. */
const char *zp_frame_first(const zp_frame *f, const zp_tensor *t, int dim);
/* " + c->d % CONTEXT * 98304": where the rank's rows of a parameter with a row for every position begin, "" where the
 * graph reads all of it. Arena. */
const char *zp_frame_own_rows(const zp_frame *f, const zp_tensor *table);
/* So many positions of a sample, as C text: by their name where there are as many as the model reads. Arena. */
const char *zp_frame_positions(const zp_frame *f, int64_t positions);

/* So many rows of a step, and where the first of them stands in a buffer, as C text: of the current positions, where
 * the step is one of these alone. Arena. */
const char *zp_frame_rows(const zp_frame *f, int64_t rows);
const char *zp_frame_first_row(const zp_frame *f, int buffer);
/* Rows of the step are slots: those of the current positions, as the initialiser of a zpr_chosen; NULL: they are not.
 * Arena. */
const char *zp_frame_chosen(const zp_frame *f, int buffer);

/* ---- steps/steps.c, shards.c ---- */
/* The comment and the call of one step. */
void zp_emit_step(zp_frame *f, const zp_step *s);
/* Sets the frame's buckets; none where none move. */
void zp_emit_find_buckets(zp_frame *f, int segment);
/* Address of a unit's own parameters (param -1) or of a shared one after `base`, as C text; NULL: it has none.
 * Arena. */
const char *zp_frame_gathered(const zp_frame *f, int param, zp_param_kind kind, const char *base);
/* The first element of a bucket in the flat buffers, as C text. Arena. */
const char *zp_frame_first_element(const zp_frame *f, int bucket);
/* Address of a gradient that waits for the second part of a split backward, as C text. Arena. */
const char *zp_frame_early(const zp_frame *f, int use);
void zp_emit_gathers(zp_frame *f);
void zp_emit_zeroed_gradients(zp_frame *f);
void zp_emit_scatters(zp_frame *f);
/* Prints gathers and scatters of buckets as functions of their own, for what moves alongside the units. */
void zp_emit_move_functions(zp_emit *e, int segment, zp_stage_mode mode);

#endif
