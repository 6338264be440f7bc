/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers, a row each (optimizers.def): its options in the language, what it keeps of every parameter, what its
 * update needs and moves, what it does not go with, and its words elsewhere. Other files ask the row and name no
 * optimizer. Of the runtime's side ../../../../runtime/optimizer/README.md. */
#ifndef ZPLAN_OPTIMIZER_H
#define ZPLAN_OPTIMIZER_H

#include <stdbool.h>
#include <stddef.h>

typedef enum zp_optimizer_kind {
#define OPTIMIZER(kind, ...) ZP_OPT_##kind,
#include <zplan/optimizers.def>
  ZP_OPT_COUNT
} zp_optimizer_kind;

/* ---- settings: numbers that optimizers update by, fields of zp_train and of the generated trainer's program ---- */
/* Which trainings the trainer's program says a setting of: all; those whose optimizer has the option; those of them
 * that exchange in 1 bit. */
typedef enum zp_setting_use { ZP_SETTING_ALL, ZP_SETTING_OWN, ZP_SETTING_ONE_BIT } zp_setting_use;
typedef struct zp_setting {
  const char *name;
  size_t at; /* byte of zp_train */
  bool flag; /* a bool; else a double */
  zp_setting_use use;
} zp_setting;
extern const zp_setting zp_optimizer_settings[];
extern const int zp_n_optimizer_settings;

/* ---- options: what the language writes in the call, `adamw(lr = 6e-4)` ---- */
/* Ranges of numbers that the language takes. */
typedef enum zp_range {
  ZP_RANGE_ANY,
  ZP_RANGE_POSITIVE,     /* > 0 */
  ZP_RANGE_NOT_NEGATIVE, /* >= 0 */
  ZP_RANGE_BELOW_ONE,    /* 0 <= x < 1 */
  ZP_RANGE_INSIDE,       /* 0 < x < 1 */
  ZP_RANGE_FRACTION,     /* 0 < x <= 1 */
  ZP_RANGE_ONE_OR_MORE,  /* >= 1 */
  ZP_RANGE_LATENCY,      /* 0 <= x <= 1 second: more is a slip of the unit */
} zp_range;

typedef enum zp_optimizer_option_kind {
  ZP_OPTION_REAL,
  ZP_OPTION_LIST, /* [0.9, 0.95]: settings */
  ZP_OPTION_BOOL,
  ZP_OPTION_COUNT,  /* int64_t */
  ZP_OPTION_DECAY,  /* which parameters weight_decay shrinks: "matrices" or "all" */
  ZP_OPTION_FREEZE, /* when 1-bit Adam freezes its variance: auto(...), growing(...) */
} zp_optimizer_option_kind;
typedef struct zp_optimizer_value {
  size_t at;        /* byte of zp_train */
  double unwritten; /* where it is not written; below 0: 0 */
} zp_optimizer_value;
enum { ZP_OPTION_MOST_VALUES = 3 };
typedef struct zp_optimizer_option {
  const char *name;
  zp_optimizer_option_kind kind;
  zp_range range;
  int n; /* values: of DECAY and FREEZE none, of LIST so many, else one */
  zp_optimizer_value value[ZP_OPTION_MOST_VALUES];
  const char *example; /* LIST: of all values */
} zp_optimizer_option;

/* ---- rows ---- */
/* What optimizers keep of every parameter: arrays of state_regions.def, a number an element. */
typedef enum zp_kept {
#define STATE_MOMENT(region, field, key, name) ZP_KEPT_##region,
#include <zplan/state_regions.def>
  ZP_KEPT_COUNT
} zp_kept;

/* What an update needs beyond the element, its gradient and its state. */
typedef enum zp_update_needs {
  ZP_NEEDS_ELEMENT,    /* nothing */
  ZP_NEEDS_LENGTHS,    /* moments first, then lengths of whole tensors: of parameters and of updates */
  ZP_NEEDS_STATISTICS, /* sums of squared gradients by row and column of whole tensors, then lengths */
  ZP_NEEDS_MATRICES,   /* whole matrices, of those parameters that zp_recipe calls orthogonal */
} zp_update_needs;

