"""Finds the open transactions at a start, in a store written by this broker or by Apache's.

In: both queues from the saved progress on. Out: the open transactions. A half record that no op
record names is open. After a crash, and after Apache, which writes op records later than it answers, an op
record may be missing: the log is read from the oldest open one on for records that name a half record as
their origin, and the op record is written now.

No request is served yet, so nothing changes meanwhile.
"""

import asyncio
import logging
from collections.abc import AsyncIterator

from turbopump.broker.storage import Storage
from turbopump.broker.transactions import records as forms
from turbopump.broker.transactions.halves import HalfDecision, OpenHalf
from turbopump.broker.transactions.transactions import QUEUE, OpenTransactions
from turbopump.protocol.errors import Refused
from turbopump.protocol.names import HALF_TOPIC, OP_HALF_TOPIC
from turbopump.protocol.record import Record
from turbopump.store.consume_queue import ENTRY, ConsumeQueue

log = logging.getLogger(__name__)

ENTRIES_PER_TURN = 1024  # of a queue: 4 ms
RECORDS_PER_TURN = 8192  # of the log: 5 ms
OPS_PER_APPEND = 256

NOTHING: frozenset[int] = frozenset()

Closed = list[tuple[OpenHalf, HalfDecision]]


async def reopen(store: Storage, transactions: OpenTransactions) -> None:
    """Adds the store's open half messages to `transactions`, and writes op records that are missing."""
    half_progress, op_progress = transactions.saved_progress()
    halves = store.queues.find(HALF_TOPIC, QUEUE)
    if halves is None:
        return
    begin = max(half_progress, halves.min_offset)
    named, by_apache = await _named(store, begin, op_progress)
    closed = await _open(store, transactions, halves, begin, named, by_apache)
    closed += await _look_back(store, transactions)
    _close(transactions, closed)
    if transactions.halves:
        log.info("%d transactions are open", len(transactions.halves))


async def _named(store: Storage, begin: int, op_progress: int) -> tuple[set[int], bool]:
    """Returns the queue offsets >= `begin` that op records close, and whether Apache wrote an op record."""
    named: set[int] = set()
    by_apache = False
    queue = store.queues.find(OP_HALF_TOPIC, QUEUE)
    if queue is not None:
        async for record in records(store, queue, op_progress):
            named.update(place for place in forms.named_by(record) if place >= begin)
            by_apache |= forms.decision_of(record) is None
    return named, by_apache


async def _open(
    store: Storage,
    transactions: OpenTransactions,
    queue: ConsumeQueue,
    begin: int,
    named: set[int],
    by_apache: bool,
) -> Closed:
    """Adds half records from `begin` on that no op record closes. Returns older copies, as RENEWED.

    A record is an older copy if there is a newer one of its transaction. Apache's copies do not always name
    their root, but they have its unique key and born time; nor does an op record always name the old record.
    """
    closed: Closed = []
    known: dict[tuple[str | None, int], int] = {}
    async for record in records(store, queue, begin, NOTHING if by_apache else named):
        half = transactions.found(record)
        mark = record.unique_key, record.born_timestamp
        is_apaches = forms.named_root(record) is None and forms.asked(record) > 0
        older = transactions.halves.find(known.get(mark, half.root) if is_apaches else half.root)
        if older is not None:
            transactions.halves.close(older)
            closed.append((older, HalfDecision.RENEWED))
        known[mark] = half.root
        if half.offset not in named:
            transactions.halves.add(half)
    return closed


async def _look_back(store: Storage, transactions: OpenTransactions) -> Closed:
    """Returns open half records that were committed or expired without an op record, found in the log.

    Renewed copies were found before.
    """
    closed: Closed = []
    first = transactions.halves.first
    at = store.log.end if first is None else first.at
    places = {half.at: half for half in transactions.halves.all()}
    while at < store.log.committed:
        named, at = store.log.references(at, RECORDS_PER_TURN)
        for origin in named:
            half = places.pop(origin if origin >= 0 else ~origin, None)
            if half is not None:
                closed.append((half, HalfDecision.COMMIT if origin >= 0 else HalfDecision.EXPIRED))
        await asyncio.sleep(0)
    return closed


def _close(transactions: OpenTransactions, closed: Closed) -> None:
    for begin in range(0, len(closed), OPS_PER_APPEND):
        try:
            transactions.close(closed[begin : begin + OPS_PER_APPEND])
        except Refused as refused:  # the next start finds them again
            log.error("Cannot write op records of ended transactions: %s", refused.remark)


async def records(
    store: Storage, queue: ConsumeQueue, begin: int, but: set[int] | frozenset[int] = NOTHING
) -> AsyncIterator[Record]:
    """Yields the readable records of a queue from `begin` on, except those at queue offsets in `but`."""
    begin = max(begin, queue.min_offset)
    while begin < queue.max_offset:
        entries = list(ENTRY.iter_unpack(queue.units(begin, min(ENTRIES_PER_TURN, queue.max_offset - begin))))
        if not entries:
            return
        for place, (at, size, _) in enumerate(entries, begin):
            if place not in but:
                record = store.log.look_up(at)
                if record is not None and record.size == size and record.queue_offset == place:
                    yield record
        begin += len(entries)
        await asyncio.sleep(0)
