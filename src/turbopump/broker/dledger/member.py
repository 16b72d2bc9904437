"""This broker's member of its DLedger group: what it may do now, and committed messages in their queues.

In: role changes and commits of the driver. Out: a store that takes messages only while this member leads, and
`changed`, which is set when another role has to be served. What a role serves is not known here.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Literal

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

HAND_OVER_WAIT_S = 10.0  # between two hand-overs of a leader that cannot serve: nobody else may be able to
Work = Literal["queues", "role"]
RETRY_S = 1.0  # after committed messages could not be put into their queues


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
        self._troubles: dict[Work, str] = {}
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
        self._cannot_serve = asyncio.Event()
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
        self.server.on_cannot_lead = self._cannot_serve.set

    async def start(self, host: str) -> None:
        """Begins to look for a leader, and to put committed messages into their queues."""
        await self.server.start(host)
        self._tasks.start(self._dispatch(), name="dispatch committed entries")
        self._tasks.start(self._leave(), name="give a leadership away that cannot be served")
        self._has_committed.set()

    async def stop(self) -> None:
        await self.server.stop()
        await self._tasks.close()

    # role

    @property
    def trouble(self) -> str | None:
        """Why this member does not do its work: then it does not stand for election. None: it does."""
        return next(iter(self._troubles.values()), None)

    @property
    def term(self) -> int:
        return self.server.term

    @property
    def is_elected(self) -> bool:
        """Whether this member leads its group."""
        return self.server.role is Role.LEADER

    @property
    def is_complete(self) -> bool:
        """Whether all entries are committed, and their messages in the queues: then a leader may serve.

        Its first entry is one of them.
        """
        entries = self._entries
        is_begun = entries.end_term == self.term and entries.committed == entries.end
        return is_begun and not self._committed.is_behind

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
            self._cannot_serve.set()
            raise ServiceNotAvailable(f"service not available now: {error}") from None

    async def _leave(self) -> None:
        """Gives a leadership away that cannot be served: messages cannot be written, or not be read.

        Another member may have space, or a log that is not damaged.
        """
        while True:
            await self._cannot_serve.wait()
            if self.is_elected:
                log.warning(
                    "%s cannot serve and gives its leadership away: %s",
                    *(self.group.own_id, self.trouble or "it cannot write"),
                )
                await self.hand_over()
            await self._clock.sleep(HAND_OVER_WAIT_S)
            if self.trouble is None:
                self._cannot_serve.clear()

    def failed(self, work: Work, trouble: str) -> None:
        """Notes that this member cannot do its work: it gives a leadership away, and stands for none."""
        if trouble != self._troubles.get(work):
            log.error("%s does not stand for election: %s", self.group.own_id, trouble)
        self._troubles[work] = trouble
        self.server.may_lead(False)
        self._cannot_serve.set()

    def recovered(self, work: Work) -> None:
        """Notes that this member does its work again."""
        if (trouble := self._troubles.pop(work, None)) is not None:
            log.warning("%s goes on; what kept it from its work is over: %s", self.group.own_id, trouble)
            self.server.may_lead(not self._troubles)

    # commits

    def _commit(self, index: int) -> None:
        if self._acknowledgement is None:
            self._has_committed.set()
            return
        try:
            self._committed.advance()
            self._committed.answered()
        except Exception as error:
            self.failed("queues", f"committed messages cannot be put into their queues: {error}")
            raise

    async def _dispatch(self) -> None:
        """Puts what is committed into its queues while this member does not store messages itself."""
        while True:
            await self._has_committed.wait()
            self._has_committed.clear()
            try:
                await self._dispatch_all()
                self.on_dispatched()
            except NotACopy as error:
                await self._wait_to_retry(f"a committed entry cannot be read: {error}")
            except Exception as error:
                name = type(error).__name__
                if self.trouble is None:
                    log.exception("Cannot put committed messages into their queues; trying again")
                await self._wait_to_retry(
                    f"committed messages cannot be put into their queues: {name}: {error}"
                )
            else:
                self.recovered("queues")
                self.changed.set()

    async def _wait_to_retry(self, trouble: str) -> None:
        self.failed("queues", trouble)
        await self._clock.sleep(RETRY_S)
        self._has_committed.set()

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
    )


def _refusal(error: AppendRefused) -> Refused:
    if isinstance(error, PendingAppendsFull):
        return SystemBusy(str(error))
    return ServiceNotAvailable(f"service not available now: {error}")
