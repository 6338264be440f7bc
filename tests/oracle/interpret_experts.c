/* SPDX-License-Identifier: Apache-2.0 */
/* Experts as plain loops: routing, dispatch, one product an expert, combine, and their backward nodes.
 *
 * Shape legend: B samples, S positions, E experts (of all ranks), L local experts, C slots of one expert, k choices of
 * a token, d columns. A choice is written as its slot: e * C + place, or -1 - e when expert e had no slot left. */
#include <math.h>
#include "interpret_internal.h"

/* ---- routing ---- */

/* One token's choices by falling score; of equal scores the lower expert. */
static void choose(const double *score, int64_t experts, int64_t k, int64_t *choice) {
  for (int64_t j = 0; j < k; j++) {
    choice[j] = -1;
    for (int64_t e = 0; e < experts; e++) {
      bool taken = false;
      for (int64_t i = 0; i < j; i++) taken |= choice[i] == e;
      if (!taken && (choice[j] < 0 || score[e] > score[choice[j]])) choice[j] = e;
    }
  }
}

static double log_sum_exp(const double *score, int64_t n) {
  double max = -INFINITY, sum = 0;
  for (int64_t i = 0; i < n; i++) max = fmax(max, score[i]);
  for (int64_t i = 0; i < n; i++) sum += exp(score[i] - max);
  return max + log(sum);
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static double sum_of_sigmoids(const double *score, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += sigmoid(score[i]);
  return sum;
}

/* An expert's part of all affinities to a token. */
static double probability(const zp_op_attr *attr, const double *score, int64_t e) {
  if (attr->sigmoid) return sigmoid(score[e]) / sum_of_sigmoids(score, attr->experts);
  return exp(score[e] - log_sum_exp(score, attr->experts));
}

static int64_t expert_of(double slot, int64_t slots) { return slot < 0 ? -1 - (int64_t)slot : (int64_t)slot / slots; }

/* Weights: the softmax of all scores, or of the chosen ones alone (arXiv 2401.04088, section 2.1). */
static void weigh(const zp_op_attr *attr, const double *score, const int64_t *choice, double *weight) {
  double chosen[ZP_MAX_TOP_K] = {0};
  for (int64_t j = 0; j < attr->top_k; j++) chosen[j] = score[choice[j]];
  if (attr->sigmoid) { /* arXiv 2412.19437, equations 12 to 15 */
    double sum = attr->normalize ? sum_of_sigmoids(chosen, attr->top_k) : 1;
    for (int64_t j = 0; j < attr->top_k; j++) weight[j] = sigmoid(chosen[j]) / sum;
    return;
  }
  double log_sum = attr->normalize ? log_sum_exp(chosen, attr->top_k) : log_sum_exp(score, attr->experts);
  for (int64_t j = 0; j < attr->top_k; j++) weight[j] = exp(chosen[j] - log_sum);
}

/* How many of a sample's first n choices went to expert e, dropped ones included. */
static int64_t count_choices(const zp_op_attr *attr, const double *slot, int64_t n, int64_t e) {
  int64_t count = 0;
  for (int64_t i = 0; i < n; i++) count += expert_of(slot[i], attr->slots) == e;
  return count;
}

static double share_of(const zp_op_attr *attr, const double *slot, int64_t positions, int64_t e) {
  int64_t n = positions * attr->top_k;
  return (double)count_choices(attr, slot, n, e) / (double)n;
}

/* The balancing loss of one sample as part of the step's loss: balance * E * sum over experts of share times mean
 * probability (arXiv 2101.03961, equations 4 to 6, shares over k choices). The sum over its positions times
 * loss_scale is its part of the mean over all samples, as every position has a label here. */
static double sample_balance(const zp_interpreter *in, const zp_op_attr *attr, const double *score, const double *slot,
                             int64_t positions) {
  double sum = 0;
  for (int64_t s = 0; s < positions; s++)
    for (int64_t e = 0; e < attr->experts; e++)
      sum += share_of(attr, slot, positions, e) * probability(attr, score + s * attr->experts, e);
  return attr->balance * (double)attr->experts * sum * in->loss_scale;
}

/* The two best of a group's n experts, together (arXiv 2412.19437, section 2.1.2, node-limited routing). */
static double group_score(const double *preferred, int64_t n) {
  double best = -INFINITY;
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < i; j++) best = fmax(best, preferred[i] + preferred[j]);
  return best;
}

