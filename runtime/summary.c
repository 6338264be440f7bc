/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a run: what the plan said alongside what was measured. Bytes of memory and of communication are promises:
 * with
 * --check-memory a difference is an error. Step time and RSS are estimates and are only shown. */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include "device.h"
#include "optimizer.h"
#include "state.h"
#include "tier.h"

typedef struct rank_report {
  int64_t arena_bytes, peak_bytes, rss_bytes, used_bytes, host_bytes, host_peak_bytes, file_bytes, file_peak_bytes,
      sent_bytes[ZPR_AXIS_COUNT], across_bytes[ZPR_AXIS_COUNT], moved_bytes[ZPR_MOVE_COUNT], exchanged_bytes,
      routed_bytes;
} rank_report;
_Static_assert(sizeof(rank_report) <= ZPR_GATHER_BYTES, "a report travels in one control message");

static const char *const axis_names[ZPR_AXIS_COUNT] = {
    [ZPR_TENSOR] = "tensor", [ZPR_DATA] = "data",       [ZPR_PIPELINE] = "pipeline", [ZPR_TIE] = "tie",
    [ZPR_EXPERT] = "expert", [ZPR_CONTEXT] = "context", [ZPR_CONTROL] = "control"};

/* What the plan says of a step on average. Every step sends the same, but 1-bit Adam begins as plain Adam, and its
 * data ranks exchange nothing in a later step that is skipped. */
static double planned_mean(const zpr *c, const zpr_totals *totals, int axis, int64_t planned, int64_t warmup) {
  if (axis != ZPR_DATA || !zpr_is_one_bit(c->program) || totals->steps == 0) return (double)planned;
  return ((double)planned * (double)totals->exchanges +
          (double)warmup * (double)(totals->steps - totals->frozen_steps + totals->summed_steps)) /
         (double)totals->steps;
}

static double planned_per_step(const zpr *c, const zpr_totals *totals, int axis) {
  return planned_mean(c, totals, axis, c->program->predicted_bytes[axis], c->program->predicted_warmup_data_bytes);
}

/* Sorted rows go where routing sends them: of these the plan knows what an even load would send, and the ranks count
 * what the gates' choices want. */
static double routed_per_step(const zpr *c, const rank_report *reports, const zpr_totals *totals) {
  int64_t sum = 0;
  for (int r = 0; r < c->ranks; r++) sum += reports[r].routed_bytes;
  return totals->steps > 0 ? (double)sum / (double)totals->steps : 0;
}

/* What was sent alongside, and is the same in every step. */
static double unrouted_per_step(const zpr *c, const rank_report *reports, const zpr_totals *totals, int axis) {
  int64_t sum = 0;
  for (int r = 0; r < c->ranks; r++)
    sum += reports[r].sent_bytes[axis] - (axis == ZPR_EXPERT ? reports[r].routed_bytes : 0);
  return totals->steps > 0 ? (double)sum / (double)totals->steps : 0;
}

static double expected_per_step(const zpr *c, const zpr_totals *totals, int axis) {
  return planned_per_step(c, totals, axis) + (axis == ZPR_EXPERT ? (double)c->program->expected_routed_bytes : 0);
}

/* What leaves nodes; below 0: the plan does not know. */
static double planned_across(const zpr *c, const zpr_totals *totals, int axis) {
  const zpr_program *p = c->program;
  bool unknown = p->predicted_across[axis] < 0 || (axis == ZPR_DATA && p->predicted_warmup_data_across < 0);
  return unknown ? -1 : planned_mean(c, totals, axis, p->predicted_across[axis], p->predicted_warmup_data_across);
}

/* All ranks together, of one step on average. */
static double bytes_per_step(const zpr *c, const rank_report *reports, const zpr_totals *totals, int axis) {
  int64_t sum = 0;
  for (int r = 0; r < c->ranks; r++) sum += reports[r].sent_bytes[axis];
  return totals->steps > 0 ? (double)sum / (double)totals->steps : 0;
}

