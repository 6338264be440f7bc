/* SPDX-License-Identifier: Apache-2.0 */
/* Draws plans of a model and cluster, prices them without the search, and lays the fastest alongside the certificate of
 * the search: none may be faster than the best plan less its gap, none may fit where the search says that nothing does.
 *
 *   price_plans FILE.dz --gpus N --count N --seed S [--set KEY=VALUE]... [--for PROGRAM] [--keep PLAN.json]
 *
 * The last line says what was found: name value pairs. Status 1: a plan that refutes the certificate, or one that the
 * verifier calls unsound; it is written to --keep. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <zplan/buf.h>
#include <zplan/software.h>
#include "../support/user_spec.h"
#include "plan_fuzz.h"

enum {
  PLANS_OF_A_CLIMB = 60,  /* changes of one start */
  CLIMBS_OF_A_FAMILY = 4, /* sharding and lowering take as long as some hundred plans */
  FIRST_SHARE = 2,        /* one in so many families has the degrees of the best plan */
  VERIFIED = 64           /* one in so many plans that fit goes through the verifier */
};

typedef struct tally {
  int64_t drawn, fit, verified, families;
  double fastest_s; /* of all that fit */
  int faults;
} tally;

typedef struct claim { /* of the search */
  bool feasible;
  double best_s, bound_s;
  zp_choice best;
} claim;

typedef struct options {
  const char *keep;
  zp_strings words; /* FILE.dz --gpus --set --for: those of `zplan plan` */
  long long gpus, count, seed;
} options;

static bool parse(zp_arena *arena, int argc, char **argv, options *o) {
  for (int i = 1; i < argc; i++) {
    const char *value = i + 1 < argc ? argv[i + 1] : NULL;
    if (argv[i][0] != '-') {
      zp_push(arena, &o->words, argv[i]);
      continue;
    }
    if (!value) return false;
    if (strcmp(argv[i], "--count") == 0) {
      o->count = atoll(value);
    } else if (strcmp(argv[i], "--seed") == 0) {
      o->seed = atoll(value);
    } else if (strcmp(argv[i], "--keep") == 0) {
      o->keep = value;
    } else {
      if (strcmp(argv[i], "--gpus") == 0) o->gpus = atoll(value);
      zp_push(arena, &o->words, argv[i]);
      zp_push(arena, &o->words, value);
    }
    i++;
  }
  return o->words.len && o->gpus > 0 && o->count > 0;
}

/* ---- faults ---- */

static void keep_file(const options *o, const zp_json *json, zp_arena *arena) {
  FILE *out = o->keep ? fopen(o->keep, "w") : NULL;
  if (!out) return;
  fputs(zp_json_text(arena, json, true), out);
  fclose(out);
}

/* Findings of the verifier. */
static int count_findings(fuzz *f, const family *of, const plan *p, const options *o, bool keep) {
  zp_arena *arena = zp_arena_new("verify");
  zp_json *json = plan_file(arena, f, of, p);
  zp_strings findings = {0};
  zp_verify(arena, f->spec, json, &findings);
  for (int i = 0; i < findings.len; i++) printf("finding %s\n", findings.data[i]);
  if (keep || findings.len) keep_file(o, json, arena);
  zp_json_free(json);
  zp_arena_free(arena);
  return findings.len;
}

static const char *words_of(zp_arena *arena, const plan *p, double step_s) {
  zp_choice c = choice_of(arena, p);
  zp_buf out = zp_buf_new(arena);
  zp_buf_printf(&out,
                "step %.9g tensor %d pipeline %d data %d expert %d zero %d microbatch %lld %s chunks %d loss_chunks %d "
                "order %s%s%s%s",
                step_s, c.tensor, c.pipeline, c.data, zp_expert_ranks(&c), c.zero, (long long)c.microbatch,
                zp_schedule_name(c.schedule), zp_chunks(&c), zp_loss_chunks(&c), zp_rank_order_name(c.order),
                c.sequence ? " sequence" : "", c.fine ? " fine" : "", c.compress ? " compress" : "");
  for (int i = 0; i < ZP_STATE_COUNT; i++)
    if (c.home[i].eighths)
      zp_buf_printf(&out, " %s %d/8 %s", zp_state_name((zp_state)i), c.home[i].eighths, zp_tier_name(c.home[i].tier));
  zp_buf_puts(&out, " cut");
  for (int k = 0; k < c.pipeline * zp_chunks(&c); k++)
    zp_buf_printf(&out, " %lld", (long long)(c.cut[k + 1] - c.cut[k]));
  zp_buf_puts(&out, " modes");
  for (int s = 0; s < c.pipeline; s++) zp_buf_printf(&out, " %s", zp_stage_mode_name(zp_choice_mode(&c, s)));
  return out.data;
}

