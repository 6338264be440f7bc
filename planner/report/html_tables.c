/* The tables of the HTML report. */
#include <math.h>
#include <zplan/constants.h>
#include <zplan/cost.h>
#include "report_internal.h"

static void cell(zp_buf *out, const char *text) { zp_buf_printf(out, "<td>%s</td>", zp_quote_html(out->arena, text)); }

static void head(zp_buf *out, const char *const *name, int n) {
  zp_buf_puts(out, "<table><thead><tr>");
  for (int i = 0; i < n; i++) zp_buf_printf(out, "<th>%s</th>", name[i]);
  zp_buf_puts(out, "</tr></thead><tbody>\n");
}

static void foot(zp_buf *out) { zp_buf_puts(out, "</tbody></table>\n"); }

void zp_html_memory_table(zp_buf *out, const zp_plan *plan) {
  enum { BEFORE = 3 };
  const char *name[BEFORE + ZP_MEMORY_CLASSES + 1] = {"stage", "runs", "recompute"};
  zp_arena *arena = out->arena;
  int classes = zp_memory_classes(plan);
  for (int c = 0; c < classes; c++)
    name[BEFORE + c] = zp_format(arena, "%s%s", zp_memory_class_name(c), c < ZP_ARENA_CLASSES ? "" : " (est)");
  name[BEFORE + classes] = "total";
  zp_stage_groups groups = zp_group_stages(arena, plan->program, true);
  head(out, name, BEFORE + classes + 1);
  for (int g = 0; g < groups.len; g++) {
    zp_buf_puts(out, "<tr>");
    cell(out, zp_words_group(arena, groups.data[g]));
    cell(out, zp_words_group_runs(arena, plan, groups.data[g]));
    cell(out, zp_stage_mode_name(zp_choice_mode(&plan->best.choice, groups.data[g].first)));
    for (int c = 0; c < classes; c++) cell(out, zp_words_group_bytes(arena, plan, groups.data[g], c));
    cell(out, zp_words_group_bytes(arena, plan, groups.data[g], ZP_MEMORY_CLASSES));
    zp_buf_puts(out, "</tr>\n");
  }
  foot(out);
  zp_buf_printf(out, "<p>Outside of the arena, estimates: %s.</p>\n",
                zp_quote_html(arena, zp_words_outside(arena, plan)));
}

void zp_html_delayed(zp_buf *out, const zp_plan *plan) {
  zp_arena *arena = out->arena;
  const long long after = plan->spec->train.delay_after;
  zp_delay delay = zp_cost_delay(arena, plan->program, &plan->machine);
  const char *const rows[][2] = {
      {"staleness", zp_format(arena, "%d: gradients from step %lld on are those of weights one update old",
                              ZP_STALENESS, after + 2)},
      {"runs on the host", zp_format(arena, "the update of step %lld and of every later one", after + 1)},
      {"overlapped with", "the next step's gather of weights, all micro-batches with what they wait for, the sums of "
                          "gradients and the meeting for their norm"},
      {"takes (est)", zp_show_seconds(arena, delay.host_s)},
      {"hidden (est)", zp_show_seconds(arena, delay.host_s - delay.shown_s)},
      {"shown (est)", zp_format(arena, "%s of a step of %s", zp_show_seconds(arena, delay.shown_s),
                                zp_show_seconds(arena, plan->best.estimate.step_s))},
  };
  zp_buf_puts(out, "<table><tbody>\n");
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    zp_buf_printf(out, "<tr><th>%s</th>", rows[i][0]);
    cell(out, rows[i][1]);
    zp_buf_puts(out, "</tr>\n");
  }
  foot(out);
}

