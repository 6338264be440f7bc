/* SPDX-License-Identifier: Apache-2.0 */
/* A folder that appears whole or not at all: its files are written alongside it and take its place at the end. What
 * goes wrong is reported (Z0695). */
#ifndef ZPLAN_OUT_FOLDER_H
#define ZPLAN_OUT_FOLDER_H

#include <zplan/diag.h>

typedef struct zp_out_folder zp_out_folder;
zp_out_folder *zp_out_open(zp_arena *arena, zp_diags *diags, const char *path);
bool zp_out_begin(zp_out_folder *out, const char *name); /* a file, which zp_out_put fills and zp_out_end ends */
bool zp_out_put(zp_out_folder *out, const void *data, size_t bytes);
bool zp_out_end(zp_out_folder *out);
bool zp_out_file(zp_out_folder *out, const char *name, const char *data, size_t bytes);
bool zp_out_copy(zp_out_folder *out, const char *path); /* under its own name */
/* good: everything has been written. Returns whether the folder is there. */
bool zp_out_close(zp_out_folder *out, bool good);

#endif
