# SPDX-License-Identifier: Apache-2.0
"""Answers: JSON, what was reported, and rows for tables."""
from __future__ import annotations

import json
from typing import Any

from ._errors import Message

DECISIONS = ("idle", "zero", "microbatch", "loss_chunks", "schedule", "chunks", "recompute", "recompute_shard", "sequence", "compress",
             "rank_order", "cut")


def flat(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Objects in objects as keys with points between, without lists."""
    row: dict[str, Any] = {}
    for key, member in value.items():
        if isinstance(member, dict):
            row.update(flat(member, prefix + key + "."))
        elif not isinstance(member, list):
            row[prefix + key] = member
    return row


class Answer:
    """An answer of zplan.

    `text` is the JSON as the command prints it, `json` the same as Python values, `messages` what was reported, warnings too, and
    `notes` what the command prints on standard error."""

    def __init__(self, text: str, messages: list[Message], notes: str) -> None:
        self.text = text
        self.messages = messages
        self.notes = notes
        self.json: Any = json.loads(text)

    def rows(self) -> list[dict[str, Any]]:
        """Rows of the table that `to_pandas` makes."""
        values = self.json if isinstance(self.json, list) else [self.json]
        return [flat(value) for value in values]

    def to_pandas(self) -> Any:
        """A pandas.DataFrame of `rows()`. ImportError where pandas is not installed."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("to_pandas() needs pandas, which is not installed (pip install pandas); rows() needs nothing") from error
        return pandas.DataFrame(self.rows())

    def __repr__(self) -> str:
        return "<zplan.%s>" % type(self).__name__


class Model(Answer):
    """Shapes, parameters and FLOP of a model; a row a parameter."""

    @property
    def parameters(self) -> int:
        """How many parameters it has."""
        return self.json["parameters"]

    def rows(self) -> list[dict[str, Any]]:
        """A row a parameter: its name and shape."""
        return [dict(row) for row in self.json.get("parameter_list", [])]

    def __repr__(self) -> str:
        return "<zplan.Model %s, %d parameters>" % (self.json["model"], self.parameters)


class Table(Answer):
    """Several sizes, a Pareto front, machines, models: a row each."""

    def __len__(self) -> int:
        return len(self.rows())

    def __repr__(self) -> str:
        return "<zplan.Table of %d rows>" % len(self)


class Plan(Answer):
    """A plan file; a row for the plan, and one for every alternative that `top` adds."""

    @property
    def step_s(self) -> float:
        """Predicted seconds of a step."""
        return self.json["estimate"]["step_s"]

    @property
    def peak_bytes(self) -> int:
        """Bytes on the fullest device."""
        return self.json["estimate"]["peak_bytes"]

    @property
    def degrees(self) -> dict[str, int]:
        """Ranks of tensor, pipeline, data and expert parallelism."""
        return dict(self.json["degrees"])

    def rows(self) -> list[dict[str, Any]]:
        """Decisions and estimate, the best plan first."""
        common = {"model": self.json["model"]["name"], "device": self.json["cluster"]["device"], "devices": self.json["cluster"]["devices"]}
        rows = []
        for plan in [self.json] + self.json.get("alternatives", []):
            decisions = {key: plan[key] for key in DECISIONS if key in plan}
            rows.append({**common, **plan["degrees"], **decisions, **flat(plan["estimate"])})
        return rows

    def save(self, path: str) -> None:
        """Writes the plan file, which `zplan run` and others read. It is the text of the command's --json."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.text)

    def __repr__(self) -> str:
        degrees = ", ".join("%s %d" % item for item in self.degrees.items() if item[1] > 1) or "one device"
        return "<zplan.Plan %s: %s, %.4g s a step, %.4g GB>" % (self.json["model"]["name"], degrees, self.step_s, self.peak_bytes / 1e9)
