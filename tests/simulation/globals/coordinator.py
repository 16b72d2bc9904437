"""The coordinator (TC) of the world: the broker's request handler and book on a log that loses its end.

The handler, the book, its changes and its upkeep are the broker's own. The log is a list of encoded changes:
a sync makes them last, a crash loses some of those that were not synced, and retention writes the book again
as it is.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from turbopump.broker.transactions.book.book import GlobalBook
from turbopump.broker.transactions.book.changes import GlobalChange, read_global_change
from turbopump.broker.transactions.book.requests import GlobalTransactionHandler
from turbopump.broker.transactions.book.upkeep import GlobalUpkeep
from turbopump.broker.transactions.change_log import ChangeLog
from turbopump.client.admin.calls import ServerUnreachable
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.headers.base import Header
from turbopump.remoting.router import Request
from turbopump.runtime.clock import Clock

log = logging.getLogger(__name__)

SYNCS_S = 0.001, 0.01, 0.1, 0.5
ADDRESS = "tc:10911"


def unreachable() -> ServerUnreachable:
    return ServerUnreachable(ADDRESS, ConnectionRefusedError())


class SimulatedChangeLog:
    """Stands for `ChangeLog`: the same face, over a list."""

    def __init__(self, disk: list[bytes], book: GlobalBook, chance: random.Random, clock: Clock) -> None:
        self.disk = disk
        self.written = self.synced = 0  # changes of this run
        self._book = book
        self._chance = chance
        self._clock = clock
        self._sync: asyncio.Future[None] | None = None
        self._end = 0

    def write(self, *changes: GlobalChange) -> None:
        for change in changes:
            self.disk.append(msgspec.json.encode(change))
            self.written += 1
            self._book.apply(change, self._clock.now_ms())

    async def safe(self, gid: str) -> None:
        end = self.written
        while self.synced < end:
            if self._sync is None:
                self._sync = asyncio.get_running_loop().create_future()
                self._end = self.written
                asyncio.get_running_loop().call_later(self._chance.choice(SYNCS_S), self._done)
            await asyncio.shield(self._sync)

    def _done(self) -> None:
        assert self._sync is not None
        self.synced, sync, self._sync = max(self.synced, self._end), self._sync, None
        sync.set_result(None)

    def rewrite(self) -> None:
        """Writes the book again as it is, on disk at once: what retention does before it deletes files."""
        gids = list(self._book.transactions)
        self.disk[:] = [msgspec.json.encode(change) for gid in gids for change in self._book.snapshot(gid)]
        self.synced = self.written


class SimulatedCoordinator:
    """One broker as the home of all groups. It can be killed at any time."""

    def __init__(self, chance: random.Random, clock: Clock) -> None:
        self._chance = chance
        self._clock = clock
        self._disk: list[bytes] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._requests: set[asyncio.Task[Any]] = set()
        self.is_up = False
        self.start()

    def start(self) -> None:
        if self.is_up:
            return
        self.book = GlobalBook()
        for body in self._disk:
            self.book.apply(read_global_change(body), 0)
        self.changes = SimulatedChangeLog(self._disk, self.book, self._chance, self._clock)
        written = cast(ChangeLog[GlobalChange], self.changes)
        upkeep = GlobalUpkeep(self.book, written, _nothing, self._clock)
        self.handler = GlobalTransactionHandler(
            self.book, written, lambda group: True, _nothing, upkeep.notice, self._clock
        )
        self._routes = self.handler.routes()
        self._tasks = [asyncio.create_task(upkeep.run())]
        self.is_up = True

    def kill(self) -> None:
        """Loses what was not synced, or a part of that."""
        if not self.is_up:
            return
        self.is_up = False
        unsynced = self.changes.written - self.changes.synced
        lost = self._chance.randint(0, unsynced)
        del self._disk[len(self._disk) - lost :]
        log.info("TC dies: %d of %d unsynced changes are lost", lost, unsynced)
        for task in (*self._tasks, *self._requests):
            task.cancel()

    def rewrite(self) -> None:
        if self.is_up:
            self.changes.rewrite()

    async def ask(self, code: RequestCode, header: Header, body: bytes) -> bytes:
        """Handles a request. Raises what the handler raises, or ServerUnreachable."""
        if not self.is_up:
            raise unreachable()
        request = Request(cast(Any, SimpleNamespace(body=body)), header, cast(Any, None))
        handle = cast(Callable[[Any], Any], self._routes[code].handler)
        task = asyncio.create_task(handle(request))
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)
        await asyncio.wait([task])
        if task.cancelled():
            raise unreachable()
        answer: bytes = task.result().body
        return answer


def _nothing(*_: object) -> None:
    """Settles no messages: the world `ledger` has them."""
