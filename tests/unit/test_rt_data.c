/* SPDX-License-Identifier: Apache-2.0 */
/* Sources of tokens: shards and their errors, the order of samples. */
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "data.h"
#include "folder_testing.h"

static const char *path_of(char buf[128], const char *name) {
  snprintf(buf, 128, "%s/%s", folder, name);
  return buf;
}

static void write_file(const char *name, const void *data, size_t size) {
  char path[128];
  FILE *f = fopen(path_of(path, name), "wb");
  cr_assert(f && fwrite(data, 1, size, f) == size && fclose(f) == 0);
}

/* A shard of ids first, first + 1, ...; claimed: the count in its header. */
static void write_shard(const char *name, int width, int32_t first, int32_t count, int32_t claimed) {
  unsigned char *file = calloc(1, 1024 + 4 * (size_t)count);
  int32_t header[3] = {width == 2 ? 20240520 : 20240801, width == 2 ? 1 : 7, claimed};
  memcpy(file, header, sizeof header);
  for (int32_t i = 0; i < count; i++) {
    int32_t id = first + i; /* little-endian machine: the low bytes come first */
    memcpy(file + 1024 + i * width, &id, (size_t)width);
  }
  write_file(name, file, 1024 + (size_t)(count * width));
  free(file);
}

TestSuite(data, .init = make_folder);

Test(data, shards_in_order_of_names_read_as_one_stream) {
  char pattern[128];
  zpr_stream s = {0};
  zpr_error e = {0};
  write_shard("b.bin", 4, 5, 4, 4);
  write_shard("a.bin", 2, 0, 5, 5);
  cr_assert(zpr_stream_add_token_files(&s, path_of(pattern, "*.bin"), &e), "%s", e.text);
  cr_assert_eq(s.tokens, 9);
  int32_t out[9];
  cr_assert(zpr_stream_read(&s, 3, 5, 100, out, &e));
  for (int i = 0; i < 5; i++) cr_assert_eq(out[i], 3 + i);
  cr_assert(zpr_stream_read(&s, 8, 1, 100, out, &e));
  cr_assert_eq(out[0], 8);
  zpr_stream_close(&s);
}

static void expect_error(const char *name, const char *code, const char *words) {
  char path[128];
  zpr_stream s = {0};
  zpr_error e = {0};
  cr_assert_not(zpr_stream_add_token_files(&s, path_of(path, name), &e));
  cr_assert_str_eq(e.code, code);
  cr_assert(strstr(e.text, words) != NULL, "\"%s\" does not say \"%s\"", e.text, words);
  zpr_stream_close(&s);
}

Test(data, missing_file) { expect_error("none.bin", "Z0801", "no file matches"); }

Test(data, folder_in_place_of_a_file) {
  char path[128];
  zpr_stream s = {0};
  zpr_error e = {0};
  cr_assert_not(zpr_stream_add_text(&s, path_of(path, "."), &e));
  cr_assert_str_eq(e.code, "Z0801");
  zpr_stream_close(&s);
}

Test(data, empty_file) {
  write_file("x.bin", "", 0);
  expect_error("x.bin", "Z0802", "is empty");
}

Test(data, shorter_than_its_header) {
  write_file("x.bin", "short", 5);
  expect_error("x.bin", "Z0802", "5 bytes");
}

Test(data, foreign_file) {
  char zeros[2000] = {0};
  write_file("x.bin", zeros, sizeof zeros);
  expect_error("x.bin", "Z0802", "magic 0");
}

Test(data, truncated_file) {
  write_shard("x.bin", 2, 0, 9, 10);
  expect_error("x.bin", "Z0802", "truncated");
}

Test(data, negative_count) {
  write_shard("x.bin", 2, 0, 9, -9);
  expect_error("x.bin", "Z0802", "truncated");
}

Test(data, id_beyond_the_vocabulary) {
  char path[128];
  zpr_stream s = {0};
  zpr_error e = {0};
  int32_t out[10];
  write_shard("x.bin", 4, 95, 10, 10);
  cr_assert(zpr_stream_add_token_files(&s, path_of(path, "x.bin"), &e));
  cr_assert(zpr_stream_read(&s, 0, 5, 100, out, &e));
  cr_assert_not(zpr_stream_read(&s, 0, 6, 100, out, &e));
  cr_assert_str_eq(e.code, "Z0803");
  cr_assert(strstr(e.text, "id 100 at token 5") != NULL, "%s", e.text);
  zpr_stream_close(&s);
}

