/* SPDX-License-Identifier: Apache-2.0 */
/* Matmul, lookups, attention and the loss, with their backward nodes, as plain loops. Collectives are copies, as on one
 * tensor rank. Shape legend: T rows (B*S), k and n columns, d head size. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <zplan/sparse.h>
#include "interpret_internal.h"

static int64_t rows_of(const zp_interpreter *in, int tensor) {
  return zp_shape_rows(zp_in_shape(in, tensor), in->microbatch);
}
static int64_t cols_of(const zp_interpreter *in, int tensor) { return zp_shape_cols(zp_in_shape(in, tensor)); }

/* ---- matmul ---- */

static int64_t weight_at(bool trans, int64_t i, int64_t j, int64_t k, int64_t n) {
  return trans ? j * k + i : i * n + j;
}

static void matmul(zp_interpreter *in, const zp_node *node) {
  const double *x = zp_in_value(in, node, 0), *w = zp_in_value(in, node, 1);
  double *y = zp_out_value(in, node, 0);
  int64_t rows = rows_of(in, node->in.data[0]), k = cols_of(in, node->in.data[0]), n = cols_of(in, node->out.data[0]);
  for (int64_t t = 0; t < rows; t++)
    for (int64_t j = 0; j < n; j++) {
      double sum = 0;
      for (int64_t i = 0; i < k; i++) sum += x[t * k + i] * w[weight_at(node->attr.trans, i, j, k, n)];
      y[t * n + j] = sum;
    }
}

static void matmul_dgrad(zp_interpreter *in, const zp_node *node) {
  const double *dy = zp_in_value(in, node, 0), *w = zp_in_value(in, node, 1);
  double *dx = zp_out_value(in, node, 0);
  int64_t rows = rows_of(in, node->in.data[0]), n = cols_of(in, node->in.data[0]), k = cols_of(in, node->out.data[0]);
  for (int64_t t = 0; t < rows; t++)
    for (int64_t i = 0; i < k; i++) {
      double sum = 0;
      for (int64_t j = 0; j < n; j++) sum += dy[t * n + j] * w[weight_at(node->attr.trans, i, j, k, n)];
      dx[t * k + i] = sum;
    }
}

static void matmul_wgrad(zp_interpreter *in, const zp_node *node) {
  const double *dy = zp_in_value(in, node, 0), *x = zp_in_value(in, node, 1);
  double *dw = in->param_grad[node->param_grad.data[0]];
  int64_t rows = rows_of(in, node->in.data[0]), n = cols_of(in, node->in.data[0]), k = cols_of(in, node->in.data[1]);
  for (int64_t t = 0; t < rows; t++)
    for (int64_t i = 0; i < k; i++)
      for (int64_t j = 0; j < n; j++) dw[weight_at(node->attr.trans, i, j, k, n)] += x[t * k + i] * dy[t * n + j];
}

/* ---- lookups ---- */

/* The first row of the rank's share of a table. */
static int64_t first_row(const zp_interpreter *in, int table) {
  return in->graph->tensors.data[table].split_dim == 0 ? in->rank * zp_in_shape(in, table)->dim[0] : 0;
}

static void embedding(zp_interpreter *in, const zp_node *node) {
  const double *ids = zp_in_value(in, node, 0), *table = zp_in_value(in, node, 1);
  double *y = zp_out_value(in, node, 0);
  int64_t rows = rows_of(in, node->out.data[0]), n = cols_of(in, node->out.data[0]);
  int64_t vocabulary = zp_in_shape(in, node->in.data[1])->dim[0];
  for (int64_t t = 0; t < rows; t++) {
    int64_t id = (int64_t)ids[t] - first_row(in, node->in.data[1]);
    for (int64_t c = 0; c < n; c++) y[t * n + c] = id >= 0 && id < vocabulary ? table[id * n + c] : 0;
  }
}

static void embedding_grad(zp_interpreter *in, const zp_node *node) {
  const double *dy = zp_in_value(in, node, 0), *ids = zp_in_value(in, node, 1);
  int use = node->param_grad.data[0], table = in->graph->params.data[use].tensor;
  double *d_table = in->param_grad[use];
  int64_t rows = rows_of(in, node->in.data[0]), n = cols_of(in, node->in.data[0]);
  int64_t vocabulary = zp_in_shape(in, table)->dim[0];
  for (int64_t t = 0; t < rows; t++) {
    int64_t id = (int64_t)ids[t] - first_row(in, table);
    for (int64_t c = 0; c < n && id >= 0 && id < vocabulary; c++) d_table[id * n + c] += dy[t * n + c];
  }
}

