/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns over PCRE2, which knows Unicode's classes; tokenizer files are written for Oniguruma, whose patterns for
 * tokenizers mean the same there. One known difference: U+180E is a space to PCRE2. */
#include "tokenize.h"

const char *splitter_error(zp_arena *arena, int code) {
  PCRE2_UCHAR text[256];
  if (pcre2_get_error_message(code, text, sizeof text) < 0) return zp_format(arena, "error %d", code);
  return zp_strdup(arena, (const char *)text);
}

bool splitter_init(splitter *s, zp_arena *arena, const char *pattern, size_t len, bool literal, const char **error) {
  int code;
  size_t where;
  uint32_t options = PCRE2_UTF | (literal ? PCRE2_LITERAL : PCRE2_UCP);
  *s = (splitter){.code = pcre2_compile((PCRE2_SPTR)pattern, len, options, &code, &where, NULL)};
  if (!s->code) {
    *error = zp_format(arena, "%s (at byte %zu)", splitter_error(arena, code), where);
    return false;
  }
  pcre2_jit_compile(s->code, PCRE2_JIT_COMPLETE); /* without it matching is slower, not different */
  s->match = pcre2_match_data_create_from_pattern(s->code, NULL);
  if (s->match) return true;
  *error = "no memory is left";
  splitter_free(s);
  return false;
}

void splitter_free(splitter *s) {
  pcre2_match_data_free(s->match);
  pcre2_code_free(s->code);
  *s = (splitter){0};
}

int splitter_next(splitter *s, const char *text, size_t len, size_t from, size_t *begin, size_t *end) {
  const uint32_t options = PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY; /* zp_tokenize has checked the text */
  int found = pcre2_match(s->code, (PCRE2_SPTR)text, len, from, options, s->match, NULL);
  if (found == PCRE2_ERROR_JIT_STACKLIMIT) /* long pieces: the interpreter's stack is on the heap */
    found = pcre2_match(s->code, (PCRE2_SPTR)text, len, from, options | PCRE2_NO_JIT, s->match, NULL);
  if (found == PCRE2_ERROR_NOMATCH) return 0;
  if (found < 0) return found;
  const size_t *at = pcre2_get_ovector_pointer(s->match);
  *begin = at[0];
  *end = at[1];
  return 1;
}

const char *zp_tokenizer_pcre2(zp_arena *arena) {
  char text[64];
  if (pcre2_config(PCRE2_CONFIG_VERSION, text) < 0) return "of unknown version";
  return zp_strndup(arena, text, strcspn(text, " ")); /* "10.42 2022-12-11" */
}
