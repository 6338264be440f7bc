/* SPDX-License-Identifier: Apache-2.0 */
/* Tables that other projects publish, and the columns of experts, context, precision and adapters. */
#include "validate_testing.h"

TestSuite(validate_tables, .init = setup, .fini = teardown);

static zp_prediction predict_first(const char *text) {
  zp_measured_table *t = read_table(text);
  cr_assert_eq(t->runs.len, 1, "%s", t->malformed.len ? t->malformed.data[0] : "no row");
  return zp_predict_run(arena, t, &t->runs.data[0], &(zp_run_library){.device = only_a100});
}

static void expect_left_out(const char *text, const char *why) {
  zp_prediction p = predict_first(text);
  cr_expect(!p.predicted && strstr(p.why_not, why), "%s, not `%s`", p.predicted ? "predicted" : p.why_not, why);
}

#define BRIDGE                                                                                                         \
  "source_file,release,kind,model,system,gpus,precision,gbs,mbs,seq,fsdp,tp,pp,cp,vp,ep,ga,tok_s_gpu,tflops_gpu\n"

/* Two figures of a cell, thousands with commas, n/a; the step is of the tokens a second; stages of 126 layers. */
Test(validate_tables, megatron_bridge) {
  zp_measured_table *t = read_table(
      BRIDGE
      "a.md,25.09,Pre-Training Performance,LLAMA3.1_405B,DGX-H100,1024,FP8-CS "
      "(FP8-MX),512,1,8192,0,8,8,2,8,1,64,302,763\n"
      "a.md,25.09,Pre-Training Performance,LLAMA3_70B,DGX-GB200,128,NVFP4,64,1,8192,64 (0),2 (4),1 (8),1,n/a,n/a,,"
      "\"1,024 (578)\",1840\n");
  cr_assert_eq(t->runs.len, 2, "%s", t->malformed.len ? t->malformed.data[0] : "");
  const zp_measured *big = &t->runs.data[0], *small = &t->runs.data[1];
  cr_expect_str_eq(big->id, "bridge_dgxh100_llama31405b_fp8_current_l2");
  cr_expect(big->shape.layers == 126 && big->shape.kv_heads == 8 && big->context == 2 && big->data == 8 &&
            big->zero == 1);
  expect_near(big->step_s, 512.0 * 8192 / (302 * 1024), 1e-12, "step");
  cr_expect(small->tensor == 2 && small->pipeline == 1 && small->data == 64 && small->zero == 3 && small->shard == 0);
  cr_expect_str_eq(small->precision, "nvfp4");
  expect_near(small->step_s, 64.0 * 8192 / (1024 * 128), 1e-12, "step");
}

Test(validate_tables, automodel_and_simumax) {
  zp_measured_table *t = read_table(
      "section,Model,#GPUs,GBS,MBS,LBS,GA,Seq Length,TP,PP,CP,EP,VP,FSDP,Kernel Optimizations,Time per Global Step (s),"
      "Model TFLOPs/sec/GPU,Tokens/sec/GPU\n"
      "Fine-Tuning (LoRA) Performance,Llama3 70B,8,32,2,2,4,4096,2,1,1,-,1,4,TE,15.00,316,\"1,091.85\"\n");
  const zp_measured *run = &t->runs.data[0];
  cr_expect(run->adapters && run->data == 4 && run->zero == 3 && run->shard == 0 && run->expert == 0);
  expect_near(run->step_s, 15, 0, "step");
  t = read_table(
      "case,model,layers,tp,pp,dp,ep,cp,seq,microbatches,real_ms,simumax_ms,real_alloc_gib,real_reserved_gib,"
      "simumax_alloc_gib\nx_tp2,llama3-405b,4,2,1,4,1,1,4096?,8,1716.8,1600.4,81.59,84.7,81.31\n");
  run = &t->runs.data[0];
  cr_expect(run->batch == 32 && run->microbatch == 1 && run->seq == 4096 && run->shape.kv_heads == 16 &&
            run->gpus == 8);
  expect_near(run->memory_bytes, 81.59 * 1073741824.0, 1e-12, "memory");
}

