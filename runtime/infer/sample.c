/* SPDX-License-Identifier: Apache-2.0 */
/* Texts that a model makes, token after token. Where the trainer decodes (zpr_program.decode), the prompt is one
 * stretch of positions, and every token that follows one more; else every token takes a forward pass over the whole
 * sample, whose positions after the text hold zeros that no causal attention sees. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "data.h"
#include "device.h"
#include "infer.h"
#include "state.h"

/* A text, as it grows. */
typedef struct sampled {
  int32_t *ids;           /* [room] */
  double *shares;         /* [room]: the natural logarithm of each token's share, from `first` on */
  int64_t first, n, room; /* made from the first one on; tokens so far */
} sampled;

typedef struct sampler {
  zpr *c;
  const zpr_request *request;
  sampled *text; /* of every prompt */
  int64_t row;   /* whose logits are wanted */
  int64_t done;  /* positions of the text that were decoded */
  double *logits;
  int32_t *order;
  double prompt_s, text_s; /* seconds of prompts and of tokens after the first */
  int64_t prompts, tokens; /* tokens in them */
} sampler;

static void keep_row(void *arg, const zpr_looked *seen) {
  sampler *s = arg;
  const zpr_program *p = s->c->program;
  int64_t row = s->row - seen->first;
  if (row < 0 || row >= seen->rows) return;
  for (int64_t v = 0; v < p->vocabulary; v++) s->logits[v] = zpr_logit(p->dtype, seen, row, v);
}

/* Larger logits first, of equal ones the lower token. */
static const double *sorted_by;
static int by_logit(const void *a, const void *b) {
  int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
  if (sorted_by[x] != sorted_by[y]) return sorted_by[x] > sorted_by[y] ? -1 : 1;
  return (x > y) - (x < y);
}

static int32_t largest(const double *logits, int64_t vocabulary) {
  int32_t best = 0;
  for (int32_t v = 1; v < vocabulary; v++)
    if (logits[v] > logits[best]) best = v;
  return best;
}

int32_t zpr_choose(const zpr_request *r, const double *logits, int32_t *order, int64_t vocabulary, double u) {
  if (r->temperature <= 0) return largest(logits, vocabulary);
  for (int32_t v = 0; v < vocabulary; v++) order[v] = v;
  sorted_by = logits;
  qsort(order, (size_t)vocabulary, sizeof *order, by_logit);
  int64_t n = r->top_k > 0 && r->top_k < vocabulary ? r->top_k : vocabulary, kept = 0;
  double top = logits[order[0]], all = 0, sum = 0, at = 0;
  for (int64_t i = 0; i < n; i++) all += exp((logits[order[i]] - top) / r->temperature);
  while (kept < n && (kept == 0 || sum < r->top_p * all)) /* the fewest words that have this share */
    sum += exp((logits[order[kept++]] - top) / r->temperature);
  for (int64_t i = 0; i < kept; i++) {
    at += exp((logits[order[i]] - top) / r->temperature);
    if (u * sum < at) return order[i];
  }
  return order[kept - 1]; /* rounding */
}

/* The first sample of the step is the text, after it and in the others stand zeros; no label counts. */
static void load_tokens(zpr *c, const int32_t *ids, int64_t n) {
  const zpr_program *p = c->program;
  int64_t samples = p->microbatches * p->microbatch, count = samples * p->sequence;
  int32_t *inputs = zpr_tokens_open(c, zpr_at(c, c->stage->inputs), 2 * count + (p->lengths ? samples : 0));
  for (int64_t i = 0; i < count; i++) {
    inputs[i] = i < n ? ids[i] : 0;
    inputs[count + i] = -1;
  }
  for (int64_t i = 0; p->lengths && i < samples; i++) inputs[2 * count + i] = (int32_t)n;
  zpr_tokens_close(c);
}

/* Inputs of an encoder-decoder: the prompt goes to the encoder, with its length if the model has lengths; the text goes
 * to the decoder. */
static void load_pair(zpr *c, const int32_t *prompt, int64_t length, const int32_t *ids, int64_t n) {
  const zpr_program *p = c->program;
  int64_t bytes = zpr_named_at(c, p->n_named, 0), size = sizeof(int32_t);
  int32_t *inputs = zpr_tokens_open(c, zpr_at(c, c->stage->inputs), bytes / size);
  for (int i = 0; i < p->n_named; i++) {
    const zpr_named *named = &p->named[i];
    int32_t *to = inputs + zpr_named_at(c, i, 0) / size;
    bool text = i == p->text_input;
    for (int64_t k = 0; k < named->elements; k++) {
      if (named->labels)
        to[k] = -1;
      else if (named->elements == 1)
        to[k] = (int32_t)length;
      else
        to[k] = text ? (k < n ? ids[k] : 0) : k < length ? prompt[k] : 0;
    }
  }
  zpr_tokens_close(c);
}

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* The logits of what follows the first n tokens of the text. */
static void find_logits(sampler *s, int64_t prompt, int64_t n) {
  zpr *c = s->c;
  if (c->program->n_named > 0)
    load_pair(c, s->request->prompts[prompt], s->request->lengths[prompt], s->text[prompt].ids, n);
  else
    load_tokens(c, s->text[prompt].ids, n);
  if (!c->program->decode || s->request->whole) {
    c->state->look_row = s->row = n - 1;
    zpr_run_forwards(c);
    return;
  }
  c->state->look_row = s->row = 0;
  c->program->decode(c, (zpr_positions){s->done, n - s->done});
  s->done = n;
}

