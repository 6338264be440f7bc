/* SPDX-License-Identifier: Apache-2.0 */
/* Predictions of measured runs. */
#include "../../planner/validate/memory/software_memory.h"
#include "validate_testing.h"

TestSuite(validate_predict, .init = setup, .fini = teardown);

Test(validate_predict, no_gpu_is_faster_than_its_peak) {
  static const char table[] = "id,source,year,layers,hidden,heads,vocab,seq,gpu,gpus_per_node,n_gpus,tp,pp,dp,micro_"
                              "batch,global_batch,precision,measured_tflops_per_gpu\n"
                              "f_a,s,2022,4,4096,32,51200,2048,A100-SXM4-80GB,8,16,1,1,16,1,16,%s,%s\n";
  static const char *const rows[][2] = {{"fp16", "313"}, {"fp16", "311"}, {"bf16", "313"}};
  for (int i = 0; i < 3; i++) {
    zp_measured_table *t = read_table(zp_format(arena, table, rows[i][0], rows[i][1]));
    zp_prediction p = zp_predict_run(arena, t, &t->runs.data[0], &(zp_run_library){.device = only_a100});
    if (i == 1)
      cr_expect(p.predicted, "%s", p.why_not);
    else
      cr_expect_str_eq(p.why_not, "measured_tflops_per_gpu is above the GPU's peak: 313 of 312 TFLOP/s");
  }
}

/* Half the line rate's payload, said either way. */
Test(validate_predict, measured_collectives_are_used) {
  const char *row = "f_a,s,2022,4,4096,32,51200,2048,A100-SXM4-80GB,8,300,25,16,1,1,16,1,16,fp16";
  static const char columns[] = "id,source,year,layers,hidden,heads,vocab,seq,gpu,gpus_per_node,intra_bw_GBps,inter_bw_"
                                "GBps_per_gpu,n_gpus,tp,pp,dp,micro_batch,global_batch,precision";
  double payload = zp_cost_constant(ZP_COST_NETWORK_PAYLOAD), step_s[3];
  for (int i = 0; i < 3; i++) {
    const char *more = i == 2 ? "" : i == 1 ? ",0.5" : zp_format(arena, ",%.17g", 0.5 * 25 * payload);
    const char *title = i == 2 ? "" : i == 1 ? ",collective_share" : ",collective_bw_GBps_per_gpu";
    zp_measured_table *t = read_table(zp_format(arena, "%s%s\n%s%s\n", columns, title, row, more));
    zp_prediction p = zp_predict_run(arena, t, &t->runs.data[0], &(zp_run_library){.device = only_a100});
    cr_assert(p.predicted, "%s", p.why_not);
    step_s[i] = p.estimate.step_s;
  }
  expect_near(step_s[1], step_s[0], 1e-12, "share");
  cr_expect(step_s[1] > 1.01 * step_s[2], "%g, %g without a measurement", step_s[1], step_s[2]);
}

/* The paper's 22B row: within 10 %, and no faster than its products at the device's best rate. */
Test(validate_predict, predicts_a_tensor_parallel_run) {
  zp_prediction p = predict(
      "korth_x,arXiv 2205.05198,2022,48,6144,64,51200,2048,A100-SXM4-80GB,8,300,25,8,8,1,1,4,4,full,0,1.42,fp16,");
  cr_assert(p.predicted, "%s", p.why_not);
  cr_expect(fabs(p.error) < 0.10, "%g s, %+g %%", p.estimate.step_s, 100 * p.error);
  double floor_s = 96.0 * 4 * 2048 * 48 * 6144 * 6144 / 8 / (312e12 * 0.82);
  cr_expect(p.estimate.step_s > floor_s, "%g, floor %g", p.estimate.step_s, floor_s);
  cr_expect_str_eq(p.software, "megatron-lm-v3");
  cr_expect(p.fits);
}

