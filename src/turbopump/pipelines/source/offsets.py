"""Computes with offsets of many queues: their JSON, bounds of queries and micro-batches, tasks. Pure.

In: what the brokers have and what was asked for. Out: positions and ranges. A position is the offset of the
next message; a range is [start, end). Impossible requests raise `BadOffsets`, messages that no longer exist
raise `DataLost`; the texts name the queue and the way out.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

from turbopump.client.message import MessageQueue
from turbopump.pipelines.options import EARLIEST, LATEST

T = TypeVar("T")

SHAPE = '{"topic":{"broker":{"0":17}}}'
MAX_QUEUES_NAMED = 5  # in one error text
PROOF = "@"
"""Key of the offset log beside the topics: no topic can have this name."""

Positions = Mapping[MessageQueue, int]


class BadOffsets(ValueError):
    """Offsets that cannot be read, or do not match the existing queues."""


class MissingBrokers(RuntimeError):
    """Brokers that hold a part of what a query reads are not available."""


class DataLost(RuntimeError):
    """Messages that the query should read no longer exist."""


@dataclass(frozen=True, slots=True)
class Ends:
    """First offset that a queue has (`low`), and the offset after its last message (`high`)."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Range:
    """Queue offsets [start, end) of one queue."""

    queue: MessageQueue
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


# --- as JSON ---------------------------------------------------------------------------------------------


def positions_of(document: Any, minimum: int = 0) -> dict[MessageQueue, int]:
    """Reads `{"topic": {"broker": {"queue": offset}}}`. Raises BadOffsets for an offset below `minimum`.

    `minimum` is EARLIEST where EARLIEST and LATEST may be given.
    """
    if isinstance(document, dict):
        document = {topic: brokers for topic, brokers in document.items() if topic != PROOF}
    return by_queue(document, lambda topic, given: _offset(topic, given, minimum))


