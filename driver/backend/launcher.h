/* SPDX-License-Identifier: Apache-2.0 */
/* The words of the launcher that this machine has (launcher.c). */
#ifndef ZP_LAUNCHER_H
#define ZP_LAUNCHER_H

#include "driver.h"

extern const char zp_launcher_program[]; /* a name that PATH finds */

/* What a start needs settings for. FOLDER and MEMORY take a folder of the start's own. */
typedef enum zp_launch_need {
  ZP_LAUNCH_ALWAYS,
  ZP_LAUNCH_LOCAL,  /* all ranks on this machine */
  ZP_LAUNCH_HOSTS,  /* on several */
  ZP_LAUNCH_FOLDER, /* where the launcher keeps its files */
  ZP_LAUNCH_MEMORY, /* where ranks make the memory that they share */
  ZP_N_LAUNCH_NEEDS,
} zp_launch_need;

typedef struct zp_launcher zp_launcher;

/* Asks the program for its version, once a process. NULL after saying that it is missing, or of no known version. */
const zp_launcher *zp_find_launcher(zp_run_state *run);
/* Its path with its version, and whether that is one that starts ranks. NULL: there is none. Arena. */
const char *zp_launcher_found(zp_arena *arena);
/* Appends the settings of that need but for those that the user has made in variables; folder: of FOLDER and MEMORY. */
void zp_launcher_push(zp_arena *arena, zp_strings *argv, const zp_launcher *launcher, zp_launch_need need,
                      const char *folder);
/* Has the user made one of these settings, or one that goes with none of them? */
bool zp_launcher_is_set(zp_arena *arena, const zp_launcher *launcher, zp_launch_need need);
/* Appends the words that let ranks share cores, bound to none. */
void zp_launcher_share(zp_arena *arena, zp_strings *argv, const zp_launcher *launcher);
/* Programs that become the launcher one after the other in one process: the last one opens its ports. */
int zp_launcher_programs(const zp_launcher *launcher);

#endif