static void position_grad(zp_interpreter *in, const zp_node *node) {
  const double *dy = zp_in_value(in, node, 0);
  double *d_table = in->param_grad[node->param_grad.data[0]];
  int64_t n = zp_shape_elements(zp_in_shape(in, node->in.data[0]), in->microbatch);
  int64_t per_sample = n / in->microbatch;
  for (int64_t i = 0; i < n; i++) d_table[i % per_sample] += dy[i];
}

/* ---- attention ---- */

/* One (sample, query head) pair and the shapes around it. */
typedef struct head {
  int64_t queries, keys, d, q_cols, kv_cols, q_at, kv_at, lse_at, heads;
  int64_t number; /* of the head in the model */
  bool causal;
  const zp_layout *layout;      /* NULL: dense */
  double scale, softcap, slope; /* slope: of ALiBi, 0: none */
  int64_t window;               /* how far a query sees, 0: all */
  int64_t length;               /* keys that are there; of one sequence queries, too */
  const double *document;       /* of every position of the sample; NULL: all are of one */
  bool cross;
  const zp_interpreter *random; /* of dropout, with the sample's number in the batch; NULL: none */
  uint64_t sample, stream;
  double rate;
  const double *bias; /* of the first bucket, one every `heads`; NULL: none */
  double *d_bias;     /* likewise */
  int64_t buckets, max_distance;
} head;

/* The number that the rank's head h has in the model. */
static int64_t number_of(const zp_interpreter *in, const zp_node *node, int64_t h) {
  const zp_tensor *q = &in->graph->tensors.data[node->in.data[0]];
  return q->split_dim == q->shape.rank - 1 ? h + in->rank * node->attr.heads : h;
}

/* ALiBi's slope of a head of the model: 2^(-8 k / n), k = 1 to n, for a power of two n of heads; of other numbers those
 * of the power below, then the odd k of the power above. */
static double slope_of(int64_t at, int64_t heads) {
  int64_t n = 1;
  if (heads == 0) return 0;
  while (2 * n <= heads) n *= 2;
  return at < n ? pow(2, -8 * (double)(at + 1) / (double)n) : pow(2, -8 * (double)(2 * (at - n) + 1) / (double)(2 * n));
}

static head head_at(const zp_interpreter *in, const zp_node *node, int64_t sample, int64_t h) {
  const zp_op_attr *attr = &node->attr;
  head at = {.queries = zp_in_shape(in, node->in.data[0])->dim[1],
             .keys = zp_in_shape(in, node->in.data[1])->dim[1],
             .cross = attr->cross,
             .max_distance = attr->max_distance,
             .d = attr->head_size,
             .heads = attr->heads,
             .causal = attr->causal,
             .layout = attr->layout,
             .scale = attr->scale,
             .window = attr->window,
             .softcap = attr->softcap,
             .number = number_of(in, node, h)};
  at.slope = slope_of(at.number, attr->alibi_heads);
  if (attr->rate > 0) {
    at.random = in;
    at.sample = in->first_sample + (uint64_t)sample;
    at.stream = (uint64_t)attr->stream;
    at.rate = attr->rate;
  }
  int lengths = zp_attention_lengths(node);
  at.length = lengths >= 0 ? (int64_t)in->value[lengths][sample] : at.keys;
  int documents = zp_attention_documents(node);
  if (documents >= 0) at.document = in->value[documents] + sample * at.queries;
  int bias = zp_attention_bias(node);
  if (bias >= 0) {
    at.bias = in->value[bias] + h;
    at.buckets = zp_in_shape(in, bias)->dim[0];
    if (node->param_grad.len > 0) at.d_bias = in->param_grad[node->param_grad.data[0]] + h;
  }
  at.q_cols = cols_of(in, node->in.data[0]);
  at.kv_cols = cols_of(in, node->in.data[1]);
  int64_t kv_head = h / (attr->heads / attr->kv_heads);
  at.q_at = sample * at.queries * at.q_cols + h * at.d;
  at.kv_at = sample * at.keys * at.kv_cols + kv_head * at.d;
  at.lse_at = sample * at.queries * attr->heads + h;
  return at;
}

