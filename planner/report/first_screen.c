/* SPDX-License-Identifier: Apache-2.0 */
/* The first screen: whether it fits, the layout, what a step takes, memory, the whole training, why, the next best.
 * What else there is to say is in details.c. */
#include <assert.h>
#include <math.h>
#include <zplan/gradient_sums.h>
#include <zplan/moves.h>
#include <zplan/software.h>
#include "report_internal.h"

static double percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

/* ---- what was asked, what the plan is ---- */

/* does: "fits on". */
static void put_verdict(zp_page *page, const zp_plan *plan, const char *does) {
  const zp_spec *spec = plan->spec;
  zp_arena *arena = page->out.arena;
  const char *whose = spec->cluster.software ? zp_format(arena, ", %s", zp_trainer_phrase(arena, &spec->cluster)) : "";
  const char *trained = zp_model_has_frozen(spec->model)
                            ? zp_format(arena, ", %s of them trained",
                                        zp_show_count(arena, (double)zp_model_trained_parameters(spec->model)))
                            : "";
  zp_page_text(page, ZP_STRONG, 2,
               zp_format(arena, "%s (%s parameters%s) %s %s%s", spec->model->name,
                         zp_show_count(arena, (double)zp_model_parameters(spec->model)), trained, does,
                         zp_words_devices(arena, plan), whose));
  if (plan->certificate.interrupted)
    zp_page_text(page, ZP_STRONG, 2, "interrupted: this is the best plan so far, not the best one");
  zp_page_blank(page);
}

static void put_degree(zp_buf *out, const char *name, int degree) {
  if (degree > 1) zp_buf_printf(out, "%s%s" ZP_GLUE "%d", out->len ? " x" ZP_GLUE : "", name, degree);
}

/* Degrees of 1 and what a plain plan has are left out. */
const char *zp_words_layout(zp_arena *arena, const zp_choice *c) {
  zp_buf out = zp_buf_new(arena);
  put_degree(&out, "tensor", c->tensor);
  put_degree(&out, "pipeline", c->pipeline);
  put_degree(&out, "context", zp_context_ranks(c));
  if (zp_context_ranks(c) > 1 && c->context_by == ZP_BY_KEYS) zp_buf_puts(&out, ZP_GLUE "by" ZP_GLUE "keys");
  if (zp_context_ranks(c) > 1 && c->context_by == ZP_BY_RING)
    zp_buf_puts(&out, ZP_GLUE "in" ZP_GLUE "a" ZP_GLUE "ring");
  put_degree(&out, "data", zp_replicas(c));
  if (out.len == 0) zp_buf_puts(&out, "one rank");
  if (zp_expert_ranks(c) > 1) zp_buf_printf(&out, ", expert" ZP_GLUE "%d", c->expert);
  if (c->zero) zp_buf_printf(&out, ", zero" ZP_GLUE "%d", c->zero);
  if (c->shard > 0) zp_buf_printf(&out, " in" ZP_GLUE "groups" ZP_GLUE "of" ZP_GLUE "%d", c->shard);
  if (c->hpz > 0) zp_buf_printf(&out, " with" ZP_GLUE "hpZ" ZP_GLUE "%d", c->hpz);
  if (c->pipeline > 1) zp_buf_printf(&out, ", %s", zp_schedule_name(c->schedule));
  if (c->chunks > 1) zp_buf_printf(&out, "/%d", c->chunks);
  zp_buf_printf(&out, ", micro-batch" ZP_GLUE "%lld", (long long)c->microbatch);
  if (zp_choice_has_modes(c))
    zp_buf_puts(&out, ", recompute by stage");
  else if (c->recompute != ZP_RECOMPUTE_NONE)
    zp_buf_printf(&out, ", recompute" ZP_GLUE "%s", zp_recompute_name(c->recompute));
  for (int i = 0; i < ZP_STATE_COUNT; i++)
    if (c->home[i].eighths)
      zp_buf_printf(&out, ", %s" ZP_GLUE "%d/8 on" ZP_GLUE "%s", zp_state_name((zp_state)i), c->home[i].eighths,
                    zp_tier_name(c->home[i].tier));
  if (c->compress) zp_buf_puts(&out, ", 1-bit sums");
  return out.data;
}

static void put_layout(zp_page *page, const zp_plan *plan) {
  int idle = zp_plan_idle(plan, &plan->best.choice);
  zp_page_field(page, "layout", "%s", zp_words_layout(page->out.arena, &plan->best.choice));
  if (idle)
    zp_page_field(page, "devices", "%d of %d used, %d left out and paid for", plan->machine.devices, plan->devices,
                  idle);
}

/* ---- figures ---- */

