/* SPDX-License-Identifier: Apache-2.0 */
/* zplan diff A B: what differs between two plans. Exit status 4 when a decision does: this verb is for scripts,
 * `compare` shows whole plans side by side. */
#include "driver.h"

#include <math.h>
#include <stdio.h>
#include <zplan/buf.h>

static const char *about(zp_arena *arena, double seconds, const char *sign) {
  if (seconds == 0) return "-";
  return zp_format(arena, ZP_ESTIMATED "%s%s", sign, zp_show_seconds(arena, fabs(seconds)));
}

static void put_decisions(zp_arena *arena, zp_table *table, const zp_plan_diff *diff) {
  for (int i = 0; i < diff->decisions.len; i++) {
    const zp_decision_pair *d = &diff->decisions.data[i];
    const char *cells[] = {zp_format(arena, "* %s", d->name), d->a, d->b, NULL};
    if (!d->same) zp_table_add(arena, table, cells);
  }
}

static void put_prices(zp_arena *arena, zp_table *table, const zp_plan_diff *diff) {
  const zp_estimate *a = &diff->prices.best->best.estimate, *b = &diff->prices.asked->best.estimate;
  for (int i = 0; i < diff->prices.terms.len; i++) {
    const zp_term *t = &diff->prices.terms.data[i];
    double change = t->asked_s - t->best_s;
    const char *cells[] = {zp_format(arena, "* %s", t->name), about(arena, t->best_s, t->best_s < 0 ? "-" : ""),
                           about(arena, t->asked_s, t->asked_s < 0 ? "-" : ""),
                           about(arena, change, change < 0 ? "-" : "+")};
    if (fabs(change) > 1e-9 * a->step_s) zp_table_add(arena, table, cells);
  }
  const char *cells[] = {"* peak memory", zp_format(arena, ZP_ESTIMATED "%s", zp_show_bytes(arena, a->peak_bytes)),
                         zp_format(arena, ZP_ESTIMATED "%s", zp_show_bytes(arena, b->peak_bytes)), NULL};
  if (a->peak_bytes != b->peak_bytes) zp_table_add(arena, table, cells);
}

static void put_text(zp_page *page, const zp_plan_diff *diff, const zp_strings *files) {
  zp_arena *arena = page->out.arena;
  const zp_column columns[] = {
      {"", 24, 12, 0}, {files->data[0], 12, 9, 0}, {files->data[1], 12, 9, 0}, {"difference", 10, 0, 1}};
  zp_table table = {.columns = columns, .n = 4};
  put_decisions(arena, &table, diff);
  put_prices(arena, &table, diff);
  zp_page_table(page, &table);
  zp_page_text(page, ZP_PLAIN, 2, diff->same ? "the same decisions" : "* differs");
  zp_page_text(page, ZP_DIM, 2, ZP_ESTIMATED_LEGEND);
}

static zp_json *diff_json(const zp_plan_diff *diff, const zp_strings *files) {
  zp_json *o = zp_json_object();
  zp_json_set_bool(o, "same", diff->same);
  zp_json *list = zp_json_set(o, "files", zp_json_array());
  for (int i = 0; i < 2; i++) zp_json_append_string(list, files->data[i]);
  zp_json *decisions = zp_json_set(o, "decisions", zp_json_array());
  for (int i = 0; i < diff->decisions.len; i++) {
    const zp_decision_pair *d = &diff->decisions.data[i];
    zp_json *row = zp_json_append(decisions, zp_json_object());
    zp_json_set_string(row, "name", d->name);
    zp_json_set_string(row, "a", d->a);
    zp_json_set_string(row, "b", d->b);
    zp_json_set_bool(row, "same", d->same);
  }
  zp_json *terms = zp_json_set(o, "terms", zp_json_array());
  for (int i = 0; i < diff->prices.terms.len; i++) {
    zp_json *row = zp_json_append(terms, zp_json_object());
    zp_json_set_string(row, "name", diff->prices.terms.data[i].name);
    zp_json_set_real(row, "a_s", diff->prices.terms.data[i].best_s);
    zp_json_set_real(row, "b_s", diff->prices.terms.data[i].asked_s);
  }
  zp_json_set_int(o, "a_peak_bytes", diff->prices.best->best.estimate.peak_bytes);
  zp_json_set_int(o, "b_peak_bytes", diff->prices.asked->best.estimate.peak_bytes);
  return o;
}

int zp_cmd_diff(zp_run_state *run) {
  zp_strings files = run->options.files;
  if (files.len != 2) return zp_usage_error("`zplan diff` wants two plans, not %d", files.len);
  const zp_plan *a, *b;
  int status = zp_obtain_plan_of(run, files.data[0], &a);
  if (status == ZP_EXIT_OK) status = zp_obtain_plan_of(run, files.data[1], &b);
  if (status != ZP_EXIT_OK) return status;
  zp_plan_diff diff = zp_diff_plans(run->arena, a, b);
  if (run->options.json) {
    zp_print_json(run->arena, diff_json(&diff, &files));
  } else {
    zp_page page = zp_page_for(run, stdout, 0);
    put_text(&page, &diff, &files);
    zp_page_put(&page, stdout);
  }
  return diff.same ? ZP_EXIT_OK : ZP_EXIT_DIFFERENT;
}
