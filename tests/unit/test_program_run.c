/* SPDX-License-Identifier: Apache-2.0 */
/* The end-to-end oracle of lowering: the program of a plan, executed in f64 over its own arenas, gives the loss and the
 * gradients of the graphs that it was made from. So offsets, aliases, live ranges, slots, ping-pong buffers, kept
 * shards and order tables are right together. */
#include "program_reference.h"

static zp_arena *arena;
static void setup(void) { arena = zp_arena_new("test"); }
static void teardown(void) { zp_arena_free(arena); }
TestSuite(program_run, .init = setup, .fini = teardown);

/* Three heads, eleven tokens, odd widths: nothing divides by two. */
static const model_size GPT = {STYLE_GPT, 11, 5, 12, 3, 3, 3, 10, true};
static const model_size LLAMA = {STYLE_LLAMA, 13, 4, 24, 3, 6, 3, 14, false};
static const model_size PARALLEL = {STYLE_PARALLEL, 11, 4, 12, 3, 3, 3, 9, true};
static const model_size EXPERTS = {STYLE_EXPERTS, 11, 5, 12, 3, 3, 4, 9, false};
enum { BATCH = 4 };

typedef struct layout {
  int tensor, pipeline;
  int64_t microbatch;
  zp_recompute recompute;
  bool shard;
  zp_schedule schedule;
  zp_stage_mode *modes; /* of the stages; NULL: all as above */
  bool fine;
  int chunks;
  zp_stage_mix *mix; /* of the stages; NULL: no layers differ */
} layout;

static zp_spec *f64_spec(const model_size *size) {
  zp_spec *spec = build_spec(arena, size, cpu_cluster(), BATCH);
  spec->train.precision = ZP_PREC_F64;
  return spec;
}

/* Uneven cuts: what is left over goes to the first stages. */
static int64_t *cuts(int64_t units, int pipeline) {
  int64_t *cut = ZP_NEW_ARRAY(arena, int64_t, pipeline + 1);
  for (int s = 0; s < pipeline; s++) cut[s + 1] = cut[s] + units / pipeline + (s < units % pipeline);
  return cut;
}

static zp_program *make_program(const zp_spec *spec, layout w) {
  const char *reason = "none given";
  zp_machine machine = zp_machine_make(&spec->cluster, spec->train.precision, w.tensor * w.pipeline);
  zp_sharding *sharding = zp_shard(arena, spec->model, &machine, w.tensor, 1, false, &reason);
  cr_assert(sharding, "tensor %d: %s", w.tensor, reason);
  zp_choice choice = {.tensor = w.tensor,
                      .pipeline = w.pipeline,
                      .data = 1,
                      .microbatch = w.microbatch,
                      .fine = w.fine,
                      .recompute = w.recompute,
                      .recompute_shard = w.shard,
                      .schedule = w.schedule,
                      .chunks = w.chunks};
  if (w.modes) zp_choice_set_modes(&choice, w.modes);
  if (w.mix) zp_choice_set_mix(&choice, w.mix);
  zp_lowered **l = zp_lower_stages(arena, spec, sharding, &choice, &reason);
  cr_assert(l, "%s", reason);
  choice.cut = cuts(l[0]->n_units, w.pipeline * zp_chunks(&choice));
  return zp_program_make(arena, (const zp_lowered *const *)l, &choice);
}

/* Sanitizers see every kind of split and every kind of model, not all pairs of the two. */
#ifdef __SANITIZE_ADDRESS__
#define CHECK_PAIR(call) cr_skip_test("sanitizers see this split on another model, and this model in other splits")
#else
#define CHECK_PAIR(call) call
#endif

static void check_layout(const zp_spec *spec, const pm_reference *reference, layout w) {
  zp_arena_mark mark = zp_arena_get_mark(arena);
  pm *m = pm_new(arena, make_program(spec, w));
  pm_train(m);
  pm_expect_equal(m, reference);
  zp_arena_rewind(arena, mark);
}

/* All tensor degrees up to 3, 1 to 5 stages, micro-batches of 1, 2 and the whole batch, recomputation and kept shards;
 * one of them in GPipe's order, which keeps all micro-batches in flight. */