Test(data, id_beyond_int32) {
  char path[128];
  zpr_stream s = {0};
  zpr_error e = {0};
  int32_t out[1];
  write_shard("x.bin", 4, -2, 1, 1);
  cr_assert(zpr_stream_add_token_files(&s, path_of(path, "x.bin"), &e));
  cr_assert_not(zpr_stream_read(&s, 0, 1, 100, out, &e));
  cr_assert(strstr(e.text, "4294967294") != NULL, "%s", e.text);
  zpr_stream_close(&s);
}

/* ---- order ---- */

Test(data, permutation_is_a_bijection) {
  static const int64_t sizes[] = {1, 2, 3, 4, 5, 7, 16, 17, 100, 1023, 5000};
  for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
    bool *seen = calloc((size_t)sizes[k], sizeof *seen);
    for (int64_t i = 0; i < sizes[k]; i++) {
      int64_t w = zpr_permute(42, 3, sizes[k], i);
      cr_assert(w >= 0 && w < sizes[k] && !seen[w], "%lld of %lld goes to %lld", (long long)i, (long long)sizes[k],
                (long long)w);
      seen[w] = true;
    }
    free(seen);
  }
}

Test(data, permutations_differ_by_seed_and_epoch) {
  int same_epoch = 0, same_seed = 0, fixed = 0;
  for (int64_t i = 0; i < 1000; i++) {
    int64_t w = zpr_permute(1, 0, 1000, i);
    same_epoch += w == zpr_permute(2, 0, 1000, i);
    same_seed += w == zpr_permute(1, 1, 1000, i);
    fixed += w == i;
  }
  cr_assert(same_epoch < 20 && same_seed < 20 && fixed < 20, "%d %d %d", same_epoch, same_seed, fixed);
}

typedef struct loader {
  zpr c;
  zpr_program program;
  zpr_stage stage;
} loader;

/* Two inputs, batch 4 of 3 tokens, in two micro-batches. */
static void open_loader(loader *l) {
  *l = (loader){.stage = {.arena_bytes = 2 * 4 * 3 * 4},
                .program = {.name = "loader",
                            .tensor = 1,
                            .pipeline = 1,
                            .data = 1,
                            .batch = 4,
                            .microbatch = 2,
                            .microbatches = 2,
                            .sequence = 3,
                            .vocabulary = 256,
                            .n_inputs = 2}};
  l->program.stages = &l->stage;
  int argc = 0;
  char **argv = NULL;
  zpr_open(&l->c, &l->program, &zpr_default_options, &argc, &argv);
}

Test(data, sequential_windows_wrap_around_and_labels_are_shifted) {
  char path[128];
  loader l;
  write_file("text", "abcdefghijklmnopq", 17); /* (17 - 1) / 3 = 5 windows */
  open_loader(&l);
  zpr_source source = {.kind = 2, .path = path_of(path, "text")};
  zpr_data *data = zpr_data_open(&l.c, &source);
  zpr_data_load(&l.c, data, 0);
  cr_assert_eq(zpr_input(&l.c, 0, 0)[0], 'a');
  cr_assert_eq(zpr_input(&l.c, 0, 1)[0], 'g');
  cr_assert_eq(zpr_input(&l.c, 1, 1)[5], 'm'); /* the label after token 'l' */
  zpr_data_load(&l.c, data, 4);
  cr_assert_eq(zpr_input(&l.c, 0, 0)[0], 'm'); /* sample 4 is window 4, sample 5 is window 0 again */
  cr_assert_eq(zpr_input(&l.c, 0, 0)[3], 'a');
  zpr_data_close(data);
  zpr_close(&l.c);
}

Test(data, shuffled_epoch_shows_every_window_once) {
  char path[128];
  loader l;
  int seen[256] = {0};
  write_file("text", "abcdefghijklmnopqrstuvwxy", 25); /* 8 windows: two batches */
  open_loader(&l);
  zpr_source source = {.kind = 2, .path = path_of(path, "text"), .seed = 5, .shuffled = true};
  zpr_data *data = zpr_data_open(&l.c, &source);
  for (int64_t step = 0; step < 2; step++) {
    zpr_data_load(&l.c, data, 4 * step);
    for (int i = 0; i < 4; i++) seen[zpr_input(&l.c, 0, i / 2)[i % 2 * 3]]++;
  }
  for (int w = 0; w < 8; w++) cr_assert_eq(seen['a' + 3 * w], 1, "window %d seen %d times", w, seen['a' + 3 * w]);
  zpr_data_close(data);
  zpr_close(&l.c);
}

