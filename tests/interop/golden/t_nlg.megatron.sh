# gpt_t_nlg_17b on 256 x v100_sxm3_32, for Megatron-LM (core 0.20.0, commit d98e8a64); made by zplan export megatron.
# tensor 4 x pipeline 1 x data 64 = 256 ranks, ZeRO 1, micro-batch 2, recompute full.
# zplan's estimates, for Megatron-LM (profile megatron-core): 4.17 s a step, at most 28.9 GB on a device.
#
#   source t_nlg_17b.sh
#   torchrun ... pretrain_gpt.py "${MEGATRON_ARGS[@]}" --data-path ... --tokenizer-type ...
#
# What differs from the plan:
# - initial values: tables start with a deviation of 0.02, matrices that end a branch of a layer with 0.001601; in the
#   plan's model with 0.006 and 0.0004804.
# - device v100_sxm3_32 has no bf16, so no Transformer Engine is asked for: --transformer-impl local.
# - seed 1 stands for 0, which Megatron-LM refuses; its random numbers are others anyway.
# - data: Megatron-LM reads files of its own (tools/preprocess_data.py), in another order of samples; give --data-path
#   and a tokenizer with 51200 tokens.

export CUDA_DEVICE_MAX_CONNECTIONS=1 # Megatron-LM requires it where tensors are split, before Blackwell

MEGATRON_ARGS=(
  # 256 ranks
  --tensor-model-parallel-size 4
  --pipeline-model-parallel-size 1
  --sequence-parallel
  --micro-batch-size 2
  --global-batch-size 512

  # memory
  --use-distributed-optimizer
  --overlap-grad-reduce
  --overlap-param-gather
  --recompute-granularity full
  --recompute-method uniform
  --recompute-num-layers 1

  # gpt_t_nlg_17b
  --num-layers 78
  --hidden-size 4256
  --ffn-hidden-size 17024
  --num-attention-heads 28
  --seq-length 1024
  --max-position-embeddings 1024
  --position-embedding-type learned_absolute
  --vocab-size 51200
  --make-vocab-size-divisible-by 128
  --normalization LayerNorm
  --norm-epsilon 1e-05
  --hidden-dropout 0
  --attention-dropout 0
  --init-method-std 0.02
  --fp16
  --accumulate-allreduce-grads-in-fp32
  --initial-loss-scale 65536
  --min-loss-scale 1
  --loss-scale-window 2000
  --hysteresis 1
  --transformer-impl local

  # training
  --train-iters 1000
  --optimizer adam
  --adam-beta1 0.9
  --adam-beta2 0.999
  --adam-eps 1e-08
  --weight-decay 0.1
  --clip-grad 0
  --lr 0.0001
  --min-lr 0
  --lr-decay-style constant
  --lr-decay-iters 1000
  --lr-warmup-iters 0
  --seed 1
  --eval-iters 0
  --log-interval 1
)
