"""One run of a scenario with a group: it fails, becomes whole, is read at all members, and is checked."""

from __future__ import annotations

import pickle
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.failures.callers import QUEUES, TOPIC, CallHistory, CallLoad
from tests.failures.disks import NotPossible
from tests.failures.group_scenarios import GIVEN_UP_S, GroupScenario
from tests.failures.linear import OPEN, QueueAnomaly, check, shared_terms
from tests.failures.members import KINDS, MEMBERS, ProxiedGroup
from tests.failures.pairs import name_of
from tests.interop import topics
from tests.interop.asking import Refusal
from tests.interop.replica_pair import eventually, pull_records

from turbopump.protocol import record

ROUNDS = 3
"""How often a run has its failure: to start a group takes as long as to have it fail."""
COPIED_S = 40.0
LOOK_S = 0.3
MAX_EXAMPLES = 5
HISTORY = "history.pickle"

Queues = list[list[str]]
"""The messages of each queue, offset 0 first; empty: nothing is at that offset."""


@dataclass(slots=True)
class GroupFigures:
    """What one run has shown. The anomalies by their names; all but `deposed` must be 0."""

    appends: int = 0
    acknowledged: int = 0
    open: int = 0
    """Appends without an acknowledgement."""
    open_stored: int = 0
    """Of these, found at the end."""
    twice: int = 0
    """Messages that are stored twice, because their client sent them again."""
    reads: int = 0
    leaderships: int = 0
    anomalies: dict[str, int] = field(default_factory=dict)
    shared_terms: int = 0
    """Terms with two leaders."""
    diverged: int = 0
    """Runs in which members did not have the same at the end."""
    examples: list[str] = field(default_factory=list)

    @property
    def is_broken(self) -> bool:
        """Whether a group that keeps our promises cannot have given these figures."""
        broken = self.anomalies.keys() - {QueueAnomaly.DEPOSED.name}
        return bool(broken or self.shared_terms or self.diverged)


@dataclass
class GroupOutcome:
    """What one run gave: figures, or why there are none."""

    scenario: str
    seconds: float = 0.0
    figures: GroupFigures = field(default_factory=GroupFigures)
    not_possible: str = ""
    error: str = ""

    @property
    def is_broken(self) -> bool:
        return bool(self.error) or self.figures.is_broken


def run(scenario: GroupScenario, kind: str, home: Path, seed: int, rounds: int = ROUNDS) -> GroupOutcome:
    """Runs a scenario once, with so many failures. An exception is part of the outcome.

    The history is kept in `home`.
    """
    began = time.monotonic()
    outcome = GroupOutcome(scenario.name)
    chance = random.Random(f"{scenario.name} {seed}")
    try:
        home.mkdir(parents=True)
        fast = chance.random() < 0.5
        with ProxiedGroup(KINDS[kind], home, fast=fast, small_disks=scenario.small_disks) as group:
            outcome.figures = _live(scenario, group, chance, seed, home, rounds)
    except NotPossible as error:
        outcome.not_possible = str(error)
    except Exception as error:  # the other runs go on; for our group it is a failure
        outcome.error = f"{type(error).__name__}: {str(error)[:300]}"
    outcome.seconds = time.monotonic() - began
    return outcome


def _live(
    scenario: GroupScenario,
    group: ProxiedGroup,
    chance: random.Random,
    seed: int,
    home: Path,
    rounds: int,
) -> GroupFigures:
    topics.create(group.brokers[group.leader()], TOPIC, QUEUES)
    with CallLoad(group, seed) as load:
        try:
            for _ in range(rounds):
                scenario.run(group, load, chance)
            group.restore()
            has_ended = not load.wait_acknowledged(within_s=GIVEN_UP_S)
            assert load.is_alive, "a caller has ended by an error of its own"
            assert not has_ended, f"the group acknowledges nothing any more; {group.errors_of_starts()}"
        finally:
            load.stop()
            _keep(home, load.history, [])
        found = _settled(group, load.history)
        _keep(home, load.history, found)
        return count(load.history, found)


def _keep(home: Path, history: CallHistory, found: Sequence[Queues]) -> None:
    (home / HISTORY).write_bytes(pickle.dumps((history, found)))


def _settled(group: ProxiedGroup, history: CallHistory) -> list[Queues]:
    """Reads all members, the leader first, until they have the same, all of it, or the time is over."""
    wanted = {one.value for one in history.appends if one.returned != OPEN}
    found: list[Queues] = []

    def is_equal() -> bool:
        leader = group.leader_now()
        if leader is None:
            return False
        found[:] = [_read(group, number) for number in sorted(MEMBERS, key=lambda one: one != leader)]
        stored = {value for queue in found[0] for value in queue}
        return found[0] == found[1] == found[2] and wanted <= stored

    deadline = time.monotonic() + COPIED_S
    while time.monotonic() < deadline:
        try:
            if is_equal():
                break
        except (OSError, Refusal):
            pass  # a member that has just been started
        time.sleep(LOOK_S)
    if not found:
        eventually(is_equal, "the members cannot be read")
    return found


def _read(group: ProxiedGroup, number: int) -> Queues:
    return [_queue(group.brokers[number].broker_addr, queue) for queue in range(QUEUES)]


def _queue(address: str, queue: int) -> list[str]:
    records = pull_records(address, TOPIC, queue)
    found = [""] * (1 + max((one.queue_offset for one in records), default=-1))
    for one in records:
        found[one.queue_offset] = name_of(record.body_of(one))
    return found


def count(history: CallHistory, found: Sequence[Queues]) -> GroupFigures:
    """Checks each queue of a history against what the leader has at the end, and counts."""
    figures = GroupFigures(appends=len(history.appends), reads=len(history.reads))
    stored = Counter(value for queue in found[0] for value in queue if value)
    for one in history.appends:
        figures.acknowledged += one.returned != OPEN
        figures.open += one.returned == OPEN
        figures.open_stored += one.returned == OPEN and one.value in stored
    sent = Counter(value.rpartition("-")[0] for value in stored)
    figures.twice = sum(attempts > 1 for attempts in sent.values())
    figures.leaderships = len(set(history.leaderships))
    figures.diverged = int(any(one != found[0] for one in found))
    terms = shared_terms(history.leaderships)
    figures.shared_terms = len(terms)
    figures.examples = [f"two leaders in term {term}" for term in terms]
    for queue in range(QUEUES):
        appends = [one for one in history.appends if one.queue == queue]
        reads = [one for one in history.reads if one.queue == queue]
        for anomaly, what in check(appends, reads, found[0][queue]):
            figures.anomalies[anomaly.name] = figures.anomalies.get(anomaly.name, 0) + 1
            if anomaly is not QueueAnomaly.DEPOSED:
                figures.examples.append(f"{anomaly.name} in queue {queue}: {what}")
    del figures.examples[MAX_EXAMPLES:]
    return figures
