/* SPDX-License-Identifier: Apache-2.0 */
/* Span corruption (Raffel et al., arXiv 1910.10683, sections 3.1.4 and 3.3.4), for an encoder and a decoder.
 *
 * A sample of n tokens loses round(rate n) of them, at least one and at most n - 1, in round(of them / mean) spans, at
 * least one and not more than tokens are left. What is cut out and what is left are each divided into as many parts as
 * there are spans, none of them empty, every such division alike; they take turns, beginning with what is left. The
 * encoder reads what is left with a sentinel in the place of every span, the first one `sentinel`, the next ones
 * counting down, and the end token; the labels are each sentinel with its span after it, and the end token; the
 * decoder reads `start` and the labels before the last. So for a sample of n there are
 *
 *   source: n - cut + spans + 1        labels: cut + spans + 1
 *
 * positions, after which tokens are 0 and labels -1, and a sample is as long as both have room for: of 512 and 114
 * positions with rate 0.15 and mean 3 it has 568 tokens. A sample of one token is cut out whole.
 *
 * A division of m tokens into k parts is where k - 1 of the m - 1 places between them lie: the first k - 1 entries of a
 * permutation keyed with the seed and the number of the sample in the run. So a sample that comes again is cut anew,
 * and every layout cuts it alike. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "data.h"
#include "state.h"

enum { PADDING = 0, NO_LABEL = -1 };
/* Keys of the two divisions, apart from that of masks and from the order of samples, which may have the same seed. */
#define CUT_OUT UINT64_C(0x7370616e73000000)
#define LEFT UINT64_C(0x7370616e73000001)

int64_t zpr_span_noise(const zpr_span_rule *rule, int64_t n) {
  assert(rule->rate > 0 && n >= 1);
  int64_t cut = llround(rule->rate * (double)n), most = n > 1 ? n - 1 : 1;
  return cut < 1 ? 1 : cut > most ? most : cut;
}

int64_t zpr_span_count(const zpr_span_rule *rule, int64_t n) {
  int64_t cut = zpr_span_noise(rule, n), spans = llround((double)cut / rule->mean);
  if (spans > n - cut) spans = n - cut;
  if (spans > cut) spans = cut;
  return spans < 1 ? 1 : spans;
}

int64_t zpr_span_labels(const zpr_span_rule *rule, int64_t n) {
  return zpr_span_noise(rule, n) + zpr_span_count(rule, n) + 1;
}

static int64_t source_tokens(const zpr_span_rule *rule, int64_t n) {
  return n - zpr_span_noise(rule, n) + zpr_span_count(rule, n) + 1;
}

/* Neither length falls where n grows by one: at most one token more is cut out. */
static int64_t longest(const zpr_span_rule *rule, int64_t source_room, int64_t target_room) {
  int64_t n = 0;
  while (source_tokens(rule, n + 1) <= source_room && zpr_span_labels(rule, n + 1) <= target_room) n++;
  return n;
}

static int find(const zpr_program *p, const char *name) {
  for (int i = 0; i < p->n_named; i++)
    if (strcmp(p->named[i].name, name) == 0) return i;
  return -1;
}

bool zpr_spans_open(zpr *c, const zpr_span_rule *rule, zpr_spans *spans, zpr_error *error) {
  const zpr_program *p = c->program;
  *spans = (zpr_spans){.rule = *rule,
                       .source = find(p, "source"),
                       .target = find(p, "target"),
                       .labels = find(p, "labels"),
                       .lengths = find(p, "lengths")};
  assert(spans->source >= 0 && spans->target >= 0 && spans->labels >= 0); /* the compiler has looked */
  spans->source_room = p->named[spans->source].elements;
  spans->target_room = p->named[spans->target].elements;
  assert(p->named[spans->labels].elements == spans->target_room);
  spans->length = longest(rule, spans->source_room, spans->target_room);
  int64_t sentinels = spans->length > 0 ? zpr_span_count(rule, spans->length) : 0;
  if (spans->length < 2)
    zpr_error_set(error, "Z0804", "spans: %lld and %lld positions have no room for a sample of two tokens",
                  (long long)spans->source_room, (long long)spans->target_room);
  else if (rule->sentinel - sentinels + 1 <= rule->eos && rule->eos <= rule->sentinel)
    zpr_error_set(error, "Z0804",
                  "spans: samples of %lld tokens have %lld spans, whose sentinels from %lld down reach %s",
                  (long long)spans->length, (long long)sentinels, (long long)rule->sentinel, "the end token");
  else if (rule->sentinel - sentinels + 1 < 0)
    zpr_error_set(error, "Z0804",
                  "spans: samples of %lld tokens have %lld spans, whose sentinels from %lld down reach %s",
                  (long long)spans->length, (long long)sentinels, (long long)rule->sentinel, "below 0");
  if (error->code[0]) return false;
  spans->cuts = zpr_alloc(c, 2 * (size_t)spans->length, 1);
  return true;
}

void zpr_spans_close(zpr_spans *spans) {
  free(spans->cuts);
  spans->cuts = NULL;
}

/* ends[i]: a part ends with token i. */
static void divide(uint64_t key, int64_t n, int64_t tokens, int64_t parts, unsigned char *ends) {
  memset(ends, 0, (size_t)tokens);
  for (int64_t i = 0; i < parts - 1; i++) ends[zpr_permute(key, (uint64_t)n, tokens - 1, i)] = 1;
  if (tokens > 0) ends[tokens - 1] = 1;
}

bool zpr_spans_make(const zpr_spans *s, int64_t n, const int32_t *tokens, int64_t length, const zpr_span_places *to,
                    zpr_error *error) {
  const zpr_span_rule *rule = &s->rule;
  assert(length >= 1 && length <= s->length);
  int64_t cut = zpr_span_noise(rule, length), spans = zpr_span_count(rule, length), left = length - cut;
  unsigned char *cut_ends = s->cuts, *left_ends = s->cuts + cut;
  for (int64_t i = 0; i < length; i++)
    if (tokens[i] <= rule->sentinel && tokens[i] > rule->sentinel - spans) {
      zpr_error_set(error, "Z0803", "sample %lld of the data has token %lld, which is the sentinel of a span",
                    (long long)n, (long long)tokens[i]);
      return false;
    }
  divide(rule->seed ^ CUT_OUT, n, cut, spans, cut_ends);
  divide(rule->seed ^ LEFT, n, left, spans, left_ends);
  int64_t at = 0, in_left = 0, in_cut = 0, in = 0, out = 0;
  for (int64_t span = 0; span < spans; span++) {
    bool more = left > 0;
    for (; more; more = !left_ends[in_left++]) to->source[in++] = tokens[at++];
    to->source[in++] = to->labels[out++] = (int32_t)(rule->sentinel - span);
    for (more = true; more; more = !cut_ends[in_cut++]) to->labels[out++] = tokens[at++];
  }
  assert(at == length && in_cut == cut && in_left == left);
  to->source[in++] = to->labels[out++] = (int32_t)rule->eos;
  assert(in <= s->source_room && out <= s->target_room);
  if (to->length) *to->length = (int32_t)in;
  for (int64_t i = in; i < s->source_room; i++) to->source[i] = PADDING;
  for (int64_t i = 0; i < s->target_room; i++)
    to->target[i] = i == 0 ? (int32_t)rule->start : i < out ? to->labels[i - 1] : PADDING;
  for (int64_t i = out; i < s->target_room; i++) to->labels[i] = NO_LABEL;
  return true;
}
