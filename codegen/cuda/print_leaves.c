/* SPDX-License-Identifier: Apache-2.0 */
/* What leaves need before the passes of a row: pointers, the kept columns of dropout, cosines and sines of the row's
 * position.
 *
 * Dropout: one bit a column of a thread, so that Philox runs once a row however many passes ask. Rotary tables: angles
 * are products in f64, with frequencies that are constants of the text; the block computes one head's cosines and sines
 * for all heads of the row. */
#include <ctype.h>
#include <string.h>
#include <zplan/zpk.h>
#include "text.h"

/* The part of 48 KiB static shared memory that cosines and sines may take. */
enum { MAX_ROTARY_BYTES = 32 * 1024 };

static bool is_other_half(const zp_row_value *v) { return v->swap.head && !v->swap.interleaved; }
static bool is_rotary(const zp_row_value *v) { return v->op == ZP_ROW_COS || v->op == ZP_ROW_SIN; }

/* Values of one kernel that satisfy a condition; `values` and `v` are in scope of what follows. */
#define FOR_VALUES(t, v)                                                                                               \
  for (const zp_row_value *v = (t)->program->values.data, *end_ = v + (t)->program->values.len; v < end_; v++)

/* The first value that reads this input, or the first one with this rotary table. */
static bool is_first_reader(const zp_cuda_text *t, const zp_row_value *v) {
  for (const zp_row_value *other = t->program->values.data; other < v; other++)
    if (other->op == v->op && other->input == v->input) return false;
  return true;
}

static bool same_rotary(const zp_row_value *a, const zp_row_value *b) {
  return a->imm == b->imm && a->table.head == b->table.head;
}

static bool is_first_rotary(const zp_cuda_text *t, const zp_row_value *v) {
  for (const zp_row_value *other = t->program->values.data; other < v; other++)
    if (is_rotary(other) && same_rotary(other, v)) return false;
  return true;
}

/* ---- rotary frequencies ---- */

static void print_frequencies(zp_cuda_text *t, const zp_row_value *v, const char *table) {
  int64_t pairs = v->table.head / 2;
  zp_buf_line(&t->out, "/* theta %s, head %lld */", zp_decimal(t->arena, v->imm), (long long)v->table.head);
  zp_buf_line(&t->out, "static __device__ const double zpd_frequency_%s[%lld] = {", table, (long long)pairs);
  t->out.indent++;
  for (int64_t i = 0; i < pairs; i += 4) {
    const char *line = "";
    for (int64_t k = i; k < i + 4 && k < pairs; k++)
      line = zp_format(t->arena, "%s%s%s,", line, k > i ? " " : "", zp_decimal(t->arena, zp_row_frequency(v, k)));
    zp_buf_line(&t->out, "%s", line);
  }
  t->out.indent--;
  zp_buf_line(&t->out, "};");
  zp_buf_line(&t->out, "");
}

const char *zp_cuda_rotary_of(zp_cuda_text *t, const zp_row_value *v) {
  char *table = zp_format(t->arena, "head%lld_theta%s", (long long)v->table.head, zp_decimal(t->arena, v->imm));
  for (char *p = table; *p; p++) /* a decimal's point, signs of its exponent */
    if (!isalnum((unsigned char)*p)) *p = '_';
  for (int i = 0; i < t->rotaries.len; i++)
    if (t->rotaries.data[i].theta == v->imm && t->rotaries.data[i].head == v->table.head) return table;
  zp_push(t->arena, &t->rotaries, ((zp_cuda_rotary){.theta = v->imm, .head = v->table.head}));
  print_frequencies(t, v, table);
  return table;
}

bool zp_cuda_shares_rotary(const zp_cuda_text *t, const zp_row_value *v) {
  return v->table.head * t->real_bytes <= MAX_ROTARY_BYTES;
}

void zp_cuda_print_constants(zp_cuda_text *t) {
  FOR_VALUES(t, v)
  if (is_rotary(v)) zp_cuda_rotary_of(t, v);
}

