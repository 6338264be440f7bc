#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where pipelines of other programs are cut: the layers of every stage that `zplan import` pins, against DeepSpeed's own functions for every
partition_method, and against the modules that torchtitan's own function gives every part."""
import json
import os
import re
import sys

import training
from training import harness

MODELS = [("llama2-7b", 32, 4096, 11008, 32000), ("llama2-13b", 40, 5120, 13824, 32000)]  # layers, width, MLP, vocabulary


def pinned(outcome):
    found = re.search(r"^  cut += +(\[.*?\])", outcome.out, re.M)
    return json.loads(found.group(1)) if found else outcome.tail()


def check_deepspeed(tally, folder):
    from deepspeed.runtime.utils import partition_balanced, partition_uniform
    path = os.path.join(folder, "ds.json")
    with open(path, "w") as f:
        json.dump({"train_micro_batch_size_per_gpu": 1}, f)
    for model, layers, width, inner, vocabulary in MODELS:
        last = layers + 1
        weights = {"parameters": [vocabulary * width] + [4 * width ** 2 + 3 * width * inner + 2 * width] * layers + [(vocabulary + 1) * width],
                   "type:transformer": [0] + [1] * layers + [0], "type:decoder|embedding": [1] + [1] * layers + [0]}
        for stages in (2, 3, 5, 6, 7, 11, 16):
            for method in ("uniform", *weights):
                bounds = partition_balanced(weights[method], stages) if method in weights else partition_uniform(layers + 2, stages)
                want = [sum(0 < unit < last for unit in range(begin, end)) for begin, end in zip(bounds, bounds[1:])]
                outcome = harness.zplan("import", "deepspeed", path, "--model", model, "--gpus", stages, "--",
                                        "pipeline.stages=%d" % stages, "pipeline.partition_method=" + method)
                tally.check("%s, %d stages, %s" % (model, stages, method), pinned(outcome) == want, "%s, not %s" % (pinned(outcome), want))


def check_torchtitan(tally, folder):
    from torchtitan.distributed.pipeline_parallel import _generate_llm_fqn_per_model_part
    for stages, begin, end in ((2, 1, 1), (3, 0, 2), (4, 1, 1), (5, 2, 1), (8, 1, 1)):
        parts = _generate_llm_fqn_per_model_part(stages, 32, begin, end)
        want = [sum(name.startswith("layers.") for name in part) for part in parts]
        for how, keys in (("names", "module_fqns_per_model_part = %s" % json.dumps(parts)),
                          ("sizes", "pipeline_parallel_first_stage_less_layers = %d\npipeline_parallel_last_stage_less_layers = %d" % (begin, end))):
            path = os.path.join(folder, "titan.toml")
            with open(path, "w") as f:
                f.write('[model]\nname = "llama3"\nflavor = "8B"\n[parallelism]\npipeline_parallel_degree = %d\n%s\n' % (stages, keys))
            outcome = harness.zplan("import", "torchtitan", path, "--gpus", stages)
            tally.check("torchtitan, %d stages by %s" % (stages, how), pinned(outcome) == want, "%s, not %s" % (pinned(outcome), want))


def main():
    harness.require_zplan()
    tally = harness.Tally()
    with harness.Scratch() as folder:
        check_deepspeed(tally, folder)
        check_torchtitan(tally, folder)
    sys.exit(tally.finish())


if __name__ == "__main__":
    main()
