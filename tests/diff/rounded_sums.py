#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reduce_dtype = "bf16"`: what a node's sum of gradients loses when it is rounded to leave the node.

    rounded_sums.py [--verbose]

A step of SGD at rate 1 changes every parameter by its gradient, so two checkpoints show it. The exact gradient g, and the parts g_k of it
that a node sums, come from f64 on one rank, over the samples of the part alone. Everything in f32 but what is rounded:

1. CPU ranks on two and four nodes, ZeRO 0 to 3, tensor ranks, a pipeline, one rank a node, nodes unevenly filled; an emulated NCCL and staged messages of
   emulated GPUs, which give the same bytes. Element by element |error| <= 2^-8 sum of |g_k| over the nodes but the one with the least (the owner's
   node rounds nothing) + NOISE max |g|, which is f32's own. ZeRO 2 and 3 send the sums of every micro-batch, whose bounds add up. The
   tied weight is left out where stages, or with ZeRO 2 and 3 units, have a part each, and each of them crosses. Without rounding the error is below the noise, and with it some
   element takes a third of the bound.
2. Bytes between nodes: 3/4 of those of f32 where the sums are gathered in f32, 2/3 where bf16 weights are. --check-memory holds every run
   to its plan to the byte.
3. 1 + 2 steps with --resume are 3 steps, byte for byte; without rounding the run goes on as well.
4. What is refused, and plan files that say something else than their sources.
"""
import argparse
import json
import os
import random
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402
import trainings  # noqa: E402
from sums import write_npy  # noqa: E402

ERROR, NOISE = 2.0**-8, 1e-4
BATCH, POSITIONS, WORDS = 12, 16, 61
NCCL = ("--cluster", "pairs", "--arch", "host", "--", "--comm", "nccl")
STAGED = ("--cluster", "pairs", "--arch", "host")
# Its first step is that of SGD without momentum.
ON_HOST = {"offload[optimizer]": "cpu", "offload[gradients]": "cpu", "optimizer": trainings.Expression("sgd(lr = 1.0, momentum = 0.5)")}
# name, (tensor, pipeline, data), nodes, samples of a micro-batch, settings, words
LAYOUTS = (
    ("ZeRO 0", (1, 1, 4), 2, 1, {}, ()),
    ("ZeRO 1", (1, 1, 4), 2, 1, {"zero": 1}, ()),
    ("ZeRO 2", (1, 1, 4), 2, 3, {"zero": 2}, ()),
    ("ZeRO 3", (1, 1, 4), 2, 3, {"zero": 3}, ()),
    ("ZeRO 3, three micro-batches", (1, 1, 4), 2, 1, {"zero": 3}, ()),
    ("one rank a node", (1, 1, 4), 4, 1, {"zero": 1}, ()),
    ("two ranks and one", (1, 1, 3), 2, 1, {"zero": 1}, ()),
    ("tensor ranks", (2, 1, 2), 2, 1, {}, ()),
    ("a pipeline", (1, 2, 2), 2, 1, {"rank_order": "tpd"}, ()),
    ("NCCL", (1, 1, 4), 2, 1, {}, NCCL),
    ("NCCL, ZeRO 1", (1, 1, 4), 2, 1, {"zero": 1}, NCCL),
    ("NCCL, ZeRO 3", (1, 1, 4), 2, 1, {"zero": 3}, NCCL),
    ("staged", (1, 1, 4), 2, 1, {"zero": 1}, STAGED),
    ("gradients on the host", (1, 1, 4), 2, 1, ON_HOST, NCCL),
    ("gradients on the host, ZeRO 1", (1, 1, 4), 2, 1, dict(ON_HOST, zero=1), NCCL),
    ("gradients on the host, ZeRO 2", (1, 1, 4), 2, 1, dict(ON_HOST, zero=2), NCCL),
)
STAGED_TWIN = LAYOUTS[10]  # whose messages are those of LAYOUTS[12]


def due():
    """Layouts whose turn it is, and every number of ranks, nodes and samples, ZeRO stage and way of messages."""
    chosen = trainings.in_turn(LAYOUTS, values=lambda one: {*enumerate(one[1]), ("nodes", one[2]), ("samples", one[3]), one[5],
                                                            *((key, str(value)) for key, value in one[4].items())}, among=3)
    return chosen + [STAGED_TWIN] * (LAYOUTS[12] in chosen and STAGED_TWIN not in chosen)


TIED = "wte"
REFUSED = (  # words, what the message has
    (('precision="fp64"',), ("Z0304", "`reduce_dtype = \"bf16\"` does not go with precision \"fp64\"")),
    (('reduce_dtype="fp16"',), ("Z0308", "\"fp32\", \"bf16\"")),
    (("compress=true",), ("Z0627", "compress", "leave `compress` or `reduce_dtype` out")),
    (("--for", "megatron"), ("Z0627", "Megatron-LM is planned without sums")),
    (("--for", "deepspeed"), ("Z0627", "DeepSpeed is planned without sums")),
    (("--for", "fsdp"), ("Z0627", "is planned without sums")),
    (("plan.data=3", "tensor=1", "pipeline=1", "batch=6", "zero=0", 'offload[optimizer]="cpu"', 'offload[gradients]="cpu"'),
     ("Z0601", "needs equally many data ranks in every node")),
)


class Suite:
    def __init__(self, folder, verbose):
        self.folder, self.verbose, self.tally, self.runs = folder, verbose, harness.Tally(), 0
        random.seed(5)
        rows = [[[random.randrange(WORDS) for _ in range(POSITIONS)] for _ in range(BATCH)] for _ in range(2)]
        self.rows, self.parts = rows, {}
        self.data = self.write(range(BATCH))

    def write(self, samples):
        place = os.path.join(self.folder, "data" + "-".join(map(str, samples)))
        os.makedirs(place)
        for name, rows in zip(("tokens", "labels"), self.rows):
            write_npy(os.path.join(place, name + ".npy"), [rows[sample] for sample in samples])
        return place

    def run(self, name, precision, ranks, steps=1, reduce=None, settings=(), words=(), data=None, batch=BATCH, keep=None):
        """(path of the last checkpoint's model, the log's end), or None, counted. keep: folder of its checkpoints, with --resume."""
        self.runs += 1
        place = os.path.join(self.folder, "%d" % self.runs)
        os.makedirs(place)
        tensor, pipeline, replicas = ranks
        chosen = {"tensor": tensor, "pipeline": pipeline, "plan.data": replicas, "microbatch": 1, "batch": batch, "precision": precision, "zero": 0,
                  "recompute": "none", "rank_order": "tdp", "cut": "layer", "schedule": "1f1b", "model.layers": 2, "dropout": 0, "clip": 0,
                  "sequence": False}
        chosen.update(settings)
        if reduce:
            chosen["reduce_dtype"] = reduce
        command = ["run", os.path.join(HERE, "gpt.dz"), "--ranks", tensor * pipeline * replicas, "-o", os.path.join(place, "tree"),
                   "--log", os.path.join(place, "log.jsonl"), "--set", 'train.data=arrays("%s")' % (data or self.data)]
        for key, value in chosen.items():
            command += ["--set", "%s=%s" % (key, trainings.written(value))]
        if "optimizer" not in chosen:
            command += ["--set", "optimizer=sgd(lr = 1.0)"]
        command += ["--set", "train.schedule=constant()"]
        end = words.index("--") if "--" in words else len(words)
        checkpoints = keep or os.path.join(place, "ck")
        command += [*words[:end], "--steps", steps, "--threads", 1, "--check-memory", *(["--resume"] if keep else []),
                    "--", "--checkpoint", checkpoints, *words[end + 1:]]
        outcome = harness.zplan(*command, env=trainings.ENVIRONMENT)
        shutil.rmtree(os.path.join(place, "tree"), ignore_errors=True)
        good = outcome.status == 0
        self.tally.check(name, good, "" if good else outcome.tail())
        if not good:
            return None
        _, last = harness.read_log(os.path.join(place, "log.jsonl")) if steps else (None, None)
        return os.path.join(harness.step_folder(checkpoints, steps), "model.safetensors"), last

    def gradient(self, name, precision, *arguments, **keywords):
        """{parameter: elements}"""
        after = self.run(name, precision, *arguments, **keywords)
        before = self.initial(precision)
        if not after or not before:
            return None
        after, before = harness.read_safetensors(after[0]), harness.read_safetensors(before[0])
        return {key: [a - b for a, b in zip(before[key][1], after[key][1])] for key in before}

    def initial(self, precision):
        if not hasattr(self, precision):
            setattr(self, precision, self.run("initial weights, " + precision, precision, (1, 1, 1), steps=0))
        return getattr(self, precision)

    def part(self, samples):
        """What these samples give to the gradient of the batch, in f64."""
        if samples not in self.parts:
            got = self.gradient("samples %s" % (samples,), "fp64", (1, 1, 1), batch=len(samples), data=self.write(samples))
            self.parts[samples] = got and {key: [x * len(samples) / BATCH for x in elements] for key, elements in got.items()}
        return self.parts[samples]

    def exact(self, replicas, nodes, microbatch, each):
        """g, and bounds of what rounding may do to it. each: micro-batches cross one by one."""
        of_replica, in_node = BATCH // replicas, replicas // nodes
        batches = of_replica // microbatch if each else 1
        samples = of_replica // batches
        whole, bound = {}, {}
        for b in range(batches):
            parts = [self.part(tuple(of_replica * d + samples * b + i for d in range(k * in_node, (k + 1) * in_node) for i in range(samples)))
                     for k in range(nodes)]
            if not all(parts):
                return None
            for key in parts[0]:
                elements = list(zip(*(part[key] for part in parts)))
                zeros = [0] * len(elements)
                whole[key] = [w + sum(x) for w, x in zip(whole.get(key, zeros), elements)]
                bound[key] = [w + ERROR * (sum(map(abs, x)) - min(map(abs, x))) for w, x in zip(bound.get(key, zeros), elements)]
        return whole, bound

    def compare(self, name, got, exact, rounds, but=()):
        """Every element within the bound, or without rounding within the noise; the share of the bound that some element takes."""
        if not got or not exact:
            return
        whole, bound = exact
        worst, used = 0.0, 0.0
        for key in set(whole) - set(but):
            noise = NOISE * max(map(abs, whole[key]))
            for x, want, allowed in zip(got[key], whole[key], bound[key]):
                error = abs(x - want)
                worst = max(worst, error / (noise + (allowed if rounds else 0)))
                if rounds and allowed > 20 * noise:
                    used = max(used, error / allowed)
        if self.verbose:
            print("%-24s %s: at most %.2f of what is allowed; of the bound alone %.2f" % (name, "rounded" if rounds else "f32", worst, used), flush=True)
        self.tally.check(name, worst <= 1, "an element is off by %.2f of what is allowed" % worst)
        self.tally.check(name + ": rounded at all", not rounds or used > 1 / 3, "no element takes a third of the bound: %.2f" % used)


def check_gradients(suite):
    whole = suite.gradient("f64 at once", "fp64", (1, 1, 1))
    results = {}
    for number, (name, ranks, nodes, microbatch, settings, words) in enumerate(due()):
        chosen = dict(settings, microbatch=microbatch, **({} if words else {"cluster.nodes": nodes}))
        sums = nodes if ranks[2] % nodes == 0 else ranks[2]  # of unevenly filled nodes every rank's own gradients cross
        exact = suite.exact(ranks[2], sums, microbatch, settings.get("zero", 0) >= 2)
        if whole and exact:
            worst = max(abs(a - b) for key in whole for a, b in zip(whole[key], exact[0][key]))
            suite.tally.check("%s: the nodes' gradients add up" % name, worst < 1e-12, "off by %g" % worst)
        for reduce in ("bf16",) if words or not harness.my_turn(number, 3) else ("bf16", None):
            got = suite.gradient(name, "fp32", ranks, reduce=reduce, settings=chosen, words=words)
            suite.compare(name, got, exact, bool(reduce), (TIED,) if ranks[1] > 1 or settings.get("zero", 0) >= 2 else ())
            results[name, reduce] = got
    if ("staged", "bf16") in results:
        suite.tally.check("staged messages are NCCL's sums", results["staged", "bf16"] == results["NCCL, ZeRO 1", "bf16"])


def check_bytes(suite):
    adam = {"optimizer": trainings.Expression("adamw(lr = 3e-3)"), "cluster.nodes": 2}
    for number, (name, precision, zero, share) in enumerate((("bf16, ZeRO 1", "mixed_bf16", 1, 2 / 3), ("ZeRO 0", "fp32", 0, 3 / 4),
                                                             ("ZeRO 1", "fp32", 1, 3 / 4), ("fp16, ZeRO 0", "mixed_fp16", 0, 3 / 4))):
        if not harness.my_turn(number, 2):
            continue
        ends = [suite.run("bytes, " + name, precision, (1, 1, 4), 2, reduce, dict(adam, zero=zero)) for reduce in ("bf16", None)]
        if all(ends):
            rounded, plain = (end[1]["across_bytes"]["data"] for end in ends)
            suite.tally.check("bytes between nodes, " + name, abs(rounded / plain - share) < 1e-9, "%g of %g" % (rounded, plain))
    one = suite.run("nothing crosses", "fp32", (1, 1, 2), 2, "bf16", {"optimizer": trainings.Expression("adamw(lr = 3e-3)")})
    two = suite.run("nothing crosses, f32", "fp32", (1, 1, 2), 2, None, {"optimizer": trainings.Expression("adamw(lr = 3e-3)")})
    if one and two:
        suite.tally.check("nothing is rounded where nothing crosses", harness.same_bytes(one[0], two[0]))


def check_resuming(suite):
    settings = {"optimizer": trainings.Expression("adamw(lr = 3e-3)"), "cluster.nodes": 2, "zero": 1}
    at_once = suite.run("3 steps", "fp32", (1, 1, 4), 3, "bf16", settings)
    keep = os.path.join(suite.folder, "kept")
    first = suite.run("1 step", "fp32", (1, 1, 4), 1, "bf16", settings, keep=keep)
    copy = shutil.copytree(keep, keep + "-f32")
    rest = suite.run("2 more", "fp32", (1, 1, 4), 3, "bf16", settings, keep=keep)
    if at_once and first and rest:
        suite.tally.check("1 + 2 steps are 3", harness.same_bytes(at_once[0], rest[0]))
    suite.run("2 more without rounding", "fp32", (1, 1, 4), 3, None, settings, keep=copy)


def plan(path, *words):
    settings = [word for one in words for word in (("--set", one) if "=" in one else (one,))]
    return harness.zplan("plan", os.path.join(HERE, "gpt.dz"), "--cluster", "pairs", "--ranks", 4, "-o", path, "--set", 'reduce_dtype="bf16"', *settings)


def check_refusals(suite):
    path = os.path.join(suite.folder, "plan.json")
    for words, parts in REFUSED:
        words = tuple(word for word in words if not word.startswith("reduce_dtype"))
        if parts[0] == "Z0308":
            outcome = harness.zplan("plan", os.path.join(HERE, "gpt.dz"), "--cluster", "pairs", "--ranks", 4, "--set", 'reduce_dtype="fp16"')
        else:
            precision = () if any("precision" in word for word in words) else ('precision="mixed_bf16"',)
            outcome = plan(path, *precision, *words)
        said = outcome.out + outcome.err
        suite.tally.check("refused: %s" % (words,), outcome.status != 0 and all(part in said for part in parts), outcome.tail(12))
    outcome = plan(path, 'precision="mixed_bf16"', "plan.data=4", "tensor=1", "pipeline=1")
    suite.tally.check("a plan says its bound", outcome.status == 0 and "at most 1/256 of the magnitudes" in " ".join(outcome.out.split()), outcome.tail())
    with open(path) as file:
        good = json.load(file)
    suite.tally.check("the file says it", good.get("reduce_dtype") == {"between_nodes": "bf16", "relative_error": ERROR}, str(good.get("reduce_dtype")))
    suite.tally.check("it verifies", harness.zplan("verify", path).status == 0)
    for name, said in (("nothing", None), ("fp16", {"between_nodes": "fp16", "relative_error": ERROR}),
                       ("another bound", {"between_nodes": "bf16", "relative_error": ERROR / 2})):
        changed = dict(good, reduce_dtype=said)
        if said is None:
            del changed["reduce_dtype"]
        with open(path, "w") as file:
            json.dump(changed, file)
        outcome = harness.zplan("verify", path)
        said = outcome.out + outcome.err
        suite.tally.check("a file that says %s" % name, outcome.status != 0 and ("leave nodes" in said or "relative_error" in said), outcome.tail())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--verbose", action="store_true")
    verbose = parser.parse_args().verbose
    harness.require_zplan()
    with harness.Scratch() as folder:
        suite = Suite(folder, verbose)
        check_refusals(suite)
        check_gradients(suite)
        check_bytes(suite)
        check_resuming(suite)
        return suite.tally.finish()


if __name__ == "__main__":
    sys.exit(main())
