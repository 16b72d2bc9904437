"""The slave's side: compares its log with the master's, then copies what the master has more.

In: where the master is, and parts of its log. Out: the same log here, and reports of how far it reaches.
Every connection begins with a comparison (`comparison.py`): a log that is not a copy stays as it is, nothing
is acknowledged, and one log line says what to do. Reading, registration and the tables of the broker are not
known here.

    SEARCHING    no master is known, or it does not answer
    COPYING      connected, but a part of the log that the master had at the beginning is missing
    FOLLOWING    has everything that the master had when it connected
    WAITING      this store cannot be written, since its disk is full; copying goes on when it can
    STOPPED      the log is not a copy of the master's: an operator has to decide

No failure ends the copying for good or without a word: each ends in one of these states, with its reason.
"""

import asyncio
import logging
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol, cast

from turbopump.auth.peer_proof import greeting_proof
from turbopump.auth.signature import Credentials
from turbopump.protocol import ha
from turbopump.protocol.addresses import split_address
from turbopump.protocol.errors import BrokenBody, BrokenFrame
from turbopump.replication.backlog import Backlog
from turbopump.replication.comparison import CannotCompare, Extent, LogComparison, Relation, Verdict
from turbopump.replication.dial_delay import DialDelay
from turbopump.replication.held_tables import HeldTables
from turbopump.replication.progress import CopyProgress
from turbopump.runtime.clock import Clock
from turbopump.runtime.network import Network
from turbopump.store.errors import UnusableStore
from turbopump.store.replica_log import ReplicaLog

log = logging.getLogger(__name__)

RETRY_S = 1.0  # after a connection that ended before the slave followed, or while the disk is full
STOPPED_RETRY_S = 10.0  # a log that is not a copy is compared again: the master may have been exchanged
DEFECT_RETRY_S = 10.0
TICK_S = 0.5
CONNECT_TIMEOUT_S = 3.0
BACKLOG_BYTES = 1 << 30  # copied and not in queues yet; with more, reading from the master waits


class SlaveState(Enum):
    """The states of a slave: searching for its master, copying, following, waiting or stopped."""

    SEARCHING = "searching"
    COPYING = "copying"
    FOLLOWING = "following"
    WAITING = "waiting"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class SlaveTimings:
    """A slave's broker id, interval of heartbeats, and the silence after which it gives up a master."""

    broker_id: int = 1
    heartbeat_s: float = 5.0
    housekeeping_s: float = 20.0
    """A master that sent nothing for this time is given up."""


@dataclass(frozen=True, slots=True)
class MasterAddress:
    """Addresses (host:port) at which a master serves clients, and at which it serves slaves."""

    broker: str
    ha: str
    guess: str = ""
    """Why `broker` may be another address, and what helps; empty: it is known."""


class SlaveListener(Protocol):
    """Interface of the broker to its slave: names the master, takes tables and changes of state."""

    def master(self) -> MasterAddress | None:
        """Returns where the master is now, by name servers or configuration; None: not known."""

    def table(self, name: str, contents: bytes, counted: int | None = None) -> None:
        """Takes a file of the master's configuration directory. Raises BrokenBody if it cannot be read.

        `counted`: the end of the log that it counts at most, where it does not say that itself.
        """

    def changed(self, state: SlaveState) -> None:
        """Called when the state has changed."""

    async def set_aside(self) -> list[str]:
        """Moves the whole log of this store aside; returns the files that keep it."""


