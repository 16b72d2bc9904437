"""The ledger on disk: one record for each change of a book, in a topic of the system.

In: changes that the ledger allows. Out: records in the log, and the ledger with the changes applied. At a
start the queue is read from its beginning. Before a file of the log is deleted, books that rest on records in
it are written once more, as they are; so the records that are left always tell everything.

A change counts when it is appended, in the order of the log: what is done because of it comes later there. It
is told to others, who have logs of their own, when it is on disk.
"""

import logging

import msgspec

from turbopump.broker.produce.writer import MessageWriter
from turbopump.broker.storage import Storage
from turbopump.broker.transactions.ledger.ledger import BookForgotten, Change, LedgerBooks, read_change
from turbopump.broker.transactions.recovery import records
from turbopump.protocol import properties
from turbopump.protocol.errors import BrokenBody, FlushDiskTimeout, Refused
from turbopump.protocol.names import LEDGER_TOPIC
from turbopump.runtime.clock import Clock
from turbopump.store.append import Appended, Draft

log = logging.getLogger(__name__)

QUEUE = 0
PROPERTIES = properties.pack({properties.WAIT: "true"}).encode()


class LedgerLog:
    def __init__(self, ledger: LedgerBooks, store: Storage, writer: MessageWriter, clock: Clock) -> None:
        self._ledger = ledger
        self._store = store
        self._writer = writer
        self._clock = clock
        self._since: dict[str, int] = {}  # id -> where the oldest record lies that its book needs
        self._end: dict[str, int] = {}  # id -> where its newest record ends

    async def reopen(self) -> None:
        """Before anybody is served."""
        queue = self._store.queues.find(LEDGER_TOPIC, QUEUE)
        if queue is None:
            return
        async for record in records(self._store, queue, queue.min_offset):
            try:
                change = read_change(record.body)
            except BrokenBody as error:
                log.error("A record of the ledger at %d is passed over: %s", record.physical_offset, error)
                continue
            self._ledger.apply(change, record.store_timestamp)
            self._noted(change, (record.physical_offset, record.queue_offset, record.size))
        if self._ledger.books:
            log.info("%d transactional ids are in the ledger", len(self._ledger.books))

    def write(self, change: Change) -> None:
        """Raises Refused, and then nothing has happened."""
        (appended,) = self._writer.append_counted([self._draft(change)])
        self._ledger.apply(change, self._clock.now_ms())
        self._noted(change, appended)

    async def safe(self, id: str) -> None:
        """Returns when all that is known of the id is on disk. Raises FlushDiskTimeout."""
        if not await self._writer.acknowledgement.on_disk(self._end.get(id, 0)):
            raise FlushDiskTimeout("the ledger cannot be written to disk; ask again")

    async def rescue(self, below: int) -> bool:
        """The log is about to lose what lies below. True: no book needs it any more."""
        try:
            for id in [one for one, at in self._since.items() if at < below]:
                self._write_anew(id)
        except Refused as refused:
            log.error("Books cannot be written anew, so their file is not deleted: %s", refused.remark)
            return False
        return await self._writer.acknowledgement.on_disk(self._store.log.end)

    def _write_anew(self, id: str) -> None:
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
