/* The first screen: what was asked, the plan, its price in terms, memory, duration, reasons, the next best. */
#include <assert.h>
#include <math.h>
#include <zplan/calibration.h>
#include <zplan/cost.h>
#include <zplan/cpu_kernels.h>
#include <zplan/gradient_sums.h>
#include <zplan/software.h>
#include <zplan/sparse.h>
#include "report_internal.h"

static double percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

/* ", 294.9 k of them trained" */
static const char *trained_words(zp_arena *arena, const zp_model *model) {
  if (!zp_model_has_frozen(model)) return "";
  return zp_format(arena, ", %s of them trained", zp_show_count(arena, (double)zp_model_trained_parameters(model)));
}

static void put_title(zp_buf *out, const zp_plan *plan) {
  const zp_spec *spec = plan->spec;
  zp_arena *arena = out->arena;
  long long units = (long long)zp_words_units(plan);
  zp_buf_line(out, "%s: %s parameters%s, %lld unit%s  |  %s  |  batch %lld x %lld tokens", spec->model->name,
              zp_show_count(arena, (double)zp_model_parameters(spec->model)), trained_words(arena, spec->model), units,
              units == 1 ? "" : "s", zp_words_devices(arena, plan), (long long)spec->train.batch,
              (long long)spec->model->sequence);
}

/* Devices that are left out, and why. They are paid for. */
static void put_idle(zp_buf *out, const zp_plan *plan) {
  const zp_certificate *c = &plan->certificate;
  int used = plan->machine.devices, idle = zp_plan_idle(plan, &plan->best.choice);
  if (idle == 0) return;
  zp_buf_printf(out, "  devices      %d of %d used, %d left out", used, plan->devices, idle);
  if (c->candidates && zp_certificate_gap(c) <= 0)
    zp_buf_puts(out, ": no plan that uses more of them is faster");
  else if (c->candidates)
    zp_buf_printf(out, ": no plan that uses more of them is more than %.2g%% faster", 100 * zp_certificate_gap(c));
  zp_buf_puts(out, "\n");
}

/* Whoever starts the ranks has to list the hosts so. */
static void put_nodes(zp_buf *out, const zp_plan *plan) {
  if (!plan->spec->cluster.arranged) return;
  const char *text = zp_format(out->arena, "in another order than written, which is that of ranks and stages: %s",
                               zp_show_nodes(out->arena, &plan->spec->cluster));
  zp_buf_line(out, "  nodes        %s", zp_words_wrap(out->arena, text, 15));
}

/* Why the plan is not the fastest. */
static void put_preferred(zp_buf *out, const zp_plan *plan) {
  if (!plan->fastest) return;
  const zp_choice *c = &plan->fastest->choice;
  int shared = zp_choice_exposure(&plan->best.choice);
  const char *here = shared == 1 ? "here every replica has its own" : zp_format(out->arena, "here %d do", shared);
  const char *text = zp_format(out->arena,
                               "to the fastest plan (tensor %d pipeline %d data %d zero %d), which takes %.2g%% less: "
                               "the model does not tell that "
                               "apart (robust %.2g%%). %d ranks share a state there, and all wait for each of them; "
                               "%s. --set robust=0 takes the "
                               "fastest",
                               c->tensor, c->pipeline, c->data, c->zero,
                               100 * (1 - plan->fastest->estimate.step_s / plan->best.estimate.step_s),
                               100 * plan->spec->plans.data[plan->spec->plan].robust, zp_choice_exposure(c), here);
  zp_buf_line(out, "  preferred    %s", zp_words_wrap(out->arena, text, 15));
}

static void put_time(zp_buf *out, const zp_plan *plan) {
  const zp_estimate *e = &plan->best.estimate;
  double comm = e->tensor_comm_s + e->expert_comm_s + e->pipeline_comm_s + e->data_comm_s;
  int year = zp_software_of_year(plan->spec->cluster.software);
  const char *of = year ? zp_format(out->arena, " with the program of %d", year) : "";
  zp_buf_printf(out, "  step time    est %s%s   (compute %.1f%%  bubble %.1f%%  communication %.1f%%  optimizer %.1f%%",
                zp_show_seconds(out->arena, e->step_s), of, percent(e->compute_s, e->step_s),
                percent(e->bubble_s, e->step_s), percent(comm, e->step_s), percent(e->optimizer_s, e->step_s));
  if (e->offload_s > 0) zp_buf_printf(out, "  offload %.1f%%", percent(e->offload_s, e->step_s));
  zp_buf_puts(out, ")\n");
}

