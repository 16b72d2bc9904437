"""One run of a scenario: a pair is started, fails, and what survived is read and counted."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.failures.count import OK, Figures, Found, History, count
from tests.failures.disks import NotPossible
from tests.failures.load import Load
from tests.failures.pairs import Node, Pair
from tests.failures.scenarios import DISK_SIZE, End, Scenario, work
from tests.interop.replica_pair import eventually

SETTLED_S = 8.0
"""Apache's brokers show a message in its queue some time after it is in the log."""
COPIED_S = 20.0
READ_S = 5.0
LOOK_S = 0.3


@dataclass
class Outcome:
    """What one run gave: figures, or why there are none."""

    scenario: str
    seconds: float = 0.0
    figures: Figures = field(default_factory=Figures)
    not_possible: str = ""
    error: str = ""


def run(scenario: Scenario, kind: str, home: Path, seed: int) -> Outcome:
    """Runs a scenario once. An exception is part of the outcome."""
    began = time.monotonic()
    outcome = Outcome(scenario.name)
    try:
        with Pair(kind, home, scenario.conf, scenario.disk_of, DISK_SIZE) as pair:
            outcome.figures = _live(scenario, pair, seed)
    except NotPossible as error:
        outcome.not_possible = str(error)
    except Exception as error:  # the other runs go on; for our pair it is a failure
        outcome.error = f"{type(error).__name__}: {error}"
    outcome.seconds = time.monotonic() - began
    return outcome


def _live(scenario: Scenario, pair: Pair, seed: int) -> Figures:
    chance = random.Random(f"{scenario.name} {seed}")
    with Load(pair, seed) as load:
        eventually(lambda: pair.a.link.accepted > 0, "the slave does not use the link")
        assert load.wait(OK), "the pair was never in sync"
        work(load, chance)
        end = scenario.run(pair, load, chance)
        load.stop_sending()
        return _count(pair.history, end, load)


def _count(history: History, end: End, load: Load) -> Figures:
    answered = {one.name for one in history.sent if one.status == OK}
    found = _read(end.read, answered, SETTLED_S)
    names = {one.name for one in found}
    copy = None if end.copy is None else _read(end.copy, names, COPIED_S)
    load.stop_reading(names, READ_S)
    return count(history, found, copy)


def _read(node: Node, wanted: set[str], within_s: float) -> list[Found]:
    """Reads all messages of a broker, again and again until it has the wanted ones or the time is over."""
    deadline = time.monotonic() + within_s
    while True:
        found = node.read()
        if wanted <= {one.name for one in found} or time.monotonic() > deadline:
            return found
        time.sleep(LOOK_S)
