/* SPDX-License-Identifier: Apache-2.0 */
/* zplan data pairs: texts as BERT was pretrained on them (Devlin et al., arXiv 1810.04805, section 3.1 and appendix
 * A.2):
 * `[CLS] A [SEP] B [SEP]`, where B follows A or begins anywhere in another document, and some tokens are masked. Texts
 * have a sentence a line and an empty line between documents; a file begins a document.
 *
 * Every document is cut into stretches of sentences as long as a sample, one in ten of a shorter length that is drawn.
 * A is some of the first sentences of a stretch, at least one. Half of the time, and where A is all of it, B is drawn:
 * from a sentence of another document on, and the sentences that A left are the next stretch's. What is too long loses
 * tokens of the longer part, at its beginning or its end. Then max(1, 15 % to the nearest) of the tokens, but of [CLS]
 * and [SEP], are labels: the model reads [MASK] (8 of 10), a random token (1 of 10) or what was there. All is drawn
 * from --seed, and the samples stand in the order of the documents.
 *
 * --unmasked: the same pairs without masks, and all tokens but these are labels; the trainer masks some of them in
 * every pass over the data (runtime/data/data_masked.c). */
#include "make_data_internal.h"
#include <zplan/philox.h>

#include <math.h>
#include <stdio.h>

enum { SHORTEST = 8, MOST_LENGTH = 1 << 20, MOST_ELEMENTS = 1 << 30, NO_LABEL = -1 };

/* Places of tokens in the texts, or of sentences among all. */
typedef struct range {
  int begin, end;
} range;

typedef struct pairs {
  zp_data_job *job;
  zp_arena *arena;
  zp_marks marks;
  int length, room; /* of a sample; of it for A and B */
  uint64_t seed, drawn;
  zp_ids ids; /* all tokens of the texts */
  ZP_VEC(range) sentences, documents;
  bool begins;                                  /* the next sentence begins a document */
  zp_ids tokens, types, labels, lengths, other; /* the arrays; other: B was drawn */
  zp_ids places;                                /* of tokens that may be masked */
} pairs;

/* A whole number below n, the next one of the seed. */
static int below(pairs *p, int n) {
  const uint32_t key[2] = {(uint32_t)p->seed, (uint32_t)(p->seed >> 32)},
                 counter[4] = {(uint32_t)p->drawn, (uint32_t)(p->drawn >> 32), 0x70616972, 0};
  uint32_t word[4];
  p->drawn++;
  zp_philox4x32(key, counter, word);
  return (int)((uint64_t)word[0] * (uint64_t)n >> 32);
}

static int tokens_of(range r) { return r.end - r.begin; }

/* ---- texts ---- */

static bool add_ids(void *user, const int32_t *ids, int n) {
  pairs *p = user;
  for (int i = 0; i < n; i++) zp_push(p->arena, &p->ids, ids[i]);
  return p->ids.len < MOST_ELEMENTS;
}

static bool too_much(pairs *p, const char *what) {
  zp_diag *d = zp_report(p->job->diags, ZP_Z0805, ZP_NO_SPAN, "%s are more than %d", what, MOST_ELEMENTS);
  zp_diag_help(d, "make several folders of fewer texts");
  return false;
}

