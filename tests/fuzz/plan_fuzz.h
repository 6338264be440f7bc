/* SPDX-License-Identifier: Apache-2.0 */
/* Random legal plans, priced without the search: what the files of price_plans share. A *family* is what a plan decides
 * that its procedures and their prices depend on; the rest is drawn for each plan. */
#ifndef ZPLAN_TEST_PLAN_FUZZ_H
#define ZPLAN_TEST_PLAN_FUZZ_H

#include <zplan/proof.h>

enum { MODES = 4, MOST_CHUNKS = 8, MOST_STAGES = 512, MOST_PLACES = 2048 };

/* In the order of what a stage keeps. */
static const zp_stage_mode MODE[MODES] = {ZP_RECOMPUTE_NONE, ZP_RECOMPUTE_SELECTIVE, ZP_RECOMPUTE_FULL,
                                          ZP_RECOMPUTE_FULL | ZP_STAGE_SPLIT};

typedef struct fuzz {
  const zp_spec *spec;
  const zp_constraints *allowed;
  int devices;
  uint64_t random;   /* state of the generator */
  zp_arena *scratch; /* of one plan */
} fuzz;

/* What one rank of a stage may use. */
typedef struct rank_room {
  double device; /* context included */
  int64_t context, host, nvme;
} rank_room;

typedef struct family {
  zp_arena *arena;
  zp_choice choice;                        /* degrees, expert groups, rank order, sequence, micro-batch, kind of cut */
  zp_machine machine;                      /* of its ranks */
  const zp_lowered *const *lowered[MODES]; /* [pipeline], priced; NULL: not allowed, or cannot be lowered */
  rank_room *room;                         /* [pipeline] */
  int64_t units;
} family;

/* One plan of a family. Its arrays have room for any plan. */
typedef struct plan {
  zp_choice choice; /* cut and stage_recompute: the arrays below */
  int64_t cut[MOST_PLACES + 1];
  int mode[MOST_STAGES];       /* index into MODE */
  int rest[MOST_STAGES];       /* of the layers after `layers` first ones */
  int64_t layers[MOST_STAGES]; /* 0: all layers are in `mode` */
} plan;

typedef enum verdict { PLAN_ILLEGAL, PLAN_TOO_LARGE, PLAN_FITS } verdict;

/* ---- plan_draw.c: plans of the space, by its definition in planner/search/README.md ---- */
int64_t fuzz_below(fuzz *f, int64_t n); /* 0 .. n - 1; 0 for n < 1 */
/* Degrees and the like; false: what was drawn is not legal. like: near this choice; NULL: any. */
bool draw_family(fuzz *f, const zp_choice *like, zp_choice *out);
void draw_plan(fuzz *f, const family *of, plan *out);
/* One decision of the plan, or one place of its cut, becomes another. short_of: a stage that did not fit, or -1. */
void change_plan(fuzz *f, const family *of, plan *p, int short_of);
/* The plan of a choice of the family. */
void copy_choice(const family *of, const zp_choice *choice, plan *out);

/* ---- plan_price.c: layout and cost, nothing of the search ---- */
/* NULL: the model cannot be divided so. Free with family_free. */
family *family_new(fuzz *f, const zp_choice *choice);
void family_free(family *of);
/* The choice with its cut and modes; arena. */
zp_choice choice_of(zp_arena *arena, const plan *p);
/* step_s: what zp_simulate says of it. short_of: a stage that does not fit. */
verdict price_plan(fuzz *f, const family *of, const plan *p, double *step_s, int *short_of);
/* The plan file, as `zplan plan -o` writes it; arena. */
zp_json *plan_file(zp_arena *arena, const fuzz *f, const family *of, const plan *p);

#endif
