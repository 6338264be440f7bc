/* SPDX-License-Identifier: Apache-2.0 */
/* The ROW ops, one row at a time, and their derivatives, each written straight from its formula. */
#include <math.h>
#include "interpret_internal.h"

static const double pi = 3.14159265358979323846;

/* ---- functions of one number, with their derivatives ---- */

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double normal_cdf(double x) { return 0.5 * (1 + erf(x / sqrt(2))); }
static double normal_pdf(double x) { return exp(-x * x / 2) / sqrt(2 * pi); }
/* Hendrycks and Gimpel 2016: gelu(x) ~ x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
static double gelu_tanh_inner(double x) { return sqrt(2 / pi) * (x + 0.044715 * x * x * x); }

/* The nearest number of so many bits, of two the even one; first rounded to f32, as those who convert do. smallest: the
 * exponent below which numbers are as far apart as there; largest: infinity begins half a step above it. */
static double rounded(double x, int bits, int smallest, double largest) {
  double narrow = (float)x;
  if (bits == 24 || narrow == 0 || !isfinite(narrow)) return narrow;
  int exponent = ilogb(narrow);
  double step = ldexp(1, (exponent > smallest ? exponent : smallest) - bits + 1);
  double near = nearbyint(narrow / step) * step;
  return fabs(near) > largest ? copysign(INFINITY, x) : near;
}

static double gelu(bool tanh_form, double x) {
  return tanh_form ? x / 2 * (1 + tanh(gelu_tanh_inner(x))) : x * normal_cdf(x);
}

static double gelu_slope(bool tanh_form, double x) {
  if (!tanh_form) return normal_cdf(x) + x * normal_pdf(x);
  double t = tanh(gelu_tanh_inner(x)), inner_slope = sqrt(2 / pi) * (1 + 3 * 0.044715 * x * x);
  return (1 + t) / 2 + x / 2 * (1 - t * t) * inner_slope;
}

/* An operation of one or two numbers x and y: its value, its slopes by x and by y. Slopes only read what
 * zp_op_backward_reads promises: the oracle also proves that table. */
#define FUNCTION(id, value_of, slope_x, slope_y)                                                                       \
  static double value_##id(const zp_op_attr *attr, double x, double y) {                                               \
    (void)attr, (void)x, (void)y;                                                                                      \
    return value_of;                                                                                                   \
  }                                                                                                                    \
  static double slope_##id(const zp_op_attr *attr, int operand, double x, double y) {                                  \
    (void)attr, (void)x, (void)y;                                                                                      \
    return operand == 0 ? (slope_x) : (slope_y);                                                                       \
  }                                                                                                                    \
  const zp_oracle zp_oracle_##id = {.node = zp_interpret_row_node, .value = value_##id, .slope = slope_##id};

/* clang-format off */
FUNCTION(ADD,       x + y,                                1,                                      1)
FUNCTION(SUB,       x - y,                                1,                                      -1)
FUNCTION(MUL,       x * y,                                y,                                      x)
FUNCTION(DIV,       x / y,                                1 / y,                                  -x / (y * y))
FUNCTION(ADD_CONST, x + attr->value,                      1,                                      0)
FUNCTION(MUL_CONST, x * attr->value,                      attr->value,                            0)
FUNCTION(EXP,       exp(x),                               exp(x),                                 0)
FUNCTION(LOG,       log(x),                               1 / x,                                  0)
FUNCTION(SQRT,      sqrt(x),                              0.5 / sqrt(x),                          0)
FUNCTION(RSQRT,     1 / sqrt(x),                          -0.5 / (x * sqrt(x)),                   0)
FUNCTION(TANH,      tanh(x),                              1 - tanh(x) * tanh(x),                  0)
FUNCTION(SIGMOID,   sigmoid(x),                           sigmoid(x) * (1 - sigmoid(x)),          0)
FUNCTION(RELU,      x > 0 ? x : 0,                        x > 0 ? 1 : 0,                          0)
FUNCTION(LEAKY_RELU, x > 0 ? x : attr->value * x,        x > 0 ? 1 : attr->value,                0)
FUNCTION(SILU,      x * sigmoid(x),                       sigmoid(x) * (1 + x * (1 - sigmoid(x))), 0)
FUNCTION(GELU,      gelu(attr->tanh_form, x),             gelu_slope(attr->tanh_form, x),         0)
FUNCTION(CAST_BF16, rounded(x, 8, -126, 0x1.FEp127),      1,                                      0)
FUNCTION(CAST_F16,  rounded(x, 11, -14, 65504),           1,                                      0)
FUNCTION(CAST_F32,  rounded(x, 24, -126, 0x1.FFFFFEp127), 1,                                      0)
/* clang-format on */

/* ---- whole rows ---- */

typedef struct moments {
  double mean, rstd;
} moments;

