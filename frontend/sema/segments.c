/* Segments: where repeats cut the model, and the one tensor that flows across every cut.
 *
 * Invariants: while a segment is open, e->segment is its index. After a repeat none is open; the statements that follow
 * open one at their first op, so that nothing empty arises. e->carry is the tensor that flows into the open or next
 * segment, as the segment before knows it. */
#include <math.h>
#include "elaborate.h"

zp_value zp_elab_tensor(zp_elab *e, zp_handle handle, zp_span span) {
  zp_push(e->arena, &e->handles, handle);
  return (zp_value){.kind = ZP_VAL_TENSOR, .tensor = e->handles.len - 1, .span = span};
}

static const zp_handle *handle_of(const zp_elab *e, const zp_value *value) { return &e->handles.data[value->tensor]; }
static zp_graph *graph_at(const zp_elab *e, int segment) { return e->model->segments.data[segment].graph; }

static zp_handle value_handle(int segment, int tensor) {
  return (zp_handle){.kind = ZP_HANDLE_VALUE, .segment = segment, .index = tensor};
}

static void open_segment(zp_elab *e, const char *name, int64_t count, bool is_repeat, zp_span span) {
  if (e->carry.segment < 0) {
    zp_model_add_segment(e->model, name, count, is_repeat, NULL, NULL, 0, span);
  } else {
    zp_tensor carried = graph_at(e, e->carry.segment)->tensors.data[e->carry.index];
    zp_model_add_segment(e->model, name, count, is_repeat, &carried.shape, &carried.name, 1, span);
  }
  e->segment = e->model->segments.len - 1;
  zp_taken_names_clear(&e->names);
}

zp_graph *zp_elab_graph(zp_elab *e) {
  if (e->segment < 0) {
    /* "end" until another repeat follows, see zp_elab_repeat. */
    open_segment(e, e->model->segments.len ? "end" : "begin", 1, false, e->model->span);
  }
  return graph_at(e, e->segment);
}

bool zp_elab_in_repeat(const zp_elab *e) { return e->segment >= 0 && e->model->segments.data[e->segment].is_repeat; }

/* May a value of another segment be used here? Outside repeats: the carried tensor, under any name it has. */
static bool arrives(const zp_elab *e, const zp_handle *handle) {
  return !zp_elab_in_repeat(e) && handle->segment == e->carry.segment && handle->index == e->carry.index;
}

int zp_elab_operand(zp_elab *e, const zp_value *value) {
  zp_graph *graph = zp_elab_graph(e);
  const zp_handle *handle = handle_of(e, value);
  switch (handle->kind) {
  case ZP_HANDLE_PARAM: return zp_graph_param(graph, e->model, handle->index);
  case ZP_HANDLE_INPUT: return zp_graph_input(graph, e->model, handle->index);
  case ZP_HANDLE_LOSSES: {
    zp_diag *d = zp_report(e->diags, ZP_Z0227, value->span, "a sum of losses is read by an operation");
    zp_diag_help(d, "nothing but `output` takes it");
    return -1;
  }
  default: return handle->segment == e->segment ? handle->index : graph->carry_in.data[0];
  }
}

static void report_crossing(zp_elab *e, const zp_expr *name, const zp_handle *handle) {
  const zp_tensor *tensor = &graph_at(e, handle->segment)->tensors.data[handle->index];
  const zp_segment *here = e->segment >= 0 ? &e->model->segments.data[e->segment] : NULL;
  zp_diag *d;
  if (here && here->is_repeat) {
    d = zp_report(e->diags, ZP_Z0223, name->span, "`%s` is computed outside `repeat %s` and read inside", name->text,
                  here->name);
    zp_diag_help(d,
                 "only the tensor that the body assigns again goes from iteration to iteration; compute `%s` inside "
                 "the body",
                 name->text);
  } else {
    d = zp_report(e->diags, ZP_Z0222, name->span,
                  "`%s` would have to cross a segment boundary beside the carried tensor", name->text);
    zp_diag_note(d, "exactly one tensor flows across the boundary of a repeat");
  }
  zp_diag_also(d, tensor->span, "computed here, %s", zp_shape_text(e->arena, &tensor->shape));
}

