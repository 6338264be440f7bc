/* SPDX-License-Identifier: Apache-2.0 */
/* zplan data squad: questions and answers in the format of SQuAD (Rajpurkar et al., arXiv 1606.05250; version 2, arXiv
 * 1806.03822) as arrays for span extraction, a sample `[CLS] question [SEP] context [SEP]` with the first and the last
 * position of the answer.
 *
 * A question is cut at a quarter of the length. A context that is longer than what is left is read in windows, each
 * `stride` tokens after the one before; every window is a sample, and where it does not hold the whole answer, or
 * there is none, both labels are 0, the position of [CLS], as in BERT's own preparation. The first answer of a question
 * counts that stands in the context where the file says; a question none of whose answers does is left out and told. */
#include "make_data_internal.h"

#include <stdio.h>
#include <zplan/json.h>

enum { SHORTEST = 8, MOST_LENGTH = 1 << 20, TOLD = 8 };

typedef zp_ids id_list;

typedef struct squad {
  zp_data_job *job;
  zp_arena *arena;
  const char *path; /* of the file being read */
  zp_marks marks;
  int64_t length, stride; /* stride 0: half of a window */
  zp_token_places context;
  const char *text;                          /* of the context */
  id_list input, types, lengths, start, end; /* the arrays */
  int64_t questions, answered, cut, windows;
  zp_strings lost; /* questions whose answer is not where the file says */
} squad;

static bool malformed(squad *s, const char *what) {
  zp_diag *d = zp_report(s->job->diags, ZP_Z0809, ZP_NO_SPAN, "%s: %s", s->path, what);
  zp_diag_help(
      d, "{\"data\": [{\"paragraphs\": [{\"context\": \"...\", \"qas\": [{\"id\": \"...\", \"question\": \"...\", "
         "\"answers\": [{\"text\": \"...\", \"answer_start\": 0}]}]}]}]}");
  return false;
}

/* ---- tokens ---- */

typedef struct adding {
  zp_arena *arena;
  zp_token_places *to;
} adding;

static bool add_ids(void *user, const int32_t *ids, int n) {
  adding *a = user;
  for (int i = 0; i < n; i++) zp_push(a->arena, &a->to->ids, ids[i]);
  return true;
}

/* Where tokens of a tokenizer that changes nothing stand: their texts, one after the other, are the text itself. */
static bool find_places(squad *s, const char *text, size_t len, zp_token_places *t) {
  zp_buf back = zp_buf_new(s->arena);
  for (int i = 0; i < t->ids.len; i++) {
    zp_push(s->arena, &t->begin, (int32_t)back.len);
    zp_decode(s->marks.decoder, t->ids.data[i], &back);
    zp_push(s->arena, &t->end, (int32_t)back.len);
  }
  if (back.len == len && memcmp(back.data, text, len) == 0) return true;
  zp_diag *d = zp_report(s->job->diags, ZP_Z0807, ZP_NO_SPAN,
                         "%s changes texts, so the places of answers are not known", s->job->tokenizer);
  zp_diag_help(d, "take BERT's WordPiece or a byte-level BPE without normalizers, or leave out --tokenizer: then bytes "
                  "are tokens");
  return false;
}

static bool tokenize(squad *s, const char *text, zp_token_places *t) {
  size_t len = strlen(text);
  *t = (zp_token_places){0};
  if (len > INT32_MAX / 2) return malformed(s, "a text is longer than 1 GiB");
  if (!s->marks.tokenizer) {
    for (size_t i = 0; i < len; i++) {
      zp_push(s->arena, &t->ids, (unsigned char)text[i]);
      zp_push(s->arena, &t->begin, (int32_t)i);
      zp_push(s->arena, &t->end, (int32_t)i + 1);
    }
    return true;
  }
  const char *error = NULL;
  adding a = {s->arena, t};
  if (zp_tokenizer_has_places(s->marks.tokenizer)) {
    if (zp_tokenize_places(s->marks.tokenizer, text, len, t, &error)) return true;
  } else if (zp_tokenize(s->marks.tokenizer, text, len, add_ids, &a, &error)) {
    return find_places(s, text, len, t);
  }
  zp_report(s->job->diags, ZP_Z0808, ZP_NO_SPAN, "%s: %s", s->path, error ? error : "not tokenized");
  return false;
}

/* ---- samples ---- */

/* The tokens [first, last] of the context that hold its bytes [begin, end). */
typedef struct span {
  int first, last; /* first -1: there is none */
} span;

