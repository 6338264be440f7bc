/* Readable dump of a row program. Everything that distinguishes two programs is in it, so that equal texts mean equal
 * kernels. */
#include <zplan/buf.h>
#include "rowprog.h"

static void put_pairs(zp_buf *buf, const char *word, zp_row_pairs pairs) {
  if (pairs.head) zp_buf_printf(buf, " %s=%lld%s", word, (long long)pairs.head, pairs.interleaved ? "i" : "");
}

static void put_value(zp_buf *buf, const zp_row_program *program, int v) {
  const zp_row_value *value = &program->values.data[v];
  zp_buf_printf(buf, "  %%%d", v);
  if (value->cols) zp_buf_printf(buf, "[%lld]", (long long)value->cols);
  zp_buf_printf(buf, " = %s", zp_row_op_name(value->op));
  for (int i = 0; i < zp_row_args(value->op); i++) zp_buf_printf(buf, " %%%d", value->arg[i]);
  switch (value->op) {
  case ZP_ROW_IMM: zp_buf_printf(buf, " %.17g", value->imm); break;
  case ZP_ROW_UNKNOWN:
  case ZP_ROW_ROWS:
  case ZP_ROW_COLUMNS: zp_buf_printf(buf, " in%d", value->input); break;
  case ZP_ROW_POSITION: zp_buf_printf(buf, " in%d S=%lld", value->input, (long long)program->rows_per_sample); break;
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

const char *zp_row_text(const zp_row_program *program) {
  zp_buf buf = zp_buf_new(program->arena);
  zp_buf_printf(&buf, "  inputs %d, outputs %d, column sums %d\n", program->n_in, program->n_out, program->n_partial);
  for (int v = 0; v < program->values.len; v++) put_value(&buf, program, v);
  for (int i = 0; i < program->sinks.len; i++) {
    const zp_row_sink *sink = &program->sinks.data[i];
    zp_buf_printf(&buf, "  %s%d[%lld] %s %%%d\n", sink->kind == ZP_ROW_STORE ? "out" : "sum", sink->index,
                  (long long)sink->cols, sink->kind == ZP_ROW_STORE ? "=" : "+=", sink->value);
  }
  return buf.data;
}