static double across_per_step(const zpr *c, const rank_report *reports, const zpr_totals *totals, int axis) {
  int64_t sum = 0;
  for (int r = 0; r < c->ranks; r++) sum += reports[r].across_bytes[axis];
  return totals->steps > 0 ? (double)sum / (double)totals->steps : 0;
}

static const char *const move_names[ZPR_MOVE_COUNT] = {
    [ZPR_DOWN] = "to host", [ZPR_UP] = "from host", [ZPR_READ] = "read", [ZPR_WRITTEN] = "written"};

/* Bytes that offloading moved, of all ranks together, in one of the steps that were applied on average. */
static double moved_per_step(const zpr *c, const rank_report *reports, const zpr_totals *totals, int move) {
  int64_t sum = 0;
  for (int r = 0; r < c->ranks; r++) sum += reports[r].moved_bytes[move];
  return totals->applied_steps > 0 ? (double)sum / (double)totals->applied_steps : 0;
}

/* What the plan says of such a step: 1-bit Adam moves records, too, when it exchanges them. */
static double planned_moves(const zpr *c, const zpr_totals *totals, int move) {
  const zpr_program *p = c->program;
  if (totals->applied_steps == 0) return (double)p->predicted_moves[move];
  return (double)(p->predicted_moves[move] * totals->applied_steps +
                  p->predicted_exchange_moves[move] * totals->exchanges) /
         (double)totals->applied_steps;
}

static bool any_moves(const zpr *c) {
  int64_t sum = 0;
  for (int m = 0; m < ZPR_MOVE_COUNT; m++) sum += c->program->predicted_moves[m];
  return sum > 0;
}

static void print_time(zpr *c, const zpr_totals *totals) {
  if (totals->steps == 0) return;
  double plan = c->program->predicted_step_s * 1e3, took = totals->median_step_ms;
  if (plan > 0)
    zpr_log_note(c, "step time (ms): plan ~%.1f, median of %lld steps %.1f (%+.0f%%)", plan, (long long)totals->steps,
                 took, (took / plan - 1) * 100);
  else
    zpr_log_note(c, "step time (ms): median of %lld steps %.1f", (long long)totals->steps, took);
}

static void print_memory(zpr *c, const rank_report *reports) {
  zpr_log_note(c, "%-10s %16s %16s %16s", "rank", "arena, plan", "arena, peak", "process RSS");
  for (int r = 0; r < c->ranks; r++) {
    char peak[24] = "not measured";
    if (c->state->options.check_memory) snprintf(peak, sizeof peak, "%lld", (long long)reports[r].peak_bytes);
    zpr_log_note(c, "%-10d %16lld %16s %16lld", r, (long long)reports[r].arena_bytes, peak,
                 (long long)reports[r].rss_bytes);
  }
}

static void print_communication(zpr *c, const rank_report *reports, const zpr_totals *totals) {
  if (totals->steps == 0 || c->ranks == 1) return;
  zpr_log_note(c, "%-10s %16s %16s", "axis", "bytes/step, plan", "sent");
  for (int a = 0; a < ZPR_AXIS_COUNT; a++) {
    char plan[24] = "-";
    bool even = a == ZPR_EXPERT && c->program->expected_routed_bytes > 0; /* an estimate */
    if (a != ZPR_CONTROL) snprintf(plan, sizeof plan, "%s%.0f", even ? "~" : "", expected_per_step(c, totals, a));
    zpr_log_note(c, "%-10s %16s %16.0f", axis_names[a], plan, bytes_per_step(c, reports, totals, a));
  }
}

/* What of them leaves the nodes that the plan has. */
static void print_across(zpr *c, const rank_report *reports, const zpr_totals *totals) {
  if (totals->steps == 0 || c->program->n_nodes == 0) return;
  zpr_log_note(c, "%-10s %16s %16s", "axis", "between nodes", "sent");
  for (int a = 0; a < ZPR_CONTROL; a++) {
    char plan[24] = "-";
    double planned = planned_across(c, totals, a);
    if (planned >= 0) snprintf(plan, sizeof plan, "%.0f", planned);
    zpr_log_note(c, "%-10s %16s %16.0f", axis_names[a], plan, across_per_step(c, reports, totals, a));
  }
}

