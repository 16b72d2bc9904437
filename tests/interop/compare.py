"""Two sets of answers, difference by difference.

A broker that answered with the text of a Java exception was recorded as `<exception>`: any words are as
good, the code counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

ANY_WORDS = "<exception>"
ABSENT = "<absent>"


@dataclass(frozen=True)
class Difference:
    path: str
    recorded: Any
    seen: Any

    def __str__(self) -> str:
        return f"{self.path}\n    recorded: {_short(self.recorded)}\n    seen:     {_short(self.seen)}"


def differences(recorded: Any, seen: Any, path: str = "") -> Iterator[Difference]:
    """Paths read `scenario / step / field`."""
    if isinstance(recorded, dict) and isinstance(seen, dict):
        for key in {**recorded, **seen}:
            below = f"{path} / {key}" if path else str(key)
            yield from differences(recorded.get(key, ABSENT), seen.get(key, ABSENT), below)
    elif isinstance(recorded, list) and isinstance(seen, list) and len(recorded) == len(seen):
        for index, (left, right) in enumerate(zip(recorded, seen, strict=True)):
            yield from differences(left, right, f"{path} / {index}")
    elif recorded != seen and not (recorded == ANY_WORDS and isinstance(seen, str)):
        yield Difference(path, recorded, seen)


def _short(value: Any, limit: int = 300) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}…"


def listing(found: list[Difference], limit: int = 40) -> str:
    lines = [str(difference) for difference in found[:limit]]
    if len(found) > limit:
        lines.append(f"… and {len(found) - limit} more")
    return "\n".join([f"{len(found)} differences", *lines])
