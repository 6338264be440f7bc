/* SPDX-License-Identifier: Apache-2.0 */
/* The list of provers, in the order in which they are tried while a gap is left. Labels know most of 1F1B, chains take
 * what these leave, and everything of the other schedules. README.md has what each of them buys. */
#include "provers.h"

#include <math.h>

static bool has_labels(const zp_cut_problem *p) { return p->run_first != NULL; }

static bool bounds_before(const zp_cut_problem *p, zp_cut_depth turn) { return turn == ZP_CUT_BEFORE && p->chunks > 1; }

static bool labels_apply(const zp_cut_problem *p, zp_cut_depth turn) { return turn != ZP_CUT_BEFORE && has_labels(p); }

static bool chains_apply(const zp_cut_problem *p, zp_cut_depth turn) {
  return turn >= ZP_CUT_DEEP || (turn == ZP_CUT_SHALLOW && !has_labels(p));
}

static bool has_callbacks(const zp_cut_problem *p) {
  bool of_chunks = p->chunks > 1 ? p->message_after_s && p->stage : p->cost && p->alike && p->growing_update_s;
  return of_chunks && p->may_grow && p->fits && p->run && p->chain && p->through && (!p->run_first || p->chunks == 1);
}

static bool has_numbers(const zp_cut_problem *p) {
  bool sums = p->forward_s && p->input_s && p->work_s;
  return sums && isfinite(p->work_s[p->units]) && p->message_s >= 0 && p->ties_s >= 0 && p->update_s >= 0 &&
         p->end_s >= 0 && p->bound_s >= 0;
}

bool zp_cut_problem_is_sound(const zp_cut_problem *p) {
  if (p->stages < 1 || p->chunks < 1 || p->chunks > ZP_CUT_MOST_CHUNKS || p->microbatches < 1) return false;
  if (p->units < zp_cut_places(p) || !p->stage_of || !p->chunk_of) return false;
  for (int k = 0; k < zp_cut_places(p); k++) {
    if (p->stage_of[k] < 0 || p->stage_of[k] >= p->stages) return false;
    if (p->chunk_of[k] < 0 || p->chunk_of[k] >= p->chunks) return false;
  }
  return has_numbers(p) && has_callbacks(p);
}

const zp_cut_prover zp_cut_provers[ZP_CUT_PROVERS] = {
    {"means", bounds_before, zp_prove_by_means},
    {"labels", labels_apply, zp_prove_by_labels},
    {"chains", chains_apply, zp_prove_by_chains},
};
