/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the step's end: the optimizers, a row each. update.c has what holds for all of them: gradients, norm,
 * whether a step is applied, the rule; a row has its update, and what of it checkpoints and other files ask. */
#ifndef ZPLAN_RT_OPTIMIZER_H
#define ZPLAN_RT_OPTIMIZER_H

#include "device.h"
#include "state.h"
#include "state_home.h"

/* What a rank updates; borrowed, the same from the first step to the last. */
typedef struct zpr_update_set {
  const zpr_stretches *stretches;
  const zpr_block *blocks; /* all own elements */
  int64_t n;
  zpr_block_list *here; /* whose state is on the device, cut where it ends, matrices of zpr_param.orthogonal left out */
  zpr_host_update *offloaded; /* the others; NULL: none */
} zpr_update_set;

enum { ZPR_MOST_RECORDED = 8 };

/* Steps that exchange in 1 bit: what is different about them from the first one on, or once the variance is frozen.
 * Functions that are NULL: nothing is to be done, or as in other steps. */
typedef struct zpr_one_bit_row {
  const char *name; /* "Adam": what is exchanged in 1 bit */
  bool (*applies)(const zpr_program *program);
  unsigned arrays; /* of the state alongside the optimizer's, bits by zpr_array */
  void *(*open)(zpr *c);
  void (*close)(zpr *c, void *own);
  /* Sum of squares of this replica's gradients. */
  double (*squares)(zpr *c, void *own);
  int64_t (*variance_updates)(const zpr *c);
  /* The whole update; rule->grad_scale counts on the mean of the replicas' momentum. Collective. */
  void (*update)(zpr *c, void *own, const zpr_update_set *set, const zpk_update *rule);
  /* After a step that was not applied. Collective. */
  void (*skip)(zpr *c, void *own, const zpr_update_set *set, const zpk_update *rule);
} zpr_one_bit_row;

typedef struct zpr_optimizer_row {
  const char *name; /* as in the language and in records of trainings: "adamw" */
  int rule;         /* zpk_update.kind of the elements that `here` and `away` have */
  /* What it keeps of every parameter, by ZPK_MOMENT1 ..., as checkpoints call it (NULL: it does not keep that), nothing
   * where the setting at `keeps_with` (byte of zpr_program; 0: no such setting) is 0; and of orthogonal matrices. */
  const char *moment[ZPK_MOMENTS], *moment_of_matrix[ZPK_MOMENTS];
  size_t keeps_with;
  bool has_statistics; /* adafactor.h */
  bool exchanges;      /* ranks send each other more than sums while they update */
  /* It needs an element, its gradient and its state alone: then GPUs may decide about steps themselves. */
  bool by_element;
  const char *recorded[ZPR_MOST_RECORDED]; /* settings of zpr_program that a training's record has; see there */
  const zpr_one_bit_row *const *one_bit;   /* ways to exchange in 1 bit, the first that applies; NULL: none */
  /* What the optimizer keeps of its own, owned; NULL: nothing. */
  void *(*open)(zpr *c, const zpr_update_set *set);
  void (*close)(void *own);
  /* The whole update, the `step`-th that is applied, from 1. Collective. */
  void (*update)(zpr *c, void *own, const zpr_update_set *set, const zpk_update *rule, int64_t step);
  /* GPUs: its products once, of whatever lies there (cuda/rehearsal.c); NULL: it has none. */
  void (*rehearse)(zpr *c);
} zpr_optimizer_row;

const zpr_optimizer_row *zpr_optimizer_of(const zpr_program *program);
/* NULL: no step exchanges in 1 bit. */
const zpr_one_bit_row *zpr_one_bit_of(const zpr_program *program);
/* What the program's optimizer keeps: bits by ZPK_MOMENT1 ... */
unsigned zpr_kept(const zpr_program *program);

/* ---- rows: the list is in zplan/zpk_optimizers.h ---- */
#define ZPR_OPTIMIZER_ROW(id, row) extern const zpr_optimizer_row row;
ZPR_OPTIMIZERS(ZPR_OPTIMIZER_ROW)
#undef ZPR_OPTIMIZER_ROW
extern const zpr_one_bit_row zpr_zero_one_adam, zpr_one_bit_adam_shards, zpr_one_bit_adam, zpr_one_bit_lamb_shards,
    zpr_one_bit_lamb;

/* The update of zpr_optimizer_row of whom all elements are updated by the rule, one by one; elements.c. */
void zpr_update_elements(zpr *c, void *own, const zpr_update_set *set, const zpk_update *rule, int64_t step);

/* Is the next step's update one that is delayed? */
static inline bool zpr_delays(const zpr *c) { return c->program->delayed && c->step >= c->program->delay_after; }

#endif
