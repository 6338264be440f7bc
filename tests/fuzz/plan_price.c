/* SPDX-License-Identifier: Apache-2.0 */
/* Prices of plans without the search: procedures of a family are sharded, lowered and priced once; of a plan the stages
 * are laid out and the step is simulated. */
#include <stdlib.h>
#include <zplan/abilities.h>
#include <zplan/cost.h>
#include "plan_fuzz.h"

/* What the plan block allows of the device; hosts and disks: an equal share for each rank of the node. */
static rank_room room_of(const fuzz *f, const zp_machine *machine) {
  double share = f->allowed->memory_fraction;
  int ranks = machine->devices < machine->devices_per_node ? machine->devices : machine->devices_per_node;
  return (rank_room){share * (double)machine->memory_bytes, machine->context_bytes,
                     (int64_t)(share * (double)machine->node->host_memory_bytes) / ranks,
                     (int64_t)(share * (double)machine->node->nvme_bytes) / ranks};
}

static bool mode_is_allowed(const fuzz *f, const zp_choice *c, zp_stage_mode mode) {
  bool split = zp_stage_mode_split(mode);
  if (split && (c->tensor == 1 || c->sequence)) return false;
  return zp_limit_allows(&f->allowed->recompute, zp_stage_mode_recompute(mode)) &&
         zp_limit_allows(&f->allowed->recompute_shard, split);
}

family *family_new(fuzz *f, const zp_choice *choice) {
  zp_arena *arena = zp_arena_new("family");
  family *of = ZP_NEW(arena, family);
  const char *reason = NULL;
  of->arena = arena;
  of->choice = *choice;
  of->choice.cut = NULL, of->choice.stage_recompute = NULL, of->choice.mix = NULL;
  of->machine = zp_machine_make(&f->spec->cluster, f->spec->train.precision, zp_choice_ranks(choice));
  zp_sharding *sharding = zp_shard_choice(arena, f->spec->model, &of->machine, choice, &reason);
  for (int i = 0; i < MODES && sharding; i++) {
    zp_choice one = of->choice; /* of a schedule whose procedures all others have, too */
    one.schedule = ZP_SCHEDULE_ZB_H1;
    if (!mode_is_allowed(f, &one, MODE[i])) continue;
    one.recompute = zp_stage_mode_recompute(MODE[i]);
    one.recompute_shard = zp_stage_mode_split(MODE[i]);
    zp_lowered **lowered = zp_lower_stages(arena, f->spec, sharding, &one, &reason);
    if (!lowered) continue;
    of->lowered[i] = zp_price_stages(lowered, &of->machine, &one);
    of->units = lowered[0]->n_units;
  }
  if (of->units < choice->pipeline) {
    zp_arena_free(arena);
    return NULL;
  }
  of->room = ZP_NEW_ARRAY(arena, rank_room, choice->pipeline);
  for (int s = 0; s < choice->pipeline; s++) {
    zp_machine at = zp_machine_of_stage(&of->machine, &of->choice, s);
    of->room[s] = room_of(f, &at);
  }
  return of;
}

void family_free(family *of) { zp_arena_free(of->arena); }

static bool is_mixed(const plan *p, int stage) { return p->layers[stage] > 0 && p->rest[stage] != p->mode[stage]; }

zp_choice choice_of(zp_arena *arena, const plan *p) {
  zp_choice c = p->choice;
  int places = c.pipeline * zp_chunks(&c);
  zp_stage_mode *mode = ZP_NEW_ARRAY(arena, zp_stage_mode, c.pipeline);
  zp_stage_mix *mix = ZP_NEW_ARRAY(arena, zp_stage_mix, c.pipeline);
  for (int s = 0; s < c.pipeline; s++) mode[s] = MODE[p->mode[s]];
  for (int s = 0; s < c.pipeline; s++)
    mix[s] = is_mixed(p, s) ? (zp_stage_mix){p->layers[s], MODE[p->rest[s]]} : (zp_stage_mix){ZP_ALL_LAYERS, mode[s]};
  c.cut = ZP_NEW_ARRAY(arena, int64_t, places + 1);
  memcpy(c.cut, p->cut, sizeof *c.cut * (size_t)(places + 1));
  zp_choice_set_modes(&c, mode);
  zp_choice_set_mix(&c, mix);
  return c;
}

static const zp_lowered **stages_of(zp_arena *arena, const family *of, const plan *p) {
  const zp_lowered **stage = ZP_NEW_ARRAY(arena, const zp_lowered *, p->choice.pipeline);
  for (int s = 0; s < p->choice.pipeline; s++) {
    stage[s] = of->lowered[p->mode[s]][s];
    if (is_mixed(p, s))
      stage[s] = zp_lower_mixed(arena, stage[s], (zp_lowered *)(uintptr_t)of->lowered[p->rest[s]][s], p->layers[s]);
  }
  return stage;
}

/* The first stage that needs more than its rank has; -1: none does. */
static int find_short_stage(const family *of, const zp_program *program) {
  for (int s = 0; s < program->choice.pipeline; s++) {
    const zp_memory *m = &program->stages[s].memory;
    const rank_room *room = &of->room[s];
    if ((double)(zp_memory_on_device(m) + room->context) > room->device || m->host > room->host || m->nvme > room->nvme)
      return s;
  }
  return -1;
}

verdict price_plan(fuzz *f, const family *of, const plan *p, double *step_s, int *short_of) {
  zp_arena_mark mark = zp_arena_get_mark(f->scratch);
  zp_choice c = choice_of(f->scratch, p);
  verdict result = PLAN_ILLEGAL;
  *short_of = -1;
  if (!zp_choice_refusal(&c, f->spec) && !zp_choice_refusal_complete(&c, f->spec) &&
      !zp_trainer_refusal(f->spec->cluster.trainer, &f->spec->train, &c)) {
    const zp_lowered **stages = stages_of(f->scratch, of, p);
    const zp_program *program = zp_program_make_stages(f->scratch, stages, &c);
    *short_of = find_short_stage(of, program);
    result = *short_of < 0 ? PLAN_FITS : PLAN_TOO_LARGE;
    if (result == PLAN_FITS && c.schedule != ZP_SCHEDULE_1F1B) program = zp_program_make(f->scratch, stages, &c);
    if (result == PLAN_FITS) *step_s = zp_cost_step(f->scratch, program, &of->machine);
  }
  zp_arena_rewind(f->scratch, mark);
  return result;
}

zp_json *plan_file(zp_arena *arena, const fuzz *f, const family *of, const plan *p) {
  zp_plan *plan = ZP_NEW(arena, zp_plan);
  zp_choice c = choice_of(arena, p);
  plan->arena = arena;
  plan->spec = f->spec;
  plan->devices = f->devices;
  plan->machine = of->machine;
  plan->program = zp_program_make(arena, stages_of(arena, of, p), &c);
  plan->best = (zp_candidate){plan->program->choice, zp_simulate(arena, plan->program, &plan->machine)};
  plan->feasible = true;
  plan->certificate.best_s = plan->best.estimate.step_s;
  return zp_plan_to_json(arena, plan);
}
