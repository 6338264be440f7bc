/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of gradients in bf16, rounded stochastically (train { gradient_sums = "bf16_stochastic" }): where ZeRO 2 and 3
 * add a micro-batch's gradients, which data ranks have summed in f32, to a rank's shard, the shard is bf16. It moves
 * nothing; regions, norm and update take lowered->sum_bytes.
 *
 * Bounds of an element's sum after n additions whose magnitudes add up to S. u = 2^-8 is half the spacing of numbers,
 * as a share of them, and e = 2 u. After Connolly, Higham and Mary, "Stochastic rounding and its probabilistic backward
 * error analysis", SIAM J. Sci. Comput. 43, 2021.
 *
 * Mean: rounding is unbiased whatever came before, so the expected sum is the exact one, and the variances of single
 * roundings add up.
 *
 * Few additions: the variance of one rounding is at most u^2 times the expected square of the rounded number, so
 * v_k <= v_{k-1} + u^2 (S^2 + v_{k-1}) and v_n <= ((1 + u^2)^n - 1) S^2, about n u^2 S^2.
 *
 * Many additions: the variance of one rounding is p (1 - p) spacing^2, where p or 1 - p times the spacing is at most
 * |addend|, because the sum before it was on the grid. All variances add up to d^2 <= e S (S + d), so
 * d <= (e + sqrt(e^2 + 4 e)) / 2 S, however many additions there are.
 *
 * Probability: the error is within lambda sqrt(n) u S, to first order, with a probability of at least
 * 1 - 2 exp(-lambda^2 / 2) (Hoeffding).
 *
 * Worst case: one rounding is off by less than the spacing, so n of them by less than ((1 + e)^n - 1) S. */
#include "strategy.h"

#include <math.h>
#include <zplan/buf.h>
#include <zplan/gradient_sums.h>

static bool applies(const zp_move_scope *x) { return x->lowered->spec->train.stochastic_sums; }

static void make(const zp_move_scope *x, zp_on_move *emit, void *user) { (void)x, (void)emit, (void)user; }

static const char *explain(zp_arena *arena, const zp_move_scope *x) {
  return zp_format(arena, "sums of gradients take %d bytes an element, every addition rounded stochastically",
                   x->lowered->sum_bytes);
}

static bool has_loads(const zp_model *model) {
  for (int i = 0; i < model->params.len; i++)
    if (model->params.data[i].sign_rate > 0) return true;
  return false;
}

/* Gradients of f32 trainings are no wider than their sums; optimizers that take lengths of tensors or whole matrices
 * read gradients in ways of their own. */
static const char *not_with(const zp_spec *spec) {
  const zp_train *train = &spec->train;
  if (!zp_is_mixed(train)) return train->precision == ZP_PREC_F64 ? "precision \"fp64\"" : "precision \"fp32\"";
  if (zp_optimizer_facts(train)->needs) return zp_optimizer_name(train->optimizer);
  if (has_loads(spec->model)) return "`bias_rate`, whose signs are gradients";
  return spec->cluster.trainer == ZP_TRAINER_ZPLAN || spec->cluster.trainer == ZP_TRAINER_NONE
             ? NULL
             : zp_trainer_title(spec->cluster.trainer);
}

static zp_move_objection objects(zp_arena *arena, const zp_spec *spec) {
  const char *other = spec->train.stochastic_sums ? not_with(spec) : NULL;
  if (!other) return (zp_move_objection){.why = NULL};
  return (zp_move_objection){spec->train.sums_span,
                             zp_format(arena, "`gradient_sums = \"bf16_stochastic\"` does not go with %s", other),
                             "leave it out; it is for precisions \"mixed_bf16\" and \"mixed_fp16\", optimizers that "
                             "update element by element and "
                             "zplan's own trainer"};
}

/* With ZeRO 0 and 1 kernels add to the sums themselves, and on hosts f32 is added. */
static const char off_device[] = "`gradient_sums` in bf16 stay on the device, and so does the optimizer's state";
static const char whole[] = "`gradient_sums` in bf16 are those of ZeRO 2 and 3";

static const char *refuses(const zp_choice *c, const zp_spec *spec) {
  if (!spec->train.stochastic_sums) return NULL;
  if (not_with(spec)) return "`gradient_sums` in bf16 do not go with the training, or the program";
  if (!zp_shards_gradients(c)) return whole;
  if (c->home[ZP_STATE_GRADIENTS].eighths > 0 || c->home[ZP_STATE_OPTIMIZER].eighths > 0) return off_device;
  return NULL;
}

static zp_move_limits limits(const zp_spec *spec) {
  static const char leave_out[] = "leave it or `gradient_sums` out";
  static const zp_move_limit rows[] = {
      {.key = "zero",
       .offset = offsetof(zp_constraints, zero),
       .highest = 3,
       .keep = ZP_BIT(2) | ZP_BIT(3),
       .unwritten = true,
       .why = whole,
       .help = "zero = 2 or 3, or leave `gradient_sums` out; one data rank has these, too"},
      {ZP_LIMIT_OFFLOAD(ZP_STATE_GRADIENTS, "gradients"), .keep = ZP_ON_DEVICE, .why = off_device, .help = leave_out},
      {ZP_LIMIT_OFFLOAD(ZP_STATE_OPTIMIZER, "optimizer"), .keep = ZP_ON_DEVICE, .why = off_device, .help = leave_out}};
  return ZP_LIMITS_IF(spec->train.stochastic_sums, rows);
}

/* A sum over stages is rounded again, and so is one over tensor ranks: the most that a parameter has of both. */
static int64_t roundings_of_sums(const zp_program *p) {
  bool partial = p->choice.tensor > 1 && p->lowered->sharding->partial;
  for (int i = 0; partial && i < p->tied.len; i++)
    if (p->lowered->sharding->param[p->tied.data[i].param].grad_partial) return 2;
  return p->tied.len > 0 || partial;
}

/* Every micro-batch adds once for every unit of a stage that uses a parameter. */
static int64_t most_additions(const zp_program *p) {
  int64_t most = 1;
  for (int s = 0; s < p->choice.pipeline; s++)
    for (int i = 0; i < p->lowered->shared.len; i++) {
      int64_t uses = 0;
      for (int r = 0; r < p->stages[s].runs.len; r++) {
        const zp_run *run = &p->stages[s].runs.data[r];
        uses += zp_program_lowered(p, s)->segments[run->segment].uses_shared[i] ? run->count : 0;
      }
      if (uses > most) most = uses;
    }
  return p->microbatches * most + roundings_of_sums(p);
}

zp_gradient_sums zp_gradient_sums_after(int64_t additions) {
  const double u = ZP_STOCHASTIC_ROUNDOFF, e = 2 * u, n = (double)additions;
  double few = sqrt(expm1(n * log1p(u * u))), many = (e + sqrt(e * e + 4 * e)) / 2;
  return (zp_gradient_sums){.additions = additions, .deviation = few < many ? few : many, .worst = expm1(n * log1p(e))};
}

zp_gradient_sums zp_gradient_sums_of(const zp_program *program) {
  return zp_gradient_sums_after(most_additions(program));
}

const zp_move_strategy zp_stochastic_sums = {
    .name = "stochastic sums",
    .applies = applies,
    .make = make,
    .explain = explain,
    .refuses = refuses,
    .objects = objects,
    .limits = limits,
};
