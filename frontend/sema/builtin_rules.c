/* SPDX-License-Identifier: Apache-2.0 */
/* What the rows of operations cannot say: calls that are more than one node, and arguments that hang together. */
#include <math.h>
#include "builtins.h"

/* sqrt and rsqrt work on numbers as well. */
bool zp_apply_root(zp_elab *e, zp_call *call, zp_value *value) {
  const zp_value *x = &call->slots[0].value;
  if (x->kind == ZP_VAL_NUMBER) return zp_eval_root(e->diags, call->expr, x, call->op == ZP_OP_SQRT, value);
  if (!zp_call_is_tensor(e, call, "x")) return false;
  call->in[call->n_in++] = *x;
  return zp_call_apply(e, call, value);
}

/* The rate is train's unless given. Every dropout has a stream of random numbers of its own, also when its rate is 0:
 * the streams of the others must not depend on it. */
bool zp_apply_dropout(zp_elab *e, zp_call *call, zp_value *value) {
  call->attr.stream = e->streams++;
  if (!zp_call_slot(call, "rate")->given) call->attr.rate = e->dropout;
  if (call->attr.rate > 0) return zp_call_apply(e, call, value);
  *value = call->in[0];
  return true;
}

bool zp_apply_split(zp_elab *e, zp_call *call, zp_value *value) {
  const zp_slot *slot = zp_call_slot(call, "axis");
  double axis;
  if (!zp_slot_number(e, slot, "axis", -1, &axis)) return false;
  if (axis != -1 && axis != zp_elab_value_shape(e, &call->in[0]).rank - 1) {
    zp_diag *d =
        zp_report(e->diags, ZP_Z0216, slot->value.span, "`split` along axis %g is known but not built yet", axis);
    zp_diag_help(d, "split the last size: `axis = -1`");
    return false;
  }
  *value = call->in[0];
  if (call->attr.parts == 1) return true;
  if (!zp_call_apply(e, call, value)) return false;
  zp_call_list_results(e, call, call->attr.parts, value);
  return true;
}

bool zp_apply_cast(zp_elab *e, zp_call *call, zp_value *value) {
  static const char *const types[] = {"f32", "bf16", "f16", NULL};
  static const zp_op ops[] = {ZP_OP_CAST_F32, ZP_OP_CAST_BF16, ZP_OP_CAST_F16};
  int type;
  if (!zp_slot_choice(e, zp_call_slot(call, "type"), "type", types, &type)) return false;
  call->op = ops[type];
  return zp_call_apply(e, call, value);
}

bool zp_apply_transpose(zp_elab *e, zp_call *call, zp_value *value) {
  zp_handle handle = e->handles.data[call->in[0].tensor];
  if (call->expr == e->transposable) {
    handle.transposed = true;
    *value = zp_elab_tensor(e, handle, call->expr->span);
    return true;
  }
  if (handle.kind == ZP_HANDLE_VALUE) return zp_call_apply(e, call, value);
  zp_diag *d =
      zp_report(e->diags, ZP_Z0229, call->expr->span,
                "`transpose` of a parameter is built as the second operand of `matmul` or `batched_matmul` only");
  zp_diag_help(d, "write `matmul(x, transpose(w))`, or `batched_matmul(x, transpose(w))`");
  return false;
}

/* Streams of attention's dropout: apart from those of `dropout`, which must not depend on what attention drops. */
enum { ATTENTION_STREAMS = 0x8000 };

