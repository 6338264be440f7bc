/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of measured runs: reading, malformed rows by line, statistics, the report. */
#include "validate_testing.h"

TestSuite(validate, .init = setup, .fini = teardown);

/* ---- reading ---- */

Test(validate, published_columns) {
  zp_measured_table *t = read_table(HEADER GOOD);
  cr_assert_eq(t->runs.len, 1);
  const zp_measured *run = &t->runs.data[0];
  cr_expect_str_eq(run->family, "fam_");
  cr_expect_str_eq(run->source, "paper, table 1");
  cr_expect_str_eq(run->notes, "conf=A; says \"fast\"");
  cr_expect_eq(run->line, 2);
  cr_expect_eq(run->shape.layers, 4);
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

/* Figures that cannot both be measured, on that GPU, by a program that divides so. */
Test(validate, contradictions_are_named_by_line) {
#define SAID                                                                                                           \
  "id,gpu,gpu_mem_gb,n_gpus,tp,pp,dp,interleave_v,layers,hidden,heads,ffn,vocab,seq,global_batch,precision,"           \
  "measured_tflops_per_gpu,measured_iter_s,measured_mem_gb\n"
#define SHAPE "36,4096,32,16384,51200,2048,512,fp16,"
  static const char *const rows[][2] = {
      {"f_a,A100-SXM4-80GB,40,128,4,1,32,1," SHAPE "142,,", "gpu is `A100-SXM4-80GB`, and gpu_mem_gb is 40"},
      {"f_a,A100-SXM4-80GB,80,128,4,1,32,1," SHAPE "142,,100",
       "measured_mem_gb is more than the GPU has: 100 of 85.2 GB"},
      {"f_a,A100-SXM4-80GB,80,128,4,1,32,1," SHAPE "142,1.2,",
       "measured_iter_s is 1.2, and measured_tflops_per_gpu makes"},
      {"f_a,A100-SXM4-80GB,80,128,4,1,32,1," SHAPE "142,6,", "measured_iter_s is 6, and measured_tflops_per_gpu makes"},
      {"f_a,A100-SXM4-80GB,80,96,3,1,32,1," SHAPE "142,,", "tp is 3, which does not divide heads, 32"},
      {"f_a,A100-SXM4-80GB,80,128,4,4,8,5," SHAPE "142,,",
       "interleave_v is 5, and 36 layers are no equal chunks of 4 stages"},
      {"f_a,A100-SXM4-80GB,80,120,4,1,30,1," SHAPE "142,,", "global_batch is 512, which does not divide over dp, 30"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    zp_measured_table *t = read_table(zp_format(arena, SAID "%s\n", rows[i][0]));
    cr_assert_eq(t->malformed.len, 1, "%s", rows[i][0]);
    cr_expect(strstr(t->malformed.data[0], "line 2: ") && strstr(t->malformed.data[0], rows[i][1]), "%s",
              t->malformed.data[0]);
  }
  zp_measured_table *t = read_table(SAID "f_a,A100-SXM4-80GB,80,128,4,1,32,1," SHAPE "142,3.7,79\n"
                                         "f_b,A100,40,128,4,3,32,3," SHAPE "142,3.0,40\n");
  cr_expect_eq(t->malformed.len, 1, "12 x 32 are not 128");
  cr_expect_eq(t->runs.len, 1);
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
                                         "fp32, float32, tf32, fp8, fp8_current, fp8_block, mxfp8, nvfp4");
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

/* 80 bytes of a title are shown, so that the message stays one that is read. */
Test(validate, endless_titles_are_cut) {
  char title[4096], shown[81] = "";
  memset(title, 'x', sizeof title - 1);
  title[sizeof title - 1] = '\0';
  memset(shown, 'x', 80);
  zp_measured_table *t = read_table(zp_format(arena, "id,gpu,n_gpus,%s\na,A100,8,1\n", title));
  cr_assert_eq(t->ignored.len, 1);
  cr_expect_str_eq(t->ignored.data[0], zp_format(arena, "line 1: column 4, `%s`, is unknown and not used", shown));
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

/* An all-reduce rate is given as bytes or as the share that `fabric { collectives = ... }` takes, not as both. */
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

Test(validate, text_and_json_hold_every_family) {
  zp_validation v = {0};
  zp_prediction good = row("a_", 10, 11, 80, 88, 1), bad = row("b_", 0, 0, 0, 0, -1);
  bad.predicted = false;
  bad.why_not = "unknown GPU `x`";
  zp_push(arena, &v.rows, good);
  zp_push(arena, &v.rows, bad);
  zp_validation_score(arena, &v);
  zp_page page = zp_page_new(arena, zp_plain_screen(80), 0);
  zp_validation_show(&page, &v);
  cr_expect(strstr(page.out.data, "\na_ ") && strstr(page.out.data, "1 row   unknown GPU `x`"), "%s", page.out.data);
  zp_json *json = zp_validation_json(&v);
  cr_expect_eq(zp_json_count(zp_json_get(json, "families")), 1);
  cr_expect_eq(zp_json_count(zp_json_get(json, "rows")), 2);
  const zp_json *family = zp_json_at(zp_json_get(json, "families"), 0);
  expect_near(zp_json_get_real(family, "mean_abs_error_pct", 0), 10, 1e-9, "mean");
  cr_expect_eq(zp_json_get_int(family, "fit_agree", 0), 1);
  zp_json_free(json);
}

/* ---- GPUs ---- */

Test(validate, gpus_in_other_spellings) {
  static const struct {
    const char *printed;
    double memory_gb;
    const char *device;
  } names[] = {
      {"A100-SXM4-80GB", 0, "a100_80"},
      {"GB200", 186, "gb200"},
      {"DGX-B200", 180, "b200"},
      {"H20-96GB", 0, "h20"},
      {"NVIDIA H200 141GB", 0, "h200"},
      {"L40S", 0, "l40s"},
      {"NVIDIA A10G", 0, "a10g"},
      {"NVIDIA H100 NVL", 0, "h100_nvl"},
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
