"""A process that appends is killed at random moments; whatever it acknowledged is there afterwards.

A forked child appends messages with small files, tells each attempt and each acknowledgement through a pipe,
and is killed with signal 9. The parent opens the store and counts: every acknowledged message once and in
order, at most one record for an attempt that was not acknowledged, and queues and index that say what the log
says. `KILLS` in the environment sets the number of rounds (`make test-long`: 1,000).
"""

import asyncio
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.unit.store.lab import check, draft, records

from turbopump.runtime.clock import SystemClock
from turbopump.runtime.disk import SystemDisk, SystemWorkers
from turbopump.store.config import StoreConfig
from turbopump.store.flush import Durability
from turbopump.store.store import Store

ROUNDS = int(os.environ.get("KILLS") or 42)
ROUNDS_PER_STORE = 7
QUEUES = 3
MODES = ("ASYNC_FLUSH", "SYNC_FLUSH")


def config(root: str, mode: str) -> StoreConfig:
    return StoreConfig(
        root_dir=root,
        flush_disk_type="SYNC_FLUSH" if mode == "SYNC_FLUSH" else "ASYNC_FLUSH",
        commit_log_file_size=16_384,
        consume_queue_file_size=400,
        index_slots=64,
        index_items=256,
        flush_interval_ms=20,
        consume_queue_flush_interval_ms=15,
        checkpoint_interval_ms=25,
    )


def open_store(root: str, mode: str) -> Store:
    return Store.open(config(root, mode), SystemDisk(), SystemClock(), SystemWorkers())


async def append_forever(root: str, mode: str, first: int, seed: int, pipe: int) -> None:
    chance = random.Random(seed)
    store = open_store(root, mode)
    await store.start()
    number = first
    while True:
        count = chance.randrange(1, 6)
        drafts, attempts = [], []
        for _ in range(count):
            body = b"%09d" % number + bytes(chance.choice((0, 50, 900)))
            drafts.append(draft(store.queues.queue("T", number % QUEUES), body, key=f"K{number}"))
            attempts.append(number)
            number += 1
        os.write(pipe, b"".join(b"try %d\n" % attempt for attempt in attempts))
        appended = store.log.append(drafts, together=chance.random() < 0.3)
        acknowledgement = b"".join(
            b"ack %d %d\n" % (attempt, offset)
            for attempt, (offset, _, _) in zip(attempts, appended, strict=True)
        )
        if store.flusher.syncs_each:
            await durable(store, appended[-1][0] + appended[-1][2])
        os.write(pipe, acknowledgement)
        if chance.random() < 0.2:
            await asyncio.sleep(chance.random() * 0.01)
        elif chance.random() < 0.3:
            await asyncio.sleep(0)


async def durable(store: Store, offset: int) -> None:
    outcome: asyncio.Future[Durability] = asyncio.get_running_loop().create_future()
    store.flusher.durable(offset, outcome.set_result)
    assert await outcome is Durability.DISK


class Victim:
    """One life of the child."""

    def __init__(self, root: str, mode: str, first: int, seed: int) -> None:
        self._pipe, child_end = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                asyncio.run(append_forever(root, mode, first, seed, child_end))
            finally:
                os._exit(1)
        os.close(child_end)

    def kill_after(self, seconds: float) -> list[str]:
        """What it said until then; at least one line, so that its store was open."""
        deadline = time.monotonic() + seconds
        os.set_blocking(self._pipe, False)
        said = b""
        while time.monotonic() < deadline or not said:
            try:
                part = os.read(self._pipe, 1 << 16)
                assert part, "the child ended by itself"
                said += part
            except BlockingIOError:
                time.sleep(0.001)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.set_blocking(self._pipe, True)
        while part := os.read(self._pipe, 1 << 16):
            said += part
        os.close(self._pipe)
        whole = said[: said.rfind(b"\n") + 1]
        return whole.decode().splitlines()


@pytest.mark.parametrize("mode", MODES)
def test_nothing_acknowledged_is_lost_and_nothing_is_stored_twice(mode: str, tmp_path: Path) -> None:
    chance = random.Random(mode)
    rounds = max(1, ROUNDS // len(MODES))
    for first_round in range(0, rounds, ROUNDS_PER_STORE):
        root = str(tmp_path / f"store-{first_round}")
        acknowledged: dict[int, int] = {}
        tried: list[int] = []
        for _ in range(min(ROUNDS_PER_STORE, rounds - first_round)):
            victim = Victim(root, mode, tried[-1] + 1 if tried else 0, chance.randrange(1 << 30))
            for line in victim.kill_after(chance.choice((0.0, 0.02, 0.06, 0.15))):
                kind, *numbers = line.split()
                if kind == "try":
                    tried.append(int(numbers[0]))
                else:
                    acknowledged[int(numbers[0])] = int(numbers[1])
            count_everything(root, mode, acknowledged, tried, close=chance.random() < 0.3)
        SystemDisk().remove_tree(root)


def count_everything(
    root: str, mode: str, acknowledged: dict[int, int], tried: list[int], close: bool
) -> None:
    store = open_store(root, mode)
    check(store)
    found = [(int(record.body[:9]), record.physical_offset) for record in records(store)]
    stored = Counter(number for number, _ in found)
    assert [number for number, _ in found] == sorted(stored), "in order, none twice"
    places = dict(found)
    missing = [number for number, offset in acknowledged.items() if places.get(number) != offset]
    assert not missing, f"acknowledged but not there: {missing[:5]}"
    assert set(stored) <= set(tried), "nothing that nobody sent"
    if close:
        asyncio.run(store.close())
    else:  # as if this process was killed too
        store.commit_log.close()
        store.queues.files.close()
        store._lock.release()
