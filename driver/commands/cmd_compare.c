/* SPDX-License-Identifier: Apache-2.0 */
/* zplan compare A B...: several plans side by side, of files, machines, numbers of devices. Exit status 0 whether they
 * differ or not: `diff` is for scripts. */
#include "driver.h"
#include "option_values.h"

#include <math.h>
#include <stdio.h>
#include <zplan/buf.h>

enum { MOST_PLANS = 12, PRINTED_COLUMNS = 100 };

/* What the columns are called: A, B, ... */
static const char *letter(zp_arena *arena, int column) { return zp_format(arena, "%c", 'A' + column); }

/* ---- text ---- */

static void put_row(zp_arena *arena, zp_table *table, bool same, const char *name, const char *const *plan_cell) {
  const char *cells[1 + MOST_PLANS] = {zp_format(arena, "%c %s", same ? ' ' : '*', name)};
  for (int i = 1; i < table->n; i++) cells[i] = plan_cell[i - 1] ? plan_cell[i - 1] : "-";
  zp_table_add(arena, table, cells);
}

static bool is_zero(const zp_row_alongside *row, int n) {
  for (int i = 0; i < n; i++)
    if (row->words || (row->seconds && row->seconds[i] != 0) || (row->bytes && row->bytes[i] != 0)) return false;
  return true;
}

static const char *show(zp_arena *arena, const zp_row_alongside *row, int i) {
  if (row->words) return row->words[i];
  if (row->bytes)
    return row->bytes[i]
               ? zp_format(arena, "%s%s", row->estimated ? ZP_ESTIMATED : "", zp_show_bytes(arena, row->bytes[i]))
               : NULL;
  if (row->seconds[i] == 0) return NULL;
  return zp_format(arena, ZP_ESTIMATED "%s%s", row->seconds[i] < 0 ? "-" : "",
                   zp_show_seconds(arena, fabs(row->seconds[i])));
}

static void put_cells(zp_arena *arena, zp_table *table, const zp_row_alongside *row, int n) {
  const char *cell[MOST_PLANS];
  for (int i = 0; i < n; i++) cell[i] = show(arena, row, i);
  put_row(arena, table, row->same, row->name, cell);
}

/* Rows in which no plan has anything are left out. */
static void put_rows(zp_arena *arena, zp_table *table, const char *title, const zp_rows_alongside *rows, int n) {
  bool titled = false;
  for (int r = 0; r < rows->len; r++) {
    if (is_zero(&rows->data[r], n)) continue;
    if (!titled) zp_table_add_text(arena, table, zp_format(arena, "\n%s", title));
    titled = true;
    put_cells(arena, table, &rows->data[r], n);
  }
}

/* Those that differ as rows, the others as a list. */
static void put_decisions(zp_arena *arena, zp_table *table, const zp_rows_alongside *rows, int n) {
  zp_buf same = zp_buf_new(arena);
  for (int r = 0; r < rows->len; r++) {
    const zp_row_alongside *row = &rows->data[r];
    if (row->same)
      zp_buf_printf(&same, "%s %s %s", same.len ? "," : "the same:", row->name, row->words[0]);
    else
      put_cells(arena, table, row, n);
  }
  if (same.len) zp_table_add_text(arena, table, same.data);
}

static void put_speed(zp_arena *arena, zp_table *table, const zp_side_by_side *s) {
  const char *tokens[MOST_PLANS], *mfu[MOST_PLANS], *against[MOST_PLANS];
  const zp_estimate *first = &s->plans[0]->best.estimate;
  bool same_speed = true, same_mfu = true;
  for (int i = 0; i < s->n; i++) {
    const zp_estimate *e = &s->plans[i]->best.estimate;
    tokens[i] = zp_format(arena, ZP_ESTIMATED "%s/s", zp_show_count(arena, e->tokens_per_s));
    mfu[i] = zp_format(arena, ZP_ESTIMATED "%.1f%%", 100 * e->mfu);
    against[i] = i ? zp_format(arena, ZP_ESTIMATED "%+.1f%%", 100 * (first->tokens_per_s / e->tokens_per_s - 1)) : NULL;
    same_speed &= fabs(e->tokens_per_s - first->tokens_per_s) <= 1e-9 * first->tokens_per_s;
    same_mfu &= fabs(e->mfu - first->mfu) <= 1e-9;
  }
  put_row(arena, table, same_speed, "tokens", tokens);
  put_row(arena, table, same_mfu, "MFU", mfu);
  put_row(arena, table, same_speed, "time of a token, to A", against);
}

