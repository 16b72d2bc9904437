"""Where a coordinator keeps the history of its global transactions: `Journal`, and that of the brokers.

In: what a state machine wants kept. Out: the state that counts, which may have been decided by somebody
else. A journal answers only what survives: what it has answered is never taken back. No rule of XA, TCC
or SAGA belongs here.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol, Self, TypeVar, Unpack

from turbopump.client.admin.calls import TIMEOUT_S, ServerUnreachable
from turbopump.client.options import ClientOptions
from turbopump.client.produce.ledger import Ended, Ledger, Writer
from turbopump.client.world import World
from turbopump.protocol import global_transactions as wire
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.errors import QueryNotFound
from turbopump.protocol.global_transactions import (
    LEDGER_BATCH,
    LEDGER_RUN,
    GlobalDecision,
    GlobalKind,
    GlobalRecord,
    GlobalTransaction,
    ledger_id,
)
from turbopump.protocol.headers.base import Header
from turbopump.protocol.headers.global_transactions import (
    GlobalAppendRequest,
    GlobalClaimRequest,
    GlobalDecideRequest,
    GlobalOpenRequest,
    GlobalReadRequest,
    GlobalResolveRequest,
)
from turbopump.transactions.errors import InDoubt

log = logging.getLogger(__name__)

LEASE_S = 30.0
"""How long a transaction stays its owner's after the last time that the owner renewed it."""
RUN = "home"
"""The run with which the ledger notes the home of a group: always the same, so no run is fenced off."""
TRIES, PAUSE_S = 5, 1.0  # while the home cannot be reached; each request may be repeated

T = TypeVar("T")


class Journal(Protocol):
    """Interface to the history of the global transactions of one group, and to their decisions."""

    owner: str
    """The name of this client, which the leases of its transactions have."""

    async def open(self, gid: str, kind: GlobalKind, plan: str, deadline_ms: int = 0) -> GlobalTransaction:
        """Opens a transaction, or returns one that was opened with the same kind and plan.

        Its lease is 0 when another client owns it.
        """
        ...

    async def append(
        self,
        known: GlobalTransaction,
        records: Sequence[GlobalRecord],
        state: str = "",
        outcome: str = "",
        next_try_ms: int = 0,
        error: str = "",
    ) -> None:
        """Adds records to a transaction, here and in `known`. Raises Fenced if another client has it now."""
        ...

    async def decide(
        self,
        gid: str,
        kind: GlobalKind,
        decision: GlobalDecision,
        branches: Sequence[str] = (),
        brokers: Sequence[str] = (),
        deadline_ms: int = 0,
    ) -> GlobalTransaction:
        """Decides a transaction; returns it with the decision that counts. Raises InDoubt if unknown.

        A commit of one that was not opened must have a deadline, after which only an abort counts.
        """
        ...

    async def claim(self, count: int) -> list[GlobalTransaction]:
        """Takes over transactions that have no owner now."""
        ...

    async def read(self, gid: str) -> GlobalTransaction | None:
        """Returns a transaction with its records; None: it is not known, or ended long ago."""
        ...


