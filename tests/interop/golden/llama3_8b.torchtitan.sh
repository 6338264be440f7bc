# llama on 64 x h100_sxm, for torchtitan 0.3.0; made by zplan export torchtitan.
# tensor 4 x pipeline 2 x data 8 = 64 ranks, ZeRO 2, micro-batch 1, recompute full.
# zplan's estimates, for PyTorch FSDP (profile fsdp-compiled): 6.06 s a step, at most 7.76 GB on a device.
#
#   source llama3_8b.sh
#   torchrun ... -m torchtitan.train "${TORCHTITAN_ARGS[@]}"
#
# What differs from the plan:
# - initial values are torchtitan's, and its Llama scales rotary frequencies as Llama 3.1 does.
# - torchtitan's configurations make the loss in 8 chunks, which needs less memory than planned.
# - gradients are summed in fp32, in the plan in 16 bits: that takes more memory and time.
# - weight decay is for matrices alone in the plan; torchtitan's arguments have one group of parameters, so that norms
#   decay, too: `decay = "all"` is that.
# - data: torchtitan reads data sets of Hugging Face; give --dataloader.dataset and --hf_assets_path with a tokenizer
#   of 128256 tokens.

TORCHTITAN_ARGS=(
  --module=llama3
  --config=llama3_8b

  # 64 ranks
  --parallelism.data_parallel_replicate_degree=1
  --parallelism.data_parallel_shard_degree=8
  --parallelism.fsdp_reshard_after_forward=never
  --parallelism.tensor_parallel_degree=4
  --parallelism.enable_sequence_parallel
  --parallelism.context_parallel_degree=1
  --parallelism.pipeline_parallel_degree=2
  --parallelism.pipeline_parallel_schedule=1F1B
  --parallelism.pipeline_parallel_first_stage_less_layers=0
  --parallelism.pipeline_parallel_last_stage_less_layers=1
  --training.disable_cuda_graphs
  --training.local_batch_size=32
  --training.global_batch_size=256
  --training.seq_len=8192
  --parallelism.pipeline_parallel_microbatch_size=1

  # memory
  --compile.enable

  # training
  --training.steps=10000
  --training.mixed_precision_param=bfloat16
  --optimizer.param_groups.0.optimizer_name=AdamW
  --optimizer.param_groups.0.optimizer_kwargs.lr=0.0003
  --optimizer.param_groups.0.optimizer_kwargs.betas 0.9 0.95
  --optimizer.param_groups.0.optimizer_kwargs.eps=1e-08
  --optimizer.param_groups.0.optimizer_kwargs.weight_decay=0.1
  --training.max_norm=1
  --lr_scheduler.warmup_steps=500
  --lr_scheduler.decay_type=cosine
  --lr_scheduler.min_lr_factor=0.1
  --debug.seed=0
  --metrics.log_freq=1

  # recomputation: a class, after all other arguments
  activation_checkpoint:full
)