/* Experts of the groups that a token does not keep come after all others. Of equal groups the lower one is kept. */
static void leave_groups(const zp_op_attr *attr, double *preferred) {
  int64_t n = attr->experts / attr->groups;
  double score[ZP_MAX_EXPERT_GROUPS];
  for (int64_t g = 0; g < attr->groups; g++) score[g] = group_score(preferred + g * n, n);
  for (int64_t g = 0; g < attr->groups; g++) {
    int64_t before = 0;
    for (int64_t o = 0; o < attr->groups; o++) before += score[o] > score[g] || (score[o] == score[g] && o < g);
    for (int64_t i = 0; i < n && before >= attr->top_groups; i++) preferred[g * n + i] = -INFINITY;
  }
}

/* What a token chooses by: scores, or affinities and the bias; bias NULL: none. */
static const double *preferences(const zp_op_attr *attr, const double *score, const double *bias, double *out) {
  if (!attr->sigmoid) return score;
  for (int64_t e = 0; e < attr->experts; e++) out[e] = sigmoid(score[e]) + (bias ? bias[e] : 0);
  if (attr->groups) leave_groups(attr, out);
  return out;
}

static void route_sample(const zp_op_attr *attr, const double *score, const double *bias, int64_t positions,
                         double *weight, double *slot) {
  int64_t k = attr->top_k, choice[ZP_MAX_TOP_K];
  double preferred[ZP_MAX_EXPERTS];
  for (int64_t s = 0; s < positions; s++) {
    choose(preferences(attr, score + s * attr->experts, bias, preferred), attr->experts, k, choice);
    weigh(attr, score + s * attr->experts, choice, weight + s * k);
    for (int64_t j = 0; j < k; j++) {
      int64_t used = count_choices(attr, slot, s * k + j, choice[j]);
      slot[s * k + j] = (double)(used < attr->slots ? choice[j] * attr->slots + used : -1 - choice[j]);
    }
  }
}

static void top_k_gate(zp_interpreter *in, const zp_node *node) {
  int64_t positions = zp_in_shape(in, node->in.data[0])->dim[1], k = node->attr.top_k;
  for (int64_t b = 0; b < in->microbatch; b++) {
    const double *score = zp_in_value(in, node, 0) + b * positions * node->attr.experts;
    double *slot = zp_out_value(in, node, 1) + b * positions * k;
    route_sample(&node->attr, score, node->in.len > 1 ? zp_in_value(in, node, 1) : NULL, positions,
                 zp_out_value(in, node, 0) + b * positions * k, slot);
    in->balance += sample_balance(in, &node->attr, score, slot, positions);
  }
}

/* d score = weight * (d weight - their mean under the weights), over the chosen or over all experts; the balancing loss
 * gives balance * E * p * (share - mean share under p), times the loss scale. Of sigmoids times 1 - sigmoid; their
 * weights, where not normalised, do not know of each other. `slots` are the whole sample's. */
static void gate_grad_token(const zp_interpreter *in, const zp_op_attr *attr, const double *score, const double *slot,
                            const double *d_weight, const double *slots, int64_t positions, double *d_score) {
  int64_t choice[ZP_MAX_TOP_K];
  double weight[ZP_MAX_TOP_K], mean = 0, mean_share = 0;
  bool apart = attr->sigmoid && !attr->normalize;
  for (int64_t j = 0; j < attr->top_k; j++) choice[j] = expert_of(slot[j], attr->slots);
  weigh(attr, score, choice, weight);
  for (int64_t j = 0; j < attr->top_k && !apart; j++) mean += weight[j] * d_weight[j];
  for (int64_t e = 0; e < attr->experts; e++)
    mean_share += share_of(attr, slots, positions, e) * probability(attr, score, e);
  for (int64_t e = 0; e < attr->experts; e++) {
    double p = probability(attr, score, e), above = share_of(attr, slots, positions, e) - mean_share;
    d_score[e] = attr->balance * (double)attr->experts * p * above * in->loss_scale;
    if (!attr->normalize) d_score[e] -= p * mean;
  }
  for (int64_t j = 0; j < attr->top_k; j++)
    d_score[choice[j]] += weight[j] * (d_weight[j] - (attr->normalize ? mean : 0));
  for (int64_t e = 0; e < attr->experts && attr->sigmoid; e++) d_score[e] *= 1 - sigmoid(score[e]);
}

