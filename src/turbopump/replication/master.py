"""The master's side of the HA port: sends the log to slaves as it grows, and takes their reports.

In: connections of slaves, Apache's or ours, and the notice that the log has grown. Out: parts of the log, and
reports for `copies.py`. With access control a peer is a slave, and has a place among them, only when
`SlaveAccess` has admitted it: by its address or certificate at once, else by its signed greeting. A slave
that reports more than this log has, or that `admit` finds to hold other records, is disconnected with one log
line, and nothing that it reports counts. Which messages wait for slaves, and what they are answered, is not
known here.

    Apache's slave    first report = where it goes on; 0: at the start of the last file. Then `admit` is asked
    ours              a greeting = where it goes on. It has compared its log with this one before

A slave that cannot be compared is sent the log, and does not count until it was compared.
"""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, cast

from turbopump.auth.peer_proof import SignedGreeting
from turbopump.protocol import ha
from turbopump.protocol.errors import BrokenFrame
from turbopump.remoting.connection import peer_address
from turbopump.remoting.pending import WaitingConnections
from turbopump.replication.copies import Copies
from turbopump.replication.slave_access import OpenToAll, SlaveAccess
from turbopump.runtime.clock import Clock
from turbopump.runtime.network import Listener, Network
from turbopump.runtime.rate_limited_log import RateLimitedLog
from turbopump.runtime.tasks import Tasks

log = logging.getLogger(__name__)

MAX_SLAVES = 64  # connections of slaves; each may cost as much sending as a consumer of everything
MAX_NEWCOMERS = 64  # connections that have not shown who they are; with more, the oldest one is closed
NEWCOMER_TIMEOUT_S = 10.0  # a slave that signs speaks at once and answers the challenge at once
OWN_PART = 256 << 10  # bytes in one part to a slave of ours
BUFFER_BYTES = 1 << 20  # that a connection holds unsent before the pump waits for it
PARTS_PER_TURN = 16  # sent to one slave before the loop serves others
TICK_S = 1.0
MAX_ENDS = 3600  # ends of the log that are remembered, one for each tick: an hour
REFUSED_INTERVAL_S = 60.0
COMPARE_AGAIN_S = 10.0  # an Apache slave that could not be compared registers every 30 s


@dataclass(frozen=True, slots=True)
class MasterRules:
    """Settings of a master: interval of heartbeats, longest silence of a slave, size of parts it sends."""

    heartbeat_s: float = 5.0
    housekeeping_s: float = 20.0
    """A connection that sent nothing for this time is closed."""
    part_bytes: int = 32 << 10
    """Greatest part that is sent to an Apache slave."""


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


Table = tuple[str, bytes, int]
"""Name and contents of a table, and the offset up to which a slave must have been sent the log before it."""

Admit = Callable[["SlaveConnection", int], Awaitable[str | None]]
"""Asked about an Apache slave and the end of its log: why it is no copy; None: it is one.

Raises NotCompared when that cannot be found out now.
"""


class NotCompared(Exception):
    """An Apache slave could not be compared with this log; the text says why."""


async def admit_all(connection: "SlaveConnection", end: int) -> str | None:
    """Returns None: admits every slave, whatever it holds."""
    return None