static int64_t keys_of(const head *at, int64_t query) {
  if (query >= at->length && !at->cross) return 0;
  if (at->document && at->document[query] < 0) return 0;
  return at->causal ? query + 1 : at->length;
}

/* T5's bucket of a key (arXiv 1910.10683, section 2.1): keys after the query have the second half of them, where they
 * are seen; of a side half are single distances, the others grow with the logarithm up to max_distance. */
static int64_t bucket_of(const head *at, int64_t query, int64_t key) {
  int64_t side = at->causal ? at->buckets : at->buckets / 2, exact = side / 2, distance = llabs(key - query);
  int64_t first = key > query ? side : 0;
  if (distance < exact) return first + distance;
  double share = log((double)distance / (double)exact) / log((double)at->max_distance / (double)exact);
  return first + (int64_t)fmin((double)exact + floor(share * (double)(side - exact) + 1e-6), (double)(side - 1));
}

static double bias_of(const head *at, int64_t query, int64_t key) {
  return at->bias ? at->bias[bucket_of(at, query, key) * at->heads] : 0;
}

static double score(const head *at, const double *q, const double *k, int64_t i, int64_t j) {
  double sum = 0;
  if (at->layout && !zp_layout_sees(at->layout, at->number, i, j)) return -INFINITY;
  if (at->window && llabs(i - j) >= at->window) return -INFINITY;
  if (at->document && at->document[i] != at->document[j]) return -INFINITY;
  for (int64_t c = 0; c < at->d; c++) sum += q[at->q_at + i * at->q_cols + c] * k[at->kv_at + j * at->kv_cols + c];
  sum *= at->scale;
  if (at->softcap > 0) sum = at->softcap * tanh(sum / at->softcap);
  return sum - at->slope * (double)llabs(i - j) + bias_of(at, i, j);
}

/* The derivative of a score by its product, given the score. */
static double score_slope(const head *at, double score, int64_t i, int64_t j) {
  if (at->softcap == 0 || score == -INFINITY) return at->scale;
  double bent = (score + at->slope * (double)llabs(i - j) - bias_of(at, i, j)) / at->softcap;
  return at->scale * (1 - bent * bent);
}

/* What dropout multiplies a probability with: a key in four, and so a row of keys, begins at a multiple of four. */
static double kept(const head *at, int64_t i, int64_t j) {
  if (!at->random) return 1;
  int64_t row = at->number * at->queries + i, row_elements = (at->keys + 3) / 4 * 4;
  double u = zp_philox_uniform(at->random->seed, at->random->step, at->sample, at->stream, at->random->instance,
                               (uint64_t)(row * row_elements + j));
  return u >= at->rate ? 1 / (1 - at->rate) : 0;
}

static void attention_head(const head *at, const double *q, const double *k, const double *v, double *o, double *lse) {
  for (int64_t i = 0; i < at->queries; i++) {
    double max = -INFINITY, sum = 0, *out = o + at->q_at + i * at->q_cols;
    for (int64_t j = 0; j < keys_of(at, i); j++) max = fmax(max, score(at, q, k, i, j));
    for (int64_t j = 0; j < keys_of(at, i); j++) sum += exp(score(at, q, k, i, j) - max);
    double log_sum = lse[at->lse_at + i * at->heads] = keys_of(at, i) > 0 ? max + log(sum) : 0;
    for (int64_t c = 0; c < at->d; c++) out[c] = 0;
    for (int64_t j = 0; j < keys_of(at, i); j++)
      for (int64_t c = 0; c < at->d; c++)
        out[c] += kept(at, i, j) * exp(score(at, q, k, i, j) - log_sum) * v[at->kv_at + j * at->kv_cols + c];
  }
}

/* p = exp(s - lse), z dropout's factor: dv += z p do; ds = p (z do v - do o) scale; dq += ds k; dk += ds q. in: q, k,
 * v, o, lse, do. */
