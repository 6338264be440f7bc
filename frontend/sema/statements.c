/* SPDX-License-Identifier: Apache-2.0 */
/* Executes the statements of a body, one after the other; a statement with an error leaves poison behind its names and
 * the next ones go on. */
#include "elaborate.h"

bool zp_elab_dim(zp_elab *e, const zp_expr *expr, int position, int64_t *dim, const zp_extent **extent) {
  *extent = NULL;
  if (expr->kind == ZP_EXPR_NAME && strcmp(expr->text, "B") == 0) {
    *dim = ZP_DIM_B;
    if (position == 0) return true;
    zp_diag *d = zp_report(e->diags, ZP_Z0219, expr->span, "`B` may only be the first size of a shape");
    zp_diag_note(d, "`B` is the micro-batch size, chosen by the planner");
    return false;
  }
  zp_value value;
  if (!zp_elab_eval(e, expr, &value)) return false;
  if (value.kind == ZP_VAL_NUMBER && value.dimension == ZP_DIM_NONE && value.is_integer && value.number >= 1 &&
      value.number <= 1e13) {
    *dim = (int64_t)value.number;
    *extent = value.extent;
    return true;
  }
  zp_report(e->diags, ZP_Z0202, expr->span, "a size must be a whole number of at least 1, this is %s",
            zp_value_text(e->arena, &value));
  return false;
}

/* Keeps all later arithmetic on sizes and bytes far from the end of 64 bits. */
bool zp_elab_check_size(zp_elab *e, const zp_shape *shape, zp_span span) {
  double elements = 1;
  for (int i = 0; i < shape->rank; i++) elements *= shape->dim[i] == ZP_DIM_B ? 1 : (double)shape->dim[i];
  if (elements <= 1e13) return true;
  zp_report(e->diags, ZP_Z0211, span, "a tensor %s has %.2g elements per sample", zp_shape_text(e->arena, shape),
            elements);
  return false;
}

bool zp_elab_shape(zp_elab *e, const zp_type_expr *type, zp_shape *shape) {
  if (type->dims.len > ZP_MAX_RANK) {
    zp_report(e->diags, ZP_Z0202, type->span, "a tensor has at most %d sizes, this one has %d", ZP_MAX_RANK,
              type->dims.len);
    return false;
  }
  bool ok = true;
  shape->rank = type->dims.len;
  for (int i = 0; i < shape->rank; i++)
    ok = zp_elab_dim(e, type->dims.data[i], i, &shape->dim[i], &shape->extent[i]) && ok;
  return ok && zp_elab_check_size(e, shape, type->span);
}

static bool is_tensor_name(const zp_elab *e, const char *name) {
  const zp_value *value = zp_scope_get(e->frame->scope, name);
  return value && value->kind == ZP_VAL_TENSOR;
}

static bool eval_whole(zp_elab *e, zp_whole whole, zp_value *value) {
  zp_whole outer = e->whole;
  e->whole = whole;
  bool ok = zp_elab_eval(e, whole.expr, value);
  e->whole = outer;
  return ok;
}

static bool is_several(const zp_value *value) {
  return value->kind == ZP_VAL_LIST && value->list.len > 1 && value->list.data[0].kind == ZP_VAL_TENSOR;
}

static bool check_count(zp_elab *e, const zp_stmt *stmt, const zp_value *value) {
  int names = stmt->names.len;
  if (names == 1 && !is_several(value)) return true;
  int results = value->kind == ZP_VAL_LIST ? value->list.len : 1;
  if (names == results && (names > 1)) return true;
  zp_diag *d = zp_report(e->diags, ZP_Z0218, stmt->expr->at, "%d result%s for %d name%s", results,
                         results == 1 ? "" : "s", names, names == 1 ? "" : "s");
  zp_diag_also(d, stmt->names.data[0].span, "%d name%s", names, names == 1 ? "" : "s");
  return false;
}

static void assign(zp_elab *e, const zp_stmt *stmt) {
  zp_value value;
  for (int i = 0; i < stmt->annotations.len; i++) {
    const char *word = zp_dotted_name(e->arena, stmt->annotations.data[i]->left);
    zp_report(e->diags, ZP_Z0236, stmt->annotations.data[i]->span, "annotation `@ %s` is not built yet",
              word ? word : "?");
  }
  zp_whole whole = {.expr = stmt->expr};
  if (stmt->names.len == 1) {
    whole.name = stmt->names.data[0].text;
    whole.is_new = !is_tensor_name(e, whole.name);
  }
  bool ok = eval_whole(e, whole, &value) && check_count(e, stmt, &value);
  for (int i = 0; i < stmt->names.len; i++) {
    zp_value part = {.kind = ZP_VAL_POISON};
    if (ok) part = stmt->names.len > 1 ? value.list.data[i] : value;
    part.span = stmt->names.data[i].span;
    zp_scope_set(e->frame->scope, stmt->names.data[i].text, part);
    zp_elab_note(e, part.span, stmt->names.data[i].text, &part, part.span);
  }
}

