/* SPDX-License-Identifier: Apache-2.0 */
/* The plan as a program: for every pipeline stage procedures of steps over buffers at fixed offsets of one arena, and
 * an order table. Simulate prices it, verify proves it, report draws it, codegen prints it.
 *
 * Units: the pipeline's indivisible parts, numbered along the model: one per segment iteration, or one per part of the
 * iteration in plans that cut inside layers (pieces.h). A stage is a range of units. Procedures are per segment, and
 * per piece of a segment where a stage runs one, not per unit or stage: program size does not grow with depth. */
#ifndef ZPLAN_PROGRAM_H
#define ZPLAN_PROGRAM_H

#include <zplan/kinds.h>
#include <zplan/order.h>
#include <zplan/pieces.h>
#include <zplan/regions.h>
#include <zplan/shard.h>

/* Where a buffer lives. Offsets are relative to what the place says. */
typedef enum zp_place {
  ZP_AT_PARAM,   /* parameter of a repeat: flat buffer, instance base of its kind + offset (elements) */
  ZP_AT_SHARED,  /* parameter declared outside repeats: flat buffer, zp_stage.shared says where */
  ZP_AT_PENDING, /* the unit's area in what waits for gradients of weights: kept from BI to BW (split backward only) */
  ZP_AT_SAVED,   /* the unit's area in the micro-batch's slot: kept from forward to backward */
  ZP_AT_TRANSIENT, /* the stage's transient region: lives inside one procedure call */
  ZP_AT_INPUT,     /* model inputs of the whole step */
  /* Arguments: all carried tensors, or their gradients, one after the other (zp_carried_elements). */
  ZP_AT_CARRY_IN,  /* x */
  ZP_AT_CARRY_OUT, /* y */
  ZP_AT_GRAD_IN,   /* dy, of backward */
  ZP_AT_GRAD_OUT,  /* dx, of backward */
} zp_place;

typedef struct zp_buffer {
  const char *name;
  zp_place place : 8;
  zp_element element : 8;
  zp_param_kind kind : 8;    /* PARAM, SHARED */
  bool operand;              /* kept as products in 8 or 4 bits read it, with its scales: `bytes` */
  int base;                  /* buffer whose storage a view or alias uses; -1 */
  int64_t rows, cols, ld;    /* ld, offsets in elements for views; rows * ld elements of storage for the rest */
  int64_t offset;            /* bytes (elements for parameters); of a view or alias: elements from its base's start */
  int64_t bytes;             /* of own storage, 0 for views and aliases */
  int first_step, last_step; /* live range inside its procedure (TRANSIENT only) */
  int tensor;                /* of the graph; -1: workspace or a kept shard */
  int index;                 /* PARAM, SHARED: entry of graph->params; INPUT: model input; arguments: which of the
                              * carried tensors */
} zp_buffer;

typedef struct zp_param_sum { /* a step's contribution to a parameter's gradient */
  int use;                    /* index into graph->params */
  bool accumulate; /* always add (an earlier step of the same backward has written, or it is zeroed at step start);
                    * false: overwrite on the first micro-batch of a step, add later */
} zp_param_sum;

/* Attention in a ring of context ranks. */
typedef struct zp_ring {
  int64_t rows, window;  /* rows: positions of a stretch, of which a rank has two */
  int64_t half_elements; /* keys and values of a stretch, of all samples */
  const double *pairs;   /* of a pattern: zp_layout_between of all stretches */
  int ranks;             /* 0: by keys, nothing is passed on */
  bool causal;
} zp_ring;
/* comm_elements of a forward step: in windows and patterns what all ranks send together, else those of an exchange. */
int64_t zp_ring_elements(const zp_ring *ring);
/* What a rank receives in a round, at most, and which share of its work it does in it, at least. */
typedef struct zp_ring_round {
  int64_t elements;
  double share;
} zp_ring_round;
zp_ring_round zp_ring_round_of(const zp_ring *ring, int64_t round);
/* Calls of a window (runtime/pairs.c) of the rank that computes most, whose stretches are neighbours in the middle of
 * the sample: of a stretch of queries with one so many before it, and without causality after it. */
typedef struct zp_window_call {
  int64_t queries, keys;
  int64_t window; /* 0: none */
  int times;      /* a sample */
  bool triangle;  /* as many keys as queries, each sees those up to its own */
} zp_window_call;
enum { ZP_WINDOW_CALLS = 3 };
/* Calls at a distance in stretches, 0 for a stretch with its own keys; 0 calls: and at none further. */
int zp_window_calls(const zp_ring *ring, int64_t distance, zp_window_call list[ZP_WINDOW_CALLS]);
/* Which share of all pairs of a pattern the rank sees that sees most, between how many pairs of stretches. */
double zp_pattern_share(const double *pairs, int64_t ranks, int *calls);

