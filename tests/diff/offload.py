#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GPU trainers whose state lives off the device, on the host or on disks, train what one CPU rank trains.

    offload.py [--only TEXT] [--list] [--jobs N] [--verbose]

1. A table of plans on the emulated GPU (`--arch host`): optimizer state, gradients, in part or whole, on the host, on disks, with
   ZeRO 0 to 3, pipelines, tensor and data ranks, tied weights, in f64, f32 and bf16. Losses, gradient norms and parameters against
   one CPU rank that keeps everything (bounds of trainings.py; bf16: those that bf16.py gives reasons for). Every run has
   --check-memory: peaks of the device's arena, of the host's, and the file, bytes between ranks and between tiers are the plan's.
2. What a plan says of bytes is computed again from the number of parameters: that anything leaves at all is not taken from the plan.
3. State on disks trains the same bits as state on the host.
4. Checkpoints know nothing of it: a run with offload continues one without, and the other way round.
5. LAMB or Adafactor, by turns, which pass over the pieces once more for the lengths of tensors: a table each against one CPU rank, state included, bytes
   from the number of parameters, and a run that goes on without.
6. A folder that cannot be written, and a disk without room, end a run with one message.

The search offloads only what does not fit. Here a plan is made with everything on the device; what leaves is written into its file,
from which `zplan run` derives the rest.
"""
import collections
import json
import math
import os
import shutil
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402
import trainings  # noqa: E402

STEPS = 3
GPU = ("--cluster", "gpu")
SMALL = {"model.layers": 2}
# bf16 after a few steps: loss and norm as in bf16.py. Key biases of gpt.dz have gradients that are rounding noise, and Adam makes
# whole steps of it, so elements of parameters say nothing; that weights are the rounded master copy does (check_rounded).
BOUNDS = dict(trainings.BOUNDS, mixed_bf16={"loss": 2e-4, "gradient norm": 3e-3, "parameters": math.inf})
FILES = ("model.safetensors", "optimizer.safetensors")
EXIT_REFUSED = 1


def offloaded(model, precision, t, p, d, homes, **settings):
    """homes: state to "tier:eighths"."""
    settings.setdefault("batch", 4)
    more = dict(SMALL, **{"offloaded." + state: home for state, home in homes.items()})
    return trainings.layout(model, t, p, d, more, words=GPU, precision=precision, **settings)


BOTH = {"optimizer": "host:8", "gradients": "host:8"}

TABLE = (
    offloaded("gpt", "fp64", 1, 1, 1, {"optimizer": "host:8"}),
    offloaded("gpt", "fp64", 1, 1, 1, {"optimizer": "host:3"}, recompute="full"),
    offloaded("gpt", "fp64", 1, 1, 1, {"optimizer": "nvme:8"}),
    offloaded("gpt", "fp64", 1, 1, 1, {"optimizer": "nvme:5", "gradients": "host:5"}, microbatch=2),
    offloaded("gpt", "fp64", 1, 1, 1, BOTH, microbatch=4),
    offloaded("gpt", "fp64", 1, 2, 1, BOTH),  # a tied weight, its gradients on the hosts of two stages
    offloaded("gpt", "fp64", 1, 2, 2, {"optimizer": "host:8", "gradients": "host:3"}, zero=2),
    offloaded("gpt", "fp64", 2, 1, 2, {"optimizer": "host:6"}, zero=1),
    offloaded("gpt", "fp64", 1, 1, 2, {"optimizer": "nvme:8"}),
    offloaded("gpt", "fp64", 1, 1, 3, {"optimizer": "host:8", "gradients": "host:8"}, zero=3, batch=6),
    offloaded("gpt", "fp64", 1, 1, 2, {"optimizer": "nvme:6", "gradients": "host:2"}, zero=2),
    offloaded("gpt", "fp64", 1, 2, 1, {"optimizer": "nvme:8", "gradients": "host:8"}, schedule="gpipe", cut="block"),
    offloaded("gpt", "fp64", 1, 2, 1, BOTH, schedule="zb_h2"),
    offloaded("gpt", "fp64", 1, 2, 1, BOTH, schedule="zb_h1", loss_chunks=4),
    offloaded("gpt", "fp64", 1, 1, 2, {"optimizer": "host:8", "gradients": "host:3"}, zero=3, loss_chunks=8),
    offloaded("llama", "fp64", 2, 1, 1, {"optimizer": "host:8", "gradients": "host:5"}, recompute="selective"),
    offloaded("llama", "fp32", 1, 1, 2, BOTH, zero=2),
    # gradients offloaded below ZeRO 2: summed over the micro-batches on the host, over the data ranks once a step
    offloaded("gpt", "fp64", 1, 1, 2, BOTH, batch=8, microbatch=2),
    offloaded("gpt", "fp64", 1, 2, 2, {"optimizer": "host:8", "gradients": "host:5"}, batch=8),
    offloaded("gpt", "fp64", 2, 1, 2, {"optimizer": "nvme:6", "gradients": "host:3"}, zero=1, batch=8),
    offloaded("gpt", "fp64", 1, 2, 3, BOTH, zero=1, batch=6, schedule="zb_h1"),
    offloaded("moe", "fp64", 1, 1, 2, {"optimizer": "host:8", "gradients": "host:3"}, zero=1, **{"plan.expert": 2, "model.n": 4}),
    offloaded("moe", "fp64", 1, 1, 2, {"optimizer": "nvme:8", "gradients": "nvme:8"}, zero=2, **{"plan.expert": 2, "model.n": 4}),
    offloaded("gpt", "mixed_bf16", 1, 1, 2, BOTH, zero=1),
    offloaded("gpt", "mixed_bf16", 1, 1, 1, BOTH),
    offloaded("gpt", "mixed_bf16", 1, 1, 2, {"optimizer": "nvme:7"}, zero=1),
)

# Optimizers that need lengths of whole tensors before any element moves: a pass more over the pieces. What leaves in part cuts tensors; an average of
# the weights, rates of groups and decay go along. Either has the first, whose bytes are counted here.
OPTIMIZERS = {"lamb": "lamb(lr = 1e-2, weight_decay = 0.1)", "adafactor": "adafactor(lr = 1e-2, beta1 = 0.8, weight_decay = 0.1)"}
GROUPS = 'train.groups=[group("*.mlp.*", lr_factor = 0.5, weight_decay = 0.3)]'
LEAVES = offloaded("llama", "fp64", 1, 1, 1, {"optimizer": "nvme:8"})
PASSES = {"lamb": (
    LEAVES,
    offloaded("gpt", "fp64", 1, 2, 1, {"optimizer": "host:8", "gradients": "host:8", "params": "host:4"}),  # a tied weight
    offloaded("llama", "mixed_bf16", 1, 1, 2, {"optimizer": "nvme:7", "gradients": "nvme:5"}, zero=2)),
    "adafactor": (
    LEAVES,
    offloaded("llama", "fp64", 2, 1, 1, {"optimizer": "nvme:7", "gradients": "nvme:5", "params": "nvme:6"}, microbatch=2),
    offloaded("llama", "fp64", 1, 1, 2, {"optimizer": "host:7", "gradients": "host:3", "params": "host:4"}, zero=3),
    offloaded("llama", "mixed_bf16", 1, 1, 2, {"optimizer": "nvme:7"}, zero=1))}


# ---- a run ----

def homes_of(settings):
    """(what is set, what leaves the device)"""
    kept = {key: value for key, value in settings.items() if not key.startswith("offloaded.")}
    homes = {key[len('offloaded.'):]: value.split(":") for key, value in settings.items() if key.startswith("offloaded.")}
    return kept, {state: {"tier": tier, "eighths": int(eighths)} for state, (tier, eighths) in homes.items()}


def make_plan(model, settings, folder, words=()):
    """The plan's file, or None and why there is none. words: further ones of `zplan plan`."""
    kept, homes = homes_of(settings)
    path = os.path.join(folder, "plan.json")
    # A training that goes on makes the file again, which was edited here.
    command = ["plan", os.path.join(trainings.MODELS, model + ".dz"), "--ranks", trainings.ranks_of(kept), *GPU, *words, "-o", path, "--force"]
    for key, value in kept.items():
        command += ["--set", "%s=%s" % (key, trainings.written(value))]
    outcome = harness.zplan(*command)
    if outcome.status != 0:
        return None, outcome.tail()
    with open(path, encoding="utf-8") as file:
        plan = json.load(file)
    plan["offload"] = homes
    with open(path, "w", encoding="utf-8") as file:
        json.dump(plan, file)
    return path, None