class Slave:
    """Keeps the log of this broker a copy of its master's."""

    def __init__(
        self,
        replica: ReplicaLog,
        comparison: LogComparison,
        progress: CopyProgress,
        listener: SlaveListener,
        network: Network,
        clock: Clock,
        rules: SlaveTimings,
        credentials: Credentials | None = None,
    ) -> None:
        """`credentials` sign the greeting for a master with access control; None: it stays unsigned."""
        self.state = SlaveState.SEARCHING
        self.trouble = "no master was found yet"
        """Why the slave does not follow its master, or what hinders it; empty: all is well."""
        self.untaken: dict[str, str] = {}
        """Tables of the master that could not be taken, and why."""
        self.master: MasterAddress | None = None
        """The master that it copies from, or has tried last."""
        self.master_extent: Extent | None = None
        """The extent of the master's log at the last comparison."""
        self.is_ours = False
        """Whether the master is one of ours, which pushes its tables."""
        self.heard_ms = 0
        """When something came from the master last, in milliseconds since 1970; 0: never."""
        self.reported_ms = 0
        """When it was told last how far this log reaches."""
        self.bytes_per_second = 0
        """Bytes of the log that came in the last tick, for each second."""
        self._replica = replica
        self._comparison = comparison
        self._progress = progress
        self._listener = listener
        self._network = network
        self._clock = clock
        self._rules = rules
        self._credentials = credentials
        self._backlog = Backlog(replica)
        self._delay = DialDelay()
        self._held = HeldTables(self.take_table)
        self._reason = ""  # the trouble as it was logged last

    async def run(self) -> None:
        """Follows the master, again after each failure, until cancelled."""
        try:
            while True:
                try:
                    pause_s = await self._follow_once()
                except Exception as error:  # a defect, or a disk that fails: the loop must go on
                    log.exception("Replication failed; retrying in %d s", DEFECT_RETRY_S)
                    self._set(SlaveState.SEARCHING, f"replication failed unexpectedly: {error!r}")
                    pause_s = DEFECT_RETRY_S
                await self._delay.pause(pause_s)
        finally:
            self._backlog.close()

    def dial_now(self) -> None:
        """Ends the pause before the next attempt: where the master is has become known, or has changed."""
        self._delay.end_now()

    def hold_table(self, name: str, contents: bytes, end: int) -> None:
        """Passes a table to the listener once the log is copied up to `end`, where the master's ended."""
        self._held.put(name, contents, end)

    def take_table(self, name: str, contents: bytes, counted: int | None = None) -> None:
        """Passes a table of the master to the listener; a failure is logged and noted in `untaken`."""
        try:
            self._listener.table(name, contents, counted)
        except BrokenBody as error:
            log.error("The master sent a table %s that cannot be read: %s", name, error)
            self.untaken[name] = str(error)
        except Exception as error:
            log.exception("The table %s of the master cannot be taken", name)
            self.untaken[name] = repr(error)
        else:
            self.untaken.pop(name, None)

    async def _follow_once(self) -> float:
        """Compares, and copies until the connection is lost; returns how long to pause then."""
        if (broken := self._backlog.not_a_copy) is not None:
            what = f"the bytes that were copied are no log: {broken}"
            self._progress.doubt(what, differs=True)
            self._set(SlaveState.STOPPED, f"{what}. See: turbopump replica compare")
            return STOPPED_RETRY_S
        self._backlog.work()
        try:
            self._replica.make_room()
        except OSError as error:
            self._set(SlaveState.WAITING, f"this store cannot be written: {error}")
            return RETRY_S
        master = self._listener.master()
        if master is None:
            self._set(SlaveState.SEARCHING, "no master is registered at the name servers")
            return self._delay.next_s()
        self.master = master
        try:
            verdict = await self._comparison.compare(master.broker)
        except CannotCompare as error:
            self._set(SlaveState.SEARCHING, _with_guess(str(error), master))
            return self._delay.next_s()
        self.master_extent, self.is_ours = verdict.master, verdict.run is not None
        if verdict.relation in (Relation.OUTDATED, Relation.INCOMPLETE):
            verdict = await self._start_over(verdict)
        if not verdict.may_copy or (problem := self._problem(verdict)):
            if not verdict.may_copy:
                found = f"its log was {verdict.relation.value} when it was compared with {master.broker}"
                self._progress.doubt(found, differs=True)
                difference = _with_guess(self._difference(verdict), master)
                self._set(SlaveState.STOPPED, difference, verdict.relation.value)
            else:
                self._set(SlaveState.STOPPED, _with_guess(problem, master))
            return STOPPED_RETRY_S
        return await self._copy(master, verdict)

    def _problem(self, verdict: Verdict) -> str:
        size = self._replica.file_size
        if verdict.file_size is not None and verdict.file_size != size:
            return (
                f"files of the master's log have {verdict.file_size} bytes, those of this store {size}. "
                f"Set mappedFileSizeCommitLog to that of the master"
            )
        return ""

    def _difference(self, verdict: Verdict) -> str:
        mine, master = self._replica.end, verdict.master.end
        if verdict.relation is Relation.AHEAD:
            what = f"this log ends at {mine}, {mine - master} bytes beyond the master's end {master}"
        else:
            what = f"this log (end {mine}) holds other records than the master's (end {master})"
        return f"{what}. Nothing is copied. See: turbopump replica compare; turbopump replica resync"

    async def _start_over(self, verdict: Verdict) -> Verdict:
        """Sets the whole log aside, since it cannot be continued; returns the verdict for an empty log."""
        mine = f"this log (end {self._replica.end}) is {verdict.relation.value}"
        kept = await self._listener.set_aside()
        log.warning(
            "The master's log begins at %d, %s: starting over; the old log is kept as %s",
            *(verdict.master.begin, mine, ", ".join(kept) or "nothing"),
        )
        return replace(verdict, relation=Relation.EMPTY, start=verdict.master.begin)

    async def _copy(self, master: MasterAddress, verdict: Verdict) -> float:
        """Copies until the connection is lost or cannot be made; returns the seconds to pause then."""
        host, port = split_address(master.ha)
        connection = _MasterConnection(
            self, self._replica, self._backlog, verdict, self._rules, self._clock, self._credentials
        )
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await self._network.connect(lambda: connection, host, port)
        except OSError as error:
            self._set(SlaveState.SEARCHING, f"the replication port {master.ha} cannot be reached: {error}")
            return self._delay.next_s()
        try:
            self._set(SlaveState.COPYING, "")
            while not connection.is_lost:
                before = self._replica.end
                await self._clock.sleep(TICK_S)
                self.bytes_per_second = int((self._replica.end - before) / TICK_S)
                connection.look_at_clock()
                self._note_times(connection)
                self._held.copied(self._replica.dispatched)
                self._look_at_progress()
        finally:
            self._held.clear()
            self.bytes_per_second = 0
            self._note_times(connection)
            self._progress.ended(self.heard_ms, self.state is SlaveState.FOLLOWING)
            connection.close()
        if self._backlog.not_a_copy is not None:
            return 0.0
        if connection.is_full:
            self._set(SlaveState.WAITING, f"this store cannot be written: {connection.lost_by}")
            return RETRY_S
        has_followed = self.state is SlaveState.FOLLOWING
        self._set(SlaveState.SEARCHING, f"the connection to {master.ha} ended: {connection.lost_by}")
        if not has_followed:  # a master that refuses this slave logs each attempt
            return RETRY_S
        self._delay.reset()
        return self._delay.next_s()

    def connected(self, verdict: Verdict) -> None:
        """Notes that copying begins; called before the first part of the log can come."""
        begins = self._replica.min_offset if verdict.relation is Relation.COPY else None
        self._progress.begin(begins, verdict.master, self._replica.end)

    def begun_at(self, offset: int) -> None:
        """Notes where an empty log begins: an Apache master may send its last file only."""
        self._progress.begun_at(offset)

    def _note_times(self, connection: "_MasterConnection") -> None:
        now_ms, now = self._clock.now_ms(), self._clock.monotonic()
        self.heard_ms = now_ms - round(1000 * (now - connection.last_read))
        self.reported_ms = now_ms - round(1000 * (now - connection.last_report))

    def _look_at_progress(self) -> None:
        """Notes how far the copy is; FOLLOWING once it has all that the master had when it connected."""
        state = self.state
        if state is SlaveState.COPYING:
            self._progress.look(self._replica.end)
            if self._progress.has_caught_up(self._replica.end):
                state = SlaveState.FOLLOWING
        self._set(state, self._backlog.trouble)

    def _set(self, state: SlaveState, trouble: str, reason: str = "") -> None:
        """Sets state and trouble; logs it and tells the listener if the state or `reason` is another."""
        is_new = state is not self.state or (reason or trouble) != self._reason
        was, self.state, self.trouble, self._reason = self.state, state, trouble, reason or trouble
        if not is_new:
            return
        address = self.master.ha if self.master is not None else "none"
        if state is SlaveState.STOPPED:
            log.error("Replication from %s stopped: %s", address, trouble)
        elif state is SlaveState.WAITING:
            log.error("Replication from %s waits: %s", address, trouble)
        elif state is SlaveState.SEARCHING:
            log.warning("Not replicating: %s", trouble)
        elif state is was:
            log.log(
                logging.ERROR if trouble else logging.INFO, "Copying from %s: %s", address, trouble or "ok"
            )
        elif state is SlaveState.COPYING:
            log.info("Copying the log of %s from %d on", address, self._replica.end)
        else:
            log.info("Following %s: this log has everything up to %d", address, self._replica.end)
        self._listener.changed(state)


