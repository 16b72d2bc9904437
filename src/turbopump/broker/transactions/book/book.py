"""The book of global transactions: a state machine without clock, disk and network.

In: what clients and operators ask, with the time. Out: the change that has to be stored, or a refusal. A
change counts when it is applied, and the log applies the same changes again at the next start.

    open ──decide──▶ decided ──append(ended)──▶ ended ──24 h──▶ forgotten
      │                 ▲ │
      └─ past its       │ └──append(parked)──▶ parked ──resolve(retry)──▶ decided or open
         deadline: abort┘

The first decision counts, whoever makes it: the owner, another client that found branches left behind, the
deadline, or an operator. A lease fences: records are taken from the present owner alone.
"""

from collections.abc import Iterator, Sequence
from heapq import nsmallest
from typing import Final

from msgspec.structs import replace

from turbopump.broker.transactions.book.changes import (
    GlobalAppended,
    GlobalChange,
    GlobalClaimed,
    GlobalDecided,
    GlobalForgotten,
    GlobalKept,
    GlobalKeptRecords,
    GlobalOpened,
    GlobalResolved,
    gid_of,
    read_global_change,
)
from turbopump.protocol.errors import (
    Fenced,
    IllegalOperation,
    InvalidParameter,
    QueryNotFound,
    SystemBusy,
)
from turbopump.protocol.global_transactions import (
    GlobalDecision,
    GlobalKind,
    GlobalRecord,
    GlobalState,
    GlobalTransaction,
    entry_of_decision,
)
from turbopump.protocol.ledger import Book
from turbopump.protocol.names import GLOBAL_TOPIC

MAX_OPEN: Final = 100_000  # transactions that have not ended: about 1 KiB of memory each
MAX_BRANCHES: Final = 64
MAX_PLAN_BYTES: Final = 64 << 10
MAX_APPEND_BYTES: Final = 16 << 10  # of the records of one request: fits in a record of a small test log too
MAX_RECORDS: Final = 10_000  # of one transaction
MAX_NAME_BYTES: Final = 64  # of gids and branches: what databases take as part of a transaction's name
MAX_TEXT_BYTES: Final = 1024  # of outcomes, errors and reasons
MAX_DEADLINE_MS: Final = 3_600_000
MAX_LEASE_MS: Final = 600_000
MAX_CLAIMED: Final = 64
KEEP_ENDED_MS: Final = 24 * 3_600_000  # longer than any deadline: a late client is still told what counts
MAX_ENDED: Final = 10_000
DEADLINE: Final = "deadline"
"""Who decided, if the deadline did."""


