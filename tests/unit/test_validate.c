/* Tables of measured runs: reading, malformed rows by line, statistics, reference formulas, and whole predictions. */
#include <criterion/criterion.h>
#include <math.h>
#include <zplan/buf.h>
#include <zplan/validate.h>
#include "../../planner/cost/constants.h"
#include "../../planner/validate/validate_internal.h"

static zp_arena *arena;
static void setup(void) { arena = zp_arena_new("test"); }
static void teardown(void) { zp_arena_free(arena); }
TestSuite(validate, .init = setup, .fini = teardown);

static void expect_near(double got, double want, double tolerance, const char *what) {
  cr_expect(fabs(got - want) <= tolerance * fabs(want), "%s: %.9g, expected %.9g", what, got, want);
}

/* ---- reading ---- */

#define HEADER                                                                                                         \
  "id,source,year,model,layers,hidden,seq,gpu,gpus_per_node,n_gpus,tp,pp,dp,micro_batch,global_batch,measured_iter_s," \
  "notes\n"
#define GOOD                                                                                                           \
  "fam_a,\"paper, table 1\",2021,GPT,4,1024,512,A100-SXM4-80GB,8,8,2,2,2,1,16,0.5,\"conf=A; says \"\"fast\"\"\"\n"

static zp_measured_table *read_table(const char *text) {
  const char *error = NULL;
  zp_measured_table *table = zp_measured_read(arena, text, strlen(text), "runs", &error);
  cr_assert(table, "%s", error);
  return table;
}

Test(validate, published_columns) {
  zp_measured_table *t = read_table(HEADER GOOD);
  cr_assert_eq(t->runs.len, 1);
  const zp_measured *run = &t->runs.data[0];
  cr_expect_str_eq(run->family, "fam_");
  cr_expect_str_eq(run->source, "paper, table 1");
  cr_expect_str_eq(run->notes, "conf=A; says \"fast\"");
  cr_expect_eq(run->line, 2);
  cr_expect_eq(run->layers, 4);
  cr_expect_eq(run->zero, -1); /* no such column */
  cr_expect_eq(run->fits, -1);
  expect_near(run->step_s, 0.5, 0, "seconds");
}

Test(validate, lines_end_either_way_and_the_last_may_lack_its_end) {
  zp_measured_table *t = read_table("\xef\xbb\xbf" HEADER "\r\n"
                                    "f_b,s,,,4,64,64,G,,1,,,,,,,\"two\nlines\"\r\nf_c,,,,,,,G,,1,,,,,,,");
  cr_assert_eq(t->runs.len, 2);
  cr_expect_eq(t->runs.data[0].line, 3);
  cr_expect_eq(t->runs.data[1].line, 5);
  cr_expect_str_eq(t->runs.data[0].notes, "two\nlines");
}

static void expect_malformed(const char *row, const char *words) {
  zp_measured_table *t = read_table(zp_format(arena, HEADER GOOD "%s", row));
  cr_assert_eq(t->malformed.len, 1, "%s", row);
  cr_expect_eq(t->runs.len, 1);
  cr_expect(strstr(t->malformed.data[0], "line 3: ") && strstr(t->malformed.data[0], words), "%s",
            t->malformed.data[0]);
}

Test(validate, malformed_rows_are_named_by_line) {
  expect_malformed("f_x,s,2021,GPT,four,1024,512,G,8,8,2,2,2,1,16,0.5,\n", "layers is `four`, not a number");
  expect_malformed("f_x,s,2021,GPT,4.5,1024,512,G,8,8,2,2,2,1,16,0.5,\n", "layers is 4.5, not a whole number");
  expect_malformed("f_x,s,2021,GPT,-4,1024,512,G,8,8,2,2,2,1,16,0.5,\n", "layers is -4, out of range");
  expect_malformed("f_x,s,2021,GPT,4,1024,512,G,8,8,2,2,2,1,16,nan,\n", "measured_iter_s is `nan`, not a number");
  expect_malformed("f_x,s,2021,GPT,4,1024,512,G,8,9,2,2,2,1,16,0.5,\n",
                   "2 x 2 x 2 tensor, pipeline and data ranks are not 9 GPUs");
  expect_malformed("f_x,s,2021,GPT,4,1024,512,G,8,8,2,2,2,3,16,0.5,\n",
                   "batch 16 does not divide over 2 data ranks and micro-batch 3");
  expect_malformed("f_x,s,2021\n", "3 fields where the header has 17");
  expect_malformed(",s,2021,GPT,4,1024,512,G,8,8,2,2,2,1,16,0.5,\n", "id is empty");
  expect_malformed("f_x,s,2021,GPT,4,1024,512,G,8,,2,2,2,1,16,0.5,\n", "n_gpus is empty");
}

