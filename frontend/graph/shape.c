/* SPDX-License-Identifier: Apache-2.0 */
/* Questions about shapes. */
#include <zplan/buf.h>

#include <assert.h>
#include "graph_internal.h"

static int64_t dim_size(int64_t dim, int64_t microbatch) { return dim == ZP_DIM_B ? microbatch : dim; }

int64_t zp_shape_elements(const zp_shape *shape, int64_t microbatch) {
  assert(shape->rank >= 0 && shape->rank <= ZP_MAX_RANK);
  int64_t n = 1;
  for (int i = 0; i < shape->rank; i++) n *= dim_size(shape->dim[i], microbatch);
  return n;
}

/* One number a sample: a column. */
static bool is_of_samples(const zp_shape *shape) { return shape->rank == 1 && shape->dim[0] == ZP_DIM_B; }

int64_t zp_shape_rows(const zp_shape *shape, int64_t microbatch) {
  assert(shape->rank >= 0 && shape->rank <= ZP_MAX_RANK);
  if (is_of_samples(shape)) return microbatch;
  int64_t n = 1;
  for (int i = 0; i + 1 < shape->rank; i++) n *= dim_size(shape->dim[i], microbatch);
  return n;
}

int64_t zp_shape_rows_per_sample(const zp_shape *shape) {
  int64_t n = 1;
  for (int i = 1; i + 1 < shape->rank; i++) n *= shape->dim[i];
  return n;
}

int64_t zp_shape_cols(const zp_shape *shape) {
  assert(shape->rank >= 0 && shape->rank <= ZP_MAX_RANK);
  return shape->rank && !is_of_samples(shape) ? shape->dim[shape->rank - 1] : 1;
}

bool zp_shape_equal(const zp_shape *a, const zp_shape *b) {
  if (a->rank != b->rank) return false;
  for (int i = 0; i < a->rank; i++)
    if (a->dim[i] != b->dim[i]) return false;
  return true;
}

void zp_shape_resize(zp_arena *arena, zp_shape *shape, int i, int64_t size) {
  shape->extent[i] = zp_extent_share(arena, shape->extent[i], shape->dim[i], size);
  shape->dim[i] = size;
}

int64_t zp_windows_count(const zp_windows *w, int i) {
  int64_t room = w->size[i] + 2 * w->padding[i] - w->kernel[i];
  return room < 0 ? 0 : room / w->stride[i] + 1;
}

int64_t zp_windows_places(const zp_windows *w) { return w->kernel[0] * w->kernel[1]; }

zp_shape zp_gathered_stats(zp_arena *arena, const zp_shape *stat, int64_t ranks) {
  assert(stat->rank == 2 || stat->rank == 3);
  zp_shape shape = *stat;
  if (stat->rank == 2) { /* of samples: one row of each */
    shape.rank = 3;
    shape.dim[2] = stat->dim[1], shape.extent[2] = stat->extent[1];
    shape.dim[1] = ranks, shape.extent[1] = NULL;
  } else {
    zp_shape_resize(arena, &shape, 1, stat->dim[1] * ranks);
  }
  return shape;
}

const zp_extent *zp_shape_extent(zp_arena *arena, const zp_shape *shape, int i, int64_t microbatch) {
  if (shape->dim[i] == ZP_DIM_B) return zp_extent_symbol(arena, "B", microbatch);
  return shape->extent[i] ? shape->extent[i] : zp_extent_number(arena, shape->dim[i]);
}

const char *zp_shape_text(zp_arena *arena, const zp_shape *shape) {
  zp_buf text = zp_buf_new(arena);
  zp_buf_puts(&text, "[");
  for (int i = 0; i < shape->rank; i++) {
    if (i) zp_buf_puts(&text, ", ");
    if (shape->dim[i] == ZP_DIM_B)
      zp_buf_puts(&text, "B");
    else
      zp_buf_printf(&text, "%lld", (long long)shape->dim[i]);
  }
  zp_buf_puts(&text, "]");
  return text.data;
}

int64_t zp_op_row_parts(const zp_node *node) {
  return zp_op_has(node->op, ZP_FLAG_HEAD_ROWS) && node->attr.heads > 0 ? node->attr.heads : 1;
}

int64_t zp_part_cols(const zp_shape *shape, zp_operand operand, int64_t row_parts) {
  return zp_shape_cols(shape) / (operand == ZP_OPERAND_ROWS ? row_parts : 1);
}

bool zp_part_operand_kind(const zp_shape *rows, const zp_shape *operand, int64_t row_parts, zp_operand *kind) {
  if (row_parts == 1 || zp_shape_equal(rows, operand)) return zp_operand_kind(rows, operand, kind);
  *kind = ZP_OPERAND_COLUMNS;
  return operand->rank == 1 && operand->dim[0] * row_parts == zp_shape_cols(rows);
}

bool zp_operand_kind(const zp_shape *rows, const zp_shape *operand, zp_operand *kind) {
  int last = rows->rank - 1;
  if (zp_shape_equal(rows, operand))
    *kind = ZP_OPERAND_ROWS;
  else if (rows->rank < 2 || zp_shape_cols(operand) != rows->dim[last])
    return false;
  else if (operand->rank == 1)
    *kind = ZP_OPERAND_COLUMNS;
  else if (operand->rank == 2 && rows->rank == 3 && operand->dim[0] == rows->dim[1])
    *kind = ZP_OPERAND_POSITION;
  else
    return false;
  return true;
}
