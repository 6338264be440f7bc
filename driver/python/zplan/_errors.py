# SPDX-License-Identifier: Apache-2.0
"""What was reported, and exceptions that carry it."""
from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Optional


@dataclass(frozen=True)
class Message:
    """One diagnostic. `line` and `column` count from 1, and are None where it is about no place in a file."""

    level: str
    text: str
    code: Optional[str] = None
    file: Optional[str] = None
    line: Optional[int] = None
    column: Optional[int] = None
    help: tuple[str, ...] = ()

    def __str__(self) -> str:
        place = "%s:%d:%d: " % (self.file, self.line, self.column) if self.file is not None else ""
        code = "[%s]" % self.code if self.code else ""
        return "%s%s%s: %s" % (place, self.level, code, self.text) + "".join("\n    help: " + text for text in self.help)


def read_message(row: dict[str, Any]) -> Message:
    """A message as the library has it."""
    span = next((span for span in row.get("spans", []) if span.get("is_primary")), {})
    return Message(row["level"], row["message"], (row.get("code") or {}).get("code"), span.get("file_name"), span.get("line_start"),
                   span.get("column_start"), tuple(child["message"] for child in row.get("children", []) if child["level"] == "help"))


def read_messages(text: str) -> list[Message]:
    """The array of zplan_messages."""
    return [read_message(row) for row in json.loads(text)]


class ZplanError(Exception):
    """A call without an answer. `messages` has all errors, `notes` the text that the command would print, `status` its exit status;
    `file`, `line` and `column` are those of the first error that has a place."""

    def __init__(self, status: int, messages: list[Message], notes: str) -> None:
        self.status = status
        self.messages = messages
        self.notes = notes
        errors = [message for message in messages if message.level == "error"]
        placed = next((message for message in errors if message.file is not None), None)
        self.file = placed.file if placed else None
        self.line = placed.line if placed else None
        self.column = placed.column if placed else None
        super().__init__("\n".join(str(message) for message in errors) or notes.strip() or "status %d" % status)


class Infeasible(ZplanError):
    """No plan fits. `json` says what is short (`miss`) and what would fit (`nearest`)."""

    def __init__(self, status: int, messages: list[Message], notes: str, document: Any) -> None:
        super().__init__(status, messages, notes)
        self.json = document