/* Words and sizes that no run has. */
Test(validate, absurd_cells_are_named_by_line) {
#define MORE "id,gpu,n_gpus,layers,zero_stage,recompute,offload,Micro_Batch \n"
  static const char *const rows[][2] = {
      {"f_a,A100,8,200000,,,,", "layers is 200000, above 100000"}, {"f_a,A100,8,4,4,,,", "zero_stage is 4, above 3"},
      {"f_a,A100,8,4,,maybe,,", "recompute is `maybe`"},           {"f_a,A100,8,4,,,tape,", "offload is `tape`"},
      {"f_a,A100,8,4,,,,20000", "micro_batch is 20000"},           {"f_a,A100,2000000,4,,,,", "n_gpus is 2000000"},
      {"f_a,A100,0x8,4,,,,", "n_gpus is `0x8`, not a number"},     {"f_a,A100,1e400,4,,,,", "n_gpus is `1e400`"},
      {"\"f_a\"x,A100,8,4,,,,", "text follows a closing quote"},   {"f_a,\"A100,8,4,,,,", "a quote is not closed"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    zp_measured_table *t = read_table(zp_format(arena, MORE "%s\n", rows[i][0]));
    cr_assert_eq(t->malformed.len, 1, "%s", rows[i][0]);
    cr_expect(strstr(t->malformed.data[0], "line 2: ") && strstr(t->malformed.data[0], rows[i][1]), "%s",
              t->malformed.data[0]);
  }
}

Test(validate, precisions_are_words) {
#define PRECISE "id,gpu,n_gpus,precision\n"
  zp_measured_table *t = read_table(PRECISE "a,A100,8,fp99\nb,A100,8,fp8\nc,A100,8,\n");
  cr_assert_eq(t->malformed.len, 1);
  cr_expect_str_eq(t->malformed.data[0], "line 2: precision is `fp99`, not one of bf16, bfloat16, fp16, float16, half, "
                                         "fp32, float32, fp8");
  cr_expect_eq(t->runs.len, 2);
}

Test(validate, two_rows_of_one_name) {
  zp_measured_table *t = read_table("id,gpu,n_gpus\na,A100,8\nb,A100,8\na,H100,8\n");
  cr_assert_eq(t->malformed.len, 1);
  cr_expect_str_eq(t->malformed.data[0], "line 4: id `a` is that of line 2 too");
}

Test(validate, columns_that_are_not_used_are_named) {
  zp_measured_table *t = read_table("id,gpu,n_gpus,micro_batchs,weather\na,A100,8,1,fine\n");
  cr_assert_eq(t->ignored.len, 2);
  cr_expect_str_eq(t->ignored.data[0],
                   "line 1: column 4, `micro_batchs`, is unknown and not used; did you mean `micro_batch`?");
  cr_expect_str_eq(t->ignored.data[1], "line 1: column 5, `weather`, is unknown and not used");
  cr_expect_eq(read_table(HEADER GOOD)->ignored.len, 0);
}

Test(validate, headers_that_cannot_be_read) {
  const char *error = NULL, *twice = "id,gpu,n_gpus, GPU\na,A100,8,H100\n", *other = "id;gpu;n_gpus\na;A100;8\n";
  cr_expect_null(zp_measured_read(arena, twice, strlen(twice), "x", &error));
  cr_expect_str_eq(error, "line 1: two columns are called ` GPU`");
  cr_expect_null(zp_measured_read(arena, other, strlen(other), "x", &error));
  cr_expect(strstr(error, "separated by commas"), "%s", error);
  static const char zero[] = "id,gpu,n_gpus\nf\0a,A100,8\n";
  zp_measured_table *t = zp_measured_read(arena, zero, sizeof zero - 1, "x", &error);
  cr_assert(t && t->malformed.len == 1);
  cr_expect(strstr(t->malformed.data[0], "line 2: a byte is zero"), "%s", t->malformed.data[0]);
}

/* The same all-reduce rate, once as bytes and once as the share that `fabric { collectives = ... }` takes. */
Test(validate, collectives_as_a_share) {
  zp_measured_table *t = read_table("id,gpu,n_gpus,collective_share,collective_bw_GBps_per_gpu\n"
                                    "a,A100,8,0.6,\nb,A100,8,1.2,\nc,A100,8,0.6,15\n");
  cr_assert(t->runs.len == 1 && t->malformed.len == 2);
  expect_near(t->runs.data[0].collective_share, 0.6, 1e-15, "share");
  cr_expect(strstr(t->malformed.data[0], "line 3: collective_share is 1.2, above 1"), "%s", t->malformed.data[0]);
  cr_expect(strstr(t->malformed.data[1], "line 4: collective_share and collective_bw"), "%s", t->malformed.data[1]);
}

Test(validate, a_table_without_rows_is_refused) {
  const char *error = NULL;
  cr_expect_null(zp_measured_read(arena, HEADER, strlen(HEADER), "t", &error));
  cr_assert_not_null(error);
  cr_expect(strstr(error, "no rows"), "%s", error);
}

Test(validate, unknown_headers_are_refused) {
  const char *error = NULL;
  cr_expect_null(zp_measured_read(arena, "a,b\n1,2\n", 8, "x", &error));
  cr_expect(strstr(error, "header"));
  cr_expect_null(zp_measured_read(arena, "", 0, "x", &error));
  cr_expect_str_eq(error, "the table is empty");
}

Test(validate, vtrain_columns_with_and_without_parameters) {
  static const char columns[] = "# GPUs,global batch,micro batch,hidden size,attention heads,# layers,sequence length,"
                                "tensor parallelism,data parallelism,pipeline parallelism,iteration time (ms)\n";
  zp_measured_table *t = read_table(zp_format(arena, "%s8,16,2,1024,16,4,1024,2,2,2,80\n", columns));
  zp_measured_table *with =
      read_table(zp_format(arena, "Parameters (billion),%s0.1,8,16,2,1024,16,4,1024,2,2,2,80\n", columns));
  cr_assert(t->runs.len == 1 && with->runs.len == 1);
  cr_expect_str_eq(t->runs.data[0].family, "runs");
  expect_near(with->runs.data[0].step_s, 0.08, 1e-12, "milliseconds");
  cr_expect_str_eq(with->runs.data[0].recompute, "full");
}

Test(validate, notes_say_what_columns_do_not) {
  zp_measured_table *t = read_table(
      HEADER "tt_a,s,2024,Llama-3 8B,4,1024,512,G,8,8,2,2,2,1,16,,conf=A; fit=0; GQA 8 KV heads; cp=2; flops=MODEL\n"
             "bs_b,s,2022,GPT,4,1024,512,G,8,8,2,2,2,1,16,,measured all_reduce on 4 nodes 15-42 Gb/s\n");
  cr_assert_eq(t->runs.len, 1); /* 2 x 2 x 2 x cp 2 are not 8 */
  cr_assert_eq(t->malformed.len, 1);
  expect_near(t->runs.data[0].collective_bytes_per_s, 42e9 / 8 * 2 * 31 / 32 / 8, 1e-12, "bus bandwidth");
}

/* ---- statistics ---- */

Test(validate, kendall_tau_b) {
  const double x[] = {1, 2, 3, 4}, same[] = {10, 20, 30, 40}, swapped[] = {10, 30, 20, 40}, tied[] = {1, 1, 2, 3};
  expect_near(zp_kendall_tau(x, same, 4), 1, 1e-12, "same order");
  expect_near(zp_kendall_tau(x, swapped, 4), 4.0 / 6, 1e-12, "one of six pairs turned");
  expect_near(zp_kendall_tau(x, tied, 4), 5 / sqrt(6 * 5), 1e-12, "one tie");
  cr_expect(isnan(zp_kendall_tau(x, same, 1)));
}

static zp_prediction row(const char *family, double measured, double predicted, double memory, int64_t peak, int fits) {
  zp_measured *run = ZP_NEW(arena, zp_measured);
  *run = (zp_measured){.id = family, .family = family, .memory_bytes = memory, .fits = fits};
  zp_prediction p = {.run = run, .predicted = true, .measured_s = measured, .peak_bytes = peak, .fits = peak <= 100};
  p.estimate.step_s = predicted;
  p.error = measured > 0 ? predicted / measured - 1 : 0;
  return p;
}

Test(validate, errors_by_family) {
  zp_validation v = {0};
  zp_prediction rows[] = {row("a_", 10, 11, 80, 88, -1), row("b_", 10, 5, 0, 50, -1), row("a_", 20, 16, 0, 120, -1),
                          row("a_", 0, 3, 0, 120, 0), row("a_", 0, 3, 0, 50, 0)};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) zp_push(arena, &v.rows, rows[i]);
  zp_validation_score(arena, &v);
  cr_assert_eq(v.families.len, 2);
  const zp_family_score *a = &v.families.data[0];
  cr_expect_eq(a->n, 2);
  expect_near(a->mean_abs_error_pct, 15, 1e-12, "mean");
  expect_near(a->bias_pct, -5, 1e-12, "bias");
  expect_near(a->max_error_pct, -20, 1e-12, "max");
  expect_near(a->memory_mean_abs_error_pct, 10, 1e-9, "memory");
  expect_near(a->kendall_tau, 1, 1e-12, "tau");
  cr_expect(a->fit_total == 4 && a->fit_agree == 2, "%d of %d", a->fit_agree, a->fit_total);
  cr_expect(isnan(v.families.data[1].kendall_tau));
}

