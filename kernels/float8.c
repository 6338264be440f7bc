/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays of f32 as 8-bit operands times a scale, or times the scales of their blocks. */
#include "clones.h"
#include <assert.h>
#include <math.h>
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
