/* Shared inside this folder. A *point* is everything a plan decides but the cuts; for every point the cuts are solved.
 */
#ifndef ZPLAN_SEARCH_INTERNAL_H
#define ZPLAN_SEARCH_INTERNAL_H

#include <zplan/plan.h>

/* All points with the same procedures share one of these. */
typedef struct zp_variant {
  int tensor;
  int64_t microbatch;
  zp_recompute recompute;
  bool recompute_shard;
  zp_lowered *lowered;    /* priced; NULL when it cannot be lowered */
  double *prefix_s;       /* [units + 1]: forward and backward seconds of the first units */
  double *forward_s;      /* [units + 1]: forward seconds alone */
  double longest_s;       /* of one unit */
  double backward_share;  /* smallest share of backward in a unit's time */
  int64_t carry_elements; /* smallest carry between two units */
  int64_t elements;       /* parameters of the whole model on one tensor rank, shared ones once */
} zp_variant;

typedef struct zp_point {
  zp_choice choice; /* cut: NULL */
  int variant;      /* index */
  double bound_s;   /* no plan of this point is faster */
} zp_point;

typedef struct zp_searcher {
  zp_arena *arena; /* of the search, given back at its end */
  const zp_spec *spec;
  const zp_constraints *constraints;
  zp_machine machine;
  int64_t limit_bytes; /* arena bytes that a rank may use */
  int64_t n_units;
  zp_sharding **sharding; /* [devices + 1]: per tensor degree, made on demand */
  bool *sharding_tried;
  ZP_VEC(zp_variant) variants;
  ZP_VEC(zp_point) points; /* those that fit into memory */
  zp_certificate certificate;
  zp_miss miss;
  double miss_ratio;  /* need / have of the nearest miss */
  const char *reason; /* why the last tensor degree could not be split or lowered (arena) */
} zp_searcher;

/* ---- variant.c ---- */
/* Index of the variant, made on demand; -1 when the model cannot be split or lowered that way (s->reason). */
int zp_search_variant(zp_searcher *s, int tensor, int64_t microbatch, zp_recompute recompute, bool recompute_shard);

/* ---- space.c ---- */
/* All points of the space: counts candidates and rejections, keeps those that fit, notes the nearest miss. */
void zp_search_enumerate(zp_searcher *s);

/* ---- cut.c ---- */
/* Cuts in which no stage takes longer than stage_s or has more than limit_bytes; stages are filled from the front, or
 * from the back. False when there are none. cut: pipeline + 1 numbers. */
bool zp_cut_within(const zp_searcher *s, const zp_point *point, double stage_s, int64_t limit_bytes, bool from_back,
                   int64_t *cut);
/* Shortest possible longest stage of cuts that fit into memory. Requires: such cuts exist. */
double zp_cut_bottleneck(const zp_searcher *s, const zp_point *point);
/* Smallest possible largest stage, in bytes, and the cuts that reach it. */
int64_t zp_cut_least_memory(const zp_searcher *s, const zp_point *point, int64_t *cut);

/* Calls on_cut for every way to cut that fits into memory; false, without a call, when there are too many. */
typedef void zp_on_cut(void *user, int64_t *cut);
bool zp_cut_all(zp_searcher *s, const zp_point *point, zp_on_cut *on_cut, void *user);

/* ---- bound.c ---- */
/* A proven lower bound of the simulated step time, given that no cut has a longest stage below bottleneck_s (0:
 * unknown). */
double zp_bound(const zp_searcher *s, const zp_point *point, double bottleneck_s);
/* The same for one way to cut. */
double zp_bound_of_cut(const zp_searcher *s, const zp_point *point, const int64_t *cut);

#endif
