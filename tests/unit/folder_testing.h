/* SPDX-License-Identifier: Apache-2.0 */
/* A folder of a test's own, in the current one: made when a test begins, gone when its process ends, also by exit(). */
#ifndef ZPLAN_TEST_FOLDER_TESTING_H
#define ZPLAN_TEST_FOLDER_TESTING_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[64];

static void remove_folder(void) {
  char command[128];
  snprintf(command, sizeof command, "rm -rf ./%s", folder);
  if (system(command) != 0) fprintf(stderr, "could not remove %s\n", folder);
}

static void make_folder(void) {
  snprintf(folder, sizeof folder, "rt_data_XXXXXX");
  cr_assert(mkdtemp(folder) != NULL);
  atexit(remove_folder);
}

#endif
