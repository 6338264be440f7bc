#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--json of every verb: standard output is one JSON document, of the shape in driver/README.md, whatever happens.

usage: json_shape.py [ZPLAN]
"""
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ZPLAN = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("ZPLAN", ROOT + "/build/release/zplan"))
TINY = ROOT + "/examples/gpt_tiny.dz"
failures, passed = [], [0]


def expect(name, condition, detail=""):
    if condition:
        passed[0] += 1
    else:
        failures.append(name)
        print("FAILED %s %s" % (name, detail))
    return condition


def document(name, args, status):
    """The one document that the command prints."""
    run = subprocess.run([ZPLAN, *args, "--json"], capture_output=True, text=True, timeout=900, env=dict(os.environ, ZPLAN_CALIBRATION="none"))
    expect(name + ": status", run.returncode == status, (run.returncode, run.stderr[:300]))
    try:
        return json.loads(run.stdout)
    except ValueError as error:
        expect(name + ": JSON", False, (str(error), run.stdout[:200], run.stderr[:200]))
        return None


def envelope(name, args, status=0, keys=(), words=""):
    """The result of a document in the shape of all verbs."""
    found = document(name, args, status)
    if not expect(name + ": shape", isinstance(found, dict) and sorted(found) == ["messages", "result", "status"], found):
        return
    expect(name + ": status in it", found["status"] == status, found)
    expect(name + ": result", all((found["result"] or {}).get(key) for key in keys), found["result"])
    said = " ".join(m["message"] for m in found["messages"])
    expect(name + ": messages", words in said and all(m["level"] in ("error", "warning") for m in found["messages"]), found["messages"])
    return found["result"] or {}


def doctor():
    made = envelope("doctor", ["doctor"], 0, ("version", "built_with", "found", "purposes"))
    expect("doctor: fields", "text" not in made and "warnings" in made, sorted(made))
    expect("doctor: rows", all(sorted(row) == ["found", "name", "needed_for"] for row in made["built_with"] + made["found"]), made)
    expect("doctor: Jansson", any(row["name"] == "Jansson" and row["found"] for row in made["built_with"]), made)
    expect("doctor: purposes", all(sorted(row) == ["missing", "name", "ready", "remedy"] and row["ready"] == (row["missing"] is None)
                                   for row in made["purposes"]), made["purposes"])


def completion():
    for shell in ("bash", "zsh", "fish"):
        made = envelope("completion " + shell, ["completion", shell], 0, ("shell", "script", "verbs", "options"))
        plain = subprocess.run([ZPLAN, "completion", shell], capture_output=True, text=True).stdout
        expect("completion: the script", made["shell"] == shell and made["script"] == plain and "text" not in made)
    verbs = {verb["name"]: verb["options"] for verb in made["verbs"]}
    options = {option["name"]: option for option in made["options"]}
    expect("completion: verbs", {"plan", "run", "doctor"} <= set(verbs) and "--gpus" in verbs["plan"] and "--resume" not in verbs["plan"], verbs)
    expect("completion: options", set(sum(verbs.values(), [])) <= set(options) and options["--resume"]["value"] is None and options["--gpus"]["help"], options)


def main():
    with tempfile.TemporaryDirectory(prefix="zplan-json-") as folder:
        plan, text, model = folder + "/plan.json", folder + "/text.txt", folder + "/bad.dz"
        with open(text, "w") as file:
            file.write("some words to train on\n" * 20)
        with open(model, "w") as file:
            file.write("train { batch = }\n")
        with open(folder + "/loose.dz", "w") as file:
            file.write("use std.hw\ncluster   c { nodes = 1 node = std.hw.dgx1v }\n")
        subprocess.run([ZPLAN, TINY, "-o", plan], check=True, capture_output=True)
        # answers that scripts read as they are
        expect("plan", document("plan", [TINY], 0)["degrees"])
        expect("a table", isinstance(document("a table", [TINY, "--gpus", "1..2"], 0), list))
        expect("check", "parameters" in json.dumps(document("check", ["check", TINY], 0)))
        expect("diff", document("diff", ["diff", plan, plan], 0)["same"] is True)
        expect("compare with a page", len(document("compare with a page", ["compare", plan, plan, "--html", folder + "/sides.html"], 0).get("plans", [])) == 2)
        expect("no plan", document("no plan", [TINY, "--set", "tensor=3"], 3)["feasible"] is False)
        # the shape of all others
        envelope("verify", ["verify", plan], 0, ("plan_hash", "text"))
        envelope("report", ["report", plan, "--html", folder + "/r.html"], 0, ("html", "text"))
        with open(folder + "/log.jsonl", "w") as file:
            file.write('{"step": 1, "loss": 2.5, "step_ms": 10}\n{"event": "end", "step": 1}\n')
        envelope("watch", ["watch", "--once", folder + "/log.jsonl"], 0, ("healthy", "logs"))
        envelope("explain a code", ["explain", "Z0601"], 0, ("code", "title", "text"))
        envelope("explain a plan", ["explain", plan], 0, ("text",))
        envelope("export", ["export", "slurm", plan, "-o", folder + "/job.sh"], 0, ("file",))
        envelope("export to standard output", ["export", "slurm", plan], 0, ("text",))
        envelope("data", ["data", text, "-o", folder + "/t.bin"], 0, ("file",))
        made = envelope("fmt --check", ["fmt", "--check", folder + "/loose.dz", TINY], 4, ("files",))
        expect("fmt --check: files", made["files"] == [{"file": folder + "/loose.dz", "canonical": False, "written": False},
                                                       {"file": TINY, "canonical": True, "written": False}], made)
        made = envelope("fmt", ["fmt", folder + "/loose.dz"], 0, ("files",))
        expect("fmt: files", made["files"] == [{"file": folder + "/loose.dz", "canonical": False, "written": True}], made)
        completion()
        doctor()
        # errors, of every verb
        envelope("a file with an error", ["plan", model], 1, words="expected")
        envelope("no such file", ["plan", folder + "/none.dz"], 1, words="none.dz")
        envelope("no plan file", ["verify", text], 1)
        envelope("wrong words", ["plan", TINY, "--gpuz", "4"], 2, words="unknown option `--gpuz`")
        envelope("wrong words behind", ["check", "--nonsense"], 2, words="unknown option")
        for verb in ("build", "run", "bench", "compare", "diff", "validate", "import", "sample", "eval", "data", "fmt", "export", "explain", "watch"):
            envelope("nothing for " + verb, [verb], 2, words="zplan " + verb)
    print("%d passed, %d failed" % (passed[0], len(failures)))
    sys.exit(bool(failures))


main()
