/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of stages under ZeRO, chunks, split backward, selective recomputation and compression. Expected numbers are
 * worked out by hand: from the published tables, or from parameter counts and shapes. */
#include "planner_models.h"
#include <zplan/cost.h>
#include <zplan/schedule.h>

static zp_arena *arena;
static void setup(void) { arena = zp_arena_new("test"); }
static void teardown(void) { zp_arena_free(arena); }
TestSuite(layout, .init = setup, .fini = teardown);

static const model_size TINY = {STYLE_GPT, 256, 32, 64, 8, 4, 4, 256, true};

static zp_lowered *lower(zp_spec *spec, int tensor, bool sequence, int64_t microbatch, zp_recompute recompute) {
  const char *reason = NULL;
  zp_machine machine = zp_machine_make(&spec->cluster, spec->train.precision, tensor);
  zp_sharding *sharding = zp_shard(arena, spec->model, &machine, tensor, 1, sequence, &reason);
  cr_assert(sharding, "%s", reason);
  zp_lowered *lowered = zp_lower(arena, spec, sharding, microbatch, recompute, false, &reason);
  cr_assert(lowered, "%s", reason);
  zp_price(lowered, &machine, tensor, 1, 1);
  return lowered;
}

static zp_stage lay_out(const zp_lowered *lowered, zp_choice choice, int stage) {
  zp_stage out;
  zp_layout_stage(arena, lowered, &choice, stage, &out);
  cr_expect_eq(zp_memory_on_device(&out.memory), out.arena_bytes);
  return out;
}

/* 7.5B parameters and more: 72 layers of 2944, f16. arXiv 1910.02054, figure 1: 120, 31.4, 16.6 and 1.9 GB on 64 ranks.
 * It counts 2 bytes for a gradient; sums have 4. Here exactly: 2 + 4 + 12 bytes for every padded element. */
Test(layout, zero_table) {
  static const model_size size = {STYLE_GPT, 4096, 32, 2944, 72, 32, 32, 4 * 2944, true};
  zp_spec *spec = build_spec(arena, &size, gpu_cluster(4), 64);
  spec->train.precision = ZP_PREC_MIXED_FP16;
  zp_lowered *l = lower(spec, 1, false, 1, ZP_RECOMPUTE_NONE);
  int64_t parameters = zp_model_parameters(spec->model), cut[] = {0, 74};
  cr_expect(parameters > INT64_C(7490000000) && parameters < INT64_C(7510000000), "%lld", (long long)parameters);
  static const double published_gb[] = {120, 31.4, 16.6, 1.9};
  for (int zero = 0; zero <= 3; zero++) {
    zp_stage s =
        lay_out(l, (zp_choice){.tensor = 1, .pipeline = 1, .data = 64, .zero = zero, .microbatch = 1, .cut = cut}, 0);
    int64_t states = s.memory.weights + s.memory.gradients + s.memory.optimizer, n = zp_flat_trained(&s.flat);
    cr_expect_eq(n % (64 * 64), zero ? 0 : n % (64 * 64));
    cr_expect(n >= parameters && n < parameters + 74 * (64 * 64 + 13 * 64), "padding: %lld",
              (long long)(n - parameters));
    int64_t params = zero == 3 ? n / 64 : n, grads = zero >= 2 ? n / 64 : n, state = zero >= 1 ? n / 64 : n;
    int64_t exact = 2 * params + 4 * grads + 12 * state;
    cr_expect(states >= exact && states < exact + 5 * 256, "five regions at multiples of 256 bytes");
    double as_published = (double)(states - 2 * grads) / 1e9;
    cr_expect_float_eq(as_published, published_gb[zero], 0.06, "ZeRO %d: %.3f GB", zero, as_published);
    int64_t rings = (zero >= 2) + (zero == 3);
    cr_expect_eq(s.at[ZP_REGION_GRAD_RING] >= 0, zero >= 2);
    cr_expect_eq(s.at[ZP_REGION_PARAM_RING] >= 0, zero == 3);
    if (rings) cr_expect_geq(s.memory.buffers, rings * 2 * zp_flat_trained(&s.bucket) * 2);
  }
}