class GlobalBook:
    """The global transactions that a broker keeps, by gid. Checks and applies changes; stores nothing."""

    topic = GLOBAL_TOPIC
    words = "book of global transactions"

    def __init__(self) -> None:
        self.transactions: dict[str, GlobalTransaction] = {}
        self._open = 0
        self._ended: dict[str, None] = {}  # oldest first
        self._undecided: dict[str, int] = {}  # gid -> deadline

    # changes to store; None: nothing changes

    def open(
        self,
        gid: str,
        group: str,
        kind: GlobalKind,
        plan: str,
        owner: str,
        now_ms: int,
        lease_ms: int,
        deadline_ms: int = 0,
    ) -> GlobalOpened | None:
        """Returns the change that opens a transaction; None: it was opened with the same kind and plan."""
        check_name("gid", gid)
        if (size := len(plan.encode())) > MAX_PLAN_BYTES:
            raise InvalidParameter(f"the plan must have at most {MAX_PLAN_BYTES} bytes, got {size}")
        self._check_deadline(deadline_ms, now_ms)
        known = self.transactions.get(gid)
        if known is not None:
            self._check_same(known, group, kind)
            if known.plan != plan:
                raise IllegalOperation(f"transaction {gid} was opened with another plan: use another gid")
            return None
        self._check_capacity()
        return GlobalOpened(now_ms, gid, group, kind, owner, now_ms + _lease(lease_ms), deadline_ms, plan)

    def append(
        self,
        gid: str,
        group: str,
        lease: int,
        length: int,
        records: Sequence[GlobalRecord],
        now_ms: int,
        lease_ms: int,
        state: str = "",
        outcome: str = "",
        next_try_ms: int = 0,
        error: str = "",
    ) -> GlobalAppended | None:
        """Returns the change that adds records; None: the same request was carried out before.

        Raises Fenced for an earlier lease, IllegalOperation when other records were added meanwhile, and for
        an end before the decision.
        """
        known = self.known(gid, group)
        if lease != known.lease:
            raise Fenced(f"lease {lease} of {gid} has ended: {known.owner} has lease {known.lease}")
        self._check_records(known, records)
        check_text("outcome", outcome)
        check_text("error", error)
        new_state = _state_after(known, state)
        repeated = [replace(one, at_ms=0) for one in known.records[length:]] == list(records)
        if length < len(known.records) and repeated and new_state is known.state:
            return None
        if length != len(known.records):
            raise IllegalOperation(f"{gid} has {len(known.records)} records, not {length}: read it again")
        if known.state is GlobalState.ENDED:
            if not records and new_state is known.state:
                return None
            raise IllegalOperation(f"transaction {gid} has ended: {known.outcome}")
        stamped = tuple(replace(one, at_ms=now_ms) for one in records)
        return GlobalAppended(
            now_ms, gid, stamped, now_ms + _lease(lease_ms), new_state, outcome, next_try_ms, error
        )

    def decide(
        self,
        gid: str,
        group: str,
        kind: GlobalKind,
        decision: GlobalDecision,
        by: str,
        now_ms: int,
        lease_ms: int,
        deadline_ms: int = 0,
        branches: tuple[str, ...] = (),
        brokers: tuple[str, ...] = (),
    ) -> GlobalDecided | None:
        """Returns the change that decides a transaction; None: it is decided, as the book says."""
        check_name("gid", gid)
        if len(branches) > MAX_BRANCHES:
            raise InvalidParameter(
                f"a transaction must have at most {MAX_BRANCHES} branches, got {len(branches)}"
            )
        for name in branches:
            check_name("branch", name)
        if decision is GlobalDecision.NONE:
            raise InvalidParameter("a decision must be commit or abort, got ''")
        known = self.transactions.get(gid)
        if known is None:
            return self._decide_unknown(
                gid, group, kind, decision, by, now_ms, lease_ms, deadline_ms, branches, brokers
            )
        self._check_same(known, group, kind)
        if known.decision is not GlobalDecision.NONE:
            return None
        decision, by = _in_time(decision, by, known.deadline_ms or deadline_ms, now_ms)
        return GlobalDecided(
            now_ms, gid, group, kind, decision, by, branches, brokers, known.deadline_ms, known.lease_until_ms
        )

    def _decide_unknown(
        self,
        gid: str,
        group: str,
        kind: GlobalKind,
        decision: GlobalDecision,
        by: str,
        now_ms: int,
        lease_ms: int,
        deadline_ms: int,
        branches: tuple[str, ...],
        brokers: tuple[str, ...],
    ) -> GlobalDecided:
        """Returns the decision of a transaction that was not opened: by its owner, or by who found branches.

        Such an abort ends it at once, and stays for a client that comes later.
        """
        self._check_deadline(deadline_ms, now_ms)
        self._check_capacity()
        decision, by = _in_time(decision, by, deadline_ms, now_ms)
        is_ended = decision is GlobalDecision.ABORT
        until = 0 if is_ended else now_ms + _lease(lease_ms)
        return GlobalDecided(
            now_ms, gid, group, kind, decision, by, branches, brokers, deadline_ms, until, is_ended
        )

    def claim(
        self, group: str, owner: str, now_ms: int, lease_ms: int, count: int = MAX_CLAIMED
    ) -> list[GlobalClaimed]:
        """Returns changes that give `owner` transactions of the group without an owner, oldest first."""
        until = now_ms + _lease(lease_ms)
        free = (
            one
            for one in self.transactions.values()
            if one.group == group
            and one.state in (GlobalState.OPEN, GlobalState.DECIDED)
            and one.lease_until_ms <= now_ms
            and one.next_try_ms <= now_ms
        )
        chosen = nsmallest(min(count, MAX_CLAIMED), free, key=lambda one: one.opened_ms)
        return [GlobalClaimed(now_ms, one.gid, owner, one.lease + 1, until) for one in chosen]

    def resolve(
        self,
        gid: str,
        group: str,
        action: str,
        who: str,
        because: str,
        now_ms: int,
        branch: str = "",
        heuristic: bool = False,
    ) -> GlobalResolved:
        """Returns the change by which an operator goes on with a transaction that waits for him.

        Raises IllegalOperation for what contradicts the decision, unless `heuristic`.
        """
        known = self.known(gid, group)
        if known.state is GlobalState.ENDED:
            raise IllegalOperation(f"transaction {gid} has ended: {known.outcome or known.decision}")
        if not because or not who:
            raise InvalidParameter("an operator must say who resolves a transaction, and why")
        check_text("reason", because)
        check_text("name", who)
        decision = GlobalDecision.NONE
        if action == "done":
            check_name("branch", branch)
        elif action in ("commit", "abort"):
            decision = GlobalDecision(action)
            if known.decision not in (GlobalDecision.NONE, decision) and not heuristic:
                raise IllegalOperation(
                    f"transaction {gid} is decided: {known.decision}; the opposite is a heuristic decision, "
                    "which leaves its participants in different states"
                )
        elif action != "retry":
            raise InvalidParameter(f"the action must be retry, commit, abort or done, got {action[:40]!r}")
        words = f"{who}: {because}"
        return GlobalResolved(
            now_ms, gid, GlobalRecord(f"resolved-{action}", branch, words, now_ms), decision
        )

    def overdue(self, now_ms: int) -> list[str]:
        """Returns undecided transactions that are past their deadline."""
        return [gid for gid, deadline in self._undecided.items() if deadline <= now_ms]

    def abort_overdue(self, gid: str, now_ms: int) -> GlobalDecided:
        """Returns the change that aborts a transaction not decided in time; any client may claim it."""
        known = self.transactions[gid]
        return GlobalDecided(
            now_ms,
            gid,
            known.group,
            known.kind,
            GlobalDecision.ABORT,
            DEADLINE,
            deadline_ms=known.deadline_ms,
            lease_until_ms=known.lease_until_ms,
        )

    def next_due(self) -> int | None:
        """Returns when a transaction will be overdue or can be forgotten, in milliseconds; None: never."""
        due = [*self._undecided.values()]
        if self._ended:
            due.append(self._next_forgotten())
        return min(due, default=None)

    def due(self, gid: str) -> int | None:
        """Returns when a transaction will be overdue, or the oldest can be forgotten; None: never."""
        return self._next_forgotten() if gid in self._ended else self._undecided.get(gid)

    def _next_forgotten(self) -> int:
        ended_ms = self.transactions[next(iter(self._ended))].ended_ms
        return ended_ms if len(self._ended) > MAX_ENDED else ended_ms + KEEP_ENDED_MS

    def forgettable(self, now_ms: int, count: int) -> list[GlobalForgotten]:
        """Returns changes that forget transactions that ended long ago, or of which there are too many."""
        found: list[GlobalForgotten] = []
        surplus = len(self._ended) - MAX_ENDED
        for gid in self._ended:
            is_old = self.transactions[gid].ended_ms + KEEP_ENDED_MS <= now_ms
            if len(found) == count or not (is_old or len(found) < surplus):
                break
            found.append(GlobalForgotten(gid))
        return found

    # state

    def known(self, gid: str, group: str) -> GlobalTransaction:
        """Returns a transaction. Raises QueryNotFound, and IllegalOperation for one of another group."""
        known = self.transactions.get(gid)
        if known is None:
            raise QueryNotFound(f"transaction {gid} is not known here: it was not opened, or ended long ago")
        if known.group != group:
            raise IllegalOperation(f"transaction {gid} belongs to group {known.group}, not {group}")
        return known

    def page(
        self, group: str, kind: str, state: str, before_ms: int, after: str, count: int
    ) -> list[GlobalTransaction]:
        """Returns up to `count` transactions, by gid, without their plans and records."""
        found = (
            one
            for one in self.transactions.values()
            if one.gid > after
            and (not group or one.group == group)
            and (not kind or one.kind == kind)
            and (not state or one.state == state)
            and (not before_ms or one.opened_ms < before_ms)
        )
        chosen = nsmallest(count, found, key=lambda one: one.gid)
        return [replace(one, plan="", records=[]) for one in chosen]

    def view(self, gid: str, home: str) -> Book:
        """Returns the decision of a transaction as the ledger's book about its messages.

        A transaction is opened before its first message. So messages of one that is not known belong to one
        that was aborted and forgotten: those that commit are kept until all their messages are settled.
        """
        known = self.transactions.get(gid)
        if known is None:
            return Book(home, decided={0: entry_of_decision(gid, GlobalDecision.ABORT)}, highest=0)
        if known.decision is GlobalDecision.NONE:
            return Book(home)
        return Book(home, decided={0: entry_of_decision(gid, known.decision)}, highest=0)

    def snapshot(self, gid: str) -> list[GlobalChange]:
        """Returns the changes that, applied in order, make a transaction as it is now."""
        known = self.transactions[gid]
        changes: list[GlobalChange] = [GlobalKept(replace(known, records=[]))]
        first = 0
        for records in _slices(known.records):
            changes.append(GlobalKeptRecords(gid, first, tuple(records)))
            first += len(records)
        return changes

    @property
    def open_count(self) -> int:
        """The number of transactions that have not ended."""
        return self._open

    # storing and applying changes

    def read(self, body: bytes) -> GlobalChange:
        """Decodes a stored change. Raises BrokenBody."""
        return read_global_change(body)

    def key(self, change: GlobalChange) -> str:
        return gid_of(change)

    def removes(self, change: GlobalChange) -> bool:
        return isinstance(change, GlobalForgotten)

    def apply(self, change: GlobalChange, at_ms: int = 0) -> None:
        """Applies a change; `at_ms` is not used, since changes have their times.

        Changes are applied in the order of the log. At a start its oldest part may be missing: then changes
        of transactions that are not known come first, and those transactions as a whole come later.
        """
        gid = gid_of(change)
        self._put(gid, _after(self.transactions.get(gid), change))

    def _put(self, gid: str, new: GlobalTransaction | None) -> None:
        """Replaces what is known of a transaction; None: forgets it."""
        old = self.transactions.pop(gid, None) if new is None else self.transactions.get(gid)
        self._open += _is_open(new) - _is_open(old)
        self._ended.pop(gid, None)
        self._undecided.pop(gid, None)
        if new is None:
            return
        self.transactions[gid] = new
        if new.state is GlobalState.ENDED:
            self._ended[gid] = None
        if new.decision is GlobalDecision.NONE and new.deadline_ms:
            self._undecided[gid] = new.deadline_ms

    # checks

    def _check_same(self, known: GlobalTransaction, group: str, kind: GlobalKind) -> None:
        if (known.group, known.kind) != (group, kind):
            raise IllegalOperation(
                f"transaction {known.gid} is of kind {known.kind} and group {known.group}, "
                f"not {kind} and {group}"
            )

    def _check_capacity(self) -> None:
        if self._open >= MAX_OPEN:
            raise SystemBusy(
                f"{self._open} global transactions have not ended: "
                "`turbopump transactions list` shows them, the oldest first"
            )

    def _check_deadline(self, deadline_ms: int, now_ms: int) -> None:
        if deadline_ms < 0 or deadline_ms > now_ms + MAX_DEADLINE_MS:
            raise InvalidParameter(
                f"a deadline must be at most {MAX_DEADLINE_MS // 60_000} minutes ahead, "
                f"got {(deadline_ms - now_ms) // 1000} s"
            )

    def _check_records(self, known: GlobalTransaction, records: Sequence[GlobalRecord]) -> None:
        if (size := sum(one.size for one in records)) > MAX_APPEND_BYTES:
            raise InvalidParameter(f"records must have at most {MAX_APPEND_BYTES} bytes, got {size}")
        if len(known.records) + len(records) > MAX_RECORDS:
            raise IllegalOperation(f"transaction {known.gid} must have at most {MAX_RECORDS} records")


