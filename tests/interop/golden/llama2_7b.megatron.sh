# llama on 8 x h100_sxm, for Megatron-LM (core 0.20.0, commit d98e8a64); made by zplan export megatron.
# tensor 2 x pipeline 2 x data 2 = 8 ranks, ZeRO 1, micro-batch 1, recompute none.
# zplan's estimates, for Megatron-LM (profile megatron-core): 12.1 s a step, at most 31.9 GB on a device.
#
#   source llama2_7b.sh
#   torchrun ... pretrain_gpt.py "${MEGATRON_ARGS[@]}"
#
# What differs from the plan:
# - initial values: tables start with a deviation of 0.02, matrices that end a branch of a layer with 0.0025; in the
#   plan's model with 0.02 and 0.02.
# - learning rates come one step later: Megatron-LM's first step has rate 0.
# - seed 1 stands for 0, which Megatron-LM refuses; its random numbers are others anyway.

export CUDA_DEVICE_MAX_CONNECTIONS=1 # Megatron-LM requires it where tensors are split, before Blackwell

MEGATRON_ARGS=(
  # 8 ranks
  --tensor-model-parallel-size 2
  --pipeline-model-parallel-size 2
  --pipeline-model-parallel-layout 'Et*16|t*16L'
  --sequence-parallel
  --use-tp-pp-dp-mapping
  --micro-batch-size 1
  --global-batch-size 256

  # memory
  --use-distributed-optimizer
  --overlap-grad-reduce
  --overlap-param-gather

  # llama
  --num-layers 32
  --hidden-size 4096
  --ffn-hidden-size 11008
  --num-attention-heads 32
  --seq-length 4096
  --max-position-embeddings 4096
  --position-embedding-type rope
  --rotary-base 10000
  --vocab-size 32000
  --make-vocab-size-divisible-by 128
  --normalization RMSNorm
  --norm-epsilon 1e-05
  --swiglu
  --disable-bias-linear
  --untie-embeddings-and-output-weights
  --hidden-dropout 0
  --attention-dropout 0
  --init-method-std 0.02
  --bf16

  # training
  --train-iters 10000
  --optimizer adam
  --adam-beta1 0.9
  --adam-beta2 0.95
  --adam-eps 1e-08
  --weight-decay 0.1
  --clip-grad 1
  --lr 0.0003
  --min-lr 3e-05
  --lr-decay-style cosine
  --lr-decay-iters 10000
  --lr-warmup-iters 500
  --seed 1
  --mock-data
  --tokenizer-type NullTokenizer
  --eval-iters 0
  --log-interval 1
)