/* ---- reference formulas: arXiv 2205.05198, figure 1, GiB ---- */

Test(validate, activation_figures) {
  static const struct {
    double layers, hidden, heads, microbatch, pipeline, chunks, plain, selective;
  } models[] = {{48, 6144, 64, 4, 1, 1, 59.25, 9.5625},
                {96, 12288, 96, 1, 8, 3, 66.84375, 12.3515625},
                {105, 20480, 128, 1, 35, 3, 114.0234375, 23.076171875},
                {128, 25600, 160, 1, 64, 1, 131.25, 26.5625}};
  for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
    double got[2];
    for (int c = 0; c < 2; c++)
      got[c] = zp_activation_bytes((zp_activation_case)c, models[i].layers, models[i].hidden, models[i].heads, 2048,
                                   models[i].microbatch, 8, models[i].pipeline, models[i].chunks) /
               1073741824.0;
    expect_near(got[0], models[i].plain, 1e-4, "tensor parallel");
    expect_near(got[1], models[i].selective, 1e-4, "sequence parallel and selective");
  }
}

/* ---- what autograd keeps ---- */

static const zp_graph *layer_of(zp_measured *run, int tensor, bool sequence) {
  const char *why = NULL;
  zp_cluster cluster = {.name = "x", .nodes = 1, .oversubscription = 1, .ranks = tensor};
  cluster.node.device = (zp_device){.name = "x",
                                    .memory_bytes_per_s = 1e12,
                                    .flop_per_s_half = 1e14,
                                    .eff_matmul = 1,
                                    .eff_attention = 1,
                                    .eff_memory = 1,
                                    .cores = 100};
  cluster.node.devices = tensor;
  cluster.node.link = (zp_link){"nvswitch", 3e11, 1e-6};
  zp_machine machine = zp_machine_make(&cluster, ZP_PREC_MIXED_BF16, tensor);
  zp_sharding *sharding = zp_shard(arena, zp_run_model(arena, run), &machine, tensor, 1, sequence, &why);
  cr_assert(sharding, "%s", why);
  return sharding->local[1];
}