/* The natural logarithm of the token's share. */
static double log_share(const sampler *s, int32_t id) {
  int64_t vocabulary = s->c->program->vocabulary;
  double top = s->logits[largest(s->logits, vocabulary)], sum = 0;
  for (int64_t v = 0; v < vocabulary; v++) sum += exp(s->logits[v] - top);
  return s->logits[id] - top - log(sum);
}

/* Where a text begins: with the prompt, or of an encoder-decoder with token 0, which stands for nothing. */
static void begin_text(const sampler *s, int64_t prompt) {
  zpr *c = s->c;
  sampled *t = &s->text[prompt];
  bool pair = c->program->n_named > 0;
  t->room = pair ? c->program->text_positions : c->program->sequence;
  t->first = t->n = pair ? 1 : s->request->lengths[prompt];
  t->ids = zpr_alloc(c, (size_t)t->room, sizeof *t->ids);
  t->shares = zpr_alloc(c, (size_t)t->room, sizeof *t->shares);
  if (!pair) memcpy(t->ids, s->request->prompts[prompt], (size_t)t->n * sizeof *t->ids);
}

static void continue_text(sampler *s, int64_t prompt) {
  zpr *c = s->c;
  const zpr_request *r = s->request;
  sampled *t = &s->text[prompt];
  int64_t end = t->first + r->new_tokens < t->room ? t->first + r->new_tokens : t->room;
  s->prompts += r->lengths[prompt];
  for (s->done = 0; t->n < end;) {
    double begin = seconds();
    find_logits(s, prompt, t->n);
    *(t->n == t->first ? &s->prompt_s : &s->text_s) += seconds() - begin;
    s->tokens += t->n > t->first;
    double u = zpk_philox_uniform((uint64_t)r->seed, (uint64_t)t->n, (uint64_t)prompt, 0, 0, 0);
    int32_t id = zpr_choose(r, s->logits, s->order, c->program->vocabulary, u);
    if (id == r->stop) break;
    t->shares[t->n] = log_share(s, id);
    t->ids[t->n++] = id;
  }
}

static void write_tokens(const sampler *s, FILE *out) {
  fputs("{\"tokens\": [", out);
  for (int64_t i = 0; i < s->request->n_prompts; i++) {
    const sampled *t = &s->text[i];
    fputs(i > 0 ? ", [" : "[", out);
    for (int64_t n = t->first; n < t->n; n++) fprintf(out, "%s%d", n > t->first ? ", " : "", t->ids[n]);
    fputs("]", out);
  }
}

static void write_shares(const sampler *s, FILE *out) {
  int digits = s->c->program->dtype == ZPK_F64 ? 17 : 9;
  fputs("], \"logprobs\": [", out);
  for (int64_t i = 0; i < s->request->n_prompts; i++) {
    const sampled *t = &s->text[i];
    fputs(i > 0 ? ", [" : "[", out);
    for (int64_t n = t->first; n < t->n; n++) fprintf(out, "%s%.*g", n > t->first ? ", " : "", digits, t->shares[n]);
    fputs("]", out);
  }
  fprintf(out, "], \"prompt_tokens\": %lld, \"prompt_s\": %.9g, \"text_tokens\": %lld, \"text_s\": %.9g}\n",
          (long long)s->prompts, s->prompt_s, (long long)s->tokens, s->text_s);
}

void zpr_sample_texts(zpr *c, const zpr_request *request, FILE *out) {
  sampler s = {.c = c, .request = request};
  s.text = zpr_alloc(c, (size_t)request->n_prompts, sizeof *s.text);
  s.logits = zpr_alloc(c, (size_t)c->program->vocabulary, sizeof *s.logits);
  s.order = zpr_alloc(c, (size_t)c->program->vocabulary, sizeof *s.order);
  c->state->look = keep_row;
  c->state->look_arg = &s;
  c->state->look_losses = ~0u;
  for (int64_t i = 0; i < request->n_prompts; i++) {
    begin_text(&s, i);
    continue_text(&s, i);
  }
  c->state->look = NULL;
  write_tokens(&s, out);
  write_shares(&s, out);
  for (int64_t i = 0; i < request->n_prompts; i++) {
    free(s.text[i].ids);
    free(s.text[i].shares);
  }
  free(s.text);
  free(s.logits);
  free(s.order);
}