static span tokens_of(const squad *s, size_t begin, size_t end) {
  span found = {-1, -1};
  for (int i = 0; i < s->context.ids.len; i++) {
    size_t from = (size_t)s->context.begin.data[i], to = (size_t)s->context.end.data[i];
    if (from >= end || to <= begin) continue;
    if (found.first < 0) found.first = i;
    found.last = i;
  }
  return found;
}

static void put(squad *s, int32_t id, int32_t type) {
  zp_push(s->arena, &s->input, id);
  zp_push(s->arena, &s->types, type);
}

/* Tokens [begin, end) of the context after the first n of the question. */
static void add_window(squad *s, const zp_token_places *question, int n, int begin, int end, span answer) {
  bool whole = answer.first >= begin && answer.last < end;
  int32_t used = n + end - begin + 3, before = n + 2 - begin;
  put(s, s->marks.cls, 0);
  for (int i = 0; i < n; i++) put(s, question->ids.data[i], 0);
  put(s, s->marks.sep, 0);
  for (int i = begin; i < end; i++) put(s, s->context.ids.data[i], 1);
  put(s, s->marks.sep, 1);
  for (int64_t i = used; i < s->length; i++) put(s, 0, 0);
  zp_push(s->arena, &s->lengths, used);
  zp_push(s->arena, &s->start, whole ? answer.first + before : 0);
  zp_push(s->arena, &s->end, whole ? answer.last + before : 0);
  s->windows += whole;
}

static void add_question(squad *s, const zp_token_places *question, span answer) {
  int n = question->ids.len, all = s->context.ids.len;
  if (n > s->length / 4) n = (int)(s->length / 4), s->cut++;
  int room = (int)s->length - n - 3, step = s->stride > 0 && s->stride < room ? (int)s->stride : (room + 1) / 2;
  if (s->stride >= room) step = room;
  s->answered += answer.first >= 0;
  for (int begin = 0;; begin += step) {
    int end = begin + room < all ? begin + room : all;
    add_window(s, question, n, begin, end, answer);
    if (end == all) break;
  }
}

/* ---- the file ---- */

/* Bytes of the first n code points; after the text's end: -1. */
static int64_t bytes_of(const char *text, int64_t n) {
  const char *at = text;
  for (; n > 0; n--) {
    if (!*at) return -1;
    at++;
    while (((unsigned char)*at & 0xC0) == 0x80) at++;
  }
  return at - text;
}

/* False: no answer stands where it is said to. */
static bool find_answer(squad *s, const zp_json *answers, span *found) {
  for (int i = 0; i < zp_json_count(answers); i++) {
    const char *text = zp_json_get_string(zp_json_at(answers, i), "text", "");
    int64_t points = zp_json_get_int(zp_json_at(answers, i), "answer_start", -1);
    int64_t begin = points < 0 ? -1 : bytes_of(s->text, points);
    size_t len = strlen(text);
    if (begin < 0 || len == 0 || strncmp(s->text + begin, text, len) != 0) continue;
    *found = tokens_of(s, (size_t)begin, (size_t)begin + len);
    return true;
  }
  return false;
}

static bool read_question(squad *s, const zp_json *qa) {
  const char *question = zp_json_get_string(qa, "question", NULL), *id = zp_json_get_string(qa, "id", "without an id");
  const zp_json *answers = zp_json_get(qa, "answers");
  span answer = {-1, -1};
  zp_token_places t;
  if (!question) return malformed(s, "a member of `qas` has no `question`");
  if (!zp_json_is_array(answers)) return malformed(s, zp_format(s->arena, "question %s has no list `answers`", id));
  s->questions++;
  bool none = zp_json_get_bool(qa, "is_impossible", false) || zp_json_count(answers) == 0;
  if (!none && !find_answer(s, answers, &answer)) {
    zp_push(s->arena, &s->lost, zp_strdup(s->arena, id));
    return true;
  }
  if (!tokenize(s, question, &t)) return false;
  add_question(s, &t, answer);
  return true;
}

static bool read_paragraph(squad *s, const zp_json *paragraph) {
  const zp_json *qas = zp_json_get(paragraph, "qas");
  s->text = zp_json_get_string(paragraph, "context", NULL);
  if (!s->text) return malformed(s, "a paragraph has no `context`");
  if (!zp_json_is_array(qas)) return malformed(s, "a paragraph has no list `qas`");
  if (!tokenize(s, s->text, &s->context)) return false;
  for (int i = 0; i < zp_json_count(qas); i++)
    if (!read_question(s, zp_json_at(qas, i))) return false;
  return true;
}

