/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions: windows over the positions side by side in rows, and a product with the weight. So what a product may
 * be (divided by its rows or columns, of adapters, of any arithmetic) a convolution may be as well. */
#include <math.h>
#include "builtins.h"

enum { X, W };

static bool wrong_weight(zp_elab *e, const zp_call *call, const char *why) {
  zp_diag *d = zp_report(e->diags, ZP_Z0204, call->in[W].span, "`w` of `%s` %s", call->row->name, why);
  zp_diag_help(d, "%s",
               call->row->apply == zp_apply_conv1d
                   ? "x is [B, S, C], and `w` a parameter [out, C * kernel]: PyTorch's [out, C, kernel] as rows"
                   : "x is [B, height * width, C], and `w` a parameter [out, C * kernel * kernel]: PyTorch's [out, C, "
                     "kernel, kernel] as rows");
  return false;
}

/* Places of a window: columns of w for each of x. Reports; where x is no sequence the shape rule does. */
static bool places_of(zp_elab *e, const zp_call *call, int64_t *places) {
  zp_shape x = zp_elab_value_shape(e, &call->in[X]), w = zp_elab_value_shape(e, &call->in[W]);
  *places = 1;
  if (x.rank != 3) return true;
  if (w.rank != 2)
    return wrong_weight(e, call,
                        zp_format(e->arena, "is %s, which has no rows and columns", zp_shape_text(e->arena, &w)));
  *places = w.dim[1] / x.dim[2];
  if (*places * x.dim[2] == w.dim[1] && *places > 0) return true;
  return wrong_weight(
      e, call,
      zp_format(e->arena, "has %lld columns, no multiple of the %lld of x", (long long)w.dim[1], (long long)x.dim[2]));
}

/* Along both dimensions of the windows; a row of positions has the last one alone. */
static bool read_steps(zp_elab *e, const zp_call *call, zp_windows *windows) {
  const zp_slot *slot = zp_call_slot(call, "padding");
  double number;
  if (!zp_slot_count(e, zp_call_slot(call, "stride"), "stride", 1, &windows->stride[1]) ||
      !zp_slot_number(e, slot, "padding", 0, &number))
    return false;
  if (!(number >= 0 && number == floor(number) && number <= 1e9)) {
    zp_report(e->diags, ZP_Z0237, slot->value.span, "`padding` of `%s` is a whole number of at least 0, this is %g",
              call->row->name, number);
    return false;
  }
  windows->padding[1] = (int64_t)number;
  return true;
}

/* The product has the call's name, the windows have one of their own. */
static bool apply_windows(zp_elab *e, const zp_call *call, const zp_windows *windows, zp_value *value) {
  zp_value product[2] = {[W] = call->in[W]};
  zp_op_attr unfold = {.windows = windows}, matmul = {.trans = true};
  zp_whole statement = e->whole;
  e->whole = (zp_whole){0};
  bool ok = zp_elab_apply(e, call->expr, ZP_OP_UNFOLD, &call->in[X], 1, unfold, "unfold", &product[X]);
  e->whole = statement;
  return ok && zp_elab_apply(e, call->expr, call->op, product, 2, matmul, call->row->name, value);
}

bool zp_apply_conv1d(zp_elab *e, zp_call *call, zp_value *value) {
  zp_windows w = {.size = {1, 1}, .kernel = {1, 1}, .stride = {1, 1}};
  if (!places_of(e, call, &w.kernel[1]) || !read_steps(e, call, &w)) return false;
  zp_shape x = zp_elab_value_shape(e, &call->in[X]);
  if (x.rank == 3) w.size[1] = x.dim[1];
  return apply_windows(e, call, &w, value);
}

bool zp_apply_conv2d(zp_elab *e, zp_call *call, zp_value *value) {
  const zp_slot *height = zp_call_slot(call, "height");
  int64_t places;
  zp_windows w = {.size = {1, 1}};
  if (!places_of(e, call, &places) || !zp_slot_count(e, height, "height", 1, &w.size[0]) || !read_steps(e, call, &w))
    return false;
  w.kernel[0] = (int64_t)llround(sqrt((double)places));
  if (w.kernel[0] * w.kernel[0] != places)
    return wrong_weight(
        e, call, zp_format(e->arena, "has %lld columns for each column of x, which is no square", (long long)places));
  zp_shape x = zp_elab_value_shape(e, &call->in[X]);
  if (x.rank == 3 && x.dim[1] % w.size[0]) {
    zp_diag *d =
        zp_report(e->diags, ZP_Z0205, height->value.span, "a `height` of %lld does not divide the %lld positions of x",
                  (long long)w.size[0], (long long)x.dim[1]);
    zp_diag_help(d, "positions of x are those of a picture row by row: height * width of them");
    return false;
  }
  if (x.rank == 3) w.size[1] = x.dim[1] / w.size[0];
  w.kernel[1] = w.kernel[0], w.stride[0] = w.stride[1], w.padding[0] = w.padding[1];
  return apply_windows(e, call, &w, value);
}
