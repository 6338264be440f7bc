/* SPDX-License-Identifier: Apache-2.0 */
/* `stage_recompute` of the `plan` block: a list with the mode of every stage, in the order of the stages. It pins the
 * number of stages with them. `recompute_layers`: how many layers of a stage are in that mode. */
#include "spec_internal.h"

static bool read_mode(zp_reader *reader, const zp_env *env, const zp_expr *expr, zp_stage_mode *mode) {
  static const char *const names[] = {"none", "selective", "full", "full/tensor"};
  const char *text;
  if (!zp_read_string(reader, env, expr, "stage_recompute", &text)) return false;
  if (zp_stage_mode_by_name(text, mode)) return true;
  zp_diag *d = zp_report(reader->diags, ZP_Z0308, expr->span, "a stage cannot recompute \"%s\"", text);
  zp_diag_did_you_mean(d, text, names, sizeof names / sizeof *names);
  zp_diag_note(d,
               "possible here: \"none\", \"selective\", \"full\", and \"full/tensor\" with kept inputs split over the "
               "tensor ranks");
  return false;
}

void zp_read_stage_modes(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base) {
  zp_constraints *plan = base;
  const zp_expr *list = attr->value;
  if (attr->op != ZP_ATTR_SET || !list || list->kind != ZP_EXPR_LIST || list->args.len == 0) {
    zp_diag *d = zp_report(reader->diags, ZP_Z0622, attr->span, "`stage_recompute` is a list with one mode a stage");
    zp_diag_help(d, "write `stage_recompute = [\"full\", \"full\", \"none\"]` for three stages");
    return;
  }
  plan->stage_recompute.len = 0;
  plan->stage_recompute_span = attr->span;
  for (int i = 0; i < list->args.len; i++) {
    zp_stage_mode mode = ZP_RECOMPUTE_NONE;
    read_mode(reader, env, list->args.data[i].value, &mode);
    zp_push(reader->arena, &plan->stage_recompute, mode);
  }
}

static void contradict(zp_reader *reader, zp_span span, const zp_limit *limit, const char *text) {
  zp_diag *d = zp_report(reader->diags, ZP_Z0620, span, "%s", text);
  zp_diag_label(d, "contradicts the other limit");
  zp_diag_also(d, limit->span, "the other limit");
}

static bool allows_stages(zp_reader *reader, const zp_constraints *plan, const char *key, int stages, zp_span span) {
  if (zp_limit_allows(&plan->pipeline, stages)) return true;
  contradict(reader, span, &plan->pipeline,
             zp_format(reader->arena, "`%s` lists %d stages, which `pipeline` does not allow", key, stages));
  return false;
}

static void pin_stages(zp_constraints *plan, int stages, zp_span span) {
  plan->pipeline = (zp_limit){.set = true, .low = stages, .high = stages, .span = span};
}

void zp_check_stage_modes(zp_reader *reader, zp_constraints *plan) {
  int stages = plan->stage_recompute.len;
  if (stages == 0) return;
  if (!allows_stages(reader, plan, "stage_recompute", stages, plan->stage_recompute_span)) return;
  for (int s = 0; s < stages; s++) {
    zp_stage_mode mode = plan->stage_recompute.data[s];
    bool full = zp_stage_mode_recompute(mode) == ZP_RECOMPUTE_FULL;
    if (!zp_limit_allows(&plan->recompute, zp_stage_mode_recompute(mode)))
      contradict(reader, plan->stage_recompute_span, &plan->recompute,
                 zp_format(reader->arena, "stage %d is \"%s\", which `recompute` does not allow", s,
                           zp_stage_mode_name(mode)));
    else if (full && !zp_limit_allows(&plan->recompute_shard, zp_stage_mode_split(mode)))
      contradict(reader, plan->stage_recompute_span, &plan->recompute_shard,
                 zp_format(reader->arena, "stage %d is \"%s\", which `recompute_shard` does not allow", s,
                           zp_stage_mode_name(mode)));
    else
      continue;
    return;
  }
  pin_stages(plan, stages, plan->stage_recompute_span);
}

void zp_read_mixed_layers(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base) {
  zp_constraints *plan = base;
  const zp_expr *value = attr->value;
  bool list = value && value->kind == ZP_EXPR_LIST;
  if (attr->op != ZP_ATTR_SET || !value || (list && value->args.len == 0)) {
    zp_diag *d = zp_report(reader->diags, ZP_Z0622, attr->span,
                           "`recompute_layers` is a number of layers, or a list with one for every stage");
    zp_diag_help(d, "write `recompute_layers = 3`, or `recompute_layers = [3, 2, 0]` for three stages");
    return;
  }
  plan->recompute_layers.len = 0;
  plan->recompute_layers_listed = list;
  plan->recompute_layers_span = attr->span;
  for (int i = 0; i < (list ? value->args.len : 1); i++) {
    int64_t layers = 0;
    const zp_expr *number = list ? value->args.data[i].value : value;
    zp_read_whole(reader, env, number, "recompute_layers", ZP_RANGE_NOT_NEGATIVE, &layers);
    zp_push(reader->arena, &plan->recompute_layers, layers);
  }
}

/* Without a mode of its own, what a file with `recompute_layers` recomputes is whole layers. */
static bool recomputes_layers(zp_reader *reader, const zp_constraints *plan) {
  int listed = 0;
  for (int s = 0; s < plan->stage_recompute.len; s++)
    listed += zp_stage_mode_recompute(plan->stage_recompute.data[s]) != ZP_RECOMPUTE_NONE;
  if (listed > 0) return true;
  if (plan->stage_recompute.len > 0) {
    zp_diag *d = zp_report(reader->diags, ZP_Z0620, plan->recompute_layers_span,
                           "`recompute_layers` says how many layers recompute, `stage_recompute` that none do");
    zp_diag_label(d, "contradicts the other key");
    zp_diag_also(d, plan->stage_recompute_span, "the other key");
    return false;
  }
  bool full = zp_limit_allows(&plan->recompute, ZP_RECOMPUTE_FULL);
  if (full || zp_limit_allows(&plan->recompute, ZP_RECOMPUTE_SELECTIVE)) return true;
  contradict(reader, plan->recompute_layers_span, &plan->recompute,
             "`recompute_layers` says how many layers recompute, `recompute` that none may");
  return false;
}

void zp_check_mixed_layers(zp_reader *reader, zp_constraints *plan) {
  int stages = plan->recompute_layers.len;
  if (stages == 0) {
    if (plan->recompute_rest.set)
      zp_report(reader->diags, ZP_Z0622, plan->recompute_rest.span,
                "`recompute_rest` says what the layers after `recompute_layers` recompute, and there is none");
    return;
  }
  if (plan->recompute_rest.in.len > 1)
    zp_report(reader->diags, ZP_Z0622, plan->recompute_rest.span, "`recompute_rest` is one word");
  if (!recomputes_layers(reader, plan) || !plan->recompute_layers_listed) return;
  if (allows_stages(reader, plan, "recompute_layers", stages, plan->recompute_layers_span))
    pin_stages(plan, stages, plan->recompute_layers_span);
}