/* ---- before the loop over rows ---- */

static void print_next(zp_cuda_text *t) {
  FOR_VALUES(t, v)
  if (t->ahead && v->op == ZP_ROW_ROWS && is_first_reader(t, v) && t->whole[v->input])
    zp_buf_line(&t->out, "zpd_raw next_%s[%lld] = {};", t->program->in_name[v->input],
                (long long)zp_cuda_packs(t, v->cols));
}

static void print_factor(zp_cuda_text *t, const zp_row_value *v) {
  zp_buf_line(&t->out, "const real factor_%s = a.dropout ? (real)%s : 1;", v->name,
              zp_decimal(t->arena, 1 / (1 - v->imm)));
}

static void print_shared(zp_cuda_text *t, const zp_row_value *v) {
  if (!zp_cuda_shares_rotary(t, v)) return;
  const char *table = zp_cuda_rotary_of(t, v);
  long long pairs = (long long)v->table.head / 2;
  zp_buf_line(&t->out, "__shared__ real cos_%s[%lld], sin_%s[%lld];", table, pairs, table, pairs);
}

static bool is_operand(const zp_row_value *v) {
  return v->op == ZP_ROW_ROWS || v->op == ZP_ROW_COLUMNS || v->op == ZP_ROW_POSITION;
}

/* Rows of all operands must begin at multiples of 16 bytes for packs to be moved at once. */
static void print_alignment(zp_cuda_text *t) {
  if (t->vec == 1) return;
  const char *line = "";
  FOR_VALUES(t, v) {
    if (!is_operand(v) || !is_first_reader(t, v)) continue;
    line = zp_format(t->arena, "%s%szpd_begins_pack(a.in[%d])", line, *line ? " && " : "", v->input);
    if (v->op == ZP_ROW_ROWS) line = zp_format(t->arena, "%s && a.in_ld[%d] %% ZPD_VEC == 0", line, v->input);
  }
  for (int i = 0; i < t->program->sinks.len; i++) {
    const zp_row_sink *sink = &t->program->sinks.data[i];
    if (sink->kind == ZP_ROW_STORE)
      line = zp_format(t->arena, "%s%szpd_begins_pack(a.out[%d]) && a.out_ld[%d] %% ZPD_VEC == 0", line,
                       *line ? " && " : "", sink->index, sink->index);
  }
  zp_buf_line(&t->out, "const bool packs = %s;", *line ? line : "true");
  zp_buf_line(&t->out, "(void)packs;");
}

void zp_cuda_print_prepare(zp_cuda_text *t) {
  print_alignment(t);
  FOR_VALUES(t, v) {
    if (v->op == ZP_ROW_COLUMNS && is_first_reader(t, v))
      zp_buf_line(&t->out, "const elem *__restrict__ in_%s = (const elem *)a.in[%d];", t->program->in_name[v->input],
                  v->input);
    if (v->op == ZP_ROW_KEEP) print_factor(t, v);
    if (is_rotary(v) && is_first_rotary(t, v)) print_shared(t, v);
  }
  print_next(t);
}

/* ---- for each row ---- */

static void print_position(zp_cuda_text *t) {
  bool position = false, sample = false;
  FOR_VALUES(t, v) {
    position |= v->op == ZP_ROW_POSITION || v->op == ZP_ROW_KEEP || is_rotary(v);
    sample |= v->op == ZP_ROW_KEEP;
  }
  long long S = (long long)t->program->rows_per_sample;
  if (position) zp_buf_line(&t->out, "const unsigned position = (unsigned)row %% %lldu;", S);
  if (sample) zp_buf_line(&t->out, "const unsigned sample = (unsigned)row / %lldu;", S);
}

static bool reads_other_half(const zp_cuda_text *t, int input) {
  FOR_VALUES(t, v)
  if (v->op == ZP_ROW_ROWS && v->input == input && is_other_half(v)) return true;
  return false;
}

