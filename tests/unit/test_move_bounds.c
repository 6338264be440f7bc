/* SPDX-License-Identifier: Apache-2.0 */
/* Relaxations of the list of moves that the search counts with, against the price of random plans with exact buckets:
 * what a stage moves alongside its units (zp_cost_least_moving) and with nothing alongside (zp_cost_least_alone), its
 * update (zp_cost_step_update), and what follows its micro-batches (zp_cost_step_end), of units taken together and not
 * padded. */
#include "search_instances.h"
#include <zplan/schedule.h>

#ifdef __SANITIZE_ADDRESS__
enum { PLANS = 400 };
#else
enum { PLANS = 6000 };
#endif

TestSuite(move_bounds, .init = setup, .fini = teardown, .timeout = 600);

typedef struct priced {
  zp_machine machine;
  const zp_program *program;
} priced;

/* ---- random plans ---- */

static int any_of(const int *values, int n) { return values[random_below(n)]; }

static zp_choice random_choice(bool experts) {
  static const int degrees[] = {1, 1, 2, 3, 4}, stages[] = {1, 1, 2, 3};
  zp_choice c = {.tensor = any_of((int[]){1, 1, 2}, 3),
                 .pipeline = any_of(stages, 4),
                 .data = any_of(degrees, 5),
                 .microbatch = 1 + random_below(2),
                 .zero = (int)random_below(4),
                 .order = (zp_rank_order)random_below(ZP_ORDER_COUNT),
                 .schedule = (zp_schedule)random_below(ZP_SCHEDULE_COUNT),
                 .recompute = (zp_recompute)random_below(3)};
  c.sequence = c.tensor > 1 && random_below(2);
  c.expert = experts && c.data % 2 == 0 ? 2 : 1;
  c.compress = c.data > 1 && random_below(8) == 0;
  if (zp_schedule_folds(c.schedule) || c.schedule == ZP_SCHEDULE_INTERLEAVED) c.chunks = 2;
  for (int i = 0; i < ZP_STATE_COUNT; i++)
    if (random_below(3) == 0)
      c.home[i] = (zp_home){random_below(2) ? ZP_TIER_HOST : ZP_TIER_NVME, 1 + (int)random_below(8)};
  return c;
}

static void random_cut(zp_choice *c, int64_t units) {
  int chunks = c->pipeline * zp_chunks(c);
  c->cut = ZP_NEW_ARRAY(arena, int64_t, chunks + 1);
  c->cut[chunks] = units;
  for (int k = 1; k < chunks; k++) c->cut[k] = c->cut[k - 1] + 1 + random_below(units - (chunks - k) - c->cut[k - 1]);
}

/* Links between tiers are fast or so slow that nothing else says anything. */
static zp_spec *random_instance(bool experts, bool cpu) {
  model_size size = {.style = experts           ? STYLE_EXPERTS
                              : random_below(2) ? STYLE_GPT
                                                : STYLE_LLAMA,
                     .V = 40 + random_below(200),
                     .S = 16,
                     .d = 32,
                     .layers = 1 + random_below(6),
                     .heads = 4,
                     .kv_heads = 4,
                     .ff = 96,
                     .tied = random_below(2)};
  zp_cluster cluster = cpu ? cpu_cluster() : gpu_cluster(3);
  double slower = exp(-(double)random_below(12));
  cluster.node.host_bytes_per_s = 1e11 * slower, cluster.node.pcie_bytes_per_s = 1e10 * slower;
  cluster.node.nvme_read_bytes_per_s = 2e9 * slower, cluster.node.nvme_write_bytes_per_s = 1e9 * slower;
  cluster.node.host_memory_bytes = INT64_C(1) << 40, cluster.node.nvme_bytes = INT64_C(1) << 40;
  zp_spec *spec = build_spec(arena, &size, cluster, 24);
  static const zp_precision narrow[] = {ZP_PREC_MIXED_FP8, ZP_PREC_MIXED_MXFP8, ZP_PREC_MIXED_NVFP4};
  if (random_below(2)) spec->train.precision = ZP_PREC_MIXED_FP16;
  if (!cpu && random_below(3) == 0) narrow_products(arena, spec, narrow[random_below(3)]);
  return spec;
}

