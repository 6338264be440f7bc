/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the trainer printer. All decisions are in the program; these functions only print. */
#ifndef ZPLAN_TRAINER_EMIT_H
#define ZPLAN_TRAINER_EMIT_H

#include <zplan/decimal.h>
#include <zplan/trainer.h>

/* Calls of the runtime that move something; moves.c says which records ask for them. */
typedef enum zp_call {
  ZP_CALL_READ_PARAMS,        /* from a disk, two units ahead */
  ZP_CALL_FETCH_PARAMS,       /* from the host into the ring, a unit ahead */
  ZP_CALL_GATHER_PARAMS,      /* into the buffer of a unit */
  ZP_CALL_GATHER_OVERLAPPED,  /* while the unit before computes */
  ZP_CALL_SCATTER_GRADS,      /* from the buffer of a unit to where they are kept */
  ZP_CALL_SCATTER_OVER_RANKS, /* summed over the data ranks on that way */
  ZP_CALL_SCATTER_OVERLAPPED, /* while the unit after computes */
  ZP_CALL_LAND_GRADS,         /* on the host */
  ZP_CALL_REDUCE_GRADS,       /* over the data ranks alongside the last backward */
  ZP_CALL_SAVED_READ,         /* from a disk, two units ahead */
  ZP_CALL_SAVED_GET,          /* into the ring, a unit ahead */
  ZP_CALL_SAVED_PUT,          /* out of the ring */
  ZP_CALL_ONE_BIT_EXCHANGE,   /* 1-bit Adam's, in the update */
  /* Once a step: before the norm, over the data ranks all at once or bucket by bucket, over tied stages, over the
   * tensor ranks; after the update. */
  ZP_CALL_SUM_FLAT,
  ZP_CALL_SUM_BUCKETS,
  ZP_CALL_SUM_TIES,
  ZP_CALL_SUM_PARTIAL,
  ZP_CALL_SHARE_WEIGHTS,
  ZP_CALL_COUNT
} zp_call;

/* A step as profile.c tells it: whose it is, so that every stage can say what it costs there. */
typedef struct zp_profiled_step {
  int segment, index; /* of the procedure's steps */
  zp_stage_mode mode;
  bool forward;
  const char *procedure; /* "h forward" */
} zp_profiled_step;
typedef ZP_VEC(zp_profiled_step) zp_profiled_steps;

typedef struct zp_emit {
  zp_arena *arena;
  zp_buf out;
  const zp_plan *plan;
  const zp_program *program;
  const zp_lowered *lowered; /* what all stages share; steps and kept values come from zp_emit_variant */
  const zp_model *model;
  const zp_diags *diags;
  zp_kernel_set *kernels;
  bool gpu;
  unsigned calls;             /* bit zp_call: some unit has it */
  bool profile;               /* the trainer says where it is: calls of zpr_step, zpr_begin_action and what they mean */
  zp_profiled_steps profiled; /* steps that were printed, in the order of their numbers */
  const struct zp_decoding *decoding; /* decode.h; NULL: it does not continue texts position by position */
} zp_emit;

/* moves.c */
unsigned zp_emit_find_calls(const zp_emit *e);
static inline bool zp_emit_calls(const zp_emit *e, zp_call call) { return e->calls >> call & 1; }
/* Do buckets of units come to buffers, or go from them? */
static inline bool zp_emit_buckets_move(const zp_emit *e) {
  return zp_emit_calls(e, ZP_CALL_GATHER_PARAMS) || zp_emit_calls(e, ZP_CALL_SCATTER_GRADS);
}
/* Numbers of the buckets (zp_unit_buckets) of a segment's unit that have the call in an action. Arena. */
zp_ints zp_emit_bucket_calls(const zp_emit *e, int segment, zp_act act, zp_call call);

/* What a function of a segment does: INPUTS and WEIGHTS are BACKWARD in two parts; LOSS follows FORWARD where no
 * backward does, and backward makes the loss otherwise. */
