/* SPDX-License-Identifier: Apache-2.0 */
/* Formatting: what `zplan fmt` writes, as one edit of the lines that differ. */
#include "lsp_internal.h"

/* Text with syntax errors stays as it is: diagnostics say why. */
zp_json *zp_lsp_formatting(zp_lsp *s, const zp_json *params, zp_lsp_fault *fault) {
  const zp_lsp_document *d = zp_lsp_document_of(s, params, fault);
  if (!d) return NULL;
  zp_diags *unread = zp_diags_new(s->scratch);
  int source = zp_diags_add_source(unread, d->path, d->lines.text, d->lines.len);
  const char *text = d->lines.text, *out = zp_format_source(s->scratch, unread, source);
  if (!out) return NULL;
  zp_json *edits = zp_json_array();
  size_t n = d->lines.len, m = strlen(out), same = 0, end = 0;
  while (same < n && same < m && text[same] == out[same]) same++;
  if (same == n && same == m) return edits;
  while (same > 0 && text[same - 1] != '\n') same--; /* whole lines, hence whole characters */
  while (end < n - same && end < m - same && text[n - 1 - end] == out[m - 1 - end]) end++;
  while (end > 0 && text[n - end - 1] != '\n') end--;
  zp_json *edit = zp_json_append(edits, zp_json_object());
  zp_json_set(edit, "range", zp_lsp_range(&d->lines, s->encoding, (uint32_t)same, (uint32_t)(n - end)));
  zp_json_set_string(edit, "newText", zp_strndup(s->scratch, out + same, m - end - same));
  return edits;
}
