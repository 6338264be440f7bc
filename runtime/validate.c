/* Validation: what the model makes of the first batches of the validation data, always the same ones. Losses and
 * accuracies are means over the batches, the exact match is a share of their samples. */
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

static void run_batches(zpr *c, zpr_data *data, int64_t batches) {
  for (int64_t b = 0; b < batches; b++) {
    zpr_data_load(c, data, b * c->program->batch);
    zpr_run_forwards(c);
  }
}

/* The matches of this replica's samples, on tensor ranks 0 of stages with the end of the model: else none. */
static void count_matches(validation *v, zpr_data *data, int64_t batches, double *labelled, double *exact) {
  zpr *c = v->c;
  int64_t n[2];
  zpr_matches_open(c, &v->matches, batches * c->program->batch / c->program->data);
  c->state->look = add_matches;
  c->state->look_arg = v;
  c->state->look_losses = zpr_losses_of_samples(c->program);
  c->state->look_row = -1;
  run_batches(c, data, batches);
  c->state->look = NULL;
  zpr_matches_count(&v->matches, &n[0], &n[1]);
  zpr_matches_close(&v->matches);
  *labelled = c->t == 0 ? (double)n[0] : 0;
  *exact = c->t == 0 ? (double)n[1] : 0;
}

bool zpr_validate(zpr *c, zpr_data *data) {
  enum { LABELLED = 1 + 2 * ZPR_MOST_LOSSES, EXACT, SUMS };
  const zpr_program *p = c->program;
  int64_t batches = p->validate_batches > 0 ? p->validate_batches : 1;
  double saved_loss = c->loss, sum[SUMS] = {0};
  zpr_tally saved[ZPR_MOST_LOSSES], mean[ZPR_MOST_LOSSES];
  int losses = zpr_n_losses(p);
  validation v = {.c = c};
  memcpy(saved, c->tally, sizeof saved);
  c->training = false;
  c->loss = 0;
  memset(c->tally, 0, sizeof c->tally);
  if (zpr_has_matches(p))
    count_matches(&v, data, batches, &sum[LABELLED], &sum[EXACT]);
  else
    run_batches(c, data, batches);
  zpr_collect_loss(c);
  if (c->t == 0) sum[0] = c->loss; /* 0 on stages without the end of the model */
  for (int i = 0; c->t == 0 && i < losses; i++) sum[1 + 2 * i] = c->tally[i].loss, sum[2 + 2 * i] = c->tally[i].right;
  zpr_world_sum(c, sum, SUMS);
  for (int i = 0; i < losses; i++)
    mean[i] = (zpr_tally){sum[1 + 2 * i] / (double)batches, sum[2 + 2 * i] / (double)batches};
  c->training = true;
  c->loss = saved_loss;
  memcpy(c->tally, saved, sizeof saved);
  double exact = sum[LABELLED] > 0 ? sum[EXACT] / sum[LABELLED] : 0;
  if (zpr_world_min(c, c->state->data_error.code[0] ? 0 : 1) == 0) return false;
  zpr_log_validation(c, c->step, sum[0] / (double)batches, mean, zpr_has_matches(p) ? &exact : NULL);
  return true;
}
