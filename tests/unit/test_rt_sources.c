/* SPDX-License-Identifier: Apache-2.0 */
/* What is made of sources: mixtures by weight, spans that are cut out. */
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "data.h"
#include "folder_testing.h"

TestSuite(sources, .init = make_folder);

static const char *write_text(char path[128], const char *name, const char *text) {
  snprintf(path, 128, "%s/%s", folder, name);
  FILE *f = fopen(path, "wb");
  cr_assert(f && fputs(text, f) >= 0 && fclose(f) == 0);
  return path;
}

/* ---- mixtures ---- */

typedef struct shares {
  int n;
  double weight[5];
} shares;

/* Every source is never more than (k - 1) / 2 samples from its share, its samples come in order without a gap, and
 * what is counted is what came. The bound is that of data_order.c, and 2^-33 of the samples for each rounded share. */
Test(sources, turns_are_those_of_the_weights_at_every_sample) {
  static const shares cases[] = {{1, {2}},
                                 {2, {0.7, 0.3}},
                                 {2, {1, 1}},
                                 {2, {1, 999}},
                                 {3, {1, 1, 1}},
                                 {3, {0.5, 0.2, 0.3}},
                                 {5, {5, 0.01, 3, 1.7, 0.3}}};
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    const shares *s = &cases[k];
    zpr_mix mix = zpr_mix_of(s->n, s->weight);
    int64_t came[5] = {0}, counted[ZPR_MOST_PARTS];
    double all = 0;
    for (int i = 0; i < s->n; i++) all += s->weight[i];
    for (int64_t n = 0; n < 20000; n++) {
      int64_t sample;
      int source = zpr_mix_source(&mix, n, &sample);
      cr_assert_eq(sample, came[source], "sample %lld of the run is sample %lld of source %d, not %lld", (long long)n,
                   (long long)sample, source, (long long)came[source]);
      came[source]++;
      zpr_mix_count(&mix, n + 1, counted);
      for (int i = 0; i < s->n; i++) {
        cr_assert_eq(counted[i], came[i]);
        cr_assert_leq(fabs((double)came[i] - s->weight[i] / all * (double)(n + 1)), 0.5 * (s->n - 1) + 1e-4,
                      "case %zu: %lld of source %d in %lld", k, (long long)came[i], i, (long long)n + 1);
      }
    }
  }
}

Test(sources, seven_and_three_of_every_ten_to_one) {
  zpr_mix mix = zpr_mix_of(2, (double[]){0.7, 0.3});
  int64_t count[ZPR_MOST_PARTS];
  for (int64_t n = 10; n <= 100000; n += 10) {
    zpr_mix_count(&mix, n, count);
    cr_assert(count[0] == n / 10 * 7 && count[1] == n / 10 * 3, "%lld of %lld", (long long)count[0], (long long)n);
  }
  static const char turns[] = "abaabaaaba"; /* a is there when 0.7 n to the nearest grows */
  for (int n = 0; n < 10; n++) {
    int64_t sample;
    cr_expect_eq(zpr_mix_source(&mix, n, &sample), turns[n] - 'a', "sample %d", n);
  }
}

/* Late in a run nothing overflows, and turns are still those of the weights. */
Test(sources, turns_of_large_numbers) {
  zpr_mix mix = zpr_mix_of(2, (double[]){0.25, 0.75});
  int64_t first = INT64_C(1) << 50, count[ZPR_MOST_PARTS], sample;
  zpr_mix_count(&mix, first, count);
  cr_expect(count[0] == first / 4 && count[1] == first / 4 * 3);
  int quarter = 0;
  for (int64_t n = first; n < first + 1000; n++) quarter += zpr_mix_source(&mix, n, &sample) == 0;
  cr_expect_eq(quarter, 250);
}

typedef struct loader {
  zpr c;
  zpr_program program;
  zpr_stage stage;
} loader;

