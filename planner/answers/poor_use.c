/* SPDX-License-Identifier: Apache-2.0 */
/* A plan that makes little of its devices: which term of the step is to blame, and whether far fewer devices take
 * hardly longer. Searches of a quarter, a sixteenth, ... of the devices, up to 5 % exact, as long as they look at no
 * more candidates together than the search for the plan did. */
#include <assert.h>
#include "answers_internal.h"

/* A plan that reaches less than this share of the peak is asked about. Measured trainings of large models reach 20 to
 * 60 %. */
static const double POOR_MFU = 0.15;
/* Device hours that must be saved, and how much longer a step may take, for fewer devices to be worth a line. */
static const double SAVES = 2, LONGER = 3;
static const double SEARCH_GAP = 0.05;
enum { STEP = 4, MOST_SIZES = 3 };

/* Finds the term that takes most of the step besides compute. */
static void find_largest_term(zp_poor_use *out, const zp_estimate *e) {
  const struct {
    const char *name;
    double seconds;
  } terms[] = {
#define TERM(field, name) {name, e->field},
      ZP_STEP_TERMS(TERM)
#undef TERM
  };
  out->term = terms[0].name; /* compute */
  out->term_s = terms[0].seconds;
  for (size_t i = 1; i < sizeof terms / sizeof *terms; i++)
    if (terms[i].seconds > out->term_s) out->term = terms[i].name, out->term_s = terms[i].seconds;
}

/* What the plan lacks where stages wait for each other. No numbers: nothing of it was planned. */
static const char *what_is_missing(zp_arena *arena, const zp_plan *plan, const zp_poor_use *poor) {
  const zp_choice *c = &plan->best.choice;
  int64_t microbatches = plan->program->microbatches;
  if (poor->term_s != plan->best.estimate.bubble_s || c->pipeline == 1 || microbatches >= 2 * (int64_t)c->pipeline)
    return NULL;
  return zp_format(
      arena, "%d stages have %lld micro-batch%s to work on, so most of them wait: a larger batch would fill them%s",
      c->pipeline, (long long)microbatches, microbatches == 1 ? "" : "es",
      zp_context_ranks(c) > 1
          ? ""
          : zp_format(arena, "; `context` would divide a sample of %lld positions over fewer stages",
                      (long long)plan->spec->model->sequence));
}

/* Whole nodes. */
static int fewer_devices(const zp_spec *spec, int devices) {
  int unit = zp_count_unit(spec), fewer = devices / STEP;
  return fewer > unit ? fewer / unit * unit : fewer;
}

/* Is the plan for fewer devices worth a line, and more so than the one before? */
static bool is_worth_it(const zp_poor_use *out, const zp_plan *best, const zp_candidate *fewer) {
  double longer = fewer->estimate.step_s / best->best.estimate.step_s;
  double saved = (double)zp_choice_ranks(&best->best.choice) / (double)zp_choice_ranks(&fewer->choice) / longer;
  return longer <= LONGER && saved >= SAVES && saved > out->times_fewer_hours;
}

bool zp_find_poor_use(zp_arena *arena, const zp_plan *plan, zp_poor_use *out) {
  assert(plan->feasible);
  const zp_estimate *e = &plan->best.estimate;
  *out = (zp_poor_use){0};
  if (plan->certificate.candidates == 0 || e->mfu >= POOR_MFU || plan->spec->cluster.node.device.is_cpu) return false;
  find_largest_term(out, e);
  out->missing = what_is_missing(arena, plan, out);
  int devices = (int)zp_choice_ranks(&plan->best.choice);
  int64_t looked_at = 0;
  for (int i = 0; i < MOST_SIZES && looked_at < plan->certificate.candidates; i++) {
    devices = fewer_devices(plan->spec, devices);
    if (devices < 1) break;
    zp_arena *scratch = zp_arena_new("poor use");
    const zp_plan *fewer = zp_search(scratch, zp_spec_with_devices(scratch, zp_plan_asked(plan), devices), devices,
                                     &(zp_search_options){.no_miss = true, .gap = SEARCH_GAP});
    looked_at += fewer->certificate.candidates;
    bool fits = fewer->feasible;
    if (fits && is_worth_it(out, plan, &fewer->best)) {
      out->devices = (int)zp_choice_ranks(&fewer->best.choice);
      out->times_longer = fewer->best.estimate.step_s / e->step_s;
      out->times_fewer_hours = (double)zp_choice_ranks(&plan->best.choice) / (double)out->devices / out->times_longer;
      out->fewer = zp_keep_candidate(arena, &fewer->best);
    }
    zp_arena_free(scratch);
    if (!fits) break;
  }
  return true;
}