Ran = collections.namedtuple("Ran", "outcome steps end")


def run_plan(plan, folder, steps, words=(), env=None, last_words=()):
    log = os.path.join(folder, "log.jsonl")
    outcome = harness.zplan("run", plan, "--arch", "host", "-o", os.path.join(folder, "tree"), "--log", log, "--steps", steps,
                            *words, "--threads", 1, "--check-memory", "--", "--checkpoint", os.path.join(folder, "ck"), *last_words,
                            env=dict(trainings.ENVIRONMENT, **(env or {})))
    steps, end = harness.read_log(log) if os.path.exists(log) else ([], None)
    return Ran(outcome, steps, end)


def nearest_bf16(value):
    """f32 to the nearest bf16, to even in the middle, as f32."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def not_rounded(folder):
    """Which weights are not the rounded master copy; None: all are."""
    weights, state = (harness.read_safetensors(os.path.join(folder, name)) for name in FILES)
    for name, (_, values) in weights.items():
        master = state[name + ".master"][1]
        if any(nearest_bf16(wide) != narrow for wide, narrow in zip(master, values)):
            return "%s is not the rounded master copy" % name
    return None


def values_of(one):
    """What leaves for which tier; how many eighths of it stand for all or a part."""
    kept, homes = homes_of(dict(one.settings))
    return {(one.model, one.group), one.words, *((key, str(value)) for key, value in kept.items() if key not in ("batch", "microbatch")),
            *((state, home["tier"]) for state, home in homes.items()), *(home["eighths"] == 8 for home in homes.values())}


class Offloads(trainings.Suite):
    """References are trained as ever, all others from a plan's file."""
    ends = {}  # what a run says at its end: {settings: event}
    always = TABLE[:5]
    values = staticmethod(values_of)
    value_turns = 6

    def run_job(self, job):
        number, (model, settings, words) = job
        if words == self.reference_words:
            return super().run_job(job)
        folder = os.path.join(self.folder, "%d" % number)
        os.makedirs(folder)
        plan, why = make_plan(model, dict(settings), folder, self.reference_words)
        checkpoint = os.path.join(harness.step_folder(os.path.join(folder, "ck"), self.steps), FILES[0])
        if not plan:
            return trainings.Result("no plan: %s" % why, [], [], checkpoint, 0)
        ran = run_plan(plan, folder, self.steps)
        error = None
        if ran.outcome.status != 0 or not ran.end:
            error = "exit %d\n%s" % (ran.outcome.status, ran.outcome.tail())
        elif ran.end["predicted_peak_bytes"] != ran.end["measured_peak_bytes"]:
            error = "other peaks than predicted: %s" % ran.end
        elif dict(settings)["precision"] == "mixed_bf16":
            error = not_rounded(os.path.dirname(checkpoint))
        self.ends[settings] = ran.end
        shutil.rmtree(os.path.join(folder, "tree"), ignore_errors=True)
        return trainings.Result(error, [r["loss"] for r in ran.steps], [r["grad_norm"] for r in ran.steps], checkpoint,
                                ran.outcome.seconds)


