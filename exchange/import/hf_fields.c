/* SPDX-License-Identifier: Apache-2.0 */
/* Fields of a Hugging Face configuration by name, and what is said of them. */
#include "hf.h"

static bool in_list(const zp_strings *list, const char *word) {
  for (int i = 0; i < list->len; i++)
    if (strcmp(list->data[i], word) == 0) return true;
  return false;
}

bool hf_is_used(const hf_reader *r, const char *key) { return in_list(&r->used, key); }

bool hf_is_sound(const hf_reader *r) { return zp_diags_errors(r->diags) == r->errors_before; }

zp_span hf_place(const hf_reader *r, const char *key) {
  size_t len;
  const char *text = zp_diags_source_text(r->diags, r->file, &len), *quoted = zp_format(r->arena, "\"%s\"", key);
  const char *at = strstr(text, quoted);
  if (!at) return (zp_span){r->file, 0, 0};
  uint32_t begin = (uint32_t)(at - text);
  return (zp_span){r->file, begin, begin + (uint32_t)strlen(quoted)};
}

void hf_note(hf_reader *r, const char *format, ...) {
  va_list args;
  va_start(args, format);
  zp_push(r->arena, &r->result->notes, zp_vformat(r->arena, format, args));
  va_end(args);
}

void hf_refuse(hf_reader *r, const char *key, const char *help, const char *format, ...) {
  va_list args;
  va_start(args, format);
  zp_diag *d = zp_report(r->diags, ZP_Z0684, hf_place(r, key), "%s", zp_vformat(r->arena, format, args));
  va_end(args);
  if (help) zp_diag_help(d, "%s", help);
}

const zp_json *hf_json(hf_reader *r, const char *key) {
  if (!in_list(&r->used, key)) zp_push(r->arena, &r->used, key);
  const zp_json *value = zp_json_get(r->root, key);
  return value && !zp_json_is_null(value) ? value : NULL;
}

bool hf_is_null(hf_reader *r, const char *key) {
  hf_json(r, key);
  return zp_json_is_null(zp_json_get(r->root, key));
}

const char *hf_shown(const hf_reader *r, const zp_json *value) {
  const char *text = zp_json_text(r->arena, value, false);
  return strlen(text) > 40 ? zp_format(r->arena, "%.37s...", text) : text;
}

void hf_wrong(hf_reader *r, const char *key, const zp_json *value, const char *wanted) {
  if (value || hf_is_null(r, key))
    zp_report(r->diags, ZP_Z0683, hf_place(r, key), "`%s` is %s, %s is expected", key,
              value ? hf_shown(r, value) : "null", wanted);
  else
    zp_report(r->diags, ZP_Z0683, ZP_NO_SPAN, "%s has no `%s`: %s is expected", zp_diags_source_path(r->diags, r->file),
              key, wanted);
}
