/* SPDX-License-Identifier: Apache-2.0 */
/* Why nothing is legal, by arithmetic that a reader can redo: which limits, which numbers do not divide, with an
 * example. Counts every way to divide the devices once, under the first rule that it breaks. Decisions that do not go
 * together are together.c's; what only the search can refuse, splits of a model, stands in the certificate. */
#include "answers_internal.h"
#include <zplan/buf.h>

#include <math.h>

typedef enum rule {
  RULE_TENSOR,
  RULE_PIPELINE,
  RULE_DATA,
  RULE_IDLE,
  RULE_NODE,
  RULE_UNITS,
  RULE_BATCH,
  RULE_MICROBATCH,
  RULE_EXPERT,
  N_RULES
} rule;

typedef struct division {
  int tensor, pipeline, data;
} division;

typedef struct refusals {
  zp_arena *arena;
  const zp_plan *plan;
  const zp_constraints *limits;
  int64_t units;
  int context; /* the pinned one; what follows divides so many times fewer devices */
  int devices;
  int ways, broken[N_RULES];
  division example[N_RULES];
} refusals;

static const char *const keys[] = {"tensor", "pipeline", "data", "idle"};

static const zp_limit *degree_limit(const refusals *r, rule k) {
  const zp_limit *limits[] = {&r->limits->tensor, &r->limits->pipeline, &r->limits->data};
  return limits[k];
}

/* The only value that the limit allows; 0: there are several. */
static int pin_of(const zp_limit *limit) {
  if (!limit->set) return 0;
  if (limit->in.len == 1) return (int)limit->in.data[0];
  return limit->in.len == 0 && limit->low == limit->high ? (int)limit->low : 0;
}

/* Some micro-batch that the limit allows divides the sequences of a data rank. */
static bool some_microbatch(const refusals *r, int64_t sequences) {
  const zp_limit *limit = &r->limits->microbatch;
  for (int64_t m = 1; m * m <= sequences; m++)
    if (sequences % m == 0 && (zp_limit_allows(limit, (double)m) || zp_limit_allows(limit, (double)(sequences / m))))
      return true;
  return false;
}

/* Some number of expert ranks that the limit allows divides the data ranks and the experts of a tensor rank. */
static bool some_experts(const refusals *r, division w) {
  for (int e = 1; e <= w.data; e++)
    if (w.data % e == 0 && zp_limit_allows(&r->limits->expert, e) &&
        !zp_shard_refuse_experts(r->arena, r->plan->spec->model, w.tensor, e))
      return true;
  return false;
}

static rule first_broken(const refusals *r, division w) {
  const zp_spec *spec = r->plan->spec;
  const zp_node_type *node = r->plan->machine.node;
  if (!zp_limit_allows(&r->limits->tensor, w.tensor)) return RULE_TENSOR;
  if (!zp_limit_allows(&r->limits->pipeline, w.pipeline)) return RULE_PIPELINE;
  if (!zp_limit_allows(&r->limits->data, w.data)) return RULE_DATA;
  if (!zp_limit_allows(&r->limits->idle, r->plan->devices - w.tensor * w.pipeline * w.data * r->context))
    return RULE_IDLE;
  if (!node->device.is_cpu && !r->limits->tensor.set && w.tensor > node->devices) return RULE_NODE;
  if (w.pipeline > r->units) return RULE_UNITS;
  if (spec->train.batch % w.data != 0) return RULE_BATCH;
  if (!some_microbatch(r, spec->train.batch / w.data)) return RULE_MICROBATCH;
  return r->context > 1 || some_experts(r, w) ? N_RULES : RULE_EXPERT;
}

/* False when some way breaks no rule here. */
static bool count_ways(refusals *r) {
  int n = r->devices;
  for (int tensor = 1; tensor <= n; tensor++)
    for (int pipeline = 1; pipeline <= n / tensor; pipeline++)
      for (int data = 1; data <= n / tensor / pipeline; data++) {
        if (zp_uses_all(r->plan) && tensor * pipeline * data * r->context < r->plan->devices) continue;
        division w = {tensor, pipeline, data};
        rule k = first_broken(r, w);
        if (k == N_RULES) return false;
        r->ways++;
        if (r->broken[k]++ == 0) r->example[k] = w;
      }
  return true;
}

/* ---- words ---- */

