"""DLedger's log: entries by index, in data files that the message store reads as its commit log.

In: records to append as a leader, entries to append as a follower. Out: entries by index, and, by log offset,
the records of committed entries: a record lies 48 bytes behind the head of its entry. Elections and who has
copied what are not known here.

    index       begin_index … committed_index … end_index, without a gap; -1: none
    offset      min_offset … committed … end, as in any commit log; in `commitlog/` below `files.divided_at`,
                where a store was switched over to DLedger
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from turbopump.protocol.dledger.entry import (
    END_MAGIC,
    END_MARK,
    HEAD_SIZE,
    MAGIC,
    MIN_BODY_SIZE,
    UNIT,
    DLedgerEntry,
    measure,
    pack_entries,
    pack_entry,
    read_entry,
)
from turbopump.runtime.disk import Disk
from turbopump.store.commit_log import LogFile, Syncable
from turbopump.store.config import StoreConfig
from turbopump.store.dispatch import Found
from turbopump.store.dledger.entry_recovery import EntryRecovery
from turbopump.store.dledger.entry_scan import EMPTY
from turbopump.store.dledger.indexed_log import IndexedLog
from turbopump.store.dledger.placement import LogEnd, starts_of
from turbopump.store.dledger.state_files import EntryCheckpoint, StateFiles
from turbopump.store.dledger.switch_over import end_older_files
from turbopump.store.errors import UnusableStore
from turbopump.store.scan import BLANK, scan
from turbopump.store.segment import FilePart, LogFiles


class EntryLog(IndexedLog):
    """The log of a DLedger node: a commit log whose records are the bodies of entries."""

    def __init__(self, config: StoreConfig, disk: Disk) -> None:
        files = LogFiles(
            config.entry_dir,
            config.commit_log_file_size,
            disk,
            config.open_log_files,
            config.syncs_each,
            older_dir=config.log_dir,
        )
        super().__init__(replace(config, transient_pool=False), disk, files)
        self.state_files = StateFiles(config.dledger_dir, disk)
        self.committed_index = EMPTY
        self.on_reset: Callable[[], None] = lambda: None
        """Called when the log has been reset: what follows it has to begin where it begins now."""
        self.set_aside_dir = config.entries_aside_dir
        self._visible = 0  # offset behind the last committed entry
        self._synced_next = 0  # entries below this index are on the medium
        self._sync_asked = 0

    @classmethod
    def open(cls, config: StoreConfig, disk: Disk) -> "EntryLog":
        """Finds the end of the log, makes index and checkpoint agree with it, and returns it. Blocks.

        Raises UnusableStore.
        """
        log = cls(config, disk)
        log.load()
        if log.awaits_switch_over and not log._is_switched_over():
            raise UnusableStore(
                f"the commit log before {log.files.directory} is not ended yet: open it as a store first, "
                "which switches it over to DLedger"
            )
        return log

    def load(self) -> None:
        self._disk.make_dirs(self.files.directory)
        checkpoint = self.state_files.load_checkpoint()
        found = EntryRecovery(self, self.index, checkpoint, self._disk, self.set_aside_dir).run()
        self._first, self._next, self._term = found.first, found.next, found.term
        self._synced_next = self._next
        self.index.mark_synced(self._next)
        self.start_at(found.end)
        self._commit(checkpoint.within(self._first, self._next - 1).committed)

    # switch-over

    @property
    def awaits_switch_over(self) -> bool:
        """Whether there are files of a commit log, and no entry behind them yet."""
        return self._next == self._first and bool(self.files.starts)

    def continue_after(self, end: int) -> int:
        """Ends the files of the commit log, whose records end at `end`; returns where entries begin. Blocks.

        For `message_recovery.py`, which has found that end. Without an entry it can be repeated.
        """
        assert self.awaits_switch_over, "the commit log before an entry has an end"
        self.files.divided_at = end_older_files(self.files, end)
        self.start_at(self.files.divided_at)
        self._commit(EMPTY)
        return self.files.divided_at

    def _is_switched_over(self) -> bool:
        """Whether a blank record ends the last file of the commit log."""
        start = self.files.starts[-1]
        _, ended_by = scan(self.files.mapped(start).buffer, start, 0, self.file_size, False, _ignore)
        return ended_by == BLANK

    # what is committed

    @property
    def synced_index(self) -> int:
        """Index of the last entry that is on the medium with all before it; -1: none."""
        return self._synced_next - 1 if self._synced_next > self._first else EMPTY

    @property
    def committed(self) -> int:
        """Offset behind the last committed entry: readers of messages see nothing beyond."""
        return self._visible

    def commit_to(self, index: int) -> None:
        """Makes the entries up to `index`, which a majority has, visible. Never goes back."""
        if index > self.committed_index:
            self._commit(min(index, self._next - 1))

    def _commit(self, index: int) -> None:
        self.committed_index = index if index >= self._first else EMPTY
        self._visible = self.end_of(index) if index >= self._first else self._begin_offset()

    def checkpoint(self) -> EntryCheckpoint:
        """Returns what `state_files.save_checkpoint` may note now."""
        return EntryCheckpoint(min(self.committed_index, self.synced_index), self.synced_index)

    def index_at(self, offset: int) -> int:
        """Returns the index of the first entry, of those that are not committed, that ends behind an offset.

        The last index, when the log ends before.
        """
        low, high = max(self._first, self.committed_index + 1), self._next - 1
        if low < high and offset >= self.end_of(high - 1):  # mostly that which was just appended
            return high
        while low < high:
            middle = (low + high) // 2
            if self.end_of(middle) > offset:
                high = middle
            else:
                low = middle + 1
        return high

    # appending

    def append(self, bodies: Sequence[bytes], term: int) -> list[int]:
        """Appends records as a leader, in one write for each file; returns the offsets of their entries.

        Each record gets its log offset, 48 bytes behind. Raises OSError when a file cannot be made; nothing
        was appended then.
        """
        assert term >= self._term, "terms never go back"
        assert all(len(body) >= MIN_BODY_SIZE for body in bodies), "a body is a record"
        sizes = [HEAD_SIZE + len(body) for body in bodies]
        assert max(sizes, default=0) <= self.largest_record, "an entry fits into a file"
        self.reserve(sizes, together=False)
        self.index.reserve(self._next, len(bodies))
        positions: list[int] = []
        done = 0
        while done < len(bodies):
            if self.limit < 0 or self.position + sizes[done] > self.limit:
                self.roll()
            until, end = done, self.position
            while until < len(bodies) and end + sizes[until] <= self.limit:
                end += sizes[until]
                until += 1
            chunk = bytearray()
            placed = pack_entries(chunk, bodies[done:until], self._next, term, self.end)
            units = bytearray().join(
                UNIT.pack(MAGIC, pos, sizes[done + number], self._next + number, term)
                for number, pos in enumerate(placed)
            )
            self._write(chunk, units, until - done)
            positions += placed
            done = until
        self._term = term
        return positions

    def append_entries(self, entries: Sequence[DLedgerEntry]) -> None:
        """Appends entries of the leader as they are. Raises MisplacedEntry, or OSError as `append`.

        They have to continue the log: index, term, and the offset where they lie in the leader's files too.
        """
        end = LogEnd(self._next, self._term, self.end, begins_file=self.limit < 0)
        for start in starts_of(entries, end, self.file_size):
            self.files.create_ahead(start)
        self.index.reserve(self._next, len(entries))
        chunk, units, count = bytearray(), bytearray(), 0
        for entry in entries:
            if self.limit < 0 or entry.pos != self.end + len(chunk):
                self._write(chunk, units, count)
                chunk, units, count = bytearray(), bytearray(), 0
                self.roll()
            chunk += pack_entry(entry)
            units += UNIT.pack(MAGIC, entry.pos, entry.size, entry.index, entry.term)
            count += 1
        self._write(chunk, units, count)
        if entries:
            self._term = entries[-1].term

    def _write(self, chunk: bytearray, units: bytearray, count: int) -> None:
        """Writes entries that fit into the current file, and their units."""
        if not count:  # there may be no current file: a log that was reset has none before its next entry
            return
        end = self.position + len(chunk)
        if end > self.touched:
            self.touch(end)
        self.buffer[self.position : end] = chunk
        self.index.write(self._next, units)
        self.position = end
        self._next += count

    def _mark_end(self, at: int) -> None:
        END_MARK.pack_into(self.buffer, at, END_MAGIC, self.file_size - at)

    # making durable

    def unsynced(self, until: int) -> list[Syncable]:
        """Returns what to sync to have all entries below the offset `until`, with units, on the medium."""
        if until >= self.end:
            self._sync_asked = self._next
        return [*super().unsynced(until), *self.index.unsynced(self._synced_next, self._next)]

    def mark_synced(self, until: int) -> None:
        super().mark_synced(until)
        self._synced_next = max(self._synced_next, min(self._sync_asked, self._next))
        self.index.mark_synced(self._synced_next)

    def dirty_again(self, until: int) -> None:
        super().dirty_again(until)
        self.index.dirty_again(self._synced_next, self._next)

    def sync(self) -> None:
        """Brings all entries to the medium. Blocks; raises OSError, and the next call writes them again."""
        end = self.end
        try:
            for part in self.unsynced(end):
                part.sync()
        except OSError:
            self.dirty_again(end)
            raise
        self.mark_synced(end)

    # shortening

    def truncate_after(self, index: int) -> list[str]:
        """Removes the entries behind `index`, durably; returns the files that keep what was cut. Blocks.

        A committed entry is never removed. No sync is under way. After a crash on the way the log ends
        somewhere between.
        """
        if index == self._next - 1:
            return []
        self.state_files.save_checkpoint(self.checkpoint_of_cut(index))
        kept, to_sync = self.cut_after(index, is_kept=False)
        for part in to_sync:
            part.sync()
        return kept

    def checkpoint_of_cut(self, index: int) -> EntryCheckpoint:
        """Returns what must be noted first: after a crash on the way, what is left is no damage."""
        return EntryCheckpoint(min(self.committed_index, index), min(self.synced_index, index))

    def tail_after(self, index: int) -> FilePart | None:
        """Returns what a cut behind `index` keeps of the file there: to be copied before, by a worker."""
        return self.tail_behind(self.end_of(index) if index >= self._first else self._begin_offset())

    def cut_after(self, index: int, is_kept: bool) -> tuple[list[str], list[Syncable]]:
        """Removes the entries behind `index` in memory; returns the files that keep some, and what to sync.

        Nothing may be written behind `index` before that is synced. `is_kept`: `tail_after` was copied.
        """
        assert self.committed_index <= index < self._next, f"entry {index} is not the last to be kept"
        assert index >= self._first - 1, "the log begins later"
        synced, synced_next = self.synced, self._synced_next
        end = self.end_of(index) if index >= self._first else self._begin_offset()
        term = self.term_of(index)
        self.files.drop_ahead()  # a file behind the new end would be one behind a gap
        to_sync: list[Syncable] = []
        kept = self.cut(end, self.set_aside_dir, to_sync, is_kept)
        to_sync += self.index.cut(index + 1, self._next)
        self._next, self._term = index + 1, term
        self.start_at(end)
        # Files before that of `end` may hold bytes that were never synced.
        self.synced, self._synced_next = min(synced, end), min(synced_next, index + 1)
        self._sync_asked = self._synced_next
        self.files.pinned_from = self.synced - self.synced % self.file_size
        return kept, to_sync

    def reset(self, index: int, pos: int) -> list[str]:
        """Sets the whole log aside and lets it begin with entry `index` at offset `pos`. Blocks.

        For a follower that has nothing in common with its leader. After a crash on the way, or before the
        next append, the log is a shorter one or empty. Returns the files that keep what was there.
        """
        assert self.committed_index == EMPTY or self.committed_index < index, "a committed entry stays"
        start = pos - pos % self.file_size
        self.state_files.save_checkpoint(EntryCheckpoint())
        self.files.drop_ahead()
        kept = []
        while self.files.starts and not self._leads_to(start):
            kept.append(self.files.set_aside(self.files.starts[-1], self.set_aside_dir))
        self.index.clear()
        self.files.divided_at = start
        if start != pos:
            mapped = self.files.append_file(start)
            END_MARK.pack_into(mapped.buffer, 0, END_MAGIC, pos - start)
            mapped.sync()
            self._disk.sync_dir(self.files.directory)
            self.files.names_synced(pos)
        self._first = self._next = self._synced_next = self._sync_asked = index
        self._term = -1
        self.start_at(pos)
        self._commit(EMPTY)
        self.on_reset()
        return kept

    def _leads_to(self, start: int) -> bool:
        """Whether the files that are left are those of the commit log that ends where the log shall begin."""
        last = self.files.starts[-1]
        return last < self.files.divided_at and last + self.file_size == start

    def file_list(self) -> list[LogFile]:
        """Returns the files that may be deleted but for the last: no entry in them is uncommitted."""
        return [file for file in super().file_list() if file.start <= self.committed]

    def delete_first(self) -> None:
        """Removes the oldest data file; the log begins with the first entry of the next one."""
        start, follower = self.files.starts[0], self.files.starts[1]
        assert follower <= self.committed, "a file with an entry that is not committed stays"
        # Units go one file later than their entries: those must be gone for good first.
        self.index.remove_before(self._first)
        super().delete_first()
        if start >= self.files.divided_at:
            self.files.divided_at = follower
            self._first = self._first_index()

    def _first_index(self) -> int:
        own = self.files.divided_at
        return read_entry(self.files.mapped(own).buffer, 0, self.file_size).index

    def _begin_offset(self) -> int:
        """Returns where the first entry lies, or goes in an empty log."""
        return self.place_of(self._first) if self._next > self._first else self.end

    def _has_record(self, start: int, begin: int, end: int) -> bool:
        buffer = self.files.mapped(start).buffer
        return measure(buffer, begin, self.file_size, True) > 0 or super()._has_record(start, begin, end)

    def close(self) -> None:
        self.index.close()
        super().close()


def _ignore(found: Found) -> None:
    """Takes a record of which only the size matters."""
