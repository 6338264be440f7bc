/* SPDX-License-Identifier: Apache-2.0 */
/* Incremental decoding on a GPU: attention of some queries. What the other step functions do for some positions follows
 * from where their operands begin. */
#include <assert.h>
#include "attention_args.h"
#include "cuda.h"

/* Lengths, where keys are of the same sequence, say nothing of a text that grows. */
static zpk_attention_args without_lengths(const zpk_attention_args *args) {
  zpk_attention_args some = *args;
  if (!args->keys) some.lengths = NULL;
  return some;
}

/* A beginning is a sample of its own; over keys of another sequence all queries are alike. */
void zpr_attention_stretch(zpr *c, const zpk_attention_args *args, zpr_positions p) {
  zpk_attention_args some = without_lengths(args);
  assert(args->B == 1 && (args->causal || args->keys) && !args->documents);
  assert(p.first >= 0 && p.n >= 1 && p.first + p.n <= args->S);
  if (p.first == 0) {
    some.S = p.n;
    zpr_attention(c, &some);
    return;
  }
  zpd_stretch a = {.of = zpr_attention_args(&some), .first = p.first};
  zpr_begin_bias(c, &some, false, &a.of);
  zpr_launch(c, &c->state->device->kernels.attention_stretch, &a, sizeof a, p.n, args->H, args->B,
             ZPD_ATTENTION_THREADS);
}
