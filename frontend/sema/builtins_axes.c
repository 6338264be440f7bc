/* SPDX-License-Identifier: Apache-2.0 */
/* Operations along an axis: positions or columns; columns of every head. */
#include <math.h>
#include "builtins.h"

static bool along_columns(const zp_call *call) { return call->op == call->row->along_columns; }

/* Size of a dimension of x; 0 where the shape rule will report that x has none. */
static double size_of(zp_elab *e, const zp_call *call, int dim) {
  zp_shape shape = zp_elab_value_shape(e, &call->in[0]);
  return shape.rank == 3 ? (double)shape.dim[dim] : 0;
}

static double size_along(zp_elab *e, const zp_call *call) { return size_of(e, call, along_columns(call) ? 2 : 1); }

/* mean, sum, max and logsumexp. Of the positions a sum is a mean times their number. */
bool zp_apply_reduction(zp_elab *e, zp_call *call, zp_value *value) {
  double size = size_along(e, call);
  bool mean = strcmp(call->row->name, "mean") == 0, max = strcmp(call->row->name, "max") == 0;
  call->attr.value = mean && size > 0 ? 1 / size : 1;
  call->attr.reduction = max ? ZP_REDUCE_MAX : call->row->op == ZP_OP_MEAN ? ZP_REDUCE_SUM : ZP_REDUCE_LOG_SUM_EXP;
  return zp_call_apply(e, call, value);
}

/* begin .. end - 1 of so many; negative ones count from the end, as in Python. */
static bool read_stretch(zp_elab *e, const zp_call *call, double size, zp_op_attr *attr) {
  double begin, end;
  if (!zp_slot_number(e, zp_call_slot(call, "begin"), "begin", 0, &begin) ||
      !zp_slot_number(e, zp_call_slot(call, "end"), "end", size, &end))
    return false;
  attr->count = 1;
  if (size == 0) return true;
  if (begin < 0) begin += size;
  if (end < 0) end += size;
  if (!(begin >= 0 && begin < end && end <= size && begin == floor(begin) && end == floor(end))) {
    zp_report(e->diags, ZP_Z0237, call->expr->span,
              "`%s` takes what lies from `begin` to before `end`, 0 to %g: not %g to %g", call->row->name, size, begin,
              end);
    return false;
  }
  attr->begin = (int64_t)begin;
  attr->count = (int64_t)(end - begin);
  return true;
}

bool zp_apply_slice(zp_elab *e, zp_call *call, zp_value *value) {
  double size = size_along(e, call) / (along_columns(call) ? (double)call->attr.heads : 1);
  if (size != floor(size)) size = 0; /* heads that do not divide the columns: reported by the shape rule */
  return read_stretch(e, call, size, &call->attr) && zp_call_apply(e, call, value);
}

/* One position, or one column of every position, without its dimension. */
bool zp_apply_select(zp_elab *e, zp_call *call, zp_value *value) {
  const zp_slot *slot = zp_call_slot(call, "index");
  double index;
  if (!zp_slot_number(e, slot, "index", 0, &index)) return false;
  double size = size_along(e, call), from_start = index < 0 ? index + size : index;
  if (size > 0 && !(from_start >= 0 && from_start < size && from_start == floor(from_start))) {
    zp_report(e->diags, ZP_Z0237, slot->value.span, "`index` of `select` lies in 0 .. %g, this is %g", size - 1, index);
    return false;
  }
  call->attr.begin = (int64_t)from_start;
  return zp_call_apply(e, call, value);
}

/* Zeros after the columns of every head. */
bool zp_apply_pad(zp_elab *e, zp_call *call, zp_value *value) {
  const zp_op_attr *attr = &call->attr;
  double columns = size_of(e, call, 2);
  if ((double)attr->count * (double)attr->heads >= columns) return zp_call_apply(e, call, value);
  zp_report(e->diags, ZP_Z0237, zp_call_slot(call, "width")->value.span,
            "`pad` makes heads wider: %lld columns are less than %g", (long long)attr->count,
            columns / (double)attr->heads);
  return false;
}
