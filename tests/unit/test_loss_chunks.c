/* SPDX-License-Identifier: Apache-2.0 */
/* The loss by parts of the tokens, as plans have it: programs that compute what the graphs say, arenas and prices that
 * are counted by hand. The graph itself: test_graph_chunk_loss.c. */
#include <zplan/cost.h>
#include "program_reference.h"

static zp_arena *arena;
static void setup(void) { arena = zp_arena_new("test"); }
static void teardown(void) { zp_arena_free(arena); }
TestSuite(loss_chunks, .init = setup, .fini = teardown);

/* GPT-2 with 124 million parameters, and small models whose sequences are 4 and 6. */
static const model_size GPT2 = {STYLE_GPT, 50257, 1024, 768, 12, 12, 12, 3072, true};
static const model_size GPT = {STYLE_GPT, 11, 6, 12, 3, 3, 3, 10, true};
static const model_size LLAMA = {STYLE_LLAMA, 13, 4, 24, 3, 6, 3, 14, false};
enum { BATCH = 4, END = 2 };

static zp_program *make_program(const zp_spec *spec, zp_choice choice) {
  const char *reason = "none given";
  zp_machine machine = zp_machine_make(&spec->cluster, spec->train.precision, zp_choice_ranks(&choice));
  zp_sharding *sharding = zp_shard(arena, spec->model, &machine, choice.tensor, 1, choice.sequence, &reason);
  cr_assert(sharding, "tensor %d: %s", choice.tensor, reason);
  zp_lowered **l = zp_lower_stages(arena, spec, sharding, &choice, &reason);
  cr_assert(l, "%s", reason);
  int64_t units = l[0]->n_units, chunks = choice.pipeline * zp_chunks(&choice);
  choice.cut = ZP_NEW_ARRAY(arena, int64_t, chunks + 1);
  for (int64_t s = 0; s < chunks; s++) choice.cut[s + 1] = choice.cut[s] + units / chunks + (s < units % chunks);
  zp_price_stages(l, &machine, &choice);
  return zp_program_make(arena, (const zp_lowered *const *)l, &choice);
}

/* ---- what is computed ---- */

static void check(const zp_spec *spec, const pm_reference *reference, zp_choice choice) {
  zp_arena_mark mark = zp_arena_get_mark(arena);
  zp_strings findings = {0};
  zp_program *program = make_program(spec, choice);
  pm *m = pm_new(arena, program);
  pm_train(m);
  pm_expect_equal(m, reference);
  zp_replay_program(arena, program, &findings);
  cr_assert_eq(findings.len, 0, "%s", findings.len ? findings.data[0] : "");
  zp_arena_rewind(arena, mark);
}

static void check_model(const model_size *size) {
  static const zp_schedule schedules[] = {ZP_SCHEDULE_1F1B, ZP_SCHEDULE_GPIPE, ZP_SCHEDULE_ZB_H1,
                                          ZP_SCHEDULE_DUALPIPEV};
  zp_spec *spec = build_spec(arena, size, cpu_cluster(), BATCH);
  spec->train.precision = ZP_PREC_F64;
  pm_reference reference = pm_run_reference(arena, spec, BATCH);
  for (int parts = 2; parts <= size->S; parts++)
    for (int tensor = 1; tensor <= 3 && size->S % parts == 0; tensor++)
      for (int pipeline = 1; pipeline <= 2; pipeline++)
        for (int s = 0; s < (pipeline > 1 ? 4 : 1); s++)
          check(spec, &reference,
                (zp_choice){.tensor = tensor,
                            .pipeline = pipeline,
                            .data = 1,
                            .microbatch = 1 + parts % 2,
                            .loss_chunks = parts,
                            .schedule = schedules[s],
                            .recompute = parts % 2 ? ZP_RECOMPUTE_FULL : ZP_RECOMPUTE_NONE,
                            .chunks = zp_schedule_folds(schedules[s]) ? 2 : 0});
}

Test(loss_chunks, programs_of_a_tied_gpt) { check_model(&GPT); }
Test(loss_chunks, programs_of_a_llama) { check_model(&LLAMA); }

