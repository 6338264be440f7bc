/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the replay of a program over poisoned memory. */
#ifndef ZPLAN_REPLAY_INTERNAL_H
#define ZPLAN_REPLAY_INTERNAL_H

#include <zplan/moves.h>
#include <zplan/proof.h>

#include "shadow.h"

/* One call of a procedure for every micro-batch: an iteration of a segment or piece, in the order of the chunk. */
typedef struct zp_replay_call {
  const zp_run *run;
  const zp_segment_program *seg;
  const struct zp_replay_segment *known;
  int64_t i;          /* in the run */
  int64_t first, end; /* units of the model: what flows in stands before `first`, what flows out before `end` */
} zp_replay_call;

/* Where a tensor begins in the value that it stands for, in elements: in its rows; and, of some of its rows, how many
 * elements of it are before them. */
typedef struct zp_replay_part {
  int64_t column, before;
} zp_replay_part;

/* The tensor of the graph whose value a tensor is a part of, itself mostly. */
typedef struct zp_replay_name {
  int tensor;
  zp_replay_part part;
} zp_replay_name;

/* Where a buffer's whole value stands from the first byte of what owns its storage on; fits: inside its rows. */
typedef struct zp_replay_form {
  zp_shadow_place place;
  bool fits;
} zp_replay_form;

/* What all calls of a segment share. */
typedef struct zp_replay_segment {
  zp_replay_name *name;                      /* of its graph's tensors; NULL: nothing is called */
  zp_replay_form *forward, *loss, *backward; /* of the procedures' buffers */
} zp_replay_segment;

typedef struct zp_replay_chunk {
  int64_t part; /* of the model */
  bool is_last; /* of the model's chunks */
  zp_replay_call *call;
  int64_t calls;
} zp_replay_chunk;

typedef enum zp_replay_pass {
  ZP_REPLAY_FORWARD,
  ZP_REPLAY_BACKWARD,
  ZP_REPLAY_INPUTS,
  ZP_REPLAY_WEIGHTS
} zp_replay_pass;

/* One call at work. Byte offsets in the arena; -1: absent. */
typedef struct zp_replay_frame {
  const zp_replay_chunk *chunk;
  const zp_replay_call *call;
  const zp_procedure *p;
  zp_replay_pass pass;
  const zp_replay_form *form; /* of the procedure's buffers, while steps run */
  int64_t j, mb;
  int step;                             /* at work, for messages; -1: around the steps */
  int64_t saved, pending, x, y, dy, dx; /* x: of the unit's own input */
  int64_t slot;                         /* whose first bytes are the chunk's streams */
  const zp_replay_call *next;           /* which y is the own input of; NULL: y is a message */
  int64_t params, gradients;            /* of the rings' buffers; -1: the flat buffers are used */
} zp_replay_frame;

/* What a ring of gradients still has to give away: a unit's gradients of one micro-batch. */
typedef struct zp_replay_leaving {
  bool waits;
  zp_replay_frame frame;
} zp_replay_leaving;

/* Saved values on their way off the device. */
typedef struct zp_replay_going {
  int64_t ring, here, here_bytes, offloaded, offloaded_bytes;
} zp_replay_going;

enum { ZP_REPLAY_GOING = 4 };

/* One stage: a rank of it stands for all, because they run the same steps. */
typedef struct zp_replay {
  zp_arena *arena; /* of the call, given back */
  const zp_program *program;
  const zp_stage *stage;
  const zp_lowered *lowered;
  zp_shadow device, offloaded; /* the arena; slots of saved values off the device */
  zp_replay_chunk *chunk;
  zp_replay_segment *known; /* of the lowering's segments, then of its rest's */
  int64_t products_bytes;
  int64_t microbatches;         /* that are played */
  int64_t *owner;               /* of the slots of a pool: 1 + chunk * microbatches + micro-batch; 0: free */
  zp_replay_leaving leaving[2]; /* of the ring's buffers */
  bool **alone;                 /* [segment][use]: kept as its cast alone; NULL: nothing is */
  int turn;                     /* buffer of the ring of gradients, where calls take turns */
  zp_replay_going going[ZP_REPLAY_GOING];
  int n_going;
  zp_arena *words; /* of the findings */
  zp_strings *findings;
  int n_found; /* of this stage */
} zp_replay;

/* ---- replay_values.c: what a number in the shadow memory means ---- */
typedef enum zp_replay_kind {
  ZP_TAG_POISON,
  ZP_TAG_TENSOR,     /* tensor a of the unit's graph, made by unit b for micro-batch c */
  ZP_TAG_CARRY,      /* tensor a of what flows into unit b for micro-batch c */
  ZP_TAG_CARRY_GRAD, /* its gradient */
  ZP_TAG_SHARD,      /* the rank's shard of it */
  ZP_TAG_OPERAND,    /* as TENSOR, of what is kept for products in 8 or 4 bits */
  ZP_TAG_INPUT,      /* input a of micro-batch c */
  ZP_TAG_PARAM,      /* parameter a, iteration b */
  ZP_TAG_STATE,      /* region a, which no step of a micro-batch may touch */
  ZP_TAG_GRADIENT,   /* a sum of contributions; the rest of the bits are their sum */
} zp_replay_kind;
enum { ZP_REPLAY_BITS = 20 }; /* of a tensor, unit or micro-batch in a value */
static inline uint64_t zp_replay_value(zp_replay_kind kind, int64_t a, int64_t b, int64_t c) {
  const uint64_t mask = (UINT64_C(1) << ZP_REPLAY_BITS) - 1;
  return (uint64_t)kind << 60 | ((uint64_t)a & mask) << 2 * ZP_REPLAY_BITS | ((uint64_t)b & mask) << ZP_REPLAY_BITS |
         ((uint64_t)c & mask);
}
/* "`h.3 mlp.fc` of micro-batch 2", "nothing that was ever written". */
const char *zp_replay_value_text(const zp_replay *r, uint64_t value);