/* Samples of 3 positions: a line is cut, another one is padded, empty ones are none; what follows the last byte is the
 * newline, also where the file does not end with one. Every rank weighs a token by all tokens of the batch. */
Test(data, lines_are_samples_of_their_own_length) {
  char path[128];
  loader l;
  write_file("text", "ab\n\nwxyz\nc", 10);
  open_loader(&l);
  l.program.lengths = true;
  l.stage.arena_bytes += 4 * 4;
  zpr_close(&l.c);
  int argc = 0;
  char **argv = NULL;
  zpr_open(&l.c, &l.program, &zpr_default_options, &argc, &argv);
  zpr_source source = {.kind = ZPR_LINES, .path = path_of(path, "text")};
  zpr_data *data = zpr_data_open(&l.c, &source);
  zpr_data_load(&l.c, data, 0);
  static const int32_t tokens[4][3] = {{'a', 'b', 0}, {'w', 'x', 'y'}, {'c', 0, 0}, {'a', 'b', 0}};
  static const int32_t labels[4][3] = {{'b', '\n', -1}, {'x', 'y', 'z'}, {'\n', -1, -1}, {'b', '\n', -1}};
  static const int32_t lengths[4] = {2, 3, 1, 2};
  for (int i = 0; i < 4; i++) {
    for (int k = 0; k < 3; k++) {
      cr_expect_eq(zpr_input(&l.c, 0, i / 2)[i % 2 * 3 + k], tokens[i][k], "token %d of sample %d", k, i);
      cr_expect_eq(zpr_input(&l.c, 1, i / 2)[i % 2 * 3 + k], labels[i][k], "label %d of sample %d", k, i);
    }
    cr_expect_eq(zpr_input(&l.c, 2, i / 2)[i % 2], lengths[i], "length of sample %d", i);
  }
  cr_expect_float_eq(l.c.token_weight[0], 1.0 / 8, 1e-15);
  zpr_data_load(&l.c, data, 4); /* sample 4 is the second line */
  cr_expect_eq(zpr_input(&l.c, 0, 0)[0], 'w');
  cr_expect_float_eq(l.c.token_weight[0], 1.0 / (3 + 1 + 2 + 3), 1e-15);
  zpr_data_close(data);
  zpr_close(&l.c);
}

/* ---- masks ---- */

/* Counts what masks leave of samples that hold 100, 101, ...: how often each of the three kinds stands there. */
typedef struct masks {
  int masked, kept, random, at[64];
} masks;

enum { S = 64, MASKED_OF = 300 };
static int32_t places[S + 1], begins[S + 1];
#define MASKS(...)                                                                                                     \
  ((zpr_masks){.token = 7, .length = S, .vocabulary = MASKED_OF, .places = places, .begins = begins, __VA_ARGS__})

static masks count_masks(const zpr_masks *rule, int64_t first, int samples, int32_t length) {
  masks m = {0};
  for (int n = 0; n < samples; n++) {
    int32_t tokens[S], labels[S];
    zpr_sample sample = {tokens, labels, length};
    int there = 0;
    for (int i = 0; i < S; i++) tokens[i] = 100 + i;
    zpr_mask(rule, first + n, &sample);
    for (int i = 0; i < S; i++) {
      if (labels[i] == -1) {
        cr_assert_eq(tokens[i], 100 + i, "sample %d: token %d", n, i);
        continue;
      }
      cr_assert_lt(i, length);
      cr_assert_eq(labels[i], 100 + i);
      cr_assert(tokens[i] >= 0 && tokens[i] < MASKED_OF);
      there++, m.at[i]++;
      *(tokens[i] == 7 ? &m.masked : tokens[i] == 100 + i ? &m.kept : &m.random) += 1;
    }
    cr_assert_eq(there, zpr_masked_tokens(rule, length));
  }
  return m;
}

/* Shares within five standard deviations of a binomial draw; a random token is the mask or the token itself once in
 * 150. */
Test(data, masks_hide_eight_of_ten_and_every_position_alike) {
  enum { SAMPLES = 4000, LENGTH = 40, MASKED = 6 };
  const zpr_masks rule = MASKS(.rate = 0.15, .seed = 5);
  masks m = count_masks(&rule, 0, SAMPLES, LENGTH);
  const double all = SAMPLES * MASKED, mixed = 0.1 / 300;
  cr_expect_float_eq(m.masked / all, 0.8 + mixed, 5 * sqrt(0.8 * 0.2 / all));
  cr_expect_float_eq(m.kept / all, 0.1 + mixed, 5 * sqrt(0.1 * 0.9 / all));
  cr_expect_float_eq(m.random / all, 0.1 - 2 * mixed, 5 * sqrt(0.1 * 0.9 / all));
  for (int i = 0; i < LENGTH; i++)
    cr_expect_float_eq(m.at[i] / (double)SAMPLES, 0.15, 5 * sqrt(0.15 * 0.85 / SAMPLES), "position %d: %d", i, m.at[i]);
}