/* Names that mean something to sources of text have one form each. */
static bool has_form_of_name(const char *name, zp_element element, const zp_shape *shape) {
  bool ids = element == ZP_ELEM_I32;
  if (strcmp(name, "tokens") == 0) return ids && shape->rank == 2;
  if (strcmp(name, "lengths") == 0) return ids && shape->rank == 1;
  if (strcmp(name, "labels") == 0) return ids && shape->rank <= 2;
  return ids ? shape->rank <= 2 : shape->rank == 2 || shape->rank == 3;
}

/* i32 or f32, which stands for whatever the plan computes in. */
static bool read_element(const zp_type_expr *type, zp_element *element) {
  const char *word = type->element.text ? type->element.text : "f32";
  *element = strcmp(word, "i32") == 0 ? ZP_ELEM_I32 : ZP_ELEM_FLOAT;
  return *element == ZP_ELEM_I32 || strcmp(word, "f32") == 0;
}

/* Tokens and labels of tokens are as long as each other. */
static bool is_of_tokens(const char *name, const zp_shape *shape) {
  return shape->rank == 2 && (strcmp(name, "tokens") == 0 || strcmp(name, "labels") == 0);
}

static void declare_input(zp_elab *e, const zp_stmt *stmt) {
  const zp_name *name = &stmt->names.data[0];
  const zp_type_expr *type = stmt->type;
  zp_shape shape = {0};
  zp_element element;
  zp_scope_set(e->frame->scope, name->text, (zp_value){.kind = ZP_VAL_POISON, .span = name->span});
  if (e->frame->kind != ZP_FRAME_MODEL) {
    zp_report(e->diags, ZP_Z0232, stmt->span, "an input can only be declared at the top level of a model");
    return;
  }
  if (!zp_elab_shape(e, type, &shape)) return;
  if (!read_element(type, &element) || shape.rank < 1 || shape.dim[0] != ZP_DIM_B ||
      !has_form_of_name(name->text, element, &shape)) {
    zp_diag *d = zp_report(e->diags, ZP_Z0238, stmt->span, "trainers cannot feed the input `%s`", name->text);
    zp_diag_help(d,
                 "inputs are `input tokens: i32[B, S]`, `input labels: i32[B, S]` or i32[B], `input lengths: i32[B]`, "
                 "and others of i32[B], i32[B, n], f32[B, n] or f32[B, S, n]");
    return;
  }
  for (int i = 0; i < e->model->inputs.len; i++) {
    const zp_input *other = &e->model->inputs.data[i];
    bool twice = strcmp(other->name, name->text) == 0;
    bool pair = is_of_tokens(name->text, &shape) && is_of_tokens(other->name, &other->shape);
    if (!twice && (!pair || other->shape.dim[1] == shape.dim[1])) continue;
    zp_diag *d =
        twice ? zp_report(e->diags, ZP_Z0201, name->span, "input `%s` is declared twice", name->text)
              : zp_report(e->diags, ZP_Z0238, type->span, "`%s` and `%s` differ in length", name->text, other->name);
    zp_diag_also(d, other->span, "%s", zp_shape_text(e->arena, &other->shape));
    return;
  }
  int index = zp_model_add_array(e->model, name->text, element, shape, name->span);
  zp_handle handle = {.kind = ZP_HANDLE_INPUT, .segment = -1, .index = index};
  zp_value value = zp_elab_tensor(e, handle, name->span);
  zp_scope_set(e->frame->scope, name->text, value);
  zp_elab_note(e, name->span, name->text, &value, name->span);
}

static void set_output(zp_elab *e, const zp_stmt *stmt) {
  const zp_name *name = &stmt->names.data[0];
  if (e->frame->kind != ZP_FRAME_MODEL) {
    zp_report(e->diags, ZP_Z0227, stmt->span, "the output stands at the top level of the model, after the last repeat");
    return;
  }
  if (e->has_output) {
    zp_diag *d = zp_report(e->diags, ZP_Z0227, stmt->span, "a second output");
    zp_diag_also(d, e->output_span, "the first");
    return;
  }
  e->has_output = true;
  e->output_span = stmt->span;
  zp_value value;
  zp_whole whole = {.expr = stmt->expr, .name = name->text};
  if (!eval_whole(e, whole, &value)) return;
  zp_graph *graph = zp_elab_graph(e);
  if (zp_elab_is_loss(e, &value)) {
    zp_loss_terms terms = zp_elab_loss_terms(e, &value);
    for (int i = 0; i < terms.len && i < ZP_MOST_LOSSES; i++)
      zp_graph_add_loss(graph, terms.data[i].tensor, terms.data[i].weight);
    if (terms.len > ZP_MOST_LOSSES)
      zp_report(e->diags, ZP_Z0227, stmt->expr->span, "a model has at most %d losses, this is the sum of %d",
                ZP_MOST_LOSSES, terms.len);
    return;
  }
  int tensor = value.kind == ZP_VAL_TENSOR ? zp_elab_operand(e, &value) : -1;
  zp_shape shape = tensor >= 0 ? graph->tensors.data[tensor].shape : (zp_shape){0};
  zp_diag *d = zp_report(e->diags, ZP_Z0227, stmt->expr->span, "the output must be a loss");
  zp_diag_label(d, "%s", tensor >= 0 ? zp_shape_text(e->arena, &shape) : zp_value_kind_name(&value));
  zp_diag_help(d, "`output %s = cross_entropy(logits, labels)`, or of numbers `mse(x, target)`", name->text);
}

