"""A journal in memory: for simulations, tests and programs that show a protocol without a broker.

`MemoryBook` follows the rules of the broker's book (`broker/transactions/book/`, checked against it by a
test): the first decision counts, leases fence, an end follows a decision. It survives nothing. Several
journals, one for each client, share it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from turbopump.protocol.errors import Fenced, IllegalOperation, InvalidParameter, QueryNotFound
from turbopump.protocol.global_transactions import (
    GlobalDecision,
    GlobalKind,
    GlobalRecord,
    GlobalState,
    GlobalTransaction,
)
from turbopump.runtime.clock import Clock
from turbopump.transactions.distributed.journal import LEASE_S

DEADLINE = "deadline"
"""Who decided, when nobody did in time."""


@dataclass
class MemoryBook:
    """The global transactions of any number of groups, by gid."""

    clock: Clock
    transactions: dict[str, GlobalTransaction] = field(default_factory=dict)

    def now_ms(self) -> int:
        """Returns the time, and aborts what nobody decided before its deadline."""
        now_ms = self.clock.now_ms()
        for one in list(self.transactions.values()):
            if one.decision is GlobalDecision.NONE and 0 < one.deadline_ms <= now_ms:
                self._put(_decided(one, GlobalDecision.ABORT, DEADLINE, (), (), now_ms))
        return now_ms

    def known(self, gid: str, group: str) -> GlobalTransaction:
        known = self.transactions.get(gid)
        if known is None:
            raise QueryNotFound(f"transaction {gid} is not known: it was not opened, or ended long ago")
        if known.group != group:
            raise IllegalOperation(f"transaction {gid} belongs to group {known.group}, not {group}")
        return known

    def resolve(self, gid: str, group: str, action: str, who: str, branch: str = "") -> GlobalTransaction:
        """Has an operator's word count: retry, commit, abort, or done for one branch."""
        now_ms = self.now_ms()
        known = self.known(gid, group)
        if known.state is GlobalState.ENDED:
            raise IllegalOperation(f"transaction {gid} has ended: {known.outcome or known.decision}")
        decision = known.decision
        if action in ("commit", "abort"):
            decision = GlobalDecision(action)
            if known.decision not in (GlobalDecision.NONE, decision):
                raise IllegalOperation(f"transaction {gid} is decided: {known.decision}")
        is_decided = decision is not GlobalDecision.NONE
        return self._put(
            replace(
                known,
                records=[*known.records, GlobalRecord(f"resolved-{action}", branch, who, now_ms)],
                state=GlobalState.DECIDED if is_decided else GlobalState.OPEN,
                decision=decision,
                decided_by=known.decided_by if decision is known.decision else who,
                decided_ms=known.decided_ms or (now_ms if is_decided else 0),
                lease=known.lease + 1,
                lease_until_ms=0,
                next_try_ms=0,
                error="",
            )
        )

    def _put(self, new: GlobalTransaction) -> GlobalTransaction:
        self.transactions[new.gid] = new
        return new


