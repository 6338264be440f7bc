/* SPDX-License-Identifier: Apache-2.0 */
/* Arenas of stages and whole programs: exact bytes, tied parameters, traffic. */
#include <limits.h>
#include "program_testing.h"

TestSuite(program_layout, .init = setup, .fini = teardown);

/* ---- the arena of a stage ---- */

static unsigned random_state = 1;
static int random_below(int n) {
  random_state = random_state * 1103515245u + 12345u;
  return (int)((random_state >> 16) % (unsigned)n);
}

static int64_t *random_cuts(int64_t units, int pipeline) {
  int64_t *cut = ZP_NEW_ARRAY(arena, int64_t, pipeline + 1);
  for (int s = 1; s <= pipeline; s++) {
    int64_t left = units - cut[s - 1] - (pipeline - s);
    cut[s] = s == pipeline ? units : cut[s - 1] + 1 + random_below((int)left);
  }
  return cut;
}

static void check_stage(const zp_lowered *l, const zp_choice *c, const zp_stage *stage) {
  const zp_memory *m = &stage->memory;
  int64_t microbatches = BATCH / (c->data * c->microbatch), depth = c->pipeline - stage->index;
  cr_assert_eq(zp_stage_bytes(l, c, stage->index, stage->first_unit, stage->n_units), stage->arena_bytes);
  cr_assert_eq(m->weights + m->gradients + m->optimizer + m->saved + m->buffers, stage->arena_bytes);
  cr_assert_eq(m->context, l->spec->cluster.node.device.context_bytes);
  cr_assert_eq(stage->slots, depth < microbatches ? depth : microbatches);
  cr_assert_eq(zp_flat_trained(&stage->flat), zp_flat_trained(&stage->shard) * (c->zero ? c->data : 1));
  int64_t saved = 0, base = 0, pad = c->zero ? 64 * (int64_t)c->data : 64;
  for (int i = 0; i < stage->shared.len; i++) {
    cr_assert_eq(stage->shared.data[i].offset, base);
    base += (l->param_elements[stage->shared.data[i].param] + pad - 1) / pad * pad;
  }
  for (int r = 0; r < stage->runs.len; r++) {
    const zp_run *run = &stage->runs.data[r];
    cr_assert(run->base.of[ZP_KIND_WHOLE] == base && run->saved == saved);
    base += run->count * ((l->segments[run->segment].elements.of[ZP_KIND_WHOLE] + pad - 1) / pad * pad);
    saved += run->count * l->segments[run->segment].saved_bytes;
  }
  cr_assert_eq(saved, stage->slot_stride);
  cr_assert(base <= zp_flat_trained(&stage->flat) && zp_flat_trained(&stage->flat) - base < 64 * c->data);
}

static void check_layouts(const zp_lowered *l) {
  for (int i = 0; i < 40; i++) {
    static const int data[] = {1, 2, 3};
    zp_choice c = {.tensor = l->sharding->tensor,
                   .pipeline = 1 + random_below((int)l->n_units),
                   .data = data[random_below(3)],
                   .zero = random_below(2),
                   .microbatch = l->microbatch,
                   .recompute = l->recompute,
                   .recompute_shard = l->recompute_shard};
    c.cut = random_cuts(l->n_units, c.pipeline);
    for (int s = 0; s < c.pipeline; s++) {
      zp_stage stage;
      zp_layout_stage(arena, l, &c, s, &stage);
      check_stage(l, &c, &stage);
    }
  }
}
Test(program_layout, stage_bytes_are_those_of_the_layout) { for_variants(check_layouts); }

static zp_lowered *with_pieces(const zp_lowered *l) {
  const char *reason = NULL;
  zp_lowered *fine = zp_lower_pieces(arena, l, NULL, &reason);
  cr_assert(fine, "%s", reason);
  return fine;
}

static void check_fine_layouts(const zp_lowered *l) { check_layouts(with_pieces(l)); }
Test(program_layout, stages_that_begin_inside_layers) { for_variants(check_fine_layouts); }

