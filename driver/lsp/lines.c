/* SPDX-License-Identifier: Apache-2.0 */
/* Places: bytes of a text, positions of the protocol, paths and URIs. */
#include "lsp_internal.h"

#include <zplan/buf.h>
#include <zplan/path.h>
#include <zplan/shown.h>

#include <ctype.h>

zp_lsp_lines zp_lsp_lines_of(zp_arena *arena, const char *text, size_t len) {
  zp_lsp_lines lines = {.text = text, .len = len};
  zp_push(arena, &lines.starts, 0);
  for (size_t i = 0; i < len; i++) {
    bool alone = text[i] == '\r' && (i + 1 == len || text[i + 1] != '\n');
    if (text[i] == '\n' || alone) zp_push(arena, &lines.starts, (uint32_t)(i + 1));
  }
  return lines;
}

/* Bytes of the character at `i`; what is no UTF-8 is a character a byte. */
static size_t step(const zp_lsp_lines *lines, size_t i, size_t end) {
  size_t n = zp_character_length((const unsigned char *)lines->text + i, end - i);
  return n ? n : 1;
}

/* How far a character moves a position: those beyond the first plane are two units of UTF-16. */
static int64_t units(zp_lsp_encoding encoding, size_t bytes) {
  if (encoding == ZP_LSP_UTF8) return (int64_t)bytes;
  return encoding == ZP_LSP_UTF16 && bytes == 4 ? 2 : 1;
}

/* Where a line ends, without what ends it. */
static size_t line_end(const zp_lsp_lines *lines, int line) {
  size_t begin = lines->starts.data[line], end = lines->len;
  if (line + 1 < lines->starts.len) end = lines->starts.data[line + 1];
  while (end > begin && (lines->text[end - 1] == '\n' || lines->text[end - 1] == '\r')) end--;
  return end;
}

uint32_t zp_lsp_offset(const zp_lsp_lines *lines, zp_lsp_encoding encoding, zp_lsp_position at) {
  if (at.line >= lines->starts.len) return (uint32_t)lines->len;
  size_t i = lines->starts.data[at.line], end = line_end(lines, (int)at.line);
  for (int64_t character = 0; i < end && character < at.character;) {
    size_t n = step(lines, i, end);
    int64_t moved = units(encoding, n);
    if (character + moved > at.character) break; /* inside of it: its beginning */
    character += moved;
    i += n;
  }
  return (uint32_t)i;
}

static zp_json *position_of(const zp_lsp_lines *lines, zp_lsp_encoding encoding, uint32_t offset) {
  int low = 0, high = lines->starts.len; /* the line is in [low, high) */
  if (offset > lines->len) offset = (uint32_t)lines->len;
  while (high - low > 1) {
    int middle = (low + high) / 2;
    if (lines->starts.data[middle] <= offset)
      low = middle;
    else
      high = middle;
  }
  int64_t character = 0;
  for (size_t i = lines->starts.data[low], end = line_end(lines, low); i < offset && i < end;) {
    size_t n = step(lines, i, end);
    character += units(encoding, n);
    i += n;
  }
  zp_json *o = zp_json_object();
  zp_json_set_int(o, "line", low);
  zp_json_set_int(o, "character", character);
  return o;
}

zp_json *zp_lsp_range(const zp_lsp_lines *lines, zp_lsp_encoding encoding, uint32_t begin, uint32_t end) {
  zp_json *o = zp_json_object();
  zp_json_set(o, "start", position_of(lines, encoding, begin));
  zp_json_set(o, "end", position_of(lines, encoding, end));
  return o;
}

bool zp_lsp_read_position(const zp_json *json, zp_lsp_position *at) {
  at->line = zp_json_get_int(json, "line", -1);
  at->character = zp_json_get_int(json, "character", -1);
  return at->line >= 0 && at->character >= 0;
}

static int hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c = (char)tolower((unsigned char)c);
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

const char *zp_lsp_path_of(zp_arena *arena, const char *uri) {
  if (strncmp(uri, "file:", 5) != 0) return zp_strdup(arena, uri);
  const char *p = uri + 5;
  if (strncmp(p, "//", 2) == 0) p = strchr(p + 2, '/'); /* a host: this machine */
  if (!p || *p != '/') return NULL;
  zp_buf path = zp_buf_new(arena);
  for (; *p; p++) {
    char c = *p;
    if (c == '%') {
      int high = hex(p[1]), low = high < 0 ? -1 : hex(p[2]);
      if (low < 0 || high + low == 0) return NULL;
      c = (char)(16 * high + low);
      p += 2;
    }
    zp_buf_put(&path, &c, 1);
  }
  return zp_path_tidy(arena, path.data);
}

const char *zp_lsp_uri_of(zp_arena *arena, const char *path) {
  zp_buf uri = zp_buf_new(arena);
  zp_buf_puts(&uri, "file://");
  for (const unsigned char *c = (const unsigned char *)path; *c; c++) {
    if (isalnum(*c) || strchr("/-._~", *c))
      zp_buf_put(&uri, (const char *)c, 1);
    else
      zp_buf_printf(&uri, "%%%02X", *c);
  }
  return uri.data;
}
