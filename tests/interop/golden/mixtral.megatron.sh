# mixtral on 64 x h100_sxm, for Megatron-LM (core 0.20.0, commit d98e8a64); made by zplan export megatron.
# tensor 1 x pipeline 4 x data 16 = 64 ranks, ZeRO 1, micro-batch 1, expert 8, recompute selective.
# zplan's estimates, for Megatron-LM (profile megatron-core): 14.5 s a step, at most 63.9 GB on a device.
#
#   source mixtral_8x7b.sh
#   torchrun ... pretrain_gpt.py "${MEGATRON_ARGS[@]}"
#
# What differs from the plan:
# - initial values: tables start with a deviation of 0.02, matrices that end a branch of a layer with 0.0025; in the
#   plan's model with 0.02 and 0.02.
# - learning rates come one step later: Megatron-LM's first step has rate 0.
# - seed 1 stands for 0, which Megatron-LM refuses; its random numbers are others anyway.

MEGATRON_ARGS=(
  # 64 ranks
  --tensor-model-parallel-size 1
  --pipeline-model-parallel-size 4
  --pipeline-model-parallel-layout 'Et*8|(t*8|)*2t*8L'
  --micro-batch-size 1
  --global-batch-size 1024

  # memory
  --use-distributed-optimizer
  --overlap-grad-reduce
  --overlap-param-gather
  --recompute-granularity selective
  --recompute-modules layernorm moe_act

  # mixtral
  --num-layers 32
  --hidden-size 4096
  --ffn-hidden-size 14336
  --num-attention-heads 32
  --group-query-attention
  --num-query-groups 8
  --seq-length 4096
  --max-position-embeddings 4096
  --position-embedding-type rope
  --rotary-base 1000000
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

  # experts
  --num-experts 8
  --moe-router-topk 2
  --expert-model-parallel-size 8
  --expert-tensor-parallel-size 1
  --moe-token-dispatcher-type alltoall
  --moe-router-load-balancing-type seq_aux_loss
  --moe-aux-loss-coeff 0.02
  --moe-expert-capacity-factor 1.25
  --moe-pad-expert-input-to-capacity
  --moe-token-drop-policy position
  --moe-grouped-gemm

  # training
  --train-iters 10000
  --optimizer adam
  --adam-beta1 0.9
  --adam-beta2 0.95
  --adam-eps 1e-08
  --weight-decay 0.1
  --clip-grad 1
  --lr 0.0001
  --min-lr 1e-05
  --lr-decay-style cosine
  --lr-decay-iters 10000
  --lr-warmup-iters 500
  --seed 1
  --mock-data
  --tokenizer-type NullTokenizer
  --eval-iters 0
  --log-interval 1
)