def document_of(positions: Mapping[MessageQueue, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """Returns positions as a JSON document of topics, brokers and queues, always in the same order."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for queue in sorted(positions):
        brokers = found.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker, {})[str(queue.id)] = positions[queue]
    return found


def by_queue(document: Any, read: Callable[[str, Any], T]) -> dict[MessageQueue, T]:
    """Reads a document of topics, brokers and queues into values by queue, by `read`. Raises BadOffsets."""
    found: dict[MessageQueue, T] = {}
    for topic, brokers in _table(document).items():
        for broker, queues in _table(brokers).items():
            for number, given in _table(queues).items():
                if not number.isdecimal():
                    raise BadOffsets(f"a queue of {topic} must be a number as in {SHAPE}, got {number!r}")
                found[MessageQueue(topic, broker, int(number))] = read(topic, given)
    return found


def queues_of(document: Any) -> tuple[dict[str, set[int]], set[MessageQueue]]:
    """Reads option `assign` as queue ids by topic, for every broker, and queues of named brokers.

    They are given as `{"topic": [0, 1]}` and as `{"topic": {"broker": [0, 1]}}`.
    """
    everywhere: dict[str, set[int]] = {}
    exactly: set[MessageQueue] = set()
    shape = '{"topic":[0,1]} or {"topic":{"broker":[0,1]}}'
    for topic, given in _table(document, shape).items():
        if isinstance(given, list):
            everywhere[topic] = _numbers(given, shape)
            continue
        for broker, numbers in _table(given, shape).items():
            exactly |= {MessageQueue(topic, broker, number) for number in _numbers(numbers, shape)}
    return everywhere, exactly


def _table(given: Any, shape: str = SHAPE) -> Mapping[str, Any]:
    if not isinstance(given, dict) or not given:
        raise BadOffsets(f"{'offsets' if shape == SHAPE else 'queues'} must be {shape}, got {given!r}")
    return given


def _numbers(given: Any, shape: str) -> set[int]:
    if not isinstance(given, list) or not all(type(one) is int and one >= 0 for one in given) or not given:
        raise BadOffsets(f"queues must be {shape}, got {given!r}")
    return set(given)


def _offset(topic: str, given: Any, minimum: int) -> int:
    if type(given) is not int or given < minimum:
        allowed = "0 or more" if minimum == 0 else "0 or more, -1 for the latest, -2 for the earliest"
        raise BadOffsets(f"an offset of {topic} must be {allowed}, got {given!r}")
    return given


# --- where a query begins and ends -----------------------------------------------------------------------


def resolved(given: Positions, ends: Mapping[MessageQueue, Ends]) -> dict[MessageQueue, int]:
    """Returns `given` with EARLIEST, LATEST replaced. Raises BadOffsets unless `ends` has the same queues."""
    if missing := sorted(ends.keys() - given.keys()):
        raise BadOffsets(
            f"offsets are missing for {listed(missing)}: name every queue, with -2 for the earliest and -1 "
            "for the latest"
        )
    if unknown := sorted(given.keys() - ends.keys()):
        raise BadOffsets(f"offsets are given for {listed(unknown)}, which this query does not read")
    return {queue: _resolved(offset, ends[queue]) for queue, offset in sorted(given.items())}


def _resolved(offset: int, ends: Ends) -> int:
    return ends.low if offset == EARLIEST else ends.high if offset == LATEST else offset


def earliest(ends: Mapping[MessageQueue, Ends]) -> dict[MessageQueue, int]:
    return {queue: one.low for queue, one in ends.items()}


def latest(ends: Mapping[MessageQueue, Ends]) -> dict[MessageQueue, int]:
    return {queue: one.high for queue, one in ends.items()}


# --- how far the next micro-batch goes -------------------------------------------------------------------


def target(
    start: Positions,
    ends: Mapping[MessageQueue, Ends],
    away: Iterable[MessageQueue] = (),
    first: Positions | None = None,
) -> dict[MessageQueue, int]:
    """Returns end positions of an unlimited micro-batch: queue ends, but of new queues the first offset.

    Queues whose broker is away stand still; those that no longer exist are dropped. A new queue gets its
    earliest message as its position, or that of `first`, and is read from the following micro-batch on: then
    the offset log says where it began, also when the batch is repeated after that message was deleted. The
    same holds for queues that are no longer the ones that were read.
    """
    still = {queue: start[queue] for queue in away if queue in start}
    there = {queue: one.high if queue in start else one.low for queue, one in ends.items()}
    return {**there, **(first or {}), **still}


def limited(start: Positions, end: Positions, max_messages: int) -> dict[MessageQueue, int]:
    """Returns the end positions of a micro-batch that is limited to about `max_messages`.

    Each queue gets a share in proportion to what waits there, and at least one message, as with Spark's Kafka
    connector: a large queue does not starve a small one.
    """
    waiting = {queue: max(0, offset - start.get(queue, offset)) for queue, offset in end.items()}
    total = sum(waiting.values())
    if total <= max_messages:
        return dict(end)
    return {
        queue: start[queue] + _share(waiting[queue], max_messages, total) if waiting[queue] else offset
        for queue, offset in end.items()
    }


def _share(waiting: int, max_messages: int, total: int) -> int:
    return min(waiting, max(1, waiting * max_messages // total))


def count_between(start: Positions, end: Positions) -> int:
    return sum(max(0, offset - start.get(queue, offset)) for queue, offset in end.items())


def is_due(waiting: int, minimum: int, waited_s: float, max_delay_s: float) -> bool:
    """Tells whether a micro-batch begins: `minimum` messages wait, or any after `max_delay_s`."""
    return waiting >= minimum or (waiting > 0 and waited_s >= max_delay_s)


# --- tasks -----------------------------------------------------------------------------------------------


def ranges(start: Positions, end: Positions) -> list[Range]:
    """Returns the range of each queue between its positions in `start` and `end`, without empty ones."""
    found = [Range(queue, start[queue], end[queue]) for queue in sorted(end) if queue in start]
    return [one for one in found if one.size > 0]


def split(wanted: Iterable[Range], min_parts: int | None, max_records: int | None) -> list[Range]:
    """Cuts ranges for tasks: each to at most `max_records`, and further until there are about `min_parts`."""
    found = [part for one in wanted for part in _cut(one, _parts(one.size, max_records))]
    if min_parts is None or len(found) >= min_parts or not found:
        return found
    total = sum(one.size for one in found)
    return [part for one in found for part in _cut(one, -(-one.size * min_parts // total))]


def _parts(size: int, max_records: int | None) -> int:
    return 1 if max_records is None else -(-size // max_records)


def _cut(one: Range, parts: int) -> list[Range]:
    parts = max(1, min(parts, one.size))
    edges = [one.start + one.size * number // parts for number in range(parts + 1)]
    return [Range(one.queue, low, high) for low, high in pairwise(edges)]


# --- lost messages ---------------------------------------------------------------------------------------


def losses(
    start: Positions,
    ends: Mapping[MessageQueue, Ends],
    away: Iterable[MessageQueue] = (),
    unwanted: Iterable[MessageQueue] = (),
) -> list[str]:
    """Returns an error sentence for each queue of `start` that is in `unwanted` or has lost messages.

    A queue has lost messages if it is gone, begins after its position or ends before it. A queue in `away`
    may be gone: its broker is not available.
    """
    problems = []
    standing, dropped = set(away), set(unwanted)
    for queue, offset in sorted(start.items()):
        one = ends.get(queue)
        if queue in dropped:
            problems.append(f"{named(queue)} was read until {offset}, and is no longer part of the query")
        elif one is None:
            if queue not in standing:
                problems.append(f"{named(queue)} is gone: the topic was deleted there")
        elif offset < one.low:
            gone = f"messages {offset} to {one.low - 1} of {named(queue)} are gone"
            problems.append(f"{gone}: the broker keeps from {one.low} on (fileReservedTime, or a full disk)")
        elif offset > one.high:
            problems.append(
                f"{named(queue)} ends at {one.high}, but this query had read up to {offset}: the topic was "
                "recreated, or its broker lost the last messages"
            )
    return problems


def beyond(start: Positions, ends: Mapping[MessageQueue, Ends]) -> list[MessageQueue]:
    """Returns the queues whose end is before their position in `start`."""
    return [queue for queue, offset in sorted(start.items()) if queue in ends and offset > ends[queue].high]


def cut_short(end: Positions, ends: Mapping[MessageQueue, Ends]) -> list[str]:
    """Returns an error sentence for each queue that ends before the requested end of a batch."""
    return [
        f"endingOffsets asks for {named(queue)} up to {end[queue]}, and it ends at {ends[queue].high}"
        for queue in beyond(end, ends)
    ]


def check_order(start: Positions, end: Positions) -> None:
    """Raises BadOffsets for a batch that ends before it begins."""
    wrong = [queue for queue in sorted(end) if queue in start and end[queue] < start[queue]]
    if wrong:
        one = wrong[0]
        raise BadOffsets(
            f"endingOffsets must not be before startingOffsets: {listed(wrong)} would be read from "
            f"{start[one]} to {end[one]}"
        )


# --- missing brokers -------------------------------------------------------------------------------------


def missing_brokers(why: Mapping[str, str], reads: object) -> MissingBrokers:
    """Returns the MissingBrokers error to raise for these brokers, with the reason for each."""
    problems = "; ".join(f"broker {name} {reason}" for name, reason in sorted(why.items()))
    return MissingBrokers(
        f"a part of {reads} is missing: {problems}. Start it, or set allowMissingBrokers to true to read "
        "without it. If it will not come back, remove it with mqadmin deleteKvConfig -s "
        "TURBOPUMP_KNOWN_BROKERS -k <its name>"
    )


def lost(problems: Iterable[str]) -> DataLost:
    """Returns the DataLost error to raise for these problems, with the way out."""
    return DataLost(
        "; ".join(problems)
        + ". To continue with what is there, set failOnDataLoss to false; to begin again, use a new "
        "checkpointLocation"
    )


def check_topics(start: Positions, unwanted: Iterable[MessageQueue], reads: object) -> None:
    """Raises BadOffsets if the query wants no queue of the checkpoint: it belongs to another query."""
    if start and len(set(unwanted)) == len(start):
        before = ", ".join(sorted({queue.topic for queue in start}))
        raise BadOffsets(
            f"the checkpoint is of {before}, and this query reads {reads}: give each query a "
            "checkpointLocation of its own"
        )


def named(queue: MessageQueue) -> str:
    return f"queue {queue.id} of {queue.topic} on {queue.broker}"


def listed(queues: Iterable[MessageQueue]) -> str:
    names = [named(queue) for queue in queues]
    more = f" and {len(names) - MAX_QUEUES_NAMED} more" if len(names) > MAX_QUEUES_NAMED else ""
    return ", ".join(names[:MAX_QUEUES_NAMED]) + more
