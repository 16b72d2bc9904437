"""One connection of the HA port: takes the reports of a slave, sends it the log and tables that it lacks.

In: bytes of a peer. Out: parts of the log, tables, and what the peer says, for its `Master`. What a peer must
show before it is a slave, and whether it is a copy, is asked of others.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from turbopump.auth.peer_proof import SignedGreeting
from turbopump.protocol import ha
from turbopump.protocol.errors import BrokenFrame
from turbopump.remoting.connection import peer_address
from turbopump.runtime.clock import Clock

if TYPE_CHECKING:
    from turbopump.replication.master import Master

log = logging.getLogger(__name__)

OWN_PART = 256 << 10  # bytes in one part to a slave of ours
BUFFER_BYTES = 1 << 20  # that a connection holds unsent before the pump waits for it
COMPARE_AGAIN_S = 10.0  # an Apache slave that could not be compared registers every 30 s
PARTS_PER_TURN = 16  # sent to one slave before the loop serves others


class SentLog(Protocol):
    """Interface of the log that a master sends: its extent and file size, and its bytes."""

    @property
    def min_offset(self) -> int: ...
    @property
    def end(self) -> int:
        """Offset behind the last record that slaves may have."""

    @property
    def file_size(self) -> int: ...
    def missing(self, begin: int, size: int) -> list[tuple[str, int, int]]:
        """Returns the places (path, position, size) to `fetch` first, so that `slice` does not block."""

    async def fetch(self, places: list[tuple[str, int, int]]) -> None: ...
    def slice(self, begin: int, end: int) -> bytes:
        """Returns the bytes [begin, end) of the log, which must lie in one file."""


class SlaveConnection(asyncio.Protocol):
    """The connection of one slave: takes its reports, and sends the log and tables that it lacks."""

    def __init__(self, master: "Master", sent: SentLog, clock: Clock) -> None:
        self.address = "unknown"
        self._host = ""
        self.broker_id: int | None = None
        """Id of a slave of ours; Apache's slaves do not say theirs."""
        self.takes_tables = False
        self.acknowledged = -1
        """Log offset that the slave has reported last; -1: nothing yet."""
        self.next_offset = -1
        """Log offset of the next byte to send; -1: the slave has not said where it begins."""
        self.bytes_per_second = 0
        """Bytes that were sent in the last tick, for each second."""
        self._master = master
        self._sent = sent
        self._clock = clock
        self._reader = ha.ReportReader()
        self._transport: asyncio.Transport | None = None
        self._is_paused = False
        self._is_fetching = False
        self._certificate = ""
        self._is_known = False
        """Whether this peer may have the log."""
        self._nonce = b""
        """The challenge of this connection; empty before it was sent."""
        self._is_served = False  # it is sent the log
        self._is_admitted = False  # its reports count
        self._last_report: ha.Report | None = None
        self._unsent_tables: dict[str, _UnsentTable] = {}
        self._last_write = self._last_read = clock.monotonic()
        self._sent_bytes = 0
        self._counted = self._last_write, 0  # when bytes were counted last, and how many there were

    # of asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=BUFFER_BYTES)
        self._host, port = peer_address(self._transport)
        self.address = f"{self._host}:{port}"
        self._certificate = transport.get_extra_info("certificate_user") or ""
        if self._master.access.admits(self._host, self._certificate):
            self._is_known = self._master.opened(self)
        else:
            self._master.came(self)

    def data_received(self, data: bytes) -> None:
        self._last_read = self._clock.monotonic()
        try:
            report = self._reader.feed(data)
            if not self._passes(report) or self.is_closing:
                return
            if self.next_offset < 0 and self._reader.greeting is not None:
                self._greeted(self._reader.greeting)
        except BrokenFrame as error:
            self._master.refuse(self, str(error))
            return
        if report is not None and not self.is_closing:
            self._reported(report)

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self.pump()

    def connection_lost(self, error: Exception | None) -> None:
        if self in self._master.connections:
            log.warning("Slave %s is gone: %s", self.address, error or "it closed the connection")
        self._master.closed(self)

    def give_up(self, why: str) -> None:
        """Ends the connection of a newcomer, with a log line."""
        self._master.refuse(self, why)

    # who it is

    def _passes(self, report: ha.Report | None) -> bool:
        """Returns whether what was read may be served; sends the challenge, and refuses who may not."""
        greeting, proof = self._reader.greeting, self._reader.proof
        if greeting is not None and greeting.is_signed and not self._nonce:
            self._nonce = self._master.nonce()
            self.write(ha.encode_challenge(self._nonce))
        if greeting is not None and greeting.is_signed and proof is None:
            return False
        if self._is_known:
            return True
        if greeting is None and report is None:
            return False
        signed = None
        if greeting is not None and proof is not None:
            signed = SignedGreeting(proof.user, proof.proof, self._nonce, ha.encode_greeting(greeting))
        why_not = self._master.access.refusal(self._host, self._certificate, signed)
        if why_not is not None:
            self._master.refuse(self, why_not)
            return False
        self._is_known = self._master.opened(self)
        return self._is_known

    @property
    def host(self) -> str:
        return self.address.rpartition(":")[0]

    # what the slave says

    def _greeted(self, greeting: ha.Greeting) -> None:
        if greeting.run != self._master.run:
            self._master.refuse(self, "it has compared its log with another process; it will compare again")
            return
        self.broker_id = greeting.broker_id
        if not self._begin_at(greeting.start):
            return
        if not self._master.greeted(self):
            return
        self._is_served = self._is_admitted = self.takes_tables = True
        for name, contents, after in self._master.tables():
            self.send_table(name, ha.encode_table(name, contents), after)
        self.pump()

    def _reported(self, report: ha.Report) -> None:
        end = self._sent.end
        if report.end > end:
            self._master.refuse(
                self,
                f"its log ends at {report.end}, beyond this master's end {end}: it holds records that this "
                f"master does not have. Compare the two: turbopump replica compare",
            )
        elif report.synced > report.end:
            self._master.refuse(self, f"it reports {report.synced} on disk, but {report.end} in all")
        elif self._is_served and report.end > self.next_offset:
            self._master.refuse(
                self, f"it reports {report.end}, but was sent nothing beyond {self.next_offset}"
            )
        elif self._is_admitted:
            self._count(report)
        elif self._is_served:
            self._note(report)
        elif self.next_offset < 0:
            begin = report.end or max(_start_of_file(end - 1, self._sent.file_size), self._sent.min_offset)
            if self._begin_at(begin):
                self._master.admit(self, report)

    def served(self, report: ha.Report, why_not_compared: str) -> None:
        """Begins to send to an Apache slave that could not be compared; its reports do not count yet."""
        if self.is_closing or self._is_served:
            return
        log.warning(
            "Slave %s gets the log, but does not count: it could not be compared: %s. Trying every %d s",
            *(self.address, why_not_compared, COMPARE_AGAIN_S),
        )
        self._is_served = True
        self._note(report)

    def admitted(self, report: ha.Report) -> None:
        """Begins to send to an Apache slave that was compared, and to count its reports."""
        if not self.is_closing:
            self._is_served = self._is_admitted = True
            self._count(self._last_report or report)

    def _note(self, report: ha.Report) -> None:
        """Remembers a report that does not count, and sends on."""
        self.acknowledged, self._last_report = report.end, report
        self.pump()

    def _count(self, report: ha.Report) -> None:
        is_first = self not in self._master.copies.slaves
        self.acknowledged = report.end
        self._master.copies.reported(self, report.end, report.synced)
        if is_first:
            log.info(
                "Slave %s continues at %d; this log ends at %d",
                self.address,
                self.next_offset,
                self._sent.end,
            )
            self._master.on_change()
        self.pump()

    def _begin_at(self, offset: int) -> bool:
        """Sets where sending begins; False: refused the slave, as this log does not have that offset."""
        sent = self._sent
        if not sent.min_offset <= offset <= sent.end:
            self._master.refuse(
                self,
                f"it continues at {offset}, but this log reaches from {sent.min_offset} to {sent.end}",
            )
            return False
        self.next_offset = offset
        return True

    # sending

    @property
    def is_closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def pump(self) -> None:
        """Sends what the slave lacks, as far as the connection takes it."""
        sent = self._sent
        if not self._is_served or self._is_fetching or self.is_closing:
            return
        self._send_tables()
        largest = OWN_PART if self._reader.greeting is not None else self._master.rules.part_bytes
        for _ in range(PARTS_PER_TURN):
            begin, end = self.next_offset, sent.end
            if begin >= end or self._is_paused:
                return
            if begin < sent.min_offset:
                self._master.refuse(self, f"the files with offset {begin} were deleted before it had them")
                return
            size = min(end - begin, largest, sent.file_size - begin % sent.file_size)
            if places := sent.missing(begin, size):
                self._is_fetching = True
                self._master.fetch(self, places)
                return
            self.write(ha.encode_part_head(begin, size) + sent.slice(begin, begin + size))
            self.next_offset = begin + size
            self._send_tables()
        asyncio.get_running_loop().call_soon(self.pump)

    def fetched(self) -> None:
        """Continues to send after old parts of the log were read from the disk."""
        self._is_fetching = False
        self.pump()

    def send_table(self, name: str, table: bytes, after: int = 0) -> None:
        """Sends a table once the log up to `after` was sent; of its name, the first and newest may wait."""
        waiting = self._unsent_tables.get(name)
        if waiting is None:
            self._unsent_tables[name] = _UnsentTable(table, after)
        elif waiting.after <= self.next_offset:
            waiting.table, waiting.after = table, after
        else:
            waiting.newest = table, after
        self._send_tables()

    def has_unsent(self, name: str) -> bool:
        return name in self._unsent_tables

    def _send_tables(self) -> None:
        """Sends the tables that may be sent now, while the peer takes them."""
        for name in list(self._unsent_tables):
            waiting = self._unsent_tables.get(name)
            while waiting is not None and waiting.after <= self.next_offset:
                if self._is_paused:
                    return
                newest = waiting.newest
                del self._unsent_tables[name]
                self.write(waiting.table)
                waiting = None if newest is None else _UnsentTable(*newest)
                if waiting is not None:
                    self._unsent_tables[name] = waiting

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._last_write = self._clock.monotonic()
            self._sent_bytes += len(data)
            self._transport.write(data)

    def look_at_clock(self, now: float) -> None:
        """Sends a heartbeat after a quiet time; ends the connection of a slave that has fallen silent."""
        rules = self._master.rules
        (counted_s, counted), self._counted = self._counted, (now, self._sent_bytes)
        self.bytes_per_second = int((self._sent_bytes - counted) / max(now - counted_s, 0.001))
        if now - self._last_read > rules.housekeeping_s:
            self._master.refuse(self, f"it was silent for {rules.housekeeping_s:g} s")
        elif self._is_served and now - self._last_write > rules.heartbeat_s:
            self.write(ha.encode_part_head(self.next_offset, 0))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


@dataclass(slots=True)
class _UnsentTable:
    """A table that waits for a slave. The first is kept beside the newest: a busy log must not starve it."""

    table: bytes
    after: int
    newest: tuple[bytes, int] | None = None


def _start_of_file(offset: int, file_size: int) -> int:
    return offset - offset % file_size
