/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the profile that a run's log holds (`zplan run --profile`), and shows measured alongside predicted time. */
#include <math.h>
#include <stdlib.h>
#include <zplan/table.h>
#include "report_internal.h"

/* ---- reading ---- */

typedef struct reader {
  zp_arena *arena;
  int stages;
  const char *plan_hash;
  zp_profile *profile;
  const char *wrong; /* which part cannot be read; NULL: all is well so far */
} reader;

/* A number that must be there, and be sensible. */
static double number(reader *r, const zp_json *json, const char *key, double least) {
  double x = zp_json_get_real(json, key, NAN);
  if (!(isfinite(x) && x >= least)) r->wrong = key;
  return x;
}

/* null where there is none. */
static double number_or_none(reader *r, const zp_json *json, const char *key, double least) {
  const zp_json *value = zp_json_get(json, key);
  return value && zp_json_is_null(value) ? NAN : number(r, json, key, least);
}

static const char *text(reader *r, const zp_json *json, const char *key) {
  const char *s = zp_json_get_string(json, key, NULL);
  if (!s) r->wrong = key;
  return s ? zp_strdup(r->arena, s) : "";
}

static void read_row(reader *r, int stage, const zp_json *json) {
  zp_profile_row row = {.stage = stage,
                        .procedure = text(r, json, "procedure"),
                        .name = text(r, json, "name"),
                        .place = text(r, json, "place"),
                        .kind = text(r, json, "kind"),
                        .calls = number(r, json, "calls", 0),
                        .predicted_ms = number_or_none(r, json, "predicted_ms", 0),
                        .measured_ms = number(r, json, "measured_ms", 0)};
  zp_push(r->arena, &r->profile->rows, row);
}

static void read_span(reader *r, int stage, const zp_json *json) {
  const char *name = zp_json_count(json) == 3 ? zp_json_string(zp_json_at(json, 0), NULL) : NULL;
  zp_profile_span span = {.stage = stage, .name = name ? zp_strdup(r->arena, name) : ""};
  span.begin_ms = name ? zp_json_real(zp_json_at(json, 1), NAN) : NAN;
  span.end_ms = name ? zp_json_real(zp_json_at(json, 2), NAN) : NAN;
  if (!(isfinite(span.begin_ms) && isfinite(span.end_ms) && span.begin_ms <= span.end_ms)) r->wrong = "timeline";
  zp_push(r->arena, &r->profile->spans, span);
}

static void read_stage(reader *r, int stage, const zp_json *json) {
  const zp_json *steps = zp_json_get(json, "steps"), *timeline = zp_json_get(json, "timeline");
  if (zp_json_get_int(json, "stage", -1) != stage) r->wrong = "stage";
  if (!steps || !zp_json_is_array(steps)) r->wrong = "steps";
  if (!timeline || !zp_json_is_array(timeline)) r->wrong = "timeline";
  if (r->wrong) return;
  for (int i = 0; i < zp_json_count(steps) && !r->wrong; i++) read_row(r, stage, zp_json_at(steps, i));
  for (int i = 0; i < zp_json_count(timeline) && !r->wrong; i++) read_span(r, stage, zp_json_at(timeline, i));
  r->profile->timeline_cut |= zp_json_get_bool(json, "timeline_cut", false);
}

static void read_profile(reader *r, const zp_json *json) {
  const zp_json *stages = zp_json_get(json, "stages");
  zp_profile *p = r->profile;
  p->stages = r->stages;
  p->step = (int64_t)number(r, json, "step", 1);
  p->steps = (int64_t)number(r, json, "steps", 1);
  p->predicted_step_ms = number(r, json, "predicted_step_ms", 0);
  p->measured_step_ms = number(r, json, "measured_step_ms", 0);
  p->other_step_ms = number_or_none(r, json, "other_step_ms", 0);
  if (!stages || zp_json_count(stages) != r->stages) r->wrong = "stages";
  for (int s = 0; !r->wrong && s < zp_json_count(stages); s++) read_stage(r, s, zp_json_at(stages, s));
}

static bool begins_as_profile(const char *line) {
  static const char *const begin = "{\"event\": \"profile\"";
  return strncmp(line, begin, strlen(begin)) == 0;
}

/* One line of the log, if it is a profile. The newest one counts: of those of this plan if there are any. */
static void read_line(reader *r, const char *line, size_t length, zp_profile_answer *answer) {
  const char *error = NULL;
  if (!begins_as_profile(line)) return;
  zp_json *json = zp_json_parse(r->arena, line, length, &error);
  const char *plan = json ? zp_json_get_string(json, "plan", "") : "";
  if (!json) {
    if (!answer->profile)
      answer->why_not = "its profile is cut off: the run, or the copy of its log, ended in that line";
  } else if (strcmp(plan, r->plan_hash) != 0) {
    if (!answer->profile)
      answer->why_not = zp_format(r->arena, "its profile is of plan %s, and this is plan %s", plan, r->plan_hash);
  } else {
    r->profile = ZP_NEW(r->arena, zp_profile);
    r->wrong = NULL;
    read_profile(r, json);
    answer->profile = r->wrong ? NULL : r->profile;
    answer->why_not =
        r->wrong ? zp_format(r->arena, "its profile is damaged: `%s` is not what a trainer writes", r->wrong) : NULL;
  }
  answer->there_is = true;
  if (json) zp_json_free(json);
}

