/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the import of launches of Megatron-LM: the flags that were given, by the table that exports write from. */
#ifndef ZPLAN_IMPORT_MEGATRON_H
#define ZPLAN_IMPORT_MEGATRON_H

#include "launch.h"
#include "shell.h"
#include <zplan/megatron_flags.h>

/* Flags that no export writes, and that decide the model, the batch or the plan: as ZP_MEGATRON_FLAGS. */
#define MEGATRON_READ(X)                                                                                               \
  X(CHUNK_LAYERS, "--num-layers-per-virtual-pipeline-stage", INT, "training/arguments.py")                             \
  X(CHUNKS, "--num-virtual-stages-per-pipeline-rank", INT, "training/arguments.py")                                    \
  X(FIRST_LAYERS, "--decoder-first-pipeline-num-layers", INT, "training/arguments.py")                                 \
  X(LAST_LAYERS, "--decoder-last-pipeline-num-layers", INT, "training/arguments.py")                                   \
  X(COUNT_EMBEDDING, "--account-for-embedding-in-pipeline-split", NONE, "core/transformer/transformer_config.py")      \
  X(COUNT_LOSS, "--account-for-loss-in-pipeline-split", NONE, "core/transformer/transformer_config.py")                \
  X(TORCH_FSDP, "--use-torch-fsdp2", NONE, "training/config/common_config.py")                                         \
  X(SAMPLES, "--train-samples", INT, "training/config/training_config.py")                                             \
  X(DECAY_SAMPLES, "--lr-decay-samples", INT, "training/config/training_config.py")                                    \
  X(WARMUP_SAMPLES, "--lr-warmup-samples", INT, "training/config/training_config.py")                                  \
  X(WARMUP_FRACTION, "--lr-warmup-fraction", REAL, "training/config/training_config.py")                               \
  X(STEP_BATCH, "--step-batch-size-schedule", TEXT, "training/config/training_config.py")                              \
  X(RAMPUP, "--rampup-batch-size", TEXT, "training/config/training_config.py")                                         \
  X(ENCODER_LAYERS, "--encoder-num-layers", INT, "training/arguments.py")                                              \
  X(ENCODER_LENGTH, "--encoder-seq-length", INT, "training/arguments.py")                                              \
  X(MOE_FFN, "--moe-ffn-hidden-size", INT, "core/transformer/transformer_config.py")                                   \
  X(SHARED_FFN, "--moe-shared-expert-intermediate-size", INT, "core/transformer/transformer_config.py")                \
  X(SCORE, "--moe-router-score-function", TEXT, "core/transformer/transformer_config.py")                              \
  X(QK_NORM, "--qk-layernorm", NONE, "core/transformer/transformer_config.py")                                         \
  X(SQUARED_RELU, "--squared-relu", NONE, "training/arguments.py")                                                     \
  X(ROTARY_OLD, "--use-rotary-position-embeddings", NONE, "training/arguments.py")                                     \
  X(NO_POSITIONS, "--no-position-embedding", NONE, "training/arguments.py")                                            \
  X(PADDED, "--padded-vocab-size", INT, "training/config/training_config.py")                                          \
  X(NO_PADDING, "--no-pad-vocab-size", NONE, "training/config/training_config.py")                                     \
  X(TABLE_STD, "--embedding-init-method-std", REAL, "core/transformer/transformer_config.py")                          \
  X(RECOMPUTE_OLD, "--recompute-activations", NONE, "training/arguments.py")

typedef enum megatron_flag {
#define MEGATRON_WRITTEN_ID(id, flag, takes, file) F_##id = ZP_MEGATRON_##id,
  ZP_MEGATRON_FLAGS(MEGATRON_WRITTEN_ID)
#undef MEGATRON_WRITTEN_ID
#define MEGATRON_READ_ID(id, flag, takes, file) F_##id,
      MEGATRON_READ(MEGATRON_READ_ID)
#undef MEGATRON_READ_ID
          MEGATRON_FLAG_COUNT
} megatron_flag;

/* A flag as it was given. */
typedef struct megatron_given {
  bool is;
  zp_span at;       /* of the flag and its values */
  const char *text; /* its values, blanks between them; "" */
  int64_t whole;
  double real;
} megatron_given;

typedef struct megatron {
  launch *l;
  megatron_given given[MEGATRON_FLAG_COUNT];
} megatron;

/* ---- megatron_words.c ---- */
/* Words into flags: every word is a flag of the tables with its values, or is reported. `over`: these replace flags
 * that were given before. */
void megatron_take(megatron *m, const shell_words *words, bool over);
const char *megatron_name(megatron_flag flag);
bool megatron_has(const megatron *m, megatron_flag flag);
int64_t megatron_int(const megatron *m, megatron_flag flag, int64_t missing);
double megatron_real(const megatron *m, megatron_flag flag, double missing);
const char *megatron_text(const megatron *m, megatron_flag flag, const char *missing);
/* "--num-layers 96", or where it is missing "--num-layers, by default". Arena. */
const char *megatron_from(const megatron *m, megatron_flag flag);
/* Both were given, and say what cannot be together. */
void megatron_clash(megatron *m, megatron_flag a, megatron_flag b, const char *why);

/* ---- megatron_model.c, megatron_plan.c, megatron_train.c ---- */
void megatron_model(megatron *m);
void megatron_plan(megatron *m);
void megatron_train(megatron *m);

/* ---- megatron_cut.c ---- */
/* The chunks of --pipeline-model-parallel-layout, and the layers of each; -1: it is none. */
int64_t megatron_layout(zp_arena *arena, const char *text, const int64_t **layers);
/* Pins the layers of every stage, of several chunks a stage of every chunk of the model. */
void megatron_pin_cut(megatron *m, int64_t pipeline, int64_t chunks);

#endif
