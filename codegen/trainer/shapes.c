/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes in comments: in the symbols of the model, with the numbers behind them; the legend of the symbols. */
#include "emit.h"

const char *zp_emit_extent(const zp_emit *e, const zp_shape *shape, int i) {
  return zp_extent_text(e->arena, zp_shape_extent(e->arena, shape, i, e->lowered->microbatch));
}

static const char *numbers_of(const zp_emit *e, const zp_shape *shape) {
  const char *text = "";
  for (int i = 0; i < shape->rank; i++) {
    int64_t dim = shape->dim[i] == ZP_DIM_B ? e->lowered->microbatch : shape->dim[i];
    text = zp_format(e->arena, "%s%s%lld", text, i ? ", " : "", (long long)dim);
  }
  return zp_format(e->arena, "[%s]", text);
}

const char *zp_emit_symbols(const zp_emit *e, const zp_shape *shape) {
  const char *text = "";
  for (int i = 0; i < shape->rank; i++)
    text = zp_format(e->arena, "%s%s%s", text, i ? ", " : "", zp_emit_extent(e, shape, i));
  return zp_format(e->arena, "[%s]", text);
}

const char *zp_emit_shape(const zp_emit *e, const zp_shape *shape) {
  const char *symbols = zp_emit_symbols(e, shape), *numbers = numbers_of(e, shape);
  return strcmp(symbols, numbers) == 0 ? numbers : zp_format(e->arena, "%s = %s", symbols, numbers);
}

zp_shape zp_emit_matrix_of(const zp_emit *e, const zp_shape *shape, int64_t rows, int64_t cols) {
  zp_shape matrix = {.rank = 2, .dim = {rows, cols}};
  if (!shape || shape->rank == 0) return matrix;
  const zp_extent *above = zp_extent_number(e->arena, 1);
  for (int i = 0; i + 1 < shape->rank; i++)
    above = zp_extent_product(e->arena, above, zp_shape_extent(e->arena, shape, i, e->lowered->microbatch));
  if (above && above->value == rows) matrix.extent[0] = above;
  if (zp_shape_cols(shape) == cols) matrix.extent[1] = shape->extent[shape->rank - 1];
  return matrix;
}

const char *zp_emit_legend(zp_arena *arena, const zp_model *model, int64_t microbatch) {
  const char *text = zp_format(arena, "B = %lld (samples of a micro-batch)", (long long)microbatch);
  for (int i = 0; i < model->symbols.len; i++) {
    const zp_extent *symbol = model->symbols.data[i];
    text = zp_format(arena, "%s, %s = %lld", text, zp_extent_text(arena, symbol), (long long)symbol->value);
  }
  return text;
}