static bool random_plan(priced *out) {
  const char *reason = NULL;
  bool experts = random_below(4) == 0, cpu = random_below(3) == 0;
  zp_spec *spec = random_instance(experts, cpu);
  zp_choice c = random_choice(experts);
  spec->train.delayed = c.home[ZP_STATE_OPTIMIZER].tier == ZP_TIER_HOST && random_below(2);
  if (spec->train.batch % (c.data * c.microbatch) || zp_choice_refusal(&c, spec)) return false;
  out->machine = zp_machine_make(&spec->cluster, spec->train.precision, c.tensor * c.pipeline * c.data);
  zp_sharding *sharding =
      zp_shard_experts(arena, spec->model, &out->machine, c.tensor, zp_expert_ranks(&c), c.sequence, &reason);
  int64_t units = 0;
  for (int i = 0; i < spec->model->segments.len; i++) units += spec->model->segments.data[i].count;
  if (!sharding || units < (int64_t)c.pipeline * zp_chunks(&c)) return false;
  random_cut(&c, units);
  zp_lowered **stages = zp_lower_stages(arena, spec, sharding, &c, &reason);
  if (!stages) return false;
  out->program = zp_program_make(arena, zp_price_stages(stages, &out->machine, &c), &c);
  return true;
}

/* ---- a stage as if its units were one ---- */

static void add_parameter(zp_flat *to, const zp_lowered *l, int param) {
  to->of[zp_kind_of(l, param)] += l->param_elements[param];
}

static void add_parameters(zp_flat *to, const zp_lowered *l, const zp_segment_program *segment) {
  for (int i = 0; i < segment->graph->params.len; i++)
    if (segment->param_offset[i] >= 0) add_parameter(to, l, segment->graph->params.data[i].param);
}

/* No unit of the stage has fewer elements. */
static zp_relaxed_unit least_of_stage(const zp_program *p, int s) {
  const zp_lowered *l = zp_program_lowered(p, s);
  zp_relaxed_unit least = {.elements = {{INT64_MAX, INT64_MAX}}, .units = 1};
  for (int r = 0; r < p->stages[s].runs.len; r++) {
    zp_flat unit = {{0}};
    add_parameters(&unit, l, &l->segments[p->stages[s].runs.data[r].segment]);
    for (zp_param_kind kind = 0; kind < ZP_KINDS; kind++)
      if (unit.of[kind] < least.elements.of[kind]) least.elements.of[kind] = unit.of[kind];
  }
  return least;
}

/* work_s: computing, forward and backward. */
static zp_relaxed_unit together(const zp_program *p, int s, double work_s[2]) {
  const zp_lowered *l = zp_program_lowered(p, s);
  const zp_stage *stage = &p->stages[s];
  zp_relaxed_unit all = {.units = stage->n_calls};
  for (int r = 0; r < stage->runs.len; r++) {
    const zp_run *run = &stage->runs.data[r];
    const zp_segment_program *segment = &l->segments[run->segment];
    for (int64_t k = 0; k < run->count; k++) add_parameters(&all.elements, l, segment);
    all.saved_bytes += run->count * segment->saved_bytes;
    work_s[0] += (double)run->count * segment->forward.cost_s;
    work_s[1] += (double)run->count * segment->backward.cost_s;
  }
  for (int i = 0; i < stage->shared.len; i++) add_parameter(&all.elements, l, stage->shared.data[i].param);
  return all;
}

