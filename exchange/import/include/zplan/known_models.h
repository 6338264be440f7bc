/* SPDX-License-Identifier: Apache-2.0 */
/* Published models by name (known_models.def). */
#ifndef ZPLAN_KNOWN_MODELS_H
#define ZPLAN_KNOWN_MODELS_H

#include <zplan/import.h>

typedef struct zp_known_model {
  const char *name;      /* "llama3-70b" */
  const char *hub;       /* "meta-llama/Meta-Llama-3-70B", whose config.json it is; "": the source alone has it */
  const char *published; /* parameters as the source has them: "8.2B", "355M", "124,439,808" */
  const char *source;    /* of that number */
  const char *config;    /* JSON */
} zp_known_model;

int zp_known_model_count(void);
const zp_known_model *zp_known_model_at(int index);
/* Capitals do not matter, and `_`, `-` and `.` are the same. NULL: there is none of that name. */
const zp_known_model *zp_find_known_model(const char *name);
/* Its model alone, as of zp_import_hf_model. */
zp_imported *zp_import_known_model(zp_arena *arena, zp_diags *diags, const zp_known_model *model);

#endif
