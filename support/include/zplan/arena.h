/* SPDX-License-Identifier: Apache-2.0 */
/* Arenas: memory by lifetime. Everything a compiler phase makes lives in one arena and dies with it.
 * Memory from an arena is zeroed. Allocation never returns NULL: when the machine has no memory left
 * the process prints one line and exits with status 1, or the call of another process ends (hosted.h). */
#ifndef ZPLAN_ARENA_H
#define ZPLAN_ARENA_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct zp_arena zp_arena;
typedef struct zp_arena_mark {
  void *block;
  size_t used;
} zp_arena_mark;

/* What some arenas hold of the machine's memory together, spare blocks included. It is counted here and kept by whoever
 * allocates, who asks before he begins something large: the same input holds the same bytes on every machine. */
typedef struct zp_arena_budget {
  size_t limit_bytes, held_bytes, peak_bytes;
} zp_arena_budget;

/* Owned by the caller; free with zp_arena_free. `name` is borrowed and must be a literal. */
zp_arena *zp_arena_new(const char *name);
/* One that counts in a budget, which is borrowed and lives longer; in the budget of another arena, or in none as
 * that. */
zp_arena *zp_arena_new_within(const char *name, zp_arena_budget *budget);
zp_arena *zp_arena_new_alongside(const char *name, const zp_arena *other);
/* May its budget hold so much more? Without one always. */
bool zp_arena_has_room(const zp_arena *arena, size_t bytes);
void zp_arena_free(zp_arena *arena);
/* Frees the arenas that this thread has made since it was called with true. hosted.c calls it. */
void zp_arenas_keep(bool on);

/* Zeroed, aligned to 16 bytes. */
void *zp_alloc(zp_arena *arena, size_t bytes);
/* Not zeroed, else as zp_alloc: the caller writes every byte before it is read. */
void *zp_room(zp_arena *arena, size_t bytes);
/* Moves `data` (old_bytes long) into a block of new_bytes; the rest is zeroed. */
void *zp_grow(zp_arena *arena, const void *data, size_t old_bytes, size_t new_bytes);
/* zp_grow with a rest that is not zeroed (zp_room). */
void *zp_grow_room(zp_arena *arena, const void *data, size_t old_bytes, size_t new_bytes);

/* Everything allocated after the mark is released by the rewind. Requires: a mark of this arena, and no rewind to an
 * older one since. */
zp_arena_mark zp_arena_get_mark(const zp_arena *arena);
void zp_arena_rewind(zp_arena *arena, zp_arena_mark mark);
/* Highest number of bytes that were ever in use, for --stats. */
size_t zp_arena_peak_bytes(const zp_arena *arena);

char *zp_strdup(zp_arena *arena, const char *text);
char *zp_strndup(zp_arena *arena, const char *text, size_t length);
char *zp_format(zp_arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
char *zp_vformat(zp_arena *arena, const char *format, va_list args);

#define ZP_NEW(arena, type) ((type *)zp_alloc((arena), sizeof(type)))
#define ZP_NEW_ARRAY(arena, type, count) ((type *)zp_alloc((arena), sizeof(type) * (size_t)(count)))
#define ZP_ROOM_FOR(arena, type, count) ((type *)zp_room((arena), sizeof(type) * (size_t)(count)))

#endif
