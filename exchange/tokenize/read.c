/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.json: added tokens here, the other parts in read_steps.c and read_model.c; what is asked for and not done
 * is rejected with a message. */
#include "tokenize.h"

#include <assert.h>
#include <stdlib.h>

bool malformed(reader *r, const char *what) {
  zp_report(r->diags, ZP_Z0806, ZP_NO_SPAN, "%s: %s", r->path, what);
  return false;
}

bool refuse(reader *r, const char *what) {
  zp_report(r->diags, ZP_Z0807, ZP_NO_SPAN, "%s: %s", r->path, what);
  return false;
}

const char *name_in(reader *r, const char *format, const char *what) { return zp_format(r->t->arena, format, what); }

bool is_said(const zp_json *object, const char *key) {
  const zp_json *value = zp_json_get(object, key);
  const char *text = zp_json_string(value, NULL);
  return value && !zp_json_is_null(value) && !(text && !text[0]);
}

bool read_id(const zp_json *value, int32_t *id) {
  int64_t n = zp_json_int(value, -1);
  *id = (int32_t)n;
  return n >= 0 && n < INT32_MAX;
}

void use_id(zp_tokenizer *t, int32_t id) {
  if (id > t->largest_id) t->largest_id = id;
}

/* ---- added tokens ---- */

static int longest_first(const void *a, const void *b) {
  const added_token *x = a, *y = b;
  if (x->len != y->len) return x->len > y->len ? -1 : 1;
  return strcmp(x->content, y->content);
}

/* One pattern of all, longest first: alternatives are tried in their order. */
static const char *pattern_of(zp_arena *arena, const added_tokens *added) {
  size_t bytes = 1;
  for (int i = 0; i < added->tokens.len; i++) bytes += 2 * added->tokens.data[i].len + 1;
  char *pattern = zp_alloc(arena, bytes), *to = pattern;
  for (int i = 0; i < added->tokens.len; i++) {
    if (i > 0) *to++ = '|';
    for (const char *c = added->tokens.data[i].content; *c; c++) {
      bool plain = (unsigned char)*c >= 128 || strchr("<>_", *c) || (*c >= '0' && *c <= '9') ||
                   ((*c | 32) >= 'a' && (*c | 32) <= 'z');
      if (!plain) *to++ = '\\';
      *to++ = *c;
    }
  }
  return pattern;
}

static bool find_by_pattern(reader *r, added_tokens *added) {
  if (added->tokens.len == 0) return true;
  qsort(added->tokens.data, (size_t)added->tokens.len, sizeof *added->tokens.data, longest_first);
  const char *pattern = pattern_of(r->t->arena, added), *error;
  return splitter_init(&added->find, r->t->arena, pattern, strlen(pattern), false, &error) || malformed(r, error);
}

/* What is looked for in normalized text went through the normalizers, too. */
static bool normalize_content(reader *r, added_token *token) {
  const char *text = token->name, *error = NULL;
  size_t len = token->len;
  if (!normalize(r->t, &text, &len, &error)) return malformed(r, error);
  token->content = zp_strndup(r->t->arena, text, len);
  token->len = len;
  return len > 0 || refuse(r, name_in(r, "added token `%s`, of which the normalizers leave nothing", token->name));
}

static bool read_added(reader *r, const zp_json *list) {
  static const char *const swallow[] = {"lstrip", "rstrip", "single_word"};
  zp_tokenizer *t = r->t;
  for (int i = 0; i < zp_json_count(list); i++) {
    const zp_json *one = zp_json_at(list, i);
    added_token token = {.name = zp_json_get_string(one, "content", "")};
    bool normal = zp_json_get_bool(one, "normalized", false);
    if (!token.name[0] || !read_id(zp_json_get(one, "id"), &token.id))
      return malformed(r, zp_format(t->arena, "added token %d has no content or no id", i));
    for (int k = 0; k < 3; k++)
      if (zp_json_get_bool(one, swallow[k], false))
        return refuse(r, zp_format(t->arena, "added token `%s` with `%s`", token.name, swallow[k]));
    token.name = token.content = zp_strdup(t->arena, token.name);
    token.len = strlen(token.name);
    if (normal && !normalize_content(r, &token)) return false;
    added_tokens *added = normal ? &t->normal : &t->raw;
    zp_push(t->arena, &added->tokens, token);
    use_id(t, token.id);
  }
  return find_by_pattern(r, &t->raw) && find_by_pattern(r, &t->normal);
}

/* ---- the file ---- */

zp_tokenizer *zp_tokenizer_read(zp_arena *arena, zp_diags *diags, const char *path, const char *json, size_t len) {
  assert(path && (json || len == 0));
  const char *error = NULL;
  reader r = {.diags = diags, .path = path, .t = ZP_NEW(arena, zp_tokenizer)};
  r.t->arena = arena;
  zp_json *root = zp_json_parse(arena, json, len, &error);
  bool ok = root && zp_json_is_object(root);
  if (!ok) malformed(&r, error ? error : "no JSON object");
  ok = ok && read_normalizer(&r, zp_json_get(root, "normalizer")) &&
       read_words(&r, zp_json_get(root, "pre_tokenizer")) && read_model(&r, zp_json_get(root, "model")) &&
       read_added(&r, zp_json_get(root, "added_tokens"));
  if (root) zp_json_free(root);
  if (ok) return r.t;
  zp_tokenizer_free(r.t);
  return NULL;
}

void zp_tokenizer_free(zp_tokenizer *t) {
  if (!t) return;
  splitter_free(&t->raw.find);
  splitter_free(&t->normal.find);
  for (int i = 0; i < t->n_stages; i++) splitter_free(&t->stages[i].pattern);
  for (int i = 0; i < t->n_normalizers; i++) splitter_free(&t->normalizers[i].pattern);
}
