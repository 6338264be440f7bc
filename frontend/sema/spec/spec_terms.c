/* SPDX-License-Identifier: Apache-2.0 */
/* What a buyer asks in the `plan` block: `objective`, `deadline`, `budget`. They are about a whole training, whose
 * length every `train` block gives, and about money, so they need a price: of this file, because list prices change
 * with the week. */
#include "spec_internal.h"

static const zp_word quantities[] = {{"step_time", ZP_MINIMIZE_STEP_TIME}, {"cost", ZP_MINIMIZE_COST}, {NULL, 0}};

void zp_read_objective(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base) {
  (void)env;
  zp_constraints *plan = base;
  const zp_expr *call = attr->value;
  const char *name = call && call->kind == ZP_EXPR_CALL ? zp_dotted_name(reader->arena, call->left) : NULL;
  const char *what = name && call->args.len == 1 ? zp_dotted_name(reader->arena, call->args.data[0].value) : NULL;
  bool minimizes = attr->op == ZP_ATTR_SET && what && strcmp(name, "minimize") == 0;
  for (const zp_word *w = quantities; minimizes && w->text; w++)
    if (strcmp(w->text, what) == 0) {
      plan->terms.objective = (zp_objective)w->value;
      return;
    }
  zp_diag *d = zp_report(reader->diags, ZP_Z0623, attr->span, "this objective is not built");
  zp_diag_help(d, "there are `objective = minimize(step_time)`, which holds where none is written, and "
                  "`objective = minimize(cost)`");
  if (what && strstr(what, "memory"))
    zp_diag_help(d, "`--pareto` sets memory against time; `memory <= 60%%` limits it");
}

void zp_place_terms(const zp_attrs *attrs, zp_terms *terms) {
  const struct {
    const char *key;
    zp_span *span;
  } keys[] = {
      {"objective", &terms->objective_span}, {"deadline", &terms->deadline_span}, {"budget", &terms->budget_span}};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    const zp_attr *attr = zp_find_attr(attrs, keys[i].key);
    *keys[i].span = attr ? attr->span : ZP_NO_SPAN;
  }
}

static void want_price(zp_diags *diags, const zp_cluster *cluster, zp_span span, const char *what) {
  const zp_device *device = &cluster->node.device;
  zp_diag *d = zp_report(diags, ZP_Z0629, span, "%s needs a price, and cluster `%s` has none", what, cluster->name);
  zp_diag_note(d, "the library of machines has no prices: they are those of your contract");
  if (cluster->energy_price > 0)
    zp_diag_help(d,
                 "`energy_price` needs the power of a device, which is not known of `%s`: give `power = 700W` in "
                 "the `cluster` block",
                 device->name);
  else
    zp_diag_help(d, "give `price = 2.5` (dollars of a device hour), or `energy_price = 0.12` (of a kilowatt-hour), in "
                    "the `cluster` block; with --machine: --price 2.5");
}

void zp_check_terms(zp_diags *diags, const zp_spec *spec) {
  const zp_terms *terms = &spec->plans.data[spec->plan].terms;
  const zp_cluster *cluster = &spec->cluster;
  bool priced = zp_cluster_price(cluster, cluster->ranks) > 0;
  if (priced || !cluster->name) return;
  if (terms->budget > 0)
    want_price(diags, cluster, terms->budget_span, "`budget`");
  else if (terms->objective == ZP_MINIMIZE_COST)
    want_price(diags, cluster, terms->objective_span, "`minimize(cost)`");
}
