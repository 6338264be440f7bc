/* SPDX-License-Identifier: Apache-2.0 */
/* Plan files: a plan as JSON, and the choice that a file states. docs/reference/plan_json.md has every field. */
#ifndef ZPLAN_PLAN_FILE_H
#define ZPLAN_PLAN_FILE_H

#include <zplan/plan.h>

zp_json *zp_plan_to_json(zp_arena *arena, const zp_plan *plan);
/* Makes a file of format 1 one of format 2, which calls some fields otherwise and has not all. What is no plan file
 * stays as it is. NULL, or what is wrong (arena): the names of format 1 in a later one. */
const char *zp_plan_json_upgrade(zp_arena *arena, zp_json *json);
/* Adds to a plan that will be the file `path` where its model stands as seen from there, `model_folder`, unless that is
 * the same folder or there is no such file. The folder of `path` must exist. */
void zp_set_model_folder(zp_arena *arena, zp_json *json, const zp_spec *spec, const char *path);
/* The terms of a step under the names of their fields. */
void zp_estimate_set_terms(zp_json *object, const zp_estimate *estimate);
/* The specification with its nodes in the order in which the plan's ranks fill them: `spec` itself where that is the
 * written one. NULL with *error (arena): not the nodes of the specification. */
const zp_spec *zp_plan_spec_from_json(zp_arena *arena, const zp_spec *spec, const zp_json *json, const char **error);
/* Only the choice, and how many devices it was made for; everything else is derived again. spec: what the file's
 * sources say; its batch decides how long orders are. false with *error (arena) for a malformed file. */
bool zp_plan_choice_from_json(zp_arena *arena, const zp_spec *spec, const zp_json *json, zp_choice *choice,
                              int *devices, const char **error);
/* Identity of a plan: hash of its decisions, and of the sizes that follow from them. 16 hex digits. */
const char *zp_plan_hash(zp_arena *arena, const zp_program *program);
/* Reads the order of a file's stage into `table`, which has room for its actions. What is wrong with it (arena), or
 * NULL. */
const char *zp_read_stage_order(zp_arena *arena, const zp_json *stage_json, const zp_choice *choice, int stage,
                                int64_t microbatches, zp_action *table);

#endif
