/* SPDX-License-Identifier: Apache-2.0 */
/* The gate of zplan's own GPU trainer, as its kernels walk (kernels/cuda/zpd_experts.cuh). They have few threads, and a
 * thread works on one score after the other, so they take the time of these and not of the bytes that move:
 *
 *   choose    a thread a token. With sigmoids a score that is considered is an exponential and a division, in f64: all
 *             experts for every group that is kept, less those of groups that are, then the experts of these for every
 *             choice. Without, it is compared; exponentials are those of the weights
 *   places    a block a sample, a thread an expert: all choices of the sample, one after the other
 *   gradient  a thread a token: exponentials of all experts for the sum, for the balancing loss's mean, and for each
 *             expert's own; with a balancing loss a block counts its sample's choices before
 *   load      one block for 256 experts: all choices of the micro-batch
 *
 * With more threads than the device runs at once, exponentials count at its rate for f64. */
#include <assert.h>
#include <math.h>
#include <zplan/constants.h>
#include <zplan/own_gpu.h>
#include <zplan/rates.h>

enum { THREADS = 256 }; /* of a block */

static double max1(double x) { return fmax(1, x); }

/* A score of `exps` exponentials and `looks` comparisons of every thread, `threads` of them. */
static double serial_s(const zp_machine *machine, double threads, double exps, double looks) {
  double f64 = machine->node->device.flop_per_s_fp64;
  double one = exps * zp_cost_constant(ZP_COST_OWN_GATE_EXP_S) + looks * zp_cost_constant(ZP_COST_OWN_GATE_CHOICE_S);
  double all = f64 > 0 ? threads * exps * zp_cost_constant(ZP_COST_OWN_GATE_EXP_FLOP) / f64 : 0;
  return fmax(one, all);
}

/* A block passes over `choices` once for every 256 experts. */
static double counted_s(double experts, double choices) {
  return ceil(experts / THREADS) * choices * zp_cost_constant(ZP_COST_OWN_GATE_CHOICE_S);
}

/* Scores that a token looks at before it has its groups and its experts. */
static double scores_looked_at(const zp_gate_shape *g) {
  double groups = (double)g->groups, of_group = (double)g->experts / max1(groups), looked = 0;
  for (int64_t i = 0; i < g->top_groups && g->groups > 0; i++) looked += ((double)(g->groups - i)) * of_group;
  double kept = g->groups > 0 ? (double)g->top_groups * of_group : (double)g->experts;
  return looked + (double)g->top_k * kept;
}

double zp_cost_gate(const zp_machine *machine, const zp_gate_shape *g) {
  assert(g->samples >= 1 && g->tokens >= 1 && g->experts >= 1 && g->top_k >= 1);
  double looked = scores_looked_at(g), of_weights = g->normalize || g->sigmoid ? (double)g->top_k : (double)g->experts;
  double exps = (g->sigmoid ? looked : 0) + of_weights + (double)g->top_k,
         waves = ceil((double)g->samples / zp_cost_units(machine));
  return serial_s(machine, (double)(g->samples * g->tokens), exps, g->sigmoid ? 0 : looked) +
         waves * counted_s((double)g->experts, (double)(g->tokens * g->top_k));
}

double zp_cost_gate_gradient(const zp_machine *machine, const zp_gate_shape *g) {
  assert(g->samples >= 1 && g->tokens >= 1 && g->experts >= 1 && g->top_k >= 1);
  double experts = (double)g->experts, passes = 2 + g->sigmoid + g->balance;
  double counted = g->balance ? counted_s(experts, (double)(g->tokens * g->top_k)) : 0;
  return serial_s(machine, (double)(g->samples * g->tokens), passes * experts + 3 * (double)g->top_k,
                  experts * (double)g->top_k) +
         counted;
}

double zp_cost_gate_load(const zp_gate_shape *g) {
  assert(g->samples >= 1 && g->tokens >= 1 && g->top_k >= 1);
  return counted_s(THREADS, (double)(g->samples * g->tokens * g->top_k));
}
