/* Private to frontend/weights. */
#ifndef ZPLAN_WEIGHTS_INTERNAL_H
#define ZPLAN_WEIGHTS_INTERNAL_H

#include <zplan/weights.h>

/* Reads the header of a safetensors file and adds its tensors. False after reporting (Z0691). */
bool zp_safetensors_read(zp_arena *arena, zp_diags *diags, zp_weight_folder *folder, const char *path);

/* The prefix of the family where the folder's tensors have none; "" where they have it. */
const char *zp_weights_prefix_left_out(const zp_weight_map *map, const zp_weight_folder *folder);

/* ---- out_folder.c: a folder that appears whole or not at all. What goes wrong is reported (Z0695). ---- */
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
