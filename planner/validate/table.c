/* SPDX-License-Identifier: Apache-2.0 */
/* What `zplan validate` prints: a table of families, what was assumed and what was not predicted; or JSON. */
#include <math.h>
#include <zplan/table.h>
#include "validate_internal.h"

static void add_family(zp_arena *arena, zp_table *table, const zp_family_score *f) {
  const char *cells[] = {f->name,
                         zp_format(arena, "%d", f->n),
                         f->n ? zp_format(arena, "%.1f", f->mean_abs_error_pct) : "-",
                         f->n ? zp_format(arena, "%+.1f", f->bias_pct) : "-",
                         f->n ? zp_format(arena, "%+.1f", f->max_error_pct) : "-",
                         isnan(f->kendall_tau) ? "-" : zp_format(arena, "%.2f", f->kendall_tau),
                         f->memory_n ? zp_format(arena, "%.1f", f->memory_mean_abs_error_pct) : "-",
                         f->fit_total ? zp_format(arena, "%d/%d", f->fit_agree, f->fit_total) : "-"};
  zp_table_add(arena, table, cells);
}

static const char *rows_of(zp_arena *arena, int rows, const char *what) {
  return zp_format(arena, "  %4d %s  %s\n", rows, rows == 1 ? "row " : "rows", what);
}

static void not_predicted(zp_buf *out, const zp_validation *v) {
  int rows = 0;
  for (int i = 0; i < v->left_out.len; i++) rows += v->left_out.data[i].rows;
  if (!rows) return;
  zp_buf_line(out, "\n%d of %d rows are not predicted:", rows, v->rows.len);
  for (int i = 0; i < v->left_out.len; i++)
    zp_buf_puts(out, rows_of(out->arena, v->left_out.data[i].rows, v->left_out.data[i].why));
}

static void assumptions(zp_buf *out, const zp_validation *v) {
  int rows = 0;
  for (int i = 0; i < v->rows.len; i++) rows += v->rows.data[i].open.len > 0;
  if (!rows) return;
  zp_buf_line(out, "\n%d row%s something open that was assumed: --json lists it. By column:", rows,
              rows == 1 ? " leaves" : "s leave");
  for (int i = 0; i < v->open.len; i++)
    zp_buf_puts(out, rows_of(out->arena, v->open.data[i].rows, v->open.data[i].column));
}

static void not_decided(zp_buf *out, const zp_validation *v) {
  int open = 0;
  for (int i = 0; i < v->families.len; i++) open += v->families.data[i].fit_open;
  if (open == 0) return;
  zp_buf_line(out, "\n%d runs or claims say too little to decide whether they fit: no shape, or no micro-batch", open);
}

void zp_validation_show(zp_page *page, const zp_validation *v) {
  static const zp_column columns[] = {{"family", 14, 8, 0},  {"n", 4, 0, 0},     {"mean %", 6, 0, 0},
                                      {"bias %", 7, 0, 1},   {"max %", 7, 0, 3}, {"tau", 5, 0, 2},
                                      {"memory %", 8, 0, 0}, {"fit", 7, 0, 0}};
  zp_buf out = zp_buf_new(page->out.arena);
  zp_table table = {.columns = columns, .n = sizeof columns / sizeof *columns};
  for (int i = 0; i < v->families.len; i++) add_family(page->out.arena, &table, &v->families.data[i]);
  zp_page_table(page, &table);
  assumptions(&out, v);
  not_decided(&out, v);
  not_predicted(&out, v);
  zp_page_lines(page, out.data);
}

static zp_json *family_json(const zp_family_score *f) {
  zp_json *o = zp_json_object();
  zp_json_set_string(o, "name", f->name);
  zp_json_set_int(o, "n", f->n);
  zp_json_set_real(o, "mean_abs_error_pct", f->n ? f->mean_abs_error_pct : NAN);
  zp_json_set_real(o, "bias_pct", f->n ? f->bias_pct : NAN);
  zp_json_set_real(o, "max_error_pct", f->n ? f->max_error_pct : NAN);
  zp_json_set_real(o, "kendall_tau", f->kendall_tau);
  zp_json_set_real(o, "memory_mean_abs_error_pct", f->memory_n ? f->memory_mean_abs_error_pct : NAN);
  zp_json_set_int(o, "memory_n", f->memory_n);
  zp_json_set_int(o, "fit_agree", f->fit_agree);
  zp_json_set_int(o, "fit_total", f->fit_total);
  zp_json_set_int(o, "fit_open", f->fit_open);
  return o;
}

static void set_measured(zp_json *o, const char *key, double value) {
  zp_json_set_real(o, key, value > 0 ? value : NAN);
}

static zp_json *row_json(const zp_prediction *p) {
  zp_json *o = zp_json_object();
  zp_json_set_string(o, "id", p->run->id);
  zp_json_set_string(o, "family", p->run->family);
  zp_json_set_int(o, "line", p->run->line);
  if (!p->predicted) {
    zp_json_set_string(o, "not_predicted", p->why_not);
    return o;
  }
  zp_json_set_string(o, "device", p->device);
  zp_json_set_int(o, "nodes", p->nodes);
  zp_json_set_string(o, "software", p->software);
  zp_json_set_string(o, "assumed", p->assumed);
  zp_json *open = zp_json_set(o, "open", zp_json_object());
  for (int i = 0; i < p->open.len; i++) zp_json_set_string(open, p->open.data[i].column, p->open.data[i].taken);
  zp_json_set_int(o, "microbatch", p->choice.microbatch);
  zp_json_set_int(o, "interleave_v", zp_chunks(&p->choice));
  set_measured(o, "measured_s", p->measured_s);
  zp_json_set_real(o, "predicted_s", p->estimate.step_s);
  zp_json_set_real(o, "error_pct", p->measured_s > 0 ? 100 * p->error : NAN);
  zp_estimate_set_terms(zp_json_set(o, "terms", zp_json_object()), &p->estimate);
  set_measured(o, "measured_memory_bytes", p->run->memory_bytes);
  zp_json_set_int(o, "predicted_memory_bytes", p->peak_bytes);
  zp_json_set_bool(o, "fits", p->fits);
  zp_json_set_bool(o, "fit_open", p->fit_open);
  return o;
}

zp_json *zp_validation_json(const zp_validation *v) {
  zp_json *o = zp_json_object();
  zp_json *families = zp_json_set(o, "families", zp_json_array()), *rows = zp_json_set(o, "rows", zp_json_array());
  for (int i = 0; i < v->families.len; i++) zp_json_append(families, family_json(&v->families.data[i]));
  for (int i = 0; i < v->rows.len; i++) zp_json_append(rows, row_json(&v->rows.data[i]));
  zp_json *left_out = zp_json_set(o, "left_out", zp_json_object()); /* rows that a reason keeps from a prediction */
  for (int i = 0; i < v->left_out.len; i++)
    zp_json_set_int(left_out, v->left_out.data[i].why, v->left_out.data[i].rows);
  zp_json *open = zp_json_set(o, "open", zp_json_object()); /* rows that leave a column open */
  for (int i = 0; i < v->open.len; i++) zp_json_set_int(open, v->open.data[i].column, v->open.data[i].rows);
  return o;
}
