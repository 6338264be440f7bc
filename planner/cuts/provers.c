/* The list of provers, in the order in which they are tried while a gap is left. Labels know most of 1F1B, chains take
 * what these leave, and everything of the other schedules. README.md has what each of them buys. */
#include "provers.h"

static bool has_labels(const zp_cut_problem *p) { return p->run_first != NULL; }

static bool bounds_before(const zp_cut_problem *p, zp_cut_turn turn) { return turn == ZP_CUT_BEFORE && p->chunks > 1; }

static bool labels_apply(const zp_cut_problem *p, zp_cut_turn turn) { return turn != ZP_CUT_BEFORE && has_labels(p); }

static bool chains_apply(const zp_cut_problem *p, zp_cut_turn turn) {
  return turn == ZP_CUT_DEEP || (turn == ZP_CUT_SHALLOW && !has_labels(p));
}

const zp_cut_prover zp_cut_provers[ZP_CUT_PROVERS] = {
    {"means", bounds_before, zp_prove_by_means},
    {"labels", labels_apply, zp_prove_by_labels},
    {"chains", chains_apply, zp_prove_by_chains},
};