/* Bytes over data ranks that all ranks sent in steps of plain Adam, and in those of 1-bit Adam. */
typedef struct one_bit {
  int64_t plain_steps, plain_bytes, exchanged_bytes;
} one_bit;

static one_bit count_one_bit(const zpr *c, const rank_report *reports, const zpr_totals *totals) {
  one_bit sum = {.plain_steps = totals->steps - totals->frozen_steps};
  for (int r = 0; r < c->ranks; r++) {
    sum.exchanged_bytes += reports[r].exchanged_bytes;
    sum.plain_bytes += reports[r].sent_bytes[ZPR_DATA] - reports[r].exchanged_bytes;
  }
  return sum;
}

/* What 1-bit Adam has saved, alongside plain Adam over as many steps. */
static void print_one_bit(zpr *c, const rank_report *reports, const zpr_totals *totals) {
  const zpr_program *p = c->program;
  if (totals->steps == 0 || !zpr_is_one_bit(p)) return;
  const char *name = zpr_one_bit_of(p)->name;
  one_bit sum = count_one_bit(c, reports, totals);
  double all = (double)(sum.plain_bytes + sum.exchanged_bytes),
         plain = (double)p->predicted_warmup_data_bytes * (double)totals->steps;
  if (p->n_phases > 0)
    zpr_log_note(c,
                 "0/1 Adam: of %lld steps %lld exchanged signs and %lld summed gradients: %lld bytes over data ranks, "
                 "%.1f times less than plain Adam",
                 (long long)totals->steps, (long long)totals->exchanges, (long long)totals->summed_steps,
                 (long long)sum.exchanged_bytes, plain / all);
  else if (totals->frozen_steps == 0)
    zpr_log_note(c, "1-bit %s: all %lld steps were plain %s's, the variance did not freeze", name,
                 (long long)totals->steps, name);
  else
    zpr_log_note(c,
                 "1-bit %s: over data ranks %lld steps sent %lld bytes in all, %lld frozen ones %lld: %.1f times less "
                 "than plain %s",
                 name, (long long)sum.plain_steps, (long long)sum.plain_bytes, (long long)totals->frozen_steps,
                 (long long)sum.exchanged_bytes, plain / all, name);
}

static void print_moves(zpr *c, const rank_report *reports, const zpr_totals *totals) {
  if (totals->steps == 0 || !any_moves(c)) return;
  zpr_log_note(c, "%-10s %16s %16s", "offload", "bytes/step, plan", "moved");
  for (int m = 0; m < ZPR_MOVE_COUNT; m++)
    zpr_log_note(c, "%-10s %16.0f %16.0f", move_names[m], planned_moves(c, totals, m),
                 moved_per_step(c, reports, totals, m));
}

/* How far each source of a mixture has been gone through since the first step of all. */
static void print_sources(zpr *c) {
  zpr_passes passes[ZPR_MOST_PARTS];
  int n = c->state->data ? zpr_data_passes(c->state->data, c->samples, passes) : 0;
  if (n > 0) zpr_log_note(c, "%-10s %16s %16s  %s", "source", "samples", "epochs", "of");
  for (int i = 0; i < n; i++)
    zpr_log_note(c, "%-10s %16lld %16.3f  %s", passes[i].kind, (long long)passes[i].samples, passes[i].passes,
                 passes[i].path ? passes[i].path : "made-up samples");
}

static void log_sources(const zpr *c, FILE *f) {
  zpr_passes passes[ZPR_MOST_PARTS];
  int n = c->state->data ? zpr_data_passes(c->state->data, c->samples, passes) : 0;
  for (int i = 0; i < n; i++) fprintf(f, "%s%lld", i ? ", " : ", \"source_samples\": [", (long long)passes[i].samples);
  if (n > 0) fputc(']', f);
}

/* ---- the "end" event ---- */

