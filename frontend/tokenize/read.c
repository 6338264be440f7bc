/* tokenizer.json: vocabulary, rules, patterns and added tokens; what is asked for and not done is refused by name. */
#include "tokenize.h"

#include <stdlib.h>

/* GPT-2's own pattern, which `ByteLevel` means with use_regex. (openai/gpt-2, src/encoder.py) */
static const char gpt2_pattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

typedef struct reader {
  zp_diags *diags;
  const char *path;
  zp_tokenizer *t;
} reader;

static bool malformed(reader *r, const char *what) {
  zp_report(r->diags, ZP_Z0806, ZP_NO_SPAN, "%s: %s", r->path, what);
  return false;
}

static bool refuse(reader *r, const char *what) {
  zp_report(r->diags, ZP_Z0807, ZP_NO_SPAN, "%s: %s", r->path, what);
  return false;
}

static const char *name(reader *r, const char *format, const char *what) {
  return zp_format(r->t->arena, format, what);
}

/* ---- vocabulary and rules ---- */

static bool read_id(const zp_json *value, int32_t *id) {
  int64_t n = zp_json_int(value, -1);
  *id = (int32_t)n;
  return n >= 0 && n < INT32_MAX;
}

static void use_id(zp_tokenizer *t, int32_t id) {
  if (id > t->largest_id) t->largest_id = id;
}

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
    if (!read_id(value, &id)) return malformed(r, name(r, "the id of token `%s` is no whole number from 0 on", key));
    key = zp_strdup(t->arena, key);
    vocabulary_add(&t->vocabulary, key, strlen(key), id);
    use_id(t, id);
  }
  for (int byte = 0; byte < 256; byte++) {
    char text[2];
    int32_t id = vocabulary_find(&t->vocabulary, text, (size_t)byte_text((unsigned char)byte, text));
    if (id < 0)
      return refuse(r, zp_format(t->arena, "its vocabulary has no token for byte %d: it is not byte-level", byte));
    t->merger.of_byte[byte] = id;
  }
  return true;
}

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

static bool is_said(const zp_json *object, const char *key) {
  const zp_json *value = zp_json_get(object, key);
  const char *text = zp_json_string(value, NULL);
  return value && !zp_json_is_null(value) && !(text && !text[0]);
}

static bool read_model(reader *r, const zp_json *model) {
  const char *type = zp_json_get_string(model, "type", "BPE");
  if (!zp_json_is_object(model)) return malformed(r, "`model` is no object");
  if (strcmp(type, "BPE") != 0) return refuse(r, name(r, "a model of type `%s`", type));
  if (zp_json_get_real(model, "dropout", 0) != 0) return refuse(r, "dropout of rules");
  if (zp_json_get_bool(model, "byte_fallback", false)) return refuse(r, "SentencePiece's pieces (`byte_fallback`)");
  if (is_said(model, "continuing_subword_prefix") || is_said(model, "end_of_word_suffix"))
    return refuse(r, "marks at the ends of words");
  if (!read_vocabulary(r, zp_json_get(model, "vocab")) || !read_rules(r, zp_json_get(model, "merges"))) return false;
  if (zp_json_get_bool(model, "ignore_merges", false)) r->t->merger.whole = &r->t->vocabulary;
  return true;
}

/* ---- patterns ---- */

static bool add_stage(reader *r, const char *pattern, bool literal) {
  zp_tokenizer *t = r->t;
  const char *error;
  if (t->n_stages == MOST_STAGES) return refuse(r, "more than eight splits in a row");
  if (!splitter_init(&t->stages[t->n_stages], t->arena, pattern, strlen(pattern), literal, &error))
    return malformed(r, zp_format(t->arena, "pattern `%s`: %s", pattern, error));
  t->n_stages++;
  return true;
}

static bool read_split(reader *r, const zp_json *step) {
  const zp_json *pattern = zp_json_get(step, "pattern");
  const char *regex = zp_json_get_string(pattern, "Regex", NULL), *text = zp_json_get_string(pattern, "String", NULL);
  const char *behavior = zp_json_get_string(step, "behavior", "");
  if (!regex && !text) return malformed(r, "a `Split` has no pattern");
  if (strcmp(behavior, "Isolated") != 0) return refuse(r, name(r, "a `Split` with behavior `%s`", behavior));
  return add_stage(r, regex ? regex : text, !regex); /* what matches and what does not are alike, so `invert` is, too */
}

