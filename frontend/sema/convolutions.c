/* Convolutions: windows over the positions side by side in rows, and a product with the weight. So what a product may
 * be (divided by its rows or columns, of adapters, of any arithmetic) a convolution may be as well. */
#include <math.h>
#include "builtins.h"

enum { X, W };

static bool wrong_weight(zp_elab *e, const zp_builtin *op, const zp_slot *slot, const char *why) {
  zp_diag *d = zp_report(e->diags, ZP_Z0204, slot->value.span, "`w` of `%s` %s", op->name, why);
  zp_diag_help(d, "%s",
               op->apply == zp_apply_conv1d
                   ? "x is [B, S, C], and `w` a parameter [out, C * kernel]: PyTorch's [out, C, kernel] as rows"
                   : "x is [B, height * width, C], and `w` a parameter [out, C * kernel * kernel]: PyTorch's [out, C, "
                     "kernel, kernel] as rows");
  return false;
}

/* Places of a window: columns of w for each of x. 0: told here, or by the shape rule where x is no sequence. */
static bool places_of(zp_elab *e, const zp_builtin *op, const zp_slot *slots, const zp_value *in, int64_t *places) {
  zp_shape x = zp_elab_value_shape(e, &in[X]), w = zp_elab_value_shape(e, &in[W]);
  *places = 1;
  if (x.rank != 3) return true;
  if (w.rank != 2)
    return wrong_weight(e, op, &slots[W],
                        zp_format(e->arena, "is %s, which has no rows and columns", zp_shape_text(e->arena, &w)));
  *places = w.dim[1] / x.dim[2];
  if (*places * x.dim[2] == w.dim[1] && *places > 0) return true;
  return wrong_weight(
      e, op, &slots[W],
      zp_format(e->arena, "has %lld columns, no multiple of the %lld of x", (long long)w.dim[1], (long long)x.dim[2]));
}

static bool read_padding(zp_elab *e, const zp_builtin *op, const zp_slot *slot, int64_t *padding) {
  double number;
  if (!zp_slot_number(e, slot, "padding", 0, &number)) return false;
  if (!(number >= 0 && number == floor(number) && number <= 1e9)) {
    zp_report(e->diags, ZP_Z0237, slot->value.span, "`padding` of `%s` is a whole number of at least 0, this is %g",
              op->name, number);
    return false;
  }
  *padding = (int64_t)number;
  return true;
}

/* The product has the call's name, the windows have one of their own. */
static bool apply_windows(zp_elab *e, const zp_builtin *op, const zp_expr *call, const zp_windows *windows,
                          const zp_value *in, zp_value *value) {
  zp_value product[2] = {[W] = in[W]};
  zp_whole statement = e->whole;
  e->whole = (zp_whole){0};
  bool ok = zp_elab_apply(e, call, ZP_OP_UNFOLD, &in[X], 1, (zp_op_attr){.windows = windows}, "unfold", &product[X]);
  e->whole = statement;
  return ok && zp_elab_apply(e, call, op->op, product, 2, (zp_op_attr){.trans = true}, op->name, value);
}

bool zp_apply_conv1d(zp_elab *e, const zp_builtin *op, const zp_expr *call, const zp_slot *slots, zp_value *value) {
  enum { STRIDE = 2, PADDING };
  zp_value in[2];
  zp_windows w = {.size = {1, 1}, .kernel = {1, 1}, .stride = {1, 1}};
  if (!zp_builtin_tensors(e, op, slots, in) || !places_of(e, op, slots, in, &w.kernel[1]) ||
      !zp_slot_count(e, &slots[STRIDE], "stride", 1, &w.stride[1]) ||
      !read_padding(e, op, &slots[PADDING], &w.padding[1]))
    return false;
  zp_shape x = zp_elab_value_shape(e, &in[X]);
  if (x.rank == 3) w.size[1] = x.dim[1];
  return apply_windows(e, op, call, &w, in, value);
}

bool zp_apply_conv2d(zp_elab *e, const zp_builtin *op, const zp_expr *call, const zp_slot *slots, zp_value *value) {
  enum { HEIGHT = 2, STRIDE, PADDING };
  zp_value in[2];
  int64_t places;
  zp_windows w = {.size = {1, 1}};
  if (!zp_builtin_tensors(e, op, slots, in) || !places_of(e, op, slots, in, &places) ||
      !zp_elab_require(e, call, op->name, "height", &slots[HEIGHT]) ||
      !zp_slot_count(e, &slots[HEIGHT], "height", 1, &w.size[0]) ||
      !zp_slot_count(e, &slots[STRIDE], "stride", 1, &w.stride[0]) ||
      !read_padding(e, op, &slots[PADDING], &w.padding[0]))
    return false;
  w.kernel[0] = (int64_t)llround(sqrt((double)places));
  if (w.kernel[0] * w.kernel[0] != places)
    return wrong_weight(
        e, op, &slots[W],
        zp_format(e->arena, "has %lld columns for each column of x, which is no square", (long long)places));
  zp_shape x = zp_elab_value_shape(e, &in[X]);
  if (x.rank == 3 && x.dim[1] % w.size[0]) {
    zp_diag *d = zp_report(e->diags, ZP_Z0205, slots[HEIGHT].value.span,
                           "a `height` of %lld does not divide the %lld positions of x", (long long)w.size[0],
                           (long long)x.dim[1]);
    zp_diag_help(d, "positions of x are those of a picture row by row: height * width of them");
    return false;
  }
  if (x.rank == 3) w.size[1] = x.dim[1] / w.size[0];
  w.kernel[1] = w.kernel[0], w.stride[1] = w.stride[0], w.padding[1] = w.padding[0];
  return apply_windows(e, op, call, &w, in, value);
}
