/* SPDX-License-Identifier: Apache-2.0 */
/* Every place where a trainer with 16-bit operands adds to the gradient of a parameter, each given ADDENDS equal
 * addends, one call after another: the sum is exact. Kept in bf16 it would stop at 256 times the addend, in f16 at
 * 2,048 times. What ranks add to each other: tests/mpi/collectives.c; whole trainings: tests/diff/sums.py. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include "internal.h"
#include "device.h"
#include "loads.h"
#include "narrow_testing.h"

/* COUNT elements: a sum is 3/4 of the calls, and all that is added has few bits. */
enum { ADDENDS = 4096, COUNT = 6, ROWS = 3, SAMPLES = 2 };
static const double addend = 0.75;

typedef struct place {
  const char *name;
  void (*add)(zpr *c, bool accumulate, float *sum); /* `addend` to each of COUNT elements; some places only ever add */
} place;

/* An array of the trainer's dtype. */
static const void *filled(zpr *c, double value) {
  static uint16_t x[128];
  for (int i = 0; i < 128; i++) x[i] = narrow_of(c->program->dtype, value);
  return x;
}

static void product(zpr *c, bool accumulate, float *sum) {
  zpr_wgrad(c, 2, 3, ROWS, filled(c, 0.5), 2, filled(c, 0.5), 3, accumulate, sum); /* 3 times 1/4 */
}

static void products_of_experts(zpr *c, bool accumulate, float *sum) {
  const void *x = filled(c, 0.25);
  enum { SLOTS = 6 };
  zpr_batched_wgrad(c, SAMPLES, 3, SLOTS, 1, 2, x, 1, x, 2, accumulate, sum); /* 12 times 1/16 */
}

static void product_of_8_bits(zpr *c, bool accumulate, float *sum) {
  if (c->program->dtype == ZPK_BF16)
    zpr_wgrad_float8(c, ZPK_E4M3, ZPK_E5M2, 2, 3, ROWS, filled(c, 0.5), 2, filled(c, 0.5), 3, accumulate, sum);
  else
    product(c, accumulate, sum); /* its operands are bf16's */
}

static void products_of_sorted_rows(zpr *c, bool accumulate, float *sum) {
  enum { EXPERTS = 3 };
  const int32_t first[EXPERTS] = {0, ROWS, 2 * ROWS};
  zpr_ragged_wgrad(c, EXPERTS * ROWS, EXPERTS, 1, 2, filled(c, 0.5), 1, filled(c, 0.5), 2, first, accumulate, sum);
}

static void sum_rows(const zpk_row_args *args, int64_t begin, int64_t end, int64_t chunk) {
  float *partial = (float *)args->partial[0] + chunk * COUNT;
  for (int i = 0; i < COUNT; i++) partial[i] = (float)((double)(end - begin) * addend / ROWS);
}

static void column_sums(zpr *c, bool accumulate, float *sum) {
  float workspace[ZPK_CHUNKS * COUNT];
  zpr_rows(c, &(zpr_rows_call){.kernel = sum_rows,
                               .rows = ROWS,
                               .n_sums = 1,
                               .sum_cols = (const int64_t[]){COUNT},
                               .sum = (void *[]){sum},
                               .accumulate = &accumulate,
                               .workspace = workspace});
}

static void table_of_words(zpr *c, bool accumulate, float *sum) {
  (void)accumulate;
  zpr_embedding_grad(c, (const int32_t[ROWS]){7, 7, 7}, filled(c, addend / ROWS), 7, 1, ROWS, COUNT, sum);
}

static void table_of_positions(zpr *c, bool accumulate, float *sum) {
  zpr_position_grad(c, filled(c, addend / 2), 3, SAMPLES, 2, 3, accumulate, sum);
}

static void table_of_distances(zpr *c, bool accumulate, float *sum) {
  float of_samples[SAMPLES * COUNT];
  (void)accumulate;
  for (int i = 0; i < SAMPLES * COUNT; i++) of_samples[i] = (float)(addend / SAMPLES);
  zpk_attention_args args = {.dtype = c->program->dtype, .B = SAMPLES, .H = 2, .buckets = 3, .bias_ld = 2};
  args.bias_sums = of_samples, args.d_bias = sum;
  zpk_attention_bias_grad(&args);
}

static void units_buffer(zpr *c, bool accumulate, float *sum) {
  float x[COUNT];
  (void)accumulate;
  for (int i = 0; i < COUNT; i++) x[i] = (float)addend;
  zpr_add(c, sum, x, COUNT);
}

static const place places[] = {{"product", product},
                               {"product of 8 bits", product_of_8_bits},
                               {"products of experts", products_of_experts},
                               {"products of sorted rows", products_of_sorted_rows},
                               {"column sums of a row kernel", column_sums},
                               {"table of words", table_of_words},
                               {"table of positions", table_of_positions},
                               {"table of distances", table_of_distances},
                               {"buffer of a unit's gradients", units_buffer}};