typedef struct zp_step {
  zp_op op;
  enum { ZP_STEP_NODE, ZP_STEP_KEEP_SHARD, ZP_STEP_GATHER_SHARD, ZP_STEP_COPY, ZP_STEP_KEEP_OPERAND } kind : 8;
  bool deferred;       /* backward: of BW when it is split, a product for weights or a sum over columns */
  bool hands_on;       /* COPY of a stream: left out where what flows out is where it came in */
  bool routed;         /* an exchange of as many rows as routing sends; comm_elements are those of the rank's choices */
  bool reads_kept;     /* a weight's gradient: the activation is there as the product reads it */
  const zp_node *node; /* NULL for steps made by lowering: all kinds but NODE */
  zp_ints in, out;     /* buffer indices of the procedure, in the order of the node's in/out */
  ZP_VEC(zp_param_sum) sums;
  int workspace;         /* buffer index, -1 */
  int row_chunks;        /* that sums over rows are made in; 0: there are none */
  double flop, bytes;    /* work of one call */
  int64_t comm_elements; /* per rank: payload of a collective over the tensor axis or an expert group, 0 for others */
  zp_ring ring;          /* attention whose keys and values are passed on; ranks 0 for others */
  int64_t elements;      /* KEEP_OPERAND: rounded */
  double cost_s;         /* filled in by pricing */
  double alone_s;        /* the same of a ring: what it computes, without waiting for what is passed on */
} zp_step;

typedef struct zp_procedure {
  const char *name; /* "h_forward" */
  ZP_VEC(zp_buffer) buffers;
  ZP_VEC(zp_step) steps;
  int n_recompute; /* backward: the first steps that rebuild forward values */
  int n_inputs;    /* split backward: the first steps, which are BI; the rest is BW. 0 otherwise */
  int64_t transient_bytes;
  double cost_s;
  double product_flop; /* priced: of its matrix products and attention */
  /* Outlines, once they are priced: `steps` has collectives alone. Where it has exchanges of experts, the seconds of
   * all its steps, [n_seconds], and which of these each of the collectives is; else NULL. */
  double *seconds;
  int n_seconds, *place;
} zp_procedure;

/* A stream is a carried tensor that units read or hand on unchanged, from the unit after its maker to the last one
 * that it comes into. A chunk's slot has it once; what is changed is each unit's own. streams.c says which are. */
typedef struct zp_carry {
  int stream;  /* entry of zp_lowered.streams, -1: the unit's own */
  bool passes; /* the stream goes on after the unit */
  int64_t at;  /* own ones: elements from where the unit's own input begins */
} zp_carry;

typedef struct zp_segment_program {
  const zp_segment *segment; /* of the model, or a piece of one */
  const zp_graph *graph;     /* local, fused, differentiated */
  zp_procedure forward, backward;
  /* Backward for schedules that split it, where zp_lowered.splits; zp_backward_of says which. */
  zp_procedure split;
  /* What makes the loss after a forward that no backward follows (a validation), where training makes it in backward;
   * reads the slot. No steps: forward makes the loss itself. */
  zp_procedure loss;
  int64_t *param_offset; /* elements from the instance's start of the kind, per graph->params entry; -1: shared, see
                          * zp_stage.shared */
  zp_flat elements;      /* of one instance in the flat buffers (aligned); shared ones not counted */
  int64_t carry_in_elements, carry_out_elements; /* of one micro-batch; 0 at the ends of the model */
  zp_carry *carries;                             /* per entry of graph->carry_in */
  int64_t carry_own_elements;                    /* of the input: what is no stream */
  int64_t carry_kept_elements;                   /* what the unit's area keeps of that: all, or the rank's shard */
  int64_t saved_bytes;   /* of one unit in one slot, the kept input included (it stands first, at offset 0) */
  int64_t pending_bytes; /* of one unit: what a split backward hands from BI to BW besides the slot (output gradients,
                          * rebuilt inputs of weight gradients) */
  int64_t early_bytes;   /* of one unit: gradients that BI yields, which wait behind that where gradients pass
                          * through a ring (zp_moves_gradients) */
  int64_t *early_offset; /* bytes in what waits, per graph->params entry; -1: BI adds nothing to it */
  bool keeps_gradient;   /* BW reads the unit's dy: it stands first of what waits, and BI finds it there */
  bool changes_saved; /* the first part of a split backward writes to saved values: off the device they go out again */
  bool *uses_shared;  /* per entry of zp_lowered.shared */
  int64_t products_bytes;     /* scratch memory of its products (zp_products_bytes); 0: none */
  int64_t statistics;         /* of one instance: zp_statistics of its own parameters, and of them, */
  int64_t split_statistics;   /* of those that tensor ranks share */
  int64_t narrow_weights;     /* elements of an instance's weights whose products are in 8 or 4 bits */
  zp_flat narrow_own;         /* of them in the instance's own trained parameters */
  int64_t update_bytes;       /* of the transient region, that the update works in for one instance, at least */
  double update_s;            /* priced: seconds that the update of one unit computes alongside its records (Muon) */
  double comm_s;              /* priced: of forward and backward, communication over tensor ranks, */
  double expert_s, context_s; /* and in expert and context groups */
  double weights_s;           /* priced: of backward, what BW takes when it is split */
  bool packed;                /* of an outline that is priced */
  bool reads_numbers;         /* inputs that are numbers */
} zp_segment_program;