static void attention_head_grad(const head *at, double *const in[6], double *dq, double *dk, double *dv) {
  const double *q = in[0], *k = in[1], *v = in[2], *o = in[3], *lse = in[4], *d_o = in[5];
  for (int64_t i = 0; i < at->queries; i++) {
    int64_t qi = at->q_at + i * at->q_cols;
    double dot = 0;
    for (int64_t c = 0; c < at->d; c++) dot += d_o[qi + c] * o[qi + c];
    for (int64_t j = 0; j < keys_of(at, i); j++) {
      int64_t kj = at->kv_at + j * at->kv_cols;
      double s = score(at, q, k, i, j), p = exp(s - lse[at->lse_at + i * at->heads]), dp = 0;
      double factor = kept(at, i, j);
      for (int64_t c = 0; c < at->d; c++) dp += factor * d_o[qi + c] * v[kj + c];
      double ds = p * (dp - dot) * score_slope(at, s, i, j);
      if (at->d_bias) at->d_bias[bucket_of(at, i, j) * at->heads] += p * (dp - dot);
      for (int64_t c = 0; c < at->d; c++) {
        dv[kj + c] += factor * p * d_o[qi + c];
        dq[qi + c] += ds * k[kj + c];
        dk[kj + c] += ds * q[qi + c];
      }
    }
  }
}

static void attention(zp_interpreter *in, const zp_node *node) {
  for (int64_t sample = 0; sample < in->microbatch; sample++)
    for (int64_t h = 0; h < node->attr.heads; h++) {
      head at = head_at(in, node, sample, h);
      attention_head(&at, zp_in_value(in, node, 0), zp_in_value(in, node, 1), zp_in_value(in, node, 2),
                     zp_out_value(in, node, 0), zp_out_value(in, node, 1));
    }
}

static void attention_grad(zp_interpreter *in, const zp_node *node) {
  double *from[6];
  for (int i = 0; i < 6; i++) from[i] = zp_in_value(in, node, i);
  for (int i = 0; i < 3; i++) {
    int64_t n = zp_shape_elements(zp_in_shape(in, node->out.data[i]), in->microbatch);
    memset(zp_out_value(in, node, i), 0, sizeof(double) * (size_t)n);
  }
  for (int64_t sample = 0; sample < in->microbatch; sample++)
    for (int64_t h = 0; h < node->attr.heads; h++) {
      head at = head_at(in, node, sample, h);
      attention_head_grad(&at, from, zp_out_value(in, node, 0), zp_out_value(in, node, 1), zp_out_value(in, node, 2));
    }
}

/* ---- loss ---- */

/* The rank's columns of the vocabulary: `here` of its columns are logits, the rest is padding. */
typedef struct vocabulary {
  int64_t first, here, all; /* all: words of the model */
} vocabulary;

static vocabulary vocabulary_of(const zp_interpreter *in, int logits) {
  const zp_tensor *t = &in->graph->tensors.data[logits];
  int64_t cols = zp_shape_cols(&t->shape);
  if (t->split_dim != t->shape.rank - 1) return (vocabulary){0, cols, cols};
  int64_t first = in->rank * cols, left = t->full_dim - first;
  return (vocabulary){first, left < 0 ? 0 : left < cols ? left : cols, t->full_dim};
}

/* The classes of row t: as many as operand i says, where there is such. */
static vocabulary classes_of_row(const zp_interpreter *in, const zp_node *node, int i, int64_t t) {
  vocabulary v = vocabulary_of(in, node->in.data[0]);
  if (node->in.len <= i) return v;
  int64_t left = (int64_t)zp_in_value(in, node, i)[t] - v.first;
  v.here = left < 0 ? 0 : left < v.here ? left : v.here;
  return v;
}

/* max, sum of exp(x - max), logit of the label: -inf on the ranks that do not have it */
static void row_stats(const double *logits, vocabulary v, int64_t label, double stat[3]) {
  stat[0] = stat[2] = -INFINITY;
  stat[1] = 0;
  for (int64_t c = 0; c < v.here; c++) stat[0] = fmax(stat[0], logits[c]);
  for (int64_t c = 0; c < v.here; c++) stat[1] += exp(logits[c] - stat[0]);
  if (label >= v.first && label < v.first + v.here) stat[2] = logits[label - v.first];
}