static void put_run(zp_arena *arena, zp_table *table, const zp_side_by_side *s) {
  const struct {
    const char *name;
    const double *value;
  } rows[] = {{"time", s->run_s}, {"device-hours", s->run_device_hours}, {"price", s->run_dollars}};
  const char *cell[MOST_PLANS];
  bool titled = false;
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
    bool same = true, any = false;
    for (int i = 0; i < s->n; i++) {
      double value = rows[r].value[i];
      any |= value > 0;
      same &= fabs(value - rows[r].value[0]) <= 1e-9 * rows[r].value[0];
      cell[i] = value <= 0 ? NULL
                : r == 0   ? zp_format(arena, ZP_ESTIMATED "%s", zp_show_seconds(arena, value))
                           : zp_format(arena, r == 2 ? ZP_ESTIMATED "$%.3g" : ZP_ESTIMATED "%.3g", value);
    }
    if (!any) continue;
    if (!titled) zp_table_add_text(arena, table, "\nthe whole training run");
    titled = true;
    put_row(arena, table, same, rows[r].name, cell);
  }
}

/* "; B is the cheapest: A costs ~4.5% more", of trainings that all have a price; else nothing. */
static const char *cheapest(zp_arena *arena, const zp_side_by_side *s) {
  zp_buf out = zp_buf_new(arena);
  int best = 0;
  for (int i = 0; i < s->n; i++) {
    if (s->run_dollars[i] <= 0) return "";
    if (s->run_dollars[i] < s->run_dollars[best]) best = i;
  }
  zp_buf_printf(&out, "; %s is the cheapest", letter(arena, best));
  const char *separator = ":";
  for (int i = 0; i < s->n; i++) {
    double more = 100 * (s->run_dollars[i] / s->run_dollars[best] - 1);
    if (i == best) continue;
    zp_buf_printf(&out, more < 0.05 ? "%s %s costs as much" : "%s %s costs " ZP_ESTIMATED "%.1f%% more", separator,
                  letter(arena, i), more);
    separator = ",";
  }
  return out.data;
}

/* "A is the fastest: B takes ~9.2% longer for the same tokens". */
static const char *verdict(zp_arena *arena, const zp_side_by_side *s) {
  zp_buf out = zp_buf_new(arena);
  int best = 0;
  for (int i = 1; i < s->n; i++)
    if (s->plans[i]->best.estimate.tokens_per_s > s->plans[best]->best.estimate.tokens_per_s) best = i;
  double fastest = s->plans[best]->best.estimate.tokens_per_s;
  const char *separator = ":";
  zp_buf_printf(&out, "%s is the fastest", letter(arena, best));
  for (int i = 0; i < s->n; i++) {
    double longer = 100 * (fastest / s->plans[i]->best.estimate.tokens_per_s - 1);
    if (i == best) continue;
    zp_buf_printf(&out, longer < 0.05 ? "%s %s as fast" : "%s %s takes " ZP_ESTIMATED "%.1f%% longer", separator,
                  letter(arena, i), longer);
    separator = ",";
  }
  zp_buf_printf(&out, " for the same tokens%s", cheapest(arena, s));
  return out.data;
}

static void put_text(zp_page *page, const zp_side_by_side *s, const zp_strings *names) {
  zp_arena *arena = page->out.arena;
  zp_column columns[1 + MOST_PLANS] = {{"", 23, 12, 0}};
  for (int i = 0; i < s->n; i++) {
    columns[1 + i] = (zp_column){letter(arena, i), 9, 9, 0};
    zp_page_text(page, ZP_PLAIN, 3, zp_format(arena, "%s" ZP_GLUE ZP_GLUE "%s", letter(arena, i), names->data[i]));
  }
  zp_page_blank(page);
  zp_table table = {.columns = columns, .n = 1 + s->n};
  put_decisions(arena, &table, &s->decisions, s->n);
  put_rows(arena, &table, "one step", &s->terms, s->n);
  put_speed(arena, &table, s);
  put_rows(arena, &table, "memory of a rank on the fullest stage", &s->memory, s->n);
  put_rows(arena, &table, "and not on the device", &s->elsewhere, s->n);
  put_rows(arena, &table, "sent in a step by all ranks", &s->traffic, s->n);
  put_run(arena, &table, s);
  zp_page_table(page, &table);
  zp_page_blank(page);
  zp_page_text(page, ZP_STRONG, 2, verdict(arena, s));
  zp_page_text(page, ZP_DIM, 2, "* differs; " ZP_ESTIMATED_LEGEND);
}

/* ---- JSON ---- */