static void top_k_gate_grad(zp_interpreter *in, const zp_node *node) {
  const zp_op_attr *attr = &node->attr;
  int64_t positions = zp_in_shape(in, node->in.data[0])->dim[1], k = attr->top_k, experts = attr->experts;
  for (int64_t t = 0; t < in->microbatch * positions; t++) {
    const double *slots = zp_in_value(in, node, 1) + t / positions * positions * k;
    gate_grad_token(in, attr, zp_in_value(in, node, 0) + t * experts, slots + t % positions * k,
                    zp_in_value(in, node, 2) + t * k, slots, positions, zp_out_value(in, node, 0) + t * experts);
  }
}

/* E * choices of an expert - all choices: above 0 where an expert has more than the mean. Divided by a power of two, so
 * that it is exact and at most 1. */
static void load_grad(zp_interpreter *in, const zp_node *node) {
  const zp_op_attr *attr = &node->attr;
  int64_t n = in->microbatch * zp_in_shape(in, node->in.data[0])->dim[1] * attr->top_k;
  double *grad = in->param_grad[node->param_grad.data[0]], scale = 1;
  while (scale < (double)(attr->experts * n)) scale *= 2;
  for (int64_t e = 0; e < attr->experts; e++)
    grad[e] += (double)(attr->experts * count_choices(attr, zp_in_value(in, node, 0), n, e) - n) / scale;
}

/* ---- tokens to slots and back ---- */

/* The slots of tensor `rows` [B, L, C, d], of which this rank may hold a share. */
typedef struct slot_rows {
  int64_t begin, count, d; /* first slot here, slots of a sample here, columns */
  const double *first;     /* sorted rows: where experts begin, [B, E]; else NULL */
  int64_t experts, slots;
} slot_rows;

/* `first`: the operand of sorted rows. */
static slot_rows slots_in(const zp_interpreter *in, const zp_node *node, int rows, int first) {
  const zp_tensor *t = &in->graph->tensors.data[rows];
  slot_rows r = {.count = t->shape.dim[1] * t->shape.dim[2], .d = t->shape.dim[3]};
  if (t->split_dim == 1) r.begin = in->rank * r.count;
  if (node->in.len <= first) return r;
  r.first = zp_in_value(in, node, first);
  r.experts = zp_in_shape(in, node->in.data[first])->dim[1], r.slots = node->attr.slots;
  return r;
}

/* Row of [B * L * C, d] that choice i of the micro-batch has; -1: dropped, or on another rank. Of sorted rows: how many
 * choices of the micro-batch come before it, by expert, then in their order. */
static int64_t row_of(const slot_rows *r, double slot, int64_t b) {
  if (r->first) return (int64_t)r->first[b * r->experts + (int64_t)slot / r->slots] + (int64_t)slot % r->slots;
  int64_t at = (int64_t)slot - r->begin;
  return slot < 0 || at < 0 || at >= r->count ? -1 : b * r->count + at;
}

/* Before the choices of sample b and expert e come those of lower experts, and of earlier samples. */
static void expert_rows(zp_interpreter *in, const zp_node *node) {
  const double *slot = zp_in_value(in, node, 0);
  int64_t E = node->attr.experts, n = zp_in_shape(in, node->in.data[0])->dim[1] * node->attr.top_k;
  for (int64_t b = 0; b < in->microbatch; b++)
    for (int64_t e = 0; e < E; e++) {
      int64_t before = count_choices(&node->attr, slot, b * n, e);
      for (int64_t lower = 0; lower < e; lower++) before += count_choices(&node->attr, slot, in->microbatch * n, lower);
      zp_out_value(in, node, 0)[b * E + e] = (double)before;
    }
}

