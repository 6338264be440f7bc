/* Private to the layout of stages. */
#ifndef ZPLAN_LAYOUT_INTERNAL_H
#define ZPLAN_LAYOUT_INTERNAL_H

#include "lower_internal.h"
#include <zplan/schedule.h>

/* What the units of a stage add up to. */
typedef struct zp_totals {
  zp_flat all;                      /* of the flat buffers, before padding to whole shards */
  zp_flat shared;                   /* of them parameters declared outside repeats */
  zp_flat bucket;                   /* the most parameters that one unit needs: zp_unit_needs */
  int64_t slot_bytes;               /* saved values in flight on the device, every chunk with its own slots */
  int64_t largest_slot;             /* of all chunks */
  int64_t away_bytes, largest_away; /* the same of those off the device */
  int64_t unit_saved_bytes;         /* largest saved area of one unit */
  int64_t unit_away_bytes;          /* of it off the device, whole pages on disks */
  int64_t pending_bytes;            /* waiting weight gradients */
  int64_t transient_bytes;
  int64_t statistics;     /* Adafactor's */
  int64_t products_bytes; /* scratch memory of products */
  bool reads_numbers;     /* some unit: inputs that are numbers */
  bool any_shard;         /* some unit keeps shards: the forward ping-pong exists */
  bool any_stream;        /* streams come into some unit */
  int64_t carry_elements; /* largest tensor that flows between units */
  int64_t units;
  int64_t calls, most_calls; /* of procedures, for one micro-batch: of all chunks; of the one with most */
} zp_totals;

/* moves/signs_room.c: bytes that compressed exchanges keep, on the device and on the host; 0: nothing. here, away:
 * elements of the state that a rank updates, on the device and off it. */
typedef struct zp_signs_room {
  int64_t error, server_error, fresh, momentum_before, local_sum, anchor;
  int64_t host_error, host_server_error, host_records;
} zp_signs_room;
zp_signs_room zp_signs_room_of(const zp_lowered *lowered, const zp_choice *choice, int64_t flat_elements, int64_t here,
                               int64_t away);

/* regions.c: sizes and places of all regions; fills in everything of the stage but runs, shared, chunks and the
 * communicators' memory. */
void zp_place_regions(const zp_lowered *lowered, const zp_choice *choice, const zp_totals *totals, zp_stage *stage);

#endif
