#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python module over libzplan: its answers against the command's, errors as exceptions with places, Ctrl-C, the guide's code, and
the notebook `examples/plan.ipynb`, whose outputs are those that it has.

usage: library_python.py [--write]     --write: the notebook gets the outputs of now
"""
import ast
import contextlib
import inspect
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402

os.environ["ZPLAN_LIBZPLAN"] = os.path.join(os.path.dirname(harness.ZPLAN), "libzplan.so")
MODULE = os.path.join(harness.ROOT, "driver", "python")
EXAMPLES = os.path.join(harness.ROOT, "examples")
NOTEBOOK = os.path.join(EXAMPLES, "plan.ipynb")
GUIDE = os.path.join(harness.ROOT, "docs", "guide", "library.md")
TINY = os.path.join(EXAMPLES, "gpt_tiny.dz")
sys.path.insert(0, MODULE)
import zplan  # noqa: E402


def raised(kind, function, *words, **options):
    """The exception of that kind; None: none came."""
    try:
        function(*words, **options)
    except kind as error:
        return error
    return None


def check_answers(tally):
    command = harness.zplan("plan", TINY, "--gpus", "4", "--top", "2", "--json")
    plan = zplan.plan(TINY, gpus=4, top=2)
    tally.check("a plan is the command's", plan.text == command.out and plan.json == json.loads(command.out))
    tally.check("a row for the plan and its alternatives", [row["step_s"] for row in plan.rows()]
                == [plan.step_s] + [other["estimate"]["step_s"] for other in plan.json["alternatives"]] and len(plan.rows()) == 3)
    with open(TINY, encoding="utf-8") as file:
        text = file.read()
    data = {"data": "synthetic(seed=1)", "train.validate.data": "synthetic(seed=2)"}
    tally.check("a text is a file", zplan.plan(text=text, gpus=4, set=data).degrees == plan.degrees)
    tally.check("a plan is proven", zplan.verify(plan) == plan.json["plan_hash"])
    tally.check("and priced anew", zplan.price(plan).json["estimate"] == plan.json["estimate"])
    pinned = zplan.price(TINY, {"tensor": 2, "zero": 0}, gpus=4)
    tally.check("decisions are pinned", pinned.degrees["tensor"] == 2 and pinned.json["zero"] == 0 and pinned.step_s > plan.step_s)
    model = json.loads(harness.zplan("check", TINY, "--json").out)
    tally.check("a model", zplan.parse(TINY).json == model and len(zplan.parse(TINY).rows()) == len(model["parameter_list"]))
    sizes = zplan.plan(TINY, gpus="1..4")
    tally.check("sizes are a table", isinstance(sizes, zplan.Table) and [row["devices"] for row in sizes.rows()] == [1, 2, 3, 4])
    tally.check("catalogues", len(zplan.models("llama3")) > 2 and any(row["name"] == "dgx-h100" for row in zplan.machines().rows()))
    tally.check("a report, a word", "micro-batch 8" in zplan.report(plan) and "ZeRO" in zplan.explain("zero"))
    with tempfile.TemporaryDirectory() as folder:
        plan.save(os.path.join(folder, "p.json"))
        tally.check("a saved plan is the command's", harness.zplan("verify", os.path.join(folder, "p.json")).status == 0)
        page = zplan.report(plan, html=os.path.join(folder, "r.html"))
        tally.check("a page", os.path.getsize(page) > 10000)


def check_errors(tally):
    error = raised(zplan.ZplanError, zplan.plan, text="model a {}\nmodel x { banana }\n")
    tally.check("file, line and column", error and (error.file, error.line, error.column) == ("input.dz", 2, 18)
                and str(error).startswith("input.dz:2:18: error[Z0101]"), error)
    error = raised(zplan.Infeasible, zplan.plan, TINY, device_memory="2MiB")
    tally.check("no plan fits", error and error.status == 3 and error.json["miss"]["need_bytes"] > error.json["miss"]["have_bytes"], error)
    error = raised(zplan.ZplanError, zplan.plan, TINY, banana=3)
    tally.check("an option that is none", error and error.status == 2 and "--banana" in str(error), error)
    error = raised(zplan.ZplanError, zplan.plan, "nowhere.dz")
    tally.check("a file that is not there", error and "nowhere.dz" in str(error), error)
    error = raised(zplan.ZplanError, zplan.verify, "plan.json", text="{}")
    tally.check("a plan file that is none", error and "not a plan of zplan" in str(error), error)
    tally.check("a zero byte", raised(ValueError, zplan.plan, text="model\0") is not None)
    tally.check("after errors a plan", zplan.plan(TINY, gpus=4).json["feasible"])


def check_pandas(tally):
    plan = zplan.plan(TINY, gpus=4, top=2)
    kept = sys.modules.get("pandas")
    sys.modules["pandas"] = None  # as where it is not installed
    error = raised(ImportError, plan.to_pandas)
    tally.check("without pandas a message", error and "pip install pandas" in str(error), error)
    del sys.modules["pandas"]
    if kept:
        sys.modules["pandas"] = kept
    with contextlib.suppress(ImportError):
        import pandas
        frame = plan.to_pandas()
        tally.check("a DataFrame", isinstance(frame, pandas.DataFrame) and frame.to_dict("records") == plan.rows())


def check_threads(tally):
    want, same = zplan.plan(TINY, gpus=4).text, []
    threads = [threading.Thread(target=lambda: same.append(zplan.plan(TINY, gpus=4).text == want)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tally.check("threads", same == [True] * 4)


def check_interrupt(tally):
    """A search of more than a second. The call ends with the status of one that was interrupted, before the exception comes."""
    words = ("import sys, zplan\nlibrary, ask = zplan._library, zplan._library.ask\n"
             "def seen(*words):\n  raw = ask(*words)\n  print('status', raw.status, flush=True)\n  return raw\n"
             "library.ask = seen\nprint('begins', flush=True)\nzplan.plan(sys.argv[1], top=40)")
    child = subprocess.Popen([sys.executable, "-c", words, os.path.join(EXAMPLES, "gpt1t.dz")], env={**os.environ, "PYTHONPATH": MODULE}, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # jobs in the background ignore it
    child.stdout.readline()
    time.sleep(0.2)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=120)
    tally.check("Ctrl-C ends the search, and is KeyboardInterrupt", out == "status 130\n" and "KeyboardInterrupt" in err, out + err[-300:])


def check_shape(tally):
    """What a reader and a type checker need."""
    functions = [getattr(zplan, name) for name in zplan.__all__ if inspect.isfunction(getattr(zplan, name))]
    classes = [getattr(zplan, name) for name in zplan.__all__ if inspect.isclass(getattr(zplan, name))]
    methods = [member for kind in classes for name, member in vars(kind).items() if inspect.isfunction(member) and not name.startswith("_")]
    bare = [f.__name__ for f in functions + methods if not f.__doc__ or "return" not in f.__annotations__]
    bare += [kind.__name__ for kind in classes if not kind.__doc__]
    tally.check("docstrings and types", functions and methods and not bare, " ".join(bare))
    tally.check("marked as typed", os.path.exists(os.path.join(MODULE, "zplan", "py.typed")))
    with open(os.path.join(MODULE, "zplan", "__init__.py"), encoding="utf-8") as file:
        head = file.read().split("from .")[0]
    old = "import sys\nsys.version_info = (3, 8, 0)\n" + head
    done = subprocess.run([sys.executable, "-c", old], capture_output=True, text=True, check=False)
    tally.check("an old Python is named", done.returncode == 1 and "needs Python 3.9 or newer, and this is 3.8" in done.stderr, done.stderr)


def run_cell(source, names):
    """Executes a cell; what it prints and the text of its last expression, as Jupyter shows them."""
    tree, printed = ast.parse(source), io.StringIO()
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), names)
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), names) if last else None
    outputs = []
    if printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": printed.getvalue().splitlines(keepends=True)})
    if value is not None:
        outputs.append({"data": {"text/plain": repr(value).splitlines(keepends=True)}, "execution_count": None, "metadata": {},
                        "output_type": "execute_result"})
    return outputs


def check_notebook(tally, write):
    with open(NOTEBOOK, encoding="utf-8") as file:
        notebook = json.load(file)
    names, before = {"__name__": "__main__"}, os.getcwd()
    os.chdir(EXAMPLES)
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(cells, 1):
        outputs = run_cell("".join(cell["source"]), names)
        for output in outputs:
            output.update({"execution_count": number} if "execution_count" in output else {})
        tally.check("cell %d of the notebook" % number, write or outputs == cell["outputs"], "%s\nnot %s" % (outputs, cell["outputs"]))
        cell.update(outputs=outputs, execution_count=number)
    os.chdir(before)
    tally.check("it is a notebook", notebook["nbformat"] == 4 and len(cells) > 3)
    if write:
        with open(NOTEBOOK, "w", encoding="utf-8") as file:
            file.write(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


def check_guide(tally):
    with open(GUIDE, encoding="utf-8") as file:
        blocks = re.findall(r"^```python\n(.*?)^```", file.read(), re.M | re.S)
    before = os.getcwd()
    os.chdir(EXAMPLES)
    names, good = {}, bool(blocks)
    for block in blocks:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(block, "guide", "exec"), names)
        said = re.findall(r"# prints (.*)", block)
        good = good and printed.getvalue().splitlines() == said
        tally.check("the guide's Python prints what it says", printed.getvalue().splitlines() == said, printed.getvalue())
    os.chdir(before)
    tally.check("the guide has Python", good)


def main():
    harness.require_zplan()
    tally = harness.Tally()
    write = sys.argv[1:] == ["--write"]
    for check in (check_answers, check_errors, check_pandas, check_threads, check_interrupt, check_shape, check_guide):
        check(tally)
    check_notebook(tally, write)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
