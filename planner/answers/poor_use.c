/* SPDX-License-Identifier: Apache-2.0 */
/* A plan that makes little of its devices: which term of the step is to blame, and whether far fewer devices take
 * hardly longer. Searches of a quarter, a sixteenth, ... of the devices, up to 5 % exact, as long as they look at no
 * more candidates together than the search for the plan did. */
#include <assert.h>
#include "answers_internal.h"
#include <zplan/buf.h>

/* A plan that reaches less than this share of the peak is asked about; below the second one, also whether fewer devices
 * would do. Measured trainings of large models reach 20 to 60 %. */
static const double POOR_MFU = 0.25, WASTED_MFU = 0.15;
/* The share where limits of the plan block may be why, or a long sample that the search did not divide. */
static const double POOR_LIMITED_MFU = 0.35;
/* Share of a step that is worth more words than compute. */
static const double MUCH = 0.2;
/* Device hours that must be saved, and how much longer a step may take, for fewer devices to be worth a line. */
static const double SAVES = 2, LONGER = 3;
static const double SEARCH_GAP = 0.05;
enum { STEP = 4, MOST_SIZES = 3, FEW_ROWS = 2048, LONG_SAMPLE = 32768, FILLED = 4 /* micro-batches a stage */ };
static const double UNLIKE = 1.2 /* times the mean of stages */, AGAIN = 1.15 /* HFU / MFU */, TERA = 1e12;

/* Finds the term that takes most of the step; compute, only where no other takes a fifth. */
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
  out->term_s = MUCH * e->step_s;
  for (size_t i = 1; i < sizeof terms / sizeof *terms; i++)
    if (terms[i].seconds > out->term_s) out->term = terms[i].name, out->term_s = terms[i].seconds;
  if (out->term == terms[0].name) out->term_s = terms[0].seconds;
}

static double stage_s(const zp_estimate *e, int stage) {
  return e->stage_forward_s[stage] + e->stage_backward_s[stage];
}

/* A stage that takes longer than the others, which wait for it; NULL: they are alike. */
static const char *unlike_stages(zp_arena *arena, const zp_plan *plan) {
  const zp_choice *c = &plan->best.choice;
  const zp_estimate *e = &plan->best.estimate;
  int slowest = 0;
  double sum = 0;
  for (int s = 0; s < c->pipeline && e->stage_forward_s; s++) {
    sum += stage_s(e, s);
    if (stage_s(e, s) > stage_s(e, slowest)) slowest = s;
  }
  double times = sum > 0 ? stage_s(e, slowest) * c->pipeline / sum : 1;
  return times < UNLIKE
             ? NULL
             : zp_format(arena, "stage %d takes ~%.1f times as long as the mean of all %d, which wait for it", slowest,
                         times, c->pipeline);
}

static const char *cause_of_bubble(zp_arena *arena, const zp_plan *plan) {
  const zp_choice *c = &plan->best.choice;
  int64_t microbatches = plan->program->microbatches;
  if (c->pipeline == 1) return NULL;
  const char *unlike = microbatches >= 2 * (int64_t)c->pipeline ? unlike_stages(arena, plan) : NULL;
  if (unlike || microbatches >= FILLED * (int64_t)c->pipeline) return unlike;
  return zp_format(arena, "%d stages have %lld micro-batch%s to work on, so %s of them wait%s", c->pipeline,
                   (long long)microbatches, microbatches == 1 ? "" : "es",
                   microbatches < 2 * (int64_t)c->pipeline ? "most" : "some",
                   microbatches < 2 * (int64_t)c->pipeline ? "" : " while a step begins and ends");
}

static const char *across(zp_arena *arena, const char *axis, int ranks, zp_group_link link) {
  if (link.nodes < 2)
    return zp_format(arena, "%s %d: every layer exchanges between so many ranks, if only inside a node", axis, ranks);
  return zp_format(arena, "%s %d spans %d nodes: what every layer exchanges crosses the network", axis, ranks,
                   link.nodes);
}

/* Positions that a data rank computes between two sums of gradients. */
static const char *cause_of_sums(zp_arena *arena, const zp_plan *plan) {
  const zp_choice *c = &plan->best.choice;
  int64_t positions = plan->program->microbatches * c->microbatch * plan->spec->model->sequence / zp_context_ranks(c);
  return zp_format(arena, "%d data ranks on %lld node%s exchange gradients%s after %lld positions each", c->data,
                   (long long)zp_machine_nodes(&plan->machine), zp_machine_nodes(&plan->machine) == 1 ? "" : "s",
                   zp_moves_params(c) ? " and parameters" : "", (long long)positions);
}

/* A precision that leaves most of the device unused; rows of products that are too few to keep a GPU from waiting for
 * its memory. */
static const char *cause_of_compute(zp_arena *arena, const zp_plan *plan) {
  const zp_choice *c = &plan->best.choice;
  const zp_device *device = &plan->spec->cluster.node.device;
  int64_t rows = c->microbatch * plan->spec->model->sequence / zp_context_ranks(c);
  if (zp_computes_slowly(plan))
    return zp_format(arena, "products in fp32 run at %.0f of the %.0f TFLOP/s that this device has in 16 bits",
                     device->flop_per_s_fp32 / TERA, device->flop_per_s_half / TERA);
  const zp_estimate *e = &plan->best.estimate;
  const char *unlike = unlike_stages(arena, plan);
  if (unlike) return unlike;
  if (e->hfu > AGAIN * e->mfu)
    return zp_format(arena, "~%.0f%% of what is computed is %s", 100 * (1 - e->mfu / e->hfu),
                     zp_model_has_experts(plan->spec->model)
                         ? "recomputation, and slots of experts that no token takes (`capacity = dropless` has none)"
                         : "recomputation: memory is short");
  if (rows >= FEW_ROWS) return NULL;
  return zp_format(arena, "products have %lld rows: weights are read for little work", (long long)rows);
}

