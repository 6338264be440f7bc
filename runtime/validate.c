/* SPDX-License-Identifier: Apache-2.0 */
/* Validation: what the model makes of the first samples of the validation data, always the same ones, each once. Losses
 * and accuracies are means over the labels of all of them, as those of `zplan eval` are (denominators.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "judge.h"

typedef struct validation {
  zpr *c;
  zpr_matches matches;
} validation;

static void add_matches(void *arg, const zpr_looked *seen) {
  validation *v = arg;
  zpr_verdict *verdicts = zpr_judge(v->c, seen);
  zpr_matches_add(&v->matches, v->c->program, seen, verdicts);
  free(verdicts);
}

/* Every label weighs the same, whichever batch it is in: tallies are sums over labels[], which are counted here. */
static void run_batches(zpr *c, zpr_data *data, int64_t batches, int64_t *labels) {
  for (int64_t b = 0; b < batches; b++) {
    zpr_data_load(c, data, b * c->program->batch);
    for (int i = 0; i < zpr_n_losses(c->program); i++) {
      labels[i] += zpr_data_labels(data, i);
      c->token_weight[i] = 1;
    }
    zpr_run_forwards(c);
  }
}

/* The matches of this replica's samples, on tensor ranks 0 of stages with the end of the model: else none. */
static void count_matches(validation *v, zpr_data *data, int64_t batches, int64_t *labels, double *labelled,
                          double *exact) {
  zpr *c = v->c;
  int64_t n[2];
  zpr_matches_open(c, &v->matches, batches * c->program->batch / zpr_replicas(c->program));
  c->state->look = add_matches;
  c->state->look_arg = v;
  c->state->look_losses = zpr_losses_of_samples(c->program);
  c->state->look_row = -1;
  run_batches(c, data, batches, labels);
  c->state->look = NULL;
  zpr_matches_count(&v->matches, &n[0], &n[1]);
  zpr_matches_close(&v->matches);
  *labelled = c->t == 0 ? (double)n[0] : 0;
  *exact = c->t == 0 ? (double)n[1] : 0;
}

static void tell_samples(zpr *c, int64_t asked, int64_t once) {
  long long batch = c->program->batch;
  if (once == 0)
    zpr_log_note(c,
                 "warning: the validation data has fewer samples than a batch of %lld: some of them count more than "
                 "once",
                 batch);
  else if (once < asked)
    zpr_log_note(c, "validation: %lld samples, each once; no more of the data%s make %lld batches of %lld",
                 (long long)once, once % batch ? "" : " in whole batches", (long long)(asked / batch), batch);
}

/* How many samples a validation has; reported once. */
static int64_t samples_of(zpr *c, zpr_data *data) {
  const zpr_program *p = c->program;
  int64_t asked = (p->validate_batches > 0 ? p->validate_batches : 1) * p->batch, once = zpr_data_once(data, asked);
  if (zpr_data_end(data, once > 0 ? once : p->batch)) tell_samples(c, asked, once);
  return once > 0 ? once : p->batch;
}

/* Their means; the sum of the means, each times its weight. */
static double means_of(const zpr_program *p, const double *sum, const int64_t *labels, zpr_tally *mean) {
  double loss = NAN;
  for (int i = 0; i < zpr_n_losses(p); i++) {
    mean[i] = (zpr_tally){NAN, NAN};
    if (labels[i] == 0) continue;
    mean[i] = (zpr_tally){sum[2 * i] / (double)labels[i], sum[2 * i + 1] / (double)labels[i]};
    loss = (isnan(loss) ? 0 : loss) + mean[i].loss * zpr_loss_weight(p, i);
  }
  return loss;
}

bool zpr_validate(zpr *c, zpr_data *data) {
  enum { LABELLED = 2 * ZPR_MOST_LOSSES, EXACT, SUMS };
  const zpr_program *p = c->program;
  int64_t samples = samples_of(c, data), batches = (samples + p->batch - 1) / p->batch, labels[ZPR_MOST_LOSSES] = {0};
  double saved_loss = c->loss, sum[SUMS] = {0};
  zpr_tally saved[ZPR_MOST_LOSSES], mean[ZPR_MOST_LOSSES];
  validation v = {.c = c};
  memcpy(saved, c->tally, sizeof saved);
  c->training = false;
  memset(c->tally, 0, sizeof c->tally);
  if (zpr_has_matches(p))
    count_matches(&v, data, batches, labels, &sum[LABELLED], &sum[EXACT]);
  else
    run_batches(c, data, batches, labels);
  zpr_collect_loss(c);
  for (int i = 0; c->t == 0 && i < zpr_n_losses(p); i++) /* 0 on stages without the end of the model */
    sum[2 * i] = c->tally[i].loss, sum[2 * i + 1] = c->tally[i].right;
  zpr_world_sum(c, sum, SUMS);
  c->training = true;
  c->loss = saved_loss;
  memcpy(c->tally, saved, sizeof saved);
  double loss = means_of(p, sum, labels, mean), exact = sum[LABELLED] > 0 ? sum[EXACT] / sum[LABELLED] : NAN;
  if (zpr_world_min(c, c->state->data_error.code[0] ? 0 : 1) == 0) return false;
  zpr_log_validation(c, c->step, loss, mean, zpr_has_matches(p) ? &exact : NULL, samples);
  return true;
}