def check_name(what: str, name: str) -> None:
    """Raises InvalidParameter for a gid or branch that databases would not take as part of a name."""
    plain = name.isascii() and name.isprintable() and not set(name) & set(" ,;'\"\\/")
    if not plain or not 0 < len(name) <= MAX_NAME_BYTES:
        raise InvalidParameter(
            f"a {what} must be 1 to {MAX_NAME_BYTES} ASCII characters without space, comma, quote or slash, "
            f"got {name[:40]!r}"
        )


def check_text(what: str, text: str) -> None:
    if (size := len(text.encode())) > MAX_TEXT_BYTES:
        raise InvalidParameter(f"the {what} must have at most {MAX_TEXT_BYTES} bytes, got {size}")


def _lease(lease_ms: int) -> int:
    if not 0 < lease_ms <= MAX_LEASE_MS:
        raise InvalidParameter(f"a lease must be 1 to {MAX_LEASE_MS} ms, got {lease_ms}")
    return lease_ms


def _in_time(decision: GlobalDecision, by: str, deadline_ms: int, now_ms: int) -> tuple[GlobalDecision, str]:
    """Returns the decision and who made it: past the deadline it is an abort."""
    if decision is GlobalDecision.COMMIT and 0 < deadline_ms <= now_ms:
        return GlobalDecision.ABORT, DEADLINE
    return decision, by


