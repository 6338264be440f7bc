/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the profile that a run's log holds (`zplan run --profile`), and shows measured alongside predicted time. */
#include <math.h>
#include <stdlib.h>
#include "report_internal.h"

enum { NAME_COLUMNS = 58 };

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

static void put_row(zp_buf *out, const zp_profile_row *row) {
  char name[160], predicted[24] = "-", ratio[24] = "-";
  snprintf(name, sizeof name, "%s%s%s%s%s", row->procedure, *row->procedure ? ": " : "", row->name,
           *row->place ? "  " : "", row->place);
  if (!isnan(row->predicted_ms)) snprintf(predicted, sizeof predicted, "%.3f", row->predicted_ms);
  if (row->predicted_ms > 0) snprintf(ratio, sizeof ratio, "%.2f", row->measured_ms / row->predicted_ms);
  zp_buf_line(out, "%5d  %-*s %-9s %8.6g %12s %12.3f %8s", row->stage, NAME_COLUMNS, name, row->kind, row->calls,
              predicted, row->measured_ms, ratio);
}

static void put_sums(zp_buf *out, const zp_profile *p) {
  for (int s = 0; s < p->stages; s++) {
    double predicted = 0, measured = 0;
    for (int i = 0; i < p->rows.len; i++) {
      const zp_profile_row *row = &p->rows.data[i];
      if (row->stage != s) continue;
      predicted += isnan(row->predicted_ms) ? 0 : row->predicted_ms;
      measured += row->measured_ms;
    }
    zp_buf_line(out, "%5d  %-*s %-9s %8s %12.3f %12.3f %8.2f", s, NAME_COLUMNS, "all of it", "", "", predicted,
                measured, measured / predicted);
  }
}

const char *zp_report_profile(zp_arena *arena, const zp_profile *profile, int most) {
  zp_buf out = zp_buf_new(arena);
  int n = profile->rows.len;
  zp_profile_row *rows = ZP_NEW_ARRAY(arena, zp_profile_row, n);
  memcpy(rows, profile->rows.data, (size_t)n * sizeof *rows);
  qsort(rows, (size_t)n, sizeof *rows, by_difference);
  zp_buf_printf(&out, "profile: mean of %lld steps up to step %lld, whose median is %s", (long long)profile->steps,
                (long long)profile->step, zp_show_seconds(arena, profile->measured_step_ms / 1e3));
  if (isnan(profile->other_step_ms))
    zp_buf_puts(&out, "; no others to compare with\n");
  else
    zp_buf_printf(&out, "; the others took %s (measuring: %+.1f%%)\n",
                  zp_show_seconds(arena, profile->other_step_ms / 1e3),
                  (profile->measured_step_ms / profile->other_step_ms - 1) * 100);
  zp_buf_line(&out, "%5s  %-*s %-9s %8s %12s %12s %8s", "stage", NAME_COLUMNS,
              "step, where plan and run differ most first", "kind", "calls", "predicted ms", "measured ms", "ratio");
  for (int i = 0; i < n && (most == 0 || i < most); i++) put_row(&out, &rows[i]);
  if (most > 0 && most < n) zp_buf_line(&out, "       ... and %d more with --profile", n - most);
  put_sums(&out, profile);
  return out.data;
}
