"""Handles requests about global transactions: open, append, decide, claim, read and resolve (9731 to 9736).

In: requests. Out: answers that hold after any crash: they are sent when the change is on disk, and at slaves
or members of a group that are waited for. Several that wait share one sync.
"""

import logging
from collections.abc import Callable
from enum import StrEnum
from typing import TypeVar

from msgspec.structs import replace

from turbopump.broker.transactions.book.book import GlobalBook
from turbopump.broker.transactions.book.changes import GlobalChange, GlobalClaimed
from turbopump.broker.transactions.change_log import ChangeLog
from turbopump.protocol import global_transactions as wire
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.errors import IllegalOperation, InvalidParameter
from turbopump.protocol.global_transactions import (
    GlobalDecision,
    GlobalKind,
    GlobalState,
    GlobalTransaction,
    ledger_id,
)
from turbopump.protocol.headers.global_transactions import (
    GlobalAppendRequest,
    GlobalClaimRequest,
    GlobalDecideRequest,
    GlobalOpenRequest,
    GlobalReadRequest,
    GlobalResolveRequest,
)
from turbopump.remoting.router import Answer, Request, Route, Routes
from turbopump.runtime.clock import Clock

log = logging.getLogger(__name__)

MAX_LISTED = 1000  # transactions in one answer: 512 bytes each

E = TypeVar("E", bound=StrEnum)


class GlobalTransactionHandler:
    """Handles the requests of clients and operators about global transactions."""

    def __init__(
        self,
        book: GlobalBook,
        log: ChangeLog[GlobalChange],
        is_home: Callable[[str], bool],
        settle: Callable[[str], None],
        notice: Callable[[int], None],
        clock: Clock,
    ) -> None:
        self.book = book
        self._log = log
        self._is_home = is_home
        self._settle = settle
        self._notice = notice
        self.on_ended: Callable[[GlobalTransaction], None] = _nothing
        """Called with each transaction that has just ended."""
        self._clock = clock

    def routes(self) -> Routes:
        return {
            RequestCode.GLOBAL_OPEN: Route(GlobalOpenRequest, self.open),
            RequestCode.GLOBAL_APPEND: Route(GlobalAppendRequest, self.append),
            RequestCode.GLOBAL_DECIDE: Route(GlobalDecideRequest, self.decide),
            RequestCode.GLOBAL_CLAIM: Route(GlobalClaimRequest, self.claim),
            RequestCode.GLOBAL_READ: Route(GlobalReadRequest, self.read),
            RequestCode.GLOBAL_RESOLVE: Route(GlobalResolveRequest, self.resolve),
        }

    async def open(self, request: Request[GlobalOpenRequest]) -> Answer:
        header = request.header
        self._check_home(header.group)
        change = self.book.open(
            header.gid,
            header.group,
            _one_of(GlobalKind, "kind", header.kind),
            _text(request.body),
            header.owner,
            self._clock.now_ms(),
            header.leaseMs,
            header.deadlineMs,
        )
        return await self._answered(header.gid, change, header.owner)

    async def append(self, request: Request[GlobalAppendRequest]) -> Answer:
        header = request.header
        self._check_home(header.group)
        change = self.book.append(
            header.gid,
            header.group,
            header.lease,
            header.length,
            wire.read_records(request.body),
            self._clock.now_ms(),
            header.leaseMs,
            header.state,
            header.outcome,
            header.nextTryMs,
            header.error,
        )
        if change is not None:
            self._log.write(change)
            self._noticed(self.book.transactions[header.gid])
        await self._log.safe(header.gid)
        return Answer()

    async def decide(self, request: Request[GlobalDecideRequest]) -> Answer:
        header = request.header
        self._check_home(header.group)
        change = self.book.decide(
            header.gid,
            header.group,
            _one_of(GlobalKind, "kind", header.kind),
            _one_of(GlobalDecision, "decision", header.decision),
            header.owner,
            self._clock.now_ms(),
            header.leaseMs,
            header.deadlineMs,
            wire.read_names(header.branches),
            wire.read_names(header.brokers),
        )
        answer = await self._answered(header.gid, change, header.owner)
        self._settle(ledger_id(header.group, header.gid))
        return answer

    async def claim(self, request: Request[GlobalClaimRequest]) -> Answer:
        header = request.header
        self._check_home(header.group)
        changes = self.book.claim(
            header.group, header.owner, self._clock.now_ms(), header.leaseMs, header.count
        )
        if changes:
            self._log.write(*changes)
            await self._log.safe(changes[-1].gid)
        return Answer(body=wire.encode([one for one in map(self._still_claimed, changes) if one is not None]))

    def _still_claimed(self, claimed: GlobalClaimed) -> GlobalTransaction | None:
        """Returns a transaction that was claimed; None: somebody else has it since, while it was stored."""
        known = self.book.transactions.get(claimed.gid)
        return known if known is not None and known.lease == claimed.lease else None

    async def read(self, request: Request[GlobalReadRequest]) -> Answer:
        header = request.header
        if header.gid:
            self.book.known(header.gid, header.group)
            await self._log.safe(header.gid)
            return Answer(body=wire.encode(self.book.known(header.gid, header.group)))
        count = max(0, min(header.count, MAX_LISTED))
        page = self.book.page(header.group, header.kind, header.state, header.beforeMs, header.after, count)
        return Answer(body=wire.encode(page))

    async def resolve(self, request: Request[GlobalResolveRequest]) -> Answer:
        header = request.header
        change = self.book.resolve(
            header.gid,
            header.group,
            header.action,
            header.who,
            header.because,
            self._clock.now_ms(),
            header.branch,
            header.heuristic,
        )
        answer = await self._answered(header.gid, change, header.who)
        self._settle(ledger_id(header.group, header.gid))
        log.warning(
            "Global transaction %s of group %s: %s by %s", header.gid, header.group, header.action, header.who
        )
        return answer

    async def _answered(self, gid: str, change: GlobalChange | None, owner: str) -> Answer:
        """Stores a change, waits until it is safe, and returns the answer with the transaction's state.

        Only its owner gets the lease: another client that opened or decided it may not add records.
        """
        if change is not None:
            self._log.write(change)
            self._noticed(self.book.transactions[gid])
        await self._log.safe(gid)
        known = self.book.known(gid)
        return Answer(body=wire.encode(known if known.owner == owner else replace(known, lease=0)))

    def _noticed(self, changed: GlobalTransaction) -> None:
        """Counts a transaction that has ended with its last change, and says when it is due."""
        if changed.state is GlobalState.ENDED:
            self.on_ended(changed)
        due_ms = self.book.due(changed.gid)
        if due_ms is not None:
            self._notice(due_ms)

    def _check_home(self, group: str) -> None:
        if not self._is_home(group):
            raise IllegalOperation(f"this broker is not the home of global transactions of group {group}")


def _nothing(transaction: GlobalTransaction) -> None:
    """Does nothing: the default of `on_ended`."""


def _one_of(choices: type[E], what: str, text: str) -> E:
    try:
        return choices(text)
    except ValueError:
        names = ", ".join(choice for choice in choices if choice)
        raise InvalidParameter(f"the {what} must be one of {names}, got {text[:40]!r}") from None


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise InvalidParameter("the plan of a transaction must be UTF-8 text") from None