def _state_after(known: GlobalTransaction, asked: str) -> GlobalState:
    """Returns the state after an append. Raises for an end before the decision, and other states."""
    if asked == GlobalState.ENDED:
        if known.decision is GlobalDecision.NONE:
            raise IllegalOperation(f"transaction {known.gid} must be decided before it can end")
        return GlobalState.ENDED
    if asked == GlobalState.PARKED:
        return GlobalState.PARKED
    if asked:
        raise InvalidParameter(f"the state must be parked, ended or empty, got {asked[:40]!r}")
    return known.state


def _after(known: GlobalTransaction | None, change: GlobalChange) -> GlobalTransaction | None:
    """Returns a transaction after a change; None: it is not known."""
    match change:
        case GlobalOpened():
            return _opened(change)
        case GlobalDecided():
            return _decided(known, change)
        case GlobalKept():
            return replace(change.transaction, records=known.records if known else [])
        case GlobalForgotten():
            return None
    if known is None:
        return None
    match change:
        case GlobalAppended():
            return _appended(known, change)
        case GlobalClaimed():
            return replace(
                known, owner=change.owner, lease=change.lease, lease_until_ms=change.lease_until_ms
            )
        case GlobalResolved():
            return _resolved(known, change)
        case GlobalKeptRecords():
            end = change.first + len(change.records)
            return replace(
                known, records=[*known.records[: change.first], *change.records, *known.records[end:]]
            )