static void print_inputs(zp_cuda_text *t) {
  FOR_VALUES(t, v) {
    if ((v->op != ZP_ROW_ROWS && v->op != ZP_ROW_POSITION) || !is_first_reader(t, v)) continue;
    if (t->whole[v->input] && !reads_other_half(t, v->input)) continue;
    const char *offset = v->op == ZP_ROW_ROWS ? zp_format(t->arena, "row * a.in_ld[%d]", v->input)
                                              : zp_format(t->arena, "(zpd_int)position * %lld", (long long)v->cols);
    zp_buf_line(&t->out, "const elem *__restrict__ in_%s = (const elem *)a.in[%d] + %s;", t->program->in_name[v->input],
                v->input, offset);
  }
}

static void print_outputs(zp_cuda_text *t) {
  for (int i = 0; i < t->program->sinks.len; i++) {
    const zp_row_sink *sink = &t->program->sinks.data[i];
    if (sink->kind == ZP_ROW_STORE)
      zp_buf_line(&t->out, "elem *__restrict__ out_%s = (elem *)a.out[%d] + row * a.out_ld[%d];", sink->name,
                  sink->index, sink->index);
  }
}

/* All ones without dropout. */
static void print_kept(zp_cuda_text *t, const zp_row_value *v) {
  int64_t words = (zp_cuda_columns(t, v->cols) + 31) / 32;
  const char *slot = zp_cuda_slot(t, v->cols);
  const char *word = words == 1 ? "" : zp_format(t->arena, "[(%s) / 32]", slot);
  const char *bit = zp_format(t->arena, words == 1 ? "(%s)" : "(%s) %% 32", slot);
  if (words == 1)
    zp_buf_line(&t->out, "unsigned kept_%s = a.dropout ? 0 : ~0u;", v->name);
  else {
    zp_buf_line(&t->out, "unsigned kept_%s[%lld];", v->name, (long long)words);
    zp_buf_line(&t->out, "for (int i = 0; i < %lld; i++) kept_%s[i] = a.dropout ? 0 : ~0u;", (long long)words, v->name);
  }
  zp_cuda_open(t, "if (a.dropout) {");
  zp_buf_line(&t->out, "const zpd_stream stream = zpd_stream_of_row(a, %llu, sample, position);",
              (unsigned long long)v->stream);
  zp_cuda_open_packs(t, v->cols);
  zp_cuda_open_columns(t);
  zp_buf_line(&t->out, "kept_%s%s |= (unsigned)(zpd_random_word(stream, %s) >= %uu) << %s;", v->name, word,
              zp_cuda_column_of(t, v), zpk_keep_threshold(v->imm), bit);
  zp_cuda_close_columns(t);
  zp_cuda_close_packs(t);
  zp_cuda_close(t);
}

static void print_rotary(zp_cuda_text *t, const zp_row_value *v) {
  const char *table = zp_cuda_rotary_of(t, v);
  zp_buf_line(&t->out, "for (int pair = thread; pair < %lld; pair += ZPD_ROW_THREADS)", (long long)v->table.head / 2);
  zp_buf_line(&t->out, "  zpd_turn(position * zpd_frequency_%s[pair], &cos_%s[pair], &sin_%s[pair]);", table, table,
              table);
}

/* A barrier on either side: of the row before, which reads the arrays to its end, and of this row. */
static void print_rotaries(zp_cuda_text *t) {
  bool any = false;
  FOR_VALUES(t, v) {
    if (!is_rotary(v) || !is_first_rotary(t, v) || !zp_cuda_shares_rotary(t, v)) continue;
    if (!any) zp_buf_line(&t->out, "__syncthreads();");
    any = true;
    print_rotary(t, v);
  }
  if (any) zp_buf_line(&t->out, "__syncthreads();");
}

/* ---- packs ---- */

