/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the export for PyTorch's fully_shard (FSDP2): the settings of the script in the making. Read in
 * torch 2.15: torch/distributed/fsdp/_fully_shard; tests/peers trains with what is written. */
#ifndef ZPLAN_EXPORT_FSDP2_H
#define ZPLAN_EXPORT_FSDP2_H

#include "export_internal.h"

#define ZP_FSDP2_VERSION "2.15"

typedef struct zp_fsdp2 {
  zp_exporter *e;
  const zp_gpt *gpt;
  zp_buf out; /* the settings: constants of Python */
} zp_fsdp2;

/* One constant a line: `NAME = value`. put_words takes the value as Python has it. */
void zp_fsdp2_put_int(zp_fsdp2 *f, const char *name, int64_t value);
void zp_fsdp2_put_real(zp_fsdp2 *f, const char *name, double value);
void zp_fsdp2_put_flag(zp_fsdp2 *f, const char *name, bool value);
void zp_fsdp2_put_text(zp_fsdp2 *f, const char *name, const char *value);
void zp_fsdp2_put_words(zp_fsdp2 *f, const char *name, const char *words);

/* Which of the script's two models it is, or would be. */
static inline bool zp_fsdp2_is_llama(const zp_gpt *gpt) { return gpt->rms_norm; }

/* Each writes its constants and refuses what the script cannot do. */
bool zp_fsdp2_model(zp_fsdp2 *f); /* fsdp2_model.c: false when it is none of the script's */
void zp_fsdp2_plan(zp_fsdp2 *f);  /* fsdp2_plan.c: mesh, batch, recomputation, offloading */
void zp_fsdp2_train(zp_fsdp2 *f); /* fsdp2_train.c: precision, optimizer, learning rate, data */

#endif
