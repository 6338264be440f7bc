/* SPDX-License-Identifier: Apache-2.0 */
/* Masked language modelling (Devlin et al. 2018, arXiv 1810.04805, section 3.1): of every sample max(1, round(rate *
 * n)) of the n tokens that may be masked are to be foretold from the others; they are the only labels. In their places
 * stand the mask token (8 of 10), a random token (1 of 10), or what was there (1 of 10). Which ones depends on the seed
 * and on how many samples came before, so a second pass over the data masks others (Liu et al. 2019, arXiv 1907.11692,
 * section 4.1), and the same in every layout.
 *
 * Whole words: the pieces that continue a word (data_words.c) and stand after it are masked with it, or none of them.
 * Words are taken in an order that is drawn, each whose pieces are not more than what is left of that number; where
 * none is, the first one. So there are exactly as many masked tokens wherever so many words have one piece. What stands
 * in their places is drawn for every piece.
 *
 * Every token of a text may be masked. Arrays say it by their labels: each is the token that stands there, and -1
 * where none may be masked, as at [CLS], [SEP] and after the end. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "data.h"
#include "device.h"
#include "state.h"

enum { NO_LABEL = -1 };
#define KEY UINT64_C(0x6d61736b65640000) /* apart from the order of samples, which may have the same seed */

/* ---- opening ---- */

static int input_of(const zpr_program *p, const char *name) {
  for (int i = 0; i < p->n_named; i++)
    if (strcmp(p->named[i].name, name) == 0 && !p->named[i].numbers) return i;
  return -1;
}

static bool find_inputs(const zpr_program *p, zpr_masks *masks, zpr_error *error) {
  masks->tokens = input_of(p, "tokens");
  masks->labels = input_of(p, "labels");
  if (masks->tokens < 0 || masks->labels < 0 || p->named[masks->tokens].elements != p->named[masks->labels].elements) {
    zpr_error_set(error, "Z0802", "arrays are masked where the model reads `tokens` and as many `labels`");
    return false;
  }
  masks->length = p->named[masks->tokens].elements;
  masks->vocabulary = p->named[masks->tokens].limit;
  return true;
}

bool zpr_masks_open(zpr *c, const zpr_source *source, zpr_masks *masks, zpr_error *error) {
  const zpr_program *p = c->program;
  assert(source->mask_rate > 0);
  *masks = (zpr_masks){.rate = source->mask_rate,
                       .token = source->mask_token,
                       .seed = source->mask_seed,
                       .length = p->sequence,
                       .vocabulary = p->vocabulary,
                       .tokens = -1,
                       .labels = -1};
  if (p->n_named > 0 && !find_inputs(p, masks, error)) return false;
  masks->places = zpr_alloc(c, (size_t)masks->length + 1, sizeof *masks->places);
  masks->begins = zpr_alloc(c, (size_t)masks->length + 1, sizeof *masks->begins);
  masks->whole_words = source->mask_words != NULL;
  return !masks->whole_words || zpr_words_open(c, source->mask_words, masks->vocabulary, &masks->words, error);
}

void zpr_masks_close(zpr_masks *masks) {
  free(masks->places);
  free(masks->begins);
  zpr_words_close(&masks->words);
}

/* ---- masking ---- */

int64_t zpr_masked_tokens(const zpr_masks *masks, int64_t n) {
  assert(masks->rate > 0 && n > 0);
  int64_t masked = llround(masks->rate * (double)n);
  return masked < 1 ? 1 : masked > n ? n : masked;
}

/* What stands in the place of `token`. */
static int32_t instead(const zpr_masks *masks, int64_t n, int64_t at, int32_t token) {
  const uint64_t key = masks->seed ^ KEY, tenth = UINT64_C(429496730); /* of 2^32, rounded up */
  uint32_t word[4] = {(uint32_t)at, (uint32_t)n, (uint32_t)((uint64_t)n >> 32), 1};
  zpk_philox(word, (uint32_t)key, (uint32_t)(key >> 32));
  if (word[0] < 8 * tenth) return (int32_t)masks->token;
  if (word[0] < 9 * tenth) return (int32_t)((uint64_t)word[1] * (uint64_t)masks->vocabulary >> 32);
  return token;
}

/* The places of labels, which are taken away. */
static int64_t take_places(const zpr_masks *masks, int32_t *labels) {
  int64_t n = 0;
  for (int64_t i = 0; i < masks->length; i++) {
    if (labels[i] != NO_LABEL) masks->places[n++] = (int32_t)i;
    labels[i] = NO_LABEL;
  }
  return n;
}

/* Words among the places, by the first of them; the place after the last one ends them. */
static int64_t find_words(const zpr_masks *masks, int64_t places, const int32_t *tokens) {
  int64_t words = 0;
  for (int64_t k = 0; k < places; k++) {
    bool behind = k > 0 && masks->places[k] == masks->places[k - 1] + 1;
    bool continues = masks->whole_words && behind && zpr_continues(&masks->words, tokens[masks->places[k]]);
    if (!continues) masks->begins[words++] = (int32_t)k;
  }
  masks->begins[words] = (int32_t)places;
  return words;
}

static void mask_word(const zpr_masks *masks, int64_t n, int64_t word, int32_t *tokens, int32_t *labels) {
  for (int32_t k = masks->begins[word]; k < masks->begins[word + 1]; k++) {
    int64_t at = masks->places[k];
    labels[at] = tokens[at];
    tokens[at] = instead(masks, n, at, tokens[at]);
  }
}

static int64_t mask_places(const zpr_masks *masks, int64_t n, int64_t places, int32_t *tokens, int32_t *labels) {
  if (places == 0) return 0;
  const uint64_t key = masks->seed ^ KEY;
  int64_t words = find_words(masks, places, tokens), most = zpr_masked_tokens(masks, places), masked = 0;
  for (int64_t i = 0; i < words && masked < most; i++) {
    int64_t word = zpr_permute(key, (uint64_t)n, words, i), pieces = masks->begins[word + 1] - masks->begins[word];
    if (masked + pieces > most) continue;
    mask_word(masks, n, word, tokens, labels);
    masked += pieces;
  }
  if (masked > 0) return masked;
  int64_t word = zpr_permute(key, (uint64_t)n, words, 0);
  mask_word(masks, n, word, tokens, labels);
  return masks->begins[word + 1] - masks->begins[word];
}

int64_t zpr_mask(const zpr_masks *masks, int64_t n, const zpr_sample *sample) {
  assert(sample->length >= 1 && sample->length <= masks->length && masks->token < masks->vocabulary);
  for (int64_t i = 0; i < masks->length; i++) sample->labels[i] = i < sample->length ? sample->tokens[i] : NO_LABEL;
  return mask_places(masks, n, take_places(masks, sample->labels), sample->tokens, sample->labels);
}

bool zpr_mask_named(const zpr_masks *masks, int64_t n, int64_t window, int32_t *tokens, int32_t *labels,
                    zpr_error *error) {
  for (int64_t i = 0; i < masks->length; i++) {
    if (labels[i] == NO_LABEL || labels[i] == tokens[i]) continue;
    zpr_error_set(error, "Z0803",
                  "a label of sample %lld is %d where the token %d stands: of arrays that are to be masked labels are "
                  "the tokens themselves, and -1 where none may be masked (zplan data pairs --unmasked)",
                  (long long)window, (int)labels[i], (int)tokens[i]);
    return false;
  }
  mask_places(masks, n, take_places(masks, labels), tokens, labels);
  return true;
}