static bool read_step(reader *r, const zp_json *step, bool *byte_level) {
  const char *type = zp_json_get_string(step, "type", "");
  if (strcmp(type, "Sequence") == 0) {
    const zp_json *steps = zp_json_get(step, "pretokenizers");
    for (int i = 0; i < zp_json_count(steps); i++)
      if (!read_step(r, zp_json_at(steps, i), byte_level)) return false;
    return true;
  }
  if (*byte_level) return refuse(r, name(r, "`%s` behind `ByteLevel`", type));
  if (strcmp(type, "Split") == 0) return read_split(r, step);
  if (strcmp(type, "Digits") == 0)
    return add_stage(r, zp_json_get_bool(step, "individual_digits", false) ? "\\p{N}" : "\\p{N}+", false);
  if (strcmp(type, "ByteLevel") != 0) return refuse(r, name(r, "`pre_tokenizer` has a step `%s`", type));
  if (zp_json_get_bool(step, "add_prefix_space", true))
    return refuse(r, "a space before every text (`add_prefix_space`)");
  *byte_level = true;
  return !zp_json_get_bool(step, "use_regex", true) || add_stage(r, gpt2_pattern, false);
}

static bool read_patterns(reader *r, const zp_json *root) {
  const zp_json *normalizer = zp_json_get(root, "normalizer");
  bool byte_level = false;
  if (normalizer && !zp_json_is_null(normalizer))
    return refuse(r, name(r, "a normalizer (`%s`)", zp_json_get_string(normalizer, "type", "?")));
  const zp_json *step = zp_json_get(root, "pre_tokenizer");
  if (!step || zp_json_is_null(step)) return refuse(r, "no `pre_tokenizer`: it is not byte-level");
  if (!read_step(r, step, &byte_level)) return false;
  return byte_level || refuse(r, "`pre_tokenizer` has no step `ByteLevel`");
}

/* ---- added tokens ---- */

static int longest_first(const void *a, const void *b) {
  const added_token *x = a, *y = b;
  if (x->len != y->len) return x->len > y->len ? -1 : 1;
  return strcmp(x->content, y->content);
}

/* One pattern of all, longest first: alternatives are tried in their order. */
static const char *pattern_of_added(const zp_tokenizer *t) {
  size_t bytes = 1;
  for (int i = 0; i < t->added.len; i++) bytes += 2 * t->added.data[i].len + 1;
  char *pattern = zp_alloc(t->arena, bytes), *to = pattern;
  for (int i = 0; i < t->added.len; i++) {
    if (i > 0) *to++ = '|';
    for (const char *c = t->added.data[i].content; *c; c++) {
      bool plain = (unsigned char)*c >= 128 || strchr("<>_", *c) || (*c >= '0' && *c <= '9') ||
                   ((*c | 32) >= 'a' && (*c | 32) <= 'z');
      if (!plain) *to++ = '\\';
      *to++ = *c;
    }
  }
  return pattern;
}

static bool read_added(reader *r, const zp_json *list) {
  static const char *const swallow[] = {"lstrip", "rstrip", "single_word"};
  zp_tokenizer *t = r->t;
  for (int i = 0; i < zp_json_count(list); i++) {
    const zp_json *one = zp_json_at(list, i);
    added_token token = {.content = zp_json_get_string(one, "content", "")};
    if (!token.content[0] || !read_id(zp_json_get(one, "id"), &token.id))
      return malformed(r, zp_format(t->arena, "added token %d has no content or no id", i));
    for (int k = 0; k < 3; k++)
      if (zp_json_get_bool(one, swallow[k], false))
        return refuse(r, zp_format(t->arena, "added token `%s` with `%s`", token.content, swallow[k]));
    token.content = zp_strdup(t->arena, token.content);
    token.len = strlen(token.content);
    zp_push(t->arena, &t->added, token);
    use_id(t, token.id);
  }
  if (t->added.len == 0) return true;
  qsort(t->added.data, (size_t)t->added.len, sizeof *t->added.data, longest_first);
  const char *pattern = pattern_of_added(t), *error;
  return splitter_init(&t->find_added, t->arena, pattern, strlen(pattern), false, &error) || malformed(r, error);
}

/* ---- the file ---- */

zp_tokenizer *zp_tokenizer_read(zp_arena *arena, zp_diags *diags, const char *path, const char *json, size_t len) {
  const char *error = NULL;
  reader r = {diags, path, ZP_NEW(arena, zp_tokenizer)};
  r.t->arena = arena;
  zp_json *root = zp_json_parse(arena, json, len, &error);
  bool ok = root && zp_json_is_object(root);
  if (!ok) malformed(&r, error ? error : "no JSON object");
  ok = ok && read_model(&r, zp_json_get(root, "model")) && read_patterns(&r, root) &&
       read_added(&r, zp_json_get(root, "added_tokens"));
  if (root) zp_json_free(root);
  if (ok) return r.t;
  zp_tokenizer_free(r.t);
  return NULL;
}

void zp_tokenizer_free(zp_tokenizer *t) {
  if (!t) return;
  splitter_free(&t->find_added);
  for (int i = 0; i < t->n_stages; i++) splitter_free(&t->stages[i]);
}
