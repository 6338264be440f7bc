/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks are inlined: their formals are bound to the arguments, sizes in shapes are unified, the body is executed in a
 * scope of its own, and the results are checked against the declared types. */
#include "elaborate.h"

/* ---- formals ---- */

typedef enum formal_class { FORMAL_ANY, FORMAL_VALUE, FORMAL_TENSOR } formal_class;

static formal_class class_of(const zp_formal *formal) {
  if (!formal->type) return FORMAL_ANY;
  return formal->type->has_shape ? FORMAL_TENSOR : FORMAL_VALUE;
}

static const char *const value_types[] = {"int", "float", "bool", "string"};

static bool fits_type(const zp_value *value, const char *type) {
  bool number = value->kind == ZP_VAL_NUMBER && value->dimension == ZP_DIM_NONE;
  if (strcmp(type, "int") == 0) return number && value->is_integer;
  if (strcmp(type, "float") == 0) return number;
  if (strcmp(type, "bool") == 0) return value->kind == ZP_VAL_BOOL;
  return value->kind == ZP_VAL_STRING;
}

/* Gives a formal its value. Whole numbers that a model declares are the symbols of its shapes. */
static void set_formal(zp_elab *e, const zp_formal *formal, zp_value value) {
  if (e->frame->kind == ZP_FRAME_MODEL && value.kind == ZP_VAL_NUMBER && value.is_integer &&
      value.dimension == ZP_DIM_NONE && value.number >= 1 && value.number <= 1e13)
    value.extent = zp_extent_symbol(e->arena, formal->name.text, (int64_t)value.number);
  zp_scope_set(e->frame->scope, formal->name.text, value);
}

static bool bind_value(zp_elab *e, const zp_formal *formal, const zp_value *value) {
  const char *type = formal->type ? formal->type->element.text : NULL;
  bool known = !type;
  for (size_t i = 0; i < sizeof value_types / sizeof *value_types; i++)
    known = known || strcmp(type, value_types[i]) == 0;
  if (!known) {
    zp_diag *d = zp_report(e->diags, ZP_Z0203, formal->type->element.span, "unknown type `%s`", type);
    if (!zp_diag_did_you_mean(d, type, value_types, 4))
      zp_diag_help(d, "values are int, float, bool or string; tensors have a shape: `%s: [B, S, d]`",
                   formal->name.text);
    return false;
  }
  if (type && !fits_type(value, type)) {
    zp_diag *d = zp_report(e->diags, ZP_Z0202, value->span, "`%s` must be %s `%s`, this is %s", formal->name.text,
                           *type == 'i' ? "an" : "a", type, zp_value_text(e->arena, value));
    zp_diag_also(d, formal->name.span, "declared here");
    return false;
  }
  set_formal(e, formal, *value);
  return true;
}

/* A formal without a type whose default is a number, string or bool wants the same kind again. */
static bool bind_any(zp_elab *e, const zp_formal *formal, const zp_value *value) {
  bool tensor = value->kind == ZP_VAL_TENSOR || value->kind == ZP_VAL_LIST;
  zp_expr_kind init = formal->init ? formal->init->kind : ZP_EXPR_NAME;
  bool literal = init == ZP_EXPR_NUMBER || init == ZP_EXPR_STRING || init == ZP_EXPR_BOOL;
  zp_value_kind wanted = init == ZP_EXPR_STRING ? ZP_VAL_STRING : init == ZP_EXPR_BOOL ? ZP_VAL_BOOL : ZP_VAL_NUMBER;
  bool fraction = init == ZP_EXPR_NUMBER && formal->init->is_integer && !value->is_integer;
  if ((formal->init && tensor) || (literal && (value->kind != wanted || fraction))) {
    zp_diag *d = zp_report(e->diags, ZP_Z0202, value->span, "`%s` must be %s, this is %s", formal->name.text,
                           wanted == ZP_VAL_STRING ? "a string"
                           : wanted == ZP_VAL_BOOL ? "true or false"
                           : fraction              ? "a whole number"
                                                   : "a number",
                           zp_value_text(e->arena, value));
    zp_diag_also(d, formal->name.span, "declared here");
    return false;
  }
  set_formal(e, formal, *value);
  return true;
}

static bool bind_default(zp_elab *e, const zp_formal *formal) {
  zp_value value;
  if (!zp_elab_eval(e, formal->init, &value)) {
    zp_scope_set(e->frame->scope, formal->name.text, (zp_value){.kind = ZP_VAL_POISON});
    return false;
  }
  return bind_value(e, formal, &value);
}

/* ---- unification ---- */

/* One size of a formal's shape against the size found. `item`: to evaluate the default of a formal that a shape
 * names. */
