/* SPDX-License-Identifier: Apache-2.0 */
/* Takes the place of the planner's replay in a `zplan` of its own (tests/verify/proof.py): plans of
 * ZPLAN_UNSOUND_TENSOR tensor ranks are not sound, as if the planner had a bug. */
#include <stdlib.h>
#include <zplan/proof.h>
#include <zplan/report.h>

void zp_replay_program(zp_arena *arena, const zp_program *program, zp_strings *findings) {
  const char *tensor = getenv("ZPLAN_UNSOUND_TENSOR");
  if (tensor && atoi(tensor) == program->choice.tensor)
    zp_push(arena, findings, "stage 0, backward of `h` 0, micro-batch 0, step 1: made up by a test");
}