static void set_rows(zp_json *o, const char *key, const zp_rows_alongside *rows, int n) {
  zp_json *list = zp_json_set(o, key, zp_json_array());
  for (int r = 0; r < rows->len; r++) {
    const zp_row_alongside *row = &rows->data[r];
    zp_json *entry = zp_json_append(list, zp_json_object());
    zp_json_set_string(entry, "name", row->name);
    zp_json_set_bool(entry, "same", row->same);
    zp_json *cells = zp_json_set(entry, row->words ? "words" : row->bytes ? "bytes" : "seconds", zp_json_array());
    for (int i = 0; i < n; i++) {
      if (row->words)
        zp_json_append_string(cells, row->words[i]);
      else if (row->bytes)
        zp_json_append_int(cells, row->bytes[i]);
      else
        zp_json_append_real(cells, row->seconds[i]);
    }
  }
}

static zp_json *as_json(const zp_side_by_side *s, const zp_strings *names) {
  zp_json *o = zp_json_object();
  zp_json *plans = zp_json_set(o, "plans", zp_json_array());
  for (int i = 0; i < s->n; i++) {
    const zp_estimate *e = &s->plans[i]->best.estimate;
    zp_json *entry = zp_json_append(plans, zp_json_object());
    zp_json_set_string(entry, "name", names->data[i]);
    zp_json_set_int(entry, "devices", s->plans[i]->devices);
    zp_json_set(entry, "plan", zp_choice_json(&s->plans[i]->best.choice));
    zp_json_set_real(entry, "step_s", e->step_s);
    zp_json_set_real(entry, "tokens_per_s", e->tokens_per_s);
    zp_json_set_real(entry, "mfu", e->mfu);
    zp_json_set_int(entry, "peak_bytes", e->peak_bytes);
    zp_json_set_int(entry, "peak_stage", e->peak_stage);
    if (s->run_s[i] > 0) zp_json_set_real(entry, "run_s", s->run_s[i]);
    if (s->run_s[i] > 0) zp_json_set_real(entry, "run_device_hours", s->run_device_hours[i]);
    if (s->run_dollars[i] > 0) zp_json_set_real(entry, "run_dollars", s->run_dollars[i]);
  }
  set_rows(o, "decisions", &s->decisions, s->n);
  set_rows(o, "terms", &s->terms, s->n);
  set_rows(o, "memory", &s->memory, s->n);
  set_rows(o, "elsewhere", &s->elsewhere, s->n);
  set_rows(o, "traffic", &s->traffic, s->n);
  return o;
}

/* ---- which plans ---- */

/* What may differ from column to column. One value is for all columns. */
typedef enum side { FILES, PLANS, MACHINES, CLUSTERS, COUNTS, SIDES } side;
static const char *const side_names[SIDES] = {"file", "--plan", "--machine", "--cluster", "--gpus"};

static const zp_strings *values_of(const zp_options *o, side which) {
  const zp_strings *values[SIDES] = {&o->files, &o->plan_names, &o->machines, &o->clusters, &o->counts};
  return values[which];
}

/* The value of a column; NULL: none is given. */
static const char *value_at(const zp_options *o, side which, int column) {
  const zp_strings *values = values_of(o, which);
  return values->len == 0 ? NULL : values->data[values->len > 1 ? column : 0];
}

/* As many as the longest list has; 0 after saying what is wrong. */
static int count_columns(const zp_run_state *run) {
  const zp_options *o = &run->options;
  int n = 0, longest = 0;
  for (int s = 0; s < SIDES; s++)
    if (values_of(o, (side)s)->len > n) n = values_of(o, (side)s)->len, longest = s;
  for (int s = 0; s < SIDES; s++) {
    int len = values_of(o, (side)s)->len;
    if (len > 1 && len != n)
      return zp_usage_error("`zplan compare` wants one %s or one for each of the %d of %s, %d were given",
                            side_names[s], n, side_names[longest], len),
             0;
  }
  if (o->machines.len && o->clusters.len)
    return zp_usage_error("--machine %s and --cluster %s: which of the two?", o->machine, o->load.cluster), 0;
  if (n < 2 || o->files.len < 1)
    return zp_usage_error("`zplan compare` wants two plans or more: files, or one file and several --plan, --machine, "
                          "--cluster or --gpus"),
           0;
  if (n > MOST_PLANS) return zp_usage_error("`zplan compare` wants at most %d plans, %d were given", MOST_PLANS, n), 0;
  return n;
}

