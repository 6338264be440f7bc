/* Fields of a Hugging Face configuration: read by name, with their type and range checked. */
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

const zp_json *hf_value(hf_reader *r, const char *key) {
  if (!in_list(&r->used, key)) zp_push(r->arena, &r->used, key);
  const zp_json *value = zp_json_get(r->root, key);
  return value && !zp_json_is_null(value) ? value : NULL;
}

bool hf_is_null(hf_reader *r, const char *key) {
  hf_value(r, key);
  return zp_json_is_null(zp_json_get(r->root, key));
}

const char *hf_shown(const hf_reader *r, const zp_json *value) {
  const char *text = zp_json_text(r->arena, value, false);
  return strlen(text) > 40 ? zp_format(r->arena, "%.37s...", text) : text;
}

static void wrong(hf_reader *r, const char *key, const zp_json *value, const char *wanted) {
  if (value || hf_is_null(r, key))
    zp_report(r->diags, ZP_Z0683, hf_place(r, key), "`%s` is %s, %s is expected", key,
              value ? hf_shown(r, value) : "null", wanted);
  else
    zp_report(r->diags, ZP_Z0683, ZP_NO_SPAN, "%s has no `%s`: %s is expected", zp_diags_source_path(r->diags, r->file),
              key, wanted);
}

int64_t hf_size(hf_reader *r, const char *key, int64_t missing, int64_t most) {
  const zp_json *value = hf_value(r, key);
  if (!value && missing >= 0 && !hf_is_null(r, key)) return missing;
  int64_t n = zp_json_int(value, 0);
  if (n >= 1 && n <= most) return n;
  wrong(r, key, value, zp_format(r->arena, "a whole number from 1 to %lld", (long long)most));
  return 1;
}

int64_t hf_size_or_null(hf_reader *r, const char *key, int64_t none, int64_t most) {
  return hf_is_null(r, key) ? none : hf_size(r, key, none, most);
}

double hf_real(hf_reader *r, const char *key, double missing, double low, double high) {
  const zp_json *value = hf_value(r, key);
  if (!value && !hf_is_null(r, key)) return missing;
  double x = zp_json_real(value, low - 1);
  if (x >= low && x <= high) return x;
  wrong(r, key, value, zp_format(r->arena, "a number from %g to %g", low, high));
  return missing;
}

bool hf_flag(hf_reader *r, const char *key, bool missing) {
  if (hf_is_null(r, key)) return false; /* Python's None is no truth */
  const zp_json *value = hf_value(r, key);
  if (!value) return missing;
  bool flag = zp_json_get_bool(r->root, key, false);
  if (flag != zp_json_get_bool(r->root, key, true)) wrong(r, key, value, "true or false");
  return flag;
}

const char *hf_word(hf_reader *r, const char *key, const char *missing) {
  const zp_json *value = hf_value(r, key);
  if (!value && missing && !hf_is_null(r, key)) return missing;
  const char *word = zp_json_string(value, NULL);
  if (!word) wrong(r, key, value, "a word");
  return word ? word : "";
}
