/* SPDX-License-Identifier: Apache-2.0 */
/* What `zplan doctor` found: for people, as JSON. backend/ and plan_only/ look for it. */
#include "driver.h"

void zp_doctor_row(zp_doctor *d, const char *what, const char *found, const char *needed_for) {
  zp_push(d->arena, &d->found, ((zp_finding){what, found, needed_for}));
}

void zp_doctor_purpose(zp_doctor *d, const char *name, const char *missing, const char *remedy) {
  zp_push(d->arena, &d->purposes, ((zp_purpose){name, missing, remedy}));
}

static void add_rows(zp_arena *arena, zp_table *table, const zp_findings *rows, const char *absent) {
  for (int i = 0; i < rows->len; i++) {
    const zp_finding *f = &rows->data[i];
    bool goes_on = i > 0 && strcmp(f->what, rows->data[i - 1].what) == 0;
    const char *cells[] = {goes_on ? NULL : f->what,
                           f->found ? f->found : zp_format(arena, "%s: %s", absent, f->needed_for)};
    zp_table_add(arena, table, cells);
  }
}

static void show_text(zp_page *page, const zp_doctor *d) {
  static const zp_column columns[] = {{"what", 14, 12, 0}, {"found, or what for", 20, 20, 0}};
  zp_arena *arena = page->out.arena;
  zp_table table = {.columns = columns, .n = 2};
  add_rows(arena, &table, &d->built_with, "without");
  add_rows(arena, &table, &d->found, "not found");
  zp_page_text(page, ZP_STRONG, 2, d->version);
  zp_page_blank(page);
  zp_page_table(page, &table);
  zp_page_blank(page);
  for (int i = 0; i < d->warnings.len; i++)
    zp_page_text(page, ZP_PLAIN, 2, zp_format(arena, "warning: %s", d->warnings.data[i]));
  zp_page_text(page, ZP_STRONG, 2, "what this machine can do");
  for (int i = 0; i < d->purposes.len; i++) {
    const zp_purpose *p = &d->purposes.data[i];
    zp_page_field(page, p->name, "%s", p->missing ? zp_format(arena, "%s: %s", p->missing, p->remedy) : "ready");
  }
}

static void set_rows(zp_json *o, const char *key, const zp_findings *rows) {
  zp_json *list = zp_json_set(o, key, zp_json_array());
  for (int i = 0; i < rows->len; i++) {
    zp_json *row = zp_json_append(list, zp_json_object());
    zp_json_set_string(row, "name", rows->data[i].what);
    zp_json_set_string(row, "found", rows->data[i].found);
    zp_json_set_string(row, "needed_for", rows->data[i].needed_for);
  }
}

static void show_json(zp_json *o, const zp_doctor *d) {
  zp_json_set_string(o, "version", d->version);
  set_rows(o, "built_with", &d->built_with);
  set_rows(o, "found", &d->found);
  zp_json *warnings = zp_json_set(o, "warnings", zp_json_array());
  for (int i = 0; i < d->warnings.len; i++) zp_json_append_string(warnings, d->warnings.data[i]);
  zp_json *purposes = zp_json_set(o, "purposes", zp_json_array());
  for (int i = 0; i < d->purposes.len; i++) {
    const zp_purpose *p = &d->purposes.data[i];
    zp_json *row = zp_json_append(purposes, zp_json_object());
    zp_json_set_string(row, "name", p->name);
    zp_json_set_bool(row, "ready", p->missing == NULL);
    zp_json_set_string(row, "missing", p->missing);
    zp_json_set_string(row, "remedy", p->remedy);
  }
}

void zp_show_doctor(zp_run_state *run, const zp_doctor *d) {
  enum { LABEL = 16 };
  if (run->options.json) {
    show_json(zp_result_object(run), d);
    return;
  }
  zp_page page = zp_page_for(run, stdout, LABEL);
  show_text(&page, d);
  zp_page_put(&page, stdout);
}