static void check_model(const model_size *size) {
  zp_spec *spec = f64_spec(size);
  pm_reference reference = pm_run_reference(arena, spec, BATCH);
  static const int64_t microbatch[] = {1, 2, 4};
  for (int tensor = 1; tensor <= 3; tensor++)
    for (int pipeline = 1; pipeline <= 5; pipeline++)
      for (int b = 0; b < 3; b++)
        for (int keep = ZP_RECOMPUTE_NONE; keep <= ZP_RECOMPUTE_SELECTIVE; keep++)
          for (int shard = 0; shard < (tensor > 1 && keep == ZP_RECOMPUTE_FULL ? 2 : 1); shard++)
            check_layout(spec, &reference,
                         (layout){tensor, pipeline, microbatch[b], (zp_recompute)keep, shard,
                                  b == 0 && keep == ZP_RECOMPUTE_SELECTIVE ? ZP_SCHEDULE_GPIPE : ZP_SCHEDULE_1F1B, NULL,
                                  false, 1, NULL});
}

/* Every stage begins or ends inside a layer somewhere: 2 parts a layer, and as many stages as there are units at
 * most. */
static void check_fine(const model_size *size) {
  zp_spec *spec = f64_spec(size);
  pm_reference reference = pm_run_reference(arena, spec, BATCH);
  for (int tensor = 1; tensor <= 3; tensor++)
    for (int pipeline = 1; pipeline <= 2 + 2 * size->layers; pipeline++)
      for (int keep = ZP_RECOMPUTE_NONE; keep <= ZP_RECOMPUTE_SELECTIVE; keep++)
        for (int shard = 0; shard < (tensor > 1 && keep == ZP_RECOMPUTE_FULL ? 2 : 1); shard++)
          check_layout(spec, &reference,
                       (layout){tensor, pipeline, 1 + pipeline % 2, (zp_recompute)keep, shard,
                                keep == ZP_RECOMPUTE_SELECTIVE ? ZP_SCHEDULE_GPIPE : ZP_SCHEDULE_1F1B, NULL, true, 1,
                                NULL});
}

Test(program_run, gpt_cut_inside_layers) { CHECK_PAIR(check_fine(&GPT)); }
Test(program_run, llama_cut_inside_layers) { check_fine(&LLAMA); }
Test(program_run, experts_cut_inside_layers) { CHECK_PAIR(check_fine(&EXPERTS)); }

/* All ways to give 1 to 3 stages modes of their own, and a few with 4, in 1F1B's and GPipe's order; of every third one
 * the layers after the first or the second of a stage have another mode. */
static void check_modes(const model_size *size) {
  static const zp_stage_mode modes[] = {ZP_RECOMPUTE_NONE, ZP_RECOMPUTE_SELECTIVE, ZP_RECOMPUTE_FULL,
                                        ZP_RECOMPUTE_FULL | ZP_STAGE_SPLIT};
  zp_spec *spec = f64_spec(size);
  pm_reference reference = pm_run_reference(arena, spec, BATCH);
  for (int tensor = 1; tensor <= 2; tensor++)
    for (int code = 0; code < 256; code += code < 64 ? 1 : 13) {
      int pipeline = code < 4 ? 1 : code < 16 ? 2 : code < 64 ? 3 : 4;
      zp_stage_mode mode[4];
      zp_stage_mix mix[4];
      for (int s = 0; s < pipeline; s++) {
        mode[s] = modes[code >> 2 * s & 3];
        mix[s] = (zp_stage_mix){1 + (code + s) % 2, modes[(code / 3 + s) % 3]};
        if (mix[s].rest == mode[s]) mix[s].layers = ZP_ALL_LAYERS;
      }
      check_layout(spec, &reference,
                   (layout){.tensor = tensor,
                            .pipeline = pipeline,
                            .microbatch = 1 + code % 2,
                            .schedule = code % 3 ? ZP_SCHEDULE_1F1B : ZP_SCHEDULE_GPIPE,
                            .modes = mode,
                            .mix = code % 3 == 1 ? mix : NULL,
                            .fine = code % 5 == 4});
    }
}

Test(program_run, gpt_stages_with_modes) { check_modes(&GPT); }
Test(program_run, llama_stages_with_modes) { CHECK_PAIR(check_modes(&LLAMA)); }

/* Every other schedule: several chunks a stage, the second back to the first stage, backward in two parts. What waits
 * for gradients of weights is poisoned when they are done, so nothing of it may be read later. */
