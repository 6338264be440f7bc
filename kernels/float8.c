/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays of f32 as 8-bit operands times a scale, or times the scales of their blocks. */
#include "clones.h"
#include <assert.h>
#include <math.h>
#include <string.h>
#include <zplan/zpk.h>
#include <zplan/zpk_float8.h>

ZPK_CLONES static float largest(const uint16_t *x, int64_t count) {
  float most = 0;
  for (int64_t i = 0; i < count; i++) {
    float size = fabsf(zpk_widen_bf16(x[i]));
    most = size > most ? size : most;
  }
  return most;
}

float zpk_largest_bf16(const uint16_t *x, int64_t count) {
  assert(count >= 0);
  return largest(x, count);
}

static inline float scale_for(float most, float largest) { return zpk_widen_e8m0(zpk_above_e8m0(largest / most)); }

float zpk_float8_scale(zpk_float8 format, float largest) {
  return scale_for(format == ZPK_E5M2 ? ZPK_E5M2_MOST : ZPK_E4M3_MOST, largest);
}

ZPK_CLONES static void through_e4m3(float scale, float inverse, float *x, int64_t count) {
  for (int64_t i = 0; i < count; i++) x[i] = scale * zpk_widen_e4m3(zpk_round_e4m3(x[i] * inverse));
}

ZPK_CLONES static void through_e5m2(float scale, float inverse, float *x, int64_t count) {
  for (int64_t i = 0; i < count; i++) x[i] = scale * zpk_widen_e5m2(zpk_round_e5m2(x[i] * inverse));
}

void zpk_through_float8(zpk_float8 format, float scale, float *x, int64_t count) {
  assert(count >= 0 && !(scale <= 0));
  (format == ZPK_E5M2 ? through_e5m2 : through_e4m3)(scale, 1 / scale, x, count);
}

/* ---- blocks ---- */

zpk_float8_block zpk_float8_block_of(zpk_float8 format) {
  static const zpk_float8_block blocks[] = {
      [ZPK_E4M3_1X32] = {32, 1}, [ZPK_E4M3_1X128] = {128, 1}, [ZPK_E4M3_128X128] = {128, 128}};
  return format == ZPK_E4M3 || format == ZPK_E5M2 ? (zpk_float8_block){0, 0} : blocks[format];
}

static int64_t shorter(int64_t a, int64_t b) { return a < b ? a : b; }

static inline float largest_of(int64_t count, const float *x) {
  float most = 0;
  for (int64_t i = 0; i < count; i++) most = x[i] > most ? x[i] : most;
  return most;
}

/* A row of blocks of E4M3: as many rows as a block has, `group` columns a block. */
ZPK_CLONES static void row_of_blocks(int64_t group, int64_t rows, int64_t cols, float *x) {
  float scale[ZPK_FLOAT8_COLS], inverse[ZPK_FLOAT8_COLS]; /* first the largest magnitude, of every column */
  for (int64_t j = 0; j < cols; j++) scale[j] = 0;
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++) {
      float size = fabsf(x[i * cols + j]);
      scale[j] = size > scale[j] ? size : scale[j];
    }
  for (int64_t first = 0; first < cols; first += group) {
    int64_t end = first + shorter(group, cols - first);
    float of_block = scale_for(ZPK_E4M3_MOST, largest_of(end - first, scale + first)), its_inverse = 1 / of_block;
    for (int64_t j = first; j < end; j++) scale[j] = of_block, inverse[j] = its_inverse;
  }
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++)
      x[i * cols + j] = scale[j] * zpk_widen_e4m3(zpk_round_e4m3(x[i * cols + j] * inverse[j]));
}

void zpk_through_float8_blocks(zpk_float8 format, bool down, int64_t rows, int64_t cols, float *x) {
  zpk_float8_block block = zpk_float8_block_of(format);
  assert(block.along > 0 && rows >= 0 && cols >= 0 && cols <= ZPK_FLOAT8_COLS);
  int64_t height = down ? block.along : block.across, width = down ? block.across : block.along;
  for (int64_t i = 0; i < rows; i += height) row_of_blocks(width, shorter(height, rows - i), cols, x + i * cols);
}

/* ---- operands that are kept ---- */

