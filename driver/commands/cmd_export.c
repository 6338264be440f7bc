/* SPDX-License-Identifier: Apache-2.0 */
/* zplan export: a plan in the words of another program, on stdout or in a file; what differs from the plan on
 * stderr. */
#include "driver.h"
#include <zplan/export.h>
#include <zplan/software.h>

#include <stdio.h>

static _Thread_local zp_export_format format; /* of this run */

/* "out/gpt1t.sh" -> "gpt1t": for the comments of the file. */
static const char *base_name(zp_run_state *run) {
  const char *path = run->options.output ? run->options.output : run->options.files.data[0],
             *slash = strrchr(path, '/');
  const char *base = slash ? slash + 1 : path;
  if (run->options.output) return base;
  return zp_format(run->arena, "%.*s.%s", (int)strcspn(base, "."), base, zp_export_ending(format));
}

static void report(zp_run_state *run, const zp_export *result) {
  for (int i = 0; i < result->refusals.len; i++) {
    const zp_export_refusal *r = &result->refusals.data[i];
    zp_diag *d = zp_report(run->diags, r->of_model ? ZP_Z0682 : ZP_Z0681, r->span, "%s", r->reason);
    if (r->help) zp_diag_help(d, "%s", r->help);
  }
  zp_flush_diags(run);
}

static void note_narrowed(const zp_run_state *run, const zp_plan *plan) {
  if (run->narrowed.len == 0 || plan->certificate.candidates == 0) return;
  zp_buf limits = zp_buf_new(run->arena);
  for (int i = 0; i < run->narrowed.len; i++) zp_buf_printf(&limits, "%s%s", i ? ", " : "", run->narrowed.data[i]);
  zp_say_line(stderr, "note: searched among plans that %s can express (limited: %s)",
              zp_trainer_title(plan->spec->cluster.trainer), limits.data);
}

/* The plan for the program of the format. Where that has none, because it lacks what the plan block wants or needs more
 * memory by its count, the one for zplan's own trainer: what the program lacks in it is rejected with a message. */
static zp_plan *obtain(zp_run_state *run) {
  const zp_options own = run->options;
  if (zp_export_planned_for(format)) run->default_program = zp_export_planned_for(format);
  run->lacking_is_fine = true;
  zp_plan *plan = zp_obtain_plan(run, 0);
  if (plan && plan->feasible) note_narrowed(run, plan);
  if (!plan || plan->feasible || !run->default_program || own.program) return plan;
  const char *title = zp_trainer_title(plan->spec->cluster.trainer);
  run->options = own;
  run->default_program = NULL;
  plan = zp_obtain_plan(run, 0);
  if (plan && plan->feasible)
    zp_say_line(stderr, "note: no plan for %s fits these limits (--for says why); this one is for zplan's own trainer",
                title);
  return plan;
}

int zp_cmd_export(zp_run_state *run) {
  const char *words[ZP_EXPORT_COUNT + 2] = {[ZP_EXPORT_COUNT] = "hf", "peft"}; /* weights, not a plan */
  for (int i = 0; i < ZP_EXPORT_COUNT; i++) words[i] = zp_export_word((zp_export_format)i);
  int index = zp_take_format(run, words, ZP_EXPORT_COUNT + 2);
  if (index < 0) return ZP_EXIT_USAGE;
  if (index >= ZP_EXPORT_COUNT) return index == ZP_EXPORT_COUNT ? zp_export_hf(run) : zp_export_peft(run);
  const zp_options *o = &run->options;
  const char *of_hf = o->like          ? "--like"
                      : o->dtype       ? "--dtype"
                      : o->shard_bytes ? "--shard-size"
                      : o->tokenizer   ? "--tokenizer"
                      : o->ema         ? "--ema"
                                       : NULL;
  if (of_hf) return zp_usage_error("%s is of `zplan export hf`; a plan has no weights", of_hf);
  format = (zp_export_format)index;
  zp_plan *plan = obtain(run);
  if (!plan) return run->options.files.len == 1 ? ZP_EXIT_ERROR : ZP_EXIT_USAGE;
  if (!plan->feasible) {
    zp_print_no_plan(run, plan);
    return ZP_EXIT_INFEASIBLE;
  }
  zp_export *result = zp_export_plan(run->arena, plan, format, base_name(run));
  if (!result->text) {
    report(run, result);
    return ZP_EXIT_ERROR;
  }
  for (int i = 0; i < result->notes.len; i++) zp_say_line(stderr, "note: %s", result->notes.data[i]);
  return zp_put_output(run, result->text, result->text[0] == '#' ? "#" : NULL) ? ZP_EXIT_OK : ZP_EXIT_ERROR;
}
