/* SPDX-License-Identifier: Apache-2.0 */
/* Hover, completion and definitions: what the reference says of a word and what is known of a name, where it comes
 * from, and the words that may stand at a place. */
#include "lsp_internal.h"

#include <ctype.h>
#include <zplan/buf.h>
#include <zplan/library_blocks.h>
#include <zplan/reference.h>

/* Where a request of params.position points to; false after setting the fault. */
static bool read_place(zp_lsp *s, const zp_json *params, zp_lsp_fault *fault, zp_lsp_document **d,
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

/* The first fact from `from` on of the name at a place; -1: there is none. A dotted name has one of all of it. */
static int next_fact(const zp_lsp_document *d, const zp_lsp_place *place, int from) {
  for (int i = from; i < d->facts.list.len; i++) {
    zp_span span = d->facts.list.data[i].span;
    if (span.begin <= place->begin && place->end <= span.end) return i;
  }
  return -1;
}

/* Shapes, values and parameters of a name of the file, one line for each that differs; NULL: nothing is known. */
static const char *known(zp_lsp *s, zp_lsp_document *d, const zp_lsp_place *place) {
  enum { MOST = 8 }; /* a block may be called in many shapes */
  zp_buf out = zp_buf_new(s->scratch);
  zp_strings said = {0};
  zp_lsp_check(s, d);
  for (int i = next_fact(d, place, 0); i >= 0 && said.len < MOST; i = next_fact(d, place, i + 1)) {
    const char *text = d->facts.list.data[i].text;
    bool again = false;
    for (int k = 0; k < said.len; k++) again |= strcmp(said.data[k], text) == 0;
    if (again) continue;
    zp_push(s->scratch, &said, text);
    zp_buf_printf(&out, "%s\n", text);
  }
  return out.len ? out.data : NULL;
}

static bool stands_at(const zp_lsp_document *d, const char *word, zp_span span) {
  size_t len = strlen(word);
  return span.file == 0 && span.end - span.begin == len && strncmp(d->lines.text + span.begin, word, len) == 0;
}

/* Where a name got its value. A formal has its argument's place, so it is looked for above. */
static zp_span defined_at(const zp_lsp_document *d, const zp_lsp_place *place, zp_span defined) {
  if (defined.file != 0 || stands_at(d, place->word, defined)) return defined;
  zp_span nearest = defined;
  for (int i = 0; i < d->facts.list.len; i++) {
    const zp_fact *fact = &d->facts.list.data[i];
    bool own = fact->span.begin == fact->defined.begin && fact->span.begin < place->begin;
    if (own && stands_at(d, place->word, fact->span) &&
        (nearest.begin == defined.begin || fact->span.begin > nearest.begin))
      nearest = fact->span;
  }
  return nearest;
}

zp_json *zp_lsp_definition(zp_lsp *s, const zp_json *params, zp_lsp_fault *fault) {
  zp_lsp_document *d;
  zp_lsp_place place;
  if (!read_place(s, params, fault, &d, &place) || place.silent || !*place.word) return NULL;
  zp_lsp_check(s, d);
  for (int i = next_fact(d, &place, 0); i >= 0; i = next_fact(d, &place, i + 1))
    if (d->facts.list.data[i].defined.file >= 0)
      return zp_lsp_location(s, d, defined_at(d, &place, d->facts.list.data[i].defined));
  return NULL;
}

zp_json *zp_lsp_hover(zp_lsp *s, const zp_json *params, zp_lsp_fault *fault) {
  zp_lsp_document *d;
  zp_lsp_place place;
  if (!read_place(s, params, fault, &d, &place) || place.silent || !*place.word) return NULL;
  const char *text = explained(s, d, &place), *facts = known(s, d, &place);
  if (!text && !facts) return NULL;
  if (text && facts) text = zp_format(s->scratch, "%s\n%s", facts, text);
  if (!text) text = facts;
  zp_json *hover = zp_json_object(), *contents = zp_json_set(hover, "contents", zp_json_object());
  zp_json_set_string(contents, "kind", s->markdown ? "markdown" : "plaintext");
  zp_json_set_string(contents, "value", s->markdown ? zp_format(s->scratch, "```text\n%s```\n", text) : text);
  zp_json_set(hover, "range", zp_lsp_range(&d->lines, s->encoding, (uint32_t)place.begin, (uint32_t)place.end));
  return hover;
}

/* Kinds of completion items of the protocol. */
enum { ITEM_FUNCTION = 3, ITEM_VARIABLE = 6, ITEM_MODULE = 9, ITEM_PROPERTY = 10 };

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

/* Reading the words of a text: what stood before, and whether brackets are around. */
typedef struct words {
  const char *before, *earlier; /* the last two words */
  int depth;                    /* of parentheses */
  bool formals;                 /* they hold those of a block or model, not arguments */
} words;

static bool is_one_of(const char *word, const char *const *list, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (strcmp(list[i], word) == 0) return true;
  return false;
}

static bool gives_name(const words *w, const char *after) {
  static const char *const kinds[] = {"block", "param", "input", "repeat"};
  if (is_one_of(w->before, kinds, sizeof kinds / sizeof *kinds)) return true;
  while (*after == ' ') after++;
  bool sets = *after == '=' && after[1] != '=';
  return (w->depth == 0 && sets) || (w->depth == 1 && w->formals && (sets || *after == ':'));
}

/* What is no word: brackets count, comments and texts are skipped. Returns the last byte that was read. */
static size_t take_other(words *w, const char *text, size_t at, size_t len) {
  static const char *const items[] = {"block", "model"};
  if (text[at] == '(' && w->depth++ == 0) w->formals = is_one_of(w->earlier, items, 2);
  if (text[at] == ')' && w->depth > 0) w->depth--;
  if (text[at] == '\n') w->before = "";
  char sign = text[at];
  if (sign != '#' && sign != '"') return at;
  while (at + 1 < len && text[at + 1] != '\n' && (sign == '#' || text[at + 1] != '"')) at++;
  return sign == '"' && at + 1 < len && text[at + 1] == '"' ? at + 1 : at;
}

/* Names that the text gives: `x = `, `param w`, formals. Text that is half written has them, too; which of them are in
 * reach is left to the reader. */
static void offer_names(zp_lsp *s, const zp_lsp_document *d, const zp_lsp_place *here, zp_json *items) {
  const char *text = d->lines.text;
  zp_strings offered = {0};
  words w = {"", "", 0, false};
  for (size_t at = 0; at < d->lines.len; at++) {
    size_t begin = at;
    while (at < d->lines.len && (isalnum((unsigned char)text[at]) || text[at] == '_')) at++;
    if (at == begin) {
      at = take_other(&w, text, at, d->lines.len);
      continue;
    }
    const char *word = zp_strndup(s->scratch, text + begin, at - begin);
    bool named = !isdigit((unsigned char)*word) && begin != here->begin && gives_name(&w, text + at);
    w.earlier = w.before;
    w.before = word;
    at--; /* the sign after it is read next */
    if (!named || is_one_of(word, offered.data, (size_t)offered.len)) continue;
    if (strcmp(w.earlier, "block") != 0 && !zp_lsp_place_at(s->scratch, &d->lines, begin).in_model && w.depth == 0)
      continue;
    zp_push(s->scratch, &offered, word);
    offer(items, word, ITEM_VARIABLE, "", "");
  }
}

zp_json *zp_lsp_completion(zp_lsp *s, const zp_json *params, zp_lsp_fault *fault) {
  zp_lsp_document *d;
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
  if (place.in_model) offer_names(s, d, &place, items);
  zp_library_blocks blocks = {0};
  if (place.in_model) blocks = zp_library_blocks_all(s->scratch, s->host->library_dir);
  for (int i = 0; i < blocks.len; i++)
    offer(items, blocks.data[i].name, ITEM_FUNCTION, blocks.data[i].heading,
          zp_format(s->scratch, "use std.%s%s%s", blocks.data[i].file, *blocks.data[i].comment ? ": " : "",
                    blocks.data[i].comment));
  return items;
}
