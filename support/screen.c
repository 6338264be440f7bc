/* SPDX-License-Identifier: Apache-2.0 */
/* Terminals: their width, characters and colours. */
#include <zplan/screen.h>

#include <assert.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <zplan/shown.h>

/* A number of columns; 0: it is none. */
static int parse_columns(const char *text) {
  char *end;
  long columns = text ? strtol(text, &end, 10) : 0;
  return text && end != text && !*end && columns > 0 && columns < 10000 ? (int)columns : 0;
}

/* The locale is not set for this process: how numbers are read and printed would depend on it. */
static bool is_utf8(const char *locale) {
  const char *code = locale ? strchr(locale, '.') : NULL;
  return code && (strncasecmp(code, ".UTF-8", 6) == 0 || strncasecmp(code, ".UTF8", 5) == 0);
}

zp_screen zp_screen_from(int terminal_columns, const char *columns, const char *locale, const char *no_color,
                         const char *term, zp_color_choice color) {
  int width = parse_columns(columns);
  if (width == 0) width = terminal_columns > 0 ? terminal_columns : ZP_PIPE_COLUMNS;
  bool plain = (no_color && *no_color) || !term || strcmp(term, "dumb") == 0;
  return (zp_screen){
      .width = width < ZP_LEAST_COLUMNS ? ZP_LEAST_COLUMNS : width,
      .utf8 = is_utf8(locale),
      .color = color == ZP_COLOR_AUTO ? terminal_columns > 0 && !plain : color == ZP_COLOR_ALWAYS,
  };
}

/* The first that is set counts, as in setlocale. */
static const char *locale_of_environment(void) {
  static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char *value = getenv(names[i]);
    if (value && *value) return value;
  }
  return NULL;
}

/* A terminal that does not know its width, such as a serial line, is taken to have ZP_PIPE_COLUMNS. */
zp_screen zp_screen_of(int fd, zp_color_choice color) {
  struct winsize size = {0};
  int columns = 0;
  if (isatty(fd)) columns = ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : ZP_PIPE_COLUMNS;
  return zp_screen_from(columns, getenv("COLUMNS"), locale_of_environment(), getenv("NO_COLOR"), getenv("TERM"), color);
}

/* ---- widths of characters ---- */

/* The blocks of East Asian wide and of combining characters, and pictures. */
static const struct {
  uint32_t first, last;
  int columns;
} blocks[] = {
    {0x300, 0x36f, 0},   {0x1100, 0x115f, 2},   {0x200b, 0x200d, 0},   {0x20d0, 0x20ff, 0}, {0x2e80, 0xa4cf, 2},
    {0xac00, 0xd7a3, 2}, {0xf900, 0xfaff, 2},   {0xfe00, 0xfe0f, 0},   {0xfe30, 0xfe6f, 2}, {0xff00, 0xff60, 2},
    {0xffe0, 0xffe6, 2}, {0x1f300, 0x1faff, 2}, {0x20000, 0x3fffd, 2},
};

static int character_columns(uint32_t number) {
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
    if (number >= blocks[i].first && number <= blocks[i].last) return blocks[i].columns;
  return 1;
}

/* The bytes of the next character and its columns; a byte that is no UTF-8 is a character of its own. */
static size_t next_character(const char *text, size_t left, int *columns) {
  size_t len = zp_character_length((const unsigned char *)text, left);
  *columns = len ? character_columns(zp_character_number((const unsigned char *)text, len)) : 1;
  return len ? len : 1;
}

size_t zp_fitting_bytes(const char *text, int columns) {
  assert(text);
  size_t left = strlen(text), used = 0;
  int taken = 0, own;
  while (left > 0) {
    size_t len = next_character(text + used, left, &own);
    if (taken + own > columns) break;
    taken += own;
    used += len;
    left -= len;
  }
  return used;
}

int zp_columns(const char *text) {
  assert(text);
  int taken = 0, own;
  for (size_t left = strlen(text); left > 0;) {
    size_t len = next_character(text, left, &own);
    taken += own;
    text += len;
    left -= len;
  }
  return taken;
}
