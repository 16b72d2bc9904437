"""Takes the tables of the leader from the log of the group, on a follower.

In: committed records of the topic `rmq_sys_TURBOPUMP_TABLES`. Out: calls with each table, in log order, and
the address of the leader that wrote them. A member that is started takes the last complete set of tables in
its log and what follows. An Apache leader writes none: its tables are pulled as its own followers do it, and
what the log has from before does not count any longer (`ignore_before`).
"""

import logging
from collections.abc import Callable

import msgspec

from turbopump.broker.dledger.table_log import QUEUE
from turbopump.broker.dledger.table_records import FIRST_TAG, Table, TablePieces
from turbopump.broker.log import Log
from turbopump.protocol.errors import BrokenBody
from turbopump.protocol.hashing import java_hash
from turbopump.protocol.names import TABLE_TOPIC
from turbopump.store.config_files import ConfigFiles
from turbopump.store.consume_queue import ConsumeQueue
from turbopump.store.queues import ConsumeQueues

log = logging.getLogger(__name__)

FILE = "dledgerTables.json"
FIRST_CODE = java_hash(FIRST_TAG)


class _Ignored(msgspec.Struct):
    queueOffset: int = 0  # noqa: N815


def has_tables(queues: ConsumeQueues, files: ConfigFiles) -> bool:
    """Returns whether the newest tables are in the log of the group: its last leader was one of ours."""
    queue = queues.find(TABLE_TOPIC, QUEUE)
    return queue is not None and queue.max_offset > ignored_before(files)


def ignored_before(files: ConfigFiles) -> int:
    """Returns the queue offset before which the tables in the log do not count any longer."""
    data = files.load(FILE)
    try:
        return 0 if data is None else msgspec.json.decode(data, type=_Ignored).queueOffset
    except msgspec.DecodeError:
        log.warning("%s cannot be read: all tables in the log count", FILE)
        return 0


class TableCopies:
    """Reads the tables in the log of the group, and gives each to `take`."""

    def __init__(
        self, messages: Log, queues: ConsumeQueues, files: ConfigFiles, take: Callable[[Table], None]
    ) -> None:
        self.term = -1
        """Term of the leader that wrote the last table; -1: none was seen."""
        self.address: str | None = None
        """Address of that leader, for clients."""
        self.begin = 0
        """Where the log of that leader began."""
        self._log = messages
        self._queues = queues
        self._files = files
        self._take = take
        self._pieces = TablePieces()
        self._next: int | None = None

    def catch_up(self) -> None:
        """Takes the tables in the log that were not taken yet."""
        queue = self._queues.find(TABLE_TOPIC, QUEUE)
        if queue is None:
            return
        if self._next is None:
            self._next = self._first(queue)
        while self._next < queue.max_offset:
            self._take_record(queue, self._next)
            self._next += 1

    def ignore_before(self) -> None:
        """Notes, durably, that the tables in the log are older than those of the present leader. Blocks."""
        queue = self._queues.find(TABLE_TOPIC, QUEUE)
        end = 0 if queue is None else queue.max_offset
        if end != ignored_before(self._files):
            self._files.save(FILE, msgspec.json.encode(_Ignored(end)))

    def _first(self, queue: ConsumeQueue) -> int:
        """Returns the queue offset of the last complete set of tables; else the first that counts."""
        least = max(queue.min_offset, ignored_before(self._files))
        for offset in range(queue.max_offset - 1, least - 1, -1):
            entry = queue.entry(offset)
            if entry is not None and entry[2] == FIRST_CODE:
                return offset
        return least

    def _take_record(self, queue: ConsumeQueue, offset: int) -> None:
        entry = queue.entry(offset)
        record = None if entry is None else self._log.look_up(entry[0])
        if record is None:
            log.warning("Record %d of %s cannot be read: a table may be too old", offset, TABLE_TOPIC)
            return
        try:
            head, table = self._pieces.take(record.body)
            self.term, self.address, self.begin = head.term, head.address, head.begin
            if table is not None:
                self._take(table)
        except BrokenBody as error:
            log.error("A table in the log of the group was not taken: %s", error)
