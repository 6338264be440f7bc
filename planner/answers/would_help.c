/* SPDX-License-Identifier: Apache-2.0 */
/* Settings under which a poor plan becomes a better one. A change is a changed copy of the input and a search of it;
 * only what that search found is said, with its figures. All of them share one budget of work. */
#include <assert.h>
#include <stdlib.h>
#include "answers_internal.h"

/* Work of all of them: as much as the search for the plan took, up to some seconds, and two seconds. */
static const int64_t WORK_MORE = 4000000, WORK_MOST = 12000000;
/* How exact the searches are, and how much faster than the plan a change must be to be worth a line. */
static const double SEARCH_GAP = 0.05, FASTER = 1.1, SLOW = 4;
enum { BATCH_TIMES = 4, MOST_BATCH_TIMES = 16, MOST_LINES = 3 };

typedef struct asking {
  zp_arena *arena;
  const zp_plan *plan;
  zp_shared_work left;
  zp_helps found;
} asking;

static zp_spec *copy_of(const asking *a) { return zp_copy_spec(a->arena, zp_plan_asked(a->plan)); }

/* Searches the changed input; of a training with so many times the samples a step may take as many times as long.
 * False: it is not faster, or not known to be. */
static bool is_faster(asking *a, const zp_spec *changed, double samples, zp_candidate *best, double *times) {
  double step_s = a->plan->best.estimate.step_s * samples;
  if (a->left <= 0) return false;
  zp_arena *scratch = zp_arena_new("would help");
  const zp_search_options options = {
      .no_miss = true, .gap = SEARCH_GAP, .work = (a->left + 1) / 2, .rival_s = step_s / FASTER};
  const zp_plan *plan = zp_search(scratch, changed, a->plan->devices, &options);
  a->left -= plan->certificate.work < a->left ? plan->certificate.work : a->left;
  bool faster = plan->feasible && plan->best.estimate.step_s * FASTER <= step_s;
  if (faster) {
    *best = zp_keep_candidate(a->arena, &plan->best);
    *times = step_s / plan->best.estimate.step_s;
  }
  zp_arena_free(scratch);
  return faster;
}

static bool propose(asking *a, const zp_spec *changed, double samples, zp_help help) {
  if (!is_faster(a, changed, samples, &help.best, &help.times_faster)) return false;
  zp_push(a->arena, &a->found, help);
  return true;
}

/* ---- context ---- */

static void divide_positions(asking *a) {
  zp_spec *changed = copy_of(a);
  if (zp_context_ranks(&a->plan->best.choice) > 1) return;
  if (!zp_allow_context(a->arena, changed, a->plan->devices)) return;
  if (!propose(a, changed, 1, (zp_help){.kind = ZP_HELP_CONTEXT})) return;
  zp_help *found = &a->found.data[a->found.len - 1];
  found->words = found->option = zp_format(a->arena, "context=%d", zp_context_ranks(&found->best.choice));
}

/* ---- memory ---- */

/* State and kept values on the host, where memory is what makes the plan slow. */
static void offload(asking *a) {
  static const struct {
    zp_state state;
    const char *key;
  } rows[] = {{ZP_STATE_ACTIVATIONS, "activations"}, {ZP_STATE_OPTIMIZER, "optimizer"}};
  const zp_choice *best = &a->plan->best.choice;
  bool short_of_memory = zp_shards_params(best) || best->stage_recompute || best->recompute != ZP_RECOMPUTE_NONE;
  if (!short_of_memory || a->plan->spec->cluster.node.host_memory_bytes <= 0) return;
  for (int i = 0; i < 2; i++) {
    zp_spec *changed = copy_of(a);
    zp_limit *limit = &zp_copied_constraints(changed)->offload[rows[i].state];
    if (limit->span.file >= 0 || best->home[rows[i].state].eighths) continue;
    *limit = (zp_limit){.set = true, .low = ZP_TIER_HOST, .high = ZP_TIER_HOST, .span = ZP_NO_SPAN};
    const char *option = zp_format(a->arena, "'offload[%s]=cpu'", rows[i].key);
    propose(a, changed, 1, (zp_help){.kind = ZP_HELP_OFFLOAD, .words = option, .option = option});
  }
}

/* ---- limits of the plan block ---- */

/* What the language takes where nothing is written. */
static void set_defaults(zp_constraints *c) {
  const zp_limit none = {.set = true, .span = ZP_NO_SPAN};
  for (int s = 0; s < ZP_STATE_COUNT; s++)
    if (!c->offload[s].set) c->offload[s] = none;
  if (!c->compress.set) c->compress = none;
}

enum { MODES = ZP_LIMITS, N_ROWS };

/* Row i of the limits, or the pinned modes of stages. The key that was dropped; NULL: it is not written. */
static const char *drop(zp_constraints *c, int i) {
  return i == MODES ? zp_drop_modes(c) : zp_drop_limit(c, i) ? zp_limit_key(i) : NULL;
}

static void drop_one(asking *a, int i) {
  zp_spec *changed = copy_of(a);
  const char *key = drop(zp_copied_constraints(changed), i);
  set_defaults(zp_copied_constraints(changed));
  if (key) propose(a, changed, 1, (zp_help){.kind = ZP_HELP_LIMIT, .words = zp_format(a->arena, "without `%s`", key)});
}