class BrokerJournal:
    """The book of global transactions at a broker, which is the home of the group.

    The first open of a group chooses its home; all brokers of the cluster note it. While the home is away new
    transactions fail at once, and those that are decided wait.
    """

    def __init__(
        self,
        group: str,
        name_servers: str | Sequence[str] | None = None,
        *,
        owner: str = "",
        home: str = "",
        cluster: str = "",
        world: World | None = None,
        timeout: float = TIMEOUT_S,
        **settings: Unpack[ClientOptions],
    ) -> None:
        self.group = group
        self._ledger = Ledger(
            ledger_id(group),
            name_servers,
            home=home,
            cluster=cluster,
            world=world,
            timeout=timeout,
            **settings,
        )
        self.admin = self._ledger.admin
        self.owner = owner or f"{group}@{self.admin.chance.getrandbits(64):016x}"

    async def start(self) -> None:
        """Finds or chooses the home of the group. Raises LedgerNotSupported at brokers of another kind."""
        await self._ledger.open(RUN)

    async def close(self) -> None:
        await self._ledger.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def home(self) -> str:
        return self._ledger.home

    async def open(self, gid: str, kind: GlobalKind, plan: str, deadline_ms: int = 0) -> GlobalTransaction:
        header = GlobalOpenRequest(
            gid=gid,
            group=self.group,
            kind=kind,
            owner=self.owner,
            leaseMs=_LEASE_MS,
            deadlineMs=deadline_ms,
        )
        return wire.read_transaction(await self._ask(RequestCode.GLOBAL_OPEN, header, plan.encode()))

    async def append(
        self,
        known: GlobalTransaction,
        records: Sequence[GlobalRecord],
        state: str = "",
        outcome: str = "",
        next_try_ms: int = 0,
        error: str = "",
    ) -> None:
        header = GlobalAppendRequest(
            gid=known.gid,
            group=self.group,
            lease=known.lease,
            length=len(known.records),
            leaseMs=_LEASE_MS,
            state=state,
            outcome=outcome,
            nextTryMs=next_try_ms,
            error=error,
        )
        await self._ask(RequestCode.GLOBAL_APPEND, header, wire.encode(records))
        known.records = [*known.records, *records]

    async def decide(
        self,
        gid: str,
        kind: GlobalKind,
        decision: GlobalDecision,
        branches: Sequence[str] = (),
        brokers: Sequence[str] = (),
        deadline_ms: int = 0,
    ) -> GlobalTransaction:
        header = GlobalDecideRequest(
            gid=gid,
            group=self.group,
            kind=kind,
            decision=decision,
            owner=self.owner,
            leaseMs=_LEASE_MS,
            deadlineMs=deadline_ms,
            branches=",".join(branches),
            brokers=",".join(brokers),
        )
        try:
            return wire.read_transaction(await self._ask(RequestCode.GLOBAL_DECIDE, header))
        except OSError as error:
            log.warning("Transaction %s: the decision %s is not known to count: %s", gid, decision, error)
            raise InDoubt(gid) from error

    async def claim(self, count: int) -> list[GlobalTransaction]:
        header = GlobalClaimRequest(group=self.group, owner=self.owner, leaseMs=_LEASE_MS, count=count)
        return wire.read_transactions(await self._ask_once(RequestCode.GLOBAL_CLAIM, header))

    async def read(self, gid: str) -> GlobalTransaction | None:
        try:
            header = GlobalReadRequest(gid=gid, group=self.group)
            return wire.read_transaction(await self._ask(RequestCode.GLOBAL_READ, header))
        except QueryNotFound:
            return None

    async def page(
        self, kind: str = "", state: str = "", before_ms: int = 0, page_size: int = 1000
    ) -> AsyncIterator[GlobalTransaction]:
        """Yields the transactions of the group by gid, without plans and records."""
        after = ""
        while True:
            header = GlobalReadRequest(
                group=self.group,
                kind=kind,
                state=state,
                beforeMs=before_ms,
                after=after,
                count=page_size,
            )
            page = wire.read_transactions(await self._ask(RequestCode.GLOBAL_READ, header))
            for one in page:
                yield one
            if len(page) < page_size:
                return
            after = page[-1].gid

    async def resolve(
        self,
        gid: str,
        action: str,
        who: str,
        because: str,
        branch: str = "",
        heuristic: bool = False,
    ) -> GlobalTransaction:
        """Has an operator's word count: `action` is retry, commit, abort, or done for one branch."""
        header = GlobalResolveRequest(
            gid=gid,
            group=self.group,
            action=action,
            who=who,
            because=because,
            branch=branch,
            heuristic=heuristic,
        )
        return wire.read_transaction(await self._ask(RequestCode.GLOBAL_RESOLVE, header))

    # Messages

    def writer(self, gid: str) -> Writer:
        """Returns a writer of messages that consumers see if and only if the transaction commits.

        The transaction must be open: then its deadline ends it if this process dies.
        """
        return Writer(self._messages(gid), LEDGER_BATCH, gid)

    async def settle(self, gid: str) -> Ended:
        """Makes all brokers commit or roll back the messages of a decided transaction now."""
        return await self._messages(gid).end(LEDGER_BATCH)

    def _messages(self, gid: str) -> Ledger:
        return self._ledger.sharing(ledger_id(self.group, gid), LEDGER_RUN)

    # Requests

    async def _ask(self, code: RequestCode, header: Header, body: bytes = b"") -> bytes:
        """Asks the home, again while it cannot be reached: each of these requests may be repeated."""
        return await self._again(lambda: self._ask_once(code, header, body))

    async def _ask_once(self, code: RequestCode, header: Header, body: bytes = b"") -> bytes:
        if not self._ledger.home:
            await self.start()
        return await self._ledger.ask_home(code, header, body)

    async def _again(self, ask: Callable[[], Awaitable[T]]) -> T:
        for _ in range(TRIES - 1):
            try:
                return await ask()
            except ServerUnreachable:
                await self.admin.clock.sleep(PAUSE_S)
        return await ask()


_LEASE_MS = int(LEASE_S * 1000)
