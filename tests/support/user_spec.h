/* SPDX-License-Identifier: Apache-2.0 */
/* The spec that a user gets: words of a command line, through the command's own options, loader and choice of program.
 * For tests that link zp_driver; builders of specs call zp_program_choose, which the command calls, too. */
#ifndef ZPLAN_TEST_USER_SPEC_H
#define ZPLAN_TEST_USER_SPEC_H

#include <assert.h>
#include <stdlib.h>
#include "driver.h"

/* As `zplan plan WORDS...`, with the rates of the library. NULL after saying on stderr why not. */
static inline zp_spec *user_spec(zp_arena *arena, const char *const *words, int n) {
  zp_run_state *run = ZP_NEW(arena, zp_run_state);
  char **argv = ZP_NEW_ARRAY(arena, char *, n + 1);
  zp_json *json = NULL;
  for (int i = 0; i < n; i++) argv[i] = zp_strdup(arena, words[i]);
  *run = (zp_run_state){.arena = arena, .command = "plan", .diags = zp_diags_new(arena)};
  unsetenv("ZPLAN_CALIBRATION");
  if (!zp_parse_options(run, n, argv)) return NULL;
  zp_spec *spec = zp_load_input(run, &json);
  assert(!json && "tests load .dz files");
  return spec;
}

/* As `zplan plan FILE --gpus N --set ...`; gpus 0: those of the file. set: n_set settings, or up to NULL. */
static inline zp_spec *user_spec_on(zp_arena *arena, const char *file, int gpus, const char *const *set, int n_set) {
  zp_strings words = {0};
  zp_push(arena, &words, file);
  if (gpus) {
    zp_push(arena, &words, "--gpus");
    zp_push(arena, &words, zp_format(arena, "%d", gpus));
  }
  for (int i = 0; i < n_set && set[i]; i++) {
    zp_push(arena, &words, "--set");
    zp_push(arena, &words, set[i]);
  }
  return user_spec(arena, words.data, words.len);
}

#endif