static void check_schedules(const model_size *size, bool cut_inside) {
  static const struct {
    zp_schedule schedule;
    int chunks;
  } with[] = {{ZP_SCHEDULE_INTERLEAVED, 2}, {ZP_SCHEDULE_INTERLEAVED, 3}, {ZP_SCHEDULE_ZB_H1, 1},
              {ZP_SCHEDULE_ZB_H2, 1},       {ZP_SCHEDULE_ZB_V, 2},        {ZP_SCHEDULE_DUALPIPEV, 2}};
  zp_spec *spec = f64_spec(size);
  pm_reference reference = pm_run_reference(arena, spec, BATCH);
  int64_t units = 2 + (cut_inside ? 2 : 1) * size->layers;
  for (int tensor = 1; tensor <= 2; tensor++)
    for (size_t i = 0; i < sizeof with / sizeof *with; i++)
      for (int pipeline = with[i].schedule == ZP_SCHEDULE_ZB_H1 ? 1 : 2; pipeline * with[i].chunks <= units; pipeline++)
        for (int keep = ZP_RECOMPUTE_NONE; keep <= ZP_RECOMPUTE_SELECTIVE; keep++)
          for (int shard = 0; shard < (tensor > 1 && keep == ZP_RECOMPUTE_FULL ? 2 : 1); shard++)
            check_layout(spec, &reference,
                         (layout){tensor, pipeline, 1 + (pipeline + keep) % 2, (zp_recompute)keep, shard,
                                  with[i].schedule, NULL, pipeline * with[i].chunks > 2 + size->layers, with[i].chunks,
                                  NULL});
}

Test(program_run, gpt_schedules) { CHECK_PAIR(check_schedules(&GPT, true)); }
Test(program_run, llama_schedules) { CHECK_PAIR(check_schedules(&LLAMA, true)); }
Test(program_run, parallel_schedules) { check_schedules(&PARALLEL, false); }
Test(program_run, experts_schedules) { check_schedules(&EXPERTS, true); }

/* Groups with several outputs that selective recomputation rebuilds, one out of another; a sum over the tensor ranks
 * made where a group has left its part. Every mode, in plain and split backward, whole layers and parts of them. */
static void check_recompute(model_style style) {
  model_size size = {style, 11, 4, 12, 2, 3, 3, 10, true};
  zp_spec *spec = f64_spec(&size);
  pm_reference reference = pm_run_reference(arena, spec, BATCH);
  for (int tensor = 1; tensor <= 2; tensor++)
    for (int pipeline = 1; pipeline <= 3; pipeline++)
      for (int keep = ZP_RECOMPUTE_NONE; keep <= ZP_RECOMPUTE_SELECTIVE; keep++) {
        layout w = {.tensor = tensor, .pipeline = pipeline, .microbatch = 1, .recompute = (zp_recompute)keep};
        check_layout(spec, &reference, w);
        w.schedule = ZP_SCHEDULE_ZB_H1;
        check_layout(spec, &reference, w);
        const zp_lowered *whole = make_program(spec, w)->lowered;
        const char *reason;
        if (!zp_lower_pieces(arena, whole, NULL, &reason))
          continue; /* no place inside the layer where one tensor flows */
        w.fine = true;
        check_layout(spec, &reference, w);
      }
}

Test(program_run, scaled_and_normalized_twice) { check_recompute(STYLE_SCALED); }
Test(program_run, sum_of_parts_normalized) { check_recompute(STYLE_PARALLEL_NORM); }
Test(program_run, two_streams) { check_recompute(STYLE_STREAMS); }

Test(program_run, gpt) { CHECK_PAIR(check_model(&GPT)); }
Test(program_run, llama) { CHECK_PAIR(check_model(&LLAMA)); }
Test(program_run, parallel) { check_model(&PARALLEL); }
Test(program_run, experts) { check_model(&EXPERTS); }

/* ---- models that tempt lowering to share storage wrongly ---- */

static zp_model *start_model(builder *b, int64_t width, int *tokens, int *labels) {
  *b = (builder){.model = zp_model_new(arena, "test"), .diags = zp_diags_new(arena), .segment = -1};
  zp_shape ids = shape_of_rank(2, ZP_DIM_B, 4, 0);
  *tokens = zp_model_add_input(b->model, "tokens", ids, ZP_NO_SPAN);
  *labels = zp_model_add_input(b->model, "labels", ids, ZP_NO_SPAN);
  b->model->vocabulary = width;
  return b->model;
}

static int start_segment(builder *b, const char *name, int64_t count, int64_t width) {
  model_size size = {.S = 4, .d = width};
  b->graph = open_segment(b, &size, name, count, strcmp(name, "begin") != 0);
  return b->graph->carry_in.len ? b->graph->carry_in.data[0] : -1;
}

static void end_segment(builder *b, int x) { zp_push(arena, &b->graph->carry_out, x); }

static int table_rows(builder *b, int tokens, int64_t width) {
  int table = weight(b, "table", shape_of_rank(2, width, width, 0));
  return apply(b, ZP_OP_EMBEDDING, zp_graph_input(b->graph, b->model, tokens), table, -1, (zp_op_attr){0}, "table");
}

