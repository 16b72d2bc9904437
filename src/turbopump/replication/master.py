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

from turbopump.protocol import ha
from turbopump.remoting.pending import WaitingConnections
from turbopump.replication.copies import Copies
from turbopump.replication.slave_access import OpenToAll, SlaveAccess
from turbopump.replication.slave_connection import COMPARE_AGAIN_S, SentLog, SlaveConnection
from turbopump.runtime.clock import Clock
from turbopump.runtime.network import Listener, Network
from turbopump.runtime.rate_limited_log import RateLimitedLog
from turbopump.runtime.tasks import Tasks

log = logging.getLogger(__name__)

MAX_SLAVES = 64  # connections of slaves; each may cost as much sending as a consumer of everything
MAX_NEWCOMERS = 64  # connections that have not shown who they are; with more, the oldest one is closed
NEWCOMER_TIMEOUT_S = 10.0  # a slave that signs speaks at once and answers the challenge at once
TICK_S = 1.0
MAX_ENDS = 3600  # ends of the log that are remembered, one for each tick: an hour
REFUSED_INTERVAL_S = 60.0


@dataclass(frozen=True, slots=True)
class MasterRules:
    """Settings of a master: interval of heartbeats, longest silence of a slave, size of parts it sends."""

    heartbeat_s: float = 5.0
    housekeeping_s: float = 20.0
    """A connection that sent nothing for this time is closed."""
    part_bytes: int = 32 << 10
    """Greatest part that is sent to an Apache slave."""


Table = tuple[str, bytes, int]
"""Name and contents of a table, and the offset up to which a slave must have been sent the log before it."""

Admit = Callable[[SlaveConnection, int], Awaitable[str | None]]
"""Asked about an Apache slave and the end of its log: why it is no copy; None: it is one.

Raises NotCompared when that cannot be found out now.
"""


class NotCompared(Exception):
    """An Apache slave could not be compared with this log; the text says why."""


async def admit_all(connection: SlaveConnection, end: int) -> str | None:
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

    def came(self, connection: SlaveConnection) -> None:
        """Keeps a connection that has not shown who it is for a while. It takes no place of a slave."""
        self._newcomers.add(connection)

    def opened(self, connection: SlaveConnection) -> bool:
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

    def closed(self, connection: SlaveConnection) -> None:
        self._newcomers.remove(connection)
        if connection in self.connections:
            del self.connections[connection]
            self.copies.left(connection)
            self.on_change()

    def refuse(self, connection: SlaveConnection, why: str) -> None:
        """Ends the connection of a slave that cannot be served, with a log line."""
        self._refused.log(self._clock.monotonic(), "Slave %s is not replicated: %s", connection.address, why)
        self.closed(connection)
        connection.close()

    def greeted(self, connection: SlaveConnection) -> bool:
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

    def admit(self, connection: SlaveConnection, report: ha.Report) -> None:
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

    def fetch(self, connection: SlaveConnection, places: list[tuple[str, int, int]]) -> None:
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
