"""The log of messages as the rest of the broker uses it: append, look up, and where the log begins and ends.

In: drafts. Out: where each message is, and the bytes of records. `commit_log.py` below knows bytes and files
only, and `append.py` writes records; here an append also reaches consume queues, index and waiting pulls.
`broker/log.py` names the part of this class that a replicated log has to offer as well.

    min_offset                 where the oldest record that is still there begins
    synced <= committed <= end    on the medium; visible to readers; where the next record goes
"""

from collections.abc import Awaitable, Callable, Sequence

from turbopump.protocol.errors import BrokenRecord, MessageIllegal
from turbopump.protocol.record import Record, decode
from turbopump.protocol.sysflag import PREPARED
from turbopump.runtime.disk import Buffer
from turbopump.store import scan
from turbopump.store.append import Appended, Appender, Draft
from turbopump.store.commit_log import CommitLog
from turbopump.store.dispatch import Arrival, Dispatcher
from turbopump.store.flags import Flags, Reason
from turbopump.store.flush import Flusher
from turbopump.store.light_queues import LightQueues


class MessageLog:
    """Appends messages to the commit log and finds them again by log offset."""

    def __init__(
        self,
        commit_log: CommitLog,
        appender: Appender,
        dispatcher: Dispatcher,
        flusher: Flusher,
        flags: Flags,
        lights: LightQueues | None,
        immediate: bool,
        cut: Callable[[int], Awaitable[list[str]]],
    ) -> None:
        self._log = commit_log
        self._appender = appender
        self._append = appender.append
        self._dispatcher = dispatcher
        self._flusher = flusher
        self._flags = flags
        self._lights = lights
        self._immediate = immediate  # readers see a message as soon as it is appended
        self._cut = cut
        self._syncs_each = flusher.syncs_each

    # extent

    @property
    def min_offset(self) -> int:
        """Physical offset of the oldest record that was not deleted."""
        return self._log.min_offset

    @property
    def end(self) -> int:
        """Physical offset at which the next record will begin."""
        return self._log.end

    @property
    def committed(self) -> int:
        """Log offset below which `look_up` finds records; SYNC_FLUSH: consumers see those below `synced`."""
        return self._log.committed

    @property
    def dispatched(self) -> int:
        """Log offset below which every record is in its queue; with SYNC_FLUSH or a pool it lags behind."""
        return self._dispatcher.dispatched

    @property
    def synced(self) -> int:
        """Physical offset below which everything is synced to disk."""
        return self._log.synced

    @property
    def pool_buffers_left(self) -> int | None:
        """Number of unused buffers of the transient store pool; None without a pool."""
        return self._log.buffers_left if self._log.uses_pool else None

    @property
    def appended_messages(self) -> int:
        """Number of messages appended since the broker started."""
        return self._appender.messages

    @property
    def appended_bytes(self) -> int:
        """Bytes of the records appended since the broker started."""
        return self._appender.bytes

    # writing

    @property
    def store_host(self) -> bytes:
        """Packed address of the broker, stamped on every record."""
        return self._appender.store_host

    @store_host.setter
    def store_host(self, host: bytes) -> None:
        self._appender.store_host = host

    @property
    def on_arrival(self) -> Arrival | None:
        """Called with queue, next offset and tag code for every message that becomes readable."""
        return self._dispatcher.on_arrival

    @on_arrival.setter
    def on_arrival(self, arrived: Arrival | None) -> None:
        self._dispatcher.on_arrival = arrived

    @property
    def on_growth(self) -> Callable[[], None] | None:
        """Called after each append, for those that copy the log."""
        return self._dispatcher.on_growth

    @on_growth.setter
    def on_growth(self, grown: Callable[[], None] | None) -> None:
        self._dispatcher.on_growth = grown

    def append(self, drafts: Sequence[Draft], together: bool = False) -> list[Appended]:
        """Appends all messages and returns where each is, or raises Refused; `together`: in one log file."""
        if self._lights is not None:
            self._lights.stamp(drafts)
        before = self._appender.messages
        try:
            appended = self._append(drafts, together)
        except MessageIllegal:
            self._announce_first(drafts[: self._appender.messages - before])
            raise
        dispatcher = self._dispatcher
        if self._immediate:
            arrived = dispatcher.on_arrival
            if arrived is not None and self._lights is not None:
                for draft in drafts:
                    for light, light_offset in draft.lights:
                        arrived(light, light_offset + 1, draft.tags_code)
            if arrived is not None:
                for draft, (_, queue_offset, _) in zip(drafts, appended, strict=True):
                    # A half message and a rollback, which has this bit too, are in no queue.
                    if not draft.sys_flag & PREPARED:
                        arrived(draft.queue, queue_offset + 1, draft.tags_code)
            dispatcher.keys_waiting()
        elif self._syncs_each:
            self._flusher.want(self._log.end)
        if dispatcher.on_growth is not None:
            dispatcher.on_growth()
        return appended

    def _announce_first(self, drafts: Sequence[Draft]) -> None:
        """Wakes those who wait for the first messages of an append: they are stored, the next is illegal."""
        dispatcher = self._dispatcher
        arrived = dispatcher.on_arrival
        if not drafts:
            return
        if self._immediate:
            if arrived is not None:
                for draft in drafts:
                    for light, light_offset in draft.lights:
                        arrived(light, light_offset + 1, draft.tags_code)
                    if not draft.sys_flag & PREPARED:
                        arrived(draft.queue, draft.queue.next_offset, draft.tags_code)
            dispatcher.keys_waiting()
        elif self._syncs_each:
            self._flusher.want(self._log.end)
        if dispatcher.on_growth is not None:
            dispatcher.on_growth()

    def rewrite(self, drafts: Sequence[Draft]) -> list[Appended]:
        """Appends copies of messages whose log file will be deleted, even while the disk counts as full."""
        with self._flags.lifted(Reason.DISK_FULL):
            return self.append(drafts)

    async def cut(self, end: int) -> list[str]:
        """Removes every record from log offset `end` on; returns paths of the copies of some of them.

        See `Upkeep.cut_log`.
        """
        return await self._cut(end)

    # reading

    def read(self, offset: int, size: int) -> bytes | None:
        """Returns `size` bytes from log offset `offset` on; None: deleted, not committed or in two files."""
        return self._log.read(offset, size)

    def locate(self, offset: int) -> tuple[Buffer, int] | None:
        """Returns the mapped file that holds a log offset and the position in it; None: not in the log."""
        return self._log.locate(offset)

    def look_up(self, offset: int) -> Record | None:
        """Decodes the record that begins at this log offset; None when no committed record does."""
        found = self._log.locate(offset)
        if found is None:
            return None
        try:
            record = decode(*found)
        except BrokenRecord:
            return None
        ends_inside = offset + record.size <= self._log.committed
        return record if record.physical_offset == offset and ends_inside else None

    def references(self, begin: int, count: int) -> tuple[list[int], int]:
        """Returns prepared transaction offsets in `count` records from `begin` on, and where to go on."""
        return scan.references(self._log, begin, count)

    def carrying(self, mark: bytes, begin: int, count: int) -> tuple[list[Record], int]:
        """Returns those of `count` records with `mark` in their properties, and the offset to go on from."""
        return scan.carrying(self._log, mark, begin, count)
