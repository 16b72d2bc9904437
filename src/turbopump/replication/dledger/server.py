"""One member of a DLedger group: its parts, its life, and what its owner may ask.

In: requests of other members, answers to its own, syncs, timers, and records that its owner appends. Out:
answers and requests, entries in the log, and calls to the owner when role or commit index change.

All events pass one queue (`node_runner.py`); what the node wants done is done by `effects.py`.
"""

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from turbopump.protocol.addresses import split_address
from turbopump.protocol.dledger.codes import DLedgerCode
from turbopump.raft import (
    Appended,
    AppendOutcome,
    AppendResult,
    Eligible,
    Node,
    NodeConfig,
    Role,
    RoleChanged,
    Synced,
    Tick,
    Transfer,
)
from turbopump.raft.messages import RaftCode, TransferAnswer
from turbopump.remoting.client import Client
from turbopump.remoting.connection import Sign
from turbopump.remoting.limits import Limits
from turbopump.remoting.links import Link
from turbopump.remoting.router import Router
from turbopump.remoting.server import Server
from turbopump.replication.dledger.commit_waits import CommitWaits
from turbopump.replication.dledger.effects import EffectPerformer, OwnerCalls, Waiters
from turbopump.replication.dledger.entry_log_view import EntryLogView
from turbopump.replication.dledger.errors import (
    AppendRefused,
    LeadershipMoving,
    NotLeading,
    PendingAppendsFull,
)
from turbopump.replication.dledger.event_queue import EventQueue
from turbopump.replication.dledger.group import DLedgerGroup
from turbopump.replication.dledger.handlers import MemberHandlers
from turbopump.replication.dledger.node_runner import NodeRunner
from turbopump.replication.dledger.node_storage import NodeStorage
from turbopump.replication.dledger.peer_link import PeerLink
from turbopump.replication.dledger.request_encoder import RequestEncoder
from turbopump.replication.dledger.status import MemberStatus, PeerStatus
from turbopump.replication.dledger.transfers import PendingTransfers
from turbopump.runtime.chance import Chance
from turbopump.runtime.clock import Clock
from turbopump.runtime.disk import Workers
from turbopump.runtime.network import Network
from turbopump.runtime.tasks import Tasks
from turbopump.store.dledger.entry_log import EntryLog
from turbopump.store.flush import Flusher

log_line = logging.getLogger(__name__)

CHECKPOINT_INTERVAL_S = 3.0  # between notes of how far the log is committed
NO_OP_RETRY_S = 1.0  # after a leader could not write its first entry
MAX_CONNECTIONS = 256  # to the DLedger port: each member has one or two, tools a few
MAX_REQUESTS = 4096
"""Requests of one connection that are not answered: a leader has 1,000 pushes under way, and repeats some."""