/* All segments for one (tensor, sequence, micro-batch, recompute, precision); once priced, for one set of node
 * types. */
typedef struct zp_lowered {
  const zp_spec *spec;
  const zp_sharding *sharding;
  int64_t microbatch;
  zp_recompute recompute;
  bool recompute_shard;
  /* Mixed stages (zp_stage_mix): what their layers after the first `layers` of a chunk run; else NULL. All but kept
   * values, and the steps that these come from, is the same. */
  struct zp_lowered *rest;
  int64_t layers;
  int loss_chunks;   /* parts of the tokens that the loss is made by; 1: all at once, in forward */
  bool splits;       /* backward is there in two parts, too, and what waits between them is counted */
  zp_arena *outline; /* as zp_procedures_for has it */
  /* Per element. State: master copy, moments and the average of the weights. */
  int compute_bytes, stat_bytes, param_bytes, grad_bytes, sum_bytes, state_bytes, average_bytes;
  int least_param_bytes; /* of a trained parameter on the device, at least, whatever the plan */
  /* Shares of the steps that prices are of in which ranks exchange signs, and sum gradients (moves/one_bit.c). */
  double exchanged, summed;
  const zp_pieces *pieces;
  int n_segments; /* procedures: the model's segments, then their pieces (pieces.h has the same indices) */
  zp_segment_program *segments;
  int64_t n_units;
  int64_t *param_elements; /* per model parameter: local, padding included, one instance */
  zp_ints shared;          /* model parameters declared outside repeats */
  ZP_VEC(int64_t) streams; /* elements of one micro-batch */
  int **stream_of;         /* per segment of the model and entry of its carry_in: the stream, -1 */
  int ties;                /* trained ones that several units use */
  bool *zero_first;        /* per model parameter: its gradient is only ever added to, so it is zeroed at step start */
} zp_lowered;

typedef struct zp_run { /* consecutive iterations of one segment, or one of a piece, on a stage */
  int segment;
  bool rest;            /* they run the stage's zp_lowered.rest */
  int64_t first, count; /* iterations of the segment */
  int chunk;            /* of the stage: 0 .. chunks-1 */
  zp_flat base;         /* element offset of the first instance in the flat buffers */
  zp_flat stride;       /* elements from instance to instance: the segment's, with ZeRO 1 to 3 padded to whole shards */
  int64_t saved; /* byte offset of the first instance's area inside a slot, streams before it; stride: saved_bytes of
                  * the segment, less zp_saved_offloaded */
  int64_t saved_offloaded; /* the same inside what the slot has off the device; stride: zp_saved_offloaded_stride */
  int64_t pending;         /* the same inside what waits; stride: zp_unit_pending_bytes of the segment */
} zp_run;

/* What the iterations run, with the lowering of their stage. */
static inline const zp_lowered *zp_run_lowered(const zp_lowered *lowered, const zp_run *run) {
  return run->rest ? lowered->rest : lowered;
}
static inline const zp_segment_program *zp_run_segment(const zp_lowered *lowered, const zp_run *run) {
  return &zp_run_lowered(lowered, run)->segments[run->segment];
}
static inline zp_stage_mode zp_run_mode(const zp_lowered *lowered, const zp_run *run) {
  const zp_lowered *runs = zp_run_lowered(lowered, run);
  return zp_stage_mode_of(runs->recompute, runs->recompute_shard);
}
/* Where the parameters of one iteration begin in the flat buffers: elements. */
static inline int64_t zp_run_at(const zp_run *run, zp_param_kind kind, int64_t iteration) {
  return run->base.of[kind] + iteration * run->stride.of[kind];
}

/* A parameter declared outside repeats, as a stage holds it: once, however many segments use it. */
typedef struct zp_shared {
  int param;
  int64_t offset; /* elements in the flat buffers */
} zp_shared;