class MemoryJournal:
    """The journal of one client, `owner`, in a book in memory."""

    def __init__(self, book: MemoryBook, group: str, owner: str) -> None:
        self.book = book
        self.group = group
        self.owner = owner

    async def open(self, gid: str, kind: GlobalKind, plan: str, deadline_ms: int = 0) -> GlobalTransaction:
        now_ms = self.book.now_ms()
        known = self.book.transactions.get(gid)
        if known is None:
            known = self._new(gid, kind, now_ms, deadline_ms, plan)
            return _copy(self.book._put(known))
        self._check_same(known, kind)
        if known.plan != plan:
            raise IllegalOperation(f"transaction {gid} was opened with another plan: use another gid")
        return self._answered(known)

    async def append(
        self,
        known: GlobalTransaction,
        records: Sequence[GlobalRecord],
        state: str = "",
        outcome: str = "",
        next_try_ms: int = 0,
        error: str = "",
    ) -> None:
        now_ms = self.book.now_ms()
        stored = self.book.known(known.gid, self.group)
        if known.lease != stored.lease:
            raise Fenced(f"lease {known.lease} of {known.gid} has ended: it is {stored.lease} now")
        length = len(known.records)
        new_state = _state_after(stored, state)
        if not self._is_repeated(stored, length, records, new_state):
            if length != len(stored.records):
                raise IllegalOperation(f"{known.gid} has {len(stored.records)} records, not {length}")
            if stored.state is GlobalState.ENDED:
                raise IllegalOperation(f"transaction {known.gid} has ended: {stored.outcome}")
            self.book._put(
                replace(
                    stored,
                    records=[*stored.records, *(replace(one, at_ms=now_ms) for one in records)],
                    state=new_state,
                    lease_until_ms=now_ms + _LEASE_MS,
                    outcome=outcome or stored.outcome,
                    next_try_ms=next_try_ms,
                    error=error,
                    ended_ms=now_ms if new_state is GlobalState.ENDED else 0,
                )
            )
        known.records = [*known.records, *records]

    def _is_repeated(
        self, stored: GlobalTransaction, length: int, records: Sequence[GlobalRecord], state: GlobalState
    ) -> bool:
        """Tells whether this request was carried out before, and its answer was lost."""
        if state is not stored.state:
            return False
        if not records:
            return stored.state is GlobalState.ENDED and length == len(stored.records)
        is_last = len(stored.records) - length == len(records)
        return is_last and [replace(one, at_ms=0) for one in stored.records[length:]] == list(records)

    async def decide(
        self,
        gid: str,
        kind: GlobalKind,
        decision: GlobalDecision,
        branches: Sequence[str] = (),
        brokers: Sequence[str] = (),
        deadline_ms: int = 0,
    ) -> GlobalTransaction:
        now_ms = self.book.now_ms()
        known = self.book.transactions.get(gid)
        if known is None:
            if decision is GlobalDecision.COMMIT and not deadline_ms:
                raise InvalidParameter(f"a commit of {gid}, which was not opened, must have a deadline")
            if decision is GlobalDecision.ABORT:
                deadline_ms = 0  # the asker's: that of a late commit is not known
            known = self._new(gid, kind, now_ms, deadline_ms)
            by = self.owner
            if decision is GlobalDecision.COMMIT and 0 < deadline_ms <= now_ms:
                decision, by = GlobalDecision.ABORT, DEADLINE
            known = _decided(known, decision, by, branches, brokers, now_ms)
            if decision is GlobalDecision.ABORT:
                known = replace(
                    known,
                    state=GlobalState.ENDED,
                    outcome="aborted",
                    ended_ms=now_ms,
                    lease_until_ms=0,
                    owner=by,
                )
            return self._answered(self.book._put(known))
        self._check_same(known, kind)
        if known.decision is GlobalDecision.NONE:
            known = self.book._put(_decided(known, decision, self.owner, branches, brokers, now_ms))
        return self._answered(known)

    async def claim(self, count: int) -> list[GlobalTransaction]:
        now_ms = self.book.now_ms()
        free = [
            one
            for one in self.book.transactions.values()
            if one.group == self.group
            and one.state in (GlobalState.OPEN, GlobalState.DECIDED)
            and one.lease_until_ms <= now_ms
            and one.next_try_ms <= now_ms
        ]
        free.sort(key=lambda one: max(one.lease_until_ms, one.next_try_ms))
        until = now_ms + _LEASE_MS
        return [
            _copy(self.book._put(replace(one, owner=self.owner, lease=one.lease + 1, lease_until_ms=until)))
            for one in free[:count]
        ]

    async def read(self, gid: str) -> GlobalTransaction | None:
        self.book.now_ms()
        known = self.book.transactions.get(gid)
        return None if known is None else _copy(self.book.known(gid, self.group))

    def _answered(self, known: GlobalTransaction) -> GlobalTransaction:
        """Returns what a client gets: another object, without a lease that is not its own."""
        return _copy(known if known.owner == self.owner else replace(known, lease=0))

    def _new(
        self, gid: str, kind: GlobalKind, now_ms: int, deadline_ms: int, plan: str = ""
    ) -> GlobalTransaction:
        return GlobalTransaction(
            gid,
            self.group,
            kind,
            plan=plan,
            opened_ms=now_ms,
            deadline_ms=deadline_ms,
            owner=self.owner,
            lease=1,
            lease_until_ms=now_ms + _LEASE_MS,
        )

    def _check_same(self, known: GlobalTransaction, kind: GlobalKind) -> None:
        if (known.group, known.kind) != (self.group, kind):
            raise IllegalOperation(
                f"transaction {known.gid} is of kind {known.kind} and group {known.group}, "
                f"not {kind} and {self.group}"
            )


def _state_after(stored: GlobalTransaction, asked: str) -> GlobalState:
    if not asked:
        return stored.state
    state = GlobalState(asked)
    if state is GlobalState.ENDED and stored.decision is GlobalDecision.NONE:
        raise IllegalOperation(f"transaction {stored.gid} must be decided before it can end")
    return state


def _decided(
    known: GlobalTransaction,
    decision: GlobalDecision,
    by: str,
    branches: Sequence[str],
    brokers: Sequence[str],
    now_ms: int,
) -> GlobalTransaction:
    return replace(
        known,
        state=GlobalState.DECIDED,
        decision=decision,
        decided_by=by,
        decided_ms=now_ms,
        branches=tuple(branches),
        brokers=tuple(brokers),
        next_try_ms=0,
    )


def _copy(known: GlobalTransaction) -> GlobalTransaction:
    """Returns another object with the same records, as one that came from a broker."""
    return replace(known, records=list(known.records))


_LEASE_MS = int(LEASE_S * 1000)