/* A plan that fits: does it refute the claim? Only a plan that is faster than those before it is told. */
static void judge(fuzz *f, const family *of, const plan *p, double step_s, const claim *said, const options *o,
                  tally *t) {
  bool first = step_s < t->fastest_s * (1 - ZP_GAP_TOLERANCE);
  bool refutes = !said->feasible || step_s < said->bound_s * (1 - ZP_GAP_TOLERANCE);
  t->fastest_s = fmin(t->fastest_s, step_s);
  if (refutes && first) {
    t->faults++;
    if (said->feasible)
      printf("faster by %.3g %% %s\n", 100 * (1 - step_s / said->bound_s), words_of(f->scratch, p, step_s));
    else
      printf("fits %s\n", words_of(f->scratch, p, step_s));
  }
  if (t->fit % VERIFIED == 0 || (refutes && first)) {
    t->verified++;
    if (count_findings(f, of, p, o, refutes) > 0) {
      t->faults++;
      printf("unsound %s\n", words_of(f->scratch, p, step_s));
    }
  }
}

/* ---- climbs ---- */

static bool try_plan(fuzz *f, const family *of, const plan *p, const claim *said, const options *o, tally *t,
                     double *step_s, int *short_of) {
  t->drawn++;
  if (price_plan(f, of, p, step_s, short_of) != PLAN_FITS) return false;
  t->fit++;
  judge(f, of, p, *step_s, said, o, t);
  return true;
}

/* Changes that make the plan no slower stay; before any plan fits, all that are legal do. */
static void climb(fuzz *f, const family *of, plan *p, const claim *said, const options *o, tally *t) {
  double now_s = HUGE_VAL, step_s = HUGE_VAL;
  int short_of = -1, last_short = -1;
  if (try_plan(f, of, p, said, o, t, &now_s, &last_short)) last_short = -1;
  for (int i = 0; i < PLANS_OF_A_CLIMB && t->drawn < o->count; i++) {
    plan next = *p;
    change_plan(f, of, &next, last_short);
    bool fits = try_plan(f, of, &next, said, o, t, &step_s, &short_of);
    bool stays = fits ? step_s <= now_s * (fuzz_below(f, 8) ? 1 : 1.01) : short_of >= 0 && isinf(now_s);
    if (!stays) continue;
    *p = next;
    if (fits) now_s = step_s;
    last_short = fits ? -1 : short_of;
  }
}

static bool same_family(const zp_choice *a, const zp_choice *b) {
  return a->tensor == b->tensor && a->pipeline == b->pipeline && a->data == b->data && a->sequence == b->sequence &&
         a->microbatch == b->microbatch && a->loss_chunks == b->loss_chunks && a->order == b->order &&
         a->fine == b->fine && zp_expert_ranks(a) == zp_expert_ranks(b);
}

static void search_family(fuzz *f, const zp_choice *choice, const claim *said, const options *o, tally *t) {
  family *of = family_new(f, choice);
  if (!of) return;
  t->families++;
  bool of_best = said->feasible && same_family(choice, &said->best);
  for (int i = 0; i < (of_best ? 2 : 1) * CLIMBS_OF_A_FAMILY && t->drawn < o->count; i++) {
    plan p;
    if (of_best && i % 2)
      copy_choice(of, &said->best, &p);
    else
      draw_plan(f, of, &p);
    climb(f, of, &p, said, o, t);
  }
  family_free(of);
}

static tally refute(fuzz *f, const claim *said, const options *o) {
  tally t = {.fastest_s = HUGE_VAL};
  if (said->feasible) search_family(f, &said->best, said, o, &t);
  for (int64_t tries = 0; t.drawn < o->count && tries < 20 * o->count; tries++) {
    zp_choice choice;
    bool near = said->feasible && fuzz_below(f, FIRST_SHARE) == 0;
    zp_arena_mark mark = zp_arena_get_mark(f->scratch);
    bool legal = draw_family(f, near ? &said->best : NULL, &choice);
    if (legal) search_family(f, &choice, said, o, &t);
    zp_arena_rewind(f->scratch, mark);
  }
  return t;
}

int main(int argc, char **argv) {
  options o = {0};
  zp_arena *arena = zp_arena_new("price_plans");
  if (!parse(arena, argc, argv, &o)) {
    fprintf(stderr, "usage: price_plans FILE.dz --gpus N --count N --seed S [--set KEY=VALUE]... [--for PROGRAM] "
                    "[--keep PLAN.json]\n");
    return 2;
  }
  const zp_spec *spec = user_spec(arena, o.words.data, o.words.len);
  if (!spec) return 2;
  const zp_plan *found = zp_search(arena, spec, (int)o.gpus, NULL);
  claim said = {found->feasible, found->certificate.best_s, found->certificate.bound_s, found->best.choice};
  fuzz f = {.spec = spec,
            .allowed = &spec->plans.data[spec->plan],
            .devices = (int)o.gpus,
            .random = (uint64_t)o.seed * 2 + 1,
            .scratch = zp_arena_new("scratch")};
  tally t = refute(&f, &said, &o);
  printf("program %s feasible %d best %.9g bound %.9g fastest %.9g families %lld drawn %lld fit %lld verified %lld "
         "faults %d\n",
         zp_trainer_word(spec->cluster.trainer), said.feasible, said.best_s, said.bound_s,
         isfinite(t.fastest_s) ? t.fastest_s : 0, (long long)t.families, (long long)t.drawn, (long long)t.fit,
         (long long)t.verified, t.faults);
  zp_arena_free(f.scratch);
  zp_arena_free(arena);
  return t.faults > 0;
}