static bool unify_dim(zp_elab *e, const zp_item *item, const zp_expr *dim, int position, const zp_shape *shape_found,
                      const zp_value *argument) {
  int64_t found = shape_found->dim[position];
  const char *name = dim->kind == ZP_EXPR_NAME && strcmp(dim->text, "B") != 0 ? dim->text : NULL;
  if (name && !zp_scope_get(e->frame->scope, name)) {
    for (int i = 0; i < item->formals.len; i++) {
      const zp_formal *formal = &item->formals.data[i];
      if (strcmp(formal->name.text, name) == 0 && formal->init)
        return bind_default(e, formal) && unify_dim(e, item, dim, position, shape_found, argument);
    }
    if (found == ZP_DIM_B) {
      zp_diag *d = zp_report(e->diags, ZP_Z0219, argument->span, "the micro-batch size cannot be bound to `%s`", name);
      zp_diag_also(d, dim->span, "write `B` here");
      return false;
    }
    zp_value size = zp_number_value((double)found, true, argument->span);
    size.extent = shape_found->extent[position];
    zp_scope_set(e->frame->scope, name, size);
    return true;
  }
  int64_t wanted;
  const zp_extent *extent;
  if (!zp_elab_dim(e, dim, position, &wanted, &extent)) return false;
  if (wanted == found) return true;
  zp_shape shape = zp_elab_value_shape(e, argument);
  const char *want = wanted == ZP_DIM_B ? "B" : zp_format(e->arena, "%lld", (long long)wanted);
  const char *got = found == ZP_DIM_B ? "B" : zp_format(e->arena, "%lld", (long long)found);
  zp_diag *d = name ? zp_report(e->diags, ZP_Z0217, argument->span, "`%s` of `%s` is %s and %s at once", name,
                                item->name.text, want, got)
                    : zp_report(e->diags, ZP_Z0217, argument->span, "size %d of this argument of `%s` is %s, not %s",
                                position + 1, item->name.text, got, want);
  zp_diag_label(d, "%s", zp_shape_text(e->arena, &shape));
  const zp_value *bound = name ? zp_scope_get(e->frame->scope, name) : NULL;
  if (bound && bound->span.file >= 0) zp_diag_also(d, bound->span, "`%s` is %s because of this", name, want);
  zp_diag_also(d, dim->span, "declared here");
  return false;
}

static bool fits_element(zp_elab *e, const zp_formal *formal, const zp_value *argument) {
  const zp_name *element = &formal->type->element;
  bool ids = element->text && strcmp(element->text, "i32") == 0;
  if (element->text && !ids && strcmp(element->text, "f32") != 0) {
    zp_diag *d = zp_report(e->diags, ZP_Z0203, element->span, "unknown element type `%s`", element->text);
    zp_diag_help(d, "tensors hold f32 (the default; stored as `precision` says) or i32");
    return false;
  }
  bool has_ids = zp_elab_value_element(e, argument) == ZP_ELEM_I32;
  if (ids == has_ids) return true;
  zp_diag *d = zp_report(e->diags, ZP_Z0217, argument->span, "`%s` needs %s, this tensor holds %s", formal->name.text,
                         ids ? "token ids" : "numbers", has_ids ? "token ids" : "numbers");
  zp_diag_also(d, formal->type->span, "declared here");
  return false;
}

static const char *type_text(zp_elab *e, const zp_type_expr *type) {
  size_t len;
  const char *text = zp_diags_source_text(e->diags, type->span.file, &len);
  return zp_strndup(e->arena, text + type->span.begin, type->span.end - type->span.begin);
}

static bool bind_tensor(zp_elab *e, const zp_item *item, const zp_formal *formal, const zp_value *argument) {
  if (argument->kind != ZP_VAL_TENSOR) {
    zp_diag *d = zp_report(e->diags, ZP_Z0202, argument->span, "`%s` of `%s` must be a tensor, this is %s",
                           formal->name.text, item->name.text, zp_value_kind_name(argument));
    zp_diag_also(d, formal->name.span, "declared here");
    return false;
  }
  if (!fits_element(e, formal, argument)) return false;
  zp_shape shape = zp_elab_value_shape(e, argument);
  const zp_type_expr *type = formal->type;
  if (shape.rank != type->dims.len) {
    zp_diag *d = zp_report(e->diags, ZP_Z0217, argument->span, "`%s` of `%s` needs %d sizes, this tensor has %d",
                           formal->name.text, item->name.text, type->dims.len, shape.rank);
    zp_diag_label(d, "%s", zp_shape_text(e->arena, &shape));
    zp_diag_also(d, type->span, "declared as %s", type_text(e, type));
    return false;
  }
  zp_scope_set(e->frame->scope, formal->name.text, *argument);
  for (int i = 0; i < shape.rank; i++)
    if (!unify_dim(e, item, type->dims.data[i], i, &shape, argument)) return false;
  return true;
}