static const char *neighbours(zp_arena *arena, int value, int devices) {
  int below = value, above = value;
  if (value > devices) return zp_format(arena, "%d does", devices);
  while (below > 1 && devices % --below != 0) {
  }
  while (above < devices && devices % ++above != 0) {
  }
  return zp_format(arena, "%d and %d do", below, above);
}

/* The pinned degrees alone settle it: their product is not the number of devices, or does not divide it, or is
 * larger. */
static const char *pinned_product(const refusals *r) {
  zp_buf product = zp_buf_new(r->arena);
  double all = 1; /* of what is pinned; exact up to 2^53, far above any number of devices */
  int pins = 0, degrees = 0, last = 0, n = r->plan->devices;
  if (r->context > 1) {
    zp_buf_printf(&product, "context %d", r->context);
    all = last = r->context;
    pins = 1;
  }
  for (int k = RULE_TENSOR; k <= RULE_DATA; k++) {
    int pin = pin_of(degree_limit(r, (rule)k));
    if (!pin) continue;
    zp_buf_printf(&product, "%s%s %d", pins ? " x " : "", keys[k], pin);
    all *= pin;
    last = pin;
    pins++;
    degrees++;
  }
  if (pins == 0 || (degrees == 3 ? all == n : fmod(n, all) == 0)) return NULL;
  if (!zp_uses_all(r->plan)) {
    if (all <= n) return NULL;
    return zp_format(r->arena, "%s are %.15g devices, and there are %d", product.data, all, n);
  }
  if (pins == 1)
    return zp_format(r->arena, "%s does not divide %d devices; %s", product.data, n, neighbours(r->arena, last, n));
  return zp_format(r->arena, "%s are %.15g devices, which %s %d", product.data, all,
                   degrees == 3 ? "is not" : "does not divide", n);
}

static const char *rule_words(const refusals *r, rule k) {
  const zp_spec *spec = r->plan->spec;
  const char *dropless;
  switch (k) {
  case RULE_TENSOR:
  case RULE_PIPELINE:
  case RULE_DATA:
  case RULE_IDLE: return zp_format(r->arena, "outside the limits on `%s`", keys[k]);
  case RULE_NODE: return zp_format(r->arena, "a tensor group larger than a node of %d", r->plan->machine.node->devices);
  case RULE_UNITS: return zp_format(r->arena, "more stages than the %lld units of the model", (long long)r->units);
  case RULE_BATCH:
    return zp_format(r->arena, "data ranks that do not divide the batch of %lld", (long long)spec->train.batch);
  case RULE_MICROBATCH: return "no allowed micro-batch divides the sequences of a data rank";
  case RULE_EXPERT:
    dropless = zp_model_dropless_refusal(r->arena, spec->model, pin_of(degree_limit(r, RULE_TENSOR)));
    if (dropless) return dropless;
    return zp_model_has_experts(spec->model)
               ? "no allowed `expert` divides the data ranks and the experts of a tensor rank"
               : "`expert` above 1, and a model without experts";
  case N_RULES: break;
  }
  return "";
}

zp_strings zp_explain_refusals(zp_arena *arena, const zp_plan *plan) {
  refusals r = {.arena = arena, .plan = plan, .limits = &plan->spec->plans.data[plan->spec->plan]};
  int context = pin_of(&r.limits->context);
  r.context = context > 0 ? context : 1;
  r.devices = plan->devices / r.context;
  zp_strings lines = {0};
  const zp_pieces *pieces = zp_limit_allows(&r.limits->cut, 1) ? zp_pieces_divided(arena, plan->spec->model) : NULL;
  r.units = (pieces ? pieces : zp_pieces_whole(arena, plan->spec->model))->n_units;
  if (!count_ways(&r)) return zp_explain_conflicts(arena, plan);
  const char *product = pinned_product(&r);
  if (product) {
    zp_push(arena, &lines, product);
    return lines;
  }
  zp_push(arena, &lines,
          zp_format(
              arena, "none of the %d ways to divide %s%d devices%s into tensor x pipeline x data is legal:", r.ways,
              zp_uses_all(plan) ? "" : "up to ", r.devices, r.context > 1 ? " of each place in a context group" : ""));
  for (int k = 0; k < N_RULES; k++)
    if (r.broken[k])
      zp_push(arena, &lines,
              zp_format(arena, "  %d: %s, for example %d x %d x %d", r.broken[k], rule_words(&r, (rule)k),
                        r.example[k].tensor, r.example[k].pipeline, r.example[k].data));
  return lines;
}