#define OWN                                                                                                            \
  "id,source,model,layers,hidden,heads,kv_heads,ffn,vocab,seq,gpu,gpus_per_node,intra_bw_GBps,n_gpus,tp,pp,dp,cp,ep,"  \
  "shard_group,experts,top_k,expert_ffn,micro_batch,global_batch,precision,zero_stage,recompute,lora,measured_iter_s," \
  "notes\n"                                                                                                            \
  "f_a,s,Llama,4,1024,16,4,4096,32000,512,A100-SXM4-80GB,8,300,8,"

/* What is read and not predicted says why; KV heads of their column come before those of the notes. */
Test(validate_tables, axes_outside_the_space_are_named) {
  expect_left_out(OWN "1,1,8,,,,,,,1,8,mxfp8,1,full,,1,\n", "mxfp8");
  expect_left_out(OWN "1,1,8,,,,,,,1,8,bf16,1,full,1,1,\n", "the library has no blocks");
  expect_left_out(OWN "1,1,8,,8,,16,2,512,1,8,bf16,1,full,,1,\n", "the library has no blocks");
  zp_prediction p = predict_first(OWN "1,1,8,,,8,,,,1,8,bf16,1,full,0,1,16 KV heads\n");
  cr_assert(p.predicted, "%s", p.why_not);
  cr_expect_eq(p.run->shape.kv_heads, 4);
  p = predict_first(OWN "1,1,4,2,,,,,,1,8,bf16,0,full,,1,\n");
  cr_assert(p.predicted, "%s", p.why_not);
  cr_expect(p.choice.context == 2 && p.choice.data == 8 && strstr(p.assumed, "context"));
  cr_expect_gt(p.estimate.context_comm_s, 0);
  zp_measured_table *t =
      read_table(HEADER "internevoloc_a,s,2023,Llama,4,1024,512,A100-80GB,8,16,1,1,16,1,16,1,zero1=8\n"
                        "internevo_b,s,2023,Llama,4,1024,512,A100-80GB,8,16,1,1,16,1,16,1,zero1=-1\n");
  cr_assert_eq(t->runs.len, 2);
  cr_expect(t->runs.data[0].shard == 8 && t->runs.data[1].shard == 0);
}

/* Shapes by name, and how the release exchanges and launches; the text has the library's blocks. */
Test(validate_tables, experts_of_megatron_bridge) {
  zp_measured_table *t = read_table(
      BRIDGE "a.md,26.06.01 NeMo Container,Pre-Training Performance,DeepSeekV3,DGX-GB200,256,MXFP8,4096,1,4096,,1,4,1,"
             "4,64,,4928,1280\n"
             "a.md,25.11 NeMo Container,Pre-Training Performance,GPT OSS 120B,DGX-H100,64,BF16,512,4,4096,0,1,4,1,1,8,"
             "2,5630,153\n");
  cr_assert_eq(t->runs.len, 2, "%s", t->malformed.len ? t->malformed.data[0] : "");
  const zp_measured *latent = &t->runs.data[0], *biased = &t->runs.data[1];
  cr_expect(latent->shape.kv_rank == 512 && latent->shape.further == 1 && latent->shape.expert_groups == 8 &&
            latent->expert == 64);
  cr_expect(latent->one_kernel && latent->hides_exchange && strcmp(latent->graphs, "whole") == 0);
  cr_expect(biased->shape.expert_biases && biased->shape.window == 128 && strcmp(biased->dispatcher, "alltoall") == 0);
  cr_expect(biased->shape.clamped && !latent->shape.clamped && !biased->narrow_attention);
  cr_expect(strcmp(latent->again, "mla_up_proj") == 0 && strcmp(biased->again, "layernorm moe_act") == 0);
  const char *text = zp_run_text(arena, latent);
  cr_expect(strstr(text, "repeat layers in 0..58") && strstr(text, "deepseek_moe") && strstr(text, "loss0 + loss1"));
  cr_expect(strstr(zp_run_text(arena, biased), "mixtral_layer") && strstr(zp_run_text(arena, biased), "window = 1"));
}

/* A precision that is printed and not known is not one that is missing. */
Test(validate_tables, unknown_precision_of_megatron_bridge) {
  expect_left_out(BRIDGE
                  "a.md,26.06 NeMo,Pre-Training Performance,LLAMA3_70B,DGX-GB200,64,INT3,256,1,8192,,2,4,1,5,n/a,,"
                  "3828,1721\n",
                  "products in `INT3` are not known");
  expect_left_out(BRIDGE "a.md,26.06 NeMo,Pre-Training Performance,LLAMA3_70B,DGX-GB200,64,,256,1,8192,,2,4,1,5,n/a,,"
                         "3828,1721\n",
                  "the precision is not printed");
}

