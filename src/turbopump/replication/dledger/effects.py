"""What a node wants done, done: on disk, on the wire, and to the owner.

In: the effects of a step, one after the other. Out: writes, requests, answers, and calls to the owner. Which
effects there are, and why, is not decided here (`raft`); nor is their order.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from turbopump.protocol.dledger.codes import DLedgerCode
from turbopump.raft import (
    Appended,
    AppendEntries,
    AppendNoOp,
    Commit,
    Effect,
    Eligible,
    PeerTakesBatches,
    Respond,
    Role,
    RoleChanged,
    Save,
    Send,
    Tick,
    Truncate,
)
from turbopump.raft.messages import PeerAnswer
from turbopump.replication.dledger.commit_waits import CommitWaits
from turbopump.replication.dledger.event_queue import EventQueue
from turbopump.replication.dledger.group import DLedgerGroup
from turbopump.replication.dledger.handlers import MemberHandlers
from turbopump.replication.dledger.node_storage import NodeStorage
from turbopump.replication.dledger.peer_link import PeerLink
from turbopump.replication.dledger.transfers import PendingTransfers
from turbopump.store.dledger.entry_log import EntryLog

log_line = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OwnerCalls:
    """What the owner of a member is called for, and asked for."""

    role_changed: Callable[[RoleChanged], None]
    committed: Callable[[int], None]
    no_op: Callable[[int], bytes]
    """Makes the record that a new leader of a term appends."""
    no_op_failed: Callable[[int], None]
    """The leader of this term could not append its first entry: it can commit nothing."""


@dataclass(frozen=True, slots=True)
class Waiters:
    """Those who wait for the node: other members, the owner's appends and transfers."""

    handlers: MemberHandlers
    commits: CommitWaits
    transfers: PendingTransfers


class EffectPerformer:
    """Performs effects of the present node; `known` is the role that everybody was told."""

    def __init__(
        self,
        group: DLedgerGroup,
        log: EntryLog,
        storage: NodeStorage,
        links: Mapping[str, PeerLink],
        waiters: Waiters,
        events: EventQueue,
        owner: OwnerCalls,
    ) -> None:
        self.known = RoleChanged(Role.CANDIDATE, 0, None)
        self.is_eligible = True
        """Whether this member may lead, as its owner says; each new node is told."""
        self._group = group
        self._log = log
        self._storage = storage
        self._links = links
        self._waiters = waiters
        self._events = events
        self._owner = owner

    async def perform(self, effect: Effect) -> None:
        """Returns when it is done. Raises OSError, or MisplacedEntry, when it cannot be."""
        match effect:
            case Save():
                await self._storage.save(effect)
            case Truncate():
                await self._storage.truncate(effect, self.known.leader)
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

    def _append_no_op(self, term: int) -> None:
        try:
            self._log.append([self._owner.no_op(term)], term)
        except OSError as error:
            log_line.error("The leader of term %d cannot append its first entry: %s", term, error)
            _call(self._owner.no_op_failed, term)
            return
        self._events.post_first(Appended(self._log.end_index))
        self._storage.report_when_safe()

    def _respond(self, number: int, answer: PeerAnswer) -> None:
        if not self._waiters.transfers.answered(number, answer):
            self._waiters.handlers.respond(number, answer)

    def _change_role(self, change: RoleChanged) -> None:
        before, self.known = self.known, change
        if before.role is Role.LEADER:
            self._waiters.commits.role_lost()
        log_line.info(
            "DLedger group %s: %s is %s in term %d, leader %s",
            *(self._group.name, self._group.own_id, change.role, change.term, change.leader or "unknown"),
        )
        _call(self._owner.role_changed, change)

    def _commit(self, index: int) -> None:
        self._log.commit_to(index)
        self._waiters.commits.committed(index)
        _call(self._owner.committed, index)

    # a node that ends, and one that begins

    def lose_role(self) -> None:
        """Ends the role of a node that is no more, and answers all who wait for it."""
        self.drop_all()
        if self.known.role is not Role.CANDIDATE or self.known.leader is not None:
            self._change_role(RoleChanged(Role.CANDIDATE, self.known.term, None))
        self._waiters.commits.role_lost()

    def drop_all(self) -> None:
        """Forgets events, and refuses requests, that no node will take in."""
        self._events.clear()
        self._waiters.handlers.refuse_all(DLedgerCode.DISK_ERROR)
        self._waiters.transfers.fail_all(self.known.term)

    def tell_all(self) -> None:
        """Posts what a node has to know that takes the place of another one."""
        for link in self._links.values():
            self._events.post(PeerTakesBatches(link.peer, link.is_ours))
        self._events.post(Eligible(self.is_eligible))
        self._events.post(Tick())
        self._storage.report_when_safe()


def _call(callback: Callable[..., None], *arguments: object) -> None:
    """Calls the owner. Its failure must not end the node's step."""
    try:
        callback(*arguments)
    except Exception:
        log_line.exception("A callback of a DLedger member failed")