bool zp_elab_check_name(void *user, const zp_expr *name, zp_value *value) {
  zp_elab *e = user;
  const zp_handle *handle = handle_of(e, value);
  if (handle->kind == ZP_HANDLE_INPUT) return true;
  if (handle->kind == ZP_HANDLE_ITERATION) {
    zp_diag *d = zp_report(e->diags, ZP_Z0235, name->span, "the iteration number `%s` has no value", name->text);
    zp_diag_note(d, "one body serves all iterations of the repeat");
    return false;
  }
  if (handle->kind == ZP_HANDLE_PARAM) {
    if (!zp_elab_in_repeat(e) || handle->segment == e->segment) return true;
    const zp_param *param = &e->model->params.data[handle->index];
    zp_diag *d =
        zp_report(e->diags, ZP_Z0224, name->span, "parameter `%s` is declared outside `repeat %s` and used inside",
                  name->text, e->model->segments.data[e->segment].name);
    zp_diag_also(d, param->span, "declared here");
    zp_diag_help(d, "declare it inside the body: every iteration then has its own");
    return false;
  }
  if (handle->segment == e->segment || arrives(e, handle)) return true;
  report_crossing(e, name, handle);
  return false;
}

zp_shape zp_elab_value_shape(const zp_elab *e, const zp_value *value) {
  const zp_handle *handle = handle_of(e, value);
  switch (handle->kind) {
  case ZP_HANDLE_PARAM: return e->model->params.data[handle->index].shape;
  case ZP_HANDLE_INPUT: return e->model->inputs.data[handle->index].shape;
  default: return graph_at(e, handle->segment)->tensors.data[handle->index].shape;
  }
}

zp_element zp_elab_value_element(const zp_elab *e, const zp_value *value) {
  const zp_handle *handle = handle_of(e, value);
  if (handle->kind == ZP_HANDLE_PARAM) return ZP_ELEM_FLOAT;
  if (handle->kind == ZP_HANDLE_INPUT) return e->model->inputs.data[handle->index].element;
  return graph_at(e, handle->segment)->tensors.data[handle->index].element;
}

/* ---- repeat ---- */

static bool read_count(zp_elab *e, const zp_stmt *stmt, int64_t *count) {
  zp_value low, high;
  if (stmt->expr->kind != ZP_EXPR_BINARY || stmt->expr->op != ZP_OPR_RANGE) {
    zp_diag *d = zp_report(e->diags, ZP_Z0221, stmt->expr->span, "`repeat` needs a range");
    zp_diag_help(d, "write `repeat %s in 0..layers`", stmt->names.data[0].text);
    return false;
  }
  bool ok = zp_elab_eval(e, stmt->expr->left, &low);
  if (!zp_elab_eval(e, stmt->expr->right, &high) || !ok) return false;
  bool whole = low.kind == ZP_VAL_NUMBER && high.kind == ZP_VAL_NUMBER && low.is_integer && high.is_integer &&
               low.dimension == ZP_DIM_NONE && high.dimension == ZP_DIM_NONE;
  if (!whole || fabs(low.number) > 1e9 || fabs(high.number) > 1e9) {
    zp_report(e->diags, ZP_Z0221, stmt->expr->span, "the bounds of a repeat must be whole numbers");
    return false;
  }
  *count = (int64_t)(high.number - low.number);
  if (*count >= 1) return true;
  zp_diag *d = zp_report(e->diags, ZP_Z0221, stmt->expr->span, "this repeat has no iteration");
  zp_diag_label(d, "%.0f..%.0f", low.number, high.number);
  zp_diag_note(d, "the upper bound is not included: `0..12` are 12 iterations");
  return false;
}

