/* SPDX-License-Identifier: Apache-2.0 */
/* What rows of measured runs leave open, and what they contradict. */
#include "validate_testing.h"

TestSuite(validate_open, .init = setup, .fini = teardown);

static const char titles[] =
    "id,source,year,model,layers,hidden,heads,ffn,vocab,seq,params_b,gpu,gpus_per_node,intra_bw_"
    "GBps,inter_bw_GBps_per_gpu,n_gpus,tp,pp,dp,interleave_v,micro_batch,global_batch,"
    "precision,zero_stage,recompute,seq_parallel,offload,measured_iter_s,notes";

/* LLaMA 3.1 405B, as published: 8 KV heads, 405.9 G parameters. */
#define OF_405B(source, params, pipeline, data, chunks, notes)                                                         \
  "x_a," source ",2026,Llama-3.1 405B,126,16384,128,53248,128256,8192," params                                         \
  ",A100-SXM4-80GB,8,300,25,512,8," pipeline "," data "," chunks ",1,256,bf16,1,full,1,none,40," notes

static zp_measured_table *table_of(const char *line) { return read_table(zp_format(arena, "%s\n%s\n", titles, line)); }

static zp_prediction predicted(const char *line) {
  zp_measured_table *t = table_of(line);
  cr_assert_eq(t->runs.len, 1, "%s", t->malformed.len ? t->malformed.data[0] : "no row");
  return zp_predict_run(arena, t, &t->runs.data[0], &(zp_run_library){.device = only_a100});
}

static const char *taken(const zp_prediction *p, const char *column) {
  for (int i = 0; i < p->open.len; i++)
    if (strcmp(p->open.data[i].column, column) == 0) return p->open.data[i].taken;
  return NULL;
}

static void expect_contradiction(const char *line, const char *words) {
  zp_measured_table *t = table_of(line);
  cr_assert_eq(t->malformed.len, 1, "a row with `%s` is taken", words);
  cr_expect(strstr(t->malformed.data[0], words) && strncmp(t->malformed.data[0], "line 2: ", 8) == 0, "%s",
            t->malformed.data[0]);
}

/* 128 KV heads make 469 G of it; the printed number says that there are 8. */
Test(validate_open, kv_heads_follow_the_printed_parameters) {
  zp_measured_table *t = table_of(OF_405B("s", "405.9", "8", "8", "1", ""));
  cr_assert_eq(t->runs.len, 1);
  const char *assumed;
  zp_measured full = zp_run_complete(arena, t, &t->runs.data[0], &assumed);
  cr_expect_eq(full.shape.kv_heads, 8);
  cr_expect(strstr(assumed, "KV heads 8"), "%s", assumed);
  const zp_model *model = zp_run_model(arena, &full, &(zp_run_library){0});
  expect_near((double)zp_model_parameters(model), 405.9e9, 0.01, "parameters");
  zp_measured_table *without = table_of(OF_405B("s", "", "8", "8", "1", ""));
  full = zp_run_complete(arena, without, &without->runs.data[0], &assumed);
  cr_expect(full.shape.kv_heads == 128 && strstr(assumed, "KV heads 128"), "%s", assumed);
}

Test(validate_open, a_row_that_contradicts_itself_is_an_error) {
  expect_contradiction(OF_405B("s", "405.9", "8", "8", "1", "128 KV heads"), "params_b is 405.9");
  expect_contradiction(OF_405B("s", "700", "8", "8", "1", ""), "params_b is 700");
  expect_contradiction(OF_405B("s", "405.9", "8", "8", "1", "12 KV heads"), "12 KV heads");
  expect_contradiction(OF_405B("s", "405.9", "1", "64", "2", "8 KV heads"), "interleave_v is 2");
  expect_contradiction(OF_405B("s", "405.9", "8", "8", "1", "8 KV heads; interleaved 1F1B"), "interleave_v is 1");
  zp_measured_table *t = table_of(OF_405B("s", "350", "8", "8", "1", "8 KV heads; the shape gives 405.9"));
  cr_expect_eq(t->runs.len, 1, "a row that explains itself");
}

/* Notes that say interleaved leave no single chunk, whatever the program of that year could do. */
Test(validate_open, interleaved_runs_have_chunks) {
  static const char *const notes[] = {"8 KV heads", "8 KV heads; interleaved schedule"};
  for (int i = 0; i < 2; i++) {
    zp_prediction p = predicted(zp_format(arena, "%s%s", OF_405B("s", "", "2", "32", "", ""), notes[i]));
    cr_assert(p.predicted, "%s", p.why_not);
    cr_expect_eq(zp_chunks(&p.choice) > 1, i == 1);
    cr_expect_str_eq(taken(&p, "interleave_v"), zp_format(arena, "%d", zp_chunks(&p.choice)));
    cr_expect(strstr(p.assumed, "a stage"), "%s", p.assumed);
  }
}

Test(validate_open, programs_that_a_row_names_come_before_its_year) {
  static const struct {
    const char *source, *notes, *software;
    bool named;
  } rows[] = {{"s", "", "flash-attention", false},
              {"lab (Megatron-LM core 0.14)", "", "megatron-core", true},
              {"lab (Megatron-LM core 0.14)", "; no overlap of collectives", "megatron-core-serial", true},
              {"s", "; PyTorch FSDP", "fsdp", true}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const char *line =
        zp_format(arena, "x_a,%s%s%s", rows[i].source, strchr(OF_405B("", "", "8", "8", "1", "") + 4, ','),
                  zp_format(arena, "8 KV heads%s", rows[i].notes));
    zp_prediction p = predicted(line);
    cr_assert(p.predicted, "%s: %s", line, p.why_not);
    cr_expect_str_eq(p.software, rows[i].software);
    cr_expect_eq(taken(&p, "software") == NULL, rows[i].named);
  }
}

/* Every empty cell that a prediction needs is named; a full row names none. */
Test(validate_open, empty_cells_are_named) {
  zp_prediction full = predicted(OF_405B("lab Megatron-Core", "405.9", "8", "8", "1", "8 KV heads"));
  cr_assert(full.predicted, "%s", full.why_not);
  cr_expect_eq(full.open.len, 0, "%s", full.open.len ? full.open.data[0].column : "");
  zp_prediction bare = predicted("x_a,s,2026,LLaMA,4,1024,,,,512,,A100-SXM4-80GB,,,,16,2,2,4,,,64,,,,,,0.5,");
  cr_assert(bare.predicted, "%s", bare.why_not);
  static const char *const columns[] = {
      "heads",         "KV heads",     "ffn",         "vocab",     "gpus_per_node",
      "intra_bw_GBps", "interleave_v", "micro_batch", "precision", "zero_stage",
      "recompute",     "seq_parallel", "offload",     "software",  "inter_bw_GBps_per_gpu"};
  enum { N = sizeof columns / sizeof *columns };
  cr_expect_eq(bare.open.len, N);
  for (int i = 0; i < N; i++) cr_expect(taken(&bare, columns[i]), "%s", columns[i]);
  zp_validation v = {0};
  zp_push(arena, &v.rows, bare);
  zp_validation_score(arena, &v);
  zp_page page = zp_page_new(arena, zp_plain_screen(80), 0);
  zp_validation_show(&page, &v);
  cr_expect(strstr(page.out.data, "   1 row   heads\n"), "%s", page.out.data);
  zp_json *json = zp_validation_json(&v);
  cr_expect_eq(zp_json_get_int(zp_json_get(json, "open"), "recompute", 0), 1);
  zp_json_free(json);
}
