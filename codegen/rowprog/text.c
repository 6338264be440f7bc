/* SPDX-License-Identifier: Apache-2.0 */
/* Readable dump of a row program. Everything that distinguishes two programs is in it, so that equal texts mean equal
 * kernels; names are not, they are for readers. */
#include <zplan/buf.h>
#include <zplan/decimal.h>
#include "rowprog.h"

static void put_pairs(zp_buf *buf, const char *word, zp_row_pairs pairs) {
  if (pairs.head) zp_buf_printf(buf, " %s=%lld%s", word, (long long)pairs.head, pairs.interleaved ? "i" : "");
}

/* What a text calls value v: its number in an identity, its name for readers. */
static const char *called(const zp_row_program *program, int v, bool by_name) {
  const char *name = by_name ? program->values.data[v].name : NULL;
  if (name && program->values.data[v].op == ZP_ROW_IMM) return zp_decimal(program->arena, program->values.data[v].imm);
  return name ? zp_format(program->arena, "%%%s", name) : zp_format(program->arena, "%%%d", v);
}

static void put_input(zp_buf *buf, const zp_row_program *program, int input, bool by_name) {
  if (by_name && program->in_name)
    zp_buf_printf(buf, " in%d (%s)", input, program->in_name[input]);
  else
    zp_buf_printf(buf, " in%d", input);
}

static void put_value(zp_buf *buf, const zp_row_program *program, int v, bool by_name) {
  const zp_row_value *value = &program->values.data[v];
  if (by_name && value->op == ZP_ROW_IMM) return; /* readers find the number in its place */
  zp_buf_printf(buf, "  %s", called(program, v, by_name));
  if (value->cols) zp_buf_printf(buf, "[%lld]", (long long)value->cols);
  zp_buf_printf(buf, " = %s", zp_row_op_name(value->op));
  for (int i = 0; i < zp_row_args(value->op); i++) zp_buf_printf(buf, " %s", called(program, value->arg[i], by_name));
  switch (value->op) {
  case ZP_ROW_IMM: zp_buf_printf(buf, " %.17g", value->imm); break;
  case ZP_ROW_UNKNOWN:
  case ZP_ROW_ROWS:
  case ZP_ROW_COLUMNS: put_input(buf, program, value->input, by_name); break;
  case ZP_ROW_POSITION:
    put_input(buf, program, value->input, by_name);
    zp_buf_printf(buf, " S=%lld", (long long)program->rows_per_sample);
    break;
  case ZP_ROW_KEEP:
    zp_buf_printf(buf, " rate=%.17g stream=%lld S=%lld", value->imm, (long long)value->stream,
                  (long long)program->rows_per_sample);
    break;
  case ZP_ROW_COS:
  case ZP_ROW_SIN: zp_buf_printf(buf, " theta=%.17g S=%lld", value->imm, (long long)program->rows_per_sample); break;
  default: break;
  }
  put_pairs(buf, "head", value->table);
  put_pairs(buf, "swapped", value->swap);
  zp_buf_puts(buf, "\n");
}

static const char *text_of(const zp_row_program *program, bool by_name) {
  zp_buf buf = zp_buf_new(program->arena);
  zp_buf_printf(&buf, "  inputs %d, outputs %d, column sums %d\n", program->n_in, program->n_out, program->n_partial);
  for (int v = 0; v < program->values.len; v++) put_value(&buf, program, v, by_name);
  for (int i = 0; i < program->sinks.len; i++) {
    const zp_row_sink *sink = &program->sinks.data[i];
    zp_buf_printf(&buf, "  %s%d[%lld] %s %s\n", sink->kind == ZP_ROW_STORE ? "out" : "sum", sink->index,
                  (long long)sink->cols,
                  sink->kind == ZP_ROW_STORE ? "=" : "+=", called(program, sink->value, by_name));
  }
  return buf.data;
}

const char *zp_row_text(const zp_row_program *program) { return text_of(program, false); }
const char *zp_row_named_text(const zp_row_program *program) { return text_of(program, true); }
