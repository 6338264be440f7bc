/* SPDX-License-Identifier: Apache-2.0 */
/* The texts that the client holds. */
#include "lsp_internal.h"

#include <zplan/buf.h>
#include <zplan/path.h>

void zp_lsp_forget(zp_lsp_document *d) {
  if (d->checked) zp_arena_free(d->checked);
  d->checked = NULL;
  d->diags = NULL;
}

static void set_text(zp_lsp_document *d, const char *text, size_t len) {
  zp_arena *old = d->arena;
  d->arena = zp_arena_new("document");
  d->lines = zp_lsp_lines_of(d->arena, zp_strndup(d->arena, text, len), len);
  if (old) zp_arena_free(old); /* `text` may be of it */
}

static zp_lsp_document *find(zp_lsp *s, const char *uri) {
  for (int i = 0; i < s->documents.len; i++)
    if (strcmp(s->documents.data[i].uri, uri) == 0) return &s->documents.data[i];
  return NULL;
}

zp_lsp_document *zp_lsp_document_of(zp_lsp *s, const zp_json *params, zp_lsp_fault *fault) {
  const char *uri = zp_json_get_string(zp_json_get(params, "textDocument"), "uri", NULL);
  zp_lsp_document *d = uri ? find(s, uri) : NULL;
  if (!uri) zp_lsp_refuse(s, fault, ZP_LSP_INVALID_PARAMS, "params.textDocument.uri is missing");
  if (uri && !d) zp_lsp_refuse(s, fault, ZP_LSP_INVALID_PARAMS, "`%s` is not open", uri);
  return d;
}

/* Those that were read from this path, too, are to be checked again. NULL: all. */
static void changed(zp_lsp *s, const char *path) {
  for (int i = 0; i < s->documents.len; i++) {
    zp_lsp_document *d = &s->documents.data[i];
    bool reads = !path || strcmp(d->path, path) == 0;
    for (int f = 0; d->diags && !reads && f < zp_diags_source_count(d->diags); f++) {
      const char *source = zp_lsp_source_path(s, d->diags, s->scratch, f);
      reads = source && strcmp(source, path) == 0;
    }
    /* a file that was not there is no source */
    if (reads || (d->diags && zp_diags_errors(d->diags) > 0)) zp_lsp_forget(d);
  }
}

zp_json *zp_lsp_did_open(zp_lsp *s, const zp_json *params, zp_lsp_fault *fault) {
  const zp_json *item = zp_json_get(params, "textDocument");
  const char *uri = zp_json_get_string(item, "uri", NULL), *text = zp_json_get_string(item, "text", NULL);
  const char *path = uri ? zp_lsp_path_of(s->arena, uri) : NULL;
  if (!uri || !text || !path)
    return zp_lsp_refuse(s, fault, ZP_LSP_INVALID_PARAMS, "params.textDocument needs a `uri` and a `text`");
  zp_lsp_document *d = find(s, uri);
  if (!d) {
    zp_lsp_document fresh = {.uri = zp_strdup(s->arena, uri), .path = path};
    zp_push(s->arena, &s->documents, fresh);
    d = &s->documents.data[s->documents.len - 1];
  }
  d->has_version = zp_json_is_int(zp_json_get(item, "version"));
  d->version = zp_json_get_int(item, "version", 0);
  set_text(d, text, strlen(text));
  changed(s, d->path);
  return NULL;
}

/* One change: of a range, or the whole text. False: it is malformed. */
static bool apply(zp_lsp *s, zp_lsp_document *d, const zp_json *change) {
  const char *text = zp_json_get_string(change, "text", NULL);
  const zp_json *range = zp_json_get(change, "range");
  if (!text) return false;
  if (!range) {
    set_text(d, text, strlen(text));
    return true;
  }
  zp_lsp_position start, end;
  if (!zp_lsp_read_position(zp_json_get(range, "start"), &start) ||
      !zp_lsp_read_position(zp_json_get(range, "end"), &end))
    return false;
  uint32_t from = zp_lsp_offset(&d->lines, s->encoding, start), to = zp_lsp_offset(&d->lines, s->encoding, end);
  if (to < from) return false;
  zp_arena *joining = zp_arena_new("change");
  zp_buf whole = zp_buf_new(joining);
  zp_buf_put(&whole, d->lines.text, from);
  zp_buf_puts(&whole, text);
  zp_buf_put(&whole, d->lines.text + to, d->lines.len - to);
  set_text(d, whole.len ? whole.data : "", whole.len);
  zp_arena_free(joining);
  return true;
}

zp_json *zp_lsp_did_change(zp_lsp *s, const zp_json *params, zp_lsp_fault *fault) {
  zp_lsp_document *d = zp_lsp_document_of(s, params, fault);
  const zp_json *changes = zp_json_get(params, "contentChanges");
  if (!d) return NULL;
  if (!zp_json_is_array(changes))
    return zp_lsp_refuse(s, fault, ZP_LSP_INVALID_PARAMS, "params.contentChanges is no list");
  const zp_json *version = zp_json_get(zp_json_get(params, "textDocument"), "version");
  if (zp_json_is_int(version)) d->version = zp_json_int(version, 0);
  changed(s, d->path);
  for (int i = 0; i < zp_json_count(changes); i++)
    if (!apply(s, d, zp_json_at(changes, i)))
      return zp_lsp_refuse(s, fault, ZP_LSP_INVALID_PARAMS, "change %d of `%s` is malformed", i, d->uri);
  return NULL;
}

static void close_document(zp_lsp_document *d) {
  zp_lsp_forget(d);
  zp_arena_free(d->arena);
}

zp_json *zp_lsp_did_close(zp_lsp *s, const zp_json *params, zp_lsp_fault *fault) {
  zp_lsp_document *d = zp_lsp_document_of(s, params, fault);
  if (!d) return NULL;
  zp_json *none = zp_json_object();
  zp_json_set_string(none, "uri", d->uri);
  zp_json_set(none, "diagnostics", zp_json_array());
  zp_lsp_notify(s, "textDocument/publishDiagnostics", none);
  const char *path = d->path;
  close_document(d);
  *d = s->documents.data[--s->documents.len];
  changed(s, path); /* others read the file now */
  return NULL;
}

zp_json *zp_lsp_files_changed(zp_lsp *s, const zp_json *params, zp_lsp_fault *fault) {
  (void)params, (void)fault;
  changed(s, NULL);
  return NULL;
}

void zp_lsp_close_all(zp_lsp *s) {
  for (int i = 0; i < s->documents.len; i++) close_document(&s->documents.data[i]);
  s->documents.len = 0;
}
