"""What a tool printed, as facts that are the same in every run: addresses, ids, times and rates become names.

Most answers are lists of lines. What a tool prints in the order of some hash table is a count per line, and
settings and figures are a value per name, so that a difference names the one that differs.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Facts = list[str] | dict[str, Any]

N = "<n>"
VOLATILE = (
    (re.compile(r"\d{4}-\d\d-\d\d[ T#]\d\d:\d\d:\d\d([,.:]\d{3})?"), N),
    (re.compile(r"\d+\.\d+\.\d+\.\d+:\d+"), "<address>"),
    (re.compile(r"\d+\.\d+\.\d+\.\d+"), "<ip>"),
    (re.compile(r"\d+\.\d+(E-?\d+)?(\([^)]*\))?"), N),  # a rate, with the load beside it
    (re.compile(r"\b(\d{17}|\d{13})\b"), N),  # a time
    (re.compile(r"(?<![0-9A-F])([0-9A-F]{56}|[0-9A-F]{32})(?![0-9A-F])"), "<id>"),
    (re.compile(r"\b\d+-\d+(?=\()"), N),  # how far the timer is
    (re.compile(r"(?<=@)\d+$"), N),  # the offset at the end of an index key
    (re.compile(r"(?<=rt=)\d+(?=ms)|(?<=spentTimeMills=)\d+|(?<=MonitorService_)-?\d+"), N),
    # Ids are longer on a machine with an address of version 6, and so are records.
    (re.compile(r"(?<=commitLogOffset=)\d+|(?<=storeSize=)\d+|(?<=physicOffset=)\d+|(?<=physicSize=)\d+"), N),
)
VOLATILE_KEYS = ("counter", "cpuNum")
# A tool that takes its time is a client too, with an id, a group and a topic; a quick one is not. And 4.9.7
# makes topics for transactions a minute after its start.
BY_CHANCE = re.compile(r"TOOLS_CONSUMER|readers|@<n>|RMQ_SYS_TRANS_(OP_)?HALF_TOPIC")
# A Java exception and its stack: the first words are the tool's own, the cause is the fact.
LEFT_OUT = re.compile(
    r"\s*$|\tat |\t\.\.\.|WARNING|CommitLog Offset|For more information, please visit|See https?:"
)
EXCEPTION = re.compile(r"^(\w+\.)+(\w*(?:Exception|Error))\b(: )?(\w+ (?:sub)?command failed)?")
HASHED = re.compile(r"\{([^{}]*=[^{}]*)\}")  # a hash map of Java, printed
OF_THIS_MACHINE = re.compile(r"(\w*ListenPort|listenPort|\w*(Thread|Executor)\w*(s|Num))")
TRACK = "MessageTrack ["
# Apache forgets to break the line here.
NO_LINE_BREAK = re.compile(r"(?<=\])(?=MessageTrack \[)|(?<=[a-z])(?=OffsetID:)|(?<=not exist)(?=org)")
USAGE = re.compile(r"^usage: \w+ \w+", re.MULTILINE)
BODY_FILE = re.compile(r"^Message Body Path: +(\S+)", re.MULTILINE)


class Cleaner:
    """Replaces what this run alone has: its addresses and directories."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = dict(sorted(names.items(), key=lambda name: -len(name[0])))

    def text(self, text: str) -> str:
        for actual, name in self._names.items():
            text = text.replace(actual, name)
        for pattern, name in VOLATILE:
            text = pattern.sub(name, text)
        return text

    def line(self, line: str) -> str:
        line = self.text(" ".join(line.split()))
        line = HASHED.sub(lambda found: "{" + ", ".join(sorted(found[1].split(", "))) + "}", line)
        return EXCEPTION.sub(r"<exception>", line)

    def lines(self, text: str) -> list[str]:
        """The description of options, which may follow an error, is the tool's own."""
        usage = USAGE.search(text)
        if usage:
            text = text[: usage.end()]
        text = NO_LINE_BREAK.sub("\n", text)
        return tracks_sorted([self.line(line) for line in text.splitlines() if not LEFT_OUT.match(line)])

    def value(self, value: Any) -> Any:
        """The same for a JSON value."""
        if isinstance(value, dict):
            return {
                self.text(str(key)): N if key in VOLATILE_KEYS else self.value(item)
                for key, item in sorted(value.items())
                if not BY_CHANCE.search(key)
            }
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, float) or (isinstance(value, int) and value > 1_000_000_000_000):
            return N
        return value


def tracks_sorted(lines: list[str]) -> list[str]:
    """How far each group is with a message, in no order: they stand together."""
    tracks = [line for line in lines if line.startswith(TRACK)]
    first = lines.index(tracks[0]) if tracks else 0
    rest = [line for line in lines if not line.startswith(TRACK)]
    return [*rest[:first], *sorted(tracks), *rest[first:]]


def without_chance(lines: list[str]) -> Facts:
    return counted([line for line in lines if not BY_CHANCE.search(line)])


def counted(lines: list[str]) -> Facts:
    return dict(sorted(Counter(lines).items()))


def settings(lines: list[str], separator: str) -> Facts:
    """`name = value` per line, and headings. Ports are of this run, thread counts of this machine."""
    facts: dict[str, str] = {}
    for line in lines:
        if line.startswith("==="):
            facts[line] = ""
            continue
        name, _, value = line.partition(separator)
        facts[name.strip()] = N if OF_THIS_MACHINE.fullmatch(name.strip()) else value.strip()
    return dict(sorted(facts.items()))


def file(path: Path, clean: Cleaner) -> Any:
    """A JSON file that a tool wrote, and that nobody needs afterwards."""
    text = path.read_text()
    path.unlink()
    return clean.value(json.loads(text))


def body_files(text: str) -> list[str]:
    """Bodies that a tool wrote to files, read and removed."""
    bodies = []
    for name in BODY_FILE.findall(text):
        path = Path(name)
        if path.exists():
            bodies.append(path.read_text("utf-8", "replace"))
            path.unlink()
    return bodies
