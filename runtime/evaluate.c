/* Loss and accuracy of a model on all samples of the data, each once, in the order of the windows. */
#include <math.h>
#include "infer.h"
#include "state.h"

typedef struct evaluator {
  zpr *c;
  int64_t sample, samples; /* the first one of the micro-batch in work; how many there are */
  int64_t tokens, right;   /* that have a label; whose largest logit is the label's, of equal ones the lower token's */
  double loss;             /* their sum */
} evaluator;

static void add_row(evaluator *e, const void *logits, int64_t first, int32_t label) {
  const zpr_program *p = e->c->program;
  int64_t best = 0;
  double top = zpr_logit(p->dtype, logits, first), sum = 0;
  for (int64_t v = 1; v < p->vocabulary; v++) {
    double x = zpr_logit(p->dtype, logits, first + v);
    if (x > top) top = x, best = v;
  }
  for (int64_t v = 0; v < p->vocabulary; v++) sum += exp(zpr_logit(p->dtype, logits, first + v) - top);
  e->loss += top + log(sum) - zpr_logit(p->dtype, logits, first + label);
  e->right += best == label;
  e->tokens++;
}

static int64_t labels_of_sample(const zpr_program *p) {
  for (int i = 0; i < p->n_named; i++)
    if (p->named[i].labels) return p->named[i].elements;
  return p->sequence;
}

/* Samples behind the last one come round again: they do not count. */
static void add_rows(void *arg, const void *logits, int64_t rows, int64_t V, const int32_t *labels) {
  evaluator *e = arg;
  int64_t S = labels_of_sample(e->c->program);
  for (int64_t r = 0; r < rows; r++)
    if (e->sample + r / S < e->samples && labels[r] >= 0) add_row(e, logits, r * V, labels[r]);
  e->sample += rows / S;
}

void zpr_evaluate(zpr *c, FILE *out) {
  evaluator e = {.c = c, .samples = zpr_data_windows(c->state->data)};
  c->state->look = add_rows;
  c->state->look_arg = &e;
  for (int64_t first = 0; first < e.samples; first += c->program->batch) {
    zpr_data_load(c, c->state->data, first);
    zpr_run_forwards(c);
  }
  c->state->look = NULL;
  double loss = e.loss / (double)(e.tokens > 0 ? e.tokens : 1);
  fprintf(out, "{\"loss\": %.17g, \"accuracy\": %.17g, \"tokens\": %lld, \"samples\": %lld}\n", loss,
          (double)e.right / (double)(e.tokens > 0 ? e.tokens : 1), (long long)e.tokens, (long long)e.samples);
}
