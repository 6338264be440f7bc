/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the export for DeepSpeed: its parts. Read in deepspeedai/DeepSpeed at commit edaa7221 of 22 August 2026,
 * version 0.19.6; keys are those of docs/_pages/config-json.md and of the classes that read them. */
#ifndef ZPLAN_DEEPSPEED_H
#define ZPLAN_DEEPSPEED_H

#include "export_internal.h"

#define ZP_DEEPSPEED_VERSION "0.19.6, commit edaa7221"

/* Each adds its keys to the root and refuses what it cannot write. */
void zp_deepspeed_memory(zp_exporter *e, zp_json *root); /* deepspeed_memory.c: ZeRO, offloading, kept activations */
void zp_deepspeed_train(zp_exporter *e, zp_json *root);  /* deepspeed_train.c: optimizer, learning rate, precision */

#endif