static void open_loader(loader *l, zpr_program program, int64_t bytes) {
  *l = (loader){.stage = {.arena_bytes = bytes}, .program = program};
  l->program.name = "loader";
  l->program.tensor = l->program.pipeline = l->program.data = 1;
  l->program.stages = &l->stage;
  int argc = 0;
  char **argv = NULL;
  zpr_open(&l->c, &l->program, &zpr_default_options, &argc, &argv);
}

static const zpr_program decoder = {
    .batch = 4, .microbatch = 2, .microbatches = 2, .sequence = 3, .vocabulary = 256, .n_inputs = 2};

/* Sources of 5 and of 2 windows, in order: after 20 samples of the run 10 of each, two passes and five. A line of one
 * byte counts one token of three. */
Test(sources, mixed_samples_come_in_the_order_of_their_sources) {
  char a[128], b[128];
  loader l;
  zpr_source parts[] = {{.kind = ZPR_TEXT, .path = write_text(a, "a", "abcdefghijklmnopq")},
                        {.kind = ZPR_LINES, .path = write_text(b, "b", "X\nYYYY\n")}};
  zpr_source source = {.kind = ZPR_MIX, .n_parts = 2, .parts = parts, .weights = (double[]){1, 1}};
  open_loader(&l, decoder, 2 * 4 * 3 * 4);
  zpr_data *data = zpr_data_open(&l.c, &source);
  static const char first[] = "aXdYgXjYmXaYdXgYjXmY"; /* of the samples of the run */
  for (int n = 0; n < 20; n++) {
    if (n % 4 == 0) {
      zpr_data_load(&l.c, data, n);
      cr_expect_float_eq(l.c.token_weight[0], 1.0 / (3 + 1 + 3 + 3), 1e-15);
    }
    cr_expect_eq(zpr_input(&l.c, 0, n % 4 / 2)[n % 2 * 3], first[n], "sample %d", n);
  }
  zpr_passes passes[ZPR_MOST_PARTS];
  cr_expect_eq(zpr_data_passes(data, 20, passes), 2);
  cr_expect(passes[0].samples == 10 && passes[0].passes == 2 && passes[1].samples == 10 && passes[1].passes == 5);
  cr_expect_str_eq(passes[1].kind, "lines");
  zpr_data_identity mixed = zpr_data_identify(data);
  cr_expect(zpr_data_begins_with(data, &mixed));
  mixed.hash++;
  cr_expect_not(zpr_data_begins_with(data, &mixed));
  zpr_data_close(data);
  source.weights = (double[]){1, 2};
  data = zpr_data_open(&l.c, &source);
  mixed.hash--;
  cr_expect_not(zpr_data_begins_with(data, &mixed), "other weights are other data");
  zpr_data_close(data);
  zpr_close(&l.c);
}

/* Tokens 1 to 4, 9 as the end: an empty document, one of two tokens, one of five, which is two samples of three
 * positions, and one that the stream ends. The last label of a document is its end, of a piece what goes on. */
Test(sources, documents_are_samples_and_longer_ones_are_several) {
  static const uint16_t ids[] = {9, 1, 2, 9, 3, 4, 1, 2, 3, 9, 9, 4};
  enum { IDS = sizeof ids / sizeof *ids };
  char path[128];
  loader l;
  int32_t header[256] = {20240520, 1, IDS};
  snprintf(path, sizeof path, "%s/c.bin", folder);
  FILE *f = fopen(path, "wb");
  cr_assert(f && fwrite(header, sizeof header, 1, f) == 1 && fwrite(ids, sizeof ids, 1, f) == 1 && fclose(f) == 0);
  zpr_source source = {.kind = ZPR_DOCUMENTS, .path = path, .end = 9};
  open_loader(&l, decoder, 2 * 4 * 3 * 4);
  zpr_data *data = zpr_data_open(&l.c, &source);
  cr_assert_eq(zpr_data_windows(data), 4);
  zpr_data_load(&l.c, data, 0);
  static const int32_t tokens[4][3] = {{1, 2, 0}, {3, 4, 1}, {2, 3, 0}, {4, 0, 0}};
  static const int32_t labels[4][3] = {{2, 9, -1}, {4, 1, 2}, {3, 9, -1}, {9, -1, -1}};
  for (int i = 0; i < 4; i++)
    for (int k = 0; k < 3; k++) {
      cr_expect_eq(zpr_input(&l.c, 0, i / 2)[i % 2 * 3 + k], tokens[i][k], "token %d of sample %d", k, i);
      cr_expect_eq(zpr_input(&l.c, 1, i / 2)[i % 2 * 3 + k], labels[i][k], "label %d of sample %d", k, i);
    }
  cr_expect_float_eq(l.c.token_weight[0], 1.0 / 8, 1e-15);
  zpr_data_identity was = zpr_data_identify(data);
  zpr_data_close(data);
  source.end = 4;
  data = zpr_data_open(&l.c, &source);
  cr_expect_not(zpr_data_begins_with(data, &was), "another end, other documents");
  zpr_data_close(data);
  source.kind = ZPR_TOKENS;
  data = zpr_data_open(&l.c, &source);
  cr_expect_not(zpr_data_begins_with(data, &was), "a stream is no documents");
  zpr_data_close(data);
  zpr_close(&l.c);
}