/* Records what is wrong, with the place of the frame. frame: NULL where no call is at work. */
void zp_replay_find(zp_replay *r, const zp_replay_frame *frame, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Wants the value at the place; what is there instead is a finding about `what`. */
bool zp_replay_want(zp_replay *r, const zp_replay_frame *frame, zp_shadow_place place, uint64_t value,
                    const char *what);

/* ---- replay_walks.c ---- */
void zp_replay_act(zp_replay *r, const zp_action *action);
/* The bytes from `at` on of tensor i of what flows into the call, or out of it. */
zp_shadow_place zp_replay_carried(const zp_replay *r, const zp_replay_call *call, bool in, int64_t at, int i);
/* Byte address of tensor i of what flows into the frame's call forward, or out of it; -1: nowhere. */
int64_t zp_replay_in_at(const zp_replay *r, const zp_replay_frame *frame, int i);
int64_t zp_replay_out_at(const zp_replay *r, const zp_replay_frame *frame, int i);
/* What is known of tensor i of what flows before unit `unit`: units that hand it on do not change it. */
uint64_t zp_replay_flowing(const zp_replay *r, int i, int64_t unit, int64_t mb);
/* The message of micro-batch mb may be on its way until its buffer is wanted again, and is whole until then. No such
 * micro-batch: nothing is wanted. */
void zp_replay_expect_message(zp_replay *r, const zp_replay_chunk *chunk, bool up, int64_t mb);

/* ---- replay_steps.c ---- */
/* Runs steps [first, last) of the frame's procedure. */
void zp_replay_steps(zp_replay *r, zp_replay_frame *frame, int first, int last);
/* Finds names and forms of a segment, once. */
const zp_replay_segment *zp_replay_know(zp_replay *r, const zp_run *run);
/* The value that a tensor of the frame's graph stands for, and which part of it. */
uint64_t zp_replay_value_of(const zp_replay *r, const zp_replay_frame *frame, int tensor, zp_replay_part *part);
/* Operands of one micro-batch on the stage: what a replay costs. */
int64_t zp_replay_cost(const zp_replay *r);

/* ---- replay_params.c: parameters, gradients, their rings, state ---- */
/* Where a model input of a micro-batch stands in the arena, in bytes. Requires a stage with inputs. */
int64_t zp_replay_input_at(const zp_replay *r, int input, int64_t mb);
/* What stands in the arena when a step begins. */
void zp_replay_load(zp_replay *r);
/* Parameters come for call j: into the ring, where there is one. */
void zp_replay_gather(zp_replay *r, const zp_replay_chunk *chunk, int64_t j);
/* Sets `params` and `gradients` of the frame, and what its gradients begin with. */
void zp_replay_open(zp_replay *r, zp_replay_frame *frame);
/* The frame's gradients leave, where they do. */
void zp_replay_close(zp_replay *r, zp_replay_frame *frame);
/* Byte address of a parameter; -1: it is not there in this pass. */
int64_t zp_replay_param_at(const zp_replay *r, const zp_replay_frame *frame, int use);
void zp_replay_sum(zp_replay *r, const zp_replay_frame *frame, const zp_step *step);
/* The step is over: gradients are complete, state is as it was. */
void zp_replay_check_end(zp_replay *r);
/* Do the units' parameters come into one of two buffers while the unit before works? */
bool zp_replay_gathers_ahead(const zp_replay *r);
/* Do gathers and scatters run in a stream of their own? */
bool zp_replay_buckets_overlap(const zp_replay *r);

/* ---- replay_moves.c ---- */
/* Elements of the stage's weights that are kept as casts alone. Requires: its calls. */
int64_t zp_replay_count_casts(const zp_replay *replay);
/* Requires: the calls of the stage. list: zp_stage_moves of it. */
void zp_replay_check_moves(zp_replay *r, const zp_move_list *list);
/* replay.c: that alone, for any list. Findings from the arena. */
void zp_replay_moves(zp_arena *arena, const zp_program *program, int stage, const zp_move_list *list,
                     zp_strings *findings);

/* ---- replay_casts.c: weights that are kept as casts alone ---- */
/* Fills in `alone`; before any address of a parameter is found. */
void zp_replay_find_casts(zp_replay *r);
/* Byte address of a parameter, so many elements from the start of the flat buffers; -1: nowhere. */
int64_t zp_replay_flat_param_at(const zp_replay *r, const zp_replay_call *call, int use, int64_t element);

#endif
