"""Decides whether a history of appends and reads of one queue is linearizable. Pure: calls in, anomalies out.

A queue is a list that is only appended to. Every append has a value of its own, and its answer says where it
stands; an append without an answer, or with an error, may have happened at any time since its call, or never.
A history is linearizable when each call that took effect can be given one instant between its call and its
return, such that every answer is what the list was at these instants.

In general that takes a search over all orders. Here it does not, because offsets fix the order of the
appends: the append at offset k has the k-th instant. What is left is when. A read that showed `least`
messages comes behind the append at offset least-1; one that said that there is nothing at `most` comes
before the append at offset `most`. So all calls are in one partial order, and each has an earliest and a
latest instant. With nothing else to respect, every call can be put at the latest of the earliest instants
of those before it: this fails exactly when some call returned before one that must precede it was called.
The order has four kinds of such pairs, so each is looked for alone, and the names of the anomalies are the
names of the pairs:

    append i, append k, i < k       i called after k was acknowledged      REORDERED
    append i, read with least > i   i called after the read returned       FUTURE
    read with most <= k, append k   read called after k was acknowledged   STALE
    read with most, read, more      called after the other had returned    STALE

A sweep over the sorted calls finds each, so a history costs a sort, and never a search.

Before that, values and offsets must be a bijection (LOST, DUPLICATE, MOVED, CHANGED, FOREIGN, VANISHED,
SHRUNK, GAP), which is compared with what the queue holds at the end. These must hold for reads at any
broker.

STALE is about reads at a leader, and has two forms. A leader that was replaced and has not heard of it
answers reads from what it has: no group here asks its followers before a read. That is counted as DEPOSED
when all that was missed belongs to later terms. STALE is what no leader may do: in its term it misses what
it has acknowledged or shown itself, or what an earlier term has. A leadership counts from its first
acknowledgement: before that, the broker may still serve as the follower that it was.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import NamedTuple

OPEN = inf
"""When an append returned that was not acknowledged."""


class QueueAnomaly(Enum):
    """What is wrong with a queue."""

    LOST = "acknowledged, and not there at the end"
    DUPLICATE = "one append at two offsets"
    MOVED = "acknowledged at one offset, found at another"
    CHANGED = "two messages were seen at one offset"
    FOREIGN = "a message that nobody has sent to this queue"
    VANISHED = "read, and not there at the end"
    SHRUNK = "a maximum was answered that the queue has not at the end"
    GAP = "nothing at an offset below the end"
    REORDERED = "stands before one that was acknowledged before it was sent"
    FUTURE = "read before it was sent"
    STALE = "a leader did not show what it or a leader before it had acknowledged"
    DEPOSED = "a leader did not show what a leader of a later term had acknowledged"


class Leadership(NamedTuple):
    """A member that leads in a term."""

    term: int
    member: int


@dataclass(frozen=True, slots=True)
class AppendCall:
    """An append: when it was called and when it was acknowledged, and at which offset."""

    queue: int
    value: str
    called: float
    returned: float = OPEN
    offset: int = -1
    leadership: Leadership | None = None
    """Who has acknowledged it, where that is known for certain."""


@dataclass(frozen=True, slots=True)
class ReadCall:
    """A read: what it showed, and how many messages the queue had by it."""

    queue: int
    called: float
    returned: float
    member: int
    found: tuple[tuple[int, str], ...] = ()
    """Offsets and values."""
    least: int = 0
    """The queue had so many messages at least."""
    most: int | None = None
    """It had so many at most; None: the answer does not say."""
    leadership: Leadership | None = None
    """Who led before the call and after the return, if that was the member that was asked."""


Named = tuple[QueueAnomaly, str]
"""An anomaly, and which calls show it."""


def check(appends: Sequence[AppendCall], reads: Sequence[ReadCall], final: Sequence[str]) -> list[Named]:
    """Compares the calls of one queue with each other and with its messages at the end, offset 0 first.

    Messages at the end are read when nothing has failed for a while, from the leader.
    """
    return [*_places(appends, reads, final), *_instants(appends, reads, final)]


def shared_terms(seen: Iterable[Leadership]) -> list[int]:
    """Returns the terms in which more than one member led."""
    members: dict[int, set[int]] = defaultdict(set)
    for one in seen:
        members[one.term].add(one.member)
    return sorted(term for term, leaders in members.items() if len(leaders) > 1)


# values and offsets


def _places(
    appends: Sequence[AppendCall], reads: Sequence[ReadCall], final: Sequence[str]
) -> Iterator[Named]:
    sent = {one.value for one in appends}
    at_end = set(final)
    shown = _shown(appends, reads, final)
    for offset, values in sorted(shown.items()):
        if len(values) > 1:
            yield QueueAnomaly.CHANGED, f"offset {offset}: {', '.join(sorted(values))}"
    offsets: dict[str, set[int]] = defaultdict(set)
    for offset, value in _read_or_final(reads, final):
        offsets[value].add(offset)
    acknowledged = {one.value: one.offset for one in appends if one.returned != OPEN}
    for value, places in sorted(offsets.items()):
        where = f"{value} at {', '.join(map(str, sorted(places)))}"
        if value and value not in sent:
            yield QueueAnomaly.FOREIGN, where
        if value and len(places) > 1:
            yield QueueAnomaly.DUPLICATE, where
        if value in acknowledged and acknowledged[value] not in places:
            yield QueueAnomaly.MOVED, f"{where}, acknowledged at {acknowledged[value]}"
        if value not in at_end and value not in acknowledged:
            yield QueueAnomaly.VANISHED, where
    for value, offset in sorted(acknowledged.items()):
        if value not in at_end:
            yield QueueAnomaly.LOST, f"{value}, acknowledged at {offset}"
    for offset, value in enumerate(final):
        if not value:
            yield QueueAnomaly.GAP, f"offset {offset} of {len(final)}"
    if (least := max((one.least for one in reads), default=0)) > len(final):
        yield QueueAnomaly.SHRUNK, f"{least} messages were said to be there, {len(final)} are"


def _shown(
    appends: Sequence[AppendCall], reads: Sequence[ReadCall], final: Sequence[str]
) -> dict[int, set[str]]:
    """Returns all values that were ever said to be at an offset."""
    shown: dict[int, set[str]] = defaultdict(set)
    for offset, value in _read_or_final(reads, final):
        if value:
            shown[offset].add(value)
    for one in appends:
        if one.returned != OPEN:
            shown[one.offset].add(one.value)
    return shown


def _read_or_final(reads: Sequence[ReadCall], final: Sequence[str]) -> Iterator[tuple[int, str]]:
    for read in reads:
        yield from read.found
    for offset, value in enumerate(final):
        if value:
            yield offset, value


# instants


def _instants(
    appends: Sequence[AppendCall], reads: Sequence[ReadCall], final: Sequence[str]
) -> Iterator[Named]:
    places = {value: offset for offset, value in enumerate(final)}
    placed = [
        (one.offset if one.returned != OPEN else places[one.value], one)
        for one in appends
        if one.returned != OPEN or one.value in places
    ]
    placed.sort(key=lambda pair: pair[0])
    yield from _reordered(placed)
    yield from _future(placed, reads)
    yield from _stale(appends, reads)


def _reordered(placed: Sequence[tuple[int, AppendCall]]) -> Iterator[Named]:
    latest: AppendCall | None = None
    for offset, one in placed:
        if latest is not None and latest.called > one.returned:
            yield QueueAnomaly.REORDERED, f"{latest.value} before {one.value} at {offset}"
        if latest is None or one.called > latest.called:
            latest = one


def _future(placed: Sequence[tuple[int, AppendCall]], reads: Sequence[ReadCall]) -> Iterator[Named]:
    # The latest call among the appends up to each offset: a read that showed it comes behind them all.
    offsets = [offset for offset, _ in placed]
    latest: list[AppendCall] = []
    for _, one in placed:
        latest.append(one if not latest or one.called > latest[-1].called else latest[-1])
    for read in reads:
        before = bisect_left(offsets, read.least)
        if before and latest[before - 1].called > read.returned:
            yield QueueAnomaly.FUTURE, f"{latest[before - 1].value}, read at {read.returned:.6f}"


@dataclass(frozen=True, slots=True)
class _Proof:
    """At this time a leader had acknowledged or shown that the queue has so many messages."""

    at: float
    length: int
    leadership: Leadership | None


def _stale(appends: Sequence[AppendCall], reads: Sequence[ReadCall]) -> Iterator[Named]:
    serves_since: dict[Leadership, float] = {}
    for one in appends:
        if one.leadership is not None and one.returned != OPEN:
            known = serves_since.get(one.leadership, inf)
            serves_since[one.leadership] = min(known, one.returned)
    served = [
        read
        for read in reads
        if read.leadership is not None and serves_since.get(read.leadership, inf) < read.called
    ]
    proofs = [_Proof(one.returned, one.offset + 1, one.leadership) for one in appends if one.returned != OPEN]
    proofs += [_Proof(read.returned, read.least, read.leadership) for read in served]
    proofs.sort(key=lambda proof: proof.at)
    times = [proof.at for proof in proofs]
    lengths = [0]
    for proof in proofs:
        lengths.append(max(lengths[-1], proof.length))
    for read in served:
        before = bisect_left(times, read.called)
        if read.most is None or lengths[before] <= read.most:
            continue
        yield _blame(read, [proof for proof in proofs[:before] if proof.length > read.most])


def _blame(read: ReadCall, missed: Sequence[_Proof]) -> Named:
    """Says whether a read missed what its own or an earlier term had, or only what a later one had."""
    assert read.leadership is not None
    term = read.leadership.term
    own = [proof for proof in missed if proof.leadership is not None and proof.leadership.term <= term]
    one = max(own or missed, key=lambda proof: proof.length)
    later = f"{read.called - one.at:.6f} s after {one.length} by {one.leadership}"
    what = f"at most {read.most} at n{read.member} in term {term}, called {later}"
    return (QueueAnomaly.STALE if own else QueueAnomaly.DEPOSED), what
