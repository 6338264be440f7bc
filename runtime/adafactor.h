/* Private to the step's end: Adafactor (cpu/adafactor.c; no GPU's trainer has it, says the planner). */
#ifndef ZPLAN_RT_ADAFACTOR_H
#define ZPLAN_RT_ADAFACTOR_H

#include "device.h"
#include "state.h"

/* Where the statistics of parameter k of instance i of a run of this stage begin, in elements of stage->statistics: of
 * a matrix means of its rows, then of its columns; of a vector all of them. Tensors of several matrices have those of
 * all of them one behind the other. */
int64_t zpr_statistics_at(const zpr *c, const zpr_run *run, int64_t i, int k);
/* What they are. All of a vector count as columns. */
typedef struct zpr_statistics {
  int64_t rows, cols; /* numbers of either */
  int64_t height, width, elements;
} zpr_statistics;
zpr_statistics zpr_statistics_of(const zpr_param *param);

typedef struct zpr_adafactor zpr_adafactor;
zpr_adafactor *zpr_adafactor_open(zpr *c);
void zpr_adafactor_close(zpr_adafactor *adafactor);
/* The whole update, the `step`-th that is applied, from 1. Collective. */
void zpr_adafactor_update(zpr *c, zpr_adafactor *adafactor, const zpk_update *rule, int64_t step);

#endif
