"""How far a slave's copy is: what it lacks of the log that the master had, said aloud and kept in a file.

A slave whose log begins behind its master's, because an Apache master sends only its last file, or that has
not copied everything yet, is incomplete: it must not become the master. Pure but for the two functions that
it is given.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from turbopump.replication.comparison import Extent

log = logging.getLogger(__name__)

FILE = "replica.json"
LINE_S = 10.0
NOTHING = -1


class CopyState(msgspec.Struct):
    """Contents of replica.json: which part of its master's log this store has, and what raises doubt."""

    begins: int = NOTHING
    """Log offset from which on this store has the log of its master; -1: nothing was copied yet."""
    wanted_begin: int = 0
    """Log offset at which the master's log began."""
    wanted_end: int = 0
    """Log offset at which the master's log ended at the last comparison."""
    is_compared: bool = False
    """Whether a comparison with a master has been made at all."""
    heard_ms: int = 0
    """When something came from the master last, before the connection ended; 0: that is not known."""
    followed: bool = False
    """Whether this log had everything when the connection ended."""
    promoted_at: int = NOTHING
    """Log offset at which this store became that of a master; -1: it is a slave's."""
    doubt: str = ""
    """Why this log may be no copy any more, whatever it has: until the next comparison that finds it is."""
    differs: bool = False
    """Whether this log holds other records than its master's: consumers may know offsets of those."""
    crashes: list[tuple[int, int]] = []
    """Where the masters of this log have lost messages, and when, as far as this copy may reach behind it."""

    def missing(self, end: int) -> str:
        """Returns what a copy that ends at `end` lacks, in words; empty when it is complete."""
        if self.doubt:
            return self.doubt
        if self.begins < 0 and self.is_compared and self.wanted_begin == self.wanted_end:
            return ""  # the master's log is empty, too
        if self.begins < 0:
            return "it has copied nothing yet"
        if self.begins > self.wanted_begin:
            return f"it lacks the first {self.begins - self.wanted_begin} bytes of its master's log"
        if end < self.wanted_end:
            return f"it lacks the last {self.wanted_end - end} bytes of its master's log"
        return ""


@dataclass(slots=True)
class _Run:
    start: int
    wanted: int
    began_s: float
    last_line_s: float


class CopyProgress:
    """The state of this store as a copy of its master's log, kept in a file; logs how fast copying goes."""

    def __init__(self, save: Callable[[bytes], None], monotonic: Callable[[], float]) -> None:
        self.state = CopyState()
        self.is_kept = False
        """Whether there is a file: this store is, or was once, that of a slave."""
        self._save = save
        self._monotonic = monotonic
        self._run = _Run(0, 0, 0.0, 0.0)

    def load(self, data: bytes) -> int:
        """Replaces the state by the bytes of replica.json. Returns 1; raises on damage."""
        self.state = msgspec.json.decode(data, type=CopyState)
        self.is_kept = True
        return 1

    def begin(self, begins: int | None, master: Extent, end: int) -> None:
        """Saves that copying begins or goes on, after a comparison, towards the end that the master has now.

        `begins`: where this log begins, which is a copy so far; None: it is empty, and `begun_at` follows.
        """
        if begins is None:
            begins = NOTHING
        elif self.state.begins >= 0:  # this store may have deleted expired files since
            begins = min(begins, self.state.begins)
        self.state = CopyState(begins, master.begin, master.end, is_compared=True, crashes=self.state.crashes)
        now = self._monotonic()
        self._run = _Run(end, master.end, now, now)
        self._write()

    def begun_at(self, offset: int) -> None:
        """Notes where the copy of an empty slave begins, which the first part shows."""
        self.state.begins = offset
        self._run.start = max(self._run.start, offset)
        self._write()

    def master_begins(self, offset: int) -> None:
        """Notes that the master has deleted its log below `offset`: nothing of that is missing here."""
        if offset > self.state.wanted_begin:
            self.state.wanted_begin = offset
            self._write()

    def deleted_early(self, below: int) -> None:
        """Notes that this store deletes its log below an offset, though the master may still have it."""
        if 0 <= self.state.begins < below:
            self.state.begins = below
            self._write()

    def doubt(self, why: str, *, differs: bool = False) -> None:
        """Notes why this log may be no copy any more: a promotion has to wait for the next comparison.

        `differs`: it is none, and its master may have given consumers offsets of other records.
        """
        if self.state.doubt != why or differs > self.state.differs:
            self.state.doubt = why
            self.state.differs |= differs
            self._write()

    def learn_crashes(self, crashes: Sequence[tuple[int, int]]) -> None:
        """Saves where the log has lost messages, before the part of it is copied that was written since."""
        if list(crashes) != self.state.crashes:
            self.state.crashes = list(crashes)
            self._write()

    def promoted(self, end: int) -> None:
        """Notes that this store is that of a master now, whose log ends at `end`. Raises OSError."""
        self.state.promoted_at = end
        self._save(msgspec.json.encode(self.state))

    def ended(self, heard_ms: int, followed: bool) -> None:
        """Notes that the connection to the master has ended, and whether everything was here by then."""
        self.state.heard_ms, self.state.followed = heard_ms, followed
        self._write()

    def demoted(self) -> None:
        """Notes that this store is that of a slave, before anything is copied. Raises OSError.

        What it knew from an earlier time as a slave is about another master, which has written since.
        """
        self.state = CopyState()
        self._save(msgspec.json.encode(self.state))

    def _write(self) -> None:
        """Saves the state. On a full disk copying goes on, and the next comparison saves it."""
        try:
            self._save(msgspec.json.encode(self.state))
        except OSError as error:
            log.warning("Cannot write %s: %s", FILE, error)

    def has_caught_up(self, end: int) -> bool:
        """Whether everything is here that the master had when copying began."""
        return end >= self._run.wanted

    def look(self, end: int) -> None:
        """Logs how far the copy is, unless it did so in the last ten seconds."""
        run, now = self._run, self._monotonic()
        if now - run.last_line_s < LINE_S:
            return
        run.last_line_s = now
        total, done = max(run.wanted - run.start, 1), end - run.start
        log.info(
            "Copied %d of %d MiB of the master's log (%d %%), %.0f MB/s",
            *(done >> 20, total >> 20, 100 * done // total, done / (now - run.began_s) / 1e6),
        )
