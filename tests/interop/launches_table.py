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
     sc21(80, 12288, 96, 8, 8, 2, 2304), {"parameters": None, "billions": 145.6, "tensor": 8, "pipeline": 8, "data": 24, "batch": 2304,
                                          "recompute": "full"}),
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
