/* SPDX-License-Identifier: Apache-2.0 */
/* What a run's log says alongside a plan: steps, memory, which plan it was of. */
#include <assert.h>
#include <math.h>
#include <zplan/buf.h>
#include <zplan/plan_file.h>
#include <zplan/run_log.h>
#include "report_internal.h"

zp_log_steps zp_log_read(zp_arena *arena, const char *text) {
  zp_log_steps steps = {0};
  const char *line;
  for (size_t length; zp_next_line(&text, &line, &length);) {
    zp_record record = zp_record_read(arena, line, length);
    zp_log_step step = {record.step, record.loss, record.step_ms, record.tokens_per_s};
    if (record.kind == ZP_RECORD_STEP) zp_push(arena, &steps, step);
    zp_record_free(&record);
  }
  return steps;
}

int64_t zp_largest_arena(const zp_program *program) {
  int64_t most = 0;
  for (int s = 0; s < program->choice.pipeline; s++)
    if (program->stages[s].arena_bytes > most) most = program->stages[s].arena_bytes;
  return most;
}

zp_log_memory zp_log_read_memory(zp_arena *arena, const char *text) {
  zp_log_memory memory = {0};
  const char *line;
  for (size_t length; zp_next_line(&text, &line, &length);) {
    zp_record record = zp_record_read(arena, line, length);
    if (record.kind == ZP_RECORD_END)
      memory = (zp_log_memory){.arena = zp_largest_of(zp_json_get(record.json, "measured_peak_bytes")),
                               .device = zp_largest_of(zp_json_get(record.json, "device_peak_bytes"))};
    zp_record_free(&record);
  }
  return memory;
}

zp_log_facts zp_log_read_facts(zp_arena *arena, const char *text) {
  zp_log_facts facts = {.plan = ""};
  const char *line;
  for (size_t length; zp_next_line(&text, &line, &length);) {
    zp_record record = zp_record_read(arena, line, length);
    if (record.kind == ZP_RECORD_START) facts.plan = zp_strdup(arena, zp_json_get_string(record.json, "plan", ""));
    facts.unread += record.kind == ZP_RECORD_UNREAD;
    zp_record_free(&record);
  }
  return facts;
}

double zp_log_median_step_ms(zp_arena *arena, const zp_log_steps *steps) {
  if (steps->len == 0) return NAN;
  double *ms = ZP_NEW_ARRAY(arena, double, steps->len);
  for (int i = 0; i < steps->len; i++) ms[i] = steps->data[i].step_ms;
  return zp_median(ms, steps->len);
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
