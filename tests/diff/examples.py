#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the examples promise: parameter counts, published plans and those found, the trillion-parameter plan within memory, sound plan files,
and generated C that is short, free of warnings and the same every time."""
import glob
import json
import os
import re
import resource
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402

def gpt_parameters(layers, d, words, positions):
    """GPT-2's: two norms, attention of 4 d^2, an MLP of 8 d^2 and their biases in a layer; tied embeddings, a last norm."""
    return layers * (12 * d * d + 13 * d) + (words + positions + 2) * d


def u_parameters(half, d, positions, patch):
    """Layers of 12 d^2 + 13 d, half of them up, one in the middle; a product of 2 d columns before each one up; patches in and out, positions, a norm."""
    return (2 * half + 1) * (12 * d * d + 13 * d) + half * (2 * d * d + d) + 2 * patch * d + d + patch + (positions + 2) * d


PARAMETERS = {"gpt2": 124439808, "gpt1t": 1084659961856, "mixtral_8x7b": 46702792704,
              "dbrx_132b": 131596523520, "bert": 109514298 - 768, "bert_pretraining": 110106428, "bert_squad": 108893186,
              "gemma2_2b": 2024517888 + 256000 * 2304, "qwen3_0_6b": 596049920, "vit_b16": 86567656,
              "llama_7b_lora": 6738415616 + 16777216, "megatron_8b": gpt_parameters(72, 3072, 51200, 1024),
              "tnlg_17b": gpt_parameters(78, 4256, 51200, 1024), "t5_small": 60506624, "t5_11b": 11307321344,
              "mixer_b16": 59880472, "uvit_tiny": u_parameters(2, 64, 16, 48), "deepseek_v3": 671026404352 + 58 * 256}
# Billions as published: arXiv 1909.08053, table 2, which pads GPT-2's words to 51,200; Microsoft Research blog, 10 February 2020.
PUBLISHED = {"megatron_8b": "8.3", "megatron_8b of 2.5 billion": "2.5", "tnlg_17b": "17"}
# T5's are what transformers 5.24 counts for the configurations of google-t5/t5-small and t5-11b.
# DeepSeek-V3's are what transformers 5.24 counts for its default configuration, and the biases of the gates, which it does not count.
# MLP-Mixer: arXiv 2105.01601, table 1 has 59 million for B/16.
# torchvision's documentation has vit_b_16 with 86,567,656 parameters and vit_l_16 with 304,326,632, for 1,000 classes at 224.
# What published models of the same layers have. Gemma 2: arXiv 2408.00118, table 2, without the embedding, with its 256,000 rows;
# BERT-Large with its masked-language head has two segments: one embedding more than ours.
OTHER_SIZES = {("megatron_8b", "megatron_8b of 2.5 billion"): ("layers=54 d=1920 heads=20", gpt_parameters(54, 1920, 51200, 1024)),
               ("bert", "BERT-Large"): ("layers=24 d=1024 heads=16", 335174458 - 1024),
               ("bert_pretraining", "BERT-Large and next sentences"): ("layers=24 d=1024 heads=16", 336226108),
               ("vit_b16", "ViT-L/16"): ("layers=24 d=1024 heads=16", 304326632),
               ("gemma2_2b", "Gemma 2 9B"): ("pairs=21 d=3584 heads=16 kv_heads=8 ff=14336", 8324201984 + 256000 * 3584)}
TRAINERS = {"gpt_tiny": (1, 4), "vit_tiny": (1, 4), "llama_tiny": (1, 4), "moe_tiny": (1, 4), "gpt_long": (1, 2), "gpt2": (1, 2)}
MAX_LINES = 1200
MAX_PLAN_S, MAX_BUILD_S = 10, 15  # of processor time: how fast it is tests/bench/search_speed.sh prints, this only catches blow-ups
V100_BYTES = 32 * 10**9
WARNINGS = ["-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-fsyntax-only"]


def zplan(*arguments, **keywords):
    """From the repository's root, so that the paths in a .dz file stay relative in what is generated."""
    return harness.zplan(*arguments, cwd=harness.ROOT, **keywords)


def example(name):
    return os.path.join("examples", name + ".dz")


