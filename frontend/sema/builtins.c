/* The operations of the language: one table, one function per kind of arguments; those along axes and einsum have files
 * of their own. */
#include <math.h>
#include "builtins.h"

bool zp_builtin_is_tensor(zp_elab *e, const zp_builtin *op, const zp_slot *slots, int i) {
  if (slots[i].value.kind == ZP_VAL_TENSOR) return true;
  zp_report(e->diags, ZP_Z0202, slots[i].value.span, "`%s` of `%s` must be a tensor, this is %s", op->args[i], op->name,
            zp_value_kind_name(&slots[i].value));
  return false;
}

/* The first `required` arguments as tensors. */
bool zp_builtin_tensors(zp_elab *e, const zp_builtin *op, const zp_slot *slots, zp_value *in) {
  for (int i = 0; i < op->required; i++) {
    if (!zp_builtin_is_tensor(e, op, slots, i)) return false;
    in[i] = slots[i].value;
  }
  return true;
}

bool zp_builtin_apply(zp_elab *e, const zp_builtin *op, const zp_expr *call, const zp_slot *slots, zp_op_attr attr,
                      zp_value *value) {
  zp_value in[3];
  return zp_builtin_tensors(e, op, slots, in) &&
         zp_elab_apply(e, call, op->op, in, op->required, attr, op->name, value);
}

static bool apply_plain(zp_elab *e, const zp_builtin *op, const zp_expr *call, const zp_slot *slots, zp_value *value) {
  return zp_builtin_apply(e, op, call, slots, (zp_op_attr){0}, value);
}

/* sqrt and rsqrt work on numbers as well. */
static bool apply_root(zp_elab *e, const zp_builtin *op, const zp_expr *call, const zp_slot *slots, zp_value *value) {
  if (slots[0].value.kind != ZP_VAL_NUMBER) return apply_plain(e, op, call, slots, value);
  return zp_eval_root(e->diags, call, &slots[0].value, op->op == ZP_OP_SQRT, value);
}

static bool apply_gelu(zp_elab *e, const zp_builtin *op, const zp_expr *call, const zp_slot *slots, zp_value *value) {
  static const char *const forms[] = {"none", "tanh", NULL};
  int form;
  return zp_slot_choice(e, &slots[1], "approximate", forms, &form) &&
         zp_builtin_apply(e, op, call, slots, (zp_op_attr){.tanh_form = form == 1}, value);
}

static bool apply_norm_of(zp_elab *e, const zp_builtin *op, const zp_expr *call, const zp_slot *slots, zp_op_attr attr,
                          zp_value *value) {
  const zp_slot *slot = &slots[op->required];
  if (!zp_slot_number(e, slot, "eps", 1e-5, &attr.eps)) return false;
  if (attr.eps > 0) return zp_builtin_apply(e, op, call, slots, attr, value);
  zp_report(e->diags, ZP_Z0237, slot->value.span, "`eps` must be above 0, this is %g", attr.eps);
  return false;
}

static bool apply_norm(zp_elab *e, const zp_builtin *op, const zp_expr *call, const zp_slot *slots, zp_value *value) {
  return apply_norm_of(e, op, call, slots, (zp_op_attr){0}, value);
}

static bool apply_rms_norm(zp_elab *e, const zp_builtin *op, const zp_expr *call, const zp_slot *slots,
                           zp_value *value) {
  zp_op_attr attr = {0};
  return zp_slot_number(e, &slots[3], "offset", 0, &attr.value) &&
         zp_slot_count(e, &slots[4], "heads", 0, &attr.heads) && apply_norm_of(e, op, call, slots, attr, value);
}

/* The rate is train's unless given. Every dropout has a stream of random numbers of its own, also when its rate is 0:
 * the streams of the others must not depend on it. */
static bool apply_dropout(zp_elab *e, const zp_builtin *op, const zp_expr *call, const zp_slot *slots,
                          zp_value *value) {
  zp_op_attr attr = {.stream = e->streams++};
  if (!zp_slot_number(e, &slots[1], "rate", e->dropout, &attr.rate)) return false;
  if (attr.rate < 0 || attr.rate >= 1) {
    zp_report(e->diags, ZP_Z0237, slots[1].given ? slots[1].value.span : call->span,
              "a dropout rate lies in 0 .. 1 (1 excluded), this is %g", attr.rate);
    return false;
  }
  if (attr.rate > 0) return zp_builtin_apply(e, op, call, slots, attr, value);
  *value = slots[0].value;
  return zp_builtin_tensors(e, op, slots, value);
}

