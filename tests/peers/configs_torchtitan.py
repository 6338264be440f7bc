#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `zplan export torchtitan` writes, read by torchtitan's own parser: degrees, batch, stages, optimizer, learning rate and recomputation
are those that were planned."""
import os
import subprocess
import sys

import training
from training import harness

GOLDEN = os.path.join(os.path.dirname(training.HERE), "interop", "golden", "llama3_8b.dz")
PINNED = {"tensor": 4, "pipeline": 2, "data": 8, "schedule": "1f1b", "recompute": "full", "zero": 2, "microbatch": 1, "cut": "layer"}


def words_of(path):
    """The array as bash reads it."""
    script = 'source "$1"; printf "%s\\n" "${TORCHTITAN_ARGS[@]}"'
    return subprocess.run(["bash", "-c", script, "bash", path], capture_output=True, text=True, check=True).stdout.split("\n")[:-1]


def main():
    harness.require_zplan()
    tally = harness.Tally()
    from torchtitan.config.manager import ConfigManager
    with harness.Scratch() as folder:
        path = os.path.join(folder, "llama.sh")
        pinned = [word for key, value in PINNED.items() for word in ("--set", "%s=%s" % (key, value))]
        outcome = harness.zplan("export", "torchtitan", GOLDEN, "--gpus", 64, *pinned, "-o", path)
        if tally.check("export torchtitan", outcome.status == 0, outcome.tail()):
            read = ConfigManager().parse_args(words_of(path))
            p, t, group = read.parallelism, read.training, read.optimizer.param_groups[0]
            for name, got, want in (
                    ("model", (read.model_spec.name, read.model_spec.flavor), ("llama3", "8B")),
                    ("degrees", (p.tensor_parallel_degree, p.pipeline_parallel_degree, p.data_parallel_replicate_degree, p.data_parallel_shard_degree), (4, 2, 1, 8)),
                    ("sharding", (p.fsdp_reshard_after_forward, p.enable_sequence_parallel, p.context_parallel_degree), ("never", True, 1)),
                    ("batch", (t.local_batch_size, t.global_batch_size, p.pipeline_parallel_microbatch_size, t.seq_len), (32, 256, 1, 8192)),
                    ("stages", (p.pipeline_parallel_schedule, t.disable_cuda_graphs), ("1F1B", True)),
                    ("precision and length", (t.mixed_precision_param, t.steps, t.max_norm), ("bfloat16", 10000, 1.0)),
                    ("optimizer", (group.optimizer_name, group.optimizer_kwargs), ("AdamW", {"lr": 3e-4, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1})),
                    ("learning rate", (read.lr_scheduler.warmup_steps, read.lr_scheduler.decay_type, read.lr_scheduler.min_lr_factor), (500, "cosine", 0.1)),
                    ("recomputation", type(read.activation_checkpoint).__qualname__, "FullAC.Config")):
                tally.check(name, got == want, "%s, not %s" % (got, want))
    sys.exit(tally.finish())


if __name__ == "__main__":
    main()
