"""Checks one batch consume queue against the records of the log, given in log order. Reads only.

Entries are found by number, not by offset: the first record is searched for, the others follow it.
"""

from bisect import bisect_left

from turbopump.protocol import inner
from turbopump.runtime.disk import Disk
from turbopump.store.batch_queue import BATCH, BATCH_UNIT
from turbopump.store.findings import Findings
from turbopump.store.pieces import Fields, part_of
from turbopump.store.segment import NAME_DIGITS, file_name

CHUNK = BATCH_UNIT * 400
NOTHING = (0,) * 8
COMPARED = 6  # fields of an entry; the others are for compaction


class BatchCheck:
    """Compares the entries of one batch consume queue with the records of the log, given in log order.

    `next`: the queue offset that the next record must have; None before the first record.
    """

    def __init__(self, name: str, directory: str, disk: Disk, findings: Findings) -> None:
        self.name = name
        self.next: int | None = None
        self._directory = directory
        self._disk = disk
        self._findings = findings
        files = [
            entry
            for entry in disk.entries(directory)
            if len(entry.name) == NAME_DIGITS and entry.name.isdecimal() and entry.size
        ]
        self.exists = bool(files)
        self._file_size = files[0].size if files else BATCH_UNIT
        self._first = int(files[0].name) // BATCH_UNIT if files else 0
        self._after = (int(files[-1].name) + files[-1].size) // BATCH_UNIT if files else 0
        self._number = -1  # of the entry that the next record must have
        self._begin = 0  # number of the first record's entry
        self._missing = 0
        self._chunk_at, self._chunk = 0, b""

    def record(self, fields: Fields, physical: int, size: int, tags_code: int) -> None:
        """Compares the queue's entry for the next record with the record; reports differences as findings."""
        offset, messages = fields.queue_offset, inner.count(fields.properties)
        self._check_order(offset, physical)
        if self._number < 0:
            self._number = self._begin = self._find(physical)
        self.next = offset + messages
        wanted = (physical, size, tags_code, fields.store_timestamp, offset, messages)
        found = self._entry(self._number)
        if found == NOTHING:
            self._missing += 1
            return
        self._number += 1
        if found[:COMPARED] != wanted:
            self._findings.add_problem(
                "wrong entry", f"{self.name}[{offset}] is {found[:COMPARED]}, not {wanted}"
            )

    def finish(self, log_begin: int, log_end: int, is_clean: bool, is_deleted: bool) -> None:
        """Reports missing and surplus entries as findings; to be called after the last record."""
        if self._missing:
            text = f"{self.name} lacks its last {self._missing} entries"
            if is_deleted:
                self._findings.add_note("records of deleted topics", text, self._missing)
            elif is_clean:
                self._findings.add_problem("missing entry", text, self._missing)
            else:
                self._findings.add_note("entries not written yet", text, self._missing)
        for number in range(self._first, self._begin if self._number >= 0 else self._after):
            found = self._entry(number)
            if found == NOTHING:
                break
            if found[0] >= log_begin:
                self._extra(number, found[0], log_end, is_clean)
        number = max(self._number, 0)
        while self._number >= 0 and number < self._after and (found := self._entry(number)) != NOTHING:
            self._extra(number, found[0], log_end, is_clean)
            number += 1

    def forget(self) -> None:
        """Drops the cached part of the queue file to free memory; it is read again when needed."""
        self._chunk = b""

    def _check_order(self, offset: int, physical: int) -> None:
        if self.next is None or offset == self.next:
            return
        if offset == 0:  # recreated: entries of the old queue are gone
            self._number, self._missing = -1, 0
            self._findings.add_note("queue was recreated", f"{self.name} at log offset {physical}")
        else:
            what = "offset given twice" if offset < self.next else "offsets skipped"
            text = f"{self.name}: the record at {physical} has {offset}, {self.next} was next"
            self._findings.add_problem(what, text)

    def _extra(self, number: int, physical: int, log_end: int, is_clean: bool) -> None:
        text = f"entry {number} of {self.name} points to {physical}"
        if physical >= log_end and not is_clean:
            self._findings.add_note("entry behind the end of the log", text)
        else:
            self._findings.add_problem("extra entry", text)

    def _find(self, physical: int) -> int:
        """Returns the number of the first entry that is blank or points to log offset `physical` or later."""

        def is_behind(number: int) -> bool:
            found = self._entry(number)
            return found == NOTHING or found[0] >= physical

        return bisect_left(range(self._after), True, self._first, self._after, key=is_behind)

    def _entry(self, number: int) -> tuple[int, ...]:
        at = number * BATCH_UNIT - self._chunk_at
        found = self._chunk[at : at + BATCH_UNIT] if at >= 0 else b""
        if len(found) < BATCH_UNIT or not any(found):
            self._load(number * BATCH_UNIT)  # perhaps it was written since the chunk was read
            found = self._chunk[:BATCH_UNIT].ljust(BATCH_UNIT, b"\0")
        return BATCH.unpack(found)

    def _load(self, position: int) -> None:
        start = position - position % self._file_size
        at = position - start
        path = f"{self._directory}/{file_name(start)}"
        self._chunk_at = position
        self._chunk = part_of(self._disk, path, at, min(CHUNK, self._file_size - at))
