/* SPDX-License-Identifier: Apache-2.0 */
/* Paths as text: no file is considered. Results live in the arena. */
#ifndef ZPLAN_PATH_H
#define ZPLAN_PATH_H

#include <zplan/arena.h>

/* Without "." and "x/..", so that one file has one path; nothing is above the root. (Wrong when x is a symbolic link,
 * which is rare.) */
const char *zp_path_tidy(zp_arena *arena, const char *path);
/* `name` as the file means it: relative to its folder. Tidy. */
const char *zp_path_alongside(zp_arena *arena, const char *file, const char *name);
/* The name by which the file means `target`: zp_path_alongside of it is the target again. Both tidy. */
const char *zp_path_from(zp_arena *arena, const char *file, const char *target);

#endif