Test(validate_predict, refuses_what_it_cannot_know) {
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
Test(validate_predict, says_what_it_assumed) {
  zp_prediction p = predict("f_a,s,2022,4,1024,,,512,A100-SXM4-80GB,8,300,25,8,2,2,2,,16,full,0,1,fp16,");
  cr_assert(p.predicted, "%s", p.why_not);
  cr_expect(strstr(p.assumed, "heads 8") && strstr(p.assumed, "vocabulary 51200") && strstr(p.assumed, "micro-batch"),
            "%s", p.assumed);
}

/* Boards hold more than the sheet's decimal figure, PyTorch's printed GiB are GiB, and what an allocator reserved is no
 * peak. */
Test(validate_predict, memory_is_read_as_it_was_measured) {
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
Test(validate_predict, fits_are_decided_only_where_published) {
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
Test(validate_predict, heads_are_guessed_legally) {
  zp_prediction p = predict("f_a,s,2021,4,8192,,,512,A100-SXM4-80GB,8,300,25,128,128,1,1,1,8,full,0,1,fp16,");
  cr_assert(p.predicted, "%s", p.why_not);
  cr_expect(strstr(p.assumed, "heads 128"), "%s", p.assumed);
}

/* BigScience until 27 February 2022: 2 bytes of gradient a parameter; after the micro-batches a bucket of 1 GB, and the
 * norm of 8 bytes for each of the rank's share, out of which the update's copies are cut. After: 4 bytes and 2 of the
 * micro-batch at hand; 4 for each of the table's gradients, and 2 a parameter that are reduced. Two stages are cut
 * alike either way. Less than 0.1 is the embedding's norm, and a fresh gradient. */
Test(validate_predict, bigscience_changed_its_optimizer) {
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
Test(validate_predict, updates_hold_copies_of_the_gradients) {
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
Test(validate_predict, unaligned_heads_are_slow) {
  static const char row_of[] =
      "bs_x,tr11-176B,2022,72,13824,%d,250000,2048,A100-SXM4-80GB,8,300,25,96,4,12,2,2,512,full,0,1,bf16,";
  zp_prediction even = predict(zp_format(arena, row_of, 96)), odd = predict(zp_format(arena, row_of, 128));
  cr_assert(even.predicted && odd.predicted);
  cr_expect(odd.estimate.step_s > 1.25 * even.estimate.step_s, "%g against %g", odd.estimate.step_s,
            even.estimate.step_s);
}

/* A caching allocator asks for segments, cuts them, and never joins what was freed apart. */
Test(validate_predict, allocator_reuses_what_is_large_enough) {
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
Test(validate_predict, printed_parameters_say_whether_the_head_is_tied) {
  zp_measured run = {.shape.layers = 16,
                     .shape.hidden = 2048,
                     .shape.heads = 32,
                     .shape.kv_heads = 32,
                     .shape.ffn = 8192,
                     .shape.vocab = 131072,
                     .seq = 4096,
                     .shape.gated = true,
                     .shape.rotary = true,
                     .parameters = 1.34e9};
  double table = 131072.0 * 2048;
  int64_t tied = zp_model_parameters(zp_run_model(arena, &run, &(zp_run_library){0}));
  run.parameters = 1.61e9;
  expect_near((double)(zp_model_parameters(zp_run_model(arena, &run, &(zp_run_library){0})) - tied), table, 1e-12,
              "printed 1.61 billion");
  run.parameters = 0;
  expect_near((double)(zp_model_parameters(zp_run_model(arena, &run, &(zp_run_library){0})) - tied), table, 1e-12,
              "nothing printed");
}

/* ---- interleaving ---- */

static zp_prediction interleaved(const char *chunks, const char *source, const char *recompute) {
  zp_measured_table *t = read_table(zp_format(
      arena,
      "id,source,year,layers,hidden,heads,vocab,seq,gpu,gpus_per_node,intra_bw_GBps,inter_bw_GBps_per_gpu,n_gpus,tp,pp,"
      "dp,interleave_v,micro_batch,global_batch,recompute,precision\n"
      "f_a,%s,2022,96,12288,96,51200,2048,A100-SXM4-80GB,8,300,25,64,8,8,1,%s,1,64,%s,fp16\n",
      source, chunks, recompute));
  cr_assert_eq(t->runs.len, 1, "%s", t->malformed.len ? t->malformed.data[0] : "no row");
  return zp_predict_run(arena, t, &t->runs.data[0], &(zp_run_library){.device = only_a100});
}

/* 64 micro-batches on 8 stages: the bubble of one chunk a stage is 7 micro-batches long, that of three a third of it
 * (arXiv 2104.04473, section 2.2.2). The first stage keeps 1 + 7 / 24 times as much (arXiv 2205.05198, section 4.2.3),
 * here of 34 s b h / t a layer less what the kernels' masks are; without the sequence split 10 + 24 / t. */
Test(validate_predict, chunks_of_a_row_are_priced) {
  zp_prediction one = interleaved("1", "arXiv 2205.05198", "selective"),
                three = interleaved("3", "arXiv 2205.05198", "selective");
  cr_assert(one.predicted && three.predicted, "%s %s", one.why_not, three.why_not);
  cr_expect_eq(three.choice.chunks, 3);
  cr_expect_eq(three.choice.schedule, ZP_SCHEDULE_INTERLEAVED);
  double gone = one.estimate.bubble_s * 2 / 3;
  cr_expect(fabs(one.estimate.bubble_s - gone - three.estimate.bubble_s) < 0.1 * gone, "bubble %g, of one chunk %g",
            three.estimate.bubble_s, one.estimate.bubble_s);
  cr_expect(three.estimate.pipeline_comm_s > 2 * one.estimate.pipeline_comm_s, "three times the messages");
  double kept = activation_bytes(PLAIN_ACTIVATIONS, 96, 12288, 96, 2048, 1, 8, 8, 1) - 5.0 * 96 * 2048 * 2048 / 8 * 96,
         more = kept * 7 / 24;
  cr_expect(fabs((double)(three.peak_bytes - one.peak_bytes) / more - 1) < 0.2, "%g GB more, by the paper %g",
            (double)(three.peak_bytes - one.peak_bytes) / 1e9, more / 1e9);
}

/* Unpublished: the fastest number that fits, stated; one where the program has no such schedule. */
Test(validate_predict, unpublished_chunks_are_searched) {
  zp_prediction megatron = interleaved("", "arXiv 2205.05198", "full"), other = interleaved("", "s", "full");
  cr_assert(megatron.predicted && other.predicted);
  int best = 0;
  double best_s = HUGE_VAL;
  static const char *const divisors[] = {"1", "2", "3", "4", "6"};
  for (size_t i = 0; i < sizeof divisors / sizeof *divisors; i++) {
    zp_prediction one = interleaved(divisors[i], "arXiv 2205.05198", "full");
    cr_assert(one.predicted && one.fits);
    if (one.estimate.step_s < best_s) {
      best_s = one.estimate.step_s;
      best = atoi(divisors[i]);
    }
  }
  cr_expect(best > 1 && zp_chunks(&megatron.choice) == best, "%d, best %d", zp_chunks(&megatron.choice), best);
  cr_expect_eq(megatron.estimate.step_s, best_s);
  cr_expect(strstr(megatron.assumed, zp_format(arena, "%d chunks a stage", best)), "%s", megatron.assumed);
  cr_expect_eq(zp_chunks(&other.choice), 1);
}

/* Four KV heads of 32: keys and values are less than queries and results, too. */
Test(validate_predict, context_ranks_exchange_what_notes_say) {
  static const char row_of[] = "f_a,s,2024,8,4096,32,51200,32768,A100-SXM4-80GB,8,300,25,32,1,1,8,1,8,full,0,1,bf16,%s";
  static const char notes[] = "SwiGLU; rotary; 4 KV heads; cp=4";
  zp_prediction heads = predict(zp_format(arena, row_of, notes));
  zp_prediction keys = predict(zp_format(arena, row_of, zp_format(arena, "%s; cp_comm_type=all_gather", notes)));
  zp_prediction ring = predict(zp_format(arena, row_of, zp_format(arena, "%s; cp_comm_type=p2p", notes)));
  cr_assert(heads.predicted && keys.predicted, "%s, %s", heads.why_not, keys.why_not);
  cr_assert(ring.predicted, "%s", ring.why_not);
  cr_expect(heads.choice.context_by == ZP_BY_HEADS && strstr(heads.assumed, "context ranks exchange heads"), "%s",
            heads.assumed);
  cr_expect(keys.choice.context_by == ZP_BY_KEYS && !strstr(keys.assumed, "context ranks"), "%s", keys.assumed);
  cr_expect(ring.choice.context_by == ZP_BY_RING && !strstr(ring.assumed, "context ranks"), "%s", ring.assumed);
  cr_expect(keys.estimate.context_comm_s < heads.estimate.context_comm_s, "%g, by heads %g",
            keys.estimate.context_comm_s, heads.estimate.context_comm_s);
  zp_prediction kept[2];
  for (int by_keys = 0; by_keys < 2; by_keys++) {
    const char *words = zp_format(arena, "%s%s", notes, by_keys ? "; cp_comm_type=all_gather" : "");
    kept[by_keys] = predict(zp_format(
        arena, "f_a,s,2024,8,4096,32,51200,32768,A100-SXM4-80GB,8,300,25,32,1,1,8,1,8,none,0,1,bf16,%s", words));
  }
  /* of a layer queries and results once more by heads; keys and values gathered are not kept */
  cr_expect(kept[1].peak_bytes < kept[0].peak_bytes, "%lld, by heads %lld", (long long)kept[1].peak_bytes,
            (long long)kept[0].peak_bytes);
}
