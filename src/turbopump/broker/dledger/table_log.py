"""Writes the tables of a leader to the log of its group, so that the next leader has them.

In: tables that were saved, topics that were created. Out: records of the topic `rmq_sys_TURBOPUMP_TABLES`. A
new leader begins with all tables, and so does each file of the log: whatever part of the log retention
leaves, the tables are in it. A topic that a send creates is in the log before its first message.
"""

import logging
from collections.abc import Callable

from turbopump.broker.dledger.table_records import FIRST_TAG, Table, TableWriter, bodies
from turbopump.broker.log import Log
from turbopump.broker.produce.writer import MessageWriter
from turbopump.protocol import properties
from turbopump.protocol.errors import Refused, SystemFailure
from turbopump.protocol.hashing import java_hash
from turbopump.protocol.names import TABLE_TOPIC
from turbopump.runtime.clock import Clock
from turbopump.store.append import Draft
from turbopump.store.queues import ConsumeQueues

log = logging.getLogger(__name__)

QUEUE = 0


class TableLog:
    """Appends tables of this leader to the log of the group."""

    def __init__(
        self,
        messages: Log,
        writer: MessageWriter,
        queues: ConsumeQueues,
        store_host: bytes,
        clock: Clock,
        term: int,
        address: str,
        file_size: int,
        all_tables: Callable[[], list[Table]],
    ) -> None:
        self._log = messages
        self._writer = writer
        self._queues = queues
        self._host = store_host
        self._clock = clock
        self._term = term
        self._address = address
        self._file_size = file_size
        self._all_tables = all_tables
        self._file = -1  # number of the file of the log that has all tables
        self._begin = -1  # where the log began when a table was written last

    def append_all(self) -> int:
        """Appends all tables; returns where the log ends behind them. Raises Refused."""
        self._file = self._log.end // self._file_size
        drafts: list[Draft] = []
        for table in self._all_tables():
            drafts += self._drafts(table, FIRST_TAG if not drafts else "")
        return self._append(drafts)

    def tell_begin(self, table: Table) -> None:
        """Writes a table again if the log has lost files since one was written: followers follow."""
        if self._begin != self._log.min_offset:
            self.try_append(table)

    def append(self, table: Table) -> int:
        """Appends a table that has changed; returns where the log ends behind it. Raises Refused."""
        if self._log.end // self._file_size != self._file:
            self.append_all()
        return self._append(self._drafts(table))

    async def publish(self, name: str, contents: bytes) -> None:
        """Appends a saved table and waits until the group has it. Raises SystemFailure."""
        try:
            end = self.append(Table(name, contents))
        except Refused as refused:
            raise SystemFailure(f"this group does not store the table {name}: {refused.remark}") from None
        safety = await self._writer.acknowledgement.safe(end)
        if not safety.is_safe:
            raise SystemFailure(f"{name} is saved here, but not in the group: {safety.remark}")

    def try_append(self, table: Table) -> None:
        """Appends a table; logs when that is refused: the next leader writes all tables anew."""
        try:
            self.append(table)
        except Refused as refused:
            log.warning("The table %s is not in the log of the group: %s", table.name, refused.remark)

    def _append(self, drafts: list[Draft]) -> int:
        appended = self._writer.append(drafts)
        offset, _, size = appended[-1]
        return offset + size

    def _drafts(self, table: Table, tag: str = "") -> list[Draft]:
        pairs = {properties.TAGS: tag} if tag else {}
        self._begin = self._log.min_offset
        writer = TableWriter(self._term, self._address, self._begin)
        return [
            Draft(
                self._queues.queue(TABLE_TOPIC, QUEUE),
                body,
                properties.pack(pairs if number == 0 else {}).encode(),
                0,
                0,
                self._clock.now_ms(),
                self._host,
                java_hash(tag) if tag and number == 0 else 0,
                store_host=self._host,
            )
            for number, body in enumerate(bodies(table, writer))
        ]
