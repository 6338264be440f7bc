#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Recipes of Megatron-Bridge, read by Python's parser: every field is explained by an argument of `export megatron` of the same plan or by
the plan, every argument by a field; hostile names, refusals.

Megatron-LM makes most arguments of fields of the classes that Megatron-Bridge has, too, so that a field is called as its argument. Names
that differ, and what has no argument, are listed here by hand."""
import ast
import json
import sys

from interop import AXES, CHUNKS, CPU, EXAMPLES, GPT2, HERE, LLAMA, MIXTRAL, T_NLG, expect, failures, flags_of, layout_of, passed, refused, sets, zplan
from harness import Scratch, require_zplan
from recipe_file import BadRecipe, read_recipe

DENSE = [HERE + "/golden/llama2_7b.dz", "--gpus", "8", *sets("cut=layer schedule=1f1b microbatch=1")]
CASES = (
    ("llama", LLAMA), ("chunks", CHUNKS), ("mixtral", MIXTRAL), ("t_nlg", T_NLG), ("gpt2 with FSDP", GPT2), *AXES[:4],
    ("experts without capacity", [word if word != "megatron" else "megatron-bridge" for word in AXES[4][1]]),
    ("16-bit sums", [*DENSE, "--for", "megatron-bridge", *sets("tensor=2 pipeline=2 zero=1")]),
    ("fp16", [*DENSE, *sets("tensor=2 pipeline=2 zero=1 precision=mixed_fp16 loss_scale=dynamic(initial=1024,window=50)")]),
    ("mxfp8", [*DENSE, "--for", "megatron-bridge", "--machine", "dgx-b200", *sets("tensor=2 pipeline=2 zero=1 precision=mixed_mxfp8")]),
    ("nvfp4", [*DENSE, "--for", "megatron-bridge", "--machine", "dgx-b200", *sets("tensor=2 pipeline=1 zero=1 precision=mixed_nvfp4")]),
    ("fp32", [*DENSE, *sets("tensor=8 pipeline=1 zero=0 precision=fp32")]),
    ("optimizer on the host", [*DENSE, *sets("tensor=1 pipeline=1 zero=1 recompute=full offload[optimizer]=cpu")]),
)

# What a field is called that is not called as its argument, and its value (None: the argument's).
RENAMED = {
    "--microbatch-group-size-per-virtual-pipeline-stage": {"microbatch_group_size_per_vp_stage": None},
    "--norm-epsilon": {"layernorm_epsilon": None},
    "--num-experts": {"num_moe_experts": None},
    "--fp8-format": {"fp8": None},
    "--fp4-format": {"fp4": None},
    "--swiglu": {"activation_func": "F.silu", "gated_linear_unit": True},
    "--no-bias-gelu-fusion": {"bias_activation_fusion": False},
    "--disable-bias-linear": {"add_bias_linear": False},
    "--untie-embeddings-and-output-weights": {"share_embeddings_and_output_weights": False},
    "--no-gradient-accumulation-fusion": {"gradient_accumulation_fusion": False},
    "--accumulate-allreduce-grads-in-fp32": {"grad_reduce_in_fp32": True},
    "--grad-reduce-in-bf16": {"grad_reduce_in_fp32": False},
    "--weight-decay": {"weight_decay": None, "start_weight_decay": None, "end_weight_decay": None},
    "--seed": {"seed": None, "random_seed": None},
    "--cpu-offloading-num-layers": {"cpu_offloading_num_layers": None, "cpu_offloading": True},
    "--transformer-impl": {"transformer_impl": None, "transformer_layer_spec": "local_layer_spec"},
    "--use-megatron-fsdp": {"use_megatron_fsdp": True, "use_distributed_optimizer": True},
    "--bf16": {"bf16": True, "params_dtype": "torch.bfloat16", "pipeline_dtype": "torch.bfloat16"},
    "--fp16": {"fp16": True, "params_dtype": "torch.float16", "pipeline_dtype": "torch.float16"},
}
BY_OTHERS = {"--group-query-attention", "--make-vocab-size-divisible-by", "--mock-data", "--vocab-size", "--max-position-embeddings"}
SHARED = {  # fields that several parts have: all of these, always alike
    "seq_length": {"model", "dataset"}, "use_distributed_optimizer": {"ddp", "optimizer"}, "overlap_param_gather": {"ddp", "optimizer"},
    "use_megatron_fsdp": {"ddp", "dist"}}
CLASSES = {"model": "models.gpt_provider.GPTModelProvider", "train": "training.config.TrainingConfig", "validation": "training.config.ValidationConfig",
           "optimizer": "training.config.OptimizerConfig", "scheduler": "training.config.SchedulerConfig",
           "ddp": "training.config.DistributedDataParallelConfig", "tokenizer": "training.config.TokenizerConfig",
           "checkpoint": "training.config.CheckpointConfig", "logger": "training.config.LoggerConfig", "rng": "training.config.RNGConfig",
           "dist": "training.config.DistributedInitConfig", "mixed_precision": "training.mixed_precision.MixedPrecisionConfig"}


def argument_value(text):
    if text is True:
        return True
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def by_arguments(f):
    """{field: value} of all arguments, by their names."""
    fields = {}
    for flag, text in f.items():
        value = argument_value(text)
        names = RENAMED.get(flag, {} if flag in BY_OTHERS else {flag[2:].replace("-", "_"): None})
        fields.update({name: value if fixed is None else fixed for name, fixed in names.items()})
    if "recompute_modules" in fields:
        fields["recompute_modules"] = fields["recompute_modules"].split(" ")
    return fields


def by_plan(f, plan):
    """{(part, field): value} of what no argument is called as."""
    tokens, step = int(f["--vocab-size"]), int(f["--make-vocab-size-divisible-by"]) * plan["degrees"]["tensor"]
    fields = {("model", "vocab_size"): -(-tokens // step) * step, ("model", "bias_dropout_fusion"): True, ("ddp", "check_for_nan_in_grad"): True,
              ("dataset", "split"): "969, 30, 1", ("dataset", "dataloader_type"): "single", ("dataset", "reset_position_ids"): False,
              ("dataset", "reset_attention_mask"): False, ("dataset", "eod_mask_loss"): False}
    if "--mock-data" in f:
        fields["tokenizer", "vocab_size"] = tokens
    else:
        fields["dataset", "data_path"] = "data_path"
    if "--no-bias-gelu-fusion" not in f:
        fields["model", "bias_activation_fusion"] = True
    if "--bf16" in f and "--grad-reduce-in-bf16" not in f:
        fields["mixed_precision", "grad_reduce_in_fp32"] = True
    if "--fp16" in f and "--accumulate-allreduce-grads-in-fp32" not in f:
        fields["mixed_precision", "grad_reduce_in_fp32"] = False
    if f["--position-embedding-type"] == "rope" and not {"--rotary-interleaved", "--transformer-impl"} & f.keys():
        fields["model", "apply_rope_fusion"] = True
    if plan["chunks"] > 1:
        fields.update({("model", "virtual_pipeline_model_parallel_size"): plan["chunks"], ("model", "overlap_p2p_comm"): True,
                       ("model", "batch_p2p_comm"): False})
    return fields


def check_fields(name, parts, f, plan):
    here = {}
    for part, (_, fields) in parts.items():
        for field, value in fields.items():
            here.setdefault(field, {})[part] = value
    explained, arguments = by_plan(f, plan), by_arguments(f)
    for field, value in arguments.items():
        found = here.get(field, {})
        expect("%s: %s" % (name, field), found and all(got == value for got in found.values()), "%s, not %s" % (found, value))
    for (part, field), value in explained.items():
        got = here.get(field, {}).get(part)
        expect("%s: %s of %s" % (name, field, part), got == value and type(got) is type(value), "%s, not %s" % (got, value))
    unknown = [(part, field) for field, found in here.items() for part in found if field not in arguments and (part, field) not in explained]
    expect(name + ": nothing else is set", not unknown, unknown)
    shared = {**SHARED, "vocab_size": {"model", "tokenizer"} if "--mock-data" in f else {"model"}}
    for field, found in here.items():
        expect("%s: parts with %s" % (name, field), found.keys() == shared[field] if field in shared else len(found) == 1, found)


def check_plan(name, parts, environment, plan):
    """Decisions of the plan file alone, without arguments of Megatron-LM between."""
    get = lambda part, field, missing=None: parts[part][1].get(field, missing) if part in parts else missing
    degrees = plan["degrees"]
    for what, got, wanted in (
            ("tensor", get("model", "tensor_model_parallel_size"), degrees["tensor"]),
            ("pipeline", get("model", "pipeline_model_parallel_size"), degrees["pipeline"]),
            ("context", get("model", "context_parallel_size", 1), degrees.get("context", 1)),
            ("chunks", get("model", "virtual_pipeline_model_parallel_size", 1), plan["chunks"]),
            ("micro-batch", get("train", "micro_batch_size"), plan["microbatch"]),
            ("micro-batches", get("train", "global_batch_size"), plan["microbatch"] * plan["microbatches"] * degrees["data"]),
            ("sequence", get("model", "seq_length"), plan["model"]["sequence"]),
            ("ZeRO", {None: 1 if get("ddp", "use_distributed_optimizer") else 0, "optim_grads": 2, "optim_grads_params": 3}[
                get("ddp", "data_parallel_sharding_strategy")], plan["zero"]),
            ("recompute", get("model", "recompute_granularity", "none"), plan["recompute"]),
            ("connections", environment, {"CUDA_DEVICE_MAX_CONNECTIONS": 1} if degrees["tensor"] > 1 and plan["zero"] < 2 else {})):
        expect("%s: %s of the plan" % (name, what), got == wanted, "%s, not %s" % (got, wanted))
    if degrees["pipeline"] > 1:
        units = [None] * (degrees["pipeline"] * plan["chunks"])
        for s, stage in enumerate(plan["stages"]):
            for k, chunk in enumerate(stage["chunks"]):
                units[k * degrees["pipeline"] + s] = chunk["units"]
        layout = layout_of(get("model", "pipeline_model_parallel_layout"))
        expect(name + ": cut of the plan", [sum(chunk) for chunk in layout] == units, layout)


def check_classes(name, parts, parameters, mock):
    wanted = {**CLASSES, "dataset": "training.config." + ("MockGPTDatasetConfig" if mock else "GPTDatasetConfig")}
    wanted = {part: "megatron.bridge." + path for part, path in wanted.items() if part in parts}
    if not mock:
        wanted["tokenizer"] = "tokenizer"
    expect(name + ": classes", {part: path for part, (path, _) in parts.items()} == wanted, parts)
    expect(name + ": required parts", {"model", "train", "optimizer", "scheduler", "dataset", "logger", "tokenizer", "checkpoint"} <= parts.keys())
    expect(name + ": parameters", parameters == ([] if mock else ["tokenizer", "data_path"]), parameters)


def check_cases(folder):
    plan_file, script, recipe = folder + "/plan.json", folder + "/a.sh", folder + "/a.py"
    for name, args in CASES:
        run = zplan(*args, "-o", plan_file)
        if not expect(name + ": plan", run.returncode == 0, run.stderr[:300]):
            continue
        with open(plan_file, encoding="utf-8") as file:
            plan = json.load(file)
        made = [zplan("export", kind, plan_file, "-o", out, "--force") for kind, out in (("megatron", script), ("megatron-bridge", recipe))]
        if not expect(name + ": exported", all(run.returncode == 0 for run in made), [run.stderr[:300] for run in made]):
            continue
        with open(recipe, encoding="utf-8") as file:
            text = file.read()
        try:
            parts, environment, parameters = read_recipe(text)
        except (BadRecipe, SyntaxError) as error:
            expect(name + ": is read", False, error)
            continue
        f = flags_of(script)
        check_classes(name, parts, parameters, "--mock-data" in f)
        check_fields(name, parts, f, plan)
        check_plan(name, parts, environment, plan)
        said = [run.stderr.replace("--transformer-impl local", "local_layer_spec").replace("give --data-path", "give the recipe its data_path") for run in made]
        expect(name + ": the same notes", said[0] == said[1], said)
        comment = " ".join(line[1:].strip() for line in text.splitlines() if line.startswith("#"))
        notes = [line[len("note: "):] for line in made[1].stderr.splitlines() if line.startswith("note: ")]
        expect(name + ": notes are in the file", all(note in comment for note in notes), notes)


def check_refused(folder):
    mixtral = EXAMPLES + "mixtral_8x7b.dz"
    refused("a recipe on CPUs", ["export", "megatron-bridge", *CPU], 1, "has CPU devices", "Megatron-Bridge runs on GPUs")
    refused("a recipe with a fold", ["export", "megatron-bridge", mixtral, *sets("schedule=zb_v pipeline=4 expert=1 tensor=1 cut=layer")], 1,
            "which Megatron-Bridge cannot place")
    with open(HERE + "/golden/gpt2.dz", encoding="utf-8") as file:
        text = file.read()
    relu = folder + "/relu.dz"
    with open(relu, "w", encoding="utf-8") as file:
        file.write(text.replace('gelu(c_fc, approximate = "tanh")', "relu(c_fc)"))
    refused("a recipe with relu", ["export", "megatron-bridge", relu, "--gpus", "8"], 1, "relu")
    encoder = folder + "/bert.dz"
    zplan("import", "hf", HERE + "/hf/bert_base.json", "-o", encoder)
    refused("a recipe of BERT", ["export", "megatron-bridge", encoder, "--gpus", "8"], 1, "is not a model that Megatron-Bridge has")


def check_reader():
    """The reader can say no."""
    good = ("from megatron.bridge.training.config import (\n    ConfigContainer,\n    TrainingConfig,\n)\n\n\n"
            "def recipe():\n    return ConfigContainer(train=TrainingConfig(train_iters=1))\n")
    expect("reader: good", read_recipe(good)[0] == {"train": ("megatron.bridge.training.config.TrainingConfig", {"train_iters": 1})})
    for what, bad in (("a name without an import", good.replace("    TrainingConfig,\n", "")), ("an import too many", "import torch\n" + good),
                      ("a field twice", good.replace("train_iters=1", "train_iters=1, train_iters=2")), ("a call", good.replace("=1", "=print()")),
                      ("no name", good.replace("train_iters=1", "1")), ("another container", good.replace("ConfigContainer", "LoggerConfig"))):
        try:
            read_recipe(bad)
            expect("reader: " + what, False)
        except (BadRecipe, SyntaxError):
            expect("reader: " + what, True)


def main():
    require_zplan()
    with Scratch() as folder:
        check_reader()
        check_cases(folder)
        check_refused(folder)
    print("%d passed, %d failed" % (passed[0], len(failures)))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
