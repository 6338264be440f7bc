#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `zplan export megatron` and `export megatron-bridge` write for one plan, as configurations of megatron-core itself: both are accepted, alike,
and are what was planned; each with one value changed to a contradiction is rejected."""
import dataclasses
import json
import os
import sys
import warnings

import training
from training import harness

INTEROP = os.path.join(os.path.dirname(training.HERE), "interop")
sys.path.insert(0, INTEROP)
from interop import CHUNKS, LLAMA, MIXTRAL, flags_of, sets  # noqa: E402
from recipe_file import read_recipe  # noqa: E402
from recipes import by_arguments  # noqa: E402

DENSE = [INTEROP + "/golden/llama2_7b.dz", "--gpus", "8", *sets("cut=layer schedule=1f1b microbatch=1")]
LAYOUTS = (
    ("tensor, pipeline, sequence", LLAMA), ("interleaved", CHUNKS), ("experts", MIXTRAL),
    ("FSDP", [*DENSE, *sets("tensor=1 pipeline=1 zero=3 recompute=full")]),
    ("context", [INTEROP + "/golden/llama2_7b.dz", "--gpus", "16", *sets("tensor=2 pipeline=2 context=2 schedule=1f1b zero=1 microbatch=1 cut=layer")]),
    ("optimizer on the host", [*DENSE, *sets("tensor=1 pipeline=1 zero=1 recompute=full offload[optimizer]=cpu")]),
)
# Fields of Megatron-Bridge's own class for models, which adds them to megatron-core's.
PROVIDER = {"seq_length", "vocab_size", "share_embeddings_and_output_weights", "position_embedding_type", "rotary_base"}
# Transformer Engine, which a machine without GPUs does not have, is needed by a kernel and by an optimizer that checks its version.
WITHOUT_ENGINE = {"apply_rope_fusion", "use_precision_aware_optimizer"}


def parts_of_arguments(f, torch, classes):
    """{part: fields} of megatron-core's three classes, as Megatron-LM makes them of its arguments."""
    fields = by_arguments(f)
    dtype = torch.bfloat16 if "--bf16" in f else torch.float32
    fields.update(params_dtype=dtype, pipeline_dtype=dtype, activation_func=torch.nn.functional.silu,
                  grad_reduce_in_fp32="--bf16" in f and "--grad-reduce-in-bf16" not in f)
    return {part: {field.name: fields[field.name] for field in dataclasses.fields(cls) if field.name in fields.keys() - WITHOUT_ENGINE}
            for part, cls in classes.items()}


def parts_of_recipe(recipe, torch):
    """The same of a recipe, whose mixed precision sets the fields of these names in all parts."""
    names = {"torch.bfloat16": torch.bfloat16, "torch.float16": torch.float16, "F.silu": torch.nn.functional.silu}
    known = lambda fields: {key: names.get(value, value) if isinstance(value, str) else value for key, value in fields.items()}
    return {part: known(fields) for part, (_, fields) in recipe.items()}


def made(cls, fields):
    """(object, what was wrong)"""
    try:
        return cls(**fields), None
    except (ValueError, AssertionError, TypeError) as error:
        return None, "%s: %s" % (type(error).__name__, error)


def shown(value):
    return repr(value) if not callable(value) else getattr(value, "__qualname__", type(value).__name__)


def check_alike(tally, name, part, one, other):
    """What a recipe says more is Megatron-LM's default, for speed and checks."""
    more = {"bias_activation_fusion", "bias_dropout_fusion", "overlap_p2p_comm", "batch_p2p_comm", "check_for_nan_in_grad", "fp8_recipe"}
    differ = [field.name for field in dataclasses.fields(one) if field.name not in more and
              shown(getattr(one, field.name)) != shown(getattr(other, field.name))]
    tally.check("%s: %s alike" % (name, part), not differ, "; ".join("%s: %s, %s" % (f, getattr(one, f), getattr(other, f)) for f in differ))


def check_planned(tally, name, model, ddp, plan):
    degrees = plan["degrees"]
    sharded = {"no_shard": 1 if ddp.use_distributed_optimizer else 0, "optim_grads": 2, "optim_grads_params": 3}
    for what, got, want in (
            ("degrees", (model.tensor_model_parallel_size, model.pipeline_model_parallel_size, model.context_parallel_size),
             (degrees["tensor"], degrees["pipeline"], degrees.get("context", 1))),
            ("chunks", model.virtual_pipeline_model_parallel_size or 1, plan["chunks"]),
            ("sequence parallel", model.sequence_parallel, plan["sequence"]),
            ("ZeRO", sharded[ddp.data_parallel_sharding_strategy], plan["zero"]),
            ("recompute", model.recompute_granularity or "none", plan["recompute"])):
        tally.check("%s: %s" % (name, what), got == want, "%s, not %s" % (got, want))
    if degrees["pipeline"] > 1:
        units = [[chunk["units"] for chunk in stage["chunks"]] for stage in plan["stages"]]
        read = [[len(chunk) for chunk in rank] for rank in model.pipeline_model_parallel_layout.layout]
        tally.check(name + ": cut", read == units, "%s, not %s" % (read, units))


