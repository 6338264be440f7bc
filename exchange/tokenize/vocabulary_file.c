/* SPDX-License-Identifier: Apache-2.0 */
/* A tokenizer as a file: tokenizer.json as it is, and vocab.txt, the vocabulary that BERT was published with, as the
 * tokenizer.json that it means. */
#include "tokenize.h"
#include <zplan/buf.h>

static bool ends_with(const char *path, const char *ending) {
  size_t n = strlen(path), k = strlen(ending);
  return n >= k && strcmp(path + n - k, ending) == 0;
}

/* tokenizer_config.json alongside it; NULL: there is none. The caller's to free. */
static zp_json *settings_alongside(zp_arena *arena, const char *path) {
  const char *slash = strrchr(path, '/'), *error;
  size_t len;
  const char *alongside =
      zp_format(arena, "%.*stokenizer_config.json", slash ? (int)(slash + 1 - path) : 0, slash ? path : "");
  const char *text = zp_read_file(arena, alongside, &len, &error);
  return text ? zp_json_parse(arena, text, len, &error) : NULL;
}

static void set_normalizer(zp_json *root, const zp_json *settings) {
  zp_json *o = zp_json_set(root, "normalizer", zp_json_object());
  bool lower = zp_json_get_bool(settings, "do_lower_case", true);
  zp_json_set_string(o, "type", "BertNormalizer");
  zp_json_set_bool(o, "clean_text", true);
  zp_json_set_bool(o, "handle_chinese_chars", zp_json_get_bool(settings, "tokenize_chinese_chars", true));
  zp_json_set_bool(o, "strip_accents", zp_json_get_bool(settings, "strip_accents", lower));
  zp_json_set_bool(o, "lowercase", lower);
}

static void add_token(zp_json *list, const char *token, int64_t id) {
  zp_json *o = zp_json_append(list, zp_json_object());
  zp_json_set_int(o, "id", id);
  zp_json_set_string(o, "content", token);
  zp_json_set_bool(o, "normalized", false);
  zp_json_set_bool(o, "special", true);
}

/* A line a token, in the order of their ids. */
static void set_model(zp_arena *arena, zp_json *root, const char *text, size_t len) {
  static const char *const special[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  zp_json *added = zp_json_set(root, "added_tokens", zp_json_array());
  zp_json *model = zp_json_set(root, "model", zp_json_object());
  zp_json_set_string(model, "type", "WordPiece");
  zp_json_set_string(model, "unk_token", "[UNK]");
  zp_json *vocab = zp_json_set(model, "vocab", zp_json_object());
  int64_t id = 0;
  for (const char *at = text, *end = text + len; at < end; id++) {
    const char *line = memchr(at, '\n', (size_t)(end - at));
    size_t n = (size_t)((line ? line : end) - at);
    const char *token = zp_strndup(arena, at, n > 0 && at[n - 1] == '\r' ? n - 1 : n);
    zp_json_set_int(vocab, token, id);
    for (size_t k = 0; k < sizeof special / sizeof *special; k++)
      if (strcmp(special[k], token) == 0) add_token(added, token, id);
    at += n + 1;
  }
}

const char *zp_tokenizer_text(zp_arena *arena, zp_diags *diags, const char *path, size_t *len) {
  const char *error = NULL, *text = zp_read_file(arena, path, len, &error);
  if (!text) return zp_report(diags, ZP_Z0806, ZP_NO_SPAN, "%s", error), NULL;
  if (!ends_with(path, ".txt")) return text;
  size_t bad = find_not_utf8((const unsigned char *)text, *len);
  if (bad < *len || memchr(text, '\0', *len)) {
    zp_report(diags, ZP_Z0806, ZP_NO_SPAN, "%s is no vocabulary: a line a token, in UTF-8", path);
    return NULL;
  }
  zp_json *root = zp_json_object(), *settings = settings_alongside(arena, path);
  set_normalizer(root, settings);
  zp_json_set_string(zp_json_set(root, "pre_tokenizer", zp_json_object()), "type", "BertPreTokenizer");
  set_model(arena, root, text, *len);
  const char *json = zp_json_text(arena, root, false);
  *len = strlen(json);
  if (settings) zp_json_free(settings);
  zp_json_free(root);
  return json;
}
