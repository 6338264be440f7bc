/* Operations along an axis: positions (1, or -2 from the end) and columns (-1, or 2); columns of every head; shapes. */
#include <math.h>
#include "builtins.h"

typedef enum axis { POSITIONS, COLUMNS, NEITHER } axis;

/* NEITHER after reporting. */
static axis axis_of(zp_elab *e, const zp_builtin *op, const zp_slot *slot) {
  double number;
  if (!zp_slot_number(e, slot, "axis", 1, &number)) return NEITHER;
  if (number == 1 || number == -2) return POSITIONS;
  if (number == 2 || number == -1) return COLUMNS;
  zp_diag *d = zp_report(e->diags, ZP_Z0216, slot->value.span, "`%s` along axis %g is known but not built yet",
                         op->name, number);
  zp_diag_help(d, "the positions of a sample, `axis = 1`, and its columns, `axis = -1`, are built");
  return NEITHER;
}

static bool only_positions(zp_elab *e, const zp_builtin *op, const zp_slot *slot) {
  axis along = axis_of(e, op, slot);
  if (along == COLUMNS) {
    zp_diag *d =
        zp_report(e->diags, ZP_Z0216, slot->value.span, "`%s` along the columns is known but not built yet", op->name);
    zp_diag_help(d, "axis 1, the positions of a sample, is the one that is built");
  }
  return along == POSITIONS;
}

/* Size of an axis of x; 0 where the shape rule will tell that x has none. */
static double size_along(zp_elab *e, const zp_value *x, axis along) {
  zp_shape shape = zp_elab_value_shape(e, x);
  return shape.rank == 3 ? (double)shape.dim[along == COLUMNS ? 2 : 1] : 0;
}

/* `heads` of an operation on columns: 1 unless given. Along the positions there are none. */
static bool read_heads(zp_elab *e, const zp_builtin *op, const zp_slot *slot, axis along, int64_t *heads) {
  if (!zp_slot_count(e, slot, "heads", 1, heads)) return false;
  if (along == COLUMNS || !slot->given) return true;
  zp_report(e->diags, ZP_Z0237, slot->value.span, "`heads` of `%s` are of its columns: `axis = -1`", op->name);
  return false;
}

/* mean, sum, max and logsumexp. Of the positions a sum is a mean times their number. */
bool zp_apply_reduction(zp_elab *e, const zp_builtin *op, const zp_expr *call, const zp_slot *slots, zp_value *value) {
  zp_value x;
  axis along = axis_of(e, op, &slots[1]);
  if (along == NEITHER || !zp_builtin_tensors(e, op, slots, &x)) return false;
  bool mean = strcmp(op->name, "mean") == 0, linear = op->op == ZP_OP_MEAN;
  double size = size_along(e, &x, along);
  zp_op_attr attr = {.value = mean && size > 0 ? 1 / size : 1, .reduction = ZP_REDUCE_SUM};
  if (!linear) attr.reduction = strcmp(op->name, "max") == 0 ? ZP_REDUCE_MAX : ZP_REDUCE_LOG_SUM_EXP;
  zp_op which = along == COLUMNS ? ZP_OP_REDUCE_COLUMNS : op->op;
  return zp_elab_apply(e, call, which, &x, 1, attr, op->name, value);
}

/* begin .. end - 1 of so many; negative ones count from the end, as in Python. */
static bool read_stretch(zp_elab *e, const zp_builtin *op, const zp_expr *call, const zp_slot *slots, double size,
                         zp_op_attr *attr) {
  double begin, end;
  if (!zp_elab_require(e, call, op->name, "begin", &slots[1]) || !zp_slot_number(e, &slots[1], "begin", 0, &begin) ||
      !zp_slot_number(e, &slots[2], "end", size, &end))
    return false;
  attr->count = 1;
  if (size == 0) return true;
  if (begin < 0) begin += size;
  if (end < 0) end += size;
  if (!(begin >= 0 && begin < end && end <= size && begin == floor(begin) && end == floor(end))) {
    zp_report(e->diags, ZP_Z0237, call->span,
              "`%s` takes what lies from `begin` to before `end`, 0 to %g: not %g to %g", op->name, size, begin, end);
    return false;
  }
  attr->begin = (int64_t)begin;
  attr->count = (int64_t)(end - begin);
  return true;
}