def check_counts(tally):
    for name, count in PARAMETERS.items():
        outcome = zplan("check", example(name), "--json")
        found = json.loads(outcome.out)["parameters"] if outcome.status == 0 else outcome.tail()
        tally.check("%s has %d parameters" % (name, count), found == count, "%s" % found)
    for (name, title), (settings, count) in OTHER_SIZES.items():
        outcome = zplan("check", example(name), "--json", *(word for s in settings.split() for word in ("--set", "model." + s)))
        tally.check("%s has %d parameters" % (title, count),
                    outcome.status == 0 and json.loads(outcome.out)["parameters"] == count, outcome.tail())


    counts = dict(PARAMETERS, **{title: count for (_, title), (_, count) in OTHER_SIZES.items()})
    for name, billions in PUBLISHED.items():
        digits = len(billions.partition(".")[2])
        tally.check("%s is published as %s billion" % (name, billions), "%.*f" % (digits, counts[name] / 1e9) == billions, "%d" % counts[name])


def check_published(tally):
    """The plans that were published fit, and the best ones are no slower."""
    for name, gpus, settings in (("megatron_8b", 512, ("tensor=8", "pipeline=1", "zero=0")), ("tnlg_17b", 256, ("tensor=4", "pipeline=1", "zero=1"))):
        seconds = []
        for words in (settings, ()):
            outcome = zplan(example(name), "--gpus", gpus, "--json", *(word for s in words for word in ("--set", s)))
            if not tally.check("%s plans on %d GPUs %s" % (name, gpus, " ".join(words)), outcome.status == 0, outcome.tail()):
                return
            seconds.append(json.loads(outcome.out)["estimate"]["step_s"])
        tally.check("%s: the best plan is no slower than the published one" % name, seconds[1] <= seconds[0], "%s" % seconds)


