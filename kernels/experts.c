/* SPDX-License-Identifier: Apache-2.0 */
/* Mixture of experts: which experts a token takes, its way to their slots and back. The experts' products are the
 * runtime's. What a gate decides is a function of one sample's scores alone. */
#include "clones.h"
#include <assert.h>
#include <math.h>
#include <string.h>
#include <zplan/zpk.h>

/* The k highest scores in falling order; of equal ones the lower expert. */
static void choose(const double *score, int64_t experts, int64_t k, int32_t *choice) {
  for (int64_t j = 0; j < k; j++) {
    int32_t best = -1;
    for (int32_t e = 0; e < experts; e++) {
      bool taken = false;
      for (int64_t i = 0; i < j; i++) taken |= choice[i] == e;
      if (!taken && (best < 0 || score[e] > score[best])) best = e;
    }
    choice[j] = best;
  }
}

/* Requires two or more numbers. */
static double sum_of_best_two(const double *x, int64_t n) {
  double best = fmax(x[0], x[1]), second = fmin(x[0], x[1]);
  for (int64_t i = 2; i < n; i++) {
    if (x[i] > best)
      second = best, best = x[i];
    else if (x[i] > second)
      second = x[i];
  }
  return best + second;
}

/* What is preferred of experts outside the groups that a token keeps becomes less than anything. */
static void leave_groups(const zpk_routing *r, double *preferred) {
  int64_t n = r->experts / r->groups;
  double score[ZPK_MAX_EXPERT_GROUPS];
  bool kept[ZPK_MAX_EXPERT_GROUPS] = {false};
  int32_t best[ZPK_MAX_EXPERT_GROUPS];
  for (int64_t g = 0; g < r->groups; g++) score[g] = sum_of_best_two(preferred + g * n, n);
  choose(score, r->groups, r->top_groups, best);
  for (int64_t i = 0; i < r->top_groups; i++) kept[best[i]] = true;
  for (int64_t e = 0; e < r->experts; e++)
    if (!kept[e / n]) preferred[e] = -INFINITY;
}

/* Numerators of the softmax over n scores, and their sum. */
static double exponentials(const double *score, int64_t n, double *out) {
  double max = score[0], sum = 0;
  for (int64_t i = 1; i < n; i++) max = fmax(max, score[i]);
  for (int64_t i = 0; i < n; i++) sum += out[i] = exp(score[i] - max);
  return sum;
}

/* Affinities before they are divided by their sum. */
static double affinities(const zpk_routing *r, const double *score, int64_t n, double *out) {
  double sum = 0;
  if (!r->sigmoid) return exponentials(score, n, out);
  for (int64_t i = 0; i < n; i++) sum += out[i] = 1 / (1 + exp(-score[i]));
  return sum;
}

/* Sigmoids of their own: weights that do not know of other experts. */
static bool are_apart(const zpk_routing *r) { return r->sigmoid && !r->normalize; }

static void weigh(const zpk_routing *r, const double *score, const int32_t *choice, double *weight) {
  double chosen[ZPK_MAX_TOP_K], all[ZPK_MAX_EXPERTS];
  for (int64_t j = 0; j < r->k; j++) chosen[j] = score[choice[j]];
  double sum = r->normalize ? affinities(r, chosen, r->k, weight) : affinities(r, score, r->experts, all);
  if (are_apart(r)) sum = 1;
  for (int64_t j = 0; j < r->k; j++) weight[j] = (r->normalize ? weight[j] : all[choice[j]]) / sum;
}

static int32_t expert_of(const zpk_routing *r, int32_t slot) { return slot < 0 ? -1 - slot : slot / (int32_t)r->slots; }

/* A sample's choices of every expert, dropped ones included. */
static void count_sample(const zpk_routing *r, const int32_t *slot, double *count) {
  for (int64_t e = 0; e < r->experts; e++) count[e] = 0;
  for (int64_t i = 0; i < r->S * r->k; i++) count[expert_of(r, slot[i])]++;
}

/* Softmax backward over the chosen or over all experts, and the gradient of the balancing loss
 * balance * E * sum of share * mean probability (arXiv 2101.03961, equation 4), whose shares are constants. Parts of
 * sums of sigmoids have the derivatives of a softmax, times 1 - sigmoid. */
