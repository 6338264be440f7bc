/* zplan explain: pages of error codes; why a plan is best; what another choice would cost. */
#include "driver.h"

#include <stdio.h>

static int explain_code(const char *word) {
  zp_diag_code code = zp_code_by_name(word);
  if (code == ZP_DIAG_CODE_COUNT) return zp_usage_error("there is no error code `%s`", word);
  printf("%s: %s\n\n%s\n", zp_code_name(code), zp_code_title(code), zp_code_page(code));
  return ZP_EXIT_OK;
}

static void print_term(const char *name, double best, double other) {
  printf("  %-22s %12.4g s %12.4g s  %+12.4g s\n", name, best, other, other - best);
}

/* The same search with the asked-for constraints on top. */
static int why_not(zp_run_state *run, const zp_plan *best) {
  char *wish = zp_strdup(run->arena, run->options.why_not);
  for (char *part = strtok(wish, ","); part; part = strtok(NULL, ",")) {
    while (*part == ' ') part++;
    zp_push(run->arena, &run->options.set, part);
  }
  run->options.load.set = run->options.set.data;
  run->options.load.n_set = run->options.set.len;
  zp_json *json;
  zp_spec *spec = zp_load_input(run, &json);
  if (!spec) return ZP_EXIT_ERROR;
  if (json) zp_json_free(json);
  const zp_choice *c = &best->best.choice;
  zp_search_options options = {.top = 1};
  zp_plan *other = zp_search(run->arena, spec, c->tensor * c->pipeline * c->data, &options);
  if (!other->feasible) {
    printf("with %s nothing fits or is legal:\n", run->options.why_not);
    fputs(zp_report_infeasible(run->arena, other), stdout);
    return ZP_EXIT_INFEASIBLE;
  }
  const zp_choice *o = &other->best.choice;
  const zp_estimate *a = &best->best.estimate, *b = &other->best.estimate;
  printf("best:  tensor %d x pipeline %d x data %d, zero %d, micro-batch %lld\n", c->tensor, c->pipeline, c->data,
         c->zero, (long long)c->microbatch);
  printf("asked: tensor %d x pipeline %d x data %d, zero %d, micro-batch %lld: %+.1f%% step time (estimates)\n",
         o->tensor, o->pipeline, o->data, o->zero, (long long)o->microbatch, (b->step_s / a->step_s - 1) * 100);
  printf("  %-22s %14s %14s  %14s\n", "", "best", "asked", "difference");
  print_term("compute", a->compute_s, b->compute_s);
  print_term("pipeline bubble", a->bubble_s, b->bubble_s);
  print_term("tensor communication", a->tensor_comm_s, b->tensor_comm_s);
  print_term("pipeline communication", a->pipeline_comm_s, b->pipeline_comm_s);
  print_term("data communication", a->data_comm_s, b->data_comm_s);
  print_term("optimizer", a->optimizer_s, b->optimizer_s);
  print_term("step", a->step_s, b->step_s);
  return ZP_EXIT_OK;
}

int zp_cmd_explain(zp_run_state *run) {
  if (run->options.files.len == 1 && run->options.files.data[0][0] == 'Z')
    return explain_code(run->options.files.data[0]);
  zp_plan *plan = zp_obtain_plan(run, 0);
  if (!plan) return run->options.files.len == 1 ? ZP_EXIT_ERROR : ZP_EXIT_USAGE;
  if (!plan->feasible) {
    fputs(zp_report_infeasible(run->arena, plan), stdout);
    return ZP_EXIT_INFEASIBLE;
  }
  if (run->options.why_not) return why_not(run, plan);
  fputs(zp_report_summary(run->arena, plan), stdout);
  return ZP_EXIT_OK;
}