Test(sources, a_source_that_is_missing_ends_the_run, .exit_code = 1) {
  char a[128];
  loader l;
  cr_redirect_stderr();
  zpr_source parts[] = {{.kind = ZPR_TEXT, .path = write_text(a, "a", "abcdefghijklmnopq")},
                        {.kind = ZPR_TEXT, .path = "nowhere"}};
  zpr_source source = {.kind = ZPR_MIX, .n_parts = 2, .parts = parts, .weights = (double[]){1, 1}};
  open_loader(&l, decoder, 2 * 4 * 3 * 4);
  zpr_data_open(&l.c, &source);
  cr_assert_fail("a missing source was accepted");
}

/* ---- spans ---- */

enum { ROOM = 512, LABELS = 114, SENTINEL = 32099, LONG = 568 };

static const zpr_span_rule t5 = {.rate = 0.15, .mean = 3, .sentinel = SENTINEL, .eos = 1};
static const zpr_named named[] = {
    {.name = "source", .rank = 1, .shape = {ROOM}, .elements = ROOM, .limit = 32128},
    {.name = "target", .rank = 1, .shape = {LABELS}, .elements = LABELS, .limit = 32128},
    {.name = "labels", .rank = 1, .shape = {LABELS}, .elements = LABELS, .limit = 32128, .labels = true},
    {.name = "lengths", .rank = 0, .shape = {1}, .elements = 1, .least = 1, .limit = ROOM + 1},
};
static const zpr_program encoder_decoder = {.batch = 2,
                                            .microbatch = 1,
                                            .microbatches = 2,
                                            .sequence = ROOM,
                                            .vocabulary = 32128,
                                            .n_named = 4,
                                            .named = named};

/* Published numbers (t5.data.preprocessors, random_spans_helper): 512 positions take samples of 568 tokens and 114
 * labels, of which 85 in 28 spans. */
Test(sources, as_many_tokens_as_the_positions_have_room_for) {
  loader l;
  zpr_spans spans;
  zpr_error error = {0};
  open_loader(&l, encoder_decoder, 4096);
  cr_assert(zpr_spans_open(&l.c, &t5, &spans, &error), "%s", error.text);
  cr_expect_eq(spans.length, LONG);
  cr_expect_eq(zpr_span_noise(&t5, LONG), 85);
  cr_expect_eq(zpr_span_count(&t5, LONG), 28);
  cr_expect_eq(zpr_span_labels(&t5, LONG), LABELS);
  zpr_spans_close(&spans);
  zpr_span_rule low = t5;
  low.sentinel = 26;
  cr_expect_not(zpr_spans_open(&l.c, &low, &spans, &error));
  cr_expect_str_eq(error.code, "Z0804");
  zpr_close(&l.c);
}

