/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the import of launches of torchtitan: parts of its configuration. */
#ifndef ZPLAN_TORCHTITAN_H
#define ZPLAN_TORCHTITAN_H

#include "config.h"

/* The model by its name and flavor, unless the command line names one. */
void torchtitan_model(config *d);
void torchtitan_plan(config *d);  /* torchtitan_plan.c: ranks, batch, sharding, stages, recomputation */
void torchtitan_train(config *d); /* torchtitan_train.c: precision, optimizer, learning rate, steps */

#endif
