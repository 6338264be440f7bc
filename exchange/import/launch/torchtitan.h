/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the import of launches of torchtitan: parts of its configuration. */
#ifndef ZPLAN_TORCHTITAN_H
#define ZPLAN_TORCHTITAN_H

#include "config.h"

/* The model by its name and flavor, unless the command line names one. */
void torchtitan_model(config *d);
void torchtitan_plan(config *d); /* torchtitan_plan.c: ranks, batch, sharding, schedule, recomputation */
/* torchtitan_cut.c: chunks and cut. `several`: the schedule has several parts of the model a rank. */
void torchtitan_cut(config *d, int64_t pipeline, bool several);
void torchtitan_train(config *d); /* torchtitan_train.c: precision, optimizer, learning rate, steps */

#endif