/* A unit of TINY: 12 d^2 + 13 d elements, each parameter padded to 64: d = 64 needs no padding. Shared: tables and
 * final norm (V d, S d, d and d). With ZeRO each goes up to a multiple of 64 * data; the largest bucket is that of
 * the first unit, which uses both tables, or that of a layer. */
Test(layout, buckets_are_padded_to_whole_shards) {
  zp_spec *spec = build_spec(arena, &TINY, gpu_cluster(1), 24);
  zp_lowered *l = lower(spec, 1, false, 1, ZP_RECOMPUTE_NONE);
  int64_t cut[] = {0, 10}, unit = 12 * 64 * 64 + 13 * 64, shared = 256 * 64 + 32 * 64 + 2 * 64, pad = 3 * 64;
  zp_choice c = {.tensor = 1, .pipeline = 1, .data = 3, .zero = 1, .microbatch = 1, .cut = cut};
  zp_stage one = lay_out(l, c, 0);
  c.zero = 0;
  zp_stage plain = lay_out(l, c, 0);
  cr_expect_eq(zp_flat_trained(&plain.flat), 8 * unit + shared);
  c.zero = 2;
  zp_stage two = lay_out(l, c, 0);
  int64_t padded = (unit + pad - 1) / pad * pad, wte = (256 * 64 + pad - 1) / pad * pad;
  int64_t wpe = (32 * 64 + pad - 1) / pad * pad, padded_shared = wte + wpe + 2 * pad;
  cr_expect_eq(zp_flat_trained(&two.flat), 8 * padded + padded_shared);
  cr_expect_eq(zp_flat_trained(&one.flat), zp_flat_trained(&two.flat));
  cr_expect_eq(one.memory.optimizer, two.memory.optimizer);
  cr_expect_eq(two.runs.data[1].stride.of[ZP_KIND_WHOLE], padded);
  cr_expect_eq(zp_flat_trained(&two.bucket), padded > wte + wpe ? padded : wte + wpe);
  cr_expect_eq(two.memory.gradients, zp_flat_trained(&two.flat) / 3 * 4);
  cr_expect_eq(two.memory.weights, zp_flat_trained(&two.flat) * 4);
}

/* EXPERTS: layers of three matrices of 8 experts, 96 x 64 each, none of which needs padding. Two tensor ranks have 4
 * each, and with groups of 4 ranks one, so that of 8 data ranks 2 hold the same. ZeRO 1 shards the rest over 8, these
 * over 2, every unit and shared parameter by itself; f32 and Adam's two moments. */
Test(layout, experts_over_data_ranks) {
  static const model_size size = {STYLE_EXPERTS, 256, 32, 64, 6, 4, 8, 96, false};
  zp_spec *spec = build_spec(arena, &size, gpu_cluster(1), 64);
  const char *reason = NULL;
  zp_machine machine = zp_machine_make(&spec->cluster, spec->train.precision, 16);
  int64_t cut[] = {0, 8}, whole = 0, eighths = 0, spread = 6 * 3 * 96 * 64;
  for (int zero = 0; zero <= 1; zero++) {
    zp_choice c = {.tensor = 2, .pipeline = 1, .data = 8, .expert = 4, .zero = zero, .microbatch = 1, .cut = cut};
    zp_sharding *sharding = zp_shard_experts(arena, spec->model, &machine, 2, 4, false, &reason);
    cr_assert(sharding, "%s", reason);
    zp_lowered *l = zp_lower(arena, spec, sharding, 1, ZP_RECOMPUTE_NONE, false, &reason);
    zp_stage s = lay_out(l, c, 0);
    cr_expect_eq(s.flat.of[ZP_KIND_SPREAD], spread);
    cr_expect_eq(s.shard.of[ZP_KIND_SPREAD], zero ? spread / 2 : spread);
    if (!zero) {
      whole = zp_flat_trained(&s.flat) - spread;
      for (int i = 0; i < s.shared.len; i++) eighths += (l->param_elements[s.shared.data[i].param] + 511) / 512;
      for (int r = 0; r < s.runs.len; r++)
        eighths += s.runs.data[r].count * ((s.runs.data[r].stride.of[ZP_KIND_WHOLE] + 511) / 512);
    }
    int64_t padded = zero ? 512 * eighths : whole;
    cr_expect_eq(zp_flat_trained(&s.flat), padded + spread);
    cr_expect_eq(zp_flat_trained(&s.shard), zero ? padded / 8 + spread / 2 : padded + spread);
    cr_expect_eq(s.runs.data[1].base.of[ZP_KIND_SPREAD], padded, "after all that every data rank holds");
    cr_expect_eq(s.runs.data[1].stride.of[ZP_KIND_SPREAD], 3 * 96 * 64);
    cr_expect_geq(s.memory.optimizer, 8 * zp_flat_trained(&s.shard));
    cr_expect_lt(s.memory.optimizer, 8 * zp_flat_trained(&s.shard) + 2 * 256);
  }
}

