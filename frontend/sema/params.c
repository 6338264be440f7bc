/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters and the names of things.
 *
 * A parameter is called by the path of the block instances around it: "h.{}.mlp.c_fc.weight". An instance adds
 *   - the name on the left, when its call is the whole right side and the name is new:  c_fc = linear(x, ff);
 *   - the name of the block, when the call stands inside a larger expression:           x + mlp(layer_norm(x));
 *   - nothing, when the call is the whole right side of `return`, `output` or of an assignment to a name that already
 *     is a tensor, unless the block declares a parameter itself; then the name of the block:  x = gpt_layer(x).
 * A path that is taken already gets _2, _3, ... */
#include <math.h>
#include "elaborate.h"

const char *zp_elab_join(zp_arena *arena, const char *prefix, const char *name) {
  if (!*prefix || !*name) return *prefix ? prefix : name;
  return zp_format(arena, "%s.%s", prefix, name);
}

const char *zp_elab_local(const char *path) {
  const char *hole = strstr(path, "{}");
  if (!hole) return path;
  return hole[2] ? hole + 3 : "";
}

static bool declares_param(const zp_stmts *stmts) {
  for (int i = 0; i < stmts->len; i++) {
    const zp_stmt *stmt = stmts->data[i];
    if (stmt->kind == ZP_STMT_PARAM) return true;
    if (stmt->kind == ZP_STMT_IF && (declares_param(&stmt->body) || declares_param(&stmt->otherwise))) return true;
  }
  return false;
}

const char *zp_elab_instance(const zp_elab *e, const zp_expr *call, const zp_item *block) {
  if (call != e->whole.expr) return block->name.text;
  if (e->whole.name && e->whole.is_new) return e->whole.name;
  return declares_param(&block->body) ? block->name.text : "";
}

/* ---- start values ---- */

typedef struct init_form {
  const char *name;
  zp_init_kind kind;
  const char *args[2];
  int n_args;
  double defaults[2]; /* NAN: must be given */
} init_form;

static const double default_std = 0.02; /* GPT-2's */

static const init_form init_forms[] = {
    {"normal", ZP_INIT_NORMAL, {"mean", "std"}, 2, {0, default_std}},
    {"uniform", ZP_INIT_UNIFORM, {"low", "high"}, 2, {NAN, NAN}},
    {"constant", ZP_INIT_CONSTANT, {"value"}, 1, {NAN}},
    {"zeros", ZP_INIT_CONSTANT, {NULL}, 0, {0}},
    {"ones", ZP_INIT_CONSTANT, {NULL}, 0, {1}},
};
enum { N_INIT_FORMS = sizeof init_forms / sizeof *init_forms };

static const init_form *find_init(zp_elab *e, const zp_expr *init) {
  const char *name = zp_dotted_name(e->arena, init->left), *names[N_INIT_FORMS];
  for (int i = 0; i < N_INIT_FORMS; i++) {
    names[i] = init_forms[i].name;
    if (name && strcmp(name, names[i]) == 0) return &init_forms[i];
  }
  zp_diag *d = zp_report(e->diags, ZP_Z0228, init->at, "unknown start value `%s`", name ? name : "?");
  if (!name || !zp_diag_did_you_mean(d, name, names, N_INIT_FORMS))
    zp_diag_help(d, "there are normal(mean, std), uniform(low, high), constant(value), zeros() and ones()");
  return NULL;
}

static bool read_init(zp_elab *e, const zp_expr *init, zp_param *param) {
  param->init = ZP_INIT_NORMAL;
  param->init_b = default_std;
  if (!init) return true;
  const init_form *form = find_init(e, init);
  zp_slot slots[2] = {0};
  if (!form || !zp_elab_collect(e, init, form->name, form->args, form->n_args, slots)) return false;
  double values[2] = {form->defaults[0], form->defaults[1]};
  for (int i = 0; i < form->n_args; i++) {
    if (isnan(form->defaults[i]) && !zp_elab_require(e, init, form->name, form->args[i], &slots[i])) return false;
    if (!zp_slot_number(e, &slots[i], form->args[i], values[i], &values[i])) return false;
  }
  param->init = form->kind;
  param->init_a = values[0];
  param->init_b = values[1];
  if (form->kind == ZP_INIT_NORMAL && values[1] < 0) {
    zp_report(e->diags, ZP_Z0228, init->span, "a standard deviation cannot be negative: %g", values[1]);
    return false;
  }
  if (form->kind == ZP_INIT_UNIFORM && values[0] > values[1]) {
    zp_report(e->diags, ZP_Z0228, init->span, "the lower bound %g is above the upper bound %g", values[0], values[1]);
    return false;
  }
  return true;
}

static bool read_shape(zp_elab *e, const zp_stmt *stmt, zp_shape *shape) {
  const zp_type_expr *type = stmt->type;
  if (type->element.text && strcmp(type->element.text, "f32") != 0) {
    zp_diag *d = zp_report(e->diags, ZP_Z0228, type->element.span, "a parameter cannot hold `%s`", type->element.text);
    zp_diag_help(d, "leave the element out; `precision` in `train` decides how parameters are stored");
    return false;
  }
  if (!type->has_shape || type->dims.len == 0) {
    zp_diag *d = zp_report(e->diags, ZP_Z0228, stmt->names.data[0].span, "parameter `%s` needs a shape",
                           stmt->names.data[0].text);
    zp_diag_help(d, "for example `param %s: [V, d]`", stmt->names.data[0].text);
    return false;
  }
  if (!zp_elab_shape(e, type, shape)) return false;
  if (shape->dim[0] == ZP_DIM_B || shape->rank > 3) {
    zp_diag *d = zp_report(e->diags, ZP_Z0228, type->span, "a parameter cannot have the shape %s",
                           zp_shape_text(e->arena, shape));
    if (shape->rank > 3)
      zp_diag_note(d, "matrices of experts, [experts, rows, columns], are the largest that operations take");
    else
      zp_diag_note(d, "`B` is the micro-batch size; parameters do not grow with it");
    return false;
  }
  return true;
}

void zp_elab_param(zp_elab *e, const zp_stmt *stmt) {
  const zp_name *name = &stmt->names.data[0];
  zp_param param = {.span = name->span, .segment = zp_elab_in_repeat(e) ? e->segment : -1};
  bool ok = read_shape(e, stmt, &param.shape);
  ok = read_init(e, stmt->expr, &param) && ok;
  zp_value value = {.kind = ZP_VAL_POISON, .span = name->span};
  if (ok) {
    param.name = zp_taken_names_give(e->arena, &e->paths, zp_elab_join(e->arena, e->frame->param_path, name->text));
    zp_handle handle = {
        .kind = ZP_HANDLE_PARAM, .segment = param.segment, .index = zp_model_add_param(e->model, param)};
    value = zp_elab_tensor(e, handle, name->span);
  }
  zp_scope_set(e->frame->scope, name->text, value);
  zp_elab_note(e, name->span, name->text, &value, name->span);
}
