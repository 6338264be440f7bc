/* SPDX-License-Identifier: Apache-2.0 */
/* What the first screen leaves out: decisions in full, sources of figures, what lies outside of the arena, how the
 * training differs from a plain one, reasons, other plans, what was rejected. */
#include <assert.h>
#include <math.h>
#include <zplan/calibration.h>
#include <zplan/cost.h>
#include <zplan/cpu_kernels.h>
#include <zplan/software.h>
#include <zplan/sparse.h>
#include "report_internal.h"

/* Why devices are left out. */
static void put_idle(zp_page *page, const zp_plan *plan) {
  const zp_certificate *c = &plan->certificate;
  if (zp_plan_idle(plan, &plan->best.choice) == 0 || c->candidates == 0) return;
  double gap = zp_certificate_gap(c);
  zp_page_field(page, "left out", "no plan that uses more devices is %sfaster",
                gap > 0 ? zp_format(page->out.arena, "more than %.2g%% ", 100 * gap) : "");
}

/* Whoever starts the ranks has to list the hosts so. */
static void put_nodes(zp_page *page, const zp_plan *plan) {
  if (!plan->spec->cluster.arranged) return;
  const char *text = zp_format(page->out.arena, "in another order than written, which is that of ranks and stages: %s",
                               zp_show_nodes(page->out.arena, &plan->spec->cluster));
  zp_page_field(page, "nodes", "%s", text);
}

/* Why the plan is not the fastest. */
static void put_preferred(zp_page *page, const zp_plan *plan) {
  if (!plan->fastest) return;
  const zp_choice *c = &plan->fastest->choice;
  int shared = zp_choice_exposure(&plan->best.choice);
  const char *here = shared == 1 ? "here every replica has its own" : zp_format(page->out.arena, "here %d do", shared);
  const char *text = zp_format(page->out.arena,
                               "to the fastest plan (tensor %d pipeline %d data %d zero %d), which takes %.2g%% less: "
                               "the model does not tell that "
                               "apart (robust %.2g%%). %d ranks share a state there, and all wait for each of them; "
                               "%s. --set robust=0 takes the "
                               "fastest",
                               c->tensor, c->pipeline, zp_replicas(c), c->zero,
                               100 * (1 - plan->fastest->estimate.step_s / plan->best.estimate.step_s),
                               100 * plan->spec->plans.data[plan->spec->plan].robust, zp_choice_exposure(c), here);
  zp_page_field(page, "preferred", "%s", text);
}

/* The program of an earlier year may be slower or faster than today's. */
static void put_year(zp_page *page, const zp_plan *plan) {
  int year = zp_software_of_year(plan->spec->cluster.software);
  if (year) zp_page_field(page, "program", "times are those of the program of %d", year);
}

/* What the time is worth. */
static void put_range(zp_page *page, const zp_plan *plan) {
  const zp_cluster *cluster = &plan->spec->cluster;
  if (cluster->trainer == ZP_TRAINER_NONE) return;
  bool several = zp_machine_nodes(&plan->machine) > 1;
  zp_page_field(page, "range", "%s",
                zp_software_range(page->out.arena, cluster, several, plan->best.estimate.step_s).source);
}

static void put_rates(zp_page *page, const zp_plan *plan) {
  const zp_estimate *e = &plan->best.estimate;
  zp_arena *arena = page->out.arena;
  double each = e->step_s * plan->machine.devices;
  zp_page_field(
      page, "a rank",
      ZP_ESTIMATED "%sFLOP/s of the model, " ZP_ESTIMATED "%sFLOP/s with recomputation (HFU " ZP_ESTIMATED "%.1f%%)",
      zp_show_count(arena, e->model_flop / each), zp_show_count(arena, e->hardware_flop / each), 100 * e->hfu);
}

/* What of attention there is, where some of it does not see all. */
static void put_attention(zp_page *page, const zp_plan *plan) {
  zp_strings list = zp_attention_texts(page->out.arena, plan->spec->model);
  for (int i = 0; i < list.len; i++) zp_page_field(page, i ? "" : "attention", "%s", list.data[i]);
}

static void put_outside(zp_page *page, const zp_plan *plan) {
  if (zp_memory_classes(plan) == ZP_MEMORY_CLASSES)
    zp_page_field(page, "outside", "%s", zp_words_outside(page->out.arena, plan));
}

/* What is trained is another thing than without it. */
static void put_delayed(zp_page *page, const zp_plan *plan) {
  const zp_train *train = &plan->spec->train;
  if (!train->delayed) return;
  zp_delay delay = zp_cost_delay(page->out.arena, plan->program, &plan->machine);
  const char *shown = delay.shown_s > 0 ? zp_format(page->out.arena, "all but " ZP_ESTIMATED "%s of it hidden",
                                                    zp_show_seconds(page->out.arena, delay.shown_s))
                                        : "all of it hidden";
  const char *text = zp_format(
      page->out.arena,
      "staleness 1: from step %lld on gradients are those of weights one update old, and hosts update alongside "
      "the next step, " ZP_ESTIMATED "%s of its " ZP_ESTIMATED "%s, %s; step time and duration are those of such steps",
      (long long)train->delay_after + 2, zp_show_seconds(page->out.arena, delay.host_s),
      zp_show_seconds(page->out.arena, plan->best.estimate.step_s), shown);
  zp_page_field(page, "delayed", "%s", text);
}