/* Parameters that lie together in the flat buffers; over those who hold the same they move, and ZeRO shards them,
 * together. A unit works with one bucket of its own parameters of each kind, and one for every shared parameter that it
 * uses. */
typedef struct zp_bucket {
  int param; /* the shared one; -1: the unit's own */
  zp_param_kind kind;
  int64_t elements; /* with ZeRO 1 to 3 whole shards of 64 */
  int64_t at;       /* elements from the start of the ring's buffer in which the unit has its parameters or gradients */
} zp_bucket;

typedef struct zp_memory {
  int64_t weights, gradients, optimizer, saved, buffers; /* on the device: the arena */
  int64_t context, communicators;                        /* and outside of it, estimates */
  int64_t host, nvme;                                    /* of this rank, on its node's host and disks */
} zp_memory;

typedef struct zp_units {
  int64_t first, count;
} zp_units;

/* A stage's share of one model chunk. */
typedef struct zp_chunk {
  zp_units units;
  int64_t slots, slot_stride;      /* most in flight of this chunk; bytes of one slot on the device */
  int64_t offloaded_stride;        /* bytes of one slot off the device */
  uint64_t streams;                /* that come into its units, a bit each: they stand first in a slot */
  int64_t pending, pending_stride; /* the same for weight gradients that wait (schedules that split backward) */
} zp_chunk;

/* From what waits of one micro-batch to the next; pending_stride is without padding. */
int64_t zp_chunk_pending_stride(const zp_chunk *chunk);

typedef struct zp_stage {
  int index;
  int64_t first_unit, n_units; /* of the first chunk; of all chunks together */
  int64_t n_calls;             /* of procedures, for one micro-batch: units, but a whole layer is one call */
  int n_chunks;
  zp_chunk *chunks;
  ZP_VEC(zp_run) runs;
  ZP_VEC(zp_shared) shared; /* first in the flat buffers */
  /* Elements of the flat buffers, one kind after the other; what is not trained has a place in that of the parameters
   * alone. A shard is what the rank updates, or keeps of what is not trained. */
  zp_flat flat, shard;
  zp_flat casts;  /* of `flat`: weights that are kept as casts to 8 or 4 bits alone */
  zp_flat bucket; /* largest unit's parameters, shared ones included: a buffer of a ring. What is not trained comes
                   * with ZeRO 3 alone, and has no gradients. */
  int64_t slots, slot_stride; /* slot count = micro-batches in flight. Several chunks: of the pool, when `pooled` */
  int64_t offloaded_stride;   /* the same of what a slot has off the device */
  bool pooled;        /* the chunks take their slots from one pool; otherwise each has its own (zp_chunk.slots) */
  bool reads_numbers; /* some unit does: then the inputs in the arena have the numbers */
  int64_t statistics; /* Adafactor's, of all parameters of the stage, which every rank has */
  int64_t messages, message_stride; /* buffers of a chunk in each direction; bytes from one to the next */
  int64_t saved_ring_stride;        /* bytes of one of the ZP_SAVED_BUFFERS buffers of the saved ring */
  /* Regions: bytes, 0 where the stage has none; byte offsets in the device's arena, the host's or the file, -1 when
   * absent. A ring has two buffers, on CPU ranks without offloading one: of zp_stage_ring_elements parameters, of
   * its trained part gradients. */
  int64_t bytes[ZP_REGION_COUNT], at[ZP_REGION_COUNT];
  int64_t arena_bytes;
  /* Offloaded elements of a class of state, the last of its shard. If the rank holds the class unsharded while data
   * ranks own shards, the last ones of each owner's shard are offloaded (zp_stage_offloaded). On host and disk a piece
   * of optimizer state has its weights, then moments, then the average. */
  int64_t offloaded[ZP_STATE_COUNT];
  /* Elements of a window. OPTIMIZER: of a piece of the update on the host; gradients land and (mixed precision) weights
   * leave in two windows each; state on disks comes and goes through state_windows. A delayed update has all its
   * gradients at once, which the rounded weights then take the place of, and no windows. GRADIENTS, PARAMS: of four
   * windows that a class on disks passes through, the largest bucket, or a rank's shard of it where it holds no more.
   * 0: none. */
  int64_t window[ZP_STATE_COUNT], state_windows;
  zp_memory memory; /* sums to arena_bytes, and what is outside */
} zp_stage;

/* Elements that a rank has off the device of a class that it holds whole, where `gone` of those that it updates are. */
int64_t zp_stage_offloaded(const zp_choice *choice, const zp_stage *stage, int64_t gone);

