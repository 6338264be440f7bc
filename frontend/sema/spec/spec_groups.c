/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of parameters in `train`: groups = [group("wte", lr_factor = 0.1), group("*.bias", weight_decay = 0)]. */
#include <zplan/buf.h>
#include <zplan/recipe.h>
#include "spec_internal.h"

/* Only what is written counts, and what is written is not negative. */
#define UNWRITTEN (-1.0)

static const zp_word muon_words[] = {{"adamw", ZP_MUON_NO}, {"muon", ZP_MUON_YES}, {NULL, 0}};

static void read_muon(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base) {
  int word;
  if (zp_read_word(reader, env, attr->value, "optimizer", muon_words, &word))
    ((zp_param_group *)base)->muon = (zp_muon_choice)word;
}

static const zp_field group_fields[] = {
    {"pattern", ZP_FIELD_STRING, .offset = offsetof(zp_param_group, pattern),
     .meaning = "names of parameters, with * and ?", .example = "pattern = \"w*\"", .missing = "required"},
    {"lr_factor", ZP_FIELD_REAL, .offset = offsetof(zp_param_group, lr_factor), .range = ZP_RANGE_NOT_NEGATIVE,
     .meaning = "factor of the learning rate", .example = "lr_factor = 0.1"},
    {"weight_decay", ZP_FIELD_REAL, .offset = offsetof(zp_param_group, weight_decay), .range = ZP_RANGE_NOT_NEGATIVE,
     .meaning = "weight decay instead of the optimizer's", .example = "weight_decay = 0", .missing = "the optimizer's"},
    {"optimizer", ZP_FIELD_CUSTOM, .read = read_muon, .words = muon_words,
     .meaning = "with muon: which of the two updates the group takes", .example = "optimizer = \"adamw\"",
     .missing = "muon for matrices of layers, else adamw"},
    {"lr", ZP_FIELD_FOREIGN, .note = "a group has a factor of the optimizer's learning rate: `lr_factor = 0.1`"},
};
static const zp_param_group group_unwritten = {.lr_factor = 1, .weight_decay = UNWRITTEN};
static const zp_function group_functions[] = {{"group", 0, ZP_SCHEMA_WITH("group", group_fields, 1, &group_unwritten),
                                               "parameters by a pattern of their names",
                                               "group(\"*.bias\", weight_decay = 0)"}};
const zp_functions zp_group_calls = ZP_FUNCTIONS(group_functions);

static void read_group(zp_reader *reader, const zp_env *env, const zp_expr *expr, zp_train *train) {
  int before = zp_diags_errors(reader->diags);
  zp_param_group group = group_unwritten;
  group.span = expr->span;
  if (!zp_read_call(reader, env, expr, "groups", group_functions, 1, &group)) return;
  if (zp_diags_errors(reader->diags) != before) return;
  if (!group.pattern || !group.pattern[0]) {
    zp_diag *d = zp_report(reader->diags, ZP_Z0307, expr->span, "`group` needs a pattern of names");
    zp_diag_help(d, "for example `group(\"*.bias\", weight_decay = 0)`");
    return;
  }
  group.decays = group.weight_decay != UNWRITTEN;
  zp_push(reader->arena, &train->groups, group);
}

void zp_read_groups(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base) {
  const zp_expr *list = attr->value;
  if (attr->op != ZP_ATTR_SET || attr->index.text || !list || list->kind != ZP_EXPR_LIST) {
    zp_diag *d = zp_report(reader->diags, ZP_Z0304, attr->span, "`groups` is a list of groups of parameters");
    zp_diag_help(d, "for example `groups = [group(\"wte\", lr_factor = 0.1), group(\"*.bias\", weight_decay = 0)]`");
    return;
  }
  for (int i = 0; i < list->args.len; i++) read_group(reader, env, list->args.data[i].value, base);
}

const char *zp_some_names(const zp_model *model) {
  enum { MOST = 6 };
  zp_buf out = zp_buf_new(model->arena);
  for (int i = 0; i < model->params.len && i < MOST; i++)
    zp_buf_printf(&out, "%s`%s`", i ? ", " : "", model->params.data[i].name);
  if (model->params.len > MOST) zp_buf_puts(&out, ", ...");
  return out.data ? out.data : "";
}