/* Bytes of a step over 4 tensor x data ranks of one stage: an exchange leaves one of two parts at home, four of them a
 * layer and sample (out and back, either way), of [8 experts, slots] rows of 64; gradients of experts are not summed
 * when nobody else has them, the others' twice over (d - 1) ranks. */
Test(layout, bytes_between_experts) {
  static const model_size size = {STYLE_EXPERTS, 256, 32, 64, 6, 4, 8, 96, false};
  zp_spec *spec = build_spec(arena, &size, gpu_cluster(1), 8);
  const char *reason = NULL;
  zp_machine machine = zp_machine_make(&spec->cluster, spec->train.precision, 2);
  zp_sharding *sharding = zp_shard_experts(arena, spec->model, &machine, 1, 2, false, &reason);
  cr_assert(sharding, "%s", reason);
  zp_choice c = {.tensor = 1, .pipeline = 1, .data = 2, .expert = 2, .microbatch = 2, .cut = (int64_t[]){0, 8}};
  zp_lowered **stages = zp_lower_stages(arena, spec, sharding, &c, &reason);
  zp_program *p = zp_program_make(arena, (const zp_lowered *const *)stages, &c);
  int64_t slots = 8; /* 0.9 * 32 tokens * 2 choices / 8 experts = 7.2 */
  zp_traffic t = zp_program_traffic(p);
  cr_expect_eq(t.expert, 6 * 4 * 8 * (8 * slots * 64 * 4) / 2, "%lld", (long long)t.expert);
  cr_expect_eq(t.data, 2 * 1 * (zp_flat_trained(&p->stages[0].flat) - p->stages[0].flat.of[ZP_KIND_SPREAD]) * 4);
  cr_expect_eq(t.tensor, 0);
}

/* Two stages of TINY, 4 micro-batches: with ZeRO 2 three, with ZeRO 3 nine passes of 2 ranks over what every unit works
 * with. A layer has 49984 elements, in whole shards 50048; the ends use the tied table (16384), the first positions
 * (2048), the last a norm (64 and 64, each padded to 128). ZeRO 2 gathers every parameter of a stage once more. Tied
 * gradients: each rank sums its half. */
Test(layout, bytes_of_buckets) {
  zp_spec *spec = build_spec(arena, &TINY, cpu_cluster(), 8);
  zp_lowered *l = lower(spec, 1, false, 1, ZP_RECOMPUTE_NONE);
  int64_t units = 8 * 50048 + 2 * 256 * 64 + 32 * 64 + 2 * 128;
  for (int zero = 2; zero <= 3; zero++) {
    int64_t one[] = {0, 10}, two[] = {0, 5, 10};
    zp_choice c = {.tensor = 1, .pipeline = 2, .data = 2, .zero = zero, .microbatch = 1, .cut = two};
    zp_traffic t = zp_program_traffic(zp_program_make(arena, (const zp_lowered *[]){l, l}, &c));
    cr_expect_eq(t.data, units * 4 * (zero == 2 ? 4 + 1 : 3 * 4), "%lld", (long long)t.data);
    cr_expect_eq(t.tie, 2 * 256 * 64 * 4, "%lld", (long long)t.tie);
    c.pipeline = 1, c.cut = one; /* the table lies there once, and is used twice */
    t = zp_program_traffic(zp_program_make(arena, (const zp_lowered *[]){l}, &c));
    cr_expect_eq(t.data, units * 4 * (zero == 2 ? 4 + 1 : 3 * 4) - (zero == 2 ? 256 * 64 * 4 : 0));
    cr_expect_eq(t.tie, 0);
  }
}