/* What the cutting of the search relies on: of two ranges of units, one inside the other, the inner one needs no more
 * bytes on the same stage. */
static void check_monotone(const zp_lowered *whole) {
  const zp_lowered *l = with_pieces(whole);
  zp_choice c = {.tensor = l->sharding->tensor,
                 .pipeline = 3,
                 .data = 2,
                 .microbatch = l->microbatch,
                 .fine = true,
                 .recompute = l->recompute,
                 .recompute_shard = l->recompute_shard};
  for (c.zero = 0; c.zero <= 3; c.zero++)
    for (int64_t first = 0; first < l->n_units; first++) {
      for (int64_t n = 1; first + n < l->n_units; n++)
        cr_assert_leq(zp_stage_bytes(l, &c, 1, first, n), zp_stage_bytes(l, &c, 1, first, n + 1));
      for (int64_t n = 1; n <= first; n++)
        cr_assert_leq(zp_stage_bytes(l, &c, 1, first - n + 1, n), zp_stage_bytes(l, &c, 1, first - n, n + 1));
    }
}
Test(program_layout, more_units_need_more_memory) { for_variants(check_monotone); }

/* Cut between layers, a plan has the same bytes and procedures whether it may cut inside them or not. */
Test(program_layout, cuts_between_layers_are_the_same) {
  zp_lowered *l = lower_size(GPT, 2, 1, true, false), *fine = with_pieces(l);
  zp_choice c = {.tensor = 2, .pipeline = 1, .data = 1, .microbatch = 1, .recompute = ZP_RECOMPUTE_FULL};
  for (int64_t first = 0; first < 7; first++)
    for (int64_t n = 1; first + n <= 7; n++)
      cr_assert_eq(zp_stage_bytes(l, &c, 0, 1 + first, n), zp_stage_bytes(fine, &c, 0, 1 + 2 * first, 2 * n));
}

/* Scratch of the steps of one op in a layer's backward, bytes. */
static int64_t scratch_of(const zp_lowered *l, zp_op op) {
  const zp_procedure *p = &l->segments[LAYER].backward;
  int64_t bytes = 0;
  for (int s = 0; s < p->steps.len; s++)
    if (p->steps.data[s].op == op && p->steps.data[s].workspace >= 0)
      bytes += p->buffers.data[p->steps.data[s].workspace].bytes;
  return bytes;
}

/* Chunks of column sums in a layer's backward: the fewest, the most. */
static void chunks_of(const zp_lowered *l, int *fewest, int *most) {
  const zp_procedure *p = &l->segments[LAYER].backward;
  *fewest = INT_MAX, *most = 0;
  for (int s = 0; s < p->steps.len; s++) {
    int chunks = p->steps.data[s].row_chunks;
    if (p->steps.data[s].sums.len == 0 || p->steps.data[s].op != ZP_OP_FUSED_GRAD) continue;
    *fewest = chunks < *fewest ? chunks : *fewest;
    *most = chunks > *most ? chunks : *most;
  }
}