static int64_t kept_by_layer(zp_measured *run, int tensor, bool sequence, bool by_operations) {
  return zp_autograd_kept_bytes(arena, layer_of(run, tensor, sequence), run->microbatch, 2, by_operations);
}

/* arXiv 2205.05198, equations 1, 2 and 4, less dropout's masks (2 s b h) and what FlashAttention does not keep (5 a s^2
 * b), and its log-sum-exp of 4 a s b: 32 s b h, s b h (8 + 24 / t), 32 s b h / t. The first counts the output of
 * dropout after the softmax with the scores. */
Test(validate, autograd_keeps_what_korthikanti_counts) {
  zp_measured run = {
      .layers = 2, .hidden = 256, .heads = 8, .kv_heads = 8, .ffn = 1024, .vocab = 512, .seq = 64, .microbatch = 3};
  double sbh = 64 * 3 * 256, lse = 4 * 8 * 64 * 3;
  expect_near((double)kept_by_layer(&run, 1, false, false), 32 * sbh + lse, 1e-12, "one rank");
  expect_near((double)kept_by_layer(&run, 4, false, false), (8 + 24.0 / 4) * sbh + lse / 4, 1e-12, "tensor 4");
  expect_near((double)kept_by_layer(&run, 4, true, false), 32.0 / 4 * sbh + lse / 4, 1e-12, "sequence split");
}

/* The most is held when the gradient of GELU's input has just been made: in s b h, 24 of the 32 that were kept, dy's 2 and
 * twice the gradient of 4 h columns; the residual's gradient is dy itself. As much before down's weight is reached, whose
 * gradient may come on top. Scores in device memory wait until attention. */
Test(validate, backward_holds_gradients_and_what_is_left) {
  zp_measured run = {
      .layers = 2, .hidden = 256, .heads = 8, .kv_heads = 8, .ffn = 1024, .vocab = 512, .seq = 64, .microbatch = 3};
  double sbh = 64 * 3 * 256, lse = 4 * 8 * 64 * 3;
  zp_autograd_scores none = {0, 0}, some = {1000, 400};
  const zp_graph *layer = layer_of(&run, 1, false);
  expect_near((double)zp_autograd_backward_bytes(arena, layer, 3, 2, &none, false), 42 * sbh + lse, 1e-12, "one rank");
  expect_near((double)zp_autograd_backward_bytes(arena, layer, 3, 2, &some, false), 42 * sbh + lse + 1000, 1e-12,
              "scores");
  double matrix = 2.0 * 256 * 1024; /* the gradient of down's weight, beside GELU's output and its gradient */
  expect_near((double)zp_autograd_backward_bytes(arena, layer, 3, 2, &none, true), 42 * sbh + lse + matrix, 1e-12,
              "fresh gradients");
  expect_near((double)zp_autograd_joint_bytes(layer, 3, 2), 2 * 2 * sbh, 1e-12, "keys and values");
  run.kv_heads = 2;
  run.gated = run.rotary = true;
  cr_expect_eq(zp_autograd_joint_bytes(layer_of(&run, 1, false), 3, 2), 0);
}

/* torchtitan's list for a Llama layer: its input, wq, wv, w1, w2 and attention, of h, h, kv, f, h and h columns. */
Test(validate, operations_on_the_list_are_kept) {
  zp_measured run = {.layers = 2,
                     .hidden = 256,
                     .heads = 8,
                     .kv_heads = 2,
                     .ffn = 896,
                     .vocab = 512,
                     .seq = 64,
                     .microbatch = 2,
                     .gated = true,
                     .rotary = true};
  double tokens = 64 * 2, columns = 4 * 256 + 64 + 896;
  expect_near((double)kept_by_layer(&run, 1, false, true), tokens * (2 * columns + 4 * 8), 1e-12, "selective");
  double all = 8 * 256 - 2 * (256 - 64) + 4 * 896;
  expect_near((double)kept_by_layer(&run, 1, false, false), tokens * (2 * all + 4 * 8), 1e-12, "everything");
}

/* ---- predictions ---- */

static const zp_device a100 = {.name = "a100_80",
                               .memory_bytes = INT64_C(80000000000),
                               .context_bytes = INT64_C(1200000000),
                               .has_nccl = true,
                               .memory_bytes_per_s = 2039e9,
                               .flop_per_s_fp64 = 9.7e12,
                               .flop_per_s_fp32 = 19.5e12,
                               .flop_per_s_half = 312e12,
                               .eff_matmul = 0.82,
                               .eff_attention = 0.5,
                               .eff_memory = 0.8,
                               .launch_s = 3e-6,
                               .cores = 108};
