"""Divides the test files into lanes that take about the same time. Lanes run at once: most tests wait.

A file is never divided, since its tests share servers and count which allowed differences were needed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# Minutes of a file, as the summary of a run in two lanes on 2 cores prints them. What begins with the session
# waits beside the other tests and counts as little.
MINUTES: dict[str, float] = {
    "access_commands": 1.2,
    "at_least_once": 2.3,
    "bodies": 2.2,
    "broadcast_offsets": 1.2,
    "client_settings": 0.3,
    "dledger_brokers": 3.0,
    "extensions": 1.8,
    "filters": 5.4,
    "first_messages": 1.8,
    "guarded_clients": 1.6,
    "harness": 0.0,
    "mariadb": 2.5,
    "mqadmin": 4.2,
    "old_mqadmin": 1.0,
    "our_client_churn": 1.1,
    "our_consumer": 1.4,
    "our_mqadmin": 2.3,
    "postgres": 2.3,
    "push": 1.2,
    "queue_kinds": 1.9,
    "scenarios": 3.4,
    "store_round_trip": 3.1,
    "timers": 0.8,
    "transactions": 3.4,
}
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


def files(lane: Lane, every: Iterable[str], shares: Mapping[str, float] | None = None) -> set[str]:
    """Returns the files of a lane: the longest first, each to the lane that has the least to do.

    `shares` says which part of a file's tests is to run, where it is not the whole.
    """
    minutes = {name: _minutes(name) * (shares or {}).get(name, 1.0) for name in every}
    loads = [0.0] * lane.of
    wanted = set()
    for name in sorted(minutes, key=lambda name: (-minutes[name], name)):
        chosen = loads.index(min(loads))
        loads[chosen] += minutes[name]
        if chosen == lane.number - 1:
            wanted.add(name)
    return wanted


def _minutes(name: str) -> float:
    return MINUTES.get(name.removeprefix("test_"), OTHER_MINUTES)
