"""One member of a DLedger group: steps of its node, their effects, and what its owner may ask.

In: requests of other members, answers to its own, syncs, timers, and records that its owner appends. Out:
answers and requests, entries in the log, and calls to the owner when role or commit index change.

All events pass one queue. A step's effects are performed in their order before the next event is taken, and
those behind a vote only when it is on disk. What cannot be performed (a full disk, an entry that does not
continue the log) ends the node as a crash would: what waits is answered, and it is started again from disk.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from turbopump.protocol.addresses import split_address
from turbopump.protocol.dledger.codes import DLedgerCode
from turbopump.protocol.errors import BrokenRecord
from turbopump.raft import (
    Appended,
    AppendEntries,
    AppendNoOp,
    AppendOutcome,
    AppendResult,
    Commit,
    Effect,
    Event,
    Node,
    NodeConfig,
    PeerTakesBatches,
    PendingAppends,
    Respond,
    Role,
    RoleChanged,
    Save,
    Send,
    Synced,
    Tick,
    Transfer,
    Truncate,
)
from turbopump.raft.messages import PeerAnswer, RaftCode, TransferAnswer
from turbopump.remoting.client import Client
from turbopump.remoting.limits import Limits
from turbopump.remoting.router import Router
from turbopump.remoting.server import Server
from turbopump.replication.dledger.alarm import Alarm
from turbopump.replication.dledger.entry_log_view import EntryLogView
from turbopump.replication.dledger.errors import LeadershipMoving, NotLeading, PendingAppendsFull
from turbopump.replication.dledger.group import DLedgerGroup
from turbopump.replication.dledger.handlers import MemberHandlers
from turbopump.replication.dledger.node_storage import NodeStorage
from turbopump.replication.dledger.peer_link import PeerLink
from turbopump.replication.dledger.request_encoder import RequestEncoder
from turbopump.replication.dledger.status import MemberStatus, PeerStatus
from turbopump.runtime.chance import Chance
from turbopump.runtime.clock import Clock
from turbopump.runtime.disk import Workers
from turbopump.runtime.network import Network
from turbopump.runtime.tasks import Tasks
from turbopump.store.dledger.entry_log import EntryLog
from turbopump.store.dledger.placement import MisplacedEntry
from turbopump.store.errors import UnusableStore
from turbopump.store.flush import Flusher

log_line = logging.getLogger(__name__)

EVENTS_PER_TURN = 64  # before the loop serves others
RESTART_WAIT_S = 1.0  # before a node that could not use its disk tries again
CHECKPOINT_INTERVAL_S = 3.0  # between notes of how far the log is committed
MAX_CONNECTIONS = 256  # to the DLedger port: each member has one or two, tools a few
MAX_REQUESTS = 4096
"""Requests of one connection that are not answered: a leader has 1,000 pushes under way, and repeats some."""
EXPECTED_FAILURES = (OSError, MisplacedEntry, UnusableStore, BrokenRecord)


@dataclass(frozen=True, slots=True)
class NodeEnvironment:
    """What a member uses of the world: time, network, chance, and threads for its disk."""

    clock: Clock
    network: Network
    chance: Chance
    workers: Workers


class DLedgerServer:
    """A member of a group, with its port. Its owner opens and closes the log and runs the flusher."""

    def __init__(
        self,
        group: DLedgerGroup,
        log: EntryLog,
        flusher: Flusher,
        environment: NodeEnvironment,
        no_op: Callable[[int], bytes],
        config: NodeConfig | None = None,
    ) -> None:
        """`no_op` makes the record that a new leader of a term appends."""
        self.group = group
        self.on_role_changed: Callable[[RoleChanged], None] = lambda change: None
        """Called when role, term or leader are other ones, after appends that wait were answered."""
        self.on_commit: Callable[[int], None] = lambda index: None
        """Called when everything up to an index is committed; readers of the log see it already."""
        self._log = log
        self._clock = environment.clock
        self._chance = environment.chance
        self._workers = environment.workers
        self._no_op = no_op
        self._config = config or group.node_config()
        self._view = EntryLogView(log, flusher.syncs_each)
        self._storage = NodeStorage(log, flusher, environment.workers, partial(self._post_once, Synced))
        self._handlers = MemberHandlers(group, log, self, self._post)
        self._router = Router(self._handlers.routes())
        limits = Limits(max_connections=MAX_CONNECTIONS, requests_in_flight=MAX_REQUESTS)
        self._server = Server(self._router, environment.network, environment.clock, limits)
        self._client = Client(environment.network, environment.clock)
        self._encoder = RequestEncoder(group, log)
        self._links = {
            peer: PeerLink(peer, group.addresses[peer], self._client, self._encoder.command, self._post)
            for peer in group.peers
        }
        self._known = RoleChanged(Role.CANDIDATE, 0, None)
        self._pending = PendingAppends()
        self._transfers: dict[int, asyncio.Future[TransferAnswer]] = {}
        self._node: Node | None = None
        self._events: deque[Event] = deque()
        self._has_events = asyncio.Event()
        self._node_alarm = Alarm(lambda: self._post(Tick()))
        self._pending_alarm = Alarm(self._expire)
        self._tasks = Tasks(log_line)

    # life

    async def start(self, host: str = "") -> int:
        """Loads the vote, listens and begins to look for a leader; returns the port.

        Listens on `host`, or on that of `dLegerPeers`. Raises OSError, or UnusableStore.
        """
        await self._load_node()
        own_host, port = split_address(self.group.own_address)
        port = await self._server.start(host or own_host, port)
        self._tasks.start(self._take_events(), name=f"DLedger member {self.group.own_id}")
        self._tasks.start(self._note_checkpoints(), name="checkpoint of DLedger's log")
        self._post(Tick())
        return port

    async def stop(self) -> None:
        """Leaves the group; everything that waits is answered. The log stays open."""
        self._storage.stop()
        await self._tasks.close()
        self._node_alarm.cancel()
        for link in self._links.values():
            await link.close()
        self._handlers.refuse_all(DLedgerCode.ILLEGAL_MEMBER_STATE)
        await self._server.stop(0)
        await self._router.close()
        await self._client.close()
        self._lose_role()
        self._pending_alarm.cancel()
        await self._storage.save_checkpoint()

    async def _load_node(self) -> None:
        saved = await self._workers.run(self._storage.saved_state)
        self._node = self._encoder.node = Node(self._config, saved, self._view, self._chance)
        self._known = RoleChanged(self._node.role, self._node.term, None)

    # what the owner may ask

    @property
    def role(self) -> Role:
        """What this member does; never more than its owner was told."""
        return self._known.role

    @property
    def term(self) -> int:
        return self._known.term

    @property
    def leader(self) -> str | None:
        """Id of the leader; None while none is known."""
        return self._known.leader

    @property
    def leader_address(self) -> str | None:
        """DLedger address of the leader."""
        return None if self.leader is None else self.group.addresses.get(self.leader)

    @property
    def committed_index(self) -> int:
        """Everything up to here is committed; -1: nothing."""
        return self._log.committed_index

    @property
    def end_index(self) -> int:
        """Index of the last entry of the log, committed or not; -1: none."""
        return self._log.end_index

    def append(self, bodies: Sequence[bytes]) -> list[int]:
        """Appends records in this term and returns the offsets of their entries; the next turn pushes them.

        The last of them has `end_index` until the next append. Raises AppendRefused (NotLeading,
        LeadershipMoving, PendingAppendsFull), or OSError when the disk is full; nothing was appended then.
        """
        node = self._node
        # While a step is performed the node may have another role than the owner knows.
        leads = node is not None and node.role is Role.LEADER and self.role is Role.LEADER
        if node is None or not leads or node.term != self.term:
            leader = None if self.role is Role.LEADER else self.leader
            address = None if leader is None else self.leader_address
            raise NotLeading(self.group.own_id, leader, address)
        if node.transferring_to is not None:
            raise LeadershipMoving(node.transferring_to)
        if self._pending.is_full:
            raise PendingAppendsFull(f"{self._pending.waiting} appends wait for a majority; try again later")
        offsets = self._log.append(bodies, node.term)
        self._post_once(Appended)
        self._storage.report_when_safe()
        return offsets

    def when_committed(self, index: int, timeout_ms: int, done: Callable[[AppendResult], None]) -> None:
        """Calls `done` exactly once: committed, not in time, or this member does not lead any longer.

        To be called in the same turn as the `append` of the entry.
        """
        term = self._log.term_of(index)
        if index <= self.committed_index:
            done(AppendResult(AppendOutcome.COMMITTED, term, index))
        elif self._node is None or self.role is not Role.LEADER or term != self.term:
            done(AppendResult(AppendOutcome.ROLE_LOST, term, index))
        else:
            self._pending.wait(term, index, self._now_ms() + timeout_ms, done)
            self._set_pending_alarm()

    async def transfer(self, to_member: str) -> TransferAnswer:
        """Gives the leadership to another member; returns when it leads, or why it does not."""
        if self._node is None:
            return TransferAnswer(RaftCode.NOT_LEADER, self.term)
        number = self._handlers.next_id()
        answer: asyncio.Future[TransferAnswer] = asyncio.get_running_loop().create_future()
        self._transfers[number] = answer
        self._post(Transfer(to_member, number))
        try:
            return await answer
        finally:
            self._transfers.pop(number, None)

    def status(self) -> MemberStatus:
        """Returns what tools may want to know."""
        node = self._node
        return MemberStatus(
            self.group.name,
            self.group.own_id,
            self.role,
            self.term,
            self.leader,
            node is not None and node.joined,
            self._log.begin_index,
            self._log.end_index,
            self._view.synced_index,
            self.committed_index,
            self._pending.waiting,
            tuple(self._peer_status(link) for link in self._links.values()),
        )

    def _peer_status(self, link: PeerLink) -> PeerStatus:
        follower = None if self._node is None else self._node.followers.get(link.peer)
        match_index = None if follower is None else follower.match_index
        return PeerStatus(link.peer, link.address, link.is_reachable, link.is_ours, match_index)

    # events

    def _post(self, event: Event) -> None:
        self._events.append(event)
        self._has_events.set()

    def _post_once(self, kind: type[Appended] | type[Synced]) -> None:
        """Posts that the log has grown or is safe, unless that is the newest event: the node looks itself."""
        if not self._events or type(self._events[-1]) is not kind:
            self._post(kind(self._log.end_index))

    async def _take_events(self) -> None:
        while True:
            try:
                await self._step_all()
            except EXPECTED_FAILURES as error:
                log_line.error("DLedger member %s starts again from disk: %s", self.group.own_id, error)
                await self._start_again()
            except Exception:
                log_line.exception("DLedger member %s failed and starts again from disk", self.group.own_id)
                await self._start_again()

    async def _step_all(self) -> None:
        count = 0
        while True:
            while self._events:
                await self._step(self._events.popleft())
                count += 1
                if count % EVENTS_PER_TURN == 0:
                    await asyncio.sleep(0)
            assert self._node is not None
            self._node_alarm.set(self._node.deadline_ms - self._now_ms())
            self._has_events.clear()
            await self._has_events.wait()

    async def _step(self, event: Event) -> None:
        assert self._node is not None
        for effect in self._node.step(self._now_ms(), event):
            await self._perform(effect)

    async def _perform(self, effect: Effect) -> None:
        match effect:
            case Save():
                await self._storage.save(effect)
            case Truncate():
                await self._storage.truncate(effect, self.leader)
            case AppendEntries(entries):
                self._storage.append(entries)
            case AppendNoOp(term):
                self._append_no_op(term)
            case Send(to, outgoing):
                self._links[to].send(outgoing)
            case Respond(number, answer):
                self._respond(number, answer)
            case RoleChanged():
                self._change_role(effect)
            case Commit(index):
                self._commit(index)

    # effects

    def _append_no_op(self, term: int) -> None:
        try:
            self._log.append([self._no_op(term)], term)
        except OSError as error:
            # The next append of the owner does the same.
            log_line.error("The leader of term %d cannot append its first entry: %s", term, error)
            return
        self._events.appendleft(Appended(self._log.end_index))
        self._storage.report_when_safe()

    def _respond(self, number: int, answer: PeerAnswer) -> None:
        if (waiting := self._transfers.pop(number, None)) is None:
            self._handlers.respond(number, answer)
        elif not waiting.done() and isinstance(answer, TransferAnswer):
            waiting.set_result(answer)

    def _change_role(self, change: RoleChanged) -> None:
        before, self._known = self._known, change
        if before.role is Role.LEADER:
            self._pending.role_lost()
        log_line.info(
            "DLedger group %s: %s is %s in term %d, leader %s",
            *(self.group.name, self.group.own_id, change.role, change.term, change.leader or "unknown"),
        )
        _call(self.on_role_changed, change)

    def _commit(self, index: int) -> None:
        self._log.commit_to(index)
        self._pending.committed(index)
        self._set_pending_alarm()
        _call(self.on_commit, index)

    # failures

    async def _start_again(self) -> None:
        """Ends the node as a crash would, waits, and starts it from what is on disk."""
        while True:
            self._lose_role()
            await self._clock.sleep(RESTART_WAIT_S)
            self._drop_all()
            try:
                await self._load_node()
            except EXPECTED_FAILURES as error:
                log_line.error("DLedger member %s cannot start: %s", self.group.own_id, error)
                continue
            for link in self._links.values():
                self._post(PeerTakesBatches(link.peer, link.is_ours))
            self._post(Tick())
            self._storage.report_when_safe()
            return

    def _lose_role(self) -> None:
        """Ends the role of a node that is no more."""
        self._drop_all()
        self._node = self._encoder.node = None
        if self._known.role is not Role.CANDIDATE or self._known.leader is not None:
            self._change_role(RoleChanged(Role.CANDIDATE, self._known.term, None))
        self._pending.role_lost()

    def _drop_all(self) -> None:
        self._events.clear()
        self._handlers.refuse_all(DLedgerCode.DISK_ERROR)
        for waiting in self._transfers.values():
            if not waiting.done():
                waiting.set_result(TransferAnswer(RaftCode.TAKE_LEADERSHIP_FAILED, self.term))

    # time

    def _now_ms(self) -> int:
        return round(self._clock.monotonic() * 1000)

    def _expire(self) -> None:
        self._pending.expire(self._now_ms())
        self._set_pending_alarm()

    def _set_pending_alarm(self) -> None:
        deadline_ms = self._pending.next_deadline_ms
        self._pending_alarm.set(None if deadline_ms is None else deadline_ms - self._now_ms())

    async def _note_checkpoints(self) -> None:
        while True:
            await self._clock.sleep(CHECKPOINT_INTERVAL_S)
            await self._storage.save_checkpoint()


def _call(callback: Callable[..., None], *arguments: object) -> None:
    """Calls the owner. Its failure must not end the node's step."""
    try:
        callback(*arguments)
    except Exception:
        log_line.exception("A callback of a DLedger member failed")