/* Given values first, then tensors (their shapes may use values), then defaults (they may use sizes: ff = 4 * d). */
bool zp_elab_bind(zp_elab *e, const zp_expr *call, const zp_item *item, const zp_slot *slots) {
  bool ok = true;
  for (int i = 0; i < item->formals.len; i++) {
    const zp_formal *formal = &item->formals.data[i];
    if (!slots[i].given && !formal->init) {
      zp_diag *d =
          zp_report(e->diags, ZP_Z0214, call->at, "`%s` needs the argument `%s`", item->name.text, formal->name.text);
      zp_diag_also(d, formal->name.span, "declared here");
      ok = false;
    } else if (slots[i].given) {
      formal_class class = class_of(formal);
      if (class == FORMAL_VALUE) ok = bind_value(e, formal, &slots[i].value) && ok;
      if (class == FORMAL_ANY) ok = bind_any(e, formal, &slots[i].value) && ok;
    }
  }
  for (int i = 0; i < item->formals.len && ok; i++) {
    const zp_formal *formal = &item->formals.data[i];
    if (class_of(formal) == FORMAL_TENSOR && slots[i].given) ok = bind_tensor(e, item, formal, &slots[i].value);
  }
  for (int i = 0; i < item->formals.len && ok; i++) {
    const zp_formal *formal = &item->formals.data[i];
    if (!slots[i].given && !zp_scope_get(e->frame->scope, formal->name.text)) ok = bind_default(e, formal);
  }
  zp_elab_note_formals(e, item);
  return ok;
}

bool zp_elab_formal_names(zp_elab *e, const zp_item *item, const char **names) {
  if (item->formals.len > ZP_MAX_ARGS) {
    zp_report(e->diags, ZP_Z0214, item->name.span, "`%s` has more than %d formals", item->name.text, ZP_MAX_ARGS);
    return false;
  }
  for (int i = 0; i < item->formals.len; i++) {
    const zp_formal *formal = &item->formals.data[i];
    names[i] = formal->name.text;
    for (int k = 0; k < i; k++) {
      if (strcmp(names[k], names[i]) != 0) continue;
      zp_diag *d =
          zp_report(e->diags, ZP_Z0201, formal->name.span, "`%s` has two formals `%s`", item->name.text, names[i]);
      zp_diag_also(d, item->formals.data[k].name.span, "first here");
      return false;
    }
    if (strcmp(names[i], "B") != 0) continue;
    zp_report(e->diags, ZP_Z0239, formal->name.span, "a formal cannot be called `B`: that is the micro-batch size");
    return false;
  }
  return true;
}

/* ---- results ---- */

static bool check_result(zp_elab *e, const zp_item *block, const zp_type_expr *type, const zp_value *result) {
  zp_shape wanted, found;
  if (result->kind != ZP_VAL_TENSOR) {
    if (!type->has_shape && type->element.text && fits_type(result, type->element.text)) return true;
    zp_diag *d =
        zp_report(e->diags, ZP_Z0218, result->span, "`%s` returns %s", block->name.text, zp_value_kind_name(result));
    zp_diag_also(d, type->span, "declared as %s", type_text(e, type));
    return false;
  }
  if (!zp_elab_shape(e, type, &wanted)) return false;
  found = zp_elab_value_shape(e, result);
  if (zp_shape_equal(&wanted, &found)) return true;
  zp_diag *d = zp_report(e->diags, ZP_Z0218, result->span, "`%s` returns %s, but %s is declared", block->name.text,
                         zp_shape_text(e->arena, &found), zp_shape_text(e->arena, &wanted));
  zp_diag_label(d, "%s", zp_shape_text(e->arena, &found));
  zp_diag_also(d, type->span, "declared here: %s", zp_shape_text(e->arena, &wanted));
  return false;
}

static bool check_results(zp_elab *e, const zp_item *block) {
  const zp_frame *frame = e->frame;
  if (!frame->returned) {
    zp_diag *d = zp_report(e->diags, ZP_Z0232, block->name.span, "block `%s` ends without `return`", block->name.text);
    zp_diag_help(d, "end it with `return x`");
    return false;
  }
  const zp_value *result = &frame->result;
  if (result->kind == ZP_VAL_POISON) return false;
  int count = result->kind == ZP_VAL_LIST ? result->list.len : 1;
  if (block->returns.len == 0) return true;
  if (block->returns.len != count) {
    zp_report(e->diags, ZP_Z0218, block->name.span, "`%s` declares %d result%s and returns %d", block->name.text,
              block->returns.len, block->returns.len == 1 ? "" : "s", count);
    return false;
  }
  for (int i = 0; i < count; i++)
    if (!check_result(e, block, block->returns.data[i], count > 1 ? &result->list.data[i] : result)) return false;
  return true;
}

