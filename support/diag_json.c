/* SPDX-License-Identifier: Apache-2.0 */
/* Diagnostics for editors: one JSON object a line with the field names of rustc's --error-format=json.
 * Columns count bytes, from 1. */
#include "diag_internal.h"

#include <zplan/diag_json.h>

static void add_span(zp_json *spans, const zp_diags *diags, const place *p, bool primary) {
  if (p->span.file < 0) return;
  int line, column, last_line, last_column;
  zp_span last = {p->span.file, p->span.end, p->span.end};
  zp_diags_locate(diags, p->span, &line, &column);
  zp_diags_locate(diags, last, &last_line, &last_column);
  zp_json *span = zp_json_append(spans, zp_json_object());
  zp_json_set_string(span, "file_name", zp_diags_source_path(diags, p->span.file));
  zp_json_set_int(span, "byte_start", p->span.begin);
  zp_json_set_int(span, "byte_end", p->span.end);
  zp_json_set_int(span, "line_start", line);
  zp_json_set_int(span, "line_end", last_line);
  zp_json_set_int(span, "column_start", column);
  zp_json_set_int(span, "column_end", last_column);
  zp_json_set_bool(span, "is_primary", primary);
  zp_json_set_string(span, "label", p->label);
}

static zp_json *diag_json(zp_arena *arena, const zp_diags *diags, const zp_diag *diag) {
  zp_json *object = zp_json_object();
  zp_json_set_string(object, "message", diag->message);
  zp_json *code = zp_json_set(object, "code", zp_json_object());
  zp_json_set_string(code, "code", zp_code_name(diag->code));
  zp_json_set_string(code, "explanation", zp_code_page(diag->code));
  zp_json_set_string(object, "level", zp_diag_level(diag) == ZP_ERROR ? "error" : "warning");
  zp_json *spans = zp_json_set(object, "spans", zp_json_array());
  add_span(spans, diags, &diag->primary, true);
  for (int i = 0; i < diag->also.len; i++) add_span(spans, diags, &diag->also.data[i], false);
  zp_json *children = zp_json_set(object, "children", zp_json_array());
  for (int i = 0; i < diag->footers.len; i++) {
    zp_json *child = zp_json_append(children, zp_json_object());
    zp_json_set_string(child, "message", diag->footers.data[i].text);
    zp_json_set_string(child, "code", NULL);
    zp_json_set_string(child, "level", diag->footers.data[i].kind);
    zp_json_set(child, "spans", zp_json_array());
  }
  zp_buf rendered = zp_buf_new(arena);
  zp_diag_render(diags, diag, &rendered, (zp_diag_look){0});
  zp_json_set_string(object, "rendered", rendered.data);
  return object;
}

void zp_diags_print_json(zp_diags *diags, FILE *out) {
  zp_arena *scratch = zp_arena_new("diagnostics");
  for (; diags->printed < diags->list.len; diags->printed++) {
    if (diags->shown == ZP_SHOWN_DIAGS) continue;
    zp_json *object = diag_json(scratch, diags, diags->list.data[diags->printed]);
    fprintf(out, "%s\n", zp_json_text(scratch, object, false));
    zp_json_free(object);
    diags->shown++;
  }
  fflush(out);
  zp_arena_free(scratch);
}

zp_json *zp_diags_json(zp_arena *arena, const zp_diags *diags) {
  zp_json *all = zp_json_array();
  for (int i = 0; i < diags->list.len; i++) zp_json_append(all, diag_json(arena, diags, diags->list.data[i]));
  return all;
}
