"""Stores the ledger in the log: one record for each change of a book, in a system topic.

In: changes that the ledger allows. Out: records in the log, and the ledger with the changes applied. At a
start the queue is read from its beginning. Before a file of the log is deleted, books that depend on records
in it are rewritten as they are; so the remaining records are always complete.

A change counts when it is appended, in the order of the log: its consequences come later there. Other
brokers, which have logs of their own, get it when it is on disk.
"""

import logging

import msgspec

from turbopump.broker.produce.writer import MessageWriter
from turbopump.broker.storage import Storage
from turbopump.broker.transactions.ledger.ledger import BookForgotten, Change, LedgerBooks, read_change
from turbopump.broker.transactions.recovery import records
from turbopump.protocol import properties
from turbopump.protocol.errors import BrokenBody, Refused
from turbopump.protocol.names import LEDGER_TOPIC
from turbopump.runtime.clock import Clock
from turbopump.store.append import Appended, Draft

log = logging.getLogger(__name__)

QUEUE = 0
PROPERTIES = properties.pack({properties.WAIT: "true"}).encode()


class LedgerLog:
    """Appends changes of the ledger's books to the log, and applies those of the log at a start."""

    def __init__(self, ledger: LedgerBooks, store: Storage, writer: MessageWriter, clock: Clock) -> None:
        self._ledger = ledger
        self._store = store
        self._writer = writer
        self._clock = clock
        self._since: dict[str, int] = {}  # id -> log offset of the oldest record that its book needs
        self._end: dict[str, int] = {}  # id -> where its newest record ends

    async def reopen(self) -> None:
        """Applies all changes of the log to the books, before requests are served; skips damaged ones."""
        queue = self._store.queues.find(LEDGER_TOPIC, QUEUE)
        if queue is None:
            return
        async for record in records(self._store, queue, queue.min_offset):
            try:
                change = read_change(record.body)
            except BrokenBody as error:
                log.error("Skipping the ledger record at log offset %d: %s", record.physical_offset, error)
                continue
            self._ledger.apply(change, record.store_timestamp)
            self._noted(change, (record.physical_offset, record.queue_offset, record.size))
        if self._ledger.books:
            log.info("%d transactional ids are in the ledger", len(self._ledger.books))

    def write(self, change: Change) -> None:
        """Appends a change to the log, then applies it to its book. Raises Refused, with nothing changed."""
        (appended,) = self._writer.append_counted([self._draft(change)])
        self._ledger.apply(change, self._clock.now_ms())
        self._noted(change, appended)

    async def safe(self, id: str) -> None:
        """Waits until all changes of the id's book are on disk, and at slaves that are waited for.

        Raises FlushDiskTimeout or FlushSlaveTimeout.
        """
        await self._writer.acknowledgement.require_on_disk(self._end.get(id, 0), "the entry of the ledger")

    async def rescue(self, below: int) -> bool:
        """Rewrites books that need records below physical offset `below`. True: the copies are on disk.

        False, when the log refuses a record or the sync fails: the log must not delete these records yet.
        """
        try:
            for id in [one for one, at in self._since.items() if at < below]:
                self._rewrite(id)
        except Refused as refused:
            log.error("Cannot rewrite books of the ledger; keeping their file of the log: %s", refused.remark)
            return False
        return await self._writer.acknowledgement.on_disk(self._store.log.end)

    def _rewrite(self, id: str) -> None:
        changes = self._ledger.snapshot(id)
        appended = self._store.log.rewrite([self._draft(change) for change in changes])
        self._since[id] = appended[0][0]
        self._noted(changes[-1], appended[-1])

    def _noted(self, change: Change, appended: Appended) -> None:
        if isinstance(change, BookForgotten):
            self._since.pop(change.id, None)
            self._end.pop(change.id, None)
            return
        at, _, size = appended
        self._since.setdefault(change.id, at)
        self._end[change.id] = at + size

    def _draft(self, change: Change) -> Draft:
        return Draft(
            queue=self._store.queues.queue(LEDGER_TOPIC, QUEUE),
            body=msgspec.json.encode(change),
            properties=PROPERTIES,
            flag=0,
            sys_flag=0,
            born_timestamp=self._clock.now_ms(),
            born_host=self._store.log.store_host,
        )
