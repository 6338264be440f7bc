/* SPDX-License-Identifier: Apache-2.0 */
/* Whose mistake a diagnostic is about. A wrong argument of a library item shows where the library uses it; the user
 * wants their own line, so the call becomes the primary place and the library's line a second one. */
#include "eval.h"

static bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Does the source text of `span` name it? */
static bool mentions(const zp_diags *diags, zp_span span, const char *name) {
  size_t len, n = strlen(name);
  const char *text = zp_diags_source_text(diags, span.file, &len);
  for (size_t i = span.begin; i + n <= span.end; i++)
    if (memcmp(text + i, name, n) == 0 && (i == 0 || !is_word(text[i - 1])) && (i + n >= len || !is_word(text[i + n])))
      return true;
  return false;
}

static const zp_expr *argument_of(const zp_expr *call, const zp_item *item, int formal) {
  for (int i = 0; call->kind == ZP_EXPR_CALL && i < call->args.len; i++) {
    const char *name = call->args.data[i].name.text;
    if (name ? strcmp(name, item->formals.data[formal].name.text) == 0 : i == formal) return call->args.data[i].value;
  }
  return NULL;
}

/* The one argument that the library's text at `span` speaks of, or the whole call. */
static zp_span cause(const zp_diags *diags, zp_span span, const zp_expr *call, const zp_item *item) {
  const zp_expr *only = NULL;
  for (int i = 0; i < item->formals.len; i++) {
    const zp_expr *given = argument_of(call, item, i);
    if (!given || !mentions(diags, span, item->formals.data[i].name.text)) continue;
    if (only) return call->span;
    only = given;
  }
  return only ? only->span : call->span;
}

void zp_blame_call(zp_diags *diags, int first, const zp_expr *call, const zp_item *item) {
  for (int i = first; i < zp_diags_count(diags); i++) {
    zp_diag *d = zp_diags_get(diags, i);
    if (!zp_diags_in_library(diags, zp_diag_span(d))) continue;
    zp_diag_move(d, cause(diags, zp_diag_span(d), call, item), "used here");
    bool told = false; /* one wrong argument is often used more than once */
    for (int k = first; k < i; k++) told |= zp_span_within(zp_diag_span(zp_diags_get(diags, k)), zp_diag_span(d));
    if (told) zp_diags_drop(diags, i--);
  }
}
