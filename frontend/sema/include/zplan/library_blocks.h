/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of the library, std.nn and std.models: what they are called with, and their comment. Their files are searched
 * as text, so that a model that does not load can still be helped. */
#ifndef ZPLAN_LIBRARY_BLOCKS_H
#define ZPLAN_LIBRARY_BLOCKS_H

#include <zplan/buf.h>
#include <zplan/vec.h>

typedef struct zp_library_block {
  const char *name;
  const char *file;    /* "models": it comes with `use std.models` */
  const char *comment; /* above it, on one line; empty: there is none */
  const char *heading; /* "block llama_layer(x: [B, S, d], heads: int, ...) -> [B, S, d]" */
} zp_library_block;
typedef ZP_VEC(zp_library_block) zp_library_blocks;

zp_library_blocks zp_library_blocks_all(zp_arena *arena, const char *library_dir);

/* False where no file of the library has a block of this name. */
bool zp_library_block_find(zp_arena *arena, const char *library_dir, const char *name, zp_library_block *found);
/* As `zplan explain NAME` shows it. */
const char *zp_library_block_text(zp_arena *arena, const zp_library_block *block);

#endif
