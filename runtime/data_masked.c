/* Masked language modelling (Devlin et al. 2018, arXiv 1810.04805, section 3.1): of every sample max(1, round(rate *
 * length)) tokens are to be foretold from the others; they are the only labels. In their places stand the mask token
 * (8 of 10), a random token (1 of 10), or what was there (1 of 10). Which ones depends on the seed and on how many
 * samples came before, so a second pass over the data masks others (Liu et al. 2019, arXiv 1907.11692, section 4.1),
 * and the same in every layout. */
#include <assert.h>
#include <math.h>
#include "data.h"
#include "device.h"

enum { NO_LABEL = -1 };
#define KEY UINT64_C(0x6d61736b65640000) /* apart from the order of samples, which may have the same seed */

int64_t zpr_masked_tokens(const zpr_source *source, int64_t length) {
  assert(source->mask_rate > 0 && length > 0);
  int64_t n = llround(source->mask_rate * (double)length);
  return n < 1 ? 1 : n > length ? length : n;
}

/* What stands in the place of `token`. */
static int32_t instead(const zpr_source *source, int64_t n, int64_t at, int64_t vocabulary, int32_t token) {
  const uint64_t key = source->mask_seed ^ KEY, tenth = UINT64_C(429496730); /* of 2^32, rounded up */
  uint32_t word[4] = {(uint32_t)at, (uint32_t)n, (uint32_t)((uint64_t)n >> 32), 1};
  zpk_philox(word, (uint32_t)key, (uint32_t)(key >> 32));
  if (word[0] < 8 * tenth) return (int32_t)source->mask_token;
  if (word[0] < 9 * tenth) return (int32_t)((uint64_t)word[1] * (uint64_t)vocabulary >> 32);
  return token;
}

void zpr_mask(const zpr_source *source, int64_t n, int64_t sequence, int64_t vocabulary, const zpr_sample *sample) {
  assert(sample->length >= 1 && sample->length <= sequence && source->mask_token < vocabulary);
  int64_t masked = zpr_masked_tokens(source, sample->length);
  for (int64_t i = 0; i < sequence; i++) sample->labels[i] = NO_LABEL;
  for (int64_t i = 0; i < masked; i++) {
    int64_t at = zpr_permute(source->mask_seed ^ KEY, (uint64_t)n, sample->length, i);
    sample->labels[at] = sample->tokens[at];
    sample->tokens[at] = instead(source, n, at, vocabulary, sample->tokens[at]);
  }
}