/* What the time is worth. */
static void put_range(zp_buf *out, const zp_plan *plan) {
  const zp_cluster *cluster = &plan->spec->cluster;
  if (cluster->trainer == ZP_TRAINER_NONE) return;
  bool several = zp_machine_nodes(&plan->machine) > 1;
  zp_step_range range = zp_software_range(out->arena, cluster, several, plan->best.estimate.step_s);
  const char *text = range.source;
  if (range.known)
    text = zp_format(out->arena, "%s to %s: %s", zp_show_seconds(out->arena, range.low_s),
                     zp_show_seconds(out->arena, range.high_s), range.source);
  zp_buf_line(out, "  range        %s", zp_words_wrap(out->arena, text, 15));
}

static void put_throughput(zp_buf *out, const zp_plan *plan) {
  const zp_estimate *e = &plan->best.estimate;
  zp_arena *arena = out->arena;
  double each = e->step_s * plan->machine.devices;
  zp_buf_line(out,
              "  throughput   est %s tokens/s   |   %sFLOP/s per rank model, %sFLOP/s with recomputation (MFU %.1f%%, "
              "HFU %.1f%%)",
              zp_show_count(arena, e->tokens_per_s), zp_show_count(arena, e->model_flop / each),
              zp_show_count(arena, e->hardware_flop / each), 100 * e->mfu, 100 * e->hfu);
}

/* What of attention there is, where some of it does not see all. */
static void put_attention(zp_buf *out, const zp_plan *plan) {
  zp_strings list = zp_attention_texts(out->arena, plan->spec->model);
  for (int i = 0; i < list.len; i++) zp_buf_line(out, "  %-12s %s", i ? "" : "attention", list.data[i]);
}

static void put_memory(zp_buf *out, const zp_plan *plan) {
  const zp_estimate *e = &plan->best.estimate;
  zp_arena *arena = out->arena;
  zp_memory m = zp_stage_memory(plan, e->peak_stage);
  int64_t there = zp_machine_of_stage(&plan->machine, &plan->best.choice, e->peak_stage).memory_bytes;
  zp_buf_line(
      out,
      "  memory       peak %s of %s on stage %d   (states %s  saved %s  buffers %s  context est %s%s)   margin %.0f%%",
      zp_show_bytes(arena, e->peak_bytes), zp_show_bytes(arena, there), e->peak_stage,
      zp_words_bytes(arena, m.weights + m.gradients + m.optimizer), zp_words_bytes(arena, m.saved),
      zp_words_bytes(arena, m.buffers), zp_words_bytes(arena, m.context),
      m.communicators ? zp_format(arena, "  NCCL est %s", zp_show_bytes(arena, m.communicators)) : "",
      100 - percent((double)e->peak_bytes, (double)there));
  if (m.communicators > 0)
    zp_buf_line(out, "  outside      %s", zp_words_wrap(arena, zp_words_outside(arena, plan), 15));
  if (m.host > 0)
    zp_buf_line(out, "  host         %s of every rank's state on stage %d", zp_show_bytes(arena, m.host),
                e->peak_stage);
  if (m.nvme > 0)
    zp_buf_line(out, "  nvme         %s of every rank's state on stage %d", zp_show_bytes(arena, m.nvme),
                e->peak_stage);
}