static bool is_held(const zp_cuda_text *t, const zp_row_value *v) {
  return v->op != ZP_ROW_COLUMNS && t->held[v->input] && !is_other_half(v);
}

const char *zp_cuda_pack_of(zp_cuda_text *t, const zp_row_value *v) {
  const char *name = t->program->in_name[v->input];
  if (is_held(t, v)) return zp_format(t->arena, t->sharing == ZP_CUDA_TILES ? "held_%s[0]" : "held_%s[i]", name);
  if (is_other_half(v)) return zp_format(t->arena, "other_head%lld_%s", (long long)v->swap.head, name);
  return zp_format(t->arena, "pack_%s", name);
}

/* Is the pack there before value `last` of this pass: read by it, or by an earlier one and held, or with the whole
 * row? */
static bool is_loaded(zp_cuda_text *t, const zp_row_pass *pass, int last, const zp_row_value *v) {
  if (is_held(t, v) && t->whole[v->input]) return true;
  for (const zp_row_pass *p = t->schedule.passes.data; p <= pass; p++)
    for (int i = 0; i < (p == pass ? last : p->values.len); i++) {
      const zp_row_value *other = &t->program->values.data[p->values.data[i]];
      bool counts = is_operand(other) && (p == pass || is_held(t, v));
      if (counts && strcmp(zp_cuda_pack_of(t, other), zp_cuda_pack_of(t, v)) == 0) return true;
    }
  return false;
}

void zp_cuda_print_loads(zp_cuda_text *t, const zp_row_pass *pass) {
  for (int i = 0; i < pass->values.len && t->vec > 1; i++) {
    const zp_row_value *v = &t->program->values.data[pass->values.data[i]];
    if (!is_operand(v) || is_loaded(t, pass, i, v)) continue;
    const char *column =
        is_other_half(v) ? zp_format(t->arena, "zpd_other_half(first, %lld)", (long long)v->swap.head) : "first";
    zp_buf_line(&t->out, "%s%s = zpd_raw_load(in_%s + %s, ZPD_VEC, packs);", is_held(t, v) ? "" : "const zpd_raw ",
                zp_cuda_pack_of(t, v), t->program->in_name[v->input], column);
  }
}

static void print_held(zp_cuda_text *t) {
  FOR_VALUES(t, v) {
    if (!is_operand(v) || !is_first_reader(t, v) || v->op == ZP_ROW_COLUMNS || !t->held[v->input]) continue;
    const char *name = t->program->in_name[v->input];
    long long packs = (long long)zp_cuda_packs(t, v->cols);
    zp_buf_line(&t->out, "zpd_raw held_%s[%lld] = {};", name, packs);
    if (t->whole[v->input] && t->ahead)
      zp_buf_line(&t->out, "ZPD_EACH (i, %lld) held_%s[i] = next_%s[i];", packs, name, name);
  }
}

void zp_cuda_print_whole(zp_cuda_text *t, const char *to, const char *row) {
  FOR_VALUES(t, v)
  if (v->op == ZP_ROW_ROWS && is_first_reader(t, v) && t->whole[v->input])
    zp_buf_line(&t->out, "zpd_load_row<%s>(%s_%s, (const elem *)a.in[%d] + %s * a.in_ld[%d], %s, %lld, packs);",
                t->sharing == ZP_CUDA_BLOCK ? "ZPD_ROW_THREADS" : "ZPD_WARP", to, t->program->in_name[v->input],
                v->input, row, v->input, t->sharing == ZP_CUDA_TILES ? "first / ZPD_VEC" : "thread",
                (long long)v->cols);
}

void zp_cuda_print_prepare_row(zp_cuda_text *t) {
  print_position(t);
  print_inputs(t);
  print_held(t);
  print_outputs(t);
  FOR_VALUES(t, v)
  if (v->op == ZP_ROW_KEEP) print_kept(t, v);
  print_rotaries(t);
}
