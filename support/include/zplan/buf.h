/* SPDX-License-Identifier: Apache-2.0 */
/* A text buffer in an arena, with printf and an indent level: what emitters and renderers write to. */
#ifndef ZPLAN_BUF_H
#define ZPLAN_BUF_H

#include <stdbool.h>
#include <zplan/arena.h>

typedef struct zp_buf {
  zp_arena *arena; /* borrowed */
  char *data;      /* always zero-terminated; arena */
  size_t len, cap;
  int indent; /* used by zp_buf_line only; two spaces a level */
} zp_buf;

zp_buf zp_buf_new(zp_arena *arena);
void zp_buf_put(zp_buf *buf, const char *text, size_t len);
void zp_buf_puts(zp_buf *buf, const char *text);
void zp_buf_printf(zp_buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* An empty format is a meaningful argument of zp_buf_line. */
#pragma GCC diagnostic ignored "-Wformat-zero-length"
/* Indentation, the formatted text, a newline. An empty format gives an empty line without indentation. */
void zp_buf_line(zp_buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Human sizes: "27.4 GB" (decimal), "16.0 GiB", "1.085 T" and "12.3 ms". Three significant digits. */
const char *zp_show_bytes(zp_arena *arena, int64_t bytes);
const char *zp_show_gib(zp_arena *arena, int64_t bytes);
const char *zp_show_count(zp_arena *arena, double count);
const char *zp_show_seconds(zp_arena *arena, double seconds);
const char *zp_show_whole(zp_arena *arena, int64_t value); /* "124,439,808" */

/* Whole regular files. Reading: arena memory, zero-terminated; NULL with *error set (arena) when it fails, above 256
 * MiB too; len may be NULL. Writing goes to a temporary name in the same folder, is synced and renamed: never half a
 * file, nor a temporary one when the command is interrupted meanwhile. */
char *zp_read_file(zp_arena *arena, const char *path, size_t *len, const char **error);
/* A regular file, open for reading, or -1 with *error: a pipe that nobody writes to, or a terminal, would be waited
 * for. */
int zp_open_file(zp_arena *arena, const char *path, const char **error);
/* As zp_read_file, of what the command line names: /dev/stdin and /dev/fd/N (what `<(COMMAND)` of a shell becomes) may
 * be pipes. */
char *zp_read_input(zp_arena *arena, const char *path, size_t *len, const char **error);
bool zp_write_file(zp_arena *arena, const char *path, const char *data, size_t len, const char **error);
/* Would zp_write_file succeed? To be asked before long work; nothing is left behind. */
bool zp_can_write(zp_arena *arena, const char *path, const char **error);

#endif
