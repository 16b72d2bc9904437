"""A bank over real servers: PostgreSQL, MariaDB, a broker, and processes that are TMs."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tests.interop import global_tm
from tests.interop.global_tm import TOPIC, Bank

from turbopump.protocol.global_transactions import GlobalState
from turbopump.transactions.aio import Coordinator
from turbopump.transactions.distributed.gids import is_of_group

from . import topics
from .mariadb import MariaDB
from .postgres import Postgres
from .transactions import visible

START_CENTS = 1_000_000
PATIENCE_S = 60.0
POLL_S = 0.1

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([global_tm.__name__])  # a TM then starts in some milliseconds


class TransactionManager:
    """A process that opens a transaction, and stops at a point."""

    def __init__(self, program: Callable[..., None], *given: Any) -> None:
        self._ours, theirs = _context.Pipe()
        self._process = _context.Process(target=program, args=(*given, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self.is_dead = False

    @property
    def pipe(self) -> Any:
        """Where it says something."""
        return self._ours

    def next(self) -> tuple[str, ...]:
        """What it says next: `at` a point, or its `end`. Raises when it dies or says nothing."""
        if not self._ours.poll(PATIENCE_S):
            raise AssertionError(f"the TM says nothing for {PATIENCE_S} s")
        return tuple(self._ours.recv())

    def go_on(self) -> None:
        self._ours.send("go on")

    def kill(self) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.join(PATIENCE_S)
        self.is_dead = True

    def pause(self) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def close_gently(self) -> None:
        """Waits until it has ended by itself."""
        self._process.join(PATIENCE_S)
        self.close()

    def close(self) -> None:
        if self._process.is_alive():
            self._process.kill()
        self._process.join(PATIENCE_S)


class BankCluster(Protocol):
    """What a bank needs of a broker: that it can be killed, and is there again."""

    @property
    def namesrv(self) -> str: ...

    @property
    def broker_addr(self) -> str: ...

    def kill_broker(self) -> None: ...

    def start_broker(self) -> None: ...


@dataclass
class RealBank:
    """The servers, and the accounts in them."""

    cluster: BankCluster
    postgres: Postgres
    mariadb: MariaDB

    def __post_init__(self) -> None:
        self.icbc_database = self.postgres.new_database()
        self.ccb_database = self.mariadb.new_database()
        for server, database, account in self._sides():
            server.execute(
                "CREATE TABLE accounts (id VARCHAR(8) PRIMARY KEY, cents BIGINT, frozen BIGINT DEFAULT 0)",
                database,
            )
            server.execute(f"INSERT INTO accounts VALUES ('{account}', {START_CENTS}, 0)", database)
        topics.create(self.cluster, TOPIC, 1)

    def _sides(self) -> tuple[tuple[Any, str, str], ...]:
        return (self.postgres, self.icbc_database, "A"), (self.mariadb, self.ccb_database, "B")

    @property
    def where(self) -> Bank:
        return Bank(
            self.cluster.namesrv,
            self.postgres.connection_string("public", self.icbc_database),
            self.mariadb.parameters(self.ccb_database),
        )

    def cents(self) -> tuple[int, int]:
        a, b = (
            int(server.execute("SELECT cents FROM accounts", db)[0][0]) for server, db, _ in self._sides()
        )
        return a, b

    def frozen(self) -> tuple[int, int]:
        """What TCC has reserved and not ended."""
        a, b = (
            int(server.execute("SELECT frozen FROM accounts", db)[0][0]) for server, db, _ in self._sides()
        )
        return a, b

    def fenced(self) -> set[str]:
        """The gids that the fence tables of both databases know."""
        select = "SELECT DISTINCT gid FROM turbopump_fence"
        return {row[0] for server, db, _ in self._sides() for row in server.execute(select, db)}

    def not_ended(self, gids: Iterable[str]) -> list[str]:
        """Those of the transactions that the book does not know as ended."""

        async def states() -> list[str]:
            bank = self._coordinator()
            known = {gid: await bank.journal.read(gid) for gid in gids}
            await bank.close()
            return [gid for gid, one in known.items() if one is None or one.state is not GlobalState.ENDED]

        return asyncio.run(states())

    def kill(self, victims: Sequence[str], tm: TransactionManager) -> None:
        """Kills them all first, then starts the servers among them again."""
        servers = {"postgres": self.postgres, "mariadb": self.mariadb}
        if "tm" in victims:
            tm.kill()
        if "broker" in victims:
            self.cluster.kill_broker()
        for name in set(victims) & set(servers):
            servers[name].kill()
        for name in set(victims) & set(servers):
            servers[name].start()
        if "broker" in victims:
            self.cluster.start_broker()

    def recover(self, participants: Sequence[Any] = ()) -> None:
        """Recovers as another process of the group, until nothing is left of any transaction."""
        asyncio.run(self._recover(participants))

    async def _recover(self, participants: Sequence[Any]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        async with self._coordinator(participants) as bank:
            while left := await self._left(bank):
                assert time.monotonic() < deadline, f"not ended in {PATIENCE_S} s: {left}"
                await bank.recover_once(older_than=0)
                await asyncio.sleep(POLL_S)

    def _coordinator(self, participants: Sequence[Any] = ()) -> Coordinator:
        return Coordinator(
            "bank",
            name_servers=self.cluster.namesrv,
            resources=self.where.resources(),
            participants=participants,
        )

    async def _prepared(self, bank: Coordinator) -> list[str]:
        found = []
        for name, resource in bank.resources.items():
            listed = await resource.prepared()
            found += [f"{name} {one.xid.gid}" for one in listed if is_of_group(one.xid.gid, "bank")]
        return found

    async def _left(self, bank: Coordinator) -> list[str]:
        """What is prepared, and what the book has not ended."""
        found = await self._prepared(bank)
        pages = bank.journal.page()  # type: ignore[attr-defined]
        found += [
            f"{one.gid} {one.state} {one.error}" async for one in pages if one.state is not GlobalState.ENDED
        ]
        return found

    def sweep(self) -> None:
        """Recovers once, while others may still hold what they have prepared."""

        async def once() -> None:
            bank = self._coordinator()
            await bank.recover_once(older_than=0)
            await bank.close()

        asyncio.run(once())

    def prepared(self) -> list[str]:
        """The prepared branches of the group, in both databases."""

        async def listed() -> list[str]:
            bank = self._coordinator()
            found = await self._prepared(bank)
            await bank.close()
            return found

        return asyncio.run(listed())

    def seen(self) -> list[str]:
        """The messages that consumers see: gids."""
        return visible(self.cluster, TOPIC)