/* GPUs gather and scatter ahead, in a second buffer; CPU ranks when they need it. */
Test(layout, buffers_of_rings) {
  for (int gpu = 0; gpu <= 1; gpu++) {
    zp_spec *spec = build_spec(arena, &TINY, gpu ? gpu_cluster(1) : cpu_cluster(), 8);
    int64_t cut[] = {0, 10};
    zp_stage s = lay_out(lower(spec, 1, false, 1, ZP_RECOMPUTE_NONE),
                         (zp_choice){.tensor = 1, .pipeline = 1, .data = 2, .zero = 3, .microbatch = 1, .cut = cut}, 0);
    cr_expect_eq(s.at[ZP_REGION_GRAD_RING] - s.at[ZP_REGION_PARAM_RING], (1 + gpu) * zp_flat_trained(&s.bucket) * 4);
  }
}

/* The default choice lays out what it always did: nothing new has bytes. */
Test(layout, default_choice_has_no_new_regions) {
  zp_spec *spec = build_spec(arena, &TINY, cpu_cluster(), 8);
  zp_lowered *l = lower(spec, 1, false, 1, ZP_RECOMPUTE_NONE);
  int64_t cut[] = {0, 5, 10};
  zp_choice c = {.tensor = 1, .pipeline = 2, .data = 1, .microbatch = 1, .cut = cut};
  for (int s = 0; s < 2; s++) {
    zp_stage x = lay_out(l, c, s);
    const int64_t absent[] = {x.at[ZP_REGION_PARAM_RING], x.at[ZP_REGION_GRAD_RING], x.at[ZP_REGION_SAVED_RING],
                              x.at[ZP_REGION_PENDING],    x.at[ZP_REGION_ERROR],     x.at[ZP_REGION_SERVER_ERROR]};
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++) cr_expect_eq(absent[i], -1);
    cr_expect_eq(x.memory.host + x.memory.nvme, 0);
    cr_expect_eq(x.slots, 2 - s);
    cr_expect_eq(zp_stage_bytes(l, &c, s, x.first_unit, x.n_units), x.arena_bytes);
  }
}

static zp_choice chunked(zp_schedule schedule, int pipeline, int chunks, int64_t *cut) {
  return (zp_choice){.tensor = 1,
                     .pipeline = pipeline,
                     .data = 1,
                     .schedule = schedule,
                     .chunks = chunks,
                     .microbatch = 1,
                     .cut = cut};
}

/* Slots: every chunk's own number times its own size, or one pool, whichever is smaller. */
Test(layout, chunks_have_slots_by_the_order_tables) {
  static const model_size wide = {STYLE_GPT, 4096, 32, 64, 8, 4, 4, 256, true};
  zp_spec *spec = build_spec(arena, &wide, gpu_cluster(1), 16);
  zp_lowered *l = lower(spec, 1, false, 1, ZP_RECOMPUTE_NONE);
  int64_t layer = l->segments[1].saved_bytes, first = l->segments[0].saved_bytes, last = l->segments[2].saved_bytes;
  int64_t cut[] = {0, 3, 5, 7, 10}; /* chunks: begin + 2, 2, 2, 2 + end */
  zp_choice c = chunked(ZP_SCHEDULE_INTERLEAVED, 2, 2, cut);
  zp_stage s0 = lay_out(l, c, 0), s1 = lay_out(l, c, 1);
  /* stage 0: chunks 0 and 2 of the model; 2 (p - 1) + (v - 1) p + 1 = 5 in flight: 3 and 2 when chunk 0 is full */
  cr_expect_eq(s0.n_units, 5);
  cr_expect_eq(s0.chunks[0].slot_stride, first + 2 * layer);
  cr_expect_eq(s0.chunks[1].slot_stride, 2 * layer);
  cr_expect_eq(s0.slots, 5);
  int64_t own = s0.chunks[0].slots * s0.chunks[0].slot_stride + s0.chunks[1].slots * s0.chunks[1].slot_stride;
  int64_t pool = 5 * (first + 2 * layer), fewer = own < pool ? own : pool;
  cr_expect_eq(s0.pooled, pool <= own);
  cr_expect(s0.memory.saved >= fewer && s0.memory.saved < fewer + 256);
  /* stage 1 holds the head, whose one micro-batch in flight is not multiplied by the pool */
  cr_expect_eq(s1.chunks[1].slot_stride, 2 * layer + last);
  cr_expect_eq(s1.chunks[1].slots, 1);
  cr_expect_not(s1.pooled);
  cr_expect_eq(s1.runs.data[1].chunk, 1);
  zp_units part[] = {{0, 3}, {5, 2}};
  zp_memory footprint = zp_stage_footprint(l, &c, 0, part, NULL);
  cr_expect_eq(zp_memory_on_device(&footprint), s0.arena_bytes);
}

