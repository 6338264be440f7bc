# SPDX-License-Identifier: Apache-2.0
"""What an exported configuration asks for, by the other program's documentation alone: micro-batches, precision, and bytes of
weights, gradients and optimizer state on a rank of every stage. It knows neither zplan's formulas nor the plan.

Megatron-LM: docs and help texts of megatron/training/arguments.py: gradients are kept and reduced in fp32 with --bf16 unless
--grad-reduce-in-bf16 is given, in fp16 with --fp16 unless --accumulate-allreduce-grads-in-fp32 is; the distributed optimizer
divides fp32 weights and both moments over the data ranks; the vocabulary is padded to a multiple of
--make-vocab-size-divisible-by times the tensor ranks.
DeepSpeed: docs/_pages/config-json.md: data_types.grad_accum_dtype, without it the type of the model; ZeRO stages divide optimizer
state, gradients, parameters.
"""


def megatron_stage(f, layers, embedding, head):
    """(dense, expert) parameters that a tensor rank of a stage holds."""
    number = lambda flag, missing=0: int(f.get(flag, missing))
    tensor = number("--tensor-model-parallel-size")
    d, ff, heads = (number(x) for x in ("--hidden-size", "--ffn-hidden-size", "--num-attention-heads"))
    head_size, groups = number("--kv-channels", d // heads), number("--num-query-groups", heads)
    bias, norm = "--disable-bias-linear" not in f, d * (1 if f["--normalization"] == "RMSNorm" else 2)
    queries, keys = heads * head_size // tensor, max(groups // tensor, 1) * head_size
    layer = 2 * norm + d * (queries + 2 * keys) + queries * d
    layer += queries + 2 * keys if bias or "--add-qkv-bias" in f else 0
    layer += d if bias else 0
    wide = 2 if "--swiglu" in f else 1
    experts = number("--num-experts")
    expert = 0
    if experts:
        layer += experts * d
        expert = experts // number("--expert-model-parallel-size", 1) * (wide + 1) * d * ff // number("--expert-tensor-parallel-size", 1)
    else:
        layer += (wide + 1) * d * ff // tensor + (wide * ff // tensor + d if bias else 0)
    multiple = number("--make-vocab-size-divisible-by", 128) * tensor
    table = -(-number("--vocab-size") // multiple) * multiple // tensor * d
    tied = "--untie-embeddings-and-output-weights" not in f
    dense = layers * layer
    dense += table if embedding else 0
    dense += number("--max-position-embeddings") * d if embedding and f["--position-embedding-type"] == "learned_absolute" else 0
    dense += norm + (0 if tied and embedding else table) if head else 0
    return dense, layers * expert


def narrow_bytes(f, hopper):
    """Bytes kept of the cast of a weight of a layer's product (Transformer Engine, performance considerations of low-precision
    training): once, and once more transposed on Hopper; with scales of blocks along rows and along columns, 32 or 16 values each."""
    if "--fp4-format" in f:
        return 2 * (0.5 + 1 / 16)
    if "--fp8-format" not in f:
        return 0
    return 2 * (1 + 1 / 32) if f["--fp8-recipe"] == "mxfp8" else 2 if hopper else 1


def precision_of(f, half):
    """The plan's word for it."""
    if "--fp4-format" in f:
        return "mixed_nvfp4"
    if "--fp8-format" in f:
        return {"tensorwise": "mixed_fp8", "delayed": "mixed_fp8_delayed", "mxfp8": "mixed_mxfp8"}[f["--fp8-recipe"]]
    return "mixed_" + half if half else "fp32"


def sum_bytes(half, told_fp32, told_half):
    if not half:
        return 4
    if half == "bf16":
        return 2 if told_half else 4
    return 4 if told_fp32 else 2


def read_megatron(f, ranks, stages, hopper=True):
    """stages: (embedding, layers, head) of every stage, its chunks together. hopper: of which GPUs, where products are narrow; such
    models have no biases here."""
    number = lambda flag, missing=0: int(f.get(flag, missing))
    tensor, pipeline = number("--tensor-model-parallel-size"), number("--pipeline-model-parallel-size")
    data = ranks // (tensor * pipeline)  # those that share positions have copies, too
    copies = number("--num-distributed-optimizer-instances", 1)
    spread = ranks // (pipeline * number("--expert-model-parallel-size", 1) * number("--expert-tensor-parallel-size", 1))
    half = "bf16" if "--bf16" in f else "fp16" if "--fp16" in f else ""
    gradient = sum_bytes(half, "--accumulate-allreduce-grads-in-fp32" in f, "--grad-reduce-in-bf16" in f)
    sharding = f.get("--data-parallel-sharding-strategy", "") if "--use-megatron-fsdp" in f else ""
    zero = {"optim_grads": 2, "optim_grads_params": 3}.get(sharding, 1 if "--use-distributed-optimizer" in f else 0)
    state = (4 if half else 0) + (8 if f["--optimizer"] == "adam" else 4 if float(f.get("--momentum", 0)) > 0 else 0)
    bytes_of = []
    for embedding, layers, head in stages:
        kinds = list(zip(megatron_stage(f, layers, embedding, head), (data, spread)))
        held = lambda stage: sum(n / (ranks_of // copies if zero >= stage else 1) for n, ranks_of in kinds)
        products = megatron_stage(f, layers, False, False)[0] - layers * 2 * number("--hidden-size")
        sharded = products / (data // copies if zero >= 3 else 1)
        alone = "--fp8-param-gather" in f or "--fp4-param-gather" in f  # primary weights in 8 or 4 bits: none in 16 (core/transformer/moe/README.md)
        casts = (sharded if alone else products) * narrow_bytes(f, hopper)
        bytes_of.append({"weights": (held(3) - sharded * alone) * (2 if half else 4) + casts, "gradients": held(2) * gradient, "optimizer": held(1) * state})
    replicas = data // number("--context-parallel-size", 1)
    micro = number("--global-batch-size") // (number("--micro-batch-size") * replicas)
    return {"microbatches": micro, "precision": precision_of(f, half), "stages": bytes_of}


def read_deepspeed(config, parameters, ranks):
    """Of a model without a pipeline that holds `parameters` on a rank."""
    half = "bf16" if config.get("bf16", {}).get("enabled") else "fp16" if config.get("fp16", {}).get("enabled") else ""
    kept = config.get("data_types", {}).get("grad_accum_dtype", half or "fp32")
    zero = config.get("zero_optimization", {})
    stage = zero.get("stage", 0)
    assert stage > 0 or kept == (half or "fp32"), "without ZeRO gradients are summed in the type of the model"
    held = lambda at, bytes_of: parameters * bytes_of / (ranks if stage >= at else 1)
    return {"microbatches": config["gradient_accumulation_steps"], "precision": "mixed_" + half if half else "fp32",
            "stages": [{"weights": held(3, 2 if half else 4), "gradients": held(2, 4 if kept == "fp32" else 2),
                        "optimizer": held(1, (4 if half else 0) + 8)}]}


def differences(read, plan, precision):
    """Where a plan's numbers are not those of the file that was exported from it, as texts. Bytes may differ by what rounding of
    buffers and shards to whole elements makes, below one percent."""
    texts = []
    if read["microbatches"] != plan["microbatches"]:
        texts.append("%d micro-batches, the plan has %d" % (read["microbatches"], plan["microbatches"]))
    if read["precision"] != precision:
        texts.append("precision %s, the plan has %s" % (read["precision"], precision))
    for s, (stage, planned) in enumerate(zip(read["stages"], plan["stages"])):
        for key, value in stage.items():
            if abs(value - planned["memory"][key]) > 0.01 * max(value, planned["memory"][key]):
                texts.append("%s of stage %d: %.4g bytes, the plan has %.4g" % (key, s, value, planned["memory"][key]))
    return texts
