/* SPDX-License-Identifier: Apache-2.0 */
/* What a search is asked. Written by zp_search_start, and by nobody afterwards: everyone else sees it const. */
#ifndef ZPLAN_SEARCH_INPUT_H
#define ZPLAN_SEARCH_INPUT_H

#include <zplan/cost.h>
#include <zplan/plan.h>
#include <zplan/profile.h>

typedef struct zp_search_input {
  const zp_spec *spec;
  const zp_constraints *constraints;
  int devices; /* given: plans use at most so many */
  bool generated_only;
  bool plain_only;                /* of what no constraint names, the plain alone is considered (zp_search_considers) */
  zp_trainer trainer;             /* what it can do bounds the space */
  zp_software_floor floor;        /* terms of the generated trainer that bound those of the program */
  bool wants_miss;                /* where nothing fits */
  unsigned without;               /* provers: zp_search_options */
  int most_chunks;                /* of a stage */
  int64_t n_units;                /* cut between layers; of a point: zp_point_units */
  const zp_pieces *pieces;        /* where cuts inside layers are allowed and possible; NULL: nowhere */
  const int64_t *pinned_cut;      /* the plan block's, in units, of all chunks of the model; NULL: any cut */
  int64_t most_units;             /* of any point: cut inside layers, too, where that is allowed */
  bool splits;                    /* some schedule of the space splits backward */
  bool mixes;                     /* layers of one stage may recompute differently */
  bool chunks_loss;               /* plans with the loss in chunks are in the space though none is named */
  bool may_leave[ZP_STATE_COUNT]; /* parts of the class leave the device in some plan of the space */
} zp_search_input;

static inline int64_t zp_most_stages(const zp_search_input *in) {
  return in->devices < in->most_units ? in->devices : in->most_units;
}

#endif