/* ---- inlining ---- */

static bool is_running(zp_elab *e, const zp_expr *call, const zp_item *block) {
  for (const zp_frame *frame = e->frame; frame; frame = frame->caller) {
    if (frame->item != block) continue;
    zp_diag *d = zp_report(e->diags, ZP_Z0233, call->span, "block `%s` calls itself", block->name.text);
    zp_diag_also(d, block->name.span, "defined here");
    return true;
  }
  return false;
}

/* Blocks that call others twice, which call others twice, are as large as two to the power of their lines. */
static bool is_too_large(zp_elab *e, const zp_expr *call, const zp_item *block) {
  enum { MOST_CALLS = 20000 };
  if (e->calls++ < MOST_CALLS) return false;
  zp_diag *d = zp_report(e->diags, ZP_Z0211, call->span, "the model has more than %d calls of blocks", MOST_CALLS);
  zp_diag_also(d, block->name.span, "blocks are written out at every call");
  zp_diag_help(d, "`repeat` has one body for all of its iterations");
  return true;
}

static bool has_failed(const zp_elab *e, const zp_item *block) {
  for (int i = 0; i < e->failed.len; i++)
    if (e->failed.data[i] == block) return true;
  return false;
}

/* Errors found inside a block say which call made the instance: the same body is right with other sizes. */
static void add_call_notes(zp_elab *e, const zp_expr *call, const zp_item *block, int first) {
  for (int i = first; i < zp_diags_count(e->diags); i++) {
    zp_diag *d = zp_diags_get(e->diags, i);
    if (zp_span_within(zp_diag_span(d), call->span)) continue; /* shows the call already */
    zp_diag_note(d, "inside `%s`, called from %s", block->name.text, zp_diags_place(e->diags, e->arena, call->span));
  }
}

static bool run_block(zp_elab *e, const zp_expr *call, const zp_item *block) {
  int first = zp_diags_count(e->diags), errors = zp_diags_errors(e->diags);
  zp_whole outer = e->whole;
  e->whole = (zp_whole){0};
  zp_elab_statements(e, &block->body);
  e->whole = outer;
  bool ok = zp_diags_errors(e->diags) == errors && check_results(e, block);
  zp_blame_call(e->diags, first, call, block);
  add_call_notes(e, call, block, first);
  if (!ok) zp_push(e->arena, &e->failed, block);
  return ok;
}

/* What the result of this call is called in the caller: the name on the left, or what the caller's own result is
 * called, or the path of the instance. */
static const char *result_name(const zp_elab *e, const zp_expr *call, const zp_frame *frame) {
  const zp_frame *caller = frame->caller;
  if (call != e->whole.expr) return zp_elab_local(frame->param_path);
  if (!e->whole.name) return caller->result_name;
  return zp_elab_join(e->arena, zp_elab_local(caller->param_path), e->whole.name);
}

static int nodes_of(const zp_elab *e, int segment) {
  return segment < 0 ? 0 : e->model->segments.data[segment].graph->nodes.len;
}

static void note_library_call(zp_elab *e, const zp_expr *call, const zp_item *block, int segment, int first) {
  if (!zp_diags_in_library(e->diags, block->name.span) || zp_diags_in_library(e->diags, call->span)) return;
  zp_library_call made = {call->span, e->segment, segment == e->segment ? first : 0, nodes_of(e, e->segment)};
  zp_push(e->arena, &e->library_calls, made);
}

bool zp_elab_inline(zp_elab *e, const zp_expr *call, const zp_item *block, zp_module *where, zp_value *value) {
  const char *names[ZP_MAX_ARGS];
  zp_slot slots[ZP_MAX_ARGS] = {0};
  if (is_running(e, call, block) || is_too_large(e, call, block) || !zp_elab_formal_names(e, block, names))
    return false;
  if (!zp_elab_collect(e, call, block->name.text, names, block->formals.len, slots) || has_failed(e, block))
    return false;
  zp_frame *caller = e->frame;
  zp_frame frame = {.kind = ZP_FRAME_BLOCK,
                    .caller = caller,
                    .item = block,
                    .module = where,
                    .scope = zp_scope_new(e->arena, where->lets),
                    .param_path = caller->param_path};
  const char *component = zp_elab_instance(e, call, block);
  if (*component)
    frame.param_path = zp_taken_names_give(e->arena, &e->paths, zp_elab_join(e->arena, caller->param_path, component));
  frame.result_name = result_name(e, call, &frame);
  e->frame = &frame;
  int segment = e->segment, first_node = nodes_of(e, segment);
  bool ok = zp_elab_bind(e, call, block, slots) && run_block(e, call, block);
  e->frame = caller;
  note_library_call(e, call, block, segment, first_node);
  *value = frame.result;
  value->span = call->span;
  return ok;
}
