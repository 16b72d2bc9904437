"""Proves that a position in a queue still means what it meant, by the record before it and its cluster. Pure.

In: the JSON of an offset log, and marks of records as brokers have them now. Out: offsets with their proofs,
and sentences about queues that are no longer the ones that were read: a recreated topic, another cluster. A
checkpoint without proofs is accepted and not judged.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from turbopump.client.message import MessageQueue
from turbopump.pipelines.source.offsets import (
    PROOF,
    BadOffsets,
    Ends,
    Positions,
    by_queue,
    document_of,
    named,
    positions_of,
)

HOST_END = -16
"""An offset id ends with the log offset, 8 bytes in hexadecimal; the host that stored the record comes before
it.
"""

Marks = Mapping[MessageQueue, str]
"""The record before a position, as offset id and store time: `7F00…01A4@1700000000000`."""


@dataclass(frozen=True, slots=True)
class ProvenOffsets:
    """Positions in Spark's offset log, with proofs that show later whether the queues are still the same."""

    positions: Positions = field(default_factory=dict)
    marks: Marks = field(default_factory=dict)
    clusters: Mapping[str, str] = field(default_factory=dict)
    """Broker → name of its cluster."""
    since_ms: int | None = None
    """A query that began with the latest messages, or by time, reads nothing stored before this."""
    missing: frozenset[str] = frozenset()
    """Brokers that were missing, with permission, when the query began."""


def offsets_of(document: Mapping[str, Any]) -> ProvenOffsets:
    """Reads positions and proofs from a document of the offset log; old documents have no proofs."""
    proof = document.get(PROOF, {})
    try:
        return ProvenOffsets(
            positions_of(document) if document.keys() - {PROOF} else {},
            by_queue(proof["marks"], lambda _, given: str(given)) if proof.get("marks") else {},
            dict(proof.get("clusters", {})),
            proof.get("since"),
            frozenset(proof.get("missing", ())),
        )
    except (AttributeError, TypeError) as error:
        raise BadOffsets(f"cannot read the proofs in the offset log: {error}") from None


def full_document(offsets: ProvenOffsets) -> dict[str, Any]:
    """Returns the document of the offset log: positions by topic, broker and queue, and their proofs."""
    proof = {
        "since": offsets.since_ms,
        "missing": sorted(offsets.missing),
        "clusters": dict(sorted(offsets.clusters.items())),
        "marks": document_of(offsets.marks),
    }
    kept = {name: value for name, value in proof.items() if value or value == 0}
    return {**document_of(offsets.positions), **({PROOF: kept} if kept else {})}


def provable(before: ProvenOffsets, ends: Mapping[MessageQueue, Ends]) -> dict[MessageQueue, int]:
    """Returns, for queues with a mark, the offset of the record before the position, if it still exists."""
    return {
        queue: before.positions[queue] - 1
        for queue in before.marks
        if queue in before.positions and queue in ends and _has(ends[queue], before.positions[queue] - 1)
    }


def _has(ends: Ends, offset: int) -> bool:
    return ends.low <= offset < ends.high


def replaced(before: ProvenOffsets, found: Mapping[MessageQueue, str | None]) -> list[MessageQueue]:
    """Returns the queues in which the record before the position, marked in `found`, is another one now."""
    known = ((queue, mark) for queue, mark in sorted(found.items()) if mark is not None)
    return [queue for queue, mark in known if mark != before.marks[queue]]


def moved_clusters(
    before: ProvenOffsets, clusters: Mapping[str, str], found: Mapping[MessageQueue, str | None]
) -> dict[str, str]:
    """Returns the new cluster of each broker that changed it, unless a mark in `found` is still the same.

    Such a mark shows that the store is the same.
    """
    same = {queue.broker for queue, mark in found.items() if mark == before.marks[queue]}
    return {
        broker: clusters[broker]
        for broker, cluster in sorted(before.clusters.items())
        if broker in clusters and clusters[broker] != cluster and broker not in same
    }


def replacements(
    before: ProvenOffsets, queues: Iterable[MessageQueue], moved: Mapping[str, str]
) -> list[str]:
    """Returns an error sentence for each replaced queue, and for each broker that changed its cluster."""
    problems = [
        f"{named(queue)} is not the one that was read up to {before.positions[queue]}: the record before "
        "that offset is another one now, so the topic was recreated, or this is another cluster"
        for queue in queues
    ]
    return problems + [
        f"broker {broker} belonged to cluster {before.clusters[broker]} and belongs to cluster {cluster} now"
        for broker, cluster in moved.items()
    ]


def mark_of(offset_id: str, store_ms: int) -> str:
    return f"{offset_id}@{store_ms}"


def host_and_time(mark: str) -> tuple[str, int]:
    """Returns the host of the storing broker in hexadecimal, and the store time in ms, from a mark."""
    offset_id, _, store_ms = mark.partition("@")
    return offset_id[:HOST_END], int(store_ms) if store_ms.isdecimal() else 0