static void put_duration(zp_buf *out, const zp_plan *plan) {
  const zp_spec *spec = plan->spec;
  zp_arena *arena = out->arena;
  if (spec->train.steps <= 0) return;
  double seconds = (double)spec->train.steps * plan->best.estimate.step_s;
  double tokens = (double)spec->train.steps * (double)spec->train.batch * (double)spec->model->sequence;
  zp_buf_printf(out, "  %s tokens  est %s in %lld steps", zp_show_count(arena, tokens), zp_show_seconds(arena, seconds),
                (long long)spec->train.steps);
  double device_s = seconds * plan->devices;
  if (!spec->cluster.node.device.is_cpu && device_s >= 86400)
    zp_buf_printf(out, "   %s GPU-days", zp_show_count(arena, device_s / 86400));
  else if (!spec->cluster.node.device.is_cpu)
    zp_buf_printf(out, "   %.3g GPU-hours", device_s / 3600);
  double price = zp_cluster_price(&spec->cluster, plan->devices);
  if (price > 0)
    zp_buf_printf(out, "   $%s at $%.2f per GPU-hour", zp_show_count(arena, seconds / 3600 * plan->devices * price),
                  price);
  zp_buf_puts(out, "\n");
}

/* What is trained is another thing than without it. */
static void put_delayed(zp_buf *out, const zp_plan *plan) {
  const zp_train *train = &plan->spec->train;
  if (!train->delayed) return;
  zp_delay delay = zp_cost_delay(out->arena, plan->program, &plan->machine);
  const char *shown = delay.shown_s > 0
                          ? zp_format(out->arena, "all but %s of it hidden", zp_show_seconds(out->arena, delay.shown_s))
                          : "all of it hidden";
  const char *text = zp_format(
      out->arena,
      "staleness 1: from step %lld on gradients are those of weights one update old, and hosts update alongside "
      "the next step, est %s of its %s, %s; step time and duration are those of such steps",
      (long long)train->delay_after + 2, zp_show_seconds(out->arena, delay.host_s),
      zp_show_seconds(out->arena, plan->best.estimate.step_s), shown);
  zp_buf_line(out, "  delayed      %s", zp_words_wrap(out->arena, text, 15));
}

/* What is trained is another thing than without it; what the error is a share of stands alongside it. */
static void put_reduce_dtype(zp_buf *out, const zp_plan *plan) {
  if (!plan->spec->train.rounds_sums) return;
  int64_t spared = zp_program_spared_bytes(plan->program);
  bool each = zp_shards_gradients(&plan->best.choice) && plan->program->microbatches > 1;
  const char *text =
      spared > 0 ? zp_format(out->arena,
                             "bf16 between nodes, %s a step fewer: what of %sgradients leaves a node is rounded once, "
                             "and added in f32. Besides f32's own rounding, an element is off by at most 1/%d of the "
                             "magnitudes that crossed, added up",
                             zp_show_bytes(out->arena, spared), each ? "a micro-batch's " : "",
                             (int)(1 / ZP_ROUNDED_SUM_ERROR))
                 : "bf16 between nodes: no sum of gradients over data ranks leaves a node here, so none is rounded";
  zp_buf_line(out, "  reduce_dtype %s", zp_words_wrap(out->arena, text, 15));
}

