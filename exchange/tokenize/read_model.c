/* SPDX-License-Identifier: Apache-2.0 */
/* The model of a tokenizer.json: vocabulary and rules of BPE, pieces and scores of unigram, tokens of WordPiece. */
#include "tokenize.h"

#include <math.h>

enum { LONGEST_PIECE = 4096 };

/* ---- vocabulary ---- */

static bool read_vocabulary(reader *r, const zp_json *vocab) {
  zp_tokenizer *t = r->t;
  int64_t tokens = 0;
  const char *key;
  const zp_json *value;
  if (!zp_json_is_object(vocab)) return malformed(r, "`model.vocab` is no object");
  for (void *at = NULL; zp_json_next(vocab, &at, &key, &value);) tokens++;
  vocabulary_init(&t->vocabulary, t->arena, tokens);
  for (void *at = NULL; zp_json_next(vocab, &at, &key, &value);) {
    int32_t id;
    if (!read_id(value, &id)) return malformed(r, name_in(r, "the id of token `%s` is no whole number from 0 on", key));
    key = zp_strdup(t->arena, key);
    vocabulary_add(&t->vocabulary, key, strlen(key), id);
    use_id(t, id);
  }
  return true;
}

/* Every byte is a token. */
static bool read_alphabet(reader *r) {
  zp_tokenizer *t = r->t;
  for (int byte = 0; byte < 256; byte++) {
    char text[2];
    int32_t id = vocabulary_find(&t->vocabulary, text, (size_t)byte_text((unsigned char)byte, text));
    if (id < 0)
      return refuse(r, zp_format(t->arena, "its vocabulary has no token for byte %d: it is not byte-level", byte));
    t->merger.of_byte[byte] = id;
  }
  return true;
}

static bool read_fallback(reader *r, const zp_json *model, fallback *f) {
  int found = 0;
  if (!zp_json_get_bool(model, "byte_fallback", false)) return true;
  if (fallback_find_bytes(f, &r->t->vocabulary, &found) || found == 0) return true;
  return refuse(r, zp_format(r->t->arena, "`byte_fallback` with tokens for %d of 256 bytes", found));
}

/* ---- BPE ---- */

/* "left right", or [left, right] in newer files. */
static bool read_pair(const zp_json *value, const char **left, size_t *left_len, const char **right) {
  if (zp_json_is_array(value)) {
    *left = zp_json_string(zp_json_at(value, 0), NULL);
    *right = zp_json_string(zp_json_at(value, 1), NULL);
    if (zp_json_count(value) != 2 || !*left || !*right) return false;
    *left_len = strlen(*left);
    return true;
  }
  const char *space = (*left = zp_json_string(value, NULL)) ? strchr(*left, ' ') : NULL;
  if (!space) return false;
  *left_len = (size_t)(space - *left);
  *right = space + 1;
  return true;
}

static bool read_rules(reader *r, const zp_json *merges) {
  zp_tokenizer *t = r->t;
  if (!zp_json_is_array(merges)) return malformed(r, "`model.merges` is no list");
  int n = zp_json_count(merges);
  merger_init(&t->merger, t->arena, n);
  for (int i = 0; i < n; i++) {
    const char *left, *right;
    size_t left_len;
    if (!read_pair(zp_json_at(merges, i), &left, &left_len, &right))
      return malformed(r, zp_format(t->arena, "rule %d of `model.merges` is no pair of tokens", i));
    const char *both = zp_format(t->arena, "%.*s%s", (int)left_len, left, right);
    merge_rule rule = {vocabulary_find(&t->vocabulary, left, left_len),
                       vocabulary_find(&t->vocabulary, right, strlen(right)), i,
                       vocabulary_find(&t->vocabulary, both, strlen(both))};
    if (rule.left < 0 || rule.right < 0 || rule.id < 0)
      return malformed(r, zp_format(t->arena, "rule %d of `model.merges` names what is not in the vocabulary", i));
    merger_add(&t->merger, rule);
  }
  return true;
}

/* Words of characters: a mark U+2581 that no rule joins to what stands before it begins a word of its own, so that a
 * text need not be one word. (SentencePiece's BPE writes no `pre_tokenizer` at all.) */
static bool cut_at_marks(reader *r, const zp_json *merges) {
  static const char mark[] = "\xE2\x96\x81";
  zp_tokenizer *t = r->t;
  if (t->merger.whole || vocabulary_find(&t->vocabulary, mark, 3) < 0 || t->n_stages == MOST_STAGES) return true;
  for (int i = 0; i < zp_json_count(merges); i++) {
    const char *left, *right;
    size_t left_len;
    if (!read_pair(zp_json_at(merges, i), &left, &left_len, &right)) return true;
    bool ends_marked = left_len >= 3 && memcmp(left + left_len - 3, mark, 3) == 0;
    if (strncmp(right, mark, 3) == 0 && !ends_marked) return true;
  }
  return add_pattern(r, ISOLATE, "\\x{2581}*[^\\x{2581}]+|\\x{2581}+", false);
}