bool zp_check_attention(zp_elab *e, zp_call *call) {
  zp_op_attr *attr = &call->attr;
  const zp_slot *heads = zp_call_slot(call, "heads"), *distance = zp_call_slot(call, "max_distance");
  const zp_slot *lengths = zp_call_slot(call, "lengths"), *alibi = zp_call_slot(call, "alibi");
  bool biased = zp_call_slot(call, "relative_bias")->given, has_alibi;
  if (!zp_slot_bool(e, alibi, "alibi", false, &has_alibi)) return false;
  attr->stream = ATTENTION_STREAMS + e->attention_streams++;
  attr->heads_extent = heads->value.extent;
  attr->alibi_heads = has_alibi ? attr->heads : 0;
  attr->documents = zp_call_slot(call, "documents")->given;
  if (!zp_call_slot(call, "kv_heads")->given) attr->kv_heads = attr->heads;
  if (biased && !distance->given) attr->max_distance = 128;
  if (distance->given && !biased) {
    zp_report(e->diags, ZP_Z0237, distance->value.span, "`max_distance` is of a `relative_bias`, and there is none");
    return false;
  }
  if (attr->documents && lengths->given) {
    zp_diag *d = zp_report(e->diags, ZP_Z0237, lengths->value.span,
                           "`lengths` do not go with `documents`, which say what is there");
    zp_diag_help(d, "leave `lengths` away: positions whose document is -1 are not there");
    return false;
  }
  return true;
}

bool zp_check_gate(zp_elab *e, zp_call *call) {
  const zp_slot *room = zp_call_slot(call, "room");
  if (!zp_call_slot(call, "bias")->given) call->attr.bias_rate = 0;
  call->attr.dropless = isinf(call->attr.capacity);
  if (!room->given || (call->attr.dropless && call->attr.room >= 1)) return true;
  zp_diag *d =
      zp_report(e->diags, ZP_Z0237, room->value.span, "`room` is %s",
                call->attr.dropless ? "at least 1, that of an even load" : "for rows of `capacity = dropless`");
  zp_diag_help(d, call->attr.dropless ? "leave `room` out to have room for all rows that could come"
                                      : "slots, of which `capacity` says how many, are the room of others");
  return false;
}

bool zp_apply_gate(zp_elab *e, zp_call *call, zp_value *value) {
  zp_whole statement = e->whole;
  e->whole = (zp_whole){0}; /* a statement that takes weights and slots names neither of them the gate */
  bool ok = zp_call_apply(e, call, value);
  e->whole = statement;
  if (ok) zp_call_list_results(e, call, 2, value);
  return ok;
}

/* Which label stands for none is a matter of the data: it is kept with the input. */
static bool set_ignored(zp_elab *e, const zp_call *call) {
  const zp_slot *slot = zp_call_slot(call, "ignore_index"), *label = zp_call_slot(call, "labels");
  double none;
  if (!zp_slot_number(e, slot, "ignore_index", -1, &none)) return false;
  if (none != floor(none) || fabs(none) > INT32_MAX) {
    zp_report(e->diags, ZP_Z0237, slot->value.span, "`ignore_index` is a label, this is %g", none);
    return false;
  }
  const zp_handle *labels = label->value.kind == ZP_VAL_TENSOR ? &e->handles.data[label->value.tensor] : NULL;
  if (!labels || labels->kind != ZP_HANDLE_INPUT) return true; /* the shape rule reports it */
  zp_input *input = &e->model->inputs.data[labels->index];
  if (input->labels && input->none != (int64_t)none) {
    zp_report(e->diags, ZP_Z0237, slot->given ? slot->value.span : label->value.span,
              "`ignore_index` of `%s` is %lld in another cross-entropy, and %lld here", input->name,
              (long long)input->none, (long long)none);
    return false;
  }
  input->labels = true;
  input->none = (int64_t)none;
  return true;
}

bool zp_check_cross_entropy(zp_elab *e, zp_call *call) {
  const zp_slot *lengths = zp_call_slot(call, "lengths");
  if (!set_ignored(e, call)) return false;
  if (lengths->given && call->attr.smoothing > 0)
    zp_report(e->diags, ZP_Z0237, lengths->value.span, "`lengths` do not go with `label_smoothing`");
  return !lengths->given || call->attr.smoothing == 0;
}
