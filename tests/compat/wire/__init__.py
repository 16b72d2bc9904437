"""Reads the captured frames; README.md says what they are."""

import json
import lzma
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Captured:
    file: str
    about: str  # what was tried, the scenario or the command
    part: str  # req, resp or hex
    data: bytes
    asked: int | None  # code of the request this is, or answers
    by_java: bool  # written by Apache's code, not by hand
    outcome: str | None

    def __str__(self) -> str:
        return f"{self.file}: {self.about} ({self.part})"


@cache
def captured() -> tuple[Captured, ...]:
    return tuple(row for path in sorted(HERE.glob("*.jsonl.xz")) for row in _rows(path))


def _rows(path: Path) -> Iterator[Captured]:
    file = path.name.removesuffix(".jsonl.xz")
    for line in lzma.decompress(path.read_bytes()).splitlines():
        row = json.loads(line)
        about = row.get("name") or row.get("scenario") or row.get("command") or "registration"
        for part in ("req", "resp", "hex"):
            if row.get(part):
                asked = row.get("reply_to", row.get("code"))
                data = bytes.fromhex(row[part])
                yield Captured(file, about, part, data, asked, part != "req", row.get("outcome"))