static void expect_malformed(const char *text, const char *words) {
  zp_measured_table *t = read_table(text);
  cr_assert_eq(t->malformed.len, 1, "a row with `%s` is taken", words);
  cr_expect(strstr(t->malformed.data[0], words), "%s", t->malformed.data[0]);
}

Test(validate_tables, groups_that_divide_nothing) {
  expect_malformed(OWN "1,1,8,,3,,16,2,512,1,8,bf16,1,full,,1,\n", "ep is 3, which does not divide the 16 experts");
  expect_malformed(OWN "1,1,8,,2,,,,,1,8,bf16,1,full,,1,\n", "ep is 2, and the model has no experts");
  expect_malformed(OWN "1,1,8,,,,16,,512,1,8,bf16,1,full,,1,\n", "experts without top_k");
  expect_malformed(OWN "1,1,8,,,,16,2,,1,8,bf16,1,full,,1,\n", "experts without expert_ffn");
  expect_malformed(OWN "1,1,8,,,3,,,,1,8,bf16,1,full,,1,\n", "shard_group is 3");
  expect_malformed(OWN "1,1,8,,,,,,,1,8,int4,1,full,,1,\n", "precision is `int4`, not one of");
  expect_malformed("case,model,layers,tp,pp,dp,ep,cp,seq,microbatches,real_ms\n"
                   "x,llama3-70b,4,1000000,1000000,1000000,1,1,4096,8,1\n",
                   "tensor, pipeline and data ranks are not 1000000 GPUs");
}

#define GATES                                                                                                          \
  "id,gpu,n_gpus,layers,hidden,heads,kv_heads,tp,pp,dp,micro_batch,global_batch,experts,top_k,expert_ffn,"             \
  "expert_groups,top_groups,dense_layers,flushes\n"                                                                    \
  "a_1,A100-SXM4-80GB,8,4,1024,16,"

Test(validate_tables, gates_and_flushes_that_take_more_than_there_is) {
  zp_measured_table *t = read_table(GATES "4,1,2,4,1,64,16,4,512,8,2,1,4\n");
  cr_assert(t->runs.len == 1 && t->malformed.len == 0, "%s", t->malformed.len ? t->malformed.data[0] : "");
  expect_malformed(GATES "4,1,1,8,1,64,2,4,512,,,,\n", "top_k is 4 of 2 experts");
  expect_malformed(GATES "4,1,1,8,1,64,16,4,512,3,1,,\n", "expert_groups is 3, which does not divide the 16 experts");
  expect_malformed(GATES "4,1,1,8,1,64,16,4,512,,2,,\n", "top_groups without expert_groups");
  expect_malformed(GATES "4,1,1,8,1,64,16,4,512,4,5,,\n", "top_groups is 5 of 4 groups");
  expect_malformed(GATES "4,1,1,8,1,64,16,4,512,8,1,,\n", "top_k is 4 of the 2 experts of top_groups");
  expect_malformed(GATES "4,1,1,8,1,64,16,4,512,,,5,\n", "dense_layers is 5 of 4 layers");
  expect_malformed(GATES "4,1,2,4,1,64,,,,,,,1000000\n", "flushes is 1000000, which does not divide the batch, 64");
  expect_malformed(GATES "4,1,2,4,1,64,,,,,,,32\n", "flushes is 32, which does not divide the 16 micro-batches");
  expect_left_out("id,source,model,layers,hidden,heads,ffn,vocab,seq,gpu,gpus_per_node,intra_bw_GBps,n_gpus,tp,pp,dp,"
                  "global_batch,precision,zero_stage,recompute,measured_iter_s,flushes\n"
                  "f_a,s,Llama,4,1024,16,4096,32000,512,A100-SXM4-80GB,8,300,8,1,2,4,8,bf16,1,full,1,8\n",
                  "flushes are no equal numbers of micro-batches");
  expect_malformed(GATES "5,1,2,4,1,64,,,,,,,\n", "5 KV heads, in kv_heads or the notes");
}

