/* SPDX-License-Identifier: Apache-2.0 */
/* The arguments of Megatron-LM that an export writes and an import reads, one table: name, what follows it, and the
 * file of Megatron-LM that declares it (below megatron/). Names that are made from fields of data classes stand under
 * the field's file.
 *
 * Read in NVIDIA/Megatron-LM at commit d98e8a64 of 22 August 2026, which calls itself core 0.20.0. */
#ifndef ZPLAN_MEGATRON_FLAGS_H
#define ZPLAN_MEGATRON_FLAGS_H

#define ZP_MEGATRON_VERSION "core 0.20.0, commit d98e8a64"

/* X(identifier, flag, takes: NONE, INT, REAL or TEXT, declared in) */
#define ZP_MEGATRON_FLAGS(X)                                                                                           \
  X(TENSOR, "--tensor-model-parallel-size", INT, "core/model_parallel_config.py")                                      \
  X(PIPELINE, "--pipeline-model-parallel-size", INT, "core/model_parallel_config.py")                                  \
  X(LAYOUT, "--pipeline-model-parallel-layout", TEXT, "training/arguments.py")                                         \
  X(GROUP, "--microbatch-group-size-per-virtual-pipeline-stage", INT, "core/model_parallel_config.py")                 \
  X(SEQUENCE_PARALLEL, "--sequence-parallel", NONE, "core/model_parallel_config.py")                                   \
  X(CONTEXT, "--context-parallel-size", INT, "core/model_parallel_config.py")                                          \
  X(CONTEXT_COMM, "--cp-comm-type", TEXT, "core/transformer/transformer_config.py")                                    \
  X(EXPERT, "--expert-model-parallel-size", INT, "core/model_parallel_config.py")                                      \
  X(EXPERT_TENSOR, "--expert-tensor-parallel-size", INT, "core/model_parallel_config.py")                              \
  X(TPD, "--use-tp-pp-dp-mapping", NONE, "training/config/common_config.py")                                           \
  X(MICRO, "--micro-batch-size", INT, "training/config/training_config.py")                                            \
  X(GLOBAL, "--global-batch-size", INT, "training/config/training_config.py")                                          \
  X(DISTRIBUTED, "--use-distributed-optimizer", NONE, "training/arguments.py")                                         \
  X(INSTANCES, "--num-distributed-optimizer-instances", INT, "training/arguments.py")                                  \
  X(OVERLAP_GRAD, "--overlap-grad-reduce", NONE, "training/arguments.py")                                              \
  X(OVERLAP_PARAM, "--overlap-param-gather", NONE, "training/arguments.py")                                            \
  X(FSDP, "--use-megatron-fsdp", NONE, "training/config/common_config.py")                                             \
  X(SHARDING, "--data-parallel-sharding-strategy", TEXT, "training/arguments.py")                                      \
  X(CKPT_FORMAT, "--ckpt-format", TEXT, "training/config/training_config.py")                                          \
  X(META_DEVICE, "--init-model-with-meta-device", NONE, "core/transformer/transformer_config.py")                      \
  X(NO_FUSED_ACCUMULATION, "--no-gradient-accumulation-fusion", NONE, "training/arguments.py")                         \
  X(RECOMPUTE, "--recompute-granularity", TEXT, "core/transformer/transformer_config.py")                              \
  X(RECOMPUTE_METHOD, "--recompute-method", TEXT, "core/transformer/transformer_config.py")                            \
  X(RECOMPUTE_LAYERS, "--recompute-num-layers", INT, "core/transformer/transformer_config.py")                         \
  X(RECOMPUTE_MODULES, "--recompute-modules", TEXT, "core/transformer/transformer_config.py")                          \
  X(DISTRIBUTE_SAVED, "--distribute-saved-activations", NONE, "core/transformer/transformer_config.py")                \
  X(OPTIMIZER_OFFLOAD, "--optimizer-cpu-offload", NONE, "training/arguments.py")                                       \
  X(OFFLOAD_FRACTION, "--optimizer-offload-fraction", REAL, "training/arguments.py")                                   \
  X(SAVED_OFFLOAD, "--cpu-offloading-num-layers", INT, "core/model_parallel_config.py")                                \
  X(PRECISION_AWARE, "--use-precision-aware-optimizer", NONE, "training/arguments.py")                                 \
  X(BF16, "--bf16", NONE, "core/model_parallel_config.py")                                                             \
  X(FP8, "--fp8-format", TEXT, "core/transformer/transformer_config.py")                                               \
  X(FP8_RECIPE, "--fp8-recipe", TEXT, "core/transformer/transformer_config.py")                                        \
  X(FP4, "--fp4-format", TEXT, "core/transformer/transformer_config.py")                                               \
  X(FP4_RECIPE, "--fp4-recipe", TEXT, "core/transformer/transformer_config.py")                                        \
  X(FP8_WEIGHTS, "--fp8-param-gather", NONE, "training/arguments.py")                                                  \
  X(FP4_WEIGHTS, "--fp4-param-gather", NONE, "training/arguments.py")                                                  \
  X(MXFP8_REUSE, "--reuse-grad-buf-for-mxfp8-param-ag", NONE, "core/optimizer/optimizer_config.py")                    \
  X(FP16, "--fp16", NONE, "core/model_parallel_config.py")                                                             \
  X(LOSS_SCALE, "--loss-scale", INT, "training/arguments.py")                                                          \
  X(INITIAL_SCALE, "--initial-loss-scale", INT, "training/arguments.py")                                               \
  X(MIN_SCALE, "--min-loss-scale", INT, "training/arguments.py")                                                       \
  X(SCALE_WINDOW, "--loss-scale-window", INT, "training/arguments.py")                                                 \
  X(HYSTERESIS, "--hysteresis", INT, "training/arguments.py")                                                          \
  X(SUM_FP32, "--accumulate-allreduce-grads-in-fp32", NONE, "training/arguments.py")                                   \
  X(REDUCE_BF16, "--grad-reduce-in-bf16", NONE, "training/arguments.py")                                               \
  X(IMPLEMENTATION, "--transformer-impl", TEXT, "core/transformer/transformer_config.py")                              \
  X(LAYERS, "--num-layers", INT, "core/transformer/transformer_config.py")                                             \
  X(HIDDEN, "--hidden-size", INT, "core/transformer/transformer_config.py")                                            \
  X(FFN, "--ffn-hidden-size", INT, "core/transformer/transformer_config.py")                                           \
  X(HEADS, "--num-attention-heads", INT, "core/transformer/transformer_config.py")                                     \
  X(GQA, "--group-query-attention", NONE, "training/arguments.py")                                                     \
  X(KV_GROUPS, "--num-query-groups", INT, "core/transformer/transformer_config.py")                                    \
  X(KV_CHANNELS, "--kv-channels", INT, "core/transformer/transformer_config.py")                                       \
  X(SEQ_LENGTH, "--seq-length", INT, "training/arguments.py")                                                          \
  X(MAX_POSITIONS, "--max-position-embeddings", INT, "training/arguments.py")                                          \
  X(VOCABULARY, "--vocab-size", INT, "training/config/training_config.py")                                             \
  X(VOCABULARY_MULTIPLE, "--make-vocab-size-divisible-by", INT, "training/arguments.py")                               \
  X(POSITIONS, "--position-embedding-type", TEXT, "training/arguments.py")                                             \
  X(ROTARY_BASE, "--rotary-base", INT, "training/arguments.py")                                                        \
  X(ROTARY_INTERLEAVED, "--rotary-interleaved", NONE, "core/transformer/transformer_config.py")                        \
  X(NORM, "--normalization", TEXT, "core/transformer/transformer_config.py")                                           \
  X(NORM_EPS, "--norm-epsilon", REAL, "core/transformer/transformer_config.py")                                        \
  X(SWIGLU, "--swiglu", NONE, "training/arguments.py")                                                                 \
  X(NO_GELU_FUSION, "--no-bias-gelu-fusion", NONE, "training/arguments.py")                                            \
  X(NO_BIAS, "--disable-bias-linear", NONE, "core/transformer/transformer_config.py")                                  \
  X(QKV_BIAS, "--add-qkv-bias", NONE, "core/transformer/transformer_config.py")                                        \
  X(UNTIED, "--untie-embeddings-and-output-weights", NONE, "training/arguments.py")                                    \
  X(HIDDEN_DROPOUT, "--hidden-dropout", REAL, "core/transformer/transformer_config.py")                                \
  X(ATTENTION_DROPOUT, "--attention-dropout", REAL, "core/transformer/transformer_config.py")                          \
  X(INIT_STD, "--init-method-std", REAL, "core/transformer/transformer_config.py")                                     \
  X(EXPERTS, "--num-experts", INT, "training/arguments.py")                                                            \
  X(TOP_K, "--moe-router-topk", INT, "core/transformer/transformer_config.py")                                         \
  X(PRE_SOFTMAX, "--moe-router-pre-softmax", NONE, "core/transformer/transformer_config.py")                           \
  X(BALANCING, "--moe-router-load-balancing-type", TEXT, "training/arguments.py")                                      \
  X(BALANCE, "--moe-aux-loss-coeff", REAL, "training/arguments.py")                                                    \
  X(CAPACITY, "--moe-expert-capacity-factor", REAL, "core/transformer/transformer_config.py")                          \
  X(PAD_CAPACITY, "--moe-pad-expert-input-to-capacity", NONE, "core/transformer/transformer_config.py")                \
  X(DROP_POLICY, "--moe-token-drop-policy", TEXT, "core/transformer/transformer_config.py")                            \
  X(DISPATCHER, "--moe-token-dispatcher-type", TEXT, "core/transformer/transformer_config.py")                         \
  X(DISPATCHER_BACKEND, "--moe-flex-dispatcher-backend", TEXT, "core/transformer/transformer_config.py")               \
  X(GROUPED_GEMM, "--moe-grouped-gemm", NONE, "core/transformer/transformer_config.py")                                \
  X(ITERATIONS, "--train-iters", INT, "training/config/training_config.py")                                            \
  X(OPTIMIZER, "--optimizer", TEXT, "training/arguments.py")                                                           \
  X(LR, "--lr", REAL, "training/arguments.py")                                                                         \
  X(MIN_LR, "--min-lr", REAL, "training/arguments.py")                                                                 \
  X(LR_STYLE, "--lr-decay-style", TEXT, "training/config/training_config.py")                                          \
  X(LR_ITERATIONS, "--lr-decay-iters", INT, "training/config/training_config.py")                                      \
  X(LR_WARMUP, "--lr-warmup-iters", INT, "training/config/training_config.py")                                         \
  X(WSD_STYLE, "--lr-wsd-decay-style", TEXT, "training/config/training_config.py")                                     \
  X(WSD_ITERATIONS, "--lr-wsd-decay-iters", INT, "training/config/training_config.py")                                 \
  X(WEIGHT_DECAY, "--weight-decay", REAL, "training/arguments.py")                                                     \
  X(CLIP, "--clip-grad", REAL, "training/arguments.py")                                                                \
  X(BETA1, "--adam-beta1", REAL, "training/arguments.py")                                                              \
  X(BETA2, "--adam-beta2", REAL, "training/arguments.py")                                                              \
  X(ADAM_EPS, "--adam-eps", REAL, "training/arguments.py")                                                             \
  X(MOMENTUM, "--sgd-momentum", REAL, "training/arguments.py")                                                         \
  X(SEED, "--seed", INT, "training/config/common_config.py")                                                           \
  X(EVAL_ITERATIONS, "--eval-iters", INT, "training/config/training_config.py")                                        \
  X(EVAL_INTERVAL, "--eval-interval", INT, "training/config/training_config.py")                                       \
  X(SAVE, "--save", TEXT, "training/config/training_config.py")                                                        \
  X(LOAD, "--load", TEXT, "training/config/training_config.py")                                                        \
  X(EXIT_SIGNAL, "--exit-signal-handler", NONE, "training/config/training_config.py")                                  \
  X(SAVE_INTERVAL, "--save-interval", INT, "training/config/training_config.py")                                       \
  X(LOG_INTERVAL, "--log-interval", INT, "training/config/training_config.py")                                         \
  X(MOCK_DATA, "--mock-data", NONE, "training/arguments.py")                                                           \
  X(TOKENIZER, "--tokenizer-type", TEXT, "training/config/training_config.py")

typedef enum zp_megatron_flag {
#define ZP_MEGATRON_ID(id, flag, takes, file) ZP_MEGATRON_##id,
  ZP_MEGATRON_FLAGS(ZP_MEGATRON_ID)
#undef ZP_MEGATRON_ID
} zp_megatron_flag;

#endif