static const zp_device *only_a100(void *user, const char *name) {
  (void)user;
  return strcmp(name, "a100_80") == 0 ? &a100 : NULL;
}

static zp_prediction predict(const char *line) {
  zp_measured_table *t =
      read_table(zp_format(arena,
                           "id,source,year,layers,hidden,heads,vocab,seq,gpu,gpus_per_node,intra_bw_GBps,inter_bw_GBps_"
                           "per_gpu,n_gpus,tp,pp,dp,"
                           "micro_batch,global_batch,recompute,zero_stage,measured_iter_s,precision,notes\n%s\n",
                           line));
  cr_assert_eq(t->runs.len, 1, "%s", t->malformed.len ? t->malformed.data[0] : "no row");
  return zp_predict_run(arena, t, &t->runs.data[0], only_a100, NULL);
}

/* Half the line rate's payload, said either way. */
Test(validate, measured_collectives_are_used) {
  const char *row = "f_a,s,2022,4,4096,32,51200,2048,A100-SXM4-80GB,8,300,25,16,1,1,16,1,16,fp16";
  static const char columns[] = "id,source,year,layers,hidden,heads,vocab,seq,gpu,gpus_per_node,intra_bw_GBps,inter_bw_"
                                "GBps_per_gpu,n_gpus,tp,pp,dp,micro_batch,global_batch,precision";
  double payload = zp_cost_constant(ZP_COST_NETWORK_PAYLOAD), step_s[3];
  for (int i = 0; i < 3; i++) {
    const char *more = i == 2 ? "" : i == 1 ? ",0.5" : zp_format(arena, ",%.17g", 0.5 * 25 * payload);
    const char *title = i == 2 ? "" : i == 1 ? ",collective_share" : ",collective_bw_GBps_per_gpu";
    zp_measured_table *t = read_table(zp_format(arena, "%s%s\n%s%s\n", columns, title, row, more));
    zp_prediction p = zp_predict_run(arena, t, &t->runs.data[0], only_a100, NULL);
    cr_assert(p.predicted, "%s", p.why_not);
    step_s[i] = p.estimate.step_s;
  }
  expect_near(step_s[1], step_s[0], 1e-12, "share");
  cr_expect(step_s[1] > 1.01 * step_s[2], "%g, %g without a measurement", step_s[1], step_s[2]);
}

/* The paper's 22B row: within 10 %, and no faster than its products at the device's best rate. */
Test(validate, predicts_a_tensor_parallel_run) {
  zp_prediction p = predict(
      "korth_x,arXiv 2205.05198,2022,48,6144,64,51200,2048,A100-SXM4-80GB,8,300,25,8,8,1,1,4,4,full,0,1.42,fp16,");
  cr_assert(p.predicted, "%s", p.why_not);
  cr_expect(fabs(p.error) < 0.10, "%g s, %+g %%", p.estimate.step_s, 100 * p.error);
  double floor_s = 96.0 * 4 * 2048 * 48 * 6144 * 6144 / 8 / (312e12 * 0.82);
  cr_expect(p.estimate.step_s > floor_s, "%g, floor %g", p.estimate.step_s, floor_s);
  cr_expect_str_eq(p.software, "megatron-lm-v3");
  cr_expect(p.fits);
}

Test(validate, refuses_what_it_cannot_know) {
  cr_expect(strstr(predict("f_a,s,2022,4,1024,16,,512,TPUv9,8,300,25,8,8,1,1,1,8,full,0,1,fp16,").why_not,
                   "unknown GPU `TPUv9`"));
  cr_expect(strstr(predict("f_a,s,2022,4,1024,16,,512,V100-SXM3-32GB,8,300,25,8,8,1,1,1,8,full,0,1,fp16,").why_not,
                   "no device"));
  cr_expect_str_eq(predict("f_a,s,2022,4,,16,,512,A100-SXM4-80GB,8,300,25,8,8,1,1,1,8,full,0,1,fp16,").why_not,
                   "the model's shape is not published");
  cr_expect_str_eq(predict("f_a,s,2022,4,1024,16,,512,A100-SXM4-80GB,8,300,25,8,,,,1,8,full,0,1,fp16,").why_not,
                   "the plan is not published");
  cr_expect(
      strstr(predict("f_a,s,2022,4,1024,16,,512,A100-SXM4-80GB,8,300,25,8,8,1,1,1,8,full,0,1,fp8,").why_not, "fp8"));
}

/* What is not published is stated: vocabulary, heads, and the micro-batch that was searched. */
Test(validate, says_what_it_assumed) {
  zp_prediction p = predict("f_a,s,2022,4,1024,,,512,A100-SXM4-80GB,8,300,25,8,2,2,2,,16,full,0,1,fp16,");
  cr_assert(p.predicted, "%s", p.why_not);
  cr_expect(strstr(p.assumed, "heads 8") && strstr(p.assumed, "vocabulary 51200") && strstr(p.assumed, "micro-batch"),
            "%s", p.assumed);
}

/* Boards hold more than the sheet's decimal figure, PyTorch's printed GiB are GiB, and what an allocator reserved is no
 * peak. */