static void dispatch(zp_interpreter *in, const zp_node *node) {
  slot_rows r = slots_in(in, node, node->out.data[0], 2);
  const double *x = zp_in_value(in, node, 0), *slot = zp_in_value(in, node, 1);
  double *y = zp_out_value(in, node, 0);
  int64_t positions = zp_in_shape(in, node->in.data[0])->dim[1], k = node->attr.top_k;
  for (int64_t i = 0; i < in->microbatch * r.count * r.d; i++) y[i] = 0;
  for (int64_t t = 0; t < in->microbatch * positions; t++)
    for (int64_t j = 0; j < k; j++) {
      int64_t row = row_of(&r, slot[t * k + j], t / positions);
      for (int64_t c = 0; c < r.d && row >= 0; c++) y[row * r.d + c] = x[t * r.d + c];
    }
}

/* out[token] = the sum of its slots' rows, times its weights where there are any. */
static void gather_slots(zp_interpreter *in, const zp_node *node, int rows, int first, const double *weight,
                         const double *slot, double *out) {
  slot_rows r = slots_in(in, node, rows, first);
  const double *y = in->value[rows];
  int64_t positions = zp_in_shape(in, node->out.data[0])->dim[1], k = node->attr.top_k;
  for (int64_t t = 0; t < in->microbatch * positions; t++)
    for (int64_t c = 0; c < r.d; c++) {
      double sum = 0;
      for (int64_t j = 0; j < k; j++) {
        int64_t row = row_of(&r, slot[t * k + j], t / positions);
        if (row >= 0) sum += (weight ? weight[t * k + j] : 1) * y[row * r.d + c];
      }
      out[t * r.d + c] = sum;
    }
}

static void combine(zp_interpreter *in, const zp_node *node) {
  gather_slots(in, node, node->in.data[0], 3, zp_in_value(in, node, 1), zp_in_value(in, node, 2),
               zp_out_value(in, node, 0));
}

static void dispatch_grad(zp_interpreter *in, const zp_node *node) {
  gather_slots(in, node, node->in.data[1], 2, NULL, zp_in_value(in, node, 0), zp_out_value(in, node, 0));
}

static void combine_grad(zp_interpreter *in, const zp_node *node) {
  slot_rows r = slots_in(in, node, node->in.data[0], 4);
  const double *y = zp_in_value(in, node, 0), *weight = zp_in_value(in, node, 1), *slot = zp_in_value(in, node, 2);
  const double *d_out = zp_in_value(in, node, 3);
  double *dy = zp_out_value(in, node, 0), *d_weight = zp_out_value(in, node, 1);
  int64_t positions = zp_in_shape(in, node->in.data[3])->dim[1], k = node->attr.top_k;
  for (int64_t i = 0; i < in->microbatch * r.count * r.d; i++) dy[i] = 0;
  for (int64_t t = 0; t < in->microbatch * positions; t++)
    for (int64_t j = 0; j < k; j++) {
      int64_t row = row_of(&r, slot[t * k + j], t / positions);
      d_weight[t * k + j] = 0;
      for (int64_t c = 0; c < r.d && row >= 0; c++) {
        d_weight[t * k + j] += y[row * r.d + c] * d_out[t * r.d + c];
        dy[row * r.d + c] = weight[t * k + j] * d_out[t * r.d + c];
      }
    }
}

/* ---- one product an expert ---- */

/* Row i of a group's [k, n] matrix, column j. */
static int64_t weight_at(bool trans, int64_t i, int64_t j, int64_t k, int64_t n) {
  return trans ? j * k + i : i * n + j;
}

