#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gradient_sums = "bf16_stochastic": sums of gradients in bf16 are right on average, and as far off as the plan says at most.

    stochastic_sums.py [--verbose]

All samples of a batch are the same one, as in sums.py: rounded to the nearest, a sum in bf16 would stand still at 256 times its addend. One
step of SGD at a rate of 1,024 shows every element of the gradient in the f32 masters.

1. 1 to 4,096 micro-batches (by turns; 256 always), bf16 and fp16, against the same training with sums in f32, whose addends have the same bits, and whose norm is
   that of f64 (sums.py): no element is off by 6 sqrt(n)/256 of its addends (a probability of 3e-8), the root mean square of what
   elements are off is the plan's standard deviation at most, and their mean is within 4 of its deviations of 0.
2. Ties of two stages, ZeRO 2 and 3, a backward in two parts, parts of tensor ranks, an emulated GPU: the same.
3. Numbers are drawn by elements of logical tensors: stages, and ZeRO 3 in place of 2, train the same bits but for tied words.
4. A training that goes on has the bits of one that never stopped.
5. A sum over stages that tensor ranks add as well counts as two additions; every element of it is right on average.
6. What it does not go with is rejected with a message; the verifier recomputes memory and bound.
Every run has --check-memory: arena and bytes are the plan's.
"""
import argparse
import json
import math
import os
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402
import sums  # noqa: E402
import trainings  # noqa: E402

STOCHASTIC = {"gradient_sums": "bf16_stochastic"}
RATE, U = 1024, 1 / 256
TIED = "wte"
SGD = {"optimizer": trainings.Expression("sgd(lr = %d)" % RATE)}
# name: tensor, pipeline, data, settings, words
PLACES = {
    "one rank": (1, 1, 1, {}, ()),
    "ties of two stages": (1, 2, 1, {}, ()),
    "ZeRO 2": (1, 1, 2, {}, ()),
    "ZeRO 3": (1, 1, 2, {"zero": 3}, ()),
    "ZeRO 3, ties": (1, 2, 2, {"zero": 3}, ()),
    "split backward": (1, 2, 1, {"schedule": "zb_h1"}, ()),
    "parts of tensor ranks": (2, 1, 1, {"sequence": True}, ()),
    "emulated GPU": (1, 1, 1, {"model.layers": 1}, sums.GPU),
    "emulated GPUs, ZeRO 3": (1, 1, 2, {"model.layers": 1, "zero": 3}, sums.GPU),
}
# By turns one group whole, of the others the first.
GROUPS = (("split backward", "ties of two stages", "one rank"), ("ZeRO 3, ties", "ZeRO 2", "ZeRO 3"), ("emulated GPUs, ZeRO 3", "emulated GPU"),
          ("parts of tensor ranks",))
TWINS = (("one rank", "ties of two stages"), ("ZeRO 2", "ZeRO 3"), ("ties of two stages", "split backward"))  # the same bits
REFUSED = (
    (('precision="fp32"',), ("Z0627", "does not go with precision \"fp32\"")),
    (('precision="fp64"',), ("Z0627", "does not go with precision \"fp64\"")),
    (('optimizer=lamb(lr=1e-3)',), ("Z0627", "does not go with lamb")),
    (("zero=1",), ("Z0627", "those of ZeRO 2 and 3")),
    (('offload[gradients]="cpu"', "zero=2", "--cluster", "gpu"), ("Z0627", "stay on the device")),
    (("--for", "deepspeed", "--cluster", "gpu"), ("Z0627", "does not go with DeepSpeed")),
)


class Suite(sums.Suite):
    weights = {}

    def train(self, name, precision, ranks, batch, microbatch, settings=(), words=(), steps=1, keep=None, resume=False,
              model=os.path.join(HERE, "sums.dz")):
        """(norm, folder of the checkpoint, bound of the plan or None)"""
        self.runs += 1
        place = os.path.join(self.folder, "%d" % self.runs)
        keep = keep or place + "-ck"
        tensor, pipeline, data = ranks
        chosen = {"tensor": tensor, "pipeline": pipeline, "plan.data": data, "microbatch": microbatch, "batch": batch, "precision": precision,
                  "recompute": "none", "rank_order": "tdp", "cut": "layer", "zero": 2, "sequence": False, "loss_chunks": 1, "schedule": "1f1b",
                  **SGD}
        chosen.update(settings)
        command = ["run", model, "--ranks", tensor * pipeline * data, "-o", place, "--log", place + ".jsonl",
                   "--set", 'train.data=arrays("%s")' % self.data]
        for key, value in chosen.items():
            command += ["--set", "%s=%s" % (key, trainings.written(value))]
        outcome = harness.zplan(*command, *words, *(("--resume",) if resume else ()), "--steps", steps, "--threads", 1, "--check-memory",
                                "--", "--checkpoint", keep, env=trainings.ENVIRONMENT)
        self.tally.check(name, outcome.status == 0, outcome.tail())
        if outcome.status != 0:
            return None
        with open(os.path.join(place, "plan.json"), encoding="utf-8") as file:
            bound = json.load(file).get("gradient_sums")
        shutil.rmtree(place, ignore_errors=True)
        log = harness.read_log(place + ".jsonl")[0]
        return log[-1]["grad_norm"] if log else None, harness.step_folder(keep, steps), bound

    def gradient(self, before, trained):
        after, before = (harness.read_safetensors(os.path.join(one[1], "optimizer.safetensors")) for one in (trained, before))
        return {key: [(a - b) / RATE for a, b in zip(before[key][1], after[key][1])] for key in before if key.endswith(".master")}

    def compare_elements(self, name, got, want, bound, parts):
        """Elements whose addends are equal: their magnitudes add up to the sum. parts: some are sums of parts that may cancel, whose
        magnitudes are taken as the tensor's."""
        largest = max(abs(x) for values in want.values() for x in values)
        off = []
        for key, values in want.items():
            least = math.sqrt(sum(x * x for x in values) / len(values)) if parts else 0
            off += [(a - b) / max(abs(b), least) for a, b in zip(got[key], values) if abs(b) > largest * 1e-4]
        n, rms = bound["additions"], math.sqrt(sum(x * x for x in off) / len(off))
        mean, most = sum(off) / len(off), max(map(abs, off))
        noise = 1e-4  # what the masters' own rounding leaves
        if self.verbose:
            print("%-28s %d additions: root mean square %.4f of %.4f, mean %+.5f, at most %.4f of %.4f, %d elements" % (
                name, n, rms, bound["standard_deviation"], mean, most, 6 * math.sqrt(n) * U, len(off)), flush=True)
        self.tally.check(name + ": deviation", rms <= bound["standard_deviation"] + noise, "%g > %g" % (rms, bound["standard_deviation"]))
        self.tally.check(name + ": mean", abs(mean) <= 4 * rms / math.sqrt(len(off)) + noise, "%g, deviation %g of %d" % (mean, rms, len(off)))
        self.tally.check(name + ": every element", most <= 6 * math.sqrt(n) * U, "%g" % most)
        self.tally.check(name + ": rounded at all", n < 4 or rms > 1e-3, "%g" % rms)

    def initial(self, precision, ranks, microbatch, settings, words):
        """Weights before the first step, which no layout changes (layouts.py): of the first one that asks."""
        key = precision, settings.get("model.layers") if settings else None
        if key not in self.weights:
            self.weights[key] = self.train("initial, %s %s" % key, precision, ranks, max(ranks[2], 1), microbatch, settings, words, steps=0)
        return self.weights[key]

    def pair(self, name, precision, ranks, batch, microbatch, settings=(), words=()):
        before = self.initial(precision, ranks, microbatch, settings, words)
        exact = self.train(name + ", f32", precision, ranks, batch, microbatch, settings, words)
        rounded = self.train(name, precision, ranks, batch, microbatch, dict(settings, **STOCHASTIC), words)
        if not before or not exact or not rounded:
            return None
        self.tally.check(name + ": no bound without", exact[2] is None)
        want, got = self.gradient(before, exact), self.gradient(before, rounded)
        self.compare_elements(name, got, want, rounded[2], ranks[0] > 1)
        self.compare(name + ", norm", rounded[0], exact[0], rounded[2]["standard_deviation"] + 1e-4)
        return got