def _opened(change: GlobalOpened) -> GlobalTransaction:
    return GlobalTransaction(
        change.gid,
        change.group,
        change.kind,
        plan=change.plan,
        opened_ms=change.at_ms,
        deadline_ms=change.deadline_ms,
        owner=change.owner,
        lease=1,
        lease_until_ms=change.lease_until_ms,
    )


def _decided(known: GlobalTransaction | None, change: GlobalDecided) -> GlobalTransaction:
    if known is None:
        known = GlobalTransaction(
            change.gid,
            change.group,
            change.kind,
            opened_ms=change.at_ms,
            deadline_ms=change.deadline_ms,
            owner=change.by,
            lease=1,
            lease_until_ms=change.lease_until_ms,
        )
    return replace(
        known,
        state=GlobalState.ENDED if change.is_ended else GlobalState.DECIDED,
        decision=change.decision,
        decided_by=change.by,
        decided_ms=change.at_ms,
        branches=change.branches,
        brokers=change.brokers,
        ended_ms=change.at_ms if change.is_ended else 0,
        outcome="aborted" if change.is_ended else "",
        next_try_ms=0,
    )


def _appended(known: GlobalTransaction, change: GlobalAppended) -> GlobalTransaction:
    return replace(
        known,
        records=[*known.records, *change.records],
        state=change.state,
        lease_until_ms=change.lease_until_ms,
        outcome=change.outcome or known.outcome,
        next_try_ms=change.next_try_ms,
        error=change.error,
        ended_ms=change.at_ms if change.state is GlobalState.ENDED else 0,
    )


def _resolved(known: GlobalTransaction, change: GlobalResolved) -> GlobalTransaction:
    """Returns the transaction free for the next claim, with a lease that fences its present owner."""
    decision = change.decision or known.decision
    is_decided = decision is not GlobalDecision.NONE
    return replace(
        known,
        records=[*known.records, change.record],
        state=GlobalState.DECIDED if is_decided else GlobalState.OPEN,
        decision=decision,
        decided_by=known.decided_by if decision is known.decision else change.record.data,
        decided_ms=known.decided_ms or (change.at_ms if is_decided else 0),
        lease=known.lease + 1,
        lease_until_ms=0,
        next_try_ms=0,
        error="",
    )


def _is_open(transaction: GlobalTransaction | None) -> bool:
    return transaction is not None and transaction.state is not GlobalState.ENDED


def _slices(records: Sequence[GlobalRecord]) -> Iterator[list[GlobalRecord]]:
    """Yields the records in parts that fit into a record of the log."""
    part: list[GlobalRecord] = []
    size = 0
    for one in records:
        if part and size + one.size > MAX_APPEND_BYTES:
            yield part
            part, size = [], 0
        part.append(one)
        size += one.size
    if part:
        yield part
