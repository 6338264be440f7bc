/* SPDX-License-Identifier: Apache-2.0 */
/* No plan leaves the command unproven: the verifier of plan files on what would be written, and the program played over
 * poisoned memory. What they find is a bug of ours, so nothing is printed, written or built, and the status says so. */
#include "driver.h"

#include <stdio.h>

/* Appends copies of findings that were made in memory of their own. */
static void keep(zp_arena *arena, const zp_strings *from, zp_strings *to) {
  for (int i = 0; i < from->len; i++) zp_push(arena, to, zp_strdup(arena, from->data[i]));
}

/* Appends what breaks the rules for plan files. */
static void check_rules(zp_arena *arena, const zp_plan *plan, zp_strings *findings) {
  zp_arena *scratch = zp_arena_new("proof");
  zp_strings found = {0};
  zp_arena *before = zp_json_make_in(scratch);
  zp_verify(scratch, plan->spec, zp_plan_to_json(scratch, plan), &found);
  zp_json_make_in(before);
  keep(arena, &found, findings);
  zp_arena_free(scratch);
}

static zp_strings find(const zp_run_state *run, zp_arena *arena, const zp_plan *plan) {
  zp_strings findings = {0};
  zp_begin_work(run, "proving");
  check_rules(arena, plan, &findings);
  zp_replay_program(arena, plan->program, &findings);
  zp_status_end();
  return findings;
}

/* "tensor=2 pipeline=4 ...": what brings somebody else to the same plan, or away from it. */
static const char *settings_of(zp_arena *arena, const zp_choice *c) {
  return zp_format(
      arena, "tensor=%d pipeline=%d data=%d context=%d zero=%d%s%s microbatch=%lld schedule=%s recompute=%s%s",
      c->tensor, c->pipeline, zp_replicas(c), zp_context_ranks(c), c->zero,
      c->shard > 0 ? zp_format(arena, " shard=%d", c->shard) : "",
      c->hpz > 0 ? zp_format(arena, " hpz=%d", c->hpz) : "", (long long)c->microbatch, zp_schedule_name(c->schedule),
      zp_stage_mode_name(zp_choice_mode(c, 0)), zp_choice_has_modes(c) ? " (other stages or layers differ)" : "");
}

static void say(zp_run_state *run, const zp_plan *plan, const zp_strings *findings, const char *title) {
  enum { MOST_SHOWN = 5 };
  zp_say_line(stderr, "error[Z0644]: %s", title);
  for (int i = 0; i < findings->len && i < MOST_SHOWN; i++) zp_say_line(stderr, "  %s", findings->data[i]);
  if (findings->len > MOST_SHOWN) zp_say_lines(stderr, "  and %d more\n", findings->len - MOST_SHOWN);
  zp_say_line(stderr, "  plan %s of %s: %s", zp_plan_hash(run->arena, plan->program), plan->spec->model->name,
              settings_of(run->arena, &plan->best.choice));
}

static bool refuse_bug(zp_run_state *run, const zp_plan *plan, const zp_strings *findings) {
  say(run, plan, findings, "this plan would not train the model; that is a bug of zplan, and nothing was written");
  zp_say_lines(stderr, "  help: please report these lines, the .dz file and the command (zplan explain Z0644).\n"
                       "        Other decisions may avoid it, for example --set 'recompute=\"none\"'\n");
  run->unsound = true;
  return false;
}

bool zp_prove_plan(zp_run_state *run, const zp_plan *plan) {
  if (!plan->feasible) return true;
  zp_strings findings = find(run, run->arena, plan);
  return findings.len == 0 || refuse_bug(run, plan, &findings);
}

bool zp_prove_plan_file(zp_run_state *run, const char *path, const zp_plan *plan) {
  zp_strings edited = {0}, findings = {0};
  check_rules(run->arena, plan, &edited);
  for (int i = 0; i < edited.len; i++) zp_report(run->diags, ZP_Z0642, ZP_NO_SPAN, "%s: %s", path, edited.data[i]);
  if (edited.len > 0) return false;
  zp_replay_program(run->arena, plan->program, &findings);
  return findings.len == 0 || refuse_bug(run, plan, &findings);
}

/* The plan of a candidate, as far as its proof needs it: the price is known. */
static const zp_plan *plan_of(zp_arena *arena, const zp_plan *best, const zp_candidate *candidate, const char **error) {
  zp_plan *plan = ZP_NEW(arena, zp_plan);
  const zp_choice *c = &candidate->choice;
  *plan = *best;
  plan->arena = arena;
  plan->alternatives.len = 0;
  plan->machine = zp_machine_make(&best->spec->cluster, best->spec->train.precision, zp_choice_ranks(c));
  const zp_sharding *sharding = zp_shard_choice(arena, best->spec->model, &plan->machine, c, error);
  zp_lowered **lowered = sharding ? zp_lower_stages(arena, best->spec, sharding, c, error) : NULL;
  if (!lowered) return NULL;
  plan->program = zp_program_make_priced(arena, zp_price_stages(lowered, &plan->machine, c), c);
  plan->best = *candidate;
  return plan;
}

void zp_prove_alternatives(zp_run_state *run, zp_plan *plan) {
  int kept = 0;
  for (int i = 0; i < plan->alternatives.len && plan->feasible; i++) {
    zp_arena *scratch = zp_arena_new("proof");
    const char *error = NULL;
    const zp_plan *other = plan_of(scratch, plan, &plan->alternatives.data[i], &error);
    zp_strings findings = {0};
    if (other) findings = find(run, scratch, other);
    if (!other) zp_push(scratch, &findings, error);
    if (findings.len == 0)
      plan->alternatives.data[kept++] = plan->alternatives.data[i];
    else
      say(run, other ? other : plan, &findings, "an alternative is left out: a bug of zplan, please report it");
    zp_arena_free(scratch);
  }
  if (plan->feasible) plan->alternatives.len = kept;
}
