/* SPDX-License-Identifier: Apache-2.0 */
/* What is decided so far: degrees, and points of them. A point is everything a plan decides but the cuts; for every
 * point the cuts are solved. */
#ifndef ZPLAN_SEARCH_POINT_H
#define ZPLAN_SEARCH_POINT_H

#include <zplan/search_numbers.h>
#include "variant.h"

enum { ZP_MOST_CHUNKS = ZP_CUT_MOST_CHUNKS }; /* of a stage; a search has at most in->most_chunks */

/* What memory forces on stages that choose among modes (least_work.c). */
typedef struct zp_least_work {
  double unit_s[ZP_MOST_MODES];
  double *rooms;         /* [pipeline + 1][modes] */
  int64_t *units_before; /* [units + 1] */
  bool before, after;    /* may be counted of the stages before, after a known one */
} zp_least_work;

/* How what is decided so far is refined, in this order: from the degrees to a plan (refine.c). A row of the table
 * decides something, or raises the bound of what is decided. */
typedef enum zp_refinement {
  ZP_REFINE_IDLE,       /* all degrees that leave devices idle: become degrees */
  ZP_REFINE_GROUPS,     /* degrees: expert groups of every size */
  ZP_REFINE_PROCEDURES, /* bounded by the procedures that they can run */
  ZP_REFINE_DEGREES,    /* become choices of rank order, micro-batch, sequence and the parts of the loss */
  ZP_REFINE_MODES,      /* such a choice: becomes procedures, with the modes that its stages may have */
  ZP_REFINE_INSIDE,     /* procedures with whole layers: become those with layers in parts */
  ZP_REFINE_SCHEDULES,  /* of procedures are open: every one, with every number of chunks */
  ZP_REFINE_ZERO,       /* the ZeRO stage, compression and homes of a schedule are open */
  ZP_REFINE_CLASSES,    /* the homes of all classes of state are open: becomes families with one class open */
  ZP_REFINE_ROOM,       /* the share of one class is open: bounded by the room that the stages have together */
  ZP_REFINE_STATED,     /* by the stated cuts, whatever their memory */
  ZP_REFINE_SHARE,      /* by cuts that fit on the devices */
  ZP_REFINE_TIERS,      /* becomes points, with every share and tier */
  ZP_REFINE_WORK,       /* a point: bounded by what memory forces on its stages */
  ZP_REFINE_MEMORY,     /* by the cuts that fit */
  ZP_REFINE_CUTS,       /* its cuts are simulated: plans */
  ZP_REFINEMENTS
} zp_refinement;

/* Every stage of a point takes the fastest of its modes that fits (modes.c), or the one that is pinned. */
typedef struct zp_point {
  zp_choice choice; /* cut: NULL; recompute: only where one mode is possible; stage_recompute and mix: only where they
                       are pinned */
  int variant;      /* index, of all modes together; none yet before ZP_REFINE_INSIDE */
  int n_modes, modes[ZP_MOST_MODES]; /* indices of their variants, fastest first */
  bool stands_for_chunks;            /* its variant has the loss at once, and is asked for those in chunks (losses.c) */
  bool every_cut;                    /* of several chunks a stage are considered; else stated ones (chunk_cut.c) */
  double work_s, longest_s;          /* of all units and of the longest stage, at least */
  zp_least_work *least;              /* while the point is priced; NULL: its variant says all */
  int64_t fits;                      /* number of what is remembered of it (fit_table.c); 0: nothing */
  double cut_s;                      /* of the stated cuts, whatever their memory and homes; 0: not known */
  double end_s;                      /* of a family: the end of its steps, at least */
  double bound_s;                    /* no plan of this point is faster */
  double seen_s;                     /* of the fastest cut that was simulated or bounded as if */
  zp_refinement next;                /* before ZP_REFINE_WORK: homes are open (homes.c), or more is (space.c) */
  zp_state leaving;                  /* of a family after ZP_REFINE_CLASSES: the class whose share is open */
} zp_point;

static inline bool zp_is_family(const zp_point *point) {
  return point->next >= ZP_REFINE_CLASSES && point->next < ZP_REFINE_WORK;
}
/* Procedures, or a schedule: not counted as a candidate until it is refused as one. */
static inline bool zp_is_subspace(const zp_point *point) { return point->next < ZP_REFINE_CLASSES; }

/* Tensor x pipeline x data of a subspace that has not been looked into. */
typedef struct zp_degrees {
  int tensor, pipeline, data; /* 0: all degrees that leave devices idle */
  int expert;                 /* ranks of an expert group; 0: open */
  int context;                /* of `data`, ranks that share positions */
  double bound_s;             /* no plan of these degrees is faster */
  zp_refinement next;         /* ZP_REFINE_DEGREES: the next two are known */
  int64_t floor_bytes;        /* no plan of these degrees needs less on its fullest stage */
  bool may_fit;               /* as far as a guess knows */
} zp_degrees;
typedef ZP_VEC(zp_degrees) zp_degrees_list;
/* Is what is refined next so of degrees, and not of a point? */
static inline bool zp_refines_degrees(zp_refinement next) { return next <= ZP_REFINE_DEGREES; }

/* Bytes of one rank. */
typedef struct zp_limits {
  int64_t device, host, nvme;
} zp_limits;

enum { ZP_EIGHTHS = 8 }; /* of a class of state: the shares that leave the device */
/* Those that stay on the device at least. A home off the device without eighths: how much leaves
 * is open. */
static inline int zp_eighths_here(const zp_choice *c, zp_state state) {
  const zp_home *home = &c->home[state];
  return home->tier == ZP_TIER_DEVICE ? ZP_EIGHTHS : home->eighths ? ZP_EIGHTHS - home->eighths : 0;
}

/* Model chunks of all stages together. */
static inline int zp_model_chunks(const zp_choice *choice) {
  return choice->pipeline * (choice->chunks > 1 ? choice->chunks : 1);
}

#endif
