"""Checks the files of timers against the log: `config/timercheck`, `timerlog/` and `timerwheel`. Reads only.

In: the timed messages of the log, in log order. Out: findings. Units of the timer log are in the order of the
log too, so both are read side by side. What a crash may leave, and every start rebuilds, is no problem: the
wheel of a store that was not stopped in order, and units behind the end that timercheck names.
"""

from collections.abc import Iterator

from turbopump.protocol import properties
from turbopump.runtime.disk import Disk, MappedFile
from turbopump.store import timer_check, timer_wheel
from turbopump.store.delays import DELIVER_AT
from turbopump.store.dispatch import find
from turbopump.store.findings import Findings
from turbopump.store.segment import file_name
from turbopump.store.timer_check import TimerCheck
from turbopump.store.timer_log import UNIT_SIZE, Unit, files_of, walk_units
from turbopump.store.timer_wheel import CHUNK, NO_SLOTS, SLOT

PRECISION_MS = 1000
MAX_DIGITS = 18

_OUT_MS, _EXACT = properties.TIMER_OUT_MS.encode() + b"\x01", DELIVER_AT.encode() + b"\x01"


class WheelCheck:
    """Compares units and slots of timers with the timed messages of the log."""

    def __init__(
        self, directory: str, disk: Disk, findings: Findings, log_begin: int, is_clean: bool
    ) -> None:
        self._directory = directory
        self._disk = disk
        self._findings = findings
        self._log_begin = log_begin
        self._is_clean = is_clean
        self._maps: dict[int, MappedFile] = {}
        self._check = self._read_check()
        self._end = 0  # of the units that were read
        self._slots = timer_wheel.SLOTS
        self._last: dict[int, tuple[int, int]] = {}  # by place in the wheel: its time, and the last unit then
        self._units = self._read_units()
        self._next = next(self._units, None)

    def _read_check(self) -> TimerCheck | None:
        path = f"{self._directory}/config/timercheck"
        if not self._disk.exists(path):
            return None
        try:
            return timer_check.decode(self._disk.read(path))
        except ValueError as error:
            self._findings.add_problem("timercheck", f"{path}: {error}")
            return None

    def _read_units(self) -> Iterator[tuple[int, Unit]]:
        directory = f"{self._directory}/timerlog"
        files = files_of(directory, self._disk)
        for start in files.strays:
            text = f"{directory}/{file_name(start)} does not belong to the others: its size or its name"
            self._findings.add_problem("timer log", text)
        if not files.starts:
            return iter(())
        self._end = files.starts[0]

        def read(start: int, at: int, length: int) -> bytes:
            if start not in self._maps:
                path = f"{directory}/{file_name(start)}"
                self._maps[start] = self._disk.open_mapped(path, writable=False)
            return bytes(self._maps[start].buffer[at : at + length])

        return walk_units(files.starts[0], files.size, files.starts, read)

    def check(self, offset: int, size: int, packed: bytes) -> None:
        """Compares the unit of a timed message with the message; reports differences as findings."""
        while self._next is not None and self._next[1].offset < offset:
            self._take(*self._next, None, 0)
        if self._next is not None and self._next[1].offset == offset:
            self._take(*self._next, packed, size)

    def _take(self, at: int, unit: Unit, packed: bytes | None, size: int) -> None:
        """Compares a unit with its message's properties (None: no such message) and reads the next unit."""
        self._next = next(self._units, None)
        self._end = at + UNIT_SIZE
        slot = unit.slot_ms // self._precision_ms
        self._last[slot % self._slots] = slot, at
        if packed is None:
            if unit.offset >= self._log_begin and (self._is_clean or at < self._counted_end):
                text = f"the unit at {at} names {unit.offset} of the log, where no timed message is"
                self._findings.add_problem("timer log", text)
        elif size != unit.size:
            text = f"the unit at {at} names a message of {unit.size} bytes, which has {size}"
            self._findings.add_problem("timer log", text)
        elif not unit.rolls and not unit.recalls and self._is_early(unit, packed):
            text = f"the unit at {at} is due before its message, the one at {unit.offset} of the log"
            self._findings.add_problem("timer log", text)

    def _is_early(self, unit: Unit, packed: bytes) -> bool:
        exact, out = _number(find(packed, _EXACT)), _number(find(packed, _OUT_MS))
        return 0 < unit.exact_ms < exact or unit.slot_ms + self._precision_ms < (exact or out)

    @property
    def _precision_ms(self) -> int:
        note = self._check.note if self._check is not None else None
        return note.precision_ms if note is not None else PRECISION_MS

    def finish(self) -> None:
        """Checks the remaining units and the wheel; to be called after the last record."""
        while self._next is not None:
            self._take(*self._next, None, 0)
        for mapped in self._maps.values():
            mapped.close()
        self._maps.clear()
        if self._end < self._counted_end:
            text = (
                f"no whole unit at {self._end} of timerlog/, which ends at {self._counted_end} by timercheck"
            )
            self._findings.add_problem("timer log", text)
        elif self._is_clean:
            self._check_wheel()

    def _check_wheel(self) -> None:
        path = f"{self._directory}/timerwheel"
        if not self._disk.exists(path):
            return
        try:
            wheel = self._disk.open_mapped(path, writable=False)
        except ValueError:  # an empty file cannot be mapped
            self._findings.add_problem("timer wheel", f"{path} is empty")
            return
        try:
            if wheel.size != self._slots * SLOT.size:
                text = f"{path} has {wheel.size} bytes, not {self._slots * SLOT.size}"
                self._findings.add_problem("timer wheel", text)
                return
            for begin in range(0, wheel.size, CHUNK):
                chunk = bytes(wheel.buffer[begin : begin + CHUNK])
                if chunk != NO_SLOTS[: len(chunk)]:
                    self._check_slots(begin // SLOT.size, chunk)
        finally:
            wheel.close()
        for _, (slot, _) in sorted(self._last.items()):
            if slot * self._precision_ms >= self._read_ms:
                self._findings.add_problem(
                    "timer wheel", f"no slot for {slot * self._precision_ms}, though units wait"
                )

    @property
    def _counted_end(self) -> int:
        """Position in the timer log before which units were written, by the file `timercheck`; else 0."""
        return self._check.log_end if self._check is not None else 0

    @property
    def _read_ms(self) -> int:
        return self._check.read_ms if self._check is not None else 0

    def _check_slots(self, first: int, chunk: bytes) -> None:
        for index, (slot, _, last, _, _) in enumerate(SLOT.iter_unpack(chunk), first):
            known = -1
            if index in self._last and self._last[index][0] == slot:
                known = self._last.pop(index)[1]
            if slot * self._precision_ms >= max(self._read_ms, 1) and last != known:
                text = (
                    f"the slot for {slot * self._precision_ms} names the unit at {last}, not that at {known}"
                )
                self._findings.add_problem("timer wheel", text)


def _number(text: bytes) -> int:
    return int(text) if text.isdigit() and len(text) <= MAX_DIGITS else 0
