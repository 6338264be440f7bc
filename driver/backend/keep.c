/* SPDX-License-Identifier: Apache-2.0 */
/* A run keeps its last state, also where its file does not say where: alongside the trainer's folder, each run for
 * itself.
 *
 * The first run has FOLDER.checkpoints, the next ones FOLDER.checkpoints.2 and so on, because no run takes the place of
 * another unasked. --resume goes on in the last one, --overwrite begins anew in it. */
#include "driver.h"

#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

static bool names_folder(const zp_options *o) {
  for (int i = 0; i < o->trainer_args.len; i++)
    if (strcmp(o->trainer_args.data[i], "--checkpoint") == 0 || strcmp(o->trainer_args.data[i], "--help") == 0)
      return true;
  return false;
}

/* Words after `--` say it, too. */
static bool goes_on(const zp_options *o) {
  for (int i = 0; i < o->trainer_args.len; i++)
    if (strncmp(o->trainer_args.data[i], "--resume", 8) == 0 || strcmp(o->trainer_args.data[i], "--overwrite") == 0)
      return true;
  return o->resume || o->overwrite;
}

static const char *folder_of(const zp_run_state *run, const char *tree, int n) {
  int length = (int)strlen(tree);
  while (length > 1 && tree[length - 1] == '/') length--;
  return n == 1 ? zp_format(run->arena, "%.*s.checkpoints", length, tree)
                : zp_format(run->arena, "%.*s.checkpoints.%d", length, tree, n);
}

/* Has a run kept something there? */
static bool is_used(const char *folder) {
  DIR *dir = opendir(folder);
  bool used = false;
  for (struct dirent *entry; dir && !used && (entry = readdir(dir));)
    used = strncmp(entry->d_name, "step_", 5) == 0 || strcmp(entry->d_name, ".lock") == 0;
  if (dir) closedir(dir);
  return used;
}

void zp_choose_checkpoints(zp_run_state *run, const zp_spec *spec) {
  const zp_options *o = &run->options;
  const zp_train *train = &spec->train;
  if (train->checkpoint_dir || train->checkpoint_none || o->no_checkpoint || names_folder(o)) return;
  const char *tree = zp_tree_dir(run);
  int free_one = 1;
  while (is_used(folder_of(run, tree, free_one))) free_one++;
  int n = goes_on(o) && free_one > 1 ? free_one - 1 : free_one;
  run->checkpoints = folder_of(run, tree, n);
}