/* Column sums: 8 chunks on CPU ranks; on GPUs one for 16 rows, at most 512. Attention keeps its tiles on chip there. */
Test(program_layout, scratch_goes_by_the_kind_of_device) {
  zp_lowered *cpu = lower_size(GPT, 1, 1, false, false);
  zp_lowered *gpu = lower(build_spec(arena, &GPT, gpu_cluster(1), BATCH), 1, 1, false, false);
  int fewest, most;
  chunks_of(cpu, &fewest, &most);
  cr_expect(fewest == 8 && most == 8);
  cr_expect_gt(scratch_of(cpu, ZP_OP_FUSED_GRAD), 0);
  static const int64_t microbatches[] = {1, 4, 600};
  for (int i = 0; i < 3; i++) {
    zp_spec *spec = build_spec(arena, &GPT, gpu_cluster(1), BATCH);
    spec->cluster.trainer =
        ZP_TRAINER_NONE; /* on purpose: products with epilogues, which the own trainer has, make some of the sums */
    zp_lowered *some = lower(spec, 1, microbatches[i], false, false);
    int64_t rows = microbatches[i] * some->spec->model->sequence, chunks = rows < 16 * 512 ? rows / 16 : 512;
    chunks_of(some, &fewest, &most);
    cr_expect(fewest == chunks && most == chunks, "%d to %d chunks of %lld rows", fewest, most, (long long)rows);
    cr_expect_eq(scratch_of(some, ZP_OP_FUSED_GRAD) * 8, chunks * scratch_of(cpu, ZP_OP_FUSED_GRAD));
  }
  cr_expect_gt(scratch_of(cpu, ZP_OP_ATTENTION_GRAD), 0);
  cr_expect_eq(scratch_of(gpu, ZP_OP_ATTENTION_GRAD), 0);
}

/* Graphs depend on neither the micro-batch nor the mode: variants of one sharding have the same ones. */
Test(program_layout, variants_share_their_graphs) {
  const char *reason = NULL;
  zp_lowered *a = with_pieces(lower_size(GPT, 2, 1, true, false));
  zp_lowered *b = with_pieces(zp_lower(arena, a->spec, a->sharding, 2, ZP_RECOMPUTE_NONE, false, &reason));
  cr_assert_eq(a->n_segments, b->n_segments);
  cr_assert_gt(a->n_segments, a->pieces->n_whole);
  for (int i = 0; i < a->n_segments; i++) cr_expect_eq(a->segments[i].graph, b->segments[i].graph);
}

typedef struct region {
  int64_t at, bytes;
} region;

/* Regions are aligned, apart, and end at the arena's last byte. */
Test(program_layout, regions_are_apart) {
  zp_spec *spec = spec_of(GPT);
  zp_lowered *l = lower(spec, 2, 1, true, true);
  zp_choice c = {.tensor = 2,
                 .pipeline = 3,
                 .data = 2,
                 .zero = 1,
                 .microbatch = 1,
                 .recompute = ZP_RECOMPUTE_FULL,
                 .recompute_shard = true,
                 .cut = (int64_t[]){0, 3, 4, 9}};
  for (int i = 0; i < 3; i++) {
    zp_stage s;
    zp_layout_stage(arena, l, &c, i, &s);
    int64_t carry = 16 * 60 * 4, flat = zp_flat_trained(&s.flat) * 4, shard = zp_flat_trained(&s.shard) * 4;
    int64_t transient = s.arena_bytes - s.at[ZP_REGION_TRANSIENT];
    const region r[] = {{s.at[ZP_REGION_PARAMS], flat},
                        {s.at[ZP_REGION_GRADS], flat},
                        {s.at[ZP_REGION_MOMENT1], shard},
                        {s.at[ZP_REGION_MOMENT2], shard},
                        {s.at[ZP_REGION_INPUTS], 2 * BATCH / 2 * 16 * 4},
                        {s.at[ZP_REGION_SLOTS], s.slots * s.slot_stride},
                        {s.at[ZP_REGION_CARRY0], carry},
                        {s.at[ZP_REGION_CARRY1], carry},
                        {s.at[ZP_REGION_SEND_UP], carry},
                        {s.at[ZP_REGION_GRAD0], carry},
                        {s.at[ZP_REGION_GRAD1], carry},
                        {s.at[ZP_REGION_SEND_DOWN], carry},
                        {s.at[ZP_REGION_TRANSIENT], transient}};
    for (size_t a = 0; a < sizeof r / sizeof *r; a++) {
      if (r[a].at < 0) continue;
      cr_assert_eq(r[a].at % 256, 0);
      for (size_t b = 0; b < a; b++)
        cr_assert(r[b].at < 0 || r[b].at + r[b].bytes <= r[a].at, "stage %d: regions %zu and %zu", i, b, a);
    }
    cr_expect_eq(s.at[ZP_REGION_SEND_UP] < 0, i == 2);
    cr_expect_eq(s.at[ZP_REGION_SEND_DOWN] < 0, i == 0);
    cr_expect_eq(s.at[ZP_REGION_GRAD1] < 0, i == 1); /* one unit */
    cr_expect_eq(s.at[ZP_REGION_MASTER], -1);
  }
}

