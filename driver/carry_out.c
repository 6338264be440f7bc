/* SPDX-License-Identifier: Apache-2.0 */
/* A verb carried out by the words after it: for the command (main.c) and for libzplan (library/). */
#include "driver.h"

int zp_carry_out(zp_run_state *run, const zp_verb *verb) {
  bool good = zp_parse_options(run, run->n_words, (char **)(uintptr_t)run->words) && zp_choose_machine(run) &&
              zp_take_known_models(run) && zp_results_are_apart(run);
  int status = good ? verb->run(run) : ZP_EXIT_USAGE;
  if (run->interrupted) status = ZP_EXIT_INTERRUPTED;
  if (run->unsound) status = ZP_EXIT_BUG;
  return status;
}
