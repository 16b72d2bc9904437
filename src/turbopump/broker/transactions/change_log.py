"""Stores changes of books in the log: one record for each change, in a system topic of their own.

In: changes that a book allows. Out: records in the log, and the book with the changes applied. At a start the
queue is read from its beginning. Before a file of the log is deleted, the entries of the book that depend on
records in it are rewritten as they are; so the remaining records are always complete.

A change counts when it is appended, in the order of the log: its consequences come later there. Other
brokers, which have logs of their own, get it when it is on disk.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import msgspec

from turbopump.broker.produce.writer import MessageWriter
from turbopump.broker.storage import Storage
from turbopump.broker.transactions.recovery import records
from turbopump.protocol import properties
from turbopump.protocol.errors import BrokenBody, Refused
from turbopump.runtime.clock import Clock
from turbopump.store.append import Appended, Draft

log = logging.getLogger(__name__)

QUEUE = 0
REWRITTEN_PER_TURN = 128  # entries: about 5 ms of the event loop
PROPERTIES = properties.pack({properties.WAIT: "true"}).encode()

C = TypeVar("C", bound=msgspec.Struct)


class ChangedBook(Protocol[C]):
    """Interface to a book, a table of entries by key, whose changes are stored."""

    topic: str
    words: str
    """What an entry of the book is, for logs and refusals."""

    def read(self, body: bytes) -> C:
        """Decodes a change. Raises BrokenBody."""
        ...

    def key(self, change: C) -> str: ...

    def removes(self, change: C) -> bool:
        """Returns whether nothing is known of the key after this change."""
        ...

    def apply(self, change: C, at_ms: int) -> None: ...

    def snapshot(self, key: str) -> Sequence[C]:
        """Returns the changes that, applied in order, make an entry as it is now."""
        ...


@dataclass(slots=True)
class _Place:
    """Where the records of an entry are in the log: the oldest that it needs, and the end of the newest."""

    since: int
    end: int


class ChangeLog(Generic[C]):
    """Appends changes of a book to the log, and applies those of the log at a start."""

    def __init__(self, book: ChangedBook[C], store: Storage, writer: MessageWriter, clock: Clock) -> None:
        self._book = book
        self._store = store
        self._writer = writer
        self._clock = clock
        self._places: dict[str, _Place] = {}

    async def reopen(self) -> None:
        """Applies all changes of the log to the book, before requests are served; skips damaged ones."""
        queue = self._store.queues.find(self._book.topic, QUEUE)
        if queue is None:
            return
        async for record in records(self._store, queue, queue.min_offset):
            try:
                change = self._book.read(record.body)
            except BrokenBody as error:
                words = "Skipping a record of the %s at log offset %d: %s"
                log.error(words, self._book.words, record.physical_offset, error)
                continue
            self._book.apply(change, record.store_timestamp)
            self._noted(change, (record.physical_offset, record.queue_offset, record.size))
        if self._places:
            log.info("%d entries are in the %s", len(self._places), self._book.words)

    def write(self, *changes: C) -> None:
        """Appends changes to the log, then applies them. Raises Refused, with nothing changed."""
        all_appended = self._writer.append_counted([self._draft(change) for change in changes])
        for change, appended in zip(changes, all_appended, strict=True):
            self._book.apply(change, self._clock.now_ms())
            self._noted(change, appended)

    async def safe(self, key: str) -> None:
        """Waits until all changes of an entry are on disk, and at slaves that are waited for.

        Raises FlushDiskTimeout or FlushSlaveTimeout.
        """
        place = self._places.get(key)
        await self._writer.acknowledgement.require_on_disk(
            place.end if place else 0, f"the entry of the {self._book.words}"
        )

    async def rescue(self, below: int) -> bool:
        """Rewrites entries that need records below physical offset `below`. True: the copies are on disk.

        False, when the log refuses a record or the sync fails: the log must not delete these records yet.
        """
        try:
            old = [key for key, place in self._places.items() if place.since < below]
            for number, key in enumerate(old, 1):
                if key in self._places:  # else it was removed meanwhile
                    self._rewrite(key)
                if number % REWRITTEN_PER_TURN == 0:
                    await asyncio.sleep(0)
        except Refused as refused:
            words = "Cannot rewrite entries of the %s; keeping their file of the log: %s"
            log.error(words, self._book.words, refused.remark)
            return False
        return await self._writer.acknowledgement.on_disk(self._store.log.end)

    def _rewrite(self, key: str) -> None:
        appended = self._store.log.rewrite([self._draft(change) for change in self._book.snapshot(key)])
        at, _, size = appended[-1]
        self._places[key] = _Place(appended[0][0], at + size)

    def _noted(self, change: C, appended: Appended) -> None:
        key = self._book.key(change)
        if self._book.removes(change):
            self._places.pop(key, None)
            return
        at, _, size = appended
        place = self._places.setdefault(key, _Place(at, at + size))
        place.end = at + size

    def _draft(self, change: C) -> Draft:
        return Draft(
            queue=self._store.queues.queue(self._book.topic, QUEUE),
            body=msgspec.json.encode(change),
            properties=PROPERTIES,
            flag=0,
            sys_flag=0,
            born_timestamp=self._clock.now_ms(),
            born_host=self._store.log.store_host,
        )
