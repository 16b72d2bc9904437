"""What Apache's mqadmin and ours printed for one command, brought to one form.

Apache's prints the stack of an exception, a word of its own or nothing at all, and ends well; ours prints a
line and ends with 1, or with 2 when it was asked wrongly. Both must fail at the same commands, and where a
server refused, ours must have its words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from . import compare
from .compare import Difference

OUR_ERROR = "mqadmin: "
REFUSED = "refused by "  # otherwise it is our own finding, such as a group that is not there
CUT = "(cut: "
DESCRIPTION = re.compile(r"CODE: \d+ DESC: (.*?)(?: BROKER: \S+)?$")
LINES_OF_5 = ("Topic Put TPS", "Consume Inflight Total")
INFLIGHT = re.compile(r"^(\S+ broker-a .*|#Topic .*) (?:\d+|#Inflight) (<n>|N/A|#LastTime)$")
BREAK_IN_JSON = re.compile(
    r"(?<=\[)\n(?=\])|(?<=\{)\n(?=\d+:)"
)  # its libraries differ in where they break lines
COMPLAINT = re.compile(
    r"<exception>|\[error\] |\bnot exist\b|^usage: |^Please |^Broker name must be set|^false$"
    r"|error broker not exit|^get consumer info failed|does not exists$"
)


@dataclass(frozen=True)
class Failed:
    why: str

    def __str__(self) -> str:
        return f"failed: {self.why}"


def of_apache(facts: Any) -> Any:
    if isinstance(facts, dict) and facts.get("status"):
        return Failed("")
    lines = _lines(facts)
    for line in lines:
        if described := DESCRIPTION.search(line):
            return Failed(described[1].strip())
    return Failed("") if any(map(COMPLAINT.search, lines)) else _plain(facts)


def of_ours(facts: Any) -> Any:
    if isinstance(facts, dict) and facts.get("status"):
        errors = [line for line in _lines(facts) if line.startswith(OUR_ERROR)]
        return Failed(errors[-1].removeprefix(OUR_ERROR) if errors else "")
    return _plain(facts)


def differences(printed_by_apache: Any, printed_by_ours: Any, path: str) -> Iterator[Difference]:
    yield from _differences(of_apache(printed_by_apache), of_ours(printed_by_ours), path)


def differences_of_4_9(printed_by_apache: Any, printed_by_ours: Any, path: str) -> Iterator[Difference]:
    """Ours has the columns of 5.x."""
    yield from _differences(of_apache(printed_by_apache), as_4_9(of_ours(printed_by_ours)), path)


def _differences(apache: Any, ours: Any, path: str) -> Iterator[Difference]:
    if isinstance(apache, Failed) and isinstance(ours, Failed):
        if apache.why not in ours.why and ours.why.startswith(REFUSED):
            yield Difference(path, apache, ours)
    elif isinstance(apache, Failed) or isinstance(ours, Failed):
        yield Difference(path, apache, ours)
    else:
        yield from compare.differences(apache, ours, path)


def as_4_9(facts: Any) -> Any:
    """The same without the columns that came with 5.x."""
    if not isinstance(facts, list):
        return facts
    lines = [line for line in facts if not line.startswith(LINES_OF_5)]
    return [INFLIGHT.sub(r"\1 \2", line.replace("Consume Diff Total", "Diff Total")) for line in lines]


def _plain(facts: Any) -> Any:
    if isinstance(facts, dict) and "endless" in facts:
        return _lines(facts)
    if isinstance(facts, list) and all(isinstance(line, str) for line in facts):
        text = "\n".join(line for line in facts if not line.startswith((CUT, OUR_ERROR)))
        return BREAK_IN_JSON.sub("", text).splitlines()
    return facts


def _lines(facts: Any) -> list[str]:
    if isinstance(facts, dict):
        return _lines(facts["printed"]) if "printed" in facts else list(facts)
    return facts if isinstance(facts, list) else []