/* Without any first: where that does not help, no single one is asked for. */
static void drop_limits(asking *a) {
  zp_spec *changed = copy_of(a);
  const char *only = NULL;
  int written = 0, before = a->found.len;
  for (int i = 0; i < N_ROWS; i++) {
    const char *key = drop(zp_copied_constraints(changed), i);
    if (key) only = key, written++;
  }
  set_defaults(zp_copied_constraints(changed));
  zp_help all = {.kind = ZP_HELP_LIMIT, .words = "without the limits of the plan block"};
  if (written == 0 || !is_faster(a, changed, 1, &all.best, &all.times_faster)) return;
  if (written == 1) all.words = zp_format(a->arena, "without `%s`", only);
  for (int i = 0; i < N_ROWS && written > 1; i++) drop_one(a, i);
  for (int i = before; i < a->found.len; i++)
    if (a->found.data[i].times_faster * FASTER >= all.times_faster) return; /* one of them is to blame */
  zp_push(a->arena, &a->found, all);
}

/* ---- the training ---- */

/* Four times the samples; where stages wait for micro-batches, as many as fill them; where devices are left out that
 * the batch does not divide over, a few more that do. */
static void enlarge_batch(asking *a) {
  const zp_choice *c = &a->plan->best.choice;
  int64_t batch = a->plan->spec->train.batch, more = batch * BATCH_TIMES;
  int64_t filled = (int64_t)c->pipeline * BATCH_TIMES * zp_replicas(c) * c->microbatch;
  int64_t undivided = zp_undivided_data(a->plan) * c->microbatch;
  zp_spec *changed = copy_of(a);
  if (undivided > 0 && undivided <= batch * BATCH_TIMES)
    more = (batch + undivided - 1) / undivided * undivided;
  else if (c->pipeline > 1 && filled > more)
    more = filled < batch * MOST_BATCH_TIMES ? filled : batch * MOST_BATCH_TIMES;
  changed->train.batch = more;
  propose(a, changed, (double)more / (double)batch,
          (zp_help){.kind = ZP_HELP_BATCH,
                    .words = zp_format(a->arena, "a batch of %lld", (long long)more),
                    .option = zp_format(a->arena, "batch=%lld", (long long)more)});
}

bool zp_computes_slowly(const zp_plan *plan) {
  const zp_device *device = &plan->spec->cluster.node.device;
  return plan->spec->train.precision == ZP_PREC_F32 && device->has_bf16 &&
         device->flop_per_s_half >= SLOW * device->flop_per_s_fp32 &&
         plan->best.estimate.compute_s > plan->best.estimate.step_s / 2;
}

static void halve_precision(asking *a) {
  zp_spec *changed = copy_of(a);
  if (!zp_computes_slowly(a->plan)) return;
  changed->train.precision = ZP_PREC_MIXED_BF16;
  propose(a, changed, 1,
          (zp_help){.kind = ZP_HELP_PRECISION, .words = "precision=mixed_bf16", .option = "precision=mixed_bf16"});
}

/* State in every node instead of over all of them: gathers stay inside. */
static void shard_in_nodes(asking *a) {
  zp_spec *changed = copy_of(a);
  zp_constraints *c = zp_copied_constraints(changed);
  int node = zp_count_unit(changed);
  if (a->plan->best.choice.zero == 0 || c->shard.set || node < 2 || zp_machine_nodes(&a->plan->machine) < 2) return;
  c->shard = (zp_limit){.set = true, .low = 2, .high = node, .span = ZP_NO_SPAN};
  for (int n = 2; n <= node; n *= 2) zp_push(a->arena, &c->shard.in, n);
  if (!propose(a, changed, 1, (zp_help){.kind = ZP_HELP_SHARD})) return;
  zp_help *found = &a->found.data[a->found.len - 1];
  found->words = found->option = zp_format(a->arena, "shard=%d", zp_shard_ranks(&found->best.choice));
}

/* ---- all ---- */

static int by_gain(const void *x, const void *y) {
  const zp_help *a = x, *b = y;
  if (a->times_faster != b->times_faster) return a->times_faster > b->times_faster ? -1 : 1;
  return (int)a->kind - (int)b->kind;
}

/* A dropped limit that leads to the plan of another change says less than that. */
static bool says_more(const zp_helps *all, const zp_help *help) {
  for (int i = 0; i < all->len && help->kind == ZP_HELP_LIMIT; i++) {
    const zp_help *other = &all->data[i];
    if (other->kind != ZP_HELP_LIMIT && zp_same_decisions(&other->best.choice, &help->best.choice)) return false;
  }
  return true;
}

/* The ones that help most, each with another plan. */
static zp_helps best_of(asking *a) {
  zp_helps out = {0};
  if (a->found.len) qsort(a->found.data, (size_t)a->found.len, sizeof *a->found.data, by_gain);
  for (int i = 0; i < a->found.len && out.len < MOST_LINES; i++)
    if (says_more(&a->found, &a->found.data[i])) zp_push(a->arena, &out, a->found.data[i]);
  return out;
}

zp_helps zp_find_helps(zp_arena *arena, const zp_plan *plan) {
  assert(plan->feasible);
  asking a = {.arena = arena,
              .plan = plan,
              .left = (plan->certificate.work < WORK_MOST ? plan->certificate.work : WORK_MOST) + WORK_MORE};
  drop_limits(&a);
  divide_positions(&a);
  offload(&a);
  halve_precision(&a);
  shard_in_nodes(&a);
  enlarge_batch(&a);
  return best_of(&a);
}