/* Values of the names in a condition, for the message of a failed assertion. */
static void list_names(zp_elab *e, const zp_expr *expr, const char **list) {
  if (!expr) return;
  if (expr->kind == ZP_EXPR_NAME) {
    const zp_value *value = zp_scope_get(e->frame->scope, expr->text);
    const char *item = value ? zp_format(e->arena, "%s = %s", expr->text, zp_value_text(e->arena, value)) : NULL;
    if (item && !strstr(*list, item)) *list = zp_format(e->arena, "%s%s%s", *list, **list ? ", " : "", item);
    return;
  }
  list_names(e, expr->left, list);
  list_names(e, expr->right, list);
}

static bool eval_condition(zp_elab *e, const zp_expr *expr, bool *truth) {
  zp_value value;
  if (!zp_elab_eval(e, expr, &value)) return false;
  *truth = value.number != 0;
  if (value.kind == ZP_VAL_BOOL) return true;
  zp_report(e->diags, ZP_Z0202, expr->span, "a condition must be true or false, this is %s",
            zp_value_kind_name(&value));
  return false;
}

static void check_assert(zp_elab *e, const zp_stmt *stmt) {
  bool holds;
  if (!eval_condition(e, stmt->expr, &holds) || holds) return;
  const char *names = "";
  list_names(e, stmt->expr, &names);
  zp_diag *d =
      zp_report(e->diags, ZP_Z0220, stmt->expr->span, "%s", stmt->message ? stmt->message : "assertion failed");
  if (*names) zp_diag_label(d, "%s", names);
}

static void set_result(zp_elab *e, const zp_stmt *stmt) {
  zp_frame *frame = e->frame;
  if (frame->kind != ZP_FRAME_BLOCK) {
    zp_diag *d = zp_report(e->diags, ZP_Z0232, stmt->span, "`return` belongs into blocks");
    zp_diag_help(d, "a model ends with `output loss = ...`");
    return;
  }
  frame->returned = true;
  frame->result = (zp_value){.kind = ZP_VAL_POISON};
  if (stmt->exprs.len == 1) {
    zp_value value;
    if (eval_whole(e, (zp_whole){.expr = stmt->exprs.data[0]}, &value)) frame->result = value;
    return;
  }
  zp_value all = {.kind = ZP_VAL_LIST, .span = stmt->span};
  for (int i = 0; i < stmt->exprs.len; i++) {
    zp_value value;
    if (!zp_elab_eval(e, stmt->exprs.data[i], &value)) return;
    zp_push(e->arena, &all.list, value);
  }
  frame->result = all;
}

static void branch(zp_elab *e, const zp_stmt *stmt) {
  bool truth;
  if (eval_condition(e, stmt->expr, &truth)) zp_elab_statements(e, truth ? &stmt->body : &stmt->otherwise);
}

static void run_repeat(zp_elab *e, const zp_stmt *stmt) {
  if (e->frame->kind == ZP_FRAME_MODEL) {
    zp_elab_repeat(e, stmt);
    return;
  }
  zp_diag *d = zp_report(e->diags, ZP_Z0225, stmt->span, "a repeat can only stand at the top level of a model");
  zp_diag_note(d, "pipelines are cut at repeats, which a block would hide");
}

void zp_elab_statements(zp_elab *e, const zp_stmts *stmts) {
  for (int i = 0; i < stmts->len && !e->frame->returned; i++) {
    const zp_stmt *stmt = stmts->data[i];
    switch (stmt->kind) {
    case ZP_STMT_INPUT: declare_input(e, stmt); break;
    case ZP_STMT_PARAM: zp_elab_param(e, stmt); break;
    case ZP_STMT_ASSIGN: assign(e, stmt); break;
    case ZP_STMT_OUTPUT: set_output(e, stmt); break;
    case ZP_STMT_REPEAT: run_repeat(e, stmt); break;
    case ZP_STMT_RETURN: set_result(e, stmt); break;
    case ZP_STMT_IF: branch(e, stmt); break;
    case ZP_STMT_ASSERT: check_assert(e, stmt); break;
    }
  }
}