Test(validate, memory_is_read_as_it_was_measured) {
  cr_expect_eq(zp_gpu_board_bytes("v100_sxm3_32"), INT64_C(32510) << 20);
  cr_expect_eq(zp_gpu_board_bytes("tpu_v9"), 0);
  zp_measured_table *t = read_table("id,source,gpu,n_gpus,measured_mem_gb,notes\n"
                                    "a,x,G,1,10,memory in GiB\nb,x,G,1,10,plain\nc,x,G,1,10,nvidia-smi reserved\n"
                                    "d,tr11 chronicles-prequel.md,G,1,10,\ne,nanotron,G,1,10,\n");
  cr_assert_eq(t->runs.len, 5);
  expect_near(t->runs.data[3].memory_bytes, 10000 * 1048576.0, 1e-12, "thousands of MiB");
  expect_near(t->runs.data[4].memory_bytes, 10 * 1073741824.0, 1e-12, "nanotron's GB");
  expect_near(t->runs.data[0].memory_bytes, 10 * 1073741824.0, 1e-12, "GiB");
  expect_near(t->runs.data[1].memory_bytes, 10e9, 1e-12, "GB");
  cr_expect(!t->runs.data[1].memory_reserved && t->runs.data[2].memory_reserved);
}

/* Without a published micro-batch a run is taken to have used one that fitted, and a failure decides nothing. */
Test(validate, fits_are_decided_only_where_published) {
  static const char row_of[] = "f_a,s,2021,36,8192,64,,2048,A100-SXM4-80GB,8,300,25,8,8,1,1,%s,16,full,0,,fp16,fit=0";
  zp_prediction open = predict(zp_format(arena, row_of, "")), decided = predict(zp_format(arena, row_of, "16"));
  cr_assert(open.predicted && decided.predicted);
  cr_expect(open.fits && open.fit_open && open.choice.microbatch < 16, "micro-batch %d", (int)open.choice.microbatch);
  cr_expect(!decided.fits && !decided.fit_open, "%g GB", (double)decided.peak_bytes / 1e9);
  zp_validation v = {0};
  zp_push(arena, &v.rows, open);
  zp_push(arena, &v.rows, decided);
  zp_validation_score(arena, &v);
  const zp_family_score *f = &v.families.data[0];
  cr_expect(f->fit_total == 1 && f->fit_agree == 1 && f->fit_open == 1);
}

/* More tensor ranks than the usual number of heads: every rank still gets one. */
Test(validate, heads_are_guessed_legally) {
  zp_prediction p = predict("f_a,s,2021,4,8192,,,512,A100-SXM4-80GB,8,300,25,128,128,1,1,1,8,full,0,1,fp16,");
  cr_assert(p.predicted, "%s", p.why_not);
  cr_expect(strstr(p.assumed, "heads 128"), "%s", p.assumed);
}

/* BigScience until 27 February 2022: 2 bytes of gradient a parameter; after the micro-batches a bucket of 1 GB, and the
 * norm of 8 bytes for each of the rank's share, out of which the update's copies are cut. After: 4 bytes and 2 of the
 * micro-batch at hand; 4 for each of the table's gradients, and 2 a parameter that are reduced. Two stages are cut
 * alike either way. Less than 0.1 is the embedding's norm, and a fresh gradient. */
Test(validate, bigscience_changed_its_optimizer) {
  static const char row_of[] =
      "bs_x,bigscience %s,2022,70,14336,112,250000,2048,A100-SXM4-80GB,8,300,25,384,4,2,48,2,2016,full,1,,%s,";
  zp_prediction before = predict(zp_format(arena, row_of, "tr11-176B-ml/chronicles-prequel.md", "fp16")),
                after = predict(zp_format(arena, row_of, "tr11-176B-ml/README.md", "bf16"));
  cr_assert(before.predicted && after.predicted);
  cr_expect_str_eq(before.software, "megatron-deepspeed-fp16");
  cr_expect_str_eq(after.software, "megatron-deepspeed-bf16");
  double h = 14336, table = 250000 * h / 4, parameters = 35 * 12 * h * h / 4 + table;
  double more = (4 + 2) * parameters + 4 * table - 1e9 - 8 * parameters / 48;
  double off = ((double)(after.peak_bytes - before.peak_bytes) - more) / parameters;
  cr_expect(fabs(off) < 0.1, "%g bytes a parameter off", off);
}

/* DeepSpeed without ZeRO holds 24 bytes a parameter in its update, Megatron 20, the planner's program 16: why PyTorch
 * ended at 1.3 to 1.4 billion parameters on 32 GB. */
Test(validate, updates_hold_copies_of_the_gradients) {
  static const char row_of[] = "f_a,%s,2020,48,1600,16,51200,512,A100-SXM4-80GB,8,300,25,1,1,1,1,1,8,full,0,1,fp16,";
  double h = 1600, parameters = 48 * 12 * h * h + 51200 * h; /* and biases, norms, positions: 0.1 % */
  double context = (double)zp_gpu_context_bytes("a100_80");
  zp_prediction deepspeed = predict(zp_format(arena, row_of, "microsoft/DeepSpeed docs")),
                megatron = predict(zp_format(arena, row_of, "s"));
  cr_assert(deepspeed.predicted && megatron.predicted);
  expect_near((double)deepspeed.peak_bytes - context, 24 * parameters, 2e-3, "DeepSpeed");
  expect_near((double)megatron.peak_bytes - context, 20 * parameters, 2e-3, "Megatron");
}