Test(data, at_least_one_token_of_a_sample_is_masked_and_at_most_all) {
  const zpr_masks few = MASKS(.rate = 0.001), all = MASKS(.rate = 1), some = MASKS(.rate = 0.15);
  cr_expect_eq(zpr_masked_tokens(&few, 64), 1);
  cr_expect_eq(zpr_masked_tokens(&all, 64), 64);
  cr_expect_eq(zpr_masked_tokens(&some, 3), 1);
  cr_expect_eq(zpr_masked_tokens(&some, 10), 2); /* 1.5 */
  cr_expect_eq(count_masks(&all, 3, 5, 64).at[63], 5);
}

/* Another pass over the data masks other tokens, and so does another seed; the same sample twice the same. */
Test(data, masks_depend_on_sample_and_seed) {
  const zpr_masks rule = MASKS(.rate = 0.15), other = MASKS(.rate = 0.15, .seed = 1);
  masks a = count_masks(&rule, 11, 1, 64), b = count_masks(&rule, 11, 1, 64), next = count_masks(&rule, 12, 1, 64),
        seed = count_masks(&other, 11, 1, 64);
  cr_expect_arr_eq(a.at, b.at, sizeof a.at);
  cr_expect_arr_neq(a.at, next.at, sizeof a.at);
  cr_expect_arr_neq(a.at, seed.at, sizeof a.at);
}

/* In arrays only what is its own label is masked, and all of it alike; positions of labels are those of tokens. */
Test(data, arrays_say_what_may_be_masked) {
  enum { SAMPLES = 1000 };
  const zpr_masks rule = MASKS(.rate = 0.25);
  int at[S] = {0};
  for (int n = 0; n < SAMPLES; n++) {
    int32_t tokens[S], labels[S];
    zpr_error e = {0};
    for (int i = 0; i < S; i++) {
      tokens[i] = 100 + i;
      labels[i] = i % 2 && i < 40 ? tokens[i] : -1; /* 20 of them */
    }
    cr_assert(zpr_mask_named(&rule, n, 0, tokens, labels, &e), "%s", e.text);
    for (int i = 0; i < S; i++) {
      cr_assert(labels[i] == -1 ? tokens[i] == 100 + i : labels[i] == 100 + i);
      at[i] += labels[i] >= 0;
    }
  }
  for (int i = 0, all = 0; i < S; i++) {
    if (i % 2 && i < 40)
      cr_expect_float_eq(at[i] / (double)SAMPLES, 0.25, 5 * sqrt(0.25 * 0.75 / SAMPLES), "position %d: %d", i, at[i]);
    else
      cr_expect_eq(at[i], 0);
    all += at[i];
    if (i == S - 1) cr_expect_eq(all, SAMPLES * 5);
  }
}

/* ---- whole words ---- */

static int64_t labels_of(const int32_t labels[S]) {
  int64_t n = 0;
  for (int i = 0; i < S; i++) n += labels[i] >= 0;
  return n;
}

/* Masks a sample of 100, 101, ... of which the first `pieces` are words of `word` of them. How many tokens are masked;
 * no word is masked in part. */
static int64_t mask_words(int64_t n, double rate, int word, int pieces, int32_t labels[S]) {
  unsigned char continues[100 + S] = {0};
  int32_t tokens[S];
  for (int i = 0; i < S; i++) {
    tokens[i] = 100 + i;
    continues[100 + i] = i < pieces && i % word > 0;
  }
  const zpr_masks rule = MASKS(.rate = rate, .whole_words = true, .words = {.tokens = 100 + S, .continues = continues});
  int64_t masked = zpr_mask(&rule, n, &(zpr_sample){tokens, labels, S});
  cr_expect_eq(masked, labels_of(labels), "sample %d", (int)n);
  for (int i = 0; i < S; i++)
    if (continues[100 + i]) cr_assert_eq(labels[i] < 0, labels[i - 1] < 0, "sample %d: piece %d", (int)n, i);
  return masked;
}

