/* SPDX-License-Identifier: Apache-2.0 */
/* Normalizers, one after the other. Unicode's forms, lower case and white space are libunistring's. */
#include "tokenize.h"

#include <stdlib.h>
#include <unicase.h>
#include <unictype.h>
#include <uninorm.h>
#include <unistr.h>
#include <unistring/version.h>

/* Their results are at most a few times as long, and lengths are counted in int. */
enum { LONGEST_TEXT = 1 << 28 };

static bool fail(const char **error, const char *why) {
  *error = why;
  return false;
}

static bool put(zp_arena *arena, characters *out, const char *text, size_t len, const char **error) {
  if (len > (size_t)(INT32_MAX / 2 - out->len)) return fail(error, "its normalized text is longer than 1 GiB");
  zp_reserve(arena, out, out->len + (int)len);
  memcpy(out->data + out->len, text, len);
  out->len += (int)len;
  return true;
}

static uninorm_t form_of(const char *name) {
  if (strcmp(name, "NFC") == 0) return UNINORM_NFC;
  if (strcmp(name, "NFD") == 0) return UNINORM_NFD;
  if (strcmp(name, "NFKC") == 0) return UNINORM_NFKC;
  return strcmp(name, "NFKD") == 0 ? UNINORM_NFKD : NULL;
}

bool is_form(const char *name) { return form_of(name) != NULL; }

static bool to_form(const char *form, zp_arena *arena, const char *text, size_t len, characters *out,
                    const char **error) {
  size_t n = 0;
  uint8_t *result = u8_normalize(form_of(form), (const uint8_t *)text, len, NULL, &n);
  if (!result && len > 0) return fail(error, "no memory is left");
  bool ok = put(arena, out, (const char *)result, n, error);
  free(result);
  return ok;
}

/* Character by character, so that no final sigma depends on what stands around it. */
static bool to_lower(zp_arena *arena, const char *text, size_t len, characters *out, const char **error) {
  for (size_t i = 0, bytes; i < len; i += bytes) {
    bytes = (size_t)character_bytes((unsigned char)text[i]);
    if (bytes == 1) {
      char c = text[i] >= 'A' && text[i] <= 'Z' ? (char)(text[i] + 32) : text[i];
      if (!put(arena, out, &c, 1, error)) return false;
      continue;
    }
    uint8_t lower[32];
    size_t n = sizeof lower;
    uint8_t *result = u8_tolower((const uint8_t *)text + i, bytes, NULL, NULL, lower, &n);
    bool ok = result && put(arena, out, (const char *)result, n, error);
    if (!result) fail(error, "no memory is left");
    if (result != lower) free(result);
    if (!ok) return false;
  }
  return true;
}

static bool replace_all(const normal_step *step, zp_arena *arena, const char *text, size_t len, characters *out,
                        const char **error) {
  splitter pattern = step->pattern; /* handles only */
  size_t done = 0, begin, end;
  int found;
  while ((found = splitter_next(&pattern, text, len, done, &begin, &end)) > 0) {
    if (!put(arena, out, text + done, begin - done, error) || !put(arena, out, step->text, step->len, error))
      return false;
    done = end;
  }
  if (found < 0) return fail(error, splitter_error(arena, found));
  return put(arena, out, text + done, len - done, error);
}

static bool is_space(const char *text, size_t bytes) {
  ucs4_t c;
  u8_mbtouc_unsafe(&c, (const uint8_t *)text, bytes);
  return uc_is_property_white_space(c);
}

static void strip(const normal_step *step, const char **text, size_t *len) {
  while (step->left && *len > 0) {
    size_t bytes = (size_t)character_bytes((unsigned char)**text);
    if (!is_space(*text, bytes)) break;
    *text += bytes;
    *len -= bytes;
  }
  while (step->right && *len > 0) {
    size_t bytes = 1;
    while (((unsigned char)(*text)[*len - bytes] & 0xC0) == 0x80) bytes++;
    if (!is_space(*text + *len - bytes, bytes)) break;
    *len -= bytes;
  }
}

bool normalize_step(const normal_step *step, zp_arena *arena, const char **text, size_t *len, characters *out,
                    const char **error) {
  bool ok = true;
  out->len = 0;
  if (*len > LONGEST_TEXT) return fail(error, "with normalizers, text between added tokens may have 256 MiB");
  zp_reserve(arena, out, (int)*len + 1);
  switch (step->kind) {
  case TO_FORM: ok = to_form(step->form, arena, *text, *len, out, error); break;
  case TO_LOWER: ok = to_lower(arena, *text, *len, out, error); break;
  case REPLACE: ok = replace_all(step, arena, *text, *len, out, error); break;
  case PREPEND:
    if (*len == 0) return true;
    ok = put(arena, out, step->text, step->len, error) && put(arena, out, *text, *len, error);
    break;
  case BY_CHARSMAP:
    ok = charsmap_apply(&step->map, arena, *text, *len, out) || fail(error, "`precompiled_charsmap` is damaged");
    break;
  case CLEAN: bert_clean(*text, *len, arena, out); break;
  case SEPARATE: bert_separate(*text, *len, arena, out); break;
  case STRIP_ACCENTS: bert_strip_accents(*text, *len, arena, out); break;
  case STRIP: strip(step, text, len); return true;
  }
  *text = out->data;
  *len = (size_t)out->len;
  return ok;
}

bool normalize(zp_tokenizer *t, const char **text, size_t *len, const char **error) {
  int next = 0;
  for (int i = 0; i < t->n_normalizers; i++) {
    characters *out = &t->normalized[next];
    if (!normalize_step(&t->normalizers[i], t->arena, text, len, out, error)) return false;
    if (*text == out->data) next = 1 - next; /* not what is read may be written */
  }
  return true;
}

const char *zp_tokenizer_unistring(zp_arena *arena) {
  return zp_format(arena, "%d.%d", _libunistring_version >> 16, _libunistring_version >> 8 & 255);
}