/* A parameter on several stages. */
typedef struct zp_tied {
  int param;
  zp_ints stages;
  ZP_VEC(int64_t) offset;
  int64_t elements;
  int64_t summed; /* of them, by one rank: all, with ZeRO 1 to 3 its shard, padded */
} zp_tied;

typedef struct zp_program {
  zp_arena *arena;
  const zp_spec *spec;
  zp_choice choice;
  const zp_lowered *lowered; /* of stage 0: for what all stages share (spec, sharding, formats, sizes of parameters and
                              * carries). Steps, kept values and their bytes are those of stage_lowered. */
  const zp_lowered **stage_lowered; /* [pipeline]; stages with equal modes may have different ones */
  int64_t microbatches;             /* of one replica and step */
  zp_stage *stages;                 /* [pipeline] */
  zp_action **order;                /* [pipeline][actions]; NULL: not made, see zp_program_make_priced */
  int64_t *actions;                 /* [pipeline]: entries of the stage's order table */
  ZP_VEC(zp_tied) tied;
} zp_program;

/* The kind of a parameter of the model. */
static inline zp_param_kind zp_kind_of(const zp_lowered *lowered, int param) {
  if (lowered->spec->model->params.data[param].frozen) return ZP_KIND_FROZEN;
  return lowered->sharding->param[param].spread ? ZP_KIND_SPREAD : ZP_KIND_WHOLE;
}

/* ---- lowering ---- */
/* What was lowered before of the same sharding and priced for the same ranks, expert groups apart. */
typedef ZP_VEC(const zp_lowered *) zp_lowered_list;
/* NULL with *reason (arena) when the model needs what lowering does not build. Does not price. */
zp_lowered *zp_lower(zp_arena *arena, const zp_spec *spec, const zp_sharding *sharding, int64_t microbatch,
                     zp_recompute recompute, bool recompute_shard, const char **reason);
/* What procedures are made for. */
typedef struct zp_procedures_for {
  int64_t microbatch;
  zp_stage_mode mode;
  int loss_chunks; /* the loss by so many parts of the tokens, in backward (zp_chunk_loss); 1: at once */
  bool splits;     /* some schedule splits backward */
  /* NULL: none. Procedures are for bytes and prices alone: they and their steps name no buffers, and the steps stand
   * here, until zp_pack_outline has packed them. */
  zp_arena *outline;
} zp_procedures_for;
/* As zp_lower, which is for a loss made at once and any schedule. Procedures that are the same as in one of `before`
 * (may be NULL) are shared with it. */
zp_lowered *zp_lower_for(zp_arena *arena, const zp_spec *spec, const zp_sharding *sharding,
                         const zp_procedures_for *what, const zp_lowered_list *before, const char **reason);
/* Adds the pieces of layers to what zp_lower made, for plans that cut inside them. Shares the segments' procedures with
 * `lowered`, and pieces with those of `before` (may be NULL) that are the same; the pieces' are not priced. NULL with
 * *reason (arena) when no layer of the model can be cut, or not with this sharding. */
zp_lowered *zp_lower_pieces(zp_arena *arena, const zp_lowered *lowered, const zp_lowered_list *before,
                            const char **reason);
/* The lowering of a mixed stage: `first`, with `rest` for what comes after so many layers of a chunk. Both borrowed. */
zp_lowered *zp_lower_mixed(zp_arena *arena, const zp_lowered *first, zp_lowered *rest, int64_t layers);
/* The procedures of `known` once more, to be priced for expert groups on other links: what no exchange is near is
 * shared, and all that is packed. whole: segments that are no pieces are its, unless it is NULL. Arena; the other two
 * live as long. */
zp_lowered *zp_lower_again(zp_arena *arena, const zp_lowered *known, const zp_lowered *whole);
/* What every stage of a choice with the tensor degree of the sharding runs: one zp_lowered for every mode, mix of modes
 * and set of node types that occurs. Backward is in two parts where the choice's schedule splits it, and only there.
 * [pipeline], arena; NULL with *reason. Whatever takes a zp_lowered and a stage, here and below, wants the one of that
 * stage. */
zp_lowered **zp_lower_stages(zp_arena *arena, const zp_spec *spec, const zp_sharding *sharding, const zp_choice *choice,
                             const char **reason);