static bool apply_rope(zp_elab *e, const zp_builtin *op, const zp_expr *call, const zp_slot *slots, zp_value *value) {
  static const char *const styles[] = {"half", "interleaved", NULL};
  zp_op_attr attr = {0};
  int style;
  bool ok = zp_elab_require(e, call, op->name, "heads", &slots[1]) &&
            zp_slot_count(e, &slots[1], "heads", 1, &attr.heads) &&
            zp_slot_number(e, &slots[2], "theta", 10000.0, &attr.theta) &&
            zp_slot_choice(e, &slots[3], "style", styles, &style);
  if (!ok) return false;
  attr.interleaved = style == 1;
  if (attr.theta > 0) return zp_builtin_apply(e, op, call, slots, attr, value);
  zp_report(e->diags, ZP_Z0237, slots[2].value.span, "`theta` must be above 0, this is %g", attr.theta);
  return false;
}

static bool apply_split(zp_elab *e, const zp_builtin *op, const zp_expr *call, const zp_slot *slots, zp_value *value) {
  zp_op_attr attr = {0};
  double axis;
  zp_value first;
  bool ok = zp_elab_require(e, call, op->name, "n", &slots[1]) && zp_slot_count(e, &slots[1], "n", 1, &attr.parts) &&
            zp_slot_number(e, &slots[2], "axis", -1, &axis);
  if (!ok || !zp_builtin_tensors(e, op, slots, &first)) return false;
  zp_shape shape = zp_elab_value_shape(e, &first);
  if (axis != -1 && axis != shape.rank - 1) {
    zp_diag *d =
        zp_report(e->diags, ZP_Z0216, slots[2].value.span, "`split` along axis %g is known but not built yet", axis);
    zp_diag_help(d, "split the last size: `axis = -1`");
    return false;
  }
  if (attr.parts == 1) {
    *value = first;
    return true;
  }
  if (!zp_builtin_apply(e, op, call, slots, attr, &first)) return false;
  zp_handle handle = e->handles.data[first.tensor];
  *value = (zp_value){.kind = ZP_VAL_LIST, .span = call->span};
  for (int64_t i = 0; i < attr.parts; i++, handle.index++) {
    zp_value part = zp_elab_tensor(e, handle, call->span);
    zp_push(e->arena, &value->list, part);
  }
  return true;
}

static bool apply_cast(zp_elab *e, const zp_builtin *op, const zp_expr *call, const zp_slot *slots, zp_value *value) {
  static const char *const types[] = {"f32", "bf16", "f16", NULL};
  static const zp_op ops[] = {ZP_OP_CAST_F32, ZP_OP_CAST_BF16, ZP_OP_CAST_F16};
  zp_builtin own = *op;
  int type;
  if (!zp_elab_require(e, call, op->name, "type", &slots[1]) || !zp_slot_choice(e, &slots[1], "type", types, &type))
    return false;
  own.op = ops[type];
  return zp_builtin_apply(e, &own, call, slots, (zp_op_attr){0}, value);
}

/* Places of arguments of attention. */
enum {
  LENGTHS = 8,
  WINDOW,
  SOFTCAP,
  ALIBI,
  CROSS,
  BIAS,
  MAX_DISTANCE,
  DROPOUT,
  DOCUMENTS,
};
/* Streams of attention's dropout: apart from those of `dropout`, which must not depend on what attention drops. */
enum { ATTENTION_STREAMS = 0x8000 };