/* What 0/1 Adam sends over data ranks in a step on average. */
static const char *interval_words(zp_arena *arena, const zp_plan *plan, const zp_traffic *traffic) {
  const zp_train *train = &plan->spec->train;
  zp_intervals x = zp_train_intervals(arena, train);
  return zp_format(arena,
                   "%s a step over data ranks on average, %.1f times less than plain Adam: of %lld steps %lld exchange "
                   "signs (%s) and %lld sum gradients as well (%s). step time and duration are the average of all of "
                   "these",
                   zp_show_bytes(arena, traffic->average_data), (double)traffic->warmup_data / traffic->average_data,
                   (long long)train->steps, (long long)x.exchanges, zp_show_bytes(arena, traffic->data),
                   (long long)x.sums, zp_show_bytes(arena, traffic->warmup_data));
}

/* Plain Adam comes first, and no time here knows of it. */
static void put_one_bit(zp_page *page, const zp_plan *plan) {
  if (!plan->best.choice.compress) return;
  const zp_train *train = &plan->spec->train;
  zp_arena *arena = page->out.arena;
  zp_traffic traffic = zp_program_traffic(plan->program);
  if (train->variance_every > 0) {
    zp_page_field(page, "0/1 Adam", "%s", interval_words(arena, plan, &traffic));
    return;
  }
  const char *when =
      train->freeze_threshold > 0
          ? zp_format(arena, "when the variance has come to rest (threshold %g)", train->freeze_threshold)
          : zp_format(arena, "after %lld steps", (long long)zp_freeze_step(train));
  const char *text =
      zp_format(arena,
                "%s a step over data ranks, before it compresses %s: %.1f times less. it compresses %s; step time and "
                "duration are those of compressed steps",
                zp_show_bytes(arena, traffic.data), zp_show_bytes(arena, traffic.warmup_data),
                (double)traffic.warmup_data / (double)traffic.data, when);
  bool lamb = zp_optimizer_facts(train)->one_bit == ZP_ONE_BIT_LAMB;
  const zp_stage *at = &plan->program->stages[plan->best.estimate.peak_stage];
  if (zp_shards_state(&plan->best.choice)) {
    int64_t errors =
        zp_flat_trained(&at->flat) +
        (at->at[ZP_REGION_SERVER_ERROR] < 0 ? 0 : zp_flat_trained(&at->shard) - at->offloaded[ZP_STATE_OPTIMIZER]);
    text = zp_format(arena, "%s; %s of stage %d's optimizer state is errors of 1-bit exchanges", text,
                     zp_show_bytes(arena, errors * 4), at->index);
  }
  zp_page_field(page, lamb ? "1-bit LAMB" : "1-bit Adam", "%s", text);
}

const char *zp_words_alternative(zp_arena *arena, const zp_plan *plan, int index) {
  const zp_candidate *other = &plan->alternatives.data[index];
  double slower = 100 * (other->estimate.step_s / plan->best.estimate.step_s - 1);
  int idle = zp_plan_idle(plan, &other->choice);
  const char *left_out =
      idle != zp_plan_idle(plan, &plan->best.choice) ? zp_format(arena, ", %d devices left out", idle) : "";
  /* Degrees that were only met may have a better plan than this one. */
  return zp_format(arena, "%s%s: %s" ZP_ESTIMATED "%.1f%% slower", zp_words_layout(arena, &other->choice), left_out,
                   plan->exact_alternatives ? "" : "at most ", slower);
}

static void put_others(zp_page *page, const zp_plan *plan) {
  for (int i = 1; i < plan->alternatives.len && i < 3; i++)
    zp_page_field(page, i > 1 ? "" : "also good", "%s", zp_words_alternative(page->out.arena, plan, i));
}

/* What the search considered to know. */
static void put_effort(zp_page *page, const zp_certificate *c) {
  zp_buf words = zp_buf_new(page->out.arena);
  zp_buf_printf(&words, "%lld candidate%s, %lld of them priced with %lld simulation%s", (long long)c->candidates,
                c->candidates == 1 ? "" : "s", (long long)c->priced, (long long)c->simulated,
                c->simulated == 1 ? "" : "s");
  if (c->cut_nodes) {
    zp_buf_printf(&words, "; %lld partial cuts", (long long)c->cut_nodes);
    for (int i = 0; i < ZP_CUT_RULE_COUNT; i++)
      if (c->cut_pruned[i])
        zp_buf_printf(&words, ", %lld pruned by %s", (long long)c->cut_pruned[i], zp_cut_rule_key((zp_cut_pruning)i));
  }
  zp_page_field(page, "searched", "%s", words.data);
}