/* Head sizes that are no multiple of eight do without tensor cores: BigScience's 128 heads of 108. */
Test(validate, unaligned_heads_are_slow) {
  static const char row_of[] =
      "bs_x,tr11-176B,2022,72,13824,%d,250000,2048,A100-SXM4-80GB,8,300,25,96,4,12,2,2,512,full,0,1,bf16,";
  zp_prediction even = predict(zp_format(arena, row_of, 96)), odd = predict(zp_format(arena, row_of, 128));
  cr_assert(even.predicted && odd.predicted);
  cr_expect(odd.estimate.step_s > 1.25 * even.estimate.step_s, "%g against %g", odd.estimate.step_s,
            even.estimate.step_s);
}

/* A caching allocator asks for segments, cuts them, and never joins what was freed apart. */
Test(validate, allocator_reuses_what_is_large_enough) {
  const int64_t mib = 1 << 20;
  cr_expect_eq(zp_reserved_segment(512), 2 * mib);
  cr_expect_eq(zp_reserved_segment(mib + 1), 20 * mib);
  cr_expect_eq(zp_reserved_segment(10 * mib), 10 * mib);
  cr_expect_eq(zp_reserved_segment(10 * mib + 1), 12 * mib);
  zp_reserved r = {0};
  zp_reserved_take(&r, 100 * mib);
  zp_reserved_give(&r, 100 * mib);
  zp_reserved_take(&r, 60 * mib); /* 40 are left */
  cr_expect_eq(r.bytes, 100 * mib);
  zp_reserved_take(&r, 41 * mib);
  cr_expect_eq(r.bytes, 142 * mib); /* a segment of 42, of which 1 is free */
  zp_reserved_take(&r, 40 * mib);
  zp_reserved_take(&r, mib);
  cr_expect_eq(r.bytes, 142 * mib);
}

/* Small LLaMA-like models tie their head: 16 layers of 67.1 million weights, a table of 268.4. */
Test(validate, printed_parameters_say_whether_the_head_is_tied) {
  zp_measured run = {.layers = 16,
                     .hidden = 2048,
                     .heads = 32,
                     .kv_heads = 32,
                     .ffn = 8192,
                     .vocab = 131072,
                     .seq = 4096,
                     .gated = true,
                     .rotary = true,
                     .parameters = 1.34e9};
  double table = 131072.0 * 2048;
  int64_t tied = zp_model_parameters(zp_run_model(arena, &run));
  run.parameters = 1.61e9;
  expect_near((double)(zp_model_parameters(zp_run_model(arena, &run)) - tied), table, 1e-12, "printed 1.61 billion");
  run.parameters = 0;
  expect_near((double)(zp_model_parameters(zp_run_model(arena, &run)) - tied), table, 1e-12, "nothing printed");
}

/* ---- GPUs ---- */

Test(validate, gpus_in_other_spellings) {
  static const struct {
    const char *printed;
    double memory_gb;
    const char *device;
  } names[] = {
      {"A100-SXM4-80GB", 0, "a100_80"},
      {"NVIDIA A100 40G", 0, "a100_40"},
      {"a100", 80, "a100_80"},
      {"Tesla V100-SXM2", 16, "v100_sxm2_16"},
      {"V100-32GB (PCIe)", 0, "v100_pcie_32"},
      {"H100 PCIe", 0, "h100_pcie"},
      {"H100-SXM5-96GB (HBM2e, 500 W)", 80, "h100_sxm_96"},
      {"H200", 0, "h200"},
      {"RTX 3090", 0, "rtx3090"},
      {"A100", 0, NULL},
      {"A100-SXM4", 64, NULL},
      {"TPUv4-32GB", 0, NULL},
      {"", 80, NULL},
  };
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char *got = zp_gpu_device(names[i].printed, names[i].memory_gb), *want = names[i].device;
    cr_expect(got == want || (got && want && strcmp(got, want) == 0), "%s: %s, expected %s", names[i].printed,
              got ? got : "unknown", want ? want : "unknown");
  }
}

/* ---- software ---- */

#define LIKE(source, heads, tensor, pipeline, data, microbatch)                                                        \
  zp_format(arena, "x_a,%s,2021,24,4096,%d,51200,1024,A100-SXM4-80GB,8,300,3,%d,%d,%d,%d,%d,%d,full,0,1,fp16,",        \
            source, heads, (tensor) * (pipeline) * (data), tensor, pipeline, data, microbatch,                         \
            16 * (data) * (microbatch))

static double step_of(const char *line) {
  zp_prediction p = predict(line);
  cr_assert(p.predicted, "%s: %s", line, p.why_not);
  return p.estimate.step_s;
}

/* DeepSpeed's pipeline sends one piece a tensor rank; Megatron-LM of the time the whole message from each. */
Test(validate, partitioned_messages_are_faster) {
  double whole = step_of(LIKE("someone", 32, 8, 4, 1, 4)), pieces = step_of(LIKE("Megatron-DeepSpeed", 32, 8, 4, 1, 4));
  cr_expect(pieces < 0.97 * whole, "%g against %g", pieces, whole);
  cr_expect_float_eq(step_of(LIKE("someone", 32, 8, 1, 1, 4)), step_of(LIKE("Megatron-DeepSpeed", 32, 8, 1, 1, 4)), 0);
}

