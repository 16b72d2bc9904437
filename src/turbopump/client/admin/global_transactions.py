"""Reads the books of global transactions of a cluster, and resolves transactions that wait for an operator.

In: a gid, or what to look for. Out: transactions with their history, as the broker that is the home of their
group keeps them. Brokers of Apache keep none and are skipped.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from turbopump.client.admin.calls import AdminCalls, NotFound
from turbopump.client.admin.clusters import BrokerAt, Clusters
from turbopump.protocol import global_transactions as wire
from turbopump.protocol.addresses import MASTER_ID
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.errors import IllegalOperation, QueryNotFound, RequestNotSupported
from turbopump.protocol.global_transactions import GlobalDecision, GlobalKind, GlobalState, GlobalTransaction
from turbopump.protocol.headers.global_transactions import GlobalReadRequest, GlobalResolveRequest

PAGE = 1000


@dataclass(frozen=True, slots=True)
class BookEntry:
    """A global transaction, and the broker whose book it is in."""

    broker: str
    address: str
    transaction: GlobalTransaction


@dataclass(frozen=True, slots=True)
class GlobalCount:
    """How many global transactions are of one kind and in one state, and when the oldest was opened."""

    kind: GlobalKind
    state: GlobalState
    count: int
    oldest_ms: int


@dataclass(frozen=True, slots=True)
class HistoryEvent:
    """One event in the history of a global transaction: when, what, of which branch, and its data."""

    at_ms: int
    event: str
    branch: str = ""
    data: str = ""


@dataclass(frozen=True, slots=True)
class BranchHistory:
    """A branch of a global transaction, and the last event of it; an empty event: none is recorded."""

    branch: str
    event: str
    at_ms: int


class GlobalTransactions:
    """Lists, shows and resolves global transactions (XA, 3PC, TCC, SAGA) at all brokers of a cluster.

    Example:

        async for entry in admin.global_transactions.all(state="parked"):
            print(entry.broker, entry.transaction.gid, entry.transaction.error)
        await admin.global_transactions.resolve("tp1.…", "retry", "ann", "the bank is open again")
    """

    def __init__(self, asking: AdminCalls) -> None:
        self._asking = asking

    async def all(
        self, kind: str = "", state: str = "", group: str = "", before_ms: int = 0
    ) -> AsyncIterator[BookEntry]:
        """Yields transactions by broker and gid, without their plans and records.

        Empty arguments select all, also those that have ended and are still kept; `before_ms`: opened before.
        Needs Get on the cluster, or Pub or Get on the group if there is one.
        """
        for master in await self._masters():
            after = ""
            while True:
                header = GlobalReadRequest(
                    group=group, kind=kind, state=state, beforeMs=before_ms, after=after, count=PAGE
                )
                page = await self._page(master, header)
                for one in page:
                    yield BookEntry(master.name, master.address, one)
                if len(page) < PAGE:
                    break
                after = page[-1].gid

    async def counts(self, group: str = "") -> list[GlobalCount]:
        """Returns how many transactions there are of each kind and state, also of those that have ended."""
        found: dict[tuple[GlobalKind, GlobalState], list[int]] = {}
        async for entry in self.all(group=group):
            one = entry.transaction
            found.setdefault((one.kind, one.state), []).append(one.opened_ms)
        return [GlobalCount(*key, len(opened), min(opened)) for key, opened in sorted(found.items())]

    async def find(self, gid: str, group: str = "") -> BookEntry:
        """Returns a transaction with its plan and records.

        Raises NotFound when no broker knows it, or when several groups have one of this gid and none is
        given.
        """
        found = [entry for master in await self._masters() if (entry := await self._read(master, gid, group))]
        if not found:
            of_group = f" of group {group}" if group else ""
            raise NotFound(
                f"no broker knows transaction {gid}{of_group}: it was not opened, or ended long ago"
            )
        if len(found) > 1:
            groups = ", ".join(sorted(entry.transaction.group for entry in found))
            raise NotFound(f"several groups have a transaction {gid}: choose one of {groups}")
        return found[0]

    async def resolve(
        self,
        gid: str,
        action: str,
        who: str,
        because: str,
        *,
        branch: str = "",
        heuristic: bool = False,
        group: str = "",
    ) -> BookEntry:
        """Resolves a transaction by hand; `who` and `because` are kept with it.

        `action`: retry has it tried again now, commit and abort decide it, done says that `branch` was ended
        by hand. `heuristic` allows what contradicts its decision. Needs Update on the cluster.

        Raises NotFound, or Refused.
        """
        entry = await self.find(gid, group)
        header = GlobalResolveRequest(
            gid=gid,
            group=entry.transaction.group,
            action=action,
            who=who,
            because=because,
            branch=branch,
            heuristic=heuristic,
        )
        answer = await self._asking.ask(entry.address, RequestCode.GLOBAL_RESOLVE, header)
        return BookEntry(entry.broker, entry.address, wire.read_transaction(answer.body))

    async def _read(self, master: BrokerAt, gid: str, group: str) -> BookEntry | None:
        try:
            header = GlobalReadRequest(gid=gid, group=group)
            answer = await self._asking.ask(master.address, RequestCode.GLOBAL_READ, header)
        except (QueryNotFound, RequestNotSupported, IllegalOperation):  # the last: it is of another group
            return None
        return BookEntry(master.name, master.address, wire.read_transaction(answer.body))

    async def _page(self, master: BrokerAt, header: GlobalReadRequest) -> list[GlobalTransaction]:
        try:
            answer = await self._asking.ask(master.address, RequestCode.GLOBAL_READ, header)
        except RequestNotSupported:
            return []
        return wire.read_transactions(answer.body)

    async def _masters(self) -> list[BrokerAt]:
        layout = await Clusters(self._asking).layout()
        return sorted(
            (one for one in layout.brokers if one.id == MASTER_ID), key=lambda one: (one.name, one.address)
        )


def history(transaction: GlobalTransaction) -> list[HistoryEvent]:
    """Returns what is known of a transaction in the order of time: opened, records, decided, ended."""
    events = [HistoryEvent(transaction.opened_ms, "opened", data=transaction.group)]
    events += [HistoryEvent(one.at_ms, one.event, one.branch, one.data) for one in transaction.records]
    if transaction.decision is not GlobalDecision.NONE:
        words = f"{transaction.decision} by {transaction.decided_by}"
        events.append(HistoryEvent(transaction.decided_ms, "decided", data=words))
    if transaction.state is GlobalState.ENDED:
        events.append(HistoryEvent(transaction.ended_ms, "ended", data=transaction.outcome))
    return sorted(events, key=lambda one: one.at_ms)  # stable: those of one millisecond stay as they are


def branches(transaction: GlobalTransaction) -> list[BranchHistory]:
    """Returns the branches that the decision or a record names, each with the last event of it."""
    last = {name: BranchHistory(name, "", 0) for name in transaction.branches}
    for one in transaction.records:
        if one.branch:
            last[one.branch] = BranchHistory(one.branch, one.event, one.at_ms)
    return list(last.values())
