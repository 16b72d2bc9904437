"""This broker's member of its DLedger group: what it may do now, and committed messages in their queues.

In: role changes and commits of the driver. Out: a store that takes messages only while this member leads, and
`changed`, which is set when another role has to be served. What a role serves is not known here.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from turbopump.broker.config import DLedgerRules
from turbopump.broker.dledger.acknowledgement import QuorumAcknowledgement, promise_of
from turbopump.broker.dledger.table_records import no_op_record
from turbopump.protocol.errors import Refused, ServiceNotAvailable, SystemBusy
from turbopump.raft import Role, RoleChanged
from turbopump.raft.messages import RaftCode
from turbopump.replication.dledger.errors import AppendRefused, PendingAppendsFull
from turbopump.replication.dledger.group import DLedgerGroup, slave_id
from turbopump.replication.dledger.server import DLedgerServer, NodeEnvironment
from turbopump.replication.dledger.timings import DLedgerTimings
from turbopump.runtime.tasks import Tasks
from turbopump.store.dledger.committed import CommittedEntries
from turbopump.store.dledger.entry_log import EntryLog
from turbopump.store.flush import Flusher
from turbopump.store.replica_log import NotACopy

log = logging.getLogger(__name__)

FULL_DISK_WAIT_S = 10.0  # between two hand-overs for want of space: all members may be full


class GroupMember:
    """The member of a DLedger group that this broker is, from `start` to `stop`, whatever role it has."""

    def __init__(
        self,
        rules: DLedgerRules,
        entries: EntryLog,
        committed: CommittedEntries,
        flusher: Flusher,
        environment: NodeEnvironment,
    ) -> None:
        self.group = DLedgerGroup.parse(rules.group, rules.self_id, rules.peers)
        self.changed = asyncio.Event()
        """Set when role, term or leader are other ones; who waits for it clears it."""
        self.on_dispatched: Callable[[], None] = lambda: None
        """Called when committed messages have come to their queues, on a follower."""
        self.trouble: str | None = None
        self.elections = 0
        """How often another leader, or a new term of the same one, became known since the start."""
        self._rules = rules
        self._entries = entries
        self._committed = committed
        self._flusher = flusher
        self._has_committed = asyncio.Event()
        self._acknowledgement: QuorumAcknowledgement | None = None
        self._tasks = Tasks(log)
        self._clock = environment.clock
        self._cannot_write = asyncio.Event()
        now_ms = environment.clock.now_ms
        self.server = DLedgerServer(
            self.group,
            entries,
            flusher,
            environment,
            lambda term: no_op_record(now_ms()),
            self.group.node_config(timings_of(rules), rules.preferred_leaders),
        )
        self.server.on_role_changed = self._role_changed
        self.server.on_commit = self._commit

    async def start(self, host: str) -> None:
        """Begins to look for a leader, and to put committed messages into their queues."""
        await self.server.start(host)
        self._tasks.start(self._dispatch(), name="dispatch committed entries")
        self._tasks.start(self._leave_full_disk(), name="give a leadership away that cannot write")
        self._has_committed.set()

    async def stop(self) -> None:
        await self.server.stop()
        await self._tasks.close()

    # role

    @property
    def term(self) -> int:
        return self.server.term

    @property
    def is_elected(self) -> bool:
        """Whether this member leads its group."""
        return self.server.role is Role.LEADER

    @property
    def is_complete(self) -> bool:
        """Whether all entries are committed, and their messages in the queues: then a leader may serve."""
        return self._entries.committed == self._entries.end and not self._committed.is_behind

    @property
    def slave_id(self) -> int:
        """The broker id of this member while it does not lead."""
        return slave_id(self.group.own_id)

    def broker_id_of(self, member: str) -> int:
        """Returns the broker id of another member; -1 where its id has no number."""
        try:
            return slave_id(member)
        except ValueError:
            return -1

    def index_of(self, offset: int) -> int:
        """Returns the index of the entry with the record at a log offset, until its sender was answered."""
        return self._committed.index_of(offset)

    def offset_behind(self, index: int | None) -> int:
        """Returns the log offset behind an entry; 0 for one that this log does not have."""
        return 0 if index is None or not self._entries.has(index) else self._entries.end_of(index)

    def lead(self, timeout_ms: Callable[[], int]) -> QuorumAcknowledgement:
        """Lets messages be stored in this term; returns the rule by which they are answered."""
        assert self.is_elected, "only a leader may store messages"
        self._acknowledgement = self.acknowledgement(timeout_ms)
        self._committed.lead(self._append)
        return self._acknowledgement

    async def hand_over(self) -> None:
        """Gives the leadership to the follower with the longest log.

        A broker that stops without it leaves a group that waits until its heartbeats are missed; one that
        cannot write would lead a group that takes nothing.
        """
        if not self.is_elected:
            return
        reached = [peer for peer in self.server.status().peers if peer.is_reachable]
        if not reached:
            return
        best = max(reached, key=lambda peer: -1 if peer.match_index is None else peer.match_index)
        answer = await self.server.transfer(best.member)
        if answer.code is RaftCode.SUCCESS:
            log.info("Gave the leadership to %s", best.member)
        else:
            log.warning("%s did not take the leadership: %s", best.member, answer.code.name)

    def follow(self) -> None:
        """Stores no messages any longer."""
        if self._acknowledgement is not None:
            self._acknowledgement.end_leadership()
            self._acknowledgement = None
        self._committed.follow()
        self._has_committed.set()

    def acknowledgement(self, timeout_ms: Callable[[], int]) -> QuorumAcknowledgement:
        """Returns the rule of the present term."""
        on_disk = self._flusher.syncs_each
        members = len(self.group.addresses)
        return QuorumAcknowledgement(
            self._flusher,
            self._entries,
            self.server,
            timeout_ms,
            self.term,
            members // 2 + 1,
            on_disk,
            promise_of(self.group.name, members, on_disk),
        )

    def _role_changed(self, change: RoleChanged) -> None:
        if self._acknowledgement is not None:
            self.follow()
        self.elections += change.leader is not None
        self.changed.set()

    def _append(self, bodies: Sequence[bytes]) -> tuple[int, list[int]]:
        """Appends records as entries of this term. Raises Refused."""
        first = self._entries.next_index
        try:
            return first, self.server.append(bodies)
        except AppendRefused as error:
            raise _refusal(error) from None
        except OSError as error:
            self._cannot_write.set()
            raise ServiceNotAvailable(f"service not available now: {error}") from None

    async def _leave_full_disk(self) -> None:
        """Gives a leadership away when messages could not be written: another member may have space."""
        while True:
            await self._cannot_write.wait()
            if self.is_elected:
                log.warning("%s cannot write and gives its leadership away", self.group.own_id)
                await self.hand_over()
            await self._clock.sleep(FULL_DISK_WAIT_S)
            self._cannot_write.clear()

    # commits

    def _commit(self, index: int) -> None:
        if self._acknowledgement is not None:
            self._committed.advance()
            self._committed.answered()
        else:
            self._has_committed.set()

    async def _dispatch(self) -> None:
        """Puts what is committed into its queues while this member does not store messages itself."""
        while True:
            await self._has_committed.wait()
            self._has_committed.clear()
            try:
                await self._dispatch_all()
            except NotACopy as error:
                self.trouble = f"a committed entry cannot be read: {error}"
                log.error("Stopped putting messages into queues: %s", self.trouble)
                return
            self.on_dispatched()
            self.changed.set()

    async def _dispatch_all(self) -> None:
        has_more = True
        while has_more and self._acknowledgement is None:
            has_more = self._committed.dispatch()
            await asyncio.sleep(0)  # others are served between two slices


def timings_of(rules: DLedgerRules) -> DLedgerTimings:
    """Returns the intervals of a member; those without a key keep DLedger's proportion to its heartbeats."""
    beat = rules.heartbeat_ms
    return DLedgerTimings(
        heartbeat_interval_ms=beat,
        max_missed_heartbeats=rules.max_missed_heartbeats,
        min_vote_wait_ms=rules.min_vote_wait_ms,
        max_vote_wait_ms=rules.max_vote_wait_ms,
        vote_round_ms=beat,
        shorter_log_wait_ms=max(beat // 2, 1),
        not_follower_wait_ms=max(beat // 4, 1),
        commit_push_ms=max(beat // 2, 1),
        quorum_ack_wait_ms=rules.quorum_timeout_ms,
    )


def _refusal(error: AppendRefused) -> Refused:
    if isinstance(error, PendingAppendsFull):
        return SystemBusy(str(error))
    return ServiceNotAvailable(f"service not available now: {error}")