Test(program_layout, ping_pong_hands_over) {
  for (int64_t n = 1; n <= 6; n++) {
    cr_expect_eq(zp_stage_grad_index(n, n - 1), 0); /* where the message from above arrives */
    for (int64_t j = 1; j < n; j++) {
      cr_expect_neq(zp_stage_grad_index(n, j), zp_stage_grad_index(n, j - 1));
      cr_expect_neq(zp_stage_carry_index(j), zp_stage_carry_index(j - 1));
    }
  }
}

Test(program_layout, optimizers_have_their_state) {
  static const struct {
    zp_optimizer_kind kind;
    double momentum;
    zp_precision precision;
    int64_t bytes;
    double ema;
  } row[] = {{ZP_OPT_ADAMW, 0, ZP_PREC_F32, 8, 0},         {ZP_OPT_SGD, 0, ZP_PREC_F32, 0, 0},
             {ZP_OPT_SGD, 0.9, ZP_PREC_F32, 4, 0},         {ZP_OPT_ADAM, 0, ZP_PREC_F64, 16, 0},
             {ZP_OPT_ADAMW, 0, ZP_PREC_MIXED_BF16, 12, 0}, {ZP_OPT_ADAMW, 0, ZP_PREC_F32, 12, 0.999},
             {ZP_OPT_SGD, 0, ZP_PREC_F64, 8, 0.999},       {ZP_OPT_LION, 0, ZP_PREC_MIXED_BF16, 12, 0.5}};
  for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
    zp_spec *spec = spec_of(GPT);
    spec->train.optimizer = row[i].kind, spec->train.momentum = row[i].momentum,
    spec->train.precision = row[i].precision, spec->train.ema = row[i].ema;
    zp_lowered *l = lower(spec, 1, 1, false, false);
    zp_choice c = {.tensor = 1, .pipeline = 1, .data = 1, .microbatch = 1, .cut = (int64_t[]){0, 9}};
    zp_stage s;
    zp_layout_stage(arena, l, &c, 0, &s);
    cr_expect_eq(l->state_bytes, row[i].bytes);
    int64_t gap = s.memory.optimizer - zp_flat_trained(&s.flat) * row[i].bytes; /* alignment of four regions */
    cr_expect(gap >= 0 && gap < 4 * 256, "row %zu", i);
    cr_expect_eq(s.memory.weights, zp_flat_trained(&s.flat) * l->param_bytes);
    cr_expect_eq(s.at[ZP_REGION_MASTER] >= 0, row[i].precision == ZP_PREC_MIXED_BF16);
    bool first = row[i].kind != ZP_OPT_SGD || row[i].momentum > 0;
    cr_expect_eq(s.at[ZP_REGION_MOMENT1] >= 0, first);
    cr_expect_eq(s.at[ZP_REGION_AVERAGE] >= 0, row[i].ema > 0);
  }
}

/* ---- the whole program ---- */

static zp_program *program_of(const zp_lowered *l, int pipeline, int data, int zero, int64_t *cut) {
  zp_choice c = {.tensor = l->sharding->tensor,
                 .pipeline = pipeline,
                 .data = data,
                 .zero = zero,
                 .microbatch = l->microbatch,
                 .recompute = l->recompute,
                 .recompute_shard = l->recompute_shard,
                 .cut = cut};
  return zp_program_make(arena, on_all_stages(arena, l, pipeline), &c);
}