static bool apply_attention(zp_elab *e, const zp_builtin *op, const zp_expr *call, const zp_slot *slots,
                            zp_value *value) {
  zp_op_attr attr = {.stream = ATTENTION_STREAMS + e->attention_streams++};
  bool alibi;
  bool ok = zp_elab_require(e, call, op->name, "heads", &slots[3]) &&
            zp_slot_count(e, &slots[3], "heads", 1, &attr.heads) &&
            zp_slot_count(e, &slots[4], "kv_heads", attr.heads, &attr.kv_heads) &&
            zp_slot_bool(e, &slots[5], "causal", true, &attr.causal) &&
            zp_slot_number(e, &slots[6], "scale", 0, &attr.scale) && /* 0: 1 / sqrt(head size), by the op's rule */
            zp_slot_sparse(e, &slots[7], "pattern", &attr.sparse) &&
            zp_slot_count(e, &slots[WINDOW], "window", 0, &attr.window) &&
            zp_slot_number(e, &slots[SOFTCAP], "softcap", 0, &attr.softcap) &&
            zp_slot_bool(e, &slots[ALIBI], "alibi", false, &alibi) &&
            zp_slot_bool(e, &slots[CROSS], "cross", false, &attr.cross) &&
            zp_slot_count(e, &slots[MAX_DISTANCE], "max_distance", slots[BIAS].given ? 128 : 0, &attr.max_distance) &&
            zp_slot_number(e, &slots[DROPOUT], "dropout", 0, &attr.rate);
  if (!ok) return false;
  attr.heads_extent = slots[3].value.extent;
  if (slots[6].given && attr.scale <= 0) {
    zp_report(e->diags, ZP_Z0237, slots[6].value.span, "`scale` must be above 0, this is %g", attr.scale);
    return false;
  }
  if (slots[SOFTCAP].given && attr.softcap <= 0) {
    zp_report(e->diags, ZP_Z0237, slots[SOFTCAP].value.span, "`softcap` must be above 0, this is %g", attr.softcap);
    return false;
  }
  if (attr.rate < 0 || attr.rate >= 1) {
    zp_report(e->diags, ZP_Z0237, slots[DROPOUT].value.span, "a dropout rate lies in 0 .. 1 (1 excluded), this is %g",
              attr.rate);
    return false;
  }
  if (slots[MAX_DISTANCE].given && !slots[BIAS].given) {
    zp_report(e->diags, ZP_Z0237, slots[MAX_DISTANCE].value.span,
              "`max_distance` is of a `relative_bias`, and there is none");
    return false;
  }
  if (slots[DOCUMENTS].given && slots[LENGTHS].given) {
    zp_diag *d = zp_report(e->diags, ZP_Z0237, slots[LENGTHS].value.span,
                           "`lengths` do not go with `documents`, which say what is there");
    zp_diag_help(d, "leave `lengths` away: positions whose document is -1 are not there");
    return false;
  }
  if (alibi) attr.alibi_heads = attr.heads;
  attr.documents = slots[DOCUMENTS].given;
  zp_value in[ZP_MAX_OPERANDS];
  int n = 3;
  if (!zp_builtin_tensors(e, op, slots, in)) return false;
  static const int further[] = {LENGTHS, DOCUMENTS, BIAS};
  for (size_t i = 0; i < sizeof further / sizeof *further; i++) {
    if (!slots[further[i]].given) continue;
    if (!zp_builtin_is_tensor(e, op, slots, further[i])) return false;
    in[n++] = slots[further[i]].value;
  }
  return zp_elab_apply(e, call, op->op, in, n, attr, op->name, value);
}

/* Capacity 1.25 and no balancing loss unless given; Mixtral's weights (normalized over the chosen experts). The rate of
 * a bias is DeepSeek-V3's (arXiv 2412.19437, section 4.2). */
static bool apply_gate(zp_elab *e, const zp_builtin *op, const zp_expr *call, const zp_slot *slots, zp_value *value) {
  static const char *const affinities[] = {"softmax", "sigmoid", NULL};
  enum { GATE_BIAS = 6, GROUPS = 8, TOP_GROUPS = 9 };
  zp_op_attr attr = {0};
  int affinity;
  bool ok = zp_elab_require(e, call, op->name, "k", &slots[1]) && zp_slot_count(e, &slots[1], "k", 1, &attr.top_k) &&
            zp_slot_number(e, &slots[2], "capacity", 1.25, &attr.capacity) &&
            zp_slot_bool(e, &slots[3], "normalize", true, &attr.normalize) &&
            zp_slot_number(e, &slots[4], "balance", 0, &attr.balance) &&
            zp_slot_choice(e, &slots[5], "affinity", affinities, &affinity) &&
            zp_slot_number(e, &slots[GATE_BIAS + 1], "bias_rate", 0.001, &attr.bias_rate) &&
            zp_slot_count(e, &slots[GROUPS], "groups", 0, &attr.groups) &&
            zp_slot_count(e, &slots[TOP_GROUPS], "top_groups", 0, &attr.top_groups) &&
            (!attr.groups || zp_elab_require(e, call, op->name, "top_groups", &slots[TOP_GROUPS])) &&
            (!attr.top_groups || zp_elab_require(e, call, op->name, "groups", &slots[GROUPS]));
  attr.sigmoid = affinity == 1;
  if (!slots[GATE_BIAS].given) attr.bias_rate = 0;
  zp_value weight, in[2];
  zp_whole statement = e->whole;
  e->whole = (zp_whole){0}; /* a statement that takes weights and slots names neither of them the gate */
  ok = ok && zp_builtin_tensors(e, op, slots, in) &&
       (!slots[GATE_BIAS].given || zp_builtin_is_tensor(e, op, slots, GATE_BIAS));
  in[1] = slots[GATE_BIAS].value;
  ok = ok && zp_elab_apply(e, call, op->op, in, slots[GATE_BIAS].given ? 2 : 1, attr, op->name, &weight);
  e->whole = statement;
  if (!ok) return false;
  *value = (zp_value){.kind = ZP_VAL_LIST, .span = call->span};
  zp_push(e->arena, &value->list, weight);
  zp_handle slot = e->handles.data[weight.tensor];
  slot.index++;
  zp_value second = zp_elab_tensor(e, slot, call->span);
  zp_push(e->arena, &value->list, second);
  return true;
}