# ---- bytes, from the number of parameters ----

def check_bytes(tally, suite):
    """One rank: a gradient and a weight of every parameter cross, state is read and written once. Alignment adds a little."""
    parameters = 42600  # of gpt.dz with two layers: `zplan plan` prints it, the checkpoint's tensors have as many elements
    f64, arrays = 8, 3
    expected = {
        TABLE[0].settings: {"to host": f64, "from host": f64, "read": 0, "written": 0},
        TABLE[1].settings: {"to host": f64 * 3 / 8, "from host": f64 * 3 / 8, "read": 0, "written": 0},
        TABLE[2].settings: {"to host": f64, "from host": f64, "read": arrays * f64, "written": arrays * f64},
        TABLE[4].settings: {"to host": f64, "from host": f64, "read": 0, "written": 0}}
    shared = {TABLE[4].settings: 61 * 40}  # the tied embedding's gradient goes down from both ends of the model
    for settings, moved in expected.items():
        end = suite.ends.get(settings)
        for way, bytes_each in moved.items():
            elements = parameters + (shared.get(settings, 0) if way == "to host" else 0)
            want, got = bytes_each * elements, end["moved_bytes"][way] if end else -1
            tally.check("%s bytes, %s" % (way, trainings.name_for("gpt", dict(settings))), want * 0.99 <= got <= want * 1.12,
                        "%s, about %s expected" % (got, want))


