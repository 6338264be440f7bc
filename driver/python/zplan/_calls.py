# SPDX-License-Identifier: Apache-2.0
"""The functions of the module: a verb of zplan each.

`file` is the path of a .dz file or a plan file, or a Plan. `text` is what stands in the file, instead of reading it. Keywords are
options of the command: gpus=64 is --gpus 64, device_memory="4GiB" is --device-memory 4GiB, pareto=True is --pareto, and a list gives
an option several times. `set` takes {"tensor": 8}, ["tensor<=8"] or one text.
"""
from __future__ import annotations

import os
from typing import Any, Mapping, Optional, Sequence, Union

from . import _library
from ._answers import Answer, Model, Plan, Table
from ._errors import Infeasible, ZplanError, read_messages

File = Union[str, "os.PathLike[str]", Plan]
Settings = Union[str, Mapping[str, Any], Sequence[str]]
INFEASIBLE, DIFFERENT = 3, 4
NAMES = {"program": "for"}  # a word of Python's own


def setting_words(settings: Settings) -> list[str]:
    """{"tensor": 8} as ["tensor=8"]. A text or a list of texts is as the command takes it."""
    if isinstance(settings, str):
        return [settings]
    if isinstance(settings, Mapping):
        return ["%s=%s" % (key, str(value).lower() if isinstance(value, bool) else value) for key, value in settings.items()]
    return [str(word) for word in settings]


def option_words(options: Mapping[str, Any]) -> list[str]:
    """Keywords as words of the command."""
    words: list[str] = []
    for key, value in options.items():
        name = "--" + NAMES.get(key, key).replace("_", "-")
        if key == "output":
            name = "-o"
        if value is None or value is False:
            continue
        if value is True:
            words.append(name)
            continue
        values = setting_words(value) if key == "set" else list(value) if isinstance(value, (list, tuple)) else [value]
        for one in values:
            words += [name, os.fspath(one) if isinstance(one, os.PathLike) else str(one)]
    return words


def call(verb: str, *words: str, file: Optional[File] = None, text: Optional[str] = None, **options: Any) -> Answer:
    """Any verb of the library, with words as on the command line. Raises ZplanError with what was reported, Infeasible where no plan
    fits. The answer of `diff` is one also where decisions differ."""
    if isinstance(file, Plan):
        file, text = "plan.json", file.text
    raw = _library.call(verb, None if file is None else os.fspath(file), text, list(words) + option_words(options))
    messages = read_messages(raw.messages)
    if raw.status == INFEASIBLE:
        raise Infeasible(raw.status, messages, raw.notes, Answer(raw.json, messages, raw.notes).json)
    if raw.status not in (0, DIFFERENT):
        raise ZplanError(raw.status, messages, raw.notes)
    return Answer(raw.json, messages, raw.notes)


def typed(kind: type, answer: Answer) -> Any:
    """The same answer as another class."""
    return kind(answer.text, answer.messages, answer.notes)


def parse(file: Optional[File] = None, *, text: Optional[str] = None, **options: Any) -> Model:
    """Shapes, parameter count and FLOP of a model."""
    return typed(Model, call("check", file=file, text=text, **options))


def plan(file: Optional[File] = None, *, gpus: Union[int, str, None] = None, model: Optional[str] = None, machine: Optional[str] = None,
         set: Optional[Settings] = None, text: Optional[str] = None, **options: Any) -> Union[Plan, Table]:  # noqa: A002
    """The best plan, of a file or of a published model on a machine: plan(model="llama3-8b", machine="dgx-h100", gpus=64).

    gpus="8..64" plans several sizes and gives a Table, and so do pareto=True and sensitivity=True. Raises Infeasible where none fits."""
    answer = call("plan", file=file, text=text, gpus=gpus, model=model, machine=machine, set=set, **options)
    single = isinstance(answer.json, dict) and "plan_hash" in answer.json
    return typed(Plan if single else Table, answer)


def price(file: File, decisions: Optional[Settings] = None, *, gpus: Optional[int] = None, text: Optional[str] = None, **options: Any) -> Plan:
    """The best plan that has these decisions, {"tensor": 8, "zero": 1}, with its time, memory and traffic. Of a plan file or a Plan,
    without decisions: its price made anew."""
    words = [word for one in setting_words(decisions or []) for word in ("--set", one)]
    return typed(Plan, call("plan", *words, file=file, text=text, gpus=gpus, **options))


def verify(file: File, *, text: Optional[str] = None, **options: Any) -> str:
    """Proves a plan; its hash. Raises ZplanError with what is not sound."""
    return call("verify", file=file, text=text, **options).json["result"]["plan_hash"]


def report(file: File, *, html: Union[str, "os.PathLike[str]", None] = None, text: Optional[str] = None, **options: Any) -> str:
    """A plan for people, as text. html: writes the report page there, and returns its path."""
    result = call("report", file=file, text=text, html=html, **options).json["result"]
    return result["html"] if html is not None else result["text"]


def explain(word: str) -> str:
    """What a key, an operation, a flag or the code of a message is."""
    return call("explain", word).json["result"]["text"]


def models(*words: str) -> Table:
    """Published models by name, those that have all the words."""
    return typed(Table, call("models", *words))


def machines(*words: str) -> Table:
    """Machines and devices by name, those that have all the words."""
    return typed(Table, call("machines", *words))


def version() -> str:
    """The version of libzplan."""
    return _library.version()