enum { IGNORE = 2, CLASSES = 5 }; /* places of arguments of cross_entropy */

/* What stands for none is a matter of the data: the input says it to those who read them. */
static bool set_ignored(zp_elab *e, const zp_slot *slots) {
  const zp_slot *slot = &slots[IGNORE];
  double none;
  if (!zp_slot_number(e, slot, "ignore_index", -1, &none)) return false;
  if (none != floor(none) || fabs(none) > INT32_MAX) {
    zp_report(e->diags, ZP_Z0237, slot->value.span, "`ignore_index` is a label, this is %g", none);
    return false;
  }
  const zp_handle *labels = slots[1].value.kind == ZP_VAL_TENSOR ? &e->handles.data[slots[1].value.tensor] : NULL;
  if (!labels || labels->kind != ZP_HANDLE_INPUT) return true; /* told by the shape rule */
  zp_input *input = &e->model->inputs.data[labels->index];
  if (input->labels && input->none != (int64_t)none) {
    zp_report(e->diags, ZP_Z0237, slot->given ? slot->value.span : slots[1].value.span,
              "`ignore_index` of `%s` is %lld in another cross-entropy, and %lld here", input->name,
              (long long)input->none, (long long)none);
    return false;
  }
  input->labels = true;
  input->none = (int64_t)none;
  return true;
}

static bool apply_cross_entropy(zp_elab *e, const zp_builtin *op, const zp_expr *call, const zp_slot *slots,
                                zp_value *value) {
  zp_op_attr attr = {0};
  if (!zp_slot_number(e, &slots[3], "label_smoothing", 0, &attr.smoothing) ||
      !zp_slot_number(e, &slots[4], "z_loss", 0, &attr.z_loss) || !set_ignored(e, slots))
    return false;
  if (attr.smoothing < 0 || attr.smoothing >= 1) {
    zp_report(e->diags, ZP_Z0237, slots[3].value.span, "`label_smoothing` lies in 0 .. 1 (1 excluded), this is %g",
              attr.smoothing);
    return false;
  }
  if (attr.z_loss < 0) {
    zp_report(e->diags, ZP_Z0237, slots[4].value.span, "`z_loss` must not be negative, this is %g", attr.z_loss);
    return false;
  }
  if (!slots[CLASSES].given) return zp_builtin_apply(e, op, call, slots, attr, value);
  if (attr.smoothing > 0) {
    zp_report(e->diags, ZP_Z0237, slots[CLASSES].value.span, "`lengths` do not go with `label_smoothing`");
    return false;
  }
  zp_value in[3];
  if (!zp_builtin_tensors(e, op, slots, in) || !zp_builtin_is_tensor(e, op, slots, CLASSES)) return false;
  in[2] = slots[CLASSES].value;
  return zp_elab_apply(e, call, op->op, in, 3, attr, op->name, value);
}

static bool apply_matmul(zp_elab *e, const zp_builtin *op, const zp_expr *call, const zp_slot *slots, zp_value *value) {
  bool trans = slots[1].value.kind == ZP_VAL_TENSOR && e->handles.data[slots[1].value.tensor].transposed;
  return zp_builtin_apply(e, op, call, slots, (zp_op_attr){.trans = trans}, value);
}