/* The expert of row r of [B, L, C, d], or of sorted rows. */
static int64_t expert_of_row(const zp_interpreter *in, const zp_node *node, int64_t r) {
  const zp_shape *rows = zp_in_shape(in, node->in.data[0]);
  if (node->in.len < 3) return r / rows->dim[2] % rows->dim[1];
  const double *first = zp_in_value(in, node, 2);
  int64_t e = zp_in_shape(in, node->in.data[2])->dim[1] - 1;
  while ((int64_t)first[e] > r) e--;
  return e;
}

static void batched_matmul(zp_interpreter *in, const zp_node *node) {
  const zp_shape *x_shape = zp_in_shape(in, node->in.data[0]), *y_shape = zp_in_shape(in, node->out.data[0]);
  int64_t k = zp_shape_cols(x_shape), n = zp_shape_cols(y_shape), rows = zp_shape_rows(x_shape, in->microbatch);
  for (int64_t r = 0; r < rows; r++) {
    const double *x = zp_in_value(in, node, 0) + r * k;
    const double *w = zp_in_value(in, node, 1) + expert_of_row(in, node, r) * k * n;
    for (int64_t j = 0; j < n; j++) {
      double sum = 0;
      for (int64_t i = 0; i < k; i++) sum += x[i] * w[weight_at(node->attr.trans, i, j, k, n)];
      zp_out_value(in, node, 0)[r * n + j] = sum;
    }
  }
}

static void batched_matmul_dgrad(zp_interpreter *in, const zp_node *node) {
  const zp_shape *dy_shape = zp_in_shape(in, node->in.data[0]), *dx_shape = zp_in_shape(in, node->out.data[0]);
  int64_t n = zp_shape_cols(dy_shape), k = zp_shape_cols(dx_shape), rows = zp_shape_rows(dy_shape, in->microbatch);
  for (int64_t r = 0; r < rows; r++) {
    const double *dy = zp_in_value(in, node, 0) + r * n;
    const double *w = zp_in_value(in, node, 1) + expert_of_row(in, node, r) * k * n;
    for (int64_t i = 0; i < k; i++) {
      double sum = 0;
      for (int64_t j = 0; j < n; j++) sum += dy[j] * w[weight_at(node->attr.trans, i, j, k, n)];
      zp_out_value(in, node, 0)[r * k + i] = sum;
    }
  }
}

static void batched_matmul_wgrad(zp_interpreter *in, const zp_node *node) {
  const zp_shape *dy_shape = zp_in_shape(in, node->in.data[0]), *x_shape = zp_in_shape(in, node->in.data[1]);
  int64_t n = zp_shape_cols(dy_shape), k = zp_shape_cols(x_shape), rows = zp_shape_rows(dy_shape, in->microbatch);
  for (int64_t r = 0; r < rows; r++) {
    const double *dy = zp_in_value(in, node, 0) + r * n, *x = zp_in_value(in, node, 1) + r * k;
    double *dw = in->param_grad[node->param_grad.data[0]] + expert_of_row(in, node, r) * k * n;
    for (int64_t i = 0; i < k; i++)
      for (int64_t j = 0; j < n; j++) dw[weight_at(node->attr.trans, i, j, k, n)] += x[i] * dy[j];
  }
}

const zp_oracle zp_oracle_TOP_K_GATE = {.node = top_k_gate};
const zp_oracle zp_oracle_TOP_K_GATE_GRAD = {.node = top_k_gate_grad};
const zp_oracle zp_oracle_LOAD_GRAD = {.node = load_grad};
const zp_oracle zp_oracle_EXPERT_ROWS = {.node = expert_rows};
const zp_oracle zp_oracle_DISPATCH = {.node = dispatch};
const zp_oracle zp_oracle_DISPATCH_GRAD = {.node = dispatch_grad};
const zp_oracle zp_oracle_COMBINE = {.node = combine};
const zp_oracle zp_oracle_COMBINE_GRAD = {.node = combine_grad};
const zp_oracle zp_oracle_BATCHED_MATMUL = {.node = batched_matmul};
const zp_oracle zp_oracle_BATCHED_MATMUL_DGRAD = {.node = batched_matmul_dgrad};
const zp_oracle zp_oracle_BATCHED_MATMUL_WGRAD = {.node = batched_matmul_wgrad};