static bool add_sentence(pairs *p, const char *path, const char *text, size_t len) {
  const char *error = NULL;
  int begin = p->ids.len;
  bool ok = true;
  if (p->marks.tokenizer)
    ok = zp_tokenize(p->marks.tokenizer, text, len, add_ids, p, &error);
  else
    for (size_t i = 0; i < len && ok; i++) ok = add_ids(p, &(int32_t){(unsigned char)text[i]}, 1);
  if (error) zp_report(p->job->diags, ZP_Z0808, ZP_NO_SPAN, "%s: %s", path, error);
  if (!ok) return !error ? too_much(p, "tokens of the texts") : false;
  if (p->ids.len == begin) return true;
  if (p->begins) zp_push(p->arena, &p->documents, ((range){p->sentences.len, p->sentences.len}));
  p->begins = false;
  zp_push(p->arena, &p->sentences, ((range){begin, p->ids.len}));
  p->documents.data[p->documents.len - 1].end = p->sentences.len;
  return true;
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

static bool read_file(pairs *p, const char *path) {
  const char *error = NULL;
  size_t len;
  const char *text = zp_read_input(p->arena, path, &len, &error);
  if (!text) return zp_report(p->job->diags, ZP_Z0801, ZP_NO_SPAN, "%s", error), false;
  p->begins = true;
  for (size_t at = 0, n; at < len; at += n + 1) {
    const char *line = memchr(text + at, '\n', len - at);
    n = line ? (size_t)(line - text) - at : len - at;
    size_t first = 0, last = n;
    while (first < last && is_blank(text[at + first])) first++;
    while (last > first && is_blank(text[at + last - 1])) last--;
    if (first == last) p->begins = true;
    if (first < last && !add_sentence(p, path, text + at + first, last - first)) return false;
  }
  return true;
}

/* ---- samples ---- */

static void put(pairs *p, int32_t id, int32_t type, bool may_mask) {
  if (may_mask) zp_push(p->arena, &p->places, p->tokens.len);
  zp_push(p->arena, &p->tokens, id);
  zp_push(p->arena, &p->types, type);
  zp_push(p->arena, &p->labels, may_mask && p->job->unmasked ? id : NO_LABEL);
}

static void put_part(pairs *p, range part, int32_t type) {
  for (int i = part.begin; i < part.end; i++) put(p, p->ids.data[i], type, true);
  put(p, p->marks.sep, type, false);
}

static int32_t instead(pairs *p, int32_t token) {
  int kind = below(p, 10);
  if (kind < 8) return p->marks.mask;
  return kind == 8 ? below(p, (int)zp_marks_vocabulary(&p->marks)) : token;
}

/* What masks draw is drawn without them, too: so the pairs are the same. */
static void mask(pairs *p, int used) {
  int n = (int)lround(0.15 * used);
  if (n < 1) n = 1;
  if (n > p->places.len) n = p->places.len;
  for (int i = 0; i < n; i++) {
    int k = i + below(p, p->places.len - i), at = p->places.data[k];
    p->places.data[k] = p->places.data[i];
    int32_t read = instead(p, p->tokens.data[at]);
    p->labels.data[at] = p->tokens.data[at];
    if (!p->job->unmasked) p->tokens.data[at] = read;
  }
}

/* Until both fit, the longer part loses a token. */
static void shorten(pairs *p, range *a, range *b) {
  while (tokens_of(*a) + tokens_of(*b) > p->room) {
    range *longer = tokens_of(*a) > tokens_of(*b) ? a : b;
    if (below(p, 2))
      longer->begin++;
    else
      longer->end--;
  }
}

static bool add_sample(pairs *p, range a, range b, bool other) {
  if ((int64_t)(p->lengths.len + 1) * p->length > MOST_ELEMENTS) return too_much(p, "tokens of the samples");
  shorten(p, &a, &b);
  int used = tokens_of(a) + tokens_of(b) + 3;
  p->places.len = 0;
  put(p, p->marks.cls, 0, false);
  put_part(p, a, 0);
  put_part(p, b, 1);
  mask(p, used);
  for (int i = used; i < p->length; i++) put(p, 0, 0, false);
  zp_push(p->arena, &p->lengths, used);
  zp_push(p->arena, &p->other, other);
  return true;
}

/* Tokens of the sentences [first, last). Those of a document lie side by side. */
static range part_of(const pairs *p, int first, int last) {
  return (range){p->sentences.data[first].begin, p->sentences.data[last - 1].end};
}

/* Sentences of a document from `first` on, until there are as many tokens. */
static int stretch(const pairs *p, range document, int first, int target) {
  int last = first + 1;
  while (last < document.end && tokens_of(part_of(p, first, last)) < target) last++;
  return last;
}

static range drawn_part(pairs *p, int document, int target) {
  int other = below(p, p->documents.len - 1);
  range d = p->documents.data[other + (other >= document)];
  int first = d.begin + below(p, d.end - d.begin);
  return part_of(p, first, stretch(p, d, first, target));
}

static bool cut_document(pairs *p, int document) {
  range d = p->documents.data[document];
  for (int first = d.begin, last; first < d.end; first = last) {
    int target = below(p, 10) == 0 ? 2 + below(p, p->room - 1) : p->room;
    last = stretch(p, d, first, target);
    int sentences = last - first, middle = first + (sentences > 1 ? 1 + below(p, sentences - 1) : 1);
    bool other = sentences == 1 || below(p, 2) == 0;
    range a = part_of(p, first, middle);
    range b = other ? drawn_part(p, document, target - tokens_of(a)) : part_of(p, middle, last);
    if (other) last = middle;
    if (!add_sample(p, a, b, other)) return false;
  }
  return true;
}

static bool make_samples(pairs *p) {
  int64_t copies = p->job->copies ? p->job->copies : 1;
  if (p->documents.len < 2) {
    zp_diag *d = zp_report(p->job->diags, ZP_Z0804, ZP_NO_SPAN, "%s",
                           p->documents.len ? "there is one document, and second sentences are drawn from others"
                                            : "there is no sentence");
    zp_diag_help(d, "texts have a sentence a line and an empty line between documents");
    return false;
  }
  for (int64_t copy = 0; copy < copies; copy++)
    for (int i = 0; i < p->documents.len; i++)
      if (!cut_document(p, i)) return false;
  return true;
}

/* ---- the command ---- */

static bool write_arrays(pairs *p) {
  zp_out_folder *out = zp_out_open(p->arena, p->job->diags, p->job->output);
  int64_t n = p->lengths.len;
  if (!out) return false;
  bool good = zp_npy_write(out, "tokens", "i4", n, p->length, p->tokens.data) &&
              zp_npy_write(out, "types", "i4", n, p->length, p->types.data) &&
              zp_npy_write(out, "labels", "i4", n, p->length, p->labels.data) &&
              zp_npy_write(out, "lengths", "i4", n, 0, p->lengths.data) &&
              zp_npy_write(out, "random_next", "i4", n, 0, p->other.data);
  return zp_out_close(out, good);
}

static void tell(const pairs *p) {
  const zp_data_job *o = p->job;
  int other = 0;
  for (int i = 0; i < p->other.len; i++) other += p->other.data[i];
  zp_say_lines(
      stdout,
      "%s: %d samples of %d tokens from %d sentences of %d documents, %d with a second part that was drawn (%s, "
      "vocabulary %lld)\n",
      o->output, p->lengths.len, p->length, p->sentences.len, p->documents.len, other,
      o->tokenizer ? o->tokenizer : "bytes", (long long)zp_marks_vocabulary(&p->marks));
}

static bool check_mask(pairs *p) {
  if (p->marks.mask >= 0) return true;
  zp_diag *d = zp_report(p->job->diags, ZP_Z0806, ZP_NO_SPAN, "%s has no token to mask with", p->job->tokenizer);
  zp_diag_help(d, "it takes the added token [MASK], or <mask>");
  return false;
}

zp_data_result zp_data_pairs(zp_data_job *job) {
  const zp_data_job *o = job;
  pairs p = {.job = job, .arena = job->arena, .seed = (uint64_t)o->seed};
  if (o->files.len < 2 || !o->output || o->length == 0)
    return zp_data_usage(job, "usage: zplan data pairs TEXTS... -o FOLDER --length N [--tokenizer FILE] [--seed N] "
                              "[--copies N] [--unmasked]");
  if (o->eod || o->stride) return zp_data_usage(job, "%s is not for pairs of sentences", o->eod ? "--eod" : "--stride");
  if (o->length < SHORTEST || o->length > MOST_LENGTH)
    return zp_data_usage(job, "--length is %d to %d tokens", SHORTEST, MOST_LENGTH);
  p.length = (int)o->length;
  p.room = p.length - 3;
  bool ok = zp_marks_open(job, &p.marks) && check_mask(&p);
  for (int i = 1; ok && i < o->files.len; i++) ok = read_file(&p, o->files.data[i]);
  ok = ok && make_samples(&p) && write_arrays(&p);
  if (ok) tell(&p);
  zp_marks_close(&p.marks);
  if (ok) return ZP_DATA_MADE;
  return ZP_DATA_FAILED;
}
