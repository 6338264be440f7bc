/* SPDX-License-Identifier: Apache-2.0 */
/* Facts about names for editors (<zplan/facts.h>), noted while bodies are executed. */
#include "elaborate.h"

#include <zplan/buf.h>

/* Parameters of an instance or one tensor, in every iteration of a repeat. */
static const char *parameters_text(const zp_elab *e, int first, int behind) {
  int64_t elements = 0, copies = 1;
  for (int i = first; i < behind; i++) {
    const zp_param *param = &e->model->params.data[i];
    elements += zp_shape_elements(&param->shape, 1);
    if (param->segment >= 0) copies = e->model->segments.data[param->segment].count;
  }
  if (elements == 0) return "";
  const char *each = copies > 1 ? zp_format(e->arena, " in each of %lld iterations", (long long)copies) : "";
  return zp_format(e->arena, ", %s parameter%s%s", zp_show_whole(e->arena, elements), elements == 1 ? "" : "s", each);
}

static const char *tensor_text(const zp_elab *e, const zp_value *value) {
  zp_shape shape = zp_elab_value_shape(e, value);
  const char *ids = zp_elab_value_element(e, value) == ZP_ELEM_I32 ? "i32" : "";
  return zp_format(e->arena, "%s%s", ids, zp_shape_text(e->arena, &shape));
}

/* ": [B, 64]", " = 768"; NULL: nothing is known. */
static const char *value_text(const zp_elab *e, const zp_value *value) {
  const zp_handle *handle = value->kind == ZP_VAL_TENSOR ? &e->handles.data[value->tensor] : NULL;
  switch (value->kind) {
  case ZP_VAL_NUMBER:
  case ZP_VAL_STRING:
  case ZP_VAL_BOOL: return zp_format(e->arena, " = %s", zp_value_text(e->arena, value));
  case ZP_VAL_TENSOR:
    if (handle->kind == ZP_HANDLE_ITERATION) return ": the number of an iteration";
    if (handle->kind == ZP_HANDLE_LOSSES) return ": a sum of losses";
    if (handle->kind != ZP_HANDLE_PARAM) return zp_format(e->arena, ": %s", tensor_text(e, value));
    return zp_format(e->arena, ": %s%s", tensor_text(e, value), parameters_text(e, handle->index, handle->index + 1));
  case ZP_VAL_LIST: {
    const char *text = ":";
    for (int i = 0; i < value->list.len; i++) {
      if (value->list.data[i].kind != ZP_VAL_TENSOR) return NULL;
      text = zp_format(e->arena, "%s%s %s", text, i ? "," : "", tensor_text(e, &value->list.data[i]));
    }
    return text;
  }
  default: return NULL;
  }
}

static bool wanted(const zp_elab *e, zp_span span) {
  return e->facts && span.file == 0 && e->facts->list.len < ZP_MOST_FACTS;
}

void zp_elab_note(zp_elab *e, zp_span span, const char *name, const zp_value *value, zp_span defined) {
  const char *text = wanted(e, span) ? value_text(e, value) : NULL;
  if (!text) return;
  zp_fact fact = {span, defined, zp_format(e->facts->arena, "%s%s", name, text)};
  zp_push(e->facts->arena, &e->facts->list, fact);
}

void zp_elab_note_name(void *user, const zp_expr *name, const zp_value *found) {
  zp_elab *e = user;
  if (wanted(e, name->span)) zp_elab_note(e, name->span, zp_dotted_name(e->arena, name), found, found->span);
}

void zp_elab_note_formals(zp_elab *e, const zp_item *item) {
  for (int i = 0; i < item->formals.len; i++) {
    const zp_name *name = &item->formals.data[i].name;
    const zp_value *value = zp_scope_get(e->frame->scope, name->text);
    if (value) zp_elab_note(e, name->span, name->text, value, name->span);
  }
}

void zp_elab_note_call(zp_elab *e, const zp_expr *call, const char *name, const zp_item *block, int first_param,
                       const zp_value *value) {
  const char *text = wanted(e, call->left->span) ? value_text(e, value) : NULL;
  if (!text) return;
  const char *own = block ? parameters_text(e, first_param, e->model->params.len) : "";
  zp_fact fact = {call->left->span, block ? block->name.span : ZP_NO_SPAN,
                  zp_format(e->facts->arena, "%s%s%s", name, text, own)};
  zp_push(e->facts->arena, &e->facts->list, fact);
}