Test(sources, one_token_at_least_is_cut_out_and_one_is_left) {
  for (int64_t n = 2; n < 700; n++)
    for (int r = 1; r < 100; r += 7) {
      const zpr_span_rule rule = {.rate = r / 100.0, .mean = 1 + r % 5, .sentinel = 999};
      int64_t cut = zpr_span_noise(&rule, n), spans = zpr_span_count(&rule, n);
      cr_assert(cut >= 1 && cut < n && spans >= 1 && spans <= cut && spans <= n - cut, "%lld of %lld in %lld",
                (long long)cut, (long long)n, (long long)spans);
    }
  cr_expect_eq(zpr_span_noise(&t5, 1), 1);
  cr_expect_eq(zpr_span_count(&t5, 1), 1);
}

typedef struct cut_sample {
  int32_t source[ROOM], target[LABELS], labels[LABELS], length, tokens[LONG];
} cut_sample;

static void cut(const zpr_spans *spans, int64_t n, int64_t length, cut_sample *to) {
  zpr_error error = {0};
  for (int i = 0; i < length; i++) to->tokens[i] = 2 + i;
  zpr_span_places places = {to->source, to->target, to->labels, &to->length};
  cr_assert(zpr_spans_make(spans, n, to->tokens, length, &places, &error), "%s", error.text);
}

/* Puts every span back into its place: that must be the sample. Lengths of the spans that are cut out. */
static int put_back(const cut_sample *s, int64_t length, int lengths[LABELS]) {
  int at = 0, spans = 0;
  for (int i = 0; i < s->length - 1; i++) {
    if (s->source[i] <= SENTINEL - LABELS) {
      cr_assert_eq(s->source[i], s->tokens[at++]);
      continue;
    }
    cr_assert_eq(s->source[i], SENTINEL - spans, "sentinels count down");
    int k = 0;
    while (s->labels[k] != s->source[i]) k++;
    lengths[spans] = 0;
    for (k++; s->labels[k] != SENTINEL - spans - 1 && s->labels[k] != 1; k++, lengths[spans]++)
      cr_assert_eq(s->labels[k], s->tokens[at++]);
    spans++;
  }
  cr_assert_eq(s->source[s->length - 1], 1);
  cr_assert_eq(at, length);
  for (int i = s->length; i < ROOM; i++) cr_assert_eq(s->source[i], 0);
  cr_assert_eq(s->target[0], 0);
  for (int i = 1; i < LABELS; i++) cr_assert_eq(s->target[i], s->labels[i] >= 0 ? s->labels[i - 1] : 0);
  return spans;
}

/* Every division of 85 tokens into 28 parts is alike where the first part has l with C(84 - l, 26) / C(84, 27): counted
 * within five standard deviations. The first token is never cut out, the last always, so fewer in the middle than 85 of
 * 568: 0.1472 of those from 100 to 467, as counted over 4,000 divisions that Python's random.sample drew. */
Test(sources, spans_are_divided_as_every_division_is_alike) {
  enum { SAMPLES = 4000, LENGTHS = 8 };
  loader l;
  zpr_spans spans;
  zpr_error error = {0};
  static cut_sample s;
  int lengths[LABELS], first[LENGTHS] = {0}, last[LENGTHS] = {0}, covered[LONG] = {0};
  open_loader(&l, encoder_decoder, 4096);
  cr_assert(zpr_spans_open(&l.c, &t5, &spans, &error));
  for (int n = 0; n < SAMPLES; n++) {
    cut(&spans, n, LONG, &s);
    cr_assert_eq(put_back(&s, LONG, lengths), 28);
    cr_assert_eq(s.length, ROOM);
    if (lengths[0] < LENGTHS) first[lengths[0]]++;
    if (lengths[27] < LENGTHS) last[lengths[27]]++;
    for (int k = 0; k < LABELS; k++)
      if (s.labels[k] >= 2 && s.labels[k] < 2 + LONG) covered[s.labels[k] - 2]++;
  }
  double p = 27.0 / 84; /* of length 1 */
  for (int k = 1; k < LENGTHS; k++) {
    double bound = 5 * sqrt(p * (1 - p) / SAMPLES);
    cr_expect_float_eq(first[k] / (double)SAMPLES, p, bound, "first span of %d: %d", k, first[k]);
    cr_expect_float_eq(last[k] / (double)SAMPLES, p, bound, "last span of %d: %d", k, last[k]);
    p *= (85.0 - k - 27) / (84 - k);
  }
  cr_expect(covered[0] == 0 && covered[LONG - 1] == SAMPLES);
  double middle = 0;
  for (int i = 100; i < 468; i++) middle += covered[i];
  cr_expect_float_eq(middle / (368.0 * SAMPLES), 0.1472, 0.001);
  zpr_spans_close(&spans);
  zpr_close(&l.c);
}