static void put_rejected(zp_page *page, const zp_certificate *c) {
  zp_buf words = zp_buf_new(page->out.arena);
  for (int i = 0; i < ZP_REJECT_COUNT; i++)
    if (c->rejected[i])
      zp_buf_printf(&words, "%s%lld by %s", words.len ? ", " : "", (long long)c->rejected[i],
                    zp_rejection_key((zp_rejection)i));
  zp_page_field(page, "rejected", "%s", words.len ? words.data : "none");
}

/* A plan read from a file has not been searched for and has no certificate. */
static void put_certificate(zp_page *page, const zp_plan *plan) {
  const zp_certificate *c = &plan->certificate;
  zp_arena *arena = page->out.arena;
  if (c->candidates == 0) return;
  put_others(page, plan);
  put_rejected(page, c);
  put_effort(page, c);
  if (zp_certificate_gap(c) > 0)
    zp_page_field(page, "bound", "no plan takes less than " ZP_ESTIMATED "%s", zp_show_seconds(arena, c->bound_s));
  if (c->node_orders > 1)
    zp_page_field(page, "orders", "%lld of %lld orders of the nodes were searched%s", (long long)c->node_orders,
                  (long long)c->node_orders_there, c->nodes_together ? ", with alike nodes side by side" : "");
  if (c->short_of_memory)
    zp_page_field(page, "left open",
                  "the search stopped at its memory budget of %s (--search-memory): what it left open is the gap",
                  zp_show_bytes(arena, c->memory_bytes));
  if (c->short_of_work)
    zp_page_field(page, "left open", "the search did all the work that a query may take: what it left open is the gap");
  if (c->searched_s <= c->bound_s) return;
  double searched = (c->best_s - c->searched_s) / c->best_s;
  zp_page_field(page, "bounded",
                "other cuts of %lld of them with several chunks a stage are bounded, not searched; of the rest none is "
                "%sfaster",
                (long long)c->stated_cuts, searched > 0 ? zp_format(arena, "more than %.2g%% ", 100 * searched) : "");
}

/* `zplan calibrate` measures block-sparse attention on CPUs alone; otherwise its small tiles are priced like dense
 * ones. */
static bool sparse_is_measured(const zp_plan *plan) {
  const zp_cpu_kernels *kernels = plan->spec->cluster.node.device.measured;
  return kernels && kernels->sparse_attention[0].log_share;
}

static void put_confidence(zp_page *page, const zp_plan *plan) {
  const char *calibration = zp_calibration_words(page->out.arena, &plan->spec->cluster);
  if (plan->spec->cluster.software)
    zp_page_field(page, "confidence",
                  "memory is zplan's trainer's with this program's gradients, not its allocator's; times are estimates "
                  "from %s and the profile",
                  calibration ? calibration : "library numbers");
  else
    zp_page_field(page, "confidence", "memory is exact but for the context%s; times are estimates from %s",
                  zp_memory_classes(plan) == ZP_MEMORY_CLASSES ? " and NCCL" : "",
                  calibration ? calibration : "uncalibrated library numbers");
  if (zp_model_layouts(plan->spec->model).len > 0 && !sparse_is_measured(plan))
    zp_page_field(page, "", "block-sparse attention is not calibrated: it is taken to be as efficient as dense");
}

/* One kernel serves all heads of a model, so one wide head makes all of them slow. */
static void put_slow_attention(zp_page *page, const zp_plan *plan) {
  const char *why = zp_why_no_tensor_cores(page->out.arena, plan->spec);
  if (!why) return;
  const char *text = zp_format(page->out.arena,
                               "attention of all heads on the cores for single precision, not on tensor cores, "
                               "which would be several times as fast: %s",
                               why);
  zp_page_field(page, "kernels", "%s", text);
}

void zp_report_details(zp_page *page, const zp_plan *plan) {
  assert(plan->feasible);
  zp_arena *arena = page->out.arena;
  if (plan->spec->cluster.trainer != ZP_TRAINER_NONE)
    zp_page_field(page, "program", "%s", zp_trainer_phrase(arena, &plan->spec->cluster));
  zp_page_field(page, plan->certificate.candidates ? "best plan" : "plan", "%s",
                zp_words_choice(arena, &plan->best.choice));
  put_idle(page, plan);
  put_nodes(page, plan);
  put_preferred(page, plan);
  put_year(page, plan);
  put_range(page, plan);
  put_rates(page, plan);
  put_attention(page, plan);
  put_slow_attention(page, plan);
  put_outside(page, plan);
  put_delayed(page, plan);
  put_one_bit(page, plan);
  zp_page_field(page, "why", "%s", zp_words_why(arena, plan));
  put_certificate(page, plan);
  put_confidence(page, plan);
}

const char *zp_report_summary(zp_arena *arena, const zp_plan *plan) {
  assert(plan->feasible);
  zp_page page = zp_page_new(arena, zp_plain_screen(100), ZP_DETAIL_LABEL);
  zp_report_first_screen(&page, plan);
  zp_page_blank(&page);
  zp_report_details(&page, plan);
  return page.out.data;
}
