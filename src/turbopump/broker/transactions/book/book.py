"""The book of global transactions: a state machine without clock, disk and network.

In: what clients and operators ask, with the time. Out: the change that has to be stored, or a refusal. A
change counts when it is applied, and the log applies the same changes again at the next start.

    open ──decide──▶ decided ──append(ended)──▶ ended ──24 h──▶ forgotten
      │                 ▲ │
      └─ past its       │ └──append(parked)──▶ parked ──resolve(retry)──▶ decided or open
         deadline: abort┘

The first decision counts, from any side: the owner, another client that found branches left behind, the
deadline, or an operator. A lease fences: records are taken from the present owner alone.
"""

import sys
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
from turbopump.broker.transactions.book.due_times import DueTimes
from turbopump.broker.transactions.book.names import check_name, check_owner, check_text, checked_lease
from turbopump.broker.transactions.book.transitions import after
from turbopump.protocol.errors import (
    Fenced,
    IllegalOperation,
    InvalidParameter,
    QueryNotFound,
    SystemBusy,
)
from turbopump.protocol.global_transactions import (
    LAST_RESOURCE_PREFIX,
    MAX_APPEND_BYTES,
    MAX_BRANCHES,
    MAX_DEADLINE_MS,
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
MAX_PLAN_BYTES: Final = 64 << 10
MAX_RECORDS: Final = 10_000  # of one transaction
MAX_HISTORY_BYTES: Final = 1 << 20  # plan and records of one transaction: an answer with them fits in a frame
MAX_BOOK_BYTES: Final = 256 << 20  # of all plans and records
MAX_BROKERS: Final = 1024  # that have messages of one transaction
MAX_CLAIMED: Final = 64
MAX_CLAIMED_BYTES: Final = 2 << 20  # of the plans and records in one answer
KEEP_ENDED_MS: Final = 24 * 3_600_000
MAX_ENDED: Final = 10_000  # of each decision; aborted ones stay until no late commit can come, however many
MAX_ABORTED: Final = 100_000
CLAIMED_STATES: Final = frozenset((GlobalState.OPEN, GlobalState.DECIDED))
DEADLINE: Final = "deadline"
"""Who decided, if the deadline did."""


class GlobalBook:
    """The global transactions that a broker keeps, by gid. Checks and applies changes; stores nothing."""

    topic = GLOBAL_TOPIC
    words = "book of global transactions"

    def __init__(self) -> None:
        self.transactions: dict[str, GlobalTransaction] = {}
        self._open = 0
        self._bytes = 0
        self._sizes: dict[str, int] = {}  # of plans and records
        self._deadlines = DueTimes()  # of what is not decided
        self._free: dict[str, DueTimes] = {}  # by group: when a transaction can be claimed
        self._committed = DueTimes()  # and ended, by the time of their end
        self._aborted = DueTimes()  # and ended, by the time of their end

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
        check_owner(owner)
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
        return GlobalOpened(
            now_ms, gid, group, kind, owner, now_ms + checked_lease(lease_ms), deadline_ms, plan
        )

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
        if length < 0:
            raise InvalidParameter(f"the number of records must be 0 or more, got {length}")
        self._check_records(known, records)
        check_text("outcome", outcome)
        check_text("error", error)
        new_state = _state_after(known, state)
        if _is_repeated(known, length, records) and new_state is known.state:
            return None
        if length != len(known.records):
            raise IllegalOperation(f"{gid} has {len(known.records)} records, not {length}: read it again")
        if known.state is GlobalState.ENDED:
            if not records and new_state is known.state:
                return None
            raise IllegalOperation(f"transaction {gid} has ended: {known.outcome}")
        stamped = tuple(replace(one, at_ms=now_ms) for one in records)
        return GlobalAppended(
            now_ms, gid, stamped, now_ms + checked_lease(lease_ms), new_state, outcome, next_try_ms, error
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
        check_owner(by)
        if len(brokers) > MAX_BROKERS:
            raise InvalidParameter(f"messages must be at {MAX_BROKERS} brokers at most, got {len(brokers)}")
        for name in brokers:
            check_text("name of a broker", name)
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

        Such an abort ends it at once, and stays for a client that comes later: until no commit can come.
        Therefore a commit must have a deadline.
        """
        self._check_deadline(deadline_ms, now_ms)
        if decision is GlobalDecision.COMMIT and not deadline_ms:
            raise InvalidParameter(
                f"a commit of {gid}, which was not opened, must have a deadline: without one it cannot be "
                "told from one that was aborted and is forgotten"
            )
        if decision is GlobalDecision.ABORT:
            deadline_ms = 0  # the asker's: that of a late commit is not known
        decision, by = _in_time(decision, by, deadline_ms, now_ms)
        is_ended = decision is GlobalDecision.ABORT
        if not is_ended:
            self._check_capacity()
        elif len(self._aborted) >= MAX_ABORTED:
            raise SystemBusy(
                f"{len(self._aborted)} aborted transactions are remembered for an hour; ask again later"
            )
        until = 0 if is_ended else now_ms + checked_lease(lease_ms)
        return GlobalDecided(
            now_ms, gid, group, kind, decision, by, branches, brokers, deadline_ms, until, is_ended
        )

    def claim(
        self, group: str, owner: str, now_ms: int, lease_ms: int, count: int = MAX_CLAIMED
    ) -> list[GlobalClaimed]:
        """Returns changes that give `owner` transactions of the group without an owner.

        Those first that have waited longest; fewer when their plans and records are large.
        """
        check_owner(owner)
        until = now_ms + checked_lease(lease_ms)
        free = self._free.get(group)
        chosen: list[GlobalClaimed] = []
        size = 0
        for gid in free.due(now_ms, min(count, MAX_CLAIMED)) if free is not None else ():
            size += self._sizes.get(gid, 0)
            if chosen and size > MAX_CLAIMED_BYTES:
                break
            chosen.append(GlobalClaimed(now_ms, gid, owner, self.transactions[gid].lease + 1, until))
        return chosen

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

        Raises IllegalOperation for what contradicts the decision, or may contradict that of a last resource,
        unless `heuristic`.
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
            is_undecided = known.decision is GlobalDecision.NONE
            if is_undecided and gid.startswith(LAST_RESOURCE_PREFIX) and not heuristic:
                raise IllegalOperation(
                    f"the last resource of transaction {gid} may have decided it: retry asks it; to decide "
                    "here all the same is a heuristic decision"
                )
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

    def overdue(self, now_ms: int, count: int) -> list[str]:
        """Returns undecided transactions that are past their deadline."""
        return self._deadlines.due(now_ms, count)

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
        due = (self._deadlines.first(), *map(self._next_forgotten, (self._committed, self._aborted)))
        return min((one for one in due if one is not None), default=None)

    def due(self, gid: str) -> int | None:
        """Returns when a transaction will be overdue, or one like it can be forgotten; None: never."""
        for ended in (self._committed, self._aborted):
            if ended.get(gid) is not None:
                return self._next_forgotten(ended)
        return self._deadlines.get(gid)

    def _next_forgotten(self, ended: DueTimes) -> int | None:
        """Returns when the oldest of these can be forgotten; None: there is none."""
        oldest = ended.due(sys.maxsize, 1)
        if not oldest:
            return None
        is_surplus = len(ended) > MAX_ENDED or self._is_large
        return _kept_until(self.transactions[oldest[0]], is_surplus)

    @property
    def _is_large(self) -> bool:
        return self._bytes > MAX_BOOK_BYTES // 2

    def forgettable(self, now_ms: int, count: int) -> list[GlobalForgotten]:
        """Returns changes that forget transactions that ended long ago, or of which there are too many."""
        found: list[GlobalForgotten] = []
        freed = 0
        for ended in (self._committed, self._aborted):
            for number, gid in enumerate(ended.due(now_ms, count - len(found))):
                is_large = self._bytes - freed > MAX_BOOK_BYTES // 2
                is_surplus = len(ended) - number > MAX_ENDED or is_large
                if _kept_until(self.transactions[gid], is_surplus) > now_ms:
                    break
                freed += self._sizes.get(gid, 0)
                found.append(GlobalForgotten(gid))
        return found

    # state

    def known(self, gid: str, group: str = "") -> GlobalTransaction:
        """Returns a transaction; an empty group is that of any.

        Raises QueryNotFound, and IllegalOperation for one of another group.
        """
        known = self.transactions.get(gid)
        if known is None:
            raise QueryNotFound(f"transaction {gid} is not known here: it was not opened, or ended long ago")
        if group and known.group != group:
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

    def view(self, gid: str, group: str, home: str) -> Book:
        """Returns the decision of a transaction as the ledger's book about its messages.

        A transaction is opened before its first message. So messages of one that is not known belong to one
        that was aborted and forgotten: those that commit are kept until all their messages are settled.
        """
        known = self.transactions.get(gid)
        if known is None or known.group != group:
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

    def has_open(self, group: str) -> bool:
        """Returns whether a transaction of the group has not ended."""
        return any(one.group == group and _is_open(one) for one in self.transactions.values())

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
        old = self.transactions.get(gid)
        new = after(old, change)
        self._resize(gid, new, change)
        self._put(gid, old, new)

    def _resize(self, gid: str, new: GlobalTransaction | None, change: GlobalChange) -> None:
        """Notes how large plan and records of a transaction are after a change; nothing if there are none."""
        old_size = self._sizes.pop(gid, 0)
        if new is None:
            size = 0
        elif isinstance(change, GlobalAppended):  # not all records once more for each
            size = old_size + sum(one.size for one in change.records)
        else:
            size = len(new.plan) + sum(one.size for one in new.records)
        if size:
            self._sizes[gid] = size
        self._bytes += size - old_size

    def _put(self, gid: str, old: GlobalTransaction | None, new: GlobalTransaction | None) -> None:
        """Replaces what is known of a transaction; None: forgets it."""
        self._open += _is_open(new) - _is_open(old)
        for times in (self._committed, self._aborted, self._deadlines):
            times.discard(gid)
        if new is None:
            self.transactions.pop(gid, None)
        else:
            self.transactions[gid] = new
            if new.state is GlobalState.ENDED:
                is_commit = new.decision is GlobalDecision.COMMIT
                (self._committed if is_commit else self._aborted).set(gid, new.ended_ms)
            elif new.decision is GlobalDecision.NONE and new.deadline_ms:
                self._deadlines.set(gid, new.deadline_ms)
        self._put_free(gid, old, new)

    def _put_free(self, gid: str, old: GlobalTransaction | None, new: GlobalTransaction | None) -> None:
        """Notes when a transaction can be claimed, if it can."""
        if new is not None and new.state in CLAIMED_STATES:
            at = max(new.lease_until_ms, new.next_try_ms)
            self._free.setdefault(new.group, DueTimes()).set(gid, at)
        elif old is not None and (free := self._free.get(old.group)) is not None:
            free.discard(gid)
            if not len(free):
                del self._free[old.group]

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
        if self._bytes >= MAX_BOOK_BYTES:
            raise SystemBusy(
                f"plans and records of global transactions have {self._bytes} bytes, the most is "
                f"{MAX_BOOK_BYTES}: `turbopump transactions list` shows what has not ended"
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
        if (size := size + self._sizes.get(known.gid, 0)) > MAX_HISTORY_BYTES:
            raise IllegalOperation(
                f"plan and records of transaction {known.gid} must have at most {MAX_HISTORY_BYTES} bytes, "
                f"got {size}: keep references to large data in records"
            )


def _in_time(decision: GlobalDecision, by: str, deadline_ms: int, now_ms: int) -> tuple[GlobalDecision, str]:
    """Returns the decision and who made it: past the deadline it is an abort."""
    if decision is GlobalDecision.COMMIT and 0 < deadline_ms <= now_ms:
        return GlobalDecision.ABORT, DEADLINE
    return decision, by


def _kept_until(ended: GlobalTransaction, is_surplus: bool) -> int:
    """Returns when a transaction that has ended can be forgotten.

    An aborted one stays, also when there are too many, until a late commit of it would be refused for its
    own deadline.
    """
    if not is_surplus:
        return ended.ended_ms + KEEP_ENDED_MS
    if ended.decision is GlobalDecision.COMMIT:
        return ended.ended_ms
    return ended.deadline_ms or ended.ended_ms + MAX_DEADLINE_MS


def _is_repeated(known: GlobalTransaction, length: int, records: Sequence[GlobalRecord]) -> bool:
    """Returns whether the records after the first `length` are these: the same request came before."""
    if not records or len(known.records) - length != len(records):
        return False
    return [replace(one, at_ms=0) for one in known.records[length:]] == list(records)


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
