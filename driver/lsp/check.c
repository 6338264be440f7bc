/* SPDX-License-Identifier: Apache-2.0 */
/* What is wrong with a document, as `zplan check` says it, with places and codes for the client. */
#include "lsp_internal.h"

#include <zplan/buf.h>
#include <zplan/path.h>

const char *zp_lsp_source_path(const zp_lsp *s, const zp_diags *diags, zp_arena *arena, int file) {
  const char *path = zp_diags_source_path(diags, file);
  if (zp_diags_in_library(diags, (zp_span){file, 0, 0}) && strncmp(path, "std/", 4) == 0)
    return zp_path_tidy(arena, zp_format(arena, "%s/%s", s->host->library_dir, path + 4));
  return *path == '/' ? zp_path_tidy(arena, path) : NULL;
}

/* The tree, with whatever could be parsed. */
static const zp_file *parse(zp_arena *arena, const zp_lsp_document *d) {
  zp_diags *unread = zp_diags_new(arena);
  return zp_parse(arena, unread, zp_diags_add_source(unread, d->path, d->lines.text, d->lines.len));
}

/* The `use` that brings a file into the document; the beginning of the text: none does by itself. */
static zp_span use_of(zp_lsp *s, const zp_lsp_document *d, const char *path) {
  const zp_file *file = parse(s->scratch, d);
  for (int i = 0; i < file->items.len; i++) {
    const zp_item *item = file->items.data[i];
    if (item->kind == ZP_ITEM_USE && item->is_file &&
        strcmp(zp_path_alongside(s->scratch, d->path, item->name.text), path) == 0)
      return (zp_span){0, item->name.span.begin, item->name.span.end};
  }
  return (zp_span){0, 0, 0};
}

/* A file of blocks, models or machines for others need not say which model is meant: one that plans nothing and has no
 * model, or several. */
static bool is_for_others(zp_lsp *s, const zp_lsp_document *d) {
  const zp_file *file = parse(s->scratch, d);
  int models = 0;
  for (int i = 0; i < file->items.len; i++) {
    zp_item_kind kind = file->items.data[i]->kind;
    if (kind == ZP_ITEM_TRAIN || kind == ZP_ITEM_PLAN) return false;
    models += kind == ZP_ITEM_MODEL;
  }
  return models != 1;
}

zp_json *zp_lsp_location(zp_lsp *s, const zp_lsp_document *d, zp_span span) {
  size_t len;
  const char *text = zp_diags_source_text(d->diags, span.file, &len);
  const char *path = span.file ? zp_lsp_source_path(s, d->diags, s->scratch, span.file) : d->path;
  zp_lsp_lines other = span.file ? zp_lsp_lines_of(s->scratch, text, len) : d->lines;
  if (!path) return NULL;
  zp_json *o = zp_json_object();
  zp_json_set_string(o, "uri", span.file ? zp_lsp_uri_of(s->scratch, path) : d->uri);
  zp_json_set(o, "range", zp_lsp_range(&other, s->encoding, span.begin, span.end));
  return o;
}

/* Message, words under the carets, notes and helps, a line each. */
static const char *message_of(zp_lsp *s, const zp_lsp_document *d, const zp_diag *diag) {
  zp_span span = zp_diag_span(diag);
  zp_buf text = zp_buf_new(s->scratch);
  if (span.file > 0) zp_buf_printf(&text, "%s: ", zp_diags_place(d->diags, s->scratch, span));
  zp_buf_puts(&text, zp_diag_message(diag));
  if (zp_diag_get_label(diag)) zp_buf_printf(&text, "\n%s", zp_diag_get_label(diag));
  zp_diag_text more;
  for (int i = 0; zp_diag_text_at(diag, i, &more); i++)
    if (more.kind) zp_buf_printf(&text, "\n%s: %s", more.kind, more.text);
  return text.data;
}

static zp_json *diagnostic(zp_lsp *s, const zp_lsp_document *d, const zp_diag *diag) {
  zp_span span = zp_diag_span(diag);
  zp_json *o = zp_json_object(), *related = zp_json_array();
  zp_diag_text more;
  for (int i = 0; zp_diag_text_at(diag, i, &more); i++) {
    zp_json *at = more.kind || more.span.file < 0 ? NULL : zp_lsp_location(s, d, more.span);
    if (!at) continue;
    zp_json *one = zp_json_append(related, zp_json_object());
    zp_json_set(one, "location", at);
    zp_json_set_string(one, "message", more.text ? more.text : "here");
  }
  zp_span own = span;
  if (span.file > 0) own = use_of(s, d, zp_diags_source_path(d->diags, span.file));
  if (span.file < 0) own = (zp_span){0, 0, 0};
  zp_json_set(o, "range", zp_lsp_range(&d->lines, s->encoding, own.begin, own.end));
  zp_json_set_int(o, "severity", zp_diag_level(diag) == ZP_ERROR ? 1 : 2);
  zp_json_set_string(o, "code", zp_code_name(zp_diag_get_code(diag)));
  zp_json_set_string(o, "source", "zplan");
  zp_json_set_string(o, "message", message_of(s, d, diag));
  if (span.file > 0) {
    zp_json *at = zp_lsp_location(s, d, span), *one = at ? zp_json_append(related, zp_json_object()) : NULL;
    if (one) zp_json_set(one, "location", at);
    if (one) zp_json_set_string(one, "message", zp_diag_message(diag));
  }
  if (zp_json_count(related) > 0)
    zp_json_set(o, "relatedInformation", related);
  else
    zp_json_free(related);
  return o;
}

static void publish(zp_lsp *s, const zp_lsp_document *d) {
  zp_json *params = zp_json_object(), *list = zp_json_array();
  for (int i = 0; i < zp_diags_count(d->diags); i++) {
    const zp_diag *diag = zp_diags_get(d->diags, i);
    if (zp_diag_get_code(diag) == ZP_Z0230 && is_for_others(s, d)) continue;
    zp_json_append(list, diagnostic(s, d, diag));
  }
  zp_json_set_string(params, "uri", d->uri);
  if (d->has_version) zp_json_set_int(params, "version", d->version);
  zp_json_set(params, "diagnostics", list);
  zp_lsp_notify(s, "textDocument/publishDiagnostics", params);
}

void zp_lsp_check(zp_lsp *s, zp_lsp_document *d) {
  if (d->checked) return;
  d->checked = zp_arena_new("check");
  d->diags = zp_diags_new(d->checked);
  zp_source_text *edited = ZP_NEW_ARRAY(d->checked, zp_source_text, s->documents.len);
  for (int i = 0; i < s->documents.len; i++) {
    const zp_lsp_document *other = &s->documents.data[i];
    edited[i] = (zp_source_text){.path = other->path, .text = other->lines.text, .len = other->lines.len};
  }
  d->facts = (zp_facts){.arena = d->checked};
  s->host->check(s->host->user, d->checked, d->diags, d->path, edited, s->documents.len, &d->facts);
  publish(s, d);
}

void zp_lsp_check_all(zp_lsp *s) {
  for (int i = 0; i < s->documents.len; i++) zp_lsp_check(s, &s->documents.data[i]);
}
