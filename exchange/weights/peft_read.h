/* SPDX-License-Identifier: Apache-2.0 */
/* Private to exchange/weights: what reads a folder of PEFT. */
#ifndef ZPLAN_PEFT_READ_H
#define ZPLAN_PEFT_READ_H

#include "weights_internal.h"

#include <zplan/json.h>

enum { ZP_PEFT_DEFAULT = 8 }; /* PEFT's, of rank and alpha */

typedef struct zp_peft_reader {
  zp_arena *arena;
  zp_diags *diags;
  const zp_spec *spec;
  zp_weight_map *map;
  const zp_weight_folder *folder;
  const char *config_path;
  const zp_json *config;
  zp_peft_modules modules;
  zp_peft_params params; /* experts, where the folder has them so; else they are modules */
  zp_strings *notes;
} zp_peft_reader;

/* A line of what is otherwise than here; once. */
__attribute__((format(printf, 2, 3))) void zp_peft_differs(zp_peft_reader *r, const char *format, ...);
/* Reports that the folder is not read, and why (Z0692); false. */
bool zp_peft_refuse_folder(zp_peft_reader *r, const char *why);
/* Does a field of the configuration, "target_modules", list the end of a name? */
bool zp_peft_names(const zp_peft_reader *r, const char *list, const char *name);
/* The name, without the family's prefix where the folder has it so. */
const char *zp_peft_with_prefix(const zp_peft_reader *r, const char *name);

/* ---- peft_keys.c ---- */
/* False after reporting the field that asks for what is not built (Z0692). */
bool zp_peft_check_fields(zp_peft_reader *r);
/* Neither null nor false nor empty. */
bool zp_peft_is_set(const zp_json *value);

/* ---- peft_read_experts.c ---- */
/* False after reporting ranks or alphas of other modules than experts (Z0692). */
bool zp_peft_check_patterns(zp_peft_reader *r);
/* Ranks, scales and names of parameters that have adapters. Those of which parts share one there are made to. */
void zp_peft_compare_params(zp_peft_reader *r);
/* Their tensors, into the map. */
void zp_peft_add_params(zp_peft_reader *r);

#endif