@dataclass(frozen=True, slots=True)
class NodeEnvironment:
    """What a member uses of the world: time, network, chance, and threads for its disk."""

    clock: Clock
    network: Network
    chance: Chance
    workers: Workers
    sign: Sign | None = None
    """Signs what the member asks of others; None: nothing is signed."""
    before: Sequence[Link] = ()
    """The checks that each request of another member passes before its handler."""


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
        self.on_cannot_lead: Callable[[], None] = lambda: None
        """Called when this leader cannot write the first entry of its term: it commits nothing."""
        self._no_op = no_op
        self._log = log
        self._clock = environment.clock
        self._tasks = Tasks(log_line)
        self._events = EventQueue()
        self._view = EntryLogView(log, flusher.syncs_each)
        self._storage = NodeStorage(log, flusher, environment.workers, self._synced)
        self._listen(environment)
        self._dial(environment)
        self._waits = CommitWaits(environment.clock)
        self._transfers = PendingTransfers()
        owner = OwnerCalls(
            lambda change: self.on_role_changed(change),
            lambda index: self.on_commit(index),
            no_op,
            self._no_op_failed,
        )
        waiters = Waiters(self._handlers, self._waits, self._transfers)
        self._effects = EffectPerformer(group, log, self._storage, self._links, waiters, self._events, owner)
        self._runner = NodeRunner(
            group.own_id,
            self._storage.saved_state,
            lambda saved: Node(config or group.node_config(), saved, self._view, environment.chance),
            self._events,
            self._effects,
            environment.workers,
            environment.clock,
        )

    def _listen(self, environment: NodeEnvironment) -> None:
        self._handlers = MemberHandlers(self.group, self._log, self, self._events.post)
        self._router = Router(self._handlers.routes(), before=environment.before)
        limits = Limits(max_connections=MAX_CONNECTIONS, requests_in_flight=MAX_REQUESTS)
        self._server = Server(self._router, environment.network, environment.clock, limits)

    def _dial(self, environment: NodeEnvironment) -> None:
        group = self.group
        self._client = Client(environment.network, environment.clock, sign=environment.sign)
        encoder = RequestEncoder(group, self._log, lambda: self._runner.node)
        self._links = {
            peer: PeerLink(peer, group.addresses[peer], self._client, encoder.command, self._events.post)
            for peer in group.peers
        }

    # life

    async def start(self, host: str = "") -> int:
        """Loads the vote, listens and begins to look for a leader; returns the port.

        Listens on `host`, or on that of `dLegerPeers`. Raises OSError, or UnusableStore.
        """
        await self._runner.start()
        own_host, port = split_address(self.group.own_address)
        port = await self._server.start(host or own_host, port)
        self._tasks.start(self._runner.run(), name=f"DLedger member {self.group.own_id}")
        self._tasks.start(self._note_checkpoints(), name="checkpoint of DLedger's log")
        self._events.post(Tick())
        return port

    async def stop(self) -> None:
        """Leaves the group; everything that waits is answered. The log stays open."""
        self._storage.stop()
        await self._tasks.close()
        for link in self._links.values():
            await link.close()
        self._handlers.refuse_all(DLedgerCode.ILLEGAL_MEMBER_STATE)
        await self._server.stop(0)
        await self._router.close()
        await self._client.close()
        self._runner.end()
        await self._storage.save_checkpoint()

    async def _note_checkpoints(self) -> None:
        while True:
            await self._clock.sleep(CHECKPOINT_INTERVAL_S)
            await self._storage.save_checkpoint()

    def _synced(self) -> None:
        self._events.post_once(Synced(self._log.end_index))

    def _no_op_failed(self, term: int) -> None:
        self._tasks.start(self._repeat_no_op(term), name="first entry of a leader")
        self.on_cannot_lead()

    async def _repeat_no_op(self, term: int) -> None:
        """Appends the first entry of this leader as soon as the disk has space, while it leads."""
        while True:
            await self._clock.sleep(NO_OP_RETRY_S)
            if self.role is not Role.LEADER or self.term != term or self._log.end_term == term:
                return
            with contextlib.suppress(OSError, AppendRefused):  # another role is about to be known
                self.append([self._no_op(term)])

    # what the owner may ask

    @property
    def role(self) -> Role:
        """What this member does; never more than its owner was told."""
        return self._effects.known.role

    @property
    def term(self) -> int:
        return self._effects.known.term

    @property
    def leader(self) -> str | None:
        """Id of the leader; None while none is known."""
        return self._effects.known.leader

    @property
    def is_leader_ours(self) -> bool:
        """Whether the leader, which must be known, is this member or runs a program of ours."""
        assert self.leader is not None, "no leader is known"
        return self.leader == self.group.own_id or self._handlers.is_ours(self.leader)

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
        node = self._runner.node
        # While a step is performed the node may have another role than the owner knows.
        leads = node is not None and node.role is Role.LEADER and self.role is Role.LEADER
        if node is None or not leads or node.term != self.term:
            leader = None if self.role is Role.LEADER else self.leader
            address = None if leader is None else self.leader_address
            raise NotLeading(self.group.own_id, leader, address)
        if node.transferring_to is not None:
            raise LeadershipMoving(node.transferring_to)
        if self._waits.is_full:
            raise PendingAppendsFull(f"{self._waits.waiting} appends wait for a majority; try again later")
        offsets = self._log.append(bodies, node.term)
        self._events.post_once(Appended(self._log.end_index))
        self._storage.report_when_safe()
        return offsets

    def when_committed(self, index: int, timeout_ms: int, done: Callable[[AppendResult], None]) -> None:
        """Calls `done` exactly once: committed, not in time, or this member does not lead any longer.

        To be called in the same turn as the `append` of the entry.
        """
        term = self._log.term_of(index)
        if index <= self.committed_index:
            done(AppendResult(AppendOutcome.COMMITTED, term, index))
        elif self._runner.node is None or self.role is not Role.LEADER or term != self.term:
            done(AppendResult(AppendOutcome.ROLE_LOST, term, index))
        else:
            self._waits.wait(term, index, timeout_ms, done)

    def may_lead(self, is_eligible: bool) -> None:
        """Says whether this member may be elected; False: it still follows and votes.

        It does not end a leadership: `transfer` gives that away.
        """
        self._effects.is_eligible = is_eligible
        self._events.post(Eligible(is_eligible))

    async def transfer(self, to_member: str) -> TransferAnswer:
        """Gives the leadership to another member; returns when it leads, or why it does not."""
        if self._runner.node is None:
            return TransferAnswer(RaftCode.NOT_LEADER, self.term)
        number = self._handlers.next_id()
        self._events.post(Transfer(to_member, number))
        return await self._transfers.outcome(number)

    def status(self) -> MemberStatus:
        """Returns what tools may want to know."""
        node = self._runner.node
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
            self._waits.waiting,
            tuple(self._peer_status(link) for link in self._links.values()),
        )

    def _peer_status(self, link: PeerLink) -> PeerStatus:
        node = self._runner.node
        follower = None if node is None else node.followers.get(link.peer)
        match_index = None if follower is None else follower.match_index
        return PeerStatus(link.peer, link.address, link.is_reachable, link.is_ours, match_index)
