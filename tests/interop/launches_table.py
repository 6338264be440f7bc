# SPDX-License-Identifier: Apache-2.0
"""Published launches: what their files set, in this table's own words, and what must come of them.

A row is (name, source, GPUs, flags or keys, facts). facts: parameters by a published count or by the formula of launches.py, degrees and
batch as the launch says them."""

LLAMA3_8B = ("num-layers 32, hidden-size 4096, ffn-hidden-size 14336, num-attention-heads 32, group-query-attention, num-query-groups 8, "
             "kv-channels 128, position-embedding-type rope, rotary-base 1000000, rotary-percent 1.0, attention-dropout 0.0, "
             "hidden-dropout 0.0, swiglu, normalization RMSNorm, init-method-std 0.0134, untie-embeddings-and-output-weights, "
             "disable-bias-linear, seq-length 8192, max-position-embeddings 8192, apply-layernorm-1p")
QWEN = ("bf16, no-masked-softmax-fusion, disable-bias-linear, position-embedding-type rope, no-rope-fusion, normalization RMSNorm, swiglu, "
        "group-query-attention, seq-length 4096, use-mcore-models, rotary-percent 1.0, rotary-base 1000000, no-bias-swiglu-fusion, "
        "tokenizer-type HuggingFaceTokenizer, micro-batch-size 1, hidden-dropout 0, attention-dropout 0")


def sc21(layers, hidden, heads, tensor, pipeline, micro, batch, more=""):
    """Table 1 of arXiv 2104.04473 (examples/academic_paper_scripts/sc21): layer counts, degrees, batches."""
    return ("tensor-model-parallel-size %d, pipeline-model-parallel-size %d, micro-batch-size %d, global-batch-size %d, num-layers %d, "
            "hidden-size %d, num-attention-heads %d, seq-length 2048, max-position-embeddings 2048, train-iters 500, lr-decay-iters 320, "
            "lr 0.0001, min-lr 0.00001, lr-decay-style cosine, lr-warmup-fraction 0.01, clip-grad 1.0, fp16, loss-scale 8192, "
            "recompute-granularity full, recompute-method uniform, recompute-num-layers 1%s"
            % (tensor, pipeline, micro, batch, layers, hidden, heads, more))


