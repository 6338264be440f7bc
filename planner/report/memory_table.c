/* The memory table: one row for consecutive stages that differ in what they save at most. */
#include "report_internal.h"

#include <assert.h>

/* Wide enough for a range of sizes. */
static int column_width(int class) { return class == 3 || class == ZP_MEMORY_CLASSES ? 17 : 9; }

static int label_width(zp_arena *arena, const zp_stage_groups *groups) {
  int width = 7;
  for (int g = 0; g < groups->len; g++) {
    int own = (int)strlen(zp_words_group(arena, groups->data[g])) + 1;
    if (own > width) width = own;
  }
  return width;
}

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

const char *zp_report_memory(zp_arena *arena, const zp_plan *plan) {
  assert(plan->feasible);
  zp_buf out = zp_buf_new(arena);
  zp_stage_groups groups = zp_group_stages(arena, plan->program, true);
  int classes = zp_memory_classes(plan);
  int label = label_width(arena, &groups);
  zp_buf_printf(&out, "%-*s", label, "stage");
  for (int c = 0; c < classes; c++) zp_buf_printf(&out, " %*s", column_width(c), zp_memory_class_name(c));
  zp_buf_printf(&out, " %*s", column_width(ZP_MEMORY_CLASSES), "total");
  bool modes = plan->best.choice.stage_recompute != NULL;
  zp_buf_line(&out, "%s  runs", modes ? "  recompute  " : "");
  for (int g = 0; g < groups.len; g++) {
    zp_buf_printf(&out, "%-*s", label, zp_words_group(arena, groups.data[g]));
    for (int c = 0; c <= ZP_MEMORY_CLASSES; c++)
      if (c < classes || c == ZP_MEMORY_CLASSES)
        zp_buf_printf(&out, " %*s", column_width(c), zp_words_group_bytes(arena, plan, groups.data[g], c));
    if (modes)
      zp_buf_printf(&out, "  %-11s", zp_stage_mode_name(zp_choice_mode(&plan->best.choice, groups.data[g].first)));
    zp_buf_printf(&out, "  %s\n", zp_words_group_runs(arena, plan, groups.data[g]));
  }
  const char *estimates =
      classes == ZP_MEMORY_CLASSES ? "context and NCCL are estimates" : "the context is an estimate";
  zp_buf_printf(&out, "one rank; arenas are exact, %s", estimates);
  if (plan->spec->cluster.groups.len > 0) {
    zp_buf_puts(&out, "\n");
    put_machines(&out, plan);
    return out.data;
  }
  zp_buf_line(&out, "; %s may be used of %s", zp_show_bytes(arena, zp_words_usable_bytes(plan, 0)),
              zp_show_bytes(arena, plan->machine.memory_bytes));
  return out.data;
}