/* Samples of any length come back whole; another number, and another seed, cut elsewhere; the same cut alike. */
Test(sources, every_length_is_cut_and_put_back) {
  loader l;
  zpr_spans spans, other;
  zpr_error error = {0};
  static cut_sample a, b;
  int lengths[LABELS];
  zpr_span_rule seeded = t5;
  seeded.seed = 7;
  open_loader(&l, encoder_decoder, 4096);
  cr_assert(zpr_spans_open(&l.c, &t5, &spans, &error) && zpr_spans_open(&l.c, &seeded, &other, &error));
  for (int64_t n = 1; n <= LONG; n++) {
    cut(&spans, n, n, &a);
    cr_assert_eq(put_back(&a, n, lengths), zpr_span_count(&t5, n), "%lld tokens", (long long)n);
    cr_assert_eq(a.length, n - zpr_span_noise(&t5, n) + zpr_span_count(&t5, n) + 1);
  }
  cut(&spans, 3, LONG, &a);
  cut(&spans, 3, LONG, &b);
  cr_expect_arr_eq(a.source, b.source, sizeof a.source);
  cut(&spans, 4, LONG, &b);
  cr_expect_arr_neq(a.source, b.source, sizeof a.source);
  cut(&other, 3, LONG, &b);
  cr_expect_arr_neq(a.source, b.source, sizeof a.source);
  a.tokens[5] = SENTINEL;
  zpr_span_places places = {b.source, b.target, b.labels, NULL};
  cr_expect_not(zpr_spans_make(&spans, 0, a.tokens, LONG, &places, &error));
  cr_expect_str_eq(error.code, "Z0803");
  zpr_spans_close(&spans);
  zpr_spans_close(&other);
  zpr_close(&l.c);
}

/* A sample in the arena, from a text: a batch of two has 2 x 114 labels. */
Test(sources, cut_samples_go_where_the_model_reads_them) {
  char path[128], text[2 * LONG + 2] = "";
  loader l;
  for (int i = 0; i < 2 * LONG + 1; i++) text[i] = (char)('a' + i % 26);
  open_loader(&l, encoder_decoder, 4 * 2 * (ROOM + 2 * LABELS + 1));
  zpr_source source = {.kind = ZPR_TEXT, .path = write_text(path, "text", text), .spans = t5};
  zpr_data *data = zpr_data_open(&l.c, &source);
  cr_expect_eq(zpr_data_windows(data), 2);
  cr_expect_eq(zpr_data_length(data), LONG);
  zpr_data_load(&l.c, data, 0);
  cr_expect_float_eq(l.c.token_weight[0], 1.0 / (2 * LABELS), 1e-15);
  for (int mb = 0; mb < 2; mb++) {
    cr_expect_eq(zpr_input(&l.c, 0, mb)[0], 'a' + mb * LONG % 26);
    cr_expect_eq(zpr_input(&l.c, 0, mb)[ROOM - 1], 1);
    cr_expect_eq(zpr_input(&l.c, 1, mb)[0], 0);
    cr_expect_eq(zpr_input(&l.c, 1, mb)[1], SENTINEL);
    cr_expect_eq(zpr_input(&l.c, 2, mb)[0], SENTINEL);
    cr_expect_eq(zpr_input(&l.c, 3, mb)[0], ROOM);
  }
  zpr_data_close(data);
  zpr_close(&l.c);
}