typedef enum zp_pass {
  ZP_PASS_FORWARD,
  ZP_PASS_LOSS,
  ZP_PASS_BACKWARD,
  ZP_PASS_INPUTS,
  ZP_PASS_WEIGHTS,
  ZP_PASS_GATHER,  /* alongside others: its parameters come */
  ZP_PASS_SCATTER, /* its gradients go */
  ZP_PASS_DECODE   /* FORWARD of some positions */
} zp_pass;

/* May the program have parameters of a kind besides those that all data ranks hold? */
static inline bool zp_emit_has(const zp_emit *e, zp_param_kind kind) {
  return kind == ZP_KIND_SPREAD ? zp_expert_ranks(&e->program->choice) > 1
                                : kind == ZP_KIND_FROZEN && zp_model_has_frozen(e->model);
}

/* names.c */
/* "mlp.c_fc" -> "mlp_c_fc"; C keywords and leading digits are escaped. Arena. */
const char *zp_emit_identifier(zp_arena *arena, const char *name);
/* "gpt2.dz:14" with the folder left out, "" without a place. */
const char *zp_emit_place(const zp_emit *e, zp_span span);
/* Names of a segment in the generated enum and of its functions: "SEG_H", "SEG_H_FULL"; "h_forward",
 * "h_forward_full". */
const char *zp_emit_segment(const zp_emit *e, int segment, zp_stage_mode mode);
const char *zp_emit_function_name(const zp_emit *e, int segment, zp_stage_mode mode, zp_pass pass);

/* facts.c */
/* Are operands stored in 16 bits, with statistics, sums and state in f32? */
bool zp_emit_mixed(const zp_emit *e);
/* Procedures are printed once for every mode in which some stage runs a segment; segments outside repeats are the same
 * in all modes. NULL: not printed for this mode. */
const zp_segment_program *zp_emit_variant(const zp_emit *e, int segment, zp_stage_mode mode);
/* Do chunks of some stage take their slots from one pool? */
bool zp_emit_pools(const zp_emit *e);
/* Does the model have tensors that units read or hand on unchanged (zp_carry)? Then units find every tensor on its
 * own. */
bool zp_emit_streams(const zp_emit *e);

/* dispatch.c */
/* A switch over segments that calls their functions, inside a function with zpr *c, const layout *s, const run *r, unit
 * u, mb. */
void zp_emit_dispatch(zp_emit *e, zp_pass pass);
/* The initializer of a unit in such a function, from i, slot and, with `pending`, pending. */
void zp_emit_unit(zp_emit *e, bool pending);
/* Where iteration i of run r has its elements: designated initialisers of a `unit`. Whoever makes one prints these. */
const char *zp_emit_unit_elements(const zp_emit *e);

/* shapes.c. All texts: arena. Dimension i of a shape, "3*d/2"; a shape in symbols, "[B*S, 3*d/2]", and with its
 * numbers,
 * "[B*S, 3*d/2] = [1024, 192]", which stand alone where no symbol is known. */
const char *zp_emit_extent(const zp_emit *e, const zp_shape *shape, int i);
const char *zp_emit_symbols(const zp_emit *e, const zp_shape *shape);
const char *zp_emit_shape(const zp_emit *e, const zp_shape *shape);
/* The shape of a buffer with a tensor's rows and columns: the extents of what agrees with the tensor. NULL: no
 * tensor. */
zp_shape zp_emit_matrix_of(const zp_emit *e, const zp_shape *shape, int64_t rows, int64_t cols);
/* "B = 16 (samples of a micro-batch), V = 256, S = 64" */
const char *zp_emit_legend(zp_arena *arena, const zp_model *model, int64_t microbatch);

/* The comment at the top of a file that is `what`: what made it, its plan, memory of a rank, the predicted step, the
 * legend of shapes. arch: of a GPU, NULL for CPU plans. */
void zp_emit_header(zp_emit *e, const char *what, const char *arch);
void zp_emit_tables(zp_emit *e); /* dimensions, parameters, stages */
void zp_emit_layouts(zp_emit *e);
void zp_emit_procedures(zp_emit *e, int segment, zp_stage_mode mode);
void zp_emit_walks(zp_emit *e); /* units of a stage or chunk, one after the other */
/* profile.c, all of it nothing without --profile. Step `index` of a procedure begins; a procedure's steps are done;
 * micro-batch mb of an action ('F', 'B', 'I', 'W') begins. */
