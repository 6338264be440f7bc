/* zplan FILE.dz: searches, prints the summary, writes the plan file. */
#include "driver.h"

#include <stdio.h>

/* --dump-after=PASS: the intermediate forms, for people who work on the compiler. */
static int dump(zp_run_state *run, const zp_plan *plan) {
  const char *pass = run->options.dump;
  const zp_lowered *l = plan->program->lowered;
  for (int s = 0; s < l->n_segments; s++) {
    const zp_segment *segment = &plan->spec->model->segments.data[s];
    printf("segment %s x %lld\n", segment->name, (long long)segment->count);
    if (strcmp(pass, "graph") == 0)
      fputs(zp_graph_text(run->arena, segment->graph), stdout);
    else if (strcmp(pass, "shard") == 0)
      fputs(zp_graph_text(run->arena, l->sharding->local[s]), stdout);
    else if (strcmp(pass, "differentiate") == 0)
      fputs(zp_graph_text(run->arena, l->segments[s].graph), stdout);
    else if (strcmp(pass, "lower") == 0) {
      fputs(zp_procedure_text(run->arena, &l->segments[s].forward), stdout);
      fputs(zp_procedure_text(run->arena, &l->segments[s].backward), stdout);
    } else {
      return zp_usage_error("--dump-after is graph, shard, differentiate or lower, not `%s`", pass);
    }
  }
  return ZP_EXIT_OK;
}

static int write_plan(zp_run_state *run, const zp_plan *plan) {
  zp_json *json = zp_plan_to_json(run->arena, plan);
  const char *text = zp_json_text(run->arena, json, true), *error = NULL;
  zp_json_free(json);
  if (run->options.json) printf("%s\n", text);
  if (!run->options.output) return ZP_EXIT_OK;
  if (!zp_write_file(run->arena, run->options.output, text, strlen(text), &error)) {
    zp_report(run->diags, ZP_Z0641, ZP_NO_SPAN, "cannot write the plan: %s", error);
    zp_flush_diags(run);
    return ZP_EXIT_ERROR;
  }
  if (!run->options.json)
    printf("plan written to %s (zplan report, zplan explain, zplan verify, zplan build)\n", run->options.output);
  return ZP_EXIT_OK;
}

int zp_cmd_plan(zp_run_state *run) {
  zp_plan *plan = zp_obtain_plan(run, 0);
  if (!plan) return run->options.files.len == 1 ? ZP_EXIT_ERROR : ZP_EXIT_USAGE;
  if (run->options.dump && plan->feasible) return dump(run, plan);
  if (!run->options.json && plan->feasible) {
    fputs(zp_report_summary(run->arena, plan), stdout);
    fputs("\n", stdout);
    fputs(zp_report_memory(run->arena, plan), stdout);
  } else if (!plan->feasible) {
    fputs(zp_report_infeasible(run->arena, plan), stderr);
  }
  int status = write_plan(run, plan);
  return status == ZP_EXIT_OK && !plan->feasible ? ZP_EXIT_INFEASIBLE : status;
}
