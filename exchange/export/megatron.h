/* SPDX-License-Identifier: Apache-2.0 */
/* Private to exports for Megatron-LM and Megatron-Bridge: a plan as arguments of Megatron-LM, which one of them prints
 * and the other turns into fields. */
#ifndef ZPLAN_MEGATRON_H
#define ZPLAN_MEGATRON_H

#include "export_internal.h"
#include <zplan/megatron_flags.h>

/* How messages name two things that the programs say differently. */
typedef struct zp_megatron_words {
  const char *local; /* the implementation without Transformer Engine: "--transformer-impl local" */
  const char *data;  /* "--data-path" */
} zp_megatron_words;

typedef struct zp_megatron_argument {
  const char *title; /* not NULL: a section begins here, the other fields are unset */
  zp_megatron_flag flag;
  const char *value; /* as it is, unquoted; NULL: the flag takes none */
  bool number;
  bool list; /* words with blanks between them */
} zp_megatron_argument;

typedef struct zp_megatron {
  zp_exporter *e;
  const zp_megatron_words *words;
  const zp_gpt *gpt;
  ZP_VEC(zp_megatron_argument) arguments;
} zp_megatron;

/* ---- megatron_arguments.c ---- */
/* All arguments of the plan. m: its exporter and words; false: the model is none that Megatron-LM has, which is
 * refused. What else is refused stands in the result. */
bool zp_megatron_collect(zp_megatron *m);
const char *zp_megatron_name(zp_megatron_flag flag); /* "--bf16" */
/* NULL: it is not among the arguments. */
const zp_megatron_argument *zp_megatron_find(const zp_megatron *m, zp_megatron_flag flag);
/* Whether Megatron-LM wants CUDA_DEVICE_MAX_CONNECTIONS=1, before Blackwell. */
bool zp_megatron_one_connection(const zp_megatron *m);
/* One argument; the table says which of these a flag takes. */
void zp_megatron_put(zp_megatron *m, zp_megatron_flag flag);
void zp_megatron_put_int(zp_megatron *m, zp_megatron_flag flag, int64_t value);
void zp_megatron_put_real(zp_megatron *m, zp_megatron_flag flag, double value);
void zp_megatron_put_text(zp_megatron *m, zp_megatron_flag flag, const char *text);
void zp_megatron_put_words(zp_megatron *m, zp_megatron_flag flag, const char *words);
void zp_megatron_section(zp_megatron *m, const char *title);

/* Each adds its section and refuses what it cannot write. */
void zp_megatron_parallel(zp_megatron *m); /* megatron_parallel.c */
void zp_megatron_memory(zp_megatron *m);
void zp_megatron_model(zp_megatron *m);   /* megatron_model.c */
void zp_megatron_experts(zp_megatron *m); /* megatron_experts.c */
void zp_megatron_train(zp_megatron *m);   /* megatron_train.c */

/* "Et|(t|)*3,tL": embedding, layers and loss on the model chunks, in their order. NULL when a chunk begins or ends
 * inside a layer. Arena. */
const char *zp_megatron_layout(const zp_exporter *e);

#endif