def contradictions(model):
    """(what, part, changed fields) where the layout has such."""
    heads, layers = model["num_attention_heads"], model["num_layers"]
    yield "tensor degree and heads", "model", {"tensor_model_parallel_size": heads + 1}
    yield "both types of 16 bits", "model", {"bf16": True, "fp16": True}
    yield "experts over ranks without experts", "model", {"num_moe_experts": None, "expert_model_parallel_size": 2}
    yield "recomputation without its method", "model", {"recompute_granularity": "full", "recompute_method": None}
    yield "a field that is none", "model", {"tensor_parallel_size": 2}
    yield "activations on the host with recomputation", "model", {"cpu_offloading": True, "cpu_offloading_num_layers": layers // 2, "recompute_granularity": "full",
                                                                  "recompute_method": "uniform", "recompute_num_layers": 1, "pipeline_model_parallel_size": 1,
                                                                  "pipeline_model_parallel_layout": None, "virtual_pipeline_model_parallel_size": None}
    yield "a precise optimizer that is not shared", "optimizer", {"use_precision_aware_optimizer": True, "use_distributed_optimizer": False}
    if model.get("sequence_parallel"):
        yield "sequence parallel on one rank", "model", {"tensor_model_parallel_size": 1}
        yield "kept activations divided twice", "model", {"distribute_saved_activations": True, "recompute_granularity": "full", "recompute_method": "uniform",
                                                          "recompute_num_layers": 1}
    if model.get("pipeline_model_parallel_layout"):
        yield "a layout of other layers", "model", {"num_layers": layers + 1}
        yield "a layout of other stages", "model", {"pipeline_model_parallel_size": 3 * model["pipeline_model_parallel_size"]}
        yield "stages without a type", "model", {"pipeline_dtype": None}


def check_layout(tally, folder, torch, classes, name, words):
    plan_file, script, recipe = (os.path.join(folder, "a." + ending) for ending in ("json", "sh", "py"))
    outcomes = [harness.zplan(*words, "-o", plan_file), harness.zplan("export", "megatron", plan_file, "-o", script),
                harness.zplan("export", "megatron-bridge", plan_file, "-o", recipe)]
    if not tally.check(name + ": exported", all(outcome.status == 0 for outcome in outcomes), " ".join(outcome.tail() for outcome in outcomes if outcome.status)):
        return
    with open(plan_file, encoding="utf-8") as file:
        plan = json.load(file)
    with open(recipe, encoding="utf-8") as file:
        bridge = parts_of_recipe(read_recipe(file.read())[0], torch)
    arguments = parts_of_arguments(flags_of(script), torch, classes)
    fields, mixed = {}, bridge.get("mixed_precision", {})
    for part, cls in classes.items():
        core = {field.name for field in dataclasses.fields(cls)}
        unknown = bridge[part].keys() - core - (PROVIDER if part == "model" else set())
        tally.check("%s: fields of %s" % (name, part), not unknown, " ".join(sorted(unknown)))
        fields[part] = {key: value for key, value in {**bridge[part], **mixed}.items() if key in core - WITHOUT_ENGINE}
    objects = {}
    for part, cls in classes.items():
        (one, wrong), (other, wrong_too) = made(cls, arguments[part]), made(cls, fields[part])
        if tally.check("%s: %s is accepted" % (name, part), one and other, "%s; %s" % (wrong, wrong_too)):
            check_alike(tally, name, part, one, other)
            objects[part] = one
    if len(objects) < len(classes):
        return
    check_planned(tally, name, objects["model"], objects["ddp"], plan)
    for what, part, changed in contradictions(arguments["model"]):
        for program, given in (("Megatron-LM", arguments), ("Megatron-Bridge", fields)):
            thing, _ = made(classes[part], {**given[part], **changed})
            tally.check("%s: %s is rejected (%s)" % (name, what, program), thing is None)


def main():
    harness.require_zplan()
    tally = harness.Tally()
    warnings.simplefilter("ignore")
    import torch
    from megatron.core.distributed import DistributedDataParallelConfig
    from megatron.core.optimizer import OptimizerConfig
    from megatron.core.transformer.transformer_config import TransformerConfig
    classes = {"model": TransformerConfig, "optimizer": OptimizerConfig, "ddp": DistributedDataParallelConfig}
    for name, words in LAYOUTS:
        with harness.Scratch() as folder:
            check_layout(tally, folder, torch, classes, name, words)
    sys.exit(tally.finish())


if __name__ == "__main__":
    main()
