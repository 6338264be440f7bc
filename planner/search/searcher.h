/* What a search is asked, what it knows, and how far it is. */
#ifndef ZPLAN_SEARCH_SEARCHER_H
#define ZPLAN_SEARCH_SEARCHER_H

#include <zplan/profile.h>
#include <zplan/search_numbers.h>
#include "memo.h"

/* What branch and bound over cuts took, and may still take. */
typedef struct zp_effort {
  zp_cut_effort cuts;
  int64_t chunk_work_left; /* of cuts.work_left what points of several chunks a stage with many cuts may take */
} zp_effort;

typedef struct zp_searcher {
  zp_arena_budget budget; /* of all arenas of the search (budget.c) */
  zp_arena *arena;        /* of the search, given back at its end */
  zp_arena *kept;         /* the same for what is made while some of the other one is on its way to be given back */
  const zp_spec *spec;
  const zp_constraints *constraints;
  int devices;        /* given: plans use at most so many */
  zp_machine machine; /* of the ranks that the plan at hand uses (zp_search_use), like the limits below */
  bool generated_only;
  zp_trainer trainer;             /* what it can do bounds the space */
  zp_software_floor floor;        /* terms of the generated trainer that bound those of the program */
  bool wants_miss;                /* where nothing fits */
  unsigned without;               /* provers: zp_search_options */
  int64_t limit_bytes;            /* arena bytes that a rank may use; several node types: on the smallest */
  int64_t most_bytes;             /* the same on the largest */
  int64_t host_bytes, nvme_bytes; /* a rank's equal share of its node's */
  int64_t n_units;                /* cut between layers; of a point: zp_point_units */
  const zp_pieces *pieces;        /* where cuts inside layers are allowed and possible; NULL: nowhere */
  int64_t most_units;             /* of any point: cut inside layers, too, where that is allowed */
  ZP_VEC(zp_tensor_groups) groups;
  ZP_VEC(zp_variant) variants;
  zp_ints variant_index;     /* hash table: 1 + their places; 0: free */
  zp_degrees_list degrees;   /* subspaces: none is looked into that cannot beat the plans that are known by then */
  zp_degrees_list too_small; /* those that do not fit, by their memory floor */
  ZP_VEC(zp_point) points;   /* those that may fit into memory */
  bool opens_families;       /* of a choice as soon as they are found: none would wait in vain */
  bool keeps_all;            /* and those that do not: nothing fits, and the nearest miss is looked for */
  double cutoff_s;           /* points of the subspace at hand that are not faster are left out */
  double expanding_s;        /* bound of the degrees that are being looked into */
  double left_out_s;         /* the least bound of what was left out so */
  double unsearched_s;       /* of all cuts of points whose cuts are stated */
  zp_search_memo *memo;
  zp_certificate certificate;
  zp_effort effort;
  zp_miss miss;
  double miss_ratio;      /* need / have of the nearest miss */
  const char *cut_reason; /* why layers could not be cut (arena) */
  const char *reason; /* why the last tensor degree could not be split or lowered, or no trainer is generated (arena) */
} zp_searcher;

/* Model chunks of all stages together. */
static inline int zp_model_chunks(const zp_choice *choice) {
  return choice->pipeline * (choice->chunks > 1 ? choice->chunks : 1);
}
static inline const zp_variant *zp_variant_of(const zp_searcher *s, const zp_point *point) {
  return &s->variants.data[point->variant];
}

/* Elements that a rank keeps of `whole` ones that all data ranks hold and `spread` ones over expert groups, sharded
 * over those who hold the same, or not. */
static inline int64_t zp_held_elements(const zp_choice *c, int64_t whole, int64_t spread, bool sharded) {
  return sharded ? whole / c->data + spread / (c->data / zp_expert_ranks(c)) : whole + spread;
}

static inline int64_t zp_point_units(const zp_searcher *s, const zp_point *point) {
  return zp_variant_of(s, point)->lowered->n_units;
}

/* Have the nodes several types? Then what all stages share is bounded by the least of the types, and every stage has
 * variants of its own. */
static inline bool zp_has_types(const zp_searcher *s) { return s->machine.cluster->groups.len > 0; }

/* Fills in what follows from the input; s->arena is there, the rest is zero. options may be NULL. */
void zp_search_start(zp_searcher *s, const zp_spec *spec, const zp_machine *machine, const zp_search_options *options);
/* Gives the memory back; started or not. */
void zp_search_end(zp_searcher *s);

#endif
