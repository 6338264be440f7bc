/* SPDX-License-Identifier: Apache-2.0 */
/* Who shares the rows of a kernel, how much a thread moves at once, and what it keeps in registers.
 *
 * Registers are what decides: a thread keeps a sum for each of its columns over all rows of its block, and what it has
 * read of a row until the last pass over it. */
#include "text.h"

/* Loops over so many packs are unrolled whole, so that arrays indexed by them are registers. */
enum { MAX_PACKS = 8 };
/* Registers of 4 bytes for the sums of a thread, for what it holds of a row, and for both with the row ahead: a block
 * of 256 threads leaves 255 to each, of which the computation takes about 100. */
enum { MAX_SUM_REGISTERS = 96, MAX_HELD_REGISTERS = 64, MAX_AHEAD_REGISTERS = 144 };
enum { PACK_BYTES = 16 };

static bool is_rotary(const zp_row_value *v) { return v->op == ZP_ROW_COS || v->op == ZP_ROW_SIN; }
static bool is_reduction(const zp_row_value *v) { return v->op == ZP_ROW_RSUM || v->op == ZP_ROW_RMAX; }

static bool has(const zp_row_program *program, bool (*is)(const zp_row_value *v)) {
  for (int v = 0; v < program->values.len; v++)
    if (is(&program->values.data[v])) return true;
  return false;
}

int64_t zp_cuda_longest(const zp_row_program *program) {
  int64_t longest = 0;
  for (int v = 0; v < program->values.len; v++)
    if (program->values.data[v].cols > longest) longest = program->values.data[v].cols;
  for (int i = 0; i < program->sinks.len; i++)
    if (program->sinks.data[i].cols > longest) longest = program->sinks.data[i].cols;
  return longest;
}

/* A pack of the other halves of heads must be a pack, too. */
static bool packs_fit(const zp_row_program *program, int64_t vec) {
  for (int v = 0; v < program->values.len; v++) {
    const zp_row_value *value = &program->values.data[v];
    if (value->cols % vec != 0) return false;
    if (value->swap.head && !value->swap.interleaved && value->swap.head / 2 % vec != 0) return false;
  }
  for (int i = 0; i < program->sinks.len; i++)
    if (program->sinks.data[i].cols % vec != 0) return false;
  return true;
}

/* What the sums of a thread take, over all of its columns. */
static int64_t sum_registers(const zp_cuda_text *t) {
  int64_t columns = 0;
  for (int i = 0; i < t->program->sinks.len; i++) {
    const zp_row_sink *sink = &t->program->sinks.data[i];
    if (sink->kind == ZP_ROW_CSUM) columns += zp_cuda_columns(t, sink->cols);
  }
  return columns * t->real_bytes / 4;
}

static bool sums_fit(const zp_cuda_text *t) { return sum_registers(t) <= MAX_SUM_REGISTERS; }

void zp_cuda_choose_sharing(zp_cuda_text *t) {
  int64_t longest = zp_cuda_longest(t->program);
  t->vec = PACK_BYTES / t->elem_bytes;
  if (!packs_fit(t->program, t->vec)) t->vec = 1;
  t->sharing = ZP_CUDA_TILES;
  t->sums_in_memory = false;
  /* Cosines of a position are shared by the block. */
  bool few = t->program->n_partial == 0 || zp_cuda_tiles(t) <= ZPD_MOST_TILES;
  if (!has(t->program, is_reduction) && !has(t->program, is_rotary) && few && sums_fit(t)) return;
  t->sharing = ZP_CUDA_WARPS;
  if (!has(t->program, is_rotary) && zp_cuda_packs(t, longest) <= MAX_PACKS && sums_fit(t)) return;
  t->sharing = ZP_CUDA_BLOCK;
  t->sums_in_memory = zp_cuda_packs(t, longest) > MAX_PACKS || !sums_fit(t);
}

int zp_cuda_tiles(const zp_cuda_text *t) {
  int64_t tile = (int64_t)ZP_CUDA_WARP * t->vec;
  return t->sharing == ZP_CUDA_TILES ? (int)((zp_cuda_longest(t->program) + tile - 1) / tile) : 0;
}

/* ---- what is held ---- */

/* Passes that read the input at the columns themselves; 0 where they are not all of the same row. */
static int passes_that_read(const zp_cuda_text *t, int input, int64_t *cols) {
  int passes = 0;
  *cols = 0;
  for (int p = 0; p < t->schedule.passes.len; p++) {
    const zp_row_pass *pass = &t->schedule.passes.data[p];
    bool reads = false;
    for (int i = 0; i < pass->values.len; i++) {
      const zp_row_value *v = &t->program->values.data[pass->values.data[i]];
      bool of_row = v->op == ZP_ROW_ROWS || v->op == ZP_ROW_POSITION;
      reads |= of_row && v->input == input && (!v->swap.head || v->swap.interleaved);
    }
    if (!reads) continue;
    if (passes > 0 && *cols != pass->cols) return 0;
    *cols = pass->cols;
    passes++;
  }
  return passes;
}

static bool is_rows_input(const zp_cuda_text *t, int input) {
  for (int v = 0; v < t->program->values.len; v++)
    if (t->program->values.data[v].op == ZP_ROW_ROWS && t->program->values.data[v].input == input) return true;
  return false;
}

/* Whether all that rows have is as long as the row: tiles then need not ask where operands end. */
static bool is_even(const zp_cuda_text *t) {
  for (int v = 0; v < t->program->values.len; v++) {
    const zp_row_value *value = &t->program->values.data[v];
    if (value->op == ZP_ROW_ROWS && value->cols != zp_cuda_longest(t->program)) return false;
  }
  return true;
}

/* Registers leave room for few warps, which would wait for memory in every pass: all operands of a row are read before
 * its first pass, and where there are sums, which take most of the registers, even while the row before is computed.
 * All or none. */
static void choose_whole(zp_cuda_text *t) {
  int64_t sums = sum_registers(t), row = 0, cols;
  t->whole = ZP_NEW_ARRAY(t->arena, bool, t->program->n_in + 1);
  t->ahead = false;
  if (t->vec == 1 || t->sums_in_memory || has(t->program, is_rotary)) return;
  if (t->sharing == ZP_CUDA_TILES && (sums == 0 || !is_even(t))) return;
  for (int i = 0; i < t->program->n_in; i++) {
    if (!is_rows_input(t, i)) continue;
    if (passes_that_read(t, i, &cols) == 0 || zp_cuda_packs(t, cols) > MAX_PACKS) return;
    row += zp_cuda_packs(t, cols) * PACK_BYTES / 4;
  }
  if (row > MAX_HELD_REGISTERS) return;
  t->ahead = sums > 0 && row > 0 && sums + 2 * row <= MAX_AHEAD_REGISTERS;
  for (int i = 0; i < t->program->n_in; i++)
    if (is_rows_input(t, i)) t->whole[i] = t->held[i] = true;
}

void zp_cuda_choose_held(zp_cuda_text *t) {
  int64_t registers = 0;
  t->held = ZP_NEW_ARRAY(t->arena, bool, t->program->n_in + 1);
  for (int i = 0; i < t->program->n_in && t->vec > 1; i++) {
    int64_t cols, packs;
    if (passes_that_read(t, i, &cols) < 2) continue;
    packs = zp_cuda_packs(t, cols);
    t->held[i] = packs <= MAX_PACKS && registers + packs * PACK_BYTES / 4 <= MAX_HELD_REGISTERS;
    if (t->held[i]) registers += packs * PACK_BYTES / 4;
  }
  choose_whole(t);
}