static void put_step(zp_page *page, const zp_plan *plan) {
  const zp_cluster *cluster = &plan->spec->cluster;
  zp_arena *arena = page->out.arena;
  double step_s = plan->best.estimate.step_s;
  const char *range = "";
  if (cluster->trainer != ZP_TRAINER_NONE) {
    zp_step_range r = zp_software_range(arena, cluster, zp_machine_nodes(&plan->machine) > 1, step_s);
    range = r.known ? zp_format(arena, ", likely " ZP_ESTIMATED "%s to " ZP_ESTIMATED "%s (%s)",
                                zp_show_seconds(arena, r.low_s), zp_show_seconds(arena, r.high_s), r.brief)
                    : zp_format(arena, ", range unknown: %s", r.brief);
  }
  zp_page_field(page, "step", ZP_ESTIMATED "%s%s", zp_show_seconds(arena, step_s), range);
}

static void put_speed(zp_page *page, const zp_plan *plan) {
  const zp_estimate *e = &plan->best.estimate;
  zp_page_field(page, "speed", ZP_ESTIMATED "%s tokens/s, MFU " ZP_ESTIMATED "%.1f%%",
                zp_show_count(page->out.arena, e->tokens_per_s), 100 * e->mfu);
}

static int64_t memory_there(const zp_plan *plan) {
  return zp_machine_of_stage(&plan->machine, &plan->best.choice, plan->best.estimate.peak_stage).memory_bytes;
}

static void put_peak(zp_page *page, const zp_plan *plan) {
  const zp_estimate *e = &plan->best.estimate;
  zp_arena *arena = page->out.arena;
  zp_memory m = zp_stage_memory(plan, e->peak_stage);
  const char *stage = plan->best.choice.pipeline > 1 ? zp_format(arena, ", stage" ZP_GLUE "%d of" ZP_GLUE "%d",
                                                                 e->peak_stage, plan->best.choice.pipeline)
                                                     : "";
  zp_page_field(page, "peak", ZP_ESTIMATED "%s of the %s limit%s; %s of it are exact",
                zp_show_bytes(arena, e->peak_bytes), zp_show_bytes(arena, zp_words_usable_bytes(plan, e->peak_stage)),
                stage, zp_show_bytes(arena, e->peak_bytes - m.context - m.communicators));
  if (m.host > 0 || m.nvme > 0)
    zp_page_field(page, "offloaded", "%s%s%s a rank on that stage",
                  m.host > 0 ? zp_format(arena, "%s in host memory", zp_show_bytes(arena, m.host)) : "",
                  m.host > 0 && m.nvme > 0 ? ", " : "",
                  m.nvme > 0 ? zp_format(arena, "%s on disks", zp_show_bytes(arena, m.nvme)) : "");
}

static void put_training(zp_page *page, const zp_plan *plan) {
  const zp_spec *spec = plan->spec;
  zp_arena *arena = page->out.arena;
  if (spec->train.steps <= 0) return;
  double seconds = (double)spec->train.steps * plan->best.estimate.step_s, device_s = seconds * plan->devices;
  double tokens = (double)spec->train.steps * (double)spec->train.batch * (double)spec->model->sequence;
  const char *devices = "", *dollars = "";
  if (!spec->cluster.node.device.is_cpu)
    devices = device_s >= 86400
                  ? zp_format(arena, ", " ZP_ESTIMATED "%s" ZP_GLUE "GPU-days", zp_show_count(arena, device_s / 86400))
                  : zp_format(arena, ", " ZP_ESTIMATED "%.3g" ZP_GLUE "GPU-hours", device_s / 3600);
  double price = zp_cluster_price(&spec->cluster, plan->devices);
  if (price > 0)
    dollars = zp_format(arena, ", " ZP_ESTIMATED "$%s at $%.2f per GPU-hour",
                        zp_show_count(arena, device_s / 3600 * price), price);
  zp_page_field(page, "training", ZP_ESTIMATED "%s for %s" ZP_GLUE "tokens in %lld" ZP_GLUE "steps%s%s",
                zp_show_seconds(arena, seconds), zp_show_count(arena, tokens), (long long)spec->train.steps, devices,
                dollars);
}

/* ---- bars ---- */

static void put_memory_bar(zp_page *page, const zp_plan *plan) {
  static const char letters[ZP_MEMORY_CLASSES] = {'W', 'G', 'O', 'S', 'B', 'C', 'N'};
  zp_part parts[ZP_MEMORY_CLASSES + 1];
  zp_arena *arena = page->out.arena;
  zp_memory m = zp_stage_memory(plan, plan->best.estimate.peak_stage);
  int64_t left = memory_there(plan) - plan->best.estimate.peak_bytes;
  for (int c = 0; c < ZP_MEMORY_CLASSES; c++) {
    int64_t bytes = zp_memory_class_bytes(&m, c);
    parts[c] =
        (zp_part){zp_memory_class_name(c),
                  zp_format(arena, "%s%s", c < ZP_ARENA_CLASSES ? "" : ZP_ESTIMATED, zp_show_bytes(arena, bytes)),
                  (double)bytes, letters[c]};
  }
  parts[ZP_MEMORY_CLASSES] = (zp_part){"free", zp_format(arena, ZP_ESTIMATED "%s", zp_show_bytes(arena, left)),
                                       left > 0 ? (double)left : 0, '.'};
  zp_page_bar(page, "memory", parts, ZP_MEMORY_CLASSES + 1);
}

