# SPDX-License-Identifier: Apache-2.0
"""One training for zplan and for the programs that its plans are exported for: GPT-2, or Llama, of two layers in f32, 20 steps on two data
ranks. zplan trains it on CPU ranks; the same decisions are exported for two GPUs."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402

TORCH = os.path.join(os.path.dirname(HERE), "torch")
FILE, LLAMA, TEXT = os.path.join(TORCH, "gpt2.dz"), os.path.join(TORCH, "llama.dz"), os.path.join(TORCH, "text.txt")
RANKS, STEPS, HEADS = 2, 20, 4
BOUND = 1e-5
# A matrix of the MLP has 147,456 elements: more than the 100,000 below which DeepSpeed's ZeRO 3 leaves a parameter whole.
MODEL = {"model.layers": 2, "model.d": 192, "schedule": "constant()"}


def settings(zero, ranks=RANKS, **more):
    pinned = {**MODEL, "tensor": 1, "pipeline": 1, "data": ranks, "microbatch": 1, "zero": zero, "recompute": "none", **more}
    return [word for key, value in pinned.items() for word in ("--set", "%s=%s" % (key, value))]


def zplan_run(folder, zero, steps, ranks=RANKS, file=FILE, **more):
    """(outcome, log, checkpoints)"""
    name = "%s-%d-%d-%d" % (os.path.basename(file), zero, ranks, steps)
    log, checkpoints = os.path.join(folder, "log-%s.jsonl" % name), os.path.join(folder, "ck-" + name)
    outcome = harness.zplan("run", file, "--ranks", ranks, *settings(zero, ranks, **more), "--steps", steps, "--overwrite", "--log", log, "-o",
                            os.path.join(folder, "tree-" + name), "--", "--checkpoint", checkpoints)
    return outcome, log, checkpoints


def initial_weights(tally, folder, file=FILE):
    outcome, _, checkpoints = zplan_run(folder, 0, 0, file=file)
    if not tally.check("weights at the start", outcome.status == 0, outcome.tail()):
        return None
    return os.path.join(harness.step_folder(checkpoints, 0), "model.safetensors")


def zplan_losses(tally, folder, zero, ranks=RANKS, **more):
    """(losses, gradient norms) of zplan's own trainer, or None."""
    outcome, log, _ = zplan_run(folder, zero, STEPS, ranks, **more)
    if not tally.check("zplan trains ZeRO %d on %d ranks" % (zero, ranks), outcome.status == 0, outcome.tail()):
        return None
    steps, _ = harness.read_log(log)
    return [step["loss"] for step in steps], [step["grad_norm"] for step in steps]


def export(tally, folder, program, zero, ending, ranks=RANKS, file=FILE, **more):
    path = os.path.join(folder, "%s-zero%d-%d.%s" % (os.path.basename(file), zero, ranks, ending))
    outcome = harness.zplan("export", program, file, "--machine", "dgx-a100", "--gpus", ranks, *settings(zero, ranks, **more), "-o", path)
    return path if tally.check("export %s of ZeRO %d for %d ranks" % (program, zero, ranks), outcome.status == 0, outcome.tail()) else None


def start_ranks(command, port, ranks=RANKS):
    """Processes with the variables of torch.distributed; their outcomes."""
    import concurrent.futures
    # Operations that the program compiles, once and for minutes, are not for quick_cxx.sh, which the harness names for trainers.
    common = {"CC": "cc", "CXX": "c++", "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
    start = lambda rank: harness.run([sys.executable, *command], timeout=1800, env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)})
    with concurrent.futures.ThreadPoolExecutor(ranks) as pool:
        return list(pool.map(start, range(ranks)))


def free_port():
    import socket
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def compare(tally, title, got, want):
    """got: {"losses", "norms"}. Losses fall, so that a training that stands still is none."""
    for key, values, bound in (("losses", want[0], BOUND), ("norms", want[1], 10 * BOUND)):
        if key == "norms" and not any(got[key]):
            continue  # the program does not say
        error = max(map(harness.number_error, got[key], values), default=1.0)
        complete = len(got[key]) == len(values) == STEPS
        tally.check("%s: %s" % (title, key), complete and error <= bound, "%.2e > %.0e" % (error, bound))
        print("%s: largest difference of %s %.2e" % (title, key, error), flush=True)
    tally.check(title + ": losses fall", got["losses"][-1] < got["losses"][0] - 1, str(got["losses"]))
