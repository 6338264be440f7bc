/* SPDX-License-Identifier: Apache-2.0 */
/* What of a model is trained: `frozen = ["wte", "h.{}.*"]`, `trained = ["h.{}.ln*"]`, and the adapters of
 * `adapt = lora(rank = 16, alpha = 32, of = ["h.{}.attn.*"])`, alongside which nothing else is. */
#include "spec_internal.h"

#include <math.h>

void zp_read_patterns(zp_reader *reader, const zp_env *env, const zp_attr *attr, zp_name_patterns *to) {
  const zp_expr *list = attr->value;
  const char *key = attr->key.text;
  if (attr->op != ZP_ATTR_SET || attr->index.text || !list || list->kind != ZP_EXPR_LIST) {
    zp_diag *d = zp_report(reader->diags, ZP_Z0304, attr->span, "`%s` is a list of names of parameters", key);
    zp_diag_help(d, "for example `%s = [\"wte\", \"h.{}.attn.*\"]`", key);
    return;
  }
  for (int i = 0; i < list->args.len; i++) {
    const zp_expr *item = list->args.data[i].value;
    zp_name_pattern pattern = {.span = item->span};
    if (!zp_read_string(reader, env, item, key, &pattern.pattern)) continue;
    zp_push(reader->arena, to, pattern);
  }
  if (list->args.len == 0) {
    zp_diag *d = zp_report(reader->diags, ZP_Z0307, list->span, "`%s` names no parameter", key);
    zp_diag_help(d, "leave it out, or write for example `%s = [\"wte\"]`", key);
  }
}

void zp_read_frozen(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base) {
  zp_read_patterns(reader, env, attr, &((zp_train *)base)->frozen);
}

void zp_read_trained(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base) {
  zp_read_patterns(reader, env, attr, &((zp_train *)base)->trained);
}

/* ---- adapters ---- */

static void read_of(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base) {
  zp_read_patterns(reader, env, attr, &((zp_adapt *)base)->of);
}

static const zp_field lora_fields[] = {
    {"rank", ZP_FIELD_INT64, .offset = offsetof(zp_adapt, rank), .range = ZP_RANGE_ONE_OR_MORE,
     .meaning = "rank of the adapters", .example = "rank = 16", .missing = "required"},
    {"alpha", ZP_FIELD_REAL, .offset = offsetof(zp_adapt, alpha), .range = ZP_RANGE_POSITIVE,
     .meaning = "scale of the adapters times the rank (with `rslora` times its root)", .example = "alpha = 32",
     .missing = "the rank"},
    {"of", ZP_FIELD_CUSTOM, .read = read_of, .meaning = "weights that get adapters, by patterns of names",
     .example = "of = [\"w*\"]", .missing = "required"},
    {"dropout", ZP_FIELD_SHARE, .offset = offsetof(zp_adapt, dropout), .range = ZP_RANGE_BELOW_ONE,
     .meaning = "dropout of the adapters' inputs", .example = "dropout = 0.05"},
    {"rslora", ZP_FIELD_BOOL, .offset = offsetof(zp_adapt, by_root), .meaning = "scale by the root of the rank",
     .example = "rslora = true"},
    {"r", ZP_FIELD_FOREIGN, .note = "write `rank = ...`"},
    {"lora_alpha", ZP_FIELD_FOREIGN, .note = "write `alpha = ...`"},
    {"target_modules", ZP_FIELD_FOREIGN, .note = "write `of = [\"*attn*.weight\"]`: names of weights"},
    {"modules_to_save", ZP_FIELD_FOREIGN, .note = "write `trained = [...]` alongside `adapt`"},
    {"lora_dropout", ZP_FIELD_FOREIGN, .note = "write `dropout = ...`"},
    {"use_rslora", ZP_FIELD_FOREIGN, .note = "write `rslora = true`"},
    {"use_dora", ZP_FIELD_REFUSED, .note = "adapters have no magnitudes of their own"},
};
static const zp_function adapters[] = {{"lora", 0, ZP_SCHEMA("lora", lora_fields, 0), "low-rank adapters (LoRA)",
                                        "lora(rank = 16, alpha = 32, of = [\"*attn*.weight\"])"}};
const zp_functions zp_adapt_calls = ZP_FUNCTIONS(adapters);

void zp_read_adapt(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base) {
  static const char example[] = "adapt = lora(rank = 16, alpha = 32, of = [\"*attn*.weight\"])";
  int before = zp_diags_errors(reader->diags);
  zp_adapt read = {.span = attr->value ? attr->value->span : attr->span};
  if (attr->op != ZP_ATTR_SET || attr->index.text || !attr->value) {
    zp_diag *d = zp_report(reader->diags, ZP_Z0305, attr->span, "`adapt` is set with `=`");
    zp_diag_help(d, "for example `%s`", example);
    return;
  }
  if (!zp_read_call(reader, env, attr->value, "adapt", adapters, 1, &read)) return;
  if (zp_diags_errors(reader->diags) != before) return;
  if (read.rank == 0 || read.of.len == 0) {
    zp_diag *d = zp_report(reader->diags, ZP_Z0307, read.span, "`lora` needs %s",
                           read.rank == 0 ? "a rank" : "the weights that it is for");
    zp_diag_help(d, "for example `%s`", example);
    return;
  }
  if (read.alpha == 0) read.alpha = (double)read.rank;
  ((zp_train *)base)->adapt = read;
}

