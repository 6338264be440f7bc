# gpt1t on 800 x v100_sxm3_32, for Megatron-LM (core 0.20.0, commit d98e8a64); made by zplan export megatron.
# tensor 16 x pipeline 50 x data 1 = 800 ranks, ZeRO 0, micro-batch 1, recompute full, kept inputs split over tensor.
# zplan's estimates, for Megatron-LM (profile megatron-core): 12.6 min a step, at most 29.7 GB on a device.
#
#   source gpt1t.sh
#   torchrun ... pretrain_gpt.py "${MEGATRON_ARGS[@]}" --data-path ... --tokenizer-type ...
#
# What differs from the plan:
# - initial values: tables start with a deviation of 0.02, matrices that end a branch of a layer with 0.0008192; in
#   the plan's model with 0.006 and 0.0002458.
# - device v100_sxm3_32 has no bf16, so no Transformer Engine is asked for: --transformer-impl local.
# - learning rates come one step later: Megatron-LM's first step has rate 0.
# - seed 1 stands for 0, which Megatron-LM refuses; its random numbers are others anyway.
# - data: Megatron-LM reads files of its own (tools/preprocess_data.py), in another order of samples; give --data-path
#   and a tokenizer with 51200 tokens.
# - checkpoints: all are kept, not the last 2.

export CUDA_DEVICE_MAX_CONNECTIONS=1 # Megatron-LM requires it where tensors are split, before Blackwell

MEGATRON_ARGS=(
  # 800 ranks
  --tensor-model-parallel-size 16
  --pipeline-model-parallel-size 50
  --pipeline-model-parallel-layout 'Et*6|(t*6|)*48t*4L'
  --micro-batch-size 1
  --global-batch-size 2048

  # memory
  --recompute-granularity full
  --recompute-method uniform
  --recompute-num-layers 1
  --distribute-saved-activations

  # gpt1t
  --num-layers 298
  --hidden-size 17408
  --ffn-hidden-size 69632
  --num-attention-heads 128
  --seq-length 2048
  --max-position-embeddings 2048
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
  --train-iters 71526
  --optimizer adam
  --adam-beta1 0.9
  --adam-beta2 0.95
  --adam-eps 1e-08
  --weight-decay 0.1
  --clip-grad 1
  --lr 6e-05
  --min-lr 6e-06
  --lr-decay-style cosine
  --lr-decay-iters 71526
  --lr-warmup-iters 2000
  --seed 1
  --eval-iters 0
  --save out/gpt1t
  --load out/gpt1t
  --exit-signal-handler
  --save-interval 200
  --log-interval 1
)
