"""Databases in memory that can prepare, for tests of coordinators."""

import asyncio
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from turbopump.transactions.distributed.gids import Xid
from turbopump.transactions.errors import Declined


class MemoryVote(Enum):
    YES = "yes"
    READ_ONLY = "read-only"


@dataclass
class PreparedThere:
    xid: Xid
    since_ms: int | None = None


@dataclass
class MemoryDatabase:
    """Accounts that change by branches, which stay prepared until they are ended, whoever dies."""

    name: str
    cents: dict[str, int] = field(default_factory=dict)
    prepared_changes: dict[Xid, dict[str, int]] = field(default_factory=dict)
    fails: dict[str, list[Exception]] = field(default_factory=dict)
    """Exceptions to raise, by method; each once."""
    calls: list[str] = field(default_factory=list)
    hold: dict[str, asyncio.Event] = field(default_factory=dict)
    """Methods that wait for an event."""

    async def begin(self, xid: Xid) -> "MemoryBranch":
        await self.step("begin")
        return MemoryBranch(self, xid)

    async def commit(self, xid: Xid) -> None:
        await self.step("commit")
        for account, change in self.prepared_changes.pop(xid, {}).items():
            self.cents[account] = self.cents.get(account, 0) + change

    async def roll_back(self, xid: Xid) -> None:
        await self.step("roll back")
        self.prepared_changes.pop(xid, None)

    async def prepared(self) -> list[PreparedThere]:
        await self.step("prepared")
        return [PreparedThere(xid) for xid in self.prepared_changes]

    async def close(self) -> None:
        self.calls.append("close")

    async def step(self, name: str) -> None:
        self.calls.append(name)
        if name in self.hold:
            await self.hold[name].wait()
        if self.fails.get(name):
            raise self.fails[name].pop(0)


@dataclass
class MemoryConnection:
    """What the user gets: `add` changes an account in the branch."""

    changes: dict[str, int] = field(default_factory=dict)

    async def add(self, account: str, cents: int) -> None:
        self.changes[account] = self.changes.get(account, 0) + cents


class MemoryBranch:
    def __init__(self, database: MemoryDatabase, xid: Xid) -> None:
        self.database = database
        self.xid = xid
        self.connection = MemoryConnection()

    async def prepare(self) -> MemoryVote:
        await self.database.step("prepare")
        if not self.connection.changes:
            return MemoryVote.READ_ONLY
        balances = (self.database.cents.get(a, 0) + c for a, c in self.connection.changes.items())
        if min(balances) < 0:
            raise Declined("too little money")
        self.database.prepared_changes[self.xid] = dict(self.connection.changes)
        return MemoryVote.YES

    async def commit_one_phase(self) -> None:
        await self.prepare()
        await self.commit()

    async def commit(self) -> None:
        await self.database.commit(self.xid)

    async def roll_back(self) -> None:
        await self.database.roll_back(self.xid)

    async def abandon(self) -> None:
        self.database.calls.append("abandon")


def two_banks() -> dict[str, Any]:
    return {
        "icbc": MemoryDatabase("icbc", {"A": 100}),
        "ccb": MemoryDatabase("ccb", {"B": 0}),
    }
