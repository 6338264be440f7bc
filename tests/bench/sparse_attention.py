"""Training steps of examples/gpt_long.dz, with its pattern and without, in turn on one rank: medians and ratio.

    sparse_attention.py ROUNDS MOST_POSITIONS
"""
import os
import re
import statistics
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402

EXAMPLE = os.path.join(harness.ROOT, "examples", "gpt_long.dz")
STEPS, LAYERS = 2, 2  # a step in which memory is touched for the first time, and one that counts


def without_pattern(folder):
    with open(EXAMPLE, encoding="utf-8") as file:
        text, count = re.subn(r", pattern = near_and_first\b", "", file.read())
    if count != 1:
        sys.exit("sparse_attention.py: gpt_long.dz has another pattern")
    text = text.replace('"gpt2.dz"', '"%s"' % os.path.relpath(os.path.join(harness.ROOT, "examples", "gpt2.dz"), os.path.realpath(folder)))
    path = os.path.join(folder, "dense.dz")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def build(source, positions, tree):
    outcome = harness.zplan("build", source, "--ranks", 1, "--set", "model.S=%d" % positions, "--set", "model.layers=%d" % LAYERS,
                            "--set", "batch=1", "--set", "steps=%d" % STEPS, "--set", "schedule=constant", "--set",
                            "data=synthetic(seed = 1)", "-o", tree)
    if outcome.status != 0:
        sys.exit(outcome.tail())
    return outcome.out.strip().splitlines()[-1]


def step_ms(trainer, log):
    outcome = harness.run([trainer, "--log", log])
    if outcome.status != 0:
        sys.exit(outcome.tail())
    return harness.read_log(log)[0][-1]["step_ms"]


def main():
    rounds, most = int(sys.argv[1]), int(sys.argv[2])
    print("%6s  %12s %12s   %s" % ("length", "dense ms", "sparse ms", "ratio of training steps, %d layers of gpt_long" % LAYERS))
    with harness.Scratch() as folder:
        sources = without_pattern(folder), EXAMPLE
        positions = 1024
        while positions <= most:
            trainers = [build(source, positions, os.path.join(folder, "%d_%d" % (positions, i))) for i, source in enumerate(sources)]
            times = ([], [])
            for _ in range(rounds):
                for trainer, one in zip(trainers, times):
                    one.append(step_ms(trainer, os.path.join(folder, "log.jsonl")))
            dense, sparse = map(statistics.median, times)
            print("%6d  %12.1f %12.1f   %.2f" % (positions, dense, sparse, dense / sparse), flush=True)
            positions *= 2


if __name__ == "__main__":
    main()
