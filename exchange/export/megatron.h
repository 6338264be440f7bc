/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the export for Megatron-LM: the array of arguments in the making, and its parts. */
#ifndef ZPLAN_MEGATRON_H
#define ZPLAN_MEGATRON_H

#include "export_internal.h"
#include <zplan/megatron_flags.h>

typedef struct zp_megatron {
  zp_exporter *e;
  const zp_gpt *gpt;
  zp_buf out; /* the lines of the array */
} zp_megatron;

/* One argument a line; the table says which of these a flag takes. put_text quotes for a shell, put_words does not. */
void zp_megatron_put(zp_megatron *m, zp_megatron_flag flag);
void zp_megatron_put_int(zp_megatron *m, zp_megatron_flag flag, int64_t value);
void zp_megatron_put_real(zp_megatron *m, zp_megatron_flag flag, double value);
void zp_megatron_put_text(zp_megatron *m, zp_megatron_flag flag, const char *text);
void zp_megatron_put_words(zp_megatron *m, zp_megatron_flag flag, const char *words);
void zp_megatron_section(zp_megatron *m, const char *title);

/* Each writes its section and refuses what it cannot write. */
void zp_megatron_parallel(zp_megatron *m); /* megatron_parallel.c */
void zp_megatron_memory(zp_megatron *m);
void zp_megatron_model(zp_megatron *m);   /* megatron_model.c */
void zp_megatron_experts(zp_megatron *m); /* megatron_experts.c */
void zp_megatron_train(zp_megatron *m);   /* megatron_train.c */

/* "Et|(t|)*3,tL": embedding, layers and loss on the model chunks, in their order. NULL when a chunk begins or ends
 * inside a layer. Arena. */
const char *zp_megatron_layout(const zp_exporter *e);

#endif
