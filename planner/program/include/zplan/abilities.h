/* SPDX-License-Identifier: Apache-2.0 */
/* What the program of a plan can do: limits of single keys before a search, decisions that do not go together in it. */
#ifndef ZPLAN_ABILITIES_H
#define ZPLAN_ABILITIES_H

#include <zplan/choice.h>

/* A key of the plan block whose limit leaves only values that the program lacks. */
typedef struct zp_lacking {
  const char *key, *why; /* "offload[gradients]", "gradients on disks are not generated yet" */
  const char *help;      /* NULL: nothing but what other programs have */
  zp_span span;          /* of the limit */
  zp_trainer other;      /* the first program that has one of the values; NONE: none has */
} zp_lacking;
typedef struct zp_narrowing {
  zp_strings keys;            /* whose limits were narrowed */
  ZP_VEC(zp_lacking) lacking; /* these limits are left alone */
  ZP_VEC(zp_lacking) useless; /* that allow what the cluster has no place for, among other values */
} zp_narrowing;
/* Limits the chosen plan block to what the cluster's program has. */
zp_narrowing zp_trainer_narrow(zp_arena *arena, zp_spec *spec);
/* What every plan for that program starts with: sets what the cluster runs, limits the chosen plan block to it, and
 * gives experts the slots that it computes.
 * word: one of zp_software_words. */
zp_narrowing zp_program_choose(zp_arena *arena, zp_spec *spec, const char *word);
/* Decisions that do not go together in the program: the first reason (constant), NULL when it can do them. What one key
 * decides is zp_trainer_narrow's; NONE can do everything. */
const char *zp_trainer_refusal(zp_trainer trainer, const zp_train *train, const zp_choice *choice);

#endif
