/* SPDX-License-Identifier: Apache-2.0 */
/* The memory table: one row for consecutive stages that differ in what they save at most. */
#include "report_internal.h"

#include <assert.h>
#include <zplan/table.h>

/* Several node types: consecutive stages on the same ones. */
static void put_machines(zp_buf *out, const zp_plan *plan) {
  const zp_choice *c = &plan->best.choice;
  const zp_cluster *cluster = &plan->spec->cluster;
  for (int first = 0, next; first < c->pipeline; first = next) {
    zp_machine at = zp_machine_of_stage(&plan->machine, c, first);
    for (next = first + 1; next < c->pipeline && zp_machine_of_stage(&plan->machine, c, next).types == at.types;)
      next++;
    zp_buf_printf(out, "%-7s on", zp_words_group(out->arena, (zp_stage_group){first, next - 1, 1}));
    const char *separator = " ";
    for (int g = 0; g < cluster->groups.len; g++) {
      if (!(at.types >> g & 1)) continue;
      zp_buf_printf(out, "%s%s", separator, cluster->groups.data[g].type.name);
      separator = " and ";
    }
    zp_buf_line(out, ": %s may be used of %s", zp_show_bytes(out->arena, zp_words_usable_bytes(plan, first)),
                zp_show_bytes(out->arena, at.memory_bytes));
  }
}

/* What lies outside of the arena is estimated, and so is the total. */
static const char *cell_of(zp_arena *arena, const zp_plan *plan, zp_stage_group group, int class) {
  const char *bytes = zp_words_group_bytes(arena, plan, group, class);
  return class < ZP_ARENA_CLASSES || *bytes == '-' ? bytes : zp_format(arena, ZP_ESTIMATED "%s", bytes);
}

/* Stage, classes, total, how it recomputes, what it runs. */
enum { TOTAL = 1 + ZP_MEMORY_CLASSES, MODE, RUNS, ALL_COLUMNS };
static const zp_column columns[ALL_COLUMNS] = {
    {"stage", 5, 12, 0}, {"weights", 0, 0, 1},   {"gradients", 0, 0, 2}, {"optimizer", 0, 0, 3},
    {"saved", 0, 0, 4},  {"buffers", 0, 0, 5},   {"context", 0, 0, 7},   {"NCCL", 0, 0, 6},
    {"total", 0, 0, 0},  {"recompute", 0, 9, 0}, {"runs", 0, 12, 0},
};

void zp_report_memory(zp_page *page, const zp_plan *plan) {
  assert(plan->feasible);
  zp_arena *arena = page->out.arena;
  zp_stage_groups groups = zp_group_stages(arena, plan->program, true);
  int classes = zp_memory_classes(plan), n = 0;
  zp_column shown[ALL_COLUMNS];
  bool is_shown[ALL_COLUMNS];
  for (int c = 0; c < ALL_COLUMNS; c++) {
    is_shown[c] = c == MODE ? zp_choice_has_modes(&plan->best.choice) : c <= classes || c >= TOTAL;
    if (is_shown[c]) shown[n++] = columns[c];
  }
  zp_table table = {.columns = shown, .n = n};
  for (int g = 0; g < groups.len; g++) {
    const char *cells[ALL_COLUMNS];
    int k = 0;
    for (int c = 0; c < ALL_COLUMNS; c++) {
      if (!is_shown[c]) continue;
      cells[k++] = c == 0      ? zp_words_group(arena, groups.data[g])
                   : c == MODE ? zp_stage_mode_words(arena, &plan->best.choice, groups.data[g].first)
                   : c == RUNS ? zp_words_group_runs(arena, plan, groups.data[g])
                               : cell_of(arena, plan, groups.data[g], c - 1);
    }
    zp_table_add(arena, &table, cells);
  }
  zp_page_table(page, &table);
  zp_buf out = zp_buf_new(arena);
  zp_buf_puts(&out, "one rank");
  if (plan->spec->cluster.groups.len > 0) {
    zp_buf_puts(&out, "\n");
    put_machines(&out, plan);
  } else {
    zp_buf_line(&out, "; %s may be used of %s", zp_show_bytes(arena, zp_words_usable_bytes(plan, 0)),
                zp_show_bytes(arena, plan->machine.memory_bytes));
  }
  zp_page_lines(page, out.data);
}
