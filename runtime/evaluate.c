/* Losses and accuracies of a model on all samples of the data, each once, in the order of the windows. Where several
 * losses have a label a sample, as the first and the last position of a span, also the exact match: the share of the
 * samples all of whose labels are right. */
#include <math.h>
#include <stdlib.h>
#include "infer.h"
#include "state.h"

/* What is counted over the labels of one loss. right: the largest logit is the label's, of equal ones that of the lower
 * class. */
typedef struct judged {
  int64_t labels, right;
  double loss; /* their sum */
} judged;

/* What losses with one label a sample say of a sample. */
typedef struct match {
  bool labelled, wrong;
} match;

typedef struct evaluator {
  zpr *c;
  int64_t samples, seen[ZPR_MOST_LOSSES]; /* how many there are; how many every loss has seen */
  judged of[ZPR_MOST_LOSSES];
  match *match; /* [samples] */
} evaluator;

/* What the logits of a row say of its label. */
typedef struct verdict {
  double loss;
  bool right;
} verdict;

static verdict judge_row(zpk_dtype dtype, const zpr_looked *seen, int64_t r) {
  int64_t best = 0, classes = seen->lengths ? seen->lengths[r] : seen->classes;
  double top = zpr_logit(dtype, seen, r, 0), sum = 0;
  for (int64_t v = 1; v < classes; v++) {
    double x = zpr_logit(dtype, seen, r, v);
    if (x > top) top = x, best = v;
  }
  for (int64_t v = 0; v < classes; v++) sum += exp(zpr_logit(dtype, seen, r, v) - top);
  return (verdict){top + log(sum) - zpr_logit(dtype, seen, r, seen->labels[r]), best == seen->labels[r]};
}

typedef struct judging {
  zpk_dtype dtype;
  const zpr_looked *seen;
  verdict *of; /* [rows] */
} judging;

static void judge_rows(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const judging *j = arg;
  for (int64_t r = begin; r < end; r++)
    if (j->seen->labels[r] >= 0) j->of[r] = judge_row(j->dtype, j->seen, r);
}

/* By all threads, as a vocabulary is long. Owned. */
static verdict *judge_all(zpr *c, const zpr_looked *seen) {
  judging j = {c->program->dtype, seen, zpr_alloc(c, (size_t)seen->rows, sizeof *j.of)};
  zpr_parallel(c, seen->rows, 1, judge_rows, &j);
  return j.of;
}

static double error_of_row(zpk_dtype dtype, const void *stat, int64_t r) {
  return dtype == ZPK_F64 ? ((const double *)stat)[3 * r] : (double)((const float *)stat)[3 * r];
}

/* Samples behind the last one come round again: they do not count. */
static void add_rows(void *arg, const zpr_looked *seen) {
  evaluator *e = arg;
  judged *to = &e->of[seen->loss];
  int64_t *at = &e->seen[seen->loss], rows = seen->rows / e->c->program->microbatch; /* of a sample */
  verdict *verdicts = seen->labels ? judge_all(e->c, seen) : NULL;
  for (int64_t r = 0; r < seen->rows; r++) {
    int64_t sample = *at + r / rows;
    if (sample >= e->samples || (seen->labels && seen->labels[r] < 0)) continue;
    to->labels++;
    to->loss += verdicts ? verdicts[r].loss : error_of_row(e->c->program->dtype, seen->logits, r);
    if (!verdicts) continue;
    to->right += verdicts[r].right;
    if (rows > 1) continue;
    e->match[sample].labelled = true;
    e->match[sample].wrong |= !verdicts[r].right;
  }
  *at += seen->rows / rows;
  free(verdicts);
}

static double share(int64_t some, int64_t all) { return (double)some / (double)(all > 0 ? all : 1); }

/* Losses that have one label a sample. */
static int losses_of_samples(const zpr_program *p) {
  int n = 0;
  for (int i = 0; i < p->n_losses; i++) n += p->losses[i].labels >= 0 && p->named[p->losses[i].labels].elements == 1;
  return n;
}

static void put_exact_match(const evaluator *e, FILE *out) {
  int64_t labelled = 0, exact = 0;
  for (int64_t s = 0; s < e->samples; s++) {
    labelled += e->match[s].labelled;
    exact += e->match[s].labelled && !e->match[s].wrong;
  }
  fprintf(out, ", \"exact_match\": %.17g", share(exact, labelled));
}

/* A squared error has rows, none of which is right or wrong. */
static void put_loss(const evaluator *e, int i, FILE *out) {
  const zpr_program *p = e->c->program;
  const judged *of = &e->of[i];
  fprintf(out, "%s\"%s\": {\"loss\": %.17g", i ? ", " : "", zpr_loss_name(p, i),
          of->loss / (double)(of->labels ? of->labels : 1));
  if (zpr_is_error(p, i))
    fprintf(out, ", \"rows\": %lld}", (long long)of->labels);
  else
    fprintf(out, ", \"accuracy\": %.17g, \"labels\": %lld}", share(of->right, of->labels), (long long)of->labels);
}

static void put_losses(const evaluator *e, FILE *out) {
  const zpr_program *p = e->c->program;
  int n = zpr_n_losses(p);
  fprintf(out, ", \"losses\": {");
  for (int i = 0; i < n; i++) put_loss(e, i, out);
  fprintf(out, "}");
}

void zpr_evaluate(zpr *c, FILE *out) {
  const zpr_program *p = c->program;
  evaluator e = {.c = c, .samples = zpr_data_windows(c->state->data)};
  e.match = zpr_alloc(c, (size_t)e.samples, sizeof *e.match);
  c->state->look = add_rows;
  c->state->look_arg = &e;
  c->state->look_row = -1;
  for (int64_t first = 0; first < e.samples; first += p->batch) {
    zpr_data_load(c, c->state->data, first);
    zpr_run_forwards(c);
  }
  c->state->look = NULL;
  double loss = 0;
  int64_t labels = 0, right = 0;
  for (int i = 0; i < zpr_n_losses(p); i++) {
    loss += zpr_loss_weight(p, i) * e.of[i].loss / (double)(e.of[i].labels ? e.of[i].labels : 1);
    if (zpr_is_error(p, i)) continue;
    labels += e.of[i].labels;
    right += e.of[i].right;
  }
  fprintf(out, "{\"loss\": %.17g", loss);
  if (labels > 0) fprintf(out, ", \"accuracy\": %.17g, \"tokens\": %lld", share(right, labels), (long long)labels);
  fprintf(out, ", \"samples\": %lld", (long long)e.samples);
  if (zpr_n_losses(p) > 1) put_losses(&e, out);
  if (losses_of_samples(p) > 1) put_exact_match(&e, out);
  fprintf(out, "}\n");
  free(e.match);
}