static void loss_of(builder *b, int x, int labels) {
  zp_graph_add_loss(
      b->graph,
      apply(b, ZP_OP_CROSS_ENTROPY, x, zp_graph_input(b->graph, b->model, labels), -1, (zp_op_attr){0}, "loss"), 1);
}

static zp_spec *spec_of(zp_model *model) {
  model_size any = GPT;
  zp_spec *spec = f64_spec(&any);
  spec->model = model;
  return spec;
}

static void check_spec(const zp_spec *spec) {
  pm_reference reference = pm_run_reference(arena, spec, BATCH);
  for (int pipeline = 1; pipeline <= 3; pipeline++)
    for (int keep = ZP_RECOMPUTE_NONE; keep <= ZP_RECOMPUTE_SELECTIVE; keep++)
      check_layout(spec, &reference,
                   (layout){1, pipeline, 2, (zp_recompute)keep, false, ZP_SCHEDULE_1F1B, NULL, false, 1, NULL});
}

/* The loss reads the carried tensor itself, or the carried tensor plus a table: the gradient of the logits, made in
 * place, is then what flows back. */
Test(program_run, logits_are_the_carried_tensor) {
  for (int add = 0; add < 2; add++) {
    builder b;
    int tokens, labels;
    zp_model *model = start_model(&b, 7, &tokens, &labels);
    start_segment(&b, "begin", 1, 7);
    end_segment(&b, table_rows(&b, tokens, 7));
    int x = start_segment(&b, "h", 2, 7);
    b.segment = 1;
    end_segment(&b, add2(&b, x, linear(&b, x, 7, 7, "fc")));
    b.segment = -1;
    x = start_segment(&b, "end", 1, 7);
    if (add) x = add2(&b, x, weight(&b, "offset", shape_of_rank(2, 4, 7, 0)));
    loss_of(&b, x, labels);
    check_spec(spec_of(model));
  }
}

/* One matrix, declared outside the repeat, in every iteration: its gradient is a sum over units. */
Test(program_run, layers_share_a_matrix) {
  builder b;
  int tokens, labels;
  zp_model *model = start_model(&b, 6, &tokens, &labels);
  start_segment(&b, "begin", 1, 6);
  end_segment(&b, table_rows(&b, tokens, 6));
  int shared = add_param(&b, "shared", shape_of_rank(2, 6, 6, 0));
  int x = start_segment(&b, "h", 3, 6);
  b.segment = 1;
  x = apply(&b, ZP_OP_MATMUL, layer_norm(&b, x, 6), zp_graph_param(b.graph, model, shared), -1, (zp_op_attr){0}, "fc");
  end_segment(&b, add2(&b, b.graph->carry_in.data[0], x));
  b.segment = -1;
  loss_of(&b, start_segment(&b, "end", 1, 6), labels);
  check_spec(spec_of(model));
}

/* What a unit hands on is also what its backward reads (exp), and its input on the way back. */
Test(program_run, output_is_kept_too) {
  builder b;
  int tokens, labels;
  zp_model *model = start_model(&b, 5, &tokens, &labels);
  start_segment(&b, "begin", 1, 5);
  end_segment(&b, table_rows(&b, tokens, 5));
  int x = start_segment(&b, "h", 3, 5);
  b.segment = 1;
  x = product(&b, apply(&b, ZP_OP_TANH, x, -1, -1, (zp_op_attr){0}, "tanh"), 5, 5, "fc");
  int y = product(&b, x, 5, 5, "side");
  end_segment(&b, apply(&b, ZP_OP_MUL, x, y, -1, (zp_op_attr){0}, "mul"));
  b.segment = -1;
  loss_of(&b, start_segment(&b, "end", 1, 5), labels);
  check_spec(spec_of(model));
}

/* A parameter that the loss does not depend on: gradient zero, not what happened to be in memory. */
Test(program_run, unreached_parameter_has_gradient_zero) {
  builder b;
  int tokens, labels;
  zp_model *model = start_model(&b, 5, &tokens, &labels);
  start_segment(&b, "begin", 1, 5);
  end_segment(&b, table_rows(&b, tokens, 5));
  int x = start_segment(&b, "h", 2, 5);
  b.segment = 1;
  linear(&b, x, 5, 5, "unused");
  end_segment(&b, add2(&b, x, product(&b, x, 5, 5, "fc")));
  b.segment = -1;
  loss_of(&b, start_segment(&b, "end", 1, 5), labels);
  check_spec(spec_of(model));
}
