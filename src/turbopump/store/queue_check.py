"""Checks one consume queue against the records of the log, given in log order. Reads only."""

from turbopump.runtime.disk import Disk
from turbopump.store.consume_queue import BLANK_SIZE, ENTRY, UNIT
from turbopump.store.findings import Findings
from turbopump.store.pieces import part_of
from turbopump.store.queue_ext import Extension, is_address
from turbopump.store.segment import NAME_DIGITS, file_name

CHUNK = UNIT * 800
NO_ENTRY = bytes(UNIT)


class QueueCheck:
    """Compares the entries of one consume queue with the records of the log, given in log order.

    `next`: the queue offset that the next record must have; None before the first record.
    """

    def __init__(
        self, name: str, directory: str, ext_directory: str | None, disk: Disk, findings: Findings
    ) -> None:
        self.name = name
        self.next: int | None = None
        self._directory = directory
        self._disk = disk
        self._findings = findings
        self._found = Findings()  # since the queue was last recreated
        files = [
            entry
            for entry in disk.entries(directory)
            if len(entry.name) == NAME_DIGITS and entry.name.isdecimal() and entry.size
        ]
        self.exists = bool(files)
        self._file_size = files[0].size if files else UNIT
        self._first_file = int(files[0].name) // UNIT if files else 0
        self._after_files = (int(files[-1].name) + files[-1].size) // UNIT if files else 0
        self._first = 0
        self._chunk_at, self._chunk = 0, b""
        self._missing_from: int | None = None
        self._ext = _extension(ext_directory, disk) if ext_directory is not None else None

    def check(self, queue_offset: int, physical: int, size: int, tags_code: int | None) -> None:
        """Compares the queue's entry for the next record with the record; reports differences as findings.

        `tags_code` None: it depends on the broker's configuration and is not compared.
        """
        self._check_order(queue_offset, physical)
        self.next = queue_offset + 1
        found = self._entry(queue_offset)
        if found == ENTRY.pack(physical, size, tags_code or 0):
            if self._missing_from is not None:
                self._end_gap(queue_offset)
            return
        if found == NO_ENTRY:
            if self._missing_from is None:
                self._missing_from = queue_offset
            return
        self._end_gap(queue_offset)
        entry: tuple[int, int, int] = ENTRY.unpack(found)
        if entry[:2] != (physical, size) or not self._is_tag(entry[2], tags_code):
            wanted = (physical, size, tags_code)
            self._found.add_problem("wrong entry", f"{self.name}[{queue_offset}] is {entry}, not {wanted}")

    def finish(self, log_begin: int, log_end: int, is_clean: bool, is_deleted: bool) -> None:
        """Reports missing and surplus entries as findings; to be called after the last record."""
        self._findings.merge(self._found)
        if self._missing_from is not None and self.next is not None:
            count = self.next - self._missing_from
            text = f"{self.name} lacks its last {count} entries, from {self._missing_from} on"
            if is_deleted:
                self._findings.add_note("records of deleted topics", f"{self.name}: {count} records", count)
            elif is_clean:
                self._findings.add_problem("missing entry", text, count)
            else:
                self._findings.add_note("entries not written yet", text, count)
        if self.exists:
            self._check_beginning(log_begin, log_end, is_clean)
            self._check_end(log_end, is_clean)

    def forget(self) -> None:
        """Drops the cached part of the queue file to free memory; it is read again when needed."""
        self._chunk = b""

    def _check_order(self, queue_offset: int, physical: int) -> None:
        if self.next is None:
            self._first = queue_offset
        elif queue_offset == 0 and self.next > 0:  # recreated: entries of the old queue are gone
            self._first, self._missing_from = 0, None
            self._found = Findings()
            self._findings.add_note("queue was recreated", f"{self.name} at log offset {physical}")
        elif queue_offset != self.next:
            what = "offset given twice" if queue_offset < self.next else "offsets skipped"
            text = f"{self.name}: the record at {physical} has {queue_offset}, {self.next} was next"
            self._found.add_problem(what, text)

    def _end_gap(self, queue_offset: int) -> None:
        if self._missing_from is not None:
            count = queue_offset - self._missing_from
            text = f"{self.name} lacks {count} entries from {self._missing_from} on"
            self._found.add_problem("missing entry", text, count)
            self._missing_from = None

    def _is_tag(self, stored: int, wanted: int | None) -> bool:
        if wanted is None:
            return True
        if is_address(stored) and self._ext is not None:
            return self._ext.tags_code(stored) in (wanted, None)
        return stored == wanted

    def _check_beginning(self, log_begin: int, log_end: int, is_clean: bool) -> None:
        """Reports entries before the first record's that do not point to deleted records."""
        end = self._first if self.next is not None else self._after_files
        # Bounded by the files: the offset of a damaged record may be huge.
        for queue_offset in range(self._first_file, min(end, self._after_files)):
            found = self._entry(queue_offset)
            if found == NO_ENTRY:
                if self.next is None:
                    return
                continue
            physical, size, _ = ENTRY.unpack(found)
            if physical >= log_begin and size != BLANK_SIZE:
                self._extra(queue_offset, physical, log_end, is_clean)

    def _check_end(self, log_end: int, is_clean: bool) -> None:
        if self.next is None:
            return
        queue_offset = self.next
        while queue_offset < self._after_files and (found := self._entry(queue_offset)) != NO_ENTRY:
            self._extra(queue_offset, ENTRY.unpack(found)[0], log_end, is_clean)
            queue_offset += 1

    def _extra(self, queue_offset: int, physical: int, log_end: int, is_clean: bool) -> None:
        text = f"{self.name}[{queue_offset}] points to {physical}"
        if physical >= log_end and not is_clean:
            self._findings.add_note("entry behind the end of the log", text)
        else:
            self._findings.add_problem("extra entry", text)

    def _entry(self, queue_offset: int) -> bytes:
        at = queue_offset * UNIT - self._chunk_at
        found = self._chunk[at : at + UNIT] if at >= 0 else b""
        if len(found) == UNIT and found != NO_ENTRY:
            return found
        self._load(queue_offset)  # perhaps it was written since the chunk was read
        return self._chunk[:UNIT].ljust(UNIT, b"\0")  # a file may be cut inside an entry

    def _load(self, queue_offset: int) -> None:
        position = queue_offset * UNIT
        start = position - position % self._file_size
        at = position - start
        path = f"{self._directory}/{file_name(start)}"
        self._chunk_at = position
        self._chunk = part_of(self._disk, path, at, min(CHUNK, self._file_size - at))


def _extension(directory: str, disk: Disk) -> Extension | None:
    size = max((entry.size for entry in disk.entries(directory)), default=0)
    return Extension(directory, size, disk) if size else None
