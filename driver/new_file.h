/* SPDX-License-Identifier: Apache-2.0 */
/* What `zplan new` and --model without a file share: a model, and the blocks around it. */
#ifndef ZPLAN_NEW_FILE_H
#define ZPLAN_NEW_FILE_H

#include "driver.h"
#include <zplan/import.h>

/* NULL after reporting. */
const zp_cluster *zp_cluster_of_block(zp_run_state *run, const char *block);
const zp_model *zp_model_of_text(zp_run_state *run, const char *text);
/* "mixed_bf16", as the devices can. */
const char *zp_precision_of(const zp_cluster *cluster);
/* A train block for such a model from the beginning. */
const char *zp_pretraining_block(zp_run_state *run, const zp_imported *imported, const zp_model *model,
                                 const char *precision);
/* Says that there is no such published model; exit status 2. */
int zp_refuse_model(zp_run_state *run, const char *name);

/* Do all words occur in the text, whatever their capitals? */
bool zp_has_words(const zp_strings *words, const char *text);

#endif
