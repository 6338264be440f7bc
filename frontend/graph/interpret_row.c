/* The ROW ops, one row at a time, and their derivatives, each written straight from its formula. */
#include <assert.h>
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

static double function(const zp_fused_op *op, double x) {
  switch (op->op) {
  case ZP_OP_ADD_CONST: return x + op->attr.value;
  case ZP_OP_MUL_CONST: return x * op->attr.value;
  case ZP_OP_EXP: return exp(x);
  case ZP_OP_LOG: return log(x);
  case ZP_OP_SQRT: return sqrt(x);
  case ZP_OP_RSQRT: return 1 / sqrt(x);
  case ZP_OP_TANH: return tanh(x);
  case ZP_OP_SIGMOID: return sigmoid(x);
  case ZP_OP_RELU: return x > 0 ? x : 0;
  case ZP_OP_SILU: return x * sigmoid(x);
  case ZP_OP_CAST_BF16: return rounded(x, 8, -126, 0x1.FEp127);
  case ZP_OP_CAST_F16: return rounded(x, 11, -14, 65504);
  case ZP_OP_CAST_F32: return rounded(x, 24, -126, 0x1.FFFFFEp127);
  case ZP_OP_GELU: return op->attr.tanh_form ? x / 2 * (1 + tanh(gelu_tanh_inner(x))) : x * normal_cdf(x);
  default: assert(!"not a function of one number"); return NAN;
  }
}

static double gelu_slope(bool tanh_form, double x) {
  if (!tanh_form) return normal_cdf(x) + x * normal_pdf(x);
  double t = tanh(gelu_tanh_inner(x)), inner_slope = sqrt(2 / pi) * (1 + 3 * 0.044715 * x * x);
  return (1 + t) / 2 + x / 2 * (1 - t * t) * inner_slope;
}

static double slope(const zp_fused_op *op, double x) {
  switch (op->op) {
  case ZP_OP_ADD_CONST:
  case ZP_OP_CAST_BF16:
  case ZP_OP_CAST_F16:
  case ZP_OP_CAST_F32: return 1;
  case ZP_OP_MUL_CONST: return op->attr.value;
  case ZP_OP_EXP: return exp(x);
  case ZP_OP_LOG: return 1 / x;
  case ZP_OP_SQRT: return 0.5 / sqrt(x);
  case ZP_OP_RSQRT: return -0.5 / (x * sqrt(x));
  case ZP_OP_TANH: return 1 - tanh(x) * tanh(x);
  case ZP_OP_SIGMOID: return sigmoid(x) * (1 - sigmoid(x));
  case ZP_OP_RELU: return x > 0 ? 1 : 0;
  case ZP_OP_SILU: return sigmoid(x) * (1 + x * (1 - sigmoid(x)));
  case ZP_OP_GELU: return gelu_slope(op->attr.tanh_form, x);
  default: assert(!"not a function of one number"); return NAN;
  }
}

static double binary(zp_op op, double a, double b) {
  switch (op) {
  case ZP_OP_ADD: return a + b;
  case ZP_OP_SUB: return a - b;
  case ZP_OP_MUL: return a * b;
  default: return a / b;
  }
}

/* Slopes only read what zp_op_backward_reads promises: the oracle also proves that table. */
static double binary_slope(zp_op op, int operand, double a, double b) {
  switch (op) {
  case ZP_OP_ADD: return 1;
  case ZP_OP_SUB: return operand ? -1 : 1;
  case ZP_OP_MUL: return operand ? a : b;
  default: return operand ? -a / (b * b) : 1 / b;
  }
}

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

/* ---- dispatch ---- */

void zp_row_forward(const zp_row_place *place, const zp_fused_op *op, double *const arg[3], double *y) {
  switch (op->op) {
  case ZP_OP_LAYER_NORM:
  case ZP_OP_RMS_NORM: norm_forward(op, arg, y); return;
  case ZP_OP_SOFTMAX: softmax(op, arg[0], y); return;
  case ZP_OP_ROPE:
    memset(y, 0, sizeof *y * (size_t)op->cols);
    rope(place, op, arg[0], 1, y);
    return;
  case ZP_OP_DROPOUT:
    for (int64_t c = 0; c < op->cols; c++) y[c] = arg[0][c] * dropout_factor(place, op, c);
    return;
  default:
    for (int64_t c = 0; c < op->cols; c++)
      y[c] = op->n_arg == 2 ? binary(op->op, arg[0][c], arg[1][c]) : function(op, arg[0][c]);
  }
}

void zp_row_backward(const zp_row_place *place, const zp_fused_op *op, double *const arg[3], const double *dy,
                     double *const d_arg[3]) {
  switch (op->op) {
  case ZP_OP_LAYER_NORM:
  case ZP_OP_RMS_NORM: norm_backward(op, arg, dy, d_arg); return;
  case ZP_OP_SOFTMAX: softmax_backward(place, op, arg[0], dy, d_arg[0]); return;
  case ZP_OP_ROPE: rope(place, op, dy, -1, d_arg[0]); return;
  case ZP_OP_DROPOUT:
    for (int64_t c = 0; c < op->cols; c++) d_arg[0][c] += dy[c] * dropout_factor(place, op, c);
    return;
  default:
    for (int k = 0; k < op->n_arg; k++)
      for (int64_t c = 0; d_arg[k] && c < op->cols; c++)
        d_arg[k][c] += dy[c] * (op->n_arg == 2 ? binary_slope(op->op, k, arg[0][c], arg[1][c]) : slope(op, arg[0][c]));
  }
}
