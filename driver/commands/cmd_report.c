/* SPDX-License-Identifier: Apache-2.0 */
/* zplan report: tables on stdout, HTML and Chrome trace files. */
#include "driver.h"

#include <stdio.h>

enum { SOME_ROWS = 12 }; /* of a profile, below a summary */

static int refuse_log(zp_run_state *run, const char *why) {
  zp_report(run->diags, ZP_Z0640, ZP_NO_SPAN, "%s: %s", run->options.log, why);
  zp_flush_diags(run);
  return ZP_EXIT_ERROR;
}

/* The points of --front; NULL after saying what is wrong with the file. */
static zp_json *read_front(zp_run_state *run) {
  size_t len;
  const char *path = run->options.front, *error = NULL;
  char *text = zp_read_input(run->arena, path, &len, &error);
  if (!text) {
    zp_report(run->diags, ZP_Z0640, ZP_NO_SPAN, "%s", error);
    return zp_flush_diags(run), NULL;
  }
  zp_json *front = zp_json_parse(run->arena, text, len, &error);
  if (front && !(error = zp_report_front_refusal(run->arena, front))) return front;
  zp_report(run->diags, ZP_Z0640, ZP_NO_SPAN, "%s: %s", path, error);
  if (front) zp_json_free(front);
  return zp_flush_diags(run), NULL;
}

static int check_words(const zp_options *o) {
  if (o->profile && !o->log) return zp_usage_error("--profile shows the profile in a log: --log names it");
  if (o->front && !o->html) return zp_usage_error("--front is drawn on the page: --html names it");
  return ZP_EXIT_OK;
}

static void show_profile(const zp_run_state *run, const zp_profile *profile, int most) {
  zp_page page = zp_page_for(run, stdout, 0);
  zp_report_profile(&page, profile, most);
  zp_page_put(&page, stdout);
}

int zp_cmd_report(zp_run_state *run) {
  int status = check_words(&run->options);
  if (status != ZP_EXIT_OK) return status;
  zp_json *file, *front = NULL;
  zp_plan *plan = zp_obtain_plan_and_file(run, 0, &file);
  if (!plan) return run->options.files.len == 1 ? ZP_EXIT_ERROR : ZP_EXIT_USAGE;
  if (!plan->feasible) {
    zp_print_no_plan(run, plan);
    return ZP_EXIT_INFEASIBLE;
  }
  const char *log = NULL, *error = NULL;
  zp_page unused = zp_page_for(run, stdout, 0);
  size_t len;
  if (run->options.log && !(log = zp_read_input(run->arena, run->options.log, &len, &error))) {
    zp_report(run->diags, ZP_Z0640, ZP_NO_SPAN, "%s", error);
    zp_flush_diags(run);
    return ZP_EXIT_ERROR;
  }
  if (log && !zp_report_measured(&unused, plan, log)) {
    zp_diag *d = zp_report(run->diags, ZP_Z0640, ZP_NO_SPAN, "%s holds no step of a training", run->options.log);
    zp_diag_help(d, "`zplan run FILE --log F.jsonl` writes such a log: a line of JSON a step, with `step`, `loss` and "
                    "`step_ms`");
    zp_flush_diags(run);
    return ZP_EXIT_ERROR;
  }
  zp_profile_answer profiled = {0};
  if (log)
    profiled =
        zp_profile_read(run->arena, zp_plan_hash(run->arena, plan->program), plan->program->choice.pipeline, log);
  if (log && !profiled.profile && (profiled.there_is || run->options.profile)) return refuse_log(run, profiled.why_not);
  if (run->options.front && !(front = read_front(run))) return ZP_EXIT_ERROR;
  const zp_report_page page = {plan, file, log, profiled.profile, front};
  const char *html = run->options.html ? zp_report_html(run->arena, &page) : NULL;
  const char *trace = run->options.trace ? zp_report_trace(run->arena, plan, profiled.profile) : NULL;
  bool ok = true;
  if (html) ok &= zp_write_report(run, run->options.html, html);
  if (trace) ok &= zp_write_report(run, run->options.trace, trace);
  if (run->options.profile) show_profile(run, profiled.profile, 0);
  if (!run->options.profile && !run->options.html && !run->options.trace) {
    zp_show_plan(run, plan, false, log);
    if (profiled.profile) zp_say(stdout, "\n");
    if (profiled.profile) show_profile(run, profiled.profile, SOME_ROWS);
  }
  if (file) zp_json_free(file);
  if (front) zp_json_free(front);
  return ok ? ZP_EXIT_OK : ZP_EXIT_ERROR;
}
