"""The log of a slave: bytes of the master's log, appended as they come, and what is derived from them.

In: bytes that continue the log, cut anywhere. Out: the same log, byte for byte, and consume queues, index and
waiting pulls that follow it record by record. Copying never waits for them: a slave that starts empty takes
the log at the speed of the network, and `dispatch` works through it in slices behind. Bytes that are no
record end the copy: nothing is appended behind them. Where the bytes come from is not known here.
"""

import struct

from turbopump.protocol.record import BLANK, MAGIC_V1, MAGIC_V2, MIN_RECORD_SIZE
from turbopump.runtime.disk import Buffer
from turbopump.store.commit_log import BLANK_SIZE, CommitLog
from turbopump.store.config import StoreConfig
from turbopump.store.dispatch import Dispatcher
from turbopump.store.errors import UnusableStore
from turbopump.store.flags import Flags, Reason
from turbopump.store.flush import Flusher
from turbopump.store.scan import BLANK as FOUND_BLANK
from turbopump.store.scan import scan

BYTES_PER_TURN = 128 << 10  # dispatched in one turn of the loop: about 0.6 ms with records of 1 KiB
MAX_LAST_TURNS = 10_000  # before a stop: about 1.2 GB, some seconds
SIZE_AND_MAGIC = struct.Struct(">ii")