/* ---- with the model ---- */

static void report_unmatched(zp_diags *diags, const zp_model *model, const zp_name_pattern *pattern,
                             const char *wanted) {
  zp_diag *d = zp_report(diags, ZP_Z0304, pattern->span, "no %s has a name like `%s`", wanted, pattern->pattern);
  zp_diag_note(
      d,
      "names are %s: {} stands for the layer, whose number no pattern can tell apart; `*` stands for anything, "
      "`?` for one character",
      zp_some_names(model));
}

/* Is it a matrix with such a name? Vectors (norms, biases) are never meant by `of`. */
static bool is_meant(const zp_name_pattern *pattern, const zp_param *param) {
  return param->shape.rank >= 2 && zp_matches_pattern(pattern->pattern, param->name);
}

static void report_refused(zp_diags *diags, const zp_model *model, int param, const zp_adapt *adapt, zp_span span) {
  const char *why = zp_model_refuse_adapter(model, param, adapt->rank);
  if (why) {
    zp_diag *d = zp_report(diags, ZP_Z0304, span, "%s", why);
    zp_diag_help(d, "`of` names matrices that one product reads, or one embedding, with no dimension below the "
                    "adapter's rank");
  } else if (adapt->dropout > 0 && model->params.data[param].shape.rank > 2) {
    zp_diag *d = zp_report(diags, ZP_Z0304, span, "`%s` is of experts, whose adapters have no dropout",
                           model->params.data[param].name);
    zp_diag_help(d, "PEFT has none either: leave `dropout` out, or the experts");
  }
}

static void check_adapted(zp_diags *diags, const zp_model *model, const zp_adapt *adapt) {
  for (int i = 0; i < adapt->of.len; i++) {
    const zp_name_pattern *pattern = &adapt->of.data[i];
    bool any = false;
    for (int p = 0; p < model->params.len; p++) {
      if (!is_meant(pattern, &model->params.data[p])) continue;
      any = true;
      report_refused(diags, model, p, adapt, pattern->span);
    }
    if (!any) report_unmatched(diags, model, pattern, "matrix");
  }
}

static double scale_of(const zp_adapt *adapt) {
  double rank = (double)adapt->rank;
  return adapt->alpha / (adapt->by_root ? sqrt(rank) : rank);
}

static void adapt(zp_diags *diags, zp_spec *spec) {
  const zp_adapt *adapt = &spec->train.adapt;
  int before = zp_diags_errors(diags), n = spec->model->params.len;
  check_adapted(diags, spec->model, adapt);
  if (zp_diags_errors(diags) != before) return;
  for (int p = 0; p < n; p++) {
    bool meant = false;
    for (int i = 0; i < adapt->of.len; i++) meant |= is_meant(&adapt->of.data[i], &spec->model->params.data[p]);
    if (meant) zp_model_adapt(spec->model, p, adapt->rank, scale_of(adapt), adapt->dropout);
  }
  for (int s = 0; s < spec->model->segments.len; s++) zp_graph_infer_parts(spec->model->segments.data[s].graph);
}

static bool is_frozen(const zp_spec *spec, int param) {
  const zp_train *train = &spec->train;
  const char *name = spec->model->params.data[param].name;
  if (zp_model_is_adapter(spec->model, param) || zp_matches_some(&train->trained, name)) return false;
  bool all = train->adapt.rank > 0 || (train->frozen.len == 0 && train->trained.len > 0);
  return all || zp_matches_some(&train->frozen, name);
}

static void check_matched(zp_diags *diags, const zp_model *model, const zp_name_patterns *patterns) {
  for (int i = 0; i < patterns->len; i++) {
    bool any = false;
    for (int p = 0; p < model->params.len && !any; p++)
      any = zp_matches_pattern(patterns->data[i].pattern, model->params.data[p].name);
    if (!any) report_unmatched(diags, model, &patterns->data[i], "parameter");
  }
}

void zp_freeze(zp_diags *diags, zp_spec *spec) {
  const zp_train *train = &spec->train;
  int before = zp_diags_errors(diags);
  if (train->adapt.rank > 0 && train->frozen.len > 0) {
    zp_diag *d = zp_report(diags, ZP_Z0304, train->frozen.data[0].span, "`adapt` freezes all parameters of the model");
    zp_diag_also(d, train->adapt.span, "the adapters, which are trained");
    zp_diag_help(d, "leave `frozen` out; what is trained alongside the adapters is named by `trained`");
    return;
  }
  if (train->adapt.rank > 0) adapt(diags, spec);
  check_matched(diags, spec->model, &train->frozen);
  check_matched(diags, spec->model, &train->trained);
  if (zp_diags_errors(diags) != before) return;
  for (int p = 0; p < spec->model->params.len; p++)
    if (is_frozen(spec, p)) zp_model_freeze(spec->model, p);
  if (zp_model_trained_parameters(spec->model) > 0) return;
  zp_diag *d = zp_report(diags, ZP_Z0304, train->frozen.data[0].span, "all parameters of the model are frozen");
  zp_diag_help(d, "name those that are trained: `trained = [\"...\"]`, or add adapters: `adapt = lora(...)`");
}
