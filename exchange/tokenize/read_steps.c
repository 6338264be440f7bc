/* SPDX-License-Identifier: Apache-2.0 */
/* What a tokenizer.json does to a text before its model: normalizers, and what cuts words. */
#include "tokenize.h"

/* GPT-2's own pattern, which `ByteLevel` means with use_regex. (openai/gpt-2, src/encoder.py) */
static const char gpt2_pattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
/* White space as Unicode has it: PCRE2 counts U+180E, too. */
static const char space_pattern[] = "(?:(?!\\x{180E})\\s)+";
/* BERT's: all of ASCII that is no letter, digit or space, and Unicode's. */
static const char punctuation_pattern[] = "[!-/:-@\\[-`{-~]|\\p{P}";

/* ---- normalizers ---- */

static bool read_replace(reader *r, const zp_json *step, normal_step *into) {
  const zp_json *pattern = zp_json_get(step, "pattern");
  const char *regex = zp_json_get_string(pattern, "Regex", NULL), *text = zp_json_get_string(pattern, "String", NULL);
  const char *content = zp_json_get_string(step, "content", NULL), *find = regex ? regex : text, *error;
  if (!find || !content) return malformed(r, "a `Replace` has no pattern or no content");
  into->text = zp_strdup(r->t->arena, content);
  into->len = strlen(content);
  return splitter_init(&into->pattern, r->t->arena, find, strlen(find), !regex, &error) ||
         malformed(r, zp_format(r->t->arena, "pattern `%s`: %s", find, error));
}

static bool read_step(reader *r, const zp_json *step, const char *type, normal_step *into) {
  if (is_form(type)) {
    into->kind = TO_FORM;
    into->form = zp_strdup(r->t->arena, type);
  } else if (strcmp(type, "Lowercase") == 0) {
    into->kind = TO_LOWER;
  } else if (strcmp(type, "Prepend") == 0) {
    into->kind = PREPEND;
    into->text = zp_strdup(r->t->arena, zp_json_get_string(step, "prepend", ""));
    into->len = strlen(into->text);
  } else if (strcmp(type, "Replace") == 0) {
    into->kind = REPLACE;
    return read_replace(r, step, into);
  } else if (strcmp(type, "Strip") == 0) {
    into->kind = STRIP;
    into->left = zp_json_get_bool(step, "strip_left", false);
    into->right = zp_json_get_bool(step, "strip_right", false);
  } else if (strcmp(type, "Precompiled") == 0) {
    into->kind = BY_CHARSMAP;
    const char *map = zp_json_get_string(step, "precompiled_charsmap", "");
    return charsmap_read(&into->map, r->t->arena, map) ||
           malformed(r, "`precompiled_charsmap` is none of SentencePiece");
  } else {
    return refuse(r, name_in(r, "a normalizer (`%s`)", type));
  }
  return true;
}

/* Several steps of ours. Accents go with the capitals unless the file says otherwise. */
static bool read_bert(reader *r, const zp_json *step) {
  bool lower = zp_json_get_bool(step, "lowercase", true), strip = zp_json_get_bool(step, "strip_accents", lower);
  const struct {
    bool wanted;
    normal_step step;
  } steps[] = {{zp_json_get_bool(step, "clean_text", true), {.kind = CLEAN}},
               {zp_json_get_bool(step, "handle_chinese_chars", true), {.kind = SEPARATE}},
               {strip, {.kind = TO_FORM, .form = "NFD"}},
               {strip, {.kind = STRIP_ACCENTS}},
               {lower, {.kind = TO_LOWER}}};
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
    if (!steps[i].wanted) continue;
    if (r->t->n_normalizers == MOST_NORMALIZERS) return refuse(r, "more than sixteen normalizers in a row");
    r->t->normalizers[r->t->n_normalizers++] = steps[i].step;
  }
  return true;
}

bool read_normalizer(reader *r, const zp_json *step) {
  zp_tokenizer *t = r->t;
  if (!step || zp_json_is_null(step)) return true;
  const char *type = zp_json_get_string(step, "type", "?");
  if (strcmp(type, "Sequence") == 0) {
    const zp_json *steps = zp_json_get(step, "normalizers");
    for (int i = 0; i < zp_json_count(steps); i++)
      if (!read_normalizer(r, zp_json_at(steps, i))) return false;
    return true;
  }
  if (strcmp(type, "BertNormalizer") == 0) return read_bert(r, step);
  if (t->n_normalizers == MOST_NORMALIZERS) return refuse(r, "more than sixteen normalizers in a row");
  return read_step(r, step, type, &t->normalizers[t->n_normalizers++]);
}

/* ---- words ---- */