static void ce_stats(zp_interpreter *in, const zp_node *node) {
  int64_t rows = rows_of(in, node->in.data[0]), n = cols_of(in, node->in.data[0]);
  const double *labels = zp_in_value(in, node, 1);
  for (int64_t t = 0; t < rows; t++)
    row_stats(zp_in_value(in, node, 0) + t * n, classes_of_row(in, node, 2, t), (int64_t)labels[t],
              zp_out_value(in, node, 0) + 3 * t);
}

/* Statistics [ranks][rows][3] of the parts of the vocabulary into those of all of it. */
static void join_stats(const double *stat, int64_t ranks, int64_t rows, int64_t t, double all[3]) {
  all[0] = all[2] = -INFINITY;
  all[1] = 0;
  for (int64_t r = 0; r < ranks; r++) {
    all[0] = fmax(all[0], stat[3 * (r * rows + t)]);
    all[2] = fmax(all[2], stat[3 * (r * rows + t) + 2]);
  }
  for (int64_t r = 0; r < ranks; r++) all[1] += stat[3 * (r * rows + t) + 1] * exp(stat[3 * (r * rows + t)] - all[0]);
}

static void ce_loss(zp_interpreter *in, const zp_node *node) {
  int64_t rows = zp_shape_elements(zp_in_shape(in, node->out.data[0]), in->microbatch);
  int64_t ranks = rows_of(in, node->in.data[0]) / rows;
  double *lse = zp_out_value(in, node, 0), all[3];
  for (int64_t t = 0; t < rows; t++) {
    join_stats(zp_in_value(in, node, 0), ranks, rows, t, all);
    lse[t] = all[0] + log(all[1]);
    in->loss += (lse[t] - all[2]) * in->loss_scale * node->attr.weight;
  }
}

static void cross_entropy(zp_interpreter *in, const zp_node *node) {
  int64_t rows = rows_of(in, node->in.data[0]), n = cols_of(in, node->in.data[0]);
  const double *labels = zp_in_value(in, node, 1);
  double total = 0, stat[3];
  for (int64_t t = 0; t < rows; t++) {
    row_stats(zp_in_value(in, node, 0) + t * n, classes_of_row(in, node, 2, t), (int64_t)labels[t], stat);
    total += stat[0] + log(stat[1]) - stat[2];
  }
  in->loss += total * in->loss_scale * node->attr.weight;
  *zp_out_value(in, node, 0) = total / (double)rows;
}

static void ce_grad(zp_interpreter *in, const zp_node *node) {
  const double *logits = zp_in_value(in, node, 0), *labels = zp_in_value(in, node, 1), *lse = zp_in_value(in, node, 2);
  double *d_logits = zp_out_value(in, node, 0);
  int64_t rows = rows_of(in, node->in.data[0]), n = cols_of(in, node->in.data[0]);
  double smoothing = node->attr.smoothing;
  for (int64_t t = 0; t < rows; t++) {
    vocabulary v = classes_of_row(in, node, 3, t);
    for (int64_t c = 0; c < n; c++) {
      double p = exp(logits[t * n + c] - lse[t]) * (1 + 2 * node->attr.z_loss * lse[t]);
      double target = smoothing / (double)v.all + (v.first + c == (int64_t)labels[t] ? 1 - smoothing : 0);
      d_logits[t * n + c] = c < v.here ? (p - target) * in->loss_scale * node->attr.weight : 0;
    }
  }
}

/* ---- squared errors ---- */

static double squared_error_of_row(const double *x, const double *target, int64_t n) {
  double sum = 0;
  for (int64_t c = 0; c < n; c++) sum += (x[c] - target[c]) * (x[c] - target[c]);
  return sum / (double)n;
}

/* The loss itself, or statistics of its rows. */
static void squared_error(zp_interpreter *in, const zp_node *node) {
  int64_t rows = rows_of(in, node->in.data[0]), n = cols_of(in, node->in.data[0]);
  double total = 0, *out = zp_out_value(in, node, 0);
  for (int64_t t = 0; t < rows; t++) {
    double of_row = squared_error_of_row(zp_in_value(in, node, 0) + t * n, zp_in_value(in, node, 1) + t * n, n);
    if (node->op == ZP_OP_SE_STATS) out[t * 3] = of_row, out[t * 3 + 1] = 1, out[t * 3 + 2] = 0;
    total += of_row;
  }
  if (node->op == ZP_OP_SE_STATS) return;
  in->loss += total * in->loss_scale * node->attr.weight;
  *out = total / (double)rows;
}