def processor_seconds():
    """What commands that have ended took."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime


def check_trillion(tally, folder):
    plan_file = os.path.join(folder, "gpt1t.json")
    before = processor_seconds()
    outcome = zplan(example("gpt1t"), "--gpus", 800, "-o", plan_file)
    seconds = processor_seconds() - before
    if not tally.check("gpt1t plans", outcome.status == 0, outcome.tail()):
        return
    tally.check("gpt1t plans within %d s of processor time" % MAX_PLAN_S, seconds < MAX_PLAN_S, "%.2f s" % seconds)
    with open(plan_file, encoding="utf-8") as file:
        plan = json.load(file)
    degrees, peak = plan["degrees"], plan["estimate"]["peak_bytes"]
    tally.check("gpt1t uses 800 GPUs", degrees["tensor"] * degrees["pipeline"] * degrees["data"] == 800, "%s" % degrees)
    tally.check("gpt1t fits a V100 with 32 GB", 0 < peak <= V100_BYTES, "%d bytes" % peak)
    tally.check("gpt1t rejects with reasons", sum(plan["rejected"].values()) > 0, "%s" % plan["rejected"])
    print("gpt1t: planned in %.2f s of processor time, tensor %d x pipeline %d x data %d, peak %.1f GB a GPU, step %.1f s (estimate)" % (
        seconds, degrees["tensor"], degrees["pipeline"], degrees["data"], peak / 1e9, plan["estimate"]["step_s"]))
    check_verify(tally, plan_file, plan)


def check_verify(tally, plan_file, plan):
    outcome = zplan("verify", plan_file)
    tally.check("the plan verifies", outcome.status == 0, outcome.tail())
    def segment(p):
        return max(p["program"]["segments"], key=lambda s: s["count"])

    def transient(p):
        return next(b for b in reversed(segment(p)["forward"]["buffers"]) if b["place"] == "transient" and b["offset"] > 0)

    tampered = {
        "tensor degree": lambda p: p["degrees"].update(tensor=2 * p["degrees"]["tensor"]),
        "count of layers": lambda p: p["stages"][0].update(units=p["stages"][0]["units"] - 1),
        "arena size": lambda p: p["stages"][0]["arena"].update(bytes=p["stages"][0]["arena"]["bytes"] - 4096),
        "place of a buffer": lambda p: transient(p).update(offset=0),
        "list of steps": lambda p: segment(p)["backward"]["steps"].pop(),
    }
    for what, change in tampered.items():
        copy = json.loads(json.dumps(plan))
        change(copy)
        path = os.path.join(os.path.dirname(plan_file), "tampered.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(copy, file)
        outcome = zplan("verify", path)
        said = (outcome.out + outcome.err).strip()
        tally.check("a plan with another %s is rejected" % what, outcome.status == 1 and bool(said), "exit %d" % outcome.status)


def build(name, ranks, tree, **keywords):
    return zplan("build", example(name), "--ranks", ranks, "-o", tree, **keywords)


def compile_strictly(source):
    includes = ["-I" + os.path.join(harness.ROOT, part, "include") for part in ("runtime", "kernels")]
    return harness.run(["cc"] + WARNINGS + includes + [source])


def check_trainer(tally, folder, name, ranks):
    title = "%s on %d ranks" % (name, ranks)
    trees = [os.path.join(folder, "%s-%d-%s" % (name, ranks, turn)) for turn in "ab"]
    before = processor_seconds()
    # What is generated has to be the same, whatever compiles it. The second time kernels are kept (ZPLAN_KEPT_KERNELS).
    loads = {"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": trees[1] + "-loads"}
    outcomes = [build(name, ranks, trees[0]), build(name, ranks, trees[1], env=dict(harness.QUICK, **loads))]
    seconds = (processor_seconds() - before) / len(trees)
    for outcome in outcomes:
        if not tally.check(title + " builds", outcome.status == 0, outcome.tail()):
            return
    tally.check(title + ": no warning while building", "warning" not in outcomes[0].err, outcomes[0].tail())
    tally.check(title + ": built within %d s of processor time" % MAX_BUILD_S, seconds < MAX_BUILD_S, "%.1f s" % seconds)
    for file in ("trainer.c", "kernels.o", "plan.json"):
        same = harness.same_bytes(*[os.path.join(tree, file) for tree in trees])
        tally.check("%s: %s twice the same" % (title, file), same)
    loaded = [open(path, encoding="utf-8").read() for path in glob.glob(trees[1] + "-loads.*")]
    tally.check(title + ": kept kernels are taken without LLVM", loaded and not any("libLLVM" in text for text in loaded))
    source = os.path.join(trees[0], "trainer.c")
    with open(source, encoding="utf-8") as file:
        text = file.read()
    lines = text.count("\n")
    tally.check(title + ": fewer than %d lines" % MAX_LINES, lines < MAX_LINES, "%d" % lines)
    places = re.findall(r'"/[^"]*"', text)
    tally.check(title + ": no absolute path", not places, "%s" % places[:3])
    strict = compile_strictly(source)
    tally.check(title + ": no warning", strict.status == 0, strict.tail())
    print("%s: trainer.c %d lines, built in %.1f s" % (title, lines, seconds))


def check_mends(tally, folder):
    """The U between two ranks: it finds the pattern of the made-up images, and alongside it the noise, uniform in -1 .. 1, of the numbers that it sees: better than
    the variance of the noise, 1/3, which the pattern alone leaves."""
    log = os.path.join(folder, "u.jsonl")
    outcome = zplan("run", example("uvit_tiny"), "--ranks", 2, "--set", "pipeline=2", "--set", "plan.data=1", "--steps", 40, "-o", os.path.join(folder, "u"), "--log", log, "--", "--checkpoint",
                    os.path.join(folder, "u-ck"), env=dict(harness.QUICK, **harness.LAUNCH))
    if not tally.check("uvit_tiny trains", outcome.status == 0, outcome.tail()):
        return
    steps, _ = harness.read_log(log)
    losses = [record["loss"] for record in steps]
    with open(log, encoding="utf-8") as lines:
        validated = [event["loss"] for event in map(json.loads, lines) if event.get("event") == "validate"]
    tally.check("uvit_tiny mends images that it has not seen", losses[0] > 1 / 2 and len(validated) == 2 and validated[-1] < 0.3, "%s, %s" % (losses[:1], validated))
    print("uvit_tiny: loss %.3f at first, %.3f of unseen images in the end" % (losses[0], validated[-1] if validated else float("nan")))


def main():
    harness.require_zplan()
    tally = harness.Tally()
    with harness.Scratch() as folder:
        check_counts(tally)
        check_published(tally)
        check_trillion(tally, folder)
        check_mends(tally, folder)
        for number, (name, counts) in enumerate(TRAINERS.items()):
            for i, ranks in enumerate(counts):
                if harness.my_turn(number + i, len(counts)):
                    check_trainer(tally, folder, name, ranks)
        return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