/* What a group says of Muon. */
static void check_muon_group(zp_diags *diags, const zp_spec *spec, int g) {
  const zp_train *train = &spec->train;
  const zp_param_group *group = &train->groups.data[g];
  if (group->muon == ZP_MUON_UNSAID) return;
  if (zp_optimizer_facts(train)->needs != ZP_NEEDS_MATRICES) {
    zp_diag *d =
        zp_report(diags, ZP_Z0304, group->span, "a group chooses between `muon` and `adamw`, and all take `%s`",
                  zp_optimizer_name(train->optimizer));
    zp_diag_help(d, "write `optimizer = muon(...)` in `train`, or leave the group's out");
    return;
  }
  for (int i = 0; i < spec->model->params.len && group->muon == ZP_MUON_YES; i++) {
    const zp_param *param = &spec->model->params.data[i];
    if (zp_group_of(train, param) != g || zp_can_be_orthogonal(param)) continue;
    zp_diag *d =
        zp_report(diags, ZP_Z0304, group->span, "`%s` cannot take muon: it is no matrix of a layer", param->name);
    zp_diag_help(d, "two dimensions inside a `repeat`: embeddings, heads, norms and biases take adamw");
    return;
  }
}

static void check_muon(zp_diags *diags, const zp_spec *spec) {
  if (zp_optimizer_facts(&spec->train)->needs != ZP_NEEDS_MATRICES || !spec->model) return;
  for (int i = 0; i < spec->model->params.len; i++)
    if (zp_recipe_of(&spec->train, &spec->model->params.data[i]).orthogonal) return;
  zp_diag *d = zp_report(diags, ZP_Z0304, spec->train.optimizer_span, "`muon` finds no matrix to orthogonalise");
  zp_diag_note(d,
               "it takes parameters of two dimensions inside a `repeat`, unless a group says `optimizer = \"adamw\"`");
  zp_diag_help(d, "for this model write `adamw(...)`");
}

/* Some optimizers scale every tensor's update by its length; biases of gates have none. */
static void check_gate_biases(zp_diags *diags, const zp_spec *spec) {
  if (!zp_needs_lengths(zp_optimizer_facts(&spec->train))) return;
  for (int i = 0; i < spec->model->params.len; i++) {
    const zp_param *param = &spec->model->params.data[i];
    if (param->sign_rate == 0 || param->frozen) continue;
    zp_diag *d = zp_report(diags, ZP_Z0304, param->span, "`%s` is not built for the bias of a gate, `%s`",
                           zp_optimizer_name(spec->train.optimizer), param->name);
    zp_diag_help(d, "take another optimizer, or freeze the bias: `frozen = [\"%s\"]`", param->name);
    return;
  }
}

void zp_check_groups(zp_diags *diags, const zp_spec *spec) {
  const zp_train *train = &spec->train;
  check_muon(diags, spec);
  check_gate_biases(diags, spec);
  for (int g = 0; g < train->groups.len; g++) {
    check_muon_group(diags, spec, g);
    const zp_param_group *group = &train->groups.data[g];
    bool alone = false, any = false, moved = true; /* moved: by the load of experts alone */
    for (int i = 0; i < spec->model->params.len; i++) {
      const zp_param *param = &spec->model->params.data[i];
      if (zp_matches_pattern(group->pattern, param->name)) any = true, moved &= param->sign_rate > 0;
      alone |= zp_group_of(train, param) == g;
    }
    if (!any) {
      zp_diag *d = zp_report(diags, ZP_Z0304, group->span, "no parameter has a name like `%s`", group->pattern);
      zp_diag_note(d,
                   "names are %s: {} stands for the layer, whose number no group can tell apart; `*` stands for "
                   "anything, `?` for one character",
                   zp_some_names(spec->model));
    } else if (moved) {
      zp_report(diags, ZP_Z0304, group->span,
                "`%s` names biases of gates alone, which move by the load of experts: `bias_rate` says how far",
                group->pattern);
    } else if (!alone) {
      zp_report(diags, ZP_Z0304, group->span, "every parameter with a name like `%s` is in a group before this one",
                group->pattern);
    }
    if (train->freeze_threshold > 0 && zp_optimizer_facts(train)->decay_in_gradient && group->weight_decay > 0)
      zp_report(diags, ZP_Z0304, group->span, "`freeze = auto` does not go with `%s` and `weight_decay`",
                zp_optimizer_name(train->optimizer));
  }
}