static bool apply_transpose(zp_elab *e, const zp_builtin *op, const zp_expr *call, const zp_slot *slots,
                            zp_value *value) {
  zp_value operand;
  if (!zp_builtin_tensors(e, op, slots, &operand)) return false;
  if (call != e->transposable && e->handles.data[operand.tensor].kind == ZP_HANDLE_VALUE)
    return zp_elab_apply(e, call, ZP_OP_TRANSPOSE, &operand, 1, (zp_op_attr){0}, op->name, value);
  if (call != e->transposable) {
    zp_diag *d =
        zp_report(e->diags, ZP_Z0229, call->span,
                  "`transpose` of a parameter is built as the second operand of `matmul` or `batched_matmul` only");
    zp_diag_help(d, "write `matmul(x, transpose(w))`, or `batched_matmul(x, transpose(w))`");
    return false;
  }
  zp_handle handle = e->handles.data[operand.tensor];
  handle.transposed = true;
  *value = zp_elab_tensor(e, handle, call->span);
  return true;
}

static const zp_builtin builtins[] = {
    {"embedding", 2, {"ids", "table"}, apply_plain, ZP_OP_EMBEDDING},
    {"matmul", 2, {"x", "w"}, apply_matmul, ZP_OP_MATMUL},
    {"transpose", 1, {"w"}, apply_transpose, ZP_OP_MATMUL},
    {"exp", 1, {"x"}, apply_plain, ZP_OP_EXP},
    {"log", 1, {"x"}, apply_plain, ZP_OP_LOG},
    {"sqrt", 1, {"x"}, apply_root, ZP_OP_SQRT},
    {"rsqrt", 1, {"x"}, apply_root, ZP_OP_RSQRT},
    {"tanh", 1, {"x"}, apply_plain, ZP_OP_TANH},
    {"sigmoid", 1, {"x"}, apply_plain, ZP_OP_SIGMOID},
    {"relu", 1, {"x"}, apply_plain, ZP_OP_RELU},
    {"silu", 1, {"x"}, apply_plain, ZP_OP_SILU},
    {"gelu", 1, {"x", "approximate"}, apply_gelu, ZP_OP_GELU},
    {"softmax", 1, {"x"}, apply_plain, ZP_OP_SOFTMAX},
    {"layer_normalize", 3, {"x", "weight", "bias", "eps"}, apply_norm, ZP_OP_LAYER_NORM},
    {"rms_normalize", 2, {"x", "weight", "eps", "offset", "heads"}, apply_rms_norm, ZP_OP_RMS_NORM},
    {"dropout", 1, {"x", "rate"}, apply_dropout, ZP_OP_DROPOUT},
    {"rope", 1, {"x", "heads", "theta", "style"}, apply_rope, ZP_OP_ROPE},
    {"split", 1, {"x", "n", "axis"}, apply_split, ZP_OP_SPLIT},
    {"mean", 1, {"x", "axis"}, zp_apply_reduction, ZP_OP_MEAN},
    {"sum", 1, {"x", "axis"}, zp_apply_reduction, ZP_OP_MEAN},
    {"max", 1, {"x", "axis"}, zp_apply_reduction, ZP_OP_REDUCE},
    {"logsumexp", 1, {"x", "axis"}, zp_apply_reduction, ZP_OP_REDUCE},
    {"slice", 1, {"x", "begin", "end", "axis", "heads"}, zp_apply_slice, ZP_OP_SLICE},
    {"select", 1, {"x", "index", "axis"}, zp_apply_select, ZP_OP_SLICE},
    {"gather", 2, {"x", "index", "axis"}, zp_apply_gather, ZP_OP_GATHER},
    {"concat", 2, {"a", "b", "axis", "heads"}, zp_apply_concat, ZP_OP_CONCAT},
    {"pad", 1, {"x", "width", "heads"}, zp_apply_pad, ZP_OP_COLUMNS},
    {"repeat_heads", 1, {"x", "heads"}, zp_apply_repeat_heads, ZP_OP_REPEAT_COLUMNS},
    {"reshape", 1, {"x", "n", "m", "k"}, zp_apply_reshape, ZP_OP_RESHAPE},
    {"conv1d", 2, {"x", "w", "stride", "padding"}, zp_apply_conv1d, ZP_OP_MATMUL},
    {"conv2d", 2, {"x", "w", "height", "stride", "padding"}, zp_apply_conv2d, ZP_OP_MATMUL},
    {"einsum", 0, {"equation", "a", "b"}, zp_apply_einsum, ZP_OP_MATMUL},
    {"mse", 2, {"x", "target"}, apply_plain, ZP_OP_SQUARED_ERROR},
    {"cast", 1, {"x", "type"}, apply_cast, ZP_OP_CAST_F32},
    {"attention",
     3,
     {"q", "k", "v", "heads", "kv_heads", "causal", "scale", "pattern", "lengths", "window", "softcap", "alibi",
      "cross", "relative_bias", "max_distance", "dropout", "documents", "!bias"},
     apply_attention,
     ZP_OP_ATTENTION},
    {"top_k_gate",
     1,
     {"scores", "k", "capacity", "normalize", "balance", "affinity", "bias", "bias_rate", "groups", "top_groups"},
     apply_gate,
     ZP_OP_TOP_K_GATE},
    {"dispatch", 2, {"x", "slot"}, apply_plain, ZP_OP_DISPATCH},
    {"batched_matmul", 2, {"x", "w"}, apply_matmul, ZP_OP_BATCHED_MATMUL},
    {"combine", 3, {"y", "weight", "slot"}, apply_plain, ZP_OP_COMBINE},
    {"cross_entropy",
     2,
     {"logits", "labels", "ignore_index", "label_smoothing", "z_loss", "lengths"},
     apply_cross_entropy,
     ZP_OP_CROSS_ENTROPY},
};
enum { N_BUILTINS = sizeof builtins / sizeof *builtins };