/* Reasons are counted once for the whole report. */
Test(validate_tables, reasons_are_counted) {
  zp_validation v = {0};
  for (int i = 0; i < 3; i++) {
    zp_prediction p =
        predict_first(i < 2 ? OWN "1,1,8,,,,,,,1,8,bf16,1,full,1,1,\n" : OWN "1,1,8,,,,,,,1,8,bf16,1,full,,1,\n");
    zp_push(arena, &v.rows, p);
  }
  zp_validation_score(arena, &v);
  cr_assert_eq(v.left_out.len, 1);
  cr_expect_eq(v.left_out.data[0].rows, 2);
  zp_page page = zp_page_new(arena, zp_plain_screen(80), 0);
  zp_validation_show(&page, &v);
  cr_expect(strstr(page.out.data, "2 of 3 rows are not predicted:"));
}

/* The reference has a text for every column, and the type that its cells are read with. */
Test(validate_tables, columns_have_texts) {
  cr_assert_gt(zp_run_column_count(), 40);
  for (int i = 0; i < zp_run_column_count(); i++) {
    zp_run_column c = zp_run_column_at(arena, i);
    cr_expect(c.holds && *c.holds && c.type, "%s", c.title);
  }
}

/* ---- products in 8 and 4 bits ---- */

static const zp_device *hopper_or_blackwell(void *user, const char *name) {
  static zp_device devices[2];
  (void)user;
  bool hopper = strcmp(name, "h100_sxm") == 0;
  zp_device *d = &devices[hopper];
  *d = a100;
  d->name = hopper ? "h100_sxm" : "gb200";
  d->arch = hopper ? "sm_90" : "sm_100";
  d->flop_per_s_half = 989e12;
  return hopper || strcmp(name, "gb200") == 0 ? d : NULL;
}

static zp_prediction predict_bridge(const char *system, const char *precision) {
  zp_measured_table *t =
      read_table(zp_format(arena,
                           BRIDGE "a.md,26.04,Pre-Training Performance,LLAMA3_70B,%s,64,%s,256,1,8192,0,4,8,1,5,n/a,,"
                                  "1664,731\n",
                           system, precision));
  cr_assert_eq(t->runs.len, 1, "%s", t->malformed.len ? t->malformed.data[0] : "no row");
  return zp_predict_run(arena, t, &t->runs.data[0], &(zp_run_library){.device = hopper_or_blackwell});
}

/* Layers run up to 1.9 times as fast, heads and attention do not, and casts take time. */
Test(validate_tables, recipes_of_transformer_engine) {
  zp_prediction half = predict_bridge("DGX-H100", "BF16"), eight = predict_bridge("DGX-H100", "FP8-CS"),
                blocks = predict_bridge("DGX-H100", "MXFP8");
  cr_assert(half.predicted && eight.predicted, "%s", half.predicted ? eight.why_not : half.why_not);
  cr_expect_str_eq(eight.software, "megatron-bridge");
  double faster = half.estimate.compute_s / eight.estimate.compute_s;
  cr_expect(faster > 1.2 && faster < 1.9, "%g", faster);
  cr_expect(!blocks.predicted && strstr(blocks.why_not, "h100_sxm has no products in mxfp8"));
  zp_prediction scaled = predict_bridge("DGX-GB200", "MXFP8"), four = predict_bridge("DGX-GB200", "NVFP4");
  cr_assert(scaled.predicted && four.predicted);
  cr_expect(four.estimate.compute_s < 0.85 * scaled.estimate.compute_s);
  cr_expect(four.estimate.tensor_comm_s > scaled.estimate.tensor_comm_s, "alongside nothing");
}

/* Rates are those of Transformer Engine: other programs' products in 8 bits are not priced with them. */
Test(validate_tables, recipes_of_other_programs) {
  const char *text = zp_format(
      arena,
      "id,source,model,layers,hidden,heads,kv_heads,ffn,vocab,seq,gpu,gpus_per_node,intra_bw_GBps,n_gpus,tp,pp,dp,"
      "micro_batch,global_batch,precision,zero_stage,recompute,measured_iter_s\n"
      "f_a,pytorch/torchtitan,Llama,4,1024,16,4,4096,32000,512,H100-SXM5-80GB,8,450,8,1,1,8,1,8,fp8,3,full,1\n");
  zp_measured_table *t = read_table(text);
  zp_prediction p = zp_predict_run(arena, t, &t->runs.data[0], &(zp_run_library){.device = hopper_or_blackwell});
  cr_expect(!p.predicted && strstr(p.why_not, "products in fp8 are not priced for profile fsdp"), "%s", p.why_not);
}
