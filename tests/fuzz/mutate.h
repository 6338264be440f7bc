/* SPDX-License-Identifier: Apache-2.0 */
/* Damages files and command lines, from a seed alone: the same sequence on every machine. */
#ifndef ZPLAN_FUZZ_MUTATE_H
#define ZPLAN_FUZZ_MUTATE_H

#include <stddef.h>
#include <stdint.h>

/* SplitMix64 (Steele, Lea, Flood 2014). */
typedef struct fuzz_random {
  uint64_t state;
} fuzz_random;
uint64_t fuzz_next(fuzz_random *random);
/* 0 .. n - 1; n > 0. */
size_t fuzz_below(fuzz_random *random, size_t n);

typedef struct fuzz_text {
  char *data; /* owned: malloc; not ended by 0 */
  size_t len;
} fuzz_text;

/* A damaged copy of `text`: bytes flipped, words replaced, numbers made absurd, lines and brackets removed, doubled or
 * moved, a piece of `other` (may be the same text) put in. At most `most` bytes. Owned by the caller. */
fuzz_text fuzz_damage(fuzz_random *random, const fuzz_text *text, const fuzz_text *other, size_t most);

#endif