static const zp_builtin *find_builtin(const char *name) {
  for (int i = 0; i < N_BUILTINS; i++)
    if (strcmp(builtins[i].name, name) == 0) return &builtins[i];
  return NULL;
}

bool zp_is_builtin(const char *name) { return find_builtin(name) != NULL; }

static bool report_unknown(zp_elab *e, const zp_expr *call, const char *name) {
  zp_strings names = {0};
  zp_module_names(e->arena, e->frame->module, 1u << ZP_ITEM_BLOCK, &names);
  for (int i = 0; i < N_BUILTINS; i++) zp_push(e->arena, &names, builtins[i].name);
  zp_diag *d = zp_report(e->diags, ZP_Z0215, call->at, "no block and no operation is called `%s`", name);
  bool std_block = strcmp(name, "linear") == 0 || strcmp(name, "layer_norm") == 0 || strcmp(name, "rms_norm") == 0 ||
                   strcmp(name, "head_norm") == 0;
  if (std_block)
    zp_diag_help(d, "it comes with `use std.nn`");
  else
    zp_diag_did_you_mean(d, name, names.data, names.len);
  return false;
}

static bool call_builtin(zp_elab *e, const zp_builtin *op, const zp_expr *call, zp_value *value) {
  int count = 0;
  while (count < ZP_MAX_BUILTIN_ARGS && op->args[count]) count++;
  zp_slot slots[ZP_MAX_BUILTIN_ARGS] = {0};
  const zp_expr *outer = e->transposable;
  if (op->apply == apply_matmul) e->transposable = call->args.len > 1 ? call->args.data[1].value : NULL;
  bool ok = zp_elab_collect(e, call, op->name, op->args, count, slots);
  e->transposable = outer;
  for (int i = 0; i < op->required && ok; i++) ok = zp_elab_require(e, call, op->name, op->args[i], &slots[i]);
  return ok && op->apply(e, op, call, slots, value);
}

bool zp_elab_call(void *user, const zp_expr *call, zp_value *value) {
  zp_elab *e = user;
  const char *name = zp_dotted_name(e->arena, call->left);
  if (!name) {
    zp_report(e->diags, ZP_Z0202, call->span, "this value cannot be called");
    return false;
  }
  const zp_builtin *op = find_builtin(name);
  if (op) return call_builtin(e, op, call, value);
  if (zp_is_sparse(name)) return zp_elab_sparse(e, call, name, value);
  zp_module *where;
  const zp_item *block = zp_module_find(e->frame->module, name, 1u << ZP_ITEM_BLOCK, &where);
  return block ? zp_elab_inline(e, call, block, where, value) : report_unknown(e, call, name);
}