static moments row_moments(const zp_fused_op *op, const double *x) {
  moments m = {0, 0};
  double n = (double)op->cols, squares = 0;
  if (op->op == ZP_OP_LAYER_NORM)
    for (int64_t c = 0; c < op->cols; c++) m.mean += x[c] / n;
  for (int64_t c = 0; c < op->cols; c++) squares += (x[c] - m.mean) * (x[c] - m.mean) / n;
  m.rstd = 1 / sqrt(squares + op->attr.eps);
  return m;
}

static void norm_forward(const zp_fused_op *op, double *const arg[3], double *y) {
  moments m = row_moments(op, arg[0]);
  double offset = op->attr.value; /* of the weight */
  for (int64_t c = 0; c < op->cols; c++) {
    y[c] = (arg[0][c] - m.mean) * m.rstd * (arg[1][c] + offset);
    if (op->op == ZP_OP_LAYER_NORM) y[c] += arg[2][c];
  }
}

/* With h = (x - mean) rstd and g = dy w: dx = rstd (g - mean(g) - h mean(g h)); RMS norm has no mean of its own. */
static void norm_backward(const zp_fused_op *op, double *const arg[3], const double *dy, double *const d_arg[3]) {
  moments m = row_moments(op, arg[0]);
  double n = (double)op->cols, mean_g = 0, mean_gh = 0, offset = op->attr.value;
  for (int64_t c = 0; c < op->cols; c++) {
    double h = (arg[0][c] - m.mean) * m.rstd, g = dy[c] * (arg[1][c] + offset);
    if (op->op == ZP_OP_LAYER_NORM) mean_g += g / n;
    mean_gh += g * h / n;
  }
  for (int64_t c = 0; c < op->cols; c++) {
    double h = (arg[0][c] - m.mean) * m.rstd;
    if (d_arg[0]) d_arg[0][c] += m.rstd * (dy[c] * (arg[1][c] + offset) - mean_g - h * mean_gh);
    if (d_arg[1]) d_arg[1][c] += dy[c] * h;
    if (op->op == ZP_OP_LAYER_NORM && d_arg[2]) d_arg[2][c] += dy[c];
  }
}

/* With r = 1 / sqrt(sum(x x) + eps): y = r x, dx = r dy - r^3 x sum(dy x). */
static double inverse_length(const zp_fused_op *op, const double *x) {
  double squares = 0;
  for (int64_t c = 0; c < op->cols; c++) squares += x[c] * x[c];
  return 1 / sqrt(squares + op->attr.eps);
}

static void softmax(const zp_fused_op *op, const double *x, double *y) {
  double max = -INFINITY, sum = 0;
  for (int64_t c = 0; c < op->cols; c++) max = fmax(max, x[c]);
  for (int64_t c = 0; c < op->cols; c++) sum += exp(x[c] - max);
  for (int64_t c = 0; c < op->cols; c++) y[c] = exp(x[c] - max) / sum;
}

/* dx = y (dy - sum(y dy)) */
static void softmax_backward(const zp_row_place *place, const zp_fused_op *op, const double *x, const double *dy,
                             double *dx) {
  zp_arena *arena = place->in->graph->arena;
  zp_arena_mark mark = zp_arena_get_mark(arena);
  double *y = ZP_NEW_ARRAY(arena, double, op->cols), dot = 0;
  softmax(op, x, y);
  for (int64_t c = 0; c < op->cols; c++) dot += y[c] * dy[c];
  for (int64_t c = 0; c < op->cols; c++) dx[c] += y[c] * (dy[c] - dot);
  zp_arena_rewind(arena, mark);
}

static int64_t position_of(const zp_row_place *place) {
  return place->first_position + place->row % place->rows_per_sample;
}

/* What dropout multiplies element c of this row with. */
static double dropout_factor(const zp_row_place *place, const zp_fused_op *op, int64_t c) {
  const zp_interpreter *in = place->in;
  uint64_t sample = in->first_sample + (uint64_t)(place->row / place->rows_per_sample);
  uint64_t element = (uint64_t)(position_of(place) * place->logical_cols + place->first_column + c);
  double u = zp_philox_uniform(in->seed, in->step, sample, (uint64_t)op->attr.stream, in->instance, element);
  return u >= op->attr.rate ? 1 / (1 - op->attr.rate) : 0;
}

/* Adds the rotated row: pair i of every head turns by position * theta^(-2i / head_size), backwards for direction -1.
 * Pairs are (i, i + head_size/2), or neighbours when interleaved. */
static void rope(const zp_row_place *place, const zp_fused_op *op, const double *x, double direction, double *y) {
  int64_t size = op->attr.head_size;
  double position = (double)position_of(place);
  for (int64_t head = 0; head < op->cols; head += size)
    for (int64_t i = 0; i < size / 2; i++) {
      double angle = direction * position * pow(op->attr.theta, -2.0 * (double)i / (double)size);
      int64_t a = head + (op->attr.interleaved ? 2 * i : i), b = op->attr.interleaved ? a + 1 : a + size / 2;
      y[a] += x[a] * cos(angle) - x[b] * sin(angle);
      y[b] += x[b] * cos(angle) + x[a] * sin(angle);
    }
}

