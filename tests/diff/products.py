#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which library multiplies the matrices of CPU ranks, and what a trainer says about it:

- without a variable its kernels are as wide as the processor, in f32, bf16 and f64; log, screen and `zplan doctor` name them;
- a user's OPENBLAS_CORETYPE and --products win, and kernels that are narrower than the processor are warned of;
- both libraries train the same model: f32 within the bound of layouts, the same bits when run again.
"""
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402

STEPS = 6
# Two libraries add the same products in other orders, as two layouts do (layouts.py: losses of f32 within 1e-5).
SAME_LOSS = 1e-5
UNSET = ("OPENBLAS_CORETYPE", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")


def processor():
    """The features that kernels are made for, as Linux lists them."""
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        flags = next((set(line.split()) for line in lines if line.startswith("flags")), set())
    wide = {"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"}
    return {"avx2": {"avx2", "fma"} <= flags, "avx512": {"avx2", "fma"} | wide <= flags,
            "bf16": {"avx2", "fma", "avx512_bf16"} | wide <= flags}


def build(folder, precision):
    tree = os.path.join(folder, precision)
    outcome = harness.zplan("build", os.path.join(HERE, "gpt.dz"), "-o", tree, "--set", "tensor=1", "--set", "pipeline=1",
                            "--set", "plan.data=1", "--set", 'precision="%s"' % precision, "--ranks", 1)
    return os.path.join(tree, "trainer"), outcome


def train(folder, trainer, *words, **variables):
    """(outcome, the log's start event, losses)"""
    log = os.path.join(folder, "log.jsonl")
    outcome = harness.run([trainer, "--steps", STEPS, "--threads", 1, "--log", log, "--no-progress", *words], env=variables)
    if outcome.status:
        return outcome, {}, []
    with open(log, encoding="utf-8") as lines:
        start = json.loads(lines.readline())
    return outcome, start, [record["loss"] for record in harness.read_log(log)[0]]


def wide(has, kernels):
    """Are these kernels as wide as the processor?"""
    names = {"avx512": ("avx512_core", "Cooperlake", "SkylakeX", "SapphireRapids"),
             "avx2": ("avx2", "avx512_core", "Haswell", "Zen", "Cooperlake", "SkylakeX", "SapphireRapids")}
    feature = "avx512" if has["avx512"] else "avx2" if has["avx2"] else None
    return feature is None or any(name in kernels for name in names[feature])


def check_precision(tally, folder, has, precision):
    trainer, built = build(folder, precision)
    if not tally.check("%s: built" % precision, built.status == 0, built.tail()):
        return None
    outcome, start, losses = train(folder, trainer)
    products = start.get("products", "")
    tally.check("%s: kernels are as wide as the processor" % precision, wide(has, products) and "warning" not in outcome.err,
                "%s\n%s" % (products, outcome.tail()))
    tally.check("%s: the screen names them" % precision, products and "products by %s, from" % products in outcome.out, outcome.tail(20))
    again = train(folder, trainer)[2]
    tally.check("%s: the same bits again" % precision, losses and losses == again, "%s\n%s" % (losses, again))
    return trainer


def check_libraries(tally, folder, trainer):
    """Both libraries, where the machine has both."""
    losses = {}
    for library, name in (("openblas", "OpenBLAS"), ("onednn", "oneDNN")):
        outcome, start, losses[library] = train(folder, trainer, "--products", library)
        if library == "onednn" and "error[Z0854]" in outcome.err:
            print("note: oneDNN is not on this machine")
            return
        tally.check("f32: --products %s" % library, start.get("products", "").startswith(name + " "), "%s\n%s" % (start, outcome.tail()))
    worst = max(map(harness.number_error, losses["openblas"], losses["onednn"]), default=1)
    tally.check("f32: both libraries train the same (%.1e)" % worst, worst <= SAME_LOSS)


def check_variable(tally, folder, has, trainer):
    """Products of f64 are OpenBLAS's, whatever else there is."""
    outcome, start, _ = train(folder, trainer, OPENBLAS_CORETYPE="Prescott")
    tally.check("f64: the user's variable wins", start.get("products", "").endswith(" Prescott"), "%s\n%s" % (start, outcome.tail()))
    told = "warning: OpenBLAS" in outcome.err and "runs its Prescott kernels" in outcome.err
    tally.check("f64: narrow kernels are warned of", told == has["avx2"], outcome.tail(20))


def check_doctor(tally, has):
    told = harness.zplan("doctor", "--json")
    doctor = json.loads(told.out)["result"]
    rows = {row["name"]: row["found"] or "" for row in doctor["found"]}
    names = ["products f32", "products bf16", "products f16", "products f64"]
    tally.check("doctor names what multiplies, and its rate", all("FLOP/s" in rows.get(name, "") for name in names), told.out)
    ready = [purpose["name"] for purpose in doctor["purposes"] if purpose["ready"]]
    tally.check("doctor: what the tests need is ready", {"plan", "calibrate", "CPU training", "several ranks"} <= set(ready), told.out)
    tally.check("doctor knows the processor", [word in rows.get("processor", "").split() for word in ("avx2", "avx512", "avx512_bf16")] ==
                [has["avx2"], has["avx512"], has["bf16"]] or not has["avx2"], told.out)
    tally.check("doctor warns of nothing", not doctor["warnings"], told.out)
    slow = harness.zplan("doctor", "--json", env={"OPENBLAS_CORETYPE": "Prescott"})
    warned = any("OpenBLAS" in warning for warning in json.loads(slow.out)["result"]["warnings"])
    tally.check("doctor warns of narrow kernels", warned == has["avx2"], slow.out)


def main():
    harness.require_zplan()
    for name in UNSET:
        os.environ.pop(name, None)
    tally, has = harness.Tally(), processor()
    with harness.Scratch() as folder:
        trainers = {precision: check_precision(tally, folder, has, precision) for precision in ("fp32", "mixed_bf16", "fp64")}
        if all(trainers.values()):
            check_libraries(tally, folder, trainers["fp32"])
            check_variable(tally, folder, has, trainers["fp64"])
            wrong = harness.run([trainers["fp32"], "--products", "mkl"])
            tally.check("an unknown library is refused", wrong.status == 2 and "openblas or onednn" in wrong.err, wrong.tail())
        check_doctor(tally, has)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