/* Steps that exchange in 1 bit (arXiv 2102.02888), as 1-bit Adam or 1-bit LAMB; 0/1 Adam is Adam's. */
typedef enum zp_one_bit { ZP_ONE_BIT_NONE, ZP_ONE_BIT_ADAM, ZP_ONE_BIT_LAMB } zp_one_bit;

/* What an optimizer may not go with. */
typedef enum zp_optimizer_limit {
  ZP_LIMIT_OTHER_TRAINERS,  /* plans for another program's trainer */
  ZP_LIMIT_OFFLOAD,         /* optimizer state, gradients or parameters off the device */
  ZP_LIMIT_BEYOND_STATE,    /* more of gradients or parameters off the device than of optimizer state */
  ZP_LIMIT_SPREAD_EXPERTS,  /* experts spread over data ranks */
  ZP_LIMIT_ONE_BIT,         /* exchanges in 1 bit; */
  ZP_LIMIT_ONE_BIT_OFFLOAD, /* and optimizer state off the device; */
  ZP_LIMIT_ONE_BIT_GROWING, /* at growing intervals */
  ZP_LIMIT_COUNT
} zp_optimizer_limit;

typedef struct zp_optimizer {
  const char *name; /* as in the language: "adamw" */
  const zp_optimizer_option *options;
  int n_options;
  /* What it keeps, bits by zp_kept; nothing where the setting at `keeps_with` (byte of zp_train; 0: there is no such
   * setting) is 0. */
  unsigned keeps;
  size_t keeps_with;
  zp_update_needs needs;
  /* How often an update reads these again, after gradients for the norm and everything once for the update. */
  struct {
    int gradients, weights, kept;
  } again;
  zp_one_bit one_bit;
  bool is_adam;           /* what other programs offload */
  bool decay_in_gradient; /* weight decay is added to gradients; else it shrinks weights */
  bool relative_step;     /* without a learning rate steps are min(1e-2, 1 / sqrt(step)) */
  const char *example_lr, *meaning;
  const char *not_with[ZP_LIMIT_COUNT]; /* refusals; NULL: it goes with that */
  /* Its words elsewhere: the generated program's kind, and what device kernels of its own hang on (NULL: it has none);
   * the exports' (NULL: they have none). */
  const char *program_kind, *device_macro, *device_macro_one_bit;
  const char *deepspeed, *megatron;
} zp_optimizer;

struct zp_train;
const zp_optimizer *zp_optimizer_row(zp_optimizer_kind kind);
/* The row of the training's optimizer. */
const zp_optimizer *zp_optimizer_facts(const struct zp_train *train);
const char *zp_optimizer_name(zp_optimizer_kind kind); /* as in the language: "adamw" */
/* What this training keeps: bits by zp_kept. Does it keep such an array? How many does it keep? */
unsigned zp_kept_bits(const struct zp_train *train);
bool zp_keeps(const struct zp_train *train, zp_kept kept);
int zp_n_kept(const struct zp_train *train);
/* Does the call of the optimizer take the number at this byte of zp_train? The number there. */
bool zp_optimizer_takes(const zp_optimizer *optimizer, size_t at);
double zp_setting_real(const struct zp_train *train, size_t at);
/* Lengths of whole tensors before any element moves? */
static inline bool zp_needs_lengths(const zp_optimizer *optimizer) {
  return optimizer->needs == ZP_NEEDS_LENGTHS || optimizer->needs == ZP_NEEDS_STATISTICS;
}
/* Do ranks exchange, while they update, what lengths and the norm are not? */
static inline bool zp_update_exchanges(const zp_optimizer *optimizer) {
  return optimizer->needs == ZP_NEEDS_STATISTICS || optimizer->needs == ZP_NEEDS_MATRICES;
}

#endif