int64_t zpk_float8_bytes(zpk_float8 format, int64_t rows, int64_t cols) {
  assert(rows >= 0 && cols >= 0);
  int64_t along = zpk_float8_block_of(format).along;
  return rows * cols + (along ? (rows + along - 1) / along * cols : (int64_t)sizeof(float));
}

zpk_kept_float8 zpk_kept_float8_at(zpk_float8 format, int64_t rows, int64_t cols, void *at) {
  assert(format != ZPK_E5M2 && zpk_float8_block_of(format).across <= 1 && rows >= 0 && cols >= 1 && at);
  uint8_t *numbers = at;
  return (zpk_kept_float8){format, rows, cols, numbers, numbers + rows * cols};
}

void zpk_set_float8_scale(const zpk_kept_float8 *to, float scale) { memcpy(to->scales, &scale, sizeof scale); }

static float whole_scale(const zpk_kept_float8 *of) {
  float scale;
  memcpy(&scale, of->scales, sizeof scale);
  return scale;
}

ZPK_CLONES static void keep_rows(int64_t rows, int64_t cols, const uint16_t *x, int64_t ld, const float *inverse,
                                 uint8_t *to, int64_t to_ld) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++) to[i * to_ld + j] = zpk_round_e4m3(zpk_widen_bf16(x[i * ld + j]) * inverse[j]);
}

/* Scales of a block's columns, and what they are divided by. */
ZPK_CLONES static void scale_columns(int64_t rows, int64_t cols, const uint16_t *x, int64_t ld, uint8_t *scales,
                                     float *inverse) {
  for (int64_t j = 0; j < cols; j++) inverse[j] = 0; /* first the largest magnitude */
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++) {
      float size = fabsf(zpk_widen_bf16(x[i * ld + j]));
      inverse[j] = size > inverse[j] ? size : inverse[j];
    }
  for (int64_t j = 0; j < cols; j++) {
    scales[j] = zpk_above_e8m0(inverse[j] / ZPK_E4M3_MOST);
    inverse[j] = 1 / zpk_widen_e8m0(scales[j]);
  }
}

void zpk_keep_float8(const zpk_kept_float8 *to, int64_t first, int64_t end, const uint16_t *x, int64_t ld) {
  int64_t along = zpk_float8_block_of(to->format).along;
  assert(first >= 0 && first <= end && end <= to->rows && (along == 0 || first % along == 0));
  float inverse[ZPK_FLOAT8_COLS];
  for (int64_t col = 0; col < to->cols; col += ZPK_FLOAT8_COLS) {
    int64_t cols = shorter(ZPK_FLOAT8_COLS, to->cols - col);
    for (int64_t j = 0; j < cols && !along; j++) inverse[j] = 1 / whole_scale(to);
    int64_t rows = 0;
    for (int64_t row = first; row < end; row += rows) {
      rows = along ? shorter(along, end - row) : end - row;
      if (along) scale_columns(rows, cols, x + row * ld + col, ld, to->scales + row / along * to->cols + col, inverse);
      keep_rows(rows, cols, x + row * ld + col, ld, inverse, to->numbers + row * to->cols + col, to->cols);
    }
  }
}

ZPK_CLONES static void read_rows(int64_t rows, int64_t cols, const uint8_t *from, int64_t ld, const float *scale,
                                 float *x) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++) x[i * cols + j] = scale[j] * zpk_widen_e4m3(from[i * ld + j]);
}

void zpk_read_float8(const zpk_kept_float8 *from, int64_t row, int64_t col, int64_t rows, int64_t cols, float *x) {
  int64_t along = zpk_float8_block_of(from->format).along, some = 0;
  assert(cols <= ZPK_FLOAT8_COLS && row + rows <= from->rows && col + cols <= from->cols);
  assert(along == 0 || row % along == 0);
  float scale[ZPK_FLOAT8_COLS];
  for (int64_t i = 0; i < rows; i += some) {
    some = along ? shorter(along, rows - i) : rows;
    for (int64_t j = 0; j < cols; j++)
      scale[j] = along ? zpk_widen_e8m0(from->scales[(row + i) / along * from->cols + col + j]) : whole_scale(from);
    read_rows(some, cols, from->numbers + (row + i) * from->cols + col, from->cols, scale, x + i * cols);
  }
}