/* "my.dz, plan wide, dgx-h100, 16 devices": what differs, after the file. */
static const char *name_of(zp_arena *arena, const zp_options *o, int column) {
  zp_buf out = zp_buf_new(arena);
  zp_buf_puts(&out, value_at(o, FILES, column));
  if (o->plan_names.len > 1) zp_buf_printf(&out, ", plan %s", o->plan_names.data[column]);
  if (o->machines.len > 1) zp_buf_printf(&out, ", %s", o->machines.data[column]);
  if (o->clusters.len > 1) zp_buf_printf(&out, ", cluster %s", o->clusters.data[column]);
  if (o->counts.len > 1) zp_buf_printf(&out, ", %s devices", o->counts.data[column]);
  return out.data;
}

/* Does the command line say what to plan, and how? */
static bool shapes_plans(const zp_options *o) {
  const zp_load_options *l = &o->load;
  return l->gpus || l->nodes || l->cluster || l->model || l->plan || o->set.len || o->device_memory || o->calibration ||
         o->gap_text || o->machine;
}

/* A plan file has decided already: such words are for the .dz files alongside it. */
static void forget_shape(zp_options *o) {
  const char *library_dir = o->load.library_dir;
  o->load = (zp_load_options){.library_dir = library_dir};
  o->set = o->plan_names = (zp_strings){0};
  o->device_memory = 0;
  o->calibration = o->gap_text = NULL;
}

static bool check_words(const zp_run_state *run) {
  const zp_strings *files = &run->options.files;
  bool any = false;
  for (int i = 0; i < files->len; i++) any |= !zp_is_plan_file(run, files->data[i]);
  if (any || !shapes_plans(&run->options)) return true;
  return zp_usage_error("%s is planned already: other options than --json are for .dz files", files->data[0]), false;
}

/* The options as if a column's values alone had been given. */
static bool choose(zp_run_state *run, const zp_options *own, int column) {
  zp_options *o = &run->options;
  *o = *own;
  o->machines = o->clusters = (zp_strings){0};
  o->load.plan = value_at(own, PLANS, column);
  o->machine = value_at(own, MACHINES, column);
  o->load.cluster = value_at(own, CLUSTERS, column);
  const char *count = value_at(own, COUNTS, column);
  return (!count || zp_parse_devices(run, "--gpus", count)) && zp_choose_machine(run);
}

/* A value of one column is for that column, which must have use for it. */
static bool is_planned_freely(const zp_options *o, const char *path) {
  for (int s = PLANS; s < SIDES; s++)
    if (values_of(o, (side)s)->len > 1)
      return zp_usage_error("%s is planned already: several %s are for .dz files", path, side_names[s]), false;
  return true;
}

static int obtain(zp_run_state *run, int column, const zp_plan **plan) {
  const zp_options own = run->options;
  const char *path = value_at(&own, FILES, column);
  int status = ZP_EXIT_OK;
  if (zp_is_plan_file(run, path)) {
    if (!is_planned_freely(&own, path)) return ZP_EXIT_USAGE;
    forget_shape(&run->options);
  } else if (!choose(run, &own, column)) {
    status = ZP_EXIT_USAGE;
  }
  if (status == ZP_EXIT_OK) status = zp_obtain_plan_of(run, path, plan);
  run->options = own;
  return status;
}

int zp_cmd_compare(zp_run_state *run) {
  const int n = count_columns(run);
  if (n == 0 || !check_words(run) || !zp_check_prices(run)) return ZP_EXIT_USAGE;
  const zp_plan *plans[MOST_PLANS];
  zp_strings names = {0};
  for (int i = 0; i < n; i++) {
    int status = obtain(run, i, &plans[i]);
    if (status != ZP_EXIT_OK) return status;
    zp_push(run->arena, &names, name_of(run->arena, &run->options, i));
  }
  zp_side_by_side sides = zp_put_side_by_side(run->arena, plans, n);
  zp_json *json = as_json(&sides, &names);
  bool draws = run->options.html != NULL;
  zp_page page = draws ? zp_page_new(run->arena, zp_plain_screen(PRINTED_COLUMNS), 0) : zp_page_for(run, stdout, 0);
  put_text(&page, &sides, &names);
  const char *html = draws ? zp_report_compare_html(run->arena, json, page.out.data) : NULL;
  bool ok = !html || zp_write_report(run, run->options.html, html);
  if (ok && run->options.json)
    zp_say(stdout, "%s\n", zp_json_text(run->arena, json, true));
  else if (ok && !html)
    zp_page_put(&page, stdout);
  zp_json_free(json);
  return ok ? ZP_EXIT_OK : ZP_EXIT_ERROR;
}
