"""Divides the test files into lanes that take about the same time. Lanes run at once: most tests wait.

A file is never divided, since its tests share servers and count which allowed differences were needed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass

# Minutes of a file on an idle machine with 2 cores, as the summary of a run prints them.
MINUTES: dict[str, float] = {}
OTHER_MINUTES = 0.5


@dataclass(frozen=True)
class Lane:
    number: int
    of: int


def parse(text: str) -> Lane:
    """Reads `1/2`: the first of two lanes."""
    number, _, of = text.partition("/")
    if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise argparse.ArgumentTypeError(f"a lane must be written as 1/2, got {text!r}")
    return Lane(int(number), int(of))


def files(lane: Lane, every: Iterable[str]) -> set[str]:
    """The files of a lane: the longest first, each to the lane that has the least to do."""
    loads = [0.0] * lane.of
    wanted = set()
    for name in sorted(every, key=lambda name: (-_minutes(name), name)):
        chosen = loads.index(min(loads))
        loads[chosen] += _minutes(name)
        if chosen == lane.number - 1:
            wanted.add(name)
    return wanted


def _minutes(name: str) -> float:
    return MINUTES.get(name.removeprefix("test_"), OTHER_MINUTES)