# ---- optimizers with a pass for lengths ----

def words_of(name):
    return ("--set", "optimizer=" + OPTIMIZERS[name], "--set", GROUPS, "--set", "train.ema=0.9")


class Passes(Offloads):
    """State is compared, too: moments or statistics, and the average."""
    always = (LEAVES,)

    def report(self, one, result):
        if not result.error and one.group == "fp64":
            self.same_state(one.name, result.checkpoint, self.references[one.model, one.reference].checkpoint)
        super().report(one, result)

    def same_state(self, name, *checkpoints):
        error, tensor = harness.model_error(*(os.path.join(os.path.dirname(path), FILES[1]) for path in checkpoints))
        self.tally.check("state of %s" % name, error <= BOUNDS["fp64"]["parameters"], "%.1e, %s" % (error, tensor))


def check_passes(first, folder, name):
    """The table, bytes of one rank by the number of its parameters, and a run that goes on."""
    place, tally = os.path.join(folder, name), first.tally
    suite = Passes(PASSES[name], place, first.jobs, first.verbose, BOUNDS, STEPS, words_of(name), tally)
    suite.run()
    want = suite.references[LEAVES.model, LEAVES.reference]
    weights = harness.read_safetensors(want.checkpoint)
    elements = sum(len(values) for _, values in weights.values())
    # LAMB: weights and two moments, then these and the average; moments, then the others. Adafactor: weights, then weights, momentum and average.
    read, written = {"lamb": (3 + 4, 2 + 2), "adafactor": (1 + 3, 3)}[name]
    moved = (suite.ends.get(LEAVES.settings) or {}).get("moved_bytes", {})
    for way, numbers in (("to host", 1), ("from host", 1), ("read", read), ("written", written)):
        least, got = 8 * numbers * elements, moved.get(way, -1)
        tally.check("%s: %s %d numbers an element" % (name, way, numbers), least <= got <= least * 1.12, "%s, about %d expected" % (got, least))
    if name == "adafactor":  # LAMB has Adam's arrays
        check_goes_on(suite, place, name, want)


def check_goes_on(suite, place, name, want):
    """A step with much off the device, and two without."""
    ran = []
    for steps, part in ((1, {"optimizer": "nvme:8", "gradients": "host:5", "params": "nvme:4"}), (STEPS, {})):
        here = os.path.join(place, "first" if steps == 1 else "rest")
        os.makedirs(here)
        plan = make_plan("llama", dict(offloaded("llama", "fp64", 1, 1, 1, part).settings), here, words_of(name))[0]
        ran.append(run_plan(plan, place, steps, words=() if steps == 1 else ("--resume",)))
    good = all(one.outcome.status == 0 for one in ran)
    suite.tally.check("%s goes on" % name, good, "".join(one.outcome.tail() for one in ran))
    if good:
        checkpoint = os.path.join(harness.step_folder(os.path.join(place, "ck"), STEPS), FILES[0])
        error, tensor = harness.model_error(checkpoint, want.checkpoint)
        suite.tally.check("%s goes on alike" % name, error <= BOUNDS["fp64"]["parameters"], "%.1e, %s" % (error, tensor))
        suite.same_state("%s that goes on" % name, checkpoint, want.checkpoint)


# ---- disks and checkpoints ----

def same_files(tally, what, one, other, steps=STEPS):
    for name in FILES:
        paths = [os.path.join(harness.step_folder(os.path.join(folder, "ck"), steps), name) for folder in (one, other)]
        tally.check("%s: %s" % (what, name), all(map(os.path.exists, paths)) and harness.same_bytes(*paths))


def prepared(folder, name, homes, **settings):
    """A folder with the plan of a training of gpt.dz."""
    place = os.path.join(folder, name)
    os.makedirs(place)
    one = offloaded("gpt", "fp64", 1, 1, 1, homes, **settings)
    return place, make_plan(one.model, dict(one.settings), place)[0]


def check_disks(tally, folder):
    """The same arithmetic in the same pieces, so the same bits; and what there is on a disk has a page's granularity."""
    places = []
    for tier in ("host", "nvme"):
        place, plan = prepared(folder, "on_" + tier, {"optimizer": tier + ":8"})
        ran = run_plan(plan, place, STEPS, env={"ZPLAN_OFFLOAD": os.path.join(place, "disk")})
        tally.check("state on " + tier, ran.outcome.status == 0, ran.outcome.tail())
        places.append(place)
    same_files(tally, "disk and host", *places)
    left = os.path.join(places[1], "disk")
    tally.check("the file has no name any more", os.path.isdir(left) and not os.listdir(left))