/* ---- bytes ---- */

static const zp_segment_program *end_of(const zp_program *program) { return &program->stage_lowered[0]->segments[END]; }

static zp_program *gpt2(const zp_spec *spec, int parts) {
  return make_program(spec, (zp_choice){.tensor = 1, .pipeline = 1, .data = 1, .microbatch = 4, .loss_chunks = parts});
}

/* 4 x 1,024 tokens in f32. Kept at once: the norm's input and result, the logits and a log-sum-exp a token. By parts
 * the first two alone. Transient in backward: the gradient of the norm's result and one part's logits, statistics
 * (three numbers a token) and log-sum-exp, which without gradients takes the place of the logits; where that is less
 * than a layer's backward needs, the arena is smaller by all of the logits, 0.82 GB, and the log-sum-exps. */
Test(loss_chunks, bytes_of_gpt2) {
  const int64_t T = 4096, d = 768, V = 50257, logits = T * V * 4, lse = T * 4;
  zp_spec *spec = build_spec(arena, &GPT2, cpu_cluster(), 4);
  zp_program *whole = gpt2(spec, 1);
  cr_assert_eq(logits, 823410688);
  cr_expect_eq(end_of(whole)->saved_bytes, 2 * T * d * 4 + logits + lse);
  cr_expect_eq(end_of(whole)->loss.steps.len, 0);
  for (int parts = 2; parts <= 32; parts *= 2) {
    zp_program *chunked = gpt2(spec, parts);
    int64_t part = logits / parts + 3 * lse / parts;
    int64_t layer = chunked->stage_lowered[0]->segments[1].backward.transient_bytes;
    int64_t end = T * d * 4 + part + lse / parts;
    cr_expect_eq(end_of(chunked)->saved_bytes, 2 * T * d * 4);
    cr_expect_eq(end_of(chunked)->backward.transient_bytes, end, "%d parts: %lld, not %lld", parts,
                 (long long)end_of(chunked)->backward.transient_bytes, (long long)end);
    cr_expect_eq(end_of(chunked)->loss.transient_bytes, part);
    cr_expect_eq(end_of(chunked)->pending_bytes, 0, "a split backward keeps no logits for the weight's gradient");
    int64_t saved = whole->stages[0].arena_bytes - chunked->stages[0].arena_bytes;
    cr_expect_eq(saved, logits + lse - (end > layer ? end - layer : 0), "%d parts save %lld", parts, (long long)saved);
  }
}

/* ---- prices ---- */

typedef struct work {
  double seconds, flop;
  int steps;
} work;

static work sum_of(const zp_procedure *p, zp_op_class class) {
  work sum = {0};
  for (int i = 0; i < p->steps.len; i++)
    if (zp_op_get_class(p->steps.data[i].op) == class) {
      sum.seconds += p->steps.data[i].cost_s;
      sum.flop += p->steps.data[i].flop;
      sum.steps++;
    }
  return sum;
}

static void expect_near(double got, double want, const char *what) {
  cr_expect(fabs(got - want) <= 1e-9 * fabs(want), "%s: %.12g, expected %.12g", what, got, want);
}

/* The CPU rule of a product, 2 m n k / (rate * 0.8 * saturations) + call, as in test_cost.c. */
static double product_s(double m, double n, double k) {
  double shape = m / (m + 4) * n / (n + 8) * k / (k + 16);
  return 1e-6 + 2 * m * n * k / (100e9 * 0.8 * shape);
}

/* The three products and the loss move to backward, in as many pieces as there are parts; none is done twice. A row
 * kernel's seconds are its bytes / (10 GB/s x 0.8) and a call: those of the loss grow by one call a part. */