static bool read_bpe(reader *r, const zp_json *model) {
  zp_tokenizer *t = r->t;
  const char *unknown = zp_json_get_string(model, "unk_token", NULL);
  if (zp_json_get_real(model, "dropout", 0) != 0) return refuse(r, "dropout of rules");
  if (is_said(model, "continuing_subword_prefix") || is_said(model, "end_of_word_suffix"))
    return refuse(r, "marks at the ends of words");
  if (!read_vocabulary(r, zp_json_get(model, "vocab")) || (r->byte_level && !read_alphabet(r)) ||
      !read_rules(r, zp_json_get(model, "merges")))
    return false;
  if (zp_json_get_bool(model, "ignore_merges", false)) t->merger.whole = &t->vocabulary;
  if (r->byte_level) return true; /* every character is tokens */
  t->merger.characters = &t->vocabulary;
  t->merger.other.fuse = zp_json_get_bool(model, "fuse_unk", false);
  t->merger.other.unknown = unknown ? vocabulary_find(&t->vocabulary, unknown, strlen(unknown)) : -1;
  if (unknown && t->merger.other.unknown < 0)
    return malformed(r, name_in(r, "`unk_token` `%s` is not in the vocabulary", unknown));
  return read_fallback(r, model, &t->merger.other) && cut_at_marks(r, zp_json_get(model, "merges"));
}

/* ---- unigram ---- */

/* [piece, score]; its place is its id. */
static bool read_piece(const zp_json *value, int32_t id, piece *p) {
  *p = (piece){
      .text = zp_json_string(zp_json_at(value, 0), NULL), .id = id, .score = zp_json_real(zp_json_at(value, 1), NAN)};
  if (zp_json_count(value) != 2 || !p->text || !isfinite(p->score) || strlen(p->text) > LONGEST_PIECE) return false;
  p->len = (int)strlen(p->text);
  return true;
}

static bool read_unigram(reader *r, const zp_json *model) {
  zp_tokenizer *t = r->t;
  const zp_json *vocab = zp_json_get(model, "vocab");
  if (r->byte_level) return refuse(r, "a unigram model of bytes (`ByteLevel`)");
  if (!zp_json_is_array(vocab)) return malformed(r, "`model.vocab` is no list");
  int n = zp_json_count(vocab);
  vocabulary_init(&t->vocabulary, t->arena, n);
  t->unigram.arena = t->arena;
  cache_init(&t->unigram.cache, t->arena);
  for (int i = 0; i < n; i++) {
    piece p;
    if (!read_piece(zp_json_at(vocab, i), i, &p))
      return malformed(r, zp_format(t->arena, "piece %d of `model.vocab` is no pair of a text and a score", i));
    p.text = zp_strdup(t->arena, p.text);
    vocabulary_add(&t->vocabulary, p.text, (size_t)p.len, i);
    zp_push(t->arena, &t->unigram.pieces, p);
    use_id(t, i);
  }
  unigram_sort(&t->unigram);
  int64_t unknown = is_said(model, "unk_id") ? zp_json_get_int(model, "unk_id", -1) : -1;
  if (unknown >= n || (unknown < 0 && is_said(model, "unk_id"))) return malformed(r, "`model.unk_id` is no piece");
  t->unigram.other.unknown = (int32_t)unknown;
  return read_fallback(r, model, &t->unigram.other);
}

/* ---- WordPiece ---- */

static bool read_wordpiece(reader *r, const zp_json *model) {
  zp_tokenizer *t = r->t;
  const char *unknown = zp_json_get_string(model, "unk_token", "[UNK]");
  if (r->byte_level) return refuse(r, "WordPiece of bytes (`ByteLevel`)");
  for (int i = 0; i < t->n_stages; i++)
    if (t->stages[i].kind == MARK) return refuse(r, "WordPiece after `Metaspace`");
  if (!read_vocabulary(r, zp_json_get(model, "vocab"))) return false;
  t->wordpiece =
      (wordpiece){.arena = t->arena,
                  .vocabulary = &t->vocabulary,
                  .prefix = zp_strdup(t->arena, zp_json_get_string(model, "continuing_subword_prefix", "##")),
                  .unknown = vocabulary_find(&t->vocabulary, unknown, strlen(unknown)),
                  .most_characters = zp_json_get_int(model, "max_input_chars_per_word", 100)};
  return t->wordpiece.unknown >= 0 || malformed(r, name_in(r, "`unk_token` `%s` is not in the vocabulary", unknown));
}

bool read_model(reader *r, const zp_json *model) {
  const char *type = zp_json_get_string(model, "type", "BPE");
  if (!zp_json_is_object(model)) return malformed(r, "`model` is no object");
  r->t->kind = strcmp(type, "Unigram") == 0 ? BY_SCORES : strcmp(type, "WordPiece") == 0 ? BY_LONGEST : BY_RULES;
  if (r->t->kind == BY_SCORES) return read_unigram(r, model);
  if (r->t->kind == BY_LONGEST) return read_wordpiece(r, model);
  return strcmp(type, "BPE") == 0 ? read_bpe(r, model) : refuse(r, name_in(r, "a model of type `%s`", type));
}