static void norm_row(const zp_row_place *place, const zp_fused_op *op, double *const arg[3], double *y) {
  (void)place;
  norm_forward(op, arg, y);
}

static void norm_row_grad(const zp_row_place *place, const zp_fused_op *op, double *const arg[3], const double *dy,
                          double *const d_arg[3]) {
  (void)place;
  norm_backward(op, arg, dy, d_arg);
}

static void l2_norm_row(const zp_row_place *place, const zp_fused_op *op, double *const arg[3], double *y) {
  (void)place;
  double r = inverse_length(op, arg[0]);
  for (int64_t c = 0; c < op->cols; c++) y[c] = r * arg[0][c];
}

static void l2_norm_row_grad(const zp_row_place *place, const zp_fused_op *op, double *const arg[3], const double *dy,
                             double *const d_arg[3]) {
  (void)place;
  double r = inverse_length(op, arg[0]), dot = 0;
  for (int64_t c = 0; c < op->cols; c++) dot += dy[c] * arg[0][c];
  for (int64_t c = 0; c < op->cols; c++) d_arg[0][c] += r * dy[c] - r * r * r * arg[0][c] * dot;
}

static void softmax_row(const zp_row_place *place, const zp_fused_op *op, double *const arg[3], double *y) {
  (void)place;
  softmax(op, arg[0], y);
}

static void softmax_row_grad(const zp_row_place *place, const zp_fused_op *op, double *const arg[3], const double *dy,
                             double *const d_arg[3]) {
  softmax_backward(place, op, arg[0], dy, d_arg[0]);
}

static void rope_row(const zp_row_place *place, const zp_fused_op *op, double *const arg[3], double *y) {
  memset(y, 0, sizeof *y * (size_t)op->cols);
  rope(place, op, arg[0], 1, y);
}

static void rope_row_grad(const zp_row_place *place, const zp_fused_op *op, double *const arg[3], const double *dy,
                          double *const d_arg[3]) {
  (void)arg;
  rope(place, op, dy, -1, d_arg[0]);
}

static void dropout_row(const zp_row_place *place, const zp_fused_op *op, double *const arg[3], double *y) {
  for (int64_t c = 0; c < op->cols; c++) y[c] = arg[0][c] * dropout_factor(place, op, c);
}

static void dropout_row_grad(const zp_row_place *place, const zp_fused_op *op, double *const arg[3], const double *dy,
                             double *const d_arg[3]) {
  (void)arg;
  for (int64_t c = 0; c < op->cols; c++) d_arg[0][c] += dy[c] * dropout_factor(place, op, c);
}

const zp_oracle zp_oracle_LAYER_NORM = {.node = zp_interpret_row_node, .row = norm_row, .row_grad = norm_row_grad};
const zp_oracle zp_oracle_RMS_NORM = {.node = zp_interpret_row_node, .row = norm_row, .row_grad = norm_row_grad};
const zp_oracle zp_oracle_L2_NORM = {.node = zp_interpret_row_node, .row = l2_norm_row, .row_grad = l2_norm_row_grad};
const zp_oracle zp_oracle_SOFTMAX = {.node = zp_interpret_row_node, .row = softmax_row, .row_grad = softmax_row_grad};
const zp_oracle zp_oracle_ROPE = {.node = zp_interpret_row_node, .row = rope_row, .row_grad = rope_row_grad};
const zp_oracle zp_oracle_DROPOUT = {.node = zp_interpret_row_node, .row = dropout_row, .row_grad = dropout_row_grad};

/* ---- any of them ---- */

void zp_row_forward(const zp_row_place *place, const zp_fused_op *op, double *const arg[3], double *y) {
  const zp_oracle *oracle = zp_oracle_get(op->op);
  if (oracle->row) {
    oracle->row(place, op, arg, y);
    return;
  }
  for (int64_t c = 0; c < op->cols; c++) y[c] = oracle->value(&op->attr, arg[0][c], op->n_arg == 2 ? arg[1][c] : NAN);
}

void zp_row_backward(const zp_row_place *place, const zp_fused_op *op, double *const arg[3], const double *dy,
                     double *const d_arg[3]) {
  const zp_oracle *oracle = zp_oracle_get(op->op);
  if (oracle->row_grad) {
    oracle->row_grad(place, op, arg, dy, d_arg);
    return;
  }
  for (int k = 0; k < op->n_arg; k++)
    for (int64_t c = 0; d_arg[k] && c < op->cols; c++)
      d_arg[k][c] += dy[c] * oracle->slope(&op->attr, k, arg[0][c], op->n_arg == 2 ? arg[1][c] : NAN);
}
