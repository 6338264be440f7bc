/* SPDX-License-Identifier: Apache-2.0 */
/* Is every `eps` one that the precision can compute with? It keeps a division from being 0 / 0: one that is too small
 * does so in real numbers, and not in those of 32 bits. */
#include <float.h>
#include <math.h>
#include "spec_internal.h"

typedef struct eps_range {
  double least, most;
  const char *below; /* what happens below it */
} eps_range;

static bool is_f64(const zp_train *train) { return train->precision == ZP_PREC_F64; }

/* Backward cubes 1 / sqrt(x + eps), in a row of zeros eps^-1.5, which must be finite: times the row it would be NaN. */
static eps_range of_norms(const zp_train *train) {
  static const char below[] = "the gradient of a row of zeros would be 0 times infinity";
  return is_f64(train) ? (eps_range){7e-206, DBL_MAX, below} : (eps_range){2.1e-26, FLT_MAX, below};
}

/* Adafactor adds it to means of squares and divides by the root of two such means. Others add it to the root of one,
 * which is 0 below sqrt(FLT_MIN / (1 - beta2)), 3e-18 with Adam's beta2: a step by such a gradient is its part of eps,
 * and should be about one learning rate at most. */
static eps_range of_optimizer(const zp_train *train) {
  static const char squares[] = "rows and columns whose gradients are zero would have 0 times infinity as their step",
                    roots[] = "gradients whose squares are 0 would make steps of many learning rates, or 0 / 0";
  if (zp_optimizer_facts(train)->needs == ZP_NEEDS_STATISTICS)
    return is_f64(train) ? (eps_range){1e-290, DBL_MAX, squares} : (eps_range){1e-30, FLT_MAX, squares};
  return is_f64(train) ? (eps_range){1e-153, DBL_MAX, roots} : (eps_range){1e-18, FLT_MAX, roots};
}

static void check(zp_diags *diags, const zp_train *train, double eps, eps_range range, const char *of, zp_span span) {
  if (eps >= range.least && eps <= range.most) return;
  const char *precision = zp_precision_name(train->precision);
  zp_diag *d = zp_report(diags, ZP_Z0306, span, "`eps` of `%s` must be between %g and %.2g in precision \"%s\", not %g",
                         of, range.least, range.most, precision, eps);
  if (eps < range.least) zp_diag_note(d, "below, %s", range.below);
  if (!is_f64(train)) zp_diag_help(d, "write such a number, or set precision = \"fp64\"");
}

void zp_check_eps(zp_diags *diags, const zp_spec *spec) {
  const zp_train *train = &spec->train;
  for (int s = 0; s < spec->model->segments.len; s++) {
    const zp_graph *g = spec->model->segments.data[s].graph;
    for (int n = 0; n < g->nodes.len; n++) {
      const zp_node *node = &g->nodes.data[n];
      bool norm = node->op == ZP_OP_LAYER_NORM || node->op == ZP_OP_RMS_NORM || node->op == ZP_OP_L2_NORM;
      if (norm) check(diags, train, node->attr.eps, of_norms(train), zp_op_name(node->op), node->span);
    }
  }
  if (zp_optimizer_takes(zp_optimizer_facts(train), offsetof(zp_train, eps)))
    check(diags, train, train->eps, of_optimizer(train), zp_optimizer_name(train->optimizer), train->optimizer_span);
}
