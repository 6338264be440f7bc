/* SPDX-License-Identifier: Apache-2.0 */
/* Where in a text its tokens stand, of tokenizers that change texts: the normalizers are applied to every character by
 * itself, and where that gives the same text as all of them on the whole one, each of its bytes is some character's. */
#include "tokenize.h"

/* One character through all steps. */
static bool normalize_one(zp_tokenizer *t, places *p, const char **text, size_t *len, const char **error) {
  int next = 0;
  for (int i = 0; i < t->n_normalizers; i++) {
    characters *out = &p->one[next];
    if (!normalize_step(&t->normalizers[i], t->arena, text, len, out, error)) return false;
    if (*text == out->data) next = 1 - next;
  }
  return true;
}

bool places_find(zp_tokenizer *t, places *p, const char *text, size_t begin, size_t len, const char *normal,
                 size_t normal_len, const char **error) {
  p->normal = normal;
  p->begin.len = p->end.len = 0;
  for (size_t i = 0, bytes; i < len; i += bytes) {
    const char *one = text + begin + i;
    bytes = (size_t)character_bytes((unsigned char)*one);
    size_t n = bytes;
    if (!normalize_one(t, p, &one, &n, error)) return false;
    bool same = (size_t)p->begin.len + n <= normal_len && memcmp(normal + p->begin.len, one, n) == 0;
    if (!same) break;
    for (size_t k = 0; k < n; k++) {
      zp_push(t->arena, &p->begin, (int32_t)(begin + i));
      zp_push(t->arena, &p->end, (int32_t)(begin + i + bytes));
    }
  }
  if ((size_t)p->begin.len == normal_len) return true;
  *error = "characters are changed together, so places in the text are not known";
  return false;
}