static void put_time_bar(zp_page *page, const zp_plan *plan) {
  const zp_estimate *e = &plan->best.estimate;
  zp_part parts[] = {
      {"compute", NULL, e->compute_s, 'C'},
      {"bubble", NULL, e->bubble_s, 'B'},
      {"communication", NULL, zp_estimate_communication_s(e), 'X'},
      {"optimizer", NULL, e->optimizer_s, 'O'},
      {"offload", NULL, e->offload_s, 'H'},
  };
  enum { N_PARTS = sizeof parts / sizeof *parts };
  for (int i = 0; i < N_PARTS; i++) {
    if (percent(parts[i].amount, e->step_s) < 0.05) parts[i].amount = 0; /* it would be shown as 0.0% */
    parts[i].size = zp_format(page->out.arena, ZP_ESTIMATED "%.1f%%", percent(parts[i].amount, e->step_s));
  }
  zp_page_bar(page, "time", parts, N_PARTS);
}

/* ---- what the search says ---- */

static void put_alternative(zp_page *page, const zp_plan *plan) {
  if (plan->alternatives.len > 0)
    zp_page_field(page, "otherwise", "%s", zp_words_alternative(page->out.arena, plan, 0));
}

/* What ended the search before it had settled everything, where more of it can be had. */
static const char *ended_early(zp_arena *arena, const zp_certificate *c) {
  if (c->interrupted) return "; the search was interrupted";
  if (!c->short_of_memory) return "";
  return zp_format(arena, "; the search stopped at its memory budget of %s", zp_show_bytes(arena, c->memory_bytes));
}

static void put_proof(zp_page *page, const zp_plan *plan) {
  const zp_certificate *c = &plan->certificate;
  zp_arena *arena = page->out.arena;
  if (c->candidates == 0) return;
  double gap = zp_certificate_gap(c);
  zp_page_field(page, "proof", "no plan is %sfaster in this cost model (%lld considered%s)",
                gap > 0 ? zp_format(arena, "more than %.2g%% ", 100 * gap) : "", (long long)c->candidates,
                ended_early(arena, c));
}

/* What is trained is another thing than without it; what the error is a share of stands alongside it. */
static void put_reduce_dtype(zp_page *page, const zp_plan *plan) {
  if (!plan->spec->train.rounds_sums) return;
  int64_t spared = zp_program_spared_bytes(plan->program);
  bool each = zp_shards_gradients(&plan->best.choice) && plan->program->microbatches > 1;
  const char *text =
      spared > 0 ? zp_format(page->out.arena,
                             "bf16 between nodes, %s a step fewer: what of %sgradients leaves a node is rounded once, "
                             "and added in f32. Besides f32's own rounding, an element is off by at most 1/%d of the "
                             "magnitudes that crossed, added up",
                             zp_show_bytes(page->out.arena, spared), each ? "a micro-batch's " : "",
                             (int)(1 / ZP_ROUNDED_SUM_ERROR))
                 : "bf16 between nodes: no sum of gradients over data ranks leaves a node here, so none is rounded";
  zp_page_field(page, "sums", "%s", text);
}

static void put_gradient_sums(zp_page *page, const zp_plan *plan) {
  if (!plan->spec->train.stochastic_sums) return;
  zp_gradient_sums sums = zp_gradient_sums_of(plan->program);
  double n = (double)sums.additions;
  const char *text = zp_format(
      page->out.arena,
      "bf16, rounded stochastically, %lld additions an element at most: unbiased, the standard deviation of an element "
      "at most %.2g of its addends' magnitudes, added up; within x sqrt(%lld)/256 = x %.2g of them with a probability "
      "of 1 - 2 exp(-x^2/2) (Connolly, Higham and Mary 2021), at worst within %.2g, besides f32's own rounding",
      (long long)sums.additions, sums.deviation, (long long)sums.additions, sqrt(n) * ZP_STOCHASTIC_ROUNDOFF,
      sums.worst);
  zp_page_field(page, "sums", "%s", text);
}

static void put_figures(zp_page *page, const zp_plan *plan) {
  put_layout(page, plan);
  put_step(page, plan);
  put_speed(page, plan);
  put_peak(page, plan);
}

void zp_report_prediction(zp_page *page, const zp_plan *plan) {
  assert(plan->feasible);
  put_verdict(page, plan, "trains on");
  put_figures(page, plan);
}

void zp_report_first_screen(zp_page *page, const zp_plan *plan) {
  assert(plan->feasible);
  put_verdict(page, plan, "fits on");
  put_figures(page, plan);
  put_training(page, plan);
  put_reduce_dtype(page, plan);
  put_gradient_sums(page, plan);
  put_memory_bar(page, plan);
  put_time_bar(page, plan);
  zp_page_blank(page);
  zp_page_field(page, "why", "%s", zp_words_why_briefly(page->out.arena, plan));
  put_alternative(page, plan);
  put_proof(page, plan);
}
