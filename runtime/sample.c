/* Texts that a model makes, token after token. Where the trainer decodes (zpr_program.decode), the prompt is one
 * stretch of positions, and every token that follows one more; else every token takes a forward pass over the whole
 * sample, whose positions behind the text hold zeros that no causal attention sees. */
#include <math.h>
#include <stdlib.h>
#include <time.h>
#include "device.h"
#include "infer.h"
#include "state.h"

typedef struct sampler {
  zpr *c;
  const zpr_request *request;
  int64_t row;  /* whose logits are wanted */
  int64_t done; /* positions of the text that were decoded */
  double *logits;
  int32_t *order;
  double prompt_s, text_s; /* seconds of prompts and of tokens behind the first */
  int64_t prompts, tokens; /* tokens in them */
} sampler;

static void keep_row(void *arg, const zpr_looked *seen) {
  sampler *s = arg;
  const zpr_program *p = s->c->program;
  if (s->row >= seen->rows) return;
  for (int64_t v = 0; v < p->vocabulary; v++) s->logits[v] = zpr_logit(p->dtype, seen->logits, s->row * seen->V + v);
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

/* The first sample of the step is the text, behind it and in the others stand zeros; no label counts. */
static void load(zpr *c, const int32_t *ids, int64_t n) {
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

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* The logits of what follows the first n tokens. */
static void find_logits(sampler *s, const int32_t *ids, int64_t n) {
  zpr *c = s->c;
  load(c, ids, n);
  if (!c->program->decode || s->request->whole) {
    s->row = n - 1;
    zpr_run_forwards(c);
    return;
  }
  s->row = 0;
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

/* Tokens behind the prompt, and the logarithms of their shares. */
static void continue_text(sampler *s, int64_t prompt, double *shares) {
  zpr *c = s->c;
  const zpr_request *r = s->request;
  int32_t *ids = r->prompts[prompt];
  int64_t n = r->lengths[prompt], first = n, end = n + r->new_tokens;
  if (end > c->program->sequence) end = c->program->sequence;
  s->prompts += n;
  for (s->done = 0; n < end;) {
    double begin = seconds();
    find_logits(s, ids, n);
    *(n == first ? &s->prompt_s : &s->text_s) += seconds() - begin;
    s->tokens += n > first;
    double u = zpk_philox_uniform((uint64_t)r->seed, (uint64_t)n, (uint64_t)prompt, 0, 0, 0);
    int32_t id = zpr_choose(r, s->logits, s->order, c->program->vocabulary, u);
    if (id == r->stop) break;
    shares[n] = log_share(s, id);
    ids[n++] = id;
  }
  r->lengths[prompt] = n;
}

static void write_tokens(const sampler *s, FILE *out, const int64_t *first) {
  const zpr_request *r = s->request;
  fputs("{\"tokens\": [", out);
  for (int64_t i = 0; i < r->n_prompts; i++) {
    fputs(i > 0 ? ", [" : "[", out);
    for (int64_t n = first[i]; n < r->lengths[i]; n++) fprintf(out, "%s%d", n > first[i] ? ", " : "", r->prompts[i][n]);
    fputs("]", out);
  }
}

static void write_shares(const sampler *s, FILE *out, const int64_t *first, double *const *shares) {
  const zpr_request *r = s->request;
  int digits = s->c->program->dtype == ZPK_F64 ? 17 : 9;
  fputs("], \"logprobs\": [", out);
  for (int64_t i = 0; i < r->n_prompts; i++) {
    fputs(i > 0 ? ", [" : "[", out);
    for (int64_t n = first[i]; n < r->lengths[i]; n++)
      fprintf(out, "%s%.*g", n > first[i] ? ", " : "", digits, shares[i][n]);
    fputs("]", out);
  }
  fprintf(out, "], \"prompt_tokens\": %lld, \"prompt_s\": %.9g, \"text_tokens\": %lld, \"text_s\": %.9g}\n",
          (long long)s->prompts, s->prompt_s, (long long)s->tokens, s->text_s);
}

void zpr_sample(zpr *c, const zpr_request *request, FILE *out) {
  sampler s = {.c = c, .request = request};
  int64_t *first = zpr_alloc(c, (size_t)request->n_prompts, sizeof *first);
  double **shares = zpr_alloc(c, (size_t)request->n_prompts, sizeof *shares);
  s.logits = zpr_alloc(c, (size_t)c->program->vocabulary, sizeof *s.logits);
  s.order = zpr_alloc(c, (size_t)c->program->vocabulary, sizeof *s.order);
  c->state->look = keep_row;
  c->state->look_arg = &s;
  for (int64_t i = 0; i < request->n_prompts; i++) {
    first[i] = request->lengths[i];
    shares[i] = zpr_alloc(c, (size_t)c->program->sequence, sizeof **shares);
    continue_text(&s, i, shares[i]);
  }
  c->state->look = NULL;
  write_tokens(&s, out, first);
  write_shares(&s, out, first, shares);
  for (int64_t i = 0; i < request->n_prompts; i++) free(shares[i]);
  free(shares);
  free(first);
  free(s.logits);
  free(s.order);
}