void zp_emit_profiled_step(zp_emit *e, const zp_profiled_step *step);
void zp_emit_profiled_end(zp_emit *e);
void zp_emit_profiled_action(zp_emit *e, char what);
void zp_emit_profile_tables(zp_emit *e); /* what the steps are, and what the plan says of them */

void zp_emit_order(zp_emit *e);   /* the order of micro-batches */
void zp_emit_program(zp_emit *e); /* the zpr_program table and main */
/* generated.c: false with *error where files of the folder that a build would write are not zplan's. */
bool zp_generated_may_begin(zp_arena *arena, const char *dir, const char **error);
/* A file of a generated folder, left alone when it already says this (*changed is set, never cleared), and
 * refused with *error when it was edited, unless `force`. */
bool zp_generated_write(zp_arena *arena, const char *dir, const char *file, const char *text, bool force, bool *changed,
                        const char **error);
/* model_hash.c: of the model's operations, the same for all its plans. Arena. */
const char *zp_model_hash(const zp_emit *e);

/* overlapped.c: what runs while units compute. */
void zp_emit_overlapped(zp_emit *e); /* functions that start to move a unit's buckets */
/* In a walk, before and after the call of unit j's function: waits, buffers in use, the next unit's gather. `next`: the
 * unit after j, as C text, and the condition that there is one. */
void zp_emit_before_unit(zp_emit *e, zp_pass pass, const char *is_next, const char *next);
void zp_emit_after_unit(zp_emit *e, zp_pass pass);
void zp_emit_before_walk(zp_emit *e, zp_pass pass, const char *first);

/* reduce.c: sums alongside the last backward, and what is sent after it. */
/* Fields of a layout, and their values of chunk k of stage s: where shared parameters have their last gradient. */
void zp_emit_last_uses_type(zp_emit *e);
void zp_emit_last_uses(zp_emit *e, int s, int k);
/* The function that starts to reduce a unit's buckets; its call, after unit j. */
void zp_emit_reduce(zp_emit *e);
void zp_emit_reduce_unit(zp_emit *e, zp_pass pass);
/* Functions of what is sent once a step; their places in the program table. */
void zp_emit_end_of_step(zp_emit *e);
void zp_emit_end_fields(zp_emit *e);

/* params.c: plans whose parameters leave the device, at least in part. Where a unit's parameters come to, and how:
 * params_of, fetch, read_ahead. */
void zp_emit_fetch(zp_emit *e);
/* A unit of a walk that is still to come, and whether there is one: C text. */
typedef struct zp_unit_ahead {
  const char *unit, *there_is;
} zp_unit_ahead;
/* Inside a walk: before its first unit, and before unit j works. */
void zp_emit_params_begin(zp_emit *e, const char *first, const char *second);
void zp_emit_params_next(zp_emit *e, zp_unit_ahead next, zp_unit_ahead after);

/* saved.c: plans whose saved values leave the device, at least in part. Where units work and where their saved values
 * are then: ring_of, input_of, saved_of. */
void zp_emit_saved_places(zp_emit *e);
/* Inside a walk, for unit j: before it works, and after it forward; the end of a forward, the begin of a backward. */
void zp_emit_saved_make_room(zp_emit *e);
void zp_emit_saved_put(zp_emit *e);
void zp_emit_saved_end(zp_emit *e);
void zp_emit_saved_begin(zp_emit *e);
void zp_emit_saved_put_again(zp_emit *e); /* after unit j of a split backward's first part, and after its last unit: */
void zp_emit_saved_put_again_end(zp_emit *e);
void zp_emit_saved_get(zp_emit *e);

/* makefile.c: how to rebuild the tree by hand. arch: of a GPU, NULL for CPU plans. Arena. */
const char *zp_emit_zplan_mk(zp_arena *arena, const zp_toolchain *tools, const char *compiler);
const char *zp_emit_makefile(const zp_emit *e, const char *arch);

#endif