/* Until September 2021 its pipeline cut activations only: gradients crossed whole from each of 8 ranks. */
Test(validate, gradients_crossed_whole_in_2020) {
  double cut = step_of(LIKE("Megatron-DeepSpeed", 32, 8, 4, 1, 4)),
         whole = step_of(LIKE("Extreme-scale", 32, 8, 4, 1, 4));
  cr_expect(whole > 1.02 * cut, "%g against %g", whole, cut);
}

/* It keeps what stages have sent until backward, one buffer more than are in flight, in pieces, and one whole. */
Test(validate, sent_outputs_are_kept_in_pieces) {
  zp_prediction megatron = predict(LIKE("someone", 32, 8, 4, 1, 4)),
                deepspeed = predict(LIKE("Megatron-DeepSpeed", 32, 8, 4, 1, 4));
  cr_assert(megatron.predicted && deepspeed.predicted);
  double output = 2.0 * 4 * 1024 * 4096; /* half precision, micro-batch 4, sequence, width */
  /* and communicators: a second one of tensor ranks, one along the pipeline */
  double mib = 1048576, more = (256 + 24 * 2 * 12 + 2 * 2 * 20) * mib;
  expect_near((double)(deepspeed.peak_bytes - megatron.peak_bytes) - more, (4 + 1) * output / 8 + output, 1e-12,
              "outputs");
}

/* Two score matrices a rank do without the fused softmax that four have, although they hold half as much. */
Test(validate, two_heads_a_rank_lose_the_fused_softmax) {
  double two = step_of(LIKE("someone", 16, 8, 1, 1, 1)), four = step_of(LIKE("someone", 32, 8, 1, 1, 1));
  cr_expect(two > 1.05 * four, "%g against %g", two, four);
}

/* OneFlow's data-parallel sums hide behind backward only without tensor parallelism. */
Test(validate, oneflow_overlaps_without_tensor_ranks) {
  zp_prediction alone = predict(LIKE("OneFlow", 32, 1, 1, 16, 8)), beside = predict(LIKE("OneFlow", 32, 2, 1, 16, 8));
  cr_assert(alone.predicted && beside.predicted);
  cr_expect_str_eq(alone.software, "oneflow");
  cr_expect_str_eq(beside.software, "oneflow-tensor");
  cr_expect(alone.estimate.data_comm_s < 0.5 * beside.estimate.data_comm_s, "%g against %g", alone.estimate.data_comm_s,
            beside.estimate.data_comm_s);
}

/* Sources that are not known get a profile by year, and the row says so. */
Test(validate, unknown_software_is_stated) {
  cr_expect(strstr(predict(LIKE("someone", 32, 8, 1, 1, 4)).assumed, "software `megatron`, by the year"));
  const char *assumed = predict(LIKE("arXiv 2205.05198", 32, 8, 1, 1, 4)).assumed;
  cr_expect(!assumed || !strstr(assumed, "software"), "%s", assumed);
}

/* nanotron: 16 layers of 67.1 million weights and a head of 268.4; half of all products end with layer 10. */
Test(validate, nanotron_cuts_by_products) {
  zp_measured run = {.source = "nanotron",
                     .layers = 16,
                     .hidden = 2048,
                     .heads = 32,
                     .kv_heads = 32,
                     .ffn = 8192,
                     .vocab = 131072,
                     .seq = 64,
                     .gated = true,
                     .rotary = true};
  const zp_model *model = zp_run_model(arena, &run);
  int64_t *cut = zp_software_cut(arena, model, zp_software_of(&run), 2);
  cr_expect(cut[0] == 0 && cut[1] == 11 && cut[2] == 18, "%lld %lld", (long long)cut[1], (long long)cut[2]);
  cut = zp_software_cut(arena, model, zp_software_of(&run), 18); /* a unit each */
  for (int k = 0; k <= 18; k++) cr_expect_eq(cut[k], k);
}

Test(validate, text_and_json_hold_every_family) {
  zp_validation v = {0};
  zp_prediction good = row("a_", 10, 11, 80, 88, 1), bad = row("b_", 0, 0, 0, 0, -1);
  bad.predicted = false;
  bad.why_not = "unknown GPU `x`";
  zp_push(arena, &v.rows, good);
  zp_push(arena, &v.rows, bad);
  zp_validation_score(arena, &v);
  const char *text = zp_validation_text(arena, &v);
  cr_expect(strstr(text, "a_") && strstr(text, "1 rows: unknown GPU `x`"), "%s", text);
  zp_json *json = zp_validation_json(&v);
  cr_expect_eq(zp_json_count(zp_json_get(json, "families")), 1);
  cr_expect_eq(zp_json_count(zp_json_get(json, "rows")), 2);
  const zp_json *family = zp_json_at(zp_json_get(json, "families"), 0);
  expect_near(zp_json_get_real(family, "mean_abs_error_pct", 0), 10, 1e-9, "mean");
  cr_expect_eq(zp_json_get_int(family, "fit_agree", 0), 1);
  zp_json_free(json);
}