def _with_guess(trouble: str, master: MasterAddress) -> str:
    """Returns the trouble with a master, and behind it that its address was only guessed."""
    return f"{trouble}. {master.guess}" if master.guess else trouble


class _MasterConnection(asyncio.Protocol):
    """The connection to the master's HA port: appends parts of its log here, and reports the end."""

    def __init__(
        self,
        slave: Slave,
        replica: ReplicaLog,
        backlog: Backlog,
        verdict: Verdict,
        rules: SlaveTimings,
        clock: Clock,
        credentials: Credentials | None,
    ) -> None:
        self.is_lost = False
        self.lost_by = "the master closed it"
        self.is_full = False
        """Whether it ended because this store cannot be written."""
        self._slave = slave
        self._replica = replica
        self._backlog = backlog
        self._verdict = verdict
        self._rules = rules
        self._clock = clock
        self._signs_with = credentials if verdict.wants_signature else None
        """Credentials that sign the greeting; None once it is signed, or if it needs no signature."""
        self._greeting = b""
        self._reader = ha.PartReader(takes_tables=verdict.run is not None)
        self._transport: asyncio.Transport | None = None
        self._reported = (-1, -1)
        self.last_report = self.last_read = clock.monotonic()
        self._is_paused = False

    # of asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._slave.connected(self._verdict)
        if self._verdict.run is not None:
            is_signed, run, start = self._signs_with is not None, self._verdict.run, self._verdict.start
            self._greeting = ha.encode_greeting(ha.Greeting(run, start, self._rules.broker_id, is_signed))
            self._transport.write(self._greeting)
        self._report(force=True)
        self._backlog.on_turn = self._limit_backlog

    def data_received(self, data: bytes) -> None:
        self.last_read = self._clock.monotonic()
        try:
            for found in self._reader.feed(data):
                if isinstance(found, ha.SentPart):
                    self._begin_part(found)
                elif isinstance(found, ha.TableFile):
                    self._slave.take_table(found.name, found.contents)
                elif isinstance(found, ha.Challenge):
                    self._sign(found.nonce)
                else:
                    self._replica.append(found)
        except (BrokenFrame, UnusableStore) as error:
            self._end(str(error))
        except OSError as error:
            self.is_full = True
            self._end(str(error))
        except Exception as error:
            log.exception("What the master sent cannot be copied")
            self._end(f"an unexpected failure: {error!r}")
        self._backlog.work()
        self._limit_backlog()
        self._report()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True
        if error is not None:
            self.lost_by = str(error)

    # signing

    def _sign(self, nonce: bytes) -> None:
        """Proves that this broker has the secret of its user, then reports for the first time."""
        credentials, self._signs_with = self._signs_with, None
        if credentials is None or self._transport is None:
            raise BrokenFrame("the master sent a challenge, but the greeting was not to be signed")
        proof = greeting_proof(credentials.secret_key, nonce, self._greeting)
        self._transport.write(ha.encode_proof(ha.GreetingProof(credentials.access_key, proof)))
        self._report(force=True)

    # copying

    def _begin_part(self, part: ha.SentPart) -> None:
        replica = self._replica
        if replica.is_empty and part.size:
            replica.begin_at(part.offset)
            self._slave.begun_at(part.offset)
        if part.offset != replica.end and (part.size or not replica.is_empty):
            raise BrokenFrame(f"the master sent offset {part.offset}, but this log ends at {replica.end}")

    def _limit_backlog(self) -> None:
        """Pauses reading from the master while too much waits for queues and index, then resumes it."""
        if self._transport is None or self._transport.is_closing():
            return
        if self._backlog.not_a_copy is not None:
            self._end("what it sent is no log")
            return
        behind = self._backlog.size
        if behind > BACKLOG_BYTES and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        elif behind < BACKLOG_BYTES // 2 and self._is_paused:
            self._is_paused = False
            self.last_read = self._clock.monotonic()
            self._transport.resume_reading()

    # reporting

    def _report(self, force: bool = False) -> None:
        """Reports how far the log reaches; unless `force`, only if its end has changed since the last."""
        replica = self._replica
        end = self._verdict.start if replica.is_empty else replica.end
        position = (end, min(replica.synced, end) if not replica.is_empty else 0)
        if self._transport is None or self._transport.is_closing() or self._signs_with is not None:
            return
        if not force and position[0] == self._reported[0]:
            return
        self._reported = position
        self.last_report = self._clock.monotonic()
        if self._verdict.run is None:
            self._transport.write(ha.encode_report(position[0]))
        else:
            self._transport.write(ha.encode_disk_report(*position))

    def look_at_clock(self) -> None:
        """Reports what is on disk now, or that the slave is alive; gives up a master that is silent."""
        now = self._clock.monotonic()
        if not self._is_paused and now - self.last_read > self._rules.housekeeping_s:
            self._end(f"it was silent for {self._rules.housekeeping_s:g} s")
            return
        has_synced = (
            self._verdict.run is not None and min(self._replica.synced, self._reported[0]) > self._reported[1]
        )
        if has_synced or now - self.last_report > self._rules.heartbeat_s:
            self._report(force=True)

    def _end(self, why: str) -> None:
        self.lost_by = why
        self.close()

    def close(self) -> None:
        self.is_lost = True
        if self._transport is not None:
            self._transport.close()
