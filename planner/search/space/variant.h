/* SPDX-License-Identifier: Apache-2.0 */
/* Procedures that points share: what a variant says of the units of the model, and the tensor groups that it is
 * priced on. */
#ifndef ZPLAN_SEARCH_VARIANT_H
#define ZPLAN_SEARCH_VARIANT_H

#include <zplan/cost.h>
#include <zplan/plan.h>

/* A set of modes that stages may have: bit zp_stage_mode. */
typedef unsigned zp_mode_set;
enum { ZP_MOST_MODES = 4 };
static inline zp_mode_set zp_set_of_mode(zp_stage_mode mode) { return 1u << mode; }

/* Seconds of one part of a layer: forward and backward; the other two as below. */
typedef struct zp_part_seconds {
  double work, forward, input;
} zp_part_seconds;

/* All points with the same procedures share one of these. One of several modes has the least of them in everything:
 * what is bounded with it is bounded for every stage. Seconds of the first units, [units + 1] each, are NULL until a
 * point needs them (zp_search_point): */
typedef struct zp_variant {
  int tensor;
  int groups;                      /* index of the tensor groups that it is priced on */
  int expert, context;             /* ranks of an expert group, of a context group; 1: none */
  zp_exchange_links links;         /* of more than one: all that prices know of where they stand in a plain cluster */
  int expert_stride, expert_ranks; /* several node types: from one rank of a group to the next; of the plan. Else 0 */
  zp_context_by context_by;
  bool sequence;
  int64_t microbatch;
  int loss_chunks; /* 1: the loss at once */
  zp_mode_set modes;
  zp_node_set types;        /* node types that it is priced on; 0: all, of several the least */
  zp_stage_mode mode;       /* the one of `lowered` */
  bool fine;                /* units are parts of layers: with pieces */
  zp_lowered *lowered;      /* priced; of several modes, one of them; NULL when it cannot be lowered */
  zp_part_seconds *part_s;  /* [segments]: of parts */
  zp_part_seconds *piece_s; /* [segments]: of a layer, or of parts of one, that a stage runs without the others:
                             * at least, and less than a piece that has it by at least the other parts */
  zp_part_seconds all_s;    /* of all units */
  double *prefix_s;         /* forward and backward */
  double *unit_s;           /* the same of one iteration of a segment or piece, [segments] */
  double *kept_bytes, *waiting_bytes; /* saved for one micro-batch; of one whose weight gradients wait: of parts,
                                       * [segments]. No piece has less than its parts together */
  double *part_elements[ZP_KINDS];    /* parameters of parts, the same way */
  double *forward_s;                  /* forward alone */
  double *input_s;          /* forward and the part of backward that yields gradients of inputs: all of it where no
                             * schedule splits it. Forward, this part and the rest, prefix_s - input_s, are each the
                             * least by itself */
  zp_flat *elements_before; /* parameters of the first units, shared ones left out; one array a sharding */
  double *longest_chunk_s;  /* [chunks]: the shortest possible longest of so many; 0: not known yet (chunk_cut.c);
                             * NULL: none is */
  double longest_s;         /* of one unit */
  double backward_share;    /* smallest share of backward in a unit's time */
  int64_t carry_elements;   /* smallest carry between two units */
  zp_flat elements;         /* parameters of the whole model on one tensor rank, shared ones once */
  int64_t saved_bytes;      /* of one micro-batch in all units */
  int64_t saved_for_loss;   /* of these in the units whose graph has the loss */
  /* Mixed stages (mixed.c): what their layers after the first `layers` of a chunk run; else NULL. Its own sums are
   * those of the first ones' mode: zp_stage_seconds and zp_stage_work have both. */
  const struct zp_variant *rest;
  int64_t layers;
} zp_variant;

/* One way to divide the model over the ranks of a tensor and an expert group; NULL: there is none. */
typedef struct zp_sharding_try {
  int expert, context;
  zp_context_by context_by;
  bool sequence;
  const zp_sharding *sharding;
  zp_lowered_list lowered[2];  /* one of every micro-batch and mode: layers whole, and in parts */
  zp_flat *elements_before[2]; /* of its variants: layers whole, and in parts; NULL: not known yet */
} zp_sharding_try;

/* Procedures that some groups may run, in all modes together. They are made when degrees ask for them whose samples the
 * micro-batch divides: most never are. */
typedef struct zp_runnable {
  int64_t microbatch;
  zp_context_by context_by;
  bool sequence, fine;
  int loss_chunks; /* of a choice */
  bool measured;   /* all below is known */
  int variant;     /* index; -1: cannot be lowered */
  bool elsewhere;  /* the variant is of groups on other links: what it takes on these is */
  zp_part_seconds all_s;
  double longest_s, *unit_s; /* unit_s: NULL where layers are in parts */
  double work_s;             /* of all its units; in the space of the loss in chunks, of those without the loss */
} zp_runnable;
typedef struct zp_runnables {
  ZP_VEC(zp_runnable) of; /* of every micro-batch, sequence and loss, layers whole and in parts */
  zp_rejection why_none;  /* why none of those that were measured can be lowered, or why there are none */
} zp_runnables;

/* zp_runnables of tensor groups with expert and context groups of one size on the same links, in a plain cluster. */
typedef struct zp_known_runnables {
  int expert, context;
  bool in_chunks;          /* of the space of the loss in chunks */
  zp_exchange_links links; /* of more than one */
  zp_runnables *all;
} zp_known_runnables;

/* Tensor groups of one size, and the ranks that they consist of. Plans that use different numbers of ranks have the
 * same procedures and prices where these are equal. */
typedef struct zp_tensor_groups {
  int tensor;
  int64_t count; /* of groups; only where it decides which node types they stand on, else 0 */
  zp_machine machine;
  zp_group_link link;
  ZP_VEC(zp_sharding_try) shardings;    /* made on demand */
  ZP_VEC(zp_known_runnables) runnables; /* the same */
} zp_tensor_groups;

#endif
