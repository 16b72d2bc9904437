"""Counts what a failure has cost. Pure: what was sent, read, lost and found in, figures out.

A receipt names the brokers that have a message: both for SEND_OK, since every scenario runs a SYNC_MASTER,
and the one that answered for a receipt with a warning (FLUSH_SLAVE_TIMEOUT, SLAVE_NOT_AVAILABLE and so on).
A message is *lost* when one of these brokers has lost nothing since, and the message is nowhere. When all of
them have, the message may be missing; that is counted apart.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

OK = "SEND_OK"
FAILED = "failed"
"""No receipt: the message may be stored or not."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A send: its time, its answer, and where the receipt says that the message is."""

    begin: float
    at: float
    name: str
    queue: int
    status: str
    node: str = ""
    """The broker that answered."""
    offset: int = -1


@dataclass(frozen=True, slots=True)
class Found:
    """A message at its offset of a queue."""

    queue: int
    offset: int
    name: str


@dataclass(frozen=True, slots=True)
class Loss:
    """A broker that lost messages it had before this time, or was left out of the pair."""

    at: float
    node: str


@dataclass(slots=True)
class History:
    """What happened in one run."""

    nodes: frozenset[str]
    sent: list[Sent] = field(default_factory=list)
    read: list[Found] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)


@dataclass(slots=True)
class Figures:
    """What one run has cost. `lost` to `order`, and `skipped`, must be 0."""

    sent: int = 0
    ok: int = 0
    warned: int = 0
    failed: int = 0
    lost: int = 0
    lost_ok: int = 0
    """Of these, answered with SEND_OK."""
    duplicates: int = 0
    """Messages at two offsets."""
    conflicts: int = 0
    """Messages at another offset than their receipt says, which was acknowledged with SEND_OK."""
    order: int = 0
    """Messages that stand behind one that was sent after their acknowledgement."""
    excused: int = 0
    """Missing, and no broker that must have them is left."""
    unread: int = 0
    """Survived, and the running consumer did not get them."""
    skipped: int = 0
    """Of these, acknowledged, with whichever receipt. Must be 0."""
    not_copied: int = 0
    """Found at one broker and not at the other, when the pair was whole again."""
    examples: list[str] = field(default_factory=list)

    @property
    def anomalies(self) -> int:
        return self.lost + self.duplicates + self.conflicts + self.order


MAX_EXAMPLES = 5


def count(history: History, found: Iterable[Found], copy: Iterable[Found] | None = None) -> Figures:
    """Compares what survived with what was promised; `copy` is what the other broker of the pair has."""
    places: dict[str, list[Found]] = defaultdict(list)
    for one in found:
        places[one.name].append(one)
    figures = Figures(sent=len(history.sent))
    for sent in history.sent:
        _count_answer(figures, sent)
        if sent.status == FAILED or places.get(sent.name):
            continue
        if _must_exist(history, sent):
            figures.lost += 1
            figures.lost_ok += sent.status == OK
            if len(figures.examples) < MAX_EXAMPLES:
                figures.examples.append(f"{sent.name}, {sent.status} at {sent.at:.3f} by {sent.node}")
        else:
            figures.excused += 1
    figures.duplicates = sum(len(all_places) > 1 for all_places in places.values())
    figures.conflicts = sum(
        all(one.offset != sent.offset for one in places[sent.name])
        for sent in history.sent
        if sent.status == OK and sent.name in places
    )
    figures.order = _inversions(history.sent, places)
    read = {one.name for one in history.read}
    figures.unread = sum(name not in read for name in places)
    _count_skipped(figures, history, places.keys() - read)
    if copy is not None:
        figures.not_copied = len({one.name for one in copy} ^ places.keys())
    return figures


def _count_skipped(figures: Figures, history: History, unread: AbstractSet[str]) -> None:
    for sent in history.sent:
        if sent.status != FAILED and sent.name in unread:
            figures.skipped += 1
            if len(figures.examples) < MAX_EXAMPLES:
                figures.examples.append(
                    f"{sent.name}, skipped, {sent.status} at {sent.at:.3f} by {sent.node}"
                )


def _count_answer(figures: Figures, sent: Sent) -> None:
    figures.ok += sent.status == OK
    figures.failed += sent.status == FAILED
    figures.warned += sent.status not in (OK, FAILED)


def _must_exist(history: History, sent: Sent) -> bool:
    """Whether a broker that has the message by its receipt has lost nothing since."""
    holders = history.nodes if sent.status == OK else {sent.node}
    return bool(holders - {loss.node for loss in history.losses if loss.at >= sent.begin})


def _inversions(all_sent: list[Sent], places: dict[str, list[Found]]) -> int:
    """Counts messages whose acknowledgement came before the begin of a send that stands before them."""
    by_queue: dict[int, list[tuple[int, Sent]]] = defaultdict(list)
    for sent in all_sent:
        if sent.status != FAILED and sent.name in places:
            by_queue[sent.queue].append((min(one.offset for one in places[sent.name]), sent))
    inverted = 0
    for pairs in by_queue.values():
        pairs.sort(key=lambda pair: pair[0])
        latest = 0.0
        for _, sent in pairs:
            inverted += sent.at < latest
            latest = max(latest, sent.begin)
    return inverted


def statuses(history: History) -> Counter[str]:
    """Returns how many sends were answered in each way."""
    return Counter(sent.status for sent in history.sent)