/* Names assigned anywhere in a body, in order; nested repeats are refused here. */
static bool assigned_names(zp_elab *e, const zp_stmts *stmts, zp_names *names) {
  for (int i = 0; i < stmts->len; i++) {
    const zp_stmt *stmt = stmts->data[i];
    if (stmt->kind == ZP_STMT_REPEAT) {
      zp_report(e->diags, ZP_Z0225, stmt->span, "repeats cannot be nested");
      return false;
    }
    if (stmt->kind == ZP_STMT_ASSIGN)
      for (int k = 0; k < stmt->names.len; k++) zp_push(e->arena, names, stmt->names.data[k]);
    if (stmt->kind == ZP_STMT_IF &&
        (!assigned_names(e, &stmt->body, names) || !assigned_names(e, &stmt->otherwise, names)))
      return false;
  }
  return true;
}

/* The one outer name that the body assigns again. */
static bool find_carried(zp_elab *e, const zp_stmt *stmt, zp_name *carried) {
  zp_names names = {0};
  if (!assigned_names(e, &stmt->body, &names)) return false;
  *carried = (zp_name){0};
  for (int i = 0; i < names.len; i++) {
    const zp_value *outer = zp_scope_get(e->frame->scope, names.data[i].text);
    if (!outer || (carried->text && strcmp(carried->text, names.data[i].text) == 0)) continue;
    if (outer->kind == ZP_VAL_POISON) return false;
    if (carried->text) {
      zp_diag *d = zp_report(e->diags, ZP_Z0222, names.data[i].span,
                             "`repeat %s` would carry a second value, `%s`, from iteration to iteration",
                             stmt->names.data[0].text, names.data[i].text);
      zp_diag_also(d, carried->span, "`%s` is carried already", carried->text);
      return false;
    }
    if (outer->kind != ZP_VAL_TENSOR) {
      zp_diag *d = zp_report(e->diags, ZP_Z0222, names.data[i].span, "`%s` cannot change from iteration to iteration",
                             names.data[i].text);
      zp_diag_note(d, "it is %s; a repeat carries one tensor", zp_value_kind_name(outer));
      return false;
    }
    *carried = names.data[i];
  }
  if (carried->text) return true;
  zp_diag *d = zp_report(e->diags, ZP_Z0222, stmt->names.data[0].span, "nothing flows through `repeat %s`",
                         stmt->names.data[0].text);
  zp_diag_help(d, "assign a tensor from before the repeat again in its body: `x = layer(x)`");
  return false;
}

/* What may flow between segments: activations with storage of their own. */
static bool check_carry(zp_elab *e, const zp_name *name, const zp_value *value) {
  const zp_handle *handle = handle_of(e, value);
  const zp_tensor *tensor =
      handle->kind == ZP_HANDLE_VALUE ? &graph_at(e, handle->segment)->tensors.data[handle->index] : NULL;
  if (tensor && tensor->base < 0 && tensor->element == ZP_ELEM_FLOAT && tensor->shape.rank > 0 &&
      tensor->shape.dim[0] == ZP_DIM_B)
    return true;
  zp_diag *d = zp_report(e->diags, ZP_Z0222, name->span, "`%s` cannot flow into or out of a repeat", name->text);
  if (tensor && tensor->base >= 0)
    zp_diag_note(d, "it is a part of a tensor, made by `split`");
  else
    zp_diag_note(d, "only a computed tensor whose first size is `B` can");
  return false;
}

/* Closes the open segment with `value` as what flows out; afterwards none is open. */
static void close_segment(zp_elab *e, const zp_value *value) {
  zp_handle out = *handle_of(e, value);
  if (e->segment >= 0) {
    out = value_handle(e->segment, zp_elab_operand(e, value));
    zp_push(e->arena, &graph_at(e, e->segment)->carry_out, out.index);
  }
  e->carry = out;
  e->segment = -1;
}

/* The statements before this repeat are not the end after all. */
static void rename_middle(zp_elab *e) {
  zp_segment *last = e->segment > 0 ? &e->model->segments.data[e->segment] : NULL;
  if (last)
    last->name = zp_taken_names_give(e->arena, &e->segment_names, zp_format(e->arena, "middle%d", ++e->middles));
}

