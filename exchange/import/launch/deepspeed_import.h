/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the import of launches of DeepSpeed: values of its configuration by path, "zero_optimization.stage". */
#ifndef ZPLAN_DEEPSPEED_IMPORT_H
#define ZPLAN_DEEPSPEED_IMPORT_H

#include "launch.h"
#include <zplan/json.h>

typedef struct deepspeed {
  launch *l;
  zp_json *root;
  const char *text;
  int file;
} deepspeed;

/* ---- deepspeed.c: "auto" and null are as if the key were missing; what has another type or range is reported ---- */
bool deepspeed_has(const deepspeed *d, const char *path);
int64_t deepspeed_int(deepspeed *d, const char *path, int64_t missing, int64_t least, int64_t most);
double deepspeed_real(deepspeed *d, const char *path, double missing, double least, double most);
bool deepspeed_bool(deepspeed *d, const char *path, bool missing);
const char *deepspeed_text(deepspeed *d, const char *path, const char *missing);
const char *deepspeed_from(const deepspeed *d, const char *path); /* "zero_optimization.stage 2". Arena. */
zp_span deepspeed_at(const deepspeed *d, const char *path);       /* where its last name stands first */

/* ---- deepspeed_plan.c, deepspeed_train.c ---- */
void deepspeed_plan(deepspeed *d);
void deepspeed_train(deepspeed *d);

#endif