/* One rank, without options. */
static void open_alone(zpr *c, const zpr_program *program) {
  zpr_options options = zpr_default_options;
  options.threads = 1;
  int argc = 0;
  char **argv = NULL;
  zpr_open(c, program, &options, &argc, &argv);
}

static void with_trainer(zpk_dtype dtype, void (*run)(zpr *)) {
  zpr_stage stage = {.arena_bytes = 256 + ZPR_MAX_WORKERS * ZPR_PRODUCT_BYTES};
  const zpr_program program = {.dtype = dtype, .tensor = 1, .pipeline = 1, .data = 1, .stages = &stage};
  zpr c;
  open_alone(&c, &program);
  run(&c);
  zpr_close(&c);
}

static void equal_addends(zpr *c) {
  for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
    float sum[COUNT] = {0};
    for (int i = 0; i < ADDENDS; i++) places[p].add(c, i > 0, sum);
    for (int i = 0; i < COUNT; i++)
      cr_expect_eq(sum[i], (float)(ADDENDS * addend), "%s: element %d is %g, not %g", places[p].name, i, (double)sum[i],
                   ADDENDS * addend);
  }
}

Test(sums, equal_addends_bf16) { with_trainer(ZPK_BF16, equal_addends); }
Test(sums, equal_addends_f16) { with_trainer(ZPK_F16, equal_addends); }

/* Loads of experts, of which the sign alone counts. UP calls give expert 0 all choices, which in f32 would be 2^25
 * units of E * choices - all; ADDENDS calls take one unit each from it, which f32 would not see; DOWN calls take 2^25
 * again. What is left says that it has too few choices. */
enum { EXPERTS = 3, CHOICES = 4096, UP = 4096, DOWN = 8192, BIAS_AT = 2 };

static void count_choices(zpr *c, int first, int second, int third) {
  zpk_routing r = {.dtype = c->program->dtype, .B = 1, .S = CHOICES, .k = 1, .experts = EXPERTS, .slots = CHOICES};
  int32_t slot[CHOICES];
  const int count[EXPERTS] = {first, second, third};
  cr_assert_eq(first + second + third, CHOICES);
  for (int e = 0, t = 0; e < EXPERTS; e++) /* half of them dropped */
    for (int i = 0; i < count[e]; i++, t++) slot[t] = i % 2 ? -1 - e : e * CHOICES + i;
  zpr_count_load(c, &r, slot, BIAS_AT);
}

static void signs_of_loads(zpk_dtype dtype) {
  const zpr_param bias = {
      .name = "bias", .split_dim = -1, .offset = BIAS_AT, .elements = EXPERTS, .recipe = {.sign_rate = 1}};
  const zpr_run run = {.segment = "h", .count = 1, .stride = 8, .n_params = 1, .params = &bias};
  const zpr_stage stage = {.arena_bytes = 4096, .grads = 256, .flat = {8}, .shard = {8}, .n_runs = 1, .runs = &run};
  const zpr_program program = {.dtype = dtype, .tensor = 1, .pipeline = 1, .data = 1, .stages = &stage};
  zpr c;
  open_alone(&c, &program);
  zpr_stretches stretches = zpr_find_stretches(&c);
  for (int turn = 0; turn < 2; turn++) { /* the second one begins from nothing */
    zpr_loads_zero(&c);
    for (int i = 0; i < UP && turn == 0; i++) count_choices(&c, CHOICES, 0, 0);
    for (int i = 0; i < ADDENDS; i++) count_choices(&c, 1365, 1366, 1365);
    for (int i = 0; i < DOWN && turn == 0; i++) count_choices(&c, 0, CHOICES / 2, CHOICES / 2);
    const int64_t *count = zpr_load_of(&c, BIAS_AT);
    int64_t all = (int64_t)CHOICES * (ADDENDS + (turn == 0 ? UP + DOWN : 0));
    cr_expect_eq(3 * count[0] - all, -(int64_t)ADDENDS);
    cr_expect_eq(count[0] + count[1] + count[2], all);
    zpr_loads_finish(&c, &stretches);
    for (int e = 0; e < EXPERTS; e++) {
      const char *at = (char *)zpr_at(&c, stage.grads) + (BIAS_AT + e) * zpr_gradient_bytes(&c);
      double sign = dtype == ZPK_F64 ? *(const double *)(const void *)at : (double)*(const float *)(const void *)at;
      cr_expect_eq(sign, e == 1 || (turn == 0 && e == 2 && 3 * count[e] > all) ? 1 : -1, "turn %d, expert %d: %g", turn,
                   e, sign);
    }
  }
  free(stretches.item);
  zpr_close(&c);
}

Test(sums, loads_f32) { signs_of_loads(ZPK_F32); }
Test(sums, loads_f64) { signs_of_loads(ZPK_F64); }
Test(sums, loads_bf16) { signs_of_loads(ZPK_BF16); }
