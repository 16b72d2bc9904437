"""Stores that Apache's brokers left: their transactions, as we go on with them."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from tests.kit import virtual
from tests.unit.broker.producers import COMMIT, HALF, OP, ROLLBACK
from tests.unit.store.kit import apache_store
from tests.unit.store.lab import config_of
from tests.writers import writer_of

from turbopump.broker.config import BrokerIdentity, OffsetRules, TopicRules
from turbopump.broker.delay.level_records import DelaySchedule
from turbopump.broker.groups.offsets import CommittedOffsets
from turbopump.broker.produce.kinds import WaitingKinds
from turbopump.broker.topics import TopicTable
from turbopump.broker.transactions.halves import CheckRules
from turbopump.broker.transactions.recovery import records, reopen
from turbopump.broker.transactions.requests import TransactionHandler
from turbopump.broker.transactions.transactions import OpenTransactions
from turbopump.protocol.command import Command
from turbopump.protocol.errors import Refused
from turbopump.protocol.headers.send import EndTransactionRequest
from turbopump.protocol.record import Record
from turbopump.remoting.router import Request
from turbopump.runtime.disk import SystemDisk, SystemWorkers
from turbopump.store.store import Store
from turbopump.testing.loop import VirtualClock

NAMES = ["4.9.7-clean", "4.9.7-kill9", "5.5.0-clean", "5.5.0-kill9"]
pytestmark = pytest.mark.parametrize("name", NAMES)

NOW = 1_800_000_000_000
RULES = CheckRules(6000, 15, 10**12)
ENDED = {b"tx commit1": COMMIT, b"tx rollback1": ROLLBACK, b"tx unkcommit1": COMMIT, b"tx commit2": COMMIT}
LEFT_OPEN = b"tx unknown1"


class Broker:
    """As much of one as transactions need, on a store of Apache's."""

    def __init__(self, name: str, root: str, knows_progress: bool) -> None:
        clock, disk = VirtualClock(start_ms=NOW), SystemDisk()
        self.store = Store.open(config_of(name, root), disk, clock, SystemWorkers())
        topics = TopicTable(TopicRules(), BrokerIdentity(broker_name="a"), clock)
        offsets = CommittedOffsets(OffsetRules(), clock)
        if knows_progress:
            offsets.load(Path(root, "config", "consumerOffset.json").read_bytes())
        writer = writer_of(self.store, clock)
        self.transactions = OpenTransactions(
            self.store,
            topics,
            offsets,
            WaitingKinds([DelaySchedule(self.store)]),
            writer,
            lambda: RULES,
            clock,
        )
        self.requests = TransactionHandler(
            self.transactions, self.store, writer.acknowledgement, lambda: RULES, clock
        )

    async def halves(self) -> list[Record]:
        return [half async for half in records(self.store, self.store.queues.queue(HALF, 0), 0)]

    async def end(self, half: Record, decision: int) -> int:
        """The code of the answer."""
        header = EndTransactionRequest("PTx", half.queue_offset, half.physical_offset, decision, "ID")
        try:
            answer: Any = self.requests.end(Request(Command(37), header, cast(Any, None)))
            answer = await answer if isinstance(answer, Awaitable) else answer
        except Refused as refused:
            return refused.code
        return cast(Command, answer).code

    def visible(self) -> int:
        return sum(queue.max_offset - queue.min_offset for queue in self.store.queues.of("Trans"))


@virtual
async def on_store(
    name: str, path: Path, scene: Callable[[Broker], Awaitable[None]], knows_progress: bool = True
) -> None:
    broker = Broker(name, apache_store(name, path), knows_progress)
    await reopen(broker.store, broker.transactions)
    await scene(broker)
    broker.store.commit_log.close()


def test_what_apache_has_done_with_is_not_open(name: str, tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        assert broker.transactions.halves.all() == []

    on_store(name, tmp_path, scene)


def test_without_its_progress_what_nobody_ended_is_open_once(name: str, tmp_path: Path) -> None:
    """Both forms of op records are read, and copies that do not name their root are told from first ones."""

    async def scene(broker: Broker) -> None:
        (half,) = broker.transactions.halves.all()
        found = broker.store.log.look_up(half.at)
        assert found is not None
        assert found.body == LEFT_OPEN
        ops = [op.body async for op in records(broker.store, broker.store.queues.queue(OP, 0), 0)]
        assert len([op for op in ops if b"," not in op]) >= 3  # the older copies are closed now

    on_store(name, tmp_path, scene, knows_progress=False)


@pytest.mark.parametrize("knows_progress", [True, False])
def test_what_apache_ended_stays_as_it_was(name: str, knows_progress: bool, tmp_path: Path) -> None:
    async def scene(broker: Broker) -> None:
        before = broker.visible()
        for half in await broker.halves():
            decision = ENDED.get(half.body)
            if decision is not None:
                assert await broker.end(half, COMMIT + ROLLBACK - decision) == 604, half.body
                assert await broker.end(half, decision) == 0, half.body
        assert broker.visible() == before

    on_store(name, tmp_path, scene, knows_progress)


@pytest.mark.parametrize("knows_progress", [True, False])
def test_what_apache_left_open_or_gave_up_can_be_ended_once(
    name: str, knows_progress: bool, tmp_path: Path
) -> None:
    async def scene(broker: Broker) -> None:
        before = broker.visible()
        for half in await broker.halves():
            if half.body == LEFT_OPEN:
                assert await broker.end(half, COMMIT) == 0
        assert broker.visible() == before + 1

    on_store(name, tmp_path, scene, knows_progress)