static stage *add_stage(reader *r, stage_kind kind) {
  zp_tokenizer *t = r->t;
  if (t->n_stages == MOST_STAGES) return refuse(r, "more than eight splits in a row"), NULL;
  t->stages[t->n_stages].kind = kind;
  return &t->stages[t->n_stages++];
}

bool add_pattern(reader *r, stage_kind kind, const char *pattern, bool literal) {
  const char *error;
  stage *s = add_stage(r, kind);
  if (!s) return false;
  return splitter_init(&s->pattern, r->t->arena, pattern, strlen(pattern), literal, &error) ||
         malformed(r, zp_format(r->t->arena, "pattern `%s`: %s", pattern, error));
}

static bool read_split(reader *r, const zp_json *step) {
  const zp_json *pattern = zp_json_get(step, "pattern");
  const char *regex = zp_json_get_string(pattern, "Regex", NULL), *text = zp_json_get_string(pattern, "String", NULL);
  const char *behavior = zp_json_get_string(step, "behavior", "");
  if (!regex && !text) return malformed(r, "a `Split` has no pattern");
  if (strcmp(behavior, "Isolated") != 0) return refuse(r, name_in(r, "a `Split` with behavior `%s`", behavior));
  return add_pattern(r, ISOLATE, regex ? regex : text,
                     !regex); /* what matches and what does not are alike, so `invert` is, too */
}

/* Where a mark stands before the first word alone, the beginning of the text must still be there. */
static bool may_lose_beginning(const zp_tokenizer *t) {
  for (int i = 0; i < t->n_normalizers; i++) {
    const normal_step *s = &t->normalizers[i];
    if ((s->kind == STRIP && s->left) || (s->kind == REPLACE && s->len == 0)) return true;
  }
  return false;
}

static bool read_mark(reader *r, const zp_json *step) {
  const char *mark = zp_json_get_string(step, "replacement", ""),
             *scheme = zp_json_get_string(step, "prepend_scheme", NULL);
  if (!scheme) scheme = zp_json_get_bool(step, "add_prefix_space", true) ? "always" : "never";
  if (!*mark || strlen(mark) != (size_t)character_bytes((unsigned char)*mark))
    return malformed(r, "`replacement` of `Metaspace` is no character");
  if (strcmp(scheme, "always") != 0 && strcmp(scheme, "first") != 0 && strcmp(scheme, "never") != 0)
    return malformed(r, name_in(r, "`prepend_scheme` `%s` of `Metaspace`", scheme));
  if (*scheme == 'f' && may_lose_beginning(r->t))
    return refuse(r, "`Metaspace` with `first`, and a normalizer that may take the beginning of a text away");
  stage *s = add_stage(r, MARK);
  if (!s) return false;
  s->mark = zp_strdup(r->t->arena, mark);
  s->prepend = *scheme == 'a' ? ALWAYS : *scheme == 'f' ? FIRST : NEVER;
  s->split = zp_json_get_bool(step, "split", true);
  return true;
}

bool read_words(reader *r, const zp_json *step) {
  if (!step || zp_json_is_null(step)) return true;
  const char *type = zp_json_get_string(step, "type", "");
  if (strcmp(type, "Sequence") == 0) {
    const zp_json *steps = zp_json_get(step, "pretokenizers");
    for (int i = 0; i < zp_json_count(steps); i++)
      if (!read_words(r, zp_json_at(steps, i))) return false;
    return true;
  }
  if (r->byte_level) return refuse(r, name_in(r, "`%s` after `ByteLevel`", type));
  if (strcmp(type, "Split") == 0) return read_split(r, step);
  if (strcmp(type, "Metaspace") == 0) return read_mark(r, step);
  if (strcmp(type, "WhitespaceSplit") == 0) return add_pattern(r, REMOVE, space_pattern, false);
  if (strcmp(type, "BertPreTokenizer") == 0)
    return add_pattern(r, REMOVE, space_pattern, false) && add_pattern(r, ISOLATE, punctuation_pattern, false);
  if (strcmp(type, "Digits") == 0)
    return add_pattern(r, ISOLATE, zp_json_get_bool(step, "individual_digits", false) ? "\\p{N}" : "\\p{N}+", false);
  if (strcmp(type, "ByteLevel") != 0) return refuse(r, name_in(r, "`pre_tokenizer` has a step `%s`", type));
  if (zp_json_get_bool(step, "add_prefix_space", true))
    return refuse(r, "a space before every text (`add_prefix_space`)");
  r->byte_level = true;
  return !zp_json_get_bool(step, "use_regex", true) || add_pattern(r, ISOLATE, gpt2_pattern, false);
}