/* 16 words of 2 pieces, 32 of one: of 64 tokens 10 are masked, always, and both kinds are. A word of two is passed over
 * where one token is left, so it is masked less often, but not by much. */
Test(data, whole_words_are_masked_to_the_same_share) {
  enum { SAMPLES = 2000, LONG = 32 };
  int seen[2] = {0};
  for (int n = 0; n < SAMPLES; n++) {
    int32_t labels[S];
    cr_assert_eq(mask_words(n, 0.15, 2, LONG, labels), 10);
    for (int i = 0; i < S; i++) seen[i < LONG] += labels[i] >= 0;
  }
  cr_expect_eq(seen[0] + seen[1], SAMPLES * 10);
  cr_expect(seen[1] > 0.45 * SAMPLES * 10 && seen[1] < 0.5 * SAMPLES * 10, "%d in long words", seen[1]);
}

/* Where every word is too long, one of them is masked, and none is left out for ever. */
Test(data, a_word_that_is_too_long_is_masked_where_there_is_no_other) {
  bool seen[2] = {0};
  for (int n = 0; n < 40; n++) {
    int32_t labels[S];
    cr_assert_eq(mask_words(n, 0.15, 32, S, labels), 32);
    seen[labels[S - 1] >= 0] = true;
  }
  cr_expect(seen[0] && seen[1]);
}

/* A vocabulary of bytes in which b, c, e and f continue: what a batch weighs is known when its words are. */
Test(data, masked_words_of_a_stream_weigh_their_labels) {
  char path[128], words[128], vocabulary[2048] = "";
  loader l;
  size_t n = 0;
  for (int i = 0; i < 'z'; i++) n += (size_t)sprintf(vocabulary + n, "%s\n", strchr("bcef", i) && i ? "##x" : "x");
  write_file("text", "abcdefghijklm", 13);
  write_file("vocab.txt", vocabulary, n);
  open_loader(&l);
  zpr_source source = {.kind = ZPR_TEXT, .path = path_of(path, "text"), .mask_rate = 0.3, .mask_token = '?'};
  zpr_data *data = zpr_data_open(&l.c, &source);
  zpr_data_identity apart = zpr_data_identify(data);
  zpr_data_close(data);
  source.mask_words = path_of(words, "vocab.txt");
  data = zpr_data_open(&l.c, &source);
  zpr_data_load(&l.c, data, 0);
  for (int i = 0; i < 12; i++) {
    int32_t label = zpr_input(&l.c, 1, i / 6)[i % 6];
    cr_expect(i < 6 ? label == 'a' + i : label == -1 || label == 'a' + i, "label %d: %d", i, label);
  }
  cr_expect_float_eq(l.c.token_weight[0], 1.0 / (3 + 3 + 1 + 1), 1e-15);
  cr_expect(strstr(zpr_data_identify(data).masks, ", words ") && !strstr(apart.masks, "words"));
  zpr_data_close(data);
  zpr_close(&l.c);
}

static void expect_no_words(zpr *c, const char *text, int64_t vocabulary, const char *told) {
  char path[128];
  zpr_words words = {0};
  zpr_error e = {0};
  write_file("vocab.txt", text, strlen(text));
  cr_expect_not(zpr_words_open(c, path_of(path, "vocab.txt"), vocabulary, &words, &e));
  cr_expect_str_eq(e.code, "Z0802");
  cr_expect(strstr(e.text, told), "%s", e.text);
  zpr_words_close(&words);
}

Test(data, vocabularies_that_name_no_words) {
  char path[128];
  loader l;
  zpr_words words = {0};
  zpr_error e = {0};
  open_loader(&l);
  expect_no_words(&l.c, "a\nb#\n##\n", 9, "no line of");
  expect_no_words(&l.c, "a\n##b\nc", 2, "has 3 lines, one for each token: the model has 2");
  write_file("vocab.txt", "a\r\n##b\r\n##c", 11); /* as another system ends lines, the last one not at all */
  cr_assert(zpr_words_open(&l.c, path_of(path, "vocab.txt"), 4, &words, &e), "%s", e.text);
  cr_expect(words.tokens == 3 && !zpr_continues(&words, 0) && zpr_continues(&words, 1) && zpr_continues(&words, 2) &&
            !zpr_continues(&words, 3));
  zpr_words_close(&words);
  zpr_close(&l.c);
}

