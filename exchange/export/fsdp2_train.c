/* SPDX-License-Identifier: Apache-2.0 */
/* Precision, optimizer, learning rate and data as constants of the script. */
#include "fsdp2.h"

static void put_precision(zp_fsdp2 *f) {
  const zp_train *t = &f->e->spec->train;
  if (t->precision != ZP_PREC_F32 && t->precision != ZP_PREC_MIXED_BF16)
    zp_export_refuse(f->e, "--set precision=mixed_bf16", "precision %s: the script has fp32 and mixed_bf16",
                     zp_precision_name(t->precision));
  zp_fsdp2_put_text(f, "PRECISION", zp_precision_name(t->precision));
  if (zp_is_mixed(t) && zp_export_grad_bytes(f->e) == 2)
    zp_export_note(f->e, "gradients are summed in fp32, in the plan in 16 bits: that takes more memory and time");
}

static void put_optimizer(zp_fsdp2 *f) {
  zp_exporter *e = f->e;
  const zp_train *t = &e->spec->train;
  const zp_optimizer *row = zp_optimizer_facts(t);
  if (!row->is_adam) {
    zp_export_refuse(e, "adamw", "%s: the script has Adam and AdamW", row->name);
    return;
  }
  if (t->groups.len > 0)
    zp_export_refuse(e, "no groups", "groups of parameters: the script has those with and without weight decay");
  zp_fsdp2_put_text(f, "OPTIMIZER", row->decay_in_gradient ? "Adam" : "AdamW");
  zp_fsdp2_put_real(f, "LR", t->lr);
  zp_fsdp2_put_words(
      f, "BETAS",
      zp_format(e->arena, "(%s, %s)", zp_export_number(e->arena, t->beta1), zp_export_number(e->arena, t->beta2)));
  zp_fsdp2_put_real(f, "EPS", t->eps);
  zp_fsdp2_put_real(f, "WEIGHT_DECAY", t->weight_decay);
  zp_fsdp2_put_flag(f, "DECAY_ALL", t->decay_all);
  zp_fsdp2_put_real(f, "CLIP", t->clip); /* 0: none */
}

/* zplan's rates to the step (runtime/schedule.c): after the warm-up a fall from one step to another, which of a stable
 * rate ends with the run. */
static void put_schedule(zp_fsdp2 *f) {
  const zp_train *t = &f->e->spec->train;
  static const char *const words[] = {
      [ZP_LR_CONSTANT] = "constant", [ZP_LR_LINEAR] = "linear", [ZP_LR_COSINE] = "cosine", [ZP_LR_WSD] = "linear"};
  if (t->schedule == ZP_LR_RELATIVE) return; /* refused with its optimizer */
  int64_t begin = t->warmup, end = t->decay_steps > 0 ? t->decay_steps : t->steps;
  if (t->schedule == ZP_LR_WSD) {
    int64_t length = t->decay_steps > 0 ? t->decay_steps : t->steps / 10;
    end = t->steps;
    if (end - length > begin) begin = end - length;
  }
  zp_fsdp2_put_int(f, "STEPS", t->steps);
  zp_fsdp2_put_text(f, "SCHEDULE", words[t->schedule]);
  zp_fsdp2_put_int(f, "WARMUP", t->warmup);
  zp_fsdp2_put_words(f, "FALL_BEGIN, FALL_END", zp_format(f->e->arena, "%lld, %lld", (long long)begin, (long long)end));
  zp_fsdp2_put_real(f, "MIN_LR", t->min_lr);
}

/* NULL: the script reads it. */
static const char *foreign_data(const zp_data *data) {
  if (data->kind == ZP_DATA_LINES) return "lines(...)";
  if (data->kind == ZP_DATA_ARRAYS) return "arrays(...)";
  if (data->kind == ZP_DATA_DOCUMENTS) return "documents(...)";
  if (data->kind == ZP_DATA_MIX) return "a mixture";
  if (data->mask_rate > 0) return "masked(...)";
  if (data->spans.rate > 0) return "spans(...)";
  return data->shuffled ? "order = \"shuffled\"" : NULL;
}

static void put_data(zp_fsdp2 *f) {
  const zp_data *data = &f->e->spec->train.data;
  const char *foreign = foreign_data(data), *path = data->written ? data->written : data->path;
  if (foreign)
    zp_export_refuse(f->e, "tokens(\"FILES\") or text(\"FILE\"), sequential",
                     "data %s: the script reads texts and token files in their order", foreign);
  bool named = (data->kind == ZP_DATA_TOKENS || data->kind == ZP_DATA_TEXT) && path;
  if (named)
    zp_fsdp2_put_text(f, "DATA", path);
  else
    zp_fsdp2_put_words(f, "DATA", "None");
  if (!named && !foreign) zp_export_note(f->e, "data: the plan names none; give --data with token files");
  zp_fsdp2_put_flag(f, "DATA_IS_TEXT", data->kind == ZP_DATA_TEXT);
}

/* What happens alongside the training. */
static void note_others(zp_exporter *e) {
  const zp_train *t = &e->spec->train;
  if (t->init.path)
    zp_export_note(e, "the plan begins with weights of \"%s\": give --weights with a checkpoint of zplan that has them",
                   t->init.path);
  if (t->checkpoint_dir)
    zp_export_note(e, "checkpoints: --save writes the weights at the end, without the optimizer's state");
  if (t->validate_every > 0) zp_export_note(e, "validation is not written");
}

void zp_fsdp2_train(zp_fsdp2 *f) {
  const zp_train *t = &f->e->spec->train;
  put_precision(f);
  put_optimizer(f);
  put_schedule(f);
  put_data(f);
  if (t->seed > INT64_MAX / 2) /* ranks add theirs */
    zp_export_refuse(f->e, "--set seed=1", "seed %llu is beyond 62 bits", (unsigned long long)t->seed);
  else
    zp_fsdp2_put_int(f, "SEED", (int64_t)t->seed);
  zp_fsdp2_put_int(f, "LOG_EVERY", t->log_every > 0 ? t->log_every : 1);
  note_others(f->e);
}
