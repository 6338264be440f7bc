/* SPDX-License-Identifier: Apache-2.0 */
/* What a run measured, for the report page: its log and its profile. */
#include <math.h>
#include "page_internal.h"

enum { MOST_POINTS = 4000 }; /* of a curve: more than a screen has columns */

static void set_steps(zp_json *run, const zp_log_steps *steps) {
  zp_json *list = zp_json_set(run, "steps", zp_json_array());
  int stride = (steps->len + MOST_POINTS - 1) / MOST_POINTS;
  if (stride < 1) stride = 1;
  zp_json_set_int(run, "every", stride);
  for (int i = 0; i < steps->len; i += stride) {
    const zp_log_step *s = &steps->data[i];
    zp_json *row = zp_json_append(list, zp_json_array());
    zp_json_append_int(row, s->step);
    zp_json_append_real(row, s->loss);
    zp_json_append_real(row, s->step_ms);
    zp_json_append_real(row, s->tokens_per_s);
  }
}

/* Absent where a run has not measured it. */
static void set_measured(zp_json *run, const char *key, int64_t bytes) {
  if (bytes > 0) zp_json_set_int(run, key, bytes);
}

void zp_page_set_run(zp_arena *arena, zp_json *page, const zp_plan *plan, const char *log) {
  zp_log_steps steps = zp_log_read(arena, log);
  zp_log_memory memory = zp_log_read_memory(arena, log);
  zp_json *run = zp_json_set(page, "run", zp_json_object());
  zp_log_facts facts = zp_log_read_facts(arena, log);
  if (*facts.plan) zp_json_set_string(run, "plan", facts.plan);
  zp_json_set_int(run, "unread_lines", facts.unread);
  zp_json_set_int(run, "measured_steps", steps.len);
  if (steps.len > 0) zp_json_set_real(run, "median_step_s", zp_log_median_step_ms(arena, &steps) / 1000);
  zp_json_set_int(run, "planned_arena_bytes", zp_largest_arena(plan->program));
  set_measured(run, "arena_bytes", memory.arena);
  set_measured(run, "device_bytes", memory.device);
  set_steps(run, &steps);
}

void zp_page_set_profile(zp_json *page, const zp_profile *profile) {
  zp_json *o = zp_json_set(page, "profile", zp_json_object());
  zp_json_set_int(o, "step", profile->step);
  zp_json_set_int(o, "steps", profile->steps);
  zp_json_set_real(o, "measured_step_ms", profile->measured_step_ms);
  if (!isnan(profile->other_step_ms)) zp_json_set_real(o, "other_step_ms", profile->other_step_ms);
  zp_json *rows = zp_json_set(o, "rows", zp_json_array());
  for (int i = 0; i < profile->rows.len; i++) {
    const zp_profile_row *row = &profile->rows.data[i];
    zp_json *j = zp_json_append(rows, zp_json_object());
    zp_json_set_int(j, "stage", row->stage);
    zp_json_set_string(j, "procedure", row->procedure);
    zp_json_set_string(j, "name", row->name);
    zp_json_set_string(j, "place", row->place);
    zp_json_set_string(j, "kind", row->kind);
    zp_json_set_real(j, "calls", row->calls);
    if (!isnan(row->predicted_ms)) zp_json_set_real(j, "predicted_ms", row->predicted_ms);
    zp_json_set_real(j, "measured_ms", row->measured_ms);
  }
}
