/* SPDX-License-Identifier: Apache-2.0 */
/* Proof of plan files, independent of lowering and search. Findings are one line each; none: sound. */
#ifndef ZPLAN_PROOF_H
#define ZPLAN_PROOF_H

#include <zplan/plan_file.h>

/* `json` is the plan file, `spec` what its sources say. That the steps are those of the model is not proven here.
 * What is missing in the file, all of it too, is a finding. */
void zp_verify(zp_arena *arena, const zp_spec *spec, const zp_json *json, zp_strings *findings);
/* Plays the program of every kind of stage over memory that is poisoned, value by value instead of number by
 * number. A step that would read something else than what its graph says is a finding. Needs no order tables. */
void zp_replay_program(zp_arena *arena, const zp_program *program, zp_strings *findings);

#endif