static inline const zp_procedure *zp_backward_of(const zp_segment_program *segment, zp_schedule schedule) {
  assert(!zp_schedule_splits(schedule) || segment->split.name);
  return zp_schedule_splits(schedule) ? &segment->split : &segment->backward;
}
/* Bytes of an element of a class of state that has elements. */
static inline int zp_state_element_bytes(const zp_lowered *lowered, zp_state state) {
  assert(state < ZP_STATE_ACTIVATIONS);
  return state == ZP_STATE_OPTIMIZER   ? lowered->state_bytes
         : state == ZP_STATE_GRADIENTS ? lowered->grad_bytes
                                       : lowered->param_bytes;
}
/* Bytes of an element as the device keeps it from one micro-batch to the next, at least. */
static inline int zp_kept_element_bytes(const zp_lowered *lowered, zp_state state) {
  if (state == ZP_STATE_PARAMS) return lowered->least_param_bytes;
  return state == ZP_STATE_GRADIENTS ? lowered->sum_bytes : zp_state_element_bytes(lowered, state);
}
/* ---- products in 8 or 4 bits (moves/narrow_weights.c) ---- */
/* Does an instance of the segment keep the parameter of this use as its cast alone? */
bool zp_casts_stand_alone(const zp_lowered *lowered, const zp_choice *choice, const zp_segment_program *segment,
                          int use);
/* Elements of casts that stand alone, among an instance's parameters of the kind. */
int64_t zp_own_casts(const zp_lowered *lowered, const zp_choice *choice, int segment, zp_param_kind kind);
/* ---- Muon (moves/whole_matrices.c) ---- */
/* Is the model's parameter a matrix that Muon updates, and that tensor ranks share? */
bool zp_shares_matrix(const zp_lowered *lowered, int param);
/* ---- Adafactor (moves/statistics.c) ---- */
/* Is the parameter shared out over the tensor ranks? Then so are the sums of squares that its statistics come from. */
bool zp_splits_statistics(const zp_lowered *lowered, int param);
/* Bytes of the transient region that the update of an instance works in, or of a parameter alone. */
int64_t zp_statistics_room(const zp_choice *choice, int64_t statistics);
/* Bytes of the transient region that calls of the segment's procedures need, and the update of its parameters, at
 * least. */
static inline int64_t zp_transient_bytes(const zp_segment_program *segment, zp_schedule schedule) {
  int64_t most = zp_backward_of(segment, schedule)->transient_bytes;
  if (most < segment->forward.transient_bytes) most = segment->forward.transient_bytes;
  if (most < segment->update_bytes) most = segment->update_bytes;
  return most < segment->loss.transient_bytes ? segment->loss.transient_bytes : most;
}
/* Do gradients of a split backward's first part wait for the second one, which scatters them? */
static inline bool zp_early_gradients_wait(const zp_choice *choice) {
  return zp_moves_gradients(choice) && zp_schedule_splits(choice->schedule);
}
/* Elements of a buffer of the ring of parameters. */
static inline int64_t zp_stage_ring_elements(const zp_stage *stage) { return zp_flat_all(&stage->bucket); }
/* Bytes that one unit keeps between the parts of a split backward; 0 where the schedule splits none. */
static inline int64_t zp_unit_pending_bytes(const zp_segment_program *segment, const zp_choice *choice) {
  if (!zp_schedule_splits(choice->schedule)) return 0;
  return segment->pending_bytes + (zp_early_gradients_wait(choice) ? segment->early_bytes : 0);
}
/* Does the step exchange something in an expert group or a context group; in a context group? */
bool zp_step_is_exchange(const zp_step *step);
bool zp_step_is_of_context(const zp_step *step);
/* Attention whose keys and values are passed on while it computes: its price is of both. */
bool zp_step_is_ring(const zp_step *step);
/* Bytes of one element of the collective that the step is. */
int zp_step_element_bytes(const zp_lowered *lowered, const zp_step *step);

/* Trained parameters that several units use, and so perhaps several stages. */
int zp_count_ties(const zp_model *model);

/* ---- layout ---- */
/* Lays out the arena of one stage of the choice's cut: exact bytes, with tables (arena). */
void zp_layout_stage(zp_arena *arena, const zp_lowered *lowered, const zp_choice *choice, int stage, zp_stage *out);
/* Memory of a stage whose chunk k runs units part[k], for the search: the same arithmetic without the tables. Context
 * and communicators left 0.
 * flight: micro-batches that its chunks keep, where the caller knows them; else NULL. O(chunks * segments), no
 * allocation. */
zp_memory zp_stage_footprint(const zp_lowered *lowered, const zp_choice *choice, int stage, const zp_units *part,
                             const int64_t *flight);
/* Memory of a stage of one chunk that is neither the first nor the last one: any other such stage with as many units of
 * the same kinds differs only in how many micro-batches are in flight, and wait for their weight gradients. */