/* ZB-V folds the model: stage 0 has both ends, so the tied table is there once. */
Test(layout, zb_v_holds_both_ends_on_stage_0) {
  zp_spec *spec = build_spec(arena, &TINY, gpu_cluster(1), 16);
  zp_lowered *l = lower(spec, 1, false, 1, ZP_RECOMPUTE_NONE);
  int64_t cut[] = {0, 3, 5, 7, 10};
  zp_choice c = chunked(ZP_SCHEDULE_ZB_V, 2, 2, cut);
  zp_program *p = zp_program_make(arena, on_all_stages(arena, l, c.pipeline), &c);
  cr_expect_eq(p->stages[0].chunks[1].units.first, 7);
  cr_expect_eq(p->stages[0].chunks[1].slots, 1);
  cr_expect_eq(p->tied.len, 0);
  cr_expect_eq(zp_stage_shared(&p->stages[1], 0), -1);
  cr_expect_eq(p->actions[0], 6 * 16);
  /* the turn-around sends nothing: forward and backward over two boundaries instead of three */
  cr_expect_eq(zp_program_traffic(p).pipeline, 2 * 2 * 16 * INT64_C(32) * 64 * 4);
}

/* A layer of GPT in f32, B = 1: weight gradients wait for dy of proj (d), of fc (4 d), of attention's output (d) and of
 * qkv (3 d), all [S, d] multiples of 4 bytes; their inputs lie in the slot. */
Test(layout, weight_gradients_wait_with_their_output_gradients) {
  zp_spec *spec = build_spec(arena, &TINY, gpu_cluster(1), 16);
  zp_lowered *l = lower(spec, 1, false, 1, ZP_RECOMPUTE_NONE);
  cr_expect_eq(l->segments[1].pending_bytes, (1 + 4 + 1 + 3) * 32 * 64 * 4);
  int64_t cut[] = {0, 3, 5, 7, 10};
  zp_choice c = chunked(ZP_SCHEDULE_ZB_H1, 4, 1, cut);
  zp_stage s1 = lay_out(l, c, 1); /* two layers, two waiting */
  cr_expect_eq(s1.chunks[0].pending, 2);
  cr_expect_geq(s1.at[ZP_REGION_PENDING], 0);
  cr_expect_eq(s1.slots, 4);
  cr_expect_eq(s1.memory.saved, 4 * 2 * l->segments[1].saved_bytes + 2 * 2 * l->segments[1].pending_bytes);
}

/* With ZeRO 2 and 3 what BI yields alongside other gradients waits, too: weight and bias of both norms, and the biases
 * of fc (4 d) and attention's output (d); d is 64. Those of proj and qkv are sums over columns that BW makes. */