static void check_stage(const priced *x, int s) {
  const zp_program *p = x->program;
  const zp_choice *c = &p->choice;
  const zp_lowered *l = zp_program_lowered(p, s);
  double work_s[2] = {0}, forward_s = 0, backward_s = 0, overlapped_s = 0;
  zp_machine own = zp_machine_of_stage(&x->machine, c, s);
  zp_relaxed_unit all = together(p, s, work_s), one = least_of_stage(p, s);
  for (int k = 0; k < p->stages[s].n_chunks; k++) {
    zp_stage_time time = zp_cost_chunk(l, &own, c, &p->stages[s], k);
    forward_s += time.forward_s;
    backward_s += time.backward_s;
    overlapped_s += zp_cost_overlapped(c, &time);
  }
  zp_group_link data = zp_cost_link_of(&own, c, ZP_END_DATA_RANKS),
                replicas = zp_cost_link_of(&own, c, ZP_END_REPLICAS);
  zp_least_moving moving = zp_cost_least_moving(l, &own, c, &all, &data, &replicas);
  double forward = zp_cost_least_action(&moving.forward, work_s[0]),
         backward = zp_cost_least_action(&moving.backward, work_s[1]);
  cr_assert(forward <= forward_s * (1 + 1e-12), "stage %d, ZeRO %d: forward %.12g of %.12g", s, c->zero, forward,
            forward_s);
  cr_assert(backward <= backward_s * (1 + 1e-12), "stage %d, ZeRO %d: backward %.12g of %.12g", s, c->zero, backward,
            backward_s);
  double alone = zp_chunks(c) * zp_cost_least_alone(l, &own, c, &one, &data, &replicas);
  cr_assert(work_s[0] + work_s[1] + alone <= (forward_s + backward_s) * (1 + 1e-12),
            "stage %d, ZeRO %d: %.12g alongside %.12g of %.12g", s, c->zero, alone, work_s[0] + work_s[1],
            forward_s + backward_s);

  zp_step_end end = zp_cost_stage_end(p, &x->machine, s, overlapped_s);
  zp_step_end update = zp_cost_step_update(l, &own, c, &all.elements);
  double updating = update.optimizer_s + update.least_offload_s, real = end.optimizer_s + end.offload_s;
  cr_assert(updating <= real * (1 + 1e-12), "stage %d, ZeRO %d: update %.12g of %.12g", s, c->zero, updating, real);

  zp_choice here = *c;
  memset(here.home, 0, sizeof here.home);
  zp_step_end sums = zp_cost_step_end(l, &own, &here, &all.elements);
  sums.reduce_s = zp_cost_step_end(l, &own, c, &all.elements).reduce_s;
  double reduce_s = zp_cost_exposed_reduce(&own, sums.taken, sums.reduce_s, 0, overlapped_s, p->stages[s].n_calls);
  cr_assert(sums.gather_s <= end.gather_s * (1 + 1e-12), "stage %d, ZeRO %d: gathers %.12g of %.12g", s, c->zero,
            sums.gather_s, end.gather_s);
  cr_assert(reduce_s <= end.reduce_s * (1 + 1e-12), "stage %d, ZeRO %d: sums %.12g of %.12g", s, c->zero, reduce_s,
            end.reduce_s);
}

Test(move_bounds, relaxations_of_the_list_are_never_more_than_its_price) {
  int offloaded = 0, spread = 0, casts = 0;
  state = 9;
  for (int plans = 0; plans < PLANS;) {
    priced x;
    zp_arena_mark mark = zp_arena_get_mark(arena);
    if (random_plan(&x)) {
      const zp_choice *c = &x.program->choice;
      for (int s = 0; s < c->pipeline; s++) check_stage(&x, s);
      for (int i = 0; i < ZP_STATE_COUNT; i++) offloaded += c->home[i].eighths > 0;
      spread += zp_expert_ranks(c) > 1;
      for (int s = 0; s < c->pipeline; s++) casts += c->data > 1 && x.program->stages[s].casts.of[ZP_KIND_WHOLE] > 0;
      plans++;
    }
    zp_arena_rewind(arena, mark);
  }
  cr_expect_gt(casts, PLANS / 40, "stages with casts that are gathered");
  cr_expect(offloaded > PLANS / 4 && spread > PLANS / 40, "%d classes off the device, %d plans with experts", offloaded,
            spread);
}