def check_resume(suite):
    adam = {"optimizer": trainings.Expression("adamw(lr = 1e-3)"), **STOCHASTIC}
    whole = suite.train("3 steps", "mixed_bf16", (1, 2, 1), 64, 4, adam, steps=3)
    kept = os.path.join(suite.folder, "kept")
    suite.train("1 step", "mixed_bf16", (1, 2, 1), 64, 4, adam, keep=kept)
    rest = suite.train("2 more", "mixed_bf16", (1, 2, 1), 64, 4, adam, steps=3, keep=kept, resume=True)
    for name in ("model.safetensors", "optimizer.safetensors"):
        suite.tally.check("1 + 2 steps are 3: %s" % name,
                          whole and rest and harness.same_bytes(os.path.join(whole[1], name), os.path.join(rest[1], name)))


def check_plans(suite):
    path = os.path.join(suite.folder, "plan.json")

    def plan(*words):
        given = [x for word in words for x in (("--set", word) if "=" in word else (word,))]
        cluster = () if "--cluster" in words else ("--cluster", "cpu")
        return harness.zplan("plan", os.path.join(HERE, "sums.dz"), *cluster, "--ranks", 2, "-o", path, "--force",
                             "--set", 'gradient_sums="bf16_stochastic"', *given)

    for words, parts in REFUSED:
        outcome = plan(*words)
        said = outcome.out + outcome.err
        suite.tally.check("refused: %s" % (words,), outcome.status != 0 and all(part in said for part in parts), outcome.tail(12))
    outcome = plan("plan.data=2", "tensor=1", "pipeline=1", "microbatch=4")
    said = " ".join(outcome.out.split())
    suite.tally.check("a plan says its bound", outcome.status == 0 and "256 additions an element at most: unbiased" in said and
                      "Connolly, Higham and Mary 2021" in said, outcome.tail())
    with open(path, encoding="utf-8") as file:
        good = json.load(file)
    # 128 micro-batches, and the word table at both ends of the model
    want = math.sqrt((1 + U * U) ** 256 - 1)
    bound = good.get("gradient_sums", {})
    suite.tally.check("the file says it", bound.get("additions") == 256 and abs(bound["standard_deviation"] / want - 1) < 1e-9 and
                      abs(bound["worst_case"] / ((1 + 2 * U) ** 256 - 1) - 1) < 1e-9, str(bound))
    suite.tally.check("it verifies", harness.zplan("verify", path).status == 0)
    for name, change, part in (("no bound", lambda p: p.pop("gradient_sums"), "the file says otherwise"),
                               ("another rounding", lambda p: p["gradient_sums"].update(rounding="nearest"), "nearest"),
                               ("fewer additions", lambda p: p["gradient_sums"].update(additions=100), "128 micro-batches add"),
                               ("a smaller deviation", lambda p: p["gradient_sums"].update(standard_deviation=want / 10), "may deviate"),
                               ("f32 shards", lambda p: p["stages"][0]["memory"].update(gradients=2 * p["stages"][0]["memory"]["gradients"]), "")):
        changed = json.loads(json.dumps(good))
        change(changed)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(changed, file)
        outcome = harness.zplan("verify", path)
        suite.tally.check("a file that says %s" % name, outcome.status != 0 and part in outcome.out + outcome.err, outcome.tail())