MEGATRON = [
    ("gpt3_175b", "Megatron-LM examples/gpt3/train_gpt3_175b_distributed.sh", 1024,
     "num-layers 96, hidden-size 12288, num-attention-heads 96, seq-length 2048, max-position-embeddings 2048, attention-backend auto, "
     "micro-batch-size 1, global-batch-size 1536, train-iters 500000, weight-decay 0.1, adam-beta1 0.9, adam-beta2 0.95, "
     "init-method-std 0.006, clip-grad 1.0, fp16, lr 6.0e-5, lr-decay-style cosine, min-lr 6.0e-6, lr-warmup-fraction .001, "
     "lr-decay-iters 430000, tensor-model-parallel-size 8, pipeline-model-parallel-size 16",
     {"parameters": None, "tensor": 8, "pipeline": 16, "data": 8, "zero": 0, "microbatch": 1, "batch": 1536, "precision": "mixed_fp16",
      "sequence": "false", "schedule": "1f1b"}),
    ("mixtral_8x7b", "Megatron-LM examples/mixtral/train_mixtral_8x7b_distributed.sh", 64,
     "use-mcore-models, disable-bias-linear, seq-length 4096, max-position-embeddings 32768, num-layers 32, hidden-size 4096, "
     "ffn-hidden-size 14336, num-attention-heads 32, init-method-std 0.01, attention-dropout 0.0, hidden-dropout 0.0, normalization RMSNorm, "
     "position-embedding-type rope, swiglu, untie-embeddings-and-output-weights, group-query-attention, num-query-groups 8, "
     "no-masked-softmax-fusion, no-position-embedding, rotary-base 1000000, num-experts 8, moe-router-topk 2, "
     "moe-router-load-balancing-type aux_loss, moe-aux-loss-coeff 1e-2, moe-grouped-gemm, moe-token-dispatcher-type alltoall, "
     "overlap-param-gather, overlap-grad-reduce, tokenizer-type Llama2Tokenizer, micro-batch-size 1, global-batch-size 256, lr 1e-4, "
     "train-iters 500000, lr-decay-iters 320000, lr-decay-style cosine, min-lr 1.0e-5, weight-decay 0.1, lr-warmup-iters 500, clip-grad 1.0, "
     "bf16, tensor-model-parallel-size 1, pipeline-model-parallel-size 4, expert-model-parallel-size 8, use-distributed-optimizer, "
     "sequence-parallel, save-interval 10000, no-load-optim",
     {"parameters": 46702792704, "tensor": 1, "pipeline": 4, "data": 16, "expert": 8, "zero": 1, "batch": 256, "precision": "mixed_bf16"}),
    ("llama3_8b_fp8", "Megatron-LM examples/llama/train_llama3_8b_h100_fp8.sh", 8,
     LLAMA3_8B + ", micro-batch-size 1, global-batch-size 128, train-samples 1953125000, lr-decay-samples 1949218748, lr-warmup-samples 3906252, "
     "lr 0.00015, min-lr 0.00001, decoupled-lr 5.0e-4, lr-decay-style cosine, clip-grad 1.0, weight-decay 0.1, bf16, grad-reduce-in-bf16, "
     "cross-entropy-loss-fusion, fp8-format hybrid, fp8-amax-history-len 1024, fp8-amax-compute-algo max, fp8-param-gather, "
     "tensor-model-parallel-size 1, context-parallel-size 1, sequence-parallel, use-distributed-optimizer, overlap-grad-reduce, "
     "overlap-param-gather, vocab-size 128256, tokenizer-type NullTokenizer, mock-data",
     {"parameters": 8030261248, "tensor": 1, "pipeline": 1, "data": 8, "zero": 1, "batch": 128, "precision": "mixed_fp8_delayed",
      "steps": 1953125000 // 128}),
    ("llama3_8b_fsdp", "Megatron-LM examples/megatron_fsdp/train_llama3_8b_fsdp_h100_fp8.sh", 8,
     LLAMA3_8B + ", micro-batch-size 1, global-batch-size 128, train-iters 1000, lr 0.00015, bf16, use-megatron-fsdp, "
     "data-parallel-sharding-strategy optim_grads_params, no-gradient-accumulation-fusion, ckpt-format fsdp_dtensor, "
     "init-model-with-meta-device, use-distributed-optimizer, overlap-grad-reduce, overlap-param-gather, vocab-size 128256",
     {"parameters": 8030261248, "zero": 3, "data": 8, "batch": 128, "precision": "mixed_bf16"}),
    ("gpt_145b", "Megatron-LM sc21/run_table_1.sh; arXiv 2104.04473 table 1: 145.6 billion", 1536,
     sc21(80, 12288, 96, 8, 8, 2, 2304, ", num-layers-per-virtual-pipeline-stage 5"),
     {"parameters": None, "billions": 145.6, "tensor": 8, "pipeline": 8, "data": 24, "batch": 2304, "recompute": "full",
      "schedule": "interleaved", "chunks": 2}),
    ("gpt_1t", "Megatron-LM sc21/run_table_1.sh; arXiv 2104.04473 table 1: 1008.0 billion", 3072,
     sc21(128, 25600, 160, 8, 64, 1, 3072), {"parameters": None, "billions": 1008.0, "tensor": 8, "pipeline": 64, "data": 6, "batch": 3072}),
    ("gpt_figure_12", "Megatron-LM sc21/run_figure_12.sh: 175 billion, interleaved", 96,
     sc21(96, 12288, 96, 8, 12, 1, 60, ", num-layers-per-virtual-pipeline-stage 2"),
     {"parameters": None, "schedule": "interleaved", "chunks": 4, "data": 1, "batch": 60}),
    ("qwen3_30b_a3b", "Megatron-LM examples/post_training/modelopt/conf/Qwen/Qwen3-30B-A3B.sh; the model's card: 30.5B", 64,
     QWEN + ", untie-embeddings-and-output-weights, num-layers 48, hidden-size 2048, ffn-hidden-size 6144, num-attention-heads 32, "
     "num-query-groups 4, kv-channels 128, qk-layernorm, num-experts 128, moe-ffn-hidden-size 768, moe-router-topk 8, moe-router-dtype fp32, "
     "moe-aux-loss-coeff 1e-3, moe-token-dispatcher-type alltoall, moe-router-load-balancing-type aux_loss, max-position-embeddings 40960, "
     "make-vocab-size-divisible-by 1187, padded-vocab-size 151936, sequence-parallel, tensor-model-parallel-size 2, "
     "expert-model-parallel-size 8, expert-tensor-parallel-size 1, global-batch-size 256",
     {"parameters": 30532122624, "tensor": 2, "expert": 4, "data": 32, "sequence": "true", "batch": 256}),
    ("qwen2_5_0_5b", "Megatron-LM examples/post_training/modelopt/conf/Qwen/Qwen2.5-0.5B-Instruct.sh; its checkpoint's tensors", 8,
     QWEN + ", add-qkv-bias, num-layers 24, hidden-size 896, ffn-hidden-size 4864, num-attention-heads 14, num-query-groups 2, kv-channels 64, "
     "max-position-embeddings 32768, padded-vocab-size 151936, make-vocab-size-divisible-by 1",
     {"parameters": 494032768, "tensor": 1, "data": 8, "batch": 8}),
]

# Configurations of DeepSpeed: a name, source, GPUs, a published model that the test trains by it, keys as dictionaries, facts.
DEEPSPEED = [
    ("bing_bert_onebit", "DeepSpeedExamples training/bing_bert/1-bit_adam/nccl", 64, "bert-large",
     {"train_batch_size": 4096, "train_micro_batch_size_per_gpu": 16, "prescale_gradients": False, "gradient_clipping": 1.0,
      "optimizer": {"type": "OneBitAdam", "params": {"lr": 4e-4, "weight_decay": 0.01, "bias_correction": False, "freeze_step": 23000,
                                                     "cuda_aware": False, "comm_backend_name": "nccl"}},
      "fp16": {"enabled": True, "loss_scale": 0, "initial_scale_power": 16}},
     {"zero": 0, "compress": "true", "data": 64, "microbatch": 16, "batch": 4096, "precision": "mixed_fp16"}),
    ("squad_onebit", "DeepSpeedExamples training/BingBertSquad/1-bit_adam/nccl", 32, "bert-large",
     {"train_batch_size": 96, "train_micro_batch_size_per_gpu": 3, "fp16": {"enabled": True}, "gradient_clipping": 1.0,
      "optimizer": {"type": "OnebitAdam", "params": {"lr": 3e-5, "freeze_step": 400, "weight_decay": 0.0}}},
     {"zero": 0, "compress": "true", "data": 32, "microbatch": 3, "batch": 96}),
    ("bf16_zero3", "DeepSpeedExamples training/bf16_master_weight/configs/baseline.json", 4, "gpt2-1.5b",
     {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "bf16": {"enabled": True},
      "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01}},
      "zero_optimization": {"stage": 3, "contiguous_gradients": True, "reduce_bucket_size": 5e7, "stage3_param_persistence_threshold": 0}},
     {"zero": 3, "data": 4, "microbatch": 4, "batch": 16, "precision": "mixed_bf16", "offload[optimizer]": "none"}),
    ("zenflow", "DeepSpeedExamples training/DeepSpeed-ZenFlow/finetuning/zf_config.json", 4, "llama2-7b",
     {"train_batch_size": 8, "bf16": {"enabled": True}, "gradient_accumulation_steps": 1, "gradient_clipping": 1.0,
      "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": True}, "zenflow": {"topk_ratio": 0.1}},
      "optimizer": {"type": "AdamW", "params": {"lr": 2e-5, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01}}},
     {"zero": 2, "data": 4, "microbatch": 2, "batch": 8, "offload[optimizer]": "cpu", "offload[gradients]": "cpu",
      "note": "zero_optimization.zenflow"}),
    ("imagenet_z1", "DeepSpeedExamples training/imagenet/config/ds_fp16_z1_config.json", 8, "gpt2-124m",
     {"train_batch_size": 256, "gradient_accumulation_steps": 1, "gradient_clipping": 0, "zero_optimization": {"stage": 1},
      "optimizer": {"type": "Adam", "params": {"lr": 0.001, "betas": [0.8, 0.999], "eps": 1e-8, "weight_decay": 3e-7}},
      "zero_allow_untested_optimizer": True, "fp16": {"enabled": True, "auto_cast": True}},
     {"zero": 1, "data": 8, "microbatch": 32, "batch": 256, "precision": "mixed_fp16"}),
    ("autotp", "DeepSpeedExamples training/tensor_parallel/hf_integration/configs/ds_config.json", 8, "llama2-7b",
     {"bf16": {"enabled": True}, "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto"}},
      "zero_optimization": {"stage": 2, "gather_16bit_weights_on_model_save": True}, "tensor_parallel": {"autotp_size": 4},
      "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "train_batch_size": "auto",
      "train_micro_batch_size_per_gpu": 2},
     {"zero": 2, "tensor": 4, "data": 2, "microbatch": 2, "batch": 4}),
]