static void print_list(FILE *f, const zpr *c, const char *name, const rank_report *reports, size_t offset) {
  fprintf(f, ", \"%s\": [", name);
  for (int r = 0; r < c->ranks; r++) {
    int64_t value;
    memcpy(&value, (const char *)&reports[r] + offset, sizeof value);
    fprintf(f, "%s%lld", r ? ", " : "", (long long)value);
  }
  fputc(']', f);
}

static void log_across(FILE *f, const zpr *c, const rank_report *reports, const zpr_totals *totals) {
  fprintf(f, ", \"across_bytes\": {");
  for (int a = 0; a < ZPR_CONTROL; a++)
    fprintf(f, "%s\"%s\": %.17g", a ? ", " : "", axis_names[a], across_per_step(c, reports, totals, a));
  fprintf(f, "}, \"predicted_across_bytes\": {");
  for (int a = 0; a < ZPR_CONTROL; a++) {
    double planned = planned_across(c, totals, a);
    fprintf(f, "%s\"%s\": ", a ? ", " : "", axis_names[a]);
    planned < 0 ? fputs("null", f) : fprintf(f, "%.17g", planned);
  }
  fputc('}', f);
}

static void log_end(zpr *c, const rank_report *reports, const zpr_totals *totals) {
  char *text = NULL;
  size_t size;
  FILE *f = open_memstream(&text, &size);
  if (!f) return;
  fprintf(
      f,
      "{\"event\": \"end\", \"step\": %lld, \"steps_run\": %lld, \"median_step_ms\": %.3f, \"predicted_step_ms\": %.3f",
      (long long)c->step, (long long)totals->steps, totals->median_step_ms, c->program->predicted_step_s * 1e3);
  print_list(f, c, "predicted_peak_bytes", reports, offsetof(rank_report, arena_bytes));
  if (c->state->options.check_memory)
    print_list(f, c, "measured_peak_bytes", reports, offsetof(rank_report, peak_bytes));
  print_list(f, c, "rss_bytes", reports, offsetof(rank_report, rss_bytes));
  print_list(f, c, "device_peak_bytes", reports, offsetof(rank_report, used_bytes));
  fprintf(f, ", \"communicated_bytes\": {");
  for (int a = 0; a < ZPR_AXIS_COUNT; a++)
    fprintf(f, "%s\"%s\": %.17g", a ? ", " : "", axis_names[a], bytes_per_step(c, reports, totals, a));
  fprintf(f, "}, \"predicted_bytes\": {");
  for (int a = 0; a < ZPR_CONTROL; a++)
    fprintf(f, "%s\"%s\": %.17g", a ? ", " : "", axis_names[a], expected_per_step(c, totals, a));
  fputc('}', f);
  if (c->program->expected_routed_bytes > 0)
    fprintf(f, ", \"routed_bytes\": {\"expected\": %lld, \"chosen\": %.17g}",
            (long long)c->program->expected_routed_bytes, routed_per_step(c, reports, totals));
  if (c->program->n_nodes > 0) log_across(f, c, reports, totals);
  if (zpr_is_one_bit(c->program)) {
    one_bit sum = count_one_bit(c, reports, totals);
    fprintf(f,
            ", \"one_bit\": {\"plain_steps\": %lld, \"plain_bytes\": %lld, \"frozen_steps\": %lld, \"frozen_bytes\": "
            "%lld}",
            (long long)sum.plain_steps, (long long)sum.plain_bytes, (long long)totals->frozen_steps,
            (long long)sum.exchanged_bytes);
  }
  if (any_moves(c)) {
    fprintf(f, ", \"moved_bytes\": {");
    for (int m = 0; m < ZPR_MOVE_COUNT; m++)
      fprintf(f, "%s\"%s\": %.17g", m ? ", " : "", move_names[m], moved_per_step(c, reports, totals, m));
    fputc('}', f);
  }
  log_sources(c, f);
  fputc('}', f);
  if (fclose(f) == 0) zpr_log_event(c, text);
  free(text);
}

/* ---- the check ---- */

