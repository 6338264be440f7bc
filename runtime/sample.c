/* Texts that a model makes: token after token, each by a forward pass over the whole sample, whose positions behind the
 * text hold zeros that no causal attention sees. */
#include <math.h>
#include <stdlib.h>
#include "device.h"
#include "infer.h"
#include "state.h"

typedef struct sampler {
  zpr *c;
  const zpr_request *request;
  int64_t row; /* whose logits are wanted */
  double *logits;
  int32_t *order;
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

int32_t zpr_choose(const zpr_request *r, double *logits, int32_t *order, int64_t vocabulary, double u) {
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

static void continue_text(sampler *s, int64_t prompt, FILE *out) {
  zpr *c = s->c;
  const zpr_request *r = s->request;
  int32_t *ids = r->prompts[prompt];
  int64_t n = r->lengths[prompt], end = n + r->new_tokens;
  if (end > c->program->sequence) end = c->program->sequence;
  fputs("[", out);
  for (bool first = true; n < end; first = false) {
    load(c, ids, n);
    s->row = n - 1;
    zpr_run_forwards(c);
    double u = zpk_philox_uniform((uint64_t)r->seed, (uint64_t)n, (uint64_t)prompt, 0, 0, 0);
    int32_t id = zpr_choose(r, s->logits, s->order, c->program->vocabulary, u);
    if (id == r->stop) break;
    fprintf(out, "%s%d", first ? "" : ", ", id);
    ids[n++] = id;
  }
  fputs("]", out);
}

void zpr_sample(zpr *c, const zpr_request *request, FILE *out) {
  sampler s = {.c = c, .request = request};
  s.logits = zpr_alloc(c, (size_t)c->program->vocabulary, sizeof *s.logits);
  s.order = zpr_alloc(c, (size_t)c->program->vocabulary, sizeof *s.order);
  c->state->look = keep_row;
  c->state->look_arg = &s;
  fputs("{\"tokens\": [", out);
  for (int64_t i = 0; i < request->n_prompts; i++) {
    if (i > 0) fputs(", ", out);
    continue_text(&s, i, out);
  }
  fputs("]}\n", out);
  c->state->look = NULL;
  free(s.logits);
  free(s.order);
}
