/* SPDX-License-Identifier: Apache-2.0 */
#include "judge.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include "infer.h"

/* ---- rows ---- */

static zpr_verdict judge_row(zpk_dtype dtype, const zpr_looked *seen, int64_t r) {
  int64_t best = 0, classes = seen->lengths ? seen->lengths[r] : seen->classes;
  double top = zpr_logit(dtype, seen, r, 0), sum = 0;
  for (int64_t v = 1; v < classes; v++) {
    double x = zpr_logit(dtype, seen, r, v);
    if (x > top) top = x, best = v;
  }
  for (int64_t v = 0; v < classes; v++) sum += exp(zpr_logit(dtype, seen, r, v) - top);
  return (zpr_verdict){top + log(sum) - zpr_logit(dtype, seen, r, seen->labels[r]), best == seen->labels[r]};
}

typedef struct judging {
  zpk_dtype dtype;
  const zpr_looked *seen;
  zpr_verdict *of; /* [rows] */
} judging;

static void judge_rows(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const judging *j = arg;
  for (int64_t r = begin; r < end; r++)
    if (j->seen->labels[r] >= 0) j->of[r] = judge_row(j->dtype, j->seen, r);
}

/* By all threads, as a vocabulary is long. */
zpr_verdict *zpr_judge(zpr *c, const zpr_looked *seen) {
  judging j = {c->program->dtype, seen, zpr_alloc(c, (size_t)seen->rows, sizeof *j.of)};
  zpr_parallel(c, seen->rows, 1, judge_rows, &j);
  return j.of;
}

/* ---- samples ---- */

static bool has_label_a_sample(const zpr_program *p, int loss) {
  return p->n_losses > 0 && p->losses[loss].labels >= 0 && p->named[p->losses[loss].labels].elements == 1;
}

unsigned zpr_losses_of_samples(const zpr_program *p) {
  unsigned losses = 0;
  for (int i = 0; i < p->n_losses; i++) losses |= (unsigned)has_label_a_sample(p, i) << i;
  return losses;
}

bool zpr_has_matches(const zpr_program *p) {
  unsigned losses = zpr_losses_of_samples(p);
  return (losses & (losses - 1)) != 0;
}

void zpr_matches_open(zpr *c, zpr_matches *m, int64_t samples) {
  assert(samples >= 0);
  *m = (zpr_matches){.samples = samples, .of = zpr_alloc(c, (size_t)samples, sizeof *m->of)};
}

void zpr_matches_add(zpr_matches *m, const zpr_program *p, const zpr_looked *seen, const zpr_verdict *verdicts) {
  if (!has_label_a_sample(p, seen->loss)) return;
  int64_t *next = &m->seen[seen->loss];
  for (int64_t r = 0; r < seen->rows; r++, ++*next) {
    if (*next >= m->samples || seen->labels[r] < 0) continue;
    m->of[*next].labelled = true;
    m->of[*next].wrong |= !verdicts[r].right;
  }
}

void zpr_matches_count(const zpr_matches *m, int64_t *labelled, int64_t *exact) {
  *labelled = *exact = 0;
  for (int64_t s = 0; s < m->samples; s++) {
    *labelled += m->of[s].labelled;
    *exact += m->of[s].labelled && !m->of[s].wrong;
  }
}

void zpr_matches_close(zpr_matches *m) {
  free(m->of);
  *m = (zpr_matches){0};
}