def with_shared_shift(suite):
    """The model with a parameter that all layers add: stages share it, and tensor ranks have its gradient by rows. Layers are narrow inside:
    their weights cost the time of check_bias, which looks at what is as wide as rows."""
    with open(os.path.join(HERE, "sums.dz"), encoding="utf-8") as file:
        model = file.read()
    for was, now in (("block layer(x: [B, S, d])", "block layer(x: [B, S, d], shift: [d])"), ("return a + proj", "return a + proj + shift"),
                     ("x = layer(x)", "x = layer(x, shift)"), ("linear(x, 3 * d,", "linear(x, 48,"),
                     ("linear(layer_norm(a), 2 * d,", "linear(layer_norm(a), 16,"), ("  param wpe:", "  param shift: [d] ~ normal(std = 0.2)\n  param wpe:")):
        suite.tally.check("the model has %s" % was, was in model)
        model = model.replace(was, now)
    path = os.path.join(suite.folder, "both.dz")
    with open(path, "w", encoding="utf-8") as file:
        file.write(model)
    return path


def check_both_sums(suite, path):
    """A parameter of two stages whose gradient tensor ranks have by rows is rounded twice more: its stages' sum, and the ranks'."""
    file_of_plan = os.path.join(suite.folder, "both.json")
    for sequence, additions in (("true", 8 + 2), ("false", 8 + 1)):
        given = ("tensor=2", "pipeline=2", "plan.data=1", "microbatch=128", "zero=2", 'recompute="none"', 'schedule="1f1b"', 'cut="layer"',
                 "sequence=%s" % sequence, 'gradient_sums="bf16_stochastic"')
        outcome = harness.zplan("plan", path, "--ranks", 4, "-o", file_of_plan, "--force", *sum((("--set", word) for word in given), ()))
        if suite.tally.check("a plan with both sums", outcome.status == 0, outcome.tail()):
            with open(file_of_plan, encoding="utf-8") as file:
                said = json.load(file)["gradient_sums"]["additions"]
            suite.tally.check("sequence = %s: additions" % sequence, said == additions, "%d, not %d" % (said, additions))


