/* SPDX-License-Identifier: Apache-2.0 */
/* A trained model is examined instead of trained: `zplan sample` and `zplan eval`. Ranks that share every layer run
 * the forward passes that validation runs, or those of some positions, and what the loss is made of, the logits, is
 * handed to whoever looks: on the host, on every rank, so that all choose the same tokens, and the first one writes. */
#ifndef ZPLAN_RT_INFER_H
#define ZPLAN_RT_INFER_H

#include "state.h"

enum { ZPR_MOST_PROMPTS = 1024 };

/* What the command asks for, in a JSON file. */
typedef struct zpr_request {
  char out[4096];                        /* file for the answer, JSON */
  bool sample;                           /* else evaluate */
  int64_t new_tokens, seed, top_k, stop; /* top_k 0: all; stop: a token that ends a text, -1: none */
  bool whole;                            /* every token by a pass over the whole sample */
  double temperature, top_p;             /* 0: greedy; 1: all */
  int64_t n_prompts, *lengths;           /* owned, as the next */
  int32_t **prompts;
} zpr_request;

/* Reads the request and does it; the exit status. Z0818 when it cannot be done. */
int zpr_infer(zpr *c, const char *path);

/* The logit of a class. */
static inline double zpr_logit(zpk_dtype dtype, const zpr_looked *seen, int64_t row, int64_t class) {
  int64_t at = (class / seen->V * seen->rows + row) * seen->V + class % seen->V;
  float narrow;
  if (dtype == ZPK_F32) return ((const float *)seen->logits)[at];
  if (dtype == ZPK_F64) return ((const double *)seen->logits)[at];
  zpk_widen(dtype, (const uint16_t *)seen->logits + at, &narrow, 1);
  return narrow;
}

/* ---- sample.c ---- */
void zpr_sample_texts(zpr *c, const zpr_request *request, FILE *out);
/* The next token by logits of `vocabulary` words; u in [0, 1) decides where the temperature is not
 * 0. `order` has room for as many. */
int32_t zpr_choose(const zpr_request *request, const double *logits, int32_t *order, int64_t vocabulary, double u);

/* ---- evaluate.c ---- */
void zpr_evaluate(zpr *c, FILE *out);

#endif