static bool check_peak(const zpr *c, int rank, const char *what, int64_t used, int64_t planned) {
  if (used == planned) return true;
  if (c->rank == 0)
    zpr_say_line(stderr, "error[Z0840]: the %s of rank %d was used up to byte %lld, the plan says %lld", what, rank,
                 (long long)used, (long long)planned);
  return false;
}

static bool check_plan(zpr *c, const rank_report *reports, const zpr_totals *totals) {
  bool same = true;
  if (totals->steps == 0) return true; /* nothing has run: only the start and, perhaps, a checkpoint */
  for (int r = 0; r < c->ranks; r++) {
    const rank_report *report = &reports[r];
    same &= check_peak(c, r, "arena", report->peak_bytes, report->arena_bytes);
    same &= check_peak(c, r, "host arena", report->host_peak_bytes, report->host_bytes);
    same &= check_peak(c, r, "file", report->file_peak_bytes, report->file_bytes);
  }
  for (int a = 0; a < ZPR_CONTROL; a++) {
    double sent = unrouted_per_step(c, reports, totals, a), planned = planned_per_step(c, totals, a);
    if (sent == planned) continue;
    same = false;
    if (c->rank == 0)
      zpr_say_line(stderr, "error[Z0840]: the ranks sent %.1f bytes a step over the %s axis%s, the plan says %.1f",
                   sent, axis_names[a],
                   sent != bytes_per_step(c, reports, totals, a) ? " alongside rows that gates chose" : "", planned);
  }
  for (int a = 0; a < ZPR_CONTROL && zpr_sends_as_planned(c); a++) {
    double sent = across_per_step(c, reports, totals, a), planned = planned_across(c, totals, a);
    if (planned < 0 || sent == planned) continue;
    same = false;
    if (c->rank == 0)
      zpr_say_line(stderr, "error[Z0840]: %.1f bytes a step over the %s axis left their node, the plan says %.1f", sent,
                   axis_names[a], planned);
  }
  for (int m = 0; m < ZPR_MOVE_COUNT; m++) {
    double moved = moved_per_step(c, reports, totals, m), planned = planned_moves(c, totals, m);
    if (moved == planned || totals->applied_steps == 0) continue;
    same = false;
    if (c->rank == 0)
      zpr_say_line(stderr, "error[Z0840]: offloading moved %.1f bytes a step (%s), the plan says %.1f", moved,
                   move_names[m], planned);
  }
  return same;
}

int64_t zpr_peak_rss_bytes(void) {
  struct rusage usage;
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  return (int64_t)usage.ru_maxrss * 1024;
}

bool zpr_summary(zpr *c, const zpr_totals *totals) {
  rank_report mine = {.arena_bytes = c->stage->arena_bytes,
                      .peak_bytes = zpr_arena_measured_peak(c),
                      .rss_bytes = zpr_peak_rss_bytes(),
                      .used_bytes = zpr_device_used_bytes(c),
                      .host_bytes = c->stage->host_bytes,
                      .host_peak_bytes = zpr_host_measured_peak(c),
                      .file_bytes = c->stage->file_bytes,
                      .file_peak_bytes = zpr_file_measured_peak(c)};
  mine.exchanged_bytes = totals->exchanged_bytes;
  mine.routed_bytes = totals->routed_bytes;
  memcpy(mine.sent_bytes, totals->sent_bytes, sizeof mine.sent_bytes);
  memcpy(mine.across_bytes, totals->across_bytes, sizeof mine.across_bytes);
  memcpy(mine.moved_bytes, totals->moved_bytes, sizeof mine.moved_bytes);
  rank_report *reports = zpr_alloc(c, (size_t)c->ranks, sizeof *reports);
  zpr_world_gather(c, &mine, sizeof mine, reports);
  print_time(c, totals);
  print_memory(c, reports);
  print_communication(c, reports, totals);
  print_across(c, reports, totals);
  print_one_bit(c, reports, totals);
  print_moves(c, reports, totals);
  print_sources(c);
  log_end(c, reports, totals);
  bool same = !c->state->options.check_memory || check_plan(c, reports, totals);
  free(reports);
  return same;
}