def check_bias(suite, path):
    """Sums over stages are right on average, element by element: by the numbers of an earlier rounding each is off by some of its spacing,
    up or down as its digits are, which no mean over elements shows. At a rate of 1e-30 weights stand still, every step has the same
    gradient, and momentum averages its roundings. Mean squares of elements' errors in 1,000 steps and in one, by what the weights of the 1,000
    leave of independent ones: 1 where sums are right, with a deviation of 0.2 (some 50 elements have most of the squares), so above 3 less than
    once in 10^6 drawings. Measured: 0.9 and 0.8; with the first addition's numbers
    for the ranks' sum 6.5 of the shift, for the stages' sum 10 and 17, with those of the ranks' for it 9.4 of the shift."""
    steps, momentum = 1000, 0.998
    weights = [momentum ** k for k in range(steps)]
    left = sum(w * w for w in weights) / sum(weights) ** 2
    wide = {"model.d": 256, "sequence": True, "optimizer": trainings.Expression("sgd(lr = 1e-30, momentum = %g)" % momentum)}
    runs = [suite.train("bias, %s" % name, "mixed_bf16", (2, 2, 1), 1, 1, dict(wide, **more), steps=n, model=path)
            for name, more, n in (("f32", {}, 1), ("one step", STOCHASTIC, 1), ("%d steps" % steps, STOCHASTIC, steps))]
    if not all(runs):
        return
    sums_of = [harness.read_safetensors(os.path.join(run[1], "optimizer.safetensors")) for run in runs]
    for name, rows in ((TIED, sorted(set(sums.TOKENS))), ("shift", (0,))):
        places = [row * 256 + k for row in rows for k in range(256)]
        want, one, many = ([one[name + ".momentum_buffer"][1][i] for i in places] for one in sums_of)
        single = sum((a - b) ** 2 for a, b in zip(one, want))
        ratio = sum((a / sum(weights) - b) ** 2 for a, b in zip(many, want)) / left / single
        if suite.verbose:
            print("bias of %-20s %d elements, mean squares %.2f" % (name, len(places), ratio), flush=True)
        suite.tally.check("bias of %s" % name, single > 0 and ratio < 3, "%g" % ratio)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--verbose", action="store_true")
    verbose = parser.parse_args().verbose
    harness.require_zplan()
    with harness.Scratch() as folder:
        suite = Suite(folder, verbose)
        check_plans(suite)
        both = with_shared_shift(suite)
        check_both_sums(suite, both)
        if harness.my_turn(0, 2):
            check_bias(suite, both)
        for precision, batches in (("mixed_bf16", (1, 16, 256, 4096)), ("mixed_fp16", (256,))):
            for n in batches:
                if n == 256 or harness.my_turn(batches.index(n), 3):
                    suite.pair("%s, %d micro-batches" % (precision, n), precision, (1, 1, 1), n, 1)
        got = {}
        for number, names in enumerate(GROUPS):
            for name in names if harness.my_turn(number, len(GROUPS)) else names[:1]:
                tensor, pipeline, data, settings, words = PLACES[name]
                got[name] = suite.pair(name, "mixed_bf16", (tensor, pipeline, data), 128, 1, settings, words)
        for a, b in (pair for pair in TWINS if set(pair) <= set(got)):
            same = got[a] and got[b] and all(got[a][key] == got[b][key] for key in got[a] if not key.startswith(TIED))
            suite.tally.check("%s and %s: the same bits" % (a, b), bool(same))
        check_resume(suite)
        return suite.tally.finish()


if __name__ == "__main__":
    sys.exit(main())
