/* What of a model is trained: `frozen = ["wte", "h.{}.*"]`, `trained = ["h.{}.ln*"]`. */
#include "spec_internal.h"

/* Patterns of names, in a list. */
static void read_patterns(zp_reader *reader, const zp_env *env, const zp_attr *attr, zp_name_patterns *to) {
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
  read_patterns(reader, env, attr, &((zp_train *)base)->frozen);
}

void zp_read_trained(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base) {
  read_patterns(reader, env, attr, &((zp_train *)base)->trained);
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

static bool is_frozen(const zp_spec *spec, int param) {
  const zp_train *train = &spec->train;
  const char *name = spec->model->params.data[param].name;
  if (zp_matches_some(&train->trained, name)) return false;
  bool all = train->frozen.len == 0 && train->trained.len > 0;
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
  check_matched(diags, spec->model, &train->frozen);
  check_matched(diags, spec->model, &train->trained);
  if (zp_diags_errors(diags) != before) return;
  for (int p = 0; p < spec->model->params.len; p++)
    if (is_frozen(spec, p)) zp_model_freeze(spec->model, p);
  if (zp_model_trained_parameters(spec->model) > 0) return;
  zp_diag *d = zp_report(diags, ZP_Z0304, train->frozen.data[0].span, "all parameters of the model are frozen");
  zp_diag_help(d, "name those that are trained: `trained = [\"...\"]`");
}
