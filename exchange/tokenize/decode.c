/* SPDX-License-Identifier: Apache-2.0 */
/* Ids back to text: the other way through the alphabet of bytes, or through SentencePiece's marks and bytes. */
#include "tokenize.h"

#include <stdio.h>

struct zp_decoder {
  zp_arena *arena;
  zp_strings text; /* by id; NULL: no such token */
  ZP_VEC(bool) added;
  bool byte_level;
  const char *prefix; /* WordPiece: of tokens that go on with a word; NULL: another model */
};

static void put(zp_decoder *d, int64_t id, const char *text, bool added) {
  enum { MOST = 1 << 24 };
  if (id < 0 || id >= MOST) return;
  while (d->text.len <= id) {
    zp_push(d->arena, &d->text, NULL);
    zp_push(d->arena, &d->added, false);
  }
  d->text.data[id] = zp_strdup(d->arena, text);
  d->added.data[id] = added;
}

/* {"type": "ByteLevel"}, or a sequence that has one. */
static bool has_byte_level(const zp_json *step) {
  static const char *const lists[] = {"pretokenizers", "decoders"};
  if (strcmp(zp_json_get_string(step, "type", ""), "ByteLevel") == 0) return true;
  for (int k = 0; k < 2; k++)
    for (int i = 0; i < zp_json_count(zp_json_get(step, lists[k])); i++)
      if (has_byte_level(zp_json_at(zp_json_get(step, lists[k]), i))) return true;
  return false;
}

zp_decoder *zp_decoder_read(zp_arena *arena, const char *json, size_t len) {
  const char *error = NULL, *key;
  const zp_json *value;
  zp_json *root = zp_json_parse(arena, json, len, &error);
  zp_decoder *d = ZP_NEW(arena, zp_decoder);
  d->arena = arena;
  d->byte_level = has_byte_level(zp_json_get(root, "pre_tokenizer")) || has_byte_level(zp_json_get(root, "decoder"));
  const zp_json *model = zp_json_get(root, "model"), *vocab = zp_json_get(model, "vocab");
  if (strcmp(zp_json_get_string(model, "type", ""), "WordPiece") == 0)
    d->prefix = zp_strdup(arena, zp_json_get_string(model, "continuing_subword_prefix", "##"));
  const zp_json *added = zp_json_get(root, "added_tokens");
  for (int i = 0; zp_json_is_array(vocab) && i < zp_json_count(vocab); i++)
    put(d, i, zp_json_string(zp_json_at(zp_json_at(vocab, i), 0), ""), false);
  for (void *at = NULL; zp_json_is_object(vocab) && zp_json_next(vocab, &at, &key, &value);)
    put(d, zp_json_int(value, -1), key, false);
  for (int i = 0; i < zp_json_count(added); i++)
    put(d, zp_json_get_int(zp_json_at(added, i), "id", -1), zp_json_get_string(zp_json_at(added, i), "content", ""),
        true);
  if (root) zp_json_free(root);
  return d;
}

/* The byte that the characters at `text` stand for, and how many of them; -1: none. */
static int byte_of(const char *text, int *used) {
  for (int byte = 0; byte < 256; byte++) {
    char written[2];
    int n = byte_text((unsigned char)byte, written);
    if (strncmp(text, written, (size_t)n) != 0) continue;
    *used = n;
    return byte;
  }
  return -1;
}

static void decode_bytes(zp_buf *out, const char *text) {
  for (int used = 1; *text; text += used) {
    int byte = byte_of(text, &used);
    char c = byte < 0 ? *text : (char)byte;
    if (byte < 0) used = 1;
    zp_buf_put(out, &c, 1);
  }
}

static void decode_pieces(zp_buf *out, const char *text, const char *prefix) {
  size_t n = strlen(prefix);
  bool goes_on = strncmp(text, prefix, n) == 0 && text[n];
  if (!goes_on && out->len > 0) zp_buf_puts(out, " ");
  zp_buf_puts(out, goes_on ? text + n : text);
}

static void decode_marks(zp_buf *out, const char *text) {
  static const char mark[] = "\xE2\x96\x81";
  unsigned byte;
  char end;
  if (sscanf(text, "<0x%2X>%c", &byte, &end) == 1 && strlen(text) == 6) {
    char c = (char)byte;
    zp_buf_put(out, &c, 1);
    return;
  }
  while (*text) {
    bool space = strncmp(text, mark, 3) == 0;
    zp_buf_put(out, space ? " " : text, 1);
    text += space ? 3 : 1;
  }
}

void zp_decode(const zp_decoder *d, int32_t id, zp_buf *out) {
  const char *text = id >= 0 && id < d->text.len ? d->text.data[id] : NULL;
  if (!text) return;
  if (d->prefix)
    decode_pieces(out, text, d->prefix);
  else if (d->added.data[id])
    zp_buf_puts(out, text);
  else if (d->byte_level)
    decode_bytes(out, text);
  else
    decode_marks(out, text);
}
