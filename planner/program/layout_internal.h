/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the layout of stages. */
#ifndef ZPLAN_LAYOUT_INTERNAL_H
#define ZPLAN_LAYOUT_INTERNAL_H

#include "lower_internal.h"
#include <zplan/moves.h>
#include <zplan/schedule.h>

/* What the units of a stage add up to. */
typedef struct zp_totals {
  zp_flat all;                                /* of the flat buffers, before padding to whole shards */
  zp_flat shared;                             /* of them parameters declared outside repeats */
  zp_flat bucket;                             /* the most parameters that one unit works with */
  int64_t slot_bytes;                         /* saved values in flight on the device, every chunk with its own slots */
  int64_t largest_slot;                       /* of all chunks */
  int64_t offloaded_bytes, largest_offloaded; /* the same of those off the device */
  int64_t unit_saved_bytes;                   /* largest saved area of one unit */
  int64_t unit_offloaded_bytes;               /* of it off the device, whole pages on disks */
  int64_t pending_bytes;                      /* waiting weight gradients */
  int64_t transient_bytes;
  int64_t statistics;     /* Adafactor's */
  int64_t narrow_weights; /* elements of weights of products in 8 or 4 bits */
  zp_flat narrow_own;     /* of them in parameters of repeats that are trained */
  int64_t products_bytes; /* scratch memory of products */
  bool reads_numbers;     /* some unit: inputs that are numbers */
  bool any_shard;         /* some unit keeps shards: the forward ping-pong exists */
  bool any_stream;        /* streams come into some unit */
  int64_t carry_elements; /* largest tensor that flows between units */
  int64_t units;
  int64_t calls, most_calls; /* of procedures, for one micro-batch: of all chunks; of the one with most */
} zp_totals;

/* How a class's elements fall apart; `gone` of those off the device the rank updates. of_bucket: what it has of the
 * largest bucket. */
typedef struct zp_held {
  int64_t here, offloaded, gone, of_bucket;
} zp_held;

struct zp_placing {
  const zp_lowered *lowered;
  const zp_choice *choice;
  const zp_totals *totals;
  int64_t microbatches;
  zp_held held[ZP_STATE_COUNT]; /* saved values have none: totals */
  int64_t bucket_shard;         /* of the largest bucket: what a rank updates */
  int64_t carry_bytes;          /* of the largest tensor that flows between units */
  int64_t up, down;             /* the stage's chunks that have a chunk of the model above, below */
  zp_stage *stage;              /* elements, slots and strides are known, bytes of regions are raised */
};

/* moves/narrow_weights.c: of these elements of an instance's own parameters, which have casts to 8 or 4 bits, those
 * that the device has as casts alone. */
int64_t zp_narrow_alone(const zp_lowered *lowered, const zp_choice *choice, const zp_flat *own);

/* regions.c: sizes and places of all regions; fills in everything of the stage but runs, shared, chunks and the
 * communicators' memory. */
void zp_place_regions(const zp_lowered *lowered, const zp_choice *choice, const zp_totals *totals, zp_stage *stage);

#endif
