/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a run's JSON-lines log. A log that was cut off in the middle of a line is still a log. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <zplan/buf.h>
#include <zplan/plan_file.h>
#include "report_internal.h"

/* The log may be a stranger's: a time that no step takes is no measurement. */
static bool is_step(const zp_json *json) {
  enum { MOST_STEP_MS = 1000000000 }; /* eleven days */
  double ms = zp_json_get_real(json, "step_ms", 0);
  return zp_json_is_int(zp_json_get(json, "step")) && ms > 0 && ms <= MOST_STEP_MS;
}

zp_log_steps zp_log_read(zp_arena *arena, const char *text) {
  zp_log_steps steps = {0};
  for (const char *line = text; *line;) {
    size_t length = strcspn(line, "\n");
    const char *error = NULL;
    zp_json *json = zp_json_parse(arena, line, length, &error);
    if (json && is_step(json)) {
      zp_log_step step = {.step = zp_json_get_int(json, "step", 0),
                          .loss = zp_json_get_real(json, "loss", NAN),
                          .step_ms = zp_json_get_real(json, "step_ms", NAN),
                          .tokens_per_s = zp_json_get_real(json, "tokens_per_s", NAN)};
      zp_push(arena, &steps, step);
    }
    if (json) zp_json_free(json);
    line += length + (line[length] == '\n');
  }
  return steps;
}

int64_t zp_largest_arena(const zp_program *program) {
  int64_t most = 0;
  for (int s = 0; s < program->choice.pipeline; s++)
    if (program->stages[s].arena_bytes > most) most = program->stages[s].arena_bytes;
  return most;
}

static int64_t largest(const zp_json *list) {
  int64_t most = 0;
  for (int i = 0; i < zp_json_count(list); i++) {
    int64_t bytes = zp_json_int(zp_json_at(list, i), 0);
    if (bytes > most) most = bytes;
  }
  return most;
}

zp_log_memory zp_log_read_memory(zp_arena *arena, const char *text) {
  zp_log_memory memory = {0};
  for (const char *line = text; *line;) {
    size_t length = strcspn(line, "\n");
    const char *error = NULL;
    zp_json *json = zp_json_parse(arena, line, length, &error);
    if (json && strcmp(zp_json_get_string(json, "event", ""), "end") == 0)
      memory = (zp_log_memory){.arena = largest(zp_json_get(json, "measured_peak_bytes")),
                               .device = largest(zp_json_get(json, "device_peak_bytes"))};
    if (json) zp_json_free(json);
    line += length + (line[length] == '\n');
  }
  return memory;
}

zp_log_facts zp_log_read_facts(zp_arena *arena, const char *text) {
  zp_log_facts facts = {.plan = ""};
  for (const char *line = text; *line;) {
    size_t length = strcspn(line, "\n");
    const char *error = NULL;
    zp_json *json = zp_json_parse(arena, line, length, &error);
    if (json && strcmp(zp_json_get_string(json, "event", ""), "start") == 0)
      facts.plan = zp_strdup(arena, zp_json_get_string(json, "plan", ""));
    facts.unread += !json && strspn(line, " \t\r") < length;
    if (json) zp_json_free(json);
    line += length + (line[length] == '\n');
  }
  return facts;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

double zp_log_median_step_ms(zp_arena *arena, const zp_log_steps *steps) {
  if (steps->len == 0) return NAN;
  double *ms = ZP_NEW_ARRAY(arena, double, steps->len);
  for (int i = 0; i < steps->len; i++) ms[i] = steps->data[i].step_ms;
  qsort(ms, (size_t)steps->len, sizeof *ms, ascending);
  int middle = steps->len / 2;
  return steps->len % 2 ? ms[middle] : (ms[middle - 1] + ms[middle]) / 2;
}

bool zp_report_measured(zp_page *page, const zp_plan *plan, const char *log) {
  assert(plan->feasible && log);
  zp_arena *arena = page->out.arena;
  zp_log_steps steps = zp_log_read(arena, log);
  if (steps.len == 0) return false;
  double predicted_s = plan->best.estimate.step_s, measured_s = zp_log_median_step_ms(arena, &steps) / 1000;
  zp_log_memory memory = zp_log_read_memory(arena, log);
  zp_page_field(page, "measured", "step %s, median of %d, " ZP_ESTIMATED "%s: measured / predicted %.2f",
                zp_show_seconds(arena, measured_s), steps.len, zp_show_seconds(arena, predicted_s),
                measured_s / predicted_s);
  if (memory.arena)
    zp_page_field(page, "", "arena of the fullest rank %lld B, plan %lld B", (long long)memory.arena,
                  (long long)zp_largest_arena(plan->program));
  else
    zp_page_field(page, "", "arena not measured (run --check-memory measures it), plan %lld B",
                  (long long)zp_largest_arena(plan->program));
  if (memory.device)
    zp_page_field(page, "", "%s of the fullest rank %s, plan " ZP_ESTIMATED "%s",
                  plan->spec->cluster.node.device.is_cpu ? "resident memory" : "memory taken on the device",
                  zp_show_bytes(arena, memory.device), zp_show_bytes(arena, plan->best.estimate.peak_bytes));
  zp_log_facts facts = zp_log_read_facts(arena, log);
  if (facts.unread)
    zp_page_field(page, "", "%d line%s of the log cannot be read and left out", facts.unread,
                  facts.unread == 1 ? "" : "s");
  const char *hash = zp_plan_hash(arena, plan->program);
  if (*facts.plan && strcmp(facts.plan, hash) != 0)
    zp_page_field(page, "", "the run was of plan %s, this is plan %s", facts.plan, hash);
  return true;
}