Test(data, arrays_that_are_masked_already_are_told) {
  const zpr_masks rule = MASKS(.rate = 0.25);
  int32_t tokens[S] = {1, 2, 258}, labels[S];
  zpr_error e = {0};
  memset(labels, -1, sizeof labels);
  cr_expect(zpr_mask_named(&rule, 0, 4, tokens, labels, &e)); /* none may be masked */
  cr_expect_eq(tokens[2], 258);
  labels[2] = 3;
  cr_expect_not(zpr_mask_named(&rule, 0, 4, tokens, labels, &e));
  cr_expect_str_eq(e.code, "Z0803");
  cr_expect(strstr(e.text, "label of sample 4 is 3 where the token 258 stands"), "%s", e.text);
}

/* One of 3 positions is masked: 4 samples have 4 tokens that count. */
Test(data, masked_samples_weigh_their_labels) {
  char path[128];
  loader l;
  write_file("text", "abcdefghijklmnopqrstuvwxyz", 26);
  open_loader(&l);
  zpr_source source = {.kind = ZPR_TEXT, .path = path_of(path, "text"), .mask_rate = 0.3, .mask_token = '?'};
  zpr_data *data = zpr_data_open(&l.c, &source);
  zpr_data_load(&l.c, data, 0);
  cr_expect_float_eq(l.c.token_weight[0], 1.0 / 4, 1e-15);
  for (int i = 0; i < 4; i++) {
    int labels = 0;
    for (int k = 0; k < 3; k++) {
      int32_t label = zpr_input(&l.c, 1, i / 2)[i % 2 * 3 + k];
      labels += label >= 0;
      cr_expect(label == -1 || label == 'a' + 3 * i + k, "label %d of sample %d: %d", k, i, label);
    }
    cr_expect_eq(labels, 1);
  }
  zpr_data_close(data);
  zpr_close(&l.c);
}

Test(data, no_line_to_train_on, .exit_code = 1) {
  char path[128];
  loader l;
  cr_redirect_stderr();
  write_file("text", "\n\n\n", 3);
  open_loader(&l);
  zpr_data_open(&l.c, &(zpr_source){.kind = ZPR_LINES, .path = path_of(path, "text")});
}

static uint64_t hash_of_text(const char *text, size_t bytes) {
  char path[128];
  zpr_stream stream = {0};
  zpr_error error = {0};
  write_file("text", text, bytes);
  cr_assert(zpr_stream_add_text(&stream, path_of(path, "text"), &error), "%s", error.text);
  uint64_t hash = zpr_stream_hash(&stream, stream.tokens);
  zpr_stream_close(&stream);
  return hash;
}

Test(data, a_long_stream_is_told_by_blocks_from_its_first_token_to_its_last) {
  enum { BYTES = 200000, BLOCK = 1024 };
  static char text[BYTES];
  for (int i = 0; i < BYTES; i++) text[i] = (char)('a' + i * 7 % 26);
  uint64_t hash = hash_of_text(text, BYTES);
  int in_blocks[] = {0, BLOCK - 1, (BYTES - BLOCK) / 63 * 21 + 100, BYTES - BLOCK, BYTES - 1};
  for (int i = 0; i < 5; i++) {
    text[in_blocks[i]] ^= 1;
    cr_expect_neq(hash_of_text(text, BYTES), hash, "token %d", in_blocks[i]);
    text[in_blocks[i]] ^= 1;
  }
  cr_expect_eq(hash_of_text(text, BYTES), hash);
}

Test(data, too_short_for_one_sample, .exit_code = 1) {
  cr_redirect_stderr();
  char path[128];
  loader l;
  write_file("text", "abc", 3);
  open_loader(&l);
  zpr_source source = {.kind = 2, .path = path_of(path, "text")};
  zpr_data_open(&l.c, &source);
  cr_assert_fail("a text of three bytes was accepted");
}

Test(data, synthetic_half_follows_the_rule) {
  enum { COUNT = 4000, V = 97 };
  static int32_t a[COUNT], b[COUNT];
  int follows = 0;
  zpr_synthetic(1, 2, V, COUNT, a);
  zpr_synthetic(1, 2, V, COUNT, b);
  cr_assert_arr_eq(a, b, sizeof a);
  for (int i = 1; i < COUNT; i++) {
    cr_assert(a[i] >= 0 && a[i] < V);
    follows += a[i] == (5 * a[i - 1] + 3) % V;
  }
  cr_assert(follows > COUNT * 0.46 && follows < COUNT * 0.56, "%d of %d", follows, COUNT);
  zpr_synthetic(1, 3, V, COUNT, b);
  cr_assert_arr_neq(a, b, sizeof a);
}
