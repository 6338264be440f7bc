/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of the library, found in its text. */
#include <zplan/library_blocks.h>

#include <string.h>
#include <zplan/path.h>
#include <zplan/reference.h>

static const char *const files[] = {"nn", "models"};
enum { N_FILES = sizeof files / sizeof *files };
static const char begin[] = "\nblock ";

/* The text of a file of the library, after a line end; NULL: it cannot be read. */
static const char *read_library(zp_arena *arena, const char *library_dir, const char *file) {
  size_t len;
  const char *error, *text = zp_read_file(arena, zp_format(arena, "%s/%s.dz", library_dir, file), &len, &error);
  return text ? zp_format(arena, "\n%s", text) : NULL;
}

/* Words with single spaces between them. */
static void put_words(zp_buf *out, const char *text, size_t len) {
  for (size_t i = 0; i < len; i++) {
    bool space = text[i] == ' ' || text[i] == '\n';
    if (!space) zp_buf_put(out, text + i, 1);
    if (space && out->len > 0 && out->data[out->len - 1] != ' ') zp_buf_puts(out, " ");
  }
}

/* The lines of `# ...` that end at `end`, without their marks. */
static const char *comment_before(zp_arena *arena, const char *text, const char *end) {
  const char *first = end;
  while (first > text) {
    const char *line = first;
    while (line > text && line[-1] != '\n') line--;
    if (*line != '#') break;
    first = line > text ? line - 1 : line; /* the line end before it */
  }
  zp_buf out = zp_buf_new(arena);
  for (const char *line = first; line < end;) {
    line += strspn(line, "\n# ");
    size_t len = strcspn(line, "\n");
    if (line + len > end) break;
    put_words(&out, line, len);
    put_words(&out, " ", 1);
    line += len;
  }
  return out.data ? out.data : "";
}

zp_library_blocks zp_library_blocks_all(zp_arena *arena, const char *library_dir) {
  zp_library_blocks all = {0};
  for (int i = 0; i < N_FILES; i++) {
    const char *text = read_library(arena, library_dir, files[i]), *at = text;
    while (at && (at = strstr(at, begin)) != NULL) {
      const char *name = at + strlen(begin);
      zp_buf heading = zp_buf_new(arena);
      put_words(&heading, at + 1, strcspn(at + 1, "{"));
      zp_push(arena, &all,
              ((zp_library_block){zp_strndup(arena, name, strcspn(name, "( \n")), files[i],
                                  comment_before(arena, text, at), heading.data}));
      at = name;
    }
  }
  return all;
}

bool zp_library_block_find(zp_arena *arena, const char *library_dir, const char *name, zp_library_block *found) {
  zp_library_blocks all = zp_library_blocks_all(arena, library_dir);
  for (int i = 0; i < all.len; i++) {
    if (strcmp(all.data[i].name, name) != 0) continue;
    *found = all.data[i];
    return true;
  }
  return false;
}

const char *zp_library_block_text(zp_arena *arena, const zp_library_block *block) {
  zp_buf out = zp_buf_new(arena);
  zp_buf_printf(&out, "%s: block of the library; it comes with `use std.%s`\n", block->name, block->file);
  if (*block->comment) {
    zp_buf_puts(&out, "  ");
    zp_put_wrapped(&out, 2, block->comment);
  }
  zp_buf_puts(&out, "  ");
  zp_put_wrapped(&out, 2, block->heading);
  return out.data;
}
