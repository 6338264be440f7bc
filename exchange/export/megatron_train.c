/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizer, learning rate, data, checkpoints and log as arguments of Megatron-LM. */
#include "megatron.h"

#define PUT(flag) zp_megatron_put(m, ZP_MEGATRON_##flag)
#define PUT_INT(flag, value) zp_megatron_put_int(m, ZP_MEGATRON_##flag, value)
#define PUT_REAL(flag, value) zp_megatron_put_real(m, ZP_MEGATRON_##flag, value)
#define PUT_TEXT(flag, value) zp_megatron_put_text(m, ZP_MEGATRON_##flag, value)

/* The flags of options, in the order of their rows. */
static void put_options(zp_megatron *m, const zp_optimizer *row) {
  static const struct {
    size_t at;
    zp_megatron_flag flag;
  } flags[] = {{offsetof(zp_train, momentum), ZP_MEGATRON_MOMENTUM},
               {offsetof(zp_train, beta1), ZP_MEGATRON_BETA1},
               {offsetof(zp_train, beta2), ZP_MEGATRON_BETA2},
               {offsetof(zp_train, eps), ZP_MEGATRON_ADAM_EPS}};
  for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
    if (zp_optimizer_takes(row, flags[i].at))
      zp_megatron_put_real(m, flags[i].flag, zp_setting_real(&m->e->spec->train, flags[i].at));
}

static void put_optimizer(zp_megatron *m) {
  const zp_train *t = &m->e->spec->train;
  const zp_optimizer *row = zp_optimizer_facts(t);
  if (!row->megatron) zp_export_refuse(m->e, "adamw", "%s: its settings for Megatron-LM are not written", row->name);
  if (t->weight_decay > 0 && row->is_adam && row->decay_in_gradient)
    zp_export_refuse(
        m->e, "`adamw` in place of `adam`, which is what Megatron-LM's `adam` is",
        "adam with weight_decay %g adds it to the gradients; Megatron-LM's adam shrinks the weights instead",
        t->weight_decay);
  if (t->groups.len > 0)
    zp_export_refuse(m->e, "no groups", "groups of parameters by name: Megatron-LM has no argument for them");
  if (t->weight_decay > 0 && t->decay_all)
    zp_export_refuse(m->e, "decay = \"matrices\"", "decay = \"all\": Megatron-LM leaves vectors out");
  if (row->megatron) PUT_TEXT(OPTIMIZER, row->megatron);
  put_options(m, row);
  PUT_REAL(WEIGHT_DECAY, t->weight_decay);
  PUT_REAL(CLIP, t->clip);
}

static void put_schedule(zp_megatron *m) {
  const zp_train *t = &m->e->spec->train;
  if (t->schedule == ZP_LR_RELATIVE) return; /* refused with its optimizer */
  static const char *const styles[] = {
      [ZP_LR_CONSTANT] = "constant", [ZP_LR_LINEAR] = "linear", [ZP_LR_COSINE] = "cosine", [ZP_LR_WSD] = "WSD"};
  int64_t end = t->schedule != ZP_LR_WSD && t->decay_steps > 0 ? t->decay_steps : t->steps;
  PUT_REAL(LR, t->lr);
  PUT_REAL(MIN_LR, t->min_lr);
  PUT_TEXT(LR_STYLE, styles[t->schedule]);
  PUT_INT(LR_ITERATIONS, end);
  PUT_INT(LR_WARMUP, t->warmup);
  if (t->schedule == ZP_LR_WSD) {
    PUT_TEXT(WSD_STYLE, "linear");
    PUT_INT(WSD_ITERATIONS, t->decay_steps > 0 ? t->decay_steps : t->steps / 10);
  }
  if (t->warmup >= end)
    zp_export_refuse(m->e, "a shorter warm-up",
                     "the warm-up of %lld steps does not end before step %lld, which "
                     "Megatron-LM asks for",
                     (long long)t->warmup, (long long)end);
  if (t->warmup > 0 || t->schedule != ZP_LR_CONSTANT)
    zp_export_note(m->e, "learning rates come one step later: Megatron-LM's first step has rate 0");
}

static void put_data(zp_megatron *m) {
  const zp_train *t = &m->e->spec->train;
  if (t->data.kind == ZP_DATA_SYNTHETIC) {
    PUT(MOCK_DATA);
    PUT_TEXT(TOKENIZER, "NullTokenizer");
  } else {
    zp_export_note(m->e,
                   "data: Megatron-LM reads files of its own (tools/preprocess_data.py), in another order of samples; "
                   "%s and a tokenizer with %lld tokens",
                   m->words->data, (long long)m->gpt->vocabulary);
  }
  PUT_INT(EVAL_ITERATIONS, t->validate_every > 0 ? t->validate_batches : 0);
  if (t->validate_every > 0) PUT_INT(EVAL_INTERVAL, t->validate_every);
}

static void put_checkpoints(zp_megatron *m) {
  const zp_train *t = &m->e->spec->train;
  if (!t->checkpoint_dir) return;
  PUT_TEXT(SAVE, t->checkpoint_dir);
  PUT_TEXT(LOAD, t->checkpoint_dir); /* nothing there: it starts anew */
  PUT(EXIT_SIGNAL);                  /* a checkpoint when SIGTERM comes, as from the script of `export slurm` */
  PUT_INT(SAVE_INTERVAL, t->checkpoint_every > 0 ? t->checkpoint_every : t->steps);
  if (t->checkpoint_keep > 0)
    zp_export_note(m->e, "checkpoints: all are kept, not the last %lld", (long long)t->checkpoint_keep);
}

void zp_megatron_train(zp_megatron *m) {
  const zp_train *t = &m->e->spec->train;
  zp_megatron_section(m, "training");
  PUT_INT(ITERATIONS, t->steps);
  put_optimizer(m);
  put_schedule(m);
  if (t->seed > INT32_MAX)
    zp_export_refuse(m->e, "--set seed=1", "seed %llu is beyond 32 bits", (unsigned long long)t->seed);
  else
    PUT_INT(SEED, t->seed > 0 ? (int64_t)t->seed : 1);
  if (t->seed == 0)
    zp_export_note(m->e, "seed 1 stands for 0, which Megatron-LM refuses; its random numbers are others anyway");
  put_data(m);
  put_checkpoints(m);
  PUT_INT(LOG_INTERVAL, t->log_every > 0 ? t->log_every : 1);
}
