/* What values are called in the text of a kernel, and the words that explain the names: by what a value is for where
 * that shows (a result, a mean, a difference from it), else by its operation. */
#include <math.h>
#include <string.h>
#include "text.h"

typedef struct naming {
  const char *name, *words;
} naming;

/* None is the name of anything else in a kernel, with or without a number behind it. */
static const naming of_op[ZP_ROW_OP_COUNT] = {
    [ZP_ROW_ROWS] = {"x", "operand of the row"},
    [ZP_ROW_COLUMNS] = {"per_column", "operand of the column, for all rows"},
    [ZP_ROW_POSITION] = {"per_position", "operand of the row's position in its sample"},
    [ZP_ROW_KEEP] = {"dropout_factor", "0, or what makes up for the columns that are dropped"},
    [ZP_ROW_COS] = {"turn_cos", "cosine of the rotary angle"},
    [ZP_ROW_SIN] = {"turn_sin", "sine of the rotary angle, negative in the first column of a pair"},
    [ZP_ROW_NEG] = {"negated", "with the other sign"},
    [ZP_ROW_ADD] = {"added", "two values added"},
    [ZP_ROW_SUB] = {"difference", "one value less another"},
    [ZP_ROW_MUL] = {"product", "two values multiplied"},
    [ZP_ROW_DIV] = {"quotient", "one value divided by another"},
    [ZP_ROW_EXP] = {"exponential", "e to the power of a value"},
    [ZP_ROW_LOG] = {"logarithm", "natural logarithm"},
    [ZP_ROW_SQRT] = {"root", "square root"},
    [ZP_ROW_RSQRT] = {"inverse_root", "1 divided by the square root"},
    [ZP_ROW_TANH] = {"hyperbolic", "hyperbolic tangent"},
    [ZP_ROW_SIGMOID] = {"logistic", "between 0 and 1"},
    [ZP_ROW_ERF] = {"error_integral", "error function"},
    [ZP_ROW_SELECT_LE] = {"chosen", "one of two values, by a comparison"},
    [ZP_ROW_RSUM] = {"row_sum", "sum over the columns of the row"},
    [ZP_ROW_RMAX] = {"row_max", "largest column of the row"},
};

static const zp_row_value *argument(const zp_cuda_text *t, const zp_row_value *v, int k) {
  return &t->program->values.data[v->arg[k]];
}

/* A row's sum times 1 / its columns? */
static bool is_mean(const zp_cuda_text *t, const zp_row_value *v) {
  if (v->op != ZP_ROW_MUL) return false;
  for (int k = 0; k < 2; k++) {
    const zp_row_value *sum = argument(t, v, k), *share = argument(t, v, 1 - k);
    if (sum->op != ZP_ROW_RSUM || share->op != ZP_ROW_IMM) continue;
    return fabs(share->imm * (double)argument(t, sum, 0)->cols - 1) < 1e-12;
  }
  return false;
}

static naming naming_of(const zp_cuda_text *t, int index) {
  const zp_row_value *v = &t->program->values.data[index];
  for (int i = 0; i < t->program->sinks.len && zp_row_args(v->op) > 0; i++) {
    const zp_row_sink *sink = &t->program->sinks.data[i];
    if (sink->value == index && sink->kind == ZP_ROW_STORE)
      return (naming){"y", zp_format(t->arena, "result, in out[%d]", sink->index)};
  }
  if (is_mean(t, v)) return (naming){"mean", "over the columns of the row"};
  if (v->op == ZP_ROW_SUB && is_mean(t, argument(t, v, 1))) return (naming){"centered", "less the row's mean"};
  if (v->op == ZP_ROW_SUB && argument(t, v, 1)->op == ZP_ROW_RMAX)
    return (naming){"below_max", "less the row's largest column"};
  if (v->op == ZP_ROW_MUL && v->arg[0] == v->arg[1]) return (naming){"square", "a value times itself"};
  return of_op[v->op];
}

void zp_cuda_name_values(zp_cuda_text *t) {
  int n = t->program->values.len;
  t->names = ZP_NEW_ARRAY(t->arena, zp_cuda_name, n + 1);
  const char **base = ZP_NEW_ARRAY(t->arena, const char *, n + 1);
  for (int v = 0; v < n; v++) {
    if (t->program->values.data[v].op == ZP_ROW_IMM) continue;
    naming found = naming_of(t, v);
    int number = 1;
    for (int i = 0; i < v; i++) number += base[i] && strcmp(base[i], found.name) == 0;
    base[v] = found.name;
    t->names[v].words = found.words;
    t->names[v].name = number > 1 ? zp_format(t->arena, "%s_%d", found.name, number) : found.name;
  }
}

const char *zp_cuda_explain(zp_cuda_text *t, int v) {
  if (t->names[v].explained) return "";
  t->names[v].explained = true;
  return zp_format(t->arena, " /* %s */", t->names[v].words);
}
