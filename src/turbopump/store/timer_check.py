"""`config/timercheck`: the time up to which timers have fired, and how much of the log is in the wheel.

4096 bytes, of which Apache uses the first 56. After them comes a note of ours, which is valid only with the
numbers that we wrote before it: other numbers show that Apache's broker has run since.

    0     i64 time before which all is done | i64 end of the timer log | i64 next of the timer queue | i64 the
          same, of the master | i64 0, i64 time of writing, i64 counter: the version
    1024  8 letters | i64 time | i64 end | i64 next, again | i64 copies before it in the commit log are of
          timers before that time | i64 timers before it in the commit log are in the wheel | i64 length of a
          slot (ms) | u32 checksum
"""

import struct
from dataclasses import dataclass
from zlib import crc32

SIZE = 4096
PUBLIC = struct.Struct(">7q")
NOTE = struct.Struct(">8s6qI")
NOTE_AT = 1024
LETTERS = b"TURBOTMR"

END = 1 << 62  # of all numbers in it: what is larger is damage


@dataclass(frozen=True, slots=True)
class TimerCheckNote:
    """The part of `timercheck` that only Turbopump writes: commit log offsets and length of a slot."""

    copies_from: int
    """Copies that lie before this in the commit log were made of timers due before `read_ms`."""
    timers_from: int
    """Timers that lie before this in the commit log are in the wheel."""
    precision_ms: int
    """Length of the slots, of which `read_ms` is one."""


@dataclass(frozen=True, slots=True)
class TimerCheck:
    """Contents of `config/timercheck`: time up to which timers fired, and what is in the wheel."""

    read_ms: int
    log_end: int
    queue_offset: int
    written_ms: int = 0
    counter: int = 0
    note: TimerCheckNote | None = None

    def encode(self) -> bytes:
        numbers = (self.read_ms, self.log_end, self.queue_offset)
        public = PUBLIC.pack(*numbers, self.queue_offset, 0, self.written_ms, self.counter)
        if self.note is None:
            return public.ljust(SIZE, b"\0")
        ours = (self.note.copies_from, self.note.timers_from, self.note.precision_ms)
        note = NOTE.pack(LETTERS, *numbers, *ours, 0)[:-4]
        return (public.ljust(NOTE_AT, b"\0") + note + struct.pack(">I", crc32(note))).ljust(SIZE, b"\0")

    @property
    def public(self) -> bytes:
        """First 56 bytes of the file, without the note: the part that Apache's slaves ask for."""
        return self.encode()[: PUBLIC.size]


def decode(data: bytes) -> TimerCheck:
    """Decodes the bytes of `timercheck`. Raises ValueError when the contents are impossible."""
    if len(data) < PUBLIC.size:
        raise ValueError(f"timercheck must have at least {PUBLIC.size} bytes, got {len(data)}")
    read_ms, log_end, queue_offset, _, _, written_ms, counter = PUBLIC.unpack_from(data)
    if not all(0 <= number < END for number in (read_ms, log_end, queue_offset)):
        raise ValueError("times and offsets in timercheck must be numbers from 0 to 2^62")
    if not 0 <= counter < END:
        counter = 0  # it only has to differ each time
    note = _note(data, (read_ms, log_end, queue_offset))
    return TimerCheck(read_ms, log_end, queue_offset, written_ms, counter, note)


def _note(data: bytes, numbers: tuple[int, int, int]) -> TimerCheckNote | None:
    packed = data[NOTE_AT : NOTE_AT + NOTE.size]
    if len(packed) < NOTE.size:
        return None
    letters, *rest, checksum = NOTE.unpack(packed)
    if letters != LETTERS or checksum != crc32(packed[:-4]) or tuple(rest[:3]) != numbers:
        return None
    return TimerCheckNote(*rest[3:]) if rest[5] > 0 else None
