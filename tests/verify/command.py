#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The command as scripts meet it: exit statuses, JSON, output that cannot be written, interruption, completion.

usage: command.py [ZPLAN]

With ZPLAN_LONG in the environment also searches of 10 s and more (tests/long.sh).
"""
import csv
import glob
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
import harness  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ZPLAN = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("ZPLAN", ROOT + "/build/release/zplan"))
os.environ["COLUMNS"] = "2000"  # words are looked for in one line; terminal.py looks at other widths
GPT2, GPT1T = ROOT + "/examples/gpt2.dz", ROOT + "/examples/gpt1t.dz"
# A space of gpt1t whose search takes a fiftieth of the time: answers are tested here, not the search.
NARROW = ("--set", "zero<=1", "--set", 'schedule="1f1b"', "--set", "sequence=false", "--set", "cut=layer", "--set", "tensor=8")
failures, passed = [], [0]


def expect(name, condition, detail=""):
    if condition:
        passed[0] += 1
    else:
        failures.append(name)
        print("FAILED %s %s" % (name, detail))
    return condition


def zplan(*args, **options):
    return subprocess.run([ZPLAN, *args], capture_output=True, text=True, timeout=900, **options)


def check(name, args, status, words="", **options):
    """Runs and compares the exit status; `words` must be in what it printed."""
    run = zplan(*args, **options)
    expect(name, run.returncode == status, "exit %d instead of %d: %s" % (run.returncode, status, run.stderr[:200]))
    said = run.stdout + run.stderr
    expect(name, words in said or words in " ".join(said.split()), "no %r in %r" % (words, said[:300]))
    return run


def parse(name, args, status=0):
    run = zplan(*args, "--json")
    expect(name, run.returncode == status, "exit %d: %s" % (run.returncode, run.stderr[:200]))
    try:
        return json.loads(run.stdout)
    except ValueError as error:
        expect(name, False, str(error))
        return None


def statuses(folder):
    """Exit statuses of the table in README.md."""
    plan, other, empty = folder + "/a.json", folder + "/b.json", folder + "/empty.json"
    check("plan", [GPT2, "-o", plan], 0, "plan written to")
    check("plan", [GPT2, "--set", "tensor=4", "-o", other], 0)
    open(empty, "w").close()
    with open(plan) as file, open(folder + "/later.json", "w") as later:
        later.write(file.read().replace('"format_version": "2.0"', '"format_version": "3.0"'))
    with open(plan) as file, open(folder + "/first.json", "w") as first:  # of format 1
        text = file.read().replace('"format_version": "2.0"', '"format_version": "1.0"')
        for key in ("offloaded_stride", "saved_offloaded", "offloaded_slots", "offloaded_staging"):
            expect("%s is in the plan" % key, '"%s"' % key in text)
            text = text.replace('"%s"' % key, '"%s"' % key.replace("offloaded", "away"))
        for key in ("at_difference", "at_gradient_before"):  # younger than it
            expect("%s is in the plan" % key, '"%s"' % key in text)
            text = re.sub(r'"%s": -1,\s*' % key, "", text)
            expect("%s is not in format 1" % key, key not in text)
        first.write(text)
    with open(folder + "/neither.json", "w") as neither:
        neither.write(text.replace('"format_version": "1.0"', '"format_version": "2.0"'))
    card = folder + "/card.json"  # of a file that uses another from the folder above
    check("card", [ROOT + "/examples/capacity/zero1_6b.dz", "--set", "model.layers=21", "-o", card], 0)
    check("card", ["verify", card], 0, "sound")
    check("no file", ["nosuch.dz"], 1, "Z0210")
    check("folder", [folder + "/.dz"], 1)
    check("empty plan", ["explain", empty], 1, "Z0640")
    check("later plan", ["explain", folder + "/later.json"], 1, "this program reads 1.x and 2.x")
    check("plan of format 1", ["verify", folder + "/first.json"], 0, "sound")
    for verb in ("verify", "report", "explain"):
        check("names of format 1 in format 2", [verb, folder + "/neither.json"], 1, 'neither.json: format_version is "2.0", but `away_stride` is a name of format 1')
    check("no such folder", [GPT2, "-o", folder + "/none/x.json"], 1, "Z0641")
    check("unknown verb", ["explian", GPT2], 2, "did you mean `explain`")
    check("unknown option", [GPT2, "--gpu", "4"], 2, "did you mean `--gpus`")
    check("a keyword without quotes", [GPT2, "--gpus", "2", "--set", "cut=block"], 0, "gpt2 (124.4 M parameters) fits on")
    check("the same price", ["explain", plan, "--why-not", "rank_order=tpd"], 0, "the same step time")
    for words in (["--ranks", "3"], ["--set", "tensor=4"], ["--set", "memory<=50%"], ["--device-memory", "1MB"]):
        check("a plan file says otherwise", ["build", plan, "-o", folder + "/tree", *words], 1, "error[Z0643]")
    expect("nothing is built", not os.path.exists(folder + "/tree"))
    with open(folder + "/log.jsonl", "w") as log:
        log.write('{"step": 1, "step_ms": 250.0, "loss": 5.0}\n{"step": 2, "step_ms": 350.0, "loss": 4.0}\n')
    check("measured", ["report", plan, "--log", folder + "/log.jsonl"], 0, "measured  step 300 ms, median of 2, ~")
    check("no log", ["report", plan, "--log", GPT2], 1, "holds no step of a training")
    check("no hostfile", ["run", GPT2, "--ranks", "2", "--hostfile", folder + "/none"], 1, "cannot read the hostfile")
    check("too many", [GPT2, "--top", "1000000000"], 2, "at most 1000")
    check("examples are in canonical layout", ["fmt", "--check", *glob.glob(ROOT + "/examples/**/*.dz", recursive=True)], 0)
    check("an endless file", ["check", "/dev/zero"], 1, "no regular file")
    check("two answers", [GPT2, "--gpus", "2", "--ranks", "4"], 2, "--ranks 4 contradicts the `2` before it")
    check("the same answer", [GPT2, "--gpus", "2", "--ranks", "2", "--set", "tensor=2", "--set", "zero=0"], 0, "gpt2 (124.4 M parameters) fits on")
    check("nothing to measure", ["bench", GPT2, "--steps", "0"], 2, "at least 1")
    check("empty value", [GPT2, "-o", ""], 2, "an empty one")
    check("option of a plan", [GPT2, "--tensor", "4"], 2, "write --set tensor=VALUE")
    check("option of another tool", [GPT2, "--tensor-model-parallel-size=4"], 2, "here it is called `tensor`")
    check("no file", ["build"], 2, "zplan build FILE.dz|PLAN.json")
    check("code in small letters", ["explain", "z0601"], 0, "Z0601")
    with open(GPT2) as pipe:
        check("a pipe", ["check", "/dev/stdin"], 0, "gpt2: 124,439,808", stdin=pipe)
    other_name = folder + "/plan.of.gpt2"  # known by its first letter
    check("plan of another name", [GPT2, "--gpus", "2", "-o", other_name], 0)
    check("plan of another name", ["verify", other_name], 0, "sound")
    for depth in ("far/below/it", "."):  # what `use` names from the root stands there, wherever plan and model go
        os.makedirs(os.path.join(folder, "moved", depth), exist_ok=True)
        model, moved = folder + "/rooted.dz", os.path.join(folder, "moved", depth, "plan.json")
        with open(GPT2) as file, open(model, "w") as rooted:
            rooted.write('use "%s" as g\ntrain { model = g.gpt2  data = tokens("x.bin")  batch = 8  steps = 2  optimizer = sgd(lr = 1e-3) }\n'
                         'cluster c { nodes = 1  node = std.hw.dgx1v }\nuse std.hw\nplan { objective = minimize(step_time) }\n' % os.path.abspath(GPT2))
        made = check("a `use` from the root", [model, "--gpus", "2", "--json"], 0)
        with open(moved, "w") as file:
            file.write(made.stdout)
        check("moved: " + depth, ["verify", moved], 0, "sound")
    with open(plan) as file, open(folder + "/options.json", "w") as changed:
        json.dump(dict(json.load(file), options=["--gpus", "x"]), changed)
    check("plan with foreign options", ["report", folder + "/options.json"], 1, "options.json: its recorded options")
    check("option of another verb", ["check", GPT2, "--gpus", "4"], 2, "does not take --gpus")
    check("nothing legal", [GPT2, "--set", "tensor=3"], 3, "tensor 3 does not divide 8 devices")
    check("no decision", ["explain", plan, "--why-not", "batch=8"], 1, "Z0626")
    check("recorded settings give way", ["explain", other, "--why-not", "tensor=2"], 0, "asked: 2 x")
    check("contradiction", ["explain", plan, "--why-not", "tensor=2, tensor=4"], 1, "Z0620")
    check("best plan already", ["explain", plan, "--why-not", "tensor=2"], 0, "the best plan satisfies it")
    check("same plans", ["diff", plan, plan], 0, "the same decisions")
    check("other plans", ["diff", plan, other], 4, "* tensor")
    check("one plan", ["diff", plan], 2)
    fp16 = folder + "/fp16.json"
    check("fp16", [GPT2, "--gpus", "8", "--set", "tensor=2", "--set", "precision=mixed_fp16", "-o", fp16], 0)
    bf16 = folder + "/bf16.json"
    check("bf16", [GPT2, "--gpus", "8", "--set", "tensor=2", "--set", "precision=mixed_bf16", "-o", bf16], 0)
    run = check("precisions", ["diff", fp16, bf16], 4, "* precision")
    expect("what is the same is left out", "batch" not in run.stdout and "tensor" not in run.stdout, run.stdout)
    with open(fp16) as one, open(bf16) as other_file:
        hashes = [json.load(file)["plan_hash"] for file in (one, other_file)]
    expect("names of their own", hashes[0] != hashes[1], str(hashes))


def numbers(value):
    """Every number of a JSON document stands as a number."""
    if isinstance(value, dict):
        return all(numbers(item) for item in value.values())
    if isinstance(value, list):
        return all(numbers(item) for item in value)
    return not (isinstance(value, str) and value.replace(".", "", 1).isdigit() and value not in ("2.0",))


def documents(folder):
    """One JSON document each, with the keys that scripts use, the same every time."""
    plan, narrow = folder + "/big.json", folder + "/narrow.json"
    for path, devices, words in ((plan, "800", ["--set", "cut=layer"]), (narrow, "896", NARROW)):
        run = zplan(GPT1T, "--gpus", devices, *words, "--json")
        expect("the document is a plan", run.returncode == 0, run.stderr[:200])
        with open(path, "w") as file:
            file.write(run.stdout)
    with open(plan) as file:
        text = file.read()
    best = json.loads(text)
    expect("plan json keys", best and {"degrees", "zero", "stages", "estimate", "certificate"} <= set(best))
    none = parse("misfit json", [GPT1T, "--gpus", "400", *NARROW], 3)
    expect("misfit json keys", none and not none["feasible"] and none["nearest"], none and list(none))
    for change in none["nearest"]:
        expect("nearest", change["step_s"] > 0 and change["peak_bytes"] > 0 and change["change"], change)
    expect("miss", none["miss"]["need_bytes"] > none["miss"]["have_bytes"] > 0)
    sweep = parse("sweep json", [GPT1T, "--gpus", "512..1024", *NARROW])
    fits = [size for size in sweep if size["feasible"]]
    expect("sweep json", fits and fits[0]["scaling"] == 1 and all(0 < s["mfu"] < 1 for s in fits))
    expect("sweep misses", all(s["need_bytes"] > s["have_bytes"] for s in sweep if not s["feasible"]))
    auto = parse("auto json", [GPT1T, "--gpus", "auto", *NARROW])
    expect("auto json", auto["found"] and auto["lower_bound"] <= auto["sizes"][0]["devices"])
    for number, wish in enumerate(("tensor=16", "pipeline=50", "schedule=1f1b", "schedule=1f1b, idle=0", "sequence=false", "offload[optimizer]=cpu")):
        if not harness.my_turn(number, 3):
            continue
        answer = parse("why not " + wish, ["explain", plan, "--why-not", wish])
        terms = answer["terms"]
        for side in ("best_s", "asked_s"):
            parts, step = sum(t[side] for t in terms[:-1]), terms[-1][side]
            expect("terms of " + wish, abs(parts - step) <= 1e-6 * step, "%g is not %g" % (parts, step))
    short = parse("why not, misfit", ["explain", narrow, "--why-not", "recompute=none"], 3)["asked"]
    refused = parse("why not, illegal", ["explain", plan, "--why-not", "pipeline=7, idle=0"], 3)["asked"]
    expect("refusals", refused["refusals"] == ["pipeline 7 does not divide 800 devices; 5 and 8 do"], refused)
    expect("short bytes", short["short_bytes"] == short["need_bytes"] - short["have_bytes"] > 0)
    expect("ranks", 0 <= short["first_rank"] <= short["last_rank"] < 896)
    expect("numbers", all(numbers(d) for d in (auto, sweep)))
    expect("stable", zplan(GPT1T, "--gpus", "800", "--set", "cut=layer", "--json").stdout == text)


def results_apart(folder):
    """A result that would take the place of what it is made from is refused before anything is done."""
    model, plan, config = folder + "/apart.dz", folder + "/apart.json", folder + "/config.json"
    for source, path in ((GPT2, model), (ROOT + "/tests/interop/hf/gpt2.json", config)):
        with open(source) as file, open(path, "w") as copy:
            copy.write(file.read())
    check("plan for apart", [model, "--gpus", "2", "-o", plan], 0)
    for args in ([model, "--gpus", "2", "-o", folder + "/../" + os.path.basename(folder) + "/apart.dz"],
                 ["run", model, "--log", model], ["report", plan, "--html", plan], ["import", "hf", config, "-o", config],
                 ["report", plan, "--html", folder + "/new", "--trace", folder + "/new"]):
        read = [open(path).read() for path in (model, plan, config)]
        check("over its input: " + " ".join(args[:2]), args, 2, "would take the place of")
        expect("nothing is changed", read == [open(path).read() for path in (model, plan, config)], args)
    check("a plan again", [model, "--gpus", "2", "-o", plan], 0)
    with open(plan) as file:
        edited = file.read().replace('"microbatch": ', '"microbatch": 1', 1)
    with open(plan, "w") as file:
        file.write(edited)
    check("a plan that a person has edited", [model, "--gpus", "2", "-o", plan], 1, "apart.json is there already")
    expect("an edited plan stays", open(plan).read() == edited)
    check("an edited plan is replaced when told", [model, "--gpus", "2", "-o", plan, "--force"], 0)
    check("an infeasible plan", [model, "--gpus", "2", "-o", plan, "--device-memory", "1MiB"], 3)
    check("a plan over an infeasible one", [model, "--gpus", "2", "-o", plan], 0)
    check("called as the other program", ["import", "hf", config, "-o", "hf"], 0, cwd=folder)


def file_limit(folder):
    """A limit on the size of files is an error with a message, and leaves nothing behind."""
    inside = folder + "/limit"
    os.mkdir(inside)
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))  # noqa: E731
    check("limit: plan", [GPT2, "--gpus", "2", "-o", inside + "/p.json"], 1, "File too large", preexec_fn=limit)
    check("limit: data", ["data", GPT1T, ROOT + "/examples/text.txt", "-o", inside + "/d.bin"], 1, "File too large", preexec_fn=limit)
    expect("limit: nothing is left", os.listdir(inside) == [], os.listdir(inside))


def full_disk(folder):
    for args in ([GPT2], [GPT2, "--json"], ["--help"], ["--version"], ["plan", "--help"], ["check", GPT2, "--json"],
                 [GPT2, "--gpus", "2..16"], ["completion", "bash"]):
        with open("/dev/full", "w") as full:
            run = subprocess.run([ZPLAN, *args], stdout=full, stderr=subprocess.PIPE, text=True, timeout=900)
        expect("full disk: " + " ".join(args), run.returncode == 1 and "cannot write" in run.stderr, run.returncode)
    check("full disk: -o", [GPT2, "-o", "/dev/full"], 1, "Z0641")


def interrupted(folder):
    """What a sweep has found is on the pipe when it is interrupted, and no file is left behind."""
    before = set(os.listdir(folder))
    sweep = subprocess.Popen([ZPLAN, GPT1T, "--gpus", "512..20000"], cwd=folder, stdout=subprocess.PIPE, text=True,
                             preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # jobs in the background ignore it
    lines = [sweep.stdout.readline() for _ in range(2)]
    sweep.send_signal(signal.SIGINT)
    lines += sweep.communicate(timeout=900)[0].splitlines()
    expect("interrupted", sweep.returncode == -signal.SIGINT, sweep.returncode)
    expect("interrupted rows", lines[0].startswith("devices") and "512" in lines[1], lines[:2])
    expect("interrupted files", set(os.listdir(folder)) == before)


def tables_and_files(folder):
    """Tables that cannot be read; targets that must not be replaced."""
    table = folder + "/runs.csv"
    with open(table, "w", newline="") as file:
        file.write("id,gpu,n_gpus,micro_batchs,precision\r\na,A100-SXM4-80GB,8,1,fp99\r\nb,A100-SXM4-80GB,8,1,fp16\r\n")
    run = check("bad table", ["validate", table], 1, "line 2: precision is `fp99`")
    expect("unknown column", "warning[Z0904]" in run.stderr and "did you mean `micro_batch`" in run.stderr, run.stderr)
    check("folder as table", ["validate", folder], 1, "Is a directory")
    link = folder + "/device"
    os.mkfifo(link)
    check("data into a pipe", ["data", table, "-o", link], 1, "no regular file")
    check("data onto itself", ["data", table, "-o", table], 1, "the input and the output")
    reader = subprocess.Popen([ZPLAN, "data", link, "-o", folder + "/tokens.bin"], preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    with open(link, "w"):  # it has opened its input, and waits
        while not any("tokens.bin.tmp" in name for name in os.listdir(folder)):
            time.sleep(0.01)
        reader.send_signal(signal.SIGINT)
        expect("data interrupted", reader.wait(timeout=900) == -signal.SIGINT, reader.returncode)
    expect("nothing half-written", not any("tokens.bin" in name for name in os.listdir(folder)), os.listdir(folder))


def absurd_rows(folder):
    """Measured runs with sizes that no machine has: refused by row, not by a signal."""
    with open(ROOT + "/tests/data/published_runs.csv") as file:
        rows = list(csv.reader(file))
    for run, change, status, words in (("nano_1.34B_8", {"tp": "65536", "pp": "65536", "dp": ""}, 1, "line 2: tp is 65536, which does not divide heads, 32"),
                                       ("nano_1.34B_8", {"heads": "97"}, 1, "line 2: heads is 97, which does not divide hidden"),
                                       ("nano_1.34B_8", {"hidden": "97"}, 1, "line 2: heads is 32, which does not divide hidden")):
        row = dict(zip(rows[0], next(r for r in rows if r[0] == run)), **change)
        path = folder + "/absurd.csv"
        with open(path, "w", newline="") as file:
            table = csv.DictWriter(file, rows[0], restval="")
            table.writeheader()
            table.writerow(row)
        check("absurd row %s %s" % (run, change), ["validate", path], status, words)


def search_memory(folder):
    """Mixtures of experts with many groups, and budgets of the search: an answer within the address space that is left."""
    limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (1000000 << 10, 1000000 << 10))
    for name in ("moe_671b", "moe_235b") if os.environ.get("ZPLAN_LONG") else ("moe_235b",) if harness.my_turn(0, 2) else ():
        run = check(name, [ROOT + "/tests/data/%s.dz" % name, "--json"], 0, preexec_fn=limit)
        found = json.loads(run.stdout or "{}").get("certificate", {})
        # all but the cuts of several chunks a stage that are bounded alone, and what the work of a search leaves open
        settled = found.get("best_s", 1) <= found.get("searched_s", found.get("bound_s", 0)) * 1.01
        expect(name + ": gap", settled and found["short_of_memory"] is False, found)
        expect(name + ": held", 0 < found.get("search_held_bytes", 0) < 1e9, found)
    model = [GPT1T, "--gpus", "800", "--search-memory"]
    small = lambda: resource.setrlimit(resource.RLIMIT_AS, (300000 << 10, 300000 << 10))
    plan = folder + "/budget.json"
    run = check("64 MiB", [*model, "64MiB", "-o", plan], 0, "stopped at its memory budget of 67.1 MB", preexec_fn=small)
    expect("64 MiB: gap", "% faster in this cost model (" in " ".join(run.stdout.split()), run.stdout)
    expect("64 MiB again", run.stdout == zplan(*model, "64MiB", "-o", plan).stdout)
    check("1 KiB", [*model, "1KiB"], 1, "error[Z0604]", preexec_fn=small)
    check("of the plan block", [GPT1T, "--gpus", "800..801", "--search-memory", "1MiB"], 1, "not known: the search reached")
    check("the fewest", [GPT2, "--gpus", "auto", "--search-memory", "1KiB"], 1, "error[Z0604]")
    check("the front", [GPT2, "--gpus", "16", "--pareto", "--search-memory", "1KiB"], 1, "error[Z0604]")
    check("no size", [*model, "64"], 2, "wants a size with a unit")
    with open(plan) as file:
        kept = json.load(file)
    expect("kept in the plan file", kept["options"].count("--search-memory") == 1 and kept["certificate"]["short_of_memory"])


def reasons(folder):
    """Reasons behind --verbose: padding and odd widths, what memory was compared with, one label for one price."""
    del folder
    words = lambda run: " ".join(run.stdout.split())
    mixtral = [ROOT + "/examples/mixtral_8x7b.dz", "--verbose", "--gpus", "24", "--set", "pipeline=1"]
    run = check("padded", [*mixtral, "--set", "tensor=3"], 0)
    for part in ("tensor 3 does not divide every layer: a rank has 3 of the 8 units", "11.1% of the work on them is padding"):
        expect("padded: " + part, part in words(run), run.stdout)
    odd = "4779 of `layers.{}.block_sparse_moe.w1` are no multiple of 16 bytes"  # which zplan's own trainer pads, and others do not
    expect("padded widths", odd not in words(run), run.stdout)
    run = check("odd widths", [*mixtral, "--set", "tensor=3", "--for", "megatron"], 0)
    expect("odd widths", odd in words(run), run.stdout)
    run = check("even", [*mixtral, "--set", "tensor=2", "--set", "recompute=full", "--set", "schedule=1f1b", "--set", "cut=layer"], 0)
    expect("even", "tensor 2 divides every layer; its all-reduces" in words(run), run.stdout)
    model = [GPT1T, "--verbose", "--gpus", "800", "--set", 'schedule="1f1b"', "--set", "sequence=false"]
    run = check("met", model, 0)
    expect("met", re.search("otherwise tensor .*: at most ~[0-9.]+% slower", words(run)), run.stdout)
    expect("what may be used", ", and 30.1 GB may be used of 32.0 GB" in words(run), run.stdout)
    run = check("searched for", [*model, "--top", "1"], 0)
    expect("searched for", re.search("otherwise tensor .*: ~[0-9.]+% slower", words(run)) and "at most ~" not in run.stdout, run.stdout)


def poor_use(folder):
    """More devices than the batch feeds: the longest term, and fewer that take hardly longer, planned for themselves."""
    plan = folder + "/poor.json"
    model = [ROOT + "/examples/mixtral_8x7b.dz", "--set", "batch=32", "--set", "expert=1", "--set", "cut=layer", "--set", "zero=1", "--set", "schedule=1f1b", "--set", "tensor=8"]
    words = " ".join(check("poor use", [*model, "--gpus", "512", "-o", plan], 0).stdout.split())
    line = re.search("poor use ~[0-9]+% of the step is pipeline bubble; ([0-9]+) devices take ~([0-9.]+) times as long for ~([0-9.]+) times fewer", words)
    if not expect("poor use", line, words):
        return
    devices, longer, fewer = line.groups()
    found = parse("those devices", [*model, "--gpus", devices])
    with open(plan) as file:
        step = json.load(file)["estimate"]["step_s"]
    ratio = found["estimate"]["step_s"] / step
    expect("times as long", 1 / 1.1 < ratio / float(longer) < 1.05, (ratio, line))
    expect("device hours", float(fewer) >= 2 and float(longer) <= 3, line)
    if harness.my_turn(1, 2):  # moe_235b of search_memory has the other one
        check("a large cluster", [GPT1T, "--gpus", "131072", "--set", "batch=16384", "--gap", "2%"], 0, "131072 x v100")
    run = check("good use", [*model[:1], "--gpus", "64", "--set", "cut=layer"], 0)
    expect("good use", "poor use" not in run.stdout, run.stdout)


def what_would_help(folder):
    """Why a plan is poor, and settings under which it is not, with the figures of a search that has them."""
    llama = ["--model", "llama3-8b", "--machine", "dgx-h100", "--gpus", "64", "--set", "batch=64"]
    small = ["--model", "gpt2-124m", "--machine", "dgx-h100", "--gpus", "8", "--set", "batch=64", "--set", "precision=fp32"]
    odd = [*llama[:4], "--gpus", "61", "--set", "pipeline=1"]
    gpipe = ["--set", "schedule=gpipe", "--set", "pipeline=8", "--set", "tensor=1"]
    for number, (name, args, because, helps, setting) in enumerate((
            ("tensor over nodes", [*llama, "--set", "tensor=32", "--set", "pipeline=1"], "tensor 32 spans 4 nodes: what every layer exchanges",
             "without `tensor`", ["--set", "tensor<=64"]),
            ("few micro-batches", [*llama, *gpipe], "8 stages have 8 micro-batches to work on", "without `schedule`", ["--set", "pipeline=8", "--set", "tensor=1"]),
            ("a sample to divide", [*llama, *gpipe], "so most of them wait", "--set context=4", [*gpipe, "--set", "context=4"]),
            ("some micro-batches", [*llama, *gpipe[2:4], "--set", "tensor=8", "--set", "schedule=1f1b", "--set", "microbatch=4"],
             "8 stages have 16 micro-batches to work on, so some of them wait while a step begins and ends", "without `schedule`",
             [*gpipe[2:4], "--set", "tensor=8", "--set", "microbatch=4"]),
            ("a batch of no multiple", odd, "29 of 61 devices are left out: a batch of 512 does not divide over 33 to 61 data ranks",
             "a batch of 610 (--set batch=610)", ["--set", "batch=610"]),
            ("fp32", small, "products in fp32 run at 67 of the 989 TFLOP/s", "--set precision=mixed_bf16", ["--set", "precision=mixed_bf16"]))):
        if not harness.my_turn(number, 3):
            continue
        words = " ".join(check("poor: " + name, args, 0).stdout.split())
        line = re.search(r"helps %s: ~([0-9.]+) (ms|s) a step, ~[0-9.]+ times the tokens/s, MFU ~[0-9.]+%%; " % re.escape(helps), words)
        if not expect("poor: %s has a cause and a help" % name, line and because in words, words):
            continue
        kept = next(base for base in (llama, odd, small[:-2]) if args[:len(base)] == base)
        step_s = parse("poor: %s with the help" % name, [*kept, *setting])["estimate"]["step_s"]
        said = float(line[1]) * (1e-3 if line[2] == "ms" else 1)
        expect("poor: %s is as fast as said" % name, 0.99 < said / step_s < 1.06, (said, step_s))
    poor = parse("poor: as JSON", [*small, "--verbose"])
    helps = poor["poor_use"].get("helps", [])
    expect("poor: as JSON", poor["precision"] == "fp32" and "products in fp32" in poor["poor_use"].get("cause", "") and helps and
           all(help["times_faster"] >= 1.1 and help["step_s"] > 0 for help in helps) and "precision=mixed_bf16" in [help.get("option") for help in helps], poor["poor_use"])
    slow = folder + "/slow.dz"
    with open(slow, "w") as file:
        file.write("""use std.hw
