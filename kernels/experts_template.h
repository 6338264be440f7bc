/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens to the slots of experts and back, in one dtype: see experts.c. */

/* Row of the rank's [samples * n_slots, d] that a choice of a token of `sample` has; -1: dropped, or on another
 * rank. */
static int64_t NAME(row_of)(const zpk_routing *r, int32_t slot, int64_t sample) {
  if (r->first_row) return r->first_row[sample * r->experts + slot / r->slots] + slot % r->slots;
  int64_t at = slot - r->first_slot;
  return slot < 0 || at < 0 || at >= r->n_slots ? -1 : sample * r->n_slots + at;
}

/* Probabilities in double whatever the dtype: a few a token, and the choice must not depend on their rounding. */
static void NAME(to_double)(const ELEM *from, int64_t n, double *to) {
  for (int64_t i = 0; i < n; i++) to[i] = (double)GET(from[i]);
}

static void NAME(top_k_gate)(const zpk_routing *r, const ELEM *score, const ELEM *bias, ELEM *weight, int32_t *slot,
                             int64_t begin, int64_t end) {
  double token[ZPK_MAX_EXPERTS], preferred[ZPK_MAX_EXPERTS], w[ZPK_MAX_TOP_K];
  int32_t used[ZPK_MAX_EXPERTS], choice[ZPK_MAX_TOP_K];
  for (int64_t b = begin; b < end; b++) {
    memset(used, 0, (size_t)r->experts * sizeof *used);
    for (int64_t t = b * r->S; t < (b + 1) * r->S; t++) {
      NAME(to_double)(score + t * r->experts, r->experts, token);
      if (r->sigmoid) affinities(r, token, r->experts, preferred);
      for (int64_t e = 0; e < r->experts && bias; e++) preferred[e] += (double)GET(bias[e]);
      if (r->groups) leave_groups(r, preferred);
      choose(r->sigmoid ? preferred : token, r->experts, r->k, choice);
      weigh(r, token, choice, w);
      for (int64_t j = 0; j < r->k; j++) {
        int32_t e = choice[j];
        weight[t * r->k + j] = PUT((REAL)w[j]);
        slot[t * r->k + j] = used[e] < r->slots ? e * (int32_t)r->slots + used[e]++ : -1 - e;
      }
    }
  }
}

/* Share of a sample's choices that went to every expert. */
static void NAME(find_shares)(const zpk_routing *r, const int32_t *slot, int64_t sample, double *share) {
  double n = (double)(r->S * r->k) * (double)(r->choices ? r->ranks : 1);
  const REAL *count = r->choices;
  if (!count) count_sample(r, slot + sample * r->S * r->k, share);
  for (int64_t e = 0; e < r->experts; e++) {
    if (count) share[e] = 0;
    for (int64_t i = 0; count && i < r->ranks; i++) share[e] += (double)count[(i * r->B + sample) * r->experts + e];
    share[e] /= n;
  }
}

static void NAME(count_choices)(const zpk_routing *r, const int32_t *slot, REAL *count, int64_t begin, int64_t end) {
  double all[ZPK_MAX_EXPERTS];
  for (int64_t b = begin; b < end; b++) {
    count_sample(r, slot + b * r->S * r->k, all);
    for (int64_t e = 0; e < r->experts; e++) count[b * r->experts + e] = (REAL)all[e];
  }
}

static void NAME(top_k_gate_grad)(const zpk_routing *r, const ELEM *score, const int32_t *slot, const ELEM *d_weight,
                                  double loss_scale, ELEM *d_score, int64_t begin, int64_t end) {
  double token[ZPK_MAX_EXPERTS], share[ZPK_MAX_EXPERTS], d_token[ZPK_MAX_EXPERTS], d_w[ZPK_MAX_TOP_K];
  for (int64_t b = begin; b < end; b++) {
    NAME(find_shares)(r, slot, b, share);
    for (int64_t t = b * r->S; t < (b + 1) * r->S; t++) {
      NAME(to_double)(score + t * r->experts, r->experts, token);
      NAME(to_double)(d_weight + t * r->k, r->k, d_w);
      gate_grad(r, token, slot + t * r->k, d_w, share, loss_scale, d_token);
      for (int64_t e = 0; e < r->experts; e++) d_score[t * r->experts + e] = PUT((REAL)d_token[e]);
    }
  }
}

static void NAME(dispatch)(const zpk_routing *r, const ELEM *x, const int32_t *slot, ELEM *out, int64_t begin,
                           int64_t end) {
  for (int64_t t = begin; t < end; t++)
    for (int64_t j = 0; j < r->k; j++) {
      int64_t row = NAME(row_of)(r, slot[t * r->k + j], t / r->S);
      if (row >= 0) memcpy(out + row * r->d, x + t * r->d, (size_t)r->d * sizeof(ELEM));
    }
}

/* Columns in blocks, so that a sum is rounded to ELEM once. */
ZPK_CLONES static void NAME(combine)(const zpk_routing *r, const ELEM *restrict y, const ELEM *weight,
                                     const int32_t *slot, ELEM *restrict out, int64_t begin, int64_t end) {
  REAL sum[BLOCK];
  for (int64_t t = begin; t < end; t++)
    for (int64_t at = 0; at < r->d; at += BLOCK) {
      int64_t n = r->d - at < BLOCK ? r->d - at : BLOCK;
      ELEM *restrict to = out + t * r->d + at;
      for (int64_t c = 0; c < n; c++) sum[c] = 0;
      for (int64_t j = 0; j < r->k; j++) {
        int64_t row = NAME(row_of)(r, slot[t * r->k + j], t / r->S);
        if (row < 0) continue;
        const ELEM *restrict from = y + row * r->d + at;
        REAL w = weight ? GET(weight[t * r->k + j]) : 1;
        for (int64_t c = 0; c < n; c++) sum[c] += w * GET(from[c]);
      }
      for (int64_t c = 0; c < n; c++) to[c] = PUT(sum[c]);
    }
}

ZPK_CLONES static void NAME(combine_grad)(const zpk_routing *r, const ELEM *restrict y, const ELEM *weight,
                                          const int32_t *slot, const ELEM *restrict d_out, ELEM *restrict dy,
                                          ELEM *restrict d_weight, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; t++)
    for (int64_t j = 0; j < r->k; j++) {
      int64_t row = NAME(row_of)(r, slot[t * r->k + j], t / r->S);
      REAL sum = 0, w = GET(weight[t * r->k + j]);
      const ELEM *restrict g = d_out + t * r->d;
      for (int64_t c = 0; c < r->d && row >= 0; c++) {
        sum += GET(y[row * r->d + c]) * GET(g[c]);
        dy[row * r->d + c] = PUT(w * GET(g[c]));
      }
      d_weight[t * r->k + j] = PUT(sum);
    }
}
