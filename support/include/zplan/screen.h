/* SPDX-License-Identifier: Apache-2.0 */
/* Where text for people goes: how wide it is, which characters and colours it shows. page.h lays text out for it. */
#ifndef ZPLAN_SCREEN_H
#define ZPLAN_SCREEN_H

#include <stdbool.h>
#include <zplan/arena.h>

enum {
  ZP_LEAST_COLUMNS = 20, /* of a narrower terminal, too: what is wider wraps there */
  ZP_PIPE_COLUMNS = 80   /* of a pipe and a file */
};

typedef struct zp_screen {
  int width; /* columns; at least ZP_LEAST_COLUMNS */
  bool utf8, color;
} zp_screen;

typedef enum zp_color_choice { ZP_COLOR_AUTO = -1, ZP_COLOR_NEVER, ZP_COLOR_ALWAYS } zp_color_choice;

/* The screen that a file descriptor is: as wide as $COLUMNS says, else as its terminal, else ZP_PIPE_COLUMNS. UTF-8
 * where the locale of the environment has it. AUTO: colours on terminals, but with $NO_COLOR or TERM=dumb none. */
zp_screen zp_screen_of(int fd, zp_color_choice color);
/* A screen from its parts, for tests. terminal_columns: 0 where it is no terminal; variables: NULL where unset. */
zp_screen zp_screen_from(int terminal_columns, const char *columns, const char *locale, const char *no_color,
                         const char *term, zp_color_choice color);

/* Columns that text takes on a terminal: wide characters two, combining marks none. No control characters. */
int zp_columns(const char *text);
/* Bytes of the longest beginning of `text` that takes at most so many columns. */
size_t zp_fitting_bytes(const char *text, int columns);

#endif