bool zp_apply_slice(zp_elab *e, const zp_builtin *op, const zp_expr *call, const zp_slot *slots, zp_value *value) {
  zp_op_attr attr = {0};
  zp_value x;
  axis along = axis_of(e, op, &slots[3]);
  if (along == NEITHER || !zp_builtin_tensors(e, op, slots, &x) || !read_heads(e, op, &slots[4], along, &attr.heads))
    return false;
  double size = size_along(e, &x, along) / (double)attr.heads;
  if (size != floor(size)) size = 0; /* heads that do not divide the columns: told by the shape rule */
  if (!read_stretch(e, op, call, slots, size, &attr)) return false;
  if (along == POSITIONS) attr.heads = 0;
  return zp_elab_apply(e, call, along == COLUMNS ? ZP_OP_COLUMNS : ZP_OP_SLICE, &x, 1, attr, op->name, value);
}

/* One position, or one column of every position, without its dimension. */
bool zp_apply_select(zp_elab *e, const zp_builtin *op, const zp_expr *call, const zp_slot *slots, zp_value *value) {
  double index;
  zp_value x;
  axis along = axis_of(e, op, &slots[2]);
  if (along == NEITHER || !zp_builtin_tensors(e, op, slots, &x) ||
      !zp_elab_require(e, call, op->name, "index", &slots[1]) || !zp_slot_number(e, &slots[1], "index", 0, &index))
    return false;
  double size = size_along(e, &x, along), from_start = index < 0 ? index + size : index;
  if (size > 0 && !(from_start >= 0 && from_start < size && from_start == floor(from_start))) {
    zp_report(e->diags, ZP_Z0237, slots[1].value.span, "`index` of `select` lies in 0 .. %g, this is %g", size - 1,
              index);
    return false;
  }
  zp_op_attr attr = {.begin = (int64_t)from_start};
  return zp_elab_apply(e, call, along == COLUMNS ? ZP_OP_COLUMN : op->op, &x, 1, attr, op->name, value);
}

bool zp_apply_gather(zp_elab *e, const zp_builtin *op, const zp_expr *call, const zp_slot *slots, zp_value *value) {
  return only_positions(e, op, &slots[2]) && zp_builtin_apply(e, op, call, slots, (zp_op_attr){0}, value);
}

bool zp_apply_concat(zp_elab *e, const zp_builtin *op, const zp_expr *call, const zp_slot *slots, zp_value *value) {
  zp_op_attr attr = {0};
  zp_value in[2];
  axis along = axis_of(e, op, &slots[2]);
  if (along == NEITHER || !zp_builtin_tensors(e, op, slots, in) || !read_heads(e, op, &slots[3], along, &attr.heads))
    return false;
  if (along == POSITIONS) attr.heads = 0;
  return zp_elab_apply(e, call, along == COLUMNS ? ZP_OP_JOIN_COLUMNS : op->op, in, 2, attr, op->name, value);
}

/* Zeros behind the columns of every head. */
bool zp_apply_pad(zp_elab *e, const zp_builtin *op, const zp_expr *call, const zp_slot *slots, zp_value *value) {
  zp_op_attr attr = {0};
  zp_value x;
  if (!zp_builtin_tensors(e, op, slots, &x) || !zp_elab_require(e, call, op->name, "width", &slots[1]) ||
      !zp_slot_count(e, &slots[1], "width", 1, &attr.count) || !zp_slot_count(e, &slots[2], "heads", 1, &attr.heads))
    return false;
  if ((double)attr.count * (double)attr.heads < size_along(e, &x, COLUMNS)) {
    zp_report(e->diags, ZP_Z0237, slots[1].value.span, "`pad` makes heads wider: %lld columns are less than %g",
              (long long)attr.count, size_along(e, &x, COLUMNS) / (double)attr.heads);
    return false;
  }
  return zp_builtin_apply(e, op, call, slots, attr, value);
}

bool zp_apply_repeat_heads(zp_elab *e, const zp_builtin *op, const zp_expr *call, const zp_slot *slots,
                           zp_value *value) {
  zp_op_attr attr = {0};
  return zp_elab_require(e, call, op->name, "heads", &slots[1]) &&
         zp_slot_count(e, &slots[1], "heads", 1, &attr.heads) && zp_builtin_apply(e, op, call, slots, attr, value);
}

bool zp_apply_reshape(zp_elab *e, const zp_builtin *op, const zp_expr *call, const zp_slot *slots, zp_value *value) {
  zp_op_attr attr = {0};
  if (!zp_elab_require(e, call, op->name, "n", &slots[1])) return false;
  for (int i = 1; i < ZP_MAX_RANK; i++) {
    if (slots[i].given && !slots[i - 1].given)
      return zp_elab_require(e, call, op->name, op->args[i - 1], &slots[i - 1]);
    if (!zp_slot_count(e, &slots[i], op->args[i], 0, &attr.to[i - 1])) return false;
  }
  return zp_builtin_apply(e, op, call, slots, attr, value);
}
