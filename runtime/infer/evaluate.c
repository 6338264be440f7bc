/* SPDX-License-Identifier: Apache-2.0 */
/* Losses and accuracies of a model on all samples of the data, each once, in the order of the windows. Where several
 * losses have a label a sample, as the first and the last position of a span, also the exact match: the share of the
 * samples all of whose labels are right. */
#include <stdlib.h>
#include "infer.h"
#include "judge.h"
#include "state.h"

/* What is counted over the labels of one loss. */
typedef struct judged {
  int64_t labels, right;
  double loss; /* their sum */
} judged;

typedef struct evaluator {
  zpr *c;
  int64_t samples, seen[ZPR_MOST_LOSSES]; /* how many there are; how many every loss has seen */
  judged of[ZPR_MOST_LOSSES];
  zpr_matches matches;
} evaluator;

static double error_of_row(zpk_dtype dtype, const void *stat, int64_t r) {
  return dtype == ZPK_F64 ? ((const double *)stat)[3 * r] : (double)((const float *)stat)[3 * r];
}

/* Samples after the last one come round again: they do not count. */
static void add_rows(void *arg, const zpr_looked *seen) {
  evaluator *e = arg;
  judged *to = &e->of[seen->loss];
  int64_t *at = &e->seen[seen->loss], rows = seen->rows / e->c->program->microbatch; /* of a sample */
  zpr_verdict *verdicts = seen->labels ? zpr_judge(e->c, seen) : NULL;
  for (int64_t r = 0; r < seen->rows; r++) {
    int64_t sample = *at + r / rows;
    if (sample >= e->samples || (seen->labels && seen->labels[r] < 0)) continue;
    to->labels++;
    to->loss += verdicts ? verdicts[r].loss : error_of_row(e->c->program->dtype, seen->logits, r);
    to->right += verdicts && verdicts[r].right;
  }
  *at += seen->rows / rows;
  if (verdicts) zpr_matches_add(&e->matches, e->c->program, seen, verdicts);
  free(verdicts);
}

/* A mean over nothing is null: not 0, which is the best loss there is. */
static void put_mean(FILE *out, const char *name, double sum, int64_t n) {
  if (n > 0)
    fprintf(out, "\"%s\": %.17g", name, sum / (double)n);
  else
    fprintf(out, "\"%s\": null", name);
}

/* A squared error has rows, none of which is right or wrong. */
static void put_loss(const evaluator *e, int i, FILE *out) {
  const zpr_program *p = e->c->program;
  const judged *of = &e->of[i];
  fputs(i ? ", " : "", out);
  zpr_put_json(out, zpr_loss_name(p, i));
  fputs(": {", out);
  put_mean(out, "loss", of->loss, of->labels);
  if (zpr_is_error(p, i)) {
    fprintf(out, ", \"rows\": %lld}", (long long)of->labels);
    return;
  }
  fputs(", ", out);
  put_mean(out, "accuracy", (double)of->right, of->labels);
  fprintf(out, ", \"labels\": %lld}", (long long)of->labels);
}

static void put_losses(const evaluator *e, FILE *out) {
  const zpr_program *p = e->c->program;
  int n = zpr_n_losses(p);
  fprintf(out, ", \"losses\": {");
  for (int i = 0; i < n; i++) put_loss(e, i, out);
  fprintf(out, "}");
}

/* A loss without labels adds nothing, as in a step. */
static void put_total(const evaluator *e, FILE *out) {
  const zpr_program *p = e->c->program;
  double loss = 0;
  int64_t labels = 0, right = 0, counted = 0;
  bool has_labels = false;
  for (int i = 0; i < zpr_n_losses(p); i++) {
    const judged *of = &e->of[i];
    if (of->labels > 0) loss += zpr_loss_weight(p, i) * of->loss / (double)of->labels, counted = 1;
    if (zpr_is_error(p, i)) continue;
    has_labels = true;
    labels += of->labels;
    right += of->right;
  }
  fputs("{", out);
  put_mean(out, "loss", loss, counted);
  if (!has_labels) return;
  fputs(", ", out);
  put_mean(out, "accuracy", (double)right, labels);
  fprintf(out, ", \"tokens\": %lld", (long long)labels);
}

void zpr_evaluate(zpr *c, FILE *out) {
  const zpr_program *p = c->program;
  evaluator e = {.c = c, .samples = zpr_data_windows(c->state->data)};
  zpr_matches_open(c, &e.matches, e.samples);
  c->state->look = add_rows;
  c->state->look_arg = &e;
  c->state->look_row = -1;
  c->state->look_losses = ~0u;
  for (int64_t first = 0; first < e.samples; first += p->batch) {
    zpr_data_load(c, c->state->data, first);
    if (c->state->data_error.code[0]) zpr_fail(c, c->state->data_error.code, "%s", c->state->data_error.text);
    zpr_run_forwards(c);
  }
  c->state->look = NULL;
  put_total(&e, out);
  fprintf(out, ", \"samples\": %lld", (long long)e.samples);
  if (zpr_n_losses(p) > 1) put_losses(&e, out);
  if (zpr_has_matches(p)) {
    int64_t labelled, exact;
    zpr_matches_count(&e.matches, &labelled, &exact);
    fputs(", ", out);
    put_mean(out, "exact_match", (double)exact, labelled);
  }
  fprintf(out, "}\n");
  zpr_matches_close(&e.matches);
}