use "%s/examples/gpt2.dz" as g
cluster slow { nodes = 8  node { base = std.hw.dgx_a100  nic { kind = "ethernet"  count = 1  bandwidth = 1.25GB/s  latency = 20us } } }
train { model = g.gpt2  data = synthetic(seed = 1)  batch = 512  steps = 10  precision = "mixed_bf16"  optimizer = adamw(lr = 1e-3) }
""" % ROOT)
    pins = [word for pin in "zero=1 tensor=1 pipeline=1 microbatch=64 recompute=none loss_chunks=1".split() for word in ("--set", pin)]
    run = check("poor: a slow network", [slow, *pins], 0, "8 devices take ~1.0 times as long for ~8.0 times fewer device hours (--gpus 8)")
    expect("poor: devices left out", "56 of 64 devices are left out" in run.stdout and "--set batch=2048" in run.stdout, run.stdout)
    long = ["--model", "llama3-8b", "--machine", "dgx-h100", "--gpus", "16", "--for", "megatron", "--set", "model.S=131072", "--set", "batch=2",
            "--set", "recompute=selective", "--set", "pipeline=1"]
    run = check("a sample that does not fit", long, 3, "with context 16 it fits")
    expect("a sample that fits divided", "(--set context=16)" in run.stderr, run.stderr)
    check("a sample divided", [*long, "--set", "context=16"], 0, "context 16")
    check("a sample divided by keys", [*long, "--set", "context=16", "--set", "context_by=keys"], 0, "context 16 by keys")


def idle_devices(folder):
    """A prime number of devices: what is used, what is left out, and who pays."""
    plan, model = folder + "/idle.json", NARROW[:-2]
    run = check("idle", [GPT1T, "--gpus", "797", *model, "-o", plan], 0, " of 797 used, ")
    with open(plan) as file:
        found = json.load(file)
    degrees = found["degrees"]
    used = degrees["tensor"] * degrees["pipeline"] * degrees["data"]
    expect("idle", 0 < found["idle"] == 797 - used and found["cluster"]["devices"] == 797, str(degrees))
    days = found["estimate"]["step_s"] * 71526 / 86400 * 797  # the steps of the example
    expect("rented", "%.1f k GPU-days" % (days / 1000) in run.stdout, "%g GPU-days" % days)
    check("idle verified", ["verify", plan], 0, "sound")
    check("idle reported", ["report", plan], 0, "%d of 797 used, %d left out" % (used, found["idle"]))
    check("all used", [GPT1T, "--gpus", "797", *model, "--set", "idle=0"], 3, "without the constraint on `idle` it fits")
    check("why not all", ["explain", plan, "--why-not", "idle=0"], 3, "nothing is legal with idle=0")
    check("why not more", ["explain", plan, "--why-not", "idle=17"], 0, "difference")
    other = folder + "/all.json"
    check("all of 792", [GPT1T, "--gpus", "792", *model, "-o", other], 0)
    check("diff", ["diff", plan, other], 4, "idle")
    sizes = parse("sweep", [GPT1T, "--gpus", "796..797", *model])
    last = sizes[-1]
    expect("sweep", last["devices"] == 797 and last["idle"] == found["idle"], str(last)[:300])
    tiny = [ROOT + "/examples/gpt_tiny.dz", "--ranks", "3", "--set", "tensor=2", "--set", "pipeline=1"]
    check("ranks left out", ["run", *tiny, "--set", "idle=1", "--steps", "1", "-o", folder + "/tree", "--", "--checkpoint", folder + "/ck"], 0, "2 ranks (tensor 2")
    check("fewer ranks", [ROOT + "/examples/gpt_tiny.dz", "--ranks", "7"], 0, "faster    with ")
    check("all ranks", ["run", *tiny, "--steps", "1", "-o", folder + "/tree"], 3, "idle >= 0")


def targets(folder):
    """What trainers are generated for: the cluster decides, --target and --arch may not contradict it."""
    cpu, gpu = (ROOT + "/examples/%s.dz" % name for name in ("gpt_tiny", "gpt_tiny_gpu"))
    nameless = folder + "/nameless.dz"
    with open(nameless, "w") as file:
        file.write("""use std.hw