# Configurations of torchtitan: a name, source, GPUs (None: the degrees say), keys by section, words after `--`, facts.
TORCHTITAN = [
    ("llama3_8b", "torchtitan train_configs/llama3_8b.toml before 9810191b", 64,
     {"job": {"dump_folder": "./outputs"}, "model": {"name": "llama3", "flavor": "8B", "hf_assets_path": "./assets"},
      "optimizer": {"name": "AdamW", "lr": 3e-4, "eps": 1e-8}, "lr_scheduler": {"warmup_steps": 200},
      "training": {"local_batch_size": 1, "seq_len": 8192, "max_norm": 1.0, "steps": 1000, "dataset": "c4"},
      "parallelism": {"data_parallel_replicate_degree": 1, "data_parallel_shard_degree": -1, "tensor_parallel_degree": 1,
                      "pipeline_parallel_degree": 1, "context_parallel_degree": 1},
      "compile": {"enable": False, "components": ["model", "loss"]}, "quantize.linear.float8": {"filter_fqns": ["output"]},
      "activation_checkpoint": {"mode": "selective", "selective_ac_option": "op"}}, [],
     {"parameters": 8030261248, "data": 64, "zero": 3, "tensor": 1, "batch": 64, "microbatch": 1, "recompute": "selective", "steps": 1000}),
    ("llama3_70b", "torchtitan train_configs/llama3_70b.toml before 9810191b", 256,
     {"model": {"name": "llama3", "flavor": "70B"}, "optimizer": {"name": "AdamW", "lr": 1.5e-4, "eps": 1e-8},
      "training": {"local_batch_size": 8, "seq_len": 8192, "steps": 1000},
      "parallelism": {"data_parallel_shard_degree": -1, "tensor_parallel_degree": 8}, "activation_checkpoint": {"mode": "full"}}, [],
     {"parameters": 70553706496, "data": 32, "tensor": 8, "sequence": "true", "batch": 256, "recompute": "full"}),
    ("llama3_405b", "torchtitan train_configs/llama3_405b.toml before 9810191b", 512,
     {"model": {"name": "llama3", "flavor": "405B", "converters": ["float8"]},
      "optimizer": {"name": "AdamW", "lr": 8e-5}, "lr_scheduler": {"warmup_steps": 600},
      "training": {"local_batch_size": 2, "seq_len": 8192, "steps": 3000},
      "parallelism": {"data_parallel_shard_degree": -1, "tensor_parallel_degree": 8, "enable_async_tensor_parallel": True},
      "activation_checkpoint": {"mode": "full"}, "compile": {"enable": True}}, [],
     {"parameters": 405853388800, "data": 64, "tensor": 8, "batch": 128, "note": "`model.converters` (float8)"}),
    ("llama3_405b_3d", "torchtitan benchmarks/llama3_h100_202412_torchtitan.md, table 5: interleaved", None,
     {"model": {"name": "llama3", "flavor": "405B"}, "training": {"local_batch_size": 32, "seq_len": 8192},
      "parallelism": {"data_parallel_shard_degree": 8, "tensor_parallel_degree": 8, "pipeline_parallel_degree": 8,
                      "pipeline_parallel_schedule": "Interleaved1F1B"}, "activation_checkpoint": {"mode": "full"}}, [],
     {"data": 8, "tensor": 8, "pipeline": 8, "schedule": "interleaved", "chunks": 2, "zero": 2, "microbatch": 1, "batch": 256}),
    ("qwen3_0_6b", "torchtitan train_configs/qwen3_0.6b.toml before 9810191b; its checkpoint's tensors", 8,
     {"model": {"name": "qwen3", "flavor": "0.6B"}, "training": {"local_batch_size": 4, "seq_len": 4096, "steps": 10},
      "parallelism": {"fsdp_reshard_after_forward": "never"}, "activation_checkpoint": {"mode": "none"}}, [],
     {"parameters": 596049920, "data": 8, "zero": 2, "batch": 32, "recompute": "none"}),
    ("qwen3_30b_hsdp", "--section.key of today, config/configs.py @b5bcd76c; the model's card: 30.5B", None, {},
     ["--model.name=qwen3", "--model.flavor=30B-A3B", "--training.num_tokens_per_microbatch_per_dp_rank", "16384",
      "--training.max_context_length", "4096", "--parallelism.data_parallel_replicate_degree=2", "--parallelism.data_parallel_shard_degree=16",
      "--parallelism.expert_parallel_degree", "8", "--parallelism.context_parallel_degree=2", "--compile.enable"],
     {"parameters": 30532122624, "data": 32, "shard": 32, "expert": 8, "context": 2, "microbatch": 4, "batch": 128, "recompute": "full"}),
]