typedef struct zp_inner_stage {
  zp_memory memory;
  int64_t flight, pending;                    /* micro-batches */
  int64_t slot, offloaded_slot, pending_slot; /* bytes that one more adds: in flight, off the device, waiting */
} zp_inner_stage;
zp_inner_stage zp_inner_footprint(const zp_lowered *lowered, const zp_choice *choice, int stage, const zp_units *part);
zp_memory zp_inner_memory(const zp_inner_stage *known, const zp_spec *spec, const zp_choice *choice, int stage);
/* The buckets of a unit of `segment`, in the order in which they stand in a ring; out: room for ZP_KINDS +
 * lowered->shared.len. */
int zp_unit_buckets(const zp_lowered *lowered, const zp_choice *choice, int segment, zp_bucket *out);
/* Shards of buckets, and parts of a class that are off the device, are multiples of so many elements: a page of a disk
 * where parameters or gradients live on one, so that whatever moves is whole pages. */
int64_t zp_shard_align(const zp_choice *choice);
/* Walks over the buckets of zp_unit_buckets one by one; begins with {0}. false: there is none more. */
typedef struct zp_bucket_walk {
  int next;
  int64_t end;
  zp_bucket bucket;
} zp_bucket_walk;
bool zp_next_bucket(const zp_lowered *lowered, const zp_choice *choice, int segment, zp_bucket_walk *walk);
/* zp_tied.summed of a parameter. */
int64_t zp_tied_elements(const zp_lowered *lowered, const zp_choice *choice, int param);
int64_t zp_memory_of_arena(const zp_memory *memory);
/* Bytes of ZP_REGION_PRODUCTS where a unit of the stage has products; 0: none. CPU ranks with 16-bit operands, and
 * GPUs where zplan's own trainer runs. */
int64_t zp_products_bytes(const zp_spec *spec);
/* sm_70 and sm_72, whose tensor cores multiply f16 alone. arch: NULL when it is not said. */
bool zp_arch_is_volta(const char *arch);
/* Columns of the largest head of the model's attentions; 0: it has none. */
int64_t zp_largest_head(const zp_model *model);
/* Columns of the model's largest attention head when zplan's GPU trainer computes attention on tensor cores: 16-bit
 * operands, heads of up to 256 columns, devices with bf16 (sm_80 and later), Volta in f16. 0: it does not. */
int64_t zp_tensor_core_head(const zp_spec *spec);
/* Why zplan's trainer computes attention of 16-bit operands on the cores for single precision, many times as slowly;
 * NULL: it does not. Arena. */
const char *zp_why_no_tensor_cores(zp_arena *arena, const zp_spec *spec);
int64_t zp_memory_on_device(const zp_memory *memory); /* arena and communicators, without the context */
/* For one chunk a stage: bytes of the arena. */
int64_t zp_stage_bytes(const zp_lowered *lowered, const zp_choice *choice, int stage, int64_t first_unit,
                       int64_t n_units);
/* The most that the ranks of one node need together, given what a rank of every stage needs. */
int64_t zp_most_of_a_node(const zp_choice *choice, int devices_per_node, const int64_t *stage_bytes);
/* ---- what does not go together (moves/refusals.c) ---- */
/* Why the parts of a choice do not go together, whatever the model ("compress does not go with ZeRO 2 and 3"): what the
 * schedule says, what no strategy of the list provides, or what the first strategy that refuses says; NULL: they do. */
const char *zp_choice_refusal(const zp_choice *choice, const zp_spec *spec);
/* What the first strategy says that refuses the choice as a whole; NULL: none does. The search, which asks about parts
 * of choices, has limits for it. */
const char *zp_choice_refusal_complete(const zp_choice *choice, const zp_spec *spec);
/* What zplan's own trainer lacks of it, in any format: what is missing, or what the first strategy that lacks something
 * says; NULL: nothing. */
const char *zp_choice_lacking(const zp_choice *choice);

/* ---- the whole program ---- */
/* The whole program of a choice with a cut of all units (zp_choice_is_whole). stage_lowered: [pipeline], of one spec,
 * sharding and micro-batch; the array is copied. */
zp_program *zp_program_make(zp_arena *arena, const zp_lowered *const *stage_lowered, const zp_choice *choice);
/* The program of a choice, without order tables where its price takes none: 1F1B. They can be larger than all the
 * rest. */
zp_program *zp_program_make_priced(zp_arena *arena, const zp_lowered *const *stage_lowered, const zp_choice *choice);
/* The program of a choice without order tables: for what looks at the stages alone. */
zp_program *zp_program_make_stages(zp_arena *arena, const zp_lowered *const *stage_lowered, const zp_choice *choice);
/* A segment as stages, or layers of one, of that mode run it; NULL when none does. */
const zp_segment_program *zp_program_segment(const zp_program *program, int segment, zp_stage_mode mode);
static inline const zp_lowered *zp_program_lowered(const zp_program *program, int stage) {
  assert(zp_choice_has_stage(&program->choice, stage));
  return program->stage_lowered[stage];
}
/* Which segment (or piece, of one part) and iteration a unit is. */
void zp_unit(const zp_lowered *lowered, int64_t unit, int *segment, int64_t *iteration);
/* Micro-batches of one step and replica. */
int64_t zp_microbatches(const zp_spec *spec, const zp_choice *choice);