int zp_undivided_data(const zp_plan *plan) {
  const zp_choice *c = &plan->best.choice;
  int data = zp_replicas(c), most = plan->devices / (zp_choice_ranks(c) / data);
  for (int more = data + 1; more <= most; more++)
    if (plan->spec->train.batch % more == 0) return 0;
  return most > data ? most : 0;
}

static const char *cause_of_idle(zp_arena *arena, const zp_plan *plan, int idle) {
  const zp_machine *m = &plan->machine;
  int data = zp_replicas(&plan->best.choice), most = zp_undivided_data(plan);
  const char *left = zp_format(arena, "%d of %d devices are left out", idle, plan->devices);
  if (most > 0)
    return zp_format(arena, "%s: a batch of %lld does not divide over %d to %d data ranks", left,
                     (long long)plan->spec->train.batch, data + 1, most);
  return zp_format(arena,
                   "%s: a step would take longer, because more nodes exchange more over a network of %s/s a node", left,
                   zp_show_bytes(arena, (int64_t)(m->node->nic.bytes_per_s * m->node->nics)));
}

/* Why that term is so long, from what was decided; NULL: nothing that could be named. */
static const char *find_cause(zp_arena *arena, const zp_plan *plan, const zp_poor_use *poor) {
  const zp_choice *c = &plan->best.choice;
  const zp_machine *m = &plan->machine;
  double s = poor->term_s;
  const zp_estimate *e = &plan->best.estimate;
  int idle = zp_plan_idle(plan, c);
  bool network = idle >= m->devices_per_node && m->node->nics > 0;
  if (idle > plan->devices / 4 && (network || zp_undivided_data(plan) > 0)) return cause_of_idle(arena, plan, idle);
  if (s == e->bubble_s) return cause_of_bubble(arena, plan);
  if (s == e->tensor_comm_s)
    return across(arena, "tensor", c->tensor, zp_machine_tensor_group(m, c->tensor, c->pipeline, c->data));
  if (s == e->expert_comm_s)
    return across(arena, "expert", zp_expert_ranks(c),
                  zp_machine_expert_group(m, c->tensor, c->pipeline, c->data, zp_expert_ranks(c), c->order));
  if (s == e->context_comm_s)
    return across(arena, "context", zp_context_ranks(c),
                  zp_machine_expert_group(m, c->tensor, c->pipeline, c->data, zp_context_ranks(c), c->order));
  if (s == e->data_comm_s) return cause_of_sums(arena, plan);
  if (s == e->optimizer_s && c->zero == 0 && c->data > 1)
    return zp_format(arena, "zero 0: each of %d data ranks updates all of its stage's parameters", c->data);
  if (s == e->offload_s)
    return zp_format(arena, "what lives off the device crosses PCIe at %s/s",
                     zp_show_bytes(arena, (int64_t)m->node->pcie_bytes_per_s));
  return s == e->compute_s ? cause_of_compute(arena, plan) : NULL;
}

/* Whole nodes. */
static int fewer_devices(const zp_spec *spec, int devices) {
  int unit = zp_count_unit(spec), fewer = devices / STEP;
  return fewer > unit ? fewer / unit * unit : fewer;
}

/* Is the plan for fewer devices worth a line, and more so than the one before? */
static bool is_worth_it(const zp_poor_use *out, const zp_plan *best, const zp_candidate *fewer) {
  double longer = fewer->estimate.step_s / best->best.estimate.step_s;
  double saved = (double)best->devices / (double)zp_choice_ranks(&fewer->choice) / longer;
  return longer <= LONGER && saved >= SAVES && saved > out->times_fewer_hours;
}

static bool is_limited(zp_arena *arena, const zp_plan *plan) {
  const zp_spec *spec = plan->spec;
  return zp_has_limits(arena, plan) ||
         (spec->model->sequence >= LONG_SAMPLE && zp_most_free_context(spec, plan->devices) == 1);
}

bool zp_find_poor_use(zp_arena *arena, const zp_plan *plan, zp_poor_use *out) {
  assert(plan->feasible);
  const zp_estimate *e = &plan->best.estimate;
  *out = (zp_poor_use){0};
  if (plan->certificate.candidates == 0 || plan->spec->cluster.node.device.is_cpu) return false;
  double mfu = e->mfu * zp_choice_ranks(&plan->best.choice) / plan->devices; /* of all that are paid for */
  if (mfu >= (is_limited(arena, plan) ? POOR_LIMITED_MFU : POOR_MFU) && !zp_computes_slowly(plan)) return false;
  find_largest_term(out, e);
  out->cause = find_cause(arena, plan, out);
  out->helps = zp_find_helps(arena, plan);
  if (mfu >= POOR_MFU && out->helps.len == 0) return false; /* as good as it gets */
  int devices = (int)zp_choice_ranks(&plan->best.choice);
  if (plan->devices >= SAVES * devices) { /* the others are left out and paid for */
    out->devices = devices;
    out->times_longer = 1;
    out->times_fewer_hours = (double)plan->devices / devices;
  }
  int64_t looked_at = 0;
  for (int i = 0; i < MOST_SIZES && mfu < WASTED_MFU && looked_at < plan->certificate.candidates; i++) {
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
      out->times_fewer_hours = (double)plan->devices / (double)out->devices / out->times_longer;
      out->fewer = zp_keep_candidate(arena, &fewer->best);
    }
    zp_arena_free(scratch);
    if (!fits) break;
  }
  return true;
}