def check_resume(tally, folder):
    """1 + 2 steps without and with offload, both ways, are 3 steps that one CPU rank does."""
    here, here_plan = prepared(folder, "here", {})
    for number, (name, homes) in enumerate((("whole", {"optimizer": "host:8", "gradients": "host:8"}), ("disk", {"optimizer": "nvme:5"}))):
        if not harness.my_turn(number, 2):
            continue
        left, left_plan = prepared(folder, "left_" + name, homes)
        whole, other = os.path.join(folder, "3_" + name), None
        for first, second in ((here_plan, left_plan), (left_plan, here_plan)):
            place = os.path.join(folder, "%s_%s" % (name, "back" if other else "there"))
            os.makedirs(place)
            a = run_plan(first, place, 1)
            b = run_plan(second, place, STEPS, words=("--resume",))
            good = a.outcome.status == 0 and b.outcome.status == 0
            tally.check("resume %s" % place.rsplit("/", 1)[1], good, a.outcome.tail() + b.outcome.tail())
            other = place
            if not os.path.exists(whole):
                os.makedirs(whole)
                run_plan(here_plan, whole, STEPS)
            for file in FILES:
                paths = [os.path.join(harness.step_folder(os.path.join(p, "ck"), STEPS), file) for p in (place, whole)]
                error, tensor = harness.model_error(*paths) if all(map(os.path.exists, paths)) else (1, "no file")
                tally.check("resumed %s %s" % (place.rsplit("/", 1)[1], file), error <= BOUNDS["fp64"]["parameters"], "%g, %s" % (error, tensor))
    shutil.rmtree(here)


def check_trouble(tally, folder):
    place, plan = prepared(folder, "trouble", {"optimizer": "nvme:8"})
    ran = run_plan(plan, place, 1, last_words=("--offload", "/proc/nowhere"))
    tally.check("no folder: status", ran.outcome.status == EXIT_REFUSED, ran.outcome.tail())
    tally.check("no folder: message", "error[Z0861]" in ran.outcome.err and "/proc/nowhere" in ran.outcome.err, ran.outcome.err)
    trainer = os.path.join(place, "tree", "trainer")
    blocks = (os.path.getsize(os.path.join(place, "tree", "kernels.image")) >> 9) + 8  # the emulated GPU copies it to a file
    outcome = harness.run(["sh", "-c", "ulimit -f %d; trap '' XFSZ; exec \"$0\" \"$@\"" % blocks, trainer, "--steps", "1",
                           "--offload", os.path.join(place, "disk")])
    tally.check("no room: status", outcome.status == EXIT_REFUSED, outcome.tail())
    tally.check("no room: message", "error[Z0861]: cannot reserve" in outcome.err, outcome.err)


def run_table(purpose, table, make_suite, checks, more=()):
    """What a script does: the trainings that are asked for, with --all more of them, then, where all are, the checks with (suite, folder)."""
    parser = trainings.arguments(purpose)
    if more:
        parser.add_argument("--all", action="store_true", help="%d trainings more" % len(more))
    options = parser.parse_args()
    if more and options.all:
        table += more
    table = [one for one in table if options.only in one.name]
    if options.list:
        print("\n".join(one.name for one in table))
        return 0
    harness.require_zplan()
    with harness.Scratch() as folder:
        suite = make_suite(table, folder, options.jobs, options.verbose, BOUNDS, STEPS)
        suite.run()
        for check in checks if not options.only else ():
            check(suite, folder)
        return suite.tally.finish()


def main():
    return run_table("state off the device", TABLE, Offloads,
                     (lambda suite, _: check_bytes(suite.tally, suite),
                      lambda suite, folder: check_disks(suite.tally, folder),
                      lambda suite, folder: check_resume(suite.tally, folder),
                      lambda suite, folder: check_trouble(suite.tally, folder),
                      *((lambda suite, folder, name=name: check_passes(suite, folder, name))
                        for number, name in enumerate(PASSES) if harness.my_turn(number, 2))))


if __name__ == "__main__":
    sys.exit(main())