Test(program_layout, tied_parameters_are_found) {
  zp_lowered *l = lower_size(GPT, 2, 1, false, false);
  zp_program *p = program_of(l, 3, 1, 0, (int64_t[]){0, 4, 6, 9});
  cr_assert_eq(p->tied.len, 1);
  cr_expect_str_eq(p->spec->model->params.data[p->tied.data[0].param].name, "wte");
  cr_assert_eq(p->tied.data[0].stages.len, 2);
  cr_expect(p->tied.data[0].stages.data[0] == 0 && p->tied.data[0].stages.data[1] == 2);
  cr_expect_eq(p->tied.data[0].elements, 501 * 60);
  for (int i = 0; i < 2; i++)
    cr_expect_eq(p->tied.data[0].offset.data[i],
                 zp_stage_shared(&p->stages[p->tied.data[0].stages.data[i]], p->tied.data[0].param));
  cr_expect_eq(zp_stage_shared(&p->stages[1], p->tied.data[0].param), -1);
  cr_expect_eq(program_of(l, 1, 1, 0, (int64_t[]){0, 9})->tied.len, 0);
}

/* By hand. t = 2, p = 2, d = 3, batch 24, micro-batch 2, so m = 4. x is one carried tensor of 2 * 16 * 60 elements.
 * Ring all-reduce over t ranks: 2 (t - 1) n elements; all-gather of n from each: (t - 1) t n. */
Test(program_layout, traffic_by_hand) {
  const int64_t x = 2 * 16 * 60, rows = 2 * 16, m = 4, d = 3, t = 2, f32 = 4;
  zp_lowered *l = lower_size(GPT, 2, 2, false, false);
  int64_t cut[] = {0, 4, 9};
  zp_program *p = program_of(l, 2, (int)d, 0, cut);
  zp_traffic traffic = zp_program_traffic(p);
  int64_t all_reduce = 2 * (t - 1) * x;
  /* Embedding: one forward. Each of 7 layers: two forward, two backward. Head: one backward, and the statistics. */
  int64_t per_microbatch = (1 + 7 * 4 + 1) * all_reduce + (t - 1) * t * rows * 3;
  cr_expect_eq(traffic.tensor, per_microbatch * m * d * f32);
  cr_expect_eq(traffic.pipeline, 2 * x * m * t * d * f32);
  int64_t flat = zp_flat_trained(&p->stages[0].flat) + zp_flat_trained(&p->stages[1].flat);
  cr_expect_eq(traffic.data, 2 * (d - 1) * flat * t * f32);
  cr_expect_eq(traffic.tie, 2 * (501 * 60) * t * d * f32);
  zp_traffic one = zp_program_traffic(program_of(lower_size(GPT, 1, 2, false, false), 1, 1, 0, (int64_t[]){0, 9}));
  cr_expect(one.tensor == 0 && one.pipeline == 0 && one.data == 0 && one.tie == 0);
}

/* Recomputation repeats one of the two forward all-reduces of a layer; shards are gathered once. */
Test(program_layout, traffic_of_recomputation) {
  const int64_t x = 2 * 16 * 60, m = 12;
  int64_t cut[] = {0, 9},
          base = zp_program_traffic(program_of(lower_size(GPT, 2, 2, false, false), 1, 1, 0, cut)).tensor;
  int64_t full = zp_program_traffic(program_of(lower_size(GPT, 2, 2, true, false), 1, 1, 0, cut)).tensor;
  int64_t shard = zp_program_traffic(program_of(lower_size(GPT, 2, 2, true, true), 1, 1, 0, cut)).tensor;
  cr_expect_eq(full - base, 7 * 2 * x * m * 4);
  cr_expect_eq(shard - full, 7 * 2 * (x / 2) * m * 4);
}