zp_profile_answer zp_profile_read(zp_arena *arena, const char *plan_hash, int stages, const char *log) {
  reader r = {.arena = arena, .plan_hash = plan_hash, .stages = stages};
  zp_profile_answer answer = {.why_not = "it holds no profile: `zplan run --profile` writes one"};
  for (const char *line = log; *line;) {
    size_t length = strcspn(line, "\n");
    read_line(&r, line, length, &answer);
    line += length + (line[length] == '\n');
  }
  return answer;
}

/* ---- the table ---- */

static double difference(const zp_profile_row *row) {
  return fabs(row->measured_ms - (isnan(row->predicted_ms) ? 0 : row->predicted_ms));
}

static int by_difference(const void *a, const void *b) {
  const zp_profile_row *x = a, *y = b;
  double dx = difference(x), dy = difference(y);
  if (dx != dy) return dx < dy ? 1 : -1;
  return x->stage - y->stage;
}

static const zp_column columns[] = {{"stage", 5, 0, 0},   {"step, largest difference first", 10, 38, 0},
                                    {"kind", 7, 6, 4},    {"calls", 5, 0, 3},
                                    {"plan ms", 7, 0, 0}, {"measured ms", 11, 0, 0},
                                    {"ratio", 5, 0, 0}};
enum { COLUMNS = sizeof columns / sizeof *columns };

static void add(zp_arena *arena, zp_table *table, int stage, const char *step, const char *kind, const char *calls,
                double predicted_ms, double measured_ms) {
  const char *cells[COLUMNS] = {zp_format(arena, "%d", stage), step, kind, calls, "-", NULL, "-"};
  if (!isnan(predicted_ms)) cells[4] = zp_format(arena, ZP_ESTIMATED "%.3f", predicted_ms);
  cells[5] = zp_format(arena, "%.3f", measured_ms);
  if (predicted_ms > 0) cells[6] = zp_format(arena, "%.2f", measured_ms / predicted_ms);
  zp_table_add(arena, table, cells);
}

static void add_row(zp_arena *arena, zp_table *table, const zp_profile_row *row) {
  const char *step = zp_format(arena, "%s%s%s%s%s", row->procedure, *row->procedure ? ": " : "", row->name,
                               *row->place ? "  " : "", row->place);
  const char *calls = zp_format(arena, "%.6g", row->calls);
  add(arena, table, row->stage, step, row->kind, calls, row->predicted_ms, row->measured_ms);
}

static void add_sums(zp_arena *arena, zp_table *table, const zp_profile *p) {
  for (int s = 0; s < p->stages; s++) {
    double predicted = 0, measured = 0;
    for (int i = 0; i < p->rows.len; i++) {
      const zp_profile_row *row = &p->rows.data[i];
      if (row->stage != s) continue;
      predicted += isnan(row->predicted_ms) ? 0 : row->predicted_ms;
      measured += row->measured_ms;
    }
    add(arena, table, s, "all of it", "", "", predicted, measured);
  }
}

static const char *heading(zp_arena *arena, const zp_profile *p) {
  zp_buf out = zp_buf_new(arena);
  zp_buf_printf(&out, "profile: mean of %lld steps up to step %lld, whose median is %s", (long long)p->steps,
                (long long)p->step, zp_show_seconds(arena, p->measured_step_ms / 1e3));
  if (isnan(p->other_step_ms))
    zp_buf_puts(&out, "; no others to compare with");
  else
    zp_buf_printf(&out, "; the others took %s (measuring: %+.1f%%)", zp_show_seconds(arena, p->other_step_ms / 1e3),
                  (p->measured_step_ms / p->other_step_ms - 1) * 100);
  return out.data;
}

void zp_report_profile(zp_page *page, const zp_profile *profile, int most) {
  zp_arena *arena = page->out.arena;
  zp_table table = {.columns = columns, .n = COLUMNS};
  int n = profile->rows.len;
  zp_profile_row *rows = ZP_NEW_ARRAY(arena, zp_profile_row, n);
  memcpy(rows, profile->rows.data, (size_t)n * sizeof *rows);
  qsort(rows, (size_t)n, sizeof *rows, by_difference);
  for (int i = 0; i < n && (most == 0 || i < most); i++) add_row(arena, &table, &rows[i]);
  if (most > 0 && most < n)
    zp_table_add_text(arena, &table, zp_format(arena, "... and %d more with --profile", n - most));
  add_sums(arena, &table, profile);
  zp_page_text(page, ZP_PLAIN, 2, heading(arena, profile));
  zp_page_table(page, &table);
}
