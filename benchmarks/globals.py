"""Measures global transactions over PostgreSQL and MariaDB: XA, TCC and SAGA beside two local commits.

`python -m benchmarks.globals [--seconds S] [--rounds N] [--in-doubt N]` starts the two databases, which sync
each commit, and our broker. Every pattern moves money between two rows with pooled asyncpg and asyncmy
connections; the rounds of the patterns are interleaved. Then it measures a fence around a local transaction,
and how long another process takes to end transactions that are in doubt.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import shutil
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncmy
import asyncpg
from tests.interop import mariadb, peers, postgres

from turbopump.protocol.global_transactions import GlobalDecision, GlobalKind
from turbopump.transactions.aio import Coordinator, Saga, Tcc
from turbopump.transactions.distributed import journal
from turbopump.transactions.distributed.gids import Xid, new_gid
from turbopump.transactions.fence import Fence, fenced

from . import report
from .__main__ import write_results

ROWS = 64
MAX_RECOVERY_S = 60.0
IN_FLIGHT = (1, 8, 32)
PATTERNS = ("one local commit", "two local commits", "xa", "tcc", "saga")
TARGETS = {
    "xa at 1": 3.0,
    "xa at 32": 2.0,
    "recovery_s": 10.0,
    "fence_percent": 15.0,
}
"""The most: times of two local commits, seconds for 1,000 in doubt, percent of a local transaction."""

Work = Callable[[int], Awaitable[None]]


def main() -> None:
    options = arguments().parse_args()
    postgres.SETTINGS |= {
        "fsync": "on",
        "full_page_writes": "on",
        "max_connections": "200",
        "max_prepared_transactions": str(options.in_doubt + 200),
    }
    flags = (one for one in mariadb.SETTINGS if "flush-log" not in one and "max-connections" not in one)
    mariadb.SETTINGS = (  # type: ignore[assignment]
        *flags,
        "--innodb-flush-log-at-trx-commit=1",
        "--max-connections=400",
    )
    icbc, ccb = postgres.start(), mariadb.start()
    home = Path(tempfile.mkdtemp(prefix="turbopump-globals-"))
    cluster = peers.start(peers.OURS, peers.place(home))
    try:
        result = asyncio.run(measured(Banks(icbc, ccb, cluster.namesrv), options))
    finally:
        cluster.kill()
        shutil.rmtree(home)
        icbc.close()
        ccb.close()
    write_results("globals", {"machine": report.machine(), **result}, markdown(result, options))


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.globals", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--seconds", type=float, default=3.0, help="of one pattern in one round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--in-doubt", type=int, default=1000, help="transactions to recover")
    return parser


@dataclass
class Pool:
    """Open connections of one database, kept for the next one who needs one."""

    open: Callable[[], Awaitable[Any]]
    is_closed: Callable[[Any], bool]
    free: list[Any] = field(default_factory=list)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        one = self.free.pop() if self.free else await self.open()
        yield one
        if not self.is_closed(one):
            self.free.append(one)


class Banks:
    """Two databases with accounts, and the patterns by which money is moved between them."""

    def __init__(self, icbc: postgres.Postgres, ccb: mariadb.MariaDB, namesrv: str) -> None:
        self.namesrv = namesrv
        own = ccb.parameters()
        other = {("db" if key == "database" else key): value for key, value in own.items()}
        self.icbc = Pool(
            lambda: asyncpg.connect(host=str(icbc.home / "socket"), user="postgres", database="postgres"),
            lambda one: bool(one.is_closed()),
        )
        self.ccb = Pool(lambda: asyncmy.connect(**other), lambda one: not one._connected)
        for bank in (icbc, ccb):
            bank.execute("CREATE TABLE accounts (id INTEGER PRIMARY KEY, cents BIGINT)")
            rows = ", ".join(f"({number}, 0)" for number in range(ROWS))
            bank.execute(f"INSERT INTO accounts VALUES {rows}")
            bank.execute("CREATE TABLE entries (id VARCHAR(64) PRIMARY KEY)")
        self.coordinator = self.new_coordinator()
        self.freeze, self.expect = self._tcc("freeze", self.icbc, take), self._tcc("expect", self.ccb, give)
        self.saga = self._saga()
        self.fence = Fence()

    def new_coordinator(self) -> Coordinator:
        resources = {"icbc": self.icbc.connection, "ccb": self.ccb.connection}
        return Coordinator("bank", name_servers=self.namesrv, resources=resources)

    def pattern(self, name: str) -> Work:
        return {
            "one local commit": self.one_local,
            "two local commits": self.two_local,
            "xa": self.xa,
            "tcc": self.tcc,
            "saga": self.run_saga,
            "fenced local commit": self.fenced_local,
        }[name]

    async def one_local(self, row: int) -> None:
        async with self.icbc.connection() as connection, connection.transaction():
            await take(connection, row)

    async def fenced_local(self, row: int) -> None:
        gid = f"fence-{next(_numbers)}"
        async with (
            self.icbc.connection() as connection,
            fenced(connection, gid, "icbc", "try", fence=self.fence),
        ):
            await take(connection, row)

    async def two_local(self, row: int) -> None:
        await self.one_local(row)
        async with self.ccb.connection() as connection:
            await give(connection, row)
            await connection.commit()

    async def xa(self, row: int) -> None:
        async with self.coordinator.xa() as t:
            await take(t["icbc"], row)
            await give(t["ccb"], row)

    async def tcc(self, row: int) -> None:
        async with self.coordinator.tcc() as t:
            await t.call(self.freeze, row)
            await t.call(self.expect, row)

    async def run_saga(self, row: int) -> None:
        await self.coordinator.run(self.saga, row)

    def _tcc(self, name: str, pool: Pool, move: Callable[[Any, int], Awaitable[None]]) -> Tcc[int]:
        made = Tcc[int](name, connect=pool.connection)

        async def work(connection: Any, row: int) -> None:
            await move(connection, row)

        made.try_(work)
        made.confirm(work)
        made.cancel(work)
        return made

    def _saga(self) -> Saga[int]:
        async def do_take(connection: Any, row: int) -> None:
            await take(connection, row)

        async def do_give(connection: Any, row: int) -> None:
            await give(connection, row)

        saga = Saga[int]("transfer")
        saga.step("debit", do=do_take, undo=do_take, connect=self.icbc.connection)
        saga.step("credit", do=do_give, undo=do_give, connect=self.ccb.connection)
        return saga


_numbers = itertools.count()


async def take(connection: Any, row: int) -> None:
    await connection.execute(f"UPDATE accounts SET cents = cents - 1 WHERE id = {row}")


async def give(connection: Any, row: int) -> None:
    async with connection.cursor() as cursor:
        await cursor.execute(f"UPDATE accounts SET cents = cents + 1 WHERE id = {row}")


async def measured(banks: Banks, options: argparse.Namespace) -> dict[str, Any]:
    await banks.coordinator.ready()
    rows = [await patterns(banks, count, options) for count in IN_FLIGHT]
    hot = await patterns(banks, 8, options, is_hot=True)
    fence = await fence_cost(banks, options)
    recovery = await recovered(banks, options.in_doubt)
    await banks.coordinator.close()
    return {"rows": rows, "hot": hot, "fence": fence, "recovery": recovery}


async def patterns(
    banks: Banks, in_flight: int, options: argparse.Namespace, is_hot: bool = False
) -> dict[str, Any]:
    """Runs all patterns in interleaved rounds; returns transactions/s and times by pattern."""
    times: dict[str, list[float]] = {name: [] for name in PATTERNS}
    spent = dict.fromkeys(PATTERNS, 0.0)
    for name in PATTERNS:
        await turn(banks.pattern(name), in_flight, 0.3, is_hot)  # connections are opened, tables are made
    for _ in range(options.rounds):
        for name in PATTERNS:
            begun = time.perf_counter()
            times[name] += await turn(banks.pattern(name), in_flight, options.seconds, is_hot)
            spent[name] += time.perf_counter() - begun
    return {"in_flight": in_flight, "is_hot": is_hot} | {
        name: {
            "per_s": len(taken) / spent[name],
            "p50_ms": statistics.median(taken) * 1000,
            "p99_ms": statistics.quantiles(taken, n=100)[98] * 1000 if len(taken) > 1 else taken[0] * 1000,
        }
        for name, taken in times.items()
    }


async def turn(work: Work, in_flight: int, seconds: float, is_hot: bool) -> list[float]:
    """Repeats a pattern for some seconds in so many tasks, each with a row of its own; returns the times."""
    until = time.perf_counter() + seconds
    taken: list[float] = []

    async def repeat(row: int) -> None:
        while (begun := time.perf_counter()) < until:
            await work(row)
            taken.append(time.perf_counter() - begun)

    await asyncio.gather(*(repeat(0 if is_hot else number) for number in range(in_flight)))
    return taken


async def fence_cost(banks: Banks, options: argparse.Namespace) -> dict[str, float]:
    """Returns the median times of a local transaction without and with a fence, in interleaved rounds."""
    names = ("one local commit", "fenced local commit")
    times: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(options.rounds):
        for name in names:
            times[name] += await turn(banks.pattern(name), 1, options.seconds / 2, False)
    plain, with_fence = (statistics.median(times[name]) * 1000 for name in names)
    return {"plain_ms": plain, "fenced_ms": with_fence, "percent": (with_fence / plain - 1) * 100}


async def recovered(banks: Banks, count: int) -> dict[str, float]:
    """Leaves transactions in doubt, every second one decided, and measures how long another process needs."""
    journal._LEASE_MS = 1  # their owner is dead
    resources = banks.coordinator.resources

    async def leave(number: int) -> None:
        gid = new_gid("bank", banks.coordinator._world.chance)
        for name, resource in resources.items():
            branch = await resource.begin(Xid(gid, name))
            await insert(branch.connection, f"{name}-{number}")
            await branch.prepare()
            await branch.abandon()
        if number % 2:
            deadline_ms = banks.coordinator.clock.now_ms() + 600_000
            await banks.coordinator.journal.decide(
                gid, GlobalKind.XA, GlobalDecision.COMMIT, tuple(resources), deadline_ms=deadline_ms
            )

    for first in range(0, count, 16):
        await asyncio.gather(*(leave(number) for number in range(first, min(count, first + 16))))
    other = banks.new_coordinator()
    await other.ready()
    journal._LEASE_MS = 30_000
    begun = time.perf_counter()
    rounds = 0
    # MariaDB holds a branch for a moment after its connection has gone: it is tried again a second later.
    while time.perf_counter() - begun < MAX_RECOVERY_S:
        rounds += 1
        await other.recover_once(older_than=0)
        left = sum([len(await resource.prepared()) for resource in other.resources.values()])
        if not left:
            break
        await asyncio.sleep(0.05)
    seconds = time.perf_counter() - begun
    await other.close()
    return {"transactions": count, "rounds": rounds, "left": left, "seconds": seconds}


async def insert(connection: Any, key: str) -> None:
    sql = f"INSERT INTO entries VALUES ('{key}')"
    if isinstance(connection, asyncpg.Connection) or not hasattr(connection, "cursor"):
        await connection.execute(sql)
        return
    async with connection.cursor() as cursor:
        await cursor.execute(sql)


def markdown(result: dict[str, Any], options: argparse.Namespace) -> str:
    lines = []
    for row in [*result["rows"], result["hot"]]:
        base = row["two local commits"]["p50_ms"]
        where = f"{row['in_flight']}{', one hot row' if row['is_hot'] else ''}"
        for name in PATTERNS:
            one = row[name]
            lines.append(
                [
                    where,
                    name,
                    f"{one['per_s']:,.0f}",
                    f"{one['p50_ms']:.2f}",
                    f"{one['p99_ms']:.2f}",
                    f"{one['p50_ms'] / base:.2f}",
                ]
            )
    fence, recovery = result["fence"], result["recovery"]
    first, last = result["rows"][0], result["rows"][-1]
    found = {
        "xa at 1": first["xa"]["p50_ms"] / first["two local commits"]["p50_ms"],
        "xa at 32": last["xa"]["p50_ms"] / last["two local commits"]["p50_ms"],
        "recovery_s": recovery["seconds"] if not recovery["left"] else float("inf"),
        "fence_percent": fence["percent"],
    }
    targets = [
        [name, f"{found[name]:.2f}", f"{most:g}", "yes" if found[name] <= most else "NO"]
        for name, most in TARGETS.items()
    ]
    head = ["in flight", "pattern", "per s", "p50 ms", "p99 ms", "of two local commits"]
    return (
        f"{options.rounds} rounds of {options.seconds:g} s for each pattern, interleaved; every commit is "
        "synced by its database.\n\n"
        + report.table(head, lines)
        + f"\nA local transaction takes {fence['plain_ms']:.2f} ms, "
        f"with a fence {fence['fenced_ms']:.2f} ms. "
        f"{recovery['transactions']} transactions in doubt were ended in {recovery['seconds']:.1f} s and "
        f"{recovery['rounds']} rounds, {recovery['left']} branches are left.\n\n"
        + report.table(["target", "found", "at most", "kept"], targets)
        + "\n"
    )


if __name__ == "__main__":
    main()
