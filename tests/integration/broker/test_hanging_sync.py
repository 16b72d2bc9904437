"""A real broker on real files: no sync runs on the event loop, and one that hangs stops nobody."""

import asyncio
import contextlib
import threading
import traceback
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.broker.desk import letters

from turbopump.broker.config import BrokerConfig, ListenConfig, NameServerConfig, TimerRules, WaitLimits
from turbopump.broker.server import Broker
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command
from turbopump.remoting.client import Client
from turbopump.runtime.chance import Chance
from turbopump.runtime.clock import SystemClock
from turbopump.runtime.disk import SystemWorkers
from turbopump.runtime.network import SystemNetwork
from turbopump.store.config import StoreConfig
from turbopump.store.store import Store
from turbopump.testing.faulty import FaultyDisk


class WatchedDisk(FaultyDisk):
    """Remembers which syncs ran on the thread of the event loop while `watches` was set."""

    def __init__(self) -> None:
        super().__init__()
        self.watches = False
        self.on_the_loop: list[str] = []
        self.elsewhere = 0

    def _hang(self) -> None:
        if self.watches and threading.current_thread() is threading.main_thread():
            self.on_the_loop.append(_caller())
        self.elsewhere += self.watches and threading.current_thread() is not threading.main_thread()
        super()._hang()

    def sync_all(self, path: str) -> None:
        self._hang()
        super().sync_all(path)

    def write(self, path: str, data: bytes, sync: bool = True) -> None:
        if sync:
            self._hang()
        super().write(path, data, sync)


def _caller() -> str:
    """The functions that led to a sync, innermost last: what a failing test prints."""
    return " > ".join(frame.name for frame in traceback.extract_stack()[-9:-2])


class Stage:
    def __init__(self, broker: Broker, disk: WatchedDisk) -> None:
        self.broker = broker
        self.disk = disk
        assert broker._store is not None
        self.store: Store = broker._store

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        client = Client(SystemNetwork(), SystemClock())
        try:
            yield client
        finally:
            await client.close()

    async def ask(self, client: Client, code: int, ext: dict[str, object] | None = None) -> Command:
        fields = {name: str(value) for name, value in (ext or {}).items()}
        request = Command(code, ext=fields, body=b"x" * 200 if code == 310 else b"")
        return await client.call(f"127.0.0.1:{self.broker.port}", request, 20)

    async def send(self, client: Client, topic: str = "T", **changes: object) -> Command:
        return await self.ask(client, RequestCode.SEND_MESSAGE_V2, letters(topic, **changes))


@contextlib.asynccontextmanager
async def staged(root: Path, **store: object) -> AsyncIterator[Stage]:
    disk, workers = WatchedDisk(), SystemWorkers()
    settings = {"commit_log_file_size": 1 << 20, "index_slots": 100, "index_items": 400, **store}
    config = BrokerConfig(
        listening=ListenConfig(bind_address="127.0.0.1", advertised_address="127.0.0.1", port=0),
        name_servers=NameServerConfig(),
        store=StoreConfig(root_dir=str(root), **settings),  # type: ignore[arg-type]
        waits=WaitLimits(enabled=False),  # a loaded machine is not what is tested
        timers=TimerRules(log_file_size=4_096, flush_interval_ms=50),
    )
    broker = Broker(config, SystemNetwork(), SystemClock(), disk, workers, Chance(1))
    await broker.start()
    try:
        yield Stage(broker, disk)
    finally:
        disk.watches = False
        await broker.stop()
        workers.close()


def test_a_sync_that_hangs_stops_no_other_client_and_its_send_is_answered_flush_disk_timeout(tmp_path):
    async def main() -> None:
        loop = asyncio.get_running_loop()
        settings = {"flush_disk_type": "SYNC_FLUSH", "sync_flush_timeout_ms": 1_000}
        async with staged(tmp_path, **settings) as stage, stage.client() as one, stage.client() as other:
            for _ in range(50):  # as many as it takes to know the disk
                assert (await stage.send(one)).code == 0
            stage.disk.hangs_s = 2.5
            began = loop.time()
            sent = asyncio.create_task(stage.send(one))
            answers = 0
            while not sent.done():
                asked = loop.time()
                assert (await stage.ask(other, RequestCode.GET_BROKER_RUNTIME_INFO)).code == 0
                assert loop.time() - asked < 0.7, "another client waited for the disk"
                answers += 1
                await asyncio.sleep(0.02)
            answer = await sent
            assert answer.code == ResponseCode.FLUSH_DISK_TIMEOUT
            assert 0.9 < loop.time() - began < 2.4
            assert answers > 5
            busy = await stage.send(other)
            assert (busy.code, (busy.remark or "")[:17]) == (ResponseCode.SYSTEM_BUSY, "[PC_SYNCHRONIZED]")
            await asyncio.sleep(max(0.0, began + 2.6 - loop.time()))
            assert (await stage.send(one)).code == 0

    asyncio.run(main())


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_no_sync_runs_on_the_event_loop(tmp_path, flush):
    """Sends over several files, keys, timers, a checkpoint, deleted topics, queues and log files."""

    async def main() -> None:
        settings = {
            "flush_disk_type": flush,
            "commit_log_file_size": 16_384,
            "consume_queue_file_size": 400,
            "index_items": 40,
            "file_reserved_hours": 0,
            "delete_file_pause_ms": 0,
            "flush_interval_ms": 10,
            "flush_least_pages": 0,
        }
        async with staged(tmp_path, **settings) as stage, stage.client() as client:
            stage.disk.watches = True
            for number in range(200):
                topic = ("T", "U")[number % 2]
                assert (await stage.send(client, topic, pairs={"KEYS": f"k{number}"})).code == 0
            for number in range(90):  # more than one file of the timer log
                soon = str(SystemClock().now_ms() + 60_000 + 1000 * number)
                assert (await stage.send(client, pairs={"TIMER_DELIVER_MS": soon})).code == 0
            await asyncio.sleep(0.3)
            await stage.store.upkeep.take_checkpoint()
            await stage.ask(client, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "U"})
            assert stage.store.queues.find("U", 0) is None
            later = replace(stage.store.config, file_reserved_hours=-1)
            stage.store.configure(later)
            stage.store.retention.ask()
            assert await stage.store.retention.round() > 0
            await stage.ask(client, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
            await asyncio.sleep(0.1)
            assert stage.disk.elsewhere > 0
            assert stage.disk.on_the_loop == []

    asyncio.run(main())