static void candidate_row(zp_buf *out, const zp_candidate *c, double best_s) {
  zp_arena *arena = out->arena;
  zp_buf_puts(out, "<tr>");
  cell(out, zp_words_choice(arena, &c->choice));
  cell(out, zp_show_seconds(arena, c->estimate.step_s));
  cell(out, zp_format(arena, "%+.1f%%", 100 * (c->estimate.step_s / best_s - 1)));
  cell(out, zp_show_bytes(arena, c->estimate.peak_bytes));
  cell(out, zp_format(arena, "%.1f%%", 100 * c->estimate.mfu));
  zp_buf_puts(out, "</tr>\n");
}

void zp_html_alternatives(zp_buf *out, const zp_plan *plan) {
  static const char *const name[] = {"plan", "step (est)", "against the best", "peak memory", "MFU (est)"};
  head(out, name, 5);
  candidate_row(out, &plan->best, plan->best.estimate.step_s);
  for (int i = 0; i < plan->alternatives.len; i++)
    candidate_row(out, &plan->alternatives.data[i], plan->best.estimate.step_s);
  foot(out);
}

void zp_html_rejected(zp_buf *out, const zp_plan *plan) {
  static const char *const name[] = {"rejected by", "candidates", "reason"};
  const zp_certificate *c = &plan->certificate;
  if (c->candidates == 0) {
    zp_buf_puts(out, "<p>This plan was read from a file; no search has been run.</p>\n");
    return;
  }
  head(out, name, 3);
  for (int i = 0; i < ZP_REJECT_COUNT; i++) {
    zp_buf_puts(out, "<tr>");
    cell(out, zp_rejection_key((zp_rejection)i));
    cell(out, zp_format(out->arena, "%lld", (long long)c->rejected[i]));
    cell(out, zp_rejection_text((zp_rejection)i));
    zp_buf_puts(out, "</tr>\n");
  }
  foot(out);
  zp_buf_printf(out, "<p>%lld candidates, %lld priced; best %s, lower bound of all others %s.</p>\n",
                (long long)c->candidates, (long long)c->priced, zp_show_seconds(out->arena, c->best_s),
                zp_show_seconds(out->arena, c->bound_s));
}

void zp_html_traffic(zp_buf *out, const zp_plan *plan) {
  static const char *const name[] = {"axis", "sent in one step by all ranks"};
  zp_traffic traffic = zp_program_traffic(plan->program);
  const struct {
    const char *axis;
    int64_t bytes;
  } rows[] = {{"tensor", traffic.tensor},  {"pipeline", traffic.pipeline},
              {"data", traffic.data},      {"tied weights", traffic.tie},
              {"experts", traffic.expert}, {"data, until 1-bit Adam compresses", traffic.warmup_data}};
  size_t n = sizeof rows / sizeof *rows - !plan->best.choice.compress;
  head(out, name, 2);
  for (size_t i = 0; i < n; i++) {
    zp_buf_puts(out, "<tr>");
    cell(out, rows[i].axis);
    cell(out, zp_words_bytes(out->arena, rows[i].bytes));
    zp_buf_puts(out, "</tr>\n");
  }
  foot(out);
}

static void move_rows(zp_buf *out, const zp_program *program, int stage) {
  static const char *const name[] = {"when", "by", "what", "how", "from, to", "a rank's", "a step", "on", "waited for"};
  zp_move_list list = zp_stage_moves(out->arena, program, stage);
  head(out, name, 9);
  for (int i = 0; i < list.len; i++) {
    const zp_move *m = &list.data[i];
    zp_move_words w = zp_move_in_words(out->arena, program, stage, m);
    zp_buf_puts(out, "<tr>");
    cell(out, w.when);
    cell(out, m->strategy->name);
    cell(out, w.what);
    cell(out, w.way);
    cell(out, w.ends);
    cell(out, w.size);
    cell(out, zp_format(out->arena, "%lld%s", (long long)(m->times * m->count), m->warmup ? " of the warm-up" : ""));
    cell(out, w.queue);
    cell(out, w.wait);
    zp_buf_puts(out, "</tr>\n");
  }
  foot(out);
}