Test(loss_chunks, price_of_gpt2) {
  const double T = 4096, d = 768, V = 50257;
  enum { PARTS = 8 };
  zp_spec *spec = build_spec(arena, &GPT2, cpu_cluster(), 4);
  const zp_segment_program *whole = end_of(gpt2(spec, 1)), *parts = end_of(gpt2(spec, PARTS));
  work forward = sum_of(&parts->forward, ZP_CLASS_MATMUL), backward = sum_of(&parts->backward, ZP_CLASS_MATMUL),
       validation = sum_of(&parts->loss, ZP_CLASS_MATMUL);
  cr_expect_eq(forward.steps, 0);
  cr_expect_eq(backward.steps, 3 * PARTS);
  expect_near(backward.flop, 3 * 2 * T * V * d, "FLOP of the three products");
  expect_near(validation.flop, 2 * T * V * d, "FLOP of a validation");
  double t = T / PARTS;
  expect_near(backward.seconds, PARTS * (product_s(t, V, d) + product_s(t, d, V) + product_s(V, d, t)), "products");
  work loss = sum_of(&parts->backward, ZP_CLASS_LOSS), before = sum_of(&whole->forward, ZP_CLASS_LOSS),
       behind = sum_of(&whole->backward, ZP_CLASS_LOSS);
  cr_expect_eq(loss.steps, 3 * PARTS);
  expect_near(loss.seconds, before.seconds + behind.seconds + (3 * PARTS - 3) * 1e-6, "the loss");
  double head = sum_of(&whole->forward, ZP_CLASS_MATMUL).seconds + before.seconds;
  expect_near(parts->forward.cost_s, whole->forward.cost_s - head, "forward without the head");
}

/* ---- the search ---- */

static double best_s(zp_spec *spec, int64_t microbatch, int chunks, int *chosen) {
  zp_spec asked = *spec;
  asked.plans.data = ZP_NEW(arena, zp_constraints);
  asked.plans.data[0] = spec->plans.data[0];
  if (microbatch) pin(&asked.plans.data[0].microbatch, (double)microbatch);
  if (chunks) pin(&asked.plans.data[0].loss_chunks, chunks);
  const zp_plan *plan = zp_search(arena, &asked, 1, NULL);
  if (chosen) *chosen = plan->feasible ? zp_loss_chunks(&plan->best.choice) : 0;
  return plan->feasible ? plan->best.estimate.step_s : INFINITY;
}

/* Every micro-batch with the loss at once, and in as many chunks as leave 256 rows of each: the search finds the best
 * of these, whatever the memory, though it looks at chunks only after the rest. With much memory the loss is made at
 * once. */
Test(loss_chunks, search_takes_what_pays) {
  zp_spec *spec = build_spec(arena, &GPT2, cpu_cluster(), 4);
  spec->cluster.trainer = ZP_TRAINER_ZPLAN;
  int taken = 0, nothing = 0;
  for (int64_t megabytes = 2400; megabytes <= 6400; megabytes += 200) {
    spec->cluster.node.device.memory_bytes = megabytes * 1000000;
    zp_arena_mark mark = zp_arena_get_mark(arena);
    double least = INFINITY, whole = INFINITY;
    for (int64_t b = 1; b <= 4; b *= 2) {
      whole = fmin(whole, best_s(spec, b, 1, NULL));
      least = fmin(least, best_s(spec, b, (int)(4 * b), NULL));
    }
    int chosen;
    double found = best_s(spec, 0, 0, &chosen);
    least = fmin(least, whole);
    if (isinf(least)) cr_expect(isinf(found));
    if (isfinite(least)) expect_near(found, least, "the best plan");
    cr_expect_eq(chosen > 1, least < whole, "%lld MB: %d chunks", (long long)megabytes, chosen);
    taken += chosen > 1;
    nothing += chosen == 0;
    if (megabytes == 6400) cr_expect_eq(chosen, 1);
    zp_arena_rewind(arena, mark);
  }
  cr_expect(taken > 0 && nothing < 10, "chunks are taken %d times", taken);
}

/* Who asks for what the sequence does not have is told what there is. */
Test(loss_chunks, refusals) {
  zp_spec *spec = build_spec(arena, &GPT, cpu_cluster(), 4);
  pin(&spec->plans.data[0].loss_chunks, 4);
  const zp_plan *plan = zp_search(arena, spec, 1, NULL);
  cr_assert(!plan->feasible);
  cr_expect(strstr(plan->why_not, "1, 2, 3, 6"), "%s", plan->why_not);
}