Test(program_layout, units_are_numbered_along_the_model) {
  zp_lowered *l = lower_size(GPT, 1, 1, false, false);
  static const struct {
    int segment;
    int64_t iteration;
  } expected[] = {{BEGIN, 0}, {LAYER, 0}, {LAYER, 6}, {END, 0}};
  static const int64_t unit[] = {0, 1, 7, 8};
  cr_assert_eq(l->n_units, 9);
  for (int i = 0; i < 4; i++) {
    int segment;
    int64_t iteration;
    zp_unit(l, unit[i], &segment, &iteration);
    cr_expect(segment == expected[i].segment && iteration == expected[i].iteration);
  }
}

/* Where messages lie: the last part of the model sends nothing up, the first nothing down, and on the first stage the
 * second chunk has the first buffer. */
Test(program_layout, buffers_of_messages_by_hand) {
  zp_choice plain = {.tensor = 1, .pipeline = 4, .data = 1, .schedule = ZP_SCHEDULE_1F1B, .chunks = 1},
            chunked = {.tensor = 1, .pipeline = 4, .data = 1, .schedule = ZP_SCHEDULE_INTERLEAVED, .chunks = 2};
  zp_stage s = {.at[ZP_REGION_SEND_UP] = 1000, .at[ZP_REGION_SEND_DOWN] = 5000, .messages = 2, .message_stride = 256};
  const struct {
    const zp_choice *choice;
    int stage, chunk;
    int64_t up, down;
  } rows[] = {{&plain, 0, 0, 1000, -1},     {&plain, 1, 0, 1000, 5000},   {&plain, 3, 0, -1, 5000},
              {&chunked, 0, 0, 1000, -1},   {&chunked, 0, 1, 1512, 5000}, {&chunked, 2, 1, 1512, 5512},
              {&chunked, 3, 0, 1000, 5000}, {&chunked, 3, 1, -1, 5512}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    s.index = rows[i].stage;
    cr_expect_eq(zp_stage_send_at(rows[i].choice, &s, rows[i].chunk, true), rows[i].up, "row %zu, up", i);
    cr_expect_eq(zp_stage_send_at(rows[i].choice, &s, rows[i].chunk, false), rows[i].down, "row %zu, down", i);
  }
}

/* Where messages land that zplan's GPU trainer receives ahead: one place for every neighbour that sends something. In a
 * ring both do, folded ones send for two chunks. */
Test(program_layout, places_where_messages_land_by_hand) {
  const struct {
    zp_schedule schedule;
    int chunks, places[4];
  } rows[] = {{ZP_SCHEDULE_GPIPE, 1, {1, 2, 2, 1}},
              {ZP_SCHEDULE_1F1B, 1, {1, 2, 2, 1}},
              {ZP_SCHEDULE_INTERLEAVED, 2, {2, 2, 2, 2}},
              {ZP_SCHEDULE_ZB_V, 2, {2, 4, 4, 2}},
              {ZP_SCHEDULE_DUALPIPEV, 2, {2, 4, 4, 2}}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    for (int s = 0; s < 4; s++) {
      zp_choice c = {.tensor = 1, .pipeline = 4, .data = 1, .schedule = rows[i].schedule, .chunks = rows[i].chunks};
      zp_spec *spec = build_spec(arena, &GPT, gpu_cluster(1), BATCH);
      spec->cluster.trainer = ZP_TRAINER_ZPLAN;
      cr_expect_eq(zp_stage_landings(spec, &c, s), rows[i].places[s], "row %zu, stage %d", i, s);
      spec->cluster.trainer = ZP_TRAINER_MEGATRON;
      cr_expect_eq(zp_stage_landings(spec, &c, s), 0, "another trainer");
      spec = build_spec(arena, &GPT, cpu_cluster(), BATCH);
      spec->cluster.trainer = ZP_TRAINER_ZPLAN;
      cr_expect_eq(zp_stage_landings(spec, &c, s), 0, "CPU ranks");
      c.pipeline = 1;
      spec = build_spec(arena, &GPT, gpu_cluster(1), BATCH);
      spec->cluster.trainer = ZP_TRAINER_ZPLAN;
      cr_expect_eq(zp_stage_landings(spec, &c, 0), 0, "one stage");
    }
}