static void move_lists(zp_buf *out, const zp_plan *plan) {
  zp_stage_groups groups = zp_group_stages(out->arena, plan->program, true);
  zp_buf_puts(out, "<details><summary>every move</summary>\n");
  for (int g = 0; g < groups.len; g++) {
    const zp_stage_group *group = &groups.data[g];
    zp_buf_printf(out, "<p>stage %s%s</p>\n", zp_words_group(out->arena, *group),
                  group->first < group->last ? ", the first of them" : "");
    move_rows(out, plan->program, group->first);
  }
  zp_buf_puts(out, "</details>\n");
}

void zp_html_moves(zp_buf *out, const zp_plan *plan) {
  static const char *const name[] = {"what moves", "in one step, all ranks", "how"};
  zp_move_scope scope = zp_move_scope_of(plan->program->lowered, &plan->program->choice);
  scope.program = plan->program;
  head(out, name, 3);
  for (int i = 0; zp_move_strategies[i]; i++) {
    const zp_move_strategy *s = zp_move_strategies[i];
    if (!s->applies(&scope)) continue;
    zp_buf_puts(out, "<tr>");
    cell(out, s->name);
    cell(out, zp_words_bytes(out->arena, zp_program_strategy_bytes(plan->program, s)));
    cell(out, s->explain(out->arena, &scope));
    zp_buf_puts(out, "</tr>\n");
  }
  foot(out);
  move_lists(out, plan);
}

static void measured_row(zp_buf *out, const char *what, const char *predicted, int64_t measured, double ratio) {
  zp_buf_puts(out, "<tr>");
  cell(out, what);
  cell(out, predicted);
  cell(out, measured ? zp_format(out->arena, "%lld B", (long long)measured) : "not measured");
  cell(out, measured ? zp_format(out->arena, "%.4f", ratio) : "");
  zp_buf_puts(out, "</tr>\n");
}

void zp_html_measured(zp_buf *out, const zp_plan *plan, const zp_log_steps *steps, zp_log_memory memory) {
  static const char *const name[] = {"", "predicted", "measured", "measured / predicted"};
  zp_arena *arena = out->arena;
  double predicted_ms = 1000 * plan->best.estimate.step_s, measured_ms = zp_log_median_step_ms(arena, steps);
  int64_t planned = zp_largest_arena(plan->program), peak = plan->best.estimate.peak_bytes;
  bool cpu = plan->spec->cluster.node.device.is_cpu;
  head(out, name, 4);
  zp_buf_printf(out, "<tr><td>step time (median of %d)</td>", steps->len);
  cell(out, zp_format(arena, "est %s", zp_show_seconds(arena, predicted_ms / 1000)));
  cell(out, isfinite(measured_ms) ? zp_show_seconds(arena, measured_ms / 1000) : "not measured");
  cell(out, isfinite(measured_ms) ? zp_format(arena, "%.2f", measured_ms / predicted_ms) : "");
  zp_buf_puts(out, "</tr>\n");
  measured_row(out, "arena of the fullest rank", zp_format(arena, "%lld B", (long long)planned), memory.arena,
               (double)memory.arena / (double)planned);
  measured_row(out, cpu ? "resident memory of the fullest rank" : "memory taken on the fullest device",
               zp_format(arena, "est %lld B", (long long)peak), memory.device, (double)memory.device / (double)peak);
  foot(out);
}

void zp_html_constants(zp_buf *out) {
  static const char *const name[] = {"constant", "value", "unit", "source"};
  head(out, name, 4);
  for (int i = 0; i < ZP_COST_CONSTANT_COUNT; i++) {
    const zp_cost_row *row = &zp_cost_rows()[i];
    zp_buf_puts(out, "<tr>");
    cell(out, row->name);
    cell(out, zp_format(out->arena, "%g", row->value));
    cell(out, row->unit);
    cell(out, row->source);
    zp_buf_puts(out, "</tr>\n");
  }
  foot(out);
}