static void squared_error_grad(zp_interpreter *in, const zp_node *node) {
  int64_t count = zp_shape_elements(zp_in_shape(in, node->in.data[0]), in->microbatch);
  double factor = 2 * node->attr.value / (double)cols_of(in, node->in.data[0]) * in->loss_scale * node->attr.weight;
  for (int64_t i = 0; i < count; i++)
    zp_out_value(in, node, 0)[i] = factor * (zp_in_value(in, node, 0)[i] - zp_in_value(in, node, 1)[i]);
}

/* ---- views and collectives ---- */

/* Choices of other ranks of a context group: a model on one rank has none. */
static void of_a_group(zp_interpreter *in, const zp_node *node) {
  (void)in;
  (void)node;
  assert(false);
}

static void copy(zp_interpreter *in, const zp_node *node) {
  assert(node->attr.parts <= 1); /* among several ranks the caller makes the collectives */
  int64_t n = zp_shape_elements(zp_in_shape(in, node->out.data[0]), in->microbatch);
  memcpy(zp_out_value(in, node, 0), zp_in_value(in, node, 0), sizeof(double) * (size_t)n);
}

static void split(zp_interpreter *in, const zp_node *node) {
  int64_t rows = rows_of(in, node->in.data[0]), n = cols_of(in, node->in.data[0]), part = n / node->out.len;
  for (int i = 0; i < node->out.len; i++)
    for (int64_t t = 0; t < rows; t++)
      memcpy(zp_out_value(in, node, i) + t * part, zp_in_value(in, node, 0) + t * n + i * part,
             sizeof(double) * (size_t)part);
}

const zp_oracle zp_oracle_MATMUL = {.node = matmul};
const zp_oracle zp_oracle_MATMUL_DGRAD = {.node = matmul_dgrad};
const zp_oracle zp_oracle_MATMUL_WGRAD = {.node = matmul_wgrad};
const zp_oracle zp_oracle_EMBEDDING = {.node = embedding};
const zp_oracle zp_oracle_EMBEDDING_GRAD = {.node = embedding_grad};
const zp_oracle zp_oracle_POSITION_GRAD = {.node = position_grad};
const zp_oracle zp_oracle_ATTENTION = {.node = attention};
const zp_oracle zp_oracle_ATTENTION_GRAD = {.node = attention_grad};
const zp_oracle zp_oracle_CROSS_ENTROPY = {.node = cross_entropy};
const zp_oracle zp_oracle_CE_STATS = {.node = ce_stats};
const zp_oracle zp_oracle_CE_LOSS = {.node = ce_loss};
const zp_oracle zp_oracle_CE_GRAD = {.node = ce_grad};
const zp_oracle zp_oracle_SQUARED_ERROR = {.node = squared_error};
const zp_oracle zp_oracle_SE_STATS = {.node = squared_error};
const zp_oracle zp_oracle_SE_GRAD = {.node = squared_error_grad};
const zp_oracle zp_oracle_SPLIT = {.node = split};
const zp_oracle zp_oracle_ALL_REDUCE = {.node = copy};
const zp_oracle zp_oracle_ENTER = {.node = copy};
const zp_oracle zp_oracle_ALL_GATHER_SEQ = {.node = copy};
const zp_oracle zp_oracle_REDUCE_SCATTER_SEQ = {.node = copy};
const zp_oracle zp_oracle_SPREAD_SLOTS = {.node = copy};
const zp_oracle zp_oracle_RETURN_SLOTS = {.node = copy};
const zp_oracle zp_oracle_SPREAD_COUNTS = {.node = copy};
const zp_oracle zp_oracle_SPREAD_HEADS = {.node = copy}; /* of a group of one */
const zp_oracle zp_oracle_RETURN_HEADS = {.node = copy};
const zp_oracle zp_oracle_GATHER_STATS = {.node = copy};
const zp_oracle zp_oracle_GATHER_CHOICES = {.node = of_a_group};
const zp_oracle zp_oracle_GRAD_ALL_REDUCE = {.node = copy};