static void gate_grad(const zpk_routing *r, const double *score, const int32_t *slot, const double *d_weight,
                      const double *share, double loss_scale, double *d_score) {
  double p[ZPK_MAX_EXPERTS], weight[ZPK_MAX_TOP_K], mean = 0, mean_share = 0;
  int32_t choice[ZPK_MAX_TOP_K] = {0};
  double sum = affinities(r, score, r->experts, p);
  for (int64_t j = 0; j < r->k; j++) choice[j] = expert_of(r, slot[j]);
  weigh(r, score, choice, weight);
  for (int64_t j = 0; j < r->k && !are_apart(r); j++) mean += weight[j] * d_weight[j];
  for (int64_t e = 0; e < r->experts; e++) mean_share += share[e] * p[e] / sum;
  for (int64_t e = 0; e < r->experts; e++) {
    d_score[e] = r->balance * (double)r->experts * loss_scale * p[e] / sum * (share[e] - mean_share);
    if (!r->normalize) d_score[e] -= p[e] / sum * mean;
  }
  for (int64_t j = 0; j < r->k; j++) d_score[choice[j]] += weight[j] * (d_weight[j] - (r->normalize ? mean : 0));
  for (int64_t e = 0; e < r->experts && r->sigmoid; e++) d_score[e] *= 1 - p[e];
}

enum { BLOCK = 256 }; /* columns whose sums are kept at once */

#define TEMPLATE "experts_template.h"
#include "every_dtype.h"

void zpk_top_k_gate(const zpk_routing *r, const void *score, const void *bias, void *weight, int32_t *slot,
                    int64_t begin, int64_t end) {
  assert(!bias || r->sigmoid);
  assert(!r->groups || (r->sigmoid && r->groups <= ZPK_MAX_EXPERT_GROUPS && r->experts % r->groups == 0 &&
                        r->experts >= 2 * r->groups && r->top_groups >= 1 && r->top_groups <= r->groups &&
                        r->k <= r->experts / r->groups * r->top_groups));
  assert(r->k >= 1 && r->k <= ZPK_MAX_TOP_K && r->k <= r->experts && r->experts <= ZPK_MAX_EXPERTS);
  assert(begin >= 0 && begin <= end && end <= r->B);
  ZPK_BY_DTYPE(r->dtype, top_k_gate, r, score, bias, weight, slot, begin, end);
}

void zpk_top_k_gate_grad(const zpk_routing *r, const void *score, const int32_t *slot, const void *d_weight,
                         double loss_scale, void *d_score, int64_t begin, int64_t end) {
  assert(!r->choices || r->ranks >= 1);
  assert(r->k >= 1 && r->k <= ZPK_MAX_TOP_K && r->k <= r->experts && r->experts <= ZPK_MAX_EXPERTS);
  assert(begin >= 0 && begin <= end && end <= r->B);
  ZPK_BY_DTYPE(r->dtype, top_k_gate_grad, r, score, slot, d_weight, loss_scale, d_score, begin, end);
}

void zpk_count_load(const zpk_routing *r, const int32_t *slot, int64_t *count) {
  int64_t n = r->B * r->S * r->k;
  assert(n >= 1 && r->experts >= 1 && r->experts <= ZPK_MAX_EXPERTS);
  for (int64_t i = 0; i < n; i++) count[expert_of(r, slot[i])]++;
}

void zpk_expert_rows(const zpk_routing *r, const int32_t *slot, int32_t *first) {
  int64_t choices = r->S * r->k, row = 0;
  assert(r->experts >= 1 && r->experts <= ZPK_MAX_EXPERTS && r->slots >= 1 && r->B * choices <= INT32_MAX);
  memset(first, 0, (size_t)(r->B * r->experts) * sizeof *first);
  for (int64_t i = 0; i < r->B * choices; i++) first[i / choices * r->experts + slot[i] / r->slots]++;
  for (int64_t e = 0; e < r->experts; e++)
    for (int64_t b = 0; b < r->B; b++) {
      int32_t n = first[b * r->experts + e];
      first[b * r->experts + e] = (int32_t)row;
      row += n;
    }
}

void zpk_count_choices(const zpk_routing *r, const int32_t *slot, void *count, int64_t begin, int64_t end) {
  assert(r->experts >= 1 && r->experts <= ZPK_MAX_EXPERTS && begin >= 0 && begin <= end && end <= r->B);
  ZPK_BY_DTYPE(r->dtype, count_choices, r, slot, count, begin, end);
}

void zpk_dispatch(const zpk_routing *r, const void *x, const int32_t *slot, void *out, int64_t begin, int64_t end) {
  assert(begin >= 0 && begin <= end && end <= r->B * r->S);
  ZPK_BY_DTYPE(r->dtype, dispatch, r, x, slot, out, begin, end);
}

void zpk_combine(const zpk_routing *r, const void *y, const void *weight, const int32_t *slot, void *out, int64_t begin,
                 int64_t end) {
  assert(begin >= 0 && begin <= end && end <= r->B * r->S);
  ZPK_BY_DTYPE(r->dtype, combine, r, y, weight, slot, out, begin, end);
}

void zpk_combine_grad(const zpk_routing *r, const void *y, const void *weight, const int32_t *slot, const void *d_out,
                      void *dy, void *d_weight, int64_t begin, int64_t end) {
  assert(begin >= 0 && begin <= end && end <= r->B * r->S);
  ZPK_BY_DTYPE(r->dtype, combine_grad, r, y, weight, slot, d_out, dy, d_weight, begin, end);
}
