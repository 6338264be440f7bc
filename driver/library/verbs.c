/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs of the library, in place of ../verbs.c: those whose answer is a value. What is linked follows from them. */
#include "driver.h"

static const zp_verb verbs[] = {
    {"check", zp_cmd_check, "FILE.dz", "shapes, parameter count, lints", true},
    {"compare", zp_cmd_compare, "FILE.dz|PLAN.json...", "whole plans side by side", true},
    {"diff", zp_cmd_diff, "PLAN.json PLAN.json", "what differs between two plans", true},
    {"explain", zp_cmd_explain, "WORD | CODE | FILE.dz|PLAN.json", "a word, a message, why a plan is best", true},
    {"machines", zp_cmd_machines, "[WORD...]", "nodes and devices by name", true},
    {"models", zp_cmd_models, "[WORD...]", "published models by name", true},
    {"plan", zp_cmd_plan, "FILE.dz", "search the best plan", true},
    {"report", zp_cmd_report, "PLAN.json", "tables, HTML and Chrome trace of a plan", false},
    {"validate", zp_cmd_validate, "RUNS.csv...", "predict a table of measured runs", true},
    {"verify", zp_cmd_verify, "PLAN.json", "prove a plan file", false},
};
enum { N_VERBS = sizeof verbs / sizeof *verbs };
const char zp_exit_statuses[] = "0 done, 1 error in the input or the work, 2 usage, 3 no feasible plan,\n"
                                "4 diff found a difference, 70 a bug of zplan, 130 asked to leave";

int zp_verb_count(void) { return N_VERBS; }

const zp_verb *zp_verb_at(int index) { return &verbs[index]; }

const zp_verb *zp_find_verb(const char *name) {
  for (int i = 0; i < N_VERBS; i++)
    if (strcmp(verbs[i].name, name) == 0) return &verbs[i];
  return NULL;
}