/* 1-bit Adam sends a sign an element and an f32 scale for every block of neighbours; a parameter begins at a whole
 * block. */
enum { ZP_SIGNS_BLOCK = 64, ZP_SIGNS_BLOCK_BYTES = ZP_SIGNS_BLOCK / 8 + 4 };
/* 0/1 Adam: steps, from 0 on, that update the variance, by gradients that are summed; and from which step on one of how
 * many exchanges signs. sums, exchanges: of the steps of the training. Empty where it is another optimizer. */
typedef struct zp_interval_phase {
  int64_t begin, every;
} zp_interval_phase;
typedef struct zp_intervals {
  ZP_VEC(int64_t) variance;
  ZP_VEC(zp_interval_phase) phases;
  int64_t sums, exchanges;
} zp_intervals;
zp_intervals zp_train_intervals(zp_arena *arena, const zp_train *train);

/* Gradients of a stage that are partial over its tensor ranks (sequence sharding), summed over them once a step:
 * elements of all data ranks together, and of the data rank that has most. */
typedef struct zp_partial {
  int64_t summed, most;
} zp_partial;
zp_partial zp_partial_elements(const zp_program *program, const zp_stage *stage);

/* Units whose saved values leave the device work in a ring of so many buffers: one at work; the next, whose input the
 * first one writes; and one on its way. */
enum { ZP_SAVED_BUFFERS = 3 };
/* The part at the end of a unit's saved bytes that lives off the device; the room that it takes there, whole pages on
 * disks. */
int64_t zp_saved_offloaded(const zp_choice *choice, int64_t saved_bytes);
int64_t zp_saved_offloaded_stride(const zp_choice *choice, int64_t saved_bytes);
/* Offset of what a chunk's slots have off the device (all of the pool, when pooled); -1 when absent. */
int64_t zp_stage_offloaded_at(const zp_stage *stage, int chunk);
/* Does the slot keep the unit's own input whole? */
static inline bool zp_keeps_input(const zp_segment_program *segment) {
  return segment->carry_kept_elements == segment->carry_own_elements;
}
/* Does a stream come into the unit? */
bool zp_takes_streams(const zp_segment_program *segment);
/* Byte offset of a stream in a slot of a chunk that has these; of ZP_MOST_STREAMS: where they end. */
enum { ZP_MOST_STREAMS = 64 };
int64_t zp_stream_at(const zp_lowered *lowered, uint64_t streams, int stream);
/* Where the stage holds a shared parameter, in elements; -1 when it does not. */
int64_t zp_stage_shared(const zp_stage *stage, int param);
/* The buffer that owns the storage of buffer `b` (itself, unless a view or alias), and the element offset inside it. */
const zp_buffer *zp_buffer_root(const zp_procedure *procedure, int b, int64_t *element_offset);
int64_t zp_element_bytes(const zp_lowered *lowered, zp_element element);
/* Arena offsets of what a chunk has: its slots (all of the pool, when pooled), its waiting weight gradients, its first
 * message buffer of a direction. -1 when absent. */
int64_t zp_stage_slots_at(const zp_stage *stage, int chunk);
int64_t zp_stage_pending_at(const zp_stage *stage, int chunk);
/* Channels that messages of other stages come to a stage by, where the trainer receives them ahead, message_stride
 * apart: a direction and, with folded parts, a chunk of the sender each. 0: it receives them where they are needed. */
int64_t zp_stage_landings(const zp_spec *spec, const zp_choice *choice, int stage);
int64_t zp_stage_send_at(const zp_choice *choice, const zp_stage *stage, int chunk, bool up);
/* Buffers that the units of a stage exchange: which one is written by unit `j` of `n` (0-based on the stage). */
int zp_stage_carry_index(int64_t j);           /* forward ping-pong: input of unit j */
int zp_stage_grad_index(int64_t n, int64_t j); /* backward ping-pong: dy of unit j; its dx goes to that of unit j - 1 */

/* The place of a buffer in plan files and readable text: "param", or "spread" and "frozen" by kind; "saved". */
const char *zp_place_name(const zp_buffer *buffer);
const char *zp_procedure_text(zp_arena *arena, const zp_procedure *procedure);

#endif