use "%s" as m
device card {
  memory = 8GB  memory_bandwidth = 500GB/s  fp32 = 10TFLOPS
  efficiency { matmul = 70%%  attention = 40%%  memory = 80%% }
}
cluster c { nodes = 1  node = std.hw.workstation(devices = 1 * card) }
train { model = m.gpt_tiny()  batch = 8  steps = 2  optimizer = adamw(lr = 1e-3)  data = synthetic(seed = 1)  precision = "fp32" }
""" % os.path.relpath(cpu, os.path.realpath(folder)))
    tree = ["-o", folder + "/target"]
    for verb in ("build", "run", "bench"):
        check("a CPU cluster", [verb, cpu, "--target", "cuda", *tree], 1, "has CPU cores; --target cuda is for GPUs")
        check("an arch of a CPU", [verb, cpu, "--arch", "host", *tree], 1, "has CPU cores; --arch is for GPUs")
        check("a GPU cluster", [verb, gpu, "--target", "cpu", *tree], 1, "--target cpu is for CPU cores")
    check("no such target", ["build", gpu, "--target", "gpu"], 2, "--target is cpu or cuda")
    check("no such arch", ["build", gpu, "--arch", "ada"], 2, "such as sm_90, or host")
    check("no arch", ["build", nameless, *tree], 1, "does not say its `arch`")
    expect("nothing is built", not os.path.exists(folder + "/target"))


def completions(folder):
    script = folder + "/zplan.bash"
    with open(script, "w") as file:
        file.write(zplan("completion", "bash").stdout)
    for words, want in ((("zplan", "expl"), "explain"), (("zplan", "explain", "--wh"), "--why-not"),
                        (("zplan", "x.dz", "--color", "ne"), "never"), (("zplan", "x.dz", "--par"), "--pareto"),
                        (("zplan", "explain", "attenti"), "attention"), (("zplan", "explain", "--reference", "mess"), "messages"),
                        (("zplan", "x.dz", "--set", "zer"), "zero="), (("zplan", "x.dz", "--for", "fsdp-c"), "fsdp-compiled")):
        line = "source %s; COMP_WORDS=(%s); COMP_CWORD=%d; _zplan; echo \"${COMPREPLY[@]}\"" % (
            script, " ".join(words), len(words) - 1)
        got = subprocess.run(["bash", "-c", line], capture_output=True, text=True, cwd=folder).stdout.split()
        expect("completion of " + " ".join(words), got == [want], got)
    for verb in ("plan", "explain", "diff", "validate"):
        helped = zplan(verb, "--help").stdout
        expect("help of " + verb, helped.startswith("zplan " + verb) and "--color" in helped)
    for words in (("--help",), ("plan", "--help"), ("run", "--help"), ("data", "--help")):
        for columns in (80, 20):
            most = max(map(len, zplan(*words, env=dict(os.environ, COLUMNS=str(columns))).stdout.splitlines()))
            expect("%s in %d columns" % (" ".join(words), columns), most <= columns, most)
    helped = zplan("--help").stdout
    first = re.findall(r"^  zplan (.+)$", helped.partition("Commands:")[0], re.M)
    with open(folder + "/BOOK.txt", "w") as file:
        file.write("to be or not to be, that is the question\n" * 100)
    first = [words + " --set schedule=1f1b" * ("--gpus" in words) for words in first]
    done = [zplan(*words.replace("BOOK", folder + "/BOOK").split(), *(("-o", folder + "/book.dz") if "new" in words else ())).returncode for words in first]
    expect("help begins with two commands that work", done == [0, 0], first)
    expect("help has no status that nothing has", " 7 " not in helped.partition("Exit status")[2], helped[-400:])
    fish = zplan("completion", "fish").stdout
    expect("fish", "-l why-not" in fish and "-a completion" in fish)
    check("unknown shell", ["completion", "csh"], 2, "bash, zsh or fish")


def main():
    harness.build_quickly()
    with tempfile.TemporaryDirectory() as folder:
        for part in (statuses, documents, results_apart, file_limit, full_disk, interrupted, tables_and_files, absurd_rows, search_memory, reasons, poor_use, what_would_help, idle_devices, targets,
                     completions):
            start = time.time()
            part(folder)
            print("%-12s %5.1f s" % (part.__name__, time.time() - start))
    print("%d passed, %d failed" % (passed[0], len(failures)))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
