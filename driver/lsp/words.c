/* SPDX-License-Identifier: Apache-2.0 */
/* Hover and completion: what the reference says of a word, and the words that may stand at a place. */
#include "lsp_internal.h"

#include <zplan/buf.h>
#include <zplan/library_blocks.h>
#include <zplan/reference.h>

/* Where a request of params.position points to; false after setting the fault. */
static bool read_place(zp_lsp *s, const zp_json *params, zp_lsp_fault *fault, const zp_lsp_document **d,
                       zp_lsp_place *place) {
  zp_lsp_position at;
  *d = zp_lsp_document_of(s, params, fault);
  if (!*d) return false;
  if (!zp_lsp_read_position(zp_json_get(params, "position"), &at)) {
    zp_lsp_refuse(s, fault, ZP_LSP_INVALID_PARAMS, "params.position needs `line` and `character`");
    return false;
  }
  *place = zp_lsp_place_at(s->scratch, &(*d)->lines, zp_lsp_offset(&(*d)->lines, s->encoding, at));
  return true;
}

/* A block of the library that a model calls, unless the file has one of this name; NULL: it is none. */
static const char *library_block(zp_lsp *s, const zp_lsp_document *d, const zp_lsp_place *place) {
  zp_library_block block;
  if (!place->in_model || place->next != '(') return NULL;
  if (strstr(d->lines.text, zp_format(s->scratch, "block %s(", place->word))) return NULL;
  bool found = zp_library_block_find(s->scratch, s->host->library_dir, place->word, &block);
  return found ? zp_library_block_text(s->scratch, &block) : NULL;
}

/* A key with what is around it, a call, or a block; NULL: it is a name of the file's own. */
static const char *explained(zp_lsp *s, const zp_lsp_document *d, const zp_lsp_place *place) {
  zp_arena *arena = s->scratch;
  const char *key = zp_format(arena, "%s.%s", place->around, place->word);
  if (place->next == '=') return zp_reference_find(arena, key);
  if (place->next != '(' && place->next != '{') return NULL;
  const char *block = library_block(s, d, place);
  if (block) return block;
  const char *page = zp_reference_find(arena, place->word), *head = zp_format(arena, "%s: ", place->word);
  if (page && strncmp(page, head, strlen(head)) == 0) return page;
  return place->next == '{' ? zp_reference_find(arena, key) : NULL;
}

zp_json *zp_lsp_hover(zp_lsp *s, const zp_json *params, zp_lsp_fault *fault) {
  const zp_lsp_document *d;
  zp_lsp_place place;
  if (!read_place(s, params, fault, &d, &place) || place.silent || !*place.word) return NULL;
  const char *text = explained(s, d, &place);
  if (!text) return NULL;
  zp_json *hover = zp_json_object(), *contents = zp_json_set(hover, "contents", zp_json_object());
  zp_json_set_string(contents, "kind", s->markdown ? "markdown" : "plaintext");
  zp_json_set_string(contents, "value", s->markdown ? zp_format(s->scratch, "```text\n%s```\n", text) : text);
  zp_json_set(hover, "range", zp_lsp_range(&d->lines, s->encoding, (uint32_t)place.begin, (uint32_t)place.end));
  return hover;
}

/* Kinds of completion items of the protocol. */
enum { ITEM_FUNCTION = 3, ITEM_MODULE = 9, ITEM_PROPERTY = 10 };

static void offer(zp_json *items, const char *word, int kind, const char *detail, const char *meaning) {
  zp_json *item = zp_json_append(items, zp_json_object());
  zp_json_set_string(item, "label", word);
  zp_json_set_int(item, "kind", kind);
  zp_json_set_string(item, "detail", detail);
  zp_json_set_string(item, "documentation", meaning);
}

/* Is it the value of this key of this block or call? */
static bool is_value_of(const zp_reference_page *page, const zp_lsp_place *place) {
  const char *dot = strrchr(page->within, '.');
  size_t n = strlen(place->around);
  if (!dot || strcmp(dot + 1, place->value_of) != 0 || (size_t)(dot - page->within) < n) return false;
  const char *block = dot - n;
  return strncmp(block, place->around, n) == 0 && (block == page->within || block[-1] == '.');
}

zp_json *zp_lsp_completion(zp_lsp *s, const zp_json *params, zp_lsp_fault *fault) {
  const zp_lsp_document *d;
  zp_lsp_place place;
  if (!read_place(s, params, fault, &d, &place) || place.silent) return NULL;
  zp_json *items = zp_json_array();
  zp_reference_pages pages = zp_reference(s->scratch);
  for (int p = 0; p < pages.len; p++) {
    const zp_reference_page *page = &pages.data[p];
    if (page->kind == ZP_REFERENCE_OPERATION ? place.in_model : *place.value_of && is_value_of(page, &place))
      offer(items, page->name, ITEM_FUNCTION, page->example, page->meaning);
    if (page->kind == ZP_REFERENCE_BLOCK && !*place.around && !*page->within && !*place.value_of)
      offer(items, page->name, ITEM_MODULE, page->example, page->meaning);
    if (strcmp(page->name, place.around) != 0 || *place.value_of) continue;
    for (int i = 0; i < page->rows.len; i++) {
      const zp_reference_row *row = &page->rows.data[i];
      offer(items, row->key, ITEM_PROPERTY,
            zp_format(s->scratch, "%s%s%s", row->type, *row->range ? ": " : "", row->range), row->meaning);
    }
  }
  zp_library_blocks blocks = {0};
  if (place.in_model) blocks = zp_library_blocks_all(s->scratch, s->host->library_dir);
  for (int i = 0; i < blocks.len; i++)
    offer(items, blocks.data[i].name, ITEM_FUNCTION, blocks.data[i].heading,
          zp_format(s->scratch, "use std.%s%s%s", blocks.data[i].file, *blocks.data[i].comment ? ": " : "",
                    blocks.data[i].comment));
  return items;
}
