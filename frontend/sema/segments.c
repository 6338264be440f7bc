/* SPDX-License-Identifier: Apache-2.0 */
/* Segments: where repeats cut the model, and the tensors that flow across every cut.
 *
 * What flows is found as it is read. A repeat carries the tensors that its body assigns again; a tensor of an earlier
 * segment that is read later is added to every boundary between, and segments that only hand it on have the same tensor
 * among what comes in and what goes out. So boundaries have what is live there, and no more.
 *
 * Invariants: while a segment is open, e->segment is its index. After a repeat none is open; the statements that follow
 * open one at their first op, so that nothing empty arises. What goes out of a segment comes into the next one place by
 * place; what comes into a closed repeat goes out of it place by place. An open segment has nothing that goes out. */
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
  int last = e->model->segments.len - 1;
  zp_graph *graph = zp_model_add_segment(e->model, name, count, is_repeat, NULL, NULL, 0, span)->graph;
  for (int i = 0; last >= 0 && i < graph_at(e, last)->carry_out.len; i++) {
    const zp_graph *from = graph_at(e, last);
    zp_graph_add_carry(graph, &from->tensors.data[from->carry_out.data[i]]);
  }
  e->segment = last + 1;
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

/* ---- tensors of earlier segments ---- */

/* -1: it is not there. */
static int index_of(const zp_ints *list, int item) {
  for (int i = 0; i < list->len; i++)
    if (list->data[i] == item) return i;
  return -1;
}

/* Does the body of a repeat assign what comes in at this place again? */
static bool is_replaced(const zp_elab *e, int segment, int place) {
  const zp_graph *graph = graph_at(e, segment);
  if (segment == e->segment) return index_of(&e->replaced, place) >= 0;
  return graph->carry_out.data[place] != graph->carry_in.data[place];
}

/* Where the tensor comes out of `segment` and stays what it is in the next one; -1: nowhere yet. */
static int find_place(const zp_elab *e, int segment, int tensor) {
  const zp_graph *graph = graph_at(e, segment);
  for (int i = 0; i < graph->carry_out.len; i++)
    if (graph->carry_out.data[i] == tensor &&
        !(e->model->segments.data[segment + 1].is_repeat && is_replaced(e, segment + 1, i)))
      return i;
  return -1;
}

/* One more place of what flows out, for a tensor of the segment. A closed repeat takes in as much as it gives: a tensor
 * that has just come in is handed on; where it has a place already, what comes in there comes in twice. */
static void add_out(const zp_elab *e, int segment, int tensor) {
  zp_graph *graph = graph_at(e, segment);
  if (e->model->segments.data[segment].is_repeat && graph->carry_in.len == graph->carry_out.len) {
    int from = graph_at(e, segment - 1)->carry_out.data[index_of(&graph->carry_out, tensor)];
    add_out(e, segment - 1, from);
    zp_graph_add_carry(graph, &graph_at(e, segment - 1)->tensors.data[from]);
  }
  zp_push(e->arena, &graph->carry_out, tensor);
}

/* The tensor of an earlier segment in the graph of segment `to`: it flows there from now on. */
static int bring(const zp_elab *e, zp_handle handle, int to) {
  int tensor = handle.index;
  for (int s = handle.segment; s < to; s++) {
    zp_graph *graph = graph_at(e, s), *next = graph_at(e, s + 1);
    int place = find_place(e, s, tensor);
    if (place < 0) {
      place = graph->carry_out.len;
      add_out(e, s, tensor);
      zp_graph_add_carry(next, &graph->tensors.data[tensor]);
    }
    tensor = next->carry_in.data[place];
  }
  return tensor;
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
  default: return bring(e, *handle, e->segment);
  }
}

