/* SPDX-License-Identifier: Apache-2.0 */
/* What hides behind zpr.state: one pointer per part, each opaque to the others. All of it is allocated before the first
 * step. */
#ifndef ZPLAN_RT_STATE_H
#define ZPLAN_RT_STATE_H

#include "zero_one_adam.h"
#include "variance_freeze.h"
#include "internal.h"

typedef struct zpr_comm zpr_comm;       /* comm.c */
typedef struct zpr_device zpr_device;   /* of the back end: cpu/, cuda/ */
typedef struct zpr_tier zpr_tier;       /* tier.c */
typedef struct zpr_saving zpr_saving;   /* saved.c */
typedef struct zpr_offload zpr_offload; /* offloaded.c */
typedef struct zpr_updater zpr_updater; /* update.c */
typedef struct zpr_partial zpr_partial; /* partial.c */
typedef struct zpr_loads zpr_loads;     /* loads.c */
typedef struct zpr_log zpr_log;         /* log.c */
typedef struct zpr_profile zpr_profile; /* profile.c */

/* state_home.c: where state is open between steps. */
typedef struct zpr_open_state {
  int64_t piece; /* disks: 1 + the piece in the window; 0: none */
  bool changed, device;
} zpr_open_state;

/* Logits of a forward pass, as zpr_ce_stats has them: [ranks, rows, V], of which a row's classes are those of all ranks
 * in order; or without labels the statistics of squared errors. On the host, of the rows from number `first` on. */
typedef struct zpr_looked {
  int loss;
  const void *logits;
  int64_t ranks, rows, V, classes;
  const int32_t *labels, *lengths;
  int64_t first;
} zpr_looked;

/* What a rank is doing; outside of a step the time depends on disks. */
typedef enum zpr_doing { ZPR_IN_START, ZPR_IN_STEP, ZPR_IN_CHECKPOINT } zpr_doing;

struct zpr_state {
  zpr_options options;
  zpr_doing phase;
  double longest_step_ms; /* so far; 0: none is done */
  bool rehearses;         /* the walk is for loading alone (zpr_prepare) */
  zpr_comm *comm;
  zpr_pool *pool;
  zpr_device *device;
  zpr_tier *tier;
  zpr_offload *offload;
  struct zpr_host_grads *host_grads; /* host_grads.c; NULL: not used yet */
  uint32_t *additions;               /* stochastic_sums.c: to every bucket, in this step; NULL: not used yet */
  zpr_open_state open_state;
  zpr_saving *saving;
  int64_t fetched;     /* param_home.c: the last copy that brings parameters */
  int64_t returned[2]; /* and those that take what was gathered down, from either buffer of the ring */
  zpr_updater *updater;
  zpr_variance_freeze freeze;
  zpr_local local;
  struct zpr_coefficients *coefficients; /* optimizer/one_bit_lamb.c; NULL: not asked for */
  zpr_partial *partial;
  zpr_loads *loads; /* NULL: no bias of a gate moves by its load */
  zpr_log *log;
  zpr_profile *profile; /* NULL: no step is measured */
  /* Whoever looks at the logits of a forward pass; NULL: nobody. */
  void (*look)(void *arg, const zpr_looked *seen);
  void *look_arg;
  unsigned look_losses;        /* a bit for every loss that is shown */
  int64_t stale_at;            /* step of a checkpoint whose stale weights are to be loaded; -1: none */
  int64_t look_row;            /* a GPU need not show other rows than this one; -1: it shows all */
  zpr_data *data;              /* trained on; NULL: none is opened */
  zpr_error data_error;        /* what is wrong with the batch that was loaded last, of this rank's part */
  char initial[4096];          /* folder of the weights that the run began with; "": they were drawn. Rank 0 */
  char algorithms[256];        /* algorithms.c: of this run's products, from the first step on; "": they have none */
  char algorithms_before[256]; /* those of the checkpoint that the run goes on from; rank 0 */
};

static inline bool zpr_looks(const zpr *c, int loss) { return c->state->look && c->state->look_losses >> loss & 1; }
/* look.c of the back end: to whoever looks, from a rank's part of the classes, where the device has them. */
void zpr_show(zpr *c, const zpr_looked *part);

/* Memory of the runtime itself; ends the run with Z0822 when there is none. Zeroed. */
void *zpr_alloc(zpr *c, size_t count, size_t size);

#endif
