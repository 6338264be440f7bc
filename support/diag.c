/* SPDX-License-Identifier: Apache-2.0 */
/* Collects sources and diagnostics. Rendering is in diag_render.c, codes are in diag_codes.c. */
#include <assert.h>

#include "diag_internal.h"

bool zp_span_within(zp_span inner, zp_span outer) {
  return inner.file == outer.file && inner.begin >= outer.begin && inner.end <= outer.end;
}

zp_diags *zp_diags_new(zp_arena *arena) {
  zp_diags *diags = ZP_NEW(arena, zp_diags);
  diags->arena = arena;
  return diags;
}

int zp_diags_add_source(zp_diags *diags, const char *path, const char *text, size_t len) {
  assert(path && (text || len == 0));
  source fresh = {.path = zp_strdup(diags->arena, path), .text = text, .len = len};
  zp_push(diags->arena, &diags->sources, fresh);
  return diags->sources.len - 1;
}

int zp_diags_source_count(const zp_diags *diags) { return diags->sources.len; }
void zp_diags_mark_library(zp_diags *diags, int file) {
  assert(file >= 0 && file < diags->sources.len);
  diags->sources.data[file].is_library = true;
}
bool zp_diags_in_library(const zp_diags *diags, zp_span span) {
  assert(span.file < diags->sources.len);
  return span.file >= 0 && diags->sources.data[span.file].is_library;
}
const char *zp_diags_source_path(const zp_diags *diags, int file) {
  assert(file >= 0 && file < diags->sources.len);
  return diags->sources.data[file].path;
}

const char *zp_diags_source_text(const zp_diags *diags, int file, size_t *len) {
  assert(file >= 0 && file < diags->sources.len);
  if (len) *len = diags->sources.data[file].len;
  return diags->sources.data[file].text;
}

/* The line index is a cache, so it may be filled through a const zp_diags. */
static source *indexed_source(const zp_diags *diags, int file) {
  source *s = &diags->sources.data[file];
  if (s->lines.len) return s;
  zp_push(diags->arena, &s->lines, 0);
  for (size_t i = 0; i < s->len; i++)
    if (s->text[i] == '\n') zp_push(diags->arena, &s->lines, (uint32_t)(i + 1));
  return s;
}

void zp_diags_locate(const zp_diags *diags, zp_span span, int *line, int *column) {
  assert(span.file < diags->sources.len && line && column);
  *line = *column = 0;
  if (span.file < 0) return;
  const source *s = indexed_source(diags, span.file);
  int low = 0, high = s->lines.len; /* the line is in [low, high) */
  while (high - low > 1) {
    int middle = (low + high) / 2;
    if (s->lines.data[middle] <= span.begin)
      low = middle;
    else
      high = middle;
  }
  *line = low + 1;
  *column = (int)(span.begin - s->lines.data[low]) + 1;
}

const char *zp_diags_line(const zp_diags *diags, int file, int line, size_t *len, uint32_t *offset) {
  const source *s = indexed_source(diags, file);
  *offset = s->lines.data[line - 1];
  size_t end = line < s->lines.len ? s->lines.data[line] : s->len;
  while (end > *offset && (s->text[end - 1] == '\n' || s->text[end - 1] == '\r')) end--;
  *len = end - *offset;
  return s->text + *offset;
}

const char *zp_diags_place(const zp_diags *diags, zp_arena *arena, zp_span span) {
  if (span.file < 0) return "";
  int line, column;
  zp_diags_locate(diags, span, &line, &column);
  return zp_format(arena, "%s:%d", zp_diags_source_path(diags, span.file), line);
}

zp_diag *zp_report(zp_diags *diags, zp_diag_code code, zp_span span, const char *format, ...) {
  assert(code < ZP_DIAG_CODE_COUNT);
  assert(span.file < diags->sources.len && (span.file < 0 || span.begin <= span.end));
  zp_diag *diag = ZP_NEW(diags->arena, zp_diag);
  diag->arena = diags->arena;
  diag->code = code;
  diag->primary.span = span;
  va_list args;
  va_start(args, format);
  diag->message = zp_vformat(diags->arena, format, args);
  va_end(args);
  zp_push(diags->arena, &diags->list, diag);
  if (zp_diag_level(diag) == ZP_ERROR) diags->errors++;
  return diag;
}

zp_span zp_diag_span(const zp_diag *diag) { return diag->primary.span; }

/* The first place goes before the other second places. */
void zp_diag_move(zp_diag *diag, zp_span span, const char *was) {
  if (!diag->moved) {
    place first = {diag->primary.span, zp_strdup(diag->arena, was)};
    zp_push(diag->arena, &diag->also, first);
    for (int i = diag->also.len - 1; i > 0; i--) diag->also.data[i] = diag->also.data[i - 1];
    diag->also.data[0] = first;
    diag->moved = true;
  }
  diag->primary.span = span;
}

void zp_diag_label(zp_diag *diag, const char *format, ...) {
  va_list args;
  va_start(args, format);
  diag->primary.label = zp_vformat(diag->arena, format, args);
  va_end(args);
}

void zp_diag_also(zp_diag *diag, zp_span span, const char *format, ...) {
  va_list args;
  va_start(args, format);
  place second = {span, zp_vformat(diag->arena, format, args)};
  va_end(args);
  zp_push(diag->arena, &diag->also, second);
}

static void add_footer(zp_diag *diag, const char *kind, const char *format, va_list args) {
  footer last = {kind, zp_vformat(diag->arena, format, args)};
  zp_push(diag->arena, &diag->footers, last);
}

void zp_diag_note(zp_diag *diag, const char *format, ...) {
  va_list args;
  va_start(args, format);
  add_footer(diag, "note", format, args);
  va_end(args);
}

void zp_diag_help(zp_diag *diag, const char *format, ...) {
  va_list args;
  va_start(args, format);
  add_footer(diag, "help", format, args);
  va_end(args);
}

bool zp_diag_did_you_mean(zp_diag *diag, const char *word, const char *const *candidates, int count) {
  const char *best = zp_closest(word, candidates, count);
  if (best) zp_diag_help(diag, "did you mean `%s`?", best);
  return best != NULL;
}

zp_diag_code zp_diag_get_code(const zp_diag *diag) { return diag->code; }
const char *zp_diag_message(const zp_diag *diag) { return diag->message; }
const char *zp_diag_get_label(const zp_diag *diag) { return diag->primary.label; }

bool zp_diag_text_at(const zp_diag *diag, int index, zp_diag_text *text) {
  assert(index >= 0);
  *text = (zp_diag_text){.span = ZP_NO_SPAN};
  int footer_at = index - diag->also.len;
  if (footer_at >= diag->footers.len) return false;
  if (footer_at < 0) {
    text->text = diag->also.data[index].label;
    text->span = diag->also.data[index].span;
  } else {
    text->kind = diag->footers.data[footer_at].kind;
    text->text = diag->footers.data[footer_at].text;
  }
  return true;
}

int zp_diags_errors(const zp_diags *diags) { return diags->errors; }
int zp_diags_count(const zp_diags *diags) { return diags->list.len; }
zp_diag *zp_diags_get(const zp_diags *diags, int index) {
  assert(index >= 0 && index < diags->list.len);
  return diags->list.data[index];
}

void zp_diags_drop(zp_diags *diags, int index) {
  assert(index >= diags->printed && index < diags->list.len);
  if (zp_diag_level(diags->list.data[index]) == ZP_ERROR) diags->errors--;
  diags->list.len--;
  for (int i = index; i < diags->list.len; i++) diags->list.data[i] = diags->list.data[i + 1];
}
