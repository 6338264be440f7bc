# gpt2 on 8 x h100_sxm, for Megatron-LM (core 0.20.0, commit d98e8a64); made by zplan export megatron.
# tensor 1 x pipeline 1 x data 8 = 8 ranks, ZeRO 2, micro-batch 32, recompute none.
# zplan's estimates, for Megatron-LM (profile megatron-core): 114 ms a step, at most 15.8 GB on a device.
#
#   source gpt2.sh
#   torchrun ... pretrain_gpt.py "${MEGATRON_ARGS[@]}"
#
# What differs from the plan:
# - learning rates come one step later: Megatron-LM's first step has rate 0.
# - seed 1 stands for 0, which Megatron-LM refuses; its random numbers are others anyway.

MEGATRON_ARGS=(
  # 8 ranks
  --tensor-model-parallel-size 1
  --pipeline-model-parallel-size 1
  --micro-batch-size 32
  --global-batch-size 256

  # memory
  --use-megatron-fsdp
  --data-parallel-sharding-strategy optim_grads
  --ckpt-format fsdp_dtensor
  --init-model-with-meta-device
  --no-gradient-accumulation-fusion
  --overlap-grad-reduce
  --overlap-param-gather

  # gpt2
  --num-layers 12
  --hidden-size 768
  --ffn-hidden-size 3072
  --num-attention-heads 12
  --seq-length 1024
  --max-position-embeddings 1024
  --position-embedding-type learned_absolute
  --vocab-size 50257
  --make-vocab-size-divisible-by 1
  --normalization LayerNorm
  --norm-epsilon 1e-05
  --hidden-dropout 0.1
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