class NotACopy(Exception):
    """The bytes that were copied are not a log: no record begins where one must."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"no record begins at log offset {offset}")
        self.offset = offset


class ReplicaLog:
    """Appends bytes of the master's log to that of this store, and dispatches the records in them."""

    def __init__(
        self, log: CommitLog, dispatcher: Dispatcher, flusher: Flusher, flags: Flags, config: StoreConfig
    ) -> None:
        self._log = log
        self._dispatcher = dispatcher
        self._flusher = flusher
        self._flags = flags
        self._check_crc = config.check_crc_on_recover
        self._syncs_each = config.syncs_each

    # extent

    @property
    def min_offset(self) -> int:
        """Log offset of the first byte that this store has."""
        return self._log.min_offset

    @property
    def end(self) -> int:
        """Log offset behind the last byte that was copied; a record may be incomplete there."""
        return self._log.end

    @property
    def synced(self) -> int:
        """Log offset below which everything is on the medium."""
        return self._log.synced

    @property
    def dispatched(self) -> int:
        """Log offset below which every record is in its queue."""
        return self._dispatcher.dispatched

    @property
    def last_record(self) -> int:
        """Log offset of the last record that was dispatched; -1: none is known."""
        return self._dispatcher.state()[1]

    def read(self, begin: int, end: int) -> bytes:
        """Returns the log bytes [begin, end), which this store must have, across files too."""
        pieces = []
        while begin < end:
            stop = min(end, begin - begin % self._log.file_size + self._log.file_size)
            pieces.append(self._log.slice(begin, stop))
            begin = stop
        return b"".join(pieces)

    def record(self, offset: int) -> bytes | None:
        """Returns the bytes of the record at an offset; None when none is there."""
        found = self._log.identify(offset)
        return None if found is None else self._log.slice(offset, offset + found.size)

    def walk(self, begin: int, stop: int, end: int) -> tuple[int, int]:
        """Returns the last record in [begin, stop) that ends by `end`, -1: none, and where to go on.

        A record must begin at `begin`; [begin, stop) is in one file. -1: no record ends by `end`. The second
        number is where the next record begins, or the end of the file when no further record ends by `end`,
        which must not be beyond the end of this log.
        """
        file_size = self._log.file_size
        start = begin - begin % file_size
        buffer, at, last = self._log.files.mapped(start).buffer, begin, -1
        while at < stop:
            size, magic = SIZE_AND_MAGIC.unpack_from(buffer, at - start)
            if magic not in (MAGIC_V1, MAGIC_V2) or size < MIN_RECORD_SIZE or at + size > end:
                return last, start + file_size
            last = at
            at += size
        return last, at

    @property
    def file_size(self) -> int:
        return self._log.file_size

    @property
    def is_empty(self) -> bool:
        """Whether the log has no byte, and so may begin at any file."""
        return not self._log.files.starts

    @property
    def is_behind(self) -> bool:
        """Whether bytes were copied that are not dispatched yet."""
        return self.dispatched < self._log.end

    # copying

    def open(self) -> None:
        """Makes the store that of a slave: from now on only `append` writes to its log."""
        self._flags.set(Reason.SLAVE)
        self._dispatcher.copied_from = self._log.end

    def begin_at(self, offset: int) -> None:
        """Lets an empty log begin at `offset`. Raises UnusableStore where no file of this store can begin."""
        assert self.is_empty, "only an empty log can begin elsewhere"
        if offset % self._log.file_size:
            raise UnusableStore(
                f"the master's log begins at {offset}, which is no multiple of the file size "
                f"{self._log.file_size} of this store. Set mappedFileSizeCommitLog to that of the master"
            )
        self._log.files.drop_ahead()
        self._log.start_at(offset)
        self._dispatcher.copied_from = offset

    def make_room(self) -> None:
        """Makes the file that the next bytes need, if it is not there. Raises OSError on a full disk."""
        log = self._log
        if log.limit < 0:
            log.files.create_ahead(log.base)
        elif log.position == log.file_size:
            log.files.create_ahead(log.base + log.file_size)

    def append(self, data: memoryview) -> None:
        """Appends bytes that continue the log. Raises OSError on a full disk; some may be appended then."""
        try:
            self._log.copy_in(data)
        finally:
            if self._syncs_each:
                self._flusher.want(self._log.end)

    # what follows the log

    def dispatch(self, size: int = BYTES_PER_TURN) -> bool:
        """Dispatches up to about `size` bytes of whole records; returns whether more can be done at once.

        Raises NotACopy when no record begins where one must.
        """
        log, began = self._log, self.dispatched
        start = began - began % log.file_size
        available = min(log.end - start, log.file_size)
        position = began - start
        if position >= available:
            return False
        buffer = log.files.mapped(start).buffer
        at, ended_by = self._scan(buffer, start, position, min(position + size, available))
        if at == position and position + size < available:  # a record larger than a turn
            at, ended_by = self._scan(buffer, start, position, available)
        if ended_by == FOUND_BLANK and available == log.file_size:
            at = log.file_size
        elif at == position:
            self._check_incomplete(buffer, start, position, available)
            return False
        self._dispatcher.copied_from = start + at
        self._dispatcher.keys_waiting()
        return self.is_behind

    def _scan(self, buffer: Buffer, start: int, position: int, limit: int) -> tuple[int, int]:
        check_crc = self._check_crc
        position = self._dispatcher.dispatch_plain(buffer, start, position, limit, check_crc)
        return scan(buffer, start, position, limit, check_crc, self._dispatcher.dispatch_copied)

    def _check_incomplete(self, buffer: Buffer, start: int, position: int, available: int) -> None:
        """Raises NotACopy unless the bytes at `position` can be the beginning of a record."""
        if available - position < SIZE_AND_MAGIC.size:
            return
        size, magic = SIZE_AND_MAGIC.unpack_from(buffer, position)
        fits = size <= self._log.file_size - position
        if magic == BLANK and fits and size >= BLANK_SIZE:
            return
        is_record = magic in (MAGIC_V1, MAGIC_V2) and size >= MIN_RECORD_SIZE and fits
        if not is_record or position + size <= available:
            raise NotACopy(start + position)

    def finish(self) -> bool:
        """Dispatches the rest, then removes an incomplete record, for an orderly stop. False: not all done.

        The beginning of a record whose end did not come is removed, durably: the master sends it again, and
        a broker that is started as a master writes another record there. Blocks; no sync is under way.
        """
        try:
            turns = 0
            while self.dispatch():
                turns += 1
                if turns == MAX_LAST_TURNS:
                    return False
        except NotACopy:
            return False
        log, end = self._log, self.dispatched
        if end < log.end:
            log.shorten(end)
        return True
