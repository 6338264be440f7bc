/* zplan report: tables on stdout, HTML and Chrome trace files. */
#include "driver.h"

#include <stdio.h>

/* key: in the result of --json. */
static bool write_output(zp_run_state *run, const char *key, const char *path, const char *text) {
  const char *error = NULL;
  if (text[0] == '<') text = zp_mark_output(run, "<!--", text);
  if (!zp_may_replace(run, path, text)) return false;
  if (zp_write_file(run->arena, path, text, strlen(text), &error)) {
    zp_result_text(run, key, path);
    zp_say(stdout, "%s\n", path);
    return true;
  }
  zp_report(run->diags, ZP_Z0641, ZP_NO_SPAN, "cannot write the report: %s", error);
  return zp_flush_diags(run);
}

enum { SOME_ROWS = 12 }; /* of a profile, below a summary */

static int refuse_log(zp_run_state *run, const char *why) {
  zp_report(run->diags, ZP_Z0640, ZP_NO_SPAN, "%s: %s", run->options.log, why);
  zp_flush_diags(run);
  return ZP_EXIT_ERROR;
}

int zp_cmd_report(zp_run_state *run) {
  if (run->options.profile && !run->options.log)
    return zp_usage_error("--profile shows the profile in a log: --log names it");
  zp_plan *plan = zp_obtain_plan(run, 0);
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
    zp_report(run->diags, ZP_Z0640, ZP_NO_SPAN, "%s holds no step of a training", run->options.log);
    zp_flush_diags(run);
    return ZP_EXIT_ERROR;
  }
  zp_profile_answer profiled = {0};
  if (log)
    profiled =
        zp_profile_read(run->arena, zp_plan_hash(run->arena, plan->program), plan->program->choice.pipeline, log);
  if (log && !profiled.profile && (profiled.there_is || run->options.profile)) return refuse_log(run, profiled.why_not);
  bool ok = true;
  if (run->options.html) ok &= write_output(run, "html", run->options.html, zp_report_html(run->arena, plan, log));
  if (run->options.trace)
    ok &= write_output(run, "trace", run->options.trace, zp_report_trace(run->arena, plan, profiled.profile));
  if (run->options.profile) zp_print_lines(run, stdout, zp_report_profile(run->arena, profiled.profile, 0));
  if (!run->options.profile && !run->options.html && !run->options.trace) {
    zp_show_plan(run, plan, false, log);
    if (profiled.profile) fputs("\n", stdout);
    if (profiled.profile) zp_print_lines(run, stdout, zp_report_profile(run->arena, profiled.profile, SOME_ROWS));
  }
  return ok ? ZP_EXIT_OK : ZP_EXIT_ERROR;
}
