/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the import of launches of DeepSpeed: parts of its configuration. */
#ifndef ZPLAN_DEEPSPEED_IMPORT_H
#define ZPLAN_DEEPSPEED_IMPORT_H

#include "config.h"

void deepspeed_plan(config *d);                /* deepspeed_plan.c: ranks, batch, state */
void deepspeed_cut(config *d, int64_t stages); /* deepspeed_cut.c: layers of every stage of a pipeline */
void deepspeed_train(config *d);               /* deepspeed_train.c: precision, optimizer, learning rate, steps */

#endif
