/* SPDX-License-Identifier: Apache-2.0 */
/* zplan verify: the independent proof, the file against what its own decisions give when lowered again, and the program
 * of that over poisoned memory. */
#include "driver.h"

#include <math.h>
#include <stdio.h>

static const char *show(zp_arena *arena, const zp_json *value) {
  const char *text = zp_json_text(arena, value, false);
  return strlen(text) > 60 ? zp_format(arena, "%.60s...", text) : text;
}

static void compare(zp_arena *arena, const char *path, const zp_json *file, const zp_json *again, zp_strings *findings);

static void compare_objects(zp_arena *arena, const char *path, const zp_json *file, const zp_json *again,
                            zp_strings *findings) {
  const char *key;
  for (int i = 0; (key = zp_json_key(again, i)); i++)
    compare(arena, zp_format(arena, "%s.%s", path, key), zp_json_get(file, key), zp_json_get(again, key), findings);
  for (int i = 0; (key = zp_json_key(file, i)); i++)
    if (!zp_json_get(again, key))
      zp_push(arena, findings, zp_format(arena, "%s.%s is in the file and nothing that a plan has", path, key));
}

/* Deep comparison of one key; reals to 1e-9 (they are written with 12 digits). */
static void compare(zp_arena *arena, const char *path, const zp_json *file, const zp_json *again,
                    zp_strings *findings) {
  if (findings->len >= 20) return;
  if (!file) {
    zp_push(arena, findings, zp_format(arena, "%s is missing", path));
    return;
  }
  const char *a = zp_json_text(arena, file, false), *b = zp_json_text(arena, again, false);
  if (strcmp(a, b) == 0) return;
  if (zp_json_is_array(file) && zp_json_is_array(again) && zp_json_count(file) == zp_json_count(again)) {
    for (int i = 0; i < zp_json_count(file); i++)
      compare(arena, zp_format(arena, "%s[%d]", path, i), zp_json_at(file, i), zp_json_at(again, i), findings);
    return;
  }
  if (zp_json_is_object(file) && zp_json_is_object(again)) {
    compare_objects(arena, path, file, again, findings);
    return;
  }
  double x = zp_json_real(file, NAN), y = zp_json_real(again, NAN);
  bool counts = zp_json_is_int(file) && zp_json_is_int(again); /* bytes and the like: those that differ are different */
  if (!counts && fabs(x - y) <= 1e-9 * fmax(fabs(x), fabs(y))) return;
  zp_push(
      arena, findings,
      zp_format(arena, "%s is %s in the file and %s when derived again", path, show(arena, file), show(arena, again)));
}

/* The plan of a file's decisions; NULL, with a finding, where they make none. */
static zp_plan *derive(zp_run_state *run, const zp_spec *spec, const zp_json *json, zp_strings *findings) {
  const char *error = NULL;
  zp_plan *plan = zp_plan_of_file(run->arena, spec, json, &error);
  if (!plan) zp_push(run->arena, findings, error);
  return plan;
}

/* What says how the plan was found, and from what: it does not follow from decisions. */
static bool is_provenance(const char *key) {
  static const char *const keys[] = {"certificate", "rejected", "fastest",       "alternatives",
                                     "options",     "sources",  "format_version"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (strcmp(key, keys[i]) == 0) return true;
  return false;
}

static void check_derived(zp_run_state *run, const zp_plan *plan, const zp_json *json, zp_strings *findings) {
  zp_json *again = zp_plan_to_json(run->arena, plan);
  const char *key;
  for (int i = 0; (key = zp_json_key(again, i)); i++)
    if (!is_provenance(key)) compare(run->arena, key, zp_json_get(json, key), zp_json_get(again, key), findings);
  zp_json_free(again);
}

/* The order of the stages was written by hand: a decision, from which slots, buffers and times follow that the file
 * does not have. What follows is proven instead. */
static bool is_edited(zp_run_state *run, const zp_plan *plan, const zp_json *json) {
  return plan->program->choice.own_order &&
         strcmp(zp_json_get_string(json, "plan_hash", ""), zp_plan_hash(run->arena, plan->program)) != 0;
}

static void say_edited(zp_run_state *run, const zp_plan *plan, const zp_json *json) {
  const zp_estimate *e = &plan->best.estimate;
  double was = zp_json_real(zp_json_get(zp_json_get(json, "estimate"), "step_s"), 0);
  zp_say_lines(stdout, "%s: sound with the order of its stages (plan %s): %s a step, %s on the fullest device\n",
               run->options.files.data[0], zp_plan_hash(run->arena, plan->program),
               zp_show_seconds(run->arena, e->step_s), zp_show_bytes(run->arena, e->peak_bytes));
  if (run->options.output) return;
  zp_say_lines(
      stdout,
      "  its other numbers are of the order before (%s a step); -o FILE writes a plan with those of this order\n",
      zp_show_seconds(run->arena, was));
}

/* -o: the plan as it was derived, in a file of its own. */
static int write_derived(zp_run_state *run, const zp_plan *plan) {
  if (!run->options.output) return ZP_EXIT_OK;
  zp_json *json = zp_plan_to_json(run->arena, plan);
  zp_set_model_folder(run->arena, json, plan->spec, run->options.output);
  return zp_write_plan(run, json);
}

int zp_cmd_verify(zp_run_state *run) {
  zp_json *json;
  zp_spec *spec = zp_load_input(run, &json);
  if (!spec) return run->options.files.len == 1 ? ZP_EXIT_ERROR : ZP_EXIT_USAGE;
  if (!json) return zp_usage_error("`zplan verify` wants a plan file (zplan FILE.dz -o PLAN.json makes one)");
  zp_strings findings = {0};
  zp_begin_work(run, "verifying");
  zp_plan *plan = derive(run, spec, json, &findings);
  bool edited = plan && is_edited(run, plan, json);
  zp_json *proven = edited ? zp_plan_to_json(run->arena, plan) : json;
  if (plan) zp_verify(run->arena, plan->spec, proven, &findings);
  if (findings.len == 0) check_derived(run, plan, proven, &findings);
  if (findings.len == 0) zp_replay_program(run->arena, plan->program, &findings);
  zp_status_end();
  if (plan) zp_result_text(run, "plan_hash", zp_plan_hash(run->arena, plan->program));
  for (int i = 0; i < findings.len && run->options.json; i++)
    zp_report(run->diags, ZP_Z0642, ZP_NO_SPAN, "%s", findings.data[i]);
  for (int i = 0; i < findings.len; i++) zp_say_line(stderr, "error[Z0642]: %s", findings.data[i]);
  if (findings.len == 0 && edited)
    say_edited(run, plan, json);
  else if (findings.len == 0)
    zp_say_lines(stdout, "%s: sound (plan %s)\n", run->options.files.data[0],
                 zp_json_get_string(json, "plan_hash", ""));
  if (edited) zp_json_free(proven);
  zp_json_free(json);
  return findings.len ? ZP_EXIT_ERROR : write_derived(run, plan);
}
