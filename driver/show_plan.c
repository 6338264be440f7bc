/* SPDX-License-Identifier: Apache-2.0 */
/* A plan for people: the first screen, hints, the next command; with --verbose all that is known. */
#include "driver.h"

#include <stdio.h>
#include <zplan/export.h>
#include <zplan/software.h>

/* Fewer CPU ranks may be faster than all that were asked for. */
static void put_fewer_ranks(zp_page *page, const zp_plan *plan) {
  zp_candidate fewer;
  zp_arena *arena = page->out.arena;
  if (plan->certificate.candidates == 0 || !zp_find_fewer_ranks(arena, plan, &fewer)) return;
  long long ranks = zp_choice_ranks(&fewer.choice);
  zp_page_field(page, "faster", "with %lld of the %d ranks, ~%s a step (--ranks %lld)", ranks, plan->devices,
                zp_show_seconds(arena, fewer.estimate.step_s), ranks);
}

/* "a batch of 1024 (--set batch=1024): ~8.5 s a step, MFU ~31.9%; tensor 8 x ..." */
static void put_help(zp_page *page, const zp_help *help) {
  zp_arena *arena = page->out.arena;
  const zp_estimate *e = &help->best.estimate;
  const char *option = help->option ? zp_format(arena, " (--set %s)", help->option) : "";
  const char *words = help->kind == ZP_HELP_BATCH || !help->option ? zp_format(arena, "%s%s", help->words, option)
                                                                   : zp_format(arena, "--set %s", help->option);
  zp_page_field(page, "helps", "%s: ~%s a step, ~%.1f times the tokens/s, MFU ~%.1f%%; %s", words,
                zp_show_seconds(arena, e->step_s), help->times_faster, 100 * e->mfu,
                zp_words_layout(arena, &help->best.choice));
}

/* Where most of the devices' time goes elsewhere: where to, and whether far fewer of them would do. */
static void put_poor_use(zp_page *page, const zp_plan *plan) {
  const zp_estimate *e = &plan->best.estimate;
  zp_arena *arena = page->out.arena;
  zp_poor_use poor;
  if (!zp_find_poor_use(arena, plan, &poor)) return;
  const char *fewer = "";
  if (poor.devices)
    fewer = zp_format(arena, "; %d devices take ~%.1f times as long for ~%.1f times fewer device hours (--gpus %d)",
                      poor.devices, poor.times_longer, poor.times_fewer_hours, poor.devices);
  zp_page_field(page, "poor use", "~%.0f%% of the step is %s%s", 100 * poor.term_s / e->step_s, poor.term, fewer);
  if (poor.cause) zp_page_field(page, "because", "%s", poor.cause);
  for (int i = 0; i < poor.helps.len; i++) put_help(page, &poor.helps.data[i]);
}

/* The format that plans of this profile are exported in, else that of its program. */
static const char *export_word(const zp_cluster *cluster) {
  const char *names[] = {zp_software_name(cluster->software), zp_trainer_word(cluster->trainer)};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    for (int f = 0; f < ZP_EXPORT_COUNT; f++) {
      const char *planned_for = zp_export_planned_for((zp_export_format)f);
      if (planned_for && strcmp(planned_for, names[i]) == 0) return zp_export_word((zp_export_format)f);
    }
  return names[1];
}

/* What a person does next with a plan that was just searched: train here, hand it to another program, or keep it. */
static const char *next_command(const zp_run_state *run, const zp_plan *plan) {
  const zp_options *o = &run->options;
  const zp_cluster *cluster = &plan->spec->cluster;
  zp_arena *arena = run->arena;
  if (cluster->software)
    return zp_format(arena, "zplan export %s %s", export_word(cluster), zp_words_for(run, "export"));
  if (o->output) return zp_format(arena, "zplan report %s --html FILE", zp_quote_shell(arena, o->output));
  if (!cluster->node.device.is_cpu)
    return zp_format(arena, "zplan %s -o %s.json", zp_words_for(run, "plan"),
                     zp_quote_shell(arena, plan->spec->model->name));
  const char *ranks = o->load.gpus ? "" : zp_format(arena, " --ranks %d", plan->devices);
  return zp_format(arena, "zplan run %s%s", zp_words_for(run, "run"), ranks);
}

static void show_details(const zp_run_state *run, const zp_plan *plan) {
  zp_page page = zp_page_for(run, stdout, ZP_DETAIL_LABEL);
  zp_page_blank(&page);
  zp_report_details(&page, plan);
  zp_page_blank(&page);
  zp_report_memory(&page, plan);
  zp_page_put(&page, stdout);
}

void zp_show_plan(zp_run_state *run, const zp_plan *plan, bool searched, const char *log) {
  bool verbose = run->options.verbose;
  zp_page page = zp_page_for(run, stdout, ZP_FIRST_LABEL);
  zp_report_first_screen(&page, plan);
  if (searched && !run->interrupted) {
    put_fewer_ranks(&page, plan);
    put_poor_use(&page, plan);
    zp_page_field(&page, "next", "%s", next_command(run, plan));
  }
  if (log) zp_report_measured(&page, plan, log);
  zp_page_text(&page, ZP_DIM, 2, verbose ? ZP_ESTIMATED_LEGEND : ZP_ESTIMATED_LEGEND " (more: --verbose)");
  zp_page_put(&page, stdout);
  if (verbose) show_details(run, plan);
}