static void put_gradient_sums(zp_buf *out, const zp_plan *plan) {
  if (!plan->spec->train.stochastic_sums) return;
  zp_gradient_sums sums = zp_gradient_sums_of(plan->program);
  double n = (double)sums.additions;
  const char *text = zp_format(
      out->arena,
      "bf16, rounded stochastically, %lld additions an element at most: unbiased, the standard deviation of an element "
      "at most %.2g of its addends' magnitudes, added up; within x sqrt(%lld)/256 = x %.2g of them with a probability "
      "of 1 - 2 exp(-x^2/2) (Connolly, Higham and Mary 2021), at worst within %.2g, besides f32's own rounding",
      (long long)sums.additions, sums.deviation, (long long)sums.additions, sqrt(n) * ZP_STOCHASTIC_ROUNDOFF,
      sums.worst);
  zp_buf_line(out, "  gradient_sums %s", zp_words_wrap(out->arena, text, 16));
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
static void put_one_bit(zp_buf *out, const zp_plan *plan) {
  if (!plan->best.choice.compress) return;
  const zp_train *train = &plan->spec->train;
  zp_arena *arena = out->arena;
  zp_traffic traffic = zp_program_traffic(plan->program);
  if (train->variance_every > 0) {
    zp_buf_line(out, "  0/1 Adam     %s", zp_words_wrap(arena, interval_words(arena, plan, &traffic), 15));
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
  zp_buf_line(out, "  1-bit %s   %s", lamb ? "LAMB" : "Adam", zp_words_wrap(arena, text, 15));
}

static void put_next_best(zp_buf *out, const zp_plan *plan) {
  if (plan->alternatives.len == 0) return;
  zp_buf_puts(out, plan->exact_alternatives ? "  next best    " : "  also good    ");
  for (int i = 0; i < plan->alternatives.len && i < 3; i++) {
    const zp_candidate *c = &plan->alternatives.data[i];
    /* Degrees that were only met may have a better plan than this one. */
    zp_buf_printf(out, "%s%s%.1f%% tensor %d pipeline %d data %d", i ? "  |  " : "",
                  plan->exact_alternatives ? "+" : "within ",
                  100 * (c->estimate.step_s / plan->best.estimate.step_s - 1), c->choice.tensor, c->choice.pipeline,
                  c->choice.data);
    if (zp_expert_ranks(&c->choice) != zp_expert_ranks(&plan->best.choice))
      zp_buf_printf(out, " expert %d", zp_expert_ranks(&c->choice));
    if (zp_plan_idle(plan, &c->choice) != zp_plan_idle(plan, &plan->best.choice))
      zp_buf_printf(out, " idle %d", zp_plan_idle(plan, &c->choice));
    if (c->choice.zero != plan->best.choice.zero) zp_buf_printf(out, " zero %d", c->choice.zero);
    const char *recompute = zp_choice_recompute_words(out->arena, &c->choice);
    if (strcmp(recompute, zp_choice_recompute_words(out->arena, &plan->best.choice)) != 0)
      zp_buf_printf(out, " recompute %s", c->choice.stage_recompute ? "by stage" : recompute);
  }
  zp_buf_puts(out, "\n");
}

/* What the search considered to know. */
static void put_effort(zp_buf *out, const zp_certificate *c) {
  zp_buf_printf(out, "  searched     %lld candidate%s, %lld of them priced with %lld simulation%s",
                (long long)c->candidates, c->candidates == 1 ? "" : "s", (long long)c->priced, (long long)c->simulated,
                c->simulated == 1 ? "" : "s");
  if (c->cut_nodes) {
    zp_buf_printf(out, "; %lld partial cuts", (long long)c->cut_nodes);
    for (int i = 0; i < ZP_CUT_RULE_COUNT; i++)
      if (c->cut_pruned[i])
        zp_buf_printf(out, ", %lld pruned by %s", (long long)c->cut_pruned[i], zp_cut_rule_key((zp_cut_pruning)i));
  }
  zp_buf_puts(out, "\n");
}

static void put_rejected(zp_buf *out, const zp_certificate *c) {
  const char *separator = "";
  zp_buf_puts(out, "  rejected     ");
  for (int i = 0; i < ZP_REJECT_COUNT; i++) {
    if (!c->rejected[i]) continue;
    zp_buf_printf(out, "%s%lld by %s", separator, (long long)c->rejected[i], zp_rejection_key((zp_rejection)i));
    separator = ", ";
  }
  zp_buf_puts(out, *separator ? "\n" : "none\n");
}

/* A plan read from a file has not been searched for and has no certificate. */
static void put_certificate(zp_buf *out, const zp_plan *plan) {
  const zp_certificate *c = &plan->certificate;
  if (c->candidates == 0) return;
  put_next_best(out, plan);
  put_rejected(out, c);
  put_effort(out, c);
  if (zp_certificate_gap(c) <= 0)
    zp_buf_line(out, "  proof        no plan of the %lld candidates is faster in this cost model",
                (long long)c->candidates);
  else
    zp_buf_line(
        out,
        "  proof        no plan of the %lld candidates is more than %.2g%% faster in this cost model (lower bound %s)",
        (long long)c->candidates, 100 * zp_certificate_gap(c), zp_show_seconds(out->arena, c->bound_s));
  if (c->node_orders > 1)
    zp_buf_line(out, "               %lld of %lld orders of the nodes were searched%s", (long long)c->node_orders,
                (long long)c->node_orders_there, c->nodes_together ? ", with alike nodes side by side" : "");
  if (c->short_of_memory)
    zp_buf_line(
        out,
        "               the search stopped at its memory budget of %s (--search-memory): what it left open is that gap",
        zp_show_bytes(out->arena, c->memory_bytes));
  if (c->short_of_work)
    zp_buf_line(out, "               the search did all the work that a query may take: what it left open is that gap");
  if (c->searched_s <= c->bound_s) return;
  double searched = (c->best_s - c->searched_s) / c->best_s;
  zp_buf_line(out,
              "               other cuts of %lld of them with several chunks a stage are bounded, not searched; of the "
              "rest none is %sfaster",
              (long long)c->stated_cuts,
              searched > 0 ? zp_format(out->arena, "more than %.2g%% ", 100 * searched) : "");
}

/* `zplan calibrate` measures block-sparse attention on CPUs alone; otherwise its small tiles are priced like dense
 * ones. */
static bool sparse_is_measured(const zp_plan *plan) {
  const zp_cpu_kernels *kernels = plan->spec->cluster.node.device.measured;
  return kernels && kernels->sparse_attention[0].log_share;
}

static void put_confidence(zp_buf *out, const zp_plan *plan) {
  const char *calibration = zp_calibration_words(out->arena, &plan->spec->cluster);
  if (plan->spec->cluster.software)
    zp_buf_line(
        out,
        "  confidence   memory is zplan's trainer's with this program's gradients, not its allocator's; times are "
        "estimates from %s and the profile",
        calibration ? calibration : "library numbers");
  else
    zp_buf_line(out, "  confidence   memory is exact but for the context%s; times are estimates from %s",
                zp_memory_classes(plan) == ZP_MEMORY_CLASSES ? " and NCCL" : "",
                calibration ? calibration : "uncalibrated library numbers");
  if (zp_model_layouts(plan->spec->model).len > 0 && !sparse_is_measured(plan))
    zp_buf_line(out,
                "               block-sparse attention is not calibrated: it is taken to be as efficient as dense");
}

/* One kernel serves all heads of a model, so one wide head makes all of them slow. */
static void put_slow_attention(zp_buf *out, const zp_plan *plan) {
  const char *why = zp_why_no_tensor_cores(out->arena, plan->spec);
  if (!why) return;
  const char *text = zp_format(out->arena,
                               "attention of all heads on the cores for single precision, not on tensor cores, "
                               "which would be several times as fast: %s",
                               why);
  zp_buf_line(out, "  kernels      %s", zp_words_wrap(out->arena, text, 15));
}

const char *zp_report_summary(zp_arena *arena, const zp_plan *plan) {
  assert(plan->feasible);
  zp_buf out = zp_buf_new(arena);
  put_title(&out, plan);
  if (plan->spec->cluster.trainer != ZP_TRAINER_NONE)
    zp_buf_line(&out, "%s", zp_trainer_phrase(arena, &plan->spec->cluster));
  zp_buf_line(&out, "%s   %s", plan->certificate.candidates ? "best plan" : "plan",
              zp_words_choice(arena, &plan->best.choice));
  put_idle(&out, plan);
  put_nodes(&out, plan);
  put_preferred(&out, plan);
  put_time(&out, plan);
  put_range(&out, plan);
  put_throughput(&out, plan);
  put_attention(&out, plan);
  put_slow_attention(&out, plan);
  put_memory(&out, plan);
  put_duration(&out, plan);
  put_delayed(&out, plan);
  put_reduce_dtype(&out, plan);
  put_gradient_sums(&out, plan);
  put_one_bit(&out, plan);
  zp_buf_line(&out, "  why          %s", zp_words_wrap(arena, zp_words_why(arena, plan), 15));
  put_certificate(&out, plan);
  put_confidence(&out, plan);
  return out.data;
}