Test(layout, early_gradients_wait_with_sharded_gradients) {
  zp_spec *spec = build_spec(arena, &TINY, gpu_cluster(1), 16);
  zp_lowered *l = lower(spec, 1, false, 1, ZP_RECOMPUTE_NONE);
  cr_expect_eq(l->segments[1].early_bytes, (4 + 4 + 1) * 64 * 4);
  int64_t cut[] = {0, 3, 5, 7, 10};
  zp_choice c = chunked(ZP_SCHEDULE_ZB_H1, 4, 1, cut);
  c.data = 2;
  for (c.zero = 0; c.zero <= 3; c.zero++) {
    zp_stage s1 = lay_out(l, c, 1);
    cr_expect_eq(s1.chunks[0].pending_stride,
                 2 * (l->segments[1].pending_bytes + (c.zero >= 2 ? l->segments[1].early_bytes : 0)));
  }
}

/* Without tensor ranks a layer keeps 2 norms' outputs (d each) and the activation (4 d) that it can rebuild; with full
 * recomputation only its input. */
Test(layout, selective_rebuilds_norms_and_activations) {
  zp_spec *spec = build_spec(arena, &TINY, gpu_cluster(1), 16);
  zp_lowered *none = lower(spec, 1, false, 1, ZP_RECOMPUTE_NONE),
             *some = lower(spec, 1, false, 1, ZP_RECOMPUTE_SELECTIVE),
             *full = lower(spec, 1, false, 1, ZP_RECOMPUTE_FULL);
  int64_t d = 32 * 64 * 4;
  cr_expect_eq(none->segments[1].saved_bytes - some->segments[1].saved_bytes, (1 + 1 + 4) * d);
  cr_expect_eq(full->segments[1].saved_bytes, d);
  const zp_procedure *b = &some->segments[1].backward;
  cr_expect_eq(b->n_recompute, 3);
  for (int i = 0; i < b->n_recompute; i++) cr_expect_eq(b->steps.data[i].op, ZP_OP_FUSED);
  cr_expect_eq(none->segments[0].saved_bytes, some->segments[0].saved_bytes);
  cr_expect_eq(none->segments[2].saved_bytes, some->segments[2].saved_bytes);
}

/* The second norm reads the residual sum, which its group computes too and which is kept: only the norm is rebuilt. */
Test(layout, selective_splits_groups) {
  zp_spec *spec = build_spec(arena, &TINY, gpu_cluster(1), 16);
  zp_lowered *l = lower(spec, 1, false, 1, ZP_RECOMPUTE_SELECTIVE);
  const zp_step *norm = &l->segments[1].backward.steps.data[1];
  cr_assert_eq(norm->node->fused->ops.len, 1);
  cr_expect_eq(norm->node->fused->ops.data[0].op, ZP_OP_LAYER_NORM);
  cr_expect_eq(norm->node->fused->operand[0], ZP_OPERAND_ROWS);
  cr_expect_eq(norm->in.len, 3);
}

/* Mixed precision layer with flash attention, sequence sharding over t: 34 s b h / t bytes of arXiv 2205.05198, less
 * the dropout masks (3 b s h: 2 after projections, 1... none here), plus f32 statistics of attention. Kept here, in
 * units of s b h: x 2, norm 2, qkv 6, attention 2, residual 2, norm 2, fc 8, gelu 8 = 32 bytes over t. */
Test(layout, sequence_sharding_divides_everything) {
  zp_spec *spec = build_spec(arena, &TINY, gpu_cluster(1), 16);
  spec->train.precision = ZP_PREC_MIXED_BF16;
  zp_lowered *l = lower(spec, 2, true, 1, ZP_RECOMPUTE_NONE);
  int64_t sbh = 32 * 64, lse = 32 * 2 * 4;
  cr_expect_eq(l->segments[1].saved_bytes, 32 * sbh / 2 + lse);
  cr_expect_eq(l->segments[1].carry_in_elements, sbh / 2);
}