class Master:
    """Listens for slaves, sends each the log and the tables that it lacks, and takes their reports."""

    def __init__(
        self,
        sent: SentLog,
        copies: Copies,
        network: Network,
        clock: Clock,
        rules: MasterRules,
        run: int,
        admit: Admit = admit_all,
        tables: Callable[[], Iterable[Table]] = tuple,
        access: SlaveAccess | None = None,
        nonce: Callable[[], bytes] = lambda: secrets.token_bytes(ha.CHALLENGE_SIZE),
    ) -> None:
        """`run`: a number of this process; `tables`: what a slave of ours gets when it comes.

        `access` decides who is a slave; without it everybody is. `nonce` makes the challenge of a connection.
        """
        self.copies = copies
        self.run = run
        self.rules = rules
        self.connections: dict[SlaveConnection, None] = {}
        """The connections of slaves, in the order in which they came."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when a slave connects, begins to count, or is gone."""
        self._sent = sent
        self._network = network
        self._clock = clock
        self._admit = admit
        self._tables = tables
        self.access: SlaveAccess = access or OpenToAll()
        self.nonce = nonce
        self._newcomers: WaitingConnections[SlaveConnection] = WaitingConnections(
            MAX_NEWCOMERS, NEWCOMER_TIMEOUT_S, "it has not shown who it is"
        )
        self._listener: Listener | None = None
        self._tasks = Tasks(log)
        self._keeps_house = False
        self._scheduled = False
        self._ends: deque[tuple[float, int]] = deque(maxlen=MAX_ENDS)  # when the log ended where
        self._refused = RateLimitedLog(log, REFUSED_INTERVAL_S, lines=5)

    async def start(self, host: str, port: int) -> int:
        """Listens and returns the port."""
        self._listener = await self._network.listen(self._accept, host, port)
        return self._listener.port

    async def stop(self) -> None:
        if self._listener is not None:
            self._listener.close()
        await self._tasks.close()
        for connection in (*self.connections, *self._newcomers):
            connection.close()
        self.copies.give_up()

    def grown(self) -> None:
        """Sends what was appended, after this pass of the loop. Called after each append."""
        if not self._scheduled and self.connections:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._pump_all)

    def behind_s(self, offset: int) -> float:
        """Returns how long ago the log passed `offset`, to about a second; 0 when it has not yet.

        At most the time for which ends of the log are remembered.
        """
        if offset >= self._sent.end:
            return 0.0
        now = self._clock.monotonic()
        passed = next((seen_s for seen_s, end in self._ends if end > offset), now)
        return now - passed

    def push_table(self, name: str, contents: bytes, after: int = 0) -> None:
        """Sends a table to the slaves of ours, each when it was sent the log up to the offset `after`."""
        slaves = [connection for connection in self.connections if connection.takes_tables]
        if slaves:
            table = ha.encode_table(name, contents)
            for connection in slaves:
                connection.send_table(name, table, after)

    def may_push(self, name: str) -> bool:
        """Returns whether no slave has a table of that name unsent, which a new one would replace."""
        return not any(connection.has_unsent(name) for connection in self.connections)

    def _pump_all(self) -> None:
        self._scheduled = False
        for connection in list(self.connections):
            connection.pump()

    def _accept(self) -> asyncio.Protocol:
        return SlaveConnection(self, self._sent, self._clock)

    # called by connections

    def came(self, connection: "SlaveConnection") -> None:
        """Keeps a connection that has not shown who it is for a while. It takes no place of a slave."""
        self._newcomers.add(connection)

    def opened(self, connection: "SlaveConnection") -> bool:
        """Gives a connection a place among the slaves; False: there is none, and it is closed."""
        self._newcomers.remove(connection)
        if len(self.connections) >= MAX_SLAVES:
            self._refused.log(self._clock.monotonic(), "Refusing a slave: %d are connected", MAX_SLAVES)
            connection.close()
            return False
        self.connections[connection] = None
        if not self._keeps_house:
            self._keeps_house = True
            self._tasks.start(self._keep_house(), name="heartbeats to slaves")
        self.on_change()
        return True

    def closed(self, connection: "SlaveConnection") -> None:
        self._newcomers.remove(connection)
        if connection in self.connections:
            del self.connections[connection]
            self.copies.left(connection)
            self.on_change()

    def refuse(self, connection: "SlaveConnection", why: str) -> None:
        """Ends the connection of a slave that cannot be served, with a log line."""
        self._refused.log(self._clock.monotonic(), "Slave %s is not replicated: %s", connection.address, why)
        self.closed(connection)
        connection.close()

    def greeted(self, connection: "SlaveConnection") -> bool:
        """Ends older connections of a slave that has come again; False: refused one with another's id.

        A slave must not count twice. It comes again from its host; from another host, it is another slave
        with its broker id, which must wait until the first is gone: else the two replace each other.
        """
        older = [
            other
            for other in self.connections
            if other is not connection and other.broker_id == connection.broker_id
        ]
        for other in older:
            if other.host != connection.host and not other.is_closing:
                self.refuse(
                    connection,
                    f"brokerId={connection.broker_id} is that of the slave at {other.address}, which is "
                    f"connected: give each slave a brokerId of its own",
                )
                return False
        for other in older:
            self.refuse(
                other,
                f"slave {other.broker_id} has opened another connection; if that goes on, two slaves on "
                f"{other.host} have this brokerId",
            )
        return True

    def tables(self) -> Iterable[Table]:
        return self._tables()

    def admit(self, connection: "SlaveConnection", report: ha.Report) -> None:
        """Starts a check of an Apache slave's log; after it begins to serve the slave, or refuses it.

        A slave that cannot be compared is served, and does not count until it could be.
        """

        async def ask() -> None:
            while not connection.is_closing:
                try:
                    why_not = await self._admit(connection, report.end)
                except NotCompared as error:
                    connection.served(report, str(error))
                    await self._clock.sleep(COMPARE_AGAIN_S)
                    continue
                if why_not is not None:
                    self.refuse(connection, why_not)
                else:
                    connection.admitted(report)
                return

        self._tasks.start(ask(), name="compare a slave")

    def fetch(self, connection: "SlaveConnection", places: list[tuple[str, int, int]]) -> None:
        """Starts to read these places from disk; then calls `fetched`, or refuses the slave on failure."""

        async def fetch() -> None:
            try:
                await self._sent.fetch(places)
            except OSError as error:
                self.refuse(connection, f"the log cannot be read: {error}")
            else:
                connection.fetched()

        self._tasks.start(fetch(), name="read the log for a slave")

    async def _keep_house(self) -> None:
        """Sends heartbeats, ends silent connections and notes the log's end, while slaves are connected."""
        try:
            while self.connections:
                await self._clock.sleep(min(TICK_S, self.rules.heartbeat_s))
                now = self._clock.monotonic()
                if not self._ends or self._ends[-1][1] != self._sent.end:
                    self._ends.append((now, self._sent.end))
                for connection in list(self.connections):
                    connection.look_at_clock(now)
        finally:
            self._keeps_house = False
            self._ends.clear()


class SlaveConnection(asyncio.Protocol):
    """The connection of one slave: takes its reports, and sends the log and tables that it lacks."""

    def __init__(self, master: Master, sent: SentLog, clock: Clock) -> None:
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