static bool check_result(zp_elab *e, const zp_stmt *stmt, const zp_name *carried, const zp_value *result) {
  const zp_handle *handle = handle_of(e, result);
  if (!check_carry(e, carried, result)) return false;
  const zp_graph *graph = graph_at(e, e->segment);
  const zp_tensor *in = &graph->tensors.data[graph->carry_in.data[0]];
  const zp_tensor *out = &graph->tensors.data[handle->index];
  if (out->role == ZP_ROLE_CARRY_IN) {
    zp_report(e->diags, ZP_Z0222, carried->span, "`%s` leaves `repeat %s` as it came", carried->text,
              stmt->names.data[0].text);
    return false;
  }
  if (zp_shape_equal(&in->shape, &out->shape)) return true;
  zp_diag *d = zp_report(e->diags, ZP_Z0226, carried->span, "`%s` changes its shape in `repeat %s`", carried->text,
                         stmt->names.data[0].text);
  zp_diag_label(d, "%s on entry, %s at the end", zp_shape_text(e->arena, &in->shape),
                zp_shape_text(e->arena, &out->shape));
  return false;
}

static void run_body(zp_elab *e, const zp_stmt *stmt, const zp_name *carried) {
  const char *variable = stmt->names.data[0].text;
  zp_frame *outer = e->frame;
  zp_frame body = {.kind = ZP_FRAME_REPEAT,
                   .caller = outer,
                   .item = outer->item,
                   .module = outer->module,
                   .scope = zp_scope_new(e->arena, outer->scope)};
  body.param_path = zp_format(e->arena, "%s.{}", zp_taken_names_give(e->arena, &e->paths, variable));
  zp_handle iteration = {.kind = ZP_HANDLE_ITERATION, .segment = e->segment};
  zp_scope_set(body.scope, variable, zp_elab_tensor(e, iteration, stmt->names.data[0].span));
  zp_handle entry = value_handle(e->segment, graph_at(e, e->segment)->carry_in.data[0]);
  zp_scope_set(body.scope, carried->text, zp_elab_tensor(e, entry, carried->span));
  e->frame = &body;
  zp_elab_statements(e, &stmt->body);
  e->frame = outer;
  const zp_value *result = zp_scope_get(body.scope, carried->text);
  zp_value after = {.kind = ZP_VAL_POISON, .span = carried->span};
  if (result->kind == ZP_VAL_TENSOR && check_result(e, stmt, carried, result)) {
    close_segment(e, result);
    after = zp_elab_tensor(e, e->carry, carried->span);
  } else {
    e->segment = -1;
    e->carry = value_handle(-1, -1);
    if (result->kind != ZP_VAL_TENSOR && result->kind != ZP_VAL_POISON)
      zp_report(e->diags, ZP_Z0202, carried->span, "`%s` was a tensor before the repeat and is %s now", carried->text,
                zp_value_kind_name(result));
  }
  zp_scope_set(outer->scope, carried->text, after);
}

void zp_elab_repeat(zp_elab *e, const zp_stmt *stmt) {
  int64_t count = 0;
  zp_name carried = {0};
  bool ok = read_count(e, stmt, &count);
  if (!find_carried(e, stmt, &carried) || !ok) {
    if (carried.text) zp_scope_set(e->frame->scope, carried.text, (zp_value){.kind = ZP_VAL_POISON});
    return;
  }
  zp_value entry = *zp_scope_get(e->frame->scope, carried.text);
  zp_expr name = {.kind = ZP_EXPR_NAME, .text = carried.text, .span = carried.span};
  if (!check_carry(e, &carried, &entry) || !zp_elab_check_name(e, &name, &entry)) {
    zp_scope_set(e->frame->scope, carried.text, (zp_value){.kind = ZP_VAL_POISON});
    return;
  }
  rename_middle(e);
  close_segment(e, &entry);
  open_segment(e, zp_taken_names_give(e->arena, &e->segment_names, stmt->names.data[0].text), count, true, stmt->span);
  run_body(e, stmt, &carried);
}