/* Two f32 errors: of the whole vector and of this rank's part; the vector is padded to whole parts. */
Test(layout, compression_errors) {
  zp_spec *spec = build_spec(arena, &TINY, gpu_cluster(1), 24);
  zp_lowered *l = lower(spec, 1, false, 1, ZP_RECOMPUTE_NONE);
  int64_t cut[] = {0, 10};
  zp_choice c = {.tensor = 1, .pipeline = 1, .data = 3, .microbatch = 1, .cut = cut}, plain = c;
  c.compress = true;
  zp_stage s = lay_out(l, c, 0), p = lay_out(l, plain, 0);
  cr_expect_eq(zp_flat_trained(&s.flat) % (3 * 64), 0);
  cr_expect_eq(s.memory.optimizer, zp_flat_trained(&s.flat) * (8 + 4) + zp_flat_trained(&s.flat) / 3 * 4);
  cr_expect_eq(p.memory.optimizer, zp_flat_trained(&p.flat) * 8);
}

/* Errors are where their elements' state is. Of what a rank averages the layout has room for the rank that has most of
 * it on the device, the first, and for the one that has most of it on the host, the last. A record has 12 bytes for 64
 * elements: of all that is offloaded, or of a part from three ranks and their mean. */
Test(layout, compression_errors_offloaded) {
  zp_spec *spec = build_spec(arena, &TINY, gpu_cluster(1), 24);
  zp_lowered *l = lower(spec, 1, false, 1, ZP_RECOMPUTE_NONE);
  int64_t cut[] = {0, 10};
  zp_choice c = {.tensor = 1, .pipeline = 1, .data = 3, .microbatch = 1, .cut = cut, .compress = true};
  for (int eighths = 1; eighths <= 8; eighths++) {
    c.home[ZP_STATE_OPTIMIZER] = (zp_home){ZP_TIER_HOST, eighths};
    zp_choice plain = c;
    plain.compress = false;
    zp_stage s = lay_out(l, c, 0), p = lay_out(l, plain, 0);
    int64_t part = zp_flat_trained(&s.flat) / 3, gone = s.offloaded[ZP_STATE_OPTIMIZER],
            here = zp_flat_trained(&s.flat) - gone;
    cr_assert(gone > 0 && gone % 64 == 0);
    int64_t first = here < part ? here : part, last = gone < part ? gone : part;
    cr_expect_eq(s.memory.optimizer, here * (8 + 4) + first * 4, "%d eighths", eighths);
    int64_t all = gone / 64 * 12, of_a_part = 4 * last / 64 * 12, records = all > of_a_part ? all : of_a_part;
    int64_t errors = gone * 4 + last * 4, padded = (records + 255) / 256 * 256;
    int64_t wider = (gone - p.offloaded[ZP_STATE_OPTIMIZER]) * (8 + 4); /* flat buffers are padded to whole parts */
    cr_expect_eq(s.memory.host - p.memory.host, errors + padded + wider, "%d eighths", eighths);
    cr_expect(s.at[ZP_REGION_HOST_RECORDS] == s.at[ZP_REGION_HOST_SERVER_ERROR] + last * 4 &&
              s.at[ZP_REGION_HOST_STATE] == s.at[ZP_REGION_HOST_RECORDS] + padded);
  }
}

/* ---- order of memory ---- */

Test(layout, stage_bytes_agree_with_the_layout) {
  zp_spec *spec = build_spec(arena, &TINY, gpu_cluster(1), 16);
  for (int recompute = 0; recompute <= 2; recompute++) {
    zp_lowered *l = lower(spec, 1, false, 2, (zp_recompute)recompute);
    int64_t cut[] = {0, 2, 6, 10};
    for (int schedule = 0; schedule < ZP_SCHEDULE_COUNT; schedule++)
      for (int zero = 0; zero <= 3; zero++) {
        zp_choice c = {.tensor = 1,
                       .pipeline = 3,
                       .data = 2,
                       .zero = zero,
                       .schedule = (zp_schedule)schedule,
                       .microbatch = 2,
                       .cut = cut};
        if (zp_choice_refusal(&c, spec)) continue;
        for (int s = 0; s < 3; s++)
          cr_expect_eq(zp_stage_bytes(l, &c, s, cut[s], cut[s + 1] - cut[s]), lay_out(l, c, s).arena_bytes);
      }
  }
}

/* ---- stages with modes of their own ---- */

/* What stages recompute changes slots and working memory; parameters, state and messages stay where and what they are,
 * so neighbours and checkpoints need not know. */
