/* SPDX-License-Identifier: Apache-2.0 */
/* Precision, optimizer, learning rate and checkpoints as arguments of torchtitan (components/). */
#include "torchtitan.h"

#define OPTIMIZER "optimizer.param_groups.0.optimizer_kwargs."

static void put_precision(zp_titan *t) {
  const zp_train *train = &t->e->spec->train;
  if (train->precision != ZP_PREC_F32 && train->precision != ZP_PREC_MIXED_BF16) {
    zp_export_refuse(t->e, "--set precision=mixed_bf16", "precision %s: torchtitan's arguments have fp32 and bf16",
                     zp_precision_name(train->precision));
    return;
  }
  zp_titan_put_text(t, "training.mixed_precision_param", train->precision == ZP_PREC_F32 ? "float32" : "bfloat16");
  if (zp_is_mixed(train) && zp_export_grad_bytes(t->e) == 2)
    zp_export_note(t->e, "gradients are summed in fp32, in the plan in 16 bits: that takes more memory and time");
}

static void put_optimizer(zp_titan *t) {
  zp_exporter *e = t->e;
  const zp_train *train = &e->spec->train;
  const zp_optimizer *row = zp_optimizer_facts(train);
  if (!row->is_adam) {
    zp_export_refuse(e, "adamw", "%s: its settings for torchtitan are not written", row->name);
    return;
  }
  if (train->groups.len > 0)
    zp_export_refuse(e, "no groups", "groups of parameters: torchtitan's arguments change one group, they add none");
  if (train->weight_decay > 0 && !train->decay_all)
    zp_export_note(e, "weight decay is for matrices alone in the plan; torchtitan's arguments have one group of "
                      "parameters, so that norms decay, too: `decay = \"all\"` is that");
  zp_titan_put_text(t, "optimizer.param_groups.0.optimizer_name", row->decay_in_gradient ? "Adam" : "AdamW");
  zp_titan_put_real(t, OPTIMIZER "lr", train->lr);
  zp_buf_printf(&t->out, "  --" OPTIMIZER "betas %s %s\n", zp_export_number(e->arena, train->beta1),
                zp_export_number(e->arena, train->beta2));
  zp_titan_put_real(t, OPTIMIZER "eps", train->eps);
  zp_titan_put_real(t, OPTIMIZER "weight_decay", train->weight_decay);
  enum { NO_CLIP = 1000000000 }; /* 0 would make every gradient 0 */
  zp_titan_put_real(t, "training.max_norm", train->clip > 0 ? train->clip : NO_CLIP);
}

/* zplan's rates to the step (runtime/schedule.c): the warm-up counts from 1, the fall begins after it or, of a stable
 * rate, before the end. */
static void put_schedule(zp_titan *t) {
  const zp_train *train = &t->e->spec->train;
  if (train->schedule == ZP_LR_RELATIVE) return; /* refused with its optimizer */
  zp_titan_put_int(t, "lr_scheduler.warmup_steps", train->warmup);
  if (train->schedule == ZP_LR_CONSTANT) zp_titan_put_real(t, "lr_scheduler.decay_ratio", 0);
  if (train->schedule == ZP_LR_WSD) {
    int64_t fall = train->decay_steps > 0 ? train->decay_steps : train->steps / 10;
    zp_titan_put_real(t, "lr_scheduler.decay_ratio", (double)fall / (double)train->steps);
  }
  zp_titan_put_text(t, "lr_scheduler.decay_type", train->schedule == ZP_LR_COSINE ? "cosine" : "linear");
  zp_titan_put_real(t, "lr_scheduler.min_lr_factor", train->lr > 0 ? train->min_lr / train->lr : 0);
}

static void put_checkpoints(zp_titan *t) {
  const zp_train *train = &t->e->spec->train;
  if (!train->checkpoint_dir) return;
  zp_titan_put(t, "checkpoint.enable");
  zp_titan_put_text(t, "checkpoint.folder", train->checkpoint_dir);
  zp_titan_put_int(t, "checkpoint.interval", train->checkpoint_every > 0 ? train->checkpoint_every : train->steps);
  if (train->checkpoint_keep != 1) /* trainer: at least two; 0 keeps all */
    zp_titan_put_int(t, "checkpoint.keep_latest_k", train->checkpoint_keep);
  else
    zp_export_note(t->e, "checkpoints: the last 10 are kept; torchtitan cannot keep one alone");
}

void zp_titan_train(zp_titan *t) {
  const zp_train *train = &t->e->spec->train;
  zp_titan_section(t, "training");
  zp_titan_put_int(t, "training.steps", train->steps);
  put_precision(t);
  put_optimizer(t);
  put_schedule(t);
  if (train->seed > INT64_MAX)
    zp_export_refuse(t->e, "--set seed=1", "seed %llu is beyond 63 bits", (unsigned long long)train->seed);
  else
    zp_titan_put_int(t, "debug.seed", (int64_t)train->seed);
  put_checkpoints(t);
  zp_titan_put_int(t, "metrics.log_freq", train->log_every > 0 ? train->log_every : 1);
  zp_export_note(t->e,
                 "data: torchtitan reads data sets of Hugging Face; give --dataloader.dataset and "
                 "--hf_assets_path with a tokenizer of %lld tokens",
                 (long long)t->gpt->vocabulary);
  if (train->validate_every > 0)
    zp_export_note(t->e, "validation is not written: --validator.enable and its data set are to be given");
}
