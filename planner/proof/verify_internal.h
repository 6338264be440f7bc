/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the verifier. */
#ifndef ZPLAN_VERIFY_INTERNAL_H
#define ZPLAN_VERIFY_INTERNAL_H

#include <zplan/proof.h>
#include <zplan/software.h>

typedef struct zp_verifier {
  zp_arena *arena;
  const zp_spec *spec;
  zp_strings *findings;
  zp_choice choice; /* as the file says it; cut not filled in before the units are checked */
  int64_t microbatches;
  int compute_bytes, stat_bytes, grad_bytes, sum_bytes;
  zp_machine machine;
  const zp_json *stages, *program;
  const zp_pieces *pieces; /* of the model: what a stage may run */
  int64_t *elements;       /* local elements per model parameter */
  zp_param_kind *kind;     /* per model parameter, as the file says it */
  int *split_dim;          /* per model parameter: the dimension that ranks share or that is padded; -1: none */
  zp_flat *instance;       /* per piece: flat elements of one instance */
  int **stream_of;         /* per segment of the model and tensor that comes in: see zp_verify_stream */
  int chunks;              /* of a stage */
  zp_played_order played;  /* what the stated orders keep */
  int64_t *host, *nvme;    /* [stage]: bytes of one rank off the device */
} zp_verifier;

/* Records a finding (at most 20 are kept). */
void zp_find(zp_verifier *v, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A file may say anything: integers are clamped, and products saturate, so that no sum of a few of them overflows. */
int64_t zp_claim(const zp_json *object, const char *key); /* missing: the lowest value */
/* A claim that a file only makes where there is something; missing: 0. */
int64_t zp_claim_some(const zp_json *object, const char *key);
/* The byte of a region. Files of versions that did not know the region lack it; missing: -1, there is none. */
int64_t zp_claim_place(const zp_json *object, const char *key);
/* "spread_stride"; a file has nothing of what is not trained where there is none. */
int64_t zp_claim_of_kind(const zp_verifier *v, const zp_json *object, zp_param_kind kind, const char *name);
int64_t zp_times(int64_t a, int64_t b);
/* Elements that come into a segment and are no streams. */
int64_t zp_claim_own(const zp_json *segment);
/* Index of the piece that a layer names, -1 when there is none; and its object in the file, for the mode of the stage
 * that lists the layer, or of the layer where the stage is mixed. */
int zp_claimed_piece(const zp_verifier *v, const zp_json *layer);
const zp_json *zp_claimed_program(const zp_verifier *v, int stage, const zp_json *layer);
/* What the file says about a stage or a segment's procedures: the name of a mode. */
const char *zp_claimed_mode(const zp_json *object);

void zp_verify_stage(zp_verifier *v, int stage); /* verify_arena.c; after the order */
void zp_verify_nodes(zp_verifier *v);            /* after all stages: budgets of host memory and disks */
void zp_verify_procedures(zp_verifier *v);       /* verify_procedures.c */
/* Kind of the segment's parameter that a buffer has; ZP_KINDS: it has none. */
zp_param_kind zp_claimed_kind(const zp_json *buffer);
/* Backward of a piece's entry `segment`, in two parts where the schedule splits it. name: "h backward". */
void zp_verify_split(zp_verifier *v, const zp_json *segment, int piece, const char *name); /* verify_split.c */
/* Exchanges of a context group in a piece's entry `segment`. */
void zp_verify_context(zp_verifier *v, const zp_json *segment, int piece); /* verify_context.c */
void zp_verify_routed(zp_verifier *v, const zp_json *segment, int piece);  /* verify_routed.c */
void zp_verify_order(zp_verifier *v);                                      /* verify_order.c */

/* ---- verify_streams.c: tensors that units hand on unchanged ---- */
void zp_verify_find_streams(zp_verifier *v);
/* Number of the stream that tensor `place` of what comes into a segment or piece is; -1: none. */
int zp_verify_stream(const zp_verifier *v, int segment, int place);
int64_t zp_verify_stream_elements(const zp_verifier *v, int segment, int place);

/* What a rank has of a carried tensor, in elements or bytes: of its sample's positions the share of its place in the
 * context group, and with `sequence` of that the tensor rank's. */
static inline int64_t zp_verify_share(const zp_verifier *v, int64_t all) {
  int context = v->choice.context > 1 ? v->choice.context : 1;
  return all / (v->choice.sequence ? v->choice.tensor : 1) / context;
}
static inline int64_t zp_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }
/* ---- verify_flat.c: flat buffers ---- */
typedef struct zp_flat_sizes {
  /* By kind: elements; this rank's share; of the largest unit, of what is not trained where it moves. */
  zp_flat all, own, unit;
  int64_t flat, shard, bucket; /* the same of what is trained */
  int64_t bucket_shard;        /* a rank's share of that */
} zp_flat_sizes;
/* Elements that shards and parts of a class are multiples of: 64, or a page of disks where gradients or parameters live
 * there. */
int64_t zp_verify_align(const zp_verifier *v);
/* Data ranks of a shard group: what ZeRO divides, they divide among them. */
int64_t zp_verify_sharers(const zp_verifier *v);
zp_flat_sizes zp_verify_flat(zp_verifier *v, int stage);
/* "spread ", for what is not plain: of findings. */
const char *zp_kind_word(zp_param_kind kind);

/* ---- verify_needs.c: what the units of a stage need ---- */
static inline int64_t zp_verify_max(int64_t a, int64_t b) { return a > b ? a : b; }
typedef struct zp_verify_needs {
  int64_t slots, largest_slot, pending, transient, unit_saved; /* bytes, of slots on the device */
  int64_t offloaded, largest_offloaded, unit_offloaded;        /* of slots elsewhere */
  int64_t carry, most_calls; /* elements; calls of procedures in the chunk with most of them */
  int64_t statistics;        /* Adafactor's */
  int64_t narrow_weights;    /* elements of weights whose products take 8 or 4 bits */
  zp_flat narrow_own;        /* of them in parameters of repeats that are trained and that nothing else reads */
  bool *seen;                /* of the parameters: those that units share and that are in it */
  bool products;             /* some unit multiplies matrices */
  bool numbers;              /* some unit reads inputs that are numbers */
  bool shards;               /* some unit keeps its input as shards: the forward ping-pong exists */
  bool streams;              /* some come into a unit */
} zp_verify_needs;
zp_verify_needs zp_verify_find_needs(zp_verifier *v, int s, const zp_json *stage);
/* What of `total` is not on the device, in pieces of `unit`. */
int64_t zp_verify_offloaded(const zp_verifier *v, zp_state state, int64_t total, int64_t unit);
/* Bytes of all slots on the device, own ones of every chunk, or one pool; *gone: elsewhere. */
int64_t zp_verify_slot_bytes(zp_verifier *v, int s, const zp_json *arena, const zp_verify_needs *n, int64_t *gone);

#endif