Test(layout, modes_change_slots_only) {
  zp_spec *spec = build_spec(arena, &TINY, gpu_cluster(1), 16);
  int64_t cut[] = {0, 3, 7, 10};
  zp_choice c = {.tensor = 2, .pipeline = 3, .data = 2, .zero = 1, .microbatch = 1, .cut = cut};
  const zp_lowered *keep = lower(spec, 2, false, 1, ZP_RECOMPUTE_NONE);
  for (int mode = ZP_RECOMPUTE_FULL; mode <= ZP_RECOMPUTE_SELECTIVE; mode++) {
    const zp_lowered *rebuild = lower(spec, 2, false, 1, (zp_recompute)mode);
    for (int s = 0; s < 3; s++) {
      zp_stage plain = lay_out(keep, c, s), stage = lay_out(rebuild, c, s);
      cr_expect_eq(stage.at[ZP_REGION_PARAMS], plain.at[ZP_REGION_PARAMS]);
      cr_expect_eq(stage.at[ZP_REGION_GRADS], plain.at[ZP_REGION_GRADS]);
      cr_expect_eq(stage.at[ZP_REGION_MOMENT2], plain.at[ZP_REGION_MOMENT2]);
      cr_expect_eq(zp_flat_trained(&stage.flat), zp_flat_trained(&plain.flat));
      cr_expect_eq(zp_flat_trained(&stage.shard), zp_flat_trained(&plain.shard));
      cr_assert_eq(stage.runs.len, plain.runs.len);
      for (int r = 0; r < stage.runs.len; r++) {
        cr_expect_eq(stage.runs.data[r].base.of[ZP_KIND_WHOLE], plain.runs.data[r].base.of[ZP_KIND_WHOLE]);
        cr_expect_eq(stage.runs.data[r].stride.of[ZP_KIND_WHOLE], plain.runs.data[r].stride.of[ZP_KIND_WHOLE]);
      }
      cr_expect_eq(stage.slots, plain.slots);
      cr_expect(stage.slot_stride < plain.slot_stride);
      cr_expect_eq(stage.at[ZP_REGION_TRANSIENT] - stage.at[ZP_REGION_GRAD0],
                   plain.at[ZP_REGION_TRANSIENT] - plain.at[ZP_REGION_GRAD0], "carries, messages");
    }
  }
}

/* CPU ranks round operands of 8 bits in tiles of 128: (m k) times the tiles along n, (k n) times those along m. Rows
 * are 128; products of 64 x 192, 64 x 64, 64 x 256 and 256 x 64. Inputs of all but the second are rounded once, when
 * they are kept: 2 bytes of each number are read, 1 is written, and 4 of a scale. */
Test(layout, rounding_of_operands_is_priced) {
  static const double elements = 122880 + 131072 + 90112; /* forward, gradients of inputs, of weights */
  static const double kept[] = {128 * 64, 128 * 64, 128 * 256};
  double cost[2];
  for (int float8 = 0; float8 < 2; float8++) {
    zp_spec *spec = build_spec(arena, &TINY, cpu_cluster(), 8);
    spec->train.precision = float8 ? ZP_PREC_MIXED_FP8 : ZP_PREC_MIXED_BF16;
    if (float8) cr_expect_eq(zp_model_set_float8(spec->model, 16), 4);
    const zp_segment_program *layer = &lower(spec, 1, false, 4, ZP_RECOMPUTE_NONE)->segments[1];
    cost[float8] = layer->forward.cost_s + layer->backward.cost_s;
  }
  double rate = cpu_cluster().node.device.flop_per_s_half;
  double more = elements * 80 / rate;
  zp_cluster cluster = cpu_cluster();
  zp_machine machine = zp_machine_make(&cluster, ZP_PREC_MIXED_FP8, 1);
  for (int i = 0; i < 3; i++) more += kept[i] * 80 / rate + zp_cost_row_kernel(&machine, 3 * kept[i] + 4, 0, false);
  cr_expect_float_eq(cost[1] - cost[0], more, 1e-12, "%g", (cost[1] - cost[0] - more) * rate / 80);
}