/* What may flow between segments: activations with storage of their own. Reports. */
static bool check_carry(zp_elab *e, const char *name, zp_span span, const zp_value *value) {
  const zp_handle *handle = handle_of(e, value);
  const zp_tensor *tensor =
      handle->kind == ZP_HANDLE_VALUE ? &graph_at(e, handle->segment)->tensors.data[handle->index] : NULL;
  if (tensor && tensor->base < 0 && tensor->element == ZP_ELEM_FLOAT && tensor->shape.rank > 0 &&
      tensor->shape.dim[0] == ZP_DIM_B)
    return true;
  zp_diag *d = zp_report(e->diags, ZP_Z0222, span, "`%s` cannot flow into or out of a repeat", name);
  if (tensor && tensor->base >= 0)
    zp_diag_note(d, "it is a part of a tensor, made by `split`");
  else
    zp_diag_note(d, "only a computed tensor whose first size is `B` can");
  return false;
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
  if (handle->kind == ZP_HANDLE_PARAM || handle->segment == e->segment) return true;
  return check_carry(e, name->text, name->span, value);
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

/* Far more than layers of any model; the search keeps some hundred bytes for each. */
enum { MOST_ITERATIONS = 1 << 16 };

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
  if (*count > MOST_ITERATIONS) {
    zp_diag *d =
        zp_report(e->diags, ZP_Z0221, stmt->expr->span, "this repeat has %lld iterations, at most %d can be planned",
                  (long long)*count, MOST_ITERATIONS);
    zp_diag_label(d, "%.0f..%.0f", low.number, high.number);
    zp_diag_note(d, "plans keep a record of every iteration, so that their number is limited");
    return false;
  }
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

static bool is_listed(const zp_names *names, const char *text) {
  for (int i = 0; i < names->len; i++)
    if (strcmp(names->data[i].text, text) == 0) return true;
  return false;
}

/* The outer names that the body assigns again. */
static bool find_carried(zp_elab *e, const zp_stmt *stmt, zp_names *carried) {
  zp_names names = {0};
  if (!assigned_names(e, &stmt->body, &names)) return false;
  for (int i = 0; i < names.len; i++) {
    const zp_value *outer = zp_scope_get(e->frame->scope, names.data[i].text);
    if (!outer || is_listed(carried, names.data[i].text)) continue;
    if (outer->kind == ZP_VAL_POISON) return false;
    if (outer->kind != ZP_VAL_TENSOR) {
      zp_diag *d = zp_report(e->diags, ZP_Z0222, names.data[i].span, "`%s` cannot change from iteration to iteration",
                             names.data[i].text);
      zp_diag_note(d, "it is %s; a repeat carries tensors", zp_value_kind_name(outer));
      return false;
    }
    zp_push(e->arena, carried, names.data[i]);
  }
  if (carried->len > 0) return true;
  zp_diag *d = zp_report(e->diags, ZP_Z0222, stmt->names.data[0].span, "nothing flows through `repeat %s`",
                         stmt->names.data[0].text);
  zp_diag_help(d, "assign a tensor from before the repeat again in its body: `x = layer(x)`");
  return false;
}

/* The statements before this repeat are not the end after all. */
static void rename_middle(zp_elab *e) {
  zp_segment *last = e->segment > 0 ? &e->model->segments.data[e->segment] : NULL;
  if (last)
    last->name = zp_taken_names_give(e->arena, &e->segment_names, zp_format(e->arena, "middle%d", ++e->middles));
}

/* The tensor that the body leaves for `carried`, which came in at `place`; -1 after reporting. */
static int find_result(zp_elab *e, const zp_stmt *stmt, const zp_name *carried, int place, const zp_value *result) {
  if (result->kind == ZP_VAL_POISON) return -1;
  if (result->kind != ZP_VAL_TENSOR) {
    zp_report(e->diags, ZP_Z0202, carried->span, "`%s` was a tensor before the repeat and is %s now", carried->text,
              zp_value_kind_name(result));
    return -1;
  }
  if (!check_carry(e, carried->text, carried->span, result)) return -1;
  const zp_graph *graph = graph_at(e, e->segment);
  int tensor = zp_elab_operand(e, result);
  const zp_tensor *in = &graph->tensors.data[graph->carry_in.data[place]], *out = &graph->tensors.data[tensor];
  if (out->role == ZP_ROLE_CARRY_IN) {
    zp_report(e->diags, ZP_Z0222, carried->span, "`%s` leaves `repeat %s` as it came", carried->text,
              stmt->names.data[0].text);
    return -1;
  }
  if (zp_shape_equal(&in->shape, &out->shape)) return tensor;
  zp_diag *d = zp_report(e->diags, ZP_Z0226, carried->span, "`%s` changes its shape in `repeat %s`", carried->text,
                         stmt->names.data[0].text);
  zp_diag_label(d, "%s on entry, %s at the end", zp_shape_text(e->arena, &in->shape),
                zp_shape_text(e->arena, &out->shape));
  return -1;
}

/* The body has been read: what comes in goes out, what it assigned again in its place. Names mean that from here on. */
static void close_repeat(zp_elab *e, const zp_stmt *stmt, const zp_names *carried, const zp_scope *body,
                         zp_scope *outer) {
  zp_ints result = {0};
  bool ok = true;
  for (int i = 0; i < carried->len; i++) {
    const zp_name *name = &carried->data[i];
    zp_push(e->arena, &result, find_result(e, stmt, name, e->replaced.data[i], zp_scope_get(body, name->text)));
    ok = ok && result.data[i] >= 0;
  }
  zp_graph *graph = graph_at(e, e->segment);
  for (int i = 0; i < graph->carry_in.len; i++) zp_push(e->arena, &graph->carry_out, graph->carry_in.data[i]);
  for (int i = 0; i < carried->len; i++) {
    zp_value after = {.kind = ZP_VAL_POISON, .span = carried->data[i].span};
    if (ok) {
      graph->carry_out.data[e->replaced.data[i]] = result.data[i];
      after = zp_elab_tensor(e, value_handle(e->segment, result.data[i]), after.span);
    }
    zp_scope_set(outer, carried->data[i].text, after);
  }
  e->segment = -1;
}

static void run_body(zp_elab *e, const zp_stmt *stmt, const zp_names *carried) {
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
  for (int i = 0; i < carried->len; i++) {
    zp_handle entry = value_handle(e->segment, graph_at(e, e->segment)->carry_in.data[e->replaced.data[i]]);
    zp_scope_set(body.scope, carried->data[i].text, zp_elab_tensor(e, entry, carried->data[i].span));
  }
  e->frame = &body;
  zp_elab_statements(e, &stmt->body);
  e->frame = outer;
  close_repeat(e, stmt, carried, body.scope, outer->scope);
}

/* Lets a value flow out of the last segment, and returns its place there, which no other carried name has. */
static int flow_out(const zp_elab *e, const zp_value *value) {
  int last = e->model->segments.len - 1;
  zp_graph *graph = graph_at(e, last);
  int tensor = bring(e, *handle_of(e, value), last);
  for (int i = 0; i < graph->carry_out.len; i++)
    if (graph->carry_out.data[i] == tensor && index_of(&e->replaced, i) < 0) return i;
  add_out(e, last, tensor);
  return graph->carry_out.len - 1;
}

/* Closes what is open; what is carried into the repeat flows out of it. */
static bool close_before(zp_elab *e, const zp_names *carried) {
  for (int i = 0; i < carried->len; i++) {
    const zp_name *name = &carried->data[i];
    if (!check_carry(e, name->text, name->span, zp_scope_get(e->frame->scope, name->text))) return false;
  }
  rename_middle(e);
  e->replaced = (zp_ints){0};
  for (int i = 0; i < carried->len; i++) {
    int place = flow_out(e, zp_scope_get(e->frame->scope, carried->data[i].text));
    zp_push(e->arena, &e->replaced, place);
  }
  e->segment = -1;
  return true;
}

void zp_elab_repeat(zp_elab *e, const zp_stmt *stmt) {
  int64_t count = 0;
  zp_names carried = {0};
  bool ok = read_count(e, stmt, &count);
  ok = find_carried(e, stmt, &carried) && ok && close_before(e, &carried);
  if (!ok) {
    for (int i = 0; i < carried.len; i++)
      zp_scope_set(e->frame->scope, carried.data[i].text, (zp_value){.kind = ZP_VAL_POISON});
    return;
  }
  open_segment(e, zp_taken_names_give(e->arena, &e->segment_names, stmt->names.data[0].text), count, true, stmt->span);
  run_body(e, stmt, &carried);
}
