/* SPDX-License-Identifier: Apache-2.0 */
/* When nothing fits: the nearest miss, and the changes under which something does (answers/relax.c). */
#include <zplan/answers.h>

#include <assert.h>
#include "report_internal.h"

static const char *rank_word(const zp_plan *plan, int n) {
  if (plan->spec->cluster.node.device.is_cpu) return n == 1 ? "rank" : "ranks";
  return n == 1 ? "device" : "devices";
}

static void put_miss(zp_buf *out, const zp_plan *plan) {
  const zp_miss *miss = &plan->miss;
  zp_arena *arena = out->arena;
  zp_buf_line(out, "does not fit: stage %d needs %s, %s may be used of %s", miss->stage,
              zp_show_bytes(arena, miss->need_bytes), zp_show_bytes(arena, miss->have_bytes),
              zp_show_bytes(arena, zp_machine_of_stage(&plan->machine, &miss->choice, miss->stage).memory_bytes));
  zp_buf_puts(out, "  ");
  for (int c = 0; c < ZP_MEMORY_CLASSES; c++)
    if (c < ZP_MEMORY_CLASSES - 1 || miss->memory.communicators > 0)
      zp_buf_printf(out, "%s%s %s", c ? "   " : "", zp_memory_class_name(c),
                    zp_words_bytes(arena, zp_memory_class_bytes(&miss->memory, c)));
  zp_buf_printf(out, "\n  nearest miss%s: %s\n", miss->is_partial ? " so far" : "",
                zp_words_choice(arena, &miss->choice));
}

const char *zp_report_relaxation(zp_arena *arena, const zp_relaxation *r) {
  assert(r->words);
  return zp_format(arena, "%s it fits: %s; step " ZP_ESTIMATED "%s, peak " ZP_ESTIMATED "%s%s%s%s", r->words,
                   zp_words_choice(arena, &r->choice), zp_show_seconds(arena, r->estimate.step_s),
                   zp_show_bytes(arena, r->estimate.peak_bytes), r->option ? "   (" : "", r->option ? r->option : "",
                   r->option ? ")" : "");
}

static void put_refusals(zp_buf *out, const zp_plan *plan) {
  zp_strings lines = zp_explain_refusals(out->arena, plan);
  for (int i = 0; i < lines.len; i++) zp_buf_line(out, "  %s", lines.data[i]);
  if (lines.len == 0 && plan->why_not) zp_buf_line(out, "  %s", plan->why_not);
}

const char *zp_report_verdict(zp_arena *arena, const zp_plan *plan) {
  assert(!plan->feasible);
  zp_buf out = zp_buf_new(arena);
  bool tried = plan->miss.have_bytes > 0;
  zp_buf_line(&out, "error[%s]: no plan for %d %s %s", tried ? "Z0603" : "Z0601", plan->devices,
              rank_word(plan, plan->devices), tried ? "fits into memory" : "satisfies the constraints");
  if (tried)
    put_miss(&out, plan);
  else
    put_refusals(&out, plan);
  return out.data;
}

const char *zp_report_changes(zp_arena *arena, const zp_plan *plan, const zp_relaxations *nearest) {
  assert(!plan->feasible && nearest);
  zp_buf out = zp_buf_new(arena);
  for (int i = 0; i < nearest->len; i++)
    zp_buf_line(&out, "  help: %s", zp_report_relaxation(arena, &nearest->data[i]));
  if (nearest->cut_short) zp_buf_line(&out, "  note: more changes may help: looking for them ended after a fixed work");
  for (int i = 0; i < ZP_REJECT_COUNT; i++)
    if (plan->certificate.rejected[i])
      zp_buf_line(&out, "  note: %lld of %lld candidates rejected: %s", (long long)plan->certificate.rejected[i],
                  (long long)plan->certificate.candidates, zp_rejection_text((zp_rejection)i));
  return out.data;
}

const char *zp_report_infeasible(zp_arena *arena, const zp_plan *plan) {
  zp_relaxations nearest = zp_find_relaxations(arena, plan);
  return zp_format(arena, "%s%s", zp_report_verdict(arena, plan), zp_report_changes(arena, plan, &nearest));
}
