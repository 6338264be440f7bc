/* SPDX-License-Identifier: Apache-2.0 */
/* `cut = [9, 8, 8, 7]` of the `plan` block: the layers of every stage, or of every chunk of the model where there are
 * several a stage. It pins the number of stages with them. */
#include "spec_internal.h"

bool zp_pins_cut(const zp_attr *attr) {
  return strcmp(attr->key.text, "cut") == 0 && attr->op == ZP_ATTR_SET && attr->value &&
         attr->value->kind == ZP_EXPR_LIST;
}

void zp_read_cut_layers(zp_reader *reader, const zp_env *env, const zp_attrs *attrs, zp_constraints *plan) {
  for (int i = 0; i < attrs->len; i++) {
    const zp_attr *attr = attrs->data[i];
    if (!zp_pins_cut(attr)) continue;
    if (plan->cut_layers.len > 0 || attr->value->args.len == 0) {
      zp_diag *d = zp_report(reader->diags, ZP_Z0622, attr->span, "`cut` is one list with the layers of every stage");
      zp_diag_help(d, "write `cut = [9, 8, 8, 7]` for four stages");
      return;
    }
    plan->cut_layers_span = attr->span;
    for (int k = 0; k < attr->value->args.len; k++) {
      int64_t layers = 0;
      zp_read_whole(reader, env, attr->value->args.data[k].value, "cut", ZP_RANGE_NOT_NEGATIVE, &layers);
      zp_push(reader->arena, &plan->cut_layers, layers);
    }
  }
}

static void contradict(zp_reader *reader, const zp_constraints *plan, const zp_limit *limit, const char *text) {
  zp_diag *d = zp_report(reader->diags, ZP_Z0620, plan->cut_layers_span, "%s", text);
  zp_diag_label(d, "contradicts the other limit");
  zp_diag_also(d, limit->span, "the other limit");
}

static zp_limit pin(const zp_constraints *plan, int64_t value) {
  return (zp_limit){.set = true, .low = (double)value, .high = (double)value, .span = plan->cut_layers_span};
}

void zp_check_cut_layers(zp_reader *reader, zp_constraints *plan) {
  int listed = plan->cut_layers.len;
  if (listed == 0) return;
  bool one = !plan->chunks.set || zp_limit_allows(&plan->chunks, 1);
  int chunks = one ? 1 : (int)plan->chunks.low;
  if (!one && (plan->chunks.low != plan->chunks.high || listed % chunks != 0)) {
    contradict(reader, plan, &plan->chunks,
               zp_format(reader->arena, "`cut` lists %d parts, which `chunks` does not divide into stages", listed));
    return;
  }
  if (!zp_limit_allows(&plan->pipeline, listed / chunks)) {
    contradict(reader, plan, &plan->pipeline,
               zp_format(reader->arena, "`cut` lists %d stages, which `pipeline` does not allow", listed / chunks));
    return;
  }
  if (!zp_limit_allows(&plan->cut, 0)) {
    contradict(reader, plan, &plan->cut, "a list of layers cuts between layers, which the other `cut` does not allow");
    return;
  }
  plan->pipeline = pin(plan, listed / chunks);
  plan->chunks = pin(plan, chunks);
}

/* Layers are what `repeat` repeats. */
static int64_t count_layers(const zp_model *model) {
  int64_t layers = 0;
  for (int i = 0; i < model->segments.len; i++)
    layers += model->segments.data[i].is_repeat ? model->segments.data[i].count : 0;
  return layers;
}

/* Is there something to compute in a part without layers? Before the first layer, and after the last one. */
static bool may_be_empty(const zp_model *model, int part, int parts) {
  const zp_segment *first = &model->segments.data[0], *last = &model->segments.data[model->segments.len - 1];
  return (part == 0 && !first->is_repeat) || (part == parts - 1 && !last->is_repeat);
}

void zp_check_cut(zp_diags *diags, const zp_spec *spec) {
  const zp_constraints *plan = &spec->plans.data[spec->plan];
  int64_t all = count_layers(spec->model), listed = 0;
  int parts = plan->cut_layers.len;
  if (parts == 0) return;
  for (int i = 0; i < parts; i++) listed += plan->cut_layers.data[i];
  if (listed != all) {
    zp_diag *d = zp_report(diags, ZP_Z0621, plan->cut_layers_span, "`cut` lists %lld layers, `%s` has %lld",
                           (long long)listed, spec->model->name, (long long)all);
    zp_diag_help(d, "layers are what `repeat` repeats: what comes before and after them is not counted");
    return;
  }
  for (int i = 0; i < parts; i++) {
    if (plan->cut_layers.data[i] > 0 || may_be_empty(spec->model, i, parts)) continue;
    zp_report(diags, ZP_Z0621, plan->cut_layers_span, "`cut` leaves part %d of the model without a layer", i);
    return;
  }
}