static bool read_articles(squad *s, const zp_json *root) {
  const zp_json *data = zp_json_get(root, "data");
  if (!zp_json_is_array(data)) return malformed(s, "it has no list `data`");
  for (int i = 0; i < zp_json_count(data); i++) {
    const zp_json *paragraphs = zp_json_get(zp_json_at(data, i), "paragraphs");
    if (!zp_json_is_array(paragraphs)) return malformed(s, "a member of `data` has no list `paragraphs`");
    for (int k = 0; k < zp_json_count(paragraphs); k++)
      if (!read_paragraph(s, zp_json_at(paragraphs, k))) return false;
  }
  return true;
}

static bool read_file(squad *s, const char *path) {
  const char *error = NULL;
  size_t len;
  s->path = path;
  const char *text = zp_read_input(s->arena, path, &len, &error);
  if (!text) {
    zp_report(s->job->diags, ZP_Z0801, ZP_NO_SPAN, "%s", error);
    return false;
  }
  zp_json *root = zp_json_parse(s->arena, text, len, &error);
  if (!root) return malformed(s, error);
  bool ok = read_articles(s, root);
  zp_json_free(root);
  return ok;
}

/* ---- the arrays ---- */

static bool write_array(squad *s, zp_out_folder *out, const char *name, const id_list *list, bool whole) {
  return zp_npy_write(out, name, "i4", s->lengths.len, whole ? s->length : 0, list->data);
}

static bool write_arrays(squad *s) {
  zp_out_folder *out = zp_out_open(s->arena, s->job->diags, s->job->output);
  if (!out) return false;
  bool good = write_array(s, out, "tokens", &s->input, true) && write_array(s, out, "types", &s->types, true) &&
              write_array(s, out, "lengths", &s->lengths, false) && write_array(s, out, "start", &s->start, false) &&
              write_array(s, out, "end", &s->end, false);
  return zp_out_close(out, good);
}

static void tell(const squad *s) {
  const zp_data_job *o = s->job;
  int64_t vocabulary = zp_marks_vocabulary(&s->marks);
  zp_say_lines(
      stdout,
      "%s: %d samples of %lld tokens from %lld questions, %lld with an answer, which %lld samples hold (%s, vocabulary "
      "%lld)\n",
      o->output, s->lengths.len, (long long)s->length, (long long)s->questions, (long long)s->answered,
      (long long)s->windows, o->tokenizer ? o->tokenizer : "bytes", (long long)vocabulary);
  if (s->cut > 0)
    zp_say_lines(stderr, "note: %lld questions are cut at %lld tokens\n", (long long)s->cut, (long long)s->length / 4);
  if (s->lost.len == 0) return;
  zp_arena *scratch = zp_arena_new("questions");
  zp_buf ids = zp_buf_new(scratch);
  for (int i = 0; i < s->lost.len && i < TOLD; i++) zp_buf_printf(&ids, " %s", s->lost.data[i]);
  zp_say_line(stderr, "warning: %d questions are left out, whose answers are not where the file says:%s%s", s->lost.len,
              ids.data, s->lost.len > TOLD ? " ..." : "");
  zp_arena_free(scratch);
}

zp_data_result zp_data_squad(zp_data_job *job) {
  const zp_data_job *o = job;
  squad s = {.job = job, .arena = job->arena, .length = o->length, .stride = o->stride};
  if (o->files.len < 2 || !o->output || o->length == 0)
    return zp_data_usage(
        job, "usage: zplan data squad FILE.json... -o FOLDER --length N [--stride N] [--tokenizer FILE.json]");
  if (o->eod) return zp_data_usage(job, "--eod is for texts, not for questions");
  if (o->length < SHORTEST || o->length > MOST_LENGTH)
    return zp_data_usage(job, "--length is %d to %d tokens", SHORTEST, MOST_LENGTH);
  bool ok = zp_marks_open(job, &s.marks);
  for (int i = 1; ok && i < o->files.len; i++) ok = read_file(&s, o->files.data[i]);
  if (ok && s.lengths.len == 0) {
    s.path = o->files.data[1];
    ok = malformed(&s, "there is no question whose answer is where the file says");
  }
  ok = ok && write_arrays(&s);
  if (ok) tell(&s);
  zp_marks_close(&s.marks);
  if (ok) return ZP_DATA_MADE;
  return ZP_DATA_FAILED;
}
